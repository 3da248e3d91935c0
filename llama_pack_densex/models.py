"""Which LLM or embedding model a name stands for, and which ones are used if the user names none."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from llama_index.core import MockEmbedding, Settings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.utils import get_cache_dir

from llama_pack_densex.embeddings import ONNX_FILES, BiEncoderEmbedding, OnnxEmbedding, Pooling
from llama_pack_densex.llm.errors import error_text, shown
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
"""The default embedding model: small, and as good in Japanese as in English."""
LOCAL = "local"
"""The same model by ONNX Runtime, without PyTorch."""
# measured on questions worded differently from the text, in English and Japanese (benchmarks/RESULTS.md)
NO_EMBED_MODEL = (
    "none (with keywords alone, 1 in 10 questions worded differently from the text finds its passage first, "
    'with multilingual-e5-small nearly 5 in 10; get it once with: pip install "llama-pack-densex[local]" && '
    f"hf download {E5} {' '.join(ONNX_FILES)})"
)
"""The message if there is no default embedding model: what that costs, and how to get one."""
NONE = "none"
"""No embedding model (keyword search only), or no LLM (sentences as propositions, quotations as answers)."""
_INSTRUCTIONS = ("query_instruction", "text_instruction")


@dataclass(frozen=True)
class Retriever:
    """The checkpoint and settings of a retriever that has a name here.

    Args:
        checkpoint: The encoder's name on the Hugging Face Hub; of two encoders, the one for texts.
        pooling: How a text's token vectors become one; None if the sentence-transformers model says so
            itself.
        normalize: Whether vectors are unit-normalised; False for models that were trained on inner products.
        questions: The question encoder, if it differs from `checkpoint`.
        instructions: The prefix of questions, and the prefix of texts.
    """

    checkpoint: str
    pooling: Pooling | None = None
    normalize: bool = True
    questions: str = ""
    instructions: tuple[str, str] = ("", "")


RETRIEVERS: Mapping[str, Retriever] = {
    # the six retrievers of Dense X Retrieval (section 4.2), each used as its authors use it
    # SimCSE's pooler is for training only
    "simcse": Retriever("princeton-nlp/unsup-simcse-bert-base-uncased", "cls"),
    "contriever": Retriever("facebook/contriever", "mean", normalize=False),
    "dpr": Retriever(
        "facebook/dpr-ctx_encoder-multiset-base",
        "pooler",
        False,
        "facebook/dpr-question_encoder-multiset-base",
    ),
    # initialised from DPR's encoders: pyserini (encode/_dpr.py, docs/experiments-ance.md) loads them as DPR
    "ance": Retriever(
        "castorini/ance-dpr-context-multi", "pooler", False, "castorini/ance-dpr-question-multi"
    ),
    "tas-b": Retriever(
        "sentence-transformers/msmarco-distilbert-base-tas-b", "cls", normalize=False
    ),
    "gtr": Retriever("sentence-transformers/gtr-t5-base"),
    "minilm": Retriever("sentence-transformers/all-MiniLM-L6-v2"),  # English only
    # for Japanese
    "ruri": Retriever("cl-nagoya/ruri-v3-310m", instructions=("検索クエリ: ", "検索文書: ")),
    "multilingual-e5": Retriever(E5, instructions=("query: ", "passage: ")),
    "bge-m3": Retriever("BAAI/bge-m3"),
}
"""Embedding models by name; "contriever:FOLDER" loads the weights from another place."""


def resolve_llm(llm: LLM | str | None, argument: str) -> tuple[LLM | None, str]:
    """Return the LLM that an argument stands for, and a phrase that says which one it is.

    Args:
        llm: An LLM; a name (see `named_llm`); "none"; or None for the default: the user's `Settings.llm` if
            they set one, else OpenAI's gpt-4o-mini if `OPENAI_API_KEY` is set, else none.
        argument: The name of the argument, for messages.

    Raises:
        ValueError: `llm` is none of these (the message names `argument`), there is no LLM of that name, or
            its key is missing.
        ImportError: Its package is missing; the message says which one.
    """
    if llm is None:
        return _default_llm()
    if isinstance(llm, LLM):
        return llm, _name(llm)
    if llm == NONE:
        return None, "none, as asked"
    if isinstance(llm, str) and llm:
        return named_llm(llm), llm
    raise ValueError(
        f'{argument} must be a LlamaIndex LLM, the name of one, "none" or None, not {shown(llm)}'
    )


def _default_llm() -> tuple[LLM | None, str]:
    # the attribute behind the property: reading the property would create core's own OpenAI default
    chosen = Settings._llm
    if type(chosen) is MockLLM:  # core's replacement for None
        return None, "none, as Settings.llm says"
    if chosen:
        return chosen, f"{_name(chosen)} from Settings.llm"
    if os.environ.get("OPENAI_API_KEY"):
        llm = named_llm(OPENAI_MODEL)
        return llm, f"{_name(llm)}, since OPENAI_API_KEY is set"
    return None, "none (Settings.llm and OPENAI_API_KEY are not set)"


def resolve_embed_model(
    embed_model: BaseEmbedding | str | None,
) -> tuple[BaseEmbedding | None, str]:
    """Return the embedding model that an argument or a name stands for.

    Args:
        embed_model: An embedding model; "none" for keyword search only; "local" for multilingual-e5-small
            without PyTorch; the name of a retriever, with or without the folder of its weights ("contriever",
            "contriever:FOLDER"); the folder of a sentence-transformers model; a name with a provider
            ("openai:text-embedding-3-small"), "huggingface:BAAI/bge-m3" or "local:BAAI/bge-m3"; or None for
            the default: the user's `Settings.embed_model` if they set one, else multilingual-e5-small if it
            is on this machine, else none.

    Returns:
        The model, or None for keyword search only, and a phrase that says which one it is.

    Raises:
        ValueError: There is no such model or provider, its key is missing, or it cannot be loaded.
        ImportError: A package is missing; the message names it, or the extra that has it.

    Example:
        >>> from llama_index.core import MockEmbedding
        >>> from llama_pack_densex.models import resolve_embed_model
        >>> resolve_embed_model("none")
        (None, 'none, as asked')
        >>> resolve_embed_model(MockEmbedding(8))[0].class_name()
        'MockEmbedding'
    """
    if embed_model is None:
        return _default_embed_model()
    if isinstance(embed_model, BaseEmbedding):
        return embed_model, _name(embed_model)
    if embed_model == NONE:
        return None, "none, as asked"
    return _embed_model_of(embed_model)


def _embed_model_of(name: str) -> tuple[BaseEmbedding, str]:
    if name == LOCAL:
        return _local_model(), f"{LOCAL} ({E5} by ONNX Runtime)"
    if name.startswith("local:"):  # LlamaIndex's prefix for models on the Hugging Face Hub
        name = name.replace("local:", "huggingface:", 1)
    if name in (E5, f"huggingface:{E5}"):
        return _retriever("multilingual-e5"), E5
    retriever, _, place = name.partition(":")
    if retriever in RETRIEVERS:
        return _retriever(
            retriever, place
        ), f"{retriever} ({place or RETRIEVERS[retriever].checkpoint})"
    model = _huggingface(name) if Path(name).is_dir() else _named_embed_model(name)
    return model, name


def _default_embed_model() -> tuple[BaseEmbedding | None, str]:
    chosen = Settings._embed_model
    if type(chosen) is MockEmbedding and chosen.embed_dim == 1:  # core's replacement for None
        return None, "none, as Settings.embed_model says"
    if chosen:
        return chosen, f"{_name(chosen)} from Settings.embed_model"
    if is_installed("llama_index.embeddings.huggingface") and cached_model(E5):
        return _retriever("multilingual-e5"), E5
    has_packages = is_installed("onnxruntime") and is_installed("tokenizers")
    if has_packages and all(_cached_file(E5, file) for file in ONNX_FILES):
        return _local_model(), f"{LOCAL} ({E5} by ONNX Runtime)"
    return None, NO_EMBED_MODEL


def _named_embed_model(name: str) -> BaseEmbedding:
    provider, model, _ = parse_name(name)
    if provider == "huggingface":
        return _huggingface(model)
    if not is_model_name(name) or not PROVIDERS[provider].embedding:
        providers = ", ".join(name for name, provider in PROVIDERS.items() if provider.embedding)
        raise ValueError(
            f"{shown(name)} names no embedding model: write PROVIDER:MODEL, where PROVIDER is {providers}; "
            f'the folder of a sentence-transformers model; "{LOCAL}" or "{NONE}"; or a retriever: '
            f"{', '.join(RETRIEVERS)}"
        )
    return cast(BaseEmbedding, make_named("embeddings", name, {"model_name": model}))


def embed_model_identity(model: BaseEmbedding | None) -> str:
    """Return the name by which an index recognises the embedding model that made it.

    A model in a folder is identified by the folder's name and a hash of the settings and weights in it, not
    by its path. A checkpoint that this package knows by name keeps that name. The same weights with another
    pooling or other instructions are another model.

    Args:
        model: The model; None for none.
    """
    if not model:
        return NONE
    name = str(model.model_name)
    if Path(name).is_dir():
        name = _identity_of_folder(Path(name))
    settings = [getattr(model, field, None) for field in ("pooling", *_INSTRUCTIONS)]
    use = ", ".join(str(setting).rstrip(": ") for setting in settings if setting)
    kind = model.class_name()
    if kind == BaseEmbedding.class_name():  # core's, for a class that has no name of its own
        kind = type(model).__name__
    if use and name != E5:
        kind = f"{kind} ({use})"
    return f"{kind}: {name}"


def _identity_of_folder(folder: Path) -> str:
    resolved = folder.resolve()
    for retriever in RETRIEVERS.values():
        place = cached_model(retriever.checkpoint)
        if place and place.resolve() == resolved:
            return retriever.checkpoint
    return f"{folder.name} ({_content_of(resolved)})"


def with_whole_path(name: str) -> str:
    """Return the name of an embedding model with a folder in it as an absolute path; others are unchanged."""
    if name in ("", NONE, LOCAL, E5, *RETRIEVERS):
        return name
    kind, colon, place = name.rpartition(":")
    if (
        kind not in ("", "huggingface", "local", *RETRIEVERS)
        or not place
        or not Path(place).is_dir()
    ):
        return name
    return f"{kind}{colon}{Path(place).absolute()}"


def is_same_embed_model(made_by: str, identity: str) -> bool:
    """Return whether a model is the one that made an index; its folder may have been renamed since.

    Args:
        made_by: The identity that the index has stored.
        identity: The identity of the model here (`embed_model_identity`).
    """
    return _FOLDER.sub("", made_by) == _FOLDER.sub("", identity)


# a folder's name, before the hash of its contents
_FOLDER = re.compile(r"(?<=: )[^:]*(?= \([0-9a-f]{12}\)$)")
_MODEL_SUFFIXES = (".json", ".txt", ".model", ".safetensors", ".bin", ".pt")
_OTHER_FORMS = ("onnx", "openvino")  # folders that hold the same model in another format
_SAMPLES = 1024
_SAMPLE_BYTES = 4096


def _content_of(folder: Path) -> str:
    """Return a hash of a model's settings and of 4 MiB sampled evenly from its weights.

    A sample is enough: two models of the same shape differ everywhere.
    """
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder)
        is_another_form = any(part[0] == "." or part in _OTHER_FORMS for part in name.parts)
        if name.suffix not in _MODEL_SUFFIXES or is_another_form or not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"{name.as_posix()} {size}\n".encode())
        with file.open("rb") as stream:
            if size <= _SAMPLES * _SAMPLE_BYTES:
                digest.update(stream.read())
                continue
            for number in range(_SAMPLES):
                stream.seek((size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
                digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:12]


def cached_model(repository: str) -> Path | None:
    """Return the folder of a Hugging Face model that is in the local cache with its weights, or None."""
    # huggingface_hub's own cache (its environment variables may move it), then the folder that
    # HuggingFaceEmbedding downloads to
    for cache in (None, get_cache_dir()):
        for weights in ("model.safetensors", "pytorch_model.bin"):
            file = _cached_file(repository, weights, cache)
            if file and (file.parent / "config.json").exists():
                return file.parent
    return None


def _cached_file(repository: str, name: str, cache: str | None = None) -> Path | None:
    """Return a file of a Hugging Face model in a local cache, or None."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    file = try_to_load_from_cache(repository, name, cache)
    return Path(file) if isinstance(file, str) else None


