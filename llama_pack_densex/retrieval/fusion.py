"""Dense and lexical hits into one ranking by relative score: pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from llama_pack_densex.retrieval.hits import PassageHit
from llama_pack_densex.stores.node_store import FoundNode

HEAD_PASSAGES = 30
"""Passages of each side between whose best and last score the scale of relative scores lies.

Of 20 to 50, all within a question in a hundred of one another; a fixed number keeps a ranking as it is when more is
fetched."""

HEAD_UNITS = 100
"""The same for units, of which a passage has several."""

DENSE_WEIGHT = 0.5
"""The dense side's share of the fused score; 0.4 and 0.6 were no better in English."""


def fuse(dense: Sequence[PassageHit], lexical: Sequence[PassageHit], dense_weight: float) -> tuple[PassageHit, ...]:
    """Merge what two searches found, by node id: passages among passages, units among units.

    Scores are made relative first (min-max over the best of each side: 1 for the best, 0 for the last one of the
    head and for what is not in it), then added by weight. Core's `QueryFusionRetriever` merges nodes of equal text.

    Args:
        dense: What the embeddings found, best first.
        lexical: What the words found, best first.
        dense_weight: The dense side's share, from 0 to 1.

    Returns:
        Passages, best first, with scores from 0 to 1, and their units with scores of the same kind.
    """
    sides = (dense, lexical)
    passages = _fused([{hit.passage_id: hit.score for hit in side} for side in sides], HEAD_PASSAGES, dense_weight)
    units = _fused([{u.id: u.score for hit in side for u in hit.units} for side in sides], HEAD_UNITS, dense_weight)
    found = {unit.id: unit for side in sides for hit in side for unit in hit.units}
    units_of: defaultdict[str, list[FoundNode]] = defaultdict(list)
    for unit_id in sorted(units, key=lambda unit_id: units[unit_id], reverse=True):
        unit, score = found[unit_id], units[unit_id][0]
        if score > 0 or not units_of[unit.leads_to]:  # what no side has in its head found nothing
            units_of[unit.leads_to].append(replace(unit, score=score))
    ranked = sorted(passages, key=lambda passage_id: passages[passage_id], reverse=True)
    return tuple(PassageHit(p, passages[p][0], tuple(units_of[p])) for p in ranked)


def relative_scores(scores: Mapping[str, float], head: int, floor: float | None = None) -> dict[str, float]:
    """Place scores on a scale on which the best is 1 and the last one of the head is 0.

    Args:
        scores: Scores by id, in any order.
        head: How many of the best the scale spans.
        floor: The score that is 0 on the scale where there are fewer than `head`; None means the lowest.

    Returns:
        The places by id; what comes after the head is below 0.
    """
    ranked = sorted(scores.values(), reverse=True)
    if not ranked:
        return {}
    high = ranked[0]
    low = ranked[head - 1] if len(ranked) >= head else ranked[-1] if floor is None else floor
    if high <= low:  # a single one, or all alike
        return dict.fromkeys(scores, 1.0)
    return {node_id: (score - low) / (high - low) for node_id, score in scores.items()}


def _fused(sides: Sequence[Mapping[str, float]], head: int, dense_weight: float) -> dict[str, tuple[float, float]]:
    """By id the fused score, and one that goes below 0, for the order of what no side has in its head."""
    dense, lexical = sides
    parts = [
        (weight, side, min(0.0, min(side.values(), default=0.0)))
        for weight, side in (
            (dense_weight, relative_scores(dense, head)),
            (1.0 - dense_weight, relative_scores(lexical, head, floor=0.0)),  # where no word occurs, BM25 is 0
        )
    ]
    fused: dict[str, tuple[float, float]] = {}
    for node_id in dict.fromkeys([*dense, *lexical]):
        score = tail = 0.0
        for weight, side, absent in parts:
            share = weight * side.get(node_id, absent)
            tail += share
            score += max(share, 0.0)
        fused[node_id] = (min(score, 1.0), tail)
    return fused
