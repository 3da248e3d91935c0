"""What a strategy found for a question, reduced to what metrics and reports need. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llama_index.core.schema import BaseNode

from llama_pack_densex.evaluation.data import EvaluationSet, Place, Question
from llama_pack_densex.evaluation.locate import Locator, PassageOf
from llama_pack_densex.evaluation.metrics import is_gold
from llama_pack_densex.evaluation.normalise import WITHOUT_SPACES, contains_answer
from llama_pack_densex.evaluation.word_budget import first_words, length_until_answer
from llama_pack_densex.node_parsers.passages import title_of

_SHOWN = 300  # characters of a result in a report


@dataclass(frozen=True)
class Ranks:
    """The places of the first right results among distinct ones, from 1; None where there is none.

    Args:
        answer: Of the first one that holds an answer.
        gold: Of the first one from the gold passage.
    """

    answer: int | None
    gold: int | None


@dataclass(frozen=True)
class Finding:
    """What a strategy found for a question.

    Args:
        passages: The ranks among distinct passages of the dataset.
        units: The ranks among distinct results as they are.
        documents: The distinct documents of the results, in order.
        results: How many results there were.
        in_passage: How many of them lie within one passage.
        unlocated: How many are nowhere in the documents.
        words: The length (see `context_length`) of context that is read until an answer is complete; None: never.
        context_words: The length of the default context.
        context_answer: The same as `words` in the default context.
        text: The beginning of the first result.
        source: Where that stands.
        seconds: How long the search took.
        read: Length to the beginning of the context with that length, for a reader LLM.
    """

    passages: Ranks
    units: Ranks
    documents: tuple[str, ...]
    results: int
    in_passage: int
    unlocated: int
    words: int | None
    context_words: int
    context_answer: int | None
    text: str
    source: str
    seconds: float
    read: Mapping[int, list[str]] = field(default_factory=dict)


class Observer:
    """Reduces what strategies return to findings.

    Args:
        dataset: Documents and questions.
        reader_lengths: The lengths of context that a reader LLM will get.
    """

    def __init__(self, dataset: EvaluationSet, reader_lengths: Sequence[int] = ()) -> None:
        self._language = dataset.language
        self._locator = Locator(dataset)
        self._titles = {document.id_: title_of(document) or document.id_ for document in dataset.documents}
        self._reader_lengths = reader_lengths
        self._answers: dict[tuple[str, str], bool] = {}

    def finding(
        self,
        question: Question,
        results: Sequence[BaseNode],
        context: Sequence[str],
        default_context: Sequence[str],
        seconds: float,
    ) -> Finding:
        """Reduce one search.

        Args:
            question: The question.
            results: The retrieved nodes, best first, before any postprocessor.
            context: What is read of as many of them as rankings look at.
            default_context: What is read by default.
            seconds: How long the search took.
        """
        places = [self._locator.place(node) for node in results]
        passages = [self._locator.passage(place) for place in places]
        first = results[0].get_content().strip() if results else ""
        return Finding(
            passages=self._passage_ranks(question, places, passages),
            units=self._unit_ranks(question, results, places),
            documents=tuple(dict.fromkeys(place.document_id for place in places if place is not None)),
            results=len(results),
            in_passage=sum(passage is not None and passage.within for passage in passages),
            unlocated=sum(place is None or place.span is None for place in places),
            words=length_until_answer(context, question.answers, self._language),
            context_words=context_length(default_context, self._language),
            context_answer=length_until_answer(default_context, question.answers, self._language),
            text=first if len(first) <= _SHOWN else f"{first[: _SHOWN - 1]}…",
            source=self._source(places[0]) if places else "",
            seconds=seconds,
            read={length: first_words(context, length, self._language) for length in self._reader_lengths},
        )

    def _passage_ranks(
        self, question: Question, places: Sequence[Place | None], passages: Sequence[PassageOf | None]
    ) -> Ranks:
        distinct = dict.fromkeys(
            (place.document_id, passage.number)
            for place, passage in zip(places, passages, strict=True)
            if place is not None and passage is not None
        )
        answer = [self._has_answer(question, self._locator.passage_text(*where)) for where in distinct]
        gold = [is_gold(question, Place(where[0], self._locator.passage_span(*where))) for where in distinct]
        return Ranks(_first(answer), _first(gold))

    def _unit_ranks(self, question: Question, results: Sequence[BaseNode], places: Sequence[Place | None]) -> Ranks:
        distinct = {place or node.node_id: (place, node) for place, node in zip(places, results, strict=True)}
        answer = [self._has_answer(question, node.get_content()) for _, node in distinct.values()]
        # where the gold passage is known, a unit that stands at an unknown place is not taken for it
        gold = [
            place is not None and (place.span is not None or question.span is None) and is_gold(question, place)
            for place, _ in distinct.values()
        ]
        return Ranks(_first(answer), _first(gold))

    def _has_answer(self, question: Question, text: str) -> bool:
        key = (question.id, text)
        if key not in self._answers:
            self._answers[key] = contains_answer(text, question.answers, self._language)
        return self._answers[key]

    def _source(self, place: Place | None) -> str:
        if place is None:
            return ""
        title = self._titles[place.document_id]
        return title if place.span is None else f"{title}, characters {place.span[0]}-{place.span[1]}"


def context_length(texts: Sequence[str], language: str) -> int:
    """The words of a context; the characters but spaces where words have no spaces between them."""
    if language in WITHOUT_SPACES:
        return sum(not character.isspace() for text in texts for character in text)
    return sum(len(text.split()) for text in texts)


def _first(hits: Sequence[bool]) -> int | None:
    return next((rank for rank, hit in enumerate(hits, 1) if hit), None)
