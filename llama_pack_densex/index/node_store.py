"""The interface that an index needs of the store of its nodes, and the records of nodes that it reads instead
of whole nodes.

Each kind of store has an adapter.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from llama_index.core.schema import BaseNode, IndexNode
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
)

from llama_pack_densex.index.filters import Passing, matches
from llama_pack_densex.node_parsers.metadata import (
    ANSWERS_KEY,
    BOOKKEEPING_KEYS,
    CONTEXT_KEY,
    DOCUMENT_HASH_KEY,
    GRANULARITY_KEY,
    SECTION_KEY,
    STATUS_KEY,
    UNVERIFIED_KEY,
    Granularity,
)
from llama_pack_densex.text import markup
from llama_pack_densex.text.values import kept_metadata

Span = tuple[int, int]
Ids = Collection[str]
"""Ids of nodes, passages or documents."""
Nodes = Sequence[BaseNode]
T = TypeVar("T")

_MOST_PASSING = 8  # filters whose passing passages are cached


class NodeStore(ABC):
    """The nodes of an index, of all granularities, read back by id.

    Every method ignores unknown ids, and an empty list of ids means no nodes.

    Attributes:
        vector_store: The store as LlamaIndex's own classes see it.
        docstore: The docstore that keeps the nodes beside it; None if the vector store alone is enough.
    """

    vector_store: BasePydanticVectorStore
    docstore: BaseDocumentStore | None = None

    def __init__(self) -> None:
        self._last_change = object()
        self._passing: dict[str, Passing] = {}  # by the filters' representation

    @property
    def dimension(self) -> int | None:
        """The dimension of the stored embeddings; None if there are none, or the store does not say."""
        return None

    @property
    def version(self) -> str:
        """The name of the state that this object reads and writes; empty if the store does not name it."""
        return ""

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read from one state throughout, if the store can."""
        yield

    def reading(self, read: Callable[[], T]) -> T:
        """Call `read` with all of its reads from one state, if the store can."""
        with self.snapshot():
            return read()

    def reload(self, folder: Path, version: str) -> None:  # noqa: B027  # most stores have nothing to do
        """Read the current files in a folder, whoever wrote them; for stores that keep files there."""

    def commit(self) -> None:  # noqa: B027  # most stores have nothing to do
        """Make all changes visible to everyone; for stores that have transactions."""

    def roll_back(self) -> None:  # noqa: B027  # most stores have nothing to do
        """Discard the changes since the last commit; for stores that have transactions."""

    def maintain(self, midway: bool = False) -> bool:
        """Do the maintenance that keeps searches fast, if it is due; return whether it was done.

        Args:
            midway: Whether more is about to be written: then it is due later, since few questions are asked.
        """
        return False

    def clean(self, older_than: timedelta) -> None:  # noqa: B027  # most stores have nothing to do
        """Remove files that the current state no longer needs and that are at least this old."""

    def compact(self) -> None:  # noqa: B027  # most stores have nothing to do
        """Free the space of what was deleted; `clean` removes the files of earlier states."""

    def persist(self, folder: Path, version: str) -> None:  # noqa: B027  # most stores have nothing to do
        """Write what is in memory to a folder, under the name of its state; `clean` removes the files of
        earlier states."""

    def copy_to(self, folder: Path, version: str) -> None:  # noqa: B027  # most stores have nothing to do
        """Write everything needed to open a copy to a folder, without anything that was deleted."""

    def positions(self) -> dict[str, str]:
        """Return the ids of all nodes by the keys that the vector store uses; for stores without text."""
        return {record.id: record.id for record in self.records()}

    @property
    def name(self) -> str:
        """The name of the store's class in the manifest."""
        # several integrations leave `class_name` to their base class
        return type(self.vector_store).__name__

    @abstractmethod
    def replace(self, document_ids: Ids, nodes: Nodes) -> None:
        """Replace all nodes of the given documents, and all nodes that have the same ids as the new ones.

        If the process is stopped meanwhile, `documents` lacks the hash of any document that is incomplete.

        Args:
            document_ids: The documents whose existing nodes are removed; unknown ids are allowed.
            nodes: The new nodes, document by document; either all have embeddings, or none has. If they
                belong to a document that is not in `document_ids`, its other nodes stay.
        """

    @abstractmethod
    def fetch(self, node_ids: Ids) -> dict[str, BaseNode]:
        """Read whole nodes in one batch."""

    def links(self, node_ids: Ids) -> dict[str, NodeLinks]:
        """Return the parent and children of the given nodes, by id; a store may do so without reading whole
        nodes."""
        return {node_id: NodeLinks.of(node) for node_id, node in self.fetch(node_ids).items()}

    def records_with_ids(self, node_ids: Ids) -> dict[str, NodeRecord]:
        """Return the records of the given nodes, by id."""
        return {node_id: NodeRecord.of(node) for node_id, node in self.fetch(node_ids).items()}

    @abstractmethod
    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        """Return the nodes nearest to a question, of any granularity, best first.

        Args:
            question: The embedding, the number of nodes and metadata filters; for some stores also the query
                mode. Fewer nodes are returned only if no more pass the filters.
        """

    @abstractmethod
    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        """Yield the records of all nodes, or of those of one granularity, in any order; read in batches.

        Nodes in the same store that our parsers did not make are left out.
        """

    def records_of(self, document_ids: Ids, granularity: str | None = None) -> Iterator[NodeRecord]:
        """Yield the records of the nodes of the given documents, or of those of one granularity, in any
        order."""
        for node in self.fetch(sorted(self.node_ids(document_ids))).values():
            record = NodeRecord.of(node)
            if granularity in (None, record.granularity):
                yield record

    @abstractmethod
    def documents(self) -> DocumentRecords:
        """Return the documents that are in the store now, by id, whoever wrote them."""

    def known_documents(self) -> KnownDocuments:
        """Return the documents as an object for look-ups, which the writer keeps up to date."""
        return KnownDocuments(self.documents())

    @abstractmethod
    def node_ids(self, document_ids: Ids) -> set[str]:
        """Return the ids of all nodes of the given documents."""

    def is_empty(self) -> bool:
        """Return whether the store holds no node that our parsers made."""
        return next(self.records(), None) is None

    def counts(self) -> IndexCounts:
        """Count the nodes."""
        kinds = Counter(self._kinds())
        documents = {document_id for document_id, _, _ in kinds}
        numbers = Counter[str]()
        statuses = Counter[str]()
        for (_, granularity, status), number in kinds.items():
            numbers[granularity] += number
            if granularity == "passage" and status:
                statuses[status] += number
        named: dict[str, Any] = {f"{unit}s": numbers[unit] for unit in get_args(Granularity)}
        return IndexCounts(len(documents), **named, statuses=dict(statuses))

    def _kinds(self) -> Iterator[tuple[Any, ...]]:
        """Yield the document id, granularity and status of each node."""
        return (
            (record.document_id, record.granularity, record.status) for record in self.records()
        )

    def read_about(self) -> str | None:
        """Return the text that `write_about` stored; None if there is none, or the store has no place for
        it."""
        return None

    def write_about(self, text: str) -> None:  # noqa: B027  # some stores have no place for it
        """Store the manifest, as text, in the store itself, if it has a place for it."""

    def passing(self, filters: MetadataFilters | None) -> Passing | None:
        """Return the passages that pass metadata filters; None if there are no filters."""
        if filters is None or not filters.filters:
            return None
        key = repr(filters)  # cached, because both sides of a hybrid search ask
        passing = self._passing_now(filters, self._passing.pop(key, Passing()))
        self._passing[key] = passing
        if len(self._passing) > _MOST_PASSING:
            self._passing.pop(next(iter(self._passing)), None)
        return passing

    def _passing_now(self, filters: MetadataFilters, earlier: Passing) -> Passing:
        """Return what passes the filters now, given an earlier result, which may still be current."""
        state = self.state
        if state == earlier.state:
            return earlier
        count = 0
        ids: set[str] = set()
        for record in self.records("passage"):
            count += 1
            if matches(json.loads(record.metadata or "{}"), filters):
                ids.add(record.id)
        return Passing(frozenset(ids), len(ids) / max(1, count), state=state)

    def metadata_values(self) -> dict[str, list[Any]]:
        """Return the user's keys in the passages' metadata, each with its distinct values."""
        values: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for record in self.records("passage"):
            for key, value in json.loads(record.metadata or "{}").items():
                if key not in BOOKKEEPING_KEYS:
                    values[key].setdefault(repr(value), value)
        return {key: list(distinct.values()) for key, distinct in values.items()}

    @property
    def state(self) -> object:
        """A value that differs after each change."""
        return self.version or self._last_change

    def _changed(self) -> None:
        """Note a change; called after it, so that nothing read during the change is cached as current."""
        self._last_change = object()


