"""The commands and their options. What a command needs is imported when it runs: `--help` takes no time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from functools import partial, wraps
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from llama_pack_densex.cli.output import one_line, print_heading, print_json, session, waiting, write

_KINDS = "llm, sentence, recorded:FILE or seq2seq[:MODEL]"
_UNITS = ("proposition", "sentence", "passage", "question")
_CONTEXTS = "propositions+passages, propositions, passages, window"
_MODELS = ("llm", "query_llm", "reader_model", "judge_model", "embed_model")

app = typer.Typer(
    name="densex",
    help="Dense X Retrieval: search propositions, read the passages they came from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
batch = typer.Typer(
    help="Make propositions through OpenAI's Batch API: half the price, within a day.", no_args_is_help=True
)
app.add_typer(batch, name="batch")


def _command(of: typer.Typer = app, name: str | None = None) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """A command, named as the function: failures end it with a message, and False with exit code 1."""

    def made(function: Callable[..., object]) -> Callable[..., None]:
        @wraps(function)
        @session()
        def run(**options: Any) -> None:
            if function(**_served(options)) is False:
                raise typer.Exit(1)

        return of.command(name)(run)

    return made


def _served(options: dict[str, Any]) -> dict[str, Any]:
    """A command's options, where the names of models have the address of their server."""
    if options.get("api_base") is None:
        return options
    names = {option: options[option] for option in _MODELS if options.get(option) is not None}
    if {*names.values()} <= {"none"}:
        raise ValueError("--api-base needs a model that is served there: name one, as openai-like:qwen3:8b")
    from llama_pack_densex.llm.names import with_address

    return options | dict(zip(names, with_address(names.values(), options["api_base"]), strict=True))


def _option(usage: str, help: str, **more: Any) -> Any:
    """An option.

    Args:
        usage: As in "--to DIR": its names, where they are not made of the parameter's, and what stands for its value.
        help: What it does.
        **more: Of `typer.Option`.
    """
    names = [part for part in usage.split() if part.startswith("-")]
    metavar = next((part for part in usage.split() if part not in names), None)
    return typer.Option(*names, metavar=metavar, help=help, **more)


def _unit(name: str) -> str:
    if name not in _UNITS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(_UNITS)}")
    return name


def _llm(usage: str, what: str, remark: str = "") -> Any:
    models = "an OpenAI model, or openai-like:NAME, ollama:NAME, anthropic:NAME, google:NAME, huggingface:NAME"
    return _option(f"{usage} --llm --llm-model NAME", f"{what}: {models}{remark}.")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"densex {installed_version('llama-pack-densex')}")
        raise typer.Exit


_HELP_MODE = "How propositions lead to passages: recursive or auto_merging."
_HELP_EMBED = 'PROVIDER:NAME, a folder, "minilm" (English), "contriever", "ruri" (docs/search.md), or "none": by words.'
_DEFAULT_EMBED = "multilingual-e5-small if it is here, else none."
_HELP_PRICES = 'JSON of prices of your own, in $ for a million tokens: {"gpt-4o-mini": {"input": 0.15, "output": 0.6}}.'
_HELP_TO = "The index's folder, or a store: chroma://, qdrant://, milvus://, postgresql://, faiss:// (docs/stores.md)."
_HELP_UNITS = f"Units to search: {', '.join(_UNITS)}; any number of times. Default: the index's; at first all."
_HELP_QUESTIONS = "Have the LLM write questions too, by which passages are found; for half the price again."
_HELP_STRICTNESS = "Propositions that checks find fault with: flag (the default), repair (ask once more), or off."

