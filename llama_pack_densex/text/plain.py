"""Plain text: headings, recognised by their form or number, and paragraphs, joined from hard-wrapped lines.

Headings are not only those of CommonMark: those of reStructuredText, AsciiDoc and wikis count, and so do the
numbered lines of chapters, articles and sections in the plain text and PDF of manuals and laws.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from unicodedata import normalize

from llama_pack_densex.text.containers import title_of
from llama_pack_densex.text.layout import Line, Lines
from llama_pack_densex.text.links import searchable_text, without_pictures
from llama_pack_densex.text.sentences import CJK, QUOTES, STOPS, WIDE
from llama_pack_densex.text.tokens import has_words


def heading_text(heading: str) -> str:
    """Return the text of a heading without its markup."""
    lines = [line.strip() for line in heading.splitlines()]
    with_words = [line for line in lines if has_words(searchable_text(line))]
    if _is_bare_part(lines[0]):
        return " ".join(with_words)
    line = title_of(lines[0]) or next(iter(with_words), lines[0])
    marked = _HEADING.fullmatch(line)
    bold = _BOLD_LINE.fullmatch(line)
    if marked:
        line = marked["wiki"] or marked["asciidoc"] or _CLOSING_HASHES.sub("", marked["atx"])
    elif bold:
        line = bold["words"]
    words = searchable_text(without_pictures(line))
    return _HEADING_MARKUP.sub("", _EMPHASIS.sub(r"\2", words)).strip()


def is_bold_line(line: str) -> bool:
    """Return whether a whole line is bold and does not end a sentence: the form of headings without
    a level.
    """
    bold = _BOLD_LINE.fullmatch(line)
    return bold is not None and not _ends_with(line, _ENDS_NO_HEADING)


_HEADING = re.compile(
    r"(?P<hashes>#{1,6})[ \t\u3000]+(?P<atx>\S.*)"
    r"|(?P<signs>={1,6})"
    r"(?:[ \t]*(?P<wiki>[^=\s](?:.*[^=\s])?)[ \t]*(?P=signs)|[ \t]+(?P<asciidoc>`?[^\W\d_].*))"
)
_CLOSING_HASHES = re.compile(r"(?<!\s)\s+#+$")
_UNDERLINE = re.compile(r"([-=~^\"*#])\1{2,}")
_LEVELS = {
    "=": 1,
    "*": 1,
    "#": 1,
    "-": 2,
    "~": 3,
    "^": 4,
    '"': 5,
}
# Numbers of two or more parts, numbers of chapters and articles, and marks.
_NUMBERED_HEADING = re.compile(
    r"(?:\d{1,3}(?:[.．]\d{1,3}){1,4}[.．]?[ \t\xa0\u3000]+(?![a-z])(?=[^\W\d_]|[\"“”‘「『(（\[])"
    r"|\d{1,2}(?:[-－‐]\d{1,2}){1,3}[.．]?\u3000+\S"
    r"|第 ?[\d０-９一二三四五六七八九十百]{1,5} ?(?P<unit>[編部章節条])|(?P<mark>[■◆▼])[ \u3000]*\S"
    r"|(?P<law>§) ?\d{1,4}[a-z]?[ \xa0]+(?!Abs|Satz|Nr)(?=[^\W\d_a-z])"
    r"|(?P<end>附)[ \u3000]*則(?=[ \u3000（(]|\Z))"
    r"(?!.*(?:[.．…‥・·] ?){4}).{0,80}|(?P<open>[（(【])[^（）()【】]{1,40}[）)】]"
)
# What marks a heading only between blank lines: numbers of one part, numbers of the parts of a law or
# contract, and any numbers before the name of a file or a command.
_PART_NUMBER = r"(?:\d{1,4}(?:[.-]\d{1,3})?[a-z]?|[IVXLC]{1,7}|[A-Z])"
_NUMBERED_HEADING_ALONE = re.compile(
    r"(?:(?P<part>(?i:Chapter|Appendix|Part|Schedule|Annex|Exhibit|Article|Section|Clause|Kapitel|Anhang"
    r"|Anlage|Teil|Abschnitt|Artikel)|§|付録|附录|부록)"
    rf" ?{_PART_NUMBER}(?:\Z|[.:．：]?[ \t\xa0\u3000]+(?:[–—-][ \t]+)?(?!Abs|Satz|Nr)(?=[^a-z]))"
    r"|\d{1,3}(?:\.\d{1,3}){1,4}\.?[ \t\xa0\u3000]+\S|[\d０-９]{1,2}(?:\.[ \t]+|．\s*|\u3000+)[^\W\d_a-z])"
    r"(?!.*(?:[.．…‥・·] ?){4}).{0,80}"
)
_NOT_LAST = ".!。！．｡、，,:：;；"
_LEVEL_OF = {
    **dict.fromkeys("編部章附", 1),
    **dict.fromkeys("節■【", 2),
    **dict.fromkeys("条◆▼（(§", 3),
    **dict.fromkeys(("section", "abschnitt"), 2),
    **dict.fromkeys(("article", "artikel", "clause"), 3),
}
_ITEM_NUMBER = re.compile(r"([\d０-９]+)[.．]\s*")
_JAPANESE_MARKER = re.compile("[■-◯・①-⓿（※]")  # of items below a numbered heading
# "2. Lamps" directly above "2.1 Oil"
_ABOVE_FIRST_PART = re.compile(
    r"(\d{1,2})(?:[.．]\s|．|\u3000).*\n\1[.．－-][1１][ \u3000]+[^\W\d_a-z]"
)
_LONGEST_TITLE = 100  # characters
_COUNT = "[\\d０-９一二三四五六七八九十百]{1,5}"
ARTICLE = re.compile(f"第{_COUNT}条(?:の{_COUNT})?")
"""The number of an article of a Japanese law, which may be below the line that names it."""
_PROMPT = re.compile(r"# *[a-z]|#.*[.,:;]\Z")  # "# apt-get update", or a comment
_LONGER = 4  # the most columns by which an underline is longer than its heading
_ENDS_NO_HEADING = "".join(set(STOPS) - set("?？")) + ":：;；、，,"
_EMPHASIS = re.compile(r"(\*\*|__|`)(.+?)\1")
_BOLD_LINE = re.compile(
    r"(?P<marks>\*{2,3}|_{2,3})(?P<words>[^\s*_](?:[^*_]{0,78}[^\s*_])?)(?P=marks)"
)
# Attributes as pandoc reads them, and the backslash of an escaped sign.
_HEADING_MARKUP = re.compile(r"\{[#.][^{}]*\}\Z|\\(?=[!-/:-@\[-`{-~])")


def end_of_heading(lines: Lines, place: int, *, goes_on: bool) -> tuple[int, int]:
    """Return the index of the line after the heading that begins on a line, and its level; level 0 if none
    begins there.

    A line of dashes below a longer paragraph is a rule, not the underline of its last line. The line that
    ends an AsciiDoc frame is no heading either.
    """
    line = lines[place]
    above = text_at(lines, place - 1)
    marked = _HEADING.fullmatch(line.text)
    if marked and len(line.indent) < 4 and not _is_amid_code(above, marked):
        return place + 1, len(marked["hashes"] or marked["signs"])
    sign = underlined(above, line.text, text_at(lines, place + 1))
    is_rule = goes_on and (sign == "-" or _ends_with(line.text, STOPS))
    if sign and not is_rule:
        return place + 2, _LEVELS[sign]
    level = _numbered(lines, place)
    if not level:
        return place, 0
    return _end_of_numbered(lines, place), level


def _is_bare_part(line: str) -> bool:
    """Return whether a line is the number of a part of a law or contract, whose title is below it."""
    numbered = _NUMBERED_HEADING_ALONE.fullmatch(line)
    return numbered is not None and numbered["part"] is not None and len(line.split()) == 2


def _end_of_numbered(lines: Lines, place: int) -> int:
    """Return the index of the line after a numbered heading; a part's title may be below a blank line."""
    below = place + 1
    title = below if text_at(lines, below) else below + 1
    text = text_at(lines, title)
    is_title = 0 < len(text) <= _LONGEST_TITLE and text[-1] not in _NOT_LAST
    if not _is_bare_part(lines[place].text) or not is_title or text[0].islower():
        return below
    is_text = LIST_MARKER.match(text) or _kind(text, is_alone=True)
    return below if is_text else title + 1


