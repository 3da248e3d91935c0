from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

PROGRAM = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED or name.startswith("llama_index.embeddings."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Blocked())
from llama_index.core import Document
import llama_pack_densex
for name in llama_pack_densex.__all__:
    getattr(llama_pack_densex, name)
pack = llama_pack_densex.DenseXRetrievalPack(\
[Document(text="The lamp is red. 灯りは赤い。")], persist_dir=sys.argv[2])
print(json.dumps([str(pack.run("lamp")), \
str(llama_pack_densex.DenseXRetrievalPack.load(sys.argv[2]).run("灯り"))]))
"""


def needed_by(requirement: Requirement, seen: set[str]) -> set[str]:
    """The names of a distribution and of all that it needs with the extras asked for."""
    name = canonicalize_name(requirement.name)
    key = f"{name}[{','.join(sorted(requirement.extras))}]"
    if key in seen:
        return seen
    try:
        needs = map(Requirement, requires(name) or [])
    except PackageNotFoundError:  # needed on another platform or Python
        return seen
    seen |= {key, name}
    for need in needs:
        if any(
            need.marker is None or need.marker.evaluate({"extra": extra})
            for extra in ("", *requirement.extras)
        ):
            needed_by(need, seen)
    return seen


def test_a_bare_installation_imports_and_searches_by_words(tmp_path: Path) -> None:
    """Everything that `pip install llama-pack-densex` would not bring is hidden from the program."""
    needed = needed_by(Requirement("llama-pack-densex"), set())
    blocked = [
        module
        for module, distributions in packages_distributions().items()
        if module not in sys.stdlib_module_names
        and not set(map(canonicalize_name, distributions)) & needed
    ]
    assert "pytest" in blocked
    command = [sys.executable, "-c", PROGRAM, json.dumps(blocked), str(tmp_path / "index")]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    lamp, light = json.loads(done.stdout)
    assert "The lamp is red." in lamp
    assert "灯りは赤い。" in light
