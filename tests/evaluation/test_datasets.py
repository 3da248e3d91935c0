from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pyarrow
import pyarrow.parquet
import pytest

from llama_pack_densex.evaluation.datasets import (
    DatasetError,
    languages_of,
    read_dataset,
    read_questions,
)
from llama_pack_densex.evaluation.records import read_records
from tests.conftest import DATA
from tests.evaluation.published import EVALUATION_DATA, needs_published_data
from tests.pdf_file import pdf_bytes


def _write(file: Path, content: Any) -> Path:
    """JSON, or JSON lines where the name says so."""
    lines = (
        [json.dumps(line, ensure_ascii=False) for line in content]
        if file.suffix == ".jsonl"
        else []
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        "\n".join(lines) if lines else json.dumps(content, ensure_ascii=False), encoding="utf-8"
    )
    return file


def _squad(*paragraphs: tuple[str, list[dict[str, Any]]], title: str = "Lamps") -> dict[str, Any]:
    return {
        "data": [
            {
                "title": title,
                "paragraphs": [{"context": text, "qas": qas} for text, qas in paragraphs],
            }
        ]
    }


def _qa(question_id: str, *answers: str, start: int = 0, **more: Any) -> dict[str, Any]:
    found = [{"text": answer, "answer_start": start} for answer in answers]
    return {"id": question_id, "question": "What colour is the lamp?", "answers": found, **more}


class TestSquad:
    def test_an_article_is_its_paragraphs_and_a_question_knows_its_own(
        self, tmp_path: Path
    ) -> None:
        content = _squad(
            ("The lamp is red.", []), ("The door is blue.", [_qa("q", "blue", "blue", "a blue")])
        )
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

    def test_impossible_questions_are_left_out_and_answers_without_a_place_kept(
        self, tmp_path: Path
    ) -> None:
        qas = [_qa("no", is_impossible=True), _qa("none"), _qa("yes", "アカ", start=-1)]
        found = read_dataset(
            _write(tmp_path / "ja.json", _squad(("灯りは赤い。", qas))), language="ja"
        )
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
            (
                {"data": [{"title": "A", "paragraphs": [{"qas": []}]}]},
                r"data\[0\].paragraphs\[0\]: 'context' is missi",
            ),
            ({"data": {}}, "'data' must be a list"),
            ({"data": [7]}, r"data\[0\]: expected a JSON object"),
            (_squad(("x", [_qa("1", "x"), _qa("1", "x")])), "the question id '1' occurs twice"),
            (_squad(("x", [])), "expected questions with answers, and there are none"),
            ({"version": 1}, "'data', as in SQuAD's format"),
        ],
    )
    def test_what_is_wrong_is_said_with_its_place(
        self, tmp_path: Path, content: Any, said: str
    ) -> None:
        with pytest.raises(DatasetError, match=said):
            read_dataset(_write(tmp_path / "s.json", content))

    def test_documents_that_would_be_left_alone_are_refused(self, tmp_path: Path) -> None:
        file = _write(tmp_path / "squad.json", _squad(("The lamp is red.", [_qa("q", "red")])))
        with pytest.raises(
            DatasetError, match=r"squad\.json: this dataset has documents of its own"
        ):
            read_dataset(file, tmp_path)

    def test_broken_json_is_named_with_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "s.json").write_text('{"data": [\n1,,\n]}', encoding="utf-8")
        with pytest.raises(DatasetError, match=r"s\.json, line 2: expected JSON"):
            read_dataset(tmp_path / "s.json")

    def test_a_cell_that_is_no_list_is_an_answer(self, tmp_path: Path) -> None:
        deep = "[" * 100_000
        (tmp_path / "s.csv").write_text(f"question,answers\nWhere?,{deep}", encoding="utf-8")
        assert next(read_records(tmp_path / "s.csv")).answers() == (deep,)

    @needs_published_data
    @pytest.mark.parametrize(
        ("name", "language", "counts"),
        [("squad_en", "en", (8, 301, 1299)), ("jsquad_ja", "ja", (6, 198, 741))],
    )
    def test_published_sets_are_read_whole(
        self, name: str, language: str, counts: tuple[int, int, int]
    ) -> None:
        found = read_dataset(EVALUATION_DATA / f"{name}.json")
        assert found.language == language
        assert (
            len(found.documents),
            len(found.passage_documents()),
            len(found.questions),
        ) == counts


