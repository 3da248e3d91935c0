from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    MarkdownNodeParser,
    NodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
    TokenTextSplitter,
)
from llama_index.core.schema import IndexNode, MetadataMode, TextNode

from llama_pack_densex import HierarchicalPropositionNodeParser, PropositionNodeParser
from llama_pack_densex.node_parsers.passages import PassageNodeParser
from llama_pack_densex.node_parsers.splitting import (
    SectionNodeParser,
    WholeDocumentNodeParser,
    locate,
)
from llama_pack_densex.node_parsers.topics import TopicNodeParser
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.text.segments import segment
from tests.embedding import TrigramEmbedding

pytestmark = pytest.mark.pure

NASTY = st.text(alphabet=st.sampled_from("ab. 。「」雨\n\t#=😀é\u3000\u0000\u202e"), max_size=200)


class Told(Propositionizer):
    """Says the same of every passage that mentions rain, and nothing of others."""

    texts: tuple[str, ...]

    @classmethod
    def class_name(cls) -> str:
        return "Told"

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return [
            PropositionSet(self.texts if "rain" in passage.text.lower() else ())
            for passage in passages
        ]

    def fingerprint_data(self) -> dict[str, Any]:
        return {}


def check_spans(
    document: Document, parser: PropositionNodeParser | HierarchicalPropositionNodeParser
) -> None:
    nodes = parser.get_nodes_from_documents([document])
    by_id = {node.node_id: node for node in nodes}
    for node in nodes:
        assert isinstance(node, TextNode)
        if not isinstance(node, IndexNode):
            assert document.text[node.start_char_idx : node.end_char_idx] == node.text
        if node.parent_node is not None:
            parent = by_id[node.parent_node.node_id]
            assert isinstance(parent, TextNode)
            assert parent.start_char_idx is not None
            assert node.start_char_idx is not None
            assert (
                parent.start_char_idx
                <= node.start_char_idx
                <= node.end_char_idx
                <= parent.end_char_idx
            )


@given(NASTY)
def test_every_base_node_is_a_slice_of_its_document_and_lies_in_its_parent(text: str) -> None:
    check_spans(Document(text=text), PropositionNodeParser())
    check_spans(
        Document(text=text), HierarchicalPropositionNodeParser.from_defaults(chunk_sizes=[80, 30])
    )


@given(NASTY)
def test_passages_cover_all_that_is_not_white_space(text: str) -> None:
    document = Document(text=text)
    for splitter in (
        SentenceSplitter(chunk_size=30, chunk_overlap=0),
        PassageNodeParser(chunk_size=30),
    ):
        parser = PropositionNodeParser(base_parser=splitter)
        passages = [
            n for n in parser.get_nodes_from_documents([document]) if not isinstance(n, IndexNode)
        ]
        covered = {i for node in passages for i in range(node.start_char_idx, node.end_char_idx)}  # type: ignore[attr-defined]
        assert all(text[i].isspace() for i in range(len(text)) if i not in covered)


def test_passages_end_where_sentences_end_and_no_heading_is_parted_from_its_text() -> None:
    japanese = (
        "霧浜灯台は1874年に着工した(技師は佐伯、助手はI. Brandvold)。高さは41.5メートルで、"
        "港の端に立っている。"
    )
    english = (
        "Dr. Brandvold began the tower in 1874, with 1,200 lamps and\n"
        "no keeper. It is 41.5 metres high. "
    )
    text = "".join(f"## Part {i}\n\n{(japanese, english)[i % 2] * 4}\n\n" for i in range(6))
    document = Document(text=text)
    ends = {found.end for found in segment(text) if found.kind == "sentence"}
    for parser in (
        PropositionNodeParser(),
        HierarchicalPropositionNodeParser.from_defaults(chunk_sizes=[400, 100]),
    ):
        nodes = [
            n for n in parser.get_nodes_from_documents([document]) if not isinstance(n, IndexNode)
        ]
        assert len(nodes) > 4
        assert {node.end_char_idx for node in nodes} <= ends  # type: ignore[attr-defined]


def test_the_default_splitter_is_the_same_where_it_is_unpickled_or_read() -> None:
    parser = PropositionNodeParser()
    for copy in (
        pickle.loads(pickle.dumps(parser)),
        PropositionNodeParser.from_dict(parser.to_dict()),
    ):
        document = Document(text="霧浜灯台は1874年に着工した。" * 60, id_="a")
        same = [
            [node.node_id for node in one.get_nodes_from_documents([document])]
            for one in (parser, copy)
        ]
        assert same[0] == same[1]


