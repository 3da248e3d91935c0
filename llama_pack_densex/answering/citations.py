"""Footnotes: what an answer cites, checked as it streams, and what supports each of its sentences."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llama_index.core.base.response.schema import Response
from llama_index.core.schema import NodeWithScore

from llama_pack_densex.answering.claims import is_assent, says_what_is_missing
from llama_pack_densex.index.node_store import span_of
from llama_pack_densex.node_parsers.metadata import FOOTNOTE_KEY, MATCHED_KEY, SECTION_KEY, TITLE_KEY, context_of
from llama_pack_densex.retrieval.context import units_of
from llama_pack_densex.retrieval.hits import MatchedUnit, spans_within
from llama_pack_densex.text import markup
from llama_pack_densex.text.language import question_language
from llama_pack_densex.text.links import readable_text
from llama_pack_densex.text.plain import LIST_MARKER
from llama_pack_densex.text.segments import segment
from llama_pack_densex.text.tokens import content_words, strip_surrogates, tokenize

Outcome = Literal["answered", "closest", "not_found", "no_answer", "small_talk", "vague"]

NOT_FOUND = {"en": "The answer was not found in the documents.", "ja": "ドキュメントの中に答えは見つかりませんでした。"}
"""What is answered where the documents do not hold the answer, by language."""
CLOSEST = {"en": "Closest passages:\n\n", "ja": "近い箇所：\n\n"}
"""What stands above quotations of which it cannot be told whether they answer the question, by language."""
NO_ANSWER = {"en": "The model gave no answer.", "ja": "モデルから回答がありませんでした。"}
"""What is said where the LLM replied with nothing, by language."""
NO_SOURCE = {"en": " (no source)", "ja": "（出典なし）"}
"""What is written behind a sentence without a footnote, by language."""
CUT_OFF = {"en": " (the answer was cut off)", "ja": "（回答は途中で切れています）"}
"""What is written behind an answer that the LLM's limit of tokens cut off, by language."""
UNVERIFIED = {"en": " (unverified)", "ja": "（未確認）"}
"""What is written behind a quoted proposition that no sentence of its passage says, by language."""

SUPPORTED = 0.5
"""The share of a sentence's telling words that its sources have to hold."""
_ADDS = 0.25  # the share of them that a further proposition has to add

_NUMBERS = r"\\?[\[【［]\s*[\^＾][^\]】］\n]{0,40}[\]】］]"
_FOOTNOTE = re.compile(rf"(?<!\s)\s*({_NUMBERS}|\[\^\d*\Z)")  # not from within white space: there may be much
# What models write instead: a[1] at the end of a sentence, [1] or 【1†…】 in it
_LISTED = r"[\s\d,、，;]{1,40}(?:†[^\]】］\n]{0,40})?"
_OTHERS = (
    rf"(?<=[^\s`])[ \t]*[\[【［]{_LISTED}[\]】］](?=[ \t]*(?:[.。!?！？\n\[]|\Z))"
    rf"|(?:(?<=[^\s`])[ \t]+|(?<=[^\s`A-Za-z_]))[\[【［]{_LISTED}[\]】］](?![A-Za-z0-9_(`])"
)
_CITED = re.compile(f"{_FOOTNOTE.pattern}|{_OTHERS}")
_MARKS = map(re.escape, [mark for marks in (NO_SOURCE, CUT_OFF, UNVERIFIED) for mark in marks.values()])
_BEHIND = re.compile("|".join([_NUMBERS, *_MARKS]))  # what belongs to the sentence before
_DEFINED = r"\n[ \t]*(?:[-*+][ \t]+)?\[\^\d+\]:[^\n]*"
_DEFINITION = re.compile(_DEFINED)
# What may stand above a list of footnotes that is taken out; a last line that may become it waits for the next.
_LAST_LINE = re.compile(r"(?<!\s)\s*\n[^\n]{0,24}\Z")
_LIST_OF_SOURCES = re.compile(
    r"(?<!\s)\s*(?:\n|\A)[ \t]*[#*_ \t]*(?:(?:sources?|references?|footnotes?|citations?|notes?)(?:\ used)?"
    r"|(?:出典|参考|引用|脚注|情報)(?:文献|資料|情報|元|源|一覧)?)[*_ \t]*[:：]?[*_\s]*\Z",
    re.IGNORECASE,
)
_OWN = re.compile(r"\[\^([^\]\n]{0,40})\]")  # a footnote in a document; what takes its place is as long
_FENCE = re.compile(r"`{3,}|~{3,}")
_BLOCK_END = re.compile(r"(?:\n[ \t]*(?:`{3,}|~{3,})|(?P<row>\|))[ \t]*\Z")  # of code, of a table
_ENDS_CITED = re.compile(r"\[\^\d+\][^\w\[]*\Z")
_LEADS_ON = re.compile(r"\A\s*#|[:：][\s*_]*\Z")  # a heading, or "They are:", states nothing
_LEADS_IN = re.compile(r"[:：][\s*_]*\Z|以下|次の|下記|\b(?:as follows|below|following)\b", re.IGNORECASE)
_MARKER = re.compile(rf"\A(?:{LIST_MARKER.pattern})")
_STRUCTURED = re.compile(rf"\s*(?:{LIST_MARKER.pattern}|\||`{{3}}|~{{3}})")  # an item, a table, code
# What is shown once it has come: up to the last letter or digit that is not of a footnote. Behind it, a
# footnote may follow, a sentence end, or what begins the next sentence.
_PIECES = re.compile(
    rf"{_DEFINED}|[\[【［]\s*[\^＾][^\]】］\n]{{0,40}}(?:[\]】］]|\Z)"
    rf"|[\[【［]{_LISTED}(?:[\]】］]|\Z)|[^\W_]"
)
# A sentence is looked through again when it has grown by this part: a long table is not, for each word of it.
_LOOKED_THROUGH = 20


