"""Filters for a streamed answer: they clean its footnotes, and mark sentences that lack one.

An LLM's answer passes through `llm.thoughts.ThoughtFilter`, `FootnoteFilter` and `SentenceMarker`, in this
order, delta by delta.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from llama_pack_densex.answering.claims import claims_nothing, is_assent, says_what_is_missing
from llama_pack_densex.answering.phrases import CUT_OFF, NO_SOURCE, UNVERIFIED, in_language
from llama_pack_densex.answering.sources import Source, coverage_of
from llama_pack_densex.text.plain import LIST_MARKER
from llama_pack_densex.text.segments import segment
from llama_pack_densex.text.sentences import Span
from llama_pack_densex.text.tokens import content_words, has_words, strip_surrogates, tokenize

SUPPORTED = 0.5
"""The share of a sentence's content words that its sources must contain to support it."""

_NUMBERS = r"\\?[\[【［]\s*[\^＾][^\]】］\n]{0,40}[\]】］]"
# The lookbehind keeps matches from starting within white space, which would be slow if there is much of it.
_FOOTNOTE = re.compile(rf"(?<!\s)\s*(?P<asked>{_NUMBERS}|\[\^\d*\Z)")
# Forms that models write instead: a[1] at the end of a sentence, [1] or 【1†…】 within it
_LISTED = r"[\s\d,、，;]{1,40}(?:†[^\]】］\n]{0,40})?"
_OTHER_FORMS = (
    rf"(?<=[^\s`])[ \t]*[\[【［]{_LISTED}[\]】］](?=[ \t]*(?:[.。!?！？\n\[]|\Z))"
    rf"|(?:(?<=[^\s`])[ \t]+|(?<=[^\s`A-Za-z_]))[\[【［]{_LISTED}[\]】］](?![A-Za-z0-9_(`])"
)
# A line that begins with a footnote: a sentence, or an entry of a list of footnotes
_LINE_START = r"\n[ \t]*(?:(?:[-*+]|\d{1,2}[.)])[ \t]+)?"
_LED = (
    rf"(?P<before>(?<!\s)\s*{_LINE_START})"
    r"\[\^(?P<number>\d{1,9})\](?P<colon>:?)"
    r"(?P<rest>(?:[ \t]*\[\^\d+\])*[^\n\[]*[^\W_](?:[^\n]*\S)?)"
)
_CITED = re.compile(f"{_LED}|{_FOOTNOTE.pattern}|{_OTHER_FORMS}")
_MARKS = [*NO_SOURCE.values(), *CUT_OFF.values(), *UNVERIFIED.values()]
_NOTES = re.compile(_NUMBERS)
# belongs to the sentence before it
_AFTER_SENTENCE = re.compile("|".join([_NUMBERS, *map(re.escape, _MARKS)]))
# The pieces of a reply. Text is passed on up to the last letter or digit outside a footnote, once more text
# has arrived: what follows may be a footnote, the end of the sentence, or the beginning of the next one.
_PIECES = re.compile(
    rf"(?P<line>{_LINE_START}\[\^\d+\](?:[^\n]*\S)?)(?=[ \t]*\n)|{_LINE_START}\[\^\d+\][^\n]*"
    rf"|\n[ \t]*\d{{1,2}}[.)]?[ \t]*(?:\[\^?\d*)?\Z"
    r"|[\[【［]\s*[\^＾][^\]】］\n]{0,40}(?:[\]】］]|\Z)"
    rf"|[\[【［]{_LISTED}(?:[\]】］]|\Z)|[^\W_]"
)
_FENCE = re.compile(r"`{3,}|~{3,}")
_BLOCK_END = re.compile(r"(?:\n[ \t]*(?:`{3,}|~{3,})|(?P<row>\|))[ \t]*\Z")  # of code, of a table
_ENDS_CITED = re.compile(r"\[\^\d+\][^\w\[]*\Z")
# a heading, or "They are:"
_STATES_NOTHING = re.compile(r"\A\s*#|[:：][\s*_]*\Z")
_TITLE = re.compile(r"\s*(?:(\*\*|__)[^\n]*[^\n.!?。！？]\1|【[^\n】]*】|[■◆][^\n。]*)\s*")
_FURTHEST = 1000  # characters from a sentence to footnotes in its line that count for it
_NEXT_FOOTNOTES = re.compile(rf"[^\n]{{0,{_FURTHEST}}}?(?:\[\^\d{{1,9}}\])+")
_INTRODUCES = re.compile(
    r"[:：][\s*_]*\Z|以下|次の|下記|\b(?:as follows|below|following)\b", re.IGNORECASE
)
_MARKER = re.compile(rf"\A(?:{LIST_MARKER.pattern})")
# an item, a table, code
_STRUCTURED = re.compile(rf"\s*(?:{LIST_MARKER.pattern}|\||`{{3}}|~{{3}})")
# The last sentence is parsed again only when it has grown by 1/20, so that a long table is not parsed for
# each of its words.
_GROWTH_PARTS = 20


