"""Documents into an index: inserted, replaced where they changed, deleted."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.schema import BaseNode

from llama_pack_densex.ingestion.watching import Watch
from llama_pack_densex.llm_requests.failures import PropositionizerError
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser, ParsedDocument
from llama_pack_densex.node_parsers.ids import is_random_id
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.retrieval.bm25 import LexicalIndexCache
from llama_pack_densex.retrieval.trust import LanguageTrust, TrustMeter, embedded_passages
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.records import DocumentRecord, NodeRecord, file_of


@dataclass(frozen=True)
class IndexCounts:
    """How much is in an index.

    Args:
        documents: Documents with at least one passage.
        passages: Passages.
        propositions: Propositions.
        sentences: Sentence units beside the propositions.
        sections: Nodes above the passages.
        statuses: Passages by the status of their propositions: "ok", "repaired" or "fallback".
    """

    documents: int
    passages: int
    propositions: int
    sentences: int
    sections: int
    statuses: dict[str, int]


_NODES_A_WRITE = 2_000  # nodes that are embedded and written together
_FAILURES_IN_A_ROW = 3  # documents that could not be embedded or written; more are not the documents' fault


class DocumentIndexer:
    """Keeps an index in step with documents.

    Args:
        index: Where nodes go.
        parser: What makes nodes of documents.
        lexical: The lexical side of the index, which is told when the nodes change.
        trust: Measures whether the embedding model knows the languages of what is indexed.
        after_write: Called when some documents were written and others may follow.
    """

    def __init__(
        self,
        index: NodeIndex,
        parser: BasePropositionNodeParser,
        lexical: LexicalIndexCache,
        trust: TrustMeter,
        after_write: Callable[[], None],
    ) -> None:
        self._index, self._parser, self._lexical, self._trust = index, parser, lexical, trust
        self._after_write = after_write

    def ingest(self, documents: Iterable[BaseNode], watch: Watch, only_changed: bool = False) -> list[bool]:
        """Write documents' nodes; a document that is there is replaced, and so is an earlier state of its file.

        Documents are read as their turn comes, and written as they become whole, while the propositions of the next
        ones are being made. A document that fails leaves what the index has of it.

        Args:
            documents: The documents.
            watch: Is told what becomes of them.
            only_changed: Whether to leave those alone that are in the index as they are, by text, user's metadata and
                the parser's settings.

        Returns:
            For each document whether it was new or changed, and indexed.

        Raises:
            PropositionizerError: No more propositions can be had. The documents that were whole have been written.
        """
        there = self._index.documents()
        states = _States(there)
        document_hash = self._parser.document_hasher() if only_changed else None
        indexed: list[bool] = []
        places: deque[int] = deque()  # of the documents that are being parsed

        def due() -> Iterator[BaseNode]:
            for document in documents:
                is_due = document_hash is None or not states.take(document, document_hash(document))
                indexed.append(is_due)
                if is_due:
                    places.append(len(indexed) - 1)
                    yield document
                else:
                    watch.unchanged(document)

        writing = _Writing(self, there, watch)
        try:
            for parsed in self._parser.stream(due(), watch.passage):
                place = places.popleft()
                if not writing.add(parsed):
                    indexed[place] = False
        except PropositionizerError:
            writing.flush()
            raise
        writing.flush()
        return indexed

    def write(self, documents: Sequence[ParsedDocument], there: dict[str, DocumentRecord]) -> list[LanguageTrust]:
        """Replace documents by what became of them.

        Args:
            documents: Documents of different ids.
            there: What the index has; brought up to date.

        Returns:
            Languages of which it now turned out that the embedding model does not know them.
        """
        given = [parsed.document for parsed in documents]
        nodes = [node for parsed in documents for node in parsed.nodes]
        replaced = [document.id_ for document in given if document.id_ in there] + _earlier_states(given, there)
        try:
            self._index.replace(replaced, nodes)
        finally:
            self._lexical.changed()  # also where it failed half-way
        self._after_write()
        for document_id in replaced:
            there.pop(document_id, None)
        for parsed in documents:
            if parsed.nodes:
                record = NodeRecord.of(parsed.nodes[0])
                there[record.document_id] = DocumentRecord(record.document_hash, record.file)
        model = self._index.embed_model
        embed = None if model is None else model.get_text_embedding_batch
        return self._trust.add(embedded_passages(nodes, embed, self._trust.known))

    def delete(self, document_ids: Sequence[str]) -> list[str]:
        """Delete documents' nodes.

        Returns:
            Those of the documents that were there.
        """
        if not document_ids:
            return []
        there = self._index.documents()
        known = [document_id for document_id in document_ids if document_id in there]
        try:
            self._index.remove(sorted(self._index.node_ids(known)))
        finally:
            self._lexical.changed()
        return known

    def counts(self) -> IndexCounts:
        """Count what is in the index."""
        granularities: Counter[str] = Counter()
        statuses: Counter[str] = Counter()
        documents: set[str] = set()
        for record in self._index.records():
            granularities[record.granularity] += 1
            documents.add(record.document_id)
            if record.granularity == "passage" and record.status:
                statuses[record.status] += 1
        return IndexCounts(
            documents=len(documents),
            passages=granularities["passage"],
            propositions=granularities["proposition"],
            sentences=granularities["sentence"],
            sections=granularities["section"],
            statuses=dict(statuses),
        )


def checked_documents(documents: BaseNode | Iterable[BaseNode]) -> Iterator[BaseNode]:
    """Documents, one by one as they are needed.

    Raises:
        ValueError: (when its turn comes) One of them is no document; the message says which.
    """
    for place, document in enumerate([documents] if isinstance(documents, BaseNode) else documents):
        if not isinstance(document, BaseNode):
            raise ValueError(
                f"documents[{place}] is a {type(document).__name__}, not a LlamaIndex Document: "
                "wrap text as Document(text=...), or read files with SimpleDirectoryReader"
            )
        yield document


def reading_order(node: BaseNode) -> tuple[str, int, int, int]:
    """Sorts nodes by document, place, and from the coarse to the fine."""
    start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
    coarse_first = ("section", "passage", "proposition", "sentence")
    granularity = str(node.metadata.get(GRANULARITY_KEY, ""))
    rank = coarse_first.index(granularity) if granularity in coarse_first else len(coarse_first)
    return node.ref_doc_id or "", -1 if start is None else start, rank, 0 if end is None else -end


class _States:
    """What the index has of each document; each indexed document stands for one document only."""

    def __init__(self, there: Mapping[str, DocumentRecord]) -> None:
        self._by_hash: defaultdict[str, list[str]] = defaultdict(list)
        for document_id, record in there.items():
            self._by_hash[record.hash].append(document_id)

    def take(self, document: BaseNode, document_hash: str) -> bool:
        """Whether the index has the document as it is."""
        there = self._by_hash.get(document_hash, [])
        if document.id_ in there:
            there.remove(document.id_)
            return True
        if is_random_id(document.id_) and any(map(is_random_id, there)):
            there.remove(next(filter(is_random_id, there)))
            return True
        return False


class _Writing:
    """Gathers whole documents and writes them together."""

    def __init__(self, indexer: DocumentIndexer, there: dict[str, DocumentRecord], watch: Watch) -> None:
        self._indexer, self._there, self._watch = indexer, there, watch
        self._waiting: list[ParsedDocument] = []
        self._failures = 0

    def add(self, parsed: ParsedDocument) -> bool:
        """Take a document in; False if it could not be parsed."""
        if parsed.error is not None:
            self._watch.failed(parsed.document, parsed.error)
            return False
        if any(parsed.document.id_ == waiting.document.id_ for waiting in self._waiting):
            self.flush()  # the later one replaces the earlier one
        self._waiting.append(parsed)
        if sum(len(waiting.nodes) + 1 for waiting in self._waiting) >= _NODES_A_WRITE:
            self.flush()
        return True

    def flush(self) -> None:
        """Write what was taken in."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            self._write(waiting)
        except Exception:
            if len(waiting) == 1:
                raise
            for parsed in waiting:  # one of them may be at fault
                self._write_alone(parsed)

    def _write_alone(self, parsed: ParsedDocument) -> None:
        try:
            self._write([parsed])
            self._failures = 0
        except Exception as error:
            self._failures += 1
            self._watch.failed(parsed.document, error)
            if self._failures >= _FAILURES_IN_A_ROW:
                raise

    def _write(self, documents: Sequence[ParsedDocument]) -> None:
        replaced = {parsed.document.id_ for parsed in documents if parsed.document.id_ in self._there}
        self._watch.written(self._indexer.write(documents, self._there))
        for parsed in documents:
            self._watch.done(parsed, parsed.document.id_ in replaced)


def _earlier_states(documents: Sequence[BaseNode], there: dict[str, DocumentRecord]) -> list[str]:
    """Indexed documents that were read from the same files under ids that core made up anew at each reading."""
    files = {file_of(document) for document in documents if is_random_id(document.id_)} - {""}
    given = {document.id_ for document in documents}
    return [
        document_id
        for document_id, record in there.items()
        if record.file in files and is_random_id(document_id) and document_id not in given
    ]
