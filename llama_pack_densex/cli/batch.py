"""`densex batch`: propositions through OpenAI's Batch API, at half the price and within a day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llama_pack_densex.cli.choices import ModeChoice
from llama_pack_densex.cli.session import one_line, print_json, progress, session, stdout, waiting, warn

if TYPE_CHECKING:
    from llama_index.core.schema import BaseNode, Document
    from llama_index.llms.openai import OpenAI

    from llama_pack_densex.propositionizers.llm import LLMPropositionizer
    from llama_pack_densex.stores.manifest import Manifest

batch = typer.Typer(
    help="Make propositions through OpenAI's Batch API: half the price, within a day.", no_args_is_help=True
)

_PRICES_HELP = "Prices beside, or in place of, the package's own: JSON."


@batch.command("export")
def export(
    paths: Annotated[list[Path], typer.Argument(help="Folders and files, as for densex index.", metavar="PATH")],
    to: Annotated[Path, typer.Option("--to", help="The index's folder; it need not be there yet.", metavar="DIR")],
    out: Annotated[Path, typer.Option("--out", help="Where the request files go, a folder.", metavar="FOLDER")],
    llm_model: Annotated[
        str | None,
        typer.Option(
            help="The OpenAI model that is to make propositions. Default: gpt-4o-mini.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        ModeChoice | None,
        typer.Option(
            help="How propositions are to lead to passages. Default: the index's; at first recursive.",
            show_default=False,
        ),
    ] = None,
    passages_per_request: Annotated[
        int,
        typer.Option(min=1, max=100, help="As for densex index. A batch asks for each passage by itself.", metavar="N"),
    ] = 1,
    requests_per_file: Annotated[
        int,
        typer.Option(
            min=1, max=50_000, help="Fewer where the service says that too many tokens are queued.", metavar="N"
        ),
    ] = 50_000,
    prices: Annotated[Path | None, typer.Option(help=_PRICES_HELP, metavar="FILE", show_default=False)] = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Warn about files that cannot be read, and go on without them.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the request files of an earlier export.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write request files for the passages of documents whose propositions are still to be made.

    Nothing is asked and no key is needed. The files hold the documents' text, and only you can read them.
    """
    with session():
        from llama_pack_densex.cli.batch_printing import ExportReport, print_export
        from llama_pack_densex.cli.planning import document_hashes, planned_parser, unasked_llm
        from llama_pack_densex.ingestion.batch_files import RequestFiles
        from llama_pack_densex.ingestion.batching import export_requests
        from llama_pack_densex.llm_requests.prices import price_of, read_prices
        from llama_pack_densex.models import OPENAI_MODEL
        from llama_pack_densex.stores.manifest import Manifest, is_index

        table = read_prices(prices)
        documents = _Documents(paths, to, out, skip_unreadable)
        manifest = Manifest.read(to) if is_index(to) else None
        llm = unasked_llm(llm_model or OPENAI_MODEL)
        propositionizer = _propositionizer(llm, manifest, passages_per_request, to)
        parser = planned_parser(manifest, propositionizer, mode.value if mode else None)
        with RequestFiles(out, force=force, max_requests=requests_per_file) as files:
            counts = export_requests(
                documents, parser, files, indexed=document_hashes(to, manifest), on_failure=_warn_of_failure
            )
        documents.report()
        if not counts.documents and not counts.unchanged and not counts.failed:
            raise ValueError(f"{', '.join(map(str, paths))}: there is no file with any text")
        price = price_of(llm.model, table)
        cost = None if price is None else price.of(counts.expected, batch=True)
        report = ExportReport(
            folder=str(out),
            index=str(to),
            model=llm.model,
            counts=counts,
            blank=len(documents.blank),
            unreadable=documents.unreadable,
            files=tuple(files.written),
            cost=cost,
        )
        options = ["--skip-unreadable"] if skip_unreadable else []
        options += ["--mode", mode.value] if mode else []
        options += ["--passages-per-request", str(passages_per_request)] if passages_per_request > 1 else []
        print_json(report) if as_json else print_export(stdout(), report, [*map(str, paths), *options])


