"""From text to headings, tables, code and sentences with exact spans, for English and Japanese first.

There is one idea of a heading and of a fence, for sections as well as for sentences. It is not CommonMark's to the
letter, since passages are cut out of documents: a closing fence whose beginning was left in the passage before opens
nothing here, and rows without their header are a table. Libraries (sentencex, pysbd, blingfire) split English prose as
well as these rules do, and retrieval cannot tell them apart; none gives spans, keeps Japanese quotations together, and
tables and code whole.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Literal

from llama_pack_densex.text.tokens import STOP_WORDS, contents_of, words


def segment(text: str) -> list[Region]:
    """Split a text into sentences, headings and blocks.

    Args:
        text: Any text, plain, Markdown or with HTML tables. The language is not asked for: the rules go by script.

    Returns:
        The segments in order. They never overlap and cover every character that is not white space. A list item, a line
        that no full stop ends or one without letters (a rule, an emoji) is a sentence too. The time is linear in the
        length of the text.
    """
    segments: list[Region] = []
    for region in find_regions(text):
        if region.kind == "text":
            spans = _split_run(text[region.start : region.end])
            segments += [Region(region.start + start, region.start + end, "sentence") for start, end in spans]
        else:
            segments.append(region)
    return segments


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the (start, end) of every segment of a text."""
    return [(found.start, found.end) for found in segment(text)]


def after_space(text: str, start: int) -> int:
    """Return the place of the first character from `start` on that is not white space."""
    return _end_of(_GAP, text, start)


def passage_sentences(text: str) -> tuple[str, ...]:
    """Split a passage into the units that stand in for propositions.

    Headings are left out: alone they state nothing, and yet match a question about their topic best. So are rules and
    other lines without a letter or digit, and the entries of a table of contents. A passage that holds nothing else
    keeps them, these as one unit, so that every passage that is not blank has a unit.
    """
    segments, entries = segment(text), contents_of(text)
    stating = [one for one in segments if one.kind != "heading" and any(map(str.isalnum, text[one.start : one.end]))]
    stating = [one for one in stating if text[one.start : one.end].splitlines()[-1].strip() not in entries]
    if entries and not stating:
        return (text.strip(),)
    return tuple(text[one.start : one.end] for one in stating or segments)


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


def _split_run(run: str) -> list[tuple[int, int]]:
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

    One that is never closed does not count.
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
    for opened, closed in sorted((a, b) for b, a in opening.items() if b - a <= _LONGEST_QUOTATION):
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
    if is_quoted and not is_apart and opener > begin and run[opener] in "（(" and run[opener - 1] not in _STOPS:
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
    if len(word) == 1 and word.isalpha() and not _WIDE.search(last):
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


@dataclass(frozen=True)
class Region:
    """A stretch of text without surrounding white space.

    Args:
        start: Where it starts, in characters.
        end: Where it ends.
        kind: "heading", "block" (code, a table), "text", which is still to be split into sentences, or "sentence".
        level: Of a heading; 1 is outermost.
    """

    start: int
    end: int
    kind: Literal["text", "sentence", "heading", "block"]
    level: int = 0


@lru_cache(maxsize=16)  # a passage's are asked for by several checks
def find_regions(text: str) -> tuple[Region, ...]:
    """Split a text into regions that cover every character that is not white space, in order."""
    parts = (_join_wrapped(part) if isinstance(part, list) else (part,) for part in _scan(text))
    return tuple(chain.from_iterable(parts))


def find_headings(text: str) -> list[Region]:
    """The headings among the regions of a text."""
    return [part for part in _scan(text) if isinstance(part, Region) and part.level]


def heading_text(heading: str) -> str:
    """What a heading says, without its markup."""
    line = heading.splitlines()[0].strip()
    if found := _HEADING.fullmatch(line):
        line = found["wiki"] or found["asciidoc"] or re.sub(r"\s+#+$", "", found["atx"])
    return _LINK.sub(r"\1", _EMPHASIS.sub(r"\2", _IMAGE.sub("", line))).strip()


