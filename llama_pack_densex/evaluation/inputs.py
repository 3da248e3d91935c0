"""What the user gives to `compare`, made into one dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.data import EvaluationSet, Question, Span
from llama_pack_densex.evaluation.datasets import read_dataset
from llama_pack_densex.evaluation.readers.own import read_documents
from llama_pack_densex.node_parsers.passages import split
from llama_pack_densex.node_parsers.proposition import default_base_parser
from llama_pack_densex.propositionizers.language import detect_language

_LOOKED_AT = 50  # questions, to tell the language


def to_dataset(
    documents: EvaluationSet | str | Path | Sequence[Document],
    questions: str | Path | Sequence[Question | Mapping[str, Any]] | None,
) -> EvaluationSet:
    """A dataset of what `compare` takes; long documents whose passages are not known are cut into some.

    Raises:
        DatasetError: A file cannot be read as a dataset.
        ValueError: Something is missing or given twice; the message says what.
    """
    dataset = _read(documents, questions)
    if not dataset.questions:
        raise ValueError("there are no questions to compare with")
    if not dataset.documents:
        raise ValueError("there are no documents to search")
    return _with_passages(dataset)


def _read(
    documents: EvaluationSet | str | Path | Sequence[Document],
    questions: str | Path | Sequence[Question | Mapping[str, Any]] | None,
) -> EvaluationSet:
    if isinstance(documents, EvaluationSet):
        if questions is not None:
            raise ValueError("the dataset has its own questions: pass questions=None, or documents in its place")
        return documents
    if isinstance(documents, (str, Path)):
        if questions is None:
            return read_dataset(documents)
        if isinstance(questions, (str, Path)):
            return read_dataset(questions, documents)
        return _own(read_documents(Path(documents)), questions)
    if questions is None or isinstance(questions, (str, Path)):
        raise ValueError("pass the questions about these documents: Question objects or mappings")
    return _own(list(documents), questions)


def _own(documents: list[Document], given: Sequence[Question | Mapping[str, Any]]) -> EvaluationSet:
    ids = {document.id_ for document in documents}
    if len(ids) < len(documents):
        raise ValueError("two documents have the same id")
    questions = [_question(item, number) for number, item in enumerate(given, 1)]
    for question in questions:
        if question.document_id and question.document_id not in ids:
            raise ValueError(f"question {question.id!r} is about the document {question.document_id!r}: there is none")
    if len({question.id for question in questions}) < len(questions):
        raise ValueError("two questions have the same id")
    detected = detect_language("\n".join(question.text for question in questions[:_LOOKED_AT]))
    language = "en" if detected in ("latin", "") else detected
    return EvaluationSet("own documents", language, documents, questions)


def _question(given: Question | Mapping[str, Any], number: int) -> Question:
    if isinstance(given, Question):
        return given
    text, answers, document = given.get("question"), given.get("answers", ()), given.get("document", "")
    answers = (answers,) if isinstance(answers, str) else tuple(answers)
    if not isinstance(text, str) or not all(isinstance(answer, str) for answer in answers):
        raise ValueError(f'question {number}: expected "question" (a string) and "answers" (strings)')
    if not answers and not document:
        raise ValueError(f'question {number}: expected "answers", "document" (an id), or both')
    return Question(str(given.get("id", number)), text, answers, str(document))


def _with_passages(dataset: EvaluationSet) -> EvaluationSet:
    """Where no question has a gold passage, passages are what the pack's own splitter makes of the documents."""
    if any(question.span is not None for question in dataset.questions):
        return dataset
    whole = {document.id_: [(0, len(document.text))] for document in dataset.documents}
    passages: dict[str, list[Span]] = {}
    parser = default_base_parser()
    for document in dataset.documents:
        known = dataset.passages.get(document.id_, whole[document.id_])
        if known == whole[document.id_]:
            cut = [piece.span for piece in split(document, [parser]) if piece.span is not None]
            known = cut or known
        passages[document.id_] = known
    return replace(dataset, passages=passages)
