"""Which LLM and which embedding model a name stands for, and which are used where the user names none."""

from __future__ import annotations

import hashlib
import os
import re
from asyncio import to_thread
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from llama_index.core import MockEmbedding, Settings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.utils import get_cache_dir, infer_torch_device

from llama_pack_densex.llm.errors import scrub, shown
from llama_pack_densex.llm.names import (
    HUGGINGFACE_ADVICE,
    LOCAL_ADVICE,
    OPENAI_MODEL,
    PROVIDERS,
    is_installed,
    is_model_name,
    make_named,
    named_llm,
    parse_name,
)

E5 = "intfloat/multilingual-e5-small"
"""The default embedding model: small, and at home in Japanese as in English."""
LOCAL = "local"
"""The same model by ONNX Runtime: no PyTorch."""
NONE = "none"
"""No embedding model: search by words. No LLM: propositions are sentences, answers are quotations."""
_INSTRUCTIONS = ("query_instruction", "text_instruction")
Pooling = Literal["cls", "mean", "pooler"]
"""Of a text's vectors the first, before any pooler; the mean of all; or what the model itself makes of them."""


@dataclass(frozen=True)
class Retriever:
    """What the name of a retriever stands for.

    Args:
        checkpoint: Its encoder, by its name on the Hugging Face Hub; where there are two, that of texts.
        pooling: How a text's vectors become one; None where a sentence-transformers model says that itself.
        normalize: Whether vectors get length 1, as the model was trained to be compared; else by inner products.
        questions: Its encoder of questions, where that is another one.
        instructions: What precedes questions, and what precedes texts.
    """

    checkpoint: str
    pooling: Pooling | None = None
    normalize: bool = True
    questions: str = ""
    instructions: tuple[str, str] = ("", "")


RETRIEVERS: Mapping[str, Retriever] = {
    # the six of Dense X Retrieval (section 4.2), each used as its authors do
    "simcse": Retriever("princeton-nlp/unsup-simcse-bert-base-uncased", "cls"),  # its pooler is for training alone
    "contriever": Retriever("facebook/contriever", "mean", normalize=False),
    "dpr": Retriever(
        "facebook/dpr-ctx_encoder-multiset-base", "pooler", False, "facebook/dpr-question_encoder-multiset-base"
    ),
    # trained from DPR's own encoders: pyserini (encode/_dpr.py, docs/experiments-ance.md) loads these as DPR's
    "ance": Retriever("castorini/ance-dpr-context-multi", "pooler", False, "castorini/ance-dpr-question-multi"),
    "tas-b": Retriever("sentence-transformers/msmarco-distilbert-base-tas-b", "cls", normalize=False),
    "gtr": Retriever("sentence-transformers/gtr-t5-base"),
    "minilm": Retriever("sentence-transformers/all-MiniLM-L6-v2"),  # English only
    # for Japanese
    "ruri": Retriever("cl-nagoya/ruri-v3-310m", instructions=("検索クエリ: ", "検索文書: ")),
    "multilingual-e5": Retriever(E5, instructions=("query: ", "passage: ")),
    "bge-m3": Retriever("BAAI/bge-m3"),
}
"""Embedding models by name: each can be written with another place of its weights, as "contriever:FOLDER"."""


def resolve_llm(llm: LLM | str | None, argument: str) -> tuple[LLM | None, str]:
    """The LLM for what the user gave, and a phrase that says which it is.

    Args:
        llm: An LLM; a name (see `named_llm`); "none"; or None for the default: the user's `Settings.llm` if they set
            one, else OpenAI's gpt-4o-mini if `OPENAI_API_KEY` is set, else none.
        argument: What it was given as.

    Raises:
        ValueError: It is something else; the message names `argument`. Or there is no LLM of that name, or no key.
        ImportError: Its package is missing; the message says which.
    """
    if isinstance(llm, LLM):
        return llm, _name(llm)
    if llm == NONE:
        return None, "none, as asked"
    if isinstance(llm, str) and llm:
        return named_llm(llm), llm
    if llm is not None:
        raise ValueError(f'{argument} must be a LlamaIndex LLM, the name of one, "none" or None, not {shown(llm)}')
    # the attribute behind the property: reading the property would make core's own OpenAI default
    chosen = getattr(Settings, "_llm", None)
    if type(chosen) is MockLLM:  # what core makes of None
        return None, "none, as Settings.llm says"
    if chosen is not None:
        return chosen, f"{_name(chosen)} from Settings.llm"
    if os.environ.get("OPENAI_API_KEY"):
        made = named_llm(OPENAI_MODEL)
        return made, f"{_name(made)}, since OPENAI_API_KEY is set"
    return None, "none (Settings.llm and OPENAI_API_KEY are not set)"


