"""Tokenised texts on their way into a segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

import numpy as np

from llama_pack_densex.retrieval.lexical_arrays import Array, Ragged, arrays_of, parts_of
from llama_pack_densex.retrieval.lexical_files import set_aside
from llama_pack_densex.retrieval.lexical_live import distinct_words
from llama_pack_densex.retrieval.lexical_segment import Postings, Segment, Words, assemble
from llama_pack_densex.retrieval.lexical_words import Vocabulary
from llama_pack_densex.retrieval.tokens import TextTokenizer
from llama_pack_densex.stores.records import NodeRecord

PASSAGE = 0  # the number of the granularity


@dataclass(frozen=True, eq=False)
class Rows:
    """Some texts, in any order, whole passages or not.

    Args:
        hashes: The words that `tokens` means; with `first` and `second`, see `Words`.
        first: Their first characters, where they are pairs.
        second: Their second characters.
        ids: The nodes' ids.
        owners: The ids of the passages that they belong to; of a passage, its own.
        documents: The ids of their documents.
        kinds: The numbers of their granularities.
        granularities: The granularities; the passages' is the first.
        tokens: The words of the tokens of each.
    """

    hashes: Array
    first: Array
    second: Array
    ids: Ragged
    owners: Ragged
    documents: Ragged
    kinds: Array
    granularities: tuple[str, ...]
    tokens: Ragged

    @classmethod
    def of(cls, records: Sequence[NodeRecord], tokenizer: TextTokenizer) -> Rows:
        """Tokenise texts.

        Raises:
            TypeError: The tokenizer returned something else than strings.
        """
        vocabulary = Vocabulary(tokenizer)
        kinds = {"passage": PASSAGE}
        numbers = [np.array(vocabulary.numbers(record.text), dtype=np.uint32) for record in records]
        hashes = vocabulary.words()
        order = np.argsort(hashes)
        rank = np.empty(len(order), dtype=np.uint32)
        rank[order] = np.arange(len(order), dtype=np.uint32)
        first, second = vocabulary.pairs()
        values = np.concatenate(numbers) if numbers else np.zeros(0, dtype=np.uint32)
        return cls(
            hashes[order],
            first[order],
            second[order],
            Ragged.of_texts(record.id for record in records),
            Ragged.of_texts(record.leads_to for record in records),
            Ragged.of_texts(record.document_id for record in records),
            np.array([kinds.setdefault(record.granularity, len(kinds)) for record in records], dtype=np.uint8),
            tuple(kinds),
            Ragged.of(rank[values], np.array([len(text) for text in numbers], dtype=np.int64)),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def aside(self) -> Rows:
        """The same in a temporary file."""
        return Rows(**parts_of(Rows, set_aside(arrays_of(self))), granularities=self.granularities)

    @property
    def size(self) -> int:
        """How many tokens there are, and texts."""
        return len(self) + len(self.tokens.values)

    def share(self, number: int, shares: int) -> Rows:
        """One of several shares, a passage and its units in the same whatever rows they are in."""
        if shares == 1:
            return self
        rows = np.flatnonzero(self._owner_numbers % shares == number)
        return Rows(
            self.hashes,
            self.first,
            self.second,
            self.ids.take(rows),
            self.owners.take(rows),
            self.documents.take(rows),
            self.kinds[rows],
            self.granularities,
            self.tokens.take(rows),
        )

    @cached_property
    def _owner_numbers(self) -> Array:
        owners = (crc32(self.owners.bytes_at(row)) for row in range(len(self)))
        return np.fromiter(owners, dtype=np.uint32, count=len(self))


def searched(records: Iterable[NodeRecord]) -> Iterator[NodeRecord]:
    """The nodes that are searched by words: passages, and what leads to passages."""
    return (record for record in records if record.granularity == "passage" or record.passage_id)


def segment_of(parts: Sequence[Rows]) -> Segment:
    """Make a segment of texts; of two with one id the last counts, and units without their passage are left out."""
    words, numbers = joined_words([Words(part.hashes, part.first, part.second) for part in parts])
    names = tuple(dict.fromkeys(name for part in parts for name in part.granularities))
    kinds = np.concatenate([np.array([names.index(name) for name in part.granularities])[part.kinds] for part in parts])
    tokens = Ragged.joined(
        [Ragged(number[part.tokens.values], part.tokens.starts) for part, number in zip(parts, numbers, strict=True)]
    )
    ids, owners, documents = (
        Ragged.joined([getattr(part, name) for part in parts]) for name in ("ids", "owners", "documents")
    )
    row_of = {ids.bytes_at(row): row for row in np.flatnonzero(kinds == PASSAGE).tolist()}
    passages = sorted(row_of)
    place_of = {passage: place for place, passage in enumerate(passages)}
    units = {ids.bytes_at(row): row for row in np.flatnonzero(kinds != PASSAGE).tolist()}
    unit_rows = np.fromiter(units.values(), dtype=np.int64, count=len(units))
    places = np.array([place_of.get(owners.bytes_at(row), -1) for row in unit_rows.tolist()], dtype=np.int64)
    order = np.argsort(places, kind="stable")[int((places < 0).sum()) :]
    unit_rows, places = unit_rows[order], places[order]
    passage_rows = np.array([row_of[passage] for passage in passages], dtype=np.int64)
    passage_tokens, unit_tokens = tokens.take(passage_rows), tokens.take(unit_rows)
    postings, frequencies = np.unique(
        passage_tokens.values.astype(np.int64) << 32 | np.repeat(np.arange(len(passages)), passage_tokens.lengths),
        return_counts=True,
    )
    in_units = distinct_words(np.repeat(np.arange(len(unit_rows)), unit_tokens.lengths), unit_tokens.values)
    return assemble(
        words,
        passages,
        [documents.bytes_at(row) for row in passage_rows.tolist()],
        passage_tokens.lengths,
        Postings(postings >> 32, postings & 0xFFFFFFFF, frequencies),
        ids.take(unit_rows),
        np.bincount(places, minlength=len(passages)),
        (kinds[unit_rows], Ragged.of_texts(names)),
        unit_tokens,
        np.bincount(in_units, minlength=len(words.hashes)),
    )


def joined_words(parts: Sequence[Words]) -> tuple[Words, list[Array]]:
    """All words of several, and for each of these the numbers that its words have among all."""
    hashes, places = np.unique(np.concatenate([part.hashes for part in parts]), return_index=True)
    first, second = (np.concatenate([getattr(part, name) for part in parts])[places] for name in ("first", "second"))
    return Words(hashes, first, second), [np.searchsorted(hashes, part.hashes) for part in parts]
