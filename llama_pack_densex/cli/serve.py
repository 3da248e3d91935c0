"""`densex serve` and `densex mcp`: an index served to browsers and to agents."""

from __future__ import annotations

import signal
import sys
from contextlib import redirect_stdout
from pathlib import Path

import typer

from llama_pack_densex.cli.app import McpCommand, ServeCommand
from llama_pack_densex.cli.output import waiting, write
from llama_pack_densex.text.terminal import one_line


def serve_pages(options: ServeCommand) -> None:
    """Serve an index over HTTP until it is stopped."""
    from llama_pack_densex.serving.app import listen, make_app, serve_app

    index = options.index
    with listen(options.host, options.port, options.token) as listening:
        with waiting("Opening the index"):
            web = make_app(
                index.open_to_ask(options),
                options.token,
                hosts=options.allow_host,
                requests_per_minute=options.rate,
                name=Path(index.name).resolve().name,
            )
        name = one_line(index.name)
        serve_app(web, listening, lambda url: typer.echo(f"Serving {name} on {url} (Ctrl-C stops)"))


def serve_agents(options: McpCommand) -> None:
    """Serve an index by the Model Context Protocol over standard input and output."""
    from llama_pack_densex.serving.mcp import make_mcp_server

    with redirect_stdout(sys.stderr):  # standard output is reserved for the protocol
        index = options.index
        server = make_mcp_server(index.open_to_ask(options, query_llm="none"))
        write(f"{one_line(index.name)} is served over standard input and output; Ctrl-C ends it.")
    # Python's own handlers would wait for the thread that reads standard input
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.SIG_DFL)
    server.run("stdio")
