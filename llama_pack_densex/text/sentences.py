"""Where sentences end, in English and Japanese first; by rules on characters and short lists of abbreviations.

Libraries (sentencex, pysbd, blingfire) split English prose as well as these rules do, and retrieval cannot tell them
apart; none gives spans and keeps Japanese quotations together.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict

from llama_pack_densex.text.links import STRUCK_OUT
from llama_pack_densex.text.tokens import STOP_WORDS, words

Span = tuple[int, int]

STOPS = ".!?。！？｡．…؟۔।॥։።။"
QUOTES = "\"'”’»)］」』）］】〉》｣*_]"
CJK = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]")
WIDE = re.compile(
    "[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\U00020000-\U0003ffff]"
)

_SURE = "。！？｡؟۔।॥։።፧፨။។៕᠃⁇⁈⁉‼"
_DOTS = ".…‥・･"
_TERMINATOR = re.compile(rf"(?:[{_SURE}．.!?…‥]|[・･]{{2,}})+")
_CLOSING = re.compile(
    r"(?:[\"'”’»›)\]}」』｣）］】〉》〕*_\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]|“(?!\S)|\[\w{0,10} ?\d{1,3}\]"
    r"|\[\^[^\s\[\]]{1,20}\](?!:)"
    r"| ?[\U0001f1e6-\U0001faff\u2600-\u27bf]|[\ufe0f\u200d]|[♪♡♥☆★])*"
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
_NEVER_FIRST = re.compile(r"[、，,：:；;・ー々～〜]|を|と(?:いう|いった|思|言|聞|叫|考え|問|述べ|話|の)|への|での")
# What goes on after a quotation that ends in a full stop: a particle, but not a word that begins like one.
_AFTER_QUOTATION = re.compile(
    r"[、，,：:；;・ー～〜…。]|と(?!ても|ころ|にかく|もかく|もに|ある|うとう|つぜん|きに|きどき)|って|など|なんて|を|だ(?!が|け|か)|です"
    r"|で(?!も|き)|が(?!ん)|は(?!い|っ|じめ)|に(?!っ|わ|こ|もかか)|も(?!ちろん|う|し|っと|とも|の)|の(?!ち|ん|ど)"
    r"|へ(?!え)|や(?!っ|が|は)|から|まで|より|的|地|了"
)


def split_sentences(run: str) -> list[Span]:
    """The spans of the sentences of a stretch of prose: lines that a wrap cut, and nothing else."""
    opening, outer = _pair_brackets(run)
    ignores_case = run.islower()
    spans: list[tuple[int, int]] = []
    begin = searched = counted = marks = 0
    for stop in _TERMINATOR.finditer(run):
        around = run[max(stop.start() - 1, 0) : stop.end() + 1]
        if stop[0] == "." and around[-1].isalnum() and around.isascii():
            continue  # the many of 3.14, 2.0.1 and www.example.org, without further ado
        marks, counted = marks + run.count("**", counted, stop.end()), stop.end()
        is_opening = marks % 2 == 0 and run.startswith("**", counted)  # as in "です。**次**の"
        end = counted if is_opening else _end_of(_CLOSING, run, counted)
        enclosing = bisect_left(outer, (end, 0)) - 1
        if stop.start() < begin or (enclosing >= 0 and end <= outer[enclosing][1]):
            continue
        # A sentence has a letter or a digit. What was searched once is not searched again, to stay linear.
        if not _LETTER.search(run, max(begin, searched), stop.start()):
            searched = stop.start()
        elif _ends_sentence(run, begin, stop, end, opening.get(end - 1, -1), ignores_case):
            spans.append((begin, end))
            begin = searched = after_space(run, end)
    if spans and not _LETTER.search(run, begin):
        spans[-1] = (spans[-1][0], len(run))  # what has no letter of its own, as an emoji, belongs to the one before
    else:
        spans.append((begin, len(run)))
    return spans


def after_space(text: str, start: int) -> int:
    """Return the place of the first character from `start` on that is not white space."""
    return _end_of(_GAP, text, start)


def _end_of(pattern: re.Pattern[str], run: str, start: int) -> int:
    found = pattern.match(run, start)
    return found.end() if found else start


_PAIRS = {"(": ")", "（": ")", "[": "]", "［": "]", "「": "」", "｢": "」", "『": "』", "【": "】", "〔": "〕"}
_PAIRS |= {"〈": "〉", "《": "》", "“": "”", "«": "»", '"': '"'}
_CLOSERS = {"）": ")", "］": "]", "｣": "」"} | {closer: closer for closer in _PAIRS.values()}
_BRACKET = re.compile("[" + re.escape("".join({*_PAIRS, *_CLOSERS})) + "]")
_LONGEST_QUOTATION = 400  # characters; a longer one is a text of its own, or a stray bracket found a partner far away


def _pair_brackets(run: str) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """Where the opening bracket or quotation mark of each closing one is, and the spans of the outermost pairs.

    One that is never closed does not count. What is struck out is a pair too, of which no part is read as said.
    """
    opening: dict[int, int] = {}
    stack: list[tuple[str, int]] = []
    pending: defaultdict[str, int] = defaultdict(int)
    for found in _BRACKET.finditer(run):
        mark, position = found[0], found.start()
        closes = _CLOSERS.get(mark)
        if mark in _PAIRS and not (mark == '"' and pending['"'] and not run[position - 1].isspace()):
            stack.append((_PAIRS[mark], position))
            pending[_PAIRS[mark]] += 1
        elif closes and pending[closes]:
            expected, opened = "", 0
            while expected != closes:
                expected, opened = stack.pop()
                pending[expected] -= 1
            opening[position] = opened
    outer: list[tuple[int, int]] = []
    pairs = [(opened, closed) for closed, opened in opening.items() if closed - opened <= _LONGEST_QUOTATION]
    pairs += [(struck.start(), struck.end() - 1) for struck in STRUCK_OUT.finditer(run)]
    for opened, closed in sorted(pairs):
        if not outer or opened > outer[-1][1]:
            outer.append((opened, closed))
    return opening, outer


def _ends_sentence(run: str, begin: int, stop: re.Match[str], end: int, opener: int, ignores_case: bool) -> bool:
    """Say whether a terminator ends the sentence.

    Args:
        run: The text.
        begin: Where the sentence begins.
        stop: The terminator.
        end: Where the sentence would end, after closing marks.
        opener: Where what closes there was opened; -1 where nothing is closed.
        ignores_case: Whether the text knows no capitals.
    """
    mark, start = stop[0], stop.start()
    after = after_space(run, end)
    first = _end_of(_OPENING, run, after)
    letter, before = run[first : first + 1], run[start - 1 : start]
    if not letter:
        return after == len(run)
    if before in ("[", "(", "［", "（") or (letter.isdigit() and run[start - 2 : start] == ". "):
        return False  # "[...]" is an omission, "(?)" a doubt, and ". . . 7" leads to a page
    is_apart, is_cjk, is_marker = after > end, bool(CJK.match(letter)), bool(_MARKER.fullmatch(run, begin, start))
    is_quoted = 0 <= opener < start  # in "。（笑）", what was opened after the terminator says nothing about it
    if not mark.strip(_DOTS) and (len(mark) > 1 or mark in "…‥"):
        return letter.isupper() and (is_apart or mark[0] in "…‥" or len(mark) > 2)
    if is_quoted and not is_apart and opener > begin and run[opener] in "（(" and run[opener - 1] not in STOPS:
        return False  # as laws have them: "事業者（国を除く。）又は"
    if mark in ".．" and not is_apart:  # "です.次", but "３．５", "図１．２" and "J.リーグ"
        after_cjk = bool(CJK.match(before))
        return "ぁ" <= before <= "ん" or (
            not letter.isdigit() and not is_marker and (mark == "．" or after_cjk) and (is_cjk or after_cjk)
        )
    if is_cjk and (not is_apart or is_quoted) and mark != ".":
        return not (_AFTER_QUOTATION if is_quoted else _NEVER_FIRST).match(run, after)
    if any(character in _SURE for character in mark) or mark == "．":
        return not _NEVER_FIRST.match(run, after)
    if letter.islower():
        # iPhone, mRNA, eBay; and texts that know no capitals, except after a quotation ("Is it?" he asked).
        can_begin = bool(_CAMEL.match(run, first)) or (ignores_case and end == stop.end())
    else:
        can_begin = letter.isalnum() or letter not in ",;:)]}/&%-–—~.!?…"
    return is_apart and can_begin and (mark != "." or not (is_marker or _abbreviates(run, begin, start, first)))


def _abbreviates(run: str, begin: int, start: int, first: int) -> bool:
    """Say whether the full stop at `start` is an abbreviation's and the sentence goes on at `first`."""
    *before, last = ["", *run[max(begin, start - 60) : start].split()]
    if not last or run[start - 1].isspace():
        return False
    word = re.split(r"[\"'“‘«(\[（「『—–/,．。、\u3040-\u30ff\u3400-\u9fff-]", last)[-1]
    previous, found = "".join(before[-1:]), _WORD.match(run, first)
    lower, following = word.lower(), found[0] if found else ""
    if word in _TITLES or lower in _NEVER_LAST:
        return True
    is_numbered = bool(_NUMBER.match(run, first))
    if (lower in _BEFORE_NUMBER or lower.endswith("str")) and (is_numbered or word != "P"):
        return is_numbered
    if word.isdigit():
        is_dated = following in _MONTHS or previous.endswith((":", ";"))
        return (len(word) < 3 and is_dated) or bool(_DATE.search(run, max(start - 8, 0), first + 6))
    if len(word) == 1 and word.isalpha() and not WIDE.search(last):
        is_spaced = run[first + 1 : first + 2] == "."  # z. B., J. A. Hobson
        if not word.isupper():
            return is_spaced or word in "vcbdrpnmf" or word.lower() == word.upper()
        is_initial = following.isupper() and is_spaced
        return is_initial or not previous or previous[-1] in ".,;&" or following not in _STARTERS
    return bool(lower in _MAYBE_LAST or _ACRONYM.fullmatch(word) or _CONSONANTS.fullmatch(word)) and (
        following not in _STARTERS
    )


