"""Reads JSON, lines of JSON, and YAML as records: each object below the names of what it is in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from llama_pack_densex.reading.conversations import messages
from llama_pack_densex.reading.encoding import decode_file
from llama_pack_densex.reading.files import Part
from llama_pack_densex.reading.tables import record
from llama_pack_densex.text.tokens import on_one_line

_LARGEST_RECORD = 800  # characters; a larger object is divided
_LONGEST_HEADING = 80  # characters
_JSON = json.JSONDecoder(parse_float=str, parse_int=str)


def read_json(file: Path) -> Iterator[Part]:
    """Yield the objects of JSON, or of one JSON value a line, as records; text that is neither as it is."""
    text = decode_file(file).removeprefix("\ufeff")
    with suppress(ValueError):
        yield _as_records(_JSON.decode(text))
        return
    with suppress(ValueError):
        lines = filter(str.strip, text.split("\n"))
        yield _as_records([*map(_JSON.decode, lines)])
        return
    yield Part(text)


# without libyaml, a megabyte takes a minute
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)


def read_yaml(file: Path) -> Iterator[Part]:
    """Yield the objects of YAML as records; as it is if it has comments, which would be lost, or aliases."""
    text = decode_file(file)
    values = _yaml_values(text)
    yield Part(text) if values is None else _as_records(values)


def _yaml_values(text: str) -> list[Any] | None:
    if _COMMENT.search(text):
        return None
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, _LOADER)):
            return None
        return [*yaml.load_all(text, _LOADER)]
    except (yaml.YAMLError, ValueError):
        return None


def _as_records(value: Any) -> Part:
    return Part("\n\n\n".join(filter(None, _blocks(value, level=1))))


def _blocks(value: Any, level: int) -> Iterator[str]:
    """Yield a small object as a record; of others, what is in them, below its names as headings."""
    turns = _conversation(value)
    if turns:
        yield turns
    elif not _is_record(value):
        for name, part in _parts(value):
            if name:
                yield f"{'#' * min(level, 6)} {on_one_line(name)[:_LONGEST_HEADING]}"
            yield from _blocks(part, level + bool(name))
    elif value:
        yield record(_pairs(value))


def _conversation(value: Any) -> str:
    """Return the turns of an exported chat or transcript; empty for other values."""
    spoken = value
    if isinstance(value, dict):
        spoken = value.get("segments")  # Whisper repeats them as one text
    return messages(spoken) if isinstance(spoken, list) else ""


def _parts(value: Any) -> list[tuple[str, Any]]:
    """Return the names and values in an object, of which small ones are one part; or the items of a list."""
    if isinstance(value, dict):
        nested = {name: part for name, part in value.items() if _is_nested(part)}
        flat = {name: part for name, part in value.items() if name not in nested}
        return [("", flat), *nested.items()]
    if len(value) == 1 or all(map(_is_record, value)):
        return [("", item) for item in value]
    return [(next((text for _, text in _pairs(item)), ""), item) for item in value]


def _is_nested(value: Any) -> bool:
    return isinstance(value, (dict, list)) and bool(value)


def _is_record(value: Any) -> bool:
    """Return whether a value is read as a whole: it is flat, or small and has no list of several objects."""
    if not _is_nested(value):
        return True
    inner = [*value.values()] if isinstance(value, dict) else value
    if not any(map(_is_nested, inner)):
        return True
    if isinstance(value, list) and len(value) > 1:
        return False
    return all(map(_is_record, inner)) and len(str(value)) <= _LARGEST_RECORD


def _pairs(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts in a value, each with the names of what it is in."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _pairs(part, f"{name} {key}".strip())
    elif isinstance(value, list) and any(map(_is_nested, value)):
        for part in value:
            yield from _pairs(part, name)
    else:
        yield on_one_line(name), _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, bool):
        return json.dumps(value)
    if value is None:
        return ""
    return on_one_line(str(value))
