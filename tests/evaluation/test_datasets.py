from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pyarrow
import pyarrow.parquet
import pytest

from llama_pack_densex.evaluation.datasets import DatasetError, read_dataset
from llama_pack_densex.evaluation.readers.dpr import iter_articles
from tests.conftest import DATA
from tests.evaluation.published import EVALUATION_DATA, needs_published_data


def _write(file: Path, content: Any) -> Path:
    """JSON, or JSON lines where the name says so."""
    lines = [json.dumps(line, ensure_ascii=False) for line in content] if file.suffix == ".jsonl" else []
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) if lines else json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return file


def _squad(*paragraphs: tuple[str, list[dict[str, Any]]], title: str = "Lamps") -> dict[str, Any]:
    return {"data": [{"title": title, "paragraphs": [{"context": text, "qas": qas} for text, qas in paragraphs]}]}


def _qa(question_id: str, *answers: str, start: int = 0, **more: Any) -> dict[str, Any]:
    found = [{"text": answer, "answer_start": start} for answer in answers]
    return {"id": question_id, "question": "What colour is the lamp?", "answers": found, **more}


class TestSquad:
    def test_an_article_is_its_paragraphs_and_a_question_knows_its_own(self, tmp_path: Path) -> None:
        content = _squad(("The lamp is red.", []), ("The door is blue.", [_qa("q", "blue", "blue", "a blue")]))
        found = read_dataset(_write(tmp_path / "squad.json", content))
        article = found.documents[0]
        assert (found.name, found.language) == ("squad", "en")
        assert (article.id_, article.text, article.metadata) == (
            "Lamps",
            "The lamp is red.\n\nThe door is blue.",
            {"title": "Lamps"},
        )
        question = found.questions[0]
        assert question.answers == ("blue", "a blue")
        assert question.document_id == "Lamps"
        assert question.span is not None
        assert article.text[slice(*question.span)] == "The door is blue."
        assert [(passage.id_, passage.text) for passage in found.passage_documents()] == [
            ("Lamps/0", "The lamp is red."),
            ("Lamps/1", "The door is blue."),
        ]

    def test_impossible_questions_are_left_out_and_answers_without_a_place_kept(self, tmp_path: Path) -> None:
        qas = [_qa("no", is_impossible=True), _qa("none"), _qa("yes", "アカ", start=-1)]
        found = read_dataset(_write(tmp_path / "ja.json", _squad(("灯りは赤い。", qas))), language="ja")
        assert [question.id for question in found.questions] == ["yes"]

    def test_jsquads_title_before_the_text_is_taken_off(self, tmp_path: Path) -> None:
        content = _squad(("梅雨 [SEP] 梅雨は雨の多い期間のこと。", [_qa("q", "雨")]), title="梅雨")
        found = read_dataset(_write(tmp_path / "j.json", content))
        assert found.documents[0].text == "梅雨は雨の多い期間のこと。"

    def test_articles_of_one_title_stay_apart(self, tmp_path: Path) -> None:
        one = _squad(("The lamp is red.", [_qa("1", "red")]))["data"]
        other = _squad(("The lamp is blue.", [_qa("2", "blue")]))["data"]
        found = read_dataset(_write(tmp_path / "s.json", {"data": one + other}))
        assert [question.document_id for question in found.questions] == ["Lamps", "Lamps (2)"]

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ({"data": [{"title": "A", "paragraphs": [{"qas": []}]}]}, r"data\[0\].paragraphs\[0\]: 'context' is missi"),
            ({"data": {}}, "'data' must be a list"),
            ({"data": [7]}, r"data\[0\]: expected a JSON object"),
            (_squad(("x", [_qa("1", "x"), _qa("1", "x")])), "the question id '1' occurs twice"),
            (_squad(("x", [])), "expected questions with answers, and there are none"),
            ({"version": 1}, "expected 'data' \\(SQuAD\\), 'examples'"),
        ],
    )
    def test_what_is_wrong_is_said_with_its_place(self, tmp_path: Path, content: Any, said: str) -> None:
        with pytest.raises(DatasetError, match=said):
            read_dataset(_write(tmp_path / "s.json", content))

    def test_broken_json_is_named_with_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "s.json").write_text('{"data": [\n1,,\n]}', encoding="utf-8")
        with pytest.raises(DatasetError, match=r"s\.json, line 2: expected JSON"):
            read_dataset(tmp_path / "s.json")

    @needs_published_data
    @pytest.mark.parametrize(
        ("name", "language", "counts"), [("squad_en", "en", (8, 301, 1299)), ("jsquad_ja", "ja", (6, 198, 741))]
    )
    def test_published_sets_are_read_whole(self, name: str, language: str, counts: tuple[int, int, int]) -> None:
        found = read_dataset(EVALUATION_DATA / f"{name}.json")
        assert found.language == language
        assert (len(found.documents), len(found.passage_documents()), len(found.questions)) == counts


