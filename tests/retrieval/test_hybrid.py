from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.retrieval.trust import LanguageTrust
from tests.searching import (
    ENGLISH,
    JAPANESE,
    MORE_JAPANESE,
    QUESTIONS,
    EnglishEmbedding,
    ShortEmbedding,
    documents,
    identity,
    sources,
)

MODES = ["recursive", "auto_merging"]
SEARCHES: dict[str, dict[str, Any]] = {
    "lexical": {"embed_model": "none"},
    "dense": {"embed_model": ShortEmbedding(), "hybrid": False},
    "hybrid": {"embed_model": ShortEmbedding()},
}


class HybridStore(SimpleVectorStore):
    """A vector store with a hybrid mode: it keeps the questions that it gets, and answers them by their
    embeddings."""

    _questions: list[VectorStoreQuery] = PrivateAttr(default_factory=list)

    @property
    def questions(self) -> list[VectorStoreQuery]:
        return self._questions

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        self._questions.append(query)
        return super().query(replace(query, mode=VectorStoreQueryMode.DEFAULT), **kwargs)


def mixed() -> list[Document]:
    return documents(ENGLISH, JAPANESE)


def mostly_japanese() -> list[Document]:
    return documents(ENGLISH, JAPANESE, MORE_JAPANESE)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged about languages that an embedding model does not know."""
    return [
        record.getMessage() for record in caplog.records if "may not know" in record.getMessage()
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answering_passage_comes_first_in_both_languages(mode: str, question: str) -> None:
    pack = DenseXRetrievalPack(mixed(), embed_model=ShortEmbedding(), mode=mode)
    assert sources(pack.retrieve(question))[0] == QUESTIONS[question]


@pytest.mark.parametrize("question", ["Xylophonists?", "🚇🎉", "of the and", "Ελλάδα", " \n\u3000"])
def test_a_question_none_of_whose_words_occurs_is_answered_by_meaning(
    question: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Which is nothing to be warned of."""
    model = ShortEmbedding()
    both = DenseXRetrievalPack(mixed(), embed_model=model)
    dense = DenseXRetrievalPack(mixed(), embed_model=model, hybrid=False)
    caplog.clear()
    with caplog.at_level(logging.INFO, "llama_pack_densex.retrieval"):
        found = identity(both, question)
    assert found == identity(dense, question)
    assert len(found) == 4
    assert caplog.text == ""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("search", SEARCHES)
async def test_asynchronous_search_finds_the_same(mode: str, search: str) -> None:
    pack = DenseXRetrievalPack(mixed(), mode=mode, **SEARCHES[search])
    for question in (*QUESTIONS, "Xylophonists?", "the lamp of the bridge"):
        found = [
            (hit.node.node_id, hit.score, hit.node.metadata)
            for hit in await pack.aretrieve(question)
        ]
        assert found == [
            (hit.node.node_id, hit.score, hit.node.metadata) for hit in pack.retrieve(question)
        ]


@pytest.mark.parametrize("search", SEARCHES)
def test_an_empty_question_finds_nothing_or_anything_but_does_not_fail(search: str) -> None:
    pack = DenseXRetrievalPack(mixed(), query_llm="none", **SEARCHES[search])
    assert pack.retrieve("") == []
    assert pack.run("").metadata["outcome"] == "vague"


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.slow_cases("*", but=["hybrid"])
def test_a_very_long_question_is_answered(search: str) -> None:
    pack = DenseXRetrievalPack(mixed(), **SEARCHES[search])
    for question in ("lamp " * 20_000, "a" * 100_000, "琵琶湖" * 33_000):
        assert len(pack.retrieve(question)) <= 4


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("mode", MODES)
def test_more_nodes_than_there_are_may_be_asked_for(search: str, mode: str) -> None:
    pack = DenseXRetrievalPack(mixed(), mode=mode, **SEARCHES[search])
    for top_k in (10**6, 10**10, 10**20):
        found = pack.retrieve("lamp", similarity_top_k=top_k)
        assert len(found) == (1 if search == "lexical" else 12)