@dataclass(frozen=True)
class NodeRecord:
    """The part of a node that searching and bookkeeping need.

    Args:
        id: The node's id.
        document_id: The id of its document.
        granularity: "proposition", "sentence", "question", "passage" or "section"; empty for a node that our
            parsers did not make.
        passage_id: For a unit, the id of the passage it leads to; otherwise empty.
        text: The node's text.
        status: For a passage, its propositions and its questions, the status of the propositions; otherwise
            empty.
        section: The headings above the node, outermost first, joined by ", ".
        document_hash: For base nodes, the hash of the document when it was indexed; otherwise empty.
        file: For base nodes, the file (and page) that the document was read from; otherwise empty.
        metadata: For a passage, its metadata as JSON; for a question, its answers as JSON; otherwise empty.
        span: The characters of the document that the node comes from; None if not known or not read.
        unverified: Whether it is a proposition that no sentence of its passage states.
    """

    id: str
    document_id: str
    granularity: str
    passage_id: str
    text: str
    status: str
    section: str
    document_hash: str
    file: str
    metadata: str = ""
    span: Span | None = None
    unverified: bool = False

    @property
    def context(self) -> str:
        """For a passage, the context to read before it; otherwise empty."""
        if self.granularity != "passage" or CONTEXT_KEY not in self.metadata:
            return ""
        return str(json.loads(self.metadata)[CONTEXT_KEY])

    @classmethod
    def of(cls, node: BaseNode) -> NodeRecord:
        """Return the record of a node."""
        metadata = node.metadata
        document_id = node.ref_doc_id or ""
        granularity = granularity_of(node)
        as_json = str(metadata.get(ANSWERS_KEY, ""))
        if granularity == "passage":
            as_json = kept_as_json(metadata, document_id)
        return cls(
            id=node.node_id,
            document_id=document_id,
            granularity=granularity,
            passage_id=node.index_id if isinstance(node, IndexNode) else "",
            text=node.get_content(),
            status=str(metadata.get(STATUS_KEY, "")),
            section=str(metadata.get(SECTION_KEY, "")),
            document_hash=str(metadata.get(DOCUMENT_HASH_KEY, "")),
            file=file_of(metadata) if metadata.get(DOCUMENT_HASH_KEY) else "",
            metadata=as_json,
            span=span_of(node),
            unverified=bool(metadata.get(UNVERIFIED_KEY)),
        )


