"""What a strategy retrieved for a question: whether it holds an answer, and where in the documents it stands.

Relevance never goes by node ids: strategies that cut documents differently are judged alike. `metrics` makes
figures of it. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_pack_densex.evaluation.evaluation_set import EvaluationSet, Question, Span
from llama_pack_densex.index.node_store import span_of
from llama_pack_densex.node_parsers.metadata import DOCUMENT_ID_KEY
from llama_pack_densex.retrieval.hits import matched_units
from llama_pack_densex.text.language import WITHOUT_SPACES

_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")  # the words and marks of DPR's tokeniser
_MOSTLY = 0.9  # of a unit's characters lie in its passage
_SHOWN = 300  # characters of a result in a report
_SHOWN_FIELDS = ("rank", "gold_rank", "words", "text", "source", "unit")

Texts = Sequence[str]


@dataclass(frozen=True)
class Place:
    """Where a retrieved unit stands: a document's id and, if known, a span of its text in characters."""

    document_id: str
    span: Span | None = None


@dataclass(frozen=True)
class Retrieval:
    """What a strategy retrieved for a question.

    Args:
        rank: The place of the first result that holds an answer, from 1; None: none does. Results are
            distinct passages of the dataset where the strategy's units lie within those (see `ranked`), else
            distinct units.
        gold_rank: The same for the gold passage.
        words: The length of context that is read until an answer is complete (see `context_length`); None:
            never.
        text: The beginning of the first result, or what is around its answer.
        source: Where that stands.
        unit: The proposition or sentence that found the first result; "" where it was found itself, or it is
            not known.
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

    def of_units(self) -> Retrieval:
        """The same with results ranked as they are, and not as passages."""
        return replace(self, rank=self.unit_ranks[0], gold_rank=self.unit_ranks[1])

    def to_dict(self) -> dict[str, Any]:
        """What a report shows of it."""
        shown = {name: getattr(self, name) for name in _SHOWN_FIELDS}
        return {**shown, "answer": self.answer} if self.answer else shown


Retrievals = Mapping[str, Retrieval]
"""By question id."""


class Assessor:
    """Assesses what strategies return.

    Args:
        dataset: Documents and questions.
    """

    def __init__(self, dataset: EvaluationSet) -> None:
        self._dataset = dataset
        self._titles = dataset.titles
        self._locator = Locator(dataset)

    def assess(
        self,
        question: Question,
        results: Sequence[BaseNode],
        context: Texts,
        default_context: Texts,
    ) -> Retrieval:
        """Assess one search.

        Args:
            question: The question.
            results: The retrieved nodes, best first, before any postprocessor.
            context: What is read of as many of them as rankings look at.
            default_context: What is read by default.
        """
        answers = question.answers
        language = self._dataset.language
        places = [self._locator.place(node) for node in results]
        located = [self._locator.passage(place) for place in places if place and place.span]
        passages = {passage: self._locator.text(passage) for passage, _ in located}
        units = _distinct_units(places, results)
        rank, gold_rank = self._ranks(question, passages.items())
        text, source, unit = (
            self._shown(question, results[0], places[0]) if results else ("", "", "")
        )
        return Retrieval(
            rank=rank,
            gold_rank=gold_rank,
            words=length_until_answer(context, answers, language),
            text=text,
            source=source,
            unit=unit,
            unit_ranks=self._ranks(question, units.values()),
            documents=tuple(dict.fromkeys(place.document_id for place in places if place)),
            results=len(results),
            in_passage=sum(is_within for _, is_within in located),
            unlocated=len(results) - len(located),
            context_words=context_length(default_context, language),
            in_context=length_until_answer(default_context, answers, language) is not None,
        )

    def without_own(
        self, question: Question, results: Sequence[NodeWithScore]
    ) -> list[NodeWithScore]:
        """The results without those that are from the document that is the question itself."""
        own = question.own_document_id
        return [
            result for result in results if not own or self._locator.document_id(result.node) != own
        ]

    def _shown(
        self, question: Question, node: BaseNode, place: Place | None
    ) -> tuple[str, str, str]:
        """What a report shows of the first result: its text, its source, and the unit that found it."""
        language = self._dataset.language
        text = node.get_content().strip()
        units = matched_units(node)
        unit = units[0].text if units and units[0].text.strip() != text else ""
        source = self._titles[place.document_id] if place else ""
        if place and place.span:
            source += f", characters {place.span[0]}-{place.span[1]}"
        return (
            _excerpt(text, question.answers, language),
            source,
            _excerpt(unit, question.answers, language),
        )

    def _ranks(
        self, question: Question, results: Iterable[tuple[Place | None, str]]
    ) -> tuple[int | None, int | None]:
        """The ranks of the first result that holds an answer, and of the first from the gold passage."""
        rank = gold_rank = None
        for number, (place, text) in enumerate(results, 1):
            if not rank and contains_answer(text, question.answers, self._dataset.language):
                rank = number
            if not gold_rank and place and self._is_gold(question, place):
                gold_rank = number
        return rank, gold_rank

    def _is_gold(self, question: Question, place: Place) -> bool:
        labels = self._dataset.relevance.get(question.id)
        if question.span and not place.span:
            return False  # the gold passage is known, and where the result stands is not
        if labels is None:
            return is_gold(question, place)
        return labels.get(place.document_id, 0) > 0  # several documents may be labelled as relevant


def is_gold(question: Question, place: Place) -> bool:
    """Say whether a unit comes from a question's gold passage.

    Units of any size can be compared: one counts when at least half of it, or half of the gold passage, is in
    both. Where the question has no span or the unit has none, the document decides.
    """
    if place.document_id != question.document_id or not question.document_id:
        return False
    if not (question.span and place.span):
        return True
    shared = _shared(place.span, question.span)
    return shared > 0 and 2 * shared >= min(
        end - start for start, end in (place.span, question.span)
    )


class Locator:
    """Finds the source span of a node, and the passage of the dataset that a span is from.

    A node's own span is believed where the document has the node's text there; else the text is searched for.
    Core's hierarchical parser counts from the parent, and core finds a repeated text at its first place only.

    Args:
        dataset: The documents and their passages.
    """

    def __init__(self, dataset: EvaluationSet) -> None:
        self._texts = {document.id_: document.text for document in dataset.documents}
        self._passages = {
            document.id_: dataset.passages_of(document) for document in dataset.documents
        }
        # where the text begins that an id stands for
        self._starts = {document_id: (document_id, 0) for document_id in self._texts}
        for document_id, spans in self._passages.items():
            for number, (start, _) in enumerate(spans):
                self._starts[f"{document_id}/{number}"] = (document_id, start)

    def place(self, node: BaseNode) -> Place | None:
        """Where a node stands: None if neither its document nor its text is known."""
        text = node.get_content().strip()
        names = (node.metadata.get(DOCUMENT_ID_KEY), node.ref_doc_id, node.node_id)
        starts = [self._starts[name] for name in names if name in self._starts]
        for document_id, offset in starts:
            span = self._own_span(node, document_id, offset) or self._find(
                text, document_id, offset
            )
            if span:
                return Place(document_id, span)
        if starts:
            return Place(starts[0][0])
        # it names none: its retriever was built over copies of them
        for document_id in self._texts:
            span = self._find(text, document_id)
            if span:
                return Place(document_id, span)
        return None

    def document_id(self, node: BaseNode) -> str | None:
        """The document that a node is from, also where the documents are not known here."""
        place = self.place(node)
        return place.document_id if place else node.metadata.get(DOCUMENT_ID_KEY) or node.ref_doc_id

    def passage(self, place: Place) -> tuple[Place, bool]:
        """The passage that has most of a unit with a known span; and whether it has nearly all of it."""
        text = self.text(place)
        start = place.span[0] if place.span else 0
        # without the white space at its ends, which splitters divide among neighbours
        end = start + len(text.rstrip())
        start += len(text) - len(text.lstrip())
        spans = self._passages[place.document_id]
        first = max(bisect_right(spans, start, key=lambda span: span[0]) - 1, 0)
        near = [spans[first], *takewhile(lambda span: span[0] < end, spans[first + 1 :])]
        best = max(near, key=lambda span: _shared(span, (start, end)))
        is_within = _shared(best, (start, end)) >= _MOSTLY * max(end - start, 1)
        return Place(place.document_id, best), is_within

    def text(self, place: Place) -> str:
        """What stands at a place."""
        return self._texts[place.document_id][slice(*(place.span or (None,)))]

    def _own_span(self, node: BaseNode, document_id: str, offset: int) -> Span | None:
        own_span = span_of(node)
        if not own_span:
            return None
        start, end = own_span
        span = (start + offset, end + offset)
        text = self.text(Place(document_id, span)).strip()
        # a proposition has the span of its passage, or of its sentence, and words of its own
        is_right = DOCUMENT_ID_KEY in node.metadata or text == node.get_content().strip()
        return span if text and is_right else None

    def _find(self, text: str, document_id: str, offset: int = 0) -> Span | None:
        start = self._texts[document_id].find(text, offset) if text else -1
        return (start, start + len(text)) if start >= 0 else None


def _shared(first: Span, second: Span) -> int:
    return max(0, min(first[1], second[1]) - max(first[0], second[0]))


# Answers in texts


def contains_answer(text: str, answers: Texts, language: str = "en") -> bool:
    """Whether a text holds one of the answers, whatever the case, the width of characters and the spacing.

    An answer has to begin and end where a word does, as in DPR's evaluation (Karpukhin et al., 2020): "3" is
    not in "1993". Where words have no spaces between them, and in Korean, whose particles are written onto
    words, it may stand anywhere.

    Args:
        text: A passage, or any other unit.
        answers: The right answers; blank ones never count.
        language: "en", "ja", ...
    """
    folded = _folded(text, language)
    return any(answer.strip() and _folded(answer, language) in folded for answer in answers)


def length_until_answer(texts: Texts, answers: Texts, language: str = "en") -> int | None:
    """Count the words (or characters) that are read until an answer is complete; None if none ever is.

    Args:
        texts: Units, best first.
        answers: The right answers.
        language: "en", "ja", ...
    """
    length = 0
    for text in texts:
        ends = _word_ends(text, language)
        if contains_answer(text, answers, language):
            # the more is read, the more answers are in it: a binary search
            lacking = bisect_right(
                ends, False, key=lambda end: contains_answer(text[:end], answers, language)
            )
            return length + lacking + 1
        length += len(ends)
    return None


def _distinct_units(
    places: Sequence[Place | None], results: Sequence[BaseNode]
) -> dict[Place | str, tuple[Place | None, str]]:
    """What was retrieved, each place once."""
    return {
        place or node.node_id: (place, node.get_content())
        for place, node in zip(places, results, strict=True)
    }


def _excerpt(text: str, answers: Texts, language: str) -> str:
    """As much of a text as a report shows: its beginning, or what surrounds an answer that comes later."""
    if len(text) <= _SHOWN:
        return text
    start = 0
    if words := length_until_answer([text], answers, language):
        end = _word_ends(text, language)[words - 1]
        start = min(end - _SHOWN // 2, len(text) - _SHOWN) if end >= _SHOWN else 0
    excerpt = text[start : start + _SHOWN]
    if start > 0:
        excerpt = f"…{excerpt[1:]}"
    return f"{excerpt[:-1]}…" if start + _SHOWN < len(text) else excerpt


def first_words(texts: Texts, length: int, language: str = "en") -> list[str]:
    """Cut retrieved texts after l words (or characters): what a reader gets in the paper's EM@l.

    Args:
        texts: Units, best first.
        length: How many words.
        language: "en", "ja", ...

    Returns:
        The units that fit, the last one cut; their own white space is kept.
    """
    kept = []
    for text in texts:
        if length <= 0:
            break
        ends = _word_ends(text, language)
        kept.append(text if len(ends) <= length else text[: ends[length - 1]])
        length -= len(ends)
    return kept


def context_length(texts: Texts, language: str) -> int:
    """The words of a context; the characters but spaces where words have no spaces between them."""
    return sum(len(_word_ends(text, language)) for text in texts)


def _word_ends(text: str, language: str) -> list[int]:
    """Where each word of a text ends; where words have no spaces between them, each character but spaces."""
    return [
        match.end() for match in re.finditer(r"\S" if language in WITHOUT_SPACES else r"\S+", text)
    ]


@lru_cache(4096)
def _folded(text: str, language: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    if language in WITHOUT_SPACES:
        return "".join(folded.split())
    if language == "ko":
        return " ".join(folded.split())
    return f" {' '.join(_WORD.findall(folded))} "
