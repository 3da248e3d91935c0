"""`score_propositions` and `densex score-propositions`: the F1 of two sets of propositions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays

from llama_pack_densex import SentencePropositionizer
from llama_pack_densex.evaluation import (
    BertScoreSimilarity,
    EmbeddingSimilarity,
    score_propositions,
)
from llama_pack_densex.evaluation.propositions import set_score
from tests.another_process import run_program
from tests.conftest import DATA
from tests.embedding import TrigramEmbedding
from tests.test_cli import run, run_process
from tests.test_models import needs_huggingface

pytestmark = pytest.mark.together("torch")

RECORDED = DATA / "propositions.jsonl"
TEA = "Green tea is steamed, and black tea is oxidised."
LAKE = "琵琶湖は日本最大の湖で、滋賀県にある。"
MADE = {
    TEA: ["Green tea is steamed.", "Black tea is oxidised."],
    LAKE: ["琵琶湖は日本最大の湖である。", "琵琶湖は滋賀県にある。"],
}


def cosine() -> EmbeddingSimilarity:
    return EmbeddingSimilarity(TrigramEmbedding())


def write(file: Path, made: Mapping[str, Sequence[str]], title: str = "") -> Path:
    lines = [
        json.dumps({"title": title, "text": text, "propositions": list(texts)})
        for text, texts in made.items()
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_the_best_match_counts_on_either_side() -> None:
    score = set_score(np.array([[0.9, 0.1], [0.4, 0.2], [0.3, 0.5]]))
    precision, recall = (0.9 + 0.4 + 0.5) / 3, (0.9 + 0.5) / 2
    assert (score.precision, score.recall) == (pytest.approx(precision), pytest.approx(recall))
    assert score.f1 == pytest.approx(2 * precision * recall / (precision + recall))


@given(
    arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(-1, 1))
)
def test_precision_is_recall_with_the_sides_exchanged(similarities: np.ndarray) -> None:
    score, exchanged = set_score(similarities), set_score(similarities.T)
    assert (score.precision, score.recall, score.f1) == (
        exchanged.recall,
        exchanged.precision,
        exchanged.f1,
    )
    assert score.f1 <= 1 + 1e-9


def test_a_file_against_itself_is_one() -> None:
    report = score_propositions(RECORDED, RECORDED, cosine())
    assert report.scores == pytest.approx({"precision": 1, "recall": 1, "f1": 1})
    assert report.predicted == report.reference
    assert (report.missing, report.extra) == ([], [])


def test_the_mean_is_over_passages_and_what_is_missing_counts_as_nothing(tmp_path: Path) -> None:
    half = write(
        tmp_path / "half.jsonl",
        {f" {TEA}\n": MADE[TEA], "Rice grows.": ["Rice grows."]},
        title="お茶",
    )
    report = score_propositions(half, write(tmp_path / "all.jsonl", MADE), cosine())
    assert report.passages == 2
    assert report.scores == pytest.approx({"precision": 0.5, "recall": 0.5, "f1": 0.5})
    assert report.missing == [f"untitled: {LAKE}"]
    assert report.extra == ["お茶: Rice grows."]
    assert report.predicted.propositions == 2


def test_fewer_propositions_lose_recall_and_other_ones_precision(tmp_path: Path) -> None:
    reference = write(tmp_path / "all.jsonl", MADE)
    less = {text: texts[:1] for text, texts in MADE.items()}
    fewer = score_propositions(write(tmp_path / "a.jsonl", less), reference, cosine())
    more = {TEA: [*MADE[TEA], "Coffee is roasted."], LAKE: [*MADE[LAKE], "富士山は山である。"]}
    other = score_propositions(write(tmp_path / "b.jsonl", more), reference, cosine())
    assert (fewer.scores["precision"], other.scores["recall"]) == (
        pytest.approx(1),
        pytest.approx(1),
    )
    assert fewer.scores["recall"] < 0.9
    assert other.scores["precision"] < 0.9


@pytest.mark.parametrize(
    ("text", "unit", "length"), [(TEA, "words", 4), (LAKE, "characters", 12.5)]
)
def test_what_both_sides_are_like(text: str, unit: str, length: float, tmp_path: Path) -> None:
    report = score_propositions(
        SentencePropositionizer(), write(tmp_path / "all.jsonl", {text: MADE[text]}), cosine()
    )
    assert report.predicted.name == "SentencePropositionizer"
    assert (report.predicted.a_passage, report.reference.a_passage) == (1, 2)
    assert (report.length_unit, report.reference.length) == (unit, length)


def test_what_the_checks_find_fault_with_is_counted(tmp_path: Path) -> None:
    worse = {
        TEA: ["Green tea is steamed for 47 seconds.", "It is oxidised."],
        LAKE: ["琵琶湖は滋賀県にある。"],
    }
    report = score_propositions(
        write(tmp_path / "worse.jsonl", worse), write(tmp_path / "all.jsonl", MADE), cosine()
    )
    assert report.predicted.failing["grounding"] == pytest.approx(1 / 3)
    assert report.predicted.failing["self_containedness"] == pytest.approx(1 / 3)
    assert not any(report.reference.failing.values())


def test_files_that_have_nothing_in_common_are_an_error(tmp_path: Path) -> None:
    one, other = (write(tmp_path / f"{text[:1]}.jsonl", {text: MADE[text]}) for text in MADE)
    with pytest.raises(ValueError, match="no passage in common"):
        score_propositions(one, other, cosine())
    (tmp_path / "broken.jsonl").write_text('{"text": "x", "propositions": 3}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"broken.jsonl, line 1: 'propositions' must be"):
        score_propositions(tmp_path / "broken.jsonl", other, cosine())
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"empty.jsonl: no line has a passage with propositions"):
        score_propositions(other, tmp_path / "empty.jsonl", cosine())


@pytest.mark.slow
def test_nothing_is_imported_that_is_not_needed() -> None:
    program = (
        "import sys, llama_pack_densex.cli.scores, llama_pack_densex.evaluation.propositions\n"
        "assert not {'usearch', 'torch', 'bert_score', 'transformers'} & set(sys.modules)"
    )
    code, _, errors = run_program(program)
    assert code == 0, errors


# BERTScore


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A BERT with random weights, of characters."""
    pytest.importorskip("bert_score", reason="the extra [evaluation] is not installed")
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    texts = [text for texts in MADE.values() for text in texts]
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=special))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    folder = tmp_path_factory.mktemp("bert")
    words = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", model_max_length=64,
    )  # fmt: skip
    words.save_pretrained(folder)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    config = BertConfig(vocab_size=len(words), **sizes)
    BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.mark.slow
