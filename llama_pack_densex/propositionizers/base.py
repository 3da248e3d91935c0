"""The one seam of the pack: passages go in, sets of propositions come out."""

from __future__ import annotations

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, Literal, TypeVar

from anyio.from_thread import start_blocking_portal
from llama_index.core.bridge.pydantic import Field, SerializeAsAny
from llama_index.core.schema import BaseComponent
from llama_index.core.utils import iter_batch

from llama_pack_densex.llm.errors import LLMError
from llama_pack_densex.llm.usage import RequestFigures, Usage
from llama_pack_densex.text.language import detect_language
from llama_pack_densex.text.segments import passage_sentences
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

T = TypeVar("T")

Status = Literal["ok", "repaired", "fallback"]
FindingKind = Literal[
    "grounding", "language", "self_containedness", "coverage", "duplication", "size"
]


class PropositionizerError(LLMError):
    """The run cannot continue: the key, the model or the quota is at fault, and every other passage would
    fail too.

    Attributes:
        ingestion: The `IngestionSummary` of the ingestion that it stopped; None if it stopped none.

    Example:
        >>> from llama_index.llms.openai import OpenAI
        >>> from llama_pack_densex import LLMPropositionizer, Passage, PropositionizerError
        >>> propositionizer = LLMPropositionizer(OpenAI(model="gpt-4"))
        >>> try:
        ...     propositionizer.propositionize([Passage("Miso is salty.")])
        ... except PropositionizerError as error:
        ...     print(error)
        NotFoundError: The model `gpt-4` does not exist or you do not have access to it. ...
    """

    ingestion: Any = None


class BudgetExceededError(PropositionizerError):
    """The budget does not allow another request. Replies that were paid for are kept if there is a reply
    cache.

    Example:
        >>> from llama_index.llms.openai import OpenAI
        >>> from llama_pack_densex import BudgetExceededError, LLMPropositionizer, Passage
        >>> propositionizer = LLMPropositionizer(OpenAI(model="gpt-4o-mini"), max_tokens_total=100)
        >>> try:
        ...     propositionizer.propositionize([Passage("Miso, a seasoning, is made of soybeans.")])
        ... except BudgetExceededError as error:
        ...     print(error)
        The budget does not allow another request: ... and max_tokens_total is 100. ...
    """


_BATCH = 256  # passages at a time where they are streamed to what takes lists


@dataclass(frozen=True)
class Passage:
    """A stretch of a document that is turned into propositions.

    Args:
        text: The passage, word for word as it stands in the document.
        title: The document's title; empty where it has none.
        section: The headings above the passage, outermost first, joined by ", "; empty where there are none.
        context: What has to be read before the passage, as Markdown that ends where the passage begins: the
            line that introduces its list, or the header of its table; empty where there is nothing.

    Example:
        >>> from llama_pack_densex import Passage
        >>> passage = Passage(
        ...     "| Oolong | 12 euros |",
        ...     title="Teas",
        ...     section="Teas, Prices",
        ...     context="| Tea | 100 g |\\n| --- | --- |\\n",
        ... )
        >>> passage.sentences
        ('Tea: Oolong; 100 g: 12 euros',)
    """

    text: str
    title: str = ""
    section: str = ""
    context: str = ""

    @property
    def language(self) -> str:
        """Its language ("en", "ja", ...), judged by title and section where the text alone does not tell.

        Example:
            >>> Passage("雨が降った。試合は中止された。").language
            'ja'
        """
        return detect_language(self.text, f"{self.title}\n{self.section}")

    @property
    def sentences(self) -> tuple[str, ...]:
        """Its sentences, rows and code, which stand in for propositions.

        Example:
            >>> Passage("雨が降った。試合は中止された。").sentences
            ('雨が降った。', '試合は中止された。')
        """
        return passage_sentences(self.text, self.context)


@dataclass(frozen=True)
class Finding:
    """A fault that a check found in the propositions of a passage.

    Args:
        kind: The check that found it (see `check_propositions`).
        proposition: The index of the proposition, from 0; None where no single one is at fault.
        span: Its place in the passage's text, in characters; None where it has none.
        reason: What was wrong, in plain words.

    Example:
        >>> from llama_pack_densex import Passage, check_propositions
        >>> finding = check_propositions(Passage("Miso keeps for a year."), ["Miso keeps for two years."])[0]
        >>> finding.kind, finding.proposition, finding.reason
        ('grounding', 0, '"two" is not in the passage')
    """

    kind: FindingKind
    proposition: int | None
    span: tuple[int, int] | None
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


