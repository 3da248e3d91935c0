"""HTML for notebooks: tables, marked passages, answers with footnotes; escaped, for light and dark pages.

Text keeps the page's own colour. Highlights are translucent, so that they show on both backgrounds.
"""

from __future__ import annotations

import html
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence

from markdown_it import MarkdownIt

_LINE = "1px solid rgba(128,128,128,.35)"
_BLOCK = (
    f"border:{_LINE};border-radius:6px;padding:8px 12px;margin:4px 0;max-width:60em;line-height:1.5"
)
_CELL = f"text-align:left;padding:2px 12px 2px 0;border-bottom:{_LINE};vertical-align:top"
_MARK = "background:rgba(255,193,7,.38);color:inherit;border-radius:3px"
_LINK = "color:#3f8fe0"
_NO_BREAK = "&#8288;"  # keeps a line from breaking between "。" and its footnote
_QUIET = "opacity:.75;font-size:.9em"

_FOOTNOTE = re.compile(r"\[\^(\d+)\]")
_CODE = re.compile(r"(<pre\b.*?</pre>|<code\b.*?</code>)", re.DOTALL)

Span = tuple[int, int]


def escape(text: str) -> str:
    """Escape text for HTML; lone surrogates, which cannot be displayed, become question marks."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))


def block(title: str, *parts: str) -> str:
    """Return a framed block with a title above its parts, which are HTML."""
    heading = f"<div><b>{escape(title)}</b></div>" if title else ""
    return f'<div class="densex" dir="auto" style="{_BLOCK}">{heading}{"".join(parts)}</div>'


def note(text: str) -> str:
    """Return a line of small print; empty if there is no text."""
    return f'<div style="{_QUIET}">{escape(text)}</div>' if text else ""


def table(rows: Iterable[Sequence[object]], header: Sequence[object] = ()) -> str:
    """Return a table of texts and numbers."""
    lines = [_row("th", header)] if header else []
    lines += [_row("td", row) for row in rows]
    content = f'<table style="border-collapse:collapse">{"".join(lines)}</table>'
    return f'<div style="overflow-x:auto">{content}</div>'


def _row(tag: str, cells: Sequence[object]) -> str:
    content = "".join(f'<{tag} style="{_CELL}">{escape(str(cell))}</{tag}>' for cell in cells)
    return f"<tr>{content}</tr>"


def bullets(texts: Iterable[str]) -> str:
    """Return a bulleted list of texts; empty if there are none."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul style="margin:4px 0;padding-left:1.4em">{items}</ul>' if items else ""


def folded(summary: str, *parts: str) -> str:
    """Return parts (HTML) that are shown once their summary is clicked."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def passage(text: str, marked: Iterable[Span] = ()) -> str:
    """Return a text with its line breaks, and with some spans of it highlighted.

    Args:
        text: The text.
        marked: The (start, end) of each highlight, in characters of the text; spans may overlap.
    """
    parts = []
    shown_to = 0
    for start, end in _merged(marked, len(text)):
        parts.append(escape(text[shown_to:start]))
        parts.append(f'<mark style="{_MARK}">{escape(text[start:end])}</mark>')
        shown_to = end
    parts.append(escape(text[shown_to:]))
    return f'<div style="white-space:pre-wrap;margin:4px 0">{"".join(parts)}</div>'


def _merged(spans: Iterable[Span], length: int) -> list[Span]:
    """Clip spans to a text's length and merge those that overlap; in order."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        start = max(0, start)
        end = min(length, end)
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            start, last_end = merged.pop()
            end = max(last_end, end)
        merged.append((start, end))
    return merged


def answer(markdown: str, sources: Mapping[int, tuple[str, str]]) -> str:
    """Render an answer in Markdown, with its footnotes as superscripts that link to the sources below it.

    Args:
        markdown: The answer, with footnotes as `[^1]`. HTML in it is shown as text, pictures are not loaded.
        sources: For each footnote's number, the name of its source and the HTML to show for it.
    """
    prefix = f"densex-{uuid.uuid4().hex[:8]}"  # a notebook shows many answers
    renderer = MarkdownIt("js-default").disable("image")
    body = renderer.render(markdown.encode("utf-8", "replace").decode("utf-8"))

    def superscript(footnote: re.Match[str]) -> str:
        return _superscript(int(footnote[1]), sources, prefix)

    parts = _CODE.split(body)  # text and code alternate
    parts[::2] = [_FOOTNOTE.sub(superscript, part) for part in parts[::2]]
    items = [
        f'<li value="{number}" id="{prefix}-{number}">{folded(name, content)}</li>'
        for number, (name, content) in sorted(sources.items())
    ]
    listed = f'<ol style="{_QUIET};padding-left:1.8em">{"".join(items)}</ol>' if items else ""
    return f"<div>{''.join(parts)}</div>{listed}"


def _superscript(number: int, sources: Mapping[int, tuple[str, str]], prefix: str) -> str:
    if number not in sources:
        return ""
    title = escape(sources[number][0])
    link = f'<a href="#{prefix}-{number}" title="{title}" style="{_LINK}">{number}</a>'
    return f'{_NO_BREAK}<sup style="margin-right:.15em">{link}</sup>'
