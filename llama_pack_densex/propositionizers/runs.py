"""One call of `LLMPropositionizer`: many passages under way at the same time, their sets in order."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import TYPE_CHECKING

from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events import BaseEvent

from llama_pack_densex.llm.budget import BudgetError
from llama_pack_densex.llm.cache import passage_digest
from llama_pack_densex.llm.client import Client, background_loop
from llama_pack_densex.llm.errors import Failure, LLMError
from llama_pack_densex.llm.requests import Sender, Stop
from llama_pack_densex.propositionizers.base import (
    BudgetExceededError,
    Passage,
    PropositionizerError,
    PropositionSet,
    Status,
)
from llama_pack_densex.propositionizers.checks import checked, is_better, settled
from llama_pack_densex.propositionizers.prompts import (
    ASKED_AGAIN,
    ask_again_note,
    repair_note,
    split_in_two,
    with_sentences_before,
)
from llama_pack_densex.propositionizers.recorded import append_recording
from llama_pack_densex.propositionizers.replies import (
    REASONS,
    Reading,
    fall_back,
    join_parts,
    judge,
    unique,
)
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.text.tokens import has_letters

if TYPE_CHECKING:
    from llama_pack_densex.propositionizers.llm import LLMPropositionizer

logger = plain_logger(__name__)
dispatcher = get_dispatcher(__name__)

_AHEAD = 16  # passages waiting or under way for each request in flight
_LEAST_AHEAD = 512  # passages that may wait or be under way in any case
_REMEMBERED = 4096  # passages of one call whose sets are reused for identical ones
_MOST_REQUESTS = 256  # for one passage and all the parts that it is split into
# seconds to wait for replies under way when a run is interrupted, since they are paid for
_LAST_WAIT = 5.0
# seconds before a reply is checked: replies arrive together, and the next requests should leave first
_LET_GO = 0.1
_FIRST_PASSAGES = 20  # if sentences stand in for all of the first ones, a setting is wrong
_FEW_PASSAGES = 8  # whole passages after which the share of cut-off first replies is judged
_NEARLY_ALL = 0.9  # share of cut-off first replies that ends the run
_MEASURED = ("en", "ja")  # languages in which the checks are reliable enough to change propositions
_TOO_LONG = ("cut", "too_long")
_ASKED_IN_HALVES = (*_TOO_LONG, "filtered")


class PropositionizingEndEvent(BaseEvent):
    """Emitted when the propositions of a passage are complete.

    Args:
        passage_id: A digest of the passage's text.
        status: The status of the `PropositionSet`.
        reason: Why the status is not "ok"; else "".
        propositions: The number of propositions.
        requests: The number of requests for them, including those answered from the cache.

    Example:
        >>> from llama_index.core.instrumentation import get_dispatcher
        >>> from llama_index.core.instrumentation.event_handlers import BaseEventHandler
        >>> from llama_index.llms.openai import OpenAI
        >>> from llama_pack_densex import LLMPropositionizer, Passage
        >>> from llama_pack_densex.propositionizers.llm import PropositionizingEndEvent
        >>> class Counter(BaseEventHandler):
        ...     def handle(self, event, **kwargs):
        ...         if isinstance(event, PropositionizingEndEvent):
        ...             print(event.status, event.propositions, event.requests)
        >>> get_dispatcher().add_event_handler(Counter())
        >>> propositionizer = LLMPropositionizer(OpenAI(model="gpt-4o-mini"))
        >>> sets = propositionizer.propositionize([Passage("Miso, a seasoning, is made of soybeans.")])
        ok 2 1
    """

    passage_id: str
    status: Status
    reason: str
    propositions: int
    requests: int

    @classmethod
    def class_name(cls) -> str:
        return "PropositionizingEndEvent"


class Run:
    """One call of a propositionizer: many passages at the same time, their sets in order.

    Identical passages share their requests.

    Args:
        asking: The propositionizer.
        sender: Its sender.
        client: The transport of requests.
    """

    def __init__(self, asking: LLMPropositionizer, sender: Sender, client: Client) -> None:
        self.asking = asking
        self.sender = sender
        self.client = client
        self.loop = background_loop()
        self.stop = Stop(self.loop)
        self._ahead = max(_LEAST_AHEAD, _AHEAD * asking.concurrency)
        self._unread: Exception | None = None  # raised by the iterable of passages
        self._error: Exception | None = None  # of another kind than LLMError, that ended the run
        self._begun: OrderedDict[Passage, Future[PropositionSet]] = OrderedDict()
        self._cut: deque[str] = deque(maxlen=_FIRST_PASSAGES)
        self._has_warned = False
        self._fallen: list[str] = []
        self._is_sound = False  # whether a passage yielded propositions

    def stream(self, passages: Iterable[Passage]) -> Iterator[PropositionSet]:
        """Yield the sets of passages, in order, while later passages are under way.

        Fallbacks are held back until a passage yields propositions and, while requests are being rejected,
        until one is answered. If the run is stopped for either reason, those held back are never yielded, and
        so do not count as done.
        """
        held: deque[PropositionSet] = deque()
        try:
            for result in self._in_order(passages):
                held.append(result)
                while held and self._is_final(held[0]):
                    yield held.popleft()
            yield from held
        except BaseException as error:
            self.end(type(error).__name__)
            # the garbage collector may close this generator in the loop's own thread
            if asyncio._get_running_loop() is not self.loop:
                wait(self._begun.values(), _LAST_WAIT)
            if isinstance(error, LLMError):
                raise self._error or _public(error) from None
            raise
        if self._unread is not None:
            raise self._unread

    def _is_final(self, result: PropositionSet) -> bool:
        if not any(map(has_letters, result.texts)):
            return True  # a passage without letters, for which no request was made
        return self._is_sound and (result.status != "fallback" or not self.sender.is_doubtful)

    def _in_order(self, passages: Iterable[Passage]) -> Iterator[PropositionSet]:
        waiting: deque[Future[PropositionSet]] = deque()
        for passage in self._readable(passages):
            waiting.append(self._begin(passage))
            while waiting and (len(waiting) >= self._ahead or waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _readable(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """Yield passages until the iterable raises; the error is raised after their sets."""
        try:
            yield from passages
        except Exception as error:
            self._unread = error

    def _begin(self, passage: Passage) -> Future[PropositionSet]:
        if passage not in self._begun:
            while len(self._begun) >= _REMEMBERED and next(iter(self._begun.values())).done():
                self._begun.popitem(last=False)
            self._begun[passage] = asyncio.run_coroutine_threadsafe(self._make(passage), self.loop)
        return self._begun[passage]

    def end(self, cause: str) -> None:
        """Stop the run: no further requests are sent.

        Args:
            cause: What ended the run, for the error message.
        """
        self.stop.by(PropositionizerError(f"the run was ended by {cause}"))

    async def _make(self, passage: Passage) -> PropositionSet:
        record_to = self.asking.record_to
        try:
            result = await _PassageRun(self, passage).propositions()
            if record_to is not None and result.texts and result.status != "fallback":
                append_recording(record_to, passage, result)
            self._note_end(passage, result)
        except LLMError as error:
            self.stop.by(error)
            raise
        except Exception as error:  # such as a cache that cannot be written
            self._error = self._error or error
            self.end(type(error).__name__)
            raise
        return result

    def note_first(self, cut_text: str) -> None:
        """Count the first reply for a whole passage, and warn or stop if too many of them are cut off.

        Args:
            cut_text: The passage's text if the reply was cut off; else "".
        """
        self._cut.append(cut_text)
        seen = len(self._cut)
        cut = seen - self._cut.count("")
        if seen < _FEW_PASSAGES or cut < seen / 2:
            return
        message = (
            f"{cut} of the last {seen} replies for whole passages were cut off, and each of these passages "
            "is asked for in parts, which costs many times as much: give the LLM more tokens for a reply "
            "(max_tokens, or whatever its class calls it) or a larger context, or make the passages smaller."
        )
        if cut >= _NEARLY_ALL * seen:
            # a larger context is set at the server and does not change the cache keys
            self.asking.forget_replies(filter(None, self._cut))
            raise PropositionizerError(message)
        if not self._has_warned:
            logger.warning(message)
        self._has_warned = True

    def _note_end(self, passage: Passage, result: PropositionSet) -> None:
        """Raise if sentences stand in for all of the first passages; a later run asks for them again."""
        if self._is_sound:
            return
        if result.status != "fallback":
            self._is_sound = any(map(has_letters, result.texts))
            return
        self._fallen.append(passage.text)
        if len(self._fallen) >= _FIRST_PASSAGES:
            self.asking.forget_replies(self._fallen)
            raise PropositionizerError(
                f"None of the first {len(self._fallen)} passages yielded propositions; the last one: "
                f"{result.reason}. Check the model and its settings. If sentences are enough, no LLM is "
                "needed."
            )


class _PassageRun:
    """The requests for one passage: asked, judged, split into parts, asked again.

    Args:
        run: The call that the passage belongs to.
        passage: The passage.
    """

    def __init__(self, run: Run, passage: Passage) -> None:
        self._run = run
        self._passage = passage
        self._language = passage.language
        self._turn = run.sender.limits.next_turn()
        self._requests_sent = 0

    async def propositions(self) -> PropositionSet:
        """Return the passage's propositions, and emit an event that reports them."""
        passage = self._passage
        if not has_letters(passage.text):
            return PropositionSet(passage.sentences)
        result = await self._checked(join_parts(await self._ask_for(passage)))
        event = PropositionizingEndEvent(
            passage_id=passage_digest(passage.text),
            status=result.status,
            reason=result.reason,
            propositions=len(result.texts),
            requests=self._requests_sent,
        )
        dispatcher.event(event)
        return result

    async def _checked(self, result: PropositionSet) -> PropositionSet:
        strictness = self._run.asking.strictness
        if strictness == "off" or result.status == "fallback":
            return result
        if self._run.sender.limits.queue:
            await asyncio.sleep(_LET_GO)
        result = checked(self._passage, result)
        if strictness == "flag" or not result.findings or self._language not in _MEASURED:
            return result
        return await self._repaired(result)

    async def _repaired(self, result: PropositionSet) -> PropositionSet:
        kinds = Counter(finding.kind for finding in result.findings)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        reasons = filter(
            None, (result.reason, f"asked again after findings of the checks: {counts}")
        )
        reading = await self._ask(self._passage, repair_note(result, self._language))
        if reading.problem is None:
            questions = reading.questions or result.questions
            repaired = checked(
                self._passage, replace(result, texts=reading.texts, questions=questions)
            )
            if is_better(repaired.findings, result.findings):
                result = repaired
        result = replace(
            result, status="repaired", reason="; ".join(reasons), is_passing=reading.is_passing
        )
        return settled(self._passage, result)

    async def _ask_for(self, part: Passage) -> list[PropositionSet]:
        """Ask for the propositions of a passage, or of a part of it."""
        if not has_letters(part.text):
            return [PropositionSet(part.sentences)]
        note = ""
        reasons: list[str] = []
        max_attempts = self._run.asking.max_attempts
        for attempt in range(1, max_attempts + 1):
            if self._requests_sent >= _MOST_REQUESTS:
                return [
                    fall_back(
                        part, f"the limit of {_MOST_REQUESTS} requests per passage was reached"
                    )
                ]
            reading = await self._ask(part, note, attempt, is_last=attempt == max_attempts)
            if self._requests_sent == 1:
                self._run.note_first(part.text if reading.problem in _TOO_LONG else "")
            if reading.problem is None:
                reason = "; ".join(unique(reasons))
                return [PropositionSet(reading.texts, reason=reason, questions=reading.questions)]
            halves = split_in_two(part) if reading.problem in _ASKED_IN_HALVES else None
            if halves is not None:
                return await self._ask_for_halves(*halves)
            if reading.problem not in ASKED_AGAIN:
                return [fall_back(part, reading.reason, reading.is_passing)]
            reasons.append(reading.reason)
            note = ask_again_note(reading.problem, self._language)
        return [fall_back(part, f"{'; '.join(unique(reasons))} (asked {max_attempts} times)")]

    async def _ask(
        self, part: Passage, note: str, attempt: int = 1, *, is_last: bool = False
    ) -> Reading:
        """Send one request and read its reply; a failure of the provider becomes a problem of the reading."""
        asking = self._run.asking
        request = replace(
            asking.question(self._passage, part, note), attempt=attempt, turn=self._turn
        )
        self._requests_sent += 1
        reply = await self._run.sender.ask(request, self._run.client.send, self._run.stop)
        if isinstance(reply, Failure):
            cause = REASONS["filtered"] if reply.kind == "filtered" else "the provider failed"
            reason = f"{cause} ({reply.summary})"
            return Reading(problem=reply.kind, reason=reason, is_passing=reply.may_pass)
        return judge(part, reply.text, reply.finish, questions=asking.questions, is_last=is_last)

    async def _ask_for_halves(self, first: Passage, second: Passage) -> list[PropositionSet]:
        second = replace(second, context=with_sentences_before(second.context, first.text))
        # an error of one half does not cancel the other, whose requests are paid for
        halves = await asyncio.gather(
            self._ask_for(first), self._ask_for(second), return_exceptions=True
        )
        parts = []
        for half in halves:
            if isinstance(half, BaseException):
                raise half
            parts += half
        return parts


def _public(error: LLMError) -> PropositionizerError:
    if isinstance(error, PropositionizerError):
        return error
    kind = BudgetExceededError if isinstance(error, BudgetError) else PropositionizerError
    return kind(str(error), error.is_silence)
