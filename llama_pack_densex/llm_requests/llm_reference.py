"""How an LLM is described without secrets, and made again in another process."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from llama_index.core.llms import LLM

from llama_pack_densex.llm_requests.clients import given_clients
from llama_pack_densex.llm_requests.failures import scrub

LLMFactory = Callable[[], LLM]

# What an LLM's output depends on. Node ids depend on it too, so addresses and time-outs are not among them.
_OUTPUT_SETTINGS = (
    "model", "model_name", "model_id", "deployment_name", "engine", "azure_deployment", "temperature", "top_p", "top_k",
    "max_tokens", "max_new_tokens", "num_predict", "num_output", "seed", "reasoning_effort", "thinking", "json_mode",
    "system_prompt", "context_window",
)  # fmt: skip
_OTHER_SETTINGS = (
    "api_base", "base_url", "azure_endpoint", "endpoint", "endpoint_url", "api_version", "api_type", "region_name",
    "timeout", "request_timeout", "max_retries", "reuse_client", "is_chat_model", "is_function_calling_model",
    "keep_alive", "logprobs", "top_logprobs", "strict", "modalities", "pydantic_program_mode",
)  # fmt: skip
_KEY_FIELDS = ("api_key", "token", "access_token", "anthropic_api_key", "aws_access_key_id", "aws_secret_access_key")
# Nothing of the output or the access hangs on these.
_UNIMPORTANT = ("callback_manager", "rate_limiter", "class_name", "query_wrapper_prompt")
_PROVIDER_CLIENTS = ("_http_client", "_async_http_client")


@dataclass(frozen=True)
class LLMReference:
    """An LLM without its client and its keys.

    Args:
        path: Where its class is imported from, as "module:name".
        settings: Those of its settings that hold no secrets, as JSON values.
        key_fields: Its fields that held a key.
        lost: Its other settings that were not at their defaults; they may hold secrets and are not kept.
        factory: An importable function without arguments that makes it, as "module:name"; empty where none was given.
    """

    path: str
    settings: dict[str, Any] = field(default_factory=dict)
    key_fields: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    factory: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the reference as JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LLMReference:
        """Read what `as_dict` wrote."""
        lists = {name: tuple(data.get(name, ())) for name in ("key_fields", "lost")}
        return cls(data["path"], dict(data.get("settings", {})), **lists, factory=data.get("factory", ""))

    def rebuild(self) -> LLM:
        """Make the LLM again, with keys from the environment or by the factory.

        Raises:
            ValueError: Something is missing; the message names it.
        """
        if self.factory:
            return call_factory(self.factory)
        advice = (
            "Set what is missing, or give LLMPropositionizer(llm_factory=...): a function without arguments in a "
            "module, which makes the LLM wherever it is needed."
        )
        if self.lost:
            raise ValueError(
                f"The LLM {self.path} cannot be made again from its description: {', '.join(self.lost)} may hold "
                f"secrets or code and is not stored. {advice}"
            )
        made = _import(self.path)
        variable = _key_variable(made)
        try:
            llm: LLM = made(**self.settings)
        except Exception as error:
            missing = f" (its key comes from the environment variable {variable})" if self.key_fields else ""
            said = scrub(f"{type(error).__name__}: {error}")
            raise ValueError(f"The LLM {self.path} cannot be made again{missing}: {said} {advice}") from None
        for name in self.key_fields:
            if not _secret_value(getattr(llm, name, None)):
                raise ValueError(
                    f"The LLM {self.path} has no {name}: keys are never stored, and the environment variable "
                    f"{variable} is not set here. {advice}"
                )
        return llm


def describe_llm(llm: LLM, factory: str = "") -> LLMReference:
    """Describe an LLM by its class and by those of its settings that are known to be harmless."""
    fields = type(llm).model_fields
    settings: dict[str, Any] = {}
    lost: list[str] = []
    for name, info in fields.items():
        value = getattr(llm, name, None)
        if name in _KEY_FIELDS or name in _UNIMPORTANT:
            continue
        if not value or value == info.get_default(call_default_factory=True) or _is_core_function(value):
            continue
        if name in (*_OUTPUT_SETTINGS, *_OTHER_SETTINGS) and _is_plain(value):
            plain = getattr(value, "value", value)
            settings[info.alias or name] = _without_credentials(plain)
            if settings[info.alias or name] != plain:
                lost.append(f"{name} (the credentials in it)")
        else:
            lost.append(name)
    lost += [name.lstrip("_") for name in _PROVIDER_CLIENTS if _private(llm, name) is not None]
    lost += given_clients(llm)
    keys = tuple(name for name in fields if name in _KEY_FIELDS and _secret_value(getattr(llm, name, None)))
    return LLMReference(f"{type(llm).__module__}:{type(llm).__qualname__}", settings, keys, tuple(lost), factory)


def output_settings(llm: LLM) -> dict[str, Any]:
    """Return the settings that an LLM's output depends on, as JSON values, for a fingerprint."""
    values = {name: getattr(llm, name, None) for name in _OUTPUT_SETTINGS if name in type(llm).model_fields}
    if not any(values.get(name) for name in ("model", "model_name", "model_id")):
        values["model"] = llm.metadata.model_name
    extra = getattr(llm, "additional_kwargs", None)
    if isinstance(extra, dict):
        values |= {f"additional_kwargs.{name}": extra.get(name) for name in _OUTPUT_SETTINGS}
    return {name: value for name, value in values.items() if value is not None and _is_plain(value)}


