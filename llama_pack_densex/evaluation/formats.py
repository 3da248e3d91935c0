"""Readers of published dataset formats, one function each; `read_dataset` adds names and languages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from llama_pack_densex.evaluation.evaluation_set import EvaluationSet, Question, Span, make_document
from llama_pack_densex.evaluation.records import DatasetError, Record, read_records
from llama_pack_densex.evaluation.runs import read_qrels


def read_squad(records: Sequence[Record]) -> EvaluationSet:
    """Read SQuAD or JSQuAD: an article's paragraphs, joined by blank lines, are its passages.

    Questions that are marked as impossible, or have no answer, are left out. `answer_start` is not checked:
    JSQuAD has answers that do not occur verbatim in the text, with -1.
    """
    dataset = EvaluationSet()
    for article in records[0].records("data"):
        title = article.title
        paragraphs = article.records("paragraphs")
        # JSQuAD puts the title before the text
        texts = [
            paragraph.text("context").removeprefix(f"{title} [SEP] ") for paragraph in paragraphs
        ]
        places = dataset.add_article(title or f"article {len(dataset.documents) + 1}", title, texts)
        for paragraph, place in zip(paragraphs, places, strict=True):
            dataset.questions.extend(_squad_questions(paragraph, *place))
    return dataset


def _squad_questions(paragraph: Record, document_id: str, span: Span) -> Iterator[Question]:
    for number, item in enumerate(paragraph.records("qas")):
        if item.fields.get("is_impossible"):
            continue
        answers = dict.fromkeys(answer.text("text") for answer in item.records("answers"))
        if answers:
            question_id = item.text("id", default=f"{document_id}/{span[0]}/{number}")
            yield Question(question_id, item.text("question"), tuple(answers), document_id, span)


def read_passages(records: Sequence[Record]) -> EvaluationSet:
    """Read passages, each with the questions that it answers: `text`, `questions` and an optional `title`.

    A question's gold passage is the one that it was written for. Passages with the same title, in the order
    of the file, make up one document, as a SQuAD article's paragraphs do; so figures compare with those on a
    SQuAD file of the same passages. A passage without a title is a document of its own. There are no answers,
    so there are no metrics of answers.
    """
    articles: dict[tuple[str, str], list[Record]] = {}
    for number, record in enumerate(records, 1):
        title = record.title
        articles.setdefault((title or f"passage {number}", title), []).append(record)
    dataset = EvaluationSet()
    for (name, title), passages in articles.items():
        places = dataset.add_article(name, title, [passage.text("text") for passage in passages])
        for number, (passage, place) in enumerate(zip(passages, places, strict=True)):
            for position, text in enumerate(passage.texts("questions")):
                dataset.questions.append(Question(f"{name}/{number}/{position}", text, (), *place))
    return dataset


def read_jqara(records: Sequence[Record]) -> EvaluationSet:
    """Read JQaRA's rows as on Hugging Face (hotchpotch/JQaRA): a question and one of its 100 candidates each.

    A candidate passage is a document; a passage that several questions share is added once.
    """
    documents = {}
    rows_of: dict[str, list[Record]] = {}
    for record in records:
        if record.fields["label"] not in (0, 1):
            raise record.error(f"label is {record.fields['label']!r}, but 0 or 1 is expected")
        passage = record.text("passage_row_id")
        if passage not in documents:
            documents[passage] = make_document(passage, record.title, record.text("text"))
        rows_of.setdefault(record.text("q_id"), []).append(record)
    dataset = EvaluationSet(language="ja", documents=list(documents.values()))
    for question, rows in rows_of.items():
        labels = {row.text("passage_row_id"): row.fields["label"] for row in rows}
        if any(labels.values()):
            dataset.relevance[question] = {passage: 1 for passage, label in labels.items() if label}
        dataset.questions.append(_labelled_question(question, rows[0], labels, tuple(labels)))
    return dataset


def is_beir(folder: Path) -> bool:
    """Return whether a folder is in BEIR's format."""
    return all(_file(folder, name).exists() for name in ("corpus.jsonl", "queries.jsonl"))


def read_beir(folder: Path, split: str) -> EvaluationSet:
    """Read a BEIR folder: each document is a passage; questions are those with labels in the split."""
    qrels = folder / "qrels"
    labels_of = {file.stem: file for file in sorted(qrels.glob("*.tsv"))}
    if split not in labels_of:
        raise DatasetError(
            f"{qrels}: expected the labels of the split {split!r} here; available "
            f"splits: {', '.join(labels_of) or 'none'}"
        )
    relevance = read_qrels(labels_of[split])
    dataset = EvaluationSet(relevance=relevance)
    for record in read_records(_file(folder, "corpus.jsonl")):
        dataset.documents.append(make_document(*_corpus_passage(record)))
    queries = {
        record.text("_id", "id"): record for record in read_records(_file(folder, "queries.jsonl"))
    }
    for question, labels in relevance.items():
        if question not in queries:
            raise DatasetError(
                f"{folder}: there are labels for the question {question}, which queries.jsonl lacks"
            )
        dataset.questions.append(_labelled_question(question, queries[question], labels))
    return dataset


def _labelled_question(
    question: str, record: Record, labels: Mapping[str, int], candidates: tuple[str, ...] = ()
) -> Question:
    """Make a question; its document is the first one with the highest label, if that is above 0."""
    gold = max(labels, key=labels.__getitem__)
    if labels[gold] <= 0:
        gold = ""
    answers = record.texts("answers", "answer")
    return Question(question, record.text("question", "text"), answers, gold, candidates=candidates)


