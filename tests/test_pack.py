from __future__ import annotations

import gc
import logging
import math
import os
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, Settings, SimpleDirectoryReader, VectorStoreIndex
from llama_index.core.base.response.schema import StreamingResponse
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.llms.openai import OpenAI

import llama_pack_densex
from llama_pack_densex import (
    DenseXRetrievalPack,
    HierarchicalPropositionNodeParser,
    LLMPropositionizer,
    PropositionNodeParser,
    RecordedPropositionizer,
    SentencePropositionizer,
)
from llama_pack_densex.index.embedded import EmbeddedVectorStore
from llama_pack_densex.models import E5
from llama_pack_densex.retrieval.hits import matched_units
from tests.conftest import DATA
from tests.embedding import TrigramEmbedding
from tests.openai_server import OpenAIServer, Reply

MODES = ["recursive", "auto_merging"]
MODELS = ["lexical", "dense"]


def embedding(kind: str) -> TrigramEmbedding | None:
    return TrigramEmbedding() if kind == "dense" else None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", MODELS)
def test_it_answers_in_both_languages_without_a_key(
    documents: list[Document], mode: str, kind: str
) -> None:
    pack = DenseXRetrievalPack(documents, embed_model=embedding(kind), mode=mode)
    assert "The Akashi Bridge opened in 1998." in str(pack.run("When did the Akashi Bridge open?"))
    assert "新幹線は1964年に開業した。" in str(pack.run("新幹線が開業したのは何年ですか。"))


def test_an_extractive_answer_names_the_source_of_each_proposition(
    documents: list[Document],
) -> None:
    response = DenseXRetrievalPack(documents).run("Which bay has the highest tides?")
    assert "The Bay of Fundy has the highest tides.[^1]" in str(response)
    assert response.metadata["citations"][0]["section"] == "Tides, Records"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", MODELS)
def test_top_k_is_honoured_per_call(documents: list[Document], mode: str, kind: str) -> None:
    pack = DenseXRetrievalPack(
        documents, embed_model=embedding(kind), mode=mode, similarity_top_k=1
    )
    query = "The Bay of Fundy, the Akashi Bridge, 新幹線"
    assert len(pack.run(query).source_nodes) == 1
    assert len(pack.run(query, similarity_top_k=2).source_nodes) == 2
    assert len(pack.retrieve(query, similarity_top_k=3)) == 3
    assert len(pack.retrieve(query)) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", MODELS)
async def test_the_asynchronous_calls_do_the_same(
    documents: list[Document], mode: str, kind: str
) -> None:
    pack = DenseXRetrievalPack(documents, embed_model=embedding(kind), mode=mode)
    query = "How high are the tides in the Bay of Fundy?"
    assert str(await pack.arun(query, similarity_top_k=2)) == str(
        pack.run(query, similarity_top_k=2)
    )
    assert [n.node.node_id for n in await pack.aretrieve(query)] == [
        n.node.node_id for n in pack.retrieve(query)
    ]


async def test_it_is_built_and_asked_inside_a_running_event_loop(documents: list[Document]) -> None:
    assert "1998" in str(DenseXRetrievalPack(documents).run("Akashi Bridge"))


def test_the_old_packs_usage_works_unchanged(documents: list[Document]) -> None:
    pack = DenseXRetrievalPack(documents)
    modules = pack.get_modules()
    assert modules["query_engine"] is pack.query_engine
    assert modules["retriever"] is pack.retriever
    assert pack.vector_index is None
    assert "1998" in str(pack.query_engine.query("Akashi Bridge"))
    assert pack.retriever.retrieve("Akashi Bridge")[0].node.ref_doc_id == "bridges"


def test_with_an_embedding_model_there_is_a_vector_index_over_the_nodes(
    documents: list[Document],
) -> None:
    pack = DenseXRetrievalPack(documents, embed_model=TrigramEmbedding())
    assert isinstance(pack.vector_index, VectorStoreIndex)
    found = pack.vector_index.as_retriever(similarity_top_k=1).retrieve(
        "Its main span is 1,991 metres long."
    )
    assert found[0].node.get_content() == "Its main span is 1,991 metres long."


def test_it_is_a_llama_pack_where_core_has_them(documents: list[Document]) -> None:
    try:
        from llama_index.core.llama_pack import BaseLlamaPack
    except ImportError:
        pytest.skip("this llama-index-core has no llama_index.core.llama_pack")
    assert isinstance(DenseXRetrievalPack(documents), BaseLlamaPack)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", MODELS)
