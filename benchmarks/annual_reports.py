"""Questions about annual reports, from PDF to page: the filings and questions of FinanceBench.

usage: python benchmarks/annual_reports.py FINANCEBENCH [FILING ...] [--embed-model minilm]

FINANCEBENCH is a copy of github.com/patronus-ai/financebench. Without names of filings, all of those that
questions are asked about are read. A question's page is found at k if one of the first k passages is on a
page with its evidence. A row is outside tables if it ends in two or more figures and is not in a table.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from llama_index.core import Document

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.reading import read_file

CUTS = (1, 5, 10, 20)
_FIGURE = r"(?:[$€£]\s?)?\(?[$]?\d[\d.,]*\)?\s?%?|[—–-]"
_LOOSE_ROW = re.compile(
    r"(?m)^(?!\|)(?=.*[A-Za-z])(?=(?:.*\d[\d.,]){2})"
    rf".{{3,90}}?(?:\s+(?:{_FIGURE})){{2,}}\s*$"
)
_ROW = re.compile(r"(?m)^\|(?! ---)")
_NAMELESS = re.compile(r"(?m)^[| ]+\n\| ---")


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("financebench", type=Path)
    arguments.add_argument("filings", nargs="*")
    arguments.add_argument("--embed-model", default="none")
    options = arguments.parse_args()
    lines = (options.financebench / "data/financebench_open_source.jsonl").read_text("utf-8")
    questions = [json.loads(line) for line in lines.splitlines()]
    filings = options.filings or sorted({question["doc_name"] for question in questions})
    documents: list[Document] = []
    for filing in filings:
        documents += read_file(options.financebench / "pdfs" / f"{filing}.pdf", f"{filing}.pdf")
    text = "\n\n".join(document.text for document in documents)
    print(f"{len(documents)} pages, {len(_ROW.findall(text))} rows of tables", end=", ")
    print(f"{len(_NAMELESS.findall(text))} tables without names", end=", ")
    print(f"{len(_LOOSE_ROW.findall(text))} rows outside tables")
    pack = DenseXRetrievalPack(
        documents, embed_model=options.embed_model, query_llm="none", proposition_llm="none"
    )
    selected = [question for question in questions if question["doc_name"] in filings]
    pages_found = dict.fromkeys(CUTS, 0)
    first_filing = 0
    for question in selected:
        pages = {
            f"{evidence['doc_name']}.pdf#page={evidence['evidence_page_num'] + 1}"
            for evidence in question["evidence"]
        }
        results = pack.retrieve(question["question"], similarity_top_k=max(CUTS))
        sources = [result.node.ref_doc_id for result in results]
        first_filing += str(sources[0]).startswith(f"{question['doc_name']}.pdf")
        for cut in CUTS:
            pages_found[cut] += not pages.isdisjoint(sources[:cut])
    shares = ", ".join(f"@{cut} {count / len(selected):.3f}" for cut, count in pages_found.items())
    print(
        f"{len(selected)} questions, page {shares}; filing first {first_filing / len(selected):.3f}"
    )


if __name__ == "__main__":
    main()