def read_multihop(records: Iterable[Record], corpus: Iterable[Record] = ()) -> EvaluationSet:
    """Read questions that need several passages, as in MuSiQue and HotpotQA; those passages are labelled.

    A question comes with its passages: MuSiQue's `paragraphs` (`title`, `paragraph_text`, `is_supporting`),
    or HotpotQA's `context` (titles with their sentences) and `supporting_facts`, as published or as on
    Hugging Face. Or it comes with the supporting passages only (`supporting`: `title`, `text`), and the
    others are in `corpus`. All passages are searched; each is a document with its title as a heading.
    Questions that are marked as unanswerable are left out.

    Args:
        records: The questions.
        corpus: Further passages, with `title` and `text`.
    """
    dataset = EvaluationSet()
    ids: dict[tuple[str, str], str] = {}
    for passage in corpus:
        _add_passage(dataset, ids, passage.title, passage.text("text"))
    for number, record in enumerate(records, 1):
        if record.fields.get("answerable") is False:
            continue
        supporting = {}
        for title, text, is_supporting in _passages_of(record):
            document_id = _add_passage(dataset, ids, title, text)
            if is_supporting:
                supporting[document_id] = 1
        if not supporting:
            raise record.error("no passage is marked as supporting the answer")
        question = record.text("id", "_id", default=str(number))
        answers = (*record.texts("answers", "answer"), *record.texts("answer_aliases"))
        dataset.relevance[question] = supporting
        dataset.questions.append(
            Question(question, record.text("question"), answers, next(iter(supporting)))
        )
    return dataset


def _add_passage(
    dataset: EvaluationSet, ids: dict[tuple[str, str], str], title: str, text: str
) -> str:
    """Return the id of a passage's document; the document is added if it is new."""
    if (title, text) not in ids:
        ids[title, text] = f"passage {len(ids) + 1}"
        content = text
        if title:
            content = f"# {title}\n\n{text}"
        dataset.documents.append(make_document(ids[title, text], title, content))
    return ids[title, text]


def _passages_of(record: Record) -> list[tuple[str, str, bool]]:
    """Return each of a question's passages: title, text, and whether it supports the answer."""
    passages = []
    if "paragraphs" in record.fields:
        for paragraph in record.records("paragraphs"):
            text = paragraph.text("paragraph_text", "text")
            passages.append((paragraph.title, text, bool(paragraph.fields.get("is_supporting"))))
        return passages
    if "supporting" in record.fields:
        for passage in record.records("supporting"):
            passages.append((passage.title, passage.text("text"), True))
        return passages
    context = record.fields["context"]
    facts = record.fields["supporting_facts"]
    try:
        # mappings are as on Hugging Face, lists as published
        if isinstance(context, Mapping):
            context = zip(context["title"], context["sentences"], strict=True)
        supporting = facts["title"] if isinstance(facts, Mapping) else [fact for fact, _ in facts]
        for title, sentences in context:
            passages.append((title, "".join(sentences).strip(), title in supporting))
    except (KeyError, TypeError, ValueError):
        raise record.error("'context' and 'supporting_facts' are not as in HotpotQA") from None
    return passages


JQARA_FIELDS = {"q_id", "question", "passage_row_id", "text", "label"}
FORMATS: Sequence[tuple[set[str], Callable[[Sequence[Record]], EvaluationSet]]] = (
    ({"data"}, read_squad),
    (JQARA_FIELDS, read_jqara),
    ({"text", "questions"}, read_passages),
    ({"question", "paragraphs"}, read_multihop),
    ({"question", "context", "supporting_facts"}, read_multihop),
)
"""The fields by which each format is recognised, and its reader."""


def read_dpr(numbered: Iterable[tuple[int, Record]], corpus: Path) -> EvaluationSet:
    """Read questions about a corpus, as DPR, NQ-open and EntityQuestions have them.

    The corpus is a TSV file such as DPR's psgs_w100.tsv, with the columns `id`, `text` and `title`; JSONL
    with these fields; or JSONL in the format of FACTOIDWIKI (Chen et al., 2023, and pyserini), with
    `contents` and, in `metadata`, the spans of title, section and text in it. Consecutive passages with the
    same title are an article. A question's gold passage is the first of its `positive_ctxs`, if the file has
    them and the corpus has the passage.
    """
    dataset = EvaluationSet()
    places: dict[str, tuple[str, Span]] = {}
    passages = map(_corpus_passage, read_records(corpus))
    for name, article in groupby(passages, key=lambda passage: passage[1] or passage[0]):
        ids, titles, texts = zip(*article, strict=True)
        article_places = dataset.add_article(name, titles[0], texts, " ")
        places |= zip(ids, article_places, strict=True)
    for number, record in numbered:
        answers = record.answers()
        if not answers:
            raise record.error("'answers' is missing or has no text in it")
        gold = ""
        if record.fields.get("positive_ctxs"):
            first = record.records("positive_ctxs")[0]
            gold = first.text("passage_id", "psg_id", default="")
        question_id = record.text("id", "qid", default=str(number))
        question = record.text("question", "query")
        place = places.get(gold, ("", None))
        dataset.questions.append(Question(question_id, question, answers, *place))
    return dataset


def _corpus_passage(record: Record) -> tuple[str, str, str]:
    """Return the id, title and text of a passage of the corpus."""
    text = record.text("text", "contents")
    spans = record.fields.get("metadata")
    if not isinstance(spans, dict) or "content_span" not in spans:
        return (record.text("id", "_id", "passage_id"), record.title, text)
    title = text[slice(*spans.get("title_span", (0, 0)))]
    return record.text("id"), title, text[slice(*spans["content_span"])]


def _file(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder, plain or gzipped; the plain one if there is neither."""
    plain = folder / name
    packed = folder / f"{name}.gz"
    if packed.is_file() and not plain.is_file():
        return packed
    return plain
