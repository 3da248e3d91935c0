from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from llama_index.core import Document, Settings
from llama_index.core.ingestion import IngestionCache, IngestionPipeline
from llama_index.core.node_parser import (
    MarkdownElementNodeParser,
    SemanticSplitterNodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
)
from llama_index.core.schema import IndexNode
from llama_index.llms.openai import OpenAI

from llama_pack_densex import (
    HierarchicalPropositionNodeParser,
    LLMPropositionizer,
    PropositionNodeParser,
    RecordedPropositionizer,
    SentencePropositionizer,
)
from llama_pack_densex.node_parsers.parsers import PropositionIngestionCache
from llama_pack_densex.node_parsers.topics import TopicNodeParser
from tests.another_process import run_program
from tests.conftest import DATA
from tests.embedding import TrigramEmbedding
from tests.openai_server import OpenAIServer

pytestmark = pytest.mark.together("forks")

KEY = "sk-secret-0123456789"
PARSERS = [PropositionNodeParser, HierarchicalPropositionNodeParser]


@pytest.fixture
def twins() -> list[Document]:
    return [
        Document(id_=name, text="The lamp is red. It hangs in hall 7.")
        for name in ("first", "second")
    ]


@pytest.mark.parametrize("parser_class", PARSERS)
def test_it_runs_in_an_ingestion_pipeline(documents: list[Document], parser_class: type) -> None:
    pipeline = IngestionPipeline(transformations=[parser_class(), TrigramEmbedding()])
    nodes = pipeline.run(documents=documents)
    assert [n.node_id for n in nodes] == [
        n.node_id for n in parser_class().get_nodes_from_documents(documents)
    ]
    assert all(node.embedding for node in nodes)


async def test_it_runs_in_an_asynchronous_pipeline(documents: list[Document]) -> None:
    parser = PropositionNodeParser()
    nodes = await IngestionPipeline(transformations=[parser]).arun(documents=documents)
    assert [n.node_id for n in nodes] == [
        n.node_id for n in parser.get_nodes_from_documents(documents)
    ]


def test_it_can_be_the_transformation_of_settings(documents: list[Document]) -> None:
    Settings.transformations = [PropositionNodeParser()]
    Settings.embed_model = TrigramEmbedding()
    from llama_index.core import VectorStoreIndex

    index = VectorStoreIndex.from_documents(documents)
    found = index.as_retriever(similarity_top_k=1).retrieve("The Akashi Bridge opened in 1998.")
    assert found[0].node.get_content() == "The Akashi Bridge opened in 1998."


@pytest.mark.slow
def test_two_workers_make_the_same_nodes(documents: list[Document]) -> None:
    parser = PropositionNodeParser()
    nodes = IngestionPipeline(transformations=[parser]).run(documents=documents, num_workers=2)
    assert {n.node_id for n in nodes} == {
        n.node_id for n in parser.get_nodes_from_documents(documents)
    }


def test_nodes_of_another_splitter_can_be_the_passages(documents: list[Document]) -> None:
    splitter = SentenceSplitter(chunk_size=30, chunk_overlap=0)
    nodes = IngestionPipeline(transformations=[splitter, PropositionNodeParser()]).run(
        documents=documents
    )
    by_id = {document.id_: document for document in documents}
    assert {node.ref_doc_id for node in nodes} == set(by_id)
    for node in nodes:
        if not isinstance(node, IndexNode):
            text = by_id[str(node.ref_doc_id)].text
            assert text[node.start_char_idx : node.end_char_idx] == node.text  # type: ignore[attr-defined]


def test_our_cache_keeps_two_documents_of_equal_text_apart(twins: list[Document]) -> None:
    cache = PropositionIngestionCache()
    model = TrigramEmbedding()
    for document in twins:
        nodes = IngestionPipeline(
            transformations=[PropositionNodeParser(), model], cache=cache
        ).run(documents=[document])
        assert {node.ref_doc_id for node in nodes} == {document.id_}


def test_cores_cache_gives_the_second_document_the_firsts_nodes(twins: list[Document]) -> None:
    """Why there is a cache of ours: if this fails, core has mended it."""
    cache = IngestionCache()
    for document in twins:
        nodes = IngestionPipeline(transformations=[PropositionNodeParser()], cache=cache).run(
            documents=[document]
        )
    assert {node.ref_doc_id for node in nodes} == {"first"}


def test_our_cache_keeps_the_embeddings(documents: list[Document]) -> None:
    cache = PropositionIngestionCache()
    model = TrigramEmbedding()
    for _ in range(2):
        IngestionPipeline(transformations=[PropositionNodeParser(), model], cache=cache).run(
            documents=documents
        )
        embedded, model.embedded = model.embedded, 0
    assert embedded == 0


def test_a_loaded_cache_can_be_made_ours(twins: list[Document], tmp_path: Path) -> None:
    model = TrigramEmbedding()
    written = IngestionPipeline(
        transformations=[PropositionNodeParser(), model], cache=PropositionIngestionCache()
    )
    written.run(documents=twins[:1])
    written.persist(str(tmp_path))
    model.embedded = 0
    loaded = IngestionPipeline(transformations=written.transformations)
    loaded.load(str(tmp_path))
    loaded.cache = PropositionIngestionCache(cache=loaded.cache.cache)
    loaded.run(documents=twins[:1])
    assert model.embedded == 0
    nodes = loaded.run(documents=twins[1:])
    assert {node.ref_doc_id for node in nodes} == {"second"}


