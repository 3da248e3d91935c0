from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.llms.mock import MockLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import BaseNode, IndexNode, MetadataMode, NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer

from llama_pack_densex import CitedSynthesizer, DenseXRetrievalPack, PropositionNodeParser
from llama_pack_densex.answering.chat import PropositionQueryEngine
from llama_pack_densex.index.node_index import NodeIndex
from llama_pack_densex.index.node_store import FoundNode, NodeRecord
from llama_pack_densex.node_parsers.metadata import BOOKKEEPING_KEYS, TITLE_KEY
from llama_pack_densex.retrieval.context import (
    GAP,
    BudgetUnit,
    ContextMode,
    PropositionContextPostprocessor,
    choose_facts,
    count_words,
    rank_facts,
    size_of,
)
from llama_pack_densex.retrieval.hits import matched_units, with_matches
from llama_pack_densex.retrieval.retrievers import PropositionRecursiveRetriever
from llama_pack_densex.retrieval.search import UnitSearch
from llama_pack_densex.text.segments import sentence_spans
from tests.embedding import TrigramEmbedding

MODES = ["passages", "propositions", "propositions+passages", "window"]
UNITS: list[BudgetUnit] = ["words", "tokens", "characters"]

TIDES = [
    "The Moon pulls the ocean towards itself.",
    "Its pull raises two bulges.",
    "Sailors have known this for long.",
    "The Bay of Fundy has the highest tides.",
    "They reach 16 metres there.",
    "Fishing boats lie dry twice a day.",
    "Tourists walk on the sea floor.",
]
TUNNEL = [
    "青函トンネルは全長53.85キロメートルである。",
    "1988年に開業した。",
    "海底部は23.3キロメートルある。",
    "北海道と本州を結ぶ。",
    "新幹線も通る。",
]


def assemble_context(
    nodes: Sequence[NodeWithScore],
    mode: ContextMode = "propositions+passages",
    budget: int | None = None,
    unit: BudgetUnit = "words",
    window: int = 1,
) -> list[NodeWithScore]:
    made = PropositionContextPostprocessor(mode=mode, budget=budget, unit=unit, window=window)
    return made.postprocess_nodes(list(nodes))


def passage(
    sentences: Sequence[str],
    found: dict[int | str, float],
    score: float = 1.0,
    title: str = "",
    name: str = "p",
) -> NodeWithScore:
    """A passage as our retrievers return it; it was found by sentences of its own or by other texts."""
    joint = " " if sentences[0].isascii() else ""
    node = TextNode(id_=name, text=joint.join(sentences), metadata={TITLE_KEY: title})
    node.excluded_embed_metadata_keys = node.excluded_llm_metadata_keys = list(BOOKKEEPING_KEYS)
    units = [
        (unit(sentences[which] if isinstance(which, int) else which, f"{name}/{which}", name), own)
        for which, own in sorted(found.items(), key=lambda item: -item[1])
    ]
    return matched(node, score, units)


def matched(
    node: BaseNode, score: float, units: Sequence[tuple[IndexNode, float]]
) -> NodeWithScore:
    """A node with the units that found it."""
    hits = [FoundNode(unit.node_id, "proposition", unit.index_id, own) for unit, own in units]
    return with_matches(node, score, hits, {unit.node_id: NodeRecord.of(unit) for unit, _ in units})


def unit(text: str, name: str, passage_id: str, title: str = "") -> IndexNode:
    node = IndexNode(
        id_=name,
        text=text,
        index_id=passage_id,
        metadata={"densex_granularity": "proposition", TITLE_KEY: title},
    )
    node.excluded_embed_metadata_keys = node.excluded_llm_metadata_keys = list(BOOKKEEPING_KEYS)
    return node


def read(nodes: Sequence[NodeWithScore]) -> str:
    """What a synthesizer reads."""
    return "\n\n".join(node.node.get_content(metadata_mode=MetadataMode.LLM) for node in nodes)


