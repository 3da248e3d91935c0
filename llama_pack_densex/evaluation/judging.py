"""What a strategy found for a question, judged: whether a text holds an answer, and where in the documents it stands.

Relevance never goes by node ids: strategies that cut documents differently are judged alike. From the findings come
the metrics of a comparison, each a value a question. Pure.
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

from llama_index.core.schema import BaseNode

from llama_pack_densex.evaluation.datasets import EvaluationSet, Question, Span
from llama_pack_densex.evaluation.runs import Scores, rank_metrics
from llama_pack_densex.node_parsers.metadata import DOCUMENT_ID_KEY
from llama_pack_densex.node_parsers.splitting import title_of
from llama_pack_densex.retrieval.hits import matched_units
from llama_pack_densex.text.language import WITHOUT_SPACES

CUTS = (1, 5, 20)
"""The k of recall@k and gold@k."""
LENGTHS = tuple(range(0, 501, 50))
"""The l of answer_recall@l: what the figure 4 of Dense X Retrieval covers."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII_PUNCTUATION = frozenset(string.punctuation)
_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")  # the words and marks of DPR's tokeniser
_MOSTLY = 0.9  # of a unit's characters lie in the passage that it is from; of a strategy's results lie in passages
_SHOWN = 300  # characters of a result in a report
_RANKED = 10  # the k of MRR and nDCG


@dataclass(frozen=True)
class Place:
    """Where a retrieved unit stands: a document's id and, where it is known, a span of its text in characters."""

    document_id: str
    span: Span | None = None


@dataclass(frozen=True)
class Finding:
    """What a strategy found for a question.

    Args:
        rank: The place of the first result that holds an answer, from 1; None: none does. Results are distinct
            passages of the dataset where the strategy's units lie within those (see `ranked`), else distinct units.
        gold_rank: The same for the gold passage.
        words: The length of context that is read until an answer is complete (see `context_length`); None: never.
        text: The beginning of the first result, or what is around its answer.
        source: Where that stands.
        unit: The proposition or sentence that found the first result; "" where it was found itself, or it is not known.
        unit_ranks: `rank` and `gold_rank` among the results as they are.
        documents: The distinct documents of the results, in order.
        results: How many results there were.
        in_passage: How many of them lie within one passage.
        unlocated: How many are nowhere in the documents.
        context_words: The length of the default context.
        in_context: Whether an answer is in the default context.
        answer: What the strategy's query engine answered.
    """

    rank: int | None
    gold_rank: int | None
    words: int | None
    text: str
    source: str
    unit: str = ""
    unit_ranks: tuple[int | None, int | None] = (None, None)
    documents: tuple[str, ...] = ()
    results: int = 0
    in_passage: int = 0
    unlocated: int = 0
    context_words: int = 0
    in_context: bool = False
    answer: str = ""

    def to_dict(self) -> dict[str, Any]:
        """What a report tells of it."""
        shown = {name: getattr(self, name) for name in ("rank", "gold_rank", "words", "text", "source", "unit")}
        return {**shown, "answer": self.answer} if self.answer else shown


def within_passages(findings: Mapping[str, Finding]) -> bool:
    """Whether a strategy's units lie within the dataset's passages, so that passages can be counted."""
    results = sum(finding.results for finding in findings.values())
    return sum(finding.in_passage for finding in findings.values()) >= _MOSTLY * results