_TITLES = words(
    "Mr Mrs Ms Mx Dr Drs Prof Rev Gen Col Lt Sgt Capt Cpl Cmdr Maj Adm Gov Sen Rep Reps Pres Hon Messrs Mme Mlle Fr"
    " Supt Insp Sra Dra Ud Hr Ing Fa Gem डॉ प्रो"
)
_NEVER_LAST = words("e.g i.e eg ie cf viz vs approx ca incl w.r.t p.ej z.b d.h bzw resp u.a vgl т.е т.д г ул им inkl")
_BEFORE_NUMBER = words(
    "no nos nr n° № num vol vols fig figs p pp pg eq eqs ch chap sec art tab ver fol op cap par ex lib ed"
    " sat sun may mar para paras sched max min abs abb kap ziff rn str env réf gem lt"
)
_MAYBE_LAST = words(
    "inc ltd co corp llc plc bros jr sr st ste mt ft ave blvd rd dept univ assn est al eds trans govt intl mfg tel ext"
    " jan feb apr jun jul aug sept sep oct nov dec mon tue tues wed thu thur thurs fri calif fla ariz conn colo mio mrd"
)
_MONTHS = words("Januar Februar März April Mai Juni Juli August September Oktober November Dezember")
_STARTERS = {word.capitalize() for word in STOP_WORDS} | words(
    "According Additionally Also Although Among Another Despite Even Every Finally Following Furthermore Hence However"
    " Indeed Instead Later Many Meanwhile Moreover Perhaps Please Several Similarly Since Therefore Though Thus Today"
    " Unfortunately Unlike Upon Within Without Yet"
)
_CAMEL = re.compile(r"[a-z]{1,2}[A-Z]")
_NUMBER = re.compile(r"(?:§+ ?|[€$£¥])?[0-9０-９]|[IVXLC]{2,}\b|[VX]\b|[A-Z]\d")
_DATE = re.compile(r"\d{4}\. ?\d{1,2}\. ?\d")  # in Korean
_ACRONYM = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_CONSONANTS = re.compile(r"[BCDFGHJKLMNPQRSTVWXZ][bcdfghjklmnpqrstvwxz]{2,4}")
