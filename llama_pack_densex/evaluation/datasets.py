"""Documents with questions about them: read from the formats that datasets are published in, or given by the user."""

from __future__ import annotations

import ast
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.records import (
    DatasetError,
    Record,
    ending,
    object_record,
    open_text,
    read_json,
    read_records,
    read_rows,
)
from llama_pack_densex.evaluation.runs import Qrels, read_qrels
from llama_pack_densex.node_parsers.nodes import split as cut
from llama_pack_densex.node_parsers.parsers import default_base_parser
from llama_pack_densex.propositionizers.language import WITHOUT_SPACES, detect_language
from llama_pack_densex.reading import UnreadableFileError, document_ids, find_files, read_file

__all__ = ["DatasetError", "EvaluationSet", "Question", "Span", "read_dataset", "read_questions", "to_dataset"]

logger = logging.getLogger(__name__)

Span = tuple[int, int]

_GAP = "\n\n"
_DATA_ENDINGS = (".json", ".jsonl", ".csv", ".tsv", ".parquet", ".gz")
_LOOKED_AT = 50  # questions, to tell the language
_JQARA_FIELDS = ("q_id", "question", "passage_row_id", "text", "label")


@dataclass(frozen=True)
class Question:
    """A question and what is known about its answer.

    Attributes:
        id: Unique within its set.
        text: The question.
        answers: Strings of which any one is a right answer; empty where the dataset has relevance labels only.
        document_id: The document that holds the answer, "" where the dataset does not say.
        span: The gold passage in that document's text, in characters, None where the dataset does not say.
        candidates: Ids of the documents to rank, where the dataset gives them; else all documents are searched.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    document_id: str = ""
    span: Span | None = None
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationSet:
    """A dataset as every strategy sees it.

    Attributes:
        name: What a report calls it.
        language: "en", "ja", ...
        documents: Whole articles, each with an id of its own and, where it has one, its `title` as metadata.
        questions: In the dataset's order.
        passages: Document id to the spans of the dataset's own passages in the document's text, in order.
        relevance: Question id to the labels of documents, above 0 for relevant ones; for the questions of datasets that
            have such labels.
    """

    name: str
    language: str
    documents: list[Document]
    questions: list[Question]
    passages: dict[str, list[Span]] = field(default_factory=dict)
    relevance: Qrels = field(default_factory=dict)

    def passages_of(self, document: Document) -> list[Span]:
        """Where a document's passages stand; one of which none are known is a passage itself."""
        return self.passages.get(document.id_, [(0, len(document.text))])

    def passage_documents(self) -> list[Document]:
        """Each of the dataset's passages as a document of its own, with the article's metadata.

        Its id is `articleid/n`, where `n` counts an article's passages from 0.
        """
        return [
            Document(
                id_=f"{document.id_}/{number}",
                text=document.text[start:end],
                metadata=dict(document.metadata),
                excluded_embed_metadata_keys=list(document.excluded_embed_metadata_keys),
                excluded_llm_metadata_keys=list(document.excluded_llm_metadata_keys),
            )
            for document in self.documents
            for number, (start, end) in enumerate(self.passages_of(document))
        ]


def read_dataset(
    path: str | Path,
    documents: str | Path | None = None,
    *,
    name: str | None = None,
    language: str | None = None,
    split: str = "test",
    max_questions: int | None = None,
) -> EvaluationSet:
    """Read a dataset; its format is seen from its content.

    | format | path | documents |
    |---|---|---|
    | SQuAD, JSQuAD | the JSON file | |
    | BEIR | the folder with corpus.jsonl, queries.jsonl and qrels | |
    | passages, each with the questions that it answers | JSONL of `title`, `text` and `questions` | |
    | JQaRA | its Hugging Face rows, Parquet or JSONL (or a folder of Parquet files) | |
    | DPR, NQ-open, EntityQuestions | questions in JSON, JSONL, CSV or TSV | psgs_w100.tsv, or FACTOIDWIKI's JSONL |
    | the user's own | questions in JSON, JSONL, CSV or TSV | their folder; else the files that questions name |

    Args:
        path: The dataset, or its questions.
        documents: What the questions are about, where it is not in the dataset.
        name: What reports call the set. Default: the file's or folder's name.
        language: "en", "ja", ... Default: told from the questions. Of questions that say theirs, only those are asked.
        split: Of a BEIR folder: "test", "dev" or "train".
        max_questions: Keep the first so many.

    Raises:
        DatasetError: It is in none of these formats, or damaged; the message names the file, the line or item, and what
            is expected.
        OSError: A file cannot be read.
    """
    path, given = Path(path), None if documents is None else Path(documents)
    for each in (path, given):
        if each is not None and not each.exists():
            raise FileNotFoundError(f"{each}: there is no such file or folder")
    found = _checked(_read(path, given, split, language or ""), path, name, language)
    return replace(found, questions=found.questions[:max_questions])


