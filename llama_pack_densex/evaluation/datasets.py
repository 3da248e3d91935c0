"""Documents with questions about them: read from the formats that datasets are published in, or given by the user."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, count, groupby
from pathlib import Path
from typing import Any

from llama_index.core.schema import Document, MediaResource

from llama_pack_densex.evaluation.records import DatasetError, Record, object_record, read_records
from llama_pack_densex.evaluation.runs import Qrels, read_qrels
from llama_pack_densex.node_parsers.parsers import default_base_parser
from llama_pack_densex.node_parsers.splitting import split as cut
from llama_pack_densex.reading import find_files, read_file, read_files
from llama_pack_densex.text.language import WITHOUT_SPACES, detect_language

__all__ = ["DatasetError", "EvaluationSet", "Question", "Span", "read_dataset", "read_questions", "to_dataset"]

logger = logging.getLogger(__name__)

Span = tuple[int, int]

_GAP = "\n\n"
_LOOKED_AT = 50  # questions, to tell the language
_MEASURED_APART = WITHOUT_SPACES | {"ko"}  # in them an answer may stand within a word
_JQARA_FIELDS = {"q_id", "question", "passage_row_id", "text", "label"}


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
        """Add a document that is made of passages; another one of its name gets a number.

        Returns:
            The document's id, and where in it each passage stands.
        """
        names = chain([name], (f"{name} ({number})" for number in count(2)))
        document_id = next(each for each in names if each not in self.passages)
        ends = accumulate((len(text) + len(gap) for text in texts), initial=0)
        spans = [(start, start + len(text)) for start, text in zip(ends, texts, strict=False)]
        self.documents.append(_document(document_id, title, gap.join(texts)))
        self.passages[document_id] = spans
        return [(document_id, span) for span in spans]

    def passages_of(self, document: Document) -> list[Span]:
        """Where a document's passages stand; one of which none are known is a passage itself."""
        return self.passages.get(document.id_, [(0, len(document.text))])

    def passage_documents(self) -> list[Document]:
        """Each of the dataset's passages as a document of its own, with the article's metadata.

        Its id is `articleid/n`, where `n` counts an article's passages from 0.
        """
        passages = []
        for document in self.documents:
            for number, (start, end) in enumerate(self.passages_of(document)):
                passage = document.model_copy(update={"id_": f"{document.id_}/{number}"})
                passage.metadata = dict(document.metadata)
                passage.text_resource = MediaResource(text=document.text[start:end])
                passages.append(passage)
        return passages


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
    path, given = Path(path), None if documents is None else Path(documents)
    for each in (path, given):
        if each is not None and not each.exists():
            raise FileNotFoundError(f"{each}: there is no such file or folder")
    found = _checked(_read(path, given, split, language or "", leave_out), path, name, language)
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
        found, name = _read(Path(questions), None, "test", language or "", alone=True), Path(questions)
    else:
        found, name = EvaluationSet(questions=_given(questions)), Path("questions")
    found = _checked(found, name, None, language)
    kept = [replace(one, document_id="", span=None, candidates=()) for one in found.questions[:max_questions]]
    return EvaluationSet(found.name, found.language, questions=kept)


def languages_of(path: str | Path) -> list[str]:
    """The languages that a file's questions are in: those that they say, or that their scripts tell, where they differ.

    Raises:
        DatasetError: As `read_dataset`.
        OSError: The file cannot be read.
    """
    path = Path(path)
    return [] if path.is_dir() else sorted({*_languages(list(read_records(path)))} - {""})


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
        return _with_passages(_checked(documents, Path("own documents"), documents.name, language))
    if isinstance(questions, (str, Path)) or (questions is None and isinstance(documents, (str, Path))):
        if not isinstance(documents, (str, Path)):
            raise ValueError("pass the questions about these documents: Question objects or mappings")
        files = (documents,) if questions is None else (questions, documents)
        dataset = read_dataset(*files, language=language)
    else:
        asked = _given(questions or ())
        named = [question.document_id for question in asked]
        texts = _documents_in(Path(documents), named) if isinstance(documents, (str, Path)) else list(documents)
        own = EvaluationSet(documents=texts, questions=asked)
        dataset = _checked(own, Path("own documents"), None, language)
    if not dataset.documents:
        raise ValueError("there are no documents to search")
    return _with_passages(dataset)


