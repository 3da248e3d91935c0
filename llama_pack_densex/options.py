"""What a user chooses about a pack, checked."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, StrictBool, ValidationError

from llama_pack_densex.llm.errors import shown
from llama_pack_densex.node_parsers.metadata import EMBED_METADATA, LLM_METADATA
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor
from llama_pack_densex.retrieval.retrievers import DEFAULT_RATIO_THRESH
from llama_pack_densex.text.language import LANGUAGE_NAMES

Mode = Literal["recursive", "auto_merging"]
SearchedGranularity = Literal["proposition", "sentence", "passage", "question"]
Hybrid = bool | Literal["store"]
RerankedUnit = Literal["passage", "proposition"]

OF_THE_INDEX = ("mode", "granularity", "similarity_top_k", "hybrid", "dense_weight", "embed_metadata", "llm_metadata")
"""What an index keeps of the options of who made it, for who opens it."""
DEFAULT_GRANULARITY: tuple[SearchedGranularity, ...] = ("proposition", "sentence", "passage", "question")


def _listed(names: Any) -> tuple[Any, ...]:
    """Names as a tuple; one alone stands for a list of it."""
    return tuple(names) if isinstance(names, Collection) and not isinstance(names, str) else (names,)


def _underscored(name: Any) -> Any:
    return name.replace("-", "_") if isinstance(name, str) else name  # as strategies of `compare` are called


def _of_mode(context: Any) -> Any:
    return {"mode": context} if isinstance(context, str) else context


_Listed = BeforeValidator(_listed)
_Language = Annotated[str, Field(pattern=f"^({'|'.join(LANGUAGE_NAMES)})$")]
_Count = Annotated[int, Field(gt=0, strict=True)]
_Share = Annotated[float, Field(ge=0, le=1, strict=True)]


class PackOptions(BaseModel, frozen=True):
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

    mode: Annotated[Mode, BeforeValidator(_underscored)] = "recursive"
    granularity: Annotated[tuple[SearchedGranularity, ...], _Listed, Field(min_length=1)] = DEFAULT_GRANULARITY
    similarity_top_k: _Count = 4
    fetch_k: _Count | None = None
    simple_ratio_thresh: _Share = DEFAULT_RATIO_THRESH
    streaming: bool = False
    verbose: bool = False
    hybrid: StrictBool | Literal["store"] = True
    dense_weight: _Share | None = None
    languages: Annotated[tuple[_Language, ...], _Listed] = ()
    embed_metadata: Annotated[tuple[str, ...], _Listed] = EMBED_METADATA
    llm_metadata: Annotated[tuple[str, ...], _Listed] = LLM_METADATA
    context: Annotated[PropositionContextPostprocessor, BeforeValidator(_of_mode)] = PropositionContextPostprocessor()
    rerank: RerankedUnit = "passage"
    rerank_k: _Count | None = None

    def __init__(self, **chosen: Any) -> None:
        try:
            super().__init__(**chosen)
        except ValidationError as error:
            said = [f"{wrong['loc'][0]}={shown(wrong['input'])}: {wrong['msg']}" for wrong in error.errors()]
            raise ValueError("; ".join(said)) from None