def text_at(lines: Lines, place: int) -> str:
    """Return the text of the line at a place; empty if it is blank, or there is none."""
    return lines[place].text if 0 <= place < len(lines) else ""


def _is_amid_code(above: str, marked: re.Match[str]) -> bool:
    """Return whether what looks like a heading is a comment, a prompt or the end of an AsciiDoc
    frame, which stand directly below another line.
    """
    if not above:
        return False
    return _PROMPT.match(marked[0]) is not None or bool(marked["asciidoc"] and above[0] != "[")


def _numbered(lines: Lines, place: int) -> int:
    """Return the level of a line that its number or mark makes a heading, as in PDF; 0 for others, such
    as entries of lists and tables of contents.
    """
    line = lines[place]
    above = text_at(lines, place - 1)
    below = place + 1 if text_at(lines, place + 1) else place + 2
    following = text_at(lines, below)
    is_alone = _is_alone(lines, place)
    kind = _kind(line.text, is_alone)
    if not kind or not following or kind in (_kind(above), _kind(following, is_alone)):
        return 0
    if _is_within_list(kind, lines, place, below):
        return 0
    if below == place + 1 and _is_unfinished_above(line, lines[below]):
        return 0
    return _LEVEL_OF.get(kind.lower()) or kind.count(".") + 1


