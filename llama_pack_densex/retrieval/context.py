"""The context that the LLM reads: the facts that were found, then the passages they came from."""

from __future__ import annotations

import functools
import math
import re
import uuid
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from llama_index.core.bridge.pydantic import Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import IndexNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from pydantic import PositiveInt

from llama_pack_densex.index.node_store import NodeRecord
from llama_pack_densex.llm.usage import count_tokens
from llama_pack_densex.node_parsers.metadata import (
    BOOKKEEPING_KEYS,
    FOOTNOTE_KEY,
    GRANULARITY_KEY,
    SECTION_KEY,
    TITLE_KEY,
    context_of,
)
from llama_pack_densex.retrieval.hits import MatchedUnit, carrying, matched_units
from llama_pack_densex.text.blocks import find_blocks
from llama_pack_densex.text.links import readable_text
from llama_pack_densex.text.plain import LIST_MARKER
from llama_pack_densex.text.segments import segment, statements
from llama_pack_densex.text.sentences import Span
from llama_pack_densex.text.tokens import CJK, content_words, tokenize

ContextMode = Literal["passages", "propositions", "propositions+passages", "window"]
DEFAULT_MODE: ContextMode = "propositions+passages"
WORDS_A_NODE = 125
"""Words of context per retrieved node under the budget "auto".

Compared with reading everything that was retrieved, 0.2 in 100 of SQuAD's questions lose their answer and 1.2
in 100 of the paraphrased ones (without an LLM 0.6 and 0.4), and 35 % fewer words are read."""

_FACTS = "facts"
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "llama-pack-densex/context")

FACT_WORDS = 200
"""Limit in words for the matched units above the passages; a Chinese, Japanese or Korean character counts as
half a word.

Of limits from 50 to 500 words, 200 had the highest answer recall within 200 words of context, or came
within a question or two of it, for lexical, dense and fused scores; within 100 and 500 words of context it
lost nothing compared with a limit of 100."""

FACT_SHARE = 0.1
"""The same limit as a share of the budget, if there is one: the passages repeat what the units say."""

PASSAGE_WEIGHT = 0.5
"""Weight of a passage's score beside the unit's own, each divided by the best score of its kind.

Of 0, 0.3, 0.5, 1 and 2, 0.3 and 0.5 had the highest answer recall within 100 and 200 words of context, or
came within a question or two of it, for lexical, dense and fused scores."""

TITLE_WEIGHT = 2.0
"""Weight of the share of a question's words that name a document by its title, and that are in the title or
the text of a unit: the row of a table seldom names what its table is about.

Of 0 to 3 for Wikipedia's tables (FeTaQA), 2 shows 6 in 100 more of the cells that answer within 50 words than
0, and 3 hardly more; for prose it changes nothing. Headings above the unit cost a handbook's questions 1 to 3
in 100 of their answers, and titles alone cost those that name their subject in each sentence."""

NEAR_DUPLICATE = 0.8
"""A unit is left out as a near-duplicate if a better one contains this share of its tokens: a sentence and
its proposition, say."""

SAME_PLACE = 0.5
"""The same share where one unit is a sentence and the others are propositions made from it, or the reverse.

It applies only where the passages are read too: in mode "propositions" it cost 14 in 100 of a handbook's
questions their answer."""

# Numbers and negations, by which two otherwise equal sentences differ in meaning. Compared separately because
# the tokens of keyword search lack negations.
_DISTINCTIVE = re.compile(
    r"\d+(?:[.,]\d+)*|\b(?:no|not|never|neither|nor|without|cannot)\b|n['’]t\b|ない|なかっ|ません|ずに",
    re.IGNORECASE,
)

