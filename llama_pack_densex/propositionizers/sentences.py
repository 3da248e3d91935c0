"""Sentences in place of propositions, without an LLM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet


class SentencePropositionizer(Propositionizer):
    """Uses each sentence as a proposition; needs no LLM, no key and no model.

    Table rows and code blocks stay whole. Combined with BM25, sentences find nearly as much as propositions,
    but their pronouns stay unresolved.

    Example:
        >>> from llama_pack_densex import Passage, SentencePropositionizer
        >>> SentencePropositionizer().propositionize([Passage("雨が降った。試合は中止された。")])[0].texts
        ('雨が降った。', '試合は中止された。')
    """

    @classmethod
    def class_name(cls) -> str:
        return "SentencePropositionizer"

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Return the sentences of each passage; the status is always "ok"."""
        return [PropositionSet(passage.sentences) for passage in passages]

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return self.propositionize(passages)

    def fingerprint_data(self) -> dict[str, Any]:
        return {}
