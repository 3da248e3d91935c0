"""Converts MDX, AsciiDoc, Org and MediaWiki to Markdown: links, code and headings, without hidden text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from llama_pack_densex.reading.files import Part, by_word
from llama_pack_densex.reading.plain import read_text
from llama_pack_densex.reading.written_tables import asciidoc_table, wiki_table

_FLAGS = re.MULTILINE | re.DOTALL


class _Notation(NamedTuple):
    """How a notation differs from Markdown.

    Args:
        code: The pattern of code, with the groups "code" and "language" unless it is in Markdown's fences.
        rules: Patterns for text outside of code and their replacements, in order.
        table: The pattern of a table, with the group "table" and others that its reader needs.
        read_table: Makes Markdown of a table, given by these groups.
    """

    code: str
    rules: Mapping[str, str | Callable[[re.Match[str]], str]]
    table: str = ""
    read_table: Callable[[Mapping[str, str]], str] | None = None


_FENCED = r"^[ \t]*(?P<fence>`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*(?P=fence)|\Z)|`[^`\n]+`"
# The attributes of a component: names, strings and expressions.
_ATTRIBUTES = (
    r"(?:[^<>{}\"']|\"[^\"]{0,2000}\"|'[^']{0,2000}'"
    r"|\{(?:[^{}]|\{[^{}]{0,500}\}){0,2000}\}){0,2000}"
)
_TITLE = r"[^<>]*?\s(?:title|label|summary)=[\"'](?P<title>[^\"'\n]+)"
_NAMED = r"[A-Z][\w.]*(?=[\s/>])"
# An unclosed element ends at the next of its kind: otherwise each would be searched to the end of the text.
_NOTATIONS = {
    ".mdx": _Notation(
        _FENCED,
        {
            r"^(?:import|export)\b[^\n]*(?:\n[^\n]*\S[^\n]*)*": "",
            r"\{/\*(?:(?!\{/\*).)*?\*/\}": "",
            # the title of a box or a tab is shown
            rf"^[ \t]*<{_NAMED}(?={_TITLE}){_ATTRIBUTES}>": r"\n\g<title>\n\n",
            rf"</?(?:{_NAMED}{_ATTRIBUTES})?>": "",
        },
    ),
    ".adoc .asciidoc": _Notation(
        r"^(?:\[source(?:,(?P<language>\w+))?[^\]\n]*\]\n)?(?P<fence>-{4,}|\.{4,})\n(?P<code>.*?)\n(?P=fence)$",
        {
            r"^/{4,}\n.*?\n/{4,}$|^//(?!/)[^\n]*\n": "",
            r"^:!?[\w-]+!?:(?: [^\n]*)?\n": "",
            r"^(?:ifn?def|ifeval|endif|include|toc)::[^\n]*\n": "",
            r"^\[(?:\[[^\]\n]*\]|[#.%\"\w][^\]\n]*)\]\n": "",
            r"^(?:={4,}|\*{4,}|_{4,}|--)\n": "\n",
            r"(?:link:|(?=https?://))(?:\+\+)?([^\s\[\]]+?)(?:\+\+)?\[([^\[\]\n]+?)\^?\]": r"[\2](\1)",
            r"link:([^\s\[\]]+)\[\]": r"\1",
            r"(?:xref:[^\s\[\]]+\[|<<[^<>,\n]+, *)([^\[\]<>\n]+?)(?:\]|>>)": r"\1",
            r"<<([^<>,\n]+)>>|xref:([^\s\[\]]+)\[\]": r"\1\2",
            r"image::?([^\s\[\]]+)\[([^\[\],\n]*)[^\[\]\n]*\]": r"![\2](\1)",
            r"`\+([^`\n]+)\+`": r"`\1`",
            r"^\.(\w[^\n|]*)$": r"\n\1\n",
            r"^(\w[^\n]*?):: +(?=\S)": r"- \1: ",
            r"^(\*{1,5}) ": lambda item: f"{'  ' * (len(item[1]) - 1)}- ",
            r"^\.[ ]": "1. ",
            r"^\+$": "",
        },
        r"(?P<head>(?:^(?:\[[^\]\n]*\]|\.\w[^\n]*)\n){0,4})"
        r"^(?P<mark>[|,:]={3,})\n(?P<table>.*?)\n(?P=mark)$",
        asciidoc_table,
    ),
    ".org": _Notation(
        r"^[ \t]*#\+begin_(?P<fence>src|example)(?:[ \t]+(?P<language>\w+))?[^\n]*\n"
        r"(?P<code>(?:(?!#\+begin_).)*?)\n[ \t]*#\+end_(?P=fence)",
        {
            r"(?i)^[ \t]*:(?:properties|logbook):(?:(?!:properties:).)*?:end:\n": "",
            r"^[ \t]*#[ \t][^\n]*\n": "",
            r"(?i)^#\+title:[ \t]*([^\n]*)": r"# \1\n",
            r"^[ \t]*#\+[^\n]*\n": "",
            r"(?<!\|)\n(?=\|)": r"\n\n",
            r"^\|-[-+]*\|$": lambda rule: rule[0].replace("+", "|"),
            r"(?<![ \t])[ \t]+:[\w@:]+:$": "",
            r"^(\*+) ": lambda heading: f"\n{'#' * min(len(heading[1]), 6)} ",
            r"\[\[([^\[\]\n]+)\]\[([^\[\]\n]+)\]\]": r"[\2](\1)",
            r"\[\[([^\[\]\n]+)\]\]": r"\1",
            r"(?<![\w/])[=~]([^\s=~](?:[^=~\n]*[^\s=~])?)[=~](?![\w/])": r"`\1`",
        },
    ),
    ".wiki .mediawiki": _Notation(
        r"<(?P<fence>syntaxhighlight|source|pre)(?: lang=\"?(?P<language>\w+))?[^<>]*>\n?"
        r"(?P<code>(?:(?!<(?P=fence)\b).)*?)</(?P=fence)>",
        {
            r"<ref\b[^<>]*/>|<!--(?:(?!<!--).)*?-->|__[A-Z]+__": "",
            r"<ref\b[^<>]*>((?:(?!<ref\b).)*?)</ref>": r" (\1)",
            r"\[\[(?:Category|Kategorie|Catégorie|カテゴリ):[^\[\]\n]*\]\]": "",
            r"\[\[(?:File|Image|ファイル|画像|Datei):"
            r"([^\[\]|\n]*)(?:\|[^\[\]|\n]*)*?\|?([^\[\]|\n]*)\]\]": r"![\2](\1)",
            r"\[\[([^\[\]|\n]+)\|([^\[\]\n]+)\]\]": r"[\2](\1)",
            r"\[\[([^\[\]|\n]+)\]\]": r"\1",
            r"\[(\w+://[^\s\[\]]+) ([^\[\]\n]+)\]": r"[\2](\1)",
            r"'''(.+?)'''": r"**\1**",
            r"''(.+?)''": r"*\1*",
            r"^# *(?=[^\s#*:])": "1. ",
        },
        r"^[ :]*\{\|[^\n]*\n(?P<table>(?:(?!^[ :]*\{\|).)*?)\n[ ]*\|\}",
        wiki_table,
    ),
}


def read_notation(file: Path) -> Iterator[Part]:
    """Yield a text as Markdown, from the notation of its file's suffix."""
    notation = by_word(_NOTATIONS)[file.suffix.lower()]
    for part in read_text(file):
        yield part._replace(text=_to_markdown(part.text, notation))


