"""densex.toml: values of options for `densex index` and `densex query` that would be typed again and again.

    [index]
    llm = "ollama:qwen3:8b"
    exclude = ["drafts"]

    [query]
    top-k = 8

A file in the working directory may be somebody else's. Its values are therefore shown, it cannot agree to a
price, and the addresses and folders in it are used only after the user has agreed to them. A file that the
environment variable DENSEX_CONFIG names is the user's own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from itertools import starmap
from pathlib import Path
from typing import Any

from llama_pack_densex.cli.output import inform, is_trusted
from llama_pack_densex.index.manifest import is_index
from llama_pack_densex.index.urls import is_store_url, redacted
from llama_pack_densex.llm.claims import unnamed_place
from llama_pack_densex.llm.names import with_provider
from llama_pack_densex.models import NONE, RETRIEVERS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NOT_CONFIGURABLE = ("help", "prices", "yes")  # with prices of 0, the user would not be asked


def read_options(path: Path, command: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Read a command's options from a configuration file, and show them.

    Args:
        path: The file.
        command: The command's name.
        options: Its options by their names at the command line, without "--".

    Returns:
        Values by the names of the options' parameters; empty if the file has no section for the command, or
        is in an index's folder.

    Raises:
        ValueError: The file is invalid, or it names an address or a folder that the user does not agree to.
        OSError: The file cannot be read.
    """
    is_own = bool(os.environ.get("DENSEX_CONFIG"))
    if not is_own and any(map(is_index, (path.absolute().parent, *path.absolute().parent.parents))):
        inform(f"{path} is not read: it is in an index's folder.")
        return {}
    section = _read(path).get(command, {})
    if not isinstance(section, dict):
        raise ValueError(f"{path}: {command} must be a section, [{command}]")
    values = {}
    for key, value in section.items():
        option = options.get(key.replace("_", "-"))
        if option is None or option.name in _NOT_CONFIGURABLE:
            raise ValueError(
                f"{path}: {command} has no option {key!r} that a file may set (densex {command} --help)"
            )
        values[option.name] = _checked(f"{path}: {key}", value, option.multiple)
    if section:
        shown = ", ".join(f"{key} = {_shown(value)}" for key, value in section.items())
        inform(f"{path}, [{command}]: {shown}")
    if not is_own:
        _confirm_places(path, values)
    return values


def _confirm_places(path: Path, values: Mapping[str, Any]) -> None:
    places = list(filter(None, starmap(_place, values.items())))
    if not places:
        return
    warning = (
        f"{path} names {', '.join(places)}. Whoever wrote the file may get your documents, questions and "
        f"keys there. If the file is yours, set DENSEX_CONFIG={path}"
    )
    if not is_trusted(warning):
        raise ValueError(warning)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    unknown = content.keys() - {"index", "query"}
    if unknown:
        raise ValueError(
            f"{path}: unknown section {min(unknown)!r}; the sections are [index] and [query]"
        )
    return content


def _checked(place: str, value: Any, is_list: bool) -> Any:
    items = [value]
    if is_list and isinstance(value, list):
        items = value
    if not all(isinstance(item, (str, int, float)) for item in items):
        raise ValueError(f"{place}: {json.dumps(value, default=str)} is not a value of this option")
    if is_list:
        return items
    return value


def _shown(value: Any) -> str:
    if isinstance(value, str) and is_store_url(value):
        value = redacted(value)
    return json.dumps(value, ensure_ascii=False)


def _place(name: str, value: Any) -> str | None:
    """Return the address or folder that an option's value names; empty or None if there is none."""
    text = str(value)
    if name == "api_base" or (name == "to" and is_store_url(text)):
        return redacted(text)
    if name == "propositionizer" and text.startswith("seq2seq:"):
        return unnamed_place(text.partition(":")[2])
    if text == NONE:
        return None
    if name in ("llm", "query_llm"):
        return unnamed_place(with_provider(text))
    if name in ("embed_model", "rerank"):
        return unnamed_place(text, RETRIEVERS)
    return None
