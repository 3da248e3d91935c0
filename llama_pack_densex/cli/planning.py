"""What `densex index` would do, for the commands that prepare it: the same parser, the documents that are new to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_pack_densex.cli.opening import damage_reported
from llama_pack_densex.options import PackOptions
from llama_pack_densex.stores.folder import IndexFolder
from llama_pack_densex.wiring import Given, make_node_parser

if TYPE_CHECKING:
    from llama_index.llms.openai import OpenAI

    from llama_pack_densex.node_parsers.base import BasePropositionNodeParser
    from llama_pack_densex.propositionizers.base import Propositionizer
    from llama_pack_densex.stores.manifest import Manifest

_NO_KEY = "none, since nothing is asked"


def planned_parser(
    manifest: Manifest | None,
    propositionizer: Propositionizer,
    mode: str | None = None,
    granularity: tuple[str, ...] = (),
) -> BasePropositionNodeParser:
    """The parser that `densex index` would take.

    Args:
        manifest: Of the index that is there already; None where there is none.
        propositionizer: What would make the propositions.
        mode: The mode that was asked for; None for the index's own, or the default.
        granularity: Likewise.
    """
    chosen: dict[str, Any] = {} if manifest is None else {"mode": manifest.mode, "granularity": manifest.granularity}
    given = {"mode": mode, "granularity": granularity}
    options = PackOptions(**{**chosen, **{name: value for name, value in given.items() if value}})
    return make_node_parser(options, Given(propositionizer=propositionizer))[0]


def document_hashes(to: Path | None, manifest: Manifest | None) -> set[str]:
    """What the documents of an index were like when they were indexed."""
    if to is None or manifest is None:
        return set()
    with damage_reported(to):
        records = IndexFolder(to).open(manifest).documents().values()
    return {record.hash for record in records}


def unasked_llm(name: str) -> OpenAI:
    """An LLM that says what it would be asked, and is not: it needs no key, and may have any name."""
    from llama_index.llms.openai import OpenAI

    return OpenAI(model=name, api_key=os.environ.get("OPENAI_API_KEY") or _NO_KEY)
