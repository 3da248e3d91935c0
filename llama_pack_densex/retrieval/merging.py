"""Merging found propositions into their passages and sections: pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.schema import BaseNode

from llama_pack_densex.retrieval.hits import PassageHit
from llama_pack_densex.stores.node_store import FoundNode


@dataclass(frozen=True)
class Merged:
    """A node to return.

    Args:
        node: A base node that merging reached, or the best unit of a passage that was not merged.
        parent_id: The id of the node above: of a base node its parent, of a unit its passage; None at the top.
        score: The best score of what it stands for.
        units: The units that found it, best first.
        whole: Whether `node` is a base node.
    """

    node: BaseNode
    parent_id: str | None
    score: float
    units: tuple[FoundNode, ...]
    whole: bool


def best_units(hits: Sequence[PassageHit], count: int) -> set[str]:
    """The ids of the best units of all hits."""
    ranked = sorted((unit for hit in hits for unit in hit.units), key=lambda unit: -unit.score)
    return {unit.id for unit in ranked[:count]}


def merge_units(hit: PassageHit, nodes: Mapping[str, BaseNode], counted: Container[str], ratio_thresh: float) -> Merged:
    """Return a passage where enough of its propositions were found, else its best unit.

    The ratio counts propositions alone: sentence units are not among a passage's children. A proposition between two
    found ones counts as found, as core's retriever fills such gaps. A passage that was found without any unit, by its
    words, is returned whole.

    Args:
        hit: The passage with the units that were found.
        nodes: Nodes by id: the passage, and its best unit.
        counted: The ids of the units that count as found.
        ratio_thresh: The share of propositions above which the passage is returned.
    """
    passage = nodes[hit.passage_id]
    parent_id = passage.parent_node.node_id if passage.parent_node else None
    found = {u.id for u in hit.units if u.granularity == "proposition" and u.id in counted}
    children = [child.node_id for child in passage.child_nodes or []]
    best = nodes.get(hit.units[0].id) if hit.units else None
    if best is None or (children and _ratio(children, found) > ratio_thresh):
        return Merged(passage, parent_id, hit.score, hit.units, whole=True)
    return Merged(best, passage.node_id, hit.score, hit.units, whole=False)


def merge_level(
    results: Sequence[Merged], parents: Mapping[str, BaseNode], ratio_thresh: float
) -> tuple[list[Merged], bool]:
    """Merge base nodes into their parents once, where enough of a parent's children are there.

    A merged parent takes over everything under it, units of passages that were not merged included, so that no node
    is returned together with one above it.

    Args:
        results: What there is so far.
        parents: Parent nodes by id, and for units that were not merged their passages.
        ratio_thresh: The share of children above which a parent takes their place.

    Returns:
        The results, best first, and whether anything merged.
    """
    present: defaultdict[str, set[str]] = defaultdict(set)
    for result in results:
        if result.whole and result.parent_id is not None and result.parent_id in parents:
            present[result.parent_id].add(result.node.node_id)
    merging = {
        parent_id
        for parent_id, found in present.items()
        if _ratio([child.node_id for child in parents[parent_id].child_nodes or []], found) > ratio_thresh
    }
    merged: list[Merged] = []
    members: defaultdict[str, list[Merged]] = defaultdict(list)
    for result in results:
        above = result.parent_id
        passage = None if result.whole or above is None else parents.get(above)
        if passage is not None:
            above = passage.parent_node.node_id if passage.parent_node else None
        if above is not None and above in merging:
            members[above].append(result)
        else:
            merged.append(result)
    for parent_id, group in members.items():
        node = parents[parent_id]
        units = sorted((unit for result in group for unit in result.units), key=lambda unit: -unit.score)
        above = node.parent_node.node_id if node.parent_node else None
        merged.append(Merged(node, above, max(result.score for result in group), tuple(units), whole=True))
    merged.sort(key=lambda result: -result.score)
    return merged, bool(merging)


def _ratio(children: Sequence[str], found: set[str]) -> float:
    filled = {
        middle
        for before, middle, after in zip(children, children[1:], children[2:], strict=False)
        if before in found and after in found
    }
    present = (found | filled).intersection(children)
    return len(present) / len(children) if children else 1.0
