"""What an error of an LLM provider means, worked out without importing any provider."""

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
    """The run cannot go on: the key, the model, a setting or the quota is at fault, and every request would
    fail.

    Attributes:
        is_silence: Whether the requests failed because nothing answered them at all.
    """

    def __init__(self, message: str, is_silence: bool = False) -> None:
        super().__init__(message)
        self.is_silence = is_silence


class ProviderError(RuntimeError):
    """A provider said, with the status of a reply, that it has none.

    Attributes:
        body: What it said, as the clients' errors have it.
    """

    def __init__(self, message: str, body: Any = None) -> None:
        super().__init__(message)
        self.body = body

    @classmethod
    def of(cls, problem: Any, sent: str = "", secrets: Iterable[str] = ()) -> ProviderError:
        """The error of what came in place of a reply.

        Args:
            problem: An object with a message and a code, or the message.
            sent: The text that was sent, of which nothing is quoted.
            secrets: Texts that must not appear in the message.
        """
        body = {"message": problem} if isinstance(problem, str) else problem
        message = shortened(str(attribute(body, "message") or body))
        reason = scrub(without_quotes(message, sent), secrets)[:_WORDS]
        return cls(f"the provider sent an error in place of a reply: {reason}", body)


class NoReplyError(ProviderError):
    """A provider sent nothing that an LLM said, and did not say why."""


@dataclass(frozen=True)
class Failure:
    """An error of a provider.

    Args:
        kind: "fatal" (stops the run), "too_long" and "filtered" (due to the text; its parts may pass),
            "rejected" (due to the text, where other requests pass), "refused" (by the server's limits: to be
            sent again), "broken" (a bug in the client's code, not the provider) or "transient" (worth another
            try).
        summary: The error's type, status and code. It does not hold the provider's message, which may quote
            the text, unless that is the only thing that says what is wrong (see `ProviderError`).
        message: The error's type and message, without keys; for a fatal error, also what to do next.
        wait: Seconds the server says to wait before the next try; 0 where it does not say.
        may_pass: Whether the same request may be answered another day, since the key or the server may be at
            fault.
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
    """Work out what an error means for the run.

    Args:
        error: Whatever the LLM raised.
        secrets: Texts that must not appear in the message, such as the API key.
        sent: The text that was sent. What the provider quotes from it is no evidence about keys, quotas or
            models.
        proven: Whether requests with the same settings were answered before: a status of 403 then has nothing
            to do with the key; a gateway objects to the text.
    """
    status = _status(error)
    codes = _codes(error)
    wait = retry_after(error)
    message = shortened(_message(error))
    summary = " ".join(map(str, filter(None, (type(error).__name__, status, *sorted(codes)[:2]))))
    if status == 503 and wait:  # a server that says when to come back is there, and at its limit
        status = 429
    # clients wrap what httpx says of a header that it cannot send
    unquoted = without_quotes(f"{message}\n{shortened(str(error.__cause__))}", sent)
    rules = [rule for rule in _RULES if rule.matches(status, codes, message, unquoted)]
    rules.append(_Rule("broken" if isinstance(error, PROGRAMMING_ERRORS) else "transient"))
    rule = next(rule for rule in rules if not (proven and rule.only_unproven))
    if isinstance(error, ProviderError) and rule.kind == "transient":  # it quotes nothing
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
    """Whether an error came of a connection that was refused, or of a host that is not known."""
    links = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return any(isinstance(link, (ConnectionRefusedError, socket.gaierror)) for link in links)


def unreachable_message(address: str, summary: str) -> str:
    """What to tell the user of a server that is not there.

    Args:
        address: Where it should be; empty where that is not known.
        summary: Of the error.
    """
    place = address or "the provider's address"
    return (
        f"The model could not be asked: nothing answers at {place} ({summary}). Start the server, or see "
        "whether the address is right and whether this machine is online, and run again."
    )


def is_of_a_model(error: BaseException) -> bool:
    """Whether it was raised while a model was asked, by whatever class or client."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(str(frame.f_globals.get("__name__")).startswith(_ASKING) for frame in frames)


def refuses_schema(error: BaseException, *, proven: bool) -> bool:
    """Whether a server rejected a request because of the JSON schema for its reply.

    Args:
        error: What such a request raised.
        proven: Whether others were answered. Before that, any rejected request may be rejected for the
            schema: servers rarely say so in the same words.
    """
    kind = classify(error).kind
    if kind in ("refused", "too_long", "filtered"):
        return False
    is_named = _status(error) is not None and _SCHEMA.search(shortened(str(error))) is not None
    return is_named or (kind == "rejected" and not proven)


