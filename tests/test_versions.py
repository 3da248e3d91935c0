"""The versions that are promised are those that are tested."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
CORE = "llama-index-core"


def lower_bounds() -> dict[str, Version]:
    """The lowest version of each package that pyproject.toml asks for."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.findall(r'"([A-Za-z][\w.-]*)(?:\[.*?\])?>=([\d.]+)', text.partition("[tool.")[0])
    return {canonicalize_name(name): Version(version) for name, version in found}


def test_the_lowest_versions_are_the_lower_bounds() -> None:
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    bounds = lower_bounds()
    # a first one
    lowest = {
        canonicalize_name(pin.name): Version(str(pin.specifier)[2:]) for pin in reversed(pins)
    }
    assert CORE in lowest
    assert {
        name: (version, bounds.get(name))
        for name, version in lowest.items()
        if version != bounds.get(name)
    } == {}
