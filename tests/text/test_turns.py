"""Conversations: each sentence of a turn says who speaks, and when."""

from __future__ import annotations

import pytest

from llama_pack_densex.text.outline import Outline
from llama_pack_densex.text.segments import passage_sentences

pytestmark = pytest.mark.pure

CONVERSATIONS = {
    "an interview": (
        "Interviewer: What changed?\n\nHelena Marsh: The detectors. They are small.\n\n"
        "They hang in trees.\n\nInterviewer: And now?",
        ["Interviewer: What changed?", "Helena Marsh: The detectors.", "Helena Marsh: They are small.",
         "Helena Marsh: They hang in trees.", "Interviewer: And now?"],
    ),
    "a page of Markdown": (
        "**Host:** Why? I ask.\n\n**Yusuf Demir:** I like it. It rests.",
        ["Host: Why?", "Host: I ask.", "Yusuf Demir: I like it.", "Yusuf Demir: It rests."],
    ),
    "WhatsApp": (
        "12/05/2024, 10:07 - Bob (plot 9): I do. Come at 5\n"
        "13/05/2024, 18:40 - Ann: Paid. The hedge is\nhigh",
        ["12/05/2024, 10:07 - Bob (plot 9): I do.", "12/05/2024, 10:07 - Bob (plot 9): Come at 5",
         "13/05/2024, 18:40 - Ann: Paid.", "13/05/2024, 18:40 - Ann: The hedge is\nhigh"],
    ),
    "LINE": (
        "2024/06/28(金)\n19:02\t佐藤 恵子\tありがとう！行きます\n"
        "19:05\t山本\t'はい\n待っています'\n19:06\t佐藤 恵子\tでは",
        ["19:02 佐藤 恵子: ありがとう！", "19:02 佐藤 恵子: 行きます",
         "19:05 山本: 'はい", "19:05 山本: 待っています'", "19:06 佐藤 恵子: では"],
    ),
    "LINE, with spaces": (
        "2023.11.18 土曜日\n14:20 えりか 明日です。13時です\n14:22 けんた 了解\n14:25 えりか はい",
        ["14:20 えりか: 明日です。", "14:20 えりか: 13時です", "14:22 けんた: 了解", "14:25 えりか: はい"],
    ),
    "IRC": (
        "10:04 <@lidia> no. clamp to 33\n10:05  * marek sighs\n10:06 <marek> fine. Done.",
        ["10:04 <@lidia> no.", "10:04 <@lidia> clamp to 33", "10:05  * marek sighs",
         "10:06 <marek> fine.", "10:06 <marek> Done."],
    ),
    "names above what is said": (
        "Karen Whitfield  0:04\nFirst, the roof. It leaks.\n\n[10:05] Lindqvist, Maja\nOK.",
        ["Karen Whitfield 0:04: First, the roof.", "Karen Whitfield 0:04: It leaks.",
         "[10:05] Lindqvist, Maja: OK."],
    ),
    "minutes": (
        "○議長（田中君）\u3000始めます。\n\n２\u3000議題\n\n本日は二件です。\n\n○森委員\u3000伺います。何名ですか。",
        ["○議長（田中君）：始めます。", "本日は二件です。", "○森委員：伺います。", "○森委員：何名ですか。"],
    ),
    "statements": (
        "司会：始めます。どうぞ。\n黒田（商工会）：上限は月3万円です。期間は二年です。",
        ["司会：始めます。", "司会：どうぞ。", "黒田（商工会）：上限は月3万円です。",
         "黒田（商工会）：期間は二年です。"],
    ),
    "a message with a list of names": (
        "[10:03] Ann: Dates. See below.\nMonday: Bo. Early.\nTuesday: Cy. Late.\n\nNote: Come.\n\nBring tea.",
        ["[10:03] Ann: Dates.", "[10:03] Ann: See below.", "[10:03] Ann: Monday: Bo.", "[10:03] Ann: Early.",
         "[10:03] Ann: Tuesday: Cy.", "[10:03] Ann: Late.", "[10:03] Ann: Note: Come.",
         "[10:03] Ann: Bring tea."],
    ),
    "a mail with answers between": (
        "[2024-05-07 16:42] Lars:\n\nHello.\n\nOn Mon, 6 May 2024, Ines wrote:\n"
        "> It is late. Who comes?\n\nI do.\n\n> When?\n",
        ["[2024-05-07 16:42] Lars: Hello.", "On Mon, 6 May 2024, Ines wrote: It is late.",
         "On Mon, 6 May 2024, Ines wrote: Who comes?", "[2024-05-07 16:42] Lars: I do.",
         "On Mon, 6 May 2024, Ines wrote: When?"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_each_sentence_says_who_speaks(name: str) -> None:
    text, sentences = CONVERSATIONS[name]
    assert list(passage_sentences(text)) == sentences


@pytest.mark.parametrize(
    "text",
    [
        "Note: Prime the pump. Never run dry.\n\nWarning: It is hot. Wait.\n\nNote: Drain it. Frost.",
        "Name: Petra. Vogel\nAddress: Lindenweg. Freiburg\nHobby: Chess. Walks",
        "日時：五月一日。朝\n場所：会議室。二階\n出席者：大野。石井",
        "10:00 Opening by the mayor. Music\n10:30 Lecture in the hall. Talk",
        "The rule: Go left. Then right.\n\nOne word: Stop. Now.",
    ],
)
def test_what_is_no_name_is_not_before_other_sentences(text: str) -> None:
    assert all(sentence in text for sentence in passage_sentences(text))


def test_a_passage_within_a_turn_says_whose_it_is() -> None:
    text = "Ann: First. More.\n\nBo: Why?\n\nAnn: Since it rained. A lot.\n\nIt was wet.\n\nBo: Oh."
    start = text.index("It was wet.")
    context = Outline(text).context_of(start, len(text))
    assert "Ann: Since it rained." in context
    assert passage_sentences(text[start:], context)[0] == "Ann: It was wet."


def test_a_speech_that_goes_on_for_pages_is_the_speakers() -> None:
    speech = "\n\n".join(f"Paragraph {number}. It is long." for number in range(9))
    text = f"Host: Why?\n\nAnn: Since it rained.\n\n{speech}\n\nHost: Oh.\n\nAnn: Yes."
    start = text.index("Paragraph 5")
    end = text.index("\n\nHost: Oh")
    context = Outline(text).context_of(start, end)
    sentences = passage_sentences(text[start:end], context)
    assert all(sentence.startswith("Ann: ") for sentence in sentences)


def test_the_day_above_messages_is_their_section() -> None:
    text = "2024/06/28(金)\n19:02\t佐藤\tはい\n\n2024/06/29(土)\n08:30\t山本\t7月20日です"
    assert Outline(text).section_of(text.index("7月"), len(text)) == "2024/06/29(土)"
