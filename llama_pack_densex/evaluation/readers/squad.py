"""SQuAD's format: articles of paragraphs, each with questions whose answers stand in it. JSQuAD has it too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.data import EvaluationSet, Question, Span
from llama_pack_densex.evaluation.readers.records import DatasetError, Record

_GAP = "\n\n"


def read_squad(path: Path, content: Any, name: str, language: str) -> EvaluationSet:
    """Read a SQuAD file: an article is its paragraphs joined by a blank line; the paragraphs are the passages.

    Questions that are marked as impossible, or have no answer, are left out. Whether an answer is where `answer_start`
    says is not looked at: JSQuAD has answers that are not in the text word for word, with -1.

    Args:
        path: Where it was read, for errors.
        content: The file's JSON.
        name: What the set is called.
        language: Its language.

    Raises:
        DatasetError: The file is not in this format; the message says where.
    """
    documents: list[Document] = []
    questions: list[Question] = []
    passages: dict[str, list[Span]] = {}
    for article in _items(Record(content, str(path)), "data"):
        title = article.text("title", default="")
        document_id = _unused(title or f"article {len(documents) + 1}", passages)
        texts: list[str] = []
        spans: list[Span] = []
        start = 0
        for paragraph in _items(article, "paragraphs"):
            text = paragraph.text("context").removeprefix(f"{title} [SEP] ")  # JSQuAD puts the title before the text
            spans.append((start, start + len(text)))
            questions += _questions(paragraph, document_id, spans[-1], language)
            texts.append(text)
            start += len(text) + len(_GAP)
        passages[document_id] = spans
        metadata = {"title": title} if title else {}
        documents.append(Document(id_=document_id, text=_GAP.join(texts), metadata=metadata))
    return EvaluationSet(name, language, documents, questions, passages)


def _questions(paragraph: Record, document_id: str, span: Span, language: str) -> Iterator[Question]:
    for number, question in enumerate(_items(paragraph, "qas")):
        if question.fields.get("is_impossible"):
            continue
        answers = tuple(dict.fromkeys(answer.text("text") for answer in _items(question, "answers")))
        if answers:
            question_id = question.text("id", default=f"{document_id}/{span[0]}/{number}")
            yield Question(question_id, question.text("question"), answers, document_id, span)


def _items(record: Record, name: str) -> Iterator[Record]:
    items = record.fields.get(name)
    if not isinstance(items, list):
        raise record.error(f"{name!r} must be a list, as in SQuAD's format")
    for number, item in enumerate(items):
        where = f"{record.where}{'.' if ']' in record.where else ', '}{name}[{number}]"
        if not isinstance(item, dict):
            raise DatasetError(f"{where}: expected a JSON object")
        yield Record(item, where)


def _unused(wanted: str, taken: dict[str, list[Span]]) -> str:
    number, unused = 1, wanted
    while unused in taken:
        number += 1
        unused = f"{wanted} ({number})"
    return unused
