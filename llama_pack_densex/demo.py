"""The demonstration: the repository's documents, its recorded propositions, and 60 questions with their answers."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore

from llama_pack_densex.options import Mode
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.reading import find_files, read_file
from llama_pack_densex.retrieval.context import assemble_context

DATA = Path(__file__).parent.parent / "data"
"""The data folder of a source checkout."""
LANGUAGES = ("en", "ja")
SHOWN_QUESTIONS = {
    "en": ("For what medical reason was the astronaut Ken Mattingly not allowed to fly on Apollo 13?",
           "Which star will Voyager 1 go near tens of thousands of years from now?"),
    "ja": ("ドウデュースの主な勝ち鞍を教えて。",
           "青函トンネルは入り口から出口まで、全部で何キロメートルの長さがありますか。"),
}  # fmt: skip
"""Questions that the demonstration answers in full, by language."""
REQUIRED_SHARE = 0.8
"""Of the questions: 48 of 60."""
READ_WORDS = 200
"""Words of the context that an answer must be in, where words have spaces between them."""
READ_CHARACTERS = 400
"""Characters of the context that an answer must be in, in Japanese."""


@dataclass(frozen=True)
class Question:
    """A question with its accepted answers.

    Args:
        id: Its id.
        language: "en" or "ja".
        question: The question.
        answers: Any of these is right.
        document: The id of the document that has the answer.
    """

    id: str
    language: str
    question: str
    answers: tuple[str, ...]
    document: str


@dataclass(frozen=True)
class Judgement:
    """Whether a question's answer is in what a reader gets."""

    question: Question
    found: bool


def require_data(folder: Path | None) -> Path:
    """The data folder.

    Raises:
        FileNotFoundError: It is not there, or lacks something.
    """
    data = folder if folder is not None else DATA
    missing = [name for name in ("propositions.jsonl", "questions.jsonl", *LANGUAGES) if not (data / name).exists()]
    if missing:
        raise FileNotFoundError(
            f"the demonstration's data is not in {data} ({', '.join(missing)} missing): it is in the repository and "
            "not in the installed package. Clone the repository and run `densex demo` there, or pass --data FOLDER"
        )
    return data


def build_demo(
    data: Path, mode: Mode = "recursive", embed_model: BaseEmbedding | str | None = "none"
) -> DenseXRetrievalPack:
    """Index the documents in memory, with the recorded propositions; needs no LLM.

    Args:
        data: The data folder.
        mode: The retrieval mode.
        embed_model: What the pack takes.
    """
    files, _ = find_files([data / language for language in LANGUAGES])
    root = data.resolve()
    documents = [part for file in files for part in read_file(file.path, file.path.relative_to(root).as_posix())]
    return DenseXRetrievalPack(
        documents,
        propositionizer=RecordedPropositionizer(data / "propositions.jsonl"),
        query_llm="none",
        embed_model=embed_model,
        mode=mode,
    )


def read_questions(file: Path) -> list[Question]:
    """Read the questions.

    Raises:
        ValueError: A line is no question.
    """
    questions = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            questions.append(Question(**{**record, "answers": tuple(record["answers"])}))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{file}, line {number}: no question with its answers ({error})") from error
    return questions


def judge(questions: Iterable[Question], retrieve: Callable[[str], Sequence[NodeWithScore]]) -> list[Judgement]:
    """See for each question whether the beginning of the assembled context has its answer.

    Args:
        questions: The questions.
        retrieve: A pack's `retrieve`.
    """
    return [
        Judgement(question, has_answer(context_text(retrieve(question.question)), question)) for question in questions
    ]


def context_text(nodes: Sequence[NodeWithScore]) -> str:
    """What a reader gets of retrieved nodes."""
    return "\n".join(node.node.get_content() for node in assemble_context(nodes))


def has_answer(context: str, question: Question) -> bool:
    """Whether an accepted answer is in the first 200 words of a context, in Japanese the first 400 characters."""
    read = context[:READ_CHARACTERS] if question.language == "ja" else " ".join(context.split()[:READ_WORDS])
    return any(_folded(answer) in _folded(read) for answer in question.answers)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
