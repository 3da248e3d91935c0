"""The retrieval units of Dense X Retrieval (Chen et al., 2023, appendix A): passages, sentences, propositions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.data import EvaluationSet, Span
from llama_pack_densex.propositionizers.base import Passage, Propositionizer
from llama_pack_densex.propositionizers.blocks import CJK
from llama_pack_densex.propositionizers.segmentation import sentence_spans

MAX_WORDS = 100
MIN_LAST_WORDS = 50
_CHARACTERS_A_WORD = 2  # 200 Japanese characters say about as much as 100 English words


@dataclass(frozen=True)
class PaperUnit:
    """A unit of a corpus, as FACTOIDWIKI has them.

    Args:
        id: Unique within the corpus.
        text: What is searched.
        title: The article's title.
        section: The section's heading; "" where it is not known.
    """

    id: str
    text: str
    title: str = ""
    section: str = ""


def passage_spans(text: str, max_words: int = MAX_WORDS, min_last_words: int = MIN_LAST_WORDS) -> list[Span]:
    """Cut a text into passages as the paper does.

    Sentences are added to a passage while it has at most `max_words`, so that passages end where sentences do; one
    sentence that is longer is a passage. A last passage of fewer than `min_last_words` joins the one before, which may
    then have more than `max_words`.

    Args:
        text: An article, or a section of one.
        max_words: Of a passage. Two Chinese or Japanese characters count as a word.
        min_last_words: Of the last passage.

    Returns:
        The passages' spans in characters, in order; together they hold all of the text's sentences.

    Raises:
        ValueError: `max_words` is below 1.
    """
    if max_words < 1:
        raise ValueError(f"max_words is {max_words}: at least 1 is needed")
    spans: list[Span] = []
    sizes: list[float] = []
    for start, end in sentence_spans(text):
        size = count_words(text[start:end])
        if spans and sizes[-1] + size <= max_words:
            spans[-1] = (spans[-1][0], end)
            sizes[-1] += size
        else:
            spans.append((start, end))
            sizes.append(size)
    if len(spans) > 1 and sizes[-1] < min_last_words:
        spans[-2:] = [(spans[-2][0], spans[-1][1])]
    return spans


def count_words(text: str) -> float:
    """Count what spaces divide; of Chinese and Japanese, half the characters."""
    characters = len(CJK.findall(text))
    return len(CJK.sub(" ", text).split()) + characters / _CHARACTERS_A_WORD if characters else len(text.split())


def with_paper_passages(evaluation_set: EvaluationSet) -> EvaluationSet:
    """The same set with its articles cut into the paper's passages in place of the dataset's own."""
    return replace(
        evaluation_set,
        passages={document.id_: passage_spans(document.text) for document in evaluation_set.documents},
    )


def passages(documents: Sequence[Document]) -> list[PaperUnit]:
    """The paper's passages of some articles."""
    return list(_units(documents, passage_spans))


def sentences(documents: Sequence[Document]) -> list[PaperUnit]:
    """The sentences of some articles."""
    return list(_units(documents, sentence_spans))


def propositions(documents: Sequence[Document], propositionizer: Propositionizer) -> list[PaperUnit]:
    """The propositions of some articles' passages.

    Args:
        documents: The articles.
        propositionizer: What makes propositions of passages.

    Returns:
        The propositions; the ids are the passages' ids with a number after them.
    """
    whole = passages(documents)
    made = propositionizer.propositionize([Passage(unit.text, unit.title, unit.section) for unit in whole])
    return [
        replace(unit, id=f"{unit.id}/{number}", text=text)
        for unit, found in zip(whole, made, strict=True)
        for number, text in enumerate(found.texts)
    ]


def _units(documents: Sequence[Document], cut: Callable[[str], list[Span]]) -> Iterator[PaperUnit]:
    for document in documents:
        for number, (start, end) in enumerate(cut(document.text)):
            title = str(document.metadata.get("title", ""))
            yield PaperUnit(f"{document.id_}/{number}", document.text[start:end], title)
