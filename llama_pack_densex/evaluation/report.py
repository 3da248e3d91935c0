"""The report of a comparison: its data model, and its forms as JSON, CSV, HTML and text."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from llama_pack_densex.evaluation.evidence import Retrieval
from llama_pack_densex.evaluation.significance import Comparison
from llama_pack_densex.index.manifest import write_whole
from llama_pack_densex.text import markup

FORMAT = 1
"""The version of report.json, raised when readers of the old version could not read the new one."""
COMPARED = (
    "recall@1",
    "recall@5",
    "gold@1",
    "answer_recall@100",
    "answer_recall@200",
    "answer_recall@500",
)
"""The metrics whose differences are tested."""
MAIN = (*COMPARED, "answer_recall", "ndcg@10")
"""The metrics in a table with little room."""


@dataclass(frozen=True)
class DatasetInfo:
    """The dataset of a comparison.

    Args:
        name: The dataset's name.
        language: "en", "ja", ...
        documents: The number of documents.
        passages: The number of passages.
        questions: The number of questions.
        length_unit: The unit of context lengths: "words" or "characters".
        hash: SHA-256 of documents, passages, questions and answers.
        gold: What questions name as gold, for gold@k, MRR and nDCG: the "passage" that holds the answer, or
            only the "document".
    """

    name: str
    language: str
    documents: int
    passages: int
    questions: int
    length_unit: str
    hash: str
    gold: str = "passage"


@dataclass(frozen=True)
class RunSettings:
    """The settings of a comparison.

    Args:
        embed_model: The embedding model; None if there was none.
        propositionizer: The source of the propositions; None if there was none.
        llm: The LLM that wrote contextual headers; None if they were made from title and headings.
        reader_llm: The LLM that answered for EM and F1; None if there was none.
        judge_llm: The LLM that judged answers; None if there was none.
        depth: How many distinct results rankings consist of.
        lengths: The values of l in `answer_recall@l`.
        versions: The versions of the packages and of Python.
    """

    embed_model: str | None
    propositionizer: str | None
    llm: str | None
    reader_llm: str | None
    depth: int
    lengths: list[int]
    versions: dict[str, str]
    judge_llm: str | None = None


@dataclass(frozen=True)
class Cost:
    """The cost of a strategy.

    Args:
        units: The number of units that are searched.
        tokens: The tokens in these units; None if they were not counted.
        index_seconds: The seconds for parsing and indexing, without the embedding model.
        query_ms: The median milliseconds per search, without embedding the question.
        context_words: The mean length of the default context.
        context_k: The number of nodes in it; None if the retriever decides.
        llm_calls: The number of LLM replies that the strategy used, including cached ones.
        llm_tokens: The tokens sent and received for them in this run.
        llm_dollars: The cost of these in US dollars; None if a price is unknown.
    """

    units: int
    tokens: int | None
    index_seconds: float
    query_ms: float
    context_words: float
    context_k: int | None
    llm_calls: int = 0
    llm_tokens: int = 0
    llm_dollars: float | None = 0.0


@dataclass(frozen=True)
class StrategyResult:
    """A strategy's figures.

    Args:
        name: The strategy's name.
        description: How it was set up.
        ours: Whether it is one of the pack's own.
        metrics: Metric to mean; None if it does not apply to the strategy.
        intervals: Metric to confidence interval, for metrics that have a mean.
        cost: The strategy's cost.
        failed: Metric to the number of answers or verdicts that failed and are not counted, if any did.
    """

    name: str
    description: str
    ours: bool
    metrics: dict[str, float | None]
    intervals: dict[str, tuple[float, float]]
    cost: Cost
    failed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Skipped:
    """A strategy that was left out, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class EqualContext:
    """One of our strategies, cut to the mean length of another strategy's default context.

    Args:
        first: The name of our strategy.
        second: The name of the other strategy.
        words: The mean length of the other strategy's context.
        first_recall: The share of questions with an answer within that length of our context.
        second_recall: The share of questions with an answer in the other's context.
        difference: The first recall minus the second.
        p_value: The p-value of the paired randomisation test.
        questions: The number of questions.
    """

    first: str
    second: str
    words: float
    first_recall: float
    second_recall: float
    difference: float
    p_value: float
    questions: int


@dataclass(frozen=True)
class QuestionResult:
    """A question, and what each strategy found.

    Args:
        id: The question's id.
        question: The question's text.
        answers: The right answers.
        document: The title of the document that holds the answer; "" if unknown.
        found: Strategy to the assessment of its results.
    """

    id: str
    question: str
    answers: list[str]
    document: str
    found: dict[str, Retrieval]


