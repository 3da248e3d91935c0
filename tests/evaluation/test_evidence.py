"""Where retrieved nodes stand in the documents."""

from __future__ import annotations

import pytest
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    NodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
)
from llama_index.core.schema import TextNode

from llama_pack_densex import PropositionNodeParser
from llama_pack_densex.evaluation.evidence import Locator, Place
from llama_pack_densex.node_parsers.splitting import WholeDocumentNodeParser
from tests.evaluation.comparing import small_set

PARSERS: list[NodeParser] = [
    SentenceSplitter(chunk_size=40, chunk_overlap=10, include_metadata=False),
    SentenceWindowNodeParser.from_defaults(),
    HierarchicalNodeParser.from_defaults(chunk_sizes=[128, 64, 40], chunk_overlap=5),
    PropositionNodeParser(base_parser=SentenceSplitter(chunk_size=64, chunk_overlap=0)),
]


@pytest.mark.parametrize("language", ["en", "ja"])
@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.class_name())
def test_nodes_of_any_parser_are_found_in_their_article(parser: NodeParser, language: str) -> None:
    dataset = small_set(language)
    texts = {document.id_: document.text for document in dataset.documents}
    locator = Locator(dataset)
    nodes = parser.get_nodes_from_documents(dataset.documents)
    assert len(nodes) >= 2  # core finds no sentence ends in Japanese
    for node in nodes:
        place = locator.place(node)
        assert place is not None
        assert place.span is not None
        assert texts[place.document_id][slice(*place.span)].strip() == node.get_content().strip()


@pytest.mark.parametrize("language", ["en", "ja"])
def test_nodes_of_passage_documents_stand_where_the_passage_does(language: str) -> None:
    dataset = small_set(language)
    locator = Locator(dataset)
    nodes = WholeDocumentNodeParser().get_nodes_from_documents(dataset.passage_documents())
    places = [locator.place(node) for node in nodes]
    assert places == [
        Place(title, span) for title, spans in dataset.passages.items() for span in spans
    ]
    assert [locator.passage(place) for place in places] == [(place, True) for place in places]


def test_a_proposition_stands_where_its_passage_does_whatever_its_words() -> None:
    dataset = small_set()
    document = dataset.documents[0]
    node = TextNode(
        text="Fundy's tides are the highest.",
        metadata={"densex_document_id": "Tides/1"},
        start_char_idx=0,
        end_char_idx=10,
    )
    start = dataset.passages[document.id_][1][0]
    assert Locator(dataset).place(node) == Place("Tides", (start, start + 10))


def test_a_span_that_does_not_hold_the_nodes_text_is_not_believed() -> None:
    dataset = small_set()
    text = "A tidal mill grinds grain."
    node = TextNode(text=text, metadata={"densex_document_id": "Tides/2"})
    other = TextNode(text=text, id_="Tides", start_char_idx=0, end_char_idx=5)
    start = dataset.documents[0].text.index(text)
    locator = Locator(dataset)
    assert locator.place(node) == locator.place(other) == Place("Tides", (start, start + len(text)))


def test_a_text_that_is_in_no_document_has_no_place() -> None:
    assert Locator(small_set()).place(TextNode(text="Rain fell.")) is None


def test_white_space_at_the_ends_does_not_count_for_the_passage() -> None:
    dataset = small_set()
    (_, end), (start, _) = dataset.passages["Tides"][:2]
    passage = Locator(dataset).passage(Place("Tides", (end - 10, start)))
    assert passage == (Place("Tides", dataset.passages["Tides"][0]), True)


def test_a_unit_over_two_passages_is_from_the_one_with_most_of_it() -> None:
    dataset = small_set()
    (_, end), (start, _) = dataset.passages["Bridges"][:2]
    assert Locator(dataset).passage(Place("Bridges", (end - 10, start + 25))) == (
        Place("Bridges", dataset.passages["Bridges"][1]),
        False,
    )
