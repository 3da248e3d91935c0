"""What an answer or an error of an LLM provider means, told without importing any provider."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Literal

from pydantic_core import ValidationError

from llama_pack_densex.llm.usage import attribute

Kind = Literal["fatal", "too_long", "filtered", "rejected", "refused", "broken", "transient"]


class LLMError(RuntimeError):
    """The run cannot go on: the key, the model, a setting or the quota is at fault, and every request would fail.

    Attributes:
        is_silence: Whether that is all that came of the requests: no answer.
    """

    def __init__(self, message: str, is_silence: bool = False) -> None:
        super().__init__(message)
        self.is_silence = is_silence


@dataclass(frozen=True)
class Failure:
    """An error of a provider.

    Args:
        kind: "fatal" (stops the run), "too_long" and "filtered" (the text's matter; its parts may pass), "rejected"
            (the text's matter, where other requests pass), "refused" (for the server's limits: to be sent again),
            "broken" (not the provider's: the code that asks fails) or "transient" (worth another try).
        summary: The error's type, status and code. It never holds the provider's message, which may quote the text.
        message: The error's type and message, without keys; for a fatal error, what to do next besides.
        wait: How many seconds the server says to wait before the next try; 0 where it does not say.
    """

    kind: Kind
    summary: str
    message: str = field(default="", repr=False, compare=False)
    wait: float = field(default=0.0, compare=False)


def classify(error: BaseException, secrets: Iterable[str] = (), *, sent: str = "", proven: bool = False) -> Failure:
    """Tell what an error means for the run.

    Args:
        error: Whatever the LLM raised.
        secrets: Texts that must not appear in the message, such as the API key.
        sent: The text that was sent. What the provider quotes of it tells nothing of a key, a quota or a model.
        proven: Whether requests with the same settings were answered before: a status of 403 then is no matter of the
            key, but of a gateway that takes a text amiss.
    """
    status, codes, text, wait = _status(error), _codes(error), _message(error), retry_after(error)
    summary = " ".join([type(error).__name__, *([str(status)] if status else []), *sorted(codes)[:2]])
    summary, said = scrub(summary, secrets), f"{type(error).__name__}: {scrub(text, secrets)[:500]}"
    words, coded = without_quotes(f"{text}\n{_causes(error)}", sent), {_MEANINGS.get(code) for code in codes}
    is_filter = "filtered" in coded or bool(status in (400, 403) and _FILTERED.search(text))
    is_refused_key = status == 401 or (status == 403 and not proven and not is_filter)
    advice = ""
    if "quota" in coded or status == 402 or (status in (400, 403, 429) and _BAD_QUOTA.search(words)):
        advice = "The provider's quota is used up: check the plan and the billing, then run again."
    elif is_refused_key or "key" in coded or (status in (None, 400, 403) and _BAD_KEY.search(words)):
        advice = "The provider does not accept the API key; check the key (for OpenAI, OPENAI_API_KEY) and its rights."
    elif status in (404, 410) or "model" in coded or (status in (None, 400) and _BAD_MODEL.search(words)):
        advice = "The provider does not know the model or the address: check the LLM's model name and its base URL."
    elif "setting" in coded:
        advice = SETTING_ADVICE
    kind: Kind = "transient"
    if advice:
        kind, said = "fatal", f"{said} {advice}"
    elif is_filter:
        kind = "filtered"
    elif "too_long" in coded or (status in (None, 400, 413, 422, 429) and _TOO_LONG.search(text)):
        kind = "too_long"
    elif status in (429, 529) or "refused" in coded or (status == 503 and wait):
        kind = "refused"
    elif status is not None and 400 <= status < 500 and status not in (408, 409, 425):
        kind = "rejected"
    elif status is None and isinstance(error, (*_PROGRAMMING, ValidationError)):
        kind = "broken"
    return Failure(kind, summary, said, wait)


def refuses_schema(error: BaseException, *, proven: bool) -> bool:
    """Whether a server did not take a request for the JSON schema that it asked replies to keep to.

    Args:
        error: What such a request raised.
        proven: Whether others were answered. Before that, any request that is rejected may be so for the schema:
            servers rarely say it alike.
    """
    kind = classify(error).kind
    is_named = _status(error) is not None and _SCHEMA.search(str(error)) is not None
    return kind not in ("refused", "too_long", "filtered") and (is_named or (kind == "rejected" and not proven))


def retry_after(error: BaseException) -> float:
    """How many seconds a server says to wait before the next try; 0 where it does not say."""
    response = attribute(error, "response")
    headers = attribute(response, "headers") or attribute(attribute(response, "ResponseMetadata"), "HTTPHeaders") or {}
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = str(headers.get(name, ""))
        try:
            is_number = re.fullmatch(r"[\d.]+", value)
            seconds = float(value) / divisor if is_number else _moment(value) - _moment(headers.get("date"))
        except (TypeError, ValueError, OverflowError):
            continue
        if seconds > 0:
            return seconds
    return 0.0


def _moment(date: str | None) -> float:
    """A moment by the server's clock, which may be wrong, or now by our own."""
    return time.time() if date is None else parsedate_to_datetime(date).timestamp()


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Replace keys and tokens in a text by "[key]"."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "[key]")
    text = _KEY.sub("[key]", text)
    text = _NAMED_KEY.sub(r"\1[key]", text)
    return _CREDENTIALS_IN_URL.sub(r"\1[key]@", text)


def shown(value: object) -> str:
    """A wrong value, for a message: a word or a number; of what else there is, and may hold keys, the class."""
    is_plain = value is None or isinstance(value, (str, int, float, type))
    return scrub(repr(value)) if is_plain else f"a {type(value).__name__}"


def secrets_in_environment() -> list[str]:
    """The values of variables that are named as keys and tokens are."""
    return [value for name, value in os.environ.items() if name.upper().endswith(("_KEY", "_TOKEN"))]


def without_quotes(message: str, text: str) -> str:
    """Take out of a message what it quotes of a text that was sent."""
    said, sent = (one.encode("utf-8", "surrogatepass") for one in (message, text))
    size = max(4, min(_A_QUOTE, len(sent)))
    starts = {i for i in range(len(said) - size + 1) if said[i : i + size] in sent}
    quoted = {i + further for i in starts for further in range(size)}
    kept = bytes(0 if i in quoted else byte for i, byte in enumerate(said))
    return re.sub("\0+", "[...]", kept.decode("utf-8", "ignore"))


_A_QUOTE = 16  # bytes: as many letters, or six kanji; or all of a shorter text
_PROGRAMMING = (TypeError, AttributeError, ImportError, NameError, LookupError, NotImplementedError, AssertionError)

_KEY = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|AIza|r8|nvapi|pplx|ghp)[-_][\w*.…-]{4,}|\bAIza[\w*-]{8,}|\beyJ[\w-]{8,}\.[\w.-]+"
)
_NAMED_KEY = re.compile(
    r"(?i)((?:bearer|basic|token|api[-_ ]?key(?: provided)?|key|secret|password|authorization)[\"']?\s*[:=]\s*[\"']?"
    r"(?:bearer |basic )?|\bbearer |\bbasic )[^\s\"',;&)\[\]}]{4,}"
)
_CREDENTIALS_IN_URL = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/]+@")

