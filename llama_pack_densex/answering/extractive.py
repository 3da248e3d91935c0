"""Answers without an LLM: the best propositions, word for word, or that the documents do not hold the answer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_pack_densex.answering.citations import (
    UNVERIFIED,
    CitedAnswer,
    Source,
    in_language,
    parted,
    share_held,
    sources_of,
    without_footnotes,
)
from llama_pack_densex.answering.synthesizer import PendingAnswer, SourcedSynthesizer
from llama_pack_densex.node_parsers.metadata import context_of
from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.propositionizers.checks import check_propositions
from llama_pack_densex.retrieval.context import Fact, choose_facts, count_words, rank_facts
from llama_pack_densex.retrieval.hits import MatchedUnit
from llama_pack_densex.retrieval.trust import LanguageTrust, trust_in
from llama_pack_densex.text.language import detect_language
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.segments import Segment, segment, sentence_spans, statements
from llama_pack_densex.text.sentences import Span
from llama_pack_densex.text.tokens import content_words, on_one_line, tokenize

ANSWER_WORDS = 60
"""Words of an answer; a Chinese, Japanese or Korean character counts as half a word."""
LIST_WORDS = 100
"""The same with propositions of the first passage that are about as good as the best: they are the items of a list."""
_AS_GOOD = 0.8  # of the best proposition's score
_ALIKE = 0.7  # of the words of the shorter one

LEAST_COVERAGE = 0.34
"""The coverage that an answer takes where nothing was searched by embeddings.

Of 60 questions about an index of 14 documents 2 are refused so, of 600 about other articles 90 %; figures in
docs/measurements.md."""
_LEAST_ELSEWHERE = 0.1  # the same in scripts where nothing was measured: pairs of characters lie across words that ask
LEAST_EVIDENCE = 0.6
"""Coverage and similarity together that an answer takes, where embeddings were searched.

