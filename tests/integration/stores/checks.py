"""What several checks look at."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.schema import NodeWithScore

from llama_pack_densex import DenseXRetrievalPack
from tests.integration.stores.corpus import ABOUT_ALL, EVERYTHING, options
from tests.integration.stores.open_store import OpenStore
from tests.integration.stores.reopen import SEARCHES


def documents_of(hits: list[NodeWithScore]) -> set[str | None]:
    """The documents of retrieved nodes."""
    return {hit.node.ref_doc_id for hit in hits}


def everything(pack: DenseXRetrievalPack, **asked: Any) -> set[str | None]:
    """The documents that a pack finds for a question about all of them."""
    return documents_of(pack.retrieve(ABOUT_ALL, similarity_top_k=EVERYTHING, **asked))


def node_ids(pack: DenseXRetrievalPack) -> list[str]:
    """The ids of all nodes, twice where a store has one twice."""
    return sorted(node.node_id for node in pack.nodes())


def indexed_documents(pack: DenseXRetrievalPack) -> set[str | None]:
    """The documents of all nodes."""
    return {node.ref_doc_id for node in pack.nodes()}


def each_search(store: OpenStore, mode: str) -> dict[str, DenseXRetrievalPack]:
    """The store opened once for each way to search it."""
    return {name: store.reopen(**options(mode, **how)) for name, how in SEARCHES.items()}


def close_to(answers: Any) -> Any:
    """Answers to compare with, in which scores may differ by what a float of four bytes leaves open."""
    if isinstance(answers, float):
        return pytest.approx(answers, abs=1e-4)
    if isinstance(answers, dict):
        return {name: close_to(value) for name, value in answers.items()}
    return [close_to(value) for value in answers] if isinstance(answers, list) else answers
