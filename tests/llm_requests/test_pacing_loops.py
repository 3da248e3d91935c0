"""Slots of a Pacer, in real event loops and threads."""

from __future__ import annotations

import asyncio
import gc
import random
import threading

from llama_pack_densex.llm_requests.pacing import Pacer


async def test_no_more_go_at_a_time_than_may() -> None:
    pacer = Pacer(3)
    in_flight, most = 0, 0

    async def one() -> None:
        nonlocal in_flight, most
        await pacer.enter(1)
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0)
        in_flight -= 1
        pacer.leave("ok")

    await asyncio.gather(*(one() for _ in range(50)))
    assert most == 3


async def test_the_first_come_go_first() -> None:
    pacer = Pacer(1)
    went: list[int] = []

    async def one(number: int) -> None:
        await pacer.enter(1)
        went.append(number)
        await asyncio.sleep(0)
        pacer.leave("ok")

    await asyncio.gather(*(one(number) for number in range(20)))
    assert went == list(range(20))


async def test_a_cancelled_wait_is_passed_over() -> None:
    pacer = Pacer(1)
    await pacer.enter(1)
    first, second = (asyncio.ensure_future(pacer.enter(1)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    pacer.leave("ok")
    await asyncio.wait_for(second, 30)
    assert first.cancelled()


async def test_a_wait_cancelled_in_the_moment_it_is_over_gives_its_slot_back() -> None:
    pacer = Pacer(1)
    await pacer.enter(1)
    first, second = (asyncio.ensure_future(pacer.enter(1)) for _ in range(2))
    await asyncio.sleep(0)
    pacer.leave("ok")
    first.cancel()
    await asyncio.wait_for(second, 30)
    assert first.cancelled()


async def test_refusals_lower_what_may_go_at_a_time() -> None:
    pacer = Pacer(8)
    assert pacer.concurrency == 8
    for _ in range(10):
        for _ in range(8):
            await pacer.enter(1)
        for _ in range(pacer.concurrency):
            pacer.leave("refused")
        if pacer.concurrency < 8:
            break
    assert pacer.concurrency < 8


def test_loops_in_several_threads_share_the_slots() -> None:
    pacer = Pacer(5, requests_per_minute=1e9, tokens_per_minute=1e12)
    lock = threading.Lock()
    in_flight, most, done = 0, 0, 0

    async def one() -> None:
        nonlocal in_flight, most, done
        await pacer.enter(10)
        with lock:
            in_flight += 1
            most = max(most, in_flight)
        await asyncio.sleep(0)
        with lock:
            in_flight -= 1
            done += 1
        pacer.leave("ok", 10, 10)

    async def many() -> None:
        await asyncio.gather(*(one() for _ in range(300)))

    threads = [threading.Thread(target=asyncio.run, args=(many(),), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (done, most) == (1200, 5)


def test_waits_cancelled_at_random_in_several_threads_lose_no_slot() -> None:
    pacer = Pacer(5, requests_per_minute=1e6)
    finished = []

    async def many(seed: int) -> None:
        chance = random.Random(seed)

        async def one() -> None:
            await pacer.enter(1)
            try:
                await asyncio.sleep(chance.choice([0, 0, 0.001]))
            finally:
                pacer.leave("ok")

        tasks = [asyncio.ensure_future(one()) for _ in range(300)]
        while pending := [task for task in tasks if not task.done()]:
            if len(pending) > 100:
                chance.choice(pending).cancel()
            await asyncio.sleep(0)
        finished.append(seed)

    threads = [threading.Thread(target=asyncio.run, args=(many(seed),), daemon=True) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(finished) == [0, 1, 2]
    assert slots_free(pacer) == 5


def test_a_closed_loop_takes_no_slot_with_it() -> None:
    pacer = Pacer(1)
    leave_waiting(pacer, 3)
    gc.collect()
    pacer.leave("ok")  # of the only one that entered
    assert slots_free(pacer) == 1


def test_a_closed_loop_takes_no_slot_with_it_of_a_request_that_waits_for_the_rate() -> None:
    now, step = 0.0, 0.0

    def clock() -> float:
        nonlocal now
        now += step
        return now

    pacer = Pacer(2, requests_per_minute=60, clock=clock)
    leave_waiting(pacer, 3)
    gc.collect()
    pacer.leave("ok")
    step = 100.0
    assert slots_free(pacer) == 2


def test_requests_of_a_closed_loop_are_passed_over_though_somebody_holds_on_to_them() -> None:
    pacer = Pacer(1)
    held = leave_waiting(pacer, 3)
    pacer.leave("ok")
    assert slots_free(pacer) == 1
    assert not any(task.done() for task in held)


def leave_waiting(pacer: Pacer, requests: int) -> list[asyncio.Task[None]]:
    """Let one request in, have others wait, and close the loop over them, as a program does that does not care."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it complains of tasks that are never finished
    loop.run_until_complete(pacer.enter(1))
    waiting = [loop.create_task(pacer.enter(1)) for _ in range(requests)]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    return waiting


def slots_free(pacer: Pacer) -> int:
    """Count the requests that may go at once."""

    async def main() -> int:
        entering = [asyncio.ensure_future(pacer.enter(0)) for _ in range(pacer.concurrency + 5)]
        await asyncio.sleep(0.01)
        return sum(task.done() and not task.cancelled() for task in entering)

    return asyncio.run(main())