def _scan(text: str) -> Iterator[Region | list[_Line]]:
    """Yield headings, blocks, and between these the runs of lines that no blank line ends."""
    lines = _find_lines(text)
    blocks = _pair_elements(lines) | _pair_fences(lines)
    run: list[_Line] = []
    i = 0
    while i < len(lines):
        after, level = _end_of_block(lines, i, blocks), 0
        if after == i:
            after, level = _end_of_heading(lines, i, goes_on=bool(run))
        if after == i and lines[i].text:
            run.append(lines[i])
        elif run:
            yield run
            run = []
        if after > i:
            last = next(lines[n].end for n in range(after - 1, i - 1, -1) if lines[n].text)
            yield Region(lines[i].start, last, "heading" if level else "block", level)
        i = max(after, i + 1)
    if run:
        yield run


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    end: int
    text: str  # stripped; empty for a blank line
    indent: str


def _find_lines(text: str) -> list[_Line]:
    lines: list[_Line] = []
    position = 0
    for raw in text.splitlines(keepends=True):
        stripped = raw.strip()
        if stripped:
            indent = raw[: len(raw) - len(raw.lstrip())]
            start = position + len(indent)
            lines.append(_Line(start, start + len(stripped), stripped, indent))
        elif not lines or lines[-1].text:
            lines.append(_Line(position, position, "", ""))
        position += len(raw)
    return lines


_FENCE = re.compile(r"(`{3,}(?!`)|~{3,}(?!~))([^`]*)")


def _pair_fences(lines: list[_Line]) -> dict[int, int]:
    """Map the line of each opening fence to the line after its block.

    A fence that names a language and is never closed runs to the end, as in CommonMark. A bare one that is never
    closed is more likely the closing fence of a block whose beginning was cut off: it stands for itself.
    """
    fences = [(i, found[1], found[2]) for i, line in enumerate(lines) if (found := _FENCE.fullmatch(line.text))]
    blocks: dict[int, int] = {}
    free = 0
    for k, (i, marks, language) in enumerate(fences):
        if i >= free:
            below = (fences[n] for n in range(k + 1, len(fences)))
            closing = (end for end, other, said in below if not said and other.startswith(marks))
            free = next(closing, len(lines) - 1 if language else i) + 1
            blocks[i] = free
    return blocks


_TAG = re.compile(r"<(/?)(table|pre)\b[^<>]*(?:>|\Z)", re.IGNORECASE)


def _pair_elements(lines: list[_Line]) -> dict[int, int]:
    """Map the line that begins with an HTML table (or preformatted text) to the line after the one that closes it.

    One that is never closed is left out.
    """
    pairs: dict[int, int] = {}
    opened: dict[str, list[int]] = {"table": [], "pre": []}
    for i, line in enumerate(lines):
        for tag in _TAG.finditer(line.text):
            starts = opened[tag[2].lower()]
            if not tag[1]:
                starts.append(-1 if tag.start() else i)
            elif starts:
                pairs[starts.pop()] = i + 1
    return pairs


_GRID = ("|", "+-", "+=")


def _end_of_block(lines: list[_Line], i: int, blocks: dict[int, int]) -> int:
    """The line after the code or table that begins at line i; i where none begins."""
    if i in blocks:
        return blocks[i]
    below = lines[i + 1].text if i + 1 < len(lines) else ""
    has_header = "|" in lines[i].text and "|" in below and "-" in below and not below.strip("|:- \t")
    if not has_header and not (lines[i].text.startswith(_GRID) and below.startswith(_GRID)):
        return i
    after = i + 2
    while after < len(lines) and ("|" in lines[after].text or lines[after].text.startswith(_GRID)):
        after += 1
    return after


