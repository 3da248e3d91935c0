"""The commands: what is done for them is imported when they run, so that `--help` takes no time.

Options that several commands share belong to a base class, so that each is declared once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from llama_pack_densex.cli.command import (
    CONFIGURABLE,
    REQUIRED,
    Command,
    argument,
    command,
    option,
    options_of,
)
from llama_pack_densex.cli.output import print_json, session
from llama_pack_densex.text.terminal import one_line, plain

if TYPE_CHECKING:
    from llama_pack_densex.cli.places import IndexPlace

KINDS = "llm, sentence, recorded:FILE or seq2seq[:MODEL]"
HELP_MODE = "How propositions lead to passages: recursive or auto_merging."
HELP_HOPS = "2: questions go on from what they find to what shares a rare name with it."
HELP_EMBED = (
    'PROVIDER:NAME, a folder, "local", "minilm", "ruri" (docs/embeddings.md), or "none": by words.'
)
DEFAULT_EMBED = "multilingual-e5-small if it is here, else none."
HELP_LLM = (
    "an OpenAI model, or azure:DEPLOYMENT, bedrock:NAME, anthropic:NAME, google:NAME, ollama:NAME, "
    "openai-like:NAME, huggingface:NAME"
)
UNITS = ("proposition", "sentence", "passage", "question")
Mode = Literal["recursive", "auto_merging", "auto-merging"]

_MAKE = "Make an index"
_ASK = "Ask it"
_SERVE = "Serve it"
_KEEP = "Look inside and keep it in order"
_MEASURE = "Measure"


class _PlainGroup(TyperGroup):
    """Commands whose usage errors quote arguments, such as file names, without what steers a terminal."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = one_line(error.message)
            raise