def test_settings_are_read_and_never_written(
    documents: list[Document], mode: str, kind: str, tmp_path: Path
) -> None:
    before = dict(vars(Settings))
    pack = DenseXRetrievalPack(
        documents, embed_model=embedding(kind), mode=mode, persist_dir=tmp_path / "index"
    )
    pack.run("Akashi Bridge")
    pack.insert(Document(text="Another one.", id_="another"))
    DenseXRetrievalPack.load(tmp_path / "index", embed_model=embedding(kind)).run("Akashi Bridge")
    assert vars(Settings) == before


def test_the_users_settings_are_used(documents: list[Document]) -> None:
    Settings.embed_model = TrigramEmbedding()
    with OpenAIServer(lambda body: Reply('["A fact about it."]')) as server:
        Settings.llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
        pack = DenseXRetrievalPack(documents)
        assert {node.get_content() for node in pack.nodes("proposition")} >= {"A fact about it."}
        assert pack.get_modules()["embed_model"] is Settings.embed_model
        assert pack.get_modules()["query_llm"] is Settings.llm


def test_a_pack_prints_what_is_in_it_and_what_was_chosen(documents: list[Document]) -> None:
    first, *choices = str(DenseXRetrievalPack(documents, mode="auto-merging")).splitlines()
    assert first.startswith("DenseXRetrievalPack: 3 documents, ")
    assert "propositions" in first
    assert "sections" in first
    assert "search is by keywords (BM25)" in "".join(choices)


