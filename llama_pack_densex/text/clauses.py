"""The numbers of articles, clauses and items of laws and contracts: where they stand, and as people refer to
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from unicodedata import normalize

from llama_pack_densex.text.blocks import find_blocks
from llama_pack_densex.text.layout import Block
from llama_pack_densex.text.plain import item_sign
from llama_pack_densex.text.sentences import Span

Path = tuple[str, ...]
"""The numbers of a clause, outermost first: 7, 2, a for Article 7(2)(a)."""

_KANJI = "〇一二三四五六七八九"
_COUNT = rf"[\d{_KANJI}十百]{{1,5}}"
_NUMBER = r"\d{1,4}[a-z]?(?:\.\d{1,3})*"
_NAME = r"(?:articles?|art|sections?|sec|clauses?|rules?|artikel|klausel|ziffer|ziff|§+|第)\.? ?"
_PART = (
    r"(?:,? ?(?:(?:paragraph|para|subsection|point|item|absatz|abs|nummer|nr|buchstabe|buchst|lit)\.? ?"
    r"|(?=\())\(?[\da-z]{1,4}\b\)?)"
)
_REFERENCE = re.compile(rf"(?<!\w){_NAME}(?P<number>{_NUMBER})(?P<parts>{_PART}*)(?!\w)", re.I)
_ARTICLE = re.compile(
    rf"第({_COUNT})条(?:の({_COUNT}))?(?:第({_COUNT})[項款])?(?:第\(?({_COUNT})\)?[号项])?"
)
_SIGN = re.compile(r"\b(?:\d{1,3}|[a-z]{1,4})\b(?=\)|\Z|[ ,(])")
_OWN_NUMBER = re.compile(rf"[\W_]*(?:{_NAME})?({_NUMBER})(?![\d%] ?|[章節部編])", re.I)
_OWN_CLAUSE = re.compile(rf"[-* ]*(?:{_NAME})?\d{{1,3}}(?:\.\d{{1,3}})+\.?\s", re.I)
_IS_COUNT = re.compile(_COUNT)
# What a line begins with that may have the number of a clause; without one, a passage need not be parsed.
_MAY_BE_NUMBERED = re.compile(rf"(?m)^(?:[^\w\n]|_)*(?:{_NAME})?\d|第", re.I)
_OWN_PARAGRAPH = re.compile(r"(\d{1,2}) (?=[^\x00-\x7f])")


def references_in(question: str) -> list[Path]:
    """Return the clauses that a question names: "§ 12 Abs. 3", "Article 7(2)", "第7条第2項"."""
    plain = normalize("NFKC", question)
    paths = [_path_of(article) for article in _ARTICLE.finditer(plain)]
    for reference in _REFERENCE.finditer(plain):
        parts = re.sub(r"[^\W\d_]{3,}|abs|nr", "", reference["parts"].lower())
        paths.append((*reference["number"].lower().split("."), *_SIGN.findall(parts)))
    return paths


def _path_of(article: re.Match[str]) -> Path:
    number, *parts = (part and _counted(part) for part in article.groups())
    return (number + (f"-{parts[0]}" if parts[0] else ""), *filter(None, parts[1:]))


def _counted(number: str) -> str:
    """Return a number in digits: 二十三 as 23."""
    if number.isdecimal():
        return number
    total = 0
    digit = 0
    for sign in number:
        if sign in "十百":
            total += (digit or 1) * (10 if sign == "十" else 100)
            digit = 0
        else:
            digit = _KANJI.find(sign)
    return str(total + digit)


def clauses_of(text: str, context: str = "", section: str = "") -> Iterator[tuple[Path, Span]]:
    """Yield the numbered parts of a passage, each with its number and the numbers of what it is in.

    Args:
        text: The passage.
        context: The Markdown that stands before it.
        section: The headings above it, joined by ", ".
    """
    whole = context + text
    offset = len(context)
    heading = section.rpartition(", ")[2]
    if not _MAY_BE_NUMBERED.search(f"{heading}\n{whole}"):
        return
    numbers = _Numbers(_number_of_heading(heading))
    for block in find_blocks(whole):
        numbers.enter(block, block.text_in(whole))
        if not numbers.clause or block.end <= offset:
            continue
        span = (max(block.start - offset, 0), block.end - offset)
        yield numbers.path, span
        if numbers.begins_article:  # its first paragraph has no number
            yield (*numbers.clause, "1"), span


@dataclass
class _Numbers:
    """The numbers that hold for the current block, while the blocks of a text are read in order.

    Args:
        clause: The number of the article or clause.
        items: The numbers of its paragraph and items, by the depths of these.
        begins_article: Whether the article begins with the block.
    """

    clause: Path
    items: dict[int, str] = field(default_factory=dict)
    begins_article: bool = False

    @property
    def path(self) -> Path:
        """The number of the block, with those of what it is in."""
        return (*self.clause, *filter(None, self.items.values()))

    def enter(self, block: Block, raw: str) -> None:
        """Go on to the next block, which has this text."""
        own = normalize("NFKC", raw)
        self.begins_article = _ARTICLE.match(own) is not None
        if block.kind == "heading" or self.begins_article or _OWN_CLAUSE.match(own):
            self.items = {}
            self.clause = _number_of_heading(own)
        elif block.kind == "item":
            self._enter_item(block.level, item_sign(raw.removeprefix("- ")))
        elif block.kind == "prose":
            paragraph = _OWN_PARAGRAPH.match(own)
            self.items = {0: paragraph[1]} if paragraph else {}

    def _enter_item(self, depth: int, sign: str) -> None:
        outer = {level: number for level, number in self.items.items() if level < depth}
        number = _counted(sign) if _IS_COUNT.fullmatch(sign) else sign.lower()
        self.items = {**outer, depth: number}


def _number_of_heading(heading: str) -> Path:
    plain = normalize("NFKC", heading)
    article = _ARTICLE.match(plain)
    if article:
        return _path_of(article)
    number = _OWN_NUMBER.match(plain)
    return tuple(number[1].lower().split(".")) if number else ()


_MARK = "\ufdd6"  # before the number of a clause as a token


def clause_tokens(path: Path) -> list[str]:
    """Return the tokens by which a clause is found: its number, and those of what it is in."""
    return [_MARK + "/".join(path[:depth]) for depth in range(1, len(path) + 1)]
