"""An answer with footnotes: they are checked as it streams; its metadata says what supports each sentence."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from llama_index.core.base.response.schema import Response, StreamingResponse

from llama_pack_densex.answering.claims import claims_nothing, says_what_is_missing
from llama_pack_densex.answering.footnotes import (
    SUPPORTED,
    FootnoteFilter,
    SentenceFootnotes,
    SentenceMarker,
    plain_answer,
    sentences_of,
    without_marks,
)
from llama_pack_densex.answering.phrases import CLOSEST, CUT_OFF, NO_ANSWER, NOT_FOUND, in_language
from llama_pack_densex.answering.sources import Source, coverage_of, name_of, supporting
from llama_pack_densex.retrieval.hits import MatchedUnit, spans_within
from llama_pack_densex.text import markup
from llama_pack_densex.text.sentences import Span
from llama_pack_densex.text.tokens import content_words

Outcome = Literal["answered", "closest", "not_found", "no_answer", "small_talk", "vague"]

# A heading such as "Sources:" above a list of footnotes is removed together with the list. A short last line
# may become such a heading, so it is held back until the next one, as is a rule.
_RULE = r"(?:\s*\n[ \t]*[-*_]{3,}[ \t]*(?=\n|\Z))?"
_LAST_LINE = re.compile(rf"(?<!\s){_RULE}\s*\n[^\n]{{0,24}}\Z")
_LIST_OF_SOURCES = re.compile(
    rf"(?<!\s){_RULE}"
    r"(?:\s*(?:\n|\A)[ \t]*[#*_ \t]*(?:(?:sources?|references?|footnotes?|citations?|notes?)(?:\ used)?"
    r"|(?:出典|参考|引用|脚注|情報)(?:文献|資料|情報|元|源|一覧)?)[*_ \t]*[:：]?)?[*_\s]*\Z",
    re.IGNORECASE,
)


class WithCitations:
    """A response whose metadata has citations (`CitedAnswer.metadata`); notebooks show footnotes as links."""

    metadata: dict[str, Any] | None

    def _repr_html_(self) -> str | None:
        text = str(self)  # reads a stream to its end, when it gets its metadata
        citations = (self.metadata or {}).get("citations")
        if citations is None:
            return None
        sources = {cited["number"]: (name_of(cited), _shown(cited)) for cited in citations}
        return markup.block("", markup.answer(text, sources))


class CitedResponse(WithCitations, Response):
    """An answer with its citations."""


class CitedStream(WithCitations, StreamingResponse):
    """An answer that can be read while it is written; at its end it has its citations."""


def _shown(citation: Mapping[str, Any]) -> str:
    """Return the text of a source as HTML, with the parts that support the answer marked."""
    text = citation["text"]
    spans = map(_span_of, citation["propositions"])
    facts = markup.bullets(fact["text"] for fact in citation["propositions"])
    return markup.passage(text, spans_within(_span_of(citation), text, spans)) + facts


def _span_of(cited: Mapping[str, Any]) -> Span | None:
    if cited["start"] is None:
        return None
    return cited["start"], cited["end"]


class CitedAnswer:
    """An answer as it streams: invalid footnotes are removed, and sentences without a footnote are marked.

    If the first sentence ends with a valid footnote, the answer is shown from its second sentence on. Any
    other answer is held back until it has ended: it may be replaced by `NOT_FOUND` if the sources do not
    support it, or turn out to be the model's thoughts (`start_over`). Text that was shown is never taken
    back. If `is_cut` is set before the end, a remark after the answer says that it was cut off.

    Args:
        question: The question; marks and fixed answers are in its language.
        sources: The sources that can be cited.
        checked: Whether sentences without a footnote are marked, and unsupported answers without footnotes
            replaced. False if the LLM was not asked to cite; the answer is then shown as it arrives.
        held: Whether an unchecked answer is held back until its end, too.
        language: The language to answer in, if it was detected from more than the question.
    """

    def __init__(
        self,
        question: str,
        sources: Sequence[Source],
        checked: bool = True,
        held: bool = False,
        language: str = "",
    ) -> None:
        self.sources = {source.number: source for source in sources}
        self.outcome: Outcome = "answered"
        self.text = ""
        self.is_cut = False
        self.is_written = False  # by an LLM
        self._question = question
        self._language = language
        self._checked = checked
        self._is_held = held and not checked
        self.start_over()

    def start_over(self) -> None:
        """Drop what has not been shown yet: the answer begins with the next delta."""
        self._footnotes = FootnoteFilter(self.sources, other_forms=self._checked)
        self._marker = SentenceMarker(self.sources, self._question, self._language)
        self._held = ""  # text that has not been shown yet

    def add(self, delta: str) -> str:
        """Add the next delta, and return the text that can be shown now."""
        text = self._footnotes.add(delta)
        if self._checked:
            text = self._marker.add(text, ahead=self._footnotes.pending)
        self._held += text
        if not self._may_show():
            return ""
        last_line = _LAST_LINE.search(self._held)
        if last_line:
            return self._release(last_line.start())
        return self._release(len(self._held))

    def _may_show(self) -> bool:
        """Return whether the held text can be shown: thoughts do not begin with a cited sentence."""
        if self._is_held:
            return False
        if self._checked and not (self._footnotes.cites and self._marker.begins_cited):
            return False
        return bool(self.text) or plain_answer(self._held) not in NOT_FOUND.values()

    def close(self) -> str:
        """End the answer, and return the rest of the text to show."""
        mark = self._end_sentences()
        if self._footnotes.lists_footnotes:
            heading = _LIST_OF_SOURCES.search(self._held)
            if heading and heading[0]:
                self._held = self._held[: heading.start()]
                mark = ""
        if self.is_cut:
            mark = self._phrase(CUT_OFF)
        answer = plain_answer(self._held)
        if self.text or self._is_answer(answer):
            self._held += mark
            return self._release(len(self._held))
        self.outcome = "not_found"
        self.text = self._phrase(NOT_FOUND)
        if self.is_written and not answer:
            self.outcome = "no_answer"
            self.text = self._phrase(NO_ANSWER)
        if self.is_cut:
            self.text += mark
        return self.text

    def _end_sentences(self) -> str:
        """Hold the rest of the text, and return the mark of its last sentence."""
        pending = self._footnotes.pending
        rest = self._footnotes.close().rstrip()
        if not self._checked:
            self._held += rest
            return ""
        self._held += self._marker.add(rest, ahead=pending, is_last=True)
        return self._marker.last_mark()

    def _release(self, length: int) -> str:
        """Move the first `length` characters of the held text to the shown text, and return them."""
        shown = self._held[:length]
        self._held = self._held[length:]
        if not self.text:
            shown = shown.lstrip()
        self.text += shown
        return shown

    def _is_answer(self, text: str) -> bool:
        """Return whether to show an answer that has ended: it cites, or the sources support its sentences."""
        if text in ("", *NOT_FOUND.values()):
            return False
        if not self._checked:
            return True
        sentences = [text[start:end] for start, end in sentences_of(text, self._question)]
        claims = [sentence for sentence in sentences if not claims_nothing(sentence)]
        if claims and all(says_what_is_missing(claim, self._question) for claim in claims):
            return False
        return self._footnotes.cites or self._are_supported(sentences)

    def _are_supported(self, sentences: Sequence[str]) -> bool:
        """Return whether half of the content words are supported, each sentence's by its best source."""
        total = 0
        supported = 0.0
        for sentence in sentences:
            count = len(content_words(sentence))
            total += count
            shares = (coverage_of(sentence, source.text) for source in self.sources.values())
            supported += count * max(shares, default=0.0)
        return supported > 0 and supported >= SUPPORTED * total

    def metadata(self) -> dict[str, Any]:
        """Return the response's metadata as JSON: citations, sentences, Markdown, outcome, and whether the
        answer was cut off."""
        backing: defaultdict[int, dict[str, MatchedUnit]] = defaultdict(dict)
        sentences = list(self._sentences(backing))
        citations = [
            self.sources[number].citation([*units.values()])
            for number, units in sorted(backing.items())
        ]
        markdown = self.text
        if citations:
            notes = [f"[^{citation['number']}]: {name_of(citation)}" for citation in citations]
            markdown = "\n".join([self.text, "", *notes])
        return {
            "citations": citations,
            "sentences": sentences,
            "markdown": markdown,
            "outcome": self.outcome,
            "cut_off": self.is_cut,
        }

    def _sentences(
        self, backing: defaultdict[int, dict[str, MatchedUnit]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the sentences as JSON; add the units that support them to `backing`, by source."""
        if self.outcome not in ("answered", "closest"):
            return
        text = self.text.removeprefix(self._phrase(CLOSEST))
        footnotes = SentenceFootnotes(self.sources)
        for start, end in sentences_of(text, self._question):
            sentence = text[start:end].strip()
            plain_sentence = without_marks(sentence)
            words = content_words(plain_sentence)
            cited = footnotes.of(sentence, text[start + len(sentence) :])
            propositions: dict[str, MatchedUnit] = {}
            for source in cited:
                units = supporting(words, source.units)
                backing[source.number] |= units
                propositions |= units
            cited_text = "\n".join(source.whole_text for source in cited)
            yield {
                "text": sentence,
                "footnotes": [source.number for source in cited],
                "propositions": list(propositions),
                "supported": bool(cited) and coverage_of(plain_sentence, cited_text) >= SUPPORTED,
            }

    def _phrase(self, phrases: dict[str, str]) -> str:
        return in_language(phrases, self._question, self._language)
