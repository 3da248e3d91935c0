"""DPR's formats, which NQ-open and EntityQuestions share: questions with their answers, and psgs_w100.tsv."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.data import EvaluationSet, Question, Span
from llama_pack_densex.evaluation.readers.records import (
    DatasetError,
    Record,
    ending,
    read_records,
    read_rows,
)


@dataclass(frozen=True)
class Article:
    """Consecutive passages of a corpus with one title.

    Args:
        document: The passages joined by spaces.
        spans: Where they stand in it.
        passage_ids: Their ids in the corpus.
    """

    document: Document
    spans: list[Span]
    passage_ids: list[str]


def read_dpr(
    questions: Path, corpus: Path, name: str, language: str, max_documents: int | None = None
) -> EvaluationSet:
    """Read questions over a corpus.

    A question's gold passage is the first of its `positive_ctxs`, where the file has them and the corpus has the
    passage.

    Args:
        questions: JSON or JSONL of objects with `question` and `answers` or `answer`; or CSV or TSV with these columns
            (several answers divided by "|"), or without a header as DPR's *.qa.csv (question, tab, list of answers as
            Python writes it).
        corpus: What `iter_articles` reads.
        name: What the set is called.
        language: Its language.
        max_documents: Read only so many articles.

    Raises:
        DatasetError: A file is not in this format.
    """
    documents: list[Document] = []
    passages: dict[str, list[Span]] = {}
    places: dict[str, tuple[str, Span]] = {}
    asked: list[tuple[Question, str]] = []
    for number, record in enumerate(read_questions(questions), 1):
        answers = record.answers()
        if not answers:
            raise record.error("'answers' is missing or has no text in it")
        question = Question(record.text("id", "qid", default=str(number)), record.text("question"), answers)
        asked.append((question, _gold_passage(record)))
    gold = {passage for _, passage in asked if passage}
    for article in iter_articles(corpus):
        if max_documents is not None and len(documents) >= max_documents:
            break
        documents.append(article.document)
        passages[article.document.id_] = article.spans
        for passage, span in zip(article.passage_ids, article.spans, strict=True):
            if passage in gold:
                places[passage] = (article.document.id_, span)
    placed = [_with_place(question, places.get(passage)) for question, passage in asked]
    return EvaluationSet(name, language, documents, placed, passages)


def iter_articles(corpus: Path) -> Iterator[Article]:
    """Read a corpus such as DPR's psgs_w100.tsv, article by article; nothing but the current one is kept.

    Args:
        corpus: A TSV file with the columns `id`, `text` and `title`, or JSONL with these fields; gzip is unpacked.

    Raises:
        DatasetError: It is not in this format.
    """
    seen: set[str] = set()
    for title, records in groupby(read_records(corpus), key=lambda record: record.text("title", default="")):
        texts: list[str] = []
        spans: list[Span] = []
        passage_ids: list[str] = []
        start = 0
        for record in records:
            text = record.text("text", "contents")
            spans.append((start, start + len(text)))
            texts.append(text)
            passage_ids.append(record.text("id", "_id", "passage_id"))
            start += len(text) + 1
            if not title:  # without titles, each passage is a document
                yield _article(passage_ids[-1], "", [text], [(0, len(text))], [passage_ids[-1]])
        if title:
            document_id = title if title not in seen else f"{title} ({passage_ids[0]})"
            seen.add(title)
            yield _article(document_id, title, texts, spans, passage_ids)


def read_questions(path: Path) -> Iterator[Record]:
    """Read a file of questions with answers in any of the forms that `read_dpr` names.

    Raises:
        DatasetError: It is in none of them.
    """
    if ending(path) not in (".csv", ".tsv") or has_header(path):
        yield from read_records(path)
        return
    for where, row in read_rows(path):
        if len(row) != 2:
            raise DatasetError(f"{where}: {len(row)} columns; expected a question and the list of its answers")
        yield Record({"question": row[0], "answers": _listed(row[1], where)}, where)


def has_header(path: Path) -> bool:
    """Say whether a CSV or TSV file begins with column names, `question` among them."""
    return "question" in next(read_rows(path), ("", []))[1]


def _article(document_id: str, title: str, texts: list[str], spans: list[Span], passage_ids: list[str]) -> Article:
    metadata = {"title": title} if title else {}
    return Article(Document(id_=document_id, text=" ".join(texts), metadata=metadata), spans, passage_ids)


def _listed(text: str, where: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise DatasetError(f"{where}: expected a list of answers such as ['14 December 1972']") from error


def _gold_passage(record: Record) -> str:
    contexts = record.fields.get("positive_ctxs") or []
    if not isinstance(contexts, list) or not all(isinstance(context, dict) for context in contexts):
        raise record.error("positive_ctxs must be a list of objects")
    return Record(contexts[0], record.where).text("passage_id", "psg_id", default="") if contexts else ""


def _with_place(question: Question, place: tuple[str, Span] | None) -> Question:
    if place is None:
        return question
    return Question(question.id, question.text, question.answers, place[0], place[1])
