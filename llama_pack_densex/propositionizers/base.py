"""The one seam of the pack: passages go in, sets of propositions come out."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llama_index.core.schema import BaseComponent

from llama_pack_densex._sync import run_sync

Status = Literal["ok", "repaired", "fallback"]


@dataclass(frozen=True)
class Passage:
    """A stretch of a document that is turned into propositions.

    Args:
        text: The passage, word for word as it stands in the document.
        title: The document's title; empty where it has none.
        section: The headings above the passage, outermost first, joined by ", "; empty where there are none.
    """

    text: str
    title: str = ""
    section: str = ""


@dataclass(frozen=True)
class PropositionSet:
    """What one passage became.

    Args:
        texts: The propositions in the order of the passage. Never empty for a passage that is not blank.
        status: "ok" (accepted as it came), "repaired" (came right after a repair or another request) or
            "fallback" (the passage's sentences stand in for propositions that could not be had).
        reason: Why the status is not "ok"; empty where it is.
    """

    texts: tuple[str, ...]
    status: Status = "ok"
    reason: str = ""


class Propositionizer(BaseComponent, ABC):
    """Turns passages into propositions: atomic, self-contained facts (Dense X Retrieval, section 2).

    A subclass implements `apropositionize`; one whose work does not wait for anything implements
    `propositionize` and awaits nothing. It also says what it is in `fingerprint_data`: node ids depend on it, so
    that the propositions of two different propositionizers never pass for each other.
    """

    @classmethod
    def class_name(cls) -> str:
        return "Propositionizer"

    @abstractmethod
    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Turn passages into propositions.

        Args:
            passages: Any number of passages.

        Returns:
            One set a passage, in the order of `passages`.
        """

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Do what `apropositionize` does, from synchronous code; works inside a running event loop too."""
        return run_sync(self.apropositionize(passages))

    @abstractmethod
    def fingerprint_data(self) -> dict[str, Any]:
        """Say what decides this propositionizer's output, as JSON values without secrets."""

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change when the propositionizer's output may change."""
        data = json.dumps({"class": self.class_name(), **self.fingerprint_data()}, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(data.encode("utf-8", "surrogatepass")).hexdigest()[:16]
