"""BM25 over passages and over their units."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llama_pack_densex.retrieval.tokens import is_cjk, tokenize, tokenize_all
from llama_pack_densex.stores.records import NodeRecord


class BM25:
    """Scores a fixed list of texts for a query (Lucene's BM25, by bm25s).

    Args:
        texts: The texts; each one's place in the list is what scores refer to.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        import bm25s

        tokens = tokenize_all(texts)
        self._size = len(texts)
        self._index = None
        if any(tokens):
            self._index = bm25s.BM25(method="lucene")
            self._index.index(tokens, show_progress=False)

    def scores(self, tokens: Sequence[str]) -> npt.NDArray[np.float32]:
        """The scores of all texts, zeros where no token is known; shape (number of texts,)."""
        known = [] if self._index is None else _known(tokens, self._index.vocab_dict)
        if self._index is None or not known:
            return np.zeros(self._size, dtype=np.float32)
        return np.asarray(self._index.get_scores(known), dtype=np.float32)


def _known(tokens: Sequence[str], vocabulary: Mapping[str, int]) -> list[str]:
    """The tokens that occur; a lone Chinese, Japanese or Korean character stands for the pairs that it occurs in."""
    known: list[str] = []
    for token in tokens:
        if token in vocabulary:
            known.append(token)
        if len(token) == 1 and is_cjk(token):
            known += [pair for pair in vocabulary if len(pair) == 2 and token in pair]
    return known


@dataclass(frozen=True)
class LexicalHit:
    """A passage that a query found by its words.

    Args:
        passage_id: The passage's node id.
        score: Its BM25 score, above 0.
        units: Its units with scores above 0, best first, as (node id, score).
    """

    passage_id: str
    score: float
    units: tuple[tuple[str, float], ...]


class LexicalIndex:
    """Finds passages by their words, and ranks each found passage's units among themselves.

    Args:
        records: The nodes to search; sections are left out, since their passages hold the same words.
    """

    def __init__(self, records: Iterable[NodeRecord]) -> None:
        passages: list[NodeRecord] = []
        units: list[NodeRecord] = []
        for record in records:
            if record.granularity == "passage":
                passages.append(record)
            elif record.passage_id:
                units.append(record)
        self._passage_ids = [record.id for record in passages]
        self._passages = BM25([record.text for record in passages])
        self._units = BM25([record.text for record in units])
        self._granularity = [record.granularity for record in units]
        self._unit_ids = [record.id for record in units]
        self._units_of: defaultdict[str, list[int]] = defaultdict(list)
        for place, record in enumerate(units):
            self._units_of[record.passage_id].append(place)

    def search(self, query: str, passages: int, units: int, granularity: Sequence[str]) -> tuple[list[LexicalHit], int]:
        """Search.

        Args:
            query: The question.
            passages: How many passages to return at most.
            units: How many units to return in all at most, the best of the returned passages' units; each passage
                returns its best unit in any case.
            granularity: The granularities of the units to return.

        Returns:
            The passages, best first, and how many were found in all. None is found where no word of the query occurs.
        """
        tokens = tokenize(query)
        passage_scores = self._passages.scores(tokens)
        found = int(np.count_nonzero(passage_scores > 0))
        # stable, so that equal scores keep the order of the corpus
        best = np.argsort(-passage_scores, kind="stable")[: min(passages, found)]
        unit_scores = self._units.scores(tokens)
        candidates = {
            int(place): self._ranked_units(self._passage_ids[place], unit_scores, granularity) for place in best
        }
        least = self._least_score([score for ranked in candidates.values() for _, score in ranked], units)
        hits = []
        for place, ranked in candidates.items():
            kept = [(unit_id, score) for i, (unit_id, score) in enumerate(ranked) if i == 0 or score >= least]
            hits.append(LexicalHit(self._passage_ids[place], float(passage_scores[place]), tuple(kept)))
        return hits, found

    def _ranked_units(
        self, passage_id: str, scores: npt.NDArray[np.float32], granularity: Sequence[str]
    ) -> list[tuple[str, float]]:
        places = [p for p in self._units_of[passage_id] if scores[p] > 0 and self._granularity[p] in granularity]
        return [(self._unit_ids[p], float(scores[p])) for p in sorted(places, key=lambda p: -scores[p])]

    @staticmethod
    def _least_score(scores: list[float], units: int) -> float:
        return sorted(scores, reverse=True)[units - 1] if len(scores) > units > 0 else 0.0


class LexicalIndexCache:
    """A lexical index that is built when it is first needed and again after the nodes changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._index: LexicalIndex | None = None

    def get(self, records: Iterable[NodeRecord]) -> LexicalIndex:
        """The index, built from `records` if there is none."""
        with self._lock:
            if self._index is None:
                self._index = LexicalIndex(records)
            return self._index

    def clear(self) -> None:
        """Forget the index: the nodes changed."""
        with self._lock:
            self._index = None
