"""`download_llama_pack`: the class, or a copy of the source that is a package of its own."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from llama_index.core import Document

import llama_pack_densex
from llama_pack_densex import DenseXRetrievalPack, SentencePropositionizer, download_llama_pack
from llama_pack_densex.download import LLAMA_PACKS_CONTENTS_URL

NAME = "DenseXRetrievalPack"
SOURCE = Path(llama_pack_densex.__file__).parent
CALL = f"from llama_pack_densex import download_llama_pack\npack = download_llama_pack({NAME!r}, sys.argv[1])\n"
TOP_K = "similarity_top_k: int = 4,"


@pytest.fixture(autouse=True)
def _copies_forgotten() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.startswith("densex_")]:
        del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "dense_pack"


def package_of(folder: Path) -> Path:
    (init,) = folder.glob("*/__init__.py")
    return init.parent


def edit(folder: Path, old: str, new: str, file: str = "pack.py") -> None:
    path = package_of(folder) / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def default_top_k(pack_class: type[DenseXRetrievalPack]) -> int:
    return int(inspect.signature(pack_class).parameters["similarity_top_k"].default)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def python(script: str, *arguments: object, path: Path | None = None) -> str:
    """What a script prints in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(path)} if path else dict(os.environ)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{script}", *map(str, arguments)],
        capture_output=True, text=True, env=environment, cwd=Path(sys.executable).parent, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# the call


def test_without_a_folder_the_installed_class_is_returned() -> None:
    assert download_llama_pack(NAME) is DenseXRetrievalPack
    assert download_llama_pack(NAME, refresh_cache=True) is DenseXRetrievalPack


def test_the_signature_is_that_of_llama_index_core_0_14_20() -> None:
    names = list(inspect.signature(download_llama_pack).parameters)
    assert names == ["llama_pack_class", "download_dir", "llama_pack_url", "refresh_cache"]


@pytest.mark.parametrize(
    "name", ["GmailOpenAIAgentPack", "densexretrievalpack", f"../{NAME}", "llama-index-packs-dense-x-retrieval", ""]
)
def test_an_unknown_class_is_an_error_that_names_the_known_one(name: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name!r} here; there is: {NAME}")):
        download_llama_pack(name, folder)
    assert not folder.exists()


def test_another_url_is_an_error_since_nothing_is_downloaded(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"llama_pack_url='https://example\.org': nothing is downloaded"):
        download_llama_pack(NAME, folder, llama_pack_url="https://example.org")
    assert not folder.exists()
    assert download_llama_pack(NAME, llama_pack_url=LLAMA_PACKS_CONTENTS_URL) is DenseXRetrievalPack


# the copy


def test_the_class_is_the_copys_own(folder: Path) -> None:
    copied = download_llama_pack(NAME, str(folder))
    assert copied is not DenseXRetrievalPack
    assert Path(inspect.getfile(copied)) == package_of(folder) / "pack.py"
    assert download_llama_pack(NAME, folder) is copied


def test_the_copy_is_the_packages_source_under_another_name(folder: Path) -> None:
    download_llama_pack(NAME, folder)
    package = package_of(folder)
    copied = {path.relative_to(package) for path in package.rglob("*") if path.is_file()}
    assert copied >= {path.relative_to(SOURCE) for path in SOURCE.rglob("*.py")}
    for path in copied:
        text = (package / path).read_text(encoding="utf-8")
        assert not re.search(r"\bllama_pack_densex\b", text)
        assert text.replace(package.name, SOURCE.name) == (SOURCE / path).read_text(encoding="utf-8")


