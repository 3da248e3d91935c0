"""The packages that only the extra `evaluation` brings, asked for where they are needed."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, package: str, purpose: str) -> Any:
    """Import a module of the extra.

    Args:
        module: What to import.
        package: The distribution that has it.
        purpose: What needs it, to begin the error with.

    Raises:
        ImportError: It is not installed; the message says which extra brings it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ImportError(
            f'{purpose} needs the package {package}: install it with: pip install "llama-pack-densex[evaluation]"'
        ) from error
