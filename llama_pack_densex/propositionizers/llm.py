"""Propositions by any LlamaIndex LLM."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llama_index.core.bridge.pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType, PromptMixin, PromptMixinType

from llama_pack_densex.llm_requests.clients import AsyncTransport, ThreadTransport, Transport
from llama_pack_densex.llm_requests.failures import PropositionizerError, classify
from llama_pack_densex.llm_requests.llm_reference import (
    LLMFactory,
    LLMReference,
    call_factory,
    describe_llm,
    factory_name,
    output_settings,
    secrets_of,
)
from llama_pack_densex.llm_requests.reply import NOTHING, RequestFigures
from llama_pack_densex.llm_requests.reply_cache import ReplyCache
from llama_pack_densex.llm_requests.sending import Stop
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet, report_fallbacks
from llama_pack_densex.propositionizers.prompts import (
    JAPANESE_PROMPT_KEY,
    PROMPT_KEY,
    default_prompts,
    takes_variable,
)
from llama_pack_densex.propositionizers.recordings import open_recording, purge_recording
from llama_pack_densex.propositionizers.requesting import PassageRequests
from llama_pack_densex.propositionizers.running import Run
from llama_pack_densex.propositionizers.session import CacheSpec, Limits, Session

_AHEAD, _LEAST_AHEAD = 16, 512  # requests that wait or are under way, for each that is in flight, and in all


class LLMPropositionizer(Propositionizer, PromptMixin):
    """Asks an LLM for the propositions of each passage, and sees to it that none are lost on the way.

    A reply that is cut off makes it split the passage at a sentence boundary and ask for both halves; one that is
    malformed is repaired; one that is empty, refused, unreadable or in the wrong language is asked for again, with
    the reason. Sentences stand in for what still cannot be had: status "fallback", with the reason, and a warning
    in the log.

    The LLM and its keys are never serialised. A pickled propositionizer makes its LLM again where it is unpickled, with
    the key from the environment or by `llm_factory`, and refuses to be unpickled where it cannot.

    Args:
        llm: Any LlamaIndex LLM; without it, `llm_factory` makes it.
        proposition_prompt: Replaces the prompt for every language but Japanese (see `prompts.default_prompts`).
        japanese_proposition_prompt: Replaces the prompt for Japanese passages.
        llm_factory: A function without arguments at the top level of a module, or its "module:name", that makes the
            LLM in other processes.
        cache: Where replies are kept as they arrive, so that no finished passage is asked for again: a SQLite file, a
            LlamaIndex KV store or the "module:name" of a function that makes one, or a `ReplyCache`.
        max_concurrency: Requests in flight at the same time. It is what a run begins with; a server that refuses some
            gets fewer. None means 8, or as many as the rates below take if a reply needs 8 seconds.
        requests_per_minute: What the provider allows; requests are spread evenly. None means no limit.
        tokens_per_minute: What the provider allows, tokens sent and received together. None means no limit.
        workers: Processes that share the rates and the budget; each of them keeps to its part.
        max_cost: US dollars that this object may use before it stops. None means no limit.
        max_tokens_total: Tokens, sent and received, that it may use before it stops. None means no limit.
        prices: Prices beside, or in place of, the package's own: a JSON file, or a mapping of model names to
            {"input": ..., "output": ...} in US dollars for a million tokens.
        passages_per_request: Passages that are asked for in one request, with numbered replies; one whose reply cannot
            be used is asked for by itself. More than 1 saves tokens of the instructions; what it does to the quality of
            the propositions was not measured.
        max_attempts: Requests for the same text, the first included, before sentences stand in.
        max_requests: Requests for one passage, together with all the parts that it is split into.
        max_retries: Further tries after a time-out, a lost connection or a server's error; ten refusals by a rate limit
            count as one. The provider's client does not try again by itself.
        retry_wait: Scale of the random, exponentially growing wait between those tries, in seconds.
        record_to: A JSONL file to append passages and propositions to as they arrive ("ok" and "repaired" ones), for
            `RecordedPropositionizer`.

    Raises:
        ValueError: Neither `llm` nor `llm_factory` is given, the factory cannot be imported by its name, a prompt does
            not take the passage, or there is a `max_cost` for a model whose price is not known.

    Examples:
        >>> from llama_index.llms.openai import OpenAI
        >>> propositionizer = LLMPropositionizer(OpenAI(model="gpt-4o-mini"), record_to="propositions.jsonl")
        >>> propositionizer.propositionize([Passage("Miso, a seasoning, is made of soybeans.", title="Miso")])
    """

    llm_factory: str = Field(default="", description='The function that makes the LLM elsewhere, as "module:name".')
    max_concurrency: int | None = Field(
        default=None, ge=1, exclude=True, description="Requests in flight at the same time."
    )
    requests_per_minute: float | None = Field(default=None, gt=0, exclude=True, description="What the provider allows.")
    tokens_per_minute: float | None = Field(default=None, gt=0, exclude=True, description="What the provider allows.")
    workers: int = Field(default=1, ge=1, exclude=True, description="Processes that share the rates and the budget.")
    max_cost: float | None = Field(default=None, ge=0, exclude=True, description="US dollars to stop at.")
    max_tokens_total: int | None = Field(default=None, ge=0, exclude=True, description="Tokens to stop at.")
    prices: str | Path | Mapping[str, Any] | None = Field(
        default=None, exclude=True, description="Prices beside the package's own."
    )
    max_attempts: int = Field(default=3, ge=1, description="Requests for the same text before sentences stand in.")
    max_requests: int = Field(default=256, ge=1, description="Requests for one passage and its parts together.")
    passages_per_request: int = Field(default=1, ge=1, le=100, description="Passages that are asked for together.")
    max_retries: int = Field(
        default=6, ge=0, exclude=True, description="Further tries after a time-out or a server's error."
    )
    retry_wait: float = Field(
        default=1.0, ge=0, exclude=True, description="Scale of the random wait between those tries, in seconds."
    )
    record_to: str | None = Field(
        default=None, exclude=True, description="The JSONL file that propositions are appended to as they arrive."
    )
    _llm: LLM = PrivateAttr()
    _cache: ReplyCache | None = PrivateAttr(default=None)
    _session: Session | None = PrivateAttr(default=None)
    _prompts: dict[str, BasePromptTemplate] = PrivateAttr()

    def __init__(
        self,
        llm: LLM | None = None,
        *,
        proposition_prompt: BasePromptTemplate | None = None,
        japanese_proposition_prompt: BasePromptTemplate | None = None,
        llm_factory: LLMFactory | str | None = None,
        record_to: str | Path | None = None,
        cache: CacheSpec | None = None,
        **settings: Any,
    ) -> None:
        if unknown := settings.keys() - type(self).model_fields.keys():
            raise TypeError(f"unknown arguments: {', '.join(sorted(unknown))}")
        factory = factory_name(llm_factory) if llm_factory else ""
        if llm is None and not factory:
            raise ValueError("pass llm=..., any LlamaIndex LLM, or llm_factory=..., a function that makes one")
        if llm is not None and not isinstance(llm, LLM):
            raise ValueError(f"llm must be a LlamaIndex LLM, not a {type(llm).__name__}")
        settings |= {"llm_factory": factory, "record_to": str(record_to) if record_to is not None else None}
        super().__init__(**settings)
        self._llm = call_factory(factory) if llm is None else llm
        self._cache = None if cache is None else ReplyCache.of(cache)
        self._session_now()  # says now what is wrong with the limits
        self._prompts = default_prompts()
        given = {PROMPT_KEY: proposition_prompt, JAPANESE_PROMPT_KEY: japanese_proposition_prompt}
        self._update_prompts({key: prompt for key, prompt in given.items() if prompt is not None})

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
        return self._cache

    @property
    def figures(self) -> RequestFigures:
        """What its requests came to so far, as the provider counts them, and what they cost."""
        session = self._session_now()
        return session.meter.figures(session.model)

    def purge(self, texts: Iterable[str]) -> int:
        """Forget all that is kept of passages: replies in the cache, lines in `record_to`.

        Raises:
            OSError: One of them cannot be written.
        """
        texts = set(texts)
        purged = self._cache.purge(texts) if self._cache is not None else 0
        return purged + (purge_recording(self.record_to, texts) if self.record_to is not None else 0)

    def keeping_replies(self, file: Path) -> LLMPropositionizer:
        """The same propositionizer with a cache, unless it has one; limits and counters are shared by both."""
        if self._cache is not None:
            return self
        copy = self.__copy__()
        copy._cache = ReplyCache(file)
        copy._session = self._session_now().with_cache(copy._cache)
        return copy

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Ask the LLM for the propositions of each passage.

        Args:
            passages: Any number of passages; one request for `passages_per_request` of them, unless a reply cannot be
                used. Identical ones are asked once.

        Returns:
            One set a passage, in the order of `passages`.

        Raises:
            PropositionizerError: The provider refuses the key, does not know the model, is down, or the quota is used
                up.
            BudgetExceededError: `max_cost` or `max_tokens_total` allows no other request.
            OSError: `record_to` or the cache cannot be written.
        """
        self._check_llm()
        async with self._session_now().llm_in_loop() as llm:
            sets = await self._run(AsyncTransport(llm)).all(passages)
        report_fallbacks(sets)
        return sets

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Do what `apropositionize` does, in threads; works inside a running event loop too."""
        sets = list(self.stream(passages))
        report_fallbacks(sets)
        return sets

    def stream(self, passages: Iterable[Passage]) -> Iterator[PropositionSet]:
        """Ask for the propositions of passages as they come, and return them in their order.

        It uses the LLM's synchronous client, in threads, and works inside a running event loop too. Some hundreds of
        passages are under way at a time; memory does not grow with their number.

        Args:
            passages: Any iterable of passages. It is read in the thread that reads the sets.

        Raises:
            PropositionizerError: As `apropositionize`; all sets before the first one that is missing were returned.
        """
        self._check_llm()
        transport = ThreadTransport(self._session_now().llm_in_threads(), self.concurrency)
        try:
            yield from self._run(transport).stream(passages)
        finally:
            transport.close()

    def fingerprint_data(self) -> dict[str, Any]:
        return {
            "llm": type(self._llm).__qualname__,
            "settings": output_settings(self._llm),
            "prompts": {
                key: [prompt.get_template(llm=self._llm), {name: str(value) for name, value in prompt.kwargs.items()}]
                for key, prompt in self._prompts.items()
            },
            "max_attempts": self.max_attempts,
            "max_requests": self.max_requests,
            **({"passages_per_request": self.passages_per_request} if self.passages_per_request > 1 else {}),
        }

    def requests(self) -> PassageRequests:
        """What asks for propositions, one request after another."""
        sender = self._session_now().sender
        asking = (self.max_attempts, self.max_requests, self.record_to, self.passages_per_request)
        return PassageRequests(self._llm, self._prompts, sender, *asking)

    def _run(self, transport: Transport) -> Run:
        if self.record_to is not None:
            open_recording(self.record_to)
        requests = self.requests()

        async def work(passages: Sequence[Passage], stop: Stop) -> list[PropositionSet]:
            return await requests.sets(passages, transport, stop)

        ahead = max(_LEAST_AHEAD, _AHEAD * self.concurrency)
        size = self.passages_per_request
        return Run(work, group_size=size, ahead=max(ahead // size, self.concurrency))

    @property
    def concurrency(self) -> int:
        """Requests in flight at the same time, at most."""
        return self._limits.concurrency

    @property
    def _limits(self) -> Limits:
        return Limits(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Limits)})

    def _session_now(self) -> Session:
        limits = self._limits
        session = self._session
        if session is None or session.made_of != (limits, self._cache):
            used = session.meter.usage if session is not None else NOTHING
            session = self._session = Session(self._llm, limits, self.prices, self._cache, used)
        return session

    def _check_llm(self) -> None:
        try:
            _ = self._llm.metadata.is_chat_model
            return
        except Exception as error:  # LlamaIndex's OpenAI looks the model up in a list of its own
            failure = classify(error, secrets_of(self._llm))
        raise PropositionizerError(failure.message or f"the LLM does not say what it is: {failure.summary}")

    def _get_prompts(self) -> PromptDictType:
        return dict(self._prompts)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        for key, prompt in prompts_dict.items():
            if key not in self._prompts:
                raise ValueError(f"there is no prompt {key!r}, only {PROMPT_KEY!r} and {JAPANESE_PROMPT_KEY!r}")
            if not takes_variable(prompt, "content"):
                raise ValueError(f"{key} has no variable {{content}}, so that the LLM would never see the passage")
        self._prompts = {**self._prompts, **prompts_dict}  # a copy: in-process copies of this object share the old one

    @model_serializer(mode="wrap")
    def custom_model_dump(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        reference = describe_llm(self._llm, self.llm_factory).as_dict()
        return {
            **handler(self),
            "llm": reference,
            "fingerprint": self.fingerprint,
            "class_name": self.class_name(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> LLMPropositionizer:
        """Make a propositionizer from what `to_dict` returned, its LLM as a pickled one's; `kwargs` override.

        Raises:
            ValueError: The LLM cannot be made again, or the prompts were others: they are not in the dictionary.
        """
        data = {**data, **kwargs}
        fingerprint = data.pop("fingerprint", None)
        data.pop("class_name", None)
        if isinstance(data.get("llm"), dict):
            data["llm"] = LLMReference.from_dict(data["llm"]).rebuild()
        made = cls(**data)
        if fingerprint not in (None, made.fingerprint) and not kwargs:
            raise ValueError(
                "this propositionizer was saved with other prompts or by another version: pass the prompts"
            )
        return made

    def __getstate__(self) -> dict[Any, Any]:
        # Not core's version, which drops what cannot be pickled and goes on.
        state = BaseModel.__getstate__(self)
        private = {**(state["__pydantic_private__"] or {})}
        private["_llm"] = describe_llm(private["_llm"], self.llm_factory)
        private["_session"] = None
        return {**state, "__pydantic_private__": private, "fingerprint": self.fingerprint}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        state = dict(state)
        fingerprint = state.pop("fingerprint")
        private = state["__pydantic_private__"]
        reference: LLMReference = private["_llm"]
        BaseModel.__setstate__(self, {**state, "__pydantic_private__": {**private, "_llm": reference.rebuild()}})
        if self.fingerprint != fingerprint:
            raise ValueError(
                "The LLM made here is not the one that was pickled: "
                f"{output_settings(self._llm)} instead of {reference.settings}. Let llm_factory make the same one."
            )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> LLMPropositionizer:
        return self.__copy__()  # shares the client, which holds locks; everything else is never changed in place
