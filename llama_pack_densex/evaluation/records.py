"""Records of JSON, JSONL, CSV, TSV and Parquet files, one at a time, each knowing where it stands."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO


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
        """The field `answers` or `answer`: a list, a text that holds a JSON list, or a text divided at each "|".

        Raises:
            DatasetError: It is something else.
        """
        name = "answers" if self.fields.get("answers") is not None else "answer"
        value = self.fields.get(name)
        if isinstance(value, str):
            try:
                parts = _parsed(value) if value.lstrip().startswith("[") else value.split("|")
            except json.JSONDecodeError:
                parts = [value]
            value = [part.strip() if isinstance(part, str) else part for part in parts]
        return Record({name: value}, self.where).texts(name)

    def error(self, problem: str) -> DatasetError:
        """An error about this record."""
        return DatasetError(f"{self.where}: {problem}")


def read_records(path: Path) -> Iterator[Record]:
    """Read a file's records by its name's ending, which may be followed by ".gz"; but for JSON, one at a time.

    A JSON file must be a list of objects. CSV and TSV files have a header.

    Raises:
        DatasetError: The file is damaged, or its ending is not known.
        OSError: It cannot be read.
    """
    kind = ending(path)
    if kind == ".parquet":
        yield from _parquet_records(path)
    elif kind in (".jsonl", ".ndjson"):
        yield from _line_records(path)
    elif kind == ".json":
        items = read_json(path)
        if not isinstance(items, list):
            raise DatasetError(f"{path}: expected a JSON list")
        for number, value in enumerate(items, 1):
            yield object_record(value, f"{path}, item {number}")
    elif kind in (".csv", ".tsv"):
        rows = read_rows(path)
        where, header = next(rows, (f"{path}, line 1", []))
        for where, row in rows:
            if len(row) != len(header):
                raise DatasetError(f"{where}: {len(row)} columns; expected the header's {len(header)}")
            yield Record({name: value for name, value in zip(header, row, strict=True) if value != ""}, where)
    else:
        raise DatasetError(f"{path}: expected a .jsonl, .json, .csv, .tsv or .parquet file")


def read_rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Read the rows of a CSV or TSV file without a header of its own, as (where it stands, fields)."""
    with open_text(path) as stream:
        rows = csv.reader(stream, delimiter="\t" if ending(path) == ".tsv" else _divider(path))
        start = 1
        try:
            for row in rows:
                if row:
                    yield f"{path}, line {start}", row
                start = rows.line_num + 1
        except csv.Error as error:
            raise DatasetError(f"{path}, line {start}: expected CSV or TSV ({error})") from error


def read_json(path: Path) -> Any:
    """Read a whole JSON file.

    Raises:
        DatasetError: It is no JSON.
    """
    with open_text(path) as stream:
        try:
            return _parsed(stream.read())
        except json.JSONDecodeError as error:
            raise DatasetError(f"{path}, line {error.lineno}: expected JSON ({error.msg})") from error


def ending(path: Path) -> str:
    """A file name's ending in lower case, without ".gz"."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 file, packed with gzip or not; a byte order mark is dropped. CSV is in what Excel writes, too.

    Raises:
        DatasetError: What is read from it turns out not to be UTF-8, or damaged gzip.
        OSError: It cannot be read.
    """
    packed = path.name.lower().endswith(".gz")
    if path.suffix.lower() == ".csv":
        from llama_pack_densex.reading.readers import decode  # which imports much

        if (text := decode(path.read_bytes())) is not None:
            yield io.StringIO(text, newline="")
            return
    try:
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            yield io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: expected UTF-8 ({error.reason} at byte {error.start})") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: expected gzip, since its name ends in .gz ({error})") from error


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("it is nested too deeply", text, 0) from None


def _line_records(path: Path) -> Iterator[Record]:
    with open_text(path) as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                where = f"{path}, line {number}"
                try:
                    yield object_record(_parsed(line), where)
                except json.JSONDecodeError as error:
                    raise DatasetError(f"{where}: expected a JSON object ({error.msg})") from error


def _parquet_records(path: Path) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=1_000):
                for fields in batch.to_pylist():
                    number += 1
                    yield Record(fields, f"{path}, row {number}")
    except pyarrow.ArrowInvalid as error:
        raise DatasetError(f"{path}: expected a Parquet file ({error})") from error


def object_record(value: object, where: str) -> Record:
    """A JSON object, or another mapping, as a record.

    Raises:
        DatasetError: It is something else.
    """
    if not isinstance(value, Mapping):
        raise DatasetError(f"{where}: expected a JSON object, and this is {type(value).__name__}")
    return Record(dict(value), where)


def _divider(path: Path) -> str:
    """What divides a CSV file's first line: tabs in DPR's question files; semicolons where commas are in numbers."""
    with open_text(path) as stream:
        line = stream.readline()
    return "\t" if "\t" in line else ";" if ";" in line and "," not in line else ","
