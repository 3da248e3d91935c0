"""Programs in processes of their own, without each of them importing what takes seconds."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

PRELOADED = [
    "bm25s", "llama_index.llms.openai", "llama_pack_densex.propositionizers.llm", "nltk", "pandas",
    "sqlalchemy.ext.asyncio", "typer",
]  # fmt: skip
"""What a process of `forks` has imported already."""


def forks() -> multiprocessing.context.ForkServerContext:
    """Starts processes as forks of one that has imported `PRELOADED`, and nothing else of what this process
    did."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def run_program(program: str, *arguments: object, **environment: str) -> tuple[int, str, str]:
    """Run a program in another process.

    Args:
        program: Its Python.
        arguments: What follows in its `sys.argv`.
        environment: What it finds in its environment besides what this process has in its own now.

    Returns:
        Its exit code, and what it wrote to its stdout and its stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "stdout", Path(folder) / "stderr"
        # what it is forked from has the environment of the test that started that
        given = (
            program,
            tuple(map(str, arguments)),
            {**os.environ, **environment},
            *map(str, files),
        )
        process = forks().Process(target=_run, args=given, daemon=True)
        process.start()
        process.join()
        assert process.exitcode is not None
        output, errors = (file.read_text(encoding="utf-8") for file in files)
    return process.exitcode, output, errors


def _run(
    program: str, arguments: tuple[str, ...], environment: dict[str, str], *files: str
) -> None:
    for descriptor, file in zip((1, 2), files, strict=True):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.stdout, sys.stderr = (
        os.fdopen(descriptor, "w", encoding="utf-8", closefd=False) for descriptor in (1, 2)
    )
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
