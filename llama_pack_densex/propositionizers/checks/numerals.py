"""What the numbers of a text mean, in figures, kanji or words, what they count, and what names they are in. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from llama_pack_densex.text.language import LATIN
from llama_pack_densex.text.tokens import STOP_WORDS

MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_ERAS = {"明治": 1867, "大正": 1911, "昭和": 1925, "平成": 1988, "令和": 2018}
_FIGURES = r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d{1,2}\b)?"
NUMERAL = "[〇一二三四五六七八九十百千万億兆]"
_COUNTERS = "年月日時分秒人名歳回位番勝敗戦階度倍円頭枚本件種個社校隻号冊章条巻点票席部棟層町村次つかカヶ"
# 六本木, 十日町 and 五十嵐 are names and count nothing.
COUNTED = rf"{NUMERAL}+[{_COUNTERS}](?![木市町])"
_LONG = rf"{NUMERAL}{{2,}}(?!{NUMERAL})(?=[{_COUNTERS}世代目間半余台級割歩区市県国都以前後着馬]|[^々〆㐀-䶿一-鿿]|\Z)"
NUMBER = (
    rf"(?:{'|'.join(_ERAS)})?(?:(?:{_FIGURES}[百千万億兆]*)+|(?={COUNTED}|{_LONG}){NUMERAL}+)"
    r"(?:[ -](?:dozen|hundred|thousand|million|billion|trillion)\b|[kK]\b)*"
)


@dataclass(frozen=True)
class Number:
    """A number in a text.

    Args:
        values: What it may mean: 3.5 million is 3.5 as well.
        unit: What it counts, as far as that is known; THING for what is no unit; else "".
        shown: How it is written.
        start: Where it begins.
        after: The word that follows it, or the two characters where words are not parted.
        name: What it is a part of: "37signals", "Boeing 747"; else "".
        key: That without the number, or the month that it follows; else "".
        is_glued: Whether it is nothing but a part of that name.
    """

    values: frozenset[float]
    unit: str
    shown: str
    start: int
    after: str = ""
    name: str = ""
    key: str = ""
    is_glued: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is told from a pronoun (one) and a part of a word (一)."""
        return self.values != {1.0} or self.shown[0].isdecimal()

    @property
    def has_unit(self) -> bool:
        """Whether it counts something that is known."""
        return self.unit not in ("", THING)

    @property
    def is_year(self) -> bool:
        """Whether it may be a year, by its size."""
        return any(map(is_year, self.values))

    @property
    def counts(self) -> str:
        """What it counts: a year is one in any notation."""
        if self.unit in ("", THING, "年") and self.is_year:
            return "年"
        return "" if self.unit == THING else self.unit


def read_numbers(text: str, words: Iterable[re.Match[str]]) -> list[Number]:
    """Read the numbers of a text in their order.

    Args:
        text: A text in NFKC.
        words: Its words and numbers (see `texts.Text`); numbers are of the group "number".
    """
    matches: list[re.Match[str]] = []
    has_number_words = False
    for word in words:
        if word.lastgroup == "number":
            matches.append(word)
        has_number_words = has_number_words or word[0].lower() in NUMBER_WORDS
    if has_number_words:
        spelled_out = _SPELLED.finditer(text)
        matches += (match for match in spelled_out if not _NAME_OF_FIGURE.search(text, 0, match.start()))
    return [_read(text, match) for match in sorted(matches, key=lambda match: match.start())]


def later_dates(text: str, numbers: Iterable[Number]) -> Iterator[float]:
    """The years and days that "the next year" or "ten years later" mean: counted from the last one before that."""
    for later in _LATER.finditer(text):
        is_day = later["day"] is not None
        earlier = (value for number in numbers if number.start < later.start() for value in number.values)
        dates = [value for value in earlier if (value < 31 if is_day else is_year(value))]
        if dates:
            yield dates[-1] + (_value(later["years"] or "") or 1)


def is_year(value: float) -> bool:
    """Whether a number may be a year, by its size."""
    return 1000 <= value < 2200


def is_unit(text: str) -> bool:
    """Whether a text is the name of a unit, and nothing else."""
    return _UNIT.fullmatch(text) is not None


