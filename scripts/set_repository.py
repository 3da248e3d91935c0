"""Writes where the project is published into every file that links to it: metadata, README, notebooks, forms.

    python scripts/set_repository.py OWNER/NAME

The release workflow runs it for the repository that it runs in, so that what is on PyPI links to where it
came from.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = re.compile(r"[\w.-]+/[\w.-]+")


def current_repository() -> str:
    """The OWNER/NAME that the project's metadata link to."""
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(r'^Repository = "https://github\.com/([^"]+)"$', metadata, re.MULTILINE)
    if match is None:
        raise SystemExit('pyproject.toml has no line: Repository = "https://github.com/OWNER/NAME"')
    return match[1]


def set_repository(new: str) -> list[str]:
    """Write another OWNER/NAME; returns the files that changed."""
    old = current_repository()
    listed = subprocess.run(
        ["git", "grep", "--files-with-matches", "--fixed-strings", old],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    names = listed.stdout.splitlines()
    for name in names:
        file = ROOT / name
        file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    return names


if __name__ == "__main__":
    if len(sys.argv) != 2 or not NAME.fullmatch(sys.argv[1]):
        raise SystemExit(__doc__)
    print("\n".join(set_repository(sys.argv[1])))
