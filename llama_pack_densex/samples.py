"""Documents to try the pack on, with questions about them and propositions that an LLM made of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from llama_index.core.schema import Document

from llama_pack_densex.evaluation.datasets import Question, read_dataset
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer

LANGUAGES = ("en", "ja")


@dataclass(frozen=True)
class Sample:
    """Short articles in one language, and questions about them.

    Attributes:
        language: "en" or "ja".
        documents: Seven articles; their ids are file names, such as "en/eiffel-tower.md".
        questions: Thirty questions, each with its right answers and the id of the document that has them.
            `compare` takes them as they are.
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


def load_sample(language: str = "en") -> Sample:
    """Load the sample documents of a language, which come with the package.

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
    documents = [document for document in dataset.documents if document.id_.startswith(f"{language}/")]
    return Sample(language, documents, dataset.questions, folder / "propositions.jsonl")