class TestDPR:
    CORPUS = (
        'id\ttext\ttitle\n1\t"The ""Lamp"" is red."\tLamp\n2\tIt hangs.\tLamp\n'
        "3\tTea.\tTea\n4\tBack.\tLamp\n"
    )

    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Path:
        file = tmp_path / "psgs_w100.tsv"
        file.write_text(self.CORPUS, encoding="utf-8")
        return file

    def test_consecutive_passages_of_one_title_are_an_article(self, corpus: Path) -> None:
        found = read_dataset(
            _write(corpus.parent / "q.jsonl", [{"question": "Where?", "answers": ["x"]}]), corpus
        )
        assert [(document.id_, document.text) for document in found.documents] == [
            ("Lamp", 'The "Lamp" is red. It hangs.'),
            ("Tea", "Tea."),
            ("Lamp (2)", "Back."),
        ]
        assert [passage.text for passage in found.passage_documents()][:2] == [
            'The "Lamp" is red.',
            "It hangs.",
        ]

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("nq-test.qa.csv", "what colour is the lamp\t['red', \"dark red\"]\n"),
            (
                "NQ-open.dev.jsonl",
                '{"question": "what colour is the lamp", "answer": ["red", "dark red"]}\n',
            ),
            (
                "P17.test.json",
                '[{"question": "what colour is the lamp", "answers": ["red", "dark red"]}]',
            ),
            ("own.csv", 'question,answers\nwhat colour is the lamp,"red|dark red"\n'),
        ],
    )
    def test_question_files_of_all_forms_are_read(
        self, tmp_path: Path, corpus: Path, name: str, text: str
    ) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")
        found = read_dataset(tmp_path / name, corpus)
        assert (found.questions[0].text, found.language) == ("what colour is the lamp", "en")
        assert found.questions[0].answers == ("red", "dark red")
        assert len(found.documents) == 3

    def test_the_first_positive_passage_is_gold(self, tmp_path: Path, corpus: Path) -> None:
        row = {
            "question": "Where is it?",
            "answers": ["It hangs"],
            "positive_ctxs": [{"passage_id": "2"}],
        }
        found = read_dataset(_write(tmp_path / "nq.json", [row]), corpus)
        question = found.questions[0]
        assert (question.document_id, question.span) == ("Lamp", (19, 28))

    def test_a_line_that_is_no_question_is_named(self, tmp_path: Path, corpus: Path) -> None:
        (tmp_path / "q.csv").write_text("where\t['a']\nwhen\tb c\n", encoding="utf-8")
        with pytest.raises(
            DatasetError, match=r"q\.csv, line 2: expected a question and a list .* a header"
        ):
            read_dataset(tmp_path / "q.csv", corpus)
        with pytest.raises(DatasetError, match=r"q\.jsonl, line 1: 'answers' is missing"):
            read_dataset(_write(tmp_path / "q.jsonl", [{"question": "Where?"}]), corpus)

    def test_questions_alone_ask_for_their_documents(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="questions without documents: pass `documents`"):
            read_dataset(_write(tmp_path / "q.jsonl", [{"question": "Where?", "answers": ["x"]}]))


