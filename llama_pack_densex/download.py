"""`download_llama_pack`, the call that LlamaIndex removed: the pack's class, or an editable copy of its source."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from llama_pack_densex.pack import DenseXRetrievalPack

LLAMA_PACKS_CONTENTS_URL = "https://raw.githubusercontent.com/run-llama/llama_index/main/llama-index-packs"
"""Where LlamaIndex's `download_llama_pack` downloaded from."""

_PACKS = (DenseXRetrievalPack.__name__,)
_DISTRIBUTION = "llama-pack-densex"
_SOURCE = Path(__file__).parent
_PACKAGE = __name__.partition(".")[0]  # another one in a copy, which can be copied in its turn
_MARK = re.compile(r'^\[tool\.llama-pack-densex\]\s*^package = "([^"\n]*)"', re.MULTILINE)

_lock = threading.Lock()
_imported: dict[str, str] = {}  # a copy's package name -> digest of the sources that were imported


def download_llama_pack(
    llama_pack_class: str,
    download_dir: str | Path | None = None,
    llama_pack_url: str = LLAMA_PACKS_CONTENTS_URL,
    refresh_cache: bool = False,
) -> type[DenseXRetrievalPack]:
    """Get the pack's class, or a copy of its source to edit; nothing is downloaded.

    The arguments are those that `llama_index.core.llama_pack.download_llama_pack` had until llama-index-core 0.14.20.

    The copy is a package of its own, with a pyproject.toml (`pip install -e DIR`), and independent of this one and of
    other copies: it has a name of its own, made of the folder's name and a hash of its path, and imports nothing from
    `llama_pack_densex`. Edit it and call again with the same folder: the class that is returned is the edited one, in
    the running process too. The folder need not be on `sys.path`, except where objects of the copy's classes are
    unpickled in another process (or install it there with pip).

        pack_class = download_llama_pack("DenseXRetrievalPack", "./dense_pack")
        pack = pack_class(documents)

    Args:
        llama_pack_class: "DenseXRetrievalPack".
        download_dir: The folder for the copy: a new or empty one, or one that holds a copy, which is then imported as
            it is. None means no copy: the class of the package that is installed.
        llama_pack_url: Where packs were downloaded from. It is here for old calls that pass the default; any other
            value is an error, since the source is always that of the package that is installed.
        refresh_cache: Whether to overwrite a copy that is there: edits of its files, and files added to its package,
            are lost; other files in the folder stay. It was True by default when it guarded a cache, and is not now
            that it would throw edits away. Without `download_dir` there is no copy, and it changes nothing.

    Returns:
        The class: the copy's own if there is a copy.

    Raises:
        ValueError: There is no such pack here, `llama_pack_url` is not the default, or `download_dir` is a symbolic
            link, is inside this package, or leads out of itself.
        FileExistsError: `download_dir` is a file, or holds something else than a copy, or one that is not whole.
        ImportError: Another package with the copy's name is imported, or this package is only on the path and not
            installed, so that what it depends on is not known.
    """
    if llama_pack_class not in _PACKS:
        raise ValueError(f"no pack {llama_pack_class!r} here; there is: {', '.join(_PACKS)}")
    if llama_pack_url != LLAMA_PACKS_CONTENTS_URL:
        raise ValueError(
            f"llama_pack_url={llama_pack_url!r}: nothing is downloaded, the source is that of the installed "
            f"{_DISTRIBUTION}; leave the argument out"
        )
    if download_dir is None:
        return DenseXRetrievalPack
    folder = _checked_folder(download_dir)
    with _lock:
        name = _name_of_copy(folder)
        if name is None:
            name = _make_copy(folder)
        elif refresh_cache:
            _overwrite_copy(folder, name)
        elif not (folder / name / "__init__.py").is_file():
            raise FileExistsError(f"the copy in {folder} lacks {name}/__init__.py; refresh_cache=True makes it anew")
        return _import_copy(folder / name, llama_pack_class)


def _checked_folder(download_dir: str | Path) -> Path:
    if not str(download_dir).strip():
        raise ValueError("download_dir is empty: name a folder, or None for no copy")
    folder = Path(download_dir).expanduser()
    if folder.is_symlink():
        raise ValueError(f"download_dir={str(download_dir)!r} is a symbolic link: name the folder that it leads to")
    folder = folder.resolve()
    if folder.is_relative_to(_SOURCE.resolve()):
        raise ValueError(f"download_dir={str(download_dir)!r} is inside the package that would be copied")
    return folder


