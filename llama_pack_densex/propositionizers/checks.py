"""Whether propositions say what their passage says and can be understood alone. Pure: texts in, findings out.

Rules and short lists, measured on English and Japanese with `benchmarks/checks.py`: no model and no dictionary.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from llama_pack_densex.propositionizers.alignment import align, uncovered
from llama_pack_densex.propositionizers.base import Finding, Passage, PropositionSet
from llama_pack_densex.propositionizers.prompts import unique
from llama_pack_densex.text.language import LANGUAGE_NAMES, LATIN, detect_language, find_wrong_language
from llama_pack_densex.text.segments import passage_sentences, segment, sentence_spans
from llama_pack_densex.text.tokens import STOP_WORDS, normal, unwrapped, words


def check_propositions(passage: Passage, propositions: Sequence[str]) -> list[Finding]:
    """Look for what is wrong with the propositions of a passage.

    - *grounding*: a number, date, unit, quotation or name that is neither in the passage nor in its title or section,
      or a number that is elsewhere in the passage than what is said of it. Numbers are compared by what they mean
      ("twenty-three", 二十三, 23), names without inflection and with what they are abbreviated to; what is missing is
      reported where it comes first. How names are written is known of English and Japanese only.
    - *language*: another one than the passage's.
    - *self_containedness*: an English or Japanese pronoun or demonstrative that nothing before it explains.
    - *duplication*: the words of an earlier proposition.
    - *coverage*: a sentence, number or name of the passage that no proposition says (see `alignment.uncovered`).
    - *size*: a single word, or the whole of a passage of several sentences.

    Tables and code blocks that stand as propositions are not looked at.

    Args:
        passage: The passage with its title and section.
        propositions: What was made of it.

    Returns:
        What was found, check by check, in the order of the propositions; nothing where all is well.
    """
    parts = segment(passage.text, passage.context)
    blocks = {part.row or passage.text[part.start : part.end] for part in parts if part.kind in ("row", "code")}
    stated = [(index, _Text(text)) for index, text in enumerate(propositions) if text.strip() and text not in blocks]
    context = _Context(passage, " ".join(text.plain for _, text in stated))
    findings = [*_other_language(passage.text, propositions)]
    reported: set[str] = set()
    said: dict[tuple[object, ...], int] = {}
    sources = align(passage.text, [propositions[index] for index, _ in stated], passage.context)
    for (index, text), spans in zip(stated, sources, strict=True):
        for name, why in _ungrounded(text, context, "\n".join(passage.text[slice(*span)] for span in spans)):
            if name not in reported:
                reported.add(name)
                findings.append(Finding("grounding", index, None, why))
        if why := _unresolved(text, context):
            findings.append(Finding("self_containedness", index, None, why))
        if (first := said.setdefault(_words_of(text), index)) != index:
            findings.append(Finding("duplication", index, None, f"it says what proposition {first + 1} says"))
        if why := _wrong_size(text, passage.text, context):
            findings.append(Finding("size", index, None, why))
    missing = uncovered(passage.text, propositions, passage.context)
    return findings + [_missing(passage.text, span) for span in missing]


def checked(passage: Passage, made: PropositionSet) -> PropositionSet:
    """A set with what is wrong with its propositions.

    Whatever makes or looks up propositions calls this, not what makes nodes of them: it knows that a text is a
    statement about the passage, and not one of its own sentences.
    """
    if made.status == "fallback":
        return made
    return replace(made, findings=tuple(check_propositions(passage, made.texts)))


def is_better(findings: Sequence[Finding], before: Sequence[Finding]) -> bool:
    """Whether there are fewer findings than before, and more of no kind."""
    now, earlier = (Counter(finding.kind for finding in found) for found in (findings, before))
    return now.total() < earlier.total() and now <= earlier


def settled(passage: Passage, made: PropositionSet) -> PropositionSet:
    """A checked set with the passage's own sentences: in place of what is not grounded, and for what nothing says.

    What was found of these stays among the findings, so that it is counted.
    """
    texts, found = list(made.texts), list[tuple[str, Finding]]()
    while wrong := {
        one.proposition: one
        for one in check_propositions(passage, texts)
        if one.kind == "grounding" and one.proposition is not None and texts[one.proposition] not in passage.text
    }:
        for index, finding in wrong.items():
            texts[index] = _source_of(texts[index], passage)
            found.append((texts[index], finding))
    for start, end in uncovered(passage.text, texts, passage.context):
        sentences = (one for one in sentence_spans(passage.text) if one[0] < end and start < one[1])
        text = "\n".join(passage.text[slice(*one)] for one in sentences)
        found.append((text, _missing(passage.text, (start, end))))
        texts.append(text)
    if not found:
        return made
    made = checked(passage, replace(made, texts=unique(texts)))
    told = [replace(one, proposition=made.texts.index(text)) for text, one in found if text in made.texts]
    told = [replace(one, reason=f"{one.reason}; its sentence stands in") for one in told]
    return replace(made, findings=(*told, *made.findings))


def _source_of(proposition: str, passage: Passage) -> str:
    spans = align(passage.text, [proposition], passage.context)[0]
    if spans:
        return passage.text[spans[0][0] : spans[-1][1]]
    return passage_sentences(passage.text, passage.context)[0]


def _missing(text: str, span: tuple[int, int]) -> Finding:
    return Finding("coverage", None, span, f'no proposition says "{_short(text[slice(*span)])}"')


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:59]}…"


# What a text consists of, after NFKC: numbers in figures and kanji, words in Latin letters, katakana, other kanji.
_ERAS = {"明治": 1867, "大正": 1911, "昭和": 1925, "平成": 1988, "令和": 2018}
_FIGURES = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d{1,2}\b)?")
_NUMERAL = "[〇一二三四五六七八九十百千万億兆]"
_COUNTED = rf"{_NUMERAL}+[年月日時分秒人名歳回位番勝敗戦階度倍円頭枚本件種個社校隻号冊章条巻点票席部棟層町村次つかカヶ]"
_TOKEN = re.compile(
    r"(?=[^\W_ぁ-ん])(?:"  # what none begins with is passed over at once
    rf"(?P<latin>[{LATIN}]+(?:['’][{LATIN}]+)*(?:(?<=\b[A-Z])(?:\.[A-Z])+\b\.?)?)"
    rf"|(?P<number>(?:{'|'.join(_ERAS)})?(?:(?:(?<![A-Za-z\d]){_FIGURES.pattern}[百千万億兆]*)+"
    rf"|(?={_COUNTED}|{_NUMERAL}{{2}}){_NUMERAL}+)"
    rf"(?:[ -](?:dozen|hundred|thousand|million|billion|trillion)\b|[kK]\b)*)"
    r"|(?P<katakana>[ァ-ヺー]+(?:[・=][ァ-ヺー]+)*)"
    rf"|(?P<kanji>(?:(?!{_COUNTED})[々〆㐀-䶿一-鿿豈-﫿])+))"
)
_TEMPERATURE = re.compile(r"(°|degrees )(?:C|F|Celsius|Fahrenheit)(?![a-z])")


class _Text:
    """A text, taken apart once.

    Attributes:
        plain: The text in NFKC.
        tokens: Its numbers and words in order.
    """

    def __init__(self, text: str) -> None:
        plain = unicodedata.normalize("NFKC", unwrapped(text)).replace("元年", "1年")
        self.plain = _TEMPERATURE.sub(r"\1", plain)
        self.tokens = list(_TOKEN.finditer(self.plain))
        self._values: dict[str, set[float]] = {}

    @cached_property
    def numbers(self) -> list[_Number]:
        found = [token for token in self.tokens if token.lastgroup == "number"]
        if not _NUMBER_WORDS.isdisjoint(token[0].lower() for token in self.tokens):
            found += _SPELLED.finditer(self.plain)
        return [_number(self.plain, one) for one in sorted(found, key=lambda one: one.start())]

    def values(self, unit: str = "") -> set[float]:
        """The values of its numbers that are of a unit or of none; of all of them for no unit."""
        if unit not in self._values:
            of_unit = (number.values for number in self.numbers if not unit or number.unit in (unit, ""))
            self._values[unit] = set().union(*of_unit)
        return self._values[unit]

    @cached_property
    def squeezed(self) -> str:
        return _squeeze(self.plain)

    @cached_property
    def initials(self) -> str:
        names = (token[0] for token in self.tokens if token[0][0].isupper())
        return "".join(name[0] for name in names if name.lower() not in STOP_WORDS)

    @cached_property
    def abbreviations(self) -> set[str]:
        return {token[0].replace(".", "") for token in self.tokens if token.lastgroup == "latin" and token[0].isupper()}


_taken_apart = lru_cache(maxsize=64)(_Text)  # many propositions are of one sentence


class _Context(_Text):
    """What propositions are held against: the passage, its title and its section.

    Args:
        passage: The passage.
        stated: The propositions, which tell English where the passage is too short to.
    """

    def __init__(self, passage: Passage, stated: str) -> None:
        super().__init__("\n".join((passage.title, passage.section, passage.context, passage.text)))
        self.title = unicodedata.normalize("NFKC", passage.title)
        heads = f"{passage.title}\n{passage.section}\n{passage.context}"
        language = detect_language(passage.text, heads)
        self.language = detect_language(f"{self.plain}\n{stated}", heads) if language == "latin" else language
        self.words = {_stem(token[0]) for token in self.tokens if token.lastgroup == "latin"}
        self.katakana = _bare(self.plain)  # a word in it occurs, however its vowels are prolonged
        # said wherever in the passage that is
        self.anywhere = _Text(heads).values() | set(self._later())

    def _later(self) -> Iterator[float]:
        """The years and days that "the next year" or "ten years later" mean: counted from the last one before that."""
        for found in _LATER.finditer(self.plain):
            before = (value for one in self.numbers if one.start < found.start() for value in one.values)
            dates = [value for value in before if (value < 31 if found["day"] else _is_year(value))]
            if dates:
                yield dates[-1] + (_value(found["years"] or "") or 1)

    def has_number(self, number: _Number) -> bool:
        """Whether a number occurs, of the same unit or of none."""
        return not (self.anywhere.isdisjoint(number.values) and self.values(number.unit).isdisjoint(number.values))

    def has_word(self, word: str) -> bool:
        """Whether a word in Latin letters occurs, inflected as it may be."""
        stem = _stem(word)
        return stem in self.words or any(_is_inflected(stem, other) for other in self.words)


def _squeeze(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _bare(katakana: str) -> str:
    return re.sub("[ー・=]", "", katakana)


# Numbers


@dataclass(frozen=True)
class _Number:
    """A number in a text.

    Args:
        values: What it may mean: 3.5 million is 3.5 as well.
        unit: What it counts, as far as that is known; else "".
        shown: How it is written.
        start: Where it begins.
    """

    values: frozenset[float]
    unit: str
    shown: str
    start: int

    @property
    def is_plain(self) -> bool:
        """Whether it is told from a pronoun (one) and a part of a word (一)."""
        return self.values != {1.0} or self.shown[0].isdecimal()

    @property
    def counts(self) -> str:
        """What it counts: a year is one in any notation."""
        return "年" if self.unit in ("", "年") and any(map(_is_year, self.values)) else self.unit


def _number(text: str, found: re.Match[str]) -> _Number:
    shown, values = found[0], [_value(found[0])]
    if rough := _ROUGH.fullmatch(shown):
        values.append(_value(rough[1]))
    before = _RANGE.search(text, max(0, found.start() - 6), found.start())
    if before and shown.isdecimal() and len(shown) < len(before[1]):  # 1754-63
        values.append(float(before[1][: -len(shown)] + shown))
    unit = _UNIT.match(text, found.end())
    counted = _UNIT_NAMES[unit.lastindex - 1] if unit and unit.lastindex else ""
    return _Number(frozenset(values), counted, shown, found.start())


@lru_cache(maxsize=1 << 12)
def _value(written: str) -> float:
    total = section = current = 0.0
    for part in _PART.findall(written.lower().replace("k", " thousand")):
        if part[0].isdecimal():
            current = float(part.replace(",", ""))
        elif part in _DIGITS:
            current = _DIGITS[part] + (current if part.isascii() else 10 * current)
        elif part in _TIMES:
            section += (current or 1) * _TIMES[part]
            current = 0
        elif part in _POWERS:
            total += (section + current or 1) * _POWERS[part]
            section = current = 0
        else:
            total += _ERAS.get(part, 0)
    return total + section + current


def _is_year(value: float) -> bool:
    return 1000 <= value < 2200


_DIGITS = {
    word: float(value)
    for row in (
        "〇 一 二 三 四 五 六 七 八 九",
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
        " seventeen eighteen nineteen twenty",
        "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth"
        " fifteenth sixteenth seventeenth eighteenth nineteenth twentieth",
    )
    for value, word in enumerate(row.split())
}
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_DIGITS |= {word: 10.0 * i for i, word in enumerate(_TENS.split(), 2)}
_TIMES = {"十": 10, "百": 100, "千": 1000, "dozen": 12, "hundred": 100, "hundredth": 100}
_POWERS = {"万": 1e4, "億": 1e8, "兆": 1e12, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_PART = re.compile(rf"{_FIGURES.pattern}|[a-z]+|{'|'.join(_ERAS)}|.")
_NUMBER_WORDS = {word for word in (*_DIGITS, *_TIMES, *_POWERS) if word.isascii()}
_SMALL = rf"(?:(?:{_TENS.replace(' ', '|')})[ -])?(?:{'|'.join(sorted(_NUMBER_WORDS, reverse=True))})"
_SCALE = "(?:[ -](?:dozen|hundred|hundredth|thousand|million|billion|trillion))+"
# "one hundred and two hundred" are two
_SPELLED = re.compile(rf"\b{_SMALL}(?:{_SCALE}(?:(?: and (?!\w+ hundred)| ){_SMALL})?)*\b", re.IGNORECASE)
_LATER = re.compile(
    r"(?P<day>翌[日朝]|(?:next|following) (?:day|morning|evening))|翌年|(?:next|following) year"
    r"|(?P<years>[a-z]+|[\d〇一二三四五六七八九十]+)(?: years? |年)(?:later|after|後)",
    re.IGNORECASE,
)
_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_BEFORE = 200  # characters before a sentence, to which "in the same year" points
_SAME_DATE = re.compile(r"\b(?:same|that|these|those) (?:year|month|day|date)s?\b", re.IGNORECASE)
_RANGE = re.compile(r"(\d+)[-\u2010-\u2015/~\u301c]\Z")
# Of a model or version, as "A380"; what counts has its own rules.
_LABEL = re.compile(rf"(?<![\d.,{LATIN}])([{LATIN}]+)\d+")
_ROUGH = re.compile(rf"({_FIGURES.pattern})\D+")
_UNITS = {
    "%": "%|percent|per cent|パーセント", "decade": "(?<=0)s|年代", "day": "days?",
    "kcal": "kcal|キロカロリー", "ml": "ml|mL|millilit(?:er|re)s?|ミリリットル",
    "mg": "mg|milligram(?:me)?s?|ミリグラム",
    "mm": "mm|millimet(?:er|re)s?|ミリ(?:メートル)?", "cm": "cm|centimet(?:er|re)s?|センチ(?:メートル)?",
    "kg": "kg|kilogram(?:me)?s?|キログラム", "km": "km|kilomet(?:er|re)s?|キロ(?:メートル)?",
    "m": "m|met(?:er|re)s?|メートル", "g": "g|gram(?:me)?s?|グラム", "litre": "lit(?:er|re)s?|リットル",
    "mile": "miles?|マイル", "foot": "f(?:oo|ee)t|ft|フィート",
    "tonne": "tonn?es?|tons?|t|トン", "degree": "°|degrees?|度", "yen": "yen|円",
    "dollar": "dollars?|ドル", "pound": "pounds?|lbs?|ポンド", "euro": "euros?|ユーロ", "hour": "hours?|時間",
    "minute": "minutes?|分間?", "second": "seconds?|秒間?", "week": "weeks?|週間?", "year": "years?",
    "month": "months?|[かカヶヵケ]月", "century": "centur(?:y|ies)|世紀", "人": "人|名", "歳": "歳|才",
    **{unit: unit for unit in "年月日時回位番勝敗戦馬着倍階台"},
}  # fmt: skip
_UNIT_NAMES = [*_UNITS]
_UNIT = re.compile(
    r"(?:st|nd|rd|th)?[ -]?(?:square |cubic |平方|立方)?"
    rf"(?:{'|'.join(f'({form})' for form in _UNITS.values())})(?![a-z])"
)


def _ungrounded(text: _Text, context: _Context, said_by: str) -> Iterator[tuple[str, str]]:
    """What a proposition says and its passage does not, or not in the sentences that say it; and that in words."""
    for number in text.numbers:
        shown, unit = _short(number.shown), number.unit
        if not number.is_plain:
            continue
        if context.has_number(number):
            if other := _in_its_place(number, text, said_by, context):
                yield f"{shown} {other}", f'"{shown}" is in the passage, but where it says this it has "{other}"'
        elif context.values().isdisjoint(number.values):
            yield shown, f'"{shown}" is not in the passage'
        else:
            yield f"{shown} {unit}", f'"{shown}" is in the passage, but not with "{unit}"'
    for label in _LABEL.finditer(text.plain):
        if not _UNIT.fullmatch(label[1]) and _squeeze(label[0]) not in context.squeezed:
            yield label[0], f'"{_short(label[0])}" is in neither the passage nor its title or section'
    for quotation in _QUOTATION.finditer(text.plain):
        if (said := _squeeze(quotation[0])) not in context.squeezed:
            yield said, f'the quotation "{_short(quotation[0][1:-1])}" is not in the passage'
    for name in _unknown_names(text, context):
        yield name, f'"{_short(name)}" is in neither the passage nor its title or section'


def _in_its_place(number: _Number, text: _Text, said_by: str, context: _Context) -> str:
    """What the sentences that say a proposition have in place of one of its numbers; "" where they have that."""
    source = _taken_apart(said_by)
    before = context.plain.partition(source.plain)[0][-_BEFORE:] if _SAME_DATE.search(source.plain) else ""
    said = context.anywhere, source.values(number.unit), _taken_apart(before).values(number.unit)
    if not all(values.isdisjoint(number.values) for values in said):
        return ""
    others = (one for one in source.numbers if one.is_plain and one.counts == number.counts)
    return next((one.shown for one in others if text.values().isdisjoint(one.values)), "")


# Names


_QUOTATION = re.compile(r'"[^"\n]{2,}"|“[^“”\n]{2,}”|「[^「」\n]{2,}」|『[^『』\n]{2,}』')
_ENDINGS = {""} | words(
    "s n an ian ish land y dy ies ic ese i al ay egian e er ers ist ists ism ing ed ns ans ians men man a en ean eans"
)
_PEOPLES = {
    "french": "france", "spanish": "spain", "english": "england", "dutch": "netherlands", "danish": "denmark",
    "welsh": "wales", "scottish": "scotland", "scots": "scotland", "irish": "ireland", "polish": "poland",
    "swedish": "sweden", "turkish": "turkey", "greek": "greece", "swiss": "switzerland", "british": "britain",
    "american": "america", "americans": "america", "chinese": "china", "japanese": "japan",
    **{month[:3]: month for month in _MONTH[3:-1].lower().split("|")},
}  # fmt: skip
_OF_A_NAME = re.compile(r" (?:is|was|are|were|has|had|have|[a-z]{2,}ed)\b|[ -][A-Z]|['’]s\b")
_TITLED = re.compile(r"\b(?:Mrs?|Ms|Mx|Dr|Prof|Rev|Sen|Gov|Gen|Capt|St)\.\Z")
_SURNAME = re.compile(rf" ([A-Z][{LATIN}'’-]+)")


@lru_cache(maxsize=1 << 14)
def _stem(word: str) -> str:
    word = "america" if word in ("US", "U.S.", "USA") else normal(word.replace("’", "'"))
    word = word.removesuffix("'s").rstrip("'").replace(".", "")
    return _PEOPLES.get(word, word)


def _is_inflected(word: str, other: str) -> bool:
    if word[:4] != other[:4]:
        return False
    shared = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    return shared >= 4 and word[shared:] in _ENDINGS and other[shared:] in _ENDINGS


def _unknown_names(text: _Text, context: _Context) -> Iterator[str]:
    if context.language == "ja":
        places = {found[0] for found in _PLACE_JA.finditer(text.plain)}
        yield from sorted(place for place in places if place not in context.plain)
        yield from (token[0] for token in text.tokens if _is_unknown_ja(token, context))
    elif context.language == "en":
        yield from (token[0] for token in text.tokens if _is_unknown_en(text, token, context))


def _is_unknown_en(text: _Text, token: re.Match[str], context: _Context) -> bool:
    word = token[0]
    if token.lastgroup != "latin" or not word[0].isupper() or context.has_word(word) or word.lower() in _DIGITS:
        return False
    before = text.plain[: token.start()].rstrip(" \"'“‘(")
    is_first = not before or (before[-1] in ".!?:;\n" and not _TITLED.search(before))
    if is_first and (word.lower() in STOP_WORDS or not _OF_A_NAME.match(text.plain, token.end())):
        return False
    return not _is_given(text, token, context) and not _is_abbreviated(word, text, context)


def _is_given(text: _Text, token: re.Match[str], context: _Context) -> bool:
    """Whether a word is the given name of somebody whom the passage knows by the surname alone."""
    surname = _SURNAME.match(text.plain, token.end())
    if surname is None or not context.has_word(surname[1]):
        return False
    full = rf"[A-Z][\w.]* {re.escape(surname[1])}\b|\b{re.escape(surname[1])} of "  # a university has no given name
    return not re.search(full, context.plain)


def _is_abbreviated(word: str, text: _Text, context: _Context) -> bool:
    """Whether a word of a text abbreviates names of the passage, or belongs to a name whose abbreviation is there."""
    word = word.replace(".", "").removesuffix("s")
    if len(word) > 1 and word.isupper():
        return word in context.initials
    return any(len(short) > 1 and word[0] in short and short in text.initials for short in context.abbreviations)


def _is_unknown_ja(token: re.Match[str], context: _Context) -> bool:
    """Whether a run is a name that the passage has not, as far as that can be told without a dictionary.

    Propositions say much in other words than their passage. What few of these consist of is two kanji in a row that the
    passage has nowhere.
    """
    run = token[0]
    if token.lastgroup == "latin":
        return not _UNIT.fullmatch(run) and run.lower() not in context.plain.lower()
    if token.lastgroup == "katakana":
        return not _UNIT.fullmatch(run) and len(run) > 1 and _bare(run) not in context.katakana
    if token.lastgroup != "kanji" or len(run) == 1 or _PLACE_JA.match(run):
        return False
    new = "".join(" " if character in context.plain else character for character in run)
    named = (part for part in new.split() if len(part) > 1 and part not in _SOMEONES)
    return any(part[i : i + 2] not in _COMMON_KANJI for part in named for i in range(0, len(part) - 1, 2))


_PAIRS = (
    "日本外国世界国内海外全国各地地域地方国家政府国民住民市民人物人々人間男性女性子供父親母親両親兄弟家族出身誕生死亡"
    "死去結婚就任退任引退選手騎手騎乗出走出場参加出席優勝勝利敗北対戦競走受賞獲得達成記録更新成功失敗意味由来語源起源"
    "名称呼称別名略称通称愛称表記英語漢字文字言語文言文書著書書籍資料情報内容記述説明紹介言及定義解釈表現主張提案批判"
    "支持反対賛成対立理由目的目標原因結果影響効果方法手段過程段階特徴性質機能構造形状部分要素要因成分種類分類条件状態"
    "状況環境程度範囲期間時期時代年代当日同日翌年前年当初当時従来現在過去将来最終以前以後以降以来以上以下以外以内全体"
    "一部大半多数少数複数両方双方唯一最初最後最大最小最高最低最長最短場合場所場面機会立場役割順位回数人数割合距離面積"
    "人口重量金額価格費用材料原料製品製造生産販売輸入輸出消費供給技術現象問題課題対象対策対応関係関連組織団体機関企業"
    "会社学校大学研究調査実験観測計画事業活動運動制度法律規定規格基準開催実施開始終了完成建設設立設置結成使用利用着用"
    "発生発見発表発売公開出版所在所属所有位置移動移転変更変化増加減少上昇低下拡大縮小発展成立廃止停止中止継続維持保護"
    "管理運営支配担当協力支援労働必要可能重要主要有名一般特別特定独自独立共通実際通常比較同様相当例外作品作者歴史文化"
    "社会経済政治軍事宗教科学自然動物植物生物所要料金営業休業定休年齢身長体重速度温度気温容量定員収容入場見学予約申請提出"
    "期限連絡通知確認登録追加削減改正施行適用義務権利禁止許可違反勤務従業社員職員業務業績売上利益収入支出予算契約合意調理"
    "料理食材分量手順治療診断症状患者医師服用予防感染合格入学卒業在籍試合得点職業電話番号"
)
_COMMON_KANJI = frozenset(_PAIRS[i : i + 2] for i in range(0, len(_PAIRS), 2))
# Places whose characters are in other words too.
_PLACE_JA = re.compile(
    "北海道|青森|岩手|宮城|秋田|山形|福島|茨城|栃木|群馬|埼玉|千葉|東京|神奈川|新潟|富山|石川|福井|山梨|長野|岐阜|静岡|愛知|三重|滋賀"
    "|京都|大阪|兵庫|奈良|和歌山|鳥取|島根|岡山|広島|山口|徳島|香川|愛媛|高知|福岡|佐賀|長崎|熊本|大分|宮崎|鹿児島|沖縄|東北|北陸|関東"
    "|関西|近畿|東海|九州|四国|中国|米国|英国|韓国|朝鮮|台湾|中東|欧州|欧米|東欧|西欧|南米|北米|華[北中南]|大西洋|太平洋|江戸"
)

# Words that point at something that the proposition does not name


_OPENING = r"[\s(*_]*"  # no quotation mark: what begins with one may be a title
_POINTING = re.compile(
    rf"{_OPENING}(?:(?:In|On|By|Since|After|Before|During|From|Until|Around|At) (?:the |early |late |mid-|end of )*"
    rf"(?:(?:{_MONTH}|\d\w*|century|spring|summer|autumn|winter|season)[ ,–-]+)+"
    r"|(?:At|During|In|By|Since|After|Before|According to) (?=th(?:is|at|ese|ose)\b|h(?:im|er)\b)"
    r"|There,? (?=s?he |they |it )"
    r"|(?:However|Later|Then|Also|Today|Now|Here|Additionally|Moreover|Furthermore|Thus|Finally|Initially),? )?"
    r"(?P<word>it|he|she|they|its|his|her|him|their|them|this|that|these|those|the latter"
    r"|the former(?=,|'s| (?:is|was|are|were|has|had|[a-z]{2,}ed)\b))\b(?=['’\s,])",
    re.IGNORECASE,
)
# "It is known that", "It was in 1850 that", "It took years to", "It rained": nothing is meant. "It" of "It has three
# floors" is.
_EXPLETIVE = re.compile(
    r"those (?:\w+ ){0,2}(?:who|whose|that|which)\b"
    r"|it (?:\w+ )?(?:(?:is|was|has been|had been|be|became|seems|appears|happened|turned) .*\b(?:that|who|when)\b"
    r"|(?:is|was|has been|be|became|remains) (?:\w+ ){0,3}(?:possible|likely|important|difficult|easy|hard|necessary"
    r"|common|rare|customary|usual|(?:un)?known|unclear|late|early)\b"
    r"|took .*\b(?:to|before|until)\b|(?:is |was |has been |had been )?(?:rain|snow|hail|thunder))",
    re.IGNORECASE,
)
_POINTING_JA = re.compile(
    rf"{_OPENING}(?:[\d〇一二三四五六七八九十元年月日時世紀代末初頭中旬後期前半頃ごろ春夏秋冬]+(?:に|から|まで|で|、|の)+は?、?"
    r"|(?:また|さらに|なお|しかし|そして|ただし|一方)、)?"
    r"(?P<word>それ(?!ぞれ|以[降来前])|これ(?!ま)|あれ(?=は|が|を)|彼女|彼(?!岸|方|我)"
    r"|同(?![様時盟志窓僚胞意額義種][^はがにの、]?)[一-鿿]|当時|当該|本(?:[馬作書機種人艦船校駅線件])|同じ[年月日]|(?:二人|氏)(?=[はがも])|前者|後者|両者"
    r"|その|この|あの|[そこ]こ(?=[はがでにをのも]|から)|[そこ]う(?:した|いう)|[そこ]のよう|自ら|自身|わが(?=[国社校町]))"
)
# What is always something's or someone's: without saying whose, it opens no proposition.
_SOMEONES = words(
    "鞍上 騎手 主戦騎手 調教師 馬主 生産者 馬名 父 母 母の父 父親 母親 両親 妻 夫 長男 長女 次男 息子 娘"
    " 兄 弟 姉 妹 祖父 祖母 通算成績 獲得賞金 勝ちタイム 着差 本名 別名 旧名 通称 愛称 略称 英語名 英語表記"
    " 読み 名前 名称 語源 由来 所在地 本社 本部 創業者 社長 会長 作者 著者 監督 主演 主題歌 面積 人口 標高"
    " 全長 総延長 高さ 長さ 幅 深さ 直径 重さ 重量 首都 目的 理由 原因 結果 設計者"
)
_SOMEONES_JA = re.compile(rf"{_OPENING}({'|'.join(_SOMEONES)})(?:は|が|も)")


def _unresolved(text: _Text, context: _Context) -> str:
    """What is not clear about a proposition without what stood before it; "" where all is."""
    plain, title = text.plain, context.title
    if title and plain.startswith(title):  # as "This American Life"
        return ""
    found = whose = None
    if context.language in ("en", "latin"):
        found = _POINTING.match(plain)
        if found and _EXPLETIVE.match(plain, found.start("word")):
            return ""
    elif context.language == "ja":
        found = _POINTING_JA.match(plain)
        whose = None if title and title in plain else _SOMEONES_JA.match(plain)
    if found:
        return f'nothing in it says what "{found["word"]}" stands for'
    return f'it does not say whose "{whose[1]}" is meant' if whose else ""


# Repetitions and sizes


_WORD = re.compile(rf"[{LATIN}]+|\d+|[^\W{LATIN}\d_]")
_SMALL_WORDS = words("a an the は が も")


def _words_of(text: _Text) -> tuple[object, ...]:
    """What is equal for propositions that say the same words, perhaps in another order, of the same names."""
    words = sorted(word for word in _WORD.findall(text.plain.lower()) if word not in _SMALL_WORDS)
    names = [token[0].lower() for token in text.tokens if token.lastgroup != "number" and not token[0].islower()]
    return tuple(words), tuple(name for name in names if name not in STOP_WORDS)


def _wrong_size(text: _Text, passage: str, context: _Context) -> str:
    """Why a proposition is too short or too long; "" where it is not."""
    is_long = len(text.plain) >= 0.9 * len(passage.strip())
    if is_long and sum(part.kind == "sentence" for part in segment(passage)) > 1 < len(segment(text.plain)):
        return "it is the whole passage of several sentences"
    is_one = (
        not re.search(r"[ぁ-ん]", text.plain) and len(text.squeezed) < 15
        if context.language == "ja"
        else len(text.plain.split()) == 1 and all(token.lastgroup in ("latin", "number") for token in text.tokens)
    )
    return "it is a single word" if is_one and len(text.tokens) < 3 else ""


def _other_language(passage: str, propositions: Sequence[str]) -> Iterator[Finding]:
    if found := find_wrong_language(passage, propositions):
        name = LANGUAGE_NAMES.get(found, "another language")
        wrong: list[int | None] = [i for i, text in enumerate(propositions) if find_wrong_language(passage, [text])]
        yield from (Finding("language", index, None, f"it is in {name}") for index in wrong or [None])