def test_documents_of_one_id_are_told(caplog: pytest.LogCaptureFixture) -> None:
    pack = DenseXRetrievalPack(
        [Document(id_="tea", text=text) for text in ("Green tea.", "緑茶は日本の茶である。")]
    )
    assert [node.get_content() for node in pack.nodes("passage")] == ["緑茶は日本の茶である。"]
    (told,) = [
        record.getMessage()
        for record in caplog.records
        if "given more than once" in record.getMessage()
    ]
    assert "'tea'" in told
    pack.insert(Document(id_="tea", text="Black tea."))
    assert sum("given more than once" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("chosen", ["chunk_size", "node_parser", "transformations"])
def test_settings_that_are_not_used_for_the_passages_are_told(
    documents: list[Document], chosen: str, caplog: pytest.LogCaptureFixture
) -> None:
    splitter = SentenceSplitter(chunk_size=64, chunk_overlap=0)
    setattr(
        Settings,
        chosen,
        {"chunk_size": 64, "node_parser": splitter, "transformations": [splitter]}[chosen],
    )
    DenseXRetrievalPack(documents)
    assert "The splitter in Settings (SentenceSplitter) is not used" in caplog.text


def test_settings_that_nobody_chose_are_not_told(
    documents: list[Document], caplog: pytest.LogCaptureFixture
) -> None:
    assert Settings.chunk_size  # makes a splitter up
    assert Settings.transformations
    DenseXRetrievalPack(documents)
    Settings.chunk_size = 300
    DenseXRetrievalPack(documents, text_splitter=Settings.node_parser)
    assert "The splitter in Settings" not in caplog.text


def test_an_opened_index_is_not_said_to_be_of_sentences(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    documents = SimpleDirectoryReader(str(DATA / "ja")).load_data()
    made = RecordedPropositionizer(DATA / "propositions.jsonl")
    DenseXRetrievalPack(documents[:1], propositionizer=made, persist_dir=tmp_path / "index")
    caplog.clear()
    pack = DenseXRetrievalPack.load(tmp_path / "index")
    assert "sentences stand in" not in caplog.text + str(pack)
    assert "propositions as the index has them" in str(pack).casefold()


@pytest.mark.parametrize("way", ["folder", "pipeline"])
def test_a_default_does_not_replace_an_llms_propositions(way: str, tmp_path: Path) -> None:
    documents = SimpleDirectoryReader(str(DATA / "ja")).load_data()[:1]
    made = RecordedPropositionizer(DATA / "propositions.jsonl")
    store = EmbeddedVectorStore(tmp_path / "store")
    if way == "folder":
        DenseXRetrievalPack(
            documents, propositionizer=made, persist_dir=tmp_path / "index", embed_model="none"
        )
    else:
        parser = PropositionNodeParser(propositionizer=made)
        store.add(IngestionPipeline(transformations=[parser]).run(documents=documents))

    def reopened(**given: Any) -> DenseXRetrievalPack:
        if way == "folder":
            return DenseXRetrievalPack.load(tmp_path / "index", **given)
        return DenseXRetrievalPack.from_vector_store(store, embed_model="none", **given)

    assert "propositions as the index has them" in str(reopened()).casefold()
    with pytest.raises(ValueError, match="made by another propositionizer"):
        reopened().insert(Document(id_="tea", text="緑茶は日本の茶である。"))
    reopened(propositionizer=made).refresh(documents)
    reopened(proposition_llm="none").insert(Document(id_="tea", text="緑茶は日本の茶である。"))


def test_what_was_chosen_is_said_once(
    documents: list[Document], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "llama_pack_densex"):
        pack = DenseXRetrievalPack(documents)
        pack.run("Akashi Bridge")
    messages = [
        record.getMessage() for record in caplog.records if "stand in" in record.getMessage()
    ]
    assert messages == [
        "Sentences stand in for propositions, search is by keywords (BM25), answers are quotations; "
        "print(pack) says why."
    ]
    assert "answers are quoted propositions" in str(pack)


@pytest.mark.parametrize("asked", ["{}", "embed_model='none'"])
def test_what_it_costs_to_have_no_embedding_model_is_said_once_a_process(
    asked: str, tmp_path: Path
) -> None:
    program = f"""
from llama_index.core import Document
from llama_pack_densex import DenseXRetrievalPack
for text in ("The tower is high.", "塔は高い。"):
    DenseXRetrievalPack([Document(text=text)], **dict({asked}))
"""
    environment = {**os.environ, "HF_HOME": str(tmp_path)}
    finished = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    said = [line for line in finished.stderr.splitlines() if "worded differently" in line]
    assert len(said) == (asked == "{}")
    for line in said:
        assert 'pip install "llama-pack-densex[local]"' in line
        assert f"hf download {E5} onnx/model.onnx tokenizer.json" in line


def test_nothing_is_printed(documents: list[Document], capsys: pytest.CaptureFixture[str]) -> None:
    pack = DenseXRetrievalPack(
        [*documents, Document(text="Long metadata.", metadata={"k": "v " * 900})]
    )
    pack.run("metadata")
    assert capsys.readouterr().out == ""


def test_the_llm_reads_the_facts_and_then_the_passages(documents: list[Document]) -> None:
    with OpenAIServer(lambda body: Reply("In 1998.[^1]")) as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
        pack = DenseXRetrievalPack(
            documents, proposition_llm="none", query_llm=llm, similarity_top_k=1
        )
        answer = pack.run("When did the Akashi Bridge open?")
        prompt = server.requests[-1].body["messages"][-1]["content"]
    assert str(answer) == "In 1998.[^1]"
    assert prompt.index("- The Akashi Bridge opened in 1998. [^1]\n") < prompt.index(
        "1998. Its main span"
    )
    assert [node.node.ref_doc_id for node in answer.source_nodes] == ["bridges"]
    assert matched_units(answer.source_nodes[0].node)
    assert "densex_" not in prompt


async def test_the_llm_answers_asynchronously_and_as_a_stream(documents: list[Document]) -> None:
    with OpenAIServer(lambda body: Reply("In 1998.[^1]")) as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
        pack = DenseXRetrievalPack(documents, proposition_llm="none", query_llm=llm)
        assert str(await pack.arun("When did the Akashi Bridge open?")) == "In 1998.[^1]"
        streaming = DenseXRetrievalPack(
            documents, proposition_llm="none", query_llm=llm, streaming=True
        )
        answer = streaming.run("When did the Akashi Bridge open?")
        assert isinstance(answer, StreamingResponse)
        assert "".join(answer.response_gen) == "In 1998.[^1]"
        assert answer.source_nodes


def test_quotations_can_be_streamed(documents: list[Document]) -> None:
    answer = DenseXRetrievalPack(documents, streaming=True).run("Akashi Bridge")
    assert isinstance(answer, StreamingResponse)
    assert "1998" in "".join(answer.response_gen)


def test_prompts_of_the_query_engine_can_be_read_and_replaced(documents: list[Document]) -> None:
    from llama_index.core import PromptTemplate

    with OpenAIServer(lambda body: Reply("x")) as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
        pack = DenseXRetrievalPack(documents, proposition_llm="none", query_llm=llm)
        assert "response_synthesizer:text_qa_template" in pack.query_engine.get_prompts()
        template = PromptTemplate("HAIKU {context_str} {query_str}")
        pack.query_engine.update_prompts({"response_synthesizer:text_qa_template": template})
        for top_k in (None, 1):
            pack.run("Akashi Bridge", similarity_top_k=top_k)
            assert "HAIKU" in server.requests[-1].body["messages"][-1]["content"]


def test_an_llm_makes_the_propositions(documents: list[Document]) -> None:
    def reply(body: dict[str, object]) -> Reply:
        text = str(body["messages"][-1]["content"]).split("Content: ")[1]  # type: ignore[index]
        return Reply('["新幹線は速い。"]' if "新幹線" in text else '["Trains are fast."]')

    with OpenAIServer(reply) as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
        pack = DenseXRetrievalPack(documents, proposition_llm=llm, query_llm="none")
    assert {n.get_content() for n in pack.nodes("proposition")} == {
        "新幹線は速い。",
        "Trains are fast.",
    }
    assert pack.counts().statuses == {"ok": 3}
    assert isinstance(pack.node_parser.propositionizer, LLMPropositionizer)


def test_a_text_splitter_makes_the_passages(documents: list[Document]) -> None:
    pack = DenseXRetrievalPack(
        documents, text_splitter=SentenceSplitter(chunk_size=15, chunk_overlap=0)
    )
    assert pack.counts().passages > 6


def test_a_node_parser_of_ones_own_is_used(documents: list[Document]) -> None:
    parser = HierarchicalPropositionNodeParser.from_defaults(sections=True)
    pack = DenseXRetrievalPack(documents, node_parser=parser, mode="auto_merging")
    assert [n.get_content()[:10] for n in pack.nodes("section") if n.ref_doc_id == "tides"] == [
        "# Tides\n\n#",
        "## Records",
    ]
    with pytest.raises(ValueError, match="pass it alone"):
        DenseXRetrievalPack(documents, node_parser=parser, text_splitter=SentenceSplitter())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "fusion"}, "mode='fusion': Input should be 'recursive' or 'auto_merging'"),
        (
            {"mode": SentencePropositionizer()},
            "mode=a SentencePropositionizer: Input should be 'recursive'",
        ),
        ({"similarity_top_k": 0}, "similarity_top_k=0: Input should be greater than 0"),
        ({"similarity_top_k": 2.5}, "similarity_top_k=2.5: Input should be a valid integer"),
        (
            {"granularity": ("word",)},
            "granularity='word': Input should be 'proposition', 'sentence'",
        ),
        ({"granularity": ()}, "granularity=.*: Value should have at least 1 item"),
        ({"fetch_k": 0}, "fetch_k=0: Input should be greater than 0"),
        (
            {"simple_ratio_thresh": 1.5},
            "simple_ratio_thresh=1.5: Input should be less than or equal to 1",
        ),
        ({"hybrid": "store's"}, "Input should be a valid boolean; .* Input should be 'store'"),
        ({"query_llm": 7}, "query_llm must be a LlamaIndex LLM"),
        ({"embed_model": 7}, "embed_model must be a BaseEmbedding or str, not 7"),
        (
            {"propositionizer": "sentence"},
            "propositionizer must be a Propositionizer, not 'sentence'",
        ),
        ({"reranker": "bge"}, "reranker must be a BaseNodePostprocessor, not 'bge'"),
        ({"text_splitter": 512}, "text_splitter must be a NodeParser, not 512"),
        (
            {"node_parser": SentenceSplitter()},
            "must be a BasePropositionNodeParser, not a SentenceSplitter",
        ),
        ({"proposition_llm": "none", "propositionizer": SentencePropositionizer()}, "not both"),
        ({"vector_store": SimpleVectorStore()}, "there is no embedding model"),
        (
            {"vector_store": "chroma://papers"},
            "vector_store must be a vector store of LlamaIndex, not a str",
        ),
    ],
)
def test_a_wrong_argument_is_named(
    documents: list[Document], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        DenseXRetrievalPack(documents, **arguments)  # type: ignore[arg-type]


class KeyedEmbedding(TrigramEmbedding):
    api_key: str = "sk-proj-0123456789"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, KeyedEmbedding()) for name in ("query_llm", "proposition_llm")),
        *((name, "sk-proj-0123456789") for name in ("query_llm", "embed_model")),
        *(
            (name, OpenAI(api_key="sk-proj-0123456789"))
            for name in ("embed_model", "text_splitter", "reranker")
        ),
        *(
            (name, OpenAI(api_key="sk-proj-0123456789"))
            for name in ("mode", "context", "verbose", "granularity")
        ),
    ],
)
def test_a_model_or_a_key_in_the_place_of_something_else_is_told_without_the_key(
    name: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=r"a KeyedEmbedding|a OpenAI|\[key\]") as raised:
        DenseXRetrievalPack([Document(text="味噌は塩辛い。")], **{name: value})
    assert "sk-proj" not in str(raised.value)