def read_questions(
    questions: str | Path | Sequence[Question | Mapping[str, Any]],
    *,
    language: str | None = None,
    max_questions: int | None = None,
) -> EvaluationSet:
    """Questions without what they are about, to ask an index: of a dataset, of a file of questions, or given.

    Args:
        questions: What `read_dataset` reads, of which the documents are left alone; or `Question`s, or mappings.
        language: "en", "ja", ... Default: what they say, or tell.
        max_questions: Keep the first so many.

    Raises:
        DatasetError: They cannot be read, or there are none.
    """
    if isinstance(questions, (str, Path)):
        path = Path(questions)
        found = _checked(_read(path, None, "test", language or "", alone=True), path, None, language)
    else:
        found = _checked(EvaluationSet("", "", [], _given(questions, None)), Path("questions"), None, language)
    kept = [replace(one, document_id="", span=None, candidates=()) for one in found.questions[:max_questions]]
    return replace(found, documents=[], passages={}, relevance={}, questions=kept)


def languages_of(path: str | Path) -> list[str]:
    """The languages that a file's questions are in: those that they say, or that their scripts tell, where they differ.

    Raises:
        DatasetError: As `read_dataset`.
        OSError: The file cannot be read.
    """
    path = Path(path)
    if _is_whole(path):
        return []
    return sorted({*_languages(list(_read_questions(path)))} - {""})


def to_dataset(
    documents: EvaluationSet | str | Path | Sequence[Document],
    questions: str | Path | Sequence[Question | Mapping[str, Any]] | None,
    language: str | None = None,
) -> EvaluationSet:
    """A dataset of what `compare` takes; long documents whose passages are not known are cut into some.

    Raises:
        DatasetError: A file cannot be read as a dataset, or a question lacks something.
        ValueError: Something is missing or given twice; the message says what.
    """
    if isinstance(documents, EvaluationSet):
        if questions is not None:
            raise ValueError("the dataset has its own questions: pass questions=None, or documents in its place")
        dataset = replace(documents, language=language or documents.language)
    elif questions is None or isinstance(questions, (str, Path)):
        if not isinstance(documents, (str, Path)):
            raise ValueError("pass the questions about these documents: Question objects or mappings")
        files = (documents,) if questions is None else (questions, documents)
        dataset = read_dataset(*files, language=language)
    else:
        texts = _documents_in(Path(documents)) if isinstance(documents, (str, Path)) else list(documents)
        dataset = _own(texts, questions, language)
    if not dataset.questions:
        raise ValueError("there are no questions to compare with")
    if not dataset.documents and not isinstance(documents, EvaluationSet):
        raise ValueError("there are no documents to search")
    return _with_passages(dataset)


def _own(
    documents: list[Document], given: Sequence[Question | Mapping[str, Any]], language: str | None
) -> EvaluationSet:
    ids = {document.id_ for document in documents}
    questions = _given(given, ids)
    for question in questions:
        if question.document_id and question.document_id not in ids:
            raise ValueError(f"question {question.id!r} is about the document {question.document_id!r}: there is none")
    return _checked(EvaluationSet("", "", documents, questions), Path("own documents"), None, language)


def _with_passages(dataset: EvaluationSet) -> EvaluationSet:
    """Where no question has a gold passage, passages are what the pack's own splitter makes of the documents."""
    if any(question.span is not None for question in dataset.questions):
        return dataset
    passages: dict[str, list[Span]] = {}
    parser = default_base_parser()
    for document in dataset.documents:
        known = dataset.passages_of(document)
        is_whole = known == [(0, len(document.text))]
        pieces = [piece.span for piece in cut(document, [parser]) if piece.span is not None] if is_whole else []
        passages[document.id_] = pieces or known
    return replace(dataset, passages=passages)


