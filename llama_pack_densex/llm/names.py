"""What a model's name stands for: PROVIDER:MODEL, by the classes that LlamaIndex has for its provider."""

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

from llama_index.core.llms import LLM, LLMMetadata

from llama_pack_densex.llm.errors import error_text, shown
from llama_pack_densex.llm.usage import Arguments

OPENAI_MODEL = "gpt-4o-mini"
"""The LLM if there is nothing but an OpenAI key: cheap, and good enough at propositions in both languages."""

HUGGINGFACE_ADVICE = 'install it with: pip install "llama-pack-densex[huggingface]"'
LOCAL_ADVICE = 'install it with: pip install "llama-pack-densex[local]"'


@dataclass(frozen=True)
class Provider:
    """What a name that begins with a provider's stands for.

    Args:
        module: Where its classes are, in `llama_index.llms` and `llama_index.embeddings`.
        llm: The class of its LLMs.
        embedding: The class of its embedding models; empty where it has none.
        address: What both call the address of a server; empty where they take none.
        keys: Environment variables, one of which has to be set; empty where no key is needed.
        variables: Environment variables that have to be set besides.
        model_fields: What its LLMs call the model's name.
        settings: Of the LLM, where LlamaIndex's own are too small for propositions, or have to be asked of a
            server.
    """

    module: str
    llm: str
    embedding: str
    address: str = ""
    keys: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    model_fields: tuple[str, ...] = ("model",)
    settings: Mapping[str, Any] = field(default_factory=dict)


PROVIDERS = {
    "openai": Provider("openai", "OpenAI", "OpenAIEmbedding", "api_base", ("OPENAI_API_KEY",)),
    "openai-like": Provider(
        "openai_like", "OpenAILike", "OpenAILikeEmbedding", "api_base",
        settings={"is_chat_model": True, "context_window": 8192, "timeout": 300.0},
    ),
    "ollama": Provider(
        "ollama", "Ollama", "OllamaEmbedding", "base_url",
        settings={"context_window": 8192, "request_timeout": 300.0},
    ),
    "anthropic": Provider(
        "anthropic", "Anthropic", "", "base_url",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        settings={"max_tokens": 4096},
    ),
    "google": Provider(
        "google_genai", "GoogleGenAI", "GoogleGenAIEmbedding", "",
        ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"),
        settings={"max_tokens": 32_768, "context_window": 1_000_000},
    ),
    "huggingface": Provider(
        "huggingface", "HuggingFaceLLM", "HuggingFaceEmbedding",
        model_fields=("model_name", "tokenizer_name"),
        settings={"is_chat_model": True, "context_window": 8192, "max_new_tokens": 2048},
    ),
    "azure": Provider(
        "azure_openai", "AzureOpenAI", "", "",
        ("AZURE_OPENAI_API_KEY",),
        ("AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION"),
        ("model", "engine"),
    ),
    "bedrock": Provider("bedrock_converse", "BedrockConverse", "", settings={"max_tokens": 4096}),
}  # fmt: skip
ASSUMED_WINDOW = 128_000
"""Tokens that a model is taken to read if LlamaIndex's class does not know it."""
_NAME = re.compile(r"(?:([\w-]+):|(?![\w-]*:))(.+?)(?:@(https?://\S+))?")
_OPENAI_LIKE_KEYS = ("OPENAI_LIKE_API_KEY", "OPENAI_API_KEY")  # such servers may want one


