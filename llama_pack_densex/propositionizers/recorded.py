"""Propositions that were made earlier and kept in a JSONL file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from llama_index.core.bridge.pydantic import Field, PrivateAttr, SerializeAsAny

from llama_pack_densex.llm_requests.reply import RequestFigures
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.recordings import purge_recording, recording_key
from llama_pack_densex.propositionizers.sentences import passage_sentences


class RecordedPropositionizer(Propositionizer):
    """Looks propositions up by the passage's text in a JSONL file, and asks another propositionizer for the rest.

    A line of the file is `{"title": ..., "text": ..., "propositions": [...]}`. White space and Unicode
    normalisation (NFKC) do not count when texts are compared; of several lines with one text the last counts.

    Args:
        path: The JSONL file, in UTF-8.
        otherwise: Where passages go that are not in the file; without it they are an error.

    Raises:
        FileNotFoundError: The file is not there.
        ValueError: A line of the file cannot be read, or (on use) a passage is not in the file and there is no
            `otherwise`.
    """

    path: str = Field(description="The JSONL file with the recorded propositions.")
    otherwise: SerializeAsAny[Propositionizer] | None = Field(
        default=None, description="The propositionizer for passages that are not in the file."
    )
    _recorded: dict[str, tuple[str, ...]] = PrivateAttr()

    def __init__(self, path: str | Path, otherwise: Propositionizer | None = None, **kwargs: Any) -> None:
        fields = {"path": str(path), "otherwise": otherwise, **kwargs}
        super().__init__(**fields)
        self._recorded = _read_recordings(Path(path))

    @classmethod
    def class_name(cls) -> str:
        return "RecordedPropositionizer"

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["__pydantic_private__"] = None  # the file is read again where it is unpickled
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        # core's version takes every failure of the constructor for a pickle of another kind and goes on half-built
        self.__init__(**state["__dict__"])  # type: ignore[misc]

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Look the passages up; raises ValueError for one that is neither recorded nor taken by `otherwise`."""
        known, missing = self._look_up(passages)
        if missing and self.otherwise is not None:
            _fill(known, missing, self.otherwise.propositionize([passages[i] for i in missing]))
        return [known[i] for i in range(len(passages))]

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        known, missing = self._look_up(passages)
        if missing and self.otherwise is not None:
            _fill(known, missing, await self.otherwise.apropositionize([passages[i] for i in missing]))
        return [known[i] for i in range(len(passages))]

    def _look_up(self, passages: Sequence[Passage]) -> tuple[dict[int, PropositionSet], list[int]]:
        known: dict[int, PropositionSet] = {}
        missing: list[int] = []
        for i, passage in enumerate(passages):
            texts = self._recorded.get(recording_key(passage.text))
            if texts:
                known[i] = PropositionSet(texts)
            elif texts is None and passage.text.strip():
                missing.append(i)
            else:
                known[i] = PropositionSet(
                    passage_sentences(passage.text), "fallback", "no propositions were recorded for this passage"
                )
        if missing and self.otherwise is None:
            first = passages[missing[0]]
            raise ValueError(
                f"{len(missing)} of {len(passages)} passages are not in {self.path}; the first one"
                f"{f' of {first.title!r}' if first.title else ''} begins with {first.text.strip()[:60]!r}. "
                "Split the documents as they were split for the recording, or pass otherwise=SentencePropositionizer() "
                "or another propositionizer for the rest."
            )
        return known, missing

    def keeping_replies(self, file: Path) -> RecordedPropositionizer:
        """The same propositionizer, whose `otherwise` keeps an LLM's replies."""
        otherwise = None if self.otherwise is None else self.otherwise.keeping_replies(file)
        return self if otherwise is self.otherwise else self.model_copy(update={"otherwise": otherwise})

    def purge(self, texts: Iterable[str]) -> int:
        """Leave out the lines of some passages in the file and in memory, and forget what `otherwise` keeps of them.

        Raises:
            OSError: The file cannot be written.
        """
        texts = set(texts)
        for text in texts:
            self._recorded.pop(recording_key(text), None)
        purged = purge_recording(self.path, texts)
        return purged + (self.otherwise.purge(texts) if self.otherwise is not None else 0)

    @property
    def figures(self) -> RequestFigures:
        """What the requests of `otherwise` came to."""
        return self.otherwise.figures if self.otherwise is not None else super().figures

    def fingerprint_data(self) -> dict[str, Any]:
        # Not the file's content: a line added for one document must not change the node ids of all others.
        return {"otherwise": self.otherwise.fingerprint if self.otherwise else None}


def _fill(known: dict[int, PropositionSet], missing: list[int], found: list[PropositionSet]) -> None:
    known.update(zip(missing, found, strict=True))


def _read_recordings(path: Path) -> dict[str, tuple[str, ...]]:
    recorded: dict[str, tuple[str, ...]] = {}
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                text, propositions = record["text"], record["propositions"]
                if not isinstance(text, str) or not all(isinstance(p, str) for p in propositions):
                    raise TypeError
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f'{path}, line {number}: expected a JSON object with "text" (a string) and "propositions" '
                    "(a list of strings); mend or remove the line"
                ) from error
            recorded[recording_key(text)] = tuple(p for p in propositions if p.strip())
    return recorded
