"""Opening an index folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_pack_densex.stores.folder import IndexFolder
from llama_pack_densex.stores.manifest import InvalidIndexError, Manifest

if TYPE_CHECKING:
    from llama_index.core.schema import BaseNode

    from llama_pack_densex.pack import DenseXRetrievalPack


def open_pack(folder: Path, **arguments: Any) -> DenseXRetrievalPack:
    """Open an index to search or change it.

    Raises:
        InvalidIndexError: The folder is no index, or its data is damaged.
    """
    from llama_pack_densex.pack import DenseXRetrievalPack

    with damage_reported(folder):
        return DenseXRetrievalPack.load(folder, **arguments)


def read_index(folder: Path) -> tuple[Manifest, list[BaseNode]]:
    """Read all nodes of an index, in reading order; needs no embedding model.

    Raises:
        InvalidIndexError: The folder is no index, or its data is damaged.
    """
    from llama_pack_densex.indexing import reading_order

    with damage_reported(folder):
        manifest = Manifest.read(folder)
        index = IndexFolder(folder).open(manifest, None, None)
        nodes = index.fetch([record.id for record in index.records()])
    return manifest, sorted(nodes.values(), key=reading_order)


@contextlib.contextmanager
def damage_reported(folder: Path) -> Iterator[None]:
    """Report what LanceDB and Arrow raise for damaged files as a damaged index."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise InvalidIndexError(f"{folder} is damaged and cannot be read; build the index anew. ({error})") from error
