"""The paper's retrievers and the Japanese ones, by name, with tiny models in place of their checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.evaluation.models import CachedEmbedding
from llama_pack_densex.index.manifest import InvalidIndexError
from llama_pack_densex.llm.names import is_installed
from llama_pack_densex.models import RETRIEVERS, embed_model_identity, resolve_embed_model
from tests.test_cli import run, run_json

# not imported by each process that collects the tests: that takes seconds
pytestmark = [
    pytest.mark.together("torch"),
    pytest.mark.skipif(
        not is_installed("llama_index.embeddings.huggingface"),
        reason="the extra [huggingface] is not installed",
    ),
]

TEXTS = ["a lamp", "the tide rises twice a day, and falls", "", "湖の面積 lake 670", "word " * 400]
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
LETTERS = [chr(code) for code in range(33, 127)] + list("湖の検索文書クエリ")
VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *LETTERS,
    *(f"##{one}" for one in LETTERS),
]


def make_tokenizer(folder: Path) -> None:
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


def make_bert(folder: Path) -> Path:
    import transformers

    make_tokenizer(folder)
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY), max_position_embeddings=64, **SIZES
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def make_distilbert(folder: Path) -> Path:
    import transformers

    make_tokenizer(folder)
    sizes = {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8, "max_position_embeddings": 64}
    config = transformers.DistilBertConfig(vocab_size=len(VOCABULARY), **sizes)
    transformers.DistilBertModel(config).save_pretrained(folder)
    return folder


def make_dpr(folder: Path, kind: str) -> Path:
    import transformers

    make_tokenizer(folder)
    config = transformers.DPRConfig(vocab_size=len(VOCABULARY), max_position_embeddings=64, **SIZES)
    getattr(transformers, kind)(config).save_pretrained(folder)
    return folder


def make_both(folder: Path, contexts: str = "DPRContextEncoder") -> Path:
    make_dpr(folder / "dpr-question_encoder-multiset-base", "DPRQuestionEncoder")
    make_dpr(folder / "dpr-ctx_encoder-multiset-base", contexts)
    return folder


def make_sentence_transformer(folder: Path, *more: Any) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    modules = [Transformer(str(make_bert(folder.with_name("base")))), Pooling(8), *more]
    SentenceTransformer(modules=modules).save(str(folder))
    return folder


def named(name: str) -> BaseEmbedding:
    model, _ = resolve_embed_model(name)
    assert model is not None
    return model


def states(folder: Path, text: str, kind: str = "AutoModel") -> Any:
    """What a model makes of one text, without padding."""
    import torch
    import transformers

    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        text, truncation=True, max_length=64, return_tensors="pt", return_token_type_ids=False
    )
    with torch.inference_mode():
        return getattr(transformers, kind).from_pretrained(folder)(**tokens)


def first_of_length_one(folder: Path, text: str) -> list[float]:
    vector = states(folder, text).last_hidden_state[0, 0]
    return (vector / vector.norm()).tolist()


def mean(folder: Path, text: str) -> list[float]:
    return states(folder, text).last_hidden_state[0].mean(0).tolist()


def first(folder: Path, text: str) -> list[float]:
    return states(folder, text).last_hidden_state[0, 0].tolist()


@pytest.mark.parametrize(
    ("name", "make", "by_hand"),
    [
        ("simcse", make_bert, first_of_length_one),
        ("contriever", make_bert, mean),
        ("tas-b", make_distilbert, first),
    ],
)
def test_vectors_are_pooled_as_the_retriever_was_trained(
    name: str,
    make: Callable[[Path], Path],
    by_hand: Callable[[Path, str], list[float]],
    tmp_path: Path,
) -> None:
    folder = make(tmp_path / "model")
    model = named(f"{name}:{folder}")
    for text in TEXTS:
        assert model.get_text_embedding(text) == pytest.approx(by_hand(folder, text), abs=1e-5)
        assert model.get_query_embedding(text) == pytest.approx(by_hand(folder, text), abs=1e-5)


@pytest.mark.parametrize("name", ["dpr", "ance"])
@pytest.mark.parametrize("saved_as", ["DPRContextEncoder", "DPRQuestionEncoder"])
def test_questions_and_texts_have_encoders_of_their_own(
    name: str, saved_as: str, tmp_path: Path
) -> None:
    """Whichever of DPR's two classes the weights of texts were saved by."""
    folder = make_both(tmp_path / "dpr", saved_as)
    model = named(f"{name}:{folder}")
    for text in TEXTS:
        contexts = (
            states(folder / "dpr-ctx_encoder-multiset-base", text, saved_as)
            .pooler_output[0]
            .tolist()
        )
        questions = states(
            folder / "dpr-question_encoder-multiset-base", text, "DPRQuestionEncoder"
        )
        assert model.get_text_embedding(text) == pytest.approx(contexts, abs=1e-5)
        assert model.get_query_embedding(text) == pytest.approx(
            questions.pooler_output[0].tolist(), abs=1e-5
        )
        assert model.get_text_embedding(text) != pytest.approx(
            model.get_query_embedding(text), abs=1e-2
        )


