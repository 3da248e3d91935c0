"""Documents as our parsers make them, with embeddings of a few dimensions."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from llama_index.core import Document
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.manifest import Manifest
from llama_pack_densex.index.node_store import NodeStore
from llama_pack_densex.node_parsers.parsers import PropositionNodeParser
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from tests.openai_server import embed

DIMENSION = len(embed("a"))
ENGLISH = {
    "tides": (
        "The Moon pulls the ocean towards itself. Its pull raises two bulges. "
        "The Bay of Fundy has high tides."
    ),
    "bridge": (
        "The Akashi Bridge opened in 1998. Its main span is 1,991 metres long. It crosses a busy strait."
    ),
    "miso": "Miso is made of fermented soybeans. Salt and koji are added. Its colour differs by region.",
    "chess": (
        "Chess is played by two people. Each of them has sixteen pieces. A captured piece is gone for good."
    ),
}
JAPANESE = {
    "琵琶湖": "琵琶湖は滋賀県にある。日本で最も大きい湖である。多くの固有種が住む。",
    "新幹線": "新幹線は1964年に開業した。最初の路線は東京と新大阪を結んだ。時速210キロで走った。",
    "将棋": "将棋は二人で指す。駒は四十枚ある。取った駒を再び使える。",
}


def nodes_of(text: str, document_id: str = "d", **metadata: Any) -> list[BaseNode]:
    """The nodes of a document, with their embeddings."""
    parser = PropositionNodeParser(propositionizer=SentencePropositionizer())
    nodes = parser.get_nodes_from_documents(
        [Document(id_=document_id, text=text, metadata=metadata)]
    )
    for node in nodes:
        node.embedding = embed(node.get_content(metadata_mode=MetadataMode.EMBED))
    return nodes


def kept(
    folder: Path,
    docstore: BaseDocumentStore | None = None,
    vector_store: BasePydanticVectorStore | None = None,
) -> Any:
    """What `keep` left in a folder."""
    nodes = adapter_for(vector_store if vector_store is not None else SimpleVectorStore(), docstore)
    nodes.reload(folder, Manifest.read(folder).version)
    return nodes


def keep(nodes: NodeStore, folder: Path) -> None:
    """Keep nodes in a folder, with a manifest that names their state."""
    folder.mkdir(parents=True, exist_ok=True)
    state = uuid.uuid4().hex
    nodes.persist(folder, state)
    about = {
        "mode": "recursive",
        "granularity": ("proposition",),
        "similarity_top_k": 4,
        "hybrid": False,
    }
    named = dict.fromkeys(
        ("data", "embed_model", "embed_spec", "propositionizer", "vector_store"), ""
    )
    none: dict[str, Any] = dict.fromkeys(("embed_metadata", "llm_metadata", "languages"), ())
    Manifest(**about, **named, **none, dense_weight=None, version=state).write(folder)  # type: ignore[arg-type]
    nodes.clean(timedelta(0))


def question(text: str, count: int = 10, **options: Any) -> VectorStoreQuery:
    """A question with its embedding."""
    return VectorStoreQuery(
        query_embedding=embed(text), similarity_top_k=count, query_str=text, **options
    )
