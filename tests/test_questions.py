"""Questions that a passage answers: asked of an LLM, recorded, searched, and answered by propositions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.schema import BaseNode, IndexNode, TextNode
from llama_index.llms.openai import OpenAI
from typer.testing import CliRunner

from llama_pack_densex import (
    DenseXRetrievalPack,
    LLMPropositionizer,
    Passage,
    PropositionNodeParser,
    RecordedPropositionizer,
)
from llama_pack_densex.cli.app import app
from llama_pack_densex.llm.usage import count_tokens
from llama_pack_densex.propositionizers.prompts import default_prompts
from llama_pack_densex.propositionizers.replies import read_reply
from llama_pack_densex.retrieval.hits import matched_units
from tests.embedding import TrigramEmbedding
from tests.openai_server import OpenAIServer, Reply, asked_content
from tests.test_cli import run
from tests.test_cli_batch import answer, requests_in, write_results

MISO = "Miso is made of soybeans. It is salty. The Japanese eat it in soup."
TEA = "お茶はツバキ科の木の葉から作る。煎茶は緑色である。"
PROPOSITIONS = {
    MISO: ["Miso is made of soybeans.", "Miso is salty.", "The Japanese eat miso in soup."],
    TEA: ["お茶はツバキ科の木の葉から作る。", "煎茶は緑色である。"],
}
QUESTIONS = {
    MISO: ["Which legume becomes a paste?", "How do Japanese people consume miso in a broth?"],
    TEA: ["煎茶はどんな色をしている？", "飲料の原料になる植物は？"],
}
DOCUMENTS = [Document(id_="miso", text=MISO), Document(id_="tea", text=TEA)]


def answered(body: dict[str, Any]) -> Reply:
    text = asked_content(body)
    return Reply(
        json.dumps(
            {"propositions": PROPOSITIONS[text], "questions": QUESTIONS[text]}, ensure_ascii=False
        )
    )


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(answered) as server:
        yield server


def asking(server: OpenAIServer, **settings: Any) -> LLMPropositionizer:
    llm = OpenAI(
        model="gpt-4o-mini", api_base=server.url, api_key="sk-test-0123456789", max_retries=0
    )
    return LLMPropositionizer(llm, **{"questions": True, **settings})


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording with propositions and questions in lines of their own, as of two files that were joined."""
    path = tmp_path / "recorded.jsonl"
    lines = [{"text": text, "propositions": made} for text, made in PROPOSITIONS.items()]
    lines += [{"text": text, "questions": made} for text, made in QUESTIONS.items()]
    path.write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8"
    )
    return path


def questions_in(nodes: list[BaseNode]) -> list[IndexNode]:
    return [
        node
        for node in nodes
        if node.metadata["densex_granularity"] == "question" and isinstance(node, IndexNode)
    ]


def test_one_request_a_passage_brings_both(server: OpenAIServer) -> None:
    made = asking(server).propositionize([Passage(MISO), Passage(TEA)])
    assert [list(one.texts) for one in made] == list(PROPOSITIONS.values())
    assert [list(one.questions) for one in made] == list(QUESTIONS.values())
    assert len(server.requests) == 2
    assert ["質問" in seen.messages[0]["content"] for seen in server.requests] in (
        [False, True],
        [True, False],
    )


def test_they_are_not_asked_for_unless_wanted_and_node_ids_tell_the_difference(
    server: OpenAIServer,
) -> None:
    without = asking(server, questions=False)
    without.propositionize([Passage(MISO)])
    assert "questions" not in server.requests[0].messages[0]["content"]
    assert without.fingerprint != asking(server).fingerprint


@pytest.mark.parametrize("questions", [False, True])
def test_the_instructions_are_not_longer_than_two_passages_of_128_tokens(questions: bool) -> None:
    for prompt in default_prompts(questions).values():
        messages = prompt.format_messages(title="", section="", content="", note="")
        # where questions are asked for too, they may take a fifth more
        assert count_tokens(str(messages[0].content)) <= 2 * 128 * (1.25 if questions else 1)
        assert "{{" not in str(messages[0].content)