def resolve_embed_model(embed_model: BaseEmbedding | str | None) -> tuple[BaseEmbedding | None, str]:
    """The embedding model for what the user gave.

    Args:
        embed_model: An embedding model; "none", to search by words; "local", multilingual-e5-small without PyTorch; a
            name of `RETRIEVERS`, with or without the place of its weights ("contriever", "contriever:FOLDER"); the
            folder of a sentence-transformers model; a name with a provider ("openai:text-embedding-3-small"),
            "huggingface:BAAI/bge-m3" or "local:BAAI/bge-m3"; or None for the default: the user's
            `Settings.embed_model` if they set one, else multilingual-e5-small if it is on this machine, else none.

    Returns:
        The model, or None for lexical search, and a phrase that says which.

    Raises:
        ValueError: There is no such model or provider, its key is missing, or it cannot be made.
        ImportError: A package is missing; the message says which, or which extra has it.
    """
    if isinstance(embed_model, BaseEmbedding):
        return embed_model, _name(embed_model)
    if embed_model == NONE:
        return None, "none, as asked"
    if embed_model == LOCAL:
        return _local_model(), f"{LOCAL} ({E5} by ONNX Runtime)"
    if isinstance(embed_model, str) and embed_model.startswith("local:"):  # as LlamaIndex calls them
        embed_model = embed_model.replace("local:", "huggingface:", 1)
    if embed_model in (E5, f"huggingface:{E5}"):
        return _retriever("multilingual-e5"), E5
    name, _, place = embed_model.partition(":") if isinstance(embed_model, str) else ("", "", "")
    if name in RETRIEVERS:
        return _retriever(name, place), f"{name} ({place or RETRIEVERS[name].checkpoint})"
    if isinstance(embed_model, str) and Path(embed_model).is_dir():
        return _huggingface(embed_model), embed_model
    if embed_model is not None:
        return _named_embed_model(embed_model), embed_model
    return _default_embed_model()


def _default_embed_model() -> tuple[BaseEmbedding | None, str]:
    chosen = getattr(Settings, "_embed_model", None)
    if type(chosen) is MockEmbedding and chosen.embed_dim == 1:  # what core makes of None
        return None, "none, as Settings.embed_model says"
    if chosen is not None:
        return chosen, f"{_name(chosen)} from Settings.embed_model"
    if is_installed("llama_index.embeddings.huggingface") and cached_model(E5) is not None:
        return _retriever("multilingual-e5"), E5
    return None, (
        f"none ({E5} is not on this machine: {LOCAL_ADVICE}, and pass embed_model={LOCAL!r}, which downloads it; "
        f"or for PyTorch {HUGGINGFACE_ADVICE}, and get it once with: hf download {E5})"
    )


def _named_embed_model(name: str) -> BaseEmbedding:
    provider, model, _ = parse_name(name)
    if provider == "huggingface":
        return _huggingface(model)
    if not is_model_name(name) or not PROVIDERS[provider].embedding:
        known = ", ".join(name for name, one in PROVIDERS.items() if one.embedding)
        raise ValueError(
            f"{shown(name)} names no embedding model: write PROVIDER:MODEL, where PROVIDER is {known}; the folder of a "
            f'sentence-transformers model; "{E5}" or "{NONE}"; or a retriever: {", ".join(RETRIEVERS)}'
        )
    return cast(BaseEmbedding, make_named("embeddings", name, {"model_name": model}))


