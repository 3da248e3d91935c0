"""`stream`: passages come in as they come, sets go out in their order, and nothing is left behind."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.llms.openai import OpenAI

from llama_pack_densex.propositionizers.base import Passage, PropositionizerError, PropositionSet
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from tests.made_up_passages import InstantLLM, made_up
from tests.openai_server import OpenAIServer, Reply, asked_content
from tests.stand_in_llm import propositions_of
from tests.waiting import interrupted, wait_until

PASSAGES = list(made_up(60, japanese=0.5))
BAD_KEY = Reply("Incorrect API key provided.", status=401, code="invalid_api_key")
ROOT = Path(__file__).parents[2]
BEFORE: list[threading.Thread] = []
AHEAD = 600  # some hundreds: as many passages as may be read ahead with a small concurrency


def right(body: dict[str, Any]) -> Reply:
    return Reply(json.dumps(propositions_of(asked_content(body)), ensure_ascii=False))


def propositionizer(url: str, **arguments: Any) -> LLMPropositionizer:
    llm = OpenAI(model="gpt-4o-mini", api_base=url, api_key="sk-test-0123456789", timeout=10)
    return LLMPropositionizer(llm, **{"retry_wait": 0, "max_retries": 0, **arguments})


def texts_of(made: list[PropositionSet]) -> list[list[str]]:
    return [list(one.texts) for one in made]


def right_texts(passages: list[Passage]) -> list[list[str]]:
    return [propositions_of(passage.text) for passage in passages]


@pytest.fixture(autouse=True)
def _threads_of_earlier_tests() -> None:
    BEFORE[:] = threading.enumerate()


def own_threads() -> list[str]:
    """Those that this test has started, whatever an earlier one that failed has left."""
    names = [thread.name for thread in threading.enumerate() if thread not in BEFORE]
    return [name for name in names if name.startswith(("llm requests", "kept replies"))]


class Numbered:
    """Passages without end, counted as they are read."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Iterator[Passage]:
        for number in itertools.count():
            self.read += 1
            yield Passage(f"House {number} is old. 家は{number}番である。")


# Order and laziness


def test_an_endless_source_is_read_a_bounded_way_ahead() -> None:
    source = Numbered()
    stream = LLMPropositionizer(InstantLLM()).stream(source)
    made = list(itertools.islice(stream, 100))
    stream.close()  # type: ignore[attr-defined]
    assert [one.texts[0] for one in made] == [f"House {number} is old." for number in range(100)]
    assert source.read <= 100 + AHEAD


def test_a_source_is_not_read_on_while_nobody_takes_the_sets() -> None:
    source = Numbered()
    stream = LLMPropositionizer(InstantLLM()).stream(source)
    next(stream)
    read = source.read
    time.sleep(0.3)
    assert source.read == read <= AHEAD
    stream.close()  # type: ignore[attr-defined]


def test_what_is_under_way_is_bounded_while_the_first_reply_is_slow() -> None:
    release = threading.Event()

    def respond(body: dict[str, Any]) -> Reply:
        if "House 0 " in json.dumps(body):
            release.wait(20)
        return right(body)

    source = Numbered()
    with OpenAIServer(respond) as server:
        stream = propositionizer(server.url, max_concurrency=4).stream(source)
        made: list[PropositionSet] = []
        reader = threading.Thread(target=lambda: made.append(next(stream)), daemon=True)
        reader.start()
        wait_until(lambda: source.read > 500)
        time.sleep(0.3)
        assert source.read <= AHEAD
        release.set()
        reader.join(30)
        stream.close()  # type: ignore[attr-defined]
    assert made[0].texts[0] == "House 0 is old."


def test_nothing_is_read_or_asked_before_the_first_set_is_wanted() -> None:
    source = Numbered()
    with OpenAIServer(right) as server:
        propositionizer(server.url).stream(source)
        assert (source.read, server.requests) == (0, [])


