"""The names in a text, by how they are written: what leads from one passage to another. Pure."""

from __future__ import annotations

import re

from llama_pack_densex.text.tokens import HAN, KATAKANA

_CAPITALS = "".join(filter(str.isupper, map(chr, range(0x530))))  # Latin, Greek and Cyrillic
_CAPITALISED = rf"[{_CAPITALS}][^\W_]*(?:[.'’&-][^\W_]+)*"
_NAME = re.compile(
    rf"{_CAPITALISED}(?: {_CAPITALISED})*"
    rf"|(?!ー)[{KATAKANA}]{{2,}}(?:[・=＝][{KATAKANA}]+)*"
    rf"|(?<![{HAN}])[{HAN}]{{2,8}}(?![{HAN}])"  # longer runs are clauses in Chinese
)
_QUOTED = re.compile(r"「[^「」\n]{2,30}」|『[^『』\n]{2,30}』")


def find_names(text: str) -> list[str]:
    """The names in a text, each once, in order.

    They are runs of capitalised words, of katakana and of Han characters, and what Japanese quotes. So words
    that begin a sentence and common words in Han are among them: how rare a name is has to tell it from
    these.
    """
    quoted = [quotation[1:-1] for quotation in _QUOTED.findall(text)]
    return list(dict.fromkeys([*_NAME.findall(text), *quoted]))
