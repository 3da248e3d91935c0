"""benchmarks/stores.py, at a size of seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.slow
def test_it_measures_a_small_index_with_exact_recall(tmp_path: Path) -> None:
    command = [
        sys.executable,
        BENCHMARKS / "stores.py",
        "--dir",
        tmp_path,
        "--corpus",
        "made-up",
        "--alone",
    ]
    command += [
        "--propositions",
        "160",
        "--questions",
        "4",
        "--warm-up",
        "1",
        "--parts",
        "building",
        "searching",
    ]
    done = subprocess.run(
        list(map(str, command)), check=True, capture_output=True, text=True, env=dict(os.environ)
    )
    assert "recall@10 of the store: 1.0000" in done.stdout
    assert "| pack: hybrid (default) |" in done.stdout


@pytest.mark.slow
def test_it_measures_what_users_of_llama_index_would_take(tmp_path: Path) -> None:
    pytest.importorskip("llama_index.retrievers.bm25")
    pytest.importorskip("llama_index.vector_stores.chroma")
    command = [
        sys.executable,
        BENCHMARKS / "stores.py",
        "--dir",
        tmp_path,
        "--corpus",
        "made-up",
        "--sentences",
        "5",
    ]
    command += [
        "--propositions",
        "40",
        "--questions",
        "2",
        "--warm-up",
        "1",
        "--parts",
        "searching",
        "changing",
    ]
    done = subprocess.run(
        list(map(str, command)), check=True, capture_output=True, text=True, env=dict(os.environ)
    )
    for row in (
        "| LlamaIndex: Chroma and BM25Retriever, fused |",
        "| LlamaIndex: Chroma |",
        "| 8 |",
    ):
        assert row in done.stdout


def test_made_up_documents_and_their_vectors_are_the_same_in_every_run() -> None:
    from store_bench.corpora import MadeUp
    from store_bench.embeddings import mixture

    once, again = (list(MadeUp(400).documents()) for _ in range(2))
    assert [document.text for document in once] == [document.text for document in again]
    assert np.array_equal(mixture(3, "A fact."), mixture(3, "A fact."))


def test_a_made_up_question_has_a_cosine_of_three_quarters_to_its_proposition() -> None:
    from llama_index.core.schema import MetadataMode
    from store_bench.corpora import MadeUp, node_parser

    corpus = MadeUp(80)
    nodes = node_parser().get_nodes_from_documents(list(corpus.documents()))
    texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
    vectors = np.array([corpus.embed_model.get_text_embedding(text) for text in texts])
    (question,) = corpus.questions(1)
    assert (vectors @ np.array(question.embedding)).max() == pytest.approx(0.75, abs=0.01)
