"""The commands and their options. The code behind a command is imported when it runs: `--help` is immediate.

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
HELP_HOPS = "2: also follow rare names from the passages found to other passages."
EMBED_NAMES = 'PROVIDER:NAME, a folder, "local", "minilm" or "ruri" (docs/embeddings.md)'
HELP_EMBED = f'{EMBED_NAMES}, or "none": keyword search only.'
DEFAULT_EMBED = "multilingual-e5-small if it is on this machine, else none."
HELP_LLM = (
    "an OpenAI model, or azure:DEPLOYMENT, bedrock:NAME, anthropic:NAME, google:NAME, ollama:NAME, "
    "openai-like:NAME, huggingface:NAME"
)
UNITS = ("proposition", "sentence", "passage", "question")
Mode = Literal["recursive", "auto_merging", "auto-merging"]

_MAKE = "Build an index"
_ASK = "Ask questions"
_SERVE = "Serve an index"
_KEEP = "Inspect and maintain an index"
_MEASURE = "Measure"


class _PlainGroup(TyperGroup):
    """A group of commands that strips terminal control sequences from arguments quoted in usage errors."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = one_line(error.message)
            raise


class _App(typer.Typer):
    """An application that strips terminal control sequences from tracebacks."""

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
    help="Write propositions through OpenAI's Batch API: half the price, within a day.",
    no_args_is_help=True,
)
app.add_typer(batch, name="batch", rich_help_panel=_MAKE)


def _print_version(is_given: bool) -> None:
    if is_given:
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
        """Print a result: as JSON with --json, else by `print_text`."""
        if self.as_json:
            print_json(result)
        else:
            print_text(result)


class OfIndex(Command):
    place: str = argument("DIR|URL", "The index's folder, or its store's URL.")

    @property
    def index(self) -> IndexPlace:
        """The place of the index."""
        from llama_pack_densex.cli.places import IndexPlace

        return IndexPlace.of(self.place)


class OfFolder(OfIndex):
    place: str = argument("DIR", "The index's folder.")


class WithApiBase(Command):
    api_base: str | None = option(
        "URL  Address of the server of openai-like:, ollama: or openai: models."
    )


class Opening(OfIndex):
    embed_model: str | None = option(
        "MODEL  The index's embedding model. Name it if it is at an address or in a folder that you trust."
    )


class Answering(WithApiBase, Opening):
    query_llm: str | None = option(
        f'--query-llm --llm --llm-model NAME  LLM that answers: {HELP_LLM}; "none": quote passages. '
        "Default: gpt-4o-mini if there is a key.",
    )


class WithTopK(Command):
    top_k: int | None = option(
        "N  Passages to retrieve. Default: the index's; for a new one 4.", min=1
    )


class Searching(Answering, WithTopK):
    filters: list[str] = option(
        "--filter K=V  Only documents with this metadata; also !=, >=, <=, >, <.", []
    )


class WithPrices(Command):
    prices: Path | None = option(
        "FILE  JSON file with your own prices, in US dollars per million tokens: "
        '{"gpt-4o-mini": {"input": 0.15, "output": 0.6}}.',
    )


class Ingesting(WithPrices):
    paths: list[Path] = argument("PATH", "Folders, files (text, HTML, PDF, ...), datasets.")
    mode: Mode | None = option(f"MODE  {HELP_MODE} Default: the index's; for a new one recursive.")
    llm: str | None = option(
        f'--llm --llm-model NAME  LLM that writes propositions: {HELP_LLM}; "none": use sentences. '
        "Default: gpt-4o-mini."
    )
    questions: bool | None = option(
        "--questions  The LLM also writes questions that passages are found by; costs a third more, in "
        "Japanese nearly half."
    )
    include: list[str] = option(
        "GLOB  Also read files like these, although they are code or data: '*.csv'.", []
    )
    exclude: list[str] = option(
        "GLOB  Leave out files and folders like these: 'drafts', 'notes/*.txt'.", []
    )
    strict: bool = option(
        "--strict  Stop if a file cannot be read. Default: report it, and continue.", False
    )


def _unit(name: str) -> str:
    if name not in UNITS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(UNITS)}")
    return name