LEAST_WORDS = 3
"""A unit without a verb says nothing if it has fewer words than this; a Chinese, Japanese or Korean character
counts as half a word."""
OF_LEAD_IN = 8
"""The same threshold for any unit that ends in a colon."""
_MARKUP = re.compile(r"<[^<>]{0,500}>|\]\([^()\s]{0,500}\)|[*_`#>|\[\]()]|https?://\S+")
_BULLET = re.compile(r"\A[-*+]\s+")
_MARKER = re.compile(rf"\A(?:{LIST_MARKER.pattern})")
_EMPHASISED = re.compile(
    r"(?:>\s+)?(?P<mark>\*\*|__|\*|_|<b>|<strong>)[^\n。.!?！？]{1,80}(?:(?P=mark)|</b>|</strong>)"
)
_PREDICATE = re.compile(
    r"(?<!また)は|[がを]|です|ます|[:：]|\b(?:is|are|was|were|has|have|can|must|may|will|should)\b",
    re.IGNORECASE,
)
_COURTESY = re.compile(
    r"(?:詳細は|詳しくは)?こちら(?:を(?:ご覧|参照して)ください|です)?[。!！]*"
    r"|(?:(?:for )?(?:more|further)(?: details| information)?,? )?"
    r"(?:see|click|read)(?: here| more| below| above)+[.!]*"
    r"|(?:congratulations|welcome|thanks(?! to\b)|thank you|good luck|hello|hi)\b[\w ,']{0,40}[.!]*"
    r"|(?:おめでとう|ありがとう|お疲れ(?:様|さま)|ようこそ|こんにちは)(?:ございま(?:す|した)|です|でした)?[。!！]*",
    re.IGNORECASE,
)

BudgetUnit = Literal["words", "tokens", "characters"]
# approximate length of a word in each unit
_WORD_LENGTH: dict[BudgetUnit, float] = {"words": 1, "tokens": 4 / 3, "characters": 6}

# length of core's separator between nodes, at most
_BETWEEN_NODES: dict[BudgetUnit, int] = {"words": 0, "tokens": 2, "characters": 2}

_CJK_RUN = re.compile(f"[{CJK}]+")
_WORD = re.compile(r"[^\W_]+(?:['’.,-][^\W_]+)*")

GAP = "\n…\n"
"""Stands for the sentences that are left out between two shown ones."""


