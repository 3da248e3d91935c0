"""What a user chooses about a pack, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from llama_pack_densex.node_parsers.metadata import EMBED_METADATA, LLM_METADATA
from llama_pack_densex.propositionizers.language import LANGUAGE_NAMES
from llama_pack_densex.retrieval.context import ContextMode, PropositionContextPostprocessor
from llama_pack_densex.retrieval.retrievers import DEFAULT_RATIO_THRESH

Mode = Literal["recursive", "auto_merging"]
SearchedGranularity = Literal["proposition", "sentence", "passage", "question"]
Hybrid = bool | Literal["store"]
RerankedUnit = Literal["passage", "proposition"]

OF_THE_INDEX = ("mode", "granularity", "similarity_top_k", "hybrid", "dense_weight", "embed_metadata", "llm_metadata")
"""What an index keeps of the options of who made it, for who opens it."""
DEFAULT_GRANULARITY: tuple[SearchedGranularity, ...] = ("proposition", "sentence", "passage", "question")


@dataclass(frozen=True)
class PackOptions:
    """The settings of a pack that are neither documents nor models.

    Args:
        mode: "recursive" (propositions lead to their passages) or "auto_merging" (found propositions merge upwards).
        granularity: The units that are searched by embeddings; questions, where the propositionizer wrote any.
        similarity_top_k: Nodes returned by a query that does not say.
        fetch_k: Units in the first round of a search, and in mode "auto_merging" those that count; None means five
            times the nodes asked for, at least 20, and there ten times, at least 40.
        simple_ratio_thresh: In mode "auto_merging", the share of children above which their parent is returned.
        streaming: Whether answers come as a stream.
        verbose: Whether retrievers print what they do.
        hybrid: Whether search by embeddings and by words are fused; "store" for the vector store's own way.
        dense_weight: The embeddings' share in hybrid search, from 0 to 1; None leaves it to each question's words.
        languages: Languages that the embedding model knows, whatever was measured.
        embed_metadata: The metadata keys that are embedded with each text.
        llm_metadata: The metadata keys that the LLM reads with each text.
        context: What the LLM reads.
        rerank: What a reranker scores.
        rerank_k: Nodes that a reranker gets; None means five times the nodes asked for, at least 20.

    Raises:
        ValueError: A value is out of range; the message says which and what is allowed.
    """

    mode: Mode = "recursive"
    granularity: tuple[SearchedGranularity, ...] = DEFAULT_GRANULARITY
    similarity_top_k: int = 4
    fetch_k: int | None = None
    simple_ratio_thresh: float = DEFAULT_RATIO_THRESH
    streaming: bool = False
    verbose: bool = False
    hybrid: Hybrid = True
    dense_weight: float | None = None
    languages: tuple[str, ...] = ()
    embed_metadata: tuple[str, ...] = EMBED_METADATA
    llm_metadata: tuple[str, ...] = LLM_METADATA
    context: ContextMode | PropositionContextPostprocessor = field(default_factory=PropositionContextPostprocessor)
    rerank: RerankedUnit = "passage"
    rerank_k: int | None = None

    def __post_init__(self) -> None:
        changed: dict[str, Any] = {"mode": self.mode}
        if isinstance(self.mode, str):
            changed["mode"] = self.mode.replace("-", "_")  # as strategies of `compare` are called
        for name in ("granularity", "languages", "embed_metadata", "llm_metadata"):
            names = getattr(self, name)
            changed[name] = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (names,)
        chosen = [("mode", changed["mode"], get_args(Mode)), ("rerank", self.rerank, get_args(RerankedUnit))]
        chosen += [("granularity", one, get_args(SearchedGranularity)) for one in changed["granularity"] or ("",)]
        chosen += [("languages", one, tuple(LANGUAGE_NAMES)) for one in changed["languages"]]
        if not isinstance(self.context, PropositionContextPostprocessor):
            chosen += [("context", self.context, get_args(ContextMode))]
        for name, value, choices in chosen:
            if value not in choices:
                allowed = " or ".join(f'"{choice}"' for choice in choices)
                raise ValueError(f"{name} must be {allowed}, not {value!r}")
        if not isinstance(self.hybrid, bool) and self.hybrid != "store":
            raise ValueError(f'hybrid must be True, False or "store", not {self.hybrid!r}')
        for name in ("similarity_top_k", "fetch_k", "rerank_k"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)
        for name in ("simple_ratio_thresh", "dense_weight"):
            share = getattr(self, name)
            is_number = isinstance(share, (int, float)) and not isinstance(share, bool)
            if share is not None and not (is_number and 0 <= share <= 1):
                raise ValueError(f"{name} must be between 0 and 1, not {share!r}")
        changed["granularity"] = tuple(dict.fromkeys(changed["granularity"]))
        for name, value in changed.items():
            object.__setattr__(self, name, value)

    @property
    def context_postprocessor(self) -> PropositionContextPostprocessor:
        """What makes the context."""
        if isinstance(self.context, PropositionContextPostprocessor):
            return self.context
        return PropositionContextPostprocessor(mode=self.context)


def check_count(value: int, name: str) -> int:
    """Return a number of nodes or units if it is one.

    Raises:
        ValueError: It is not a positive whole number; the message calls it by the name.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} must be a positive whole number, not {value!r}")
    return value
