"""Metadata keys that the node parsers and retrievers write, and which keys no model gets to see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal

from llama_index.core.schema import BaseNode, MetadataMode

from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.outline import searched_context
from llama_pack_densex.text.values import plain_values

Granularity = Literal["question", "sentence", "proposition", "passage", "section"]
"""From the fine to the coarse."""

GRANULARITY_KEY = "densex_granularity"
"""What a node is: "proposition", "sentence", "question", "passage" or "section"."""
CONTEXT_KEY = "densex_context"
"""What has to be read before a passage, as Markdown that ends where it begins: the line that leads its list
in, the header of its table, the question that it answers (see `text.outline.Outline.context_of`). Also of
units that stand in the passage word for word; those that an LLM wrote need nothing and do not have it."""
STATUS_KEY = "densex_status"
"""How a passage's propositions came about: "ok", "repaired" or "fallback"; on the passage and on its
propositions."""
REASON_KEY = "densex_reason"
"""Why the status is not "ok"."""
TITLE_KEY = "densex_title"
"""The title of the passage's document."""
SECTION_KEY = "densex_section"
"""The headings above a passage, outermost first, joined by ", "."""
UNVERIFIED_KEY = "densex_unverified"
"""Of propositions that no sentence of their passage says: True; their span is the passage's."""
DOCUMENT_HASH_KEY = "densex_document_hash"
"""Of base nodes: a hash of what decides their document's nodes; it tells changed documents from unchanged
ones."""
DOCUMENT_ID_KEY = "densex_document_id"
"""The id of a node's document; core's ingestion cache tells nodes apart by text and metadata alone."""
ANSWERS_KEY = "densex_answers"
"""Of questions: id, text, start, end and whether it is unverified, of each proposition that answers them, the
likeliest first; as JSON, since many stores take no lists."""
FINDINGS_KEY = "densex_findings"
"""What checks found wrong with a proposition, a line each, as "kind: reason"; on the passage what is about
all."""
MATCHED_KEY = "densex_matched"
"""Of retrieved nodes: the units that found them, best first (see `MatchedUnit`)."""

FOOTNOTE_KEY = "footnote"
"""Of nodes that an LLM reads to answer: the footnote that stands for them, as "[^1]"."""

BOOKKEEPING_KEYS = (
    GRANULARITY_KEY, STATUS_KEY, REASON_KEY, TITLE_KEY, SECTION_KEY, CONTEXT_KEY, DOCUMENT_ID_KEY,
    DOCUMENT_HASH_KEY, ANSWERS_KEY, FINDINGS_KEY, MATCHED_KEY, UNVERIFIED_KEY,
)  # fmt: skip

VOLATILE_FILE_KEYS = ("creation_date", "last_modified_date", "last_accessed_date")
"""A file's dates, as `SimpleDirectoryReader` writes them: a `touch` changes them and nothing else."""

EMBED_METADATA: tuple[str, ...] = ()
"""The metadata that the embedding model sees by default: none, since it drowns what a short fact says."""
LLM_METADATA = ("title", "section", "context", "file_name", "page_label")
"""The metadata that the LLM sees by default: where a text is from, named as by LlamaIndex's readers."""

# SimpleDirectoryReader excludes these of each file, whoever reads it: that is no wish of the user's.
_READER_EXCLUDES = frozenset({"file_name", "file_type", "file_size", *VOLATILE_FILE_KEYS})


def findings_of(node: BaseNode) -> list[str]:
    """What checks found wrong with a proposition, or with all of a passage, each as "kind: reason"."""
    return str(node.metadata.get(FINDINGS_KEY, "")).splitlines()


def context_of(node: BaseNode) -> str:
    """What has to be read before a node's text; empty where there is nothing."""
    return str(node.metadata.get(CONTEXT_KEY, ""))


def embedded_text(node: BaseNode) -> str:
    """What is embedded of a node: what it says in words, and where it stands word for word, what it is below.

    That is the document's title and the headings above it, where there are headings, and its context. Of
    handbooks it puts the right passage first more often; propositions that an LLM wrote name what they are
    about, and lose by it. Where metadata are embedded because the user chose so, nothing is added to these.
    """
    text = node.get_content(metadata_mode=MetadataMode.EMBED)
    if CONTEXT_KEY not in node.metadata or text != node.get_content():
        return searchable_text(text)
    title = str(node.metadata.get(TITLE_KEY, ""))
    section = str(node.metadata.get(SECTION_KEY, ""))
    is_titled = section and not section.startswith(title)
    above = [title if is_titled else "", section, searched_context(context_of(node))]
    return searchable_text("\n".join([*filter(None, above), text]))


def appearance(node: BaseNode) -> dict[str, Any]:
    """How a node shows its metadata and text to models."""
    names = ("metadata_template", "metadata_separator", "text_template")
    return {name: getattr(node, name) for name in names if hasattr(node, name)}


def lasting(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a document's metadata that is its user's, as it is kept: not a file's dates, not ours.

    Raises:
        ValueError: A value cannot be kept; the message names its key.
    """
    return plain_values(
        {k: v for k, v in metadata.items() if k not in (*VOLATILE_FILE_KEYS, *BOOKKEEPING_KEYS)},
    )


def embedded_metadata(document: BaseNode, names: Iterable[str]) -> list[str]:
    """Those of the metadata keys that the embedding model may see: neither excluded by the document nor
    ours."""
    return sorted(
        {*names}.difference(_users_choice(document.excluded_embed_metadata_keys), BOOKKEEPING_KEYS)
    )


def exclusions(
    document: BaseNode, metadata: Mapping[str, Any], embed: Sequence[str], llm: Sequence[str]
) -> dict[str, list[str]]:
    """The fields of a node that let models see of its metadata what is named and nothing else.

    Keys that are added to the node later, as by LlamaIndex's metadata extractors, are seen.

    Args:
        document: The node's document; what its user excluded stays excluded.
        metadata: The node's metadata.
        embed: What the embedding model may see.
        llm: What the LLM may see. A title that is but the name of the file is not said beside that name.
    """
    keys = dict.fromkeys([*metadata, "title", "section", "context"])
    excluded = _users_choice(document.excluded_llm_metadata_keys)
    file = PurePath(str(metadata.get("file_name", "")))
    is_named = "file_name" in llm and "file_name" not in excluded
    if is_named and str(metadata.get("title")) == file.stem:
        excluded = [*excluded, "title"]
    return {
        "excluded_embed_metadata_keys": _hidden(
            keys,
            embed,
            _users_choice(document.excluded_embed_metadata_keys),
        ),
        "excluded_llm_metadata_keys": _hidden(keys, llm, excluded),
    }


def _hidden(keys: Iterable[str], shown: Sequence[str], excluded: Sequence[str]) -> list[str]:
    return list(
        dict.fromkeys([*excluded, *(key for key in keys if key not in shown), *BOOKKEEPING_KEYS])
    )


def _users_choice(excluded: Sequence[str]) -> list[str]:
    by_reader = _READER_EXCLUDES if {*excluded} >= _READER_EXCLUDES else frozenset()
    return [key for key in excluded if key not in by_reader]
