from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_pack_densex.index.node_store import FoundNode
from llama_pack_densex.retrieval.hits import PassageHit, collapse
from llama_pack_densex.retrieval.search import (
    HEAD_PASSAGES,
    fuse,
    keyword_weight,
    relative_scores,
)

pytestmark = pytest.mark.pure

Side = tuple[PassageHit, ...]

WEIGHTS = st.floats(0, 1)
COSINES = st.floats(-1, 1) | st.sampled_from([-1.0, 0.0, 0.5, 1.0])
BM25 = st.floats(1e-3, 60) | st.sampled_from([1.0, 2.0])


def found(unit: str, passage: str, score: float) -> FoundNode:
    return FoundNode(unit, "proposition", passage, score)


def dense_side(scores: dict[str, float]) -> Side:
    """What embeddings found; the passage of the unit "7.2" is "7"."""
    units = [found(unit, unit.split(".")[0], score) for unit, score in scores.items()]
    return collapse(sorted(units, key=lambda unit: -unit.score))


def lexical_side(scores: dict[str, float]) -> Side:
    """What words found: passages with their own scores, and their units with others."""
    hits = [
        PassageHit(passage, score, (found(f"{passage}.0", passage, score / 2),))
        for passage, score in scores.items()
    ]
    return tuple(sorted(hits, key=lambda hit: -hit.score))


@st.composite
def dense_sides(draw: st.DrawFn, most: int = 45) -> Side:
    units = st.integers(0, 60).flatmap(
        lambda passage: st.integers(0, 3).map(lambda unit: f"{passage}.{unit}")
    )
    return dense_side(draw(st.dictionaries(units, COSINES, max_size=most)))


@st.composite
def lexical_sides(draw: st.DrawFn, most: int = 45) -> Side:
    return lexical_side(draw(st.dictionaries(st.integers(0, 60).map(str), BM25, max_size=most)))


def scores(side: Side) -> dict[str, float]:
    return {hit.passage_id: hit.score for hit in side}


@given(dense_sides(), lexical_sides(), WEIGHTS)
def test_scores_are_shares_and_fall(dense: Side, lexical: Side, weight: float) -> None:
    fused = fuse(dense, lexical, weight)
    for ranking in (
        [hit.score for hit in fused],
        *([unit.score for unit in hit.units] for hit in fused),
    ):
        assert ranking == sorted(ranking, reverse=True)
        assert all(0 <= score <= 1 for score in ranking)


@given(dense_sides(), lexical_sides(), WEIGHTS)
def test_every_passage_of_either_side_is_there_once_with_its_units(
    dense: Side, lexical: Side, weight: float
) -> None:
    fused = fuse(dense, lexical, weight)
    ids = [hit.passage_id for hit in fused]
    assert len(ids) == len(set(ids))
    assert set(ids) == {hit.passage_id for hit in (*dense, *lexical)}
    units = [unit.id for hit in fused for unit in hit.units]
    assert len(units) == len(set(units))
    assert set(units) <= {unit.id for hit in (*dense, *lexical) for unit in hit.units}
    with_units = {unit.leads_to for hit in (*dense, *lexical) for unit in hit.units}
    assert {hit.passage_id for hit in fused if hit.units} == with_units
    assert all(unit.leads_to == hit.passage_id for hit in fused for unit in hit.units)


@given(dense_sides(), lexical_sides(), WEIGHTS)
def test_both_sides_are_treated_alike(dense: Side, lexical: Side, weight: float) -> None:
    # where the lowest score of both is 0: for words that is the lowest there can be, for embeddings the
    # lowest found
    last = PassageHit("last", 0.0, ())
    dense = (*(PassageHit(hit.passage_id, hit.score + 1, ()) for hit in dense), last)
    lexical = (*(PassageHit(hit.passage_id, hit.score, ()) for hit in lexical), last)
    there, back = scores(fuse(dense, lexical, weight)), scores(fuse(lexical, dense, 1.0 - weight))
    assert there == pytest.approx(back)


@given(dense_sides(), lexical_sides())
def test_with_the_whole_weight_the_order_is_that_of_the_dense_side(
    dense: Side, lexical: Side
) -> None:
    fused = [hit.passage_id for hit in fuse(dense, lexical, 1.0)]
    assert fused[: len(dense)] == [hit.passage_id for hit in dense]


@given(dense_sides(), lexical_sides())
def test_with_no_weight_the_order_is_that_of_the_words(dense: Side, lexical: Side) -> None:
    by_words = scores(lexical)
    # equal ones in any order
    fused = [by_words.get(hit.passage_id, 0.0) for hit in fuse(dense, lexical, 0.0)]
    assert fused[: len(lexical)] == [hit.score for hit in lexical]


@settings(max_examples=50)
@given(
    st.permutations(range(60)),
    st.permutations(range(60)),
    st.integers(0, 30),
    st.integers(0, 30),
    WEIGHTS,
)
def test_fetching_more_than_the_head_changes_no_score(
    by_meaning: list[int], by_words: list[int], more_dense: int, more_lexical: int, weight: float
) -> None:
    dense = dense_side(
        {f"{passage}.0": 0.9 - place / 100 for place, passage in enumerate(by_meaning)}
    )
    lexical = lexical_side({str(passage): 30 - place / 3 for place, passage in enumerate(by_words)})
    part = fuse(
        dense[: HEAD_PASSAGES + more_dense], lexical[: HEAD_PASSAGES + more_lexical], weight
    )
    everything = scores(fuse(dense, lexical, weight))
    assert scores(part) == pytest.approx(
        {passage_id: everything[passage_id] for passage_id in scores(part)}
    )


