"""Checking and repairing an index folder, and freeing its space; without any model."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from llama_index.core.schema import BaseNode

from llama_pack_densex.index.embedded import EmbeddedNodes
from llama_pack_densex.index.folder import IndexFolder, folder_at
from llama_pack_densex.index.manifest import (
    REPLIES_FILE,
    InvalidIndexError,
    Manifest,
    size_of,
    while_it_changes,
)
from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import IndexCounts, NodeLinks, granularity_of
from llama_pack_densex.llm.cache import ReplyCache
from llama_pack_densex.models import embed_model_identity
from llama_pack_densex.node_parsers.ids import PIECE
from llama_pack_densex.node_parsers.metadata import DOCUMENT_HASH_KEY, STATUS_KEY

UNITS = ("proposition", "sentence", "question")
_MOST_EXAMPLES = 5


@dataclass(frozen=True)
class Fault:
    """A fault in an index.

    Args:
        kind: "link", "passage", "version", "vector", "graph" or "words".
        text: What is wrong; for faults of nodes with their number and the ids of the first ones.
        documents: The ids of the documents that the fault makes incomplete.
        mended: Whether `check_index` repaired it.
    """

    kind: str
    text: str
    documents: tuple[str, ...] = ()
    mended: bool = False


@dataclass(frozen=True)
class CheckReport:
    """The result of checking an index folder.

    Args:
        folder: The folder.
        counts: The numbers of documents and nodes.
        faults: The faults that were found; empty if there are none.
        removed: The ids of incomplete documents that the repair removed: index them again.
    """

    folder: str
    counts: IndexCounts
    faults: tuple[Fault, ...]
    removed: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether the index has no faults, or all of them were repaired."""
        return all(fault.mended for fault in self.faults)


def check_index(path: str | Path, repair: bool = False) -> CheckReport:
    """Check an index folder: links in both directions, the documents' versions, embeddings, and words.

    The check covers the state that the manifest names. It needs no model.

    Args:
        path: The folder.
        repair: Whether to repair what can be repaired: all texts are tokenized again, the graph is rebuilt,
            and incomplete documents are removed, so that they are indexed the next time.

    Raises:
        InvalidIndexError: The folder is not an index, or too damaged to be opened.
        IndexInUseError: `repair` is set, and somebody else is writing to the index.
    """

    def check() -> CheckReport:
        nodes = _opened(path)
        with nodes.writing() if repair else nullcontext():
            manifest = nodes.manifest
            report = CheckReport(str(path), nodes.store.counts(), tuple(_faults(nodes)))
            if repair and report.faults:
                return _mended(nodes, report)
        if report.faults and Manifest.read(folder_at(path)) != manifest:
            raise InvalidIndexError(f"{path} was changed while it was being checked")
        return report

    return while_it_changes(folder_at(path), check)


def _opened(path: str | Path) -> NodeIndex:
    return NodeIndex.open(IndexFolder(folder_at(path)))


def _mended(nodes: NodeIndex, report: CheckReport) -> CheckReport:
    removed = sorted(set().union(*(fault.documents for fault in report.faults)))
    nodes.replace(removed, [])
    if nodes.embedded:
        nodes.embedded.rebuild_words()
    nodes.commit()
    if any(fault.kind == "graph" for fault in report.faults):
        nodes.store.compact()
    remaining = {fault.text for fault in _faults(nodes)}
    faults = tuple(replace(fault, mended=fault.text not in remaining) for fault in report.faults)
    return CheckReport(report.folder, nodes.store.counts(), faults, tuple(removed))


def _faults(nodes: NodeIndex) -> Iterator[Fault]:
    yield from _wrong_links(nodes)
    if nodes.embedded:
        yield from _wrong_tables(nodes.embedded, nodes.manifest)


def _wrong_tables(store: EmbeddedNodes, manifest: Manifest) -> Iterator[Fault]:
    """Check the embeddings, their graph and the words."""
    documents = dict(store.bad_vectors())
    if documents:
        yield _fault("vector", "embeddings are missing, zero or not finite", documents)
    if store.vectors.is_graph_damaged():
        yield Fault("graph", "the graph of embeddings is missing, or does not match the embeddings")
    is_searched_by_words = (
        manifest.hybrid is True
        or manifest.hops == 2
        or manifest.embed_model == embed_model_identity(None)
    )
    wrong_words = store.wrong_words() if is_searched_by_words else ""
    if wrong_words:
        yield Fault("words", wrong_words)


