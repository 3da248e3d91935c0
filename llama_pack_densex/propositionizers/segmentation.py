"""Sentences with exact spans, for English and Japanese first and for other scripts sensibly.

Written here because no light, maintained, offline library is right on both: on 18 probes of the rules in
tests/propositionizers/test_segmentation.py pysbd 0.3.4 and sentencex 1.0.32 got 13, ja_sentence_segmenter
0.3.0 11 (it is for Japanese only) and syntok 1.4.4 9; none keeps tables and code whole.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from llama_pack_densex.propositionizers.blocks import CJK, find_regions


@dataclass(frozen=True)
class Segment:
    """A sentence, a heading or a block that stays whole (code, a table), as it stands in the text.

    Args:
        start: Where it begins, in characters.
        end: Where it ends; `text[start:end]` is the segment without surrounding white space.
        kind: "sentence" (also a list item or a line that no full stop ends), "heading" or "block".
    """

    start: int
    end: int
    kind: Literal["sentence", "heading", "block"]


def segment(text: str) -> list[Segment]:
    """Split a text into sentences, headings and blocks.

    Args:
        text: Any text, plain, Markdown or with HTML tables. The language is not asked for: the rules go by script.

    Returns:
        The segments in order. They never overlap and cover every character that is not white space. A line
        without letters (a rule, an emoji) is a segment too. The time is linear in the length of the text.
    """
    segments: list[Segment] = []
    for region in find_regions(text):
        if region.kind == "text":
            run = text[region.start : region.end]
            segments += (Segment(region.start + a, region.start + b, "sentence") for a, b in _split_run(run))
        else:
            segments.append(Segment(region.start, region.end, region.kind))
    return segments


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the (start, end) of every segment of a text."""
    return [(found.start, found.end) for found in segment(text)]


def split_sentences(text: str) -> list[str]:
    """Return the segments of a text, word for word."""
    return [text[start:end] for start, end in sentence_spans(text)]


_SURE = "。！？｡؟۔।॥։።፧፨။។៕᠃⁇⁈⁉‼"
_DOTS = ".…‥・･"
_TERMINATOR = re.compile(
    rf"(?:[{_SURE}．.!?…‥]|[・･]{{2,}})+"
    # Thai and Lao end a sentence with a space, which ends a phrase as well.
    r"|(?<=[\u0e01-\u0e2e\u0e30-\u0e45\u0e47-\u0e4e\u0e81-\u0edf])[ \t]+(?=[\u0e01-\u0e45\u0e81-\u0edf])"
)
_CLOSING = re.compile(
    r"(?:[\"'”’»›)\]}」』｣）］】〉》〕*_\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]|“(?!\S)|\[\w{0,10} ?\d{1,3}\]"
    r"|[(（][笑泣汗怒爆][)）]| ?[\U0001f1e6-\U0001faff\u2600-\u27bf]|[\ufe0f\u200d]|[♪♡♥☆★])*"
)
_GAP = re.compile(r"\s*")
_OPENING = re.compile(r"[\"'“‘«‹„(\[{「『｢（［【〈《〔<*_¿¡#\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]*")
_WORD = re.compile(r"[^\W\d_]{1,30}")
_LETTER = re.compile(r"[^\W_]")
_MARKER = re.compile(
    # "1", "(a)", "- iv", and what captions begin with: "Table 1", "図１"
    r"(?:[-*+•‣●■・>–—]\s*)*[(（]?"
    r"(?:(?:[^\W\d_]{1,12} ?)?[0-9０-９]{1,3}(?:\.[0-9]{1,3}){0,4}|[^\W\d_]|[ivx]{1,5}|[IVX]{1,5})[)）]?\s*"
)
# What cannot begin a Japanese or Chinese sentence: after it, "！" or "。" was a part of a name ("ラブライブ！を").
_NEVER_FIRST = re.compile(r"[、，,：:；;・ー々～〜]|を|という|といった|との|への|での")
# What goes on after a quotation that ends in a full stop: a particle, but not a word that begins like one.
_AFTER_QUOTATION = re.compile(
    r"[、，,：:；;・ー～〜…。]|と(?!ても|ころ|にかく|もかく|もに|ある|うとう|つぜん|きに|きどき)|って|など|なんて|を|だ(?!が|け|か)|です"
    r"|で(?!も|き)|が(?!ん)|は(?!い|っ|じめ)|に(?!っ|わ|こ|もかか)|も(?!ちろん|う|し|っと|とも|の)|の(?!ち|ん|ど)"
    r"|へ(?!え)|や(?!っ|が|は)|から|まで|より|的|地|了"
)


