"""What an index needs of the store that its nodes are in, and what it is told of nodes without reading them
whole.

There is an adapter for each kind of store.
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
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

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

if TYPE_CHECKING:
    from llama_pack_densex.index.database import Database
    from llama_pack_densex.index.words import Words

Span = tuple[int, int]
Ids = Collection[str]
"""Of nodes, passages or documents."""
Nodes = Sequence[BaseNode]
T = TypeVar("T")

_MOST_PASSING = 8  # filters of which it is remembered what passes them


class NodeStore(ABC):
    """The nodes of an index, of all granularities, read back by id.

    Ids that are not there do not matter to any method, and an empty list of ids means no node.

    Attributes:
        vector_store: The store as LlamaIndex's own classes see it.
        docstore: Where the nodes are kept beside it; None where the vector store alone is enough.
        is_embedded: Whether it is this package's own. That one shows a change when it is committed, whole or
            not at all, has the tokens of its nodes itself, and needs embeddings of no more than what is
            searched.
        words: What makes the tokens of nodes that are written, for a store that has them itself.
    """

    is_embedded: bool = False
    words: Words | None = None

    vector_store: BasePydanticVectorStore
    docstore: BaseDocumentStore | None = None

    def __init__(self) -> None:
        self._last_change = object()
        self._passing: dict[str, Passing] = {}  # by filters

    @property
    def dimension(self) -> int | None:
        """The dimension of the embeddings that are there; None where there are none, or the store does not
        tell."""
        return None

    @property
    def version(self) -> str:
        """The state that this object reads and writes; empty for a store that does not tell."""
        return ""

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one state throughout, where the store can."""
        yield

    def reload(self, folder: Path, version: str) -> None:  # noqa: B027  # most stores have nothing to do
        """Read what is kept in a folder now, whoever wrote it; for stores that keep files there."""

    def commit(self) -> None:  # noqa: B027  # most stores have nothing to do
        """Show to all what was changed; for stores whose changes are seen all at once."""

    def roll_back(self) -> None:  # noqa: B027  # most stores have nothing to do
        """Forget what was changed since the last commit; for the same stores."""

    @property
    def tokenizer_note(self) -> str:
        """What made the tokens of the nodes, as `Words.note`; empty if the store has none."""
        return ""

    def words_database(self, words: Words) -> Database | None:
        """What the nodes are searched in by these words; None if the store does not have them, or not of all
        nodes."""
        return None

    def update_words(self) -> None:  # noqa: B027  # most stores have none
        """Tokenize all nodes again if some have no tokens, or others than `words` makes."""

    def rebuild_words(self) -> None:  # noqa: B027  # most stores have none
        """Tokenize all nodes again, unless a function of the user's did it that is not known here."""

    def wrong_words(self) -> str:
        """What is wrong with the tokens of nodes; empty if nothing is, or the store has none."""
        return ""

    def bad_vectors(self) -> Iterator[tuple[str, str]]:
        """Nodes whose embedding cannot be compared, with their documents; none where the store does not
        tell."""
        return iter(())

    def is_graph_damaged(self) -> bool:
        """Whether what finds embeddings has others than the nodes; `compact` builds it again."""
        return False

    def maintain(self, midway: bool = False) -> bool:
        """Do what keeps the store quick, if it is due; whether it was.

        Args:
            midway: Whether more will be written at once, so that what few questions in between gain does not
                matter.
        """
        return False

    def clean(self, older_than: timedelta) -> None:  # noqa: B027  # most stores have nothing to do
        """Remove files that the current state does not need any more, if they have not been needed for so
        long."""

    def compact(self) -> None:  # noqa: B027  # most stores have nothing to do
        """Give back the space of what was deleted; files of earlier states are removed by `clean`."""

    def persist(self, folder: Path, version: str) -> None:  # noqa: B027  # most stores have nothing to do
        """Write what is in memory into a folder, by the name of its state; `clean` removes what earlier
        states left."""

    def copy_to(self, folder: Path, version: str) -> None:  # noqa: B027  # most stores have nothing to do
        """Write what is needed to open a copy into a folder, without anything that was deleted."""

    def positions(self) -> dict[str, str]:
        """The ids of all nodes by what the vector store calls them; for stores that keep no text."""
        return {record.id: record.id for record in self.records()}

    @property
    def name(self) -> str:
        """What an index folder calls the store."""
        # several integrations leave `class_name` to their base class
        return type(self.vector_store).__name__

    @abstractmethod
    def replace(self, document_ids: Ids, nodes: Nodes) -> None:
        """Write nodes in place of all nodes of some documents, and of those that have the same ids.

        After a stop in between, `documents` does not have the hash of a document that is not whole.

        Args:
            document_ids: Documents of which nothing stays but what is written; the store may not have them.
            nodes: Nodes, document by document; they have their embeddings, or none has. Of documents that are
                not named the other nodes stay.
        """

    @abstractmethod
    def fetch(self, node_ids: Ids) -> dict[str, BaseNode]:
        """Read whole nodes in one batch."""

    def links(self, node_ids: Ids) -> dict[str, NodeLinks]:
        """What is above and below some nodes, by id; the nodes need not be read whole for it."""
        return {node_id: NodeLinks.of(node) for node_id, node in self.fetch(node_ids).items()}

    def records_with_ids(self, node_ids: Ids) -> dict[str, NodeRecord]:
        """Nodes in short, by id."""
        return {node_id: NodeRecord.of(node) for node_id, node in self.fetch(node_ids).items()}

    @abstractmethod
    def search(self, question: VectorStoreQuery) -> list[FoundNode]:
        """The nodes nearest to a question, of any granularity, best first.

        Args:
            question: An embedding, how many nodes, filters by metadata; for some stores also its mode. Fewer
                nodes are returned only where there are no more that pass the filters.
        """

    @abstractmethod
    def records(self, granularity: str | None = None) -> Iterator[NodeRecord]:
        """All nodes in short, in any order, or those of one granularity; read in batches, not all at once.

        What others wrote into the same store and is not of our parsers is left out.
        """

    def records_of(self, document_ids: Ids, granularity: str | None = None) -> Iterator[NodeRecord]:
        """The nodes of some documents in short, in any order, or those of one granularity."""
        for node in self.fetch(sorted(self.node_ids(document_ids))).values():
            record = NodeRecord.of(node)
            if granularity in (None, record.granularity):
                yield record

    @abstractmethod
    def documents(self) -> DocumentRecords:
        """The documents by id, as they are in the store now, whoever wrote them."""

    def known_documents(self) -> KnownDocuments:
        """The same to be looked up, also while they are changed through this object."""
        return KnownDocuments(self.documents())

    @abstractmethod
    def node_ids(self, document_ids: Ids) -> set[str]:
        """The ids of all nodes of some documents."""

    def is_empty(self) -> bool:
        """Whether there is no node of ours."""
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
        """Of each node, its document's id, its granularity and its status."""
        return (
            (record.document_id, record.granularity, record.status) for record in self.records()
        )

    def read_about(self) -> str | None:
        """What `write_about` kept in the store; None where there is nothing, or no place for it."""
        return None

    def write_about(self, text: str) -> None:  # noqa: B027  # some stores have no place
        """Keep a short text, which says what made the index, in the store itself, if it has a place for
        it."""

    def passing(self, filters: MetadataFilters | None) -> Passing | None:
        """The passages that pass filters by metadata; None where there are none to pass."""
        if filters is None or not filters.filters:
            return None
        key = repr(filters)  # both sides of a hybrid search ask
        passing = self._passing_now(filters, self._passing.pop(key, Passing()))
        self._passing[key] = passing
        if len(self._passing) > _MOST_PASSING:
            self._passing.pop(next(iter(self._passing)), None)
        return passing

    def _passing_now(self, filters: MetadataFilters, earlier: Passing) -> Passing:
        """What passes filters, of which an earlier state may be known."""
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
        """The users' keys of the passages' metadata, each with its distinct values."""
        values: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for record in self.records("passage"):
            for key, value in json.loads(record.metadata or "{}").items():
                if key not in BOOKKEEPING_KEYS:
                    values[key].setdefault(repr(value), value)
        return {key: list(distinct.values()) for key, distinct in values.items()}

    @property
    def state(self) -> object:
        """Something else after each change."""
        return self.version or self._last_change

    def _changed(self) -> None:
        """Note a change; called after it, so that no question in between keeps what it read for later."""
        self._last_change = object()