def _language(found: EvaluationSet, said: str) -> str:
    """The language of a set's questions, which may say it; its documents may be in others.

    Few words in Latin script are taken for English; another such language has to be said.
    """
    texts = [question.text for question in found.questions[:_LOOKED_AT]]
    around = "\n".join(document.text[:2_000] for document in found.documents[:1])
    told = detect_language("\n".join(texts), around)
    language = said or ("en" if told in ("latin", "") else told)
    others = sum((detect_language(text, around) in WITHOUT_SPACES) != (language in WITHOUT_SPACES) for text in texts)
    if others:
        logger.warning(
            "The first %d questions are measured as %r, and %d of them are in another language: ask those apart, or "
            'have their file say which is in what ("language": "ja").',
            len(texts), language, others,
        )  # fmt: skip
    return language


def _checked(found: EvaluationSet, path: Path, name: str | None, language: str | None) -> EvaluationSet:
    """A set with its name and its language, whose ids are told apart."""
    for what, ids in (
        ("document", [document.id_ for document in found.documents]),
        ("question", [question.id for question in found.questions]),
    ):
        twice = next((item for item, number in Counter(ids).items() if number > 1), None)
        if twice is not None:
            raise DatasetError(f"{path}: the {what} id {twice!r} occurs twice")
    if not found.questions:
        raise DatasetError(f"{path}: expected questions with answers, and there are none")
    stem = path.name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem
    return replace(found, name=name or stem, language=_language(found, language or found.language))


def _read(path: Path, documents: Path | None, split: str, language: str, *, alone: bool = False) -> EvaluationSet:
    """Read what is there; of questions alone, the documents are not looked for where only these are wanted."""
    if path.is_dir():
        if _file(path, "corpus.jsonl").exists() and _file(path, "queries.jsonl").exists():
            return _read_beir(path, split)
        files = sorted(path.glob("*.parquet"))
        if not files:
            raise DatasetError(
                f"{path}: expected BEIR's corpus.jsonl and queries.jsonl in it, or Parquet files with JQaRA's rows"
            )
        return _read_jqara(chain.from_iterable(map(read_records, files)))
    if _is_whole(path):
        return _read_squad(Record(read_json(path), str(path)))
    records = _read_questions(path)
    first = next(records, None)
    if first is None:
        raise DatasetError(f"{path}: expected questions, and it is empty")
    records = chain([first], records)
    if first.fields.keys() >= set(_JQARA_FIELDS):
        return _read_jqara(records)
    if first.fields.keys() >= {"text", "questions"}:
        return _read_passages(records)
    if "question" not in first.fields and "query" not in first.fields:
        raise first.error(
            f"expected 'question'; or 'text' with 'questions' (a list); or JQaRA's {', '.join(_JQARA_FIELDS)}"
        )
    asked = list(records)
    meant, language = _in_language(path, asked, language)
    if alone:
        own = [_own_question(record, number, None) for number, record in enumerate(meant, 1)]
        return EvaluationSet("", language, [], own)
    if documents is not None and documents.is_file():
        return replace(_read_dpr(meant, documents), language=language)
    known = _documents_named(path, asked) if documents is None else _documents_in(documents)
    return _own_questions(path, meant, known, documents or path.parent, language)


def _in_language(path: Path, asked: Sequence[Record], language: str) -> tuple[list[Record], str]:
    """Those of a file's questions that are in a language; and which that is, where they say it."""
    said = {record.text("language", default="") for record in asked} - {""}
    if not language and len(said) > 1:
        raise DatasetError(
            f"{path}: its questions are in {' and '.join(sorted(said))}: say which are meant (language=, --language)"
        )
    language = language or next(iter(said), "")
    meant = [record for record, one in zip(asked, _languages(asked), strict=True) if one in ("", language)]
    meant = meant or ([] if said else list(asked))
    if asked and not meant:
        raise DatasetError(
            f"{path}: there are no questions in {language!r}; there are some in {', '.join(sorted(said))}"
        )
    return meant, language


def _languages(asked: Sequence[Record]) -> list[str]:
    """What each of a file's questions says that it is in; where none does and some have a script of their own, that."""
    said = [record.text("language", default="") for record in asked]
    texts = [record.text("question", "query", default="") for record in asked]
    around = "\n".join(texts[:_LOOKED_AT])
    is_whole = any(record.fields.keys() >= set(_JQARA_FIELDS) for record in asked[:1])
    told = [] if is_whole or any(said) else [detect_language(text, around) for text in texts]
    if len({one in WITHOUT_SPACES for one in told}) < 2:
        return said
    return [one if one in WITHOUT_SPACES else "en" for one in told]


# The formats, a function each. Names, and languages that a format does not imply, are `read_dataset`'s.


