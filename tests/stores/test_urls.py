from __future__ import annotations

import shutil
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.urls import is_store_url, open_url, redacted
from tests.integration.servers import POSTGRES_USER, Servers
from tests.stores.foreign.docstore_nodes import (
    DIMENSION,
    ENGLISH,
    JAPANESE,
    keep,
    kept,
    nodes_of,
    question,
)

pytestmark = pytest.mark.together("postgres")

FOLDERS = {
    "chroma": "chroma://{folder}/chroma",
    "chroma, collection": "chroma://{folder}/chroma?collection=papers",
    "qdrant": "qdrant://{folder}/qdrant",
    "milvus": "milvus://{folder}/milvus.db",
    "faiss": "faiss://{folder}/faiss",
}
SERVERS = {"chroma server": "chroma_server", "postgres": "postgres_server"}
PASSWORD = "hunter2/密"


@pytest.fixture
def chroma_server(servers: Servers) -> str:
    pytest.importorskip("chromadb")
    return f"chroma://127.0.0.1:{servers.chroma}/papers"


@pytest.fixture
def postgres_server(servers: Servers) -> str:
    pytest.importorskip("llama_index.vector_stores.postgres")
    return (
        f"postgresql://{POSTGRES_USER}:hunter2@127.0.0.1:{servers.postgres}/postgres?table=papers"
    )


