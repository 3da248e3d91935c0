"""`densex demo`: the sample documents, their recorded propositions, and 60 questions with answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from llama_pack_densex.cli.app import DemoCommand
from llama_pack_densex.cli.output import print_heading, waiting, write
from llama_pack_densex.cli.search import Json, describe_answer, print_answer
from llama_pack_densex.evaluation.datasets import Question
from llama_pack_densex.evaluation.evidence import length_until_answer
from llama_pack_densex.models import NONE
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor
from llama_pack_densex.samples import load_sample

# the beginning of the context that has to contain the answer: words, in Japanese characters
_LENGTHS = {"en": 200, "ja": 400}
_REQUIRED = 0.8
_QUESTIONS = (
    "For what medical reason was the astronaut Ken Mattingly not allowed to fly on Apollo 13?",
    "Which star will Voyager 1 go near tens of thousands of years from now?",
    "ドウデュースの主な勝ち鞍を教えて。",
    "青函トンネルは入り口から出口まで、全部で何キロメートルの長さがありますか。",
)


def run_demo(options: DemoCommand) -> bool:
    """Run the demonstration; return False if too few questions could be answered."""
    samples = {language: load_sample(language) for language in _LENGTHS}
    with waiting("Indexing in memory"):
        pack = DenseXRetrievalPack(
            [document for sample in samples.values() for document in sample.documents],
            propositionizer=samples["en"].propositionizer(),  # its recordings cover both languages
            query_llm=NONE,
            embed_model=NONE,
            **options.chosen("mode"),
        )
    with waiting("Asking all questions"):
        report: dict[str, Any] = {
            "counts": pack.counts(),
            "answers": [
                describe_answer(pack, question, pack.run(question, 2)) for question in _QUESTIONS
            ],
            "questions": {language: len(sample.questions) for language, sample in samples.items()},
            "answered": {
                language: _count_answered(pack, language, sample.questions)
                for language, sample in samples.items()
            },
        }
    options.show(report, partial(_print_demo, options.mode))
    return bool(sum(report["answered"].values()) >= _REQUIRED * sum(report["questions"].values()))


def _print_demo(mode: str, report: Json) -> None:
    write(
        f"An index in memory, nothing is written: {report['counts']}. The propositions are recorded. Mode "
        f"{mode}; no LLM."
    )
    for answer in report["answers"]:
        write()
        print_heading(answer["question"])
        print_answer(answer)
    write()
    print_heading("Questions with an accepted answer in the context")
    write(
        "Counted if it is in the first 200 words (Japanese: 400 characters) of the reader's context: the "
        "propositions found, then their passages."
    )
    answered = report["answered"]
    questions = report["questions"]
    write(f"English   {answered['en']} of {questions['en']}", indent=2)
    write(f"Japanese  {answered['ja']} of {questions['ja']}", indent=2)
    write(f"in all    {sum(answered.values())} of {sum(questions.values())}", indent=2)


def _count_answered(pack: DenseXRetrievalPack, language: str, questions: Sequence[Question]) -> int:
    """Return how many questions have an accepted answer at the beginning of their context (`_LENGTHS`)."""
    postprocessor = PropositionContextPostprocessor(budget=None)
    answered = 0
    for question in questions:
        context = postprocessor.postprocess_nodes(pack.retrieve(question.text))
        texts = [node.node.get_content() for node in context]
        length = length_until_answer(texts, question.answers, language)
        answered += length is not None and length <= _LENGTHS[language]
    return answered
