"""Propositions recorded in a JSONL file: appended as they arrive, looked up, erased."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any, get_args

from llama_index.core.bridge.pydantic import Field
from typing_extensions import Self

from llama_pack_densex.llm.cache import open_private
from llama_pack_densex.llm.claims import name_place, refuse_field
from llama_pack_densex.propositionizers.base import (
    DelegatingPropositionizer,
    Passage,
    Propositionizer,
    PropositionSet,
    Status,
)
from llama_pack_densex.propositionizers.checks import checked
from llama_pack_densex.text.tokens import compared

_WRITING = threading.Lock()
# each set under two keys: (text,), and that of its passage
_Recordings = dict[tuple[str, ...], PropositionSet]


class RecordedPropositionizer(DelegatingPropositionizer):
    """Looks propositions up by the passage's text in a JSONL file, and asks another propositionizer for the
    rest.

    A line of the file is `{"title": ..., "section": ..., "text": ..., "propositions": [...], "questions":
    [...]}`, and may also have the passage's "context", and the propositions' "status" and "reason". A line
    may have only one of the two lists; lines of the same passage are merged. White space and Unicode
    normalisation (NFKC) are ignored when texts are compared. If several lines have the same text, the one
    with the passage's title, section and context is used, else the last. Node ids do not depend on the file's
    content, so that a line added for one document does not change the ids of all others; but documents whose
    title has other lines than before count as changed, as do all if lines without a title differ.

    Args:
        path: The JSONL file, in UTF-8.
        otherwise: Makes the propositions of passages that are not in the file; without it, such a passage is
            an error.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: A line of the file cannot be read, or (on use) a passage is not in the file and there is
            no `otherwise`.

    Example:
        >>> from pathlib import Path
        >>> from llama_pack_densex import Passage, RecordedPropositionizer, SentencePropositionizer
        >>> line = '{"text": "Miso is salty and keeps.", "propositions": ["Miso is salty.", "Miso keeps."]}'
        >>> _ = Path("recorded.jsonl").write_text(line)
        >>> propositionizer = RecordedPropositionizer("recorded.jsonl", otherwise=SentencePropositionizer())
        >>> passages = [Passage("Miso is salty and keeps."), Passage("Tea is not.")]
        >>> [result.texts for result in propositionizer.propositionize(passages)]
        [('Miso is salty.', 'Miso keeps.'), ('Tea is not.',)]
    """

    path: str = Field(description="The JSONL file with the recorded propositions.")
    _recorded: _Recordings
    _editions: dict[str, str]

    def __init__(
        self, path: str | Path, otherwise: Propositionizer | None = None, **kwargs: Any
    ) -> None:
        fields = {"path": str(path), "otherwise": otherwise, **kwargs}
        super().__init__(**fields)
        self._recorded = _read_recordings(Path(path))
        self._editions = _editions_of(self._recorded)
        name_place(self.path)

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """Make a propositionizer from what `to_dict` returned; `kwargs` override.

        Raises:
            ValueError: The file is named by the dictionary alone (see `llm.claims`).
        """
        refuse_field(data, kwargs, "path", "a recording")
        return super().from_dict(data, **kwargs)

    @classmethod
    def class_name(cls) -> str:
        return "RecordedPropositionizer"

    def takes(self, passage: Passage) -> bool:
        return not passage.text.strip() or (compared(passage.text),) in self._recorded

    def _refusal(self, refused: Sequence[Passage], count: int) -> str:
        titles = sorted({passage.title for passage in refused} - {""})
        return (
            f"{len(refused)} of {count} passages are not in {self.path}"
            f"{f', the first of {titles[0]!r}' if titles else ''}. "
            "Split the documents as they were split for the recording, or pass "
            "otherwise=SentencePropositionizer() or another propositionizer for the rest (at the command "
            'line --llm, which names an LLM for it, or "none" for sentences).'
        )

    def edition(self, title: Callable[[], str]) -> str:
        titles = {compared(title()), ""}
        own = "".join(self._editions.get(name, "") for name in sorted(titles))
        return own + super().edition(title)

    def _make(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return [self._look_up(passage) for passage in passages]

    def _look_up(self, passage: Passage) -> PropositionSet:
        recorded = _recorded_for(_key(passage), self._recorded)
        if recorded.texts:
            return checked(passage, recorded)
        reason = "no propositions were recorded for this passage"
        return replace(recorded, texts=passage.sentences, status="fallback", reason=reason)

    def purge(self, texts: Iterable[str]) -> int:
        """Erase the lines of these passages from the file and from memory, and what `otherwise` has stored
        about them.

        Raises:
            OSError: The file cannot be written.
        """
        texts = set(texts)
        purged = set(map(compared, texts))
        for key in [key for key in self._recorded if key[0] in purged]:
            del self._recorded[key]
        self._editions = _editions_of(self._recorded)
        return purge_recording(self.path, texts) + super().purge(texts)


def _read_recordings(path: Path) -> _Recordings:
    recorded: _Recordings = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip() or _is_half(line):
                continue
            try:
                record = json.loads(line.decode("utf-8-sig"))
                headings = (str(record.get(name) or "") for name in ("title", "section", "context"))
                key = _key(Passage(record["text"], *headings))
                recorded[key] = recorded[key[:1]] = _joined(_recorded_for(key, recorded), record)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                statuses = ", ".join(get_args(Status))
                raise ValueError(
                    f'{path}, line {number}: expected a JSON object with "text" (a string) and '
                    f'"propositions" or "questions" (lists of strings), and as "status" nothing or '
                    f"{statuses}; correct or remove the line"
                ) from error
    return recorded


def _editions_of(recorded: _Recordings) -> dict[str, str]:
    """Return a hash of what is recorded under each title."""
    hashes: defaultdict[str, Any] = defaultdict(hashlib.sha256)
    for key, sets in recorded.items():
        if len(key) > 1:
            line = repr((key, sets.texts, sets.questions, sets.status))
            hashes[key[1]].update(line.encode("utf-8", "surrogatepass"))
    return {title: total.hexdigest()[:16] for title, total in hashes.items()}


def _recorded_for(key: tuple[str, ...], recorded: _Recordings) -> PropositionSet:
    return recorded.get(key) or recorded.get(key[:1], PropositionSet(()))


def _joined(earlier: PropositionSet, record: dict[str, Any]) -> PropositionSet:
    """Merge one line of a passage into the set from its earlier lines."""
    status: Status = record.get("status") or "ok"
    if status not in get_args(Status) or record.keys().isdisjoint(("propositions", "questions")):
        raise ValueError
    if "questions" in record:
        earlier = replace(earlier, questions=_texts(record["questions"]))
    if "propositions" in record:
        reason = str(record.get("reason") or "")
        earlier = replace(
            earlier, texts=_texts(record["propositions"]), status=status, reason=reason
        )
    return earlier


def _texts(texts: Any) -> tuple[str, ...]:
    if not isinstance(texts, list):
        raise TypeError
    return tuple(text for text in texts if text.strip())


def open_recording(path: str | Path) -> None:
    """Create the file if it is missing (readable by its owner only), and remove an incomplete last line that
    a killed process left.

    Raises:
        OSError: The file cannot be written.
    """
    last = b"\n"
    with _WRITING, open(path, "ab+", opener=open_private) as file:
        file.seek(0)
        for line in file:
            last = line
        if _is_half(last):
            file.truncate(file.tell() - len(last))
        elif not last.endswith(b"\n"):
            file.write(b"\n")


def append_recording(path: str | Path, passage: Passage, propositions: PropositionSet) -> None:
    """Append one passage with its propositions, as one line in one write.

    Raises:
        OSError: The file cannot be written; it is left as it was.
    """
    record = {**asdict(passage), "propositions": propositions.texts}
    if not passage.context:
        del record["context"]
    if propositions.questions:
        record["questions"] = propositions.questions
    text = json.dumps(record, ensure_ascii=False) + "\n"
    line = text.encode("utf-8", "backslashreplace")  # a lone surrogate becomes its JSON escape
    with _WRITING, open(path, "ab", buffering=0, opener=open_private) as file:
        written = file.write(line)
        # a full disk may take only a part of the line, which would make the file unreadable
        if written < len(line):
            file.truncate(file.tell() - written)
            raise OSError(errno.ENOSPC, "No space left on device", str(path))


def purge_recording(path: str | Path, texts: Iterable[str]) -> int:
    """Rewrite a recording without the lines of these passages; texts are compared as in lookups.

    An incomplete line that a killed process left may be of any passage, so it is removed too.

    Returns:
        How many lines were removed.

    Raises:
        OSError: The file cannot be written; it is left as it was.
    """
    purged = {compared(text) for text in texts}
    with _WRITING:
        if not purged or not os.path.exists(path):
            return 0
        lines = Path(path).read_bytes().splitlines(keepends=True)
        whole = (line for line in lines if not _is_half(line))
        remaining = [line for line in whole if compared(_text_in(line)) not in purged]
        if len(remaining) < len(lines):
            temporary = Path(f"{path}.{uuid.uuid4().hex}")
            try:
                with open(temporary, "xb", opener=open_private) as file:
                    file.writelines(remaining)
                shutil.copymode(path, temporary)
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
    return len(lines) - len(remaining)


def _key(passage: Passage) -> tuple[str, ...]:
    """The key of a passage: its text, title, section and context, normalised."""
    return tuple(map(compared, astuple(passage)))


def _is_half(line: bytes) -> bool:
    """Return whether a line was cut short by a killed process; other malformed lines are the user's."""
    return line.startswith(b"{") and not line.endswith(b"\n") and not line.rstrip().endswith(b"}")


def _text_in(line: bytes) -> str:
    """The passage's text in a line; empty if the line is damaged."""
    try:
        return str(json.loads(line.decode("utf-8-sig"))["text"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