class TestPassagesWithQuestions:
    LINES: ClassVar[list[dict[str, Any]]] = [
        {
            "title": "Lamps",
            "text": "The lamp is red.",
            "questions": ["What colour is the lamp?", "Is it lit?"],
        },
        {"title": "Doors", "text": "The door is blue.", "questions": ["What colour is the door?"]},
        {"title": "Lamps", "text": "It burns oil.", "questions": ["What does the lamp burn?"]},
        {"text": "The floor is grey.", "questions": []},
    ]

    def test_the_passages_of_a_title_make_a_document_and_a_question_knows_its_passage(
        self, tmp_path: Path
    ) -> None:
        found = read_dataset(_write(tmp_path / "lamps.questions.jsonl", self.LINES))
        texts = {document.id_: document.text for document in found.documents}
        assert texts == {
            "Lamps": "The lamp is red.\n\nIt burns oil.",
            "Doors": "The door is blue.",
            "passage 4": "The floor is grey.",
        }
        assert found.documents[0].metadata == {"title": "Lamps"}
        assert found.documents[2].metadata == {}
        assert [
            (question.text, texts[question.document_id][slice(*(question.span or (0, 0)))])
            for question in found.questions
        ] == [
            ("What colour is the lamp?", "The lamp is red."),
            ("Is it lit?", "The lamp is red."),
            ("What does the lamp burn?", "It burns oil."),
            ("What colour is the door?", "The door is blue."),
        ]
        assert not any(question.answers for question in found.questions)
        assert found.language == "en"

    def test_what_is_wrong_is_said_with_its_line(self, tmp_path: Path) -> None:
        wrong = [self.LINES[0], {"text": "x", "questions": [7]}]
        with pytest.raises(
            DatasetError, match="line 2: 'questions' must be a text or a list of texts"
        ):
            read_dataset(_write(tmp_path / "w.jsonl", wrong))

    @needs_published_data
    @pytest.mark.parametrize(("name", "questions"), [("squad_en", 2236), ("jsquad_ja", 1089)])
    def test_its_documents_are_those_of_the_squad_file_of_the_same_passages(
        self, name: str, questions: int
    ) -> None:
        found = read_dataset(EVALUATION_DATA / f"{name}.questions.jsonl")
        other = read_dataset(EVALUATION_DATA / f"{name}.json")
        assert [(each.id_, each.text) for each in found.documents] == [
            (each.id_, each.text) for each in other.documents
        ]
        assert (found.passages, found.language) == (other.passages, other.language)
        assert len(found.questions) == questions


class TestBEIR:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "scifact"
        corpus = [
            {"_id": name, "title": "", "text": f"Text of {name}."} for name in ("a", "b", "c", "d")
        ]
        _write(folder / "corpus.jsonl", corpus)
        _write(
            folder / "queries.jsonl",
            [{"_id": "1", "text": "What is it?"}, {"_id": "2", "text": "Unlabelled"}],
        )
        (folder / "qrels").mkdir()
        (folder / "qrels" / "test.tsv").write_text(
            "query-id\tcorpus-id\tscore\n1\tb\t1\n1\tc\t2\n", encoding="utf-8"
        )
        return folder

    def test_the_questions_are_those_with_labels(self, folder: Path) -> None:
        found = read_dataset(folder)
        assert [(question.id, question.document_id) for question in found.questions] == [("1", "c")]
        assert found.relevance == {"1": {"b": 1, "c": 2}}
        assert (found.name, len(found.documents)) == ("scifact", 4)

    def test_documents_that_would_be_left_alone_are_refused(self, folder: Path) -> None:
        with pytest.raises(DatasetError, match="scifact: this dataset has documents of its own"):
            read_dataset(folder, folder)

    def test_a_missing_split_is_named_with_those_that_are_there(self, folder: Path) -> None:
        with pytest.raises(DatasetError, match="the split 'dev' here; available splits: test"):
            read_dataset(folder, split="dev")

    @pytest.mark.parametrize(
        ("kept", "warning"),
        [
            ("c", "1 of its 2 labels are for documents that are not there ('b' is the first)"),
            ("b", "1 of its 2 labels are for documents that are not there ('c' is the first)"),
            ("d", "2 of its 2 labels are for documents that are not there ('b' is the first)"),
        ],
    )
    def test_labels_of_missing_documents_are_told_and_kept(
        self, folder: Path, caplog: pytest.LogCaptureFixture, kept: str, warning: str
    ) -> None:
        _write(folder / "corpus.jsonl", [{"_id": kept, "text": "本文"}])
        assert read_dataset(folder).relevance == {"1": {"b": 1, "c": 2}}
        assert warning in caplog.text

    def test_a_question_that_is_a_document_too_knows_it(self, folder: Path) -> None:
        _write(
            folder / "queries.jsonl",
            [{"_id": "a", "text": "Zoos?"}, {"_id": "b", "text": "動物園"}],
        )
        labels = "query-id\tcorpus-id\tscore\na\tb\t1\nb\tb\t1\nb\ta\t1\n"
        (folder / "qrels" / "test.tsv").write_text(labels, encoding="utf-8")
        own = {question.id: question.own_document_id for question in read_dataset(folder).questions}
        assert own == {"a": "a", "b": ""}  # b is labelled as an answer to itself