def _with_passages(dataset: EvaluationSet) -> EvaluationSet:
    """Where no question has a gold passage, passages are what the pack's own splitter makes of the documents."""
    if any(question.span is not None for question in dataset.questions):
        return dataset
    passages: dict[str, list[Span]] = {}
    parser = default_base_parser()
    for document in dataset.documents:
        cut_here = [] if document.id_ in dataset.passages else cut(document, [parser])
        pieces = [piece.span for piece in cut_here if piece.span is not None]
        passages[document.id_] = pieces or dataset.passages_of(document)
    return replace(dataset, passages=passages)


def _language(found: EvaluationSet, said: str) -> str:
    """The language of a set's questions, which may say it; its documents may be in others.

    Few words in Latin script are taken for English; another such language has to be said.
    """
    texts = [question.text for question in found.questions[:_LOOKED_AT]]
    around = "\n".join(document.text[:2_000] for document in found.documents[:1])
    told = detect_language("\n".join(texts), around)
    language = _code(said) or ("en" if told in ("latin", "") else told)
    others = sum((detect_language(text, around) in _MEASURED_APART) != (language in _MEASURED_APART) for text in texts)
    if others:
        logger.warning(
            "The first %d questions are measured as %r, and %d of them are in another language: ask those apart, or "
            'have their file say which is in what ("language": "ja").',
            len(texts), language, others,
        )  # fmt: skip
    return language


def _checked(found: EvaluationSet, path: Path, name: str | None, language: str | None) -> EvaluationSet:
    """A set with its name and its language, whose ids are told apart."""
    documents = Counter(document.id_ for document in found.documents)
    for what, ids in (("document", documents), ("question", Counter(question.id for question in found.questions))):
        twice = next((item for item, number in ids.items() if number > 1), None)
        if twice is not None:
            raise DatasetError(f"{path}: the {what} id {twice!r} occurs twice")
    if not found.questions:
        raise DatasetError(f"{path}: expected questions with answers, and there are none")
    for question in found.questions if documents else ():
        where = f"{path}, question {question.id}"
        if question.document_id and question.document_id not in documents:
            raise DatasetError(f"{where}: there is no document {question.document_id!r}")
        if not question.answers and not question.document_id and question.id not in found.relevance:
            raise DatasetError(f"{where}: expected 'answers', 'document', or both")
    stem = path.name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem
    return replace(found, name=name or stem, language=_language(found, language or found.language))


