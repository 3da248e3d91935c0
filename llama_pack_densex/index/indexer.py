"""Documents into an index: inserted, replaced where they changed, deleted."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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


# Nodes that are embedded and written together: at first, and as many as take some seconds. What is written in
# between is kept where the process is killed; a token's postings are written once for all of them.
_NODES_A_WRITE = 2_000
_MOST_NODES_A_WRITE = 8_000
_SECONDS_A_WRITE = 5.0
# Documents in a row that cannot be embedded or written, before it is taken for the fault of the model or the
# store: one where the key is refused, few where nothing answers, more where each of them may be what is
# refused.
_FAILURES_IN_A_ROW = {"fatal": 1, "transient": 3, "refused": 3, "broken": 3}
_REFUSED_IN_A_ROW = 20


class DocumentIndexer:
    """Writes documents into an index; made anew for each ingestion.

    Args:
        index: Where nodes go.
        parser: What makes nodes of documents.
        trust: Is told of the passages, since it measures whether the embedding model knows their languages.
        watch: Is told what becomes of the documents.
        after_write: Called when some documents were written and others may follow.
    """

    def __init__(
        self,
        index: NodeIndex,
        parser: BasePropositionNodeParser,
        trust: TrustMeter,
        watch: Watch,
        after_write: Callable[[], None],
    ) -> None:
        self._index = index
        self._parser = parser
        self._trust = trust
        self._watch = watch
        self._after_write = after_write
        self._only_changed = False
        self._documents = index.store.known_documents()
        self._hash_of = parser.document_hasher()
        self._ids = parser.new_ids()
        self._times_given: Counter[str] = Counter()  # by document id
        # the ids under which the index has the documents that were given
        self._current: set[str] = set()
        self._indexed: list[bool] = []  # of each document, whether it is in the index now
        # of those that are being parsed, which come back in the same order
        self._places: deque[int] = deque()
        # by document id, to be written together
        self._waiting: dict[str, tuple[int, ParsedDocument]] = {}
        self._nodes_waiting = 0
        self._nodes_a_write = _NODES_A_WRITE
        self._failures_in_a_row = 0
        self._reading_error: Exception | None = None

    def ingest(self, documents: Iterable[BaseNode], only_changed: bool) -> list[bool]:
        """Write documents' nodes; a document that is there is replaced.

        Documents are read as their turn comes, and written as they become whole, while the propositions of
        the next ones are being made. A document that fails leaves what the index has of it.

        Args:
            documents: The documents.
            only_changed: Whether to leave those alone that are in the index as they are, by text, user's
                metadata and the parser's settings; and to replace an earlier state of a file that was read
                under ids that core made up, which are others at each reading.

        Returns:
            For each document whether it was new or changed, and indexed.

        Raises:
            PropositionizerError: No more propositions can be had, the provider never answered, or every
                passage fell back. Documents with such passages do not count as done, and are asked for anew.
            Exception: What embedding or writing raised, where it met so many documents in a row that it is
                not theirs; or what reading the documents raised. In any case those that were whole have been
                written.
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
        if why := self._watch.unanswered:
            raise PropositionizerError(why, is_silence=True)
        return self._indexed

    def _changed(self, documents: Iterable[BaseNode]) -> Iterator[BaseNode]:
        """Those of the documents that the index does not have as they are."""
        for document in self._read(documents):
            self._times_given[document.id_] += 1
            unchanged_id = self._unchanged_id(document) if self._only_changed else ""
            # one that is given twice is neither of the two
            if unchanged_id and self._times_given[document.id_] == 1:
                self._current.add(unchanged_id)
                # so that another one of equal text gets another id
                self._ids.document_key(document)
                self._indexed.append(False)
                self._watch.unchanged(document)
            else:
                self._places.append(len(self._indexed))
                self._indexed.append(True)
                yield document

    def _read(self, documents: Iterable[BaseNode]) -> Iterator[BaseNode]:
        """The documents as they are read; those before one that cannot be read are done before that is
        raised."""
        try:
            for document in documents:
                yield _as_document(document)
        except Exception as error:
            self._reading_error = error

    def _unchanged_id(self, document: BaseNode) -> str:
        """The id under which the index has a document as it is; empty if it does not."""
        if not document.get_content().strip():
            return ""
        of_equal_hash = self._documents.with_hash(self._hash_of(document))
        alike = {key: record for key, record in of_equal_hash.items() if key not in self._current}
        if document.id_ in alike:
            return document.id_
        if not is_random_id(document.id_):
            return ""
        file = file_of(document.metadata)
        # of files of equal text each has its own, as far as it can be
        return min(
            filter(is_random_id, alike),
            key=lambda document_id: alike[document_id].file != file,
            default="",
        )

    def _report_repeated_ids(self) -> None:
        repeated = [document_id for document_id, times in self._times_given.items() if times > 1]
        if repeated:
            logger.warning(
                "%d of the documents' ids were given more than once (%r is the first): of each, the index "
                "has the last document. Give each document an id of its own.",
                len(repeated),
                repeated[0],
            )

    def _add(self, parsed: ParsedDocument) -> None:
        """Take in a document that was parsed."""
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
            # the next time, as many as take some seconds
            in_some_seconds = int(nodes * _SECONDS_A_WRITE / seconds)
            self._nodes_a_write = min(max(in_some_seconds, _NODES_A_WRITE), _MOST_NODES_A_WRITE)

    def _flush(self) -> None:
        """Write what was taken in."""
        taken_in = self._waiting.values()
        self._waiting = {}
        self._nodes_waiting = 0
        why = self._watch.unanswered
        waiting = []
        for place, parsed in taken_in:
            fallbacks = [node.get_content() for node in parsed.nodes if is_fallback(node)]
            if why and fallbacks:
                self._parser.propositionizer.forget_replies(fallbacks)
                self._fail(place, parsed, PropositionizerError(why))
            else:
                waiting.append((place, parsed))
        if waiting:
            self._write_all(waiting)

    def _write_all(self, waiting: Sequence[tuple[int, ParsedDocument]]) -> None:
        """Write documents in one go; where that fails, one by one, so that a bad one costs only itself."""
        try:
            replaced = self._write([parsed for _, parsed in waiting])
        except Exception as error:
            if len(waiting) > 1:
                logger.debug(
                    "%d documents are written one by one: %s", len(waiting), classify(error).summary
                )
                for document in waiting:
                    self._write_all([document])
                return
            self._fail(*waiting[0], error)
            self._failures_in_a_row += 1
            kind = "rejected" if isinstance(error, ValueError) else classify(error).kind
            if self._failures_in_a_row >= _FAILURES_IN_A_ROW.get(kind, _REFUSED_IN_A_ROW):
                raise
        else:
            self._failures_in_a_row = 0
            for (_, parsed), was_there in zip(waiting, replaced, strict=True):
                self._watch.done(parsed, was_there)

    def _write(self, documents: Sequence[ParsedDocument]) -> list[bool]:
        """Replace documents of different ids by what became of them; whether each replaced an earlier
        version."""
        nodes = [node for parsed in documents for node in parsed.nodes]
        written = {parsed.document.id_ for parsed in documents}
        self._current |= written
        earlier = self._earlier_readings([parsed.document for parsed in documents])
        files = set(earlier.values())
        replaces_earlier = [
            self._documents.get(parsed.document.id_) is not None
            or file_of(parsed.document.metadata) in files
            for parsed in documents
        ]
        # those too that the index does not know: of such that a kill left half written there may be rows
        replaced = {*written, *earlier}
        self._index.replace(replaced, nodes)
        self._documents.replace(replaced, nodes)
        self._after_write()
        passages = (node for node in nodes if granularity_of(node) == "passage")
        self._trust.add(map(NodeRecord.of, passages))
        return replaces_earlier

    def _earlier_readings(self, documents: Sequence[BaseNode]) -> dict[str, str]:
        """The ids that core made up at an earlier reading of the files of these documents, with the files."""
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
    """Documents, one by one as they are needed.

    Raises:
        ValueError: (when its turn comes) One of them is no document; the message says which.
    """
    is_one = isinstance(documents, (str, BaseNode)) or not isinstance(documents, Iterable)
    for place, document in enumerate([documents] if is_one else documents):
        if not isinstance(document, BaseNode):
            raise ValueError(
                f"documents[{place}] is a {type(document).__name__}, not a LlamaIndex Document: "
                "wrap text as Document(text=...), or read files with SimpleDirectoryReader"
            )
        yield document


def _as_document(node: BaseNode) -> BaseNode:
    """A copy, since a generator may make the next document of the same object.

    A node of another parser becomes a document of its own: its id is what the index knows it by.
    """
    relationships = {
        kind: to for kind, to in node.relationships.items() if kind != NodeRelationship.SOURCE
    }
    return node.model_copy(update={"metadata": dict(node.metadata), "relationships": relationships})


def reading_order(node: BaseNode) -> tuple[str, int, int, int]:
    """Sorts nodes by document, place, and from the coarse to the fine."""
    start, end = span_of(node) or (-1, 0)
    coarse_first = get_args(Granularity)[::-1]
    granularity = granularity_of(node)
    rank = coarse_first.index(granularity) if granularity in coarse_first else len(coarse_first)
    return node.ref_doc_id or "", start, rank, -end
