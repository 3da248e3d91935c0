"""Sentences in place of propositions: the default without an LLM, and what a failed passage falls back to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.segmentation import segment


def passage_sentences(text: str) -> tuple[str, ...]:
    """Split a passage into the units that stand in for propositions.

    Headings are left out: alone they state nothing, and yet match a question about their topic best. So are rules and
    other lines without a letter or digit. A passage that holds nothing else keeps them, so that every passage that is
    not blank has a unit.
    """
    segments = segment(text)
    stating = [part for part in segments if part.kind != "heading" and _says_something(text[part.start : part.end])]
    return tuple(text[part.start : part.end] for part in stating or segments)


def _says_something(text: str) -> bool:
    return any(character.isalnum() for character in text)


class SentencePropositionizer(Propositionizer):
    """Takes each sentence for a proposition; needs no LLM, no key and no model.

    Tables and code blocks stay whole. With BM25 beside them, sentences find nearly what propositions find, but
    their pronouns stay unresolved.

    Examples:
        >>> SentencePropositionizer().propositionize([Passage("雨が降った。試合は中止された。")])[0].texts
        ('雨が降った。', '試合は中止された。')
    """

    @classmethod
    def class_name(cls) -> str:
        return "SentencePropositionizer"

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Split each passage into its sentences; the status is always "ok"."""
        return [PropositionSet(passage_sentences(passage.text)) for passage in passages]

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return self.propositionize(passages)

    def fingerprint_data(self) -> dict[str, Any]:
        return {}
