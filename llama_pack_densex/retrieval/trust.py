"""Whether an embedding model knows the languages of the documents, told from the documents themselves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from llama_pack_densex.index.node_store import NodeRecord
from llama_pack_densex.text.language import detect_language, latin_language
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.segments import passage_sentences, segment
from llama_pack_densex.text.tokens import has_letters, tokenize

FIRST_PLACES = 0.75
ORDER = 0.98
"""A model that is below both does not know a language.

Among 30 to 300 passages all-MiniLM-L6-v2 has 0.80 to 0.99 of the first places in English and 0.98 to 1 of the
order, in Japanese 0.26 to 0.75 and 0.80 to 0.95."""

LEAST_PASSAGES = 30
"""Passages of a language before anything is said of it. Japanese and Chinese ones say twice as much and count
twice.

Of fewer, within one article of SQuAD, English was taken for unknown to MiniLM (of 20 passages in 6 of 78
cases)."""
ENOUGH_PASSAGES = 120
"""With so many, what was found out stays."""

_LOOKED_AT = 2_000  # passages of an index that are looked through for those of a language
_SENTENCES = 3  # of a passage, at most
_LEAST_PROSE = 20  # words of sentences that are in a language, though it may not be told which
_LEAST_WORDS = 5  # of a whole document
_ENDS = (".", "!", "?", "。", "！", "？")  # of sentences, which items of a list mostly lack
# the share of a sentence's words that other passages hold at most, for it to tell its own from them
_TELLING = 0.5
_SURE = 1.645  # standard errors: one side of 95 %

# hard to tell apart in a short question
_KIN = {"zh": "ja", "ja": "zh", "latin": "en", "en": "latin"}

Embed = Callable[[list[str]], Sequence[Sequence[float]]]


@dataclass(frozen=True)
class LanguageTrust:
    """How well an embedding model tells the passages of a language apart by their own sentences.

    Args:
        language: A key of `LANGUAGE_NAMES`.
        passages: How many passages there were.
        first: The share of sentences whose own passage is the nearest by embedding; None where there were too
            few passages, or these are too much alike, to say anything.
        order: Of the other passages, the mean share that is farther from a sentence than its own; 0.5 is
            chance.
        known: Whether the model may know the language: False where that is ruled out, with an interval of 95
            %.
        unrelated: The mean similarity of sentences and the nearest other passage; None where nothing was
            measured.
    """

    language: str
    passages: int
    first: float | None = None
    order: float | None = None
    known: bool = True
    unrelated: float | None = None


def trust_in(trust: Mapping[str, LanguageTrust], question: str) -> LanguageTrust | None:
    """What is known of a model in the language of a question; None where no document is in that language."""
    language = detect_language(question)
    return trust.get(language) or trust.get(_KIN.get(language, ""))


def main_languages(trust: Mapping[str, LanguageTrust]) -> list[str]:
    """The languages of the documents of an index, that of most passages first."""
    languages = list(trust.values())  # an insert in another thread may add one
    return [
        support.language for support in sorted(languages, key=lambda support: -support.passages)
    ]


class TrustMeter:
    """Measures an embedding model on passages of each language that is indexed.

    A sentence says what its passage says, so a model that knows the language has that passage nearest, where
    its words are not those of other passages too. What an index had before counts as much as what is new, so
    that a language of which a few passages come at a time is measured on all of them; and again when there
    are twice as many, until there are enough.

    A table, a list or a few words in Latin script tell no language of their own: they count as their
    document's.

    Args:
        known: What was measured before.

    Attributes:
        known: What was found out, by language; all languages of the index are there.
    """

    def __init__(self, known: Iterable[LanguageTrust] = ()) -> None:
        self.known = {trust.language: trust for trust in known}
        self._passages: defaultdict[str, list[str]] = defaultdict(list)
        self._undecided: list[str] = []  # passages of documents that tell no language
        self._looked = False

    def add(self, passages: Iterable[NodeRecord]) -> None:
        """Take in passages that were indexed."""
        by_document: defaultdict[str, list[str]] = defaultdict(list)
        for passage in passages:
            text = searchable_text(passage.text)
            if has_letters(text):
                by_document[passage.document_id].append(text)
        for texts in by_document.values():
            for language, text in zip(_languages_of(texts), texts, strict=True):
                self._take(language, text)

    def _take(self, language: str, text: str) -> None:
        if not language and len(self._undecided) < ENOUGH_PASSAGES:
            self._undecided.append(text)
        elif language and self._wants(language):
            self._passages[language].append(text)

    def count(self) -> None:
        """Note the languages of what was taken in, where there is no model to measure."""
        self._decide()
        for language, taken_in in sorted(self._passages.items()):
            earlier = self._trust_in(language)
            self.known[language] = replace(earlier, passages=max(earlier.passages, len(taken_in)))

    def _decide(self) -> None:
        """Count what tells no language as the other documents in Latin script."""
        passages = {language: len(texts) for language, texts in self._passages.items()}
        passages |= {language: trust.passages for language, trust in self.known.items()}
        language = max(("latin", "en"), key=lambda language: passages.get(language, 0))
        for text in self._undecided:
            self._take(language, text)
        self._undecided = []

    def measure(
        self, embed: Embed, indexed: Callable[[], Iterable[NodeRecord]]
    ) -> list[LanguageTrust]:
        """Measure the languages of what was taken in.

        Args:
            embed: Embeds texts.
            indexed: Reads the passages of the index, in any order; called where those taken in are not
                enough.

        Returns:
            The languages of which it now first turned out that the model may not know them.
        """
        if not self._looked and any(map(self._wants, self._passages)):
            self._looked = True
            taken = {text for texts in self._passages.values() for text in texts}
            passages = islice(indexed(), _LOOKED_AT)
            self.add(passage for passage in passages if searchable_text(passage.text) not in taken)
        self._decide()
        unsupported = []
        for language in sorted(self._passages):
            earlier = self._trust_in(language)
            self.known[language] = self._measured(earlier, embed)
            if earlier.known and not self.known[language].known:
                unsupported.append(self.known[language])
        return unsupported

    def _measured(self, earlier: LanguageTrust, embed: Embed) -> LanguageTrust:
        """What is known of a language with the passages that were taken in; measured where there are enough
        more."""
        if earlier.passages >= ENOUGH_PASSAGES:
            return earlier
        texts = list(dict.fromkeys(self._passages[earlier.language]))[:ENOUGH_PASSAGES]
        parts = [part for text in texts for part in _parts(text, earlier.language)]
        if len(parts) < LEAST_PASSAGES:
            return replace(earlier, passages=max(earlier.passages, len(texts)))
        is_new = earlier.first is None and earlier.passages < LEAST_PASSAGES
        if is_new or len(texts) >= min(2 * earlier.passages, ENOUGH_PASSAGES) > earlier.passages:
            return replace(measure_language(earlier.language, parts, embed), passages=len(texts))
        return earlier

    def _trust_in(self, language: str) -> LanguageTrust:
        return self.known.get(language, LanguageTrust(language, 0))

    def _wants(self, language: str) -> bool:
        return (
            max(self._trust_in(language).passages, len(self._passages[language])) < ENOUGH_PASSAGES
        )


def _languages_of(passages: Sequence[str]) -> list[str]:
    """The languages of a document's passages; "" for those that tell none where the document tells none
    either."""
    text = "\n".join(passages)
    own = [_own_language(passage, text) for passage in passages]
    decided = Counter(filter(None, own))
    of_document = decided.most_common(1)[0][0] if decided else latin_language(text, _LEAST_WORDS)
    return [language or of_document for language in own]


def _own_language(passage: str, document: str) -> str:
    """The language of a passage; "" for one in Latin script that has too little prose to tell it."""
    language = detect_language(passage, document)
    if language != "latin":
        return language
    sentences = (
        passage[part.start : part.end] for part in segment(passage) if part.kind == "sentence"
    )
    prose = " ".join(sentence for sentence in sentences if sentence.rstrip().endswith(_ENDS))
    of_prose = detect_language(prose)
    if of_prose not in ("", "latin"):
        return of_prose  # of Japanese above a table of names
    if len(prose.split()) >= _LEAST_PROSE:
        return "latin"
    return latin_language(passage)


def _parts(passage: str, language: str) -> list[str]:
    """A passage, or its halves where the language has twice the text in a passage of the same length."""
    sentences = passage_sentences(passage)
    if language not in ("ja", "zh") or len(sentences) < 2:
        return [passage]
    middle = len(sentences) // 2
    return ["\n".join(sentences[:middle]), "\n".join(sentences[middle:])]


def measure_language(language: str, passages: Sequence[str], embed: Embed) -> LanguageTrust:
    """Measure a model on passages of a language.

    Args:
        language: A key of `LANGUAGE_NAMES`.
        passages: The passages, all different.
        embed: Embeds texts.
    """
    sentences, places = _telling_sentences(passages)
    if len(np.unique(places)) < LEAST_PASSAGES / 2:
        return LanguageTrust(language, len(passages))
    vectors = np.array(embed([*passages, *sentences]), dtype=np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    scores = vectors[len(passages) :] @ vectors[: len(passages)].T
    rows = np.arange(len(places))
    own = scores[rows, places][:, None]
    first = (scores >= own).sum(axis=1) == 1
    ties = (scores == own).sum(axis=1) - 1
    # half of the ties are taken to be behind
    order = ((scores < own).sum(axis=1) + ties / 2) / (len(passages) - 1)
    is_known = np.mean(first) >= FIRST_PLACES or _highest(order, places) >= ORDER
    scores[rows, places] = -1.0
    return LanguageTrust(
        language,
        len(passages),
        float(np.mean(first)),
        float(np.mean(order)),
        bool(is_known),
        unrelated=float(np.mean(scores.max(axis=1))),
    )


def _telling_sentences(passages: Sequence[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Sentences that share few words with any other passage, and the places of their own ones."""
    tokens = [frozenset(tokenize(passage)) for passage in passages]
    telling: list[str] = []
    places: list[int] = []
    for place, passage in enumerate(passages):
        sentences = passage_sentences(passage)
        chosen = np.linspace(0, len(sentences) - 1, min(_SENTENCES, len(sentences)))
        # the first, the middle and the last
        for sentence in (sentences[round(number)] for number in chosen):
            own = frozenset(tokenize(sentence))
            shared = (len(own & tokens[other]) for other in range(len(passages)) if other != place)
            if own and all(count <= _TELLING * len(own) for count in shared):
                telling.append(sentence)
                places.append(place)
    return telling, np.array(places, dtype=np.int64)


def _highest(values: npt.NDArray[np.float64], places: npt.NDArray[np.int64]) -> float:
    """The upper end of an interval for the mean, of which the passages, not the sentences, are the sample."""
    counts = np.bincount(places)
    means = np.bincount(places, values)[counts > 0] / counts[counts > 0]
    return float(np.mean(means) + _SURE * np.std(means, ddof=1) / np.sqrt(len(means)))
