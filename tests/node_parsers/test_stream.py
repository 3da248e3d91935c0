"""Parsing documents as a stream."""

from __future__ import annotations

import gc
import itertools
import json
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode
from llama_index.llms.openai import OpenAI

from llama_pack_densex import (
    HierarchicalPropositionNodeParser,
    LLMPropositionizer,
    Passage,
    Propositionizer,
    PropositionNodeParser,
    SentencePropositionizer,
)
from llama_pack_densex.node_parsers.metadata import DOCUMENT_HASH_KEY, GRANULARITY_KEY
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser, ParsedDocument
from llama_pack_densex.propositionizers.base import PropositionizerError, PropositionSet
from tests.made_up_passages import InstantLLM
from tests.openai_server import OpenAIServer, Reply, asked_content

PARSERS = [PropositionNodeParser, HierarchicalPropositionNodeParser]
GRANULARITIES: list[tuple[str, ...]] = [
    (),
    ("sentence",),
    ("proposition",),
    ("proposition", "sentence"),
]
SENTENCES = (
    "Rain fell. ",
    "The match was called off. ",
    "雨が降った。",
    "試合は中止になった。",
    "\n\n",
    "# Weather\n\n",
)
AHEAD = 1000  # documents of one passage each that may be read before they are yielded


def nodes_of(parsed: Iterable[ParsedDocument]) -> list[dict[str, Any]]:
    return [node.to_dict() for document in parsed for node in document.nodes]


def ids_of(nodes: Iterable[BaseNode]) -> list[str]:
    return [node.node_id for node in nodes]


def numbered(count: int | None = None) -> Iterator[Document]:
    for number in itertools.count() if count is None else range(count):
        yield Document(
            id_=f"文書{number}", text=f"Number {number} is a number. 番号は{number}である。"
        )


def asking(server: OpenAIServer, **settings: Any) -> LLMPropositionizer:
    llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
    return LLMPropositionizer(llm, **{"max_retries": 0, "retry_wait": 0, **settings})


def echo(body: dict[str, Any]) -> str:
    return json.dumps([asked_content(body)], ensure_ascii=False)


@st.composite
def small_documents(draw: st.DrawFn) -> list[Document]:
    """Documents of few sentences: many of equal text, some blank, with ids of their own or made up by
    core."""
    texts = draw(
        st.lists(st.lists(st.sampled_from(SENTENCES), max_size=4).map("".join), max_size=6)
    )
    named = draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    return [
        Document(text=text, **({"id_": f"文書 {number}"} if is_named else {}))
        for number, (text, is_named) in enumerate(zip(texts, named, strict=True))
    ]


# what is yielded


@pytest.mark.parametrize("parser_class", PARSERS)
@given(documents=small_documents(), granularity=st.sampled_from(GRANULARITIES))
@settings(max_examples=40, deadline=None)
def test_the_nodes_are_those_of_get_nodes_from_documents(
    parser_class: type[BasePropositionNodeParser],
    documents: list[Document],
    granularity: tuple[str, ...],
) -> None:
    parser = parser_class(granularity=granularity)
    at_once = [node.to_dict() for node in parser.get_nodes_from_documents(documents)]
    assert nodes_of(parser.stream(documents)) == at_once


@given(documents=small_documents())
@settings(max_examples=40, deadline=None)
def test_each_document_is_yielded_once_and_in_order(documents: list[Document]) -> None:
    parsed = list(PropositionNodeParser().stream(documents))
    assert [each.document for each in parsed] == documents
    assert all(node.ref_doc_id == each.document.id_ for each in parsed for node in each.nodes)


@given(
    texts=st.lists(
        st.lists(st.sampled_from(SENTENCES), max_size=4).map("".join), min_size=2, max_size=5
    )
)
@settings(max_examples=40, deadline=None)
def test_a_document_whose_id_comes_again_has_the_nodes_that_it_has_alone(texts: list[str]) -> None:
    parser = PropositionNodeParser(granularity=("proposition", "sentence"))
    documents = [Document(id_="same", text=text) for text in texts]
    alone = [nodes_of(parser.stream([document])) for document in documents]
    assert [nodes_of([parsed]) for parsed in parser.stream(documents)] == alone


def test_documents_of_equal_text_are_told_from_those_that_the_ids_have_seen() -> None:
    parser = PropositionNodeParser()
    twins = [Document(text="雨が降った。") for _ in range(2)]
    ids = parser.new_ids()
    one_by_one = [
        node for twin in twins for each in parser.stream([twin], ids=ids) for node in each.nodes
    ]
    assert ids_of(one_by_one) == ids_of(parser.get_nodes_from_documents(twins))


def test_blank_documents_are_yielded_without_nodes_wherever_they_stand() -> None:
    texts = ["", " \n", "Rain fell.", "　", "雨が降った。", ""]
    parsed = list(PropositionNodeParser().stream(Document(text=text) for text in texts))
    assert [bool(each.nodes) for each in parsed] == [False, False, True, False, True, False]
    assert all(each.error is None for each in parsed)


