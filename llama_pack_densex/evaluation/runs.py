"""Run files and relevance labels, as TREC and ranx write them."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llama_pack_densex.evaluation.extras import require

_LZ4 = b'\x04"M\x18'
_GZIP = b"\x1f\x8b"

Run = dict[str, dict[str, float]]
"""Question id to document id to score, in the order of the file."""
Qrels = dict[str, dict[str, int]]
"""Question id to document id to label, above 0 for what is relevant."""


def read_run(path: Path) -> Run:
    """Read a run: TREC text (question, "Q0", document, rank, score, tag), or ranx's JSON or lz4.

    The kind is seen from the content, and gzip is unpacked. As in trec_eval and ranx the score decides, not TREC's
    rank.

    Raises:
        ValueError: The file is no run; the message names the line.
        OSError: It cannot be read.
    """
    run: Run = {}
    for where, question, document, score in _entries(path, columns=6, value=4, expected=_RUN_LINE):
        number = _number(score)
        if number is None:
            raise ValueError(f"{where}: the score {score!r} is no number; expected {_RUN_LINE}")
        if document in run.setdefault(question, {}):
            raise ValueError(f"{where}: the document {document} occurs twice for the question {question}")
        run[question][document] = number
    return run


def read_qrels(path: Path) -> Qrels:
    """Read relevance labels: TREC text (question, iteration, document, label), BEIR's TSV, or ranx's JSON or lz4.

    Raises:
        ValueError: The file holds no labels; the message names the line.
        OSError: It cannot be read.
    """
    qrels: Qrels = {}
    for where, question, document, label in _entries(path, columns=4, value=3, expected=_QRELS_LINE):
        number = _number(label)
        if number is None or number != int(number):
            raise ValueError(f"{where}: the label {label!r} is no whole number; expected {_QRELS_LINE}")
        qrels.setdefault(question, {})[document] = int(number)
    return qrels


_RUN_LINE = '"question Q0 document rank score tag"'
_QRELS_LINE = '"question 0 document label"'


def _entries(path: Path, columns: int, value: int, expected: str) -> Iterator[tuple[str, str, str, Any]]:
    """Yield (where it stands, question, document, value) for each entry of a run or of labels."""
    data = _unpack(path)
    start = data.lstrip()[:1]
    if isinstance(data, _CBOR) or start == b"{":
        entries = _mapping_entries(path, data)
    else:
        entries = _text_entries(path, data, columns, value, expected)
    empty = True
    for entry in entries:
        empty = False
        yield entry
    if empty:
        raise ValueError(f"{path}: it is empty; expected lines of {expected}, or a file that ranx wrote")


class _CBOR(bytes):
    """What was in an lz4 file."""


def _unpack(path: Path) -> bytes:
    data = path.read_bytes()
    if data.startswith(_GZIP):
        try:
            return gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise ValueError(f"{path}: the gzip data is damaged ({error})") from error
    packed = data
    while data.startswith(_LZ4):  # ranx compresses twice: itself, and through the file that it writes to
        import pyarrow

        try:
            data = pyarrow.input_stream(pyarrow.BufferReader(data), compression="lz4").read()
        except OSError as error:
            raise ValueError(f"{path}: the lz4 data is damaged ({error})") from error
    return data if data is packed else _CBOR(data)


def _mapping_entries(path: Path, data: bytes) -> Iterator[tuple[str, str, str, Any]]:
    expected = "expected an object of questions, each with an object of documents and their values, as ranx writes it"
    try:
        content = (
            require("cbor2", "cbor2", f"reading {path}").loads(data) if isinstance(data, _CBOR) else json.loads(data)
        )
    except ImportError:
        raise
    except Exception as error:  # cbor2's errors have no common class that is public in all its versions
        raise ValueError(f"{path}: it cannot be decoded ({error}); {expected}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: {expected}")
    for question, documents in content.items():
        if not isinstance(documents, dict):
            raise ValueError(f"{path}, question {question}: {expected}")
        for document, value in documents.items():
            yield f"{path}, question {question}", str(question), str(document), value


def _text_entries(
    path: Path, data: bytes, columns: int, value: int, expected: str
) -> Iterator[tuple[str, str, str, Any]]:
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: it is neither UTF-8 text nor a file that ranx wrote; expected lines of {expected}"
        ) from error
    is_beir = bool(lines) and lines[0].split() == ["query-id", "corpus-id", "score"]
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or (is_beir and number == 1):
            continue
        where = f"{path}, line {number}"
        if is_beir and value == 3 and len(fields) == 3:
            yield where, fields[0], fields[1], fields[2]
        elif len(fields) == columns:
            yield where, fields[0], fields[2], fields[value]
        else:
            raise ValueError(f"{where}: {len(fields)} columns; expected the {columns} of {expected}")


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
