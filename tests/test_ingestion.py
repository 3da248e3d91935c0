"""Documents into a pack: streamed, reported, and going on where something fails."""

from __future__ import annotations

import _thread
import gc
import json
import logging
import stat
import threading
import weakref
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, SimpleDirectoryReader
from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack, LLMPropositionizer
from llama_pack_densex.index.folder import REPORT_FILE
from llama_pack_densex.propositionizers.base import BudgetExceededError, PropositionizerError
from llama_pack_densex.propositionizers.llm import PropositionizingEndEvent
from tests.ingestion.reports import IngestionReport, read_report
from tests.made_up_passages import InstantLLM
from tests.openai_server import OpenAIServer, Reply, asked_content
from tests.searching import ENGLISH, JAPANESE, MORE_JAPANESE, ShortEmbedding, documents
from tests.stand_in_llm import StandInLLM, digest

pytestmark = pytest.mark.together("ingestion")

HALF_A_CHARACTER = "\ud83d"


class RefusingEmbedding(ShortEmbedding):
    """Cannot embed texts that hold a word."""

    refused: str = "quinine"
    error: type[Exception] = RuntimeError
    batches: int = Field(default=0, exclude=True)

    @classmethod
    def class_name(cls) -> str:
        return "RefusingEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self.batches += 1
        if any(self.refused in text for text in texts):
            raise self.error("this text cannot be embedded")
        return super()._get_text_embeddings(texts)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """An LLM for which each passage is its own proposition."""
    with OpenAIServer(echo) as running:
        yield running


@pytest.fixture(scope="module")
def provider() -> Iterator[StandInLLM]:
    """An LLM that counts tokens as a real one does."""
    with StandInLLM() as running:
        yield running


def echo(body: dict[str, Any]) -> str:
    return json.dumps([asked_content(body)], ensure_ascii=False)


def asking(url: str, **settings: Any) -> LLMPropositionizer:
    llm = OpenAI(model="gpt-4o-mini", api_base=url, api_key="sk-test")
    return LLMPropositionizer(llm, **{"max_retries": 0, "retry_wait": 0, **settings})


def pack_of(given: Any, folder: Path | None = None, **options: Any) -> DenseXRetrievalPack:
    """A pack that is searched by words, whose propositions are sentences, but for what is said."""
    propositions = {} if "propositionizer" in options else {"proposition_llm": "none"}
    defaults: dict[str, Any] = {
        "query_llm": "none",
        "embed_model": "none",
        "persist_dir": folder,
        **propositions,
    }
    return DenseXRetrievalPack(given, **{**defaults, **options})


def numbered(count: int) -> Iterator[Document]:
    for number in range(count):
        yield Document(
            id_=f"文書{number}", text=f"Number {number} is a number. 番号は{number}である。"
        )


def report_in(folder: Path) -> IngestionReport:
    return read_report(folder / REPORT_FILE)


def states_in(folder: Path) -> dict[str, str]:
    return {outcome.document_id: outcome.state for outcome in report_in(folder).documents}


def node_ids(pack: DenseXRetrievalPack, document_id: str | None = None) -> set[str]:
    return {node.node_id for node in pack.nodes() if document_id in (None, node.ref_doc_id)}


# documents as a stream


def test_a_pack_takes_a_generator() -> None:
    assert pack_of(numbered(3)).counts().documents == 3


def test_insert_takes_a_generator() -> None:
    pack = pack_of(numbered(1))
    pack.insert(document for document in documents(ENGLISH, JAPANESE))
    assert set(pack.documents()) == {"文書0", *ENGLISH, *JAPANESE}


def test_refresh_of_a_generator_says_which_documents_were_new_or_changed() -> None:
    pack = pack_of(numbered(2))
    assert pack.refresh(numbered(4)) == [False, False, True, True]


def test_a_generator_may_make_the_next_document_of_the_same_object() -> None:
    def reused(*texts: str) -> Iterator[Document]:
        document = Document(text="")
        for number, text in enumerate(texts):
            document.id_ = document.metadata["file_path"] = f"/docs/{number}.md"
            document.set_content(text)
            yield document

    pack = pack_of(reused("Miso is salty.", "Tea is hot.", "Rice is white."))
    assert pack.refresh(reused("Miso is sweet.", "Tea is cold.", "Rice is white.")) == [
        True,
        True,
        False,
    ]
    assert sorted(node.text for node in pack.nodes("passage")) == [
        "Miso is sweet.",
        "Rice is white.",
        "Tea is cold.",
    ]