def test_facts_stand_above_the_passages_under_the_titles_of_their_documents() -> None:
    tides = passage(TIDES, {3: 0.9, 4: 0.5}, title="Tides", name="tides")
    tunnel = passage(TUNNEL, {0: 0.7}, score=0.8, title="青函トンネル", name="tunnel")
    facts, *passages = assemble_context([tides, tunnel])
    assert facts.node.get_content() == (
        "Tides\n- The Bay of Fundy has the highest tides.\n- They reach 16 metres there.\n\n"
        "青函トンネル\n- 青函トンネルは全長53.85キロメートルである。"
    )
    assert [hit.node.get_content() for hit in passages] == [
        tides.node.get_content(),
        tunnel.node.get_content(),
    ]


def test_passages_are_the_retrieved_nodes_as_they_are() -> None:
    nodes = [passage(TIDES, {3: 0.9}), passage(TUNNEL, {0: 0.7}, name="q")]
    assert assemble_context(nodes, "passages") == nodes


def test_propositions_are_all_matched_units_and_nothing_else() -> None:
    (only,) = assemble_context(
        [passage(TIDES, {3: 0.9, 6: 0.4}), passage(TUNNEL, {1: 0.5}, name="q")], "propositions"
    )
    assert only.node.get_content().splitlines() == [
        "- The Bay of Fundy has the highest "
        "tides.", "- 1988年に開業した。", "- Tourists walk on the sea floor.",
    ]  # fmt: skip


def test_a_unit_ranks_by_its_own_score_and_its_passages() -> None:
    good = passage(TIDES, {"a a1": 0.8}, score=1.0, name="good")
    poor = passage(TIDES, {"b b1": 0.9, "c c1": 0.5}, score=0.2, name="poor")
    assert [fact.unit.text for fact in rank_facts([good, poor])] == ["a a1", "b b1", "c c1"]


def test_a_unit_below_the_title_that_a_question_names_comes_first() -> None:
    other = passage(TIDES, {"Year: 2019; Show: Lamps": 0.9}, score=0.8, title="Ada Kern", name="a")
    named = passage(TIDES, {"Year: 2019; Title: Crown": 0.5}, score=1.0, title="Max Rissmann")
    question = "Which shows did Rissmann play in in 2019?"
    ranked = [fact.source.node_id for fact in rank_facts([other, named], question)]
    assert ranked == ["p", "a"]
    (facts, *_) = PropositionContextPostprocessor().postprocess_nodes(
        [other, named], None, question
    )
    assert facts.text.startswith("Max Rissmann\n")


def test_a_proposition_and_its_sentence_are_one_fact() -> None:
    node = passage(TIDES, {3: 0.9, "The Bay of Fundy has the highest tides on Earth.": 0.8, 5: 0.3})
    assert [fact.unit.text for fact in rank_facts([node])] == [TIDES[3], TIDES[5]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "The blue lamp number 7 hangs in the old hall.",
            "The blue lamp number 8 hangs in the old hall.",
        ),
        ("The mayor of Lyon was in the old hall.", "The mayor of Lyon was not in the old hall."),
        ("青函トンネルには駅がある。", "青函トンネルには駅がない。"),
    ],
)
def test_units_that_differ_in_a_number_or_a_negation_are_two_facts(one: str, other: str) -> None:
    assert len(rank_facts([passage(TIDES, {one: 0.9, other: 0.8})])) == 2


def facts_of(node: NodeWithScore, mode: ContextMode) -> list[str]:
    """The facts that are read of a passage."""
    return assemble_context([node], mode)[0].node.get_content().removeprefix("- ").split("\n- ")


