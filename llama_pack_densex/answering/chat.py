"""Query and chat engines over an index; each chat message becomes a stand-alone query."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    StreamingResponse,
)
from llama_index.core.chat_engine.types import (
    AgentChatResponse,
    BaseChatEngine,
    StreamingAgentChatResponse,
)
from llama_index.core.llms import ChatMessage, ChatResponse, MessageRole
from llama_index.core.memory import BaseMemory, ChatMemoryBuffer
from llama_index.core.prompts.mixin import PromptDictType, PromptMixin, PromptMixinType
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.tools import ToolOutput

from llama_pack_densex.answering.citations import WithCitations
from llama_pack_densex.answering.conversation import ConversationQuery
from llama_pack_densex.answering.footnotes import plain_answer
from llama_pack_densex.answering.rules import Query, by_rules
from llama_pack_densex.answering.synthesizer import SourcedSynthesizer

_MEMORY_TOKENS = 3_000  # of the conversation, by default


class PropositionQueryEngine(RetrieverQueryEngine):
    """Answers a question from the propositions found for it and the passages they came from.

    Greetings, thanks and questions without content get a short fixed reply; nothing is retrieved.

    Args:
        retriever: One of our retrievers.
        response_synthesizer: `CitedSynthesizer` or `ExtractiveSynthesizer`.
    """

    def retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if by_rules(query_bundle.query_str).reply:
            return []
        return super().retrieve(query_bundle)

    async def aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if by_rules(query_bundle.query_str).reply:
            return []
        return await super().aretrieve(query_bundle)


class CitedChatResponse(WithCitations, AgentChatResponse):
    """An answer in a conversation, with its citations."""


@dataclass
class StreamingChatResponse(WithCitations, StreamingAgentChatResponse):
    """LlamaIndex's streaming response of a chat; once it has ended, its metadata has the citations.

    The answer is generated while `response_gen` (or `async_response_gen`) is iterated over, and is then added
    to the history; if the iteration is stopped, the part shown so far is.
    """

    metadata: dict[str, Any] = field(default_factory=dict)
    # core writes to memory from another thread: stopping the iteration would then not stop the LLM
    is_writing_to_memory: bool = False

    @property
    def response_gen(self) -> Generator[str, None, None]:
        try:
            yield from super().response_gen
        finally:  # core does not close the underlying stream
            if self.chat_stream:
                self.chat_stream.close()

    async def async_response_gen(self) -> AsyncGenerator[str, None]:
        try:
            async with aclosing(super().async_response_gen()) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            if self.achat_stream:
                await self.achat_stream.aclose()


@dataclass
class _Turn:
    """A message of the user, its query, and the nodes retrieved for it."""

    message: str
    query: Query
    nodes: list[NodeWithScore] = field(default_factory=list)
    conversation: str = ""

    @property
    def synthesis_arguments(self) -> dict[str, Any]:
        """What is answered from what, as arguments of `SourcedSynthesizer.synthesize`."""
        return {
            "query": self.query.sentence,
            "nodes": self.nodes,
            "conversation": self.conversation,
            "full_question": self.query.as_asked(self.message),
        }

    def response_fields(self, response: RESPONSE_TYPE) -> dict[str, Any]:
        """Return the retrieval as core's chat engines report it, and the metadata with the citations."""
        sources = []
        if self.query.kind == "question":
            question = {"message": self.query.sentence}
            output = ToolOutput(
                "retriever", str(self.nodes), raw_input=question, raw_output=self.nodes
            )
            sources.append(output)
        return {"sources": sources, "source_nodes": self.nodes, "metadata": response.metadata}


