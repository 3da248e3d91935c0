"""The interface of every propositionizer: passages go in, sets of propositions come out."""

from __future__ import annotations

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
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
    """The run cannot continue: the key, the model or the quota is at fault, so every other passage would
    fail too.

    Attributes:
        ingestion: The `IngestionSummary` of the ingestion that this error stopped; None outside an ingestion.

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
    """The budget does not allow another request. If there is a reply cache, the replies already paid for are
    in it.

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


_BATCH = 256  # passages per call of `propositionize` when a stream of them is read


@dataclass(frozen=True)
class Passage:
    """A stretch of a document that is turned into propositions.

    Args:
        text: The passage's text, verbatim from the document.
        title: The document's title; empty if it has none.
        section: The headings above the passage, outermost first, joined by ", "; empty if there are none.
        context: The text that is needed to understand the passage, as Markdown that ends where the passage
            begins, such as the line that introduces its list, or the header of its table; empty if nothing is
            needed.

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
        """The passage's language ("en", "ja", ...); title and section decide if the text alone does not.

        Example:
            >>> Passage("雨が降った。試合は中止された。").language
            'ja'
        """
        return detect_language(self.text, f"{self.title}\n{self.section}")

    @property
    def sentences(self) -> tuple[str, ...]:
        """The passage's sentences, table rows and code blocks, which can stand in for propositions.

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
        proposition: The index of the proposition, from 0; None if no single proposition is at fault.
        span: The (start, end) of the uncovered sentence in the passage's text, in characters; None for other
            findings.
        reason: What is wrong, in plain words.

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
    """The propositions of one passage.

    Args:
        texts: The propositions, in the order of the passage; never empty unless the passage is blank.
        status: "ok" (the first reply was used), "repaired" (it took several parts or another request) or
            "fallback" (the passage's sentences stand in for propositions that could not be obtained).
        reason: Why the status is not "ok"; empty if it is.
        is_passing: Whether the failure is temporary (such as an unreachable provider), so that a later
            request may succeed. A document with such a passage does not count as done.
        questions: Questions that the passage answers, if any were made; they are searched too.
        findings: What checks found wrong with the propositions (see `checks.check_propositions`); sentences
            that stand in for propositions are not checked.

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

    A subclass implements `apropositionize`, and also `propositionize` if it has nothing to await.
    It implements `fingerprint_data` as well: node ids depend on it, so that the propositions of two different
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
        """Call `apropositionize` from synchronous code; works inside a running event loop too.

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
        """Turn a stream of passages into propositions; memory does not grow with their number.

        Args:
            passages: Any iterable; it is read a little ahead of what is yielded.

        Yields:
            One set for each passage, in their order.

        Example:
            >>> passages = (Passage(f"Shelf {number} holds miso.") for number in range(1000))
            >>> next(propositionizer.stream(passages)).texts
            ('Shelf 0 holds miso.',)
        """
        for batch in iter_batch(passages, _BATCH):
            yield from checked_sets(self, batch, self.propositionize(batch))

    @property
    def usage(self) -> Usage:
        """The requests and tokens that this object has used so far; zero if it uses no LLM.

        Example:
            >>> propositionizer.usage.total_tokens
            0
        """
        return self.figures.usage

    @property
    def figures(self) -> RequestFigures:
        """The requests so far, their tokens and their cost.

        Example:
            >>> propositionizer.figures.cost
            0.0
        """
        return RequestFigures(cost=0.0)

    def keeping_replies(self, file: Path) -> Propositionizer:
        """Return this propositionizer with a reply cache, unless it has one or uses no LLM.

        Args:
            file: The SQLite file for the LLM's replies; it is created if missing.

        Example:
            >>> from pathlib import Path
            >>> propositionizer.keeping_replies(Path("replies.db")) is propositionizer  # it uses no LLM
            True
        """
        return self

    def forget_replies(self, texts: Iterable[str]) -> int:
        """Delete the cached replies for these passages, so that the LLM is asked again.

        Args:
            texts: The passages' texts.

        Returns:
            How many replies were deleted.

        Example:
            >>> propositionizer.forget_replies(["Miso is salty."])
            0
        """
        return 0

    def purge(self, texts: Iterable[str]) -> int:
        """Erase everything stored about these passages: cached replies, and lines of a recording.

        Args:
            texts: The passages' texts.

        Returns:
            How many entries were erased.

        Example:
            >>> propositionizer.purge(["Miso is salty."])
            0
        """
        return 0

    @abstractmethod
    def fingerprint_data(self) -> dict[str, Any]:
        """Return the settings that this propositionizer's output depends on, as JSON values without secrets.

        Example:
            >>> propositionizer.fingerprint_data()
            {'version': 1}
        """

    def edition(self, title: Callable[[], str]) -> str:
        """Return a hash of what the user can edit of a document's propositions; empty if there is nothing. If
        it differs, the document counts as changed; node ids do not depend on it.

        Args:
            title: Returns the document's title.

        Example:
            >>> propositionizer.edition(lambda: "Miso")
            ''
        """
        return ""

    @property
    def fingerprint(self) -> str:
        """A hash of sixteen hexadecimal digits that changes when the propositionizer's output may change.

        Example:
            >>> len(propositionizer.fingerprint)
            16
        """
        data = {"class": self.class_name(), **self.fingerprint_data()}
        text = json.dumps(data, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class DelegatingPropositionizer(Propositionizer):
    """A propositionizer for some passages that hands the rest to another propositionizer, `otherwise`.

    A subclass says which passages it handles (`takes`), makes their propositions (`_make`), and words the
    error for passages that neither it nor `otherwise` handles (`_refusal`).
    """

    otherwise: SerializeAsAny[Propositionizer] | None = Field(
        default=None,
        description="The propositionizer for the passages that this one does not handle.",
    )

    @abstractmethod
    def takes(self, passage: Passage) -> bool:
        """Return whether this propositionizer handles a passage itself."""

    @abstractmethod
    def _make(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Make the propositions of passages that this propositionizer handles."""

    @abstractmethod
    def _refusal(self, refused: Sequence[Passage], count: int) -> str:
        """Word the error for the `refused` passages, out of `count`, that no propositionizer handles."""

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Turn passages into propositions.

        Raises:
            ValueError: This propositionizer does not handle a passage, and there is no `otherwise`.
        """
        are_own = await asyncio.to_thread(lambda: [*map(self.takes, passages)])
        rest = [passage for passage, is_own in zip(passages, are_own, strict=True) if not is_own]
        sets_of_rest = iter(await self._make_others(rest, len(passages)))
        own_sets = iter(await asyncio.to_thread(self._make, [*compress(passages, are_own)]))
        return [next(own_sets if is_own else sets_of_rest) for is_own in are_own]

    async def _make_others(
        self, passages: Sequence[Passage], count: int
    ) -> Sequence[PropositionSet]:
        if not passages:
            return ()
        if self.otherwise is None:
            raise ValueError(self._refusal(passages, count))
        sets = await self.otherwise.apropositionize(passages)
        return checked_sets(self.otherwise, passages, sets)

    def __reduce__(self) -> tuple[Any, ...]:
        # unpickling calls the constructor, which reads files and weights again
        return partial(type(self), **dict(self)), ()

    def keeping_replies(self, file: Path) -> Propositionizer:
        """Return this propositionizer with a reply cache for the LLM of `otherwise`."""
        otherwise = self.otherwise and self.otherwise.keeping_replies(file)
        if otherwise is self.otherwise:
            return self
        return self.model_copy(update={"otherwise": otherwise})

    def forget_replies(self, texts: Iterable[str]) -> int:
        if self.otherwise is None:
            return 0
        return self.otherwise.forget_replies(texts)

    def purge(self, texts: Iterable[str]) -> int:
        """Erase what `otherwise` has stored about these passages."""
        if self.otherwise is None:
            return 0
        return self.otherwise.purge(texts)

    def edition(self, title: Callable[[], str]) -> str:
        if self.otherwise is None:
            return ""
        return self.otherwise.edition(title)

    @property
    def figures(self) -> RequestFigures:
        """The requests of `otherwise` so far, their tokens and their cost."""
        if self.otherwise is None:
            return super().figures
        return self.otherwise.figures

    def fingerprint_data(self) -> dict[str, Any]:
        return {"otherwise": self.otherwise and self.otherwise.fingerprint}


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result, from synchronous code.

    Inside a running event loop (a notebook, a web server) the coroutine runs on a loop of its own in another
    thread, with the caller's context variables, and Ctrl-C cancels it. LlamaIndex's `asyncio_run` does the
    same, but mistakes every RuntimeError that the coroutine raises for a missing loop.
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
    """Return a propositionizer's sets after checking that there is one for each passage.

    Raises:
        ValueError: There are more sets than passages, or fewer.
    """
    if len(sets) != len(passages):
        raise ValueError(
            f"{propositionizer.class_name()} returned {len(sets)} sets for {len(passages)} passages; "
            "a propositionizer must return one set per passage, in their order"
        )
    return sets


def reported(sets: list[PropositionSet]) -> list[PropositionSet]:
    """Return the sets, after a warning about passages whose propositions are replaced by sentences."""
    report_fallbacks(
        Counter(result.reason for result in sets if result.status == "fallback"), len(sets)
    )
    return sets


def report_fallbacks(reasons: Counter[str], passages: int) -> None:
    """Log a warning about passages whose propositions are replaced by sentences, if there are any.

    Args:
        reasons: The number of such passages for each reason.
        passages: The number of all passages.
    """
    if reasons:
        frequent = "; ".join(f"{reason} ({times})" for reason, times in reasons.most_common(5))
        message = "Sentences stand in for propositions in %d of %d passages: %s"
        logger.warning(message, reasons.total(), passages, frequent)
