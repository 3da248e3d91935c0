"""The nodes of a LlamaIndex docstore, read and written in batches.

LlamaIndex's docstores are tables of a key-value store. Their own methods take a round trip for each node, and write a
document's list of nodes anew for each of its nodes; the tables are written here as those methods write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.docstore.utils import doc_to_json
from llama_index.core.storage.kvstore.types import BaseKVStore, MutableMappingKVStore

_ABOUT = "about"  # a key of our own table
_DOCUMENT = "document:"  # what the others of its keys begin with
_WRITTEN_TOGETHER = 1_000
_READERS = 8

Row = dict[str, Any]
Item = TypeVar("Item")


@dataclass(frozen=True)
class KeptDocument:
    """What our own table says of a document.

    Args:
        hash: Tells whether it changed; empty while it is being written.
        file: The file it was read from.
        version: Another one each time it is written; empty while it is being written.
    """

    hash: str = ""
    file: str = ""
    version: str = ""


class DocstoreTables:
    """The tables of a docstore.

    Args:
        docstore: Any docstore of LlamaIndex that is kept in a key-value store; all of its integrations are.

    Raises:
        TypeError: It is another one.
    """

    def __init__(self, docstore: BaseDocumentStore) -> None:
        if not isinstance(docstore, KVDocumentStore):
            raise TypeError(
                f"docstore is a {type(docstore).__name__}, which is no KVDocumentStore: pass one of LlamaIndex's, such "
                "as SimpleDocumentStore, RedisDocumentStore or PostgresDocumentStore"
            )
        self._store: BaseKVStore = docstore._kvstore
        self._nodes, self._metadata = docstore._node_collection, docstore._metadata_collection
        self._lists = docstore._ref_doc_collection
        self._ours = f"{docstore._namespace}/densex"

    def rows(self, node_ids: Sequence[str]) -> dict[str, Row]:
        """Nodes as they are kept, by id; `json_to_doc` makes nodes of them."""
        return self._read(node_ids, self._nodes)

    def node_ids(self, document_ids: Sequence[str]) -> dict[str, list[str]]:
        """The ids of the nodes of some documents."""
        lists = self._read(document_ids, self._lists)
        return {document_id: list(row.get("node_ids", [])) for document_id, row in lists.items()}

    def all_rows(self) -> Iterator[tuple[str, Row]]:
        """All nodes of our documents with their ids, as they are kept; read in batches."""
        for document_ids in batches(list(self.documents()), 100):
            node_ids = (node_id for ids in self.node_ids(document_ids).values() for node_id in ids)
            for some in batches(node_ids, _WRITTEN_TOGETHER):
                yield from self.rows(some).items()

    def documents(self) -> dict[str, KeptDocument]:
        """The documents by id, those included that are not whole."""
        rows = self._store.get_all(collection=self._ours)
        return {
            key.removeprefix(_DOCUMENT): KeptDocument(**row) for key, row in rows.items() if key.startswith(_DOCUMENT)
        }

    def begin(self, document_ids: Iterable[str]) -> None:
        """Note that documents are not whole: they have no hash until `finish`."""
        self._mark(dict.fromkeys(document_ids, KeptDocument()))

    def write(self, nodes: Mapping[str, Sequence[BaseNode]], before: Mapping[str, Sequence[str]]) -> None:
        """Write documents' nodes; those that were there stay. From here until `finish`, the documents have no hash.

        Args:
            nodes: The nodes by document.
            before: The ids of the nodes that the documents have now; those included that are to lose all.

        Raises:
            ValueError: A node's metadata cannot be kept as JSON.
        """
        lists, rows, metadata = {}, {}, {}
        for document_id, theirs in nodes.items():
            ids = [node.node_id for node in theirs]
            lists[document_id] = _list(theirs, [*ids, *before.get(document_id, [])])
            for node in theirs:
                rows[node.node_id] = _row(node)
                metadata[node.node_id] = {"doc_hash": node.hash, "ref_doc_id": document_id}
        self.begin([*before, *nodes])
        self._put(lists, self._lists)  # first, so that a stop leaves no node that belongs to no document
        self._put(rows, self._nodes)
        self._put(metadata, self._metadata)

    def finish(
        self,
        nodes: Mapping[str, Sequence[BaseNode]],
        before: Mapping[str, Sequence[str]],
        documents: Mapping[str, KeptDocument],
    ) -> None:
        """Delete what documents no longer have, and note that they are whole.

        Args:
            nodes: Their nodes by document, as they were written.
            before: The ids of the nodes that documents had before; those without nodes now are forgotten.
            documents: What is to be noted of those that have nodes.
        """
        kept = {node.node_id for theirs in nodes.values() for node in theirs}
        gone = [node_id for ids in before.values() for node_id in ids if node_id not in kept]
        self._delete(gone, self._nodes)
        self._delete(gone, self._metadata)
        self._put({one: _list(nodes[one], [n.node_id for n in nodes[one]]) for one in nodes}, self._lists)
        forgotten = [document_id for document_id in before if document_id not in nodes]
        self._delete(forgotten, self._lists)
        self._delete([f"{_DOCUMENT}{document_id}" for document_id in forgotten], self._ours)
        self._mark(documents)

    @property
    def about(self) -> str | None:
        """What was written about the index."""
        row = self._store.get(_ABOUT, collection=self._ours)
        return None if row is None else str(row["text"])

    @about.setter
    def about(self, text: str) -> None:
        self._store.put(_ABOUT, {"text": text}, collection=self._ours)

    def _mark(self, documents: Mapping[str, KeptDocument]) -> None:
        self._put({f"{_DOCUMENT}{one}": asdict(document) for one, document in documents.items()}, self._ours)

    def _read(self, keys: Sequence[str], table: str) -> dict[str, Row]:
        distinct = list(dict.fromkeys(keys))
        if not distinct:
            return {}
        redis = getattr(self._store, "_redis_client", None)
        if redis is not None:  # its integration reads one by one
            texts = redis.hmget(table, distinct)
            return {key: json.loads(text) for key, text in zip(distinct, texts, strict=True) if text is not None}
        # the first one alone, because several integrations connect when they are first used
        rows: list[Row | None] = [self._store.get(distinct[0], collection=table)]
        rest = distinct[1:]
        if isinstance(self._store, MutableMappingKVStore) or len(rest) < 2:
            rows += [self._store.get(key, collection=table) for key in rest]
        else:
            with ThreadPoolExecutor(_READERS) as pool:
                rows += pool.map(lambda key: self._store.get(key, collection=table), rest)
        return {key: row for key, row in zip(distinct, rows, strict=True) if row is not None}

    def _put(self, rows: Mapping[str, Row], table: str) -> None:
        if not rows:
            return
        takes_batches = type(self._store).put_all is not BaseKVStore.put_all
        size = _WRITTEN_TOGETHER if takes_batches else 1
        self._store.put_all(list(rows.items()), collection=table, batch_size=size)

    def _delete(self, keys: Sequence[str], table: str) -> None:
        redis = getattr(self._store, "_redis_client", None)
        if redis is None:
            for key in keys:
                self._store.delete(key, collection=table)
            return
        for some in batches(keys, _WRITTEN_TOGETHER):
            redis.hdel(table, *some)


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Cut something into lists of at most `size`."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _list(nodes: Sequence[BaseNode], node_ids: Sequence[str]) -> Row:
    metadata = {key: value for node in nodes for key, value in node.metadata.items()}  # as LlamaIndex merges it
    return {"node_ids": list(dict.fromkeys(node_ids)), "metadata": metadata}


def _row(node: BaseNode) -> Row:
    row = doc_to_json(node.model_copy(update={"embedding": None}))
    try:
        json.dumps(row)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the metadata of document {node.ref_doc_id!r} cannot be kept as JSON ({error}); use strings, numbers, "
            "booleans, lists and dictionaries"
        ) from error
    return row
