"""Replies by a JSON schema: real clients, and servers that take it, refuse it, or know nothing of it."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import LLM
from llama_index.llms.openai import OpenAI

from llama_pack_densex import LLMPropositionizer, Passage
from llama_pack_densex.propositionizers.base import PropositionizerError
from tests.openai_server import STYLES, OpenAIServer, Reply, Responder, held

PASSAGES = [Passage(f"Fact {n} is true. Fact {n} is old.") for n in range(16)]
PASSAGES += [Passage(f"湖{n}は深い。湖{n}は古い。") for n in range(4)]
RIGHT = {passage.text: [f"{passage.text} ({number})."] for number, passage in enumerate(PASSAGES)}
SCHEMA = {
    "type": "object",
    "properties": {"propositions": {"type": "array", "items": {"type": "string"}}},
    "required": ["propositions"],
    "additionalProperties": False,
}
REFUSALS = {
    "OpenAI": Reply(
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        status=400,
    ),
    "a code": Reply("Unsupported: response_format.", status=400, code="unsupported_parameter"),
    "vLLM": Reply(
        status=422,
        body_override=json.dumps(
            {"detail": [{"loc": ["body", "response_format"], "msg": "Extra inputs not permitted"}]}
        ),
    ),
    "llama.cpp": Reply('response_format type must be one of "text" or "json_object"', status=500),
    "llama.cpp, of the schema": Reply(
        "JSON schema conversion failed: unsupported keyword", status=500
    ),
    "in words": Reply("The response format is not available for this model.", status=500),
    "a bare one": Reply("Bad request.", status=400),
}


def openai(server: OpenAIServer, model: str = "gpt-4o-mini") -> LLM:
    return OpenAI(model=model, api_base=server.url, api_key="sk-test", max_retries=0)


def openai_like(server: OpenAIServer, *, announces: bool) -> LLM:
    module = pytest.importorskip(
        "llama_index.llms.openai_like", reason="the extra [dev] is not installed"
    )
    llm: LLM = module.OpenAILike(
        model="qwen3:8b", api_base=server.url, api_key="none", is_chat_model=True,
        should_use_structured_outputs=announces, max_retries=0,
    )  # fmt: skip
    return llm


def refusing(reply: Reply) -> Responder:
    """Refuses a schema, late enough for all that may be in flight to be there."""
    late = Reply(
        reply.content,
        "stop",
        reply.status,
        reply.code,
        delay=0.1,
        body_override=reply.body_override,
    )
    return lambda body: late if "response_format" in body else held(RIGHT)(body)


def is_structured(body: dict[str, Any]) -> bool:
    return "response_format" in body


def texts_of(made: list[Any]) -> list[tuple[tuple[str, ...], str]]:
    return [(one.texts, one.status) for one in made]


ALL = [((RIGHT[passage.text][0],), "ok") for passage in PASSAGES]


@pytest.mark.parametrize("make", [openai, lambda server: openai_like(server, announces=True)])
async def test_a_model_that_keeps_to_schemas_is_asked_by_one(make: Any) -> None:
    with OpenAIServer(
        held(RIGHT, style=lambda texts: json.dumps({"propositions": texts}))
    ) as server:
        propositionizer = LLMPropositionizer(make(server))
        assert texts_of(propositionizer.propositionize(PASSAGES[:2])) == ALL[:2]
        assert texts_of(await propositionizer.apropositionize(PASSAGES[-2:])) == ALL[-2:]
    for seen in server.requests:
        form = seen.body["response_format"]
        assert form["type"] == "json_schema"
        assert (form["json_schema"]["strict"], form["json_schema"]["schema"]) == (True, SCHEMA)
    assert len(server.requests) == 4


def test_questions_are_in_the_schema_where_they_are_asked_for() -> None:
    reply = json.dumps({"propositions": ["Tea is steamed."], "questions": ["What is steamed?"]})
    with OpenAIServer(lambda body: reply) as server:
        [made] = LLMPropositionizer(openai(server), questions=True).propositionize(
            [Passage("Tea is steamed.")]
        )
    assert (made.texts, made.questions) == (("Tea is steamed.",), ("What is steamed?",))
    [seen] = server.requests
    schema = seen.body["response_format"]["json_schema"]["schema"]
    assert schema["required"] == [*schema["properties"]] == ["propositions", "questions"]


@pytest.mark.parametrize(
    "make",
    [
        lambda server: LLMPropositionizer(openai(server), structured="off"),
        lambda server: LLMPropositionizer(openai(server, "gpt-3.5-turbo")),
        lambda server: LLMPropositionizer(openai(server, "gpt-4")),
        lambda server: LLMPropositionizer(openai_like(server, announces=False)),
    ],
    ids=["off", "gpt-3.5", "gpt-4", "announces nothing"],
)
def test_others_are_asked_plainly(make: Any) -> None:
    with OpenAIServer(held(RIGHT)) as server:
        assert texts_of(make(server).propositionize(PASSAGES[:2])) == ALL[:2]
    assert not any(is_structured(seen.body) for seen in server.requests)


def test_a_server_that_ignores_the_schema_is_read_as_before() -> None:
    for style in ("fenced", "a <think> block", "numbered lines"):
        with OpenAIServer(held(RIGHT, style=STYLES[style])) as server:
            assert texts_of(LLMPropositionizer(openai(server)).propositionize(PASSAGES)) == ALL


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.slow_cases("True-*", but=["*-OpenAI"])
def test_a_server_that_refuses_is_asked_plainly_from_then_on(
    refusal: str, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with OpenAIServer(refusing(REFUSALS[refusal])) as server, caplog.at_level(logging.WARNING):
        propositionizer = LLMPropositionizer(openai(server), max_concurrency=8, retry_wait=0)
        first = (
            asyncio.run(propositionizer.apropositionize(PASSAGES))
            if is_async
            else propositionizer.propositionize(PASSAGES)
        )
        refused = sum(is_structured(seen.body) for seen in server.requests)
        assert texts_of(first) == ALL
        assert 1 <= refused <= 8
        assert len(server.requests) == len(PASSAGES) + refused
        assert texts_of(propositionizer.propositionize(PASSAGES[:4])) == ALL[:4]
        assert sum(is_structured(seen.body) for seen in server.requests) == refused
    assert [record.message for record in caplog.records if "JSON schema" in record.message] == [
        "The server does not accept a JSON schema for replies (response_format), "
        "which is left out from now on."
    ]
    assert (propositionizer.figures.refused, propositionizer.figures.failed) == (0, 0)


@pytest.mark.parametrize("status", [400, 401, 404])
def test_what_is_refused_without_a_schema_too_stops_the_run(status: int) -> None:
    with (
        OpenAIServer(lambda body: Reply("No.", status=status)) as server,
        pytest.raises(PropositionizerError, match=r"No\."),
    ):
        LLMPropositionizer(openai(server), max_concurrency=1).propositionize(PASSAGES)
    assert len(server.requests) == (2 if status == 400 else 1)


def test_once_replies_came_by_the_schema_a_rejected_text_does_not_end_it() -> None:
    def respond(body: dict[str, Any]) -> Any:
        return (
            Reply("Bad request.", status=400)
            if "Fact 3 " in str(body["messages"])
            else held(RIGHT)(body)
        )

    with OpenAIServer(respond) as server:
        made = LLMPropositionizer(openai(server), max_concurrency=1).propositionize(PASSAGES[:6])
    assert [one.status for one in made] == ["ok", "ok", "ok", "fallback", "ok", "ok"]
    assert all(is_structured(seen.body) for seen in server.requests)


def test_kept_replies_and_node_ids_do_not_depend_on_it(tmp_path: Path) -> None:
    with OpenAIServer(held(RIGHT)) as server:
        plain = LLMPropositionizer(
            openai(server), structured="off", cache=tmp_path / "replies.sqlite"
        )
        plain.propositionize(PASSAGES)
        asked = len(server.requests)
        structured = LLMPropositionizer(openai(server), cache=tmp_path / "replies.sqlite")
        assert texts_of(structured.propositionize(PASSAGES)) == ALL
    assert len(server.requests) == asked
    assert structured.fingerprint == plain.fingerprint


def test_it_is_as_chosen_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with OpenAIServer(held(RIGHT)) as server:
        propositionizer = LLMPropositionizer(openai(server), structured="off")
        for other in (
            pickle.loads(pickle.dumps(propositionizer)),
            LLMPropositionizer.from_dict(propositionizer.to_dict()),
            propositionizer.keeping_replies(Path("replies.sqlite")),
        ):
            assert other.structured == "off"
            assert not other.form
    with pytest.raises(ValueError, match="structured"):
        LLMPropositionizer(propositionizer.llm, structured="on")  # type: ignore[arg-type]