def _to_markdown(text: str, notation: _Notation) -> str:
    text = "\n".join([*text.splitlines(), ""])
    pattern = "|".join(filter(None, [notation.code, notation.table]))
    parts: list[str] = []
    position = 0
    for match in re.finditer(pattern, text, _FLAGS | re.IGNORECASE):
        parts.append(_without_code(text[position : match.start()], notation))
        parts.append(_table(match, notation) or _fenced(match))
        position = match.end()
    parts.append(_without_code(text[position:], notation))
    return "".join(parts).lstrip("\n")


def _table(match: re.Match[str], notation: _Notation) -> str:
    """Return a table as Markdown; empty if a match is not a table."""
    parts = match.groupdict()
    if notation.read_table is None or parts["table"] is None:
        return ""
    parts["table"] = _without_code(parts["table"], notation)
    line_above = "" if match.string.endswith("\n\n", 0, match.start()) else "\n"
    line_below = "" if match.string.startswith("\n\n", match.end()) else "\n"
    return f"{line_above}{notation.read_table(parts)}{line_below}"


def _without_code(text: str, notation: _Notation) -> str:
    for pattern, replacement in notation.rules.items():
        text = re.sub(pattern, replacement, text, flags=_FLAGS)
    return re.sub(r"\n{3,}", "\n\n", text)


def _fenced(code: re.Match[str]) -> str:
    parts = code.groupdict()
    if "code" not in parts:
        return code[0]
    language = parts["language"] or ""
    return f"```{language}\n{parts['code']}\n```"
