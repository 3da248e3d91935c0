"""What an index, a store or a dictionary says about models is a claim of whoever made it: what of it may be used.

Names that lead to a provider's own address, or to the Hugging Face Hub, may be. An address, a folder or a module may
send keys and questions anywhere, or run anything: it is used once the user has named it, by an argument or in the
environment.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection
from pathlib import Path

from llama_pack_densex.llm.names import PROVIDERS, parse_name

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_WEIGHTS = ("huggingface", "local")  # what precedes the place of a model's weights
_OWN_SERVER = ("OPENAI_API_BASE", "OPENAI_BASE_URL")
_OF_OWN_SERVER = ("openai", "openai-like")


def unnamed_place(model: str, retrievers: Collection[str] = ()) -> str:
    """The address or folder in a model's name that nobody here has named; empty where there is none.

    Args:
        model: The name, as somebody else wrote it.
        retrievers: Names that stand for a model by themselves, or, with a colon, precede the place of its weights.

    Raises:
        ValueError: The name's address holds a key.
    """
    if model in retrievers:
        return ""
    before, _, after = model.partition(":")
    if before in PROVIDERS and before not in _WEIGHTS:
        _, _, address = parse_name(model)
        return "" if before in _OF_OWN_SERVER and is_own_server(address) else address
    place = after if before in (*_WEIGHTS, *retrievers) else model
    is_on_hub = _HUB_NAME.fullmatch(place) and not Path(place).exists()
    return "" if is_on_hub else place


def check_module(path: str) -> None:
    """Refuse what a dictionary would import that is neither LlamaIndex's nor imported by the user already.

    Args:
        path: The "module:name" that somebody else wrote.

    Raises:
        ValueError: It is in another module.
    """
    module = path.partition(":")[0]
    if module not in sys.modules and not module.startswith("llama_index."):
        raise ValueError(
            f"{path!r} is not imported, since a dictionary names it: if you trust that module, import it first, with "
            f"import {module if module.isprintable() else ascii(module)}"
        )


def is_own_server(address: str) -> bool:
    """Whether an address is the one that the environment says OpenAI's client should ask."""
    own_servers = [os.environ.get(variable, "").rstrip("/") for variable in _OWN_SERVER]
    return address != "" and address.rstrip("/") in own_servers