@pytest.mark.parametrize("search", SEARCHES)
async def test_a_lone_surrogate_in_a_question_does_no_harm(search: str) -> None:
    class Strict(ShortEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            query.encode("utf-8")  # as tokenizers and servers do
            return super()._get_query_embedding(query)

    options = (
        SEARCHES[search] if search == "lexical" else {**SEARCHES[search], "embed_model": Strict()}
    )
    pack = DenseXRetrievalPack(mixed(), **options)
    assert sources(pack.retrieve("琵琶湖は滋賀県にある。\ud800"))[0] == "琵琶湖"
    assert sources(await pack.aretrieve("琵琶湖は滋賀県にある。\ud800"))[0] == "琵琶湖"


@pytest.mark.parametrize("search", ["dense", "hybrid"])
def test_an_embedding_that_comes_with_the_question_is_used(search: str) -> None:
    model = ShortEmbedding()
    pack = DenseXRetrievalPack(mixed(), **{**SEARCHES[search], "embed_model": model})
    given = QueryBundle("xylophonists", embedding=model.get_text_embedding(ENGLISH["miso"]))
    assert sources(pack.retrieve(given))[0] == "miso"
    assert model.asked == 0


@pytest.mark.parametrize("search", ["dense", "hybrid"])
def test_other_texts_may_be_embedded_in_the_place_of_the_question(search: str) -> None:
    pack = DenseXRetrievalPack(mixed(), **SEARCHES[search])
    other = QueryBundle("xylophonists", custom_embedding_strs=[JAPANESE["醤油"], "醤油"])
    assert sources(pack.retrieve(other))[0] == "醤油"


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("mode", MODES)
def test_a_corpus_of_one_passage_is_searched(search: str, mode: str) -> None:
    pack = DenseXRetrievalPack(documents({"湖": "琵琶湖は大きい。"}), mode=mode, **SEARCHES[search])
    (found,) = pack.retrieve("琵琶湖は大きいか")
    assert found.node.ref_doc_id == "湖"


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("mode", MODES)
def test_documents_of_equal_text_are_all_found(search: str, mode: str) -> None:
    same = documents({f"copy {n}": "The lamp is red. 琵琶湖は大きい。" for n in range(12)})
    pack = DenseXRetrievalPack(same, mode=mode, **SEARCHES[search])
    assert len(set(sources(pack.retrieve("red lamp", similarity_top_k=10)))) == 10
    assert len(set(sources(pack.retrieve("琵琶湖", similarity_top_k=99)))) == 12


@pytest.mark.parametrize("heading", ["title", "section"])
@pytest.mark.parametrize("search", ["lexical", "hybrid"])
def test_headings_tell_passages_of_equal_text_apart(search: str, heading: str) -> None:
    names = [f"{name} Ltd" for name in ("Ashby", "Birch", "Calder", "Denby")]
    text = "Sales rose by three percent in the spring, and fell in the autumn. " * 20
    same = [
        Document(text=text, id_=name, metadata={"title": name})
        if heading == "title"
        else Document(text=f"# {name}\n\n{text}", id_=name, metadata={"title": "Sales"})
        for name in names
    ]
    pack = DenseXRetrievalPack(same, dense_weight=0, **SEARCHES[search])
    for name in names:
        results = pack.retrieve(f"By how much did the sales of {name} rise?", similarity_top_k=2)
        assert sources(results) == [name, name]


@pytest.mark.parametrize("mode", MODES)
def test_a_language_that_the_model_does_not_know_is_searched_by_words_alone(mode: str) -> None:
    model = EnglishEmbedding()
    pack = DenseXRetrievalPack(mostly_japanese(), embed_model=model, mode=mode)
    by_words = DenseXRetrievalPack(mostly_japanese(), embed_model="none", mode=mode)
    for question in (question for question in QUESTIONS if not question.isascii()):
        assert identity(pack, question) == identity(by_words, question)
    assert model.asked == 0


def test_what_was_found_out_about_a_model_can_be_asked() -> None:
    pack = DenseXRetrievalPack(mostly_japanese(), embed_model=EnglishEmbedding())
    assert not pack.languages["ja"].known
    assert pack.languages["en"].known  # there are too few passages to say otherwise
    assert pack.languages["en"].first is None
    assert pack.languages["ja"].passages == len(JAPANESE) + len(MORE_JAPANESE)
    assert (
        DenseXRetrievalPack(mostly_japanese(), embed_model=ShortEmbedding()).languages["ja"].known
    )


def test_a_language_that_the_user_says_it_knows_is_searched_by_meaning_too() -> None:
    model = EnglishEmbedding()
    pack = DenseXRetrievalPack(mostly_japanese(), embed_model=model, languages=["ja"])
    pack.retrieve("将棋の駒は何枚ありますか。")
    assert model.asked == 1


def test_a_language_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"languages='Japanese': .*ja.zh.ko"):
        DenseXRetrievalPack(mixed(), embed_model=EnglishEmbedding(), languages=["Japanese"])