def refused_parameter(error: BaseException, names: Iterable[str], sent: str = "") -> str:
    """Which parameter of a request a server does not take; "" if the error is about something else.

    Args:
        error: What the request raised.
        names: The parameters that were sent.
        sent: The text that was sent. What the provider quotes from it says nothing about parameters.
    """
    if _status(error) not in (400, 422):
        return ""
    # what a server says in a form of its own is in the client's message alone
    message = without_quotes(shortened(f"{_message(error)}\n{error}"), sent)
    named = {str(value) for value in _values(error, "param")}
    if named and (not _UNSUPPORTED_CODES.isdisjoint(_codes(error)) or _UNSUPPORTED.search(message)):
        return next((name for name in names if name in named), "")
    places = {
        name: place for name in names if (place := _place_of_refusal(name, message)) is not None
    }
    return min(places, key=lambda name: places[name], default="")


def _place_of_refusal(name: str, message: str) -> int | None:
    """Where a message says that a parameter is not supported, in one clause; None if it does not."""
    for place in re.finditer(rf"\b{re.escape(name)}\b", message):
        preceding = re.split(_CLAUSE_END, message[: place.start()][-_CLAUSE:])[-1]
        following = re.split(_CLAUSE_END, message[place.end() :][:_CLAUSE])[0]
        clause = f"{preceding}{name}{following}"
        if _UNSUPPORTED.search(clause):
            return place.start()
    return None


def retry_after(error: BaseException) -> float:
    """How many seconds a server says to wait before the next try; 0 where it does not say."""
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
    """A date by the server's clock, which may be wrong; without one, now by our own clock."""
    return time.time() if date is None else parsedate_to_datetime(date).timestamp()


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Replace keys in a text by "[key]": those that are named, and what looks, or is written, like one."""
    text = without_keys(text, secrets)
    for pattern in _NAMED_KEYS:
        text = pattern.sub(r"\1[key]", text)
    return text


def error_text(error: BaseException) -> str:
    """An error's type and message, without keys."""
    return scrub(f"{type(error).__name__}: {error}")


def without_keys(text: str, secrets: Iterable[str] = ()) -> str:
    """The same for a message of our own, in which a word after "key:" is none."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        pattern = re.escape(secret)
        if len(secret) < _SHORT_KEY:  # else letters inside words would be replaced
            pattern = rf"(?<!\w){pattern}(?!\w)"
        text = re.sub(pattern, "[key]", text)
    text = _KEY.sub("[key]", text)
    text = _KEY_IN_QUERY.sub(r"\1[key]", text)
    text = _CREDENTIALS_OF_PROXY.sub("[key]@", text)
    return _CREDENTIALS_IN_URL.sub(r"\1[key]@", text)


def shown(value: object) -> str:
    """A wrong value, for a message: a word or a number; for anything else, which may hold keys, its class."""
    if value is None or isinstance(value, (str, int, float, type)):
        return scrub(repr(value))
    return f"a {type(value).__name__}"


def secrets_in_environment() -> list[str]:
    """The values of environment variables that are named like keys, and the passwords in URLs of others."""
    secrets = []
    for name, value in os.environ.items():
        if name.upper().endswith(_SECRET_VARIABLES) and not (
            value.isdigit() and len(value) < _SHORT_KEY
        ):
            secrets.append(value)
        secrets += secrets_in_url(value)
    return secrets


def secrets_in_url(url: str) -> list[str]:
    """The credentials in a URL, or in "user:password@host": as written, decoded, and as a header has them."""
    credentials = _USER_OF_URL.match(url)
    if credentials is None:
        return []
    user, _, password = credentials[1].partition(":")
    pair = f"{unquote(user)}:{unquote(password)}"
    return [password or user, unquote(password or user), b64encode(pair.encode()).decode()]


def shortened(text: str) -> str:
    """The beginning and the end of a text: an error page may be megabytes, and what it says is said there."""
    if len(text) <= _LOOKED_AT:
        return text
    return f"{text[: _LOOKED_AT - _LOOKED_AT_LAST]} [...] {text[-_LOOKED_AT_LAST:]}"


def without_quotes(message: str, text: str) -> str:
    """Replace what a message quotes from a text that was sent by "[...]"; the message should be short."""
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
    """The message of an error, without the wrong value that pydantic quotes: it may be a document's text."""
    if not isinstance(error, ValidationError):
        return str(error)
    items = error.errors(include_input=False)
    problems = [f"{'.'.join(map(str, item['loc']))}: {item['type']}" for item in items]
    return f"{error.title} is not valid ({'; '.join(problems)})"


SETTING_ADVICE = (
    "The provider does not take such requests: check the LLM's settings, then run again."
)
_BAD_KEY = "The provider does not accept the API key; check the key (OpenAI: OPENAI_API_KEY) and its rights."

