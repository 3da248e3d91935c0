from __future__ import annotations

import pytest
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.node_parser import (
    HTMLNodeParser,
    JSONNodeParser,
    MarkdownNodeParser,
    NodeParser,
    get_child_nodes,
    get_deeper_nodes,
    get_leaf_nodes,
    get_root_nodes,
)
from llama_index.core.retrievers import AutoMergingRetriever, RecursiveRetriever
from llama_index.core.schema import BaseNode, IndexNode, MetadataMode, NodeRelationship
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_pack_densex import HierarchicalPropositionNodeParser, PropositionNodeParser
from llama_pack_densex.node_parsers.metadata import (
    BOOKKEEPING_KEYS,
    GRANULARITY_KEY,
    SECTION_KEY,
    STATUS_KEY,
)
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from tests.embedding import TrigramEmbedding
from tests.node_parsers.test_ids import Shouting

pytestmark = pytest.mark.pure

BOTH = ("proposition", "sentence")


def of(nodes: list[BaseNode], granularity: str) -> list[BaseNode]:
    return [node for node in nodes if node.metadata[GRANULARITY_KEY] == granularity]


@pytest.fixture
def flat(documents: list[Document]) -> list[BaseNode]:
    return PropositionNodeParser().get_nodes_from_documents(documents)


@pytest.fixture
def deep(documents: list[Document]) -> list[BaseNode]:
    parser = HierarchicalPropositionNodeParser.from_defaults(chunk_sizes=[200, 30])
    return parser.get_nodes_from_documents(documents)


def test_a_proposition_leads_to_its_passage(flat: list[BaseNode]) -> None:
    passages = {node.node_id for node in of(flat, "passage")}
    for node in of(flat, "proposition"):
        assert isinstance(node, IndexNode)
        assert node.parent_node is not None
        assert node.index_id == node.parent_node.node_id
        assert node.index_id in passages


def test_a_passage_lists_its_propositions_as_children(flat: list[BaseNode]) -> None:
    for passage in of(flat, "passage"):
        children = [child.node_id for child in passage.child_nodes or []]
        assert children == [
            n.node_id
            for n in of(flat, "proposition")
            if n.parent_node and n.parent_node.node_id == passage.node_id
        ]
        assert children


def test_neighbours_are_linked_among_siblings_only(deep: list[BaseNode]) -> None:
    by_id = {node.node_id: node for node in deep}
    for node in deep:
        if node.next_node is None:
            continue
        after = by_id[node.next_node.node_id]
        assert after.prev_node is not None
        assert after.prev_node.node_id == node.node_id
        assert after.parent_node == node.parent_node
        assert after.ref_doc_id == node.ref_doc_id
        assert after.metadata[GRANULARITY_KEY] == node.metadata[GRANULARITY_KEY]


def test_the_leaves_are_the_propositions(flat: list[BaseNode], deep: list[BaseNode]) -> None:
    for nodes in (flat, deep):
        assert get_leaf_nodes(nodes) == of(nodes, "proposition")


def test_cores_walk_through_a_hierarchy_works(deep: list[BaseNode]) -> None:
    assert get_root_nodes(deep) == of(deep, "section")
    assert get_child_nodes(of(deep, "section"), deep) == of(deep, "passage")
    assert get_deeper_nodes(deep, depth=2) == of(deep, "proposition")


def test_sentence_units_lead_to_their_passage_and_are_not_among_its_children(
    documents: list[Document],
) -> None:
    nodes = PropositionNodeParser(
        propositionizer=Shouting(), granularity=BOTH
    ).get_nodes_from_documents(documents[1:2])
    sentences = of(nodes, "sentence")
    assert [node.get_content() for node in sentences] == [
        "The Akashi Bridge opened in 1998.",
        "Its main span is 1,991 metres long.",
        "It crosses a busy strait.",
    ]
    (passage,) = of(nodes, "passage")
    assert all(
        isinstance(node, IndexNode) and node.index_id == passage.node_id for node in sentences
    )
    assert not {child.node_id for child in passage.child_nodes or []} & {
        node.node_id for node in sentences
    }


def test_a_sentence_that_is_a_proposition_is_stored_once(documents: list[Document]) -> None:
    nodes = PropositionNodeParser(granularity=BOTH).get_nodes_from_documents(documents)
    assert not of(nodes, "sentence")


def test_every_node_carries_its_documents_metadata(
    flat: list[BaseNode], documents: list[Document]
) -> None:
    by_id = {document.id_: document for document in documents}
    for node in flat:
        document = by_id[str(node.ref_doc_id)]
        assert {key: node.metadata[key] for key in document.metadata} == document.metadata


def test_no_model_sees_the_bookkeeping(flat: list[BaseNode], deep: list[BaseNode]) -> None:
    for node in [*flat, *deep]:
        for mode in (MetadataMode.EMBED, MetadataMode.LLM):
            assert not any(key in node.get_content(mode) for key in BOOKKEEPING_KEYS)


def test_a_passage_knows_its_section(documents: list[Document]) -> None:
    parser = PropositionNodeParser(base_parser=MarkdownNodeParser())
    nodes = parser.get_nodes_from_documents(documents[:1])
    assert [n.metadata[SECTION_KEY] for n in of(nodes, "passage")] == [
        "Tides",
        "Tides, Cause",
        "Tides, Records",
    ]


def test_relationships_hold_no_copies_of_metadata(flat: list[BaseNode]) -> None:
    infos = [info for node in flat for info in node.relationships.values()]
    assert all(
        not item.metadata for info in infos for item in (info if isinstance(info, list) else [info])
    )


