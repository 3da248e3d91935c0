"""Texts that are the bytes of a file."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Document

from llama_pack_densex import PropositionNodeParser
from llama_pack_densex.node_parsers.nodes import binary_kind

pytestmark = pytest.mark.pure


def as_core_reads(data: bytes) -> str:
    return data.decode("utf-8", errors="ignore")


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", "雨が降った。" * 500)
    return file.getvalue()


def test_bytes_of_files_are_told() -> None:
    assert binary_kind("%PDF-1.4\n1 0 obj") == "a PDF file"
    assert "Word" in binary_kind(as_core_reads(zipped()))
    assert binary_kind(as_core_reads(bytes(range(256)) * 20)) == "a binary file"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "雨が降った。\f次のページ。\f" * 50,
        "\x1b[31merror\x1b[0m: it rained\n" * 200,
        "a\x00b" * 40,
        "The header of a PDF is %PDF-1.4.",
        "PK is a sign of playgrounds.",
    ],
)
def test_texts_are_texts(text: str) -> None:
    assert binary_kind(text) == ""


def test_the_file_is_named_where_the_id_is_random() -> None:
    document = Document(text="%PDF-1.4\n1 0 obj", metadata={"file_path": "/docs/規則.pdf"})
    with pytest.raises(
        ValueError, match=r"of document '.*' \('/docs/規則\.pdf'\) is the bytes of a PDF"
    ):
        PropositionNodeParser().get_nodes_from_documents([document])


@given(st.text(max_size=60))
def test_short_texts_are_told_by_signatures_alone(text: str) -> None:
    assert not binary_kind(f"雨。{text}")