def parse_name(name: str) -> tuple[str, str, str]:
    """The parts of a model's name: its provider (OpenAI in a bare name), the model, and its server's address.

    Args:
        name: "PROVIDER:MODEL", "PROVIDER:MODEL@http://..." or "MODEL".

    Raises:
        ValueError: It has none of these forms, there is no such provider, or the address contains a key.
    """
    if name.startswith("ft:"):  # OpenAI's own names for fine-tuned models
        return "openai", name, ""
    parts = _NAME.fullmatch(name)
    provider, model, address = parts.groups(default="") if parts else ("", "", "")
    if not model or (provider and provider not in PROVIDERS):
        raise ValueError(
            f"{shown(name)} names no model: there is no provider {name.partition(':')[0]!r}, or no model "
            f"after it. Write PROVIDER:MODEL, where PROVIDER is {', '.join(PROVIDERS)}, as in ollama:qwen3:8b"
        )
    provider = provider or "openai"
    parts_of_address = urlsplit(address)
    if parts_of_address.username is not None or parts_of_address.query:
        raise ValueError(
            f"the address of {model!r} holds a key: keys are taken from the environment"
        )
    if address and not PROVIDERS[provider].address:
        raise ValueError(f"{shown(name)}: models of {provider} take no address")
    return provider, model, address


def is_model_name(text: str) -> bool:
    """Whether a text is a name with a provider."""
    return text.partition(":")[0] in PROVIDERS


def with_address(names: Iterable[str | None], address: str) -> list[str | None]:
    """Add a server's address to the names of models: of providers that need no key, else of any that take
    one.

    Args:
        names: Names with a provider; any other, or one with an address, stays as it is.
        address: The server's.

    Raises:
        ValueError: It is no address of a server, or none of the models has a use for it.
    """
    names = list(names)
    users: list[str] = []
    for name in filter(is_model_name, filter(None, names)):
        provider, _, own_address = parse_name(name)
        if PROVIDERS[provider].address and not own_address:
            users.append(name)
    users = [name for name in users if not PROVIDERS[parse_name(name)[0]].keys] or users
    if not users or not address.startswith(("http://", "https://")):
        raise ValueError(
            "an address is http://... or https://..., for models as openai-like:qwen3:8b (also ollama:, "
            f"openai: and anthropic:); not {shown(address)} for {', '.join(filter(None, names)) or 'none'}"
        )
    return [f"{name}@{address}" if name in users else name for name in names]


def with_provider(name: str) -> str:
    """The name of an LLM with its provider, which is OpenAI where it has none.

    Raises:
        ValueError: As `parse_name`.
    """
    return name if is_model_name(name) else f"{parse_name(name)[0]}:{name}"


def named_llm(name: str, *, is_called: bool = True) -> LLM:
    """The LLM of a name, with its key from the environment.

    Args:
        name: As `parse_name` takes it.
        is_called: Whether it will be sent requests. If not, it needs no key, may have any name, and, if its
            package is missing, is replaced by OpenAI's class, which says what it would be asked.

    Raises:
        ValueError: There is no such model or provider, its key is missing, or it cannot be made.
        ImportError: Its package is missing; the message says which.
    """
    provider, model, _ = parse_name(name)
    if not is_called and not _can_be_made(provider):
        provider = "openai"
        name = f"openai:{model}"
    about = PROVIDERS[provider]
    settings = {**about.settings, **dict.fromkeys(about.model_fields, model)}
    llm: LLM = make_named("llms", name, settings, is_called)
    try:
        _ = llm.metadata
    except ValueError:  # its class does not know it
        llm = _assuming(type(llm))(**settings)
    return llm


def _can_be_made(provider: str) -> bool:
    """Whether the LLMs of a provider can be made without weights, with what is set and installed here."""
    if provider == "huggingface" or (provider == "bedrock" and not _region()):
        return False
    return all(map(os.environ.get, PROVIDERS[provider].variables)) and is_installed(
        _module("llms", provider)
    )


