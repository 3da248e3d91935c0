"""What a thinking model says before its answer is taken off; an answer that speaks of such marks stays
whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.llm.thoughts import ThoughtFilter, without_thoughts
from tests.thoughts import MARKS

pytestmark = pytest.mark.pure

TEXTS = {
    "en": ("Okay, how deep is it? [^1] says 240, not 54.", "It lies 240 metres below the sea.[^1]"),
    "ja": ("深さの質問だ。[^1]に240とある。54は全長だろう。", "海面下240メートルにある。[^1]"),
}


def streamed(reply: str, pieces: int) -> str:
    """What is left of a reply that comes in pieces of some characters."""
    thoughts = ThoughtFilter()
    answer = ""
    for start in range(0, len(reply) + 1, pieces):
        piece = thoughts.add(reply[start : start + pieces], is_last=start + pieces > len(reply))
        answer = piece if thoughts.starts_over else answer + piece
    return answer.strip()


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
def test_thoughts_before_the_answer_go(marks: tuple[str, str], language: str) -> None:
    opening, closing = marks
    thoughts, answer = TEXTS[language]
    for reply in (
        f"{opening}{thoughts}{closing}{answer}",
        f"\n {opening}{thoughts}{closing}\n{answer}\n",
    ):
        assert without_thoughts(reply) == answer
        assert {streamed(reply, pieces) for pieces in (1, 2, 7, 50)} == {answer}


@pytest.mark.parametrize("marks", [marks for marks in MARKS.values() if marks[0]], ids=str)
@pytest.mark.parametrize("language", TEXTS)
def test_thoughts_that_were_cut_off_are_no_answer(marks: tuple[str, str], language: str) -> None:
    reply = f"{marks[0]}{TEXTS[language][0]}"
    assert without_thoughts(reply) == ""
    assert streamed(reply, 3) == ""


ANSWER = TEXTS["en"][1]
SHAPES = {
    "empty": f"<think>\n\n</think>\n\n{ANSWER}",
    "empty tag": f"<think/>{ANSWER}",
    "empty, begun by the template": f"\n\n</think>\n\n{ANSWER}",
    "several": f"<think>a</think>\n<think>b</think>\n{ANSWER}",
    "several of which the first was begun by the template": f"a</think>\n<think>b</think>\n{ANSWER}",
    "nested": f"<think>a <think>b [^1]</think> c.[^1]</think>{ANSWER}",
    "nested of another name": f"<thinking>a<reflection>b</reflection>c.[^1]</thinking>{ANSWER}",
    "that name the opening tag": f"<think>It is about <think> tags.</think>\n\n{ANSWER}",
    "that name the closing tag": f"<think>That </think> closes it is not said.</think>\n{ANSWER}",
    "that quote the closing tag": f"<think>Say that `</think>` closes it?</think>\n{ANSWER}",
    "that name the opening tag, begun by the template": f"It is about <think> tags.\n</think>\n{ANSWER}",
    "that hold the beginning of code": f"<think>```json\n[1]\n</think>\n{ANSWER}",
    "after the answer": f"{ANSWER}\n<think>Was that right?</think>",
    "after the answer in its line": f"{ANSWER} <think>Was that right?</think>",
    "after the answer, cut off": f"{ANSWER}\n\n<think>Was that",
    "before a wrapped answer": f"<think>a</think>\n<answer>{ANSWER}</answer>",
    "before an answer between tokens": (
        f"<|begin_of_thought|>a<|end_of_thought|>\n<|begin_of_solution|>\n{ANSWER}\n<|end_of_solution|>"
    ),
    "before an answer with an end": (
        f"<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>{ANSWER}<|return|>"
    ),
    "in two channels": (
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>"
        f"<|start|>assistant<|channel|>final<|message|>{ANSWER}"
    ),
    "in no channel": f"<|channel|>final<|message|>{ANSWER}",
}


@pytest.mark.parametrize("reply", SHAPES.values(), ids=SHAPES)
def test_thoughts_of_any_shape_go(reply: str) -> None:
    assert without_thoughts(reply) == ANSWER
    assert {streamed(reply, pieces) for pieces in (1, 2, 7, 50)} == {ANSWER}


@pytest.mark.parametrize(
    "answer",
    [
        "`<think>` opens the block, `</think>` closes it.[^1]",
        "The tags <think> and </think> enclose thoughts.[^1]",
        "The model writes <think>its reasoning</think> before the answer.[^1]",
        "The tag </think> closes the block.[^1]",
        'What closes it is "</think>".[^1]',
        "The reply ends with </think>",
        "- <think>: opens[^1]\n- </think>: closes[^1]",
        "1. <think> opens\n2. </think> closes[^1]",
        "| tag | use |\n|---|---|\n| <think> | opens |\n| </think> | closes |",
        "It looks as follows:\n<think>\nLet me see.\n</think>\nThe answer[^1]",
        "The format:\n\n```\n<think>\nLet me see.\n</think>\nThe answer\n```\n\nThat is all.[^1]",
        "gpt-oss writes `<|channel|>analysis<|message|>` first.[^1]",
        "Magistral has the tokens [THINK] and [/THINK].[^1]",
        "思考は<think>と</think>の間に書かれる。[^1]",
        "閉じるタグは</think>である。[^1]",
        "「</think>」で終わる。[^1]",
        "`<think>`で始まり、`</think>`で終わる。[^1]",
        "Analysis shows that a < b.[^1]",
        "analysis of the data",
        "[note] if (a<b) then x[^1]",
        "",
    ],
)
def test_an_answer_that_speaks_of_marks_stays_whole(answer: str) -> None:
    for reply in (answer, f"<think>Hm.</think>\n{answer}"):
        assert without_thoughts(reply) == answer
        assert {streamed(reply, pieces) for pieces in (1, 2, 7, 50)} == {answer}


PIECES = [
    "<think>", "</think>", "<think/>", "[THINK]", "[/THINK]", "<|start|>assistant",
    "<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|end|>", "<answer>", "</answer>",
    "`", "```\n", "\n", " ", ".", ":", "a", "はい",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES)).map("".join), st.integers(1, 20))
def test_a_stream_comes_to_what_the_whole_does(reply: str, pieces: int) -> None:
    assert streamed(reply, pieces) == without_thoughts(reply)