Of 500 questions of SQuAD that half of the articles answer 2 % are refused so, of 500 about the other half 87 %."""

_NAMES = re.compile(
    r"(?<=.)\b[A-Z][\w'’-]*|\d[\d,.]*|[ァ-ヺー]{2,}|[々一-鿿]{2,}|(?<=[ぁ-ヿ一-鿿])[A-Za-z]+"
    r"|(?<![A-Za-z])[A-Za-z]+(?=[ぁ-ヿ一-鿿])"
)

NEEDS_LLM = {
    "en": "Without a language model I can only quote the documents. Ask about what is in them.",
    "ja": "言語モデルがないため、ドキュメントを引用することしかできません。内容について質問してください。",
}
"""What is answered to "summarise that" and the like where there is no LLM, by language."""

_ALIKE_LEAD = 0.5  # of the question's words
_ASKING = ("?", "？", "ですか。", "ますか。", "せんか。", "しょうか。")
_ENTRY_OF_FAQ = re.compile(r"[\W_]*[QＱ](?:\d*[.．]|[:：])")  # of a FAQ, whatever it ends with; "Q1:" may be a quarter
_DOTS = re.compile(r"(?:[.．…‥・·] ?){5,}|(?: [.．]){2,} *\d*\Z")  # that lead to the number of a page


class ExtractiveSynthesizer(SourcedSynthesizer):
    """Answers with the best propositions, word for word, with footnotes; needs no LLM.

    Where what was retrieved cannot hold the answer (see `is_answerable`), it says so.

    Args:
        trust: What is known of the index's embedding model, by language; read at each question.
        streaming: Whether answers come as a stream.
    """

    def __init__(
        self,
        trust: Mapping[str, LanguageTrust] | None = None,
        streaming: bool = False,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        self._trust = trust
        super().__init__(None, None, streaming, callback_manager)

    def _prepare(self, query: QueryBundle, nodes: list[NodeWithScore], conversation: str) -> PendingAnswer:
        question = query.query_str
        if conversation:
            return PendingAnswer(CitedAnswer(question, (), checked=False), quoted=in_language(NEEDS_LLM, question))
        sources = sources_of(nodes)
        text = extract(question, nodes) if is_answerable(question, sources, self._trust) else ""
        return PendingAnswer(CitedAnswer(question, sources, checked=False), quoted=text)


def extract(question: str, nodes: Sequence[NodeWithScore]) -> str:
    """The best propositions of retrieved nodes, word for word, as a text with footnotes.

    Each passage gives a paragraph, that of the best proposition first. In it, the best one and those that are about as
    good come first, then the others, each in the order of the passage. None says what another says. A node that no
    proposition found is quoted from its beginning. What stands below a heading or question that is worded as the
    question comes before the best proposition.

    Args:
        question: The question.
        nodes: What was retrieved; the first has the footnote `[^1]`.

    Returns:
        The text; empty where there are no nodes.
    """
    numbers = {found.node.node_id: number for number, found in enumerate(nodes, start=1)}
    facts, asked = rank_facts(nodes), content_words(tokenize(question))
    stating = [fact for fact in facts if not _states_nothing(fact.unit.text)]
    ranked = [*_below_leads(asked, nodes, stating), *stating] or facts or _stated(nodes[:1])

    held = share_held(asked, ranked[0].unit.text) if ranked else 0.0

    def fits(some: Sequence[Fact]) -> bool:
        *others, last = some
        if others and _row_of(last) and share_held(asked, last.unit.text) < held:
            return False  # another row says the same of something that was not asked about
        limit = LIST_WORDS if _is_item(last, ranked[0]) else ANSWER_WORDS
        has_room = not others or sum(count_words(fact.unit.text) for fact in some) <= limit
        return has_room and not any(_is_said_by(last, other) for other in others)

    paragraphs: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in choose_facts(ranked, LIST_WORDS, fits):
        paragraphs[fact.source.node_id].append(fact)
    return "\n\n".join(_paragraph(facts, numbers[node_id]) for node_id, facts in paragraphs.items())


def _below_leads(asked: Collection[str], nodes: Sequence[NodeWithScore], stating: Sequence[Fact]) -> list[Fact]:
    """What stands below headings and questions in the documents that hold half of the words of a question.

    Args:
        asked: The question's words.
        nodes: What was retrieved.
        stating: The propositions, of which the best one has to hold less.

    Returns:
        That, up to the next heading or question; first what stands below the one with the largest share. None of
        `stating` is about as good.
    """
    found: list[Fact] = []
    least = share_held(asked, stating[0].unit.text) if stating else 0.0
    above = max((abs(fact.unit.score) for fact in stating), default=1.0) / (_AS_GOOD * _ALIKE_LEAD**2)
    for source in nodes:
        text, context = source.get_content(), context_of(source.node)
        leads = [part.span for part in segment(text, context) if _leads(part, text)]
        stated = statements(text, context)
        for (start, end), (next_start, _) in pairwise([*leads, (len(text), len(text))]):
            share = share_held(asked, text[start:end])
            if share < _ALIKE_LEAD or share <= least:
                continue
            below = [statement for statement in stated if end <= statement.span[0] < next_start]
            found += [_fact(source, statement.text, statement.span, share * above) for statement in below]
    return sorted(found, key=lambda fact: -fact.unit.score)


def _leads(part: Segment, text: str) -> bool:
    """Whether a segment of a text is a heading or a question, which what is below it answers."""
    return part.kind == "heading" or _states_nothing(text[part.start : part.end])


def _stated(nodes: Sequence[NodeWithScore]) -> list[Fact]:
    """The sentences of nodes that no proposition found."""
    return [
        _fact(source, stated.text, stated.span, 0.0)
        for source in nodes
        for stated in statements(source.get_content(), context_of(source.node))
    ]


def _fact(source: NodeWithScore, statement: str, span: Span, score: float) -> Fact:
    """A sentence of a node's text, or what a row of it says, as a unit that found it."""
    offset = getattr(source.node, "start_char_idx", None) or 0
    place = (offset + span[0], offset + span[1])
    return Fact(MatchedUnit(source.node_id, statement, score, "sentence", "", span=place), source)


def _states_nothing(text: str) -> bool:
    """Whether a sentence is a question or an entry of a table of contents, which states nothing."""
    return bool(text.rstrip("*_").endswith(_ASKING) or _ENTRY_OF_FAQ.match(text) or _DOTS.search(text))


def _paragraph(facts: Sequence[Fact], number: int) -> str:
    ordered = sorted(facts, key=lambda fact: (not _goes_first(fact, facts[0]), fact.unit.span or (0, 0)))
    texts = [_quotation(fact) for fact in ordered]
    is_japanese = detect_language(texts[0]) == "ja"
    remark = UNVERIFIED["ja" if is_japanese else "en"]
    quoted = [
        f"{text[start:end]}{parted(text[start:end])}{remark if fact.unit.unverified else ''}[^{number}]"
        for text, fact in zip(texts, ordered, strict=True)
        for start, end in sentence_spans(text)
    ]
    if any("\n" in text for text in texts) or any(_row_of(fact) for fact in ordered):
        return "\n\n".join(quoted)
    return ("" if is_japanese else " ").join(quoted)


