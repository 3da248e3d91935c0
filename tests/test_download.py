"""`download_llama_pack`, as it is called in notebooks."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import pytest
from llama_index.core import SimpleDirectoryReader

from llama_pack_densex import (
    DenseXRetrievalPack,
    PropositionNodeParser,
    RecordedPropositionizer,
    download_llama_pack,
)
from tests.conftest import DATA


def test_it_returns_the_installed_class_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert download_llama_pack("DenseXRetrievalPack") is DenseXRetrievalPack
        assert download_llama_pack("DenseXRetrievalPack", refresh_cache=True) is DenseXRetrievalPack


def test_a_folder_gets_a_copy_that_takes_the_installed_packages_objects(tmp_path: Path) -> None:
    found = download_llama_pack("DenseXRetrievalPack", tmp_path / "dense_pack")
    assert found.__module__ == "dense_pack.base"
    assert {file.name for file in (tmp_path / "dense_pack").glob("*.py")} == {
        "__init__.py",
        "base.py",
    }
    recorded = RecordedPropositionizer(DATA / "propositions.jsonl")
    pack = found(
        SimpleDirectoryReader(str(DATA / "ja")).load_data(),
        propositionizer=recorded,
        query_llm="none",
    )
    assert isinstance(pack.node_parser, PropositionNodeParser)
    assert pack.retrieve("ドウデュースの父は？")


def test_an_edited_copy_is_what_runs_until_it_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "edited_pack"
    download_llama_pack("DenseXRetrievalPack", str(folder))
    base = folder / "base.py"
    base.write_text(
        base.read_text(encoding="utf-8") + "\n\nDenseXRetrievalPack.greeting = 'こんにちは'\n",
        encoding="utf-8",
    )
    assert download_llama_pack("DenseXRetrievalPack", folder).greeting == "こんにちは"
    assert not hasattr(
        download_llama_pack("DenseXRetrievalPack", folder, refresh_cache=True), "greeting"
    )
    assert not hasattr(DenseXRetrievalPack, "greeting")


def test_nothing_else_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "base.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="holds something other"):
        download_llama_pack("DenseXRetrievalPack", tmp_path / "notes")
    assert {entry.name for entry in tmp_path.iterdir()} == {"notes"}


def test_the_arguments_are_those_of_llama_index_core_0_14_20() -> None:
    names = ["llama_pack_class", "download_dir", "llama_pack_url", "refresh_cache"]
    assert list(inspect.signature(download_llama_pack).parameters) == names


@pytest.mark.parametrize("name", ["", "OtherPack", "densexretrievalpack"])
def test_an_unknown_class_is_an_error_that_names_the_known_one(name: str) -> None:
    with pytest.raises(ValueError, match="the only one is DenseXRetrievalPack"):
        download_llama_pack(name)