@dataclass(frozen=True)
class NodeRecord:
    """A node in short.

    Args:
        id: The node's id.
        document_id: Its document's id.
        granularity: "proposition", "sentence", "question", "passage" or "section"; empty for a node that is
            not of our parsers.
        passage_id: Of a unit, the passage it leads to; otherwise empty.
        text: Its text.
        status: Of a passage, its propositions and questions, how the propositions came about; otherwise
            empty.
        section: The headings above it, outermost first, joined by ", ".
        document_hash: Of base nodes, what their document was like when it was indexed; otherwise empty.
        file: Of base nodes, the file (and page) their document was read from; empty where there is none.
        metadata: Of a passage, its metadata as JSON; of a question, what answers it, as JSON; otherwise
            empty.
        span: Where it is from in its document, in characters; None where that is not known or not read.
        unverified: Whether it is a proposition that no sentence of its passage says.
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
        """Of a passage, what has to be read before it; otherwise empty."""
        if self.granularity != "passage" or CONTEXT_KEY not in self.metadata:
            return ""
        return str(json.loads(self.metadata)[CONTEXT_KEY])

    @classmethod
    def of(cls, node: BaseNode) -> NodeRecord:
        """The record of a node that one of our parsers made."""
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
    """What is kept of a node of a document, as JSON.

    Raises:
        ValueError: It has no form as JSON; the message names the key.
    """
    try:
        return json.dumps(content, ensure_ascii=False)
    except (TypeError, ValueError):  # of a node that is not of our parsers, whose metadata is plain
        return json.dumps(kept_metadata(content, document_id), ensure_ascii=False)


def granularity_of(node: BaseNode) -> str:
    """What a node is; empty for one that is not of our parsers."""
    return str(node.metadata.get(GRANULARITY_KEY, ""))


def span_of(node: BaseNode) -> Span | None:
    """Where a node is from in its document, in characters; None where that is not known."""
    start = getattr(node, "start_char_idx", None)
    end = getattr(node, "end_char_idx", None)
    return None if start is None or end is None else (start, end)


def file_of(metadata: Mapping[str, Any]) -> str:
    """The file, and the page of it, that a document or node was read from; empty where its metadata names
    none."""
    path = metadata.get("file_path")
    page = metadata.get("page_label")
    return f"{path}#page={page}" if path and page else str(path or "")


@dataclass(frozen=True)
class DocumentRecord:
    """A document as the index has it: the hash that tells whether it changed, and its file."""

    hash: str = ""
    file: str = ""


DocumentRecords = dict[str, DocumentRecord]
"""Documents by id."""


class KnownDocuments:
    """The documents of a store by id, by hash and by file, as they are while somebody writes there.

    Args:
        documents: Those that are there now.
    """

    def __init__(self, documents: DocumentRecords) -> None:
        self._records: DocumentRecords = {}
        self._by_hash = defaultdict[str, DocumentRecords](dict)
        self._by_file = defaultdict[str, DocumentRecords](dict)
        for document_id, record in documents.items():
            self._add(document_id, record)

    def get(self, document_id: str) -> DocumentRecord | None:
        """A document; None if it is not there."""
        return self._records.get(document_id)

    def with_hash(self, document_hash: str) -> DocumentRecords:
        """The documents with some hash, by id."""
        return self._by_hash[document_hash]

    def in_file(self, file: str) -> DocumentRecords:
        """The documents that were read from a file, by id; none where it is not named."""
        return self._by_file[file] if file else {}

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
    """What is above and below a node.

    Args:
        parent_id: The id of the node above it; None at the top.
        child_ids: The ids of those below it, in order.
    """

    parent_id: str | None
    child_ids: tuple[str, ...]

    @classmethod
    def of(cls, node: BaseNode) -> NodeLinks:
        """The links of a node."""
        parent = node.parent_node
        children = node.child_nodes or []
        return cls(parent.node_id if parent else None, tuple(child.node_id for child in children))


class FoundNode(NamedTuple):
    """A node that a search found, in short; a tuple, since a question finds some hundred.

    Args:
        id: The node's id.
        granularity: "proposition", "sentence", "question", "passage" or "section".
        passage_id: Of a unit, the passage it leads to; otherwise empty.
        score: How near it is; the cosine, where the store tells it.
        similarity: What `score` was before it was fused with others; None where it was not found by its
            embedding.
        led_by: The id of the unit of another passage that led here; empty where the question did.
    """

    id: str
    granularity: str
    passage_id: str
    score: float
    similarity: float | None = None
    led_by: str = ""

    @property
    def leads_to(self) -> str:
        """The id of the passage that is read where this node was found; of a passage, its own."""
        return self.passage_id or self.id


@dataclass(frozen=True)
class IndexCounts:
    """How much is in an index.

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
        parts = [
            f"{number:,} {what if number > 1 else what[:-1]}"
            for what, number in self._numbers.items()
        ]
        return ", ".join(parts) or "nothing"

    def _repr_html_(self) -> str:
        statuses = {f"passages {status}": number for status, number in self.statuses.items()}
        rows = [(what, f"{number:,}") for what, number in (self._numbers | statuses).items()]
        return markup.block("Index", markup.table(rows))

    @property
    def _numbers(self) -> dict[str, int]:
        """What there is any of."""
        return {
            what: number
            for what, number in vars(self).items()
            if isinstance(number, int) and number
        }