_ASKING = (
    "llama_index.llms.",
    "llama_index.embeddings.",
    "llama_index.core.base.embeddings.",
    "llama_pack_densex.llm.endpoint",
)
_QUOTE_BYTES = 16  # as many letters, or six kanji; or all of a shorter text
_LOOKED_AT = 4_000  # characters of an error ...
_LOOKED_AT_LAST = 1_000  # ... the last of which are its last
_WORDS = 300  # characters of what a provider said, in a message
_CLAUSE = 120  # characters
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
    # a header, in a message or among others in a list: any way to authenticate
    re.compile(rf"(?i)(authorization[\"']?\s*[:=,]\s*b?[\"']?(?:[a-z][\w-]* )?){_VALUE}+"),
    re.compile(rf"(?i)((?:{_NAMES})[\"']\s*[:=,]\s*b?[\"']){_VALUE}+"),
    re.compile(rf"(?i)((?:{_NAMES})(?:\s*=\s*|\s*[:=]\s*[\"']|:)){_VALUE}+"),
    # in a sentence, "key: set it" may follow
    re.compile(
        rf"(?i)((?:bearer|basic|{_NAMES})[\"']?\s*[:=]\s*[\"']?(?:bearer |basic )?){_VALUE}{{4,}}"
    ),
    re.compile(rf"(?i)(\b(?:bearer|basic) ){_VALUE}{{4,}}"),
)
_KEY_IN_QUERY = re.compile(
    r"(?i)([?&][\w.-]*(?:key|sig|signature|token|secret|password|pwd|credentials?|auth|code)=)[^&\s\"'#<>)]+"
)
# each begins where no longer match could, so that time grows with length
_CREDENTIALS_IN_URL = re.compile(r"(?i)((?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://)[^\s/]+@")
_CREDENTIALS_OF_PROXY = re.compile(r"(?<![\w/:.%~+-])[\w.%~+-]+:[^\s/@:]+@(?=[\w.-]+:\d)")
_USER_OF_URL = re.compile(r"(?:[A-Za-z][\w+.-]*://)?([^\s/@:]*:[^\s@]+|(?<=://)[^\s/@]+)@[\w.\[-]")
_SECRET_VARIABLES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "PGPASSWORD")
_SHORT_KEY = 4  # characters
_SCHEMA = re.compile(
    r"(?i)response[_ ]format|json[_ ]?schema|guided_|grammar|structured[_ ]?outputs?"
)


@dataclass(frozen=True)
class _Rule:
    """How one kind of failure is recognised: by a code, by a status, or by words where the status is
    ambiguous.

    Args:
        kind: The kind.
        advice: What to do about a fatal error.
        codes: Machine-readable names, those of OpenAI, Anthropic, Azure and Amazon among them.
        statuses: HTTP statuses that mean this.
        words: A pattern of what messages say, for ambiguous statuses.
        ambiguous: HTTP statuses with which the words count; None where an error has no status.
        only_unproven: Whether it holds only until a request with the same settings is answered.
    """

    kind: Kind
    advice: str = ""
    codes: str = ""
    statuses: Container[int | None] = ()
    words: str = ""
    ambiguous: Container[int | None] = ()
    only_unproven: bool = False

    def matches(self, status: int | None, codes: set[str], message: str, unquoted: str) -> bool:
        """Whether an error is of this kind; a quoted text about keys is no evidence of a fatal one."""
        evidence = unquoted if self.kind == "fatal" else message
        is_named = status in self.statuses or not codes.isdisjoint(self.codes.split())
        return is_named or (
            status in self.ambiguous and bool(re.search(self.words, evidence, re.IGNORECASE))
        )


_RULES = (  # the first that matches wins
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
        r"|'ascii' codec can't encode",  # a header, such as a key in kanji
        (None, 400, 403),
    ),
    _Rule(
        "fatal",
        "The provider does not know the model or the address: check the LLM's model name and its base URL.",
        "model_not_found deploymentnotfound model_not_available invalid_model",
        (404, 410),
        r"(?:unknown|invalid|no such) model|model[^.]{0,80}(?:does not exist|not found|not supported)",
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


def _values(error: BaseException, *names: str) -> Iterator[Any]:
    """What an error says under these names, by itself or in the provider's response and its body."""
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
    """The machine-readable names of an error."""
    names = [value for value in _values(error, "code", "type", "Code") if isinstance(value, str)]
    return {name.lower() for name in names if re.fullmatch(r"[\w.-]{1,60}", name)}


def _message(error: BaseException) -> str:
    """What the provider said, without the client's wrapping where there is one."""
    body = attribute(error, "body")
    for source in (attribute(body, "error"), body):
        message = attribute(source, "message")
        if isinstance(message, str) and message:
            return message
    return str(getattr(error, "message", "") or message_of(error))
