"""Descriptions of LLMs without secrets, from which another process can rebuild them."""

from __future__ import annotations

import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from types import ModuleType
from typing import Any, get_type_hints
from urllib.parse import urlsplit, urlunsplit

from llama_index.core.llms import LLM
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from llama_pack_densex.llm.claims import (
    check_module,
    is_in_environment,
    is_place,
    name_place,
    refuse_place,
    unnamed_place,
)
from llama_pack_densex.llm.errors import error_text, secrets_in_url
from llama_pack_densex.llm.names import is_model_name, named_llm
from llama_pack_densex.text.tokens import words

LLMFactory = Callable[[], LLM]

MODEL_FIELDS = ("model", "model_name", "model_id")
"""The fields of LlamaIndex's classes for a model's name."""
# The fields that an LLM's output depends on, together with its address and its `additional_kwargs`.
_OUTPUT_SETTINGS = words(
    "model model_name model_id deployment_name engine azure_deployment temperature top_p top_k seed"
    " reasoning_effort thinking json_mode system_prompt max_tokens max_new_tokens num_predict num_output"
    " context_window"
)
_ADDRESSES = ("api_base", "base_url", "azure_endpoint", "endpoint", "endpoint_url", "region_name")
# Fields with strings, or lists of them, that are known to hold no secrets; numbers never do.
_HARMLESS = _OUTPUT_SETTINGS.union(
    _ADDRESSES, words("api_version api_type keep_alive modalities pydantic_program_mode")
)
_UNIMPORTANT = words("callback_manager rate_limiter class_name query_wrapper_prompt")
"""Fields on which neither the output nor the access to the model depends."""
SECRET = re.compile(
    r"(?i)(^|[-_])(api[-_]?key|(?<!metadata_)key|key_id|secret|password|token|credentials?"
    r"|authorization|headers?)$",
)
_REGION = re.compile(r"[\w-]+")
_SHORTEST_SECRET = 4  # characters of a header or query that is not named like a key
# Entries of `additional_kwargs` on which the output does not depend; `extra_query` may hold a key.
_NOT_OF_THE_OUTPUT = words("timeout user metadata extra_query")
# Attributes in which a client that the user passed may differ from the one that LlamaIndex makes.
_CLIENT_SETTINGS = words(
    "api_key base_url organization project _custom_headers _custom_query _api_version"
)


class LLMReference(BaseModel):
    """A description of an LLM without its client and its keys.

    Args:
        path: Its class, as "module:name".
        settings: Its settings that hold no secrets, as JSON values.
        key_fields: The names of its fields that held a key.
        lost: The names of its other settings that differed from their defaults; these may hold secrets, and
            their values are not stored.
        factory: An importable function without arguments that makes the LLM, as "module:name", or a model's
            name with its provider, such as "ollama:qwen3:8b"; empty if there is none.
    """

    path: str
    settings: dict[str, Any] = {}
    key_fields: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    factory: str = ""

    def rebuild(self, *, trusted: bool = False) -> LLM:
        """Rebuild the LLM, with keys from the environment or by the factory.

        Args:
            trusted: Whether the user named the class and the factory, rather than a dictionary.

        Raises:
            ValueError: Something is missing, or the class or factory does not make LLMs, and is not called;
                the message says which.
        """
        if self.factory:
            return call_factory(self.factory, trusted=trusted)
        if self.lost:
            raise ValueError(
                f"The LLM {self.path} cannot be rebuilt from its description: {', '.join(self.lost)} may "
                f"hold secrets or code and is not stored. {_FACTORY_ADVICE}"
            )
        llm_class = _import(self.path, trusted)
        if not _is_llm_class(llm_class):
            raise ValueError(f"{self.path} is not a class of LlamaIndex LLMs, and is not called")
        if not trusted:
            self._check_settings(llm_class)
        try:
            llm: LLM = llm_class(**self.settings)
        except Exception as error:
            problem = f"The LLM {self.path} cannot be rebuilt ({error_text(error)})."
            raise ValueError(f"{problem} {_FACTORY_ADVICE}") from None
        sources = " ".join(_sources_of_keys(llm_class, set(self.key_fields).difference(_keys(llm))))
        if sources:
            problem = f"The LLM {self.path} cannot be rebuilt (keys are never stored):"
            raise ValueError(f"{problem} {sources} {_FACTORY_ADVICE}")
        return llm

    def _check_settings(self, llm_class: type[LLM]) -> None:
        """Refuse settings that this package never stores, and places that the user has not named."""
        provider = self.path.partition(":")[0].removeprefix("llama_index.llms.").partition(".")[0]
        places = []
        for name, value in self.settings.items():
            if not _is_harmless(name, value):
                problem = f"{name} of the LLM {self.path} is not taken from a dictionary."
                raise ValueError(f"{problem} {_LLM_ADVICE}")
            for place in _places_in(name, value):
                if not is_in_environment(place, provider):
                    places.append((name, place))
        own = self._own_places(llm_class, {name for name, _ in places})
        for name, place in places:
            if place != own.get(name):
                refuse_place(place, f"{name} of the LLM {self.path}", _LLM_ADVICE)

    def _own_places(self, llm_class: type[LLM], names: Collection[str]) -> dict[str, Any]:
        """Return the addresses that an LLM of the class has by its defaults and the environment."""
        if not names:
            return {}
        settings = {name: value for name, value in self.settings.items() if name not in names}
        settings |= dict.fromkeys(self.key_fields, "none, since nothing is asked")
        try:
            llm = llm_class(**settings)
        except Exception:  # it has no defaults for these
            return {}
        return {name: getattr(llm, name, None) for name in names}


