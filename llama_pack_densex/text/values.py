"""Metadata as plain JSON, which every store keeps and filters can compare; other values become text
if they have a text form.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address
from pathlib import PurePath
from typing import Any
from uuid import UUID

import numpy as np

_PLAIN = (str, int, float, bool, type(None))
_WRITTEN_OUT = (PurePath, UUID, Decimal, Fraction, timedelta, IPv4Address, IPv6Address)
_BYTES = (bytes, bytearray, memoryview)
_MISSING = ("NaT", "<NA>")  # how pandas and NumPy print missing dates and values
_MOST_BITS = 10_000  # of an integer; Python prints at most 4,300 digits


def plain_value(value: Any, key: str = "") -> Any:
    """Convert a value to plain JSON; values that are plain JSON already stay as they are.

    Dates and times become ISO text; paths, UUIDs, decimals, durations and the like become text; enum members
    their values; NumPy numbers and arrays become numbers and lists; sets become sorted lists; missing dates
    and numbers (NaN) become None; infinity, which JSON lacks, becomes text.

    Args:
        value: The value.
        key: The metadata key that it stands under.

    Raises:
        ValueError: The value has no such form; the message names the key and the type.
    """
    if type(value) is int and value.bit_length() > _MOST_BITS:
        raise ValueError(f"{key!r} holds a number of more than 3,000 digits")
    if type(value) is float and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return plain_value(value.value, key)
    if isinstance(value, np.ndarray):
        return plain_value(list(value) if value.ndim else value[()], key)
    if isinstance(value, (Mapping, Set, Sequence)) and not isinstance(value, (str, *_BYTES)):
        return _plain_collection(value, key)
    return _plain_scalar(value, key)


def _plain_collection(values: Mapping[Any, Any] | Set[Any] | Sequence[Any], key: str) -> Any:
    if isinstance(values, Mapping):
        return plain_values(values)
    plain = [plain_value(value, key) for value in values]
    return sorted(plain, key=str) if isinstance(values, Set) else plain


def plain_values(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Convert a mapping to plain JSON with strings as keys.

    Raises:
        ValueError: As for `plain_value`.
    """
    plain: dict[str, Any] = {}
    for key, value in values.items():
        name = _plain_key(key)
        try:
            plain[name] = plain_value(value, name)
        except RecursionError:
            raise ValueError(f"{name!r} is nested too deeply") from None
    return plain


def kept_metadata(metadata: Mapping[Any, Any], document_id: str | None) -> dict[str, Any]:
    """Return the metadata of a document as plain JSON.

    Raises:
        ValueError: A value has no JSON form; the message names the document, the key and the type.
    """
    try:
        return plain_values(metadata)
    except ValueError as error:
        message = f"the metadata of document {document_id!r} cannot be kept as JSON: {error}"
        raise ValueError(message) from error


def _plain_key(key: Any) -> str:
    if key is None or isinstance(key, bool):
        return json.dumps(key)
    plain = plain_value(key, str(key))
    if isinstance(plain, (list, dict)):
        raise ValueError(f"the key {key!r} is a {type(key).__name__}, not a string")
    return str(plain)


def _in_python(value: np.generic) -> Any:
    """Return a NumPy scalar as a Python value; nanoseconds, for which Python has no type, as microseconds."""
    in_python = value.item()
    if isinstance(value, (np.datetime64, np.timedelta64)) and isinstance(in_python, int):
        return value.astype(f"{value.dtype.kind}8[us]").item()
    return in_python


def _plain_scalar(value: Any, key: str) -> Any:
    kind = type(value)
    is_array_like = isinstance(value, np.generic) or kind.__module__.partition(".")[0] == "pandas"
    if is_array_like and str(value) in _MISSING:
        return None
    if isinstance(value, np.generic):
        return plain_value(_in_python(value), key)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, _WRITTEN_OUT):
        return str(value)
    for plain in (str, int, float):  # a class derived from one of these
        if isinstance(value, plain):
            return plain_value(plain(value), key)
    raise ValueError(
        f"{key!r} holds a value of type {kind.__name__}, which has no plain text form; use texts, numbers, "
        "dates, lists and dictionaries"
    )
