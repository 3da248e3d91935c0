"""The estimate of an ingestion, held against what the ingestion then takes."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import MetadataMode
from llama_index.llms.openai import OpenAI

from llama_pack_densex import (
    HierarchicalPropositionNodeParser,
    LLMPropositionizer,
    PropositionNodeParser,
    RecordedPropositionizer,
    SentencePropositionizer,
)
from llama_pack_densex.evaluation.datasets import read_dataset
from llama_pack_densex.ingestion.estimate import estimate
from llama_pack_densex.llm.usage import count_tokens
from llama_pack_densex.propositionizers.base import Propositionizer
from tests.made_up_passages import made_up
from tests.stand_in_llm import Faults, StandInLLM, propositions_of

EVAL = Path(__file__).parents[3] / "shared" / "eval"


@pytest.fixture(scope="module")
def server() -> Iterator[StandInLLM]:
    with StandInLLM() as server:
        yield server


@pytest.fixture
def texts() -> list[Document]:
    """Documents of about a passage each, half of them in Japanese."""
    return documents(24)


def documents(count: int, japanese: float = 0.5) -> list[Document]:
    return [
        Document(
            id_=str(number),
            text=passage.text,
            metadata={"title": passage.title, "section": passage.section},
        )
        for number, passage in enumerate(made_up(count, japanese))
    ]


def parser(
    propositionizer: Propositionizer | None = None, *granularity: str
) -> PropositionNodeParser:
    return PropositionNodeParser(
        base_parser=SentenceSplitter(chunk_size=1024, chunk_overlap=0),
        propositionizer=propositionizer or llm(),
        granularity=granularity or ("proposition", "sentence"),  # type: ignore[arg-type]
    )


def llm(server: StandInLLM | None = None, **settings: object) -> LLMPropositionizer:
    """By a server, or by an LLM that is never asked."""
    url = server.url if server is not None else "http://127.0.0.1:9/v1"
    model = OpenAI(model="gpt-4o-mini", api_base=url, api_key="sk-test")
    return LLMPropositionizer(model, **settings)  # type: ignore[arg-type]


def within(share: float, estimated: float, real: float) -> bool:
    return abs(estimated - real) <= share * real


# requests and tokens


@pytest.mark.parametrize("japanese", [0.0, 1.0])
def test_requests_and_tokens_sent_are_exactly_those_of_the_ingestion(
    server: StandInLLM, japanese: float
) -> None:
    texts = documents(12, japanese)
    asking = parser(llm(server))
    found = estimate(texts, asking)
    server.reset()
    asking.get_nodes_from_documents(texts)
    totals = server.totals()
    assert found.requests == sum(totals.kinds.values()) == 12
    assert found.input_tokens == totals.input_tokens


def test_passages_in_two_languages_count_by_language() -> None:
    for share, ratio in ((0.0, 1.45), (1.0, 1.59)):
        texts = documents(8, share)
        tokens = sum(count_tokens(document.text) for document in texts)
        assert estimate(texts, parser()).output_tokens == round(ratio * tokens)


def test_identical_passages_are_asked_for_once(texts: list[Document]) -> None:
    again = [
        Document(id_=f"{document.id_}, again", text=document.text, metadata=document.metadata)
        for document in texts
    ]
    once, twice = estimate(texts, parser()), estimate([*texts, *again], parser())
    assert twice.passages == 2 * once.passages
    assert twice.distinct_passages == once.passages
    assert (twice.requests, twice.input_tokens) == (once.requests, once.input_tokens)
    assert twice.units == pytest.approx(2 * once.units, abs=1)


def test_replies_that_are_kept_do_not_count(
    server: StandInLLM, texts: list[Document], tmp_path: Path
) -> None:
    propositionizer = llm(server, cache=tmp_path / "replies.db")
    asking = parser(propositionizer)
    asking.get_nodes_from_documents(texts[:16])
    found = estimate(texts, asking)
    assert found.already_kept == 16
    assert found.requests == 8
    asking.get_nodes_from_documents(texts)
    rest = estimate(texts, asking)
    assert (rest.requests, rest.input_tokens, rest.output_tokens, rest.cost) == (0, 0, 0, 0.0)
    assert rest.notes == ()


def test_documents_of_an_index_do_not_count(texts: list[Document]) -> None:
    asking = parser()
    found = estimate(
        texts, asking, indexed={asking.document_hash(document) for document in texts[:10]}
    )
    assert (found.unchanged_documents, found.documents, found.requests) == (10, 14, 14)


def test_a_document_that_cannot_be_split_is_left_out_and_said(texts: list[Document]) -> None:
    found = estimate([*texts, Document(id_="broken", text="half a character: \ud800")], parser())
    assert found.documents == 24
    assert found.notes[0].startswith("Left out: Document 'broken' has half a character")


def test_documents_are_read_one_after_the_other() -> None:
    made: list[weakref.ref[Document]] = []
    most = 0

    def stream() -> Iterator[Document]:
        nonlocal most
        for passage in made_up(200, 0.5):
            document = Document(text=passage.text)
            made.append(weakref.ref(document))
            most = max(most, sum(one() is not None for one in made))
            yield document

    assert estimate(stream(), parser()).documents == 200
    assert most < 20


# without an LLM


def test_sentences_cost_nothing_and_are_counted(texts: list[Document]) -> None:
    splitting = parser(SentencePropositionizer())
    found = estimate(texts, splitting)
    nodes = splitting.get_nodes_from_documents(texts)
    assert found.units == len(nodes)
    assert (found.requests, found.cost, found.model, found.seconds) == (0, 0.0, "", 0.0)


def test_without_propositions_no_llm_is_asked(texts: list[Document]) -> None:
    splitting = parser(llm(), "sentence")
    found = estimate(texts, splitting)
    assert found.units == len(splitting.get_nodes_from_documents(texts))
    assert (found.requests, found.cost, found.propositions) == (0, 0.0, 0)


def test_sections_count_among_the_nodes() -> None:
    splitting = HierarchicalPropositionNodeParser.from_defaults(
        chunk_sizes=(512, 128), propositionizer=SentencePropositionizer()
    )
    text = "\n\n".join(passage.text for passage in made_up(20, 0.0))
    found = estimate([Document(text=text)], splitting)
    assert found.units == len(splitting.get_nodes_from_documents([Document(text=text)]))


def test_recorded_propositions_cost_nothing_and_the_rest_is_asked_for(
    texts: list[Document], tmp_path: Path
) -> None:
    recording = tmp_path / "recorded.jsonl"
    write_recording(recording, texts[:20])
    known = parser(RecordedPropositionizer(recording))
    found = estimate(texts[:20], known)
    assert found.units == len(known.get_nodes_from_documents(texts[:20]))
    assert (found.requests, found.cost) == (0, 0.0)
    rest = estimate(texts, parser(RecordedPropositionizer(recording, otherwise=llm())))
    assert rest.requests == 4
    assert rest.model == "gpt-4o-mini"


def write_recording(file: Path, texts: list[Document]) -> None:
    lines = [
        {"title": "", "text": text.text, "propositions": propositions_of(text.text)}
        for text in texts
    ]
    file.write_text(
        "\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8"
    )


# the index


def test_tokens_that_are_embedded_are_those_of_all_nodes(
    texts: list[Document], tmp_path: Path
) -> None:
    recording = tmp_path / "recorded.jsonl"
    write_recording(recording, texts)
    known = parser(RecordedPropositionizer(recording))
    found = estimate(texts, known, embed_model_name="text-embedding-3-small")
    nodes = known.get_nodes_from_documents(texts)
    real = sum(count_tokens(node.get_content(metadata_mode=MetadataMode.EMBED)) for node in nodes)
    assert within(0.03, found.embedding_tokens, real)
    assert found.embedding_cost == pytest.approx(0.02e-6 * found.embedding_tokens)
    assert found.units == len(nodes)


@pytest.mark.parametrize("model", ["minilm", "local:BAAI/bge-m3"])
def test_a_model_on_this_machine_costs_nothing(texts: list[Document], model: str) -> None:
    assert estimate(texts, parser(), embed_model_name=model).embedding_cost == 0.0


def test_an_embedding_model_without_a_price_costs_what_nobody_knows(texts: list[Document]) -> None:
    found = estimate(texts, parser(), embed_model_name="my-embeddings")
    assert found.embedding_cost is None
    assert "price of my-embeddings is not known" in " ".join(found.notes)


# money and time


def test_money_is_by_the_models_price(texts: list[Document]) -> None:
    found = estimate(texts, parser())
    assert found.cost == pytest.approx(
        (0.15 * found.input_tokens + 0.6 * found.output_tokens) / 1_000_000
    )
    assert found.cost_batch == pytest.approx(found.cost / 2)
    own = estimate(texts, parser(), prices={"gpt-4o-mini": {"input": 1, "output": 0}})
    assert own.cost == pytest.approx(own.input_tokens / 1_000_000)
    assert "prices of your own" in " ".join(own.notes)
    assert (
        estimate(texts, parser(llm(prices={"gpt-4o-mini": {"input": 1, "output": 0}}))).cost
        == own.cost
    )
    assert found.price is not None
    assert f"list prices of {found.price.as_of}" in " ".join(found.notes)


def test_a_price_that_is_not_known_is_not_made_up(texts: list[Document]) -> None:
    found = estimate(texts, parser(LLMPropositionizer(OpenAI(model="my-model", api_key="sk-test"))))
    assert (found.cost, found.cost_batch, found.price) == (None, None, None)
    assert "price of my-model is not known" in " ".join(found.notes)


def test_a_model_that_thinks_is_warned_of(texts: list[Document]) -> None:
    thinking = estimate(
        texts, parser(LLMPropositionizer(OpenAI(model="gpt-5-mini", api_key="sk-test")))
    )
    assert "may think" in " ".join(thinking.notes)
    assert "may think" not in " ".join(estimate(texts, parser()).notes)


def test_the_narrowest_limit_of_the_propositionizer_sets_the_time(texts: list[Document]) -> None:
    by_replies = estimate(texts, parser(llm(max_concurrency=4)))
    a_reply = 0.5 + by_replies.output_tokens / 24 / 80
    assert by_replies.seconds == pytest.approx(24 * a_reply / 4)
    assert "4 at a time" in " ".join(by_replies.notes)
    by_requests = estimate(texts, parser(llm(requests_per_minute=12, tokens_per_minute=10**9)))
    assert by_requests.seconds == pytest.approx(120)
    by_tokens = estimate(texts, parser(llm(tokens_per_minute=1000, requests_per_minute=10**6)))
    used = by_tokens.input_tokens + by_tokens.output_tokens
    assert by_tokens.seconds == pytest.approx(used * 60 / 1000)


def test_no_run_is_shorter_than_a_reply(texts: list[Document]) -> None:
    found = estimate(texts[:1], parser())
    assert found.seconds == pytest.approx(0.5 + found.output_tokens / 80)


# samples


@pytest.mark.slow
def test_a_sample_corrects_what_was_measured_of_another_model(
    server: StandInLLM, tmp_path: Path
) -> None:
    texts = documents(60)
    asking = parser(llm(server, cache=tmp_path / "replies.db"))
    blind = estimate(texts, asking)
    server.reset()
    found = estimate(texts, asking, sample=20)
    assert found.sampled == sum(server.totals().kinds.values()) == found.sample_usage.requests == 20
    nodes = asking.get_nodes_from_documents(texts)
    real = server.totals()
    assert sum(real.kinds.values()) == 60, "nothing of the sample is asked for again"
    assert not within(0.1, blind.output_tokens, real.output_tokens)
    assert within(0.1, found.output_tokens, real.output_tokens)
    assert within(0.1, found.units, len(nodes))


@pytest.mark.slow
def test_a_sample_shows_requests_that_have_to_be_repeated() -> None:
    texts = documents(80, 0.0)
    with StandInLLM(faults=Faults(refusal=0.4)) as faulty:
        asking = parser(llm(faulty))
        found = estimate(texts, asking, sample=40)
        faulty.reset()
        asking.get_nodes_from_documents(texts)
        real = faulty.totals()
    assert found.requests > 90
    assert within(0.15, found.requests, sum(real.kinds.values()))
    assert within(0.15, found.input_tokens, real.input_tokens)


def test_a_sample_is_the_same_each_time_so_that_nothing_is_paid_twice(
    server: StandInLLM, tmp_path: Path
) -> None:
    texts = documents(40)
    asking = parser(llm(server, cache=tmp_path / "replies.db"))
    first = estimate(texts, asking, sample=20)
    server.reset()
    again = estimate(texts, asking, sample=20)
    assert server.totals().kinds == {}
    assert again.sample_usage.requests == 0
    assert again.already_kept == 20
    assert within(0.02, again.output_tokens, first.output_tokens / 2)


def test_a_sample_of_more_passages_than_there_are_is_all_of_them(server: StandInLLM) -> None:
    assert estimate(documents(4), parser(llm(server)), sample=10).sampled == 4


# real passages


@pytest.mark.parametrize("dataset", ["squad_en", "jsquad_ja"])
@pytest.mark.skipif(not EVAL.exists(), reason="needs the evaluation data beside the repository")
def test_the_estimate_is_within_a_tenth_of_what_is_used(dataset: str) -> None:
    texts = read_dataset(EVAL / f"{dataset}.json").passage_documents()
    with StandInLLM(held=EVAL / f"{dataset}.propositions.jsonl") as server:
        asking = PropositionNodeParser(
            base_parser=SentenceSplitter(chunk_size=8192, chunk_overlap=0),
            propositionizer=llm(server, max_concurrency=32),
            granularity=("proposition", "sentence"),
        )
        found = estimate(texts, asking)
        nodes = asking.get_nodes_from_documents(texts)
        real = server.totals()
    assert found.requests == sum(real.kinds.values())
    assert found.input_tokens == real.input_tokens
    assert within(0.1, found.output_tokens, real.output_tokens)
    assert within(
        0.05, found.input_tokens + found.output_tokens, real.input_tokens + real.output_tokens
    )
    assert within(0.05, found.units, len(nodes))