def test_what_a_sentence_transformer_says_of_itself_holds(tmp_path: Path) -> None:
    """GTR: mean, a dense layer, length 1."""
    import torch
    from sentence_transformers.models import Dense, Normalize

    dense = Dense(8, 4, bias=False, activation_function=torch.nn.Identity())
    folder = make_sentence_transformer(tmp_path / "gtr", dense, Normalize())
    model = named(f"gtr:{folder}")
    for text in filter(None, TEXTS):
        vector = dense.linear(torch.tensor(mean(tmp_path / "base", text)))
        expected = (vector / vector.norm()).tolist()
        assert model.get_text_embedding(text) == pytest.approx(expected, abs=1e-5)
        assert model.get_query_embedding(text) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "before_questions", "before_texts"),
    [
        ("ruri", "検索クエリ: ", "検索文書: "),
        ("multilingual-e5", "query: ", "passage: "),
        ("bge-m3", "", ""),
    ],
)
def test_instructions_come_before_questions_and_texts(
    name: str, before_questions: str, before_texts: str, tmp_path: Path
) -> None:
    folder = make_sentence_transformer(tmp_path / "model")
    plain, model = named(str(folder)), named(f"{name}:{folder}")
    for text in ("湖", "the lake"):
        assert model.get_query_embedding(text) == pytest.approx(
            plain.get_text_embedding(before_questions + text)
        )
        assert model.get_text_embedding(text) == pytest.approx(
            plain.get_text_embedding(before_texts + text)
        )


@pytest.mark.parametrize("name", ["contriever", "dpr"])
async def test_batches_and_asynchronous_calls_give_the_same(name: str, tmp_path: Path) -> None:
    folder = make_both(tmp_path / "model") if name == "dpr" else make_bert(tmp_path / "model")
    model = named(f"{name}:{folder}")
    single = [model.get_text_embedding(text) for text in TEXTS]
    for batch in (
        model.get_text_embedding_batch(TEXTS),
        await model.aget_text_embedding_batch(TEXTS),
    ):
        assert len(batch) == len(single)
        for one, other in zip(batch, single, strict=True):
            assert one == pytest.approx(other, abs=1e-5)
    assert await model.aget_query_embedding("湖") == model.get_query_embedding("湖")


def test_an_index_is_opened_with_the_model_that_made_it(
    documents: list[Document], tmp_path: Path
) -> None:
    folder, index = make_both(tmp_path / "dpr"), tmp_path / "index"
    DenseXRetrievalPack(documents, embed_model=f"dpr:{folder}", query_llm="none", persist_dir=index)
    loaded = DenseXRetrievalPack.load(index, embed_model=f"dpr:{folder}", query_llm="none")
    assert loaded.get_modules()["embed_model"].class_name() == "BiEncoderEmbedding"
    assert loaded.retrieve("tides")
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert DenseXRetrievalPack.load(index, embed_model=f"dpr:{moved}", query_llm="none").retrieve(
        "tides"
    )
    with pytest.raises(InvalidIndexError, match="was made with the embedding model"):
        DenseXRetrievalPack.load(
            index, embed_model=f"dpr:{make_both(tmp_path / 'other')}", query_llm="none"
        )


