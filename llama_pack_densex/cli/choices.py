"""What the user chooses at the command line, made into the pack's arguments and parts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import typer

from llama_pack_densex.ingestion.estimate import asked_llm
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
            typer.BadParameter: Something was chosen for an LLM, and none is asked.
            ValueError: As `make_propositionizer`.
        """
        propositionizer = self.make_propositionizer(manifest)
        for_llm = [*self.limits, *([] if self.llm in (None, NONE) else ["llm"])]
        if for_llm and asked_llm(propositionizer) is None:  # who sets a budget should not believe that it is kept to
            raise typer.BadParameter("it is for --propositionizer llm", param_hint=f"--{for_llm[0].replace('_', '-')}")
        given = self._given("mode", "granularity", "embed_model")
        return {"propositionizer": propositionizer, "query_llm": NONE, **given}

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
            typer.BadParameter: There is no such propositionizer.
            ValueError: Something is missing for the choice, or the index was made by a propositionizer that has to be
                named.
        """
        made_by = None if manifest is None else manifest.propositionizer
        chosen: Propositionizer = SentencePropositionizer()
        by_key = bool(os.environ.get("OPENAI_API_KEY")) and made_by != chosen.fingerprint
        asks = by_key if self.llm is None else self.llm != NONE
        kind, _, named = (self.propositionizer or ("llm" if asks else "sentence")).partition(":")
        if kind == "recorded" and named:
            chosen = RecordedPropositionizer(Path(named))
        elif kind == "seq2seq":
            otherwise = None if self.llm in (None, NONE) else LLMPropositionizer(llm=self.llm, **self.limits)
            chosen = Seq2SeqPropositionizer(named or PROPOSITIONIZER, otherwise=otherwise)
        elif kind == "llm" and not named:
            chosen = LLMPropositionizer(llm=self.llm or OPENAI_MODEL, **self.limits)
        elif kind != "sentence" or named:
            kinds = "llm, sentence, recorded:FILE or seq2seq[:MODEL]"
            raise typer.BadParameter(f"{self.propositionizer!r} is no file, and not {kinds}")
        if self.propositionizer is None and self.llm is None and made_by not in (None, chosen.fingerprint):
            raise ValueError(
                "the index's propositions were not made by what is the default here. Say with --propositionizer what "
                "made them (llm, sentence, recorded:FILE or seq2seq; for an LLM also --llm and --questions), or what "
                "is to make them from now on."
            )
        return chosen

    def _given(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names if getattr(self, name)}
