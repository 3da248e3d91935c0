"""LlamaIndex's sentence-window retrieval."""

from __future__ import annotations

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.node_parser import SentenceWindowNodeParser
from llama_index.core.node_parser.text.sentence_window import DEFAULT_WINDOW_METADATA_KEY
from llama_index.core.postprocessor import MetadataReplacementPostProcessor

from llama_pack_densex.evaluation.corpus import Corpus
from llama_pack_densex.evaluation.strategies.vector import vector_index
from llama_pack_densex.evaluation.strategy import Strategy

_SENTENCES = 5  # fetched for each passage that rankings look at: several sentences lead to the same passage


def _build(corpus: Corpus) -> BaseRetriever:
    nodes = SentenceWindowNodeParser.from_defaults().get_nodes_from_documents(corpus.documents)
    return vector_index(nodes, corpus).as_retriever(similarity_top_k=_SENTENCES * corpus.depth)


STRATEGIES = (
    Strategy(
        "sentence-window",
        _build,
        "LlamaIndex's SentenceWindowNodeParser with its defaults over whole articles; each found sentence is replaced "
        "by itself and the three on either side (MetadataReplacementPostProcessor).",
        DEFAULT_SIMILARITY_TOP_K,
        (MetadataReplacementPostProcessor(target_metadata_key=DEFAULT_WINDOW_METADATA_KEY),),
    ),
)