class WithRates(WithApiBase):
    max_concurrency: int | None = option(
        "N  Requests at a time. Default: 8, or as many as the limits below take.", min=1
    )
    requests_per_minute: float | None = option("N  The provider's limit of requests.", min=0.001)
    tokens_per_minute: float | None = option("N  The provider's limit of tokens.", min=1)


class IngestingByRequests(Ingesting, WithRates):
    embed_model: str | None = option(
        f"MODEL  {HELP_EMBED} Default: the index's; for a new one {DEFAULT_EMBED}"
    )
    granularity: list[str] | None = option(
        f"UNIT  Units to search: {', '.join(UNITS)}; may be repeated. Default: the index's; for a new one "
        "all.",
        parser=_unit,
    )


class Spending(Command):
    max_cost: float | None = option(
        "N  US dollars at which each LLM stops in a run; replies so far are kept.", min=0
    )
    yes: bool = option(
        "--yes -y  Do not ask before money is spent. With --max-cost, nothing is asked either.",
        False,
    )

    @property
    def has_own_limit(self) -> bool:
        """Whether --max-cost was given by the user, not by a configuration file."""
        return self.max_cost is not None and "max_cost" not in self.configured


class Ranking(Command):
    keep_identical_ids: bool = option(
        "--keep-identical-ids  Also rank documents that have the question's id. Default: leave them out as "
        "the question itself.",
        False,
    )


class Evaluating(Ranking, Spending, WithApiBase):
    reader_model: str | None = option(
        "NAME  LLM that answers from each context, for EM and F1; named as for --llm."
    )
    judge_model: str | None = option("NAME  LLM that judges the answers by the RAG triad.")
    trulens: Path | None = option("FILE  Let TruLens judge, and record it in this SQLite file.")
    out: Path | None = option(
        "DIR  Folder for report.json, .csv and .html; embeddings and replies are kept there."
    )
    language: str | None = option(
        'CODE  Language of the questions: "en", "ja", ... Default: detected.'
    )
    limit: int | None = option("N  Use the first N questions only.", min=1)


@command(app, _MAKE, "index", "ingest:index_paths")
class IndexCommand(WithJson, IngestingByRequests, Spending):
    """Index documents; when run again, update the changed ones and remove the deleted ones.

    The index's folder keeps the LLM's replies, and the outcome of each document in ingestion_report.json: if
    the command was stopped, run it again and it continues where it was. With a URL there is no such folder:
    complete documents are in the store, and the LLM is asked again for the others.
    """

    to: str = option(
        "DIR|URL  The index's folder, or a store: chroma://, qdrant://, milvus://, postgresql://, faiss:// "
        "(docs/stores.md).",
        REQUIRED,
    )
    propositionizer: str | None = option(
        f"KIND  {KINDS}. Default: the index's; for a new one llm if there is a key, else sentence."
    )
    strictness: Literal["off", "flag", "repair"] | None = option(
        "HOW  What to do with propositions that fail a check: flag (the default), repair (ask once more), or "
        "off."
    )
    hops: int | None = option(
        f"N  {HELP_HOPS} Default: the index's; for a new one 1.", min=1, max=2
    )
    max_tokens_total: int | None = option("N  Stop after N tokens, sent and received.", min=0)


@command(app, _MAKE, "estimate", "ingest:estimate_paths")
class EstimateCommand(WithJson, IngestingByRequests, Spending):
    """Estimate what indexing will take: requests, tokens, money, time and number of nodes.

    Nothing is sent, except for the passages of --sample.
    """

    to: str | None = option(
        "DIR|URL  An index, whose documents and cached replies are not counted again."
    )
    sample: int = option(
        "N  Send N passages to the LLM to correct the estimate; costs money.", 0, min=0
    )


@command(app, _ASK, "query", "search:query_index")
class QueryCommand(WithJson, Searching):
    """Answer a question from an index, and show the passages with the propositions that found them."""

    question: str = argument("QUESTION", "The question.")
    mode: Mode | None = option(f"MODE  {HELP_MODE} Default: the index's.")
    hops: int | None = option(f"N  {HELP_HOPS} Default: the index's.", min=1, max=2)
    context: Literal["propositions+passages", "propositions", "passages", "window"] | None = option(
        "CONTEXT  Also show what an LLM reads: propositions+passages, propositions, passages or window."
    )
    rerank: str | None = option("MODEL  Cross-encoder that reranks the passages.")


