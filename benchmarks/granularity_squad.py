"""Recall@k of passages by granularity, with and without BM25, through node parser and recursive retriever.

usage: python benchmarks/granularity_squad.py SQUAD_JSON PROPOSITIONS_JSONL [--embed-model minilm]

Each passage of the SQuAD-format file becomes a document of a single passage, embedded without its title; its
propositions are the recorded ones. A question counts as answered at k if one of the first k distinct passages
contains one of its answer strings (lower-cased). No parameter is tuned here; figures are in
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from llama_index.core import Document

from llama_pack_densex import DenseXRetrievalPack, PropositionNodeParser, RecordedPropositionizer
from llama_pack_densex.evaluation.models import CachedEmbedding
from llama_pack_densex.models import resolve_embed_model
from llama_pack_densex.node_parsers.splitting import WholeDocumentNodeParser

CUTS = (1, 5, 20)
UNITS = (
    ("passage",),
    ("sentence",),
    ("proposition",),
    ("proposition", "sentence"),
    ("sentence", "passage"),
    ("proposition", "sentence", "passage"),
)


def read_squad(path: Path) -> tuple[list[Document], list[tuple[str, list[str]]]]:
    documents, questions = [], []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for number, paragraph in enumerate(article["paragraphs"]):
            documents.append(
                Document(
                    id_=f"{article['title']}/{number}",
                    text=paragraph["context"],
                    metadata={"title": article["title"]},
                    excluded_embed_metadata_keys=["title"],
                    excluded_llm_metadata_keys=["title"],
                )
            )
            for qa in paragraph["qas"]:
                if not qa.get("is_impossible"):
                    questions.append(
                        (qa["question"], [answer["text"].lower() for answer in qa["answers"]])
                    )
    return documents, questions


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("squad", type=Path)
    arguments.add_argument("propositions", type=Path)
    arguments.add_argument("--embed-model", default="minilm")
    options = arguments.parse_args()
    documents, questions = read_squad(options.squad)
    model, name = resolve_embed_model(options.embed_model)
    embed_model = (
        None if model is None else CachedEmbedding(model)
    )  # every row embeds the same texts
    if embed_model is not None:
        embed_model.embed_queries([question for question, _ in questions])
    print(f"{len(documents)} passages, {len(questions)} questions, embedding model {name}")
    print(
        "| units | hybrid | recall@1 | recall@5 | recall@20 | ms a question |\n|---|---|---|---|---|---|"
    )
    for granularity, hybrid in ((units, hybrid) for hybrid in (False, True) for units in UNITS):
        parser = PropositionNodeParser(
            base_parser=WholeDocumentNodeParser(),
            propositionizer=RecordedPropositionizer(options.propositions),
            granularity=tuple(unit for unit in granularity if unit != "passage"),
        )
        pack = DenseXRetrievalPack(
            documents,
            query_llm="none",
            embed_model=embed_model if embed_model is not None else "none",
            node_parser=parser,
            granularity=granularity,
            hybrid=hybrid,
        )
        started = time.perf_counter()
        hits_at = dict.fromkeys(CUTS, 0)
        for question, answers in questions:
            texts = [
                hit.node.get_content().lower()
                for hit in pack.retrieve(question, similarity_top_k=max(CUTS))
            ]
            first = next(
                (i for i, text in enumerate(texts) if any(answer in text for answer in answers)),
                None,
            )
            for cut in CUTS:
                hits_at[cut] += first is not None and first < cut
        finished = time.perf_counter()
        recalls = " | ".join(f"{hits_at[cut] / len(questions):.3f}" for cut in CUTS)
        milliseconds = 1000 * (finished - started) / len(questions)
        units = ", ".join(granularity)
        print(
            f"| {units} | {'yes' if hybrid else 'no'} | {recalls} | {milliseconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
