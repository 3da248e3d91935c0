"""The report page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from llama_pack_densex.evaluation.page import render
from tests.browser import CHROMIUM, Page, browser
from tests.evaluation.example_report import HOSTILE, question, report, strategy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian's package: chromium)"),
]

NAMES = ("densex", "densex-dense", "bm25", "hybrid")
QUALITIES = (0.9, 0.85, 0.6, 0.8)
AN_ITEM = "document.querySelectorAll('#question-list > li')"
MATCHING = "document.getElementById('matching').textContent"


def _example() -> dict[str, Any]:
    asked = [
        question(number, {"densex": 1, "densex-dense": 1, "bm25": 1, "hybrid": 1})
        for number in range(50)
    ]
    asked[3] = question(
        3, {"densex": 1, "densex-dense": 2, "bm25": None, "hybrid": 1}, HOSTILE, HOSTILE
    )
    asked[4] = question(
        4,
        {"densex": None, "densex-dense": None, "bm25": 1, "hybrid": 7},
        "誰が江戸に幕府を開いた？",
        "徳川家康",
    )
    asked[5] = question(5, dict.fromkeys(NAMES, None))
    return report(
        [strategy(name, quality) for name, quality in zip(NAMES, QUALITIES, strict=True)], asked
    )


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
    return page.run(
        f"[...document.querySelectorAll('#{table} tbody th')].map((cell) => cell.textContent.trim())"
    )  # type: ignore[no-any-return]


def test_the_page_opens_from_a_file_without_network_and_without_errors(page: Page) -> None:
    assert page.run("document.querySelector('h1').textContent") == "normans"
    assert page.run(f"{AN_ITEM}.length") == 20


def test_a_script_in_a_document_or_question_shows_as_text(page: Page) -> None:
    assert page.run(f"{AN_ITEM}[0].querySelector('h3').textContent") == HOSTILE
    page.run(f"{AN_ITEM}[0].querySelector('details').open = true")
    page.run("new Promise((done) => setTimeout(done, 50))")
    assert HOSTILE in page.run(f"{AN_ITEM}[0].querySelector('.hit p').textContent")
    assert page.run("document.images.length") == 0


def test_the_policy_stops_a_script_that_got_in(page: Page) -> None:
    page.run(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = "
        "true'}))"
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
    shown = "getComputedStyle(document.querySelector('.series.line[data-strategy=\"2\"]')).display !== 'none'"
    button = "#legend button[data-strategy='2']"
    page.click(button)
    assert not page.run(shown)
    assert page.run(f'document.querySelector("{button}").getAttribute("aria-pressed")') == "false"
    page.click(button)
    assert page.run(shown)
    page.click("[data-show='ours']")
    assert not page.run(shown)


def test_the_mouse_reads_a_value_off_the_nearest_line(page: Page) -> None:
    plot = "#curve-plots svg.plot"
    page.run("document.querySelector(\"[data-show='none']\").click()")
    page.click("#legend button[data-strategy='0']")
    left, right, width = page.run("[frame.left, frame.right, frame.width]")
    page.move_to(plot, across=(left + (right - left) * 0.4) / width)
    assert page.run("document.getElementById('tip').textContent").startswith(
        "densex200 words: 0.811 (0.791–0.831)"
    )
    assert page.run("document.querySelector('#legend output').textContent") == "0.811"


def test_the_slider_moves_the_readings_by_keyboard(page: Page) -> None:
    page.run("document.getElementById('length').focus()")
    page.press("ArrowRight")
    assert page.run("document.getElementById('at-length').textContent") == "150 words"
    assert (
        page.run("document.getElementById('length').getAttribute('aria-valuetext')") == "150 words"
    )


def test_the_axis_begins_at_0_when_asked_to(page: Page) -> None:
    lowest = "document.querySelector('#curve-plots text.soft').textContent"
    assert page.run(lowest) == "0.5"
    page.click("#from-zero")
    assert page.run(lowest) == "0.0"


def test_a_line_ends_where_nothing_is_given_and_bars_have_whiskers_only_where_there_is_a_value(
    page: Page, tmp_path: Path
) -> None:
    some = tmp_path / "some.html"
    some.write_text(
        render(report([strategy("densex", 0.9), strategy("vector", None)])), encoding="utf-8"
    )
    page.open(some)
    assert page.run("document.querySelectorAll('#curve-plots .series.line').length") == 1
    assert page.run("document.querySelectorAll('[data-bars=recall] .whisker').length") == 3
    assert (
        page.run("document.querySelector('[data-bars=recall]').textContent").count("not given") == 3
    )
    page.requests.clear()


def test_names_beside_the_lines_do_not_lie_on_each_other(page: Page, tmp_path: Path) -> None:
    many = tmp_path / "many.html"
    many.write_text(
        render(report([strategy(f"strategy-{number}", 0.9) for number in range(25)])),
        encoding="utf-8",
    )
    page.open(many)
    page.click("#all-strategies")
    heights = page.run(
        "[...document.querySelectorAll('.series.label text')].map((text) => Number(text.getAttribute('y')))"
    )
    assert len(heights) == 25
    assert all(later - earlier >= 12 for earlier, later in pairwise(sorted(heights)))
    assert 0 < min(heights) < max(heights) < 540
    page.requests.clear()


def test_plots_are_drawn_anew_for_a_narrow_window(page: Page, file: Path) -> None:
    width = "document.querySelector('#curve-plots svg.plot').viewBox.baseVal.width"
    before = page.run(width)
    page.open(file, width=400)
    assert page.run(width) < 400 < before
    assert page.run("document.querySelectorAll('.series.label').length") == 0


def test_questions_without_answers_are_judged_by_their_gold_passage(
    page: Page, tmp_path: Path
) -> None:
    made = report(
        [strategy("densex", 0.9), strategy("bm25", 0.7)], [question(1, {"densex": 1, "bm25": None})]
    )
    made["questions"][0]["answers"] = []
    for each in made["strategies"]:
        each["metrics"] = {
            key: value for key, value in each["metrics"].items() if key.startswith("gold")
        }
    written = tmp_path / "gold.html"
    written.write_text(render(made), encoding="utf-8")
    page.open(written)
    assert (
        page.run("document.querySelector('#measure option').textContent")
        == "the gold passage first"
    )
    assert page.run("document.getElementById('recall-by-words').hidden")
    page.requests.clear()


def test_comparisons_are_shown_one_metric_at_a_time(page: Page) -> None:
    shown = (
        "[...document.querySelectorAll('#comparisons tbody tr:not([hidden])')].map((row) => "
        "row.dataset.choice)"
    )
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
    _choose(page, "order", "as in the dataset")
    page.click("#question-list summary")
    page.run("new Promise((done) => setTimeout(done, 50))")
    assert page.run(
        "document.querySelectorAll('#question-list li:first-child .hit').length"
    ) == len(NAMES)
    assert page.run("document.querySelector('.hit mark').textContent") == "Rollo"
    assert (
        page.run("document.querySelector('.hit .chip').textContent")
        == "densex: answer in result 1, gold in 1, after 20 words"
    )


def test_the_unit_that_found_a_passage_is_shown_with_the_answer_marked(
    page: Page, tmp_path: Path
) -> None:
    for language, answer, unit, marks in (
        ("en", "3 ships", "Of 13 ships and 3\nships the last came.", ["3\nships"]),
        ("ja", "徳川家康", "江戸幕府は徳川 家康が開いた。", ["徳川 家康"]),
    ):
        made = report(
            [strategy("densex", 0.9)],
            [question(1, {"densex": 1}, answer=answer)],
            language=language,
        )
        made["questions"][0]["found"]["densex"]["unit"] = unit
        written = tmp_path / f"{language}.html"
        written.write_text(render(made), encoding="utf-8")
        page.open(written)
        page.click("#question-list summary")
        page.run("new Promise((done) => setTimeout(done, 50))")
        assert page.run("document.querySelector('.hit .unit').textContent") == f"Found by: {unit}"
        assert (
            page.run("[...document.querySelectorAll('.unit mark')].map((mark) => mark.textContent)")
            == marks
        )
    page.requests.clear()


def test_eight_strategies_are_shown_at_first_and_a_click_shows_the_others(
    page: Page, tmp_path: Path
) -> None:
    names = [
        "densex",
        "densex-dense",
        "densex-sentences",
        "vector",
        "vector-256",
        "bm25",
        "hybrid",
        "contextual",
    ]
    names += ["dense-x", "paper-sentences", "mine"]
    asked = [question(1, {name: 1 if name != "paper-sentences" else None for name in names})]
    written = tmp_path / "many.html"
    written.write_text(
        render(report([strategy(name, 0.9) for name in names], asked)), encoding="utf-8"
    )
    page.open(written)
    listed = "[...document.querySelectorAll('#metrics tbody tr')].filter((row) => row.offsetHeight).length"
    chips = "document.querySelectorAll('.outcome .chip').length"
    assert (page.run(listed), page.run(chips)) == (8, 8)
    assert page.run(
        "[...document.querySelectorAll('#metrics tbody tr:not([data-other])')]"
        ".some((row) => row.textContent.includes('mine'))"
    )
    page.click("#all-strategies")
    assert (page.run(listed), page.run(chips)) == (11, 11)
    assert page.run("document.querySelectorAll('.series.line').length") == 11
    page.requests.clear()


def test_disputed_questions_come_first(page: Page) -> None:
    titles = (
        f"[...{AN_ITEM}].slice(0, 3).map((item) => "
        "item.querySelector('.answers').textContent.match(/q[0-9]+/)[0])"
    )
    assert page.run(titles) == ["q3", "q4", "q0"]
    _choose(page, "order", "as in the dataset")
    assert page.run(titles) == ["q0", "q1", "q2"]


def test_the_verdict_is_in_sight_on_a_phone(page: Page, file: Path) -> None:
    page.open(file, width=390)
    right = (
        "[...document.querySelectorAll('.verdict')].filter((each) => each.offsetHeight)"
        ".map((each) => each.getBoundingClientRect().right)"
    )
    edges = page.run(right)
    assert len(edges) > 4
    assert max(edges) <= 390


def test_columns_say_so_where_questions_name_documents_only(page: Page, tmp_path: Path) -> None:
    made = _example()
    made["dataset"]["gold"] = "document"
    written = tmp_path / "documents.html"
    written.write_text(render(made), encoding="utf-8")
    page.open(written)
    assert "Passage of the right document" in page.run(
        "document.querySelector('#metrics .groups').textContent"
    )
    assert "Gold" not in page.run("document.querySelector('#metrics').textContent")
    assert "a passage of the right document first" in page.run(
        "document.getElementById('measure').textContent"
    )
    page.requests.clear()


def test_the_cost_has_llm_calls_tokens_and_money(page: Page, tmp_path: Path) -> None:
    made = _example()
    for each, dollars in zip(made["strategies"], (0.0123, 12.5, None, 0.0), strict=True):
        each["cost"] |= {"llm_calls": 301, "llm_tokens": 45_678, "llm_dollars": dollars}
    written = tmp_path / "llm.html"
    written.write_text(render(made), encoding="utf-8")
    page.open(written)
    rows = page.run(
        "[...document.querySelectorAll('#cost tbody tr')]"
        ".map((row) => [3, 4, 5].map((cell) => row.cells[cell].textContent.trim()))"
    )
    assert [row[2] for row in rows] == ["$0.01", "$12.50", "–", "$0.00"]
    assert rows[0][:2] == ["301", "45,678"]
    page.requests.clear()


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
    for number, made in enumerate(
        (report([strategy("densex", 0.9)]), report([strategy("bm25", None)]), report([]))
    ):
        file = tmp_path / f"{number}.html"
        file.write_text(render(made), encoding="utf-8")
        page.open(file)
        assert page.run(MATCHING) == "0 of 0 questions"
    page.requests.clear()


def test_many_questions_and_strategies_are_listed_at_once(page: Page, tmp_path: Path) -> None:
    names = [f"{'densex-' if number < 8 else ''}strategy-{number}" for number in range(22)]
    asked = [
        question(number, {name: 1 + (number + place) % 7 for place, name in enumerate(names)})
        for number in range(1300)
    ]
    large = tmp_path / "large.html"
    large.write_text(
        render(report([strategy(name, 0.7) for name in names], asked)), encoding="utf-8"
    )
    page.open(large)
    took = page.run(
        "(() => { const start = performance.now(); for (const value of ['disagree', 'differ', 'all']) {"
        " document.getElementById('which').value = value;"
        " document.getElementById('which').dispatchEvent(new Event('change')); } return performance.now() - "
        "start; })()"
    )
    assert page.run(MATCHING) == "1,300 of 1,300 questions"
    assert page.run("document.querySelectorAll('*').length") < 20_000
    assert took < 3_000
    page.requests.clear()
