"""What llama-index-packs-dense-x-retrieval did."""

from __future__ import annotations

from llama_index.core.callbacks import CallbackManager
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.retrievers import RecursiveRetriever
from llama_index.core.schema import BaseNode, IndexNode

from llama_pack_densex.evaluation.corpus import Corpus
from llama_pack_densex.evaluation.strategies.vector import vector_index
from llama_pack_densex.evaluation.strategy import Built, Strategy
from llama_pack_densex.node_parsers.passages import title_of
from llama_pack_densex.propositionizers.base import Passage

_TOP_K = 4
_UNITS = 10  # fetched for each chunk that rankings look at: a chunk has many propositions


def _build(corpus: Corpus) -> Built:
    propositionizer = corpus.chunk_propositionizer
    titles = {document.id_: title_of(document) for document in corpus.documents}
    chunks = SentenceSplitter().get_nodes_from_documents(corpus.documents)
    sets = propositionizer.propositionize(
        [Passage(chunk.get_content(), titles.get(chunk.ref_doc_id or "", "")) for chunk in chunks]
    )
    units = [
        IndexNode(text=text, index_id=chunk.node_id)
        for chunk, made in zip(chunks, sets, strict=True)
        for text in made.texts
    ]
    nodes: list[BaseNode] = [*chunks, *units]
    index = vector_index(nodes, corpus)
    by_id = {node.node_id: node for node in nodes}

    def retriever(units: int) -> RecursiveRetriever:
        return RecursiveRetriever(
            "vector",
            retriever_dict={"vector": index.as_retriever(similarity_top_k=units)},
            node_dict=by_id,
            callback_manager=CallbackManager(),
        )

    return Built(retriever(_UNITS * corpus.depth), context_retriever=retriever(_TOP_K))


STRATEGIES = (
    Strategy(
        "dense-x",
        _build,
        "What LlamaIndex's DenseXRetrievalPack did: chunks of 1,024 tokens and their propositions in one index; a "
        f"found proposition leads to its chunk (RecursiveRetriever), and what the best {_TOP_K} of both lead to is "
        "read. Recorded propositions of passages are shared out to the chunks that hold them.",
    ),
)