class TestDPR:
    CORPUS = 'id\ttext\ttitle\n1\t"The ""Lamp"" is red."\tLamp\n2\tIt hangs.\tLamp\n3\tTea.\tTea\n4\tBack.\tLamp\n'

    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Path:
        file = tmp_path / "psgs_w100.tsv"
        file.write_text(self.CORPUS, encoding="utf-8")
        return file

    def test_consecutive_passages_of_one_title_are_an_article(self, corpus: Path) -> None:
        articles = list(iter_articles(corpus))
        assert [(article.document.id_, article.document.text) for article in articles] == [
            ("Lamp", 'The "Lamp" is red. It hangs.'),
            ("Tea", "Tea."),
            ("Lamp (4)", "Back."),
        ]
        assert [articles[0].document.text[slice(*span)] for span in articles[0].spans] == [
            'The "Lamp" is red.',
            "It hangs.",
        ]

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("nq-test.qa.csv", "what colour is the lamp\t['red', \"dark red\"]\n"),
            ("NQ-open.dev.jsonl", '{"question": "what colour is the lamp", "answer": ["red", "dark red"]}\n'),
            ("P17.test.json", '[{"question": "what colour is the lamp", "answers": ["red", "dark red"]}]'),
            ("own.csv", 'question,answers\nwhat colour is the lamp,"red|dark red"\n'),
        ],
    )
    def test_question_files_of_all_forms_are_read(self, tmp_path: Path, corpus: Path, name: str, text: str) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")
        found = read_dataset(tmp_path / name, corpus)
        assert (found.questions[0].text, found.language) == ("what colour is the lamp", "en")
        assert found.questions[0].answers == ("red", "dark red")
        assert len(found.documents) == 3

    def test_the_first_positive_passage_is_gold(self, tmp_path: Path, corpus: Path) -> None:
        row = {"question": "Where is it?", "answers": ["It hangs"], "positive_ctxs": [{"passage_id": "2"}]}
        found = read_dataset(_write(tmp_path / "nq.json", [row]), corpus)
        question = found.questions[0]
        assert (question.document_id, question.span) == ("Lamp", (19, 28))

    def test_a_line_that_is_no_question_is_named(self, tmp_path: Path, corpus: Path) -> None:
        (tmp_path / "q.csv").write_text("where\t['a']\nwhen\tb c\n", encoding="utf-8")
        with pytest.raises(DatasetError, match=r"q\.csv, line 2: expected a list of answers"):
            read_dataset(tmp_path / "q.csv", corpus)
        with pytest.raises(DatasetError, match=r"q\.jsonl, line 1: 'answers' is missing"):
            read_dataset(_write(tmp_path / "q.jsonl", [{"question": "Where?"}]), corpus)

    def test_questions_alone_ask_for_their_documents(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="questions alone: pass `documents`"):
            read_dataset(_write(tmp_path / "q.jsonl", [{"question": "Where?", "answers": ["x"]}]))


