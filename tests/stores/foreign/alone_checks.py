"""What every adapter must do whose store is enough alone; each store's tests are these and its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_pack_densex.index.adapters import adapter_for
from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import DocumentRecord, NodeRecord, NodeStore
from tests.stores.foreign.made_nodes import (
    ANY_JSON,
    EMBEDDING,
    MISO,
    made_nodes,
    node_id,
    question,
    without_embedding,
)

TEA = made_nodes(
    "docs/tea.md", ["Tea comes from leaves. Green tea is not fermented."], lang="en", year=1990
)
JAPANESE = made_nodes(
    "資料/味噌 \"'%\\.md", [MISO, "醤油は液体の調味料である。"], lang="ja", **ANY_JSON
)
ALL = [*TEA, *JAPANESE]
FILTERS: list[tuple[list[MetadataFilter | MetadataFilters], set[str]]] = [
    ([MetadataFilter(key="lang", value="ja")], {"ja"}),
    ([MetadataFilter(key="lang", value="ja"), MetadataFilter(key="year", value=1990)], set()),
    ([MetadataFilter(key="author", value=ANY_JSON["author"])], {"ja"}),
    ([MetadataFilter(key="year", value=2000, operator=FilterOperator.LT)], {"en"}),
    ([MetadataFilter(key="tags", value="味", operator=FilterOperator.CONTAINS)], {"ja"}),
    ([MetadataFilter(key="lang", value=["en", "ja"], operator=FilterOperator.IN)], {"en", "ja"}),
    ([MetadataFilter(key="lang", value="ja", operator=FilterOperator.NE)], {"en"}),
    ([MetadataFilter(key="a.b", value="dots")], {"ja"}),
    ([MetadataFilter(key="id", value="mine")], {"ja"}),
    ([MetadataFilter(key="nul", value="a\0b")], {"ja"}),
    ([MetadataFilter(key="lang", value="' OR 1=1 --")], set()),
    ([MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])], {"en"}),
    ([MetadataFilter(key="year", value=1990.0)], {"en"}),
    ([MetadataFilter(key="year", value=1990.5, operator=FilterOperator.LT)], {"en"}),
    ([MetadataFilter(key="year", value=2022.5, operator=FilterOperator.GT)], {"ja"}),
    ([MetadataFilter(key="ratio", value=0.1, operator=FilterOperator.LTE)], {"ja"}),
    ([MetadataFilter(key="ratio", value=0, operator=FilterOperator.GT)], {"ja"}),
    ([MetadataFilter(key="huge", value=2**70, operator=FilterOperator.GT)], {"ja"}),
    ([MetadataFilter(key="huge", value=2**80)], {"ja"}),
    ([MetadataFilter(key="infinite", value=1e300, operator=FilterOperator.GT)], {"ja"}),
    ([MetadataFilter(key="year", value=[1990, 1e6], operator=FilterOperator.IN)], {"en"}),
    ([MetadataFilter(key="lang", value=1, operator=FilterOperator.GT)], set()),
    ([MetadataFilter(key="draft", value=0, operator=FilterOperator.GT)], set()),
]
Open = Callable[[], BasePydanticVectorStore]


class StoppedError(Exception):
    """Stands for a connection that is lost."""


@contextmanager
def stopped_after(store: Any, requests: int) -> Iterator[None]:
    """Let so many writing requests through, and none after them."""
    left, sending = [requests], [False]

    def counted(request: Callable[[Any], None]) -> Callable[[Any], None]:
        def send(what: Any) -> None:
            if sending[0]:  # rows that are dropped to be put anew
                return request(what)
            left[0] -= 1
            if left[0] < 0:
                raise StoppedError
            sending[0] = True
            try:
                request(what)
            finally:
                sending[0] = False

        return send

    names = ("_put", "_drop")
    for name in names:
        setattr(store, name, counted(getattr(store, name)))
    yield
    for name in names:
        delattr(store, name)


class AloneChecks:
    """A subclass has a fixture `opened`, which opens the same empty store each time it is called."""

    @pytest.fixture
    def store(self, opened: Open) -> NodeStore:
        return adapter_for(opened())

    def test_nodes_come_back_as_they_were_written(self, opened: Open, store: NodeStore) -> None:
        store.replace([], ALL)
        for reader in (store, adapter_for(opened())):
            found = reader.fetch([node.node_id for node in ALL])
            assert list(found.values()) == [without_embedding(node) for node in ALL]
            assert [list(node.metadata) for node in found.values()] == [
                list(node.metadata) for node in ALL
            ]
            assert [type(node) for node in found.values()] == [type(node) for node in ALL]

    def test_texts_that_stores_refuse_come_back(self, store: NodeStore) -> None:
        nodes = made_nodes("d", ["Half a \x00 nul. \x00."])
        store.replace([], nodes)
        assert list(store.fetch([node.node_id for node in nodes]).values()) == list(
            map(without_embedding, nodes)
        )

    def test_a_store_that_nothing_was_written_to_is_empty(self, store: NodeStore) -> None:
        assert store.is_empty()
        assert store.fetch(["x"]) == {}
        assert store.search(question("tea")) == []
        assert list(store.records()) == []
        assert store.documents() == {}
        assert store.node_ids(["docs/tea.md"]) == set()
        assert store.read_about() is None
        store.replace(["docs/tea.md"], [])

    def test_no_ids_mean_no_nodes(self, store: NodeStore) -> None:
        store.replace([], ALL)
        assert store.fetch([]) == {}
        assert store.node_ids([]) == set()
        store.replace([], [])
        store.replace([], [])
        assert store.counts().documents == 2

    def test_records_are_those_of_the_nodes(self, store: NodeStore) -> None:
        store.replace([], ALL)
        assert {record.id: record for record in store.records()} == {
            node.node_id: NodeRecord.of(node) for node in ALL
        }
        assert {record.id for record in store.records("passage")} == {
            node.node_id for node in ALL if type(node) is TextNode
        }
        assert (store.counts().passages, store.counts().propositions) == (3, 4)

    def test_documents_are_listed_with_their_hashes(self, store: NodeStore) -> None:
        store.replace([], ALL)
        assert store.documents() == {
            node.ref_doc_id: DocumentRecord(node.metadata["densex_document_hash"])
            for node in ALL
            if "densex_document_hash" in node.metadata
        }

    def test_a_search_returns_cosines_best_first(self, store: NodeStore) -> None:
        store.replace([], ALL)
        asked = question("大豆を発酵", 5)
        found = store.search(asked)
        embeddings = {node.node_id: np.array(node.embedding) for node in ALL}
        cosines = {
            key: float(value @ np.array(asked.query_embedding)) for key, value in embeddings.items()
        }
        assert [node.score for node in found] == pytest.approx(
            sorted(cosines.values(), reverse=True)[:5], abs=1e-4
        )
        assert [node.score for node in found] == pytest.approx(
            [cosines[node.id] for node in found], abs=1e-4
        )
        assert found[0].leads_to == JAPANESE[0].node_id

    def test_as_many_nodes_are_found_as_there_are(self, store: NodeStore) -> None:
        store.replace([], ALL)
        store.write_about("about")
        assert len(store.search(question("tea", len(ALL)))) == len(ALL)
        assert len(store.search(question("tea", 100))) == len(ALL)
        assert store.search(question("tea", 0)) == []

    def test_filters_hold(self, store: NodeStore) -> None:
        store.replace([], ALL)
        for filters, languages in FILTERS:
            found = store.search(
                question("tea 味噌", 50, filters=MetadataFilters(filters=list(filters)))
            )
            expected = {node.node_id for node in ALL if node.metadata["lang"] in languages}
            assert {node.id for node in found} == expected, filters

    def test_one_of_two_filters_is_enough_for_or(self, store: NodeStore) -> None:
        store.replace([], ALL)
        either = [MetadataFilter(key="lang", value="en"), MetadataFilter(key="year", value=2023)]
        filters = MetadataFilters(filters=list(either), condition=FilterCondition.OR)
        assert len(store.search(question("tea", 50, filters=filters))) == len(ALL)

    def test_a_filter_that_hardly_anything_passes_is_searched_to_the_end(
        self, store: NodeStore
    ) -> None:
        many = [
            node
            for place in range(60)
            for node in made_nodes(f"d{place}", [f"Tea number {place}."], rank=place)
        ]
        store.replace([], many)
        filters = MetadataFilters(
            filters=[MetadataFilter(key="rank", value=58, operator=FilterOperator.GTE)]
        )
        found = store.search(question("tea number 1", 3, filters=filters))
        assert len(found) == 3

    @pytest.mark.parametrize(
        "conditions",
        [
            [MetadataFilter(key="rank", value=7)],
            [MetadataFilter(key="rank", value=[7, 7.0], operator=FilterOperator.IN)],
            [
                MetadataFilter(key="rank", value=6, operator=FilterOperator.GT),
                MetadataFilters(
                    filters=[MetadataFilter(key="rank", value=7.5, operator=FilterOperator.LT)]
                ),
            ],
        ],
    )
    def test_a_narrow_filter_by_number_reads_what_passes_and_little_else(
        self, store: Any, conditions: list[Any]
    ) -> None:
        many = [
            node
            for place in range(60)
            for node in made_nodes(f"d{place}", [f"Tea number {place}."], rank=place)
        ]
        store.replace([], many)
        read, nearest = [], store._nearest
        store._nearest = lambda *asked: read.append(list(nearest(*asked))) or read[-1]
        found = store.search(
            question("tea number 58", 3, filters=MetadataFilters(filters=conditions))
        )
        assert {node.id for node in found} == store.node_ids(["d7"])
        assert sum(map(len, read)) <= 12

    def test_nothing_is_left_of_a_half_written_document_that_is_removed(self, opened: Open) -> None:
        store = adapter_for(opened())
        store.replace([], JAPANESE)
        with stopped_after(store, 1), pytest.raises(StoppedError):
            store.replace(
                [],
                [
                    node
                    for part in ("a", "b")
                    for node in made_nodes("half", [f"Secret {part} is here."])
                ],
            )
        reader = adapter_for(opened())
        reader.replace(["half"], [])
        assert reader.node_ids(["half"]) == set()
        assert {record.document_id for record in reader.records()} == {JAPANESE[0].ref_doc_id}

    def test_replacing_leaves_only_the_new_nodes(self, opened: Open, store: NodeStore) -> None:
        store.replace([], ALL)
        new = made_nodes("docs/tea.md", ["Green tea is green."], lang="fr")
        store.replace(["docs/tea.md"], new)
        assert store.node_ids(["docs/tea.md"]) == {node.node_id for node in new}
        assert {found.id for found in store.search(question("tea", 50))} == {
            node.node_id for node in [*new, *JAPANESE]
        }
        assert (
            adapter_for(opened()).counts().passages,
            adapter_for(opened()).counts().propositions,
        ) == (
            3,
            3,
        )

    def test_a_node_written_again_is_as_it_was_written_last(self, store: NodeStore) -> None:
        store.replace([], TEA)
        again = [
            node.model_copy(update={"metadata": {**node.metadata, "lang": "de"}}) for node in TEA
        ]
        for node in again:
            del node.metadata["year"]
        store.replace([], again)
        assert list(store.fetch([node.node_id for node in again]).values()) == list(
            map(without_embedding, again)
        )
        assert (store.counts().passages, store.counts().propositions) == (1, 2)
        filters = MetadataFilters(filters=[MetadataFilter(key="year", value=1990)])
        assert store.search(question("tea", 9, filters=filters)) == []

    def test_a_removed_document_is_gone_at_once_and_for_good(
        self, opened: Open, store: NodeStore
    ) -> None:
        store.replace([], ALL)
        store.replace(["資料/味噌 \"'%\\.md", "absent"], [])
        for reader in (store, adapter_for(opened())):
            assert {found.id for found in reader.search(question(MISO, 50))} == {
                node.node_id for node in TEA
            }
            assert set(reader.documents()) == {"docs/tea.md"}
            assert {record.id for record in reader.records()} == {node.node_id for node in TEA}

    @pytest.mark.parametrize("steps", range(4))
    def test_a_document_that_a_stop_left_half_written_counts_as_missing(
        self, store: NodeStore, steps: int
    ) -> None:
        first = "Tea comes from leaves. Green tea is not fermented."
        before = made_nodes("docs/tea.md", [first, "Tea is cold."], v=1)
        new = made_nodes("docs/tea.md", [first, "Tea is hot."], v=2)
        store.replace([], [*before, *JAPANESE])
        old = store.documents()["docs/tea.md"]
        with stopped_after(store, steps), pytest.raises(StoppedError):
            store.replace(["docs/tea.md"], new)
        if "docs/tea.md" in store.documents():
            assert store.documents()["docs/tea.md"] == old
            assert list(store.fetch([node.node_id for node in before]).values()) == list(
                map(without_embedding, before)
            )
            assert store.node_ids(["docs/tea.md"]) == {node.node_id for node in before}
        store.replace(["docs/tea.md"], new)
        assert store.node_ids(["docs/tea.md"]) == {node.node_id for node in new}
        assert len(store.documents()) == 2

    def test_what_made_the_index_is_kept_apart_from_the_nodes(
        self, opened: Open, store: NodeStore
    ) -> None:
        store.replace([], TEA)
        store.write_about('{"model": "試"}')
        assert store.read_about() == '{"model": "試"}'
        again = adapter_for(opened())
        assert again.read_about() == '{"model": "試"}'
        again.write_about("newer")  # before it has written any nodes
        reader = adapter_for(opened())
        assert reader.read_about() == "newer"
        assert {found.id for found in reader.search(question("tea", 50))} == {
            node.node_id for node in TEA
        }
        assert reader.counts().documents == 1

    def test_rows_of_others_are_left_alone(self, opened: Open, store: NodeStore) -> None:
        theirs = TextNode(
            id_=node_id("theirs"), text="tea", embedding=EMBEDDING.get_text_embedding("tea")
        )
        theirs.relationships = dict(TEA[0].relationships)
        store.replace([], TEA)
        opened().add([theirs])
        assert theirs.node_id not in {found.id for found in store.search(question("tea", 50))}
        assert len(store.search(question("tea", 3))) == 3
        assert len(list(store.records())) == 3
        assert theirs.node_id not in store.node_ids(["docs/tea.md"])
        assert store.fetch([theirs.node_id]) == {}
        store.replace(["docs/tea.md"], [])
        assert store.is_empty()
        retriever = VectorStoreIndex.from_vector_store(
            opened(), embed_model=EMBEDDING
        ).as_retriever()
        assert [hit.node.get_content() for hit in retriever.retrieve("tea")] == ["tea"]

    def test_nodes_that_a_pipeline_wrote_are_found_too(self, opened: Open) -> None:
        opened().add(TEA)
        store = adapter_for(opened())
        assert store.node_ids(["docs/tea.md"]) == {node.node_id for node in TEA}
        found = {node.id: node for node in store.search(question("green tea", 9))}
        assert found.keys() == {node.node_id for node in TEA}
        assert found[TEA[1].node_id].leads_to == TEA[0].node_id
        assert list(store.fetch([node.node_id for node in TEA]).values()) == list(
            map(without_embedding, TEA)
        )
        store.replace(["docs/tea.md"], TEA)
        assert (store.counts().passages, store.counts().propositions) == (1, 2)
        assert set(store.documents()) == {"docs/tea.md"}

    def test_core_s_own_index_reads_the_nodes(self, opened: Open, store: NodeStore) -> None:
        store.replace([], ALL)
        retriever = VectorStoreIndex.from_vector_store(
            opened(), embed_model=EMBEDDING
        ).as_retriever(similarity_top_k=2)
        texts = [
            hit.node.get_content(metadata_mode="embed")
            for hit in retriever.retrieve("味噌 大豆 発酵")
        ]  # type: ignore[arg-type]
        assert any("味噌は大豆を発酵させた調味料である" in text for text in texts)
        assert not any("densex" in text for text in texts)

    def test_more_nodes_than_a_request_takes(self, store: Any) -> None:
        store.rows_a_request = 10
        many = [TEA[0].model_copy(update={"id_": node_id("many", place)}) for place in range(45)]
        store.replace([], many)
        assert len(store.node_ids(["docs/tea.md", *(f"d{place}" for place in range(25))])) == 45
        assert sum(1 for _ in store.records("passage")) == 45
        assert len(store.fetch([node.node_id for node in many])) == 45
        assert len(store.search(question("tea", 45))) == 45
        store.replace(["docs/tea.md"], [])
        assert store.is_empty()

    def test_embeddings_of_another_dimension_are_refused(self, store: NodeStore) -> None:
        store.replace([], TEA)
        index = NodeIndex(store, MockEmbedding(embed_dim=2))
        with pytest.raises(ValueError, match="dimension"):
            index.replace([], [without_embedding(JAPANESE[0])])
        wrong = question("tea")
        wrong.query_embedding = [1.0, 0.0]
        with pytest.raises(ValueError, match="another embedding model"):
            index.search(wrong)