def test_the_order_is_kept_whatever_the_replies_order() -> None:
    def respond(body: dict[str, Any]) -> Reply:
        return Reply(
            right(body).content, delay=random.Random(asked_content(body)).choice([0.0, 0.02, 0.1])
        )

    with OpenAIServer(respond) as server:
        made = list(propositionizer(server.url, max_concurrency=16).stream(iter(PASSAGES)))
    assert texts_of(made) == right_texts(PASSAGES)


def test_a_source_that_ends_at_once_costs_nothing() -> None:
    with OpenAIServer(right) as server:
        assert list(propositionizer(server.url).stream(iter([]))) == []
        assert server.requests == []


async def test_it_works_inside_a_running_loop() -> None:
    with OpenAIServer(right) as server:
        assert texts_of(list(propositionizer(server.url).stream(PASSAGES[:5]))) == right_texts(
            PASSAGES[:5]
        )


def test_two_streams_of_one_propositionizer_run_side_by_side() -> None:
    with OpenAIServer(right) as server:
        asking = propositionizer(server.url)
        pairs = list(zip(asking.stream(PASSAGES), asking.stream(PASSAGES[::-1]), strict=True))
    assert texts_of([one for one, _ in pairs]) == right_texts(PASSAGES)
    assert texts_of([other for _, other in pairs]) == right_texts(PASSAGES[::-1])


def test_propositionizers_that_take_lists_stream_too() -> None:
    source = Numbered()
    made = list(itertools.islice(SentencePropositionizer().stream(source), 3))
    assert [one.texts for one in made] == [
        (f"House {n} is old.", f"家は{n}番である。") for n in range(3)
    ]
    assert source.read <= 256


# Identical passages


def test_identical_passages_are_asked_once_also_while_the_first_is_under_way() -> None:
    japanese, english = PASSAGES[1], PASSAGES[0]
    passages = [japanese] * 7 + [english] * 3 + [japanese, english]

    with OpenAIServer(lambda body: Reply(right(body).content, delay=0.2)) as server:
        made = list(propositionizer(server.url).stream(passages))
        assert sorted(seen.content for seen in server.requests) == sorted(
            [japanese.text, english.text]
        )
    assert texts_of(made) == right_texts(passages)


@pytest.mark.slow
def test_an_identical_passage_is_not_asked_for_again_long_after() -> None:
    between = [Passage(f"House {number} is old.") for number in range(1500)]
    asked: list[str] = []

    class Counting(InstantLLM):
        def chat(self, messages: Any, **kwargs: Any) -> Any:
            asked.append(messages[-1].content)
            return super().chat(messages)

    list(LLMPropositionizer(Counting()).stream([PASSAGES[0], *between, PASSAGES[0], between[7]]))
    assert len(asked) == 1501


@pytest.mark.parametrize("change", [{"title": "Another"}, {"section": "Another"}])
def test_passages_with_other_titles_or_sections_are_not_identical(change: dict[str, str]) -> None:
    with OpenAIServer(right) as server:
        list(propositionizer(server.url).stream([PASSAGES[0], Passage(PASSAGES[0].text, **change)]))
        assert len(server.requests) == 2


def test_an_identical_passage_fails_with_the_first() -> None:
    with OpenAIServer(lambda body: Reply("broken", status=500, delay=0.1)) as server:
        made = list(propositionizer(server.url).stream([PASSAGES[0]] * 3))
        assert len(server.requests) == 1
    assert made == [made[0]] * 3
    assert made[0].status == "fallback"


# Errors


