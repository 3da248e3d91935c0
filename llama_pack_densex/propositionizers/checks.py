"""Whether propositions say what their passage says and can be understood alone. Pure: texts in, findings out.

Rules and short lists, measured on English and Japanese with `benchmarks/checks.py`: no model and no dictionary.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from llama_pack_densex.propositionizers.alignment import align, uncovered
from llama_pack_densex.propositionizers.base import Finding, Passage, PropositionSet
from llama_pack_densex.propositionizers.language import (
    LANGUAGE_NAMES,
    detect_language,
    find_wrong_language,
    unwrapped,
    words,
)
from llama_pack_densex.propositionizers.prompts import unique
from llama_pack_densex.propositionizers.sentences import find_regions, passage_sentences, segment, sentence_spans


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
    blocks = {passage.text[part.start : part.end] for part in find_regions(passage.text) if part.kind == "block"}
    stated = [(index, _Text(text)) for index, text in enumerate(propositions) if text.strip() and text not in blocks]
    context = _Context(passage, " ".join(text.plain for _, text in stated))
    findings = [*_other_language(passage.text, propositions)]
    reported: set[str] = set()
    said: dict[tuple[object, ...], int] = {}
    sources = align(passage.text, [propositions[index] for index, _ in stated])
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
    return findings + [_missing(passage.text, span) for span in _unsaid(passage.text, propositions)]


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
            texts[index] = _source_of(texts[index], passage.text)
            found.append((texts[index], finding))
    for start, end in _unsaid(passage.text, texts):
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


def _source_of(proposition: str, passage: str) -> str:
    spans = align(passage, [proposition])[0]
    return passage[spans[0][0] : spans[-1][1]] if spans else passage_sentences(passage)[0]


def _unsaid(passage: str, propositions: Sequence[str]) -> list[tuple[int, int]]:
    """What no proposition says, less the numbers and names that stand there in another form."""
    if not (missing := uncovered(passage, propositions)):
        return []
    whole, stated = _Text(passage), _Context(Passage("\n".join(propositions)), "")

    def is_said(term: str) -> bool:
        if term[0].isdecimal():
            meant = (one for one in whole.numbers if term in _FIGURES.findall(one.shown))
            return any(not stated.values.isdisjoint(one.values) for one in meant)
        if _UNIT.fullmatch(term) or stated.has_word(term) or _even(term) in stated.katakana:
            return True
        return any(token[0] == term and _is_abbreviated(whole, i, stated) for i, token in enumerate(whole.tokens))

    terms = (unicodedata.normalize("NFKC", passage[slice(*span)]) for span in missing)
    return [span for span, term in zip(missing, terms, strict=True) if not (_TERM.fullmatch(term) and is_said(term))]


def _missing(text: str, span: tuple[int, int]) -> Finding:
    return Finding("coverage", None, span, f'no proposition says "{_short(text[slice(*span)])}"')


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:59]}…"


# What a text consists of, after NFKC: numbers in figures and kanji, words in Latin letters, katakana, other kanji.
_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"
_NUMERAL = "[〇零一二三四五六七八九十百千万億兆]"
_TOKEN = re.compile(
    rf"(?P<latin>[{_LATIN}]+(?:['’][{_LATIN}]+)*(?:(?<=\b[A-Z])(?:\.[A-Z])+\b\.?)?)"
    rf"|(?P<number>(?:\d+(?:,\d{{3}})*(?:\.\d+)?|(?!四半期){_NUMERAL})+)"
    r"|(?P<katakana>[ァ-ヺー]+(?:[・=][ァ-ヺー]+)*)"
    rf"|(?P<kanji>(?:(?!{_NUMERAL}+[年月日時分秒人名歳回位番勝敗戦階度倍円頭枚本件種個社校隻号冊章条巻点票席部棟層町村次个つかカヶ]"
    rf"|(?<=[約约]){_NUMERAL})[々〆㐀-䶿一-鿿豈-﫿])+)"  # 昭和 of 昭和五十年
)
_FIGURES = re.compile(r"\d+(?:[.,]\d+)*")
_TERM = re.compile(rf"{_FIGURES.pattern}|[{_LATIN}]+|[ァ-ヺー]+")
# How one says degrees, which quarter it is, and by which power a unit is: left out.
_SCALE = re.compile(
    rf"(?:(?<=°)[CF]|(?<=degrees )(?:Celsius|Fahrenheit|C|F))(?![{_LATIN}])|[摂華]氏(?=\d)|(?<=[ckm\d ]m)[23](?!\d)"
    rf"|(?<![{_LATIN}])Q(?=[1-4](?!\d))|第(?=[1-4一二三四]四半期)|(?<=[1-4一二三四])四半期|(?<=\d):00(?![\d:])"
    r"|(?:square|cubic) (?=\w*m(?:et(?:er|re)s?|iles?)?\b|f[oe][oe]t)|[平立]方(?=[キメセミ])"
)
_TENTHS = re.compile(r"([\d一二三四五六七八九]) ?割 ?([\d一二三四五六七八九]) ?分")
_SCALED = ("°", "degrees ", "氏", "m2", "m3", "square ", "cubic ", "平方", "立方", "Q", "四半期", ":00")


class _Text:
    """A text, taken apart once.

    Attributes:
        plain: The text in NFKC, with units in their shortest form.
        tokens: Its numbers and words in order.
    """

    def __init__(self, text: str) -> None:
        self.plain = unicodedata.normalize("NFKC", unwrapped(text)).replace("元年", "1年")
        if any(mark in self.plain for mark in _SCALED):
            self.plain = _SCALE.sub("", self.plain)
        self.plain = _TENTHS.sub(lambda found: f"{10 * _value(found[1]) + _value(found[2]):g}%", self.plain)
        self.tokens = list(_TOKEN.finditer(self.plain))

    @cached_property
    def numbers(self) -> list[_Number]:
        return _numbers(self)

    @cached_property
    def values(self) -> set[float]:
        return {value for number in self.numbers for value in number.values}

    @cached_property
    def squeezed(self) -> str:
        return _squeeze(self.plain)


@lru_cache(maxsize=64)
def _source(text: str) -> _Text:
    """Sentences of a passage, which several propositions come from."""
    return _Text(text)


class _Context(_Text):
    """What propositions are held against: the passage, its title and its section.

    Args:
        passage: The passage.
        stated: The propositions, which tell English where the passage is too short to.
    """

    def __init__(self, passage: Passage, stated: str) -> None:
        super().__init__("\n".join((passage.title, passage.section, passage.text)))
        self.title = unicodedata.normalize("NFKC", passage.title)
        heads = f"{passage.title}\n{passage.section}"
        language = detect_language(passage.text, heads)
        self.language = detect_language(f"{self.plain}\n{stated}", heads) if language == "latin" else language
        self.pairs = {(value, number.unit) for number in self.numbers for value in number.values}
        years = {step for step, said in _YEAR_STEPS.items() if re.search(said, self.plain, re.IGNORECASE)}
        for found in _YEARS_ON.finditer(self.plain):
            sign = -1 if found[2] in ("earlier", "before", "前") else 1
            years |= {sign * value for value in _Text(found[1]).values}
        days = {1.0} if _NEXT_DAY.search(self.plain) else set()
        for steps, least, most in ((years, 1000, 2200), (days, 1, 31)):
            self.pairs |= {
                (value + step, unit) for value, unit in self.pairs for step in steps if least <= value < most
            }
        self.centuries = {value // 100 + 1 for value in self.values if 1000 <= value < 2200}
        self.decades = {value // 10 for value in self.values}
        in_words = {value for value, said in _IN_WORDS.items() if re.search(said, self.plain, re.IGNORECASE)}
        self.pairs |= {(value, "") for value in in_words}
        later = {value for value, _ in self.pairs} - self.values
        self.next_days = {value for value in later if value <= 31}
        self.known = later | _Text(f"{passage.title}\n{passage.section}").values | in_words  # true anywhere
        self.values |= later | in_words
        self.bare_days = {one.values[0] for one in self.numbers if one.unit == "日" and not one.labels}
        self.labels: defaultdict[str, set[float]] = defaultdict(set)
        for number in self.numbers:
            for label in filter(None, (*number.labels, number.event, number.unit)):
                self.labels[label].update(number.values)
        self.words: set[str] = set()
        self.surnames: set[str] = set()  # words with a capital that follow none anywhere
        following: set[str] = set()
        self._alike: defaultdict[str, list[str]] = defaultdict(list)
        initials, end = "", -1
        for token in self.tokens:
            if token.lastgroup != "latin":
                continue
            word = _stem(token[0])
            if word not in self.words:
                self.words.add(word)
                self._alike[word[:4]].append(word)
            if token[0][0].isupper():
                alone = end < 0 or self.plain[end : token.start()] != " "
                alone = alone and not self.plain.startswith(" of ", token.end())  # a university has no given name
                (self.surnames if alone else following).add(word)
                initials, end = initials + token[0][0], -1 if word in _NO_NAMES or word in _MONTHS else token.end()
            elif word not in _JOINING:
                initials, end = initials + " ", -1
        self.initials = initials
        self.surnames -= following

    @cached_property
    def katakana(self) -> str:
        return _even(self.plain)

    @cached_property
    def abbreviations(self) -> set[str]:
        return {token[0].replace(".", "") for token in self.tokens if token.lastgroup == "latin" and token[0].isupper()}

    def has_other(self, label: str, number: _Number) -> bool:
        """Whether a label stands before other numbers, and never before this one or before none."""
        others = self.labels.get(label, set())
        if number.unit == "日" and number.values[0] in self.bare_days:  # of the month that was named before
            return False
        days = {float(one) for one in number.labels if one.isdecimal()}  # whose year may be named before them
        if not self.next_days.isdisjoint(number.values) or not others.isdisjoint(days):
            return False
        bare = rf"(?<![\w.,]){re.escape(label)}(?!(?:[ -]|, )?\d)(?![{_LATIN}\d])"
        return bool(others) and others.isdisjoint(number.values) and not re.search(bare, self.plain)

    def has_word(self, word: str) -> bool:
        """Whether a word in Latin letters occurs, inflected as it may be."""
        stem = _stem(word)
        if stem in self.words or stem.rstrip("s") in self.words:
            return True
        return any(_is_inflected(stem, other) for other in self._alike.get(stem[:4], ()))


def _squeeze(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _even(katakana: str) -> str:
    for written, same in zip(("ヴァ", "ヴィ", "ヴェ", "ヴォ", "ヴ"), "バビベボブ", strict=True):
        katakana = katakana.replace(written, same)
    return re.sub("[ー・= ]", "", katakana)


# Numbers


@dataclass(frozen=True)
class _Number:
    """A number in a text.

    Args:
        values: What it may mean: 3.5 million is 3.5 as well.
        unit: What it counts, as far as that is known; else "".
        labels: What stands right before it: "TS" of TS 16949, "6月" of 6月2日, "March" and "5" of March 5, 1974.
        event: What it is the year of: "年の星霜記念" of 2021年の星霜記念; else "".
        shown: How it is written.
        is_plain: Whether it can be told from a part of a word (一 in 一般) or a pronoun (one).
    """

    values: tuple[float, ...]
    unit: str
    labels: tuple[str, ...]
    event: str
    shown: str
    is_plain: bool

    @property
    def counts(self) -> str:
        """What it counts: a year is one in any notation."""
        return "年" if self.unit in ("", "年") and 1000 <= self.values[0] < 2200 else self.unit


def _numbers(text: _Text) -> list[_Number]:
    found: list[_Number] = []
    tokens, position = text.tokens, 0
    for start in [i for i, token in enumerate(tokens) if token.lastgroup == "number" or token[0] in _SPELLED]:
        if start < position:  # a part of the one before
            continue
        first = last = tokens[start]
        position = start + 1
        if first.lastgroup == "number":
            values, is_plain = [_value(first[0])], len(first[0]) > 1 or first[0].isdecimal()
        else:
            spelled = _SPELLED[first[0]]
            values, is_plain = [spelled], spelled > 1
        while position < len(tokens) and tokens[position].lastgroup == "latin":
            is_scaled = last.lastgroup == "latin" and values[-1] >= 100
            is_joined = is_scaled and tokens[position][0] == "and" and not _HUNDRED.match(text.plain, last.end())
            token = tokens[min(position + is_joined, len(tokens) - 1)]
            more = _SPELLED.get(token[0])
            if not more or text.plain[last.end() : token.start()] not in (" ", "-", "\u2010", "\u2011", " and "):
                break
            if more >= 100 or token[0] == "dozen":
                values.append(values[-1] + values[-1] % more * (more - 1))
            elif is_scaled or (20 <= values[-1] < 100 and more < 10):
                values[-1] += more
            else:
                break
            last, is_plain = token, True
            position += 1 + is_joined
        if first.lastgroup == "latin":
            del values[:-1]
        shown = text.plain[first.start() : last.end()]
        before = _RANGE.search(text.plain, max(0, first.start() - 6), first.start())
        if before and shown.isdecimal() and len(shown) < len(before[1]):  # 1754-63
            values.append(float(before[1][: -len(shown)] + shown))
        is_plain = is_plain or (values != [1.0] and bool(_COUNTER.match(text.plain, last.end())))
        unit = _unit_of(text.plain, first.start(), last.end())
        is_afternoon = unit == "時" and text.plain.endswith("午後", 0, first.start())
        if is_afternoon or _AFTERNOON.match(text.plain, last.end()):
            values.append(values[-1] + 12)
        if unit == "年" and (era := _ERAS.get(text.plain[max(0, first.start() - 2) : first.start()])):
            values.append(values[-1] + era)
        if text.plain.startswith("割", last.end()) and unit == "%":
            values = [10 * value for value in values]
        label = _LABEL.search(text.plain, max(0, first.start() - 30), first.start())
        labels = tuple(one for one in label.groups() if one and one.lower() not in _NO_NAMES) if label else ()
        event = _EVENT.match(text.plain, last.end())
        found.append(_Number(tuple(values), unit, labels, event[0] if event else "", shown, is_plain))
    return found


def _value(written: str) -> float:
    total = section = current = 0.0
    for part in re.findall(r"\d[\d,]*(?:\.\d+)?|.", written):
        if part[0].isdecimal():
            current = float(part.replace(",", ""))
        elif (digit := "〇一二三四五六七八九".find(part)) >= 0 or part == "零":
            current = current * 10 + max(digit, 0)
        elif part in "十百千":
            section += (current or 1) * {"十": 10, "百": 100, "千": 1000}[part]
            current = 0
        else:
            total += (section + current or 1) * {"万": 1e4, "億": 1e8, "兆": 1e12}.get(part, 1)
            section = current = 0
    return total + section + current


# Words, and after them what they mean.
_SPELLED = {
    word: float(found[2])
    for found in re.finditer(
        r"([a-z ]+) (\S+)",
        "one first 1 two second twice 2 three third thirds 3 four fourth 4 five fifth fifths 5 six sixth 6 seven"
        " seventh 7 eight eighth 8 nine ninth 9 ten tenth 10 eleven eleventh 11 twelve twelfth dozen 12 thirteen"
        " thirteenth 13 fourteen fourteenth 14 fifteen fifteenth 15 sixteen sixteenth 16 seventeen seventeenth 17"
        " eighteen eighteenth 18 nineteen nineteenth 19 twenty twentieth 20 thirty thirtieth 30 forty fortieth 40 fifty"
        " fiftieth 50 sixty sixtieth 60 seventy seventieth 70 eighty eightieth 80 ninety ninetieth 90 hundred hundreds"
        " hundredth 100 thousand thousands 1000 million millions 1e6 billion billions 1e9 trillion 1e12",
    )
    for word in f"{found[1]} {found[1].title()}".split()
}
_HUNDRED = re.compile(r" and \w+ hundred\b")  # of one hundred and two hundred
_IN_WORDS = {  # what numbers are also said by
    0.0: "midnight|真夜中", 2.0: r"doubl|fortnight|(?<![\d数何〇一二三四五六七八九十百千万])倍",
    6.0: "half a (?:year|dozen)|半年|年半", 12.0: r"\bnoon|正午|ダース", 14.0: "fortnight",
    25.0: "a quarter of|[4四]分の[1一]", 30.0: "half(?: an|-) ?hour|half past|半時間|時間?半",
    50.0: "half (?:a century|of|the)|半世紀|半[数分額]", 90.0: "hour and a half|one and a half hours|[1一]時間半",
    5e5: "half a million", 5e8: "half a billion",
}  # fmt: skip
_ERAS = {"明治": 1867, "大正": 1911, "昭和": 1925, "平成": 1988, "令和": 2018}
_AFTERNOON = re.compile(r"(?::\d\d)? ?p\.?m\b")
_YEAR_STEPS = {
    1.0: r"翌年|明けた|(?:next|following) year|\b(?:a|one) year (?:later|after)",
    -1.0: "前年|(?:previous|preceding) year", -2.0: "一昨年",
}  # fmt: skip
_YEARS_ON = re.compile(r"([a-z]+|[\d〇一二三四五六七八九十]+)(?: years? |年)(later|after|earlier|before|後|前)")
_NEXT_DAY = re.compile(r"翌[日朝]|(?:next|following) (?:day|morning|evening)|\bday (?:later|after)")
_BEFORE = 200  # characters before a sentence, to which "in the same year" points
_SAME_DATE = re.compile(r"\b(?:same|that|these|those) (?:year|month|day|date)s?\b", re.IGNORECASE)
_LABEL = re.compile(
    rf"(?:((?<![{_LATIN}])[A-Z][{_LATIN}]*)(?: |-|, |)(?:(\d{{1,2}})(?: |, ))?|((?<!\d)\d{{1,2}})(?: |, )|(\d+月))\Z"
)
_EVENT = re.compile(r"年の?[ァ-ヺー㐀-鿿]{2,4}")
_RANGE = re.compile(r"(\d+)[-\u2010-\u2015/~\u301c]\Z")
_MONTH = "(January|February|March|April|May|June|July|August|September|October|November|December)"
_MONTHS = words(_MONTH[1:-1].lower().replace("|", " "))
_UNITS = {
    "%": "%|percent|per cent|パーセント|割(?!合)", "decade": "(?<=0)s|年代", "day": "days?",
    "m": "m|met(?:er|re)s?|メートル",
    "cm": "cm|centimet(?:er|re)s?|センチ(?:メートル)?",
    "km": "km|kilomet(?:er|re)s?|キロメートル|キロ(?!グラム|リットル|ワット)",
    "ml": "ml|mL|millilit(?:er|re)s?|ミリリットル", "mg": "mg|milligram(?:me)?s?|ミリグラム",
    "g": "g|gram(?:me)?s?|グラム", "mm": "mm|millimet(?:er|re)s?|ミリ(?:メートル)?(?!バール|秒)",
    "mile": "miles?|マイル", "foot": "f(?:oo|ee)t|ft|フィート", "kg": "kg|kilogram(?:me)?s?|キログラム",
    "tonne": "tonn?es?|tons?|t|トン", "litre": "lit(?:er|re)s?|リットル", "degree": "°|degrees?|度", "yen": "yen|円",
    "dollar": "dollars?|ドル", "pound": "pounds?|lbs?|ポンド", "euro": "euros?|ユーロ", "hour": "hours?|時間",
    "minute": "minutes?|分間?", "second": "seconds?|秒間?", "week": "weeks?|週間?", "year": "years?",
    "month": "months?|[かカヶヵケ]月", "century": "centur(?:y|ies)|世紀", "人": "人|名", "歳": "歳|才",
    **{unit: unit for unit in "年月日時回位番勝敗戦馬着倍階台"},
}  # fmt: skip
_COUNTED = [*_UNITS]
_UNIT = re.compile(rf"(?:st|nd|rd|th)?[ -]?(?:{'|'.join(f'({form})' for form in _UNITS.values())})(?![a-z])")
_DAY_BEFORE_MONTH = re.compile(rf"(?:st|nd|rd|th)?(?: of)? {_MONTH}\b")
_DAY_AFTER_MONTH = re.compile(rf"{_MONTH} (?:the )?\Z")
_COUNTER = re.compile("[つ頭枚本件種個社校隻号代基冊話章条巻作点票席機両駅行列組隊部版棟室里層段周泊字箇か町村次]")
_SIGNS = {"$": "dollar", "£": "pound", "€": "euro", "¥": "yen"}


def _unit_of(text: str, start: int, end: int) -> str:
    month = _DAY_BEFORE_MONTH.match(text, end) or _DAY_AFTER_MONTH.search(text, max(0, start - 14), start)
    if month and text[start].isdecimal() and end - start <= 2:
        return month[1]
    if start and text[start - 1] in _SIGNS:
        return _SIGNS[text[start - 1]]
    unit = _UNIT.match(text, end)
    return _COUNTED[unit.lastindex - 1] if unit and unit.lastindex else ""


def _ungrounded(text: _Text, context: _Context, said_by: str) -> Iterator[tuple[str, str]]:
    """What a proposition says and its passage does not, or not in the sentences that say it; and that in words."""
    for number in text.numbers:
        shown, unit = _short(number.shown), number.unit
        if unit == "century" and not context.centuries.isdisjoint(number.values):
            continue  # "in the nineteenth century" is said where a year is
        if unit == "decade" and not context.decades.isdisjoint(value // 10 for value in number.values):
            continue
        if context.values.isdisjoint(number.values):
            if number.is_plain or unit:
                yield shown, f'"{shown}" is not in the passage'
        elif unit and context.pairs.isdisjoint((value, one) for value in number.values for one in (unit, "")):
            yield f"{shown} {unit}", f'"{shown}" is in the passage, but not with "{unit}"'
        elif label := next((one for one in number.labels if context.has_other(one, number)), ""):
            yield f"{label} {shown}", f'"{shown}" is in the passage, but not after "{label}"'
        elif context.known.isdisjoint(number.values) and context.has_other(number.event, number):
            yield f"{shown} {number.event}", f'"{shown}" is in the passage, but not before "{number.event}"'
        elif other := _in_its_place(number, text, said_by, context):
            yield f"{shown} {other}", f'"{shown}" is in the passage, but where it says this it has "{other}"'
    for quotation in _QUOTATION.finditer(text.plain):
        if (said := _squeeze(quotation[0])) not in context.squeezed:
            yield said, f'the quotation "{_short(quotation[0][1:-1])}" is not in the passage'
    for name in _unknown_names(text, context):
        yield name, f'"{_short(name)}" is in neither the passage nor its title or section'


def _in_its_place(number: _Number, text: _Text, said_by: str, context: _Context) -> str:
    """What the sentences that say a proposition have in place of one of its numbers; "" where they have that."""
    is_named = any(number.values[0] in context.labels.get(label, ()) for label in number.labels)  # Voyager 2
    if is_named or not number.is_plain or not context.known.isdisjoint(number.values):
        return ""
    source = _source(said_by)
    before = context.plain.partition(source.plain)[0][-_BEFORE:] if _SAME_DATE.search(source.plain) else ""
    if not (source.values | _source(before).values).isdisjoint(number.values):
        return ""
    others = (one for one in source.numbers if one.is_plain and one.counts == number.counts)
    return next((one.shown for one in others if text.values.isdisjoint(one.values)), "")


# Names


_QUOTATION = re.compile(r'"[^"\n]{2,}"|“[^“”\n]{2,}”|「[^「」\n]{2,}」|『[^『』\n]{2,}』')
_JOINING = words("of and the for de du la le von van in on to")
_ENDINGS = {""} | words(
    "s n an ian ish land y dy ies ic ese i al ay egian e er ers ist ists ism ing ed ns ans ians men man a en ean eans"
)
_PEOPLES = {
    "french": "france", "spanish": "spain", "english": "england", "dutch": "netherlands", "danish": "denmark",
    "welsh": "wales", "scottish": "scotland", "scots": "scotland", "irish": "ireland", "polish": "poland",
    "swedish": "sweden", "turkish": "turkey", "greek": "greece", "swiss": "switzerland", "british": "britain",
    "american": "america", "americans": "america", "chinese": "china", "japanese": "japan",
    **{month[:3]: month for month in _MONTHS},
}  # fmt: skip
# What begins an English sentence, and what follows a name there.
_NO_NAMES = words(
    "a about according after all along also although among an another any around as asking at because before"
    " being between both but by contrary critics despite during each early either even every few first following"
    " for four from half he her here his how however i if in inside instead it its last later less like many more"
    " most much near neither never no nobody none nor not nothing of on once one only other others out outside"
    " over people per rather second several she similarly since so some such ten that the their then there"
    " therefore these they third this those though three through throughout to today together two under unlike"
    " until upon we what when where whether which while who with within without work workers"
)
_SURNAME = re.compile(
    rf"(?: (?:de|la|du|van|von|der|den|di|da|bin|ibn|al))* ([A-Z][{_LATIN}'’-]+)(?! [A-Z][{_LATIN}]+)"
)
_VERB = re.compile(
    r" (?:is|was|are|were|has|had|have|will|would|can|could|may|did|does|[a-z]{2,}ed|became|began"
    r"|brought|built|came|fell|fought|found|gave|grew|held|kept|led|left|lost|made|met|ran|rose|said|saw|sent|stood|took|won"
    r"|went|wrote)\b"
)


@lru_cache(maxsize=1 << 14)
def _stem(word: str) -> str:
    word = "america" if word in ("US", "U.S.", "USA") else word.replace("’", "'").lower()
    if not word.isascii():
        word = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    word = word.removesuffix("'s").rstrip("'").replace(".", "")
    return _PEOPLES.get(word, word)


def _is_inflected(word: str, other: str) -> bool:
    shared = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    return shared >= 4 and word[shared:] in _ENDINGS and other[shared:] in _ENDINGS


def _unknown_names(text: _Text, context: _Context) -> Iterator[str]:
    if context.language == "ja":
        is_told = any(not context.values.isdisjoint(number.values[1:]) for number in text.numbers)  # 2024 as 令和6年
        told = {*_ERAS, "午後"} if is_told else set()
        places = {found[0] for found in _PLACE_JA.finditer(text.plain)} - told
        yield from sorted(place for place in places if place not in context.plain)
        yield from (one[0] for one in text.tokens if one[0] not in told and _is_unknown_ja(one, context))
    elif context.language == "en":
        yield from (token[0] for i, token in enumerate(text.tokens) if _is_unknown_en(text, i, context))


def _is_unknown_en(text: _Text, index: int, context: _Context) -> bool:
    token = text.tokens[index]
    if token.lastgroup != "latin" or not token[0][0].isupper() or context.has_word(token[0]):
        return False
    surname = _SURNAME.match(text.plain, token.end())
    is_given = surname is not None and _stem(surname[1]) in context.surnames  # of one known by the surname alone
    return not is_given and _is_name(text.plain, token) and not _is_abbreviated(text, index, context)


def _is_name(plain: str, token: re.Match[str]) -> bool:
    """Whether a word with a capital is more than the first of a sentence."""
    before = plain[max(0, token.start() - 8) : token.start()].rstrip(" \"'“‘(")
    if token.start() and before[-1:] not in (*".!?:;", ""):
        return True
    if token[0].lower() in _NO_NAMES:
        return False
    after = plain[token.end() : token.end() + 20]
    return bool(_VERB.match(after) or (after[:1] in " -" and after[1:2].isupper())) or token[0].endswith(("'s", "’s"))


def _is_abbreviated(text: _Text, index: int, context: _Context) -> bool:
    """Whether a word abbreviates names of the passage, or belongs to a name whose abbreviation is there."""
    tokens = text.tokens
    word = tokens[index][0].replace(".", "").removesuffix("s")
    if len(word) > 1 and word.isupper():
        return word in context.initials
    near = [token for token in tokens[max(0, index - 5) : index + 6] if token[0][0].isupper()]
    initials = "".join(token[0][0] for token in near)
    return any(len(word) > 1 and word in initials for word in context.abbreviations)


def _is_unknown_ja(token: re.Match[str], context: _Context) -> bool:
    """Whether a run is a name that the passage has not, as far as that can be told without a dictionary.

    Propositions say much in other words than their passage. What few of these consist of is two kanji in a row that the
    passage has nowhere, or one of those that are hardly ever but in names.
    """
    run = token[0]
    if token.lastgroup != "kanji" and _UNIT.fullmatch(run):
        return False
    if token.lastgroup == "latin":
        return run.lower() not in context.plain.lower()
    if token.lastgroup == "katakana":
        *given, surname = re.split("[・=]", run)
        is_given = given and surname in context.plain and not re.search(f"[・=]{surname}", context.plain)
        return len(run) > 1 and run not in _COMMON_KATAKANA and not is_given and _even(run) not in context.katakana
    if token.lastgroup != "kanji" or len(run) == 1 or _PLACE_JA.match(run):
        return False
    if any(value in context.values and re.search(said, run) for value, said in _IN_WORDS.items()):
        return False
    new = "".join(" " if character in context.plain else character for character in run)
    return not _NAME_KANJI.isdisjoint(new) or any(len(part) > 1 and not _is_common(part) for part in new.split())


def _is_common(part: str) -> bool:
    return part in _SOMEONES or all(part[i : i + 2] in _COMMON_KANJI for i in range(0, len(part) - 1, 2))


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
_COMMON_KATAKANA = words(
    "レシピ メンバー チーム グループ ルート サイズ タイトル シリーズ シーズン システム サービス データ テーマ タイプ"
    " レベル リスク コスト スタッフ ルール ページ ケース ポイント トップ デビュー イベント プロジェクト"
)
# Places and eras whose characters are in other words too.
_PLACE_JA = re.compile(
    "北海道|青森|岩手|宮城|秋田|山形|福島|茨城|栃木|群馬|埼玉|千葉|東京|神奈川|新潟|富山|石川|福井|山梨|長野|岐阜|静岡|愛知|三重|滋賀"
    "|京都|大阪|兵庫|奈良|和歌山|鳥取|島根|岡山|広島|山口|徳島|香川|愛媛|高知|福岡|佐賀|長崎|熊本|大分|宮崎|鹿児島|沖縄|東北|北陸|関東"
    "|関西|近畿|東海|九州|四国|中国|米国|英国|韓国|朝鮮|台湾|中東|欧州|欧米|東欧|西欧|南米|北米|華[北中南]|大西洋|太平洋|明治|大正|昭和"
    "|平成|令和|江戸"
)
_NAME_KANJI = frozenset("阪奈岡埼崎藤佐伊斎郎彦沢浜島阿弥賀宮橋村")


# Words that point at something that the proposition does not name


_OPENING = r"[\s\"'“‘「『(*_]*"
_POINTING = re.compile(
    rf"{_OPENING}(?:(?:In|On|By|Since|After|Before|During|From|Until|Around|At) (?:the |early |late |mid-|end of )*"
    rf"(?:(?:{_MONTH[1:-1]}|\d\w*|century|spring|summer|autumn|winter|season)[ ,–-]+)+"
    r"|(?:At|During|In|By|Since|After|Before|According to) (?=th(?:is|at|ese|ose)\b|h(?:im|er)\b)"
    r"|There,? (?=s?he |they |it )"
    r"|(?:However|Later|Then|Also|Today|Now|Here|Additionally|Moreover|Furthermore|Thus|Finally|Initially),? )?"
    r"(?P<word>it|he|she|they|its|his|her|him|their|them|this|that|these|those|the latter"
    rf"|the former(?=,|'s|{_VERB.pattern}))\b(?=['’\s,])",
    re.IGNORECASE,
)
# "It is known that", "It was in 1850 that", "It rained": nothing is meant. "It" of "It has three floors" is.
_EXPLETIVE = re.compile(
    r"those (?:\w+ ){0,2}(?:who|whose|that|which)\b"
    r"|it (?:(?:now |also |then |later |still )?"
    r"(?:is|was|has been|had been|became|remains|seems|appears|would be|may be|can be) "
    r"(?:now |also |not |still |often |generally |widely |sometimes |usually |very |more |later |already |long |un)*"
    r"(?:(?:possible|likely|clear|true|known|said|believed|estimated|thought|argued|claimed|reported|important|difficult"
    r"|easy|hard|necessary|common|rare|assumed|agreed|decided|suggested|hoped|expected|alleged|certain|recognized"
    r"|considered|held|hypothesized|proposed|speculated|noted|suspected|customary|usual|too (?:late|early|soon))\b"
    r"|(?:implied|shown|found|feared|rumou?red|announced|observed|understood|established|documented) that\b"
    r"|(?:only |because |(?:in|on|at|by|during|under|through|from|with|after|until) ).* (?:that|when)\b"
    r"|(?-i:[A-Z]).* (?:that|who|whom)\b|(?:likely |possible )?that\b)"
    r"|(?:seems|appears|follows|happened|turned out) (?:\w+ )?that\b"
    r"|took (?:[\w'-]+ )*?(?:years?|months|weeks|days|hours|decades|centuries|time) .*?(?:to|before|until)\b"
    r"|(?:(?:is|was|had been|has been) )?(?:rain|snow|hail|thunder)(?:s|ed|ing|y)?\b)",
    re.IGNORECASE,
)
_POINTING_JA = re.compile(
    rf"{_OPENING}(?:[\d〇一二三四五六七八九十元年月日時世紀代末初頭中旬後期前半頃ごろ春夏秋冬]+(?:に|から|まで|で|、|の)+は?、?"
    r"|(?:また|さらに|なお|しかし|そして|ただし|一方)、)?"
    r"(?P<word>それ(?!ぞれ|以[降来前])|これ(?!ま)|あれ(?=は|が|を)|彼女|彼(?!岸|方|我)|同(?:[氏社年月日国校市地書作機馬誌紙船艦館駅線法会所局県町村島山川寺"
    r"城隊車店府]|大学|大会|時期|時代|地域|事件|作品|選手|監督|教授|博士)|当時|当該|本(?:[馬作書機種人艦船校駅線件])|同じ[年月日]|(?:二人|氏)(?=[はがも])|前者|後者|両者"
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
_PRONOUN_JA = re.compile(
    r"^[^はがを「『]{0,40}?(?:(?<=[、にでと])|^)(?P<word>彼女|彼ら?|同氏|同社|同馬|本馬|それ|これ)(?:は|が|も)"
)


def _unresolved(text: _Text, context: _Context) -> str:
    """Which word of a proposition needs what stood before it; "" for none."""
    plain = text.plain
    quoted = _QUOTATION.match(plain)
    if quoted and _squeeze(quoted[0]) in context.squeezed:
        return ""
    if context.language in ("en", "latin"):
        found = _POINTING.match(plain)
        if found is None or _EXPLETIVE.match(plain, found.start("word")):
            return ""
        named = re.match(rf".\w* [A-Z][{_LATIN}]*", plain[found.start("word") :])
        if named and re.search(rf"(?:\A|[a-z,;] |[\"“‘*_(]){re.escape(named[0])}", context.plain):
            return ""  # "This American Life"
    elif context.language == "ja":
        found = _POINTING_JA.match(plain) or _PRONOUN_JA.match(plain)
        if found is None:
            whose = _SOMEONES_JA.match(plain)
            if whose is None or (context.title and context.title in plain):
                return ""
            return f'it does not say whose "{whose[1]}" is meant'
        if plain.lstrip('「『“"')[: len(found[0]) + 2] in context.title:
            return ""
    else:
        return ""
    return f'nothing in it says what "{found["word"]}" stands for'


# Repetitions and sizes


_WORD = re.compile(rf"[{_LATIN}]+|\d+|[^\W{_LATIN}\d_]")
_SMALL = words("a an the は が も")


def _words_of(text: _Text) -> tuple[object, ...]:
    """What is equal for propositions that say the same words, perhaps in another order, of the same names."""
    words = sorted(word for word in _WORD.findall(text.plain.lower()) if word not in _SMALL)
    names = [token[0].lower() for token in text.tokens if token.lastgroup != "number" and not token[0].islower()]
    return tuple(words), tuple(name for name in names if name not in _NO_NAMES)


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
    if (found := find_wrong_language(passage, propositions)) is None:
        return
    why = f"it is in {LANGUAGE_NAMES.get(found, 'another language')}"
    wrong = [i for i, text in enumerate(propositions) if find_wrong_language(passage, [text])]
    for index in wrong:
        yield Finding("language", index, None, why)
    if not wrong:
        yield Finding("language", None, None, why.replace("it is", "the propositions are"))