_HEADING = re.compile(
    r"(?P<hashes>#{1,6})[ \t\u3000]+(?P<atx>\S.*)"
    r"|(?P<signs>={1,6})(?:[ \t]*(?P<wiki>[^=\s](?:.*[^=\s])?)[ \t]*(?P=signs)|[ \t]+(?P<asciidoc>`?[^\W\d_].*))"
)
_UNDERLINE = re.compile(r"([-=~^\"*#])\1{2,}")
_LEVELS = {"=": 1, "*": 1, "#": 1, "-": 2, "~": 3, "^": 4, '"': 5}
# Numbers of two parts and more, those of chapters and sections, and marks; "# apt-get update" below a line is a prompt.
_TOLD = re.compile(
    r"(?:\d{1,3}(?:\.\d{1,3}){1,4}\.?[ \t\xa0\u3000]+(?![a-z])(?=[^\W\d_]|[\"“”‘「『(（\[])"
    r"|第 ?[\d０-９一二三四五六七八九十百]{1,5} ?(?P<unit>[編部章節条])|(?P<mark>[■◆▼])[ \u3000]*\S"
    r"|(?P<end>附)[ \u3000]*則(?=[ \u3000（(]|\Z))"
    r"(?!.*(?:[.．…‥・·] ?){4}).{0,80}|(?P<open>[（【])[^（）【】]{1,40}[）】]"
)
# What else tells one between blank lines: numbers of one part, and those that a name of a file or a command follows.
_ALONE = re.compile(
    r"(?:(?P<chapter>Chapter|Appendix|Part|Kapitel|Anhang|付録|附录|부록) ?[\dA-Z]{1,4}[.:．：]?[ \t\xa0\u3000]+\S"
    r"|\d{1,3}(?:\.\d{1,3}){1,4}\.?[ \t\xa0\u3000]+\S|[\d０-９]{1,2}(?:\.[ \t]+|．\s*)[^\W\d_a-z])"
    r"(?!.*(?:[.．…‥・·] ?){4}).{0,60}"
)
_NOT_LAST = ".!。！．｡、，,:：;；"
_LEVEL_OF = {"編": 1, "部": 1, "章": 1, "附": 1, "節": 2, "条": 3, "■": 2, "【": 2, "◆": 3, "▼": 3, "（": 3}
_ARTICLE = re.compile(r"第[\d０-９一二三四五六七八九十百]{1,5}条")
_PROMPT = re.compile(r"# *[a-z]|#.*[.,:;]\Z")  # or a comment
_LONGER = 4  # columns by which an underline is longer than its heading at most
_EMPHASIS = re.compile(r"(\*\*|__|`)(.+?)\1")
_IMAGE = re.compile(r"!\[[^\[\]]*\]\([^()]*\)")
# A link, what pandoc reads of a heading, and a sign that is no markup.
_LINK = re.compile(r"\[([^\[\]]*)\]\([^()]*\)|\{[#.][^{}]*\}\Z|\\(?=[!-/:-@\[-`{-~])")


def _end_of_heading(lines: list[_Line], i: int, *, goes_on: bool) -> tuple[int, int]:
    """The line after the heading that is line i, and its level; i and 0 where it is none.

    A line of dashes below prose that goes on is a rule, not what makes a heading of the last line; what ends a frame of
    AsciiDoc is none either.
    """
    found, above = _HEADING.fullmatch(lines[i].text), lines[i - 1].text if i else ""
    is_within = above and (_PROMPT.match(lines[i].text) or (found and found["asciidoc"] and above[0] != "["))
    if found and len(lines[i].indent) < 4 and not is_within:
        return i + 1, len(found["hashes"] or found["signs"])
    sign = _underlined(lines, i)
    if sign and not (goes_on and (sign == "-" or _ends_with(lines[i].text, _STOPS))):
        return i + 2, _LEVELS[sign]
    return (i + 1, level) if (level := _numbered(lines, i)) else (i, 0)


def _numbered(lines: list[_Line], i: int) -> int:
    """The level of line i if its number or mark tells a heading, as in PDF, and no entry of a list or of contents."""
    near = (i - 2, i - 1, i + 1, i + 2)
    before, above, below, second = (lines[n].text if 0 <= n < len(lines) else "" for n in near)
    line, follows = lines[i], below or second
    is_alone = not above and (not below or "\u3000" in lines[i + 1].indent)
    kind = _kind(line.text, is_alone)
    if not kind or not follows or kind in (_kind(above), _kind(follows, is_alone)):
        return 0
    if kind == "（" and not _ARTICLE.match(follows):  # the caption of an article of a law
        return 0
    indent = lines[i + 1 if below else i + 2].indent
    if kind == "1" and (LIST_MARKER.match(before) or LIST_MARKER.match(follows) or "  " in indent):
        return 0  # an item, or one of several paragraphs
    is_within = _width(above) >= 40 and not LIST_MARKER.match(above) and not _ends_with(above, _STOPS + ":：0123456789")
    is_begun = below and (_width(line.text) >= 60 or len(indent) > len(line.indent) + 1)
    if is_within or is_begun:  # a sentence or entry of several lines
        return 0
    return _LEVEL_OF.get(kind) or kind.count(".") + 1