@pytest.mark.parametrize(
    "reply",
    [
        '{"propositions": ["A is b."], "questions": ["What is a?"]}',
        '```json\n{"questions": ["What is a?"], "propositions": ["A is b."]}\n```',
        '{"result": {"命題": ["A is b."], "質問": ["What is a?"]}}',
        '[{"proposition": "A is b.", "question": "What is a?"}]',
        '{"propositions": ["A is b."], "more": {"questions": ["What is a?"]}}',
        '["A is b."]\n["What is a?"]',
        '["A is b.", "What is a?"]',
        "- A is b.\n- What is a?",
    ],
)
def test_a_reply_is_read_however_the_model_arranges_both(reply: str) -> None:
    read = read_reply(reply, finished=True, questions=True)
    assert (read.texts, read.questions, read.problem) == (("A is b.",), ("What is a?",), None)


def test_a_passage_of_questions_has_them_as_propositions() -> None:
    reply = '{"propositions": ["What is tea made of?"], "questions": ["What does the quiz ask?"]}'
    read = read_reply(reply, finished=True, questions=True)
    assert (read.texts, read.questions) == (("What is tea made of?",), ("What does the quiz ask?",))


def test_questions_in_another_language_than_the_passage_are_left_out(server: OpenAIServer) -> None:
    drifted = {
        "propositions": PROPOSITIONS[TEA],
        "questions": ["What colour does sencha have?", "What is tea made of?"],
    }
    server.responder = lambda body: Reply(json.dumps(drifted, ensure_ascii=False))
    made = asking(server).propositionize([Passage(TEA)])[0]
    assert (list(made.texts), made.questions, made.status) == (PROPOSITIONS[TEA], (), "ok")


def test_a_model_that_writes_no_questions_loses_no_propositions(server: OpenAIServer) -> None:
    server.responder = lambda body: Reply(
        json.dumps(PROPOSITIONS[asked_content(body)], ensure_ascii=False)
    )
    made = asking(server).propositionize([Passage(MISO), Passage(TEA)])
    assert [(list(one.texts), one.questions) for one in made] == [
        (texts, ()) for texts in PROPOSITIONS.values()
    ]


def test_what_an_llm_wrote_is_recorded_and_read_again(server: OpenAIServer, tmp_path: Path) -> None:
    made = asking(server, record_to=tmp_path / "out.jsonl").propositionize(
        [Passage(MISO), Passage(TEA)]
    )
    assert (
        RecordedPropositionizer(tmp_path / "out.jsonl").propositionize(
            [Passage(MISO), Passage(TEA)]
        )
        == made
    )


def test_a_question_is_a_node_that_leads_to_its_passage_and_names_what_answers_it(
    recording: Path,
) -> None:
    parser = PropositionNodeParser(propositionizer=RecordedPropositionizer(recording))
    nodes = parser.get_nodes_from_documents(DOCUMENTS)
    by_id = {node.node_id: node for node in nodes}
    found = questions_in(nodes)
    assert [node.text for node in found] == [text for texts in QUESTIONS.values() for text in texts]
    for node in found:
        passage = by_id[node.index_id]
        assert passage.get_content() in (MISO, TEA)
        assert node.parent_node is not None
        assert node.parent_node.node_id == passage.node_id
        assert node.node_id not in [child.node_id for child in passage.child_nodes or []]
        for node_id, *told in json.loads(node.metadata["densex_answers"]):
            answer = by_id[node_id]
            assert isinstance(answer, TextNode)
            unverified = "densex_unverified" in answer.metadata
            assert told == [answer.text, answer.start_char_idx, answer.end_char_idx, unverified]
    answers = {node.text: json.loads(node.metadata["densex_answers"])[0][1] for node in found}
    assert (
        answers["How do Japanese people consume miso in a broth?"]
        == "The Japanese eat miso in soup."
    )
    assert answers["煎茶はどんな色をしている？"] == "煎茶は緑色である。"


