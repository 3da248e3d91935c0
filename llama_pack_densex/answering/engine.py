"""The query engine: retrieve, then answer with footnotes."""

from __future__ import annotations

from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import QueryBundle

from llama_pack_densex.answering.conversation import by_rules


class PropositionQueryEngine(RetrieverQueryEngine):
    """Answers from the found propositions and the passages they came from.

    A greeting, thanks and a question without any content get a short fixed reply: nothing is retrieved for them.

    Args:
        retriever: One of our retrievers.
        response_synthesizer: `CitedSynthesizer` or `ExtractiveSynthesizer`.
    """

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        query = by_rules(query_bundle.query_str)
        if not query.reply:
            return super()._query(query_bundle)
        return self._response_synthesizer.synthesize(query_bundle, [], fixed=query)

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        query = by_rules(query_bundle.query_str)
        if not query.reply:
            return await super()._aquery(query_bundle)
        return await self._response_synthesizer.asynthesize(query_bundle, [], fixed=query)
