"""Plain text: its lines, the headings that their form or number tells, and the paragraphs that a wrap cut into lines.

It is not CommonMark's idea of a heading to the letter: headings of reStructuredText, AsciiDoc and wikis count, and so
do the numbered lines of chapters, articles and sections that manuals and laws have in plain text and PDF.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from llama_pack_densex.text.links import searchable_text, without_pictures
from llama_pack_densex.text.sentences import CJK, QUOTES, STOPS, WIDE


def heading_text(heading: str) -> str:
    """What a heading says, without its markup."""
    lines = [line.strip() for line in heading.splitlines()]
    line = next((line for line in lines if any(map(str.isalnum, searchable_text(line)))), lines[0])
    if marked := _HEADING.fullmatch(line):
        line = marked["wiki"] or marked["asciidoc"] or re.sub(r"(?<!\s)\s+#+$", "", marked["atx"])
    elif bold := _BOLD_LINE.fullmatch(line):
        line = bold["words"]
    words = searchable_text(without_pictures(line))
    return _HEADING_MARKUP.sub("", _EMPHASIS.sub(r"\2", words)).strip()


def is_bold_line(line: str) -> bool:
    """Whether all of a line is bold and no sentence ends it: so people write headings where they want no level."""
    bold = _BOLD_LINE.fullmatch(line)
    return bold is not None and not _ends_with(line, "".join(set(STOPS) - set("?？")) + ":：;；、，,")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a text.

    Args:
        start: Where it begins, in characters, without its indentation.
        end: Where it ends, without white space.
        text: What stands there; empty for a blank line.
        indent: The white space before it.
        number: How many-eth line of the text it is, from 0 on.
    """

    start: int
    end: int
    text: str
    indent: str
    number: int


def find_lines(text: str) -> list[Line]:
    """The lines of a text; of several blank ones in a row the first."""
    lines: list[Line] = []
    position = 0
    for number, raw in enumerate(text.splitlines(keepends=True)):
        stripped = raw.strip()
        if stripped:
            indent = raw[: len(raw) - len(raw.lstrip())]
            start = position + len(indent)
            lines.append(Line(start, start + len(stripped), stripped, indent, number))
        elif not lines or lines[-1].text:
            lines.append(Line(position, position, "", "", number))
        position += len(raw)
    return lines


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
_BOLD_LINE = re.compile(r"(?P<marks>\*{2,3}|_{2,3})(?P<words>[^\s*_](?:[^*_]{0,78}[^\s*_])?)(?P=marks)")
# What pandoc reads of a heading, and the backslash before a sign that is no markup.
_HEADING_MARKUP = re.compile(r"\{[#.][^{}]*\}\Z|\\(?=[!-/:-@\[-`{-~])")


def end_of_heading(lines: list[Line], i: int, *, goes_on: bool) -> tuple[int, int]:
    """The line after the heading that is line i, and its level; i and 0 where it is none.

    A line of dashes below prose that goes on is a rule, not what makes a heading of the last line; what ends a frame of
    AsciiDoc is none either.
    """
    found, above = _HEADING.fullmatch(lines[i].text), lines[i - 1].text if i else ""
    is_within = above and (_PROMPT.match(lines[i].text) or (found and found["asciidoc"] and above[0] != "["))
    if found and len(lines[i].indent) < 4 and not is_within:
        return i + 1, len(found["hashes"] or found["signs"])
    sign = _underlined(lines, i)
    if sign and not (goes_on and (sign == "-" or _ends_with(lines[i].text, STOPS))):
        return i + 2, _LEVELS[sign]
    return (i + 1, level) if (level := _numbered(lines, i)) else (i, 0)


def _numbered(lines: list[Line], i: int) -> int:
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
    is_within = _width(above) >= 40 and not LIST_MARKER.match(above) and not _ends_with(above, STOPS + ":：0123456789")
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


def _underlined(lines: list[Line], i: int) -> str:
    """The sign that line i is underlined by as a heading; empty where it is none.

    Those of Markdown may be of any length. Those of reStructuredText are as long as the line: shorter ones, and as
    long ones below what announces an example, are rules and fences of code.
    """
    text, below = (lines[n].text if 0 <= n < len(lines) else "" for n in (i, i + 1))
    if not text or not _UNDERLINE.fullmatch(below) or RULE.fullmatch(text):
        return ""
    is_alone = i == 0 or not lines[i - 1].text or RULE.fullmatch(lines[i - 1].text)
    is_exact = is_alone and 0 <= len(below) - _width(text) <= _LONGER and text[-1] not in ":："
    return below[0] if is_exact or (below[0] in "=-" and text[0] != "[" and not LIST_MARKER.match(text)) else ""


