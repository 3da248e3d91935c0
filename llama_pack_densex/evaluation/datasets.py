"""Datasets: read from published formats, or made from the user's own questions and documents."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.evaluation_set import EvaluationSet as EvaluationSet
from llama_pack_densex.evaluation.evaluation_set import Question as Question
from llama_pack_densex.evaluation.evidence import contains_answer
from llama_pack_densex.evaluation.formats import (
    FORMATS,
    JQARA_FIELDS,
    is_beir,
    read_beir,
    read_dpr,
    read_multihop,
)
from llama_pack_densex.evaluation.records import DatasetError as DatasetError
from llama_pack_densex.evaluation.records import Record, object_record, read_records
from llama_pack_densex.node_parsers.passages import PassageNodeParser
from llama_pack_densex.node_parsers.splitting import split
from llama_pack_densex.reading import find_files, read_file, read_files
from llama_pack_densex.text.language import WITHOUT_SPACES, detect_language
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

Questions = str | Path | Sequence[Question | Mapping[str, Any]]
"""The path of a dataset or question file; or `Question`s; or mappings ("question", "answers", "document")."""

_PATH = (str, Path)
_OWN = Path("own documents")
_SAMPLE = 50  # questions from which the language is detected


def read_dataset(  # noqa: PLR0913 (public)
    path: str | Path,
    documents: str | Path | None = None,
    *,
    name: str | None = None,
    language: str | None = None,
    split: str = "test",
    max_questions: int | None = None,
    leave_out: Sequence[Path] = (),
) -> EvaluationSet:
    """Read a dataset; its format is detected from its content.

    - SQuAD and JSQuAD: the JSON file.
    - BEIR: the folder with corpus.jsonl, queries.jsonl and qrels.
    - Passages, each with the questions that it answers: JSONL with `title`, `text` and `questions`.
    - JQaRA: its Hugging Face rows, as Parquet or JSONL (or a folder of Parquet files).
    - MuSiQue and HotpotQA: the JSON or JSONL file; or questions with `supporting` passages, and
      `documents`, a file of passages.
    - DPR, NQ-open, EntityQuestions: questions in JSON, JSONL, CSV or TSV; `documents` is psgs_w100.tsv or
      FACTOIDWIKI's JSONL.
    - Your own: questions in JSON, JSONL, CSV or TSV; `documents` is the folder of your documents, by default
      the files that the questions name.

    Args:
        path: The dataset, or its questions.
        documents: The documents that the questions are about, if the dataset does not include them.
        name: The name of the set in reports. Default: the file's or folder's name.
        language: "en", "ja", ... Default: detected from the questions. If questions state their language,
            only those in this one are kept.
        split: The split of a BEIR folder: "test", "dev" or "train".
        max_questions: Keep at most this many, from the first on.
        leave_out: Folders among your own documents to skip, such as that of an earlier report.

    Raises:
        DatasetError: The file is in none of these formats, or damaged; the message names the file, the line
            or item, and what is expected.
        OSError: A file cannot be read.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> from llama_pack_densex.evaluation import read_dataset
        >>> _ = Path("handbook.md").write_text("Miso is salty. Miso keeps for a year.")
        >>> question = {"question": "How long does miso keep?", "answers": ["a year"]}
        >>> _ = Path("questions.jsonl").write_text(json.dumps({**question, "document": "handbook.md"}))
        >>> dataset = read_dataset("questions.jsonl", ".")
        >>> dataset.questions[0].answers, dataset.documents[0].id_
        (('a year',), 'handbook.md')
    """
    path = Path(path)
    folder = None if documents is None else Path(documents)
    for file in (path, folder):
        if file and not file.exists():
            raise FileNotFoundError(f"{file}: there is no such file or folder")
    dataset, records = _read_published(path, split)
    if not dataset:
        dataset = _read_own(path, records, folder, language, leave_out)
    elif folder:
        raise DatasetError(
            f"{path}: this dataset has documents of its own, and {folder} would be ignored"
        )
    return _checked(dataset, path, name, language, max_questions)


def read_questions(
    questions: Questions, *, language: str | None = None, max_questions: int | None = None
) -> EvaluationSet:
    """Read questions without their documents, to put to an index.

    Args:
        questions: The path of a dataset or question file that `read_dataset` reads; or `Question`s; or
            mappings.
        language: "en", "ja", ... Default: the language that the questions state, else the one detected.
        max_questions: Keep at most this many, from the first on.

    Raises:
        DatasetError: They cannot be read, or there are none.
    """
    path = Path("questions")
    if isinstance(questions, _PATH):
        path = Path(questions)
        published, records = _read_published(path)
        dataset = published or _own_questions(path, records, language)
    else:
        dataset = EvaluationSet(questions=_as_questions(questions))
    dataset = _checked(dataset, path, None, language, max_questions)
    bare = [
        replace(question, document_id="", span=None, candidates=())
        for question in dataset.questions
    ]
    return EvaluationSet(dataset.name, dataset.language, questions=bare)


def languages_of(path: str | Path) -> list[str]:
    """Return the languages of a file's questions: those stated or, if scripts differ, those detected.

    Raises:
        DatasetError: As `read_dataset`.
        OSError: The file cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        return []
    return sorted({*_question_languages(list(read_records(path)))} - {""})


