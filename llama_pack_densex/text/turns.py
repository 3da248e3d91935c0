"""Conversations: the lines on which someone begins to speak, and the label that says who, and when."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from itertools import groupby

from llama_pack_densex.text.layout import Lines
from llama_pack_densex.text.tokens import on_one_line, words

_TIME = r"\d{1,2}:\d\d(?::\d\d)?(?:\.\d{1,3})?(?:[ \u202f]?[AaPp]\.?[Mm]\b\.?)?"
_DAY = r"(?:\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{2,4}|\d\d?-[A-Z][a-z]{2}-\d\d)"
_BRACKETED = r"\[[^\[\]\n]{0,40}\d:\d\d[^\[\]\n]{0,15}\]"
# the time before a line of a chat or a log, perhaps with the day
_STAMP = rf"(?:{_BRACKETED}|[\[(]?(?:{_DAY}(?:T|[, \t\u202f]+))?{_TIME}[\])]?)"
DAY_ALONE = re.compile(rf"{_DAY} ?[(（]?[^\W\d_]{{0,9}}[)）]?")
"""The line above the messages of a day."""

# "[10:03] Ann: ", "10:03 - Ann: ", "10:03 <ann> ", "10:03<tab>Ann<tab>"
_TIMED = re.compile(
    rf"\u200e?{_STAMP}(?:\t(?P<tabbed>[^\t]{{1,40}})\t|[ \t]*(?:[-–][ \t]*)?"
    r"(?:<[ ~&@%+]?(?P<nick>[^<>\s]{1,30})>|(?P<name>[^\s:：<>\[\]#=*-][^:：<>\[\]\t]{0,40})[:：])(?:\s+|\Z))"
)
_MARKED = re.compile(
    r"[○◯](?P<name>[^\s○◯。、]{1,30})\u3000+(?=\S)"
)  # "○議長（田中君）　", of minutes
# "14:20 えりか 明日は", of a chat; in a programme, nobody's name comes back
_SPACED = re.compile(rf"{_STAMP} (?P<name>[^\s\d:：]{{1,20}}) (?=\S)")
_WORD = r"(?:[^\W\d_a-z][\w.'’-]{0,20}|de|da|van|von|der|al)"
_NAMED = re.compile(
    rf"(?:\*\*)?(?P<name>{_WORD}(?: (?:{_WORD}|\d{{1,2}})){{0,3}}|[々一-鿿ァ-ヺー]{{1,10}}[A-Z\d]?)"
    r"(?: ?[(（\[][^()（）]{1,30}[\])）])?(?::\*\*|\*\*:|[:：])(?: +|(?<=：))(?=\S)"
)
# "Ann Lee  0:04", "Speaker 1 (00:00:02):", "[10:03] Lee, Ann"
_ALONE = re.compile(
    rf"(?:[^\W\d_][^\d:：。.!?]{{0,30}}\d{{0,2}}[ \t]+{_STAMP}"
    rf"|{_BRACKETED}[ \t]*[^\W\d_][^:：。!?]{{0,60}})[:：]?"
)
# "On 6 May 2024 at 9:15, Ann Lee <ann@example.org> wrote:", above a quotation
_WROTE = re.compile(r"(?=.*(?:\d:\d\d|\d{4}|@))[^>]{7,200}(?:>[^>]{0,20})?[:：]")
# the same above a message that is not marked as a quotation
_WROTE_BELOW = re.compile(
    r"(?:On|Am|Le|El|Il|Em|Op|Den|W) .{0,60}\d[:.h]\d\d.{0,120}"
    r"\b(?:wrote|schrieb|écrit|escribió|scritto|escreveu|schreef|skrev|napisał)\b.{0,80}[:：]"
)
# what stands before a colon and is nobody's name
_NO_NAMES = words(
    "note notes warning caution danger important tip hint info example examples remark remarks"
    " todo fixme see step q a question answer pros cons input output usage returns return raises"
    " yields args arguments parameters default type name date time place from to cc subject sent"
    " address phone email e-mail tel fax birth occupation status version author authors license"
    " title description summary abstract keywords source url figure fig table chapter section part"
    " appendix price total result results problem solution cause action requirements location"
    " venue agenda attendees present participants text comment copyright format created goals"
    " prerequisites conclusion pro con remember nota aviso dica 参照 詳細"
    " 注 注意 備考 例 参考 警告 質問 回答 問 答 日時"
    " 日付 場所 会場 時間 期間 期日 出席者 欠席者 参加者 議題 議事 内容 件名 目的 対象 氏名 名前"
    " 住所 電話 電話番号 連絡先 差出人 宛先 送信日時 費用 料金 金額 合計 定員 方法 結果 原因 対策"
    " 理由 概要 条件 図 表 保存日時 資料 配布資料 提出 期限 締切 担当"
)


_STAMPED = re.compile(_STAMP)
_LIKE_SPEECH = re.compile(
    r"[.?!…。．？！][\"'”’)）」]*\Z|.{60}"
)  # a sentence, or a line that is wrapped
_FORMS = (_TIMED, _MARKED, _NAMED, _SPACED, _STAMPED)
_Labels = dict[int, re.Match[str]]
"""The beginnings of lines, by the numbers of these."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What someone says or writes, from a line on.

    Args:
        label: What says who speaks, and perhaps when.
        lines: The lines that the label takes up; 0 if words follow it on its line.
        lasts: Whether the paragraphs below belong to it as well.
        quotes: Whether it introduces the quotation below it.
    """

    label: str
    lines: int = 0
    lasts: bool = True
    quotes: bool = False


def shown_label(label: str) -> str:
    """Return a label as it stands before each sentence of its turn.

    Args:
        label: The label as in the document.
    """
    shown = on_one_line(label.replace("**", "").replace("\u200e", "")).strip()
    if not shown:
        return ""
    if shown.endswith(">"):
        return f"{shown} "
    if shown[0] in "○◯" or shown.endswith("："):
        return f"{shown.rstrip('：')}："
    return f"{shown.rstrip(':')}: "


def begins_with_name(text: str) -> bool:
    """Return whether a text begins with the name of a speaker before a colon."""
    label = _NAMED.match(text)
    return label is not None and _is_name(label)


def find_turns(
    lines: Lines, kept_whole: Set[int] = frozenset(), is_cut_out: bool = False
) -> dict[int, Turn]:
    """Find the lines of a text on which turns of a conversation begin, by their numbers.

    A name before a colon counts if there are two of them, as in an interview, or the text begins with it; if
    it is no word for something else ("Note:"); and if no turn has a clearer mark. Paragraphs below a line
    belong to its turn if a speaker comes back, or the text begins with the first of several turns.

    Args:
        lines: The lines of the text.
        kept_whole: The numbers of lines in code and tables.
        is_cut_out: Whether the text is a part of another, with its context: if it begins with a turn, this
            one belongs to a conversation, and goes on in the paragraphs below.
    """
    turns_alone = _turns_alone(lines, kept_whole)
    labels = _labels_by_form(lines, kept_whole | turns_alone.keys())
    first = next((line.number for line in lines if line.text), 0)
    speakers = labels[_TIMED] | labels[_MARKED]
    if _comes_back(labels[_SPACED]):
        speakers |= labels[_SPACED]
    unspoken = labels[_SPACED] | labels[_STAMPED]
    if not speakers and not turns_alone:
        speakers = _names_of_speakers(labels[_NAMED], first)
        unspoken = labels[_NAMED]
    if not speakers:
        return turns_alone
    is_transcript = first in speakers and (is_cut_out or len(speakers) > 1)
    lasts = is_transcript or _comes_back(speakers)
    # what nobody says, such as "10:05 * ann left" or "Note: ", ends a turn
    ends = dict.fromkeys(unspoken, Turn("", lasts=False))
    return ends | _turns_of(speakers, lasts) | turns_alone


def _turns_alone(lines: Lines, kept_whole: Set[int]) -> dict[int, Turn]:
    """Return the turns whose labels take up whole lines, by the numbers of these."""
    turns = {}
    for place, line in enumerate(lines):
        if line.text and line.number not in kept_whole:
            turn = _label_alone(lines, place)
            if turn:
                turns[line.number] = turn
    return turns


def _labels_by_form(lines: Lines, left_out: Set[int]) -> dict[re.Pattern[str], _Labels]:
    """Return what may be the label of a turn at the beginning of a line, by the form that it has."""
    labels: dict[re.Pattern[str], _Labels] = {form: {} for form in _FORMS}
    for line in lines:
        if line.text and line.number not in left_out:
            label = next(filter(None, (form.match(line.text) for form in _FORMS)), None)
            if label:
                labels[label.re][line.number] = label
    return labels


def _turns_of(labels: _Labels, lasts: bool) -> dict[int, Turn]:
    """Return the turns that begin with labels; one with a bracketed time always lasts."""
    return {
        number: Turn(label[0], lasts=lasts or label[0].startswith("["))
        for number, label in labels.items()
    }


def _names_of_speakers(labels: _Labels, first: int) -> _Labels:
    """Return the labels that are names before sentences; none if others are as frequent, as in a form, or
    there is only one, and it is not on the first line.
    """
    names = {number: label for number, label in labels.items() if _is_name(label)}
    are_several = len(set(map(_speaker, names.values()))) > 1
    speeches = [label for label in names.values() if _LIKE_SPEECH.search(label.string, label.end())]
    if not are_several and first not in names:
        return {}
    if 2 * len(names) <= len(labels) or 2 * len(speeches) <= len(names):
        return {}
    return names


def _is_name(label: re.Match[str]) -> bool:
    return _NO_NAMES.isdisjoint(label["name"].lower().split())


def _speaker(label: re.Match[str]) -> str:
    return label[label.lastgroup or 0]


def _comes_back(labels: _Labels) -> bool:
    """Return whether somebody speaks again, after somebody else."""
    speakers = [
        speaker for speaker, _ in groupby(_speaker(labels[number]) for number in sorted(labels))
    ]
    return len({*speakers}) < len(speakers)


def _label_alone(lines: Lines, place: int) -> Turn | None:
    """Return the turn whose label takes up a whole line, or two above a quotation."""
    if place + 1 == len(lines):
        return None
    text = lines[place].text
    below = lines[place + 1].text
    # one of a list of such lines says nothing
    is_name_alone = _ALONE.fullmatch(text) and not _ALONE.fullmatch(below)
    if is_name_alone or _TIMED.fullmatch(text):
        return Turn(text, 1)
    for label, last in ((text, place), (f"{text} {below}", place + 1)):
        if _WROTE.fullmatch(label) and _is_above_quotation(lines, last):
            return Turn(label, last - place + 1, quotes=True)
    return Turn(text, 1) if _WROTE_BELOW.fullmatch(text) else None


def _is_above_quotation(lines: Lines, place: int) -> bool:
    """Return whether a quotation begins below a line, directly or after a blank one."""
    below = next((line for line in lines[place + 1 : place + 3] if line.text), None)
    return below is not None and below.depth > lines[place].depth
