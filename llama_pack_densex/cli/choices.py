"""What the user chooses at the command line, made into the pack's arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

    from llama_pack_densex.propositionizers.base import Propositionizer
    from llama_pack_densex.stores.manifest import Manifest

EMBED_MODEL_HELP = 'Embedding model: a name or folder, "minilm" (English), or "none" to search by words.'
PROPOSITIONIZERS = "llm, sentence or recorded:FILE"
_RECORDED = "recorded:"


class ModeChoice(str, Enum):
    """The retrieval modes."""

    recursive = "recursive"
    auto_merging = "auto_merging"


class UnitChoice(str, Enum):
    """The units that can be searched."""

    proposition = "proposition"
    sentence = "sentence"
    passage = "passage"


MaxConcurrency = Annotated[
    int | None,
    typer.Option(
        min=1, help="Requests to the LLM at a time. Default: 8, or what the rates below take.", show_default=False
    ),
]
RequestsPerMinute = Annotated[
    float | None, typer.Option(min=0.001, help="What the LLM's provider allows.", show_default=False)
]
TokensPerMinute = Annotated[
    float | None, typer.Option(min=1, help="What the LLM's provider allows.", show_default=False)
]
Granularity = Annotated[
    list[UnitChoice] | None,
    typer.Option(
        help="Units to search; give it several times for several. Default: the index's; at first all.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class IndexChoices:
    """The options of `densex index`; None and empty mean the index's own, or the default.

    Args:
        propositionizer: "llm", "sentence" or "recorded:FILE".
        mode: "recursive" or "auto_merging".
        embed_model: What the pack takes as `embed_model`.
        llm_model: The name of an OpenAI model.
        granularity: The units to search.
        limits: Arguments of `LLMPropositionizer`: what it keeps to, and how it asks.
    """

    propositionizer: str | None = None
    mode: str | None = None
    embed_model: str | None = None
    llm_model: str | None = None
    granularity: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)

    def pack_arguments(self, manifest: Manifest | None) -> dict[str, Any]:
        """The pack's arguments.

        Args:
            manifest: Of the index that is there already.

        Raises:
            ValueError: Something is missing for the choice, or the index was made by a propositionizer that has to be
                named.
        """
        given = {
            "mode": self.mode,
            "granularity": self.granularity or None,
            "embed_model": self.embed_model,
        }
        return {
            "propositionizer": self._propositionizer(manifest),
            "query_llm": "none",
            **{name: value for name, value in given.items() if value is not None},
        }

    def _propositionizer(self, manifest: Manifest | None) -> Propositionizer:
        from llama_pack_densex.propositionizers.llm import LLMPropositionizer
        from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
        from llama_pack_densex.propositionizers.sentences import SentencePropositionizer

        if self.propositionizer is not None and self.propositionizer.startswith(_RECORDED):
            return RecordedPropositionizer(Path(self.propositionizer[len(_RECORDED) :]))
        sentences = SentencePropositionizer()
        if self.propositionizer == "sentence":
            return sentences
        if self.propositionizer == "llm" or self.llm_model is not None:
            return LLMPropositionizer(llm=_require_llm(self.llm_model), **self.limits)
        if manifest is not None and manifest.propositionizer == sentences.fingerprint:
            return self._checked(sentences)
        has_key = bool(os.environ.get("OPENAI_API_KEY"))
        chosen = LLMPropositionizer(llm=_require_llm(None), **self.limits) if has_key else sentences
        if manifest is not None and manifest.propositionizer != chosen.fingerprint:
            raise ValueError(
                "the index's propositions were not made by what is the default here. Say with --propositionizer what "
                f"made them ({PROPOSITIONIZERS}; for an LLM also --llm-model), or what is to make them from now on."
            )
        return self._checked(chosen)

    def _checked(self, chosen: Propositionizer) -> Propositionizer:
        """Refuse limits of an LLM where none is asked: who sets a budget should not believe that it is kept to."""
        if self.limits and chosen.class_name() == "SentencePropositionizer":
            option = f"--{next(iter(self.limits)).replace('_', '-')}"
            raise ValueError(
                f"{option} is for an LLM, and sentences stand in for propositions here: say --propositionizer llm"
            )
        return chosen


def check_propositionizer(value: str | None) -> str | None:
    """Refuse what is no propositionizer, as a usage error."""
    if value in (None, "llm", "sentence") or (value and value.startswith(_RECORDED) and value != _RECORDED):
        return value
    raise typer.BadParameter(f"{value!r} is not {PROPOSITIONIZERS}")


def make_llm(name: str | None) -> LLM | str | None:
    """The LLM of a name, in the form that the pack takes.

    Raises:
        ValueError: The name is not known, or there is no key for it.
    """
    return name if name in (None, "none") else _require_llm(name)


def _require_llm(name: str | None) -> LLM:
    from llama_index.llms.openai import OpenAI

    from llama_pack_densex.models import OPENAI_MODEL

    if not os.environ.get("OPENAI_API_KEY"):
        raise ValueError("an LLM needs a key: set the environment variable OPENAI_API_KEY")
    llm = OpenAI(model=name or OPENAI_MODEL)
    try:
        _ = llm.metadata.context_window
    except ValueError as error:
        raise ValueError(
            f"{name!r} is no model that llama-index-llms-openai knows: upgrade that package, or use another model from "
            "Python, where DenseXRetrievalPack takes any LlamaIndex LLM"
        ) from error
    return llm