def to_dataset(
    documents: EvaluationSet | str | Path | Sequence[Document],
    questions: Questions | None,
    language: str | None = None,
) -> EvaluationSet:
    """Make a dataset of the arguments of `compare`.

    Unless questions have gold passages, documents without known passages are cut by the pack's own splitter.

    Raises:
        DatasetError: A file cannot be read as a dataset, or a question lacks a field.
        ValueError: An argument is missing, or given twice; the message says which.
    """
    if isinstance(documents, EvaluationSet):
        if questions is not None:
            raise ValueError(
                "the dataset has its own questions: pass questions=None, or documents in its place"
            )
        return _with_passages(_checked(documents, _OWN, documents.name, language))
    dataset = _dataset_of(documents, questions, language)
    if not dataset.documents:
        raise ValueError("there are no documents to search")
    return _with_passages(dataset)


def _dataset_of(
    documents: str | Path | Sequence[Document], questions: Questions | None, language: str | None
) -> EvaluationSet:
    if isinstance(documents, _PATH) and questions is None:
        return read_dataset(documents, language=language)
    if isinstance(documents, _PATH) and isinstance(questions, _PATH):
        return read_dataset(questions, documents, language=language)
    if isinstance(questions, _PATH):
        raise ValueError("pass the questions about these documents: Question objects or mappings")
    own_questions = _as_questions(questions or ())
    if isinstance(documents, _PATH):
        documents = read_folder(
            Path(documents), [question.document_id for question in own_questions]
        )
    dataset = EvaluationSet(documents=[*documents], questions=own_questions)
    return _checked(dataset, _OWN, None, language)


def _with_passages(dataset: EvaluationSet) -> EvaluationSet:
    """Cut documents without known passages by the pack's splitter, unless questions have gold passages."""
    if any(question.span for question in dataset.questions):
        return dataset
    parser = PassageNodeParser()
    passages = dict(dataset.passages)
    for document in dataset.documents:
        if document.id_ not in passages:
            spans = [piece.span for piece in split(document, [parser]) if piece.span]
            passages[document.id_] = spans or dataset.passages_of(document)
    return replace(dataset, passages=passages)


def _checked(
    dataset: EvaluationSet,
    path: Path,
    name: str | None,
    language: str | None,
    max_questions: int | None = None,
) -> EvaluationSet:
    """Check the ids and references of a dataset, and set its name and language."""
    _check_ids(dataset, path)
    language = _dataset_language(dataset, language or dataset.language)
    texts = {document.id_: document.text for document in dataset.documents}
    if dataset.documents:
        dataset = _with_pages(dataset, language)
        _check_references(dataset, path, texts)
        _check_labels(dataset, path, texts)
    if not name and path.is_dir():
        name = path.name
    name = name or Path(path.name.removesuffix(".gz")).stem
    questions = [_with_own_document(question, dataset, texts) for question in dataset.questions]
    return replace(dataset, name=name, language=language, questions=questions[:max_questions])