def test_neither_bytecode_nor_anything_else_is_in_the_folder(folder: Path) -> None:
    download_llama_pack(NAME, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["LICENSE", "README.md", package_of(folder).name, "pyproject.toml"]
    )
    assert not [path for path in folder.rglob("*") if path.name == "__pycache__" or path.name.startswith(".")]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_copy_answers_questions(folder: Path, documents: list[Document]) -> None:
    pack = download_llama_pack(NAME, folder)(documents, query_llm="none", embed_model="none")
    assert "Bay of Fundy" in str(pack.run("Where are the highest tides?"))
    assert type(pack.node_parser).__module__.startswith(package_of(folder).name + ".")


def test_the_copys_pyproject_asks_for_what_the_package_needs(folder: Path) -> None:
    tomllib = pytest.importorskip("tomllib")
    download_llama_pack(NAME, folder)
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = importlib.metadata.requires("llama-pack-densex") or []
    assert project["name"] == package_of(folder).name.replace("_", "-")
    assert project["dependencies"] == [requirement for requirement in required if "extra ==" not in requirement]
    assert any(requirement.startswith("pypdf") for requirement in project["optional-dependencies"]["files"])
    assert "dev" not in project["optional-dependencies"]
    assert not re.search(r"\bextra\b", str(project["optional-dependencies"]))


def test_the_folder_alone_is_enough_for_another_process(folder: Path) -> None:
    copied = download_llama_pack(NAME, folder)
    propositionizer = sys.modules[package_of(folder).name].SentencePropositionizer()
    (folder.parent / "propositionizer.pickle").write_bytes(pickle.dumps(propositionizer))
    assert copied.__module__.startswith(package_of(folder).name)
    script = (
        "sys.modules['llama_pack_densex'] = None  # importing it fails\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import importlib, pickle, pathlib\n"
        "package = importlib.import_module(sys.argv[2])\n"
        "from llama_index.core import Document\n"
        "propositionizer = pickle.loads(pathlib.Path(sys.argv[3]).read_bytes())\n"
        "assert type(propositionizer) is package.SentencePropositionizer\n"
        "document = Document(text='The bay has high tides. The bridge is long.')\n"
        "pack = package.DenseXRetrievalPack([document], query_llm='none', propositionizer=propositionizer)\n"
        "print(pack.run('high tides'))\n"
    )
    assert "high tides" in python(script, folder, package_of(folder).name, folder.parent / "propositionizer.pickle")


def test_a_copy_can_be_copied(folder: Path, tmp_path: Path) -> None:
    download_llama_pack(NAME, folder)
    edit(folder, TOP_K, "similarity_top_k: int = 9,")
    download_llama_pack(NAME, folder)
    second = sys.modules[package_of(folder).name].download_llama_pack(NAME, tmp_path / "second")
    assert Path(inspect.getfile(second)).is_relative_to(tmp_path / "second")
    assert default_top_k(second) == 9