def _quotation(fact: Fact) -> str:
    """A fact as it is quoted: a sentence as it stands in the document, with its links; a row with its columns' names.

    A document's own footnotes are left out, since they lead elsewhere.
    """
    raw = _as_it_stands(fact)
    is_same = searchable_text(raw).strip() == fact.unit.text.strip()
    return _flowing(without_footnotes(raw if is_same else fact.unit.text).strip().removeprefix(": "))


def _as_it_stands(fact: Fact) -> str:
    """The text of the span of a fact."""
    offset = getattr(fact.source.node, "start_char_idx", None) or 0
    start, end = fact.unit.span or (0, 0)
    return fact.source.get_content()[max(start - offset, 0) : max(end - offset, 0)]


def _row_of(fact: Fact) -> bool:
    """Whether a fact is a row of a table."""
    node = fact.source.node
    return any(part.row == fact.unit.text for part in segment(node.get_content(), context_of(node)) if part.row)


def _goes_first(fact: Fact, best: Fact) -> bool:
    """Whether a proposition is about as good as the best one, or is the sentence before it, which says who "it" is."""
    text, span, then = best.unit.text, fact.unit.span, best.unit.span
    if fact.unit.score >= _AS_GOOD * best.unit.score:
        return True
    if span is None or then is None or not 0 <= then[0] - span[1] <= 2:
        return False
    return any(finding.kind == "self_containedness" for finding in check_propositions(Passage(text), [text]))


def _flowing(text: str) -> str:
    """A sentence of several lines on one; tables and code stay as they are."""
    is_block = "\n" not in text or any(part.kind in ("row", "code") for part in segment(text))
    return text if is_block else on_one_line(text)


def _is_item(fact: Fact, best: Fact) -> bool:
    """Whether a proposition is about as good as the best one, and says the same of something else in its passage."""
    tokens, others = set(tokenize(fact.unit.text)), set(tokenize(best.unit.text))
    is_alike = fact.source is best.source and len(tokens & others) >= _ALIKE * min(len(tokens), len(others))
    return is_alike and fact.unit.score >= _AS_GOOD * best.unit.score


def _is_said_by(fact: Fact, other: Fact) -> bool:
    """Whether one is a sentence, and the other a proposition that was made of it, or holds it."""
    if fact.source is not other.source:
        return False
    kinds = {fact.unit.granularity, other.unit.granularity}
    is_same = len(kinds) == 2 and fact.unit.span == other.unit.span is not None
    return is_same or fact.unit.text in other.unit.text


def is_answerable(question: str, sources: Sequence[Source], trust: Mapping[str, LanguageTrust] | None = None) -> bool:
    """Tell whether what was retrieved may hold the answer to a question.

    Fused scores do not tell: their best is 1 for every question. What does is how much of the question it holds
    (`coverage`), and how near the nearest unit is by embedding: from 0, as near as sentences of the index are to other
    passages, to 1. That level is measured while documents are indexed, and kept with the index.

    Args:
        question: The question.
        sources: What was retrieved for it.
        trust: What was measured of the index's embedding model, by language; where that is nothing for the question's
            language, the words decide.
    """
    held = coverage(question, sources)
    near = [unit.similarity for source in sources for unit in source.units if unit.similarity is not None]
    known = trust_in(trust or {}, question)
    if not near or known is None or not known.known or known.unrelated is None:
        is_measured = detect_language(question) in ("en", "ja", "latin", "")
        return held >= (LEAST_COVERAGE if is_measured else _LEAST_ELSEWHERE)
    place = (max(near) - known.unrelated) / max(1 - known.unrelated, 1e-6)
    return held + place >= LEAST_EVIDENCE


def coverage(question: str, sources: Sequence[Source]) -> float:
    """The share of a question's telling words that the best source and the best unit hold, the mean of both.

    Names and numbers count twice: a question about something else shares common words with any document. Titles and
    headings count as said by what is below them.
    """
    asked = content_words(tokenize(question))
    named = {token for name in _NAMES.findall(question) for token in tokenize(name)}
    passages = [f"{source.title} {source.section} {source.context} {source.text}" for source in sources]
    units = [f"{source.title} {unit.section} {unit.text}" for source in sources for unit in source.units]
    best = [max((share_held(asked, text, named) for text in some), default=0.0) for some in (passages, units)]
    return (best[0] + (best[1] if units else best[0])) / 2
