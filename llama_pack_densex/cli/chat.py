"""`densex chat`: a conversation in the terminal, or over a pipe."""

from __future__ import annotations

import contextlib
import sys

from llama_pack_densex.answering.chat import PropositionChatEngine
from llama_pack_densex.answering.citations import name_of
from llama_pack_densex.cli.output import plain, print_error, write

_HELP = "/sources shows what the last answer cites, /reset begins a new conversation, /quit ends."


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
        write(f"Ask about the documents. {_HELP}", style="dim")
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
            write(_HELP, style="dim")
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