class TestJQaRA:
    ROWS = tuple(
        {
            "id": f"{question}-{passage}",
            "q_id": question,
            "question": "日本一深い湖は？",
            "answers": ["田沢湖"],
        }
        | {
            "passage_row_id": passage,
            "title": "湖",
            "text": f"{passage}の湖である。",
            "label": label,
        }
        for question, passage, label in [
            ("Q1", "10", 0),
            ("Q1", "11", 1),
            ("Q2", "11", 1),
            ("Q2", "12", 0),
        ]
    )

    @pytest.mark.parametrize("name", ["test.parquet", "test.jsonl"])
    def test_a_question_has_its_candidates_and_their_labels(
        self, tmp_path: Path, name: str
    ) -> None:
        file = tmp_path / name
        if file.suffix == ".parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(self.ROWS), file)
        else:
            _write(file, self.ROWS)
        for found in (
            read_dataset(file),
            read_dataset(tmp_path) if file.suffix == ".parquet" else read_dataset(file),
        ):
            assert found.language == "ja"
            assert [document.id_ for document in found.documents] == ["10", "11", "12"]
            assert found.questions[0].candidates == ("10", "11")
            assert found.questions[0].answers == ("田沢湖",)
            assert found.relevance == {"Q1": {"11": 1}, "Q2": {"11": 1}}

    def test_an_unknown_label_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="line 1: label is 2, but 0 or 1 is expected"):
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
        file.write_text(
            'question,answers,document\n"What, is it?",red | dark red,sub/lamp.md\n',
            encoding="utf-8",
        )
        found = read_dataset(file, folder)
        assert found.questions[0].answers == ("red", "dark red")
        assert found.questions[0].document_id == "sub/lamp.md"
        assert {document.id_ for document in found.documents} == {"sub/lamp.md", "tea.txt"}

    @pytest.mark.parametrize("name", ["sub/prices.csv", "docs/sub/prices.csv"])
    def test_data_are_read_where_a_question_names_them(
        self, folder: Path, tmp_path: Path, name: str
    ) -> None:
        (folder / "sub" / "prices.csv").write_text("plan,price\nBasic,900 yen\n", encoding="utf-8")
        asked = {
            "question": "What is the price of Basic?",
            "answers": ["900 yen"],
            "document": name,
        }
        found = read_dataset(_write(tmp_path / "q.jsonl", [asked]), folder)
        assert found.questions[0].document_id == "sub/prices.csv"
        assert {document.id_ for document in found.documents} == {
            "sub/lamp.md",
            "sub/prices.csv",
            "tea.txt",
        }

    def test_a_document_that_is_not_there_is_named(self, folder: Path, tmp_path: Path) -> None:
        file = _write(
            tmp_path / "q.jsonl", [{"question": "What?", "answer": "red", "document": "lamp.md"}]
        )
        with pytest.raises(
            DatasetError, match=r"q\.jsonl, question 1: there is no document 'lamp\.md'"
        ):
            read_dataset(file, folder)

    def test_a_question_needs_an_answer_or_a_document(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(
            DatasetError, match="question 1: expected 'answers', 'document', or both"
        ):
            read_dataset(_write(tmp_path / "q.jsonl", [{"question": "What?"}]), folder)
        asked = [{"question": "灯りは何色か。", "answers": ["赤"]}, {"question": "What?"}]
        # in the file, not of its language
        with pytest.raises(DatasetError, match="question 2: expected"):
            read_dataset(_write(tmp_path / "two.jsonl", asked), folder, language="en")

    def test_a_folder_without_documents_is_an_error(self, tmp_path: Path) -> None:
        file = _write(tmp_path / "q.jsonl", [{"question": "What?", "answers": ["x"]}])
        with pytest.raises(DatasetError, match="expected documents in it"):
            read_dataset(file, tmp_path)

    def test_the_repositorys_questions_are_read_language_by_language(self) -> None:
        with pytest.raises(DatasetError, match=r"in en and ja: say which \(language="):
            read_dataset(DATA / "questions.jsonl", DATA)
        found = read_dataset(DATA / "questions.jsonl", DATA, language="ja", max_questions=5)
        assert [question.id[:2] for question in found.questions] == ["ja"] * 5


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        read_dataset(tmp_path / "none.json")
    with pytest.raises(DatasetError, match="expected BEIR's"):
        read_dataset(tmp_path)


def test_questions_name_their_documents_beside_their_own_file(tmp_path: Path) -> None:
    questions = _bilingual(tmp_path)
    assert languages_of(questions) == ["en", "ja"]
    for language, text in (("en", "The lamp is red."), ("ja", "灯りは赤い。")):
        found = read_dataset(questions, language=language)
        assert [document.id_ for document in found.documents] == ["en/lamp.md", "ja/lamp.md"]
        (question,) = found.questions
        assert {document.id_: document.text for document in found.documents}[
            question.document_id
        ] == text


@pytest.mark.parametrize("language", ["en", "ja"])
def test_a_document_is_found_below_the_folder_and_from_the_questions_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    questions = _bilingual(tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    relative = Path(tmp_path.name)
    for folder in (tmp_path / language, relative / language):
        found = read_dataset(questions, folder, language=language)
        assert [question.document_id for question in found.questions] == ["lamp.md"]
    assert (
        read_dataset(relative / questions.name, language=language).questions[0].document_id
        == f"{language}/lamp.md"
    )


def test_the_language_is_that_of_the_questions_whatever_the_documents_are_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _bilingual(tmp_path).parent
    asked = [
        {"question": "灯りは何色か。", "answers": ["赤い"]},
        {"question": "What is red?", "answers": ["The lamp"]},
    ]
    for number, language in ((0, "ja"), (1, "en")):
        assert (
            read_dataset(_write(tmp_path / "q.jsonl", [asked[number]]), folder).language == language
        )
    assert "in another language" not in caplog.text
    read_dataset(_write(tmp_path / "q.jsonl", asked), folder)
    assert "1 of them are in another language" in caplog.text
    caplog.clear()
    read_dataset(_write(tmp_path / "q.jsonl", asked[:1]), folder, language="jp")
    assert "measured as 'jp', but 1 of them are in another language" in caplog.text


@pytest.mark.parametrize("code", ["ja-JP", "ja_JP", "JA"])
def test_a_language_is_known_by_whatever_code(tmp_path: Path, code: str) -> None:
    folder = _bilingual(tmp_path).parent
    asked = [{"question": "灯りは何色か。", "answers": ["赤い"]}]
    told = [
        {**asked[0], "language": code},
        {"question": "What is red?", "answers": ["The lamp"], "language": "en"},
    ]
    assert languages_of(_write(tmp_path / "q.jsonl", told)) == ["en", "ja"]
    assert len(read_dataset(tmp_path / "q.jsonl", folder, language=code).questions) == 1
    assert read_dataset(_write(tmp_path / "q.jsonl", asked), folder, language=code).language == "ja"


def test_questions_in_two_scripts_are_asked_apart_though_they_do_not_say_their_language(
    tmp_path: Path,
) -> None:
    folder = _bilingual(tmp_path).parent
    asked = [
        {"question": "灯りは何色か。", "answers": ["赤い"]},
        {"question": "What does 灯 mean?", "answers": ["The lamp"]},
        {"question": "高速道路営業距離", "answers": ["赤い"]},
    ]
    questions = _write(tmp_path / "q.jsonl", asked)
    assert languages_of(questions) == ["en", "ja"]
    assert [one.text for one in read_dataset(questions, folder, language="ja").questions] == [
        "灯りは何色か。", "高速道路営業距離",
    ]  # fmt: skip
    assert read_questions(questions, language="en").questions[0].text == "What does 灯 mean?"
    assert languages_of(_write(tmp_path / "q.jsonl", asked[:1])) == []
    # whose particles are written onto words
    korean = {"question": "등불은 무슨 색입니까?", "answers": ["빨간"]}
    assert languages_of(_write(tmp_path / "q.jsonl", [korean, asked[1]])) == ["en", "ko"]


def test_a_question_that_is_no_mapping_is_named() -> None:
    with pytest.raises(DatasetError, match="question 1: expected a JSON object, but this is str"):
        read_questions(["When?"])  # type: ignore[list-item]


def test_a_named_document_that_is_not_there_is_an_error_that_says_where_it_was_looked_for(
    tmp_path: Path,
) -> None:
    questions = _bilingual(tmp_path)
    (tmp_path / "ja" / "lamp.md").unlink()
    with pytest.raises(
        DatasetError, match=r"line 2: there is no document 'ja/lamp.md' in .*--documents"
    ):
        read_dataset(questions, language="ja")
    with pytest.raises(DatasetError, match="no questions in 'ko'; there are some in en, ja"):
        read_dataset(questions, language="ko")


def _bilingual(folder: Path) -> Path:
    lines = []
    for language, text, question, answer in (
        ("en", "The lamp is red.", "What colour is the lamp?", "red"),
        ("ja", "灯りは赤い。", "灯りは何色か。", "赤い"),
    ):
        (folder / language).mkdir()
        (folder / language / "lamp.md").write_text(text, encoding="utf-8")
        named = {
            "language": language,
            "question": question,
            "answers": [answer],
            "document": f"{language}/lamp.md",
        }
        lines.append(named)
    return _write(folder / "questions.jsonl", lines)


_TOWER = ("Tower", "The tower is in Leith.")
_LEITH = ("Leith", "Leith is a port.")
_OTHER = ("Other", "Another text.")
_MUSIQUE = {
    "id": "q",
    "question": "What is the place of the tower?",
    "answer": "a port",
    "answer_aliases": ["port"],
    "answerable": True,
    "paragraphs": [
        {"title": title, "paragraph_text": text, "is_supporting": title != "Other"}
        for title, text in (_OTHER, _TOWER, _LEITH)
    ],
}
_HOTPOT = {
    "_id": "q",
    "question": "What is the place of the tower?",
    "answer": "a port",
    "supporting_facts": [["Tower", 0], ["Leith", 0]],
    "context": [[title, [text]] for title, text in (_OTHER, _TOWER, _LEITH)],
}
_HUGGING_FACE = {
    **_HOTPOT,
    "supporting_facts": {"title": ["Tower", "Leith"], "sent_id": [0, 0]},
    "context": {
        "title": ["Other", "Tower", "Leith"],
        "sentences": [[_OTHER[1]], [_TOWER[1]], [_LEITH[1]]],
    },
}


class TestQuestionsOfSeveralHops:
    @pytest.mark.parametrize("record", [_MUSIQUE, _HOTPOT, _HUGGING_FACE])
    def test_each_passage_that_supports_the_answer_is_labelled(
        self, tmp_path: Path, record: dict[str, Any]
    ) -> None:
        found = read_dataset(_write(tmp_path / "q.json", [record]))
        titles = {document.id_: document.metadata["title"] for document in found.documents}
        assert sorted(titles.values()) == ["Leith", "Other", "Tower"]
        (question,) = found.questions
        assert {titles[passage] for passage in found.relevance[question.id]} == {"Tower", "Leith"}
        assert question.answers[0] == "a port"
        assert any(_TOWER[1] in document.text for document in found.documents)

    def test_supporting_passages_stand_beside_a_corpus(self, tmp_path: Path) -> None:
        corpus = [{"title": title, "text": text} for title, text in (_OTHER, _TOWER, _LEITH)]
        question = {"question": "塔のある町は何か。", "answer": "港", "supporting": corpus[1:]}
        passages = _write(tmp_path / "passages.json", corpus)
        found = read_dataset(_write(tmp_path / "q.json", [question]), passages)
        assert len(found.documents) == 3
        assert [*found.relevance.values()] == [{"passage 2": 1, "passage 3": 1}]

    def test_what_cannot_be_answered_is_left_out(self, tmp_path: Path) -> None:
        records = [_MUSIQUE, {**_MUSIQUE, "id": "no", "answerable": False}]
        assert len(read_dataset(_write(tmp_path / "q.json", records)).questions) == 1

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"supporting_facts": []}, "no passage is marked as supporting"),
            ({"supporting_facts": [["Tower"]]}, "are not as in HotpotQA"),
            ({"context": 7}, "are not as in HotpotQA"),
        ],
    )
    def test_what_is_wrong_is_said(self, tmp_path: Path, fields: dict[str, Any], said: str) -> None:
        with pytest.raises(DatasetError, match=said):
            read_dataset(_write(tmp_path / "q.json", [{**_HOTPOT, **fields}]))