@command(app, _ASK, "chat", "chat:talk")
class ChatCommand(Searching):
    """Chat with an index: one question per line, in the terminal or from a pipe.

    /sources shows what the last answer cites, /reset starts a new conversation, Ctrl-C stops an answer, and
    Ctrl-D or /quit ends the chat.
    """


@command(app, _SERVE, "mcp", "serve:serve_agents")
class McpCommand(Opening):
    """Serve an index to agents as tools, by the Model Context Protocol over standard input and output.

    An agent's program starts this command itself: see docs/agents.md.
    """


@command(app, _SERVE, "serve", "serve:serve_pages")
class ServeCommand(Answering):
    """Serve an index over HTTP: a web page for questions and searches, and a JSON API (docs/serving.md)."""

    host: str = option(
        "ADDRESS  Address to listen on; one that other machines can reach needs --token.",
        "127.0.0.1",
    )
    port: int = option("N  Port; 0 for any free one.", 8000, min=0, max=65_535)
    token: str | None = option("TOKEN  Token that requests must carry.", envvar="DENSEX_TOKEN")
    allow_host: list[str] = option(
        "NAME  Name of the server, besides localhost; may be repeated.", []
    )
    rate: float | None = option(
        "N  Requests per minute and client; 0: no limit. Default: 240 with a token, else no limit.",
        min=0,
    )


@command(app, _KEEP, "inspect", "inspect:inspect_index")
class InspectCommand(WithJson, OfIndex):
    """Show an index's passages with their propositions and statuses."""

    passage: str | None = option("ID  Only this passage; the beginning of its id will do.")
    documents: list[str] = option("--document ID  Only this document; may be repeated.", [])
    status: Literal["ok", "repaired", "fallback"] | None = option(
        "STATUS  Only passages of this status: ok, repaired or fallback.",
    )
    search: str = option("TEXT  Only passages that contain this text, or whose units do.", "")
    findings: bool = option("--findings  Only passages with findings of the checks.", False)
    limit: int = option("N  Passages to show; 0 for all.", 10, min=0)


@command(app, _KEEP, "export", "inspect:export_index")
class ExportCommand(OfIndex):
    """Print an index's passages and propositions as JSON lines.

    densex index --propositionizer recorded:FILE reads them back: the same documents get the same
    propositions, without an LLM.
    """


@command(app, _KEEP, "delete", "inspect:delete_documents")
class DeleteCommand(WithJson, Opening):
    """Delete documents from an index."""

    documents: list[str] = argument(
        "DOCUMENT", "Document ids, as inspect shows them; a file's id means all its pages."
    )
    purge: bool = option("--purge  Also erase their text from the folder's files.", False)


@command(app, _ASK, "demo", "demo:run_demo")
class DemoCommand(WithJson):
    """Index the sample documents in memory, answer four questions, and count how many of 60 can be answered.

    Exits with code 1 if fewer than 80 % can be answered.
    """

    mode: Mode = option(f"MODE  {HELP_MODE}", "recursive")


@command(app, _KEEP, "check", "inspect:check")
class CheckCommand(WithJson, OfFolder):
    """Check an index: its links, documents, embeddings and keyword search.

    Exits with code 1 if something is wrong and was not repaired.
    """

    repair: bool = option("--repair  Repair the index; incomplete documents are removed.", False)


@command(app, _KEEP, "compact", "inspect:compact")
class CompactCommand(WithJson, OfFolder):
    """Free the space of deleted and replaced documents, and erase them from the index's files."""


@command(app, _MEASURE, "questions", "questions:write_questions")
class QuestionsCommand(WithJson, WithRates, Spending, WithPrices):
    """Have an LLM write questions about your own documents, for compare and evaluate.

    Replies are kept beside the file: if the command was stopped, run it again and it continues where it was.

    Exits with code 1 if no question can be used.
    """

    documents: Path = argument("DIR", "The documents' folder, or a file.")
    out: Path = option("FILE  File for the questions, in JSONL.", REQUIRED)
    number: int = option("N  Questions to write; small folders give fewer.", 50, min=1)
    max_concurrency: int = option("N  Requests at a time.", 8, min=1)
    llm: str | None = option(
        f"--llm --llm-model NAME  LLM that writes the questions: {HELP_LLM}. Default: gpt-4o-mini."
    )
    estimate: bool = option("--estimate  Send nothing; show what it would cost.", False)


