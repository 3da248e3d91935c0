"""The embedded vector store: a LanceDB table, in memory or in a folder.

Not llama-index-vector-stores-lancedb (0.6): it quotes ids wrongly in `get_nodes` and `delete`, appends a second row for
an id that is there already, keeps metadata in a struct that the first node fixes, measures squared L2 distances, and
cannot hold nodes without embeddings, which lexical search needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from llama_pack_densex.stores.filters import PassageMetadata, matches
from llama_pack_densex.stores.lance_table import (
    IN_MEMORY,
    PASSAGE_WORDS,
    UNIT_WORDS,
    NodeTable,
    TableVersion,
    is_any_of,
    is_of_any,
    same_dimension,
)
from llama_pack_densex.stores.manifest import InvalidIndexError
from llama_pack_densex.stores.node_store import (
    RECORD_COLUMNS,
    DocumentRecord,
    FoundNode,
    NodeRecord,
    NodeStore,
    kept_as_json,
    look_further,
)
from llama_pack_densex.stores.words import SAYING, Words, stated_by, words_in


class LanceVectorStore(BasePydanticVectorStore):
    """Keeps nodes, and their embeddings where they have any, in one LanceDB table.

    Writing a node whose id is there replaces it. Similarity is the cosine. A store whose nodes have no embeddings
    holds text only and answers no query.

    Embeddings are compared one by one, or found by an index where `LanceNodes.maintain` made one.

    Args:
        uri: A folder, or "memory://" for a store that lives as long as this object.
        version: The version of the table to read and to write on top of; 0 for the time before there was one. None
            means the latest.
        nodes: What it writes to and reads, where that is there already.

    Raises:
        InvalidIndexError: The version is not there any more, or a file is damaged.
        ValueError: (on writing) Some nodes have an embedding and some have none, or embeddings differ in dimension.
    """

    stores_text: bool = True
    uri: str = IN_MEMORY

    _nodes: LanceNodes = PrivateAttr()

    def __init__(
        self, uri: str | Path = IN_MEMORY, version: int | None = None, nodes: LanceNodes | None = None, **kwargs: Any
    ) -> None:
        given = {"uri": str(uri), **kwargs}
        super().__init__(**given)
        self._nodes = LanceNodes(self.uri, version) if nodes is None else nodes

    @classmethod
    def class_name(cls) -> str:
        return "LanceVectorStore"

    @property
    def client(self) -> Any:
        """The LanceDB connection."""
        return self._nodes.connection

    @property
    def nodes(self) -> LanceNodes:
        """The nodes, for what LlamaIndex's interface has no method for."""
        return self._nodes

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Write nodes, replacing those whose ids are there, in one transaction."""
        if nodes:
            with self._nodes.change_in():
                self._nodes.replace([], nodes)
        return [node.node_id for node in nodes]

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Read nodes by id, in the order of the ids, by metadata, or by both; an empty list of ids means no node."""
        return self._nodes.read_by(lambda: self._read(node_ids, filters))  # type: ignore[no-any-return]

    def _read(self, node_ids: Sequence[str] | None, filters: MetadataFilters | None) -> list[BaseNode]:
        now = self._nodes.now
        if node_ids is None:
            nodes = [to_node(content) for (content,) in now.values(["node"])]
        else:
            found = now.begin_contents(node_ids)()
            nodes = [to_node(found[node_id]) for node_id in node_ids if node_id in found]
        return [node for node in nodes if matches(node.metadata, filters)]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        with self._nodes.change_in():
            self._nodes.delete(is_any_of("document_id", [ref_doc_id]))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete nodes by id, by metadata, or by both; an empty list of ids deletes nothing."""
        with self._nodes.change_in():
            if filters is not None:
                node_ids = [node.node_id for node in self._read(node_ids, filters)]
            if node_ids:
                self._nodes.delete(is_any_of("id", node_ids))

    def clear(self) -> None:
        """Delete all nodes."""
        with self._nodes.change_in():
            self._nodes.delete()

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The nodes nearest to an embedding by cosine; filtered ones are dropped and more fetched in their place."""
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise ValueError(f"LanceVectorStore answers queries of mode 'default' only, not {query.mode.value!r}")
        return self._nodes.read_by(lambda: self._found(query))  # type: ignore[no-any-return]

    def _found(self, query: VectorStoreQuery) -> VectorStoreQueryResult:
        asked = (("id", query.node_ids), ("document_id", query.doc_ids))
        condition = " AND ".join(is_any_of(column, ids) for column, ids in asked if ids)

        def find(limit: int) -> tuple[list[tuple[BaseNode, float]], int]:
            # of few rows each is compared; an index would be searched in vain for most of its partitions
            now = self._nodes.now
            found = now.begin_nearest(query.query_embedding, limit, condition, exactly=bool(condition))()
            nodes = {node.node_id: node for node in self._read([hit.id for hit in found], query.filters)}
            return [(nodes[hit.id], hit.score) for hit in found if hit.id in nodes], len(found)

        best = look_further(find, query.similarity_top_k, query.similarity_top_k)
        return VectorStoreQueryResult(
            [node for node, _ in best], [score for _, score in best], [node.node_id for node, _ in best]
        )


