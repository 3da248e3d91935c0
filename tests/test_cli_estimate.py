"""`densex estimate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from llama_pack_densex.index.folder import REPLIES_FILE
from tests.conftest import DATA
from tests.made_up_passages import made_up
from tests.stand_in_llm import StandInLLM
from tests.test_cli import invoke, run
from tests.test_cli_compare import write_squad


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve documents of a passage each, half of them in Japanese."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for number, passage in enumerate(made_up(12, 0.5)):
        (folder / f"{number}.txt").write_text(passage.text, encoding="utf-8")
    return folder


def estimated(*arguments: str | Path) -> Any:
    code, output = run("estimate", *arguments, "--json")
    assert code == 0, output
    return json.loads(output)


def test_a_table_says_what_indexing_takes_and_what_that_rests_upon(folder: Path) -> None:
    code, output = run("estimate", folder)
    assert code == 0, output
    rows = {line[:17].strip(): line[17:].split() for line in output.splitlines()}
    assert rows["documents"] == ["12"]
    assert rows["requests"] == ["12", "to", "gpt-4o-mini"]
    assert rows["cost"][0].startswith(("$", "<$"))
    said = " ".join(output.split())
    assert "list prices of genai-prices" in said
    assert "an assumed 80 tokens per second" in said


def test_it_fits_into_a_narrow_terminal() -> None:
    done = invoke("estimate", DATA, "--embed-model", "text-embedding-3-small", COLUMNS="60")
    assert done.exit_code == 0, done.stderr
    assert max(map(cell_len, done.stdout.splitlines())) <= 60


def test_json_has_all_figures(folder: Path) -> None:
    found = estimated(
        folder,
        "--embed-model",
        "minilm",
        "--granularity",
        "proposition",
        "--tokens-per-minute",
        "1000",
    )
    assert (found["documents"], found["requests"], found["model"]) == (12, 12, "gpt-4o-mini")
    assert found["units"] == 12 + found["propositions"]
    assert (found["embed_model"], found["embedding_cost"]) == ("minilm", 0.0)
    assert found["seconds"] == pytest.approx(
        (found["input_tokens"] + found["output_tokens"]) * 60 / 1000
    )
    assert found["notes"]


def test_the_documents_of_a_dataset_count(tmp_path: Path) -> None:
    code, output = run("estimate", write_squad(tmp_path, "ja"))
    assert code == 0
    assert "is a dataset: its 2 documents are used" in " ".join(output.split())


def test_json_that_is_no_dataset_is_a_file_as_for_index(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"tea": "Green tea is steamed."}', encoding="utf-8")
    assert estimated(tmp_path / "notes.json")["documents"] == 1


def test_without_an_llm_nothing_costs_anything(folder: Path) -> None:
    found = estimated(folder, "--llm-model", "none")
    assert (found["requests"], found["cost"], found["model"]) == (0, 0.0, "")


def test_models_of_other_providers_are_priced_too(folder: Path, tmp_path: Path) -> None:
    assert estimated(folder, "--llm-model", "claude-haiku-4-5")["cost"] > 0
    assert "batch" not in run("estimate", folder, "--llm", "anthropic:claude-haiku-4-5")[1]
    assert estimated(folder, "--llm-model", "my-model")["cost"] is None
    (tmp_path / "prices.json").write_text('{"my-model": {"input": 1000}}', encoding="utf-8")
    own = estimated(folder, "--llm-model", "my-model", "--prices", tmp_path / "prices.json")
    assert own["cost"] == pytest.approx(own["input_tokens"] / 1000)


def test_prices_that_are_none_end_it_with_the_place(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "prices.json").write_text('{"my-model": {"inputs": 1}}', encoding="utf-8")
    code, output = run("estimate", folder, "--prices", tmp_path / "prices.json")
    assert code == 1
    said = " ".join(output.split())
    assert said.startswith("Error: ")
    assert "prices.json['my-model']" in said
    assert "validation error" not in said


def test_what_is_in_an_index_does_not_count(folder: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    assert run("index", folder, "--to", index, "--propositionizer", "sentence")[0] == 0
    (folder / "new.txt").write_text("Green tea is steamed.", encoding="utf-8")
    found = estimated(folder, "--to", index, "--llm-model", "none")
    assert (found["documents"], found["unchanged_documents"]) == (1, 12)


@pytest.mark.slow
def test_what_is_in_a_store_does_not_count_either(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("chromadb")
    monkeypatch.chdir(tmp_path)
    assert (
        run(
            "index",
            folder,
            "--to",
            "chroma://store",
            "--propositionizer",
            "sentence",
            "--embed-model",
            "minilm",
        )[0]
        == 0
    )
    found = estimated(folder, "--to", "chroma://store", "--llm-model", "none")
    assert (found["documents"], found["unchanged_documents"], found["embed_model"]) == (
        0,
        12,
        "minilm",
    )


def test_an_index_that_was_made_otherwise_counts_for_nothing(folder: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    assert run("index", folder, "--to", index, "--propositionizer", "sentence")[0] == 0
    code, output = run("estimate", folder, "--to", index)
    assert code == 0
    assert "were made in another way, so all documents count as new" in " ".join(output.split())


def test_the_replies_to_a_sample_are_kept_for_the_index(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    with StandInLLM() as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        code, output = run("estimate", folder, "--to", index, "--sample", "12")
        assert code == 0, output
        corrected = "Corrected by the replies for a sample of 12 passages"
        assert corrected in " ".join(output.split())
        assert (index / REPLIES_FILE).stat().st_mode & 0o077 == 0
        assert sum(server.totals().kinds.values()) == 12
        code, output = run("estimate", folder, "--to", index)
        assert "cached replies" in output
        assert (
            run(
                "index", folder, "--to", index, "--propositionizer", "llm", "--embed-model", "none"
            )[0]
            == 0
        )
        assert sum(server.totals().kinds.values()) == 12


def test_a_sample_needs_a_key(folder: Path) -> None:
    code, output = run("estimate", folder, "--sample", "5")
    assert (code, "OPENAI_API_KEY" in output) == (1, True)


def test_a_file_that_cannot_be_read_is_left_out_and_said(folder: Path) -> None:
    (folder / "picture.txt").write_bytes(b"\x89PNG\0\0")
    code, output = run("estimate", folder)
    assert code == 0
    assert "skipped: " in output


def test_a_folder_without_files_is_an_error(tmp_path: Path) -> None:
    code, output = run("estimate", tmp_path)
    assert code == 1
    assert "there is no file with any text" in " ".join(output.split())
