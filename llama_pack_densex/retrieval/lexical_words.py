"""Words as numbers of 64 bits, which are the same in every index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np

from llama_pack_densex.retrieval.lexical_arrays import Array, encoded
from llama_pack_densex.retrieval.tokens import TextTokenizer, is_cjk

SAMPLE = (
    "The Foxes' 1,200 lamps weren't running in 1998-05, i.e. ＦＵＬＬ width; naïve café e-mail a_b x.y@z.org/p?q=1#2 "
    "日本橋の打込みは、引っ越しで食べられなかった。ｶﾀｶﾅとコンピューター、北京是中国的首都。서울은 한국의 수도이다. "
    "Москва \U0001f600\n\tEnd of running, runner, RUN"
)
"""What a tokenizer makes of it tells whether it is the one that an index was made with."""


class Vocabulary:
    """Numbers the words of some texts as they come.

    Args:
        tokenizer: Splits the texts.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        """How many words there are."""
        return len(self._numbers)

    def numbers(self, text: str) -> list[int]:
        """The numbers of a text's tokens.

        Raises:
            TypeError: The tokenizer returned something else than strings.
        """
        known = self._numbers
        return [known.setdefault(token, len(known)) for token in tokens_of(self._tokenizer, text)]

    def words(self) -> Array:
        """The hashes of the words in the order of their numbers; shape (number of words,), uint64."""
        return hashes(self._numbers)

    def pairs(self) -> tuple[Array, Array]:
        """Both characters of each word that is a pair of which the first is Chinese, Japanese or Korean; else zeros."""
        characters = np.zeros((2, len(self._numbers)), dtype=np.uint32)
        for number, word in enumerate(self._numbers):
            if len(word) == 2 and is_cjk(word[0]):
                characters[:, number] = ord(word[0]), ord(word[1])
        return characters[0], characters[1]


def tokens_of(tokenizer: TextTokenizer, text: str) -> list[str]:
    """The tokens of a text.

    Raises:
        TypeError: The tokenizer returned something else than strings.
    """
    tokens: Sequence[str] = tokenizer.split(text)
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        raise TypeError(
            f"the tokenizer {tokenizer.name} must return a sequence of strings: it takes a text, and returns its tokens"
        )
    return [token for token in tokens if token]


def hashes(words: Iterable[str]) -> Array:
    """What words are known by. Two words of one hash would count as one, which no corpus is large enough to have."""
    digests = b"".join(blake2b(encoded(word), digest_size=8).digest() for word in words)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def fingerprint(tokenizer: TextTokenizer) -> str:
    """What tells tokenizers apart: two functions may have one name, and a tokenizer may change with a new version."""
    tokens = json.dumps(tokens_of(tokenizer, SAMPLE))
    return blake2b(tokens.encode("ascii"), digest_size=16).hexdigest()
