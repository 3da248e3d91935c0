"""Finding passages by their words, and kept in step with the nodes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from llama_pack_densex.retrieval.lexical_scores import BM25
from llama_pack_densex.retrieval.lexical_store import FILE, read_texts, read_tokenizer, write_texts
from llama_pack_densex.retrieval.lexical_texts import TokenisedTexts
from llama_pack_densex.retrieval.tokens import TOKENIZERS, TextTokenizer, TokenizerSpec, is_cjk, make_tokenizer
from llama_pack_densex.stores.records import NodeRecord

logger = logging.getLogger(__name__)

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LexicalHit:
    """A passage that a query found by its words.

    Args:
        passage_id: The passage's node id.
        score: Its BM25 score, above 0.
        units: Its units with scores above 0, best first; the passage itself among them where passages are searched.
    """

    passage_id: str
    score: float
    units: tuple[tuple[NodeRecord, float], ...]


class LexicalIndex:
    """Finds passages by BM25, and ranks each found passage's units among themselves.

    It does not change once it is made, so any number of threads may search it.

    Args:
        records: The nodes to search. Sections are left out, since their passages hold the same words, and so are
            units whose passage is not there.
        tokenizer: Splits texts and questions; None means pairs of characters and words, see `tokenize`.
        known: Texts that are split already; the others are split now.
    """

    def __init__(
        self,
        records: Iterable[NodeRecord],
        tokenizer: TextTokenizer | None = None,
        known: TokenisedTexts | None = None,
    ) -> None:
        self._tokenizer = tokenizer or make_tokenizer("bigrams")
        searched = [record for record in records if record.granularity == "passage" or record.passage_id]
        self._passages = [record for record in searched if record.granularity == "passage"]
        place = {record.id: place for place, record in enumerate(self._passages)}
        self._units = sorted(
            (record for record in searched if record.granularity != "passage" and record.passage_id in place),
            key=lambda record: place[record.passage_id],
        )
        owners = np.array([place[record.passage_id] for record in self._units], dtype=np.int64)
        self._units_from = np.searchsorted(owners, np.arange(len(self._passages) + 1))
        passage_texts, unit_texts = ([record.text for record in part] for part in (self._passages, self._units))
        known = known or TokenisedTexts.none(self._tokenizer.name)
        self.texts = known.updated(passage_texts + unit_texts, self._tokenizer.split)
        words = len(self.texts.vocabulary)
        self._passage_bm25 = BM25(*self.texts.of(passage_texts), words)
        self._unit_bm25 = BM25(*self.texts.of(unit_texts), words)

    def search(
        self, query: str, passages: int, granularity: Collection[str], allowed: Container[str] | None = None
    ) -> tuple[list[LexicalHit], int]:
        """Search.

        Args:
            query: The question.
            passages: How many passages to return at most.
            granularity: The granularities of the units to return.
            allowed: The ids of the passages to search; None means all.

        Returns:
            The passages, best first, and how many were found in all. None is found where no word of the query occurs.
        """
        tokens = self._numbers(query)
        scores = self._passage_bm25.scores(tokens)
        found = np.flatnonzero(scores > 0)
        if allowed is not None:
            passes = [self._passages[place].id in allowed for place in found.tolist()]
            found = found[np.array(passes, dtype=bool)]
        best = _best(found, scores, passages)
        unit_scores = self._unit_bm25.scores(tokens) if len(best) else np.zeros(0, dtype=np.float32)
        hits = [
            LexicalHit(
                self._passages[place].id,
                float(scores[place]),
                self._ranked_units(place, scores, unit_scores, granularity),
            )
            for place in best
        ]
        return hits, len(found)

    def _numbers(self, query: str) -> list[int]:
        tokens = self._tokenizer.split(query)
        lone = [token for token in tokens if len(token) == 1 and is_cjk(token)]
        numbers = self.texts.numbers(tokens)
        if self._tokenizer.pairs and lone and len(numbers) == len(self.texts.numbers(lone)):
            numbers += [pair for character in lone for pair in self.texts.pairs_with(character)]
        return numbers

    def _ranked_units(
        self, passage: int, scores: Scores, unit_scores: Scores, granularity: Collection[str]
    ) -> tuple[tuple[NodeRecord, float], ...]:
        start, end = self._units_from[passage : passage + 2]
        scored = [
            (record, score)
            for record, score in zip(self._units[start:end], unit_scores[start:end].tolist(), strict=True)
            if score > 0 and record.granularity in granularity
        ]
        if "passage" in granularity:
            scored.append((self._passages[passage], float(scores[passage])))
        return tuple(sorted(scored, key=lambda unit: -unit[1]))


class LexicalIndexCache:
    """The lexical index of nodes that change: made when it is first needed, and again after they changed.

    A text is split once: after a change only what is new, after a restart what the saved index lacks. It may be used
    by several threads.

    Args:
        tokenizer: "bigrams", "sudachi", or a function from a text to its tokens; None means the one that the saved
            index was made with, "bigrams" where there is none.
        folder: Where an index may have been saved.

    Raises:
        ValueError: There is no tokenizer of that name, or the saved index was made with a function, which must be
            passed again.
        ImportError: The tokenizer is not installed; the message says what to install.
    """

    def __init__(self, tokenizer: TokenizerSpec | None = None, folder: Path | None = None) -> None:
        self.tokenizer = _chosen_tokenizer(tokenizer, folder)
        self._folder = folder
        self._making = threading.Lock()
        self._texts: TokenisedTexts | None = None
        self._index: LexicalIndex | None = None
        self._nodes = self._indexed = object()  # the nodes' state now, and the state that the index shows
        self._saved: tuple[TokenisedTexts, Path] | None = None

    def get(self, records: Callable[[], Iterable[NodeRecord]]) -> LexicalIndex:
        """The index as the nodes are now.

        Args:
            records: Reads the nodes; called only where the index has to be made.
        """
        with self._making:
            nodes = self._nodes  # read before the records, so that a change in between is not missed
            if self._index is None or self._indexed is not nodes:
                current = list(records())
                saved = self._saved_texts(current) if self._texts is None else None
                self._index = LexicalIndex(current, self.tokenizer, saved or self._texts)
                self._texts, self._indexed = self._index.texts, nodes
                if saved is not None:
                    _report(saved, self._texts)
            return self._index

    def changed(self) -> None:
        """Note that the nodes changed."""
        self._nodes = object()

    def forget(self) -> None:
        """Split all texts anew at the next use, so that no word is kept of texts that are gone."""
        with self._making:
            self._texts = self._index = self._folder = self._saved = None

    def save(self, folder: Path, records: Callable[[], Iterable[NodeRecord]]) -> None:
        """Write the index as the nodes are now into a folder, unless that is what lies there.

        Args:
            folder: An existing folder.
            records: Reads the nodes.
        """
        texts = self.get(records).texts
        if self._saved != (texts, folder) or not (folder / FILE).is_file():
            write_texts(texts, folder)
            self._saved = texts, folder

    def _saved_texts(self, records: list[NodeRecord]) -> TokenisedTexts | None:
        texts = None if self._folder is None else read_texts(self._folder)
        if self._folder is None or texts is None:
            return None
        if texts.tokenizer != self.tokenizer.name or not texts.agrees_with(
            [record.text for record in records], self.tokenizer.split
        ):
            logger.info(
                "The lexical index was made with another tokenizer than %s: making it anew.", self.tokenizer.name
            )
            return None
        self._saved = texts, self._folder
        return texts


def _report(saved: TokenisedTexts, now: TokenisedTexts) -> None:
    new = sum(digest not in saved.places for digest in now.digests)
    if new:
        logger.info("The saved lexical index lacked %d of %d texts; they were split now.", new, len(now.digests))


def _chosen_tokenizer(tokenizer: TokenizerSpec | None, folder: Path | None) -> TextTokenizer:
    if tokenizer is not None:
        return make_tokenizer(tokenizer)
    name = (None if folder is None else read_tokenizer(folder)) or "bigrams"
    if name not in TOKENIZERS:
        raise ValueError(
            f"the lexical index in {folder} was made with the tokenizer {name}, a function: pass it as tokenizer=, or "
            'tokenizer="bigrams" to have the index made anew with that'
        )
    return make_tokenizer(name)


def _best(places: npt.NDArray[np.int64], scores: Scores, count: int) -> list[int]:
    """The places with the highest scores, best first; equal ones in the order of the corpus."""
    if 0 < count < len(places):
        least = np.partition(scores[places], -count)[-count]
        places = places[scores[places] >= least]
    order = np.argsort(-scores[places], kind="stable")
    best: list[int] = places[order][:count].tolist()
    return best