class PropositionContextPostprocessor(BaseNodePostprocessor):
    """Postprocessor that turns retrieved nodes into the context that the LLM reads, within a budget.

    Modes:
        - "propositions+passages": one node that lists the best matched units ("- ..."), under the titles of
          their documents and without near-duplicates (up to a tenth of the budget, or 200 words without a
          budget); then the passages: whole if all of them fit, else the sentences around the matched units of
          each, as in "window".
        - "propositions": only that node, with as many of the units as the budget allows.
        - "window": the sentences around the matched units of each passage, in reading order, overlaps merged;
          for as many units as the budget allows (200 words of units without a budget).
        - "passages": the retrieved nodes as they are.

    Units and sentences are never cut. A unit that does not fit into the budget is skipped in favour of
    shorter ones that rank below it. A passage that does not fit and has no matched units is replaced by as
    many of its first sentences as fit, and left out if not even one does. The budget counts the whole text
    for the LLM, including titles and the metadata that a node shows.

    The postprocessor works on the results of any retriever, and leaves a context that is already assembled
    unchanged. A proposition or sentence that was itself retrieved counts as a matched unit, of its passage if
    that was retrieved too; nodes that no unit found count as passages, and are passed on in every mode.

    Args:
        mode: What the LLM reads; see above.
        budget: The maximum length of the context. "auto" means 125 words per retrieved node, and no limit in
            mode "passages"; None means no limit.
        unit: What a numeric budget counts: words, tokens or characters.
        window: Sentences shown before and after each matched unit.

    Example:
        >>> from llama_pack_densex import DenseXRetrievalPack, PropositionContextPostprocessor, load_sample
        >>> sample = load_sample("en")
        >>> pack = DenseXRetrievalPack(sample.documents, propositionizer=sample.propositionizer())
        >>> results = pack.retrieve("How deep is the water where the tower stands?")
        >>> postprocessor = PropositionContextPostprocessor(mode="window", budget=120, window=0)
        >>> sum(len(result.text.split()) for result in postprocessor.postprocess_nodes(results)) <= 120
        True
    """

    mode: ContextMode = Field(default=DEFAULT_MODE, description="What the LLM reads.")
    budget: PositiveInt | Literal["auto"] | None = Field(
        default="auto", description="The maximum length of the context."
    )
    unit: BudgetUnit = Field(default="words", description="What the budget counts.")
    window: int = Field(
        default=1, ge=0, description="Sentences before and after each matched unit."
    )

    @classmethod
    def class_name(cls) -> str:
        return "PropositionContextPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        context = self._empty_context(nodes)
        question = query_bundle.query_str if query_bundle else ""
        facts = self._facts_of(nodes, question)
        if not facts:
            context.add(nodes)
            return context.nodes
        if self.mode == "propositions+passages":
            context.add_facts_and_passages(facts, nodes, self.window)
            return context.nodes
        if self.mode == "propositions":
            context.add_facts(facts, math.inf)
        else:
            if not context.is_limited:  # windows around all facts would be the passages again
                facts = choose_facts(facts, FACT_WORDS)
            context.add_windows(facts, self.window)
        context.add([node for node in nodes if not units_of(node)])
        return context.nodes

    def _empty_context(self, nodes: Sequence[NodeWithScore]) -> _Context:
        if self.budget != "auto":
            return _Context(self.budget, self.unit)
        if self.mode == "passages":
            return _Context(None, "words")
        return _Context(max(1, WORDS_A_NODE * len(nodes)), "words")

    def _facts_of(self, nodes: Sequence[NodeWithScore], question: str) -> list[Fact]:
        """Return the facts to assemble a context of; none if the nodes are to be shown as they are."""
        is_assembled = any(node.metadata.get(GRANULARITY_KEY) == _FACTS for node in nodes)
        if self.mode == "passages" or is_assembled:
            return []
        return rank_facts(nodes, question, self.mode == "propositions+passages")