def in_language(phrases: dict[str, str], text: str, language: str = "") -> str:
    """The one of some phrases that is in a text's language; in English for all but Japanese.

    Args:
        phrases: A phrase by language.
        text: What was asked.
        language: Its language, where that was told from more than the text.
    """
    return phrases["ja" if (language or question_language(text)) == "ja" else "en"]


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
        """What a footnote leads to that stands for a retrieved node."""
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

    def citation(self, units: Sequence[MatchedUnit]) -> dict[str, Any]:
        """The source as JSON, with the propositions that support an answer; the first gives the section."""
        facts = [{"id": unit.id, "text": unit.text, **placed(unit.span)} for unit in units]
        section = next((unit.section for unit in units if unit.section), self.section)
        plain = {name: value for name, value in vars(self).items() if name not in ("span", "units")}
        return {**plain, "section": section, **placed(self.span), "propositions": facts}


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
    if title and f"{section}, ".startswith(f"{title}, "):  # the document's title is the heading above the others
        section = section.removeprefix(title).removeprefix(", ")
    name = " – ".join(filter(None, [title, section, page]))
    return " ".join((name or str(citation["document"])).split())


class CitedResponse(Response):
    """An answer with what it cites (see `CitedAnswer.metadata`); a notebook shows its footnotes as links."""

    def _repr_html_(self) -> str:
        metadata = self.metadata or {}
        sources = {citation["number"]: (name_of(citation), _shown(citation)) for citation in metadata["citations"]}
        return markup.block("", markup.answer(str(self), sources))


def _shown(citation: Mapping[str, Any]) -> str:
    """The text of a source as HTML, with what supports the answer marked in it."""
    facts = citation["propositions"]
    spans = [None if fact["start"] is None else (fact["start"], fact["end"]) for fact in facts]
    place = None if citation["start"] is None else (citation["start"], citation["end"])
    text = citation["text"]
    return markup.passage(text, spans_within(place, text, spans)) + markup.bullets(fact["text"] for fact in facts)


