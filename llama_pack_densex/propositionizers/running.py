"""One call of a propositionizer: many passages under way at once, their sets in order, identical ones asked once."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, TypeVar

from llama_pack_densex.llm_requests.failures import PropositionizerError
from llama_pack_densex.llm_requests.sending import Stop
from llama_pack_densex.propositionizers.base import Passage, PropositionSet

T = TypeVar("T")
Work = Callable[[Sequence[Passage], Stop], Awaitable[Sequence[PropositionSet]]]

_REMEMBERED = 4096  # passages of one call that a later identical one is compared with


class Run:
    """One call.

    Args:
        work: Turns the passages of one request into sets.
        group_size: Passages a request.
        ahead: Requests that may wait or be under way at the same time.
    """

    def __init__(self, work: Work, *, group_size: int, ahead: int) -> None:
        self._work, self._group_size, self._ahead = work, group_size, ahead
        self._stop = Stop()
        self._error: Exception | None = None
        self._asked: OrderedDict[Passage, asyncio.Future[PropositionSet]] = OrderedDict()

    async def all(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """The sets of passages, in this event loop.

        Raises:
            PropositionizerError: The run cannot go on; what was under way has come to its end.
            OSError: So it is where replies or propositions cannot be written.
        """
        groups = list(_in_groups(passages, self._group_size))
        made: list[Sequence[PropositionSet]] = [()] * len(groups)
        waiting = iter(enumerate(groups))

        async def take_from_the_rest() -> None:
            for place, group in waiting:
                try:
                    made[place] = await self._sets(group)
                except Exception as error:
                    self._end_with(error)
                    return

        await gather_or_cancel(take_from_the_rest() for _ in range(min(self._ahead, len(groups))))
        if self._error is not None:
            raise self._error
        return [one for sets in made for one in sets]

    def stream(self, passages: Iterable[Passage]) -> Iterator[PropositionSet]:
        """The sets of passages, in order, while the next ones are under way in an event loop in another thread.

        Raises:
            PropositionizerError: The run cannot go on. All sets before the first one that is missing were yielded, and
                what was under way has come to its end.
            OSError: So it is where replies or propositions cannot be written.
            Exception: What the passages raised, after the sets of those before.
        """
        with BackgroundLoop() as loop:
            waiting: deque[Future[Sequence[PropositionSet]]] = deque()
            groups = _in_groups(passages, self._group_size)
            unread: Exception | None = None
            try:
                while (group := _next(groups)) is not None:
                    if isinstance(group, Exception):
                        unread = group
                        break
                    waiting.append(loop.submit(self._sets(group)))
                    while waiting and (len(waiting) >= self._ahead or waiting[0].done()):
                        yield from waiting.popleft().result()
                while waiting:
                    yield from waiting.popleft().result()
            except Exception as error:
                self._end_with(error)
                wait(waiting)  # what is under way is paid for
                raise
            if unread is not None:
                raise unread

    def _end_with(self, error: Exception) -> None:
        """Send nothing more."""
        self._error = self._error or error
        if not isinstance(error, PropositionizerError):
            error = PropositionizerError(f"the run was ended by {type(error).__name__}")
        self._stop.by(error)

    async def _sets(self, group: Sequence[Passage]) -> Sequence[PropositionSet]:
        new = [passage for passage in dict.fromkeys(group) if passage not in self._asked]
        promised = {passage: asyncio.get_running_loop().create_future() for passage in new}
        self._asked.update(promised)
        mine = {passage: self._asked[passage] for passage in group}
        while len(self._asked) > _REMEMBERED and next(iter(self._asked.values())).done():
            self._asked.popitem(last=False)
        try:
            sets = await self._work(new, self._stop) if new else ()
        except BaseException as error:
            for passage, promise in promised.items():
                del self._asked[passage]
                promise.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
                promise.exception()  # nobody need be waiting for it
            raise
        for passage, made in zip(new, sets, strict=True):
            promised[passage].set_result(made)
        return [await mine[passage] for passage in group]


class BackgroundLoop:
    """An event loop in a thread of its own, from `with` to the end of it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # one thread for the replies that are kept: several would wait for one another in the cache
        self._loop.set_default_executor(ThreadPoolExecutor(1, thread_name_prefix="kept replies"))
        self._thread = threading.Thread(target=self._run, name="propositions", daemon=True)

    def __enter__(self) -> BackgroundLoop:
        self._thread.start()
        return self

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())  # replies are written to the end
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()


async def gather_or_cancel(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all; the first exception cancels the others, which `asyncio.gather` leaves running."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _in_groups(passages: Iterable[Passage], size: int) -> Iterator[list[Passage]]:
    group: list[Passage] = []
    try:
        for passage in passages:
            group.append(passage)
            if len(group) == size:
                yield group
                group = []
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group


def _next(groups: Iterator[list[Passage]]) -> list[Passage] | Exception | None:
    try:
        return next(groups, None)
    except Exception as error:
        return error
