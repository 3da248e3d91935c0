"""`embed_model="local"`: multilingual-e5-small by ONNX Runtime, here with a tiny model in its place in the
cache."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest
from llama_index.core import Document

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.embeddings import OnnxEmbedding
from llama_pack_densex.models import E5, embed_model_identity, resolve_embed_model
from tests.hub import add_model
from tests.test_cli import run

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
np = pytest.importorskip("numpy")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ["[PAD]", "[UNK]", "query", "passage", ":", "lamp", "tower", "red", "灯り", "塔", "赤い"]


def make_model(folder: Path) -> None:
    """A model that gives each word a vector of its own, and reads nothing but the ids of words."""
    (folder / "onnx").mkdir(parents=True)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    helper = onnx.helper
    vectors = onnx.numpy_helper.from_array(np.eye(len(WORDS), dtype=np.float32), "vectors")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["vectors", "input_ids"], ["last_hidden_state"])],
        "words",
        [
            helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["texts", "tokens"])
            for name in ("input_ids", "attention_mask")
        ],
        [
            helper.make_tensor_value_info(
                "last_hidden_state", onnx.TensorProto.FLOAT, ["texts", "tokens", len(WORDS)]
            )
        ],
        [vectors],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / "onnx" / "model.onnx"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache in place of that of the user."""
    import huggingface_hub.constants

    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture
def model(cache: Path, tmp_path: Path) -> OnnxEmbedding:
    make_model(tmp_path / "model")
    add_model(cache, E5, tmp_path / "model")
    embed_model, _ = resolve_embed_model("local")
    assert isinstance(embed_model, OnnxEmbedding)
    return embed_model


@pytest.mark.parametrize("word", ["lamp", "灯り"])
def test_a_vector_is_the_mean_of_the_words_with_length_1(model: OnnxEmbedding, word: str) -> None:
    vector = model.get_text_embedding(f"{word} {word}")
    assert math.hypot(*vector) == pytest.approx(1)
    shares = {name: value for name, value in zip(WORDS, vector, strict=True) if value}
    assert set(shares) == {"passage", ":", word}
    assert shares[word] == pytest.approx(2 * shares["passage"])


def test_questions_and_texts_have_e5s_instructions(model: OnnxEmbedding) -> None:
    assert model.get_query_embedding("tower")[WORDS.index("query")] > 0
    assert model.get_query_embedding("tower")[WORDS.index("passage")] == 0


def test_a_text_beside_longer_ones_has_the_vector_that_it_has_alone(model: OnnxEmbedding) -> None:
    texts = ["lamp", "塔 赤い tower red lamp", "灯り 赤い"]
    together = model.get_text_embedding_batch(texts)
    alone = [model.get_text_embedding(text) for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert one == pytest.approx(other)


async def test_async_gives_the_same(model: OnnxEmbedding) -> None:
    assert await model.aget_query_embedding("塔") == model.get_query_embedding("塔")
    assert await model.aget_text_embedding("塔") == model.get_text_embedding("塔")


def test_a_pickled_model_and_one_of_a_dictionary_embed_alike(model: OnnxEmbedding) -> None:
    for copy in (pickle.loads(pickle.dumps(model)), OnnxEmbedding.from_dict(model.to_dict())):
        assert copy.get_query_embedding("塔") == model.get_query_embedding("塔")
        assert copy.get_text_embedding("塔") == model.get_text_embedding("塔")


def test_what_comes_after_512_tokens_is_not_embedded(model: OnnxEmbedding) -> None:
    vector = model.get_text_embedding("lamp " * 600 + "塔")
    assert vector[WORDS.index("lamp")] > 0
    assert vector[WORDS.index("塔")] == 0


def test_an_empty_text_has_a_vector(model: OnnxEmbedding) -> None:
    assert all(map(math.isfinite, model.get_text_embedding("")))


def test_an_index_remembers_the_model(model: OnnxEmbedding, tmp_path: Path) -> None:
    documents = [
        Document(text="The lamp is red.", id_="lamp"),
        Document(text="The tower is high.", id_="tower"),
    ]
    pack = DenseXRetrievalPack(
        documents, embed_model="local", query_llm="none", persist_dir=tmp_path / "index"
    )
    assert pack.retrieve("tower")[0].node.ref_doc_id == "tower"
    loaded = DenseXRetrievalPack.load(tmp_path / "index", query_llm="none")
    assert isinstance(loaded.get_modules()["embed_model"], OnnxEmbedding)
    assert loaded.retrieve("lamp")[0].node.ref_doc_id == "lamp"
    assert embed_model_identity(model) == f"OnnxEmbedding: {E5}"


def test_once_downloaded_it_is_the_default(model: OnnxEmbedding, tmp_path: Path) -> None:
    documents = [
        Document(text="塔は赤い。", id_="塔"),
        Document(text="The lamp is red.", id_="lamp"),
    ]
    pack = DenseXRetrievalPack(documents, query_llm="none", persist_dir=tmp_path / "index")
    assert isinstance(pack.get_modules()["embed_model"], OnnxEmbedding)
    assert pack.retrieve("塔")[0].node.ref_doc_id == "塔"
    loaded = DenseXRetrievalPack.load(tmp_path / "index", query_llm="none")
    assert isinstance(loaded.get_modules()["embed_model"], OnnxEmbedding)


def test_the_command_line_takes_it_by_name(model: OnnxEmbedding, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "塔.md").write_text("# 塔\n\n塔は赤い。", encoding="utf-8")
    index = tmp_path / "index"
    code, output = run(
        "index", tmp_path / "docs", "--to", index, "--embed-model", "local", "--llm", "none"
    )
    assert code == 0, output
    assert run("query", index, "塔は何色か。", "--query-llm", "none")[0] == 0
    code, output = run("estimate", tmp_path / "docs", "--embed-model", "local", "--json")
    assert code == 0
    assert '"embedding_cost": 0.0' in output


def test_a_folder_of_that_name_does_not_change_what_it_means(
    model: OnnxEmbedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "local").mkdir()
    monkeypatch.chdir(tmp_path)
    DenseXRetrievalPack(
        [Document(text="The lamp is red.")], embed_model="local", persist_dir=tmp_path / "index"
    )
    pack = DenseXRetrievalPack.load(tmp_path / "index", query_llm="none")
    assert isinstance(pack.get_modules()["embed_model"], OnnxEmbedding)


def test_a_model_that_is_not_here_is_an_error_that_says_how_to_get_it(cache: Path) -> None:
    with pytest.raises(
        ValueError,
        match=rf"'local' cannot be loaded.*hf download {E5} onnx/model.onnx tokenizer.json",
    ):
        resolve_embed_model("local")


def test_a_damaged_model_is_an_error_that_names_it(cache: Path, tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    (tmp_path / "model" / "onnx" / "model.onnx").write_bytes(b"damaged")
    add_model(cache, E5, tmp_path / "model")
    with pytest.raises(ValueError, match="'local' cannot be loaded"):
        resolve_embed_model("local")