@pytest.mark.parametrize("mode", ["recursive", "auto_merging"])
@pytest.mark.parametrize("embedded", [False, True])
def test_a_passage_is_found_by_its_questions_and_shows_what_answers_them(
    recording: Path, tmp_path: Path, mode: Any, embedded: bool
) -> None:
    made_by = RecordedPropositionizer(recording)
    arguments: dict[str, Any] = {"embed_model": TrigramEmbedding() if embedded else "none"}
    DenseXRetrievalPack(
        DOCUMENTS,
        propositionizer=made_by,
        query_llm="none",
        mode=mode,
        persist_dir=tmp_path / "index",
        **arguments,
    )
    pack = DenseXRetrievalPack.load(tmp_path / "index", query_llm="none", **arguments)
    assert pack.counts().questions == 4
    for question, text in (("legume paste", MISO), ("飲料の原料になる植物", TEA)):
        hit = pack.retrieve(question, similarity_top_k=1)[0]
        assert hit.node.get_content() in text
        units = matched_units(hit.node)
        assert {unit.granularity for unit in units} <= {"proposition", "sentence", "passage"}
        assert any(
            unit.question in QUESTIONS[text] and unit.text in PROPOSITIONS[text] for unit in units
        )
        assert all(unit.span for unit in units)


@pytest.mark.parametrize("embedded", [False, True])
def test_what_only_a_question_finds_is_read_with_what_answers_it(
    recording: Path, embedded: bool
) -> None:
    pack = DenseXRetrievalPack(
        DOCUMENTS, propositionizer=RecordedPropositionizer(recording), query_llm="none", mode="auto_merging",
        embed_model=TrigramEmbedding() if embedded else "none",
    )  # fmt: skip
    (hit,) = pack.retrieve("Which legume becomes a salty paste?", similarity_top_k=1)
    assert matched_units(hit.node)[0].text == "Miso is made of soybeans."
    assert hit.node.get_content() == MISO  # not "It is salty.", which is far behind


def test_a_granularity_without_questions_does_not_search_them(recording: Path) -> None:
    pack = DenseXRetrievalPack(
        DOCUMENTS, propositionizer=RecordedPropositionizer(recording), query_llm="none", embed_model="none",
        granularity=("proposition", "sentence"),
    )  # fmt: skip
    units = [unit for hit in pack.retrieve("legume paste") for unit in matched_units(hit.node)]
    assert not any(unit.question for unit in units)


def test_export_has_what_a_recording_needs(recording: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for document in DOCUMENTS:
        (docs / f"{document.id_}.txt").write_text(document.text, encoding="utf-8")
    command = CliRunner()
    made = command.invoke(app, ["index", str(docs), "--to", str(tmp_path / "index"), "--embed-model", "none",
                            "--propositionizer", f"recorded:{recording}"])  # fmt: skip
    assert made.exit_code == 0, made.output
    assert "4 questions" in " ".join(made.output.split())
    exported = command.invoke(app, ["export", str(tmp_path / "index")])
    (tmp_path / "again.jsonl").write_text(exported.stdout, encoding="utf-8")
    again = RecordedPropositionizer(tmp_path / "again.jsonl").propositionize(
        [Passage(MISO), Passage(TEA)]
    )
    assert [(list(one.texts), list(one.questions)) for one in again] == [
        (PROPOSITIONS[text], QUESTIONS[text]) for text in (MISO, TEA)
    ]
    checked = command.invoke(app, ["check", str(tmp_path / "index")])
    assert (checked.exit_code, "4 questions" in " ".join(checked.output.split())) == (0, True)


def test_questions_come_through_the_batch_api_too(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", server.url)  # replies are kept by server
    docs, to = tmp_path / "docs", tmp_path / "index"
    docs.mkdir()
    for document in DOCUMENTS:
        (docs / f"{document.id_}.txt").write_text(document.text, encoding="utf-8")
    code, output = run(
        "batch", "export", docs, "--to", to, "--out", tmp_path / "out", "--questions"
    )
    assert (code, "--questions" in output) == (0, True)
    results = write_results(
        tmp_path / "results.jsonl", answer(requests_in(tmp_path / "out"), answered)
    )
    assert run("batch", "import", results, "--to", to)[0] == 0
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    code, output = run(
        "index",
        docs,
        "--to",
        to,
        "--embed-model",
        "none",
        "--propositionizer",
        "llm",
        "--questions",
    )
    assert (code, server.requests) == (0, [])
    assert "4 questions" in " ".join(output.split())
