from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.retrieval.lexical_index import LexicalHit
from llama_pack_densex.stores.node_store import FoundNode
from tests.retrieval.lexical_records import index_of, record

ALL = ("proposition", "sentence", "passage")


RECORDS = [
    record("s", "section", "Everything: foxes, lamps, 雨."),
    record("fox1", "proposition", "The fox is red.", "fox"),
    record("lamp2", "sentence", "The lamp burned all night in the red hall.", "lamp"),
    record("fox", "passage", "The fox is red. The fox sleeps at night."),
    record("lamp", "passage", "The lamp burned. It burned all night in the red hall of the old house by the sea."),
    record("fox2", "proposition", "The fox sleeps at night.", "fox"),
    record("ja", "passage", "大雨が降った。京都のタワーは131メートルである。"),
    record("ja1", "proposition", "京都タワーの高さは131メートルである。", "ja"),
    record("lost", "proposition", "A fox that lost its passage.", "gone"),
]


def search(query: str, k: int = 9, granularity: tuple[str, ...] = ALL, **options: object) -> list[LexicalHit]:
    return index_of(RECORDS).search(query, k, granularity, **options)[0]  # type: ignore[arg-type]


def units(hit: LexicalHit) -> list[str]:
    return [unit.id for unit in hit.units]


def test_passages_come_best_first_with_their_units_best_first() -> None:
    hits = search("Where does the fox sleep?")
    assert [hit.passage_id for hit in hits] == ["fox"]
    assert set(units(hits[0])) == {"fox1", "fox2", "fox"}
    scores = [unit.score for unit in hits[0].units]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0


def test_a_unit_tells_what_it_is_and_where_it_leads() -> None:
    (hit,) = search("sleeps", granularity=("proposition",))
    (unit,) = hit.units
    assert (unit.id, unit.granularity, unit.passage_id) == ("fox2", "proposition", "fox")


def test_only_the_searched_granularities_are_returned() -> None:
    fox, lamp = search("red night", granularity=("sentence",))
    assert (units(fox), units(lamp)) == ([], ["lamp2"])


def test_a_passage_is_a_unit_of_itself_with_its_own_score() -> None:
    (hit,) = search("sleeps", granularity=("passage",))
    assert hit.units == (FoundNode("fox", "passage", "", hit.score),)


def test_the_number_of_all_found_passages_is_told() -> None:
    hits, found = index_of(RECORDS).search("red night", 1, ALL)
    assert (len(hits), found) == (1, 2)


@pytest.mark.parametrize("query", ["zebra", "", "the of and", "?!", "\ud800"])
def test_a_query_none_of_whose_words_occurs_finds_nothing(query: str) -> None:
    assert index_of(RECORDS).search(query, 5, ALL) == ([], 0)


def test_only_allowed_passages_are_searched() -> None:
    hits, found = index_of(RECORDS).search("red night", 1, ALL, allowed=frozenset({"lamp", "ja"}))
    assert ([hit.passage_id for hit in hits], found) == (["lamp"], 1)
    assert index_of(RECORDS).search("red night", 1, ALL, allowed=frozenset()) == ([], 0)


def test_japanese_is_found_by_its_words_whatever_their_width() -> None:
    (hit,) = search("京都タワーは何ﾒｰﾄﾙ？")
    assert units(hit) == ["ja1", "ja"] or units(hit) == ["ja", "ja1"]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("서울의 인구는?", "서울은 한국의 수도이다."),
        ("北京有多少人口？", "北京是中国的首都。"),
        ("ロンドンってどこ", "英国の首都はロンドンです。"),
    ],
)
def test_languages_without_spaces_between_words_are_searched(query: str, first: str) -> None:
    texts = (
        "서울은 한국의 수도이다.",
        "부산은 항구 도시이다.",
        "北京是中国的首都。",
        "上海是港口城市。",
        "英国の首都はロンドンです。",
    )
    index = index_of([record(text, "passage", text) for text in texts])
    assert index.search(query, 1, ALL)[0][0].passage_id == first


