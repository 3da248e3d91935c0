"""Models by name, as PROVIDER:MODEL, using the classes that LlamaIndex has for the provider."""

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
"""The default LLM if only an OpenAI key is set: cheap, and good enough at propositions in both languages."""

HUGGINGFACE_ADVICE = 'install it with: pip install "llama-pack-densex[huggingface]"'
LOCAL_ADVICE = 'install it with: pip install "llama-pack-densex[local]"'


@dataclass(frozen=True)
class Provider:
    """A provider of models, and the LlamaIndex classes for it.

    Args:
        module: The module of its classes, in `llama_index.llms` and `llama_index.embeddings`.
        llm: The class of its LLMs.
        embedding: The class of its embedding models; empty if it has none.
        address: The argument of both classes for the address of a server; empty if they take none.
        keys: Environment variables, one of which must be set; empty if no key is needed.
        variables: Further environment variables that must be set.
        model_fields: The arguments of the LLM class for the model's name.
        settings: Other arguments of the LLM class, where LlamaIndex's defaults are too small for propositions
            or would be requested from a server.
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
"""Context window in tokens that is assumed for a model that LlamaIndex's class does not know."""
_NAME = re.compile(r"(?:([\w-]+):|(?![\w-]*:))(.+?)(?:@(https?://\S+))?")
_OPENAI_LIKE_KEYS = ("OPENAI_LIKE_API_KEY", "OPENAI_API_KEY")  # such servers may require a key


def parse_name(name: str) -> tuple[str, str, str]:
    """Split a model's name into its provider (OpenAI for a bare name), the model, and its server's address.

    Args:
        name: "PROVIDER:MODEL", "PROVIDER:MODEL@http://..." or "MODEL".

    Raises:
        ValueError: The name has none of these forms, there is no such provider, the provider's models take no
            address, or the address contains a key.
    """
    if name.startswith("ft:"):  # OpenAI's own names for fine-tuned models
        return "openai", name, ""
    provider = model = address = ""
    parts = _NAME.fullmatch(name)
    if parts:
        provider, model, address = parts.groups(default="")
    if not model or (provider and provider not in PROVIDERS):
        raise ValueError(
            f"{shown(name)} names no model: there is no provider {name.partition(':')[0]!r}, or no model "
            f"after it. Write PROVIDER:MODEL, where PROVIDER is {', '.join(PROVIDERS)}, as in ollama:qwen3:8b"
        )
    provider = provider or "openai"
    if _holds_key(address):
        raise ValueError(
            f"the address of {model!r} holds a key: keys are taken from the environment"
        )
    if address and not PROVIDERS[provider].address:
        raise ValueError(f"{shown(name)}: models of {provider} take no address")
    return provider, model, address


def is_model_name(text: str) -> bool:
    """Return whether a text begins with the name of a provider."""
    return text.partition(":")[0] in PROVIDERS


def with_address(names: Iterable[str | None], address: str) -> list[str | None]:
    """Add a server's address to the names of models whose provider needs no key, else to all that take one.

    Args:
        names: The models' names; names without a provider, or with an address, stay unchanged.
        address: The server's address.

    Raises:
        ValueError: It is not the address of a server, or no model takes an address.
    """
    names = list(names)
    users = list(filter(_takes_address, filter(None, names)))
    users = [name for name in users if not PROVIDERS[parse_name(name)[0]].keys] or users
    if not users or not address.startswith(("http://", "https://")):
        raise ValueError(
            "an address is http://... or https://..., for models as openai-like:qwen3:8b (also ollama:, "
            f"openai: and anthropic:); not {shown(address)} for {', '.join(filter(None, names)) or 'none'}"
        )
    return [f"{name}@{address}" if name in users else name for name in names]


def _takes_address(name: str) -> bool:
    if not is_model_name(name):
        return False
    provider, _, own_address = parse_name(name)
    return bool(PROVIDERS[provider].address) and not own_address


def with_provider(name: str) -> str:
    """Return the name of an LLM with its provider, which is OpenAI for a bare name.

    Raises:
        ValueError: As `parse_name`.
    """
    if is_model_name(name):
        return name
    provider, _, _ = parse_name(name)
    return f"{provider}:{name}"


