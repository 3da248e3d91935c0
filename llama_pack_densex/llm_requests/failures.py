"""What an error of an LLM provider means for the run, told without importing any provider."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["fatal", "too_long", "filtered", "rejected", "transient"]


class PropositionizerError(RuntimeError):
    """The run cannot go on: the key, the model or the quota is at fault, and every other passage would fail too.

    Attributes:
        ingestion: Of an ingestion that it stopped, the `IngestionSummary`; else None.
    """

    ingestion: Any = None


@dataclass(frozen=True)
class Failure:
    """An error of a provider.

    Args:
        kind: "fatal" (stops the run), "too_long" and "filtered" (the passage's matter; its parts may pass),
            "rejected" (the passage's matter) or "transient" (worth another try).
        summary: The error's type, status and code. It never holds the provider's message, which may quote the passage.
        message: For a fatal error, the provider's message without keys and what to do next; else "".
    """

    kind: Kind
    summary: str
    message: str = ""


def classify(error: BaseException, secrets: Iterable[str] = ()) -> Failure:
    """Tell what an error means for the run.

    Args:
        error: Whatever the LLM raised.
        secrets: Texts that must not appear in the message, such as the API key.
    """
    status = _status(error)
    codes = _codes(error)
    text = _message(error)
    summary = " ".join([type(error).__name__, *([str(status)] if status else []), *sorted(codes)[:2]])
    summary = scrub(summary, secrets)
    if advice := _fatal_advice(status, codes, f"{text}\n{_causes(error)}"):
        return Failure("fatal", summary, f"{type(error).__name__}: {scrub(text, secrets)[:500]} {advice}")
    if _FILTERED_CODES & codes or (status in (400, 403) and _FILTERED.search(text)):
        return Failure("filtered", summary)
    if _TOO_LONG_CODES & codes or ((status in (None, 400, 413, 422)) and _TOO_LONG.search(text)):
        return Failure("too_long", summary)
    if status is not None and 400 <= status < 500 and status not in (408, 409, 425, 429):
        return Failure("rejected", summary)
    return Failure("transient", summary)


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Replace keys and tokens in a text by "[key]"."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "[key]")
    text = _KEY.sub("[key]", text)
    text = _NAMED_KEY.sub(r"\1[key]", text)
    return _CREDENTIALS_IN_URL.sub(r"\1[key]@", text)


_KEY = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|AIza|r8|nvapi|pplx|ghp)[-_][\w*.…-]{4,}|\bAIza[\w*-]{8,}|\beyJ[\w-]{8,}\.[\w.-]+"
)
_NAMED_KEY = re.compile(
    r"((?:bearer|basic|token|api[-_ ]?key(?: provided)?|key|secret|password|authorization)[\"']?\s*[:=]\s*[\"']?"
    r"(?:bearer |basic )?|\bbearer |\bbasic )[^\s\"',;&)\[\]}]{4,}",
    re.IGNORECASE,
)
_CREDENTIALS_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@]+@", re.IGNORECASE)

_KEY_CODES = {"invalid_api_key", "authentication_error", "permission_error", "account_deactivated"}
_MODEL_CODES = {"model_not_found", "deploymentnotfound", "model_not_available", "invalid_model"}
_QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance"}
_FILTERED_CODES = {
    "content_filter",
    "content_policy_violation",
    "responsibleaipolicyviolation",
    "data_inspection_failed",
}
_TOO_LONG_CODES = {"context_length_exceeded", "string_above_max_length", "request_too_large"}
_BAD_KEY = re.compile(
    r"api key not valid|invalid api key|incorrect api key|missing credentials|illegal header value"
    r"|no api[- _]?key|api[_ ]key[^.]{0,40} must be set",
    re.IGNORECASE,
)
_BAD_MODEL = re.compile(
    r"unknown model|invalid model|no such model|model[^.]{0,80}(?:does not exist|not found|not supported)",
    re.IGNORECASE,
)
_BAD_QUOTA = re.compile(r"credit balance is too low|insufficient (?:balance|credits?|quota)", re.IGNORECASE)
_FILTERED = re.compile(
    r"content[_ ](?:filter|policy|management)|moderation|flagged|safety (?:system|filter)", re.IGNORECASE
)
_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|maximum context|too many (?:input )?tokens|(?:prompt|input|request)\b[^.]{0,60}"
    r"\btoo (?:long|large)|reduce the length",
    re.IGNORECASE,
)


def _fatal_advice(status: int | None, codes: set[str], text: str) -> str:
    if codes & _QUOTA_CODES or status == 402 or (status in (400, 403, 429) and _BAD_QUOTA.search(text)):
        return "The provider's quota is used up: check the plan and the billing, then run again."
    is_filter = bool(_FILTERED_CODES & codes) or (status == 403 and _FILTERED.search(text) is not None)
    is_key = status in (401, 403) and not is_filter
    if is_key or codes & _KEY_CODES or (status in (None, 400) and _BAD_KEY.search(text)):
        return "The provider does not accept the API key: check the key (for OpenAI, OPENAI_API_KEY) and its rights."
    if status == 404 or codes & _MODEL_CODES or (status in (None, 400) and _BAD_MODEL.search(text)):
        return "The provider does not know the model or the address: check the LLM's model name and its base URL."
    return ""


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    values = [getattr(error, name, None) for name in ("status_code", "status", "http_status", "code")]
    if isinstance(response, dict):  # botocore
        values.append(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    else:
        values.append(getattr(response, "status_code", None))
    for value in values:
        number = getattr(value, "value", value)
        if isinstance(number, int) and not isinstance(number, bool) and 100 <= number < 600:
            return number
    return None


def _message(error: BaseException) -> str:
    """Return what the provider said, without the client's wrapping where there is one."""
    body = getattr(error, "body", None)
    for source in (body.get("error"), body) if isinstance(body, dict) else ():
        message = source.get("message") if isinstance(source, dict) else None
        if isinstance(message, str) and message:
            return message
    return str(getattr(error, "message", "") or error)


def _causes(error: BaseException) -> str:
    """Join the messages of the errors behind an error: clients wrap what httpx says of a header it cannot send."""
    texts: list[str] = []
    cause = error.__cause__
    while cause is not None and len(texts) < 5:
        texts.append(str(cause))
        cause = cause.__cause__
    return "\n".join(texts)


def _codes(error: BaseException) -> set[str]:
    """Collect the machine-readable names of an error from its attributes and its body."""
    body = getattr(error, "body", None)
    sources: list[Any] = [error, body]
    if isinstance(body, dict):
        sources += [body.get("error"), body.get("innererror")]
    codes: set[str] = set()
    for source in sources:
        for name in ("code", "type"):
            value = source.get(name) if isinstance(source, dict) else getattr(source, name, None)
            if isinstance(value, str) and re.fullmatch(r"[\w.-]{1,60}", value):
                codes.add(value.lower())
    return codes
