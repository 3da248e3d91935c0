"""Records of JSON, JSONL, CSV, TSV and Parquet files, each knowing where it stands."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class DatasetError(ValueError):
    """A dataset is not what it should be; the message names the file, the place in it, and what is expected."""


@dataclass(frozen=True)
class Record:
    """A record with its place, for errors.

    Args:
        fields: Its fields by name.
        where: Such as "questions.jsonl, line 3".
    """

    fields: dict[str, Any]
    where: str

    def text(self, *names: str, default: str | None = None) -> str:
        """The first of these fields that is there, as text; numbers are written out.

        Raises:
            DatasetError: None of them is there and there is no default, or it is no text.
        """
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, str):
                return value
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            if value is not None:
                raise self.error(f"{name} is {type(value).__name__}, and text is expected")
        if default is None:
            raise self.error(f"{' or '.join(map(repr, names))} is missing")
        return default

    def texts(self, *names: str) -> tuple[str, ...]:
        """The first of these fields that is there as texts; one text alone will do. Empty if none is there.

        Raises:
            DatasetError: It is neither a text nor a list of texts.
        """
        value = next((self.fields[name] for name in names if self.fields.get(name) is not None), ())
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) for text in value):
            raise self.error(f"{' or '.join(map(repr, names))} must be a text or a list of texts")
        return tuple(dict.fromkeys(text for text in value if text.strip()))

    def answers(self) -> tuple[str, ...]:
        """The field `answers` or `answer`: a list, a text that holds one, or a text divided at each "|".

        Raises:
            DatasetError: It is something else.
        """
        name = "answers" if self.fields.get("answers") is not None else "answer"
        value = self.fields.get(name)
        return Record({name: _listed(value) if isinstance(value, str) else value}, self.where).texts(name)

    def records(self, name: str) -> list[Record]:
        """A field that is a list of objects.

        Raises:
            DatasetError: It is something else.
        """
        items = self.fields.get(name)
        if not isinstance(items, list):
            raise self.error(f"{name!r} must be a list")
        dot = "." if "]" in self.where else ", "
        return [object_record(item, f"{self.where}{dot}{name}[{number}]") for number, item in enumerate(items)]

    def error(self, problem: str) -> DatasetError:
        """An error about this record."""
        return DatasetError(f"{self.where}: {problem}")


def read_records(path: Path) -> Iterator[Record]:
    """Read a file's records by its name's ending, which may be followed by ".gz".

    A JSON file is a list of objects, or one object. CSV and TSV files have a header.

    Raises:
        DatasetError: The file is damaged, or its ending is not known.
        OSError: It cannot be read.
    """
    kind = _ending(path)
    if kind == ".parquet":
        yield from _parquet_records(path)
    elif kind in (".jsonl", ".ndjson"):
        for number, line in enumerate(io.StringIO(_text(path)), 1):
            if line.strip():
                yield object_record(_parsed(path, line.strip(), number), f"{path}, line {number}")
    elif kind == ".json":
        content = _parsed(path, _text(path))
        if isinstance(content, list):
            for number, item in enumerate(content, 1):
                yield object_record(item, f"{path}, item {number}")
        else:
            yield object_record(content, str(path))
    elif kind in (".csv", ".tsv"):
        yield from _rows(path)
    else:
        raise DatasetError(f"{path}: expected a .jsonl, .json, .csv, .tsv or .parquet file")


def object_record(value: object, where: str) -> Record:
    """A JSON object, or another mapping, as a record.

    Raises:
        DatasetError: It is something else.
    """
    if not isinstance(value, Mapping):
        raise DatasetError(f"{where}: expected a JSON object, and this is {type(value).__name__}")
    return Record(dict(value), where)


def _ending(path: Path) -> str:
    """A file name's ending in lower case, without ".gz"."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _text(path: Path) -> str:
    """A file's text: UTF-8, packed with gzip or not; CSV in whatever Excel writes, too."""
    data = path.read_bytes()
    if path.name.lower().endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DatasetError(f"{path}: expected gzip, since its name ends in .gz ({error})") from error
    if _ending(path) == ".csv":
        from llama_pack_densex.reading.encoding import decode  # which imports much

        if (text := decode(data)) is not None:
            return text
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: expected UTF-8 ({error.reason} at byte {error.start})") from error


def _parsed(path: Path, text: str, line: int = 1) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DatasetError(f"{path}, line {line + error.lineno - 1}: expected JSON ({error.msg})") from error
    except RecursionError as error:
        raise DatasetError(f"{path}, line {line}: expected JSON, and this is nested too deeply") from error


def _listed(text: str) -> list[Any]:
    """The texts in a cell: a list as JSON or Python writes it, or what "|" divides."""
    if text.lstrip().startswith("["):
        for read in (json.loads, ast.literal_eval):
            try:
                return list(read(text.strip()))
            except (ValueError, SyntaxError, RecursionError):
                continue
    return [part.strip() for part in text.split("|")]


def _rows(path: Path) -> Iterator[Record]:
    """The rows of a CSV or TSV file, which may be divided by tabs, as DPR's question files are, and by semicolons.

    Without a header, as DPR's *.qa.csv, they are questions with a list of answers as Python writes it.
    """
    text = _text(path)
    first = text.partition("\n")[0]
    mark = "\t" if "\t" in first else max(",;", key=first.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    found, start = [], 1
    try:
        for row in rows:
            if row:
                found.append((f"{path}, line {start}", row))
            start = rows.line_num + 1
    except csv.Error as error:
        raise DatasetError(f"{path}, line {start}: expected CSV or TSV ({error})") from error
    has_header = not (found and _has_list(found[0][1]))
    header = found.pop(0)[1] if found and has_header else ["question", "answers"]
    for where, row in found:
        if not has_header and not _has_list(row):
            what = "a question and a list of answers such as ['14 December 1972']"
            raise DatasetError(f"{where}: expected {what}, or in the first line a header with 'question'")
        if len(row) != len(header):
            raise DatasetError(f"{where}: {len(row)} columns; expected the header's {len(header)}")
        yield Record({name: value for name, value in zip(header, row, strict=True) if value != ""}, where)


def _has_list(row: Sequence[str]) -> bool:
    return len(row) == 2 and row[1].lstrip().startswith("[")


def _parquet_records(path: Path) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise DatasetError(f"{path}: expected a Parquet file ({error})") from error
    for number, fields in enumerate(rows, 1):
        yield Record(fields, f"{path}, row {number}")
