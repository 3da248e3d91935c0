"""The evidence in what a strategy retrieved for a question: answers in it, and its place in the documents.

Relevance never depends on node ids, so strategies that cut documents differently are judged alike. `metrics`
computes figures from the evidence. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_pack_densex.evaluation.evaluation_set import EvaluationSet, Question, Span
from llama_pack_densex.index.node_store import span_of
from llama_pack_densex.node_parsers.metadata import DOCUMENT_ID_KEY
from llama_pack_densex.retrieval.hits import matched_units
from llama_pack_densex.text.language import WITHOUT_SPACES

_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")  # words and punctuation marks, as in DPR's tokeniser
_MOSTLY = (
    0.9  # share of a unit's characters that must lie in a passage for the unit to be within it
)
_SHOWN = 300  # characters of a result in a report
_SHOWN_FIELDS = ("rank", "gold_rank", "words", "text", "source", "unit")

Texts = Sequence[str]


@dataclass(frozen=True)
class Place:
    """The place of a retrieved unit: a document's id and, if known, a span of its text in characters."""

    document_id: str
    span: Span | None = None


@dataclass(frozen=True)
class Retrieval:
    """The assessment of what a strategy retrieved for a question.

    Args:
        rank: The rank, from 1, of the first result that holds an answer; None if none does. Results are
            distinct passages of the dataset if the strategy's units lie within passages (see
            `metrics.within_passages`), else distinct units.
        gold_rank: The rank of the first result from the gold passage; None if there is none.
        words: The length of context to read until an answer is complete (see `context_length`); None if none
            ever is.
        text: An excerpt of the first result: its beginning, or the surroundings of an answer.
        source: The document's title and the span of the first result.
        unit: An excerpt of the proposition or sentence that found the first result; "" if the result itself
            was found, or the unit is unknown.
        unit_ranks: `rank` and `gold_rank` among distinct units.
        documents: The distinct documents of the results, in order.
        results: The number of results.
        in_passage: How many of them lie within one passage.
        unlocated: How many have no known span in the documents.
        context_words: The length of the default context.
        in_context: Whether an answer is in the default context.
        answer: The answer of the strategy's query engine; "" if there is none.
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
        """Return the same with units ranked in place of passages."""
        return replace(self, rank=self.unit_ranks[0], gold_rank=self.unit_ranks[1])

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that a report shows."""
        shown = {name: getattr(self, name) for name in _SHOWN_FIELDS}
        if self.answer:
            shown["answer"] = self.answer
        return shown


Retrievals = Mapping[str, Retrieval]
"""Question id to retrieval."""


class Assessor:
    """Assesses the results of strategies.

    Args:
        dataset: The documents and questions.
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
        """Assess the results for one question.

        Args:
            question: The question.
            results: The retrieved nodes, best first, before any postprocessor.
            context: The texts that a reader gets of all ranked results.
            default_context: The texts that a reader gets by default.
        """
        answers = question.answers
        language = self._dataset.language
        places = [self._locator.place(node) for node in results]
        located = [self._locator.passage(place) for place in places if place and place.span]
        passages = {passage: self._locator.text(passage) for passage, _ in located}
        units = _distinct_units(places, results)
        rank, gold_rank = self._ranks(question, passages.items())
        text = source = unit = ""
        if results:
            text, source, unit = self._shown(question, results[0], places[0])
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
        """Leave out results from the document that is the question itself."""
        own = question.own_document_id
        if not own:
            return list(results)
        return [result for result in results if self._locator.document_id(result.node) != own]

    def _shown(
        self, question: Question, node: BaseNode, place: Place | None
    ) -> tuple[str, str, str]:
        """Return what a report shows of the first result: text, source, and the unit that found it."""
        language = self._dataset.language
        text = node.get_content().strip()
        units = matched_units(node)
        unit = ""
        if units and units[0].text.strip() != text:
            unit = _excerpt(units[0].text, question.answers, language)
        source = ""
        if place:
            source = self._titles[place.document_id]
        if place and place.span:
            start, end = place.span
            source += f", characters {start}-{end}"
        return _excerpt(text, question.answers, language), source, unit

    def _ranks(
        self, question: Question, results: Iterable[tuple[Place | None, str]]
    ) -> tuple[int | None, int | None]:
        """Return the rank of the first result with an answer, and of the first from the gold passage."""
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
            return False  # the gold passage is known, but the place of the result is not
        if labels is None:
            return is_gold(question, place)
        return labels.get(place.document_id, 0) > 0  # several documents may be labelled as relevant


def is_gold(question: Question, place: Place) -> bool:
    """Return whether a unit comes from a question's gold passage.

    Units of any size can be compared: a unit counts if it shares with the gold passage at least half of the
    shorter of the two. If the question or the unit has no span, the document decides.
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

    A node's own span is trusted if the document has the node's text there; otherwise the text is searched
    for. Spans can be wrong: core's hierarchical parser counts from the parent, and core gives every repeated
    text the span of its first occurrence.

    Args:
        dataset: The documents and their passages.
    """

    def __init__(self, dataset: EvaluationSet) -> None:
        self._texts = {document.id_: document.text for document in dataset.documents}
        self._passages = {
            document.id_: dataset.passages_of(document) for document in dataset.documents
        }
        # id of a document or passage to its document and the offset of its text there
        self._starts = {document_id: (document_id, 0) for document_id in self._texts}
        for document_id, spans in self._passages.items():
            for number, (start, _) in enumerate(spans):
                self._starts[f"{document_id}/{number}"] = (document_id, start)

    def place(self, node: BaseNode) -> Place | None:
        """Return a node's place; None if neither its document nor its text is known."""
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
        # the node names no known document: its retriever was built over copies
        for document_id in self._texts:
            span = self._find(text, document_id)
            if span:
                return Place(document_id, span)
        return None

    def document_id(self, node: BaseNode) -> str | None:
        """Return the id of a node's document, even if the dataset comes without documents."""
        place = self.place(node)
        if place:
            return place.document_id
        return node.metadata.get(DOCUMENT_ID_KEY) or node.ref_doc_id

    def passage(self, place: Place) -> tuple[Place, bool]:
        """Return the passage with most of a unit whose span is known, and whether it has nearly all of it."""
        text = self.text(place)
        start, _ = place.span or (0, 0)
        # without surrounding white space, which splitters leave to one neighbour or the other
        end = start + len(text.rstrip())
        start += len(text) - len(text.lstrip())
        spans = self._passages[place.document_id]
        starts = [passage_start for passage_start, _ in spans]
        first = max(bisect_right(starts, start) - 1, 0)
        after_last = bisect_left(starts, end, lo=first + 1)
        best = max(spans[first:after_last], key=lambda span: _shared(span, (start, end)))
        is_within = _shared(best, (start, end)) >= _MOSTLY * max(end - start, 1)
        return Place(place.document_id, best), is_within

    def text(self, place: Place) -> str:
        """Return the text at a place; the whole document if the span is unknown."""
        start, end = place.span or (0, None)
        return self._texts[place.document_id][start:end]

    def _own_span(self, node: BaseNode, document_id: str, offset: int) -> Span | None:
        own_span = span_of(node)
        if not own_span:
            return None
        start, end = own_span
        span = (start + offset, end + offset)
        text = self.text(Place(document_id, span)).strip()
        # a proposition has the span of its passage or sentence, but its own wording
        is_right = DOCUMENT_ID_KEY in node.metadata or text == node.get_content().strip()
        if not text or not is_right:
            return None
        return span

    def _find(self, text: str, document_id: str, offset: int = 0) -> Span | None:
        start = self._texts[document_id].find(text, offset)
        if not text or start < 0:
            return None
        return start, start + len(text)


