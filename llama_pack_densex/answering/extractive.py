"""Answers without an LLM: the best propositions word for word, or that there is no answer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, pairwise

from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_pack_densex.answering.citations import CitedAnswer, Outcome
from llama_pack_densex.answering.footnotes import separator, without_footnotes
from llama_pack_densex.answering.phrases import CLOSEST, NEEDS_LLM, UNVERIFIED, in_language
from llama_pack_densex.answering.sources import Source, coverage_of, sources_of
from llama_pack_densex.answering.synthesizer import PendingAnswer, SourcedSynthesizer
from llama_pack_densex.node_parsers.metadata import context_of
from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.propositionizers.checks import check_propositions
from llama_pack_densex.retrieval.context import Fact, choose_facts, count_words, rank_facts
from llama_pack_densex.retrieval.hits import MatchedUnit
from llama_pack_densex.retrieval.trust import LanguageTrust, trust_in
from llama_pack_densex.text.language import detect_language
from llama_pack_densex.text.layout import Block
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.plain import LIST_MARKER
from llama_pack_densex.text.segments import segment, sentence_spans, statements
from llama_pack_densex.text.tokens import content_words, on_one_line, tokenize

ANSWER_WORDS = 60
"""Words of an answer; a Chinese, Japanese or Korean character counts as half a word."""
LIST_WORDS = 100
"""The same with propositions of the first passage about as good as the best: items of a list."""
MOST_FACTS = 3
"""Propositions of an answer; the items of such a list count as one.

Two hold the answer to 3 to 12 in 100 questions fewer, more to at most 3 (benchmarks/RESULTS.md)."""
LEAST_SHARE = 0.4
"""The score of each of them, as a share of the best one's: 5 to 30 % fewer words than without."""
_AS_GOOD = 0.8  # of the best proposition's score
_ALIKE = 0.7  # of the words of the shorter one

LEAST_EVIDENCE = 0.2
"""The evidence below which nothing was found.

Of the questions that four sets of documents answer, 3 % are refused so (benchmarks/RESULTS.md)."""
SURE_EVIDENCE = 0.6
"""The evidence from which what was found is an answer, and not only what is closest to the question.

Of 30 questions that a handbook does not answer, about what it is about, 4 to 6 are answered so."""
# in scripts where nothing was measured: pairs of characters lie across words that ask
_LEAST_ELSEWHERE = 0.1

_NAMES = re.compile(
    r"(?<=.)\b[A-Z][\w'’-]*|\d[\d,.]*|[ァ-ヺー]{2,}|[々一-鿿]{2,}|(?<=[ぁ-ヿ一-鿿])[A-Za-z]+"
    r"|(?<![A-Za-z])[A-Za-z]+(?=[ぁ-ヿ一-鿿])"
)

_ALIKE_LEAD = 0.5  # of the question's words
_ASKING = ("?", "？", "ですか。", "ますか。", "せんか。", "しょうか。")
# of a FAQ, whatever it ends with; "Q1:" may be a quarter
_ENTRY_OF_FAQ = re.compile(r"[\W_]*[QＱ](?:\d*[.．]|[:：])")
# that lead to the number of a page
_DOTS = re.compile(r"(?:[.．…‥・·] ?){5,}|(?: [.．]){2,} *\d*\Z")


