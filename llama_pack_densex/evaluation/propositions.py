"""Propositions scored against a reference for the same passages: F1 of sets (Dense X Retrieval, app. B)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mode
from typing import cast, get_args

import numpy as np
import numpy.typing as npt
from llama_index.core.embeddings import BaseEmbedding

from llama_pack_densex.evaluation.evidence import context_length
from llama_pack_densex.evaluation.records import read_records
from llama_pack_densex.evaluation.runs import require
from llama_pack_densex.evaluation.significance import Interval, bootstrap_intervals
from llama_pack_densex.llm.endpoint import embed_texts
from llama_pack_densex.models import embed_model_identity, resolve_embed_model
from llama_pack_densex.node_parsers.topics import of_length_one
from llama_pack_densex.propositionizers.base import (
    FindingKind,
    Passage,
    Propositionizer,
    checked_sets,
)
from llama_pack_densex.propositionizers.checks import check_propositions
from llama_pack_densex.text.language import WITHOUT_SPACES, detect_language
from llama_pack_densex.text.tokens import compared

Matrix = npt.NDArray[np.float64]
Texts = Sequence[str]
Recorded = tuple[Passage, Texts]

_SHOWN = 60  # characters of a passage that the report names


@dataclass(frozen=True)
class SetScore:
    """The scores of a passage's propositions against its reference; all are 0 if none were predicted."""

    precision: float = 0.0
    recall: float = 0.0
    f1: float = 0.0


@dataclass(frozen=True)
class SetShape:
    """Statistics of a set of propositions.

    Args:
        name: The file, or the class of the propositionizer.
        propositions: The number of propositions.
        a_passage: The mean number of propositions per passage.
        length: The mean length of a proposition in words (in languages without spaces, in characters).
        failing: By check (see `check_propositions`), the share of propositions with a finding; for coverage,
            the share of passages that state something that no proposition does.
    """

    name: str
    propositions: int
    a_passage: float
    length: float
    failing: dict[str, float]


@dataclass(frozen=True)
class PropositionReport:
    """The scores of predicted propositions against a reference.

    Args:
        passages: The number of passages in the reference.
        similarity: The measure of similarity of two propositions.
        scores: "precision", "recall" and "f1", each the mean over the reference's passages.
        intervals: Their 95 % confidence intervals.
        length_unit: "words" or "characters".
        predicted: Statistics of the predicted propositions, over the passages that both have.
        reference: Statistics of the reference's propositions.
        missing: Passages of the reference that the prediction lacks; they score 0.
        extra: Passages that the reference lacks; they are ignored.
    """

    passages: int
    similarity: str
    scores: dict[str, float]
    intervals: dict[str, Interval]
    length_unit: str
    predicted: SetShape
    reference: SetShape
    missing: list[str]
    extra: list[str]