@dataclass(frozen=True)
class Report:
    """A comparison of strategies over the same documents, questions and embeddings.

    Args:
        dataset: The dataset.
        settings: The settings of the comparison.
        strategies: The strategies that were run, in order.
        skipped: The strategies that were left out.
        comparisons: The pack's main strategy against every other one.
        equal_context: Each of the pack's strategies against each other strategy, at equal context length.
        questions: The results question by question.

    Example:
        >>> from llama_pack_densex import compare, load_sample
        >>> sample = load_sample("en")
        >>> report = compare(sample.documents, sample.questions, ["bm25"], embed_model="none")
        >>> report.dataset.documents, report.dataset.questions, report.dataset.language
        (7, 30, 'en')
    """

    dataset: DatasetInfo
    settings: RunSettings
    strategies: list[StrategyResult]
    skipped: list[Skipped]
    comparisons: list[Comparison]
    equal_context: list[EqualContext]
    questions: list[QuestionResult]

    @property
    def all_failed(self) -> list[str]:
        """The metrics that a strategy lacks because all answers or verdicts failed.

        Example:
            >>> report.all_failed
            []
        """
        lost: dict[str, None] = {}
        for result in self.strategies:
            for metric in result.failed:
                if result.metrics.get(metric) is None:
                    lost[metric] = None
        return list(lost)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values, as in report.json.

        Example:
            >>> report.to_dict()["dataset"]["questions"]
            30
        """
        questions = []
        for question in self.questions:
            retrievals = {name: retrieval.to_dict() for name, retrieval in question.found.items()}
            questions.append({**vars(question), "found": retrievals})
        return {"format": FORMAT, **asdict(replace(self, questions=[])), "questions": questions}

    def to_json(self) -> str:
        """Return the report as JSON.

        Example:
            >>> import json
            >>> json.loads(report.to_json())["strategies"][0]["name"]
            'bm25'
        """
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def to_csv(self) -> str:
        """Return the strategies' figures as CSV: one row each, with metrics, their intervals, and costs.

        Example:
            >>> report.to_csv().splitlines()[0].split(",")[:3]
            ['strategy', 'recall@1', 'recall@1 low']
        """
        rows = []
        for result in self.strategies:
            row: dict[str, object] = {"strategy": result.name}
            for name, value in result.metrics.items():
                low, high = result.intervals.get(name, (None, None))
                row |= {name: value, f"{name} low": low, f"{name} high": high}
                if name in result.failed:
                    row[f"{name} failed"] = result.failed[name]
            rows.append(row | asdict(result.cost))
        out = io.StringIO()
        writer = csv.DictWriter(out, dict.fromkeys(chain.from_iterable(rows)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def to_html(self) -> str:
        """Return the report as one HTML page that needs no network.

        Example:
            >>> report.to_html()[:15]
            '<!doctype html>'
        """
        from llama_pack_densex.evaluation.page import render

        return render(self.to_dict())

    def write(self, folder: str | Path) -> list[Path]:
        """Write report.json, report.csv and report.html.

        Args:
            folder: The folder to write to; it is created if missing.

        Returns:
            The files.

        Raises:
            OSError: One cannot be written.

        Example:
            >>> [file.name for file in report.write("comparison")]
            ['report.json', 'report.csv', 'report.html']
        """
        contents = {
            "report.json": self.to_json(),
            # the byte-order mark tells spreadsheets that it is UTF-8
            "report.csv": f"\ufeff{self.to_csv()}",
            "report.html": self.to_html(),
        }
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_whole(Path(folder, name), content)
        return [Path(folder, name) for name in contents]

    def table(self) -> list[dict[str, str]]:
        """Return the main figures as text: one row per strategy, "" for figures that do not apply.

        Example:
            >>> report.table()[0]["strategy"]
            'bm25'
        """
        metrics = [result.metrics for result in self.strategies]
        shown = [name for name in MAIN if any(values.get(name) is not None for values in metrics)]
        rows = []
        for result in self.strategies:
            row = {"strategy": result.name}
            for name in shown:
                value = result.metrics.get(name)
                row[name] = "" if value is None else f"{value:.3f}"
            cost = result.cost
            row["context"] = f"{cost.context_words:,.0f}"
            row["units"] = f"{cost.units:,}"
            row["tokens"] = "-"
            if cost.tokens is not None:
                row["tokens"] = f"{cost.tokens:,}"
            row["index s"] = f"{cost.index_seconds:.1f}"
            row["query ms"] = f"{cost.query_ms:.1f}"
            rows.append(row)
        return rows

    def __repr__(self) -> str:
        names = ", ".join(result.name for result in self.strategies)
        return f"Report({self.dataset.name!r}: {names}; {len(self.questions)} questions)"

    def _repr_html_(self) -> str:
        rows = self.table()
        skipped = [f"{strategy.name}: {strategy.reason}" for strategy in self.skipped]
        header = tuple(rows[0]) if rows else ()
        return markup.block(
            f"{self.dataset.name}: {len(self.questions)} questions",
            markup.table([tuple(row.values()) for row in rows], header),
            markup.bullets(skipped),
        )
