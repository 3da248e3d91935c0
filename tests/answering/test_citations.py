"""Footnotes: they resolve, however an answer is cut into pieces; sentences know what supports them."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.llms import LLMMetadata, MockLLM
from llama_index.core.schema import Document, NodeWithScore, TextNode

from llama_pack_densex.answering.citations import CitedAnswer
from llama_pack_densex.answering.extractive import extract
from llama_pack_densex.answering.phrases import NO_SOURCE, NOT_FOUND
from llama_pack_densex.answering.sources import Source, numbered
from llama_pack_densex.answering.synthesizer import CitedSynthesizer
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor

pytestmark = pytest.mark.pure

BRIDGE = "The Akashi Bridge opened in 1998. Its main span is 1,991 metres long."
LIGHT = "The lighthouse stands on a cliff. Its lamp turns every ten seconds."
QUESTION = "When did the Akashi Bridge open?"


def sources(*texts: str) -> list[Source]:
    return [
        Source.of(n, NodeWithScore(node=TextNode(text=text)))
        for n, text in enumerate(texts, start=1)
    ]


def answered(reply: str, question: str = QUESTION, pieces: int = 10**6) -> tuple[str, CitedAnswer]:
    cited = CitedAnswer(question, sources(BRIDGE, LIGHT))
    shown = "".join(
        cited.add(reply[start : start + pieces]) for start in range(0, len(reply), pieces)
    )
    return shown + cited.close(), cited


@pytest.mark.parametrize("pieces", [1, 3, 10**6])
@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("It opened in 1998.[^1]", "It opened in 1998.[^1]"),
        ("It opened in 1998 [^1].", "It opened in 1998[^1]."),
        ("It opened in 1998.[^1, ^2]", "It opened in 1998.[^1][^2]"),
        ("It opened in 1998. [^1] [^9]", "It opened in 1998.[^1]"),
        (
            "It opened in 1998.[^1] It is grey.",
            f"It opened in 1998.[^1] It is grey.{NO_SOURCE['en']}",
        ),
        (
            "It is grey. It opened in 1998.[^1]",
            f"It is grey.{NO_SOURCE['en']} It opened in 1998.[^1]",
        ),
        (
            "It opened in 1998.[^1]\n\n[^1]: The Akashi Bridge\n[^2]: Lamps",
            "It opened in 1998.[^1]",
        ),
        ("It opened in 1998.[^1] [^abc] 【^9】[^^4]", "It opened in 1998.[^1]"),
        ("1998年に開通した［＾１］。", "1998年に開通した[^1]。"),
        (
            "It opened in 1998.[^1] It is grey.[^",
            f"It opened in 1998.[^1] It is grey.{NO_SOURCE['en']}",
        ),
        ("It is on Mars.[^3]", NOT_FOUND["en"]),
        ("Olympus Mons is the tallest volcano.", NOT_FOUND["en"]),
        (NOT_FOUND["en"], NOT_FOUND["en"]),
        ("", NOT_FOUND["en"]),
        ("It opened in 1998.\\[^1\\]", "It opened in 1998.[^1]"),
        ("Eröffnet, z. B. 1998, mit 1 991 m.[^1]", "Eröffnet, z. B. 1998, mit 1 991 m.[^1]"),
        ("See i. d. R. Das sind z. B. 1998 m.[^1]", "See i. d. R. Das sind z. B. 1998 m.[^1]"),
        (
            # two sources
            "The great bridge's span is 1,991 metres. A lighthouse on the cliff has a lamp.",
            "The great bridge's span is 1,991 metres. (no source) A lighthouse on the cliff has a lamp. (no "
            "source)",
        ),
        ("It \ud83d\ude00 opened \ud83d in 1998.[^1]", "It \U0001f600 opened \ufffd in 1998.[^1]"),
        (
            "The Akashi Bridge opened in 1998.",
            f"The Akashi Bridge opened in 1998.{NO_SOURCE['en']}",
        ),
    ],
)
def test_footnotes_that_lead_nowhere_go_and_sentences_without_any_are_marked(
    reply: str, text: str, pieces: int
) -> None:
    shown, cited = answered(reply, pieces=pieces)
    assert shown.rstrip() == text
    assert cited.text == shown
    assert cited.outcome == ("not_found" if text == NOT_FOUND["en"] else "answered")


BRIDGE_JA = "明石海峡大橋は1998年に開通した。料金は普通車が2,410円である。"
NONE, NONE_JA = NO_SOURCE["en"], NO_SOURCE["ja"]
MAY_I = "May I take my dog across the bridge?"
MAY_I_JA = "犬を連れて橋を渡れますか。"


def unmarked(text: str) -> str:
    """An answer as the LLM wrote it, without our marks."""
    return text.replace(NONE, "").replace(NONE_JA, "")


def written(reply: str, question: str, pieces: int) -> str:
    cited = CitedAnswer(question, sources(BRIDGE, BRIDGE_JA))
    shown = "".join(
        cited.add(reply[start : start + pieces]) for start in range(0, len(reply), pieces)
    )
    return shown + cited.close()


@pytest.mark.parametrize("pieces", [1, 3, 10**6])
@pytest.mark.parametrize(
    ("question", "text"),
    [
        (MAY_I, "Yes. It opened in 1998.[^1]"),
        (MAY_I, "**No, that is not possible.** It opened in 1998.[^1]"),
        (MAY_I, "Yes, you may take your dog. It opened in 1998.[^1]"),
        (MAY_I, "It depends.\n\n- It opened in 1998.[^1]"),
        (MAY_I, f"Yes. It is grey.{NONE} It opened in 1998.[^1]"),
        (MAY_I, f"Yes, cats are free. {NONE.strip()} It opened in 1998.[^1]"),
        (MAY_I, f"It opened in 1998.[^1] Yes.{NONE}"),
        (MAY_I_JA, "はい。1998年に開通した。[^2]"),
        (MAY_I_JA, "できます。1998年に開通した。[^2]"),
        (MAY_I_JA, "いいえ、犬は渡れません。1998年に開通した。[^2]"),
        (MAY_I_JA, "条件により異なります。以下の通りです。\n\n- 1998年に開通した。[^2]"),
        (MAY_I_JA, f"はい。灰色です。{NONE_JA}1998年に開通した。[^2]"),
        (MAY_I_JA, f"はい、猫は無料です。{NONE_JA}1998年に開通した。[^2]"),
    ],
)
def test_a_short_yes_or_no_has_the_source_of_the_next_sentence(
    question: str, text: str, pieces: int
) -> None:
    assert written(unmarked(text), question, pieces) == text


@pytest.mark.parametrize("pieces", [1, 3, 10**6])
@pytest.mark.parametrize(
    ("question", "sentence", "is_marked"),
    [
        (MAY_I, "The documents do not say how much it costs.", False),
        (MAY_I, "However, the fare for dogs is not mentioned in the documents.", False),
        (MAY_I, "There is no information about dogs.", False),
        (MAY_I, "I could not find the fare in the provided documents.", False),
        (MAY_I, "The documents do not say how much it costs, but it is about 20 dollars.", True),
        (MAY_I, "The documents do not say how much it costs, and a ferry is cheaper.", True),
        (MAY_I, "The fare does not include dogs.", True),
        (MAY_I, "Drivers who are not mentioned are fined.", True),
        (MAY_I_JA, "ただし、犬の料金は文書に記載されていません。", False),
        (MAY_I_JA, "犬については書かれていません。", False),
        (MAY_I_JA, "文書からは分かりません。", False),
        (MAY_I_JA, "金額の記載はないため、お答えできません。", False),
        (MAY_I_JA, "犬の料金は書かれていませんが、約500円です。", True),
        (MAY_I_JA, "犬は無料ですが、猫の料金は書かれていません。", True),
        (MAY_I_JA, "申請書に氏名を記載しなければならない。", True),
        (MAY_I_JA, "料金に犬は含まれません。", True),
    ],
)
def test_what_is_missing_needs_no_source_but_what_is_added_to_it_does(
    question: str, sentence: str, is_marked: bool, pieces: int
) -> None:
    begun = "1998年に開通した。[^2]" if question == MAY_I_JA else "It opened in 1998.[^1] "
    mark = NONE_JA if question == MAY_I_JA else NONE
    assert written(begun + sentence, question, pieces) == begun + sentence + is_marked * mark


@pytest.mark.parametrize(
    "reply",
    [
        "The documents do not say how much it costs.",
        "The documents do not say how much it costs.[^1][^2]",
        "The documents do not say who paid.[^1] The documents do not mention a price.[^1]",
        "I could not find that in the documents. Let me know if you have other questions!",
        "文書に料金の記載はありません。",
        "文書に料金の記載はありません。[^2]他にご質問があればお知らせください。",
    ],
)
def test_an_answer_that_only_says_what_is_missing_is_not_found(reply: str) -> None:
    question = MAY_I if reply.isascii() else MAY_I_JA
    assert written(reply, question, 3) == NOT_FOUND["en" if reply.isascii() else "ja"]


@pytest.mark.parametrize("pieces", [1, 3, 10**6])
@pytest.mark.parametrize(
    ("question", "text"),
    [
        (
            MAY_I,
            "The bridge in figures:[^1]\n\n| Opened | Main span |\n|---|---|\n| 1998 | 1,991 metres |",
        ),
        (MAY_I, "Of the bridge[^1]:\n- It opened in 1998.\n- Its main span: 1,991 metres"),
        (
            MAY_I,
            f"Of the bridge:[^1]\n\n- It opened in 1889.{NONE}\n- A Dane painted it red.{NONE}",
        ),
        (MAY_I, f"It opened in 1998.[^1]\n\n- Its main span is long.{NONE}"),
        (MAY_I_JA, "料金は次の通りです。[^2]\n\n| 車種 | 料金 |\n|---|---|\n| 普通車 | 2,410円 |"),
        (MAY_I_JA, f"橋について：[^2]\n・1998年に開通した。\n・1889年に開通した。{NONE_JA}"),
    ],
)
def test_a_line_that_leads_in_lends_its_source_to_what_that_source_says(
    question: str, text: str, pieces: int
) -> None:
    assert written(unmarked(text), question, pieces) == text


@pytest.mark.parametrize("pieces", [1, 3, 10**6])
@pytest.mark.parametrize(
    "text",
    [
        "The Akashi Bridge has a main span. It is 1,991 metres long and opened in 1998.[^1]",
        f"The bridge opened in 1889.{NONE} Its main span is 1,991 metres long.[^1]",
        "- Its main span is 1,991 metres long. It opened in 1998.[^1]\n- It opened in 1998.[^1]",
        f"The Akashi Bridge opened in 1998.{NONE}\n\nIts main span is long.[^1]",
        f"It opened in 1998.[^1] The bridge opened.{NONE}",
    ],
)
def test_a_sentence_takes_the_next_footnotes_of_its_line_if_their_sources_support_it(
    text: str, pieces: int
) -> None:
    assert written(unmarked(text), MAY_I, pieces) == text


@pytest.mark.parametrize("pieces", [1, 3, 10**6])
@pytest.mark.parametrize(
    ("question", "text"),
    [
        (MAY_I, "**The bridge, 5 April 1998**\n\nIt opened in 1998.[^1]"),
        (
            MAY_I,
            "Sorry to hear that. It opened in 1998.[^1] Which one do you mean? I hope this helps!",
        ),
        (MAY_I, "It opened in 1998.[^1]\n\nPlease let me know if you have more questions."),
        (MAY_I, f"It opened in 1998.[^1] Please tell the keeper.{NONE}\n\n**5 euros**{NONE}"),
        (MAY_I, f"It opened in 1998.[^1] **It was painted red.**{NONE}\nI hope it costs 5.{NONE}"),
        (MAY_I_JA, "【橋】\n1998年に開通した。[^2]どの橋のことか教えてください。"),
        (MAY_I_JA, "1998年に開通した。[^2]ほかにご不明な点があればお知らせください。"),
        (MAY_I_JA, f"1998年に開通した。[^2]人事部にお知らせください。{NONE_JA}"),
    ],
)
def test_titles_questions_and_courtesies_need_no_source(
    question: str, text: str, pieces: int
) -> None:
    assert written(unmarked(text), question, pieces) == text


@pytest.mark.parametrize("pieces", [1, 3, 10**6])
@pytest.mark.parametrize(
    "listed",
    [
        "Sources:\n[^1]: The bridge\n[^2]: 橋",
        "**Sources**\n\n- [^1]: The bridge",
        "## References\n\n[^1]: The bridge\n",
        "出典：\n[^2]: 橋",
        "### 参考文献\n\n[^2]: 橋",
        "---\n**Sources**\n[^1]: The bridge",
    ],
)
def test_a_list_of_sources_goes_with_its_heading(listed: str, pieces: int) -> None:
    assert written(f"It opened in 1998.[^1]\n\n{listed}", MAY_I, pieces) == "It opened in 1998.[^1]"


@pytest.mark.parametrize("pieces", [1, 3, 10**6])
@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("[^1]: It opened in 1998.", "[^1] It opened in 1998."),
        (
            "Found:\n[^1]: It opened in 1998.\n[^2]: Its lamp turns.",
            "Found:\n[^1] It opened in 1998.\n[^2] Its lamp turns.",
        ),
        (
            "- [^1] It opened in 1998.\n- [^2] Its lamp turns.\n\n[^1][^2]",
            "- [^1] It opened in 1998.\n- [^2] Its lamp turns.[^1][^2]",
        ),
        (
            "It opened in 1998.[^1]\n\n---\n- [^1] bridge.md\n- [^2] light.md",
            "It opened in 1998.[^1]",
        ),
        ("It opened in 1998.[^1]\n\nSources\n1. [^1] bridge.md", "It opened in 1998.[^1]"),
        (
            "1. [^1] It opened in 1998.\n2. [^2] Its lamp turns.",
            "1. [^1] It opened in 1998.\n2. [^2] Its lamp turns.",
        ),
    ],
)
def test_a_line_that_begins_with_its_footnote_is_a_sentence_or_names_a_source(
    reply: str, text: str, pieces: int
) -> None:
    named = [
        replace(source, document=document)
        for source, document in zip(sources(BRIDGE, LIGHT), ["bridge.md", "light.md"], strict=True)
    ]
    cited = CitedAnswer(QUESTION, named)
    shown = [cited.add(reply[start : start + pieces]) for start in range(0, len(reply), pieces)]
    assert "".join(shown) + cited.close() == text
    footnotes = [sentence["footnotes"] for sentence in cited.metadata()["sentences"]]
    assert [numbers[0] for numbers in footnotes if numbers] == [
        int(number) for number in re.findall(r"(?m)^(?:- |\d\. )?\[\^(\d)\]", text) or [1]
    ]


CODE, TABLE = (
    "Run:\n\n```\nopen 1998\n\nlamp = a[1]\n```",
    "| Bridge | Opened |\n|---|---|\n| Akashi | 1998 |",
)


@pytest.mark.parametrize("pieces", [1, 3, 10**6])
@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (f"{CODE}[^1]\nIt opened.[^1]", f"{CODE}\n\n[^1]\nIt opened.[^1]"),
        (f"{CODE}\n\nIt opened.[^1]", f"{CODE}\n\n{NO_SOURCE['en']}\n\nIt opened.[^1]"),
        (f"It opened.[^1]\n\n{CODE}\n", f"It opened.[^1]\n\n{CODE}\n\n{NO_SOURCE['en']}"),
        (f"{TABLE}\n\n[^1][^2]", f"{TABLE}\n\n[^1][^2]"),
        (
            "| Akashi | [^1] |\n|---|---|\n| 1998 | [^1] |",
            "| Akashi |[^1] |\n|---|---|\n| 1998 |[^1] |",
        ),
    ],
)
def test_code_and_tables_end_before_their_footnotes(reply: str, text: str, pieces: int) -> None:
    assert answered(reply, pieces=pieces)[0] == text


@pytest.mark.parametrize("pieces", [1, 2, 10**6])
@pytest.mark.parametrize(
    ("reply", "footnotes"),
    [
        ("It opened in 1998 [1].", [[1]]),
        ("It opened in 1998[1]. It turns.[2]", [[1], [2]]),
        ("It opened in 1998. [1, 2] It turns [2].\n", [[1, 2], [2]]),
        ("It opened in 1998.[1][2]", [[1, 2]]),
        ("1998年に開通した［１］。灯台は崖にある［２］。", [[1], [2]]),
        ("1998年に開通した。【1†source】灯台は崖にある。【2】", [[1], [2]]),
        ("- It opened in 1998 [1]\n- It turns [2]", [[1], [2]]),
        ("It opened in (1998) and has 12 m² [7].[1]", [[1]]),
        ("It opened in a[1] and `b [1]`, (2) of which - [ ] [1, 1998] is long [1].", [[1]]),
        ("It opened in 1998.[^1] It has a lens [2].", [[1], []]),
    ],
)
def test_citations_in_another_form_than_was_asked_for_are_footnotes(
    reply: str, footnotes: list[list[int]], pieces: int
) -> None:
    _, cited = answered(reply, pieces=pieces)
    assert [
        sorted(sentence["footnotes"]) for sentence in cited.metadata()["sentences"]
    ] == footnotes


def test_what_the_sources_have_in_brackets_is_no_citation() -> None:
    reply = "Wages fell in 1999[1] and a [2] is read. They rose (1).[^1]"
    cited = CitedAnswer(
        QUESTION, sources("Wages fell in 1999[1]. They rose (1).", "Write a [2], or a [3].")
    )
    assert cited.add(reply) + cited.close() == reply.replace(" They", f"{NO_SOURCE['en']} They")
    unasked = CitedAnswer(QUESTION, sources(BRIDGE), checked=False)
    assert unasked.add("It opened [1].") + unasked.close() == "It opened [1]."


def test_a_japanese_question_is_told_in_japanese_that_there_is_no_answer() -> None:
    assert answered("火星にあります。", "オリンポス山はどこにありますか。")[0] == NOT_FOUND["ja"]
    shown = answered("1998年です。[^1]灰色です。", "明石海峡大橋はいつ開通しましたか。")[0]
    assert shown == f"1998年です。[^1]灰色です。{NO_SOURCE['ja']}"


PIECES = st.sampled_from(
    [
        "It opened in 1998.",
        "灯台は崖の上にある。",
        "[^1]",
        "[^2]",
        "[^7]",
        "[^",
        "[",
        "]",
        " ",
        "\n",
        "e.g. ",
        "- ",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=12), st.integers(1, 5))
def test_every_footnote_resolves_and_nothing_shown_is_taken_back(
    parts: list[str], size: int
) -> None:
    reply = "".join(parts)
    cited = CitedAnswer(QUESTION, sources(BRIDGE, LIGHT))
    shown = ""
    for start in range(0, len(reply), size):
        shown += cited.add(reply[start : start + size])
        assert cited.text == shown
    shown += cited.close()
    assert cited.text == shown
    about = json.loads(json.dumps(cited.metadata()))
    numbers = {citation["number"] for citation in about["citations"]}
    assert {int(number) for number in re.findall(r"\[\^(\d+)\]", shown)} == numbers
    assert {
        number for sentence in about["sentences"] for number in sentence["footnotes"]
    } == numbers
    assert all(f"\n[^{number}]: " in about["markdown"] for number in numbers)


def test_a_sentence_without_a_footnote_is_one_of_its_own() -> None:
    _, cited = answered(
        "It was expensive. The Akashi Bridge opened in 1998.[^1] 高かった。開通は1998年。[^2]"
    )
    sentences = cited.metadata()["sentences"]
    assert [(sentence["footnotes"], sentence["supported"]) for sentence in sentences][:2] == [
        ([], False),
        ([1], True),
    ]
    assert [sentence["footnotes"] for sentence in sentences] == [[], [1], [], [2]]


@pytest.mark.parametrize("space", [" ", "\n"])
def test_a_reply_of_white_space_takes_no_time_to_speak_of(space: str) -> None:
    """It would take minutes, in which a server answers nobody; the test's time limit ends it."""
    assert (
        answered(f"It opened in 1998.[^1]{100_000 * space}[^2]")[0] == "It opened in 1998.[^1][^2]"
    )


