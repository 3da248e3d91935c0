"""Recorded propositions of passages, given to chunks that were cut from the same documents at other places."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import Document

from llama_pack_densex.node_parsers.passages import title_of
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.segmentation import sentence_spans
from llama_pack_densex.propositionizers.sentences import passage_sentences
from llama_pack_densex.retrieval.tokens import tokenize

_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class _Recorded:
    """A passage of a document, with its propositions; spans count characters other than white space."""

    text: str
    start: int
    end: int
    propositions: tuple[str, ...]


class ChunkPropositionizer(Propositionizer):
    """Gives a chunk the propositions of the passages in it, as if an LLM had read the chunk.

    A passage that was cut in two shares its propositions out: each goes where the sentence is with which it shares the
    most words. Chunks that overlap can both have it. A chunk that gets none has its sentences, with the status
    "fallback".
    """

    _articles: list[tuple[str, tuple[_Recorded, ...]]] = PrivateAttr()
    _inner: Propositionizer = PrivateAttr()

    @classmethod
    def class_name(cls) -> str:
        return "ChunkPropositionizer"

    @classmethod
    def over(
        cls, recorded: Propositionizer, documents: Sequence[Document], passages: Sequence[Document]
    ) -> ChunkPropositionizer:
        """Read the propositions of all passages.

        Args:
            recorded: Makes the propositions of the passages.
            documents: The documents that chunks are cut from.
            passages: Their passages, document by document, in order.

        Raises:
            ValueError: A passage is not recorded.
        """
        sets = recorded.propositionize([Passage(passage.text, title_of(passage)) for passage in passages])
        texts = [(_bare(passage.text), made.texts) for passage, made in zip(passages, sets, strict=True)]
        made = cls()
        made._inner = recorded
        made._articles = []
        place = 0
        for document in documents:
            article = _bare(document.text)
            end, found = 0, []
            while place < len(texts) and (start := article.find(texts[place][0], end)) >= 0:
                end = start + len(texts[place][0])
                found.append(_Recorded(passages[place].text, start, end, texts[place][1]))
                place += 1
            made._articles.append((article, tuple(found)))
        return made

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return [self._of_chunk(passage.text) for passage in passages]

    def fingerprint_data(self) -> dict[str, Any]:
        return {"recorded": self._inner.fingerprint}

    def _of_chunk(self, chunk: str) -> PropositionSet:
        bare = _bare(chunk)
        for article, recorded in self._articles:
            start = article.find(bare)
            if start >= 0:
                span = (start, start + len(bare))
                texts = [text for passage in recorded for text in _share(passage, span)]
                if texts:
                    return PropositionSet(tuple(texts))
        return PropositionSet(passage_sentences(chunk), "fallback", "no recorded proposition is about this chunk")


def _share(passage: _Recorded, chunk: tuple[int, int]) -> Sequence[str]:
    """The propositions of a passage that go to a chunk: those whose sentence lies in it, or most of it does."""
    start, end = max(chunk[0], passage.start), min(chunk[1], passage.end)
    if start >= end:
        return ()
    sentences = [_Sentence.of(passage, *span) for span in sentence_spans(passage.text)]
    if end - start == passage.end - passage.start or not sentences:
        return passage.propositions
    return [text for text in passage.propositions if _nearest(text, sentences).lies_in(start, end)]


@dataclass(frozen=True)
class _Sentence:
    """A sentence of a passage; its span is in the article and counts characters other than white space."""

    start: int
    end: int
    words: Counter[str]

    @classmethod
    def of(cls, passage: _Recorded, start: int, end: int) -> _Sentence:
        text = passage.text
        before = passage.start + len(_bare(text[:start]))
        return cls(before, before + len(_bare(text[start:end])), Counter(tokenize(text[start:end])))

    def lies_in(self, start: int, end: int) -> bool:
        return 2 * (min(end, self.end) - max(start, self.start)) >= self.end - self.start


def _nearest(proposition: str, sentences: Sequence[_Sentence]) -> _Sentence:
    words = Counter(tokenize(proposition))
    return max(sentences, key=lambda sentence: (words & sentence.words).total())


def _bare(text: str) -> str:
    return _SPACE.sub("", text)
