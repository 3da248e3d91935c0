"""The page in a real browser."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document

from llama_pack_densex import DenseXRetrievalPack, RecordedPropositionizer, SentencePropositionizer
from tests.browser import CHROMIUM, Page, browser
from tests.conftest import DATA
from tests.serving.running import SlowProvider, served

pytestmark = [
    pytest.mark.together("page"),
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian's package: chromium)"),
]

TOKEN = "open-sesame-9f2c"
HOSTILE = '<img src="x" onerror="alert(1)"><script>alert(2)</script> [^1] ${alert(3)} {{ 7*7 }}'
IDLE = "!running && !document.querySelector('.waiting')"
SENTENCE = "The 𠮷野 Tower has 41 floors."


def _axe() -> Path | None:
    """axe-core's script: the one that AXE_CORE names, or the one that comes with the package
    axe-core-python."""
    named, package = os.environ.get("AXE_CORE"), importlib.util.find_spec("axe_core_python")
    if named or package is None or not package.submodule_search_locations:
        return Path(named) if named else None
    return Path(package.submodule_search_locations[0]) / "axe.min.js"


@pytest.fixture(scope="module")
def pack() -> DenseXRetrievalPack:
    files = sorted([*DATA.glob("en/*"), *DATA.glob("ja/*")])
    documents = [Document(id_=file.name, text=file.read_text(encoding="utf-8")) for file in files]
    documents.append(
        Document(id_="hostile", text=f"Zyzzyva is {HOSTILE}.", metadata={"title": HOSTILE})
    )
    documents.append(
        Document(
            id_="tower",
            text=f"Its sign is \N{ROCKET}\N{GRINNING FACE}. {SENTENCE} It was built in 2011.",
        )
    )
    facts = RecordedPropositionizer(
        DATA / "propositions.jsonl", otherwise=SentencePropositionizer()
    )
    return DenseXRetrievalPack(
        documents, propositionizer=facts, embed_model="none", query_llm="none"
    )


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def address(pack: DenseXRetrievalPack) -> Iterator[str]:
    with served(pack, name="Sample documents") as client:
        yield str(client.base_url)


@pytest.fixture
def page(chromium: Page, address: str) -> Iterator[Page]:
    """The page, freshly opened; afterwards nothing may have gone wrong in it."""
    for seen in (chromium.requests, chromium.complaints, chromium.dialogs):
        seen.clear()
    chromium.open(f"{address}/?lang=en")
    yield chromium
    assert chromium.complaints == []
    assert chromium.dialogs == []
    assert all(url.startswith(address) for url in chromium.requests)


def _ask(page: Page, question: str) -> str:
    """Ask as a person does; the answer's text."""
    turns = page.run("document.querySelectorAll('.turn').length")
    page.type("#question", question)
    page.press("Enter")
    page.wait_for(f"document.querySelectorAll('.turn').length > {turns} && {IDLE}")
    assert page.run("document.querySelector('.turn:last-child .problem')") is None
    return str(page.run("document.querySelector('.turn:last-child .answer').textContent"))


def _go(page: Page, view: str) -> None:
    page.run(f"location.hash = '#{view}'")
    page.wait_for(f"!document.getElementById('{view}').hidden")


def _search(page: Page, query: str) -> None:
    _go(page, "search")
    page.type("#query", query)
    page.press("Enter")
    page.wait_for("document.querySelector('.result')")


def _focused(page: Page) -> str:
    return str(page.run("document.activeElement.id || document.activeElement.className"))


def test_a_citation_opens_its_source_and_the_place_that_says_it(page: Page) -> None:
    assert "330" in _ask(page, "What is the height of the Eiffel Tower in metres?")
    page.click(".answer .footnote")
    assert page.run("document.getElementById('source').open")
    assert _focused(page) == "source-title"
    assert "eiffel-tower" in page.run("document.getElementById('source').textContent")
    marked = page.run(
        "[...document.querySelectorAll('#source mark')].map((mark) => mark.textContent)"
    )
    text = (DATA / "en" / "eiffel-tower.md").read_text(encoding="utf-8")
    assert marked
    assert all(place in text for place in marked)
    page.press("Escape")
    assert not page.run("document.getElementById('source').open")
    assert _focused(page) == "footnote"


def test_a_source_opens_by_keyboard(page: Page) -> None:
    _ask(page, "What is the height of the Eiffel Tower in metres?")
    page.run("document.querySelector('.sources button').focus()")
    page.press("Enter")
    assert page.run("document.getElementById('source').open")
    page.press("Tab")
    page.press("Enter")
    assert page.run("document.querySelector('#source [aria-pressed=true]') !== null")


def test_a_follow_up_goes_on_with_the_conversation(page: Page) -> None:
    _ask(page, "When was the Eiffel Tower built?")
    assert _focused(page) == "question"
    _ask(page, "Who protested against it?")
    assert page.run("told.map((message) => message.role).join()") == "user,assistant,user,assistant"
    page.click("#new")
    assert page.run("document.querySelectorAll('.turn').length + told.length") == 0
    assert _focused(page) == "question"


