"""`densex chat`: a conversation in the terminal or through a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import closing, suppress

from llama_pack_densex.answering.chat import PropositionChatEngine
from llama_pack_densex.answering.sources import name_of
from llama_pack_densex.cli.app import ChatCommand
from llama_pack_densex.cli.output import print_error, waiting, write, write_list
from llama_pack_densex.cli.search import Json, checked_question, metadata_filters
from llama_pack_densex.text.terminal import plain

_HELP = "/sources shows what the last answer cites, /reset begins a new conversation, /quit ends."


def talk(options: ChatCommand) -> bool:
    """Answer the questions on standard input, one per line; return False if one of them failed."""
    with waiting("Opening"):
        pack = options.index.open_to_ask(options)
        engine = pack.as_chat_engine(options.top_k, metadata_filters(pack, options.filters))
    citations: list[Json] = []
    all_answered = True
    for line in _lines():
        if line in ("/quit", "/exit"):
            break
        if line == "/reset":
            engine.reset()
            citations = []
            write("A new conversation.", "dim")
        elif line == "/sources":
            _print_sources(citations)
        elif line.startswith("/"):
            write(_HELP, "dim")
        elif line:
            try:
                citations = _answer(engine, line)
            except Exception as error:
                print_error(error)
                all_answered = False
    return all_answered


def _lines() -> Iterator[str]:
    """Yield the lines of standard input; a terminal gets a prompt, a history and line editing."""
    prompt = ""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # else one such line would end all
    if sys.stdin.isatty():
        prompt = "\n> "
        with suppress(ImportError):
            import readline  # noqa: F401 (`input` uses it)
        write(f"Ask about the documents. {_HELP}", "dim")
    while True:
        try:
            yield input(prompt).strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            write("\n(Ctrl-D ends)", "dim")


def _answer(engine: PropositionChatEngine, question: str) -> list[Json]:
    """Print an answer as it arrives, and return its citations; Ctrl-C stops it."""
    metadata: Json = {}
    ending = ""
    try:
        response = engine.stream_chat(checked_question(question))
        metadata = response.metadata
        with closing(response.response_gen) as pieces:
            for piece in pieces:
                print(plain(piece), end="", flush=True)
    except KeyboardInterrupt:
        ending = " (stopped)"
    print(ending, flush=True)
    return list(metadata.get("citations", []))


def _print_sources(citations: list[Json]) -> None:
    if not citations:
        write("The last answer cites nothing.", "dim")
    for citation in citations:
        write(f"{name_of(citation)} ({citation['document']})", bullet=f"[^{citation['number']}] ")
        write_list((proposition["text"] for proposition in citation["propositions"]), indent=5)
