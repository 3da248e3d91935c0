"""Documents into an index: inserted, replaced where they changed, deleted."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, get_args

from llama_index.core.schema import BaseNode

from llama_pack_densex.ingestion.report import Watch
from llama_pack_densex.llm.errors import classify
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, STATUS_KEY, Granularity
from llama_pack_densex.node_parsers.nodes import NodeIds, is_random_id
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser, ParsedDocument
from llama_pack_densex.propositionizers.base import PropositionizerError
from llama_pack_densex.retrieval.trust import TrustMeter
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.node_store import DocumentRecord, NodeRecord, Tally, file_of, span_of

logger = logging.getLogger(__name__)


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

    @classmethod
    def of(cls, tally: Tally) -> IndexCounts:
        """What was counted, by name."""
        named: dict[str, Any] = {f"{unit}s": tally.granularities.get(unit, 0) for unit in get_args(Granularity)}
        return cls(documents=tally.documents, statuses=tally.statuses, **named)


_NODES_A_WRITE = 2_000  # nodes that are embedded and written together
# Documents in a row that cannot be embedded or written, before it is taken for the fault of the model or the store: one
# where the key is refused, few where nothing answers, more where each of them may be what is refused.
_FAILURES_IN_A_ROW = {"fatal": 1, "transient": 3, "refused": 3, "broken": 3}
_REFUSED_IN_A_ROW = 20


class DocumentIndexer:
    """Keeps an index in step with documents.

    Args:
        index: Where nodes go.
        parser: What makes nodes of documents.
        trust: Is told of the passages, since it measures whether the embedding model knows their languages.
        after_write: Called when some documents were written and others may follow.
    """

    def __init__(
        self,
        index: NodeIndex,
        parser: BasePropositionNodeParser,
        trust: TrustMeter,
        after_write: Callable[[], None],
    ) -> None:
        self._index, self._parser, self._trust = index, parser, trust
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
            PropositionizerError: No more propositions can be had, the provider never answered, or every passage fell
                back. Documents with such passages do not count as done, and are asked for anew.
            Exception: What embedding or writing raised, where it met so many documents in a row that it is not theirs;
                or what reading the documents raised. In any case those that were whole have been written.
        """
        there = self._index.documents()
        ids = self._parser.new_ids()
        states = _States(there, ids, self._parser.document_hasher()) if only_changed else None
        indexed: list[bool] = []
        unread: list[Exception] = []
        given: Counter[str] = Counter()

        def due() -> Iterator[BaseNode]:
            try:
                for document in documents:
                    given[getattr(document, "id_", "")] += 1
                    if states is not None and states.take(document):
                        indexed.append(False)
                        watch.unchanged(document)
                    else:
                        writing.expect(len(indexed))
                        indexed.append(True)
                        yield document
            except Exception as error:  # those that were read are done before it is raised
                unread.append(error)

        writing = _Writing(self, there, watch, indexed)
        try:
            with closing(self._parser.stream(due(), watch.passage, ids)) as stream:
                for parsed in stream:
                    writing.add(parsed)
        finally:
            writing.flush()
            twice = [document_id for document_id, times in given.items() if times > 1]
            if twice:
                logger.warning(
                    "%d of the documents' ids were given more than once (%r is the first): of each, the index has the "
                    "last document. Give each document an id of its own.",
                    len(twice), twice[0],
                )  # fmt: skip
        if unread:
            raise unread[0]
        if why := watch.unanswered:
            raise PropositionizerError(why, is_silence=True)
        return indexed

    def write(self, documents: Sequence[ParsedDocument], there: dict[str, DocumentRecord]) -> list[bool]:
        """Replace documents by what became of them.

        Args:
            documents: Documents of different ids.
            there: What the index has; brought up to date.

        Returns:
            Of each document, whether it replaced an earlier version.
        """
        given = [parsed.document for parsed in documents]
        nodes = [node for parsed in documents for node in parsed.nodes]
        earlier = _earlier_states(given, there)
        files = {there[document_id].file for document_id in earlier}
        were_there = [document.id_ in there or file_of(document) in files for document in given]
        replaced = [document.id_ for document in given if document.id_ in there] + earlier
        self._index.replace(replaced, nodes)
        self._after_write()
        for document_id in replaced:
            there.pop(document_id, None)
        for parsed in documents:
            if parsed.nodes:
                record = NodeRecord.of(parsed.nodes[0])
                there[record.document_id] = DocumentRecord(record.document_hash, record.file)
        self._trust.add(node.get_content() for node in nodes if node.metadata.get(GRANULARITY_KEY) == "passage")
        return were_there

    def forget_replies(self, documents: Sequence[ParsedDocument]) -> None:
        """Have what fell back asked for anew."""
        fallen = [node for parsed in documents for node in parsed.nodes if node.metadata.get(STATUS_KEY) == "fallback"]
        self._parser.propositionizer.forget_replies(node.get_content() for node in fallen)

    def delete(self, document_ids: Sequence[str]) -> list[str]:
        """Delete documents' nodes.

        Returns:
            Those of the documents that were there.
        """
        if not document_ids:
            return []
        there, store = self._index.documents(), self._index.store
        given = list(dict.fromkeys(document_ids))
        # of some the store may have but a part that nothing lists, since a writer was stopped
        known = [one for one in given if one in there or store.node_ids([one])]
        self._index.replace(given, [])
        return known


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
    start, end = span_of(node) or (-1, 0)
    coarse_first = get_args(Granularity)[::-1]
    granularity = str(node.metadata.get(GRANULARITY_KEY, ""))
    rank = coarse_first.index(granularity) if granularity in coarse_first else len(coarse_first)
    return node.ref_doc_id or "", start, rank, -end