# What the machine-readable names of errors mean, OpenAI's, Anthropic's, Azure's and Amazon's among them.
_CODES = {
    "quota": "insufficient_quota billing_hard_limit_reached billing_not_active insufficient_balance",
    "key": "invalid_api_key authentication_error permission_error account_deactivated accessdeniedexception"
    " unrecognizedclientexception invalidsignatureexception expiredtokenexception",
    "model": "model_not_found deploymentnotfound model_not_available invalid_model",
    "setting": "unsupported_value unsupported_parameter unknown_parameter",
    "filtered": "content_filter content_policy_violation responsibleaipolicyviolation data_inspection_failed",
    "too_long": "context_length_exceeded string_above_max_length request_too_large",
    "refused": "throttlingexception throttling throttledexception toomanyrequestsexception requestlimitexceeded"
    " limitexceededexception provisionedthroughputexceededexception slowdown overloaded_error",
}
_MEANINGS = {code: meaning for meaning, codes in _CODES.items() for code in codes.split()}
_BAD_KEY = re.compile(
    r"(?i)api key (?:not valid|expired)|invalid api key|incorrect api key|missing credentials|illegal header value"
    r"|no api[- _]?key|api[_ ]key[^.]{0,40} (?:must be set|reported as leaked)|been denied access"
    r"|(?:account|organization|consumer)\b[^.]{0,80} (?:suspended|disabled|restricted|deactivated)"
    r"|'ascii' codec can't encode"  # a header, such as a key in kanji
)
_BAD_MODEL = re.compile(
    r"(?i)unknown model|invalid model|no such model|model[^.]{0,80}(?:does not exist|not found|not supported)"
)
_BAD_QUOTA = re.compile(
    r"(?i)credit balance is too low|insufficient (?:balance|credits?|quota)|(?:key limit|budget has been) exceeded"
    r"|reached your specified api usage limits"
)
_FILTERED = re.compile(r"(?i)content[_ ](?:filter|policy|management)|moderation|flagged|safety (?:system|filter)")
_TOO_LONG = re.compile(
    r"(?i)context[_ ](?:length|window|size)|maximum context|too many (?:input )?tokens|reduce the length"
    r"|(?:prompt|input|request)\b[^.]{0,60}\btoo (?:long|large)"
)
_SCHEMA = re.compile(r"(?i)response[_ ]format|json[_ ]?schema|guided_|grammar|structured[_ ]?outputs?")
SETTING_ADVICE = "The provider does not take such requests: check the LLM's settings, then run again."


