"""`download_llama_pack`: the call that existed in LlamaIndex until llama-index-core 0.14.20; notebooks still
use it."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
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
        download_dir: A folder for an editable copy of the class, in `base.py`, as in LlamaIndex's packs. An
            existing copy is used as it is. The copy imports everything else from the installed package, so it
            takes and returns the same objects. None means the installed class.
        llama_pack_url: Ignored; LlamaIndex's function downloaded the pack from there.
        refresh_cache: Whether to overwrite an existing copy with a fresh one.

    Returns:
        The class.

    Raises:
        ValueError: This package has no such pack, or the folder holds something else.

    Example:
        >>> from llama_pack_densex import download_llama_pack
        >>> download_llama_pack("DenseXRetrievalPack")
        <class 'llama_pack_densex.pack.DenseXRetrievalPack'>
    """
    if llama_pack_class != DenseXRetrievalPack.__name__:
        raise ValueError(
            f"no pack {llama_pack_class!r} here; the only one is {DenseXRetrievalPack.__name__}"
        )
    if download_dir is None:
        return DenseXRetrievalPack
    folder = Path(download_dir).resolve()
    base = folder / "base.py"
    if folder.is_file() or (folder.is_dir() and not base.exists() and any(folder.iterdir())):
        raise ValueError(
            f"{folder} is a file, or holds something other than a copy of the pack: name a folder of its own"
        )
    if refresh_cache or not base.exists():
        folder.mkdir(parents=True, exist_ok=True)
        base.write_text(inspect.getsource(pack), encoding="utf-8")
        (folder / "__init__.py").write_text(
            "from .base import DenseXRetrievalPack as DenseXRetrievalPack\n"
        )
    copy = ModuleType(f"{folder.name}.base")
    exec(compile(base.read_text(encoding="utf-8"), base, "exec"), vars(copy))
    return copy.DenseXRetrievalPack
