"""The words of a text, without link targets, picture data and text that is struck out.

The document's text itself is not changed, so that spans stay valid; these functions return what models and
searches see of it. They use regular expressions because passages are cut out of documents: a reference and
its definition may be in different passages, and a parser that needs both would leave link targets in.
"""

from __future__ import annotations

import re
from html import unescape
from html.entities import html5

from llama_pack_densex.text.layout import QUOTATION_MARK

_LABEL = r"\[(?P<{name}>(?:[^\[\]\\]|\\.|\[[^\[\]]{{0,200}}\]){{0,500}})\]"
_TARGET = r"(?:\((?:[^()\\]|\\.|\([^()]{0,500}\)){0,2000}\)|\[[^\[\]]{0,100}\])"

DATA_URI = re.compile(
    r"data:[\w.+-]{1,60}/[\w.+-]{1,80}[;,][^\s()<>\[\]\"'`]*"
    # further lines, as mail programs and encoders wrap them, and a shorter last one
    r"(?:\r?\n[ \t]*[A-Za-z0-9+/=]{60,}(?=\s))*(?:\r?\n[ \t]*[A-Za-z0-9+/]*={0,2}(?=[)\"'>]))?",
    re.IGNORECASE,
)
# In code, `matrix[i][j]` is not a link.
_LINK_START = r"(?<![A-Za-z0-9_\])])"
_LINKED_PICTURE = re.compile(
    rf"{_LINK_START}\[\s*!{_LABEL.format(name='picture')}{_TARGET}\s*\]{_TARGET}"
)
_PICTURE = re.compile(rf"!{_LABEL.format(name='words')}{_TARGET}")
_LINK = re.compile(rf"{_LINK_START}{_LABEL.format(name='words')}{_TARGET}")
_DEFINITION = re.compile(
    r"(?m)^[ >]{0,6}\[(?!\^)[^\[\]\n]{1,200}\]:[ \t]*(?:<[^<>\n]*>|\S*)(?:[ \t]+[\"'(][^\n]*)?[ \t]*$"
)
_ADDRESS = re.compile(
    r"<?\b(?:https?|ftps?)://(?:[\w.~%-]{1,80}(?::[^\s@/]{0,80})?@)?(?:www\.)?"
    r"(?P<host>[A-Za-z0-9.-]{1,255})[!#-;=?-Z_a-z~]*(?<![.,;:!?'\")\]])>?",
    re.IGNORECASE | re.ASCII,
)
STRUCK_OUT = re.compile(
    r"(?<![~`])(?:~~(?![~\s])(?:[^~\n]|\n(?!\s*\n)|~(?!~)){1,2000}?(?<!\s)~~(?!~)"
    r"|<(?P<tag>del|s|strike)\b[^<>]{0,200}>.{0,2000}?</(?P=tag)>)",
    re.IGNORECASE | re.DOTALL,
)
_LINE_TAG = re.compile(r"</?(?:br|p|div|li|tr|td|th|dt|dd|hr|h[1-6])\b[^<>]{0,500}>", re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:a|abbr|article|aside|b|bdi|bdo|big|blockquote|button|center|cite|code|col|colgroup|details|dfn|dl|em"
    r"|figcaption|figure|font|footer|header|i|img|input|ins|kbd|label|main|mark|nav|ol|picture|q|rb|ruby|samp|section|small|source|span|strong|sub|summary"
    r"|sup|table|tbody|tfoot|thead|time|u|ul|var|video|wbr)\b[^<>]{0,2000}>",
    re.IGNORECASE,
)
# Inline code; with "`_" at its end it is a reStructuredText link.
_CODE = re.compile(r"(?<!`)(`{1,2})(?!`)(?:.|\n(?!\s*\n)){1,500}?(?<!`)\1(?![`_])")
_MARKS_IN_CODE = "<>[]()~&\\:"
# noncharacters, which no text has
_HIDDEN_MARKS = "\ufde0\ufde1\ufde2\ufde3\ufde4\ufde5\ufde6\ufde7\ufde8\ufde9"
_HIDE = str.maketrans(_MARKS_IN_CODE, _HIDDEN_MARKS)
_SHOW = str.maketrans(_HIDDEN_MARKS, _MARKS_IN_CODE)
_WRITTEN_TAG = re.compile(
    rf"[A-Za-z\d_.]{{0,40}}(?:{_LINE_TAG.pattern}|{_TAG.pattern}|</?(?:del|s|strike|pre)\b[^<>]{{0,200}}>)"
    r"|<!--|-->",
    re.IGNORECASE,
)
_READING = re.compile(r"<r[tp]\b[^<>]{0,200}>[^<>]{0,200}</r[tp]>", re.IGNORECASE)
_POWER = re.compile(r"(?<=\d)<sup>(?=[-−]?\d+</sup>)", re.IGNORECASE)
_QUOTATION_MARKS = re.compile(rf"(?<=\n){QUOTATION_MARK}(?=\S)")
# Pandoc's attributes of a picture, a link or code: ![](a.png){.wide}
_ATTRIBUTES = re.compile(r"(?<=[)\]`])\{(?:[.#:]|[\w-]+=)[^{}\n]{0,500}\}")
# Hugo's shortcodes, and the tags of Liquid that include a file or switch templates off
_SHORTCODE = re.compile(
    r"\{\{[<%](?!/\*)[^{}\n]{0,500}[>%]\}\}|\{%-?[ \t]*(?:(?:end)?raw|include\b[^{}\n]{0,500})[ \t]*-?%\}"
)
# A role of MyST, perhaps with a target: {doc}`the guide <guide/index>`
_ROLE = re.compile(r"\{[A-Za-z][\w:+-]{0,40}\}`([^`<>\n]{1,500}?)(?:[ \t]*<[^`<>\n]{0,500}>)?`")
_WORDS_OF_SHORTCODE = re.compile(r"\stext=\"([^\"]*)\"|\bheading\s+\"([^\"]*)\"")
_SPACES = re.compile(r"(?<=\S)[ \t]{2,}(?=\S)")
# some of Markdown's escapes; in LaTeX, "\\[ " and "\\(" begin formulas
_ESCAPE = re.compile(r"\\([_*#~$.+!&|<>-]|\[(?=\S))")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][\dA-Fa-f]{1,6}|[A-Za-z][A-Za-z\d]{1,31});")
_MARKS = ("[", "{", "<", ">", "~~", "://", "data:", "\\", "&")


