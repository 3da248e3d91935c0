"""The numbers in a text: their values, units, and the names that they are a part of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

from llama_pack_densex.text.language import LATIN
from llama_pack_densex.text.tokens import ERAS, MONTHS, STOP_WORDS

MONTH = f"(?:{'|'.join(MONTHS)})"
_FIGURES = r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d{1,2}\b)?"
NUMERAL = "[〇一二三四五六七八九十百千万億兆]"
_COUNTERS = (
    "年月日時分秒人名歳回位番勝敗戦階度倍円頭枚本件種個社校隻冊章条巻点票席部棟層町村次つかカヶ"
)
# 六本木, 十日町 and 五十嵐 are names and count nothing.
COUNTED = rf"{NUMERAL}+[{_COUNTERS}号](?![木市町])"
_LONG = rf"{NUMERAL}{{2,}}(?![{NUMERAL[1:-1]}嵐川里屋鈴石路])"
NUMBER = (
    rf"(?:{'|'.join(ERAS)})?(?:(?:{_FIGURES}[百千万億兆]*)+|(?={COUNTED}|{_LONG}){NUMERAL}+)"
    r"(?:[ -](?:dozen|hundred|thousand|million|billion|trillion)\b|[kK]\b)*"
)


@dataclass(frozen=True)
class Number:
    """A number in a text.

    Args:
        values: The values that it may have: "3.5 million" may stand for 3,500,000 or 3.5.
        unit: Its unit, if that is listed; THING if another noun follows; else "".
        shown: The number as written.
        start: Its position in the text.
        after: The word that follows it, or the next two characters in a script without spaces.
        is_year: Whether it may be a year, by its size.
        name: The name that it is a part of, such as "37signals" or "Boeing 747"; else "".
        key: The name without the number, or the month that the number is a day of; else "".
        is_glued: Whether it is written together with the name, so that it is no number by itself.
        whole: The value with its power word, such as 3,500,000 for "3.5 million"; None without such a word.
    """

    values: frozenset[float]
    unit: str
    shown: str
    start: int
    after: str
    is_year: bool
    name: str = ""
    key: str = ""
    is_glued: bool = False
    whole: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is certainly a number, unlike "one" (a pronoun) and 一 (a part of many words)."""
        return self.values != {1.0} or self.shown[0].isdecimal()

    @property
    def counts(self) -> str:
        """The unit for comparisons: 年 for a year in any notation, "" for another noun than a unit."""
        if self.is_year and self.unit in ("", "年"):
            return "年"
        return self.unit.replace(THING, "")


def read_numbers(text: str, words: Sequence[re.Match[str]]) -> list[Number]:
    """Read the numbers of a text in their order.

    Args:
        text: A text in NFKC.
        words: The matches of its words and numbers (see `texts.Text`); those of numbers have the last group
            "number".
    """
    matches = [word for word in words if word.lastgroup == "number"]
    if not _NUMBER_WORDS.isdisjoint(word[0].lower() for word in words):
        matches += _SPELLED.finditer(text)
    return [_read(text, match) for match in sorted(matches, key=re.Match.start)]


def later_dates(text: str, numbers: Sequence[Number]) -> Iterator[float]:
    """Yield the years and days that "the next year" or "ten years later" refer to.

    They are counted from the last year or day before the phrase.
    """
    for later in _LATER.finditer(text):
        is_date = _is_day if later["day"] else _is_year
        earlier = [number.values for number in numbers if number.start < later.start()]
        dates = [*filter(is_date, chain.from_iterable(earlier))]
        if dates:
            yield dates[-1] + (_value(later["years"] or "") or 1)


def power_of(word: str) -> float:
    """Return the value of a power word, such as 1,000,000 for "million"."""
    return _value(word.lower().removesuffix("s"))


def is_unit(text: str) -> bool:
    """Return whether a text is the name of a unit, and nothing else."""
    return _UNIT.fullmatch(text) is not None


def _read(text: str, match: re.Match[str]) -> Number:
    start, end = match.span()
    values = _values_of(text, match)
    is_year = "," not in match[0] and any(map(_is_year, values))
    number = Number(
        values=values,
        unit=_unit_of(text, start, end, is_year),
        shown=match[0],
        start=start,
        after="".join(_AFTER.findall(text[end : end + 20])[:1]),
        is_year=is_year,
        whole=_value(match[0]) if _ROUGH.fullmatch(match[0]) else None,
    )
    if number.unit in _NO_UNITS:
        return _with_name(number, text, end)
    return number


def _values_of(text: str, match: re.Match[str]) -> frozenset[float]:
    shown = match[0]
    values = {_value(shown)}
    rough = _ROUGH.fullmatch(shown)
    if rough:
        values.add(_value(rough[1]))
    first = _RANGE.search(text, max(0, match.start() - 6), match.start())
    if first and shown.isdecimal() and len(shown) < len(first[1]):  # 1754-63
        values.add(float(first[1][: -len(shown)] + shown))
    return frozenset(values)


