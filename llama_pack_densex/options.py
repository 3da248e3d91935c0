"""What a user chooses about a pack, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Mode = Literal["recursive", "auto_merging"]
SearchedGranularity = Literal["proposition", "sentence"]


@dataclass(frozen=True)
class PackOptions:
    """The settings of a pack that are neither documents nor models.

    Args:
        mode: "recursive" (propositions lead to their passages) or "auto_merging" (found propositions merge upwards).
        granularity: The units that are searched.
        similarity_top_k: Nodes returned by a query that does not say.
        fetch_k: Units in the first round of a search; None means five times the nodes asked for, at least 20.
        simple_ratio_thresh: In mode "auto_merging", the share of children above which their parent is returned.
        streaming: Whether answers come as a stream.
        verbose: Whether retrievers print what they do.

    Raises:
        ValueError: A value is out of range; the message says which and what is allowed.
    """

    mode: Mode = "recursive"
    granularity: tuple[SearchedGranularity, ...] = ("proposition", "sentence")
    similarity_top_k: int = 4
    fetch_k: int | None = None
    simple_ratio_thresh: float = 0.5
    streaming: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be {_either(Mode)}, not {self.mode!r}")
        units = (self.granularity,) if isinstance(self.granularity, str) else tuple(self.granularity)
        if not units or not set(units) <= set(get_args(SearchedGranularity)):
            raise ValueError(f"granularity must name {_either(SearchedGranularity)}, or both, not {self.granularity!r}")
        object.__setattr__(self, "granularity", units)
        check_top_k(self.similarity_top_k)
        if self.fetch_k is not None and self.fetch_k <= 0:
            raise ValueError(f"fetch_k must be positive, not {self.fetch_k}")
        if not 0 <= self.simple_ratio_thresh <= 1:
            raise ValueError(f"simple_ratio_thresh must be between 0 and 1, not {self.simple_ratio_thresh}")


def check_top_k(similarity_top_k: int) -> int:
    """Return a number of nodes to retrieve if it is one.

    Raises:
        ValueError: It is not a positive whole number.
    """
    if isinstance(similarity_top_k, bool) or not isinstance(similarity_top_k, int) or similarity_top_k <= 0:
        raise ValueError(f"similarity_top_k must be a positive whole number, not {similarity_top_k!r}")
    return similarity_top_k


def _either(choices: object) -> str:
    return " or ".join(f'"{choice}"' for choice in get_args(choices))
