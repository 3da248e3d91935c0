"""Propositions by any LlamaIndex LLM."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from llama_index.core.bridge.pydantic import Field, model_serializer
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType, PromptMixin, PromptMixinType
from pydantic import FiniteFloat, SerializationInfo, SerializerFunctionWrapHandler

from llama_pack_densex.llm.budget import Budget, Meter
from llama_pack_densex.llm.cache import ReplyCache
from llama_pack_densex.llm.claims import name_place, refuse_field, unnamed_place
from llama_pack_densex.llm.client import Client, response_format
from llama_pack_densex.llm.endpoint import Endpoint
from llama_pack_densex.llm.errors import classify
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
from llama_pack_densex.llm.requests import LLMRequest, Sender
from llama_pack_densex.llm.usage import Price, RequestFigures, price_of, read_prices
from llama_pack_densex.propositionizers.base import (
    Passage,
    Propositionizer,
    PropositionizerError,
    PropositionSet,
    reported,
)
from llama_pack_densex.propositionizers.prompts import (
    JAPANESE_PROMPT_KEY,
    PROMPT_KEY,
    default_prompts,
    format_request,
    prompt_key,
    takes_variable,
)
from llama_pack_densex.propositionizers.recorded import open_recording, purge_recording
from llama_pack_densex.propositionizers.runs import (
    PropositionizingEndEvent as PropositionizingEndEvent,
)
from llama_pack_densex.propositionizers.runs import Run

_DEFAULT_CONCURRENCY = 8
_MOST_CONCURRENCY = 256
_SLOW_REPLY = 8.0  # seconds
# tokens, sent and received: the instructions, and a passage of 170 tokens with its propositions
_TOKENS_PER_REQUEST = 650

_Dictionary = dict[str, Any]
"""A propositionizer as JSON, as `to_dict` returns it."""

_Rate = Annotated[FiniteFloat | None, Field(gt=0, description="The provider's limit.")]


class LLMPropositionizer(Propositionizer, PromptMixin, validate_assignment=True):
    """Asks an LLM for the propositions of each passage; no passage is lost, whatever the LLM replies.

    If a reply is cut off, the passage is split at a sentence boundary and each half is requested separately.
    After a reply that is empty, malformed, a refusal or in the wrong language, the LLM is asked again and
    told why. If that fails too, the passage's sentences stand in for its propositions: the status is
    "fallback", with the reason, and the log has a warning. If nearly every reply is cut off, or sentences
    would stand in for all of the first passages, a setting is wrong, and the run stops.

    All requests of a process wait for their turn in one event loop, and are sent from threads. A reply is
    counted and cached in the thread that received it, even if the call that requested it was interrupted.

    The LLM and its keys are never serialised. Unpickling makes the LLM again, with the key from the
    environment or by `llm_factory`, and fails if it cannot.

    Args:
        llm: Any LlamaIndex LLM, or the name of one: "ollama:qwen3:8b" (docs/models.md). Without it,
            `llm_factory` makes the LLM.
        proposition_prompt: Replaces the prompt for every language except Japanese.
        japanese_proposition_prompt: Replaces the prompt for Japanese passages.
        questions: Whether the LLM also writes questions that a passage answers, in the same reply. They are
            searched too, which helps most if users word their questions differently from the passage. Replies
            are half as long again. A prompt of your own has to ask for an object with the lists
            "propositions" and "questions".
        llm_factory: A function without arguments at the top level of a module, or its "module:name", that
            makes the LLM in other processes.
        cache: The SQLite file where replies are cached as they arrive, so that no finished passage is
            requested again; or a `ReplyCache`.
        max_concurrency: How many requests are in flight at the same time when a run begins; if the server
            refuses some, there are fewer, and they are sent more slowly. None means 8, or as many as the
            rates below allow if a reply takes 8 seconds.
        requests_per_minute: How many requests the provider allows; they are spread evenly. None means no
            limit.
        tokens_per_minute: How many tokens the provider allows, sent and received together. None means no
            limit.
        workers: How many processes share the rates and the budget; each of them keeps to its part.
        max_cost: US dollars that this object may spend before it stops. None means no limit.
        max_tokens_total: Tokens, sent and received, that it may use before it stops. None means no limit.
        prices: Prices that add to the list prices or replace them: a JSON file, or a mapping of model names
            to {"input": ..., "output": ...} in US dollars per million tokens.
        max_attempts: How many requests are made for the same text, the first one included, before sentences
            stand in.
        max_retries: Retries after a time-out, a lost connection or a server's error; ten refusals by a rate
            limit count as one. The retries of the provider's client are turned off.
        retry_wait: Scale of the random, exponentially growing wait between retries, in seconds.
        strictness: What to do about propositions that are not supported by their passage, or that cannot be
            understood alone (see `check_propositions`). "flag" records the findings on the set and its nodes.
            "repair" asks once more, naming the faults (English and Japanese passages only), and replaces by
            sentences what is still not in the passage. "off" skips the checks.
        record_to: A JSONL file to which passages and their propositions are appended as they arrive (those
            with status "ok" or "repaired"), for `RecordedPropositionizer`.
        structured: "auto" requests replies that follow a JSON schema if the LLM's class says that its model
            supports that (OpenAI's, and OpenAILike with `should_use_structured_outputs`), until the server
            refuses it; "off" never does. Neither the prompt nor the cache key depends on it.

    Raises:
        ValueError: Neither `llm` nor `llm_factory` is given, the factory cannot be imported by its name, a
            prompt has no place for the passage, or `max_cost` is set for a model whose price is not known.

    Example:
        >>> from llama_index.llms.openai import OpenAI
        >>> from llama_pack_densex import LLMPropositionizer, Passage
        >>> propositionizer = LLMPropositionizer(
        ...     OpenAI(model="gpt-4o-mini"), cache="replies.db", max_cost=5.0, requests_per_minute=500
        ... )
        >>> propositionizer.propositionize([Passage("Miso, a seasoning, is made of soybeans.", title="Miso")])
        [PropositionSet(texts=('Miso is a seasoning.', 'Miso is made of soybeans.'), status='ok', ...)]
        >>> propositionizer.usage.requests
        1
    """

    questions: bool = Field(
        False, description="Whether the LLM also writes questions that a passage answers."
    )
    llm_factory: str = Field(
        "", description='The function that makes the LLM in other processes, as "module:name".'
    )
    max_concurrency: int | None = Field(
        None, ge=1, description="Requests in flight at the same time."
    )
    requests_per_minute: _Rate = None
    tokens_per_minute: _Rate = None
    workers: int = Field(1, ge=1, description="Processes that share the rates and the budget.")
    max_cost: FiniteFloat | None = Field(None, ge=0, description="US dollars to stop at.")
    max_tokens_total: int | None = Field(None, ge=0, description="Tokens to stop at.")
    prices: dict[str, Price] = Field(
        {}, description="Prices that add to the list prices or replace them."
    )
    max_attempts: int = Field(
        3, ge=1, description="Requests for the same text before sentences stand in."
    )
    max_retries: int = Field(6, ge=0, description="Retries after a time-out or a server's error.")
    retry_wait: FiniteFloat = Field(
        1.0, ge=0, description="Scale of the waits between retries, in seconds."
    )
    strictness: Literal["off", "flag", "repair"] = Field(
        "flag", description="What to do about findings of the checks."
    )
    record_to: str | None = Field(
        None, description="The JSONL file that propositions are appended to."
    )
    structured: Literal["auto", "off"] = Field(
        "auto", description="Whether replies that follow a JSON schema are requested."
    )
    _llm: LLM
    _form: dict[str, Any]
    _endpoint: Endpoint
    _settings: dict[str, Any]  # those that the LLM's output depends on
    _model: str
    _sender: Sender
    _paces: tuple[Any, ...] = ()
    _prompts: dict[str, BasePromptTemplate]

    def __init__(  # noqa: PLR0913 (public)
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
        _check_llm(llm, factory)
        settings["llm_factory"] = factory
        settings["record_to"] = record_to and str(record_to)
        settings["prices"] = read_prices(settings.get("prices"))
        super().__init__(**settings)
        self._llm = call_factory(factory) if llm is None else llm
        self._endpoint = Endpoint(without_retries(self._llm))
        self._settings = output_settings(self._llm)
        self._model = str(next(filter(None, map(self._settings.get, MODEL_FIELDS)), ""))
        self._form = response_format(self._llm, "propositions", *["questions"] * self.questions)
        self._sender = Sender.to(self._llm, Limits(self.concurrency), Meter(Budget(), None), cache)
        self._sender_now()  # raises at construction, not at first use, if a limit is invalid
        self._prompts = default_prompts(self.questions)
        prompts = {PROMPT_KEY: proposition_prompt, JAPANESE_PROMPT_KEY: japanese_proposition_prompt}
        self._update_prompts(
            {name: prompt for name, prompt in prompts.items() if prompt is not None}
        )

    @classmethod
    def class_name(cls) -> str:
        return "LLMPropositionizer"

    @property
    def llm(self) -> LLM:
        """The LLM that writes the propositions."""
        return self._llm

    @property
    def cache(self) -> ReplyCache | None:
        """The reply cache, if there is one."""
        return self._sender.cache

    @property
    def figures(self) -> RequestFigures:
        """The requests so far, their tokens as the provider counts them, and their cost."""
        return self._sender_now().meter.figures(self._model)

    def purge(self, texts: Iterable[str]) -> int:
        """Erase everything stored about these passages: cached replies, and lines of `record_to`.

        Raises:
            OSError: The cache or the recording cannot be written.
        """
        texts = set(texts)
        recorded = 0 if self.record_to is None else purge_recording(self.record_to, texts)
        return recorded + self.forget_replies(texts)

    def forget_replies(self, texts: Iterable[str]) -> int:
        return self.cache.purge(texts) if self.cache is not None else 0

    def keeping_replies(self, file: Path) -> LLMPropositionizer:
        """Return a copy that has a reply cache and shares limits and counters; itself if it has a cache."""
        if self.cache is not None:
            return self
        copy = self.__copy__()
        copy._sender = replace(self._sender, cache=ReplyCache(file))
        return copy

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Ask the LLM for the propositions of each passage.

        Args:
            passages: Any number of passages; identical ones share their requests.

        Returns:
            One set per passage, in the order of `passages`.

        Raises:
            PropositionizerError: The provider refuses the key or the settings, does not know the model, is
                down, or the quota is used up; or nearly every reply is unusable.
            BudgetExceededError: `max_cost` or `max_tokens_total` does not allow another request.
            OSError: `record_to` or the cache cannot be written.
        """
        run = self._new_run()
        pool = ThreadPoolExecutor(1)
        all_sets = partial(copy_context().run, list, run.stream(passages))
        try:
            return reported(await asyncio.get_running_loop().run_in_executor(pool, all_sets))
        finally:
            run.end("the end of the call")
            pool.shutdown(wait=False)

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Call `apropositionize` from synchronous code; works inside a running event loop too."""
        return reported(list(self.stream(passages)))

    def stream(self, passages: Iterable[Passage]) -> Iterator[PropositionSet]:
        """Ask for the propositions of a stream of passages, and yield them in its order.

        Several hundred passages are under way at a time; memory does not grow with their number. It works
        inside a running event loop too. When the iterator is closed or interrupted, it waits up to five
        seconds for requests that are under way, since their replies are paid for.

        Args:
            passages: Any iterable of passages. It is read in the thread that consumes the sets.

        Raises:
            PropositionizerError: As `apropositionize`. The sets of all earlier passages have been yielded,
                except fallbacks that may be due to the same error.
        """
        yield from self._new_run().stream(passages)

    def fingerprint_data(self) -> dict[str, Any]:
        prompts = {}
        for key, prompt in self._prompts.items():
            kwargs = {name: str(value) for name, value in prompt.kwargs.items()}
            prompts[key] = [prompt.get_template(llm=self._llm), kwargs]
        data: dict[str, Any] = {
            "llm": type(self._llm).__qualname__,
            "settings": self._settings,
            "prompts": prompts,
            "max_attempts": self.max_attempts,
        }
        # added only if they are not the defaults, so that node ids from before these options stay the same
        if self.questions:
            data["questions"] = True
        if self.strictness == "repair":
            data["strictness"] = self.strictness
        return data

    def question(self, passage: Passage, part: Passage | None = None, note: str = "") -> LLMRequest:
        """Return the request for the propositions of a passage.

        Args:
            passage: The passage.
            part: The part of it that the request is about; None means the whole.
            note: A further instruction for the model, such as why its last reply was unusable.
        """
        part = part or passage
        prompt = self._prompts[prompt_key(passage.language)]
        return LLMRequest(passage.text, part.text, format_request(prompt, self._llm, part, note))

    def key(self, question: LLMRequest) -> str:
        """Return the cache key of the reply to a request."""
        return self._sender.key(question)

    @property
    def form(self) -> dict[str, Any]:
        """The arguments of the LLM's `chat` that request a reply by a JSON schema; empty for none."""
        return self._form if self.structured == "auto" else {}

    @property
    def concurrency(self) -> int:
        """The limit of requests in flight: the chosen number, else what the rates allow if replies are slow.

        If a rate is given, that should be what limits a run; without one, the default is cautious.
        """
        if self.max_concurrency is not None:
            return self.max_concurrency
        by_tokens = self.tokens_per_minute and self.tokens_per_minute / _TOKENS_PER_REQUEST
        rate = min(filter(None, (self.requests_per_minute, by_tokens)), default=0.0)
        needed = math.ceil(rate / self.workers / 60 * _SLOW_REPLY)
        return min(max(needed, _DEFAULT_CONCURRENCY), _MOST_CONCURRENCY)

    def _new_run(self) -> Run:
        try:
            client = Client(self._endpoint, self.form)
        except Exception as error:  # LlamaIndex's OpenAI raises for a model that is not in its list
            message = classify(error, secrets_of(self._llm)).message
            raise PropositionizerError(f"the LLM's metadata cannot be read: {message}") from None
        if self.record_to is not None:
            open_recording(self.record_to)
        sender = self._sender_now()
        sender.start_run()
        return Run(self, sender, client)

    def _sender_now(self) -> Sender:
        """Return the sender that all calls share, updated to the present settings, which can be assigned."""
        limits = (self.requests_per_minute, self.tokens_per_minute, self.max_cost)
        *rates, max_cost = (limit and limit / self.workers for limit in limits)
        paces = (self.concurrency, *rates, os.getpid())
        if self._paces != paces:  # requests under way keep the limits that they were sent with
            self._sender = replace(self._sender, limits=Limits(self.concurrency, *rates))
            self._paces = paces
        sender = self._sender
        sender.max_retries = self.max_retries
        sender.retry_wait = self.retry_wait
        max_tokens = self.max_tokens_total and self.max_tokens_total // self.workers
        sender.meter.budget = Budget(max_cost, max_tokens)
        sender.meter.price = price_of(
            self._model, self.prices, self._llm, is_needed=max_cost is not None
        )
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
                raise TypeError(
                    f"{key} must be a prompt, PromptTemplate(...), not a {type(prompt).__name__}"
                )
            if not takes_variable(prompt, "content"):
                reason = "so that the LLM would never see the passage"
                raise ValueError(f"{key} has no variable {{content}}, {reason}")
        # a new dictionary, since copies of this object share the old one
        self._prompts = self._prompts | prompts_dict

    @model_serializer(mode="wrap")
    def custom_model_dump(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> _Dictionary:
        data: _Dictionary = handler(self)
        data["cache"] = None
        data["llm"] = describe_llm(self._llm, self.llm_factory).model_dump(mode="json")
        data["fingerprint"] = self.fingerprint
        data["class_name"] = self.class_name()
        name_place(self.record_to)
        if self.cache is not None:
            data["cache"] = str(self.cache.path)
            name_place(data["cache"])
            if self.cache.max_age is not None:
                data["cache_max_age"] = self.cache.max_age.total_seconds()
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> LLMPropositionizer:
        """Make a propositionizer, with its LLM, from what `to_dict` returned; `kwargs` override.

        Raises:
            ValueError: The LLM cannot be made again, or it or the prompts differ from the saved ones. Prompts
                are not in the dictionary: pass your own again.
        """
        return _made_again(cls, data, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # not LlamaIndex's own, which silently drops what cannot be pickled
        return partial(_made_again, is_pickled=True), (type(self), self.to_dict(), self._prompts)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> LLMPropositionizer:
        # shares the LLM and the sender, which hold locks; everything else is never changed in place
        return self.__copy__()


def _check_llm(llm: Any, factory: str) -> None:
    if llm is None and not factory:
        raise ValueError(
            "pass llm=..., a LlamaIndex LLM or its name, or llm_factory=..., a function that makes an LLM"
        )
    if llm is not None and not isinstance(llm, LLM):
        raise ValueError(f"llm must be a LlamaIndex LLM, not a {type(llm).__name__}")


def _made_again(
    kind: type[LLMPropositionizer],
    data: _Dictionary,
    changes: _Dictionary,
    *,
    is_pickled: bool = False,
) -> LLMPropositionizer:
    """Make a propositionizer from its dictionary; only a pickle's LLM class and factory are trusted."""
    settings = {**data, **changes}
    settings.pop("class_name", None)
    fingerprint = settings.pop("fingerprint", None)
    max_age = settings.pop("cache_max_age", None)
    if is_pickled:
        settings["llm"] = LLMReference(**data["llm"]).rebuild(trusted=True)
    else:
        settings |= _llm_of_dictionary(data, changes)
        for name in ("cache", "record_to"):
            refuse_field(data, changes, name, f"the file of {name}=")
    if max_age is not None and isinstance(settings.get("cache"), str):
        settings["cache"] = ReplyCache(settings["cache"], timedelta(seconds=max_age))
    propositionizer = kind(**settings)
    if fingerprint not in (None, propositionizer.fingerprint) and (is_pickled or not changes):
        raise ValueError(
            "The propositionizer made here is not the one that was saved: its LLM is "
            f"{propositionizer._settings} and was {data['llm']['settings']} (let llm_factory make the same "
            "one), or it had other prompts (pass them), or another version saved it."
        )
    return propositionizer


def _llm_of_dictionary(data: _Dictionary, changes: _Dictionary) -> _Dictionary:
    """Return the arguments `llm` and `llm_factory`: the user's, else those of the (untrusted) dictionary."""
    if "llm" in changes or "llm_factory" in changes:
        return {"llm": changes.get("llm"), "llm_factory": changes.get("llm_factory")}
    if data.get("llm_factory"):
        return {"llm": call_factory(data["llm_factory"], trusted=False)}
    if isinstance(data.get("llm"), dict):
        return {"llm": LLMReference(**data["llm"]).rebuild()}
    refuse_field(data, {}, "llm", "the LLM", unnamed_place)
    return {}
