"""The tokens of texts as numbers: each text split once, however often the index around it is made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from llama_pack_densex.retrieval.tokens import is_cjk

DIGEST_BYTES = 16
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TokenisedTexts:
    """Texts, known by their digests, with the numbers of their tokens.

    Args:
        tokenizer: The name of the tokenizer that split them.
        vocabulary: The number of each token.
        digests: Of the texts, each once.
        lengths: How many tokens each text has; shape (number of texts,).
        tokens: Their token numbers, one text after the other; shape (sum of lengths,).
    """

    tokenizer: str
    vocabulary: Mapping[str, int]
    digests: Sequence[bytes]
    lengths: Numbers
    tokens: Numbers

    @classmethod
    def none(cls, tokenizer: str) -> TokenisedTexts:
        """No texts yet."""
        return cls(tokenizer, {}, (), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    def of(self, texts: Iterable[str]) -> tuple[Numbers, Numbers]:
        """The token numbers of some of the texts, one after the other, and how many each has."""
        places = np.array([self.places[digest_of(text)] for text in texts], dtype=np.int64)
        return self._at(places)

    def updated(self, texts: Sequence[str], split: Callable[[str], Sequence[str]]) -> TokenisedTexts:
        """The same for other texts: what is new is split, what is gone is forgotten.

        Args:
            texts: All texts, those that are known among them.
            split: The tokenizer.

        Raises:
            TypeError: The tokenizer returned something else than strings.
        """
        wanted = {digest_of(text): text for text in texts}
        kept = [digest for digest in wanted if digest in self.places]
        new = [digest for digest in wanted if digest not in self.places]
        if not new and len(kept) == len(self.digests):
            return self
        tokens, lengths = self._at(np.array([self.places[digest] for digest in kept], dtype=np.int64))
        vocabulary = dict(self.vocabulary)  # a copy, since searches in other threads read the old one
        new_tokens: list[int] = []
        new_lengths: list[int] = []
        for digest in new:
            found = _tokens(split, wanted[digest], self.tokenizer)
            numbers = [vocabulary.setdefault(token, len(vocabulary)) for token in found]
            new_tokens += numbers
            new_lengths.append(len(numbers))
        return TokenisedTexts(
            self.tokenizer,
            vocabulary,
            (*kept, *new),
            np.concatenate((lengths, np.array(new_lengths, dtype=np.int64))),
            np.concatenate((tokens, np.array(new_tokens, dtype=np.int64))),
        )._without_dead_words()

    def agrees_with(self, texts: Sequence[str], split: Callable[[str], Sequence[str]], samples: int = 20) -> bool:
        """Whether a tokenizer splits texts as they were split here, judged by some of them.

        Two functions may have one name, and a tokenizer may change with a new version.
        """
        known = [text for text in texts[:: max(1, len(texts) // samples)] if digest_of(text) in self.places]
        tokens, _ = self.of(known)
        found = [token for text in known for token in _tokens(split, text, self.tokenizer)]
        return bool([self.vocabulary.get(token, -1) for token in found] == tokens.tolist())

    def numbers(self, tokens: Iterable[str]) -> list[int]:
        """The numbers of those tokens that occur."""
        return [self.vocabulary[token] for token in tokens if token in self.vocabulary]

    def pairs_with(self, character: str) -> list[int]:
        """The numbers of the tokens of two characters that one of Chinese, Japanese or Korean is part of."""
        return self._pairs.get(character, [])

    @cached_property
    def places(self) -> dict[bytes, int]:
        """Where each text is, by its digest."""
        return {digest: place for place, digest in enumerate(self.digests)}

    @cached_property
    def _pairs(self) -> dict[str, list[int]]:
        pairs: defaultdict[str, list[int]] = defaultdict(list)
        for token, number in self.vocabulary.items():
            if len(token) == 2 and is_cjk(token[0]):
                for character in {*token}:
                    pairs[character].append(number)
        return dict(pairs)

    @cached_property
    def _starts(self) -> Numbers:
        return np.cumsum(self.lengths) - self.lengths

    def _at(self, places: Numbers) -> tuple[Numbers, Numbers]:
        lengths = self.lengths[places]
        before = np.cumsum(lengths) - lengths
        where = np.repeat(self._starts[places] - before, lengths) + np.arange(lengths.sum())
        return self.tokens[where], lengths

    def _without_dead_words(self) -> TokenisedTexts:
        """Number the vocabulary anew where most of it occurs in texts that are gone."""
        live = np.flatnonzero(np.bincount(self.tokens, minlength=len(self.vocabulary)))
        if 2 * len(live) >= len(self.vocabulary):
            return self
        words = list(self.vocabulary)
        vocabulary = {words[number]: place for place, number in enumerate(live.tolist())}
        return TokenisedTexts(
            self.tokenizer, vocabulary, self.digests, self.lengths, np.searchsorted(live, self.tokens)
        )


def digest_of(text: str) -> bytes:
    """What a text is known by; a document's text may hold lone surrogates."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def _tokens(split: Callable[[str], Sequence[str]], text: str, name: str) -> list[str]:
    tokens = split(text)
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        raise TypeError(
            f"the tokenizer {name} must return a sequence of strings: it takes a text, and returns its tokens"
        )
    return [token for token in tokens if token]
