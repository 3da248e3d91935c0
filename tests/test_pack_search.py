from __future__ import annotations

import itertools
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.options import PackOptions
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor, count_words
from llama_pack_densex.retrieval.hits import matched_units
from tests.openai_server import OpenAIServer
from tests.searching import (
    ENGLISH,
    JAPANESE,
    QUESTIONS,
    ShortEmbedding,
    documents,
    identity,
    passage_of,
    sources,
)

MODES = ["recursive", "auto_merging"]
UNITS = ("proposition", "sentence", "passage")
SUBSETS = [part for size in (1, 2, 3) for part in itertools.combinations(UNITS, size)]
SEARCHES: dict[str, dict[str, Any]] = {
    "lexical": {"embed_model": "none"},
    "dense": {"embed_model": ShortEmbedding(), "hybrid": False},
    "hybrid": {"embed_model": ShortEmbedding()},
}


@pytest.mark.parametrize(
    ("mode", "granularity", "search"),
    [
        (mode, units, search)
        for mode, units, search in itertools.product(MODES, SUBSETS, SEARCHES)
        if units == UNITS
        or (mode, search) in (("recursive", "hybrid"), ("auto_merging", "lexical"))
    ],
)
@pytest.mark.slow_cases("auto_merging-*-lexical")
def test_every_choice_of_units_finds_distinct_passages(
    mode: str, granularity: tuple[str, ...], search: str
) -> None:
    with OpenAIServer(
        lambda body: '["The thing of this passage is 何か of note.", "It has a second fact."]'
    ) as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
        pack = DenseXRetrievalPack(
            documents(ENGLISH, JAPANESE), proposition_llm=llm, query_llm="none",
            mode=mode, granularity=granularity, **SEARCHES[search],
        )  # fmt: skip
        assert bool(server.requests) == ("proposition" in granularity)
    counts = pack.counts()
    assert bool(counts.propositions) == ("proposition" in granularity)
    assert bool(counts.sentences) == ("sentence" in granularity)
    for question, answer in QUESTIONS.items():
        found = pack.retrieve(question, similarity_top_k=6)
        passages = [passage_of(hit.node) for hit in found]
        assert len(passages) == len(set(passages))
        assert len(passages) == 6 or search == "lexical"
        assert answer in sources(found) or search == "dense"  # these embeddings are weak
        for hit in found:
            units = {unit.granularity for unit in matched_units(hit.node)}
            assert units <= set(granularity) - {"passage"}
            if mode == "recursive":
                assert hit.node.metadata[GRANULARITY_KEY] == "passage"


def one_long_and_many_short(count: int) -> list[Document]:
    long = " ".join(
        f"The red lamp number {n} hangs in the hall. 赤いランプ{n}が廊下にある。"
        for n in range(100)
    )
    short = {f"{n}": f"A red lamp of house {n}. 赤いランプが家{n}にある。" for n in range(count)}
    return [Document(id_="long", text=long), *documents(short)]


@pytest.mark.parametrize("search", SEARCHES)
def test_one_passage_never_fills_every_slot(search: str) -> None:
    pack = DenseXRetrievalPack(
        one_long_and_many_short(11), text_splitter=SentenceSplitter(chunk_size=8000, chunk_overlap=0),
        granularity=("proposition",), fetch_k=1, **SEARCHES[search],
    )  # fmt: skip
    assert pack.counts().passages == 12
    assert pack.counts().propositions > 200
    questions = ("the red lamp hangs in the hall", "赤いランプが廊下にある")
    for question, top_k in itertools.product(questions, [1, 4, 11, 12, 60]):
        found = [hit.node.node_id for hit in pack.retrieve(question, similarity_top_k=top_k)]
        assert len(found) == len(set(found)) == min(top_k, 12)


def test_a_table_of_contents_does_not_stand_before_what_it_leads_to() -> None:
    titles = ("Lamp", "Wick", "Oil", "Door", "Stairs")
    contents = "\n".join(
        f"2.{n} {title} . . . . . . . . . {n * 7}" for n, title in enumerate(titles, 1)
    )
    drinks = ("Rum", "Tea", "Ale", "Gin", "Mead")
    prices = "\n".join(
        f"1.{n} {title} . . . . . . . . . {60 - n}" for n, title in enumerate(drinks, 1)
    )
    beds = "\n".join(
        f"{n} {title} . . . . . . . . . {n * 50}"
        for n, title in enumerate(("Loft", *drinks[1:]), 1)
    )
    about = (
        "2.2 Wick\nIt is cut each night by the keeper, who has a pair of scissors for nothing else."
    )
    pack = DenseXRetrievalPack(
        [
            Document(text=text, id_=name)
            for name, text in (("c", contents), ("p", prices), ("b", beds), ("a", about))
        ],
        proposition_llm="none",
        embed_model="none",
    )
    assert [node.node.ref_doc_id for node in pack.retrieve("wick")] == ["a"]
    # words and numbers that are of use
    assert [node.node.ref_doc_id for node in pack.retrieve("rum")] == ["p"]
    assert [node.node.ref_doc_id for node in pack.retrieve("loft")] == ["b"]
    assert [unit.text for unit in pack.records("proposition") if unit.document_id == "c"] == [
        contents
    ]