def _split_run(run: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the sentences of a stretch of prose: lines that a wrap cut, and nothing else."""
    if not _TERMINATOR.search(run):
        yield 0, len(run)
        return
    brackets = _Brackets(run)
    ignores_case = run.islower()
    begin = searched = 0
    last: tuple[int, int] | None = None
    for stop in _TERMINATOR.finditer(run):
        around = run[max(stop.start() - 1, 0) : stop.end() + 1]
        if stop[0] == "." and around[-1].isalnum() and around.isascii():
            continue  # the many of 3.14, 2.0.1 and www.example.org, without further ado
        if stop[0].isspace():
            end = stop.start()
        else:
            end = brackets.first_quotation(stop.end(), _end_of(_CLOSING, run, stop.end()))
        if stop.start() < begin or brackets.encloses(end):
            continue
        # A sentence has a letter or a digit. What was searched once is not searched again, to stay linear.
        if not _LETTER.search(run, max(begin, searched), stop.start()):
            searched = stop.start()
            continue
        if _Stop(run, begin, stop.start(), stop.end(), end, brackets).ends_sentence(ignores_case):
            if last:
                yield last
            last, begin = (begin, end), _end_of(_GAP, run, end)
            searched = begin
    if last and (begin == len(run) or not _LETTER.search(run, begin)):
        yield last[0], len(run)  # what has no letter of its own, as an emoji, belongs to the sentence before
    else:
        if last:
            yield last
        yield begin, len(run)


def _end_of(pattern: re.Pattern[str], run: str, start: int) -> int:
    found = pattern.match(run, start)
    return found.end() if found else start


_PAIRS = {"(": ")", "（": ")", "[": "]", "［": "]", "「": "」", "｢": "」", "『": "』", "【": "】", "〔": "〕"}
_PAIRS |= {"〈": "〉", "《": "》", "“": "”", "«": "»", '"': '"'}
_CLOSERS = {"）": ")", "］": "]", "｣": "」"} | {closer: closer for closer in _PAIRS.values()}
_BRACKET = re.compile("[" + re.escape("".join({*_PAIRS, *_CLOSERS})) + "]")


class _Brackets:
    """The pairs of brackets and quotation marks in a run; one that is never closed does not count."""

    # In characters. A longer quotation is a text of its own, or a stray bracket found a partner far away.
    longest = 400

    def __init__(self, run: str) -> None:
        self.opening: dict[int, int] = {}
        stack: list[tuple[str, int]] = []
        pending: Counter[str] = Counter()
        for found in _BRACKET.finditer(run):
            mark, position = found[0], found.start()
            closes = _CLOSERS.get(mark)
            if mark in _PAIRS and not (mark == '"' and _closes(run, position, is_open=pending['"'] > 0)):
                stack.append((_PAIRS[mark], position))
                pending[_PAIRS[mark]] += 1
            elif closes and pending[closes]:
                expected, opened = "", 0
                while expected != closes:
                    expected, opened = stack.pop()
                    pending[expected] -= 1
                self.opening[position] = opened
        self._openings = sorted(opened for opened in self.opening.values() if run[opened] == '"')
        self._outer: list[tuple[int, int]] = []
        for opened, closed in sorted((a, b) for b, a in self.opening.items() if b - a <= self.longest):
            if not self._outer or opened > self._outer[-1][1]:
                self._outer.append((opened, closed))

    def encloses(self, position: int) -> bool:
        i = bisect_left(self._outer, (position, 0)) - 1
        return i >= 0 and position <= self._outer[i][1]

    def first_quotation(self, start: int, end: int) -> int:
        """Return where straight quotation marks open first from `start` on, or `end` if that comes first."""
        i = bisect_left(self._openings, start)
        return min(end, self._openings[i]) if i < len(self._openings) else end


def _closes(run: str, position: int, *, is_open: bool) -> bool:
    """Say whether the straight quotation mark at a position closes one."""
    before, after = run[position - 1 : position], run[position + 1 : position + 2]
    opens = (not before or before.isspace() or before in _PAIRS) and bool(after) and not after.isspace()
    if opens != (not after or after.isspace() or after in ".,;:!?)]。、）」"):
        return not opens
    return is_open


@dataclass(frozen=True, slots=True)
class _Stop:
    """A terminator: its own span, and the end that it would give the sentence, after closing marks."""

    run: str
    begin: int
    start: int
    stop: int
    end: int
    brackets: _Brackets

    def ends_sentence(self, ignores_case: bool) -> bool:
        mark = self.run[self.start : self.stop]
        after = _end_of(_GAP, self.run, self.end)
        first = _end_of(_OPENING, self.run, after)
        letter = self.run[first : first + 1]
        if not letter:
            return after == len(self.run)
        if mark.isspace():
            return self.start - self.begin >= 40
        if self.run[self.start - 1 : self.start] in ("[", "(", "［", "（"):
            return False  # "[...]" is an omission, "(?)" a doubt
        is_apart, is_cjk = after > self.end, bool(CJK.match(letter))
        opener = self.brackets.opening.get(self.end - 1)
        if opener is not None and opener > self.start:
            opener = None  # "。（笑）": what was opened after the terminator says nothing about it
        # "（かもしれない。）" or "(who?)" in the middle of a sentence does not end it.
        if opener is not None and self.run[self.end - 1] in ")）" and opener > self.begin and mark != ".":
            return is_apart and is_cjk
        if not mark.strip(_DOTS) and (len(mark) > 1 or mark in "…‥"):
            return letter.isupper() and (is_apart or mark[0] in "…‥" or len(mark) > 2)
        if mark in ".．" and not is_apart:
            return self._ends_glued(letter, is_cjk)
        if is_cjk and (not is_apart or opener is not None) and mark != ".":
            going_on = _AFTER_QUOTATION if opener is not None else _NEVER_FIRST
            return not going_on.match(self.run, after) and not self._is_name_with_mark(mark)
        if any(character in _SURE for character in mark) or mark == "．":
            return not _NEVER_FIRST.match(self.run, after)
        if not is_apart or not self._can_begin(first, letter, ignores_case):
            return False
        if mark == ".":
            return not self._is_marker() and not self._abbreviates(first)
        return not self._is_name_with_mark(mark) or self._is_starter(first)

    def _ends_glued(self, letter: str, is_cjk: bool) -> bool:
        """Judge a full stop without a space after it, as in "です.次" and "３．５", "図．１", "J.リーグ"."""
        before, is_full_width = self.run[self.start - 1 : self.start], self.run[self.start] == "．"
        if "ぁ" <= before <= "ん":
            return True
        if letter.isdigit() or self._is_marker():
            return False
        after_cjk = bool(CJK.match(before))
        if is_cjk:
            return after_cjk or is_full_width
        return is_full_width and (after_cjk or not letter.isalnum())

    def _can_begin(self, first: int, letter: str, ignores_case: bool) -> bool:
        if letter.islower():
            # iPhone, mRNA, eBay; and texts that know no capitals, except after a quotation ("Is it?" he asked).
            return bool(re.match(r"[a-z]{1,2}[A-Z]", self.run[first : first + 3])) or (
                ignores_case and self.end == self.stop
            )
        return letter.isalnum() or letter not in ",;:)]}/&%-–—.!?…"

    def _is_marker(self) -> bool:
        return bool(_MARKER.fullmatch(self.run, self.begin, self.start))

    def _is_name_with_mark(self, mark: str) -> bool:
        return mark in "!！" and self.run[max(self.begin, self.start - 8) : self.start].lower().endswith(
            _NAMES_WITH_MARK
        )

    def _word_at(self, position: int) -> str:
        found = _WORD.match(self.run, position)
        return found[0] if found else ""

    def _is_starter(self, first: int) -> bool:
        return self._word_at(first) in _STARTERS

    def _abbreviates(self, first: int) -> bool:
        """Say whether the full stop is an abbreviation's and the sentence goes on after it."""
        words = self.run[max(self.begin, self.start - 60) : self.start].split()
        if not words or self.run[self.start - 1].isspace():
            return False
        word = re.split(r"[\"'“‘«(\[（「『—–/,．。、\u3040-\u30ff\u3400-\u9fff-]", words[-1])[-1]
        previous = words[-2] if len(words) > 1 else ""
        lower, following = word.lower(), self._word_at(first)
        if word in _TITLES or lower in _NEVER_LAST:
            return True
        if lower in _BEFORE_NUMBER:
            return bool(_NUMBER.match(self.run, first))
        if lower in ("a.m", "p.m"):
            return following in _AFTER_TIME
        if word.isdigit():
            return len(word) < 3 and (following in _MONTHS or previous.endswith((":", ";")))
        if len(word) == 1 and word.isalpha() and not CJK.search(words[-1]):
            if not word.isupper():
                return word in "vcbdrpnmf" or word.lower() == word.upper()
            if previous.lower().strip(",;") in _LETTERED:
                return False
            if following.isupper() and self.run[first + 1 : first + 2] == ".":
                return True  # J. A. Hobson
            joins = word != "I" and previous.lower() in ("by", "and", "with", "of", "from")
            return joins or not previous or previous[-1] in ".,;&" or following not in _STARTERS
        if lower in _MAYBE_LAST or _ACRONYM.fullmatch(word) or _CONSONANTS.fullmatch(word):
            return following not in _STARTERS
        return False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NAMES_WITH_MARK = ("yahoo", "jeopardy", "joomla", "yum", "ヤフー")
_TITLES = _words(
    "Mr Mrs Ms Mx Dr Drs Prof Rev Gen Col Lt Sgt Capt Cpl Cmdr Maj Adm Gov Sen Rep Reps Pres Hon Messrs Mme Mlle Fr"
    " Supt Insp Sra Dra Ud डॉ प्रो"
)
_NEVER_LAST = _words("e.g i.e eg ie cf viz vs approx ca incl w.r.t p.ej z.b d.h bzw resp u.a vgl т.е т.д г ул им")
_BEFORE_NUMBER = _words(
    "no nos nr n° № num vol vols fig figs p pp pg eq eqs ch chap sec art tab ver fol op cap par ex lib ed"
    " sat sun may mar"
)
_MAYBE_LAST = _words(
    "inc ltd co corp llc plc bros jr sr st ste mt ft ave blvd rd dept univ assn est al eds trans govt intl mfg tel ext"
    " jan feb apr jun jul aug sept sep oct nov dec mon tue tues wed thu thur thurs fri calif fla ariz conn colo"
)
_LETTERED = _words(
    "vitamin plan type hepatitis appendix part section group class grade figure table point step option case phase"
    " exhibit schedule theorem letter line room block category variant version model example question item chapter"
)
_MONTHS = _words("Januar Februar März April Mai Juni Juli August September Oktober November Dezember")
_AFTER_TIME = _words(
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July August"
    " September October November December Eastern Central Mountain Pacific EST EDT CST CDT MST PST PDT ET PT"
    " CT GMT UTC BST CET JST"
)
_STARTERS = _words(
    "The This That These Those He She It We They I You A An In On At But And So However When While After Before If"
    " As For From By With There Here What Why How Who Where Which Its His Her Their Our My Your Although Though"
    " Because Since During Then Thus Therefore Hence Also Another Some Many Most Several All Both Each Every No Not"
    " Once Until Despite Today Yet Or Nor Meanwhile Moreover Furthermore Additionally Instead Later Finally"
    " According Unlike Following Between Among Through Within Without Upon Only Even Such Are Was Were Do Does Did"
    " Can Could Would Should Has Have Had Please Perhaps Maybe Indeed Similarly Nevertheless Nonetheless To Of Let"
    " Unfortunately Currently Now"
)
_NUMBER = re.compile(r"[0-9０-９]|[IVXLC]{2,}\b|[VX]\b|[A-Z]\d")
_ACRONYM = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_CONSONANTS = re.compile(r"[BCDFGHJKLMNPQRSTVWXZ][bcdfghjklmnpqrstvwxz]{2,4}")
