"""What the LLM reads: the facts that were found, then the passages they came from."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal, get_args

from llama_index.core.bridge.pydantic import Field, field_validator
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from llama_pack_densex.node_parsers.metadata import BOOKKEEPING_KEYS, GRANULARITY_KEY, MATCHED_KEY, hide
from llama_pack_densex.retrieval.context_budget import Budget, BudgetUnit, count_words
from llama_pack_densex.retrieval.context_facts import (
    FACT_WORDS,
    Fact,
    best_facts,
    choose_facts,
    is_unit,
    rank_facts,
    render_facts,
)
from llama_pack_densex.retrieval.context_window import leading_sentences, windows
from llama_pack_densex.retrieval.hits import matched_units

__all__ = [
    "ContextMode",
    "PropositionContextPostprocessor",
    "assemble_context",
    "best_facts",
    "context_units",
    "count_words",
]

ContextMode = Literal["passages", "propositions", "propositions+passages", "window"]
DEFAULT_MODE: ContextMode = "propositions+passages"

_FACTS = "facts"
_NODE_SEPARATOR = "\n\n"  # what core's synthesizers put between nodes
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "llama-pack-densex/context")


class PropositionContextPostprocessor(BaseNodePostprocessor):
    """Turns retrieved nodes into what the LLM reads, within a budget.

    Modes:
        - "propositions+passages": one node with the best of the matched units, "- ..." each, under the titles of their
          documents and without near-duplicates; then the passages.
        - "propositions": that node alone, with as many of the units as the budget allows.
        - "window": of each passage the sentences around its matched units, in reading order, overlaps merged; around
          as many of the units as the budget allows.
        - "passages": the retrieved nodes as they are.

    Nothing is cut in two. A unit that does not fit into the budget is left out for shorter ones below it; a passage
    that does not fit is replaced by as many of its first sentences as do, and left out where not even one does.
    The budget counts the whole text for the LLM, with titles and the metadata that a node shows to it.

    It works on what any retriever returns. A proposition or sentence that was itself retrieved is a matched unit, of
    its passage where that was retrieved too; nodes that no unit found are passages, passed on in every mode.

    Args:
        mode: What is read; see above.
        budget: The most that may be read; None means no limit.
        unit: What the budget counts.
        fact_words: In mode "propositions+passages", how many words of units stand above the passages; in mode "window"
            without a budget, around how many words of units there are windows.
        window: In mode "window", sentences before and after each unit.
        tokenizer: For a budget in tokens; None means LlamaIndex's. Not serialised.

    Examples:
        ```python
        from llama_index.core.query_engine import RetrieverQueryEngine

        engine = RetrieverQueryEngine.from_args(
            retriever,  # your own, or `pack.retriever`
            node_postprocessors=[PropositionContextPostprocessor(mode="window", budget=500)],
        )
        ```
    """

    mode: ContextMode = Field(default=DEFAULT_MODE, description="What is read.")
    budget: int | None = Field(default=None, gt=0, description="The most that may be read; None means no limit.")
    unit: BudgetUnit = Field(default="words", description="What the budget counts.")
    fact_words: float = Field(default=FACT_WORDS, gt=0, description="Words of matched units to read.")
    window: int = Field(default=1, ge=0, description="Sentences before and after each matched unit.")
    tokenizer: Callable[[str], Sequence[Any]] | None = Field(
        default=None, exclude=True, description="Splits a text into tokens; None means LlamaIndex's tokenizer."
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _check_mode(cls, mode: object) -> object:
        return check_mode(mode)

    @classmethod
    def class_name(cls) -> str:
        return "PropositionContextPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        budget = Budget(self.budget, self.unit, self.tokenizer)
        return assemble_context(nodes, self.mode, budget, self.fact_words, self.window)


def assemble_context(
    nodes: Sequence[NodeWithScore],
    mode: ContextMode = DEFAULT_MODE,
    budget: Budget | None = None,
    fact_words: float = FACT_WORDS,
    window: int = 1,
) -> list[NodeWithScore]:
    """The nodes for the LLM to read; see `PropositionContextPostprocessor`.

    A retrieved unit that was not merged into a passage is among the facts and not repeated below them.

    Args:
        nodes: What was retrieved. An assembled context is not assembled again.
        mode: What is read.
        budget: How long it may be; None means as long as it gets.
        fact_words: How many words of units stand above the passages, or have windows where there is no budget.
        window: In mode "window", sentences before and after each unit.

    Raises:
        ValueError: There is no such mode.
    """
    check_mode(mode)
    context = _Context(budget or Budget())
    ranked = [] if mode == "passages" or _is_assembled(nodes) else rank_facts(nodes)
    without_units = [node for node in nodes if not _has_units(node)]
    if not ranked:
        context.add(nodes)
    elif mode == "window":
        if context.unlimited:  # windows around everything that was found are the passages again
            ranked = choose_facts(ranked, fact_words)
        context.nodes = windows(ranked, window, context.allows)
        context.add(without_units)
    elif mode == "propositions":
        context.add_facts(ranked, words=None)
        context.add(without_units)
    else:
        shown = context.add_facts(ranked, fact_words)
        left = {fact.unit.id for fact in ranked} - {fact.unit.id for fact in shown}
        context.add([node for node in nodes if not is_unit(node) or node.node.node_id in left])
    return context.nodes


def context_units(nodes: Sequence[NodeWithScore]) -> Iterator[str]:
    """The texts of the context in order: the facts, then passage by passage; for measuring what a reader gets."""
    for node in assemble_context(nodes):
        yield node.node.get_content()


def check_mode(mode: object) -> object:
    """Return a mode if it is one.

    Raises:
        ValueError: It is not; the message says what there is.
    """
    if mode not in get_args(ContextMode):
        choices = ", ".join(f'"{choice}"' for choice in get_args(ContextMode))
        raise ValueError(f"context must be one of {choices}, not {mode!r}")
    return mode


class _Context:
    """A context that grows within a budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.nodes: list[NodeWithScore] = []

    @property
    def unlimited(self) -> bool:
        return self._budget.limit is None

    def allows(self, nodes: Sequence[NodeWithScore]) -> bool:
        texts = (node.node.get_content(metadata_mode=MetadataMode.LLM) for node in nodes)
        return self.unlimited or self._budget.allows(_NODE_SEPARATOR.join(texts))

    def add(self, nodes: Sequence[NodeWithScore]) -> None:
        """Add nodes, whole or as many of their sentences as fit."""
        for node in nodes:
            fitting = node if self._fits(node) else leading_sentences(node, self._fits)
            if fitting is not None:
                self.nodes.append(fitting)

    def add_facts(self, ranked: Sequence[Fact], words: float | None) -> list[Fact]:
        """Add a node of facts, with titles where these leave room for a fact, and return the facts."""
        for titles in (True, False):

            def fits(facts: Sequence[Fact], titles: bool = titles) -> bool:
                return self.unlimited or self._fits(_facts_node(facts, titles))

            facts = choose_facts(ranked, words, fits)
            if facts:
                self.nodes.append(_facts_node(facts, titles))
                return facts
        return []

    def _fits(self, node: NodeWithScore) -> bool:
        return self.allows([*self.nodes, node])


def _facts_node(facts: Sequence[Fact], titles: bool) -> NodeWithScore:
    text = render_facts(facts, titles)
    matched = [asdict(fact.unit) for fact in facts]
    node = TextNode(
        id_=str(uuid.uuid5(_NAMESPACE, text)), text=text, metadata={GRANULARITY_KEY: _FACTS, MATCHED_KEY: matched}
    )
    hide(node, BOOKKEEPING_KEYS)
    return NodeWithScore(node=node, score=facts[0].source.score)


def _is_assembled(nodes: Sequence[NodeWithScore]) -> bool:
    return any(node.node.metadata.get(GRANULARITY_KEY) == _FACTS for node in nodes)


def _has_units(node: NodeWithScore) -> bool:
    return is_unit(node) or bool(matched_units(node.node))