class FootnoteFilter:
    """Filters a streamed reply: valid footnotes get one form, invalid ones and lists of them are removed.

    Args:
        sources: The sources that can be cited, by number.
        other_forms: Whether "[1]" and "【1†source】" count as footnotes too, until one in the requested form
            arrives.

    Attributes:
        cites: Whether a valid footnote has arrived.
        lists_footnotes: Whether a list of footnotes has arrived (and was removed).
        pending: Text that has arrived and may end in an incomplete footnote.
    """

    def __init__(self, sources: Mapping[int, Source], other_forms: bool = True) -> None:
        self.cites = False
        self.lists_footnotes = False
        self.pending = "\n"  # as if a line began here, for footnote definitions
        self._sources = sources
        self._other_forms = other_forms
        self._last = ""  # the last character passed on, for the lookbehinds of the patterns
        self._is_in_code = False
        self._leads = False  # whether a sentence began with its footnote

    def add(self, delta: str) -> str:
        """Add the next delta, and return the text that cannot be part of a footnote any more."""
        self.pending += delta
        pieces = _PIECES.finditer(self.pending)
        ends = [piece.end() for piece in pieces if piece["line"] or piece[0].isalnum()]
        # a full stop may follow the last one
        ready = max((end for end in ends if end < len(self.pending)), default=0)
        text = self.pending[:ready]
        self.pending = self.pending[ready:]
        return self._clean(text)

    def close(self) -> str:
        """End the reply, and return the rest of the text."""
        text = self.pending
        self.pending = ""
        return self._clean(text)

    def _clean(self, text: str) -> str:
        text = self._last + strip_surrogates(text)
        cleaned = _CITED.sub(self._shown_form, text)[len(self._last) :]
        self._last = (self._last + cleaned)[-1:]
        self._is_in_code ^= bool(cleaned.count("`") % 2)
        return cleaned

    def _shown_form(self, match: re.Match[str]) -> str:
        """Return a footnote in the form to show, or nothing if it is invalid."""
        if match["number"]:
            return self._shown_line(match)
        digits = re.findall(r"\b\d{1,9}\b", unicodedata.normalize("NFKC", match[0]).strip())
        numbers = dict.fromkeys(map(int, digits))
        if match["asked"]:
            self._other_forms = False
        elif not self._is_footnote(match, numbers):
            return match[0]
        footnotes = "".join(f"[^{number}]" for number in numbers if number in self._sources)
        if not footnotes:
            return ""
        self.cites = True
        return separator(match.string[: match.start()], match[0]) + footnotes

    def _shown_line(self, match: re.Match[str]) -> str:
        """Return a line that begins with a footnote; without it if it is an entry of a list of footnotes."""
        source = self._sources.get(int(match["number"]))
        rest = match["rest"]
        is_entry = match["colon"] and (not source or (self.cites and not self._leads))
        if is_entry or (source and source.is_named_by(rest)):
            self.lists_footnotes = True
            return ""
        footnote = ""
        if source:
            self._other_forms = False
            self._leads = True
            self.cites = True
            footnote = f"[^{source.number}]"
        return match["before"] + footnote + _CITED.sub(self._shown_form, rest)

    def _is_footnote(self, match: re.Match[str], numbers: Collection[int]) -> bool:
        """Return whether brackets in another form are a footnote, not code or a quotation from a source."""
        if not self._other_forms or not numbers or not self._sources.keys() >= {*numbers}:
            return False
        ticks = match.string[: match.start()].count("`") + self._is_in_code
        if ticks % 2:
            return False
        brackets = match[0].strip()
        return not any(brackets in source.text for source in self._sources.values())


