"""Several passages in one request: fewer requests, and no passage with another one's propositions."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import ChatPromptTemplate
from llama_index.llms.openai import OpenAI

from llama_pack_densex.llm_requests.failures import PropositionizerError
from llama_pack_densex.propositionizers.base import Passage, PropositionSet
from llama_pack_densex.propositionizers.grouping import split_reply
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from tests.made_up_passages import made_up
from tests.openai_server import OpenAIServer, Reply, asked_content
from tests.stand_in_llm import Faults, StandInLLM, digest, propositions_of
from tests.stand_in_llm_server import asked_for

PASSAGES = list(made_up(10, japanese=0))
JAPANESE = list(made_up(10, japanese=1))
LANGUAGES = pytest.mark.parametrize("passages", [PASSAGES, JAPANESE], ids=["en", "ja"])
WAYS = pytest.mark.parametrize("way", ["sync", "async"])


def propositionizer(url: str, size: int = 5, **arguments: Any) -> LLMPropositionizer:
    llm = OpenAI(model="gpt-4o-mini", api_base=url, api_key="sk-test-0123456789", timeout=10)
    return LLMPropositionizer(llm, **{"retry_wait": 0, "max_retries": 0, "passages_per_request": size, **arguments})


def ask(way: str, asking: LLMPropositionizer, passages: Sequence[Passage]) -> list[PropositionSet]:
    return asking.propositionize(passages) if way == "sync" else asyncio.run(asking.apropositionize(passages))


def in_request(body: dict[str, Any]) -> list[str]:
    """The texts that a request asks for."""
    texts, numbers = asked_for(body["messages"][-1]["content"])
    return texts if numbers else [asked_content(body)]


def group_reply(texts: Sequence[str]) -> str:
    lists = {str(number): propositions_of(text) for number, text in enumerate(texts, 1)}
    return json.dumps(lists, ensure_ascii=False)


def right(body: dict[str, Any]) -> Reply:
    texts = in_request(body)
    return Reply(group_reply(texts) if len(texts) > 1 else json.dumps(propositions_of(texts[0]), ensure_ascii=False))


def texts_of(made: Sequence[PropositionSet]) -> list[list[str]]:
    return [list(one.texts) for one in made]


def right_texts(passages: Sequence[Passage]) -> list[list[str]]:
    return [propositions_of(passage.text) for passage in passages]


# Whole runs


@WAYS
@LANGUAGES
def test_several_passages_are_asked_for_in_one_request(way: str, passages: list[Passage]) -> None:
    with StandInLLM() as server:
        made = ask(way, propositionizer(server.url), passages)
        log = server.log()
    assert sorted(len(one.digests) for one in log) == [5, 5]
    assert texts_of(made) == right_texts(passages)
    assert {one.status for one in made} == {"ok"}


@LANGUAGES
def test_a_group_saves_the_tokens_of_the_instructions(passages: list[Passage]) -> None:
    with StandInLLM() as server:
        used = []
        for size in (1, 5):
            asking = propositionizer(server.url, size)
            asking.propositionize(passages)
            used.append(asking.usage)
    assert used[1].input_tokens < 0.6 * used[0].input_tokens
    assert used[1].output_tokens < 1.1 * used[0].output_tokens


def test_the_instructions_stay_where_they_are_and_the_passages_come_last() -> None:
    with OpenAIServer(right) as server:
        propositionizer(server.url).propositionize(PASSAGES[:5])
        propositionizer(server.url, 1).propositionize(PASSAGES[:1])
    together, alone = server.requests
    assert together.messages[:-1] == alone.messages[:-1]
    assert together.last_message.startswith("Below are 5 passages")
    assert together.last_message.count("### Passage ") == 5
    assert together.last_message.endswith(PASSAGES[4].text)


def test_japanese_and_english_passages_go_in_requests_of_their_own() -> None:
    passages = [passage for pair in zip(PASSAGES, JAPANESE, strict=True) for passage in pair]
    with OpenAIServer(right) as server:
        made = propositionizer(server.url).propositionize(passages)
    assert texts_of(made) == right_texts(passages)
    for seen in server.requests:
        is_japanese = {bool(re.search("[ぁ-ん]", text)) for text in in_request(seen.body)}
        assert is_japanese == {"命題" in seen.messages[0]["content"]}
        assert ("互いに関係のない" in seen.last_message) == (is_japanese == {True})


def test_a_passage_that_is_left_over_is_asked_for_by_itself() -> None:
    with StandInLLM() as server:
        made = propositionizer(server.url).propositionize(PASSAGES[:6])
        assert sorted(len(one.digests) for one in server.log()) == [1, 5]
    assert texts_of(made) == right_texts(PASSAGES[:6])


def test_blank_and_identical_passages_cost_nothing() -> None:
    passages = [PASSAGES[0], Passage(" \n"), PASSAGES[0], PASSAGES[1], PASSAGES[0]]
    with StandInLLM() as server:
        made = propositionizer(server.url).propositionize(passages)
        (only,) = server.log()
    assert only.digests == (digest(PASSAGES[0].text), digest(PASSAGES[1].text))
    assert [one.texts for one in made] == [
        tuple(propositions_of(passage.text)) if passage.text.strip() else () for passage in passages
    ]


def spoilt(spoil: Callable[[dict[str, list[str]]], Any]) -> Callable[[dict[str, Any]], Reply]:
    """A model that answers right, but spoils what it says of groups."""

    def respond(body: dict[str, Any]) -> Reply:
        if len(in_request(body)) == 1:
            return right(body)
        made = spoil(json.loads(right(body).content or ""))
        return Reply(made if isinstance(made, str) else json.dumps(made, ensure_ascii=False))

    return respond


def renumbered(lists: dict[str, list[str]]) -> dict[str, list[str]]:
    return {str(int(number) - 1): texts for number, texts in lists.items()}


def swapped(lists: dict[str, list[str]]) -> dict[str, list[str]]:
    return {**lists, "2": lists["4"], "4": lists["2"]}


def shifted(lists: dict[str, list[str]]) -> dict[str, list[str]]:
    return {"1": lists["1"], "2": lists["3"], "3": lists["4"], "4": lists["5"]}


def merged(lists: dict[str, list[str]]) -> dict[str, list[str]]:
    return {**lists, "2": [*lists["2"], *lists["3"]], "3": []}


def one_strayed(lists: dict[str, list[str]]) -> dict[str, list[str]]:
    return {**lists, "5": [*lists["5"], lists["1"][0]]}


def doubled(lists: dict[str, list[str]]) -> str:
    return json.dumps(lists)[:-1] + ', "1": ' + json.dumps(lists["3"]) + "}"


def cut(lists: dict[str, list[str]]) -> str:
    text = json.dumps(lists, ensure_ascii=False)
    return text[: text.index('"4"') + 40]


@LANGUAGES
@pytest.mark.parametrize(
    ("spoil", "alone"),
    [
        (renumbered, {0, 1, 2, 3, 4}),
        (lambda lists: {number: texts for number, texts in lists.items() if number != "3"}, {2}),
        (swapped, {1, 3}),
        (shifted, {1, 2, 3, 4}),
        (merged, {1, 2}),
        (one_strayed, {4}),
        (doubled, {0}),
        (cut, {3, 4}),
        (lambda lists: {**lists, "2": "none", "3": None, "4": [], "5": [1, 2]}, {1, 2, 3, 4}),
        (lambda lists: {**lists, "2": lists["2"][0]}, {1}),
        (lambda lists: {"1": [text for texts in lists.values() for text in texts]}, {0, 1, 2, 3, 4}),
        (lambda lists: "I'm sorry, but I can't help with that.", {0, 1, 2, 3, 4}),
        (lambda lists: "", {0, 1, 2, 3, 4}),
        (lambda lists: list(lists.values()), set()),
        (lambda lists: f"Here you are:\n```json\n{json.dumps(lists, indent=1)}\n```", set()),
        (lambda lists: {f"Passage {number}": texts for number, texts in lists.items()}, set()),
        (lambda lists: {"passages": lists}, set()),
    ],
    ids=[
        "counted from 0", "one missing", "swapped", "shifted by one", "two merged", "one proposition strayed",
        "one number twice", "cut", "no lists", "a string", "all in one", "refused", "empty",
        "a list of lists", "a fence", "words before the numbers", "an object around it",
    ],
)  # fmt: skip
def test_what_came_back_wrong_is_asked_for_by_itself(
    spoil: Callable[[dict[str, list[str]]], Any], alone: set[int], passages: list[Passage]
) -> None:
    with OpenAIServer(spoilt(spoil)) as server:
        made = propositionizer(server.url).propositionize(passages[:5])
        asked = [in_request(seen.body) for seen in server.requests]
    assert texts_of(made) == right_texts(passages[:5])
    assert {one.status for one in made} == {"ok"}
    assert len(asked[0]) == 5
    assert sorted(asked[1:]) == sorted([passages[place].text] for place in alone)


@WAYS
@pytest.mark.parametrize(
    "failure",
    [
        Reply("The response was filtered.", status=400, code="content_filter"),
        Reply("", finish_reason="content_filter"),
        Reply("This context is too long.", status=400, code="context_length_exceeded"),
        Reply("The server had an error.", status=500),
        Reply(None, refusal="I'm sorry, but I can't help with that."),
    ],
    ids=["filtered request", "filtered reply", "too long", "server error", "refusal"],
)
def test_passages_of_a_request_that_failed_are_asked_for_by_themselves(way: str, failure: Reply) -> None:
    bad = PASSAGES[2].text

    def respond(body: dict[str, Any]) -> Reply:
        texts = in_request(body)
        return failure if bad in texts or any(text in bad for text in texts) else right(body)

    with OpenAIServer(respond) as server:
        made = ask(way, propositionizer(server.url), PASSAGES[:5])
    assert [one.status for one in made] == ["ok", "ok", "fallback", "ok", "ok"]
    assert texts_of(made[:2] + made[3:]) == right_texts(PASSAGES[:2] + PASSAGES[3:5])


def test_a_list_in_the_wrong_language_is_asked_for_again() -> None:
    english = ["The bridge is old and was built by a mason.", "The bridge was restored by an engineer in 1900."]

    def respond(body: dict[str, Any]) -> Reply:
        lists = json.loads(right(body).content or "")
        return Reply(json.dumps({**lists, "1": english})) if isinstance(lists, dict) else right(body)

    with OpenAIServer(respond) as server:
        made = propositionizer(server.url).propositionize(JAPANESE[:3])
    assert texts_of(made) == right_texts(JAPANESE[:3])


def test_a_fatal_error_stops_a_run_of_groups() -> None:
    bad_key = Reply("Incorrect API key provided.", status=401, code="invalid_api_key")
    with OpenAIServer(lambda body: bad_key) as server, pytest.raises(PropositionizerError, match="check the key"):
        propositionizer(server.url, max_concurrency=1).propositionize(PASSAGES)
    assert len(server.requests) == 1


def test_nothing_is_lost_while_all_goes_wrong() -> None:
    faults = Faults(server_error=0.1, malformed=0.15, cut_off=0.15, refusal=0.1, content_filter=0.05, reset=0.05)
    passages = list(made_up(60, japanese=0.4))
    with StandInLLM(faults=faults, seed=5) as server:
        made = propositionizer(server.url, max_retries=4).propositionize(passages)
        kinds = server.totals().kinds
    assert set(kinds) > set(faults.shares) - {"rate_limited", "timeout"}
    for passage, one in zip(passages, made, strict=True):
        said = " ".join(one.texts)
        assert all(sentence in said for sentence in propositions_of(passage.text)[::2])
        foreign = {text for other in passages if other != passage for text in propositions_of(other.text)}
        assert not foreign & set(one.texts)


# The cache


@WAYS
@LANGUAGES
def test_a_second_run_asks_nothing(way: str, passages: list[Passage], tmp_path: Path) -> None:
    with StandInLLM(faults=Faults(malformed=0.3, cut_off=0.2), seed=2) as server:
        made = ask(way, propositionizer(server.url, cache=tmp_path / "replies.sqlite"), passages)
        asked = len(server.log())
        assert ask(way, propositionizer(server.url, cache=tmp_path / "replies.sqlite"), passages) == made
        assert len(server.log()) == asked > 2


def test_other_groups_of_the_same_passages_ask_nothing(tmp_path: Path) -> None:
    with StandInLLM() as server:
        made = propositionizer(server.url, cache=tmp_path / "replies.sqlite").propositionize(PASSAGES)
        for size, passages in ((5, PASSAGES[::-1]), (3, PASSAGES[1:]), (5, PASSAGES[:6]), (2, PASSAGES[:1])):
            again = propositionizer(server.url, size, cache=tmp_path / "replies.sqlite").propositionize(passages)
            assert again == [made[PASSAGES.index(passage)] for passage in passages]
            assert len(server.log()) == 2


def test_replies_of_a_group_are_not_those_of_single_requests(tmp_path: Path) -> None:
    with StandInLLM() as server:
        propositionizer(server.url, cache=tmp_path / "replies.sqlite").propositionize(PASSAGES[:5])
        propositionizer(server.url, 1, cache=tmp_path / "replies.sqlite").propositionize(PASSAGES[:5])
        assert sorted(len(one.digests) for one in server.log()) == [1, 1, 1, 1, 1, 5]
        # a group makes use of single ones, which are at least as good
        single = propositionizer(server.url, 1, cache=tmp_path / "singles.sqlite")
        single.propositionize(PASSAGES[5:8])
        propositionizer(server.url, cache=tmp_path / "singles.sqlite").propositionize(PASSAGES[5:10])
        assert [len(one.digests) for one in server.log()[-1:]] == [2]


# Prompts of the user's own


def test_passages_whose_instructions_differ_are_not_asked_for_together() -> None:
    prompt = ChatPromptTemplate(
        [
            ChatMessage("Split what was written about {title}.", role="system"),
            ChatMessage("Title: {title}. Section: {section}. Content: {content}", role="user"),
        ]
    )
    passages = [Passage(passage.text, title) for passage, title in zip(PASSAGES, ["A", "B", "A", "C"], strict=False)]
    with OpenAIServer(right) as server:
        made = propositionizer(server.url, proposition_prompt=prompt).propositionize(passages)
    assert texts_of(made) == right_texts(passages)
    for seen in server.requests:
        title = seen.messages[0]["content"].removeprefix("Split what was written about ").removesuffix(".")
        assert {passage.title for passage in passages if passage.text in in_request(seen.body)} == {title}
    assert len(server.requests) == 3


# Taking a reply apart


SENTENCES_EN = [
    "Work on the tower began in 1874", "The museum shows its lens", "Storms washed the scaffolding away",
    "Nobody lived on Grimsholm before 1702", "A ferry left the harbour twice a day", "Copper was mined near Falun",
    "The choir sang in Latin until noon", "Seven bridges cross the river Pregel", "Whales were sighted off Husavik",
    "Ink was made of oak galls and iron", "The library owns two maps of Crete", "Rye bread was baked every Friday",
]  # fmt: skip
SENTENCES_JA = [
    "塔の工事は1874年に始まった", "資料館はレンズを展示している", "嵐が足場を二度流した", "島には誰も住んでいなかった",
    "渡し船は一日に二便あった", "銅は山の北側で採れた", "合唱団は昼まで歌った", "川には橋が七つ架かる",
    "沖では鯨がよく見られた", "墨は松の煤から作られた", "図書館は古地図を二枚持つ", "毎週金曜に黒パンを焼いた",
]  # fmt: skip


@st.composite
def groups(draw: st.DrawFn) -> list[tuple[Passage, list[str]]]:
    """Passages that clearly differ, with their propositions."""
    sentences, end = draw(st.sampled_from([(SENTENCES_EN, ". "), (SENTENCES_JA, "。")]))
    count = draw(st.integers(2, 6))
    shuffled = draw(st.permutations(sentences))
    cuts = sorted(
        draw(st.lists(st.integers(1, len(sentences) - 1), min_size=count - 1, max_size=count - 1, unique=True))
    )
    parts = [shuffled[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(sentences)], strict=True)]
    return [(Passage(end.join(part) + end.strip()), [f"{one}{end.strip()}" for one in part]) for part in parts]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["0", "1", "2", "3", "4", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(text=st.text(max_size=300) | JSON.map(lambda value: json.dumps(value, ensure_ascii=False)), made=groups())
@settings(max_examples=400, deadline=None)
def test_no_reply_makes_it_fail(text: str, made: list[tuple[Passage, list[str]]]) -> None:
    passages = [passage for passage, _ in made]
    found = split_reply(text, passages)
    assert len(found) == len(passages)
    for one in found:
        if one is not None:
            assert all(isinstance(text, str) for text in json.loads(one))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"1":' * 50_000, '{"1": [' * 20_000, '"1": ["a"] ' * 3000])
def test_no_depth_and_no_length_makes_it_fail(text: str) -> None:
    assert split_reply(text, PASSAGES[:2]) == [None, None]


@given(made=groups(), form=st.sampled_from(["object", "lists", "fence", "words"]))
@settings(max_examples=200, deadline=None)
def test_a_right_reply_is_taken_apart_rightly(made: list[tuple[Passage, list[str]]], form: str) -> None:
    lists: Any = {str(number): texts for number, (_, texts) in enumerate(made, 1)}
    if form == "lists":
        lists = [texts for _, texts in made]
    elif form == "words":
        lists = {f"passage_{number}": texts for number, texts in lists.items()}
    text = json.dumps(lists, ensure_ascii=False)
    text = f"Sure:\n```json\n{text}\n```" if form == "fence" else text
    found = split_reply(text, [passage for passage, _ in made])
    assert [json.loads(one or "null") for one in found] == [texts for _, texts in made]


@given(made=groups(), data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_passage_gets_another_ones_propositions(made: list[tuple[Passage, list[str]]], data: st.DataObject) -> None:
    """Whatever the model does with the lists: swaps, shifts, leaves out, merges, mixes, cuts."""
    everything = [texts for _, texts in made]
    lists = {}
    for number in range(1, len(made) + 2):
        sources = data.draw(st.lists(st.sampled_from(range(len(made))), max_size=2, unique=True))
        lists[str(number)] = [text for source in sources for text in data.draw(st.permutations(everything[source]))]
    text = json.dumps(lists, ensure_ascii=False)
    text = text[: data.draw(st.integers(0, len(text)))] if data.draw(st.booleans()) else text
    for (_, texts), found in zip(made, split_reply(text, [passage for passage, _ in made]), strict=True):
        assert found is None or sorted(json.loads(found)) == sorted(texts)


def test_a_list_that_has_nothing_in_common_with_any_passage_is_nobodys() -> None:
    passages = [Passage("味噌は塩辛い。"), Passage("塔は古い。")]
    assert split_reply('{"1": ["Miso is salty."], "2": ["塔は古い。"]}', passages) == [None, '["塔は古い。"]']


def test_groups_in_several_threads_do_not_mix() -> None:
    with StandInLLM() as server:
        asking = propositionizer(server.url)
        made: dict[str, list[PropositionSet]] = {}
        runs = {"en": PASSAGES, "ja": JAPANESE}
        threads = [
            threading.Thread(target=lambda name=name: made.update({name: asking.propositionize(runs[name])}))
            for name in runs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {name: texts_of(sets) for name, sets in made.items()} == {
        name: right_texts(passages) for name, passages in runs.items()
    }