@pytest.mark.parametrize("search", SEARCHES)
def test_a_passage_with_many_units_does_not_crowd_out_the_others_when_merging(search: str) -> None:
    pack = DenseXRetrievalPack(
        one_long_and_many_short(11), mode="auto_merging", fetch_k=1, **SEARCHES[search]
    )
    found = pack.retrieve("the red lamp of house 3", similarity_top_k=10)
    assert len({passage_of(hit.node) for hit in found}) == len(found) == 10
    assert len(set(sources(found))) > 5


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Köln liegt am Rhein.", "Koln"),
        ("Cafe Kowloon", "café"),
        ("廣島", "広島"),
        ("広島", "廣島"),
    ],
)
def test_words_are_found_without_their_accents_and_in_old_kanji(said: str, asked: str) -> None:
    pack = DenseXRetrievalPack(
        documents({"a": said, "b": "Miso is salty."}), "none", "none", "none"
    )
    assert sources(pack.retrieve(asked)) == ["a"]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("ภูเก็ตเป็นเกาะทางภาคใต้มีชายหาดสวยงาม", "ชายหาด"),
        ("ရန်ကုန်မြို့သည်အကြီးဆုံးမြို့ဖြစ်သည်။", "ရန်ကုန်"),
        ("दिल्ली भारत की राजधानी है।", "राजधानी"),
        ("الْقَاهِرَةُ عَاصِمَةُ مِصْرَ.", "عاصمة مصر"),
    ],
)
def test_words_of_scripts_with_signs_or_without_spaces_are_found_whole(
    said: str, asked: str
) -> None:
    others = {
        "b": "เชียงใหม่ตั้งอยู่ทางภาคเหนือ",
        "c": "मुंबई महाराष्ट्र में है।",
        "d": "မန္တလေး",
        "e": "تقع على البحر.",
    }
    pack = DenseXRetrievalPack(documents({"a": said, **others}), "none", "none", "none")
    assert sources(pack.retrieve(asked))[0] == "a"


def test_identical_passages_of_one_document_are_all_found() -> None:
    text = "\n\n\n".join(
        ["The lamp is red and hangs in the old hall by the sea, where the keeper lit it."] * 30
    )
    pack = DenseXRetrievalPack(
        [Document(text=text)], embed_model=ShortEmbedding(), text_splitter=short_passages()
    )
    assert pack.counts().passages > 10
    found = pack.retrieve("lamp", similarity_top_k=pack.counts().passages)
    assert len({hit.node.node_id for hit in found}) == pack.counts().passages


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hybrid", [True, False])
def test_equals_come_in_one_order_in_every_store_whatever_was_written_first(
    mode: Any, hybrid: bool
) -> None:
    copies = documents({f"copy-{n}": ENGLISH["miso"] for n in range(6)}, ENGLISH)
    made: dict[str, Any] = {"embed_model": ShortEmbedding(), "mode": mode, "hybrid": hybrid}
    packs = [
        DenseXRetrievalPack(copies, **made),
        DenseXRetrievalPack(copies[::-1], **made),
        DenseXRetrievalPack(copies, vector_store=SimpleVectorStore(), **made),
    ]
    packs[0].insert(copies[2])
    questions = ("How is miso made?", "koji")
    first, *others = [
        [[one[0] for one in identity(pack, question)] for question in questions] for pack in packs
    ]
    assert others == [first, first]


def short_passages() -> SentenceSplitter:
    return SentenceSplitter(chunk_size=20, chunk_overlap=0)


@pytest.fixture
def server() -> Any:
    with OpenAIServer(lambda body: "An answer.[^1]") as running:
        yield running


def context_read(server: OpenAIServer) -> str:
    """The context in the last question to the LLM."""
    found = re.search(r"(documents \w+\n)(.*)\n\1", server.requests[-1].last_message, re.DOTALL)
    assert found
    return found.group(2)


def reading(server: OpenAIServer, context: Any, **options: Any) -> DenseXRetrievalPack:
    return DenseXRetrievalPack(
        documents(ENGLISH, JAPANESE),
        proposition_llm="none",
        query_llm=OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test"),
        embed_model=ShortEmbedding(),
        context=context,
        **options,
    )


@pytest.mark.parametrize(
    ("question", "fact", "passage"),
    [
        ("How long is the main span?", "Its main span is 1,991 metres long.", ENGLISH["bridge"]),
        ("将棋の駒は何枚か", "駒は四十枚ある。", JAPANESE["将棋"]),
    ],
)
async def test_the_llm_reads_what_was_chosen(
    server: OpenAIServer, question: str, fact: str, passage: str
) -> None:
    read = {}
    for mode in ("passages", "propositions", "propositions+passages", "window"):
        pack = reading(server, mode)
        assert str(pack.run(question, similarity_top_k=2)) == "An answer.[^1]"
        read[mode] = context_read(server)
        await pack.arun(question, similarity_top_k=2)
        assert context_read(server) == read[mode]
        assert fact in read[mode]
    assert read["passages"].startswith(f"footnote: [^1]\n\n{passage}")
    assert f"- {fact}" in read["propositions"]
    assert passage not in read["propositions"]
    assert read["propositions+passages"].index(f"- {fact}") < read["propositions+passages"].index(
        passage
    )
    assert "- " not in read["window"]