def embed_model_identity(model: BaseEmbedding | None) -> str:
    """A name by which an index recognises the model that made it.

    A model in a folder counts by what the folder holds, wherever it stands: its last part and a hash of the settings
    and weights in it. Those that this package knows by name keep their name. The same weights with another pooling or
    other instructions are another model.

    Args:
        model: The model; None for none.
    """
    if model is None:
        return NONE
    name = str(model.model_name)
    if Path(name).is_dir():
        folder = Path(name).resolve()
        places = ((cached_model(one.checkpoint), one.checkpoint) for one in RETRIEVERS.values())
        names = (its_name for place, its_name in places if place is not None and place.resolve() == folder)
        name = next(names, None) or f"{Path(name).name} ({_content_of(folder)})"
    uses = [getattr(model, field, None) for field in ("pooling", *_INSTRUCTIONS)]
    use = ", ".join(str(one).rstrip(": ") for one in uses if one)
    return f"{model.class_name()}{f' ({use})' if use and name != E5 else ''}: {name}"


def with_whole_path(name: str) -> str:
    """What names an embedding model wherever a program runs: a folder in the name by its whole path."""
    before, colon, place = name.rpartition(":")
    is_place = before in ("", "huggingface", "local", *RETRIEVERS) and name not in ("", NONE, LOCAL, E5, *RETRIEVERS)
    return f"{before}{colon}{Path(place).absolute()}" if is_place and place and Path(place).is_dir() else name


def is_same_embed_model(made_by: str, identity: str) -> bool:
    """Whether an index that was made by a model is one of this model, whose folder may have another name by now.

    Args:
        made_by: The identity that the index has kept.
        identity: What `embed_model_identity` says of the model here.
    """
    return _FOLDER.sub("", made_by) == _FOLDER.sub("", identity)


_FOLDER = re.compile(r"(?<=: )[^:]*(?= \([0-9a-f]{12}\)$)")  # the name of one, before the hash of what it holds
_OF_A_MODEL = (".json", ".txt", ".model", ".safetensors", ".bin", ".pt")
_OTHER_FORMS = ("onnx", "openvino")  # the same model for other machines
_SAMPLES, _SAMPLE = 1024, 4096


def _content_of(folder: Path) -> str:
    """A hash of a model's settings, and of 4 MiB from all over its weights: two models of one shape differ all over."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder)
        is_another_form = any(part[0] == "." or part in _OTHER_FORMS for part in name.parts)
        if name.suffix not in _OF_A_MODEL or is_another_form or not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"{name.as_posix()} {size}\n".encode())
        with file.open("rb") as stream:
            if size <= _SAMPLES * _SAMPLE:
                digest.update(stream.read())
                continue
            for number in range(_SAMPLES):
                stream.seek((size - _SAMPLE) * number // (_SAMPLES - 1))
                digest.update(stream.read(_SAMPLE))
    return digest.hexdigest()[:12]


def cached_model(repository: str) -> Path | None:
    """The folder of a Hugging Face model that was downloaded earlier, with its weights; None where it is not here."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    # huggingface_hub's own cache, wherever its environment variables put it; where HuggingFaceEmbedding downloads to
    for cache in (None, get_cache_dir()):
        for weights in ("model.safetensors", "pytorch_model.bin"):
            file = try_to_load_from_cache(repository, weights, cache_dir=cache)
            if isinstance(file, str) and (Path(file).parent / "config.json").exists():
                return Path(file).parent
    return None


def _retriever(name: str, place: str = "") -> BaseEmbedding:
    """The retriever of a name, with its weights in a place: a folder, or another name on the Hub."""
    known = RETRIEVERS[name]
    checkpoint = place or str(cached_model(known.checkpoint) or known.checkpoint)
    try:
        if known.pooling is None:
            return _huggingface(checkpoint, **dict(zip(_INSTRUCTIONS, known.instructions, strict=True)))
        questions = "" if place else str(cached_model(known.questions) or known.questions)
        return BiEncoderEmbedding(
            model_name=checkpoint, pooling=known.pooling, normalize=known.normalize, question_model_name=questions
        )
    except ImportError as error:
        if known.pooling is None:  # which says what to install
            raise
        raise ImportError(f"{name!r} needs transformers and torch ({error}); {HUGGINGFACE_ADVICE}") from error
    except Exception as error:  # whatever transformers raises where a model is not there, or is another
        its_name, said = f"{name}:{place}".rstrip(":"), scrub(f"{type(error).__name__}: {error}").rstrip(".")
        raise ValueError(
            f"{its_name!r} cannot be made: {said}. Where there is no network, get "
            f"{' and '.join(filter(None, (known.checkpoint, known.questions)))} with `hf download`, and write "
            f"{name}:FOLDER{', a folder that holds both' if known.questions else ''}"
        ) from None


