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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "docs/answering.md", "docs/search.md"])
def test_the_code_of_a_page_runs_in_order_and_prints_what_it_says(name: str, tmp_path: Path) -> None:
    script, outputs = _script(ROOT / name)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=_newcomer(tmp_path), capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert [output for output in outputs if output not in done.stdout] == []


def test_the_code_of_the_readme_prints_what_it_says_in_a_process_that_did_other_things_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, outputs = _script(ROOT / "README.md")
    monkeypatch.chdir(tmp_path)
    for name, value in _caches(tmp_path).items():
        monkeypatch.setenv(name, value)
    exec(script, {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert [output for output in outputs if output not in printed] == []


def _script(page: Path) -> tuple[str, list[str]]:
    """The code of a page, and what it is to print."""
    text = page.read_text(encoding="utf-8")
    blocks = [match for match in BLOCK.finditer(text) if _is_to_run(match["note"])]
    script = "".join(_step(page, text, match) for match in blocks)
    assert script.count("exec(") >= 2
    return script, [match["output"] for match in blocks if match["output"]]


def _is_to_run(note: str | None) -> bool:
    return note is None or (note.startswith("needs: ") and find_spec(note.removeprefix("needs: ")) is not None)


def _step(page: Path, text: str, block: re.Match[str]) -> str:
    """One block as a statement; its tracebacks have the page's line numbers."""
    lines_above = text.count("\n", 0, block.start("code"))
    return f"exec(compile({chr(10) * lines_above + block['code']!r}, {str(page)!r}, 'exec'))\n"


def _newcomer(home: Path) -> dict[str, str]:
    """The environment of somebody without a key, who has downloaded no model but all-MiniLM-L6-v2."""
    without = ("OPENAI_API_KEY", "HUGGINGFACE_HUB_CACHE")
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return {**kept, **_caches(home), "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1"}


def _caches(home: Path) -> dict[str, str]:
    return {"HF_HOME": str(home / "hf"), "LLAMA_INDEX_CACHE_DIR": str(home / "llama_index")}
