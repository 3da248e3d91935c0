"""Footnotes: what an answer cites, checked as it comes, and which propositions support each of its sentences."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llama_index.core.schema import NodeWithScore

from llama_pack_densex.node_parsers.metadata import FOOTNOTE_KEY, MATCHED_KEY, SECTION_KEY, TITLE_KEY, context_of
from llama_pack_densex.retrieval.context import units_of
from llama_pack_densex.retrieval.hits import MatchedUnit
from llama_pack_densex.stores.node_store import span_of
from llama_pack_densex.text.language import detect_language
from llama_pack_densex.text.links import readable_text
from llama_pack_densex.text.segments import segment
from llama_pack_densex.text.tokens import content_words, strip_surrogates, tokenize

Outcome = Literal["answered", "not_found", "small_talk", "vague"]

NOT_FOUND = {"en": "The answer was not found in the documents.", "ja": "ドキュメントの中に答えは見つかりませんでした。"}
"""What is answered where the documents do not hold the answer, by language."""
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
_DEFINITION = re.compile(r"\n[ \t]*\[\^\d+\]:[^\n]*")
_OWN = re.compile(r"\[\^([^\]\n]{0,40})\]")  # a footnote in a document; what takes its place is as long
_FENCE = re.compile(r"`{3,}|~{3,}")
_BLOCK_END = re.compile(r"(?:\n[ \t]*(?:`{3,}|~{3,})|(?P<row>\|))[ \t]*\Z")  # of code, of a table
_LEADS_ON = re.compile(r"\A\s*#|[:：][\s*_]*\Z")  # a heading, or "They are:", states nothing
# What is shown once it has come: up to the last letter or digit that is not of a footnote. Behind it, a footnote may
# follow, a sentence end, or what begins the next sentence.
_PIECES = re.compile(
    r"\n[ \t]*\[\^\d+\]:[^\n]*|[\[【［]\s*[\^＾][^\]】］\n]{0,40}(?:[\]】］]|\Z)"
    rf"|[\[【［]{_LISTED}(?:[\]】］]|\Z)|[^\W_]"
)


_THINK = "<think>"  # before an answer of models whose server does not part their thoughts from it
# The part of a sentence that has to come before it is looked through again: a long table is not, for each of its words.
_LOOKED_THROUGH = 20


def in_language(phrases: dict[str, str], text: str) -> str:
    """The one of some phrases that is in a text's language; in English for all but Japanese."""
    return phrases["ja" if detect_language(text) == "ja" else "en"]


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
        span: The (start, end) of the node in its document's text, in characters; None where that is not known.
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
    def of(cls, number: int, found: NodeWithScore) -> Source:
        """What a footnote leads to that stands for a retrieved node."""
        node = found.node
        known = {key: str(node.metadata.get(key) or "") for key in (TITLE_KEY, SECTION_KEY, "title", "page_label")}
        return cls(
            number,
            node.node_id,
            node.ref_doc_id or node.node_id,
            known[TITLE_KEY] or known["title"],
            known[SECTION_KEY],
            known["page_label"],
            span_of(node),
            readable_text(node.get_content()),
            tuple(units_of(found)),
            readable_text(context_of(node)),
        )

    def citation(self, units: Sequence[MatchedUnit]) -> dict[str, Any]:
        """The source as JSON, with the propositions of it that support an answer; its section is that of the first."""
        facts = [{"id": unit.id, "text": unit.text, **placed(unit.span)} for unit in units]
        section = next((unit.section for unit in units if unit.section), self.section)
        about = {name: value for name, value in vars(self).items() if name not in ("span", "units")}
        return {**about, "section": section, **placed(self.span), "propositions": facts}


def placed(span: tuple[int, int] | None) -> dict[str, int | None]:
    """The two ends of a span, as JSON."""
    start, end = span or (None, None)
    return {"start": start, "end": end}


def name_of(citation: Mapping[str, Any]) -> str:
    """Where a cited source is, to be read: title, section and page, or the document's id."""
    title, section, page = (str(citation[key]) for key in ("title", "section", "page"))
    at = f"p. {page}" if page not in ("", section) else ""  # both are a sheet's name
    if title and f"{section}, ".startswith(f"{title}, "):  # the document's title is the heading above the others
        section = section.removeprefix(title).removeprefix(", ")
    return " ".join((" – ".join(filter(None, [title, section, at])) or str(citation["document"])).split())