def openai() -> OpenAI:
    return OpenAI(model="gpt-4o-mini", api_key=KEY, api_base="http://127.0.0.1:9")


def keyed_parsers() -> list[PropositionNodeParser | HierarchicalPropositionNodeParser]:
    propositionizer = LLMPropositionizer(llm=openai())
    recorded = RecordedPropositionizer(DATA / "propositions.jsonl", otherwise=propositionizer)
    return [
        PropositionNodeParser(propositionizer=propositionizer),
        PropositionNodeParser(propositionizer=recorded),
        HierarchicalPropositionNodeParser(propositionizer=propositionizer),
    ]


def test_no_serialised_form_of_a_parser_holds_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for parser in keyed_parsers():
        forms = [
            str(parser.to_dict()),
            parser.to_json(),
            repr(pickle.dumps(parser)),
            str(parser),
            repr(parser),
        ]
        assert not [form for form in forms if "secret" in form]


def test_a_base_parsers_key_is_not_serialised_either() -> None:
    pytest.importorskip("llama_index.embeddings.openai")
    from llama_index.embeddings.openai import OpenAIEmbedding

    embed_model = OpenAIEmbedding(api_key=KEY)
    for splitter in (
        SemanticSplitterNodeParser(embed_model=embed_model),
        MarkdownElementNodeParser(llm=OpenAI(model="gpt-4o-mini", api_key=KEY)),
        TopicNodeParser(embed_model=embed_model),
        TopicNodeParser(embed_model=OpenAIEmbedding(api_key="", default_headers={"api-key": KEY})),
        TopicNodeParser(
            embed_model=OpenAIEmbedding(api_key="", default_headers={"X-Gateway": KEY})
        ),
    ):
        for parser in (
            PropositionNodeParser(base_parser=splitter),
            HierarchicalPropositionNodeParser(levels=[splitter]),
        ):
            assert "secret" not in parser.to_json() + repr(parser)
            with pytest.raises(TypeError, match="api_key"):
                pickle.dumps(parser)


def test_the_name_of_a_metadata_key_is_no_secret() -> None:
    windows = SentenceWindowNodeParser(window_metadata_key="around")
    parser = PropositionNodeParser(base_parser=windows)
    for again in (
        pickle.loads(pickle.dumps(parser)),
        PropositionNodeParser.from_dict(parser.to_dict()),
    ):
        assert again.base_parser.window_metadata_key == "around"


def test_a_model_that_was_found_by_its_name_is_not_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_index.embeddings.openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with OpenAIServer() as server:
        topics = TopicNodeParser(
            embed_model=f"openai:text-embedding-3-small@{server.url}", chunk_size=10
        )
        parser = PropositionNodeParser(base_parser=topics)
        assert parser.get_nodes_from_documents(
            [Document(text="The lamp is red. It hangs in hall 7. " * 3)]
        )
        assert "secret" not in repr(pickle.dumps(parser)) + repr(topics)


def test_pickled_parsers_work_in_another_process(documents: list[Document], tmp_path: Path) -> None:
    parsers = (
        PropositionNodeParser(granularity=("proposition", "sentence")),
        HierarchicalPropositionNodeParser.from_defaults(chunk_sizes=[100, 30]),
    )
    (tmp_path / "parsers").write_bytes(pickle.dumps(parsers))
    program = (
        "import pickle, sys\nfrom llama_index.core import Document\n"
        "for parser in pickle.load(open(sys.argv[1], 'rb')):\n"
        "    nodes = parser.get_nodes_from_documents([Document(id_='x', text=sys.argv[2])])\n"
        "    print([node.node_id for node in nodes])"
    )
    code, output, errors = run_program(program, tmp_path / "parsers", documents[1].text)
    assert code == 0, errors
    here = [
        parser.get_nodes_from_documents([Document(id_="x", text=documents[1].text)])
        for parser in parsers
    ]
    assert output.splitlines() == [str([node.node_id for node in nodes]) for nodes in here]


def test_a_pickled_client_is_rebuilt_from_the_environment_or_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pickled = pickle.dumps(PropositionNodeParser(propositionizer=LLMPropositionizer(openai())))
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        pickle.loads(pickled)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another")
    assert pickle.loads(pickled).propositionizer.llm.api_key == "sk-another"


@pytest.mark.parametrize("parser_class", PARSERS)
def test_a_parser_comes_back_from_its_dictionary(
    documents: list[Document], parser_class: type
) -> None:
    parser = parser_class(granularity=("sentence",), propositionizer=SentencePropositionizer())
    again = parser_class.from_dict(json.loads(parser.to_json()))
    assert [n.node_id for n in again.get_nodes_from_documents(documents)] == [
        n.node_id for n in parser.get_nodes_from_documents(documents)
    ]
