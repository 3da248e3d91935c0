from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_pack_densex.retrieval.lexical_build import built
from llama_pack_densex.retrieval.lexical_index import LexicalHit, LexicalIndex
from llama_pack_densex.retrieval.lexical_live import LiveSegment
from llama_pack_densex.retrieval.lexical_merge import settled
from llama_pack_densex.retrieval.lexical_rows import Rows, segment_of
from llama_pack_densex.retrieval.lexical_side import LexicalSide
from llama_pack_densex.retrieval.tokens import make_tokenizer
from llama_pack_densex.stores.records import NodeRecord
from tests.retrieval.lexical_records import index_of, record

BIGRAMS = make_tokenizer("bigrams")
ALL = ("proposition", "sentence", "passage")
QUERIES = ("red fox", "fox fox hen", "京都の雨", "雨", "都 雨 都", "hen 大雨", "\ud800 lamp", "nothing")

texts = st.lists(
    st.sampled_from(["red", "fox", "hen", "lamp", "the", "京都", "大雨の", "雨", "\ud800", "\x00", ""])
).map(" ".join)
document_ids = st.sampled_from(["a", "b", "京", "d", "e/f#page=1"])
# a document: of each passage the text, and of each of its units granularity and text
documents = st.lists(
    st.tuples(texts, st.lists(st.tuples(st.sampled_from(["proposition", "sentence"]), texts), max_size=3)), max_size=3
)
changes = st.one_of(
    st.tuples(st.just("replace"), st.dictionaries(document_ids, documents, min_size=1, max_size=3)),
    st.tuples(st.just("delete"), st.lists(document_ids, max_size=3)),
    st.tuples(st.sampled_from(["save", "reopen", "clean", "forget"]), st.none()),
)


def records_of(document_id: str, content: list[tuple[str, list[tuple[str, str]]]]) -> list[NodeRecord]:
    records = [record(f"{document_id} section", "section", "red fox", document_id=document_id)]
    for place, (text, units) in enumerate(content):
        passage = f"{place} of {document_id}"
        records.append(record(passage, "passage", text, document_id=document_id))
        for number, (granularity, unit) in enumerate(units):
            records.append(record(f"{passage}: {number}", granularity, unit, passage, document_id))
    return records


def answers(index: LexicalIndex) -> list[tuple[list[LexicalHit], int]]:
    allowed = frozenset(f"{place} of {document}" for place in (0, 2) for document in ("a", "京"))
    return [
        index.search(query, k, granularity, passing)
        for query in QUERIES
        for k, granularity, passing in ((99, ALL, None), (2, ("sentence",), None), (2, ALL, allowed))
    ]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(changes, max_size=12), st.booleans())
def test_what_is_found_does_not_depend_on_the_history(history: list[tuple[str, object]], empty: bool) -> None:
    nodes: dict[str, list[NodeRecord]] = {}

    def records() -> list[NodeRecord]:
        return [node for document in nodes.values() for node in document]

    with tempfile.TemporaryDirectory() as place:
        folder, state = Path(place), ""
        side = LexicalSide(empty=empty)
        for kind, what in history:
            if kind == "replace":
                assert isinstance(what, dict)
                new = {document_id: records_of(document_id, content) for document_id, content in what.items()}
                nodes |= new
                side.replace(list(new), [node for document in new.values() for node in document])
            elif kind == "delete":
                assert isinstance(what, list)
                nodes = {document_id: document for document_id, document in nodes.items() if document_id not in what}
                side.replace(what, [])
            elif kind == "forget":
                side.forget()
            else:
                state = side.save(folder, records)
                if kind == "clean":
                    side.clean(folder, state)
                if kind == "reopen":
                    side = LexicalSide(folder=folder, state=state)
        expected = index_of(records())
        index = side.get(records)
        assert answers(index) == answers(expected)
        assert sorted(index.ids()) == sorted(expected.ids())
        assert len(index) == len(expected)
        assert len(index.segments) < 10


@settings(deadline=None)
@given(
    st.dictionaries(document_ids, documents).flatmap(
        lambda content: st.permutations([node for name in content for node in records_of(name, content[name])])
    ),
    st.integers(1, 40),
    st.integers(1, 10),
)
def test_nodes_may_come_in_any_order_and_end_in_any_segment(
    nodes: list[NodeRecord], largest: int, at_once: int
) -> None:
    parts = LexicalIndex(built(nodes, BIGRAMS, largest, at_once), BIGRAMS)
    assert answers(parts) == answers(index_of(nodes))


@settings(deadline=None)
@given(st.lists(st.integers(1, 200), max_size=40), st.integers(0, 3000))
def test_there_are_few_segments_and_none_becomes_larger_than_the_largest(sizes: list[int], largest: int) -> None:
    segments = [
        LiveSegment(segment_of([Rows.of([record(str(place), "passage", "fox " * size)], BIGRAMS)]))
        for place, size in enumerate(sizes)
    ]
    after = settled(segments, largest)
    assert sum(segment.passages for segment in after) == len(sizes)
    assert max((segment.size for segment in after), default=0) <= max([largest, *(size + 1 for size in sizes)])
    small = [segment.size for segment in after]
    assert len(small) < 5 or sum(sorted(small)[:2]) > largest


@pytest.mark.parametrize("gone", [10, 50, 90, 100])
def test_what_went_is_dropped_where_it_is_much(gone: int) -> None:
    side = LexicalSide(empty=True)
    nodes = [node for number in range(100) for node in records_of(f"{number}", [("red fox", [("sentence", "a hen")])])]
    side.replace([], nodes)
    for number in range(gone):
        side.replace([f"{number}"], [])
    segments = side.get(list).segments
    assert sum(len(part.segment.passages) for part in segments) <= 1.5 * (100 - gone)
    assert len(side.get(list)) == 100 - gone


def test_words_that_occur_in_nothing_any_more_are_dropped_with_it() -> None:
    side = LexicalSide(empty=True)
    side.replace([], [*records_of("a", [("fox", [("sentence", "hen")])]), *records_of("b", [("lamp 大雨", [])])])
    side.replace(["b"], [])
    (part,) = side.get(list).segments
    assert len(part.segment.words) == 2
    assert not len(part.segment.pair_words)
