"""The two proposition node parsers, their streams, dictionaries and pickles, and their ingestion cache."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Annotated, Any

from llama_index.core.bridge.pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializeAsAny,
    field_validator,
)
from llama_index.core.ingestion import IngestionCache
from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.loading import all_node_parsers
from llama_index.core.schema import BaseComponent, BaseNode, Document, TransformComponent
from llama_index.core.utils import get_tokenizer, get_tqdm_iterable

from llama_pack_densex.llm.reference import SECRET
from llama_pack_densex.node_parsers.ids import NodeIds, content_hash, marked
from llama_pack_densex.node_parsers.metadata import (
    ABOVE_KEY,
    appearance,
    embedded_metadata,
    lasting,
)
from llama_pack_densex.node_parsers.nodes import DocumentNodes, NodeSettings
from llama_pack_densex.node_parsers.passages import DEFAULT_CHUNK_SIZE, PassageNodeParser
from llama_pack_densex.node_parsers.splitting import (
    SectionNodeParser,
    WholeDocumentNodeParser,
    title_of,
)
from llama_pack_densex.node_parsers.topics import TopicNodeParser
from llama_pack_densex.propositionizers.base import (
    Passage,
    Propositionizer,
    PropositionSet,
    checked_sets,
    reported,
)
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.propositionizers.seq2seq import Seq2SeqPropositionizer

DEFAULT_CHUNK_SIZES = (2048, DEFAULT_CHUNK_SIZE)
"""Tokens in a section and in a passage."""

_KINDS: dict[str, type[BaseComponent]] = {
    **all_node_parsers,
    "PassageNodeParser": PassageNodeParser,
    "SectionNodeParser": SectionNodeParser,
    "TopicNodeParser": TopicNodeParser,
    "WholeDocumentNodeParser": WholeDocumentNodeParser,
    "LLMPropositionizer": LLMPropositionizer,
    "RecordedPropositionizer": RecordedPropositionizer,
    "SentencePropositionizer": SentencePropositionizer,
    "Seq2SeqPropositionizer": Seq2SeqPropositionizer,
}


def _made_of_dict(value: Any) -> Any:
    """Make a base parser or a propositionizer from its dictionary; return any other value unchanged."""
    if not isinstance(value, dict):
        return value
    name = value.get("class_name")
    if name not in _KINDS:
        raise ValueError(
            f"cannot make a {name!r} from its dictionary; known classes: {', '.join(sorted(_KINDS))}"
        )
    parts = {**value}
    parts.pop("id_func", None)  # a dictionary holds only its name
    if "otherwise" in parts:
        parts["otherwise"] = _made_of_dict(parts["otherwise"])
    return _KINDS[name].from_dict(parts)


def without_secrets(value: Any) -> Any:
    """Return the dictionary of a parser or a model without the secrets in it."""
    if isinstance(value, list):
        return [without_secrets(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {
        key: without_secrets(part)
        for key, part in value.items()
        if not (part and SECRET.search(str(key)))
    }


def holds_key(component: BaseComponent) -> bool:
    """Return whether pickling a parser or a model would include an API key, its own or that of a part."""
    data = component.to_dict()
    inside = (*vars(component).values(), *(component.__pydantic_private__ or {}).values())
    parts = (part for part in inside if isinstance(part, BaseComponent))
    return data != without_secrets(data) or any(map(holds_key, parts))


_BaseParser = Annotated[
    NodeParser,
    BeforeValidator(_made_of_dict),
    PlainSerializer(lambda parser: without_secrets(parser.to_dict())),
]


class BasePropositionNodeParser(NodeSettings):
    """Splits documents into base nodes, with units such as propositions under the passages."""

    propositionizer: Annotated[SerializeAsAny[Propositionizer], BeforeValidator(_made_of_dict)] = (
        Field(
            default_factory=SentencePropositionizer,
            description="Turns a passage into propositions; by default into its sentences.",
        )
    )

    @field_validator("id_func", mode="before")
    @classmethod
    def _id_func_of_dict(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return None  # LlamaIndex serialises a function by its name, and cannot load it again
        return value

    def __reduce__(self) -> Any:
        # LlamaIndex's own pickling omits what cannot be pickled; here that is an error
        fields = dict(self)
        del fields["callback_manager"]
        for part in self.base_parsers():
            if holds_key(part):
                raise TypeError(
                    "the parser cannot be pickled with the key (api_key or the like) in its "
                    f"{part.class_name()}: make the parser in the process that uses it"
                )
        return _unpickled, (type(self), pickle.dumps(fields))

    def document_hash(self, document: BaseNode) -> str:
        """Hash all that a document's nodes depend on: its text, its metadata and this parser's settings.

        A file's dates and folder are left out, and so is `llm_metadata`, so that changing these does not
        cause the document to be embedded again.

        Example:
            >>> parser.document_hash(document) == parser.document_hash(Document(text="Rain fell again."))
            False
        """
        return self.document_hasher()(document)

    def document_hasher(self) -> Callable[[BaseNode], str]:
        """Return the function `document_hash` for many documents; it reads the settings only once."""
        levels = [without_secrets(parser.to_dict()) for parser in self.base_parsers()]
        granularity = sorted(self.granularity)
        settings = [self.include_metadata, self.include_prev_next_rel, granularity, levels]
        fingerprint = self.propositionizer.fingerprint

        def document_hash(document: BaseNode) -> str:
            try:
                metadata = lasting(document.metadata)
                metadata.pop("file_path", None)
                parts = [document.get_content(), metadata, settings, fingerprint, []]
                embedded = embedded_metadata(document, self.embed_metadata)
                if embedded:
                    parts[-1] = [embedded, appearance(document)]
                edition = self.propositionizer.edition(partial(title_of, document))
                for part in (edition, document.metadata.get(ABOVE_KEY)):
                    if part:
                        parts.append(part)
                return marked(content_hash(*parts), fingerprint)
            except (TypeError, ValueError):
                return _UNKEPT

        return document_hash

    def stream(
        self,
        documents: Iterable[BaseNode],
        on_passage: Callable[[PropositionSet], None] = lambda passage_set: None,
        ids: NodeIds | None = None,
    ) -> Generator[ParsedDocument, None, None]:
        """Parse a stream of documents, while the propositions of later ones are being made.

        Memory does not grow with the number of documents. The ids are those of `get_nodes_from_documents`,
        except for a document whose id occurs twice: here its nodes get the ids that they would have without
        the other one.

        Args:
            documents: Any iterable; it is read a little ahead of what is yielded.
            on_passage: Called with the propositions of each passage as they become ready.
            ids: Assigns the ids, and distinguishes a document from earlier ones of equal text; None means
                that there are no earlier ones.

        Yields:
            The documents in their order, each with its nodes or its error.

        Raises:
            PropositionizerError: No more propositions can be made. Documents that were complete by then have
                been yielded.
            ValueError: The propositionizer did not return one set for each passage.

        Example:
            >>> for parsed in parser.stream(iter([document])):
            ...     print(parsed.document.id_, len(parsed.nodes), parsed.error)
            rain.txt 3 None
        """
        split = self._split(documents, ids or self.new_ids())
        waiting: deque[_Waiting] = deque()

        def passages() -> Iterator[Passage]:
            for document in split:
                waiting.append(document)
                yield from document.wanted

        def complete() -> Iterator[ParsedDocument]:
            while waiting and len(waiting[0].sets) == len(waiting[0].wanted):
                yield waiting.popleft().parsed()

        if "proposition" not in self.granularity:
            yield from (document.parsed() for document in split)
            return
        name = self.propositionizer.class_name()
        for passage_set in self.propositionizer.stream(passages()):
            yield from complete()  # documents without passages
            if not waiting:
                raise ValueError(f"{name} returned more sets than there are passages")
            waiting[0].sets.append(passage_set)
            on_passage(passage_set)
            yield from complete()
        yield from complete()
        if waiting:
            raise ValueError(f"{name} returned fewer sets than there are passages")

    def _split(self, documents: Iterable[BaseNode], ids: NodeIds) -> Iterator[_Waiting]:
        nodes_of = self._nodes_of(ids)
        for document in documents:
            ids.forget()  # so that ids do not depend on which documents are waiting at the same time
            yield _Waiting(document, nodes_of)

    def new_ids(self) -> NodeIds:
        """Return a `NodeIds`, which assigns the ids of one call of `stream`."""
        return NodeIds(self.propositionizer.fingerprint)

    def passages_of(self, document: BaseNode) -> list[Passage]:
        """Return the passages of a document as the propositionizer gets them, in reading order.

        Raises:
            ValueError: The document cannot be split.

        Example:
            >>> [passage.text for passage in parser.passages_of(document)]
            ['Rain fell. The match was called off.']
        """
        return self._nodes_of(self.new_ids())(document).passages

    def _parse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        documents, passages = self._split_all(nodes, show_progress)
        stream = self.propositionizer.stream(passages)
        shown = get_tqdm_iterable(stream, show_progress, "Propositionising", total=len(passages))
        sets = checked_sets(self.propositionizer, passages, reported(list(shown)))
        return _assembled(documents, sets)

    async def _aparse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        documents, passages = await asyncio.to_thread(self._split_all, nodes, show_progress)
        returned = await self.propositionizer.apropositionize(passages)
        sets = checked_sets(self.propositionizer, passages, returned)
        return await asyncio.to_thread(_assembled, documents, sets)

    def _postprocess_parsed_nodes(
        self, nodes: list[BaseNode], parent_doc_map: dict[str, Document]
    ) -> list[BaseNode]:
        # our nodes have their links and spans; LlamaIndex's method would link neighbours across documents,
        # and search for spans by text
        return ParsedNodes(nodes)

    def _split_all(
        self, nodes: Sequence[BaseNode], show_progress: bool
    ) -> tuple[list[DocumentNodes], list[Passage]]:
        shown = get_tqdm_iterable(nodes, show_progress, "Splitting documents")
        documents = list(map(self._nodes_of(self.new_ids()), shown))
        return documents, [passage for document in documents for passage in document.wanted]

    def _nodes_of(self, ids: NodeIds) -> Callable[[BaseNode], DocumentNodes]:
        return partial(DocumentNodes, settings=self, ids=ids, document_hash=self.document_hasher())


# The hash of a document whose metadata cannot be stored. No index has it, so that the document is parsed,
# which raises the error that says what is wrong.
_UNKEPT = "its metadata cannot be kept"


class PropositionNodeParser(BasePropositionNodeParser):
    """Splits documents into passages and each passage into propositions (Dense X Retrieval, Chen et al.,
    2023).

    You get the passages and, under them, their propositions: small self-contained facts to search, each an
    `IndexNode` that leads to the passage to read. The same input always gets the same node ids.

    Args:
        base_parser: Any node parser; its nodes are the passages, and its own settings apply.
        propositionizer: Turns a passage into propositions: `LLMPropositionizer(llm)`,
            `RecordedPropositionizer(path)`, or sentences, the default.
        granularity: `("proposition",)`, `("sentence",)` or both.
        embed_metadata: The metadata keys that are embedded with each text, none by default; "title" and
            "section" can be named for any document that has a file name or headings. The length of passages
            depends on the text alone.
        llm_metadata: The metadata keys that the LLM reads with a text: by default title, section, context,
            file and page. Keys that a document excludes from a model stay excluded; filters see all metadata.

    Raises:
        ValueError: (on parsing) The base parser cannot split a document, or a document's text cannot be
            encoded.

    Example:
        >>> from llama_index.core import Document
        >>> from llama_pack_densex import PropositionNodeParser
        >>> parser = PropositionNodeParser()
        >>> document = Document(id_="rain.txt", text="Rain fell. The match was called off.")
        >>> [node.text for node in parser.get_nodes_from_documents([document])]
        ['Rain fell. The match was called off.', 'Rain fell.', 'The match was called off.']
    """

    base_parser: _BaseParser = Field(
        default_factory=PassageNodeParser,
        repr=False,  # it may hold a model with an API key
        description="The node parser that makes the passages.",
    )

    @classmethod
    def from_defaults(
        cls,
        base_parser: NodeParser | None = None,
        propositionizer: Propositionizer | None = None,
        **kwargs: Any,
    ) -> PropositionNodeParser:
        """Make a parser from these arguments and any other fields; each that is None gets its default.

        Args:
            base_parser: Makes the passages; None means passages of at most 256 tokens.
            propositionizer: Turns a passage into propositions; None means sentences.
            **kwargs: Further fields of the class.

        Example:
            >>> from llama_index.core.node_parser import SentenceSplitter
            >>> splitter = SentenceSplitter(chunk_size=128, chunk_overlap=0)
            >>> parser = PropositionNodeParser.from_defaults(splitter, granularity=("sentence",))
            >>> len(parser.get_nodes_from_documents([document]))
            3
        """
        kwargs |= {"base_parser": base_parser, "propositionizer": propositionizer}
        return cls(**{name: value for name, value in kwargs.items() if value is not None})

    @classmethod
    def class_name(cls) -> str:
        return "PropositionNodeParser"

    def base_parsers(self) -> list[NodeParser]:
        return [self.base_parser]


class HierarchicalPropositionNodeParser(BasePropositionNodeParser):
    """Splits documents into sections, sections into passages, and passages into propositions.

    It corresponds to LlamaIndex's `HierarchicalNodeParser`, with propositions as the leaves, for auto-merging
    retrieval: if enough propositions of a passage are found, the passage is returned in their place, and so
    on upwards.

    Args:
        levels: Node parsers, the coarsest first; each splits the nodes of the previous one, and the last
            one's nodes are the passages. `from_defaults` makes them from chunk sizes or headings.
        propositionizer: Turns a passage into propositions.
        granularity: The kinds of units under each passage; auto-merging counts propositions.
        embed_metadata: See `PropositionNodeParser`.
        llm_metadata: See `PropositionNodeParser`.

    Raises:
        ValueError: There is no level, or (on parsing) a level cannot split a document.

    Example:
        >>> from llama_index.core import Document
        >>> from llama_pack_densex import HierarchicalPropositionNodeParser
        >>> parser = HierarchicalPropositionNodeParser()
        >>> document = Document(text="Rain fell. The match was called off.")
        >>> [node.metadata["densex_granularity"] for node in parser.get_nodes_from_documents([document])]
        ['section', 'passage', 'proposition', 'proposition']
    """

    levels: list[_BaseParser] = Field(
        default_factory=lambda: _splitters(DEFAULT_CHUNK_SIZES),
        min_length=1,
        repr=False,
        description="The node parsers of the levels above the propositions, the coarsest first.",
    )

    @classmethod
    def from_defaults(
        cls,
        chunk_sizes: Sequence[int] | None = None,
        chunk_overlap: int = 0,
        sections: bool = False,
        propositionizer: Propositionizer | None = None,
        **kwargs: Any,
    ) -> HierarchicalPropositionNodeParser:
        """Make a parser from chunk sizes.

        Args:
            chunk_sizes: The most tokens in the nodes of each level, the largest first; the default is 2048
                and 256, or 256 alone with `sections`.
            chunk_overlap: The most tokens that neighbouring nodes of a level share.
            sections: Whether the top level consists of the document's sections, by its headings.
            propositionizer: Turns a passage into propositions; None means sentences.
            **kwargs: Further fields of the class.

        Raises:
            ValueError: The chunk sizes do not become smaller from level to level, or one is not positive.

        Example:
            >>> parser = HierarchicalPropositionNodeParser.from_defaults(chunk_sizes=[1024, 128])
            >>> [level.chunk_size for level in parser.levels]
            [1024, 128]
        """
        levels: list[NodeParser] = []
        if sections:
            levels.append(SectionNodeParser())
        if chunk_sizes is None:
            chunk_sizes = DEFAULT_CHUNK_SIZES[1:] if sections else DEFAULT_CHUNK_SIZES
        if any(lower >= upper for upper, lower in pairwise(chunk_sizes)):
            raise ValueError(
                f"chunk_sizes must become smaller from level to level, not {list(chunk_sizes)}"
            )
        if propositionizer:
            kwargs["propositionizer"] = propositionizer
        levels += _splitters(chunk_sizes, chunk_overlap)
        return cls(levels=levels, **kwargs)

    @classmethod
    def class_name(cls) -> str:
        return "HierarchicalPropositionNodeParser"

    def base_parsers(self) -> list[NodeParser]:
        return self.levels


def _splitters(chunk_sizes: Sequence[int], chunk_overlap: int = 0) -> list[NodeParser]:
    return [
        PassageNodeParser(chunk_size=size, chunk_overlap=min(chunk_overlap, size))
        for size in chunk_sizes
    ]


@dataclass(frozen=True)
class ParsedDocument:
    """A document and its nodes.

    Args:
        document: The document.
        nodes: Its nodes; empty if it has no text or could not be parsed.
        error: Why it could not be parsed; None if it was.
    """

    document: BaseNode
    nodes: list[BaseNode]
    error: Exception | None = None


class _Waiting:
    """A document that waits for the propositions of its passages, or the error with which it failed."""

    def __init__(self, document: BaseNode, nodes_of: Callable[[BaseNode], DocumentNodes]) -> None:
        self.sets: list[PropositionSet] = []
        self._document = document
        try:
            self._nodes: DocumentNodes | Exception = nodes_of(document)
        except Exception as error:
            # any error of a base parser or of unusual metadata fails this document alone
            self._nodes = error

    @property
    def wanted(self) -> list[Passage]:
        if isinstance(self._nodes, Exception):
            return []
        return self._nodes.wanted

    def parsed(self) -> ParsedDocument:
        if isinstance(self._nodes, Exception):
            return ParsedDocument(self._document, [], self._nodes)
        try:
            return ParsedDocument(self._document, self._nodes.with_units(self.sets))
        except Exception as error:  # such as propositions that are not strings
            return ParsedDocument(self._document, [], error)


def _assembled(
    documents: Sequence[DocumentNodes], sets: Sequence[PropositionSet]
) -> list[BaseNode]:
    remaining = iter(sets)
    nodes = []
    for document in documents:
        nodes += document.with_units(list(islice(remaining, len(document.wanted))))
    return nodes


def _unpickled(kind: type[NodeParser], fields: bytes) -> TransformComponent:
    """Make a proposition node parser from its pickled fields.

    If that fails in a worker of `multiprocessing`, the result is an `UnusableParser`.
    """
    # points tiktoken to the files that LlamaIndex ships; unpickling a splitter would download them
    get_tokenizer()
    try:
        return kind(**pickle.loads(fields))
    except Exception as error:
        if not multiprocessing.parent_process():
            raise
        return UnusableParser(
            reason=f"A worker could not make the node parser. {type(error).__name__}: {error}"
        )


class UnusableParser(TransformComponent):
    """Stands in for a parser that a worker of `multiprocessing` cannot unpickle, and raises when called.

    An error while a task is being unpickled would end the worker, and a `multiprocessing.Pool` would wait for
    ever.

    Args:
        reason: Why the parser could not be unpickled.
    """

    reason: str

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Raise a ValueError with the reason."""
        raise ValueError(self.reason)