class SentenceMarker:
    """Adds a mark after each sentence of a streamed answer that needs a footnote and has none.

    Args:
        sources: The sources that can be cited, by number.
        question: The question.
        language: The language to answer in, if it was detected from more than the question.

    Attributes:
        begins_cited: Whether the first sentence that needs a footnote ends with one; None until it has ended.
    """

    def __init__(self, sources: Mapping[int, Source], question: str, language: str = "") -> None:
        self.begins_cited: bool | None = None
        self._footnotes = SentenceFootnotes(sources)
        self._question = question
        self._mark = in_language(NO_SOURCE, question, language)
        self._text = ""  # from the first sentence that may go on, or be cited later in its line
        self._shown = 0  # characters of it that were returned
        self._unparsed = ""  # text that arrived since it was parsed

    def add(self, text: str, ahead: str = "", is_last: bool = False) -> str:
        """Add text, and return text to show, with marks after the sentences that have ended.

        Args:
            text: The next text of the answer.
            ahead: Text known to follow: "z. B" looks like the end of a sentence, "z. B." does not.
            is_last: Whether this is the end; the mark of the last sentence is `last_mark`.
        """
        self._unparsed += text
        is_enough = is_last or len(self._unparsed) >= len(self._text) // _GROWTH_PARTS
        if not self._unparsed or not is_enough:
            return ""
        self._text += self._unparsed
        self._unparsed = ""
        marked = ""
        *ended, (last, _) = self._whole_sentences(ahead)
        for start, end in ended:
            place = max(start + len(self._text[start:end].rstrip()), self._shown)
            following = self._text[place : place + 2 * _FURTHEST]
            sentence = self._text[start:place]
            marked += self._text[self._shown : place]
            if not is_last and self._may_be_cited_later(sentence, following):
                self._text = self._text[start:]
                self._shown = place - start
                return marked
            marked += self._mark_ended(sentence, following)
            self._shown = place
        marked += self._text[self._shown :]
        self._text = self._text[last:]
        self._shown = len(self._text)
        return marked

    def _mark_ended(self, sentence: str, following: str) -> str:
        """Return the mark of a sentence that has ended, and note whether the answer begins cited."""
        mark = self._mark_of(sentence, following)
        if self.begins_cited is None and (mark or _FOOTNOTE.search(sentence)):
            missing = says_what_is_missing(plain_answer(sentence), self._question)
            self.begins_cited = bool(_ENDS_CITED.search(sentence)) and not missing
        return mark

    def _may_be_cited_later(self, sentence: str, following: str) -> bool:
        """Return whether a sentence without a footnote is on a line that may still get one."""
        is_near = len(following) < 2 * _FURTHEST
        is_open = is_near and "\n" not in following and not _FOOTNOTE.search(following)
        return is_open and self._mark_of(sentence) != ""

    def last_mark(self) -> str:
        """Return the mark of the last sentence, once the answer has ended; empty if it needs none."""
        return self._mark_of(self._text)

    def _whole_sentences(self, ahead: str) -> list[Span]:
        """Return the spans of the sentences so far; all but the last have ended."""
        stop = "." if ahead.startswith(".") else ""
        sentences = sentences_of(self._text + stop, self._question)
        for place, (start, end) in enumerate(sentences):
            # an open code block may go on
            if _FENCE.fullmatch(self._text[start:end].strip()):
                return sentences[: place + 1]
        return sentences or [(0, 0)]

    def _mark_of(self, sentence: str, following: str = "") -> str:
        """Return the mark of a sentence that has ended; empty if it needs none."""
        if not has_words(sentence):
            return ""
        if self._footnotes.of(sentence, following) or _STATES_NOTHING.search(sentence):
            return ""
        if _TITLE.fullmatch(sentence) and following.strip():
            return ""
        plain = plain_answer(sentence)
        if claims_nothing(plain) or says_what_is_missing(plain, self._question):
            return ""
        return separator(sentence) + self._mark


