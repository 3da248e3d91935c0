"""What a passage needs to be understood travels with it: to LLMs, searches, and whoever reads a result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from llama_index.core import Document
from llama_index.core.schema import IndexNode, MetadataMode, TextNode
from llama_index.llms.openai import OpenAI
from mcp import Client

from llama_pack_densex import (
    DenseXRetrievalPack,
    HierarchicalPropositionNodeParser,
    LLMPropositionizer,
    Passage,
    PropositionNodeParser,
    RecordedPropositionizer,
)
from llama_pack_densex.node_parsers.metadata import (
    BOOKKEEPING_KEYS,
    CONTEXT_KEY,
    SECTION_KEY,
    embedded_text,
)
from llama_pack_densex.retrieval.context import PropositionContextPostprocessor
from llama_pack_densex.serving.mcp import make_mcp_server
from tests.openai_server import OpenAIServer, Reply
from tests.serving.running import served
from tests.test_cli import run, run_json

NAMES = "| Part | Material | Price |\n|---|---|---|\n"
LEAD = "All prices are in zorkmids:\n\n"
ROWS = [
    f"| {'VP'[n > 39]}{n:02} | {('steel', 'brass')[n % 2]} | {100 + 7 * n} |\n" for n in range(80)
]
GROUPED = f"| Valves | | |\n{''.join(ROWS[:40])}| Pumps | | |\n{''.join(ROWS[40:])}"
LEAD_JA = "次のいずれかに当たるときは霧休を取得できる：\n\n"
ITEMS = "".join(f"- {n}号の業務を担当し、上長の承認を得たとき\n" for n in range(80))
PRICES = Document(id_="prices.md", text=f"# Handbook\n\n## Prices\n\n{LEAD}{NAMES}{GROUPED}")
LEAVE = Document(id_="休暇.md", text=f"# 手引き\n\n## 休暇\n\n{LEAD_JA}{ITEMS}")
PRICE, PRICE_JA = "What is the price of P77?", "79号の業務を担当するときはどうなりますか。"
ASKED = [(PRICE, f"{LEAD}{NAMES}"), (PRICE_JA, LEAD_JA)]
BOTH = pytest.mark.parametrize(("question", "lead"), ASKED, ids=["en", "ja"])


def passages(*nodes: Any) -> list[TextNode]:
    return [node for node in nodes if not isinstance(node, IndexNode)]


@pytest.fixture(scope="module")
def nodes() -> list[TextNode]:
    return PropositionNodeParser().get_nodes_from_documents([PRICES, LEAVE])  # type: ignore[return-value]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("context") / "index"
    DenseXRetrievalPack([PRICES, LEAVE], "none", "none", "none", persist_dir=folder)
    return folder


@pytest.fixture(scope="module")
def pack(index: Path) -> DenseXRetrievalPack:
    return DenseXRetrievalPack.load(index)


@pytest.fixture(scope="module")
def http(pack: DenseXRetrievalPack) -> Iterator[httpx.Client]:
    with served(pack) as client:
        yield client


def asking(server: OpenAIServer, **arguments: Any) -> LLMPropositionizer:
    llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test", max_retries=0)
    return LLMPropositionizer(
        llm, **{"retry_wait": 0, "max_retries": 0, "strictness": "off", **arguments}
    )


# In the nodes


def test_a_passage_of_rows_has_their_names_what_leads_them_in_and_their_group(
    nodes: list[TextNode],
) -> None:
    of_rows = [node for node in passages(*nodes) if node.text.startswith(("| V", "| P"))]
    assert len(of_rows) > 1
    for node in of_rows:
        group = "Valves" if node.text[2] == "V" else "Pumps"
        assert node.metadata[CONTEXT_KEY] == f"{LEAD}{NAMES}| {group} | | |\n"
        assert node.metadata[SECTION_KEY] == "Handbook, Prices"


def test_a_passage_of_items_has_the_line_that_leads_its_list_in(nodes: list[TextNode]) -> None:
    of_items = [node for node in passages(*nodes) if node.text.startswith("- ")]
    assert len(of_items) > 1
    assert {node.metadata[CONTEXT_KEY] for node in of_items} == {LEAD_JA}
    assert {node.metadata[SECTION_KEY] for node in of_items} == {"手引き, 休暇"}


def test_context_is_no_part_of_the_text_and_of_its_span(nodes: list[TextNode]) -> None:
    for node in passages(*nodes):
        document = PRICES if node.ref_doc_id == PRICES.id_ else LEAVE
        assert document.text[node.start_char_idx : node.end_char_idx] == node.text


def test_a_unit_that_stands_there_word_for_word_has_what_leads_it_in(nodes: list[TextNode]) -> None:
    by_text = {node.text: node for node in nodes if isinstance(node, IndexNode)}
    row = by_text["Pumps; Part: P77; Material: brass; Price: 639"]
    assert row.metadata[CONTEXT_KEY] == "All prices are in zorkmids:"
    assert PRICES.text[row.start_char_idx : row.end_char_idx] == ROWS[77].strip()
    item = by_text["- 79号の業務を担当し、上長の承認を得たとき"]
    assert item.metadata[CONTEXT_KEY] == LEAD_JA.strip()


def test_a_unit_that_an_llm_wrote_needs_no_context(tmp_path: Path) -> None:
    text = "# Trips\n\nBring:\n\n- a coat"
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(json.dumps({"text": text, "propositions": ["Bring a coat on trips."]}))
    parser = PropositionNodeParser(propositionizer=RecordedPropositionizer(recorded))
    (unit,) = parser.get_nodes_from_documents([Document(text=text)])[1:]
    assert (unit.get_content(), CONTEXT_KEY in unit.metadata) == ("Bring a coat on trips.", False)


def test_bookkeeping_is_hidden_and_context_is_read_under_its_plain_name(
    nodes: list[TextNode],
) -> None:
    (node,) = (node for node in passages(*nodes) if ROWS[79] in f"{node.text}\n")
    for hidden in (node.excluded_embed_metadata_keys, node.excluded_llm_metadata_keys):
        assert {*BOOKKEEPING_KEYS} <= {*hidden}
    assert node.get_content(MetadataMode.EMBED) == node.text
    read = node.get_content(MetadataMode.LLM)
    assert "densex_" not in read
    for said in (
        "section: Handbook, Prices",
        "zorkmids",
        "| Part | Material | Price |",
        "| Pumps | | |",
    ):
        assert read.index(said) < read.index("| P79 |")


def test_a_node_that_was_written_as_json_has_its_context_again(nodes: list[TextNode]) -> None:
    for node in nodes:
        again = type(node).from_dict(json.loads(json.dumps(node.to_dict())))
        assert again.metadata.get(CONTEXT_KEY) == node.metadata.get(CONTEXT_KEY)
        assert embedded_text(again) == embedded_text(node)


def test_the_passages_of_sections_have_it_too() -> None:
    parser = HierarchicalPropositionNodeParser.from_defaults(chunk_sizes=[1024, 128])
    nodes = parser.get_nodes_from_documents([PRICES])
    rows = [node for node in passages(*nodes) if node.text.startswith(("| V", "| P"))]
    assert len(rows) > 3
    assert all(f"{LEAD}{NAMES}" in node.metadata[CONTEXT_KEY] for node in rows)


def test_a_passage_over_several_sections_is_labelled_by_what_they_share_and_its_units_by_their_own() -> (
    None
):
    text = "# 手引き\n\n## Rain\n\nIt rains in May.\n\n## 雪\n\n二月に雪が降る。"
    passage, *units = PropositionNodeParser().get_nodes_from_documents([Document(text=text)])
    assert passage.metadata[SECTION_KEY] == "手引き"
    assert [unit.metadata[SECTION_KEY] for unit in units] == ["手引き, Rain", "手引き, 雪"]


# What LLMs are asked


@pytest.mark.parametrize(
    ("begins", "note", "needed"),
    [
        ("| P", "Text before the passage:", f"{LEAD}{NAMES}| Pumps | | |"),
        ("- ", "文章の前には次の文がある。", LEAD_JA.strip()),
    ],
    ids=["en", "ja"],
)
def test_the_llm_is_told_what_stands_before_a_passage(begins: str, note: str, needed: str) -> None:
    with OpenAIServer(lambda body: "[]") as server:
        parser = PropositionNodeParser(propositionizer=asking(server, max_attempts=1))
        parser.get_nodes_from_documents([PRICES, LEAVE])
    told = [
        request.last_message for request in server.requests if request.content.startswith(begins)
    ]
    assert told
    assert all(message.startswith(f"{note}\n{needed}\n\nTitle: ") for message in told)


@pytest.mark.parametrize("names", ["| Part | Price |\n|---|---|\n", "| 品名 | 価格 |\n|---|---|\n"])
def test_each_part_of_a_table_that_is_too_long_for_a_reply_has_its_names(names: str) -> None:
    rows = [f"| 湯飲み{n} | {n} |\n" for n in range(8)]

    def reply(body: dict[str, Any]) -> Reply:
        asked = str(body["messages"][-1]["content"]).partition("Content: ")[2]
        stated = [f"湯飲み{n}の価格は{n}円である。" for n in range(8) if f"| 湯飲み{n} |" in asked]
        return Reply(
            json.dumps(stated[:2], ensure_ascii=False), "stop" if len(stated) <= 2 else "length"
        )

    with OpenAIServer(reply) as server:
        (made,) = asking(server).propositionize(
            [Passage(f"価格は次のとおり：\n\n{names}{''.join(rows)}")]
        )
    assert list(made.texts) == [f"湯飲み{n}の価格は{n}円である。" for n in range(8)]
    assert len(server.requests) > 4
    assert all(names in f"{request.last_message}\n" for request in server.requests)
    assert all("価格は次のとおり：" in request.last_message for request in server.requests)


@pytest.mark.parametrize("question", [PRICE, PRICE_JA])
def test_the_llm_that_answers_reads_it(question: str) -> None:
    with OpenAIServer(lambda body: "It is 639.[^1]") as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test", max_retries=0)
        DenseXRetrievalPack([PRICES, LEAVE], "none", llm, "none", similarity_top_k=1).run(question)
    (request,) = server.requests
    lead, own = ("zorkmids", "| P77 |") if question == PRICE else (LEAD_JA.strip(), "- 79号")
    assert request.last_message.index(lead) < request.last_message.rindex(own)


# What is searched


@pytest.mark.parametrize("word", ["zorkmids", "Material", "Pumps", "霧休"])
def test_a_passage_is_found_by_words_of_its_context(pack: DenseXRetrievalPack, word: str) -> None:
    below = {
        record.id for record in pack.records("passage") if word in record.context + record.text
    }
    assert len(below) > 1
    assert {node.node_id for node in pack.retrieve(word, similarity_top_k=20)} == below


def test_what_is_embedded_of_a_unit_is_below_its_headings_and_what_leads_it_in(
    nodes: list[TextNode],
) -> None:
    embedded = {node.text: embedded_text(node) for node in nodes if isinstance(node, IndexNode)}
    row = "Pumps; Part: P77; Material: brass; Price: 639"
    assert embedded[row] == f"Handbook, Prices\nAll prices are in zorkmids:\n{row}"
    item = "- 79号の業務を担当し、上長の承認を得たとき"
    assert embedded[item] == f"手引き, 休暇\n{LEAD_JA.strip()}\n{item}"


def test_of_what_leads_a_list_in_the_last_words_are_embedded_and_no_addresses() -> None:
    address = f"https://hr.example.com/{'zebra/' * 15}?id=walrus"
    lead = f"We ask everybody who leaves to fill in [this form]({address}) and to say when:"
    text = f"# Leave\n\n{lead}\n\n- on holiday"
    (unit,) = (
        node for node in PropositionNodeParser().get_nodes_from_documents([Document(text=text)])[2:]
    )
    expected = (
        "Leave\nWe ask everybody who leaves to fill in this form and to say when:\n- on holiday"
    )
    assert embedded_text(unit) == expected


# What is shown


def test_an_answer_quotes_the_row_with_the_names_of_its_columns_and_cites_what_stands_above(
    pack: DenseXRetrievalPack,
) -> None:
    answer = pack.run(PRICE)
    assert str(answer).startswith("Pumps; Part: P77; Material: brass; Price: 639[^1]")
    citation = answer.metadata["citations"][0]
    assert citation["context"].startswith(f"{LEAD}{NAMES}")
    (proposition, *_) = citation["propositions"]
    assert PRICES.text[proposition["start"] : proposition["end"]] == ROWS[77].strip()


def test_inspect_shows_it(index: Path) -> None:
    shown = run_json("inspect", index, "--limit", "0")["shown"]
    assert {passage["context"] for passage in shown if passage["text"].startswith("- ")} == {
        LEAD_JA
    }
    assert f"below: {LEAD_JA.strip()}" in run("inspect", index, "--search", "79号")[1]


def test_an_export_has_it_so_that_recordings_know_their_passage(
    index: Path, nodes: list[TextNode]
) -> None:
    exported = [json.loads(line) for line in run("export", index)[1].splitlines()]
    contexts = {passage["text"]: passage.get("context", "") for passage in exported}
    assert contexts == {node.text: node.metadata[CONTEXT_KEY] for node in passages(*nodes)}


@BOTH
def test_the_command_line_the_server_and_the_mcp_tools_give_it(
    question: str, lead: str, index: Path, http: httpx.Client
) -> None:
    (result,) = run_json("query", index, question, "--top-k", "1")["results"]
    assert result["context"].startswith(lead)
    (passage,) = http.post("/retrieve", json={"question": question, "top_k": 1}).json()["passages"]
    assert passage["context"] == result["context"]
    answer = http.post("/query", json={"question": question}).json()
    assert answer["citations"][0]["context"] == result["context"]


@BOTH
async def test_an_agent_gets_it(question: str, lead: str, pack: DenseXRetrievalPack) -> None:
    async with Client(make_mcp_server(pack)) as client:
        found = await client.call_tool("search", {"question": question, "top_k": 1})
        (passage,) = found.structured_content["passages"]
        read = await client.call_tool("read_passage", {"id": passage["id"]})
    assert passage["context"].startswith(lead)
    contexts = {one["id"]: one["context"] for one in read.structured_content["passages"]}
    assert contexts[passage["id"]] == passage["context"]


async def test_an_agent_gets_all_names_of_a_wide_table() -> None:
    names = "".join(f" Column number {n} |" for n in range(30))
    rows = "".join(f"| 部品{n} |{' 値 |' * 29}\n" for n in range(30))
    table = f"|{names}\n{'|---' * 30}|\n{rows}"
    text = f"# Parts\n\n{'It is a long story of parts. ' * 9}Here they are:\n\n{table}"
    async with Client(
        make_mcp_server(DenseXRetrievalPack([Document(text=text)], "none", "none", "none"))
    ) as client:
        found = await client.call_tool("search", {"question": "部品29", "top_k": 1})
    (passage,) = found.structured_content["passages"]
    assert f"|{names}\n" in passage["context"]


# Windows


@pytest.mark.parametrize("question", ["What is the price of V30?", "What is the price of P77?"])
def test_a_window_shows_the_columns_and_the_lead_in(
    pack: DenseXRetrievalPack, question: str
) -> None:
    window = PropositionContextPostprocessor(mode="window", budget=60)
    (shown,) = window.postprocess_nodes(pack.retrieve(question, similarity_top_k=1))
    read, row = shown.node.get_content(MetadataMode.LLM), f"| {question[-4:-1]} |"
    assert len(read.splitlines()) < 20
    assert read.index("zorkmids") < read.index("| Part | Material | Price |") < read.index(row)


def test_a_window_within_a_passage_shows_what_its_sentences_need_there() -> None:
    text = f"# 案内\n\n{'関係のない話が続く。' * 20}\n\n## Prices\n\n{NAMES}{''.join(ROWS[:12])}"
    pack = DenseXRetrievalPack([Document(text=text)], "none", "none", "none")
    window = PropositionContextPostprocessor(mode="window", budget=60)
    shown = window.postprocess_nodes(pack.retrieve("What is the price of V11?", similarity_top_k=1))
    first, *others, before, row = shown[0].node.get_content().splitlines()
    assert first == NAMES.splitlines()[0]
    assert "…" in others
    assert [before, row] == [ROWS[10].strip(), ROWS[11].strip()]