FENCE = re.compile(r"(?:`{3,}(?!`)|~{3,}(?!~))[^`]*")
RULE = re.compile(r"(?:([-*_=~#+─━—–・])[ \t]*)\1(?:[ \t]*\1)+")
"""A line that parts what is above it from what is below it."""
LIST_MARKER = re.compile(
    r"[-*+–—][ \t\u3000]+"
    r"|[•‣◦▪▫●○■□◆◇►▶➢✓✔※・･·](?![・･·])\s*"
    r"|[①-⓿❶-➓㉑-㉟㊱-㊿㈠-㈩]\s*|[一二三四五六七八九十]{1,3}\u3000"
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
_OPEN_ENDING = re.compile(
    r"\b(?:the|an?|of|in|is|are|was|were|and|to|by|for|with|or|at|from|that|which|who|as|on|than|into|its|their|his|her)$"
)
_MAY_GO_ON = re.compile(r"\b\w{1,3}\.$|[.!?…][\"”’»)]+$|…$")  # "e.g.", "Is it?" (he asked), "Well…"
_PAGE = 8  # lines without a blank one between them, from which on they may be all sorts of paragraphs
WIDEST_WRAP = 160  # columns; nobody wraps text by hand wider than this, so a longer line is a paragraph


def join_wrapped(
    run: Sequence[Line], item_starts: Container[int] = (), continued: Container[int] = ()
) -> Iterator[Sequence[Line]]:
    """Join the lines that a wrap cut; every other line is a paragraph of its own.

    Args:
        run: Lines without a blank one between them.
        item_starts: The numbers of lines that are known to begin an item of a list.
        continued: The numbers of lines that are known to go on with the one above.
    """
    widths, ends = sorted(_width(line.text) for line in run), [_ends_with(line.text, STOPS) for line in run]
    is_page = len(run) >= _PAGE
    margin = widths[-2] if is_page else widths[-1]  # in a page, of which there may be a row of a table, or a long URL
    is_prose = any(ends) if is_page else ends[-1]
    start = 0
    for i in range(1, len(run) + 1):
        if i < len(run) and run[i].number in continued:
            continue
        if i == len(run) or run[i].number in item_starts or not _goes_on(run[i - 1], run[i], margin, is_prose):
            yield run[start:i]
            start = i


def _goes_on(above: Line, below: Line, margin: int, is_prose: bool) -> bool:
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
        RULE.fullmatch(above.text)
        or RULE.fullmatch(below.text)
        or FENCE.fullmatch(below.text)
        or (_SAID.match(above.text) and _SAID.match(below.text))
    )
    if (is_indented and not in_list) or (above.text[0] == ">") != (below.text[0] == ">") or is_rule:
        return False
    width, letter = _width(above.text), _first_letter(below.text)
    share, is_cjk = width / margin, CJK.match(above.text[-1])
    marker = LIST_MARKER.match(below.text)
    if marker:
        # "…at the age of\n45. He then" is a wrapped sentence and not item 45, and bash\n(1) a page of the manual.
        is_wrap = not in_list and width >= 40 and not _ends_with(above.text, STOPS + ":：")
        if not is_wrap or (below.text[0] not in "(（" and marker["number"] in (None, "1", "１", "a", "i", "I")):
            return False
    # A full stop may be an abbreviation's: the rules for sentences decide. Every other terminator is final.
    if _ends_with(above.text, STOPS.replace(".", "") + ":：") or (letter.islower() and _ends_with(above.text, ".")):
        return letter.islower() and width >= 30 and bool(_MAY_GO_ON.search(above.text[-12:]))
    if letter.islower() and not is_cjk:
        return share >= 0.45 and width >= (12 if is_prose else 30)
    if is_cjk or above.text[-1] in "、，」）" or CJK.match(letter):
        word = re.match(r"[!-~]{1,30}", below.text)
        slack = (len(word[0]) if word else 2) + 4  # 4: a line may end early so that the next starts no "、" or "）"
        is_full = width + slack >= margin and width >= (36 if is_prose else 60)
        # the letters of a page are not equally wide; hiragana seldom begin what is new
        is_full = is_full or (is_prose and width >= 36 and share >= (0.5 if "ぁ" <= below.text[0] <= "ん" else 0.75))
        return (is_full and width <= WIDEST_WRAP) or above.text[-1] in "、，を" + "はがにのと" * (width >= 30)
    word = re.match(r"\S{1,30}", below.text)
    reach = width + 1 + (_width(word[0]) if word else 0)
    is_full = is_prose and 34 <= width <= WIDEST_WRAP and reach > 0.85 * margin
    return is_full or (width >= 20 and bool(_OPEN_ENDING.search(above.text[-10:])))


def _ends_with(line: str, characters: str) -> bool:
    return line.rstrip(QUOTES)[-1:] in tuple(characters)


def _first_letter(line: str) -> str:
    """Return the first letter or digit, looking through quotes and markup, or "-" where the line has none."""
    found = re.match(r"[^\w\s]{0,4}\s?[^\w\s]{0,2}_{0,2}([^\W_])", line)
    return found[1] if found else "-"


def _width(line: str) -> int:
    """Return the columns that a line takes on a terminal; beyond the first 200 characters it makes no difference."""
    return len(line) + len(WIDE.findall(line[:200]))
