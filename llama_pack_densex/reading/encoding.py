"""The bytes of a file as text."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from charset_normalizer import from_bytes

from llama_pack_densex.reading.files import UnreadableFileError
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

_WHATWG = {  # what browsers take these labels for: pages say the first and are the second
    "iso-8859-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030",
    "euc-kr": "cp949", "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "x-sjis": "cp932",
}  # fmt: skip
_SAMPLE = 10_000  # characters by which an encoding is detected
_BINARY = 8192  # bytes that tell a large binary file from text before it is read
_NO_TEXT = (
    "is no text (it has NUL characters): only text, Markdown, HTML, PDF, .docx, .xlsx, .pptx and EPUB "
    "can be read; "
    "convert it, or leave it out"
)
_UNKNOWN = "is text in no encoding that can be recognised: convert it to UTF-8, or leave it out"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BEYOND = re.compile(r"[^\x00-\x7f]")
_KANA = re.compile("[ぁ-ゖァ-ヺ]")
_PLAUSIBLE = 0.8  # share of common characters; what is right has nearly all, what is wrong seldom half
_TYPOGRAPHIC = frozenset("“”„‘’«»–—…•·€£©®™°±×§µ²³½¼¾\xa0")
_LETTERS_TO_ONE = 50  # Czech and Polish have these marks too, but there one letter in twenty is not of ASCII


def decode(data: bytes, declared: str | None = None) -> str | None:
    """Decode text.

    Args:
        data: The bytes.
        declared: The encoding that the text itself names, if it does.

    Returns:
        The text, as UTF-8 if it can be, else as what it declares, else as UTF-8, in the Japanese encoding
        that gives kana and common kanji, or as Windows' English, with "�" for what cannot be decoded, where
        that is little, else in what charset-normalizer takes it for; None where nothing fits.
    """
    if data.startswith(_UTF_16):
        return _try(data, "utf-32" if data.startswith(codecs.BOM_UTF32_LE) else "utf-16")
    escaped = ["iso2022_jp_ext"] if b"\x1b$" in data else []
    named = [_WHATWG.get(declared.strip().lower(), declared)] if declared else []
    for encoding in (*escaped, "utf-8-sig", *named):
        text = _try(data, encoding)
        if text is not None:
            return text
    return _without_wrong_bytes(data) or _guess(data)


def _without_wrong_bytes(data: bytes) -> str | None:
    """The text of bytes of which some may be wrong, as where a file was cut off."""
    # what has kana in a Japanese encoding has none in the other
    for encoding, is_plausible in (
        ("utf-8", bool),
        ("cp932", _is_japanese),
        ("euc_jp", _is_japanese),
        ("cp1252", _is_plain),
    ):
        text = data.decode(encoding, "replace")
        if 10 * text.count("\ufffd") <= len(_BEYOND.findall(text)) and is_plausible(text):
            return text
    return None


def _guess(data: bytes) -> str | None:
    guesses = [*from_bytes(data)]
    # charset-normalizer takes short texts for some Baltic code page, which is as coherent
    best = [guess for guess in guesses if guess.coherence >= guesses[0].coherence]
    western = [guess for guess in best if guess.encoding == "cp1252"]
    return next(map(str, western + guesses), None)


def _is_plain(text: str) -> bool:
    """Whether a text is English or the like: beyond ASCII it has typographic marks, and hardly a letter."""
    foreign = [character for character in text if ord(character) > 127 and character not in _TYPOGRAPHIC]
    is_rare = len(foreign) * _LETTERS_TO_ONE <= sum(map(str.isalpha, text)) and all(map(str.isalpha, foreign))
    return is_rare and not re.search("[“”‘–—][À-ÿ]", text)  # as two bytes of Shift_JIS look


def _is_japanese(text: str) -> bool:
    """Whether a text has kana, and most of its characters beyond ASCII are common in Japanese.

    Common are the rows of JIS X 0208 with punctuation, letters, kana and the kanji of level 1. Half-width
    kana are only beside those: Korean and Chinese text read as Shift_JIS is full of them.
    """
    beyond = _BEYOND.findall(text)[:_SAMPLE]
    common = sum(map(_is_common, beyond))
    half_width = sum("｡" <= character <= "ﾟ" for character in beyond)
    plausible = common + min(half_width, 2 * common)
    return bool(_KANA.search(text)) and plausible >= _PLAUSIBLE * len(beyond)


def _is_common(character: str) -> bool:
    try:
        row = character.encode("euc_jp")[0]
    except UnicodeEncodeError:
        return character in "①②③④⑤⑥⑦⑧⑨⑩㈱～－"  # of cp932 only, and common
    return 0xA1 <= row <= 0xA5 or 0xB0 <= row <= 0xCF


def _try(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):  # the latter where a page declares an unknown encoding
        return None


def read_bytes(file: Path) -> bytes:
    """The bytes of a file that is text."""
    with file.open("rb") as opened:
        data = opened.read(_BINARY)
        if b"\0" in data and not data.startswith(_UTF_16):
            raise UnreadableFileError(file, _NO_TEXT)
        return data + opened.read()


def decode_file(file: Path, data: bytes | None = None, declared: str | None = None) -> str:
    """The text of a file.

    Args:
        file: The file.
        data: The bytes of the part that is text; None for all of the file.
        declared: The encoding that the text itself names, if it does.
    """
    data = read_bytes(file) if data is None else data
    text = decode(data, declared)
    if text is None:
        raise UnreadableFileError(file, _UNKNOWN)
    if "\0" in text:
        raise UnreadableFileError(file, _NO_TEXT)
    if "\ufffd" in text and "\ufffd".encode() not in data:
        logger.warning('%s has bytes that are no text in its encoding: "\ufffd" stands for them', file)
    return text