def _wrong_links(nodes: NodeIndex) -> Iterator[Fault]:
    """Check the links of all nodes, and the versions of their documents."""
    # (kind of fault, description) -> node id -> document id
    wrong: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    granularities = {record.id: sys.intern(record.granularity) for record in nodes.records()}
    hashes: dict[str, str] = {}  # by document id
    for node in nodes.all_nodes():
        document = node.ref_doc_id or ""
        document_hash = str(node.metadata.get(DOCUMENT_HASH_KEY, ""))
        if granularity_of(node) not in UNITS and PIECE not in document_hash:
            first_hash = hashes.setdefault(document, document_hash)
            if first_hash != document_hash:
                what = "nodes belong to another version of their document than the rest"
                wrong["version", what][node.node_id] = document
        finding = _wrong_link(node, granularities)
        if finding is not None:
            wrong[finding][node.node_id] = document
    for (kind, what), documents in wrong.items():
        yield _fault(kind, what, documents)


def _wrong_link(node: BaseNode, granularities: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the fault in the links of a node, as its kind and a description; None if there is none."""
    granularity = granularity_of(node)
    if granularity in UNITS:
        passage_id = getattr(node, "index_id", "")
        if granularities.get(passage_id) != "passage":
            return "link", "units lead to missing passages"
        return None
    parent_id, child_ids = NodeLinks.of(node)
    linked = {parent_id, *child_ids} - {None}
    if not linked <= granularities.keys():
        return "link", "passages and sections link to missing nodes"
    # a passage without a status belongs to an index without propositions
    if granularity == "passage" and STATUS_KEY in node.metadata and not child_ids:
        return "passage", "passages have no proposition"
    return None


def _fault(kind: str, what: str, documents: Mapping[str, str]) -> Fault:
    """Return a fault of several nodes, given the document id of each by node id."""
    examples = list(documents)[:_MOST_EXAMPLES]
    if len(documents) > _MOST_EXAMPLES:
        examples.append("…")
    text = f"{what}: {len(documents):,} ({', '.join(examples)})"
    return Fault(kind, text, tuple(dict.fromkeys(filter(None, documents.values()))))


@dataclass(frozen=True)
class Compaction:
    """The result of compacting an index.

    Args:
        folder: The index's folder.
        bytes_before: The size of its files before, in bytes.
        bytes_after: The size of its files now, in bytes.
    """

    folder: str
    bytes_before: int
    bytes_after: int


def compact_index(path: str | Path) -> Compaction:
    """Rewrite an index folder's data, so that nothing is left of what was deleted or replaced.

    Args:
        path: The folder.

    Raises:
        InvalidIndexError: The folder is not an index, or cannot be opened.
        IndexInUseError: Somebody else is writing to the index.
    """
    folder = folder_at(path)
    nodes = _opened(path)
    with nodes.writing():
        bytes_before = _bytes_in(folder)
        nodes.rewrite()
        return Compaction(str(path), bytes_before, _bytes_in(folder))


def delete_documents(path: str | Path, document_ids: Sequence[str], purge: bool = False) -> None:
    """Delete documents from an index folder, without any model.

    Args:
        path: The folder.
        document_ids: The ids of the documents.
        purge: Whether to erase their text from the files of the index and of the replies cached beside it.

    Raises:
        InvalidIndexError: The folder is not an index, or cannot be opened.
        IndexInUseError: Somebody else is writing to the index.
    """
    replies = folder_at(path) / REPLIES_FILE
    nodes = _opened(path)
    with nodes.writing():
        # before the deletion, because the index says what to purge: after a stop, it can be repeated
        if purge and replies.exists():
            ReplyCache(replies).purge(nodes.passage_texts(document_ids))
        if purge:
            nodes.rewrite(document_ids)
        else:
            nodes.replace(document_ids, [])
        nodes.commit()


def _bytes_in(folder: Path) -> int:
    return sum(size_of(file) for file in folder.rglob("*") if file.is_file())
