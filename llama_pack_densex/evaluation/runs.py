"""Run files and relevance labels in TREC's and ranx's formats, and the scoring and comparison of runs.

Nothing here needs LlamaIndex, which takes seconds to import.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations, product
from pathlib import Path
from typing import Any

from llama_pack_densex.evaluation.significance import (
    Comparison,
    Interval,
    bootstrap_intervals,
    compare_systems,
)

# the first bytes of a compressed file
_GZIP = b"\x1f\x8b"
_LZ4 = b'\x04"M\x18'
_SHORT = 15  # numba uses insertion sort if the last index is less than this above the first

Run = dict[str, dict[str, float]]
"""Question id to document id to score, in the order of the file."""
Qrels = dict[str, dict[str, int]]
"""Question id to document id to label, above 0 for relevant documents."""


Scores = dict[str, dict[str, float]]
"""Metric name to question id to value. A question whose reader failed has no value for the metric: it counts
neither as a zero nor as a success."""


@dataclass(frozen=True)
class RunScore:
    """The scores of a run.

    Args:
        name: The run file's name without its suffix, or its path if two runs have the same name.
        scores: Metric name to mean.
        intervals: Metric name to the mean's 95 % confidence interval.
        unanswered: The number of labelled questions that the run lacks; they score 0.
    """

    name: str
    scores: dict[str, float]
    intervals: dict[str, Interval]
    unanswered: int


@dataclass(frozen=True)
class ScoreReport:
    """The scores of all runs, and comparisons of all pairs of runs.

    Args:
        qrels: The path of the labels.
        questions: The number of questions with labels.
        runs: The runs, in the order given.
        comparisons: Every pair of runs, metric by metric.
    """

    qrels: str
    questions: int
    runs: list[RunScore]
    comparisons: list[Comparison]


def _remove_own_documents(
    rankings: Mapping[str, list[str]], labels: Mapping[str, Mapping[str, float]]
) -> None:
    """Remove documents that are the question itself from rankings, unless they are labelled as relevant."""
    for question, ranking in rankings.items():
        if question in ranking and labels[question].get(question, 0) <= 0:
            ranking.remove(question)


def score_runs(qrels: Path, runs: Sequence[Path], ignore_identical_ids: bool = True) -> ScoreReport:
    """Score run files by nDCG@10 and MRR@10, as JQaRA's evaluator does.

    Args:
        qrels: The labels: TREC text, BEIR's TSV, or ranx's JSON or lz4.
        runs: The runs: TREC text, or ranx's JSON or lz4. Documents with equal scores are ranked as JQaRA's
            evaluator ranks them.
        ignore_identical_ids: Whether to leave a document with the question's id out of its ranking, as BEIR
            does, since it is the question itself. One that is labelled as relevant stays.

    Raises:
        ValueError: A file has another format, or a run has none of the questions.
        OSError: A file cannot be read.
        ImportError: ir-measures is not installed, or cbor2 for an lz4 file.

    Example:
        >>> from pathlib import Path
        >>> from llama_pack_densex.evaluation import score_runs
        >>> _ = Path("qrels.json").write_text('{"1": {"a": 1, "b": 0}, "2": {"c": 2}}')
        >>> _ = Path("run.json").write_text('{"1": {"a": 2.5, "b": 1.5}, "2": {"x": 9, "c": 8}}')
        >>> score_runs(Path("qrels.json"), [Path("run.json")]).runs[0].scores["mrr@10"]
        0.75
    """
    labels = read_qrels(qrels)
    results = []
    scores = {}
    for name, path in zip(_names(runs), runs, strict=True):
        run = read_run(path)
        rankings = {question: rank(run[question]) for question in labels if question in run}
        if not rankings:
            raise ValueError(
                f"{path}: it has none of the questions that have labels; is it a run of another dataset?"
            )
        if ignore_identical_ids:
            _remove_own_documents(rankings, labels)
        scores[name] = rank_metrics(labels, rankings)
        intervals = bootstrap_intervals(scores[name])
        means = {metric: interval.mean for metric, interval in intervals.items()}
        results.append(RunScore(name, means, intervals, len(labels) - len(rankings)))
    comparisons = []
    for metric, (first, second) in product(("ndcg@10", "mrr@10"), combinations(scores, 2)):
        comparisons.append(compare_systems(scores, metric, first, second))
    return ScoreReport(str(qrels), len(labels), results, comparisons)


def _names(runs: Sequence[Path]) -> list[str]:
    """Return the names of the files without suffix, or their paths if two have the same name."""
    for names in ([path.stem for path in runs], [str(path) for path in runs]):
        if len({*names}) == len(runs):
            return names
    raise ValueError(f"one of these runs is given twice: {', '.join(names)}")


def rank(scores: Mapping[str, float]) -> list[str]:
    """Sort ids by falling score, with ties in the order of ranx (0.3, with numba).

    Many published figures, JQaRA's among them, were computed by ranx, which sorts a run with numba's
    `argsort`: a quicksort that is not stable. Systems that round their scores have thousands of ties. For
    JQaRA's run of ruri-small, nDCG@10 is 0.5357 with ties in the file's order, 0.5360 in trec_eval's (by id),
    and 0.5359, the published figure, in ranx's. The order depends only on the scores and their order in the
    file.

    Args:
        scores: Id to score, in the order of the run file.
    """
    ids = list(scores)
    keys = [-score for score in scores.values()]
    return [ids[place] for place in _argsort(keys)]


def _argsort(keys: Sequence[float]) -> list[int]:
    """Return the indices that sort the keys, by numba's quicksort, which goes on with the shorter part."""
    order = list(range(len(keys)))
    waiting = [(0, len(keys) - 1)]
    while waiting:
        low, high = waiting.pop()
        while high - low >= _SHORT:
            pivot = _partition(keys, order, low, high)
            if high - pivot > pivot - low:
                waiting.append((pivot + 1, high))
                high = pivot - 1
            else:
                waiting.append((low, pivot - 1))
                low = pivot + 1
        # insertion sort is stable, and so is this
        order[low : high + 1] = sorted(order[low : high + 1], key=keys.__getitem__)
    return order


