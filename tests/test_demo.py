"""The demonstration."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_pack_densex.demo import Question, build_demo, has_answer, judge, read_questions, require_data
from tests.conftest import DATA


def question(language: str, *answers: str) -> Question:
    return Question("q", language, "?", answers, "d.md")


@pytest.mark.parametrize("mode", ["recursive", "auto_merging"])
def test_four_of_five_answers_are_in_what_a_reader_gets(mode: str) -> None:
    questions = read_questions(DATA / "questions.jsonl")
    judgements = judge(questions, build_demo(DATA, mode).retrieve)  # type: ignore[arg-type]
    assert len(judgements) == 60
    assert sum(judgement.found for judgement in judgements) >= 48


def test_documents_are_called_as_the_questions_call_them() -> None:
    documents = {node.ref_doc_id for node in build_demo(DATA).nodes("passage")}
    assert {q.document for q in read_questions(DATA / "questions.jsonl")} <= documents


def test_an_english_answer_counts_within_the_first_200_words() -> None:
    assert has_answer("word " * 199 + "measles", question("en", "measles"))
    assert not has_answer("word " * 200 + "measles", question("en", "measles"))


def test_a_japanese_answer_counts_within_the_first_400_characters() -> None:
    assert has_answer("字" * 397 + "53歳", question("ja", "53歳"))
    assert not has_answer("字" * 398 + "53歳", question("ja", "53歳"))


def test_any_of_the_answers_counts_whatever_its_case_and_width() -> None:
    assert has_answer("the uss iwo jima", question("en", "Carpathia", "USS Iwo Jima"))
    assert has_answer("１９６４年", question("ja", "1964年"))


def test_missing_data_is_an_error_that_says_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Clone the repository"):
        require_data(tmp_path)


def test_a_line_that_is_no_question_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text('\n{"id": "en-01"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="line 2"):
        read_questions(tmp_path / "questions.jsonl")