class _Context:
    """A context that grows within a budget."""

    def __init__(self, limit: int | None, unit: BudgetUnit) -> None:
        self.nodes: list[NodeWithScore] = []
        self.is_limited = limit is not None
        self._unit = unit
        self._fact_words: float = FACT_WORDS
        self._room = math.inf
        if limit is not None:
            self._fact_words = FACT_SHARE * limit / _WORD_LENGTH[unit]
            self._room = limit + _BETWEEN_NODES[unit]

    def _cost(self, text: str) -> float:
        """Return how much of the budget the text of a node takes, separator included; 0 without a budget."""
        if not self.is_limited:
            return 0.0
        return size_of(text, self._unit) + _BETWEEN_NODES[self._unit]

    def add(self, nodes: Sequence[NodeWithScore]) -> None:
        """Add nodes, whole or as many of their first sentences as fit."""
        for node in nodes:
            if not self._add_whole([node]):
                beginning = MatchedUnit(node.node_id, "", 0.0, "passage", "")
                self.add_windows([Fact(beginning, node)], 0, fill=True)

    def _add_whole(self, nodes: Sequence[NodeWithScore]) -> bool:
        """Add the nodes if all of them fit together; return whether they did."""
        cost = sum(self._cost(node.get_content(MetadataMode.LLM)) for node in nodes)
        if cost > self._room:
            return False
        self.nodes += nodes
        self._room -= cost
        return True

    def add_windows(self, facts: Sequence[Fact], width: int, fill: bool = False) -> None:
        """Add the sentences around the matched units of each passage, in reading order; merge overlaps.

        Args:
            facts: The matched units, best first. A unit whose window does not fit gets only its own
                sentences, or is left out. Passages are ordered by their best unit.
            width: Sentences before and after each unit.
            fill: Whether to widen the windows, the best unit's first, until nothing more fits.
        """
        passages = {}
        windows = []
        for fact in facts:
            node_id = fact.source.node_id
            if node_id not in passages:
                passages[node_id] = _Passage(fact.source, self._cost)
            windows.append((passages[node_id], passages[node_id].places(fact.unit.text)))
        shown: dict[_Passage, None] = {}
        grows = True
        while grows:
            grows = False
            for passage, own in windows:
                if self._widen(passage, own, width):
                    shown[passage] = None
                    grows = fill
            width += 1
        self.nodes += [passage.excerpt() for passage in shown]

    def _widen(self, passage: _Passage, own: frozenset[int], width: int) -> bool:
        """Show the window around some sentences of a passage, or else only these sentences.

        Returns:
            Whether either added sentences and fitted into the budget.
        """
        for window in (passage.around(own, width), own):
            if window <= passage.shown:
                continue
            places = passage.shown | window
            added = passage.cost_of(places) - passage.cost_of(passage.shown)
            if added <= self._room:
                self._room -= added
                passage.shown = places
                return True
        return False

    def add_facts_and_passages(
        self, ranked: Sequence[Fact], nodes: Sequence[NodeWithScore], width: int
    ) -> None:
        """Add the best facts, then the passages: whole if all fit, else the sentences around their facts."""
        shown = {fact.unit.id for fact in self.add_facts(ranked, self._fact_words)}
        passages = [node for node in nodes if node.node_id not in shown]
        if self._add_whole(passages):
            return
        facts = [fact for fact in ranked if fact.source.node_id not in shown]
        self.add_windows(facts, width, fill=True)
        # lacks the passages whose units all repeat others
        with_facts = {fact.source.node_id for fact in facts}
        self.add([node for node in passages if node.node_id not in with_facts])

    def add_facts(self, ranked: Sequence[Fact], words: float) -> list[Fact]:
        """Add a node that lists the best facts, up to a number of words, and return these facts."""

        def fit(facts: Sequence[Fact]) -> bool:
            return self._cost(render_facts(facts)) <= self._room

        facts = choose_facts(ranked, words, fit)
        if facts:
            self._add_whole([_facts_node(facts)])
        return facts


@dataclass(frozen=True)
class Fact:
    """A matched unit and the retrieved node that it found."""

    unit: MatchedUnit
    source: NodeWithScore

    @functools.cached_property
    def tokens(self) -> frozenset[str]:
        """The tokens of the unit."""
        return frozenset(tokenize(self.unit.text))

    @functools.cached_property
    def distinctive(self) -> frozenset[str]:
        """The numbers and negations of the unit."""
        return frozenset(_DISTINCTIVE.findall(self.unit.text.casefold()))

    def repeats(self, better: Fact) -> bool:
        """Return whether a better unit says the same; see `NEAR_DUPLICATE`."""
        shared = self.tokens & better.tokens
        is_similar = len(shared) >= NEAR_DUPLICATE * len(self.tokens)
        return is_similar and self.distinctive <= better.distinctive


def is_unit(node: NodeWithScore) -> bool:
    """Return whether a retrieved node is itself a unit, as retrievers that follow no links return them."""
    return node.metadata.get(GRANULARITY_KEY) in ("proposition", "sentence", "question")


def units_of(node: NodeWithScore) -> list[MatchedUnit]:
    """Return the units that found a node, best first; a retrieved unit that no other one found is its own."""
    units = matched_units(node.node)
    if units or not is_unit(node):
        return units
    return MatchedUnit.of_record(NodeRecord.of(node.node), node.score or 0.0)


