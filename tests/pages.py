"""A page of the documentation as a program: its code blocks in order, each with what it is to print.

In a page, a comment above a block says how it is to be taken:

    <!-- no-run: needs a cluster -->       it is not run, for this reason
    <!-- needs: sentence_transformers -->  it is run where these modules can be imported
    <!-- with: llm -->                     a stand-in for OpenAI answers
    <!-- with: postgres -->                a PostgreSQL runs, and DATABASE_URL leads to it
    <!-- setup                             shell commands that the reader does not see
    mkdir documents
    -->

`python`, `bash` and `console` blocks are run, and a `text` block is what the Python above it prints: "…"
stands for anything, on a line of its own for lines. All Python of a page is one program. Files (`toml`,
`json`) are parsed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings

from llama_pack_densex.llm.names import is_installed

BLOCK = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->\n"
    r"|^(?:<!-- (?P<note>[^\n]*?) -->\n)?```(?P<kind>[\w{}-]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
KINDS = {"python", "bash", "console", "text", "toml", "json"}


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    note: str
    line: int

    @property
    def server(self) -> str:
        """The server that it is run with; empty for none."""
        return self.note.removeprefix("with: ") if self.note.startswith("with: ") else ""

    @property
    def reason(self) -> str | None:
        """Why it is not run; None where it is."""
        if self.note.startswith("no-run"):
            return self.note.removeprefix("no-run").removeprefix(":").strip()
        if self.note.startswith("needs: "):
            missing = [
                name
                for name in self.note.removeprefix("needs: ").split(", ")
                if not is_installed(name)
            ]
            return f"not installed: {', '.join(missing)}" if missing else None
        return None


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("setup" if match["setup"] else "text"))
        if match["setup"]:
            yield Block("bash", match["setup"], "", line)
        elif not match["kind"].startswith("{"):  # the site's own: a tree of pages
            yield Block(match["kind"], match["text"], match["note"] or "", line)


class Reader:
    """Somebody who follows a page from top to bottom, in an empty folder.

    Args:
        page: The page.
        folder: Where it is followed.
        environment: Of commands.
        servers: What the environment has besides, by the server that a block is run with.
    """

    def __init__(
        self,
        page: Path,
        folder: Path,
        environment: Mapping[str, str],
        servers: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._page = page
        self._folder = folder
        self._environment = environment
        self._servers = servers
        self._names: dict[str, object] = {"__name__": "__main__"}
        self._printed: str | None = None

    def follow(self) -> None:
        for block in blocks_of(self._page):
            assert block.kind in KINDS, (
                f"{self._page.name}, line {block.line}: unknown kind {block.kind!r}"
            )
            if block.reason is None:
                self._take(block)
            elif block.kind == "python":
                self._printed = None

    def _take(self, block: Block) -> None:
        if block.kind == "python":
            self._printed = self._run_python(block)
        elif block.kind == "bash":
            self._run_shell(["bash", "-euc", block.text], block)
        elif block.kind == "console":
            self._run_console(block)
        elif block.kind == "toml":
            tomllib.loads(block.text)
        elif block.kind == "json":
            json.loads(block.text)
        elif self._printed is not None:
            assert_prints(block.text, self._printed)
            self._printed = None

    def _run_python(self, block: Block) -> str:
        """Run it; tracebacks have the page's line numbers."""
        code = compile("\n" * block.line + block.text, str(self._page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), self._server_of(block):
            exec(code, self._names)
        return printed.getvalue()

    @contextlib.contextmanager
    def _server_of(self, block: Block) -> Iterator[None]:
        variables = self._servers.get(block.server, {})
        os.environ.update(variables)
        try:
            yield
        finally:
            for name in variables:
                del os.environ[name]

    def _run_console(self, block: Block) -> None:
        for command, output in re.findall(
            r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE
        ):
            assert_prints(output, self._run_shell(["bash", "-uc", command], block))

    def _run_shell(self, command: list[str], block: Block) -> str:
        process = subprocess.run(
            command,
            cwd=self._folder,
            env={**self._environment, **self._servers.get(block.server, {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        assert process.returncode == 0, (
            f"{self._page.name}, line {block.line}\n{command[-1]}\n{process.stdout}"
        )
        return process.stdout


def assert_prints(expected: str, printed: str) -> None:
    lines = [line.rstrip() for line in expected.rstrip().splitlines()]
    pattern = "".join(
        "(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + " *\n"
        for line in lines
    )
    whole = f"{printed.rstrip()}\n" if printed.strip() else ""
    assert re.fullmatch(pattern, whole), f"the page has:\n{expected}\nprinted:\n{printed}"
