"""Propositions by any LlamaIndex LLM."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
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
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from llama_pack_densex._sync import run_sync
from llama_pack_densex.llm_requests.failures import Failure, PropositionizerError, classify
from llama_pack_densex.llm_requests.finish_reasons import finish_reason
from llama_pack_densex.llm_requests.llm_reference import (
    LLMFactory,
    LLMReference,
    call_factory,
    describe_llm,
    factory_name,
    output_settings,
    secrets_of,
)
from llama_pack_densex.llm_requests.reply import Reply
from llama_pack_densex.propositionizers.asking import PassageRun, Request, gather_or_cancel
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.prompts import (
    JAPANESE_PROMPT_KEY,
    PROMPT_KEY,
    default_prompts,
    format_request,
    prompt_key,
    takes_variable,
)
from llama_pack_densex.propositionizers.recordings import append_recording, open_recording

logger = logging.getLogger(__name__)

Response = ChatResponse | CompletionResponse
Messages = Sequence[ChatMessage]
Send = Callable[[Messages], Awaitable[Response]]


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
        max_concurrency: Requests in flight at the same time, in one call.
        max_attempts: Requests for the same text, the first included, before sentences stand in.
        max_requests: Requests for one passage, together with all the parts that it is split into.
        max_retries: Further tries after a time-out, a lost connection, a rate limit or a server's error, beside
            those that the provider's client makes.
        retry_wait: Scale of the random, exponentially growing wait between those tries, in seconds.
        record_to: A JSONL file to append passages and propositions to as they arrive ("ok" and "repaired" ones), for
            `RecordedPropositionizer`.

    Raises:
        ValueError: Neither `llm` nor `llm_factory` is given, the factory cannot be imported by its name, or a prompt
            does not take the passage.

    Examples:
        >>> from llama_index.llms.openai import OpenAI
        >>> propositionizer = LLMPropositionizer(OpenAI(model="gpt-4o-mini"), record_to="propositions.jsonl")
        >>> propositionizer.propositionize([Passage("Miso, a seasoning, is made of soybeans.", title="Miso")])
    """

    llm_factory: str = Field(default="", description='The function that makes the LLM elsewhere, as "module:name".')
    max_concurrency: int = Field(default=8, ge=1, exclude=True, description="Requests in flight at the same time.")
    max_attempts: int = Field(default=3, ge=1, description="Requests for the same text before sentences stand in.")
    max_requests: int = Field(default=256, ge=1, description="Requests for one passage and its parts together.")
    max_retries: int = Field(
        default=2, ge=0, exclude=True, description="Further tries after a time-out, a rate limit or a server's error."
    )
    retry_wait: float = Field(
        default=1.0, ge=0, exclude=True, description="Scale of the random wait between those tries, in seconds."
    )
    record_to: str | None = Field(
        default=None, exclude=True, description="The JSONL file that propositions are appended to as they arrive."
    )
    _llm: LLM = PrivateAttr()
    _prompts: dict[str, BasePromptTemplate] = PrivateAttr()

    def __init__(
        self,
        llm: LLM | None = None,
        *,
        proposition_prompt: BasePromptTemplate | None = None,
        japanese_proposition_prompt: BasePromptTemplate | None = None,
        llm_factory: LLMFactory | str | None = None,
        record_to: str | Path | None = None,
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

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Ask the LLM for the propositions of each passage.

        Args:
            passages: Any number of passages; one request each, unless a reply cannot be used.

        Returns:
            One set a passage, in the order of `passages`.

        Raises:
            PropositionizerError: The provider refuses the key, does not know the model, or the quota is used up.
            OSError: `record_to` cannot be written.
        """
        is_chat = self._is_chat_model()

        async def send(messages: Messages) -> Response:
            if is_chat:
                return await self._llm.achat(messages)
            return await self._llm.acomplete(_as_prompt(messages))

        return await self._run(passages, send)

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        """Do what `apropositionize` does, in threads; works inside a running event loop too.

        It uses the LLM's synchronous client: an asynchronous one belongs to the event loop that first used it.
        """
        is_chat = self._is_chat_model()
        threads = ThreadPoolExecutor(self.max_concurrency, thread_name_prefix="propositions")

        def send_now(messages: Messages) -> Response:
            return self._llm.chat(messages) if is_chat else self._llm.complete(_as_prompt(messages))

        async def send(messages: Messages) -> Response:
            task = partial(copy_context().run, send_now, messages)
            return await asyncio.get_running_loop().run_in_executor(threads, task)

        try:
            return run_sync(self._run(passages, send))
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

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
        }

    async def _run(self, passages: Sequence[Passage], send: Send) -> list[PropositionSet]:
        if self.record_to is not None:
            open_recording(self.record_to)
        # Passages are taken up in order, so that they are recorded early; the parts of one share the requests.
        passage_slots, request_slots = (asyncio.Semaphore(self.max_concurrency) for _ in range(2))

        async def ask(request: Request) -> Reply | Failure:
            async with request_slots:
                return await self._ask(request, send)

        async def work(passage: Passage) -> PropositionSet:
            async with passage_slots:
                run = PassageRun(passage, ask, max_attempts=self.max_attempts, max_requests=self.max_requests)
                made = await run.run()
            if self.record_to is not None and made.texts and made.status != "fallback":
                append_recording(self.record_to, passage, made)
            return made

        sets = await gather_or_cancel(work(passage) for passage in passages)
        _report(sets)
        return sets

    async def _ask(self, request: Request, send: Send) -> Reply | Failure:
        """Send one request, again after a passing error.

        Raises:
            PropositionizerError: The error would meet every other passage too.
        """
        prompt = self._prompts[prompt_key(request.language)]
        messages = format_request(prompt, self._llm, request.passage, request.note)
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.max_retries + 1),
            wait=wait_random_exponential(multiplier=self.retry_wait, max=60),
            retry=retry_if_exception(lambda error: isinstance(error, Exception) and _is_transient(error)),
            reraise=True,
        )
        try:
            response: Response = await retrying(send, messages)
        except Exception as error:
            failure = classify(error, secrets_of(self._llm))
        else:
            return Reply(_text_of(response, request.passage.text), finish_reason(response))
        # Raised outside of the handler: the original error may hold keys and the passage, and would come along.
        if failure.kind == "fatal":
            raise PropositionizerError(failure.message)
        return failure

    def _is_chat_model(self) -> bool:
        try:
            return self._llm.metadata.is_chat_model
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


def _as_prompt(messages: Messages) -> str:
    return "\n\n".join(message.content or "" for message in messages)


def _text_of(response: Response, passage: str) -> str:
    if isinstance(response, ChatResponse):
        return response.message.content or ""
    return response.text.rpartition(f"Content: {passage}")[2]  # some models send the prompt back before the answer


def _is_transient(error: Exception) -> bool:
    return classify(error).kind == "transient"


def _report(sets: Sequence[PropositionSet]) -> None:
    reasons = Counter(made.reason for made in sets if made.status == "fallback")
    if reasons:
        frequent = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(5))
        logger.warning(
            "Sentences stand in for propositions in %d of %d passages: %s", reasons.total(), len(sets), frequent
        )
