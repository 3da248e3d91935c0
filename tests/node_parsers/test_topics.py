"""Passages that end where the topic changes."""

from __future__ import annotations

import pickle
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document

from llama_pack_densex import (
    DenseXRetrievalPack,
    HierarchicalPropositionNodeParser,
    PropositionNodeParser,
)
from llama_pack_densex.node_parsers.passages import length_of
from llama_pack_densex.node_parsers.splitting import SectionNodeParser
from llama_pack_densex.node_parsers.topics import TopicNodeParser, best_cuts, similarities
from tests.embedding import TrigramEmbedding

pytestmark = pytest.mark.together("torch")

TEA = ["Green tea is steamed tea.", "Black tea is oxidised tea.", "White tea is hardly rolled tea."]
TEA += ["Oolong tea is half oxidised tea.", "Yellow tea is a rare tea."]
RAIL = ["The railway was opened in 1872.", "The railway was electrified in 1925."]
LAKE = [
    "琵琶湖は日本最大の湖である。",
    "琵琶湖の面積は約670平方キロメートルである。",
    "琵琶湖の水は淀川に流れる。",
]
LINE = ["新幹線は1964年に開業した。", "新幹線の最高速度は時速210キロだった。"]
MODEL = TrigramEmbedding()


def passages(parser: TopicNodeParser, text: str) -> list[str]:
    return parser.split_text(text)


@pytest.mark.parametrize(
    ("first", "second", "between"),
    [(TEA, RAIL, " "), (RAIL, TEA, " "), (LAKE, LINE, ""), (LINE, LAKE, "\n")],
)
def test_a_passage_ends_where_the_topic_changes(
    first: list[str], second: list[str], between: str
) -> None:
    text = between.join([*first, *second])
    # so that more would fit than one topic
    size = max(length_of(between.join(part)) for part in (first, second)) + 8
    assert passages(TopicNodeParser(embed_model=MODEL, chunk_size=size), text) == [
        between.join(first),
        between.join(second),
    ]


def test_a_text_that_fits_is_one_passage_and_embeds_nothing() -> None:
    model = TrigramEmbedding()
    text = " ".join([*TEA, *RAIL])
    assert passages(TopicNodeParser(embed_model=model), f"\n{text} ") == [text]
    assert passages(TopicNodeParser(embed_model=model), " \n") == []
    assert model.embedded == 0


def test_a_heading_stays_with_what_it_is_above() -> None:
    text = f"# Tea\n\n{' '.join(TEA)}\n\n## The tea railway\n\n{' '.join(RAIL)}"
    for size in (20, 30, 40, 50):
        for passage in passages(TopicNodeParser(embed_model=MODEL, chunk_size=size), text):
            assert not passage.rpartition("\n")[2].startswith("#")


def test_only_a_sentence_that_is_too_long_is_cut_inside() -> None:
    text = " ".join([*TEA, "word " * 100 + "ends.", *RAIL])
    made = passages(TopicNodeParser(embed_model=MODEL, chunk_size=30), text)
    assert max(length_of(passage) for passage in made) <= 30
    assert "".join("".join(made).split()) == "".join(text.split())


PIECES = st.sampled_from(
    [
        *TEA,
        *RAIL,
        *LAKE,
        "# Head",
        "- item",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "!!",
        "𠮷野家。",
        "é",
    ]
)
TEXTS = st.lists(
    st.tuples(PIECES, st.sampled_from([" ", "", "\n", "\n\n", "　"])), max_size=25
).map(lambda parts: "".join(piece + gap for piece, gap in parts))