def _region() -> dict[str, str]:
    """The region of Bedrock, which boto3 reads from the second of these variables alone."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return {"region_name": region} if region else {}


def _assuming(llm_class: Any) -> Any:
    """A class of LLMs that takes a model which LlamaIndex does not know for a large one that chats."""

    class Assuming(llm_class):  # type: ignore[misc]
        @property
        def metadata(self) -> LLMMetadata:
            try:
                return super().metadata  # type: ignore[no-any-return]
            except ValueError:  # it is newer than the installed package
                return LLMMetadata(
                    context_window=ASSUMED_WINDOW,
                    num_output=getattr(self, "max_tokens", None) or -1,
                    is_chat_model=True,
                    model_name=self.model,
                )

    # what replies and nodes are known by, and where it is imported from
    for name in ("__name__", "__qualname__", "__module__"):
        setattr(Assuming, name, getattr(llm_class, name))
    return Assuming


def make_named(
    kind: str,
    name: str,
    settings: Arguments,
    is_called: bool = True,
) -> Any:
    """Make a model of LlamaIndex's, with its key and its address.

    Args:
        kind: "llms" or "embeddings".
        name: As `parse_name` takes it.
        settings: Its other arguments, to which key and address are added.
        is_called: As in `named_llm`.
    """
    name_of_provider, _, address = parse_name(name)
    provider = PROVIDERS[name_of_provider]
    module = _module(kind, name_of_provider)
    try:
        model_class = getattr(
            import_module(module), provider.llm if kind == "llms" else provider.embedding
        )
    except ImportError as error:
        advice = f"install it with: pip install {_package(module)}"
        if module.endswith("embeddings.huggingface"):
            advice = HUGGINGFACE_ADVICE
        raise ImportError(f"{shown(name)} needs {_package(module)} ({error}); {advice}") from error
    settings |= _key(name, name_of_provider, address, is_called)
    address = address or _base_url(name_of_provider)
    if address:
        settings[provider.address] = address
    try:
        return model_class(**settings)
    except Exception as error:  # whatever a provider's client raises if its model is not there
        raise ValueError(f"{shown(name)} cannot be made: {error_text(error)}") from None


def _base_url(provider: str) -> str:
    """The address in OpenAI's own variable, which LlamaIndex's classes do not read: whoever set it for a
    gateway sends nothing to OpenAI."""
    if provider not in ("openai", "openai-like") or os.environ.get("OPENAI_API_BASE"):
        return ""
    return os.environ.get("OPENAI_BASE_URL", "")


def _key(name: str, provider: str, address: str, is_called: bool) -> dict[str, str]:
    """The argument with a model's key; empty if LlamaIndex finds the key itself."""
    if provider == "openai-like":
        if is_called and not (address or os.environ.get("OPENAI_API_BASE") or _base_url(provider)):
            raise ValueError(
                f"{shown(name)} needs its server's address: {name}@http://localhost:8000/v1, --api-base "
                "at the command line, or the environment variable OPENAI_API_BASE"
            )
        return {"api_key": next(filter(None, map(os.environ.get, _OPENAI_LIKE_KEYS)), "none")}
    if provider == "bedrock":
        return _region()
    if is_called:
        _need_variables(name, provider)
    return {"api_key": "none, since nothing is asked"} if _lacks_key(provider) else {}


def _need_variables(name: str, provider: str) -> None:
    if _lacks_key(provider):
        variable = PROVIDERS[provider].keys[0]
        raise ValueError(f"{shown(name)} needs a key: set the environment variable {variable}")
    for variable in PROVIDERS[provider].variables:
        if not os.environ.get(variable):
            raise ValueError(f"{shown(name)} needs more: set the environment variable {variable}")


def _lacks_key(provider: str) -> bool:
    keys = PROVIDERS[provider].keys
    if provider == "openai" and getattr(sys.modules.get("openai"), "api_key", None):
        return False
    return bool(keys) and not any(map(os.environ.get, keys))


def _module(kind: str, provider: str) -> str:
    return f"llama_index.{kind}.{PROVIDERS[provider].module}"


def _package(module: str) -> str:
    return module.replace(".", "-").replace("_", "-")


def is_installed(module: str) -> bool:
    """Whether a module, and the package around it, is installed."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False