def named_llm(name: str, *, is_called: bool = True) -> LLM:
    """Make the LLM of a name, with its key from the environment.

    Args:
        name: The name, in a form of `parse_name`.
        is_called: Whether requests will be sent to it. If not, it needs no key, may have any name, and, if
            it cannot be made here, is replaced by OpenAI's class, so that its requests can be estimated.

    Raises:
        ValueError: There is no such model or provider, its key is missing, or it cannot be made.
        ImportError: Its package is missing; the message names it.
    """
    provider, model, _ = parse_name(name)
    if not is_called and not _can_be_made(provider):
        provider = "openai"
        name = f"openai:{model}"
    fields = dict.fromkeys(PROVIDERS[provider].model_fields, model)
    settings = {**PROVIDERS[provider].settings, **fields}
    llm: LLM = make_named("llms", name, settings, is_called)
    try:
        _ = llm.metadata
    except ValueError:  # its class does not know the model
        llm = _assuming(type(llm))(**settings)
    return llm


def _can_be_made(provider: str) -> bool:
    """Return whether a provider's LLMs can be made here: without weights, given settings and packages."""
    if provider == "huggingface" or (provider == "bedrock" and not _region()):
        return False
    has_variables = all(map(os.environ.get, PROVIDERS[provider].variables))
    return has_variables and is_installed(_module("llms", provider))


def _region() -> dict[str, str]:
    """Return Bedrock's region as an argument; boto3 reads only the second of these variables."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        return {}
    return {"region_name": region}


def _assuming(llm_class: Any) -> Any:
    """Return a subclass that assumes a model unknown to LlamaIndex to be a large chat model."""

    class Assuming(llm_class):  # type: ignore[misc]
        @property
        def metadata(self) -> LLMMetadata:
            try:
                return super().metadata  # type: ignore[no-any-return]
            except ValueError:  # the model is newer than the installed package
                return LLMMetadata(
                    context_window=ASSUMED_WINDOW,
                    num_output=getattr(self, "max_tokens", None) or -1,
                    is_chat_model=True,
                    model_name=self.model,
                )

    # cached replies, fingerprints and imports use these
    for name in ("__name__", "__qualname__", "__module__"):
        setattr(Assuming, name, getattr(llm_class, name))
    return Assuming


def make_named(
    kind: str,
    name: str,
    settings: Arguments,
    is_called: bool = True,
) -> Any:
    """Make a LlamaIndex model, with its key and its address.

    Args:
        kind: "llms" or "embeddings".
        name: The name, in a form of `parse_name`.
        settings: The other arguments of its class; key and address are added to them.
        is_called: See `named_llm`.

    Raises:
        ValueError: The model's key or another setting is missing, or it cannot be made.
        ImportError: Its package is missing; the message names it.
    """
    name_of_provider, _, address = parse_name(name)
    provider = PROVIDERS[name_of_provider]
    module = _module(kind, name_of_provider)
    class_name = provider.llm if kind == "llms" else provider.embedding
    try:
        model_class = getattr(import_module(module), class_name)
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
    except Exception as error:  # providers' clients raise anything if a model is missing
        raise ValueError(f"{shown(name)} cannot be made: {error_text(error)}") from None


def _base_url(provider: str) -> str:
    """Return the address in OPENAI_BASE_URL, which LlamaIndex's classes do not read: whoever set it for a
    gateway does not want requests sent to OpenAI."""
    if provider not in ("openai", "openai-like") or os.environ.get("OPENAI_API_BASE"):
        return ""
    return os.environ.get("OPENAI_BASE_URL", "")


def _holds_key(address: str) -> bool:
    parts = urlsplit(address)
    return parts.username is not None or parts.query != ""


def _key(name: str, provider: str, address: str, is_called: bool) -> dict[str, str]:
    """Return the arguments for a model's key (or region); empty if LlamaIndex finds the key itself."""
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
    elif _lacks_key(provider):
        return {"api_key": "none, since nothing is asked"}
    return {}


def _need_variables(name: str, provider: str) -> None:
    if _lacks_key(provider):
        variable = PROVIDERS[provider].keys[0]
        raise ValueError(f"{shown(name)} needs a key: set the environment variable {variable}")
    for variable in PROVIDERS[provider].variables:
        if not os.environ.get(variable):
            raise ValueError(
                f"{shown(name)} needs another setting: set the environment variable {variable}"
            )


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
    """Return whether a module is installed."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is not installed either
        return False