class _App(typer.Typer):
    """An application whose tracebacks do not steer a terminal either."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            sys.stderr.write(plain("".join(traceback.format_exception(error))))
            raise SystemExit(1) from None


app = _App(
    name="densex",
    cls=_PlainGroup,
    help="Dense X Retrieval: search propositions, read the passages they came from.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
batch = typer.Typer(
    help="Make propositions through OpenAI's Batch API: half the price, within a day.",
    no_args_is_help=True,
)
app.add_typer(batch, name="batch", rich_help_panel=_MAKE)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"densex {installed_version('llama-pack-densex')}")
        raise typer.Exit


Version = typer.Option(
    "--version", metavar="", help="Print the version.", callback=_print_version, is_eager=True
)


@app.callback()
@session()
def main(context: typer.Context, version: Annotated[bool, Version] = False) -> None:
    own_file = os.environ.get("DENSEX_CONFIG")
    path = Path(own_file or "densex.toml")
    name = context.invoked_subcommand
    if name in CONFIGURABLE and (own_file or path.exists()):
        from llama_pack_densex.cli.configuration import read_options

        options = options_of(context, name)
        context.default_map = {name: read_options(path, name, options)}


class WithJson(Command):
    as_json: bool = option("--json  Print JSON.", False)

    def show(self, result: Any, print_text: Callable[[Any], None]) -> None:
        """Print a result as JSON where that was asked for, else for people."""
        if self.as_json:
            print_json(result)
        else:
            print_text(result)


class OfIndex(Command):
    place: str = argument("DIR|URL", "The index's folder, or its store's URL.")

    @property
    def index(self) -> IndexPlace:
        """Where the index is."""
        from llama_pack_densex.cli.places import IndexPlace

        return IndexPlace.of(self.place)


class OfFolder(OfIndex):
    place: str = argument("DIR", "The index's folder.")


class WithApiBase(Command):
    api_base: str | None = option("URL  Where openai-like:, ollama: or openai: models are served.")


class Opening(OfIndex):
    embed_model: str | None = option(
        "MODEL  The index's model, where it is at an address or in a folder: these have to be named by you."
    )


class Answering(WithApiBase, Opening):
    query_llm: str | None = option(
        f'--query-llm --llm --llm-model NAME  Answers: {HELP_LLM}; "none" quotes passages. '
        "Default: gpt-4o-mini if there is a key.",
    )


class WithTopK(Command):
    top_k: int | None = option("N  Passages to retrieve. Default: the index's, at first 4.", min=1)


class Searching(Answering, WithTopK):
    filters: list[str] = option(
        "--filter K=V  Where it holds in the metadata; !=, >=, <=, >, < too.", []
    )


class WithPrices(Command):
    prices: Path | None = option(
        "FILE  JSON of your own prices, in US dollars for a million tokens: "
        '{"gpt-4o-mini": {"input": 0.15, "output": 0.6}}.',
    )


class Ingesting(WithPrices):
    paths: list[Path] = argument("PATH", "Folders, files (text, HTML, PDF, ...), datasets.")
    mode: Mode | None = option(f"MODE  {HELP_MODE} Default: the index's; at first recursive.")
    llm: str | None = option(
        f'--llm --llm-model NAME  Makes propositions: {HELP_LLM}; "none": sentences. Default: gpt-4o-mini.'
    )
    questions: bool | None = option(
        "--questions  The LLM writes questions too, which find passages: +33 % cost, in Japanese +45 %."
    )
    include: list[str] = option(
        "GLOB  Read such files too, though they are code or data: '*.csv'.", []
    )
    exclude: list[str] = option(
        "GLOB  Leave out such files and folders: 'drafts', 'notes/*.txt'.", []
    )
    strict: bool = option(
        "--strict  Refuse files that cannot be read. Default: name them, and go on.", False
    )


def _unit(name: str) -> str:
    if name not in UNITS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(UNITS)}")
    return name


class WithRates(WithApiBase):
    max_concurrency: int | None = option(
        "N  Requests at a time. Default: 8, or what the rates take.", min=1
    )
    requests_per_minute: float | None = option("N  What the LLM's provider allows.", min=0.001)
    tokens_per_minute: float | None = option("N  What the LLM's provider allows.", min=1)


class IngestingByRequests(Ingesting, WithRates):
    embed_model: str | None = option(
        f"MODEL  {HELP_EMBED} Default: the index's; at first {DEFAULT_EMBED}"
    )
    granularity: list[str] | None = option(
        f"UNIT  Units to search: {', '.join(UNITS)}; any number of times. Default: the index's, or all.",
        parser=_unit,
    )


class Spending(Command):
    max_cost: float | None = option(
        "N  US dollars each LLM stops at in a run; what was paid is kept.", min=0
    )
    yes: bool = option(
        "--yes -y  Spend what it takes without asking. --max-cost does not ask either.", False
    )

    @property
    def has_own_limit(self) -> bool:
        """Whether the user, and not a configuration file, said what may be spent."""
        return self.max_cost is not None and "max_cost" not in self.configured


class Ranking(Command):
    keep_identical_ids: bool = option(
        "--keep-identical-ids  Rank documents that have the question's id, too; they are the question "
        "itself.",
        False,
    )


class Evaluating(Ranking, Spending, WithApiBase):
    reader_model: str | None = option(
        "NAME  An LLM, named as for --llm, that answers from each context, for EM and F1."
    )
    judge_model: str | None = option("NAME  An LLM that judges the answers by the RAG triad.")
    trulens: Path | None = option("FILE  Have TruLens judge, and record it in this SQLite file.")
    out: Path | None = option(
        "DIR  For report.json, .csv and .html; embeddings and replies are kept there."
    )
    language: str | None = option('CODE  Of the questions: "en", "ja", ... Default: detected.')
    limit: int | None = option("N  Take the first N questions.", min=1)


@command(app, _MAKE, "index", "ingest:index_paths")
class IndexCommand(WithJson, IngestingByRequests, Spending):
    """Index documents; of those indexed before, only changed ones are done again, and deleted ones removed.

    Replies of the LLM are kept in the index's folder, and what became of each document is in its
    ingestion_report.json: after a stop, the same command goes on where it was. With a URL there is no such
    folder: documents that were complete are in the store, the others are asked for again.
    """

    to: str = option(
        "DIR|URL  The index's folder, or a store: chroma://, qdrant://, milvus://, postgresql://, faiss:// "
        "(docs/stores.md).",
        REQUIRED,
    )
    propositionizer: str | None = option(f"KIND  {KINDS}. Default: the index's; with a key llm.")
    strictness: Literal["off", "flag", "repair"] | None = option(
        "HOW  Propositions that checks find fault with: flag (the default), repair (ask once more), or off."
    )
    hops: int | None = option(f"N  {HELP_HOPS} Default: the index's; at first 1.", min=1, max=2)
    max_tokens_total: int | None = option("N  Tokens to stop at, sent and received.", min=0)


@command(app, _MAKE, "estimate", "ingest:estimate_paths")
class EstimateCommand(WithJson, IngestingByRequests, Spending):
    """Estimate what indexing will take: requests, tokens, money, time, and how many nodes there will be.

    No request is made but those of a sample.
    """

    to: str | None = option("DIR|URL  An index: its documents and replies do not count.")
    sample: int = option(
        "N  Really ask for N passages, to correct the rest; costs money.", 0, min=0
    )


@command(app, _ASK, "query", "search:query_index")
class QueryCommand(WithJson, Searching):
    """Answer a question from an index, and show the passages and the propositions that found them."""

    question: str = argument("QUESTION", "The question.")
    mode: Mode | None = option(f"MODE  {HELP_MODE} Default: the index's; at first recursive.")
    hops: int | None = option(f"N  {HELP_HOPS} Default: the index's; at first 1.", min=1, max=2)
    context: Literal["propositions+passages", "propositions", "passages", "window"] | None = option(
        "CONTEXT  Show what an LLM reads: propositions+passages, propositions, passages, window."
    )
    rerank: str | None = option("MODEL  A cross-encoder to score what was found.")


@command(app, _ASK, "chat", "chat:talk")
class ChatCommand(Searching):
    """Talk with an index: a question a line, in the terminal or from a pipe.

    /sources shows what the last answer cites, /reset begins anew, Ctrl-C stops an answer, Ctrl-D or /quit
    ends.
    """


@command(app, _SERVE, "mcp", "serve:serve_agents")
class McpCommand(Opening):
    """Serve an index to agents as tools: the Model Context Protocol over standard input and output.

    An agent's program starts this command itself: see docs/agents.md.
    """


@command(app, _SERVE, "serve", "serve:serve_pages")
class ServeCommand(Answering):
    """Serve an index: a page to ask and search on, and the same as JSON (docs/serving.md)."""

    host: str = option("ADDRESS  The address to listen on; others' with a token only.", "127.0.0.1")
    port: int = option("N  The port; 0 for any that is free.", 8000, min=0, max=65_535)
    token: str | None = option("TOKEN  What requests must bring.", envvar="DENSEX_TOKEN")
    allow_host: list[str] = option("NAME  A name of the server besides localhost.", [])
    rate: float | None = option("N  Requests a minute; 0: any. With a token, 240.", min=0)


@command(app, _KEEP, "inspect", "inspect:inspect_index")
class InspectCommand(WithJson, OfIndex):
    """Show an index's passages with their propositions and statuses."""

    passage: str | None = option("ID  Show this passage only; the beginning of its id will do.")
    documents: list[str] = option("--document ID  Show this document; any number of times.", [])
    status: Literal["ok", "repaired", "fallback"] | None = option(
        "STATUS  Of this status: ok, repaired, fallback.",
    )
    search: str = option("TEXT  Where this is in the passage or its units.", "")
    findings: bool = option("--findings  Where checks found something wrong.", False)
    limit: int = option("N  Passages to show; 0 for all.", 10, min=0)


