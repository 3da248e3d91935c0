"""What LLMPropositionizer does when the provider fails: real HTTP errors, through LlamaIndex's OpenAI
client."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.llms import MockLLM
from llama_index.core.schema import BaseNode
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack, PropositionNodeParser
from llama_pack_densex.llm.errors import classify, scrub
from llama_pack_densex.llm.usage import finish_reason
from llama_pack_densex.propositionizers.base import Passage, PropositionizerError
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from tests.openai_server import OpenAIServer, Reply, asked_content, held, in_turn

KEY = "sk-proj-A1b2C3d4E5f6G7h8"
PASSAGES = [Passage(f"Fact {n} is true. Fact {n} is old.") for n in range(40)]
RIGHT = {passage.text: [f"{passage.text[:-8]} and known."] for passage in PASSAGES}


def propositionizer(url: str, key: str = KEY, **arguments: Any) -> LLMPropositionizer:
    llm = OpenAI(model="gpt-4o-mini", api_base=url, api_key=key, max_retries=0, timeout=5)
    return LLMPropositionizer(llm, **{"retry_wait": 0, "max_retries": 2, **arguments})


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (
            Reply(f"Incorrect API key provided: {KEY}.", status=401, code="invalid_api_key"),
            "check the key",
        ),
        (Reply(f"Bearer {KEY} may not use this.", status=403), "check the key"),
        (
            Reply("The model `gpt-4o-mini` does not exist.", status=404, code="model_not_found"),
            "check the LLM's model",
        ),
        (
            Reply("You exceeded your current quota.", status=429, code="insufficient_quota"),
            "check the plan",
        ),
        (Reply("API key not valid. Please pass a valid API key.", status=400), "check the key"),
        (Reply("Your credit balance is too low.", status=400), "check the plan"),
    ],
)
async def test_a_bad_key_an_unknown_model_and_an_empty_account_stop_the_run(
    reply: Reply, advice: str
) -> None:
    with OpenAIServer(lambda body: reply) as server:
        for run in (
            lambda: propositionizer(server.url, max_concurrency=4).apropositionize(PASSAGES),
            lambda: asyncio.to_thread(
                propositionizer(server.url, max_concurrency=4).propositionize, PASSAGES
            ),
        ):
            with pytest.raises(PropositionizerError, match=advice) as caught:
                await run()
            assert (reply.content or "").replace(KEY, "[key]").rstrip(".") in str(caught.value)
            assert KEY not in "".join(traceback.format_exception(caught.value))
            assert "openai." not in "".join(traceback.format_exception(caught.value))
    assert len(server.requests) <= 2 * (4 + 4)


@pytest.mark.parametrize("key", ["", "sk-with-a-line-break\n", "ここに鍵を書く"])
def test_a_key_that_cannot_even_be_sent_stops_the_run(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with (
        OpenAIServer() as server,
        pytest.raises(PropositionizerError, match="check the key") as caught,
    ):
        propositionizer(server.url, key).propositionize(PASSAGES)
    assert not any(part in str(caught.value) for part in ("line-break", "鍵"))


@pytest.mark.parametrize("address", ["localhost:9/v1", "ollama://localhost/v1", "/v1"])
def test_an_address_that_is_none_stops_the_run(address: str) -> None:
    with pytest.raises(PropositionizerError, match="check the LLM's model name and its base URL"):
        propositionizer(address).propositionize(PASSAGES)


class OneOfTheirOwn(MockLLM):
    gateway_token: str = "abcdef-0123456789"

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"{self.gateway_token}: unknown model, asked about {prompt.rpartition('Content: ')[2]}"
        )


@pytest.mark.parametrize(
    "text", ["味噌は塩辛い。", "Miso is salty.", "味噌は大豆から作る調味料で、塩辛い。"]
)
def test_what_a_class_of_ones_own_says_is_told_without_its_key_and_the_text(text: str) -> None:
    with pytest.raises(PropositionizerError, match="unknown model, asked about") as raised:
        LLMPropositionizer(OneOfTheirOwn()).propositionize([Passage(text)])
    assert not any(part in str(raised.value) for part in ("abcdef", "味噌は", "Miso is"))


def test_a_model_that_llama_index_does_not_know_stops_the_run() -> None:
    with pytest.raises(PropositionizerError, match="Unknown model"):
        LLMPropositionizer(OpenAI(model="gpt-nonsense", api_key=KEY)).propositionize(PASSAGES)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
@pytest.mark.slow_cases("429")
def test_a_passing_error_is_tried_again_and_leaves_no_trace(status: int) -> None:
    with OpenAIServer(
        in_turn(Reply("later", status=status), Reply("later", status=status), held(RIGHT))
    ) as server:
        made = propositionizer(server.url).propositionize(PASSAGES[:3])
    assert [(one.texts, one.status) for one in made] == [
        ((RIGHT[p.text][0],), "ok") for p in PASSAGES[:3]
    ]
    assert len(server.requests) == 9


@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "<html>bad gateway</html>",
        '{"choices": []}',
        '{"choices": null}',
        '{"choices": [{}]}',
    ],
)
def test_a_body_that_is_no_completion_is_tried_again(body: str) -> None:
    with OpenAIServer(in_turn(Reply(body_override=body), held(RIGHT))) as server:
        (made,) = propositionizer(server.url).propositionize(PASSAGES[:1])
    assert (made.texts, made.status) == ((RIGHT[PASSAGES[0].text][0],), "ok")


def test_a_reply_that_ends_with_an_error_is_paid_asked_for_again_and_not_kept(
    tmp_path: Path,
) -> None:
    with OpenAIServer(in_turn(Reply("", finish_reason="error"), held(RIGHT))) as server:
        asking = propositionizer(server.url, max_retries=0, cache=tmp_path / "replies.db")
        (made,) = asking.propositionize(PASSAGES[:1])
        assert (made.status, made.is_passing) == ("fallback", True)
        (made,) = asking.propositionize(PASSAGES[:1])
    assert (made.status, asking.usage.requests, asking.figures.failed) == ("ok", 2, 1)


def test_a_reply_that_llama_index_cannot_read_stops_the_run_without_its_text() -> None:
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": [RIGHT[PASSAGES[0].text][0]]}],
    }
    body = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})
    with (
        OpenAIServer(lambda _: Reply(body_override=body)) as server,
        pytest.raises(PropositionizerError) as raised,
    ):
        propositionizer(server.url).propositionize(PASSAGES[:1])
    assert len(server.requests) == 2
    assert "ValidationError" in str(raised.value)
    assert RIGHT[PASSAGES[0].text][0] not in str(raised.value)


def test_an_error_that_stays_is_the_passages_matter(caplog: pytest.LogCaptureFixture) -> None:
    def respond(body: dict[str, Any]) -> Any:
        bad = Reply(f"The server broke at {asked_content(body)} {KEY}", status=500)
        return bad if "Fact 1 " in asked_content(body) else held(RIGHT)(body)

    with OpenAIServer(respond) as server:
        made = propositionizer(server.url).propositionize(PASSAGES[:3])
    assert [one.status for one in made] == ["ok", "fallback", "ok"]
    assert made[1].texts == ("Fact 1 is true.", "Fact 1 is old.")
    assert "InternalServerError 500" in made[1].reason
    assert "1 of 3 passages" in caplog.text
    assert not any(secret in made[1].reason + caplog.text for secret in (KEY, "Fact 1"))


def test_a_server_that_is_not_there_ends_the_run_with_its_address() -> None:
    with pytest.raises(PropositionizerError, match=r"nothing answers at http://127\.0\.0\.1:9/v1"):
        propositionizer("http://127.0.0.1:9/v1").propositionize(PASSAGES[:3])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_node_parser_warns_of_sentences_that_stand_in(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with OpenAIServer(lambda body: "I would rather not.") as server:
        parser = PropositionNodeParser(propositionizer=propositionizer(server.url))
        documents = [Document(text=PASSAGES[0].text)]
        if is_async:
            asyncio.run(parser.aget_nodes_from_documents(documents))
        else:
            parser.get_nodes_from_documents(documents)
    assert caplog.text.count("Sentences stand in for propositions in 1 of 1 passages") == 1


@pytest.mark.parametrize(
    "refusal",
    [
        Reply("This context is too long.", status=400, code="context_length_exceeded"),
        Reply("The response was filtered.", status=400, code="content_filter"),
        Reply("", finish_reason="content_filter"),
    ],
    ids=["too long", "filtered request", "filtered reply"],
)
def test_what_is_too_long_or_filtered_is_asked_for_in_halves(refusal: Reply) -> None:
    def respond(body: dict[str, Any]) -> Any:
        content = asked_content(body)
        return refusal if "secret" in content or len(content) > 60 else json.dumps([content])

    text = "One is a number. Two is a number. Three is a secret. Four is a number."
    with OpenAIServer(respond) as server:
        (made,) = propositionizer(server.url).propositionize([Passage(text)])
    assert (" ".join(made.texts), made.status) == (text, "fallback")
    assert "sentences stand in for part" in made.reason
    assert len(server.requests) == 5


def test_a_time_out_is_the_passages_matter() -> None:
    def respond(body: dict[str, Any]) -> Any:
        return Reply('["a b"]', delay=1.0) if "Fact 0" in asked_content(body) else held(RIGHT)(body)

    with OpenAIServer(respond) as server:
        llm = OpenAI(
            model="gpt-4o-mini", api_base=server.url, api_key=KEY, max_retries=0, timeout=0.2
        )
        made = LLMPropositionizer(llm, max_retries=0).propositionize(PASSAGES[:2])
    assert [one.status for one in made] == ["fallback", "ok"]
    assert "APITimeoutError" in made[0].reason


async def test_cancelling_stops_what_has_not_started() -> None:
    with OpenAIServer(held(RIGHT, delay=0.2)) as server:
        run = asyncio.ensure_future(
            propositionizer(server.url, max_concurrency=2).apropositionize(PASSAGES)
        )
        while len(server.requests) < 2:
            await asyncio.sleep(0.01)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await asyncio.sleep(0.3)
    assert len(server.requests) == 2


class _ProviderError(Exception):
    def __init__(self, message: str, **attributes: Any) -> None:
        super().__init__(message)
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_ProviderError("model 'x' not found, try pulling it first", status_code=404), "fatal"),
        (_ProviderError("the model is no longer there", status_code=410), "fatal"),
        (_ProviderError("API key not valid", code=400, status="INVALID_ARGUMENT"), "fatal"),
        (_ProviderError("denied", response={"ResponseMetadata": {"HTTPStatusCode": 403}}), "fatal"),
        (_ProviderError("no", status_code=400, code="unsupported_parameter"), "fatal"),
        (TypeError("chat() got an unexpected keyword argument"), "broken"),
        (_ProviderError("Insufficient Balance", status_code=402), "fatal"),
        (_ProviderError("quota a minute", code=429, status="RESOURCE_EXHAUSTED"), "refused"),
        (
            _ProviderError(
                "overloaded", status_code=529, body={"error": {"type": "overloaded_error"}}
            ),
            "refused",
        ),
        (_ProviderError("flagged by moderation", status_code=403), "filtered"),
        (_ProviderError("prompt is too long: 210000 tokens > 200000", status_code=400), "too_long"),
        (ValueError("The prompt has 9000 tokens, which is too long for the model."), "too_long"),
        (ConnectionResetError("reset"), "transient"),
        (TimeoutError(), "transient"),
        (_ProviderError("unprocessable", status_code=422), "rejected"),
    ],
)
def test_errors_of_other_providers_are_told_apart_without_importing_them(
    error: Exception, kind: str
) -> None:
    assert classify(error).kind == kind


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "API key expired. Please renew the API key."),
        (403, "Your API key was reported as leaked. Please use another API key."),
        (403, "Permission denied: Consumer 'projects/17' has been suspended."),
        (403, "Key limit exceeded (total limit). Manage it in the settings."),
        (400, "Budget has been exceeded! Current cost: 10.0, Max budget: 10.0"),
        (429, "Budget has been exceeded! Current cost: 10.0, Max budget: 10.0"),
        (400, "You have reached your specified API usage limits."),
        (400, "This organization has been disabled."),
    ],
)
def test_a_key_or_a_quota_that_ends_midway_stops_the_run_at_once(status: int, said: str) -> None:
    """Or else sentences would stand in for what was asked for meanwhile, and count as done."""

    def respond(body: dict[str, Any]) -> Reply:
        return Reply(said, status=status) if len(server.requests) > 3 else answer(body)

    answer = held({one.text: [one.text] for one in PASSAGES})
    with OpenAIServer(respond) as server:
        asking = propositionizer(server.url, max_concurrency=1)
        made = []
        with pytest.raises(PropositionizerError, match="check the"):
            made.extend(asking.stream(PASSAGES))
    assert [one.status for one in made] == ["ok"] * len(made)
    assert len(server.requests) == 4


REFUSALS_OF_KEYS = {
    "no access": Reply("Your project does not have access to this model any more.", status=403),
    "a bare one": Reply("Forbidden", status=403),
    "in Japanese": Reply("このキーの権限は取り消されました。", status=403),
    "unauthorized": Reply("Unauthorized", status=401),
    "no credit": Reply("Payment required", status=402),
    "no model": Reply("Not found", status=404),
    "no quota": Reply("You exceeded your quota.", status=429, code="insufficient_quota"),
}


@pytest.mark.parametrize("refusal", REFUSALS_OF_KEYS)
@pytest.mark.parametrize("answered", [1, 5])
def test_what_a_key_is_refused_for_at_the_end_is_asked_for_by_the_next_run(
    refusal: str, answered: int, tmp_path: Path
) -> None:
    """Fewer passages are left than would tell a refused key from a text that a gateway objects to."""
    documents = [
        Document(id_=str(n), text=f"湖{n}は古い。" if n % 2 else f"Fact {n} is old.")
        for n in range(6)
    ]
    answer = held({document.text: [document.text] for document in documents})
    refused = [REFUSALS_OF_KEYS[refusal]]

    def respond(body: dict[str, Any]) -> Reply | str:
        return refused[0] if refused and len(server.requests) > answered else answer(body)

    def index() -> DenseXRetrievalPack:
        asking = propositionizer(server.url, max_concurrency=1)
        folder = tmp_path / "index"
        return DenseXRetrievalPack(
            documents,
            propositionizer=asking,
            persist_dir=folder,
            embed_model="none",
            query_llm="none",
        )

    with OpenAIServer(respond) as server:
        with suppress(PropositionizerError):
            index()
        refused.clear()
        statuses = index().counts().statuses
    assert statuses == {"ok": 6}


@pytest.mark.parametrize("questions", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
async def test_no_node_that_stands_in_for_it_leaves_a_pipeline(
    questions: bool, is_async: bool
) -> None:
    documents = [
        Document(id_=str(n), text=f"湖{n}は古い。" if n % 2 else f"Fact {n} is old.")
        for n in range(4)
    ]
    texts = {document.text: [document.text] for document in documents}
    answer = held(
        texts,
        style=lambda found: json.dumps(
            {"propositions": found, "questions": []}, ensure_ascii=False
        ),
    )
    refused = [REFUSALS_OF_KEYS["no access"]]

    def respond(body: dict[str, Any]) -> Reply | str:
        return refused[0] if refused and len(server.requests) > 2 else answer(body)

    async def nodes() -> Sequence[BaseNode]:
        asking = propositionizer(server.url, max_concurrency=1, questions=questions)
        parser = PropositionNodeParser(propositionizer=asking)
        pipeline = IngestionPipeline(transformations=[parser])
        if is_async:
            return await pipeline.arun(documents=documents)
        return pipeline.run(documents=documents)

    with OpenAIServer(respond) as server:
        with pytest.raises(PropositionizerError):
            await nodes()
        refused.clear()
        made = await nodes()
    passages = [node for node in made if node.metadata["densex_granularity"] == "passage"]
    assert [node.metadata["densex_status"] for node in passages] == ["ok"] * 4


@pytest.mark.parametrize("status", [400, 403])
def test_a_text_about_keys_that_a_provider_quotes_is_no_matter_of_the_key(status: int) -> None:
    """Or else a document about an API could never be indexed behind a gateway that takes it amiss."""
    about = Passage(
        "The server answers: Invalid API key. Then this organization has been disabled."
    )
    passages = [*PASSAGES[:3], about, *PASSAGES[3:6]]
    answer = held({one.text: [one.text] for one in passages})

    def respond(body: dict[str, Any]) -> Reply:
        is_amiss = "organization" in str(body["messages"][-1])
        return Reply(f"Not allowed: '{about.text}'", status=status) if is_amiss else answer(body)

    with OpenAIServer(respond) as server:
        made = propositionizer(server.url, max_concurrency=1).propositionize(passages)
    assert [one.status for one in made] == ["ok"] * 3 + ["fallback"] + ["ok"] * 3


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}",
        f"Bearer {KEY}",
        "Authorization: Basic dXNlcjpwYXNzd29yZA==",
        "https://user:hunter2secret@host/v1",
        "postgresql://user:p@hunter2@host/v1",
        "api_key=abcdef123456",
        "x-goog-api-key: AIzaSyA1234567890",
        "the value hunter2secret",
    ],
)
def test_keys_are_scrubbed(text: str) -> None:
    clean = scrub(text, ["hunter2secret"])
    assert "[key]" in clean
    assert not any(key in clean for key in (KEY, "dXNlcjpw", "hunter2", "abcdef123456", "AIzaSyA"))


def test_prose_is_not_scrubbed() -> None:
    text = (
        "The model supports a maximum of 8192 tokens: "
        "the key point is that task-oriented desk-work is fine."
    )
    assert scrub(text) == text


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"choices": [{"finish_reason": "length"}]}, "length"),
        ({"stop_reason": "max_tokens"}, "length"),
        ({"stop_reason": "end_turn"}, "stop"),
        ({"done_reason": "length"}, "length"),
        ({"finish_reason": "MAX_TOKENS"}, "length"),
        ({"candidates": [{"finish_reason": "FinishReason.MAX_TOKENS"}]}, "length"),
        ({"stopReason": "max_tokens"}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"choices": [{"finish_reason": "content_filter"}]}, "filtered"),
        ({"choices": [{"finish_reason": "stop", "message": {"refusal": "no"}}]}, "refused"),
        ({"choices": []}, ""),
        (None, ""),
        ("text", ""),
    ],
)
def test_why_a_model_stopped_is_found_where_each_provider_puts_it(raw: Any, reason: str) -> None:
    response = MockLLM().complete("x")
    response.raw = raw
    assert finish_reason(response) == reason
