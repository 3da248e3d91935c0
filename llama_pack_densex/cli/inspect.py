"""`densex inspect`, `export`, `delete`, `check` and `compact`: the contents of an index, and its upkeep."""

from __future__ import annotations

import difflib
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import partial

from llama_index.core.schema import BaseNode
from rich.filesize import decimal

from llama_pack_densex.answering.sources import placed
from llama_pack_densex.cli.app import (
    CheckCommand,
    CompactCommand,
    DeleteCommand,
    ExportCommand,
    InspectCommand,
)
from llama_pack_densex.cli.output import print_heading, print_json, waiting, write, write_list
from llama_pack_densex.cli.search import INDENT, Json, describe_node, print_text
from llama_pack_densex.index import upkeep
from llama_pack_densex.index.indexer import reading_order
from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import IndexCounts, NodeRecord
from llama_pack_densex.ingestion.progress import many
from llama_pack_densex.models import NONE
from llama_pack_densex.node_parsers.metadata import REASON_KEY, STATUS_KEY, findings_of
from llama_pack_densex.text.terminal import one_line
from llama_pack_densex.text.tokens import compared

_STATUS_STYLES = {"ok": "green", "repaired": "yellow", "fallback": "red"}
_UNITS = {
    "propositions": "propositions",
    "sentences": "further sentences",
    "questions": "questions",
}


def inspect_index(options: InspectCommand) -> None:
    """Show passages of an index with their units.

    The JSON has the options of the index, its counts, and `shown`: passages in the order of their documents,
    as nodes with `status`, `reason`, `findings`, `propositions`, `sentences` and `questions`. `more` is the
    number of passages beyond the limit.
    """
    nodes = options.index.nodes()
    manifest = nodes.manifest
    counts = nodes.counts()
    outline = _Outline(nodes, options.search)
    chosen = outline.choose(options)
    shown = outline.describe(chosen, options.limit or None)
    inspection = {
        "mode": manifest.mode,
        "granularity": list(manifest.granularity),
        "embed_model": manifest.embed_model,
        **vars(counts),
        "shown": shown,
        "more": len(chosen) - len(shown),
    }
    options.show(inspection, partial(_print_inspection, counts))


def export_index(options: ExportCommand) -> None:
    """Print the passages and propositions of an index in the format that `RecordedPropositionizer` reads."""
    outline = _Outline(options.index.nodes())
    for passage in outline.describe([passage.id for passage in outline.passages]):
        for kind in ("propositions", "questions"):
            passage[kind] = [unit["text"] for unit in passage[kind]]
        for name in ("questions", "context"):
            if not passage[name]:
                del passage[name]
        for name in ("id", "sentences", "findings"):
            del passage[name]
        print_json(passage, indent=None)


