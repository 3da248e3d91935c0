from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.bridge.pydantic import Field
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.retrieval.hits import matched_units
from tests.searching import (
    ENGLISH,
    JAPANESE,
    ShortEmbedding,
    documents,
    identity,
    passage_of,
    sources,
)

pytestmark = pytest.mark.together("torch")

MODES = ["recursive", "auto_merging"]
UNITS = ["passage", "proposition"]
QUESTION = "lamp bridge Moon 新幹線 琵琶湖 将棋"


class LettersRerank(BaseNodePostprocessor):
    """Scores a node by how often a letter is in it; changes what it gets, as postprocessors do."""

    letter: str = "e"
    top_n: int = 2
    drops: str = Field(default="", description="Nodes with this text are left out.")
    seen: list[str] = Field(default_factory=list, exclude=True)
    lengths: list[int] = Field(default_factory=list, exclude=True)

    @classmethod
    def class_name(cls) -> str:
        return "LettersRerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        assert query_bundle is not None
        self.lengths.append(len(nodes))
        for node in nodes:
            self.seen.append(node.node.get_content())
            node.node.metadata["retrieval_score"] = node.score
            node.score = float(node.node.get_content().count(self.letter))
        kept = [
            node for node in nodes if not self.drops or self.drops not in node.node.get_content()
        ]
        return sorted(kept, key=lambda node: -(node.score or 0.0))[: self.top_n]


def build(reranker: BaseNodePostprocessor, **options: Any) -> DenseXRetrievalPack:
    return DenseXRetrievalPack(
        documents(ENGLISH, JAPANESE),
        query_llm="none",
        embed_model=ShortEmbedding(),
        reranker=reranker,
        **options,
    )


def letters(hit: NodeWithScore, letter: str) -> float:
    return float(hit.node.get_content().count(letter))


@pytest.mark.parametrize("letter", ["s", "の"])
def test_passages_come_in_the_rerankers_order_with_its_scores(letter: str) -> None:
    found = build(LettersRerank(letter=letter)).retrieve(QUESTION)
    scores = [hit.score for hit in found]
    assert scores == [letters(hit, letter) for hit in found]
    texts = (ENGLISH | JAPANESE).values()
    assert scores == sorted((float(text.count(letter)) for text in texts), reverse=True)[:4]


@pytest.mark.parametrize("letter", ["s", "の"])
def test_scored_by_propositions_a_passage_counts_as_its_best_one(letter: str) -> None:
    reranker = LettersRerank(letter=letter)
    found = build(reranker, rerank="proposition").retrieve(QUESTION, similarity_top_k=6)
    scores = [hit.score for hit in found]
    assert scores == sorted(scores, reverse=True)
    for hit in found:
        units = matched_units(hit.node)
        assert [unit.score for unit in units] == sorted(
            (float(u.text.count(letter)) for u in units), reverse=True
        )
        assert hit.score == units[0].score
        assert hit.node.metadata[GRANULARITY_KEY] == "passage"
    assert set(reranker.seen).isdisjoint((ENGLISH | JAPANESE).values())


@pytest.mark.parametrize("drops", ["", "は"])
async def test_auto_merging_returns_the_proposition_that_the_reranker_likes_best(
    drops: str,
) -> None:
    pack = DenseXRetrievalPack(
        documents(ENGLISH, JAPANESE), embed_model="none", mode="auto_merging", simple_ratio_thresh=0.9,
        reranker=LettersRerank(drops=drops), rerank="proposition",
    )  # fmt: skip
    question = "Moon pull, glass sand soda, lamp lighthouse cliff, 琵琶湖の固有種は日本で最も大きい"
    found = pack.retrieve(question)
    alone = [hit for hit in found if hit.node.metadata[GRANULARITY_KEY] == "proposition"]
    assert len(alone) > 2
    for hit in alone:
        assert hit.node.get_content() == matched_units(hit.node)[0].text
        assert hit.score == letters(hit, "e")
        assert passage_of(hit.node) != hit.node.node_id
    assert [hit.node.node_id for hit in await pack.aretrieve(question)] == [
        hit.node.node_id for hit in found
    ]