@dataclass
class SentenceFootnotes:
    """Finds the sources of an answer's sentences, one sentence after the other.

    A sentence without a footnote has those of the next sentence in its line that has any, and a list, a table
    or code also those of the line that introduces it, if their sources contain half of its words and all of
    its numbers.
    """

    sources: Mapping[int, Source]
    lent: list[Source] = field(default_factory=list)

    def of(self, sentence: str, following: str) -> list[Source]:
        """Return the sources of the next sentence.

        Args:
            sentence: The sentence.
            following: The text after it.
        """
        own = self._cited_in(sentence)
        plain = plain_answer(sentence)
        if not _STRUCTURED.match(plain):
            self.lent = own if _INTRODUCES.search(plain) else []
        if own:
            return own
        lent = [*self.lent]
        later = _NEXT_FOOTNOTES.match(following)
        if later:
            lent += self._cited_in(later[0])
        return lent if _are_supported(plain, lent) else []

    def _cited_in(self, text: str) -> list[Source]:
        numbers = dict.fromkeys(map(int, re.findall(r"\[\^(\d{1,9})\]", text)))
        return [self.sources[number] for number in numbers if number in self.sources]


def _are_supported(text: str, sources: Sequence[Source]) -> bool:
    """Return whether sources contain half of the content words of a text, and all of its numbers."""
    plain = _MARKER.sub("", text)
    words = content_words(plain)
    sources_text = "\n".join(source.whole_text for source in sources)
    tokens = {*tokenize(sources_text)}
    is_exact = all(word in tokens for word in words if any(map(str.isdecimal, word)))
    return is_exact and (not words or coverage_of(plain, sources_text) >= SUPPORTED)


def separator(text: str, footnote: str = "\n") -> str:
    """Return the separator between a text and the footnote after it.

    It is an empty line after a table, where Markdown would drop the footnote, and after code, which the
    footnote would continue; else it is empty.

    Args:
        text: The text.
        footnote: The footnote as it was written; on the line of a table's row it is a cell.
    """
    ends = _BLOCK_END.search(text)
    if not ends or (ends["row"] and "\n" not in footnote):
        return ""
    return "\n\n"


def without_footnotes(text: str) -> str:
    """Return a text without footnotes, valid or not."""
    return _FOOTNOTE.sub("", text)


def without_marks(text: str) -> str:
    """Return a text without the footnotes and marks after its sentences."""
    return _AFTER_SENTENCE.sub("", text)


def plain_answer(text: str) -> str:
    """Return an answer without its footnotes and marks."""
    return without_marks(without_footnotes(text)).strip()


def sentences_of(text: str, question: str) -> list[Span]:
    """Return the spans of the sentences of an answer; footnotes belong to the sentence before them.

    A yes or no without a footnote belongs to the sentence after it.
    """
    sentences: list[Span] = []
    previous = ""
    for start, end in pairwise([*_starts_with_footnotes(text), len(text)]):
        is_code = _FENCE.match(text[start:end].strip())
        if is_assent(previous, question) and not is_code and not _AFTER_SENTENCE.search(previous):
            start, _ = sentences.pop()
        sentences.append((start, end))
        previous = text[start:end]
    return sentences


def _starts_with_footnotes(text: str) -> list[int]:
    """Return where the sentences of an answer begin, each with the footnotes and marks after it."""
    plain = ""
    places: list[int] = []  # for each character of the plain text, its offset in the text
    last = 0
    notes = [note.span() for note in _AFTER_SENTENCE.finditer(text) if not _leads(note)]
    for start, end in [*notes, (len(text), len(text))]:
        places += range(last, start)
        plain += text[last:start]
        last = end
    if not plain.strip():
        return []
    return [0, *(places[start] for start in _sentence_starts(plain)[1:])]


def _leads(note: re.Match[str]) -> bool:
    """Return whether a footnote begins a line, and so belongs to the sentence after it."""
    beginning = note.string[: note.start()].rpartition("\n")[2]
    rest = note.string[note.end() :].partition("\n")[0]
    begins_line = not has_words(_MARKER.sub("", beginning.lstrip()))
    return begins_line and has_words(_NOTES.sub("", rest))


def _sentence_starts(text: str) -> list[int]:
    """Return where the sentences of an answer begin; a table counts as one, with its footnotes below it."""
    starts = []
    in_table = False
    for part in segment(text):
        # the second case is a row that is still arriving
        is_row = part.kind in ("columns", "group", "row") or (in_table and text[part.start] == "|")
        if not (is_row and in_table):
            starts.append(part.start)
        in_table = is_row
    return starts
