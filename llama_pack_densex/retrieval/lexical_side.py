"""The lexical side of an index: kept in step with its nodes, and saved beside them."""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from llama_pack_densex.retrieval.lexical_build import built
from llama_pack_densex.retrieval.lexical_index import LexicalIndex
from llama_pack_densex.retrieval.lexical_live import LiveSegment
from llama_pack_densex.retrieval.lexical_merge import settled
from llama_pack_densex.retrieval.lexical_rows import Rows, searched, segment_of
from llama_pack_densex.retrieval.lexical_state import FOLDER, State, StateWriter, clean_folder
from llama_pack_densex.retrieval.lexical_words import fingerprint
from llama_pack_densex.retrieval.tokens import TOKENIZERS, TextTokenizer, TokenizerSpec, make_tokenizer
from llama_pack_densex.stores.records import NodeRecord

logger = logging.getLogger(__name__)

Records = Callable[[], Iterable[NodeRecord]]


class LexicalSide:
    """The lexical index of nodes that change.

    It is told of each change, and saved as a state with a name: what a state consists of never changes, and is read
    from its files as it is needed. Several threads may search while one changes it.

    Args:
        tokenizer: "bigrams", "sudachi", or a function from a text to its tokens; None means the one that the saved
            state was made with, "bigrams" where there is none.
        folder: Where the state was saved.
        state: The name of a saved state, which is opened at the first use; empty where there is none.
        empty: There are no nodes yet, so that nothing has to be read.

    Raises:
        ValueError: There is no tokenizer of that name, or the state was made with a function, which must be passed
            again.
        ImportError: The tokenizer is not installed; the message says what to install.
    """

    def __init__(
        self,
        tokenizer: TokenizerSpec | None = None,
        folder: Path | None = None,
        state: str = "",
        empty: bool = False,
    ) -> None:
        self._saved = _read(folder, state)
        self.tokenizer = _chosen_tokenizer(tokenizer, self._saved, folder)
        self._changing = threading.RLock()
        self._folder = folder
        self._writers: dict[Path, StateWriter] = {}
        self._last: tuple[Path, LexicalIndex, str] | None = None  # what was saved or opened last, and where
        self._index = LexicalIndex((), self.tokenizer) if empty else None

    def get(self, records: Records) -> LexicalIndex:
        """The index as the nodes are now.

        Args:
            records: Reads the nodes, in any order; called only where nothing is known of them. The units of a passage
                come in reading order.

        Raises:
            TypeError: The tokenizer returned something else than strings.
        """
        index = self._index
        if index is not None:
            return index
        with self._changing:
            index = self._known()
            if index is None:
                index = self._index = LexicalIndex(built(records(), self.tokenizer), self.tokenizer)
            return index

    def replace(self, document_ids: Sequence[str], records: Sequence[NodeRecord]) -> None:
        """Note a change, after it was made in the store.

        Args:
            document_ids: Documents all of whose nodes went.
            records: Whole documents that came, each passage with its units in reading order; passages whose ids are
                there already are replaced, with their units.

        Raises:
            TypeError: The tokenizer returned something else than strings.
        """
        with self._changing:
            index = self._known()
            if index is None:
                return
            try:
                self._index = self._changed(index, document_ids, list(searched(records)))
            except BaseException:
                self._index = None  # the nodes changed all the same: they are read anew
                raise

    def save(self, folder: Path, records: Records) -> str:
        """Write the index as the nodes are now: only what the folder does not have yet.

        Args:
            folder: An index's folder, which exists.
            records: Reads the nodes, see `get`.

        Returns:
            The state's name; the same one where nothing changed. Earlier states stay until `clean`.
        """
        with self._changing:
            index = self.get(records)
            last = self._last
            if last is not None and last[:2] == (folder, index) and (folder / FOLDER / last[2]).is_file():
                return last[2]
            writer = self._writers.setdefault(folder, StateWriter(folder / FOLDER))
            name, segments = writer.write(index.segments, self.tokenizer.name, fingerprint(self.tokenizer))
            self._index = LexicalIndex(segments, self.tokenizer)
            self._last = folder, self._index, name
            return name

    def clean(self, folder: Path, state: str) -> None:
        """Remove the files that a state does not use, and what a stop in between left behind.

        Args:
            folder: The index's folder.
            state: The state's name; where there is no such state, nothing is removed.
        """
        with self._changing:
            clean_folder(folder / FOLDER, state)

    def reopen(self, folder: Path, state: str) -> None:
        """Go on from a saved state that another process made.

        Args:
            folder: The index's folder.
            state: The state's name; empty where there is none, so that all nodes are read at the next use.
        """
        with self._changing:
            self.forget()
            self._folder, self._saved = folder, _read(folder, state)
            self._known()

    def is_readable(self) -> bool:
        """Whether the saved state could be opened; what cannot be is made anew from the nodes."""
        with self._changing:
            return self._known() is not None

    def forget(self) -> None:
        """Read all nodes anew at the next use and write all files anew, so that no word is kept of texts that went."""
        with self._changing:
            self._index = self._saved = self._last = None
            self._writers.clear()

    def _known(self) -> LexicalIndex | None:
        """The index, opened where it was saved; None where nothing is known that can be used."""
        if self._index is None and self._saved is not None and self._folder is not None:
            self._index = self._opened(self._saved, self._folder)
            self._saved = None
        return self._index

    def _changed(self, index: LexicalIndex, document_ids: Sequence[str], records: Sequence[NodeRecord]) -> LexicalIndex:
        new = [LiveSegment(segment_of([Rows.of(records, self.tokenizer)]))] if records else []
        passages = [record.id for record in records if record.granularity == "passage"]
        segments = [_without(segment, document_ids, passages) for segment in index.segments]
        if not passages and all(map(operator.is_, segments, index.segments)):
            return index
        return LexicalIndex(settled([*segments, *new]), self.tokenizer)

    def _opened(self, saved: tuple[str, State], folder: Path) -> LexicalIndex | None:
        name, state = saved
        if (state.tokenizer, state.fingerprint) != (self.tokenizer.name, fingerprint(self.tokenizer)):
            logger.info(
                "The lexical index was made with another tokenizer than %s: making it anew.", self.tokenizer.name
            )
            return None
        try:
            index = LexicalIndex(state.open(folder / FOLDER), self.tokenizer)
        except (OSError, ValueError) as error:
            _report_unusable(folder, error)
            return None
        writer = self._writers.setdefault(folder, StateWriter(folder / FOLDER))
        writer.know(state)
        self._last = folder, index, name
        return index


