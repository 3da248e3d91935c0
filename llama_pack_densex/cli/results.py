"""`densex query`, `chat`, `inspect`, `export`, `delete`, `check`, `demo`: what they find, as JSON and as printed."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, cast

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from rich.text import Text

from llama_pack_densex.answering.chat import PropositionChatEngine
from llama_pack_densex.answering.citations import Source, name_of, placed
from llama_pack_densex.cli.output import one_line, plain, print_error, print_heading, stdout, waiting, warn, write
from llama_pack_densex.cli.places import IndexPlace, PathDocuments
from llama_pack_densex.evaluation.datasets import read_questions
from llama_pack_densex.evaluation.judging import length_until_answer
from llama_pack_densex.index import upkeep
from llama_pack_densex.index.indexer import reading_order
from llama_pack_densex.ingestion.progress import many
from llama_pack_densex.models import NONE
from llama_pack_densex.node_parsers.metadata import BOOKKEEPING_KEYS, GRANULARITY_KEY, REASON_KEY, findings_of
from llama_pack_densex.options import Mode
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.retrieval.context import ContextMode, PropositionContextPostprocessor
from llama_pack_densex.retrieval.hits import matched_units
from llama_pack_densex.stores.node_store import NodeRecord
from llama_pack_densex.text.tokens import compared

_STATUS_STYLES = {"ok": "green", "repaired": "yellow", "fallback": "red"}
_INDENT = 3
_UNITS = ("proposition", "sentence", "question")
_VALUES_NAMED = 10
_UNITS_SHOWN = 3  # of those that found a node

Shown = dict[str, Any]
"""What a command found, as it is printed with --json. Of a node: `id`, `document` (an id), `title`, `section` (the
headings above it), `start` and `end` (in its document's text, in characters; None where that is not known), `text`."""


def answer_question(
    pack: DenseXRetrievalPack,
    question: str,
    top_k: int | None = None,
    filters: MetadataFilters | None = None,
    context: ContextMode | None = None,
) -> Shown:
    """Answer a question.

    Args:
        pack: The pack.
        question: The question.
        top_k: Passages to retrieve; None means the pack's number.
        filters: Only documents whose metadata pass are searched.
        context: What an LLM reads, to be shown; None means not to.

    Returns:
        `question`; `answer`, empty where it was not found; `outcome` and `citations`, as in a response's metadata;
        `written`, whether an LLM wrote it, else it is quoted; and
        `results`, best first: nodes with `granularity`, `score`, `matched` (the units that found it, best first) and
        `metadata` (the document's); and `context`, the texts that an LLM reads, where that is to be shown.
    """
    response = pack.run(question, similarity_top_k=top_k, filters=filters)
    metadata = response.metadata or {}
    answer = {
        "question": question,
        "answer": "" if metadata.get("outcome") == "not_found" else str(response).strip(),
        "outcome": metadata.get("outcome"),
        "citations": metadata.get("citations", []),
        "written": pack.get_modules()["query_llm"] is not None,
        "results": [
            {
                **_shown(found.node),
                "granularity": str(found.node.metadata.get(GRANULARITY_KEY, "")),
                "score": found.score,
                "matched": [asdict(unit) for unit in matched_units(found.node)],
                "metadata": {key: value for key, value in found.node.metadata.items() if key not in BOOKKEEPING_KEYS},
            }
            for found in response.source_nodes
        ],
    }
    if context is not None:
        read = PropositionContextPostprocessor(mode=context).postprocess_nodes(response.source_nodes)
        answer["context"] = [node.get_content(MetadataMode.LLM) for node in read]
    return answer


_CONDITION = re.compile(r"(.+?)\s*(>=|<=|!=|==|=|>|<)\s*(.*)", re.DOTALL)


def metadata_filters(pack: DenseXRetrievalPack, conditions: Sequence[str] | None) -> MetadataFilters | None:
    """Filters for conditions such as "year>=2020", all of which have to hold; None where there are none.

    A value is taken for what the index has under its key: a number, a text, or an item of lists.

    Raises:
        ValueError: It is no condition, no document has its key, or the key's values cannot be compared with its value.
    """
    if not conditions:
        return None
    known = pack.metadata_values()
    return MetadataFilters(filters=[_filter(condition, known) for condition in conditions])


def _filter(condition: str, known: dict[str, list[Any]]) -> MetadataFilter | MetadataFilters:
    parts = _CONDITION.fullmatch(condition.strip())
    if parts is None or parts[1] not in known:
        raise ValueError(
            f"--filter {condition!r}: write key=value, or with !=, >=, <=, > or < in quotes, which keep the shell from "
            f"taking them for files; there are the keys {', '.join(known)}"
        )
    key, sign, wanted = parts.groups()
    in_lists = any(isinstance(value, list) for value in known[key])
    each = chain.from_iterable(value if isinstance(value, list) else [value] for value in known[key])
    values = [value for value in each if value is not None]
    some = ", ".join(map(str, values[:_VALUES_NAMED])) + (", …" if len(values) > _VALUES_NAMED else "")
    refused = ValueError(
        f"--filter {condition!r}: of {key} there are {some}. Texts, numbers and items of lists can be = and !=; "
        "numbers have an order, and texts that do not look like some; lists have none"
    )
    if sign in (">", ">=", "<", "<="):
        by_number = all(type(one) in (int, float) for one in values)
        by_text = all(isinstance(one, str) and not one.isdecimal() for one in values)
        if in_lists or not (by_number or by_text):
            raise refused
        try:
            return MetadataFilter(key=key, value=float(wanted) if by_number else wanted, operator=FilterOperator(sign))
        except ValueError:
            raise refused from None
    value: Any = next((one for one in values if wanted in (str(one), json.dumps(one))), None)
    if isinstance(value, (dict, list)):
        raise refused
    if value is None:
        warn(f"no document has {key} = {wanted}; there are: {some}")
        value = wanted
    value = int(value) if isinstance(value, bool) else value  # filters take no bool; True equals 1
    if not in_lists:
        return MetadataFilter(key=key, value=value, operator=FilterOperator("!=" if sign == "!=" else "=="))
    longer = [one for one in known[key] if isinstance(one, str) and str(value) in one and one != value]
    ways = ((FilterOperator.CONTAINS, value), (FilterOperator.NIN, longer))  # texts contain their parts
    item = MetadataFilters(filters=[MetadataFilter(key=key, value=wanted, operator=way) for way, wanted in ways])
    either = FilterCondition.NOT if sign == "!=" else FilterCondition.OR
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value), item], condition=either)


