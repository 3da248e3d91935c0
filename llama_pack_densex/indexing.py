"""Documents into an index: inserted, replaced where they changed, deleted."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.schema import BaseNode

from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.node_parsers.ids import is_random_id
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, REASON_KEY, STATUS_KEY
from llama_pack_densex.retrieval.bm25 import LexicalIndexCache
from llama_pack_densex.retrieval.trust import LanguageTrust, TrustMeter, embedded_passages
from llama_pack_densex.stores.index import NodeIndex
from llama_pack_densex.stores.records import DocumentRecord, file_of

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
        statuses: Passages by the status of their propositions: "ok", "repaired" or "fallback".
    """

    documents: int
    passages: int
    propositions: int
    sentences: int
    sections: int
    statuses: dict[str, int]


class DocumentIndexer:
    """Keeps an index in step with documents.

    Args:
        index: Where nodes go.
        parser: What makes nodes of documents.
        lexical: The lexical side of the index, which is told when the nodes change.
        trust: Measures whether the embedding model knows the languages of what is indexed.
    """

    def __init__(
        self, index: NodeIndex, parser: BasePropositionNodeParser, lexical: LexicalIndexCache, trust: TrustMeter
    ) -> None:
        self._index, self._parser, self._lexical, self._trust = index, parser, lexical, trust

    def insert(self, documents: Sequence[BaseNode], show_progress: bool = False) -> list[LanguageTrust]:
        """Write documents' nodes; a document that is there is replaced, and so is an earlier state of its file.

        All propositions are made before anything is written, so that a failure changes nothing.

        Returns:
            Languages of which it now turned out that the embedding model does not know them.
        """
        if not documents:
            return []
        nodes = self._parser.get_nodes_from_documents(documents, show_progress=show_progress)  # type: ignore[arg-type]
        there = self._index.documents()
        replaced = [document.id_ for document in documents if document.id_ in there]
        replaced += _earlier_states(documents, there)
        try:
            self._index.replace(replaced, nodes, show_progress=show_progress)
        finally:
            self._lexical.changed()  # also where it failed half-way
        empty = len({document.id_ for document in documents} - {node.ref_doc_id for node in nodes})
        if empty:
            logger.warning("%d of %d documents have no text, and so nothing to index.", empty, len(documents))
        _report_fallbacks(nodes)
        model = self._index.embed_model
        embed = None if model is None else model.get_text_embedding_batch
        return self._trust.add(embedded_passages(nodes, embed, self._trust.known))

    def changed(self, documents: Sequence[BaseNode]) -> list[bool]:
        """Tell which documents are new or changed, by text, user's metadata and the parser's settings."""
        there = self._index.documents()
        unchanged: defaultdict[str, list[str]] = defaultdict(list)
        for document_id, record in there.items():
            unchanged[record.hash].append(document_id)
        return [not _take(document, self._parser.document_hash(document), unchanged) for document in documents]

    def delete(self, document_ids: Sequence[str]) -> int:
        """Delete documents' nodes.

        Returns:
            How many of the documents were there.
        """
        there = self._index.documents()
        known = [document_id for document_id in document_ids if document_id in there]
        try:
            self._index.remove(sorted(node_id for document_id in known for node_id in there[document_id].node_ids))
        finally:
            self._lexical.changed()
        return len(known)

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


def checked_documents(documents: BaseNode | Sequence[BaseNode]) -> list[BaseNode]:
    """Documents as a list.

    Raises:
        ValueError: One of them is no document; the message says which.
    """
    given = [documents] if isinstance(documents, BaseNode) else list(documents)
    for place, document in enumerate(given):
        if not isinstance(document, BaseNode):
            raise ValueError(
                f"documents[{place}] is a {type(document).__name__}, not a LlamaIndex Document: "
                "wrap text as Document(text=...), or read files with SimpleDirectoryReader"
            )
    return given


def reading_order(node: BaseNode) -> tuple[str, int, int, int]:
    """Sorts nodes by document, place, and from the coarse to the fine."""
    start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
    coarse_first = ("section", "passage", "proposition", "sentence")
    granularity = str(node.metadata.get(GRANULARITY_KEY, ""))
    rank = coarse_first.index(granularity) if granularity in coarse_first else len(coarse_first)
    return node.ref_doc_id or "", -1 if start is None else start, rank, 0 if end is None else -end


def _take(document: BaseNode, document_hash: str, unchanged: dict[str, list[str]]) -> bool:
    """Whether the index has the document as it is; each indexed document stands for one document only."""
    there = unchanged[document_hash]
    if document.id_ in there:
        there.remove(document.id_)
        return True
    if is_random_id(document.id_) and any(map(is_random_id, there)):
        there.remove(next(filter(is_random_id, there)))
        return True
    return False


def _earlier_states(documents: Sequence[BaseNode], there: dict[str, DocumentRecord]) -> list[str]:
    """Indexed documents that were read from the same files under ids that core made up anew at each reading."""
    files = {file_of(document) for document in documents if is_random_id(document.id_)} - {""}
    given = {document.id_ for document in documents}
    return [
        document_id
        for document_id, record in there.items()
        if record.file in files and is_random_id(document_id) and document_id not in given
    ]


def _report_fallbacks(nodes: Sequence[BaseNode]) -> None:
    reasons = Counter(
        str(node.metadata.get(REASON_KEY, ""))
        for node in nodes
        if node.metadata.get(GRANULARITY_KEY) == "passage" and node.metadata.get(STATUS_KEY) == "fallback"
    )
    if reasons:
        logger.warning(
            "%d passages are represented by their sentences, since their propositions could not be had: %s",
            sum(reasons.values()),
            "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(5)),
        )
