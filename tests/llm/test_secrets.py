"""Keys in what providers, clients and proxies say are shown nowhere, however short and wherever they
stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from llama_index.llms.openai import OpenAI

from llama_pack_densex import LLMPropositionizer, Passage
from llama_pack_densex.llm.errors import classify, scrub, secrets_in_environment
from llama_pack_densex.propositionizers.base import PropositionizerError
from tests.openai_server import OpenAIServer, Reply
from tests.test_cli import run


@pytest.mark.parametrize(
    "message",
    [
        "Proxy-Authorization: Basic {}",
        "{{'Proxy-Authorization': 'Negotiate {}'}}",
        "[(b'proxy-authorization', b'Basic {}'), (b'host', b'h')]",
        "[('x-api-key', '{}')]",
        "Authorization: Token {}",
        "GET https://host/v1/chat?x=1&key={} failed",
        "https://host/v1?api-key={}",
        "https://host/blob?se=1&sig={}#x",
        "https://host/?X-Amz-Signature={}",
        "cannot connect to http://user:{}@proxy:3128",
        "cannot connect to user:{}@proxy:3128",
        "http://{}@proxy:3128/",
        '{{"api_key":"{}"}}',
        "password='{}'",
        "鍵が違います api_key={}",
    ],
)
@pytest.mark.parametrize("key", ["q7", "秘密", "q7W-x", "A1b2C3d4E5f6G7h8A1b2C3d4E5f6G7h8"])
def test_a_key_is_recognised_by_where_it_stands(message: str, key: str) -> None:
    text = message.format(key)
    assert key not in scrub(text)
    assert key not in classify(RuntimeError(text)).message


@pytest.mark.parametrize(
    "message",
    [
        "it needs a key: set OPENAI_API_KEY",
        "max_tokens: 4096 is too large",
        "openai-like:qwen3@http://host:80/v1",
    ],
)
def test_what_is_no_key_stays(message: str) -> None:
    assert scrub(message) == message


def test_a_short_key_is_replaced_where_it_stands_alone() -> None:
    assert scrub("not the key ab, says Arabella", ["ab"]) == "not the key [key], says Arabella"


@pytest.mark.parametrize("proxy", ["http://user:p%40ss@proxy:3128", "user:p%40ss@proxy:3128"])
def test_the_password_of_a_proxy_is_known_as_it_is_sent(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    message = scrub("407: p%40ss, p@ss and dXNlcjpwQHNz are wrong", secrets_in_environment())
    assert message == "407: [key], [key] and [key] are wrong"


@pytest.mark.parametrize("key", ["q7", "q7Wx", "sk-q7"])
def test_a_refused_key_is_not_quoted(key: str, tmp_path: Path) -> None:
    refusal = Reply(f"The credential {key} was not accepted", status=401, code="invalid_api_key")
    with OpenAIServer(lambda body: refusal) as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key=key, max_retries=0)
        with pytest.raises(PropositionizerError) as raised:
            LLMPropositionizer(llm).propositionize([Passage("Miso is salty.")])
        (tmp_path / "miso.txt").write_text("Miso is salty.")
        model = f"openai:gpt-4o-mini@{server.url}"
        arguments = (
            "index",
            tmp_path / "miso.txt",
            "--to",
            tmp_path / "index",
            "--embed-model",
            "none",
        )
        _, output = run(*arguments, "--llm", model, OPENAI_API_KEY=key)
    assert key not in str(raised.value)
    assert "[key]" in output
    assert key not in output
