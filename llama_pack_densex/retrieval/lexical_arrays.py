"""Lists of different lengths in two flat arrays, which can lie in a memory-mapped file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Ragged:
    """Lists of numbers, one after the other; as lists of bytes also texts, in UTF-8.

    Args:
        values: The numbers of all lists.
        starts: Where each list starts, and where the last one ends; shape (number of lists + 1,).
    """

    values: Array
    starts: Array

    @classmethod
    def of(cls, values: Array, lengths: Array) -> Ragged:
        """Lists of which the lengths are known."""
        return cls(values, starts_of(lengths))

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Ragged:
        """A list for each text."""
        parts = [encoded(text) for text in texts]
        lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        return cls.of(np.frombuffer(b"".join(parts), dtype=np.uint8), lengths)

    @classmethod
    def joined(cls, parts: Sequence[Ragged]) -> Ragged:
        """The lists of several."""
        return cls.of(np.concatenate([part.values for part in parts]), np.concatenate([part.lengths for part in parts]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Array:
        """How long each list is."""
        return np.diff(self.starts.astype(np.int64))

    @property
    def fits(self) -> bool:
        """Whether the parts can be of one, as far as that is seen without reading all."""
        return len(self.starts) > 0 and int(self.starts[0]) == 0 and int(self.starts[-1]) == len(self.values)

    def take(self, places: Array) -> Ragged:
        """Some of the lists, in the order of their places."""
        starts = self.starts[places].astype(np.int64)
        lengths = self.starts[places + 1].astype(np.int64) - starts
        return Ragged.of(self.values[ranges(starts, lengths)], lengths)

    def bytes_at(self, place: int) -> bytes:
        """A text, encoded."""
        return bytes(self.values[int(self.starts[place]) : int(self.starts[place + 1])].data)

    def text(self, place: int) -> str:
        """A text."""
        return decoded(self.bytes_at(place))

    def texts(self) -> list[str]:
        """All texts."""
        data, starts = self.values.tobytes(), self.starts.tolist()
        return [decoded(data[start:end]) for start, end in pairwise(starts)]

    def find(self, text: str) -> int:
        """Where a text is among sorted ones; -1 where it is not."""
        wanted = encoded(text)
        place = bisect_left(range(len(self)), wanted, key=self.bytes_at)
        return place if place < len(self) and self.bytes_at(place) == wanted else -1


def arrays_of(parts: Any) -> dict[str, Array]:
    """The arrays of a dataclass by name, those of its lists included; other fields are left out."""
    arrays: dict[str, Array] = {}
    for part in fields(parts):
        value = getattr(parts, part.name)
        if part.type == "Ragged":
            arrays |= {f"{part.name}.values": value.values, f"{part.name}.starts": value.starts}
        elif part.type == "Array":
            arrays[part.name] = value
    return arrays


def parts_of(kind: type[Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """The fields of a dataclass of which `arrays_of` made arrays.

    Raises:
        KeyError: An array is missing.
    """
    found: dict[str, Any] = {}
    for part in fields(kind):
        if part.type == "Ragged":
            found[part.name] = Ragged(arrays[f"{part.name}.values"], arrays[f"{part.name}.starts"])
        elif part.type == "Array":
            found[part.name] = arrays[part.name]
    return found


def encoded(text: str) -> bytes:
    """A text as bytes that sort as its characters do; a document's text may hold lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    """The text that `encoded` made bytes of."""
    return data.decode("utf-8", "surrogatepass")


def starts_of(lengths: Array) -> Array:
    """Where lists of these lengths start, and where the last one ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts.astype(np.uint32) if starts[-1] < 2**32 else starts


def ranges(starts: Array, lengths: Array) -> Array:
    """The numbers of some ranges, one range after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def distinct(values: Array) -> Array:
    """Each of some numbers once, sorted; numpy's own function hashes them, which takes ten times as long."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    found: Array = ordered[first]
    return found


def smallest(values: Array) -> Array:
    """The same numbers, none of them negative, in as few bytes as hold them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