def test_a_read_only_source_gives_a_writable_copy(tmp_path: Path, folder: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(SOURCE, site / SOURCE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*site.rglob("*"), site]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        python(f"{CALL}import llama_pack_densex\nassert llama_pack_densex.__file__.startswith({str(site)!r})",
               folder, path=site)  # fmt: skip
    finally:
        for path in [site, *site.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert all(path.stat().st_mode & stat.S_IWUSR for path in folder.rglob("*"))


# editing


def test_an_edit_is_seen_in_a_new_process_and_stays(folder: Path) -> None:
    download_llama_pack(NAME, folder)
    edit(folder, TOP_K, "similarity_top_k: int = 9,")
    edited = contents(folder)
    shown = python(
        f"{CALL}import inspect, llama_pack_densex\n"
        "print([inspect.signature(c).parameters['similarity_top_k'].default\n"
        "       for c in (pack, llama_pack_densex.DenseXRetrievalPack)])",
        folder,
    )
    assert shown == "[9, 4]"
    assert contents(folder) == edited


def test_an_edit_is_seen_in_the_same_process(folder: Path) -> None:
    before = download_llama_pack(NAME, folder)
    for value in range(5, 8):  # of equal length, and within one second
        edit(folder, f"similarity_top_k: int = {value - 1},", f"similarity_top_k: int = {value},")
        assert default_top_k(download_llama_pack(NAME, folder)) == value
    assert default_top_k(before) == default_top_k(DenseXRetrievalPack) == 4


def test_an_edit_of_a_part_is_seen_by_the_class(folder: Path, documents: list[Document]) -> None:
    download_llama_pack(NAME, folder)
    edit(folder, "    return [_quote(fact.unit.text", "    return ['EDITED'] + [_quote(fact.unit.text",
         "answering/extractive.py")  # fmt: skip
    copied = download_llama_pack(NAME, folder)
    for pack_class, is_edited in ((copied, True), (DenseXRetrievalPack, False)):
        pack = pack_class(documents, query_llm="none", embed_model="none")
        assert ("EDITED" in str(pack.run("highest tides"))) is is_edited


def test_copies_in_two_folders_of_one_name_are_independent(tmp_path: Path) -> None:
    one, two = tmp_path / "one" / "pack", tmp_path / "two" / "pack"
    first = download_llama_pack(NAME, one)
    download_llama_pack(NAME, two)
    edit(two, TOP_K, "similarity_top_k: int = 9,")
    assert default_top_k(download_llama_pack(NAME, two)) == 9
    assert download_llama_pack(NAME, one) is first
    assert default_top_k(first) == 4


def test_a_broken_edit_is_an_error_and_what_was_imported_stays(folder: Path) -> None:
    before = download_llama_pack(NAME, folder)
    edit(folder, TOP_K, "similarity_top_k: int = = 4,")
    with pytest.raises(SyntaxError):
        download_llama_pack(NAME, folder)
    assert vars(sys.modules[before.__module__])[NAME] is before
    edit(folder, "similarity_top_k: int = = 4,", TOP_K)
    assert download_llama_pack(NAME, folder) is before


def test_refresh_cache_overwrites_the_copy_and_leaves_other_files(folder: Path) -> None:
    download_llama_pack(NAME, folder)
    fresh = contents(folder)
    edit(folder, TOP_K, "similarity_top_k: int = 9,")
    assert default_top_k(download_llama_pack(NAME, folder)) == 9
    (package_of(folder) / "added.py").write_text("", encoding="utf-8")
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    assert default_top_k(download_llama_pack(NAME, folder, refresh_cache=True)) == 4
    assert contents(folder) == {**fresh, "notes.txt": b"mine"}


def test_refresh_cache_keeps_the_name_of_a_folder_that_was_moved(folder: Path, tmp_path: Path) -> None:
    name = download_llama_pack(NAME, folder).__module__
    folder.rename(tmp_path / "moved")
    shown = python(f"{CALL.replace('[1])', '[1], refresh_cache=True)')}print(pack.__module__)", tmp_path / "moved")
    assert shown == name


# what is refused, and what is never left behind


def test_a_file_is_refused(folder: Path) -> None:
    folder.write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError, match="is a file"):
        download_llama_pack(NAME, folder, refresh_cache=True)
    assert folder.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("name", ["notes.txt", "pyproject.toml", "README.md"])
@pytest.mark.parametrize("refresh_cache", [False, True])
def test_a_folder_with_other_files_is_refused_and_left_alone(folder: Path, name: str, refresh_cache: bool) -> None:
    folder.mkdir()
    (folder / name).write_text("[project]\nname = 'mine'\n", encoding="utf-8")
    before = contents(folder)
    with pytest.raises(FileExistsError, match=f"holds other things than a copy of the pack \\({name}\\)"):
        download_llama_pack(NAME, folder, refresh_cache=refresh_cache)
    assert contents(folder) == before


def test_an_empty_folder_is_filled(folder: Path) -> None:
    folder.mkdir()
    assert Path(inspect.getfile(download_llama_pack(NAME, folder))).is_relative_to(folder)


def test_a_symbolic_link_is_refused(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder.symlink_to(outside)
    with pytest.raises(ValueError, match="is a symbolic link"):
        download_llama_pack(NAME, folder)
    assert not list(outside.iterdir())


def test_a_package_that_is_a_link_out_of_its_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    download_llama_pack(NAME, folder)
    package = package_of(folder)
    package.rename(tmp_path / "elsewhere")
    package.symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path / "elsewhere")
    for refresh_cache in (False, True):
        with pytest.raises(ValueError, match="is a symbolic link"):
            download_llama_pack(NAME, folder, refresh_cache=refresh_cache)
    assert contents(tmp_path / "elsewhere") == before


@pytest.mark.parametrize("name", ["../outside", "..", "", "/outside", "a/../../outside"])
def test_a_package_name_that_leads_out_of_the_folder_is_refused(folder: Path, name: str, tmp_path: Path) -> None:
    download_llama_pack(NAME, folder)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "__init__.py").write_text("raise AssertionError", encoding="utf-8")
    pyproject = folder / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    pyproject.write_text(re.sub(r"(?m)^package = .*", f'package = "{name}"', text), encoding="utf-8")
    for refresh_cache in (False, True):
        with pytest.raises(ValueError, match="is not the name of a package in"):
            download_llama_pack(NAME, folder, refresh_cache=refresh_cache)
    assert len(list((tmp_path / "outside").iterdir())) == 1


