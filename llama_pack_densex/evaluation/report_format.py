"""How the report page writes numbers and other people's texts."""

from __future__ import annotations

import html
import re

NOT_GIVEN = "–"

# What XML 1.0 has no way to write: control characters and halves of surrogate pairs.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def clean(text: object) -> str:
    """Replace the characters that neither HTML nor UTF-8 can hold."""
    return _NOT_IN_XML.sub("\ufffd", str(text))


def escaped(text: object) -> str:
    """A text as it stands in HTML and SVG, between tags and in quoted attributes."""
    return html.escape(clean(text), quote=True)


def share(value: float | None) -> str:
    """A metric between 0 and 1, three digits behind the point."""
    return NOT_GIVEN if value is None else f"{value:.3f}"


def difference(value: float) -> str:
    """A difference with its sign."""
    written = f"{abs(value):.3f}"
    if float(written) == 0:
        return "0.000"
    return f"{'+' if value > 0 else '−'}{written}"


def p_value(value: float) -> str:
    """A p-value, three digits behind the point or the bound it is below."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def count(value: float | None) -> str:
    """A whole number with its thousands apart."""
    return NOT_GIVEN if value is None else f"{round(value):,}"


def amount(value: float | None) -> str:
    """A measured amount: three significant digits, and none behind the point from 100 on."""
    if value is None:
        return NOT_GIVEN
    if abs(value) >= 100:
        return count(value)
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