def _with_pages(dataset: EvaluationSet, language: str) -> EvaluationSet:
    """Point questions that name a file read page by page to the first page that has their answer."""
    pages = defaultdict(list)
    for document in dataset.documents:
        name, is_page, _ = document.id_.rpartition("#page=")
        if is_page:
            pages[name].append(document)
    questions = []
    for question in dataset.questions:
        if question.document_id in pages:
            page = _page_with_answer(pages[question.document_id], question, language)
            question = replace(question, document_id=page)
        questions.append(question)
    return replace(dataset, questions=questions)


def _page_with_answer(pages: Sequence[Document], question: Question, language: str) -> str:
    """Return the id of the first of the pages that has a question's answer; "" if none has."""
    if not question.answers:
        name = question.document_id
        raise DatasetError(
            f"question {question.id}: {name!r} is read page by page: name one ({name}#page=N), or "
            "give 'answers'"
        )
    for page in pages:
        if contains_answer(page.text, question.answers, language):
            return page.id_
    return ""


def _check_references(dataset: EvaluationSet, path: Path, ids: Container[str]) -> None:
    """Check that questions without labels have answers or a document, and that the document exists."""
    for question in dataset.questions:
        where = f"{path}, question {question.id}"
        if question.id in dataset.relevance:
            continue
        if question.document_id and question.document_id not in ids:
            raise DatasetError(f"{where}: there is no document {question.document_id!r}")
        if not (question.answers or question.document_id):
            raise DatasetError(f"{where}: expected 'answers', 'document', or both")


def _check_labels(dataset: EvaluationSet, path: Path, ids: Container[str]) -> None:
    """Warn about labels of missing documents: published datasets have some, ArguAna among them."""
    labels = [key for labelled in dataset.relevance.values() for key in labelled]
    lost = [key for key in labels if key not in ids]
    if lost:
        logger.warning(
            "%s: %d of its %d labels are for documents that are not there (%r is the first); "
            "they count as not found.",
            path, len(lost), len(labels), lost[0],
        )  # fmt: skip


def _with_own_document(
    question: Question, dataset: EvaluationSet, texts: Mapping[str, str]
) -> Question:
    """Set a question's `own_document_id` if a document is the question itself, as in ArguAna and Quora.

    Such a document has the question's id. Where no labels are given, its text must be the question's as well,
    because questions without an id are numbered, and documents may be numbered too.
    """
    key = question.id
    labels = dataset.relevance.get(key, {})
    is_answer = labels.get(key, 0) > 0 or question.document_id == key
    if is_answer or key not in texts:
        return question
    if not labels and texts[key].strip() != question.text.strip():
        return question
    return replace(question, own_document_id=key)


def _check_ids(dataset: EvaluationSet, path: Path) -> None:
    documents = [document.id_ for document in dataset.documents]
    questions = [question.id for question in dataset.questions]
    for kind, ids in (("document", documents), ("question", questions)):
        if len({*ids}) < len(ids):
            twice = Counter(ids).most_common(1)[0][0]
            raise DatasetError(f"{path}: the {kind} id {twice!r} occurs twice")
    if not questions:
        raise DatasetError(f"{path}: expected questions with answers, and there are none")


