"""Documents into an index: inserted, replaced where they changed, deleted."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import get_args

from llama_index.core.schema import BaseNode

from llama_pack_densex.ingestion.report import Watch
from llama_pack_densex.llm.errors import classify
from llama_pack_densex.node_parsers.ids import PIECE, is_random_id, piece_of
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, STATUS_KEY, Granularity
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser, ParsedDocument
from llama_pack_densex.propositionizers.base import PropositionizerError
from llama_pack_densex.retrieval.trust import TrustMeter
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.node_store import DocumentRecord, NodeRecord, file_of, span_of
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)


_NODES_A_WRITE = 2_000  # nodes that are embedded and written together
# Documents in a row that cannot be embedded or written, before it is taken for the fault of the model or the store: one
# where the key is refused, few where nothing answers, more where each of them may be what is refused.
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
        only_changed: Whether to leave those alone that are in the index as they are, by text, user's metadata and the
            parser's settings; and to replace an earlier state of a file that was read under ids that core made up,
            which are others at each reading.
    """

    def __init__(
        self,
        index: NodeIndex,
        parser: BasePropositionNodeParser,
        trust: TrustMeter,
        watch: Watch,
        after_write: Callable[[], None],
        only_changed: bool,
    ) -> None:
        self._index, self._parser, self._trust, self._watch = index, parser, trust, watch
        self._after_write, self._only_changed = after_write, only_changed
        self._there = index.documents()
        self._made_up: defaultdict[str, list[str]] = defaultdict(list)  # by file, the ids that core made up
        for document_id, record in self._there.items() if only_changed else ():
            if record.file and is_random_id(document_id):
                self._made_up[record.file].append(document_id)
        self._indexed: list[bool] = []  # of each document, whether it is in the index now
        self._places: deque[int] = deque()  # of those that are being parsed, which come back in the same order
        self._waiting: dict[str, tuple[int, ParsedDocument]] = {}  # by document id, to be written together
        self._nodes = self._failures = 0
        self._current: set[str] = set()  # of those that were given, the ids under which the index has them

    def ingest(self, documents: Iterable[BaseNode]) -> list[bool]:
        """Write documents' nodes; a document that is there is replaced.

        Documents are read as their turn comes, and written as they become whole, while the propositions of the next
        ones are being made. A document that fails leaves what the index has of it.

        Args:
            documents: The documents.

        Returns:
            For each document whether it was new or changed, and indexed.

        Raises:
            PropositionizerError: No more propositions can be had, the provider never answered, or every passage fell
                back. Documents with such passages do not count as done, and are asked for anew.
            Exception: What embedding or writing raised, where it met so many documents in a row that it is not theirs;
                or what reading the documents raised. In any case those that were whole have been written.
        """
        ids, document_hash = self._parser.new_ids(), self._parser.document_hasher()
        there: defaultdict[str, list[str]] = defaultdict(list)  # documents by hash, each of which stands for one only
        for document_id, record in self._there.items() if self._only_changed else ():
            there[piece_of(record.hash)[0]].append(document_id)
        unread: list[Exception] = []
        given: Counter[str] = Counter()

        def read() -> Iterator[BaseNode]:
            try:
                for one in documents:
                    # a generator may make the next one of the same object
                    yield one.model_copy(update={"metadata": {**one.metadata}})
            except Exception as error:  # those that were read are done before it is raised
                unread.append(error)

        def due() -> Iterator[BaseNode]:
            for document_id, group in groupby(read(), lambda one: one.ref_doc_id or object()):
                # of one that comes as nodes of another parser, all are done again, or none
                for together in [list(group)] if isinstance(document_id, str) else ([one] for one in group):
                    given.update(one.id_ for one in together)
                    taken = self._take(together, there, document_hash) if self._only_changed else ""
                    # neither replaced meanwhile by another one of its file, nor to be by an earlier one of its id
                    if taken and taken in self._there and given[together[0].id_] == 1:
                        self._current.add(taken)
                        for document in together:
                            ids.document_key(document)  # so that another one of equal text gets another id
                            self._indexed.append(False)
                            self._watch.unchanged(document)
                        continue
                    for document in together:
                        self._places.append(len(self._indexed))
                        self._indexed.append(True)
                        yield document

        try:
            with closing(self._parser.stream(due(), self._watch.passage, ids)) as stream:
                for parsed in stream:
                    self._add(parsed)
        finally:
            self._flush()
            twice = [document_id for document_id, times in given.items() if times > 1]
            if twice:
                logger.warning(
                    "%d of the documents' ids were given more than once (%r is the first): of each, the index has the "
                    "last document. Give each document an id of its own.",
                    len(twice), twice[0],
                )  # fmt: skip
        if unread:
            raise unread[0]
        if why := self._watch.unanswered:
            raise PropositionizerError(why, is_silence=True)
        return self._indexed

    def _take(
        self, together: Sequence[BaseNode], there: Mapping[str, list[str]], document_hash: Callable[[BaseNode], str]
    ) -> str:
        """The id under which the index has a document as it is, if any; that one is taken out of what is there.

        Args:
            together: The document, or all nodes that another parser made of it.
        """
        own, is_whole = together[0].ref_doc_id or together[0].id_, not together[0].source_node
        mark = "" if is_whole else PIECE
        hashes = sorted(mark + document_hash(one) for one in together if one.get_content().strip())
        alike = [one for found in dict.fromkeys(hashes) for one in there.get(found, ())]
        file, known = file_of(together[0].metadata), self._there
        # of files of equal text each has its own, as far as it can be
        made_up = sorted(filter(is_random_id, alike), key=lambda one: known.get(one, DocumentRecord()).file != file)
        alike = [own] if own in alike else made_up if is_random_id(own) else []
        taken = next((one for one in alike if is_whole or sorted(self._index.pieces(one).values()) == hashes), "")
        for found in hashes:
            if taken in there.get(found, ()):
                there[found].remove(taken)
        return taken

    def _add(self, parsed: ParsedDocument) -> None:
        """Take in a document that was parsed."""
        place = self._places.popleft()
        if parsed.error is not None:
            self._fail(place, parsed, parsed.error)
            return
        if parsed.document.id_ in self._waiting:
            self._flush()  # the later one replaces the earlier one
        self._waiting[parsed.document.id_] = place, parsed
        self._nodes += len(parsed.nodes) + 1
        if self._nodes >= _NODES_A_WRITE:
            self._flush()

    def _flush(self) -> None:
        """Write what was taken in."""
        waiting, self._waiting, self._nodes = list(self._waiting.values()), {}, 0
        if why := self._watch.unanswered:
            fallen = [(place, parsed) for place, parsed in waiting if _fallbacks(parsed)]
            waiting = [(place, parsed) for place, parsed in waiting if not _fallbacks(parsed)]
            self._parser.propositionizer.forget_replies(text for _, parsed in fallen for text in _fallbacks(parsed))
            for place, parsed in fallen:
                self._fail(place, parsed, PropositionizerError(why))
        if waiting:
            self._write_all(waiting)

    def _write_all(self, waiting: Sequence[tuple[int, ParsedDocument]]) -> None:
        """Write documents in one go; where that fails, one by one, so that a bad one costs only itself."""
        try:
            replaced = self._write([parsed for _, parsed in waiting])
        except Exception as error:
            if len(waiting) > 1:
                logger.debug("%d documents are written one by one: %s", len(waiting), classify(error).summary)
                for one in waiting:
                    self._write_all([one])
                return
            self._fail(*waiting[0], error)
            self._failures += 1
            kind = "rejected" if isinstance(error, ValueError) else classify(error).kind
            if self._failures >= _FAILURES_IN_A_ROW.get(kind, _REFUSED_IN_A_ROW):
                raise
        else:
            self._failures = 0
            for (_, parsed), was_there in zip(waiting, replaced, strict=True):
                self._watch.done(parsed, was_there)

    def _write(self, documents: Sequence[ParsedDocument]) -> list[bool]:
        """Replace documents of different ids by what became of them; whether each replaced an earlier version."""
        given = [parsed.document for parsed in documents]
        nodes = [node for parsed in documents for node in parsed.nodes]
        there = self._there
        # of several nodes that another parser made of a document, each is given like a document
        begun = self._current if self._only_changed else there
        growing = {document.ref_doc_id for document in given if document.ref_doc_id in begun}
        written = {document.ref_doc_id or document.id_ for document in given}
        self._current |= written
        # a file may be several documents
        files = {file_of(one.metadata): None for one in given if is_random_id(one.id_) or _is_named_by_file(one)}
        read = [document_id for file in files for document_id in self._made_up.get(file, ())]
        earlier = [document_id for document_id in read if document_id in there and document_id not in self._current]
        files = {there[document_id].file: None for document_id in earlier}
        were_there = [document.id_ in there or file_of(document.metadata) in files for document in given]
        # those too that the index does not know: of such that a kill left half written there may be rows
        replaced = {*written, *earlier, *(one.id_ for one in given if one.id_ in there)} - growing
        self._index.replace(replaced, nodes)
        self._after_write()
        for document_id in replaced:
            there.pop(document_id, None)
        for parsed in documents:
            if parsed.nodes:
                record = NodeRecord.of(parsed.nodes[0])
                there[record.document_id] = DocumentRecord(record.document_hash, record.file)
        passages = (node for node in nodes if node.metadata.get(GRANULARITY_KEY) == "passage")
        self._trust.add(map(NodeRecord.of, passages))
        return were_there

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


def reading_order(node: BaseNode) -> tuple[str, int, int, int]:
    """Sorts nodes by document, place, and from the coarse to the fine."""
    start, end = span_of(node) or (-1, 0)
    coarse_first = get_args(Granularity)[::-1]
    granularity = str(node.metadata.get(GRANULARITY_KEY, ""))
    rank = coarse_first.index(granularity) if granularity in coarse_first else len(coarse_first)
    return node.ref_doc_id or "", start, rank, -end


def _is_named_by_file(document: BaseNode) -> bool:
    """Whether its id is its file's path, as that of a reader with `filename_as_id`."""
    path = document.metadata.get("file_path")
    return bool(path) and document.id_.startswith(str(path))


def _fallbacks(parsed: ParsedDocument) -> list[str]:
    """The texts of what fell back."""
    return [node.get_content() for node in parsed.nodes if node.metadata.get(STATUS_KEY) == "fallback"]
