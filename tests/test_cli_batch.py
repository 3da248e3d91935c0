"""`densex batch`: requests out, results in, and `densex index` does the rest."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.llms.mock import MockLLM
from llama_index.llms.openai import OpenAI

from llama_pack_densex import LLMPropositionizer, PropositionNodeParser, SentencePropositionizer
from llama_pack_densex.ingestion.batch import body_maker, export_requests, request_files
from llama_pack_densex.llm.cache import ReplyCache
from llama_pack_densex.llm.usage import Reply as KeptReply
from tests.openai_server import OpenAIServer, Reply, asked_content, held
from tests.test_cli import run, run_json

TEA = "Green tea is steamed. Black tea is oxidised."
FACTS = {
    "Green tea is steamed.": ["Green tea is steamed."],
    "Black tea is oxidised.": ["Black tea is oxidised."],
    "琵琶湖は日本最大の湖である。": ["琵琶湖は日本最大の湖である。"],
    "面積は約670平方キロメートルである。": ["琵琶湖の面積は約670平方キロメートルである。"],
    "味噌は大豆から作られる。": ["味噌は大豆から作られる。"],
    "信州味噌は長野県で作られる。": ["信州味噌は長野県で作られる。"],
    "The Akashi Bridge opened in 1998.": ["The Akashi Bridge opened in 1998."],
    "It crosses a busy strait.": ["The Akashi Bridge crosses a busy strait."],
    "新幹線は1964年に開業した。": ["新幹線は1964年に開業した。"],
    "最初の路線は東京と新大阪を結んだ。": ["新幹線の最初の路線は東京と新大阪を結んだ。"],
}
ALL_FACTS = {text for texts in FACTS.values() for text in texts}
FILES = {
    "tea.md": TEA,
    "琵琶湖.md": "琵琶湖は日本最大の湖である。面積は約670平方キロメートルである。",
    "味噌.txt": "味噌は大豆から作られる。信州味噌は長野県で作られる。",
    "bridges.md": "The Akashi Bridge opened in 1998. It crosses a busy strait.",
    "鉄道.md": "新幹線は1964年に開業した。最初の路線は東京と新大阪を結んだ。",
}
Request = dict[str, Any]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder with documents of one passage each, in English and Japanese."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def export(docs: Path, tmp_path: Path, *options: str | Path) -> list[Request]:
    """Export to fresh files, and return the requests in them."""
    code, output = run(
        "batch", "export", docs, "--to", tmp_path / "index", "--out", tmp_path / "out", *options
    )
    assert code == 0, output
    return requests_in(tmp_path / "out")


def requests_in(folder: Path) -> list[Request]:
    files = sorted(folder.glob("requests-*.jsonl"))
    return [
        json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()
    ]


def done(request: Request, reply: Reply | str) -> dict[str, Any]:
    """The result of a request that the service has done."""
    reply = Reply(reply) if isinstance(reply, str) else reply
    if reply.status >= 400:
        body: dict[str, Any] = {
            "error": {"message": reply.content, "type": "error", "code": reply.code}
        }
    else:
        message = {"role": "assistant", "content": reply.content, "refusal": reply.refusal}
        body = {
            "object": "chat.completion",
            "model": f"{request['body']['model']}-2024-07-18",
            "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
            "usage": {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100},
        }
    response = {"status_code": reply.status, "request_id": "req_1", "body": body}
    return {
        "id": "batch_req_1",
        "custom_id": request["custom_id"],
        "response": response,
        "error": None,
    }


def expired(request: Request) -> dict[str, Any]:
    error = {
        "code": "batch_expired",
        "message": "This request could not be executed before the window expired.",
    }
    return {
        "id": "batch_req_1",
        "custom_id": request["custom_id"],
        "response": None,
        "error": error,
    }


def answer(
    requests: Iterable[Request], responder: Callable[[dict[str, Any]], Reply | str]
) -> list[dict[str, Any]]:
    return [done(request, responder(request["body"])) for request in requests]


def write_results(file: Path, results: Sequence[Mapping[str, Any]], *others: str) -> Path:
    lines = [json.dumps(result, ensure_ascii=False) for result in results]
    file.write_text("\n".join([*lines, *others]) + "\n", encoding="utf-8")
    return file


def index(
    docs: Path, tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, *options: str
) -> set[str]:
    """Run `densex index`, and return all propositions of the index."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("OPENAI_API_BASE", server.url)
    code, output = run("index", docs, "--to", tmp_path / "index", "--embed-model", "none", *options)
    assert code == 0, output
    monkeypatch.delenv("OPENAI_API_KEY")
    shown = run_json("inspect", tmp_path / "index")["shown"]
    return {unit["text"] for passage in shown for unit in passage["propositions"]}


