"""Answers without an LLM: quotations of the best propositions, or the statement that there is no answer."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise, takewhile
from operator import attrgetter

from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_pack_densex.answering.citations import CitedAnswer, Outcome
from llama_pack_densex.answering.footnotes import separator, without_footnotes
from llama_pack_densex.answering.phrases import CLOSEST, NEEDS_LLM, UNVERIFIED, in_language
from llama_pack_densex.answering.sources import Source, coverage_of, sources_of
from llama_pack_densex.answering.synthesizer import PendingAnswer, SourcedSynthesizer
from llama_pack_densex.node_parsers.metadata import SECTION_KEY, context_of
from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.propositionizers.checks import check_propositions
from llama_pack_densex.retrieval.context import (
    Fact,
    choose_facts,
    count_words,
    rank_facts,
    title_above,
)
from llama_pack_densex.retrieval.hits import MatchedUnit
from llama_pack_densex.retrieval.trust import LanguageTrust, trust_in
from llama_pack_densex.text.blocks import find_blocks
from llama_pack_densex.text.clauses import Path, clauses_of, references_in
from llama_pack_densex.text.language import detect_language
from llama_pack_densex.text.layout import Block
from llama_pack_densex.text.links import searchable_text, without_quotation_marks
from llama_pack_densex.text.plain import LIST_MARKER
from llama_pack_densex.text.segments import segment, sentence_spans, statements
from llama_pack_densex.text.sentences import Span, after_space
from llama_pack_densex.text.tokens import content_words, on_one_line, tokenize

ANSWER_WORDS = 60
"""Maximum words of an answer; a Chinese, Japanese or Korean character counts as half a word."""
LIST_WORDS = 100
"""Maximum words of an answer with a list: propositions of the best passage that score about as high."""
MOST_FACTS = 3
"""Maximum propositions of an answer; the items of such a list count as one.

With two, 3 to 12 in 100 questions lose their answer; with more than three, at most 3 in 100 gain one
(benchmarks/RESULTS.md)."""
LEAST_SHARE = 0.4
"""Minimum score of each proposition, as a share of the best one's, unless it adds a word of the question; it
saves 5 to 30 % of the words."""
_AS_GOOD = 0.8  # share of the best proposition's score
_ALIKE = 0.7  # share of the words of the shorter proposition

LEAST_EVIDENCE = 0.2
"""The evidence below which the outcome is "not_found".

It refuses 3 % of the questions that four sets of documents do answer (benchmarks/RESULTS.md)."""
_LEAST_IN_PAIRS = 0.1  # pairs of characters that span question words lower the coverage
SURE_EVIDENCE = 0.6
"""The evidence from which the outcome is "answered" rather than "closest".

Of 30 questions about a handbook's topics that the handbook does not answer, 4 to 6 reach it."""

_NAMES = re.compile(
    r"(?<=.)\b[A-Z][\w'’-]*|\d[\d,.]*|[ァ-ヺー]{2,}|[々一-鿿]{2,}|(?<=[ぁ-ヿ一-鿿])[A-Za-z]+"
    r"|(?<![A-Za-z])[A-Za-z]+(?=[ぁ-ヿ一-鿿])"
)

_HEADING_SHARE = 0.5  # share of the question's words
_ASKING = ("?", "？", "؟", "ですか。", "ますか。", "せんか。", "しょうか。")
# the question of a FAQ, however it ends; not "Q1:", which may be a quarter
_ENTRY_OF_FAQ = re.compile(r"[\W_]*[QＱ](?:\d*[.．]|[:：])")
# the dot leaders of a table of contents
_DOTS = re.compile(r"(?:[.．…‥・·] ?){5,}|(?: [.．]){2,} *\d*\Z")


