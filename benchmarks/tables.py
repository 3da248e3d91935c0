"""FeTaQA, TAT-QA: how much of the cells that answer a question about a table is in what is found.

usage: python benchmarks/tables.py FILE [--questions 2003] [--format md] [--embed-model none]

FILE is `data/fetaQA-v1_test.jsonl` (or `_dev`) of https://github.com/Yale-LILY/FeTaQA (Nan et al., "FeTaQA:
Free-form Table Question Answering", 2022): questions about tables of Wikipedia, each with the cells that
answer it. Each table is a file: its page and section are the name of a CSV file or Excel sheet, and the title
and heading of a Markdown or HTML file.

A FILE that ends in `.json` is one of `dataset_raw` of https://github.com/NExTplusplus/TAT-QA (Zhu et al.,
"TAT-QA: A question answering benchmark on a hybrid of tabular and textual content in finance", 2021):
tables of annual reports with paragraphs beside them. Each is a Markdown file without a title, and what is
looked for are the texts that answer, or the figures that the answer is calculated from.

The output is the share of questions whose table comes first, or is in the first five results; and the mean
share of the cells that are in the facts above the passages (50 words), in all that an LLM reads (four
results, 500 words), and in the answer without an LLM (60 words). LlamaIndex's chunks (its sentence splitter,
512 tokens, BM25, or by reciprocal rank with an embedding model) are cut off after 500 words.

Figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean

from chunking import chunk_retrievers  # the script beside this one
from llama_index.core import Document, QueryBundle
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, NodeWithScore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_pack_densex import DenseXRetrievalPack, PropositionContextPostprocessor
from llama_pack_densex.evaluation.models import CachedEmbedding
from llama_pack_densex.models import resolve_embed_model
from llama_pack_densex.reading import read_file

FORMATS = ("md", "html", "csv", "xlsx")
CHUNK_SIZE = 512
RESULTS = 20
FIRST_RESULTS = 5
PASSAGES_READ = 4
WORDS_READ = 500

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Question:
    """A question, the id of the document with its table, and the cells that answer it."""

    text: str
    document_id: str
    cells: frozenset[str]


def read_questions(file: Path, most: int, folder: Path, suffix: str) -> list[Question]:
    """Read the questions, and write each table to a file in a folder."""
    questions = []
    with file.open(encoding="utf-8") as stream:
        for line in list(stream)[:most]:
            fields = json.loads(line)
            page = fields["table_page_title"]
            section = fields["table_section_title"]
            rows = rectangular(fields["table_array"])
            name = re.sub(r"[^\w ().-]", "", f"{page} - {section}")[:120]
            path = folder / f"{name}.{suffix}"
            write_table(path, page, section, rows)
            marked = (
                rows[row][column]
                for row, column in fields["highlighted_cell_ids"]
                if 0 < row < len(rows) and column < len(rows[row])
            )
            cells = frozenset(filter(None, marked))
            questions.append(Question(fields["question"], path.name, cells))
    return questions


def read_contexts(file: Path, most: int, folder: Path) -> list[Question]:
    """Read the questions of TAT-QA, and write each table with its paragraphs to a file in a folder."""
    questions = []
    for number, context in enumerate(json.loads(file.read_text(encoding="utf-8"))):
        path = folder / f"{number}.md"
        paragraphs = [paragraph["text"] for paragraph in context["paragraphs"]]
        table = markdown_table(rectangular(context["table"]["table"]))
        path.write_text("\n\n".join([table, *paragraphs]), encoding="utf-8")
        for fields in context["questions"]:
            cells = _FIGURE.findall(fields["derivation"])
            if "span" in fields["answer_type"]:
                cells = [" ".join(text.split()) for text in fields["answer"]]
            questions.append(Question(fields["question"], path.name, frozenset(cells)))
    return questions[:most]


_FIGURE = re.compile(r"\d[\d,]*[.,]\d+|\d{2,}")


def rectangular(rows: Rows) -> Rows:
    """Return the rows of a table, all of them as long as the longest, each cell on one line."""
    width = max(map(len, rows))
    return [[*(" ".join(cell.split()) for cell in row), *[""] * (width - len(row))] for row in rows]


def write_table(path: Path, page: str, section: str, rows: Rows) -> None:
    if path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows(rows)
    elif path.suffix == ".xlsx":
        import openpyxl

        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        book.save(path)
    elif path.suffix == ".html":
        path.write_text(html_page(page, section, rows), encoding="utf-8")
    else:
        path.write_text(markdown_page(page, section, rows), encoding="utf-8")


def html_page(page: str, section: str, rows: Rows) -> str:
    lines = []
    for number, row in enumerate(rows):
        tag = "td" if number else "th"
        lines.append("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row))
    table = "\n".join(f"<tr>{line}</tr>" for line in lines)
    headings = f"<h1>{escape(page)}</h1>\n<h2>{escape(section)}</h2>"
    return f"<title>{escape(page)}</title>\n{headings}\n<table>\n{table}\n</table>\n"


def markdown_page(page: str, section: str, rows: Rows) -> str:
    return f"# {page}\n\n## {section}\n\n{markdown_table(rows)}\n"


def markdown_table(rows: Rows) -> str:
    header, *below = ([cell.replace("|", r"\|") for cell in row] for row in rows)
    lines = [header, ["---"] * len(header), *below]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def share_of(cells: frozenset[str], texts: Iterable[str]) -> float:
    """Return the share of cells that occur in some texts."""
    text = " ".join(" ".join(texts).replace(r"\|", "|").split())
    return sum(cell in text for cell in cells) / max(1, len(cells))


def measure(
    name: str,
    retrieve: Callable[[str], list[NodeWithScore]],
    texts_for: Sequence[Callable[[str, list[NodeWithScore]], list[str]]],
    questions: Sequence[Question],
) -> None:
    """Print a line: the table first, among five, and the share of cells in each kind of text."""
    rows = []
    for question in questions:
        results = retrieve(question.text)
        ids = [result.node.ref_doc_id for result in results]
        row = [float(question.document_id in ids[:count]) for count in (1, FIRST_RESULTS)]
        for text_for in texts_for:
            row.append(share_of(question.cells, text_for(question.text, results)))
        rows.append(row)
    figures = "  ".join(f"{fmean(column):.3f}" for column in zip(*rows, strict=True))
    print(f"{name:24} {len(rows):5}  {figures}", flush=True)


def measure_pack(
    documents: Sequence[Document], model: BaseEmbedding | None, questions: Sequence[Question]
) -> None:
    pack = DenseXRetrievalPack(
        documents,
        proposition_llm="none",
        query_llm="none",
        embed_model=model or "none",
        similarity_top_k=FIRST_RESULTS,
    )

    def context(question: str, results: list[NodeWithScore]) -> list[str]:
        nodes = PropositionContextPostprocessor().postprocess_nodes(
            results[:PASSAGES_READ], QueryBundle(question)
        )
        return [node.get_content(MetadataMode.LLM) for node in nodes]

    def facts(question: str, results: list[NodeWithScore]) -> list[str]:
        return context(question, results)[:1]

    def answer(question: str, results: list[NodeWithScore]) -> list[str]:
        synthesizer = pack.query_engine._response_synthesizer  # type: ignore[attr-defined]
        return [str(synthesizer.synthesize(question, results[:PASSAGES_READ]))]

    measure("densex-sentences", pack.retrieve, [facts, context, answer], questions)


def first_words(question: str, results: list[NodeWithScore]) -> list[str]:
    words = " ".join(result.node.get_content() for result in results).split()
    return [" ".join(words[:WORDS_READ])]


def measure_chunks(
    documents: Sequence[Document], model: BaseEmbedding | None, questions: Sequence[Question]
) -> None:
    if model is None:
        from llama_index.core.node_parser import SentenceSplitter

        splitter = SentenceSplitter(chunk_size=CHUNK_SIZE, chunk_overlap=0)
        nodes = splitter.get_nodes_from_documents(documents)
        bm25 = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=RESULTS)
        measure(f"bm25-{CHUNK_SIZE}", bm25.retrieve, [first_words], questions)
        return
    for name, retriever in chunk_retrievers(documents, CHUNK_SIZE, model).items():
        measure(name, retriever.retrieve, [first_words], questions)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--questions", type=int, default=2_003)
    parser.add_argument("--format", choices=FORMATS, default="md")
    parser.add_argument("--embed-model", default="none")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    model, _ = resolve_embed_model(options.embed_model)
    with tempfile.TemporaryDirectory() as folder:
        if options.file.suffix == ".json":
            questions = read_contexts(options.file, options.questions, Path(folder))
        else:
            questions = read_questions(
                options.file, options.questions, Path(folder), options.format
            )
        files = sorted(Path(folder).iterdir())
        documents = [document for file in files for document in read_file(file, file.name)]
    if options.format == "xlsx":
        for document in documents:
            document.id_ = document.id_.partition("#")[0]  # each book has one sheet
    if model is not None:
        model = CachedEmbedding(model)
        model.embed_queries([question.text for question in questions])
    print("strategy, questions; table first, in five; cells in the facts, context, answer")
    measure_pack(documents, model, questions)
    measure_chunks(documents, model, questions)


if __name__ == "__main__":
    main()