def test_japanese_is_typed_with_an_input_method(page: Page) -> None:
    page.run("document.getElementById('question').focus()")
    page.send(
        "Input.imeSetComposition",
        text="せいかんとんねるのながさは",
        selectionStart=13,
        selectionEnd=13,
    )
    page.press("Enter")  # takes what the input method offers
    assert page.run("document.querySelectorAll('.turn').length") == 0
    page.send("Input.insertText", text="青函トンネルの長さは？")
    page.press("Enter")
    page.wait_for(f"document.querySelectorAll('.turn').length === 1 && {IDLE}")
    assert page.run("document.querySelector('.asked').textContent") == "青函トンネルの長さは？"
    assert page.run("document.querySelector('.asked').lang") == "ja"
    assert "トンネル" in page.run("document.querySelector('.answer').textContent")
    assert page.run("told.length") == 2


def test_shift_and_enter_begin_a_new_line_and_a_blank_question_is_not_sent(page: Page) -> None:
    page.type("#question", " \n ")
    page.press("Enter")
    assert page.run("document.querySelectorAll('.turn').length") == 0


def test_an_answer_is_read_out_without_its_footnotes(page: Page) -> None:
    answer = _ask(page, "What is the height of the Eiffel Tower in metres?")
    said = page.run("document.getElementById('said').textContent")
    assert page.run("document.getElementById('said').ariaLive") == "polite"
    assert "330" in said
    assert "[^" not in said + answer


def test_what_documents_hold_is_text_and_nothing_else(page: Page) -> None:
    _ask(page, "What is Zyzzyva?")
    page.click(".answer .footnote")
    assert HOSTILE in page.run("document.getElementById('source-title').textContent")
    assert HOSTILE in page.run("document.querySelector('#source .text').textContent")
    _search(page, "Zyzzyva")
    assert HOSTILE in page.run("document.querySelector('.result .text').textContent")
    assert page.run("document.images.length") == 0
    _go(page, "ask")
    _ask(page, HOSTILE)
    assert page.run("document.querySelector('.turn:last-child .asked').textContent") == HOSTILE


def test_places_are_right_after_characters_beyond_the_basic_plane(page: Page) -> None:
    _search(page, "How many floors does the Tower have, 41?")
    chosen = "[...document.querySelectorAll('.facts button')].find((one) => one.textContent.includes('41'))"
    page.run(f"{chosen}.click()")
    assert page.run("document.querySelector('mark.chosen').textContent") == SENTENCE


def test_a_search_shows_passages_and_what_found_them(page: Page) -> None:
    _search(page, "琵琶湖の深さ")
    assert page.run("document.getElementById('count').textContent").endswith(" passages found.")
    assert "104" in page.run(
        "document.querySelector('.result mark').closest('.result').textContent"
    )
    assert (
        page.run("document.querySelectorAll('.result:first-child .facts li:not([hidden])').length")
        <= 4
    )
    hidden = page.run("document.querySelectorAll('.facts li[hidden]').length")
    page.click(".more")
    assert page.run("document.querySelectorAll('.facts li[hidden]').length") < hidden


def test_a_phone_shows_all_without_scrolling_sideways(page: Page, address: str) -> None:
    for width in (390, 320):
        page.open(f"{address}/?lang=ja", width=width, height=800)
        _ask(page, "青函トンネルの長さは？")
        page.click(".answer .footnote")
        assert page.run("document.getElementById('source').matches(':modal')")
        assert page.run("document.documentElement.scrollWidth") <= width
        page.click("#close")
        _search(page, "Eiffel Tower")
        assert page.run("document.documentElement.scrollWidth") <= width


def test_an_answer_is_shown_as_it_is_written(chromium: Page, documents: list[Document]) -> None:
    first = "The Akashi Bridge opened in 1998.[^1] Its main"
    with (
        SlowProvider(first, " span is 1,991 metres long.[^1]") as provider,
        served(DenseXRetrievalPack(documents, "none", provider.llm(), "none")) as client,
    ):
        chromium.open(f"{client.base_url}/?lang=en")
        chromium.type("#question", "What of the Akashi Bridge and its main span?")
        chromium.press("Enter")
        chromium.wait_for(
            "document.querySelector('.answer')?.textContent.includes('opened in 1998')"
        )
        assert chromium.run("document.getElementById('send').textContent") == "Stop"
        assert chromium.run("document.querySelector('.footnote:not([aria-disabled])')") is None
        assert "1,991" not in chromium.run("document.querySelector('.answer').textContent")
        provider.go_on.set()
        chromium.wait_for(f"document.querySelector('.sources') && {IDLE}")
        assert "1,991" in chromium.run("document.querySelector('.answer').textContent")
        assert chromium.run("document.querySelector('.footnote[aria-disabled]')") is None
        assert chromium.run("document.getElementById('send').textContent") == "Send"


