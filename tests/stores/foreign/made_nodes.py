"""Nodes as our parsers make them, with embeddings, for tests of stores."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_pack_densex.node_parsers.metadata import (
    BOOKKEEPING_KEYS,
    DOCUMENT_HASH_KEY,
    GRANULARITY_KEY,
    STATUS_KEY,
)
from tests.embedding import DIMENSION, TrigramEmbedding

EMBEDDING = TrigramEmbedding()
MISO = "味噌は大豆を発酵させた調味料である。"
ANY_JSON: dict[str, Any] = {
    "author": 'O\'Brien "x" \\ 100% 味噌',
    "year": 2023,
    "ratio": 0.1,
    "draft": True,
    "tags": ["a", "味", None, 1.5],
    "": {"deep": {"": [[]]}},
    "a.b": "dots",
    "$or": "dollar",
    "it's": 'quo"ted',
    "none": None,
    "huge": 2**80,
    "infinite": float("inf"),
    "id": "mine",
    "doc_id": "mine too",
    "text": "mine as well",
    "_node_content": "not yours",
    "nul": "a\x00b",
}


def node_id(*name: object) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, repr(name)))


def made_nodes(document_id: str, passages: Sequence[str], **metadata: Any) -> list[BaseNode]:
    """A document of passages, each of propositions that end in full stops."""
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document_id)}
    nodes: list[BaseNode] = []
    for text in passages:
        passage = TextNode(
            id_=node_id(document_id, text),
            text=text,
            metadata={
                **metadata,
                GRANULARITY_KEY: "passage",
                STATUS_KEY: "ok",
                DOCUMENT_HASH_KEY: node_id(passages, metadata),
            },
            relationships=dict(source),
            start_char_idx=0,
            end_char_idx=len(text),
            embedding=embed(text),
        )
        link = RelatedNodeInfo(node_id=passage.node_id)
        propositions = [
            IndexNode(
                id_=node_id(document_id, text, place),
                text=part,
                index_id=passage.node_id,
                metadata={**metadata, GRANULARITY_KEY: "proposition", STATUS_KEY: "ok"},
                relationships={**source, NodeRelationship.PARENT: link},
                embedding=embed(part),
            )
            for place, part in enumerate(filter(None, text.replace("。", ".").split(".")))
        ]
        passage.relationships[NodeRelationship.CHILD] = [
            RelatedNodeInfo(node_id=one.node_id) for one in propositions
        ]
        for node in (passage, *propositions):
            node.excluded_embed_metadata_keys = node.excluded_llm_metadata_keys = list(
                BOOKKEEPING_KEYS
            )
            nodes.append(node)
    return nodes


def embed(text: str) -> list[float]:
    return EMBEDDING.get_text_embedding(text)


def without_embedding(node: BaseNode) -> BaseNode:
    return node.model_copy(update={"embedding": None})


def question(text: str, top_k: int = 3, **more: Any) -> VectorStoreQuery:
    return VectorStoreQuery(
        query_embedding=EMBEDDING.get_query_embedding(text), similarity_top_k=top_k, **more
    )


__all__ = [
    "ANY_JSON",
    "DIMENSION",
    "EMBEDDING",
    "MISO",
    "made_nodes",
    "node_id",
    "question",
    "without_embedding",
]