class _Outline:
    """Short records of the passages of an index, and the ids of their units.

    Args:
        nodes: The index.
        search: A text to look for; case and Unicode normal form (NFKC) do not matter.

    Attributes:
        passages: The passages.
        units: The ids of the units by passage.
        matching: The ids of the passages that contain the text, or whose units do.
    """

    def __init__(self, nodes: NodeIndex, search: str = "") -> None:
        self._nodes = nodes
        self.passages: list[NodeRecord] = []
        self.units: defaultdict[str, list[str]] = defaultdict(list)
        self.matching: set[str] = set()
        text = compared(search).casefold()
        for record in nodes.records():
            if record.granularity == "passage":
                self.passages.append(record)
            self.units[record.passage_id].append(record.id)
            if text in compared(record.text).casefold():
                self.matching.add(record.passage_id or record.id)

    def choose(self, options: InspectCommand) -> list[str]:
        """Return the ids of the passages to show.

        Raises:
            ValueError: Not exactly one passage matches `options.passage`, or there is no such document.
        """
        indexed = {passage.document_id for passage in self.passages}
        documents = resolve_documents(options.documents, indexed) or indexed
        passages = [passage for passage in self.passages if passage.document_id in documents]
        chosen = [passage.id for passage in passages if self._is_chosen(passage, options)]
        if options.passage is not None and len(chosen) != 1:
            raise ValueError(
                f"{len(chosen)} passages have an id that begins with {options.passage!r}; `densex inspect` "
                "shows ids"
            )
        if options.findings:
            return self._with_findings(chosen)
        return chosen

    def _is_chosen(self, passage: NodeRecord, options: InspectCommand) -> bool:
        has_status = options.status in (None, passage.status)
        has_id = passage.id.startswith(options.passage or "")
        return has_status and has_id and passage.id in self.matching

    def _with_findings(self, passage_ids: Sequence[str]) -> list[str]:
        """Return the passages for which checks have findings, on the passage or on its units."""
        passage_of = {}
        for passage_id in passage_ids:
            for node_id in (passage_id, *self.units[passage_id]):
                passage_of[node_id] = passage_id
        nodes = self._nodes.fetch(list(passage_of)).values()
        return list(dict.fromkeys(passage_of[node.node_id] for node in nodes if findings_of(node)))

    def describe(self, passage_ids: Sequence[str], limit: int | None = None) -> list[Json]:
        """Return the first `limit` passages as JSON with their units, in the order of their documents."""
        passages = sorted(self._nodes.fetch(passage_ids).values(), key=reading_order)[:limit]
        unit_ids: list[str] = []
        for passage in passages:
            unit_ids += self.units[passage.node_id]
        units = self._nodes.fetch(unit_ids)
        descriptions = []
        for passage in passages:
            own_units = [units[unit] for unit in self.units[passage.node_id]]
            descriptions.append(_describe_passage(passage, own_units))
        return descriptions


def _describe_passage(passage: BaseNode, units: Sequence[BaseNode]) -> Json:
    """Return a passage as JSON: propositions in the order of their making, sentences in that of the text."""
    description = {
        **describe_node(passage),
        "status": str(passage.metadata.get(STATUS_KEY, "")),
        "reason": str(passage.metadata.get(REASON_KEY, "")),
        "findings": findings_of(passage),
        **{kind: [] for kind in _UNITS},
    }
    order = [child.node_id for child in passage.child_nodes or []]
    by_id = {unit.node_id: unit for unit in sorted(units, key=reading_order)}
    propositions = [by_id.pop(unit_id) for unit_id in order if unit_id in by_id]
    for unit in [*propositions, *by_id.values()]:
        record = NodeRecord.of(unit)
        description[f"{record.granularity}s"].append(
            {
                "id": record.id,
                **placed(record.span),
                "text": record.text,
                "unverified": record.unverified,
                "findings": findings_of(unit),
            }
        )
    return description


def _print_inspection(counts: IndexCounts, inspection: Json) -> None:
    document = None
    for passage in inspection["shown"]:
        if passage["document"] != document:
            document = passage["document"]
            print_heading(one_line(document))
        _print_passage(passage)
    if inspection["more"]:
        more = many(inspection["more"], "more passage")
        write(
            f"{more}: --limit N shows more (0: all); --document, --status and --search select.",
            "bold",
        )
    elif not inspection["shown"]:
        write("No passage matches.", "bold")
    searched = ", ".join(inspection["granularity"])
    model = inspection["embed_model"]
    write(f"{counts}; mode {inspection['mode']}; searched: {searched}; embedding model: {model}.")
    print_statuses(counts)


def _print_passage(passage: Json) -> None:
    write(one_line(passage["section"] or passage["title"] or passage["document"]), "bold")
    place = f"passage {passage['id']}"
    if passage["start"] is not None:
        place += f", characters {passage['start']} to {passage['end']}"
    write(place, "dim")
    if passage["status"]:
        status = f"status {passage['status']}"
        if passage["reason"]:
            status += f": {passage['reason']}"
        write(status, _STATUS_STYLES.get(passage["status"], ""))
    for finding in passage["findings"]:
        write(finding, "yellow")
    if passage["context"]:
        write(f"below: {one_line(passage['context'])}", "dim")
    print_text(passage["text"])
    for kind in _UNITS:
        if passage[kind]:
            _print_units(kind, passage[kind])
    write()


