"""What is wrong with propositions by their form: their language, repetitions, and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from llama_pack_densex.propositionizers.base import Finding
from llama_pack_densex.propositionizers.checks.texts import Source, Text
from llama_pack_densex.text.language import LANGUAGE_NAMES, LATIN, find_wrong_language
from llama_pack_densex.text.sentences import segment
from llama_pack_densex.text.tokens import STOP_WORDS, words


def find_other_language(passage: str, propositions: Sequence[str]) -> Iterator[Finding]:
    """Find the propositions in another language than the passage's; all of them where no single one is."""
    language = find_wrong_language(passage, propositions)
    if language is None:
        return
    reason = f"it is in {LANGUAGE_NAMES.get(language, 'another language')}"
    wrong: list[int | None] = [i for i, text in enumerate(propositions) if find_wrong_language(passage, [text])]
    for index in wrong or [None]:
        yield Finding("language", index, None, reason)


def words_said(text: Text) -> tuple[object, ...]:
    """What is equal for propositions that say the same words, perhaps in another order, of the same names."""
    distinct = sorted(word for word in _WORD.findall(text.plain.lower()) if word not in _SMALL_WORDS)
    names = [token[0].lower() for token in text.tokens if token.lastgroup != "number" and not token[0].islower()]
    return tuple(distinct), tuple(name for name in names if name not in STOP_WORDS)


def wrong_size(text: Text, passage: str, source: Source) -> str:
    """Say why a proposition is too short or too long; "" where it is not."""
    if len(text.plain) >= _WHOLE * len(passage.strip()) and len(segment(text.plain)) > 1:
        sentences = [part for part in segment(passage) if part.kind == "sentence"]
        if len(sentences) > 1:
            return "it is the whole passage of several sentences"
    if len(text.tokens) > 2:
        return ""
    if source.language == "ja":
        is_word = not _HIRAGANA.search(text.plain) and len(text.squeezed) < _LONGEST_WORD_JA
    else:
        is_word = len(text.plain.split()) == 1 and all(token.lastgroup in _SPACED for token in text.tokens)
    return "it is a single word" if is_word else ""


_WHOLE = 0.9  # of a passage's characters
_LONGEST_WORD_JA = 15  # letters
_SPACED = ("latin", "number")
_HIRAGANA = re.compile("[ぁ-ん]")
_WORD = re.compile(rf"[{LATIN}]+|\d+|[^\W{LATIN}\d_]")
_SMALL_WORDS = words("a an the は が も")
