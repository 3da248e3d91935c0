"""Giving back the space of an index folder, without any model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llama_pack_densex.committing import CommittedIndex
from llama_pack_densex.retrieval.lexical_side import LexicalSide
from llama_pack_densex.stores.folder import IndexFolder
from llama_pack_densex.stores.manifest import Manifest


@dataclass(frozen=True)
class Compaction:
    """What compacting an index came to.

    Args:
        folder: The index's folder.
        bytes_before: What its files took up before.
        bytes_after: What they take up now.
    """

    folder: str
    bytes_before: int
    bytes_after: int


def compact_index(path: str | Path) -> Compaction:
    """Write an index folder's data anew, so that nothing is left of what was deleted and replaced.

    Args:
        path: The folder.

    Raises:
        InvalidIndexError: It is no index, or cannot be opened.
        IndexInUseError: Somebody is writing to it.
        ValueError: The lexical side was made with a tokenizer function, which only its maker has: use the pack's
            `compact`.
    """
    folder = IndexFolder(Path(path))
    manifest = Manifest.read(folder.path)
    nodes = folder.open_index(manifest)
    lexical = LexicalSide(None, folder.data, manifest.lexical)
    committed = CommittedIndex(folder, nodes, lexical, manifest)
    with committed.writing():
        before = _bytes_in(folder.path)
        assert committed.current is not None, "it was opened"
        committed.compact(committed.current, by_words=bool(committed.current.lexical))
        return Compaction(str(folder.path), before, _bytes_in(folder.path))


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