@dataclass(frozen=True)
class PropositionSet:
    """What one passage became.

    Args:
        texts: The propositions, in the order of the passage; never empty unless the passage is blank.
        status: "ok" (accepted as it came), "repaired" (came right in parts, or after another request) or
            "fallback" (the passage's sentences stand in for propositions that could not be obtained).
        reason: Why the status is not "ok"; empty where it is.
        is_passing: Whether asking again later may succeed, since the provider could not be reached. A
            document with such a passage does not count as done.
        questions: Questions that the passage answers, if any were made; it is found by them too.
        findings: What checks found wrong with the propositions (see `checks.check_propositions`); nothing is
            looked for where sentences stand in.

    Example:
        >>> from llama_pack_densex import Passage, SentencePropositionizer
        >>> result = SentencePropositionizer().propositionize([Passage("Miso is salty. Miso keeps.")])[0]
        >>> result.texts, result.status, result.findings
        (('Miso is salty.', 'Miso keeps.'), 'ok', ())
    """

    texts: tuple[str, ...]
    status: Status = "ok"
    reason: str = ""
    is_passing: bool = False
    questions: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


class Propositionizer(BaseComponent, ABC):
    """Turns passages into propositions: atomic, self-contained facts (Dense X Retrieval, section 2).

    A subclass implements `apropositionize`, and `propositionize` too if its work does not wait for anything.
    It also implements `fingerprint_data`: node ids depend on it, so that the propositions of two different
    propositionizers are never mistaken for each other.

    Example:
        >>> from llama_pack_densex import Passage, Propositionizer
        >>> from llama_pack_densex.propositionizers.base import PropositionSet
        >>> class LinePropositionizer(Propositionizer):
        ...     async def apropositionize(self, passages):
        ...         return [PropositionSet(tuple(passage.text.splitlines())) for passage in passages]
        ...     def fingerprint_data(self):
        ...         return {"version": 1}
        >>> propositionizer = LinePropositionizer()
        >>> propositionizer.propositionize([Passage("Miso is salty.\\nMiso keeps for a year.")])[0].texts
        ('Miso is salty.', 'Miso keeps for a year.')
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
            One set for each passage, in the order of `passages`.

        Example:
            >>> import asyncio
            >>> asyncio.run(propositionizer.apropositionize([Passage("Miso is salty.")]))[0].texts
            ('Miso is salty.',)
        """

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Do what `apropositionize` does, from synchronous code; works inside a running event loop too.

        Args:
            passages: Any number of passages.

        Returns:
            One set for each passage, in the order of `passages`.

        Example:
            >>> [result.status for result in propositionizer.propositionize([Passage("Miso is salty.")])]
            ['ok']
        """
        return run_sync(self.apropositionize(passages))

    def stream(self, passages: Iterable[Passage]) -> Iterator[PropositionSet]:
        """Turn passages into propositions as they come, in their order; memory does not grow with their
        number.

        Args:
            passages: Any iterable; it is read a little ahead of what is yielded.

        Yields:
            One set for each passage.

        Example:
            >>> passages = (Passage(f"Shelf {number} holds miso.") for number in range(1000))
            >>> next(propositionizer.stream(passages)).texts
            ('Shelf 0 holds miso.',)
        """
        for batch in iter_batch(passages, _BATCH):
            yield from checked_sets(self, batch, self.propositionize(batch))

    @property
    def usage(self) -> Usage:
        """The requests and tokens that this object has used so far; zero if it asks no LLM.

        Example:
            >>> propositionizer.usage.total_tokens
            0
        """
        return self.figures.usage

    @property
    def figures(self) -> RequestFigures:
        """The requests so far, with what they used and cost.

        Example:
            >>> propositionizer.figures.cost
            0.0
        """
        return RequestFigures(cost=0.0)

    def keeping_replies(self, file: Path) -> Propositionizer:
        """The same propositionizer, keeping an LLM's replies in a file unless they are kept already.

        Args:
            file: The SQLite file for the replies; it is created if missing.

        Example:
            >>> from pathlib import Path
            >>> propositionizer.keeping_replies(Path("replies.db")) is propositionizer  # it asks no LLM
            True
        """
        return self

    def forget_replies(self, texts: Iterable[str]) -> int:
        """Forget the replies about some passages, so that an LLM is asked again.

        Args:
            texts: The passages' texts.

        Returns:
            How many replies were kept.

        Example:
            >>> propositionizer.forget_replies(["Miso is salty."])
            0
        """
        return 0

    def purge(self, texts: Iterable[str]) -> int:
        """Forget all that is kept of passages: replies in a cache, lines in a recording.

        Args:
            texts: The passages' texts.

        Returns:
            How many entries there were.

        Example:
            >>> propositionizer.purge(["Miso is salty."])
            0
        """
        return 0

    @abstractmethod
    def fingerprint_data(self) -> dict[str, Any]:
        """Say what decides this propositionizer's output, as JSON values without secrets.

        Example:
            >>> propositionizer.fingerprint_data()
            {'version': 1}
        """

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change when the propositionizer's output may change.

        Example:
            >>> len(propositionizer.fingerprint)
            16
        """
        data = {"class": self.class_name(), **self.fingerprint_data()}
        text = json.dumps(data, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class DelegatingPropositionizer(Propositionizer):
    """Makes the propositions of some passages, and has another propositionizer make those of the rest.

    A subclass says which passages are its own (`takes`), makes the sets of these (`_make`), and says what is
    wrong where there are others and nobody to take them (`_refusal`).
    """

    otherwise: SerializeAsAny[Propositionizer] | None = Field(
        default=None,
        description="The propositionizer for the passages that this one does not take.",
    )

    @abstractmethod
    def takes(self, passage: Passage) -> bool:
        """Whether a passage is one of its own."""

    @abstractmethod
    def _make(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """The sets of passages of its own."""

    @abstractmethod
    def _refusal(self, refused: Sequence[Passage], count: int) -> str:
        """What to say of passages that nobody takes, out of so many."""

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Do what `Propositionizer` says; raises ValueError for a passage that nobody takes."""
        taken = await asyncio.to_thread(lambda: [*map(self.takes, passages)])
        rest = [passage for passage, is_own in zip(passages, taken, strict=True) if not is_own]
        sets_of_rest: Sequence[PropositionSet] = []
        if rest:
            if self.otherwise is None:
                raise ValueError(self._refusal(rest, len(passages)))
            sets_of_rest = checked_sets(
                self.otherwise, rest, await self.otherwise.apropositionize(rest)
            )
        own_sets = await asyncio.to_thread(self._make, [*compress(passages, taken)])
        remaining = {True: iter(own_sets), False: iter(sets_of_rest)}
        return [next(remaining[is_own]) for is_own in taken]

    def __reduce__(self) -> tuple[Any, ...]:
        # files and weights are read again where it is unpickled
        return partial(type(self), **dict(self)), ()

    def keeping_replies(self, file: Path) -> Propositionizer:
        """The same propositionizer, whose `otherwise` keeps an LLM's replies."""
        otherwise = None if self.otherwise is None else self.otherwise.keeping_replies(file)
        return (
            self
            if otherwise is self.otherwise
            else self.model_copy(update={"otherwise": otherwise})
        )

    def forget_replies(self, texts: Iterable[str]) -> int:
        return self.otherwise.forget_replies(texts) if self.otherwise is not None else 0

    def purge(self, texts: Iterable[str]) -> int:
        """Forget what `otherwise` keeps of passages."""
        return self.otherwise.purge(texts) if self.otherwise is not None else 0

    @property
    def figures(self) -> RequestFigures:
        """What the requests of `otherwise` came to."""
        return self.otherwise.figures if self.otherwise is not None else super().figures

    def fingerprint_data(self) -> dict[str, Any]:
        return {"otherwise": self.otherwise.fingerprint if self.otherwise is not None else None}


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result, from synchronous code.

    Inside a running event loop (a notebook, a web server) it runs on a loop of its own in another thread,
    with the caller's context variables; core's `asyncio_run` does so too, but takes every RuntimeError that
    the coroutine raises for a missing loop. Ctrl-C there cancels the coroutine.
    """
    if asyncio._get_running_loop() is None:
        return asyncio.run(coroutine)

    async def awaited() -> T:
        return await coroutine

    with start_blocking_portal() as portal:
        return portal.call(awaited)


def checked_sets(
    propositionizer: Propositionizer, passages: Sequence[Passage], sets: Sequence[PropositionSet]
) -> Sequence[PropositionSet]:
    """Return a propositionizer's sets if there is one a passage.

    Raises:
        ValueError: There is not.
    """
    if len(sets) != len(passages):
        raise ValueError(
            f"{propositionizer.class_name()} returned {len(sets)} sets for {len(passages)} passages; "
            "a propositionizer returns one set a passage, in their order"
        )
    return sets


def reported(sets: list[PropositionSet]) -> list[PropositionSet]:
    """Sets, after a warning of those that sentences stand in for."""
    report_fallbacks(
        Counter(result.reason for result in sets if result.status == "fallback"), len(sets)
    )
    return sets


def report_fallbacks(reasons: Counter[str], passages: int) -> None:
    """Warn of passages that sentences stand in for.

    Args:
        reasons: How many of them for which reason.
        passages: How many passages there are in all.
    """
    if reasons:
        frequent = "; ".join(f"{reason} ({times})" for reason, times in reasons.most_common(5))
        message = "Sentences stand in for propositions in %d of %d passages: %s"
        logger.warning(message, reasons.total(), passages, frequent)