@pytest.mark.parametrize(
    ("sentence", "propositions"),
    [
        (
            "The lamp, which is red, was lit in 1870 by the keeper Ane Holm.",
            [
                "The lamp is red.",
                "The lamp was lit in 1870.",
                "The lamp was lit by the keeper Ane Holm.",
            ],
        ),
        (
            "Claims that are older than 90 days and lack a receipt are refused by the finance team.",
            [
                "Claims older than 90 days are refused.",
                "Claims that lack a receipt are refused by the finance team.",
            ],
        ),
        (
            "赤い灯火は1870年に灯台守の佐伯が点灯した。",
            ["灯火は赤い。", "灯火は1870年に点灯した。", "灯火は灯台守の佐伯が点灯した。"],
        ),
    ],
)
def test_a_sentence_does_not_stand_beside_its_propositions_where_the_passages_follow(
    sentence: str, propositions: list[str]
) -> None:
    units = [
        {
            "id": text,
            "text": text,
            "score": 1 - place / 10,
            "granularity": "proposition",
            "status": "ok",
        }
        for place, text in enumerate(propositions)
    ]
    units.append(
        {"id": "s", "text": sentence, "score": 0.1, "granularity": "sentence", "status": ""}
    )
    units = [entry | {"span": [0, len(sentence)]} for entry in units]
    node = NodeWithScore(
        node=TextNode(text=sentence, metadata={"densex_matched": units}), score=1.0
    )
    assert facts_of(node, "propositions+passages") == propositions
    assert facts_of(node, "propositions") == [*propositions, sentence]


@pytest.mark.parametrize(
    "text",
    [
        "</details>", "[getsentry.com]", "**Important information**", "Congratulations!",
        "Read more here.", "Bring these things:", "**重要な情報**", "おめでとうございます！",
        "詳細はこちらをご覧ください。", "手順：", "3. **Budget.**", "② 予算",
    ],
)  # fmt: skip
def test_a_unit_that_says_nothing_is_no_fact_beside_others(text: str) -> None:
    assert facts_of(passage(TIDES, {text: 0.9, 3: 0.5}), "propositions") == [TIDES[3]]
    assert facts_of(passage(TIDES, {text: 0.9}), "propositions") == [text]


@pytest.mark.parametrize(
    "text",
    [
        "Port: 8080", "Error E04", "**Refunds are paid within a week**",
        "Thanks to the pump, the dock stays dry.", "**返金は一週間以内**",
        "上限は5万円", "灯火は赤い。", "1. 5 days", "連絡先：経理部の佐伯",
    ],
)  # fmt: skip
def test_a_short_unit_that_says_something_is_a_fact(text: str) -> None:
    assert facts_of(passage(TIDES, {text: 0.9, 3: 0.5}), "propositions") == [text, TIDES[3]]


def test_a_unit_that_does_not_fit_makes_room_for_shorter_ones() -> None:
    node = passage(TIDES, {0: 0.9, 3: 0.8, 1: 0.7})
    assert [fact.unit.text for fact in choose_facts(rank_facts([node]), 12)] == [TIDES[0], TIDES[1]]
    assert len(choose_facts(rank_facts([node]), 1)) == 1  # a context has one fact at least


def test_a_window_is_the_sentences_around_each_unit_in_reading_order() -> None:
    (window,) = assemble_context([passage(TIDES, {5: 0.9, 0: 0.8})], "window")
    assert window.node.get_content() == " ".join(TIDES[:2]) + GAP + " ".join(TIDES[4:])


def test_overlapping_windows_are_merged() -> None:
    (window,) = assemble_context([passage(TIDES, {4: 0.9, 2: 0.8, 1: 0.3})], "window")
    assert window.node.get_content() == " ".join(TIDES[:6])


def test_windows_are_as_wide_as_asked_for() -> None:
    nodes = [passage(TIDES, {3: 0.9})]
    assert assemble_context(nodes, "window", window=0)[0].node.get_content() == TIDES[3]
    assert assemble_context(nodes, "window", window=2)[0].node.get_content() == " ".join(TIDES[1:6])


def test_a_window_of_a_reworded_unit_is_around_the_sentence_it_was_made_of() -> None:
    (window,) = assemble_context(
        [passage(TIDES, {"The tides of the Bay of Fundy reach 16 metres.": 0.9})], "window"
    )
    assert TIDES[4] in window.node.get_content()
    (window,) = assemble_context(
        [passage(TUNNEL, {"青函トンネルは北海道と本州を結んでいる。": 0.9})], "window", window=0
    )
    assert window.node.get_content() == TUNNEL[3]