Status = Literal["ok", "repaired", "fallback"]
Paths = Annotated[list[Path], typer.Argument(help="Folders, files (text, HTML, PDF, ...), datasets.", metavar="PATH")]
Place = Annotated[str, typer.Argument(help="The index's folder, or its store's URL.", metavar="DIR|URL")]
Json = Annotated[bool, _option("--json", "Print JSON.")]
ModeName = Literal["recursive", "auto_merging", "auto-merging"]
ContextMode = Literal["propositions+passages", "propositions", "passages", "window"]
Mode = Annotated[ModeName | None, _option("MODE", f"{_HELP_MODE} Default: the index's; at first recursive.")]
EmbedModel = Annotated[str | None, _option("MODEL", f"{_HELP_EMBED} Default: the index's; at first {_DEFAULT_EMBED}")]
PropositionLLM = Annotated[str | None, _llm("", "Makes propositions", '; "none": sentences. Default: gpt-4o-mini')]
ApiBase = Annotated[str | None, _option("URL", "Where openai-like: or ollama: models are served.")]
Granularity = Annotated[list[str] | None, _option("UNIT", _HELP_UNITS, parser=_unit)]
Questions = Annotated[bool | None, _option("--questions", _HELP_QUESTIONS)]
MaxConcurrency = Annotated[int | None, _option("N", "Requests at a time. Default: 8, or what the rates take.", min=1)]
RequestsPerMinute = Annotated[float | None, _option("N", "What the LLM's provider allows.", min=0.001)]
TokensPerMinute = Annotated[float | None, _option("N", "What the LLM's provider allows.", min=1)]
MaxCost = Annotated[float | None, _option("N", "US dollars that each LLM stops at; what was paid for is kept.", min=0)]
Prices = Annotated[Path | None, _option("FILE", _HELP_PRICES)]
Include = Annotated[list[str] | None, _option("GLOB", "Read such files too, though they are code or data: '*.csv'.")]
Exclude = Annotated[list[str] | None, _option("GLOB", "Leave out such files and folders: 'drafts', 'notes/*.txt'.")]
QueryLLM = Annotated[str | None, _llm("--query-llm", "Answers", '; "none" quotes. Default: gpt-4o-mini with a key')]
TopK = Annotated[int | None, _option("N", "Passages to retrieve. Default: the index's, at first 4.", min=1)]
Filters = Annotated[list[str] | None, _option("--filter K=V", "Where it holds in the metadata; !=, >=, <=, >, < too.")]
ReaderModel = Annotated[str | None, _option("NAME", "Such a model that answers from each context, for EM and F1.")]
JudgeModel = Annotated[str | None, _option("NAME", "Such a model that judges the answers by the RAG triad.")]
TruLens = Annotated[Path | None, _option("FILE", "Have TruLens judge, and record it in this SQLite file.")]
Out = Annotated[Path | None, _option("DIR", "For report.json, .csv and .html; embeddings and replies are kept there.")]
Language = Annotated[str | None, _option("CODE", 'Of the questions: "en", "ja", ... Default: told from them.')]
Limit = Annotated[int | None, _option("N", "Take the first N questions.", min=1)]
Strict = Annotated[bool, _option("--strict", "Refuse files that cannot be read. Default: name them, and go on.")]
Version = Annotated[bool, _option("--version", "Print the version.", callback=_print_version, is_eager=True)]


@app.callback()
def main(version: Version = False) -> None:
    pass


@_command()
def index(
    paths: Paths,
    to: Annotated[str, _option("--to DIR|URL", _HELP_TO)],
    propositionizer: Annotated[str | None, _option("KIND", f"{_KINDS}. Default: the index's; with a key llm.")] = None,
    mode: Mode = None,
    embed_model: EmbedModel = None,
    llm: PropositionLLM = None,
    api_base: ApiBase = None,
    granularity: Granularity = None,
    questions: Questions = None,
    strictness: Annotated[Literal["off", "flag", "repair"] | None, _option("HOW", _HELP_STRICTNESS)] = None,
    max_concurrency: MaxConcurrency = None,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    max_cost: MaxCost = None,
    max_tokens_total: Annotated[int | None, _option("N", "Tokens to stop at, sent and received.", min=0)] = None,
    prices: Prices = None,
    include: Include = None,
    exclude: Exclude = None,
    strict: Strict = False,
) -> bool:
    """Index documents; of those indexed before, only changed ones are done again, and deleted ones removed.

    Replies of the LLM are kept in the index's folder, and what became of each document is in its
    ingestion_report.json: after a stop, the same command goes on where it was. With a URL there is no such folder:
    documents that were whole are in the store, the others are asked for again.
    """
    from llama_pack_densex.cli.ingest import index_paths

    return index_paths(paths, to, locals())