def test_nothing_but_blank_documents_asks_for_nothing(server: OpenAIServer) -> None:
    parser = PropositionNodeParser(propositionizer=asking(server))
    assert [each.nodes for each in parser.stream([Document(text=" "), Document(text="")])] == [
        [],
        [],
    ]
    assert server.requests == []


def test_propositions_come_from_the_llm(server: OpenAIServer) -> None:
    parser = PropositionNodeParser(propositionizer=asking(server))
    parsed = list(parser.stream(numbered(20)))
    assert [each.nodes[-1].get_content() for each in parsed] == [
        document.text for document in numbered(20)
    ]
    assert ids_of(node for each in parsed for node in each.nodes) == ids_of(
        parser.get_nodes_from_documents(list(numbered(20)))
    )


async def test_it_works_inside_a_running_event_loop(server: OpenAIServer) -> None:
    parser = PropositionNodeParser(propositionizer=asking(server))
    assert len(list(parser.stream(numbered(3)))) == 3


# when it is read


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_an_endless_iterable_is_read_as_far_as_needed(granularity: tuple[str, ...]) -> None:
    read = itertools.count()
    endless = (document for document in numbered() if next(read) >= 0)
    parsed = list(
        itertools.islice(PropositionNodeParser(granularity=granularity).stream(endless), 3)
    )
    assert [each.document.id_ for each in parsed] == ["文書0", "文書1", "文書2"]
    assert next(read) <= AHEAD


def test_an_endless_iterable_is_read_as_far_as_needed_where_an_llm_is_asked(
    server: OpenAIServer,
) -> None:
    read = itertools.count()
    endless = (document for document in numbered() if next(read) >= 0)
    stream = PropositionNodeParser(propositionizer=asking(server)).stream(endless)
    assert [each.document.id_ for each in itertools.islice(stream, 3)] == [
        "文書0",
        "文書1",
        "文書2",
    ]
    stream.close()
    assert next(read) <= AHEAD
    assert len(server.requests) <= AHEAD


@pytest.mark.parametrize(
    "propositionizer", [SentencePropositionizer(), LLMPropositionizer(InstantLLM())]
)
@pytest.mark.slow
def test_few_documents_are_held_at_a_time(propositionizer: Propositionizer) -> None:
    parser = PropositionNodeParser(propositionizer=propositionizer)
    alive: set[int] = set()
    most = 0

    def counted() -> Iterator[Document]:
        for number, document in enumerate(numbered(2 * AHEAD)):
            alive.add(number)
            weakref.finalize(document, alive.discard, number)
            yield document

    for parsed in parser.stream(counted()):
        most = max(most, len(alive))
        del parsed
    gc.collect()
    assert most <= AHEAD
    assert not alive


def test_a_passage_is_told_of_once_and_in_order(server: OpenAIServer) -> None:
    splitter = SentenceSplitter(chunk_size=60, chunk_overlap=0)
    parser = PropositionNodeParser(base_parser=splitter, propositionizer=asking(server))
    documents = [
        Document(id_=name, text=f"{name} is a place. " * 40)
        for name in ("Arlen", "Porto", "霧ヶ浜")
    ]
    told: list[PropositionSet] = []
    parsed = list(parser.stream(documents, told.append))
    passages = [
        node
        for each in parsed
        for node in each.nodes
        if node.metadata[GRANULARITY_KEY] == "passage"
    ]
    assert [made.texts for made in told] == [(node.get_content(),) for node in passages]
    assert len(passages) > 3


# what is not asked


class NeverAsked(Propositionizer):
    """Fails if it is asked."""

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        raise AssertionError("asked")

    def fingerprint_data(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("granularity", [(), ("sentence",)])
def test_the_propositionizer_is_not_asked_where_no_propositions_are_wanted(
    granularity: tuple[str, ...],
) -> None:
    told: list[PropositionSet] = []
    parser = PropositionNodeParser(propositionizer=NeverAsked(), granularity=granularity)
    parsed = list(parser.stream(numbered(3), told.append))
    assert all(each.nodes and not each.error for each in parsed)
    assert told == []


# what goes wrong


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({"text": "A half \ud83d of a character."}, "text"),
        ({"id_": "半分\ud83d"}, "id"),
        ({"metadata": {"file_path": "/ﾃ/\udc83e.txt"}}, "metadata"),
        ({"metadata": {"a": [{"\ud83d": 1}]}}, "metadata"),
    ],
    ids=["text", "id", "a file's name", "a key"],
)
def test_a_document_that_cannot_be_kept_is_an_error_and_the_others_go_on(
    document: Any, where: str
) -> None:
    documents = [
        *numbered(1),
        Document(**{"id_": "半分", "text": "Rain fell.", **document}),
        *numbered(1),
    ]
    good, bad, again = PropositionNodeParser().stream(documents)
    assert "'半分" in str(bad.error)
    assert re.search(rf"lone surrogate\) at position \d+ of its {where},", str(bad.error))
    assert bad.nodes == []
    assert good.nodes
    assert again.nodes
    assert good.error is again.error is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({("a", "b"): 1}, "the key ('a', 'b') is a tuple"),
        (b"x", "'札' holds a value of type bytes"),
        ({"deep": [{"er": object()}]}, "'er' holds a value of type object"),
        ([10**5000], "'札' holds a number of more than 3,000 digits"),
    ],
)
def test_metadata_that_cannot_be_kept_are_an_error_of_their_document(
    value: Any, problem: str
) -> None:
    documents = [Document(id_="odd", text="Rain fell.", metadata={"札": value}), *numbered(1)]
    bad, good = PropositionNodeParser().stream(documents)
    assert f"the metadata of document 'odd' cannot be kept as JSON: {problem}" in str(bad.error)
    assert good.nodes