@pytest.mark.parametrize("place", [0, 1, 7, 30])
@pytest.mark.parametrize("at_a_time", [1, 8])
def test_an_error_comes_after_all_sets_before_the_first_that_is_missing(
    place: int, at_a_time: int
) -> None:
    def respond(body: dict[str, Any]) -> Reply:
        return (
            BAD_KEY
            if asked_content(body) == PASSAGES[place].text
            else Reply(right(body).content, delay=0.02)
        )

    made: list[PropositionSet] = []
    with OpenAIServer(respond) as server:
        with pytest.raises(PropositionizerError, match="check the key"):
            made.extend(propositionizer(server.url, max_concurrency=at_a_time).stream(PASSAGES))
        asked = {seen.content for seen in server.requests}
    assert texts_of(made) == right_texts(PASSAGES[: len(made)])
    answered = [passage.text in asked for passage in PASSAGES[:place]] + [False]
    assert len(made) == answered.index(False)
    assert len(asked) < len(PASSAGES)


def test_an_error_of_the_source_comes_after_the_sets_of_what_was_read() -> None:
    def passages() -> Iterator[Passage]:
        yield from PASSAGES[:7]
        raise LookupError("page 8 is missing")

    made: list[PropositionSet] = []
    with OpenAIServer(lambda body: Reply(right(body).content, delay=0.05)) as server:
        stream = propositionizer(server.url, max_concurrency=2).stream(passages())
        with pytest.raises(LookupError, match="page 8"):
            made.extend(stream)
    assert texts_of(made) == right_texts(PASSAGES[:7])


def test_a_source_that_is_interrupted_ends_the_run_at_once() -> None:
    def passages() -> Iterator[Passage]:
        yield from PASSAGES[:20]
        wait_until(lambda: len(server.requests) == 2)
        raise KeyboardInterrupt

    with OpenAIServer(lambda body: Reply(right(body).content, delay=0.3)) as server:
        with pytest.raises(KeyboardInterrupt):
            list(propositionizer(server.url, max_concurrency=2).stream(passages()))
        wait_until(lambda: not own_threads())
        assert len(server.requests) == 2


def test_an_interrupt_while_sets_are_waited_for_asks_nothing_more_and_leaves_no_thread(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with OpenAIServer(lambda body: Reply(right(body).content, delay=0.5)) as server:
        asking = propositionizer(server.url, max_concurrency=2, cache=tmp_path / "replies.sqlite")
        with pytest.raises(KeyboardInterrupt), interrupted(lambda: len(server.requests) >= 3):
            list(asking.stream(PASSAGES))
        wait_until(lambda: not own_threads())
        assert len(server.requests) <= 4
    assert capfd.readouterr() == ("", "")


# The end


def test_closing_early_leaves_no_thread_and_asks_nothing_more() -> None:
    with OpenAIServer(lambda body: Reply(right(body).content, delay=0.05)) as server:
        stream = propositionizer(server.url, max_concurrency=2).stream(PASSAGES)
        assert texts_of([next(stream), next(stream)]) == right_texts(PASSAGES[:2])
        stream.close()  # type: ignore[attr-defined]
        asked = len(server.requests)
        wait_until(lambda: not own_threads())
        time.sleep(0.2)
        assert len(server.requests) <= asked + 2  # on their way already
    assert asked < 10


def test_a_stream_that_is_forgotten_ends_too() -> None:
    with OpenAIServer(lambda body: Reply(right(body).content, delay=0.05)) as server:
        for _ in propositionizer(server.url, max_concurrency=2).stream(PASSAGES):
            break
        wait_until(lambda: not own_threads())
    assert len(server.requests) < 10


def test_a_stream_that_is_read_to_its_end_leaves_no_thread() -> None:
    with OpenAIServer(right) as server:
        list(propositionizer(server.url).stream(PASSAGES))
    wait_until(lambda: not own_threads())


def test_a_consumer_that_raises_ends_the_stream() -> None:
    def consume(url: str) -> None:
        for _ in propositionizer(url, max_concurrency=2).stream(PASSAGES):
            raise ZeroDivisionError

    with OpenAIServer(lambda body: Reply(right(body).content, delay=0.05)) as server:
        with pytest.raises(ZeroDivisionError):
            consume(server.url)
        wait_until(lambda: not own_threads())
    assert len(server.requests) < 10