def _retriever(name: str, place: str = "") -> BaseEmbedding:
    """Load a named retriever, from `place` if given: a folder, or another name on the Hub."""
    retriever = RETRIEVERS[name]
    checkpoint = place or _place_of(retriever.checkpoint)
    questions = "" if place else _place_of(retriever.questions)
    try:
        if retriever.pooling is None:
            return _huggingface(
                checkpoint, **dict(zip(_INSTRUCTIONS, retriever.instructions, strict=True))
            )
        return BiEncoderEmbedding(
            model_name=checkpoint,
            pooling=retriever.pooling,
            normalize=retriever.normalize,
            question_model_name=questions,
        )
    except ImportError as error:
        if retriever.pooling is None:  # its message already says what to install
            raise
        raise ImportError(
            f"{name!r} needs transformers and torch ({error}); {HUGGINGFACE_ADVICE}"
        ) from error
    except (
        Exception
    ) as error:  # transformers raises many types if a model is missing or of another kind
        full_name = f"{name}:{place}".rstrip(":")
        checkpoints = " and ".join(filter(None, (retriever.checkpoint, retriever.questions)))
        both = ", a folder that holds both" if retriever.questions else ""
        raise ValueError(
            f"{full_name!r} cannot be loaded: {error_text(error).rstrip('.')}. Without a network, get "
            f"{checkpoints} elsewhere with `hf download`, and write {name}:FOLDER{both}"
        ) from None


