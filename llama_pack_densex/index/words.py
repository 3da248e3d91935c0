"""Tokens for keyword search: how texts are split, in languages with and without spaces, which tokens a node
is found by, and where they are kept beside a store that keeps none."""

from __future__ import annotations

import functools
import json
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePath
from sqlite3 import Connection
from typing import Any

from llama_index.core.utils import iter_batch

from llama_pack_densex.index import keywords, rows
from llama_pack_densex.index.database import Database
from llama_pack_densex.index.keywords import PASSAGES, UNITS, RowWords
from llama_pack_densex.index.node_store import Ids, NodeRecord, Nodes
from llama_pack_densex.node_parsers.metadata import TITLE_KEY
from llama_pack_densex.text.clauses import clause_tokens, clauses_of
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.outline import searched_context
from llama_pack_densex.text.tokens import HAN, KATAKANA, contents_of, strip_surrogates, tokenize

TokenizerSpec = str | Callable[[str], Sequence[str]]
"""The choice of a tokenizer: "bigrams", or a function of your own from a text to its tokens."""


def _qualified_name(function: Callable[..., Any]) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return ".".join(filter(None, (getattr(named, "__module__", None), named.__qualname__)))


SAMPLE = (
    "The Foxes' 1,200 lamps weren't running in 1998-05, i.e. ＦＵＬＬ width; naïve café e-mail a_b "
    "x.y@z.org/p?q=1#2 "
    "日本橋の打込みは、引っ越しで食べられなかった。ｶﾀｶﾅとコンピューター、北京是中国的首都。서울은 한국의 "
    "수도이다. "
    "Москва שָׁלוֹם भारत ไทย \U0001f600\n\tEnd of running, runner, RUN; C++ for WHO, vitamin A at 5% of "
    "AX-010, 5mm; 1 May 2024, 令和6年5月1日"
)
"""A text whose tokens reveal whether a tokenizer is the one that an index was made with."""

WORDS_FILE = "words.db"
"""The name of the database's file in an index's data folder."""

_SCHEMA = f"{rows.SCHEMA}{keywords.SCHEMA}"
# keys of the notes in the database
_STATE = "state"  # the state of the store that the words belong to; empty while that is uncertain
_WORDS = "words"  # which tokenizer made the words, as in `Words.note`
# passages last: their tokens include those of their units
_GRANULARITIES = ("proposition", "question", "sentence", "passage")
_RECORDS_AT_ONCE = 2_000

Records = Callable[[str], Iterable[NodeRecord]]
"""Reads the records of all nodes of a granularity, in any order."""

_TITLE_COUNT = 2
"""How often the words of a title count in keyword search: the right page of Wikipedia comes first for up to 6
in 100 more questions than with 1, and no kind of question loses (benchmarks/RESULTS.md)."""
_MADE_BY_MODEL = ("ok", "repaired")  # statuses of propositions that a model made
_CAPITALS = "".join(filter(str.isupper, map(chr, range(0x530))))  # Latin, Greek and Cyrillic
_CAPITALISED = rf"[{_CAPITALS}][^\W_]*(?:[.'’&-][^\W_]+)*"
_NAME = re.compile(
    rf"{_CAPITALISED}(?: {_CAPITALISED})*"
    rf"|(?!ー)[{KATAKANA}]{{2,}}(?:[・=＝][{KATAKANA}]+)*"
    rf"|(?<![{HAN}])[{HAN}]{{2,8}}(?![{HAN}])"  # longer runs are clauses in Chinese
)
_QUOTED = re.compile(r"「[^「」\n]{2,30}」|『[^『』\n]{2,30}』")


