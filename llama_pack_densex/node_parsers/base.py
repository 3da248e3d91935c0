"""What the two proposition node parsers share."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from llama_index.core.bridge.pydantic import Field, SerializeAsAny, field_validator
from llama_index.core.node_parser import NodeParser
from llama_index.core.schema import BaseNode, Document
from llama_index.core.utils import get_tqdm_iterable

from llama_pack_densex.node_parsers.cache import ParsedNodes
from llama_pack_densex.node_parsers.ids import NodeIds, content_hash
from llama_pack_densex.node_parsers.metadata import lasting
from llama_pack_densex.node_parsers.passages import split, title_of
from llama_pack_densex.node_parsers.serialising import (
    load_propositionizer,
    parser_to_dict,
    pickle_fields,
    unpickle_fields,
)
from llama_pack_densex.node_parsers.units import DocumentNodes, LinkOptions
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet, checked_sets
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer

UnitGranularity = Literal["proposition", "sentence"]


class BasePropositionNodeParser(NodeParser):
    """Splits documents into base nodes and hangs proposition nodes under them."""

    propositionizer: SerializeAsAny[Propositionizer] = Field(
        default_factory=SentencePropositionizer,
        description="What turns a passage into propositions; sentences, where nothing is given.",
    )
    granularity: tuple[UnitGranularity, ...] = Field(
        default=("proposition",),
        description='The units made of each passage: "proposition", "sentence", both, or none.',
    )

    @field_validator("id_func", mode="before")
    @classmethod
    def _id_func_of_dict(cls, value: Any) -> Any:
        return None if isinstance(value, dict) else value  # core writes a function's name, and cannot read it

    @field_validator("granularity", mode="before")
    @classmethod
    def _as_tuple(cls, value: Any) -> Any:
        units = (value,) if isinstance(value, str) else tuple(value)
        if not set(units) <= {"proposition", "sentence"}:
            raise ValueError(f'granularity must name "proposition", "sentence" or both, not {value!r}')
        return units

    @field_validator("propositionizer", mode="before")
    @classmethod
    def _propositionizer_of_dict(cls, value: Any) -> Any:
        return load_propositionizer(value)

    def __reduce__(self) -> Any:
        return unpickle_fields, (type(self), pickle_fields(self))

    @abstractmethod
    def _levels(self) -> list[NodeParser]:
        """The base parsers, the coarsest first; the last one makes the passages."""

    def document_hash(self, document: BaseNode) -> str:
        """A hash of all that decides a document's nodes: its text, its user's metadata, and this parser's settings.

        A file's dates and the folder it lies in are not part of it.

        Raises:
            ValueError: The metadata hold what is no JSON.
        """
        return self.document_hasher()(document)

    def document_hasher(self) -> Callable[[BaseNode], str]:
        """What `document_hash` does, for many documents: the settings are looked at once."""
        levels = [parser_to_dict(parser) for parser in self._levels()]
        settings = [self.include_metadata, self.include_prev_next_rel, sorted(self.granularity), levels]
        fingerprint = self.propositionizer.fingerprint

        def document_hash(document: BaseNode) -> str:
            metadata = {key: value for key, value in lasting(document.metadata).items() if key != "file_path"}
            try:
                return content_hash(document.get_content(), metadata, settings, fingerprint)
            except (TypeError, ValueError, RecursionError) as error:
                raise ValueError(
                    f"the metadata of document {document.id_!r} cannot be kept as JSON ({error}); use strings, "
                    "numbers, booleans, lists and dictionaries"
                ) from error

        return document_hash

    def stream(
        self,
        documents: Iterable[BaseNode],
        on_passage: Callable[[PropositionSet], None] = lambda made: None,
        ids: NodeIds | None = None,
    ) -> Generator[ParsedDocument, None, None]:
        """Parse documents as they come, while the propositions of the next ones are being made.

        Memory does not grow with the number of documents. The ids are those of `get_nodes_from_documents`, but for a
        document whose id comes twice: here its nodes have the ids that they would have without the other one.

        Args:
            documents: Any iterable; it is read a little ahead of what is yielded.
            on_passage: Called with the propositions of each passage as they become ready.
            ids: Gives out the ids, and tells a document from those of equal text that it has seen before; None means
                that there were none.

        Yields:
            The documents in their order, each with its nodes, or with what was wrong with it.

        Raises:
            PropositionizerError: No more propositions can be had. The documents that were whole have been yielded.
            ValueError: The propositionizer did not make one set a passage.
        """
        splitter = self._splitter(ids)
        if "proposition" not in self.granularity:
            yield from (splitter.waiting(document).parsed(splitter.ids) for document in documents)
            return
        waiting: deque[_Waiting] = deque()

        def passages() -> Iterator[Passage]:
            for document in documents:
                waiting.append(splitter.waiting(document))
                yield from waiting[-1].passages

        def complete() -> Iterator[ParsedDocument]:
            while waiting and waiting[0].is_complete:
                yield waiting.popleft().parsed(splitter.ids)

        for one in self.propositionizer.stream(passages()):
            yield from complete()  # those without passages
            if not waiting:
                raise ValueError(f"{self.propositionizer.class_name()} returned more sets than there are passages")
            waiting[0].sets.append(one)
            on_passage(one)
            yield from complete()
        yield from complete()
        if waiting:
            raise ValueError(f"{self.propositionizer.class_name()} returned fewer sets than there are passages")

    def new_ids(self) -> NodeIds:
        """What gives out the ids of one call of `stream`."""
        return NodeIds(self.propositionizer.fingerprint)

    def passages_of(self, document: BaseNode) -> list[Passage]:
        """The passages of a document, as the propositionizer gets them.

        Raises:
            ValueError: The document cannot be split.
        """
        return self._splitter()(document).passages

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any) -> list[BaseNode]:
        documents, passages = self._split_all(nodes, show_progress)
        sets = self.propositionizer.stream(passages)
        shown = get_tqdm_iterable(sets, show_progress, "Propositionising", total=len(passages))
        return _assembled(documents, checked_sets(self.propositionizer, passages, list(shown)))

    async def _aparse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        documents, passages = self._split_all(nodes, show_progress)
        sets = await self.propositionizer.apropositionize(passages)
        return _assembled(documents, checked_sets(self.propositionizer, passages, sets))

    def _postprocess_parsed_nodes(self, nodes: list[BaseNode], parent_doc_map: dict[str, Document]) -> list[BaseNode]:
        # core's version links neighbours across the flat list and searches for spans by text; ours are done
        return ParsedNodes(nodes)

    def _split_all(self, nodes: Sequence[BaseNode], show_progress: bool) -> tuple[list[DocumentNodes], list[Passage]]:
        splitter = self._splitter()
        documents = [splitter(node) for node in get_tqdm_iterable(nodes, show_progress, "Splitting documents")]
        return documents, [passage for document in documents for passage in document.wanted_passages]

    def _splitter(self, ids: NodeIds | None = None) -> _Splitter:
        levels = self._levels()
        options = LinkOptions(
            include_metadata=self.include_metadata and all(level.include_metadata for level in levels),
            include_prev_next_rel=self.include_prev_next_rel and all(level.include_prev_next_rel for level in levels),
            propositions="proposition" in self.granularity,
            sentences="sentence" in self.granularity,
        )
        return _Splitter(levels, options, self.document_hasher(), ids or self.new_ids())


@dataclass(frozen=True)
class ParsedDocument:
    """A document and its nodes.

    Args:
        document: The document.
        nodes: Its nodes; none where it has no text.
        error: Why it has none; None where nothing was wrong.
        is_passing: Whether some of its propositions may be had another day, since the provider could not be reached.
    """

    document: BaseNode
    nodes: list[BaseNode]
    error: Exception | None = None
    is_passing: bool = False


@dataclass(frozen=True)
class _Splitter:
    levels: Sequence[NodeParser]
    options: LinkOptions
    document_hash: Callable[[BaseNode], str]
    ids: NodeIds

    def __call__(self, document: BaseNode) -> DocumentNodes:
        _require_encodable(document)
        pieces = split(document, self.levels)
        return DocumentNodes(document, pieces, self.document_hash(document), self.ids, self.options)

    def waiting(self, document: BaseNode) -> _Waiting:
        """Split a document that is followed by others, or keep what is wrong with it."""
        try:
            return _Waiting(document, self(document))
        except Exception as error:  # whatever a base parser or odd metadata raise is this document's matter
            return _Waiting(document, error=error)
        finally:
            self.ids.forget()  # so that ids do not hang on which documents are waiting at the same time


@dataclass
class _Waiting:
    """A document that waits for the propositions of its passages."""

    document: BaseNode
    nodes: DocumentNodes | None = None
    error: Exception | None = None
    sets: list[PropositionSet] = field(default_factory=list)

    @property
    def passages(self) -> list[Passage]:
        return self.nodes.wanted_passages if self.nodes is not None else []

    @property
    def is_complete(self) -> bool:
        return self.nodes is None or len(self.sets) == self.nodes.wanted

    def parsed(self, ids: NodeIds) -> ParsedDocument:
        nodes: list[BaseNode] = []
        error = self.error
        try:
            if self.nodes is not None:
                nodes = self.nodes.with_units(self.sets)
        except Exception as wrong:  # such as propositions that are no texts
            error = wrong
        finally:
            ids.forget()
        return ParsedDocument(self.document, nodes, error, any(one.is_passing for one in self.sets))


def _assembled(documents: Sequence[DocumentNodes], sets: Sequence[PropositionSet]) -> list[BaseNode]:
    remaining = iter(sets)
    return [node for document in documents for node in document.with_units(list(islice(remaining, document.wanted)))]


def _require_encodable(document: BaseNode) -> None:
    try:
        document.get_content().encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Document {document.id_!r} ({title_of(document) or 'no title'}) has half a character (a lone surrogate) "
            f"at position {error.start}, which no store can keep; read its file with the right encoding or with "
            "errors='replace'"
        ) from error