def _local_model() -> BaseEmbedding:
    """The default model by ONNX Runtime.

    Raises:
        ImportError: A package of the extra `local` is missing.
        ValueError: The model is neither on this machine nor to be downloaded.
    """
    try:
        return OnnxEmbedding(model_name=E5, query_instruction="query: ", text_instruction="passage: ")
    except ImportError as error:
        raise ImportError(f"{LOCAL!r} needs the extra of that name ({error}); {LOCAL_ADVICE}") from error
    except Exception as error:  # whatever is raised where the model is not there, or is damaged
        reason = scrub(f"{type(error).__name__}: {error}").rstrip(".")
        raise ValueError(
            f"{LOCAL!r} cannot be made: {reason}. Where there is a network, get the model once with: "
            f"hf download {E5} {' '.join(_ONNX_FILES)}"
        ) from None


def _file_on_hub(repository: str, name: str) -> str:
    """The path of a file that was downloaded earlier, or is now."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return str(hf_hub_download(repository, name, local_files_only=True))
    except LocalEntryNotFoundError:
        return str(hf_hub_download(repository, name))


_ONNX_FILES = ("onnx/model.onnx", "tokenizer.json")
_ONNX_TOKENS = 512  # of a text; what comes after them is not embedded


class OnnxEmbedding(BaseEmbedding):
    """Embeds texts by ONNX Runtime: each by the mean of its tokens' vectors, with length 1.

    Args:
        model_name: A model on the Hugging Face Hub that has `onnx/model.onnx` and `tokenizer.json`. It is downloaded
            when it is first used.

    Raises:
        ImportError: onnxruntime, tokenizers or huggingface-hub is missing.
        OSError: The model is neither on this machine nor to be downloaded.
    """

    embed_batch_size: int = Field(default=32, gt=0, description="Texts that are embedded together.")
    query_instruction: str = Field(default="", description="What precedes questions.")
    text_instruction: str = Field(default="", description="What precedes texts.")
    _session: Any = PrivateAttr()
    _tokenizer: Any = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        from onnxruntime import InferenceSession
        from tokenizers import Tokenizer

        model, tokenizer = (_file_on_hub(self.model_name, file) for file in _ONNX_FILES)
        self._session = InferenceSession(model, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(tokenizer)
        self._tokenizer.enable_truncation(_ONNX_TOKENS)
        self._tokenizer.enable_padding()

    def __reduce__(self) -> tuple[Any, ...]:
        fields = ("model_name", "embed_batch_size", "query_instruction", "text_instruction")
        settings = {field: getattr(self, field) for field in fields}
        return partial(type(self), **settings), ()  # the session is made anew where it is unpickled

    @classmethod
    def class_name(cls) -> str:
        return "OnnxEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed([f"{self.query_instruction}{query}"])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embed([f"{self.text_instruction}{text}" for text in texts])

    def _embed(self, texts: list[str]) -> list[list[float]]:
        encodings = self._tokenizer.encode_batch(texts)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
        values = {
            "input_ids": np.array([encoding.ids for encoding in encodings], dtype=np.int64),
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(mask),
        }
        inputs = {field.name: values[field.name] for field in self._session.get_inputs()}
        token_vectors = self._session.run(None, inputs)[0]
        is_token = mask[:, :, np.newaxis]
        vectors = (token_vectors * is_token).sum(axis=1) / is_token.sum(axis=1)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return cast(list[list[float]], (vectors / lengths).tolist())


class BiEncoderEmbedding(BaseEmbedding):
    """Embeds texts, and questions by the same encoder or another, with models of transformers.

    For checkpoints that do not say how they are pooled: sentence-transformers takes the mean, and, as transformers'
    `AutoModel` does, loads DPR's encoder of texts as one of questions, with made-up weights.

    Args:
        model_name: The encoder's folder, or its name on the Hugging Face Hub.
        pooling: See `Pooling`; "pooler" is for the two encoders of DPR (Karpukhin et al. 2020).
        normalize: Whether vectors get length 1.
        question_model_name: DPR's encoder of questions. Without it, `model_name` is a folder that holds both encoders,
            one with "question" in its name, one with "ctx" or "context".

    Raises:
        OSError: There is no such model.
        ValueError: It has not the weights of such an encoder, or a folder does not hold two.
    """

    embed_batch_size: int = Field(default=32, gt=0, description="Texts that are embedded together.")
    pooling: Pooling = Field(description="How a text's vectors become one.")
    normalize: bool = Field(default=False, description="Whether vectors get length 1.")
    question_model_name: str = Field(default="", description="The encoder of questions, where that is another one.")
    _texts: _Encoder = PrivateAttr()
    _questions: _Encoder = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        if self.pooling != "pooler":
            self._texts = self._questions = _Encoder(self.model_name, "AutoModel")
            return
        texts = self.model_name if self.question_model_name else _folder_in(self.model_name, "ctx", "context")
        self._texts = _Encoder(texts, "DPRContextEncoder", "DPRQuestionEncoder")
        questions = self.question_model_name or _folder_in(self.model_name, "question")
        self._questions = _Encoder(questions, "DPRQuestionEncoder", "DPRContextEncoder")

    @classmethod
    def class_name(cls) -> str:
        return "BiEncoderEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._questions.embed([query], self.pooling, self.normalize)[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._texts.embed(texts, self.pooling, self.normalize)


class _Encoder:
    """A model and its tokenizer; of the classes of transformers, the first whose weights the checkpoint has."""

    def __init__(self, place: str, *kinds: str) -> None:
        import transformers

        for kind in kinds:  # DPR's two classes differ in the names of their weights alone
            model, found = getattr(transformers, kind).from_pretrained(place, output_loading_info=True)
            missing = [name for name in found["missing_keys"] if not name.startswith("pooler.")]
            if not missing:
                break
        else:  # transformers makes up what is missing
            raise ValueError(f"{place} lacks the weights of a {kinds[0]}, as {min(missing)}")
        self._model = model.to(infer_torch_device())
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        self._length = min(self._tokenizer.model_max_length, model.config.max_position_embeddings, 512)

    def embed(self, texts: list[str], pooling: Pooling, normalize: bool) -> list[list[float]]:
        import torch

        settings = {"truncation": True, "max_length": self._length, "return_token_type_ids": False}
        tokens = self._tokenizer(texts, padding=True, return_tensors="pt", **settings).to(self._model.device)
        with torch.inference_mode():
            made = self._model(**tokens)
        if pooling == "pooler":
            vectors = made.pooler_output
        elif pooling == "cls":
            vectors = made.last_hidden_state[:, 0]
        else:
            counted = tokens["attention_mask"].unsqueeze(-1)
            vectors = (made.last_hidden_state * counted).sum(1) / counted.sum(1)
        vectors = torch.nn.functional.normalize(vectors) if normalize else vectors
        return cast(list[list[float]], vectors.float().tolist())


def _folder_in(folder: str, *words: str) -> str:
    found = [one for one in Path(folder).iterdir() if one.is_dir() and any(word in one.name for word in words)]
    if len(found) != 1:
        raise ValueError(f"{folder} holds {len(found)} folders with {' or '.join(words)} in their names, not 1")
    return str(found[0])


def _huggingface(model: str | Path, **settings: Any) -> BaseEmbedding:
    settings |= {"model_name": str(model), "embed_batch_size": 32}
    return cast(BaseEmbedding, make_named("embeddings", f"huggingface:{model}", settings))


def _name(model: Any) -> str:
    metadata = getattr(model, "metadata", None)
    name = getattr(model, "model_name", None) or getattr(metadata, "model_name", None) or "unnamed"
    return f"{type(model).__name__} ({name})"