def _with_name(number: Number, text: str, end: int) -> Number:
    """Add to a number the name that it is a part of, or the month that it is a day of, if there is either."""
    month = _MONTH_BEHIND.match(text, end)
    if month:
        return replace(number, key=month[1].casefold())
    tail = _TAIL.match(text, end)
    suffix = tail[0] if tail else ""
    is_glued_behind = len(suffix) > _LONGEST_UNIT
    prefix = _prefix(text, number.start, end, is_glued_behind)
    if not prefix and not suffix:
        return number
    is_month = _MONTH.match(prefix) is not None
    is_glued_before = prefix.isascii() and prefix[-1:].strip() != ""
    return replace(
        number,
        name="" if is_month else f"{prefix}{number.shown}{suffix}",
        key=f"{prefix.rstrip(' -')} {suffix.lstrip('-')}".strip().casefold(),
        is_glued=not is_month and (is_glued_before or is_glued_behind),
    )


def _prefix(text: str, start: int, end: int, is_glued_behind: bool) -> str:
    """Return the word before a number that belongs to the same name, with the gap; "" if there is none."""
    head = _HEAD.search(text, max(0, start - _LONGEST_NAME), start)
    if head is None or text[end : end + 1] in (*_COUNTERS, "局", "台"):
        return ""
    if head["gap"] == " ":
        # as in "New 37signals": the first word of a sentence is capitalised in any case
        start = head.start()
        is_opening = is_glued_behind and _SENTENCE_START.search(
            text, max(0, start - _MOST_MARKS), start
        )
        if is_opening or head["word"].lower() in STOP_WORDS:
            return ""
    return head["word"] + head["gap"]


def _unit_of(text: str, start: int, end: int, is_year: bool) -> str:
    unit = _UNIT_BEFORE.search(text, max(0, start - 12), start) or _UNIT.match(text, end)
    if unit and unit.lastgroup and not (is_year and unit.lastgroup == "date"):
        return unit.lastgroup
    thing = _THING.match(text, end)
    if is_year or thing is None or thing[1] in STOP_WORDS:
        return ""
    return THING


def _is_year(value: float) -> bool:
    return 1000 <= value < 2200


def _is_day(value: float) -> bool:
    return value < 31


@lru_cache(maxsize=1 << 12)
def _value(written: str) -> float:
    total = section = current = 0.0
    for part in _PART.findall(written.lower().replace("k", " thousand")):
        if part[0].isdecimal():
            current = float(part.replace(",", ""))
        elif part in DIGITS:
            current = DIGITS[part] + (current if part.isascii() else 10 * current)
        elif part in _TIMES:
            section += (current or 1) * _TIMES[part]
            current = 0
        elif part in _POWERS:
            total += (section + current or 1) * _POWERS[part]
            section = current = 0
        else:
            total += ERAS.get(part, 0)
    return total + section + current + 0.5 * written.endswith(" half")