def _in_order(passage: BaseNode, units: Sequence[BaseNode]) -> list[Shown]:
    """Units of a passage: propositions in the order in which they were made, sentences in that of the text."""
    order = {child.node_id: place for place, child in enumerate(passage.child_nodes or [])}
    shown = []
    for unit in sorted(units, key=lambda unit: (order.get(unit.node_id, len(order)), reading_order(unit))):
        about = NodeRecord.of(unit)
        facts = {"text": about.text, "unverified": about.unverified, "findings": findings_of(unit)}
        shown.append({"id": about.id, **placed(about.span), **facts})
    return shown


def inspect_index(
    place: str,
    passage: str | None = None,
    documents: Sequence[str] = (),
    status: str | None = None,
    search: str = "",
    limit: int | None = None,
    findings: bool = False,
) -> Shown:
    """Gather an index's passages with their units.

    Args:
        place: Where the index is: a folder or a URL.
        passage: The id of the only passage to show, or the beginning of one passage's id.
        documents: The documents whose passages are shown; none means all.
        status: The status of the passages to show.
        search: A text that stands in them or in their units; case and Unicode's normal form (NFKC) do not matter.
        limit: How many to show; None means all.
        findings: Whether only those are shown that checks found something wrong with, or with their propositions.

    Returns:
        How the index was made, how much is in it, and `shown`, passages in the order of their documents: nodes with
        `status`, `reason`, `findings`, `propositions` and `sentences`; `more`, how many there are beyond the limit.

    Raises:
        ValueError: There is no such passage, or more than one, or no such document.
    """
    manifest, nodes = IndexPlace.of(place).nodes()
    counts, wanted = nodes.counts(), compared(search).casefold()
    passages: dict[str, NodeRecord] = {}
    units: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    matching = set()
    for record in nodes.records():
        if record.granularity == "passage":
            passages[record.id] = record
        units[record.passage_id, record.granularity].append(record.id)
        if wanted in compared(record.text).casefold():
            matching.add(record.passage_id or record.id)
    known = {record.document_id for record in passages.values()}
    of_documents = meant(documents, known) if documents else known
    chosen = [
        record.id
        for record in passages.values()
        if record.id in matching
        and record.document_id in of_documents
        and status in (None, record.status)
        and (passage is None or (passage and record.id.startswith(passage)))
    ]
    if passage is not None and len(chosen) != 1:
        raise ValueError(f"{len(chosen)} passages have an id that begins with {passage!r}; `densex inspect` shows ids")
    if findings:
        stated = {unit: one for one in chosen for unit in (one, *units[one, "proposition"])}
        faulty = (one.node_id for one in nodes.fetch(list(stated)).values() if findings_of(one))
        chosen = list(dict.fromkeys(stated[one] for one in faulty))
    shown = sorted(nodes.fetch(chosen).values(), key=reading_order)[:limit]
    read = nodes.fetch([unit for one in shown for kind in _UNITS for unit in units[one.node_id, kind]])
    return {
        "mode": manifest.mode,
        "granularity": list(manifest.granularity),
        "embed_model": manifest.embed_model,
        **{name: getattr(counts, name) for name in ("documents", "passages", "propositions", "questions", "statuses")},
        "shown": [
            {
                **_shown(node),
                "status": passages[node.node_id].status,
                "reason": str(node.metadata.get(REASON_KEY, "")),
                "findings": findings_of(node),
                **{f"{kind}s": _in_order(node, [read[unit] for unit in units[node.node_id, kind]]) for kind in _UNITS},
            }
            for node in shown
        ],
        "more": len(chosen) - len(shown),
    }


