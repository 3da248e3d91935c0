"""Small reports to write pages of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_pack_densex.evaluation.evidence import Retrieval
from llama_pack_densex.evaluation.report import (
    Cost,
    DatasetInfo,
    EqualContext,
    QuestionResult,
    Report,
    RunSettings,
    Skipped,
    StrategyResult,
)
from llama_pack_densex.evaluation.significance import Comparison

LENGTHS = list(range(0, 501, 50))
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def strategy(
    name: str, quality: float | None, *, description: str = "As it comes."
) -> StrategyResult:
    """A strategy whose figures all follow from one; None: nothing can be given."""
    metrics: dict[str, float | None] = {
        f"{metric}@{k}": None if quality is None else min(1.0, quality + 0.02 * place)
        for metric in ("recall", "gold")
        for place, k in enumerate((1, 5, 20))
    }
    metrics |= {"mrr@10": quality, "ndcg@10": quality}
    metrics |= {
        f"answer_recall@{length}": None
        if quality is None
        else round(quality * (1 - 0.5 ** (length / 60)), 4)
        for length in LENGTHS
    }
    metrics["answer_recall"] = quality
    intervals = {
        key: (max(0.0, value - 0.02), min(1.0, value + 0.02))
        for key, value in metrics.items()
        if value
    }
    cost = Cost(
        units=1200, tokens=45000, index_seconds=1.25, query_ms=8.5, context_words=310.5, context_k=4
    )
    return StrategyResult(name, description, name.startswith("densex"), metrics, intervals, cost)


def question(
    number: int, found: Mapping[str, int | None], text: str = "", answer: str = "Rollo"
) -> QuestionResult:
    """A question, and by strategy the rank of what was found."""
    return QuestionResult(
        id=f"q{number}",
        question=text or f"Who led the Normans in year {900 + number}?",
        answers=[answer],
        document="Normans",
        found={
            name: Retrieval(
                rank,
                rank,
                None if rank is None else rank * 20,
                f"{answer} led them, {name} says.",
                "Normans, 0-9",
            )
            for name, rank in found.items()
        },
    )


def report(
    strategies: Sequence[StrategyResult],
    questions: Sequence[QuestionResult] = (),
    *,
    language: str = "en",
    name: str = "normans",
    skipped: Sequence[Skipped] = (),
) -> dict[str, Any]:
    """What `Report.to_dict()` returns; the first strategy is compared with each other one."""
    pairs = (
        [(strategies[0], second) for second in strategies[1:]] if strategies and questions else []
    )
    return Report(
        dataset=DatasetInfo(
            name,
            language,
            3,
            40,
            len(questions),
            "characters" if language == "ja" else "words",
            "0f" * 32,
        ),
        settings=RunSettings("MiniLM", "recorded", None, None, 20, LENGTHS, {"python": "3.11.9"}),
        strategies=list(strategies),
        skipped=list(skipped),
        comparisons=[
            Comparison(
                metric, first.name, second.name, first_value - second_value, 0.01, len(questions)
            )
            for metric in ("recall@1", "answer_recall@100")
            for first, second in pairs
            if (first_value := first.metrics[metric]) is not None
            and (second_value := second.metrics[metric]) is not None
        ],
        equal_context=[
            EqualContext(first.name, second.name, 310.5, 0.9, 0.8, 0.1, 0.2, len(questions))
            for first, second in pairs
        ],
        questions=list(questions),
    ).to_dict()