@batch.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            exists=True,
            dir_okay=False,
            readable=True,
            help="Output files of the Batch API; its error files may be among them.",
            metavar="FILE",
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="The index's folder, as for the export.", metavar="DIR")],
    prices: Annotated[Path | None, typer.Option(help=_PRICES_HELP, metavar="FILE", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Keep the replies in result files, for densex index to finish with.

    Lines that cannot be used are counted; densex index asks for them directly. A file that is imported twice changes
    nothing. Ends with exit code 1 where no line can be used.
    """
    with session():
        from llama_pack_densex.cli.batch_printing import print_import
        from llama_pack_densex.ingestion.batching import import_results
        from llama_pack_densex.llm_requests.prices import read_prices
        from llama_pack_densex.llm_requests.reply_cache import ReplyCache
        from llama_pack_densex.stores.folder import REPLIES_FILE, IndexFolder

        table = read_prices(prices)
        IndexFolder(to)  # says so if the folder cannot be used
        with waiting("Importing"):
            report = import_results(files, ReplyCache(to / REPLIES_FILE), table)
        print_json(report) if as_json else print_import(stdout(), report, str(to))
        if not report.imported and not report.already_there:
            raise typer.Exit(1)


class _Documents:
    """The documents of files, one after the other; what is wrong with some is kept to be told."""

    def __init__(self, paths: Sequence[Path], to: Path, out: Path, skip_unreadable: bool) -> None:
        from llama_pack_densex.cli.datasets import split_datasets
        from llama_pack_densex.reading import Unreadable, document_ids, find_files
        from llama_pack_densex.stores.folder import IndexFolder

        IndexFolder(to)  # says so if the folder cannot be used
        _check_out(out, paths, to)
        self._from_datasets, rest = split_datasets(paths)
        self._files, unlisted = find_files(rest, leave_out=[to])
        self._ids = document_ids(self._files, {})
        self._skip_unreadable = skip_unreadable
        self._unreadable: list[Unreadable] = []
        self.blank: list[str] = []
        for one in unlisted:
            self._note(one)

    @property
    def unreadable(self) -> int:
        """Files that were skipped."""
        return len(self._unreadable)

    def __iter__(self) -> Iterator[Document]:
        from llama_pack_densex.reading import UnreadableFileError, read_file

        yield from self._from_datasets
        with progress("Reading files") as bar:
            for file in bar.track(self._files):
                try:
                    documents = read_file(file.path, self._ids[file.path])
                except UnreadableFileError as error:
                    self._note(error.unreadable)
                    continue
                self.blank += (document.id_ for document in documents if not document.text.strip())
                yield from (document for document in documents if document.text.strip())

    def report(self) -> None:
        """Warn of what was left out."""
        for unreadable in self._unreadable:
            warn(f"skipped: {one_line(str(unreadable.path))} {unreadable.reason}")
        for document_id in self.blank:
            warn(f"no text in {one_line(document_id)}")

    def _note(self, unreadable: Any) -> None:
        if not self._skip_unreadable:
            where = one_line(str(unreadable.path))
            raise ValueError(f"{where} {unreadable.reason} (or skip such files with --skip-unreadable)")
        self._unreadable.append(unreadable)


def _check_out(out: Path, paths: Sequence[Path], to: Path) -> None:
    folder = out.resolve()
    if folder.is_relative_to(to.resolve()):
        raise ValueError(f"{out} is in the index's folder, which is for the index alone: give another one")
    for path in paths:
        if path.is_dir() and folder.is_relative_to(path.resolve()):
            raise ValueError(f"{out} is below {path}, and its files would be indexed: give a folder elsewhere")


def _propositionizer(llm: OpenAI, manifest: Manifest | None, passages_per_request: int, to: Path) -> LLMPropositionizer:
    """What `densex index` will make propositions with, and the replies that are kept.

    Raises:
        ValueError: The model is not known, or the index needs no propositions.
    """
    from llama_pack_densex.propositionizers.llm import LLMPropositionizer
    from llama_pack_densex.stores.folder import REPLIES_FILE

    try:
        _ = llm.metadata.context_window
    except ValueError as error:
        raise ValueError(
            f"{llm.model!r} is no model that llama-index-llms-openai knows: upgrade that package, or use "
            "export_requests of llama_pack_densex.ingestion.batching from Python"
        ) from error
    if manifest is not None and "proposition" not in manifest.granularity:
        raise ValueError(f"{to} is searched by {' and '.join(manifest.granularity)}: it needs no propositions")
    propositionizer = LLMPropositionizer(llm, passages_per_request=passages_per_request)
    return propositionizer.keeping_replies(to / REPLIES_FILE) if (to / REPLIES_FILE).exists() else propositionizer


def _warn_of_failure(document: BaseNode, error: ValueError) -> None:
    warn(f"left out: {one_line(document.id_)} cannot be split ({one_line(str(error))})")
