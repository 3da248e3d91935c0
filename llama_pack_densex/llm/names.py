"""What a model's name stands for: PROVIDER:MODEL, made by the classes that LlamaIndex has for its provider."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from llama_index.core.llms import LLM

from llama_pack_densex.llm.errors import scrub, shown

OPENAI_MODEL = "gpt-4o-mini"
"""The LLM where there is nothing but an OpenAI key: cheap, and good enough at propositions in both languages."""

HUGGINGFACE_ADVICE = 'install it with: pip install "llama-pack-densex[huggingface]"'


@dataclass(frozen=True)
class Provider:
    """What a name that begins with a provider's stands for.

    Args:
        module: Where its classes are, in `llama_index.llms` and `llama_index.embeddings`.
        llm: The class of its LLMs.
        embedding: The class of its embedding models; empty where it has none.
        address: What both call the address of a server; empty where they take none.
        keys: Environment variables, one of which has to be set; empty where no key is needed.
        settings: Of the LLM, where LlamaIndex's own are too small for propositions, or have to be asked of a server.
    """

    module: str
    llm: str
    embedding: str
    address: str = ""
    keys: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


PROVIDERS = {
    "openai": Provider("openai", "OpenAI", "OpenAIEmbedding", "api_base", ("OPENAI_API_KEY",)),
    "openai-like": Provider(
        "openai_like", "OpenAILike", "OpenAILikeEmbedding", "api_base",
        settings={"is_chat_model": True, "context_window": 8192, "timeout": 300.0},
    ),
    "ollama": Provider(
        "ollama", "Ollama", "OllamaEmbedding", "base_url", (), {"context_window": 8192, "request_timeout": 300.0}
    ),
    "anthropic": Provider(
        "anthropic", "Anthropic", "", "base_url", ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), {"max_tokens": 4096}
    ),
    "google": Provider(
        "google_genai", "GoogleGenAI", "GoogleGenAIEmbedding", "",
        ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"),
        {"max_tokens": 32_768, "context_window": 1_000_000},
    ),
    "huggingface": Provider(
        "huggingface", "HuggingFaceLLM", "HuggingFaceEmbedding",
        settings={"is_chat_model": True, "context_window": 8192, "max_new_tokens": 2048},
    ),
}  # fmt: skip
_NAME = re.compile(r"(?:([\w-]+):|(?![\w-]*:))(.+?)(?:@(https?://\S+))?")
_OPENAI_LIKE_KEYS = ("OPENAI_LIKE_API_KEY", "OPENAI_API_KEY")  # such servers may want one


def parse_name(name: str) -> tuple[str, str, str]:
    """The parts of a model's name: its provider (OpenAI in a bare name), what that calls it, its server's address.

    Args:
        name: "PROVIDER:MODEL", "PROVIDER:MODEL@http://..." or "MODEL".

    Raises:
        ValueError: It is of no such form, there is no such provider, or the address has a key in it.
    """
    if name.startswith("ft:"):  # OpenAI's own names for what was trained further
        return "openai", name, ""
    found = _NAME.fullmatch(name)
    provider, model, address = found.groups(default="") if found else ("", "", "")
    if not model or (provider and provider not in PROVIDERS):
        raise ValueError(
            f"{shown(name)} names no model: there is no provider {name.partition(':')[0]!r}, or no model after it. "
            f"Write PROVIDER:MODEL, where PROVIDER is {', '.join(PROVIDERS)}, as in ollama:qwen3:8b"
        )
    if address and (urlsplit(address).username is not None or urlsplit(address).query):
        raise ValueError(f"the address of {model!r} holds a user or a key: keys are taken from the environment")
    if address and not PROVIDERS[provider or "openai"].address:
        raise ValueError(f"{shown(name)}: models of {provider} take no address")
    return provider or "openai", model, address


def is_model_name(text: str) -> bool:
    """Whether a text is a name with a provider."""
    return text.partition(":")[0] in PROVIDERS


def with_address(names: Iterable[str | None], address: str) -> list[str | None]:
    """Models' names with the address of a server: those of providers that need no key, else of any that take one.

    Args:
        names: Names; what has no provider, or an address already, stays.
        address: The server's.

    Raises:
        ValueError: It is no address of a server, or none of the models has a use for it.
    """
    names = list(names)
    parsed = {name: parse_name(name) for name in names if name and is_model_name(name)}
    taking = {name: PROVIDERS[of] for name, (of, _, own) in parsed.items() if PROVIDERS[of].address and not own}
    taking = {name: one for name, one in taking.items() if not one.keys} or taking
    if not taking or not address.startswith(("http://", "https://")):
        raise ValueError(
            "an address is http://... or https://..., for models as openai-like:qwen3:8b (also ollama:, openai: and "
            f"anthropic:); not {shown(address)} for {', '.join(filter(None, names)) or 'none'}"
        )
    return [f"{name}@{address}" if name in taking else name for name in names]


def named_llm(name: str, *, asked: bool = True) -> LLM:
    """The LLM of a name, with its key from the environment.

    Args:
        name: As `parse_name` takes it.
        asked: Whether it is to be asked. If not, it needs no key, may have any name, and, where its package is missing,
            OpenAI's class stands in for it, which says what it would be asked.

    Raises:
        ValueError: There is no such model or provider, its key is missing, or it cannot be made.
        ImportError: Its package is missing; the message says which.
    """
    provider, model, _ = parse_name(name)
    if not asked and (provider == "huggingface" or not is_installed(_module("llms", provider))):
        name, provider = f"openai:{model}", "openai"
    fields = ("model_name", "tokenizer_name") if provider == "huggingface" else ("model",)
    llm: LLM = make_named("llms", name, {**PROVIDERS[provider].settings, **dict.fromkeys(fields, model)}, asked)
    if asked:
        check_known(llm, name)
    return llm


def check_known(llm: LLM, name: str) -> None:
    """Refuse a model of which LlamaIndex's class does not know the context window.

    Raises:
        ValueError: It is such a model.
    """
    try:
        _ = llm.metadata
    except ValueError:
        provider, model, _ = parse_name(name)
        way_out = f", or write openai-like:{model}@https://api.openai.com/v1" if provider == "openai" else ""
        package = _package(_module("llms", provider))
        raise ValueError(f"{shown(name)} is no model that {package} knows: upgrade that package{way_out}") from None


def make_named(kind: str, name: str, settings: dict[str, Any], asked: bool = True) -> Any:
    """A model of LlamaIndex's, with its key and its address."""
    provider, _, address = parse_name(name)
    made_by, module = PROVIDERS[provider], _module(kind, provider)
    try:
        made = getattr(import_module(module), made_by.llm if kind == "llms" else made_by.embedding)
    except ImportError as error:
        advice = f"install it with: pip install {_package(module)}"
        advice = HUGGINGFACE_ADVICE if module.endswith("embeddings.huggingface") else advice
        raise ImportError(f"{shown(name)} needs {_package(module)} ({error}); {advice}") from error
    of_module = getattr(sys.modules.get("openai"), "api_key", None) if provider == "openai" else None
    if provider == "openai-like":
        settings["api_key"] = next(filter(None, map(os.environ.get, _OPENAI_LIKE_KEYS)), "none")
        if asked and not address and not os.environ.get("OPENAI_API_BASE"):
            raise ValueError(
                f"{shown(name)} needs its server's address: {name}@http://localhost:8000/v1, --api-base at the command "
                "line, or the environment variable OPENAI_API_BASE"
            )
    elif made_by.keys and not of_module and not any(map(os.environ.get, made_by.keys)):
        if asked:
            raise ValueError(f"{shown(name)} needs a key: set the environment variable {made_by.keys[0]}")
        settings["api_key"] = "none, since nothing is asked"
    try:
        return made(**settings, **({made_by.address: address} if address else {}))
    except Exception as error:  # whatever a provider's client raises where its model is not there
        raise ValueError(f"{shown(name)} cannot be made: {scrub(f'{type(error).__name__}: {error}')}") from None


def _module(kind: str, provider: str) -> str:
    return f"llama_index.{kind}.{PROVIDERS[provider].module}"


def _package(module: str) -> str:
    return module.replace(".", "-").replace("_", "-")


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False
