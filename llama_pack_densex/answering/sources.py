"""What footnotes lead to: the retrieved nodes of an answer, and which of their propositions support it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.schema import NodeWithScore

from llama_pack_densex.index.node_store import span_of
from llama_pack_densex.node_parsers.metadata import (
    FOOTNOTE_KEY,
    MATCHED_KEY,
    SECTION_KEY,
    TITLE_KEY,
    context_of,
)
from llama_pack_densex.retrieval.context import units_of
from llama_pack_densex.retrieval.hits import MatchedUnit
from llama_pack_densex.text.links import readable_text
from llama_pack_densex.text.tokens import tokenize

_ADDS = 0.25  # the share of a sentence's content words that a further proposition has to add
_DOCUMENTS_FOOTNOTE = re.compile(r"\[\^([^\]\n]{0,40})\]")  # what takes its place is as long


@dataclass(frozen=True)
class Source:
    """What a footnote leads to: a retrieved node.

    Args:
        number: The footnote's number, from 1 on, in the order of retrieval.
        node_id: The node's id.
        document: Its document's id.
        title: Its document's title; empty where it has none.
        section: The headings above it, outermost first, joined by ", ".
        page: The page it is on; empty where that is not known.
        span: The (start, end) of the node in its document's text, in characters; None if unknown.
        text: The node's text.
        units: The propositions (or sentences) that found it, best first.
        context: What has to be read before it: the line that leads its list in, the header of its table.
    """

    number: int
    node_id: str
    document: str
    title: str
    section: str
    page: str
    span: tuple[int, int] | None
    text: str
    units: tuple[MatchedUnit, ...]
    context: str = ""

    @classmethod
    def of(cls, number: int, retrieved: NodeWithScore) -> Source:
        """The source that a footnote of a retrieved node leads to."""
        node = retrieved.node

        def text_at(key: str) -> str:
            return str(node.metadata.get(key) or "")

        return cls(
            number,
            node.node_id,
            node.ref_doc_id or node.node_id,
            text_at(TITLE_KEY) or text_at("title"),
            text_at(SECTION_KEY),
            text_at("page_label"),
            span_of(node),
            readable_text(node.get_content()),
            tuple(units_of(retrieved)),
            readable_text(context_of(node)),
        )

    @property
    def whole_text(self) -> str:
        """The text with the title and what has to be read before it."""
        return f"{self.title}\n{self.context}{self.text}"

    def citation(self, units: Sequence[MatchedUnit]) -> dict[str, Any]:
        """The source as JSON, with the propositions that support an answer; the first gives the section."""
        facts = [{"id": unit.id, "text": unit.text, **placed(unit.span)} for unit in units]
        section = next((unit.section for unit in units if unit.section), self.section)
        plain = {name: value for name, value in vars(self).items() if name not in ("span", "units")}
        led_by = next((unit.led_by for unit in self.units if unit.led_by), "")
        return {
            **plain,
            "section": section,
            **placed(self.span),
            "propositions": facts,
            "led_by": led_by,
        }


def sources_of(nodes: Sequence[NodeWithScore]) -> list[Source]:
    """The sources of an answer, numbered in the order of retrieval."""
    return [Source.of(number, node) for number, node in enumerate(nodes, start=1)]


def placed(span: tuple[int, int] | None) -> dict[str, int | None]:
    """The two ends of a span, as JSON."""
    start, end = span or (None, None)
    return {"start": start, "end": end}


def name_of(citation: Mapping[str, Any]) -> str:
    """Where a cited source is, to be read: title, section and page, or the document's id."""
    title = str(citation["title"])
    section = str(citation["section"])
    page = ""
    if citation["page"] not in ("", section):  # both are a sheet's name
        page = f"p. {citation['page']}"
    # the title is the heading above the others
    if title and f"{section}, ".startswith(f"{title}, "):
        section = section.removeprefix(title).removeprefix(", ")
    name = " – ".join(filter(None, [title, section, page]))
    return " ".join((name or str(citation["document"])).split())


def numbered(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Copies of retrieved nodes that show the LLM their footnotes; a document's own ones look different."""
    copies = []
    for number, node in enumerate(nodes, start=1):
        copy = node.node.model_copy()
        footnote = {FOOTNOTE_KEY: f"[^{number}]"}
        # first, also in place of an earlier answer's
        copy.metadata = footnote | copy.metadata | footnote
        if units := copy.metadata.get(MATCHED_KEY):
            texts = (_without_own_footnotes(unit["text"]) for unit in units)
            copy.metadata[MATCHED_KEY] = [
                {**unit, "text": text} for unit, text in zip(units, texts, strict=True)
            ]
        copy.set_content(_without_own_footnotes(readable_text(copy.get_content())))
        hidden = copy.excluded_llm_metadata_keys
        copy.excluded_llm_metadata_keys = [key for key in hidden if key != FOOTNOTE_KEY]
        copies.append(NodeWithScore(node=copy, score=node.score))
    return copies


def _without_own_footnotes(text: str) -> str:
    return _DOCUMENTS_FOOTNOTE.sub(r"(^\1)", text)


def supporting(words: Collection[str], units: Sequence[MatchedUnit]) -> dict[str, MatchedUnit]:
    """Propositions that say a sentence, by id: that with most of its words, then those that add a quarter."""
    left = set(words)
    least = max(_ADDS * len(words), 1)
    tokens = [set(tokenize(unit.text)) for unit in units]
    chosen: dict[str, MatchedUnit] = {}
    while tokens and left:
        best = max(range(len(units)), key=lambda place: len(left & tokens[place]))
        if len(left & tokens[best]) < least:
            break
        chosen[units[best].id] = units[best]
        left -= tokens[best]
    return chosen


def coverage_of(words: Collection[str], text: str, names: Collection[str] = ()) -> float:
    """The share of some words that a text holds; 0 where there are none. Those in `names` count twice."""
    counted = [*words, *(word for word in words if word in names)]
    tokens = set(tokenize(text))
    return sum(word in tokens for word in counted) / (len(counted) or 1)
