"""Texts as the checks compare them: normalised, parsed once, without the targets of links. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from functools import cached_property, lru_cache
from itertools import chain

from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.propositionizers.checks.numbers import (
    COUNTED,
    NUMBER,
    POWER_ALONE,
    POWER_BEHIND,
    THING,
    Number,
    later_dates,
    power_of,
    read_numbers,
)
from llama_pack_densex.text.language import LATIN, detect_language
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.tokens import IS_CJK, MONTHS, STOP_WORDS, normal, unwrapped, words

ADDRESS = re.compile(r"(?:https?://|www\.)[!-'*-~]*[\w/]|[\w.+-]+@[\w.-]*\w", re.ASCII)
_LATIN_WORD = rf"[{LATIN}]+(?:['’][{LATIN}]+)*(?:(?<=\b[A-Z])(?:\.[A-Z])+\b\.?)?"
_TOKEN = re.compile(
    r"(?=[^\W_ぁ-ん])(?:"  # a quick test of the first character
    # letters that are glued to digits are parts of names
    rf"(?P<latin>(?<!\d){_LATIN_WORD}(?![{LATIN}\d]))"
    rf"|(?P<number>{NUMBER})"
    r"|(?P<katakana>[ァ-ヺー]+(?:[・=][ァ-ヺー]+)*)"
    rf"|(?P<kanji>(?:(?!{COUNTED})[々〆〇㐀-䶿一-鿿豈-﫿])+))"
)

_Values = set[float]
"""Values of numbers."""


class Text:
    """A text with its tokens, numbers and names, parsed once.

    Attributes:
        addresses: Its web and mail addresses.
        plain: The text in NFKC, without addresses and targets of links.
        tokens: The matches of its numbers and words, in order.
    """

    def __init__(self, text: str) -> None:
        self.addresses: list[str] = []
        if "://" in text or "@" in text:
            self.addresses = ADDRESS.findall(text)
            text = ADDRESS.sub(" ", text)
        self.plain = in_one_form(searchable_text(text))
        self.tokens = list(_TOKEN.finditer(self.plain))
        self._values: dict[str, _Values] = {}

    @cached_property
    def numbers(self) -> list[Number]:
        """The text's numbers, in order."""
        return read_numbers(self.plain, self.tokens)

    def values_of(self, unit: str = "") -> _Values:
        """Return the values of its numbers with a unit or without any; numbers in names are left out.

        Args:
            unit: The unit; "" or THING for numbers of any unit.
        """
        if unit not in self._values:
            is_any = unit in ("", THING)
            units = (unit, "")
            values: _Values = set()
            for number in self.numbers:
                if (is_any or number.unit in units) and not self._is_name(number):
                    values |= number.values
            self._values[unit] = values
        return self._values[unit]

    def _is_name(self, number: Number) -> bool:
        """Return whether a number is only a part of a name: glued to it, or in a name that recurs."""
        return number.is_glued or (number.name != "" and self._names[number.name] > 1)

    @cached_property
    def _names(self) -> Counter[str]:
        return Counter(number.name for number in self.numbers)

    @cached_property
    def named(self) -> defaultdict[tuple[str, bool], _Values]:
        """The values that occur in each name or beside each month; years apart, as in "May 4, 1931"."""
        named: defaultdict[tuple[str, bool], _Values] = defaultdict(set)
        for number in self.numbers:
            if number.key:
                named[number.key, number.is_year] |= number.values
        return named

    @cached_property
    def squeezed(self) -> str:
        """The text's letters and digits, without case and anything between them."""
        return squeeze(self.plain)

    @cached_property
    def initials(self) -> str:
        """The first letters of its capitalised words, joined."""
        names = (token[0] for token in self.tokens if token[0][0].isupper())
        return "".join(name[0] for name in names if name.lower() not in STOP_WORDS)

    @cached_property
    def abbreviations(self) -> set[str]:
        """Its words that are all in capitals, without full stops."""
        words = (token[0] for token in self.tokens if token.lastgroup == "latin")
        return {word.replace(".", "") for word in words if word.isupper()}


taken_apart = lru_cache(maxsize=128)(Text)  # many propositions share a source sentence


