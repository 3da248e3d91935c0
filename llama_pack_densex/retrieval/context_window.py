"""Whole sentences of a passage: those around its matched units, or as many as fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from llama_index.core.schema import NodeWithScore, TextNode

from llama_pack_densex.propositionizers.segmentation import sentence_spans
from llama_pack_densex.retrieval.context_facts import Fact, is_unit
from llama_pack_densex.retrieval.hits import matched_units
from llama_pack_densex.retrieval.tokens import tokenize

Span = tuple[int, int]

GAP = "\n…\n"
"""What stands for the sentences left out between two that are shown."""


def leading_sentences(node: NodeWithScore, fits: Callable[[NodeWithScore], bool]) -> NodeWithScore | None:
    """A copy of a passage with its first sentences, as many as fit; None where not even the first does.

    A table, a code block and a unit count as one sentence.
    """
    if is_unit(node):
        return None
    kept: NodeWithScore | None = None
    text = node.node.get_content()
    spans = sentence_spans(text)
    for count in range(1, len(spans) + 1):
        shorter = _cut(node, text, spans, range(count))
        if not fits(shorter):
            break
        kept = shorter
    return kept


def windows(facts: Iterable[Fact], width: int, fits: Callable[[Sequence[NodeWithScore]], bool]) -> list[NodeWithScore]:
    """For each passage a copy with the sentences around its matched units, in reading order; overlaps are merged.

    Args:
        facts: The matched units, best first. One whose window does not fit gets its own sentences alone, or is left
            out; a passage stands where its best unit stood.
        width: Sentences before and after each unit.
        fits: Whether the copies so far fit.
    """
    passages: dict[str, _Passage] = {}
    shown: dict[str, frozenset[int]] = {}
    for fact in facts:
        node_id = fact.source.node.node_id
        if node_id not in passages:
            passages[node_id] = _Passage(fact.source)
        own = passages[node_id].places(fact.unit.text)
        if not own:
            continue
        for more in (passages[node_id].around(own, width), own):
            attempt = {**shown, node_id: shown.get(node_id, frozenset()) | more}
            if fits([passages[key].show(places) for key, places in attempt.items()]):
                shown = attempt
                break
    return [passages[key].show(places) for key, places in shown.items()]


class _Passage:
    """A retrieved node in sentences; one that is a unit itself, in the units that it stands for."""

    def __init__(self, node: NodeWithScore) -> None:
        self.node = node
        self.text = node.node.get_content()
        if is_unit(node):
            units = [unit.text for unit in matched_units(node.node)] or [self.text]
            self.text = "\n".join(units)
            self.spans = list(_consecutive(units))
        else:
            self.spans = sentence_spans(self.text)
        self._tokens: list[frozenset[str]] = []

    def places(self, unit: str) -> frozenset[int]:
        """The sentences a unit was made of: where it stands word for word, else the one that shares most with it."""
        unit = unit.strip()
        if not self.spans:
            return frozenset()
        start = self.text.find(unit)
        if start >= 0:
            inside = (i for i, (a, b) in enumerate(self.spans) if a < start + len(unit) and start < b)
            return frozenset(inside)
        if not self._tokens:
            self._tokens = [frozenset(tokenize(self.text[a:b])) for a, b in self.spans]
        tokens = set(tokenize(unit))
        shared = [len(tokens & sentence) for sentence in self._tokens]
        # of two that share as much the shorter one; where none shares anything, the first
        return frozenset([max(range(len(shared)), key=lambda i: (shared[i], shared[i] and -len(self._tokens[i]), -i))])

    def around(self, places: frozenset[int], width: int) -> frozenset[int]:
        """Sentences with those before and after them; units do not stand beside each other, so they are alone."""
        if is_unit(self.node):
            return places
        wanted = (range(place - width, place + width + 1) for place in places)
        return frozenset().union(*wanted) & frozenset(range(len(self.spans)))

    def show(self, places: frozenset[int]) -> NodeWithScore:
        return _cut(self.node, self.text, self.spans, sorted(places))


def _consecutive(units: Sequence[str]) -> Iterator[Span]:
    start = 0
    for unit in units:
        yield start, start + len(unit)
        start += len(unit) + 1


def _cut(node: NodeWithScore, text: str, spans: Sequence[Span], places: Sequence[int]) -> NodeWithScore:
    """A copy of a node with some of its sentences; runs of them stand as they do in its text."""
    runs: list[Span] = []
    last = None
    for place in places:
        start, end = spans[place]
        if runs and place - 1 == last:
            start = runs.pop()[0]
        runs.append((start, end))
        last = place
    copy = node.node.model_copy()
    copy.set_content(GAP.join(text[start:end] for start, end in runs))
    copy.embedding = None
    if isinstance(copy, TextNode):
        offset = copy.start_char_idx
        in_document = offset is not None and len(runs) == 1 and text == node.node.get_content()
        copy.start_char_idx = offset + runs[0][0] if in_document and offset is not None else None
        copy.end_char_idx = offset + runs[0][1] if in_document and offset is not None else None
    return NodeWithScore(node=copy, score=node.score)
