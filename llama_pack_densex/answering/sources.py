"""The sources of an answer: the retrieved nodes that footnotes lead to, and their supporting units."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from llama_index.core.schema import NodeWithScore

from llama_pack_densex.index.node_store import Span, span_of
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
from llama_pack_densex.text.tokens import (
    FORM_SHARE,
    content_words,
    forms_among,
    is_foreign,
    tokenize,
)

_LEAST_ADDED = 0.25  # the share of a sentence's content words that a further proposition has to add
_DOCUMENTS_FOOTNOTE = re.compile(r"\[\^([^\]\n]{0,40})\]")  # its replacement has the same length


@dataclass(frozen=True)
class Source:
    """A retrieved node that a footnote leads to.

    Args:
        number: The footnote's number: 1, 2, ... in the order of retrieval.
        node_id: The node's id.
        document: Its document's id.
        title: Its document's title; empty if it has none.
        section: The headings above it, outermost first, joined by ", ".
        page: The page it is on; empty if unknown.
        span: The (start, end) of the node in its document's text, in characters; None if unknown.
        text: The node's text.
        units: The propositions (or sentences) that found it, best first.
        context: Text needed to understand it: the line that introduces its list, the header of its table.
    """

    number: int
    node_id: str
    document: str
    title: str
    section: str
    page: str
    span: Span | None
    text: str
    units: tuple[MatchedUnit, ...]
    context: str = ""

    @classmethod
    def of(cls, number: int, retrieved: NodeWithScore) -> Source:
        """Make the source for a retrieved node."""
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
        """The title, the context and the text."""
        return f"{self.title}\n{self.context}{self.text}"

    def is_named_by(self, text: str) -> bool:
        """Return whether a text is nothing but a name of the source: its title, section, document, page."""
        name = f"{self.title} {self.section} {self.page} {self.document}"
        return {*tokenize(text)} <= {*tokenize(name)}

    def citation(self, units: Sequence[MatchedUnit]) -> dict[str, Any]:
        """Return the source as JSON, with the propositions that support an answer.

        The section is that of the first of these propositions that has one.
        """
        fields = {**vars(self), **placed(self.span)}
        del fields["span"]
        del fields["units"]
        fields["section"] = next((unit.section for unit in units if unit.section), self.section)
        facts = [{"id": unit.id, "text": unit.text, **placed(unit.span)} for unit in units]
        led_by = next((unit.led_by for unit in self.units if unit.led_by), "")
        return {**fields, "propositions": facts, "led_by": led_by}


def sources_of(nodes: Sequence[NodeWithScore]) -> list[Source]:
    """Return the sources of an answer, numbered in the order of retrieval."""
    return [Source.of(number, node) for number, node in enumerate(nodes, 1)]


def placed(span: Span | None) -> dict[str, int | None]:
    """Return the start and end of a span, as JSON."""
    start, end = span or (None, None)
    return {"start": start, "end": end}


def name_of(citation: Mapping[str, Any]) -> str:
    """Return a readable name for a cited source: title, section and page, or else the document's id."""
    title = str(citation["title"])
    section = str(citation["section"])
    page = ""
    if citation["page"] not in ("", section):  # in a spreadsheet, both are the sheet's name
        page = f"p. {citation['page']}"
    # do not repeat a title that is also the outermost heading
    if title and f"{section}, ".startswith(f"{title}, "):
        section = section.removeprefix(title).removeprefix(", ")
    name = " – ".join(filter(None, [title, section, page]))
    return " ".join((name or str(citation["document"])).split())


def numbered(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Return copies of retrieved nodes that show the LLM their footnotes; documents' own are rewritten."""
    copies = []
    for number, node in enumerate(nodes, 1):
        copy = node.node.model_copy()
        footnote = {FOOTNOTE_KEY: f"[^{number}]"}
        # as the first key; the second one overwrites the footnote of an earlier answer
        copy.metadata = footnote | copy.metadata | footnote
        if MATCHED_KEY in copy.metadata:
            units = copy.metadata[MATCHED_KEY]
            copy.metadata[MATCHED_KEY] = [
                {**unit, "text": _without_own_footnotes(unit["text"])} for unit in units
            ]
        copy.set_content(_without_own_footnotes(readable_text(copy.get_content())))
        hidden = copy.excluded_llm_metadata_keys
        copy.excluded_llm_metadata_keys = [key for key in hidden if key != FOOTNOTE_KEY]
        copies.append(NodeWithScore(node=copy, score=node.score))
    return copies


def _without_own_footnotes(text: str) -> str:
    return _DOCUMENTS_FOOTNOTE.sub(r"(^\1)", text)


def supporting(words: Collection[str], units: Sequence[MatchedUnit]) -> dict[str, MatchedUnit]:
    """Return the units that support a sentence, by id.

    First the one with most of the sentence's words, then those that add at least a quarter of them.

    Args:
        words: The sentence's content words.
        units: The units to choose from.
    """
    chosen: dict[str, MatchedUnit] = {}
    if not units:
        return chosen
    least = max(_LEAST_ADDED * len(words), 1)
    left = set(words)
    tokens = {unit.id: {*tokenize(unit.text)} for unit in units}
    while True:
        best = max(units, key=lambda unit: len(left & tokens[unit.id]))
        if len(left & tokens[best.id]) < least:
            return chosen
        chosen[best.id] = best
        left -= tokens[best.id]


@lru_cache(maxsize=256)  # a question is compared with many texts
def _words_of(question: str) -> frozenset[str]:
    return frozenset(content_words(question))


def coverage_of(question: str, text: str, names: Collection[str] = ()) -> float:
    """Return the share of a question's content words that a text contains; those in `names` count twice.

    Without words it is 0. Of a question that is not in English, other forms of its words count too.
    """
    words = _words_of(question)
    tokens = set(tokenize(text))
    covered = 0.0
    for word in words:
        share = float(word in tokens)
        if not share and is_foreign(question) and forms_among(word, tokens):
            share = FORM_SHARE
        covered += share * (1 + (word in names))
    return covered / (len(words) + len(words & {*names}) or 1)
