"""A writer that is killed in the middle of building, over a store that has no transactions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.bridge.pydantic import PrivateAttr

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.index import indexer
from tests.searching import ShortEmbedding

pytestmark = pytest.mark.slow

DOCUMENTS = 40


class KilledWhileEmbedding(ShortEmbedding):
    """Kills its own process when it is asked to embed for the so many-eth time."""

    _left: int = PrivateAttr(default=0)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._get_text_embeddings(texts)


def document(number: int, version: str) -> Document:
    return Document(
        id_=f"d{number}",
        text=f"Number{number} was {version}{number}x. Its lamp is red. It hangs high.",
    )


def chroma(folder: Path) -> Any:
    chromadb = pytest.importorskip("chromadb", reason="needs the extra chroma")
    from llama_index.vector_stores.chroma import ChromaVectorStore

    client = chromadb.PersistentClient(path=str(folder / "chroma"))
    return ChromaVectorStore(
        chroma_collection=client.get_or_create_collection(
            "lamps", configuration={"hnsw": {"space": "cosine"}}
        )
    )


def pack_over(
    folder: Path, model: ShortEmbedding, documents: list[Document], kind: str
) -> DenseXRetrievalPack:
    store = chroma(folder) if kind == "chroma" else None
    return DenseXRetrievalPack(
        documents, vector_store=store, persist_dir=folder / "index", embed_model=model,
        proposition_llm="none", query_llm="none", dense_weight=0.0,
    )  # fmt: skip


def write_until_killed(folder: Path, version: str, calls: int, kind: str) -> None:
    indexer._NODES_A_WRITE = indexer._MOST_NODES_A_WRITE = 20  # some documents
    model = KilledWhileEmbedding(model_name="short")
    model._left = calls
    pack_over(folder, model, [document(number, version) for number in range(DOCUMENTS)], kind)


def killed(folder: Path, version: str, calls: int, kind: str) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.test_kills_other_stores import write_until_killed; "
        "write_until_killed(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])"
    )
    command = [sys.executable, "-c", program, str(folder), version, str(calls), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def found_by_words(pack: DenseXRetrievalPack, version: str) -> set[int]:
    """The documents that are found first by a word that only they have; others have parts of it."""
    words = {number: f"{version}{number}x" for number in range(DOCUMENTS)}
    hits = {number: pack.retrieve(word)[:1] for number, word in words.items()}
    return {
        number
        for number, best in hits.items()
        if any(words[number] in hit.get_content() for hit in best)
    }


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
@pytest.mark.parametrize("kind", ["chroma", "embedded"])
def test_whatever_is_in_the_store_is_found_by_words_after_a_kill(kind: str, tmp_path: Path) -> None:
    documents = [document(number, "old") for number in range(DOCUMENTS)]
    killed(tmp_path, "old", 5, kind)
    pack = pack_over(tmp_path, KilledWhileEmbedding(model_name="short"), documents, kind)
    assert found_by_words(pack, "old") == set(range(DOCUMENTS))
    killed(tmp_path, "new", 3, kind)  # documents are replaced
    reader = DenseXRetrievalPack.load(
        tmp_path / "index", vector_store=chroma(tmp_path) if kind == "chroma" else None,
        embed_model=KilledWhileEmbedding(model_name="short"), proposition_llm="none", query_llm="none",
    )  # fmt: skip
    there = {
        name
        for name in range(DOCUMENTS)
        if any(f"new{name}x" in n.get_content() for n in reader.nodes("passage"))
    }
    assert found_by_words(reader, "new") == there
    assert 0 < len(there) < DOCUMENTS
    assert found_by_words(reader, "old") == set(range(DOCUMENTS)) - there
    again = pack_over(
        tmp_path,
        KilledWhileEmbedding(model_name="short"),
        [document(n, "new") for n in range(DOCUMENTS)],
        kind,
    )
    assert found_by_words(again, "new") == set(range(DOCUMENTS))
    assert found_by_words(again, "old") == set()
    assert again.missing_links == 0
