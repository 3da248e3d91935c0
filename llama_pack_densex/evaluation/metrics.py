"""The metrics of a comparison, each a value a question: from what was retrieved, and from what was answered.

Pure.
"""

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
"""The k of recall@k and gold@k."""
SUPPORT_CUTS = (2, 5, 10, 20)
"""The k of support@k, the share of the documents that a question needs, and of all_support@k."""
LENGTHS = tuple(range(0, 501, 50))
"""The l of answer_recall@l: what the figure 4 of Dense X Retrieval covers."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_RANKED = 10  # the k of MRR and nDCG
_MOSTLY = 0.9  # of a strategy's results lie in passages


@dataclass(frozen=True)
class Metric:
    """What the report, the terminal and their legends say of a metric.

    `{unit}` stands for words or characters; `{gold}` for what questions name, a passage or a document, and
    `{heading}` for what counts as found there.

    Args:
        title: What its columns are called, up to "@".
        cut: What the number behind "@" is called: "k" results, or "l" words; empty where there is none.
        group: The heading above its columns.
        meaning: What it says of a question.
    """

    title: str
    cut: str
    group: str
    meaning: str

    @property
    def name(self) -> str:
        """Its title with what is behind it."""
        return f"{self.title}@{self.cut}" if self.cut else self.title


_READER = "Reader, first l {unit}"
METRICS = {
    "recall": Metric(
        "R",
        "k",
        "Answer string in the first k passages",
        "an answer is in one of the first k distinct passages; not for units that span several.",
    ),
    "gold": Metric(
        "gold", "k", "{heading} in the first k", "the {gold} that it is about is among the first k."
    ),
    "mrr": Metric(
        "MRR",
        "k",
        "{heading}, ranking",
        "1 divided by the rank of that {gold}, 0 where it is not among the first k.",
    ),
    "ndcg": Metric(
        "nDCG",
        "k",
        "{heading}, ranking",
        "the same with a gentler discount: the logarithm of the rank.",
    ),
    "support": Metric(
        "support",
        "k",
        "Documents that a question needs",
        "the share of them that is among the first k documents.",
    ),
    "all_support": Metric(
        "all_support",
        "k",
        "Documents that a question needs",
        "all of them are among the first k documents.",
    ),
    "answer_recall": Metric(
        "AR",
        "l",
        "Answer within the first l {unit} of context",
        "an answer is in the first l {unit} of the context; AR: anywhere in the default context.",
    ),
    "em": Metric(
        "EM", "l", _READER, "the reader's answer from the first l {unit} is an accepted one."
    ),
    "f1": Metric("F1", "l", _READER, "how much of that answer and of an accepted one is in both."),
    "str_em": Metric("str_em", "", "Answers", "an accepted answer is in the answer."),
    "answered": Metric("answered", "", "Answers", 'the answer is no "not found".'),
    "cited": Metric("cited", "", "Answers", "the share of its sentences with a footnote."),
    "supported": Metric(
        "supported", "", "Answers", "the share of its sentences with a proposition that says them."
    ),
    "context_relevance": Metric(
        "context", "", "Judged answers", "by the judge: the context is relevant to the question."
    ),
    "groundedness": Metric(
        "grounded", "", "Judged answers", "by the judge: the answer is grounded in the context."
    ),
    "answer_relevance": Metric(
        "relevant", "", "Judged answers", "by the judge: the answer is relevant to the question."
    ),
}
"""Of what reports show, by the name up to "@", in their order. The table for users is in
docs/evaluation.md."""


def kind_of(metric: str) -> str:
    """A metric's name up to "@"."""
    return metric.partition("@")[0]


def title_of(metric: str) -> str:
    """What a metric's column is called: "R@5" of "recall@5"; a metric that is not ours as it is."""
    kind, at, number = metric.partition("@")
    return f"{METRICS[kind].title}{at}{number}" if kind in METRICS else metric


def within_passages(retrievals: Retrievals) -> bool:
    """Whether a strategy's units lie within the dataset's passages, so that passages can be counted."""
    results = sum(retrieval.results for retrieval in retrievals.values())
    return sum(retrieval.in_passage for retrieval in retrievals.values()) >= _MOSTLY * results