class Picky(SentenceSplitter):
    """A base parser that cannot split some texts."""

    def _parse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        if "雨" in nodes[0].get_content():
            raise KeyError("雨")
        return super()._parse_nodes(nodes, show_progress, **kwargs)


def test_whatever_a_base_parser_raises_is_an_error_of_its_document() -> None:
    parser = PropositionNodeParser(base_parser=Picky())
    bad, good = parser.stream([Document(text="雨が降った。"), Document(text="Rain fell.")])
    assert isinstance(bad.error, KeyError)
    assert good.nodes


class Odd(Propositionizer):
    """What it makes of passages is chosen by a test."""

    _make: Callable[[Passage], PropositionSet]

    def __init__(self, make: Callable[[Passage], PropositionSet]) -> None:
        super().__init__()
        self._make = make

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return [self._make(passage) for passage in passages]

    def fingerprint_data(self) -> dict[str, Any]:
        return {}


def test_propositions_that_are_no_texts_are_an_error_of_their_document() -> None:
    odd = Odd(lambda passage: PropositionSet((7,) if "雨" in passage.text else (passage.text,)))  # type: ignore[arg-type]
    documents = [
        Document(text="Rain fell."),
        Document(text="雨が降った。"),
        Document(text="Snow fell."),
    ]
    parsed = list(PropositionNodeParser(propositionizer=odd).stream(documents))
    assert [each.error is None for each in parsed] == [True, False, True]
    assert [bool(each.nodes) for each in parsed] == [True, False, True]


class Miscounting(Propositionizer):
    """Streams some sets more or fewer than there are passages."""

    more: int

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        raise NotImplementedError

    def stream(self, passages: Iterable[Passage]) -> Iterator[PropositionSet]:
        made = [PropositionSet((passage.text,)) for passage in passages]
        yield from made[: len(made) + self.more] + made[:1] * self.more

    def fingerprint_data(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(("more", "said"), [(1, "more"), (-1, "fewer")])
def test_a_propositionizer_that_miscounts_is_named(more: int, said: str) -> None:
    parser = PropositionNodeParser(propositionizer=Miscounting(more=more))
    with pytest.raises(ValueError, match=f"returned {said} sets than there are passages"):
        list(parser.stream(numbered(3)))


def test_documents_that_are_whole_are_yielded_before_an_error_that_stops_everything(
    server: OpenAIServer,
) -> None:
    server.responder = lambda body: (
        Reply("no such key", status=401, code="invalid_api_key")
        if "文書5" in asked_content(body)
        else echo(body)
    )
    documents = [Document(id_=f"{n}", text=f"This is 文書{n}.") for n in range(8)]
    stream = PropositionNodeParser(propositionizer=asking(server, max_concurrency=1)).stream(
        documents
    )
    yielded = list(itertools.islice(stream, 5))
    with pytest.raises(PropositionizerError, match="API key"):
        next(stream)
    assert [parsed.document.id_ for parsed in yielded] == ["0", "1", "2", "3", "4"]


def test_a_document_whose_passage_could_not_be_asked_for_is_marked_as_incomplete(
    server: OpenAIServer,
) -> None:
    server.responder = lambda body: (
        Reply("down", status=503) if "雨" in asked_content(body) else echo(body)
    )
    parser = PropositionNodeParser(propositionizer=asking(server))
    bad, good = parser.stream(
        [Document(id_="a", text="雨が降った。"), Document(id_="b", text="Rain fell.")]
    )
    assert {node.metadata[DOCUMENT_HASH_KEY] for node in bad.nodes[:1]} == {
        f"incomplete: {parser.document_hash(bad.document)}"
    }
    assert good.nodes[0].metadata[DOCUMENT_HASH_KEY] == parser.document_hash(good.document)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """An LLM for which each passage is its own proposition."""
    with OpenAIServer(echo) as running:
        yield running


async def test_an_event_loop_is_not_held_up_while_texts_are_split() -> None:
    threads: set[int] = set()

    class Noting(SentenceSplitter):
        def split_text(self, text: str) -> list[str]:
            threads.add(threading.get_ident())
            return super().split_text(text)

    documents = [*numbered(3)]
    for kind in (
        PropositionNodeParser(base_parser=Noting()),
        HierarchicalPropositionNodeParser(levels=[Noting()]),
    ):
        nodes = await kind.aget_nodes_from_documents(documents)
        assert threads.isdisjoint({threading.get_ident()})
        assert ids_of(nodes) == ids_of(kind.get_nodes_from_documents(documents))
        threads.clear()
