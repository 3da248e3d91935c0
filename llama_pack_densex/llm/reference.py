"""How an LLM is described without secrets, and made again in another process."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable
from typing import Any, cast, get_type_hints
from urllib.parse import urlsplit, urlunsplit

from llama_index.core.llms import LLM
from pydantic import BaseModel

from llama_pack_densex.llm.errors import scrub
from llama_pack_densex.llm.names import is_model_name, named_llm

LLMFactory = Callable[[], LLM]

MODEL_FIELDS = ("model", "model_name", "model_id")
"""What LlamaIndex's classes call a model's name."""
# What an LLM's output depends on, together with its address and its `additional_kwargs`.
_OUTPUT_SETTINGS = (
    *MODEL_FIELDS, "deployment_name", "engine", "azure_deployment", "temperature", "top_p", "top_k",
    "max_tokens", "max_new_tokens", "num_predict", "num_output", "seed", "reasoning_effort", "thinking", "json_mode",
    "system_prompt", "context_window",
)  # fmt: skip
_ADDRESSES = ("api_base", "base_url", "azure_endpoint", "endpoint", "endpoint_url", "region_name")
_OTHER_SETTINGS = (
    *_ADDRESSES, "api_version", "api_type", "timeout", "request_timeout", "max_retries", "reuse_client",
    "is_chat_model", "is_function_calling_model", "keep_alive", "logprobs", "top_logprobs", "strict", "modalities",
    "pydantic_program_mode",
)  # fmt: skip
# Nothing of the output or the access hangs on these.
_UNIMPORTANT = ("callback_manager", "rate_limiter", "class_name", "query_wrapper_prompt")
SECRET = re.compile(r"(?i)(^|[-_])(api[-_]?key|key|key_id|secret|password|token|credentials?|authorization|headers?)$")
_NOT_OF_THE_OUTPUT = ("timeout", "user", "metadata", "extra_query")  # of `additional_kwargs`; a query may hold a key
# Where LlamaIndex's classes have clients, which the user may have given, and what tells these from made ones.
_CLIENTS = ("_client", "_aclient", "_http_client", "_async_http_client")
_TOLD_BY = ("api_key", "base_url", "organization", "project", "_custom_headers", "_custom_query", "_api_version")


class LLMReference(BaseModel):
    """An LLM without its client and its keys.

    Args:
        path: Where its class is imported from, as "module:name".
        settings: Those of its settings that hold no secrets, as JSON values.
        key_fields: Its fields that held a key.
        lost: Its other settings that were not at their defaults; they may hold secrets and are not kept.
        factory: What makes it: an importable function without arguments, as "module:name", or a model's name with its
            provider, as "ollama:qwen3:8b"; empty where none was given.
    """

    path: str
    settings: dict[str, Any] = {}
    key_fields: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    factory: str = ""

    def rebuild(self, *, trusted: bool = False) -> LLM:
        """Make the LLM again, with keys from the environment or by the factory.

        Args:
            trusted: Whether the factory is the user's own, and not a name in a dictionary.

        Raises:
            ValueError: Something is missing, or what is named makes no LLM, and is not run; the message says so.
        """
        if self.factory:
            return call_factory(self.factory, trusted=trusted)
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
        if not _is_llm_class(made):
            raise ValueError(f"{self.path} is no class of LlamaIndex LLMs, and is not called")
        llm, said = None, "keys are never stored"
        try:
            llm = made(**self.settings)
        except Exception as error:
            said = scrub(f"{type(error).__name__}: {error}")
        missing = [name for name in self.key_fields if llm is None or name not in _keys(llm)]
        if llm is None or missing:
            key = f"its {', '.join(missing)} comes from the environment variable {_key_variable(made)}. "
            raise ValueError(f"The LLM {self.path} cannot be made again ({said}). {key if missing else ''}{advice}")
        return cast(LLM, llm)


def describe_llm(llm: LLM, factory: str = "") -> LLMReference:
    """Describe an LLM by its class and by those of its settings that are known to be harmless."""
    keys = _keys(llm)
    settings: dict[str, Any] = {}
    lost: list[str] = []
    for name, info in type(llm).model_fields.items():
        value = getattr(llm, name, None)
        is_empty = not value and not isinstance(value, (bool, int, float))  # a temperature of 0 is a choice
        is_default = is_empty or value == info.get_default(call_default_factory=True)
        is_cores = callable(value) and getattr(value, "__module__", "").startswith("llama_index.core.")
        if name in keys or name in _UNIMPORTANT or is_default or is_cores:
            continue
        value = getattr(value, "value", value)
        is_known = name in (*_OUTPUT_SETTINGS, *_OTHER_SETTINGS) and _is_plain(value)
        if is_known and value == _without_credentials(value):
            settings[info.alias or name] = value
        else:
            lost.append(name)
    lost += [f"a client that was given ({name[1:]})" for name in _CLIENTS if _is_given(llm, name)]
    path = f"{type(llm).__module__}:{type(llm).__qualname__}"
    return LLMReference(path=path, settings=settings, key_fields=tuple(keys), lost=tuple(lost), factory=factory)


def output_settings(llm: LLM) -> dict[str, Any]:
    """Return what an LLM's output depends on, as JSON values without secrets, for a fingerprint."""
    values = {name: getattr(llm, name, None) for name in _OUTPUT_SETTINGS if name in type(llm).model_fields}
    if not any(values.get(name) for name in MODEL_FIELDS):
        values["model"] = llm.metadata.model_name
    found = {name: value for name, value in values.items() if value is not None and _is_plain(value)}
    given = [str(_private(llm, "_client").base_url)] if _is_given(llm, "_client") else []
    addresses = map(_without_credentials, [*given, *(getattr(llm, name, None) for name in _ADDRESSES)])
    if served_at := next(filter(None, addresses), None):
        found["address"] = str(served_at).rstrip("/")
    if extra := _without_secrets(getattr(llm, "additional_kwargs", None) or {}):
        found["additional_kwargs"] = {key: value for key, value in extra.items() if key not in _NOT_OF_THE_OUTPUT}
    return found


