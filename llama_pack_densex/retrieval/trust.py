"""Whether an embedding model knows the languages of the documents, told from the documents themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode, IndexNode

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.propositionizers.language import LANGUAGE_NAMES, detect_language
from llama_pack_densex.propositionizers.sentences import passage_sentences
from llama_pack_densex.retrieval.fusion import DENSE_WEIGHT
from llama_pack_densex.retrieval.lexical_samples import scores_by_words
from llama_pack_densex.retrieval.tokens import make_tokenizer

FIRST_PLACES, ORDER = 0.75, 0.88
"""A model that is below both, as shares of what search by words reaches, does not know a language.

all-MiniLM-L6-v2 has 0.74 to 1 of the first places in English and 0.91 to 1 of the order, in Japanese 0.26 to 0.77 and
0.41 to 0.86, each among 10 to 200 passages. Passages that are hard to tell apart lower the one or the other in a
language that a model knows, not both."""

_PASSAGES = 200  # of a language, at most; more make it slower and no surer
_SENTENCES = 60  # embedded for the measurement alone, where passages are all that is searched
_LEAST_PASSAGES = 3
_LEAST_UNITS = 10
_KIN = {"zh": "ja", "ja": "zh", "latin": "en", "en": "latin"}  # told apart with difficulty in a short question


@dataclass(frozen=True)
class LanguageTrust:
    """How well an embedding model tells the passages of a language apart by their own units.

    Args:
        language: A key of `LANGUAGE_NAMES`.
        dense: The share of sampled units whose own passage is the nearest by embedding.
        lexical: The share whose own passage is first in search by words.
        dense_order: Of the other passages, the mean share that is farther from a unit than its own; 0.5 is chance.
        lexical_order: The same for search by words.
        passages: How many passages there were.
    """

    language: str
    dense: float
    lexical: float
    dense_order: float
    lexical_order: float
    passages: int

    @property
    def trusted(self) -> bool:
        """Whether the model knows the language."""
        finds = self.dense >= FIRST_PLACES * self.lexical
        return finds or self.dense_order - 0.5 >= ORDER * (self.lexical_order - 0.5)

    def describe(self, model: str) -> str:
        """A sentence that says what was seen."""
        name = LANGUAGE_NAMES.get(self.language, self.language)
        return (
            f"{model} does not seem to know {name}: it finds the passage that a sampled unit is from in "
            f"{self.dense:.0%} of the cases, search by words in {self.lexical:.0%}"
        )


@dataclass
class _Sample:
    texts: list[str] = field(default_factory=list)
    embeddings: list[Sequence[float]] = field(default_factory=list)
    units: list[tuple[int, str, Sequence[float]]] = field(default_factory=list)  # passage's place, text, embedding


@dataclass(frozen=True)
class EmbeddedPassage:
    """A passage with its units, and the embeddings of all.

    Args:
        text: The passage.
        embedding: Its embedding.
        units: Text and embedding of each of its units.
    """

    text: str
    embedding: Sequence[float]
    units: Sequence[tuple[str, Sequence[float]]]


def embedded_passages(
    nodes: Iterable[BaseNode],
    embed: Callable[[list[str]], Sequence[Sequence[float]]] | None = None,
    known: Container[str] = (),
) -> list[EmbeddedPassage]:
    """The passages among nodes that were just embedded, with their units.

    Args:
        nodes: Base nodes and units.
        embed: Embeds a sentence for each of some passages that have no units; None means that they stay without.
        known: Languages for which that is not needed any more.
    """
    units: defaultdict[str, list[tuple[str, Sequence[float]]]] = defaultdict(list)
    passages = []
    for node in nodes:
        if node.embedding is None:
            continue
        if node.metadata.get(GRANULARITY_KEY) == "passage":
            passages.append(node)
        elif isinstance(node, IndexNode):
            units[node.index_id].append((node.text, node.embedding))
    bare = [passage for passage in passages if passage.node_id not in units] if embed else []
    bare = [passage for passage in bare if detect_language(passage.get_content()) not in known][:_SENTENCES]
    if embed and bare:
        sentences = [list(passage_sentences(passage.get_content())) for passage in bare]
        texts = [found[len(found) // 2] for found in sentences]
        for passage, text, embedding in zip(bare, texts, embed(texts), strict=True):
            units[passage.node_id].append((text, embedding))
    return [EmbeddedPassage(p.get_content(), p.get_embedding(), units[p.node_id]) for p in passages]


class TrustMeter:
    """Measures an embedding model on the first passages of each language that are indexed.

    A unit says what its passage says, so a model that knows the language has that passage nearest, about as often
    as search by words does.

    Args:
        known: What was measured before.

    Attributes:
        known: What is known, by language; of several measurements the one on most passages.
    """

    def __init__(self, known: Iterable[LanguageTrust] = ()) -> None:
        self.known = {trust.language: trust for trust in known}
        self._samples: dict[str, _Sample] = {}

    def add(self, passages: Iterable[EmbeddedPassage]) -> list[LanguageTrust]:
        """Take in passages that are being indexed.

        Returns:
            The languages of which it now first turned out that the model does not know them.
        """
        seen: set[str] = set()
        for passage in passages:
            language = detect_language(passage.text)
            sample = self._samples.setdefault(language, _Sample())
            if not language or not passage.units or len(sample.texts) >= _PASSAGES:
                continue
            seen.add(language)
            place = len(sample.texts)
            sample.texts.append(passage.text)
            sample.embeddings.append(passage.embedding)
            # the first, the middle and the last stand for all
            chosen = sorted({0, len(passage.units) // 2, len(passage.units) - 1})
            sample.units += [(place, *passage.units[i]) for i in chosen]
        strangers = []
        for language in sorted(seen):
            trust, before = _measure(language, self._samples[language]), self.known.get(language)
            if trust is None or (before is not None and before.passages > trust.passages):
                continue
            self.known[language] = trust
            if not trust.trusted and (before is None or before.trusted):
                strangers.append(trust)
        return strangers


def dense_weight(trust: Mapping[str, LanguageTrust], chosen: float | None) -> Callable[[str], float]:
    """The dense side's share in hybrid search, by question.

    Args:
        trust: What is known of the embedding model, by language; read at every question.
        chosen: The user's choice for all questions; None means the default, and nothing for questions in a language
            that the model does not know. Where it knows none of the documents' languages, that holds for numbers and
            for questions in other languages too.
    """

    def weight(question: str) -> float:
        if chosen is not None:
            return chosen
        if all(known.trusted for known in trust.values()):
            return DENSE_WEIGHT
        language = detect_language(question)
        known = trust.get(language) or trust.get(_KIN.get(language, ""))
        if known is None:
            return DENSE_WEIGHT if any(other.trusted for other in trust.values()) else 0.0
        return DENSE_WEIGHT if known.trusted else 0.0

    return weight


def _measure(language: str, sample: _Sample) -> LanguageTrust | None:
    if len(sample.texts) < _LEAST_PASSAGES or len(sample.units) < _LEAST_UNITS:
        return None
    places = np.array([place for place, _, _ in sample.units])
    similarity = _normal([unit for _, _, unit in sample.units]) @ _normal(sample.embeddings).T
    by_words = scores_by_words(sample.texts, [text for _, text, _ in sample.units], make_tokenizer("bigrams"))
    return LanguageTrust(
        language,
        float(np.mean(similarity.argmax(axis=1) == places)),
        float(np.mean(by_words.argmax(axis=1) == places)),
        _share_behind(similarity, places),
        _share_behind(by_words, places),
        len(sample.texts),
    )


def _share_behind(scores: npt.NDArray[np.float32], own: npt.NDArray[np.int64]) -> float:
    """The mean share of passages that score below a unit's own; of equal ones half of them."""
    of_own = scores[np.arange(len(own)), own][:, None]
    behind = (scores < of_own).sum(axis=1) + ((scores == of_own).sum(axis=1) - 1) / 2
    return float(np.mean(behind / (scores.shape[1] - 1)))


def _normal(embeddings: Sequence[Sequence[float]]) -> npt.NDArray[np.float32]:
    vectors = np.asarray(embeddings, dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True).astype(np.float32)
    normal: npt.NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-12))
    return normal