@command(app, _KEEP, "export", "inspect:export_index")
class ExportCommand(OfIndex):
    """Print an index's passages and propositions as JSON lines.

    densex index --propositionizer recorded:FILE makes the same propositions of the same documents, without an
    LLM.
    """


@command(app, _KEEP, "delete", "inspect:delete_documents")
class DeleteCommand(WithJson, Opening):
    """Delete documents from an index."""

    documents: list[str] = argument(
        "DOCUMENT", "Ids, as inspect shows them; a file's means all its pages."
    )
    purge: bool = option("--purge  Erase their text from the folder's files too.", False)


@command(app, _ASK, "demo", "demo:run_demo")
class DemoCommand(WithJson):
    """Index the sample documents in memory, answer four questions, and count how many of 60 it can answer.

    Ends with exit code 1 where that is less than 80 %.
    """

    mode: Mode = option(f"MODE  {HELP_MODE}", "recursive")


@command(app, _KEEP, "check", "inspect:check")
class CheckCommand(WithJson, OfFolder):
    """Check an index: its links, its documents, its embeddings, its lexical side.

    Ends with exit code 1 where something is wrong that was not repaired.
    """

    repair: bool = option(
        "--repair  Repair it; documents that are not complete are removed.", False
    )


@command(app, _KEEP, "compact", "inspect:compact")
class CompactCommand(WithJson, OfFolder):
    """Give back the space of what was deleted and replaced, and erase it from the index's files."""