def secrets_of(llm: LLM) -> list[str]:
    """Return the keys that an LLM holds, to keep them out of messages."""
    headers = getattr(llm, "default_headers", None)
    values = [_secret_value(getattr(llm, name, None)) for name in _KEY_FIELDS]
    values += map(str, headers.values()) if isinstance(headers, dict) else []
    return [value for value in values if value]


def factory_name(factory: LLMFactory | str) -> str:
    """Return a factory's "module:name".

    Raises:
        ValueError: It cannot be imported by that name, as a lambda or a function inside a function.
    """
    if isinstance(factory, str):
        _import(factory)
        return factory
    name = f"{getattr(factory, '__module__', '')}:{getattr(factory, '__qualname__', '')}"
    if "<" in name or _import(name) is not factory:
        raise ValueError(f"llm_factory must be a function at the top level of a module, not {name!r}")
    return name


def call_factory(name: str) -> LLM:
    """Make an LLM by an importable factory.

    Raises:
        ValueError: The factory cannot be imported, fails, or makes something else.
    """
    made = _import(name)
    try:
        llm = made()
    except Exception as error:
        raise ValueError(f"llm_factory {name!r} failed: {scrub(f'{type(error).__name__}: {error}')}") from None
    if not isinstance(llm, LLM):
        raise ValueError(f"llm_factory {name!r} made a {type(llm).__name__}, not a LlamaIndex LLM")
    return llm


def _import(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'{path!r} cannot be imported here (expected "module:name"): {error}') from error
    return found


def _key_variable(llm_class: Any) -> str:
    """Name the environment variable that LlamaIndex's client for a provider reads its key from, by its module."""
    modules = [base.__module__ for base in getattr(llm_class, "__mro__", ())]
    providers = [module.split(".")[2].upper() for module in modules if module.startswith("llama_index.llms.")]
    return f"{providers[0]}_API_KEY" if providers else "of its key"


def _is_plain(value: Any) -> bool:
    value = getattr(value, "value", value)
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (str, int, float, bool))


def _without_credentials(value: Any) -> Any:
    if not isinstance(value, str) or not re.match(r"[A-Za-z][\w+.-]*://\S+$", value):
        return value
    try:
        parts = urlsplit(value)
    except ValueError:
        return ""
    if not parts.query and not parts.fragment and "@" not in parts.netloc:
        return value
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _secret_value(value: Any) -> str:
    reveal = getattr(value, "get_secret_value", None)
    return str(reveal() if reveal else value or "")


def _is_core_function(value: Any) -> bool:
    return callable(value) and getattr(value, "__module__", "").startswith("llama_index.core.")


def _private(llm: LLM, name: str) -> Any:
    return (llm.__pydantic_private__ or {}).get(name)
