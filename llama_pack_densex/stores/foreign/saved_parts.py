"""Several files of a folder, written together: a small file names those that belong together."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

FILE = "nodes.json"
"""The file that names the others."""
_SCHEMA = 1
_ATTEMPTS = 5  # a writer may remove the files that a reader was just told of

Read = TypeVar("Read")


def save_parts(
    folder: Path, parts: Mapping[str, Callable[[Path], None]], notes: Mapping[str, int] | None = None
) -> None:
    """Write files under new names and change over to them in one step; a stop at any moment leaves the old or the new.

    Args:
        folder: Where they lie; made where it is missing.
        parts: Of each file, by a short name, what writes it to a path.
        notes: What is to be known of them without reading them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    token = uuid.uuid4().hex[:12]
    names = {part: f"{part}-{token}" for part in parts}
    for part, write in parts.items():
        write(folder / names[part])
        _sync(folder / names[part])
    temporary = folder / f".{FILE}.{token}"
    temporary.write_text(_dumped(names, notes or {}), encoding="utf-8")
    _sync(temporary)
    temporary.replace(folder / FILE)
    _sync(folder)
    kept = set(names.values())
    for entry in folder.iterdir():
        started = (f".{FILE}.", *(f"{part}-" for part in parts))
        if entry.name.startswith(started) and entry.name not in kept:
            entry.unlink(missing_ok=True)


def read_parts(folder: Path, read: Callable[[dict[str, Path]], Read]) -> Read:
    """Read files that belong together.

    Args:
        folder: Where they lie.
        read: Reads them, given their paths by name.

    Raises:
        ValueError: The folder has no such files, they are damaged, or a newer version wrote them.
    """
    file = folder / FILE
    missing: OSError | None = None
    for _ in range(_ATTEMPTS):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            schema, names = int(content["schema"]), {str(part): str(name) for part, name in content["parts"].items()}
        except OSError as error:
            raise ValueError(f"{folder} holds no nodes ({error}); index the documents anew.") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file} is damaged ({error}); index the documents anew.") from error
        if schema > _SCHEMA:
            raise ValueError(
                f"{file} was written by a newer version of llama-pack-densex (layout {schema}, this one reads "
                f"{_SCHEMA}); upgrade with: pip install -U llama-pack-densex"
            )
        paths = {part: folder / name for part, name in names.items()}
        gone = [path for path in paths.values() if not path.is_file()]
        try:
            if not gone:
                return read(paths)
        except FileNotFoundError as error:
            missing = error
    raise ValueError(
        f"{folder} is damaged: files that {FILE} names are missing; index the documents anew."
    ) from missing


def read_notes(folder: Path) -> dict[str, int] | None:
    """What `save_parts` noted in a folder; None where it wrote nothing.

    Raises:
        ValueError: The file with it is damaged.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        return {str(name): int(value) for name, value in json.loads(file.read_bytes())["notes"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is damaged ({error}); index the documents anew.") from error


def _dumped(names: Mapping[str, str], notes: Mapping[str, int]) -> str:
    return json.dumps({"schema": _SCHEMA, "parts": names, "notes": notes}, indent=2)


def _sync(path: Path) -> None:
    # what a rename names must be on the disk before the rename is
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # not every system syncs folders
            raise
    finally:
        os.close(descriptor)
