"""Dense X Retrieval for LlamaIndex: search propositions, read the passages they came from."""

from llama_pack_densex.node_parsers.hierarchical import HierarchicalPropositionNodeParser
from llama_pack_densex.node_parsers.proposition import PropositionNodeParser
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.propositionizers.base import Passage, Propositionizer
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer

__all__ = [
    "DenseXRetrievalPack",
    "HierarchicalPropositionNodeParser",
    "LLMPropositionizer",
    "Passage",
    "PropositionNodeParser",
    "Propositionizer",
    "RecordedPropositionizer",
    "SentencePropositionizer",
]
