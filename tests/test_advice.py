"""What messages and documentation tell users to install can be installed."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_extras_that_are_named_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = set(
        re.findall(
            r"^(\w+) = \[", project.partition("[project.optional-dependencies]")[2], re.MULTILINE
        )
    )
    files = [
        *(ROOT / "llama_pack_densex").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("README*.md"),
    ]
    texts = "".join(file.read_text(encoding="utf-8") for file in files)
    named = re.findall(r"llama-pack-densex\[([\w,]+)\]", texts)
    assert {extra for names in named for extra in names.split(",")} <= extras