def _read(
    path: Path, documents: Path | None, split: str, language: str, leave_out: Sequence[Path] = (), alone: bool = False
) -> EvaluationSet:
    """Read what is there; where questions alone are wanted, those of the user's own are not asked for documents."""

    def with_its_own(found: EvaluationSet) -> EvaluationSet:
        if documents is not None:
            raise DatasetError(f"{path}: this dataset has documents of its own, and {documents} would be left alone")
        return found

    if not path.is_dir():
        records = read_records(path)
    elif _file(path, "corpus.jsonl").exists() and _file(path, "queries.jsonl").exists():
        return with_its_own(_read_beir(path, split))
    else:
        records = chain.from_iterable(map(read_records, sorted(path.glob("*.parquet"))))
    first = next(records, None)
    if first is None:
        in_folder = "BEIR's corpus.jsonl and queries.jsonl in it, or JQaRA's Parquet files"
        raise DatasetError(f"{path}: expected {in_folder if path.is_dir() else 'questions, and it is empty'}")
    fields, records = first.fields.keys(), chain([first], records)
    if "data" in fields:
        return with_its_own(_read_squad(first))
    if fields >= _JQARA_FIELDS:
        return with_its_own(_read_jqara(records))
    if fields >= {"text", "questions"}:
        return with_its_own(_read_passages(records))
    if fields.isdisjoint(("question", "query")):
        expected = "'question'; 'data', as in SQuAD's format; 'text' with 'questions' (a list); or JQaRA's fields"
        raise first.error(f"expected {expected}")
    asked = list(records)
    said, language = sorted({_said(record) for record in asked} - {""}), _code(language)
    if len(said) > 1 and not language:
        raise DatasetError(f"{path}: its questions are in {' and '.join(said)}: say which (language=, --language)")
    language = language or "".join(said)
    numbered = list(enumerate(asked, 1))  # in the file, whatever is left out of it
    meant = [each for each, one in zip(numbered, _languages(asked), strict=True) if one in ("", language)]
    if said and not meant:
        raise DatasetError(f"{path}: there are no questions in {language!r}; there are some in {', '.join(said)}")
    meant = meant or numbered
    if documents is not None and documents.is_file():
        return replace(_read_dpr(meant, documents), language=language)
    questions = [_own_question(record, number) for number, record in meant]
    if alone:
        return EvaluationSet(language=language, questions=questions)
    if documents is None:
        return EvaluationSet(language=language, documents=_documents_named(path, asked), questions=questions)
    # a document is named below the folder, or from the questions' file
    besides = [Path(os.path.relpath(path.parent / one.document_id, documents)).as_posix() for one in questions]
    texts = _documents_in(documents, [*besides, *(one.document_id for one in questions)], leave_out)
    known = {document.id_ for document in texts}
    questions = [
        replace(one, document_id=beside) if beside in known and one.document_id not in known else one
        for one, beside in zip(questions, besides, strict=True)
    ]
    return EvaluationSet(language=language, documents=texts, questions=questions)


def _languages(asked: Sequence[Record]) -> list[str]:
    """What each of a file's questions says that it is in; where none does and scripts are measured otherwise, that."""
    said = [_said(record) for record in asked]
    if any(said) or any(record.fields.keys() >= _JQARA_FIELDS for record in asked[:1]):
        return said
    texts = [record.text("question", "query", default="") for record in asked]
    around = "\n".join(texts[:_LOOKED_AT])
    told = [detect_language(text, around) for text in texts]
    are_two = len({one in _MEASURED_APART for one in told}) > 1
    return [one if one in _MEASURED_APART else "en" for one in told] if are_two else said


def _said(record: Record) -> str:
    return _code(record.text("language", default=""))


def _code(language: str) -> str:
    """The "ja" of "ja-JP", "ja_JP" and "JA", by which it is measured."""
    return language.replace("_", "-").partition("-")[0].lower()


# The formats, a function each. Names, and languages that a format does not imply, are `read_dataset`'s.


def _read_squad(file: Record) -> EvaluationSet:
    """SQuAD or JSQuAD: an article is its paragraphs joined by a blank line; these are the passages.

    Questions that are marked as impossible, or have no answer, are left out. Whether an answer is where `answer_start`
    says is not looked at: JSQuAD has answers that are not in the text word for word, with -1.
    """
    found = EvaluationSet()
    for article in file.records("data"):
        title, paragraphs = article.text("title", default=""), article.records("paragraphs")
        # JSQuAD puts the title before the text
        texts = [paragraph.text("context").removeprefix(f"{title} [SEP] ") for paragraph in paragraphs]
        places = found.add_article(title or f"article {len(found.documents) + 1}", title, texts)
        for paragraph, (document_id, span) in zip(paragraphs, places, strict=True):
            for number, asked in enumerate(paragraph.records("qas")):
                given = [] if asked.fields.get("is_impossible") else asked.records("answers")
                if answers := tuple(dict.fromkeys(answer.text("text") for answer in given)):
                    question_id = asked.text("id", default=f"{document_id}/{span[0]}/{number}")
                    found.questions.append(Question(question_id, asked.text("question"), answers, document_id, span))
    return found