def secrets_of(llm: LLM) -> list[str]:
    """Return the keys that an LLM holds, to keep them out of messages."""
    asked = getattr(llm, "additional_kwargs", None) or {}
    sent = [getattr(llm, "default_headers", None), asked.get("extra_headers"), asked.get("extra_query")]
    values = [str(value) for some in sent if isinstance(some, dict) for value in some.values()]
    own = str(getattr(_private(llm, "_client"), "api_key", None) or "")  # of a client that was given
    return [*_keys(llm).values(), own, *values, *(value.partition(" ")[2] for value in values)]  # "Bearer KEY"


def factory_name(factory: LLMFactory | str) -> str:
    """Return a factory's "module:name"; a model's name is its own.

    Raises:
        ValueError: It cannot be imported by that name, as a lambda or a function inside a function.
    """
    if isinstance(factory, str):
        if not is_model_name(factory):
            _import(factory)
        return factory
    name = f"{getattr(factory, '__module__', '')}:{getattr(factory, '__qualname__', '')}"
    if "<" in name or _import(name) is not factory:
        raise ValueError(f"llm_factory must be a function at the top level of a module, not {name!r}")
    return name


def call_factory(name: str, *, trusted: bool = True) -> LLM:
    """Make an LLM by an importable factory, or by a model's name.

    Args:
        name: The factory's.
        trusted: Whether the user gave it here. One that stands in a dictionary might be any function: it is called only
            if it says that it returns an LLM, or is a class of LLMs.

    Raises:
        ValueError: The factory cannot be imported, is not to be called, fails, or makes something else.
        ImportError: The model's package is missing.
    """
    if is_model_name(name):
        return named_llm(name)
    made = _import(name)
    if not trusted and not _makes_llms(made):
        raise ValueError(
            f"llm_factory {name!r} does not say that it makes an LLM, and is not called: write it as `def "
            f"{name.rpartition(':')[2]}() -> LLM`, or pass llm=..."
        )
    try:
        llm = made()
    except Exception as error:
        raise ValueError(f"llm_factory {name!r} failed: {scrub(f'{type(error).__name__}: {error}')}") from None
    if not isinstance(llm, LLM):
        raise ValueError(f"llm_factory {name!r} made a {type(llm).__name__}, not a LlamaIndex LLM")
    return llm