class PropositionChatEngine(BaseChatEngine, PromptMixin):
    """A conversation over an index.

    Each message becomes a stand-alone query. An LLM answers the message from the nodes that the query finds,
    with footnotes. Messages such as "summarise all that" are answered from the whole conversation and the
    sources of the last answer, without a search. Greetings, thanks and messages without content get a short
    fixed reply.

    Args:
        retriever: Any retriever.
        synthesizer: `CitedSynthesizer` or `ExtractiveSynthesizer`.
        queries: Turns messages into queries; None means by rules, without an LLM.
        memory: Where the history is kept; None means a buffer of its last 3,000 tokens.
        chat_history: Earlier messages of the conversation.

    Example:
        >>> from llama_index.core import Document
        >>> from llama_index.llms.openai import OpenAI
        >>> from llama_pack_densex import CitedSynthesizer, DenseXRetrievalPack, PropositionChatEngine
        >>> llm = OpenAI(model="gpt-4o-mini")
        >>> pack = DenseXRetrievalPack([Document(text="The Akashi Bridge opened in 1998.")], "none", llm)
        >>> chat = PropositionChatEngine(pack.retriever, CitedSynthesizer(llm))
        >>> print(chat.chat("When did the Akashi Bridge open?"))
        The Akashi Bridge opened in 1998.[^1]
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        synthesizer: SourcedSynthesizer,
        queries: ConversationQuery | None = None,
        memory: BaseMemory | None = None,
        chat_history: Sequence[ChatMessage] = (),
    ) -> None:
        self._retriever = retriever
        # copies, so that replacing prompts affects only this conversation
        self._queries = copy.copy(queries or ConversationQuery())
        self._synthesizer = copy.copy(synthesizer)
        if memory is None:
            memory = ChatMemoryBuffer.from_defaults(token_limit=_MEMORY_TOKENS)
        self._memory = memory
        if chat_history:
            self._memory.set([*chat_history])
        self._nodes: list[NodeWithScore] = []  # the sources of the last answer to a question

    def chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> CitedChatResponse:
        turn, response = self._begin(message, chat_history, False)
        self._memory.put_messages(self._messages(turn, response, str(response)))
        return CitedChatResponse(str(response), **turn.response_fields(response))

    async def achat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> CitedChatResponse:
        turn, response = await self._abegin(message, chat_history, False)
        await self._memory.aput_messages(self._messages(turn, response, str(response)))
        return CitedChatResponse(str(response), **turn.response_fields(response))

    def stream_chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> StreamingChatResponse:
        turn, response = self._begin(message, chat_history, True)
        assert isinstance(response, StreamingResponse)

        def stream() -> Generator[ChatResponse, None, None]:
            shown = ""
            try:
                for piece in response.response_gen:
                    shown += piece
                    yield _delta(shown, piece)
            finally:
                self._memory.put_messages(self._messages(turn, response, shown))

        return StreamingChatResponse(chat_stream=stream(), **turn.response_fields(response))

    async def astream_chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> StreamingChatResponse:
        turn, response = await self._abegin(message, chat_history, True)
        assert isinstance(response, AsyncStreamingResponse)

        async def stream() -> AsyncGenerator[ChatResponse, None]:
            shown = ""
            try:
                async with aclosing(response.response_gen) as pieces:
                    async for piece in pieces:
                        shown += piece
                        yield _delta(shown, piece)
            finally:
                await self._memory.aput_messages(self._messages(turn, response, shown))

        return StreamingChatResponse(achat_stream=stream(), **turn.response_fields(response))

    def reset(self) -> None:
        self._memory.reset()
        self._nodes = []

    @property
    def chat_history(self) -> list[ChatMessage]:
        """The messages so far."""
        return self._memory.get_all()

    def _begin(
        self, message: str, chat_history: list[ChatMessage] | None, streaming: bool
    ) -> tuple[_Turn, RESPONSE_TYPE]:
        if chat_history is not None:
            self._memory.set([*chat_history])
            self._nodes = []
        history = self._memory.get(input=_checked(message))
        turn = _Turn(message, self._queries.form(message, history))
        if turn.query.kind == "question":
            turn.nodes = self._retriever.retrieve(turn.query.as_bundle())
        elif turn.query.kind == "conversation":
            turn.nodes = self._nodes
            turn.conversation = _transcript(self._memory.get_all())
        response = self._answering(streaming).synthesize(**turn.synthesis_arguments)
        return turn, response

    async def _abegin(
        self, message: str, chat_history: list[ChatMessage] | None, streaming: bool
    ) -> tuple[_Turn, RESPONSE_TYPE]:
        if chat_history is not None:
            await self._memory.aset([*chat_history])
            self._nodes = []
        history = await self._memory.aget(input=_checked(message))
        turn = _Turn(message, await self._queries.aform(message, history))
        if turn.query.kind == "question":
            turn.nodes = await self._retriever.aretrieve(turn.query.as_bundle())
        elif turn.query.kind == "conversation":
            turn.nodes = self._nodes
            turn.conversation = _transcript(await self._memory.aget_all())
        response = await self._answering(streaming).asynthesize(**turn.synthesis_arguments)
        return turn, response

    def _answering(self, streaming: bool) -> SourcedSynthesizer:
        synthesizer = copy.copy(self._synthesizer)
        synthesizer._streaming = streaming
        return synthesizer

    def _messages(self, turn: _Turn, response: RESPONSE_TYPE, text: str) -> list[ChatMessage]:
        is_silence = (response.metadata or {}).get("outcome") == "no_answer"
        # nothing to remember: the LLM failed, or was stopped, before it said anything
        if is_silence or not text.strip():
            return []
        if turn.query.kind == "question":
            self._nodes = turn.nodes
        return [
            ChatMessage(content=turn.message, role=MessageRole.USER),
            ChatMessage(content=text.strip(), role=MessageRole.ASSISTANT),
        ]

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        pass

    def _get_prompt_modules(self) -> PromptMixinType:
        return {"query": self._queries, "response_synthesizer": self._synthesizer}


def _checked(message: object) -> str:
    if not isinstance(message, str):
        raise TypeError(f"pass the message as a string, and not a {type(message).__name__}")
    return message


def _transcript(messages: Sequence[ChatMessage]) -> str:
    """Return the messages as text, without footnotes: those of older answers no longer match the sources."""
    lines = [f"{turn.role.value}: {plain_answer(str(turn.content or ''))}" for turn in messages]
    return "\n".join(lines)


def _delta(shown: str, piece: str) -> ChatResponse:
    return ChatResponse(message=ChatMessage(content=shown, role=MessageRole.ASSISTANT), delta=piece)