def asked(server: OpenAIServer) -> Counter[str]:
    return Counter(seen.content for seen in server.requests)


# export


def test_there_is_one_request_for_each_passage(docs: Path, tmp_path: Path) -> None:
    requests = export(docs, tmp_path)
    assert {asked_content(request["body"]) for request in requests} == set(FILES.values())
    assert len({request["custom_id"] for request in requests}) == len(requests) == len(FILES)
    assert all(len(request["custom_id"]) <= 64 for request in requests)


@pytest.mark.parametrize("model", ["gpt-4o-mini", "o3-mini", "gpt-5-mini"])
def test_a_request_is_what_the_live_path_sends(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    exported = {
        asked_content(r["body"]): r["body"] for r in export(docs, tmp_path, "--llm-model", model)
    }
    with OpenAIServer(held(FACTS)) as server:
        index(docs, tmp_path, server, monkeypatch, "--llm-model", model)
        sent = {seen.content: seen.body for seen in server.requests}
    assert {content: {**body, "stream": False} for content, body in exported.items()} == sent


@pytest.mark.parametrize(
    "llm",
    [
        OpenAI(
            model="gpt-4o-mini",
            max_tokens=300,
            temperature=0.7,
            additional_kwargs={"seed": 7},
            api_key="sk-test",
        ),
        OpenAI(model="o3-mini", max_tokens=300, reasoning_effort="low", api_key="sk-test"),
        OpenAI(
            model="gpt-4o-mini",
            system_prompt="日本語で。",
            additional_kwargs={
                "extra_body": {"top_k": 1},
                "extra_headers": {"X-Secret": "sk-x"},
                "timeout": 9.0,
            },
            api_key="sk-test",
        ),
    ],
)
def test_settings_of_the_llm_are_in_the_body_as_it_sends_them(llm: OpenAI) -> None:
    with OpenAIServer(held(FACTS)) as server:
        propositionizer = LLMPropositionizer(llm.model_copy(update={"api_base": server.url}))
        parser = PropositionNodeParser(propositionizer=propositionizer)
        [passage] = parser.passages_of(Document(text=TEA, metadata={"title": "茶"}))
        propositionizer.propositionize([passage])
        [sent] = server.requests
    messages = propositionizer.question(passage).messages
    assert {**body_maker(llm, propositionizer.form)(messages), "stream": False} == sent.body


def test_the_mode_decides_the_passages_as_in_densex_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    paragraphs = [
        "".join(f"第{n}文は短い。" for n in range(20 * k, 20 * k + 20)) for k in range(30)
    ]
    (docs / "長い文書.md").write_text("\n\n".join(paragraphs), encoding="utf-8")
    requests = export(docs, tmp_path, "--mode", "auto_merging")
    with OpenAIServer(lambda body: json.dumps([asked_content(body)])) as server:
        index(
            docs,
            tmp_path,
            server,
            monkeypatch,
            "--mode",
            "auto_merging",
            "--llm-model",
            "gpt-4o-mini",
        )
        assert asked(server) == Counter(asked_content(request["body"]) for request in requests)


def test_identical_passages_are_asked_once(docs: Path, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (docs / folder).mkdir()
        (docs / folder / "tea.md").write_text(TEA, encoding="utf-8")
    output = run_json(
        "batch", "export", docs, "--to", tmp_path / "index", "--out", tmp_path / "out"
    )
    assert (output["estimate"]["passages"], output["estimate"]["distinct_passages"]) == (7, 5)
    assert output["estimate"]["requests"] == len(requests_in(tmp_path / "out")) == 5


def test_passages_with_a_kept_reply_are_left_out(docs: Path, tmp_path: Path) -> None:
    requests = export(docs, tmp_path)
    ReplyCache(tmp_path / "index" / "replies.db").put(
        requests[0]["custom_id"], KeptReply("[]", "stop")
    )
    assert export(docs, tmp_path, "--force") == requests[1:]


def test_documents_that_the_index_has_are_left_out(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer(held(FACTS)) as server:
        index(docs, tmp_path, server, monkeypatch, "--llm-model", "gpt-4o-mini")
    for file in (tmp_path / "index").glob("replies.db*"):
        file.unlink()
    (docs / "新しい.md").write_text("味噌は大豆から作られる。", encoding="utf-8")
    assert [asked_content(request["body"]) for request in export(docs, tmp_path)] == [
        "味噌は大豆から作られる。"
    ]


def test_files_hold_no_more_requests_than_asked_for(docs: Path, tmp_path: Path) -> None:
    report = run_json(
        "batch",
        "export",
        docs,
        "--to",
        tmp_path / "index",
        "--out",
        tmp_path / "out",
        "--requests-per-file",
        "2",
    )
    assert [file["requests"] for file in report["files"]] == [2, 2, 1]


def test_no_key_is_needed_and_none_is_written(docs: Path, tmp_path: Path) -> None:
    arguments = (
        "batch",
        "export",
        docs,
        "--to",
        tmp_path / "index",
        "--out",
        tmp_path / "out",
        "--json",
    )
    code, output = run(*arguments, OPENAI_API_KEY="sk-secret-of-the-user")
    assert code == 0, output
    written = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir())
    assert "sk-secret" not in written + output
    assert "since nothing is asked" not in written + output


def test_an_export_says_what_to_do_next(docs: Path, tmp_path: Path) -> None:
    code, output = run(
        "batch", "export", docs, "--to", tmp_path / "my index", "--out", tmp_path / "out"
    )
    assert code == 0
    assert re.search(r"requests +5 +to gpt-4o-mini", output)
    assert f"densex batch import RESULTS... --to '{tmp_path / 'my index'}'" in output
    assert (
        f"densex index PATH... --to '{tmp_path / 'my index'}' --propositionizer llm --llm gpt-4o-mini"
        in output
    )


def test_an_export_tells_tokens_and_the_price_of_a_batch(docs: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"gpt-4o-mini": {"input": 2000, "output": 4000, "batch_factor": 0.25}}')
    report = run_json(
        "batch",
        "export",
        docs,
        "--to",
        tmp_path / "index",
        "--out",
        tmp_path / "out",
        "--prices",
        prices,
    )
    expected = report["estimate"]
    assert expected["requests"] == 5
    assert expected["input_tokens"] > 5 * 200
    assert 100 < expected["output_tokens"] < 400
    dollars = (expected["input_tokens"] * 2000 + expected["output_tokens"] * 4000) / 1e6
    assert expected["cost_batch"] == pytest.approx(dollars / 4)


def test_an_export_of_nothing_says_so(docs: Path, tmp_path: Path) -> None:
    results = write_results(tmp_path / "results.jsonl", answer(export(docs, tmp_path), held(FACTS)))
    assert run("batch", "import", results, "--to", tmp_path / "index")[0] == 0
    code, output = run(
        "batch", "export", docs, "--to", tmp_path / "index", "--out", tmp_path / "more"
    )
    assert code == 0
    assert "There is nothing to request" in output
    assert not (tmp_path / "more").exists()


def test_earlier_request_files_stay_without_force(docs: Path, tmp_path: Path) -> None:
    before = export(docs, tmp_path)
    (docs / "tea.md").unlink()
    code, output = run(
        "batch", "export", docs, "--to", tmp_path / "index", "--out", tmp_path / "out"
    )
    assert code == 1
    assert "earlier export" in output
    assert requests_in(tmp_path / "out") == before


def test_request_files_do_not_get_into_the_way_of_the_index(docs: Path, tmp_path: Path) -> None:
    code, output = run(
        "batch", "export", docs, "--to", tmp_path / "index", "--out", tmp_path / "index"
    )
    assert code == 1
    assert "in the index's folder" in " ".join(output.split())
    assert run("batch", "export", docs, "--to", tmp_path / "index", "--out", docs / "out")[0] == 0
    code, output = run("index", docs, "--to", tmp_path / "index", "--propositionizer", "sentence")
    assert (code, "5 indexed" in output) == (0, True)


def test_an_unreadable_file_stops_a_strict_export_and_is_skipped_by_others(
    docs: Path, tmp_path: Path
) -> None:
    (docs / "壊れた.md").write_bytes(b"\0\1\2")
    arguments = ("batch", "export", docs, "--to", tmp_path / "index", "--out", tmp_path / "out")
    code, output = run(*arguments, "--strict")
    assert code == 1
    assert "壊れた.md" in output
    assert not (tmp_path / "out").exists()
    code, output = run(*arguments)
    assert code == 0
    assert "Warning: skipped" in output
    assert len(requests_in(tmp_path / "out")) == 5


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "blank.md").write_text(" \n")
    arguments = (
        "batch",
        "export",
        tmp_path / "docs",
        "--to",
        tmp_path / "index",
        "--out",
        tmp_path / "out",
    )
    code, output = run(*arguments)
    assert code == 1
    assert "no file with any text" in output


def test_a_model_that_cannot_be_asked_is_refused(docs: Path, tmp_path: Path) -> None:
    arguments = ("batch", "export", docs, "--to", tmp_path / "index", "--out", tmp_path / "out")
    code, output = run(*arguments, "--llm-model", "gpt-3.5-turbo-instruct")
    assert code == 1
    assert "completes texts" in " ".join(output.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("propositionizer", "why"),
    [(LLMPropositionizer(MockLLM()), "not of MockLLM"), (SentencePropositionizer(), "uses no LLM")],
)
def test_what_asks_no_openai_llm_is_refused(tmp_path: Path, propositionizer: Any, why: str) -> None:
    parser = PropositionNodeParser(propositionizer=propositionizer)
    with pytest.raises(ValueError, match=why), request_files(tmp_path / "out") as files:
        export_requests([Document(text=TEA)], parser, files)


# import


@pytest.fixture
def requests(docs: Path, tmp_path: Path) -> list[Request]:
    return export(docs, tmp_path)


def imported(tmp_path: Path, *files: Path) -> Any:
    return run_json("batch", "import", *files, "--to", tmp_path / "index")


def test_replies_are_kept_under_the_keys_of_their_requests(
    requests: list[Request], tmp_path: Path
) -> None:
    report = imported(
        tmp_path, write_results(tmp_path / "results.jsonl", answer(requests, held(FACTS)))
    )
    assert (report["imported"], report["already_there"], report["unusable"]) == (5, 0, {})
    cache = ReplyCache(tmp_path / "index" / "replies.db")
    for request in requests:
        kept = cache.get(request["custom_id"])
        assert isinstance(kept, KeptReply)
        assert json.loads(kept.text) == [
            text
            for key, texts in FACTS.items()
            if key in asked_content(request["body"])
            for text in texts
        ]


def test_a_second_import_changes_nothing(requests: list[Request], tmp_path: Path) -> None:
    file = write_results(tmp_path / "results.jsonl", answer(requests, held(FACTS)))
    imported(tmp_path, file)
    other = write_results(
        tmp_path / "other.jsonl", answer(requests, lambda body: '["something else"]')
    )
    report = imported(tmp_path, file, other)
    assert (report["imported"], report["already_there"], report["usage"]["requests"]) == (0, 10, 0)
    kept = ReplyCache(tmp_path / "index" / "replies.db").get(requests[0]["custom_id"])
    assert isinstance(kept, KeptReply)
    assert "something else" not in kept.text


def test_of_two_results_for_a_request_the_first_counts(
    requests: list[Request], tmp_path: Path
) -> None:
    results = [
        *answer(requests[:1], lambda body: '["first"]'),
        *answer(requests[:1], lambda body: '["second"]'),
    ]
    report = imported(tmp_path, write_results(tmp_path / "results.jsonl", results))
    assert (report["imported"], report["already_there"]) == (1, 1)
    kept = ReplyCache(tmp_path / "index" / "replies.db").get(requests[0]["custom_id"])
    assert isinstance(kept, KeptReply)
    assert kept.text == '["first"]'


def test_what_cannot_be_used_is_counted_by_reason(requests: list[Request], tmp_path: Path) -> None:
    results = [
        *answer(requests[:1], held(FACTS)),
        done(requests[1], Reply("server error", status=500)),
        expired(requests[2]),
        expired(requests[3]),
        {**done(requests[4], "[]"), "custom_id": "request-1"},
    ]
    report = imported(
        tmp_path, write_results(tmp_path / "results.jsonl", results, '{"custom_id": "')
    )
    assert (report["lines"], report["imported"]) == (6, 1)
    assert report["unusable"] == {
        "the request failed (batch_expired)": 2,
        "the request failed (500 error)": 1,
        "the custom_id is not of an export of densex": 1,
        "the line is damaged, or no result but a request": 1,
    }


def test_usage_is_priced_as_a_batch(requests: list[Request], tmp_path: Path) -> None:
    report = imported(
        tmp_path, write_results(tmp_path / "results.jsonl", answer(requests, held(FACTS)))
    )
    assert (report["usage"]["input_tokens"], report["usage"]["output_tokens"]) == (5_000, 500)
    assert report["cost"] == pytest.approx((5_000 * 0.15 + 500 * 0.60) / 1e6 / 2)


def test_a_price_that_is_not_known_is_not_made_up(docs: Path, tmp_path: Path) -> None:
    results = answer(export(docs, tmp_path), held(FACTS))
    for result in results:
        result["response"]["body"]["model"] = "a-model-of-tomorrow"
    assert imported(tmp_path, write_results(tmp_path / "results.jsonl", results))["cost"] is None


def test_an_import_says_how_to_finish(requests: list[Request], tmp_path: Path) -> None:
    results = [
        done(requests[0], Reply('["味噌', finish_reason="length")),
        done(requests[1], Reply("too long", status=400, code="context_length_exceeded")),
        expired(requests[2]),
    ]
    file = write_results(tmp_path / "results.jsonl", results)
    code, output = run("batch", "import", file, "--to", tmp_path / "index")
    assert code == 0
    assert "Imported: 2." in output
    assert "1: the request failed (batch_expired)" in output
    assert (
        f"densex index PATH... --to {tmp_path / 'index'} --propositionizer llm --llm NAME" in output
    )


def test_a_file_without_any_result_is_an_error(requests: list[Request], tmp_path: Path) -> None:
    code, output = run(
        "batch", "import", tmp_path / "out" / "requests-0001.jsonl", "--to", tmp_path / "index"
    )
    assert code == 1
    assert "5: the line is damaged, or no result but a request" in output


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    assert run("batch", "import", tmp_path / "nowhere.jsonl", "--to", tmp_path / "index")[0] == 2
    assert not (tmp_path / "index").exists()


def test_replies_are_not_put_into_a_folder_of_other_things(
    requests: list[Request], docs: Path, tmp_path: Path
) -> None:
    file = write_results(tmp_path / "results.jsonl", answer(requests, held(FACTS)))
    code, output = run("batch", "import", file, "--to", docs)
    assert code == 1
    assert "holds other files" in output
    assert not (docs / "replies.db").exists()


# from end to end


def test_index_asks_for_nothing_where_all_came_back(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer() as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)  # replies are kept by server
        imported(
            tmp_path,
            write_results(tmp_path / "results.jsonl", answer(export(docs, tmp_path), held(FACTS))),
        )
        assert index(docs, tmp_path, server, monkeypatch, "--llm-model", "gpt-4o-mini") == ALL_FACTS
        assert server.requests == []


def test_index_asks_only_for_what_is_missing_or_cannot_be_used(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = held(FACTS)
    server = OpenAIServer(right)
    monkeypatch.setenv("OPENAI_API_BASE", server.url)  # replies are kept by server
    by_text = {asked_content(request["body"]): request for request in export(docs, tmp_path)}
    tea, lake, miso, bridge, trains = (by_text[text] for text in FILES.values())
    output = [
        done(tea, right(tea["body"])),
        done(lake, Reply('["琵琶湖は日本最大の湖である。", "琵琶湖の面', finish_reason="length")),
        done(miso, "味噌についての文章ですね。"),  # no list: asked again
        done(
            trains,
            '```json\n["新幹線は1964年に開業した。", "新幹線の最初の路線は東京と新大阪を結んだ。",]\n```',
        ),
    ]
    random.Random(0).shuffle(output)
    files = [
        write_results(tmp_path / "output.jsonl", output, '{"id": "batch_req_9", "custom'),
        write_results(tmp_path / "errors.jsonl", [expired(bridge)]),
    ]
    report = imported(tmp_path, *files)
    assert (report["imported"], sum(report["unusable"].values())) == (4, 2)
    with server:
        assert index(docs, tmp_path, server, monkeypatch, "--llm-model", "gpt-4o-mini") == ALL_FACTS
        assert asked(server) == {
            "琵琶湖は日本最大の湖である。": 1,
            "面積は約670平方キロメートルである。": 1,
            FILES["味噌.txt"]: 1,
            FILES["bridges.md"]: 1,
        }


def test_a_second_round_of_a_batch_asks_for_what_the_first_one_left(
    docs: Path, tmp_path: Path
) -> None:
    first = export(docs, tmp_path)
    results = [*answer(first[:3], held(FACTS)), *map(expired, first[3:])]
    imported(tmp_path, write_results(tmp_path / "results.jsonl", results))
    assert export(docs, tmp_path, "--force") == first[3:]