def score(
    dataset: EvaluationSet,
    retrievals: Retrievals,
    in_passages: bool,
    depth: int,
) -> Scores:
    """All metrics of a strategy that can be given.

    Args:
        dataset: The questions, with what is known about their answers.
        retrievals: What was retrieved for each.
        in_passages: Whether the strategy's results are passages of the dataset: only then are passages
            counted.
        depth: How many results were retrieved; metrics of more are not given.
    """
    answerable = {
        question.id: retrievals[question.id] for question in dataset.questions if question.answers
    }
    placed = {
        question.id: retrievals[question.id]
        for question in dataset.questions
        if question.document_id
    }
    scores: Scores = {}
    if in_passages:
        scores |= _passage_scores(answerable, placed, depth)
    scores |= {f"answer_recall@{length}": recall_within(answerable, length) for length in LENGTHS}
    scores["answer_recall"] = {
        key: float(retrieval.in_context) for key, retrieval in answerable.items()
    }
    k = min(_RANKED, depth)
    scores |= (
        _label_scores(dataset, retrievals, k) if dataset.relevance else _gold_scores(placed, k)
    )
    return {metric: values for metric, values in scores.items() if values}


def _passage_scores(answerable: Retrievals, placed: Retrievals, depth: int) -> Scores:
    cuts = [k for k in CUTS if k <= depth]
    ranks = {key: retrieval.rank for key, retrieval in answerable.items()}
    gold_ranks = {key: retrieval.gold_rank for key, retrieval in placed.items()}
    recalls = {f"recall@{k}": _within(ranks, k) for k in cuts}
    return recalls | {f"gold@{k}": _within(gold_ranks, k) for k in cuts}


def _label_scores(dataset: EvaluationSet, retrievals: Retrievals, k: int) -> Scores:
    """MRR and nDCG of labelled documents; and, where each question needs several, how many are found."""
    labels = {key: labelled for key, labelled in dataset.relevance.items() if key in retrievals}
    scores = rank_metrics(labels, {key: retrievals[key].documents for key in labels}, k)
    needed = {
        key: {document for document, label in labelled.items() if label > 0}
        for key, labelled in labels.items()
    }
    if all(len(documents) > 1 for documents in needed.values()):
        scores |= _support_scores(needed, retrievals)
    return scores


def _support_scores(needed: Mapping[str, set[str]], retrievals: Retrievals) -> Scores:
    """Of the documents that each question needs, the share among the first k, and whether that is all."""
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
    """MRR and nDCG of the gold passage as the only right result."""
    scores: Scores = {f"mrr@{k}": {}, f"ndcg@{k}": {}}
    for key, retrieval in placed.items():
        rank = retrieval.gold_rank or math.inf
        is_ranked = rank <= k
        scores[f"mrr@{k}"][key] = is_ranked / rank
        scores[f"ndcg@{k}"][key] = is_ranked / math.log2(rank + 1)
    return scores


def recall_within(retrievals: Retrievals, length: float) -> dict[str, float]:
    """For each question, 1.0 if an answer is complete within a length of context, else 0.0."""
    lengths = {key: retrieval.words for key, retrieval in retrievals.items()}
    return _within(lengths, length)


def _within(values: Mapping[str, int | None], bound: float) -> dict[str, float]:
    """1.0 where a value is there and no more than a bound, else 0.0."""
    return {key: float(value is not None and value <= bound) for key, value in values.items()}


# A reader's answers


def normalise_answer(text: str, language: str = "en") -> str:
    """An answer as exact match compares it.

    English is treated as SQuAD's evaluation script does (Rajpurkar et al., 2016): lower case, no ASCII
    punctuation, no articles, single spaces. Other languages keep their articles and lose all that Unicode
    calls punctuation, and variants of width become one (NFKC); where words have no spaces between them,
    spaces go as well, so that "「２０２３ 年」" and "2023年" are equal.

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
    return ("" if language in WITHOUT_SPACES else " ").join(text.split())


def exact_match(answer: str, answers: Texts, language: str = "en") -> float:
    """1.0 if a reader's answer equals one of the right ones once normalised, else 0.0."""
    rights = [normalise_answer(right, language) for right in answers]
    return float(normalise_answer(answer, language) in rights)


def f1(answer: str, answers: Texts, language: str = "en") -> float:
    """The F1 of a reader's answer and the nearest right one, over words (in Japanese over characters).

    As in SQuAD's script, an answer of which nothing is left once normalised equals only another such one.
    """
    # normalised, words are separated by spaces, and characters by nothing
    split = list if language in WITHOUT_SPACES else str.split
    counts, *rights = (
        Counter(split(normalise_answer(text, language))) for text in (answer, *answers)
    )
    return max((_f1(counts, right) for right in rights), default=0.0)


def _f1(counts: Counter[str], right: Counter[str]) -> float:
    if not counts or not right:
        return float(counts == right)
    return 2 * (counts & right).total() / (counts.total() + right.total())
