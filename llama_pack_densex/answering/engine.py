"""The query engine: retrieve, then answer with footnotes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import RESPONSE_TYPE, AsyncStreamingResponse, Response, StreamingResponse
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_pack_densex.answering.citations import described
from llama_pack_densex.answering.conversation import Query, by_rules
from llama_pack_densex.answering.synthesizer import SourcedSynthesizer
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor


class _ContextSynthesizer(BaseSynthesizer):
    """Gives another synthesizer the assembled context to read, and the response the retrieved nodes as sources."""

    def __init__(self, inner: BaseSynthesizer, context: PropositionContextPostprocessor) -> None:
        self._inner, self._context = inner, context
        super().__init__(llm=inner._llm, callback_manager=inner.callback_manager, streaming=inner._streaming)

    def _get_prompts(self) -> Any:
        return self._inner._get_prompts()

    def _update_prompts(self, prompts: Any) -> None:
        self._inner._update_prompts(prompts)

    def synthesize(
        self,
        query: Any,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        response = self._inner.synthesize(query, self._context.postprocess_nodes(nodes), **response_kwargs)
        return _with_sources(response, nodes, additional_source_nodes)

    async def asynthesize(
        self,
        query: Any,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        response = await self._inner.asynthesize(query, self._context.postprocess_nodes(nodes), **response_kwargs)
        return _with_sources(response, nodes, additional_source_nodes)

    def get_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> Any:
        return self._inner.get_response(query_str, text_chunks, **response_kwargs)

    async def aget_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> Any:
        return await self._inner.aget_response(query_str, text_chunks, **response_kwargs)


class PropositionQueryEngine(RetrieverQueryEngine):
    """Answers from the found propositions and the passages they came from.

    A greeting, thanks and a question without any content get a short fixed reply: nothing is retrieved for them.

    Args:
        retriever: One of our retrievers.
        response_synthesizer: `CitedSynthesizer`, `ExtractiveSynthesizer`, or any other.
        context: Makes of the retrieved nodes what another synthesizer than these reads; None means the best
            propositions, then the passages. The response's `source_nodes` are what was retrieved.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        response_synthesizer: BaseSynthesizer,
        context: PropositionContextPostprocessor | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(response_synthesizer, _ContextSynthesizer) and context is not None:
            response_synthesizer = response_synthesizer._inner
        if not isinstance(response_synthesizer, (SourcedSynthesizer, _ContextSynthesizer)):
            response_synthesizer = _ContextSynthesizer(
                response_synthesizer, context if context is not None else PropositionContextPostprocessor()
            )
        super().__init__(retriever, response_synthesizer=response_synthesizer, **kwargs)

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        query = by_rules(query_bundle.query_str)
        if not query.reply:
            return super()._query(query_bundle)
        metadata = fixed(query)
        if self._response_synthesizer._streaming:
            return StreamingResponse(iter([query.reply]), metadata=metadata)  # type: ignore[arg-type]
        return Response(query.reply, metadata=metadata)

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        query = by_rules(query_bundle.query_str)
        if not query.reply:
            return await super()._aquery(query_bundle)
        metadata = fixed(query)
        if self._response_synthesizer._streaming:
            return AsyncStreamingResponse(_as_stream(query.reply), metadata=metadata)
        return Response(query.reply, metadata=metadata)


def fixed(query: Query) -> dict[str, Any]:
    """What a response's metadata says about a fixed reply."""
    return described(query.reply, (), "small_talk" if query.kind == "small_talk" else "vague")


async def _as_stream(text: str) -> Any:
    yield text


def _with_sources(
    response: RESPONSE_TYPE, nodes: list[NodeWithScore], additional: Sequence[NodeWithScore] | None
) -> RESPONSE_TYPE:
    response.source_nodes = [*nodes, *(additional or [])]
    response.metadata = {node.node.node_id: node.node.metadata for node in nodes}
    return response
