"""LlamaIndex's auto-merging retrieval."""

from __future__ import annotations

from functools import partial

from llama_index.core import StorageContext
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.node_parser import HierarchicalNodeParser, get_leaf_nodes
from llama_index.core.retrievers import AutoMergingRetriever
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_pack_densex.evaluation.corpus import Corpus
from llama_pack_densex.evaluation.strategies.vector import vector_index
from llama_pack_densex.evaluation.strategy import Strategy

# Of LlamaIndex's guide to the retriever; what it returns, and so what is read, follows from the leaves it begins with.
_LEAVES, _RATIO = 6, 0.5


def _build(corpus: Corpus, leaves: int, ratio: float) -> BaseRetriever:
    nodes = HierarchicalNodeParser.from_defaults().get_nodes_from_documents(corpus.documents)
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes)
    found = vector_index(get_leaf_nodes(nodes), corpus).as_retriever(similarity_top_k=leaves)
    return AutoMergingRetriever(
        found,  # type: ignore[arg-type]  # what as_retriever returns, typed too broadly
        StorageContext.from_defaults(docstore=docstore),
        simple_ratio_thresh=ratio,
        callback_manager=CallbackManager(),
    )


STRATEGIES = (
    Strategy(
        "auto-merging",
        partial(_build, leaves=_LEAVES, ratio=_RATIO),
        "LlamaIndex's HierarchicalNodeParser with its defaults (2,048, 512 and 128 tokens) over whole articles, and "
        f"its AutoMergingRetriever: {_LEAVES} leaves as in its guide, merged above a ratio of {_RATIO}. All that it "
        "returns is read.",
    ),
    Strategy(
        "auto-merging-k12",
        partial(_build, leaves=12, ratio=0.3),
        "The same with 12 leaves, merged above a ratio of 0.3.",
    ),
)