def _read_squad(file: Record) -> EvaluationSet:
    """SQuAD or JSQuAD: an article is its paragraphs joined by a blank line; these are the passages.

    Questions that are marked as impossible, or have no answer, are left out. Whether an answer is where `answer_start`
    says is not looked at: JSQuAD has answers that are not in the text word for word, with -1.
    """
    documents: list[Document] = []
    questions: list[Question] = []
    passages: dict[str, list[Span]] = {}
    for article in _items(file, "data"):
        title = article.text("title", default="")
        document_id = wanted = title or f"article {len(documents) + 1}"
        number = 1
        while document_id in passages:
            number += 1
            document_id = f"{wanted} ({number})"
        paragraphs = list(_items(article, "paragraphs"))
        # JSQuAD puts the title before the text
        texts = [paragraph.text("context").removeprefix(f"{title} [SEP] ") for paragraph in paragraphs]
        passages[document_id] = _spans(texts, _GAP)
        for paragraph, span in zip(paragraphs, passages[document_id], strict=True):
            for place, asked in enumerate(_items(paragraph, "qas")):
                given = [] if asked.fields.get("is_impossible") else _items(asked, "answers")
                answers = tuple(dict.fromkeys(answer.text("text") for answer in given))
                if answers:
                    question_id = asked.text("id", default=f"{document_id}/{span[0]}/{place}")
                    questions.append(Question(question_id, asked.text("question"), answers, document_id, span))
        documents.append(_document(document_id, _GAP.join(texts), title))
    return EvaluationSet("", "", documents, questions, passages)


def _read_passages(records: Iterable[Record]) -> EvaluationSet:
    """Passages, each with the questions that it answers: `text`, `questions` and, where it has one, `title`.

    A question's gold passage is the one that it was written for. The passages of one title, in the order of the file,
    make one document, as a SQuAD article's paragraphs do: figures can so be compared with those on a SQuAD file of the
    same passages. A passage without a title is a document. There are no answers, and no metrics of answers.
    """
    texts: dict[tuple[str, str], list[str]] = {}  # by document and title
    asked: list[tuple[str, int, tuple[str, ...]]] = []
    for number, record in enumerate(records, 1):
        title = record.text("title", default="")
        document = title or f"passage {number}"
        passages_so_far = texts.setdefault((document, title), [])
        asked.append((document, len(passages_so_far), record.texts("questions")))
        passages_so_far.append(record.text("text"))
    passages = {document: _spans(parts, _GAP) for (document, _), parts in texts.items()}
    questions = [
        Question(f"{document}/{passage}/{number}", text, (), document, passages[document][passage])
        for document, passage, questions in asked
        for number, text in enumerate(questions)
    ]
    documents = [_document(document, _GAP.join(parts), title) for (document, title), parts in texts.items()]
    return EvaluationSet("", "", documents, questions, passages)


def _read_beir(folder: Path, split: str) -> EvaluationSet:
    """A BEIR folder: a document is a passage; the questions are those that the split has labels for."""
    labels_of = {file.stem: file for file in sorted((folder / "qrels").glob("*.tsv"))}
    if split not in labels_of:
        raise DatasetError(
            f"{folder / 'qrels' / split}.tsv: expected the labels of the split {split!r} here; the splits that are "
            f"there: {', '.join(labels_of) or 'none'}"
        )
    relevance = read_qrels(labels_of[split])
    documents = {
        record.text("_id", "id"): _document(
            record.text("_id", "id"), record.text("text"), record.text("title", default="")
        )
        for record in read_records(_file(folder, "corpus.jsonl"))
    }
    asked = {record.text("_id", "id"): record for record in read_records(_file(folder, "queries.jsonl"))}
    labelled = {document for labels in relevance.values() for document in labels}
    for what, named, there, file in (
        ("document", labelled, documents.keys(), "corpus.jsonl"),
        ("question", relevance.keys(), asked.keys(), "queries.jsonl"),
    ):
        if lost := sorted(named - there):
            raise DatasetError(f"{folder}: there are labels for the {what} {lost[0]}, which {file} does not have")
    questions = [
        Question(
            question,
            asked[question].text("text"),
            asked[question].texts("answers", "answer"),
            max(labels, key=labels.__getitem__) if max(labels.values()) > 0 else "",
        )
        for question, labels in relevance.items()
    ]
    return EvaluationSet("", "", list(documents.values()), questions, relevance=relevance)


