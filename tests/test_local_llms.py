"""LLMs on one's own machine, asked by their real clients: Ollama by its own API, vLLM and llama.cpp by
OpenAI's."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.llms import LLM

from llama_pack_densex import DenseXRetrievalPack, LLMPropositionizer, Passage
from tests.openai_server import OpenAIServer, asked_content, held
from tests.stand_in_llm import propositions_of
from tests.test_cli import run, run_json

pytest.importorskip("llama_index.llms.ollama", reason="the extra [dev] is not installed")
pytest.importorskip("llama_index.llms.openai_like", reason="the extra [dev] is not installed")

FACTS = {
    "Green tea is steamed.": ["Green tea is steamed."],
    "琵琶湖は日本最大の湖である。": ["琵琶湖は日本最大の湖である。"],
    **{
        f"Lamp {number} is red.": [f"Lamp {number} is red.", f"Lamp {number} has a colour."]
        for number in range(8)
    },
}
TEA, LAKE = (Passage(text) for text in list(FACTS)[:2])
LAMPS = Passage(" ".join(text for text in FACTS if "Lamp" in text), title="Lamps")
LAMP_FACTS = tuple(fact for text, facts in FACTS.items() if "Lamp" in text for fact in facts)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(held(FACTS)) as server:
        yield server


def ollama(server: OpenAIServer, **settings: Any) -> LLM:
    from llama_index.llms.ollama import Ollama

    return Ollama(model="qwen3:8b", base_url=server.ollama_url, **settings)


def openai_like(server: OpenAIServer, **settings: Any) -> LLM:
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(
        model="qwen3:8b", api_base=server.url, api_key="none", is_chat_model=True, **settings
    )


def cut_by_num_predict(server: OpenAIServer) -> LLM:
    return ollama(server, context_window=8192, additional_kwargs={"num_predict": 60})


def cut_by_num_ctx(server: OpenAIServer) -> LLM:
    asked = LLMPropositionizer(ollama(server, context_window=8192))
    asked.propositionize([LAMPS])
    return ollama(server, context_window=asked.usage.input_tokens + 60)


def cut_by_max_tokens(server: OpenAIServer) -> LLM:
    return openai_like(server, context_window=8192, max_tokens=60)


def test_ollama_by_name(server: OpenAIServer) -> None:
    propositionizer = LLMPropositionizer(f"ollama:qwen3:8b@{server.ollama_url}")
    sets = propositionizer.propositionize([TEA, LAKE])
    assert [list(one.texts) for one in sets] == [FACTS[TEA.text], FACTS[LAKE.text]]
    assert {(seen.path, seen.body["options"]["num_ctx"]) for seen in server.requests} == {
        ("/api/chat", 8192)
    }
    assert propositionizer.usage.input_tokens > propositionizer.usage.output_tokens > 0


@pytest.mark.parametrize("make", [cut_by_num_predict, cut_by_num_ctx, cut_by_max_tokens])
def test_a_reply_that_the_server_cut_off_is_asked_for_in_parts(
    make: Callable[[OpenAIServer], LLM], server: OpenAIServer
) -> None:
    (made,) = LLMPropositionizer(make(server)).propositionize([LAMPS])
    assert (made.texts, made.status) == (LAMP_FACTS, "repaired")
    assert "asked in" in made.reason


def test_what_is_set_of_it_is_the_same_where_it_is_unpickled(server: OpenAIServer) -> None:
    asking = LLMPropositionizer(
        ollama(server, thinking=False, temperature=0.0, context_window=8192, keep_alive="1h")
    )
    again = pickle.loads(pickle.dumps(asking))
    assert (again.llm.thinking, again.llm.temperature, again.llm.keep_alive) == (False, 0.0, "1h")
    assert again.propositionize([TEA]) == asking.propositionize([TEA])
    assert [seen.body["think"] for seen in server.requests] == [False, False]


@pytest.mark.parametrize("make", [ollama, openai_like])
def test_propositions_and_a_streamed_answer_of_one_server(make: Callable[..., LLM]) -> None:
    def respond(body: dict[str, Any]) -> str:
        content = asked_content(body)
        return str(propositions_of(content)) if content else "日本最大の湖です。[^1]"

    with OpenAIServer(respond) as server:
        llm = make(server, context_window=8192)
        pack = DenseXRetrievalPack(
            [Document(text=LAKE.text)], llm, llm, embed_model="none", streaming=True
        )
        assert "".join(pack.run("琵琶湖は何ですか。").response_gen) == "日本最大の湖です。[^1]"
        assert server.requests[-1].body["stream"] is True


def test_a_model_on_ones_own_machine_has_no_price_but_ones_own() -> None:
    hosted = LLMPropositionizer("openai-like:deepseek-r1:8b@http://127.0.0.1:9/v1")
    assert hosted.figures.cost is not None  # DeepSeek's, who lists that name
    assert LLMPropositionizer("ollama:deepseek-r1:8b").figures.cost is None
    with pytest.raises(ValueError, match="max_cost needs the price"):
        LLMPropositionizer("ollama:deepseek-r1:8b", max_cost=1)
    assert (
        LLMPropositionizer(
            "ollama:deepseek-r1:8b", prices={"deepseek-r1:8b": {"input": 1}}
        ).figures.cost
        == 0
    )


def test_ollama_at_the_command_line(server: OpenAIServer, tmp_path: Path) -> None:
    docs, index = tmp_path / "docs", tmp_path / "index"
    docs.mkdir()
    (docs / "tea.txt").write_text(TEA.text, encoding="utf-8")
    llm = ["--llm", "ollama:qwen3:8b", "--api-base", server.ollama_url]
    code, output = run("index", docs, "--to", index, "--embed-model", "none", *llm)
    assert code == 0, output
    (shown,) = run_json("inspect", index)["shown"]
    assert [unit["text"] for unit in shown["propositions"]] == FACTS[TEA.text]
