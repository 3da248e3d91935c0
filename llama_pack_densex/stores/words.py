"""Words for lexical search: how texts are split, in languages with and without spaces, and which words a node has.

The words of nodes whose store does not keep any are in a small LanceDB table beside it.
"""

from __future__ import annotations

import functools
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from llama_index.core.schema import BaseNode

from llama_pack_densex.stores.lance_table import (
    IN_MEMORY,
    PASSAGE_WORDS,
    UNIT_WORDS,
    NodeTable,
    TableVersion,
    is_any_of,
    with_words,
)
from llama_pack_densex.stores.manifest import OLD_VERSIONS
from llama_pack_densex.stores.node_store import RECORD_COLUMNS, NodeRecord
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.outline import searched_context
from llama_pack_densex.text.tokens import contents_of, strip_surrogates, tokenize

TokenizerSpec = str | Callable[[str], Sequence[str]]
"""How a tokenizer is chosen: "bigrams", or a function of your own from a text to its tokens."""


def _qualified_name(function: Callable[..., Any]) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return ".".join(filter(None, (getattr(named, "__module__", None), named.__qualname__)))


SAMPLE = (
    "The Foxes' 1,200 lamps weren't running in 1998-05, i.e. ＦＵＬＬ width; naïve café e-mail a_b x.y@z.org/p?q=1#2 "
    "日本橋の打込みは、引っ越しで食べられなかった。ｶﾀｶﾅとコンピューター、北京是中国的首都。서울은 한국의 수도이다. "
    "Москва שָׁלוֹם भारत ไทย \U0001f600\n\tEnd of running, runner, RUN; C++ for WHO, vitamin A at 5% of AX-010"
)
"""What a tokenizer makes of it tells whether it is the one that an index was made with."""

SAYING = ("proposition", "question")
"""The granularities of units whose words may count as their passage's."""
_MADE = ("ok", "repaired")  # statuses of propositions that a model made


@dataclass(frozen=True)
class Words:
    """How the words of texts are told.

    Args:
        name: What an index knows the tokenizer by: "bigrams", or the qualified name of a user's function.
        split: Makes the tokens of a text; those of questions and of texts come from the same one.
        pairs: Whether a Chinese, Japanese or Korean character may hide in a pair: a question of single characters
            then asks for the pairs that they occur in.
        propositions: Whether a passage is also found by the words of its propositions, where these are not just its
            sentences, and of the questions that it answers.
    """

    name: str
    split: Callable[[str], Sequence[str]]
    pairs: bool = False
    propositions: bool = True

    @classmethod
    def by(cls, tokenizer: TokenizerSpec, propositions: bool = True) -> Words:
        """Words by the tokenizer that a user chose.

        Args:
            tokenizer: "bigrams", or a function from a text to its tokens.
            propositions: As above.

        Raises:
            ValueError: There is no tokenizer of that name.
        """
        if tokenizer == "bigrams":
            return cls("bigrams", tokenize, True, propositions)
        if callable(tokenizer):
            return cls(_qualified_name(tokenizer), tokenizer, False, propositions)
        raise ValueError(f'tokenizer must be "bigrams" or a function from a text to its tokens, not {tokenizer!r}')

    @functools.cached_property
    def note(self) -> str:
        """What a table says about its words. Two functions may have one name, and a tokenizer may change with a new
        version: so it has what the tokenizer makes of a sample."""
        sample = blake2b(json.dumps(self.tokens(SAMPLE)).encode("ascii"), digest_size=16).hexdigest()
        return json.dumps({"tokenizer": self.name, "sample": sample, "propositions": self.propositions})

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, as they are in the columns: none of them has a space or half a character in it.

        Raises:
            TypeError: The tokenizer returned something else than strings.
        """
        split: Any = self.split(text)
        is_several = isinstance(split, Iterable) and not isinstance(split, str)
        tokens: list[Any] = list(split) if is_several else [None]  # which cannot be joined
        try:
            joined = " ".join(tokens)
        except TypeError as error:
            raise TypeError(
                f"the tokenizer {self.name} must return a sequence of strings: it takes a text, and returns its tokens"
            ) from error
        if joined.split() == tokens and strip_surrogates(joined) == joined:
            return tokens
        whole = (token.encode("utf-8", "backslashreplace").decode("utf-8") for token in tokens)
        return [token for token in ("\ue000".join(token.split()) for token in whole) if token]

    def of(self, record: NodeRecord) -> str | None:
        """A node's own words, but for those of a table of contents; None for one that is not searched by words."""
        if record.granularity != "passage" and not record.passage_id:
            return None
        entries = contents_of(record.text)  # which hold the words of what they lead to, and nothing else
        lines = [line for line in record.text.split("\n") if line.strip() not in entries]
        text = searchable_text("\n".join([searched_context(record.context), *lines]))
        return " ".join(self.tokens(text))

    def of_passage(self, own: str, stated: Iterable[str]) -> str:
        """The words that a passage is found by.

        Args:
            own: Those of its text.
            stated: Those of each of its propositions and questions. Where all are sentences of the text, they add
                nothing.
        """
        there, stated = Counter(own.split(" ")), list(stated) if self.propositions else []
        if all(there[word] >= times for words in stated for word, times in Counter(words.split(" ")).items()):
            return own
        return " ".join([own, *stated])

    def added_to(self, rows: pa.Table, stated: Mapping[str, list[str]] | None = None) -> pa.Table:
        """Rows of nodes with the two columns, which say how they were told.

        Args:
            rows: The rows.
            stated: What `stated_by` tells of the passages among them; None where their units are among them too.
        """
        records = list(map(NodeRecord, *(rows[name].to_pylist() for name in RECORD_COLUMNS)))
        own = [self.of(record) for record in records]
        if stated is None:
            stated = stated_by((r.passage_id, r.granularity, r.status, w) for r, w in zip(records, own, strict=True))
        passages = [
            self.of_passage(words, stated.get(record.id, ())) if words is not None and not record.passage_id else None
            for record, words in zip(records, own, strict=True)
        ]
        units = [words if record.passage_id else None for record, words in zip(records, own, strict=True)]
        return with_words(rows, passages, units, self.note)


