"""The options of a pack: their types, allowed values and defaults.

Users, Jupyter and the documentation read about an option in the signature and docstring of
`DenseXRetrievalPack`. This module says what type an option has when an index is opened, which values are
allowed, and whether an index stores it. A test checks that the two agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.node_parser import NodeParser
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pydantic import BaseModel, BeforeValidator, Field, StrictBool, ValidationError

from llama_pack_densex.index.manifest import Manifest
from llama_pack_densex.index.words import TokenizerSpec
from llama_pack_densex.llm.errors import shown
from llama_pack_densex.node_parsers.metadata import EMBED_METADATA, LLM_METADATA
from llama_pack_densex.node_parsers.nodes import Listed
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.retrieval.context import ContextMode, PropositionContextPostprocessor
from llama_pack_densex.retrieval.retrievers import DEFAULT_RATIO_THRESH
from llama_pack_densex.text.language import LANGUAGE_NAMES

Mode = Literal["recursive", "auto_merging"]
SearchedGranularity = Literal["proposition", "sentence", "passage", "question"]
Hybrid = bool | Literal["store"]
Hops = Literal[1, 2]
RerankedUnit = Literal["passage", "proposition"]

OF_THE_INDEX = (
    "mode",
    "granularity",
    "similarity_top_k",
    "hybrid",
    "dense_weight",
    "hops",
    "embed_metadata",
    "llm_metadata",
)
"""Options that an index stores in its `Manifest`, so that they apply when it is opened again."""
DEFAULT_GRANULARITY: tuple[SearchedGranularity, ...] = (
    "proposition",
    "sentence",
    "passage",
    "question",
)


class PackArguments(TypedDict, total=False):
    """The arguments of `DenseXRetrievalPack` that apply to an existing index."""

    proposition_llm: LLM | str | None
    query_llm: LLM | str | None
    embed_model: BaseEmbedding | str | None
    text_splitter: NodeParser | None
    similarity_top_k: int | None
    streaming: bool
    mode: Mode | None
    propositionizer: Propositionizer | None
    docstore: BaseDocumentStore | None
    granularity: Sequence[SearchedGranularity] | None
    hybrid: Hybrid | None
    dense_weight: float | None
    hops: Hops | None
    languages: Sequence[str]
    embed_metadata: Sequence[str] | None
    llm_metadata: Sequence[str] | None
    context: ContextMode | PropositionContextPostprocessor | None
    reranker: BaseNodePostprocessor | None
    rerank: RerankedUnit
    rerank_k: int | None
    tokenizer: TokenizerSpec | None
    node_parser: BasePropositionNodeParser | None
    fetch_k: int | None
    simple_ratio_thresh: float
    verbose: bool


class UserArguments(PackArguments, total=False):
    """`PackArguments` and a vector store, which may be empty."""

    vector_store: BasePydanticVectorStore | None


def _underscored(name: Any) -> Any:
    # the strategies of `compare` are spelled with hyphens ("auto-merging")
    return name.replace("-", "_") if isinstance(name, str) else name


def _of_mode(context: Any) -> Any:
    return {"mode": context} if isinstance(context, str) else context


_Language = Annotated[str, Field(pattern=f"^({'|'.join(LANGUAGE_NAMES)})$")]
_Count = Annotated[int, Field(gt=0, strict=True)]
_Share = Annotated[float, Field(ge=0, le=1, strict=True)]


class PackOptions(BaseModel, frozen=True):
    """The arguments of `DenseXRetrievalPack` other than documents and models; they are described there.

    Raises:
        ValueError: A value is out of range; the message says which one and what is allowed.
    """

    mode: Annotated[Mode, BeforeValidator(_underscored)] = "recursive"
    granularity: Annotated[tuple[SearchedGranularity, ...], Listed, Field(min_length=1)] = (
        DEFAULT_GRANULARITY
    )
    similarity_top_k: _Count = 4
    fetch_k: _Count | None = None
    simple_ratio_thresh: _Share = DEFAULT_RATIO_THRESH
    streaming: bool = False
    verbose: bool = False
    hybrid: StrictBool | Literal["store"] = True
    dense_weight: _Share | None = None
    hops: Hops = 1
    languages: Annotated[tuple[_Language, ...], Listed] = ()
    embed_metadata: Annotated[tuple[str, ...], Listed] = EMBED_METADATA
    llm_metadata: Annotated[tuple[str, ...], Listed] = LLM_METADATA
    context: Annotated[PropositionContextPostprocessor, BeforeValidator(_of_mode)] = (
        PropositionContextPostprocessor()
    )
    rerank: RerankedUnit = "passage"
    rerank_k: _Count | None = None

    def __init__(self, **chosen: Any) -> None:
        try:
            super().__init__(**chosen)
        except ValidationError as error:
            problems = [
                f"{wrong['loc'][0]}={shown(wrong['input'])}: {wrong['msg']}"
                for wrong in error.errors()
            ]
            raise ValueError("; ".join(problems)) from None

    @classmethod
    def for_index(cls, manifest: Manifest | None, arguments: Mapping[str, Any]) -> PackOptions:
        """Combine the user's choices with the options that the index was made with, and the defaults.

        Args:
            manifest: The manifest of the index; None for a new one.
            arguments: The arguments of the pack; None values and names that are no options are ignored.
        """
        made_with = {name: getattr(manifest, name) for name in OF_THE_INDEX} if manifest else {}
        chosen = {
            name: value
            for name, value in arguments.items()
            if name in cls.model_fields and value is not None
        }
        return cls(**{**made_with, **chosen})