def url_of(store: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if store in SERVERS:
        return str(request.getfixturevalue(SERVERS[store]))
    pytest.importorskip(
        {"qdrant": "qdrant_client", "milvus": "pymilvus", "faiss": "faiss"}.get(store, "chromadb")
    )
    return FOLDERS[store].format(folder=folder)


def nodes_at(url: str, dimension: int | None) -> Any:
    opened = open_url(url, dimension)
    return opened, adapter_for(opened)


def folder_of(url: str) -> Path | None:
    """Where the index of a store is to be kept that keeps none itself."""
    return Path(url.removeprefix("faiss://")) if url.startswith("faiss://") else None


def close(opened: Any) -> None:
    client = opened.client
    if hasattr(client, "close"):
        client.close()  # Qdrant's local mode locks its folder


@pytest.mark.parametrize("store", [*FOLDERS, *SERVERS])
def test_a_store_is_made_and_opened_again_by_its_url(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = url_of(store, request, tmp_path)
    opened, nodes = nodes_at(url, DIMENSION)
    nodes.replace([], nodes_of(ENGLISH["bridge"], "bridge") + nodes_of(JAPANESE["将棋"], "将棋"))
    before = nodes.search(question("The Akashi Bridge opened in 1998.", 3))
    assert before[0].score == pytest.approx(1.0, abs=1e-3)
    folder = folder_of(url)
    if folder is not None:
        keep(nodes, folder)
    close(opened)
    again = open_url(url, None)
    read = kept(folder, None, again) if folder else adapter_for(again)
    after = read.search(question("The Akashi Bridge opened in 1998.", 3))
    assert [node.id for node in after] == [node.id for node in before]
    assert set(read.documents()) == {"bridge", "将棋"}
    close(again)
    if folder is not None:
        return  # whose manifest names the embedding model
    with pytest.raises(
        ValueError, match=f"has vectors of {DIMENSION} dimensions, but the embedding model makes 7"
    ):
        open_url(url, 7)


@pytest.mark.parametrize("store", [*FOLDERS, *SERVERS])
def test_reading_where_nothing_is_says_how_to_index_and_makes_nothing(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = url_of(store, request, tmp_path).replace("papers", "unknown")
    for _ in range(2):  # nothing was made by asking
        with pytest.raises(
            ValueError, match=r"there is no index at .*: index documents first, with `densex index"
        ):
            open_url(url, None)
    assert list(tmp_path.iterdir()) == []


def test_a_chroma_collection_of_another_distance_is_refused(tmp_path: Path) -> None:
    chromadb = pytest.importorskip("chromadb")
    chromadb.PersistentClient(str(tmp_path)).create_collection("densex", embedding_function=None)
    with pytest.raises(ValueError, match="measures 'l2' where 'cosine' is needed"):
        open_url(f"chroma://{tmp_path}", DIMENSION)


@pytest.mark.slow
def test_a_chroma_folder_that_a_kill_has_torn_is_refused_with_advice(tmp_path: Path) -> None:
    chromadb = pytest.importorskip("chromadb")
    written_at_once = {"hnsw": {"space": "cosine", "sync_threshold": 10, "batch_size": 5}}
    client = chromadb.PersistentClient(str(tmp_path / "whole"))
    collection = client.create_collection(
        "densex", configuration=written_at_once, embedding_function=None
    )
    collection.add(
        ids=[str(n) for n in range(40)], embeddings=[[1.0, float(n), 2.0] for n in range(40)]
    )
    urls = []  # of folders of which this process has nothing in memory
    for torn in ("data_level0.bin", "index_metadata.pickle", "chroma.sqlite3"):
        folder = tmp_path / torn
        shutil.copytree(tmp_path / "whole", folder)
        (file,) = folder.rglob(torn)
        file.write_bytes(file.read_bytes()[:100])
        urls.append(f"chroma://{folder}")
    open_url(f"chroma://{tmp_path}/whole", None)
    # in a process for each: what Chroma's native code does to the memory of one that has done much is luck
    program = """
import multiprocessing, sys
import chromadb
from llama_pack_densex.index.urls import open_url
for url in sys.argv[1:]:
    process = multiprocessing.get_context("fork").Process(target=open_url, args=(url, None))
    process.start()
    process.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *urls], capture_output=True, text=True, check=True
    )
    refusals = [line for line in done.stderr.splitlines() if line.startswith("ConnectionError: ")]
    for url, refusal in zip(urls, refusals, strict=True):
        assert refusal.startswith(f"ConnectionError: {url}")
        assert "files are torn: index the documents again, into an embedded index" in refusal


def test_a_qdrant_collection_of_another_distance_is_refused(tmp_path: Path) -> None:
    qdrant = pytest.importorskip("qdrant_client")
    client = qdrant.QdrantClient(path=str(tmp_path / "q"))
    params = qdrant.models.VectorParams(size=DIMENSION, distance=qdrant.models.Distance.DOT)
    client.create_collection("densex", vectors_config=params)
    client.close()
    with pytest.raises(ValueError, match="measures 'Dot' where 'cosine' is needed"):
        open_url(f"qdrant://{tmp_path}/q", DIMENSION)


def test_a_milvus_collection_of_another_distance_is_refused(tmp_path: Path) -> None:
    milvus = pytest.importorskip("llama_index.vector_stores.milvus")
    file = str(tmp_path / "m.db")
    milvus.MilvusVectorStore(
        file,
        collection_name="densex",
        dim=DIMENSION,
        similarity_metric="IP",
        use_async_client=False,
    )
    with pytest.raises(ValueError, match="measures 'IP' where 'cosine' is needed"):
        open_url(f"milvus://{file}", DIMENSION)


def test_a_postgres_server_is_reached_through_a_socket_file(
    postgres_server: str, tmp_path: Path
) -> None:
    import psycopg2

    with (
        psycopg2.connect(postgres_server.split("?")[0]) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SHOW unix_socket_directories")
        (folder,) = cursor.fetchone() or ("",)
    port = postgres_server.rpartition(":")[2].partition("/")[0]
    url = f"postgresql://{POSTGRES_USER}:@/postgres?host={folder}&port={port}&table=by_socket"
    _, nodes = nodes_at(url, DIMENSION)
    nodes.replace([], nodes_of(ENGLISH["tides"], "tides"))
    assert set(adapter_for(open_url(url, None)).documents()) == {"tides"}


@pytest.mark.parametrize(
    "url",
    [
        "chroma://user:{password}@127.0.0.1:9/papers",
        "qdrant://:{password}@127.0.0.1:9/papers",
        "postgresql://user:{password}@127.0.0.1:9/db?table=papers",
        "postgresql://user@127.0.0.1:9/db?table=papers&password={password}",
        "redis://user:{password}@127.0.0.1:9",
        "postgresql://user:{password}@127.0.0.1:9/db?table=Bad Name",
        "chroma://user:{password}@127.0.0.1:9/papers?colection=x",
    ],
)
def test_a_password_is_in_no_error(url: str, caplog: pytest.LogCaptureFixture) -> None:
    # as of a package that is missing
    with pytest.raises((ConnectionError, ValueError, ImportError)) as caught:
        open_url(url.format(password="hunter2"), DIMENSION)
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}{caplog.text}"
    assert "127.0.0.1:9" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2/x+y=@127.0.0.1:9/db",
        "qdrant://:hunter2/x+y=@127.0.0.1:9/papers",
        "chroma://127.0.0.1:9/papers?token=hunter2",
        "qdrant://127.0.0.1:9/papers?api_key=hunter2",
        "milvus://127.0.0.1:9/papers?ssl=true&apikey=hunter2",
    ],
)
def test_a_key_with_a_slash_or_as_an_option_is_in_no_error(url: str) -> None:
    with pytest.raises((ConnectionError, ValueError, ImportError)) as caught:
        open_url(url, None)
    assert "hunter2" not in str(caught.value)
    assert "127.0.0.1:9" in str(caught.value)


def test_a_password_is_in_no_representation_of_the_store(postgres_server: str) -> None:
    opened = open_url(postgres_server, DIMENSION)
    assert "hunter2" not in f"{opened!r}{opened.to_dict()}"


@given(
    user=st.text("ab.-%40", max_size=5),
    password=st.text("xyz%2F!$", min_size=3, max_size=8),
    rest=st.text("ab/:?=&.9"),
)
def test_a_redacted_url_keeps_all_but_the_password(user: str, password: str, rest: str) -> None:
    assert redacted(f"qdrant://{user}:{password}@host/{rest}") == f"qdrant://{user}:***@host/{rest}"
    plain = f"chroma://host:8000/{rest}"
    assert redacted(plain) == plain


@pytest.mark.parametrize("scheme", ["chroma", "qdrant", "milvus", "postgresql"])
def test_a_key_that_stands_alone_is_left_out(scheme: str) -> None:
    assert redacted(f"{scheme}://SECRET@host:6333/papers") == f"{scheme}://***@host:6333/papers"
    assert redacted(f"{scheme}://notes@2024/papers") == f"{scheme}://notes@2024/papers"


def test_a_key_that_stands_alone_is_the_servers_key() -> None:
    pytest.importorskip("chromadb")
    with socketserver.TCPServer(("127.0.0.1", 0), Heard) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"chroma://SECRET@127.0.0.1:{server.server_address[1]}/papers"
        with pytest.raises(ConnectionError) as failed:
            open_url(url, DIMENSION)
    assert "x-chroma-token: secret" in Heard.said.casefold()
    assert "SECRET" not in str(failed.value)


class Heard(socketserver.BaseRequestHandler):
    """Keeps what is asked of a server, and answers nothing."""

    said = ""

    def handle(self) -> None:
        Heard.said = self.request.recv(4096).decode()


def test_an_unknown_scheme_is_told_those_that_there_are() -> None:
    with pytest.raises(
        ValueError,
        match="chroma://, qdrant://, milvus://, postgresql://, faiss://, or a folder's path",
    ):
        open_url("pinecone://x", DIMENSION)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("chroma://", "names no folder"),
        (
            "chroma://folder?ssl=true",
            "a folder .* collection=NAME; a server's port is part of its address",
        ),
        ("chroma://host:8000/a?collection=b", "a server takes the option ssl=true or ssl=false"),
        ("chroma://host:8000/a?ssl=maybe", "a server takes the option ssl=true or ssl=false"),
        ("faiss://folder?collection=b", r"a folder \(except faiss://\) takes collection=NAME"),
        ("milvus://folder", r"must end in \.db"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(url: str, message: str) -> None:
    if url.startswith("milvus"):
        pytest.importorskip("pymilvus")
    with pytest.raises(ValueError, match=message):
        open_url(url, DIMENSION)


def test_a_relative_path_is_relative_and_may_be_japanese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    monkeypatch.chdir(tmp_path)
    for url, folder in (
        ("faiss://索引/一", "索引/一"),
        ("faiss://./a:80", "a:80"),
        (f"faiss://{tmp_path}/b", "b"),
    ):
        keep(adapter_for(open_url(url, DIMENSION)), tmp_path / folder)
        assert open_url(url, None).client.ntotal == 0
    assert is_store_url("faiss://a")
    assert not is_store_url("C:/folder")


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chromadb", None)
    with pytest.raises(
        ImportError, match=r"^chroma://x needs packages.*pip install 'llama-pack-densex\[chroma]'"
    ):
        open_url("chroma://x", 3)
