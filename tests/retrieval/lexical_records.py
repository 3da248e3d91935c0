"""Short nodes for tests of search by words."""

from __future__ import annotations

from dataclasses import fields

from llama_pack_densex.retrieval.lexical_build import built
from llama_pack_densex.retrieval.lexical_index import LexicalIndex
from llama_pack_densex.retrieval.tokens import TokenizerSpec, make_tokenizer
from llama_pack_densex.stores.records import NodeRecord


def record(node_id: str, granularity: str, text: str, passage_id: str = "", document_id: str = "") -> NodeRecord:
    about = {
        "id": node_id,
        "granularity": granularity,
        "passage_id": passage_id,
        "text": text,
        "document_id": document_id,
    }
    return NodeRecord(**{**dict.fromkeys((field.name for field in fields(NodeRecord)), ""), **about})


def passages(*texts: str) -> list[NodeRecord]:
    """A document of one passage for each text, all of them called like the text."""
    return [record(text, "passage", text, document_id=text) for text in texts]


def index_of(records: list[NodeRecord], tokenizer: TokenizerSpec = "bigrams") -> LexicalIndex:
    made = make_tokenizer(tokenizer)
    return LexicalIndex(built(records, made), made)
