"""Bytes into text, where nothing says how they are encoded."""

from __future__ import annotations

import codecs

_JAPANESE = ("cp932", "euc_jp")
_PLAUSIBLE = 0.8  # share of common characters; what is right has nearly all, what is wrong seldom half


def decode(data: bytes, declared: str | None = None) -> str | None:
    """Decode text.

    Args:
        data: The bytes.
        declared: The encoding that the text itself names, if it does.

    Returns:
        The text, as UTF-8 if it can be, else as what it declares, else as the Japanese encoding that makes sense of
        it; None where nothing fits.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _try(data, "utf-16")
    if b"\x1b$" in data:
        jis = _try(data, "iso2022_jp_ext")
        if jis is not None:
            return jis
    for encoding in ("utf-8-sig", declared):
        text = _try(data, encoding) if encoding else None
        if text is not None:
            return text
    scores = {text: japanese_share(text) for encoding in _JAPANESE if (text := _try(data, encoding)) is not None}
    best = max(scores, key=lambda text: scores[text], default=None)
    return best if best is not None and scores[best] >= _PLAUSIBLE else None


def japanese_share(text: str) -> float:
    """The share of a text's characters beyond ASCII that are common in Japanese.

    Common are the rows of JIS X 0208 with punctuation, letters, kana and the kanji of level 1: EUC-JP text read as
    Shift_JIS is full of half-width kana, Shift_JIS read as EUC-JP of rare kanji.
    """
    beyond = [character for character in text if ord(character) > 127]
    return sum(map(_is_common, beyond)) / len(beyond) if beyond else 0.0


def _is_common(character: str) -> bool:
    try:
        row = character.encode("euc_jp")[0]
    except UnicodeEncodeError:
        return character in "①②③④⑤⑥⑦⑧⑨⑩㈱～－"  # of cp932 only, and common
    return 0xA1 <= row <= 0xA5 or 0xB0 <= row <= 0xCF


def _try(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):  # LookupError: a page declares an encoding that there is not
        return None