def rank_facts(
    nodes: Sequence[NodeWithScore], question: str = "", passages_follow: bool = False
) -> list[Fact]:
    """Return the units that found these nodes, best first and each once.

    Left out are units that repeat a better one and, unless no others remain, units that say nothing by
    themselves. A unit ranks by its own score plus half the score of the node it found, each as a share of the
    best one's, so that a good unit of a good passage comes first; and by the question's words that name its
    document (see `TITLE_WEIGHT`). A unit that was itself retrieved counts as found by itself, and belongs to
    its passage if that was retrieved too.

    Args:
        nodes: The retrieved nodes.
        question: The question; empty if it is not known.
        passages_follow: Whether the passages are read too; then a sentence is not listed beside propositions
            made from it.
    """
    by_id = {node.node_id: node for node in nodes}
    facts: dict[str, Fact] = {}
    for node in nodes:
        passage = node
        if isinstance(node.node, IndexNode):
            passage = by_id.get(node.node.index_id, node)
        for unit in units_of(node):
            facts.setdefault(unit.id, Fact(unit, passage))
    ranked = _by_score(facts.values(), question)
    ranked = [fact for fact in ranked if not says_nothing(fact.unit.text)] or ranked
    if passages_follow:
        ranked = _one_kind_a_place(ranked)
    return _without_repetition(ranked)


def _by_score(facts: Collection[Fact], question: str) -> list[Fact]:
    best_unit = max((abs(fact.unit.score) for fact in facts), default=0.0) or 1.0
    best_node = max((abs(fact.source.score or 0.0) for fact in facts), default=0.0) or 1.0
    words = content_words(question)
    titles = [_tokens_of(title_above(fact.source)) for fact in facts]
    named = words & frozenset().union(*titles)

    def rank(fact: Fact) -> float:
        own = fact.unit.score / best_unit
        of_passage = (fact.source.score or 0.0) / best_node
        of_title = len(_words_naming(fact, named)) / max(1, len(words))
        return own + PASSAGE_WEIGHT * of_passage + TITLE_WEIGHT * of_title

    return sorted(facts, key=rank, reverse=True)


def _words_naming(fact: Fact, named: Set[str]) -> Set[str]:
    """Return the words that name what a fact is about, of those by which a question names documents: in the
    title or in the fact itself. In a second hop, what led to the fact names its document.
    """
    title = _tokens_of(title_above(fact.source))
    return (named & (title | fact.tokens)) | (title & _tokens_of(fact.unit.led_by))


@functools.lru_cache(maxsize=512)
def _tokens_of(text: str) -> frozenset[str]:
    return frozenset(tokenize(text))


def title_above(node: NodeWithScore) -> str:
    """Return the title of a node's document, or the headings above the node if the document has no title."""
    return str(node.metadata.get(TITLE_KEY) or node.metadata.get(SECTION_KEY) or "")


def choose_facts(
    ranked: Iterable[Fact],
    words: float,
    fits: Callable[[Sequence[Fact]], bool] = lambda facts: True,
) -> list[Fact]:
    """Take facts from the best down, skipping those that do not fit beside the ones already taken.

    Args:
        ranked: Facts, best first.
        words: Limit in words; the first fact is taken even if it alone exceeds this.
        fits: Returns whether a choice of facts fits into the context; it applies to the first fact too.
    """
    kept: list[Fact] = []
    taken = 0.0
    for fact in ranked:
        length = count_words(fact.unit.text)
        if (not kept or taken + length <= words) and fits([*kept, fact]):
            kept.append(fact)
            taken += length
    return kept


def render_facts(facts: Sequence[Fact]) -> str:
    """Write facts as a list, with the footnotes of their sources, under the titles of their documents.

    Args:
        facts: Facts, best first; a title takes the place of its best fact.
    """
    lines_by_title = defaultdict(list)
    for fact in facts:
        metadata = fact.source.metadata
        title = str(metadata.get(TITLE_KEY, "")).strip()
        text = _BULLET.sub("", fact.unit.text.strip())
        line = f"- {text} {metadata.get(FOOTNOTE_KEY, '')}"
        lines_by_title[title].append(line.rstrip())
    groups = [filter(None, [title, *lines]) for title, lines in lines_by_title.items()]
    return "\n\n".join(map("\n".join, groups))


