"""Classification of LLM providers' errors, without importing any provider's package; removal of keys from
texts."""

from __future__ import annotations

import os
import re
import socket
import time
import traceback
from base64 import b64encode
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import unquote

from pydantic_core import ValidationError

from llama_pack_densex.llm.usage import attribute
from llama_pack_densex.text.tokens import words

Kind = Literal["fatal", "too_long", "filtered", "rejected", "refused", "broken", "transient"]


class LLMError(RuntimeError):
    """The run stops, as every request would fail: the key, the model, a setting or the quota is at fault.

    Attributes:
        is_silence: Whether the requests failed because nothing answered them at all.
    """

    def __init__(self, message: str, is_silence: bool = False) -> None:
        super().__init__(message)
        self.is_silence = is_silence


class ProviderError(RuntimeError):
    """A provider sent an error with the status of a successful reply.

    Attributes:
        body: The body of the error, as the clients' own errors have it.
    """

    def __init__(self, message: str, body: Any = None) -> None:
        super().__init__(message)
        self.body = body

    @classmethod
    def of(cls, problem: Any, sent: str = "", secrets: Iterable[str] = ()) -> ProviderError:
        """Make the exception for an error that came in place of a reply.

        Args:
            problem: An object with a message and a code, or the message itself.
            sent: The text that was sent; quotations from it are removed from the message.
            secrets: Texts that must not appear in the message.
        """
        body = problem
        if isinstance(problem, str):
            body = {"message": problem}
        message = shortened(str(attribute(body, "message") or body))
        reason = scrub(without_quotes(message, sent), secrets)[:_MOST_REASON]
        return cls(f"the provider sent an error in place of a reply: {reason}", body)


class NoReplyError(ProviderError):
    """A provider sent a response without a reply, and without a reason."""


@dataclass(frozen=True)
class Failure:
    """A provider's error, classified.

    Args:
        kind: "fatal" (stops the run), "too_long" and "filtered" (due to the text; parts of it may pass),
            "rejected" (due to the text, if other requests pass), "refused" (by the server's limits; to be
            sent again), "broken" (a bug in the client's code, not the provider) or "transient" (worth a
            retry).
        summary: The error's type, status and code. It does not contain the provider's message, which may
            quote the text, unless only that says what is wrong (see `ProviderError`).
        message: The error's type and message, without keys; for a fatal error, also what to do next.
        wait: Seconds to wait before the next try, as stated by the server; 0 if it does not say.
        may_pass: Whether the same request may be answered later, since the key or the server may be at fault.
        is_unreachable: Whether nothing listens at the address, or there is no such host.
    """

    kind: Kind
    summary: str
    message: str = field(default="", repr=False, compare=False)
    wait: float = field(default=0.0, compare=False)
    may_pass: bool = field(default=False, compare=False)
    is_unreachable: bool = field(default=False, compare=False)


def classify(
    error: BaseException,
    secrets: Iterable[str] = (),
    *,
    sent: str = "",
    proven: bool = False,
) -> Failure:
    """Determine what an error means for the run.

    Args:
        error: Whatever the LLM raised.
        secrets: Texts that must not appear in the message, such as the API key.
        sent: The text that was sent. Quotations from it are no evidence about keys, quotas or models.
        proven: Whether requests with the same settings were answered before. A status of 403 is then not
            about the key: a gateway objects to the text.
    """
    status = _status(error)
    codes = _codes(error)
    wait = retry_after(error)
    message = shortened(_message(error))
    summary = " ".join(map(str, filter(None, (type(error).__name__, status, *sorted(codes)[:2]))))
    if status == 503 and wait:  # a server that says when to come back is up, but at its limit
        status = 429
    # clients hide httpx's error about a header that it cannot send in `__cause__`
    unquoted = without_quotes(f"{message}\n{shortened(str(error.__cause__))}", sent)
    rule = _matching_rule(status, codes, message, unquoted, proven)
    if not rule and isinstance(error, PROGRAMMING_ERRORS):
        rule = _Rule("broken")
    elif not rule:
        rule = _Rule("transient")
    if isinstance(error, ProviderError) and rule.kind == "transient":  # its message quotes nothing
        summary = f"{summary}: {error}"
    return Failure(
        rule.kind,
        summary=scrub(summary, secrets),
        message=f"{type(error).__name__}: {scrub(message, secrets)[:500]} {rule.advice}".rstrip(),
        wait=wait,
        may_pass=rule.kind == "transient" or (rule.kind, status) == ("rejected", 403),
        is_unreachable=is_unreachable(error),
    )


