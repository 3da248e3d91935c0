"""The Python of the README and of some pages runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"^(?:<!-- (?P<note>no-run|needs: \w+) -->\n)?```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("name", ["README.md", "docs/answering.md", "docs/search.md"])
def test_the_code_of_a_page_runs_in_order_and_prints_what_it_says(name: str, tmp_path: Path) -> None:
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    blocks = [match for match in BLOCK.finditer(text) if _is_to_run(match["note"])]
    script = "".join(_step(page, text, match) for match in blocks)
    assert script.count("exec(") >= 2

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=_newcomer(tmp_path), capture_output=True, encoding="utf-8"
    )

    assert done.returncode == 0, done.stderr
    for match in blocks:
        assert (match["output"] or "") in done.stdout


def _is_to_run(note: str | None) -> bool:
    return note is None or (note.startswith("needs: ") and find_spec(note.removeprefix("needs: ")) is not None)


def _step(page: Path, text: str, block: re.Match[str]) -> str:
    """One block as a statement; its tracebacks have the page's line numbers."""
    lines_above = text.count("\n", 0, block.start("code"))
    return f"exec(compile({chr(10) * lines_above + block['code']!r}, {str(page)!r}, 'exec'))\n"


def _newcomer(home: Path) -> dict[str, str]:
    """The environment of somebody without a key and without downloaded models."""
    without = ("OPENAI_API_KEY", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
    kept = {name: value for name, value in os.environ.items() if name not in without}
    caches = {"HF_HOME": str(home / "hf"), "LLAMA_INDEX_CACHE_DIR": str(home / "llama_index")}
    return {**kept, **caches, "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1"}