def meant(given: Sequence[str], known: Collection[str]) -> list[str]:
    """The documents that are meant: by id, or all pages of a file by the file's.

    Raises:
        ValueError: There is none of an id; the message names near ones.
    """
    chosen: dict[str, None] = {}
    for name in given:
        wanted = name if name in known else unicodedata.normalize("NFC", name)
        found = [one for one in sorted(known) if one == wanted or one.startswith(f"{wanted}#page=")]
        if not found:
            near = " or ".join(map(repr, difflib.get_close_matches(wanted, known, 3, 0.5)))
            hint = f"did you mean {near}?" if near else "densex inspect shows which there are"
            raise ValueError(f"there is no document {wanted!r} in the index: {hint}")
        chosen |= dict.fromkeys(found)
    return list(chosen)


def export_index(place: str) -> Iterator[Shown]:
    """An index's passages with their propositions, as `RecordedPropositionizer` reads them."""
    for passage in inspect_index(place)["shown"]:
        del passage["id"], passage["sentences"], passage["findings"]
        for kind in ("propositions", "questions"):
            passage[kind] = [unit["text"] for unit in passage[kind]]
        for optional in ("questions", "context"):
            if not passage[optional]:
                del passage[optional]
        yield passage


def delete_documents(place: str, given: Sequence[str], purge: bool) -> Shown:
    """Delete documents, by their ids or those of files whose pages they are, and erase their text if asked to.

    Returns:
        `deleted`, the documents' ids, and `documents`, how many are left.

    Raises:
        ValueError: There is none of an id; then nothing was deleted.
    """
    where = IndexPlace.of(place)
    known = where.nodes()[1].documents()
    deleted = meant(given, known)
    if where.folder is not None:  # without any model
        upkeep.delete_documents(where.folder, deleted, purge)
    else:
        where.open(proposition_llm=NONE, query_llm=NONE).delete(deleted, purge)
    return {"deleted": deleted, "documents": len(known) - len(deleted)}


def _shown(node: BaseNode) -> Shown:
    source = Source.of(0, NodeWithScore(node=node))
    about = {name: getattr(source, name) for name in ("document", "title", "section", "page", "context", "text")}
    return {"id": source.node_id, **about, **placed(source.span)}


def print_answer(answer: Shown, advice: str = "") -> None:
    """Print an answer, and the passages with the units that found them.

    Args:
        answer: The answer.
        advice: How to get a written answer, to print above a quoted one.
    """
    if not answer["results"]:
        write("Nothing in the index matches the question.")
        return
    if answer["answer"]:
        write("Answer" if answer["written"] else f"Answer, quoted{advice}", style="bold")
        write(answer["answer"])
    else:
        write("The answer was not found in the documents. This comes nearest:")
    for number, result in enumerate(answer["results"], 1):
        write()
        score = "" if result["score"] is None else f" ({result['score']:.3f})"
        place = one_line(f"{result['document']} | {name_of(result)}{score}")
        write(place, style="bold cyan", bullet=f"{number}. ")
        if result["matched"]:
            write(f"{result['granularity'] or 'node'} found by", style="dim", indent=_INDENT)
        for unit in result["matched"][:_UNITS_SHOWN]:
            write(_found_by(unit), indent=_INDENT, bullet="- ")
        if (more := len(result["matched"]) - _UNITS_SHOWN) > 0:
            write(f"and {more} more", style="dim", indent=_INDENT, bullet="- ")
        _print_text(result["text"])
    if "context" in answer:
        write()
        write("What an LLM reads", style="bold")
    for text in answer.get("context", []):
        _print_text(text)


def _print_text(text: str) -> None:
    write()
    write(text.strip(), style="dim", indent=_INDENT)


