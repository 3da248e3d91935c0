"""What PyPI and GitHub read of the project."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY_URL = PROJECT["urls"]["Repository"]
EXTRAS = PROJECT["optional-dependencies"]
READMES = pytest.mark.parametrize("name", ["README.md", "README.ja.md"])
LINK = re.compile(r"\]\(([^)\s]+)\)")
YAML = [
    *sorted((ROOT / ".github").rglob("*.yml")),
    ROOT / "CITATION.cff",
    ROOT / ".pre-commit-config.yaml",
]


@READMES
def test_links_of_the_readme_work_outside_the_repository(name: str) -> None:
    readme = (ROOT / name).read_text(encoding="utf-8")
    links = LINK.findall(readme)
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


@READMES
def test_files_that_the_readme_links_to_are_there(name: str) -> None:
    readme = (ROOT / name).read_text(encoding="utf-8")
    pictures = REPOSITORY_URL.replace("github.com", "raw.githubusercontent.com")
    files = re.findall(rf"(?:{REPOSITORY_URL}/(?:blob|tree)|{pictures})/main/([^)\s#]+)", readme)
    assert "docs/benchmarks.md" in files
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_the_pages_of_the_project_are_named() -> None:
    assert set(PROJECT["urls"]) == {
        "Homepage",
        "Documentation",
        "Repository",
        "Issues",
        "Changelog",
    }
    assert all(url.startswith(REPOSITORY_URL) for url in PROJECT["urls"].values())


def test_all_is_every_extra_but_trulens() -> None:
    names = ",".join(sorted(set(EXTRAS) - {"all", "trulens"}))
    assert EXTRAS["all"] == [f"llama-pack-densex[{names}]"]


def test_the_readme_has_every_extra_in_its_table() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for extra in EXTRAS:
        assert re.search(rf"^\|.*`{extra}`.*\|", readme, re.MULTILINE), extra


def test_no_extra_brings_weights_of_a_model() -> None:
    requirements = [
        *PROJECT["dependencies"],
        *(each for extra in EXTRAS.values() for each in extra),
    ]
    assert not [requirement for requirement in requirements if "minilm" in requirement.lower()]


@pytest.mark.parametrize("file", YAML, ids=lambda file: file.name)
def test_workflows_and_forms_are_valid_yaml(file: Path) -> None:
    assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict)


def test_the_citation_has_the_packages_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]


def test_workflows_try_every_python_of_the_classifiers() -> None:
    workflow = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    )
    named = [
        text.rpartition(" ")[2]
        for text in PROJECT["classifiers"]
        if re.search(r"Python :: 3\.\d+$", text)
    ]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named