def test_few_passages_are_no_evidence(caplog: pytest.LogCaptureFixture) -> None:
    model = EnglishEmbedding()
    pack = DenseXRetrievalPack(mixed(), embed_model=model)
    assert sources(pack.retrieve("将棋の駒は何枚ありますか。"))[0] == "将棋"
    assert model.asked == 1
    assert all(trust.known for trust in pack.languages.values())
    assert warnings(caplog) == []


def test_passages_that_are_too_much_alike_are_no_evidence(caplog: pytest.LogCaptureFixture) -> None:
    alike = {
        f"品{number}": f"この品の値段は{number}円である。色は赤い。" for number in range(100, 140)
    }
    pack = DenseXRetrievalPack(documents(alike), embed_model=EnglishEmbedding())
    assert pack.languages["ja"] == LanguageTrust("ja", 40)
    assert warnings(caplog) == []


def test_a_language_that_it_knows_is_still_searched_by_meaning_in_the_same_corpus() -> None:
    model = EnglishEmbedding()
    pack = DenseXRetrievalPack(mostly_japanese(), embed_model=model)
    assert sources(pack.retrieve("fermenting soybean"))[0] == "miso"
    assert model.asked == 1


def test_questions_in_no_language_are_searched_by_words_where_the_model_knows_none_of_the_documents() -> (
    None
):
    model = EnglishEmbedding()
    pack = DenseXRetrievalPack(documents(JAPANESE, MORE_JAPANESE), embed_model=model)
    assert sources(pack.retrieve("1964")) == ["新幹線"]
    assert model.asked == 0


def test_an_unknown_language_is_warned_of_once_when_it_is_indexed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack = DenseXRetrievalPack(
        mostly_japanese(), embed_model=EnglishEmbedding(), persist_dir=tmp_path / "index"
    )
    (warning,) = warnings(caplog)
    assert "EnglishEmbedding" in warning
    assert "may not know Japanese" in warning
    assert "searched by keywords alone" in warning
    assert 'languages=["ja"]' in warning
    caplog.clear()
    for question in QUESTIONS:
        pack.retrieve(question)
    pack.insert(documents({"雪": "雪は冬に降る。北海道では深く積もる。春に解ける。"}))
    loaded = DenseXRetrievalPack.load(tmp_path / "index", embed_model=EnglishEmbedding())
    loaded.retrieve(next(iter(QUESTIONS)))
    loaded.insert(documents({"梅雨": "梅雨は六月に始まる。雨の日が続く。七月に明ける。"}))
    assert warnings(caplog) == []


