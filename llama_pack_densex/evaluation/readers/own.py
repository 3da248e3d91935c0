"""The user's own questions over a folder of documents."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.data import EvaluationSet, Question
from llama_pack_densex.evaluation.readers.records import DatasetError, Record
from llama_pack_densex.reading import document_ids, find_files, read_file

_DATA_ENDINGS = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".gz")


def read_own(records: Iterable[Record], folder: Path, name: str, language: str) -> EvaluationSet:
    """Read questions about the documents of a folder.

    Args:
        records: Objects or rows with `question`; `answers` or `answer` (a list; in a text several are divided by "|");
            and, where it is known, `document`: the file's path below the folder (a page of a PDF: `path#page=N`). Where
            records say a `language`, those in another than the set's are left out.
        folder: The documents: text, Markdown, HTML, PDF. Files of data (JSON, CSV, ...) are not read.
        name: What the set is called.
        language: Its language.

    Raises:
        DatasetError: A record lacks something, or names a document that is not there.
        ValueError: A document cannot be read.
    """
    documents = read_documents(folder)
    known = {document.id_ for document in documents}
    questions: list[Question] = []
    for number, record in enumerate(records, 1):
        if record.text("language", default=language) != language:
            continue
        answers = record.answers()
        document = record.text("document", "document_id", default="")
        if document and document not in known:
            raise record.error(f"there is no document {document!r} in {folder}")
        if not answers and not document:
            raise record.error("expected 'answers', 'document', or both")
        questions.append(
            Question(record.text("id", default=str(number)), record.text("question", "query"), answers, document)
        )
    passages = {document.id_: [(0, len(document.text))] for document in documents}
    return EvaluationSet(name, language, documents, questions, passages)


def read_documents(folder: Path) -> list[Document]:
    """Read the documents of a folder; their ids are their paths below it.

    Raises:
        DatasetError: There is none, or one of the files is not readable.
        ValueError: One cannot be read.
    """
    found, unreadable = find_files([folder])
    if unreadable:
        raise DatasetError(f"{unreadable[0].path} {unreadable[0].reason}")
    files = [file for file in found if file.path.suffix.lower() not in _DATA_ENDINGS]
    ids = document_ids(files, {})
    documents = [document for file in files for document in read_file(file.path, ids[file.path])]
    if not documents:
        raise DatasetError(f"{folder}: expected documents in it (text, Markdown, HTML, PDF), and there are none")
    return documents
