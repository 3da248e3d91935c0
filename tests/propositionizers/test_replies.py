"""What models really send where a JSON array of strings was asked for, and what is read out of it."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llama_pack_densex.propositionizers.replies import looks_like_refusal, read_reply, unique
from tests.openai_server import MALFORMED, STYLES

pytestmark = pytest.mark.pure

PROPOSITIONS = [
    "Miso is a Japanese seasoning.",
    'It\'s made of "soybeans", koji and salt.',
    "味噌は「みそ」と読む。",
    "Miso soup [a dish] contains {miso}.",
]


def texts_without(*characters: str) -> st.SearchStrategy[str]:
    return st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="".join(characters)), min_size=1
    )


@pytest.mark.parametrize("style", sorted(set(STYLES) - set(MALFORMED)))
def test_every_style_is_read_whole(style: str) -> None:
    reading = read_reply(STYLES[style](PROPOSITIONS), finished=True)
    assert (list(reading.texts), reading.problem) == (PROPOSITIONS, None)


@pytest.mark.parametrize("style", MALFORMED)
def test_what_is_no_list_in_any_notation_is_not_mended(style: str) -> None:
    assert read_reply(STYLES[style](PROPOSITIONS), finished=True).problem in ("unreadable", "cut")


@pytest.mark.parametrize(
    ("reply", "texts"),
    [
        ("['It's salty.', 'The \"miso\"', 'isn't']", ["It's salty.", 'The "miso"', "isn't"]),
        ("［「味噌は「辛い」。」、「赤い。」］", ["味噌は「辛い」。", "赤い。"]),
        ("[“a “b” c”，“d”]", ["a “b” c", "d"]),
        ('["a "b" c"\n"d"]', ['a "b" c', "d"]),
        ('["a "b", "c" d", "e"]', []),  # where does the first one end?
        ('["a", "caf\\u00e9 \\"b\\""\n"c"]', ["a", 'café "b"', "c"]),
        ('["a" "b c" "d"]', ["a", "b c", "d"]),
        ('["a", // one\n"b", // two\n"c"]', []),
        ("see [1]", []),
    ],
)
def test_other_quotation_marks_are_read_where_it_is_not_asked_again(
    reply: str, texts: list[str]
) -> None:
    assert list(read_reply(reply, finished=True, is_last=True).texts) == texts
    assert read_reply(reply, finished=True).problem == "unreadable"


@pytest.mark.parametrize(
    ("reply", "texts"),
    [
        ("['It\\'s salty.', 'b c',]", ["It's salty.", "b c"]),
        ('{"a": ["x y"], "b": ["z"]}', ["x y", "z"]),
        ('{"proposition_1": "x y", "proposition_2": "z"}', ["x y", "z"]),
        ('[{"sentence": "x", "propositions": ["x y", "z"]}]', ["x y", "z"]),
        ('["a", null, 1789, "", "  ", "...", true]', ["a", "1789"]),
        ('["a b"]\n["c d"]', ["a b", "c d"]),
        ('See [1] and [note].\n["a b"]', ["a b"]),
        (
            "1. a b\n   and more\n2) c d\n(3) e f\n４．g h\n⑤ i j\n・k l",
            ["a b and more", "c d", "e f", "g h", "i j", "k l"],
        ),
        (
            "- 1.5 million people live there\n- -5 °C is cold",
            ["1.5 million people live there", "-5 °C is cold"],
        ),
        ('["\\ud83d\\ude00 a", "\\ud800 b"]', ["😀 a", "\ufffd b"]),
        ('["a \\u0000b"]', ["a b"]),  # which PostgreSQL does not take
        ('["**Miso** is salty."]', ["**Miso** is salty."]),
        (
            '["The tag <think> opens.", "The tag </think> closes.",]',
            ["The tag <think> opens.", "The tag </think> closes."],
        ),
        ('the thoughts ["x"]\n</think>["a b"]', ["a b"]),
        ('<thinking>["x"]</thinking>\n["a b"]', ["a b"]),
        ('<|channel|>analysis<|message|>["x"]<|end|><|channel|>final<|message|>["a b"]', ["a b"]),
        ('{"1": "a b", "2": "c d"}', ["a b", "c d"]),
        ("**1.** a b\n**2.** c d", ["a b", "c d"]),
        ("Proposition 1: a b\n命題2：c d", ["a b", "c d"]),
        ('- "a b"\n- "c d",', ["a b", "c d"]),
        ('{"propositions": "- a b\\n- c d"}', ["a b", "c d"]),
        ('["a b\\nc d"]', ["a b", "c d"]),
        ("<facts><fact>a b</fact><fact id='2'>\nc d\n</fact></facts>", ["a b", "c d"]),
        ("命題：\n●味噌は辛い。\n○味噌は赤い。", ["味噌は辛い。", "味噌は赤い。"]),
        (json.dumps({"answer": json.dumps(["a b", "c d"])}), ["a b", "c d"]),
        ("Sure:\n→ a b\n✅ c d\nb) e f", ["a b", "c d", "e f"]),
        (
            '[{"proposition": "a b", "entities": ["a"]}, {"fact": "c d", "span": {"quote": "c"}}]',
            ["a b", "c d"],
        ),
        ('{"error": null, "propositions": ["a b"]}', ["a b"]),
        ('[{"text": "Miso is salty.", "words": ["miso"]}]', ["Miso is salty."]),
        (
            '{"text": "It is red.", "items": ["Miso is red.", "Miso is salty."]}',
            ["Miso is red.", "Miso is salty."],
        ),
        ('["1. a b", "2. c d"]', ["a b", "c d"]),
        ('["（1）味噌は辛い。", "（2）味噌は赤い。"]', ["味噌は辛い。", "味噌は赤い。"]),
        ('["1. FC Köln won.", "1. FC Köln lost."]', ["1. FC Köln won.", "1. FC Köln lost."]),
        ('[THINK]["x"][/THINK]["a b"]', ["a b"]),
        ('◁think▷["x"]◁/think▷["a b"]', ["a b"]),
        ('analysisSay ["x"]assistantfinal["a b"]', ["a b"]),
    ],
)
def test_what_is_read(reply: str, texts: list[str]) -> None:
    assert list(read_reply(reply, finished=True).texts) == texts


@pytest.mark.parametrize(
    "reply",
    [
        '["a", "b',
        '["a", "b"',
        '["a", "b",',
        "[",
        '```json\n["a",\n"b',
        '[["a", "b"], ["c"',
        '{"propositions": ["a", "b',
        '{"a": ["x"], "b',
        "['a', 'b",
        '["a", "b", ...]',
        "<think>Let me see",
        "- Miso is salty.\n- Soy sauce is",
    ],
)
def test_what_breaks_off_is_cut_and_never_closed_for_the_model(reply: str) -> None:
    assert read_reply(reply).problem == "cut"


@pytest.mark.parametrize(
    "reply",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but I cannot assist with this request.",
        '["I cannot provide propositions for this text."]',
        "- I'm sorry, I am unable to do this.",
        "申し訳ありませんが、そのご要望にはお応えできません。",
        '["この文章については回答できません。"]',
        "抱歉，我无法处理这个请求。",
        '{"error": "not allowed"}',
    ],
)
def test_a_refusal_is_no_proposition(reply: str) -> None:
    assert read_reply(reply).problem == "refused"


@pytest.mark.parametrize(
    "fact",
    [
        "Sorry is a 2019 play.",
        "I can help you.",
        "The firm apologised.",
        "申し訳は言い訳を意味する。",
    ],
)
def test_a_fact_is_no_refusal(fact: str) -> None:
    assert not looks_like_refusal(fact)


@pytest.mark.parametrize(
    "reply", ["", "  \n", "[]", "{}", '{"propositions": []}', "[[]]", "```json\n[]\n```"]
)
def test_an_empty_list_is_empty(reply: str) -> None:
    assert read_reply(reply).problem == "empty"


@pytest.mark.parametrize(
    "reply", ["['a b' 'c d']", '["He said "yes", and left", "b c"]', '{"propositions": ["a b"]']
)
def test_what_could_be_mended_wrongly_is_not_mended(reply: str) -> None:
    assert read_reply(reply).problem in ("unreadable", "cut")


@pytest.mark.parametrize(
    "reply",
    [
        "Miso is salty.",
        "Here are the propositions:",
        "[[wiki link]] is",
        '[{"s": "A", "p": "is", "o": "B"}]',
    ],
)
def test_prose_and_triples_are_unreadable(reply: str) -> None:
    assert read_reply(reply, is_last=True).problem == "unreadable"


def test_duplicates_go_by_normal_form_and_white_space() -> None:
    assert unique(["Ａ b", "A  b", "c"]) == ("Ａ b", "c")


@given(st.lists(texts_without(), min_size=1), st.booleans())
def test_every_json_list_round_trips(texts: list[str], ascii_only: bool) -> None:
    reading = read_reply(json.dumps(texts, ensure_ascii=ascii_only))
    stating = [text.replace("\0", "").strip() for text in texts if any(map(str.isalnum, text))]
    if any(map(str.isalpha, "".join(stating))) and not any(text[0] in "[{" for text in stating):
        assert reading.texts == unique(stating) or reading.problem == "refused"


@given(st.lists(texts_without(), min_size=1), st.data(), st.booleans())
def test_no_prefix_of_a_json_list_passes_for_the_whole(
    texts: list[str], data: st.DataObject, ascii_only: bool
) -> None:
    whole = json.dumps(texts, ensure_ascii=ascii_only)
    prefix = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert read_reply(prefix).problem is not None


@given(
    st.lists(texts_without('"', "\\", "\n", "\r"), min_size=1).filter(
        lambda texts: texts[0].strip()
    ),
    st.data(),
)
def test_no_prefix_of_a_fenced_or_single_quoted_list_passes(
    texts: list[str], data: st.DataObject
) -> None:
    for whole in (
        f"```json\n{json.dumps([texts])}",
        "['" + "', '".join(t.replace("'", "") for t in texts) + "']",
    ):
        prefix = whole[: data.draw(st.integers(0, len(whole) - 1))]
        assert read_reply(prefix).problem is not None


@given(st.text(st.sampled_from("[]{}\"'“”「」,:\\ ab\n-1.<think>/…`［，")) | st.text())
@example('\\boxed{["a", "b"]}')
@example('[{["a"]: "b"}]')
def test_no_text_raises(text: str) -> None:
    reading = read_reply(text)
    assert bool(reading.texts) != bool(reading.problem)


@pytest.mark.parametrize(
    "reply",
    [
        "[" * 100_000,
        '["' * 100_000,
        "{" * 100_000,
        "<think>" * 100_000,
        "</think>" * 90_000,
        "<think></think>" * 50_000,
        '["a "' * 50_000,
        '["“a", ' * 40_000,
        '["a", ' + "/*" * 100_000,
        '["' + "\\" * 290_000,
        "1. " * 1_000_000,
        "x" * 5_000_000,
        json.dumps(["word " * 1_000_000]),
        '["' + "word " * 1_000_000,
    ],
    ids=lambda reply: f"{reply[:12]!r} and {len(reply)} characters",
)
def test_hostile_replies_take_no_time(reply: str) -> None:
    started = time.process_time()
    read_reply(reply)
    assert time.process_time() - started < 20  # a second at most; quadratic time would take hours


def test_objects_within_objects_are_looked_into_once() -> None:
    nested: object = ["Miso is salty."]
    for _ in range(300):
        nested = {"text": "Miso", "items": ["Miso is red.", nested]}
    assert "Miso is red." in read_reply(json.dumps(nested)).texts


@pytest.mark.parametrize(
    "reply", ["['Snow fell.', {1: 'It melted.'}]", "['Snow fell.', {'2': ('It melted.',)}]"]
)
def test_a_list_as_python_writes_it_has_keys_and_tuples_that_json_has_not(reply: str) -> None:
    assert read_reply(reply).texts == ("Snow fell.", "It melted.")


@pytest.mark.parametrize("depth", [40, 700, 5000])
def test_lists_in_lists_are_read_or_asked_for_again(depth: int) -> None:
    reading = read_reply("[" * depth + '"Snow fell."' + "]" * depth)
    assert reading.texts == ("Snow fell.",) or reading.problem == "unreadable"
