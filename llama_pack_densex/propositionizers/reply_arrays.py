"""Finding where an array in a malformed reply ends, and writing it with ASCII quotes and brackets.

This settles only what a JSON repair library cannot be asked: whether the array closes at all, and which quotes are
delimiters. The library mends the rest: commas, comments, bare words.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_OPEN = {"[": "]", "［": "]", "【": "]", "{": "}", "｛": "}"}
_CLOSE = "]］】}｝"
_COMMA = ",，、;；"
_STRAIGHT = "\"'`＂＇”’"
_PAIRED = {"“": "”", "„": "“”", "‘": "’", "「": "」", "『": "』", "«": "»", "〝": "〟"}
_QUOTES = _STRAIGHT + "".join(_PAIRED)
_OPENERS = "".join(_OPEN)

_ARRAY = "".join(re.escape(c) for c in "[［【")
_Q, _C, _O, _S = ("".join(re.escape(c) for c in group) for group in (_QUOTES, _CLOSE, _OPENERS, _COMMA))
START = re.compile(rf"[{_ARRAY}]\s*(?:\\?[{_Q}]|[{_O}{_C}]|//|/\*|\Z)|[{{｛]\s*(?:[{_Q}{_C}]|\Z)")
# A quote is a delimiter where what follows it can follow a string: 'It's' and "He said "yes", and left" survive.
_AFTER_STRING = re.compile(
    rf"\s*(?:[{_C}]|[{_S}]\s*(?:\\?[{_Q}{_O}{_C}]|//|#|/\*|\.\.\.|…|(?:null|None|true|false|True|False)\b|\Z)|//|/\*|\Z)"
    rf"|\s+\\?[{_Q}]"
)
_AFTER_KEY = re.compile(r"\s*[:：]")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|#[^\n]*", re.DOTALL)
_BARE = re.compile(rf"[^\s{_Q}{_O}{_C}{_S}:：/#][^\n{_O}{_C}{_S}:：]*")
_MAX_DEPTH = 50
_MAX_STRING = 20_000


@dataclass(frozen=True)
class ArraySpan:
    """An array or object in a reply.

    Args:
        end: Where it ends in the reply; None where it never closes or says itself that it is not whole ("...").
        json: The same in near-JSON, with ASCII quotes and brackets.
        strings: How many strings it holds.
    """

    end: int | None
    json: str
    strings: int


def find_start(text: str, position: int) -> int | None:
    """Find the next bracket that opens an array or object rather than a remark in prose."""
    match = START.search(text, position)
    return match.start() if match else None


def close_array(text: str, start: int) -> ArraySpan:
    """Follow an array from its opening bracket to its closing one."""
    out: list[str] = []
    expected: list[str] = []
    strings = 0
    position = start
    while position < len(text) and len(expected) <= _MAX_DEPTH:
        char = text[position]
        if char in _OPEN:
            expected.append(_OPEN[char])
            out.append("[" if _OPEN[char] == "]" else "{")
            position += 1
        elif char in _CLOSE:
            out.append(expected.pop())
            position += 1
            if not expected:
                return ArraySpan(position, "".join(out), strings)
        elif char in _QUOTES or text.startswith('\\"', position):
            string = _read_string(text, position, in_object=expected[-1] == "}")
            if string is None:
                return ArraySpan(None, "", strings + 1)
            out.append(json.dumps(string[0]))
            strings += 1
            position = string[1]
        elif comment := _COMMENT.match(text, position):
            position = comment.end()
        elif bare := _BARE.match(text, position):
            if bare.group().startswith(("...", "…")):
                return ArraySpan(None, "", strings)
            out.append(bare.group())
            position = bare.end()
        else:
            out.append("," if char in _COMMA else ":" if char in ":：" else char)
            position += 1
    # {"propositions": [...] without its last brace lacks nothing
    if out and "]" not in expected and "".join(out).rstrip().endswith("]"):
        return ArraySpan(len(text), "".join(out) + "}" * len(expected), strings)
    return ArraySpan(None, "", strings)


def _read_string(text: str, position: int, *, in_object: bool) -> tuple[str, int] | None:
    """Read the string that opens at a position; return it and where it ends."""
    escaped = text[position] == "\\"
    opener = text[position + escaped]
    start = position + 1 + escaped
    closers = _PAIRED.get(opener, opener)
    for nested in (True, False) if opener in _PAIRED else (False,):
        end = _find_end(text, start, opener, closers, nested=nested, escaped=escaped, in_object=in_object)
        if end is not None:
            return _unescape(text[start:end]), end + 1 + escaped
    return None


def _find_end(
    text: str, start: int, opener: str, closers: str, *, nested: bool, escaped: bool, in_object: bool
) -> int | None:
    quote = rf"\\[{re.escape(closers)}]" if escaped else rf"[{re.escape(closers)}]"
    other = r"\\\\." if escaped else r"\\."
    depth = 0
    pattern = re.compile(rf"(?P<end>{quote})|(?P<open>{re.escape(opener)})|{other}", re.DOTALL)
    for match in pattern.finditer(text, start, min(len(text), start + _MAX_STRING)):
        if match["open"] is not None:
            depth += nested
        elif match["end"] is not None:
            if depth:
                depth -= 1
            elif _AFTER_STRING.match(text, match.end()) or (in_object and _AFTER_KEY.match(text, match.end())):
                return match.start()
    return None


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] in _ESCAPES:
            return _ESCAPES[match[2]]
        return match[2] if match[2] in _QUOTES + "\\/" else match[0]

    return _ESCAPE.sub(replace, text)