def _status(error: BaseException) -> int | None:
    response = attribute(error, "response")
    values = [attribute(error, name) for name in ("status_code", "status", "http_status", "code")]
    values += [attribute(response, "status_code"), attribute(attribute(response, "ResponseMetadata"), "HTTPStatusCode")]
    numbers = (getattr(value, "value", value) for value in values)
    return next((number for number in numbers if type(number) is int and 100 <= number < 600), None)


def _message(error: BaseException) -> str:
    """Return what the provider said, without the client's wrapping where there is one."""
    body = attribute(error, "body")
    for source in (attribute(body, "error"), body):
        message = attribute(source, "message")
        if isinstance(message, str) and message:
            return message
    return str(getattr(error, "message", "") or message_of(error))


def message_of(error: BaseException) -> str:
    """The message of an error, without what pydantic quotes of a value that was wrong: it may be a text."""
    if not isinstance(error, ValidationError):
        return str(error)
    wrong = [f"{'.'.join(map(str, one['loc']))}: {one['type']}" for one in error.errors(include_input=False)]
    return f"{error.title} is not valid ({'; '.join(wrong)})"


def _causes(error: BaseException | None) -> str:
    """Join the messages of the errors behind an error: clients wrap what httpx says of a header it cannot send."""
    texts: list[str] = []
    while error is not None and (error := error.__cause__) is not None and len(texts) < 5:
        texts.append(str(error))
    return "\n".join(texts)


def _codes(error: BaseException) -> set[str]:
    """Collect the machine-readable names of an error from its attributes and its body."""
    body, response = attribute(error, "body"), attribute(error, "response")
    sources = [error, body, attribute(body, "error"), attribute(body, "innererror"), attribute(response, "Error")]
    values = [attribute(one, name) for one in sources for name in ("code", "type", "Code")]
    return {one.lower() for one in values if isinstance(one, str) and re.fullmatch(r"[\w.-]{1,60}", one)}
