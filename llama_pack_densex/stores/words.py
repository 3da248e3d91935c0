"""Words for lexical search: how texts are split, in languages with and without spaces, and which words a node has."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import threading
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from llama_pack_densex.propositionizers.tokens import CJK, is_cjk, runs, sendable, tokenize, words_of
from llama_pack_densex.stores.lance_table import NOTE, with_words
from llama_pack_densex.stores.node_store import NodeRecord, to_records

TokenizerSpec = str | Callable[[str], Sequence[str]]
"""How a tokenizer is chosen: "bigrams", "sudachi", or a function of your own from a text to its tokens."""

TOKENIZERS = ("bigrams", "sudachi")
"""The tokenizers that are chosen by name."""


@dataclass(frozen=True)
class TextTokenizer:
    """A tokenizer with the name that an index remembers it by.

    Args:
        name: "bigrams", "sudachi", or the qualified name of a user's function.
        split: Makes the tokens of a text; those of questions and of texts come from the same one.
        pairs: Whether a Chinese, Japanese or Korean character may hide in a pair: a question of single characters
            then asks for the pairs that they occur in.
    """

    name: str
    split: Callable[[str], Sequence[str]]
    pairs: bool = False


def make_tokenizer(tokenizer: TokenizerSpec) -> TextTokenizer:
    """The tokenizer that a user chose.

    Args:
        tokenizer: "bigrams", "sudachi", or a function from a text to its tokens.

    Raises:
        ValueError: There is no tokenizer of that name.
        ImportError: "sudachi", which is not installed; the message names the extra.
    """
    if tokenizer == "bigrams":
        return TextTokenizer("bigrams", tokenize, pairs=True)
    if tokenizer == "sudachi":
        return TextTokenizer("sudachi", SudachiTokenizer())
    if callable(tokenizer):
        return TextTokenizer(_qualified_name(tokenizer), tokenizer)
    raise ValueError(
        f'tokenizer must be "bigrams", "sudachi" or a function from a text to its tokens, not {tokenizer!r}'
    )


def _qualified_name(function: Callable[..., Any]) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return ".".join(filter(None, (getattr(named, "__module__", None), named.__qualname__)))


SAMPLE = (
    "The Foxes' 1,200 lamps weren't running in 1998-05, i.e. ＦＵＬＬ width; naïve café e-mail a_b x.y@z.org/p?q=1#2 "
    "日本橋の打込みは、引っ越しで食べられなかった。ｶﾀｶﾅとコンピューター、北京是中国的首都。서울은 한국의 수도이다. "
    "Москва \U0001f600\n\tEnd of running, runner, RUN"
)
"""What a tokenizer makes of it tells whether it is the one that an index was made with."""

SAYING = ("proposition", "question")
"""The granularities of units whose words may count as their passage's."""
_MADE = ("ok", "repaired")  # statuses of propositions that a model made


@dataclass(frozen=True)
class Words:
    """How the words of texts are told.

    Args:
        tokenizer: Splits texts and questions.
        propositions: Whether a passage is also found by the words of its propositions, where these are not just its
            sentences, and of the questions that it answers.
    """

    tokenizer: TextTokenizer
    propositions: bool = True

    @functools.cached_property
    def note(self) -> str:
        """What a table says about its words. Two functions may have one name, and a tokenizer may change with a new
        version: so it has what the tokenizer makes of a sample."""
        sample = blake2b(json.dumps(self.tokens(SAMPLE)).encode("ascii"), digest_size=16).hexdigest()
        return json.dumps({"tokenizer": self.tokenizer.name, "sample": sample, "propositions": self.propositions})

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, as they are in the columns: none of them has a space or half a character in it.

        Raises:
            TypeError: The tokenizer returned something else than strings.
        """
        tokens = self.tokenizer.split(text)
        if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
            raise TypeError(
                f"the tokenizer {self.tokenizer.name} must return a sequence of strings: it takes a text, and returns "
                "its tokens"
            )
        joined = " ".join(tokens)
        if joined.split() == list(tokens) and sendable(joined) == joined:
            return list(tokens)
        whole = (token.encode("utf-8", "backslashreplace").decode("utf-8") for token in tokens)
        return [token for token in ("\ue000".join(token.split()) for token in whole) if token]

    def of(self, record: NodeRecord) -> str | None:
        """A node's own words; None for one that is not searched by words."""
        searched = record.granularity == "passage" or record.passage_id
        return " ".join(self.tokens(record.text)) if searched else None

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

    def stated(self, told: Iterable[tuple[NodeRecord, str | None]]) -> dict[str, list[str]]:
        """The words of each passage's propositions and questions, by the passage's id.

        Args:
            told: Nodes with their own words.
        """
        stated: defaultdict[str, list[str]] = defaultdict(list)
        for record, words in told:
            if adds_words(record.granularity, record.status):
                stated[record.passage_id].append(words or "")
        return stated

    def added_to(self, rows: pa.Table, stated: Mapping[str, list[str]] | None = None) -> pa.Table:
        """Rows of nodes with the two columns, which say how they were told.

        Args:
            rows: The rows.
            stated: What `stated` tells of the passages among them; None where their units are among them too.
        """
        records = list(to_records(rows))
        own = [self.of(record) for record in records]
        told = self.stated(zip(records, own, strict=True)) if stated is None else stated
        passages = [
            self.of_passage(words, told.get(record.id, ())) if words is not None and not record.passage_id else None
            for record, words in zip(records, own, strict=True)
        ]
        units = [words if record.passage_id else None for record, words in zip(records, own, strict=True)]
        return with_words(rows, passages, units).replace_schema_metadata({NOTE: self.note})


