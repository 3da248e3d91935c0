"""Words for lexical search, in languages with and without spaces."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from bm25s.stopwords import STOPWORDS_EN_PLUS

# A character class for regular expressions: Han with its iteration marks, kana with the prolonged sound mark, Hangul;
# scripts whose words spaces do not part, or part together with their particles.
CJK = "々〆〇ヶ㐀-䶿一-鿿豈-﫿ぁ-ゖゝ-ゟァ-ヺー-ヿㇰ-ㇿ가-힣\U00020000-\U0003ffff"
_TOKEN = re.compile(rf"[{CJK}]+|[^\W_{CJK}]+")
_DIGIT_GROUPS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_STOP_WORDS = frozenset(STOPWORDS_EN_PLUS)


def tokenize(text: str) -> list[str]:
    """Split a text into tokens for BM25.

    Chinese, Japanese and Korean text becomes overlapping pairs of characters, which needs no dictionary and finds
    what a morphological analyser finds; other text becomes words, English stop words dropped, stemmed as English.
    Full-width and half-width forms are one (NFKC), case does not count, and "1,200" is "1200".

    Args:
        text: Any text.

    Returns:
        The tokens in order, with repetitions.
    """
    normal = unicodedata.normalize("NFKC", text).casefold()
    tokens: list[str] = []
    for run in _TOKEN.findall(_DIGIT_GROUPS.sub("", normal)):
        if is_cjk(run[0]):
            tokens.extend(run[i : i + 2] for i in range(max(1, len(run) - 1)))
        elif run not in _STOP_WORDS:
            tokens.append(_stem(run))
    return tokens


def tokenize_all(texts: Iterable[str]) -> list[list[str]]:
    """Tokenise texts one by one."""
    return [tokenize(text) for text in texts]


@functools.lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    stem: str = _stemmer().stemWord(word)
    return stem


@functools.cache
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english")


def is_cjk(character: str) -> bool:
    """Whether a character belongs to a script whose words are not searched as such."""
    return re.match(f"[{CJK}]", character) is not None
