"""The text of equations in Word files, on slides and on pages, on one line: "x_1^2 = √(a+b)/2"."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from lxml import html

_LEFT_OUT = ("annotation", "annotation-xml", "del")
_INVISIBLE = dict.fromkeys((0x2061, 0x2062, 0x2063, 0x2064))  # "apply", "times" and such
_SIGN = re.compile(r"[\d.]*|\([^()]*\)|.", re.DOTALL)
_SIMPLE = re.compile(rf"√?(?:[\w.^]*|{_SIGN.pattern})", re.DOTALL)


def equation_text(element: Any) -> str:
    """Return the text of an element of an equation, in Word's and PowerPoint's markup or in MathML.

    Args:
        element: An lxml element, such as `m:oMath` or `math`.
    """
    name = local_name(element)
    if name in _LEFT_OUT or name.endswith("Pr"):
        return ""
    own = (element.text or "").translate(_INVISIBLE)
    children = [child for child in element if isinstance(child.tag, str)]
    parts = [equation_text(child) for child in children if not local_name(child).endswith("Pr")]
    if name in _WRITERS_WITH_SIGNS:
        return _WRITERS_WITH_SIGNS[name](element, parts)
    write = _WRITERS.get((name, len(parts)))
    if write:
        return write(*parts)
    own = own if own.strip() else ""
    return own + _SEPARATORS.get(name, "").join(parts)


def mathml_text(markup: str) -> str:
    """Return the text of an equation in MathML."""
    return equation_text(html.fragment_fromstring(markup))


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _grouped(part: str, ungrouped: re.Pattern[str] = _SIMPLE) -> str:
    """Return a part in brackets unless it is simple, such as a number, a name, or in brackets already."""
    return part if ungrouped.fullmatch(part) else f"({part})"


def _fraction(numerator: str, denominator: str) -> str:
    return f"{_grouped(numerator)}/{_grouped(denominator)}"


def _power(base: str, exponent: str) -> str:
    return _with_limits(_grouped(base, _SIGN), "", exponent)


def _indexed(base: str, index: str) -> str:
    return _with_limits(base, index, "")


def _with_limits(base: str, lower: str, upper: str) -> str:
    index = f"_{_grouped(lower)}" if lower else ""
    exponent = f"^{_grouped(upper)}" if upper else ""
    return f"{base}{index}{exponent}"


def _root(degree: str, radicand: str) -> str:
    return f"{degree}√{_grouped(radicand, _SIGN)}"


def _function(name: str, argument: str) -> str:
    return f"{name}{argument}" if argument.startswith("(") else f"{name} {argument}"


def _sum(element: Any, parts: list[str]) -> str:
    """Return a sum, product or integral, whose sign is an integral's unless another one is given."""
    sign = _setting(element, "chr", "∫")
    *limits, operand = ["", "", *parts][-3:]
    return f"{_with_limits(sign, *limits)} {operand}"


def _in_brackets(element: Any, parts: list[str]) -> str:
    separator = _setting(element, "sepChr", "|")
    left = _setting(element, "begChr", "(")
    right = _setting(element, "endChr", ")")
    return f"{left}{separator.join(parts)}{right}"


def _fenced(element: Any, parts: list[str]) -> str:
    separator = element.get("separators", ",")[:1]
    return f"{element.get('open', '(')}{separator.join(parts)}{element.get('close', ')')}"


def _setting(element: Any, name: str, default: str) -> str:
    """Return the value of a property of an element, such as the sign of a sum."""
    for setting in element.iterfind(f"./*/{{*}}{name}"):
        return "".join(setting.attrib.values())
    return default


_WRITERS: Mapping[tuple[str, int], Callable[..., str]] = {
    ("f", 2): _fraction,
    ("mfrac", 2): _fraction,
    ("sSup", 2): _power,
    ("msup", 2): _power,
    ("sSub", 2): _indexed,
    ("msub", 2): _indexed,
    ("limLow", 2): _indexed,
    ("munder", 2): _indexed,
    ("sSubSup", 3): _with_limits,
    ("msubsup", 3): _with_limits,
    ("munderover", 3): _with_limits,
    ("rad", 2): _root,
    ("mroot", 2): lambda radicand, degree: _root(degree, radicand),
    ("func", 2): _function,
}
"""How elements are written that have a certain number of parts, by their names."""

_WRITERS_WITH_SIGNS: Mapping[str, Callable[[Any, list[str]], str]] = {
    "nary": _sum,
    "d": _in_brackets,
    "mfenced": _fenced,
    "msqrt": lambda _, parts: _root("", "".join(parts)),
}

_SEPARATORS = {"mr": ", ", "mtr": ", ", "m": "; ", "mtable": "; ", "eqArr": "; "}
"""What separates the cells and rows of matrices."""
