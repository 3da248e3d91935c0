"""FACTOIDWIKI's format: a JSON object a line, with `id`, `contents` and where in `contents` the parts stand.

It is what pyserini indexes. `metadata` has `title_span`, `section_span` and `content_span`, each [start, end] in
characters (https://huggingface.co/datasets/chentong00/factoid-wiki, and -sentence and -passage beside it).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from llama_pack_densex.evaluation.paper_units import PaperUnit
from llama_pack_densex.evaluation.readers.records import Record, read_records

_SPANS = ("title_span", "section_span", "content_span")


def read_factoid_wiki(path: Path) -> Iterator[PaperUnit]:
    """Read units one at a time, from JSONL that may be packed with gzip.

    Where a line has no spans, all of its `contents` is text, as in pyserini's other collections.

    Raises:
        DatasetError: A line is not in this format.
        OSError: The file cannot be read.
    """
    for record in read_records(path):
        contents = record.text("contents")
        spans = record.fields.get("metadata") or {}
        if not isinstance(spans, dict):
            raise record.error(f"metadata must be an object with {', '.join(_SPANS)}")
        if "content_span" not in spans:
            yield PaperUnit(record.text("id"), contents)
            continue
        title, section, text = (_part(record, contents, spans, name) for name in _SPANS)
        yield PaperUnit(record.text("id"), text, title, section)


def write_factoid_wiki(path: Path, units: Iterable[PaperUnit]) -> int:
    """Write units one at a time; a name that ends in ".gz" is packed with gzip.

    `contents` is the title, the section and the text, a line each; what is empty has no line.

    Returns:
        How many there were.

    Raises:
        OSError: The file cannot be written.
    """
    number = 0
    packed = path.name.lower().endswith(".gz")
    with gzip.open(path, "wt", encoding="utf-8") if packed else path.open("w", encoding="utf-8") as stream:
        for unit in units:
            stream.write(json.dumps(_line(unit), ensure_ascii=False) + "\n")
            number += 1
    return number


def _line(unit: PaperUnit) -> dict[str, Any]:
    contents = ""
    spans: dict[str, list[int]] = {}
    for name, part in zip(_SPANS, (unit.title, unit.section, unit.text), strict=True):
        contents += "\n" if contents and part else ""
        spans[name] = [len(contents), len(contents) + len(part)]
        contents += part
    return {"id": unit.id, "contents": contents, "metadata": spans}


def _part(record: Record, contents: str, spans: dict[str, Any], name: str) -> str:
    span = spans.get(name)
    if span is None:
        return ""
    is_pair = isinstance(span, list) and len(span) == 2 and all(type(place) is int for place in span)
    if not is_pair or not 0 <= span[0] <= span[1] <= len(contents):
        raise record.error(f"{name} is {span!r}, and [start, end] within contents is expected")
    return contents[span[0] : span[1]]
