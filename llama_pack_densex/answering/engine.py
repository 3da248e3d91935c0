"""The query engine with an LLM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.schema import NodeWithScore

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

    Args:
        retriever: One of our retrievers.
        response_synthesizer: Any synthesizer.
        context: Makes of the retrieved nodes what the synthesizer reads; None means the best propositions, then the
            passages. The response's `source_nodes` are what was retrieved.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        response_synthesizer: BaseSynthesizer,
        context: PropositionContextPostprocessor | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(response_synthesizer, _ContextSynthesizer):
            response_synthesizer = _ContextSynthesizer(
                response_synthesizer, context if context is not None else PropositionContextPostprocessor()
            )
        elif context is not None:
            response_synthesizer = _ContextSynthesizer(response_synthesizer._inner, context)
        super().__init__(retriever, response_synthesizer=response_synthesizer, **kwargs)


def _with_sources(
    response: RESPONSE_TYPE, nodes: list[NodeWithScore], additional: Sequence[NodeWithScore] | None
) -> RESPONSE_TYPE:
    response.source_nodes = [*nodes, *(additional or [])]
    response.metadata = {node.node.node_id: node.node.metadata for node in nodes}
    return response