def _read_jqara(records: Iterable[Record]) -> EvaluationSet:
    """JQaRA's rows as Hugging Face has them (hotchpotch/JQaRA): a question with one of its 100 candidates a row.

    A candidate passage is a document; one that several questions share is there once.
    """
    documents: dict[str, Document] = {}
    rows: dict[str, list[Record]] = {}
    relevance: Qrels = {}
    for record in records:
        question, passage = record.text("q_id"), record.text("passage_row_id")
        if passage not in documents:
            documents[passage] = _document(passage, record.text("text"), record.text("title", default=""))
        rows.setdefault(question, []).append(record)
        label = record.fields.get("label")
        if label not in (0, 1):
            raise record.error(f"label is {label!r}, and 0 or 1 is expected")
        if label:
            relevance.setdefault(question, {})[passage] = 1
    questions = [
        Question(
            question,
            candidates[0].text("question"),
            candidates[0].texts("answers", "answer"),
            next(iter(relevance.get(question, {})), ""),
            candidates=tuple(dict.fromkeys(record.text("passage_row_id") for record in candidates)),
        )
        for question, candidates in rows.items()
    ]
    return EvaluationSet("", "ja", list(documents.values()), questions, relevance=relevance)


def _read_dpr(records: Iterable[Record], corpus: Path) -> EvaluationSet:
    """Questions over a corpus, as DPR, NQ-open and EntityQuestions have them.

    The corpus is a TSV file such as DPR's psgs_w100.tsv, with the columns `id`, `text` and `title`; JSONL with these
    fields; or JSONL as FACTOIDWIKI has it (Chen et al., 2023, and pyserini), with `contents` and, in `metadata`, where
    in it title, section and text stand. Consecutive passages of one title are an article. A question's gold passage is
    the first of its `positive_ctxs`, where the file has them and the corpus has the passage.
    """
    documents: list[Document] = []
    passages: dict[str, list[Span]] = {}
    places: dict[str, tuple[str, Span]] = {}
    for title, group in groupby(map(_passage_of_corpus, read_records(corpus)), key=lambda passage: passage[1]):
        found = list(group)
        for article in [found] if title else [[passage] for passage in found]:  # without a title each is a document
            ids, texts = [passage[0] for passage in article], [passage[2] for passage in article]
            document_id = title or ids[0]
            if document_id in passages:
                document_id = f"{title} ({ids[0]})"
            documents.append(_document(document_id, " ".join(texts), title))
            passages[document_id] = _spans(texts, " ")
            places |= {key: (document_id, span) for key, span in zip(ids, passages[document_id], strict=True)}
    questions: list[Question] = []
    for number, record in enumerate(records, 1):
        answers = record.answers()
        if not answers:
            raise record.error("'answers' is missing or has no text in it")
        contexts = record.fields.get("positive_ctxs") or []
        if not isinstance(contexts, list) or not all(isinstance(context, dict) for context in contexts):
            raise record.error("positive_ctxs must be a list of objects")
        gold = Record(contexts[0], record.where).text("passage_id", "psg_id", default="") if contexts else ""
        question_id = record.text("id", "qid", default=str(number))
        questions.append(Question(question_id, record.text("question"), answers, *places.get(gold, ("", None))))
    return EvaluationSet("", "", documents, questions, passages)


def _passage_of_corpus(record: Record) -> tuple[str, str, str]:
    """The id, title and text of a corpus's passage."""
    text = record.text("text", "contents")
    spans = record.fields.get("metadata")
    if not isinstance(spans, dict) or "content_span" not in spans:
        return record.text("id", "_id", "passage_id"), record.text("title", default=""), text
    parts = []
    for name in ("title_span", "content_span"):
        span = spans.get(name, [0, 0])
        is_pair = isinstance(span, list) and len(span) == 2 and all(type(place) is int for place in span)
        if not is_pair or not 0 <= span[0] <= span[1] <= len(text):
            raise record.error(f"{name} is {span!r}, and [start, end] within contents is expected")
        parts.append(text[span[0] : span[1]])
    return record.text("id"), parts[0], parts[1]


def _read_questions(path: Path) -> Iterator[Record]:
    """Records; of a CSV or TSV file without a header, as DPR's *.qa.csv, questions with a list as Python writes it."""
    if ending(path) not in (".csv", ".tsv") or "question" in next(read_rows(path), ("", []))[1]:
        yield from read_records(path)
        return
    for where, row in read_rows(path):
        if len(row) != 2:
            raise DatasetError(f"{where}: {len(row)} columns; expected a question and the list of its answers")
        try:
            answers = ast.literal_eval(row[1])
        except (ValueError, SyntaxError) as error:
            raise DatasetError(f"{where}: expected a list of answers such as ['14 December 1972']") from error
        yield Record({"question": row[0], "answers": answers}, where)


