"""The strategies that come with the pack: LlamaIndex's own ways of retrieving, and ours."""

from __future__ import annotations

from collections.abc import Sequence

from llama_pack_densex.evaluation.strategies import (
    auto_merging,
    contextual,
    dense_x,
    hybrid,
    ours,
    sentence_window,
    vector,
)
from llama_pack_densex.evaluation.strategy import Strategy


def built_in_strategies() -> dict[str, Strategy]:
    """All of them by name, ours first."""
    modules = (ours, vector, sentence_window, auto_merging, hybrid, contextual, dense_x)
    return {strategy.name: strategy for module in modules for strategy in module.STRATEGIES}


def resolve_strategies(strategies: Sequence[str | Strategy] | None) -> list[Strategy]:
    """Strategies by name, or as they are; None means all that come with the pack.

    Raises:
        ValueError: There is none of a name, none at all, or two have the same name.
    """
    known = built_in_strategies()
    if strategies is None:
        return list(known.values())
    chosen: dict[str, Strategy] = {}
    for given in strategies:
        if isinstance(given, str) and given not in known:
            raise ValueError(f"there is no strategy {given!r}: use any of {', '.join(known)}")
        strategy = known[given] if isinstance(given, str) else given
        if strategy.name in chosen:
            raise ValueError(f"there are two strategies named {strategy.name!r}")
        chosen[strategy.name] = strategy
    if not chosen:
        raise ValueError("there are no strategies to compare")
    return list(chosen.values())