def test_bert_score_is_named_with_its_model_and_layer(bert: str, tmp_path: Path) -> None:
    reference = write(tmp_path / "all.jsonl", MADE)
    arguments = [
        "score-propositions",
        "--reference",
        reference,
        "--bert-score",
        bert,
        "--num-layers",
        "2",
    ]
    done = run_process(*arguments, "--predicted", reference, "--json")
    assert done.stderr == ""
    same = json.loads(done.stdout)
    assert same["scores"] == pytest.approx({"precision": 1, "recall": 1, "f1": 1}, abs=1e-5)
    assert same["similarity"] == f"BERTScore by {bert}, layer 2, not rescaled"
    sentences = score_propositions(
        SentencePropositionizer(), reference, BertScoreSimilarity(bert, 2)
    )
    assert 0 < sentences.scores["f1"] < 1


@pytest.mark.slow
def test_a_layer_that_bert_score_does_not_know_is_asked_for(bert: str) -> None:
    with pytest.raises(ValueError, match="does not know the best layer"):
        BertScoreSimilarity(bert)
    with pytest.raises(ValueError, match="layer 9"):
        BertScoreSimilarity(bert, 9)


# The command


@pytest.mark.slow
def test_the_command_prints_what_it_found(tmp_path: Path) -> None:
    needs_huggingface()
    reference = write(tmp_path / "all.jsonl", MADE)
    less = write(tmp_path / "[b]less\x1b.jsonl", {TEA: MADE[TEA]})
    code, output = run(
        "score-propositions",
        "--predicted",
        less,
        "--reference",
        reference,
        "--embed-model",
        "minilm",
    )
    assert code == 0, output
    assert "cosine of HuggingFaceEmbedding: sentence-transformers/all-MiniLM-L6-v2." in " ".join(
        output.split()
    )
    assert "0.500" in output
    assert "[b]less" in output
    assert "1 passage missing, counted as 0 (" in output
    assert "\x1b" not in output


def test_sides_of_equal_name_can_be_told_apart(tmp_path: Path) -> None:
    needs_huggingface()
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "out.jsonl", MADE)
    files = [
        "--predicted",
        tmp_path / "mine" / "out.jsonl",
        "--reference",
        tmp_path / "theirs" / "out.jsonl",
    ]
    code, output = run("score-propositions", *files, "--embed-model", "minilm")
    assert code == 0, output
    assert re.search(r"predicted: out\.jsonl +reference: out\.jsonl", output)
    assert re.search(r"fails coverage \(passages\) +\d+\.\d % +\d+\.\d %", output)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--predicted", "nothing.jsonl"], "neither a file"),
        (["--predicted", "recorded:"], "neither a file"),
        (["--predicted", str(RECORDED), "--embed-model", "minilm", "--bert-score", "x"], "one of"),
        (["--predicted", str(RECORDED), "--embed-model", "none"], "name one (--embed-model)"),
        (["--predicted", str(RECORDED), "--embed-model", "nobody:x"], "nobody"),
    ],
)
def test_what_is_wrong_is_said(options: list[str], said: str) -> None:
    code, output = run("score-propositions", "--reference", RECORDED, *options)
    assert code != 0
    assert said in " ".join(output.split())