class ExtractiveSynthesizer(SourcedSynthesizer):
    """Answers with the best propositions, word for word, with footnotes; needs no LLM.

    Where what was retrieved cannot hold the answer, it says so, and where that cannot be told, it calls them
    what is closest to the question (see `judge`).

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
        super().__init__(None, None, streaming, callback_manager, trust)

    def _prepare(
        self,
        query: QueryBundle,
        nodes: list[NodeWithScore],
        conversation: str,
        full_question: str,
    ) -> PendingAnswer:
        question = query.query_str
        if conversation:
            return PendingAnswer(
                CitedAnswer(question, (), checked=False),
                quoted=in_language(NEEDS_LLM, question),
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
    """The best propositions of retrieved nodes, `MOST_FACTS`, word for word, as a text with footnotes.

    Each passage gives a paragraph, that of the best proposition first. In it, the best one and those that are
    about as good come first, then the others, each in the order of the passage. None says what another says.
    A node that no proposition found is quoted from its beginning. What stands below a heading or question
    that is worded as the question comes before the best proposition.

    Args:
        question: The question.
        nodes: What was retrieved; the first has the footnote `[^1]`.

    Returns:
        The text; empty where there are no nodes.
    """
    words = content_words(tokenize(question))
    facts = rank_facts(nodes)
    stating = [fact for fact in facts if not _states_nothing(fact.unit.text)]
    ranked = [*_below_leads(words, nodes, stating), *stating] or facts
    if not ranked:  # no proposition found any of them
        for node in nodes[:1]:
            ranked = list(_facts_between(node, 0, len(node.get_content()), 0.0))
    paragraphs: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in choose_facts(ranked, LIST_WORDS, lambda facts: _gains(words, ranked[0], facts)):
        paragraphs[fact.source.node_id].append(fact)
    numbers = {node.node_id: number for number, node in enumerate(nodes, start=1)}
    return "\n\n".join(_paragraph(facts, numbers[node_id]) for node_id, facts in paragraphs.items())


def _gains(words: Collection[str], best: Fact, facts: Sequence[Fact]) -> bool:
    """Whether an answer of some facts, of which all but the last are in it, gains by the last one.

    Args:
        words: The question's words.
        best: The best fact.
        facts: The facts, best first.
    """
    *earlier, last = facts
    if not earlier:
        return True
    if last.unit.score < LEAST_SHARE * best.unit.score:
        return False
    if _is_row(last) and coverage_of(words, last.unit.text) < coverage_of(words, best.unit.text):
        return False  # another row says the same of something that was not asked about
    if _are_too_many(facts, best):
        return False
    return not any(_is_said_by(last, other) for other in earlier)


def _are_too_many(facts: Sequence[Fact], best: Fact) -> bool:
    """Whether facts are more than an answer has, or their words; a list may be longer."""
    besides = [fact for fact in facts if not _is_item(fact, best)]
    limit = LIST_WORDS if _is_item(facts[-1], best) else ANSWER_WORDS
    return len(besides) >= MOST_FACTS or sum(count_words(fact.unit.text) for fact in facts) > limit


def _below_leads(
    words: Collection[str],
    nodes: Sequence[NodeWithScore],
    stating: Sequence[Fact],
) -> list[Fact]:
    """What stands below headings and questions in the documents that hold half of the words of a question.

    Args:
        words: The question's words.
        nodes: What was retrieved.
        stating: The propositions, of which the best one has to hold less.

    Returns:
        That, up to the next heading or question; first what stands below the one with the largest share. None
        of `stating` is about as good.
    """
    below: list[Fact] = []
    least = coverage_of(words, stating[0].unit.text) if stating else 0.0
    above = max((abs(fact.unit.score) for fact in stating), default=1.0) / (
        _AS_GOOD * _ALIKE_LEAD**2
    )
    for source in nodes:
        text = source.get_content()
        leads = [part.span for part in segment(text, context_of(source.node)) if _leads(part, text)]
        for (start, end), (next_start, _) in pairwise([*leads, (len(text), len(text))]):
            share = coverage_of(words, text[start:end])
            if share >= _ALIKE_LEAD and share > least:
                below += _facts_between(source, end, next_start, share * above)
    return sorted(below, key=lambda fact: -fact.unit.score)


def _facts_between(source: NodeWithScore, start: int, end: int, score: float) -> Iterator[Fact]:
    """What a node's text states in a stretch of it, as units that found it."""
    offset = getattr(source.node, "start_char_idx", None) or 0
    for statement in statements(source.get_content(), context_of(source.node)):
        first, last = statement.span
        if start <= first < end:
            span = (offset + first, offset + last)
            unit = MatchedUnit(source.node_id, statement.text, score, "sentence", "", span=span)
            yield Fact(unit, source)


def _leads(part: Block, text: str) -> bool:
    """Whether a segment of a text is a heading or a question, which what is below it answers."""
    return part.kind == "heading" or _states_nothing(text[part.start : part.end])


def _states_nothing(text: str) -> bool:
    """Whether a sentence is a question or an entry of a table of contents, which states nothing."""
    return bool(
        text.rstrip("*_").endswith(_ASKING) or _ENTRY_OF_FAQ.match(text) or _DOTS.search(text)
    )


def _paragraph(facts: Sequence[Fact], number: int) -> str:
    ordered = sorted(
        facts, key=lambda fact: (not _goes_first(fact, facts[0]), fact.unit.span or (0, 0))
    )
    texts = [_quotation(fact) for fact in ordered]
    is_japanese = detect_language(texts[0], facts[0].source.get_content()) == "ja"
    unverified = UNVERIFIED["ja" if is_japanese else "en"]
    sentences: list[str] = []
    for text, fact in zip(texts, ordered, strict=True):
        remark = unverified if fact.unit.unverified else ""
        sentences += _with_footnotes(text, f"{remark}[^{number}]")
    if "\n" in "".join(texts) or any(map(_is_row, ordered)):
        return "\n\n".join(sentences)
    if any(map(LIST_MARKER.match, texts)):
        return "\n".join(sentences)
    return "".join(sentences) if is_japanese else " ".join(sentences)


def _with_footnotes(text: str, footnote: str) -> Iterator[str]:
    for start, end in sentence_spans(text):
        sentence = text[start:end]
        yield f"{sentence}{separator(sentence)}{footnote}"


