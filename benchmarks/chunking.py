"""Chroma's chunking evaluation: how much of the text that answers a question is in what is found.

usage: python benchmarks/chunking.py FOLDER [--embed-model minilm]

FOLDER is `chunking_evaluation/evaluation_framework/general_evaluation_data` of
https://github.com/brandonstarxel/chunking_evaluation (Smith and Troynikov, "Evaluating Chunking
Strategies for Retrieval", Chroma, 2024): a speech, Wikipedia articles, chats, annual reports and biomedical
articles in one index, and 472 questions, each with the spans that answer it.

The pack makes sentences, without an LLM. LlamaIndex's sentence splitter makes chunks, which are searched by
their embeddings, and by embeddings and BM25 fused by reciprocal rank (llama-index-retrievers-bm25). For each,
the output is the share of a question's spans that is in the first five results, the length of these in
characters, the share in the first 1,000 and 2,000 characters of the results, and the share in the context
that an LLM reads by default (four results, 500 words). Annual reports repeat whole pages, so two thirds of
their spans occur more than once; a copy of a span counts as the span.

Figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import NodeWithScore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_pack_densex import DenseXRetrievalPack, PropositionContextPostprocessor
from llama_pack_densex.evaluation.models import CachedEmbedding
from llama_pack_densex.models import resolve_embed_model

CHUNK_SIZES = (128, 200, 400)
RESULTS = 20
FIRST_RESULTS = 5
FIRST_CHARACTERS = (1_000, 2_000)
PASSAGES_READ = 4
_LEAST_RUN = 20  # characters: shorter runs that a span shares with a context may be chance

Retrieve = Callable[[str], list[NodeWithScore]]


@dataclass(frozen=True)
class Question:
    """A question and the texts of its document that answer it."""

    text: str
    document_id: str
    references: Sequence[str]


def read_folder(folder: Path) -> tuple[list[Document], list[Question]]:
    """Read the corpora and the questions."""
    documents = [
        Document(id_=file.stem, text=file.read_text(encoding="utf-8"))
        for file in sorted((folder / "corpora").glob("*.md"))
    ]
    questions = []
    with (folder / "questions_df.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            references = [reference["content"] for reference in json.loads(row["references"])]
            questions.append(Question(row["question"], row["corpus_id"], references))
    return documents, questions


def places_of(text: str, document: str) -> list[int]:
    """Return where a text occurs in a document."""
    places = []
    place = document.find(text)
    while place >= 0:
        places.append(place)
        place = document.find(text, place + 1)
    return places


def share_in_spans(question: Question, document: str, spans: Sequence[tuple[int, int]]) -> float:
    """Return the share of a question's references that lies in some spans of its document."""
    covered = 0
    for reference in question.references:
        characters: set[int] = set()
        for place in places_of(reference, document):
            for start, end in spans:
                first = max(start - place, 0)
                characters.update(range(first, min(end - place, len(reference))))
        covered += len(characters)
    return covered / sum(map(len, question.references))


def share_in_text(question: Question, text: str) -> float:
    """Return the share of a question's references that is in a text, in runs of at least `_LEAST_RUN`."""
    text = " ".join(text.split())
    covered = 0
    total = 0
    for reference in question.references:
        reference = " ".join(reference.split())
        run = min(_LEAST_RUN, len(reference))
        characters: set[int] = set()
        for start in range(len(reference) - run + 1):
            if reference[start : start + run] in text:
                characters.update(range(start, start + run))
        covered += len(characters)
        total += len(reference)
    return covered / total


def first_characters(nodes: Sequence[NodeWithScore], length: int) -> list[tuple[str, int, int]]:
    """Return the document and span of each result, cut off after some characters in all."""
    spans = []
    for result in nodes:
        node: Any = result.node  # a text node
        end = min(node.end_char_idx, node.start_char_idx + length)
        spans.append((node.ref_doc_id, node.start_char_idx, end))
        length -= end - node.start_char_idx
        if length <= 0:
            break
    return spans


def measure(
    name: str, retrieve: Retrieve, documents: dict[str, str], questions: Sequence[Question]
) -> None:
    """Print a line for all questions, and one for each corpus."""
    rows: defaultdict[str, list[list[float]]] = defaultdict(list)
    for question in questions:
        document = documents[question.document_id]
        results = retrieve(question.text)
        first = results[:FIRST_RESULTS]
        lengths = [sum(len(result.node.get_content()) for result in first), *FIRST_CHARACTERS]
        row = [float(lengths[0])]
        for length in lengths:
            spans = [
                (start, end)
                for document_id, start, end in first_characters(results, length)
                if document_id == question.document_id
            ]
            row.append(share_in_spans(question, document, spans))
        context = PropositionContextPostprocessor().postprocess_nodes(results[:PASSAGES_READ])
        text = "\n".join(node.node.get_content() for node in context)
        row.append(share_in_text(question, text))
        rows["all"].append(row)
        rows[question.document_id].append(row)
    for corpus, values in rows.items():
        mean_length, *shares = (fmean(column) for column in zip(*values, strict=True))
        figures = "  ".join(f"{share:.3f}" for share in shares)
        print(f"{name:24} {corpus:20} {len(values):4}  {mean_length:6.0f}  {figures}", flush=True)


def chunk_retrievers(
    documents: Sequence[Document], size: int, model: BaseEmbedding
) -> dict[str, BaseRetriever]:
    """Return LlamaIndex's retrievers over chunks of some tokens, without overlap, by name."""
    splitter = SentenceSplitter(chunk_size=size, chunk_overlap=0)
    nodes = splitter.get_nodes_from_documents(documents)
    index = VectorStoreIndex(nodes, embed_model=model)
    vectors = index.as_retriever(similarity_top_k=RESULTS)
    keywords = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=RESULTS)
    hybrid = QueryFusionRetriever(
        [vectors, keywords],
        llm=MockLLM(),  # required, though it generates no further queries
        mode=FUSION_MODES.RECIPROCAL_RANK,
        similarity_top_k=RESULTS,
        num_queries=1,
        use_async=False,
    )
    return {f"vector-{size}": vectors, f"hybrid-{size}": hybrid}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--embed-model", default="minilm")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    documents, questions = read_folder(options.folder)
    texts = {document.id_: document.text for document in documents}
    model, _ = resolve_embed_model(options.embed_model)
    assert model is not None, "this compares searches by embeddings"
    cached = CachedEmbedding(model)
    cached.embed_queries([question.text for question in questions])
    print("strategy, corpus, questions; length and share in 5 results; share in", end=" ")
    print(*FIRST_CHARACTERS, "characters; share in the context")
    pack = DenseXRetrievalPack(
        documents,
        proposition_llm="none",
        query_llm="none",
        embed_model=cached,
        similarity_top_k=RESULTS,
    )
    measure("densex-sentences", pack.retrieve, texts, questions)
    for size in CHUNK_SIZES:
        for name, retriever in chunk_retrievers(documents, size, cached).items():
            measure(name, retriever.retrieve, texts, questions)


if __name__ == "__main__":
    main()