def _kind(line: str, is_alone: bool = False) -> str:
    """What tells that a line may be a heading: its number, or a character; empty where nothing does."""
    found = None if line[-1:] in _NOT_LAST else _TOLD.fullmatch(line) or (_ALONE.fullmatch(line) if is_alone else None)
    if found is None:
        return ""
    return next(filter(None, found.groups()), "") or re.sub(r"[^.]", "", line.split()[0].rstrip(".")) or "1"


def _underlined(lines: list[_Line], i: int) -> str:
    """The sign that line i is underlined by as a heading; empty where it is none.

    Those of Markdown may be of any length. Those of reStructuredText are as long as the line: shorter ones, and as
    long ones below what announces an example, are rules and fences of code.
    """
    text, below = (lines[n].text if 0 <= n < len(lines) else "" for n in (i, i + 1))
    if not text or not _UNDERLINE.fullmatch(below) or _RULE.fullmatch(text):
        return ""
    is_alone = i == 0 or not lines[i - 1].text or _RULE.fullmatch(lines[i - 1].text)
    is_exact = is_alone and 0 <= len(below) - _width(text) <= _LONGER and text[-1] not in ":："
    return below[0] if is_exact or (below[0] in "=-" and text[0] != "[" and not LIST_MARKER.match(text)) else ""


_RULE = re.compile(r"(?:([-*_=~#+─━—–・])[ \t]*)\1(?:[ \t]*\1)+")
LIST_MARKER = re.compile(
    r"[-*+–—][ \t\u3000]+"
    r"|[•‣◦▪▫●○■□◆◇►▶➢✓✔※・･·](?![・･·])\s*"
    r"|[①-⓿❶-➓㉑-㉟㊱-㊿㈠-㈩]\s*"
    r"|[(（](?:[0-9０-９]{1,3}|[A-Za-z]|[ivxIVX]{1,5}|[一二三四五六七八九十]{1,3})[)）]\s*"
    r"|(?P<number>[0-9０-９]{1,3}(?:[.-][0-9]{1,3}){0,4}|[a-z]|[ivx]{1,5}|[IVX]{1,5})"
    r"(?:[)）](?=\D)|[.．](?:[ \t\u3000]+|(?=[^\x00-\x7f０-９])))"
)
_LONE_MARKER = re.compile(
    r"[(（]?(?:[0-9０-９]{1,3}(?:\.[0-9]{1,3}){0,4}|[A-Za-z]|[ivxIVX]{1,5})[)）]?[.．)）]|[-*+•●■・①-⓿]"
)
_ASIDE = re.compile(r"\S+(?: \S+)*? {2,}")  # "2.1  Fees", "-v, --verbose  print": what is beside the lines of a text
# What begins a line of a conversation or a log: when it was said, or by whom.
_SAID = re.compile(r"[\[(<]?(?:\d{4}[-/.]\d\d?[-/.]\d\d?[ T,]*)?\d{1,2}:\d\d|[A-Z][\w.'’ -]{0,30}: ")
_STOPS = ".!?。！？｡．…؟۔।॥։።။"
_QUOTES = "\"'”’»)］」』）］】〉》｣*_]"
CJK = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]")
_WIDE = re.compile(
    "[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\U00020000-\U0003ffff]"
)
_OPEN_ENDING = re.compile(
    r"\b(?:the|an?|of|in|is|are|was|were|and|to|by|for|with|or|at|from|that|which|who|as|on|than|into|its|their|his|her)$"
)
_MAY_GO_ON = re.compile(r"\b\w{1,3}\.$|[.!?…][\"”’»)]+$|…$")  # "e.g.", "Is it?" (he asked), "Well…"
_PAGE = 8  # lines without a blank one between them, from which on they may be all sorts of paragraphs
_WIDEST_WRAP = 160  # columns; nobody wraps text by hand wider than this, so a longer line is a paragraph