def _is_alone(lines: Lines, place: int) -> bool:
    """Return whether a line is between blank ones; a Japanese paragraph's indentation counts as one, and
    so do the items of a Japanese list, the title of a part below its number, and the first part of what is
    below.
    """
    if text_at(lines, place - 1):
        return False
    line = lines[place].text
    following = text_at(lines, place + 1)
    if not following or "\u3000" in lines[place + 1].indent or _is_bare_part(line):
        return True
    is_first_part = _ABOVE_FIRST_PART.match(f"{line}\n{following}")
    return bool(is_first_part or _JAPANESE_MARKER.match(following))


def _is_within_list(kind: str, lines: Lines, place: int, below: int) -> bool:
    """Return whether a line is a list item, one of several numbered paragraphs, or text in parentheses
    that is not above an article of a law.
    """
    following = lines[below].text
    if kind in "（(":
        return ARTICLE.match(following) is None
    number = _ITEM_NUMBER.match(lines[place].text)
    if kind != "1" or not number or following.startswith(f"{number[1]}."):
        return False
    near = filter(None, map(LIST_MARKER.match, (text_at(lines, place - 2), following)))
    is_near_item = any(not _JAPANESE_MARKER.match(marker[0]) for marker in near)
    return len(lines[below].indent) >= number.end() or is_near_item


def _kind(line: str, is_alone: bool = False) -> str:
    """Return what marks a line as a possible heading: its number's form or a character; else empty."""
    if line[-1:] in _NOT_LAST:
        return ""
    numbered = _NUMBERED_HEADING.fullmatch(line)
    if not numbered and is_alone:
        numbered = _NUMBERED_HEADING_ALONE.fullmatch(line)
    if not numbered:
        return ""
    character = next(filter(None, numbered.groups()), "")
    number = normalize("NFKC", line.split()[0]).rstrip(".")
    dots = "." * len(re.findall(r"(?<=\d)[.‐-](?=\d)", number))
    return character or dots or "1"


_LONG_LINE = 60  # columns: a heading of this length has a blank line below it


def _is_unfinished_above(line: Line, below: Line) -> bool:
    return line_width(line.text) >= _LONG_LINE or len(below.indent) > len(line.indent) + 1


def underlined(above: str, text: str, below: str) -> str:
    """Return the sign with which a line is underlined as a heading; empty if it is not.

    Markdown's underlines may have any length. Those of reStructuredText are at least as long as the line;
    shorter ones, and those below a line that announces an example, are rules and code fences.
    """
    if not _UNDERLINE.fullmatch(below) or RULE.fullmatch(text):
        return ""
    sign = below[0]
    is_of_markdown = sign in "=-" and text[0] != "[" and not LIST_MARKER.match(text)
    if is_of_markdown or _is_underlined_title(above, text, below):
        return sign
    return ""


def _is_underlined_title(above: str, text: str, below: str) -> bool:
    """Return whether a line and its underline form a reStructuredText title."""
    is_alone = not above or RULE.fullmatch(above) is not None
    is_as_long = 0 <= len(below) - line_width(text) <= _LONGER
    return is_alone and is_as_long and text[-1] not in ":："


