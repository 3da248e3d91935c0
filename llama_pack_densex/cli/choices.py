"""What the user chooses at the command line, made into the pack's arguments and parts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from llama_pack_densex.llm.names import OPENAI_MODEL
from llama_pack_densex.models import NONE
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser
from llama_pack_densex.options import PackOptions
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.propositionizers.seq2seq import PROPOSITIONIZER, Seq2SeqPropositionizer
from llama_pack_densex.stores.manifest import Manifest
from llama_pack_densex.wiring import Given, make_node_parser

_LIMITS = (
    "questions", "strictness", "max_concurrency", "requests_per_minute", "tokens_per_minute", "max_cost",
    "max_tokens_total", "prices",
)  # fmt: skip


@dataclass(frozen=True)
class Choices:
    """What would make an index, and of which files; None and empty mean the index's own, or the default.

    Args:
        propositionizer: "llm", "sentence", "recorded:FILE", "seq2seq" or "seq2seq:MODEL".
        mode: "recursive" or "auto_merging".
        embed_model: What the pack takes as `embed_model`.
        llm: What the pack takes as `proposition_llm`, a name or "none".
        granularity: The units to search.
        limits: Arguments of `LLMPropositionizer`: what it keeps to, and how it asks.
        include: Globs of files to read though they are code or data by their names.
        exclude: Globs of files not to read.
        strict: Whether files that cannot be read are refused, in place of being skipped.
    """

    propositionizer: str | None = None
    mode: str | None = None
    embed_model: str | None = None
    llm: str | None = None
    granularity: Sequence[str] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    strict: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Choices:
        """The choices among a command's options.

        Args:
            options: By their names; those that were not given are None.
        """
        given = {name: value for name, value in options.items() if value is not None}
        chosen = {each.name: given[each.name] for each in fields(cls) if each.name in given}
        return cls(**chosen, limits={name: given[name] for name in _LIMITS if name in given})

    def pack_arguments(self, manifest: Manifest | None) -> dict[str, Any]:
        """The pack's arguments.

        Args:
            manifest: Of the index that is there already.

        Raises:
            ValueError: Something is missing for the choice, or the index was made by a propositionizer that has to be
                named.
        """
        given = self._given("mode", "granularity", "embed_model")
        return {"propositionizer": self.make_propositionizer(manifest), "query_llm": NONE, **given}

    def node_parser(self, manifest: Manifest | None, propositionizer: Propositionizer) -> BasePropositionNodeParser:
        """The parser that `densex index` would take.

        Args:
            manifest: Of the index that is there already.
            propositionizer: What would make the propositions.
        """
        known = {} if manifest is None else {"mode": manifest.mode, "granularity": manifest.granularity}
        options = PackOptions(**{**known, **self._given("mode", "granularity")})
        return make_node_parser(options, Given(propositionizer=propositionizer))[0]

    def make_propositionizer(self, manifest: Manifest | None = None) -> Propositionizer:
        """What makes the propositions.

        Args:
            manifest: Of the index that is there already.

        Raises:
            ValueError: As `pack_arguments`.
        """
        kind, _, named = (self.propositionizer or "").partition(":")
        if kind == "recorded":
            return RecordedPropositionizer(Path(named))
        if kind == "seq2seq":
            otherwise = None if self.llm in (None, NONE) else LLMPropositionizer(llm=self.llm, **self.limits)
            return Seq2SeqPropositionizer(named or PROPOSITIONIZER, otherwise=otherwise)
        sentences = SentencePropositionizer()
        if self.propositionizer == "sentence" or (self.propositionizer is None and self.llm == NONE):
            return sentences
        is_named = self.propositionizer == "llm" or self.llm is not None
        by_sentences = manifest is not None and manifest.propositionizer == sentences.fingerprint
        if is_named or (os.environ.get("OPENAI_API_KEY") and not by_sentences):
            chosen: Propositionizer = LLMPropositionizer(llm=self.llm or OPENAI_MODEL, **self.limits)
        else:
            chosen = sentences
        if not is_named and manifest is not None and manifest.propositionizer != chosen.fingerprint:
            raise ValueError(
                "the index's propositions were not made by what is the default here. Say with --propositionizer what "
                "made them (llm, sentence, recorded:FILE or seq2seq; for an LLM also --llm and --questions), or what "
                "is to make them from now on."
            )
        if self.limits and chosen is sentences:  # who sets a budget should not believe that it is kept to
            option = f"--{next(iter(self.limits)).replace('_', '-')}"
            raise ValueError(
                f"{option} is for an LLM, and sentences stand in for propositions here: say --propositionizer llm"
            )
        return chosen

    def _given(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names if getattr(self, name)}
