"""The corpora and questions of benchmarks/stores.py: real text with MiniLM's vectors, or a made-up mixture.

Real text is the prose in the docstrings of Python's standard library and of the installed packages, one
document for each source file, in the order of their paths; repeated paragraphs are used once. Every 120th
paragraph is left out of the corpus, and its first sentence is a question. Text and vectors are stored in a
folder, so that all runs with that folder use the same ones, and only the first run needs the model.

The mixture: a text's vector is the weighted sum of the vectors of its topic (one of 1,000), of its document
and of the text itself, with weights of 0.5, 0.5 and 0.71, unit-normalised. Each of these is a normal draw in
384 dimensions whose variance falls as 1/i over the axes, in a random rotation: vectors of real texts vary in
few directions, here about 26. A question is a proposition of the corpus with enough noise that their cosine
is 0.75. The text is made up, half of it in English and half in Japanese shape, by default with 80 sentences
per document.
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

SHELVES = (
    100  # metadata values for filters, spread evenly over the documents; each shelf has a room
)
_HELD_OUT = 120  # of real text, one paragraph in this many is held out as a question
_PROSE = re.compile(r"[A-Z][^<>|=*`{}\[\]#]*[.?!]")


class Corpus(ABC):
    """Documents, questions about them, and the model that embeds both.

    Attributes:
        name: A description of the corpus.
        embed_model: The model that embeds its texts; questions come with their embeddings.
    """

    name: str
    embed_model: BaseEmbedding

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """Yield the documents, made one at a time."""

    @abstractmethod
    def questions(self, count: int) -> list[QueryBundle]:
        """Return questions with their embeddings."""


def corpus_of(name: str, propositions: int, sentences: int) -> Corpus:
    """Return the corpus of a name: "made-up", or the folder of real text.

    Args:
        name: "made-up", or the folder.
        propositions: The number of sentences in the corpus.
        sentences: The number of sentences in a made-up document.
    """
    return (
        MadeUp(propositions, sentences) if name == "made-up" else RealText(Path(name), propositions)
    )


def node_parser() -> HierarchicalPropositionNodeParser:
    """Make the parser: sections, passages, and sentences as propositions, so one index serves both modes."""
    # MixtureEmbedding reads the title
    return HierarchicalPropositionNodeParser.from_defaults(embed_metadata=["title"])


class RealText(Corpus):
    """Prose of docstrings, with the vectors of all-MiniLM-L6-v2.

    Args:
        folder: The folder of text and vectors.
        propositions: The least number of sentences.
    """

    name = "docstrings, all-MiniLM-L6-v2"

    def __init__(self, folder: Path, propositions: int) -> None:
        self._text, self._questions = folder / "documents.jsonl", folder / "questions.json"
        if not self._text.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._collect(propositions)
        self.embed_model: KeptEmbedding = KeptEmbedding(folder=folder)
        if not self.embed_model.is_there:
            self.embed_model.fill(self._texts())

    def documents(self) -> Iterator[Document]:
        with self._text.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                record = json.loads(line)
                yield _document(record["source"], record["text"], record["title"], number)

    def questions(self, count: int) -> list[QueryBundle]:
        texts = json.loads(self._questions.read_text(encoding="utf-8"))
        step = max(len(texts) // count, 1)
        return [
            QueryBundle(text, embedding=self.embed_model.get_query_embedding(text))
            for text in texts[::step][:count]
        ]

    def _collect(self, propositions: int) -> None:
        count, questions = 0, []
        seen: set[str] = set()
        partial = self._text.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as lines:
            for source, paragraphs in _docstrings():
                kept_paragraphs: list[str] = []
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
                        kept_paragraphs.append(paragraph)
                        count += len(sentences)
                    else:
                        questions.append(sentences[0])
                if kept_paragraphs:
                    title = source.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
                    record = {
                        "source": source,
                        "title": title,
                        "text": "\n\n".join(kept_paragraphs),
                    }
                    lines.write(json.dumps(record, ensure_ascii=False) + "\n")
                if count >= propositions:
                    break
        self._questions.write_text(
            json.dumps(questions, ensure_ascii=False, indent=0), encoding="utf-8"
        )
        partial.replace(self._text)

    def _texts(self) -> Iterator[str]:
        """Yield all texts to embed: the questions, then those of the nodes."""
        parser = node_parser()
        yield from json.loads(self._questions.read_text(encoding="utf-8"))
        for document in self.documents():
            for node in parser.get_nodes_from_documents([document]):
                yield embedded_text(node)


class MadeUp(Corpus):
    """Made-up text with the vectors of a mixture.

    Args:
        propositions: The least number of sentences.
        sentences: The number of sentences in a document.
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
            perturbation = noise(zlib.crc32(f"question {place}".encode()))
            embedding = unit(
                0.75 * vector + 0.66 * unit(perturbation - (perturbation @ vector) * vector)
            )
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
    """Yield each source file's path, relative to its import folder, and the paragraphs of its docstrings."""
    paths = sysconfig.get_paths()
    for root in dict.fromkeys((Path(paths["stdlib"]), Path(paths["purelib"]))):
        for file in sorted(root.rglob("*.py")):
            source = file.relative_to(root)
            if "site-packages" not in source.parts:
                yield source.as_posix(), list(_paragraphs(file))


def _paragraphs(file: Path) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the source that is parsed
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return  # test suites contain files that are invalid on purpose
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                yield " ".join(paragraph.split())