def readable_text(text: str) -> str:
    """Return a text as an LLM reads it: without embedded picture data and text that is struck out.

    Args:
        text: Any text.

    Returns:
        The text without these; links stay.

    Example:
        >>> readable_text("The fee is ~~80~~ 70 euros. ![tower](data:image/png;base64,iVBORw0KGgo=)")
        'The fee is 70 euros. ![tower]()'
    """
    if not any(mark in text for mark in ("data:", "~~", "<")):
        return text
    words = STRUCK_OUT.sub("", DATA_URI.sub("", text))
    return text if words == text else _SPACES.sub(" ", words)


def searchable_text(text: str) -> str:
    """Return a text as it is embedded and searched: with the words of links and pictures, not their targets.

    A bare URL is shortened to its host. Text that is struck out (`~~`, `<del>`), HTML comments and tags are
    removed, and so are pictures that are links, such as badges; escapes (`file\\_name`, `AT&amp;T`) are
    resolved. Inline code (`<br>`, `https://api.example.com/v2`) stays as it is.

    Args:
        text: Any text, Markdown or plain.

    Returns:
        The text without these.

    Example:
        >>> searchable_text("See [the form](https://example.com/f?id=1) or https://example.com/help/a.html.")
        'See the form or example.com.'
    """
    if not any(mark in text for mark in _MARKS):
        return text
    words = without_quotation_marks(DATA_URI.sub("", text))
    words = _ATTRIBUTES.sub("", words)
    words = _ROLE.sub(r"\1", words)
    words = _SHORTCODE.sub(lambda code: _words_of_shortcode(code[0]), words)
    words = _CODE.sub(lambda code: code[0].translate(_HIDE), words)
    words = _without_comments(words)
    words = _LINKED_PICTURE.sub("", words)
    words = _PICTURE.sub(r"\g<words>", words)
    words = _LINK.sub(r"\g<words>", words)
    words = _DEFINITION.sub("", words)
    words = STRUCK_OUT.sub("", words)
    words = _ADDRESS.sub(r"\g<host>", words)
    words = _POWER.sub("^", _READING.sub("", words))
    words = _TAG.sub("", _LINE_TAG.sub(" ", words))
    words = _ENTITY.sub(_character_of, _ESCAPE.sub(r"\1", words)).translate(_SHOW)
    return text if words == text else _SPACES.sub(" ", words)


def with_tags_as_code(text: str) -> str:
    """Mark the tags and comments that a text without markup writes about as code.

    Args:
        text: Any text.

    Returns:
        The text with backticks around them.

    Example:
        >>> with_tags_as_code("A row begins with <tr>.")
        'A row begins with `<tr>`.'
    """
    if "<" not in text or "`" in text:
        return text
    return _WRITTEN_TAG.sub(r"`\g<0>`", text)


def _character_of(entity: re.Match[str]) -> str:
    name = entity[0][1:]
    if name.startswith("#"):
        return unescape(entity[0]).replace("\xa0", " ")
    return html5.get(name, entity[0]).replace("\xa0", " ")


def _words_of_shortcode(shortcode: str) -> str:
    """Return the words that a Hugo shortcode shows; empty if they come from elsewhere."""
    words = _WORDS_OF_SHORTCODE.search(shortcode)
    if words is None:
        return ""
    return words[1] or words[2] or ""


def without_quotation_marks(text: str) -> str:
    """Return a text without the marks of a quotation (`>`) that begin its lines, below the first one."""
    return _QUOTATION_MARKS.sub("", text)


def without_pictures(text: str) -> str:
    """Remove pictures together with their alternative text."""
    return _PICTURE.sub("", _LINKED_PICTURE.sub("", text)) if "![" in text else text


def _without_comments(text: str) -> str:
    """Remove HTML comments; a regular expression would take quadratic time on comments that never end."""
    parts: list[str] = []
    position = 0
    while (start := text.find("<!--", position)) >= 0:
        end = text.find("-->", start)
        if end < 0:
            break
        parts.append(text[position:start])
        position = end + len("-->")
    return "".join([*parts, text[position:]])