def _dataset_language(dataset: EvaluationSet, stated: str) -> str:
    """Return the language of a set's questions, stated or detected; its documents may be in others.

    A few words in Latin script count as English; another language in that script has to be stated.
    """
    texts = [question.text for question in dataset.questions[:_SAMPLE]]
    context = "\n".join(document.text[:2_000] for document in dataset.documents[:1])
    language = _base_language(stated) or detect_language("\n".join(texts), context)
    if language in ("latin", ""):
        language = "en"
    detected = [detect_language(text, context) for text in texts]
    foreign = sum(_is_apart(other) != _is_apart(language) for other in detected)
    if foreign:
        logger.warning(
            "The first %d questions are measured as %r, but %d of them are in another language: evaluate "
            'those separately, or state the language of each in their file ("language": "ja").',
            len(texts), language, foreign,
        )  # fmt: skip
    return language


def _question_languages(records: Sequence[Record]) -> list[str]:
    """Return each question's stated language, or ""; detect them if none is stated and scripts differ."""
    stated = [_stated_language(record) for record in records]
    if any(stated) or any(record.fields.keys() >= JQARA_FIELDS for record in records[:1]):
        return stated
    texts = [record.text("question", "query", default="") for record in records]
    context = "\n".join(texts[:_SAMPLE])
    languages = [detect_language(text, context) for text in texts]
    if len(set(map(_is_apart, languages))) < 2:
        return stated
    return [language if _is_apart(language) else "en" for language in languages]


def _is_apart(language: str) -> bool:
    """Return whether answers in this language may stand within a word, unlike in English."""
    return language in WITHOUT_SPACES or language == "ko"


def _stated_language(record: Record) -> str:
    return _base_language(record.text("language", default=""))


def _base_language(code: str) -> str:
    """Return the base language by which metrics go: "ja" for "ja-JP", "ja_JP" and "JA"."""
    return code.replace("_", "-").partition("-")[0].lower()


def _read_published(path: Path, split: str = "test") -> tuple[EvaluationSet | None, list[Record]]:
    """Read a dataset in a published format; if these are questions alone, return None and their records."""
    if is_beir(path):
        return read_beir(path, split), []
    files = [path]
    expected = "questions, and it is empty"
    if path.is_dir():
        files = sorted(path.glob("*.parquet"))
        expected = "BEIR's corpus.jsonl and queries.jsonl in it, or JQaRA's Parquet files"
    records = [record for file in files for record in read_records(file)]
    if not records:
        raise DatasetError(f"{path}: expected {expected}")
    for fields, read in FORMATS:
        if records[0].fields.keys() >= fields:
            return read(records), []
    return None, records


def _read_own(
    path: Path,
    records: Sequence[Record],
    folder: Path | None,
    language: str | None,
    leave_out: Sequence[Path],
) -> EvaluationSet:
    """Read questions about a corpus file, a folder of documents, or the files that they name."""
    if folder and folder.is_file() and "supporting" in records[0].fields:
        return read_multihop(records, read_records(folder))
    if folder and folder.is_file():
        language, numbered = _in_one_language(path, records, language)
        return replace(read_dpr(numbered, folder), language=language)
    dataset = _own_questions(path, records, language)
    if folder:
        return _with_folder(dataset, path, folder, leave_out)
    return replace(dataset, documents=_read_named(path, records))


def _own_questions(path: Path, records: Sequence[Record], language: str | None) -> EvaluationSet:
    language, numbered = _in_one_language(path, records, language)
    questions = [_own_question(record, number) for number, record in numbered]
    return EvaluationSet(language=language, questions=questions)


def _with_folder(
    dataset: EvaluationSet, path: Path, folder: Path, leave_out: Sequence[Path]
) -> EvaluationSet:
    """Add a folder's documents to questions, which name them relative to the folder or to their own file."""
    names = {question.document_id for question in dataset.questions}
    relative_to_folder = {
        name: Path(os.path.relpath(path.parent / name, folder)).as_posix() for name in names
    }
    documents = read_folder(folder, [*relative_to_folder, *relative_to_folder.values()], leave_out)
    ids = {document.id_ for document in documents}
    # files that are read page by page, one document each
    ids |= {document_id.partition("#page=")[0] for document_id in ids}
    questions = []
    for question in dataset.questions:
        name = question.document_id
        if name not in ids and relative_to_folder[name] in ids:
            name = relative_to_folder[name]
        questions.append(replace(question, document_id=name))
    return replace(dataset, documents=documents, questions=questions)


