"""What a strategy may build its index from."""

from __future__ import annotations

from dataclasses import dataclass

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.schema import Document

from llama_pack_densex.evaluation.chunk_propositions import ChunkPropositionizer
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer

NO_EMBED_MODEL = "it needs an embedding model, and this comparison has none (embed_model=, --embed-model)"


class StrategyUnavailable(Exception):  # not an error: the report lists it
    """A strategy needs something that this comparison does not have; the message says what."""


@dataclass(frozen=True)
class Models:
    """The models of a comparison, the same for all strategies.

    Args:
        embed_model: Keeps what it embeds; None to compare without an embedding model.
        propositionizer: Where propositions come from; None where there are none.
        llm: Writes contextual headers; None where there is none.
    """

    embed_model: BaseEmbedding | None = None
    propositionizer: Propositionizer | None = None
    llm: LLM | None = None


@dataclass(frozen=True)
class Corpus:
    """The documents of a comparison and the models that strategies share.

    Args:
        documents: Whole articles.
        passages: The passages that the dataset's authors cut, each a document of its own.
        language: "en", "ja", ...
        depth: How many distinct results the metrics of rankings look at.
        models: The models.
    """

    documents: list[Document]
    passages: list[Document]
    language: str
    depth: int
    models: Models

    @property
    def embed_model(self) -> BaseEmbedding:
        """The embedding model, which embeds each text once for all strategies.

        Raises:
            StrategyUnavailable: There is none.
        """
        if self.models.embed_model is None:
            raise StrategyUnavailable(NO_EMBED_MODEL)
        return self.models.embed_model

    @property
    def propositionizer(self) -> Propositionizer:
        """Makes the propositions of the dataset's passages.

        Raises:
            StrategyUnavailable: There is none.
        """
        if self.models.propositionizer is None:
            raise StrategyUnavailable(
                "it needs propositions: say where from, an LLM or a recording (propositionizer=, --propositionizer)"
            )
        return self.models.propositionizer

    @property
    def chunk_propositionizer(self) -> Propositionizer:
        """Makes the propositions of chunks that were cut otherwise than the dataset's passages.

        Recorded propositions are those of the dataset's passages: a chunk gets those of the passages that stand in it.

        Raises:
            StrategyUnavailable: There is no propositionizer.
        """
        inner = self.propositionizer
        if isinstance(inner, RecordedPropositionizer):
            return ChunkPropositionizer.over(inner, self.documents, self.passages)
        return inner

    @property
    def llm(self) -> LLM | None:
        """The LLM that writes contextual headers, where there is one."""
        return self.models.llm