def _partition(keys: Sequence[float], order: list[int], low: int, high: int) -> int:
    """Move smaller keys before a pivot, the median of three; return the pivot's index."""
    middle = (low + high) // 2
    for left, right in ((low, middle), (middle, high), (low, middle)):
        if keys[order[right]] < keys[order[left]]:
            _swap(order, left, right)
    pivot = keys[order[middle]]
    _swap(order, middle, high)
    left = low
    right = high - 1
    while True:
        while left < high and keys[order[left]] < pivot:
            left += 1
        while right >= low and pivot < keys[order[right]]:
            right -= 1
        if left >= right:
            break
        _swap(order, left, right)
        left += 1
        right -= 1
    _swap(order, left, high)
    return left


def _swap(order: list[int], first: int, second: int) -> None:
    order[first], order[second] = order[second], order[first]


def rank_metrics(
    relevance: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Sequence[str]],
    k: int = 10,
) -> Scores:
    """Score rankings of ids against relevance labels by `ndcg@k` and `mrr@k`, with ir-measures.

    Args:
        relevance: Question id to document id to label, above 0 for relevant documents. All of these questions
            are scored.
        rankings: Question id to document ids, best first. A repeated id counts at its first rank only; a
            question without a ranking, or with an empty one, scores 0.
        k: The number of ranks that count.

    Raises:
        ImportError: ir-measures is not installed.
    """
    library = require("ir_measures", "ir-measures", "scoring rankings")
    names = {library.nDCG @ k: f"ndcg@{k}", library.RR @ k: f"mrr@{k}"}
    scores: Scores = {name: dict.fromkeys(relevance, 0.0) for name in names.values()}
    runs: Run = {}
    for question, labels in relevance.items():
        ranking = dict.fromkeys(rankings.get(question, ()))
        if labels and ranking:
            runs[question] = {document: float(-place) for place, document in enumerate(ranking)}
    if runs:
        labelled = {question: relevance[question] for question in runs}
        for result in library.iter_calc([*names], labelled, runs):
            scores[names[result.measure]][result.query_id] = float(result.value)
    return scores


def read_run(path: Path) -> Run:
    """Read a run: TREC text (question, "Q0", document, rank, score, tag), or ranx's JSON or lz4.

    The format is detected from the content, and gzip is unpacked. As in trec_eval and ranx, documents are
    ordered by score, not by TREC's rank.

    Raises:
        ValueError: The file is not a run; the message names the line.
        OSError: The file cannot be read.
    """
    run: Run = {}
    for where, question, document, score in _entries(
        path, "score", "question Q0 document rank score tag"
    ):
        if document in run.setdefault(question, {}):
            raise ValueError(
                f"{where}: the document {document} occurs twice for the question {question}"
            )
        run[question][document] = score
    return run