def _documents_named(path: Path, asked: Sequence[Record]) -> list[Document]:
    """The files that questions in any language name, beside the questions' own file."""
    documents: dict[str, list[Document]] = {}
    for record in asked:
        name = _named(record).partition("#page=")[0]
        if name and name not in documents:
            if not (path.parent / name).is_file():
                raise record.error(
                    f"there is no document {name!r} in {path.parent}: say where the documents are (documents=, "
                    "--documents)"
                )
            documents[name] = read_file(path.parent / name, name)
    if not documents:
        raise DatasetError(
            f"{path}: these are questions alone: pass `documents`, a folder of documents or a corpus such as "
            "psgs_w100.tsv; or let the questions name their files ('document')"
        )
    return [document for name in sorted(documents) for document in documents[name]]


def _own_questions(
    path: Path, asked: Iterable[Record], documents: list[Document], folder: Path, language: str
) -> EvaluationSet:
    """The user's questions about documents: text, Markdown, HTML, PDF; files of data are not read.

    The `document` of a question is a path below the documents' folder, or from the questions' own file.
    """
    known = {document.id_ for document in documents}
    questions = []
    for number, record in enumerate(asked, 1):
        named = _named(record)
        beside = Path(os.path.relpath(path.parent / named, folder)).as_posix()
        if named not in known and beside in known:
            record = Record({**record.fields, "document": beside}, record.where)
        questions.append(_own_question(record, number, known, f" in {folder}, nor beside {path.name}"))
    return EvaluationSet("", language, documents, questions)


def _own_question(record: Record, number: int, documents: set[str] | None, where: str = "") -> Question:
    """A user's own question: `question`; `answers` or `answer`; and, where it is known, `document`, an id.

    The id of a folder's file is the path below it (a page of a PDF: `path#page=N`). Where `documents` is None, nothing
    but the question is needed.
    """
    answers = record.answers()
    document = _named(record)
    if document and documents is not None and document not in documents:
        raise record.error(f"there is no document {document!r}{where}")
    if not answers and not document and documents is not None:
        raise record.error("expected 'answers', 'document', or both")
    return Question(record.text("id", default=str(number)), record.text("question", "query"), answers, document)


def _given(questions: Iterable[Question | Mapping[str, Any]], documents: set[str] | None) -> list[Question]:
    return [
        one if isinstance(one, Question) else _own_question(object_record(one, f"question {number}"), number, documents)
        for number, one in enumerate(questions, 1)
    ]


def _named(record: Record) -> str:
    return record.text("document", "document_id", default="")


def _documents_in(folder: Path) -> list[Document]:
    """The documents of a folder; their ids are their paths below it."""
    found, unreadable, _ = find_files([folder])
    files = [file for file in found if file.path.suffix.lower() not in _DATA_ENDINGS]
    ids = document_ids(files, {})
    documents: list[Document] = []
    for file in files:
        try:
            documents += read_file(file.path, ids[file.path])
        except UnreadableFileError as error:
            unreadable.append(error)
    for wrong in unreadable:
        logger.warning("skipped: %s", wrong)
    if not documents:
        raise DatasetError(f"{folder}: expected documents in it (text, Markdown, HTML, PDF), and there are none")
    return documents


def _document(document_id: str, text: str, title: str) -> Document:
    return Document(id_=document_id, text=text, metadata={"title": title} if title else {})


def _spans(texts: Sequence[str], gap: str) -> list[Span]:
    """Where texts stand once they are joined."""
    spans: list[Span] = []
    for text in texts:
        start = spans[-1][1] + len(gap) if spans else 0
        spans.append((start, start + len(text)))
    return spans


def _items(record: Record, name: str) -> Iterator[Record]:
    items = record.fields.get(name)
    if not isinstance(items, list):
        raise record.error(f"{name!r} must be a list, as in SQuAD's format")
    for number, item in enumerate(items):
        yield object_record(item, f"{record.where}{'.' if ']' in record.where else ', '}{name}[{number}]")


def _file(folder: Path, name: str) -> Path:
    """A file of a folder, packed or not; where there is neither, the name of the one that is not packed."""
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), folder / name)


def _is_whole(path: Path) -> bool:
    """Whether it is a dataset with its documents, a folder or one JSON object, and no file of records."""
    if path.is_dir() or ending(path) != ".json":
        return path.is_dir()
    with open_text(path) as stream:
        return stream.read(4096).lstrip().startswith("{")