@pytest.mark.parametrize("top_k", [0, -1, True, "3"])
def test_a_wrong_top_k_of_a_call_is_named(documents: list[Document], top_k: object) -> None:
    pack = DenseXRetrievalPack(documents)
    with pytest.raises(ValueError, match=r"similarity_top_k=.*: Input should be"):
        pack.run("x", similarity_top_k=top_k)  # type: ignore[arg-type]


def test_no_documents_and_empty_ones_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing to search"):
        DenseXRetrievalPack([])
    with pytest.raises(ValueError, match="nothing to search"):
        DenseXRetrievalPack([Document(text=""), Document(text=" \n\u3000")])


def test_a_single_document_that_is_gone_may_be_named_alone() -> None:
    pack = DenseXRetrievalPack(
        [Document(id_=name, text=f"About {name}.") for name in ("茶", "湯", "茶の湯")]
    )
    pack.refresh([], gone="茶の湯")
    assert set(pack.documents()) == {"茶", "湯"}


def test_a_document_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"documents\[1\] is a str, not a LlamaIndex Document"):
        DenseXRetrievalPack([Document(text="x"), "some text"])  # type: ignore[list-item]


@pytest.mark.parametrize("given", [None, 7, "docs/", Path("docs")])
def test_what_is_no_documents_at_all_is_named(given: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"documents\[0\] is a {type(given).__name__}, .*: wrap text as Document"
    ):
        DenseXRetrievalPack(given)


