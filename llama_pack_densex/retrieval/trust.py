"""Test of whether an embedding model knows the languages of the documents, using the documents themselves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from llama_pack_densex.index.node_store import NodeRecord
from llama_pack_densex.node_parsers.topics import of_length_one
from llama_pack_densex.text.language import detect_language, latin_language
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.segments import passage_sentences, segment
from llama_pack_densex.text.tokens import has_letters, tokenize

FIRST_PLACES = 0.75
ORDER = 0.98
"""A model that is below both thresholds, of `LanguageTrust.first` and `LanguageTrust.order`, does not know a
language.

Among 30 to 300 passages, all-MiniLM-L6-v2 puts 0.80 to 0.99 of English sentences' own passages first, with an
order of 0.98 to 1; in Japanese these are 0.26 to 0.75 and 0.80 to 0.95."""

LEAST_PASSAGES = 30
"""Minimum number of passages in a language before it is tested. Japanese and Chinese passages count twice,
as they hold twice as much.

With fewer, within one article of SQuAD, English was judged unknown to MiniLM (with 20 passages in 6 of 78
cases)."""
ENOUGH_PASSAGES = 120
"""Number of passages after which the result for a language is final."""

_LOOKED_AT = 2_000  # passages of an index to search for more in a language
_SENTENCES = 3  # tested per passage, at most
_LEAST_PROSE = 20  # words of prose that make a passage "latin" if no language is detected
_LEAST_WORDS = 5  # of a whole document
_ENDS = (".", "!", "?", "。", "！", "？")  # of sentences; items of a list mostly lack them
# A sentence identifies its passage only if every other passage has at most this share of its words.
_TELLING = 0.5
_SURE = 1.645  # standard errors of a one-sided 95 % confidence bound

# languages that are hard to tell apart in a short question
_KIN = {"zh": "ja", "ja": "zh", "latin": "en", "en": "latin"}

Embed = Callable[[list[str]], Sequence[Sequence[float]]]


@dataclass(frozen=True)
class LanguageTrust:
    """How well an embedding model matches sentences of a language to their own passages.

    Args:
        language: A key of `LANGUAGE_NAMES`.
        passages: The number of passages in the test.
        first: The share of sentences whose own passage is the nearest by embedding; None if there were too
            few passages, or too similar ones, for a test.
        order: The mean share of the other passages that are farther from a sentence than its own passage; 0.5
            is chance.
        known: Whether the model may know the language: False only if that is ruled out with 95 % confidence.
        unrelated: The mean similarity of a sentence and the nearest other passage; None if nothing was
            measured.
    """

    language: str
    passages: int
    first: float | None = None
    order: float | None = None
    known: bool = True
    unrelated: float | None = None


def trust_in(trust: Mapping[str, LanguageTrust], question: str) -> LanguageTrust | None:
    """Return the result for a question's language, or a similar one; None if no document is in either."""
    language = detect_language(question)
    return trust.get(language) or trust.get(_KIN.get(language, ""))


def main_languages(trust: Mapping[str, LanguageTrust]) -> list[str]:
    """Return the languages of an index, the one with the most passages first."""
    # a list of its own, since an insert in another thread may add one
    languages = sorted([*trust.values()], key=lambda support: -support.passages)
    return [support.language for support in languages]