def test_an_answer_that_is_stopped_ends_the_request_to_the_model(
    chromium: Page, documents: list[Document]
) -> None:
    with (
        SlowProvider("The Akashi Bridge opened in 1998.[^1] Its main") as provider,
        served(DenseXRetrievalPack(documents, "none", provider.llm(), "none")) as client,
    ):
        chromium.open(f"{client.base_url}/?lang=en")
        chromium.type("#question", "When did the Akashi Bridge open?")
        chromium.press("Enter")
        chromium.wait_for(
            "document.querySelector('.answer')?.textContent.includes('opened in 1998')"
        )
        chromium.click("#send")
        chromium.wait_for(
            f"document.querySelector('.turn').textContent.includes('Stopped.') && {IDLE}"
        )
        assert provider.hung_up.wait(120)
        assert "opened in 1998" in chromium.run("told[1].content")


def test_the_page_asks_for_the_token(chromium: Page, pack: DenseXRetrievalPack) -> None:
    with served(pack, TOKEN) as client:
        chromium.open(f"{client.base_url}/?lang=en")
        for wrong, given in ((False, "nothing-like-it"), (True, "合言葉"), (True, TOKEN)):
            chromium.wait_for("document.getElementById('token-dialog').open")
            assert chromium.run("document.getElementById('token-wrong').hidden") is not wrong
            chromium.type("#token", given)
            chromium.press("Enter")
            if not wrong:
                chromium.type("#question", "How tall is the Eiffel Tower?")
                chromium.press("Enter")
        chromium.wait_for(f"document.querySelector('.sources') && {IDLE}")
        assert TOKEN not in chromium.run("document.documentElement.outerHTML")
    chromium.run("sessionStorage.clear()")
    assert [one for one in chromium.complaints if "401" not in one] == []


def test_a_problem_is_told_in_the_pages_language_and_not_tried_again_beside_another_answer(
    chromium: Page, documents: list[Document]
) -> None:
    with (
        SlowProvider("It opened in 1998.[^1] Its main", " span is long.[^1]") as provider,
        served(DenseXRetrievalPack(documents, "none", provider.llm(), "none")) as client,
    ):
        chromium.open(f"{client.base_url}/?lang=ja")
        chromium.run(
            "window.real = fetch; window.fetch = async () => new Response('{}', { status: 503 }); 0"
        )
        chromium.type("#question", "When did the Akashi Bridge open?")
        chromium.press("Enter")
        chromium.wait_for("document.querySelector('.problem button')")
        said = chromium.run("document.querySelector('.problem').textContent")
        assert said.startswith("うまくいきませんでした。サーバーが混み合っています。")
        chromium.run("window.fetch = real; 0")
        chromium.type("#question", "What of the Akashi Bridge and its main span?")
        chromium.press("Enter")
        chromium.wait_for(
            "document.querySelector('.turn:last-child .answer').textContent.includes('in 1998')"
        )
        chromium.click(".problem button")
        assert chromium.run("document.querySelectorAll('.waiting').length") == 0
        assert chromium.run("document.getElementById('send').textContent") == "停止"
        chromium.click("#send")
        chromium.wait_for(IDLE)
        assert provider.hung_up.wait(120)


def test_a_server_that_is_gone_is_said_and_can_be_tried_again(
    chromium: Page, pack: DenseXRetrievalPack
) -> None:
    with served(pack) as client:
        chromium.open(f"{client.base_url}/?lang=en")
    chromium.type("#question", "How tall is the Eiffel Tower?")
    chromium.press("Enter")
    chromium.wait_for("document.querySelector('.turn .problem button')")
    assert "does not answer" in chromium.run("document.querySelector('.problem').textContent")


@pytest.mark.skipif(
    _axe() is None,
    reason="no axe-core here: pip install axe-core-python, or set AXE_CORE to its file",
)
@pytest.mark.parametrize(
    ("language", "width", "dark"),
    [("en", 1200, False), ("ja", 1200, True), ("en", 390, True), ("ja", 390, False)],
)
def test_axe_finds_nothing_serious(
    page: Page, address: str, language: str, width: int, dark: bool
) -> None:
    page.open(f"{address}/?lang={language}", width=width, dark=dark)
    found = _faults(page)
    _ask(page, "How tall is the Eiffel Tower?")
    found += _faults(page)
    page.click(".answer .footnote")
    page.run("document.querySelector('#source .facts button')?.click()")
    found += _faults(page)
    page.press("Escape")
    _search(page, "Eiffel Tower")
    page.run("document.querySelector('.facts button').click()")
    found += _faults(page)
    assert found == []


def _faults(page: Page) -> list[Any]:
    """What axe-core calls serious or critical."""
    script = _axe()
    assert script is not None
    page.run(f"window.axe || (() => {{ {script.read_text(encoding='utf-8')} }})(); true")
    return list(
        page.run(
            "axe.run().then(({ violations }) => violations"
            ".filter(({ impact }) => ['serious', 'critical'].includes(impact))"
            ".map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => [html, failureSummary])]))"
        )
    )
