"""BEIR's format: a folder with corpus.jsonl, queries.jsonl and qrels/*.tsv."""

from __future__ import annotations

from pathlib import Path

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.data import EvaluationSet, Question
from llama_pack_densex.evaluation.readers.records import DatasetError, read_records
from llama_pack_densex.evaluation.runs import Qrels, read_qrels


def is_beir(folder: Path) -> bool:
    """Say whether a folder is in BEIR's format."""
    return _file(folder, "corpus.jsonl") is not None and _file(folder, "queries.jsonl") is not None


def read_beir(folder: Path, name: str, language: str, split: str, max_documents: int | None = None) -> EvaluationSet:
    """Read a BEIR folder. A document is a passage; the questions are those that the split has labels for.

    Args:
        folder: The folder.
        name: What the set is called.
        language: Its language.
        split: "test", "dev" or "train": the file in `qrels`.
        max_documents: Keep the labelled documents, and of the others only so many that there are this many.

    Raises:
        DatasetError: A file is missing or not in this format, or a label is of a document that is not there.
    """
    relevance = _read_labels(folder, split)
    labelled = {document for labels in relevance.values() for document in labels}
    documents: dict[str, Document] = {}
    others = None if max_documents is None else max(max_documents - len(labelled), 0)
    for record in read_records(_required(folder, "corpus.jsonl")):
        document_id = record.text("_id", "id")
        if others is not None and document_id not in labelled:
            if not others:
                continue
            others -= 1
        title = record.text("title", default="")
        metadata = {"title": title} if title else {}
        documents[document_id] = Document(id_=document_id, text=record.text("text"), metadata=metadata)
    missing = next((document for document in sorted(labelled) if document not in documents), None)
    if missing is not None:
        raise DatasetError(f"{folder}: there are labels for the document {missing}, which corpus.jsonl does not have")
    texts = {
        record.text("_id", "id"): record
        for record in read_records(_required(folder, "queries.jsonl"))
        if record.text("_id", "id") in relevance
    }
    lost = next((question for question in relevance if question not in texts), None)
    if lost is not None:
        raise DatasetError(f"{folder}: there are labels for the question {lost}, which queries.jsonl does not have")
    questions = [
        Question(
            id=question,
            text=texts[question].text("text"),
            answers=texts[question].texts("answers", "answer"),
            document_id=max(labels, key=lambda document: labels[document]) if max(labels.values()) > 0 else "",
        )
        for question, labels in relevance.items()
    ]
    passages = {document.id_: [(0, len(document.text))] for document in documents.values()}
    return EvaluationSet(name, language, list(documents.values()), questions, passages, relevance)


def _read_labels(folder: Path, split: str) -> Qrels:
    found = sorted((folder / "qrels").glob("*.tsv"))
    wanted = folder / "qrels" / f"{split}.tsv"
    if wanted in found:
        return read_qrels(wanted)
    names = ", ".join(file.stem for file in found) or "none"
    raise DatasetError(f"{wanted}: expected the labels of the split {split!r} here; the splits that are there: {names}")


def _file(folder: Path, name: str) -> Path | None:
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def _required(folder: Path, name: str) -> Path:
    file = _file(folder, name)
    if file is None:
        raise DatasetError(f"{folder}: expected {name} in it, as in BEIR's folders")
    return file