@command(app, _MEASURE, "compare", "compare:compare_strategies")
class CompareCommand(WithJson, Evaluating):
    """Compare retrieval strategies, LlamaIndex's and ours, on a dataset or your own documents and questions.

    Exits with code 1 if all answers or all verdicts of an LLM failed.
    """

    dataset: Path = argument(
        "DATASET",
        "SQuAD's JSON, a BEIR folder, ... (docs/evaluation.md), or a file of questions.",
    )
    documents: Path | None = option("PATH  Folder or TSV of documents, if DATASET has none.")
    strategies: str | None = option("NAMES  Such as densex,vector-256,bm25. Default: all.")
    embed_model: str | None = option(f"MODEL  {HELP_EMBED} Default: {DEFAULT_EMBED}")
    propositionizer: str | None = option(f"KIND  {KINDS}. Default: no propositions.")
    llm: str | None = option(
        "--llm --llm-model NAME  LLM for propositions (--propositionizer llm) and contextual headers: "
        f"{HELP_LLM}."
    )


@command(app, _MEASURE, "evaluate", "compare:evaluate_index")
class EvaluateCommand(WithJson, Evaluating, Answering, WithTopK):
    """Ask an index questions, and measure the contexts that it retrieves, its answers and their sources.

    Exits with code 1 if all answers or all verdicts of an LLM failed.
    """

    questions: Path = argument(
        "QUESTIONS", "A file of questions or a dataset, as for compare; its documents are not read."
    )
    estimate: bool = option("--estimate  Send nothing; show what it would cost.", False)


@command(app, _MEASURE, "score", "scores:score")
class ScoreCommand(WithJson, Ranking):
    """Score runs against relevance labels by nDCG@10 and MRR@10, and compare each pair of runs."""

    qrels: Path = option("FILE  Relevance labels: TREC text, BEIR's TSV, or ranx's JSON.", REQUIRED)
    runs: list[Path] = option(
        "--run FILE  A run: TREC text, or ranx's JSON or lz4. Repeat it for each run.",
        REQUIRED,
    )


@command(app, _MEASURE, "score-propositions", "scores:score_propositions")
class ScorePropositionsCommand(WithJson, Spending):
    """Score propositions against a reference for the same passages by precision, recall and F1 (the paper's).

    Each proposition counts with its similarity to the most similar one of the other side; passages that only
    the reference has count as 0.
    """

    predicted: str = option(
        f"FILE|KIND  A recorded file (JSONL), or the propositionizer that makes them: {KINDS}.",
        REQUIRED,
    )
    reference: Path = option(
        "FILE  A recorded file: title, text and propositions, one passage per line.",
        REQUIRED,
    )
    embed_model: str | None = option(f"MODEL  Embedding model for the cosines: {EMBED_NAMES}.")
    bert_score: str | None = option(
        "MODEL  For BERTScore instead, such as roberta-large (the paper's)."
    )
    num_layers: int | None = option("N  BERTScore's layer, if not the model's default.", min=1)


@command(batch, None, "export", "batch:export_requests")
class BatchExportCommand(WithJson, Ingesting):
    """Write request files for the passages whose propositions are still to be written.

    Nothing is sent, and no key is needed. The files contain the documents' text; only you can read them.
    """

    to: str = option("DIR  The index's folder; it need not exist yet.", REQUIRED)
    out: Path = option("FOLDER  Folder for the request files.", REQUIRED)
    requests_per_file: int = option(
        "N  Requests per file; fewer if OpenAI's queue limit is low.", 50_000, min=1, max=50_000
    )
    force: bool = option("--force  Replace the request files of an earlier export.", False)


@command(batch, None, "import", "batch:import_results")
class BatchImportCommand(WithJson, WithPrices):
    """Import the replies from result files; densex index then finishes the index with them.

    Lines that cannot be used are counted; densex index sends their requests directly. Importing a file twice
    changes nothing. Exits with code 1 if no line can be used.
    """

    files: list[Path] = argument(
        "FILE",
        "Output and error files of the Batch API.",
        exists=True,
        dir_okay=False,
    )
    to: str = option("DIR  The index's folder, as for the export.", REQUIRED)