def look_further(
    find: Callable[[int], tuple[list[T], int]], wanted: int, limit: int, most: float = math.inf
) -> list[T]:
    """The best of what a store finds and what is kept; more is looked for where too few are kept.

    Args:
        find: Looks for so many; returns those of them that are kept, best first, and how many were found.
        wanted: How many are returned, where there are so many.
        limit: How many to look for at first; nothing is looked for where that is none.
        most: How many can be looked for.
    """
    while wanted > 0 and limit > 0:
        limit = int(min(limit, most))
        kept, count = find(limit)
        if len(kept) >= wanted or count < limit or limit >= most:
            return kept[:wanted]
        limit *= 4
    return []


def same_dimension(dimensions: set[str]) -> str | None:
    """The only one of some dimensions; None where there is none.

    Raises:
        ValueError: There are several.
    """
    if len(dimensions) > 1:
        named = " and ".join(
            sorted(
                dimension if dimension == "none" else f"{dimension} dimensions"
                for dimension in dimensions
            )
        )
        raise ValueError(
            f"nodes of one store must all have embeddings of one model, or none; found {named}."
        )
    return next(iter(dimensions), None)


def nowhere(dimension: int) -> list[float]:
    """An embedding of length 1, as cosines need, and as good as orthogonal to what models embed."""
    return [(-1.0) ** place / math.sqrt(dimension) for place in range(dimension)]


def check_question(embedding: Sequence[float] | None, dimension: int | None) -> None:
    """Check that an embedding can be searched for among those of a dimension; None where that is not known.

    Raises:
        ValueError: It cannot.
    """
    if embedding is not None and dimension is not None and len(embedding) != dimension:
        raise ValueError(
            f"the query has {len(embedding)} dimensions, the index {dimension}: it was made with another "
            "embedding model; use that one, or build the index anew"
        )