def _print_units(kind: str, units: Sequence[Json]) -> None:
    write()
    write(_UNITS[kind], "dim", INDENT)
    for unit in units:
        write(_with_place(unit, kind), indent=INDENT, bullet="- ")
        for finding in unit["findings"]:
            write(finding, "yellow", 2 * INDENT)


def _with_place(unit: Json, kind: str) -> str:
    if unit["unverified"]:
        return f"{unit['text']} (unverified)"
    if unit["start"] is None or kind == "questions":
        return str(unit["text"])
    return f"{unit['text']} ({unit['start']} to {unit['end']})"


def print_statuses(counts: IndexCounts) -> None:
    """Print the number of passages of each status."""
    if counts.statuses:
        statuses = ", ".join(f"{number} {status}" for status, number in counts.statuses.items())
        write(f"Passages by status: {statuses}")


def resolve_documents(names: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the ids of the named documents; a file's name stands for all its pages.

    Raises:
        ValueError: There is no document of a name; the message suggests similar ones.
    """
    chosen: dict[str, None] = {}
    for name in names:
        if name not in known:
            name = unicodedata.normalize("NFC", name)
        pages = f"{name}#page="
        matching = [key for key in sorted(known) if key == name or key.startswith(pages)]
        if not matching:
            hint = "densex inspect shows which there are"
            similar = difflib.get_close_matches(name, known, 3, 0.5)
            if similar:
                hint = f"did you mean {' or '.join(map(repr, similar))}?"
            raise ValueError(f"there is no document {name!r} in the index: {hint}")
        chosen |= dict.fromkeys(matching)
    return list(chosen)


def delete_documents(options: DeleteCommand) -> None:
    """Delete documents by their ids or by those of their files, and erase their text with --purge.

    The JSON has `deleted`, the documents' ids, and `documents`, the number of documents left.

    Raises:
        ValueError: There is no document of a name; then nothing is deleted.
    """
    index = options.index
    with waiting("Deleting"):
        indexed = index.nodes().documents()
        deleted = resolve_documents(options.documents, indexed)
        if index.folder:  # deletes without loading a model
            upkeep.delete_documents(index.folder, deleted, options.purge)
        else:
            pack = index.open(proposition_llm=NONE, query_llm=NONE, embed_model=options.embed_model)
            pack.delete(deleted, options.purge)
    deletion = {"deleted": deleted, "documents": len(indexed) - len(deleted)}
    options.show(deletion, partial(_print_deletion, options))


def _print_deletion(options: DeleteCommand, deletion: Json) -> None:
    deleted = deletion["deleted"]
    write_list(deleted)
    left = many(deletion["documents"], "document")
    write(f"{many(len(deleted), 'document')} deleted; {left} left in the index.")
    if options.purge and options.index.folder:
        write("Erased from its files and cached replies; recordings, exports and your files stay.")
    elif options.purge:
        write("The store erases in its own way (PostgreSQL: VACUUM); recordings and exports stay.")


def check(options: CheckCommand) -> bool:
    """Check an index, and print what is wrong with it; return False if something is left to repair."""
    with waiting("Checking"):
        report = upkeep.check_index(options.index.own_folder(), options.repair)
    options.show(report, _print_check)
    return report.sound


def _print_check(report: upkeep.CheckReport) -> None:
    write(f"{one_line(report.folder)}: {report.counts}.")
    write_list([f"{fault.text} (repaired)" for fault in report.faults if fault.mended], "yellow")
    write_list([fault.text for fault in report.faults if not fault.mended], "red")
    write_list(
        f"{document} was incomplete and has been removed: index it again"
        for document in report.removed
    )
    if not report.faults:
        write("The index is sound.", "green")
    elif not report.sound:
        write(f"Repair it with: densex check {one_line(report.folder)} --repair")


def compact(options: CompactCommand) -> None:
    """Free the space of deleted and replaced documents."""
    with waiting("Compacting"):
        compaction = upkeep.compact_index(options.index.own_folder())
    options.show(compaction, _print_compaction)


def _print_compaction(compaction: upkeep.Compaction) -> None:
    size = decimal(compaction.bytes_after)
    earlier_size = decimal(compaction.bytes_before)
    write(f"{one_line(compaction.folder)}: {size}, {earlier_size} before.")
