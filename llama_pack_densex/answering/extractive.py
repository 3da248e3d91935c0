"""Answers without an LLM: the best propositions, word for word, each with its source."""

from __future__ import annotations

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import RESPONSE_TYPE, Response, StreamingResponse
from llama_index.core.callbacks import CallbackManager
from llama_index.core.callbacks.schema import CBEventType, EventPayload
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle

from llama_pack_densex.node_parsers.metadata import SECTION_KEY, TITLE_KEY
from llama_pack_densex.retrieval.context import best_facts

NOTHING_FOUND = "Empty Response"
"""What core's synthesizers answer where nothing was retrieved."""
ANSWER_WORDS = 100
"""Words of an answer; a Chinese, Japanese or Korean character counts as half a word."""


class ExtractiveQueryEngine(BaseQueryEngine):
    """Answers with what was found instead of with generated text; needs no LLM.

    Args:
        retriever: One of our retrievers.
        streaming: Whether answers come as a stream, line by line.
    """

    def __init__(
        self, retriever: BaseRetriever, streaming: bool = False, callback_manager: CallbackManager | None = None
    ) -> None:
        self._retriever, self._streaming = retriever, streaming
        super().__init__(callback_manager=callback_manager)

    @property
    def retriever(self) -> BaseRetriever:
        """The retriever."""
        return self._retriever

    def with_retriever(self, retriever: BaseRetriever) -> ExtractiveQueryEngine:
        """The same engine over another retriever."""
        return ExtractiveQueryEngine(retriever, self._streaming, self.callback_manager)

    def retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._retriever.retrieve(query_bundle)

    async def aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self._retriever.aretrieve(query_bundle)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        with self.callback_manager.event(
            CBEventType.QUERY, payload={EventPayload.QUERY_STR: query_bundle.query_str}
        ) as event:
            response = self._respond(self.retrieve(query_bundle))
            event.on_end(payload={EventPayload.RESPONSE: response})
        return response

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        with self.callback_manager.event(
            CBEventType.QUERY, payload={EventPayload.QUERY_STR: query_bundle.query_str}
        ) as event:
            response = self._respond(await self.aretrieve(query_bundle))
            event.on_end(payload={EventPayload.RESPONSE: response})
        return response

    def _respond(self, nodes: list[NodeWithScore]) -> RESPONSE_TYPE:
        lines = extract(nodes) or [NOTHING_FOUND]
        metadata = {node.node.node_id: node.node.metadata for node in nodes}
        if self._streaming:
            return StreamingResponse((line + "\n" for line in lines), source_nodes=nodes, metadata=metadata)
        return Response("\n".join(lines), source_nodes=nodes, metadata=metadata)


def extract(nodes: list[NodeWithScore]) -> list[str]:
    """The best propositions of retrieved nodes, word for word, a line each, with title and section in brackets.

    A proposition that no sentence of its passage says is marked as unverified. A node that no proposition found is
    quoted itself.
    """
    facts = best_facts(nodes, ANSWER_WORDS)
    if not facts:
        return [
            _quote(hit.node.get_content(), hit.node, str(hit.node.metadata.get(SECTION_KEY, ""))) for hit in nodes[:1]
        ]
    return [
        _quote(fact.unit.text, fact.source.node, fact.unit.section, "unverified" if fact.unit.unverified else "")
        for fact in facts
    ]


def within(section: str, title: str) -> str:
    """The headings above a place, without the one that is the document's title."""
    begins_with_it = title and f"{section}, ".startswith(f"{title}, ")
    return section.removeprefix(title).removeprefix(", ") if begins_with_it else section


def _quote(text: str, source: BaseNode, section: str, remark: str = "") -> str:
    title = str(source.metadata.get(TITLE_KEY, ""))
    name = " – ".join(part for part in (title, within(section, title)) if part)
    return f"- {text.strip()} [{', '.join(filter(None, (name or source.ref_doc_id or source.node_id, remark)))}]"