def test_the_index_is_the_same_for_a_generator_and_a_list() -> None:
    assert node_ids(pack_of(numbered(30))) == node_ids(pack_of(list(numbered(30))))


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.slow
def test_few_of_many_documents_are_held_at_a_time(tmp_path: Path, asks: bool) -> None:
    alive: set[int] = set()
    most: list[int] = []

    def counted() -> Iterator[Document]:
        for number, document in enumerate(numbered(3000)):
            alive.add(number)
            weakref.finalize(document, alive.discard, number)
            most.append(len(alive))
            yield document

    options: dict[str, Any] = {"propositionizer": LLMPropositionizer(InstantLLM())} if asks else {}
    pack = pack_of(counted(), tmp_path / "index", granularity=("passage", "proposition"), **options)
    gc.collect()
    assert pack.counts().documents == 3000
    assert max(most) < 2000
    assert not alive


def test_documents_are_there_before_the_last_one_is_read(tmp_path: Path) -> None:
    seen: list[int] = []

    def watched() -> Iterator[Document]:
        for number, document in enumerate(numbered(900)):
            if number == 899:
                seen.append(DenseXRetrievalPack.load(tmp_path / "index").counts().documents)
            yield document

    pack_of(watched(), tmp_path / "index")
    assert 0 < seen[0] < 900


@pytest.mark.parametrize("as_generator", [False, True])
def test_what_is_no_document_is_named_with_its_place(as_generator: bool) -> None:
    given = [*numbered(2), "just text", *documents(ENGLISH)]
    pack = pack_of(numbered(1))
    with pytest.raises(ValueError, match=r"documents\[2\] is a str.*wrap text as Document"):
        pack.insert((each for each in given) if as_generator else given)  # type: ignore[arg-type]
    # a list is looked through first; of an iterator what came before is done
    assert set(pack.documents()) == ({"文書0", "文書1"} if as_generator else {"文書0"})


def test_documents_that_came_before_an_error_in_reading_them_are_indexed(
    server: OpenAIServer, tmp_path: Path
) -> None:
    def broken() -> Iterator[Document]:
        yield from numbered(5)
        raise OSError("the network drive is gone")

    with pytest.raises(OSError, match="the network drive is gone"):
        pack_of(broken(), tmp_path / "index", propositionizer=asking(server.url))
    assert DenseXRetrievalPack.load(tmp_path / "index").counts().documents == 5
    summary = report_in(tmp_path / "index").summary
    assert (summary.state, summary.why_stopped) == ("stopped", "OSError: the network drive is gone")


class Ended(BaseEventHandler):
    """Counts the passages whose propositions are ready."""

    count: Any = Field(default_factory=lambda: threading.Semaphore(0))

    def handle(self, event: Any, **kwargs: Any) -> None:
        if isinstance(event, PropositionizingEndEvent):
            self.count.release()

    def wait_for(self, number: int) -> None:
        assert all(self.count.acquire(timeout=60) for _ in range(number))


@pytest.fixture
def ended() -> Iterator[Ended]:
    handler, dispatcher = Ended(), get_dispatcher()
    dispatcher.add_event_handler(handler)
    yield handler
    dispatcher.event_handlers.remove(handler)


def test_an_interrupted_run_leaves_an_index_that_the_next_run_completes(
    tmp_path: Path, ended: Ended
) -> None:
    def interrupted() -> Iterator[Document]:
        corpus = numbered(300)
        yield from islice(corpus, 200)
        ended.wait_for(100)  # which are taken as the next ones are read
        yield from corpus
        raise KeyboardInterrupt

    propositionizer = LLMPropositionizer(InstantLLM())
    with pytest.raises(KeyboardInterrupt):
        pack_of(interrupted(), tmp_path / "index", propositionizer=propositionizer)
    there = set(DenseXRetrievalPack.load(tmp_path / "index").documents())
    assert there == {document.id_ for document in numbered(len(there))}
    assert len(there) > 0
    assert report_in(tmp_path / "index").summary.state == "stopped"
    pack = pack_of(numbered(300), tmp_path / "index", propositionizer=propositionizer)
    assert pack.counts().documents == 300
    assert pack.ingestion is not None
    assert pack.ingestion.documents == {"unchanged": len(there), "done": 300 - len(there)}