THING = "thing"
_NO_UNITS = ("", THING, "date")
_LONGEST_UNIT = 3  # letters: 600W and 40fps are numbers with units that are not listed
_LONGEST_NAME = 60  # characters before a number
_ROWS = (
    "〇 一 二 三 四 五 六 七 八 九",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    " seventeen eighteen nineteen twenty",
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth"
    " fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth",
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
DIGITS = {word: float(value) for row in _ROWS for value, word in enumerate(row.split())}
DIGITS |= {word: 10.0 * i for i, word in enumerate(_TENS.split(), 2)}
_TIMES = {
    "十": 10,
    "百": 100,
    "千": 1000,
    "dozen": 12,
    "hundred": 100,
    "hundredth": 100,
}
_POWERS = {
    "万": 1e4,
    "億": 1e8,
    "兆": 1e12,
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
}
_NUMBER_WORDS = frozenset(word for word in (*DIGITS, *_TIMES, *_POWERS) if word.isascii())
_PART = re.compile(rf"{_FIGURES}|[a-z]+|{'|'.join(ERAS)}|.")
_SMALL = (
    rf"(?:(?:{_TENS.replace(' ', '|')})[ -])?(?:{'|'.join(sorted(_NUMBER_WORDS, reverse=True))})"
)
_SCALE = "(?:[ -](?:dozen|hundred|hundredth|thousand|million|billion|trillion))+"
# "one hundred and two hundred" are two numbers, and 7-Eleven has none; "5 million" is in figures
_SPELLED = re.compile(
    rf"(?<!\d-)\b(?!(?<=\d )(?:dozen|hundred|thousand|million|billion|trillion))"
    rf"{_SMALL}(?:{_SCALE}(?:(?: and (?!\w+ hundred)| ){_SMALL})?)*(?: and a half)?\b",
    re.IGNORECASE,
)
_LATER = re.compile(
    r"(?P<day>翌[日朝]|(?:next|following) (?:day|morning|evening))|翌年|(?:next|following) year"
    r"|(?P<years>[a-z]+|[\d〇一二三四五六七八九十]+)(?: years? |年)(?:later|after|後)",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(\d+)[-\u2010-\u2015/~\u301c]\Z")
_ROUGH = re.compile(rf"({_FIGURES})\D+")
_MONTH = re.compile(MONTH)
_MONTH_BEHIND = re.compile(rf"(?:st|nd|rd|th)? (?:of )?({MONTH})")
_POWER = "(?:[百千]?[万億兆]|千|(?:thousand|million|billion|trillion)s?)"
# A power word for all numbers of a table: "(百万円)", "in million dollars".
POWER_ALONE = re.compile(
    rf"(?<![\d百千〇一二三四五六七八九十])(?<!\d[ -]){_POWER}(?=\W|円|ドル|人|名|件|台|\Z)",
    re.IGNORECASE,
)
# What follows a number that shares the next one's power word, or has a power of ten: "3 to 4 million",
# "3 × 10^6".
POWER_BEHIND = re.compile(rf"\D{{0,6}}[\d,.]+[ -]?{_POWER}| ?[×x] ?10", re.IGNORECASE)
# The word before a number, or before those that it is listed with: "Voyager 1 and 2", "October 17, 1973".
_HEAD = re.compile(
    rf"(?P<word>[{LATIN}]+(?=\Z)|[A-Z][{LATIN}]*|[ァ-ヺー]{{2,}})(?P<gap>[ -]?)"
    r"(?:\d+(?:st|nd|rd|th)?(?:,? and |, | or | to ))*\Z"
)
_MOST_MARKS = 8  # characters before a word that are searched for the end of the previous sentence
_SENTENCE_START = re.compile(r"(?:\A|[.!?:|\n])[\s*_|\"“'(]*\Z")
_TAIL = re.compile(rf"(?!(?:st|nd|rd|th|s|am|pm|x)\b|{MONTH})(?:-(?=[A-Z]))?(?P<word>[{LATIN}]+)")
_AFTER = re.compile(r"\A[ -]?(?:[A-Za-z]+|\w{1,2})")
_THING = re.compile(rf" (?!{_SMALL}\b)([a-z]{{3,}})")
_FORMS = rf"""
percent %|percent|per cent|パーセント
decade (?<=0)s|年代
day days?
kcal kcal|キロカロリー
ml ml|mL|millilit(?:er|re)s?|ミリリットル
mg mg|milligram(?:me)?s?|ミリグラム
mm mm|millimet(?:er|re)s?|ミリメートル
cm cm|centimet(?:er|re)s?|センチ(?:メートル)?
kg kg|kilogram(?:me)?s?|キログラム
km km|kilomet(?:er|re)s?|キロメートル
m m|met(?:er|re)s?|メートル
g g|gram(?:me)?s?|グラム
litre lit(?:er|re)s?|リットル
mile miles?|マイル
foot f(?:oo|ee)t|ft|フィート
tonne tonn?es?|tons?|t|トン
degree °|degrees?|度
yen yen|円
dollar dollars?|ドル
pound pounds?|lbs?|ポンド
euro euros?|ユーロ
hour hours?|hrs?|h|時間
minute minutes?|mins?|分間?
second seconds?|secs?|秒間?
week weeks?|wks?|週間?
year years?|yrs?
month months?|[かカヶヵケ]月
century centur(?:y|ies)|世紀
date (?:of )?{MONTH}
人 人|名
歳 歳|才
{"".join(f"{counter} {counter}" + chr(10) for counter in "年月日時回位番勝敗戦馬着倍階台")}"""
_UNIT = re.compile(
    rf"(?:st|nd|rd|th)?[ -]?(?:square |cubic |平方|立方|(?!{_SMALL}\b|per )[a-z]{{3,}} )?(?:"
    + "|".join(
        f"(?P<{row.split()[0]}>{row.split(maxsplit=1)[1]})" for row in _FORMS.strip().splitlines()
    )
    + ")(?![a-z])"
)
_UNIT_BEFORE = re.compile(
    r"(?:(?P<dollar>\$)|(?P<pound>£)|(?P<euro>€)|(?P<yen>¥)"
    r"|\b(?P<money>(?:AUD|BRL|CAD|CHF|CNY|CZK|DKK|HUF|INR|KRW|NOK|PLN|SEK) ?)"
    rf"|(?P<date>{MONTH} ))\Z"
)
