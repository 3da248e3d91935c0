"""Readers of formats that are mostly text: text with front matter, notebooks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from llama_pack_densex.reading.encoding import decode_file
from llama_pack_densex.reading.files import Part
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.text.values import plain_values

logger = plain_logger(__name__)

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n((?:.*\n)*?)(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)")


def read_text(file: Path) -> Iterator[Part]:
    """Yield a file's text, with its front matter as metadata."""
    text = _PAGE_BREAK.sub(_joint_of_pages, decode_file(file))
    front = _FRONT_MATTER.match(text)
    metadata = _front_matter(file, front[1]) if front else None
    if front and metadata is not None:
        yield Part(text[front.end() :], metadata)
    else:
        yield Part(text)


# the last line of a page of an RFC or a draft, and the first one of the next page
_PAGE_BREAK = re.compile(
    r"(?<=\S)\s*\n[^\n]*\[Page \d{1,4}\][ \t\r]*(?:\s*\n(?:RFC \d|Internet-Draft)[^\n]*\d{4}[ \t\r]*)?"
    r"\s*?(?=\n[^\S\n]*\S|\Z)"
)


def _joint_of_pages(page_break: re.Match[str]) -> str:
    """Return what stands for a page break: a blank line, unless a sentence goes on behind it."""
    last = page_break.string[max(page_break.start() - 1, 0)]
    return "\n" if last in ".:;?!)" else ""


def _front_matter(file: Path, front: str) -> dict[str, Any] | None:
    """Return front matter as plain JSON; None if it is not YAML that can be kept."""
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(front)):
            raise ValueError("it has aliases, which may expand to gigabytes")
        metadata = yaml.safe_load(front)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        kind = type(error).__name__
        logger.warning(
            "%s: its front matter is not valid YAML (%s) and stays in the text", file, kind
        )
        return None
    if not front.strip():
        return {}
    if not isinstance(metadata, dict):
        return None  # text between two rules
    try:
        return plain_values(metadata)
    except ValueError as error:
        logger.warning("%s: its front matter stays in the text: %s", file, error)
        return None


def read_notebook(file: Path) -> Iterator[Part]:
    """Yield the cells of a Jupyter notebook, without their outputs."""
    yield Part("\n\n".join(map(_cell_text, json.loads(decode_file(file))["cells"])))


def _cell_text(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    return f"```\n{text}\n```" if cell["cell_type"] == "code" else text