def _in_one_language(
    path: Path, records: Sequence[Record], language: str | None
) -> tuple[str, list[tuple[int, Record]]]:
    """Return the language to measure in, and the questions in it, numbered as in the file."""
    if records[0].fields.keys().isdisjoint(("question", "query")):
        raise records[0].error(
            "expected 'question'; 'data', as in SQuAD's format; 'text' with 'questions' (a list); or JQaRA's "
            "fields"
        )
    stated = sorted(set(map(_stated_language, records)) - {""})
    if len(stated) > 1 and not language:
        raise DatasetError(
            f"{path}: its questions are in {' and '.join(stated)}: say which (language=, --language)"
        )
    language = _base_language(language or "".join(stated))
    numbered = list(enumerate(records, 1))
    in_language = []
    for item, own_language in zip(numbered, _question_languages(records), strict=True):
        if own_language in ("", language):
            in_language.append(item)
    if stated and not in_language:
        raise DatasetError(
            f"{path}: there are no questions in {language!r}; there are some in {', '.join(stated)}"
        )
    return language, in_language or numbered


def _read_named(path: Path, records: Sequence[Record]) -> list[Document]:
    """Read the files that questions in any language name, relative to the questions' own file."""
    documents = {}
    for record in records:
        name = _named_document(record).partition("#page=")[0]
        if name and name not in documents:
            if not (path.parent / name).is_file():
                raise record.error(
                    f"there is no document {name!r} in {path.parent}: say where the documents are "
                    "(documents=, --documents)"
                )
            documents[name] = read_file(path.parent / name, name)
    if not documents:
        raise DatasetError(
            f"{path}: these are questions without documents: pass `documents`, a folder or a corpus; or have "
            "the questions name their files ('document')"
        )
    return _without_folders(document for name in sorted(documents) for document in documents[name])


def read_folder(
    folder: Path, named: Iterable[str] = (), leave_out: Sequence[Path] = ()
) -> list[Document]:
    """Read the documents of a folder that have text; their ids are their paths below it.

    Data files (CSV) are read only if named.

    Raises:
        DatasetError: There are no documents.
        OSError: There is no such folder.
    """
    root = folder.resolve()
    excluded = [path for path in leave_out if path.resolve() != root]
    files = find_files([folder], excluded, indexed={str(root / name): name for name in named})
    documents = _without_folders(file for file in read_files(files) if file.text.strip())
    for error in files.unreadable:
        logger.warning("skipped: %s", error)
    if not documents:
        raise DatasetError(
            f"{folder}: expected documents in it (text, Markdown, HTML, PDF), and there are none"
        )
    return documents


def _without_folders(documents: Iterable[Document]) -> list[Document]:
    """Strip the folder from documents' `file_path`, which LlamaIndex's strategies embed and read."""
    stripped = list(documents)
    for document in stripped:
        document.metadata["file_path"] = document.id_.partition("#page=")[0]
    return stripped


def _as_questions(questions: Iterable[Question | Mapping[str, Any]]) -> list[Question]:
    own = []
    for number, question in enumerate(questions, 1):
        if not isinstance(question, Question):
            question = _own_question(object_record(question, f"question {number}"), number)
        own.append(question)
    return own


def _own_question(record: Record, number: int) -> Question:
    """Make a `Question` of a user's record: `question`; `answers` or `answer`; and, if known, `document`.

    `document` is a document id: for a file of a folder, the path below it (a page of a PDF: `path#page=N`).
    """
    key = record.text("id", default=str(number))
    return Question(
        key, record.text("question", "query"), record.answers(), _named_document(record)
    )


def _named_document(record: Record) -> str:
    return record.text("document", "document_id", default="")
