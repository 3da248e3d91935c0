"""BM25 scores of a few texts for many questions, without an index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llama_pack_densex.retrieval.lexical_arrays import Array
from llama_pack_densex.retrieval.lexical_formula import Statistics
from llama_pack_densex.retrieval.lexical_words import Vocabulary
from llama_pack_densex.retrieval.tokens import TextTokenizer


def scores_by_words(texts: Sequence[str], questions: Sequence[str], tokenizer: TextTokenizer) -> Array:
    """Score each text for each question; shape (number of questions, number of texts).

    Args:
        texts: Some hundred texts at most: the frequency of each word in each of them is in memory.
        questions: The questions.
        tokenizer: Splits both.
    """
    vocabulary = Vocabulary(tokenizer)
    tokens = [vocabulary.numbers(text) for text in texts]
    frequencies = np.zeros((len(texts), len(vocabulary)), dtype=np.float32)
    for text, numbers in enumerate(tokens):
        np.add.at(frequencies[text], numbers, 1)
    statistics = Statistics(len(texts), sum(map(len, tokens)))
    norms = statistics.norms(np.array([len(numbers) for numbers in tokens], dtype=np.int64))
    weights = statistics.idf(np.count_nonzero(frequencies, axis=0)) * frequencies / (norms[:, None] + frequencies)
    known = len(vocabulary)
    scores = np.zeros((len(questions), len(texts)))
    for question, asked in enumerate(questions):
        scores[question] = weights[:, [word for word in vocabulary.numbers(asked) if word < known]].sum(axis=1)
    return scores
