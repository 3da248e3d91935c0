"""Texts that are the bytes of a file and not what is written in it. Pure."""

from __future__ import annotations

import re

_SIGNATURES = {
    "%PDF-": "a PDF file",
    "PK\x03\x04": "a Word, Excel, PowerPoint, EPUB or ZIP file",
}
_LOOKED_AT = 4_096  # characters
_MOST_CONTROLS = 20  # in these: a text may have some; \t to \r and escapes, as logs have them, do not count
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def binary_kind(text: str) -> str:
    """What kind of file a text is the bytes of, as LlamaIndex's `SimpleDirectoryReader` takes them for text
    where it lacks a reader; empty for a text.

    Args:
        text: The text of a document.
    """
    for signature, kind in _SIGNATURES.items():
        if text.startswith(signature):
            return kind
    controls = _CONTROL.findall(text, 0, _LOOKED_AT)
    return "a binary file" if len(set(controls)) > 2 and len(controls) > _MOST_CONTROLS else ""
