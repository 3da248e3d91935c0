"""The wheel and the sdist, installed into an empty environment and used in an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import nbformat
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.together("installation")]

for module in ("build", "hatchling"):
    pytest.importorskip(module, reason="needs the dependency group test")

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
INDEX_IS_SLOW = ("--retries", "5", "--timeout", "60")
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, kernel_name="python3", timeout=900).execute()
"""


def run(*command: object, folder: Path, **environment: str) -> str:
    """Run a program without what this process has of the repository and of models; it has to succeed."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHONPATH", "OPENAI_", "HF_"))
    }
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={
            **kept,
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(folder.parent / "hf"),
            "PYTHONUTF8": "1",
            **environment,
        },
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def environment(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs of an environment that has the wheel, and what runs notebooks."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder / "venv", folder=folder)
    programs = next(
        path for path in (folder / "venv" / "bin", folder / "venv" / "Scripts") if path.exists()
    )
    reached = subprocess.run(
        [
            programs / "python",
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            *INDEX_IS_SLOW,
            "-d",
            folder,
            "hatchling",
        ],
        capture_output=True,
    )
    if reached.returncode:
        pytest.skip("no package index is reached")
    wheel, _ = distributions
    wanted = (f"{wheel}[chroma,evaluation,local]", "ipykernel", "nbclient")
    constraints = ROOT / "constraints.txt"
    run(
        programs / "python",
        "-m",
        "pip",
        "install",
        "-q",
        *INDEX_IS_SLOW,
        "-c",
        constraints,
        *wanted,
        folder=folder,
    )
    return programs


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_pypi_can_show_them(distributions: tuple[Path, Path], empty: Path) -> None:
    pytest.importorskip("twine")
    assert "PASSED" in run(
        sys.executable, "-m", "twine", "check", "--strict", *distributions, folder=empty
    )


def test_the_wheel_has_the_samples_and_the_sdist_the_tests(
    distributions: tuple[Path, Path],
) -> None:
    wheel, sdist = distributions
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {"llama_pack_densex/py.typed", "llama_pack_densex/samples/ja/miso.md"} <= packed
    assert {name.partition("/")[0].partition("-")[0] for name in packed} == {"llama_pack_densex"}
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "README.md",
        "tests/test_installation.py",
        "llama_pack_densex/samples/questions.jsonl",
    } <= names
    assert not [name for name in names if name.startswith((".ci", ".github"))]


def test_the_wheels_demo_answers_questions(environment: Path, empty: Path) -> None:
    output = run(environment / "densex", "demo", folder=empty)
    assert "in all" in output
    assert [*empty.iterdir()] == []


@pytest.mark.parametrize("language", ["en", "ja"])
def test_the_wheels_sample_is_loaded(environment: Path, empty: Path, language: str) -> None:
    program = (
        "import json; from llama_pack_densex import load_sample; "
        f"sample = load_sample({language!r}); print(json.dumps([len(sample.documents), "
        "len(sample.questions)]))"
    )
    assert json.loads(run(environment / "python", "-c", program, folder=empty)) == [7, 30]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_it_stands(environment: Path, empty: Path, notebook: Path) -> None:
    """With the cell that installs the package, which finds it installed."""
    assert any(
        "%pip install" in cell.source for cell in nbformat.read(notebook, as_version=4).cells
    )
    run(environment / "python", "-c", EXECUTE, notebook, folder=empty)
    assert [*empty.iterdir()] == []


def test_the_sdist_installs_and_answers(
    distributions: tuple[Path, Path], environment: Path, empty: Path
) -> None:
    """The last of these tests: it takes the place of the wheel."""
    _, sdist = distributions
    options = ("-q", *INDEX_IS_SLOW, "--no-deps", "--force-reinstall")
    run(environment / "python", "-m", "pip", "install", *options, sdist, folder=empty)
    assert "in all" in run(environment / "densex", "demo", folder=empty)