RULE = re.compile(r"(?:([-*_=~#+─━—–・])[ \t]*)\1(?:[ \t]*\1)+")
"""A line that separates what is above it from what is below it."""
PAGE_OF = (
    r"(?:page|seite|página|pagina) \d{1,4} ?(?:/|of|sur|von|de|di) ?\d{1,4}"
    r"|\d{1,4} ?/ ?\d{1,4} ?(?:ページ|頁)"
)
"""A pattern of the number of a page and of all pages."""
PAGE_MARK = re.compile(
    r"(?P<dash>[-–—]) ?\d{1,4} ?(?P=dash)"
    rf"|{PAGE_OF}"
    r"|(?:.*[ \t]{2})?\[page \d{1,4}\]",
    re.IGNORECASE,
)
"""The number of a page on a line of its own, as in text that was extracted from PDFs, and in RFCs."""
LIST_MARKER = re.compile(
    r"[-*+–—][ \t\u3000]+"
    r"|[•‣◦▪▫●○■□◆◇►▶➢✓✔※・･·](?![・･·])\s*"
    r"|[①-⓿❶-➓㉑-㉟㊱-㊿㈠-㈩]\s*|[一二三四五六七八九十]{1,3}\u3000|[ア-ンｱ-ﾝ][ \u3000.．)）]\s*"
    r"|[(（](?:[0-9０-９]{1,3}|[A-Za-z]|[ivxIVX]{1,5}|[一二三四五六七八九十]{1,3}|[ア-ンｱ-ﾝ])[)）]\s*"
    r"|(?P<number>[0-9０-９]{1,3}(?:[.-][0-9]{1,3}){0,4}|[a-z]|[ivx]{1,5}|[IVX]{1,5})"
    r"(?:[)）](?=\D)|[.．](?:[ \t\u3000]+|(?=[^\x00-\x7f０-９])))"
)
_SIGN = re.compile(r"[^\W_]+\Z")


def item_sign(item: str) -> str:
    """Return the number or letter that an item begins with, of 3.1 the last one; empty for others."""
    marker = LIST_MARKER.match(item)
    sign = _SIGN.search(marker[0].rstrip(" \t\u3000.．)）")) if marker else None
    return normalize("NFKC", sign[0]) if sign else ""


def begins_list(item: str) -> bool:
    """Return whether an item is the first of its list by its number or letter, or has none."""
    return item_sign(item) in ("", *"1aAiI一アイ")


DEFINITION = re.compile(r"[:：]\s|<dd\b", re.IGNORECASE)
"""The beginning of a definition below its term."""
_LONE_MARKER = re.compile(
    r"[(（]?(?:[0-9０-９]{1,3}(?:\.[0-9]{1,3}){0,4}|[A-Za-z]|[ivxIVX]{1,5})[)）]?[.．)）]|[-*+•●■・①-⓿]"
)
# A label beside the lines of a text: "2.1  Fees", "-v, --verbose  print".
_LABEL = re.compile(r"\S+(?: \S+)*? {2,}")
_JAPANESE_PARAGRAPH = re.compile(r"[\d０-９]{1,2}\u3000|[０-９]{1,2} ")
# The beginning of a line of a conversation or a log: a time, or a speaker.
_CONVERSATION = re.compile(
    r"[\[(<]?(?:\d{4}[-/.]\d\d?[-/.]\d\d?[ T,]*)?\d{1,2}:\d\d|[A-Z][\w.'’ -]{0,30}: "
)
_OPEN_ENDING = re.compile(
    r"\b(?:the|an?|of|in|is|are|was|were|and|to|by|for|with|or|at|from|that|which|who|as|on|than|into|its"
    r"|their|his|her)$"
)
_MAY_GO_ON = re.compile(r"\b\w{1,3}\.$|[.!?…][\"”’»)]+$|…$")  # "e.g.", "Is it?" (he asked), "Well…"


# lines without a blank one between them: as many may hold paragraphs of several kinds
_PAGE = 8


def join_wrapped(
    run: Lines,
    item_starts: Container[int],
    continued: Container[int],
) -> Iterator[Lines]:
    """Group hard-wrapped lines into paragraphs; every other line is a paragraph of its own.

    Args:
        run: Lines without a blank one between them.
        item_starts: The numbers of lines that are known to begin a list item.
        continued: The numbers of lines that are known to continue the line above.
    """
    widths = sorted(line_width(line.text) for line in run)
    margin = widths[-1]
    last_lines = run[-1:]
    if len(run) >= _PAGE:
        margin = widths[-2]  # the longest line may be a table row or a long URL
        last_lines = run
    is_prose = any(_ends_with(line.text, STOPS) for line in last_lines)
    start = 0
    for place in range(1, len(run)):
        above = run[place - 1]
        below = run[place]
        if below.number in continued:
            continue
        if below.number in item_starts or not _is_wrap(_LineBreak(above, below, margin, is_prose)):
            yield run[start:place]
            start = place
    yield run[start:]


