"""JQaRA's rows: a question with one of its 100 candidate passages, and whether it answers the question."""

from __future__ import annotations

from collections.abc import Iterable

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.data import EvaluationSet, Question
from llama_pack_densex.evaluation.readers.records import Record

FIELDS = ("q_id", "question", "passage_row_id", "text", "label")
"""The fields that tell such a file; `title` and `answers` are there too."""


def read_jqara(records: Iterable[Record], name: str, language: str = "ja") -> EvaluationSet:
    """Read JQaRA's rows as Hugging Face has them (hotchpotch/JQaRA), from Parquet or JSONL.

    A candidate passage is a document; one that several questions share is there once.

    Args:
        records: The rows.
        name: What the set is called.
        language: Its language.

    Raises:
        DatasetError: A row is not in this format.
    """
    documents: dict[str, Document] = {}
    texts: dict[str, str] = {}
    answers: dict[str, tuple[str, ...]] = {}
    candidates: dict[str, dict[str, None]] = {}
    relevance: dict[str, dict[str, int]] = {}
    for record in records:
        question, passage = record.text("q_id"), record.text("passage_row_id")
        if passage not in documents:
            title = record.text("title", default="")
            metadata = {"title": title} if title else {}
            documents[passage] = Document(id_=passage, text=record.text("text"), metadata=metadata)
        texts.setdefault(question, record.text("question"))
        answers.setdefault(question, record.texts("answers", "answer"))
        candidates.setdefault(question, {})[passage] = None
        label = record.fields.get("label")
        if label not in (0, 1):
            raise record.error(f"label is {label!r}, and 0 or 1 is expected")
        if label:
            relevance.setdefault(question, {})[passage] = 1
    questions = [
        Question(
            id=question,
            text=text,
            answers=answers[question],
            document_id=next(iter(relevance.get(question, {})), ""),
            candidates=tuple(candidates[question]),
        )
        for question, text in texts.items()
    ]
    passages = {document.id_: [(0, len(document.text))] for document in documents.values()}
    return EvaluationSet(name, language, list(documents.values()), questions, passages, relevance)