def test_what_is_known_of_the_model_survives_loading(tmp_path: Path) -> None:
    DenseXRetrievalPack(
        mostly_japanese(), embed_model=EnglishEmbedding(), persist_dir=tmp_path / "index"
    )
    model = EnglishEmbedding()
    loaded = DenseXRetrievalPack.load(tmp_path / "index", embed_model=model)
    by_words = DenseXRetrievalPack(mostly_japanese(), embed_model="none")
    for question in (question for question in QUESTIONS if not question.isascii()):
        assert identity(loaded, question) == identity(by_words, question)
    assert model.asked == 0


@pytest.mark.parametrize("granularity", [("sentence", "passage"), ("proposition",)])
@pytest.mark.slow_cases("*", but=["*granularity1"])
def test_passages_that_come_one_by_one_are_judged_together(
    granularity: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, texts = tmp_path / "index", {**JAPANESE, **MORE_JAPANESE}
    options: dict[str, Any] = {"granularity": granularity}
    DenseXRetrievalPack(
        documents(ENGLISH), embed_model=EnglishEmbedding(), persist_dir=folder, **options
    )
    for start in range(0, len(texts), 5):  # as a new process each day
        more = dict(list(texts.items())[start : start + 5])
        loaded = DenseXRetrievalPack.load(folder, embed_model=EnglishEmbedding())
        assert warnings(caplog) == []
        loaded.insert(documents(more))
        if start + 5 >= 15:  # of two sentences each, which count twice
            break
    assert len(warnings(caplog)) == 1
    assert loaded.languages["ja"].passages == 15
    assert (
        DenseXRetrievalPack.load(folder, embed_model=EnglishEmbedding()).languages
        == loaded.languages
    )
    assert loaded.languages["ja"].unrelated is not None


@pytest.mark.parametrize(
    "options",
    [{"hybrid": False}, {"dense_weight": 0.5}, {"hybrid": "store", "vector_store": HybridStore()}],
)
def test_the_warning_says_what_helps(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    DenseXRetrievalPack(mostly_japanese(), embed_model=EnglishEmbedding(), **options)
    (warning,) = warnings(caplog)
    assert "if hybrid is on and dense_weight is not set" in warning
    assert "Pass an embedding model that knows the language" in warning


def test_the_users_weight_holds_for_languages_that_the_model_does_not_know_too() -> None:
    question = "新幹線が開業したのは何年ですか。"
    model = EnglishEmbedding()
    dense = DenseXRetrievalPack(documents(JAPANESE), embed_model=model, hybrid=False)
    by_words = DenseXRetrievalPack(documents(JAPANESE), embed_model="none")
    found = {
        weight: identity(
            DenseXRetrievalPack(documents(JAPANESE), embed_model=model, dense_weight=weight),
            question,
        )
        for weight in (0.0, 0.7, 1.0)
    }
    assert found[0.0] == identity(by_words, question)
    assert found[1.0] == identity(dense, question)
    assert found[0.7] not in (found[0.0], found[1.0])


def test_without_weight_the_question_is_not_embedded() -> None:
    model = ShortEmbedding()
    DenseXRetrievalPack(mixed(), embed_model=model, dense_weight=0.0).retrieve("bridge")
    assert model.asked == 0


def test_the_stores_own_hybrid_search_is_not_the_embedded_stores() -> None:
    with pytest.raises(
        ValueError, match=r'hybrid="store" is for a vector_store of your own.*hybrid=True'
    ):
        DenseXRetrievalPack(mixed(), embed_model=ShortEmbedding(), hybrid="store")


@pytest.mark.parametrize("mode", MODES)
async def test_the_stores_own_hybrid_search_gets_the_whole_question(mode: str) -> None:
    store = HybridStore()
    pack = DenseXRetrievalPack(
        documents(ENGLISH, kind="text") + documents(JAPANESE, kind="文"),
        embed_model=ShortEmbedding(), vector_store=store, hybrid="store", dense_weight=0.3, mode=mode,
    )  # fmt: skip
    question = "新幹線が開業したのは何年ですか。"
    filters = MetadataFilters(filters=[MetadataFilter(key="kind", value="文")])
    found = pack.retrieve(question, similarity_top_k=3, filters=filters)
    asked = store.questions[-1]
    assert asked.mode == VectorStoreQueryMode.HYBRID
    assert asked.alpha == 0.3
    assert asked.query_str == question
    # evaluated here, alike for all stores
    assert {hit.node.metadata["kind"] for hit in found} == {"文"}
    assert asked.query_embedding == ShortEmbedding()._embed(question)
    assert sources(found)[0] == "新幹線"
    assert set(sources(found)) <= set(JAPANESE)
    assert len(found) == 3
    waiting = await pack.aretrieve(question, similarity_top_k=3, filters=filters)
    assert [hit.node.node_id for hit in waiting] == [hit.node.node_id for hit in found]


def test_without_the_users_weight_the_store_decides() -> None:
    store = HybridStore()
    DenseXRetrievalPack(
        mixed(), embed_model=ShortEmbedding(), vector_store=store, hybrid="store"
    ).retrieve("lamp")
    assert store.questions[-1].alpha is None


def test_a_plain_query_of_a_users_store_is_no_hybrid_one() -> None:
    store = HybridStore()
    DenseXRetrievalPack(mixed(), embed_model=ShortEmbedding(), vector_store=store).retrieve("lamp")
    assert {question.mode for question in store.questions} == {VectorStoreQueryMode.DEFAULT}


class ChangedWhileEmbedding(ShortEmbedding):
    """Has a document replaced between the search by words and that by embeddings."""

    _change: Callable[[], object] = PrivateAttr(default_factory=lambda: lambda: None)

    def _get_query_embedding(self, query: str) -> list[float]:
        self._change()
        return super()._get_query_embedding(query)


@pytest.mark.parametrize("store", [None, SimpleVectorStore])
@pytest.mark.parametrize("mode", MODES)
def test_a_document_that_is_replaced_in_the_middle_of_a_question_is_found(
    mode: str, store: Any
) -> None:
    model = ChangedWhileEmbedding()
    pack = DenseXRetrievalPack(
        mixed(),
        embed_model=model,
        languages=["en", "ja"],
        mode=mode,
        vector_store=store and store(),
    )
    model._change = lambda: pack.insert(
        Document(id_="lighthouse", text="The lamp of the lighthouse is new.")
    )
    found = identity(pack, "the lamp of the lighthouse")
    model._change = lambda: None
    assert found == identity(pack, "the lamp of the lighthouse")
    assert pack.missing_links == 0


ROWS = "".join(
    f"| Ada Byron {number} | Berlin | 55{number} | Senior engineer |\n" for number in range(40)
)
STAFF = (
    f"| Name | Office | Extension | Grade |\n|---|---|---|---|\n{ROWS}\n- Blue pen\n- Paper, A4\n"
)


@pytest.mark.parametrize(
    ("prose", "language"),
    [
        (
            "The staff of the company work in three offices, and each of them has an extension.",
            "en",
        ),
        (
            "Die Mitarbeiter der Firma arbeiten in drei Büros, und jeder von ihnen hat eine Durchwahl.",
            "latin",
        ),
        (
            "Les employés de la société travaillent dans trois bureaux, et chacun a un numéro de poste.",
            "latin",
        ),
        (
            "Nhân viên của công ty làm việc tại ba văn phòng và mỗi người có một số máy lẻ riêng.",
            "latin",
        ),
        ("社員は三つの事務所で働いており、それぞれに内線番号があります。", "ja"),
    ],
)
def test_tables_and_lists_are_in_the_language_of_their_document(prose: str, language: str) -> None:
    texts = {f"{number}": f"# Staff {number}\n\n{prose}\n\n{STAFF}" for number in range(3)}
    pack = DenseXRetrievalPack(documents(texts), embed_model=ShortEmbedding(), query_llm="none")
    assert {*pack.languages} == {language}
