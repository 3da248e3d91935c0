"""Opening an index folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_pack_densex.indexing import reading_order
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.stores.folder import IndexFolder
from llama_pack_densex.stores.manifest import InvalidIndexError, Manifest

if TYPE_CHECKING:
    from llama_index.core.schema import BaseNode

_OF_DAMAGE = (RuntimeError, OSError, ValueError, TypeError, KeyError)
"""What LanceDB, Arrow and the reading of nodes raise for damaged files, besides LanceDB's panics."""


def open_pack(folder: Path, **arguments: Any) -> DenseXRetrievalPack:
    """Open an index to search or change it.

    Raises:
        InvalidIndexError: The folder is no index, or its data is damaged.
    """
    with damage_reported(folder):  # by itself, to tell it from what an embedding model may raise
        IndexFolder(folder).open_index(Manifest.read(folder))
    return DenseXRetrievalPack.load(folder, **arguments)


def read_index(folder: Path) -> tuple[Manifest, list[BaseNode]]:
    """Read all nodes of an index, in reading order; needs no embedding model.

    Raises:
        InvalidIndexError: The folder is no index, or its data is damaged.
    """
    with damage_reported(folder):
        manifest = Manifest.read(folder)
        nodes = sorted(IndexFolder(folder).open_index(manifest).all_nodes(), key=reading_order)
    return manifest, nodes


@contextlib.contextmanager
def damage_reported(folder: Path) -> Iterator[None]:
    """Report what reading a damaged index raises as an `InvalidIndexError`."""
    try:
        yield
    except InvalidIndexError:
        raise
    except Exception as error:
        if not isinstance(error, _OF_DAMAGE) and type(error).__name__ != "RustPanic":
            raise
        raise InvalidIndexError(f"{folder} is damaged and cannot be read; build the index anew. ({error})") from error