def test_another_use_of_the_same_weights_is_another_model(
    documents: list[Document], tmp_path: Path
) -> None:
    folder, index = make_sentence_transformer(tmp_path / "model"), tmp_path / "index"
    uses = [
        str(folder),
        *(f"{name}:{folder}" for name in ("contriever", "simcse", "ruri", "multilingual-e5")),
    ]
    assert len({embed_model_identity(named(use)) for use in uses}) == len(uses)
    DenseXRetrievalPack(
        documents, embed_model=f"ruri:{folder}", query_llm="none", persist_dir=index
    )
    assert DenseXRetrievalPack.load(index, embed_model=f"ruri:{folder}", query_llm="none").retrieve(
        "tides"
    )
    with pytest.raises(InvalidIndexError, match="検索クエリ"):
        DenseXRetrievalPack.load(index, embed_model=str(folder), query_llm="none")
    file = tmp_path / "embeddings.sqlite"
    vectors = [CachedEmbedding(named(use), file).get_text_embedding("lamp") for use in uses]
    assert vectors[1] == pytest.approx(named(uses[1]).get_text_embedding("lamp"), abs=1e-5)


def test_an_index_is_opened_from_another_folder_than_where_it_was_made(
    documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_both(tmp_path / "models" / "dpr")
    make_sentence_transformer(tmp_path / "models" / "plain")
    for name in ("dpr:models/dpr", "models/plain", "huggingface:models/plain"):
        monkeypatch.chdir(tmp_path)
        index = tmp_path / name.replace(":", "-").replace("/", "-")
        DenseXRetrievalPack(documents, embed_model=name, query_llm="none", persist_dir=index)
        monkeypatch.chdir(index)
        with pytest.raises(ValueError, match="embed_model=") as refused:
            DenseXRetrievalPack.load(index, query_llm="none")
        advised = str(refused.value).rpartition("--embed-model ")[2]
        assert DenseXRetrievalPack.load(index, embed_model=advised, query_llm="none").retrieve(
            "tides"
        )


def test_a_checkpoint_that_was_downloaded_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for name, kind in (("checkpoint", "DPRContextEncoder"), ("questions", "DPRQuestionEncoder")):
        repository = tmp_path / f"models--{getattr(RETRIEVERS['dpr'], name).replace('/', '--')}"
        make_dpr(repository / "snapshots" / "abc", kind)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("abc")
    model, source = resolve_embed_model("dpr")
    assert source == "dpr (facebook/dpr-ctx_encoder-multiset-base)"
    assert (
        embed_model_identity(model)
        == "BiEncoderEmbedding (pooler): facebook/dpr-ctx_encoder-multiset-base"
    )


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("dpr", make_bert, "holds 0 folders with ctx or context"),
        ("ance", lambda folder: make_both(folder.parent / "both"), "FileNotFoundError"),
        ("contriever", lambda folder: make_dpr(folder, "DPRContextEncoder"), "lacks the weights"),
        ("simcse", lambda folder: folder.mkdir(), "config.json"),
        ("gtr", lambda folder: folder.write_text("no folder"), "model"),
    ],
)
def test_a_folder_of_something_else_is_refused(
    name: str, make: Callable[[Path], Any], said: str, tmp_path: Path
) -> None:
    make(tmp_path / "model")
    with pytest.raises(
        ValueError, match=rf"(?s)'{name}:.*' cannot be loaded.*{said}.*hf download"
    ) as raised:
        resolve_embed_model(f"{name}:{tmp_path / 'model'}")
    assert RETRIEVERS[name].checkpoint in str(raised.value)


def test_the_command_line_takes_them(tmp_path: Path) -> None:
    docs, index = tmp_path / "docs", tmp_path / "index"
    docs.mkdir()
    (docs / "tides.md").write_text(
        "The tide rises twice a day. 湖の面積は670平方キロである。", encoding="utf-8"
    )
    model = f"contriever:{make_bert(tmp_path / 'model')}"
    code, output = run(
        "index", docs, "--to", index, "--propositionizer", "sentence", "--embed-model", model
    )
    assert code == 0, output
    code, output = run(
        "query", index, "When does the tide rise?", "--query-llm", "none", "--embed-model", model
    )
    assert code == 0, output
    assert "tides.md" in output
    assert run_json("estimate", docs, "--embed-model", model)["embedding_cost"] == 0.0
    questions = tmp_path / "questions.jsonl"
    questions.write_text(
        '{"question": "How often does it rise?", "answers": ["twice"], "document": "tides.md"}\n'
    )
    code, output = run(
        "compare",
        questions,
        "--documents",
        docs,
        "--strategies",
        "vector-256",
        "--embed-model",
        model,
    )
    assert code == 0, output
    assert "BiEncoderEmbedding (mean): model" in output
