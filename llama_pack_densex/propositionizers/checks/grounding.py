"""The grounding check: numbers, names, quotations and addresses that are not in the passage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from importlib.resources import files

from llama_pack_densex.propositionizers.checks.numbers import DIGITS, NUMERAL, Number, is_unit
from llama_pack_densex.propositionizers.checks.pronouns import SOMEONES
from llama_pack_densex.propositionizers.checks.texts import Ground, Text, bare, squeeze
from llama_pack_densex.text.language import LATIN
from llama_pack_densex.text.tokens import STOP_WORDS, words

_Token = re.Match[str]
"""A word or number of a text (see `Text.tokens`)."""


def ungrounded(text: Text, ground: Ground, sentences: Text) -> Iterator[str]:
    """Yield a reason for each number, quotation, address and name of a proposition that its passage lacks,
    and for each number that the passage gives for something else.

    Names are checked in English and Japanese only.

    Args:
        text: The proposition.
        ground: Its passage, with title, section and context.
        sentences: The source sentences of the proposition.
    """
    for number in text.numbers:
        if fault := _fault(number, text, ground, sentences):
            yield fault
    for quotation in _QUOTATION.finditer(text.plain):
        if not _is_quoted(squeeze(quotation[0]), ground):
            yield f'the quotation "{shortened(quotation[0][1:-1])}" is not in the passage'
    for name in _unknown_names(text, ground):
        yield _NOT_THERE.format(shortened(name))


def _fault(number: Number, text: Text, ground: Ground, sentences: Text) -> str:
    """Return what is wrong with a number; "" if nothing is."""
    if ground.has_name(number):
        return ""
    is_there = ground.has_number(number)
    counted = number.unit
    if ground.has_other_in_name(number):
        if number.name:
            return _NOT_THERE.format(number.name)
        counted = number.key.title()  # a month
    elif is_there or not number.is_plain:
        return _misplaced(number, text, ground, sentences)
    else:
        is_there = ground.has_number(replace(number, unit=""))
    if is_there:
        return f'"{number.shown}" is in the passage, but not with "{counted}"'
    # where every row of a table has "Runs 3/6/12 reviews", the number looks like a part of a name
    if text.plain[number.start : number.start + _VERBATIM] in ground.plain:
        return ""
    return f'"{number.shown}" is not in the passage'


def _misplaced(number: Number, text: Text, ground: Ground, sentences: Text) -> str:
    """Return what is wrong with a number if the source sentences have another in its place; else ""."""
    if not number.is_plain or ground.is_anywhere(number) or ground.has_in_thousands(number):
        return ""
    values = sentences.values_of(number.unit)
    if _SAME_DATE.search(sentences.plain):
        values = values | ground.values_before(sentences.plain)
    if values & number.values:
        return ""
    for other in sentences.numbers:
        is_comparable = other.is_plain and not other.is_glued and other.counts == number.counts
        if is_comparable and not text.values_of() & other.values:
            place = f'where it says this it has "{other.shown}"'
            return f'"{number.shown}" is in the passage, but {place}'
    return ""


def _unknown_names(text: Text, ground: Ground) -> Iterator[str]:
    yield from (address for address in text.addresses if address.rstrip("/") not in ground.written)
    if ground.language == "ja":
        places = set(_PLACE_JA.findall(text.plain))
        yield from sorted(place for place in places if place not in ground.written)
    is_unknown = _IS_UNKNOWN.get(ground.language)
    if is_unknown is not None:
        yield from (token[0] for token in text.tokens if is_unknown(text, token, ground))


def shortened(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    if len(line) <= _SHOWN:
        return line
    return f"{line[: _SHOWN - 1]}…"


@cache
def common_words_ja() -> frozenset[str]:
    """Return common Japanese words in kanji, katakana and Latin letters, which are not names."""
    listed = files(__package__).joinpath("common_words_ja.txt").read_text(encoding="utf-8")
    lines = (line for line in listed.splitlines() if not line.startswith("#"))
    return words("\n".join(lines))


@lru_cache(maxsize=1 << 12)
def is_common_katakana(word: str, written: str = "") -> bool:
    """Return whether a katakana word is common, or a compound of common words and words of a text.

    Args:
        word: The word, such as メールアドレス.
        written: The text, without the optional signs of katakana (see `texts.bare`).
    """
    common = common_words_ja()
    if not word or word in common:
        return True
    for end in range(len(word), _SHORTEST_PART - 1, -1):
        is_common = word[:end] in common or bare(word[:end]) in written
        if is_common and is_common_katakana(word[end:], written):
            return True
    return False


_NOT_THERE = '"{}" is in neither the passage nor its title or section'
_VERBATIM = 12  # characters from a number on: if the passage has them, it has the number verbatim
_SAME_DATE = re.compile(r"\b(?:same|that|these|those) (?:year|month|day|date)s?\b", re.IGNORECASE)
_SHOWN = 60  # characters of a quotation or name in a reason
_SHORTEST_PART = 3  # characters of a part of a compound: shorter words occur in names by chance
_LONG_QUOTATION = 8  # letters
# share of a quotation's trigrams that the passage has to have; for quotations from other passages of the same
# article it is at most 0.5
_QUOTED = 0.85
_QUOTATION = re.compile(r'"[^"\n]{2,}"|“[^“”\n]{2,}”|「[^「」\n]{2,}」|『[^『』\n]{2,}』')
_OF_A_NAME = re.compile(r" (?:is|was|are|were|has|had|have|[a-z]{2,}ed)\b|[ -][A-Z]|['’]s\b")
# not names: "Visitors were", "Someone hired"
_OF_MANY = re.compile(r"\w+s (?:are|were|have)\b|(?:People|(?:Some|Any|Every|No)(?:one|body))\b")
_TITLED = re.compile(r"\b(?:Mrs?|Ms|Mx|Dr|Prof|Rev|Sen|Gov|Gen|Capt|St)\.\Z")
_SURNAME = re.compile(rf" ([A-Z][{LATIN}'’-]+)")


def _is_quoted(quotation: str, ground: Ground) -> bool:
    """Return whether a passage has a quotation; a Japanese one may differ in an ending or part of a name."""
    if quotation in ground.squeezed:
        return True
    if ground.language != "ja" or len(quotation) < _LONG_QUOTATION:
        return False
    parts = [quotation[i : i + 3] for i in range(len(quotation) - 2)]
    return sum(part in ground.squeezed for part in parts) >= _QUOTED * len(parts)


def _is_unknown_en(text: Text, token: _Token, ground: Ground) -> bool:
    word = token[0]
    if token.lastgroup != "latin" or not word[0].isupper():
        return False
    if word.lower() in DIGITS or ground.has_word(word):
        return False
    beginning = text.plain[: token.start()].rstrip(" \"'“‘(")
    is_first = not beginning or (beginning[-1] in ".!?:;\n" and not _TITLED.search(beginning))
    if is_first and not _may_begin_with_name(text.plain, token):
        return False
    return not _is_given_name(text, token, ground) and not _is_abbreviated(word, text, ground)


def _may_begin_with_name(text: str, token: _Token) -> bool:
    if token[0].lower() in STOP_WORDS or _OF_MANY.match(text, token.start()):
        return False
    return _OF_A_NAME.match(text, token.end()) is not None


def _is_given_name(text: Text, token: _Token, ground: Ground) -> bool:
    """Return whether a word is the given name of a person whom the passage mentions by surname only."""
    surname = _SURNAME.match(text.plain, token.end())
    if surname is None or not ground.has_word(surname[1]):
        return False
    name = re.escape(surname[1])
    full = rf"[A-Z][\w.]* {name}\b|\b{name} of "  # another given name, or "University of"
    return not re.search(full, ground.written)


def _is_abbreviated(word: str, text: Text, ground: Ground) -> bool:
    """Return whether a word abbreviates names of the passage, or is part of a name that it abbreviates."""
    word = word.replace(".", "").removesuffix("s")
    if len(word) > 1 and word.isupper():
        return word in ground.initials
    candidates = (
        short for short in ground.abbreviations if len(short) > 1 and short in text.initials
    )
    return any(word[0] in short for short in candidates)


def _is_unknown_ja(text: Text, token: _Token, ground: Ground) -> bool:
    """Return whether a run of characters is a name that the passage lacks, as far as rules can tell.

    Common words and verbs (分裂した) are not names: propositions paraphrase their passage with them.
    """
    word = token[0]
    if token.lastgroup == "number" or len(word) == 1 or is_unit(word):
        return False
    if token.lastgroup == "latin":
        return word not in common_words_ja() and word.lower() not in ground.written.lower()
    is_verb = _VERB_ENDING.match(text.plain, token.end()) is not None
    if token.lastgroup == "katakana":
        return not is_verb and _has_unknown_katakana(word, ground)
    return not _PLACE_JA.match(word) and _has_unknown_kanji(word[:-2] if is_verb else word, ground)


def _has_unknown_katakana(word: str, ground: Ground) -> bool:
    if bare(word) in ground.katakana:
        return False
    parts = word.replace("=", "・").split("・")
    return not all(is_common_katakana(part, ground.katakana) for part in parts)


def _has_unknown_kanji(word: str, ground: Ground) -> bool:
    """Return whether a run of kanji has two in a row that are neither in the passage nor in a common word."""
    if word in SOMEONES or word in ground.written:
        return False
    # the same name with another number: 第二生命 for 第一生命
    other_number = re.sub(rf"{NUMERAL}+", f"{NUMERAL}+", word)
    if other_number != word and re.search(other_number, ground.written):
        return True
    signs = ""  # for each character: c in a common word, - in the passage, or itself
    while len(signs) < len(word):
        position = len(signs)
        if word[position : position + 2] in common_words_ja():
            signs += "cc"
        else:
            signs += "-" if word[position] in ground.written else word[position]
    return bool(_UNKNOWN.search(signs) or (len(word) > 3 and _UNKNOWN_PART.search(signs)))


_IS_UNKNOWN = {"ja": _is_unknown_ja, "en": _is_unknown_en}
_UNKNOWN = re.compile("[^c-]{2}")
_AFFIXES = (  # characters that derive a word from a common one
    "者員的性化用費料額率数量度日月年時分秒間内外前後中上下別式型品物書法部課室所場店社会長人家界系類等"
    "各全約毎再未非無不新旧副総諸第他当同本元初最高大小多少"
)
_UNKNOWN_PART = re.compile(f"c[^c{_AFFIXES}-]|[^c{_AFFIXES}-]c")
_VERB_ENDING = re.compile(
    "を?(?:する|すれ|すべ|した|して|しな|しま|しよ|し[、。]|され|させ|せず|でき[るなたまれ])"
)
# places that consist of characters of common words
_PLACE_JA = re.compile(
    "北海道|青森|岩手|宮城|秋田|山形|福島|茨城|栃木|群馬|埼玉|千葉|東京|神奈川|新潟|富山|石川|福井|山梨|長野|岐阜|静岡"
    "|愛知|三重|滋賀|京都|大阪|兵庫|奈良|和歌山|鳥取|島根|岡山|広島|山口|徳島|香川|愛媛|高知|福岡|佐賀|長崎|熊本|大分"
    "|宮崎|鹿児島|沖縄|東北|北陸|関東|関西|近畿|東海|九州|四国|中国|米国|英国|韓国|朝鮮|台湾|中東|欧州|欧米|東欧|西欧"
    "|南米|北米|華[北中南]|大西洋|太平洋|江戸"
)
