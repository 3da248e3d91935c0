"""What AsciiDoc, MediaWiki and reStructuredText write otherwise than Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_pack_densex.reading import read_file
from llama_pack_densex.text.segments import passage_sentences


def read_text(folder: Path, name: str, source: str) -> str:
    file = folder / name
    file.write_text(source, encoding="utf-8")
    (read,) = read_file(file, name)
    return read.text


ASCIIDOC_TABLES = {
    "a header by option": '[cols="1,2*",options="header"]\n|===\n|茶 |Price |Note\n|Tea\n|3\n|hot\n|===',
    "a header by a blank line": "|===\n|茶 |Price |Note\n\n|Tea |3\n|hot\n|===",
    "a short option": "[%header,cols=3*]\n|===\n|茶\n|Price\n|Note\n\n|Tea\n|3\n|hot\n|===",
    "header cells": "|===\nh|茶 h|Price h|Note\n|Tea |3 |hot\n|===",
    "values separated by commas": ',===\n茶,Price,Note\n\nTea,"3",hot\n,===',
    "CSV by an option": '[format=csv,options="header"]\n|===\n茶,Price,Note\nTea,3,hot\n|===',
    "values separated by colons": ":===\n茶:Price:Note\n\nTea:3:hot\n:===",
}


@pytest.mark.parametrize("table", ASCIIDOC_TABLES.values(), ids=ASCIIDOC_TABLES)
def test_tables_of_asciidoc_are_rows_with_the_names_of_their_columns(
    tmp_path: Path, table: str
) -> None:
    source = f"= Menu\n\n.Hot drinks\n{table}\n\nCome in.\n"
    text = read_text(tmp_path, "a.adoc", source)
    assert text == (
        "= Menu\n\nHot drinks\n\n| 茶 | Price | Note |\n| --- | --- | --- |\n| Tea | 3 | hot |\n\nCome in.\n"
    )


def test_cells_of_asciidoc_span_columns_and_rows_and_are_repeated(tmp_path: Path) -> None:
    cells = ".2+|x |y \\| z |link:d.html[d]\n2+|wide\n2*|twice |the\nlast"
    source = f"[%header]\n|===\n|a |b |c\n\n{cells}\n|===\n"
    text = read_text(tmp_path, "a.adoc", source)
    assert passage_sentences(text) == (
        "a: x; b: y | z; c: d",
        "a: x; b: wide; c: wide",
        "a: twice; b: twice; c: the last",
    )


def test_a_row_of_asciidoc_that_cells_above_it_fill_shifts_no_cells(tmp_path: Path) -> None:
    source = "[%header]\n|===\n|a |b\n\n.2+|x .2+|y\n|z |w\n|===\n"
    text = read_text(tmp_path, "a.adoc", source)
    assert passage_sentences(text) == ("a: x; b: y", "a: z; b: w")


@pytest.mark.parametrize("body", ["", "\n\n", "no bar", "|", "5*|", ".9+|a\n|b"])
def test_a_strange_table_of_asciidoc_ends(tmp_path: Path, body: str) -> None:
    text = read_text(tmp_path, "a.adoc", f"Before.\n\n|===\n{body}\n|===\n\nAfter.\n")
    assert text.startswith("Before.")
    assert text.endswith("After.\n")


def test_tables_in_code_of_asciidoc_are_code(tmp_path: Path) -> None:
    source = "----\n|===\n|a |b\n|===\n----\n"
    text = read_text(tmp_path, "a.adoc", source)
    assert text == "```\n|===\n|a |b\n|===\n```\n"


def test_tables_of_mediawiki_are_rows_with_the_names_of_their_columns(tmp_path: Path) -> None:
    source = (
        '== 都市 ==\n{| class="wikitable"\n|+ style="x" | Population\n'
        '! scope="col" | City !! Country\n! 人口\n'
        "|-\n| [[Tokyo|Tokyo City]] || Japan || 14,000,000\n"
        '|-\n! Paris\n| rowspan="2" | France || 2,000,000\n'
        "|-\n| Lyon\n| 500,000\nor more\n|}\nAfter it.\n"
    )
    text = read_text(tmp_path, "a.wiki", source)
    assert passage_sentences(text) == (
        "Population",
        "City: Tokyo City; Country: Japan; 人口: 14,000,000",
        "City: Paris; Country: France; 人口: 2,000,000",
        "City: Lyon; Country: France; 人口: 500,000 or more",
        "After it.",
    )


def test_roles_of_other_projects_and_footnotes_without_names_of_restructuredtext(
    tmp_path: Path,
) -> None:
    source = "See :external+py3.11:meth:`潮 <tide.rise>` [#]_.\n\n.. [#] It rises.\n"
    assert read_text(tmp_path, "a.rst", source) == "See 潮 [^#].\n\n[^#]: It rises.\n"
