"""docs/first-day.md, command by command: each prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.openai_server import OpenAIServer

PAGE = Path(__file__).resolve().parent.parent / "docs" / "first-day.md"
BLOCK = re.compile(r"^(?P<note><!-- no-run -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```\n", re.MULTILINE | re.DOTALL)


def reply(asked: dict[str, Any]) -> str:
    """An agent's model: it looks into the documents first, and then answers."""
    if "20,000 yen" in str(asked["messages"]):
        return "Thought: I can answer.\nAnswer: At most 20,000 yen a night."
    return 'Thought: I need the rules.\nAction: company_rules\nAction Input: {"input": "hotel in Tokyo"}'


@pytest.mark.skipif(find_spec("ir_measures") is None, reason="the comparison needs the extra evaluation")
def test_the_first_day_goes_as_the_page_says(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = [match for match in BLOCK.finditer(text) if not match["note"]]
    assert {match["kind"] for match in blocks} == {"bash", "console", "python", "text"}
    with OpenAIServer(reply) as server:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "HF_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        alone = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1", "COLUMNS": "100"}
        environment = {**kept, **alone, "PATH": path}
        printed = ""
        for block in blocks:
            if block["kind"] == "bash":
                run(["bash", "-euc", block["text"]], tmp_path, environment)
            elif block["kind"] == "python":
                keys = {"OPENAI_API_KEY": "sk-test", "OPENAI_API_BASE": server.url}
                printed = run([sys.executable, "-c", block["text"]], tmp_path, {**environment, **keys})
            elif block["kind"] == "text":
                assert_is_as(block["text"], printed)
            else:
                for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block["text"], re.MULTILINE):
                    assert_is_as(output, run(["bash", "-uc", command], tmp_path, environment))


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}"
    return done.stdout


def assert_is_as(told: str, printed: str) -> None:
    """What was printed is what the page has, line by line; "…" stands for anything, on a line of its own for lines."""
    lines = [line.rstrip() for line in told.splitlines()]
    pattern = "".join("(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + " *\n" for line in lines)
    whole = printed if printed.endswith("\n") or not printed else f"{printed}\n"
    assert re.fullmatch(pattern, whole), f"told:\n{told}\nprinted:\n{printed}"