def _name_of_copy(folder: Path) -> str | None:
    """The name of the package that a copy holds; None where the folder is new or empty."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: name a folder that is new or empty, or that holds a copy")
    found = sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []
    if not found:
        return None
    pyproject = folder / "pyproject.toml"
    mark = _MARK.search(pyproject.read_text(encoding="utf-8", errors="replace")) if pyproject.is_file() else None
    if mark is None:
        some = ", ".join(found[:3]) + ", ..." * (len(found) > 3)
        raise FileExistsError(
            f"{folder} holds other things than a copy of the pack ({some}): "
            "name a folder that is new or empty, or that holds a copy"
        )
    name = mark[1]
    if not name.isidentifier():
        raise ValueError(f"{pyproject}: package = {name!r} is not the name of a package in {folder}")
    if (folder / name).is_symlink():
        raise ValueError(f"{folder / name} is a symbolic link: a copy's package must be in its folder")
    return name


def _make_copy(folder: Path) -> str:
    """Fill a new or empty folder, by one rename: there is a whole copy or none."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    name = _new_name(folder)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as staging:
        copy = Path(staging) / "copy"
        _write_copy(copy, name)
        try:
            if folder.exists():
                folder.rmdir()
            copy.rename(folder)
        except OSError:  # another process was first
            made = _name_of_copy(folder)
            if made is None:
                raise
            return made
    return name


def _overwrite_copy(folder: Path, name: str) -> None:
    """Write a copy's files anew; the package is exchanged as a whole."""
    with tempfile.TemporaryDirectory(prefix=".refresh-", dir=folder) as staging:
        copy, old = Path(staging) / "copy", Path(staging) / "old"
        _write_copy(copy, name)
        for file in copy.iterdir():
            if file.is_file():
                os.replace(file, folder / file.name)
        if (folder / name).exists():
            (folder / name).rename(old)
        try:
            (copy / name).rename(folder / name)
        except OSError:
            if old.exists():
                old.rename(folder / name)
            raise


def _new_name(folder: Path) -> str:
    """A package name that no other folder's copy has, so that copies can be imported side by side."""
    words = re.sub(r"[^0-9a-z]+", "_", folder.name.lower()).strip("_")[:40] or "copy"
    return f"densex_{words}_{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"


