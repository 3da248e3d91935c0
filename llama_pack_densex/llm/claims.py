"""Rules for trusting what an index, a store or a dictionary claims about its models.

Names that lead to a provider's own address, or to the Hugging Face Hub, are used. An address, a folder or a
module could send keys and questions anywhere, or run anything: it is used only if the user has named it, by
an argument or in the environment.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from llama_pack_densex.llm.names import PROVIDERS, parse_name

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_WEIGHTS = ("huggingface", "local")  # prefixes followed by the place of a model's weights
_PATH = re.compile(r"[/\\~.]|[A-Za-z]:[/\\]")
_named_places: set[str] = set()


class UnnamedModelError(ValueError):
    """An index names a model at an address or in a folder that the user has not named.

    Attributes:
        model: The model's name as the index gives it.
    """

    def __init__(self, message: str, model: str) -> None:
        super().__init__(message)
        self.model = model


def unnamed_place(model: str, retrievers: Collection[str] = ()) -> str:
    """Return the address or folder in a model's name that the user has not named; empty if there is none.

    Args:
        model: The name, as somebody else wrote it.
        retrievers: Names that are a model by themselves or, with a colon, precede the place of its weights.

    Raises:
        ValueError: The address in the name contains a key.
    """
    if model in retrievers:
        return ""
    prefix, _, rest = model.partition(":")
    if prefix in PROVIDERS and prefix not in _WEIGHTS:
        _, _, address = parse_name(model)
        if is_in_environment(address, PROVIDERS[prefix].module):
            return ""
        return address
    place = rest if prefix in (*_WEIGHTS, *retrievers) else model
    if _HUB_NAME.fullmatch(place) and not Path(place).exists():
        return ""
    return place


def check_module(path: str) -> None:
    """Refuse to import what a dictionary names, unless it is LlamaIndex's or its module is already imported.

    Args:
        path: The "module:name" that somebody else wrote.

    Raises:
        ValueError: It is in any other module.
    """
    module = path.partition(":")[0]
    if module not in sys.modules and not module.startswith("llama_index."):
        if not module.isprintable():
            module = ascii(module)
        raise ValueError(
            f"{path!r} is not imported, because only a dictionary names it: if you trust that module, import "
            f"it first, with import {module}"
        )


def is_in_environment(address: str, provider: str) -> bool:
    """Return whether an environment variable named after a provider, such as OLLAMA_HOST, holds an address.

    Args:
        address: The address, with or without "http://".
        provider: The name of LlamaIndex's module for the provider.
    """
    spellings = (address.rstrip("/"), address.partition("://")[2].rstrip("/"))
    for variable, value in os.environ.items():
        prefix = variable.partition("_")[0]
        is_of_provider = prefix != "" and provider.upper().startswith(prefix)
        if is_of_provider and value and value.rstrip("/") in spellings:
            return True
    return False


def name_place(place: str | None) -> None:
    """Note a place that the user gave this process, so that it can read dictionaries that it writes."""
    if place:
        _named_places.add(place)


def refuse_place(place: str, what: str, advice: str) -> None:
    """Refuse a place that a dictionary names, unless the user gave it to this process.

    Args:
        place: The address or path; empty if there is none.
        what: What is at the place, for the message, such as "the LLM".
        advice: How the user can name the place.

    Raises:
        ValueError: The user has not named it.
    """
    if place and place not in _named_places:
        raise ValueError(
            f"a dictionary says that {what} is at {place!r}. Only whoever made the dictionary has named that "
            f"place, so it is not used. If you trust it, {advice}"
        )


def refuse_field(
    data: Mapping[str, Any],
    arguments: Mapping[str, Any],
    name: str,
    what: str,
    place_of: Callable[[str], str] = str,
) -> None:
    """Refuse the place in a field of a dictionary, unless an argument overrides that field.

    Args:
        data: The dictionary.
        arguments: The arguments that the user gave beside it.
        name: The name of the field.
        what: What is at the place, for the message, such as "a recording".
        place_of: Returns the place in the field's value; empty if there is none.

    Raises:
        ValueError: The user has not named it.
    """
    value = data.get(name)
    if name not in arguments and isinstance(value, str):
        refuse_place(place_of(value), what, f"pass {name}={value!r} too.")


def is_place(value: str) -> bool:
    """Return whether a setting is an address or a path."""
    return "://" in value or _PATH.match(value) is not None or Path(value).exists()