def _read(text: str, match: re.Match[str]) -> Number:
    shown = match[0]
    values = [_value(shown)]
    rough = _ROUGH.fullmatch(shown)
    if rough:
        values.append(_value(rough[1]))
    first = _RANGE.search(text, max(0, match.start() - 6), match.start())
    if first and shown.isdecimal() and len(shown) < len(first[1]):  # 1754-63
        values.append(float(first[1][: -len(shown)] + shown))
    after = _AFTER.match(text, match.end())
    number = Number(
        values=frozenset(values),
        unit=_unit_of(text, match),
        shown=shown,
        start=match.start(),
        after=after[0] if after else "",
    )
    return _with_name(number, text, match.end())


def _unit_of(text: str, match: re.Match[str]) -> str:
    unit = _UNIT.match(text, match.end())
    if unit and unit.lastindex:
        return _UNIT_NAMES[unit.lastindex - 1]
    currency = _CURRENCIES.get(text[match.start() - 1 : match.start()])
    if currency:
        return currency
    before = text[max(0, match.start() - 12) : match.start()]
    if len(match[0]) < 3 and (_DAY.match(text, match.end()) or _DAY_BEHIND.search(before)):
        return "date"
    thing = _THING.match(text, match.end())
    if not thing or thing[1] in STOP_WORDS or thing[1] in NUMBER_WORDS:
        return ""
    unit = _UNIT.match(text, thing.end())
    return _UNIT_NAMES[unit.lastindex - 1] if unit and unit.lastindex else THING


def _with_name(number: Number, text: str, end: int) -> Number:
    """A number with the name that it is in, where it is in one."""
    head = _HEAD.search(text, max(0, number.start - _LONGEST_NAME), number.start)
    if head and not _is_head(head, number, text[end : end + 1]):
        head = None
    tail = None if number.has_unit else _TAIL.match(text, end)
    if not head and not tail:
        return number
    before = head["word"] if head else ""
    behind = tail["word"] if tail else ""
    gap = head["gap"] if head else " "
    is_glued = (gap != " " and not _KATAKANA.match(before)) or len(behind) > _LONGEST_UNIT
    name = f"{before}{gap}{number.shown}{tail[0] if tail else ''}".strip()
    key = f"{before} {behind}".casefold().strip()
    return replace(number, name="" if _MONTH.fullmatch(before) else name, key=key, is_glued=is_glued)


def _is_head(head: re.Match[str], number: Number, following: str) -> bool:
    """Whether the word before a number belongs to the same name, as in "Boeing 747", "K380", "ISO 9001", アポロ13号."""
    word = head["word"]
    if following and following in _COUNTERS.replace("号", "局台"):
        return False
    if head["gap"] == "" and not head["list"]:
        return True
    if not word[0].isupper() or (number.has_unit and number.unit != "date"):
        return False
    return word.lower() not in STOP_WORDS and not (head["gap"] == "-" and number.is_year)


@lru_cache(maxsize=1 << 12)
def _value(written: str) -> float:
    total = 0.0
    section = 0.0
    current = 0.0
    for part in _PART.findall(written.lower().replace("k", " thousand")):
        if part[0].isdecimal():
            current = float(part.replace(",", ""))
        elif part in DIGITS:
            current = DIGITS[part] + (current if part.isascii() else 10 * current)
        elif part == "half":
            current += 0.5
        elif part in _TIMES:
            section += (current or 1) * _TIMES[part]
            current = 0
        elif part in _POWERS:
            total += (section + current or 1) * _POWERS[part]
            section = 0
            current = 0
        else:
            total += _ERAS.get(part, 0)
    return total + section + current