def stated_by(told: Iterable[tuple[str, str, str, str | None]]) -> dict[str, list[str]]:
    """The words of each passage's propositions and questions that may count as its own, by the passage's id.

    Args:
        told: Of nodes, the passage that each leads to, its granularity, its status and its own words.
    """
    stated: defaultdict[str, list[str]] = defaultdict(list)
    for passage_id, granularity, status, words in told:
        if granularity == "question" or (granularity == "proposition" and status in _MADE):
            stated[passage_id].append(words or "")
    return stated


def words_in(note: str) -> Words | str | None:
    """What made a table's words: the name of the tokenizer where that is not ours, None where the table has none."""
    if not note:
        return None
    made = json.loads(note)
    name = str(made["tokenizer"])
    return Words.by(name, made["propositions"]) if name == "bigrams" else name


FOLDER = "words"
"""Of an index folder's data, where the table is."""
_STATE = "state"  # a file in it: the state of the store that the table is of; none while that is not certain
_RECORDS = pa.schema([(name, pa.string()) for name in RECORD_COLUMNS])
_KEPT = ["id", "document_id", "granularity", "passage_id", "status", PASSAGE_WORDS, UNIT_WORDS]
_TOLD = ["passage_id", "granularity", "status", UNIT_WORDS]  # see `stated_by`
_RECORDS_AT_ONCE = 2_000

Records = Callable[[str], Iterable[NodeRecord]]
"""Reads all nodes of a granularity, in any order."""