class ParsedNodes(list[BaseNode]):
    """The nodes that one of our parsers returned: a list type that `PropositionIngestionCache` recognises.

    `fresh` is true until the cache has seen the list: a later step may change the nodes in place and return
    the same list, which is then to be cached.
    """

    fresh: bool = True


class PropositionIngestionCache(IngestionCache):
    """LlamaIndex's ingestion cache, but without the output of the proposition node parsers.

    LlamaIndex's cache key depends on the texts and metadata of the documents, not on their ids, so that a
    second document with the same text would get the first one's nodes. Therefore this cache does not keep the
    output of our parsers, which is cheap to make again from cached replies. All other steps, above all
    embedding, are cached as usual.

    Example:
        >>> from llama_index.core import Document, MockEmbedding
        >>> from llama_index.core.ingestion import IngestionPipeline
        >>> from llama_pack_densex import PropositionIngestionCache, PropositionNodeParser
        >>> pipeline = IngestionPipeline(
        ...     transformations=[PropositionNodeParser(), MockEmbedding(8)], cache=PropositionIngestionCache()
        ... )
        >>> documents = [Document(id_=name, text="Rain fell. It was cold.") for name in ("a", "b")]
        >>> [pipeline.run(documents=[document])[0].ref_doc_id for document in documents]
        ['a', 'b']
    """

    def put(
        self, key: str, nodes: Sequence[BaseNode], collection: str | None = None, **kwargs: Any
    ) -> None:
        """Cache the nodes of a transformation, unless one of our parsers returned them."""
        if isinstance(nodes, ParsedNodes) and nodes.fresh:
            nodes.fresh = False
        else:
            super().put(key, nodes, collection=collection, **kwargs)