def test_a_folder_inside_the_package_is_refused() -> None:
    with pytest.raises(ValueError, match="inside the package that would be copied"):
        download_llama_pack(NAME, SOURCE / "copy")
    assert not (SOURCE / "copy").exists()


def test_an_empty_name_of_a_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="download_dir is empty"):
        download_llama_pack(NAME, "")


def test_a_copy_that_lacks_its_package_is_refused_and_can_be_made_anew(folder: Path) -> None:
    download_llama_pack(NAME, folder)
    (package_of(folder) / "__init__.py").unlink()
    with pytest.raises(FileExistsError, match="refresh_cache=True makes it anew"):
        download_llama_pack(NAME, folder)
    assert download_llama_pack(NAME, folder, refresh_cache=True).__name__ == NAME


def test_a_copy_made_by_hand_cannot_pass_for_the_one_that_is_imported(folder: Path, tmp_path: Path) -> None:
    download_llama_pack(NAME, folder)
    shutil.copytree(folder, tmp_path / "by_hand")
    with pytest.raises(ImportError, match="is imported in this process"):
        download_llama_pack(NAME, tmp_path / "by_hand")


def test_a_copy_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(importlib.metadata.Distribution, "discover", lambda **_: iter(()))
        with pytest.raises(ImportError, match="llama-pack-densex is not installed"):
            download_llama_pack(NAME, folder)
        assert not list(folder.parent.iterdir())
    download_llama_pack(NAME, folder)
    before = contents(folder)
    monkeypatch.setattr(importlib.metadata.Distribution, "discover", lambda **_: iter(()))
    with pytest.raises(ImportError, match="llama-pack-densex is not installed"):
        download_llama_pack(NAME, folder, refresh_cache=True)
    assert contents(folder) == before


def test_threads_that_copy_to_one_folder_get_one_class(folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        classes = set(pool.map(lambda _: download_llama_pack(NAME, folder), range(4)))
    assert len(classes) == 1


def test_processes_that_copy_to_one_folder_get_a_whole_copy(folder: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        modules = set(pool.map(lambda _: python(f"{CALL}print(pack.__module__)", folder), range(2)))
    assert modules == {f"{package_of(folder).name}.pack"}
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_installed_package_is_as_it_was(folder: Path) -> None:
    download_llama_pack(NAME, folder)
    assert llama_pack_densex.DenseXRetrievalPack is DenseXRetrievalPack
    assert type(pickle.loads(pickle.dumps(SentencePropositionizer()))) is SentencePropositionizer