def numbered(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Copies of retrieved nodes that show the LLM their footnotes; a document's own ones look different."""
    copies = []
    for number, node in enumerate(nodes, start=1):
        copy = node.node.model_copy()
        footnote = {FOOTNOTE_KEY: f"[^{number}]"}
        copy.metadata = footnote | copy.metadata | footnote  # first, also in place of one of an earlier answer
        if units := copy.metadata.get(MATCHED_KEY):
            copy.metadata[MATCHED_KEY] = [{**unit, "text": _OWN.sub(r"(^\1)", unit["text"])} for unit in units]
        copy.set_content(_OWN.sub(r"(^\1)", readable_text(copy.get_content())))
        copy.excluded_llm_metadata_keys = [key for key in copy.excluded_llm_metadata_keys if key != FOOTNOTE_KEY]
        copies.append(NodeWithScore(node=copy, score=node.score))
    return copies


class CitedAnswer:
    """An answer as it comes: footnotes that lead nowhere are taken out, sentences without any are marked.

    An answer whose first sentence ends with a footnote that leads somewhere is shown from its second one on;
    any other once it has ended: it may be replaced by `NOT_FOUND` where the sources do not say it either, or
    turn out to have been a model's thoughts (`start_over`). What was shown is never taken back. Who sets
    `is_cut` before the end has it said behind the answer.

    Args:
        question: The question; its language is that of what is written here.
        sources: What can be cited.
        checked: Whether sentences without a footnote are marked, and answers without any replaced. False for
            an answer that nobody asked to cite, which is shown as it comes.
        held: Whether nothing is shown before the end.
        language: The language to answer in, where that was told from more than the question.
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
        self.is_written = False  # whether it is an LLM's
        self._question = question
        self._language = language
        self._checked = checked
        self._is_held = held
        self.start_over()

    def start_over(self) -> None:
        """Drop what is not shown yet: the answer begins with what comes next."""
        self._raw = "\n"  # what has come and may be half a footnote, from where a line may begin
        self._held = ""  # what is not shown yet
        self._begun = ""  # the last sentence, which may go on
        self._cites = not self._checked
        # whether the first sentence is cited, as the prompt asks for and thoughts are not; None: it is to come
        self._begins_cited = None if self._checked else not self._is_held
        self._is_proper = False  # whether a footnote came in the form that the prompt asks for
        self._lists_footnotes = False  # whether a list of them came, which is taken out
        self._footnotes = _Footnotes(self.sources)

    def add(self, delta: str) -> str:
        """Take in what came, and return what can be shown now."""
        self._raw += delta
        if len(self._raw) < len(self._begun) // _LOOKED_THROUGH:
            return ""
        ends = [piece.end() for piece in _PIECES.finditer(self._raw) if piece[0].isalnum()]
        ready = max((end for end in ends if end < len(self._raw)), default=0)  # a full stop may follow the last one
        shown = self._clean(self._raw[:ready])
        self._raw = self._raw[ready:]
        return self._show(self._mark(shown))

    def close(self) -> str:
        """Return what was left to show at the end."""
        cut = in_language(CUT_OFF, self._question, self._language) if self.is_cut else ""
        rest = self._mark(self._clean(self._raw).rstrip())
        heading = _LIST_OF_SOURCES.search(self._held + rest) if self._lists_footnotes else None
        if heading:
            rest = (self._held + rest)[: heading.start()]
            self._held = ""
            self._begun = ""
        rest += cut or self._mark_of(self._begun)
        self._begun = ""
        answer = plain_answer(self._held + rest.removesuffix(cut))
        if self.text or self._is_answer(answer):
            self._cites = True
            self._begins_cited = True
            self._held += rest
            return self._release(len(self._held))
        is_silence = self.is_written and not answer
        self.outcome = "no_answer" if is_silence else "not_found"
        self._held = ""
        phrases = NO_ANSWER if is_silence else NOT_FOUND
        self.text = in_language(phrases, self._question, self._language) + cut
        return self.text

    def metadata(self) -> dict[str, Any]:
        """The metadata of a response, as JSON: citations, sentences, Markdown, outcome, whether it was cut
        off."""
        sentences: list[dict[str, Any]] = []
        backing: dict[int, dict[str, MatchedUnit]] = {}
        footnotes = _Footnotes(self.sources)
        text = ""
        if self.outcome in ("answered", "closest"):
            text = self.text.removeprefix(in_language(CLOSEST, self._question, self._language))
        for start, end in _sentences(text, self._question):
            sentence = text[start:end].strip()
            words = content_words(tokenize(_BEHIND.sub("", sentence)))
            cited = footnotes.of(sentence)
            propositions: dict[str, MatchedUnit] = {}
            for source in cited:
                units = supporting(words, source.units)
                backing.setdefault(source.number, {}).update(units)
                propositions |= units
            cited_text = "\n".join(f"{source.title}\n{source.context}{source.text}" for source in cited)
            sentences.append(
                {
                    "text": sentence,
                    "footnotes": [source.number for source in cited],
                    "propositions": list(propositions),
                    "supported": bool(cited) and share_held(words, cited_text) >= SUPPORTED,
                }
            )
        citations = [self.sources[number].citation([*units.values()]) for number, units in sorted(backing.items())]
        notes = [f"[^{citation['number']}]: {name_of(citation)}" for citation in citations]
        return {
            "citations": citations,
            "sentences": sentences,
            "markdown": "\n".join([self.text, "", *notes]) if notes else self.text,
            "outcome": self.outcome,
            "cut_off": self.is_cut,
        }

    def _clean(self, text: str) -> str:
        last = self._begun[-1:]  # it tells whether white space stands before a footnote
        text, definitions = _DEFINITION.subn("", strip_surrogates(text))
        self._lists_footnotes = self._lists_footnotes or bool(definitions)
        return _CITED.sub(self._valid, last + text)[len(last) :]

    def _valid(self, match: re.Match[str]) -> str:
        """A footnote as it is shown: nothing, where it leads nowhere."""
        digits = re.findall(r"\b\d{1,9}\b", unicodedata.normalize("NFKC", match[0]).strip())
        numbers = dict.fromkeys(map(int, digits))
        if match[1]:
            self._is_proper = True
        elif not self._is_meant(match, numbers):
            return match[0]
        footnotes = "".join(f"[^{number}]" for number in numbers if number in self.sources)
        if not footnotes:
            return ""
        self._cites = True
        return parted(match.string[: match.start()], match[0]) + footnotes

    def _is_meant(self, match: re.Match[str], numbers: Collection[int]) -> bool:
        """Whether brackets that are not in the requested form are a footnote: not a source's own, nor
        code."""
        if not self._checked or self._is_proper or not numbers or not self.sources.keys() >= {*numbers}:
            return False
        in_code = (self.text + self._held + match.string[: match.start()]).count("`") % 2
        return not in_code and not any(match[0].strip() in source.text for source in self.sources.values())

    def _mark(self, text: str) -> str:
        """Mark the sentences that have come to their end."""
        if not self._checked or not text:
            return text
        shown = len(self._begun)
        self._begun += text
        ahead = "." if self._raw.startswith(".") else ""  # "z. B" would be the end of a sentence, "z. B." is none
        sentences = _sentences(self._begun + ahead, self._question) or [(0, 0)]
        unended = len(sentences) - 1
        for place, (start, end) in enumerate(sentences):
            if _FENCE.fullmatch(self._begun[start:end].strip()):  # code that has no end yet may go on
                unended = place
                break
        marked = ""
        for start, end in sentences[:unended]:
            place = max(start + len(self._begun[start:end].rstrip()), shown)
            sentence = self._begun[start:place]
            mark = self._mark_of(sentence)
            marked += self._begun[shown:place] + mark
            shown = place
            self._see_beginning(sentence, mark)
        marked += self._begun[shown:]
        self._begun = self._begun[sentences[unended][0] :]
        return marked

    def _see_beginning(self, sentence: str, mark: str) -> None:
        """See whether the first sentence that needs a footnote ends with it."""
        if self._begins_cited is None and (mark or _FOOTNOTE.search(sentence)):
            self._begins_cited = bool(_ENDS_CITED.search(sentence))

    def _mark_of(self, sentence: str) -> str:
        """What is written behind a sentence that has come to its end: nothing, where it needs no source."""
        if not self._checked or not any(map(str.isalnum, sentence)):
            return ""
        plain = plain_answer(sentence)
        if self._footnotes.of(sentence) or _LEADS_ON.search(sentence) or says_what_is_missing(plain, self._question):
            return ""
        return parted(sentence) + in_language(NO_SOURCE, self._question, self._language)

    def _show(self, text: str) -> str:
        self._held += text
        if not (self._cites and self._begins_cited):
            return ""
        if not self.text and plain_answer(self._held) in NOT_FOUND.values():
            return ""
        last_line = _LAST_LINE.search(self._held)
        return self._release(last_line.start() if last_line else len(self._held))

    def _release(self, length: int) -> str:
        """Show the beginning of what is held."""
        shown = self._held[:length]
        self._held = self._held[length:]
        if not self.text:
            shown = shown.lstrip()
        self.text += shown
        return shown

    def _is_answer(self, text: str) -> bool:
        """Whether to show a whole answer: it cites, or the best sources hold half of its sentences' words."""
        if text in ("", *NOT_FOUND.values()):
            return False
        if self._cites:
            return True
        sentences = [text[start:end] for start, end in _sentences(text, self._question)]
        if all(says_what_is_missing(sentence, self._question) for sentence in sentences):
            return False
        words = [content_words(tokenize(sentence)) for sentence in sentences]
        held = [set(tokenize(source.text)) for source in self.sources.values()]
        shared = sum(max((len(sentence & source) for source in held), default=0) for sentence in words)
        return shared > 0 and shared >= SUPPORTED * sum(map(len, words))


class _Footnotes:
    """The footnotes of an answer's sentences, which are asked for one after the other.

    Those of a line that leads a list, a table or code in are lent to what stands below it, where their
    sources hold half of its words, and all of its numbers.
    """

    def __init__(self, sources: Mapping[int, Source]) -> None:
        self._sources = sources
        self._lent: list[Source] = []

    def of(self, sentence: str) -> list[Source]:
        """The sources of the next sentence."""
        numbers = dict.fromkeys(map(int, re.findall(r"\[\^(\d{1,9})\]", sentence)))
        own = [self._sources[number] for number in numbers if number in self._sources]
        plain = plain_answer(sentence)
        if not _STRUCTURED.match(plain):
            self._lent = own if _LEADS_IN.search(plain) else []
            return own
        return own or (self._lent if _holds(self._lent, plain) else [])


def _holds(sources: Sequence[Source], text: str) -> bool:
    """Whether sources hold half of the telling words of a text, and all of its numbers."""
    words = content_words(tokenize(_MARKER.sub("", text)))
    held = {*tokenize("\n".join(f"{source.title}\n{source.context}{source.text}" for source in sources))}
    is_exact = all(word in held for word in words if any(map(str.isdecimal, word)))
    return is_exact and len(words & held) >= SUPPORTED * len(words)


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


def share_held(words: Collection[str], text: str, named: Collection[str] = ()) -> float:
    """The share of some words that a text holds; 0 where there are none. Those in `named` count twice."""
    counted = [*words, *(word for word in words if word in named)]
    tokens = set(tokenize(text))
    return sum(word in tokens for word in counted) / (len(counted) or 1)


def parted(text: str, note: str = "\n") -> str:
    """What separates a text from a footnote: Markdown drops one behind a table, and lets code go on.

    Args:
        text: The text.
        note: The footnote as it was written; on the line of a table's row it is a cell.
    """
    ends = _BLOCK_END.search(text)
    return "\n\n" if ends and (not ends["row"] or "\n" in note) else ""


def without_footnotes(text: str) -> str:
    """A text without footnotes, whatever they lead to."""
    return _FOOTNOTE.sub("", text)


def plain_answer(text: str) -> str:
    """An answer without its footnotes, and without what marks sentences that have none."""
    return _BEHIND.sub("", without_footnotes(text)).strip()


def _sentence_starts(text: str) -> list[int]:
    """Where the sentences of an answer begin; a table is one of them, whose footnotes stand below it."""
    starts: list[int] = []
    in_table = False
    for part in segment(text):
        is_row = part.kind in ("columns", "row") or (in_table and text[part.start] == "|")  # one that is still coming
        if not (is_row and in_table):
            starts.append(part.start)
        in_table = is_row
    return starts


def _sentences(text: str, question: str) -> list[tuple[int, int]]:
    """Where the sentences of an answer to a question are; footnotes belong to the sentence before them.

    A yes or no without a footnote belongs to the sentence behind it.
    """
    plain = ""
    places: list[int] = []  # where each character of the text without footnotes is in the text
    last = 0
    for start, end in [*(note.span() for note in _BEHIND.finditer(text)), (len(text), len(text))]:
        places += range(last, start)
        plain += text[last:start]
        last = end
    ends = [*(places[start] for start in _sentence_starts(plain)[1:]), len(text)]
    sentences: list[tuple[int, int]] = []
    for start, end in zip([0, *ends], ends, strict=False) if plain.strip() else ():
        begun = text[sentences[-1][0] : start] if sentences else ""
        is_code = _FENCE.match(text[start:end].strip())
        if is_assent(begun, question) and not is_code and not _BEHIND.search(begun):
            start = sentences.pop()[0]
        sentences.append((start, end))
    return sentences