@pytest.mark.parametrize("store", [None, SimpleVectorStore])
@pytest.mark.parametrize(
    "bad", [{"metadata": {"file_path": "/x/\udc83e.txt"}}, {"id_": ""}, {"id_": "\ud83d"}]
)
def test_a_document_that_stores_cannot_keep_costs_itself_alone(
    store: Any, bad: dict[str, Any]
) -> None:
    given = [
        Document(id_="cat", text="A cat is here."),
        Document(**{"text": "An owl is here.", **bad}),
    ]
    pack = DenseXRetrievalPack(
        given, vector_store=store and store(), embed_model=TrigramEmbedding()
    )
    assert set(pack.documents()) == {"cat"}
    assert len(pack.failed_documents) == 1
    assert [hit.node.ref_doc_id for hit in pack.retrieve("Which cat is here?")] == ["cat"]


@pytest.mark.parametrize("store", [None, SimpleVectorStore])
def test_half_a_character_in_a_recorded_proposition_does_no_harm(
    store: Any, tmp_path: Path
) -> None:
    line = (
        '{"text": "A cat is here.", "propositions": ["A cat \\ud83d is in."], '
        '"questions": ["Who \\ud83d?"]}'
    )
    (tmp_path / "recording.jsonl").write_text(line, encoding="utf-8")
    recorded = RecordedPropositionizer(tmp_path / "recording.jsonl")
    given = [Document(id_="cat", text="A cat is here.")]
    pack = DenseXRetrievalPack(
        given,
        propositionizer=recorded,
        vector_store=store and store(),
        embed_model=TrigramEmbedding(),
    )
    assert [hit.node.ref_doc_id for hit in pack.retrieve("Which cat is in?")] == ["cat"]


class SometimesWrong(TrigramEmbedding):
    """Embeds some texts as no model should."""

    def _embed(self, text: str) -> list[float]:
        made = super()._embed(text)
        wrong = math.nan if "moon" in text else math.inf if "sun" in text else made[0]
        return [wrong, *made[1 + ("star" in text) :]]


