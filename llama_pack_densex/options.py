"""What a user chooses about a pack, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from llama_pack_densex.retrieval.context import ContextMode, PropositionContextPostprocessor, check_mode

Mode = Literal["recursive", "auto_merging"]
SearchedGranularity = Literal["proposition", "sentence", "passage"]
Hybrid = bool | Literal["store"]
RerankedUnit = Literal["passage", "proposition"]

DEFAULT_GRANULARITY: tuple[SearchedGranularity, ...] = ("proposition", "sentence", "passage")


@dataclass(frozen=True)
class PackOptions:
    """The settings of a pack that are neither documents nor models.

    Args:
        mode: "recursive" (propositions lead to their passages) or "auto_merging" (found propositions merge upwards).
        granularity: The units that are searched by embeddings.
        similarity_top_k: Nodes returned by a query that does not say.
        fetch_k: Units in the first round of a search; None means five times the nodes asked for, at least 20.
        simple_ratio_thresh: In mode "auto_merging", the share of children above which their parent is returned.
        streaming: Whether answers come as a stream.
        verbose: Whether retrievers print what they do.
        hybrid: Whether search by embeddings and by words are fused; "store" for the vector store's own way.
        dense_weight: The embeddings' share in hybrid search, from 0 to 1; None means the default.
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
    simple_ratio_thresh: float = 0.5
    streaming: bool = False
    verbose: bool = False
    hybrid: Hybrid = True
    dense_weight: float | None = None
    context: ContextMode | PropositionContextPostprocessor = field(default_factory=PropositionContextPostprocessor)
    rerank: RerankedUnit = "passage"
    rerank_k: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be {_either(Mode)}, not {self.mode!r}")
        units = (self.granularity,) if isinstance(self.granularity, str) else tuple(self.granularity)
        if not units or not set(units) <= set(get_args(SearchedGranularity)):
            raise ValueError(
                f"granularity must name {_either(SearchedGranularity)}, or several of them, not {self.granularity!r}"
            )
        object.__setattr__(self, "granularity", units)
        check_top_k(self.similarity_top_k)
        for name, number in (("fetch_k", self.fetch_k), ("rerank_k", self.rerank_k)):
            if number is not None and number <= 0:
                raise ValueError(f"{name} must be positive, not {number}")
        for name, share in (("simple_ratio_thresh", self.simple_ratio_thresh), ("dense_weight", self.dense_weight)):
            if share is not None and not 0 <= share <= 1:
                raise ValueError(f"{name} must be between 0 and 1, not {share}")
        if self.hybrid not in (True, False, "store"):
            raise ValueError(f'hybrid must be True, False or "store", not {self.hybrid!r}')
        if self.rerank not in get_args(RerankedUnit):
            raise ValueError(f"rerank must be {_either(RerankedUnit)}, not {self.rerank!r}")
        if not isinstance(self.context, PropositionContextPostprocessor):
            check_mode(self.context)
            object.__setattr__(self, "context", PropositionContextPostprocessor(mode=self.context))

    @property
    def context_postprocessor(self) -> PropositionContextPostprocessor:
        """What makes the context."""
        assert isinstance(self.context, PropositionContextPostprocessor), "checked and set in __post_init__"
        return self.context


def check_top_k(similarity_top_k: int) -> int:
    """Return a number of nodes to retrieve if it is one.

    Raises:
        ValueError: It is not a positive whole number.
    """
    if isinstance(similarity_top_k, bool) or not isinstance(similarity_top_k, int) or similarity_top_k <= 0:
        raise ValueError(f"similarity_top_k must be a positive whole number, not {similarity_top_k!r}")
    return similarity_top_k


def _either(choices: object) -> str:
    return " or ".join(f'"{choice}"' for choice in get_args(choices))