def _join_wrapped(run: Sequence[_Line]) -> Iterator[Region]:
    """Join the lines that a wrap cut; every other line is a region of its own."""
    widths, ends = sorted(_width(line.text) for line in run), [_ends_with(line.text, _STOPS) for line in run]
    is_page = len(run) >= _PAGE
    margin = widths[-2] if is_page else widths[-1]  # in a page, of which there may be a row of a table, or a long URL
    is_prose = any(ends) if is_page else ends[-1]
    start = 0
    for i in range(1, len(run) + 1):
        if i == len(run) or not _goes_on(run[i - 1], run[i], margin, is_prose):
            yield Region(run[start].start, run[i - 1].end, "text")
            start = i


def _goes_on(above: _Line, below: _Line, margin: int, is_prose: bool) -> bool:
    """Say whether the break between two lines of a run is only a wrap.

    Args:
        above: The line before the break.
        below: The line after it.
        margin: The columns of a full line of the run.
        is_prose: Whether the run has full stops where prose has them and lists do not.
    """
    if _LONE_MARKER.fullmatch(above.text):
        return True
    aside = _ASIDE.match(above.text)
    in_list = LIST_MARKER.match(above.text) or (aside and len(below.indent) == len(above.indent) + aside.end())
    # An indented line opens a paragraph, in Japanese by a full-width space; below a list marker it is a hanging indent.
    is_indented = len(below.indent) > len(above.indent) + 1 or (
        "\u3000" in below.indent and "\u3000" not in above.indent
    )
    is_rule = (
        _RULE.fullmatch(above.text)
        or _RULE.fullmatch(below.text)
        or _FENCE.fullmatch(below.text)
        or (_SAID.match(above.text) and _SAID.match(below.text))
    )
    if (is_indented and not in_list) or (above.text[0] == ">") != (below.text[0] == ">") or is_rule:
        return False
    width, letter = _width(above.text), _first_letter(below.text)
    share, is_cjk = width / margin, CJK.match(above.text[-1])
    marker = LIST_MARKER.match(below.text)
    if marker:
        # "…at the age of\n45. He then" is a wrapped sentence and not item 45, and bash\n(1) a page of the manual.
        is_wrap = not in_list and width >= 40 and not _ends_with(above.text, _STOPS + ":：")
        if not is_wrap or (below.text[0] not in "(（" and marker["number"] in (None, "1", "１", "a", "i", "I")):
            return False
    # A full stop may be an abbreviation's: the rules for sentences decide. Every other terminator is final.
    if _ends_with(above.text, _STOPS.replace(".", "") + ":：") or (letter.islower() and _ends_with(above.text, ".")):
        return letter.islower() and width >= 30 and bool(_MAY_GO_ON.search(above.text[-12:]))
    if letter.islower() and not is_cjk:
        return share >= 0.45 and width >= (12 if is_prose else 30)
    if is_cjk or above.text[-1] in "、，」）" or CJK.match(letter):
        word = re.match(r"[!-~]{1,30}", below.text)
        slack = (len(word[0]) if word else 2) + 4  # 4: a line may end early so that the next starts no "、" or "）"
        is_full = width + slack >= margin and width >= (36 if is_prose else 60)
        # the letters of a page are not equally wide; hiragana seldom begin what is new
        is_full = is_full or (is_prose and width >= 36 and share >= (0.5 if "ぁ" <= below.text[0] <= "ん" else 0.75))
        return (is_full and width <= _WIDEST_WRAP) or above.text[-1] in "、，を" + "はがにのと" * (width >= 30)
    word = re.match(r"\S{1,30}", below.text)
    reach = width + 1 + (_width(word[0]) if word else 0)
    is_full = is_prose and 34 <= width <= _WIDEST_WRAP and reach > 0.85 * margin
    return is_full or (width >= 20 and bool(_OPEN_ENDING.search(above.text[-10:])))


def _ends_with(line: str, characters: str) -> bool:
    return line.rstrip(_QUOTES)[-1:] in tuple(characters)


def _first_letter(line: str) -> str:
    """Return the first letter or digit, looking through quotes and markup, or "-" where the line has none."""
    found = re.match(r"[^\w\s]{0,4}\s?[^\w\s]{0,2}_{0,2}([^\W_])", line)
    return found[1] if found else "-"


def _width(line: str) -> int:
    """Return the columns that a line takes on a terminal; beyond the first 200 characters it makes no difference."""
    return len(line) + len(_WIDE.findall(line[:200]))