def _read(folder: Path | None, name: str) -> tuple[str, State] | None:
    if folder is None or not name:
        return None
    try:
        return name, State.read(folder / FOLDER, name)
    except (OSError, ValueError) as error:
        _report_unusable(folder, error)
        return None


def _report_unusable(folder: Path, error: Exception) -> None:
    logger.info("The lexical index in %s cannot be used (%s).", folder, str(error) or type(error).__name__)


def _chosen_tokenizer(
    tokenizer: TokenizerSpec | None, saved: tuple[str, State] | None, folder: Path | None
) -> TextTokenizer:
    if tokenizer is not None:
        return make_tokenizer(tokenizer)
    name = "bigrams" if saved is None else saved[1].tokenizer
    if name not in TOKENIZERS:
        raise ValueError(
            f"the lexical index in {folder} was made with the tokenizer {name}, a function: pass it as tokenizer=, or "
            'tokenizer="bigrams" to have the index made anew with that'
        )
    return make_tokenizer(name)


def _without(segment: LiveSegment, documents: Sequence[str], passages: Sequence[str]) -> LiveSegment:
    """A segment without the passages of some documents and without some passages."""
    of_documents = segment.segment.passages_of(documents)
    same = [place for place in map(segment.segment.passages.find, passages) if place >= 0]
    return segment.without(np.concatenate((of_documents, np.array(same, dtype=np.int64))))