def kept_as_json(content: dict[str, Any], document_id: str | None) -> str:
    """Return the content or metadata of a node as JSON, in the form in which it is stored.

    Raises:
        ValueError: A value cannot be expressed as JSON; the message names its key.
    """
    try:
        return json.dumps(content, ensure_ascii=False)
    except (TypeError, ValueError):  # a node of another parser; ours make metadata plain
        return json.dumps(kept_metadata(content, document_id), ensure_ascii=False)


def granularity_of(node: BaseNode) -> str:
    """Return the granularity of a node; empty if our parsers did not make it."""
    return str(node.metadata.get(GRANULARITY_KEY, ""))


def span_of(node: BaseNode) -> Span | None:
    """Return the span of the document that a node comes from, in characters; None if it is not known."""
    start = getattr(node, "start_char_idx", None)
    end = getattr(node, "end_char_idx", None)
    if start is None or end is None:
        return None
    return start, end


def file_of(metadata: Mapping[str, Any]) -> str:
    """Return the file (and page) that a document or node was read from; empty if its metadata names none."""
    path = str(metadata.get("file_path") or "")
    page = metadata.get("page_label")
    if path and page:
        return f"{path}#page={page}"
    return path


@dataclass(frozen=True)
class DocumentRecord:
    """A document in the index: its file, and the hash that reveals whether it changed."""

    hash: str = ""
    file: str = ""


DocumentRecords = dict[str, DocumentRecord]
"""Documents by id."""


class KnownDocuments:
    """The documents of a store by id, hash and file, kept up to date by the one who writes.

    Args:
        documents: The documents that are in the store now.
    """

    def __init__(self, documents: DocumentRecords) -> None:
        self._records: DocumentRecords = {}
        self._by_hash = defaultdict[str, DocumentRecords](dict)
        self._by_file = defaultdict[str, DocumentRecords](dict)
        for document_id, record in documents.items():
            self._add(document_id, record)

    def get(self, document_id: str) -> DocumentRecord | None:
        """Return a document; None if the store does not have it."""
        return self._records.get(document_id)

    def with_hash(self, document_hash: str) -> DocumentRecords:
        """Return the documents with this hash, by id."""
        return self._by_hash[document_hash]

    def in_file(self, file: str) -> DocumentRecords:
        """Return the documents that were read from a file, by id; none if `file` is empty."""
        if not file:
            return {}
        return self._by_file[file]

    def replace(self, document_ids: Ids, nodes: Nodes) -> None:
        """Note a change; see `NodeStore.replace`."""
        for document_id in document_ids:
            self._remove(document_id)
        for record in map(NodeRecord.of, nodes):
            if record.document_hash:
                self._remove(record.document_id)
                self._add(record.document_id, DocumentRecord(record.document_hash, record.file))

    def _add(self, document_id: str, record: DocumentRecord) -> None:
        self._records[document_id] = record
        self._by_hash[record.hash][document_id] = record
        self._by_file[record.file][document_id] = record

    def _remove(self, document_id: str) -> None:
        record = self._records.pop(document_id, None)
        if record is not None:
            del self._by_hash[record.hash][document_id]
            del self._by_file[record.file][document_id]