@pytest.mark.parametrize("store", [None, SimpleVectorStore])
@pytest.mark.parametrize("body", ["moon", "sun", "star"])
def test_an_embedding_that_nothing_can_be_compared_with_costs_its_document_alone(
    store: Any, body: str
) -> None:
    given = [
        Document(id_=name, text=f"A {name} is seen at night.") for name in ("cat", body, "owl")
    ]
    pack = DenseXRetrievalPack(
        given, vector_store=store and store(), embed_model=SometimesWrong(), hybrid=False
    )
    assert set(pack.documents()) == {"cat", "owl"}
    (failed,) = pack.failed_documents
    assert "not finite" in failed.error or "dimensions" in failed.error
    assert [hit.node.ref_doc_id for hit in pack.retrieve("owl")] == ["owl", "cat"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("store", ["embedded", "simple"])
def test_documents_are_inserted_replaced_and_deleted(
    documents: list[Document], mode: str, store: str
) -> None:
    pack = DenseXRetrievalPack(
        documents[:2],
        embed_model=TrigramEmbedding(),
        mode=mode,
        vector_store=SimpleVectorStore() if store == "simple" else None,
    )
    pack.insert(documents[2])
    assert "新幹線は1964年に開業した。" in str(pack.run("新幹線が開業したのは何年ですか。"))
    before = pack.counts()
    pack.insert(
        Document(id_="bridges", text="The Akashi Bridge is grey.", metadata={"topic": "building"})
    )
    assert "1998" not in str(pack.run("When did the Akashi Bridge open?"))
    assert pack.counts().passages == before.passages
    assert pack.counts().propositions == before.propositions - 2
    assert pack.delete("bridges") == 1
    assert pack.delete(["bridges", documents[0]]) == 1
    assert {node.ref_doc_id for node in pack.nodes()} == {"鉄道"}
    assert pack.vector_index is not None
    assert {
        n.node.ref_doc_id for n in pack.vector_index.as_retriever().retrieve("Akashi Bridge")
    } == {"鉄道"}


def test_refresh_indexes_what_changed_and_nothing_else(documents: list[Document]) -> None:
    model = TrigramEmbedding()
    pack = DenseXRetrievalPack(documents, embed_model=model)
    assert pack.refresh(documents) == [False, False, False]
    model.embedded = 0
    touched = documents[0].model_copy(deep=True)
    touched.metadata["last_modified_date"] = "2026-01-01"
    changed = Document(
        id_="bridges", text="The Akashi Bridge is grey.", metadata={"topic": "building"}
    )
    retagged = Document(id_="鉄道", text=documents[2].text, metadata={"topic": "train"})
    new = Document(id_="new", text="A new one.")
    assert pack.refresh([touched, changed, retagged, new]) == [False, True, True, True]
    assert 0 < model.embedded < 12
    assert {n.metadata["topic"] for n in pack.nodes() if n.ref_doc_id == "鉄道"} == {"train"}


def test_a_document_that_became_empty_is_gone(documents: list[Document]) -> None:
    pack = DenseXRetrievalPack(documents)
    pack.refresh(Document(id_="bridges", text=""))
    assert {node.ref_doc_id for node in pack.nodes()} == {"tides", "鉄道"}


def test_a_file_that_changed_replaces_its_earlier_state_although_its_id_is_another(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.txt"

    def read() -> list[Document]:
        return SimpleDirectoryReader(input_files=[file]).load_data()

    file.write_text("The lamp is red.", encoding="utf-8")
    pack = DenseXRetrievalPack(read())
    assert pack.refresh(read()) == [False]
    file.write_text("The lamp is green.", encoding="utf-8")
    assert pack.refresh(read()) == [True]
    assert [node.get_content() for node in pack.nodes("passage")] == ["The lamp is green."]


def test_a_failure_while_propositions_are_made_changes_nothing(documents: list[Document]) -> None:
    recordings = DATA / "propositions.jsonl"
    documents = SimpleDirectoryReader(input_files=[DATA / "ja" / "miso.md"]).load_data()
    pack = DenseXRetrievalPack(documents, propositionizer=RecordedPropositionizer(recordings))
    before = pack.counts()
    with pytest.raises(ValueError, match="are not in"):
        pack.insert(Document(id_=documents[0].id_, text="Unknown text."))
    assert pack.counts() == before


def test_documents_read_from_any_folder_match_the_recorded_propositions(tmp_path: Path) -> None:
    folder = tmp_path / ("a long folder name " * 8)
    folder.mkdir()
    (folder / "equinox.md").write_bytes((DATA / "ja" / "equinox.md").read_bytes())
    documents = SimpleDirectoryReader(folder).load_data()
    pack = DenseXRetrievalPack(
        documents, propositionizer=RecordedPropositionizer(DATA / "propositions.jsonl")
    )
    assert pack.counts().statuses == {"ok": 3}
    moved = tmp_path / "moved"
    folder.rename(moved)
    assert pack.refresh(SimpleDirectoryReader(moved).load_data()) == [False]


def test_the_racehorse_question_is_answered() -> None:
    documents = SimpleDirectoryReader(DATA / "ja").load_data()
    pack = DenseXRetrievalPack(
        documents, propositionizer=RecordedPropositionizer(DATA / "propositions.jsonl")
    )
    answer = str(pack.run("ドウデュースの主な勝ち鞍を教えて。"))
    for race in (
        "2021年の朝日杯フューチュリティステークス",
        "2022年の東京優駿",
        "2023年の有馬記念",
    ):
        assert race in answer


@pytest.mark.slow
def test_it_works_after_nest_asyncio_was_applied() -> None:
    pytest.importorskip("nest_asyncio")
    program = (
        "import nest_asyncio; nest_asyncio.apply()\nimport asyncio\nfrom llama_index.core import Document\n"
        "from llama_pack_densex import DenseXRetrievalPack\nasync def main():\n"
        "    pack = DenseXRetrievalPack([Document(text='The lamp is red.')])\n"
        "    return str(pack.run('lamp')), str(await pack.arun('lamp'))\n"
        "print(asyncio.run(main()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("The lamp is red.") == 2


@pytest.mark.parametrize(
    "filters", [None, MetadataFilters(filters=[MetadataFilter(key="shelf", value=2)])]
)
def test_retrievers_and_query_engines_of_ones_own_are_those_of_the_pack(
    filters: MetadataFilters | None,
) -> None:
    corpus = [
        Document(id_=f"d{n}", text=f"Lamp {n} is red. It hangs high.", metadata={"shelf": n})
        for n in range(4)
    ]
    pack = DenseXRetrievalPack(corpus, embed_model="none", query_llm="none")
    found = pack.as_retriever(similarity_top_k=2, filters=filters).retrieve("red lamp")
    expected = pack.retrieve("red lamp", similarity_top_k=2, filters=filters)
    assert [hit.node.node_id for hit in found] == [hit.node.node_id for hit in expected]
    answer = pack.as_query_engine(similarity_top_k=2, filters=filters).query("red lamp")
    assert str(answer) == str(pack.run("red lamp", similarity_top_k=2, filters=filters))
    assert pack.as_retriever() is pack.retriever


async def test_an_index_is_changed_asynchronously_as_well() -> None:
    first, second = Document(id_="a", text="A red lamp."), Document(id_="b", text="A blue lamp.")
    pack = DenseXRetrievalPack([first], embed_model="none", query_llm="none")
    await pack.ainsert(second)
    assert set(pack.documents()) == {"a", "b"}
    assert await pack.arefresh([first, second]) == [False, False]
    assert await pack.adelete("a") == 1
    assert set(pack.documents()) == {"b"}


async def test_a_question_may_be_called_query_str() -> None:
    pack = DenseXRetrievalPack(
        [Document(text="The lamp is red.")], embed_model="none", query_llm="none"
    )
    assert (
        str(pack.run(query_str="lamp"))
        == str(pack.run("lamp"))
        == str(await pack.arun(query_str="lamp"))
    )
    for wrong in ({}, {"query": "lamp", "query_str": "lamp"}):
        with pytest.raises(TypeError, match="pass one question"):
            pack.run(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [5, [5], ["a", None]])
async def test_what_is_no_question_and_no_document_is_said(wrong: Any) -> None:
    pack = DenseXRetrievalPack(
        [Document(id_="a", text="The lamp is red.")], embed_model="none", query_llm="none"
    )
    with pytest.raises(TypeError, match="pass one question, a string"):
        pack.retrieve(wrong)
    with pytest.raises(TypeError, match="pass one question, a string"):
        await pack.aretrieve(None)  # type: ignore[arg-type]
    for engine in (pack.as_chat_engine(), pack.as_chat_engine(chat_history=[])):
        with pytest.raises(TypeError, match="pass the message as a string, and not a"):
            engine.chat(wrong)
        with pytest.raises(TypeError, match="pass the message as a string, and not a NoneType"):
            await engine.astream_chat(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="filters must be LlamaIndex's MetadataFilters"):
        pack.retrieve("Which lamp?", filters=wrong)
    with pytest.raises(TypeError, match="the documents to delete, or their ids"):
        pack.delete(wrong)
    assert set(pack.documents()) == {"a"}


def test_an_llm_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-used")
    pack = DenseXRetrievalPack(
        [Document(text="The lamp is red.")],
        proposition_llm="none",
        query_llm="gpt-4o-mini",
        embed_model="none",
    )
    assert pack.get_modules()["query_llm"].model == "gpt-4o-mini"


def test_an_argument_that_there_is_not_is_refused_by_name(tmp_path: Path) -> None:
    documents = [Document(text="The lamp is red.")]
    DenseXRetrievalPack(
        documents, embed_model="none", query_llm="none", persist_dir=tmp_path / "index"
    )
    for use in (
        lambda: DenseXRetrievalPack(documents, embedding="none"),  # type: ignore[call-arg]
        lambda: DenseXRetrievalPack.load(tmp_path / "index", embedding="none"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="'embedding'"):
            use()


def test_what_a_user_catches_and_passes_is_public() -> None:
    assert issubclass(llama_pack_densex.BudgetExceededError, llama_pack_densex.PropositionizerError)
    assert issubclass(llama_pack_densex.InvalidIndexError, ValueError)
    assert issubclass(llama_pack_densex.IndexInUseError, RuntimeError)
    assert llama_pack_densex.PropositionIngestionCache.__name__ == "PropositionIngestionCache"


def test_a_document_that_is_named_twice_is_deleted_once() -> None:
    pack = DenseXRetrievalPack(
        [Document(id_="a", text="A lamp."), Document(id_="b", text="A hen.")], embed_model="none"
    )
    assert pack.delete(["a", "a", "gone"]) == 1


class Embedded(TrigramEmbedding):
    """Keeps the texts that it embeds."""

    _texts: list[str] = PrivateAttr(default_factory=list)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._texts += texts
        return super()._get_text_embeddings(texts)


def test_sections_are_not_embedded_since_nobody_searches_them() -> None:
    text = " ".join(
        f"Lamp {n} hangs in hall {n}, where it was lit in {1000 + n}." for n in range(120)
    )
    model = Embedded()
    pack = DenseXRetrievalPack(
        [Document(text=text)], embed_model=model, mode="auto_merging", query_llm="none"
    )
    sections = {node.get_content() for node in pack.nodes("section")}
    assert sections
    assert not [given for given in model._texts if any(section in given for section in sections)]
    assert len(model._texts) >= pack.counts().passages + pack.counts().propositions
    assert pack.retrieve("Lamp 7")


def test_what_a_caller_does_to_retrieved_nodes_does_not_reach_the_next_one() -> None:
    pack = DenseXRetrievalPack(
        [Document(text="The lamp is red.")], embed_model="none", query_llm="none"
    )
    for hit in pack.retriever.retrieve("lamp"):
        hit.node.metadata["seen"] = True
    assert not any("seen" in hit.node.metadata for hit in pack.retriever.retrieve("lamp"))


@pytest.mark.slow
def test_the_embeddings_of_a_long_document_take_few_bytes_a_number() -> None:
    grown: list[int] = []

    class Long(TrigramEmbedding):
        def _embed(self, text: str) -> list[float]:
            if not tracemalloc.is_tracing():
                tracemalloc.start()
            if len(grown) % 500 == 0:
                gc.collect()  # core's events hold lists in cycles
            grown.append(tracemalloc.get_traced_memory()[0])
            return [number / 7 for number in range(1_000)]

    text = "\n\n".join(f"Lamp {number} is lit." for number in range(2_500))
    try:
        DenseXRetrievalPack(
            [Document(text=text)], "none", "none", Long(), granularity=("proposition",)
        )
    finally:
        tracemalloc.stop()
    assert len(grown) > 2_500
    # Lists of numbers would take 32 bytes each, the arrays take 8; the nodes' own bytes are few beside them.
    assert grown[-1] < 16 * 1_000 * len(grown)


# Readers while it changes


def airship(number: int, version: int = 1) -> Document:
    english = (
        f"The airship zep{number}v{version}x was built in town{number}x. "
        f"Its mast stood {number} metres high."
    )
    japanese = f"飛行船第{number}号は格納庫{number}番にある。"
    return Document(id_=f"d{number}", text=japanese if number % 2 else english)


@pytest.fixture(params=["memory", "folder"])
def airships(request: pytest.FixtureRequest, tmp_path: Path) -> DenseXRetrievalPack:
    folder = tmp_path / "index" if request.param == "folder" else None
    documents = [airship(number) for number in range(20)]
    return DenseXRetrievalPack(documents, "none", "none", TrigramEmbedding(), persist_dir=folder)


@pytest.mark.parametrize("change", ["compact", "refresh", "delete"])
def test_whoever_asks_while_an_index_changes_is_answered(
    airships: DenseXRetrievalPack, change: str
) -> None:
    is_over = threading.Event()

    def read(number: int) -> int:
        questions = 0
        while not is_over.is_set() or not questions:
            assert (
                airships.retrieve(airship(number).text, similarity_top_k=1)[0].node.ref_doc_id
                == f"d{number}"
            )
            assert (
                len(airships.get_nodes([record.id for record in airships.records("passage")])) > 0
            )
            questions += 1
        return questions

    with ThreadPoolExecutor(4) as threads:
        reading = [threads.submit(read, number) for number in range(4)]
        for version in range(2, 4):
            airships.refresh([airship(number, version) for number in range(10, 16)])
            if change == "compact":
                airships.compact()
            elif change == "delete":
                airships.delete(["d18"])
                airships.insert(airship(18))
        is_over.set()
        assert all(future.result() for future in reading)


@pytest.mark.parametrize("scan", [lambda pack: pack.records("passage"), lambda pack: pack.nodes()])
def test_a_scan_that_has_begun_goes_on_while_an_index_is_compacted(
    airships: DenseXRetrievalPack, scan: Any
) -> None:
    expected = len(list(scan(airships)))
    scanning = iter(scan(airships))
    first = next(scanning)
    airships.refresh([airship(14, 2)])
    airships.compact()
    assert len([first, *scanning]) == expected


@pytest.mark.parametrize("store", [None, SimpleVectorStore])
def test_the_records_of_some_documents_are_theirs(documents: list[Document], store: Any) -> None:
    given = {} if store is None else {"vector_store": store()}
    pack = DenseXRetrievalPack(documents, embed_model=TrigramEmbedding(), **given)
    chosen = [document.id_ for document in documents[:2]]
    for granularity in (None, "passage"):
        expected = {
            record.id for record in pack.records(granularity) if record.document_id in chosen
        }
        assert {record.id for record in pack.records(granularity, chosen)} == expected
    assert list(pack.records("passage", ["no such document"])) == []
    assert list(pack.records("passage", [])) == []