def _found_by(unit: Shown) -> str:
    remarks = [unit["granularity"]] if unit["granularity"] == "sentence" else []
    remarks += [unit["status"]] if unit["status"] not in ("", "ok") else []
    remarks += [f"answers: {unit['question']}"] if unit["question"] else []
    remarks += ["unverified"] if unit["unverified"] else []
    return f"{unit['text']} ({', '.join(remarks)})" if remarks else str(unit["text"])


def print_inspection(inspection: Shown) -> None:
    """Print an index's passages with their propositions and statuses."""
    document = None
    for passage in inspection["shown"]:
        if passage["document"] != document:
            document = passage["document"]
            print_heading(one_line(document))
        _print_passage(passage)
    if inspection["more"]:
        more = many(inspection["more"], "more passage")
        write(f"{more}: --limit N shows more (0 all), --document, --status and --search choose.", "bold")
    elif not inspection["shown"]:
        write("No passage is like that.", "bold")
    whats = ("document", "passage", "proposition", *(["question"] if inspection["questions"] else []))
    held = ", ".join(many(inspection[f"{what}s"], what) for what in whats)
    searched = ", ".join(inspection["granularity"])
    write(f"{held}; mode {inspection['mode']}; searched: {searched}; embedding model: {inspection['embed_model']}.")
    print_statuses(inspection["statuses"])


def _print_passage(passage: Shown) -> None:
    write(one_line(passage["section"] or passage["title"] or passage["document"]), style="bold")
    span = "" if passage["start"] is None else f", characters {passage['start']} to {passage['end']}"
    write(f"passage {passage['id']}{span}", style="dim")
    if status := passage["status"]:
        reason = f": {passage['reason']}" if passage["reason"] else ""
        write(f"status {status}{reason}", style=_STATUS_STYLES.get(status, ""))
    for found in passage["findings"]:
        write(found, style="yellow")
    if passage["context"]:
        write(f"below: {one_line(passage['context'])}", style="dim")
    _print_text(passage["text"])
    for kind in _UNITS:
        units = passage[f"{kind}s"]
        if units:
            write()
            write("further sentences" if kind == "sentence" else f"{kind}s", style="dim", indent=_INDENT)
        for unit in units:
            is_placed = unit["start"] is not None and kind != "question"
            place = f" ({unit['start']} to {unit['end']})" if is_placed else ""
            place = " (unverified)" if unit["unverified"] else place
            write(unit["text"] + place, indent=_INDENT, bullet="- ")
            for found in unit["findings"]:
                write(found, style="yellow", indent=2 * _INDENT)
    write()


def print_deletion(place: str, done: Shown, purged: bool) -> None:
    """Print what was deleted, and where it is erased from."""
    for document in done["deleted"]:
        write(one_line(document), bullet="- ")
    write(f"{many(len(done['deleted']), 'document')} deleted; {many(done['documents'], 'document')} left in the index.")
    if purged and IndexPlace.of(place).folder is None:
        write("The store erases its own files in its own way (PostgreSQL: VACUUM). Recordings and exports are yours.")
    elif purged:
        write("Erased from its files and from the replies kept there; recordings, exports and the documents are yours.")


def print_statuses(statuses: dict[str, int]) -> None:
    """Print how many passages have which status."""
    if statuses:
        parts = [Text(f"{count} {status}", _STATUS_STYLES.get(status, "")) for status, count in statuses.items()]
        stdout().print(Text("Passages by status: ").append_text(Text(", ").join(parts)))


def print_check(report: upkeep.CheckReport) -> None:
    """Print what is in an index, and what is wrong with it."""
    write(f"{one_line(report.folder)}: {report.counts}.")
    for fault in report.faults:
        text, style = one_line(fault.text), "yellow" if fault.mended else "red"
        write(f"{text} (mended)" if fault.mended else text, style, bullet="- ")
    for document in report.removed:
        write(f"{one_line(document)} was not whole, and is removed: index it again", bullet="- ")
    if not report.faults:
        write("It is whole.", "green")
    elif not report.sound:
        write(f"Mend it with: densex check {one_line(report.folder)} --repair")


# `densex chat`: a conversation in the terminal, or over a pipe

_CHAT_HELP = "/sources shows what the last answer cites, /reset begins a new conversation, /quit ends."


