"""The report page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_pack_densex.evaluation.report_html import render
from tests.browser import CHROMIUM, Page, browser
from tests.evaluation.example_report import HOSTILE, question, report, strategy

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian's package: chromium)")

NAMES = ("densex", "densex-dense", "bm25", "hybrid")
QUALITIES = (0.9, 0.85, 0.6, 0.8)
AN_ITEM = "document.querySelectorAll('#question-list > li')"
MATCHING = "document.getElementById('matching').textContent"


def _example() -> dict[str, Any]:
    asked = [question(number, {"densex": 1, "densex-dense": 1, "bm25": 1, "hybrid": 1}) for number in range(50)]
    asked[3] = question(3, {"densex": 1, "densex-dense": 2, "bm25": None, "hybrid": 1}, HOSTILE, HOSTILE)
    asked[4] = question(
        4, {"densex": None, "densex-dense": None, "bm25": 1, "hybrid": 7}, "誰が江戸に幕府を開いた？", "徳川家康"
    )
    asked[5] = question(5, dict.fromkeys(NAMES, None))
    return report([strategy(name, quality) for name, quality in zip(NAMES, QUALITIES, strict=True)], asked)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("report") / "report.html"
    written.write_text(render(_example()), encoding="utf-8")
    return written


@pytest.fixture
def page(chromium: Page, file: Path) -> Iterator[Page]:
    """The page, freshly opened; afterwards nothing may have gone wrong in it."""
    for seen in (chromium.requests, chromium.complaints, chromium.dialogs):
        seen.clear()
    chromium.open(file)
    yield chromium
    assert chromium.complaints == []
    assert chromium.dialogs == []
    assert set(chromium.requests) <= {file.resolve().as_uri(), "data:,"}


def _choose(page: Page, field: str, value: str) -> str:
    """Choose by an option's text; returns how many questions match."""
    page.run(
        f"(() => {{ const field = document.getElementById('{field}');"
        f" field.value = [...field.options].find((option) => option.text === '{value}').value;"
        " field.dispatchEvent(new Event('change')); })()"
    )
    return str(page.run(MATCHING))


def _search(page: Page, text: str) -> str:
    page.type("#search", text)
    page.run("new Promise((done) => setTimeout(done, 300))")
    return str(page.run(MATCHING))


def _order(page: Page, table: str) -> list[str]:
    return page.run(f"[...document.querySelectorAll('#{table} tbody th')].map((cell) => cell.textContent.trim())")  # type: ignore[no-any-return]


def test_the_page_opens_from_a_file_without_network_and_without_errors(page: Page) -> None:
    assert page.run("document.querySelector('h1').textContent") == "normans"
    assert page.run(f"{AN_ITEM}.length") == 20


def test_a_script_in_a_document_or_question_shows_as_text(page: Page) -> None:
    assert page.run(f"{AN_ITEM}[3].querySelector('h3').textContent") == HOSTILE
    page.run(f"{AN_ITEM}[3].querySelector('details').open = true")
    page.run("new Promise((done) => setTimeout(done, 50))")
    assert HOSTILE in page.run(f"{AN_ITEM}[3].querySelector('.hit p').textContent")
    assert page.run("document.images.length") == 0


def test_the_policy_stops_a_script_that_got_in(page: Page) -> None:
    page.run(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = true'}))"
    )
    assert page.run("window.ran === undefined")
    assert len(page.complaints) == 1
    page.complaints.clear()


def test_a_head_sorts_best_first_then_the_other_way_then_not(page: Page) -> None:
    button = "#metrics thead button[data-column='1']"
    head = f'document.querySelector("{button}").closest("th").getAttribute("aria-sort")'
    page.click(button)
    assert _order(page, "metrics") == ["densex", "densex-dense", "hybrid", "bm25"]
    assert page.run(head) == "descending"
    page.click(button)
    assert _order(page, "metrics") == ["bm25", "hybrid", "densex-dense", "densex"]
    page.click(button)
    assert _order(page, "metrics") == list(NAMES)
    assert page.run(head) == "none"


def test_a_table_is_sorted_by_keyboard(page: Page) -> None:
    page.run("document.querySelector('#cost thead button').focus()")
    page.press("Enter")
    assert _order(page, "cost") == ["bm25", "densex", "densex-dense", "hybrid"]


def test_confidence_intervals_come_when_asked_for(page: Page) -> None:
    shown = "getComputedStyle(document.querySelector('#metrics .interval')).display"
    assert page.run(shown) == "none"
    page.click("#intervals")
    assert page.run(shown) == "block"


def test_a_line_is_hidden_and_shown_by_its_button(page: Page) -> None:
    shown = "getComputedStyle(document.querySelector('.wide .series.line[data-strategy=\"2\"]')).display !== 'none'"
    button = "#legend button[data-strategy='2']"
    page.click(button)
    assert not page.run(shown)
    assert page.run(f'document.querySelector("{button}").getAttribute("aria-pressed")') == "false"
    page.click(button)
    assert page.run(shown)
    page.click("[data-show='ours']")
    assert not page.run(shown)


def test_the_mouse_reads_a_value_off_the_nearest_line(page: Page) -> None:
    plot = "#curve-plots [data-drawing='near'] .wide svg"
    page.run("document.querySelector(\"[data-show='none']\").click()")
    page.click("#legend button[data-strategy='0']")
    left, right, width = page.run(
        f'(() => {{ const plot = document.querySelector("{plot}");'
        " return [Number(plot.dataset.left), Number(plot.dataset.right), plot.viewBox.baseVal.width]; })()"
    )
    page.move_to(plot, across=(left + (right - left) * 0.4) / width)
    assert page.run("document.getElementById('tip').textContent").startswith("densex200 words: 0.811 (0.791–0.831)")
    assert page.run("document.querySelector('#legend output').textContent") == "0.811"