def test_without_a_budget_only_the_best_units_have_windows() -> None:
    long = " ".join(f"Word{number}" for number in range(200)) + "."
    nodes = [passage([*TIDES, "", long], {8: 0.9, 0: 0.8})]
    (window,) = assemble_context(nodes, "window", window=0)
    assert window.node.get_content() == long


def test_the_passage_of_the_best_unit_has_the_first_window() -> None:
    nodes = [passage(TIDES, {3: 0.5}, score=1.0), passage(TUNNEL, {1: 0.9}, score=0.9, name="q")]
    assert [hit.node.node_id for hit in assemble_context(nodes, "window", window=0)] == ["q", "p"]


def test_a_window_that_does_not_fit_shrinks_to_its_sentence() -> None:
    (window,) = assemble_context([passage(TIDES, {3: 0.9})], "window", 10)
    assert window.node.get_content() == TIDES[3]


def test_a_passage_that_does_not_fit_keeps_its_first_whole_sentences() -> None:
    nodes = [passage(TIDES, {3: 0.9}), passage(TUNNEL, {1: 0.9}, name="q")]
    assert read(assemble_context(nodes, "passages", 33)) == " ".join(TIDES[:5])
    limit = int(count_words("".join(TUNNEL))) + 8
    assert (
        read(assemble_context(nodes[::-1], "passages", limit))
        == "".join(TUNNEL) + "\n\n" + TIDES[0]
    )


def test_a_shortened_passage_still_knows_where_it_stands() -> None:
    text = " ".join(TIDES)
    node = TextNode(text=text, start_char_idx=100, end_char_idx=100 + len(text))
    (shorter,) = assemble_context([NodeWithScore(node=node)], "passages", 13)
    assert isinstance(shorter.node, TextNode)
    assert (shorter.node.start_char_idx, shorter.node.end_char_idx) == (
        100,
        100 + len(" ".join(TIDES[:2])),
    )
    assert node.text == text


def test_a_budget_that_nothing_fits_into_leaves_nothing() -> None:
    for mode in MODES:
        assert assemble_context([passage(TIDES, {0: 0.9})], mode, 1) == []  # type: ignore[arg-type]


def test_nodes_of_other_retrievers_pass_through() -> None:
    nodes = [NodeWithScore(node=TextNode(text=" ".join(TIDES)), score=0.3)]
    for mode in MODES:
        assert assemble_context(nodes, mode) == nodes  # type: ignore[arg-type]


def test_a_retrieved_unit_without_its_passage_is_used_as_it_is() -> None:
    lone = NodeWithScore(node=unit(TIDES[3], "u", "elsewhere", title="Tides"), score=0.7)
    assert read(assemble_context([lone])) == f"Tides\n- {TIDES[3]}"
    assert read(assemble_context([lone], "window")) == TIDES[3]


def test_units_that_were_not_merged_are_read_without_their_passage() -> None:
    nodes = {3: unit(TIDES[3], "u3", "elsewhere"), 1: unit(TIDES[1], "u1", "elsewhere")}
    found = [(nodes[i], score) for i, score in ((3, 0.9), (1, 0.5))]
    lone = matched(nodes[3], 0.9, found)
    assert read(assemble_context([lone])) == f"- {TIDES[3]}\n- {TIDES[1]}"
    assert read(assemble_context([lone], "window")) == f"{TIDES[3]}\n{TIDES[1]}"