def test_an_interruption_while_the_llm_is_waited_for_keeps_what_was_answered(
    server: OpenAIServer, tmp_path: Path, ended: Ended
) -> None:
    def interrupting(body: dict[str, Any]) -> Reply:
        if len(server.requests) == 20:
            ended.wait_for(19)  # replies are checked a moment later
            _thread.interrupt_main()
            return Reply(echo(body), delay=0.5)
        return Reply(echo(body))

    server.responder = interrupting
    with pytest.raises(KeyboardInterrupt):
        pack_of(
            numbered(40), tmp_path / "index", propositionizer=asking(server.url, max_concurrency=1)
        )
    answered = {seen.content for seen in server.requests[:19]}
    assert 0 < DenseXRetrievalPack.load(tmp_path / "index").counts().documents < 20
    server.responder = echo
    server.requests.clear()
    pack = pack_of(numbered(40), tmp_path / "index", propositionizer=asking(server.url))
    assert answered.isdisjoint(seen.content for seen in server.requests)
    assert node_ids(pack) == node_ids(pack_of(numbered(40), propositionizer=asking(server.url)))


# documents that fail


UNREADABLE = {"text": f"A half {HALF_A_CHARACTER} of a character.", "metadata": {}}
UNWRITABLE = {"text": "Rain fell. 雨が降った。", "metadata": {"handle": object()}}
UNHASHABLE = {"text": "Rain fell. 雨が降った。", "metadata": {"tags": {("a", "b"): 1}}}
UNEMBEDDABLE = {"text": "Tonic water holds quinine.", "metadata": {}}
FAILING = [UNREADABLE, UNWRITABLE, UNHASHABLE, UNEMBEDDABLE]
each_failure = pytest.mark.parametrize(
    "fields", FAILING, ids=["unreadable", "unwritable", "unhashable", "unembeddable"]
)


def failing(fields: dict[str, Any], id_: str = "壊れた文書") -> Document:
    return Document(id_=id_, text=fields["text"], metadata=dict(fields["metadata"]))


@each_failure
@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.slow_cases("*", but=["3-*"])
def test_a_document_that_fails_stops_no_other_one(
    fields: dict[str, Any], place: int, tmp_path: Path
) -> None:
    pack = pack_of(numbered(1), tmp_path / "index", embed_model=RefusingEmbedding())
    given = documents(ENGLISH)
    given.insert(place, failing(fields))
    assert pack.refresh(given) == [number != place for number in range(7)]
    assert set(pack.documents()) == {"文書0", *ENGLISH}


