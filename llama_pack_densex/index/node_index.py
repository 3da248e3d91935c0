"""One index over the store that its nodes are in, brought from one whole state to the next."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode
from llama_index.core.utils import iter_batch
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_pack_densex.index.database import Database
from llama_pack_densex.index.embedded import EmbeddedNodes
from llama_pack_densex.index.folder import IndexFolder, writing_to
from llama_pack_densex.index.manifest import (
    OLD_VERSIONS,
    InvalidIndexError,
    Manifest,
    is_index,
    while_it_changes,
)
from llama_pack_densex.index.node_store import (
    DocumentRecords,
    FoundNode,
    Ids,
    IndexCounts,
    NodeLinks,
    NodeRecord,
    Nodes,
    NodeStore,
    granularity_of,
    nowhere,
    same_dimension,
)
from llama_pack_densex.index.sidecar import FILE as WORDS_FILE
from llama_pack_densex.index.sidecar import WordsBeside
from llama_pack_densex.index.words import Words
from llama_pack_densex.llm.endpoint import embed_texts
from llama_pack_densex.node_parsers.metadata import embedded_text
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

T = TypeVar("T")

_NODES_READ_AT_ONCE = 500
_EMBEDDED_AT_ONCE = 2_048
_MOST_ANSWERS = 3  # where others keep writing
_REBUILD = "empty the vector store, and index the documents again"


class NodeIndex:
    """All nodes of a corpus, of all granularities: embedded and written together, read back by id in one
    batch.

    In a folder, the manifest names the version of the store and what made the index. What a writer that was
    stopped had written after its last commit is left out by the next one in the embedded store. Other stores
    keep it, so the next writer compares the words with them. Without a folder, the store alone says what made
    it.

    Args:
        store: Where the nodes are; None means an embedded one in memory.
        embed_model: Embeds nodes; None for an embedded store that is searched lexically, and where nothing is
            written.
        words: What makes the tokens that passages are found by; None for an index that is not searched by
            words.
        folder: The folder, created or opened; None where there is none.
        current: The manifest; None where there is no index yet.

    Attributes:
        missing_links: How often a found unit led to a node that is not in the index, since this object was
            made.
        beside: The words, where the store does not have them itself.
        changed: Whether something was written that is not committed.
        current: What is committed.
    """

    def __init__(
        self,
        store: NodeStore | None = None,
        embed_model: BaseEmbedding | None = None,
        words: Words | None = None,
        folder: IndexFolder | None = None,
        current: Manifest | None = None,
    ) -> None:
        self.store = store if store is not None else EmbeddedNodes()
        self.embed_model = embed_model
        self.words = words
        self.current = current
        self.missing_links = 0
        self.changed = False
        self.beside = WordsBeside(words)
        self._beside_of = ""  # for which version of an embedded store that lacks them
        self._folder = folder
        self._following = threading.Lock()
        # those that write wait for one another, as they do by a folder's lock
        self._threads = threading.RLock()
        if words is not None:
            self.store.words = words
        if folder is not None and isinstance(self.store, EmbeddedNodes):
            self.store.keeper = self

    def records(
        self, granularity: str | None = None, document_ids: Ids | None = None
    ) -> Iterator[NodeRecord]:
        """All nodes in short, or those of one granularity, and of some documents."""

        def begin() -> tuple[list[NodeRecord], Iterator[NodeRecord]]:
            if document_ids is None:
                records = self.store.records(granularity)
            else:
                records = self.store.records_of(document_ids, granularity)
            return list(islice(records, 1)), records

        yield from chain(*self.reading(begin))

    def documents(self) -> DocumentRecords:
        """The documents of the index by id."""
        return self.reading(self.store.documents)

    def counts(self) -> IndexCounts:
        """How many nodes there are."""
        return self.reading(self.store.counts)

    def metadata_values(self) -> dict[str, list[Any]]:
        """The keys of the passages' metadata, each with its distinct values."""
        return self.reading(self.store.metadata_values)

    def passage_texts(self, document_ids: Ids) -> list[str]:
        """The texts of the passages of some documents."""
        return [record.text for record in self.records("passage", document_ids)]

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        """The nodes nearest to a question, of any granularity, in short; of equal ones in the order of their
        ids.

        Args:
            question: An embedding, how many nodes, filters by metadata; for a vector store of the user's own
                also its mode.

        Raises:
            ValueError: The question's embedding has another dimension than those that are there.
        """

        nodes = self.reading(lambda: self.store.search(question))
        # stores order equal ones by when they were written, or not at all
        return sorted(nodes, key=lambda node: (-node.score, node.id))

    def searched_by_words(self) -> Database:
        """The database with the words of the nodes as they are now; for an index that is searched by
        words."""
        assert self.words is not None, "an index without words is not searched by words"
        store = self.store
        database = store.words_database(self.words)
        if database is not None:
            return database
        if store.is_embedded and self._beside_of != store.version:
            logger.warning(
                "The tokens in the index are another tokenizer's, or an earlier version's. They are made "
                "again, in memory, at each start until the index is changed (pack.compact() does so, or "
                "indexing again)."
            )
            self.beside.forget()
            self._beside_of = store.version
        return self.beside.now(store.records)

    def _settle_words(self) -> None:
        """Bring the words in step with the nodes, in the store or beside it; without a folder, these wait."""
        if self.store.is_embedded:
            self.store.update_words()
            self.beside.forget()  # what was tokenized in memory meanwhile
        elif self._folder is not None:
            self.beside.settle(self._folder.data, self.store.records)

    def fetch(self, node_ids: Ids) -> dict[str, BaseNode]:
        """Read nodes in one batch; ids that are not there are left out."""
        return self.reading(lambda: self.store.fetch(node_ids))

    def links(self, node_ids: Ids) -> dict[str, NodeLinks]:
        """What is above and below some nodes, by id; ids that are not there are left out."""
        return self.reading(lambda: self.store.links(node_ids))

    def read(
        self, node_ids: Ids, record_ids: Ids
    ) -> tuple[dict[str, BaseNode], dict[str, NodeRecord]]:
        """Read some nodes whole and others in short, in one batch; ids that are not there are left out."""
        return self.reading(
            lambda: (self.store.fetch(node_ids), self.store.records_with_ids(record_ids))
        )

    def all_nodes(self, granularity: str | None = None) -> Iterator[BaseNode]:
        """Whole nodes of one granularity, or all, in any order; some hundred are in memory at a time."""
        for records in iter_batch(self.store.records(granularity), _NODES_READ_AT_ONCE):
            yield from self.store.fetch([record.id for record in records]).values()

    def answer(self, find: Callable[[], tuple[T, Collection[str]]]) -> T:
        """Answer from one state of the nodes: what was found is often read in another step.

        Args:
            find: Returns an answer, and the ids of nodes that found ones lead to and that are not there.
                Where the store cannot read from one state, it is called again if others changed the nodes
                meanwhile. Otherwise these are links that lead nowhere, each of which costs its hit, not the
                query: they are counted, and the first time told.
        """
        for _ in range(_MOST_ANSWERS):
            state = None if self.store.is_embedded else self.store.state
            answer, missing = self.reading(find)
            if not missing or self.store.is_embedded or state == self.store.state:
                break
        if missing and not self.missing_links:
            logger.warning(
                "%d found units lead to nodes that are not in the index (the first is %s); they are left "
                "out. Index their documents again. This is said once; `missing_links` counts on.",
                len(missing), next(iter(missing)),
            )  # fmt: skip
        self.missing_links += len(missing)
        return answer

    def replace(self, document_ids: Ids, nodes: Nodes) -> None:
        """Write nodes in place of all nodes of some documents, embedding what is not; see
        `NodeStore.replace`."""
        if not document_ids and not nodes:
            return
        self._embed(nodes)
        with self._change():
            self.store.replace(document_ids, nodes)
            self.beside.replace(document_ids, nodes)

    def delete(self, document_ids: Ids) -> list[str]:
        """Delete documents, and say which of them were there."""
        distinct = list(dict.fromkeys(document_ids))
        # not by `documents`: of some the store may have but a part, since a writer was stopped
        indexed = [document_id for document_id in distinct if self.store.node_ids([document_id])]
        self.replace(distinct, [])
        return indexed

    @contextmanager
    def anew(self, description: Manifest) -> Iterator[None]:
        """Change the nodes, commit that, and leave nothing of what was deleted in the files of the index.

        In a folder, the embedded store is changed in a copy, which takes its place at the end: what fails
        before that changes nothing.
        """
        folder = self._folder
        store = self.store
        if folder is None or not store.is_embedded:
            yield
            self.beside.forget()  # who writes past us, as a pipeline, does not say so
            self._settle_words()
            with self._change():
                store.compact()
                self.beside.compact()
            self.commit(description)
            store.clean(timedelta(0))
            if folder is not None and self.words is None:
                for file in folder.data.glob(f"{WORDS_FILE}*"):  # which nobody keeps in step here
                    file.unlink()
            return
        store.commit()
        old_data = folder.data
        copied_data = folder.create()
        try:
            store.copy_to(copied_data, "")
            store.reload(copied_data, "")
            yield
            store.compact()
            self.changed = True
            self.commit(description)
        except BaseException:
            store.roll_back()
            folder.data = old_data
            store.reload(old_data, "")
            shutil.rmtree(copied_data, ignore_errors=True)
            raise

    def reading(self, read: Callable[[], T]) -> T:
        """Read from one state; where all of the index that was opened is gone, from that in its place."""
        folder = self._folder
        if folder is None or not is_index(folder.path):  # what lasts in memory is never gone
            return self._read(read)
        try:
            return self._read(read)
        except InvalidIndexError:
            if Manifest.read(folder.path).data == folder.data.name:
                raise

        def read_current() -> T:
            self._follow(folder)
            return self._read(read)

        return while_it_changes(folder.path, read_current)

    def _read(self, read: Callable[[], T]) -> T:
        with self.store.snapshot():
            return read()

    def _follow(self, folder: IndexFolder) -> None:
        """Go on with the index's current state, as who reads it; also where it was made anew by the same
        model.

        Raises:
            InvalidIndexError: It was removed, or made anew otherwise, or this state cannot be read either.
        """
        with self._following:
            manifest = Manifest.read(folder.path)
            if self.current is not None and self.current.is_alike(manifest):
                folder.data = folder.path / manifest.data
            else:
                self._check_same(folder, manifest)
            if manifest != self.current:
                self.store.reload(folder.data, manifest.version)
                self.beside.reopen(folder.data, manifest.version)
                self.current = manifest

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer, from the index's current state on, whoever made that.

        Raises:
            IndexInUseError: There is another writer.
            InvalidIndexError: The index was made anew since it was opened.
            OSError: The folder may not be written to.
        """
        folder = self._folder
        with self._threads, nullcontext() if folder is None else writing_to(folder.path):
            if folder is not None:
                manifest = Manifest.read(folder.path) if is_index(folder.path) else None
                self._check_same(folder, manifest)
                if manifest is not None:
                    self._follow(folder)
            if self.current is not None and not self.store.is_embedded:
                of_store = about(self.store)
                if of_store is None or of_store.version != self.current.version:
                    # a writer was stopped, or there is another one: the words may lack what it wrote
                    self.changed = True
                    self.beside.forget()
            try:
                self._settle_words()
                yield
            except BaseException:
                self.store.roll_back()  # what was not committed is not shown either
                raise

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep what LlamaIndex's own index changes."""
        with self.writing():
            yield
            if self.current is not None:
                self.commit(self.current)

    def commit(self, description: Manifest, midway: bool = False) -> None:
        """Make what is in the store the index's state; documents that are all blank make no index.

        Args:
            description: What made the index; its data and version do not matter.
            midway: Whether more will be written at once. Then nothing is committed without a folder, nor of a
                store that has no transactions.
        """
        folder = self._folder
        store = self.store
        is_waiting = midway and (folder is None or not (store.is_embedded or self.current is None))
        is_nothing = self.current is None and store.is_empty()
        if is_waiting or is_nothing:
            store.commit()
        else:
            manifest = self._write(description)
            if folder is not None and not midway:
                store.clean(OLD_VERSIONS)
                folder.clean(manifest)
        store.maintain(midway)

    def _write(self, description: Manifest) -> Manifest:
        folder = self._folder
        store = self.store
        manifest = replace(description, data="" if folder is None else folder.data.name, version="")
        if store.is_embedded:
            store.write_about(manifest.as_text())
            store.commit()
            version = store.version
        else:
            version = self.current.version if self.current and not self.changed else new_name()
        manifest = replace(manifest, version=version)
        if manifest != self.current:
            if not store.is_embedded:
                store.write_about(manifest.as_text())
            if folder is not None:
                store.persist(folder.data, version)
                manifest.write(folder.path)
            self.current = manifest
        self.changed = False
        self.beside.done(version)
        return manifest

    def _check_same(self, folder: IndexFolder, manifest: Manifest | None) -> None:
        data = manifest.data if manifest is not None else ""
        if data != (self.current.data if self.current is not None else ""):
            raise InvalidIndexError(
                f"the index in {folder.path} was removed or made anew since it was opened: load it again"
            )

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Change the store, and the words beside it, which a stop may leave half done."""
        if not self.changed and not self.store.is_embedded and self.current is not None:
            self.beside.begin()
            self.store.write_about(replace(self.current, version=new_name()).as_text())
        try:
            yield
        except BaseException:
            self.beside.forget()  # the change may have come half-way
            raise
        finally:
            self.changed = True

    def _embed(self, nodes: Nodes) -> None:
        """Embed the nodes that have no embedding.

        Raises:
            ValueError: An embedding is not finite, or has another dimension than those that are there.
        """
        if self.embed_model is not None:
            searched = [
                node
                for node in nodes
                if node.embedding is None and granularity_of(node) != "section"
            ]
            for batch in iter_batch(searched, _EMBEDDED_AT_ONCE):
                self._embed_batch(self.embed_model, batch)
        embedded = [node for node in nodes if node.embedding is not None]
        for node in embedded:
            if not np.isfinite(np.sum(node.get_embedding())):
                raise ValueError(
                    f"the embedding of a text of document {node.ref_doc_id!r} is not finite: look into the "
                    "embedding model"
                )
        if embedded and not self.store.is_embedded:
            self._place_others(nodes, embedded)

    def _place_others(self, nodes: Nodes, embedded: Nodes) -> None:
        """Embed sections, which nobody searches: other stores want an embedding of each node."""
        dimensions = {str(len(node.get_embedding())) for node in embedded}
        if self.store.dimension is not None:
            dimensions.add(str(self.store.dimension))
        dimension = int(same_dimension(dimensions) or 0)
        for node in nodes:
            if node.embedding is None:
                node.embedding = nowhere(dimension)

    def _embed_batch(self, embed_model: BaseEmbedding, nodes: Nodes) -> None:
        embeddings = embed_texts(embed_model, [embedded_text(node) for node in nodes])
        if len(embeddings) != len(nodes):  # none of them is sure to be of its text
            raise ValueError(
                f"the embedding model returned {len(embeddings)} embeddings for {len(nodes)} texts"
            )
        for node, embedding in zip(nodes, embeddings, strict=True):
            if self.store.is_embedded:
                # of a long document, Python's numbers are most of the memory; pydantic would make them anew
                object.__setattr__(node, "embedding", np.asarray(embedding, np.float32))
            else:
                node.embedding = embedding


def about(store: NodeStore) -> Manifest | None:
    """What a vector store says about the index in it.

    Raises:
        InvalidIndexError: That is damaged, or of another version of this package.
    """
    text = store.read_about()
    return (
        None if text is None else Manifest.parsed(text, f"the index in the {store.name}", _REBUILD)
    )


def new_name() -> str:
    """A name for the state of a store that does not tell its own."""
    return uuid.uuid4().hex