class Judge:
    """Reduces what strategies return to findings.

    Args:
        dataset: Documents and questions.
    """

    def __init__(self, dataset: EvaluationSet) -> None:
        self._language = dataset.language
        self._locator = Locator(dataset)
        self._titles = {document.id_: title_of(document) or document.id_ for document in dataset.documents}
        self._relevance = dataset.relevance

    def finding(
        self, question: Question, results: Sequence[BaseNode], context: Sequence[str], default_context: Sequence[str]
    ) -> Finding:
        """Judge one search.

        Args:
            question: The question.
            results: The retrieved nodes, best first, before any postprocessor.
            context: What is read of as many of them as rankings look at.
            default_context: What is read by default.
        """
        right = (tuple(question.answers), self._language)
        places = [self._locator.place(node) for node in results]
        passages = [found for place in places if (found := self._locator.passage(place)) is not None]
        first = results[0].get_content().strip() if results else ""
        unit = next((unit.text for node in results[:1] for unit in matched_units(node)), "")
        of_passages = dict.fromkeys(passage for passage, _ in passages)
        of_units = {place or node.node_id: (place, node) for place, node in zip(places, results, strict=True)}
        return Finding(
            rank=_first(contains_answer(self._locator.text(passage), *right) for passage in of_passages),
            gold_rank=_first(self._is_gold(question, passage) for passage in of_passages),
            words=length_until_answer(context, *right),
            text=_excerpt(first, *right),
            source=self._source(places[0]) if places else "",
            unit="" if unit.strip() == first else _excerpt(unit, *right),
            unit_ranks=(
                _first(contains_answer(node.get_content(), *right) for _, node in of_units.values()),
                # where the gold passage is known, a unit that stands at an unknown place is not taken for it
                _first(
                    place is not None
                    and (place.span is not None or question.span is None)
                    and self._is_gold(question, place)
                    for place, _ in of_units.values()
                ),
            ),
            documents=tuple(dict.fromkeys(place.document_id for place in places if place is not None)),
            results=len(results),
            in_passage=sum(within for _, within in passages),
            unlocated=sum(place is None or place.span is None for place in places),
            context_words=context_length(default_context, self._language),
            in_context=any(contains_answer(text, *right) for text in default_context),
        )

    def _is_gold(self, question: Question, place: Place) -> bool:
        labels = self._relevance.get(question.id)  # of which several may say that a document is relevant
        return is_gold(question, place) if labels is None else labels.get(place.document_id, 0) > 0

    def _source(self, place: Place | None) -> str:
        if place is None:
            return ""
        title = self._titles[place.document_id]
        return title if place.span is None else f"{title}, characters {place.span[0]}-{place.span[1]}"


def contains_answer(text: str, answers: Sequence[str], language: str = "en") -> bool:
    """Say whether a text holds one of the answers, whatever the case, the width of characters and the spacing.

    An answer has to begin and end where a word does, as in DPR's evaluation (Karpukhin et al., 2020): "3" is not in
    "1993". Where words have no spaces between them, and in Korean, whose particles are written onto words, it may stand
    anywhere.

    Args:
        text: A passage, or any other unit.
        answers: The right answers; blank ones are never found.
        language: "en", "ja", ...
    """
    folded = _folded(text, language)
    return any(answer.strip() and _folded(answer, language) in folded for answer in answers)


def length_until_answer(texts: Sequence[str], answers: Sequence[str], language: str = "en") -> int | None:
    """Count the words (or characters) that are read until an answer is complete; None if none ever is.

    Args:
        texts: Units, best first.
        answers: The right answers.
        language: "en", "ja", ...
    """
    before = 0
    for text in texts:
        ends = _ends(text, language)
        if contains_answer(text, answers, language):
            # the more is read, the more answers are in it: search by halves
            lacking = bisect_right(ends, False, key=lambda end: contains_answer(text[:end], answers, language))
            return before + lacking + 1
        before += len(ends)
    return None


