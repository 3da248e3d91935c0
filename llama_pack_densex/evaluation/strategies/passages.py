"""The dataset's passages as LlamaIndex nodes."""

from __future__ import annotations

from llama_index.core.schema import BaseNode

from llama_pack_densex.evaluation.corpus import Corpus
from llama_pack_densex.node_parsers.sections import WholeDocumentNodeParser


def passage_nodes(corpus: Corpus) -> list[BaseNode]:
    """One node for each passage, as whole as it is."""
    return WholeDocumentNodeParser().get_nodes_from_documents(corpus.passages)