def _read_passages(records: Iterable[Record]) -> EvaluationSet:
    """Passages, each with the questions that it answers: `text`, `questions` and, where it has one, `title`.

    A question's gold passage is the one that it was written for. The passages of one title, in the order of the file,
    make one document, as a SQuAD article's paragraphs do: figures can so be compared with those on a SQuAD file of the
    same passages. A passage without a title is a document. There are no answers, and no metrics of answers.
    """
    articles: dict[tuple[str, str], list[Record]] = {}
    for number, record in enumerate(records, 1):
        title = record.text("title", default="")
        articles.setdefault((title or f"passage {number}", title), []).append(record)
    found = EvaluationSet()
    for (name, title), passages in articles.items():
        places = found.add_article(name, title, [passage.text("text") for passage in passages])
        for number, (passage, place) in enumerate(zip(passages, places, strict=True)):
            found.questions.extend(
                Question(f"{name}/{number}/{asked}", text, (), *place)
                for asked, text in enumerate(passage.texts("questions"))
            )
    return found


def _read_beir(folder: Path, split: str) -> EvaluationSet:
    """A BEIR folder: a document is a passage; the questions are those that the split has labels for."""
    labels_of = {file.stem: file for file in sorted((folder / "qrels").glob("*.tsv"))}
    if split not in labels_of:
        there = f"the splits that are there: {', '.join(labels_of) or 'none'}"
        raise DatasetError(f"{folder / 'qrels'}: expected the labels of the split {split!r} here; {there}")
    found = EvaluationSet(relevance=read_qrels(labels_of[split]))
    for record in read_records(_file(folder, "corpus.jsonl")):
        found.documents.append(_document(*_passage(record)))
    labelled = {document for labels in found.relevance.values() for document in labels}
    if lost := sorted(labelled - {document.id_ for document in found.documents}):
        raise DatasetError(f"{folder}: there are labels for the document {lost[0]}, which corpus.jsonl lacks")
    asked = {record.text("_id", "id"): record for record in read_records(_file(folder, "queries.jsonl"))}
    for question, labels in found.relevance.items():
        if question not in asked:
            raise DatasetError(f"{folder}: there are labels for the question {question}, which queries.jsonl lacks")
        best = max(labels, key=labels.__getitem__)
        text, answers = asked[question].text("text"), asked[question].texts("answers", "answer")
        found.questions.append(Question(question, text, answers, best if labels[best] > 0 else ""))
    return found


def _read_jqara(records: Iterable[Record]) -> EvaluationSet:
    """JQaRA's rows as Hugging Face has them (hotchpotch/JQaRA): a question with one of its 100 candidates a row.

    A candidate passage is a document; one that several questions share is there once.
    """
    documents: dict[str, Document] = {}
    rows: dict[str, dict[str, Record]] = {}
    for record in records:
        passage = record.text("passage_row_id")
        if passage not in documents:
            documents[passage] = _document(passage, record.text("title", default=""), record.text("text"))
        rows.setdefault(record.text("q_id"), {})[passage] = record
        if record.fields.get("label") not in (0, 1):
            raise record.error(f"label is {record.fields.get('label')!r}, and 0 or 1 is expected")
    found = EvaluationSet(language="ja", documents=list(documents.values()))
    for question, candidates in rows.items():
        relevant = {passage: 1 for passage, record in candidates.items() if record.fields["label"]}
        if relevant:
            found.relevance[question] = relevant
        first, gold = next(iter(candidates.values())), next(iter(relevant), "")
        asked, answers = first.text("question"), first.texts("answers", "answer")
        found.questions.append(Question(question, asked, answers, gold, candidates=tuple(candidates)))
    return found