@_command()
def estimate(
    paths: Paths,
    to: Annotated[str | None, _option("--to DIR|URL", "An index: its documents and replies do not count.")] = None,
    llm: Annotated[str, _llm("", "What makes propositions", '; "none" for sentences')] = "gpt-4o-mini",
    api_base: ApiBase = None,
    embed_model: EmbedModel = None,
    mode: Mode = None,
    granularity: Granularity = None,
    questions: Questions = None,
    max_concurrency: MaxConcurrency = None,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    prices: Prices = None,
    include: Include = None,
    exclude: Exclude = None,
    sample: Annotated[int, _option("N", "Really ask for N passages, to correct the rest; costs money.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Tell what indexing will take: requests, tokens, money, time, and how many nodes there will be.

    No request is made but those of a sample.
    """
    from llama_pack_densex.cli.ingest import estimate_paths, print_estimate

    found = estimate_paths(paths, to, locals(), sample)
    print_json(found) if as_json else print_estimate(found)


@_command()
def query(
    place: Place,
    question: Annotated[str, typer.Argument(help="The question.", metavar="QUESTION")],
    top_k: TopK = None,
    query_llm: QueryLLM = None,
    api_base: ApiBase = None,
    filters: Filters = None,
    mode: Mode = None,
    context: Annotated[ContextMode | None, _option("CONTEXT", f"Show what an LLM reads: {_CONTEXTS}.")] = None,
    rerank: Annotated[str | None, _option("MODEL", "A cross-encoder to score what was found.")] = None,
    as_json: Json = False,
) -> None:
    """Answer a question from an index, and show the passages and the propositions that found them."""
    if not question.strip():
        raise typer.BadParameter("it is blank", param_hint="QUESTION")
    from llama_index.core.postprocessor import SentenceTransformerRerank

    from llama_pack_densex.cli.places import IndexPlace
    from llama_pack_densex.cli.results import answer_question, metadata_filters, print_answer
    from llama_pack_densex.evaluation.runs import require

    with waiting("Searching"):
        if rerank is not None:
            require("sentence_transformers", "sentence-transformers", "--rerank", "huggingface")
        reranker = rerank and SentenceTransformerRerank(model=rerank, trust_remote_code=False)
        pack = IndexPlace.of(place).open_to_ask(query_llm=query_llm, mode=mode, context=context, reranker=reranker)
        chosen = metadata_filters(pack, filters)
        answer = answer_question(pack, question, top_k, chosen, context)
    advice = " (for a written one name an LLM with --query-llm, or set OPENAI_API_KEY)" if query_llm is None else ""
    print_json(answer) if as_json else print_answer(answer, advice)


@_command()
def chat(
    place: Place, top_k: TopK = None, query_llm: QueryLLM = None, api_base: ApiBase = None, filters: Filters = None
) -> bool:
    """Talk with an index: a question a line, in the terminal or from a pipe.

    /sources shows what the last answer cites, /reset begins anew, Ctrl-C stops an answer, Ctrl-D or /quit ends.
    """
    from llama_pack_densex.cli.places import IndexPlace
    from llama_pack_densex.cli.results import metadata_filters, talk

    with waiting("Opening"):
        pack = IndexPlace.of(place).open_to_ask(query_llm=query_llm)
        engine = pack.as_chat_engine(top_k, metadata_filters(pack, filters))
    return talk(engine)


@_command()
def mcp(place: Place) -> None:
    """Serve an index to agents as tools: the Model Context Protocol over standard input and output.

    An agent's program starts this command itself: see docs/serving.md.
    """
    from llama_pack_densex.cli.places import IndexPlace
    from llama_pack_densex.serving.mcp import make_mcp_server

    with contextlib.redirect_stdout(sys.stderr):  # standard output is the protocol's
        where = IndexPlace.of(place)
        server = make_mcp_server(where.open_to_ask(query_llm="none"))
        write(f"{one_line(where.name)} is served over standard input and output; Ctrl-C ends it.")
    for stop in (signal.SIGINT, signal.SIGTERM):  # the thread that waits for a line would have them wait too
        signal.signal(stop, signal.SIG_DFL)
    server.run("stdio")


@_command()
def serve(
    place: Place,
    host: Annotated[str, _option("", "The address to listen on; others' with a token only.")] = "127.0.0.1",
    port: Annotated[int, _option("", "The port; 0 for any that is free.", min=0, max=65_535)] = 8000,
    token: Annotated[str | None, _option("TOKEN", "What requests must bring.", envvar="DENSEX_TOKEN")] = None,
    allow_host: Annotated[list[str] | None, _option("NAME", "A name of the server besides localhost.")] = None,
    rate: Annotated[float | None, _option("", "Requests a minute; 0: any. With a token, 240.", min=0)] = None,
    query_llm: QueryLLM = None,
    api_base: ApiBase = None,
) -> None:
    """Serve an index: a page to ask and search on, and the same as JSON (docs/serving.md)."""
    from llama_pack_densex.cli.places import IndexPlace
    from llama_pack_densex.serving.app import listen, make_app, serve_app

    with listen(host, port, token) as listening:
        with waiting("Opening the index"):
            where = IndexPlace.of(place)
            pack = where.open_to_ask(query_llm=query_llm)
            name = Path(where.name).resolve().name
            web = make_app(pack, token, hosts=allow_host or (), requests_per_minute=rate, name=name)
        serve_app(web, listening, lambda url: typer.echo(f"Serving {where.name} on {url} (Ctrl-C stops)"))


@_command()
def inspect(
    place: Place,
    passage: Annotated[str | None, _option("ID", "Show this passage only; the beginning of its id will do.")] = None,
    documents: Annotated[list[str] | None, _option("--document ID", "Show this document; any number of times.")] = None,
    status: Annotated[Status | None, _option("STATUS", "Of this status: ok, repaired, fallback.")] = None,
    search: Annotated[str, _option("TEXT", "Where this is in the passage or its units.")] = "",
    findings: Annotated[bool, _option("--findings", "Where checks found something wrong.")] = False,
    limit: Annotated[int, _option("N", "Passages to show; 0 for all.", min=0)] = 10,
    as_json: Json = False,
) -> None:
    """Show an index's passages with their propositions and statuses."""
    from llama_pack_densex.cli.results import inspect_index, print_inspection

    inspection = inspect_index(place, passage, documents or (), status, search, limit or None, findings)
    print_json(inspection) if as_json else print_inspection(inspection)


@_command()
def export(place: Place) -> None:
    """Print an index's passages and propositions as JSON lines.

    densex index --propositionizer recorded:FILE makes the same propositions of the same documents, without an LLM.
    """
    from llama_pack_densex.cli.results import export_index

    for passage in export_index(place):
        print_json(passage, indent=None)


@_command()
def delete(
    place: Place,
    documents: Annotated[list[str], typer.Argument(help="Ids, as inspect shows them; a file's means all its pages.")],
    purge: Annotated[bool, _option("--purge", "Erase their text from the folder's files too.")] = False,
    as_json: Json = False,
) -> None:
    """Delete documents from an index."""
    from llama_pack_densex.cli.results import delete_documents, print_deletion

    with waiting("Deleting"):
        done = delete_documents(place, documents, purge)
    print_json(done) if as_json else print_deletion(place, done, purge)


@_command()
def demo(
    data: Annotated[Path | None, _option("DIR", "The repository's folder of data, if it is elsewhere.")] = None,
    mode: Annotated[ModeName, _option("MODE", _HELP_MODE)] = "recursive",
) -> None:
    """Index the repository's documents in memory, answer four questions, and count how many of 60 it can answer.

    Ends with exit code 1 where that is less than 80 %.
    """
    from llama_pack_densex.cli.results import show_demo

    show_demo(data, mode)


@_command()
def check(
    place: Place,
    repair: Annotated[bool, _option("--repair", "Mend it; documents that are not whole are removed.")] = False,
    as_json: Json = False,
) -> bool:
    """Check an index: its links, its documents, its embeddings, its lexical side.

    Ends with exit code 1 where something is wrong that was not mended.
    """
    from llama_pack_densex.cli.places import IndexPlace
    from llama_pack_densex.cli.results import print_check
    from llama_pack_densex.index.upkeep import check_index

    with waiting("Checking"):
        report = check_index(IndexPlace.of(place).own_folder(), repair)
    print_json(report) if as_json else print_check(report)
    return report.sound


@_command()
def compact(place: Place) -> None:
    """Give back the space of what was deleted and replaced, and erase it from the index's files."""
    from rich.filesize import decimal

    from llama_pack_densex.cli.places import IndexPlace
    from llama_pack_densex.index.upkeep import compact_index

    with waiting("Compacting"):
        done = compact_index(IndexPlace.of(place).own_folder())
    write(f"{one_line(done.folder)}: {decimal(done.bytes_after)}, {decimal(done.bytes_before)} before.")


@_command()
def compare(
    dataset: Annotated[
        Path,
        typer.Argument(help="SQuAD's JSON, a BEIR folder, ... (docs/evaluation.md), or questions.", metavar="DATASET"),
    ],
    documents: Annotated[Path | None, _option("PATH", "A folder or TSV, if DATASET has questions alone.")] = None,
    strategies: Annotated[str | None, _option("NAMES", "As densex,vector-256,bm25. Default: all.")] = None,
    embed_model: Annotated[str | None, _option("MODEL", f"{_HELP_EMBED} Default: {_DEFAULT_EMBED}")] = None,
    propositionizer: Annotated[str | None, _option("KIND", f"{_KINDS}. Default: no propositions.")] = None,
    llm: Annotated[str | None, _llm("", "Of propositions (--propositionizer llm) and contextual headers")] = None,
    reader_model: ReaderModel = None,
    judge_model: JudgeModel = None,
    trulens: TruLens = None,
    api_base: ApiBase = None,
    max_cost: MaxCost = None,
    out: Out = None,
    language: Language = None,
    limit: Limit = None,
) -> bool:
    """Compare ways of retrieving, LlamaIndex's and ours, on a dataset or on your own documents and questions.

    Ends with exit code 1 where all of something failed that an LLM was asked for.
    """
    if judge_model and not reader_model:
        raise typer.BadParameter("it needs --reader-model", param_hint="--judge-model")
    from llama_pack_densex.cli.compare import by_language, print_report, shown_progress
    from llama_pack_densex.cli.ingest import make_propositionizer
    from llama_pack_densex.evaluation.compare import compare as run
    from llama_pack_densex.evaluation.datasets import read_dataset
    from llama_pack_densex.llm.names import OPENAI_MODEL, named_llm

    names = None if strategies is None else [name.strip() for name in strategies.split(",") if name.strip()]
    if propositionizer == "llm":
        llm = llm or OPENAI_MODEL
    models = {"llm": llm, "reader_llm": reader_model, "judge_llm": judge_model}
    llms: dict[str, Any] = {use: named_llm(name) for use, name in models.items() if name not in (None, "none")}
    made = None if propositionizer is None else make_propositionizer(locals())
    compared = partial(run, strategies=names, embed_model=embed_model, propositionizer=made, trulens=trulens, **llms)
    read = partial(read_dataset, dataset, documents, max_questions=limit, leave_out=[out] if out else [])
    lost: list[str] = []
    for each, folder in by_language(dataset, language, out):
        with shown_progress() as tell:
            name = None if each == language else f"{dataset.stem} ({each})"
            report = compared(documents=read(name=name, language=each), cache_dir=out, max_cost=max_cost, progress=tell)
        print_report(report, [] if folder is None else report.write(folder))
        lost += report.all_failed
    return not lost


@_command()
def evaluate(
    place: Place,
    questions: Annotated[
        Path, typer.Argument(help="Questions or a dataset, as for compare; no documents are read.", metavar="QUESTIONS")
    ],
    query_llm: QueryLLM = None,
    reader_model: ReaderModel = None,
    judge_model: JudgeModel = None,
    trulens: TruLens = None,
    api_base: ApiBase = None,
    max_cost: MaxCost = None,
    out: Out = None,
    estimate: Annotated[bool, _option("--estimate", "Ask nothing; tell what that would cost.")] = False,
    language: Language = None,
    limit: Limit = None,
    top_k: TopK = None,
    as_json: Json = False,
) -> bool:
    """Ask an index questions, and measure what it gives to read, what it answers, and from which sources.

    Ends with exit code 1 where all of something failed that an LLM was asked for.
    """
    from llama_pack_densex.cli.compare import STAND_INS, by_language, flat, print_report, print_requests, shown_progress
    from llama_pack_densex.cli.places import IndexPlace
    from llama_pack_densex.evaluation.compare import REPLIES
    from llama_pack_densex.evaluation.compare import evaluate as run
    from llama_pack_densex.evaluation.models import KeptLLM
    from llama_pack_densex.llm.names import OPENAI_MODEL, named_llm

    by_default = OPENAI_MODEL if os.environ.get("OPENAI_API_KEY") else None
    models = {"answers": query_llm or by_default, "reader": reader_model, "judge": judge_model}
    where, replies = IndexPlace.of(place), out and out / REPLIES
    if estimate and replies and not replies.exists():
        replies = None
    found: dict[str | None, Any] = {}
    lost: list[str] = []
    for each, folder in by_language(questions, language, out):
        asked = {
            role: KeptLLM(named_llm(name, asked=not estimate), replies, max_cost, STAND_INS[role] if estimate else None)
            for role, name in models.items()
            if name is not None and name != "none"
        }
        pack = where.open(proposition_llm="none", query_llm=asked.get("answers", "none"), similarity_top_k=top_k)
        judges: dict[str, Any] = {"reader_llm": asked.get("reader"), "judge_llm": asked.get("judge")}
        if not estimate:
            judges["trulens"] = trulens
        with shown_progress() as tell:
            report = run(pack, questions, name=where.name, language=each, max_questions=limit, progress=tell, **judges)
        requests = {role: llm.figures for role, llm in asked.items()}
        found[each] = requests if estimate else flat(report)
        lost += [] if estimate else report.all_failed
        written = [] if estimate or folder is None else report.write(folder)
        if as_json:
            continue
        if each != language:
            print_heading(str(each))
        if not estimate:
            print_report(report, written)
        print_requests(requests, estimate)
    if as_json:
        print_json(found.get(language, found))
    return not lost


@_command()
def score(
    qrels: Annotated[Path, _option("--qrels FILE", "Relevance labels: TREC text, BEIR's TSV, or ranx's JSON.")],
    runs: Annotated[list[Path], _option("--run FILE", "A run: TREC text, or ranx's JSON or lz4. Give it once a run.")],
    as_json: Json = False,
) -> None:
    """Score runs against relevance labels by nDCG@10 and MRR@10, and compare them pair by pair."""
    from llama_pack_densex.cli.compare import print_scores
    from llama_pack_densex.evaluation.runs import score_runs

    with waiting("Scoring"):
        report = score_runs(qrels, runs)
    print_json(report) if as_json else print_scores(report)


@_command(name="score-propositions")
def score_propositions_(
    predicted: Annotated[str, _option("FILE|KIND", f"A recorded file (JSONL), or what is to make them: {_KINDS}.")],
    reference: Annotated[Path, _option("FILE", "A recorded file: title, text and propositions, a passage a line.")],
    embed_model: Annotated[str | None, _option("MODEL", f"For cosines: {_HELP_EMBED}")] = None,
    bert_score: Annotated[str | None, _option("MODEL", "For BERTScore instead: roberta-large (the paper's).")] = None,
    num_layers: Annotated[int | None, _option("N", "BERTScore's layer, if not its own choice.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Score propositions against others of the same passages: precision, recall and F1 of two sets, as in the paper.

    For each proposition the most similar one of the other side counts; passages that only the reference has count as 0.
    """
    if bert_score is not None and embed_model is not None:
        raise typer.BadParameter("give one of --embed-model and --bert-score", param_hint="--bert-score")
    from llama_pack_densex.cli.compare import print_proposition_scores
    from llama_pack_densex.cli.ingest import make_propositionizer
    from llama_pack_densex.evaluation import BertScoreSimilarity, EmbeddingSimilarity, score_propositions

    source = Path(predicted) if Path(predicted).exists() else make_propositionizer({"propositionizer": predicted})
    with waiting("Scoring"):
        by_bert = bert_score and BertScoreSimilarity(bert_score, num_layers)
        report = score_propositions(source, reference, by_bert or EmbeddingSimilarity(embed_model))
    print_json(report) if as_json else print_proposition_scores(report)


@_command(batch, "export")
def export_requests(
    paths: Paths,
    to: Annotated[str, _option("--to DIR", "The index's folder; it need not be there yet.")],
    out: Annotated[Path, _option("--out FOLDER", "Where the request files go, a folder.")],
    llm: PropositionLLM = None,
    mode: Mode = None,
    questions: Questions = None,
    requests_per_file: Annotated[int, _option("N", "Fewer for a small queue.", min=1, max=50_000)] = 50_000,
    prices: Prices = None,
    include: Include = None,
    exclude: Exclude = None,
    strict: Strict = False,
    force: Annotated[bool, _option("--force", "Replace the request files of an earlier export.")] = False,
    as_json: Json = False,
) -> None:
    """Write request files for the passages of documents whose propositions are still to be made.

    Nothing is asked and no key is needed. The files hold the documents' text, and only you can read them.
    """
    from llama_pack_densex.cli.ingest import export_paths, print_export

    report = export_paths(paths, to, out, locals(), requests_per_file, force)
    print_json(report) if as_json else print_export(report)


@_command(batch, "import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(exists=True, dir_okay=False, help="Output and error files of the Batch API.", metavar="FILE"),
    ],
    to: Annotated[str, _option("--to DIR", "The index's folder, as for the export.")],
    prices: Prices = None,
    as_json: Json = False,
) -> bool:
    """Keep the replies in result files, for densex index to finish with.

    Lines that cannot be used are counted; densex index asks for them directly. A file that is imported twice changes
    nothing. Ends with exit code 1 where no line can be used.
    """
    from llama_pack_densex.cli.ingest import import_files, print_import

    report = import_files(files, to, prices)
    print_json(report) if as_json else print_import(report, to)
    return bool(report.imported or report.already_there)