@pytest.mark.parametrize("query", ["雨", "雨?", "雨 zebra"])
def test_a_lone_character_finds_the_words_that_it_is_in(query: str) -> None:
    assert [hit.passage_id for hit in search(query)] == ["ja"]


def test_a_lone_character_beside_a_known_word_asks_for_nothing_else() -> None:
    assert [hit.passage_id for hit in search("red 雨")] == ["fox", "lamp"]


@pytest.mark.parametrize("texts", [[], [""], ["", "?"], ["fox"], ["fox", ""]])
def test_degenerate_corpora_are_searched(texts: list[str]) -> None:
    index = index_of([record(str(place), "passage", text) for place, text in enumerate(texts)])
    hits, found = index.search("fox", 5, ALL)
    assert [hit.passage_id for hit in hits] == ["0"] * ("fox" in texts)
    assert found == len(hits)


@given(st.lists(st.text(st.sampled_from("ab c"), max_size=6), max_size=12), st.integers(0, 5))
def test_the_best_are_the_first_of_all_and_equals_keep_their_order(texts: list[str], k: int) -> None:
    index = index_of([record(f"{place:02}", "passage", text) for place, text in enumerate(texts)])
    everything, found = index.search("b bb", len(texts), ALL)
    assert len(everything) == found
    assert [(-hit.score, hit.passage_id) for hit in everything] == sorted((-h.score, h.passage_id) for h in everything)
    assert index.search("b bb", k, ALL) == (everything[:k], found)


@given(st.lists(st.sampled_from(["x", "y", "z"]), max_size=12))
def test_each_unit_is_found_with_its_own_passage(owners: list[str]) -> None:
    records = [record(f"{owner}{place}", "sentence", "fox", owner) for place, owner in enumerate(owners)]
    passages = [record(owner, "passage", "fox") for owner in "zxy"]
    hits, _ = index_of(records + passages).search("fox", 3, ("sentence",))
    assert {hit.passage_id: units(hit) for hit in hits} == {
        passage.id: [unit.id for unit in records if unit.passage_id == passage.id] for passage in passages
    }


def test_query_and_texts_are_split_by_the_same_tokenizer() -> None:
    index = index_of(RECORDS, str.split)
    assert index.search("fox", 5, ALL)[1] == 1
    assert index.search("foxes", 5, ALL)[1] == 0


def test_each_question_has_its_own_filter() -> None:
    index = index_of(RECORDS)
    for allowed in ({"lamp"}, {"fox"}, {"lamp"}, {"fox", "lamp"}, {"gone"}):
        hits, _ = index.search("red night", 5, ALL, allowed=frozenset(allowed))
        assert {hit.passage_id for hit in hits} == allowed - {"gone"}


def test_units_with_equal_scores_come_in_reading_order() -> None:
    owners = [record(f"{number}", "sentence", "the same fox", "p") for number in (3, 1, 2)]
    (hit,), _ = index_of([*owners, record("p", "passage", "the same fox")]).search("fox", 1, ("sentence",))
    assert units(hit) == ["3", "1", "2"]


def test_passages_with_equal_scores_come_in_the_order_of_their_ids() -> None:
    index = index_of([record(name, "passage", "the same fox") for name in ("京", "b", "é", "a")])
    assert [hit.passage_id for hit in index.search("fox", 9, ALL)[0]] == ["a", "b", "é", "京"]


def test_of_two_nodes_with_one_id_the_last_counts() -> None:
    index = index_of([*RECORDS, record("fox", "passage", "A hen."), record("fox1", "proposition", "A hen.", "fox")])
    assert [{*units(hit)} for hit in index.search("hen", 9, ALL)[0]] == [{"fox", "fox1"}]
    assert len(index) == 3


def test_the_ids_of_all_that_is_searched_are_told() -> None:
    assert sorted(index_of(RECORDS).ids()) == sorted(
        (node.id, node.granularity) for node in RECORDS if node.id not in ("s", "lost")
    )


@pytest.mark.parametrize("wrong", ["a string", [1, 2], [None]])
def test_a_tokenizer_must_return_strings(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"must return a sequence of strings"):
        index_of(RECORDS, lambda text: wrong)  # type: ignore[arg-type, return-value]