def _quotation(fact: Fact) -> str:
    """A fact as it is quoted: a sentence as in the document, with its links; a row with its columns' names.

    A document's own footnotes are left out, since they lead elsewhere.
    """
    offset = getattr(fact.source.node, "start_char_idx", None) or 0
    start, end = fact.unit.span or (0, 0)
    raw = fact.source.get_content()[max(start - offset, 0) : max(end - offset, 0)]
    is_same = searchable_text(raw).strip() == fact.unit.text.strip()
    return _flowing(
        without_footnotes(raw if is_same else fact.unit.text).strip().removeprefix(": ")
    )


def _is_row(fact: Fact) -> bool:
    """Whether a fact is a row of a table."""
    segments = segment(fact.source.get_content(), context_of(fact.source.node))
    return any(part.row and part.row == fact.unit.text for part in segments)


def _goes_first(fact: Fact, best: Fact) -> bool:
    """Whether a proposition is about as good as the best, or the sentence before it, which says who "it"
    is."""
    if _is_as_good(fact, best):
        return True
    text = best.unit.text
    if not (fact.unit.span and best.unit.span and 0 <= best.unit.span[0] - fact.unit.span[1] <= 2):
        return False
    return any(
        finding.kind == "self_containedness"
        for finding in check_propositions(Passage(text), [text])
    )


def _is_as_good(fact: Fact, best: Fact) -> bool:
    return fact.unit.score >= _AS_GOOD * best.unit.score


def _flowing(text: str) -> str:
    """A sentence of several lines on one; tables and code stay as they are."""
    is_block = "\n" not in text or any(part.kind in ("row", "code") for part in segment(text))
    return text if is_block else on_one_line(text)


def _is_item(fact: Fact, best: Fact) -> bool:
    """Whether a proposition is about as good as the best, and says the same of something in its passage."""
    if fact.source is not best.source or not _is_as_good(fact, best):
        return False
    tokens = set(tokenize(fact.unit.text))
    of_best = set(tokenize(best.unit.text))
    return len(tokens & of_best) >= _ALIKE * min(len(tokens), len(of_best))


def _is_said_by(fact: Fact, other: Fact) -> bool:
    """Whether one is a sentence, and the other a proposition that was made of it, or holds it."""
    if fact.source is not other.source:
        return False
    is_other_kind = fact.unit.granularity != other.unit.granularity
    is_same = is_other_kind and fact.unit.span == other.unit.span is not None
    return is_same or fact.unit.text in other.unit.text


def judge(
    question: str,
    sources: Sequence[Source],
    trust: Mapping[str, LanguageTrust],
) -> Outcome:
    """Tell whether what was retrieved answers a question, may answer it, or cannot.

    Fused scores do not tell: their best is 1 for every question. The evidence is how much of the question it
    holds (`coverage`), and how much nearer the nearest unit is by embedding, to which 1 is nearest, than
    sentences of the index are to other passages. That level is measured while documents are indexed, and kept
    with the index. Where no unit is nearer, the words decide: questions are often further away than
    sentences.

    Args:
        question: The question.
        sources: What was retrieved for it.
        trust: What was measured of the index's embedding model, by language.

    Returns:
        "answered", "closest" where it cannot be told, or "not_found".
    """
    evidence = coverage(question, sources) + _nearness(sources, trust_in(trust, question))
    is_measured = detect_language(question) in ("en", "ja", "latin", "")
    if evidence < (LEAST_EVIDENCE if is_measured else _LEAST_ELSEWHERE):
        return "not_found"
    return "answered" if evidence >= SURE_EVIDENCE else "closest"


def _nearness(sources: Sequence[Source], trust: LanguageTrust | None) -> float:
    """How much nearer the nearest unit is than sentences are to other passages, of what there is up to 1."""
    units = chain.from_iterable(source.units for source in sources)
    similarities = [unit.similarity for unit in units if unit.similarity is not None]
    if not similarities or trust is None or not trust.known or trust.unrelated is None:
        return 0.0
    nearness = (max(similarities) - trust.unrelated) / max(1 - trust.unrelated, 1e-6)
    return max(nearness, 0.0)


def coverage(question: str, sources: Sequence[Source]) -> float:
    """The share of a question's telling words that the best source and the best unit hold, the mean of both.

    Names and numbers count twice: a question about something else shares common words with any document.
    Titles and headings count as said by what is below them.
    """
    words = content_words(tokenize(question))
    names = {token for name in _NAMES.findall(question) for token in tokenize(name)}
    best_source = 0.0
    best_unit = 0.0
    for source in sources:
        text = f"{source.title} {source.section} {source.context} {source.text}"
        best_source = max(best_source, coverage_of(words, text, names))
        for unit in source.units:
            best_unit = max(
                best_unit,
                coverage_of(words, f"{source.title} {unit.section} {unit.text}", names),
            )
    if not any(source.units for source in sources):
        return best_source
    return (best_source + best_unit) / 2