def _makes_llms(made: Any) -> bool:
    try:
        return _is_llm_class(made) or _is_llm_class(get_type_hints(made).get("return"))
    except (TypeError, NameError):
        return False


def _is_llm_class(made: Any) -> bool:
    return isinstance(made, type) and issubclass(made, LLM)


def _import(path: str) -> Any:
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'{path!r} cannot be imported here (expected "module:name"): {error}') from error


def _key_variable(llm_class: Any) -> str:
    """Name the environment variable that LlamaIndex's client for a provider reads its key from, by its module."""
    modules = [base.__module__ for base in getattr(llm_class, "__mro__", ())]
    providers = [module.split(".")[2].upper() for module in modules if module.startswith("llama_index.llms.")]
    return f"{providers[0]}_API_KEY" if providers else "of its key"


def _is_plain(value: Any) -> bool:
    value = getattr(value, "value", value)
    is_list = isinstance(value, (list, tuple))
    return all(map(_is_plain, value)) if is_list else isinstance(value, (str, int, float, bool, type(None)))


def _without_credentials(value: Any) -> Any:
    if not isinstance(value, str) or not re.match(r"[A-Za-z][\w+.-]*://\S+$", value):
        return value
    parts = urlsplit(value)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _without_secrets(value: Any) -> Any:
    """A value as JSON, without what may be a key; objects by their class, since their text need not stay the same."""
    if isinstance(value, dict):
        return {str(k): _without_secrets(v) for k, v in sorted(value.items(), key=str) if not SECRET.search(str(k))}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(one) for one in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return f"{type(value).__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _keys(llm: LLM) -> dict[str, str]:
    """The keys that an LLM holds, by the names of its fields."""
    values = {name: getattr(llm, name, None) for name in type(llm).model_fields if SECRET.search(name)}
    shown = {name: getattr(value, "get_secret_value", lambda value=value: value)() for name, value in values.items()}
    return {name: value for name, value in shown.items() if value and isinstance(value, str)}


def _private(llm: LLM, name: str) -> Any:
    return (llm.__pydantic_private__ or {}).get(name)


def without_retries(llm: LLM) -> LLM:
    """A copy of an LLM whose client tries nothing again.

    LlamaIndex's OpenAI tries thrice, and the client in it thrice again at each of these; with our own tries on top, one
    request could be sent dozens of times, and a rate limit would be met by more requests. A client that the LLM has
    goes on to be used, with its address and its ways to authenticate.
    """
    changes = {"max_retries": 0} if isinstance(getattr(llm, "max_retries", None), int) else {}
    copy: LLM = llm.model_copy(update=changes)
    client = _private(copy, "_client")
    if hasattr(client, "with_options"):  # the clients of OpenAI and Anthropic
        (copy.__pydantic_private__ or {})["_client"] = client.with_options(max_retries=0)
    return copy


def _is_given(llm: LLM, name: str) -> bool:
    """Whether the user gave an LLM its client, and LlamaIndex would make no like one from the LLM's settings."""
    given = _private(llm, name)
    if given is None or (name in ("_client", "_aclient") and "reuse_client" not in type(llm).model_fields):
        return False  # another provider's LLM makes its clients itself
    copy: Any = llm.model_copy()
    copy.__pydantic_private__[name] = None
    try:
        made = getattr(copy, f"_get{name}")()
    except Exception:  # there is no way to make one, or no key
        return True
    said = [[getattr(one, setting, None) for setting in _TOLD_BY] for one in (made, given)]
    if name == "_client":
        made.close()
    return said[0] != said[1] or type(made._client) is not type(given._client)
