"""What a comparison found."""

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
from llama_pack_densex.text import markup

FORMAT = 1
"""Of report.json; a number more where a reader of the old one would not understand it."""
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
"""Those of a table that has little room."""


@dataclass(frozen=True)
class DatasetInfo:
    """What was asked about.

    Args:
        name: What the dataset is called.
        language: "en", "ja", ...
        documents: How many.
        passages: How many.
        questions: How many.
        length_unit: "words" or "characters": what lengths of context count.
        hash: SHA-256 of documents, passages, questions and answers.
        gold: What questions name, and gold@k, MRR and nDCG count: the "passage" that holds the answer, or
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
    """How the comparison was run.

    Args:
        embed_model: The embedding model; None: there was none.
        propositionizer: Where propositions came from; None: there were none.
        llm: What wrote contextual headers; None: title and headings did.
        reader_llm: What answered for EM and F1; None: nothing did.
        judge_llm: What judged answers; None: nothing did.
        depth: How many distinct results the metrics of rankings look at.
        lengths: The l of `answer_recall@l`.
        versions: Of the packages and of Python.
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
    """What a strategy costs.

    Args:
        units: Searched units.
        tokens: Their tokens; None where they were not counted.
        index_seconds: Parsing and indexing, without the embedding model.
        query_ms: The median search, without embedding the question.
        context_words: The mean length of the default context.
        context_k: How many nodes it consists of; None if the retriever decides.
        llm_calls: Replies of LLMs that its index and its reader use, those included that were kept from
            earlier runs.
        llm_tokens: Tokens that were sent for them and came back in this run.
        llm_dollars: What these cost in US dollars; None where a price is not known.
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
        name: Its name.
        description: How it was set up.
        ours: Whether it is one of ours.
        metrics: Metric to mean; None where it cannot be given.
        intervals: Metric to its confidence interval, for those that are given.
        cost: What it costs.
        failed: Metric to how many answers or verdicts failed, and are not counted in it; where any did.
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
    """A strategy that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class EqualContext:
    """One of ours, cut to the mean length of another strategy's default context.

    Args:
        first: Ours.
        second: The other.
        words: The other's mean length of context.
        first_recall: The share of questions with an answer within that length of ours.
        second_recall: The share with an answer in the other's context.
        difference: The first minus the second.
        p_value: Of the paired randomisation test.
        questions: How many.
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
    """A question, and by strategy what was found.

    Args:
        id: Its id.
        question: Its text.
        answers: The right answers.
        document: The title of the document that holds the answer; "" if unknown.
        found: Strategy to what it found.
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
        dataset: What was asked about.
        settings: How it was run.
        strategies: Those that were run, in order.
        skipped: Those that were left out.
        comparisons: The pack's main strategy against each other one.
        equal_context: The pack's strategies against each other one, at equal length of context.
        questions: Question by question.

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
        lost = (
            metric
            for result in self.strategies
            for metric in result.failed
            if result.metrics.get(metric) is None
        )
        return list(dict.fromkeys(lost))

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values: what report.json holds.

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
        """The report as JSON.

        Example:
            >>> import json
            >>> json.loads(report.to_json())["strategies"][0]["name"]
            'bm25'
        """
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def to_csv(self) -> str:
        """The strategies' figures as CSV: a row each; columns for metrics with intervals, and for costs.

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
        """The report as one page that needs no network.

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
            # the mark says to spreadsheets that it is UTF-8
            "report.csv": f"\ufeff{self.to_csv()}",
            "report.html": self.to_html(),
        }
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            # a lone surrogate of a document becomes its escape, which JSON reads back
            Path(folder, name).write_bytes(content.encode("utf-8", "backslashreplace"))
        return [Path(folder, name) for name in contents]

    def table(self) -> list[dict[str, str]]:
        """The main figures as text: one row for each strategy, "" for figures that cannot be given.

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
            row["tokens"] = "-" if cost.tokens is None else f"{cost.tokens:,}"
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
        title = f"{self.dataset.name}: {len(self.questions)} questions"
        return markup.block(
            title,
            markup.table([tuple(row.values()) for row in rows], header),
            markup.bullets(skipped),
        )
