"""Compression of the nodes in the embedded store: most of a node's JSON is the same in every node."""

from __future__ import annotations

import zlib

_LEVEL = 3
# What the JSON of passages and propositions has in common, the most frequent at the end. Never change it: a
# database that was written with it can be read with no other one.
_DICTIONARY = (
    b'{"file_path": "", "file_name": "", "file_type": "text/markdown", "file_size": , '
    b'"creation_date": "202last_modified_date": "202", "page_label": ""]}, "node_id": "", '
    b'"node_type": "3", "metadata": {}, "hash": null, "class_name": "RelatedNodeInfo"}, '
    b'{"__data__": {"id_": "", "embedding": null, "metadata": {"title": "", "section": "", '
    b'"context": "", "densex_granularity": "passage", "densex_title": "", "densex_section": "", '
    b'"densex_context": "", "densex_document_id": "", "densex_document_hash": "", '
    b'"densex_status": "ok"}, "excluded_embed_metadata_keys": ["title", "section", "context", '
    b'"densex_granularity": "proposition", "densex_status", "densex_reason", "densex_title", '
    b'"densex_section", "densex_above", "densex_context", "densex_document_id", '
    b'"densex_document_hash", "densex_answers", "densex_findings", "densex_matched", '
    b'"densex_unverified"], "excluded_llm_metadata_keys": ["densex_granularity", "densex_status", '
    b'"densex_reason", "densex_title", "densex_section", "densex_above", "densex_context", '
    b'"densex_document_id", "densex_document_hash", "densex_answers", "densex_findings", '
    b'"densex_matched", "densex_unverified"], "relationships": {"1": {"node_id": "", '
    b'"node_type": "4", "metadata": {}, "hash": "", "class_name": "RelatedNodeInfo"}, '
    b'"4": {"node_id": "", "node_type": "1", "metadata": {}, "hash": null, '
    b'"class_name": "RelatedNodeInfo"}, "2": {"node_id": "", "node_type": "3", "metadata": {}, '
    b'"hash": null, "class_name": "RelatedNodeInfo"}, "3": {"node_id": "", "node_type": "3", '
    b'"metadata": {}, "hash": null, "class_name": "RelatedNodeInfo"}, "5": [{"node_id": "", '
    b'"node_type": "3", "metadata": {}, "hash": null, "class_name": "RelatedNodeInfo"}]}, '
    b'"metadata_template": "{key}: {value}", "metadata_separator": "\\n", "text": "", '
    b'"mimetype": "text/plain", "start_char_idx": , "end_char_idx": , '
    b'"text_template": "{metadata_str}\\n\\n{content}", "index_id": "", "obj": null, '
    b'"class_name": "TextNode"}, "__type__": "1"}, "class_name": "IndexNode"}, "__type__": "3"}'
)


def compress(content: str) -> bytes:
    """Compress the JSON of a node."""
    compressor = zlib.compressobj(_LEVEL, zdict=_DICTIONARY)
    return compressor.compress(content.encode("utf-8")) + compressor.flush()


def decompress(content: bytes | str) -> str:
    """Return what was compressed; text, which databases of earlier versions hold, is returned as it is.

    Raises:
        ValueError: The content is damaged.
    """
    if isinstance(content, str):
        return content
    try:
        return zlib.decompressobj(zdict=_DICTIONARY).decompress(content).decode("utf-8")
    except zlib.error as error:
        raise ValueError(f"a compressed node is damaged: {error}") from error