@pytest.mark.parametrize(
    "base_parser",
    [
        SentenceSplitter(chunk_size=40, chunk_overlap=15),
        TokenTextSplitter(chunk_size=40, chunk_overlap=10),
        MarkdownNodeParser(),
        SentenceWindowNodeParser(),
        HierarchicalNodeParser.from_defaults(chunk_sizes=[120, 40]),
        WholeDocumentNodeParser(),
        SectionNodeParser(),
        PassageNodeParser(chunk_size=40, chunk_overlap=15),
        TopicNodeParser(embed_model=TrigramEmbedding(), chunk_size=40),
    ],
    ids=lambda parser: parser.class_name(),
)
def test_any_base_parsers_nodes_are_slices_of_the_document(base_parser: NodeParser) -> None:
    paragraph = "It rained again and again. It rained again and again. Nobody knew why, not even Dr. Smith. "
    text = "".join(
        f"# Part {i}\n\n{paragraph * 3}\n\n## Detail\n\n{paragraph}\n\n" for i in range(4)
    )
    check_spans(Document(text=text), PropositionNodeParser(base_parser=base_parser))


def test_repeated_text_is_found_where_it_was_cut() -> None:
    assert locate(["aa", "aa"], "aaaa") == [(0, 2), (2, 4)]
    assert locate(["ab ab", "ab ab"], "ab ab ab ab") == [(0, 5), (6, 11)]


def test_overlapping_pieces_leave_no_gap() -> None:
    assert locate(["one two", "two three", "three four"], "one two three four") == [
        (0, 7),
        (4, 13),
        (8, 18),
    ]


def test_a_piece_that_was_rewritten_has_no_span_and_does_not_disturb_the_others() -> None:
    assert locate(["one", "TWO", "three"], "one two three") == [(0, 3), None, (8, 13)]


def test_a_sentence_that_is_a_proposition_has_its_own_span() -> None:
    text = "# Head\n\nRain fell. The match was called off."
    nodes = PropositionNodeParser().get_nodes_from_documents([Document(text=text)])
    units = [node for node in nodes if isinstance(node, IndexNode)]
    assert [text[unit.start_char_idx : unit.end_char_idx] for unit in units] == [
        unit.text for unit in units
    ]


RAIN = """# Weather

On Monday rain fell all day, as Ann Lee said. Nobody was surprised. The match was called off.

# Rocks

Granite is hard, and rain hardly wears it down."""


def test_a_proposition_has_the_span_of_its_sentence_in_the_document() -> None:
    propositions = (
        "The match was called off.",
        "Rain had fallen on Monday, said Ann Lee.",
        "Basalt is volcanic.",
    )
    text = f"Nothing happened. Nothing at all.\n\n{RAIN}"
    base = SentenceSplitter(chunk_size=35, chunk_overlap=0)
    parser = PropositionNodeParser(base_parser=base, propositionizer=Told(texts=propositions))
    nodes = parser.get_nodes_from_documents([Document(text=text)])
    by_id = {node.node_id: node for node in nodes}
    units = [node for node in nodes if isinstance(node, IndexNode) and node.text in propositions]
    said = [text[unit.start_char_idx : unit.end_char_idx] for unit in units[:2]]
    assert said == ["The match was called off.", "On Monday rain fell all day, as Ann Lee said."]
    assert not any("densex_unverified" in unit.metadata for unit in units[:2])
    for unit in (unit for unit in units if unit.text.startswith("Basalt")):
        passage = by_id[unit.index_id]
        assert isinstance(passage, TextNode)
        assert (unit.start_char_idx, unit.end_char_idx) == (
            passage.start_char_idx,
            passage.end_char_idx,
        )
        assert unit.metadata["densex_unverified"] is True
        assert "unverified" not in unit.get_content(MetadataMode.EMBED) + unit.get_content(
            MetadataMode.LLM
        )


def test_a_proposition_is_in_the_section_of_its_sentence() -> None:
    told = Told(texts=("Rain wears granite down but slowly, since granite is hard.",))
    parser = PropositionNodeParser(base_parser=WholeDocumentNodeParser(), propositionizer=told)
    (_, unit) = parser.get_nodes_from_documents([Document(text=RAIN)])
    assert unit.metadata["densex_section"] == "Rocks"


@given(
    st.lists(st.text(alphabet="ab ", min_size=1, max_size=6), min_size=1, max_size=8),
    st.integers(0, 2),
)
def test_pieces_cut_from_a_text_are_found_in_order(pieces: list[str], overlap: int) -> None:
    text = "".join(pieces)
    starts = [len("".join(pieces[:i])) for i in range(len(pieces))]
    cut = [
        text[max(0, start - overlap) : start + len(piece)]
        for start, piece in zip(starts, pieces, strict=True)
    ]
    spans = locate(cut, text)
    assert [text[slice(*span)] for span in spans if span] == cut