def describe_llm(llm: LLM, factory: str = "") -> LLMReference:
    """Describe an LLM by its class and the settings that are known to hold no secrets."""
    keys = _keys(llm)
    settings = {}
    lost = []
    for name, value in _changed_settings(llm):
        if name in keys:
            continue
        if _is_harmless(name, value) and value == _without_credentials(value):
            settings[type(llm).model_fields[name].alias or name] = value
            name_place(value if isinstance(value, str) else None)
        else:
            lost.append(name)
    if _has_own_client(llm) or _private(llm, "_http_client"):
        lost.append("a client that was given")
    if is_model_name(factory):
        name_place(unnamed_place(factory))
    return LLMReference(
        path=f"{type(llm).__module__}:{type(llm).__qualname__}",
        settings=settings,
        key_fields=tuple(keys),
        lost=tuple(lost),
        factory=factory,
    )


def _changed_settings(llm: LLM) -> Iterator[tuple[str, Any]]:
    """Yield an LLM's settings that matter and differ from their defaults."""
    for name, info in type(llm).model_fields.items():
        value = getattr(llm, name, None)
        value = getattr(value, "value", value)  # for members of an enumeration
        if name not in _UNIMPORTANT and not _is_default(value, info):
            yield name, value


def output_settings(llm: LLM) -> dict[str, Any]:
    """Return the settings that an LLM's output depends on, for a fingerprint: JSON values without secrets."""
    names = [name for name in type(llm).model_fields if name in _OUTPUT_SETTINGS]
    settings = {name: getattr(llm, name, None) for name in names}
    if not any(map(settings.get, MODEL_FIELDS)):
        settings["model"] = llm.metadata.model_name
    stated = {name: value for name, value in settings.items() if value is not None}
    plain = {name: value for name, value in stated.items() if _is_plain(value)}
    return plain | _sent_besides(llm)


def _sent_besides(llm: LLM) -> dict[str, Any]:
    """Return an LLM's address and the `additional_kwargs` that its output depends on."""
    besides: dict[str, Any] = {}
    address = _address_of(llm)
    if address:
        besides["address"] = address
    kwargs = _without_secrets(getattr(llm, "additional_kwargs", None) or {})
    if kwargs:
        names = [name for name in kwargs if name not in _NOT_OF_THE_OUTPUT]
        besides["additional_kwargs"] = {name: kwargs[name] for name in names}
    return besides


def _address_of(llm: LLM) -> str:
    """Return the address of an LLM's server; "" if its provider has only one address."""
    addresses = [getattr(llm, name, None) for name in _ADDRESSES]
    if _has_own_client(llm):
        addresses.insert(0, str(_private(llm, "_client").base_url))
    return str(next(filter(None, map(_without_credentials, addresses)), "")).rstrip("/")


