"""Writes constraints.txt: the newest versions that resolve together, for each supported Python.

    python scripts/pin_versions.py python3.10 python3.11 python3.12 python3.13 > constraints.txt

Nothing is installed. A version that differs between Pythons gets an environment marker.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"  # pinned by hand: a new torch is a large download, so it changes when somebody wants it to
PLATFORM_PACKAGES = ("nvidia-", "cuda-", "triton")  # torch itself pins what its build for a platform needs
HEADER = """\
# Versions that were resolved and tested together. `make demo` and `make test` install these.
# Written by scripts/pin_versions.py (`make constraints`); do not edit by hand."""


def resolve(python: str) -> tuple[str, dict[str, str]]:
    """Ask pip what an install of everything would bring.

    Args:
        python: An interpreter.

    Returns:
        Its version as "3.12", and versions by package name.
    """
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    minor = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        pip = [f"{folder}/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([python, "-m", "venv", folder], check=True)
        subprocess.run([*pip, "install", "--upgrade", "pip"], check=True, stdout=sys.stderr)
        wanted = [TORCH, "-e", f"{ROOT}[huggingface,files,chroma,faiss,milvus,postgres,qdrant,dev]"]
        report = f"{folder}/report.json"
        subprocess.run([*pip, "install", "--dry-run", "--report", report, *wanted], check=True, stdout=sys.stderr)
        found = [part["metadata"] for part in json.loads(Path(report).read_text(encoding="utf-8"))["install"]]
    versions = {part["name"].lower().replace("_", "-"): part["version"].partition("+")[0] for part in found}
    own = ("llama-pack-densex", *PLATFORM_PACKAGES)
    return minor, {name: version for name, version in versions.items() if not name.startswith(own)}


def merge(resolutions: Sequence[tuple[str, dict[str, str]]]) -> list[str]:
    """Make constraints of the resolutions of several Pythons, given in ascending order."""
    lines = []
    for name in sorted({name for _, versions in resolutions for name in versions}):
        pins = [(minor, versions[name]) for minor, versions in resolutions if name in versions]
        runs = [(version, [minor for minor, _ in run]) for version, run in groupby(pins, key=lambda pin: pin[1])]
        for place, (version, minors) in enumerate(runs):
            bounds = [f'python_version >= "{minors[0]}"'] if place else []
            bounds += [f'python_version < "{runs[place + 1][1][0]}"'] if place + 1 < len(runs) else []
            lines.append(f"{name}=={version}" + (f" ; {' and '.join(bounds)}" if bounds else ""))
    return lines


if __name__ == "__main__":
    print("\n".join([HEADER, *merge([resolve(python) for python in sys.argv[1:]])]))