def is_unreachable(error: BaseException) -> bool:
    """Return whether an error was caused by a refused connection or an unknown host."""
    links = []
    link: BaseException | None = error
    while link and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return any(isinstance(link, (ConnectionRefusedError, socket.gaierror)) for link in links)


def unreachable_message(address: str, summary: str) -> str:
    """Return the message for a server that cannot be reached.

    Args:
        address: The server's address; empty if it is not known.
        summary: A summary of the error.
    """
    place = address or "the provider's address"
    return (
        f"The model could not be asked: nothing answers at {place} ({summary}). Start the server, or see "
        "whether the address, or that of a proxy (HTTPS_PROXY), is right and this machine is online, and run "
        "again."
    )


def is_of_a_model(error: BaseException) -> bool:
    """Return whether an error was raised during a request to a model, by whatever class or client."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(str(frame.f_globals.get("__name__")).startswith(_ASKING) for frame in frames)


def refuses_schema(error: BaseException, *, proven: bool) -> bool:
    """Return whether a server rejected a request because of the JSON schema for its reply.

    Args:
        error: The error that a request with a schema raised.
        proven: Whether other requests with a schema were answered. Until then, any rejection may be due to
            the schema, since servers word this in many ways.
    """
    kind = classify(error).kind
    if kind in ("refused", "too_long", "filtered"):
        return False
    is_named = _status(error) is not None and _SCHEMA.search(shortened(str(error))) is not None
    return is_named or (kind == "rejected" and not proven)


def refused_parameter(error: BaseException, names: Iterable[str], sent: str) -> str:
    """Return which of a request's parameters a server does not accept; "" if the error is not about one.

    Args:
        error: The error that the request raised.
        names: The parameters that were sent.
        sent: The text that was sent. Quotations from it are no evidence about parameters.
    """
    if _status(error) not in (400, 422):
        return ""
    # if a server's error has an unusual form, only the client's message contains it
    message = without_quotes(shortened(f"{_message(error)}\n{error}"), sent)
    named = {str(value) for value in _values(error, "param")}
    if named and (not _UNSUPPORTED_CODES.isdisjoint(_codes(error)) or _UNSUPPORTED.search(message)):
        return next((name for name in names if name in named), "")
    return _first_refused(names, message)


def _first_refused(names: Iterable[str], message: str) -> str:
    """Return which of the names a message first says is not supported; "" if it says so of none."""
    places = {name: _place_of_refusal(name, message) for name in names}
    refused = {name: place for name, place in places.items() if place is not None}
    return min(refused, key=refused.__getitem__, default="")


def _place_of_refusal(name: str, message: str) -> int | None:
    """Return where a message says in one clause that a parameter is not supported; None if it does not."""
    for place in re.finditer(rf"\b{re.escape(name)}\b", message):
        preceding = re.split(_CLAUSE_END, message[: place.start()][-_CLAUSE:])[-1]
        following = re.split(_CLAUSE_END, message[place.end() :][:_CLAUSE])[0]
        clause = f"{preceding}{name}{following}"
        if _UNSUPPORTED.search(clause):
            return place.start()
    return None


def retry_after(error: BaseException) -> float:
    """Return how many seconds a server says to wait before the next try; 0 if it does not say."""
    headers: Any = next(_values(error, "headers", "HTTPHeaders"), {})
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = str(headers.get(name, ""))
        try:
            if re.fullmatch(r"[\d.]+", value):
                seconds = float(value) / divisor
            else:
                seconds = _timestamp(value) - _timestamp(headers.get("date"))
        except (TypeError, ValueError, OverflowError):
            continue
        if seconds > 0:
            return seconds
    return 0.0


def _timestamp(date: str | None) -> float:
    """Return the timestamp of a server's date, or of the present if there is none."""
    if date is None:
        return time.time()
    return parsedate_to_datetime(date).timestamp()


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Replace keys in a text by "[key]": the given secrets, and whatever looks or is labelled like a key."""
    text = without_keys(text, secrets)
    for pattern in _NAMED_KEYS:
        text = pattern.sub(r"\1[key]", text)
    return text


def error_text(error: BaseException) -> str:
    """Return an error's type and message, without keys."""
    return scrub(f"{type(error).__name__}: {error}")