def test_a_retrieved_unit_belongs_to_the_passage_beside_it() -> None:
    whole = NodeWithScore(
        node=TextNode(id_="p", text=" ".join(TIDES), metadata={TITLE_KEY: "Tides"}), score=0.9
    )
    whole.node.excluded_embed_metadata_keys = whole.node.excluded_llm_metadata_keys = list(
        BOOKKEEPING_KEYS
    )
    lone = NodeWithScore(node=unit(TIDES[3], "u", "p"), score=0.7)
    assert read(assemble_context([whole, lone])) == f"Tides\n- {TIDES[3]}\n\n{' '.join(TIDES)}"
    windows = assemble_context([whole, lone], "window")
    assert windows[0].node.get_content() == " ".join(TIDES[2:5])


def test_a_context_is_not_assembled_twice() -> None:
    once = assemble_context([passage(TIDES, {3: 0.9}, title="Tides")])
    assert assemble_context(once) == once


def test_the_llm_reads_no_bookkeeping() -> None:
    for mode in MODES:
        text = read(assemble_context([passage(TIDES, {3: 0.9}, title="Tides")], mode))  # type: ignore[arg-type]
        assert "densex" not in text


@pytest.mark.parametrize("mode", MODES)
def test_the_same_nodes_make_the_same_context(mode: str) -> None:
    nodes = [
        passage(TIDES, dict.fromkeys(range(5), 0.5)),
        passage(TUNNEL, {1: 0.5, 2: 0.5}, name="q"),
    ]
    first, second = (
        PropositionContextPostprocessor(mode=mode, budget=60).postprocess_nodes(nodes)  # type: ignore[arg-type]
        for _ in range(2)
    )
    assert first == second


sentences = st.lists(
    st.one_of(
        st.sampled_from(TIDES + TUNNEL),
        st.text(alphabet="ab z19。.- \n雨がé", min_size=1, max_size=30).filter(
            lambda text: bool(text.strip())
        ),
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def retrieved(draw: st.DrawFn) -> list[NodeWithScore]:
    nodes = []
    for number in range(draw(st.integers(1, 4))):
        texts = draw(sentences)
        found: dict[int | str, float] = {
            which: draw(st.floats(-1, 30))
            for which in draw(st.sets(st.integers(0, len(texts) - 1)))
        }
        title = draw(st.sampled_from(["", "Tides", "青函トンネル"]))
        nodes.append(passage(texts, found, draw(st.floats(-1, 30)), title, f"p{number}"))
    return nodes


@settings(deadline=None, max_examples=60)
@given(retrieved(), st.sampled_from(MODES), st.sampled_from(UNITS), st.integers(1, 90))
def test_a_budget_is_never_exceeded(
    nodes: list[NodeWithScore], mode: str, unit: BudgetUnit, limit: int
) -> None:
    context = assemble_context(nodes, mode, limit, unit)  # type: ignore[arg-type]
    assert size_of(read(context), unit) <= limit
    if unit == "words":
        assert len(read(context).split()) <= limit


@settings(deadline=None, max_examples=60)
@given(retrieved(), st.sampled_from(MODES), st.sampled_from(UNITS), st.integers(1, 90))
def test_no_unit_is_cut(
    nodes: list[NodeWithScore], mode: str, unit: BudgetUnit, limit: int
) -> None:
    known = {found.text.strip() for node in nodes for found in matched_units(node.node)}
    texts = {node.node.node_id: node.node.get_content() for node in nodes}
    for hit in assemble_context(nodes, mode, limit, unit):  # type: ignore[arg-type]
        if hit.node.node_id not in texts:
            facts = [found.text.strip() for found in matched_units(hit.node)]
            assert set(facts) <= known
            assert all(f"- {fact}" in hit.node.get_content() for fact in facts)
        else:
            text = texts[hit.node.node_id]
            spans = sentence_spans(text)
            runs = {text[start:end] for start, _ in spans for _, end in spans}
            assert hit.node.get_content() == text or set(hit.node.get_content().split(GAP)) <= runs


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(TIDES), min_size=1, unique=True),
    st.sampled_from(MODES),
    st.integers(1, 60),
)
def test_every_shown_sentence_is_whole(texts: list[str], mode: str, limit: int) -> None:
    node = passage(
        texts, {which: 1.0 / (1 + which) for which in range(0, len(texts), 3)}, title="Tides"
    )
    for hit in assemble_context([node], mode, limit):  # type: ignore[arg-type]
        left = hit.node.get_content()
        for text in sorted(texts, key=len, reverse=True):
            left = left.replace(text, "")
        assert set(left.replace("Tides", "").replace("…", "")) <= set("- \n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- one", 2),
        ("雨 が", 2),
        ("a – b", 3),
        ("53.85キロ", 2),
        (" \n", 0),
        ("don’t e-mail, and/or", 4),
        ("雨のRiver3川", 2.5),
        ("snake_case été.", 3),
    ],
)
def test_what_stands_between_spaces_is_one_word_at_least(text: str, words: float) -> None:
    assert count_words(text) == words