def score_propositions(
    predicted: Path | Propositionizer,
    reference: Path,
    similarity: EmbeddingSimilarity | BertScoreSimilarity,
) -> PropositionReport:
    """Score propositions against a reference for the same passages, as Dense X Retrieval does.

    Precision, recall and F1 are computed for each passage (appendix B), and averaged over the reference's
    passages. The paper defines them for one passage and gives one number for 1,000 of them, which we take to
    be that mean. Its similarity is BERTScore with roberta-large; it does not say whether it is rescaled with
    a baseline, so scores cannot be compared with its 0.822 with certainty.

    Args:
        predicted: A recorded file (JSONL with title, text and propositions), or a propositionizer, which is
            run on the reference's passages.
        reference: A recorded file. Passages are matched by their text, ignoring white space and the width of
            characters.
        similarity: `EmbeddingSimilarity` or `BertScoreSimilarity`.

    Raises:
        ValueError: A line is not a passage with propositions, or the files have no passage in common.
        OSError: A file cannot be read.

    Example:
        >>> from pathlib import Path
        >>> from llama_index.core import MockEmbedding
        >>> from llama_pack_densex import SentencePropositionizer
        >>> from llama_pack_densex.evaluation import EmbeddingSimilarity, score_propositions
        >>> line = '{"text": "Miso is salty and keeps.", "propositions": ["Miso is salty.", "Miso keeps."]}'
        >>> _ = Path("reference.jsonl").write_text(line)
        >>> similarity = EmbeddingSimilarity(MockEmbedding(8))  # in practice: a real model
        >>> report = score_propositions(SentencePropositionizer(), Path("reference.jsonl"), similarity)
        >>> report.passages, report.predicted.propositions, report.reference.propositions
        (1, 1, 2)
    """
    expected = read_recorded(reference)
    if isinstance(predicted, Path):
        name = predicted.name
        predictions = read_recorded(predicted)
    else:
        name = predicted.class_name()
        predictions = _predict(predicted, expected)
    shared = [key for key in expected if key in predictions]
    if not shared:
        raise ValueError(
            f"{name} and {reference} have no passage in common: were the documents split alike?"
        )
    scored = dict.fromkeys(expected, SetScore())
    for key in shared:
        scored[key] = set_score(similarity.matrix(predictions[key][1], expected[key][1]))
    intervals = bootstrap_intervals(_by_metric(scored))
    language = mode(
        detect_language(passage.text, passage.title) for passage, _ in expected.values()
    )
    return PropositionReport(
        passages=len(expected),
        similarity=similarity.name,
        scores={metric: interval.mean for metric, interval in intervals.items()},
        intervals=intervals,
        length_unit="characters" if language in WITHOUT_SPACES else "words",
        predicted=_shape(name, [predictions[key] for key in shared], language),
        reference=_shape(reference.name, list(expected.values()), language),
        missing=_only_in(expected, predictions),
        extra=_only_in(predictions, expected),
    )


def _by_metric(scores: Mapping[str, SetScore]) -> dict[str, dict[str, float]]:
    by_metric = {}
    for metric in ("precision", "recall", "f1"):
        by_metric[metric] = {key: getattr(score, metric) for key, score in scores.items()}
    return by_metric


def _predict(
    propositionizer: Propositionizer, expected: Mapping[str, Recorded]
) -> dict[str, Recorded]:
    passages = [passage for passage, _ in expected.values()]
    sets = checked_sets(propositionizer, passages, propositionizer.propositionize(passages))
    recorded = [(passage, item.texts) for passage, item in zip(passages, sets, strict=True)]
    return dict(zip(expected, recorded, strict=True))


def _only_in(recorded: Mapping[str, Recorded], other: Mapping[str, Recorded]) -> list[str]:
    """Return a title and excerpt for each passage that the other lacks."""
    names = []
    for key, (passage, _) in recorded.items():
        if key not in other:
            text = " ".join(passage.text.split())
            if len(text) > _SHOWN:
                text = f"{text[:_SHOWN]}…"
            names.append(f"{passage.title or 'untitled'}: {text}")
    return names


def set_score(similarities: Matrix) -> SetScore:
    """Return the precision, recall and F1 of a set of propositions (Dense X Retrieval, appendix B).

    Args:
        similarities: The similarity of each predicted proposition (a row) to each reference proposition (a
            column).

    Returns:
        Precision: the mean, over the predicted propositions, of the similarity to the most similar reference
            proposition.
        Recall: the same over the reference propositions. F1: the harmonic mean of both.
    """
    precision = float(similarities.max(axis=1).mean())
    recall = float(similarities.max(axis=0).mean())
    total = precision + recall
    f1 = 0.0
    if total > 0:
        f1 = 2 * precision * recall / total
    return SetScore(precision, recall, f1)


