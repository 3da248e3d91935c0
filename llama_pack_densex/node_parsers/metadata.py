"""Metadata keys that the node parsers and retrievers write, and the metadata that models see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal

from llama_index.core.schema import BaseNode, MetadataMode

from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.outline import searched_context
from llama_pack_densex.text.values import plain_values

Granularity = Literal["question", "sentence", "proposition", "passage", "section"]
"""The kinds of nodes, from fine to coarse."""

GRANULARITY_KEY = "densex_granularity"
"""A node's granularity: "proposition", "sentence", "question", "passage" or "section"."""
CONTEXT_KEY = "densex_context"
"""The text needed to understand a passage, as Markdown that ends where the passage begins: the line that
introduces its list, the header of its table, the question that it answers (see
`text.outline.Outline.context_of`). Also on units that occur verbatim in the passage; those that an LLM wrote
are self-contained and do not have it."""
STATUS_KEY = "densex_status"
"""The status of a passage's propositions: "ok", "repaired" or "fallback" (see `PropositionSet`); on the
passage and on its propositions."""
REASON_KEY = "densex_reason"
"""Why the status is not "ok"."""
TITLE_KEY = "densex_title"
"""The title of the passage's document."""
SECTION_KEY = "densex_section"
"""The headings above a passage, outermost first, joined by ", "."""
ABOVE_KEY = "densex_above"
"""On documents that are parts of a file: the headings that their text begins below, outermost first."""
UNVERIFIED_KEY = "densex_unverified"
"""True on propositions that no sentence of their passage states; their span is the passage's."""
DOCUMENT_HASH_KEY = "densex_document_hash"
"""On base nodes: a hash of everything that their document's nodes depend on, which shows whether a document
has changed."""
DOCUMENT_ID_KEY = "densex_document_id"
"""The id of a node's document. It is in the metadata since LlamaIndex's ingestion cache tells nodes apart by
text and metadata alone."""
ANSWERS_KEY = "densex_answers"
"""On questions: for each proposition that answers the question, the likeliest first, its id, text, start, end
and whether it is unverified; as JSON, since many stores take no lists."""
FINDINGS_KEY = "densex_findings"
"""The findings of checks about a proposition, one per line, as "kind: reason"; on the passage those that name
no single proposition."""
MATCHED_KEY = "densex_matched"
"""On retrieved nodes: the units that found them, best first (see `MatchedUnit`)."""

FOOTNOTE_KEY = "footnote"
"""On nodes that an LLM reads to answer: the footnote that refers to them, as "[^1]"."""

BOOKKEEPING_KEYS = (
    GRANULARITY_KEY, STATUS_KEY, REASON_KEY, TITLE_KEY, SECTION_KEY, ABOVE_KEY, CONTEXT_KEY, DOCUMENT_ID_KEY,
    DOCUMENT_HASH_KEY, ANSWERS_KEY, FINDINGS_KEY, MATCHED_KEY, UNVERIFIED_KEY,
)  # fmt: skip

VOLATILE_FILE_KEYS = ("creation_date", "last_modified_date", "last_accessed_date")
"""A file's dates, as `SimpleDirectoryReader` writes them: a `touch` changes them and nothing else."""

EMBED_METADATA: tuple[str, ...] = ()
"""The metadata that the embedding model sees by default: none, since it drowns out a short fact."""
LLM_METADATA = ("title", "section", "context", "file_name", "page_label")
"""The metadata that the LLM sees by default: the origin of a text, with the keys of LlamaIndex's readers."""

# SimpleDirectoryReader excludes these keys for every file, so a list of all of them is not the user's choice.
_READER_EXCLUDES = frozenset({"file_name", "file_type", "file_size", *VOLATILE_FILE_KEYS})


def findings_of(node: BaseNode) -> list[str]:
    """Return the findings of checks about a proposition or a passage, each as "kind: reason"."""
    return str(node.metadata.get(FINDINGS_KEY, "")).splitlines()


def context_of(node: BaseNode) -> str:
    """Return the context that is needed to understand a node's text; empty if there is none."""
    return str(node.metadata.get(CONTEXT_KEY, ""))


def embedded_text(node: BaseNode) -> str:
    """Return the text that is embedded for a node: its own, and for passages and verbatim units what they are
    below.

    That is the document's title and the headings above the node, if there are headings, and its context. In
    handbooks this ranks the right passage first more often. It is not added to propositions that an LLM
    wrote, which name their subject and get worse by it, nor to nodes whose metadata the user chose to embed.
    """
    text = node.get_content(metadata_mode=MetadataMode.EMBED)
    if CONTEXT_KEY not in node.metadata or text != node.get_content():
        return searchable_text(text)
    title = str(node.metadata.get(TITLE_KEY, ""))
    section = str(node.metadata.get(SECTION_KEY, ""))
    if section.startswith(title) or not section:
        title = ""
    above = [title, section, searched_context(context_of(node))]
    return searchable_text("\n".join([*filter(None, above), text]))


def appearance(node: BaseNode) -> dict[str, Any]:
    """Return the templates by which a node shows its metadata and text to models."""
    names = ("metadata_template", "metadata_separator", "text_template")
    return {name: getattr(node, name) for name in names if hasattr(node, name)}


def lasting(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's part of a document's metadata as it is stored: without a file's dates and our keys.

    Raises:
        ValueError: A value cannot be stored; the message names its key.
    """
    users = users_metadata(metadata)
    return plain_values({k: v for k, v in users.items() if k not in VOLATILE_FILE_KEYS})


def users_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without our own keys."""
    return {key: value for key, value in metadata.items() if key not in BOOKKEEPING_KEYS}


def embedded_metadata(document: BaseNode, names: Iterable[str]) -> list[str]:
    """Return those of the names that the embedding model may see, sorted: keys that the document does not
    exclude, and that are not ours.
    """
    excluded = _users_choice(document.excluded_embed_metadata_keys)
    return sorted({*names}.difference(excluded, BOOKKEEPING_KEYS))


def exclusions(
    document: BaseNode, metadata: Mapping[str, Any], embed: Sequence[str], llm: Sequence[str]
) -> dict[str, list[str]]:
    """Return the fields of a node that exclude all metadata from models, except the named keys.

    Keys that are added to the node later, as by LlamaIndex's metadata extractors, are not excluded.

    Args:
        document: The node's document; keys that its user excluded stay excluded.
        metadata: The node's metadata.
        embed: The keys that the embedding model may see.
        llm: The keys that the LLM may see. A title that equals the file's name is left out beside it.
    """
    keys = dict.fromkeys([*metadata, "title", "section", "context"])
    from_embed = _users_choice(document.excluded_embed_metadata_keys)
    from_llm = _users_choice(document.excluded_llm_metadata_keys)
    file = PurePath(str(metadata.get("file_name", "")))
    is_named = "file_name" in llm and "file_name" not in from_llm
    if is_named and str(metadata.get("title")) == file.stem:
        from_llm.append("title")
    return {
        "excluded_embed_metadata_keys": _hidden(keys, embed, from_embed),
        "excluded_llm_metadata_keys": _hidden(keys, llm, from_llm),
    }


def _hidden(keys: Iterable[str], shown: Sequence[str], excluded: Sequence[str]) -> list[str]:
    not_shown = [key for key in keys if key not in shown]
    return [*dict.fromkeys([*excluded, *not_shown, *BOOKKEEPING_KEYS])]


def _users_choice(excluded: Sequence[str]) -> list[str]:
    if _READER_EXCLUDES.issubset(excluded):
        return [key for key in excluded if key not in _READER_EXCLUDES]
    return [*excluded]