def read_qrels(path: Path) -> Qrels:
    """Read relevance labels: TREC text (question, iteration, document, label), BEIR's TSV, ranx's JSON, lz4.

    Raises:
        ValueError: The file holds no labels; the message names the line.
        OSError: The file cannot be read.
    """
    qrels: Qrels = {}
    for where, question, document, label in _entries(path, "label", "question 0 document label"):
        if not label.is_integer():
            raise ValueError(f"{where}: the label {label} is not a whole number")
        qrels.setdefault(question, {})[document] = int(label)
    if not qrels:
        raise ValueError(f"{path}: expected relevance labels, and there are none")
    return qrels


_BEIR_HEADER = ["query-id", "corpus-id", "score"]
_MAPPING = "expected an object of questions, each with an object of documents and values, as ranx writes it"


def _entries(path: Path, value: str, line: str) -> Iterator[tuple[str, str, str, float]]:
    """Yield (place in the file, question, document, value) for each entry of a run or of labels.

    Args:
        path: The file.
        value: The name of the value.
        line: The names of the columns of a line, among them "question", "document" and the value's.
    """
    data, is_cbor = _unpack(path)
    if is_cbor or data.lstrip()[:1] == b"{":
        entries = _mapping_entries(path, data, is_cbor)
    else:
        entries = _line_entries(path, data, value, line)
    for where, question, document, raw in entries:
        try:
            number = float(raw)
        except (ValueError, TypeError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{where}: the {value} {raw!r} is not a number")
        yield where, question, document, number


def _unpack(path: Path) -> tuple[bytes, bool]:
    """Return a file's content, and whether it is ranx's CBOR, which is compressed with lz4 once or twice."""
    data = path.read_bytes()
    is_cbor = False
    while data.startswith((_GZIP, _LZ4)):
        compression = "gzip" if data.startswith(_GZIP) else "lz4"
        pyarrow = require("pyarrow", "pyarrow", f"{path} is compressed, which")
        try:
            data = pyarrow.input_stream(pyarrow.BufferReader(data), compression=compression).read()
        except OSError as error:
            raise ValueError(f"{path}: the {compression} data is damaged ({error})") from error
        is_cbor = compression == "lz4"
    return data, is_cbor


def _mapping_entries(path: Path, data: bytes, is_cbor: bool) -> Iterator[tuple[str, str, str, Any]]:
    library = json
    if is_cbor:
        library = require("cbor2", "cbor2", f"reading {path}", extra="")
    try:
        questions = library.loads(data)
    except Exception as error:
        # cbor2's errors have no common class that is public in all its versions
        raise ValueError(f"{path}: it cannot be decoded ({error}); {_MAPPING}") from error
    if not isinstance(questions, dict):
        raise ValueError(f"{path}: {_MAPPING}")
    for question, documents in questions.items():
        where = f"{path}, question {question}"
        if not isinstance(documents, dict):
            raise ValueError(f"{where}: {_MAPPING}")
        for document, value in documents.items():
            yield where, str(question), str(document), value


def _line_entries(
    path: Path, data: bytes, value: str, line: str
) -> Iterator[tuple[str, str, str, Any]]:
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f'{path}: it is neither UTF-8 text nor a file that ranx wrote; expected lines of "{line}"'
        ) from error
    separator = None
    if lines and lines[0].split() == _BEIR_HEADER:  # its ids may have spaces
        lines[0] = ""
        separator = "\t"
        line = f"question document {value}"
    names = line.split()
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        where = f"{path}, line {number}"
        fields = text.split(separator)
        if len(fields) != len(names):
            raise ValueError(
                f'{where}: {len(fields)} columns; expected the {len(names)} of "{line}"'
            )
        by_name = dict(zip(names, fields, strict=True))
        yield where, by_name["question"], by_name["document"], by_name[value]


def require(module: str, package: str, purpose: str, extra: str = "evaluation") -> Any:
    """Import a module that may not be installed.

    Args:
        module: The module.
        package: The distribution that contains it.
        purpose: What needs it, as the beginning of the error.
        extra: The extra that installs it; "" if there is none, and it is installed by itself.

    Raises:
        ImportError: The module is not installed; the message says how to install it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        requirement = package
        if extra:
            requirement = f'"llama-pack-densex[{extra}]"'
        raise ImportError(
            f"{purpose} needs the package {package}: install it with: pip install {requirement}"
        ) from error
