"""Writing propositions into a JSONL file as they arrive; `RecordedPropositionizer` reads it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from llama_pack_densex.propositionizers.base import Passage, PropositionSet

_WRITING = threading.Lock()


def open_recording(path: str | Path) -> None:
    """Create the file if it is not there (readable by its owner only), and end a line that a crash cut off.

    Raises:
        OSError: The file cannot be written.
    """
    with _WRITING:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "rb+", buffering=0) as file:
            if file.seek(0, os.SEEK_END) > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")


def append_recording(path: str | Path, passage: Passage, propositions: PropositionSet) -> None:
    """Append one passage with its propositions, as a whole line in one write."""
    record = {"title": passage.title, "text": passage.text, "propositions": list(propositions.texts)}
    line = json.dumps(record, ensure_ascii=False) + "\n"
    data = line.encode("utf-8", "backslashreplace")  # a lone surrogate becomes its JSON escape
    with _WRITING, open(path, "ab", buffering=0, opener=_open_private) as file:
        file.write(data)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