def talk(engine: PropositionChatEngine) -> bool:
    """Answer the lines of standard input until they end.

    Args:
        engine: Has the conversation.

    Returns:
        Whether every question could be asked.
    """
    is_terminal = sys.stdin.isatty()
    citations: list[dict[str, object]] = []
    could_ask = True
    if is_terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (gives `input` a history and an editor)
        write(f"Ask about the documents. {_CHAT_HELP}", style="dim")
    while True:
        try:
            message = input("\n> " if is_terminal else "").strip()
        except EOFError:
            return could_ask
        except KeyboardInterrupt:
            write("\n(Ctrl-D ends)", style="dim")
            continue
        if message in ("/quit", "/exit"):
            return could_ask
        if message == "/reset":
            engine.reset()
            citations = []
            write("A new conversation.", style="dim")
        elif message == "/sources":
            _print_sources(citations)
        elif message.startswith("/"):
            write(_CHAT_HELP, style="dim")
        elif message:
            try:
                citations = _answer(engine, message)
            except Exception as error:
                print_error(error)
                could_ask = False


def _answer(engine: PropositionChatEngine, message: str) -> list[dict[str, object]]:
    """Print an answer as it comes, and return what it cites; Ctrl-C stops it."""
    metadata: dict[str, list[dict[str, object]]] = {}
    pieces = None
    try:
        response = engine.stream_chat(message)
        metadata, pieces = response.metadata, response.response_gen
        for piece in pieces:
            print(plain(piece), end="", flush=True)
        print(flush=True)
    except KeyboardInterrupt:
        if pieces is not None:
            pieces.close()
        print(" (stopped)", flush=True)
    return metadata.get("citations", [])


def _print_sources(citations: list[dict[str, object]]) -> None:
    if not citations:
        write("The last answer cites nothing.", style="dim")
    for citation in citations:
        write(f"{name_of(citation)} ({citation['document']})", bullet=f"[^{citation['number']}] ")
        for fact in citation["propositions"]:  # type: ignore[attr-defined]
            write(fact["text"], indent=5, bullet="- ")


# `densex demo`: the repository's documents, its recorded propositions, and 60 questions with their answers.

_DATA = Path(__file__).parents[2] / "data"  # of a source checkout
_LANGUAGES = {"en": ("English", 200), "ja": ("Japanese", 400)}  # with words that are read; of Japanese, characters
_SHOWN_QUESTIONS = (
    "For what medical reason was the astronaut Ken Mattingly not allowed to fly on Apollo 13?",
    "Which star will Voyager 1 go near tens of thousands of years from now?",
    "ドウデュースの主な勝ち鞍を教えて。",
    "青函トンネルは入り口から出口まで、全部で何キロメートルの長さがありますか。",
)


def show_demo(data: Path | None, mode: str) -> None:
    """Run the demonstration.

    Args:
        data: The data folder; None means the one beside the package.
        mode: The retrieval mode.

    Raises:
        FileNotFoundError: The data is not there.
        ValueError: A line of the questions is no question.
    """
    data = _DATA if data is None else data
    if not (data / "questions.jsonl").exists():
        raise FileNotFoundError(
            f"the demonstration's data is not in {data}: it is in the repository and not in the installed package. "
            "Clone the repository and run `densex demo` there, or pass --data FOLDER"
        )
    asked = {language: read_questions(data / "questions.jsonl", language=language).questions for language in _LANGUAGES}
    with waiting("Indexing in memory"):
        pack = DenseXRetrievalPack(
            PathDocuments([data / language for language in _LANGUAGES]),
            propositionizer=RecordedPropositionizer(data / "propositions.jsonl"),
            query_llm=NONE,
            embed_model=NONE,
            mode=cast(Mode, mode),
        )
    write(f"An index in memory, nothing is written: {pack.counts()}. Propositions are recorded. Mode {mode}; no LLM.")
    for shown in _SHOWN_QUESTIONS:
        write()
        print_heading(shown)
        print_answer(answer_question(pack, shown, top_k=2))
    hits = dict.fromkeys(_LANGUAGES, 0)
    context = PropositionContextPostprocessor(budget=None)
    with waiting("Asking all questions"):
        for language, questions in asked.items():
            for question in questions:
                read = [node.node.get_content() for node in context.postprocess_nodes(pack.retrieve(question.text))]
                needed = length_until_answer(read, question.answers, language)
                hits[language] += needed is not None and needed <= _LANGUAGES[language][1]
    write()
    print_heading("Questions with an accepted answer in the context")
    write(
        "Counted where it is in the first 200 words (Japanese: 400 characters) of what a reader gets: the found "
        "propositions, then their passages.",
    )
    for language, (name, _) in _LANGUAGES.items():
        write(f"{name:<9} {hits[language]} of {len(asked[language])}", indent=2)
    write(f"in all    {sum(hits.values())} of {sum(map(len, asked.values()))}", indent=2)
