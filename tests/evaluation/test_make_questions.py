"""`make_questions` and `densex questions`: questions to measure on, about one's own documents."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.llms.openai import OpenAI

from llama_pack_densex import compare, make_questions
from llama_pack_densex.evaluation.datasets import DatasetError
from llama_pack_densex.evaluation.evaluation_set import Question
from llama_pack_densex.evaluation.make_questions import QuestionSet
from llama_pack_densex.llm.budget import BudgetError
from llama_pack_densex.llm.errors import LLMError
from tests.openai_server import OpenAIServer, Reply, asked_content
from tests.test_cli import run

Fields = dict[str, Any]

MILLS = {
    "mill.md": (
        "# Nendrum mill\n\nThe mill at Nendrum was built in 619. Its wheel turned when the tide went out, "
        "for about "
        "seven hours a day. Visitors pay [five euros](https://example.com/prices) at the gate, children "
        "nothing.\n",
        {
            "kind": "fact",
            "question": "How much is the entrance to Nendrum's watermill for a grown-up?",
            "evidence": "Visitors pay five euros at the gate, children nothing.",
            "answer": "five euros",
        },
    ),
    "bakery.md": (
        "# Strangford bakery\n\nThe bakery in Strangford sells loaves from Tuesday to Saturday. It is shut "
        "in February, and the staff then mend the ovens and paint the walls of the shop.\n",
        {
            "kind": "situation",
            "question": (
                "I will be near Strangford one Monday in winter. "
                "Can I buy bread there at the start of a week?"
            ),
            "evidence": "The bakery in Strangford sells loaves from Tuesday to Saturday.",
            "answer": "from Tuesday to Saturday",
        },
    ),
    "prices.md": (
        "# Boats\n\nBoats can be hired at the pier all summer, by the hour or for the whole day, with a "
        "skipper.\n\n| Boat | Hour | Day |\n| --- | --- | --- |\n| Rowing boat | 8 euros | 40 euros |\n"
        "| Sailing boat | 20 euros | 110 euros |\n",
        {
            "kind": "list",
            "question": "What would it cost me to go rowing with the kids from morning till evening?",
            "evidence": "| 40 euros",
            "answer": "40 euros",
        },
    ),
    "水車.md": (
        "# 霧浜の水車\n\n霧浜の水車は1874年に佐伯いとが建てた。水車は一日に七時間ほど回り、村の麦を粉にした。"
        "見学は**大人500円**、子どもは無料である。冬の間は閉まっている。\n",
        {
            "kind": "fact",
            "question": "霧浜で粉ひき小屋を見るには、いくら払えばいいですか？",
            "evidence": "見学は大人500円、子どもは無料である。",
            "answer": "大人500円",
        },
    ),
    "図書館.md": (
        "# 霧浜図書館\n\n図書館は火曜日から日曜日まで開いている。本は一人十冊まで二週間借りられる。"
        "返却が遅れた人は、遅れた日数だけ新しく借りることができない。\n",
        {
            "kind": "keyword",
            "question": "霧浜図書館 貸し出し 冊数",
            "evidence": "本は一人十冊まで二週間借りられる。",
            "answer": "一人十冊まで",
        },
    ),
}
"""A text, and a good reply to it, by the name of its file."""
REPLIES = {text.split("\n")[0]: fields for text, fields in MILLS.values()}
NUMBER = len(MILLS)


def written(fields: Fields) -> str:
    return json.dumps(fields, ensure_ascii=False)


def good_fields(body: Any) -> Fields:
    """The good reply to a request."""
    content = asked_content(body)
    return next(fields for heading, fields in REPLIES.items() if heading in content)


def replying(change: Callable[[Fields], str] = written) -> Callable[[Any], str]:
    """A responder with the good reply to each request, or what becomes of it."""
    return lambda body: change(dict(good_fields(body)))


def changed(**fields: Any) -> Callable[[Any], str]:
    """A responder with a good reply, some fields of which are others."""
    return replying(lambda good: written(good | fields))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    for name, (text, _) in MILLS.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    with OpenAIServer(replying()) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        yield server


def openai(server: OpenAIServer) -> OpenAI:
    return OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test", max_retries=0)


def rows_of(file: Path) -> list[Fields]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def questions_of(fields: Sequence[Any]) -> set[str]:
    return {
        question["question"] if isinstance(question, dict) else question.text for question in fields
    }


def test_evidence_is_a_stretch_of_the_document_and_holds_the_answer(
    folder: Path, server: OpenAIServer
) -> None:
    question_set = make_questions(folder, openai(server), NUMBER)
    assert questions_of(question_set.questions) == questions_of([*REPLIES.values()])
    assert not question_set.left_out
    for question in question_set.questions:
        text = (folder / question.document_id).read_text(encoding="utf-8")
        assert question.evidence in text
        assert question.answers[-1] in question.evidence
        assert question.kind in ("fact", "situation", "list", "keyword")
    evidence = {question.document_id: question.evidence for question in question_set.questions}
    assert evidence["mill.md"].startswith("Visitors pay [five euros](https://example.com/prices)")
    assert evidence["水車.md"] == "見学は**大人500円**、子どもは無料である。"
    assert evidence["prices.md"] == "| Rowing boat | 8 euros | 40 euros |"


def test_a_japanese_passage_is_asked_about_in_japanese_and_kinds_come_in_turn(
    folder: Path, server: OpenAIServer
) -> None:
    make_questions(folder, openai(server), NUMBER)
    notes = [seen.last_message.split("\n")[0] for seen in server.requests]
    assert {note.partition(": ")[2] for note in notes} == {"fact", "situation", "list", "keyword"}
    for seen in server.requests:
        is_japanese = "霧浜" in seen.content
        assert ("日本語で書く" in seen.messages[0]["content"]) == is_japanese
        assert "{{" not in seen.messages[0]["content"]


@pytest.mark.parametrize(
    "style",
    [
        lambda text: f"```json\n{text}\n```",
        lambda text: f"<think>\nA {{question}}? Let me see.\n</think>\n\n{text}",
        lambda text: f"Here is the question you wanted:\n\n{text}\n\nShall I write another one?",
        lambda text: f'{{"questions": [{text}]}}',
        lambda text: text.replace("'", "\u2019"),
    ],
    ids=["fenced", "thoughts", "talk", "in a list", "other quotation marks"],
)
def test_a_reply_is_read_whatever_stands_around_it(
    style: Callable[[str], str], folder: Path, server: OpenAIServer
) -> None:
    server.responder = replying(lambda fields: style(written(fields)))
    question_set = make_questions(folder, openai(server), NUMBER)
    assert len(question_set.questions) == NUMBER
    assert not question_set.left_out


@pytest.mark.parametrize(
    ("responder", "reason"),
    [
        (changed(evidence="Entrance is free for everybody."), "the evidence is not in the passage"),
        (changed(evidence="入場は無料です。"), "the evidence is not in the passage"),
        (changed(evidence=""), "the evidence is not in the passage"),
        (changed(answer="nine euros"), "the answer is not in the evidence"),
        (changed(answer=["a", "b"]), "the answer is not in the evidence"),
        (
            replying(lambda good: written(good | {"question": f"Is it {good['answer']}?"})),
            "the answer is in the question",
        ),
        (
            changed(question="Combien coûte une visite de cet endroit pour les enfants et les parents ?"),
            "the question is in another language than the passage",
        ),
        (changed(question=""), "the LLM finds nothing to ask"),
        (replying(lambda good: good["question"]), "the reply is not the JSON that was asked for"),
        (replying(lambda good: written(good)[:40]), "the reply is not the JSON that was asked for"),
        (replying(lambda good: "[]"), "the reply is not the JSON that was asked for"),
    ],
)  # fmt: skip
def test_what_the_passage_does_not_answer_is_left_out(
    responder: Callable[[Any], str], reason: str, folder: Path, server: OpenAIServer
) -> None:
    server.responder = responder
    question_set = make_questions(folder, openai(server), NUMBER)
    assert question_set.questions == []
    assert set(question_set.left_out) == {reason}
    assert question_set.left_out.total() == len(server.requests) == 2 * NUMBER


def test_a_question_in_the_words_of_its_text_is_left_out(
    folder: Path, server: OpenAIServer
) -> None:
    copied = {
        "mill.md": "Was the mill at Nendrum built in 619?",
        "bakery.md": "When are loaves sold in the bakery in Strangford?",
        "図書館.md": "二週間借りられる",
    }
    texts = {MILLS[name][0].split("\n")[0]: question for name, question in copied.items()}

    def respond(body: Any) -> str:
        heading = next(heading for heading in REPLIES if heading in asked_content(body))
        return written(
            REPLIES[heading] | ({"question": texts[heading]} if heading in texts else {})
        )

    server.responder = respond
    question_set = make_questions(folder, openai(server), NUMBER)
    assert {
        question.document_id for question in question_set.questions
    } == MILLS.keys() - copied.keys()
    assert question_set.left_out["the question repeats the words of the text"] >= len(copied)


@pytest.mark.parametrize(
    ("texts", "answers", "questions"),
    [
        (
            [
                "The tower opens at nine in summer, and nobody is let in after six, not even children with a "
                "ticket.",
                "Nine steps lead to the tower's door, which has an iron lock of 1780 and a bell that is rung "
                "by hand.",
            ],
            ["at nine in summer", "Nine steps"],
            [
                "When in the morning may people climb up?",
                "When, in the morning, may people climb up",
            ],
        ),
        (
            [
                "塔は夏の間は九時に開き、六時を過ぎると切符を持つ子どもでも中に入ることができない。",
                "塔の入り口までは九段の石の階段を上る。扉には1780年の鉄の錠と手で鳴らす鐘がある。",
            ],
            ["九時に開き", "九段の石の階段"],
            ["朝は何時から登れますか？", "朝は何時から登れますか"],
        ),
    ],
)
def test_of_two_like_questions_one_is_kept(
    texts: list[str], answers: list[str], questions: list[str], server: OpenAIServer
) -> None:
    def respond(body: Any) -> str:
        number = texts.index(asked_content(body))
        answer = answers[number]
        return written(
            {
                "kind": "fact",
                "question": questions[number],
                "evidence": texts[number],
                "answer": answer,
            }
        )

    server.responder = respond
    question_set = make_questions([Document(text=text) for text in texts], openai(server), 2)
    assert len(question_set.questions) == 1
    assert set(question_set.left_out) == {"there is a question like it"}


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (
            "Die Mühle am Fluss wurde im Jahr 1780 gebaut und mahlt noch heute jeden Morgen Korn für das "
            "Dorf.",
            "",
        ),
        (
            "방앗간은 1780년에 지어졌으며 지금도 매일 아침 마을을 위해 곡식을 빻고 있습니다. 입장료는 "
            "없습니다.",
            "",
        ),
        ("磨坊建于1780年，至今每天早晨仍为村民磨面。参观者可以免费进入，但是冬天不开放。", ""),
        (
            "Die Mühle am Fluss wurde im Jahr 1780 gebaut und mahlt noch heute jeden Morgen Korn für das "
            "Dorf.",
            "Wie alt ist das Gebäude, in dem man hier Mehl macht?",
        ),
    ],
    ids=["German", "Korean", "Chinese", "German in German"],
)
def test_a_question_is_in_the_language_of_its_passage(
    text: str, question: str, server: OpenAIServer
) -> None:
    written_question = (
        question or "How old is the building where they make flour for the people who live there?"
    )
    fields = {"kind": "fact", "question": written_question, "evidence": text, "answer": "1780"}
    server.responder = lambda body: written(fields)
    question_set = make_questions([Document(text=text)], openai(server), 1)
    assert "in the passage's language" in server.requests[0].messages[0]["content"]
    assert questions_of(question_set.questions) == ({question} if question else set())


def test_passages_are_spread_over_the_documents_and_always_the_same(server: OpenAIServer) -> None:
    documents = [
        Document(
            text="\n\n".join(
                f"# {name} {part}\n\n"
                + f"Room {part} of the {name} has {part} beds and a long oak table. " * 12
                for part in range(parts)
            ),
            id_=name,
        )
        for name, parts in (("inn", 9), ("mill", 2), ("school", 3))
    ]
    server.responder = lambda body: written({"question": ""})
    make_questions(documents, openai(server), 3)
    first = sorted(seen.last_message for seen in server.requests[:3])
    assert sorted(seen.content.split()[1] for seen in server.requests[:3]) == [
        "inn",
        "mill",
        "school",
    ]
    make_questions(documents[::-1], openai(server), 3)
    again = server.requests[len(server.requests) // 2 :]
    assert sorted(seen.last_message for seen in again[:3]) == first


def test_compare_takes_the_questions_as_they_are(folder: Path, server: OpenAIServer) -> None:
    question_set = make_questions(folder, openai(server), NUMBER)
    report = compare(
        folder, question_set.questions, ["densex-sentences"], embed_model="none", language="en"
    )
    assert report.dataset.questions == NUMBER


def test_requests_are_limited(folder: Path, server: OpenAIServer) -> None:
    server.responder = lambda body: Reply(written(good_fields(body)), delay=0.05)
    make_questions(folder, openai(server), NUMBER, max_concurrency=2)
    assert server.peak <= 2


def test_a_run_that_is_stopped_goes_on_where_it_was(
    folder: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    answered = threading.Semaphore(2)

    def respond(body: Any) -> Reply | str:
        if answered.acquire(blocking=False):
            return written(good_fields(body))
        return Reply("bad key", status=401)

    server.responder = respond
    cache = tmp_path / "replies.sqlite"
    with pytest.raises(LLMError):
        make_questions(folder, openai(server), NUMBER, cache=cache, max_concurrency=1)
    server.responder = replying()
    question_set = make_questions(folder, openai(server), NUMBER, cache=cache)
    assert len(question_set.questions) == NUMBER
    assert (question_set.requests.cache_hits, question_set.requests.usage.requests) == (
        2,
        NUMBER - 2,
    )


def test_a_budget_is_kept_to(folder: Path, server: OpenAIServer) -> None:
    with pytest.raises(BudgetError, match=r"max_cost is \$1e-05"):
        make_questions(folder, openai(server), NUMBER, max_cost=0.00001)
    assert server.requests == []
    llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test", max_retries=0)
    prices = {"gpt-4o-mini": {"input": 1000.0}}
    assert make_questions(folder, llm, 1, prices=prices).requests.cost == pytest.approx(0.001)


def test_arguments_that_cannot_be_used_are_named(
    folder: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="number is 0"):
        make_questions(folder, openai(server), 0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="expected documents in it"):
        make_questions(tmp_path / "empty", openai(server))
    assert make_questions([Document(text="# Menu")], openai(server)).questions == []
    assert server.requests == []


def test_the_command_says_what_it_costs_and_writes_what_compare_and_evaluate_read(
    folder: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "questions.jsonl"
    arguments = ("questions", folder, "--out", out, "--number", str(NUMBER))
    code, output = run(*arguments, "--estimate")
    assert (code, server.requests, out.exists()) == (0, [], False)
    assert f"To send: gpt-4o-mini, {NUMBER} requests" in output
    code, output = run(*arguments)
    assert code == 0, output
    assert "Sent: gpt-4o-mini" in output
    assert f"{NUMBER} questions of {NUMBER}" in output
    rows = rows_of(out)
    assert all(
        row.keys() == {"question", "answers", "document", "evidence", "kind"} for row in rows
    )
    code, output = run(*arguments, "--json")
    assert json.loads(output[output.index("{") :])["requests"]["cache_hits"] == NUMBER
    assert rows_of(out) == rows
    assert len(server.requests) == NUMBER
    strategies = ("--strategies", "densex-sentences", "--embed-model", "none")
    code, output = run("compare", out, "--documents", folder, *strategies, "--language", "ja")
    assert code == 0, output
    assert "2 questions" in output
    code, output = run(
        "index",
        folder,
        "--to",
        tmp_path / "index",
        "--propositionizer",
        "sentence",
        "--embed-model",
        "none",
    )
    assert code == 0, output
    code, output = run(
        "evaluate", tmp_path / "index", out, "--query-llm", "none", "--language", "en"
    )
    assert code == 0, output
    assert "str_em" in output


def test_questions_that_were_edited_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    questions = QuestionSet([Question("1", "When? \ud83d", ("1889",), "tower")])
    for edited in ("first\n", "second\n"):
        file.write_text(edited, encoding="utf-8")
        questions.write(file)
        questions.write(file)
        assert rows_of(file)[0]["question"] == "When? \ud83d"  # half of an emoji
    assert (tmp_path / "questions.jsonl.1").read_text(encoding="utf-8") == "first\n"
    assert (tmp_path / "questions.jsonl.2").read_text(encoding="utf-8") == "second\n"
    assert len([*tmp_path.iterdir()]) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="it has no limit on the size of files")
def test_a_full_disk_leaves_what_was_written_earlier(tmp_path: Path) -> None:
    import resource

    file = tmp_path / "questions.jsonl"
    QuestionSet([Question("1", "When?", ("1889",), "tower")]).write(file)
    earlier = file.read_bytes()
    longer = QuestionSet([Question("1", "When? " * 2_000, ("1889",), "tower")])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            longer.write(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(file, earlier)]


def test_the_command_ends_with_1_where_there_is_no_question(
    folder: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    out = tmp_path / "questions.jsonl"
    server.responder = changed(evidence="Nobody said so.")
    code, output = run("questions", folder, "--out", out, "--number", "2")
    assert code == 1
    assert "4: the evidence is not in the passage" in output
    assert not out.exists()
    (tmp_path / "empty").mkdir()
    code, output = run("questions", tmp_path / "empty", "--out", out)
    assert code == 1
    assert "expected documents in it" in output
    code, output = run("questions", folder, "--out", out, "--max-cost", "0.000001")
    assert code == 1
    assert "max_cost" in output
