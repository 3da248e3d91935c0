"""How near propositions come to others of the same passages: the F1 of two sets (Dense X Retrieval, appendix B)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from statistics import fmean, mode
from typing import get_args

import numpy as np
import numpy.typing as npt
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.utils import iter_batch

from llama_pack_densex.evaluation.judging import context_length
from llama_pack_densex.evaluation.records import read_records
from llama_pack_densex.evaluation.runs import require
from llama_pack_densex.evaluation.significance import Interval, bootstrap_interval
from llama_pack_densex.models import embed_model_identity, resolve_embed_model
from llama_pack_densex.propositionizers.base import FindingKind, Passage, Propositionizer, checked_sets
from llama_pack_densex.propositionizers.checks import check_propositions
from llama_pack_densex.text.language import WITHOUT_SPACES, detect_language
from llama_pack_densex.text.tokens import compared

Matrix = npt.NDArray[np.float64]
Texts = Sequence[str]

_SHOWN = 60  # characters of a passage that is named
_AT_ONCE = 16  # passages whose pairs of propositions are compared together


@dataclass(frozen=True)
class SetScore:
    """How near a set of propositions comes to another of the same passage; all are 0 where it has none."""

    precision: float = 0.0
    recall: float = 0.0
    f1: float = 0.0


@dataclass(frozen=True)
class SetShape:
    """What the propositions of passages are like.

    Args:
        name: The file, or what made them.
        propositions: How many there are.
        a_passage: How many a passage, on average.
        length: The words of one (in languages without spaces the characters), on average.
        failing: By check, the share of propositions that it finds fault with (see `check_propositions`); for coverage,
            the share of passages that say what no proposition does.
    """

    name: str
    propositions: int
    a_passage: float
    length: float
    failing: dict[str, float]


@dataclass(frozen=True)
class PropositionReport:
    """How near predicted propositions come to a reference.

    Args:
        passages: How many passages of the reference were scored.
        similarity: What says how alike two propositions are.
        scores: "precision", "recall" and "f1", each the mean over the reference's passages.
        intervals: Their 95 % confidence intervals.
        length_unit: "words" or "characters".
        predicted: What the predicted propositions are like, of passages that both have.
        reference: What the reference's are like.
        missing: Passages of the reference that the prediction has nothing of; they count as 0.
        extra: Passages that the reference has nothing of; they do not count.
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
    predicted: Path | Propositionizer, reference: Path, similarity: EmbeddingSimilarity | BertScoreSimilarity
) -> PropositionReport:
    """Score propositions against others of the same passages, as Dense X Retrieval scores its Propositionizer.

    Precision and recall are those of `set_score`, passage by passage, and so is F1; each is then averaged over the
    reference's passages. The paper defines them for one passage and gives one number for 1,000 of them, which we take
    for that mean. Its similarity is BERTScore with roberta-large; whether rescaled by a baseline it does not say, so
    that its 0.822 can only be set beside figures of the same model by a guess.

    Args:
        predicted: A recorded file (JSONL with title, text and propositions), or what is to make propositions of the
            reference's passages.
        reference: A recorded file. Passages are matched by their text, without regard to white space and width.
        similarity: `EmbeddingSimilarity` or `BertScoreSimilarity`.

    Raises:
        ValueError: A line is no passage with propositions, or the files have no passage in common.
        OSError: A file cannot be read.
    """
    expected = _read(reference)
    if isinstance(predicted, Path):
        name, made = predicted.name, _read(predicted)
    else:
        name, passages = predicted.class_name(), [passage for passage, _ in expected.values()]
        sets = checked_sets(predicted, passages, predicted.propositionize(passages))
        made = {key: (passage, one.texts) for key, passage, one in zip(expected, passages, sets, strict=True)}
    both = [key for key in expected if key in made]
    if not both:
        raise ValueError(f"{name} and {reference} have no passage in common: were the documents split alike?")
    found = similarity.matrices([(made[key][1], expected[key][1]) for key in both])
    scored = {key: set_score(matrix) for key, matrix in zip(both, found, strict=True)}
    scores = [vars(scored.get(key, SetScore())) for key in expected]
    values = {metric: [score[metric] for score in scores] for metric in vars(SetScore())}
    language = mode(detect_language(passage.text, passage.title) for passage, _ in expected.values())
    return PropositionReport(
        passages=len(expected),
        similarity=similarity.name,
        scores={metric: fmean(each) for metric, each in values.items()},
        intervals={metric: bootstrap_interval(each) for metric, each in values.items()},
        length_unit="characters" if language in WITHOUT_SPACES else "words",
        predicted=_shape(name, [made[key] for key in both], language),
        reference=_shape(reference.name, list(expected.values()), language),
        missing=[_named(passage) for key, (passage, _) in expected.items() if key not in made],
        extra=[_named(passage) for key, (passage, _) in made.items() if key not in expected],
    )