def _excerpt(text: str, answers: Sequence[str], language: str) -> str:
    """As much of a text as a report shows: its beginning, or where its first answer comes later, what is around it."""
    if len(text) <= _SHOWN:
        return text
    words = length_until_answer([text], answers, language)
    end = _ends(text, language)[words - 1] if words else 0
    start = 0 if end < _SHOWN else min(end - _SHOWN // 2, len(text) - _SHOWN)
    before, after = "…" * (start > 0), "…" * (start + _SHOWN < len(text))
    return before + text[start + len(before) : start + _SHOWN - len(after)] + after


def first_words(texts: Sequence[str], length: int, language: str = "en") -> list[str]:
    """Cut retrieved texts after l words (or characters): what a reader gets in the paper's EM@l.

    Args:
        texts: Units, best first.
        length: How many words.
        language: "en", "ja", ...

    Returns:
        The units that fit, the last one cut; their own white space is kept.
    """
    kept: list[str] = []
    for text in texts:
        ends = _ends(text, language)
        if length <= 0:
            break
        kept.append(text if len(ends) <= length else text[: ends[length - 1]])
        length -= len(ends)
    return kept


def context_length(texts: Sequence[str], language: str) -> int:
    """The words of a context; the characters but spaces where words have no spaces between them."""
    return sum(len(_ends(text, language)) for text in texts)


def is_gold(question: Question, place: Place) -> bool:
    """Say whether a unit comes from a question's gold passage.

    Units of any size can be compared: one counts when at least half of it, or half of the gold passage, is in both.
    Where the question has no span or the unit has none, the document decides.
    """
    if place.document_id != question.document_id or not question.document_id:
        return False
    if question.span is None or place.span is None:
        return True
    shared = _shared(place.span, question.span)
    return shared > 0 and 2 * shared >= min(end - start for start, end in (place.span, question.span))


def normalise_answer(text: str, language: str = "en") -> str:
    """An answer as exact match compares it.

    English is treated as SQuAD's evaluation script does (Rajpurkar et al., 2016): lower case, no ASCII punctuation, no
    articles, single spaces. Other languages keep their articles and lose all that Unicode calls punctuation, and
    variants of width become one (NFKC); where words have no spaces between them, spaces go as well, so that
    "「２０２３ 年」" and "2023年" are equal.

    Args:
        text: The answer.
        language: "en", "ja", ...
    """
    if language == "en":
        bare = "".join(character for character in text.lower() if character not in _ASCII_PUNCTUATION)
        return " ".join(_ARTICLES.sub(" ", bare).split())
    characters = (each for each in unicodedata.normalize("NFKC", text).lower() if each not in _ASCII_PUNCTUATION)
    bare = "".join(each for each in characters if not unicodedata.category(each).startswith("P"))
    return ("" if language in WITHOUT_SPACES else " ").join(bare.split())


@lru_cache(4096)
def _folded(text: str, language: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    if language in WITHOUT_SPACES:
        return "".join(folded.split())
    if language == "ko":
        return " ".join(folded.split())
    return f" {' '.join(_WORD.findall(folded))} "


def _ends(text: str, language: str) -> list[int]:
    """Where each word of a text ends; where words have no spaces between them, each character but spaces."""
    return [found.end() for found in re.finditer(r"\S" if language in WITHOUT_SPACES else r"\S+", text)]


def _first(hits: Iterator[bool]) -> int | None:
    return next((rank for rank, hit in enumerate(hits, 1) if hit), None)


class Locator:
    """Finds the source span of a node, and the passage of the dataset that a span is from.

    A node's own span is believed where the document has the node's text there; else the text is looked for. Core's
    hierarchical parser counts from the parent, and core looks for a repeated text at its first place.

    Args:
        dataset: The documents and their passages.
    """

    def __init__(self, dataset: EvaluationSet) -> None:
        self._texts = {document.id_: document.text for document in dataset.documents}
        self._passages = {document.id_: dataset.passages_of(document) for document in dataset.documents}
        self._sources = {document_id: (document_id, 0) for document_id in self._texts}
        for document_id, spans in self._passages.items():
            places = {f"{document_id}/{number}": (document_id, start) for number, (start, _) in enumerate(spans)}
            self._sources |= places

    def place(self, node: BaseNode) -> Place | None:
        """Where a node stands: None where neither its document nor its text is known."""
        text = node.get_content().strip()
        sources = self._named(node)
        # where it names none: a retriever that was built over copies of the documents
        for document_id, offset in sources or [(each, 0) for each in self._texts]:
            own = self._own_span(node, document_id, offset) if sources else None
            if (span := own or self._search(text, document_id, offset)) is not None:
                return Place(document_id, span)
        return Place(sources[0][0]) if sources else None

    def passage(self, place: Place | None) -> tuple[Place, bool] | None:
        """The passage that a unit is from, the one that has most of it; and whether it lies within, but for little."""
        if place is None or place.span is None:
            return None
        start, end = place.span
        text = self.text(place)  # without the white space at its ends, which splitters divide among neighbours
        start, end = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
        spans = self._passages[place.document_id]
        first = max(bisect_right([span[0] for span in spans], start) - 1, 0)
        near = [spans[first], *takewhile(lambda span: span[0] < end, spans[first + 1 :])]
        best = max(near, key=lambda span: _shared(span, (start, end)))
        return Place(place.document_id, best), _shared(best, (start, end)) >= _MOSTLY * max(end - start, 1)

    def text(self, place: Place) -> str:
        """What stands at a place."""
        return self._texts[place.document_id][slice(*(place.span or (None,)))]

    def _named(self, node: BaseNode) -> list[tuple[str, int]]:
        """The documents that a node says it is from, each with the place where its text begins in the article."""
        names = (node.metadata.get(DOCUMENT_ID_KEY), node.ref_doc_id, node.node_id)
        return list(dict.fromkeys(self._sources[name] for name in names if name in self._sources))

    def _own_span(self, node: BaseNode, document_id: str, offset: int) -> Span | None:
        start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
        if start is None or end is None:
            return None
        span = (start + offset, end + offset)
        stands_there = self._texts[document_id][slice(*span)].strip()
        # a proposition has the span of its passage, or of its sentence, and words of its own
        is_unit = DOCUMENT_ID_KEY in node.metadata
        return span if stands_there and (is_unit or stands_there == node.get_content().strip()) else None

    def _search(self, text: str, document_id: str, offset: int) -> Span | None:
        start = self._texts[document_id].find(text, offset) if text else -1
        return (start, start + len(text)) if start >= 0 else None


def _shared(first: Span, second: Span) -> int:
    return max(0, min(first[1], second[1]) - max(first[0], second[0]))


def score(dataset: EvaluationSet, findings: Mapping[str, Finding], in_passages: bool, depth: int) -> Scores:
    """All metrics of a strategy that can be given.

    Args:
        dataset: The questions, with what is known about their answers.
        findings: Question id to what was found.
        in_passages: Whether the strategy's results are passages of the dataset: only then are passages counted.
        depth: How many results were looked at; metrics of more are not given.
    """
    answered = {question.id: findings[question.id] for question in dataset.questions if question.answers}
    placed = {question.id: findings[question.id] for question in dataset.questions if question.document_id}
    scores: Scores = {}
    cuts = [k for k in CUTS if k <= depth] if in_passages else []
    scores |= {f"recall@{k}": {key: float(_within(one.rank, k)) for key, one in answered.items()} for k in cuts}
    scores |= {f"gold@{k}": {key: float(_within(one.gold_rank, k)) for key, one in placed.items()} for k in cuts}
    for length in LENGTHS:
        scores[f"answer_recall@{length}"] = recall_within(answered, length)
    scores["answer_recall"] = {key: float(found.in_context) for key, found in answered.items()}
    ranked = min(_RANKED, depth)
    if dataset.relevance:
        labels = {key: labelled for key, labelled in dataset.relevance.items() if key in findings}
        scores |= rank_metrics(labels, {key: findings[key].documents for key in labels}, ranked)
    else:  # of the gold passage, the only right result
        ranks = {key: found.gold_rank if _within(found.gold_rank, ranked) else None for key, found in placed.items()}
        scores[f"mrr@{ranked}"] = {key: 1 / rank if rank else 0.0 for key, rank in ranks.items()}
        scores[f"ndcg@{ranked}"] = {key: 1 / math.log2(rank + 1) if rank else 0.0 for key, rank in ranks.items()}
    return {name: values for name, values in scores.items() if values}


def recall_within(findings: Mapping[str, Finding], length: float) -> dict[str, float]:
    """Say of each question whether an answer is complete within a length of context."""
    return {key: float(_within(found.words, length)) for key, found in findings.items()}


def exact_match(answer: str, answers: Sequence[str], language: str = "en") -> float:
    """1.0 if a reader's answer equals one of the right ones once normalised, else 0.0."""
    given = normalise_answer(answer, language)
    return float(any(given == normalise_answer(right, language) for right in answers))


def f1(answer: str, answers: Sequence[str], language: str = "en") -> float:
    """The F1 of a reader's answer and the right one that is nearest to it, over words (in Japanese over characters).

    As in SQuAD's script, an answer of which nothing is left once normalised equals only another such one.
    """
    # normalised, words are divided by spaces, and characters by nothing
    counted = list if language in WITHOUT_SPACES else str.split
    given, *rights = (Counter(counted(normalise_answer(text, language))) for text in (answer, *answers))
    return max((_f1(given, right) for right in rights), default=0.0)


def _within(place: int | None, bound: float) -> bool:
    return place is not None and place <= bound


def _f1(given: Counter[str], right: Counter[str]) -> float:
    if not given or not right:
        return float(given == right)
    return 2 * (given & right).total() / (given.total() + right.total())
