"""States of a lexical index in a folder: each has a name and never changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from llama_pack_densex.retrieval.lexical_files import (
    StoredFile,
    is_name,
    is_whole,
    name_of,
    read_arrays,
    sync_folder,
    write_arrays,
    write_file,
)
from llama_pack_densex.retrieval.lexical_live import LiveSegment
from llama_pack_densex.retrieval.lexical_segment import Segment

FOLDER = "lexical"
"""Where the files lie in an index's folder. Like the index beside them, they tell of the words of the documents."""

SCHEMA = 2
"""The version of the files' layout, and of what the tokenizers of this package make of a text."""


@dataclass(frozen=True)
class State:
    """What an index consists of.

    Args:
        tokenizer: The name of its tokenizer.
        fingerprint: What tells that tokenizer from others of its name.
        segments: The files of its segments.
        gone: For each of them, the file that tells what went of it; None where all is left.
    """

    tokenizer: str
    fingerprint: str
    segments: tuple[StoredFile, ...]
    gone: tuple[StoredFile | None, ...]

    @property
    def files(self) -> list[StoredFile]:
        """All files that it consists of."""
        return [*self.segments, *(file for file in self.gone if file is not None)]

    def write(self, folder: Path) -> str:
        """Write it, and return its name, which depends on what it is alone."""
        content = json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True).encode("ascii")
        name = name_of(content)
        if not (folder / name).is_file():
            write_file(folder, name, [content])
        sync_folder(folder)
        return name

    @classmethod
    def read(cls, folder: Path, name: str) -> State:
        """Read a state.

        Raises:
            OSError: It is not there or cannot be read.
            ValueError: It is damaged, or of another version.
        """
        if not is_name(name):
            raise ValueError(f"{name!r} is not the name of a state")
        content = (folder / name).read_bytes()
        if name_of(content) != name:
            raise ValueError("it is damaged")
        try:
            about = json.loads(content)
            if about["schema"] != SCHEMA:
                raise ValueError(f"its layout is {about['schema']}, not {SCHEMA}")
            state = cls(
                str(about["tokenizer"]),
                str(about["fingerprint"]),
                tuple(map(StoredFile.parse, about["segments"])),
                tuple(None if file is None else StoredFile.parse(file) for file in about["gone"]),
            )
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError("it is damaged") from error
        if len(state.segments) != len(state.gone):
            raise ValueError("it is damaged")
        return state

    def open(self, folder: Path) -> tuple[LiveSegment, ...]:
        """Its segments, memory-mapped.

        Raises:
            OSError: A file is not there or cannot be read.
            ValueError: A file is damaged.
        """
        segments = [Segment.of_arrays(file.name, read_arrays(folder, file)) for file in self.segments]
        return tuple(
            LiveSegment(segment) if gone is None else LiveSegment.of_arrays(segment, read_arrays(folder, gone))
            for segment, gone in zip(segments, self.gone, strict=True)
        )


class StateWriter:
    """Writes states into one folder, of each what is not there yet.

    Args:
        folder: Where the files lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: dict[str, StoredFile] = {}

    def know(self, state: State) -> None:
        """Note the files of a state that lies in the folder."""
        self._segments |= {file.name: file for file in state.segments}

    def write(
        self, segments: Sequence[LiveSegment], tokenizer: str, fingerprint: str
    ) -> tuple[str, tuple[LiveSegment, ...]]:
        """Write a state; it is whole on the disk when its name is returned, and all earlier states are still there.

        Returns:
            Its name, and the same segments as they lie in the folder.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        stored, gone, mapped = [], [], []
        for part in segments:
            file = self._segments.get(part.segment.name)
            segment = part.segment
            if file is None or not file.is_in(self._folder):
                file = write_arrays(self._folder, segment.arrays(), segment.name)
                segment = Segment.of_arrays(file.name, read_arrays(self._folder, file))
            stored.append(file)
            gone.append(write_arrays(self._folder, part.arrays()) if len(part.gone) else None)
            mapped.append(LiveSegment(segment, part.gone, part.gone_words, part.gone_frequencies))
        self._segments = {file.name: file for file in stored}
        sync_folder(self._folder)
        return State(tokenizer, fingerprint, tuple(stored), tuple(gone)).write(self._folder), tuple(mapped)


def clean_folder(folder: Path, name: str) -> None:
    """Remove the files that a state does not consist of, and what a stop in between left behind.

    Nothing is removed where there is no such state.
    """
    try:
        state = State.read(folder, name)
    except (OSError, ValueError):
        return
    used = {name, *(file.name for file in state.files)}
    for file in folder.iterdir():
        if file.name not in used:
            with suppress(FileNotFoundError, PermissionError):  # a system may keep what another process reads
                file.unlink()


def damage(folder: Path, name: str) -> list[str]:
    """What is wrong with the files of a state; reads all of them.

    Args:
        folder: The index's folder.
        name: The state's name.
    """
    try:
        state = State.read(folder / FOLDER, name)
    except (OSError, ValueError) as error:
        return [f"the lexical index {name} cannot be read ({error})"]
    return [
        f"the file {file.name} of the lexical index is damaged or missing"
        for file in state.files
        if not is_whole(folder / FOLDER, file)
    ]
