"""Datasets of questions with known answers, read from files in the formats that they are published in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from llama_pack_densex.evaluation.data import EvaluationSet
from llama_pack_densex.evaluation.readers import beir, dpr, jqara, llama_datasets, own, squad
from llama_pack_densex.evaluation.readers.records import (
    DatasetError,
    Record,
    ending,
    open_text,
    read_json,
    read_records,
)
from llama_pack_densex.propositionizers.language import detect_language

__all__ = ["DatasetError", "read_dataset"]

_LOOKED_AT = 50  # questions, to tell the language


def read_dataset(
    path: str | Path,
    documents: str | Path | None = None,
    *,
    name: str | None = None,
    language: str | None = None,
    split: str = "test",
    max_questions: int | None = None,
    max_documents: int | None = None,
) -> EvaluationSet:
    """Read a dataset; its format is seen from its content.

    | format | path | documents |
    |---|---|---|
    | SQuAD, JSQuAD | the JSON file | |
    | BEIR | the folder with corpus.jsonl, queries.jsonl and qrels | |
    | JQaRA | its Hugging Face rows, Parquet or JSONL (or a folder of Parquet files) | |
    | DPR, NQ-open, EntityQuestions | questions in JSON, JSONL, CSV or TSV | the corpus, as psgs_w100.tsv |
    | the user's own | questions in JSON, JSONL, CSV or TSV | the folder of the documents |
    | LlamaIndex `LabelledRagDataset` | what `save_json` wrote | the folder of its sources, or nothing |
    | LlamaIndex `EmbeddingQAFinetuneDataset` | what `save_json` wrote | |

    Args:
        path: The dataset, or its questions.
        documents: What the questions are about, where it is not in the dataset.
        name: What reports call the set. Default: the file's or folder's name.
        language: "en", "ja", ... Default: told from the questions.
        split: Of a BEIR folder.
        max_questions: Keep the first so many.
        max_documents: Of a BEIR folder or a DPR corpus, read so many (see `read_beir`, `read_dpr`).

    Raises:
        DatasetError: It is in none of these formats, or damaged; the message names the file, the line or item, and what
            is expected.
        OSError: A file cannot be read.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file or folder")
    given = Path(documents) if documents is not None else None
    if given is not None and not given.exists():
        raise FileNotFoundError(f"{given}: there is no such file or folder")
    found = _read(path, given, split, max_documents, name or _stem(path), language or "")
    _check_ids(found, path)
    if not language and not found.language:
        found = replace(found, language=_language(found))
    if max_questions is not None:
        kept = found.questions[:max_questions]
        relevance = {question.id: found.relevance[question.id] for question in kept if question.id in found.relevance}
        found = replace(found, questions=kept, relevance=relevance)
    return found


def _read(
    path: Path, documents: Path | None, split: str, max_documents: int | None, name: str, language: str
) -> EvaluationSet:
    if path.is_dir():
        if beir.is_beir(path):
            return beir.read_beir(path, name, language, split, max_documents)
        files = sorted(path.glob("*.parquet"))
        if not files:
            raise DatasetError(
                f"{path}: expected BEIR's corpus.jsonl and queries.jsonl in it, or Parquet files with JQaRA's rows"
            )
        return jqara.read_jqara(chain.from_iterable(map(read_records, files)), name, language or "ja")
    if ending(path) == ".json" and _begins_with(path, "{"):
        return _read_object(path, documents, name, language)
    if ending(path) in (".csv", ".tsv") and not dpr.has_header(path):
        return _read_questions(path, documents, name, language, max_documents)
    records = read_records(path)
    first = next(records, None)
    if first is None:
        raise DatasetError(f"{path}: expected questions, and it is empty")
    if all(field in first.fields for field in jqara.FIELDS):
        return jqara.read_jqara(chain([first], records), name, language or "ja")
    if "question" not in first.fields and "query" not in first.fields:
        raise first.error(f"expected 'question', or JQaRA's {', '.join(jqara.FIELDS)}")
    return _read_questions(path, documents, name, language, max_documents)


def _read_object(path: Path, documents: Path | None, name: str, language: str) -> EvaluationSet:
    content = read_json(path)
    if "data" in content:
        return squad.read_squad(path, content, name, language)
    if "examples" in content:
        return llama_datasets.read_labelled_rag(path, content, documents, name, language)
    if "corpus" in content:
        return llama_datasets.read_embedding_qa(path, content, name, language)
    raise DatasetError(
        f"{path}: expected 'data' (SQuAD), 'examples' (LabelledRagDataset) or 'corpus' and 'queries' "
        "(EmbeddingQAFinetuneDataset)"
    )


def _read_questions(
    path: Path, documents: Path | None, name: str, language: str, max_documents: int | None
) -> EvaluationSet:
    if documents is None:
        raise DatasetError(
            f"{path}: these are questions alone: pass `documents`, a folder of documents or a corpus such as "
            "psgs_w100.tsv"
        )
    if documents.is_file():
        return dpr.read_dpr(path, documents, name, language, max_documents)
    return own.read_own(dpr.read_questions(path), documents, name, language or _only_language(path))


def _only_language(path: Path) -> str:
    """The language that all records with one are in; told from the questions where none says."""
    said = {record.text("language", default="") for record in dpr.read_questions(path)} - {""}
    if len(said) > 1:
        raise DatasetError(f"{path}: its questions are in {' and '.join(sorted(said))}: pass `language`")
    return said.pop() if said else _told(islice(dpr.read_questions(path), _LOOKED_AT))


def _told(records: Iterable[Record]) -> str:
    return _code(detect_language("\n".join(record.text("question", "query") for record in records)))


def _language(found: EvaluationSet) -> str:
    sample = [question.text for question in found.questions[:_LOOKED_AT]]
    sample += [document.text[:2_000] for document in found.documents[:1]]
    return _code(detect_language("\n".join(sample)))


def _code(language: str) -> str:
    """Few words in Latin script are taken for English; a set in another such language has to say so."""
    return "en" if language in ("latin", "") else language


def _check_ids(found: EvaluationSet, path: Path) -> None:
    for what, ids in (
        ("document", [document.id_ for document in found.documents]),
        ("question", [question.id for question in found.questions]),
    ):
        seen: set[str] = set()
        for item in ids:
            if item in seen:
                raise DatasetError(f"{path}: the {what} id {item!r} occurs twice")
            seen.add(item)
    if not found.questions:
        raise DatasetError(f"{path}: expected questions with answers, and there are none")


def _begins_with(path: Path, character: str) -> bool:
    with open_text(path) as stream:
        return stream.read(4096).lstrip().startswith(character)


def _stem(path: Path) -> str:
    return path.name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem
