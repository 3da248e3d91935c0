"""What benchmarks/stores.py fills stores with and asks: real text with MiniLM's vectors, or a made-up
mixture.

Real text is the prose in the docstrings of Python's standard library and of the installed packages, a
document for each source file in the order of their paths; a paragraph that reappears is taken once. Every
120th paragraph is left out of the corpus, and its first sentence is a question. Text and vectors are kept in
a folder, so that all runs that are given it have the same, and only the first one needs the model.

The mixture: a text's vector is the sum of that of its topic (one of 1,000), that of its document and one of
its own, with weights of 0.5, 0.5 and 0.71, brought to length 1. Each of these is a normal draw in 384
dimensions whose variance falls as 1/i over the axes, turned at random: vectors of texts vary in few
directions, here about 26. A question is a proposition of the corpus with as much noise that their cosine is
0.75. Text is made up, half of it of English and half of Japanese shape, 80 sentences a document where nothing
else is asked for.
"""

from __future__ import annotations

import ast
import json
import random
import re
import sysconfig
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from llama_index.core import Document
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryBundle

from llama_pack_densex import HierarchicalPropositionNodeParser
from llama_pack_densex.node_parsers.metadata import embedded_text
from llama_pack_densex.text.segments import passage_sentences
from store_bench.embeddings import KeptEmbedding, MixtureEmbedding, mixture, noise, unit
from store_bench.made_up_text import Language, english, japanese

SHELVES = 100  # documents are spread over them evenly, with a room for each; filters choose by them
_HELD_OUT = 120  # every so many-eth paragraph of real text is a question
_PROSE = re.compile(r"[A-Z][^<>|=*`{}\[\]#]*[.?!]")


class Corpus(ABC):
    """Documents, questions about them, and the model that embeds both.

    Attributes:
        name: A phrase that says what it is.
        embed_model: The model; a question comes with its embedding.
    """

    name: str
    embed_model: BaseEmbedding

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """The documents, made as they are read."""

    @abstractmethod
    def questions(self, count: int) -> list[QueryBundle]:
        """Questions, embedded."""


def corpus_of(name: str, propositions: int, sentences: int) -> Corpus:
    """The corpus that a name stands for: "made-up", with so many sentences a document, or a folder for real
    text."""
    return (
        MadeUp(propositions, sentences) if name == "made-up" else RealText(Path(name), propositions)
    )


def node_parser() -> HierarchicalPropositionNodeParser:
    """Sections, passages and sentences in place of propositions: one index for both modes."""
    # MixtureEmbedding reads it
    return HierarchicalPropositionNodeParser.from_defaults(embed_metadata=["title"])


class RealText(Corpus):
    """Prose of docstrings, with the vectors of all-MiniLM-L6-v2.

    Args:
        folder: Where text and vectors are kept.
        propositions: How many sentences.
    """

    name = "docstrings, all-MiniLM-L6-v2"

    def __init__(self, folder: Path, propositions: int) -> None:
        self._text, self._asked = folder / "documents.jsonl", folder / "questions.json"
        if not self._text.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._collect(propositions)
        self.embed_model: KeptEmbedding = KeptEmbedding(folder=folder)
        if not self.embed_model.is_there:
            self.embed_model.fill(self._texts())

    def documents(self) -> Iterator[Document]:
        with self._text.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                found = json.loads(line)
                yield _document(found["source"], found["text"], found["title"], number)

    def questions(self, count: int) -> list[QueryBundle]:
        texts = json.loads(self._asked.read_text(encoding="utf-8"))
        step = max(len(texts) // count, 1)
        return [
            QueryBundle(text, embedding=self.embed_model.get_query_embedding(text))
            for text in texts[::step][:count]
        ]

    def _collect(self, propositions: int) -> None:
        there, asked = 0, []
        seen: set[str] = set()
        partial = self._text.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as lines:
            for source, paragraphs in _docstrings():
                kept: list[str] = []
                for paragraph in paragraphs:
                    if (
                        paragraph in seen
                        or not _PROSE.fullmatch(paragraph)
                        or len(paragraph.split()) < 6
                    ):
                        continue
                    seen.add(paragraph)
                    sentences = passage_sentences(paragraph)
                    if len(seen) % _HELD_OUT:
                        kept.append(paragraph)
                        there += len(sentences)
                    else:
                        asked.append(sentences[0])
                if kept:
                    title = source.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
                    found = {"source": source, "title": title, "text": "\n\n".join(kept)}
                    lines.write(json.dumps(found, ensure_ascii=False) + "\n")
                if there >= propositions:
                    break
        self._asked.write_text(json.dumps(asked, ensure_ascii=False, indent=0), encoding="utf-8")
        partial.replace(self._text)

    def _texts(self) -> Iterator[str]:
        """All that is embedded of it."""
        parser = node_parser()
        yield from json.loads(self._asked.read_text(encoding="utf-8"))
        for document in self.documents():
            for node in parser.get_nodes_from_documents([document]):
                yield embedded_text(node)


class MadeUp(Corpus):
    """Made-up text with the vectors of a mixture.

    Args:
        propositions: How many sentences.
        sentences: How many a document.
    """

    name = "made-up text, a mixture of 1,000 topics"

    def __init__(self, propositions: int, sentences: int = 80) -> None:
        self._documents = -(-propositions // sentences)
        self._sentences = sentences
        self.embed_model = MixtureEmbedding()

    def documents(self) -> Iterator[Document]:
        return map(self._volume, range(self._documents))

    def questions(self, count: int) -> list[QueryBundle]:
        questions = []
        for place in range(count):
            number = place * self._documents // count
            language = _language(number)
            rng = random.Random(f"question {place}")
            fact = rng.choice(self._facts(number))
            vector = mixture(number, fact + language.stop.strip())
            apart = noise(zlib.crc32(f"question {place}".encode()))
            embedding = unit(0.75 * vector + 0.66 * unit(apart - (apart @ vector) * vector))
            questions.append(
                QueryBundle(language.question.format(fact), embedding=embedding.tolist())
            )
        return questions

    def _volume(self, number: int) -> Document:
        text = "".join(fact + _language(number).stop for fact in self._facts(number))
        return _document(f"volumes/{number}.txt", text.strip(), f"Volume {number}", number)

    def _facts(self, number: int) -> list[str]:
        language = _language(number)
        rng = random.Random(f"document {number}")
        topic = language.topic(rng)
        return [language.fact(rng, topic) for _ in range(self._sentences)]


def _language(number: int) -> Language:
    return (english(), japanese())[number % 2]


def _document(source: str, text: str, title: str, number: int) -> Document:
    shelf = number * 37 % SHELVES
    hidden = ["shelf", "room", "source"]
    return Document(
        id_=source,
        text=text,
        metadata={"title": title, "shelf": shelf, "room": f"room {shelf}", "source": source},
        excluded_embed_metadata_keys=hidden,
        excluded_llm_metadata_keys=hidden,
    )


def _docstrings() -> Iterator[tuple[str, list[str]]]:
    """The paragraphs of the docstrings of each source file, each with its path below where Python looks for
    it."""
    paths = sysconfig.get_paths()
    for root in dict.fromkeys((Path(paths["stdlib"]), Path(paths["purelib"]))):
        for file in sorted(root.rglob("*.py")):
            source = file.relative_to(root)
            if "site-packages" not in source.parts:
                yield source.as_posix(), list(_paragraphs(file))


def _paragraphs(file: Path) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is parsed
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return  # files of test suites that are wrong on purpose
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                yield " ".join(paragraph.split())