def _place_of(checkpoint: str) -> str:
    """Return the folder of a checkpoint that was downloaded earlier, else the checkpoint's name."""
    return checkpoint and str(cached_model(checkpoint) or checkpoint)


def _local_model() -> BaseEmbedding:
    """Load the default model by ONNX Runtime.

    Raises:
        ImportError: A package of the extra `local` is missing.
        ValueError: The model is not on this machine and cannot be downloaded, or is damaged.
    """
    try:
        return OnnxEmbedding(
            model_name=E5, query_instruction="query: ", text_instruction="passage: "
        )
    except ImportError as error:
        raise ImportError(
            f"{LOCAL!r} needs the extra of that name ({error}); {LOCAL_ADVICE}"
        ) from error
    except Exception as error:  # many types are raised if the model is missing or damaged
        raise ValueError(
            f"{LOCAL!r} cannot be loaded: {error_text(error).rstrip('.')}. With a network, get the model "
            f"once with: hf download {E5} {' '.join(ONNX_FILES)}"
        ) from None


def _huggingface(model: str | Path, **settings: Any) -> BaseEmbedding:
    settings |= {"model_name": str(model), "embed_batch_size": 32}
    return cast(BaseEmbedding, make_named("embeddings", f"huggingface:{model}", settings))


def _name(model: Any) -> str:
    metadata = getattr(model, "metadata", None)
    name = getattr(model, "model_name", None) or getattr(metadata, "model_name", None) or "unnamed"
    return f"{type(model).__name__} ({name})"
