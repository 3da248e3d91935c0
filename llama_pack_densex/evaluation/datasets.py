"""Documents with questions about them: read from the formats that datasets are published in, or given by the user."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from llama_index.core.schema import Document, MediaResource

from llama_pack_densex.evaluation.records import DatasetError as DatasetError
from llama_pack_densex.evaluation.records import Record, object_record, read_records
from llama_pack_densex.evaluation.runs import Qrels, read_qrels
from llama_pack_densex.node_parsers.parsers import default_base_parser
from llama_pack_densex.node_parsers.splitting import split, title_of
from llama_pack_densex.reading import find_files, read_file, read_files
from llama_pack_densex.text.language import WITHOUT_SPACES, detect_language

logger = logging.getLogger(__name__)

Span = tuple[int, int]

Questions = str | Path | Sequence["Question | Mapping[str, Any]"]
"""A dataset or a file of questions; or `Question`s; or mappings with "question", "answers" and "document"."""

_PATH = (str, Path)
_GAP = "\n\n"
_SAMPLE = 50  # questions from which the language is detected
_MEASURED_APART = WITHOUT_SPACES | {"ko"}  # in them an answer may stand within a word


@dataclass(frozen=True)
class Question:
    """A question and what is known about its answer.

    Attributes:
        id: Unique within its set.
        text: The question.
        answers: Strings of which any one is a right answer; empty where the dataset has relevance labels only.
        document_id: The document that holds the answer, "" where the dataset does not say.
        span: The gold passage in that document's text, in characters, None where the dataset does not say.
        candidates: Ids of the documents to search for it, where the dataset gives them; else all are searched.
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

    name: str = ""
    language: str = ""
    documents: list[Document] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    passages: dict[str, list[Span]] = field(default_factory=dict)
    relevance: Qrels = field(default_factory=dict)

    def add_article(self, name: str, title: str, texts: Sequence[str], gap: str = _GAP) -> list[tuple[str, Span]]:
        """Add a document that is made of passages; if its name is taken, it gets a number.

        Returns:
            For each passage the document's id and the passage's span in it.
        """
        document_id = name
        number = 1
        while document_id in self.passages:
            number += 1
            document_id = f"{name} ({number})"
        spans: list[Span] = []
        start = 0
        for text in texts:
            spans.append((start, start + len(text)))
            start += len(text) + len(gap)
        self.documents.append(_document(document_id, title, gap.join(texts)))
        self.passages[document_id] = spans
        return [(document_id, span) for span in spans]

    @property
    def titles(self) -> dict[str, str]:
        """Document id to title, or to the id where there is none."""
        return {document.id_: title_of(document) or document.id_ for document in self.documents}

    def passages_of(self, document: Document) -> list[Span]:
        """The spans of a document's passages; a document without known passages is one passage."""
        return self.passages.get(document.id_, [(0, len(document.text))])

    def passage_documents(self) -> list[Document]:
        """Each of the dataset's passages as a document of its own, with the article's metadata.

        Its id is `articleid/n`, where `n` counts an article's passages from 0.
        """
        return [
            document.model_copy(
                update={
                    "id_": f"{document.id_}/{number}",
                    "metadata": dict(document.metadata),
                    "text_resource": MediaResource(text=document.text[start:end]),
                }
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
    leave_out: Sequence[Path] = (),
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
        leave_out: Folders below the user's own documents that are not read, as that of an earlier report.

    Raises:
        DatasetError: It is in none of these formats, or damaged; the message names the file, the line or item, and what
            is expected.
        OSError: A file cannot be read.
    """
    path = Path(path)
    folder = None if documents is None else Path(documents)
    for file in (path, folder):
        if file and not file.exists():
            raise FileNotFoundError(f"{file}: there is no such file or folder")
    dataset = _checked(_read(path, folder, split, language, leave_out), path, name, language)
    return replace(dataset, questions=dataset.questions[:max_questions])


def read_questions(
    questions: Questions,
    *,
    language: str | None = None,
    max_questions: int | None = None,
) -> EvaluationSet:
    """Questions without their documents, to ask an index: of a dataset, of a file of questions, or given.

    Args:
        questions: What `read_dataset` reads, without its documents; or `Question`s, or mappings.
        language: "en", "ja", ... Default: the one stated, else the one detected.
        max_questions: Keep the first so many.

    Raises:
        DatasetError: They cannot be read, or there are none.
    """
    if isinstance(questions, _PATH):
        dataset = _read(Path(questions), language=language, needs_documents=False)
    else:
        dataset = EvaluationSet(questions=_as_questions(questions))
    path = Path(questions) if isinstance(questions, _PATH) else Path("questions")
    dataset = _checked(dataset, path, None, language)
    kept = dataset.questions[:max_questions]
    bare = [replace(question, document_id="", span=None, candidates=()) for question in kept]
    return EvaluationSet(dataset.name, dataset.language, questions=bare)


def languages_of(path: str | Path) -> list[str]:
    """The languages of a file's questions: those that they state or, where scripts differ, those that are detected.

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
    """A dataset of what `compare` takes; long documents whose passages are not known are cut into some.

    Raises:
        DatasetError: A file cannot be read as a dataset, or a question lacks something.
        ValueError: Something is missing or given twice; the message says what.
    """
    own = Path("own documents")
    if isinstance(documents, EvaluationSet):
        if questions is not None:
            raise ValueError("the dataset has its own questions: pass questions=None, or documents in its place")
        return _with_passages(_checked(documents, own, documents.name, language))
    if isinstance(documents, _PATH) and questions is None:
        dataset = read_dataset(documents, language=language)
    elif isinstance(questions, _PATH):
        if not isinstance(documents, _PATH):
            raise ValueError("pass the questions about these documents: Question objects or mappings")
        dataset = read_dataset(questions, documents, language=language)
    else:
        asked = _as_questions(questions or ())
        if isinstance(documents, _PATH):
            documents = _read_folder(Path(documents), [question.document_id for question in asked])
        dataset = _checked(EvaluationSet(documents=list(documents), questions=asked), own, None, language)
    if not dataset.documents:
        raise ValueError("there are no documents to search")
    return _with_passages(dataset)


def _with_passages(dataset: EvaluationSet) -> EvaluationSet:
    """Where no question has a gold passage, passages are what the pack's own splitter makes of the documents."""
    if any(question.span is not None for question in dataset.questions):
        return dataset
    parser = default_base_parser()
    passages = dict(dataset.passages)
    for document in dataset.documents:
        if document.id_ not in passages:
            spans = [piece.span for piece in split(document, [parser]) if piece.span is not None]
            passages[document.id_] = spans or dataset.passages_of(document)
    return replace(dataset, passages=passages)


def _checked(dataset: EvaluationSet, path: Path, name: str | None, language: str | None) -> EvaluationSet:
    """A set with its name and its language, after a check of its ids and references."""
    documents = Counter(document.id_ for document in dataset.documents)
    questions = Counter(question.id for question in dataset.questions)
    for kind, ids in (("document", documents), ("question", questions)):
        for item, number in ids.items():
            if number > 1:
                raise DatasetError(f"{path}: the {kind} id {item!r} occurs twice")
    if not questions:
        raise DatasetError(f"{path}: expected questions with answers, and there are none")
    for question in dataset.questions if documents else ():
        where = f"{path}, question {question.id}"
        if question.document_id and question.document_id not in documents:
            raise DatasetError(f"{where}: there is no document {question.document_id!r}")
        if not (question.answers or question.document_id or question.id in dataset.relevance):
            raise DatasetError(f"{where}: expected 'answers', 'document', or both")
    if not name:
        name = path.name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem
    return replace(dataset, name=name, language=_dataset_language(dataset, language or dataset.language))


def _dataset_language(dataset: EvaluationSet, stated: str) -> str:
    """The language of a set's questions, stated or detected; its documents may be in others.

    A few words in Latin script are taken for English; another such language has to be stated.
    """
    texts = [question.text for question in dataset.questions[:_SAMPLE]]
    context = "\n".join(document.text[:2_000] for document in dataset.documents[:1])
    language = _base_language(stated) or detect_language("\n".join(texts), context)
    if language in ("latin", ""):
        language = "en"
    is_apart = language in _MEASURED_APART
    others = sum((detect_language(text, context) in _MEASURED_APART) != is_apart for text in texts)
    if others:
        logger.warning(
            "The first %d questions are measured as %r, and %d of them are in another language: ask those apart, or "
            'state the language of each in their file ("language": "ja").',
            len(texts), language, others,
        )  # fmt: skip
    return language


def _question_languages(records: Sequence[Record]) -> list[str]:
    """The language that each question states; if none states any and they need different measures, the detected one."""
    stated = [_stated_language(record) for record in records]
    if any(stated) or any(record.fields.keys() >= _JQARA_FIELDS for record in records[:1]):
        return stated
    texts = [record.text("question", "query", default="") for record in records]
    context = "\n".join(texts[:_SAMPLE])
    detected = [detect_language(text, context) for text in texts]
    languages = [language if language in _MEASURED_APART else "en" for language in detected]
    is_mixed = len({language in _MEASURED_APART for language in detected}) > 1
    return languages if is_mixed else stated


def _stated_language(record: Record) -> str:
    return _base_language(record.text("language", default=""))


def _base_language(code: str) -> str:
    """The "ja" of "ja-JP", "ja_JP" and "JA", by which it is measured."""
    return code.replace("_", "-").partition("-")[0].lower()


def _read(
    path: Path,
    documents: Path | None = None,
    split: str = "test",
    language: str | None = None,
    leave_out: Sequence[Path] = (),
    needs_documents: bool = True,
) -> EvaluationSet:
    if _file(path, "corpus.jsonl").exists() and _file(path, "queries.jsonl").exists():
        dataset = _read_beir(path, split)
    else:
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        records = [record for file in files for record in read_records(file)]
        if not records:
            folder = "BEIR's corpus.jsonl and queries.jsonl in it, or JQaRA's Parquet files"
            raise DatasetError(f"{path}: expected {folder if path.is_dir() else 'questions, and it is empty'}")
        read = next((read for fields, read in _FORMATS if records[0].fields.keys() >= fields), None)
        if not read:
            language, numbered = _in_one_language(path, records, language)
            if documents and documents.is_file():
                dataset = _read_dpr(numbered, documents)
            else:
                questions = [_own_question(record, number) for number, record in numbered]
                dataset = EvaluationSet(questions=questions)
                if documents:
                    dataset = _with_folder(questions, path, documents, leave_out)
                elif needs_documents:
                    dataset.documents.extend(_read_named(path, records))
            return replace(dataset, language=language)
        dataset = read(records)
    if documents:
        raise DatasetError(f"{path}: this dataset has documents of its own, and {documents} would be ignored")
    return dataset


# The formats, a function each. Names, and languages that a format does not imply, are `read_dataset`'s.


def _read_squad(records: Sequence[Record]) -> EvaluationSet:
    """SQuAD or JSQuAD: an article is its paragraphs joined by a blank line; these are the passages.

    Questions that are marked as impossible, or have no answer, are left out. Whether an answer is where `answer_start`
    says is not checked: JSQuAD has answers that are not in the text word for word, with -1.
    """
    dataset = EvaluationSet()
    for article in records[0].records("data"):
        title = article.text("title", default="")
        paragraphs = article.records("paragraphs")
        # JSQuAD puts the title before the text
        texts = [paragraph.text("context").removeprefix(f"{title} [SEP] ") for paragraph in paragraphs]
        places = dataset.add_article(title or f"article {len(dataset.documents) + 1}", title, texts)
        for paragraph, (document_id, span) in zip(paragraphs, places, strict=True):
            for number, asked in enumerate(paragraph.records("qas")):
                if asked.fields.get("is_impossible"):
                    continue
                answers = tuple(dict.fromkeys(answer.text("text") for answer in asked.records("answers")))
                if answers:
                    question_id = asked.text("id", default=f"{document_id}/{span[0]}/{number}")
                    dataset.questions.append(Question(question_id, asked.text("question"), answers, document_id, span))
    return dataset


def _read_passages(records: Sequence[Record]) -> EvaluationSet:
    """Passages, each with the questions that it answers: `text`, `questions` and, where it has one, `title`.

    A question's gold passage is the one that it was written for. The passages of one title, in the order of the file,
    make one document, as a SQuAD article's paragraphs do: figures can so be compared with those on a SQuAD file of the
    same passages. A passage without a title is a document. There are no answers, and no metrics of answers.
    """
    articles: dict[tuple[str, str], list[Record]] = {}
    for number, record in enumerate(records, 1):
        title = record.text("title", default="")
        articles.setdefault((title or f"passage {number}", title), []).append(record)
    dataset = EvaluationSet()
    for (name, title), passages in articles.items():
        places = dataset.add_article(name, title, [passage.text("text") for passage in passages])
        for number, (passage, place) in enumerate(zip(passages, places, strict=True)):
            for asked, text in enumerate(passage.texts("questions")):
                dataset.questions.append(Question(f"{name}/{number}/{asked}", text, (), *place))
    return dataset


def _read_jqara(records: Sequence[Record]) -> EvaluationSet:
    """JQaRA's rows as Hugging Face has them (hotchpotch/JQaRA): a question with one of its 100 candidates a row.

    A candidate passage is a document; one that several questions share is there once.
    """
    documents: dict[str, Document] = {}
    rows_of: dict[str, list[Record]] = {}
    for record in records:
        if record.fields["label"] not in (0, 1):
            raise record.error(f"label is {record.fields['label']!r}, and 0 or 1 is expected")
        passage = record.text("passage_row_id")
        if passage not in documents:
            documents[passage] = _document(passage, record.text("title", default=""), record.text("text"))
        rows_of.setdefault(record.text("q_id"), []).append(record)
    dataset = EvaluationSet(language="ja", documents=list(documents.values()))
    for question, rows in rows_of.items():
        labels = {row.text("passage_row_id"): row.fields["label"] for row in rows}
        if any(labels.values()):
            dataset.relevance[question] = {passage: 1 for passage, label in labels.items() if label}
        dataset.questions.append(_labelled_question(question, rows[0], labels, tuple(labels)))
    return dataset


def _read_beir(folder: Path, split: str) -> EvaluationSet:
    """A BEIR folder: a document is a passage; the questions are those that the split has labels for."""
    labels_of = {file.stem: file for file in sorted((folder / "qrels").glob("*.tsv"))}
    if split not in labels_of:
        splits = ", ".join(labels_of) or "none"
        expected = f"expected the labels of the split {split!r} here; the splits that are there: {splits}"
        raise DatasetError(f"{folder / 'qrels'}: {expected}")
    relevance = read_qrels(labels_of[split])
    documents = [_document(*_corpus_passage(record)) for record in read_records(_file(folder, "corpus.jsonl"))]
    ids = {document.id_ for document in documents}
    queries = {record.text("_id", "id"): record for record in read_records(_file(folder, "queries.jsonl"))}
    for question, labels in relevance.items():
        if lost := sorted(labels.keys() - ids):
            raise DatasetError(f"{folder}: there are labels for the document {lost[0]}, which corpus.jsonl lacks")
        if question not in queries:
            raise DatasetError(f"{folder}: there are labels for the question {question}, which queries.jsonl lacks")
    questions = [_labelled_question(key, queries[key], labels) for key, labels in relevance.items()]
    return EvaluationSet(documents=documents, questions=questions, relevance=relevance)


def _labelled_question(
    question: str, record: Record, labels: Mapping[str, int], candidates: tuple[str, ...] = ()
) -> Question:
    """A question whose document is the first of those with the highest label, if that is above 0."""
    best = max(labels, key=labels.__getitem__)
    answers = record.texts("answers", "answer")
    gold = best if labels[best] > 0 else ""
    return Question(question, record.text("question", "text"), answers, gold, candidates=candidates)


_JQARA_FIELDS = {"q_id", "question", "passage_row_id", "text", "label"}
_FORMATS: Sequence[tuple[set[str], Callable[[Sequence[Record]], EvaluationSet]]] = (
    ({"data"}, _read_squad),
    (_JQARA_FIELDS, _read_jqara),
    ({"text", "questions"}, _read_passages),
)
"""The fields by which a format is recognised."""


def _with_folder(questions: Sequence[Question], path: Path, folder: Path, leave_out: Sequence[Path]) -> EvaluationSet:
    """Questions with a folder of documents: they name them below the folder, or from their own file."""
    names = {question.document_id: question.document_id for question in questions}
    from_file = {name: Path(os.path.relpath(path.parent / name, folder)).as_posix() for name in names}
    documents = _read_folder(folder, [*from_file, *from_file.values()], leave_out)
    ids = {document.id_ for document in documents}
    names |= {name: other for name, other in from_file.items() if name not in ids and other in ids}
    renamed = [replace(question, document_id=names[question.document_id]) for question in questions]
    return EvaluationSet(documents=documents, questions=renamed)


def _in_one_language(
    path: Path, records: Sequence[Record], language: str | None
) -> tuple[str, list[tuple[int, Record]]]:
    """The language to measure in, and the questions in it, numbered as in the file."""
    if records[0].fields.keys().isdisjoint(("question", "query")):
        expected = "'question'; 'data', as in SQuAD's format; 'text' with 'questions' (a list); or JQaRA's fields"
        raise records[0].error(f"expected {expected}")
    stated = sorted({_stated_language(record) for record in records} - {""})
    if len(stated) > 1 and not language:
        several = " and ".join(stated)
        raise DatasetError(f"{path}: its questions are in {several}: say which (language=, --language)")
    language = _base_language(language or "".join(stated))
    numbered = list(enumerate(records, 1))
    languages = _question_languages(records)
    chosen = [item for item, spoken in zip(numbered, languages, strict=True) if spoken in ("", language)]
    if stated and not chosen:
        there = ", ".join(stated)
        raise DatasetError(f"{path}: there are no questions in {language!r}; there are some in {there}")
    return language, chosen or numbered


def _read_dpr(numbered: Iterable[tuple[int, Record]], corpus: Path) -> EvaluationSet:
    """Questions over a corpus, as DPR, NQ-open and EntityQuestions have them.

    The corpus is a TSV file such as DPR's psgs_w100.tsv, with the columns `id`, `text` and `title`; JSONL with these
    fields; or JSONL as FACTOIDWIKI has it (Chen et al., 2023, and pyserini), with `contents` and, in `metadata`, where
    in it title, section and text stand. Consecutive passages of one title are an article. A question's gold passage is
    the first of its `positive_ctxs`, where the file has them and the corpus has the passage.
    """
    dataset = EvaluationSet()
    places: dict[str, tuple[str, Span]] = {}
    passages = map(_corpus_passage, read_records(corpus))
    for name, article in groupby(passages, key=lambda passage: passage[1] or passage[0]):
        ids, titles, texts = zip(*article, strict=True)
        places |= zip(ids, dataset.add_article(name, titles[0], texts, " "), strict=True)
    for number, record in numbered:
        answers = record.answers()
        if not answers:
            raise record.error("'answers' is missing or has no text in it")
        contexts = record.records("positive_ctxs") if record.fields.get("positive_ctxs") else []
        gold = contexts[0].text("passage_id", "psg_id", default="") if contexts else ""
        question_id = record.text("id", "qid", default=str(number))
        place = places.get(gold, ("", None))
        dataset.questions.append(Question(question_id, record.text("question", "query"), answers, *place))
    return dataset


def _corpus_passage(record: Record) -> tuple[str, str, str]:
    """The id, title and text of a corpus's passage."""
    text = record.text("text", "contents")
    spans = record.fields.get("metadata")
    if not isinstance(spans, dict) or "content_span" not in spans:
        return record.text("id", "_id", "passage_id"), record.text("title", default=""), text
    title = text[slice(*spans.get("title_span", (0, 0)))]
    return record.text("id"), title, text[slice(*spans["content_span"])]


def _read_named(path: Path, records: Sequence[Record]) -> list[Document]:
    """The files that questions in any language name, next to the questions' own file."""
    documents: dict[str, list[Document]] = {}
    for record in records:
        name = _named_document(record).partition("#page=")[0]
        if name and name not in documents:
            if not (path.parent / name).is_file():
                missing = f"there is no document {name!r} in {path.parent}"
                raise record.error(f"{missing}: say where the documents are (documents=, --documents)")
            documents[name] = read_file(path.parent / name, name)
    if not documents:
        expected = "`documents`, their folder or a corpus; or let the questions name their files ('document')"
        raise DatasetError(f"{path}: these are questions alone: pass {expected}")
    return _without_folders(document for name in sorted(documents) for document in documents[name])


def _read_folder(folder: Path, named: Iterable[str], leave_out: Sequence[Path] = ()) -> list[Document]:
    """The documents of a folder; their ids are their paths below it. Data files, as CSV, are read if they are named."""
    root = folder.resolve()
    below = [path for path in leave_out if path.resolve() != root]
    files = find_files([folder], below, indexed={str(root / name): name for name in named})
    documents = _without_folders(read_files(files))
    for error in files.unreadable:
        logger.warning("skipped: %s", error)
    if not documents:
        raise DatasetError(f"{folder}: expected documents in it (text, Markdown, HTML, PDF), and there are none")
    return documents


def _without_folders(documents: Iterable[Document]) -> list[Document]:
    """The same documents wherever their files are: LlamaIndex's strategies embed a file's whole path, and read it."""
    moved = list(documents)
    for document in moved:
        document.metadata["file_path"] = document.id_.partition("#page=")[0]
    return moved


def _as_questions(questions: Iterable[Question | Mapping[str, Any]]) -> list[Question]:
    return [
        question
        if isinstance(question, Question)
        else _own_question(object_record(question, f"question {number}"), number)
        for number, question in enumerate(questions, 1)
    ]


def _own_question(record: Record, number: int) -> Question:
    """A user's own question: `question`; `answers` or `answer`; and, where it is known, `document`, an id.

    The id of a folder's file is the path below it (a page of a PDF: `path#page=N`).
    """
    text = record.text("question", "query")
    return Question(record.text("id", default=str(number)), text, record.answers(), _named_document(record))


def _named_document(record: Record) -> str:
    return record.text("document", "document_id", default="")


def _document(document_id: str, title: str, text: str) -> Document:
    return Document(id_=document_id, text=text, metadata={"title": title} if title else {})


def _file(folder: Path, name: str) -> Path:
    """A file of a folder, plain or gzipped; if there is neither, the plain name."""
    packed = folder / f"{name}.gz"
    return packed if packed.is_file() and not (folder / name).is_file() else folder / name
