"""Embedding models that LlamaIndex's integrations do not run: by ONNX Runtime, and older retrievers."""

from __future__ import annotations

from asyncio import to_thread
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.utils import infer_torch_device

Pooling = Literal["cls", "mean", "pooler"]
"""How a text's token vectors become one: "cls", the first, before any pooler; "mean", their mean; "pooler",
the output of the model's own pooler."""

ONNX_FILES = ("onnx/model.onnx", "tokenizer.json")
_ONNX_TOKENS = 512  # longer texts are truncated


class SynchronousEmbedding(BaseEmbedding):
    """Base of models without asynchronous requests: subclasses embed one question, and a list of texts."""

    embed_batch_size: int = Field(default=32, gt=0, description="Texts that are embedded together.")

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]


class OnnxEmbedding(SynchronousEmbedding):
    """Embeds texts by ONNX Runtime, each as the unit-normalised mean of its token vectors.

    Args:
        model_name: A model on the Hugging Face Hub that has `onnx/model.onnx` and `tokenizer.json`. It is
            downloaded on first use.

    Raises:
        ImportError: onnxruntime, tokenizers or huggingface-hub is missing.
        OSError: The model is not on this machine and cannot be downloaded.
    """

    query_instruction: str = Field(default="", description="Prefix of questions.")
    text_instruction: str = Field(default="", description="Prefix of texts.")
    _session: Any = PrivateAttr()
    _tokenizer: Any = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        from onnxruntime import InferenceSession
        from tokenizers import Tokenizer

        model, tokenizer = (_file_on_hub(self.model_name, file) for file in ONNX_FILES)
        self._session = InferenceSession(model, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(tokenizer)
        self._tokenizer.enable_truncation(_ONNX_TOKENS)
        self._tokenizer.enable_padding()

    def __reduce__(self) -> tuple[Any, ...]:
        fields = ("model_name", "embed_batch_size", "query_instruction", "text_instruction")
        settings = {field: getattr(self, field) for field in fields}
        return partial(type(self), **settings), ()  # unpickling creates a new session

    @classmethod
    def class_name(cls) -> str:
        return "OnnxEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed([f"{self.query_instruction}{query}"])[0]

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


def _file_on_hub(repository: str, name: str) -> str:
    """Return the local path of a file on the Hugging Face Hub, downloading it if it is not cached."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    with suppress(LocalEntryNotFoundError):
        return str(hf_hub_download(repository, name, local_files_only=True))
    try:
        return str(hf_hub_download(repository, name))
    except LocalEntryNotFoundError as error:
        # in old versions of huggingface_hub it is also a ValueError, which pydantic would wrap
        raise OSError(str(error)) from error


class BiEncoderEmbedding(SynchronousEmbedding):
    """Embeds texts and questions with a transformers model, or with one encoder for each (DPR).

    For checkpoints that do not say how they are pooled: sentence-transformers would take the mean. Like
    transformers' `AutoModel`, it also loads DPR's text encoder as a question encoder, with random weights.

    Args:
        model_name: The encoder's folder, or its name on the Hugging Face Hub.
        pooling: See `Pooling`; "pooler" is for the two encoders of DPR (Karpukhin et al. 2020).
        normalize: Whether vectors are unit-normalised.
        question_model_name: DPR's question encoder. With "pooler" and without this, `model_name` is a folder
            that holds both encoders: one with "question" in its name, one with "ctx" or "context".

    Raises:
        OSError: There is no such model.
        ValueError: The model lacks the weights of such an encoder, or the folder does not hold exactly one
            encoder of each kind.
    """

    pooling: Pooling = Field(description="How a text's token vectors become one vector.")
    normalize: bool = Field(default=False, description="Whether vectors are unit-normalised.")
    question_model_name: str = Field(
        default="", description="The question encoder, if it differs from the text encoder."
    )
    _texts: _Encoder = PrivateAttr()
    _questions: _Encoder = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        if self.pooling != "pooler":
            self._texts = _Encoder(self.model_name, "AutoModel")
            self._questions = self._texts
            return
        texts = (
            self.model_name
            if self.question_model_name
            else _folder_in(self.model_name, "ctx", "context")
        )
        self._texts = _Encoder(texts, "DPRContextEncoder", "DPRQuestionEncoder")
        questions = self.question_model_name or _folder_in(self.model_name, "question")
        self._questions = _Encoder(questions, "DPRQuestionEncoder", "DPRContextEncoder")

    @classmethod
    def class_name(cls) -> str:
        return "BiEncoderEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._questions.embed([query], self.pooling, self.normalize)[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._texts.embed(texts, self.pooling, self.normalize)


class _Encoder:
    """A model and its tokenizer, loaded with the first of the transformers classes `kinds` that fits the
    checkpoint."""

    def __init__(self, place: str, *kinds: str) -> None:
        import transformers

        for kind in kinds:  # DPR's two classes differ only in the names of their weights
            model, report = getattr(transformers, kind).from_pretrained(
                place, output_loading_info=True
            )
            missing = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
            if not missing:
                break
        else:  # transformers would fill missing weights with random values
            raise ValueError(f"{place} lacks the weights of a {kinds[0]}, such as {min(missing)}")
        self._model = model.to(infer_torch_device())
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        self._length = min(
            self._tokenizer.model_max_length, model.config.max_position_embeddings, 512
        )

    def embed(self, texts: list[str], pooling: Pooling, normalize: bool) -> list[list[float]]:
        """Return a vector for each text."""
        import torch

        settings = {"truncation": True, "max_length": self._length, "return_token_type_ids": False}
        tokens = self._tokenizer(texts, padding=True, return_tensors="pt", **settings).to(
            self._model.device
        )
        with torch.inference_mode():
            output = self._model(**tokens)
        if pooling == "pooler":
            vectors = output.pooler_output
        elif pooling == "cls":
            vectors = output.last_hidden_state[:, 0]
        else:
            is_token = tokens["attention_mask"].unsqueeze(-1)
            vectors = (output.last_hidden_state * is_token).sum(1) / is_token.sum(1)
        if normalize:
            vectors = torch.nn.functional.normalize(vectors)
        return cast(list[list[float]], vectors.float().tolist())


def _folder_in(folder: str, *words: str) -> str:
    """Return the only subfolder of a folder whose name contains one of these words.

    Raises:
        ValueError: No such subfolder, or more than one.
    """
    matching = [
        place
        for place in Path(folder).iterdir()
        if place.is_dir() and any(word in place.name for word in words)
    ]
    if len(matching) != 1:
        raise ValueError(
            f"{folder} holds {len(matching)} folders with {' or '.join(words)} in their names, not 1"
        )
    return str(matching[0])
