"""Writing documents into an index: inserting new ones, and replacing those that changed."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import get_args

from llama_index.core.schema import BaseNode, NodeRelationship

from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import NodeRecord, file_of, granularity_of, span_of
from llama_pack_densex.ingestion.report import Watch, is_fallback
from llama_pack_densex.llm.errors import classify
from llama_pack_densex.node_parsers.ids import is_random_id
from llama_pack_densex.node_parsers.metadata import Granularity
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser, ParsedDocument
from llama_pack_densex.propositionizers.base import PropositionizerError
from llama_pack_densex.retrieval.trust import TrustMeter
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)


# Nodes are embedded and written in batches, small ones at first, then sized to take a few seconds. A small
# batch loses less work if the process is killed; a large one writes each token's posting list less often.
_NODES_A_WRITE = 2_000
_MOST_NODES_A_WRITE = 8_000
_SECONDS_A_WRITE = 5.0
# How many documents in a row may fail to be embedded or written before the model or the store is blamed: one
# if the key is refused, a few if there is no answer, more if each document itself may be what is refused.
_FAILURES_IN_A_ROW = {"fatal": 1, "transient": 3, "refused": 3, "broken": 3}
_REFUSED_IN_A_ROW = 20


class DocumentIndexer:
    """Writes documents into an index; one object serves one ingestion.

    Args:
        index: The index that the nodes are written to; each batch of documents is committed.
        parser: The parser that makes nodes from documents.
        trust: Receives the passages, to measure whether the embedding model knows their languages.
        watch: Receives the outcome of each document.
    """

    def __init__(
        self,
        index: NodeIndex,
        parser: BasePropositionNodeParser,
        trust: TrustMeter,
        watch: Watch,
    ) -> None:
        self._index = index
        self._parser = parser
        self._trust = trust
        self._watch = watch
        self._only_changed = False
        self._documents = index.store.known_documents()
        self._hash_of = parser.document_hasher()
        self._ids = parser.new_ids()
        self._times_given: Counter[str] = Counter()  # by document id
        # ids of documents in the index that hold a document of this ingestion
        self._current: set[str] = set()
        self._indexed: list[bool] = []  # for each document, whether this ingestion indexed it
        # positions in `_indexed` of the documents being parsed, which come back in the same order
        self._places: deque[int] = deque()
        # parsed documents to be written together, with their positions, by document id
        self._waiting: dict[str, tuple[int, ParsedDocument]] = {}
        self._nodes_waiting = 0
        self._nodes_a_write = _NODES_A_WRITE
        self._failures_in_a_row = 0
        self._reading_error: Exception | None = None

    def ingest(self, documents: Iterable[BaseNode], only_changed: bool) -> list[bool]:
        """Index documents; those that are in the index already are replaced.

        Documents are read one by one, and written when they are complete, while the propositions of the next
        ones are being made. If a document fails, the index keeps its earlier version.

        Args:
            documents: The documents.
            only_changed: Whether to skip documents that are in the index with the same text, user's metadata
                and parser settings. It also replaces the earlier version of a file whose documents have ids
                that LlamaIndex generated, which differ at each reading.

        Returns:
            For each document, whether it was new or changed, and indexed.

        Raises:
            PropositionizerError: No more propositions can be made, the provider never answered, or every
                passage fell back. Documents with such passages do not count as done; the next ingestion asks
                again.
            Exception: What embedding or writing raised, if so many documents failed in a row that they cannot
                be the cause; or what reading the documents raised. In either case, the complete documents
                have been written.
        """
        self._only_changed = only_changed
        try:
            with closing(
                self._parser.stream(self._changed(documents), self._watch.passage, self._ids)
            ) as stream:
                for parsed in stream:
                    self._add(parsed)
        finally:
            self._flush()
            self._report_repeated_ids()
        if self._reading_error is not None:
            raise self._reading_error
        if self._watch.unanswered:
            raise PropositionizerError(self._watch.unanswered, is_silence=True)
        return self._indexed

    def _changed(self, documents: Iterable[BaseNode]) -> Iterator[BaseNode]:
        """Yield the documents that are new or changed; note the others as unchanged."""
        for document in self._read(documents):
            self._times_given[document.id_] += 1
            unchanged_id = ""
            # a repeated id is indexed in any case: an earlier document with it may have been written since
            if self._only_changed and self._times_given[document.id_] == 1:
                unchanged_id = self._unchanged_id(document)
            if unchanged_id:
                self._current.add(unchanged_id)
                # counts this text, so that the next document with the same text gets another id
                self._ids.document_key(document)
                self._indexed.append(False)
                self._watch.unchanged(document)
            else:
                self._places.append(len(self._indexed))
                self._indexed.append(True)
                yield document

    def _read(self, documents: Iterable[BaseNode]) -> Iterator[BaseNode]:
        """Yield the documents; an error in reading one is raised later, after the earlier ones are done."""
        try:
            for document in documents:
                yield _as_document(document)
        except Exception as error:
            self._reading_error = error

    def _unchanged_id(self, document: BaseNode) -> str:
        """Return the id under which the index has this document unchanged; empty if it does not."""
        if not document.get_content().strip():
            return ""
        of_equal_hash = self._documents.with_hash(self._hash_of(document))
        alike = {key: record for key, record in of_equal_hash.items() if key not in self._current}
        if document.id_ in alike:
            return document.id_
        if not is_random_id(document.id_):
            return ""
        file = file_of(document.metadata)
        # prefer the same file, if several files have the same text
        return min(
            filter(is_random_id, alike),
            key=lambda document_id: alike[document_id].file != file,
            default="",
        )

    def _report_repeated_ids(self) -> None:
        repeated = [document_id for document_id, times in self._times_given.items() if times > 1]
        if repeated:
            logger.warning(
                "%d of the documents' ids were given more than once (%r is the first): the index keeps only "
                "the last document with each id. Give each document an id of its own.",
                len(repeated),
                repeated[0],
            )

    def _add(self, parsed: ParsedDocument) -> None:
        """Add a parsed document to the batch, and write the batch if it is full."""
        place = self._places.popleft()
        if parsed.error is not None:
            self._fail(place, parsed, parsed.error)
            return
        if parsed.document.id_ in self._waiting:
            self._flush()  # the later one replaces the earlier one
        self._waiting[parsed.document.id_] = place, parsed
        self._nodes_waiting += len(parsed.nodes) + 1
        if self._nodes_waiting >= self._nodes_a_write:
            start = time.monotonic()
            nodes = self._nodes_waiting
            self._flush()
            seconds = max(time.monotonic() - start, 1e-3)
            affordable = int(nodes * _SECONDS_A_WRITE / seconds)
            self._nodes_a_write = min(max(affordable, _NODES_A_WRITE), _MOST_NODES_A_WRITE)

    def _flush(self) -> None:
        """Write the batch; documents with fallbacks fail as long as no request has had a useful answer."""
        batch = self._waiting.values()
        self._waiting = {}
        self._nodes_waiting = 0
        why = self._watch.unanswered
        waiting = []
        for place, parsed in batch:
            fallbacks = [node.get_content() for node in parsed.nodes if is_fallback(node)]
            if why and fallbacks:
                self._parser.propositionizer.forget_replies(fallbacks)
                self._fail(place, parsed, PropositionizerError(why))
            else:
                waiting.append((place, parsed))
        if waiting:
            self._write_all(waiting)

    def _write_all(self, waiting: Sequence[tuple[int, ParsedDocument]]) -> None:
        """Write documents together; if that fails, one by one, so that a bad document fails alone."""
        try:
            replaced = self._write([parsed for _, parsed in waiting])
        except Exception as error:
            if len(waiting) > 1:
                logger.debug(
                    "writing %d documents one by one: %s", len(waiting), classify(error).summary
                )
                for document in waiting:
                    self._write_all([document])
                return
            self._fail(*waiting[0], error)
            self._failures_in_a_row += 1
            most = _REFUSED_IN_A_ROW
            if not isinstance(error, ValueError):
                most = _FAILURES_IN_A_ROW.get(classify(error).kind, most)
            if self._failures_in_a_row >= most:
                raise
        else:
            self._failures_in_a_row = 0
            for (_, parsed), was_there in zip(waiting, replaced, strict=True):
                self._watch.done(parsed, was_there)

    def _write(self, documents: Sequence[ParsedDocument]) -> list[bool]:
        """Write documents with different ids, and return for each whether it replaced an earlier version."""
        nodes = []
        for parsed in documents:
            nodes += parsed.nodes
            self._current.add(parsed.document.id_)
        earlier = self._earlier_readings([parsed.document for parsed in documents])
        files = set(earlier.values())
        # new documents too: a killed writer may have left some of their rows in the store
        replaced = set(earlier)
        replaces_earlier = []
        for parsed in documents:
            document = parsed.document
            is_known = self._documents.get(document.id_) is not None
            replaces_earlier.append(is_known or file_of(document.metadata) in files)
            replaced.add(document.id_)
        self._index.replace(replaced, nodes)
        self._documents.replace(replaced, nodes)
        self._index.commit(midway=True)
        passages = (node for node in nodes if granularity_of(node) == "passage")
        self._trust.add(map(NodeRecord.of, passages))
        return replaces_earlier

    def _earlier_readings(self, documents: Sequence[BaseNode]) -> dict[str, str]:
        """Return the ids that LlamaIndex generated when these documents' files were read before, by id with
        the file."""
        if not self._only_changed:
            return {}
        earlier = {}
        for document in documents:
            file = file_of(document.metadata)
            path = str(document.metadata.get("file_path") or "")
            is_named_by_file = path and document.id_.startswith(path)  # with `filename_as_id`
            if is_random_id(document.id_) or is_named_by_file:
                for document_id in self._documents.in_file(file):
                    if is_random_id(document_id) and document_id not in self._current:
                        earlier[document_id] = file
        return earlier

    def _fail(self, place: int, parsed: ParsedDocument, error: Exception) -> None:
        self._indexed[place] = False
        self._watch.failed(parsed.document, error)


def checked_documents(documents: BaseNode | Iterable[BaseNode]) -> Iterator[BaseNode]:
    """Yield the documents one by one, as they are needed.

    Raises:
        ValueError: (when it is reached) An item is not a document; the message says which.
    """
    if isinstance(documents, (str, BaseNode)) or not isinstance(documents, Iterable):
        documents = [documents]
    for place, document in enumerate(documents):
        if not isinstance(document, BaseNode):
            raise ValueError(
                f"documents[{place}] is a {type(document).__name__}, not a LlamaIndex Document: "
                "wrap text as Document(text=...), or read files with SimpleDirectoryReader"
            )
        yield document


def _as_document(node: BaseNode) -> BaseNode:
    """Return a copy, because a generator may reuse the same object for the next document.

    A node of another parser becomes a document of its own, which the index knows by the node's id.
    """
    relationships = dict(node.relationships)
    relationships.pop(NodeRelationship.SOURCE, None)
    return node.model_copy(update={"metadata": dict(node.metadata), "relationships": relationships})


def reading_order(node: BaseNode) -> tuple[str, int, int, int]:
    """Return a sort key that orders nodes by document, then by position, then from coarse to fine."""
    start, end = span_of(node) or (-1, 0)
    coarse_first = get_args(Granularity)[::-1]
    rank = len(coarse_first)
    if granularity_of(node) in coarse_first:
        rank = coarse_first.index(granularity_of(node))
    return node.ref_doc_id or "", start, rank, -end
