"""An index folder's state: one writer at a time, and from one whole state to the next in one step."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from llama_pack_densex.retrieval.lexical_side import LexicalSide
from llama_pack_densex.stores.folder import OLD_VERSIONS, IndexFolder
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.manifest import InvalidIndexError, Manifest, is_index

_COMMITS_BEFORE_TIDYING = 20


class CommittedIndex:
    """The nodes and the lexical side of an index folder, changed together.

    A state is the version of the store, the state of the lexical side that goes with it, and what made the index. The
    manifest names all three, so it is what brings the folder from one state to the next; what a writer that was
    stopped had written after its last commit is left out by the next one.

    Args:
        folder: The folder, created or opened.
        nodes: The nodes.
        lexical: Their lexical side.
        current: The folder's manifest; None where there is no index in it yet.

    Attributes:
        folder: The folder.
        current: What is committed.
    """

    def __init__(self, folder: IndexFolder, nodes: NodeIndex, lexical: LexicalSide, current: Manifest | None) -> None:
        self.folder, self.current = folder, current
        self._nodes, self._lexical = nodes, lexical
        self._commits = 0
        self._following = threading.Lock()
        nodes.follow = self.follow

    def follow(self) -> None:
        """Go on with the index's current state, as who reads it.

        Raises:
            InvalidIndexError: It was removed or made anew, or this state cannot be read either.
        """
        with self._following:
            there = Manifest.read(self.folder.path)
            self._check_same(there)
            if there != self.current:
                self._nodes.reopen(there.version)
                self._lexical.reopen(self.folder.data, there.lexical)
                self.current = there

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer, from the index's current state on, whoever made that.

        Raises:
            IndexInUseError: There is another writer.
            InvalidIndexError: The index was made anew since it was opened.
        """
        with self.folder.lock.held():
            self._catch_up()
            yield

    def commit(self, about: Manifest, by_words: bool = True) -> None:
        """Make what is in the store and on the lexical side the index's state.

        Args:
            about: What made the index; its data, version and lexical state do not matter.
            by_words: Whether the index has a lexical side.
        """
        folder, store = self.folder, self._nodes.store
        lexical = self._lexical.save(folder.data, self._nodes.records) if by_words else ""
        version = store.version or (self.current.version if self.current and not self._nodes.changed else _new_name())
        manifest = replace(about, data=folder.data.name, version=version, lexical=lexical)
        if manifest != self.current:
            store.write_about(manifest.as_text())
            store.persist(folder.data)
            folder.commit(manifest)
            self._nodes.changed = False
        if store.maintain():
            manifest = replace(manifest, version=store.version)
            folder.commit(manifest)
            store.clean(OLD_VERSIONS)
        self.current = manifest
        self._commits += 1
        if self._commits % _COMMITS_BEFORE_TIDYING == 0:
            self.tidy()

    def tidy(self, older_than: timedelta = OLD_VERSIONS) -> None:
        """Remove what earlier states and interrupted writes left.

        Args:
            older_than: Versions of the store that have been out of use for so long are removed.
        """
        assert self.current is not None, "nothing was committed yet"
        self._nodes.store.clean(older_than)
        self._lexical.clean(self.folder.data, self.current.lexical)
        self.folder.clean(self.current)

    def compact(self, about: Manifest, by_words: bool = True) -> None:
        """Write everything anew, commit that as `commit` does, and leave nothing of what was deleted."""
        self._lexical.forget()
        self._nodes.compact()
        self.commit(about, by_words)
        self.tidy(timedelta(0))

    def _catch_up(self) -> None:
        folder = self.folder
        there = Manifest.read(folder.path) if is_index(folder.path) else None
        self._check_same(there)
        if there is None:
            return
        if self.current is not None and there.version != self.current.version and not self._nodes.store.version:
            self._nodes.reload(folder.data)
        self._nodes.roll_back(there.version)
        if there != self.current:
            self._lexical.reopen(folder.data, there.lexical)
        self.current = there

    def _check_same(self, there: Manifest | None) -> None:
        if (there.data if there else "") != (self.current.data if self.current else ""):
            raise InvalidIndexError(
                f"the index in {self.folder.path} was removed or made anew since it was opened: load it again"
            )


def _new_name() -> str:
    """A name for the state of a store that does not tell its own."""
    return uuid.uuid4().hex