def secrets_of(llm: LLM) -> list[str]:
    """Return the keys that an LLM holds, to keep them out of messages."""
    client_key = getattr(_private(llm, "_client"), "api_key", None) or ""
    secrets = [*_keys(llm).values(), str(client_key)]
    kwargs = getattr(llm, "additional_kwargs", None) or {}
    headers = getattr(llm, "default_headers", None)
    for sent in (headers, kwargs.get("extra_headers"), kwargs.get("extra_query")):
        if isinstance(sent, dict):
            secrets += _secrets_in_headers(sent)
    for name in _ADDRESSES:
        secrets += secrets_in_url(str(getattr(llm, name, None) or ""))
    return secrets


def _secrets_in_headers(headers: dict[str, Any]) -> Iterator[str]:
    for name, value in headers.items():
        for part in (str(value), str(value).partition(" ")[2]):  # "Bearer KEY"
            if len(part) >= _SHORTEST_SECRET or SECRET.search(name):
                yield part


def factory_name(factory: LLMFactory | str) -> str:
    """Return the "module:name" of a factory; a model's name is returned unchanged.

    Raises:
        ValueError: The factory cannot be imported by that name, such as a lambda or a nested function.
    """
    if isinstance(factory, str):
        if not is_model_name(factory):
            _import(factory)
        return factory
    name = f"{getattr(factory, '__module__', '')}:{getattr(factory, '__qualname__', '')}"
    if "<" in name or _import(name) is not factory:
        raise ValueError(
            f"llm_factory must be a function at the top level of a module, not {name!r}"
        )
    return name


def call_factory(name: str, *, trusted: bool = True) -> LLM:
    """Make an LLM by an importable factory, or by a model's name.

    Args:
        name: The name of the factory or the model.
        trusted: Whether the user gave it here. A factory from a dictionary might be any function: it is
            called only if its signature says that it returns an LLM, or if it is a class of LLMs.

    Raises:
        ValueError: The factory cannot be imported, must not be called, fails, or returns something else.
        ImportError: The model's package is missing.
    """
    if is_model_name(name):
        if not trusted:
            refuse_place(unnamed_place(name), "an LLM", f"pass llm={name!r} to from_dict.")
        return named_llm(name)
    factory = _import(name, trusted)
    if not trusted and not _makes_llms(factory):
        raise ValueError(
            f"llm_factory {name!r} does not declare that it returns an LLM, and is not called: write it as "
            f"`def {name.rpartition(':')[2]}() -> LLM`, or pass llm=..."
        )
    try:
        llm = factory()
    except Exception as error:
        raise ValueError(f"llm_factory {name!r} failed: {error_text(error)}") from None
    if not isinstance(llm, LLM):
        raise ValueError(
            f"llm_factory {name!r} returned a {type(llm).__name__}, not a LlamaIndex LLM"
        )
    return llm


def without_retries(llm: LLM) -> LLM:
    """Return a copy of an LLM whose client does not retry.

    LlamaIndex's OpenAI class tries three times, and in each of these its client tries three times. Together
    with our own retries, one request could be sent dozens of times, and a rate limit would cause more
    requests. A client that the user passed stays in use, with its address and authentication.
    """
    changes = {}
    if isinstance(getattr(llm, "max_retries", None), int):
        changes["max_retries"] = 0
    copy: LLM = llm.model_copy(update=changes)
    client = _private(copy, "_client")
    if hasattr(client, "with_options"):  # the clients of OpenAI and Anthropic
        (copy.__pydantic_private__ or {})["_client"] = client.with_options(max_retries=0)
    return copy


_FACTORY_ADVICE = (
    "Set what is missing, or give LLMPropositionizer(llm_factory=...): a function without arguments in a "
    "module, which makes the LLM wherever it is needed."
)


_LLM_ADVICE = (
    "pass llm=..., a LlamaIndex LLM or its name, to LLMPropositionizer.from_dict (to a node parser's: "
    "propositionizer=LLMPropositionizer(...))."
)


def _is_harmless(name: str, value: Any) -> bool:
    return isinstance(value, (int, float)) or (name in _HARMLESS and _is_plain(value))