def test_include_prev_next_rel_and_include_metadata_are_honoured(documents: list[Document]) -> None:
    bare = PropositionNodeParser(include_prev_next_rel=False, include_metadata=False)
    for node in bare.get_nodes_from_documents(documents):
        assert not {NodeRelationship.NEXT, NodeRelationship.PREVIOUS} & set(node.relationships)
        assert set(node.metadata) <= set(BOOKKEEPING_KEYS)


def test_rows_and_code_stay_whole_as_units_of_their_own() -> None:
    table = "| Year | Race |\n|---|---|\n| 2021 | Asahi Hai |\n| 2022 | Tokyo Yushun |"
    code = "```python\nx = 1. \ny = 2.\n```"
    text = f"Some results.\n\n{table}\n\nSome code.\n\n{code}\n\nThe end."
    for parser in (PropositionNodeParser(), PropositionNodeParser(propositionizer=Shouting())):
        texts = [
            n.get_content()
            for n in of(parser.get_nodes_from_documents([Document(text=text)]), "proposition")
        ]
        assert {"Year: 2021; Race: Asahi Hai", "Year: 2022; Race: Tokyo Yushun"} <= set(texts)
        assert code in texts


def test_a_block_without_letters_is_no_unit() -> None:
    document = Document(text="The tower is high.\n\n```\n+---+\n```\n\nIt is old.")
    nodes = PropositionNodeParser().get_nodes_from_documents([document])
    assert [node.get_content() for node in of(nodes, "proposition")] == [
        "The tower is high.",
        "It is old.",
    ]


def test_html_can_be_the_base_parser() -> None:
    pytest.importorskip("bs4")
    document = Document(
        text="<html><body><h1>Rain</h1><p>Rain fell. It was cold.</p></body></html>"
    )
    nodes = PropositionNodeParser(base_parser=HTMLNodeParser()).get_nodes_from_documents([document])
    assert "Rain fell." in [node.get_content() for node in of(nodes, "proposition")]


@pytest.mark.parametrize("base_parser", [JSONNodeParser(), HTMLNodeParser()])
def test_a_document_that_the_base_parser_makes_nothing_of_is_a_passage(
    base_parser: NodeParser,
) -> None:
    document = Document(text="味噌は塩辛い。大豆から作られる。")
    nodes = PropositionNodeParser(base_parser=base_parser).get_nodes_from_documents(
        [document, Document(text=" \n")]
    )
    (passage,) = of(nodes, "passage")
    assert (passage.get_content(), passage.node_id != document.id_) == (document.text, True)
    assert [node.get_content() for node in of(nodes, "proposition")] == [
        "味噌は塩辛い。",
        "大豆から作られる。",
    ]


def test_cores_recursive_retriever_works_on_these_nodes_alone(flat: list[BaseNode]) -> None:
    index = VectorStoreIndex(
        nodes=of(flat, "proposition"), embed_model=TrigramEmbedding(), transformations=[]
    )
    # as `VectorStoreIndex(nodes)` holds IndexNodes, its retriever gives them back as they are
    retriever = RecursiveRetriever(
        "root",
        retriever_dict={"root": index.as_retriever(similarity_top_k=2)},
        node_dict={node.node_id: node for node in of(flat, "passage")},
    )
    assert (
        "Akashi Bridge"
        in retriever.retrieve("When did the Akashi Bridge open?")[0].node.get_content()
    )
    assert "新幹線" in retriever.retrieve("新幹線はいつ開業したか")[0].node.get_content()


def test_cores_auto_merging_retriever_merges_these_nodes(deep: list[BaseNode]) -> None:
    docstore = SimpleDocumentStore()
    docstore.add_documents(deep)
    context = StorageContext.from_defaults(docstore=docstore)
    index = VectorStoreIndex(
        nodes=of(deep, "proposition"),
        storage_context=context,
        embed_model=TrigramEmbedding(),
        transformations=[],
    )
    retriever = AutoMergingRetriever(index.as_retriever(similarity_top_k=3), context)  # type: ignore[arg-type]
    found = retriever.retrieve(
        "The Akashi Bridge opened in 1998 and its main span is 1,991 metres long"
    )
    assert found[0].node.get_content().startswith("The Akashi Bridge opened in 1998. Its main span")


def test_delete_ref_doc_deletes_a_documents_nodes(flat: list[BaseNode]) -> None:
    docstore = SimpleDocumentStore()
    docstore.add_documents(flat)
    docstore.delete_ref_doc("bridges")
    assert {node.ref_doc_id for node in docstore.docs.values()} == {"tides", "鉄道"}


def test_statuses_are_on_passages_and_propositions(flat: list[BaseNode]) -> None:
    assert {node.metadata[STATUS_KEY] for node in flat} == {"ok"}


def test_a_propositionizer_that_returns_nothing_is_replaced_by_sentences_and_marked(
    documents: list[Document],
) -> None:
    class Silent(Propositionizer):
        async def apropositionize(self, passages: list[Passage]) -> list[PropositionSet]:  # type: ignore[override]
            return [PropositionSet(("", " ")) for _ in passages]

        def fingerprint_data(self) -> dict[str, object]:
            return {}

    nodes = PropositionNodeParser(propositionizer=Silent()).get_nodes_from_documents(documents)
    assert {node.metadata[STATUS_KEY] for node in nodes} == {"fallback"}
    assert "They reach 16 metres there." in [
        node.get_content() for node in of(nodes, "proposition")
    ]