# Widths of the line above a break, in columns or as shares of the margin. They were chosen on Debian's
# manuals in English and Japanese (benchmarks/manuals.py), whose HTML shows the paragraphs that plain text and
# PDF wrap.
WIDEST_WRAP = 160  # text is not hard-wrapped wider than this: a longer line is a paragraph
_LEAST_BEFORE_NUMBER = 40  # "…at the age of\n45. He then" is a wrapped sentence, not item 45
_LEAST_BEHIND_STOP = 30
_LEAST_BEFORE_SMALL_LETTER = {True: 12, False: 30}  # in prose, and in possible lists
_LEAST_SHARE_BEFORE_SMALL_LETTER = 0.45
_LEAST_OF_WIDE_LETTERS = {True: 36, False: 60}
_LEAST_BEHIND_PARTICLE = 30
_LEAST_SHARE_BEFORE_HIRAGANA = 0.5  # which seldom begins a paragraph
_LEAST_SHARE_OF_WIDE_LETTERS = 0.75  # of a PDF page, whose letters vary in width
_EARLY_END = 4  # columns by which a line may end early, so that no line starts with "、" or "）"
_LEAST_BEHIND_OPEN_ENDING = 20
_LEAST_AT_MARGIN = 34
_LEAST_SHARE_WITH_NEXT_WORD = 0.85

# A full stop may belong to an abbreviation; every other terminator is final.
_FINAL = STOPS.replace(".", "") + ":："
_FIRST_NUMBERS = (None, "1", "１", "a", "i", "I")


@dataclass(slots=True)
class _LineBreak:
    """A break between two lines of a run.

    Args:
        above: The line before it.
        below: The line after it.
        margin: The columns of a full line of the run.
        is_prose: Whether lines of the run end in full stops, as in prose but not in lists.
        width: The columns of the line before it.
        letter: The first letter or digit after it, past quotes and markup; "-" if there is none.
    """

    above: Line
    below: Line
    margin: int
    is_prose: bool
    width: int = field(init=False)
    letter: str = field(init=False)

    def __post_init__(self) -> None:
        self.width = line_width(self.above.text)
        first = _FIRST_LETTER.match(self.below.text)
        self.letter = first[1] if first else "-"

    @property
    def share(self) -> float:
        """The width of the line before it as a share of a full line."""
        return self.width / self.margin

    @property
    def is_at_quotation(self) -> bool:
        """Whether a quotation begins or ends there; a text may be cut out of one, behind the first mark."""
        return self.above.number > 0 and self.above.is_quoted != self.below.is_quoted

    @property
    def is_in_item(self) -> bool:
        """Whether the line before it begins an item, or a labelled text that is aligned with the line
        after it.
        """
        if LIST_MARKER.match(self.above.text):
            return True
        aside = _LABEL.match(self.above.text)
        return aside is not None and len(self.below.indent) == len(self.above.indent) + aside.end()


def _is_wrap(line_break: _LineBreak) -> bool:
    """Return whether a break is only a wrap."""
    last = line_break.above.text[-1]
    if _LONE_MARKER.fullmatch(line_break.above.text):
        return True
    if _is_paragraph_break(line_break):
        return False
    if _is_behind_terminator(line_break):
        return _goes_on_behind_terminator(line_break)
    if line_break.letter.islower() and not CJK.match(last):
        is_long = line_break.width >= _LEAST_BEFORE_SMALL_LETTER[line_break.is_prose]
        return is_long and line_break.share >= _LEAST_SHARE_BEFORE_SMALL_LETTER
    if last in "、，」）" or CJK.match(last) or CJK.match(line_break.letter):
        return _goes_on_in_wide_letters(line_break, last)
    return _is_at_margin(line_break)


def _is_paragraph_break(line_break: _LineBreak) -> bool:
    if _begins_paragraph(line_break) or _begins_item(line_break):
        return True
    return _is_between_kinds(line_break)


