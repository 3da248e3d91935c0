"""The documentation: every code block runs as it stands there, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document

import llama_pack_densex
from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.node_parsers.metadata import BOOKKEEPING_KEYS
from tests.integration.servers import POSTGRES_USER, Servers
from tests.openai_server import OpenAIServer, asked_content
from tests.pages import KINDS, Reader, blocks_of

pytestmark = pytest.mark.together("torch")

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MADE_BY_THE_BUILD = {DOCS / "reference" / "command-line.md"}
PAGES = [
    ROOT / "README.md",
    ROOT / "README.ja.md",
    *sorted({*DOCS.rglob("*.md")} - MADE_BY_THE_BUILD),
]
WITH_CODE = [page for page in PAGES if any(block.kind != "text" for block in blocks_of(page))]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
COMPARISONS = {
    "evaluation.md",
    "first-day.md",
    "formats.md",
    "search.md",
    "sentence-window.md",
}  # these need an extra


def reply(request: dict[str, Any]) -> str:
    """What the stand-in for an LLM answers: a passage's sentences, a tool's call, or an answer with its
    source."""
    passage = asked_content(request)
    if passage:
        sentences = re.findall(r"[^.。]+[.。]", passage.replace("\n", " "))
        return str([sentence.strip() for sentence in sentences]).replace("'", '"')
    messages = str(request["messages"])
    if "Action Input" in messages and "20,000 yen" not in messages:
        return 'Thought: I need the rules.\nAction: company_rules\nAction Input: {"input": "hotel in Tokyo"}'
    if "Action Input" in messages:
        return "Thought: I can answer.\nAnswer: At most 20,000 yen a night."
    return "It lies 240 metres below the sea.[^1]"


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.slow_cases("*", but=["*README*"])
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: Servers
) -> None:
    if page.name in COMPARISONS:
        pytest.importorskip("ir_measures", reason="the comparison needs the extra evaluation")
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "DENSEX_"))]:
        monkeypatch.delenv(name)
    for name, value in newcomer(tmp_path).items():
        monkeypatch.setenv(name, value)
    with OpenAIServer(reply) as server:
        variables = {"llm": {"OPENAI_API_KEY": "sk-test", "OPENAI_API_BASE": server.url}}
        if any(block.server == "postgres" for block in blocks_of(page)):
            pytest.importorskip("llama_index.vector_stores.postgres")
            address = f"postgresql://{POSTGRES_USER}:any@127.0.0.1:{servers.postgres}/postgres"
            variables["postgres"] = {"DATABASE_URL": address}
        Reader(page, tmp_path, {**os.environ}, variables).follow()


def newcomer(home: Path) -> dict[str, str]:
    """The environment of somebody without a key, who has downloaded no model but all-MiniLM-L6-v2."""
    return {
        "HF_HOME": str(home / ".hf"),
        "HF_HUB_OFFLINE": "1",
        "LLAMA_INDEX_CACHE_DIR": str(home / ".llama_index"),
        "PYTHONUTF8": "1",
        "COLUMNS": "100",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }


@EACH_PAGE
def test_a_block_is_run_or_says_why_not(page: Path) -> None:
    for block in blocks_of(page):
        assert block.kind in KINDS, f"line {block.line}"
        assert block.reason != "", f"line {block.line}: no reason"


@EACH_PAGE
def test_links_of_a_page_lead_to_pages_and_headings(page: Path) -> None:
    text = re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    broken = []
    for link in re.findall(r"\]\(((?!https?:|mailto:)[^)\s]+)\)", text):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (heading and heading not in headings_of(target)):
            broken.append(link)
    assert broken == []


def headings_of(page: Path) -> set[str]:
    text = re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", title.replace("`", "").lower()).strip().replace(" ", "-")
        for title in titles
    }


def test_every_page_is_in_the_tree_of_the_site() -> None:
    listed = set()
    for page in PAGES[2:]:
        for tree in re.findall(
            r"^```\{toctree\}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S
        ):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed |= {
                (page.parent / name.rpartition("<")[2].rstrip(">")).resolve() for name in names
            }
    assert [
        page
        for page in PAGES[2:]
        if page.with_suffix("") not in listed and page != DOCS / "index.md"
    ] == []


def test_the_reference_has_every_public_name() -> None:
    reference = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    documented = set(
        re.findall(r"^\.\. auto\w+:: llama_pack_densex\.(\w+)$", reference, re.MULTILINE)
    )
    assert documented == set(llama_pack_densex.__all__)


def test_the_reference_has_every_metadata_key() -> None:
    page = (DOCS / "reference" / "metadata.md").read_text(encoding="utf-8")
    assert [key for key in BOOKKEEPING_KEYS if f"`{key}`" not in page] == []


def test_the_http_reference_has_every_field() -> None:
    app = pytest.importorskip("llama_pack_densex.serving.app", reason="needs the extra serve")
    pack = DenseXRetrievalPack([Document(text="Tea is a drink.")], "none", "none", "none")
    schemas = app.make_app(pack).openapi()["components"]["schemas"]
    fields = {field for schema in schemas.values() for field in schema.get("properties", {})}
    reference = (DOCS / "reference" / "http.md").read_text(encoding="utf-8")
    assert {field for field in fields if f"`{field}`" not in reference} == set()


async def test_the_mcp_reference_has_every_argument_and_field() -> None:
    mcp = pytest.importorskip("llama_pack_densex.serving.mcp", reason="needs the extra mcp")
    pack = DenseXRetrievalPack([Document(text="Tea is a drink.")], "none", "none", "none")
    tools = await mcp.make_mcp_server(pack).list_tools()
    names = {tool.name for tool in tools}
    for tool in tools:
        parts = [
            tool.input_schema,
            tool.output_schema,
            *tool.output_schema.get("$defs", {}).values(),
        ]
        names |= {field for part in parts for field in part.get("properties", {})}
    reference = (DOCS / "reference" / "mcp.md").read_text(encoding="utf-8")
    assert {name for name in names if f"`{name}`" not in reference} == set()


@pytest.mark.parametrize("name", ["README.md", "README.ja.md"])
def test_a_readme_has_150_lines_at_most(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= 150