def numbered(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Copies of retrieved nodes that show the LLM the footnote of each; footnotes of their own look otherwise."""
    copies = []
    for number, found in enumerate(nodes, start=1):
        copy = found.node.model_copy()
        others = {key: value for key, value in found.node.metadata.items() if key != FOOTNOTE_KEY}
        copy.metadata = {FOOTNOTE_KEY: f"[^{number}]", **others}
        if units := others.get(MATCHED_KEY):
            copy.metadata[MATCHED_KEY] = [{**unit, "text": _OWN.sub(r"(^\1)", unit["text"])} for unit in units]
        copy.set_content(_OWN.sub(r"(^\1)", readable_text(copy.get_content())))
        copy.excluded_llm_metadata_keys = [key for key in copy.excluded_llm_metadata_keys if key != FOOTNOTE_KEY]
        copies.append(NodeWithScore(node=copy, score=found.score))
    return copies


class CitedAnswer:
    """An answer as it comes: footnotes that lead nowhere are taken out, sentences without any are marked.

    Nothing is shown before the first footnote that leads somewhere, so that an answer without any can be replaced by
    `NOT_FOUND` where the sources do not say it either. What was shown is never taken back. Who sets `is_cut` before the
    end has it said behind the answer.

    Args:
        question: The question; its language is that of what is written here.
        sources: What can be cited.
        checked: Whether sentences without a footnote are marked, and answers without any replaced. False for an answer
            that nobody asked to cite.
    """

    def __init__(self, question: str, sources: Sequence[Source], checked: bool = True) -> None:
        self.sources = {source.number: source for source in sources}
        self.outcome: Outcome = "answered"
        self.text, self.is_cut = "", False
        self._question, self._checked = question, checked
        self._raw = "\n"  # what has come and may be half a footnote, from where a line may begin
        self._held = ""  # what is not shown yet
        self._begun = ""  # the last sentence, which may go on
        self._cites = not checked
        self._as_asked = False  # whether a footnote came in the form that the prompt asks for

    def add(self, delta: str) -> str:
        """Take in what came, and return what can be shown now."""
        self._raw += delta
        if not self.text and (not self._held or ">" in self._raw):
            before, closing, answer = (self._held + self._raw).partition("</think>")
            begins_so = _THINK.startswith(before.lstrip()[: len(_THINK)])
            if begins_so and not closing:
                return ""
            if closing and (begins_so or _THINK not in before):  # a server's template may begin it
                self._raw, self._held, self._begun = f"\n{answer}", "", ""
        if len(self._raw) < len(self._begun) // _LOOKED_THROUGH:
            return ""
        ends = [piece.end() for piece in _PIECES.finditer(self._raw) if piece[0].isalnum()]
        ready = max((end for end in ends if end < len(self._raw)), default=0)  # a full stop may follow the last one
        shown, self._raw = self._clean(self._raw[:ready]), self._raw[ready:]
        return self._show(self._mark(shown))

    def close(self) -> str:
        """Return what was left to show at the end."""
        if not (self.text or self._held) and self._raw.lstrip().startswith(_THINK):  # it was cut off
            self._raw = ""
        cut = in_language(CUT_OFF, self._question) if self.is_cut else ""
        rest = self._mark(self._clean(self._raw).rstrip()) + (cut or self._mark_of(self._begun))
        self._begun = ""
        whole = plain_answer(self._held + rest)
        if self.text or (whole not in ("", *NOT_FOUND.values()) and (self._cites or self._is_said(whole))):
            self._cites = True
            return self._show(rest)
        self.outcome, self._held = "not_found", ""
        self.text = in_language(NOT_FOUND, self._question) + cut
        return self.text

    def metadata(self) -> dict[str, Any]:
        """What a response says about itself: `citations`, `sentences`, `markdown`, `outcome`, `cut_off`, as JSON."""
        sentences: list[dict[str, Any]] = []
        backing: dict[int, dict[str, MatchedUnit]] = {}
        for start, end in _sentences(self.text) if self.outcome == "answered" else ():
            sentence = self.text[start:end].strip()
            words = content_words(tokenize(_BEHIND.sub("", sentence)))
            numbers = dict.fromkeys(int(number) for number in re.findall(r"\[\^(\d+)\]", sentence))
            cited = [self.sources[number] for number in numbers if number in self.sources]
            used: dict[str, MatchedUnit] = {}
            for source in cited:
                found = supporting(words, source.units)
                backing.setdefault(source.number, {}).update(found)
                used |= found
            said = share_held(words, "\n".join(f"{source.title}\n{source.context}{source.text}" for source in cited))
            sentences.append(
                {
                    "text": sentence,
                    "footnotes": [source.number for source in cited],
                    "propositions": list(used),
                    "supported": bool(cited) and said >= SUPPORTED,
                }
            )
        citations = [self.sources[number].citation([*backing[number].values()]) for number in sorted(backing)]
        notes = [f"[^{citation['number']}]: {name_of(citation)}" for citation in citations]
        return {
            "citations": citations,
            "sentences": sentences,
            "markdown": "\n".join([self.text, "", *notes]) if notes else self.text,
            "outcome": self.outcome,
            "cut_off": self.is_cut,
        }

    def _clean(self, text: str) -> str:
        def valid(found: re.Match[str]) -> str:
            told = unicodedata.normalize("NFKC", found[0]).strip()
            numbers = dict.fromkeys(int(number) for number in re.findall(r"\b\d{1,9}\b", told))
            self._as_asked = self._as_asked or bool(found[1])
            if not found[1] and not self._is_meant(found, numbers):
                return found[0]
            kept = "".join(f"[^{number}]" for number in numbers if number in self.sources)
            self._cites = self._cites or bool(kept)
            return kept and parted(found.string[: found.start()], found[0]) + kept

        before = self._begun[-1:]
        return _CITED.sub(valid, before + _DEFINITION.sub("", strip_surrogates(text)))[len(before) :]

    def _is_meant(self, found: re.Match[str], numbers: Collection[int]) -> bool:
        """Whether something in another form than was asked for is a footnote, and not the sources' own or code."""
        in_code = (self.text + self._held + found.string[: found.start()]).count("`") % 2
        texts = [source.text for source in self.sources.values()]
        is_theirs = in_code or any(found[0].strip() in text for text in texts)
        is_known = bool(numbers) and {*numbers} <= self.sources.keys()
        return self._checked and is_known and not (self._as_asked or is_theirs)

    def _mark(self, text: str) -> str:
        """Mark the sentences that have come to their end."""
        if not self._checked or not text:
            return text
        shown = len(self._begun)
        self._begun += text
        ahead = "." if self._raw.startswith(".") else ""  # "z. B" would be the end of a sentence, "z. B." is none
        found = _sentences(self._begun + ahead) or [(0, 0)]
        opened = (place for place, (begin, end) in enumerate(found) if _FENCE.fullmatch(self._begun[begin:end].strip()))
        last_one = next(opened, len(found) - 1)  # code that has no end yet may go on
        ended, start = found[:last_one], found[last_one][0]
        marked, last = "", shown
        for begin, end in ended:
            place = max(begin + len(self._begun[begin:end].rstrip()), shown)
            marked += self._begun[last:place] + self._mark_of(self._begun[begin:place])
            last = place
        marked += self._begun[last:]
        self._begun = self._begun[start:]
        return marked

    def _mark_of(self, sentence: str) -> str:
        states = any(map(str.isalnum, sentence)) and not _LEADS_ON.search(sentence)
        needless = not self._checked or not states or _FOOTNOTE.search(sentence)
        return "" if needless else parted(sentence) + in_language(NO_SOURCE, self._question)

    def _show(self, text: str) -> str:
        self._held += text
        if not self._cites or (not self.text and plain_answer(self._held) in NOT_FOUND.values()):
            return ""
        shown, self._held = self._held if self.text else self._held.lstrip(), ""
        self.text += shown
        return shown

    def _is_said(self, text: str) -> bool:
        """Whether half of an answer's words are said, of each sentence by the source that says most of it."""
        words = [content_words(tokenize(text[start:end])) for start, end in _sentences(text)]
        there = [set(tokenize(source.text)) for source in self.sources.values()]
        said = sum(max((len(some & held) for held in there), default=0) for some in words)
        return said > 0 and said >= SUPPORTED * sum(map(len, words))


def supporting(words: Collection[str], units: Sequence[MatchedUnit]) -> dict[str, MatchedUnit]:
    """By id the propositions that say a sentence: the one with most of its words, then those that add a quarter."""
    left, least = set(words), max(_ADDS * len(words), 1)
    saying = [(unit, set(tokenize(unit.text))) for unit in units]
    found: dict[str, MatchedUnit] = {}
    while saying and left:
        unit, said = max(saying, key=lambda one: len(left & one[1]))
        if len(left & said) < least:
            break
        found[unit.id] = unit
        left -= said
    return found


def share_held(words: Collection[str], text: str, named: Collection[str] = ()) -> float:
    """The share of some words that a text holds; 0 where there are none. Those in `named` count twice."""
    counted = [*words, *(word for word in words if word in named)]
    there = set(tokenize(text))
    return sum(word in there for word in counted) / (len(counted) or 1)


def parted(text: str, note: str = "\n") -> str:
    """What has to stand between a text and a footnote: Markdown drops one behind a table, and lets code go on.

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


def _sentences(text: str) -> list[tuple[int, int]]:
    """Where the sentences of an answer are; footnotes belong to the sentence before them."""
    plain = ""
    places: list[int] = []  # where each character of the text without footnotes is in the text
    last = 0
    for note in [*_BEHIND.finditer(text), None]:
        end = note.start() if note else len(text)
        places += range(last, end)
        plain += text[last:end]
        last = note.end() if note else end
    ends = [*(places[start] for start in _sentence_starts(plain)[1:]), len(text)]
    return list(zip([0, *ends], ends, strict=False)) if plain.strip() else []