def _facts_node(facts: Sequence[Fact]) -> NodeWithScore:
    text = render_facts(facts)
    node_id = str(uuid.uuid5(_NAMESPACE, text))
    node = TextNode(id_=node_id, text=text, metadata={GRANULARITY_KEY: _FACTS})
    node.excluded_embed_metadata_keys = list(BOOKKEEPING_KEYS)
    node.excluded_llm_metadata_keys = list(BOOKKEEPING_KEYS)
    return carrying(node, facts[0].source.score, [fact.unit for fact in facts])


def says_nothing(text: str) -> bool:
    """Return whether a unit says nothing without the text around it.

    Tags, link labels, emphasised headings, lines that introduce a list, congratulations and "see here" say
    nothing. A unit with a number, other than a list's, always says something.
    """
    text = _MARKER.sub("", text.strip())
    bare = _MARKUP.sub(" ", readable_text(text)).strip()
    if any(map(str.isdigit, bare)):
        return False
    if bare.endswith((":", "：")):
        return count_words(bare) < OF_LEAD_IN
    if _COURTESY.fullmatch(bare):
        return True
    is_label = count_words(bare) < LEAST_WORDS or bool(_EMPHASISED.fullmatch(text))
    return is_label and not _PREDICATE.search(bare)


def _without_repetition(facts: Iterable[Fact]) -> list[Fact]:
    kept: list[Fact] = []
    for fact in facts:
        if not any(map(fact.repeats, kept)):
            kept.append(fact)
    return kept


def _one_kind_a_place(facts: Sequence[Fact]) -> list[Fact]:
    """Drop sentences that rank below propositions made from them, and the reverse; see `SAME_PLACE`."""
    kept = []
    facts_at: defaultdict[tuple[str, Span], list[Fact]] = defaultdict(list)
    for fact in facts:
        unit = fact.unit
        if unit.span and not unit.unverified:
            better = facts_at[fact.source.node_id, unit.span]
            others = [other for other in better if other.unit.granularity != unit.granularity]
            stated = frozenset().union(*(other.tokens for other in others))
            if len(fact.tokens & stated) >= SAME_PLACE * len(fact.tokens):
                continue
            better.append(fact)
        kept.append(fact)
    return kept


