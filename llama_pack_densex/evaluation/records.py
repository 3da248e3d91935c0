"""Records of JSON, JSONL, CSV, TSV and Parquet files, each with its place in the file."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llama_pack_densex.evaluation.runs import require


class DatasetError(ValueError):
    """A dataset is malformed; the message names the file, the place in it, and what is expected.

    Example:
        >>> from pathlib import Path
        >>> from llama_pack_densex.evaluation import DatasetError, read_dataset
        >>> _ = Path("questions.jsonl").write_text('{"query": "How long does miso keep?"}')
        >>> try:
        ...     read_dataset("questions.jsonl")
        ... except DatasetError as error:
        ...     print(error)
        questions.jsonl: these are questions without documents: pass `documents`, a folder or a corpus; ...
    """


@dataclass(frozen=True)
class Record:
    """A record, and its place for error messages.

    Args:
        fields: The record's fields by name.
        where: The place, such as "questions.jsonl, line 3".
    """

    fields: dict[str, Any]
    where: str

    @property
    def title(self) -> str:
        """The field `title`; "" if there is none.

        Raises:
            DatasetError: It is not text.
        """
        return self.text("title", default="")

    def text(self, *names: str, default: str | None = None) -> str:
        """Return the first of these fields that is present, as text; whole numbers become text.

        Raises:
            DatasetError: None of them is present and there is no default, or it is not text.
        """
        name = self._present(names)
        if name is None and default is not None:
            return default
        if name is None:
            raise self.error(f"{' or '.join(map(repr, names))} is missing")
        value = self.fields[name]
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise self.error(f"{name} is {type(value).__name__}, but text is expected")
        return str(value)

    def texts(self, *names: str, is_cell: bool = False) -> tuple[str, ...]:
        """Return the texts of the first of these fields that is present; empty if none is.

        The field is a list of texts or a single text. Blank texts and repeated ones are left out.

        Args:
            *names: The fields.
            is_cell: Whether a single text is the cell of a table, which may hold a list, or texts separated
                by "|".

        Raises:
            DatasetError: It is neither a text nor a list of texts.
        """
        name = self._present(names)
        if name is None:
            return ()
        value = self.fields[name]
        if isinstance(value, str) and is_cell:
            value = _listed(value)
        elif isinstance(value, str):
            value = [value]
        if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) for text in value):
            raise self.error(f"{name!r} must be a text or a list of texts")
        return tuple(dict.fromkeys(text for text in value if text.strip()))

    def answers(self) -> tuple[str, ...]:
        """Return the texts of the field `answers` or `answer`.

        Raises:
            DatasetError: It is something else.
        """
        return self.texts("answers", "answer", is_cell=True)

    def records(self, name: str) -> list[Record]:
        """Return a field that is a list of objects, as records.

        Raises:
            DatasetError: It is something else.
        """
        items = self.fields.get(name)
        if not isinstance(items, list):
            raise self.error(f"{name!r} must be a list")
        where = f"{self.where}, {name}"
        if "]" in self.where:
            where = f"{self.where}.{name}"
        return [object_record(item, f"{where}[{number}]") for number, item in enumerate(items)]

    def error(self, problem: str) -> DatasetError:
        """Return an error about this record."""
        return DatasetError(f"{self.where}: {problem}")

    def _present(self, names: Sequence[str]) -> str | None:
        return next((name for name in names if self.fields.get(name) is not None), None)


def read_records(path: Path) -> Iterator[Record]:
    """Read a file's records; its suffix names the format, and ".gz" may follow.

    A JSON file is a list of objects, or one object. CSV and TSV files have a header.

    Raises:
        DatasetError: The file is damaged, or its suffix is not supported.
        OSError: The file cannot be read.
    """
    reader = _READERS.get(_suffix(path))
    if reader is None:
        raise DatasetError(f"{path}: expected a .jsonl, .json, .csv, .tsv or .parquet file")
    return reader(path)


def object_record(value: object, where: str) -> Record:
    """Make a record of a JSON object, or of another mapping.

    Raises:
        DatasetError: The value is something else.
    """
    if not isinstance(value, Mapping):
        raise DatasetError(f"{where}: expected a JSON object, but this is {type(value).__name__}")
    return Record(dict(value), where)


def _json_lines(path: Path) -> Iterator[Record]:
    for number, line in enumerate(io.StringIO(_decoded(path)), 1):
        if line.strip():
            yield object_record(_parsed(path, line.strip(), number), f"{path}, line {number}")


def _json_objects(path: Path) -> Iterator[Record]:
    content = _parsed(path, _decoded(path))
    if not isinstance(content, list):
        yield object_record(content, str(path))
        return
    for number, item in enumerate(content, 1):
        yield object_record(item, f"{path}, item {number}")


def _table_rows(path: Path) -> Iterator[Record]:
    """Yield the rows of a CSV or TSV file, delimited by tabs (as in DPR's files), commas or semicolons.

    Without a header, as in DPR's *.qa.csv, a row is a question and its list of answers as Python writes it.
    """
    rows = list(_cells(path))
    header = ["question", "answers"]
    has_header = bool(rows) and not _is_question(rows[0][1])
    if has_header:
        _, header = rows.pop(0)
    for line, row in rows:
        where = f"{path}, line {line}"
        if not has_header and not _is_question(row):
            raise DatasetError(
                f"{where}: expected a question and a list of answers such as ['14 December 1972'], or in the "
                "first line a header with 'question'"
            )
        if len(row) != len(header):
            raise DatasetError(f"{where}: {len(row)} columns; expected the header's {len(header)}")
        yield Record({name: cell for name, cell in zip(header, row, strict=True) if cell}, where)


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table that are not empty, each with the number of its first line."""
    text = _decoded(path)
    first_line = text.partition("\n")[0]
    delimiter = max(",;", key=first_line.count)
    if "\t" in first_line:
        delimiter = "\t"
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise DatasetError(f"{path}, line {line}: expected CSV or TSV ({error})") from error


def _is_question(row: Sequence[str]) -> bool:
    return len(row) == 2 and row[1].lstrip().startswith("[")


def _parquet_rows(path: Path) -> Iterator[Record]:
    pyarrow = require("pyarrow", "pyarrow", f"{path} is a Parquet file, which")
    parquet = require("pyarrow.parquet", "pyarrow", f"{path} is a Parquet file, which")
    try:
        rows = parquet.read_table(path).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise DatasetError(f"{path}: expected a Parquet file ({error})") from error
    for number, fields in enumerate(rows, 1):
        yield Record(fields, f"{path}, row {number}")


_READERS: Mapping[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_objects,
    ".csv": _table_rows,
    ".tsv": _table_rows,
    ".parquet": _parquet_rows,
}


def _suffix(path: Path) -> str:
    """Return a file name's suffix in lower case, ignoring ".gz"."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _decoded(path: Path) -> str:
    """Return a file's text, gunzipped if need be: UTF-8, or for CSV any encoding that Excel writes."""
    data = path.read_bytes()
    if path.name.lower().endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DatasetError(
                f"{path}: expected gzip, since its name ends in .gz ({error})"
            ) from error
    if _suffix(path) == ".csv":
        from llama_pack_densex.reading.encoding import decode  # slow to import

        text = decode(data)
        if text is not None:
            return text
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path}: expected UTF-8 ({error.reason} at byte {error.start})"
        ) from error


def _parsed(path: Path, text: str, line: int = 1) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DatasetError(
            f"{path}, line {line + error.lineno - 1}: expected JSON ({error.msg})"
        ) from error
    except RecursionError as error:
        raise DatasetError(
            f"{path}, line {line}: expected JSON, but this is nested too deeply"
        ) from error


def _listed(cell: str) -> list[Any]:
    """Split a cell into its texts: a list as JSON or Python writes it, or texts separated by "|"."""
    if cell.lstrip().startswith("["):
        for parse in (json.loads, ast.literal_eval):
            try:
                return list(parse(cell.strip()))
            except (ValueError, SyntaxError, RecursionError):
                continue
    return [part.strip() for part in cell.split("|")]
