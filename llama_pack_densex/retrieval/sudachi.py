"""Japanese words by morphological analysis: SudachiPy, with its core dictionary."""

from __future__ import annotations

import functools
import importlib.util
import re
import threading
import unicodedata
from collections.abc import Iterator
from typing import Any

from llama_pack_densex.retrieval.tokens import CJK, is_cjk, runs, tokenize, words_of

CONTENT_WORDS = frozenset({"名詞", "動詞", "形容詞", "形状詞", "副詞", "記号", "補助記号"})
"""Nouns, verbs, adjectives, adjectival nouns, adverbs: the parts of speech that are searched. Characters that the
dictionary lacks, such as rare Han, count as symbols; punctuation is sorted out by its characters."""

_LIMIT = 12_000  # characters of at most four bytes; Sudachi refuses texts of more than 49,149 bytes
_SENTENCE = re.compile(r"[^\n。．！？!?]*[\n。．！？!?]*")
_HAS_CJK = re.compile(f"[{CJK}]")
_HANGUL = re.compile("[가-힣]+")


class SudachiTokenizer:
    """Splits Japanese text into its content words, in their normalised forms ("打込み" is "打ち込み").

    Words are as long as the dictionary has them (Sudachi's mode C). Hangul, and letters and digits of other scripts,
    become the tokens that `tokenize` makes of them. It may be called from several threads.

    Raises:
        ImportError: SudachiPy or its dictionary is not installed; the message names the extra.
    """

    def __init__(self) -> None:
        for module in ("sudachipy", "sudachidict_core"):
            if importlib.util.find_spec(module) is None:
                raise ImportError(
                    f'tokenizer="sudachi" needs {module}, which is not installed: '
                    'pip install "llama-pack-densex[sudachi]"'
                )
        self._of_thread = threading.local()

    def __call__(self, text: str) -> list[str]:
        """Split a text into tokens; those of Japanese come first."""
        tokens: list[str] = []
        for piece in _pieces(unicodedata.normalize("NFKC", text)):
            for morpheme in self._analyser().tokenize(piece):
                if morpheme.part_of_speech()[0] in CONTENT_WORDS and _is_japanese(morpheme.surface()):
                    tokens.append(morpheme.normalized_form().casefold())
        for run in runs(text):
            tokens.extend(_tokens_of_hangul(run) if is_cjk(run[0]) else words_of(run))
        return tokens

    def _analyser(self) -> Any:
        """This thread's analyser: one must not be used by two threads at a time."""
        if not hasattr(self._of_thread, "analyser"):
            self._of_thread.analyser = _dictionary().tokenizer()
        return self._of_thread.analyser


def _is_japanese(surface: str) -> bool:
    return _HAS_CJK.search(surface) is not None and _HANGUL.search(surface) is None


def _tokens_of_hangul(run: str) -> Iterator[str]:
    for stretch in _HANGUL.findall(run):
        yield from tokenize(stretch)


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces that Sudachi takes: cut at sentence and line ends, within a sentence only where it is too long.

    Lone surrogates, which UTF-8 cannot encode, part words.
    """
    text = re.sub("[\ud800-\udfff]", " ", text)
    piece = ""
    for match in _SENTENCE.finditer(text):
        sentence = match.group()
        if piece and len(piece) + len(sentence) > _LIMIT:
            yield piece
            piece = ""
        while len(sentence) > _LIMIT:
            yield sentence[:_LIMIT]
            sentence = sentence[_LIMIT:]
        piece += sentence
    if piece.strip():
        yield piece


@functools.cache
def _dictionary() -> Any:
    from sudachipy import Dictionary

    return Dictionary(dict="core")
