"""The index over a store of nodes, which is taken from one consistent state to the next."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.utils import iter_batch
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_pack_densex.index.database import Database, ReplacedIndexError
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
from llama_pack_densex.index.words import WORDS_FILE, Words, WordsBeside
from llama_pack_densex.llm.endpoint import embed_texts
from llama_pack_densex.node_parsers.metadata import embedded_text
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

T = TypeVar("T")

_NODES_READ_AT_ONCE = 500
_EMBEDDED_AT_ONCE = 2_048
_MOST_ANSWERS = 3  # attempts at a question while others keep writing
_REBUILD = "empty the vector store, and index the documents again"


class NodeIndex:
    """All nodes of a corpus, of all granularities: embedded and written together, read back by id in one
    batch.

    In a folder, the manifest names the version of the store and what made the index. If a writer is stopped,
    the embedded store drops what it had not committed. Other stores keep it, so the next writer compares the
    words with them. Without a folder, what made the index is recorded in the store alone.

    Args:
        store: The store of the nodes; None means an embedded one in memory.
        embed_model: The model that embeds nodes; None if nothing is written, or for an embedded store that is
            only searched by keywords.
        words: The tokenizer of the keyword search; None for an index without keyword search.
        folder: The index folder, already created or opened; None if there is none.
        current: The manifest; None if there is no index yet.

    Attributes:
        missing_links: How often a unit that was found led to a node that is not in the index, since this
            object was created.
        beside: The words, if the store does not keep them itself.
        changed: Whether something was written that is not committed yet.
        embedded: The store, if it is the embedded one, which has transactions, keeps the words of its nodes
            itself, and needs embeddings only for nodes that are searched; else None.
        folder: The index folder; None if there is none.
        current: The manifest of the committed state; None if there is none yet.
    """

    def __init__(
        self,
        store: NodeStore | None = None,
        embed_model: BaseEmbedding | None = None,
        words: Words | None = None,
        folder: IndexFolder | None = None,
        current: Manifest | None = None,
    ) -> None:
        self.store = store or EmbeddedNodes()
        self.embed_model = embed_model
        self.words = words
        self.current = current
        self.missing_links = 0
        self.changed = False
        self.beside = WordsBeside(words)
        self._beside_of = ""  # the version of an embedded store without words that `beside` is for
        self.folder = folder
        self._following = threading.Lock()
        # makes the writing threads wait for one another, as a folder's lock does for processes
        self._threads = threading.RLock()
        self.embedded = self.store if isinstance(self.store, EmbeddedNodes) else None
        if self.embedded and words:
            self.embedded.words = words
        if self.embedded and folder:
            self.embedded.keeper = self

    @staticmethod
    def open(
        folder: IndexFolder,
        vector_store: BasePydanticVectorStore | None = None,
        docstore: BaseDocumentStore | None = None,
    ) -> NodeIndex:
        """Open the index in a folder, in the state that its manifest names, without an embedding model.

        Args:
            folder: The folder.
            vector_store: As for `IndexFolder.open`.
            docstore: As for `IndexFolder.open`.

        Raises:
            InvalidIndexError: The folder is not an index, is damaged, or needs another vector store.
        """
        manifest = Manifest.read(folder.path)
        store = folder.open(manifest, vector_store, docstore)
        return NodeIndex(store, folder=folder, current=manifest)

    @property
    def manifest(self) -> Manifest:
        """The manifest of an index that has one."""
        assert self.current is not None, "only an index that was committed has a manifest"
        return self.current

    @property
    def where(self) -> str:
        """A name for the index in messages."""
        if self.folder is None:
            return f"the {self.store.name}"
        return str(self.folder.path)

    @cached_property
    def shared_state(self) -> str:
        """The state on which folder and store agreed when the index was opened; empty if they differed, since
        others may have written to the store or replaced it, or if there is no folder."""
        if self.folder is None or self.current is None:
            return ""
        of_store = about(self.store)
        state = self.store.version
        if not state and of_store is not None:
            state = of_store.version
        if state != self.current.version:
            return ""
        return state

    def records(
        self, granularity: str | None = None, document_ids: Ids | None = None
    ) -> Iterator[NodeRecord]:
        """Return the records of all nodes, or of those of one granularity and of the given documents."""

        # the first record is read within `reading`, which notices if the index has been replaced
        def begin() -> tuple[list[NodeRecord], Iterator[NodeRecord]]:
            if document_ids is None:
                records = self.store.records(granularity)
            else:
                records = self.store.records_of(document_ids, granularity)
            return list(islice(records, 1)), records

        yield from chain(*self.reading(begin))

    def documents(self) -> DocumentRecords:
        """Return the documents of the index, by id."""
        return self.reading(self.store.documents)

    def counts(self) -> IndexCounts:
        """Count the nodes of the index."""
        return self.reading(self.store.counts)

    def metadata_values(self) -> dict[str, list[Any]]:
        """Return the keys of the passages' metadata, each with its distinct values."""
        return self.reading(self.store.metadata_values)

    def passage_texts(self, document_ids: Ids) -> list[str]:
        """Return the texts of the passages of the given documents."""
        return [record.text for record in self.records("passage", document_ids)]

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        """Return the nodes nearest to a question, of any granularity, nearest first; equally near ones are in
        the order of their ids.

        Args:
            question: The question's embedding, the number of nodes, and metadata filters; for the user's own
                vector store also its query mode.

        Raises:
            ValueError: The question's embedding has another dimension than the stored ones.
        """

        nodes = self.reading(lambda: self.store.search(question))
        # stores order equally near nodes by when they were written, or not at all
        return sorted(nodes, key=lambda node: (-node.score, node.id))

    def searched_by_words(self) -> Database:
        """Return the database with the words of the current nodes; only for an index with keyword search."""
        assert self.words is not None, "an index without words is not searched by words"
        embedded = self.embedded
        if embedded and embedded.has_words_of(self.words):
            return embedded.database
        if embedded and self._beside_of != embedded.version:
            logger.warning(
                "The tokens in the index are another tokenizer's, or an earlier version's. Each start makes "
                "them again in memory until the index is next changed, for example by pack.compact()."
            )
            self.beside.forget()
            self._beside_of = embedded.version
        return self.beside.now(self.store.records)

    def _settle_words(self) -> None:
        """Bring the words in step with the nodes, in the store or beside it.

        Words beside a store that has no folder are not touched: they are made in memory when first needed.
        """
        if self.embedded:
            self.embedded.update_words()
            self.beside.forget()  # words that were made in memory meanwhile
        elif self.folder is not None:
            self.beside.settle(self.folder.data, self.store.records)

    def fetch(self, node_ids: Ids) -> dict[str, BaseNode]:
        """Read nodes in one batch; unknown ids are left out."""
        return self.reading(lambda: self.store.fetch(node_ids))

    def links(self, node_ids: Ids) -> dict[str, NodeLinks]:
        """Return the parent and children of the given nodes, by id; unknown ids are left out."""
        return self.reading(lambda: self.store.links(node_ids))

    def read(
        self, node_ids: Ids, record_ids: Ids
    ) -> tuple[dict[str, BaseNode], dict[str, NodeRecord]]:
        """Read some nodes and only the records of others, in one batch; unknown ids are left out."""
        return self.reading(
            lambda: (self.store.fetch(node_ids), self.store.records_with_ids(record_ids))
        )

    def all_nodes(self, granularity: str | None = None) -> Iterator[BaseNode]:
        """Yield all nodes, or those of one granularity, in any order; a few hundred are in memory at once."""
        for records in iter_batch(self.store.records(granularity), _NODES_READ_AT_ONCE):
            yield from self.store.fetch([record.id for record in records]).values()

    def answer(self, find: Callable[[], tuple[T, Collection[str]]]) -> T:
        """Answer a question from one state of the nodes, although finding and reading them are two steps.

        If ids are missing because others changed a store that cannot be read from one state, `find` is called
        again. Otherwise these links lead nowhere: the units are dropped, not the whole question. Such links
        are counted, and the first time logged.

        Args:
            find: Returns an answer, and the ids that the found units lead to but that are not in the store.
        """
        for _ in range(_MOST_ANSWERS):
            state = None if self.embedded else self.store.state
            answer, missing = self.reading(find)
            if not missing or self.embedded or state == self.store.state:
                break
        if missing and not self.missing_links:
            logger.warning(
                "%d found units lead to nodes that are not in the index (the first is %s); they are left "
                "out. Index their documents again. This is logged only once; `missing_links` keeps counting.",
                len(missing), next(iter(missing)),
            )  # fmt: skip
        self.missing_links += len(missing)
        return answer

    def replace(self, document_ids: Ids, nodes: Nodes) -> None:
        """Replace all nodes of the given documents, embedding the new nodes that have no embedding; see
        `NodeStore.replace`."""
        if not document_ids and not nodes:
            return
        self._embed(nodes)
        with self._change():
            self.store.replace(document_ids, nodes)
            self.beside.replace(document_ids, nodes)

    def delete(self, document_ids: Ids) -> list[str]:
        """Delete documents, and return the ids of those that the store had nodes of."""
        distinct = list(dict.fromkeys(document_ids))
        # `documents` does not list a document that a stopped writer left incomplete
        indexed = [document_id for document_id in distinct if self.store.node_ids([document_id])]
        self.replace(distinct, [])
        return indexed

    def rewrite(self, document_ids: Ids = ()) -> list[str]:
        """Delete documents, commit, and erase what was deleted from the files of the index.

        In a folder, the embedded store is changed in a copy, which replaces it at the end; a failure before
        that changes nothing.

        Args:
            document_ids: The documents to delete.

        Returns:
            The ids of the deleted documents that the store had nodes of.
        """
        if self.folder is not None and self.embedded:
            return self._rewrite_as_copy(self.folder, document_ids)
        deleted = self.delete(document_ids)
        self.beside.forget()  # others, such as a pipeline, may have written to the store unnoticed
        self._settle_words()
        with self._change():
            self.store.compact()
            self.beside.compact()
        self.commit()
        self.store.clean(timedelta(0))
        if self.folder is not None and self.words is None:
            for file in self.folder.data.glob(f"{WORDS_FILE}*"):  # nobody keeps them in step
                file.unlink()
        return deleted

    def _rewrite_as_copy(self, folder: IndexFolder, document_ids: Ids) -> list[str]:
        store = self.store
        store.commit()
        old_data = folder.data
        copied_data = folder.create()
        try:
            store.copy_to(copied_data, "")
            store.reload(copied_data, "")
            deleted = self.delete(document_ids)
            store.compact()
            self.commit()
        except BaseException:
            store.roll_back()
            folder.data = old_data
            store.reload(old_data, "")
            shutil.rmtree(copied_data, ignore_errors=True)
            raise
        return deleted

    def copy_to(self, folder: IndexFolder) -> None:
        """Write a copy of the index to another folder."""
        store = self.store
        with writing_to(folder.path):
            data = folder.create()

            def copy_store() -> str:
                version = store.version or _new_name()
                store.copy_to(data, version)
                return version

            version = self.reading(copy_store)
            manifest = replace(self.describe(), data=data.name, version=version)
            if not self.embedded:
                store.write_about(manifest.as_text())
                self.beside.copy_to(data, version, store.records)
            manifest.write(folder.path)
            folder.clean(manifest)

    def reading(self, read: Callable[[], T]) -> T:
        """Call `read` with all of its reads from one state; if the opened index has been replaced, from the
        one in its place."""
        folder = self.folder
        if folder is None or not is_index(folder.path):  # an index in memory cannot be replaced
            return self.store.reading(read)
        try:
            return self.store.reading(read)
        except ReplacedIndexError:
            pass
        except InvalidIndexError:
            if Manifest.read(folder.path).data == folder.data.name:
                raise

        def read_current() -> T:
            self._follow(folder)
            return self.store.reading(read)

        return while_it_changes(folder.path, read_current)

    def _follow(self, folder: IndexFolder) -> None:
        """Switch to the current state of the index in the folder, even if its data was replaced by `compact`,
        by a copy, or by a rebuild with the same kind of store and embedding model.

        Raises:
            InvalidIndexError: The index was removed or rebuilt otherwise, or cannot be read.
        """
        with self._following:
            manifest = Manifest.read(folder.path)
            if self.current is not None and self.current.is_alike(manifest):
                folder.data = folder.path / manifest.data
            else:
                self._check_same(folder, manifest)
            # another folder with the same content may have taken the place of the embedded store's
            if manifest != self.current or self.embedded:
                self.store.reload(folder.data, manifest.version)
                self.beside.reopen(folder.data, manifest.version)
                self.current = manifest

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Become the only writer, starting from the index's current state, whoever wrote it.

        Raises:
            IndexInUseError: There is another writer.
            InvalidIndexError: The index was removed or rebuilt since it was opened.
            OSError: The folder is not writable.
        """
        with ExitStack() as stack:
            stack.enter_context(self._threads)
            if self.folder is not None:
                stack.enter_context(writing_to(self.folder.path))
                self._catch_up(self.folder)
            self._find_unfinished_change()
            try:
                self._settle_words()
                yield
            except BaseException:
                self.store.roll_back()
                raise

    def _catch_up(self, folder: IndexFolder) -> None:
        if is_index(folder.path):
            self._check_same(folder, Manifest.read(folder.path))
            self._follow(folder)
        else:
            self._check_same(folder, None)

    def _find_unfinished_change(self) -> None:
        """Note whether a writer was stopped, or somebody else wrote: the words may lack some of it."""
        if self.current is None or self.embedded:
            return
        of_store = about(self.store)
        if of_store is None or of_store.version != self.current.version:
            self.changed = True
            self.beside.forget()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Commit what LlamaIndex's own index changes within."""
        with self.writing():
            yield
            if self.current is not None:
                self.commit(description=self.current)

    def describe(self) -> Manifest:
        """Return a manifest that says what made the index; its `data` and `version` mean nothing."""
        return self.manifest

    def commit(self, midway: bool = False, description: Manifest | None = None) -> None:
        """Make the store's content the committed state of the index; an empty store makes no index.

        Args:
            midway: Whether more is about to be written. If so, the manifest is not written for an index
                without a folder, nor again for a store without transactions.
            description: What made the index; None means what `describe` returns.
        """
        folder = self.folder
        store = self.store
        is_waiting = midway and (folder is None or not (self.embedded or self.current is None))
        is_nothing = self.current is None and store.is_empty()
        if is_waiting or is_nothing:
            store.commit()
        else:
            manifest = self._write(description or self.describe())
            if folder is not None and not midway:
                store.clean(OLD_VERSIONS)
                folder.clean(manifest)
        store.maintain(midway)

    def _write(self, description: Manifest) -> Manifest:
        folder = self.folder
        store = self.store
        data = folder.data.name if folder is not None else ""
        manifest = replace(description, data=data, version="")
        version = _new_name()
        if self.embedded:
            store.write_about(manifest.as_text())
            store.commit()
            version = store.version
        elif self.current is not None and not self.changed:
            version = self.current.version
        manifest = replace(manifest, version=version)
        if manifest != self.current:
            if not self.embedded:
                store.write_about(manifest.as_text())
            if folder is not None:
                store.persist(folder.data, version)
                manifest.write(folder.path)
            self.current = manifest
        self.changed = False
        self.beside.done(version)
        return manifest

    def _check_same(self, folder: IndexFolder, manifest: Manifest | None) -> None:
        current = self.current
        if (manifest and manifest.data) != (current and current.data):
            raise InvalidIndexError(
                f"the index in {folder.path} was removed or rebuilt since it was opened: load it again"
            )

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Change the store and the words beside it, which a stop may leave inconsistent.

        Outside the embedded store, both are first marked as changed, so that the next writer compares them.
        """
        if not self.changed and not self.embedded and self.current is not None:
            self.beside.begin()
            self.store.write_about(replace(self.current, version=_new_name()).as_text())
        try:
            yield
        except BaseException:
            self.beside.forget()  # the change may be incomplete
            raise
        finally:
            self.changed = True

    def _embed(self, nodes: Nodes) -> None:
        """Embed the nodes that have no embedding.

        Raises:
            ValueError: An embedding is not finite, or its dimension differs from that of the others.
        """
        if self.embed_model is not None:
            missing = [
                node
                for node in nodes
                if node.embedding is None and granularity_of(node) != "section"
            ]
            for batch in iter_batch(missing, _EMBEDDED_AT_ONCE):
                self._embed_batch(self.embed_model, batch)
        with_embedding = [node for node in nodes if node.embedding is not None]
        _check_finite(with_embedding)
        if with_embedding and not self.embedded:
            self._embed_sections(nodes, with_embedding)

    def _embed_sections(self, nodes: Nodes, embedded: Nodes) -> None:
        """Give sections, which are never searched, a dummy embedding: other stores need one for each node."""
        dimensions = {str(len(node.get_embedding())) for node in embedded}
        if self.store.dimension is not None:
            dimensions.add(str(self.store.dimension))
        dimension = int(same_dimension(dimensions) or 0)
        for node in nodes:
            if node.embedding is None:
                node.embedding = nowhere(dimension)

    def _embed_batch(self, embed_model: BaseEmbedding, nodes: Nodes) -> None:
        embeddings = embed_texts(embed_model, [embedded_text(node) for node in nodes])
        if len(embeddings) != len(nodes):  # no embedding can be assigned to its text with certainty
            raise ValueError(
                f"the embedding model returned {len(embeddings)} embeddings for {len(nodes)} texts"
            )
        for node, embedding in zip(nodes, embeddings, strict=True):
            if self.embedded:
                # pydantic would convert the array to a list, and a long document's embeddings as Python
                # floats are most of the memory
                object.__setattr__(node, "embedding", np.asarray(embedding, np.float32))
            else:
                node.embedding = embedding


def _check_finite(nodes: Nodes) -> None:
    for node in nodes:
        if not np.isfinite(np.sum(node.get_embedding())):
            raise ValueError(
                f"the embedding of a text of document {node.ref_doc_id!r} is not finite: check the "
                "embedding model"
            )


def about(store: NodeStore) -> Manifest | None:
    """Return the manifest that a vector store keeps of the index in it; None if it keeps none.

    Raises:
        InvalidIndexError: The manifest is damaged, or from another version of this package.
    """
    text = store.read_about()
    if text is None:
        return None
    return Manifest.parsed(text, f"the index in the {store.name}", _REBUILD)


def _new_name() -> str:
    """Return a new name for the state of a store that does not name its states itself."""
    return uuid.uuid4().hex
