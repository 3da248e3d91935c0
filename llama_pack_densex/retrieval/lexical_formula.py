"""Lucene's BM25, as bm25s has it: its formula and its constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llama_pack_densex.retrieval.lexical_arrays import Array

K1, B = 1.5, 0.75


@dataclass(frozen=True)
class Statistics:
    """What BM25 needs to know of all texts.

    Args:
        texts: How many there are.
        tokens: How many tokens they have together.
    """

    texts: int
    tokens: int

    def idf(self, frequencies: Array) -> Array:
        """The weights of words by the number of texts that each occurs in; above 0."""
        idf: Array = np.log1p((self.texts - frequencies + 0.5) / (frequencies + 0.5))
        return idf

    def norms(self, lengths: Array) -> Array:
        """What the lengths of texts, in tokens, do to their scores."""
        mean = self.tokens / self.texts if self.tokens else 1.0
        norms: Array = K1 * (1 - B + B * lengths.astype(np.float64) / mean)
        return norms


def summed(texts: Array, weights: Array, frequencies: Array, norms: Array, count: int) -> Array:
    """The scores of texts; shape (count,), zeros where none of the words occurs.

    They are sums in the order that is given, so that they do not depend on what other texts are scored along.

    Args:
        texts: Where a word occurs.
        weights: Its weight.
        frequencies: How often it occurs there.
        norms: The norm of that text.
        count: How many texts there are.
    """
    scores: Array = np.bincount(texts, weights * frequencies / (norms + frequencies), count)
    return scores
