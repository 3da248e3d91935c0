"""The metrics of a comparison, one value per question: of retrieved results, and of answers. Pure."""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from llama_pack_densex.evaluation.evaluation_set import EvaluationSet
from llama_pack_densex.evaluation.evidence import Retrievals, Texts
from llama_pack_densex.evaluation.runs import Scores, rank_metrics
from llama_pack_densex.text.language import WITHOUT_SPACES

CUTS = (1, 5, 20)
"""The values of k in recall@k and gold@k."""
SUPPORT_CUTS = (2, 5, 10, 20)
"""The values of k in support@k and all_support@k, for questions that need several documents."""
LENGTHS = tuple(range(0, 501, 50))
"""The values of l in answer_recall@l: the range of figure 4 in Dense X Retrieval."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_RANKED = 10  # the k of MRR and nDCG
_MOSTLY = (
    0.9  # share of a strategy's results that must lie within passages for passages to be ranked
)


@dataclass(frozen=True)
class Metric:
    """The name and explanation of a metric in the report, the terminal and their legends.

    `{unit}` is replaced by "words" or "characters", `{gold}` by what questions name ("passage" or
    "document"), and `{heading}` by what counts as a hit for that.

    Args:
        name: The title of its columns; after an "@", the letter for a number: "k" results, or "l" words.
        group: The heading above its columns.
        meaning: The explanation of its value for a question.
    """

    name: str
    group: str
    meaning: str


_READER = "Reader, first l {unit}"
METRICS = {
    "recall": Metric(
        "R@k",
        "Answer string in the first k passages",
        "an answer is in one of the first k distinct passages; not given for units that span several.",
    ),
    "gold": Metric(
        "gold@k", "{heading} in the first k", "the {gold} that it is about is among the first k."
    ),
    "mrr": Metric(
        "MRR@k",
        "{heading}, ranking",
        "1 divided by the rank of that {gold}, 0 if it is not among the first k.",
    ),
    "ndcg": Metric(
        "nDCG@k",
        "{heading}, ranking",
        "the same with a gentler discount: the logarithm of the rank.",
    ),
    "support": Metric(
        "support@k",
        "Documents that a question needs",
        "the share of them among the first k documents.",
    ),
    "all_support": Metric(
        "all_support@k",
        "Documents that a question needs",
        "all of them are among the first k documents.",
    ),
    "answer_recall": Metric(
        "AR@l",
        "Answer within the first l {unit} of context",
        "an answer is in the first l {unit} of the context; AR: anywhere in the default context.",
    ),
    "em": Metric(
        "EM@l", _READER, "the reader's answer from the first l {unit} is an accepted one."
    ),
    "f1": Metric("F1@l", _READER, "the overlap of that answer and an accepted one."),
    "str_em": Metric("str_em", "Answers", "an accepted answer is in the answer."),
    "answered": Metric("answered", "Answers", 'the answer is not a "not found".'),
    "cited": Metric("cited", "Answers", "the share of its sentences with a footnote."),
    "supported": Metric(
        "supported", "Answers", "the share of its sentences that a proposition states."
    ),
    "context_relevance": Metric(
        "context", "Judged answers", "by the judge: the context is relevant to the question."
    ),
    "groundedness": Metric(
        "grounded", "Judged answers", "by the judge: the answer is grounded in the context."
    ),
    "answer_relevance": Metric(
        "relevant", "Judged answers", "by the judge: the answer is relevant to the question."
    ),
}
"""The metrics that reports show, by name up to "@", in the order of the columns. The table for users is in
docs/evaluation.md."""


def kind_of(metric: str) -> str:
    """Return a metric's name up to "@"."""
    return metric.partition("@")[0]


def title_of(metric: str) -> str:
    """Return the title of a metric's column: "R@5" for "recall@5". Unknown metrics keep their names."""
    kind, at, number = metric.partition("@")
    if kind not in METRICS:
        return metric
    return f"{kind_of(METRICS[kind].name)}{at}{number}"


def within_passages(retrievals: Retrievals) -> bool:
    """Return whether nearly all results lie within the dataset's passages, so that these can be ranked."""
    results = sum(retrieval.results for retrieval in retrievals.values())
    return sum(retrieval.in_passage for retrieval in retrievals.values()) >= _MOSTLY * results


def score(
    dataset: EvaluationSet,
    retrievals: Retrievals,
    in_passages: bool,
    depth: int,
) -> Scores:
    """Compute all metrics that apply to a strategy's results.

    Args:
        dataset: The questions, with what is known about their answers.
        retrievals: The assessed results of each question.
        in_passages: Whether the strategy's results lie within the dataset's passages; recall@k and gold@k are
            given only then.
        depth: How many results were retrieved; metrics at a larger depth are left out.
    """
    answerable = {}
    placed = {}
    for question in dataset.questions:
        if question.answers:
            answerable[question.id] = retrievals[question.id]
        if question.document_id:
            placed[question.id] = retrievals[question.id]
    scores: Scores = {}
    if in_passages:
        scores |= _passage_scores(answerable, placed, depth)
    for length in LENGTHS:
        scores[f"answer_recall@{length}"] = recall_within(answerable, length)
    scores["answer_recall"] = {
        key: float(retrieval.in_context) for key, retrieval in answerable.items()
    }
    k = min(_RANKED, depth)
    if dataset.relevance:
        scores |= _label_scores(dataset, retrievals, k)
    else:
        scores |= _gold_scores(placed, k)
    return {metric: values for metric, values in scores.items() if values}