_ROWS = (
    "〇 一 二 三 四 五 六 七 八 九",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    " seventeen eighteen nineteen twenty",
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth"
    " fifteenth sixteenth seventeenth eighteenth nineteenth twentieth",
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
DIGITS = {word: float(value) for row in _ROWS for value, word in enumerate(row.split())}
DIGITS |= {word: 10.0 * i for i, word in enumerate(_TENS.split(), 2)}
_TIMES = {"十": 10, "百": 100, "千": 1000, "dozen": 12, "hundred": 100, "hundredth": 100}
_POWERS = {"万": 1e4, "億": 1e8, "兆": 1e12, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_PART = re.compile(rf"{_FIGURES}|[a-z]+|{'|'.join(_ERAS)}|.")
NUMBER_WORDS = frozenset(word for word in (*DIGITS, *_TIMES, *_POWERS) if word.isascii())
_SMALL = rf"(?:(?:{_TENS.replace(' ', '|')})[ -])?(?:{'|'.join(sorted(NUMBER_WORDS, reverse=True))})"
_SCALE = "(?:[ -](?:dozen|hundred|hundredth|thousand|million|billion|trillion))+"
# "one hundred and two hundred" are two
_SPELLED = re.compile(
    rf"\b{_SMALL}(?:{_SCALE}(?:(?: and (?!\w+ hundred)| ){_SMALL})?)*(?: and a half)?\b", re.IGNORECASE
)
_NAME_OF_FIGURE = re.compile(r"\d-\Z")  # 7-Eleven
_LATER = re.compile(
    r"(?P<day>翌[日朝]|(?:next|following) (?:day|morning|evening))|翌年|(?:next|following) year"
    r"|(?P<years>[a-z]+|[\d〇一二三四五六七八九十]+)(?: years? |年)(?:later|after|後)",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(\d+)[-\u2010-\u2015/~\u301c]\Z")
_ROUGH = re.compile(rf"({_FIGURES})\D+")
_MONTH = re.compile(MONTH)
_LONGEST_NAME = 60  # characters before a number
_KATAKANA = re.compile("[ァ-ヺー]{2,}")
# The word before a number, or before the numbers that it is listed with: "Voyager 1 and 2", "May 4, 1931".
_HEAD = re.compile(
    rf"(?P<word>[{LATIN}]+|{_KATAKANA.pattern})(?P<gap>[ -]?)"
    r"(?P<list>(?:\d+(?:st|nd|rd|th)?(?:,? and |, | or | to ))*)\Z"
)
_TAIL = re.compile(rf"(?!(?:st|nd|rd|th|s|am|pm|x)\b|{MONTH})(?:-(?=[A-Z]))?(?P<word>[{LATIN}]+)")
_LONGEST_UNIT = 3  # letters: 600W and 40fps are numbers with a unit that is not listed
_CURRENCIES = {"$": "dollar", "£": "pound", "€": "euro", "¥": "yen"}
_UNITS = {
    "%": "%|percent|per cent|パーセント", "decade": "(?<=0)s|年代", "day": "days?",
    "kcal": "kcal|キロカロリー", "ml": "ml|mL|millilit(?:er|re)s?|ミリリットル",
    "mg": "mg|milligram(?:me)?s?|ミリグラム",
    "mm": "mm|millimet(?:er|re)s?|ミリメートル", "cm": "cm|centimet(?:er|re)s?|センチ(?:メートル)?",
    "kg": "kg|kilogram(?:me)?s?|キログラム", "km": "km|kilomet(?:er|re)s?|キロメートル",
    "m": "m|met(?:er|re)s?|メートル", "g": "g|gram(?:me)?s?|グラム", "litre": "lit(?:er|re)s?|リットル",
    "mile": "miles?|マイル", "foot": "f(?:oo|ee)t|ft|フィート",
    "tonne": "tonn?es?|tons?|t|トン", "degree": "°|degrees?|度", "yen": "yen|円",
    "dollar": "dollars?|ドル", "pound": "pounds?|lbs?|ポンド", "euro": "euros?|ユーロ", "hour": "hours?|時間",
    "minute": "minutes?|分間?", "second": "seconds?|秒間?", "week": "weeks?|週間?", "year": "years?",
    "month": "months?|[かカヶヵケ]月", "century": "centur(?:y|ies)|世紀", "人": "人|名", "歳": "歳|才",
    **{unit: unit for unit in "年月日時回位番勝敗戦馬着倍階台"},
}  # fmt: skip
_DAY = re.compile(rf"(?:st|nd|rd|th)? (?:of )?{MONTH}")
_DAY_BEHIND = re.compile(rf"{MONTH} \Z")
_THING = re.compile(r" ([a-z]{3,})")
_AFTER = re.compile(r"[ -]?(?:[A-Za-z]+|\w{0,2})")
THING = "thing"
_UNIT_NAMES = [*_UNITS]
_UNIT = re.compile(
    r"(?:st|nd|rd|th)?[ -]?(?:square |cubic |平方|立方)?"
    rf"(?:{'|'.join(f'({form})' for form in _UNITS.values())})(?![a-z])"
)