def without_keys(text: str, secrets: Iterable[str]) -> str:
    """Do what `scrub` does for a message of our own, in which a word after "key:" is no key."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        pattern = re.escape(secret)
        if len(secret) < _SHORT_KEY:  # otherwise letters inside words would be replaced
            pattern = rf"(?<!\w){pattern}(?!\w)"
        text = re.sub(pattern, "[key]", text)
    text = _KEY.sub("[key]", text)
    text = _KEY_IN_QUERY.sub(r"\1[key]", text)
    text = _CREDENTIALS_OF_PROXY.sub("[key]@", text)
    return _CREDENTIALS_IN_URL.sub(r"\1[key]@", text)


def shown(value: object) -> str:
    """Format a wrong value for a message: anything but a word or number by its class, as it may hold keys."""
    if value is None or isinstance(value, (str, int, float, type)):
        return scrub(repr(value))
    return f"a {type(value).__name__}"


def secrets_in_environment() -> list[str]:
    """Return the values of environment variables named like keys, and the passwords in URLs of others."""
    secrets = []
    for name, value in os.environ.items():
        is_number = value.isdigit() and len(value) < _SHORT_KEY
        if name.upper().endswith(_SECRET_VARIABLES) and not is_number:
            secrets.append(value)
        secrets += secrets_in_url(value)
    return secrets


def secrets_in_url(url: str) -> list[str]:
    """Return the credentials in a URL or "user:password@host": as written, decoded and as sent in headers."""
    credentials = _USER_OF_URL.match(url)
    if not credentials:
        return []
    user, _, password = credentials[1].partition(":")
    pair = f"{unquote(user)}:{unquote(password)}"
    return [password or user, unquote(password or user), b64encode(pair.encode()).decode()]


def shortened(text: str) -> str:
    """Return the beginning and the end of a text, which say what an error page of megabytes is about."""
    if len(text) <= _MOST_READ:
        return text
    return f"{text[: _MOST_READ - _MOST_READ_LAST]} [...] {text[-_MOST_READ_LAST:]}"


def without_quotes(message: str, text: str) -> str:
    """Replace a message's quotations from a text that was sent by "[...]"; the message should be short."""
    content = message.encode("utf-8", "surrogatepass")
    sent = text.encode("utf-8", "surrogatepass")
    size = max(4, min(_QUOTE_BYTES, len(sent)))
    pieces = {sent[start : start + size] for start in range(len(sent) - size + 1)}
    unquoted = bytearray(content)
    for start in range(len(content) - size + 1):
        if content[start : start + size] in pieces:
            unquoted[start : start + size] = bytes(size)
    return re.sub("\0+", "[...]", unquoted.decode("utf-8", "ignore"))


def message_of(error: BaseException) -> str:
    """Return an error's message, without the value that pydantic quotes, which may be a document's text."""
    if not isinstance(error, ValidationError):
        return str(error)
    items = error.errors(include_input=False)
    problems = [f"{'.'.join(map(str, item['loc']))}: {item['type']}" for item in items]
    return f"{error.title} is not valid ({'; '.join(problems)})"


SETTING_ADVICE = (
    "The provider does not accept such requests: check the LLM's settings, then run again."
)
_BAD_KEY = "The provider does not accept the API key; check the key (OpenAI: OPENAI_API_KEY) and its rights."

_ASKING = (
    "llama_index.llms.",
    "llama_index.embeddings.",
    "llama_index.core.base.embeddings.",
    "llama_pack_densex.llm.endpoint",
)
_QUOTE_BYTES = 16  # shortest quotation: 16 letters or six kanji, or the whole of a shorter text
_MOST_READ = 4_000  # characters of an error that are examined, ...
_MOST_READ_LAST = 1_000  # ... of which so many at its end
_MOST_REASON = 300  # characters of a provider's own words in a message
_CLAUSE = 120  # characters looked at before and after a parameter's name
_CLAUSE_END = r"[.;。；\n](?!\w)"
_UNSUPPORTED_CODES = words(
    "unsupported_parameter unsupported_value unknown_parameter unsupportedparamserror"
)
_UNSUPPORTED = re.compile(
    r"(?i)unsupported|not (?:be )?(?:supported|permitted|allowed|available|accepted|recogni[sz]ed)|deprecated"
    r"|(?:does(?: not|n['’]t)|do not|cannot|can't) (?:support|accept|take|recogni[sz]e)|unavailable|forbidden"
    r"|un(?:known|recogni[sz]ed|expected) (?:\w+ ){0,2}"
    r"(?:parameter|argument|field|name|key|property|option|keyword)"
    r"|(?:invalid|no such) (?:option|parameter|argument|field)|cannot find field"
    r"|不支持|未対応|対応してい(?:ない|ません)|サポートされてい(?:ない|ません)|使用できません"
)
PROGRAMMING_ERRORS = (
    TypeError,
    AttributeError,
    ImportError,
    NameError,
    LookupError,
    NotImplementedError,
    AssertionError,
    ValidationError,
)

