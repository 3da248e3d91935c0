"""Documents to try the pack on, with questions about them, propositions that an LLM wrote, and its replies to
some of the questions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import (
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.bridge.pydantic import Field
from llama_index.core.llms import CustomLLM
from llama_index.core.schema import Document

from llama_pack_densex.evaluation.datasets import Question, read_dataset
from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer

LANGUAGES = ("en", "ja")
_ASKED_PASSAGE = re.compile(r"Title: .*?\. Section: .*?\. Content: (?P<text>.*)\Z", re.DOTALL)
_FOOTNOTE = re.compile(r"\[\^(?P<mark>[^\]]+)\]")


@dataclass(frozen=True)
class Sample:
    """Short articles in one language, and questions about them.

    Attributes:
        language: "en" or "ja".
        documents: Seven articles; their ids are file names, such as "en/eiffel-tower.md".
        questions: Thirty questions, each with its right answers and the id of the document that has them;
            `compare` accepts them.
        recordings: A file with the propositions of every passage, for `--propositionizer recorded:FILE`.

    Example:
        >>> from llama_pack_densex import load_sample
        >>> sample = load_sample("ja")
        >>> sample.documents[0].id_, len(sample.documents), len(sample.questions)
        ('ja/do-deuce.md', 7, 30)
    """

    language: str
    documents: list[Document]
    questions: list[Question]
    recordings: Path

    def propositionizer(self) -> RecordedPropositionizer:
        """Make a propositionizer that looks up the recorded propositions, so that no LLM is needed.

        The documents must be split by the default splitter, as they were for the recording.

        Example:
            >>> from llama_pack_densex import PropositionNodeParser
            >>> parser = PropositionNodeParser(propositionizer=sample.propositionizer())
            >>> nodes = parser.get_nodes_from_documents(sample.documents[:1])
            >>> next(node.text for node in nodes if node.metadata["densex_granularity"] == "proposition")
            'ドウデュースは日本の競走馬である。'
        """
        return RecordedPropositionizer(self.recordings)

    def llm(self) -> RecordedLLM:
        """Return an LLM that replays the recorded replies of a large one, without a key or a network.

        It has the propositions of the sample's passages and the answers to the questions of the notebooks; it
        raises a `ValueError` for any other request.

        Example:
            >>> from llama_pack_densex import DenseXRetrievalPack
            >>> pack = DenseXRetrievalPack(sample.documents, sample.llm(), sample.llm(), "none")
            >>> print(pack.run("ドウデュースの父は？"))
            ドウデュースの父はハーツクライです。[^1]
        """
        return RecordedLLM(folder=str(self.recordings.parent))


class RecordedLLM(CustomLLM):
    """Replays the replies of a large LLM.

    A passage's propositions are looked up by its text, other replies by the end of the request. A line of
    `replies.jsonl` is `{"request": ..., "reply": ...}`. In a recorded reply, a footnote quotes its passage;
    it is replaced by the number that the passage has in the request.

    Raises:
        ValueError: On use, if no reply was recorded for a request.
    """

    folder: str = Field(description="The folder with `propositions.jsonl` and `replies.jsonl`.")

    @classmethod
    def class_name(cls) -> str:
        return "RecordedLLM"

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="recorded", context_window=16_000, num_output=2_000)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        passage = _ASKED_PASSAGE.search(prompt)
        if passage:
            return CompletionResponse(text=self._propositions(passage["text"]))
        return CompletionResponse(text=_with_numbers(self._reply(prompt), prompt))

    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        text = ""
        for piece in re.findall(r"\S+\s*|\s+", self.complete(prompt).text):
            text += piece
            yield CompletionResponse(text=text, delta=piece)

    def _propositions(self, text: str) -> str:
        propositions = _recordings_in(self.folder).propositionize([Passage(text)])[0].texts
        return json.dumps(propositions, ensure_ascii=False)

    def _reply(self, prompt: str) -> str:
        end = _FOOTNOTE.sub("", prompt.removesuffix("assistant: ")).rstrip()
        lines = (Path(self.folder) / "replies.jsonl").read_text(encoding="utf-8").splitlines()
        replies: dict[str, str] = {
            line["request"]: line["reply"] for line in map(json.loads, lines)
        }
        matching = [request for request in replies if end.endswith(request)]
        if not matching:
            raise ValueError(
                f"the sample's LLM has no reply to a request that ends with {end[-80:]!r}: it replies only "
                "to the questions of the notebooks. Pass your own LLM for others."
            )
        return replies[max(matching, key=len)]


@cache
def _recordings_in(folder: str) -> RecordedPropositionizer:
    return RecordedPropositionizer(Path(folder) / "propositions.jsonl")


def _with_numbers(reply: str, prompt: str) -> str:
    """Replace the quotations in a reply's footnotes by the numbers that the passages have in the request."""
    sources = prompt.split("footnote: [^")[1:]

    def numbered(footnote: re.Match[str]) -> str:
        for source in sources:
            number, _, text = source.partition("]")
            if footnote["mark"] in text:
                return f"[^{number}]"
        raise ValueError(
            f"the passage with {footnote['mark']!r}, which the reply cites, was not retrieved"
        )

    return _FOOTNOTE.sub(numbered, reply)


def load_sample(language: str = "en") -> Sample:
    """Load the sample documents of a language that come with the package.

    Args:
        language: "en" or "ja".

    Raises:
        ValueError: There is no sample in that language.

    Example:
        >>> from llama_pack_densex import DenseXRetrievalPack, load_sample
        >>> sample = load_sample("en")
        >>> pack = DenseXRetrievalPack(sample.documents, propositionizer=sample.propositionizer())
        >>> print(pack.run("Who was the commander of Apollo 13?", similarity_top_k=1))
        The commander of Apollo 13 was Jim Lovell.[^1] ...
    """
    if language not in LANGUAGES:
        raise ValueError(
            f"there is no sample in {language!r}: there are samples in {' and '.join(LANGUAGES)}"
        )
    folder = Path(str(files("llama_pack_densex"))) / "samples"
    dataset = read_dataset(folder / "questions.jsonl", folder, language=language)
    documents = [
        document for document in dataset.documents if document.id_.startswith(f"{language}/")
    ]
    return Sample(language, documents, dataset.questions, folder / "propositions.jsonl")