class _States:
    """What the index has of each document; each indexed document stands for one document only.

    Args:
        there: The index's documents.
        ids: Told of the documents that the index has, so that one of equal text that it lacks is another one.
        document_hash: Tells whether a document changed.
    """

    def __init__(
        self, there: Mapping[str, DocumentRecord], ids: NodeIds, document_hash: Callable[[BaseNode], str]
    ) -> None:
        self._ids, self._document_hash = ids, document_hash
        self._by_hash: defaultdict[str, list[str]] = defaultdict(list)
        for document_id, record in there.items():
            self._by_hash[record.hash].append(document_id)

    def take(self, document: BaseNode) -> bool:
        """Whether the index has the document as it is."""
        try:
            there = self._by_hash.get(self._document_hash(document), [])
        except Exception:  # as of metadata that cannot be hashed: the parser says what is wrong
            return False
        if document.id_ in there:
            there.remove(document.id_)
        elif is_random_id(document.id_) and any(map(is_random_id, there)):
            there.remove(next(filter(is_random_id, there)))
        else:
            return False
        self._ids.document_key(document)
        return True


class _Writing:
    """Gathers whole documents and writes them together.

    Args:
        indexer: Writes them.
        there: What the index has.
        watch: Is told what becomes of them.
        indexed: Of each document, whether it is in the index now; the places of those that fail are changed.
    """

    def __init__(
        self, indexer: DocumentIndexer, there: dict[str, DocumentRecord], watch: Watch, indexed: list[bool]
    ) -> None:
        self._indexer, self._there, self._watch, self._indexed = indexer, there, watch, indexed
        self._places: deque[int] = deque()
        self._waiting: list[tuple[int, ParsedDocument]] = []
        self._nodes = self._failures = 0

    def expect(self, place: int) -> None:
        """The document of this place is being parsed; `add` takes them in the same order."""
        self._places.append(place)

    def add(self, parsed: ParsedDocument) -> None:
        """Take a document in."""
        place = self._places.popleft()
        if parsed.error is not None:
            self._fail(place, parsed, parsed.error)
            return
        if any(parsed.document.id_ == waiting.document.id_ for _, waiting in self._waiting):
            self.flush()  # the later one replaces the earlier one
        self._waiting.append((place, parsed))
        self._nodes += len(parsed.nodes) + 1
        if self._nodes >= _NODES_A_WRITE:
            self.flush()

    def flush(self) -> None:
        """Write what was taken in."""
        waiting, self._waiting, self._nodes = self._waiting, [], 0
        if why := self._watch.unanswered:
            fallen = [(place, parsed) for place, parsed in waiting if _has_fallback(parsed)]
            waiting = [(place, parsed) for place, parsed in waiting if not _has_fallback(parsed)]
            self._indexer.forget_replies([parsed for _, parsed in fallen])
            for place, parsed in fallen:
                self._fail(place, parsed, PropositionizerError(why))
        if len(waiting) > 1:
            documents = [parsed for _, parsed in waiting]
            try:
                replaced = self._indexer.write(documents, self._there)
            except Exception as error:  # one of them may be at fault
                logger.debug("%d documents are written one by one: %s", len(waiting), classify(error).summary)
            else:
                self._done(documents, replaced)
                return
        for place, parsed in waiting:
            self._write_alone(place, parsed)

    def _write_alone(self, place: int, parsed: ParsedDocument) -> None:
        try:
            replaced = self._indexer.write([parsed], self._there)
        except Exception as error:
            self._fail(place, parsed, error)
            self._failures += 1
            kind = "rejected" if isinstance(error, ValueError) else classify(error).kind
            if self._failures >= _FAILURES_IN_A_ROW.get(kind, _REFUSED_IN_A_ROW):
                raise
        else:
            self._done([parsed], replaced)

    def _done(self, documents: Sequence[ParsedDocument], replaced: Sequence[bool]) -> None:
        self._failures = 0
        for parsed, was_there in zip(documents, replaced, strict=True):
            self._watch.done(parsed, was_there)

    def _fail(self, place: int, parsed: ParsedDocument, error: Exception) -> None:
        self._indexed[place] = False
        self._watch.failed(parsed.document, error)


def _has_fallback(parsed: ParsedDocument) -> bool:
    return any(node.metadata.get(STATUS_KEY) == "fallback" for node in parsed.nodes)


def _earlier_states(documents: Sequence[BaseNode], there: dict[str, DocumentRecord]) -> list[str]:
    """Indexed documents that were read from the same files under ids that core made up anew at each reading."""
    files = {file_of(document) for document in documents if is_random_id(document.id_)} - {""}
    if not files:
        return []  # without going through the whole index
    given = {document.id_ for document in documents}
    return [
        document_id
        for document_id, record in there.items()
        if record.file in files and is_random_id(document_id) and document_id not in given
    ]