def _passage_scores(answerable: Retrievals, placed: Retrievals, depth: int) -> Scores:
    cuts = [k for k in CUTS if k <= depth]
    ranks = {key: retrieval.rank for key, retrieval in answerable.items()}
    gold_ranks = {key: retrieval.gold_rank for key, retrieval in placed.items()}
    recalls = {f"recall@{k}": _within(ranks, k) for k in cuts}
    return recalls | {f"gold@{k}": _within(gold_ranks, k) for k in cuts}


def _label_scores(dataset: EvaluationSet, retrievals: Retrievals, k: int) -> Scores:
    """Score labelled documents by MRR and nDCG and, if every question needs several, by support."""
    labels = {key: labelled for key, labelled in dataset.relevance.items() if key in retrievals}
    scores = rank_metrics(labels, {key: retrievals[key].documents for key in labels}, k)
    needed = {}
    for key, labelled in labels.items():
        needed[key] = {document for document, label in labelled.items() if label > 0}
    if all(len(documents) > 1 for documents in needed.values()):
        scores |= _support_scores(needed, retrievals)
    return scores


def _support_scores(needed: Mapping[str, set[str]], retrievals: Retrievals) -> Scores:
    """Score the share of the needed documents among the first k, and whether all of them are."""
    scores: Scores = {}
    for k in SUPPORT_CUTS:
        shares = {
            key: len(documents.intersection(retrievals[key].documents[:k])) / len(documents)
            for key, documents in needed.items()
        }
        scores[f"support@{k}"] = shares
        scores[f"all_support@{k}"] = {key: float(share == 1) for key, share in shares.items()}
    return scores


def _gold_scores(placed: Retrievals, k: int) -> Scores:
    """Score MRR and nDCG with the gold passage as the only right result."""
    scores: Scores = {f"mrr@{k}": {}, f"ndcg@{k}": {}}
    for key, retrieval in placed.items():
        rank = retrieval.gold_rank or math.inf
        is_ranked = rank <= k
        scores[f"mrr@{k}"][key] = is_ranked / rank
        scores[f"ndcg@{k}"][key] = is_ranked / math.log2(rank + 1)
    return scores


def recall_within(retrievals: Retrievals, length: float) -> dict[str, float]:
    """Return 1.0 for each question with a complete answer within this length of context, else 0.0."""
    lengths = {key: retrieval.words for key, retrieval in retrievals.items()}
    return _within(lengths, length)


def _within(values: Mapping[str, int | None], bound: float) -> dict[str, float]:
    """Return 1.0 for values that exist and are at most the bound, else 0.0."""
    return {key: float(value is not None and value <= bound) for key, value in values.items()}


# A reader's answers


def normalise_answer(text: str, language: str = "en") -> str:
    """Normalise an answer for exact match.

    English is treated as in SQuAD's evaluation script (Rajpurkar et al., 2016): lower case, no ASCII
    punctuation, no articles, single spaces. Other languages keep their articles, lose everything that Unicode
    classifies as punctuation, and have their character widths unified (NFKC). Languages that write words
    without spaces lose white space as well, so that "「２０２３ 年」" and "2023年" are equal.

    Args:
        text: The answer.
        language: "en", "ja", ...
    """
    if language != "en":
        text = unicodedata.normalize("NFKC", text)
        text = "".join(
            character for character in text if not unicodedata.category(character).startswith("P")
        )
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    if language == "en":
        text = _ARTICLES.sub(" ", text)
    words = text.split()
    if language in WITHOUT_SPACES:
        return "".join(words)
    return " ".join(words)


def exact_match(answer: str, answers: Texts, language: str = "en") -> float:
    """Return 1.0 if a reader's answer equals a right one after normalisation, else 0.0."""
    rights = [normalise_answer(right, language) for right in answers]
    return float(normalise_answer(answer, language) in rights)


def f1(answer: str, answers: Texts, language: str = "en") -> float:
    """Return the highest F1 of a reader's answer and a right one, over words (in Japanese, characters).

    As in SQuAD's script, an answer that is empty after normalisation matches only another such answer.
    """
    counts = _word_counts(answer, language)
    return max((_f1(counts, _word_counts(right, language)) for right in answers), default=0.0)


def _word_counts(text: str, language: str) -> Counter[str]:
    text = normalise_answer(text, language)
    if language in WITHOUT_SPACES:
        return Counter(text)  # of its characters
    return Counter(text.split())


def _f1(counts: Counter[str], right: Counter[str]) -> float:
    if not counts or not right:
        return float(counts == right)
    return 2 * (counts & right).total() / (counts.total() + right.total())