@pytest.mark.parametrize("beside", [True, False])
def test_a_file_stands_for_the_page_of_it_that_answers(tmp_path: Path, beside: bool) -> None:
    folder = tmp_path if beside else tmp_path / "documents"
    folder.mkdir(exist_ok=True)
    lines = ["The office closes in August.", "Leave lasts 16 weeks.", "Lunch is free."]
    (folder / "rules.pdf").write_bytes(pdf_bytes(lines))
    records = [
        {
            "question": "How long is leave?",
            "answer": "16 weeks",
            "document": "rules.pdf",
        },
        {"question": "When is it closed?", "answer": "August", "document": "rules.pdf"},
        {"question": "What is free?", "answer": "Lunch", "document": "rules.pdf#page=3"},
        {"question": "昼食はいくらですか。", "answer": "無料", "document": "rules.pdf"},
    ]
    path = _write(tmp_path / "q.json", records)
    questions = read_dataset(path, None if beside else folder, language="en").questions
    pages = [question.document_id.partition("#page=")[2] for question in questions]
    assert pages[:3] == ["2", "1", "3"]
    assert not any(pages[3:])


def test_a_file_with_pages_and_no_answer_to_tell_them_by_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rules.pdf").write_bytes(pdf_bytes(["Lunch is free.", "Tea is not."]))
    path = _write(tmp_path / "q.json", [{"question": "What is free?", "document": "rules.pdf"}])
    with pytest.raises(DatasetError, match=r"question 1: 'rules\.pdf' .*\(rules\.pdf#page=N\)"):
        read_dataset(path)


def test_the_page_has_the_answer_as_a_word(tmp_path: Path) -> None:
    (tmp_path / "rules.pdf").write_bytes(pdf_bytes(["It was built in 1993.", "Floor 3 is ours."]))
    record = {"question": "Which floor is ours?", "answer": "3", "document": "rules.pdf"}
    (question,) = read_dataset(_write(tmp_path / "q.json", [record])).questions
    assert question.document_id == "rules.pdf#page=2"