_OURS = "granularity != ''"  # what others wrote into the same table stays out of the index


class LanceNodes(NodeTable, NodeStore):
    """Nodes in a LanceDB table. Each change is another version of it, and seen as a whole or not at all.

    Who keeps the number of a version can go back to it, until `clean` removes it: see `roll_back`.

    Args:
        uri: A folder, or "memory://", as in `NodeTable`.
        version: The version of the table, as there.

    Attributes:
        words: How the words of what is written are told; None where it is not searched by words.
        read_by: Reads for LlamaIndex's own classes by a function, from another version where the one that was opened is
            gone; for who keeps the versions of the table.
        change_in: What these classes change is changed in it, and kept at its end.
    """

    atomic = True

    def __init__(self, uri: str = IN_MEMORY, version: int | None = None) -> None:
        NodeTable.__init__(self, uri, version)
        NodeStore.__init__(self)
        self.words: Words | None = None
        self.read_by: Callable[[Callable[[], Any]], Any] = lambda read: read()
        self.change_in: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def vector_store(self) -> LanceVectorStore:  # type: ignore[override]  # not kept: they would keep one another
        return LanceVectorStore(self.uri, nodes=self)

    @property
    def dimension(self) -> int | None:
        return self.now.dimension

    @property
    def version(self) -> str:
        """The version of the table that is read and written on top of; "0" where there is no table yet."""
        return str(self.now.version)

    def replace(self, document_ids: Collection[str], nodes: Sequence[BaseNode]) -> None:
        if nodes:
            rows = to_rows(nodes)
            self.write(rows if self.words is None else self.words.added_to(rows), document_ids)
        elif document_ids:
            self.delete(is_any_of("document_id", document_ids))

    @property
    def searched_by_words(self) -> TableVersion | None:
        """The version to search by words; None where it lacks them, or they were told otherwise than is asked for."""
        words, now = self.words, self.now
        return now if words is not None and now.note in ("", words.note) and now.has_all_words else None

    def make_words(self) -> None:
        """Tell the words of all nodes anew, where they were told otherwise or not at all; writes the whole table."""
        if self.words is not None and self.searched_by_words is None and self.now.rows:
            self.mend_words()

    def wrong_words(self) -> str:
        """What is wrong with the words of a table that has any; empty where nothing is."""
        now, known = self.now, ""
        try:
            for batch in now.scan([PASSAGE_WORDS], "granularity = 'passage'") if now.note else ():
                if batch.column(PASSAGE_WORDS).null_count:
                    return "passages have no words"
                known = known or " ".join(batch.column(PASSAGE_WORDS).to_pylist())
            for column in (PASSAGE_WORDS, UNIT_WORDS) if known else ():
                now.begin_match(known, column, None)()
        except InvalidIndexError:
            return "the index of words cannot be read"
        return ""

    def mend_words(self) -> None:
        """Write all rows and indices anew, with words as they are asked for, or were told before by our tokenizer."""
        words = self.words or words_in(self.now.note)
        if not isinstance(words, Words):  # there are none, or a user's function told them, which is not here
            self.compact()
            return
        records = starmap(NodeRecord, self.now.values(RECORD_COLUMNS, is_any_of("granularity", SAYING)))
        stated = stated_by((one.passage_id, one.granularity, one.status, words.of(one)) for one in records)
        self.compact(lambda rows: words.added_to(rows, stated))

    def fetch(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        found = self.now.begin_contents(node_ids)()
        return {node_id: to_node(found[node_id]) for node_id in node_ids if node_id in found}

    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        return self.begin_search(question)()

    def begin_search(self, question: VectorStoreQuery) -> Callable[[], list[FoundNode]]:
        now, embedding, limit = self.now, question.query_embedding, question.similarity_top_k
        passing = self.passing(question.filters)
        if passing is None:
            return now.begin_nearest(embedding, limit)
        condition = is_of_any(passing, "passage_id", "id")
        asked = limit if condition else passing.fetched(limit)
        begin = cache(lambda limit: now.begin_nearest(embedding, limit, condition))
        begin(asked)

        def find(limit: int) -> tuple[list[FoundNode], int]:
            found = begin(limit)()
            return [node for node in found if node.leads_to in passing.ids], len(found)

        return lambda: look_further(find, limit, asked)

    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        condition = _OURS if granularity is None else is_any_of("granularity", [granularity])
        return starmap(NodeRecord, self.now.values(RECORD_COLUMNS, condition))

    def records_of(self, document_ids: Sequence[str], granularity: str | None = None) -> Iterator[NodeRecord]:
        of_kind = _OURS if granularity is None else is_any_of("granularity", [granularity])
        condition = f"{is_any_of('document_id', document_ids)} AND {of_kind}"
        return starmap(NodeRecord, self.now.values(RECORD_COLUMNS, condition))

    def documents(self) -> dict[str, DocumentRecord]:
        documents: dict[str, DocumentRecord] = {}
        for document_id, *known in self.now.values(["document_id", "document_hash", "file"], "document_hash != ''"):
            documents.setdefault(document_id, DocumentRecord(*known))
        return documents

    def node_ids(self, document_ids: Sequence[str]) -> set[str]:
        return {node_id for (node_id,) in self.now.values(["id"], is_any_of("document_id", document_ids))}

    def _kinds(self) -> Iterator[tuple[Any, ...]]:
        return self.now.values(["document_id", "granularity", "status"], _OURS)

    def bad_vectors(self) -> Iterator[tuple[str, str]]:
        """Nodes whose embedding cannot be compared, with their documents."""
        if self.now.dimension is None:
            return
        for batch in self.now.scan(["id", "document_id", "vector"], _OURS):
            values = batch.column("vector").flatten().to_numpy(zero_copy_only=False)
            lengths = np.linalg.norm(values.reshape(batch.num_rows, -1), axis=1)
            for place in np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0))).tolist():
                yield batch.column("id")[place].as_py(), batch.column("document_id")[place].as_py()

    @property
    def state(self) -> object:
        return self.now

    def _read_passage_metadata(self) -> PassageMetadata:
        return PassageMetadata(self.now.scan(PassageMetadata.SCHEMA.names, "granularity = 'passage'"))


def to_rows(nodes: Sequence[BaseNode]) -> pa.Table:
    """Rows for nodes, of which the last counts where several have one id.

    Raises:
        ValueError: A node's metadata is no JSON. Some have an embedding and some have none, or these differ in
            dimension.
    """
    distinct = list({node.node_id: node for node in nodes}.values())
    bare = (node.model_copy(update={"embedding": None}) for node in distinct)
    contents = [kept_as_json(doc_to_json(node), node.ref_doc_id) for node in bare]
    records = [NodeRecord.of(node) for node in distinct]
    columns: dict[str, Any] = {
        name: pa.array([getattr(record, name) for record in records], pa.string()) for name in RECORD_COLUMNS
    }
    columns["node"] = pa.array(contents, pa.string())
    dimension = same_dimension({None if node.embedding is None else len(node.embedding) for node in nodes})
    if dimension is not None:
        columns["vector"] = pa.array([node.embedding for node in distinct], pa.list_(pa.float32(), dimension))
    return pa.table(columns)


def to_node(content: str) -> BaseNode:
    """What is in the column "node" as a node, without its embedding."""
    return json_to_doc(json.loads(content))