@command(app, _MEASURE, "questions", "questions:write_questions")
class QuestionsCommand(WithJson, WithRates, Spending, WithPrices):
    """Have an LLM write questions about your own documents, for compare and evaluate.

    Replies are kept beside the file: after a stop, the same command goes on where it was.

    Ends with exit code 1 where no question can be used.
    """

    documents: Path = argument("DIR", "The documents' folder, or a file.")
    out: Path = option("FILE  Where the questions go, JSONL.", REQUIRED)
    number: int = option("N  Questions that are wanted; small folders give fewer.", 50, min=1)
    max_concurrency: int = option("N  Requests at a time.", 8, min=1)
    llm: str | None = option(
        f"--llm --llm-model NAME  Writes them: {HELP_LLM}. Default: gpt-4o-mini."
    )
    estimate: bool = option("--estimate  Ask nothing; tell what that would cost.", False)


@command(app, _MEASURE, "compare", "compare:compare_strategies")
class CompareCommand(WithJson, Evaluating):
    """Compare ways of retrieving, LlamaIndex's and ours, on a dataset or on your own documents and questions.

    Ends with exit code 1 where all of something failed that an LLM was asked for.
    """

    dataset: Path = argument(
        "DATASET",
        "SQuAD's JSON, a BEIR folder, ... (docs/evaluation.md), or questions.",
    )
    documents: Path | None = option("PATH  A folder or TSV, if DATASET has questions alone.")
    strategies: str | None = option("NAMES  As densex,vector-256,bm25. Default: all.")
    embed_model: str | None = option(f"MODEL  {HELP_EMBED} Default: {DEFAULT_EMBED}")
    propositionizer: str | None = option(f"KIND  {KINDS}. Default: no propositions.")
    llm: str | None = option(
        f"--llm --llm-model NAME  Of propositions (--propositionizer llm) and contextual headers: {HELP_LLM}."
    )


@command(app, _MEASURE, "evaluate", "compare:evaluate_index")
class EvaluateCommand(WithJson, Evaluating, Answering, WithTopK):
    """Ask an index questions, and measure what it gives to read, what it answers, and from which sources.

    Ends with exit code 1 where all of something failed that an LLM was asked for.
    """

    questions: Path = argument(
        "QUESTIONS", "Questions or a dataset, as for compare; no documents are read."
    )
    estimate: bool = option("--estimate  Ask nothing; tell what that would cost.", False)


@command(app, _MEASURE, "score", "scores:score")
class ScoreCommand(WithJson, Ranking):
    """Score runs against relevance labels by nDCG@10 and MRR@10, and compare them pair by pair."""

    qrels: Path = option("FILE  Relevance labels: TREC text, BEIR's TSV, or ranx's JSON.", REQUIRED)
    runs: list[Path] = option(
        "--run FILE  A run: TREC text, or ranx's JSON or lz4. Give it once a run.",
        REQUIRED,
    )


@command(app, _MEASURE, "score-propositions", "scores:score_propositions")
class ScorePropositionsCommand(WithJson, Spending):
    """Score propositions against others of the same passages: precision, recall and F1 of two sets, as in the
    paper.

    For each proposition the most similar one of the other side counts; passages that only the reference has
    count as 0.
    """

    predicted: str = option(
        f"FILE|KIND  A recorded file (JSONL), or what is to make them: {KINDS}.",
        REQUIRED,
    )
    reference: Path = option(
        "FILE  A recorded file: title, text and propositions, a passage a line.",
        REQUIRED,
    )
    embed_model: str | None = option(f"MODEL  For cosines: {HELP_EMBED}")
    bert_score: str | None = option("MODEL  For BERTScore instead: roberta-large (the paper's).")
    num_layers: int | None = option("N  BERTScore's layer, if not its own choice.", min=1)


@command(batch, None, "export", "batch:export_requests")
class BatchExportCommand(WithJson, Ingesting):
    """Write request files for the passages of documents whose propositions are still to be made.

    Nothing is asked and no key is needed. The files hold the documents' text, and only you can read them.
    """

    to: str = option("DIR  The index's folder; it need not be there yet.", REQUIRED)
    out: Path = option("FOLDER  Where the request files go, a folder.", REQUIRED)
    requests_per_file: int = option("N  Fewer for a small queue.", 50_000, min=1, max=50_000)
    force: bool = option("--force  Replace the request files of an earlier export.", False)


@command(batch, None, "import", "batch:import_results")
class BatchImportCommand(WithJson, WithPrices):
    """Keep the replies in result files, for densex index to finish with.

    Lines that cannot be used are counted; densex index asks for them directly. A file that is imported twice
    changes nothing. Ends with exit code 1 where no line can be used.
    """

    files: list[Path] = argument(
        "FILE",
        "Output and error files of the Batch API.",
        exists=True,
        dir_okay=False,
    )
    to: str = option("DIR  The index's folder, as for the export.", REQUIRED)