def test_the_slider_moves_the_readings_by_keyboard(page: Page) -> None:
    page.run("document.getElementById('length').focus()")
    page.press("ArrowRight")
    assert page.run("document.getElementById('at-length').textContent") == "150 words"
    assert page.run("document.getElementById('length').getAttribute('aria-valuetext')") == "150 words"


def test_the_axis_begins_at_0_when_asked_to(page: Page) -> None:
    page.click("#from-zero")
    visible = "[...document.querySelectorAll('[data-drawing]:not([hidden])')].map((each) => each.dataset.drawing)"
    assert page.run(visible) == ["whole"]


def test_comparisons_are_shown_one_metric_at_a_time(page: Page) -> None:
    shown = "[...document.querySelectorAll('#comparisons tbody tr:not([hidden])')].map((row) => row.dataset.choice)"
    assert page.run(shown) == ["recall@1"] * 3
    page.run(
        "(() => { const field = document.querySelector('[data-rows-of=comparisons]'); field.value = '';"
        " field.dispatchEvent(new Event('change')); })()"
    )
    assert page.run(shown) == ["recall@1"] * 3 + ["answer_recall@100"] * 3


def test_only_questions_on_which_strategies_disagree_are_listed(page: Page) -> None:
    assert _choose(page, "which", "only where strategies disagree") == "2 of 50 questions"
    assert page.run(f"{AN_ITEM}.length") == 2


def test_disagreement_follows_what_found_means(page: Page) -> None:
    _choose(page, "which", "only where strategies disagree")
    assert _choose(page, "measure", "an answer within 50 words") == "2 of 50 questions"
    _choose(page, "strategy-a", "densex-dense")
    _choose(page, "which", "only what A does not find")
    assert _choose(page, "measure", "an answer in the first result") == "3 of 50 questions"
    assert _choose(page, "measure", "an answer in the first 5 results") == "2 of 50 questions"


def test_only_questions_on_which_two_strategies_differ_are_listed(page: Page) -> None:
    _choose(page, "strategy-a", "densex")
    _choose(page, "strategy-b", "bm25")
    assert _choose(page, "which", "only where A and B differ") == "2 of 50 questions"
    assert _choose(page, "which", "only what A finds and B does not") == "1 of 50 questions"
    assert _choose(page, "which", "only what none finds") == "1 of 50 questions"


def test_questions_are_searched(page: Page) -> None:
    assert _search(page, "Year 917") == "1 of 50 questions"


def test_found_texts_are_searched_in_japanese_and_in_full_width_forms(page: Page) -> None:
    assert _search(page, "徳川家康 led") == "1 of 50 questions"
    page.run("document.getElementById('search').value = ''")
    assert _search(page, "ｙｅａｒ　９１７") == "1 of 50 questions"


def test_questions_come_in_pages(page: Page) -> None:
    page.click("[data-page='next']")
    assert page.run("document.getElementById('page-number').textContent") == "page 2 of 3"
    page.click("[data-page='last']")
    assert page.run(f"{AN_ITEM}.length") == 10
    assert page.run("document.querySelector(\"[data-page='next']\").disabled")


def test_a_question_opens_to_what_each_found_with_the_answer_marked(page: Page) -> None:
    page.click("#question-list summary")
    page.run("new Promise((done) => setTimeout(done, 50))")
    assert page.run("document.querySelectorAll('#question-list li:first-child .hit').length") == len(NAMES)
    assert page.run("document.querySelector('.hit mark').textContent") == "Rollo"
    assert (
        page.run("document.querySelector('.hit .chip').textContent")
        == "densex: answer in result 1, gold in 1, after 20 words"
    )


@pytest.mark.parametrize("width", [400, 700, 1600])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_never_scrolls_sideways(page: Page, file: Path, width: int, dark: bool) -> None:
    page.open(file, width=width, dark=dark)
    page.click("#open-all")
    page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.click("#intervals")
    assert page.run("document.documentElement.scrollWidth") <= width


def test_dark_and_light_have_their_own_ground(page: Page, file: Path) -> None:
    ground = "getComputedStyle(document.querySelector('.ground')).fill"
    light = page.run(ground)
    page.open(file, dark=True)
    assert page.run(ground) != light


def test_a_page_without_questions_or_figures_works_too(page: Page, tmp_path: Path) -> None:
    for number, made in enumerate((report([strategy("densex", 0.9)]), report([strategy("bm25", None)]), report([]))):
        file = tmp_path / f"{number}.html"
        file.write_text(render(made), encoding="utf-8")
        page.open(file)
        assert page.run(MATCHING) == "0 of 0 questions"
    page.requests.clear()


def test_many_questions_and_strategies_are_listed_at_once(page: Page, tmp_path: Path) -> None:
    names = [f"{'densex-' if number < 8 else ''}strategy-{number}" for number in range(22)]
    asked = [
        question(number, {name: 1 + (number + place) % 7 for place, name in enumerate(names)}) for number in range(1300)
    ]
    large = tmp_path / "large.html"
    large.write_text(render(report([strategy(name, 0.7) for name in names], asked)), encoding="utf-8")
    page.open(large)
    took = page.run(
        "(() => { const start = performance.now(); for (const value of ['disagree', 'differ', 'all']) {"
        " document.getElementById('which').value = value;"
        " document.getElementById('which').dispatchEvent(new Event('change')); } return performance.now() - start; })()"
    )
    assert page.run(MATCHING) == "1,300 of 1,300 questions"
    assert page.run("document.querySelectorAll('*').length") < 20_000
    assert took < 3_000
    page.requests.clear()
