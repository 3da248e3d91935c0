"""Texts as checks compare them: in one form, taken apart once, without where their links lead. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from functools import cached_property, lru_cache

from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.propositionizers.checks.numerals import COUNTED, NUMBER, THING, Number, later_dates, read_numbers
from llama_pack_densex.text.language import LATIN, detect_language
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.tokens import STOP_WORDS, normal, unwrapped, words

ADDRESS = re.compile(
    r"(?:https?://|www\.)[!-~]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?<![\w.])(?:[a-z\d-]+\.)+(?:com|org|net|edu|gov|io|dev|co|jp)\b(?:/[!-~]*)?",
    re.ASCII,
)
_TOKEN = re.compile(
    r"(?=[^\W_ぁ-ん])(?:"  # what none begins with is passed over at once
    rf"(?P<latin>[{LATIN}]+(?:['’][{LATIN}]+)*(?:(?<=\b[A-Z])(?:\.[A-Z])+\b\.?)?)"
    rf"|(?P<number>{NUMBER})"
    r"|(?P<katakana>[ァ-ヺー]+(?:[・=][ァ-ヺー]+)*)"
    rf"|(?P<kanji>(?:(?!{COUNTED})[々〆〇㐀-䶿一-鿿豈-﫿])+))"
)
_FOOTNOTE_SIGN = re.compile("(?m)^[⁰¹²³⁴-⁹]+")
_FORMS = [
    (re.compile("元年"), "1年"),
    (re.compile("時半"), "時30分"),
    (re.compile(r"(?<![\d.])(\d)割(?![引合増り])"), r"\g<1>0%"),
    (re.compile(r"(°|degrees )(?:C|F|Celsius|Fahrenheit)(?![a-z])"), r"\1"),
]


class Text:
    """A text, taken apart once.

    Attributes:
        plain: The text in NFKC, without addresses and without where links lead.
        tokens: Its numbers and words in order.
    """

    def __init__(self, text: str) -> None:
        self.plain = in_one_form(ADDRESS.sub(" ", searchable_text(text)))
        self.tokens = list(_TOKEN.finditer(self.plain))

    @cached_property
    def numbers(self) -> list[Number]:
        """Its numbers in order."""
        return read_numbers(self.plain, self.tokens)

    @cached_property
    def values(self) -> set[float]:
        """What its numbers mean, those left out that are nothing but parts of names."""
        return set().union(*self._values_by_unit.values())

    def values_of(self, unit: str) -> set[float]:
        """The values of its numbers that are of a unit or of none; of all of them for none."""
        if unit in ("", THING):
            return self.values
        return self._values_by_unit[unit] | self._values_by_unit[""]

    @cached_property
    def named(self) -> defaultdict[tuple[str, bool], set[float]]:
        """The values that are in each name; years are told from others, as in "May 4, 1931"."""
        named: defaultdict[tuple[str, bool], set[float]] = defaultdict(set)
        for number in self.numbers:
            if number.key:
                named[number.key, number.is_year] |= number.values
        return named

    @cached_property
    def squeezed(self) -> str:
        """Its letters and digits alone."""
        return squeeze(self.plain)

    @cached_property
    def initials(self) -> str:
        """The first letters of its words with a capital."""
        names = (token[0] for token in self.tokens if token[0][0].isupper())
        return "".join(name[0] for name in names if name.lower() not in STOP_WORDS)

    @cached_property
    def abbreviations(self) -> set[str]:
        """Its words in capitals."""
        return {token[0].replace(".", "") for token in self.tokens if token.lastgroup == "latin" and token[0].isupper()}

    @cached_property
    def _values_by_unit(self) -> defaultdict[str, set[float]]:
        occurrences = Counter((number.name, number.values) for number in self.numbers)
        by_unit: defaultdict[str, set[float]] = defaultdict(set)
        for number in self.numbers:
            is_name = number.is_glued or (number.name and occurrences[number.name, number.values] > 1)
            if not is_name or number.has_unit:
                by_unit[number.unit] |= number.values
        return by_unit


taken_apart = lru_cache(maxsize=64)(Text)  # many propositions are of one sentence


class Source(Text):
    """What propositions are held against: a passage with its title, section and context.

    Args:
        passage: The passage.
        stated: The propositions, which tell English where the passage is too short to.

    Attributes:
        written: All of it as it is written, with where links lead: a name may be read there.
        title: The passage's title.
        language: The passage's language.
    """

    def __init__(self, passage: Passage, stated: str) -> None:
        about = f"{passage.title}\n{passage.section}\n{passage.context}"
        whole = f"{about}\n{passage.text}"
        super().__init__(whole)
        self.written = in_one_form(whole)
        self.title = unicodedata.normalize("NFKC", passage.title)
        language = detect_language(passage.text, about)
        self.language = detect_language(f"{self.plain}\n{stated}", about) if language == "latin" else language
        self._about = Text(about)
        self._said = Text(passage.text)

    @cached_property
    def words(self) -> set[str]:
        """Its words in Latin letters, without inflection."""
        return {stem(token[0]) for token in _TOKEN.finditer(self.written) if token.lastgroup == "latin"}

    @cached_property
    def katakana(self) -> str:
        """It without signs in katakana words: a word in it occurs, however its vowels are prolonged."""
        return bare(self.written)

    @cached_property
    def later(self) -> set[float]:
        """The dates that it counts from others."""
        return set(later_dates(self.plain, self.numbers))

    def is_anywhere(self, number: Number) -> bool:
        """Whether a number may be said of anything: it is the title's and not the passage's, or one of later dates."""
        if not self.later.isdisjoint(number.values):
            return True
        return any(
            (other.is_year or not other.name)
            and not other.values.isdisjoint(number.values)
            and other.after in ("", number.after)
            for other in self._about.numbers
        )

    def has_number(self, number: Number) -> bool:
        """Whether a number occurs, of the same unit or of none."""
        return self.is_anywhere(number) or not self.values_of(number.unit).isdisjoint(number.values)

    def has_word(self, word: str) -> bool:
        """Whether a word in Latin letters occurs, inflected as it may be."""
        wanted = stem(word)
        return wanted in self.words or any(_is_inflected(wanted, other) for other in self.words)


def in_one_form(text: str) -> str:
    """A text in NFKC, with some numbers and units as they are written most."""
    plain = unicodedata.normalize("NFKC", _FOOTNOTE_SIGN.sub("", unwrapped(text)))
    for pattern, usual in _FORMS:
        plain = pattern.sub(usual, plain)
    return plain


def squeeze(text: str) -> str:
    """The letters and digits of a text, without case."""
    return "".join(filter(str.isalnum, text.casefold()))


def bare(katakana: str) -> str:
    """A text without what a katakana word may have or not."""
    return re.sub("[ー・=]", "", katakana)


_ENDINGS = {""} | words(
    "s n an ian ish land y dy ies ic ese i al ay egian e er ers ist ists ism ing ed ns ans ians men man a en ean eans"
)
_PEOPLES = {
    "french": "france", "spanish": "spain", "english": "england", "dutch": "netherlands", "danish": "denmark",
    "welsh": "wales", "scottish": "scotland", "scots": "scotland", "irish": "ireland", "polish": "poland",
    "swedish": "sweden", "turkish": "turkey", "greek": "greece", "swiss": "switzerland", "british": "britain",
    "american": "america", "americans": "america", "chinese": "china", "japanese": "japan",
    "jan": "january", "feb": "february", "mar": "march", "apr": "april", "jun": "june", "jul": "july",
    "aug": "august", "sep": "september", "oct": "october", "nov": "november", "dec": "december",
}  # fmt: skip


@lru_cache(maxsize=1 << 14)
def stem(word: str) -> str:
    """A word in Latin letters without case, possessive and abbreviation; a people is its country."""
    word = "america" if word in ("US", "U.S.", "USA") else normal(word.replace("’", "'"))
    word = word.removesuffix("'s").rstrip("'").replace(".", "")
    return _PEOPLES.get(word, word)


def _is_inflected(word: str, other: str) -> bool:
    if word[:4] != other[:4]:
        return False
    pairs = enumerate(zip(word, other, strict=False))
    shared = next((i for i, (first, second) in pairs if first != second), min(len(word), len(other)))
    return shared >= 4 and word[shared:] in _ENDINGS and other[shared:] in _ENDINGS