def _shared(first: Span, second: Span) -> int:
    return max(0, min(first[1], second[1]) - max(first[0], second[0]))


# Answers in texts


def contains_answer(text: str, answers: Texts, language: str = "en") -> bool:
    """Return whether a text holds one of the answers, ignoring case, character width and spacing.

    An answer has to begin and end at word boundaries, as in DPR's evaluation (Karpukhin et al., 2020): "3" is
    not in "1993". In languages that write words without spaces, and in Korean, which attaches particles to
    words, it may stand anywhere.

    Args:
        text: A passage, or any other unit.
        answers: The right answers; blank ones are ignored.
        language: "en", "ja", ...
    """
    folded = _folded(text, language)
    return any(answer.strip() and _folded(answer, language) in folded for answer in answers)


def length_until_answer(texts: Texts, answers: Texts, language: str = "en") -> int | None:
    """Count the words (or characters) to read until an answer is complete; None if none ever is.

    Args:
        texts: Units, best first.
        answers: The right answers.
        language: "en", "ja", ...
    """
    length = 0
    for text in texts:
        ends = _word_ends(text, language)
        if contains_answer(text, answers, language):
            # binary search: an answer that is complete stays complete as more is read
            incomplete = bisect_right(
                ends, False, key=lambda end: contains_answer(text[:end], answers, language)
            )
            return length + incomplete + 1
        length += len(ends)
    return None


def _distinct_units(
    places: Sequence[Place | None], results: Sequence[BaseNode]
) -> dict[Place | str, tuple[Place | None, str]]:
    """Return the results by place, so that each place occurs once, with place and text."""
    return {
        place or node.node_id: (place, node.get_content())
        for place, node in zip(places, results, strict=True)
    }


def _excerpt(text: str, answers: Texts, language: str) -> str:
    """Shorten a text for a report: to its beginning, or to the surroundings of an answer further on."""
    if len(text) <= _SHOWN:
        return text
    start = 0
    words = length_until_answer([text], answers, language)
    if words:
        end = _word_ends(text, language)[words - 1]
        if end >= _SHOWN:
            start = min(end - _SHOWN // 2, len(text) - _SHOWN)
    excerpt = text[start : start + _SHOWN]
    if start > 0:
        excerpt = f"…{excerpt[1:]}"
    if start + _SHOWN < len(text):
        excerpt = f"{excerpt[:-1]}…"
    return excerpt


def first_words(texts: Texts, length: int, language: str = "en") -> list[str]:
    """Cut retrieved texts after `length` words (or characters): what a reader gets in the paper's EM@l.

    Args:
        texts: Units, best first.
        length: The number of words.
        language: "en", "ja", ...

    Returns:
        The units that fit, the last one cut if need be; white space within them is kept.
    """
    kept = []
    for text in texts:
        if length <= 0:
            break
        ends = _word_ends(text, language)
        if len(ends) > length:
            text = text[: ends[length - 1]]
        kept.append(text)
        length -= len(ends)
    return kept


def context_length(texts: Texts, language: str) -> int:
    """Count the words of a context; in languages without spaces, the characters except white space."""
    return sum(len(_word_ends(text, language)) for text in texts)


def _word_ends(text: str, language: str) -> list[int]:
    """Return the end of each word; in languages without spaces, of each character except white space."""
    pattern = r"\S+"
    if language in WITHOUT_SPACES:
        pattern = r"\S"
    return [match.end() for match in re.finditer(pattern, text)]


@lru_cache(4096)
def _folded(text: str, language: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    if language in WITHOUT_SPACES:
        return "".join(folded.split())
    if language == "ko":
        return " ".join(folded.split())
    return f" {' '.join(_WORD.findall(folded))} "