@pytest.mark.parametrize("rerank", UNITS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("top_k", [1, 4, 11])
def test_top_k_alone_cuts(rerank: str, mode: str, top_k: int) -> None:
    reranker = LettersRerank(top_n=1)
    found = build(reranker, rerank=rerank, mode=mode).retrieve(QUESTION, similarity_top_k=top_k)
    assert len({hit.node.node_id for hit in found}) == len(found) == top_k
    assert reranker.top_n == 1


@pytest.mark.parametrize("rerank", UNITS)
@pytest.mark.parametrize("mode", MODES)
async def test_asynchronous_reranking_does_the_same(rerank: str, mode: str) -> None:
    pack = build(LettersRerank(), rerank=rerank, mode=mode)
    waiting = [(hit.node.node_id, hit.score) for hit in await pack.aretrieve(QUESTION)]
    assert waiting == identity(pack, QUESTION)
    assert str(await pack.arun(QUESTION)) == str(pack.run(QUESTION))


@pytest.mark.parametrize("rerank", UNITS)
def test_the_index_keeps_its_nodes_as_they_were(rerank: str) -> None:
    pack = build(LettersRerank(), rerank=rerank)
    before = [node.to_json() for node in pack.nodes()]
    pack.retrieve(QUESTION)
    assert [node.to_json() for node in pack.nodes()] == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rerank", UNITS)
def test_what_the_reranker_drops_is_not_returned(mode: str, rerank: str) -> None:
    pack = build(LettersRerank(drops="湖"), rerank=rerank, mode=mode, granularity=("proposition",))
    found = pack.retrieve(QUESTION, similarity_top_k=12)
    if rerank == "passage":
        assert "琵琶湖" not in sources(found)
    for hit in found:
        assert all("湖" not in unit.text for unit in matched_units(hit.node)) or rerank == "passage"


@pytest.mark.parametrize("rerank", UNITS)
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_score_that_is_no_number_is_none_that_json_lacks(rerank: str, number: float) -> None:
    class Broken(LettersRerank):
        def _postprocess_nodes(
            self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
        ) -> list[NodeWithScore]:
            return [
                NodeWithScore(node=node.node, score=number if place % 2 else 1.0)
                for place, node in enumerate(nodes)
            ]

    found = build(Broken(), rerank=rerank).retrieve(QUESTION)
    assert len(found) == 4
    assert all(json.dumps(hit.to_dict(), allow_nan=False) for hit in found)


@pytest.mark.parametrize("rerank", UNITS)
def test_a_reranker_may_drop_everything(rerank: str) -> None:
    pack = build(SimilarityPostprocessor(similarity_cutoff=2.0), rerank=rerank)
    assert pack.retrieve(QUESTION) == []
    assert pack.run(QUESTION).metadata["outcome"] == "not_found"


def test_what_nothing_found_is_not_reranked() -> None:
    reranker = LettersRerank()
    pack = DenseXRetrievalPack(documents(ENGLISH), embed_model="none", reranker=reranker)
    assert pack.retrieve("xylophonists") == []
    assert reranker.lengths == []


@pytest.mark.parametrize(("rerank_k", "expected"), [(None, 12), (3, 3), (1, 2)])
def test_rerank_k_says_how_many_passages_are_scored(rerank_k: int | None, expected: int) -> None:
    reranker = LettersRerank()
    found = build(reranker, rerank_k=rerank_k).retrieve(QUESTION, similarity_top_k=2)
    assert reranker.lengths == [expected]
    assert len(found) == 2


@pytest.mark.parametrize("rerank", UNITS)
def test_one_passage_takes_one_place_whatever_the_reranker_likes(rerank: str) -> None:
    many = " ".join(f"The eel number {n} needs deep green seawater." for n in range(40))
    corpus = [Document(id_="many", text=many), *documents(ENGLISH)]
    pack = DenseXRetrievalPack(
        corpus, embed_model=ShortEmbedding(), reranker=LettersRerank(), rerank=rerank,  # type: ignore[arg-type]
        text_splitter=whole_documents(),
    )  # fmt: skip
    assert sorted(sources(pack.retrieve("eel bridge lamp", similarity_top_k=7))) == sorted(
        ["many", *ENGLISH]
    )


def whole_documents() -> Any:
    from llama_index.core.node_parser import SentenceSplitter

    return SentenceSplitter(chunk_size=4000, chunk_overlap=0)


def test_units_are_scored_with_the_users_metadata_and_without_our_own() -> None:
    class Reader(LettersRerank):
        def _postprocess_nodes(
            self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
        ) -> list[NodeWithScore]:
            self.seen += [node.node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
            return nodes

    reader = Reader()
    pack = DenseXRetrievalPack(
        documents({"湖": "琵琶湖は大きい。"}, place="滋賀"),
        embed_model="none", reranker=reader, rerank="proposition", embed_metadata=["place"],
    )  # fmt: skip
    pack.retrieve("琵琶湖")
    assert reader.seen
    assert all(text.startswith("place: 滋賀\n\n") and "densex" not in text for text in reader.seen)


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny cross-encoder with random weights, made here: two layers, a vocabulary of single characters."""
    reason = 'needs torch and sentence-transformers: pip install "llama-pack-densex[huggingface]"'
    torch = pytest.importorskip("torch", reason=reason)
    transformers = pytest.importorskip("transformers", reason=reason)
    pytest.importorskip("sentence_transformers", reason=reason)
    folder = tmp_path_factory.mktemp("cross-encoder")
    characters = sorted(set("".join((ENGLISH | JAPANESE).values()).lower()) - set(" "))
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *characters,
        *(f"##{c}" for c in characters),
    ]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), tokenize_chinese_chars=True)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    config = transformers.BertConfig(
        vocab_size=len(words), max_position_embeddings=512, num_labels=1, **shape
    )
    config.initializer_range = 0.5  # so that different texts score differently
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("rerank", UNITS)
@pytest.mark.parametrize("mode", MODES)
async def test_a_cross_encoder_reranks(cross_encoder: Path, rerank: str, mode: str) -> None:
    from llama_index.core.postprocessor import SentenceTransformerRerank

    reranker = SentenceTransformerRerank(
        model=str(cross_encoder), top_n=1, device="cpu", keep_retrieval_score=True
    )
    pack = build(reranker, rerank=rerank, mode=mode)
    for question in ("When did the Akashi Bridge open?", "新幹線が開業したのは何年ですか。"):
        found = pack.retrieve(question, similarity_top_k=5)
        scores = [hit.score for hit in found]
        assert len({hit.node.node_id for hit in found}) == 5
        assert len(set(scores)) > 1
        assert scores == sorted(scores, reverse=True)
        assert identity(pack, question, similarity_top_k=5) == [
            (hit.node.node_id, hit.score)
            for hit in await pack.aretrieve(question, similarity_top_k=5)
        ]
        # numpy's numbers would not be JSON
        assert all(json.loads(hit.node.to_json()) for hit in found)
        if rerank == "passage" and mode == "recursive":
            pairs = [(question, hit.node.get_content()) for hit in found]
            assert scores == pytest.approx(reranker._model.predict(pairs).tolist(), abs=1e-4)
