"""LlamaIndex's `LabelledRagDataset` and `EmbeddingQAFinetuneDataset`, as their `save_json` writes them.

The files are read without LlamaIndex's own classes: llama-index-core 0.14.21 and later no longer have them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.data import EvaluationSet, Question, Span
from llama_pack_densex.evaluation.readers.own import read_documents
from llama_pack_densex.evaluation.readers.records import DatasetError, Record


def read_labelled_rag(path: Path, content: Any, folder: Path | None, name: str, language: str) -> EvaluationSet:
    """Read a `LabelledRagDataset`.

    Args:
        path: Where it was read, for errors.
        content: The file's JSON: `examples`, each with `query`, `reference_answer` and `reference_contexts`.
        folder: The documents that it was made of. A question's gold passage is its first reference context, where that
            stands in one of them word for word. Without a folder, each reference context is a document.
        name: What the set is called.
        language: Its language.

    Raises:
        DatasetError: It is not in this format.
    """
    examples = content["examples"]
    if not isinstance(examples, list):
        raise DatasetError(f"{path}: examples must be a list, as LabelledRagDataset.save_json writes it")
    records = [_record(example, f"{path}, examples[{number}]") for number, example in enumerate(examples)]
    contexts = {context: None for record in records for context in record.texts("reference_contexts")}
    if folder is not None:
        documents = read_documents(folder)
    else:
        documents = [Document(id_=f"context {number}", text=text) for number, text in enumerate(contexts, 1)]
    places = {context: _find(context, documents) for context in contexts}
    questions: list[Question] = []
    relevance: dict[str, dict[str, int]] = {}
    for number, record in enumerate(records, 1):
        found = [place for context in record.texts("reference_contexts") if (place := places[context])]
        document, span = found[0] if found else ("", None)
        questions.append(Question(str(number), record.text("query"), record.texts("reference_answer"), document, span))
        if found:
            relevance[str(number)] = {place: 1 for place, _ in found}
    passages = {document.id_: [(0, len(document.text))] for document in documents}
    return EvaluationSet(name, language, documents, questions, passages, relevance)


def read_embedding_qa(path: Path, content: Any, name: str, language: str) -> EvaluationSet:
    """Read an `EmbeddingQAFinetuneDataset`; a text of its corpus is a document.

    Args:
        path: Where it was read, for errors.
        content: The file's JSON: `queries`, `corpus` and `relevant_docs`.
        name: What the set is called.
        language: Its language.

    Raises:
        DatasetError: It is not in this format.
    """
    parts = {part: content.get(part) for part in ("queries", "corpus", "relevant_docs")}
    for part, value in parts.items():
        if not isinstance(value, dict):
            raise DatasetError(f"{path}: {part} must be an object, as EmbeddingQAFinetuneDataset.save_json writes it")
    corpus = _record(parts["corpus"], f"{path}, corpus")
    queries = _record(parts["queries"], f"{path}, queries")
    relevant = _record(parts["relevant_docs"], f"{path}, relevant_docs")
    documents = [Document(id_=document, text=corpus.text(document)) for document in corpus.fields]
    relevance: dict[str, dict[str, int]] = {}
    questions: list[Question] = []
    for question in queries.fields:
        labelled = relevant.texts(question)
        unknown = next((document for document in labelled if document not in corpus.fields), None)
        if unknown is not None:
            raise relevant.error(f"the question {question} has the document {unknown}, which is not in the corpus")
        if labelled:
            relevance[question] = dict.fromkeys(labelled, 1)
        questions.append(Question(question, queries.text(question), (), labelled[0] if labelled else ""))
    passages = {document.id_: [(0, len(document.text))] for document in documents}
    return EvaluationSet(name, language, documents, questions, passages, relevance)


def _record(value: object, where: str) -> Record:
    if not isinstance(value, dict):
        raise DatasetError(f"{where}: expected a JSON object")
    return Record(value, where)


def _find(context: str, documents: list[Document]) -> tuple[str, Span] | None:
    for document in documents:
        start = document.text.find(context)
        if start >= 0:
            return document.id_, (start, start + len(context))
    return None