_KEY = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|AIza|r8|nvapi|pplx|ghp)[-_][\w*.…-]{4,}|\bAIza[\w*-]{8,}|\beyJ[\w-]{8,}\.[\w.-]+"
)
_NAMES = r"token|api[-_ ]?key(?: provided)?|key|secret|password|passwd"
_VALUE = r"[^\s\"',;&)\[\]}]"
_NAMED_KEYS = (
    # a header, by itself or in a list, with any authentication scheme
    re.compile(rf"(?i)(authorization[\"']?\s*[:=,]\s*b?[\"']?(?:[a-z][\w-]* )?){_VALUE}+"),
    re.compile(rf"(?i)((?:{_NAMES})[\"']\s*[:=,]\s*b?[\"']){_VALUE}+"),
    re.compile(rf"(?i)((?:{_NAMES})(?:\s*=\s*|\s*[:=]\s*[\"']|:)){_VALUE}+"),
    # at least four characters, since "key: set it" may be part of a sentence
    re.compile(
        rf"(?i)((?:bearer|basic|{_NAMES})[\"']?\s*[:=]\s*[\"']?(?:bearer |basic )?){_VALUE}{{4,}}"
    ),
    re.compile(rf"(?i)(\b(?:bearer|basic) ){_VALUE}{{4,}}"),
)
_KEY_IN_QUERY = re.compile(
    r"(?i)([?&][\w.-]*(?:key|sig|signature|token|secret|password|pwd|credentials?|auth|code)=)[^&\s\"'#<>)]+"
)
# the lookbehinds leave one place per word where a match can begin, so that time is linear in the length
_CREDENTIALS_IN_URL = re.compile(r"(?i)((?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://)[^\s/]+@")
_CREDENTIALS_OF_PROXY = re.compile(r"(?<![\w/:.%~+-])[\w.%~+-]+:[^\s/@:]+@(?=[\w.-]+:\d)")
_USER_OF_URL = re.compile(r"(?:[A-Za-z][\w+.-]*://)?([^\s/@:]*:[^\s@]+|(?<=://)[^\s/@]+)@[\w.\[-]")
_SECRET_VARIABLES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "PGPASSWORD")
_SHORT_KEY = 4  # characters; shorter secrets are replaced only as whole words
_SCHEMA = re.compile(
    r"(?i)response[_ ]format|json[_ ]?schema|guided_|grammar|structured[_ ]?outputs?"
)


@dataclass(frozen=True)
class _Rule:
    """How one kind of failure is recognised: by a code, by a status, or by words if the status is ambiguous.

    Args:
        kind: The kind of failure.
        advice: What to do about a fatal error.
        codes: Machine-readable error codes, of OpenAI, Anthropic, Azure and Amazon among others.
        statuses: HTTP statuses that mean this kind.
        words: A pattern to search in messages with ambiguous statuses.
        ambiguous: HTTP statuses with which the words count; None stands for an error without a status.
        only_unproven: Whether the rule applies only until a request with the same settings is answered.
    """

    kind: Kind
    advice: str = ""
    codes: str = ""
    statuses: Container[int | None] = ()
    words: str = ""
    ambiguous: Container[int | None] = ()
    only_unproven: bool = False

    def matches(self, status: int | None, codes: set[str], message: str, unquoted: str) -> bool:
        """Return whether an error is of this kind; quoted text about keys is no evidence of a fatal error."""
        evidence = unquoted if self.kind == "fatal" else message
        if status in self.statuses or not codes.isdisjoint(self.codes.split()):
            return True
        return status in self.ambiguous and bool(re.search(self.words, evidence, re.IGNORECASE))