class Ground(Text):
    """The text that propositions are checked against: a passage with its title, section and context.

    Args:
        passage: The passage.
        stated: The propositions, by which English is detected if the passage is too short for that.

    Attributes:
        written: The whole text with the targets of links, since names may occur in them.
        title: The passage's title.
        language: The passage's language.
    """

    def __init__(self, passage: Passage, stated: str) -> None:
        heading = f"{passage.title}\n{passage.section}\n{passage.context}"
        written = f"{heading}\n{passage.text}"
        super().__init__(written)
        self.written = in_one_form(written)
        self.title = in_one_form(passage.title)
        self.language = detect_language(passage.text, heading)
        if self.language == "latin":
            self.language = detect_language(f"{self.plain}\n{stated}", heading)
        self._heading = taken_apart(heading)

    @cached_property
    def words(self) -> set[str]:
        """The stems of its words in Latin letters, and of the months of its ISO dates."""
        months = (MONTHS[int(month) - 1] for month in _ISO_DATE.findall(self.plain))
        return set(map(_stem, chain(re.findall(_LATIN_WORD, self.written), months)))

    @cached_property
    def katakana(self) -> str:
        """The text without the optional signs of katakana words, so that spelling variants are found."""
        return bare(self.written)

    @cached_property
    def later(self) -> _Values:
        """The years and days that it gives relative to others, as "the next year"."""
        return set(later_dates(self.plain, self.numbers))

    def is_anywhere(self, number: Number) -> bool:
        """Return whether a number may be said of anything: a relative date, or one of the title, section or
        context, with the same noun there or none.
        """
        if self.later & number.values:
            return True
        return any(
            other.after in ("", number.after) and other.values & number.values
            for other in self._heading.numbers
            if other.is_year or not other.name
        )

    def values_before(self, sentence: str) -> _Values:
        """Return the values shortly before a sentence, which "in the same year" may refer to."""
        return Text(self.plain.partition(sentence)[0][-_BEFORE:]).values_of()

    def has_name(self, number: Number) -> bool:
        """Return whether a number occurs in the same name, or beside the same month."""
        return bool(self.named[number.key, number.is_year] & number.values)

    def has_other_in_name(self, number: Number) -> bool:
        """Return whether a number that fails `has_name` has a name or month that occurs with another number,
        or a name that is new.
        """
        if not number.key or self.is_anywhere(number):
            return False
        is_new = number.is_glued and (" " in number.key or not self.has_number(number))  # as B2C
        return is_new or bool(self.named[number.key, number.is_year])

    def has_number(self, number: Number) -> bool:
        """Return whether a number occurs with the same unit or without one."""
        if self.is_anywhere(number):
            return True
        shared = self.values_of(number.unit) & number.values
        is_whole = number.whole is None or number.whole in shared
        if shared and (is_whole or self._shares_power(shared)):
            return True
        return self.has_in_thousands(number)

    def has_in_thousands(self, number: Number) -> bool:
        """Return whether a number occurs in units of thousands, millions or 百万円, as in tables."""
        values = self.values_of(number.unit)
        in_full = {value * power for power in self._powers for value in values}
        return not in_full.isdisjoint(number.values)

    @cached_property
    def _powers(self) -> _Values:
        return {power_of(match[0]) for match in POWER_ALONE.finditer(self.plain)}

    def _shares_power(self, values: _Values) -> bool:
        """Return whether one of the values shares the next number's power word: "3 or 4 million"."""
        return any(
            POWER_BEHIND.match(self.plain, number.start + len(number.shown))
            for number in self.numbers
            if number.whole is None and number.values & values
        )

    def has_word(self, word: str) -> bool:
        """Return whether a word in Latin letters occurs, in any inflection."""
        stem = _stem(word)
        if stem in self.words or stem.removesuffix("s") in self.words:
            return True
        return any(_is_inflected(stem, other) for other in self.words)


def in_one_form(text: str) -> str:
    """Normalise a text: NFKC, and one spelling for some numbers, dates and units."""
    if not text.isascii():
        text = _FRACTION.sub(_as_decimal, unwrapped(text))
        text = unicodedata.normalize("NFKC", _FOOTNOTE_SIGN.sub("", text))
        text = _TENTHS.sub(r"\g<1>0%", text.replace("元年", "1年").replace("時半", "時30分"))
    text = _CURRENCY.sub(lambda match: _SIGNS[match[1]], _SQUARE.sub(r"\1", text))
    if _SHORT_POWER.search(text):
        text = _POWER_SIGN.sub(lambda match: f" {_POWERS[match[0].strip().lower()]}", text)
    if not IS_CJK.search(text):
        text = _QUARTER.sub(lambda match: f"{_ORDINALS[int(match[1]) - 1]} quarter", text)
    text = _SHORT_MONTH.sub(lambda match: _MONTHS[match[0][:3]], text)
    text = _FULL_HOUR.sub("", _AFTERNOON.sub(_in_24_hours, text))
    return _TEMPERATURE.sub(r"\1", text)


def _as_decimal(match: re.Match[str]) -> str:
    return str(int(match[1]) + unicodedata.numeric(match[2]))


def _in_24_hours(match: re.Match[str]) -> str:
    hour, minutes, half, hour_ja = match.groups(default="")
    if hour_ja:
        return f"{int(hour_ja) % 12 + 12}時"
    if half.lower() == "p":
        hour = str(int(hour) % 12 + 12)
    return hour + minutes