class TestBEIR:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "scifact"
        corpus = [{"_id": name, "title": "", "text": f"Text of {name}."} for name in ("a", "b", "c", "d")]
        _write(folder / "corpus.jsonl", corpus)
        _write(folder / "queries.jsonl", [{"_id": "1", "text": "What is it?"}, {"_id": "2", "text": "Unlabelled"}])
        (folder / "qrels").mkdir()
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tb\t1\n1\tc\t2\n", encoding="utf-8")
        return folder

    def test_the_questions_are_those_with_labels(self, folder: Path) -> None:
        found = read_dataset(folder)
        assert [(question.id, question.document_id) for question in found.questions] == [("1", "c")]
        assert found.relevance == {"1": {"b": 1, "c": 2}}
        assert (found.name, len(found.documents)) == ("scifact", 4)

    def test_labelled_documents_are_kept_when_only_some_are_read(self, folder: Path) -> None:
        found = read_dataset(folder, max_documents=3)
        assert [document.id_ for document in found.documents] == ["a", "b", "c"]

    def test_a_missing_split_is_named_with_those_that_are_there(self, folder: Path) -> None:
        with pytest.raises(DatasetError, match="the split 'dev' here; the splits that are there: test"):
            read_dataset(folder, split="dev")

    def test_a_label_of_an_unknown_document_is_named(self, folder: Path) -> None:
        _write(folder / "corpus.jsonl", [{"_id": "b", "text": "x"}])
        with pytest.raises(DatasetError, match=r"the document c, which corpus\.jsonl does not have"):
            read_dataset(folder)


class TestJQaRA:
    ROWS = tuple(
        {"id": f"{question}-{passage}", "q_id": question, "question": "日本一深い湖は？", "answers": ["田沢湖"]}
        | {"passage_row_id": passage, "title": "湖", "text": f"{passage}の湖である。", "label": label}
        for question, passage, label in [("Q1", "10", 0), ("Q1", "11", 1), ("Q2", "11", 1), ("Q2", "12", 0)]
    )

    @pytest.mark.parametrize("name", ["test.parquet", "test.jsonl"])
    def test_a_question_has_its_candidates_and_their_labels(self, tmp_path: Path, name: str) -> None:
        file = tmp_path / name
        if file.suffix == ".parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(self.ROWS), file)
        else:
            _write(file, self.ROWS)
        for found in (read_dataset(file), read_dataset(tmp_path) if file.suffix == ".parquet" else read_dataset(file)):
            assert found.language == "ja"
            assert [document.id_ for document in found.documents] == ["10", "11", "12"]
            assert found.questions[0].candidates == ("10", "11")
            assert found.questions[0].answers == ("田沢湖",)
            assert found.relevance == {"Q1": {"11": 1}, "Q2": {"11": 1}}

    def test_an_unknown_label_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="line 1: label is 2, and 0 or 1 is expected"):
            read_dataset(_write(tmp_path / "t.jsonl", [{**self.ROWS[0], "label": 2}]))


class TestOwnQuestions:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "docs" / "sub").mkdir(parents=True)
        (tmp_path / "docs" / "sub" / "lamp.md").write_text("The lamp is red.", encoding="utf-8")
        (tmp_path / "docs" / "tea.txt").write_text("Tea is green.", encoding="utf-8")
        (tmp_path / "docs" / "other.jsonl").write_text("{}", encoding="utf-8")
        return tmp_path / "docs"

    def test_questions_in_csv_may_have_several_answers(self, folder: Path) -> None:
        file = folder / "questions.csv"
        file.write_text('question,answers,document\n"What, is it?",red | dark red,sub/lamp.md\n', encoding="utf-8")
        found = read_dataset(file, folder)
        assert found.questions[0].answers == ("red", "dark red")
        assert found.questions[0].document_id == "sub/lamp.md"
        assert {document.id_ for document in found.documents} == {"sub/lamp.md", "tea.txt"}

    def test_a_document_that_is_not_there_is_named(self, folder: Path, tmp_path: Path) -> None:
        file = _write(tmp_path / "q.jsonl", [{"question": "What?", "answer": "red", "document": "lamp.md"}])
        with pytest.raises(DatasetError, match=r"q\.jsonl, line 1: there is no document 'lamp\.md' in"):
            read_dataset(file, folder)

    def test_a_question_needs_an_answer_or_a_document(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="line 1: expected 'answers', 'document', or both"):
            read_dataset(_write(tmp_path / "q.jsonl", [{"question": "What?"}]), folder)

    def test_a_folder_without_documents_is_an_error(self, tmp_path: Path) -> None:
        file = _write(tmp_path / "q.jsonl", [{"question": "What?", "answers": ["x"]}])
        with pytest.raises(DatasetError, match="expected documents in it"):
            read_dataset(file, tmp_path)

    def test_the_repositorys_questions_are_read_language_by_language(self) -> None:
        with pytest.raises(DatasetError, match="its questions are in en and ja: pass `language`"):
            read_dataset(DATA / "questions.jsonl", DATA)
        found = read_dataset(DATA / "questions.jsonl", DATA, language="ja", max_questions=5)
        assert [question.id[:2] for question in found.questions] == ["ja"] * 5


