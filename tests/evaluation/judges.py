"""What a judge LLM replies, for the server of the tests: to answers, to LlamaIndex's evaluators, and to
TruLens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from llama_index.llms.openai import OpenAI

from tests.openai_server import OpenAIServer, Reply

KINDS = {
    "as few words as possible": "reader",
    "Reply with a JSON object alone": "trulens",
    "either YES or NO": "groundedness",
    "retrieved context from the document sources are relevant": "context_relevance",
    "response is relevant to the query": "answer_relevance",
}


def kind_of(body: Mapping[str, Any]) -> str:
    """What a request is for: a key's value of `KINDS`, or "answer"."""
    said = json.dumps(body["messages"], ensure_ascii=False)
    return next((kind for words, kind in KINDS.items() if words in said), "answer")


def judging(
    **replies: str | Reply | Callable[[Mapping[str, Any]], str | Reply],
) -> Callable[[Any], str | Reply]:
    """A responder with a reply, or a responder, for each kind of request."""
    defaults: dict[str, Any] = {
        "answer": "The mill stood in Nendrum.[^1] It was built in 619.[^1]",
        "reader": "Nendrum",
        "context_relevance": "It helps. [RESULT] 3.0",
        "groundedness": "YES",
        "answer_relevance": "It does. [RESULT] 2",
        "trulens": '{"criteria": "c", "supporting_evidence": "e", "score": 3}',
    }

    def respond(body: Mapping[str, Any]) -> str | Reply:
        reply = {**defaults, **replies}[kind_of(body)]
        return reply(body) if callable(reply) else reply

    return respond


def openai(server: OpenAIServer) -> OpenAI:
    return OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test", max_retries=0)