def adds_words(granularity: str, status: str) -> bool:
    """Whether a unit's words may count as its passage's."""
    return granularity == "question" or (granularity == "proposition" and status in _MADE)


def words_in(note: str) -> Words | str | None:
    """What made a table's words: the name of the tokenizer where that is a function, None where the table has none."""
    if not note:
        return None
    made = json.loads(note)
    name = str(made["tokenizer"])
    return Words(make_tokenizer(name), made["propositions"]) if name in TOKENIZERS else name


CONTENT_WORDS = frozenset({"名詞", "動詞", "形容詞", "形状詞", "副詞", "記号", "補助記号"})
"""Nouns, verbs, adjectives, adjectival nouns, adverbs: the parts of speech that are searched. Characters that the
dictionary lacks, such as rare Han, count as symbols; punctuation is sorted out by its characters."""

_LIMIT = 12_000  # characters of at most four bytes; Sudachi refuses texts of more than 49,149 bytes
_SENTENCE = re.compile(r"[^\n。．！？!?]*[\n。．！？!?]*")
_HAS_CJK = re.compile(f"[{CJK}]")
_HANGUL = re.compile("[가-힣]+")


class SudachiTokenizer:
    """Splits Japanese text into its content words, in their normalised forms ("打込み" is "打ち込み").

    Words are as long as the dictionary has them (Sudachi's mode C). Hangul, and letters and digits of other scripts,
    become the tokens that `tokenize` makes of them. It may be called from several threads.

    Raises:
        ImportError: SudachiPy or its dictionary is not installed; the message names the extra.
    """

    def __init__(self) -> None:
        for module in ("sudachipy", "sudachidict_core"):
            if importlib.util.find_spec(module) is None:
                raise ImportError(
                    f'tokenizer="sudachi" needs {module}, which is not installed: '
                    'pip install "llama-pack-densex[sudachi]"'
                )
        self._of_thread = threading.local()

    def __call__(self, text: str) -> list[str]:
        """Split a text into tokens; those of Japanese come first."""
        tokens: list[str] = []
        for piece in _pieces(unicodedata.normalize("NFKC", text)):
            for morpheme in self._analyser().tokenize(piece):
                if morpheme.part_of_speech()[0] in CONTENT_WORDS and _is_japanese(morpheme.surface()):
                    tokens.append(morpheme.normalized_form().casefold())
        for run in runs(text):
            tokens.extend(_tokens_of_hangul(run) if is_cjk(run[0]) else words_of(run))
        return tokens

    def _analyser(self) -> Any:
        """This thread's analyser: one must not be used by two threads at a time."""
        if not hasattr(self._of_thread, "analyser"):
            self._of_thread.analyser = _dictionary().tokenizer()
        return self._of_thread.analyser


def _is_japanese(surface: str) -> bool:
    return _HAS_CJK.search(surface) is not None and _HANGUL.search(surface) is None


def _tokens_of_hangul(run: str) -> Iterator[str]:
    for stretch in _HANGUL.findall(run):
        yield from tokenize(stretch)


def _pieces(text: str) -> Iterator[str]:
    """The sentences and lines of a text, in pieces where Sudachi takes no more at once.

    Lone surrogates, which UTF-8 cannot encode, part words.
    """
    for sentence in _SENTENCE.findall(re.sub("[\ud800-\udfff]", " ", text)):
        yield from (sentence[i : i + _LIMIT] for i in range(0, len(sentence), _LIMIT))


@functools.cache
def _dictionary() -> Any:
    from sudachipy import Dictionary

    return Dictionary(dict="core")
