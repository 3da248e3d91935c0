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
        if isinstance(self.mode, str):
            object.__setattr__(self, "mode", self.mode.replace("-", "_"))  # as strategies of `compare` are called
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be {_either(Mode)}, not {self.mode!r}")
        given: Any = (self.granularity,) if isinstance(self.granularity, str) else self.granularity
        units = tuple(given) if isinstance(given, Iterable) else ()
        if not units or any(unit not in get_args(SearchedGranularity) for unit in units):
            raise ValueError(
                f"granularity must name {_either(SearchedGranularity)}, or several of them, not {self.granularity!r}"
            )
        object.__setattr__(self, "granularity", tuple(dict.fromkeys(units)))
        check_count(self.similarity_top_k, "similarity_top_k")
        for name in ("fetch_k", "rerank_k"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)
        _check_share(self.simple_ratio_thresh, "simple_ratio_thresh")
        if self.dense_weight is not None:
            _check_share(self.dense_weight, "dense_weight")
        for name in ("languages", "embed_metadata", "llm_metadata"):
            names: Any = getattr(self, name)
            object.__setattr__(self, name, (names,) if isinstance(names, str) else tuple(names))
        unknown = [language for language in self.languages if language not in LANGUAGE_NAMES]
        if unknown:
            raise ValueError(f"languages must be some of {', '.join(LANGUAGE_NAMES)}, not {unknown[0]!r}")
        if not isinstance(self.hybrid, bool) and self.hybrid != "store":
            raise ValueError(f'hybrid must be True, False or "store", not {self.hybrid!r}')
        if self.rerank not in get_args(RerankedUnit):
            raise ValueError(f"rerank must be {_either(RerankedUnit)}, not {self.rerank!r}")
        if not isinstance(self.context, PropositionContextPostprocessor):
            if self.context not in get_args(ContextMode):
                raise ValueError(f"context must be {_either(ContextMode)}, not {self.context!r}")
            object.__setattr__(self, "context", PropositionContextPostprocessor(mode=self.context))

    @property
    def context_postprocessor(self) -> PropositionContextPostprocessor:
        """What makes the context."""
        assert isinstance(self.context, PropositionContextPostprocessor), "checked and set in __post_init__"
        return self.context


def check_count(value: int, name: str) -> int:
    """Return a number of nodes or units if it is one.

    Raises:
        ValueError: It is not a positive whole number; the message calls it by the name.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} must be a positive whole number, not {value!r}")
    return value


def _check_share(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1, not {value!r}")


def _either(choices: object) -> str:
    return " or ".join(f'"{choice}"' for choice in get_args(choices))