_RULES = (  # the first matching rule wins
    _Rule(
        "fatal",
        "The provider's quota is used up: check the plan and the billing, then run again.",
        "insufficient_quota billing_hard_limit_reached billing_not_active insufficient_balance",
        (402,),
        r"credit balance is too low|insufficient (?:balance|credits?|quota)"
        r"|(?:key limit|budget has been) exceeded|reached your specified api usage limits",
        (400, 403, 429),
    ),
    _Rule(
        "fatal",
        _BAD_KEY,
        "invalid_api_key authentication_error permission_error account_deactivated accessdeniedexception"
        " unrecognizedclientexception invalidsignatureexception expiredtokenexception",
        (401,),
        r"api key (?:not valid|expired)|invalid api key|incorrect api key|missing credentials"
        r"|illegal header value|no api[- _]?key|api[_ ]key[^.]{0,40} (?:must be set|reported as leaked)"
        r"|been denied access"
        r"|(?:account|organi[sz]ation|consumer|project|workspace|subscription|\bkey)\b[^.]{0,80}"
        r" (?:suspended|disabled|restricted|deactivated|terminated|revoked|expired|does not have access)"
        r"|'ascii' codec can't encode",  # a header with, for example, a key in kanji
        (None, 400, 403),
    ),
    _Rule(
        "fatal",
        "The provider does not know the model or the address: check the LLM's model name and its base URL.",
        "model_not_found deploymentnotfound model_not_available invalid_model",
        (404, 410),
        r"(?:unknown|invalid|no such) model|model[^.]{0,80}(?:does not exist|not found|not supported)"
        r"|request url (?:is missing|has an unsupported protocol)",  # such as localhost:8000/v1
        (None, 400),
    ),
    _Rule("fatal", SETTING_ADVICE, "unsupported_value unsupported_parameter unknown_parameter"),
    _Rule(
        "filtered",
        codes="content_filter content_policy_violation responsibleaipolicyviolation data_inspection_failed",
        words=r"content[_ ](?:filter|policy|management)|moderation|flagged|safety (?:system|filter)",
        ambiguous=(400, 403),
    ),
    _Rule("fatal", _BAD_KEY, statuses=(403,), only_unproven=True),
    _Rule(
        "too_long",
        codes="context_length_exceeded string_above_max_length request_too_large",
        words=r"context[_ ](?:length|window|size)|maximum context|too many (?:input )?tokens"
        r"|reduce the length|(?:prompt|input|request)\b[^.]{0,60}\btoo (?:long|large)",
        ambiguous=(None, 400, 413, 422, 429),
    ),
    _Rule(
        "refused",
        codes="throttlingexception throttling throttledexception toomanyrequestsexception"
        " requestlimitexceeded limitexceededexception provisionedthroughputexceededexception slowdown"
        " overloaded_error",
        statuses=(429, 529),
    ),
    _Rule("transient", statuses=(408, 409, 425)),
    _Rule("rejected", statuses=range(400, 500)),
)


def _matching_rule(
    status: int | None, codes: set[str], message: str, unquoted: str, proven: bool
) -> _Rule | None:
    rules = (rule for rule in _RULES if not (proven and rule.only_unproven))
    return next((rule for rule in rules if rule.matches(status, codes, message, unquoted)), None)


def _values(error: BaseException, *names: str) -> Iterator[Any]:
    """Yield the values of these names in an error, the provider's response and its body."""
    body = attribute(error, "body")
    response = attribute(error, "response")
    details = (
        attribute(body, "error"),
        attribute(body, "innererror"),
        attribute(response, "ResponseMetadata"),
        attribute(response, "Error"),
    )
    for source in (error, body, response, *details):
        yield from filter(None, (attribute(source, name) for name in names))


def _status(error: BaseException) -> int | None:
    values = _values(error, "status_code", "status", "http_status", "code", "HTTPStatusCode")
    return next(
        (int(value) for value in values if isinstance(value, int) and 100 <= value < 600), None
    )


def _codes(error: BaseException) -> set[str]:
    """Return the machine-readable codes of an error, in lower case."""
    names = [value for value in _values(error, "code", "type", "Code") if isinstance(value, str)]
    return {name.lower() for name in names if re.fullmatch(r"[\w.-]{1,60}", name)}


def _message(error: BaseException) -> str:
    """Return the provider's message, without the client's wrapping if there is any."""
    body = attribute(error, "body")
    for source in (attribute(body, "error"), body):
        message = attribute(source, "message")
        if isinstance(message, str) and message:
            return message
    return str(getattr(error, "message", "") or message_of(error))