@each_failure
@pytest.mark.slow
def test_a_document_that_fails_is_reported_with_its_error(
    fields: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack = pack_of(
        [*documents(ENGLISH), failing(fields)], tmp_path / "index", embed_model=RefusingEmbedding()
    )
    assert pack.ingestion is not None
    assert pack.ingestion.documents == {"done": 6, "failed": 1}
    assert pack.ingestion.state == "finished"
    (failed,) = pack.failed_documents
    assert failed.error
    assert [
        outcome for outcome in report_in(tmp_path / "index").documents if outcome.state == "failed"
    ] == [failed]
    assert "Document '壊れた文書' was not indexed" in caplog.text


@each_failure
@pytest.mark.slow
def test_a_document_that_fails_keeps_its_earlier_version(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    first = [Document(id_="壊れた文書", text="The first version. 最初の版。"), *documents(ENGLISH)]
    pack = pack_of(first, tmp_path / "index", embed_model=RefusingEmbedding())
    before = node_ids(pack, "壊れた文書")
    pack.refresh([failing(fields), *documents(JAPANESE)])
    loaded = DenseXRetrievalPack.load(tmp_path / "index", embed_model=RefusingEmbedding())
    assert node_ids(pack, "壊れた文書") == node_ids(loaded, "壊れた文書") == before


@each_failure
def test_a_document_that_failed_counts_as_changed_the_next_time(fields: dict[str, Any]) -> None:
    pack = pack_of([failing(fields), *documents(ENGLISH)], embed_model=RefusingEmbedding())
    pack.refresh([failing(fields), *documents(ENGLISH)])
    assert pack.ingestion is not None
    assert pack.ingestion.documents == {"failed": 1, "unchanged": 6}
    mended = Document(id_="壊れた文書", text="Mended at last. 直した。")
    assert pack.refresh([mended, *documents(ENGLISH)]) == [True] + [False] * 6


@each_failure
def test_the_first_error_is_raised_where_every_document_fails(fields: dict[str, Any]) -> None:
    with pytest.raises(
        (ValueError, RuntimeError), match=r"character|kept as JSON|cannot be embedded"
    ):
        pack_of([failing(fields, "a"), failing(fields, "b")], embed_model=RefusingEmbedding())


@each_failure
@pytest.mark.slow
def test_a_document_that_fails_by_itself_raises_its_error(fields: dict[str, Any]) -> None:
    pack = pack_of(numbered(1), embed_model=RefusingEmbedding())
    with pytest.raises(
        (ValueError, RuntimeError), match=r"character|kept as JSON|cannot be embedded"
    ):
        pack.insert(failing(fields))
    assert set(pack.documents()) == {"文書0"}


def test_an_embedding_model_that_always_fails_stops_the_ingestion_before_its_end() -> None:
    model = RefusingEmbedding(refused="")
    read: list[Document] = []

    def counted() -> Iterator[Document]:
        for document in numbered(6000):
            read.append(document)
            yield document

    with pytest.raises(RuntimeError, match="cannot be embedded"):
        pack_of(counted(), embed_model=model)
    assert len(read) < 3000
    assert model.batches < 20


def test_documents_apart_from_each_other_that_fail_do_not_stop_an_ingestion() -> None:
    good = documents(ENGLISH)
    given = [
        each
        for n, document in enumerate(good)
        for each in (document, failing(UNEMBEDDABLE, f"bad {n}"))
    ]
    pack = pack_of(given, embed_model=RefusingEmbedding())
    assert set(pack.documents()) == set(ENGLISH)


def test_neighbours_that_are_refused_do_not_stop_an_ingestion() -> None:
    bad = [failing(UNEMBEDDABLE, f"bad {number}") for number in range(5)]
    pack = pack_of(
        [*documents(ENGLISH), *bad, *documents(JAPANESE)],
        embed_model=RefusingEmbedding(error=ValueError),
    )
    assert set(pack.documents()) == {*ENGLISH, *JAPANESE}


def test_embeddings_that_are_fewer_than_the_texts_are_taken_for_no_other_text() -> None:
    class Skipping(ShortEmbedding):
        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return super()._get_text_embeddings([text for text in texts if "quinine" not in text])

    given = [failing(UNEMBEDDABLE), *documents(ENGLISH)]
    pack = pack_of(given, embed_model=Skipping(), hybrid=False, granularity=("passage",))
    assert set(pack.documents()) == set(ENGLISH)
    (failed,) = pack.failed_documents
    assert "returned 0 embeddings for 1 texts" in failed.error
    for name, text in ENGLISH.items():
        (found,) = pack.retrieve(text, similarity_top_k=1)
        assert found.node.ref_doc_id == name
        assert found.score == pytest.approx(1)


def test_an_embedding_model_that_fails_beside_the_nodes_costs_no_document(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # whether it knows the language is measured on sentences
    class OnlyPassages(ShortEmbedding):
        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            if any(text.count("。") < 2 for text in texts):
                raise RuntimeError("too short")
            return super()._get_text_embeddings(texts)

    given = documents(JAPANESE, MORE_JAPANESE)  # enough for a verdict
    pack = pack_of(given, embed_model=OnlyPassages(), granularity=("passage",))
    assert set(pack.documents()) == {document.id_ for document in given}
    assert pack.failed_documents == ()
    assert "RuntimeError: too short" in caplog.text


# passages that fail


def test_a_passage_that_is_refused_falls_back_and_is_reported_with_the_reason(
    server: OpenAIServer, tmp_path: Path
) -> None:
    server.responder = lambda body: (
        Reply(None, finish_reason="content_filter")
        if "番号は3" in asked_content(body)
        else echo(body)
    )
    pack = pack_of(numbered(6), tmp_path / "index", propositionizer=asking(server.url))
    assert pack.counts().statuses == {"ok": 5, "fallback": 1}
    fallen = {
        outcome.document_id: outcome.fallbacks
        for outcome in report_in(tmp_path / "index").documents
    }
    ((document_id, (fallback,)),) = ((name, each) for name, each in fallen.items() if each)
    assert document_id == "文書3"
    assert "content filter" in fallback.reason
    assert (fallback.passage, fallback.start) == (1, 0)


def test_a_document_with_a_refused_passage_is_done(server: OpenAIServer, tmp_path: Path) -> None:
    server.responder = lambda body: Reply("[]") if "番号は3" in asked_content(body) else echo(body)
    pack_of(numbered(6), tmp_path / "index", propositionizer=asking(server.url))
    asked = len(server.requests)
    pack = pack_of(numbered(6), tmp_path / "index", propositionizer=asking(server.url))
    assert pack.ingestion is not None
    assert pack.ingestion.documents == {"unchanged": 6}
    assert len(server.requests) == asked


def test_a_passage_that_could_not_be_asked_for_is_asked_for_the_next_time_and_only_it(
    server: OpenAIServer, tmp_path: Path
) -> None:
    server.responder = lambda body: (
        Reply("overloaded", status=503) if "番号は3" in asked_content(body) else echo(body)
    )
    pack_of(numbered(6), tmp_path / "index", propositionizer=asking(server.url))
    server.responder = echo
    server.requests.clear()
    pack = pack_of(numbered(6), tmp_path / "index", propositionizer=asking(server.url))
    assert [seen.content for seen in server.requests] == ["Number 3 is a number. 番号は3である。"]
    assert states_in(tmp_path / "index") == {
        f"文書{number}": "changed" if number == 3 else "unchanged" for number in range(6)
    }
    assert pack.counts().statuses == {"ok": 6}
    assert pack.refresh(numbered(6)) == [False] * 6


def test_of_a_document_with_such_a_passage_the_others_are_not_asked_for_again(
    server: OpenAIServer, tmp_path: Path
) -> None:
    text = " ".join(f"Sentence {number} tells of place number {number}." for number in range(120))
    down = "place number 60."
    server.responder = lambda body: (
        Reply("overloaded", status=503) if down in asked_content(body) else echo(body)
    )
    long = Document(id_="long", text=text)
    pack_of([long], tmp_path / "index", propositionizer=asking(server.url))
    assert len(server.requests) > 3
    server.responder = echo
    server.requests.clear()
    pack = pack_of([long], tmp_path / "index", propositionizer=asking(server.url))
    assert len(server.requests) == 1
    assert set(pack.counts().statuses) == {"ok"}


def test_a_provider_that_is_down_stops_the_ingestion_and_the_next_run_goes_on(
    server: OpenAIServer, tmp_path: Path
) -> None:
    server.responder = lambda body: (
        Reply("down", status=503) if len(server.requests) > 20 else echo(body)
    )
    propositionizer = asking(server.url, max_concurrency=1)
    with pytest.raises(PropositionizerError, match="did not answer 8 requests in a row"):
        pack_of(numbered(40), tmp_path / "index", propositionizer=propositionizer)
    server.responder = echo
    answered = {seen.content for seen in server.requests[:20]}
    server.requests.clear()
    pack = pack_of(numbered(40), tmp_path / "index", propositionizer=asking(server.url))
    assert answered.isdisjoint(seen.content for seen in server.requests)
    assert pack.counts().statuses == {"ok": 40}


def test_a_first_run_that_made_nothing_is_no_obstacle_to_the_next(
    server: OpenAIServer, tmp_path: Path
) -> None:
    server.responder = lambda body: Reply("no such key", status=401, code="invalid_api_key")
    with pytest.raises(PropositionizerError, match="API key"):
        pack_of(numbered(3), tmp_path / "index", propositionizer=asking(server.url))
    server.responder = echo
    assert (
        pack_of(numbered(3), tmp_path / "index", propositionizer=asking(server.url))
        .counts()
        .documents
        == 3
    )


# the budget


LONG = [
    Document(
        id_=f"記事 {n}",
        text=" ".join(f"Article {n} has line {line}. 第{line}行である。" for line in range(40)),
    )
    for n in range(12)
]


def test_a_budget_stops_the_ingestion_with_whole_documents_in_the_index(
    provider: StandInLLM, tmp_path: Path
) -> None:
    in_full = pack_of(LONG, propositionizer=asking(provider.url))
    with pytest.raises(BudgetExceededError):
        pack_of(
            LONG, tmp_path / "index", propositionizer=asking(provider.url, max_tokens_total=30_000)
        )
    stopped = DenseXRetrievalPack.load(tmp_path / "index", propositionizer=asking(provider.url))
    assert 0 < len(stopped.documents()) < len(LONG)
    assert node_ids(stopped) == set().union(
        *(node_ids(in_full, document_id) for document_id in stopped.documents())
    )


def test_the_error_of_a_budget_has_the_summary(provider: StandInLLM, tmp_path: Path) -> None:
    with pytest.raises(BudgetExceededError, match="Raise it and run again") as stopped:
        pack_of(
            LONG, tmp_path / "index", propositionizer=asking(provider.url, max_tokens_total=30_000)
        )
    summary = stopped.value.ingestion
    assert summary.state == "stopped"
    assert summary.why_stopped.startswith(
        "BudgetExceededError: The budget does not allow another request"
    )
    # replies may be longer than was set aside for them
    assert 0 < summary.requests.usage.total_tokens < 35_000
    assert report_in(tmp_path / "index").summary == summary


@pytest.mark.parametrize("limit", [{"max_tokens_total": 30_000}, {"max_cost": 0.005}])
@pytest.mark.slow_cases("*", but=["*limit1"])
def test_after_a_budget_only_the_rest_is_asked_for(
    provider: StandInLLM, tmp_path: Path, limit: dict[str, Any]
) -> None:
    provider.reset()
    with pytest.raises(BudgetExceededError):
        pack_of(LONG, tmp_path / "index", propositionizer=asking(provider.url, **limit))
    paid_for = len(provider.log())
    pack = pack_of(LONG, tmp_path / "index", propositionizer=asking(provider.url))
    asked = [text for entry in provider.log() for text in entry.digests]
    assert 0 < paid_for < len(asked)
    assert len(asked) == len(set(asked))
    assert set(asked) == {digest(node.get_content()) for node in pack.nodes("passage")}
    assert pack.counts().documents == len(LONG)


# the report


def test_the_report_has_each_document_as_often_as_it_was_given(tmp_path: Path) -> None:
    given = [*numbered(3), Document(id_="空", text=" "), *numbered(1), failing(UNREADABLE)]
    pack_of(given, tmp_path / "index")
    reported = sorted(outcome.document_id for outcome in report_in(tmp_path / "index").documents)
    assert reported == sorted(document.id_ for document in given)


def test_the_report_tells_new_changed_unchanged_blank_failed_and_deleted_documents_apart(
    tmp_path: Path,
) -> None:
    pack = pack_of(
        documents({"kept": "Rain fell.", "改": "雨が降った。", "gone": "Snow fell."}),
        tmp_path / "index",
    )
    given = documents(
        {"kept": "Rain fell.", "改": "雪が降った。", "new": "Hail fell.", "blank": ""}
    )
    pack.refresh([*given, failing(UNREADABLE)], gone=["gone", "never there"])
    assert states_in(tmp_path / "index") == {
        "kept": "unchanged",
        "改": "changed",
        "new": "done",
        "blank": "blank",
        "壊れた文書": "failed",
        "gone": "deleted",
    }


def test_a_file_that_is_read_under_a_new_id_is_reported_as_changed(tmp_path: Path) -> None:
    pack = pack_of(numbered(1), tmp_path / "index")
    for text, state in (("The first version.", "done"), ("The second version.", "changed")):
        document = Document(text=text, metadata={"file_path": "/docs/a.md"})  # core makes its id up
        pack.refresh([document])
        assert states_in(tmp_path / "index") == {document.id_: state}
    assert pack.counts().documents == 2


# of which some are written before the next ones are read
@pytest.mark.parametrize("size", [1, 1_500])
@pytest.mark.slow_cases("*", but=["1"])
def test_of_a_file_that_is_several_documents_one_may_change(size: int) -> None:
    def read(*texts: str) -> list[Document]:  # as readers do that make a document of each section
        return [
            Document(text=f"{text} " * size, metadata={"file_path": "/docs/a.md"}) for text in texts
        ]

    pack = pack_of(read("Miso is salty.", "Tea is hot.", "Rice is white."))
    assert pack.counts().documents == 3
    assert pack.refresh(read("Miso is salty.", "Tea is cold.", "Rice is white."))[1]
    assert {node.text[:9] for node in pack.nodes("passage")} == {
        "Miso is s",
        "Tea is co",
        "Rice is w",
    }
    assert pack.counts().documents == 3
    assert not any(pack.refresh(read("Miso is salty.", "Tea is cold.", "Rice is white.")))


def test_the_documents_of_a_file_may_be_inserted_one_by_one() -> None:
    pack = pack_of(documents({"天気": "雨が降った。"}))
    for text in ("Miso is salty.", "茶は熱い。", "Miso is salty."):
        pack.insert(Document(text=text, metadata={"file_path": "/docs/a.md"}))
    assert sorted(node.text for node in pack.nodes("passage")) == [
        "Miso is salty.",
        "茶は熱い。",
        "雨が降った。",
    ]


def test_files_that_are_named_by_their_paths_replace_what_was_read_of_them_under_random_ids(
    tmp_path: Path,
) -> None:
    for name, text in (
        ("a.md", "# Miso\n\nMiso is salty.\n\n# Tea\n\nTea is hot."),
        ("b.txt", "Rice is white."),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")

    def read(**options: bool) -> list[Document]:
        return SimpleDirectoryReader(str(tmp_path), **options).load_data()

    pack = pack_of(read())
    before = sorted(node.text for node in pack.nodes("passage"))
    named = read(filename_as_id=True)
    assert all(pack.refresh(named))
    assert pack.documents().keys() == {document.id_ for document in named}
    assert sorted(node.text for node in pack.nodes("passage")) == before
    pack.insert(Document(id_="about b", text="Of rice.", metadata=named[-1].metadata))
    assert not any(pack.refresh(named))
    assert "about b" in pack.documents()


def test_of_files_of_equal_text_one_may_change() -> None:
    def read(*texts: str) -> list[Document]:
        return [
            Document(text=text, metadata={"file_path": f"/docs/{n}.md"})
            for n, text in enumerate(texts)
        ]

    pack = pack_of(read("Miso is salty.", "Miso is salty."))
    assert pack.refresh(read("Miso is sweet.", "Miso is salty.")) == [True, False]
    assert sorted(node.text for node in pack.nodes("passage")) == [
        "Miso is salty.",
        "Miso is sweet.",
    ]


def test_the_report_is_json_that_its_owner_only_can_read(
    server: OpenAIServer, tmp_path: Path
) -> None:
    pack_of(numbered(2), tmp_path / "index", propositionizer=asking(server.url))
    report = tmp_path / "index" / REPORT_FILE
    content = json.loads(report.read_text(encoding="utf-8"))
    assert [document["document_id"] for document in content["documents"]] == ["文書0", "文書1"]
    for file in (report, *(tmp_path / "index").glob("replies.db*")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_a_killed_run_left_of_its_report_is_no_obstacle(tmp_path: Path) -> None:
    pack = pack_of(numbered(1), tmp_path / "index")
    part = tmp_path / "index" / f"{REPORT_FILE}.part"
    part.write_text('{"document_id": "half a li', encoding="utf-8")
    pack.refresh(numbered(2))
    assert states_in(tmp_path / "index") == {"文書0": "unchanged", "文書1": "done"}
    assert not part.exists()


def test_the_summary_counts_what_one_run_used(server: OpenAIServer, tmp_path: Path) -> None:
    pack = pack_of(numbered(3), tmp_path / "index", propositionizer=asking(server.url))
    pack.refresh(numbered(5))
    assert pack.ingestion is not None
    assert pack.ingestion.requests.usage.requests == 2
    assert (pack.ingestion.passages, pack.ingestion.propositions) == (2, 2)


def test_a_loaded_pack_has_no_ingestion(tmp_path: Path) -> None:
    assert pack_of(numbered(1), tmp_path / "index").ingestion is not None
    assert DenseXRetrievalPack.load(tmp_path / "index").ingestion is None


def test_keys_and_texts_do_not_get_into_the_report(server: OpenAIServer, tmp_path: Path) -> None:
    server.responder = lambda body: Reply(
        f"cannot read {asked_content(body)}", status=400, code="content_filter"
    )
    with pytest.raises(
        PropositionizerError, match="None of the passages yielded propositions"
    ) as error:
        pack_of(numbered(2), tmp_path / "index", propositionizer=asking(server.url))
    assert error.value.ingestion.state == "stopped"
    report = (tmp_path / "index" / REPORT_FILE).read_text(encoding="utf-8")
    assert "content_filter" in report
    assert "sk-test" not in report
    assert "is a number" not in report
    assert "である" not in report


def test_what_an_embedding_model_quotes_of_a_text_gets_into_no_report_and_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Quoting(RefusingEmbedding):
        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            if bad := [text for text in texts if self.refused in text]:
                raise self.error(
                    f"400: the input {bad[0]!r} is refused with key=sk-0123456789abcdef"
                )
            return super()._get_text_embeddings(texts)

    caplog.set_level(logging.DEBUG, "llama_pack_densex")
    secret = "The bitters hold quinine. 秘伝の調味料には山椒と陳皮が入っている。"
    given = [Document(id_="秘伝", text=secret), *numbered(2)]
    pack = pack_of(given, tmp_path / "index", embed_model=Quoting())
    (failed,) = pack.failed_documents
    assert "400: the input" in failed.error
    said = (tmp_path / "index" / REPORT_FILE).read_text(encoding="utf-8") + caplog.text
    assert not [word for word in ("bitters", "山椒", "sk-0123") if word in said]


# equal texts


def test_equal_texts_stay_two_documents_whether_they_come_together_or_not() -> None:
    pack = pack_of([Document(text="雨が降った。")])
    twins: Sequence[Document] = [Document(text="雨が降った。") for _ in range(2)]
    assert pack.refresh(twins) == [False, True]
    assert pack.counts().documents == 2
    assert node_ids(pack) == node_ids(pack_of(twins))
    assert pack.refresh(twins) == [False, False]


def test_a_document_that_comes_twice_is_there_once_as_it_came_last() -> None:
    pack = pack_of(
        [Document(id_="a", text="Rain fell."), Document(id_="a", text="Rain fell. Snow fell.")]
    )
    assert node_ids(pack) == node_ids(pack_of([Document(id_="a", text="Rain fell. Snow fell.")]))


def test_of_a_document_that_comes_twice_the_last_one_counts_at_each_refresh() -> None:
    given = [Document(id_="a", text="Rain fell. Snow fell."), Document(id_="a", text="Rain fell.")]
    pack = pack_of(given)
    for _ in range(2):
        pack.refresh(given)
        assert [node.get_content() for node in pack.nodes("passage")] == ["Rain fell."]


# progress


def test_progress_is_on_stderr_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pack_of(numbered(3), show_progress=True)
    assert "3 documents, 3 passages" in capsys.readouterr().err


def test_a_first_run_with_blank_documents_alone_is_no_obstacle_to_the_next(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of the documents has any text"):
        pack_of([Document(text=" ")], tmp_path / "index")
    assert pack_of(numbered(3), tmp_path / "index").counts().documents == 3


def test_a_document_that_is_the_bytes_of_a_file_is_refused_with_what_reads_it() -> None:
    documents = [
        Document(text="%PDF-1.4\n1 0 obj <</MediaBox [0 0 595 842]>>", id_="規則.pdf"),
        Document(text="PK\x03\x04word/document.xml", id_="leave.docx"),
        Document(text="有給休暇は年に20日です。", id_="休暇.md"),
    ]
    pack = DenseXRetrievalPack(documents, "none", "none", "none")
    assert pack.counts().documents == 1
    assert pack.ingestion is not None
    errors = " ".join(outcome.error for outcome in pack.failed_documents)
    assert "the bytes of a PDF file" in errors
    assert "the bytes of a Word" in errors
    assert "llama-index-readers-file" in errors