class ExtractiveSynthesizer(SourcedSynthesizer):
    """Answers by quoting the best propositions with footnotes; needs no LLM.

    If the retrieved nodes cannot contain the answer, the answer says so. If that is uncertain, the quotations
    are presented as the closest passages (see `judge`).

    Args:
        trust: How well the index's embedding model knows each language; read at each question.
        streaming: Whether answers are streamed.
    """

    def __init__(
        self,
        trust: Mapping[str, LanguageTrust] | None = None,
        streaming: bool = False,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        super().__init__(None, None, streaming, callback_manager, trust)

    def _prepare(
        self, query: QueryBundle, nodes: list[NodeWithScore], conversation: str, full_question: str
    ) -> PendingAnswer:
        question = query.query_str
        if conversation:
            return PendingAnswer(
                CitedAnswer(question, (), checked=False), quoted=in_language(NEEDS_LLM, question)
            )
        language = self._language_of(question, nodes)
        sources = sources_of(nodes)
        answer = PendingAnswer(CitedAnswer(question, sources, checked=False, language=language))
        answer.cited.outcome = judge(question, sources, self._trust)
        if answer.cited.outcome == "not_found":
            return answer
        answer.quoted = extract(question, nodes)
        if answer.cited.outcome == "closest":
            answer.quoted = in_language(CLOSEST, question, language) + answer.quoted
        return answer


def extract(question: str, nodes: Sequence[NodeWithScore]) -> str:
    """Quote the best propositions of retrieved nodes, at most `MOST_FACTS`, with footnotes.

    Each passage becomes a paragraph, the one with the best proposition first. Within a paragraph, the best
    proposition and those about as good come first, then the others, both in the order of the passage.
    Propositions that repeat another are left out. If no node has matched propositions, the first node is
    quoted from its beginning. Text below a heading or question that is worded like the user's question, or
    below a question that matched best, comes before the best proposition.

    Args:
        question: The question.
        nodes: The retrieved nodes; the first has the footnote `[^1]`.

    Returns:
        The text; empty if there are no nodes.
    """
    facts = rank_facts(nodes, question)
    stated_facts = [fact for fact in facts if not _states_nothing(fact.unit.text)]
    below = _below_headings(question, nodes, facts, stated_facts)
    ranked = [*below, *stated_facts] or facts
    if nodes and not ranked:  # no node has matched propositions
        ranked = [*_facts_between(nodes[0], 0, len(nodes[0].get_content()), 0.0)]

    def improve(facts: Sequence[Fact]) -> bool:
        return _gains(question, ranked[0], facts, is_complete=bool(below))

    paragraphs = defaultdict(list)
    for fact in choose_facts(ranked, LIST_WORDS, improve):
        paragraphs[fact.source.node_id].append(fact)
    numbers = {node.node_id: number for number, node in enumerate(nodes, 1)}
    return "\n\n".join(
        _paragraph(_completed(facts), numbers[node_id]) for node_id, facts in paragraphs.items()
    )


def _completed(facts: Sequence[Fact]) -> list[Fact]:
    """Return facts of a node with those that they cannot be understood without: the lead-in of an item, the
    items of a lead-in, and the exceptions to a sentence or a list.
    """
    completed = [*facts]
    spans = {fact.unit.span for fact in facts}
    for fact in facts:
        for other in _completing_facts(fact):
            if other.unit.span not in spans and not _states_nothing(other.unit.text):
                spans.add(other.unit.span)
                completed.append(other)
    return completed


def _completing_facts(fact: Fact) -> Iterator[Fact]:
    """Yield the statements that complete a fact, if it is a statement of its passage itself."""
    source = fact.source
    text = source.get_content()
    context = context_of(source.node)
    offset = _offset_of(source)
    start, end = fact.unit.span or (0, 0)
    own = (start - offset, end - offset)
    stated = {statement.span: statement.text for statement in statements(text, context)}
    if stated.get(own) != fact.unit.text:
        return  # a model's proposition names what it is about
    blocks = [block for block in find_blocks(text, context) if block.kind != "nothing"]
    for span in _completing_spans(text, blocks, own):
        yield from _facts_between(source, *span, fact.unit.score)


def _completing_spans(text: str, blocks: Sequence[Block], span: Span) -> Iterator[Span]:
    """Yield the spans of what completes a sentence or item of a text."""
    start, end = span
    place = bisect_right(blocks, start, key=attrgetter("start")) - 1
    if place < 0:  # the passage has only marks
        return
    block = blocks[place]
    if block.kind not in ("prose", "item"):
        return
    yield from block.needs
    if _EXCEPTION.match(text, start):
        yield block.start, start
    following = after_space(text, end)
    if following >= block.end:
        yield from _completing_blocks(text[start:end], block, blocks[place + 1 :], text)
    elif _EXCEPTION.match(text, following):
        yield following, block.end


def _completing_blocks(
    sentence: str, block: Block, below: Sequence[Block], text: str
) -> Iterator[Span]:
    """Yield the spans of the blocks below that complete the last sentence of a block."""
    if _INTRODUCES.search(sentence):
        yield from _list_below(block, below, text)
    if block.kind == "item":
        ending = next((other for other in below if other.kind != "item"), None)
        if ending and ending.kind == "prose" and {*block.needs} & {*ending.needs}:
            yield ending.span


def _list_below(lead: Block, below: Sequence[Block], text: str) -> Iterator[Span]:
    """Yield the spans of the items that a block introduces, as many as an answer holds."""
    words = 0.0
    for item in takewhile(lead.leads_in, below):
        words += count_words(item.text_in(text))
        if words > LIST_WORDS:
            return
        yield item.span


# the beginning of an exception to the sentence before it
_EXCEPTION = re.compile(
    r"ただし|但し|(?:However|But|Except|Unless|Provided|Notwithstanding|Jedoch|Ausgenommen)\b"
    r"|(?:This|That|These|Dies|Das)\b[^.]{0,30}\b(?:not|nicht)\b"
)
# the end of a sentence that a list completes
_INTRODUCES = re.compile(r"[^.!?。！？]\s*\Z|次の|次に掲げる|following\b|folgende|下列")


def _gains(question: str, best: Fact, facts: Sequence[Fact], is_complete: bool) -> bool:
    """Return whether the last of the facts improves an answer that consists of the others.

    Args:
        question: The question.
        best: The best fact.
        facts: The facts, best first.
        is_complete: Whether what is below a heading, or a clause, answers the question.
    """
    *earlier, last = facts
    if not earlier:
        return True
    is_weak = last.unit.score < LEAST_SHARE * best.unit.score
    if is_weak and (is_complete or not _adds_word(question, best, facts)):
        return False
    if _is_row(last) and _coverage_by(last, question) < _coverage_by(best, question):
        return False  # another row, about something else than the question
    if _are_too_many(facts, best):
        return False
    return not any(_is_said_by(last, other) for other in earlier)


def _adds_word(question: str, best: Fact, facts: Sequence[Fact]) -> bool:
    """Return whether the last of the facts is of the best one's passage, and has a word of the question that
    neither the others nor the title have: "It was lit in 1890", where every document has such a sentence.
    """
    *earlier, last = facts
    if last.source.node_id != best.source.node_id:
        return False
    title = frozenset(tokenize(title_above(best.source)))
    stated = title.union(*(fact.tokens for fact in earlier))
    return not content_words(question) & last.tokens <= stated


def _coverage_by(fact: Fact, question: str) -> float:
    """Return the share of a question's words that a fact and the title of its document contain."""
    return coverage_of(question, f"{title_above(fact.source)} {fact.unit.text}")


def _are_too_many(facts: Sequence[Fact], best: Fact) -> bool:
    """Return whether facts exceed the limits of an answer in number or words; a list may be longer."""
    besides = [fact for fact in facts if not _is_item(fact, best)]
    if len(besides) >= MOST_FACTS:
        return True
    limit = LIST_WORDS if _is_item(facts[-1], best) else ANSWER_WORDS
    return sum(count_words(fact.unit.text) for fact in facts) > limit


def _below_headings(
    question: str,
    nodes: Sequence[NodeWithScore],
    facts: Sequence[Fact],
    stated_facts: Sequence[Fact],
) -> list[Fact]:
    """Return the clauses that a question names, the text below headings and questions in the documents that
    contain half of a question's words, and below a question that matched better than any proposition.

    Args:
        question: The question.
        nodes: The retrieved nodes.
        facts: The units found, best first.
        stated_facts: Those that are not questions. A heading counts only if it contains more of the words
            than the best of them.

    Returns:
        The statements below each such heading up to the next one, those of the best heading first. Their
        scores are so high that none of `stated_facts` counts as about as good. Below a question that was
        found, they have its score.
    """
    below: list[Fact] = []
    named = references_in(question)
    least = 0.0
    if stated_facts:
        least = coverage_of(question, stated_facts[0].unit.text)
    best_score = max((abs(fact.unit.score) for fact in stated_facts), default=1.0)
    top_score = best_score / (_AS_GOOD * _HEADING_SHARE**2)
    for source in nodes:
        text = source.get_content()
        below += _clauses_named(named, source, top_score)
        for (start, end), (next_start, _) in pairwise(_headings_in(source)):
            share = coverage_of(question, text[start:end])
            if share >= _HEADING_SHARE and share > least:
                below += _facts_between(source, end, next_start, share * top_score)
            elif facts and _is_at(facts[0], source, (start, end)):
                below += _facts_between(source, end, next_start, facts[0].unit.score)
    return sorted(below, key=lambda fact: -fact.unit.score)


def _clauses_named(
    paths: Sequence[Path], source: NodeWithScore, top_score: float
) -> Iterator[Fact]:
    """Yield the statements of the clauses with these numbers; the more exact, the better their score."""
    if not paths:
        return
    section = str(source.metadata.get(SECTION_KEY, ""))
    for path, span in clauses_of(source.get_content(), context_of(source.node), section):
        if path in paths:
            yield from _facts_between(source, *span, len(path) * top_score)


def _headings_in(source: NodeWithScore) -> list[Span]:
    """Return the spans of the headings and questions in a node's text, and an empty one at its end."""
    text = source.get_content()
    headings = [
        part.span
        for part in segment(text, context_of(source.node))
        if part.kind == "heading" or _states_nothing(part.text_in(text))
    ]
    return [*headings, (len(text), len(text))]


def _is_at(fact: Fact, source: NodeWithScore, place: Span) -> bool:
    """Return whether a fact is the unit at a place in a node's text."""
    offset = _offset_of(source)
    return fact.source is source and fact.unit.span == (offset + place[0], offset + place[1])


def _offset_of(source: NodeWithScore) -> int:
    """Return where a node begins in its document."""
    return getattr(source.node, "start_char_idx", None) or 0


def _facts_between(source: NodeWithScore, start: int, end: int, score: float) -> Iterator[Fact]:
    """Yield the statements between two offsets in a node's text, as units that matched with this score."""
    offset = _offset_of(source)
    for statement in statements(source.get_content(), context_of(source.node)):
        first, last = statement.span
        if start <= first < end:
            span = (offset + first, offset + last)
            unit = MatchedUnit(source.node_id, statement.text, score, "sentence", "", span=span)
            yield Fact(unit, source)


def _states_nothing(text: str) -> bool:
    """Return whether a sentence is a question or an entry of a table of contents."""
    is_question = text.rstrip("*_").endswith(_ASKING) or _ENTRY_OF_FAQ.match(text)
    return bool(is_question or _DOTS.search(text))


def _paragraph(facts: Sequence[Fact], number: int) -> str:
    best = facts[0]
    in_order = sorted(facts, key=lambda fact: fact.unit.span or (0, 0))
    ordered = sorted(in_order, key=lambda fact: not _goes_first(fact, best))
    texts = [_quotation(fact) for fact in ordered]
    language = detect_language(texts[0], best.source.get_content())
    sentences: list[str] = []
    last_label = ""
    for text, fact in zip(texts, ordered, strict=True):
        label = _label_of(fact)
        if label == last_label:
            text = text.removeprefix(label)
        last_label = label
        footnote = f"[^{number}]"
        if fact.unit.unverified:
            footnote = in_language(UNVERIFIED, "", language or "en") + footnote
        sentences += _with_footnotes(text, _is_row(fact), footnote)
    return _space_between(ordered, texts, language).join(sentences)


def _space_between(facts: Sequence[Fact], texts: Sequence[str], language: str) -> str:
    """Return what separates the sentences of a paragraph."""
    if "\n" in "".join(texts) or any(map(_is_row, facts)):
        return "\n\n"
    if any(map(LIST_MARKER.match, texts)):
        return "\n"
    return "" if language == "ja" else " "


def _with_footnotes(text: str, is_row: bool, footnote: str) -> Iterator[str]:
    """Yield the sentences of a text, or the row that it is, each with the footnote."""
    spans = [(0, len(text))] if is_row else sentence_spans(text)
    for start, end in spans:
        sentence = text[start:end]
        yield sentence + separator(sentence) + footnote


def _quotation(fact: Fact) -> str:
    """Return the quotation of a fact: a sentence as in the document, with links; a row with its column names.

    The document's own footnotes are left out: their numbers mean something else.
    """
    offset = _offset_of(fact.source)
    start, end = fact.unit.span or (0, 0)
    text = fact.unit.text
    raw = fact.source.get_content()[max(start - offset, 0) : max(end - offset, 0)]
    if searchable_text(raw).strip() == text.strip():
        text = raw
    return _flowing(without_footnotes(text).strip().removeprefix(": "))


def _part_of(fact: Fact) -> Block | None:
    """Return the row, or the sentence of a conversation, that a fact is; None for others."""
    segments = segment(fact.source.get_content(), context_of(fact.source.node))
    return next((part for part in segments if part.row and part.row == fact.unit.text), None)


def _is_row(fact: Fact) -> bool:
    """Return whether a fact is a row of a table."""
    part = _part_of(fact)
    return part is not None and part.kind == "row"


def _label_of(fact: Fact) -> str:
    """Return what says who speaks, before a sentence of a conversation; else empty."""
    part = _part_of(fact)
    return part.label if part else ""


def _goes_first(fact: Fact, best: Fact) -> bool:
    """Return whether a proposition is about as good as the best one, or is the sentence before it, which says
    who "it" is."""
    if _is_as_good(fact, best):
        return True
    text = best.unit.text
    if not (fact.unit.span and best.unit.span and 0 <= best.unit.span[0] - fact.unit.span[1] <= 2):
        return False
    findings = check_propositions(Passage(text), [text])
    return any(finding.kind == "self_containedness" for finding in findings)


def _is_as_good(fact: Fact, best: Fact) -> bool:
    return fact.unit.score >= _AS_GOOD * best.unit.score


def _flowing(text: str) -> str:
    """Return a sentence on one line; tables and code stay as they are."""
    if "\n" not in text or any(part.kind in ("row", "code") for part in segment(text)):
        return text
    return on_one_line(without_quotation_marks(text))


def _is_item(fact: Fact, best: Fact) -> bool:
    """Return whether a proposition is an item of the same list as the best one: it is from the same passage,
    about as good, and similarly worded."""
    if fact.source is not best.source or not _is_as_good(fact, best):
        return False
    tokens = set(tokenize(fact.unit.text))
    of_best = set(tokenize(best.unit.text))
    return len(tokens & of_best) >= _ALIKE * min(len(tokens), len(of_best))


def _is_said_by(fact: Fact, other: Fact) -> bool:
    """Return whether a fact repeats another: the other contains it, or one is a sentence and the other a
    proposition made from that sentence."""
    if fact.source is not other.source:
        return False
    is_other_kind = fact.unit.granularity != other.unit.granularity
    is_same = is_other_kind and fact.unit.span == other.unit.span is not None
    return is_same or fact.unit.text in other.unit.text


def judge(question: str, sources: Sequence[Source], trust: Mapping[str, LanguageTrust]) -> Outcome:
    """Judge whether the retrieved sources answer a question.

    Fused scores cannot tell: the best one is 1 for every question. The evidence is the sum of two parts: how
    much of the question the sources contain (`coverage`), and how much the most similar unit exceeds, by
    cosine, the similarity of sentences of the index to unrelated passages (`LanguageTrust.unrelated`,
    measured while documents are indexed). If no unit exceeds it, the words alone decide: questions are often
    less similar than sentences.

    Args:
        question: The question.
        sources: The sources retrieved for it.
        trust: How well the index's embedding model knows each language.

    Returns:
        "answered", "closest" if that is uncertain, or "not_found".
    """
    evidence = coverage(question, sources) + _nearness(sources, trust_in(trust, question))
    least = LEAST_EVIDENCE
    if detect_language(question) in ("zh", "ko"):
        least = _LEAST_IN_PAIRS
    if evidence < least:
        return "not_found"
    if evidence < SURE_EVIDENCE:
        return "closest"
    return "answered"


def _nearness(sources: Sequence[Source], trust: LanguageTrust | None) -> float:
    """Return how far the most similar unit is above the level of unrelated passages: 0 at that level, 1 at a
    similarity of 1."""
    units = chain.from_iterable(source.units for source in sources)
    similarities = [unit.similarity for unit in units if unit.similarity is not None]
    if not similarities or not trust or not trust.known or trust.unrelated is None:
        return 0.0
    nearness = (max(similarities) - trust.unrelated) / max(1 - trust.unrelated, 1e-6)
    return max(nearness, 0.0)


def coverage(question: str, sources: Sequence[Source]) -> float:
    """Return the share of a question's content words in the best source and the best unit, averaged.

    Names and numbers count twice, since a question about something else shares common words with any
    document. Titles and headings count as part of the text below them.
    """
    names = {token for name in _NAMES.findall(question) for token in tokenize(name)}
    best_source = 0.0
    best_unit = 0.0
    for source in sources:
        text = f"{source.title} {source.section} {source.context} {source.text}"
        best_source = max(best_source, coverage_of(question, text, names))
        for unit in source.units:
            text = f"{source.title} {unit.section} {unit.text}"
            best_unit = max(best_unit, coverage_of(question, text, names))
    if not any(source.units for source in sources):
        return best_source
    return (best_source + best_unit) / 2
