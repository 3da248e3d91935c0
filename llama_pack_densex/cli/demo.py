"""`densex demo`: the sample documents, their recorded propositions, and 60 questions with answers."""

from __future__ import annotations

from collections.abc import Sequence

from llama_pack_densex.cli.app import DemoCommand
from llama_pack_densex.cli.output import print_heading, waiting, write
from llama_pack_densex.cli.search import describe_answer, print_answer
from llama_pack_densex.evaluation.datasets import Question
from llama_pack_densex.evaluation.judging import length_until_answer
from llama_pack_densex.models import NONE
from llama_pack_densex.pack import DenseXRetrievalPack
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor
from llama_pack_densex.samples import load_sample

_LENGTHS = {"en": 200, "ja": 400}  # of the context that is looked at: words, in Japanese characters
_REQUIRED = 0.8
_QUESTIONS = (
    "For what medical reason was the astronaut Ken Mattingly not allowed to fly on Apollo 13?",
    "Which star will Voyager 1 go near tens of thousands of years from now?",
    "ドウデュースの主な勝ち鞍を教えて。",
    "青函トンネルは入り口から出口まで、全部で何キロメートルの長さがありますか。",
)


def run_demo(options: DemoCommand) -> bool:
    """Run the demonstration; False where too few questions could be answered."""
    samples = {language: load_sample(language) for language in _LENGTHS}
    with waiting("Indexing in memory"):
        pack = DenseXRetrievalPack(
            [document for sample in samples.values() for document in sample.documents],
            propositionizer=samples["en"].propositionizer(),  # the recordings are of both languages
            query_llm=NONE,
            embed_model=NONE,
            **options.chosen("mode"),
        )
    write(
        f"An index in memory, nothing is written: {pack.counts()}. Propositions are recorded. "
        f"Mode {options.mode}; no LLM."
    )
    for question in _QUESTIONS:
        write()
        print_heading(question)
        print_answer(describe_answer(pack, question, pack.run(question, 2)))
    with waiting("Asking all questions"):
        answered = {language: _count_answered(pack, language, sample.questions) for language, sample in samples.items()}
    write()
    print_heading("Questions with an accepted answer in the context")
    write(
        "Counted where it is in the first 200 words (Japanese: 400 characters) of what a reader gets: the "
        "found propositions, then their passages."
    )
    total = sum(len(sample.questions) for sample in samples.values())
    write(f"English   {answered['en']} of {len(samples['en'].questions)}", indent=2)
    write(f"Japanese  {answered['ja']} of {len(samples['ja'].questions)}", indent=2)
    write(f"in all    {sum(answered.values())} of {total}", indent=2)
    return sum(answered.values()) >= _REQUIRED * total


def _count_answered(pack: DenseXRetrievalPack, language: str, questions: Sequence[Question]) -> int:
    """How many questions have an accepted answer in the context that is looked at."""
    postprocessor = PropositionContextPostprocessor(budget=None)
    answered = 0
    for question in questions:
        context = postprocessor.postprocess_nodes(pack.retrieve(question.text))
        texts = [node.node.get_content() for node in context]
        length = length_until_answer(texts, question.answers, language)
        answered += length is not None and length <= _LENGTHS[language]
    return answered