class EmbeddingSimilarity:
    """The cosine similarity of two propositions' embeddings.

    Args:
        model: As the pack's `embed_model`; both propositions are embedded as texts, not as queries.

    Raises:
        ValueError: There is no such model, or none is named and there is no default.
        ImportError: The model's package is not installed.

    Example:
        >>> from llama_index.core import MockEmbedding
        >>> from llama_pack_densex.evaluation import EmbeddingSimilarity
        >>> similarity = EmbeddingSimilarity(MockEmbedding(8))
        >>> similarity.matrix(["Miso is salty."], ["Miso keeps.", "Tea is bitter."]).shape
        (1, 2)
    """

    def __init__(self, model: BaseEmbedding | str | None = None) -> None:
        resolved, phrase = resolve_embed_model(model)
        if not resolved:
            raise ValueError(
                f"the embedding model is {phrase}: name one (--embed-model), or pass --bert-score"
            )
        self._model = resolved
        self.name = f"cosine of {embed_model_identity(resolved)}"

    def matrix(self, predicted: Texts, reference: Texts) -> Matrix:
        """Return the similarity of each predicted text (a row) and each reference text (a column).

        The array has the shape (predicted, reference).

        Example:
            >>> similarity.matrix(["Miso is salty."], ["Miso is salty."]).round(3).tolist()
            [[1.0]]
        """
        vectors = np.asarray(embed_texts(self._model, [*predicted, *reference]), np.float64)
        rows, columns = np.split(of_length_one(vectors), [len(predicted)])
        return cast("Matrix", rows @ columns.T)


class BertScoreSimilarity:
    """BERTScore's F1 (Zhang et al., 2020), without idf weighting and without rescaling by a baseline.

    Args:
        model: A name on the Hugging Face Hub, such as "roberta-large", which the paper uses, or a folder.
        num_layers: The layer whose vectors are compared; None for bert-score's choice, if it knows the model.

    Raises:
        ImportError: bert-score is not installed.
        ValueError: The layer is not known, or there is no such model.

    Example:
        >>> from llama_pack_densex.evaluation import BertScoreSimilarity
        >>> # not run: downloads 1.4 GB of weights
        >>> similarity = BertScoreSimilarity("roberta-large")  # doctest: +SKIP
        >>> similarity.matrix(["Miso is salty."], ["Miso keeps.", "Tea is bitter."]).shape  # doctest: +SKIP
        (1, 2)
    """

    def __init__(self, model: str, num_layers: int | None = None) -> None:
        library = require("bert_score", "bert-score", "BERTScore", "bertscore")
        layer = num_layers or library.utils.model2layers.get(model)
        if layer is None:
            raise ValueError(
                f"bert-score does not know the best layer of {model!r}: say which (num_layers)"
            )
        try:
            self._scorer = library.BERTScorer(model_type=model, num_layers=layer)
        except (OSError, AssertionError, ValueError) as error:
            raise ValueError(f"BERTScore cannot use {model!r}, layer {layer}: {error}") from error
        self.name = f"BERTScore by {model}, layer {layer}, not rescaled"

    def matrix(self, predicted: Texts, reference: Texts) -> Matrix:
        """Return the similarity of each predicted text (a row) and each reference text (a column)."""
        rows, columns = zip(*product(predicted, reference), strict=True)
        f1 = self._scorer.score(list(rows), list(columns))[2]
        return np.asarray(f1, dtype=np.float64).reshape(len(predicted), len(reference))


def read_recorded(path: Path) -> dict[str, Recorded]:
    """Read the passages of a recorded file that have propositions, keyed by their normalised text.

    If several lines have the same passage, the last one counts.

    Raises:
        ValueError: A line is not a passage with propositions, or no passage has any.
        OSError: The file cannot be read.
    """
    recorded: dict[str, Recorded] = {}
    for record in read_records(path):
        passage = Passage(record.text("text"), record.title, record.text("section", default=""))
        texts = record.texts("propositions")
        if texts:
            recorded[compared(passage.text)] = passage, texts
    if not recorded:
        raise ValueError(f"{path}: no line has a passage with propositions")
    return recorded


def _shape(name: str, recorded: Sequence[Recorded], language: str) -> SetShape:
    texts = [text for _, propositions in recorded for text in propositions]
    faults: Counter[str] = Counter()
    for passage, propositions in recorded:
        findings = check_propositions(passage, propositions)
        distinct = {(finding.kind, finding.proposition) for finding in findings}
        faults.update(kind for kind, _ in distinct)
    totals = dict.fromkeys(get_args(FindingKind), len(texts)) | {"coverage": len(recorded)}
    return SetShape(
        name,
        propositions=len(texts),
        a_passage=len(texts) / len(recorded),
        length=context_length(texts, language) / len(texts),
        failing={kind: faults[kind] / total for kind, total in totals.items()},
    )
