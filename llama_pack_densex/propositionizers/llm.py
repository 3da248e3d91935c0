"""Propositions by any LlamaIndex LLM."""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

from llama_index.core.bridge.pydantic import (
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType, PromptMixin, PromptMixinType
from pydantic import FiniteFloat

from llama_pack_densex.llm.budget import Budget, BudgetError, Meter
from llama_pack_densex.llm.cache import ReplyCache, passage_digest
from llama_pack_densex.llm.claims import name_place, refuse_place, unnamed_place
from llama_pack_densex.llm.client import Client, background_loop, response_format
from llama_pack_densex.llm.endpoint import Endpoint
from llama_pack_densex.llm.errors import Failure, LLMError, classify
from llama_pack_densex.llm.limits import Limits
from llama_pack_densex.llm.names import with_provider
from llama_pack_densex.llm.reference import (
    MODEL_FIELDS,
    LLMFactory,
    LLMReference,
    call_factory,
    describe_llm,
    factory_name,
    output_settings,
    secrets_of,
    without_retries,
)
from llama_pack_densex.llm.requests import LLMRequest, Sender, Stop
from llama_pack_densex.llm.usage import Price, RequestFigures, price_of, read_prices
from llama_pack_densex.propositionizers.base import (
    BudgetExceededError,
    Passage,
    Propositionizer,
    PropositionizerError,
    PropositionSet,
    Status,
    reported,
)
from llama_pack_densex.propositionizers.checks import checked, is_better, settled
from llama_pack_densex.propositionizers.prompts import (
    ASKED_AGAIN,
    JAPANESE_PROMPT_KEY,
    PROMPT_KEY,
    ask_again_note,
    default_prompts,
    format_request,
    prompt_key,
    repair_note,
    split_in_two,
    takes_variable,
    with_sentences_before,
)
from llama_pack_densex.propositionizers.recorded import append_recording, open_recording, purge_recording
from llama_pack_densex.propositionizers.replies import REASONS, Reading, fall_back, join_parts, judge, unique
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.text.tokens import has_letters

logger = plain_logger(__name__)
dispatcher = get_dispatcher(__name__)

_AHEAD = 16  # passages that wait or are under way for each request in flight
_LEAST_AHEAD = 512  # passages that may wait in any case
_REMEMBERED = 4096  # passages of one call that a later identical one is compared with
_DEFAULT_CONCURRENCY = 8
_MOST_CONCURRENCY = 256
_SLOW_REPLY = 8.0  # seconds
# tokens, sent and received: the instructions, and a passage of 170 tokens with its propositions
_A_REQUEST = 650
_MOST_REQUESTS = 256  # for one passage and all the parts that it is split into
_LAST_WAIT = 5.0  # seconds for replies that are under way when a run is interrupted: they are paid for
_LET_GO = 0.1  # seconds: replies come together, and the next requests leave before these are checked
_FIRST_PASSAGES = 20  # where sentences stand in for all of so many, no setting is right
_FEW_PASSAGES = 8  # whole passages are enough to tell whether too many first replies are cut off
_NEARLY_ALL = 0.9  # of the first replies
_MEASURED = ("en", "ja")  # languages in which checks are good enough to change propositions


class PropositionizingEndEvent(BaseEvent):
    """The propositions of a passage that an LLM was asked for are there.

    Args:
        passage_id: A digest of its text.
        status: As of `PropositionSet`.
        reason: Why the status is not "ok".
        propositions: How many there are.
        requests: How many requests that took, those that were answered from the cache included.
    """

    passage_id: str
    status: Status
    reason: str
    propositions: int
    requests: int

    @classmethod
    def class_name(cls) -> str:
        return "PropositionizingEndEvent"


class LLMPropositionizer(Propositionizer, PromptMixin, validate_assignment=True):
    """Asks an LLM for the propositions of each passage, and sees to it that none are lost on the way.

    A reply that is cut off makes it split the passage at a sentence boundary and ask for both halves; one
    that is empty, malformed, refused or in the wrong language is asked for again, with the reason. Sentences
    stand in for what still cannot be had: status "fallback", with the reason, and a warning in the log. Where
    nearly every reply is cut off, or sentences would stand in for all of the first passages, a setting is
    wrong, and the run stops.

    All requests wait for their turn in one event loop in a thread of this process, and are sent in threads.
    What comes back is counted and kept in the thread that got it, also when the call that asked for it was
    interrupted meanwhile.

    The LLM and its keys are never serialised. A pickled propositionizer makes its LLM again where it is
    unpickled, with the key from the environment or by `llm_factory`, and refuses to be unpickled where it
    cannot.

    Args:
        llm: Any LlamaIndex LLM, or the name of one: "ollama:qwen3:8b" (see `llm.names`). Without it,
            `llm_factory` makes it.
        proposition_prompt: Replaces the prompt for every language but Japanese (see
            `prompts.default_prompts`).
        japanese_proposition_prompt: Replaces the prompt for Japanese passages.
        questions: Whether it also writes questions that a passage answers, in the same reply: the passage is
            then found by them too, above all by questions in other words than its own. A reply is half as
            long again. Prompts of your own have to ask for an object with the lists "propositions" and
            "questions".
        llm_factory: A function without arguments at the top level of a module, or its "module:name", that
            makes the LLM in other processes.
        cache: The SQLite file where replies are kept as they arrive, so that no finished passage is asked for
            again; or a `ReplyCache`.
        max_concurrency: Requests in flight at the same time. It is what a run begins with; a server that
            refuses some gets fewer, and more slowly. None means 8, or as many as the rates below take if a
            reply needs 8 seconds.
        requests_per_minute: What the provider allows; requests are spread evenly. None means no limit.
        tokens_per_minute: What the provider allows, tokens sent and received together. None means no limit.
        workers: Processes that share the rates and the budget; each of them keeps to its part.
        max_cost: US dollars that this object may use before it stops. None means no limit.
        max_tokens_total: Tokens, sent and received, that it may use before it stops. None means no limit.
        prices: Prices beside, or in place of, the list prices: a JSON file, or a mapping of model names to
            {"input": ..., "output": ...} in US dollars for a million tokens.
        max_attempts: Requests for the same text, the first included, before sentences stand in.
        max_retries: Further tries after a time-out, a lost connection or a server's error; ten refusals by a
            rate limit count as one. The provider's client does not try again by itself.
        retry_wait: Scale of the random, exponentially growing wait between those tries, in seconds.
        strictness: What to do about propositions that say what their passage does not, or cannot be
            understood alone (see `checks`). "flag" notes it on the set and on its nodes. "repair" asks once
            more, naming what was wrong, in English and Japanese, and lets sentences stand in for what is
            still not in the passage. "off" looks for nothing.
        record_to: A JSONL file to append passages and propositions to as they arrive ("ok" and "repaired"
            ones), for `RecordedPropositionizer`.
        structured: "auto" asks for replies by a JSON schema where the LLM's class says that its model keeps
            to one (OpenAI's, and OpenAILike with `should_use_structured_outputs`), until the server refuses
            it; "off" never does. Neither what is asked nor what replies are kept by depends on it.

    Raises:
        ValueError: Neither `llm` nor `llm_factory` is given, the factory cannot be imported by its name, a
            prompt does not take the passage, or there is a `max_cost` for a model whose price is not known.

    Examples:
        >>> from llama_index.llms.openai import OpenAI
        >>> propositionizer = LLMPropositionizer(OpenAI(model="gpt-4o-mini"), record_to="propositions.jsonl")
        >>> propositionizer.propositionize([Passage("Miso, a seasoning, is made of soybeans.", title="Miso")])
    """

    questions: bool = Field(
        default=False,
        description="Whether questions that a passage answers are written too.",
    )
    llm_factory: str = Field(
        default="",
        description='What makes the LLM elsewhere: "module:name", or its own name.',
    )
    max_concurrency: int | None = Field(
        default=None,
        ge=1,
        description="Requests in flight at the same time.",
    )
    requests_per_minute: FiniteFloat | None = Field(
        default=None,
        gt=0,
        description="What the provider allows.",
    )
    tokens_per_minute: FiniteFloat | None = Field(
        default=None,
        gt=0,
        description="What the provider allows.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        description="Processes that share the rates and the budget.",
    )
    max_cost: FiniteFloat | None = Field(
        default=None,
        ge=0,
        description="US dollars to stop at.",
    )
    max_tokens_total: int | None = Field(
        default=None,
        ge=0,
        description="Tokens to stop at.",
    )
    prices: dict[str, Price] = Field(
        default={},
        description="Prices beside the list prices.",
    )
    max_attempts: int = Field(
        default=3,
        ge=1,
        description="Requests for the same text before sentences stand in.",
    )
    max_retries: int = Field(
        default=6,
        ge=0,
        description="Further tries after a time-out or a server's error.",
    )
    retry_wait: FiniteFloat = Field(
        default=1.0,
        ge=0,
        description="Scale of waits between those tries, in seconds.",
    )
    strictness: Literal["off", "flag", "repair"] = Field(
        default="flag",
        description="What to do about findings.",
    )
    record_to: str | None = Field(
        default=None,
        description="The JSONL file that propositions are appended to.",
    )
    structured: Literal["auto", "off"] = Field(
        default="auto",
        description="Whether a JSON schema is asked for.",
    )
    _llm: LLM
    _form: dict[str, Any]
    _endpoint: Endpoint
    _settings: dict[str, Any]  # what its output depends on
    _model: str
    _sender: Sender
    _paces: tuple[Any, ...] = ()
    _prompts: dict[str, BasePromptTemplate]

    def __init__(
        self,
        llm: LLM | str | None = None,
        *,
        proposition_prompt: BasePromptTemplate | None = None,
        japanese_proposition_prompt: BasePromptTemplate | None = None,
        llm_factory: LLMFactory | str | None = None,
        record_to: str | Path | None = None,
        cache: ReplyCache | str | Path | None = None,
        **settings: Any,
    ) -> None:
        if unknown := settings.keys() - type(self).model_fields.keys():
            raise TypeError(f"unknown arguments: {', '.join(sorted(unknown))}")
        if isinstance(llm, str):
            llm_factory = with_provider(llm)
            llm = None
        factory = factory_name(llm_factory) if llm_factory else ""
        if llm is None and not factory:
            raise ValueError(
                "pass llm=..., a LlamaIndex LLM or its name, or llm_factory=..., a function that makes one"
            )
        if llm is not None and not isinstance(llm, LLM):
            raise ValueError(f"llm must be a LlamaIndex LLM, not a {type(llm).__name__}")
        settings["llm_factory"] = factory
        settings["record_to"] = record_to and str(record_to)
        settings["prices"] = read_prices(settings.get("prices"))
        super().__init__(**settings)
        self._llm = call_factory(factory) if llm is None else llm
        self._endpoint = Endpoint(without_retries(self._llm), secrets_of(self._llm))
        self._settings = output_settings(self._llm)
        self._model = str(next(filter(None, map(self._settings.get, MODEL_FIELDS)), ""))
        self._form = response_format(self._llm, "propositions", *["questions"] * self.questions)
        limits = Limits(self.concurrency)
        self._sender = Sender.to(self._llm, limits, Meter(Budget(), None), cache)
        self._sender_now()  # says now what is wrong with the limits
        self._prompts = default_prompts(self.questions)
        if proposition_prompt is not None:
            self._update_prompts({PROMPT_KEY: proposition_prompt})
        if japanese_proposition_prompt is not None:
            self._update_prompts({JAPANESE_PROMPT_KEY: japanese_proposition_prompt})

    @classmethod
    def class_name(cls) -> str:
        return "LLMPropositionizer"

    @property
    def llm(self) -> LLM:
        """The LLM that is asked."""
        return self._llm

    @property
    def cache(self) -> ReplyCache | None:
        """Where replies are kept."""
        return self._sender.cache

    @property
    def figures(self) -> RequestFigures:
        """What its requests came to so far, as the provider counts them, and what they cost."""
        return self._sender_now().meter.figures(self._model)

    def purge(self, texts: Iterable[str]) -> int:
        """Forget all that is kept of passages: replies in the cache, lines in `record_to`.

        Raises:
            OSError: One of them cannot be written.
        """
        texts = set(texts)
        recorded = 0 if self.record_to is None else purge_recording(self.record_to, texts)
        return recorded + self.forget_replies(texts)

    def forget_replies(self, texts: Iterable[str]) -> int:
        return self.cache.purge(texts) if self.cache is not None else 0

    def keeping_replies(self, file: Path) -> LLMPropositionizer:
        """The same propositionizer with a cache, unless it has one; both share limits and counters."""
        if self.cache is not None:
            return self
        copy = self.__copy__()
        copy._sender = replace(self._sender, cache=ReplyCache(file))
        return copy

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Ask the LLM for the propositions of each passage.

        Args:
            passages: Any number of passages; identical ones are asked once.

        Returns:
            One set a passage, in the order of `passages`.

        Raises:
            PropositionizerError: The provider refuses the key or the settings, does not know the model, is
                down, or the quota is used up; or nearly every reply is of no use.
            BudgetExceededError: `max_cost` or `max_tokens_total` allows no other request.
            OSError: `record_to` or the cache cannot be written.
        """
        run = self._new_run()
        waiting = ThreadPoolExecutor(1)
        all_sets = partial(copy_context().run, list, run.stream(passages))
        try:
            return reported(await asyncio.get_running_loop().run_in_executor(waiting, all_sets))
        finally:
            run.end("the end of the call")
            waiting.shutdown(wait=False)

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Do what `apropositionize` does, from synchronous code; works inside a running event loop too."""
        return reported(list(self.stream(passages)))

    def stream(self, passages: Iterable[Passage]) -> Iterator[PropositionSet]:
        """Ask for the propositions of passages as they come, and return them in their order.

        Some hundreds of passages are under way at a time; memory does not grow with their number. It works
        inside a running event loop too. When it is closed or interrupted, it waits some seconds for the
        requests that are under way, whose replies are paid for.

        Args:
            passages: Any iterable of passages. It is read in the thread that reads the sets.

        Raises:
            PropositionizerError: As `apropositionize`; all sets before the first one that is missing were
                returned.
        """
        yield from self._new_run().stream(passages)

    def fingerprint_data(self) -> dict[str, Any]:
        prompts: dict[str, Any] = {}
        for key, prompt in self._prompts.items():
            kwargs = {name: str(value) for name, value in prompt.kwargs.items()}
            prompts[key] = [prompt.get_template(llm=self._llm), kwargs]
        data: dict[str, Any] = {
            "llm": type(self._llm).__qualname__,
            "settings": self._settings,
            "prompts": prompts,
            "max_attempts": self.max_attempts,
        }
        # only if they are not the defaults: node ids from before there were any stay as they are
        if self.questions:
            data["questions"] = True
        if self.strictness == "repair":
            data["strictness"] = self.strictness
        return data

    def question(
        self,
        passage: Passage,
        part: Passage | None = None,
        note: str = "",
        attempt: int = 1,
        turn: int | None = None,
    ) -> LLMRequest:
        """What is asked about a passage.

        Args:
            passage: The passage.
            part: The part of it that is asked about; None means the whole.
            note: What to tell the model besides.
            attempt: How many-eth time the same is asked.
            turn: The passage's.
        """
        part = part or passage
        prompt = self._prompts[prompt_key(passage.language)]
        messages = format_request(prompt, self._llm, part, note)
        return LLMRequest(passage.text, part.text, messages, attempt, turn)

    def key(self, question: LLMRequest) -> str:
        """What the reply to a question is kept by."""
        return self._sender.key(question)

    @property
    def form(self) -> dict[str, Any]:
        """The further argument of the LLM's `chat` that asks for replies by a JSON schema."""
        return self._form if self.structured == "auto" else {}

    @property
    def concurrency(self) -> int:
        """Requests in flight at a time: the chosen number, else what the rates take if a reply is slow.

        A rate, if there is one, should bound a run; without one, little is known of the server.
        """
        if self.max_concurrency is not None:
            return self.max_concurrency
        by_tokens = self.tokens_per_minute and self.tokens_per_minute / _A_REQUEST
        rate = min(filter(None, (self.requests_per_minute, by_tokens)), default=0.0)
        needed = math.ceil(rate / self.workers / 60 * _SLOW_REPLY)
        return min(max(needed, _DEFAULT_CONCURRENCY), _MOST_CONCURRENCY)

    def _new_run(self) -> _Run:
        try:
            client = Client(self._endpoint, self.form)
        except Exception as error:  # LlamaIndex's OpenAI looks the model up in a list of its own
            message = classify(error, secrets_of(self._llm)).message
            raise PropositionizerError(f"the LLM does not say what it is: {message}") from None
        if self.record_to is not None:
            open_recording(self.record_to)
        sender = self._sender_now()
        sender.start_run()
        return _Run(self, sender, client)

    def _sender_now(self) -> Sender:
        """What all calls share, by the settings as they are now: some may have been changed."""
        limits = (self.requests_per_minute, self.tokens_per_minute, self.max_cost)
        *rates, max_cost = (limit and limit / self.workers for limit in limits)
        paces = (self.concurrency, *rates, os.getpid())
        if self._paces != paces:  # what is under way keeps to the limits that it was sent by
            self._sender = replace(self._sender, limits=Limits(self.concurrency, *rates))
            self._paces = paces
        sender = self._sender
        sender.max_retries = self.max_retries
        sender.retry_wait = self.retry_wait
        max_tokens = self.max_tokens_total and self.max_tokens_total // self.workers
        sender.meter.budget = Budget(max_cost, max_tokens)
        sender.meter.price = price_of(self._model, self.prices, self._llm, is_needed=max_cost is not None)
        return sender

    def _get_prompts(self) -> PromptDictType:
        return dict(self._prompts)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        for key, prompt in prompts_dict.items():
            if key not in self._prompts:
                names = f"{PROMPT_KEY!r} and {JAPANESE_PROMPT_KEY!r}"
                raise ValueError(f"there is no prompt {key!r}, only {names}")
            if not isinstance(prompt, BasePromptTemplate):
                raise TypeError(f"{key} must be a prompt, PromptTemplate(...), not a {type(prompt).__name__}")
            if not takes_variable(prompt, "content"):
                reason = "so that the LLM would never see the passage"
                raise ValueError(f"{key} has no variable {{content}}, {reason}")
        self._prompts = {
            **self._prompts,
            **prompts_dict,
        }  # a copy: in-process copies of this object share the old one

    @model_serializer(mode="wrap")
    def custom_model_dump(
        self,
        handler: SerializerFunctionWrapHandler,
        info: SerializationInfo,
    ) -> dict[str, Any]:
        data = {
            **handler(self),
            "cache": None,
            "llm": describe_llm(self._llm, self.llm_factory).model_dump(mode="json"),
            "fingerprint": self.fingerprint,
            "class_name": self.class_name(),
        }
        name_place(self.record_to)
        if self.cache is not None:
            data["cache"] = str(self.cache.path)
            name_place(data["cache"])
            if self.cache.max_age is not None:
                data["cache_max_age"] = self.cache.max_age.total_seconds()
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> LLMPropositionizer:
        """Make a propositionizer from what `to_dict` returned, its LLM as a pickled one's; `kwargs` override.

        Raises:
            ValueError: The LLM cannot be made again, or is another one, or the prompts were others: they are
                not in the dictionary.
        """
        return _made_again(cls, data, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # Not core's way, which drops what cannot be pickled and goes on.
        return partial(_made_again, is_pickled=True), (type(self), self.to_dict(), self._prompts)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> LLMPropositionizer:
        # shares the client, which holds locks; everything else is never changed in place
        return self.__copy__()


def _made_again(
    kind: type[LLMPropositionizer],
    data: dict[str, Any],
    changes: dict[str, Any],
    *,
    is_pickled: bool = False,
) -> LLMPropositionizer:
    """A propositionizer of its dictionary; a pickle's factory is trusted (see `LLMReference.rebuild`)."""
    settings = {**data, **changes}
    if not is_pickled:
        settings |= _llm_of_dictionary(data, changes)
        for name in {"cache", "record_to"} - changes.keys():
            refuse_place(settings.get(name) or "", f"the file of {name}=", f"pass {name}={settings.get(name)!r} too.")
    settings.pop("class_name", None)
    fingerprint = settings.pop("fingerprint", None)
    max_age = settings.pop("cache_max_age", None)
    if max_age is not None and isinstance(settings.get("cache"), str):
        settings["cache"] = ReplyCache(settings["cache"], timedelta(seconds=max_age))
    if is_pickled and isinstance(settings.get("llm"), dict):
        settings["llm"] = LLMReference.model_validate(settings["llm"]).rebuild(trusted=True)
    propositionizer = kind(**settings)
    if fingerprint not in (None, propositionizer.fingerprint) and (is_pickled or not changes):
        raise ValueError(
            "The propositionizer made here is not the one that was saved: its LLM is "
            f"{propositionizer._settings} and was {data['llm']['settings']} (let llm_factory make the same "
            "one), or it had other prompts (pass them), or another version saved it."
        )
    return propositionizer


def _llm_of_dictionary(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The LLM and the factory of a dictionary, which somebody else may have written; the user's own come first."""
    if "llm" in changes or "llm_factory" in changes:
        return {"llm": changes.get("llm"), "llm_factory": changes.get("llm_factory")}
    factory = data.get("llm_factory") or ""
    if factory:
        return {"llm": call_factory(factory, trusted=False)}
    llm = data.get("llm")
    if isinstance(llm, dict):
        return {"llm": LLMReference.model_validate(llm).rebuild()}
    if isinstance(llm, str):
        refuse_place(unnamed_place(llm), "the LLM", f"pass llm={llm!r} too.")
    return {}


class _Run:
    """One call: many passages under way at once, their sets in order, one task for identical ones.

    Args:
        asking: Whose call it is.
        sender: Its sender.
        client: How requests leave.
    """

    def __init__(self, asking: LLMPropositionizer, sender: Sender, client: Client) -> None:
        self.asking = asking
        self.sender = sender
        self.client = client
        self.loop = background_loop()
        self.stop = Stop(self.loop)
        self._ahead = max(_LEAST_AHEAD, _AHEAD * asking.concurrency)
        self._unread: Exception | None = None  # what ended the passages
        self._error: Exception | None = None  # what else ended the run
        self._tasks: OrderedDict[Passage, asyncio.Task[PropositionSet]] = OrderedDict()
        self._cut: deque[str] = deque(maxlen=_FIRST_PASSAGES)
        self._has_warned = False
        self._fallen: list[str] = []
        self._is_sound = False

    def stream(self, passages: Iterable[Passage]) -> Iterator[PropositionSet]:
        """The sets of passages, in order, while the next ones are under way.

        Fallbacks are held back until other propositions come, and, while requests are rejected, until another
        one is
        answered: if the run is stopped for either, none of them counts as done.
        """
        held: deque[PropositionSet] = deque()
        try:
            for result in self._in_order(passages):
                held.append(result)
                while held and self._is_final(held[0]):
                    yield held.popleft()
            yield from held
        except BaseException as error:
            self.end(type(error).__name__)
            if asyncio._get_running_loop() is not self.loop:  # the garbage collector may close it there
                settling = asyncio.run_coroutine_threadsafe(self._settled(), self.loop)
                wait([settling], _LAST_WAIT)
            if isinstance(error, LLMError):
                raise self._error or _public(error) from None
            raise
        if self._unread is not None:
            raise self._unread

    def _is_final(self, result: PropositionSet) -> bool:
        if not any(map(has_letters, result.texts)):
            return True  # nothing was asked
        is_certain = result.status != "fallback" or not self.sender.is_doubtful
        return self._is_sound and is_certain

    def _in_order(self, passages: Iterable[Passage]) -> Iterator[PropositionSet]:
        waiting: deque[Future[PropositionSet]] = deque()
        for passage in self._readable(passages):
            waiting.append(asyncio.run_coroutine_threadsafe(self._set_of(passage), self.loop))
            while waiting and (len(waiting) >= self._ahead or waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _readable(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """The passages before an error, which is raised after their sets."""
        try:
            yield from passages
        except Exception as error:
            self._unread = error

    def end(self, cause: str) -> None:
        """Send nothing more."""
        self.stop.by(PropositionizerError(f"the run was ended by {cause}"))

    async def _settled(self) -> None:
        """What is under way is paid for: also what an interrupt kept from being taken note of."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _set_of(self, passage: Passage) -> PropositionSet:
        task = self._tasks.get(passage)
        if task is None:
            task = self._tasks[passage] = asyncio.ensure_future(self._make(passage))
            # nobody else may ask for the error
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            while len(self._tasks) > _REMEMBERED and next(iter(self._tasks.values())).done():
                self._tasks.popitem(last=False)
        return await task

    async def _make(self, passage: Passage) -> PropositionSet:
        record_to = self.asking.record_to
        try:
            result = await _PassageRun(self, passage).propositions()
            if record_to is not None and result.texts and result.status != "fallback":
                append_recording(record_to, passage, result)
            self._note_end(passage, result)
        except LLMError as error:
            self.stop.by(error)
            raise
        except Exception as error:  # as the cache's: nothing more is sent
            self._error = self._error or error
            self.end(type(error).__name__)
            raise
        return result

    def note_first(self, cut_text: str) -> None:
        """Take note of a whole passage whose first reply was cut off, or of "": each takes many more."""
        self._cut.append(cut_text)
        seen = len(self._cut)
        cut = seen - self._cut.count("")
        if seen < _FEW_PASSAGES or cut < seen / 2:
            return
        message = (
            f"{cut} of the last {seen} replies for whole passages were cut off, and each of these passages "
            "is asked for in parts, which costs many times as much: give the LLM more tokens for a reply "
            "(max_tokens, or whatever its class calls it) or a larger context, or make the passages smaller."
        )
        if cut >= _NEARLY_ALL * seen:
            # the server has the larger context: the keys of the replies would be the same
            self.asking.forget_replies(filter(None, self._cut))
            raise PropositionizerError(message)
        if not self._has_warned:
            logger.warning(message)
        self._has_warned = True

    def _note_end(self, passage: Passage, result: PropositionSet) -> None:
        """Stop if sentences stand in for all of the first passages; a later run asks for them again."""
        if self._is_sound:
            return
        if result.status != "fallback":
            self._is_sound = any(map(has_letters, result.texts))
            return
        self._fallen.append(passage.text)
        if len(self._fallen) >= _FIRST_PASSAGES:
            self.asking.forget_replies(self._fallen)
            raise PropositionizerError(
                f"None of the first {len(self._fallen)} passages came to propositions; the last one: "
                f"{result.reason}. See whether the model and its settings are right. For sentences instead, "
                "no LLM is needed."
            )


class _PassageRun:
    """One passage's way to its propositions: asked for, judged, split, asked for again.

    Args:
        run: The call that it belongs to.
        passage: The passage.
    """

    def __init__(self, run: _Run, passage: Passage) -> None:
        self._run = run
        self._passage = passage
        self._language = passage.language
        self._turn = run.sender.limits.next_turn()
        self._requests_sent = 0

    async def propositions(self) -> PropositionSet:
        """The passage's propositions; an event reports them."""
        if not has_letters(self._passage.text):
            return PropositionSet(self._passage.sentences)
        result = await self._checked(join_parts(await self._ask_for(self._passage)))
        dispatcher.event(
            PropositionizingEndEvent(
                passage_id=passage_digest(self._passage.text),
                status=result.status,
                reason=result.reason,
                propositions=len(result.texts),
                requests=self._requests_sent,
            )
        )
        return result

    async def _checked(self, result: PropositionSet) -> PropositionSet:
        strictness = self._run.asking.strictness
        if strictness == "off" or result.status == "fallback":
            return result
        if self._run.sender.limits.queue:
            await asyncio.sleep(_LET_GO)
        result = checked(self._passage, result)
        if strictness == "flag" or not result.findings or self._language not in _MEASURED:
            return result
        return await self._repaired(result)

    async def _repaired(self, result: PropositionSet) -> PropositionSet:
        kinds = Counter(finding.kind for finding in result.findings)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        reasons = filter(None, (result.reason, f"asked again for what checks found: {counts}"))
        reading = await self._ask(self._passage, repair_note(result, self._language))
        if reading.problem is None:
            questions = reading.questions or result.questions
            again = checked(self._passage, replace(result, texts=reading.texts, questions=questions))
            if is_better(again.findings, result.findings):
                result = again
        result = replace(result, status="repaired", reason="; ".join(reasons), is_passing=reading.is_passing)
        return settled(self._passage, result)

    async def _ask_for(self, part: Passage) -> list[PropositionSet]:
        """Ask for the propositions of a passage, or of a part of it."""
        if not has_letters(part.text):
            return [PropositionSet(part.sentences)]
        note = ""
        reasons: list[str] = []
        max_attempts = self._run.asking.max_attempts
        for attempt in range(1, max_attempts + 1):
            if self._requests_sent >= _MOST_REQUESTS:
                return [fall_back(part, f"the limit of {_MOST_REQUESTS} requests a passage was reached")]
            reading = await self._ask(part, note, attempt, is_last=attempt == max_attempts)
            is_too_long = reading.problem in ("cut", "too_long")
            if self._requests_sent == 1:
                self._run.note_first(part.text if is_too_long else "")
            if reading.problem is None:
                reason = "; ".join(unique(reasons))
                return [PropositionSet(reading.texts, reason=reason, questions=reading.questions)]
            halves = split_in_two(part) if is_too_long or reading.problem == "filtered" else None
            if halves is not None:
                return await self._ask_for_halves(*halves)
            if reading.problem not in ASKED_AGAIN:
                return [fall_back(part, reading.reason, reading.is_passing)]
            reasons.append(reading.reason)
            note = ask_again_note(reading.problem, self._language)
        return [fall_back(part, f"{'; '.join(unique(reasons))} (asked {max_attempts} times)")]

    async def _ask(
        self,
        part: Passage,
        note: str,
        attempt: int = 1,
        *,
        is_last: bool = False,
    ) -> Reading:
        """Ask once, and read the reply; a failure of the provider is a problem too."""
        asking = self._run.asking
        request = asking.question(self._passage, part, note, attempt, self._turn)
        self._requests_sent += 1
        reply = await self._run.sender.ask(request, self._run.client.send, self._run.stop)
        if isinstance(reply, Failure):
            cause = REASONS["filtered"] if reply.kind == "filtered" else "the provider failed"
            reason = f"{cause} ({reply.summary})"
            return Reading(problem=reply.kind, reason=reason, is_passing=reply.may_pass)
        return judge(part, reply.text, reply.finish, questions=asking.questions, is_last=is_last)

    async def _ask_for_halves(self, first: Passage, second: Passage) -> list[PropositionSet]:
        second = replace(second, context=with_sentences_before(second.context, first.text))
        parts: list[PropositionSet] = []
        # both to their end: what was asked for before an error is paid for, and worth keeping
        for half in await asyncio.gather(self._ask_for(first), self._ask_for(second), return_exceptions=True):
            if isinstance(half, BaseException):
                raise half
            parts += half
        return parts


def _public(error: LLMError) -> PropositionizerError:
    if isinstance(error, PropositionizerError):
        return error
    kind = BudgetExceededError if isinstance(error, BudgetError) else PropositionizerError
    return kind(str(error), error.is_silence)