def _begins_paragraph(line_break: _LineBreak) -> bool:
    """Return whether a line is indented (in Japanese, by a full-width space), except below a list marker, or
    has the number of a paragraph of a Japanese law.
    """
    if _JAPANESE_PARAGRAPH.match(line_break.below.text):
        return True
    outer = line_break.above.indent
    inner = line_break.below.indent
    is_indented = len(inner) > len(outer) + 1 or ("\u3000" in inner and "\u3000" not in outer)
    return is_indented and not line_break.is_in_item


def _is_between_kinds(line_break: _LineBreak) -> bool:
    """Return whether one of the lines is in a quotation, a rule, a line of a conversation or a
    definition, which are never joined with others.
    """
    above = line_break.above.text
    below = line_break.below.text
    if line_break.is_at_quotation or RULE.fullmatch(above) or RULE.fullmatch(below):
        return True
    is_conversation = _CONVERSATION.match(above) and _CONVERSATION.match(below)
    return bool(is_conversation or DEFINITION.match(below))


def _begins_item(line_break: _LineBreak) -> bool:
    """Return whether a line has a marker that is no number of a sentence, and no "(1)" of a manual page."""
    below = line_break.below.text
    marker = LIST_MARKER.match(below)
    if marker is None:
        return False
    is_closed = line_break.is_in_item or _ends_with(line_break.above.text, STOPS + ":：")
    is_first = below[0] not in "(（" and marker["number"] in _FIRST_NUMBERS
    return is_closed or is_first or line_break.width < _LEAST_BEFORE_NUMBER


def _is_behind_terminator(line_break: _LineBreak) -> bool:
    above = line_break.above.text
    return _ends_with(above, _FINAL) or (line_break.letter.islower() and _ends_with(above, "."))


def _goes_on_behind_terminator(line_break: _LineBreak) -> bool:
    is_wrapped = line_break.letter.islower() and line_break.width >= _LEAST_BEHIND_STOP
    return is_wrapped and _MAY_GO_ON.search(line_break.above.text[-12:]) is not None


def _goes_on_in_wide_letters(line_break: _LineBreak, last: str) -> bool:
    if last in "、，を" or (last in "はがにのと" and line_break.width >= _LEAST_BEHIND_PARTICLE):
        return True
    return line_break.width <= WIDEST_WRAP and _is_full_of_wide_letters(line_break)


def _is_full_of_wide_letters(line_break: _LineBreak) -> bool:
    below = line_break.below.text
    next_word = _ASCII_WORD.match(below)
    slack = (next_word.end() if next_word else 2) + _EARLY_END
    is_long = line_break.width >= _LEAST_OF_WIDE_LETTERS[line_break.is_prose]
    if is_long and line_break.width + slack >= line_break.margin:
        return True
    least_share = _LEAST_SHARE_OF_WIDE_LETTERS
    if "ぁ" <= below[0] <= "ん":
        least_share = _LEAST_SHARE_BEFORE_HIRAGANA
    return line_break.is_prose and is_long and line_break.share >= least_share


_ASCII_WORD = re.compile(r"[!-~]{1,30}")
_LONGEST_WORD = 30


def _is_at_margin(line_break: _LineBreak) -> bool:
    """Return whether the next word had no room on the line, or its last word (such as "the") ends no line."""
    width = line_break.width
    if width >= _LEAST_BEHIND_OPEN_ENDING and _OPEN_ENDING.search(line_break.above.text[-10:]):
        return True
    next_word = line_break.below.text.split(maxsplit=1)[0]
    reach = width + 1 + line_width(next_word[:_LONGEST_WORD])
    is_full = reach > _LEAST_SHARE_WITH_NEXT_WORD * line_break.margin
    return line_break.is_prose and is_full and _LEAST_AT_MARGIN <= width <= WIDEST_WRAP


def _ends_with(line: str, characters: str) -> bool:
    last = line.rstrip(QUOTES)[-1:]
    return last != "" and last in characters


_FIRST_LETTER = re.compile(r"[^\w\s]{0,4}\s?[^\w\s]{0,2}_{0,2}([^\W_])")


def line_width(line: str) -> int:
    """Return the columns that a line takes on a terminal; wide characters after the first 200 count
    as one column.
    """
    return len(line) + len(WIDE.findall(line[:200]))