def _write_copy(copy: Path, name: str) -> None:
    own_name = re.compile(rb"\b" + _PACKAGE.encode() + rb"\b")
    for source in _source_files(_SOURCE):
        target = copy / name / source.relative_to(_SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        content = source.read_bytes()
        target.write_bytes(own_name.sub(name.encode(), content) if source.suffix == ".py" else content)
        # Python recognises stale bytecode by a file's time in seconds and its size: with the source's time, an edit
        # right after the copy cannot go unnoticed
        os.utime(target, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    try:
        distribution = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise ImportError(
            f"{_DISTRIBUTION} is not installed, so what a copy depends on is not known: pip install {_DISTRIBUTION}"
        ) from error
    licence = distribution.read_text("licenses/LICENSE")
    if licence is not None:
        (copy / "LICENSE").write_text(licence, encoding="utf-8")
    (copy / "README.md").write_text(_readme(name, distribution.version), encoding="utf-8")
    (copy / "pyproject.toml").write_text(_pyproject(name, distribution, licence is not None), encoding="utf-8")


def _source_files(package: Path) -> Iterator[Path]:
    """A package's files: no bytecode, nothing hidden; links only to Python files, as some installers make them."""
    for entry in sorted(package.iterdir()):
        if entry.name.startswith(".") or entry.name == "__pycache__" or entry.suffix in (".pyc", ".pyo"):
            continue
        if entry.is_symlink() and entry.suffix not in (".py", ".typed"):
            continue
        if entry.is_dir():
            yield from _source_files(entry)
        elif entry.is_file():
            yield entry


def _pyproject(name: str, distribution: metadata.Distribution, has_licence: bool) -> str:
    extras: dict[str, list[str]] = {"": []}
    for requirement in distribution.requires or []:
        # 'name>=1; extra == "files"', perhaps with another marker before it: what the extra is, and what is left
        of_extra = re.fullmatch(r"(.*?)\s*(?:;|\band)\s*extra\s*==\s*['\"]([^'\"]+)['\"]", requirement)
        extras.setdefault(of_extra[2] if of_extra else "", []).append(of_extra[1] if of_extra else requirement)
    extras.pop("dev", None)  # the tests are not copied
    dependencies = extras.pop("")
    lines = [
        "[build-system]",
        'requires = ["hatchling>=1.24"]',
        'build-backend = "hatchling.build"',
        "",
        "[project]",
        f'name = "{name.replace("_", "-")}"',
        f'version = "{distribution.version}"',
        f'description = "A copy of {_DISTRIBUTION} {distribution.version}, to edit"',
        'readme = "README.md"',
        'license = "MIT"',
        *['license-files = ["LICENSE"]'] * has_licence,
        f"requires-python = {json.dumps(distribution.metadata['Requires-Python'])}",
        *_toml_list("dependencies", dependencies),
        "",
        "[project.optional-dependencies]",
        *(line for extra, needed in extras.items() for line in _toml_list(extra, needed)),
        "",
        "[tool.hatch.build.targets.wheel]",
        f'packages = ["{name}"]',
        "",
        "# by this, download_llama_pack recognises the copy",
        "[tool.llama-pack-densex]",
        f'package = "{name}"',
    ]
    return "\n".join(lines) + "\n"


def _toml_list(key: str, values: list[str]) -> list[str]:
    return [f"{key} = [", *(f"    {json.dumps(value)}," for value in values), "]"]


def _readme(name: str, version: str) -> str:
    return f"""# {name}

A copy of {_DISTRIBUTION} {version}, to edit. It stands on its own and imports nothing of what it was copied from.

    from {_PACKAGE} import download_llama_pack

    pack_class = download_llama_pack("DenseXRetrievalPack", "path/of/this/folder")

returns the class as it is here, edits included. Or install it (`pip install -e .` in this folder) and import it:

    from {name} import DenseXRetrievalPack

Objects of its classes are pickled under the package's name. A process that unpickles them needs the package installed
or this folder on `sys.path`.

`download_llama_pack(..., refresh_cache=True)` writes the folder `{name}` and the files beside it
anew, from the installed {_DISTRIBUTION}; without it nothing here is ever overwritten. Keep `pyproject.toml`: the copy
is recognised by it.
"""


def _import_copy(package: Path, class_name: str) -> type[DenseXRetrievalPack]:
    """Import a class of a copy from its folder; again, if the copy was edited since."""
    name, digest = package.name, _digest(package)
    loaded = sys.modules.get(name)
    if loaded is not None:
        place = Path(loaded.__file__).parent.resolve() if loaded.__file__ else None
        if place != package:
            raise ImportError(
                f"a package {name} from {place} is imported in this process, so the one in {package.parent} cannot be "
                "used beside it: was the folder moved, or copied by hand? Use it in a process of its own"
            )
        if _imported.setdefault(name, digest) == digest:
            return _class_of(loaded, class_name)
    spec = spec_from_file_location(name, package / "__init__.py", submodule_search_locations=[str(package)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{package} cannot be imported: there is no __init__.py that Python can read")
    importlib.invalidate_caches()
    before = _forget(name)
    module = sys.modules[name] = module_from_spec(spec)
    writes_no_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # the folder stays as the user sees it
    try:
        spec.loader.exec_module(module)
        pack_class = _class_of(module, class_name)  # a package that imports its parts on demand does so here
    except BaseException:
        _forget(name)
        sys.modules.update(before)
        raise
    finally:
        sys.dont_write_bytecode = writes_no_bytecode
    _imported[name] = digest
    return pack_class


def _class_of(module: ModuleType, class_name: str) -> type[DenseXRetrievalPack]:
    pack_class: type[DenseXRetrievalPack] = getattr(module, class_name)
    return pack_class


def _forget(name: str) -> dict[str, ModuleType]:
    return {key: sys.modules.pop(key) for key in list(sys.modules) if key == name or key.startswith(f"{name}.")}


def _digest(package: Path) -> str:
    digest = hashlib.sha256()
    for file in _source_files(package):
        digest.update(f"{file.relative_to(package)}\0".encode(errors="surrogateescape"))
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
