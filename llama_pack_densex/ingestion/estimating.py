"""Going through documents and counting what their propositions will take, without asking for any."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from llama_index.core.schema import BaseNode, MetadataMode

from llama_pack_densex.ingestion.ratios import QUOTES, Nodes, Tally, node_bytes, ratios_of
from llama_pack_densex.llm_requests.clients import Messages
from llama_pack_densex.llm_requests.counting import count_messages, count_tokens
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.node_parsers.metadata import BOOKKEEPING_KEYS, GRANULARITY_KEY, SECTION_KEY, TITLE_KEY
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.propositionizers.grouping import group_messages
from llama_pack_densex.propositionizers.language import detect_language
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.prompts import prompt_key
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.propositionizers.requesting import GROUPED
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer, passage_sentences


@dataclass(frozen=True)
class Drawn:
    """A passage of the sample."""

    passage: Passage
    language: str


class Survey:
    """Counts documents one after the other, and draws a sample of their passages.

    Args:
        parser: What is to make nodes of the documents.
        sample: Passages to draw, every distinct one with the same chance, but for those that are recorded.
        indexed: Hashes of documents (`BasePropositionNodeParser.document_hash`) that need not be done again.

    Attributes:
        documents: Documents so far, without those that are indexed.
        unchanged: Documents that are indexed.
        broken: Documents that cannot be split.
        first_error: What is wrong with the first of them.
        expected: What passages are expected to take, by language.
        known: What those take whose propositions are known, by language.
        base_nodes: Sections and passages.
        drawn: The sample, of passages with and without a reply in the cache.
    """

    def __init__(self, parser: BasePropositionNodeParser, sample: int = 0, indexed: Collection[str] = ()) -> None:
        self._propositionizer, self._sample, self._indexed = parser.propositionizer, sample, indexed
        self._document_hash = parser.document_hasher()
        self._bare = parser.model_copy(update={"granularity": ()})  # splits, and asks for nothing
        self._makes_propositions = "proposition" in parser.granularity
        self._makes_sentences = "sentence" in parser.granularity
        self._seen: set[int] = set()
        self._random, self._drawable = random.Random(0), 0
        self.documents = self.unchanged = self.broken = 0
        self.first_error = ""
        self.expected: defaultdict[str, Tally] = defaultdict(Tally)
        self.known: defaultdict[str, Tally] = defaultdict(Tally)
        self.base_nodes = Nodes()
        self.drawn: list[Drawn] = []
        asker = asked_llm(self._propositionizer) if self._makes_propositions else None
        self._recording: RecordedPropositionizer | None = None
        if isinstance(self._propositionizer, RecordedPropositionizer) and asker is not None:
            self._recording = RecordedPropositionizer(self._propositionizer.path)
        self._requests = RequestCount(asker, self.expected) if asker is not None else None

    def add(self, documents: Iterable[BaseNode]) -> None:
        """Count documents, one after the other."""
        for parsed in self._bare.stream(document for document in documents if self._is_new(document)):
            if parsed.error is not None:
                self.broken += 1
                self.first_error = self.first_error or str(parsed.error)
                continue
            self.documents += 1
            nodes = [_Counted.of(node) for node in parsed.nodes]
            for one in nodes:
                self.base_nodes += one.nodes(1, one.tokens)
            passages = [one for one in nodes if one.is_passage]
            for one, made in zip(passages, self._sets([one.passage for one in passages]), strict=True):
                self._add_passage(one, made)
        if self._requests is not None:
            self._requests.finish()

    def _is_new(self, document: BaseNode) -> bool:
        if self._indexed and self._document_hash(document) in self._indexed:
            self.unchanged += 1
            return False
        return True

    def _add_passage(self, one: _Counted, made: PropositionSet | None) -> None:
        tally = (self.expected if made is None else self.known)[one.language]
        tally.passages += 1
        tally.text_tokens += one.tokens
        digest = _digest(one.passage)
        if digest not in self._seen:
            self._seen.add(digest)
            tally.distinct += 1
            if made is None:
                self._add_request(one, tally)
        ratios = ratios_of(one.language)
        if made is None:
            count, tokens = one.tokens * ratios.propositions, one.tokens * (ratios.reply - QUOTES)
            new_sentences = ratios.new_sentences
        else:
            count, tokens = float(len(made.texts)), float(sum(map(count_tokens, made.texts)))
            new_sentences = new_sentences_in(one.passage, made)
        tally.propositions += one.nodes(count, tokens)
        if self._makes_sentences:
            sentences = len(passage_sentences(one.passage.text))
            tally.sentences += one.nodes(sentences * new_sentences, one.tokens * new_sentences)

    def _add_request(self, one: _Counted, tally: Tally) -> None:
        self._draw(Drawn(one.passage, one.language))
        if self._requests is None:
            return
        if self._requests.is_kept(one.passage):
            tally.kept += 1
            return
        self._requests.add(one.passage, one.language)
        tally.output_tokens += one.tokens * ratios_of(one.language).reply

    def _sets(self, passages: Sequence[Passage]) -> Sequence[PropositionSet | None]:
        """The sets of passages, where they can be had for nothing."""
        if not self._makes_propositions:
            return [PropositionSet(())] * len(passages)
        if runs_free(self._propositionizer):
            return self._propositionizer.propositionize(passages)
        return [self._recorded(passage) for passage in passages]

    def _recorded(self, passage: Passage) -> PropositionSet | None:
        if self._recording is None:
            return None
        try:
            return self._recording.propositionize([passage])[0]
        except ValueError:  # it is not in the recording
            return None

    def _draw(self, passage: Drawn) -> None:
        """Vitter's algorithm R."""
        self._drawable += 1
        if len(self.drawn) < self._sample:
            self.drawn.append(passage)
        elif (place := self._random.randrange(self._drawable)) < self._sample:
            self.drawn[place] = passage