@pytest.mark.parametrize(
    "field", [{"mode": "sentences"}, {"budget": 0}, {"unit": "bytes"}, {"window": -1}]
)
def test_a_wrong_setting_is_refused_by_name(field: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        PropositionContextPostprocessor(**field)  # type: ignore[arg-type]


def test_the_postprocessor_comes_back_from_its_dictionary() -> None:
    made = PropositionContextPostprocessor(mode="window", budget=300, unit="characters")
    again = PropositionContextPostprocessor.from_dict(made.to_dict())
    assert (again.mode, again.budget, again.unit) == ("window", 300, "characters")


def test_tokens_are_counted_by_llama_indexs_tokenizer() -> None:
    nodes = [passage(TIDES, {3: 0.9})]
    budget = len(get_tokenizer()(f"- {TIDES[3]}"))
    (facts,) = PropositionContextPostprocessor(budget=budget, unit="tokens").postprocess_nodes(
        nodes
    )
    assert facts.node.get_content() == f"- {TIDES[3]}"


def documents() -> list[Document]:
    return [
        Document(id_="tides", text=" ".join(TIDES), metadata={"title": "Tides"}),
        Document(id_="tunnel", text="".join(TUNNEL), metadata={"title": "青函トンネル"}),
    ]


async def test_it_works_behind_a_retriever_of_core() -> None:
    nodes = PropositionNodeParser.from_defaults().get_nodes_from_documents(documents())
    index = VectorStoreIndex(nodes, embed_model=TrigramEmbedding())
    engine = RetrieverQueryEngine.from_args(
        index.as_retriever(similarity_top_k=6),
        llm=MockLLM(),
        node_postprocessors=[PropositionContextPostprocessor(budget=40)],
    )
    question = "How high do the highest tides in the Bay of Fundy reach?"
    for response in (engine.query(question), await engine.aquery(question)):
        assert "- The Bay of Fundy has the highest tides." in str(response)
        assert "densex" not in str(response)
        assert count_words(read(response.source_nodes)) <= 40


async def test_our_engine_reads_the_context_and_keeps_the_retrieved_nodes_as_sources() -> None:
    index = NodeIndex(embed_model=TrigramEmbedding())
    index.replace([], PropositionNodeParser.from_defaults().get_nodes_from_documents(documents()))
    index.store.commit()
    retriever = PropositionRecursiveRetriever(UnitSearch(index), index, similarity_top_k=1)
    context = PropositionContextPostprocessor(mode="propositions", budget=30, unit="characters")
    synthesizer = CitedSynthesizer(MockLLM(), context)
    # what the LLM repeats
    synthesizer.update_prompts({"text_qa_template": PromptTemplate("{context_str}")})
    engine = PropositionQueryEngine(retriever, synthesizer)
    for response in (
        engine.query("トンネルの開業は1988年か"),
        await engine.aquery("トンネルの開業は1988年か"),
    ):
        assert "- 1988年に開業した。" in str(response)
        assert "結ぶ" not in str(response)
        assert [hit.node.get_content() for hit in response.source_nodes] == ["".join(TUNNEL)]


def test_a_long_passage_that_many_units_found_is_read_around_them() -> None:
    """Its sentences are looked for once; for each unit anew, this took a minute for a document that is one
    passage."""
    texts = [f"Harbour {place} has kept a table of tides since {place}." for place in range(4_000)]
    nodes = [passage(texts, {place: 1 - place / 8_000 for place in range(0, 4_000, 20)})]
    facts, shown = PropositionContextPostprocessor().postprocess_nodes(nodes)
    assert facts.node.get_content() == f"- {texts[0]}"
    assert shown.node.get_content().split("\n…\n")[:2] == [
        " ".join(texts[:2]),
        " ".join(texts[19:22]),
    ]


def test_the_order_in_which_nodes_come_does_not_change_the_ranking() -> None:
    nodes = [passage(TIDES, {3: 0.9, 1: 0.3}), passage(TUNNEL, {1: 0.7}, score=0.5, name="q")]
    ranked = [[fact.unit.text for fact in rank_facts(order)] for order in (nodes, nodes[::-1])]
    assert ranked[0] == ranked[1] == [TIDES[3], TUNNEL[1], TIDES[1]]


def nodes_of(count: int) -> list[NodeWithScore]:
    """Passages that do not fit whole into what is read by default."""
    return [
        passage(
            [(
                f"Harbour {place}{n} has kept a table of tides since "
                f"{1500 + 20 * n + place}."
            ) for place in range(20)],
            {3: 0.9, 5: 0.8}, title="Tides", name=f"p{n}",
        )
        for n in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 4, 12])
