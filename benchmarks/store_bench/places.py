"""Where benchmarks/stores.py keeps its indexes, and how large they are."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STORES = ("lancedb", "chroma", "qdrant", "postgres", "faiss")


def given(store: str, folder: Path, building: bool = False) -> dict[str, Any]:
    """What a pack is given to keep an index in a store.

    Args:
        store: One of `STORES`, or a URL of a server as `densex index --to` takes it.
        folder: For the index, or for what is kept beside the vector store.
        building: Whether there is nothing yet.
    """
    found: dict[str, Any] = {"persist_dir": folder}
    if store == "lancedb" or (store == "faiss" and not building):
        return found
    from llama_pack_densex.index.urls import open_url
    from store_bench.embeddings import DIMENSION

    url = store if "://" in store else f"{store}://{_beside(folder)}" if store != "faiss" else f"faiss://{folder}"
    found["vector_store"] = open_url(url, DIMENSION)
    return found


def size(store: str, folder: Path) -> int:
    """Bytes on disk: of all files, or of a server's table."""
    files = [file for root in (folder, _beside(folder)) for file in root.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files) + (_table_size(store) if store.startswith("postgresql") else 0)


@contextmanager
def server_of(store: str, folder: Path) -> Iterator[str]:
    """What a store is named by while its server runs: PostgreSQL's is started, the others are as they were."""
    if store != "postgres":
        yield store
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.integration.servers import POSTGRES_USER, postgres_server

    (folder / "postgresql.built.json").unlink(missing_ok=True)  # its server is empty
    shutil.rmtree(folder / "postgresql", ignore_errors=True)
    with postgres_server() as port:
        yield f"postgresql://{POSTGRES_USER}@127.0.0.1:{port}/postgres?table=bench"


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-store")


def _table_size(url: str) -> int:
    import sqlalchemy as sa

    parsed = sa.make_url(url).set(drivername="postgresql+psycopg2")
    name = f"public.data_{parsed.query['table']}"
    engine = sa.create_engine(parsed.difference_update_query(["table"]))
    with engine.connect() as connection:
        return int(connection.execute(sa.text("SELECT pg_total_relation_size(:name)"), {"name": name}).scalar_one())