class WordsBeside:
    """The words of the nodes in a store, in a table of their own.

    They are compared with the nodes when they are first needed, and kept in step from then on: in memory, or by who
    writes (`settle`) in a folder. There they last, with the name of the store's state that they are of.

    Args:
        words: How words are told; None where none are kept here, and nothing is to be done.
    """

    def __init__(self, words: Words | None) -> None:
        self.words = words
        self._changing = threading.RLock()
        self._table: NodeTable | None = None

    def reopen(self, folder: Path, state: str) -> None:
        """Go on with the words in a folder, if they are of the store's state."""
        file = folder / FOLDER / _STATE
        with self._changing:
            self._table = None
            written = file.read_text(encoding="utf-8") if state and file.exists() else ""
            if self.words is not None and written and written == state and note_of(folder) in ("", self.words.note):
                self._table = NodeTable(str(folder / FOLDER))

    def now(self, records: Records) -> TableVersion:
        """The table as the nodes are now.

        Args:
            records: Reads the nodes, where the words are not in step with them.
        """
        with self._changing:
            if self._table is None:
                self._table = self._in_step(NodeTable(IN_MEMORY), records)
            return self._table.now

    def settle(self, folder: Path, records: Records) -> None:
        """Keep the words in a folder from now on, in step with the nodes; for who has the folder's lock."""
        place = folder / FOLDER
        with self._changing:
            if self.words is None or (self._table is not None and self._table.uri == str(place)):
                return
            self._table = None
            place.mkdir(exist_ok=True)
            (place / _STATE).unlink(missing_ok=True)
            self._table = self._in_step(NodeTable(str(place)), records)

    def begin(self) -> None:
        """A change of the store follows, which a stop may leave half done."""
        with self._changing:
            if self._table is not None and self._table.uri != IN_MEMORY:
                (Path(self._table.uri) / _STATE).unlink(missing_ok=True)

    def done(self, state: str) -> None:
        """All nodes of this state of the store are in the table."""
        with self._changing:
            if self._table is None:
                return
            if self._table.maintain():
                self._table.clean(OLD_VERSIONS)
            if self._table.uri != IN_MEMORY:  # what a stop leaves half written names no state
                (Path(self._table.uri) / _STATE).write_text(state, encoding="utf-8")

    def replace(self, document_ids: Collection[str], nodes: Sequence[BaseNode]) -> None:
        """Note a change, after it was made in the store; see `NodeStore.replace`."""
        with self._changing:
            if self._table is None:
                return
            if nodes:
                self._table.write(self._rows([NodeRecord.of(node) for node in nodes]), document_ids)
            else:
                self._table.delete(is_any_of("document_id", document_ids))

    def forget(self) -> None:
        """Compare with the nodes before the next use, since a change of them may have come half-way."""
        with self._changing:
            self._table = None

    def compact(self) -> None:
        """Leave no word of texts that went."""
        with self._changing:
            if self._table is not None:
                self._table.compact()
                self._table.clean(timedelta(0))

    def copy_to(self, folder: Path, state: str, records: Records) -> None:
        """Keep a copy in the data of another index folder, which is in this state."""
        copy = WordsBeside(self.words)
        copy.settle(folder, records)
        copy.done(state)

    def _in_step(self, table: NodeTable, records: Records) -> NodeTable:
        """Compare a table with the nodes by their ids, which tell the text, and write documents anew that differ."""
        assert self.words is not None, "a table is of some words"
        if table.now.note not in ("", self.words.note):
            table.delete()
        kept: dict[str, str] = dict(table.now.values(["id", "document_id"]))
        names, differ = (*SAYING, "sentence", "passage"), set[str]()  # passages have the words of others
        if kept:
            there = {record.id: record.document_id for name in names for record in records(name)}
            differ = {kept.get(node_id) or there[node_id] for node_id in kept.keys() ^ there.keys()}
            document_ids = iter(differ)
            while some_ids := list(islice(document_ids, _RECORDS_AT_ONCE)):
                table.delete(is_any_of("document_id", some_ids))
        for name in names if differ or not kept else ():
            due = (record for record in records(name) if not kept or record.document_id in differ)
            while some := list(islice(due, _RECORDS_AT_ONCE)):
                of_passages = [record.id for record in some if name == "passage"]
                told = table.now.values(_TOLD, is_any_of("passage_id", of_passages))
                table.write(self._rows(some, stated_by(told)))
        table.maintain()
        return table

    def _rows(self, records: Sequence[NodeRecord], stated: Mapping[str, list[str]] | None = None) -> pa.Table:
        assert self.words is not None, "a table is of some words"
        distinct = {record.id: vars(record) for record in records}
        rows = pa.Table.from_pylist(list(distinct.values()), _RECORDS)
        return self.words.added_to(rows, stated).select(_KEPT)


def note_of(folder: Path) -> str:
    """What the words in an index folder's data say of themselves; empty where there are none."""
    return NodeTable(str(folder / FOLDER)).now.note if (folder / FOLDER).is_dir() else ""
