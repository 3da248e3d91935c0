"""A dataset of questions where documents are asked for: its documents are meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llama_pack_densex.cli.session import one_line, warn
from llama_pack_densex.evaluation.datasets import DatasetError, read_dataset

if TYPE_CHECKING:
    from llama_index.core.schema import Document


def split_datasets(paths: Sequence[Path]) -> tuple[list[Document], list[Path]]:
    """The documents of those paths that are datasets with documents of their own, and the other paths."""
    documents: list[Document] = []
    rest: list[Path] = []
    for path in paths:
        found = _dataset(path)
        if found is None:
            rest.append(path)
            continue
        warn(f"{one_line(str(path))} is a dataset: its {len(found):,} documents are meant")
        documents += found
    return documents, rest


def _dataset(path: Path) -> list[Document] | None:
    try:
        return read_dataset(path).documents
    except (DatasetError, FileNotFoundError, UnicodeDecodeError):
        return None