@lru_cache(maxsize=1 << 14)
def _beginning(word: str) -> re.Pattern[str]:
    if word[0].isdecimal():
        return re.compile(rf"(?<![\d.,]){re.escape(word)}(?!\d)")
    return re.compile(f"(?<![a-zà-ɏ]){re.escape(word[: max(3, len(word) - 3)])}")


def occurs(word: str, text: str) -> int:
    """Count how often a word occurs in a text, in any inflection: "norwegian" counts for "norwegians".

    Words of Japanese have no borders; "london" is not in "belong". Both are in lower case.
    """
    return len(_beginning(word).findall(text))


def squeeze(text: str) -> str:
    """Return the letters and digits of a text, without case."""
    return "".join(filter(str.isalnum, text.casefold()))


def bare(katakana: str) -> str:
    """Return a text without the signs that are optional in katakana words."""
    return _OPTIONAL_SIGNS.sub("", katakana)


@lru_cache(maxsize=1 << 14)
def _stem(word: str) -> str:
    word = "america" if word in ("US", "U.S.", "USA") else normal(word.replace("’", "'"))
    word = word.removesuffix("'s").rstrip("'").replace(".", "")
    return _PEOPLES.get(word, word)


def _is_inflected(word: str, other: str) -> bool:
    if word[:_SHORTEST_STEM] != other[:_SHORTEST_STEM]:  # a quick test
        return False
    shared = len(word)
    while not other.startswith(word[:shared]):
        shared -= 1
    return shared >= _SHORTEST_STEM and word[shared:] in _ENDINGS and other[shared:] in _ENDINGS


_OPTIONAL_SIGNS = re.compile("[ー・=]")
_BEFORE = 200  # characters before a sentence that "the same year" may refer to
_SHORTEST_STEM = 4  # letters
_FOOTNOTE_SIGN = re.compile("(?m)^[⁰¹²³⁴-⁹]+")
_TENTHS = re.compile(r"(?<![\d.])(\d)割(?![引合増り])")
_TEMPERATURE = re.compile(r"(°|degrees )(?:C|F|Celsius|Fahrenheit)(?![a-z])")
_FRACTION = re.compile("([0-9]+)([¼½¾⅛⅜⅝⅞])")
_SIGNS = {"EUR": "€", "USD": "$", "GBP": "£", "JPY": "¥"}
_CURRENCY = re.compile(rf"\b({'|'.join(_SIGNS)}) ?(?=\d)")
# "SEK 5m to 7m": m is a million wherever a text has it behind money
_SHORT_POWER = re.compile(r"(?:[$£€] ?|\b[A-Z]{3} )\d[\d,.]* ?[mMbB]\b|\d ?(?:bn|mn|tn)\b")
_POWER_SIGN = re.compile(r"(?<=\d) ?(?:bn|mn|tn|[mMbB])\b")
_QUARTER = re.compile(r"(?<![^\s(/–-])Q([1-4])(?![^\s.,;:)/–-])")
_ORDINALS = ("first", "second", "third", "fourth")
_MONTHS = {month[:3]: month for month in MONTHS}
_SHORT_MONTH = re.compile(
    rf"(?<=\d )(?:{'|'.join(_MONTHS)}|Sept)\b\.?|\b(?:{'|'.join(_MONTHS)}|Sept)\b\.?(?= \d)"
)
_POWERS = {
    "m": "million", "mn": "million", "b": "billion", "bn": "billion", "tn": "trillion",
}  # fmt: skip
_AFTERNOON = re.compile(r"\b(\d{1,2})(:\d\d)? ?([ap])(?:\.m\.|m\b)|午後(\d{1,2})時", re.IGNORECASE)
_FULL_HOUR = re.compile(r"(?<=\d):00\b(?!:)")
_ISO_DATE = re.compile(r"\b\d{4}-(0[1-9]|1[0-2])-\d\d\b")
# squares and cubes of a unit count as the unit: m2, 平方メートル
_SQUARE = re.compile(r"((?<=\d) ?(?:[kc]?m|mm))\^?[23](?![A-Za-z\d])|(?<=\d)(?:平方|立方)(?=\w)")
_ENDINGS = {""} | words(
    """
    s n an ian ish land y dy ies ic ese i al ay egian e er ers ist ists ism ing ed ns ans
    ians men man a en ean eans
    """
)
_PEOPLES = dict(
    pair.split("=")
    for pair in words(
        """
        french=france spanish=spain english=england dutch=netherlands danish=denmark
        welsh=wales scottish=scotland scots=scotland irish=ireland polish=poland
        swedish=sweden turkish=turkey greek=greece swiss=switzerland british=britain
        american=america americans=america chinese=china japanese=japan jan=january
        mon=monday tue=tuesday wed=wednesday thu=thursday fri=friday sat=saturday
        sun=sunday feb=february mar=march apr=april jun=june jul=july aug=august sep=september
        oct=october nov=november dec=december
        """
    )
)