def test_passages_and_units_of_one_score_stay_apart() -> None:
    dense = tuple(PassageHit(p, 0.5, (found(f"{p}.0", p, 0.5),)) for p in ("1", "2"))
    lexical = (PassageHit("3", 4.0, (found("3.0", "3", 2.0),)),)
    fused = fuse(dense, lexical, 0.5)
    assert sorted(hit.passage_id for hit in fused) == ["1", "2", "3"]
    assert sorted(unit.id for hit in fused for unit in hit.units) == ["1.0", "2.0", "3.0"]


def test_a_hit_of_both_sides_comes_before_hits_of_one() -> None:
    fused = fuse(
        dense_side({"1.0": 0.9, "2.0": 0.89, "3.0": 0.1}), lexical_side({"4": 9.0, "2": 8.9}), 0.5
    )
    assert fused[0].passage_id == "2"


@pytest.mark.parametrize(("better", "worse"), [(4.0, 1.0), (9.0, 8.0), (0.2, 0.1)])
def test_of_passages_with_the_same_words_that_which_has_them_in_one_unit_comes_first(
    better: float, worse: float
) -> None:
    units = {"apart": worse, "together": better}
    lexical = [
        PassageHit(name, 6.0, (found(f"{name}.0", name, score),)) for name, score in units.items()
    ]
    without_unit = PassageHit("title", 6.0, ())
    fused = fuse((), [*lexical, without_unit], 0.5)
    assert [hit.passage_id for hit in fused] == ["together", "apart", "title"]


def test_a_question_that_a_passage_answers_is_not_its_best_unit_by_words() -> None:
    question = FoundNode("asking.0", "question", "asking", 9.0)
    stated = {
        name: found(f"{name}.1", name, score) for name, score in (("asking", 1.0), ("stating", 2.0))
    }
    lexical = [
        PassageHit("asking", 6.0, (question, stated["asking"])),
        PassageHit("stating", 6.0, (stated["stating"],)),
    ]
    assert [hit.passage_id for hit in fuse((), lexical, 0.5)] == ["stating", "asking"]


@pytest.mark.parametrize("cosine", [1.0, 0.3, 0.0, -0.7])
def test_a_single_hit_has_its_sides_whole_share(cosine: float) -> None:
    assert scores(fuse(dense_side({"1.0": cosine}), (), 0.4)) == {"1": 0.4}
    assert scores(fuse((), lexical_side({"1": 7.0}), 0.4)) == {"1": 0.6}
    assert scores(fuse(dense_side({"1.0": cosine}), lexical_side({"1": 7.0}), 0.4)) == {"1": 1.0}


def test_nothing_found_gives_nothing() -> None:
    assert fuse((), (), 0.5) == ()


@pytest.mark.parametrize("cosine", [0.5, 0.0, -0.5])
def test_equal_scores_are_equally_good_and_keep_their_order(cosine: float) -> None:
    fused = fuse(dense_side({f"{n}.0": cosine for n in range(40)}), (), 0.5)
    assert [hit.passage_id for hit in fused] == [str(n) for n in range(40)]
    assert {hit.score for hit in fused} == {0.5}


def test_negative_cosines_are_ranked_as_well() -> None:
    fused = fuse(dense_side({"1.0": -0.1, "2.0": -0.5, "3.0": -0.9}), (), 1.0)
    assert scores(fused) == pytest.approx({"1": 1.0, "2": 0.5, "3": 0.0})


@given(st.dictionaries(st.text(max_size=3), COSINES, max_size=60), st.integers(1, 50))
def test_relative_scores_keep_the_order(cosines: dict[str, float], head: int) -> None:
    relative = relative_scores(cosines, head)
    assert relative.keys() == cosines.keys()
    assert max(relative.values(), default=1.0) == 1.0
    ranked = sorted(cosines, key=lambda name: cosines[name])
    assert [relative[name] for name in ranked] == sorted(relative.values())
    assert (
        sum(place > 0 for place in relative.values()) <= max(head, 1)
        or len(set(relative.values())) == 1
    )


def test_a_passage_scores_as_its_best_unit() -> None:
    (hit,) = collapse([found("1.0", "1", 0.8), found("1.1", "1", 0.2)])
    assert hit.score == 0.8


def test_where_passages_are_searched_a_passages_own_similarity_counts_too() -> None:
    passage = FoundNode("1", "passage", "", 0.4)
    units = [found("1.0", "1", 0.8), found("2.0", "2", 0.6), passage, found("3.0", "3", 0.1)]
    scores_by_passage = {hit.passage_id: hit.score for hit in collapse(units[:2], units)}
    assert scores_by_passage["1"] == pytest.approx((0.8 + 0.3 * 0.4) / 1.3)
    # not found: no better than the last
    assert scores_by_passage["2"] == pytest.approx((0.6 + 0.3 * 0.1) / 1.3)


@given(dense_sides(), COSINES)
def test_with_passages_scores_stay_cosines(dense: Side, own: float) -> None:
    units = sorted((unit for hit in dense for unit in hit.units), key=lambda unit: -unit.score)
    around = sorted([*units, FoundNode("1", "passage", "", own)], key=lambda unit: -unit.score)
    hits = collapse(units, around)
    assert all(-1 <= hit.score <= 1 for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_keywords_count_the_more_the_more_of_a_question_they_cover() -> None:
    weights = [keyword_weight(tenths / 10) for tenths in range(11)]
    assert weights == sorted(weights)
    assert weights[0] == 0
    assert weights[5] == pytest.approx(0.5, abs=0.05)
    assert weights[10] == 1.5