def set_score(similarities: Matrix) -> SetScore:
    """The precision, recall and F1 of a set of propositions (Dense X Retrieval, appendix B).

    Args:
        similarities: How alike each predicted proposition (a row) and each of the reference (a column) are.

    Returns:
        Precision: over the predicted propositions, the mean similarity to the one of the reference that is most alike.
        Recall: the same over the reference's. F1: their harmonic mean.
    """
    if not similarities.size:
        return SetScore()
    precision, recall = float(similarities.max(axis=1).mean()), float(similarities.max(axis=0).mean())
    total = precision + recall
    return SetScore(precision, recall, 2 * precision * recall / total if total > 0 else 0.0)


class EmbeddingSimilarity:
    """The cosine of two propositions' embeddings.

    Args:
        model: What the pack takes as `embed_model`; both propositions are embedded as texts.

    Raises:
        ValueError: There is no such model, or none is named and there is no default.
        ImportError: Its package is not installed.
    """

    def __init__(self, model: BaseEmbedding | str | None = None) -> None:
        resolved, said = resolve_embed_model(model)
        if resolved is None:
            raise ValueError(f"the embedding model is {said}: name one (--embed-model), or give --bert-score")
        self._model, self.name = resolved, f"cosine of {embed_model_identity(resolved)}"

    def matrices(self, pairs: Sequence[tuple[Texts, Texts]]) -> Iterator[Matrix]:
        """For each pair of lists, how alike each text of the first (a row) and of the second (a column) are."""
        texts = sorted(dict.fromkeys(chain(*chain(*pairs))), key=len)  # a batch is padded
        vectors = np.asarray(self._model.get_text_embedding_batch(texts), dtype=np.float64)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        rows = {text: row for row, text in enumerate(texts)}
        for predicted, reference in pairs:
            ours, theirs = ([rows[text] for text in some] for some in (predicted, reference))
            yield vectors[ours] @ vectors[theirs].T


class BertScoreSimilarity:
    """BERTScore's F1 (Zhang et al., 2020), without idf and without rescaling by a baseline.

    Args:
        model: A name on the Hugging Face Hub, as "roberta-large", which the paper takes, or a folder.
        num_layers: The layer whose vectors are compared; known for the models that bert-score knows.

    Raises:
        ImportError: bert-score is not installed.
        ValueError: The layer is not known, or there is no such model.
    """

    def __init__(self, model: str, num_layers: int | None = None) -> None:
        library = require("bert_score", "bert-score", "BERTScore", "bertscore")
        layer = num_layers or library.utils.model2layers.get(model)
        if layer is None:
            raise ValueError(f"bert-score does not know the best layer of {model!r}: say which (num_layers)")
        try:
            self._scorer = library.BERTScorer(model_type=model, num_layers=layer)
        except (OSError, AssertionError, ValueError) as error:
            raise ValueError(f"BERTScore cannot be had of {model!r}, layer {layer}: {error}") from error
        self.name = f"BERTScore by {model}, layer {layer}, not rescaled"

    def matrices(self, pairs: Sequence[tuple[Texts, Texts]]) -> Iterator[Matrix]:
        """For each pair of lists, how alike each text of the first (a row) and of the second (a column) are."""
        for some in iter_batch(pairs, _AT_ONCE):
            compared = [(ours, theirs) for predicted, reference in some for ours in predicted for theirs in reference]
            scores = iter(self._scorer.score(*map(list, zip(*compared, strict=True)))[2].tolist())
            for predicted, reference in some:
                size = (len(predicted), len(reference))
                yield np.fromiter(islice(scores, size[0] * size[1]), np.float64).reshape(size)


def _read(path: Path) -> dict[str, tuple[Passage, Texts]]:
    """The passages of a recorded file that have propositions, by their keys; the last line of a passage counts."""
    read: dict[str, tuple[Passage, Texts]] = {}
    for record in read_records(path):
        passage = Passage(record.text("text"), record.text("title", default=""), record.text("section", default=""))
        if texts := record.texts("propositions"):
            read[compared(passage.text)] = passage, texts
    if not read:
        raise ValueError(f"{path}: no line has a passage with propositions")
    return read


def _shape(name: str, sets: Sequence[tuple[Passage, Texts]], language: str) -> SetShape:
    texts = [text for _, some in sets for text in some]
    found = [{(one.kind, one.proposition) for one in check_propositions(passage, some)} for passage, some in sets]
    wrong = Counter(kind for each in found for kind, _ in each)
    of = dict.fromkeys(get_args(FindingKind), len(texts)) | {"coverage": len(sets)}
    failing = {kind: wrong[kind] / count for kind, count in of.items()}
    length = context_length(texts, language) / max(len(texts), 1)
    return SetShape(name, len(texts), len(texts) / len(sets), length, failing)


def _named(passage: Passage) -> str:
    text = " ".join(passage.text.split())
    return f"{passage.title or 'untitled'}: {text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}"
