"""Search by words: over words in a table of their own, and over those in the rows of the embedded store."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.schema import BaseNode, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode

from llama_pack_densex.index.database import Database
from llama_pack_densex.index.embedded import EmbeddedVectorStore
from llama_pack_densex.index.filters import Passing
from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import NodeRecord
from llama_pack_densex.index.words import TokenizerSpec, Words, WordsBeside
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, STATUS_KEY
from llama_pack_densex.retrieval.hits import PassageHit, SearchResult
from llama_pack_densex.retrieval.lexical import KeywordSearch
from llama_pack_densex.retrieval.search import fuse

ALL = ("proposition", "sentence", "passage")


def record(
    node_id: str, granularity: str, text: str, passage_id: str = "", status: str = ""
) -> NodeRecord:
    values = dict.fromkeys((field.name for field in fields(NodeRecord)), "")
    values |= {"id": node_id, "granularity": granularity, "passage_id": passage_id, "text": text}
    return NodeRecord(**{**values, "status": status, "document_id": "d"})


RECORDS = [
    record("s", "section", "Everything: foxes, lamps, 雨."),
    record("fox1", "proposition", "The fox is red.", "fox"),
    record("lamp2", "sentence", "The lamp burned all night in the red hall.", "lamp"),
    record("fox", "passage", "The fox is red. The fox sleeps at night."),
    record(
        "lamp",
        "passage",
        "The lamp burned. It burned all night in the red hall of the old house by the sea.",
    ),
    record("fox2", "proposition", "The fox sleeps at night.", "fox"),
    record("ja", "passage", "大雨が降った。京都のタワーは131メートルである。"),
    record("ja1", "proposition", "京都タワーの高さは131メートルである。", "ja"),
    record("lost", "proposition", "A fox that lost its passage.", "gone"),
]


def of_granularity(records: Iterable[NodeRecord], granularity: str) -> list[NodeRecord]:
    return [one for one in records if one.granularity == granularity]


class Searched:
    """Some nodes that are searched by words."""

    def __init__(
        self, records: Iterable[NodeRecord], tokenizer: TokenizerSpec = "bigrams", **options: bool
    ) -> None:
        self.words, self.records = Words.by(tokenizer, **options), list(records)
        self.beside = WordsBeside(self.words)

    def __call__(
        self,
        query: str,
        k: int = 9,
        granularity: tuple[str, ...] = ALL,
        allowed: Iterable[str] | None = None,
    ) -> SearchResult:
        now = self.beside.now(lambda granularity: of_granularity(self.records, granularity))
        passing = (
            None
            if allowed is None
            else Passing(frozenset(allowed), 0.01 if len(list(allowed)) < 9 else 0.5)
        )
        return KeywordSearch(now, self.words, granularity).find(query, k, passing)


def search(database: Database, words: Words, query: str, k: int = 9) -> SearchResult:
    return KeywordSearch(database, words, ALL).find(query, k)


@pytest.fixture(scope="module")
def few() -> Searched:
    return Searched(RECORDS)


def ids(found: SearchResult) -> list[str]:
    return [hit.passage_id for hit in found.passages]


def units(hit: PassageHit) -> list[str]:
    return [unit.id for unit in hit.units]


def test_passages_come_best_first_with_their_units_best_first(few: Searched) -> None:
    (hit,) = few("Where does the fox sleep?").passages
    assert hit.passage_id == "fox"
    assert set(units(hit)) == {"fox1", "fox2"}
    scores = [unit.score for unit in hit.units]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0


def test_scores_are_those_of_the_textbook() -> None:
    texts = {"a": "red fox fox", "b": "red lamp hen", "c": "red hen hall sea tower"}
    searched = Searched([record(name, "passage", text) for name, text in texts.items()], str.split)
    found = {hit.passage_id: hit.score for hit in searched("fox hen").passages}

    def bm25(frequency: int, having: int, length: int) -> float:
        norm = 1.2 * (0.25 + 0.75 * length / (11 / 3))
        return (
            math.log(1 + (3 - having + 0.5) / (having + 0.5)) * 2.2 * frequency / (frequency + norm)
        )

    expected = {"a": bm25(2, 1, 3), "b": bm25(1, 2, 3), "c": bm25(1, 2, 5)}
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_unit_tells_what_it_is_and_where_it_leads(few: Searched) -> None:
    (hit,) = few("sleeps", granularity=("proposition",)).passages
    (unit,) = hit.units
    assert (unit.id, unit.granularity, unit.passage_id) == ("fox2", "proposition", "fox")


def test_only_the_searched_granularities_are_returned(few: Searched) -> None:
    fox, lamp = few("red night", granularity=("sentence",)).passages
    assert (units(fox), units(lamp)) == ([], ["lamp2"])


def test_it_is_told_whether_there_are_more(few: Searched) -> None:
    assert not few("red night", 1).exhausted
    assert few("red night", 2).exhausted


@pytest.mark.parametrize("query", ["zebra", "", "the of and", "?!", "\ud800", "\x00"])
def test_a_query_none_of_whose_words_occurs_finds_nothing(few: Searched, query: str) -> None:
    assert few(query) == SearchResult((), exhausted=True, coverage=0.0)


def test_each_question_has_its_own_filter(few: Searched) -> None:
    for allowed in ({"lamp"}, {"fox"}, {"lamp"}, {"fox", "lamp"}, {"gone"}, set[str]()):
        assert {*ids(few("red night", allowed=allowed))} == allowed - {"gone"}


def test_a_filter_that_thousands_pass_costs_no_result(few: Searched) -> None:
    many = [f"other {number}" for number in range(6_000)]
    assert ids(few("red night", allowed=["lamp", *many])) == ["lamp"]
    assert not few("red night", 1, allowed=["lamp", "fox", *many]).exhausted


def test_japanese_is_found_by_its_words_whatever_their_width(few: Searched) -> None:
    (hit,) = few("京都タワーは何ﾒｰﾄﾙ？").passages
    assert set(units(hit)) == {"ja1"}


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("서울의 인구는?", "서울은 한국의 수도이다."),
        ("北京有多少人口？", "北京是中国的首都。"),
        ("ロンドンってどこ", "英国の首都はロンドンです。"),
    ],
)
def test_languages_without_spaces_between_words_are_searched(query: str, first: str) -> None:
    others = ("부산은 항구 도시이다.", "上海是港口城市。", "札幌は北海道の市です。")
    searched = Searched([record(text, "passage", text) for text in (first, *others)])
    assert ids(searched(query, 1)) == [first]


@pytest.mark.parametrize("query", ["雨", "雨?", "雨 zebra"])
def test_a_lone_character_finds_the_words_that_it_is_in(few: Searched, query: str) -> None:
    assert ids(few(query)) == ["ja"]


def test_a_lone_character_beside_a_known_word_asks_for_nothing_else(few: Searched) -> None:
    assert {*ids(few("red 雨"))} == {"fox", "lamp"}


@pytest.mark.parametrize(
    ("query", "least", "most"),
    [
        ("fox sleeps", 1, 1), ("the fox", 1, 1), ("雨", 1, 1), ("zebra", 0, 0),
        ("fox zebra", 0.2, 0.49), ("fox fox zebra", 0.2, 0.49),  # the unknown word is the rarer one
        ("京都の高層ビル", 0.1, 0.6),
    ],
)  # fmt: skip
def test_it_is_told_how_much_of_the_question_the_best_passage_holds(
    few: Searched, query: str, least: float, most: float
) -> None:
    assert least <= few(query).coverage <= most


@pytest.mark.parametrize(
    ("together", "apart", "query"),
    [
        ("A red fox sleeps.", ("A red lamp.", "The fox sleeps."), "red fox"),
        (
            "The tower opened in 1998.",
            ("The tower is high.", "A bridge opened in 1998."),
            "tower opened 1998",
        ),
        ("京都のタワーは赤い。", ("京都の雨。", "タワーは赤い。"), "京都 タワー"),
    ],
)
def test_of_passages_that_hold_the_whole_question_that_with_its_words_in_one_unit_comes_first(
    together: str, apart: tuple[str, ...], query: str
) -> None:
    def nodes(passage: str, *texts: str) -> list[NodeRecord]:
        units = [
            record(f"{passage}{number}", "sentence", text, passage)
            for number, text in enumerate(texts)
        ]
        return [record(passage, "passage", " ".join(texts)), *units]

    assert Searched(nodes("p", together))(query).coverage == 1
    assert Searched(nodes("p", *apart))(query).coverage == 1
    longer = (
        "冬には雪が降り、風も吹く。"
        if "。" in together
        else "Winter comes with snow and cold wind."
    )
    both = Searched([*nodes("apart", *apart), *nodes("together", together, longer)])(query)
    assert ids(both) == ["apart", "together"]  # the shorter one first, by BM25 alone
    assert [hit.passage_id for hit in fuse((), both.passages, 0.5)] == ["together", "apart"]


@pytest.mark.parametrize(
    ("rare", "common", "filler"),
    [
        ("zebra", "lamp", "A lamp burns."),
        ("1998", "tower", "A tower."),
        ("琵琶湖", "標高", "標高は高い。"),
    ],
)
def test_a_rare_word_holds_more_of_the_question_than_a_common_one(
    rare: str, common: str, filler: str
) -> None:
    def coverage(word: str) -> float:
        texts = [f"{word}!", *[f"{filler} {number}" for number in range(9)]]
        searched = Searched(record(text, "passage", text) for text in texts)
        return searched(f"{rare} {common}", 1, allowed=[texts[0]]).coverage

    assert coverage(rare) > 0.5 > coverage(common)


@pytest.mark.parametrize("texts", [[], [""], ["", "?"], ["fox"], ["fox", ""]])
def test_degenerate_corpora_are_searched(texts: list[str]) -> None:
    found = Searched([record(str(place), "passage", text) for place, text in enumerate(texts)])(
        "fox", 5
    )
    assert ids(found) == ["0"] * ("fox" in texts)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(st.sampled_from("ab c"), max_size=6), max_size=30), st.integers(0, 5))
def test_the_best_are_the_first_of_all_and_equals_come_in_the_order_of_their_ids(
    texts: list[str], k: int
) -> None:
    searched = Searched(
        [record(f"{place:02}", "passage", text) for place, text in enumerate(texts)]
    )
    everything = searched("b bb", len(texts))
    assert everything.exhausted
    order = [(-hit.score, hit.passage_id) for hit in everything.passages]
    assert order == sorted(order)
    assert searched("b bb", k).passages == everything.passages[:k]


def test_many_passages_of_equal_text_come_in_the_order_of_their_ids() -> None:
    searched = Searched(
        [record(f"{number:03}", "passage", "the same fox") for number in reversed(range(300))]
    )
    assert ids(searched("fox", 3)) == ["000", "001", "002"]


def test_units_with_equal_scores_come_in_reading_order() -> None:
    owners = [record(f"{number}", "sentence", "the same fox", "p") for number in (3, 1, 2)]
    (hit,) = Searched([*owners, record("p", "passage", "the same fox")])(
        "fox", 1, ("sentence",)
    ).passages
    assert units(hit) == ["3", "1", "2"]


def test_units_of_many_passages_are_found() -> None:
    passages = [record(f"p{n}", "passage", "a fox") for n in range(1_200)]
    sentences = [record(f"u{n}", "sentence", "a fox", f"p{n}") for n in range(1_200)]
    found = Searched([*passages, *sentences])("fox", 1_200, ("sentence",))
    assert {hit.passage_id: units(hit) for hit in found.passages} == {
        f"p{n}": [f"u{n}"] for n in range(1_200)
    }


def test_query_and_texts_are_split_by_the_same_tokenizer() -> None:
    searched = Searched(RECORDS, str.split)
    assert ids(searched("fox")) == ["fox"]
    assert ids(searched("foxes")) == []


@pytest.mark.parametrize(
    "odd", ["New York", "tab\there", "nul\x00", '"quoted" AND (x', "a*", "a:b^2", "😀"]
)
def test_tokens_of_any_kind_are_found(odd: str) -> None:
    def tokenizer(text: str) -> list[str]:
        return text.split("|")

    searched = Searched(
        [record("p", "passage", f"one|{odd}"), record("q", "passage", "New|York|x")], tokenizer
    )
    assert ids(searched(odd)) == ["p"]
    assert searched(odd).coverage == 1.0


def test_a_tokenizer_may_return_a_generator() -> None:
    assert Words.by(lambda text: (word for word in text.split())).tokens("a fox") == ["a", "fox"]  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("wrong", ["a string", [1, 2], [None], None])
def test_a_tokenizer_must_return_strings(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"must return a sequence of strings"):
        Words.by(lambda text: wrong).tokens("fox")  # type: ignore[arg-type, return-value]


# Words of propositions


MADE = [
    record("p", "passage", "It opened in 1998. Its span is long.", status="ok"),
    record("p1", "proposition", "The Akashi Bridge opened in 1998.", "p", status="ok"),
    record("p2", "proposition", "The Akashi Bridge's span is long.", "p", status="repaired"),
    record("q", "passage", "Glass is melted from sand.", status="ok"),
]


def test_a_passage_is_found_by_the_words_of_its_propositions() -> None:
    found = Searched(MADE)("Akashi Bridge")
    assert ids(found) == ["p"]
    assert found.coverage == 1.0
    assert Searched(MADE, propositions=False)("Akashi Bridge") == SearchResult(
        (), exhausted=True, coverage=0.0
    )


def test_propositions_that_stand_in_add_nothing() -> None:
    in_place_of = [
        record("p", "passage", "A fox. A hen.", status="ok"),
        record("p1", "proposition", "A fox.", "p", status="ok"),  # sentences of the passage
        record("p2", "proposition", "A hen.", "p", status="ok"),
        record("r", "passage", "A fox. A hen.", status="fallback"),
        record("r1", "proposition", "A lamp.", "r", status="fallback"),
        record("s", "passage", "A fox. A hen."),
        record("s1", "sentence", "A bus.", "s"),
    ]
    searched = Searched(in_place_of)
    assert ids(searched("lamp")) == ids(searched("bus")) == []
    scores = {hit.passage_id: hit.score for hit in searched("fox").passages}
    assert scores["p"] == scores["r"] == scores["s"]


# Words that change


def node(kind: str, text: str, document: str, passage: str = "", **metadata: str) -> BaseNode:
    """A node whose id is made of document, kind and text."""
    fields = {
        "id_": f"{document}/{kind}/{text}",
        "text": text,
        "metadata": {GRANULARITY_KEY: kind, STATUS_KEY: "ok", **metadata},
        "relationships": {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)},
    }
    return (
        IndexNode(**fields, index_id=f"{document}/passage/{passage}")
        if passage
        else TextNode(**fields)
    )


def document(name: str, text: str, *propositions: str) -> list[BaseNode]:
    return [
        node("passage", text, name),
        *(node("proposition", fact, name, text) for fact in propositions),
    ]


texts = st.lists(st.sampled_from(["red", "fox", "hen", "京都", "大雨の", "雨"]), max_size=4).map(
    " ".join
)
contents = st.tuples(texts, st.lists(texts, max_size=2))
changes = st.one_of(
    st.tuples(
        st.just("replace"),
        st.dictionaries(st.sampled_from("abc"), contents, min_size=1, max_size=2),
    ),
    st.tuples(st.just("remove"), st.lists(st.sampled_from("abcd"), max_size=2)),
    st.tuples(st.sampled_from(["maintain", "compact", "forget"]), st.none()),
)


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(history=st.lists(changes, max_size=6))
def test_what_is_found_does_not_depend_on_the_history(history: list[tuple[str, object]]) -> None:
    words = Words.by("bigrams")
    nodes: dict[str, list[BaseNode]] = {}
    index = NodeIndex(words=words)
    kept = WordsBeside(words)

    def records(granularity: str) -> list[NodeRecord]:
        return of_granularity(
            (NodeRecord.of(node) for nodes_ in nodes.values() for node in nodes_), granularity
        )

    for kind, what in history:
        if kind == "replace":
            assert isinstance(what, dict)
            new = {
                name: document(name, text, *dict.fromkeys(facts))
                for name, (text, facts) in what.items()
            }
            nodes |= new
            for target in (kept, index):
                target.replace(list(new), [part for parts in new.values() for part in parts])
        elif kind == "remove":
            assert isinstance(what, list)
            nodes = {name: parts for name, parts in nodes.items() if name not in what}
            index.replace(what, [])
            kept.replace(what, [])
        elif kind == "forget":
            kept.forget()
        else:
            index.store.maintain() if kind == "maintain" else index.store.compact()
        index.store.commit()
    for query in ("red fox", "京都の雨", "雨"):
        fresh = Searched([one for granularity in ALL for one in records(granularity)])(query, 99)
        for now in (kept.now(records), index.searched_by_words()):
            found = search(now, words, query, 99)
            assert {hit.passage_id: pytest.approx(hit.score) for hit in fresh.passages} == {
                hit.passage_id: hit.score for hit in found.passages
            }
            assert {unit.id for hit in found.passages for unit in hit.units} == {
                u.id for h in fresh.passages for u in h.units
            }


@pytest.fixture
def corpus() -> dict[str, list[BaseNode]]:
    return {
        "a": document("a", "The fox.", "Reynard is a fox."),
        "b": document("b", "The hen.", "Pertelote is a hen."),
    }


def settled(folder: Path, corpus: dict[str, list[BaseNode]], state: str) -> WordsBeside:
    beside = WordsBeside(Words.by("bigrams"))
    beside.reopen(folder, state)
    beside.settle(
        folder,
        lambda g: of_granularity((NodeRecord.of(n) for parts in corpus.values() for n in parts), g),
    )
    return beside


def asked(beside: WordsBeside, query: str) -> set[str]:
    def unread(granularity: str) -> list[NodeRecord]:
        raise AssertionError("the nodes are known")

    return {*ids(search(beside.now(unread), Words.by("bigrams"), query))}


def test_words_in_a_folder_are_opened_without_reading_a_node(
    corpus: dict[str, list[BaseNode]], tmp_path: Path
) -> None:
    settled(tmp_path, corpus, "").done("state 1")
    opened = WordsBeside(Words.by("bigrams"))
    opened.reopen(tmp_path, "state 1")
    assert asked(opened, "Reynard") == {"a/passage/The fox."}


def test_words_of_a_document_without_an_id_leave_with_it(tmp_path: Path) -> None:
    corpus = {"": document("", "The hen.", "Pertelote is a hen.")}
    settled(tmp_path, corpus, "").done("state 1")
    again = settled(tmp_path, {"a": document("a", "The fox.", "Reynard is a fox.")}, "state 2")
    assert asked(again, "Reynard") == {"a/passage/The fox."}
    assert asked(again, "Pertelote") == set()


@pytest.mark.parametrize("stopped", ["state 2", "in a change"])
def test_words_that_a_stop_left_behind_are_compared_with_the_nodes(
    corpus: dict[str, list[BaseNode]], stopped: str, tmp_path: Path
) -> None:
    beside = settled(tmp_path, corpus, "")
    beside.done("state 1")
    if stopped == "in a change":
        beside.begin()
        stopped = "state 1"
    del corpus["b"]
    # the same passage with another proposition
    corpus["a"] = document("a", "The fox.", "Renart is a fox.")
    corpus["c"] = document("c", "The owl.", "Owls wake at night.")
    again = settled(tmp_path, corpus, stopped)
    assert asked(again, "Renart") == {"a/passage/The fox."}
    assert asked(again, "Owls night") == {"c/passage/The owl."}
    assert asked(again, "Reynard Pertelote hen") == set()


def test_words_by_another_tokenizer_are_told_anew(
    corpus: dict[str, list[BaseNode]], tmp_path: Path
) -> None:
    settled(tmp_path, corpus, "").done("1")

    def tokenizer(text: str) -> list[str]:
        return text.upper().split()

    for words in (Words.by(tokenizer), Words.by(str.split)):
        beside = WordsBeside(words)
        beside.reopen(tmp_path, "1")
        beside.settle(
            tmp_path,
            lambda g: of_granularity(
                (NodeRecord.of(n) for parts in corpus.values() for n in parts), g
            ),
        )
        assert {
            *ids(search(beside.now(list), words, "FOX." if words.split is tokenizer else "fox."))
        }
        beside.done("1")


def test_two_functions_of_one_name_are_told_apart() -> None:
    lower, upper = Words.by(lambda text: text.split()), Words.by(lambda text: [text.upper()])
    assert lower.name == upper.name
    assert lower.note != upper.note


def test_rows_that_others_write_without_words_do_not_hide_the_rest(
    corpus: dict[str, list[BaseNode]],
) -> None:
    store = EmbeddedVectorStore()
    words = Words.by("bigrams")
    index = NodeIndex(store.nodes, words=words)
    index.replace([], corpus["a"])
    index.store.commit()
    store.nodes.words = None
    store.add(corpus["b"])
    store.nodes.words = words
    again = NodeIndex(store.nodes, words=words)
    assert ids(search(again.searched_by_words(), words, "hen")) == ["b/passage/The hen."]
    with again.writing():
        pass
    assert {*ids(search(again.searched_by_words(), words, "Pertelote Reynard"))} == {
        "b/passage/The hen.",
        "a/passage/The fox.",
    }
