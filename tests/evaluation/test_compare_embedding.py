"""Each text is embedded once."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_pack_densex.evaluation.models import CachedEmbedding
from tests.embedding import TrigramEmbedding


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.text(max_size=8), max_size=6), max_size=4))
def test_vectors_are_the_models_whatever_was_asked_before(batches: list[list[str]]) -> None:
    model = TrigramEmbedding()
    cached = CachedEmbedding(model)
    for texts in batches:
        expected = [model._embed(text) for text in texts]
        for made, right in zip(cached.get_text_embedding_batch(texts), expected, strict=True):
            np.testing.assert_allclose(made, right, rtol=0, atol=1e-6)
    assert model.embedded == len({text for texts in batches for text in texts})


async def test_asynchronous_callers_share_what_is_known() -> None:
    model = TrigramEmbedding()
    cached = CachedEmbedding(model)
    before = cached.get_text_embedding_batch(["湖", "lake"])
    assert await cached.aget_text_embedding_batch(["lake", "湖"]) == before[::-1]
    assert await cached.aget_query_embedding("lake") == cached.get_query_embedding("lake")
    assert model.embedded == 2


def test_questions_are_not_texts() -> None:
    """Models such as E5 embed them with other instructions."""

    class Instructed(TrigramEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            return self._embed(f"query: {query}")

    cached = CachedEmbedding(Instructed())
    cached.embed_queries(["lake"])
    assert cached.get_text_embedding("lake") != cached.get_query_embedding("lake")


def test_another_model_does_not_get_these_vectors(tmp_path: Path) -> None:
    file = tmp_path / "embeddings.sqlite"
    CachedEmbedding(TrigramEmbedding("one"), file).get_text_embedding("lake")
    other = TrigramEmbedding("two")
    CachedEmbedding(other, file).get_text_embedding("lake")
    assert other.embedded == 1


def test_the_file_holds_no_text(tmp_path: Path) -> None:
    file = tmp_path / "embeddings.sqlite"
    cached = CachedEmbedding(TrigramEmbedding(), file)
    cached.get_text_embedding("a secret lake")
    cached.close()
    assert b"secret" not in (tmp_path / "embeddings.sqlite").read_bytes()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "embeddings.sqlite").write_text(
        "my notes, which are not to be lost " * 100, encoding="utf-8"
    )
    with pytest.raises(OSError, match="delete it, or use another folder"):
        CachedEmbedding(TrigramEmbedding(), tmp_path / "embeddings.sqlite")
    assert (tmp_path / "embeddings.sqlite").read_text(encoding="utf-8").startswith("my notes")


@pytest.mark.skipif(sys.platform == "win32", reason="it has no limit on the size of files")
def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path) -> None:
    import resource

    cached = CachedEmbedding(TrigramEmbedding(), tmp_path / "embeddings.sqlite")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="see whether the disk is full"):
            cached.get_text_embedding("lake")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert cached.get_text_embedding("lake")


def test_what_was_asked_for_is_told_once() -> None:
    cached = CachedEmbedding(TrigramEmbedding())
    cached.get_text_embedding_batch(["a", "b"])
    cached.get_text_embedding("a")
    cached.get_query_embedding("c")
    assert cached.take_requested() == ["a", "b", "a"]
    assert cached.take_requested() == []
