"""Sentence splitting, by rules on characters and short lists of abbreviations.

Libraries (sentencex, pysbd, blingfire) split English prose as well as these rules do, with the same retrieval
quality; but none of them both returns spans and keeps Japanese quotations together.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llama_pack_densex.text.layout import QUOTATION_MARK
from llama_pack_densex.text.layout import Span as Span
from llama_pack_densex.text.links import STRUCK_OUT
from llama_pack_densex.text.tokens import STOP_WORDS, words

STOPS = ".!?。！？｡．…؟۔।॥։።။"
QUOTES = "\"'”’»)］」』）］】〉》｣*_]"
CJK = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
WIDE = re.compile(
    "[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\U00020000-\U0003ffff]"
)

_SURE = "。！？｡؟۔।॥։።፧፨။។៕᠃⁇⁈⁉‼"
_SURE_MARKS = frozenset(_SURE)
_DOTS = ".…‥・･"
_TERMINATOR = re.compile(rf"(?:[{_SURE}．.!?…‥]|[・･]{{2,}})+")
_CLOSING = re.compile(
    r"(?:[ \xa0\u202f]»(?!\S)"  # French
    r"|[\"'”’»›)\]}」』｣）］】〉》〕*_¹²³⁰-⁹\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
    r"|“(?!\S)|\[\w{0,10} ?\d{1,3}\]"
    r"|\[\^[^\s\[\]]{1,20}\](?!:)"
    r"| ?[\U0001f1e6-\U0001faff\u2600-\u27bf]|[\ufe0f\u200d]|[♪♡♥☆★])*"
)
# White space, and the mark of a quotation that begins the next line.
_GAP = re.compile(rf"\s*\n{QUOTATION_MARK}[ \t]*(?=\S)|\s*")
_OPENING = re.compile(
    r"[\"'“‘«‹„(\[{「『｢（［【〈《〔<*_¿¡#\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]*"
)
_WORD = re.compile(r"[^\W\d_]{1,30}")
_LETTER = re.compile(r"[^\W_]")
_MARKER = re.compile(
    # "1", "(a)", "- iv", and what captions begin with: "Table 1", "図１"
    r"(?:[-*+•‣●■・>–—]\s*)*[(（]?"
    r"(?:(?:[^\W\d_]{1,12} ?)?[0-9０-９]{1,3}(?:\.[0-9]{1,3}){0,4}|[^\W\d_]|[ivx]{1,5}|[IVX]{1,5})[)）]?\s*"
)
# The title that a clause begins with: "2.1 Late Charge. It is", "2.1 **Refunds.** We"
_IN_TITLE = r"(?:[A-Z][\w'’-]*|and|or|of|the|to|for|in|on|by|with|&)"
_CLAUSE_TITLE = re.compile(
    r"[-* ]*(?:(?:Section|Article|Clause|§) ?)?\d{1,3}(?:\.\d{1,3})+\.?\s+"
    rf"(?:\*\*[^*\n]{{1,80}}|{_IN_TITLE}(?: {_IN_TITLE}){{0,7}})"
)
# What cannot begin a Japanese or Chinese sentence: a "！" or "。" before it is part of a name
# ("ラブライブ！を").
_NEVER_FIRST = re.compile(
    r"[、，,：:；;・ー々～〜]|を|と(?:いう|いった|思|言|聞|叫|考え|問|述べ|話|の)|への|での"
)
# What continues a sentence after a quotation that ends in a full stop: particles, but no words that begin
# like them.
_AFTER_QUOTATION = re.compile(
    r"[、，,：:；;・ー～〜…。]|と(?!ても|ころ|にかく|もかく|もに|ある|うとう|つぜん|きに|きどき)|って|など|なんて|を|だ(?!が|け|か)|です"
    r"|で(?!も|き)|が(?!ん)|は(?!い|っ|じめ)|に(?!っ|わ|こ|もかか)|も(?!ちろん|う|し|っと|とも|の)|の(?!ち|ん|ど)"
    r"|へ(?!え)|や(?!っ|が|は)|から|まで|より|的|地|了"
)


def split_sentences(run: str) -> list[Span]:
    """Return the spans of the sentences of a paragraph, which may be hard-wrapped."""
    opened_at = _match_brackets(run)
    quotations = _outermost_pairs(run, opened_at)
    bold_marks = [mark.end() for mark in re.finditer(r"\*\*", run)]
    knows_no_capitals = run.islower()
    spans: list[Span] = []
    begin = searched = 0
    for terminator in _TERMINATOR.finditer(run):
        start = terminator.start()
        if _is_in_number_or_name(run, terminator):
            continue
        end = _end_with_closing_marks(run, terminator.end(), bold_marks)
        if start < begin or _is_within(quotations, end):
            continue
        # A sentence has a letter or a digit. Nothing is searched twice, so that the time stays linear.
        if not _LETTER.search(run, max(begin, searched), start):
            searched = start
            continue
        opener = opened_at.get(end - 1, -1)
        stop = _Stop(run, begin, start, terminator[0], end, opener, knows_no_capitals)
        if _ends_sentence(stop):
            spans.append((begin, end))
            begin = searched = after_space(run, end)
    if spans and not _LETTER.search(run, begin):
        # a rest without letters, such as an emoji, belongs to the last sentence
        begin, _ = spans.pop()
    spans.append((begin, len(run)))
    return spans


def _is_in_number_or_name(run: str, terminator: re.Match[str]) -> bool:
    """Return whether a terminator is a full stop as in 3.14, 2.0.1 or www.example.org: a quick check
    of these frequent cases.
    """
    if terminator[0] != ".":
        return False
    around = run[max(terminator.start() - 1, 0) : terminator.end() + 1]
    return around[-1].isalnum() and around.isascii()


def _end_with_closing_marks(run: str, end: int, bold_marks: Sequence[int]) -> int:
    is_bold_closed = bisect_right(bold_marks, end) % 2 == 0
    if is_bold_closed and run.startswith("**", end):  # opens the next text, as in "です。**次**の"
        return end
    return _end_of(_CLOSING, run, end)


def _is_within(pairs: Sequence[Span], end: int) -> bool:
    """Return whether a place is within one of the pairs: after its beginning, and not after its end."""
    number = bisect_left(pairs, (end, 0)) - 1
    return number >= 0 and end <= pairs[number][1]


def after_space(text: str, start: int) -> int:
    """Return the position of the first character from `start` on that is not white space or the mark of a
    quotation.
    """
    return _end_of(_GAP, text, start)


def _end_of(pattern: re.Pattern[str], run: str, start: int) -> int:
    match = pattern.match(run, start)
    return match.end() if match else start


# Brackets and quotations

_PAIRS = dict(zip('(（[［「｢『【〔〈《“«"', '))]]」」』】〕〉》”»"', strict=True))
_CLOSERS = {"）": ")", "］": "]", "｣": "」"}
_CLOSERS |= {closer: closer for closer in _PAIRS.values()}
_BRACKET = re.compile("[" + re.escape("".join({*_PAIRS, *_CLOSERS})) + "]")
_LONGEST_QUOTATION = 400  # characters; a longer one is a text of its own, or two stray brackets


def _match_brackets(run: str) -> dict[int, int]:
    """Map the position of each closing bracket or quotation mark to that of its opening one; those
    that are never closed are left out.
    """
    opened_at: dict[int, int] = {}
    stack: list[tuple[str, int]] = []
    pending: defaultdict[str, int] = defaultdict(int)
    for bracket in _BRACKET.finditer(run):
        mark = bracket[0]
        place = bracket.start()
        closes = _CLOSERS.get(mark, "")
        closes_quotation = mark == '"' and pending['"'] and not run[place - 1].isspace()
        if mark in _PAIRS and not closes_quotation:
            closer = _PAIRS[mark]
            stack.append((closer, place))
            pending[closer] += 1
        elif pending[closes]:
            closer = ""
            while closer != closes:
                closer, opened_at[place] = stack.pop()
                pending[closer] -= 1
    return opened_at


def _outermost_pairs(run: str, opened_at: Mapping[int, int]) -> list[Span]:
    """Return the outermost spans of quotations, brackets and struck-out text; no sentence ends in them."""
    pairs = [(struck.start(), struck.end() - 1) for struck in STRUCK_OUT.finditer(run)]
    for closed, opened in opened_at.items():
        if closed - opened <= _LONGEST_QUOTATION:
            pairs.append((opened, closed))
    outermost: list[Span] = []
    for opened, closed in sorted(pairs):
        if not outermost or opened > outermost[-1][1]:
            outermost.append((opened, closed))
    return outermost


# What ends a sentence


@dataclass(slots=True)
class _Stop:
    """A terminator and its surroundings.

    Args:
        run: The text.
        begin: Where the sentence begins.
        start: Where the terminator begins.
        mark: The terminator.
        end: Where the sentence would end, after closing marks.
        opener: Where the bracket or quotation that ends there was opened; -1 if none does.
        knows_no_capitals: Whether the whole text is in lower case.
        after: Where the text continues, after white space.
        first: Where it continues, after opening marks too.
        letter: The character at `first`; empty at the end of the text.
    """

    run: str
    begin: int
    start: int
    mark: str
    end: int
    opener: int
    knows_no_capitals: bool
    after: int = field(init=False)
    first: int = field(init=False)
    letter: str = field(init=False)

    def __post_init__(self) -> None:
        self.after = after_space(self.run, self.end)
        self.first = _end_of(_OPENING, self.run, self.after)
        self.letter = self.run[self.first : self.first + 1]

    @property
    def last(self) -> str:
        """The character before the terminator; empty if there is none."""
        return self.run[self.start - 1 : self.start]

    @property
    def is_apart(self) -> bool:
        """Whether white space follows."""
        return self.after > self.end

    @property
    def is_quoted(self) -> bool:
        """Whether the terminator is within the brackets or quotation that closes there; in "。（笑）"
        it is not, since they open after it.
        """
        return 0 <= self.opener < self.start

    @property
    def is_behind_marker(self) -> bool:
        """Whether only the number or letter of a list item stands before the terminator."""
        return _MARKER.fullmatch(self.run, self.begin, self.start) is not None

    def goes_on_with(self, pattern: re.Pattern[str]) -> bool:
        return pattern.match(self.run, self.after) is not None


def _ends_sentence(stop: _Stop) -> bool:
    if not stop.letter:
        return stop.after == len(stop.run)
    if _is_aside(stop):
        return False
    if _is_ellipsis(stop.mark):
        is_certain = stop.is_apart or stop.mark[0] in "…‥" or len(stop.mark) > 2
        return stop.letter.isupper() and is_certain
    if _is_aside_of_law(stop):
        return False
    if stop.mark in ".．" and not stop.is_apart:
        return _ends_without_space(stop)
    return _begins_another(stop)


def _begins_another(stop: _Stop) -> bool:
    """Return whether what follows a terminator begins another sentence."""
    if _is_before_cjk(stop):
        return not stop.goes_on_with(_AFTER_QUOTATION if stop.is_quoted else _NEVER_FIRST)
    if stop.mark == "．" or not _SURE_MARKS.isdisjoint(stop.mark):
        return not stop.goes_on_with(_NEVER_FIRST)
    if stop.begin == 0 and _CLAUSE_TITLE.fullmatch(stop.run, 0, stop.start):
        return False
    return stop.is_apart and _may_begin_sentence(stop) and not _is_abbreviation_or_number(stop)


def _is_aside(stop: _Stop) -> bool:
    """ "[...]" is an omission, "(?)" marks doubt, and ". . . 7" leads to a page number."""
    is_leader = stop.letter.isdigit() and stop.run[stop.start - 2 : stop.start] == ". "
    return is_leader or stop.last in ("[", "(", "［", "（")


def _is_ellipsis(mark: str) -> bool:
    return not mark.strip(_DOTS) and (mark[0] in "…‥" or len(mark) > 1)


def _is_aside_of_law(stop: _Stop) -> bool:
    """Asides in laws do not end a sentence: "事業者（国を除く。）又は"."""
    is_aside = stop.is_quoted and not stop.is_apart and stop.run[stop.opener] in "（("
    return is_aside and stop.opener > stop.begin and stop.run[stop.opener - 1] not in STOPS


def _ends_without_space(stop: _Stop) -> bool:
    """ "です.次" ends a sentence, but not "３．５", "図１．２" and "J.リーグ"."""
    if "ぁ" <= stop.last <= "ん":
        return True
    if stop.letter.isdigit() or stop.is_behind_marker:
        return False
    is_after_cjk = CJK.match(stop.last) is not None
    is_between_wide = stop.mark == "．" and CJK.match(stop.letter) is not None
    return is_after_cjk or is_between_wide


def _is_before_cjk(stop: _Stop) -> bool:
    """Chinese and Japanese put no space after a sentence; what cannot begin one continues this one."""
    is_close = stop.is_quoted or not stop.is_apart
    return is_close and stop.mark != "." and CJK.match(stop.letter) is not None


def _is_abbreviation_or_number(stop: _Stop) -> bool:
    if stop.mark != ".":
        return False
    return stop.is_behind_marker or (not stop.last.isspace() and _abbreviates(stop))


def _may_begin_sentence(stop: _Stop) -> bool:
    if not stop.letter.islower():
        return stop.letter.isalnum() or stop.letter not in ",;:)]}/&%-–—~.!?…"
    if _CAMEL.match(stop.run, stop.first):  # iPhone, mRNA, eBay
        return True
    has_closing_marks = stop.end > stop.start + len(stop.mark)
    # not after a quotation ("Is it?" he asked)
    return stop.knows_no_capitals and not has_closing_marks


# Abbreviations


_LONGEST_LOOK_BACK = 60  # characters


def _abbreviates(stop: _Stop) -> bool:
    """Return whether a full stop belongs to an abbreviation or a number, and the sentence continues."""
    start = max(stop.begin, stop.start - _LONGEST_LOOK_BACK)
    *_, previous, last = ["", "", *stop.run[start : stop.start].split()]
    word = _WORD_BREAK.split(last)[-1]
    spellings = (word, word.lower(), f"{previous}{word}".lower())  # also z. B.
    if not _NEVER_LAST.isdisjoint(spellings):
        return True
    if _takes_number(word.lower()):
        is_numbered = _NUMBER.match(stop.run, stop.first) is not None
        if is_numbered or len(word) > 1:  # a letter may be an initial too
            return is_numbered
    next_word = stop.run[stop.first : _end_of(_WORD, stop.run, stop.first)]
    if word.isdigit():
        return _is_in_date(stop, word, previous, next_word)
    if _ONE_LETTER.fullmatch(word) and not WIDE.search(last):
        return _is_initial(stop, word, previous, next_word)
    may_abbreviate = word.lower() in _MAYBE_LAST or _ACRONYM.fullmatch(word) is not None
    return may_abbreviate and next_word not in _STARTERS


def _takes_number(word: str) -> bool:
    """Return whether a number may follow a word: no., Hauptstr."""
    return word in _BEFORE_NUMBER or word.endswith("str")


def _is_in_date(stop: _Stop, number: str, previous: str, next_word: str) -> bool:
    is_day = len(number) < 3 and (
        next_word in _MONTHS or previous in _BEFORE_ORDINAL or previous.endswith((":", ";"))
    )
    return (
        is_day or _KOREAN_DATE.search(stop.run, max(stop.start - 8, 0), stop.first + 6) is not None
    )


def _is_initial(stop: _Stop, letter: str, previous: str, next_word: str) -> bool:
    """Return whether a letter is an initial, or part of an abbreviation: J. A. Hobson, z. B."""
    is_before_another = stop.run[stop.first + 1 : stop.first + 2] == "."
    if not letter.isupper():
        return is_before_another or letter in "vcbdrpnmf" or letter.lower() == letter.upper()
    if not previous or previous[-1] in ".,;&":
        return True
    return (is_before_another and next_word.isupper()) or next_word not in _STARTERS


_WORD_BREAK = re.compile(r"[\"'“‘«(\[（「『—–/,．。、\u3040-\u30ff\u3400-\u9fff-]")
_ONE_LETTER = re.compile(r"[^\W\d_]")
_NEVER_LAST = words(
    "Mr Mrs Ms Mx Dr Drs Prof Rev Gen Col Lt Sgt Capt Cpl Cmdr Maj Adm Gov Sen Rep Reps Pres Hon Messrs"
    " Mme Mlle Fr Supt Insp Sra Dra Ud Hr Ing Fa Gem Av Exmo Exma TS ThS TP डॉ प्रो श्री ดร"
    " e.g i.e eg ie cf viz vs approx ca incl w.r.t p.ej z.b d.h bzw resp u.a vgl т.е т.к г ул им см inkl"
    " zzgl bzgl ggf evtl einschl bijv tzn zob np ul dr mgr inż sig dott avv ee"
)
_BEFORE_NUMBER = words(
    "no nos nr n° № num vol vols fig figs p pp pg eq eqs ch chap sec art tab ver fol op cap par ex lib ed"
    " sat sun may mar para paras sched max min abs abb kap ziff rn str env réf gem lt"
    " núm pág págs d.lgs blz ust pkt poz rys dn рис табл стр с ст п гл д № kl čl bkz tr रु"
)
_MAYBE_LAST = words(
    "inc ltd co corp llc plc bros jr sr st ste mt ft ave blvd rd dept univ assn est al eds trans govt"
    " intl mfg tel ext"
    " jan feb apr jun jul aug sept sep oct nov dec mon tue tues wed thu thur thurs fri calif fla ariz"
    " conn colo mio mrd cad mah sok"
)
_MONTHS = words(
    "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
)
_BEFORE_ORDINAL = words("am im vom zum zur beim der die das dem den des und dieser jeder")
_STARTERS = {word.capitalize() for word in STOP_WORDS} | words(
    "According Additionally Also Although Among Another Despite Even Every Finally Following Furthermore"
    " Hence However"
    " Indeed Instead Later Many Meanwhile Moreover Perhaps Please Several Similarly Since Therefore"
    " Though Thus Today Unfortunately Unlike Upon Within Without Yet"
)
_CAMEL = re.compile(r"[a-z]{1,2}[A-Z]")
_NUMBER = re.compile(r"(?:§+ ?|[€$£¥])?[0-9０-９]|[IVXLC]{2,}\b|[VX]\b|[A-Z]\d")
_KOREAN_DATE = re.compile(r"\d{4}\. ?\d{1,2}\. ?\d")
_ACRONYM = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
