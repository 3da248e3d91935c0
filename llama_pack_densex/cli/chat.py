"""`densex chat`: a conversation in the terminal, or over a pipe."""

from __future__ import annotations

import contextlib
import sys

from rich.text import Text

from llama_pack_densex.answering.chat import PropositionChatEngine
from llama_pack_densex.answering.citations import name_of
from llama_pack_densex.cli.output import argument, message_of, plain, stderr, stdout, write

_HELP = "/sources shows what the last answer cites, /reset begins a new conversation, /quit ends."


def talk(engine: PropositionChatEngine) -> bool:
    """Answer the lines of standard input until they end.

    Args:
        engine: Has the conversation.

    Returns:
        Whether every question could be asked.

    Raises:
        OSError: There is no standard input.
    """
    if sys.stdin is None:
        raise OSError("questions are read from standard input, and that is closed")
    console, is_terminal = stdout(), sys.stdin.isatty()
    citations: list[dict[str, object]] = []
    could_ask = True
    if is_terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (gives `input` a history and an editor)
        write(console, f"Ask about the documents. {_HELP}", style="dim")
    while True:
        try:
            message = argument(input("\n> " if is_terminal else "")).strip()
        except EOFError:
            return could_ask
        except KeyboardInterrupt:
            write(console, "\n(Ctrl-D ends)", style="dim")
            continue
        if message in ("/quit", "/exit"):
            return could_ask
        if message == "/reset":
            engine.reset()
            citations = []
            write(console, "A new conversation.", style="dim")
        elif message == "/sources":
            _print_sources(citations)
        elif message.startswith("/"):
            write(console, _HELP, style="dim")
        elif message:
            try:
                citations = _answer(engine, message)
            except Exception as error:
                told = message_of(error)
                if told is None:
                    raise
                could_ask = False
                stderr().print(Text.assemble(("Error: ", "bold red"), plain(told)), soft_wrap=True)


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
    console = stdout()
    if not citations:
        write(console, "The last answer cites nothing.", style="dim")
    for citation in citations:
        write(console, plain(f"{name_of(citation)} ({citation['document']})"), bullet=f"[^{citation['number']}] ")
        for fact in citation["propositions"]:  # type: ignore[attr-defined]
            write(console, plain(fact["text"]), indent=5, bullet="- ")