def _read_dpr(numbered: Iterable[tuple[int, Record]], corpus: Path) -> EvaluationSet:
    """Questions over a corpus, as DPR, NQ-open and EntityQuestions have them.

    The corpus is a TSV file such as DPR's psgs_w100.tsv, with the columns `id`, `text` and `title`; JSONL with these
    fields; or JSONL as FACTOIDWIKI has it (Chen et al., 2023, and pyserini), with `contents` and, in `metadata`, where
    in it title, section and text stand. Consecutive passages of one title are an article. A question's gold passage is
    the first of its `positive_ctxs`, where the file has them and the corpus has the passage.
    """
    found = EvaluationSet()
    places: dict[str, tuple[str, Span]] = {}
    passages = map(_passage, read_records(corpus))
    for name, article in groupby(passages, key=lambda passage: passage[1] or passage[0]):
        ids, titles, texts = zip(*article, strict=True)
        places |= zip(ids, found.add_article(name, titles[0], texts, " "), strict=True)
    for number, record in numbered:
        answers = record.answers()
        if not answers:
            raise record.error("'answers' is missing or has no text in it")
        contexts = record.records("positive_ctxs") if record.fields.get("positive_ctxs") else []
        gold = contexts[0].text("passage_id", "psg_id", default="") if contexts else ""
        question_id = record.text("id", "qid", default=str(number))
        place = places.get(gold, ("", None))
        found.questions.append(Question(question_id, record.text("question", "query"), answers, *place))
    return found


def _passage(record: Record) -> tuple[str, str, str]:
    """The id, title and text of a corpus's passage."""
    text, spans = record.text("text", "contents"), record.fields.get("metadata")
    if not isinstance(spans, dict) or "content_span" not in spans:
        return record.text("id", "_id", "passage_id"), record.text("title", default=""), text
    title, content = (text[slice(*spans.get(name, (0, 0)))] for name in ("title_span", "content_span"))
    return record.text("id"), title, content


def _documents_named(path: Path, asked: Sequence[Record]) -> list[Document]:
    """The files that questions in any language name, beside the questions' own file."""
    documents: dict[str, list[Document]] = {}
    for record in asked:
        name = _named(record).partition("#page=")[0]
        if name and name not in documents:
            if not (path.parent / name).is_file():
                missing = f"there is no document {name!r} in {path.parent}"
                raise record.error(f"{missing}: say where the documents are (documents=, --documents)")
            documents[name] = read_file(path.parent / name, name)
    if not documents:
        what = "`documents`, their folder or a corpus; or let the questions name their files ('document')"
        raise DatasetError(f"{path}: these are questions alone: pass {what}")
    return _anywhere(document for name in sorted(documents) for document in documents[name])


def _given(questions: Iterable[Question | Mapping[str, Any]]) -> list[Question]:
    return [
        one if isinstance(one, Question) else _own_question(object_record(one, f"question {number}"), number)
        for number, one in enumerate(questions, 1)
    ]


def _own_question(record: Record, number: int) -> Question:
    """A user's own question: `question`; `answers` or `answer`; and, where it is known, `document`, an id.

    The id of a folder's file is the path below it (a page of a PDF: `path#page=N`).
    """
    text = record.text("question", "query")
    return Question(record.text("id", default=str(number)), text, record.answers(), _named(record))


def _named(record: Record) -> str:
    return record.text("document", "document_id", default="")


def _documents_in(folder: Path, named: Iterable[str], leave_out: Sequence[Path] = ()) -> list[Document]:
    """The documents of a folder; their ids are their paths below it. Data, as CSV, are read where they are named."""
    root = folder.resolve()
    below = [one for one in leave_out if one.resolve() != root]
    found = find_files([folder], below, indexed={str(root / name): name for name in named})
    documents = _anywhere(read_files(found))
    for wrong in found.unreadable:
        logger.warning("skipped: %s", wrong)
    if not documents:
        raise DatasetError(f"{folder}: expected documents in it (text, Markdown, HTML, PDF), and there are none")
    return documents


def _anywhere(documents: Iterable[Document]) -> list[Document]:
    """The same documents wherever their files are: LlamaIndex's strategies embed a file's whole path, and read it."""
    made = list(documents)
    for document in made:
        document.metadata["file_path"] = document.id_.partition("#page=")[0]
    return made


def _document(document_id: str, title: str, text: str) -> Document:
    return Document(id_=document_id, text=text, metadata={"title": title} if title else {})


def _file(folder: Path, name: str) -> Path:
    """A file of a folder, packed or not; where there is neither, the name of the one that is not packed."""
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), folder / name)