@settings(deadline=None)
@given(TEXTS, st.sampled_from([12, 30, 80]))
def test_passages_are_slices_of_bounded_size_and_lose_nothing(text: str, size: int) -> None:
    parser = PropositionNodeParser(
        base_parser=TopicNodeParser(embed_model=MODEL, chunk_size=size), granularity=()
    )
    nodes = parser.get_nodes_from_documents([Document(text=text)])
    covered = set[int]()
    for node in nodes:
        start, end = node.start_char_idx, node.end_char_idx  # type: ignore[attr-defined]
        assert text[start:end] == node.get_content()
        assert length_of(node.get_content()) <= size
        assert not covered & {*range(start, end)}
        covered |= {*range(start, end)}
    assert all(text[place].isspace() for place in range(len(text)) if place not in covered)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 9)), min_size=1, max_size=7),
    st.integers(1, 20),
)
def test_cuts_cross_the_least_similarity_of_all_that_keep_to_the_size(
    row: list[tuple[float, int]], most: int
) -> None:
    across, sizes = [gap for gap, _ in row[1:]], [size for _, size in row]

    def fits(cuts: list[int]) -> bool:
        return all(
            end - begin == 1 or sum(sizes[begin:end]) <= most for begin, end in pairwise(cuts)
        )

    def cost(cuts: list[int]) -> float:
        return sum(max(across[place - 1], 0.0) for place in cuts[1:-1])

    every = [
        [0, *some, len(sizes)]
        for n in range(len(sizes))
        for some in combinations(range(1, len(sizes)), n)
    ]
    chosen = best_cuts(across, sizes, most)
    assert chosen in every
    assert fits(chosen)
    assert cost(chosen) == pytest.approx(min(map(cost, filter(fits, every))))


def test_similarity_is_that_of_two_sentences_on_either_side() -> None:
    tea, rail = [1.0, 0.0], [0.0, 1.0]
    assert similarities(np.array([tea, tea, rail, rail])) == pytest.approx(
        [0.5**0.5, 0.0, 0.5**0.5]
    )
    assert similarities(np.array([tea])) == []
    assert similarities(np.zeros((2, 2))) == [0.0]


@pytest.mark.parametrize("model", [MODEL, "minilm"])
def test_it_is_a_base_parser_as_any_other(model: object) -> None:
    """Its settings come through dictionaries and pickles, and are a part of what tells a changed document."""
    parser = PropositionNodeParser(base_parser=TopicNodeParser(embed_model=model, chunk_size=30))
    document = Document(text=TEA[0], id_="tea")
    assert pickle.loads(pickle.dumps(parser)).document_hash(document) == parser.document_hash(
        document
    )
    other = PropositionNodeParser(
        base_parser=TopicNodeParser(embed_model="contriever", chunk_size=30)
    )
    assert other.document_hash(document) != parser.document_hash(document)
    made = PropositionNodeParser.from_dict(parser.to_dict())
    assert made.document_hash(document) == parser.document_hash(document)
    assert made.get_nodes_from_documents([document])


def test_it_is_a_level_above_propositions_and_under_sections() -> None:
    text = f"# Tea\n\n{' '.join(TEA * 3)}\n\n# Rails\n\n{' '.join(RAIL * 3)}"
    topics = TopicNodeParser(embed_model=MODEL, chunk_size=40)
    parser = HierarchicalPropositionNodeParser(levels=[SectionNodeParser(), topics], granularity=())
    pack = DenseXRetrievalPack(
        [Document(text=text)],
        node_parser=parser,
        mode="auto_merging",
        embed_model="none",
        query_llm="none",
    )
    assert pack.retrieve("When was the railway electrified?")
    assert {node.get_content() for node in pack.nodes()} > {
        *topics.split_text(text.partition("# Rails")[0].strip())
    }


@pytest.mark.parametrize("model", ["none", "nobody:x", "TrigramEmbedding: trigrams"])
def test_without_a_model_the_error_says_what_is_missing(model: str) -> None:
    parser = PropositionNodeParser(base_parser=TopicNodeParser(embed_model=model, chunk_size=10))
    with pytest.raises(
        ValueError, match=r"TopicNodeParser cannot split document .*(embedding|no provider)"
    ):
        parser.get_nodes_from_documents([Document(text=" ".join(TEA))])