class _Passage:
    """A retrieved node, split into sentences; a retrieved unit, into those of the units it stands for.

    Sentences are given by their numbers, from 0.

    Attributes:
        shown: The sentences to show.
    """

    def __init__(self, node: NodeWithScore, cost: Callable[[str], float]) -> None:
        self.shown: frozenset[int] = frozenset()
        self._cost = cost
        self._costs = {self.shown: 0.0}
        self._node = node
        self._text = node.get_content()
        self._is_unit = is_unit(node)
        self._copy = node.node.model_copy()
        context = context_of(node.node)
        if self._is_unit:
            self._text = "\n".join(unit.text for unit in units_of(node))
            context = ""
        blocks = find_blocks(self._text, context)
        starts = [block.start for block in blocks]
        self._spans = [part.span for part in segment(self._text, context)]
        # the block of each sentence
        self._blocks = [blocks[bisect_right(starts, start) - 1] for start, _ in self._spans]
        stated = statements(self._text, context)
        self._statements = {statement.text: statement.span for statement in stated}

    @functools.cached_property
    def _tokens(self) -> list[frozenset[str]]:
        """The tokens of each sentence; none for a table's header, which states nothing."""
        tokens = []
        for block, (start, end) in zip(self._blocks, self._spans, strict=True):
            stated = "" if block.kind == "columns" else self._text[start:end]
            tokens.append(frozenset(tokenize(stated)))
        return tokens

    def _within(self, start: int, end: int) -> frozenset[int]:
        """Return the sentences that lie in a span of the text, wholly or in part."""
        first = bisect_right(self._spans, start, key=lambda span: span[1])
        return frozenset(range(first, bisect_left(self._spans, end, key=lambda span: span[0])))

    def places(self, unit: str) -> frozenset[int]:
        """Return the sentences that a unit was made from.

        These are the sentences that contain it word for word, else the most similar one; for an empty unit,
        the first sentence.
        """
        unit = unit.strip()
        if not self._spans:
            return frozenset()
        if not unit:
            return frozenset([0])
        if unit in self._statements:
            return self._within(*self._statements[unit])
        start = self._text.find(unit)
        if start >= 0:
            return self._within(start, start + len(unit))
        tokens = set(tokenize(unit))

        def likeness(place: int) -> tuple[int, int]:
            shared = len(tokens & self._tokens[place])
            return shared, shared and -len(self._tokens[place])

        # a tie goes to the shorter sentence; if none shares a token, the first one is taken
        return frozenset([max(range(len(self._spans)), key=likeness)])

    def around(self, places: frozenset[int], width: int) -> frozenset[int]:
        """Return the sentences with `width` neighbours on each side; units have no neighbours."""
        if self._is_unit:
            return places
        last = len(self._spans) - 1
        windows = (range(max(place - width, 0), min(place + width, last) + 1) for place in places)
        return frozenset().union(*windows)

    def cost_of(self, places: frozenset[int]) -> float:
        """Return how much of the budget an excerpt with these sentences takes."""
        if places not in self._costs:
            self._copy.set_content(self._text_of(self._runs_of(places)))
            self._costs[places] = self._cost(self._copy.get_content(MetadataMode.LLM))
        return self._costs[places]

    def excerpt(self) -> NodeWithScore:
        """Return a copy of the node with the shown sentences and the lines they need to be understood."""
        runs = self._runs_of(self.shown)
        copy = self._node.node.model_copy()
        copy.set_content(self._text_of(runs))
        copy.embedding = None
        if isinstance(copy, TextNode):
            offset = copy.start_char_idx
            copy.start_char_idx = None
            copy.end_char_idx = None
            if offset is not None and len(runs) == 1 and self._text == self._node.get_content():
                copy.start_char_idx = offset + runs[0][0]
                copy.end_char_idx = offset + runs[0][1]
        return NodeWithScore(node=copy, score=self._node.score)

    def _runs_of(self, places: frozenset[int]) -> list[Span]:
        """Return the spans of some sentences and of what they need: a table's header, the line above a list.

        Adjacent sentences form one span, with whatever stands between them.
        """
        needs = (self._within(*span) for place in places for span in self._blocks[place].needs)
        runs: list[Span] = []
        last = None
        for place in sorted(places.union(*needs)):
            start, end = self._spans[place]
            if last is not None and last == place - 1:
                start = runs.pop()[0]
            runs.append((start, end))
            last = place
        return runs

    def _text_of(self, runs: Sequence[Span]) -> str:
        return GAP.join(self._text[start:end] for start, end in runs)


def size_of(text: str, unit: BudgetUnit) -> float:
    """Return the length of a text in words (see `count_words`), LlamaIndex's tokens, or characters."""
    if unit == "words":
        return count_words(text)
    if unit == "tokens":
        return count_tokens(text)
    return len(text)


def count_words(text: str) -> float:
    """Count the words of a text; a Chinese, Japanese or Korean character counts as half a word.

    Whatever stands between two spaces, even a dash, counts as at least one word, so that
    `len(text.split())` is never larger.
    """
    return sum(map(_words_of, text.split()))


@functools.lru_cache(maxsize=4096)  # building a context counts the same words many times
def _words_of(piece: str) -> float:
    """Count the words in a piece of text without spaces."""
    spaced, runs = _CJK_RUN.subn(" ", piece)
    cjk_characters = len(piece) - len(spaced) + runs
    return max(1.0, cjk_characters / 2 + len(_WORD.findall(spaced)))
