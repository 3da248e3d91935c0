"""How much a context may hold, in words, tokens or characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from llama_index.core.utils import get_tokenizer

from llama_pack_densex.retrieval.tokens import CJK

BudgetUnit = Literal["words", "tokens", "characters"]

_WORD = re.compile(rf"(?P<cjk>[{CJK}])|[^\W_{CJK}]+(?:['’.,-][^\W_{CJK}]+)*")


@dataclass(frozen=True)
class Budget:
    """A limit to the length of a text.

    Args:
        limit: The most that is allowed; None means that everything is.
        unit: What is counted: "words" (see `count_words`), "tokens" or "characters".
        tokenizer: Splits a text into tokens; None means LlamaIndex's tokenizer. Only tokens need it.

    Raises:
        ValueError: The limit is not a positive whole number, or the unit is none of the three.
    """

    limit: int | None = None
    unit: BudgetUnit = "words"
    tokenizer: Callable[[str], Sequence[Any]] | None = None

    def __post_init__(self) -> None:
        limit = self.limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit <= 0):
            raise ValueError(f"budget must be a positive whole number or None, not {limit!r}")
        if self.unit not in get_args(BudgetUnit):
            choices = ", ".join(f'"{unit}"' for unit in get_args(BudgetUnit))
            raise ValueError(f"unit must be one of {choices}, not {self.unit!r}")

    def size(self, text: str) -> float:
        """The length of a text in the budget's unit."""
        if self.unit == "characters":
            return len(text)
        if self.unit == "words":
            return count_words(text)
        return len((self.tokenizer or get_tokenizer())(text))

    def allows(self, text: str) -> bool:
        """Whether a text is not longer than the budget."""
        return self.limit is None or self.size(text) <= self.limit


def count_words(text: str) -> float:
    """Words of a text; a Chinese, Japanese or Korean character counts as half a word.

    What stands between two spaces counts as one word at least, a dash as well: `len(text.split())` is never more.
    """
    return sum(max(1.0, sum(0.5 if match["cjk"] else 1.0 for match in _WORD.finditer(piece))) for piece in text.split())