class RequestCount:
    """Counts the requests for passages, and the tokens in them.

    Args:
        propositionizer: What is to ask.
        tallies: Where to, by language.
    """

    def __init__(self, propositionizer: LLMPropositionizer, tallies: MutableMapping[str, Tally]) -> None:
        self._requests, self._size = propositionizer.requests(), propositionizer.passages_per_request
        self._cache = propositionizer.cache
        self._tallies = tallies
        self._waiting: defaultdict[str, list[Drawn]] = defaultdict(list)

    def is_kept(self, passage: Passage) -> bool:
        """Whether the reply for a passage is in the cache."""
        if self._cache is None:
            return False
        question = self._requests.first_question(passage)
        kinds = ("", GROUPED) if self._size > 1 else ("",)
        return bool(self._cache.known([self._requests.sender.key(question, kind) for kind in kinds]))

    def add(self, passage: Passage, language: str) -> None:
        """Count a passage."""
        name = prompt_key(language)
        self._waiting[name].append(Drawn(passage, language))
        if len(self._waiting[name]) >= self._size:
            self._count(name, self._waiting.pop(name))

    def finish(self) -> None:
        """Count the requests with fewer passages than there may be."""
        for name, group in self._waiting.items():
            self._count(name, group)
        self._waiting.clear()

    def _count(self, prompt: str, group: Sequence[Drawn]) -> None:
        passages, language = [one.passage for one in group], group[0].language
        if len(passages) > 1:
            messages: Messages = group_messages(self._requests.prompts[prompt], self._requests.llm, passages, language)
        else:
            messages = self._requests.first_question(passages[0]).messages
        self._tallies[language].requests += 1
        self._tallies[language].input_tokens += count_messages(messages)


def new_sentences_in(passage: Passage, made: PropositionSet) -> float:
    """The share of a passage's sentences that are no propositions word for word: they are nodes of their own."""
    sentences = passage_sentences(passage.text)
    return sum(sentence not in made.texts for sentence in sentences) / max(len(sentences), 1)


def asked_llm(propositionizer: Propositionizer) -> LLMPropositionizer | None:
    """What asks an LLM for the passages that a propositionizer has no other way to do; None where nothing does."""
    if isinstance(propositionizer, RecordedPropositionizer):
        return None if propositionizer.otherwise is None else asked_llm(propositionizer.otherwise)
    return propositionizer if isinstance(propositionizer, LLMPropositionizer) else None


def runs_free(propositionizer: Propositionizer) -> bool:
    """Whether a propositionizer can be run here and now: it needs neither an LLM nor another model."""
    if isinstance(propositionizer, RecordedPropositionizer):
        return propositionizer.otherwise is None or runs_free(propositionizer.otherwise)
    return isinstance(propositionizer, SentencePropositionizer)


@dataclass(frozen=True)
class _Counted:
    """A base node, counted.

    Args:
        passage: It, as propositions would be made of it.
        is_passage: Whether propositions are made of it; of a section none are.
        language: Its language.
        tokens: Those of its text.
        metadata_tokens: Those that its metadata adds to it, and to each unit under it, where they are embedded.
        metadata_bytes: What its metadata takes as JSON.
    """

    passage: Passage
    is_passage: bool
    language: str
    tokens: int
    metadata_tokens: int
    metadata_bytes: int

    @classmethod
    def of(cls, node: BaseNode) -> _Counted:
        passage = Passage(node.get_content(), str(node.metadata[TITLE_KEY]), str(node.metadata[SECTION_KEY]))
        metadata = {key: value for key, value in node.metadata.items() if key not in BOOKKEEPING_KEYS}
        shown = node.get_metadata_str(mode=MetadataMode.EMBED)
        return cls(
            passage,
            node.metadata[GRANULARITY_KEY] == "passage",
            detect_language(passage.text, f"{passage.title}\n{passage.section}"),
            count_tokens(passage.text),
            _count_once(f"{shown}\n\n") if shown else 0,
            len(json.dumps(metadata, ensure_ascii=False, default=str).encode("utf-8", "replace")),
        )

    def nodes(self, count: float, tokens: float) -> Nodes:
        """Nodes made of this one, with its metadata.

        Args:
            count: How many.
            tokens: The tokens of their texts.
        """
        text = tokens * len(self.passage.text.encode("utf-8", "replace")) / max(self.tokens, 1)
        return Nodes(
            count,
            tokens + count * self.metadata_tokens,
            node_bytes(count, text, self.metadata_bytes, self.language),
        )


@lru_cache(maxsize=64)
def _count_once(text: str) -> int:
    return count_tokens(text)


def _digest(passage: Passage) -> int:
    text = "\0".join((passage.text, passage.title, passage.section))
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")