def _places_in(name: str, value: Any) -> list[str]:
    """Return the addresses and paths in a setting, other than a region's name or those in a prompt."""
    values = value if isinstance(value, (list, tuple)) else [value]
    texts = [text for text in values if isinstance(text, str)]
    if name == "system_prompt" or (name == "region_name" and all(map(_REGION.fullmatch, texts))):
        return []
    if name in _ADDRESSES:
        return texts
    return [text for text in texts if is_place(text)]


def _makes_llms(factory: Any) -> bool:
    try:
        return _is_llm_class(factory) or _is_llm_class(get_type_hints(factory).get("return"))
    except (TypeError, NameError):
        return False


def _is_llm_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, LLM)


def _import(path: str, trusted: bool = True) -> Any:
    if not trusted:
        check_module(path)
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f'{path!r} cannot be imported here (expected "module:name"): {error}'
        ) from error


def _sources_of_keys(llm_class: type, fields: Iterable[str]) -> Iterator[str]:
    """Yield the sources of missing keys; a key in the environment counts as present, even if read later."""
    variables = {field: _key_variables(llm_class, field) for field in sorted(fields)}
    for field, names in variables.items():
        if any(map(os.environ.get, names)):
            continue
        if names:
            yield f"its {field} comes from the environment variable {' or '.join(names)}."
        else:
            yield f"its {field} is missing, and its class names no environment variable for it."


def _key_variables(llm_class: type, field: str) -> list[str]:
    """Return the environment variables for a key, found in the source code of LlamaIndex's classes."""
    variable = re.compile(rf"""["']((?!YOUR_)[A-Z][A-Z0-9_]*{field.upper()})["']""")
    for base in llm_class.__mro__:
        package = ".".join(base.__module__.split(".")[:3])
        variables: set[str] = set()
        for name, module in list(sys.modules.items()):
            if f"{name}.".startswith(f"{package}."):
                variables.update(variable.findall(_source(module)))
        if variables:
            return sorted(variables)
    return []


def _source(module: ModuleType) -> str:
    try:
        return inspect.getsource(module)
    except (OSError, TypeError):  # the module is compiled, or has no source
        return ""


def _is_default(value: Any, info: FieldInfo) -> bool:
    if callable(value) and getattr(value, "__module__", "").startswith("llama_index.core."):
        return True
    if not value and not isinstance(value, (bool, int, float)):  # a temperature of 0 is a choice
        return True
    return bool(value == info.get_default(call_default_factory=True))


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(getattr(value, "value", value), (str, int, float))


def _without_credentials(value: Any) -> Any:
    if not isinstance(value, str) or not re.match(r"[A-Za-z][\w+.-]*://\S+$", value):
        return value
    parts = urlsplit(value)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _without_secrets(value: Any) -> Any:
    """Return a value as JSON, without possible keys; an object becomes its class, as its text may vary."""
    if isinstance(value, dict):
        items = [(str(key), item) for key, item in sorted(value.items(), key=str)]
        return {key: _without_secrets(item) for key, item in items if not SECRET.search(key)}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(item) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return f"{type(value).__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _keys(llm: LLM) -> dict[str, str]:
    """Return the keys that an LLM holds, by field name."""
    keys = {}
    for name in filter(SECRET.search, type(llm).model_fields):
        value = getattr(llm, name, None)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        if value and isinstance(value, str):
            keys[name] = value
    return keys


def _private(llm: LLM, name: str) -> Any:
    return (llm.__pydantic_private__ or {}).get(name)


def _has_own_client(llm: LLM) -> bool:
    """Return whether an LLM has another client than the one that LlamaIndex would make from its settings."""
    client = _private(llm, "_client")
    # classes without this field always make their own client
    if not client or "reuse_client" not in type(llm).model_fields:
        return False
    copy: Any = llm.model_copy()
    copy.__pydantic_private__["_client"] = None
    try:
        default = copy._get_client()
    except Exception:  # there is no key to make a client with
        return True
    default.close()
    if type(default._client) is not type(client._client):
        return True
    settings = [getattr(client, name, None) for name in _CLIENT_SETTINGS]
    return settings != [getattr(default, name, None) for name in _CLIENT_SETTINGS]
