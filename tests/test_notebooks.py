"""The notebooks run from top to bottom in a real Jupyter kernel, without a key, and show what their text says."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.openai_server import OpenAIServer, asked_content

REPOSITORY = Path(__file__).parent.parent
NOTEBOOKS = REPOSITORY / "notebooks"
NAMES = ["quickstart.ipynb", "quickstart_ja.ipynb"]

Shown = dict[str, str]
"""What cells show, by the cell's id: what they print, and their values."""


def read(name: str) -> Any:
    return nbformat.read(NOTEBOOKS / name, as_version=4)


def execute(name: str, folder: Path, kernels: Path, environment: Mapping[str, str] | None = None) -> Shown:
    """Run a notebook in a kernel of the interpreter that runs the tests."""
    spec = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python"}
    (kernels / "tests").mkdir(parents=True, exist_ok=True)
    (kernels / "tests" / "kernel.json").write_text(json.dumps({**spec, "display_name": "tests"}), encoding="utf-8")
    manager = AsyncKernelManager(
        kernel_name="tests",
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(kernels)], ensure_native_kernel=False),
    )
    notebook = read(name)
    client = NotebookClient(notebook, km=manager, timeout=300, resources={"metadata": {"path": str(folder)}})
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
    client.execute(env={**kept, "HF_HUB_OFFLINE": "1", **(environment or {})})
    return {cell.id: shown(cell) for cell in notebook.cells if cell.cell_type == "code"}


def shown(cell: Any) -> str:
    parts = []
    for output in cell.outputs:
        if output.get("name") == "stdout":
            parts.append(output.text)
        elif "data" in output:
            parts.append(output.data.get("text/markdown") or output.data["text/plain"])
    return "\n".join(parts)


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
def test_cell_ids_say_what_a_cell_is_for(name: str) -> None:
    ids = [cell.id for cell in read(name).cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", id_) for id_ in ids)


def test_both_notebooks_have_the_same_cells() -> None:
    english, japanese = ([(cell.id, cell.cell_type) for cell in read(name).cells] for name in NAMES)
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


def test_a_question_is_answered_and_explained(executed: Callable[[str], Shown]) -> None:
    cells = executed("quickstart.ipynb")
    assert "Gliese 445" in cells["ask-code"].splitlines()[0]
    why = cells["why-code"]
    assert "Beyond the Solar Wind" in retrieved(why)[0]
    assert len(retrieved(why)) == 4
    assert re.search(r" \d\.\d\d  proposition .*Gliese 445", why)
    assert re.search(r" \d\.\d\d  sentence ", why)


def test_calls_say_how_much_they_want(executed: Callable[[str], Shown]) -> None:
    shown = executed("quickstart.ipynb")["top-k-code"]
    assert [int(number) for number in re.findall(r"(\d) found", shown)] == [1, 2, 6]
    assert "Jim Lovell" in shown


def test_results_merge(executed: Callable[[str], Shown]) -> None:
    kinds = [line.split()[0] for line in executed("quickstart.ipynb")["auto-merging-code"].splitlines()]
    assert {"passage", "proposition"} <= set(kinds)


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_index_gives_the_same_answer(name: str, executed: Callable[[str], Shown]) -> None:
    assert executed(name)["persist-code"].strip().endswith("True")


@pytest.mark.parametrize("name", NAMES)
def test_no_llm_is_asked_without_a_key(name: str, executed: Callable[[str], Shown]) -> None:
    assert executed(name)["models-code"].startswith("OPENAI_API_KEY")


# in Japanese


def test_the_horses_documents_are_indexed(executed: Callable[[str], Shown]) -> None:
    cells = executed("quickstart_ja.ipynb")
    assert re.search(r"文書2件、パッセージ\d+件、命題\d+件", cells["build-code"])
    assert "ドウデュース, 主な勝ち鞍" in cells["nodes-code"]
    assert "・2022年の東京優駿（日本ダービー）は、ドウデュースの主な勝ち鞍の一つである。" in cells["propositions-code"]


@pytest.mark.parametrize("race", ["朝日杯", "東京優駿", "有馬記念", "天皇賞（秋）", "ジャパンカップ"])
def test_the_answer_has_all_races(race: str, executed: Callable[[str], Shown]) -> None:
    assert race in executed("quickstart_ja.ipynb")["ask-code"]


def test_every_proposition_of_the_passage_names_the_horse(executed: Callable[[str], Shown]) -> None:
    lines = executed("quickstart_ja.ipynb")["propositions-code"].splitlines()
    propositions = [line for line in lines if line.startswith("・")]
    assert propositions
    assert all("ドウデュース" in line for line in propositions)


def test_the_answer_is_explained_in_japanese(executed: Callable[[str], Shown]) -> None:
    cells = executed("quickstart_ja.ipynb")
    assert "主な勝ち鞍" in retrieved(cells["why-code"])[0]
    assert re.search(r" \d\.\d\d  命題：.*ドウデュースの主な勝ち鞍", cells["why-code"])
    assert re.findall(r"：(\d)件", cells["top-k-code"]) == ["1", "2", "6"]
    assert "ドウデュースの父はハーツクライである。" in cells["top-k-code"]
    kinds = {line.partition("：")[0] for line in cells["auto-merging-code"].splitlines()}
    assert {"パッセージ", "命題"} <= kinds


# elsewhere


def test_a_notebook_runs_from_the_root_of_the_repository(tmp_path: Path) -> None:
    assert "Gliese 445" in execute("quickstart.ipynb", REPOSITORY, tmp_path)["ask-code"]


def test_with_a_key_the_llm_makes_propositions_and_answers(tmp_path: Path) -> None:
    def respond(body: dict[str, Any]) -> str:
        asked = asked_content(body)
        return json.dumps([asked], ensure_ascii=False) if asked else "朝日杯、ダービー、有馬記念などです。"

    with OpenAIServer(respond) as server:
        key = {"OPENAI_API_KEY": "sk-test", "OPENAI_API_BASE": server.url}
        cells = execute("quickstart_ja.ipynb", NOTEBOOKS, tmp_path, key)
        assert cells["models-code"].strip() == "朝日杯、ダービー、有馬記念などです。"
        assert any("主な勝ち鞍は、2021年の朝日杯" in seen.content for seen in server.requests)
        assert "ドウデュースの主な勝ち鞍を教えて。" in server.requests[-1].last_message