@pytest.mark.parametrize("piece", ["3.14, ", "| a | b |\n", "言葉"])
def test_a_sentence_of_thousands_of_pieces_takes_no_time_to_speak_of(piece: str) -> None:
    """It would take minutes; the test's time limit ends it."""
    reply = f"It opened in 1998.[^1]\n\n{5_000 * piece}"
    assert answered(reply, pieces=len(piece))[0] == answered(reply)[0]


@pytest.mark.parametrize("kind", [TextNode, Document])
def test_a_documents_own_footnotes_are_no_sources(kind: type[TextNode] | type[Document]) -> None:
    text = "Wages fell in 1999[^2]. Prices rose."
    units = [
        {
            "id": "u",
            "text": "Wages fell in 1999[^2].",
            "score": 1.0,
            "granularity": "proposition",
            "status": "ok",
        }
    ]
    found = NodeWithScore(
        node=kind(text=text, metadata={"densex_matched": units, "footnote": "[^7]"}), score=1.0
    )
    (copy,) = numbered([found])
    assert copy.node.metadata["footnote"] == "[^1]"
    assert copy.node.get_content() == "Wages fell in 1999(^2). Prices rose."
    assert extract("What fell?", [found]) == "Wages fell in 1999.[^1]"


class SmallLLM(MockLLM):
    """Replies with what it is asked, and reads 600 tokens."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(context_window=600, num_output=0)


def test_what_the_llm_cannot_read_is_left_out_but_for_its_first_sentences(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = [f"lamp {number} = {number} turns" for number in range(300)]
    table = "\n".join(["```", *lines, "```"])  # no sentence ends in it
    context = PropositionContextPostprocessor(mode="passages", budget=None)
    synthesizer = CitedSynthesizer(SmallLLM(), context=context)
    reply = str(
        synthesizer.synthesize(QUESTION, [retrieved(BRIDGE), retrieved(table), retrieved(LIGHT)])
    )
    assert "opened in 1998" in reply
    assert "lamp 0 " not in reply
    assert "do not fit" in caplog.text
    caplog.clear()
    reply = str(synthesizer.synthesize(QUESTION, [retrieved(100 * f"{BRIDGE} "), retrieved(LIGHT)]))
    assert reply.count("opened in 1998") > 2
    assert "lighthouse" not in reply
    caplog.clear()
    synthesizer.synthesize(QUESTION, [retrieved(BRIDGE)])
    assert caplog.text == ""


def retrieved(text: str) -> NodeWithScore:
    return NodeWithScore(node=TextNode(text=text), score=1.0)