def test_by_default_what_is_read_grows_with_the_number_of_nodes(count: int) -> None:
    context = PropositionContextPostprocessor().postprocess_nodes(nodes_of(count))
    assert 0.8 * 125 * count <= count_words(read(context)) <= 125 * count


def test_passages_alone_are_read_whole_by_default() -> None:
    nodes = nodes_of(4)
    assert PropositionContextPostprocessor(mode="passages").postprocess_nodes(nodes) == nodes


def test_without_a_limit_passages_are_whole() -> None:
    nodes = nodes_of(4)
    context = PropositionContextPostprocessor(budget=None).postprocess_nodes(nodes)
    assert [node.node.get_content() for node in context[1:]] == [
        node.node.get_content() for node in nodes
    ]


def test_passages_that_do_not_fit_keep_the_sentences_around_their_units_and_then_those_beside() -> (
    None
):
    facts, *passages = assemble_context(nodes_of(2), budget=150)
    assert count_words(facts.node.get_content()) <= 15 + 1  # a tenth, and the title
    assert len(passages) == 2
    for number, node in enumerate(passages):
        for place in (3, 4, 5):
            assert f"Harbour {place}{number} " in node.node.get_content()
        assert f"Harbour 19{number} " not in node.node.get_content()


def test_a_passage_whose_units_repeat_others_is_read_all_the_same() -> None:
    nodes = [passage(TIDES, {3: 0.9}, name="p"), passage([*TUNNEL, TIDES[3]], {5: 0.8}, name="q")]
    _, first, second = assemble_context(nodes, budget=75)
    assert TIDES[3] in first.node.get_content()
    assert TUNNEL[0] in second.node.get_content()


def test_the_sentence_that_follows_the_best_one_is_read_although_it_shares_few_words_with_the_question() -> (
    None
):
    documents = [
        Document(
            text=(
                "梅雨の半ばには一旦天気が回復する期間が出現することがある。"
                "この期間のことを梅雨の中休みという。"
            )
        ),
        Document(
            text="梅雨の期間はふつう一か月ほどである。梅雨の期間中ほとんど雨が降らない年もある。"
        ),
    ]
    pack = DenseXRetrievalPack(documents, embed_model="none", query_llm="none")
    facts = assemble_context(pack.retrieve("梅雨の半ばに一旦天気が回復する期間を何という？"))[
        0
    ].node.get_content()
    assert facts.splitlines()[:2] == [
        "- 梅雨の半ばには一旦天気が回復する期間が出現することがある。",
        "- この期間のことを梅雨の中休みという。",
    ]