class NodeLinks(NamedTuple):
    """The parent and children of a node.

    Args:
        parent_id: The id of the parent; None at the top.
        child_ids: The ids of the children, in order.
    """

    parent_id: str | None
    child_ids: tuple[str, ...]

    @classmethod
    def of(cls, node: BaseNode) -> NodeLinks:
        """Return the links of a node."""
        parent = node.parent_node
        children = node.child_nodes or []
        return cls(parent.node_id if parent else None, tuple(child.node_id for child in children))


class FoundNode(NamedTuple):
    """A search hit; a tuple, because a question has hundreds of them.

    Args:
        id: The node's id.
        granularity: "proposition", "sentence", "question", "passage" or "section".
        passage_id: For a unit, the id of the passage it leads to; otherwise empty.
        score: The score; the cosine, if the store returns it.
        similarity: The value of `score` before fusion; None if the node was not found by its embedding.
        led_by: The id of the unit of another passage that led here; empty if the question itself did.
    """

    id: str
    granularity: str
    passage_id: str
    score: float
    similarity: float | None = None
    led_by: str = ""

    @property
    def leads_to(self) -> str:
        """The id of the passage to read for this hit; for a passage, its own id."""
        return self.passage_id or self.id


@dataclass(frozen=True)
class IndexCounts:
    """The numbers of documents and nodes in an index.

    Args:
        documents: Documents with at least one passage.
        passages: Passages.
        propositions: Propositions.
        sentences: Sentence units beside the propositions.
        sections: Nodes above the passages.
        questions: Questions that passages answer.
        statuses: Passages by the status of their propositions: "ok", "repaired" or "fallback".
    """

    documents: int
    passages: int
    propositions: int
    sentences: int
    sections: int
    questions: int
    statuses: dict[str, int]

    def __str__(self) -> str:
        parts = []
        for what, number in self._numbers.items():
            if number == 1:
                what = what.removesuffix("s")
            parts.append(f"{number:,} {what}")
        return ", ".join(parts) or "nothing"

    def _repr_html_(self) -> str:
        statuses = {f"passages {status}": number for status, number in self.statuses.items()}
        rows = [(what, f"{number:,}") for what, number in (self._numbers | statuses).items()]
        return markup.block("Index", markup.table(rows))

    @property
    def _numbers(self) -> dict[str, int]:
        """The counts that are not zero, by name."""
        counts = {what: number for what, number in vars(self).items() if what != "statuses"}
        return {what: number for what, number in counts.items() if number}


def look_further(
    find: Callable[[int], tuple[list[T], int]], wanted: int, limit: int, most: float = math.inf
) -> list[T]:
    """Return the best acceptable hits of a store, searching for more as long as too few are acceptable.

    Args:
        find: Searches for the given number of hits; returns the acceptable ones, best first, and the number
            of all hits.
        wanted: The number of hits to return, if there are that many.
        limit: The number of hits to search for at first; 0 means not to search at all.
        most: The largest number of hits that can be searched for.
    """
    while wanted > 0 and limit > 0:
        limit = int(min(limit, most))
        acceptable, count = find(limit)
        if len(acceptable) >= wanted or count < limit or limit >= most:
            return acceptable[:wanted]
        limit *= 4
    return []


def same_dimension(dimensions: set[str]) -> str | None:
    """Return the dimension if there is exactly one; None if there is none.

    Raises:
        ValueError: There are several dimensions.
    """
    if len(dimensions) > 1:
        named = [f"{dimension} dimensions" for dimension in sorted(dimensions - {"none"})]
        if "none" in dimensions:
            named.append("none")
        raise ValueError(
            "nodes of one store must all have embeddings of one model, or none; found "
            f"{' and '.join(named)}."
        )
    return next(iter(dimensions), None)


def nowhere(dimension: int) -> list[float]:
    """Return a unit-normalised dummy embedding that is nearly orthogonal to the embeddings of models."""
    return [(-1.0) ** place / math.sqrt(dimension) for place in range(dimension)]


def check_question(embedding: Sequence[float] | None, dimension: int | None) -> None:
    """Check that a query embedding has the dimension of the stored ones; None stands for not known.

    Raises:
        ValueError: The dimensions differ.
    """
    if embedding is not None and dimension is not None and len(embedding) != dimension:
        raise ValueError(
            f"the query has {len(embedding)} dimensions, the index {dimension}: it was made with another "
            "embedding model; use that one, or rebuild the index"
        )
