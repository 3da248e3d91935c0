"""`download_llama_pack`, the call that LlamaIndex had until llama-index-core 0.14.20, as notebooks still use it."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from llama_pack_densex import pack
from llama_pack_densex.pack import DenseXRetrievalPack


def download_llama_pack(
    llama_pack_class: str,
    download_dir: str | Path | None = None,
    llama_pack_url: str = "",
    refresh_cache: bool = False,
) -> Any:
    """Get the pack's class; nothing is downloaded.

    Args:
        llama_pack_class: "DenseXRetrievalPack".
        download_dir: A folder for a copy of the class to edit, in `base.py`, as LlamaIndex's packs had it; the folder
            is a package of its name. A copy that is there is used as it is. It takes and gives the same objects as
            the installed package, from which it imports everything else. None means the installed class.
        llama_pack_url: Where it was downloaded from; it changes nothing.
        refresh_cache: Whether to copy the class anew, over a copy that is there.

    Returns:
        The class.

    Raises:
        ValueError: There is no such pack here, or there is something else of the folder's name.
    """
    if llama_pack_class != DenseXRetrievalPack.__name__:
        raise ValueError(f"no pack {llama_pack_class!r} here; there is: {DenseXRetrievalPack.__name__}")
    if download_dir is None:
        return DenseXRetrievalPack
    folder = Path(download_dir).resolve()
    base, init = folder / "base.py", folder / "__init__.py"
    if folder.is_file() or (folder.is_dir() and not base.exists() and any(folder.iterdir())):
        raise ValueError(f"{folder} is a file, or holds other things than a copy of the pack: name a folder of its own")
    name = re.sub(r"\W", "_", folder.name, flags=re.ASCII)
    name = name if name.isidentifier() else f"pack_{name}"
    there = getattr(sys.modules.get(name), "__spec__", None) or importlib.util.find_spec(name)
    if there is not None and there.origin not in (None, str(init)):
        raise ValueError(f"there is another package {name!r}: give the folder {folder} another name")
    if refresh_cache or not base.exists():
        folder.mkdir(parents=True, exist_ok=True)
        base.write_text(inspect.getsource(pack), encoding="utf-8")
        init.write_text("from .base import DenseXRetrievalPack as DenseXRetrievalPack\n", encoding="utf-8")
    sys.modules.pop(f"{name}.base", None)
    Path(importlib.util.cache_from_source(str(base))).unlink(missing_ok=True)  # it may be older than an edit of now
    spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[str(folder)])
    assert spec is not None, "it is a file of Python"
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.DenseXRetrievalPack