class TrustMeter:
    """A test of an embedding model on passages of each language that is indexed.

    A sentence says what its passage says, so that a model that knows the language places it nearest to that
    passage, unless other passages share its words. Passages that were indexed earlier count like new ones, so
    that a language whose passages arrive a few at a time is measured on all of them. It is measured again
    when their number has doubled, until there are enough.

    The language of a table, a list or a few words in Latin script cannot be detected: they count as their
    document's language.

    Args:
        known: Earlier results.

    Attributes:
        known: The results by language, for all languages of the index.
    """

    def __init__(self, known: Iterable[LanguageTrust] = ()) -> None:
        self.known = {trust.language: trust for trust in known}
        self._passages: defaultdict[str, list[str]] = defaultdict(list)
        self._undecided: list[str] = []  # passages of documents whose language is unclear
        self._looked = False

    def add(self, passages: Iterable[NodeRecord]) -> None:
        """Collect passages that were indexed."""
        by_document = defaultdict(list)
        for passage in passages:
            text = searchable_text(passage.text)
            if has_letters(text):
                by_document[passage.document_id].append(text)
        for texts in by_document.values():
            for language, text in zip(_languages_of(texts), texts, strict=True):
                self._collect(language, text)

    def _collect(self, language: str, text: str) -> None:
        if not language and len(self._undecided) < ENOUGH_PASSAGES:
            self._undecided.append(text)
        elif language and self._wants(language):
            self._passages[language].append(text)

    def count(self) -> None:
        """Note the languages of the collected passages, if there is no model to measure."""
        self._decide()
        for language, texts in sorted(self._passages.items()):
            earlier = self._trust_in(language)
            self.known[language] = replace(earlier, passages=max(earlier.passages, len(texts)))

    def _decide(self) -> None:
        """Count passages of unclear language like most other passages in Latin script."""
        passages = {language: len(texts) for language, texts in self._passages.items()}
        passages |= {language: trust.passages for language, trust in self.known.items()}
        language = max(("latin", "en"), key=lambda language: passages.get(language, 0))
        for text in self._undecided:
            self._collect(language, text)
        self._undecided = []

    def measure(
        self, embed: Embed, indexed: Callable[[], Iterable[NodeRecord]]
    ) -> list[LanguageTrust]:
        """Measure the languages of the collected passages.

        Args:
            embed: Embeds texts.
            indexed: Reads the passages of the index, in any order; called if those collected are not enough.

        Returns:
            The results of languages that are now, for the first time, found to be unknown to the model.
        """
        if not self._looked and any(map(self._wants, self._passages)):
            self._looked = True
            collected = {text for texts in self._passages.values() for text in texts}
            passages = islice(indexed(), _LOOKED_AT)
            self.add(
                passage for passage in passages if searchable_text(passage.text) not in collected
            )
        self._decide()
        unsupported = []
        for language in sorted(self._passages):
            earlier = self._trust_in(language)
            self.known[language] = self._measured(earlier, embed)
            if earlier.known and not self.known[language].known:
                unsupported.append(self.known[language])
        return unsupported

    def _measured(self, earlier: LanguageTrust, embed: Embed) -> LanguageTrust:
        """Return the result for a language, measured again if enough passages were collected since."""
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
    """Return the languages of a document's passages.

    A passage of unclear language has that of its document; "" if that is unclear too.
    """
    text = "\n".join(passages)
    own = [_own_language(passage, text) for passage in passages]
    decided = Counter(filter(None, own))
    of_document = decided.most_common(1)[0][0] if decided else latin_language(text, _LEAST_WORDS)
    return [language or of_document for language in own]


def _own_language(passage: str, document: str) -> str:
    """Return the language of a passage; "" for one in Latin script with too little prose to detect it."""
    language = detect_language(passage, document)
    if language != "latin":
        return language
    parts = [part for part in segment(passage) if part.kind == "sentence"]
    sentences = [part.text_in(passage).rstrip() for part in parts]
    prose = " ".join(sentence for sentence in sentences if sentence.endswith(_ENDS))
    of_prose = detect_language(prose)
    if of_prose not in ("", "latin"):
        return of_prose  # for example Japanese above a table of names
    if len(prose.split()) >= _LEAST_PROSE:
        return "latin"
    return latin_language(passage)


def _parts(passage: str, language: str) -> list[str]:
    """Return a passage, or its halves in a language whose passages hold twice as much."""
    sentences = passage_sentences(passage)
    if language not in ("ja", "zh") or len(sentences) < 2:
        return [passage]
    middle = len(sentences) // 2
    return ["\n".join(sentences[:middle]), "\n".join(sentences[middle:])]


def measure_language(language: str, passages: Sequence[str], embed: Embed) -> LanguageTrust:
    """Measure a model on passages of a language.

    Args:
        language: A key of `LANGUAGE_NAMES`.
        passages: The passages, without duplicates.
        embed: Embeds texts.
    """
    sentences, places = _telling_sentences(passages)
    if len(np.unique(places)) < LEAST_PASSAGES / 2:
        return LanguageTrust(language, len(passages))
    vectors = of_length_one(np.array(embed([*passages, *sentences]), np.float64))
    scores = vectors[len(passages) :] @ vectors[: len(passages)].T
    rows = np.arange(len(places))
    own = scores[rows, places][:, None]
    first = (scores >= own).sum(axis=1) == 1
    ties = (scores == own).sum(axis=1) - 1
    # half of the ties count as farther
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
    """Return sentences that share few words with other passages, and the positions of their own passages."""
    tokens = [frozenset(tokenize(passage)) for passage in passages]
    telling = []
    places = []
    for place, passage in enumerate(passages):
        others = [*tokens[:place], *tokens[place + 1 :]]
        sentences = passage_sentences(passage)
        chosen = np.linspace(0, len(sentences) - 1, min(_SENTENCES, len(sentences)))
        for number in chosen:  # of the first, the middle and the last sentence
            sentence = sentences[round(number)]
            own = frozenset(tokenize(sentence))
            most_shared = _TELLING * len(own)
            if own and all(len(own & other) <= most_shared for other in others):
                telling.append(sentence)
                places.append(place)
    return telling, np.array(places, dtype=np.int64)


def _highest(values: npt.NDArray[np.float64], places: npt.NDArray[np.int64]) -> float:
    """Return the upper confidence bound of the mean, with passages rather than sentences as the sample."""
    counts = np.bincount(places)
    means = np.bincount(places, values)[counts > 0] / counts[counts > 0]
    return float(np.mean(means) + _SURE * np.std(means, ddof=1) / np.sqrt(len(means)))