@pytest.mark.parametrize(
    ("unit", "mode", "retrieval"),
    [
        ("words", "passages", "recursive"),
        ("words", "propositions+passages", "auto_merging"),
        ("characters", "propositions+passages", "recursive"),
        ("characters", "propositions", "auto_merging"),
        ("tokens", "window", "recursive"),
        ("tokens", "passages", "auto_merging"),
    ],
)
def test_what_the_llm_reads_stays_within_the_budget(
    server: OpenAIServer, unit: Any, mode: Any, retrieval: str
) -> None:
    size = {"words": count_words, "characters": len, "tokens": lambda text: len(text.split())}[unit]
    for budget in (15, 40, 90):
        context = PropositionContextPostprocessor(
            mode=mode, unit=unit, budget=budget, tokenizer=str.split
        )
        pack = reading(server, context, mode=retrieval)
        for question in QUESTIONS:
            server.requests.clear()
            answer = pack.run(question)
            assert len(answer.source_nodes) == 4
            if server.requests:  # nothing may fit
                assert size(context_read(server)) <= budget


def test_an_answer_where_nothing_passes_the_filters_asks_no_llm(server: OpenAIServer) -> None:
    nothing = MetadataFilters(filters=[MetadataFilter(key="place", value="nowhere")])
    assert str(reading(server, "passages").run("lamp", filters=nothing)) == (
        "The answer was not found in the documents."
    )
    assert server.requests == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "both"), ("granularity", ()), ("granularity", ("chunk",)), ("granularity", "sentences"),
        ("granularity", ([],)), ("granularity", 3),
        ("similarity_top_k", 0), ("similarity_top_k", 2.5),
        ("similarity_top_k", "4"), ("similarity_top_k", True),
        ("fetch_k", 0), ("fetch_k", -3), ("fetch_k", 2.5), ("fetch_k", "20"), ("fetch_k", True),
        ("rerank_k", 0), ("rerank_k", -1), ("rerank_k", 7.5), ("rerank_k", "20"),
        ("simple_ratio_thresh", 1.1), ("simple_ratio_thresh", -0.1), ("simple_ratio_thresh", "half"),
        ("dense_weight", 1.01), ("dense_weight", -0.5),
        ("dense_weight", float("nan")), ("dense_weight", "half"),
        ("hybrid", "dense"), ("hybrid", 1), ("hybrid", 0), ("hybrid", []),
        ("rerank", "sentence"),
        ("context", "everything"), ("context", 3),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name}="):
        DenseXRetrievalPack(documents(ENGLISH), embed_model="none", **{name: value})


def test_a_wrong_tokenizer_is_named() -> None:
    with pytest.raises(ValueError, match=r"^tokenizer must be .*'words'"):
        DenseXRetrievalPack(documents(ENGLISH), embed_model="none", tokenizer="words")


def test_a_unit_may_be_named_alone() -> None:
    assert PackOptions(granularity="passage").granularity == ("passage",)


@pytest.mark.parametrize("store", ["embedded", "folder", "simple"])
@pytest.mark.slow_cases("*", but=["folder"])
def test_questions_beside_changes_are_answered_from_whole_indexes(
    store: str, tmp_path: Path
) -> None:
    """Whatever changes meanwhile, a document that stays is found, and afterwards everything is as it should
    be."""
    pack = DenseXRetrievalPack(
        documents(ENGLISH, place="kept"), embed_model=ShortEmbedding(),
        vector_store=SimpleVectorStore() if store == "simple" else None,
        persist_dir=tmp_path / "index" if store == "folder" else None,
    )  # fmt: skip
    stop, failures = threading.Event(), []
    kept = MetadataFilters(filters=[MetadataFilter(key="place", value="kept")])

    def ask() -> None:
        try:
            while not stop.is_set():
                assert "bridge" in sources(pack.retrieve("Akashi Bridge", similarity_top_k=3))
                assert "bridge" in sources(
                    pack.retrieve("Akashi Bridge", similarity_top_k=3, filters=kept)
                )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for n in range(4):
            pack.insert(documents({f"{n}": f"第{n}の灯台は港にある。"}, place="kept"))
            if n % 2:
                pack.delete(f"{n}")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    found = sources(pack.retrieve("灯台は港にある", similarity_top_k=30, filters=kept))
    assert sorted(found) == sorted([*ENGLISH, "0", "2"])


def test_several_threads_get_what_one_gets() -> None:
    pack = DenseXRetrievalPack(documents(ENGLISH, JAPANESE), embed_model=ShortEmbedding())
    expected = {question: identity(pack, question) for question in QUESTIONS}
    found: list[bool] = []

    def ask() -> None:
        found.extend(
            identity(pack, question) == expected[question]
            for question in QUESTIONS
            for _ in range(5)
        )

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80
