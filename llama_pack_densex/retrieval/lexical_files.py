"""Arrays in one file: written whole or not at all, memory-mapped, read without trust."""

from __future__ import annotations

import json
import mmap
import os
import re
import tempfile
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from llama_pack_densex.retrieval.lexical_arrays import Array

TEMPORARY = ".unfinished-"
"""How the names of files begin that are being written."""

_MAGIC = b"densexL1"
_ALIGNED = 64
_DTYPES = frozenset({"|u1", "<u2", "<u4", "<u8", "<i8"})
_NAME = re.compile(r"[0-9a-f]{32}")
_MAPPED = 1 << 20  # bytes from which a file is mapped; smaller ones are read, and checked whole


@dataclass(frozen=True)
class StoredFile:
    """A file as whoever refers to it knows it.

    Args:
        name: Its name, 32 hexadecimal digits.
        size: Its length in bytes.
        checksum: The CRC-32 of its bytes.
    """

    name: str
    size: int
    checksum: int

    @classmethod
    def parse(cls, content: Any) -> StoredFile:
        """Read what `vars` made of one.

        Raises:
            ValueError: It is not one.
        """
        try:
            file = cls(content["name"], content["size"], content["checksum"])
        except (KeyError, TypeError) as error:
            raise ValueError("a file in it is not described") from error
        if not is_name(file.name) or type(file.size) is not int or type(file.checksum) is not int:
            raise ValueError("a file in it is not described")
        return file

    def is_in(self, folder: Path) -> bool:
        """Whether a file of that name and size lies in a folder."""
        try:
            return (folder / self.name).stat().st_size == self.size
        except FileNotFoundError:
            return False


def new_name() -> str:
    """A name that no other file has."""
    return uuid.uuid4().hex


def name_of(content: bytes) -> str:
    """The name of a file that is called after its content."""
    return blake2b(content, digest_size=16).hexdigest()


def is_name(name: object) -> bool:
    """Whether something is a name of a file, and no path to elsewhere."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def write_arrays(folder: Path, arrays: Mapping[str, Array], name: str | None = None) -> StoredFile:
    """Write arrays of one dimension into a file of that name; None means to call it after its content."""
    parts = list(_parts(arrays))
    size, checksum = 0, 0
    for part in parts:
        size, checksum = size + len(part), zlib.crc32(part, checksum)
    file = StoredFile(name or name_of(b"".join(parts)), size, checksum)
    if name is not None or not file.is_in(folder):
        write_file(folder, file.name, parts)
    return file


def write_file(folder: Path, name: str, parts: list[bytes | memoryview]) -> None:
    """Write a file; a stop in between leaves none of that name. `sync_folder` makes its name last."""
    temporary = folder / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with temporary.open("wb") as stream:
            for part in parts:
                stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(folder / name)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names of the files in a folder outlast a power failure, where the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_arrays(folder: Path, file: StoredFile) -> dict[str, Array]:
    """Read what `write_arrays` wrote: small files whole, of others the pages that are used.

    Raises:
        OSError: The file is not there or cannot be read.
        ValueError: It is another one, or damaged.
    """
    with (folder / file.name).open("rb") as stream:
        if os.fstat(stream.fileno()).st_size != file.size:
            raise ValueError(f"{file.name} has another size")
        data: bytes | mmap.mmap
        if file.size < _MAPPED:
            data = stream.read()
            if zlib.crc32(data) != file.checksum:
                raise ValueError(f"{file.name} is damaged")
        else:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    return _unpacked(data, file)


def set_aside(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The same arrays, memory-mapped from a file that has no name and goes with them."""
    size = 0
    with tempfile.TemporaryFile() as stream:
        for part in _parts(arrays):
            size += stream.write(part)
        stream.flush()
        return _unpacked(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), StoredFile("", size, 0))


def is_whole(folder: Path, file: StoredFile) -> bool:
    """Whether a file has the bytes that were written; reads all of it."""
    checksum = 0
    try:
        with (folder / file.name).open("rb") as stream:
            while part := stream.read(_MAPPED):
                checksum = zlib.crc32(part, checksum)
    except OSError:
        return False
    return file.is_in(folder) and checksum == file.checksum


def _parts(arrays: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    entries: dict[str, tuple[str, int, int]] = {}
    place = 0
    contents = []
    for name, array in arrays.items():
        content = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        entries[name] = content.dtype.str, place, len(content)
        contents.append(content.view(np.uint8))
        place += _padded(content.nbytes)
    header = json.dumps(entries).encode("ascii")
    start = _MAGIC + len(header).to_bytes(8, "little") + header
    yield start + bytes(_padded(len(start)) - len(start))
    for content in contents:
        yield content.data
        yield bytes(_padded(content.nbytes) - content.nbytes)


def _unpacked(data: bytes | mmap.mmap, file: StoredFile) -> dict[str, Array]:
    length = int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + 8], "little")
    start = len(_MAGIC) + 8 + length
    try:
        if data[: len(_MAGIC)] != _MAGIC or start > file.size:
            raise ValueError
        arrays: dict[str, Array] = {}
        for name, (dtype, place, count) in json.loads(data[len(_MAGIC) + 8 : start]).items():
            if dtype not in _DTYPES or type(place) is not int or type(count) is not int or min(place, count) < 0:
                raise ValueError
            arrays[name] = np.frombuffer(data, dtype, count, _padded(start) + place)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{file.name} is damaged") from error
    return arrays


def _padded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
