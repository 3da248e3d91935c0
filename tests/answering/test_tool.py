"""The pack as a tool of LlamaIndex's agents."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.agent.workflow import ReActAgent
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack
from tests.openai_server import OpenAIServer

QUESTIONS = {
    "When did Minot Light open?": "Minot Light opened in 1860.",
    "霧浜灯台はいつ点灯しましたか。": "霧浜灯台は1871年に点灯した。",
}


@pytest.fixture(scope="module")
def pack() -> DenseXRetrievalPack:
    documents = [
        Document(text=text, id_=f"{number}.md") for number, text in enumerate(QUESTIONS.values())
    ]
    return DenseXRetrievalPack(documents, query_llm="none", embed_model="none")


@pytest.mark.parametrize("question", QUESTIONS)
async def test_an_agent_asks_the_documents_and_reads_an_answer_with_its_source(
    pack: DenseXRetrievalPack, question: str
) -> None:
    def reply(body: dict[str, Any]) -> str:
        observed = str(body["messages"][-1]["content"])
        if QUESTIONS[question] in observed and "[^1]" in observed:
            return f"Thought: I can answer without using any more tools.\nAnswer: {QUESTIONS[question]}"
        return f'Thought: I need a tool.\nAction: search_documents\nAction Input: {{"input": "{question}"}}'

    with OpenAIServer(reply) as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="k", max_retries=0)
        said = await ReActAgent(tools=[pack.as_tool()], llm=llm).run(question)
    assert str(said) == QUESTIONS[question]


def test_a_tool_names_some_of_the_documents_in_as_many_characters_as_openai_takes() -> None:
    documents = [
        Document(text=f"Light {n} opened in {1800 + n}.", id_=f"{n:03}{'灯' * 200}")
        for n in range(20)
    ]
    metadata = (
        DenseXRetrievalPack(documents, query_llm="none", embed_model="none")
        .as_tool("lights")
        .metadata
    )
    assert metadata.name == "lights"
    assert metadata.description.startswith(
        "Answers a question from 20 documents, with its sources: '000灯"
    )
    assert metadata.description.endswith("and others.")
    assert len(metadata.description) <= 1024


def test_a_tool_names_the_files_of_documents_whose_ids_are_random() -> None:
    """So are those of SimpleDirectoryReader, of each page of a PDF."""
    pages = [
        Document(
            text=f"Light {n} opened.", metadata={"file_path": "/docs/灯台.pdf", "page_label": n}
        )
        for n in "12"
    ]
    pack = DenseXRetrievalPack(pages, query_llm="none", embed_model="none")
    said = pack.as_tool().metadata.description
    assert said == "Answers a question from 2 documents, with its sources: '灯台.pdf'."
    unnamed = DenseXRetrievalPack([Document(text="A light.")], query_llm="none", embed_model="none")
    said = unnamed.as_tool().metadata.description
    assert said == "Answers a question from 1 document, with its sources."
