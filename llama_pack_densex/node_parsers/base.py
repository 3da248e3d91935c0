"""What the two proposition node parsers share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
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
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer

UnitGranularity = Literal["proposition", "sentence"]

_PROGRESS_STEP = 64  # passages between two movements of a progress bar


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
        """
        metadata = {key: value for key, value in lasting(document.metadata).items() if key != "file_path"}
        levels = [parser_to_dict(parser) for parser in self._levels()]
        settings = [self.include_metadata, self.include_prev_next_rel, sorted(self.granularity), levels]
        return content_hash(document.get_content(), metadata, settings, self.propositionizer.fingerprint)

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any) -> list[BaseNode]:
        documents, passages = self._split_all(nodes, show_progress)
        sets: list[PropositionSet] = []
        for batch in _batches(passages, show_progress):
            sets += self._checked(batch, self.propositionizer.propositionize(batch))
        return self._assemble(documents, sets)

    async def _aparse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        documents, passages = self._split_all(nodes, show_progress)
        sets: list[PropositionSet] = []
        for batch in _batches(passages, show_progress):
            sets += self._checked(batch, await self.propositionizer.apropositionize(batch))
        return self._assemble(documents, sets)

    def _postprocess_parsed_nodes(self, nodes: list[BaseNode], parent_doc_map: dict[str, Document]) -> list[BaseNode]:
        # core's version links neighbours across the flat list and searches for spans by text; ours are done
        return ParsedNodes(nodes)

    def _split_all(self, nodes: Sequence[BaseNode], show_progress: bool) -> tuple[list[DocumentNodes], list[Passage]]:
        levels = self._levels()
        options = LinkOptions(
            include_metadata=self.include_metadata and all(level.include_metadata for level in levels),
            include_prev_next_rel=self.include_prev_next_rel and all(level.include_prev_next_rel for level in levels),
            propositions="proposition" in self.granularity,
            sentences="sentence" in self.granularity,
        )
        ids = NodeIds(self.propositionizer.fingerprint)
        documents = []
        for node in get_tqdm_iterable(nodes, show_progress, "Splitting documents"):
            _require_encodable(node)
            documents.append(DocumentNodes(node, split(node, levels), self.document_hash(node), ids, options))
        passages = [p for document in documents for p in document.passages] if options.propositions else []
        return documents, passages

    def _checked(self, passages: Sequence[Passage], sets: Sequence[PropositionSet]) -> Sequence[PropositionSet]:
        if len(sets) != len(passages):
            raise ValueError(
                f"{self.propositionizer.class_name()} returned {len(sets)} sets for {len(passages)} passages; "
                "a propositionizer returns one set a passage, in their order"
            )
        return sets

    def _assemble(self, documents: Sequence[DocumentNodes], sets: Sequence[PropositionSet]) -> list[BaseNode]:
        remaining = iter(sets)
        nodes: list[BaseNode] = []
        for document in documents:
            wanted = "proposition" in self.granularity
            nodes += document.with_units([next(remaining) if wanted else None for _ in document.passage_nodes])
        return nodes


def _batches(passages: list[Passage], show_progress: bool) -> Any:
    if not show_progress:
        return [passages] if passages else []
    batches = [passages[i : i + _PROGRESS_STEP] for i in range(0, len(passages), _PROGRESS_STEP)]
    return get_tqdm_iterable(batches, show_progress, f"Propositionising ({_PROGRESS_STEP} passages a step)")


def _require_encodable(document: BaseNode) -> None:
    try:
        document.get_content().encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Document {document.id_!r} ({title_of(document) or 'no title'}) has half a character (a lone surrogate) "
            f"at position {error.start}, which no store can keep; read its file with the right encoding or with "
            "errors='replace'"
        ) from error