class TestLlamaIndex:
    EXAMPLE: ClassVar = {
        "query": "What colour is the lamp?",
        "query_by": {"model_name": "gpt", "type": "ai"},
        "reference_contexts": ["The lamp is red.", "It hangs."],
        "reference_answer": "It is red.",
        "reference_answer_by": None,
    }

    def test_reference_contexts_are_the_documents_of_a_labelled_rag_dataset(self, tmp_path: Path) -> None:
        found = read_dataset(_write(tmp_path / "rag_dataset.json", {"examples": [self.EXAMPLE]}))
        assert [document.text for document in found.documents] == ["The lamp is red.", "It hangs."]
        assert found.questions[0].answers == ("It is red.",)
        assert found.relevance == {"1": {"context 1": 1, "context 2": 1}}

    def test_reference_contexts_are_found_in_the_source_files(self, tmp_path: Path) -> None:
        (tmp_path / "source_files").mkdir()
        (tmp_path / "source_files" / "lamp.txt").write_text("Lamps. The lamp is red. It hangs.", encoding="utf-8")
        file = _write(tmp_path / "rag_dataset.json", {"examples": [self.EXAMPLE]})
        question = read_dataset(file, tmp_path / "source_files").questions[0]
        assert (question.document_id, question.span) == ("lamp.txt", (7, 23))

    def test_an_embedding_qa_dataset_has_documents_and_labels(self, tmp_path: Path) -> None:
        content = {"queries": {"q": "What is it?"}, "corpus": {"a": "A lamp."}, "relevant_docs": {"q": ["a"]}}
        found = read_dataset(_write(tmp_path / "qa.json", {**content, "mode": "text"}))
        assert found.relevance == {"q": {"a": 1}}
        assert (found.questions[0].document_id, found.documents[0].text) == ("a", "A lamp.")

    def test_a_label_of_an_unknown_text_is_named(self, tmp_path: Path) -> None:
        content = {"queries": {"q": "What is it?"}, "corpus": {"a": "A lamp."}, "relevant_docs": {"q": ["b"]}}
        with pytest.raises(DatasetError, match="the question q has the document b, which is not in the corpus"):
            read_dataset(_write(tmp_path / "qa.json", content))

    def test_what_llama_index_itself_saves_is_read(self, tmp_path: Path) -> None:
        llama_dataset = pytest.importorskip("llama_index.core.llama_dataset", reason="core 0.14.21 has it no more")
        example = llama_dataset.LabelledRagDataExample(query="What?", reference_contexts=["x"], reference_answer="y")
        llama_dataset.LabelledRagDataset(examples=[example]).save_json(str(tmp_path / "rag.json"))
        assert read_dataset(tmp_path / "rag.json").questions[0].answers == ("y",)


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        read_dataset(tmp_path / "none.json")
    with pytest.raises(DatasetError, match="expected BEIR's"):
        read_dataset(tmp_path)
