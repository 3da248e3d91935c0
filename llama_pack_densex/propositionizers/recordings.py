"""Writing propositions into a JSONL file as they arrive; `RecordedPropositionizer` reads it."""

from __future__ import annotations

import json
import os
import stat
import threading
import unicodedata
import uuid
from collections.abc import Collection
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


def purge_recording(path: str | Path, texts: Collection[str]) -> int:
    """Write a recording anew without the lines of some passages.

    Args:
        path: The file; it need not exist.
        texts: The passages' texts, compared as `RecordedPropositionizer` looks them up.

    Returns:
        How many lines were left out.

    Raises:
        OSError: The file cannot be written; then it is as it was.
    """
    gone = {recording_key(text) for text in texts}
    purged = 0
    with _WRITING:
        if not gone or not os.path.exists(path):
            return 0
        temporary = Path(f"{path}.{uuid.uuid4().hex}")
        try:
            with open(path, "rb") as lines, open(temporary, "xb", opener=_open_private) as kept:
                os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
                for line in lines:
                    if recording_key(_text_in(line)) in gone:
                        purged += 1
                    else:
                        kept.write(line)
            if purged:
                os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return purged


def recording_key(text: str) -> str:
    """What a passage is looked up by: its text in NFKC, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _text_in(line: bytes) -> str:
    """The passage of a line; empty where the line is damaged."""
    try:
        record = json.loads(line.decode("utf-8-sig"))
        return str(record["text"])
    except (ValueError, KeyError, TypeError):
        return ""


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