@dataclass(frozen=True)
class Words:
    """The tokenizer of an index, and the choice of tokens that a passage is found by.

    Args:
        name: The tokenizer's name in an index: "bigrams", or the qualified name of a user's function.
        split: Splits a text into tokens; it is used for questions and for indexed texts alike.
        pairs: Whether the tokens of Chinese, Japanese and Korean are pairs of characters: a question of
            single characters then searches for the pairs that contain them.
        propositions: Whether a passage is also found by the tokens of its propositions, unless these are just
            its sentences, and by those of the questions that it answers.
    """

    name: str
    split: Callable[[str], Sequence[str]]
    pairs: bool = False
    propositions: bool = True

    @classmethod
    def by(cls, tokenizer: TokenizerSpec, propositions: bool = True) -> Words:
        """Return the `Words` of the tokenizer that a user chose.

        Args:
            tokenizer: "bigrams", or a function from a text to its tokens.
            propositions: As in `Words`.

        Raises:
            ValueError: There is no tokenizer of that name.
        """
        if tokenizer == "bigrams":
            return cls("bigrams", tokenize, True, propositions)
        if callable(tokenizer):
            return cls(_qualified_name(tokenizer), tokenizer, False, propositions)
        raise ValueError(
            f'tokenizer must be "bigrams" or a function from a text to its tokens, not {tokenizer!r}'
        )

    @functools.cached_property
    def note(self) -> str:
        """The description of the tokenizer that the database stores beside its words.

        It includes a hash of the tokens of a sample, because two functions may have the same name, and a
        tokenizer may change with a new version.
        """
        sample_tokens = json.dumps(self.tokens(SAMPLE)).encode("ascii")
        fields = {
            "tokenizer": self.name,
            "sample": blake2b(sample_tokens, digest_size=16).hexdigest(),
            "propositions": self.propositions,
            "headings": True,
            "title": _TITLE_COUNT,
            "file_name": True,
            "clauses": True,
        }
        return json.dumps(fields)

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a text in the form in which they are stored: without whitespace and without
        surrogates.

        Raises:
            TypeError: The tokenizer returned something other than strings.
        """
        split: Any = self.split(text)
        is_sequence = isinstance(split, Iterable) and not isinstance(split, str)
        tokens: list[Any] = list(split) if is_sequence else [None]  # None cannot be joined
        try:
            joined = " ".join(tokens)
        except TypeError as error:
            raise TypeError(
                f"the tokenizer {self.name} must return a sequence of strings: it takes a text, and returns "
                "its tokens"
            ) from error
        if joined.split() == tokens and strip_surrogates(joined) == joined:
            return tokens
        encodable = (token.encode("utf-8", "backslashreplace").decode("utf-8") for token in tokens)
        return [token for token in ("\ue000".join(token.split()) for token in encodable) if token]

    def of(self, record: NodeRecord) -> str:
        """Return the tokens of a passage's or unit's own text and context, except for the lines of a table of
        contents."""
        # these lines only repeat the words of what they lead to
        entries = contents_of(record.text)
        lines = [line for line in record.text.split("\n") if line.strip() not in entries]
        text = searchable_text("\n".join([searched_context(record.context), *lines]))
        return " ".join(self.tokens(text))

    def of_passage(self, passage: NodeRecord, stated: Sequence[str]) -> str:
        """Return the tokens that a passage is found by, separated by spaces.

        They include those of its document's title and of the file's name, which count twice, and of the
        headings above it: they tell the passages of one document from similar ones of another, as of the
        reports of several years under one title. The numbers of its clauses are tokens, too.

        Args:
            passage: The passage.
            stated: The tokens of each of its propositions and questions. They are left out if none of them
                has a token more often than the text.
        """
        own = self.of(passage)
        title = self._document_name(passage)
        headings = [*title * _TITLE_COUNT, *self.tokens(passage.section)]
        clauses = clauses_of(passage.text, passage.context, passage.section)
        numbers = {token for path, _ in clauses for token in clause_tokens(path)}
        words = list(filter(None, [own, *headings, *sorted(numbers)]))
        own_counts = Counter(own.split(" "))
        adds_words = any(Counter(of_unit.split(" ")) - own_counts for of_unit in stated)
        if self.propositions and adds_words:
            words += stated
        return " ".join(words)

    def _document_name(self, passage: NodeRecord) -> list[str]:
        """Return the tokens of a document's title, and those of its file's name that the title lacks."""
        title = self.tokens(_title_of(passage))
        file_name = str(_metadata_of(passage).get("file_name", ""))
        if not file_name:
            return title
        stem = PurePath(file_name).stem
        return [*title, *(token for token in self.tokens(stem) if token not in title)]

    def names_of(self, passage: NodeRecord) -> list[str]:
        """Return the names in a passage and its title, each as its tokens separated by spaces."""
        names = find_names(searchable_text(f"{_title_of(passage)}\n{passage.text}"))
        return list(dict.fromkeys(filter(None, (_name_tokens(self, name) for name in names))))

    def add(self, connection: Connection, records: Mapping[int, NodeRecord]) -> None:
        """Add the tokens of nodes to a database.

        Args:
            connection: A connection inside a write transaction.
            records: The nodes, by row. The units of a passage must be among them or already in the database.
        """
        passages = {}
        words_of_units = []
        for row, record in records.items():
            if record.granularity == "passage":
                passages[row] = record
            elif record.passage_id:
                words_of_units.append(RowWords(row, UNITS, self.of(record)))
        keywords.add_words(connection, words_of_units)
        keywords.add_names(
            connection, {row: self.names_of(passage) for row, passage in passages.items()}
        )
        stated = _stated(connection, [passage.id for passage in passages.values()])
        words_of_passages = []
        for row, passage in passages.items():
            words = self.of_passage(passage, stated.get(passage.id, ()))
            words_of_passages.append(RowWords(row, PASSAGES, words))
        keywords.add_words(connection, words_of_passages)


def _title_of(passage: NodeRecord) -> str:
    return str(_metadata_of(passage).get(TITLE_KEY, ""))


def _metadata_of(passage: NodeRecord) -> dict[str, Any]:
    return dict(json.loads(passage.metadata or "{}"))


def _stated(connection: Connection, passage_ids: Ids) -> dict[str, list[str]]:
    """Return the tokens of the propositions and questions that count for their passage, by passage id."""
    units = {}
    for unit in rows.units_of_passages(connection, passage_ids):
        is_made_by_model = unit.granularity == "proposition" and unit.status in _MADE_BY_MODEL
        if is_made_by_model or unit.granularity == "question":
            units[unit.row] = unit
    stated: defaultdict[str, list[str]] = defaultdict(list)
    for row, _, words in keywords.read_words(connection, units):
        stated[units[row].passage_id].append(words)
    return stated


@functools.lru_cache(maxsize=16_384)  # many passages mention the same names
def _name_tokens(words: Words, name: str) -> str:
    return " ".join(words.tokens(name))


def find_names(text: str) -> list[str]:
    """Return the names in a text, each once.

    Names are runs of capitalised words, of katakana and of Han characters, and what Japanese quotation marks
    enclose. This includes words at the beginning of a sentence and common words in Han characters: callers
    have to tell real names from these by their rarity.
    """
    quoted = [quotation[1:-1] for quotation in _QUOTED.findall(text)]
    return list(dict.fromkeys([*_NAME.findall(text), *quoted]))


def words_in(note: str) -> Words | str | None:
    """Return the tokenizer that a note describes: its name if it is not ours, None if the note is empty."""
    if not note:
        return None
    fields = json.loads(note)
    name = str(fields["tokenizer"])
    if name != "bigrams":
        return name
    return Words.by(name, fields["propositions"])


class WordsBeside:
    """The words of the nodes in a store that does not keep words itself.

    They are compared with the nodes when they are first needed, and kept in step from then on: in memory, or,
    once the writer has called `settle`, in a folder. A folder also stores the name of the store's state that
    the words belong to.

    Args:
        words: The tokenizer; None if no words are kept here, so that there is nothing to do.
    """

    def __init__(self, words: Words | None) -> None:
        self.words = words
        self._changing = threading.RLock()
        self._database: Database | None = None

    def reopen(self, folder: Path, state: str) -> None:
        """Use the words in a folder, if they were made by the same tokenizer from this state of the store."""
        with self._changing:
            self._database = None
            if self.words is None or not state or not (folder / WORDS_FILE).exists():
                return
            database = _database_in(folder)
            with database.reading():
                notes = (database.note(_STATE), database.note(_WORDS))
            if notes == (state, self.words.note):
                self._database = database

    def now(self, records: Records) -> Database:
        """Return the database with the words of the current nodes.

        Args:
            records: Reads the nodes if the words have to be brought in step with them.
        """
        with self._changing:
            if self._database is None:
                database = Database(None, _SCHEMA)
                self._bring_in_step(database, records)
                database.commit()
                self._database = database
            return self._database

    def settle(self, folder: Path, records: Records) -> None:
        """Keep the words in a folder from now on, in step with the nodes; only for the holder of the folder's
        lock."""
        with self._changing:
            if self.words is None:
                return
            if self._database is not None and self._database.file == folder / WORDS_FILE:
                return
            database = _database_in(folder)
            self._bring_in_step(database, records)
            self._database = database

    def begin(self) -> None:
        """Mark the words as uncertain before a change of the store, which a stop may leave half done."""
        self.done("")  # the name of no state

    def done(self, state: str) -> None:
        """Record that the words belong to this state of the store, and commit them."""
        with self._changing:
            if self._database is not None:
                self._database.set_note(_STATE, state)
                self._database.commit()

    def replace(self, document_ids: Ids, nodes: Nodes) -> None:
        """Apply a change that was made in the store; see `NodeStore.replace`."""
        with self._changing:
            if self._database is None:
                return
            connection = self._database.writing()
            records = {node.node_id: NodeRecord.of(node) for node in nodes}
            _remove(connection, rows.rows_of_documents(connection, document_ids))
            _remove(connection, rows.rows_with_ids(connection, records))
            self._add(connection, list(records.values()))
            if self._database.file is None:
                self._database.commit()

    def forget(self) -> None:
        """Compare the words with the nodes before the next use, because a change may be incomplete."""
        with self._changing:
            if self._database is not None:
                self._database.roll_back()
            self._database = None

    def compact(self) -> None:
        """Erase the words of deleted texts."""
        with self._changing:
            if self._database is not None:
                self._database.vacuum()

    def copy_to(self, folder: Path, state: str, records: Records) -> None:
        """Write the words to the data folder of a copied index, whose store has this state."""
        copy = WordsBeside(self.words)
        copy.settle(folder, records)
        copy.done(state)

    def _bring_in_step(self, database: Database, records: Records) -> None:
        """Compare the words with the nodes by id, and renew those of documents that differ.

        Ids are enough, because a node's id depends on its text.
        """
        assert self.words is not None, "words need a tokenizer"
        connection = database.writing()
        if database.note(_WORDS) != self.words.note:
            keywords.clear_words(connection)
            connection.execute("DELETE FROM nodes")
            database.set_note(_WORDS, self.words.note)
        stored = dict(connection.execute("SELECT id, document_id FROM nodes").fetchall())
        documents = {record.id: record.document_id for record in _all(records)}
        documents_by_node = stored | documents
        differ = {documents_by_node[node_id] for node_id in stored.keys() ^ documents.keys()}
        if not differ:
            return
        _remove(connection, rows.rows_of_documents(connection, differ))
        due = (record for record in _all(records) if record.document_id in differ)
        for records_due in iter_batch(due, _RECORDS_AT_ONCE):
            self._add(connection, records_due)

    def _add(self, connection: Connection, records: Sequence[NodeRecord]) -> None:
        assert self.words is not None, "words need a tokenizer"
        searched = [record for record in records if record.granularity in _GRANULARITIES]
        numbers = rows.add_rows(connection, searched)
        self.words.add(connection, dict(zip(numbers, searched, strict=True)))


def note_of(folder: Path) -> str:
    """Return which tokenizer made the words in a data folder, as in `Words.note`; empty if it has none."""
    if not (folder / WORDS_FILE).exists():
        return ""
    return _database_in(folder).note(_WORDS)


def _database_in(folder: Path) -> Database:
    return Database(folder / WORDS_FILE, _SCHEMA)


def _all(records: Records) -> Iterator[NodeRecord]:
    for granularity in _GRANULARITIES:
        yield from records(granularity)


def _remove(connection: Connection, old: Sequence[rows.NodeRow]) -> None:
    numbers = [row.row for row in old]
    keywords.remove_words(connection, numbers)
    rows.remove_rows(connection, numbers)
