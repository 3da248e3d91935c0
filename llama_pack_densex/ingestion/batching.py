"""The propositions of documents by OpenAI's Batch API: documents to request files, result files to kept replies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from llama_index.core.llms import LLM
from llama_index.core.schema import BaseNode
from llama_index.llms.openai import OpenAI
from llama_index.llms.openai.utils import to_openai_message_dicts

from llama_pack_densex.ingestion.batch_files import BatchResult, RequestFiles, read_results, request_line
from llama_pack_densex.ingestion.ratios import ratios_of
from llama_pack_densex.llm_requests.clients import Messages
from llama_pack_densex.llm_requests.counting import count_messages, count_tokens
from llama_pack_densex.llm_requests.prices import PriceTable, price_of
from llama_pack_densex.llm_requests.reply import NOTHING, Reply, Usage
from llama_pack_densex.llm_requests.reply_cache import ReplyCache
from llama_pack_densex.llm_requests.sending import Question
from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.propositionizers.language import detect_language
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.requesting import GROUPED

_TOGETHER = 500  # passages or results that the cache is asked about at a time
_KEY = re.compile(r"[0-9a-f]{24}-[0-9a-f]{32}")  # what `reply_key` returns
_NOT_IN_THE_BODY = ("extra_headers", "extra_query", "timeout")  # the client's, though they come with the settings


@dataclass(frozen=True)
class ExportCounts:
    """What was made into requests.

    Args:
        documents: Documents that were gone through.
        unchanged: Further ones that the index has as they are.
        failed: Further ones that cannot be split.
        passages: Passages of the documents.
        identical: Passages that are like an earlier one.
        kept: Passages whose reply is kept already.
        requests: Requests that were written: one for each of the other passages.
        expected: What they will use: tokens sent as they were counted, tokens received as they were measured to be.
    """

    documents: int = 0
    unchanged: int = 0
    failed: int = 0
    passages: int = 0
    identical: int = 0
    kept: int = 0
    requests: int = 0
    expected: Usage = NOTHING


def export_requests(
    documents: Iterable[BaseNode],
    parser: BasePropositionNodeParser,
    files: RequestFiles,
    *,
    indexed: Collection[str] = (),
    on_failure: Callable[[BaseNode, ValueError], None] = lambda document, error: None,
) -> ExportCounts:
    """Write a request for each passage whose reply is not kept.

    A request is what the live path sends first for a passage, under the key that its reply is kept by: once the result
    is imported, the live path reads it in place of asking. Requests are for one passage each, also where the
    propositionizer asks for several together; a passage that has a reply by itself is then left out of such a request.

    Documents are read one after the other: memory grows by some bytes a passage.

    Args:
        documents: The documents.
        parser: What will make nodes of them, with an `LLMPropositionizer`, whose cache counts.
        files: Where to; entered.
        indexed: Hashes of documents (`parser.document_hash`) that need not be done again.
        on_failure: Called with a document that cannot be split.

    Raises:
        ValueError: The LLM has no requests for the Batch API, or a request is larger than a file may be.
    """
    export = _Export(parser, indexed, on_failure)
    for question in export.missing(documents):
        files.add(request_line(export.key(question), export.body(question.messages)))
    return export.counts()


def body_maker(llm: LLM) -> Callable[[Messages], dict[str, Any]]:
    """What makes the body of a request, as LlamaIndex's OpenAI does for `chat`.

    Raises:
        ValueError: The LLM is none of llama-index-llms-openai, or it does not chat.
    """
    if not isinstance(llm, OpenAI):
        raise ValueError(
            "the Batch API takes the requests of llama-index-llms-openai's OpenAI and of what is built on it, not of "
            f"{type(llm).__name__}: let it be asked directly"
        )
    if not llm.metadata.is_chat_model:
        raise ValueError(f"{llm.model} completes texts, and the requests are for models that chat: choose another")
    settings = llm._get_model_kwargs()
    further = settings.pop("extra_body", None) or {}
    settings = {name: value for name, value in settings.items() if name not in _NOT_IN_THE_BODY}

    def body(messages: Messages) -> dict[str, Any]:
        return {**settings, "messages": to_openai_message_dicts(messages, model=llm.model), **further}

    return body


class _Export:
    """Goes through documents and counts."""

    def __init__(
        self,
        parser: BasePropositionNodeParser,
        indexed: Collection[str],
        on_failure: Callable[[BaseNode, ValueError], None],
    ) -> None:
        propositionizer = parser.propositionizer
        if not isinstance(propositionizer, LLMPropositionizer):
            raise ValueError(f"{propositionizer.class_name()} asks no LLM: there is nothing to export")
        self._parser, self._indexed, self._on_failure = parser, indexed, on_failure
        self._document_hash = parser.document_hasher()
        self._requests, self._cache = propositionizer.requests(), propositionizer.cache
        self._kinds = ("", GROUPED) if propositionizer.passages_per_request > 1 else ("",)
        self.body = body_maker(propositionizer.llm)
        self._seen: set[int] = set()
        self._counted: Counter[str] = Counter()

    def key(self, question: Question) -> str:
        """What the reply to a question is kept by."""
        return self._requests.sender.key(question)

    def missing(self, documents: Iterable[BaseNode]) -> Iterator[Question]:
        """What is to be asked about the documents, each question once."""
        questions = self._questions(documents)
        while some := list(islice(questions, _TOGETHER)):
            kept = self._kept(some)
            for question in some:
                if kept.isdisjoint(self._keys(question)):
                    self._count(question)
                    yield question
                else:
                    self._counted["kept"] += 1

    def counts(self) -> ExportCounts:
        """What it came to."""
        numbers = dict(self._counted)
        expected = Usage(numbers.get("requests", 0), numbers.pop("input", 0), numbers.pop("output", 0))
        return ExportCounts(**numbers, expected=expected)

    def _questions(self, documents: Iterable[BaseNode]) -> Iterator[Question]:
        for passage in self._passages(documents):
            self._counted["passages"] += 1
            question = self._requests.first_question(passage)
            digest = int.from_bytes(blake2b(self.key(question).encode(), digest_size=8).digest(), "big")
            if digest in self._seen:
                self._counted["identical"] += 1
                continue
            self._seen.add(digest)
            yield question

    def _passages(self, documents: Iterable[BaseNode]) -> Iterator[Passage]:
        for document in documents:
            if self._indexed and self._document_hash(document) in self._indexed:
                self._counted["unchanged"] += 1
                continue
            try:
                passages = self._parser.passages_of(document)
            except ValueError as error:
                self._counted["failed"] += 1
                self._on_failure(document, error)
                continue
            self._counted["documents"] += 1
            yield from (passage for passage in passages if passage.text.strip())

    def _keys(self, question: Question) -> list[str]:
        return [self._requests.sender.key(question, kind) for kind in self._kinds]

    def _kept(self, questions: Sequence[Question]) -> set[str]:
        if self._cache is None:
            return set()
        return self._cache.known([key for question in questions for key in self._keys(question)])

    def _count(self, question: Question) -> None:
        text = question.passage
        self._counted["requests"] += 1
        self._counted["input"] += count_messages(question.messages)
        self._counted["output"] += round(count_tokens(text) * ratios_of(detect_language(text)).reply)


@dataclass(frozen=True)
class ImportReport:
    """What came of result files.

    Args:
        lines: Results in the files.
        imported: Those that are kept from now on.
        already_there: Those for which something had been kept before; that stays.
        unusable: The others, by reason; what they were to be the replies to is asked for directly.
        outcomes: The imported ones by why the reply ended: "stop", "length" (cut off), "filtered", "refused" or "" (it
            does not say); or "filtered" and "too_long" for requests that the provider did not take.
        usage: What the imported ones used.
        cost: What they cost by the Batch API; None where a model's price is not known.
        models: The models that answered.
    """

    lines: int
    imported: int
    already_there: int
    unusable: dict[str, int]
    outcomes: dict[str, int]
    usage: Usage
    cost: float | None
    models: tuple[str, ...]


def import_results(files: Sequence[Path], cache: ReplyCache, prices: PriceTable) -> ImportReport:
    """Keep the replies in output files of the Batch API, where there is none yet; error files may be among them.

    Lines are read one after the other, in any order; those that cannot be used are counted.

    Args:
        files: The files.
        cache: Where to keep them.
        prices: What `read_prices` returned.

    Raises:
        OSError: A file cannot be read, or the cache cannot be written. What was kept until then stays.
    """
    imported = _Import(cache)
    for file in files:
        with file.open("rb") as stream:
            imported.add_all(read_results(stream))
    return imported.report(prices)


class _Import:
    """Keeps results and counts them."""

    def __init__(self, cache: ReplyCache) -> None:
        self._cache = cache
        self._lines = self._already_there = 0
        self._unusable: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._usage: dict[str, Usage] = {}

    def add_all(self, results: Iterator[BatchResult]) -> None:
        while some := list(islice(results, _TOGETHER)):
            known = self._cache.known([result.custom_id for result in some if _is_usable(result)])
            for result in some:
                self._lines += 1
                self._add(result, known)

    def report(self, prices: PriceTable) -> ImportReport:
        return ImportReport(
            lines=self._lines,
            imported=self._outcomes.total(),
            already_there=self._already_there,
            unusable=dict(self._unusable.most_common()),
            outcomes=dict(self._outcomes.most_common()),
            usage=sum(self._usage.values(), NOTHING),
            cost=_cost(self._usage, prices),
            models=tuple(sorted(filter(None, self._usage))),
        )

    def _add(self, result: BatchResult, known: set[str]) -> None:
        outcome = result.outcome
        if outcome is None:
            self._unusable[result.problem] += 1
        elif not _is_usable(result):
            self._unusable["the custom_id is not of an export of densex"] += 1
        elif result.custom_id in known:
            self._already_there += 1
        else:
            self._cache.put(result.custom_id, outcome)
            known.add(result.custom_id)
            if isinstance(outcome, Reply):
                self._outcomes[outcome.finish] += 1
                self._usage[result.model] = self._usage.get(result.model, NOTHING) + outcome.usage
            else:
                self._outcomes[outcome.kind] += 1


def _is_usable(result: BatchResult) -> bool:
    return result.outcome is not None and _KEY.fullmatch(result.custom_id) is not None


def _cost(usage: Mapping[str, Usage], prices: PriceTable) -> float | None:
    cost = 0.0
    for model, used in usage.items():
        price = price_of(model, prices)
        if price is None:
            return None
        cost += price.of(used, batch=True)
    return cost
