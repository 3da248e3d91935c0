"""Whether what was retrieved can answer a question at all, told by raw similarity and by the question's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from llama_index.core.schema import NodeWithScore

from llama_pack_densex.answering.citations import Source
from llama_pack_densex.propositionizers.tokens import telling_words, tokenize
from llama_pack_densex.retrieval.trust import LanguageTrust, trust_in

LEAST_COVERAGE = 0.34
"""The coverage that an answer takes where nothing was searched by embeddings.

Of 60 questions about an index of 14 documents 2 are refused so, of 600 about other articles 90 %; figures in
docs/measurements.md."""
LEAST_EVIDENCE = 0.6
"""Coverage and similarity together that an answer takes, where embeddings were searched.

Of 500 questions of SQuAD that half of the articles answer 2 % are refused so, of 500 about the other half 87 %."""
_NAMED = 2.0
"""What a name or number of the question counts beside another word."""

_NAMES = re.compile(
    r"(?<=.)\b[A-Z][\w'’-]*|\d[\d,.]*|[ァ-ヺー]{2,}|[々一-鿿]{2,}|(?<=[ぁ-ヿ一-鿿])[A-Za-z]+|[A-Za-z]+(?=[ぁ-ヿ一-鿿])"
)


def is_answerable(
    question: str, nodes: Sequence[NodeWithScore], trust: Mapping[str, LanguageTrust] | None = None
) -> bool:
    """Tell whether retrieved nodes may hold the answer to a question.

    Fused scores do not tell: their best is 1 for every question. What does is how much of the question the nodes hold
    (`coverage`), and how near the nearest unit is by embedding: from 0, as near as sentences of the index are to other
    passages, to 1. That level is measured while documents are indexed, and kept with the index.

    Args:
        question: The question.
        nodes: What was retrieved for it.
        trust: What was measured of the index's embedding model, by language; where that is nothing for the question's
            language, the words decide.
    """
    sources = [Source.of(number, found) for number, found in enumerate(nodes, start=1)]
    held = coverage(question, sources)
    near = [unit.similarity for source in sources for unit in source.units if unit.similarity is not None]
    known = trust_in(trust or {}, question)
    if not near or known is None or not known.known or known.unrelated is None:
        return held >= LEAST_COVERAGE
    place = (max(near) - known.unrelated) / max(1 - known.unrelated, 1e-6)
    return held + place >= LEAST_EVIDENCE


def coverage(question: str, sources: Sequence[Source]) -> float:
    """The share of a question's telling words that the best source and the best unit hold, the mean of both.

    Names and numbers count twice: a question about something else shares common words with any document. Titles and
    headings count as said by what is below them.
    """
    asked = telling_words(tokenize(question))
    named = {token for name in _NAMES.findall(question) for token in tokenize(name)}
    weights = {token: _NAMED if token in named else 1.0 for token in asked}
    passages = [f"{source.title} {source.section} {source.text}" for source in sources]
    units = [f"{source.title} {unit.section} {unit.text}" for source in sources for unit in source.units]
    best = [max((_share(weights, text) for text in texts), default=0.0) for texts in (passages, units or passages)]
    return sum(best) / 2


def _share(weights: Mapping[str, float], text: str) -> float:
    there = set(tokenize(text))
    return sum(weight for token, weight in weights.items() if token in there) / (sum(weights.values()) or 1.0)
