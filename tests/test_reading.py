"""Reading files."""

from __future__ import annotations

import json
import mailbox
import os
from datetime import date, datetime, time, timedelta
from email.message import EmailMessage
from pathlib import Path
from time import process_time
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from llama_pack_densex import DenseXRetrievalPack, PropositionNodeParser
from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY
from llama_pack_densex.node_parsers.splitting import HEADED, title_of
from llama_pack_densex.reading import UnreadableFileError, find_files, read_file
from llama_pack_densex.reading.encoding import decode
from llama_pack_densex.reading.readers import READERS
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.segments import passage_sentences, segment
from tests.pdf_file import pdf_bytes, sections, table_drawing

JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"


def write(path: Path, content: str | bytes = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def names(*paths: Path, leave_out: tuple[Path, ...] = ()) -> list[str]:
    return list(find_files(paths, leave_out).files.values())


def ids(*paths: Path, indexed: dict[str, str] | None = None) -> set[str]:
    return set(find_files(paths, indexed=indexed).files.values())


def html(path: Path, source: str) -> str:
    return read_file(write(path / "page.html", source), "page.html")[0].text


def rows_in(text: str) -> list[str]:
    """What each row of the tables in a text states, and the lines between them."""
    parts = [part for part in segment(text) if part.kind not in ("columns", "group")]
    return [part.row or text[part.start : part.end].strip() for part in parts]


def record(*pairs: tuple[str, str]) -> str:
    """Names beside values, below an empty header."""
    return "\n".join(
        ["|  |  |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in pairs)]
    )


# which files


def test_a_folder_is_read_with_its_subfolders_in_order(tmp_path: Path) -> None:
    for name in ("b.md", "a/z.md", "a.md"):
        write(tmp_path / name)
    assert names(tmp_path) == ["a.md", "b.md", "a/z.md"]


def test_every_kind_of_file_that_has_a_reader_is_found_in_a_folder(tmp_path: Path) -> None:
    """`files._PROSE` knows what `READERS` and `HEADED` know; data is read when it is asked for."""
    kinds = {*" ".join(READERS).split(), *HEADED}
    for kind in kinds:
        write(tmp_path / f"notes{kind}")
    files = find_files([tmp_path])
    data = {".csv", ".tsv", ".ipynb", ".json", ".jsonl", ".ndjson", ".yaml", ".yml"}
    assert {path.suffix for path in files.files} == kinds - data


HEADINGS = {".rst": "茶 Tea\n======", ".adoc": "= 茶 Tea", ".asciidoc": "= 茶 Tea"}
HEADINGS |= dict.fromkeys((".html", ".htm", ".xhtml"), "<h1>茶 Tea</h1>")


@pytest.mark.parametrize("kind", HEADED)
def test_the_first_heading_of_a_kind_of_file_with_headings_is_its_title(
    kind: str, tmp_path: Path
) -> None:
    heading = HEADINGS.get(kind, "# 茶 Tea")
    (document,) = read_file(
        write(tmp_path / f"notes{kind}", f"{heading}\n\nIt is steamed."), "notes"
    )
    assert title_of(document) == "茶 Tea"


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    for name in (".env", ".git/config.txt", "a.md"):
        write(tmp_path / name)
    assert names(tmp_path) == ["a.md"]


def test_a_hidden_folder_above_the_root_does_not_hide_its_files(tmp_path: Path) -> None:
    write(tmp_path / ".notes" / "a.md")
    assert names(tmp_path / ".notes") == ["a.md"]


def test_a_hidden_file_that_is_given_itself_is_read(tmp_path: Path) -> None:
    assert names(write(tmp_path / ".env")) == [".env"]


def test_links_in_a_circle_are_read_once(tmp_path: Path) -> None:
    write(tmp_path / "docs" / "a.md")
    (tmp_path / "docs" / "self").symlink_to(".")
    (tmp_path / "docs" / "up").symlink_to("..")
    assert names(tmp_path / "docs") == ["a.md"]


def test_a_link_to_another_folder_is_followed(tmp_path: Path) -> None:
    write(tmp_path / "other" / "b.md")
    write(tmp_path / "docs" / "a.md")
    (tmp_path / "docs" / "linked").symlink_to(tmp_path / "other")
    assert names(tmp_path / "docs") == ["a.md", "linked/b.md"]


def test_a_file_that_is_in_two_of_the_folders_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "inner" / "a.md")
    assert names(tmp_path, tmp_path / "inner") == ["inner/a.md"]
    assert names(tmp_path / "inner", tmp_path) == ["a.md"]


def test_indexes_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "index" / "densex.json", "{}")
    write(tmp_path / "new" / "data-1" / "x")
    write(tmp_path / "a.md")
    assert names(tmp_path, leave_out=(tmp_path / "new",)) == ["a.md"]


def test_an_index_in_place_of_documents_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "densex.json", "{}")
    with pytest.raises(ValueError, match="is an index"):
        find_files([tmp_path])


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        find_files([tmp_path / "nowhere"])


OTHER_KINDS = [
    "main.py",
    "表.CSV",
    "rows.jsonl",
    "a.json",
    "Makefile",
    "CMakeLists.txt",
    "設定.yaml",
    "x.tsv",
    "n.ipynb",
    "logo.PNG",
    "song.mp3",
]
PROSE = [
    "議事録.txt",
    "a.md",
    "page.HTML",
    "LICENSE",
    "第3回.1",
    "memo.2024-05",
    "手引き",
    "a.rst",
    "scan.pdf",
    "b.docx",
]


def test_code_and_data_are_no_prose_unless_they_are_asked_for(tmp_path: Path) -> None:
    for name in (*OTHER_KINDS, *PROSE):
        write(tmp_path / name)
    assert set(names(tmp_path)) == {*PROSE}
    assert {path.name for path in find_files([tmp_path]).other_kinds} == {*OTHER_KINDS}
    assert names(tmp_path / "main.py") == ["main.py"]
    assert {*find_files([tmp_path], include=["*.CSV", "main.*"]).files.values()} - {*PROSE} == {
        "main.py", "表.CSV"
    }  # fmt: skip


LEFT_BESIDE = [
    "~$lease.docx",
    "~$契約書.xlsx",
    "~WRL0001.tmp",
    "notes.txt~",
    "議事録.md.~2~",
    "notes.txt.bak",
    "報告.BAK",
    "文書.$td",
    "merge.md.orig",
    "#議事録.txt#",
    "notes.txt.swp",
    "notes.txt.swo",
    "lease.docx.crdownload",
    "手引き.pdf.part",
    "Thumbs.db",
    "desktop.ini",
    "$RECYCLE.BIN/$R1.docx",
]
HONEST = [
    "C#notes#.md",
    "notes~2024.md",
    "budget.bak.txt",
    "~draft.md",
    "part.txt",
    "tmp.md",
    "#1.md",
    "第1部~第3部.txt",
]


def test_what_programs_leave_beside_documents_is_passed_over(tmp_path: Path) -> None:
    for name in (*LEFT_BESIDE, *HONEST):
        write(tmp_path / name)
    found = find_files([tmp_path], indexed={str(tmp_path / "notes.txt~"): "notes.txt~"})
    assert {*found.files.values()} == {*HONEST}
    assert found.other_kinds == []
    assert names(tmp_path / "notes.txt~") == ["notes.txt~"]
    assert {*find_files([tmp_path], include=["*.bak"]).files.values()} == {*HONEST, "notes.txt.bak"}


def test_what_is_in_the_index_was_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "main.py")
    assert [*find_files([tmp_path], indexed={str(file): "main.py"}).files] == [file]


@pytest.mark.parametrize(
    ("globs", "left"),
    [
        (["*.txt"], {"a.md", "下書き/b.md", "x/下書き/c.md"}),
        (["下書き"], {"a.md", "d.txt"}),
        (["x/下書き/"], {"a.md", "d.txt", "下書き/b.md"}),
        (["**/b.md", "./a.md"], {"d.txt", "x/下書き/c.md"}),
        (["x/*.md"], {"a.md", "d.txt", "下書き/b.md"}),
        (["下書\N{KATAKANA LETTER KI}", "B.md"], {"a.md", "d.txt", "下書き/b.md", "x/下書き/c.md"}),
    ],
)
def test_globs_leave_out_files_and_folders(
    tmp_path: Path, globs: list[str], left: set[str]
) -> None:
    for name in ("a.md", "d.txt", "下書き/b.md", "x/下書き/c.md"):
        write(tmp_path / name)
    assert {*find_files([tmp_path], exclude=globs, include=["*.txt"]).files.values()} == left


def test_globs_do_not_tell_how_a_character_is_composed(tmp_path: Path) -> None:
    write(tmp_path / "か\N{COMBINING KATAKANA-HIRAGANA VOICED SOUND MARK}.md")  # as macOS writes it
    assert find_files([tmp_path], exclude=["が.md"]).files == {}


# what their documents are called


@pytest.mark.parametrize(
    "name", ["日本語 の.md", "a b/'c'.md", "-dash.md", "new\nline.md", "[bold].md"]
)
def test_an_id_is_the_path_below_the_root(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    assert ids(tmp_path) == {name}


def test_the_root_of_a_single_file_is_its_folder(tmp_path: Path) -> None:
    assert ids(write(tmp_path / "sub" / "a.md")) == {"a.md"}


def test_equal_paths_get_the_names_of_their_roots(tmp_path: Path) -> None:
    for name in ("one/a.md", "two/a.md", "two/b.md"):
        write(tmp_path / name)
    assert ids(tmp_path / "one", tmp_path / "two") == {"one/a.md", "two/a.md", "b.md"}


def test_roots_of_equal_name_are_told_apart_by_the_folders_above_them(tmp_path: Path) -> None:
    for name in ("one/docs/a.md", "two/docs/a.md"):
        write(tmp_path / name)
    assert ids(tmp_path / "one/docs", tmp_path / "two/docs") == {"one/docs/a.md", "two/docs/a.md"}


def test_an_indexed_file_keeps_its_id(tmp_path: Path) -> None:
    file = write(tmp_path / "sub" / "a.md")
    assert ids(file, indexed={str(file): "sub/a.md"}) == {"sub/a.md"}


def test_an_id_that_stands_for_another_file_is_not_given_again(tmp_path: Path) -> None:
    first, second = write(tmp_path / "one/a.md"), write(tmp_path / "two/a.md")
    assert ids(second, indexed={str(first): "a.md"}) == {"two/a.md"}


def test_a_moved_file_gets_its_id_back(tmp_path: Path) -> None:
    assert ids(write(tmp_path / "new/a.md"), indexed={str(tmp_path / "old/a.md"): "a.md"}) == {
        "a.md"
    }


# text


def test_a_file_keeps_the_metadata_of_simple_directory_reader(tmp_path: Path) -> None:
    (document,) = read_file(write(tmp_path / "a.md", "# Title"), "a.md")
    assert document.id_ == "a.md"
    assert document.metadata["file_path"] == str(tmp_path / "a.md")
    assert {"file_name", "file_type", "file_size", "last_modified_date"} <= document.metadata.keys()
    assert "file_name" in document.excluded_embed_metadata_keys
    assert "file_path" not in document.excluded_llm_metadata_keys


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp932", "euc_jp", "iso2022_jp"]
)
def test_text_is_read_in_the_encodings_of_japan(tmp_path: Path, encoding: str) -> None:
    file = write(tmp_path / "a.txt", JAPANESE.encode(encoding))
    assert read_file(file, "a.txt")[0].text == JAPANESE


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp932", "euc_jp"])
@pytest.mark.parametrize("end", ["---\n", "...\r\n"])
def test_front_matter_is_metadata_and_not_text(tmp_path: Path, encoding: str, end: str) -> None:
    front = (
        "---\ntitle: 猫の暮らし\ntags: [猫, 家]\ndate: 2024-05-01\nfile_name: other.md\nyear: 2024\n"
        + end
    )
    (document,) = read_file(
        write(tmp_path / "a.md", f"{front}# 一\n\n{JAPANESE}".encode(encoding)), "a.md"
    )
    assert document.text == f"# 一\n\n{JAPANESE}"
    given_by_user = {
        "title": "猫の暮らし",
        "tags": ["猫", "家"],
        "date": "2024-05-01",
        "year": 2024,
    }
    assert given_by_user.items() <= document.metadata.items()
    assert document.metadata["file_name"] == "a.md"


def test_front_matter_is_the_same_json_in_every_process(tmp_path: Path) -> None:
    made = "tags: !!set {leaf, tea, 湖, 2024-05-01}\nscore: .nan\nmost: .inf\nmade: 2024-05-01 09:30:00"
    text = f"---\n{made}\n---\nRain fell."
    (document,) = read_file(write(tmp_path / "a.md", text), "a.md")
    assert document.metadata["tags"] == ["2024-05-01", "leaf", "tea", "湖"]
    assert document.metadata["score"] is None
    assert document.metadata["most"] == "inf"
    assert document.metadata["made"] == "2024-05-01T09:30:00"


def test_front_matter_that_cannot_be_kept_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "---\ntitle: 雨\nkey: !!binary aGVsbG8=\n---\nRain fell."
    (document,) = read_file(write(tmp_path / "a.md", text), "a.md")
    assert document.text == text
    assert (
        "a.md: its front matter stays in the text: 'key' holds a value of type bytes" in caplog.text
    )


@pytest.mark.parametrize(
    "text", ["---\nRain fell.\n---\nIt was cold.", "---\ntitle: a", "Rain.\n---\ntitle: a\n---\n"]
)
def test_text_between_rules_is_no_front_matter(tmp_path: Path, text: str) -> None:
    (document,) = read_file(write(tmp_path / "a.md", text), "a.md")
    assert document.text == text
    assert "title" not in document.metadata


BOMB = "\n".join(["a0: &a0 x", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 20))])


@pytest.mark.parametrize(
    "wrong", ["title: a: b", "a: &a [*a]", "date: 2024-13-45", "? [a]\n: b", BOMB]
)
def test_front_matter_that_is_no_yaml_stays_in_the_text(
    tmp_path: Path, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"---\n{wrong}\n---\nRain fell."
    assert read_file(write(tmp_path / "a.md", text), "a.md")[0].text == text
    assert "front matter is not valid YAML" in caplog.text


@pytest.mark.parametrize(
    ("delimiter", "encoding"), [(",", "cp932"), (";", "utf-8-sig"), ("\t", "utf-16")]
)
def test_each_row_of_a_table_file_can_be_understood_alone(
    tmp_path: Path, delimiter: str, encoding: str
) -> None:
    rows = [
        ["商品", "価格", "説明"],
        [],
        ["煎茶", "500円", '"蒸して作る。\n緑色。"'],
        ["番茶", "", "安い|茶。"],
    ]
    text = "\r\n".join(delimiter.join(row) for row in rows)
    (document,) = read_file(write(tmp_path / "a.csv", text.encode(encoding)), "a.csv")
    assert rows_in(document.text) == rows_in(
        record(("商品", "煎茶"), ("価格", "500円"), ("説明", "蒸して作る。緑色。"))
        + "\n\n\n"
        + record(("商品", "番茶"), ("説明", "安い\\|茶。"))
    )


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_what_parts_cells_is_told_by_most_lines(tmp_path: Path, delimiter: str) -> None:
    title = "Prices; all" if delimiter == "," else "Prices, all"
    rows = [
        title,
        delimiter.join(['"Name, or; two"', "Price"]),
        delimiter.join(["Tea", '"1,50, 2; 3"']),
    ]
    text = read_file(write(tmp_path / "a.csv", "\n".join(rows)), "a.csv")[0].text
    assert rows_in(text) == [title, "Name, or; two: Tea; Price: 1,50, 2; 3"]


def test_commas_of_decimals_and_of_a_title_part_no_cells(tmp_path: Path) -> None:
    rows = "Prices, in euros\nProduct;Price\nTea;3,50\nCoffee;4,20\n"
    text = read_file(write(tmp_path / "a.csv", rows), "a.csv")[0].text
    assert rows_in(text) == [
        "Prices, in euros",
        "Product: Tea; Price: 3,50",
        "Product: Coffee; Price: 4,20",
    ]


TEA = 'Product: Tea; Price: 3,50; Note: green, "loose"'
COFFEE = "Product: Coffee; Price: 4,20; Note: ground"


@pytest.mark.parametrize(
    "text",
    [
        'sep=;\r\nProduct;Price;Note\r\nTea;3,50;"green, ""loose"""\r\nCoffee;4,20;ground\r\n',
        '"sep=\t"\nProduct\tPrice\tNote\nTea\t3,50\t"green, ""loose"""\nCoffee\t4,20\tground\n',
        'SEP=^\nProduct^Price^Note\nTea^3,50^"green, ""loose"""\nCoffee^4,20^ground\n',
        'Product,Price,Note\n"Tea","3,50","green, \\"loose\\""\n"Coffee","4,20","ground"\n',
    ],
)
def test_dialects_of_table_files_are_told_apart(tmp_path: Path, text: str) -> None:
    text = read_file(write(tmp_path / "a.csv", text), "a.csv")[0].text
    assert rows_in(text) == [TEA, COFFEE]


def test_a_backslash_that_ends_a_cell_is_a_letter(tmp_path: Path) -> None:
    text = 'Name,Folder,Size\n"A","C:\\a\\",3\n"B","C:\\b\\",4\n'
    text = read_file(write(tmp_path / "a.csv", text), "a.csv")[0].text
    assert rows_in(text) == [
        f"Name: {name}; Folder: C:\\{name.lower()}\\; Size: {size}"
        for name, size in (("A", "3"), ("B", "4"))
    ]


@pytest.mark.parametrize("title", ["Prices, in euros", "価格表, 円, 令和6年, 東京, 本店"])
def test_a_title_above_a_table_file_is_a_line_whatever_commas_it_has(
    tmp_path: Path, title: str
) -> None:
    rows = f"{title}\nProduct,Price,Stock\nTea,3.50,4\nCoffee,4.20,5\n"
    text = read_file(write(tmp_path / "a.csv", rows), "a.csv")[0].text
    assert rows_in(text)[0] == title
    assert rows_in(text)[-1] == "Product: Coffee; Price: 4.20; Stock: 5"


@pytest.mark.parametrize(
    ("tea", "coffee"),
    [("3.50", "4.20"), ("1.2.3", "1.2.4"), ("1.234.567", "9"), ("10.12.2024", "11.12.2024")],
)
def test_rows_without_names_are_lines(tea: str, coffee: str, tmp_path: Path) -> None:
    rows = f"Tea,{tea}\nCoffee,{coffee}\n"
    text = read_file(write(tmp_path / "a.csv", rows), "a.csv")[0].text
    assert text == f"Tea {tea}\n\n\nCoffee {coffee}"


def test_a_cell_may_be_long_and_a_quotation_mark_that_is_never_closed_costs_no_row(
    tmp_path: Path,
) -> None:
    long = "It shines. " * 20_000
    rows = ["name,text", f'Lamp,"{long}"', 'Shade,"5"" wide"', 'Rug,"It lies.', "Tea,green"]
    (document,) = read_file(write(tmp_path / "a.csv", "\n".join(rows)), "a.csv")
    cells = [
        table.splitlines()[3].split(" | ")[1].removesuffix(" |")
        for table in document.text.split("\n\n\n")
    ]
    assert cells == [long.strip(), '5" wide', '"It lies.', "green"]


def test_a_table_of_figures_that_begins_lower_beside_another_is_read_after_it(
    tmp_path: Path,
) -> None:
    rows = [
        ["Year", "Sales"], [2021, 5, None, "年", "Guests"], [2022, 6, None, 2022, 40],
        [2023, 7, None, 2023, 50], [2024, 8],
    ]  # fmt: skip
    assert rows_in(sheet_text(tmp_path, *rows))[3:] == [
        "Year: 2024; Sales: 8", "年: 2022; Guests: 40", "年: 2023; Guests: 50",
    ]  # fmt: skip


def test_titles_above_repeated_names_of_columns_on_a_sheet_are_no_row(tmp_path: Path) -> None:
    names = ["", "Sales", "Costs", "Profit", "売上比"]
    rows = [
        ["In millions", "", "", "", "2023"], names, ["Zone A", 12, 9, 3, 25], ["Zone B", 8, 7, 1, 13],
        [], ["In millions", "", "", "", "2022"], names, ["Zone A", 11, 9, 2, 18],
        [], ["Zone B", 7, 6, 1, 14], names, ["Zone C", 5, 4, 1, 20],
    ]  # fmt: skip
    assert rows_in(sheet_text(tmp_path, *rows)) == [
        "In millions 2023",
        "Zone A; Sales: 12; Costs: 9; Profit: 3; 売上比: 25",
        "Zone B; Sales: 8; Costs: 7; Profit: 1; 売上比: 13",
        "In millions 2022",
        "Zone A; Sales: 11; Costs: 9; Profit: 2; 売上比: 18",
        "Zone B; Sales: 7; Costs: 6; Profit: 1; 売上比: 14",
        "Zone C; Sales: 5; Costs: 4; Profit: 1; 売上比: 20",
    ]


def test_rows_of_many_columns_are_records_and_others_a_table(tmp_path: Path) -> None:
    def text_of(columns: int) -> str:
        names = [f"name {number}" for number in range(columns)]
        row = [f"value {number}" for number in range(columns)]
        file = write(tmp_path / "a.csv", "\n".join([",".join(names), ",".join(row)]))
        return read_file(file, "a.csv")[0].text

    assert text_of(21).startswith("|  |  |\n| --- | --- |\n| name 0 | value 0 |\n")
    assert text_of(3).startswith("| name 0 | name 1 | name 2 |\n")
    assert len(rows_in(text_of(3))) == len(rows_in(text_of(9))) == 1
    first, second, *_ = fields = rows_in(text_of(21))
    assert [first, second] == ["name 0: value 0", "name 0: value 0; name 1: value 1"]
    assert len(fields) == 21


def test_titles_and_notes_of_a_table_file_are_lines(tmp_path: Path) -> None:
    rows = "価格表,,\n商品,価格,説明\n煎茶,500円,緑色\n※税抜,,\n"
    text = read_file(write(tmp_path / "a.csv", rows), "a.csv")[0].text
    assert rows_in(text) == ["価格表", "商品: 煎茶; 価格: 500円; 説明: 緑色", "※税抜"]
    assert (
        read_file(write(tmp_path / "b.csv", "価格表,\n商品,価格\n"), "b.csv")[0].text
        == "価格表\n\n\n商品 価格"
    )


def test_a_row_that_says_the_name_of_a_column_is_a_row(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "word,meaning\nword,a sound\n")
    assert rows_in(read_file(file, "a.csv")[0].text) == ["word; meaning: a sound"]


def test_equal_cells_of_a_row_are_all_read(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["first", "second"], [5, 5], [None, 7]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    rows = ["first: 5; second: 5", "second: 7"]
    assert rows_in(read_file(tmp_path / "a.xlsx", "a.xlsx")[0].text) == ["# Sheet", *rows]
    text = read_file(write(tmp_path / "a.csv", "first,second\n5,5\n,7\n"), "a.csv")[0].text
    assert rows_in(text) == rows


def test_each_row_of_a_sheet_can_be_understood_alone(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet, other = book.active, book.create_sheet("休暇")
    sheet.title = "価格"
    rows = [
        ["2024年度の価格", None, None, None, None, None],
        [],
        ["分類", "商品", "価格", None, "発売", "割引"],
        ["分類", None, "税抜", "税込", None, None],
        ["緑茶", "煎茶", 500, 550.0, date(2024, 5, 1), 0.07],
        [None, "玉露|上", 0.1 + 0.2, None, datetime(2024, 6, 2), 1],
        ["※予告なく\n変わる。"],
        [],
    ]
    for row in rows:
        sheet.append(row)
    for span in ("A1:F1", "A3:A4", "B3:B4", "C3:D3", "E3:E4", "F3:F4", "A5:A6", "A7:F8"):
        sheet.merge_cells(span)
    sheet["F5"].number_format = sheet["F6"].number_format = "0%"
    sheet["H999"].font = openpyxl.styles.Font(bold=True)
    for row in (["始め", "長さ"], [time(9, 0), timedelta(hours=30)]):
        other.append(row)
    other.sheet_state = "hidden"
    book.create_sheet("Empty")
    book.save(tmp_path / "a.xlsx")
    prices, leave, empty = read_file(tmp_path / "a.xlsx", "sub/a.xlsx")
    assert [one.id_ for one in (prices, leave, empty)] == [
        f"sub/a.xlsx#page={name}" for name in ("価格", "休暇", "Empty")
    ]
    assert rows_in(prices.text) == [
        "# 価格",
        "2024年度の価格",
        "分類: 緑茶; 商品: 煎茶; 価格 税抜: 500; 価格 税込: 550; 発売: 2024-05-01; 割引: 7%",
        "分類: 緑茶; 商品: 玉露|上; 価格 税抜: 0.3; 発売: 2024-06-02; 割引: 100%",
        "※予告なく変わる。",
    ]
    assert rows_in(leave.text) == ["# 休暇", "始め: 09:00:00; 長さ: 30:00:00"]
    assert empty.text == ""


@pytest.mark.parametrize(
    ("value", "number_format", "text"),
    [
        (12, '0"%"', "12%"),
        (12, r"0\%", "12%"),
        (0.125, '"about "0.0%', "12.5%"),
        (timedelta(hours=168, minutes=30), "[h]:mm", "168:30:00"),
        (timedelta(minutes=-90), "[h]:mm", "-1:30:00"),
        (1500, "¥#,##0;[Red]-¥#,##0", "¥1500"),
        (-1500, "[$¥-411]#,##0", "-¥1500"),
        (12.5, '_("$"* #,##0.00_);_("$"* (#,##0.00)', "$12.5"),
        (12.5, '_-* #,##0.00\\ "€"_-', "12.5 €"),
        (2.5, 'General" kg"', "2.5 kg"),
        (1500000, '#,##0,"千円"', "1500千円"),
        (-1250500, "#,##0,", "-1250.5"),
        (3200000, '0.0,,"M"', "3.2M"),
        (42, "000000", "000042"),
        (7.5, "00.00", "07.5"),
        (5, "#,##0_);(#,##0)", "5"),
        (12345678901234, "0", "12345678901234"),
        (True, "0", "True"),
    ],
)
def test_percentages_units_and_hours_of_a_sheet_are_as_shown(
    tmp_path: Path, value: object, number_format: str, text: str
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append([value])
    book.active["A1"].number_format = number_format
    book.save(tmp_path / "a.xlsx")
    assert read_file(tmp_path / "a.xlsx", "a.xlsx")[0].text == f"# Sheet\n\n{text}"


@pytest.mark.parametrize("number", [31, 55, 58])
def test_dates_that_were_typed_in_japanese_are_dates(tmp_path: Path, number: int) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.epoch = openpyxl.utils.datetime.CALENDAR_MAC_1904
    book.active.append(["発売", date(2024, 5, 1)])
    book.active["B1"].number_format = "0.00"  # no. 2
    book.save(tmp_path / "a.xlsx")
    with ZipFile(tmp_path / "a.xlsx") as whole, ZipFile(tmp_path / "b.xlsx", "w") as typed:
        for name in whole.namelist():
            typed.writestr(
                name, whole.read(name).replace(b'numFmtId="2"', b'numFmtId="%d"' % number)
            )
    assert read_file(tmp_path / "b.xlsx", "b.xlsx")[0].text == "# Sheet\n\n発売 2024-05-01"


def test_tables_below_one_another_have_names_of_their_own(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    rows = [
        ["店", "電話"],
        ["渋谷", "03-1111"],
        [],
        ["在庫"],
        ["商品", "数"],
        ["煎茶", "12個"],
        [],
        ["番茶", "3個"],
    ]
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    blocks = ["店: 渋谷; 電話: 03-1111", "在庫", "商品: 煎茶; 数: 12個", "商品: 番茶; 数: 3個"]
    assert rows_in(read_file(tmp_path / "a.xlsx", "a.xlsx")[0].text) == ["# Sheet", *blocks]
    table = write(tmp_path / "a.csv", "\n".join(map(",".join, rows)))
    assert rows_in(read_file(table, "a.csv")[0].text) == blocks


def sheet_text(path: Path, *rows: list[object]) -> str:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path / "a.xlsx")
    return read_file(path / "a.xlsx", "a.xlsx")[0].text.removeprefix("# Sheet\n\n")


def test_blank_cells_beside_a_table_are_no_table(tmp_path: Path) -> None:
    text = sheet(tmp_path, [["Tea", "3"], ["Coffee", "4", None, " "]])
    assert text.split() == ["Tea", "3", "Coffee", "4"]


def test_tables_beside_one_another_have_names_of_their_own(tmp_path: Path) -> None:
    text = sheet_text(
        tmp_path,
        ["Region", "Sales", None, "Staff", "Age"],
        ["North", 10, None, "Ann", 33],
        ["South", 5],
    )
    assert rows_in(text) == [
        "Region: North; Sales: 10",
        "Region: South; Sales: 5",
        "Staff: Ann; Age: 33",
    ]


def test_a_column_that_is_left_empty_parts_no_table(tmp_path: Path) -> None:
    text = sheet_text(tmp_path, ["Item", "Code", None, 2023, 2024], ["Tea", "T-1", None, 5, 6])
    assert rows_in(text) == ["Item: Tea; Code: T-1; 2023: 5; 2024: 6"]


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ([["Max retries", 3], ["Mode", "fast"]], ["Max retries 3", "Mode fast"]),
        ([["Ann", 33, 1.7], ["Bob", 44, 1.8]], ["Ann 33 1.7", "Bob 44 1.8"]),
        ([["氏名：阿部", "Tel: 11"], ["Dept: A", None]], ["氏名：阿部 Tel: 11", "Dept: A"]),
    ],
)
def test_rows_of_a_sheet_without_names_are_lines(
    tmp_path: Path, rows: list[list[object]], lines: list[str]
) -> None:
    assert sheet_text(tmp_path, *rows).split("\n\n\n") == lines


def test_figures_that_count_on_are_names_of_columns(tmp_path: Path) -> None:
    text = sheet_text(tmp_path, ["Item", 1, 2, 3], ["Tea", 40, 50, 30])
    assert rows_in(text) == ["Item: Tea; 1: 40; 2: 50; 3: 30"]


def test_what_cells_merged_over_several_columns_say_is_read_once(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for number, (name, value) in enumerate(
        [("申請者", "山田"), ("行き先", "大阪"), ("目的", "商談")], 1
    ):
        book.active[f"A{number}"], book.active[f"D{number}"] = name, value
        book.active.merge_cells(f"A{number}:C{number}")
        book.active.merge_cells(f"D{number}:H{number}")
    book.save(tmp_path / "a.xlsx")
    rows = record(("申請者", "山田"), ("行き先", "大阪"), ("目的", "商談"))
    assert read_file(tmp_path / "a.xlsx", "a.xlsx")[0].text == f"# Sheet\n\n{rows}"


def test_a_sheet_is_cited_by_its_name_once(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title, book.active["A1"] = "Tea", "It was shipped from Karsted."
    book.save(tmp_path / "a.xlsx")
    documents = read_file(tmp_path / "a.xlsx", "a.xlsx")
    pack = DenseXRetrievalPack(
        documents, proposition_llm="none", query_llm="none", embed_model="none"
    )
    assert pack.run("What was shipped from Karsted?").metadata["markdown"].endswith("[^1]: a – Tea")


def formula_file(
    path: Path, cells: dict[str, str | int], part: str = "", instead: str = ""
) -> Path:
    """A sheet whose formulas have no values, as openpyxl writes it, or with something in place of a part of
    it."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet: Any = book.active
    sheet.append(["Item", "Price", "Amount"])
    for place, content in cells.items():
        sheet[place] = content
    book.save(path / "written.xlsx")
    with ZipFile(path / "written.xlsx") as written, ZipFile(path / "a.xlsx", "w") as changed:
        for name in written.namelist():
            changed.writestr(name, written.read(name).replace(part.encode(), instead.encode()))
    return path / "a.xlsx"


NO_VALUE = "<v></v>"
CELL = '<c r="C2"><f>2*3</f><v></v>'


def test_formulas_without_values_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells: dict[str, str | int] = {}
    for row in range(2, 9):
        cells |= {f"A{row}": f"品目{row}", f"B{row}": 40, f"C{row}": f"=B{row}*2"}
    file = formula_file(tmp_path, cells)
    assert rows_in(read_file(file, "a.xlsx")[0].text)[:2] == ["# Sheet", "Item: 品目2; Price: 40"]
    assert f"{file}: formulas have no value and cannot be read" in caplog.text
    assert "(7: Sheet!C2, Sheet!C3, Sheet!C4, Sheet!C5, Sheet!C6, ...)" in caplog.text


@pytest.mark.parametrize("written", ["", "<v/>", "<v>0</v>"])
def test_values_that_a_program_never_worked_out_are_none(
    tmp_path: Path, written: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = formula_file(tmp_path, {"A2": "Pump", "B2": 2, "C2": "=2*3"}, NO_VALUE, written)
    assert rows_in(read_file(file, "a.xlsx")[0].text) == ["# Sheet", "Item: Pump; Price: 2"]
    assert "(1: Sheet!C2)" in caplog.text


@pytest.mark.parametrize(
    ("part", "instead", "shown"),
    [
        (NO_VALUE, "<v>6</v>", "6"),
        (CELL, '<c r="C2" t="str"><f>2*3</f><v>six</v>', "six"),
        (CELL, '<c r="C2" t="str"><f>2*3</f><v></v>', ""),
        (CELL, '<c r="C2" t="e"><f>2*3</f><v>#REF!</v>', "#REF!"),
    ],
)
def test_values_that_were_kept_of_formulas_are_read(
    tmp_path: Path, part: str, instead: str, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = formula_file(tmp_path, {"A2": "Pump", "B2": 2, "C2": "=2*3"}, part, instead)
    amount = f"; Amount: {shown}" if shown else ""
    text = read_file(file, "a.xlsx")[0].text
    assert rows_in(text) == ["# Sheet", f"Item: Pump; Price: 2{amount}"]
    assert "no value" not in caplog.text


def test_a_formula_whose_value_is_nought_is_read_where_a_program_worked_it_out(
    tmp_path: Path,
) -> None:
    file = formula_file(tmp_path, {"A2": "Pump", "B2": 2, "C2": "=2-2"}, NO_VALUE, "<v>0</v>")
    with ZipFile(file) as written, ZipFile(tmp_path / "b.xlsx", "w") as saved:
        for name in written.namelist():
            saved.writestr(name, written.read(name).replace(b' fullCalcOnLoad="1"', b""))
    text = read_file(tmp_path / "b.xlsx", "b.xlsx")[0].text
    assert rows_in(text) == ["# Sheet", "Item: Pump; Price: 2; Amount: 0"]


def test_a_cell_that_is_far_away_costs_no_rows_between(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active["A1"], book.active["XFD1048576"] = "This", "is far."
    book.save(tmp_path / "a.xlsx")
    assert read_file(tmp_path / "a.xlsx", "a.xlsx")[0].text == "# Sheet\n\nThis\n\n\nis far."


def test_rows_are_whole_in_passages_and_units(tmp_path: Path) -> None:
    rows = [f"Lamp {n},It shines. It is no. {n}.,{n} yen" for n in range(200)]
    documents = read_file(write(tmp_path / "a.csv", "\n".join(["name,text,price", *rows])), "a.csv")
    nodes = PropositionNodeParser().get_nodes_from_documents(documents)
    texts = {
        granularity: [
            node.get_content() for node in nodes if node.metadata[GRANULARITY_KEY] == granularity
        ]
        for granularity in ("passage", "proposition")
    }
    for number in range(200):
        row = f"| Lamp {number} | It shines. It is no. {number}. | {number} yen |"
        assert len([text for text in texts["passage"] if row in text]) == 1
        assert (
            f"name: Lamp {number}; text: It shines. It is no. {number}.; price: {number} yen"
            in texts["proposition"]
        )


@pytest.mark.parametrize("encoding", ["cp932", "euc_jp"])
def test_half_width_kana_are_read_beside_others(encoding: str) -> None:
    text = "ﾃﾞｰﾀの登録はｶﾀｶﾅで行う。"
    assert decode(text.encode(encoding)) == text


def test_front_matter_of_nothing_is_left_out(tmp_path: Path) -> None:
    assert (
        read_file(write(tmp_path / "a.md", "---\n---\nRain fell."), "a.md")[0].text == "Rain fell."
    )


@given(st.text())
def test_any_utf_8_text_is_read_as_it_is(text: str) -> None:
    if "\x1b$" not in text and not text.startswith("\ufeff"):
        assert decode(text.encode()) == text


@given(
    st.text(alphabet="あいうえおかきくけこアイウエオ日本語東京大学人間山川。、「」ー", min_size=4)
)
def test_shift_jis_and_euc_jp_are_told_apart(text: str) -> None:
    assert decode(("これは" + text).encode("euc_jp")) == "これは" + text
    assert decode(("これは" + text).encode("cp932")) == "これは" + text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Le garçon a mangé des crêpes à la crème brûlée, où l’été s’achève déjà.", "cp1252"),
        ("Die Größe ist müßig.", "latin-1"),
        ("He said “hello” — it’s €5.", "cp1252"),
        (
            "Employees’ expenses are refunded within 30 days. The café in the lobby isn’t included: €120.",
            "cp1252",
        ),
        ("It’s late.", "cp1252"),
        ("20°C ± 2°", "latin-1"),
        ("Size – 5 µm, © Acme™", "cp1252"),
        ("Our Tokyo office (東京本社) is open. Ask the 日本 team for details.", "cp932"),
        (
            "Příliš žluťoučký kůň úpěl ďábelské ódy. Praha je hlavní město České republiky.",
            "cp1250",
        ),
        (
            "Первая русская железная дорога была открыта в тысяча восемьсот тридцать седьмом году.",
            "cp1251",
        ),
        (
            "Первая русская железная дорога была открыта в тысяча восемьсот тридцать седьмом году.",
            "koi8-r",
        ),
        ("北京是中华人民共和国的首都，也是全国的政治中心、文化中心。", "gbk"),
        ("臺北市是中華民國的首都，也是全國的政治與文化中心。", "big5"),
        ("서울은 대한민국의 수도이며 가장 큰 도시이다. 한강을 끼고 있다.", "euc-kr"),
        ("서울은 대한민국의 수도이며 가장 큰 도시이다. 걗나 한강을 끼고 있다.", "cp949"),
    ],
)
def test_text_in_an_old_encoding_of_another_country_is_read(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == text


SHORT_TEXTS = {
    ("cp932", "euc_jp"): [
        "商品,価格\nお茶,350\n珈琲,420\n",
        "魚種,漁獲量\n鮪,120\n鰹,340\n鰯,5600\n",
        "請求書\n",
        "氏名,ﾌﾘｶﾞﾅ\n山田太郎,ﾔﾏﾀﾞ ﾀﾛｳ\n",
        "単位,記号\n抵抗,Ω\n角度,θ\n",
    ],
    ("cp949",): ["상품,가격\n녹차,3500\n커피,4200\n", "견적서\n", "이름,부서\n김철수,총무부\n"],
    ("gb18030",): ["商品,价格\n绿茶,35\n咖啡,42\n", "报价单\n", "姓名,部门\n张伟,财务部\n"],
    ("big5",): ["商品,價格\n綠茶,35\n咖啡,42\n", "會議紀錄\n", "地址\n臺北市信義區\n"],
    ("cp874",): ["สินค้า,ราคา\nชา,35\nกาแฟ,42\n", "กรุงเทพ\n", "ใบเสนอราคา\n"],
    ("cp1251", "koi8-r"): ["Товар,Цена\nЧай,35\n", "Москва\n", "Протокол собрания\n"],
    ("cp1253",): ["Προϊόν,Τιμή\nΤσάι,35\n", "Αθήνα\n", "Καλημέρα κόσμε\n"],
    ("cp1252",): ["Größe,Preis\nKäse,3\n", "Müller\n", "Señor Muñoz\n", "São Paulo\n", "£5\n"],
}


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (text, encoding)
        for encodings, texts in SHORT_TEXTS.items()
        for text in texts
        for encoding in encodings
    ],
)
def test_a_short_text_is_read_in_the_encoding_in_which_it_is_likeliest(
    text: str, encoding: str
) -> None:
    assert decode(text.encode(encoding)) == text


@pytest.mark.parametrize("beside", ["りんごの表.txt", "a.md", "b.csv"])
def test_a_guess_is_told_and_is_japanese_among_japanese_files(
    tmp_path: Path, beside: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path / "kana.txt", "ﾃｽﾄ".encode("cp932"))
    read_file(file, "kana.txt")
    assert "kana.txt names no encoding and was read as cp874, which is a guess" in caplog.text
    write(tmp_path / beside, "これは日本語です。".encode("cp932" if beside == "b.csv" else "utf-8"))
    assert read_file(file, "kana.txt")[0].text == "ﾃｽﾄ"


def test_of_files_beside_a_guess_only_the_beginning_is_read(tmp_path: Path) -> None:
    with (tmp_path / "film").open("wb") as film:
        film.truncate(2**40)  # a terabyte, of which nothing is on the disk
    file = write(tmp_path / "kana.txt", "ﾃｽﾄ".encode("cp932"))
    assert len(read_file(file, "kana.txt")) == 1


def test_what_is_sure_is_no_guess(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for encoding, text in (
        ("cp932", JAPANESE),
        ("cp949", "서울은 대한민국의 수도이며 가장 큰 도시이다."),
        ("cp1252", "Käse und Brötchen"),
    ):
        read_file(write(tmp_path / "a.txt", text.encode(encoding)), "a.txt")
    assert caplog.text == ""


@pytest.mark.parametrize("encoding", ["utf-8", "cp932", "euc_jp"])
def test_a_byte_that_is_wrong_costs_no_other_character(
    tmp_path: Path, encoding: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path / "a.txt", (JAPANESE + "港").encode(encoding)[:-1])  # cut off
    assert read_file(file, "a.txt")[0].text == JAPANESE + "\ufffd"
    assert "a.txt has bytes that are invalid in its encoding" in caplog.text


def test_what_a_page_says_about_tags_stays_in_what_is_searched(tmp_path: Path) -> None:
    page = (
        "<p>Use <code>&lt;tr&gt;</code> in a &lt;table&gt;, and &lt;!-- for a List&lt;A&gt;; 5 &lt; 7.</p>"
        "<!-- nothing --><pre>a &lt; b</pre>"
    )
    text = html(tmp_path, page)
    assert text == (
        "Use `<tr>` in a `<table>`, and `<!--` for a `List<A>`; 5 < 7.\n\n```\na < b\n```\n"
    )
    assert searchable_text(text) == text


def test_powers_and_notes_of_a_page_are_no_digits_of_the_number_before_them(tmp_path: Path) -> None:
    page = (
        "<p>10<sup>6</sup> m<sup>2</sup> of <b>1998</b><sup><a>2</a></sup>, the "
        "1<sup>st</sup>.<a><sup>1</sup></a> No. 送料<sup>3</sup> and <b>Breakfast</b><sup>4</sup>"
    )
    text = "10^6 m2 of 1998[2], the 1st.[1] No. 送料[3] and Breakfast[4]\n"
    assert html(tmp_path, page) == text


@pytest.mark.parametrize(
    ("label", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "“Rain” — it’s 5 €"),
        ("gb2312", "gbk", "朱镕基"),
        ("euc-kr", "cp949", "똠방각하"),
        ("Shift_JIS", "cp932", "①髙島屋"),
    ],
)
def test_a_page_is_read_as_browsers_read_what_it_declares(
    tmp_path: Path, label: str, encoding: str, text: str
) -> None:
    page = f'<meta charset="{label}"><p>'.encode() + text.encode(encoding)
    assert read_file(write(tmp_path / "a.html", page), "a.html")[0].text == f"{text}\n"


def test_a_large_binary_file_is_not_read_whole(tmp_path: Path) -> None:
    with open(tmp_path / "film.mp4", "wb") as file:
        file.truncate(2**40)  # which takes no room
    with pytest.raises(UnreadableFileError, match="is not text"):
        read_file(tmp_path / "film.mp4", "film.mp4")


def archive(path: Path, **parts: str) -> Path:
    """A zipped file of these parts, whose names have "__" for "/" and no ending where it is ".xml"."""
    with ZipFile(path, "w") as opened:
        for name, text in parts.items():
            opened.writestr(name.replace("__", "/") + ("" if "." in name else ".xml"), text)
    return path


def word(content: str, root: str) -> str:
    return f'<w:{root} xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">{content}</w:{root}>'


def paragraph(text: str, about: str = "") -> str:
    return f"<w:p><w:pPr>{about}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def word_file(path: Path, *body: str, **parts: str) -> Path:
    return archive(
        path, word__document=word(f"<w:body>{''.join(body)}</w:body>", "document"), **parts
    )


def test_a_word_file_keeps_headings_items_and_tables(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    rows = [("Post", "Pay"), ("Clerk", "30,000 &lt;a month&gt;")]
    cells = ["".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows]
    styles = (
        f'<w:style w:type="paragraph" w:styleId="{key}"><w:name w:val="{name}"/></w:style>'
        for key, name in {"1": "heading 1", "a9": "Title", "11": "toc 1"}.items()
    )
    level = (
        '<w:abstractNum w:abstractNumId="9"><w:lvl w:ilvl="0"><w:numFmt '
        'w:val="decimal"/></w:lvl></w:abstractNum>'
    )
    numbered = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>'
    link = '<w:hyperlink w:anchor="x"><w:r><w:t>It opens.</w:t></w:r></w:hyperlink>'
    deleted = "<w:del><w:r><w:delText>Not.</w:delText></w:r></w:del>"
    file = word_file(
        tmp_path / "a.docx",
        paragraph("Staff", '<w:pStyle w:val="a9"/>'),
        paragraph("Chapter 1 9", '<w:pStyle w:val="11"/>'),
        paragraph("Leave", f'<w:pStyle w:val="1"/>{numbered}'),
        paragraph("Ask.", numbered),
        paragraph("Wait.", numbered),
        f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>",
        f'<w:p>{link}{deleted}<w:r><w:footnoteReference w:id="2"/></w:r></w:p>',
        word__styles=word("".join(styles), "styles"),
        word__numbering=word(
            f'{level}<w:num w:numId="1"><w:abstractNumId w:val="9"/></w:num>', "numbering"
        ),
        word__header1=word(paragraph("Confidential"), "hdr"),
        word__footnotes=word(
            f'<w:footnote w:id="2">{paragraph("Since 1859.")}</w:footnote>', "footnotes"
        ),
        docProps__core=(
            '<c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Rules of 2024</dc:title></c>'
        ),
    )
    (document,) = read_file(file, "a.docx")
    assert document.text == (
        "# Staff\n\n# 1 Leave\n\n2. Ask.\n3. Wait.\n\n| Post | Pay |\n| --- | --- |\n| Clerk | 30,000 `<a "
        "month>` |\n\nIt opens.\n\n1. Since 1859.\n"
    )
    assert (document.id_, document.metadata["title"]) == ("a.docx", "Rules of 2024")


def boxed(*texts: str, shape: str = "drawing") -> str:
    """A shape of Word, of one of its two kinds, with text boxes."""
    boxes = "".join(
        f"<b:oval><w:txbxContent>{paragraph(text)}</w:txbxContent></b:oval>" for text in texts
    )
    return f'<w:{shape} xmlns:b="b">{boxes}</w:{shape}>'


def alternatives(choice: str, fallback: str | None) -> str:
    namespace = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    last = "" if fallback is None else f"<mc:Fallback>{fallback}</mc:Fallback>"
    return (
        "<mc:AlternateContent "
        f'xmlns:mc="{namespace}"><mc:Choice>{choice}</mc:Choice>{last}</mc:AlternateContent>'
    )


@pytest.mark.parametrize(
    "content",
    [
        boxed("Call 4711.", "火災は119番。"),
        boxed("Call 4711.", "火災は119番。", shape="pict"),
        alternatives(boxed("Call 4711.", "火災は119番。"), None),
        alternatives(boxed("Call 4711.", "火災は119番。"), "<w:pict/>"),
        alternatives(
            boxed("Call 4711.", "火災は119番。"), boxed("Call 4711.", "火災は119番。", shape="pict")
        ),
    ],
)
def test_text_boxes_of_a_word_file_are_read_once(tmp_path: Path, content: str) -> None:
    pytest.importorskip("mammoth")
    file = word_file(
        tmp_path / "a.docx", f"<w:p><w:r><w:t>Memo.</w:t></w:r><w:r>{content}</w:r></w:p>"
    )
    assert read_file(file, "a.docx")[0].text == "Memo.\n\nCall 4711.\n\n火災は119番。\n"


def test_a_text_box_within_another_of_a_word_file_is_read_once(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    inner = f"<w:p><w:r><w:t>Outer.</w:t></w:r><w:r>{boxed('Inner.')}</w:r></w:p>"
    outer = f"<w:drawing><w:txbxContent>{inner}</w:txbxContent></w:drawing>"
    file = word_file(
        tmp_path / "a.docx", f"<w:p><w:r><w:t>Memo.</w:t></w:r><w:r>{outer}</w:r></w:p>"
    )
    assert sorted(read_file(file, "a.docx")[0].text.split()) == ["Inner.", "Memo.", "Outer."]


def test_hidden_text_of_a_word_file_is_not_read(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")

    def run(text: str, about: str = "") -> str:
        return f"<w:r><w:rPr>{about}</w:rPr><w:t>{text}</w:t></w:r>"

    off = '<w:vanish w:val="0"/>'
    styled = '<w:rStyle w:val="h"/>'
    styles = [
        '<w:style w:type="character" w:styleId="h"><w:name w:val="h"/><w:rPr><w:vanish/></w:rPr></w:style>',
        '<w:style w:type="paragraph" w:styleId="p"><w:name w:val="p"/><w:basedOn w:val="h"/></w:style>',
    ]
    items = (("One.", ""), ("Hidden.", "<w:vanish/>"), ("Two.", ""))
    file = word_file(
        tmp_path / "a.docx",
        f"<w:p>{run('Seen.')}{run('Remark.', '<w:vanish/>')}{run('表示。', off)}</w:p>",
        f"<w:p>{run('By style: ')}{run('X.', styled)}</w:p>",
        f'<w:p><w:pPr><w:pStyle w:val="p"/></w:pPr>{run("社外秘。")}{run("公開。", off)}</w:p>',
        *(
            f"<w:p><w:pPr>{numbered(0)}<w:rPr>{about}</w:rPr></w:pPr>{run(text, about)}</w:p>"
            for text, about in items
        ),
        f"<w:p><w:pPr><w:rPr><w:vanish/></w:rPr></w:pPr>{run('Its end alone is hidden.')}</w:p>",
        word__styles=word("".join(styles), "styles"),
        word__numbering=word(
            '<w:abstractNum w:abstractNumId="9"><w:lvl w:ilvl="0"><w:numFmt '
            'w:val="decimal"/></w:lvl></w:abstractNum>'
            '<w:num w:numId="1"><w:abstractNumId w:val="9"/></w:num>',
            "numbering",
        ),
    )
    assert read_file(file, "a.docx")[0].text == (
        "Seen.表示。\n\nBy style:\n\n公開。\n\n1. One.\n2. Two.\n\nIts end alone is hidden.\n"
    )


MARGIN = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def section(**ids: str) -> str:
    """The properties of a section whose headers and footers have these ids, by kind and pages."""
    references = "".join(
        f'<w:{name.split("_")[0]}Reference xmlns:r="{MARGIN}" w:type="{name.split("_")[1]}" r:id="{target}"/>'
        for name, target in ids.items()
    )
    return f"<w:sectPr>{references}</w:sectPr>"


def related(**targets: str) -> str:
    """The relationships of a document whose ids lead to these parts."""
    relations = (
        f'<Relationship Id="{key}" Type="{MARGIN}/x" Target="{part}"/>'
        for key, part in targets.items()
    )
    namespace = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'<Relationships xmlns="{namespace}">{"".join(relations)}</Relationships>'


def test_headers_and_footers_of_a_word_file_are_read_once(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    link = (
        f'<w:p><w:hyperlink xmlns:r="{MARGIN}" r:id="rId99"><w:r><w:t>Owner: '
        "品質課</w:t></w:r></w:hyperlink></w:p>"
    )
    cells = [[paragraph(text) for text in row] for row in (("No.", "QM-0815"), ("Revision", "7"))]
    rows = "".join(f"<w:tr><w:tc>{name}</w:tc><w:tc>{value}</w:tc></w:tr>" for name, value in cells)
    field = '<w:fldSimple w:instr="PAGE"><w:r><w:t>3</w:t></w:r></w:fldSimple>'
    page = f"<w:p><w:r><w:t>Page </w:t></w:r>{field}<w:r><w:t> of 12</w:t></w:r></w:p>"
    file = word_file(
        tmp_path / "a.docx",
        paragraph("Weigh it."),
        paragraph("", section(header_default="a", footer_default="b")),
        paragraph("Send it back."),
        section(
            header_default="c",
            header_first="unused",
            header_even="unused",
            footer_default="b",
            footer_x="lost",
        ),
        word__header1=word(
            f"{paragraph('Tanaka Ltd.')}<w:tbl>{rows}</w:tbl>{paragraph('')}", "hdr"
        ),
        word__header2=word(paragraph("Tanaka Ltd.") + paragraph("Part two"), "hdr"),
        word__header3=word(paragraph("An old draft."), "hdr"),
        word__footer1=word(link + page, "ftr"),
        **{
            "word___rels__document.xml.rels": related(
                a="header1.xml", b="/word/footer1.xml", c="header2.xml", unused="header3.xml"
            )
        },
    )
    assert read_file(file, "a.docx")[0].text == (
        "Tanaka Ltd.\n\n| No. | QM-0815 |\n| --- | --- |\n| Revision | 7 |\n\nPart two\n\n"
        "Weigh it.\n\nSend it back.\n\nOwner: 品質課\n"
    )


def test_headers_of_first_and_of_even_pages_are_read_where_they_are_shown(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    shown = section(header_first="a", header_even="b").replace(
        "</w:sectPr>", "<w:titlePg/></w:sectPr>"
    )
    file = word_file(
        tmp_path / "a.docx",
        paragraph("本文。"),
        shown,
        word__header1=word(paragraph("文書番号 KM-12 第3版"), "hdr"),
        word__header2=word(paragraph("管理責任者 鈴木"), "hdr"),
        word__settings=word("<w:evenAndOddHeaders/>", "settings"),
        **{"word___rels__document.xml.rels": related(a="header1.xml", b="header2.xml")},
    )
    assert (
        read_file(file, "a.docx")[0].text == "文書番号 KM-12 第3版\n\n管理責任者 鈴木\n\n本文。\n"
    )


@pytest.mark.parametrize(
    "number",
    [
        "1", "- 1 -", "Page 1 of 5", "1 / 5", "1ページ", "xii", "Seite 1 von 5", "Page | 1",
        "全5ページ中1ページ", "1ページ / 全5ページ", "1（全5ページ）", "ページ 1/5",
    ],
)  # fmt: skip
def test_the_numbers_of_pages_in_a_footer_are_no_text(tmp_path: Path, number: str) -> None:
    pytest.importorskip("mammoth")
    file = word_file(
        tmp_path / "a.docx",
        paragraph("Weigh it."),
        section(footer_default="a"),
        word__footer1=word(paragraph(number) + paragraph("C-12") + paragraph("2024-05-01"), "ftr"),
        **{"word___rels__document.xml.rels": related(a="footer1.xml")},
    )
    assert read_file(file, "a.docx")[0].text == "Weigh it.\n\nC-12\n\n2024-05-01\n"


@pytest.mark.parametrize("strict", [False, True])
def test_hidden_rows_and_texts_of_a_word_file_are_not_read_in_either_form_of_the_format(
    tmp_path: Path, strict: bool
) -> None:
    pytest.importorskip("mammoth")
    hidden_row = "<w:trPr><w:hidden/></w:trPr>"
    shown_row = '<w:trPr><w:hidden w:val="0"/></w:trPr>'
    rows = ""
    for about, text in (("", "品名"), ("", "煎茶"), (hidden_row, "番茶"), (shown_row, "玉露")):
        rows += f"<w:tr>{about}<w:tc>{paragraph(text)}</w:tc><w:tc>{paragraph('1')}</w:tc></w:tr>"
    secret = paragraph("秘", '<w:pStyle w:val="x"/>')
    parts = {
        "word__document": word(f"<w:body>{secret}<w:tbl>{rows}</w:tbl></w:body>", "document"),
        "word__styles": word(
            '<w:style w:type="paragraph" w:styleId="x"><w:rPr><w:vanish/></w:rPr></w:style>',
            "styles",
        ),
    }
    if strict:
        usual = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
        for name, part in parts.items():
            parts[name] = part.replace(usual, "http://purl.oclc.org/ooxml/wordprocessingml/main")
    (document,) = read_file(archive(tmp_path / "a.docx", **parts), "a.docx")
    assert [word in document.text for word in ("品名", "煎茶", "玉露", "番茶", "秘")] == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("word__charts__chartEx1", "charts"),
        ("word__embeddings__a.xlsx", "embedded files"),
        ("word__comments", "comments"),
    ],
)
def test_what_is_not_read_of_an_office_file_is_told(
    tmp_path: Path, part: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mammoth")
    read_file(word_file(tmp_path / "a.docx", paragraph("本文。")), "a.docx")
    assert "not read" not in caplog.text
    read_file(word_file(tmp_path / "b.docx", paragraph("本文。"), **{part: "<x/>"}), "b.docx")
    assert f"b.docx: not read: its {kind}" in caplog.text


def test_charts_and_diagrams_of_a_word_file_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mammoth")
    ids = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
    drawings = (
        f'<c:chart xmlns:c="c" {ids} r:id="r1"/>',
        f'<d:relIds xmlns:d="d" {ids} r:dm="r2"/>',
    )
    body = [f"<w:p><w:r><w:drawing>{drawing}</w:drawing></w:r></w:p>" for drawing in drawings]
    point = '<c:pt idx="0"><c:v>{}</c:v></c:pt>'.format
    values = f"<c:val><c:formatCode>0%</c:formatCode>{point('0.4')}</c:val>"
    series = f"<c:ser><c:tx>{point('2024年')}</c:tx><c:cat>{point('007')}</c:cat>{values}</c:ser>"
    texts = "".join(f"<d:pt><d:t><a:p><a:t>{text}</a:t></a:p></d:t></d:pt>" for text in "起承")
    parts = {
        "word__charts__chart1": f'<c:chartSpace xmlns:c="c">{series}</c:chartSpace>',
        "word__diagrams__data1": f'<d:dataModel xmlns:d="d" xmlns:a="a">{texts}</d:dataModel>',
        "word___rels__document.xml.rels": related(r1="charts/chart1.xml", r2="diagrams/data1.xml"),
    }
    file = word_file(tmp_path / "a.docx", *body, **parts)
    text = "|  | 2024年 |\n| --- | --- |\n| 007 | 40% |\n\n- 起\n- 承\n"
    assert read_file(file, "a.docx")[0].text == text
    assert not caplog.text


def test_what_is_attached_to_a_message_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("bs4")
    message = EmailMessage()
    message["Subject"] = "見積"
    message.set_content("添付のとおりです。")
    message.add_attachment(b"x", maintype="application", subtype="pdf", filename="a.pdf")
    read_file(write(tmp_path / "a.eml", message.as_bytes()), "a.eml")
    assert "a.eml: not read: its attachments (1)" in caplog.text


def test_of_readings_above_kanji_and_of_fields_in_a_word_file_the_text_is_read(
    tmp_path: Path,
) -> None:
    pytest.importorskip("mammoth")
    base = "<w:rubyBase><w:r><w:t>函館</w:t></w:r></w:rubyBase>"
    ruby = (
        f"<w:r><w:ruby><w:rubyPr/><w:rt><w:r><w:t>はこだて</w:t></w:r></w:rt>{base}</w:ruby></w:r>"
    )
    field = '<w:fldSimple w:instr=" SEQ 表 "><w:r><w:t>2</w:t></w:r></w:fldSimple>'
    file = word_file(tmp_path / "a.docx", f"<w:p>{ruby}<w:r><w:t>の港。表</w:t></w:r>{field}</w:p>")
    assert read_file(file, "a.docx")[0].text == "函館の港。表2\n"


def test_of_powers_and_fractions_in_a_word_file_the_numbers_stay_what_they_are(
    tmp_path: Path,
) -> None:
    pytest.importorskip("mammoth")
    raised = (
        "<w:r><w:t>10</w:t></w:r>"
        '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>6</w:t></w:r>'
    )
    two, x = (
        f'<m:r><m:rPr><m:sty m:val="p"/></m:rPr><m:t xml:space="preserve">{one}</m:t></m:r>'
        for one in "2x"
    )
    power = f"<m:sSup><m:sSupPr/><m:e>{x}</m:e><m:sup>{two}</m:sup></m:sSup>"
    equation = f"<m:oMath><m:f><m:num>{power}</m:num><m:den>{two}</m:den></m:f></m:oMath>"
    file = word_file(
        tmp_path / "a.docx",
        f'<w:p xmlns:m="m">{raised}<w:r><w:t> litres of </w:t></w:r>{equation}</w:p>',
    )
    assert read_file(file, "a.docx")[0].text == "10^6 litres of x^2/2\n"


def m(name: str, *parts: str, **properties: str) -> str:
    """An element of an equation in a Word file."""
    settings = "".join(f'<m:{key} m:val="{value}"/>' for key, value in properties.items())
    own = f"<m:{name}Pr>{settings}</m:{name}Pr>" if properties else ""
    return f"<m:{name}>{own}{''.join(parts)}</m:{name}>"


def test_equations_of_a_word_file_are_written_with_brackets_roots_and_limits(
    tmp_path: Path,
) -> None:
    pytest.importorskip("mammoth")

    def run(text: str) -> str:
        return m("r", m("t", text))

    sum_ = m("nary", m("sub", run("k=1")), m("sup", run("n")), m("e", run("k")), chr="∑")
    root = m("rad", m("deg"), m("e", run("a+b")))
    index = m("sSub", m("e", run("x")), m("sub", run("i")))
    half = m("f", m("num", root), m("den", run("2")))
    square = m("sSup", m("e", half), m("sup", run("n+1")))
    brackets = m("d", m("e", run("x")), m("e", run("y")), begChr="[", endChr="]", sepChr=";")
    deleted = '<w:del xmlns:w="w"><m:r><m:t>old</m:t></m:r></w:del>'
    equations = "".join(
        m("oMathPara", m("oMath", part)) for part in (sum_, index + deleted, square, brackets)
    )
    two = m("oMath", run("a=b")) + m("oMath", run("c=d"))
    file = word_file(
        tmp_path / "a.docx", f'<w:p xmlns:m="m">{equations}</w:p><w:p xmlns:m="m">{two}</w:p>'
    )
    assert read_file(file, "a.docx")[0].text == (
        "∑_(k=1)^n k, x_i, (√(a+b)/2)^(n+1), [x;y]\n\na=b, c=d\n"
    )


def test_fields_to_fill_in_and_breaks_of_a_word_file(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")

    def control(about: str, text: str) -> str:
        content = f"<w:r><w:t>{text}</w:t></w:r>"
        return f"<w:sdt><w:sdtPr>{about}</w:sdtPr><w:sdtContent>{content}</w:sdtContent></w:sdt>"

    def box(checked: int, text: str) -> str:
        state = f'<x:checkbox><x:checked x:val="{checked}"/></x:checkbox>'
        return f"{control(state, text)}<w:r><w:t> {checked} </w:t></w:r>"

    gaps = (
        '<w:r><w:t>fifth</w:t><w:ptab w:alignment="right"/><w:t>of</w:t><w:cr/><w:t>six</w:t></w:r>'
    )
    break_ = (
        '<w:r><w:t>seventh</w:t></w:r><w:r><w:br w:type="{}"/></w:r><w:r><w:t>eighth</w:t></w:r>'
    )
    file = word_file(
        tmp_path / "a.docx",
        '<w:p xmlns:x="http://schemas.microsoft.com/office/word/2010/wordml">',
        f"{box(1, '☒')}{box(0, '☐')}</w:p>",
        f"<w:p>{control('<w:showingPlcHdr/>', 'Click here.')}{control('', 'Filled in.')}</w:p>",
        f"<w:p>{break_.format('page')}</w:p><w:p>{break_.format('column')}</w:p><w:p>{gaps}</w:p>",
    )
    assert read_file(file, "a.docx")[0].text == (
        "☑ 1 ☐ 0\n\nFilled in.\n\nseventh\neighth\n\nseventh\neighth\n\nfifth of\nsix\n"
    )


def test_pictures_in_place_of_characters_are_read_in_a_page(tmp_path: Path) -> None:
    table = "<table><tr><th>Plan<th>Mail<tr><td>Free<td><p><img alt=(tick)></p></table>"
    page = f"<p><img alt=Note> If <img alt='x^2'> is 4.<p><img alt=Logo></p>{table}"
    expected = "If x^2 is 4.\n\n| Plan | Mail |\n| --- | --- |\n| Free | (tick) |\n"
    assert html(tmp_path, page) == expected


def test_boxes_of_tasks_in_a_page_are_read_and_switches_of_menus_are_not(tmp_path: Path) -> None:
    page = (
        '<input type=checkbox id=menu><ul><li><input type="checkbox" disabled checked>Ask.'
        '<li><input type="checkbox" disabled>Pay.</ul>'
    )
    assert html(tmp_path, page) == "- ☑ Ask.\n- ☐ Pay.\n"


def test_what_a_merged_cell_of_a_word_file_says_each_of_its_rows_says(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    begun, on = '<w:tcPr><w:vMerge w:val="restart"/></w:tcPr>', "<w:tcPr><w:vMerge/></w:tcPr>"
    rows = [
        ("", "区|域", "店名"),
        (begun, "東京", "渋谷"),
        (on, "", "新宿"),
        (begun, "大阪|府", "梅田"),
        (on, "", "堺"),
    ]
    cells = [
        f"<w:tc>{about}{paragraph(first)}</w:tc><w:tc>{paragraph(second)}</w:tc>"
        for about, first, second in rows
    ]
    table = f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"
    assert read_file(word_file(tmp_path / "a.docx", table), "a.docx")[0].text == (
        "| 区\\|域 | 店名 |\n| --- | --- |\n| 東京 | 渋谷 |\n| 東京 | 新宿 |\n| 大阪\\|府 | 梅田 |\n| "
        "大阪\\|府 | 堺 |\n"
    )


def test_a_book_is_read_in_the_order_of_its_pages_without_contents_and_readings(
    tmp_path: Path,
) -> None:
    pytest.importorskip("bs4")
    opening = "<h1>開港</h1><p><ruby>函館<rt>はこだて</rt></ruby>の港は<br/>1859年に開かれた。</p>"
    package = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">
        <metadata><dc:title>港</dc:title></metadata>
        <manifest><item id="i" href="map.svg" media-type="image/svg+xml"/>
        <item id="b" href="text/b%20b.xhtml"/><item id="a" href="text/a.xhtml"/>
        <item id="n" href="n.xhtml" properties="nav"/></manifest>
        <spine><itemref idref="n"/><itemref idref="i"/><itemref idref="lost"/>
        <itemref idref="a"/><itemref idref="b"/></spine></package>"""
    file = archive(
        tmp_path / "a.epub",
        **{
            "META-INF__container": (
                '<container><rootfiles><rootfile full-path="OPS/p.opf"/></rootfiles></container>'
            ),
            "OPS__p.opf": package,
            "OPS__n.xhtml": "<h1>Contents</h1><ol><li>開港</li></ol>",
            "OPS__text__a.xhtml": f"<title>x</title>{opening}",
            "OPS__text__b b.xhtml": "<h1>茶</h1><p>Tea was shipped.</p>",
        },
    )
    (document,) = read_file(file, "a.epub")
    assert document.text == "# 開港\n\n函館の港は\n1859年に開かれた。\n\n# 茶\n\nTea was shipped.\n"
    assert (document.id_, document.metadata["title"]) == ("a.epub", "港")


def test_a_mail_is_its_text_with_subject_sender_and_date(tmp_path: Path) -> None:
    sent = EmailMessage()
    sent["Subject"], sent["From"], sent["To"] = (
        "灯台の見学について",
        "鶴田 綾子 <ada@example.jp>",
        "bo@example.jp",
    )
    sent["Date"] = "Wed, 1 May 2024 09:30:00 +0900"
    sent.set_content("見学は五月十日です。\n", charset="iso-2022-jp")
    sent.add_alternative("<p>見学は<b>五月十日</b>です。</p>", subtype="html")
    sent.add_attachment(b"%PDF-\0", maintype="application", subtype="pdf", filename="地図.pdf")
    (read,) = read_file(write(tmp_path / "見学.eml", sent.as_bytes()), "見学.eml")
    assert read.text == (
        "# 灯台の見学について\n\n[2024-05-01 09:30] 鶴田 綾子:\n\n見学は五月十日です。\n\n"
        "```\nFrom: 鶴田 綾子 <ada@example.jp>\nTo: bo@example.jp\n"
        "Date: Wed, 01 May 2024 09:30:00 +0900\nAttachments: 地図.pdf\n```"
    )
    told = {key: read.metadata[key] for key in ("title", "from", "to", "date")}
    assert told == {
        "title": "灯台の見学について", "from": "鶴田 綾子 <ada@example.jp>", "to": "bo@example.jp",
        "date": "Wed, 01 May 2024 09:30:00 +0900",
    }  # fmt: skip


def test_what_a_speaker_says_before_a_colon_is_kept(tmp_path: Path) -> None:
    cues = (
        "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>Note: it leaks.</v>\n\n"
        "00:03.000 --> 00:04.000\n<v Bo>Bo: I see.</v>\n"
    )
    (read,) = read_file(write(tmp_path / "a.vtt", cues), "a.vtt")
    first, second = read.text.split("\n\n")
    assert first.endswith("Ann: Note: it leaks.")
    assert second.endswith("] Bo: I see.")


def test_subtitles_are_what_is_said(tmp_path: Path) -> None:
    cues = "1\n00:00:01,000 --> 00:00:04,200\nWelcome to Karsted\nLighthouse.\n\n"
    cues += "2\n00:00:04,500 --> 00:00:09,000\n<i>It was built in</i>\n1874\n"
    (read,) = read_file(write(tmp_path / "talk.srt", cues), "talk.srt")
    assert read.text == "Welcome to Karsted Lighthouse. It was built in 1874"
    cues = "WEBVTT\n\n00:01.000 --> 00:04.000 align:start\n<v 案内係>この塔は\n1871年に点灯しました。\n"
    (read,) = read_file(write(tmp_path / "字幕.vtt", cues.replace("\n", "\r\n")), "字幕.vtt")
    assert read.text == "[00:00:01] 案内係: この塔は 1871年に点灯しました。"
    cues = (
        "WEBVTT\n\n00:01.000 --> 00:04.000\nIt was built in\n1874\n\n00:05.000 --> 00:06.000\nThen it "
        "burned.\n"
    )
    for lines in (cues, cues.replace("\n", "\r\n")):
        (read,) = read_file(write(tmp_path / "unnumbered.vtt", lines), "unnumbered.vtt")
        assert read.text == "It was built in 1874 Then it burned."


def test_what_one_speaker_says_is_read_together_without_ids_and_notes(tmp_path: Path) -> None:
    cues = (
        "WEBVTT\nKind: captions\n\nNOTE made by a program\nin two lines\n\n"
        "5f-2e/1-0\n00:01.000 --> 00:02.000\n<v Ann Lee>The tender is due</v>\n\n"
        "5f-2e/1-1\n00:02.000 --> 00:03.000\n<v Ann Lee>in May.</v>\n\n"
        "STYLE\n::cue { color: red }\n\n"
        "5f-2e/2-0\n00:03.000 --> 00:04.000\n<v Bo>NOTE that.</v>\n"
    )
    (read,) = read_file(write(tmp_path / "call.vtt", cues), "call.vtt")
    assert read.text == (
        "[00:00:01] Ann Lee: The tender is due in May.\n\n[00:00:03] Bo: NOTE that."
    )


def test_captions_that_roll_are_read_once_without_sounds(tmp_path: Path) -> None:
    cues = (
        "WEBVTT\n\n00:00:00.000 --> 00:00:02.110 align:start\n \nwe<00:00:00.320><c> sharpen</c>\n\n"
        "00:00:02.110 --> 00:00:02.120 align:start position:0%\nwe sharpen\n \n\n"
        "00:00:02.120 --> 00:00:04.000 align:start position:0%\nwe sharpen\na<00:00:02.480><c> chisel</c>\n\n"
        "00:00:04.000 --> 00:00:06.000\n[Music]\n"
    )
    (read,) = read_file(write(tmp_path / "a.vtt", cues), "a.vtt")
    assert read.text == "we sharpen a chisel"


def mail(sender: str, sent: str, text: str) -> EmailMessage:
    message = EmailMessage()
    message["Subject"], message["From"], message["Date"] = "Cranes", sender, sent
    message.set_content(text)
    return message


def test_each_sentence_of_a_mail_says_who_wrote_it_when_also_of_quoted_ones(tmp_path: Path) -> None:
    pytest.importorskip("bs4")
    text = (
        "I moved it to 21 May. It starts at 7.\n\nBest regards,\nLars\n\n"
        "-- \nLars Svensson\nNordkran, +46 920 555\n\n"
        "This e-mail and any attachments are confidential. Delete them.\n\n"
        "On Mon, 6 May 2024 at 09:15, Ines Duarte\n<ines@example.pt> wrote:\n\n"
        "> The crane is needed on 14 May. Who brings weights?\n"
    )
    sent = mail("Lars Svensson <lars@example.se>", "Tue, 07 May 2024 16:42:10 +0200", text)
    (read,) = read_file(write(tmp_path / "a.eml", sent.as_bytes()), "a.eml")
    asked = "On Mon, 6 May 2024 at 09:15, Ines Duarte <ines@example.pt> wrote: "
    own, moved, signature, quoted, question, envelope = passage_sentences(read.text)
    assert own == "[2024-05-07 16:42] Lars Svensson: I moved it to 21 May."
    assert moved == "[2024-05-07 16:42] Lars Svensson: It starts at 7."
    assert "+46 920 555" in signature
    assert "confidential" in signature
    assert quoted == asked + "The crane is needed on 14 May."
    assert question == asked + "Who brings weights?"
    assert envelope.startswith("```\nFrom: Lars Svensson <lars@example.se>")


def test_a_forwarded_mail_is_its_writers(tmp_path: Path) -> None:
    pytest.importorskip("bs4")
    text = (
        "See below.\n\n-----Original Message-----\nFrom: Beatriz Nunes <b@example.org>\n"
        "Sent: Wednesday, December 4, 2024 5:31 PM\nTo: Office\nSubject: Parking\n\n"
        "Permits cost 340 dollars. Motorcycles are free.\n"
    )
    sent = mail("Noor <noor@example.org>", "Thu, 05 Dec 2024 08:00:00 +0000", text)
    (read,) = read_file(write(tmp_path / "a.eml", sent.as_bytes()), "a.eml")
    assert passage_sentences(read.text)[:3] == (
        "[2024-12-05 08:00] Noor: See below.",
        "[Wednesday, December 4, 2024 5:31 PM] Beatriz Nunes: Permits cost 340 dollars.",
        "[Wednesday, December 4, 2024 5:31 PM] Beatriz Nunes: Motorcycles are free.",
    )


def test_each_message_of_a_mailbox_is_a_document_without_what_it_repeats(tmp_path: Path) -> None:
    pytest.importorskip("bs4")
    box = mailbox.mbox(tmp_path / "a.mbox")
    asked = "The crane is due.\n\n-- \nAnn Lee"
    box.add(mail("Ann <a@example.org>", "Mon, 06 May 2024 09:15:00 +0200", asked))
    quoted = asked.replace("\n", "\n> ")
    wrote = "On Mon, 6 May 2024 at 09:15, Ann <a@example.org> wrote:"
    answer = f"In June.\n\n{wrote}\n\n> {quoted}\n"
    box.add(mail("Bo <b@example.org>", "Mon, 06 May 2024 10:00:00 +0200", answer))
    box.flush()
    assert names(tmp_path) == ["a.mbox"]
    first, second = read_file(tmp_path / "a.mbox", "a.mbox")
    assert (first.id_, second.id_) == ("a.mbox#page=1", "a.mbox#page=2")
    assert "The crane is due." in first.text
    assert "due" not in second.text
    assert "[2024-05-06 10:00] Bo:\n\nIn June." in second.text


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        (
            [
                {"user": "U1", "text": "Who has &amp; uses it?", "ts": "1714553000.2",
                 "thread_ts": "1714553000.2",
                 "user_profile": {"real_name": "Grace Obi"}},
                {"user": "U1", "text": "Lunch.", "ts": "1714553500.3"},
                {"user": "U2", "text": "I do, <@U1>.", "ts": "1714553600.3", "thread_ts": "1714553000.2"},
            ],
            "[2024-05-01 08:43] Grace Obi: Who has & uses it?\n\n[2024-05-01 08:53] U2: I do, @Grace Obi.\n\n"
            "[2024-05-01 08:51] Grace Obi: Lunch.",
        ),
        (
            [{"from": {"user": {"displayName": "Wei"}}, "createdDateTime": "2024-05-01T08:43:20Z",
              "body": {"contentType": "html", "content": "<p>Done.</p>"}}],
            "[2024-05-01 08:43] Wei: Done.",
        ),
        (
            {"text": "It leaks. Yes.", "segments": [
                {"id": 0, "start": 0.0, "end": 2.0, "text": " It"},
                {"id": 1, "start": 2.0, "end": 4.0, "text": " leaks. Yes."}]},
            "It leaks. Yes.",
        ),
        ([{"author": "Ann", "date": "2024-05-01", "text": "Good.", "rating": 4}], None),
    ],
)  # fmt: skip
def test_exported_messages_are_turns(tmp_path: Path, messages: Any, turns: str | None) -> None:
    pytest.importorskip("bs4")
    (read,) = read_file(write(tmp_path / "a.json", json.dumps(messages)), "a.json")
    assert read.text == turns or (turns is None and "rating" in read.text)


@pytest.mark.parametrize(
    ("posts", "text"),
    [
        ('[{"speaker": "Ann", "text": "It leaks.", "start": Infinity}]', "It leaks."),
        ('[{"speaker": "Ann", "text": "It leaks.", "start": {"at": 1}}]', "It leaks."),
        ('[{"user": "U1", "text": {"text": {"text": "It leaks."}}, "ts": "1714553000.2"}]', "U1: It leaks."),
        ('[{"user": "U1", "text": {"content": NaN}, "ts": "1714553000.2"}]', "U1"),
        ('[{"user": "U1", "text": [5, true, null, "th"], "ts": "1714553000.2"}]', "U1: 5th"),
        ('[{"user": "U1", "text": true, "ts": NaN}]', "U1"),
    ],
)  # fmt: skip
def test_an_exported_message_may_have_values_that_are_no_text(
    tmp_path: Path, posts: str, text: str
) -> None:
    assert text in read_file(write(tmp_path / "a.json", posts), "a.json")[0].text


def restructured(path: Path, source: str) -> str:
    return read_file(write(path / "a.rst", source), "a.rst")[0].text


@pytest.mark.parametrize(
    "source",
    [
        ".. list-table:: Fees\n   :header-rows: 1\n\n   * - Name\n     - Fee\n     - Unit\n   * - Adults\n"
        "     - ``12``\n     - euros\n       a day\n   * - 子供\n     - 6\n     -\n",
        ".. table:: Fees\n\n   ======  ======  =======\n   Name    Fee     Unit\n"
        "   ======  ======  =======\n"
        "   Adults  ``12``  euros\n                   a day\n   子供    6\n   ======  ======  =======\n",
        '.. csv-table:: Fees\n   :header: Name, Fee, Unit\n\n   "Adults", ``12``, euros a day\n   子供, 6,\n',
    ],
)
def test_each_row_of_a_table_of_restructuredtext_can_be_understood_alone(
    tmp_path: Path, source: str
) -> None:
    text = restructured(tmp_path, f"Prices\n======\n\n{source}\nChildren are small.")
    assert text == (
        "Prices\n======\n\nFees\n\n| Name | Fee | Unit |\n| --- | --- | --- |\n"
        "| Adults | `12` | euros a day |\n| 子供 | 6 |  |\n\nChildren are small.\n"
    )


def test_names_over_several_columns_of_a_table_of_restructuredtext(tmp_path: Path) -> None:
    border = "=====  =====  ======\n"
    rows = "   Inputs     Output\n------------  ------\n  A      B    A or B\n"
    text = restructured(tmp_path, f"{border}{rows}{border}False  False  False\n{border}")
    assert text.splitlines()[0] == "| Inputs A | Inputs B | Output A or B |"


def test_a_table_of_restructuredtext_without_names_has_all_its_rows(tmp_path: Path) -> None:
    source = ".. csv-table::\n\n   1, 2, 3\n   4, 5, 6\n\n=== ===\nA   b\nC   d\n=== ===\n"
    assert restructured(tmp_path, source) == (
        "|  |  |  |\n| --- | --- | --- |\n| 1 | 2 | 3 |\n| 4 | 5 | 6 |\n\n"
        "|  |  |\n| --- | --- |\n| A | b |\n| C | d |\n"
    )


def test_links_and_code_of_restructuredtext_are_those_of_markdown(tmp_path: Path) -> None:
    source = (
        "See `the\nguide <https://e.com/g>`_, :ref:`the page <install>`, :doc:`intro`, `Python`_ [1]_\n"
        "and ``a[0]``. Call :func:`~a.run`::\n\n    `x <y>`_\n\n.. _Python: https://python.org\n"
        ".. [1] A note.\n"
    )
    assert restructured(tmp_path, source) == (
        "See [the\nguide](https://e.com/g), the page, intro, [Python][] [^1]\nand `a[0]`. Call `a.run`:\n\n"
        "```\n`x <y>`_\n```\n\n[Python]: https://python.org\n[^1]: A note.\n"
    )


def test_directives_of_restructuredtext_are_read_without_their_marks(tmp_path: Path) -> None:
    source = (
        ".. _top:\n\n.. A comment\n   of two lines\n\n.. note:: Mind the\n   gap.\n"
        "\n.. image:: a.png\n   :alt: A\n"
        "\n.. function:: run(x, *, y)\n              run(x)\n   :module: a\n\n"
        "   Runs it.\n\n   :param x: what\n\n"
        "   .. versionadded:: 3.2\n      The *y*.\n\n.. code-block:: c\n   :linenos:\n\n   int x;\n\n"
        "salt\n   A mineral.\nsugar\n   A carbohydrate.\n"
    )
    assert restructured(tmp_path, source).strip().split("\n\n") == [
        "Note: Mind the\ngap.",
        "<details>\n<summary>`run(x, *, y) run(x)`</summary>",
        "Runs it.",
        "- param x: what",
        "Added in version 3.2: The *y*.",
        "</details>",
        "```c\nint x;\n```",
        "salt\n: A mineral.",
        "sugar\n: A carbohydrate.",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("a.mdx", "{/*"),
        ("a.mdx", '<A b="'),
        ("a.adoc", "link:a["),
        ("a.org", "#+begin_src\n"),
        ("a.org", " "),
        ("a.wiki", "<ref>"),
        ("a.wiki", "<!--"),
        ("a.rst", "== ==\n"),
        ("a.rst", "a::\n\n b\n"),
    ],
)
def test_what_nothing_ends_is_read_in_time_that_grows_with_its_length(
    name: str, unit: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("a" + unit * (2_000_000 // len(unit)), encoding="utf-8")
    began = process_time()
    read_file(tmp_path / name, name)
    # some seconds; quadratic time would take many minutes or hours
    assert process_time() - began < 120


@pytest.mark.parametrize(
    ("name", "source", "text"),
    [
        (
            "a.mdx",
            "import A from 'a';\nimport {\n  B\n} from 'b';\n\n# Use\n\n<Tabs>\n"
            '<TabItem label="Mac" f={() => {}}>\n\n'
            "The <B c=\"d\">port</B> is {/* not */}80. `<C/>`\n\n```jsx\nimport D from 'd';\n"
            "<D/>\n```\n</TabItem>\n</Tabs>\n",
            "# Use\n\nMac\n\nThe port is 80. `<C/>`\n\n```jsx\nimport D from 'd';\n<D/>\n```\n\n",
        ),
        (
            "a.adoc",
            "= A\n:toc:\n\n[[b]]\n== B\n\n"
            "See link:c.html[the guide], https://d.com[d], <<e,the end>> and `+f+`.\n"
            "// not\n[source,c]\n----\nint <<x,y>>;\n----\n\n* one\n** two\nCPU:: Computes.\n",
            "= A\n\n== B\n\nSee [the guide](c.html), [d](https://d.com), the end and `f`.\n"
            "```c\nint <<x,y>>;\n```\n\n"
            "- one\n  - two\n- CPU: Computes.\n",
        ),
        (
            "a.org",
            "#+TITLE: A\n# not\n* B :tag:\n:PROPERTIES:\n:ID: 1\n:END:\n"
            "See [[https://d.com][the page]] or =f=.\n"
            "| N | A |\n|---+---|\n| b | 3 |\n#+BEGIN_SRC c\nx[[1]];\n#+END_SRC\n** C\n",
            "# A\n\n# B\nSee [the page](https://d.com) or `f`.\n\n| N | A |\n|---|---|\n"
            "| b | 3 |\n```c\nx[[1]];\n```\n\n## C\n",
        ),
        (
            "a.wiki",
            "== A ==\n"
            "'''Rye''' is a [[Cereal|grain]] of the [[Old World]].<ref name=\"b\"/> See [https://d.com d].\n"
            "[[Category:B]]\n<pre>[[x]]</pre>\n",
            "== A ==\n"
            "**Rye** is a [grain](Cereal) of the Old World. See [d](https://d.com).\n\n```\n[[x]]\n```\n",
        ),
    ],
)
def test_other_notations_are_read_as_markdown(
    tmp_path: Path, name: str, source: str, text: str
) -> None:
    assert read_file(write(tmp_path / name, source), name)[0].text == text


def test_a_notebook_is_its_cells_without_what_they_put_out(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Harbour\n", "412 ships came."]},
        {
            "cell_type": "code",
            "source": "ships.mean()",
            "outputs": [{"data": {"image/png": "iVBORw0KGgo"}}],
        },
    ]
    (read,) = read_file(write(tmp_path / "a.ipynb", json.dumps({"cells": cells})), "a.ipynb")
    assert read.text == "# Harbour\n412 ships came.\n\n```\nships.mean()\n```"


def test_a_page_that_a_browser_saved_whole_is_read_as_mail_is(tmp_path: Path) -> None:
    pytest.importorskip("bs4")
    page = EmailMessage()
    page["Subject"] = "料金"
    page.set_content("<h1>料金</h1><p>500円です。</p>", subtype="html", charset="utf-8")
    page.add_related(b"\x89PNG\0", maintype="image", subtype="png")
    file = write(tmp_path / "a.mhtml", page.as_bytes())
    assert names(tmp_path) == ["a.mhtml"]
    (read,) = read_file(file, "a.mhtml")
    assert (read.id_, read.text) == ("a.mhtml", "# 料金\n\n# 料金\n\n500円です。")


def test_slides_are_read_below_their_titles_with_groups_tables_and_notes(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    show = pptx.Presentation()
    show.core_properties.title = "PowerPoint プレゼンテーション"
    first, second = (show.slides.add_slide(show.slide_layouts[number]) for number in (0, 5))
    first.shapes.title.text, first.placeholders[1].text = "製品の<案内>", "税込です。"
    second.shapes.title.text = "価格"
    second.shapes.add_group_shape().shapes.add_textbox(0, 0, 9, 9).text_frame.text = "組の中。"
    table = second.shapes.add_table(3, 2, 0, 0, 9, 9).table
    for y, row in enumerate([("型番", "価格"), ("A-1", "500円"), ("", "600円")]):
        for x, said in enumerate(row):
            table.cell(y, x).text = said
    table.cell(1, 0).merge(table.cell(2, 0))
    second.notes_slide.notes_text_frame.text = "実物を見せる。"
    show.save(tmp_path / "a.pptx")
    one, two = read_file(tmp_path / "a.pptx", "a.pptx")
    assert (one.id_, one.text) == ("a.pptx#page=1", "# 製品の<案内>\n\n税込です。\n")
    assert two.text == (
        "# 価格\n\n組の中。\n\n| 型番 | 価格 |\n| --- | --- |\n| A-1 | 500円 |\n| A-1 | 600円 |\n\n"
        "実物を見せる。\n"
    )
    assert two.metadata["page_label"] == "2"
    assert "title" not in two.metadata


@pytest.mark.parametrize(
    ("has_header", "header"), [(True, "| Grey | Tea |\n"), (False, "- Grey: Tea\n")]
)
def test_the_style_of_the_first_row_of_a_table_on_a_slide_tells_whether_it_names_columns(
    tmp_path: Path, has_header: bool, header: str
) -> None:
    pptx = pytest.importorskip("pptx")
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[6])
    table = slide.shapes.add_table(3, 2, 0, 0, 9, 9).table
    table.first_row = has_header
    for y, row in enumerate([("Grey", "Tea"), ("Cyan", "Oat"), ("Blue", "Rye")]):
        for x, text in enumerate(row):
            table.cell(y, x).text = text
    show.save(tmp_path / "a.pptx")
    assert read_file(tmp_path / "a.pptx", "a.pptx")[0].text.startswith(header)


@pytest.mark.parametrize("name", ["word/document.xml", "word/media/image1.png"])
@pytest.mark.slow_cases("*", but=["*document.xml"])
def test_what_would_unpack_to_gigabytes_is_not_unpacked(tmp_path: Path, name: str) -> None:
    with (
        ZipFile(tmp_path / "a.docx", "w", ZIP_DEFLATED) as archive,
        archive.open(name, "w") as part,
    ):
        for _ in range(300):
            part.write(bytes(2**20))
    with pytest.raises(UnreadableFileError, match="unpacks to more than 256 MB"):
        read_file(tmp_path / "a.docx", "a.docx")


def test_a_sheet_whose_columns_are_merged_as_a_whole_is_refused(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    openpyxl.Workbook().save(tmp_path / "a.xlsx")
    with ZipFile(tmp_path / "a.xlsx") as whole, ZipFile(tmp_path / "b.xlsx", "w") as merged:
        for name in whole.namelist():
            span = b'</sheetData><mergeCells><mergeCell ref="A1:XFD1048576"/></mergeCells>'
            merged.writestr(
                name,
                whole.read(name)
                .replace(b"</sheetData>", span)
                .replace(b"<sheetData />", b"<sheetData>" + span),
            )
    with pytest.raises(UnreadableFileError, match="whole columns merged"):
        read_file(tmp_path / "b.xlsx", "b.xlsx")


@pytest.mark.parametrize("name", ["c.docx", "c.epub", "c.pptx", "c.xlsx"])
def test_a_damaged_archive_is_an_error_that_names_the_file(tmp_path: Path, name: str) -> None:
    pytest.importorskip(
        {"c.xlsx": "openpyxl", "c.docx": "mammoth", "c.pptx": "pptx"}.get(name, "bs4")
    )
    with pytest.raises(UnreadableFileError, match="may be damaged"):
        read_file(write(tmp_path / name, b"PK\x03\x04"), name)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is not text"),
        (b"x" * 10000 + b"\0", "is not text"),
        ("Rain fell.".encode("utf-16-le"), "is not text"),
        (bytes([0xFF, 0x81, 0x8D, 0x1B, 0x02, 0xFE]) * 9, "in an unknown encoding"),
    ],
)
def test_what_is_no_text_is_an_error_that_names_the_file(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    with pytest.raises(UnreadableFileError, match=reason) as error:
        read_file(write(tmp_path / "a.bin", content), "a.bin")
    assert str(tmp_path / "a.bin") in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "blocks"),
    [
        (
            "a.json",
            '{"firm":"Acme","offices":[{"city":"Kobe","boss":{"name":"Mori","id":1.50}},{"city":"Ise"}]}',
            [
                record(("firm", "Acme")),
                "# offices",
                record(("city", "Kobe"), ("boss name", "Mori"), ("boss id", "1.50")),
                record(("city", "Ise")),
            ],
        ),
        (
            "a.jsonl",
            '{"user": "tom", "text": "Renewed."}\n\n{"user": "li", "tags": ["a", "b"]}\n',
            [
                record(("user", "tom"), ("text", "Renewed.")),
                record(("user", "li"), ("tags", "a, b")),
            ],
        ),
        (
            "a.yaml",
            "paths:\n  /pets:\n    get: {summary: List, limit: 100}\n",
            [record(("paths /pets get summary", "List"), ("paths /pets get limit", "100"))],
        ),
        ("b.yaml", "# seconds\nttl: 60\n", ["# seconds\nttl: 60\n"]),
        ("b.json", "// no JSON\n{}\n", ["// no JSON\n{}\n"]),
        ("c.json", "[]", [""]),
        (
            "c.yaml",
            f"openapi: 3.0.1\ninfo:\n  title: Pets\n  license: {{name: {'x' * 900}}}\n",
            [
                record(("openapi", "3.0.1")),
                "# info",
                record(("title", "Pets")),
                "## license",
                record(("name", "x" * 900)),
            ],
        ),
    ],
)
def test_objects_of_data_are_records_below_the_names_of_what_they_are_in(
    tmp_path: Path, name: str, text: str, blocks: list[str]
) -> None:
    assert read_file(write(tmp_path / name, text), name)[0].text == "\n\n\n".join(blocks)


def test_an_object_in_a_list_that_is_divided_has_a_heading(tmp_path: Path) -> None:
    posts = [{"title": f"Day {day}", "notes": [{"by": "Ann"}, {"by": "Bo"}]} for day in (1, 2)]
    text = read_file(write(tmp_path / "a.json", json.dumps(posts)), "a.json")[0].text
    lines = [line for line in text.splitlines() if line.startswith(("#", "| title", "| by"))]
    day_1 = ["# Day 1", "| title | Day 1 |", "## notes", "| by | Ann |", "| by | Bo |"]
    assert lines == day_1 + [line.replace("Day 1", "Day 2") for line in day_1]


@pytest.mark.parametrize(
    ("name", "content", "command"),
    [
        ("old minutes.doc", b"\xd0\xcf\x11\xe0\0", "--convert-to docx 'old minutes.doc'"),
        ("a.rtf", rb"{\rtf1\ansi It costs 5 dollars.}", "--convert-to docx a.rtf"),
        ("a.ods", b"PK\3\4\0", "--convert-to xlsx a.ods"),
    ],
)
def test_a_file_of_another_office_program_is_an_error_with_the_command_that_converts_it(
    tmp_path: Path, name: str, content: bytes, command: str
) -> None:
    with pytest.raises(UnreadableFileError, match=f"soffice --headless {command}"):
        read_file(write(tmp_path / name, content), name)


def test_a_pipe_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFileError, match="not a regular file"):
        read_file(tmp_path / "pipe", "pipe")


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.md").symlink_to("nowhere")
    with pytest.raises(UnreadableFileError, match="No such file"):
        read_file(tmp_path / "a.md", "a.md")


# Tables and lists, however the file has them

SALES = (
    "| Branch | FY2023 Plan | FY2023 Actual | FY2024 Plan | FY2024 Actual |\n| --- | --- | --- | --- | --- "
    "|\n| Sapporo | 110 | 118 | 140 | 133 |\n| Naha | 70 | 64 | 75 | 91 |\n"
)


def rows_of(*rows: str, tag: str = "td") -> str:
    """Rows of an HTML table whose cells are parted by bars; "2*x" is x over two columns, "x/2" over two
    rows."""
    html = ""
    for row in rows:
        html += "<tr>"
        for cell in row.split("|"):
            columns, _, text = cell.rpartition("*")
            text, _, below = text.partition("/")
            html += f"<{tag} colspan={columns or 1} rowspan={below or 1}>{text}</{tag}>"
        html += "</tr>"
    return html


GROUPED = rows_of("Branch/2|2*FY2023|2*FY2024", "Plan|Actual|Plan|Actual", tag="th")


@pytest.mark.parametrize(
    "header", [GROUPED, f"<thead>{GROUPED}</thead>", GROUPED.replace("th", "td")]
)
def test_the_names_of_columns_begin_with_those_of_their_groups(tmp_path: Path, header: str) -> None:
    rows = rows_of("Sapporo|110|118|140|133", "Naha|70|64|75|91")
    assert html(tmp_path, f"<table>{header}{rows}</table>") == SALES


def test_titles_units_sections_totals_and_notes_of_a_table(tmp_path: Path) -> None:
    header = rows_of("3*売上", "支店/2|上期|下期", "計画|実績", "|(千円)|(千円)", tag="th")
    rows = rows_of(
        "3*北日本",
        "札幌|110|118",
        "青森/2|2*休業",
        "9|8",
        "3*南日本",
        "那覇|70|64",
        "2*合計|5",
        "3*※速報値",
    )
    names = "| 支店 | 上期 計画 (千円) | 下期 実績 (千円) |\n| --- | --- | --- |\n"
    assert html(tmp_path, f"<table>{header}{rows}</table>") == (
        f"売上\n\n{names}| 北日本 |  |  |\n| 札幌 | 110 | 118 |\n| 青森 | 休業 | 休業 |\n| 青森 | 9 | 8 |\n"
        "| 南日本 |  |  |\n| 那覇 | 70 | 64 |\n| 合計 |  | 5 |\n\n※速報値\n"
    )


def test_labels_of_groups_are_repeated_where_cells_below_them_are_blank(tmp_path: Path) -> None:
    rows = rows_of(
        "区分|世帯|月額",
        "借家|単身|15000",
        "|扶養|25000",
        "持家|単身|5000",
        "|扶養|9000",
        "||54000",
    )
    assert html(tmp_path, f"<table>{rows}</table>").splitlines()[2:] == [
        "| 借家 | 単身 | 15000 |",
        "| 借家 | 扶養 | 25000 |",
        "| 持家 | 単身 | 5000 |",
        "| 持家 | 扶養 | 9000 |",
        "|  |  | 54000 |",
    ]


MINUTES = [
    "日時|6月5日|場所|会議室",
    "出席者|3*佐藤、高橋",
    "宿題/3|担当|内容|期限",
    "高橋|計画|6月7日",
    "佐藤|試験|6月9日",
    "次回|3*6月19日",
]


def test_minutes_in_a_table_are_a_form_around_a_list(tmp_path: Path) -> None:
    form = record(("日時", "6月5日"), ("場所", "会議室"), ("出席者", "佐藤、高橋"))
    tasks = "\n".join(
        [
            "| 宿題 | 担当 | 内容 | 期限 |",
            "| --- | --- | --- | --- |",
            "| 宿題 | 高橋 | 計画 | 6月7日 |",
            "| 宿題 | 佐藤 | 試験 | 6月9日 |",
        ]
    )
    text = html(tmp_path, f"<table>{rows_of(*MINUTES)}</table>")
    assert text.strip().split("\n\n") == [form, tasks, record(("次回", "6月19日"))]


def test_questions_beside_answers_and_long_values_are_records_of_their_own(tmp_path: Path) -> None:
    pairs = [("Where do I park?", "On level 2."), ("Who pays?", "We do."), ("Who may park?", LONG)]
    pairs += [("Contact:", "Ann")]
    rows = rows_of(*("|".join(pair) for pair in pairs))
    text = html(tmp_path, f"<table>{rows}</table>")
    assert text.strip().split("\n\n") == [record(pair) for pair in pairs]
    header = rows_of("Question|Answer")
    assert html(tmp_path, f"<table>{header}{rows}</table>").startswith("| Question | Answer |")


LONG = (
    "Everybody who works at the office at least on two days of a week, as long as there is space."
)

FORM = record(
    ("申請者", "山本花子"),
    ("所属", "営業第二課"),
    ("期間", "6月3日から5日まで"),
    ("費用", "24000"),
    ("目的", "説明会"),
)
FORM_ROWS = [
    "申請者|山本花子|所属|営業第二課",
    "期間|6月3日から5日まで|費用|24000",
    "目的|3*説明会",
]


@pytest.mark.parametrize(
    "rows",
    [
        rows_of(*FORM_ROWS),
        rows_of(
            "申請者|山本花子",
            "所属|営業第二課",
            "期間|6月3日から5日まで",
            "費用|24000",
            "目的|説明会",
        ),
        rows_of("申請者：|山本花子", "所属：|営業第二課"),
        rows_of("Project manager|山本花子", "Sponsor|営業第二課"),
        "".join(
            f"<tr><th>{name}<td>{value}"
            for name, value in (("申請者", "山本花子"), ("所属", "営業第二課"))
        ),
    ],
)
def test_names_beside_values_are_a_record(tmp_path: Path, rows: str) -> None:
    text = html(tmp_path, f"<table>{rows}</table>").replace("：", "").strip()
    text = text.replace("Project manager", "申請者").replace("Sponsor", "所属")
    assert text in (FORM, record(("申請者", "山本花子"), ("所属", "営業第二課")))


@pytest.mark.parametrize(
    "rows",
    [
        ["Cloud:||Visibility|10 Miles", "Wind:|Calm|Light:|Day", "From:|Quincy|Airspace:|"],
        ["雲：||視程|10 km", "風：|なし|明るさ：|昼", "出発地：|那覇|空域：|"],
        ["Airport:||Runway:|", "Elevation:||Approach:|"],
    ],
)
def test_blank_values_of_a_form_stay_blank(tmp_path: Path, rows: list[str]) -> None:
    cells = [cell for row in rows for cell in row.split("|")]
    pairs = zip(cells[::2], cells[1::2], strict=True)
    assert html(tmp_path, f"<table>{rows_of(*rows)}</table>").strip() == record(*pairs)


@pytest.mark.parametrize(
    "rows",
    [
        ["Term|Meaning", "Cat|An animal", "Dog|Another one"],
        ["Name|Address", "Ann|1 Quay Street", "Bob|2 Quay Street", "Cy|3 Quay Street"],
        ["Product|Price", "Tea|3.50", "Coffee|4.20", "Cake|on request"],
        ["Field|Type|Required|Description", "name|text|yes|In full", "email|text|no|For replies"],
    ],
)
def test_names_above_values_are_no_record(tmp_path: Path, rows: list[str]) -> None:
    names = f"| {rows[0].replace('|', ' | ')} |"
    assert html(tmp_path, f"<table>{rows_of(*rows)}</table>").startswith(f"{names}\n| --- |")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (["Monday|9:00 - 17:00", "Friday|closed"], "- Monday: 9:00 - 17:00\n- Friday: closed\n"),
        (
            ["-O0|No optimisation", "-O2|Optimise for speed", "-Os|Optimise for size"],
            "- -O0: No optimisation\n- -O2: Optimise for speed\n- -Os: Optimise for size\n",
        ),
        (
            ["Cable|USB-C|black", "Charger|BC-W|white"],
            "|  |  |  |\n| --- | --- | --- |\n| Cable | USB-C | black |\n| Charger | BC-W | white |\n",
        ),
        (
            ["Feature|Basic|Pro", "Sign-on||✓", "Audit|✓|✓"],
            "| Feature | Basic | Pro |\n| --- | --- | --- |\n| Sign-on |  | ✓ |\n| Audit | ✓ | ✓ |\n",
        ),
    ],
)
def test_cells_tell_whether_the_first_row_has_names(
    tmp_path: Path, rows: list[str], text: str
) -> None:
    assert html(tmp_path, f"<table>{rows_of(*rows)}</table>") == text


def test_a_table_in_the_cell_of_another_is_text_in_it(tmp_path: Path) -> None:
    inner = f"<table>{rows_of('Power|5 W', 'Colour|red')}</table>"
    outer = f"<table>{rows_of('Item|Details', tag='th')}<tr><td>Lamp<td>{inner}</table>"
    assert (
        html(tmp_path, outer)
        == "| Item | Details |\n| --- | --- |\n| Lamp | Power: 5 W; Colour: red |\n"
    )


def test_what_is_struck_out_is_marked_in_html(tmp_path: Path) -> None:
    page = "<p>The fee is <del>80 euros </del>70 <s>dollars</s> <strike>x</strike>"
    page += (
        "<span style='TEXT-DECORATION: line-through'>9</span> 会費は<s>八千円</s>七千円。"
        "</p><del><p>Gone.</p></del>"
    )
    page += f"<table>{rows_of('Item|Price', tag='th')}<tr><td>Tea<td><s>5</s> 6</table>"
    text = "The fee is ~~80 euros~~ 70 ~~dollars~~ ~~x~~~~9~~ 会費は~~八千円~~七千円。"
    assert html(tmp_path, page) == f"{text}\n\n| Item | Price |\n| --- | --- |\n| Tea | ~~5~~ 6 |\n"


def test_summaries_and_lines_in_bold_stand_as_headings(tmp_path: Path) -> None:
    page = "<details><summary>Can I <i>return</i> it?</summary><p>Yes.<ul><li>Ask.</ul></details>"
    page += "<p><b>返品の方法</b><p>箱に戻す。"
    expected = "**Can I return it?**\n\nYes.\n\n- Ask.\n\n**返品の方法**\n\n箱に戻す。\n"
    assert html(tmp_path, page) == expected


def depths(text: str) -> list[tuple[str, int]]:
    """The items of a Markdown text with the number of lists that each is in."""
    items: list[tuple[str, int]] = []
    depth = 0
    for token in MarkdownIt("commonmark").parse(text):
        depth += token.nesting if token.type.endswith(("list_open", "list_close")) else 0
        if token.type == "inline" and depth:
            items.append((token.content, depth))
    return items


def test_a_heading_in_a_box_of_a_page_is_the_title_of_the_box(tmp_path: Path) -> None:
    row = "<tr><td rowspan=2><img src=n><th>注記</th></tr><tr><td>古い。</td></tr>"
    page = "<h1><a href=#u>Use</a></h1><div class=alert><b class=title>Closed.</b></div>"
    page += "<div class=note><h3>Note</h3><p>It is old.</div><p>Start.</p>"
    page += "<div class='admonition tip'><p class=admonition-title>Tip</p><ul><li>A</ul></div>"
    page += f"<div class=note><table>{row}</table></div><div class=note><p>Plain.</div>"
    page += "<ul><li><div class=tip><h3>Tip</h3>Ask.</div></ul>"
    assert html(tmp_path, page) == (
        "# Use\n\nClosed.\n\n:::note Note\n\nIt is old.\n\n:::\n\nStart.\n\n:::note Tip\n\n- A\n\n:::\n\n"
        ":::note 注記\n\n古い。\n\n:::\n\nPlain.\n\n### Tip\n\n- Ask.\n"
    )


def test_what_is_on_a_tab_of_a_page_is_below_its_name(tmp_path: Path) -> None:
    inner = "<div role=tablist><b role=tab>pip</b></div><div role=tabpanel>Get.</div>"
    page = (
        "<ul role=tablist><li role=tab>macOS<li role=tab>Linux</ul><div role=tabpanel>Brew.</div>"
    )
    page += f"<div role=tabpanel hidden>{inner}</div>"
    page += "<div class=tabbed-labels><label>A</label></div><div class=tabbed-block>One.</div>"
    assert html(tmp_path, page).replace("\n\n", "\n") == (
        ":::tab macOS\nBrew.\n:::\n:::tab Linux\n:::tab pip\nGet.\n:::\n:::\n:::tab A\nOne.\n:::\n"
    )


def test_lists_within_lists_nest_as_markdown_has_it(tmp_path: Path) -> None:
    inner = "<ul><li>sencha<ol start=9><li>first<li>second<ul><li>deep</ul></ol></ul>"
    text = html(
        tmp_path, f"<p>Kinds:<ol><li>green{inner}<li><p>black<p>More.<pre>x = 1</pre><li>white</ol>"
    )
    assert text.startswith("Kinds:\n\n1. green\n")
    assert depths(text) == [
        ("green", 1), ("sencha", 2), ("first", 3), ("second", 3), ("deep", 4),
        ("black", 1), ("More.", 1), ("white", 1),
    ]  # fmt: skip
    assert "\n   ```\n   x = 1\n   ```\n" in text


def word_table(*rows: str) -> str:
    """A table of a Word file; cells are written as in `rows_of`, and "^" goes on with the cell above."""
    table = ""
    for row in rows:
        table += "<w:tr>"
        for cell in row.split("|"):
            columns, _, text = cell.rpartition("*")
            text, starts, _ = text.partition("/")
            about = f'<w:gridSpan w:val="{columns or 1}"/>'
            about += '<w:vMerge w:val="restart"/>' * bool(starts) + "<w:vMerge/>" * (text == "^")
            table += f"<w:tc><w:tcPr>{about}</w:tcPr>{paragraph(text.replace('^', ''))}</w:tc>"
        table += "</w:tr>"
    return f"<w:tbl>{table}</w:tbl>"


def test_tables_of_word_files_have_groups_and_forms(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    header = ["Branch/2|2*FY2023|2*FY2024", "^|Plan|Actual|Plan|Actual"]
    file = word_file(
        tmp_path / "a.docx",
        word_table(*header, "Sapporo|110|118|140|133", "Naha|70|64|75|91"),
        paragraph("出張申請書"),
        word_table(*FORM_ROWS),
    )  # fmt: skip
    assert read_file(file, "a.docx")[0].text == f"{SALES}\n出張申請書\n\n{FORM}\n"


def numbered(level: int, list_id: int = 1) -> str:
    return f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{list_id}"/></w:numPr>'


def test_items_of_word_files_are_numbered_as_word_numbers_them(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    kinds = ("decimal", "bullet", "lowerLetter")
    levels = "".join(
        f'<w:lvl w:ilvl="{n}"><w:numFmt w:val="{kind}"/></w:lvl>' for n, kind in enumerate(kinds)
    )
    anew = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride>'
    numbering = f'<w:abstractNum w:abstractNumId="9">{levels}</w:abstractNum>'
    for list_id, override in (("1", ""), ("2", anew)):
        numbering += f'<w:num w:numId="{list_id}"><w:abstractNumId w:val="9"/>{override}</w:num>'
    body = [
        paragraph("Open the box.", numbered(0)), paragraph("Cut the tape.", numbered(1)),
        paragraph("With care.", numbered(2)), paragraph("Then:"), paragraph("箱を閉じる。", numbered(0)),
        paragraph("Other:"), paragraph("Fifth.", numbered(0, 2)), paragraph("Sixth.", numbered(0, 2)),
        paragraph("Last:"), paragraph("Slowly.", numbered(2)),
    ]  # fmt: skip
    text = read_file(
        word_file(tmp_path / "a.docx", *body, word__numbering=word(numbering, "numbering")),
        "a.docx",
    )[0].text
    assert text == (
        "1. Open the box.\n   - Cut the tape.\n     - a With care.\n\nThen:\n\n2. 箱を閉じる。\n\n"
        "Other:\n\n5. Fifth.\n6. Sixth.\n\nLast:\n\n- a Slowly.\n"
    )
    assert [depth for _, depth in depths(text)] == [1, 2, 3, 1, 1, 1, 1]


def test_clauses_and_headings_of_word_files_have_the_numbers_that_are_referred_to(
    tmp_path: Path,
) -> None:
    pytest.importorskip("mammoth")
    kinds = [
        ("upperRoman", "Article %1."), ("decimal", "%1.%2"), ("lowerLetter", "(%3)"),
        ("japaneseCounting", "第%4条"), ("aiueoFullWidth", "（%5）"), ("decimal", "(%6)"),
    ]  # fmt: skip
    levels = "".join(
        f'<w:lvl w:ilvl="{n}"><w:numFmt w:val="{kind}"/><w:lvlText w:val="{pattern}"/></w:lvl>'
        for n, (kind, pattern) in enumerate(kinds)
    )
    num = '<w:num w:numId="1"><w:abstractNumId w:val="9"/></w:num>'
    heading = '<w:style w:type="paragraph" w:styleId="1"><w:name w:val="heading 1"/></w:style>'
    places = [0, 1, 1, 2, 2, 3, 3, 4, 5]
    file = word_file(
        tmp_path / "a.docx",
        paragraph("Terms", f'<w:pStyle w:val="1"/>{numbered(0)}'),
        *(paragraph("So.", numbered(level)) for level in places),
        word__styles=word(heading, "styles"),
        word__numbering=word(
            f'<w:abstractNum w:abstractNumId="9">{levels}</w:abstractNum>{num}', "numbering"
        ),
    )
    lines = read_file(file, "a.docx")[0].text.splitlines()
    assert [*map(str.strip, filter(None, lines))] == [
        "# Article I Terms", "- Article II So.", "- II.1 So.", "- II.2 So.", "- (a) So.", "- (b) So.",
        "- 第一条 So.", "- 第二条 So.", "- （ア） So.", "(1) So.",
    ]  # fmt: skip


def test_paragraphs_of_the_outline_of_a_word_file_are_headings(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    outline = '<w:pPr><w:outlineLvl w:val="0"/></w:pPr>'
    styles = (
        f'<w:style w:type="paragraph" w:styleId="own"><w:name w:val="Own"/>{outline}</w:style>'
        '<w:style w:type="paragraph" w:styleId="own2"><w:basedOn w:val="own"/></w:style>'
    )
    second = '<w:outlineLvl w:val="1"/>'
    cell = f"<w:tc>{paragraph('Cell', second)}</w:tc>"
    row = f"<w:tr>{cell}{cell}</w:tr>"
    body = [
        paragraph("休暇", '<w:pStyle w:val="own2"/>'),
        paragraph("Ask.", second),
        paragraph("Who", second),
        paragraph("Text", '<w:pStyle w:val="own"/><w:outlineLvl w:val="9"/>'),
        f"<w:tbl>{row}{row}</w:tbl>",
    ]
    file = word_file(tmp_path / "a.docx", *body, word__styles=word(styles, "styles"))
    assert read_file(file, "a.docx")[0].text == (
        "# 休暇\n\nAsk.\n\n## Who\n\nText\n\n- Cell: Cell\n- Cell: Cell\n"
    )


@pytest.mark.parametrize("is_typewritten", [False, True])
def test_paragraphs_of_a_word_file_in_a_font_for_code_are_a_block(
    tmp_path: Path, is_typewritten: bool
) -> None:
    pytest.importorskip("mammoth")

    def in_font(text: str, font: str) -> str:
        fonts = f'<w:rPr><w:rFonts w:ascii="{font}"/></w:rPr>'
        return f'<w:p><w:r>{fonts}<w:t xml:space="preserve">{text}</w:t></w:r></w:p>'

    prose = ["Run it as follows.", "実行方法です。", "It ends."]
    before, *after = (in_font(text, "Courier" if is_typewritten else "Arial") for text in prose)
    styles = (
        '<w:style w:type="paragraph" w:styleId="shell"><w:rPr><w:rFonts w:ascii="Consolas"/></w:rPr>'
        "</w:style>"
    )
    shell = paragraph("echo $HOME", '<w:pStyle w:val="shell"/>')
    after.append(paragraph("ls()", '<w:pStyle w:val="shell"/><w:outlineLvl w:val="1"/>'))
    after.append(in_font("It lists.", "Arial"))
    body = [before, in_font("for x in *; do", "Courier New"), in_font("  ls", "Courier New"), shell]
    file = word_file(tmp_path / "a.docx", *body, *after, word__styles=word(styles, "styles"))
    text = read_file(file, "a.docx")[0].text
    assert ("\n\n```\nfor x in *; do\n  ls\necho $HOME\n```\n\n" in text) is not is_typewritten
    assert "\n\n## ls()\n\n" in text


def test_underlined_paragraphs_of_a_word_file_are_headings(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    heading = "<w:p><w:r><w:rPr><w:u w:val='single'/></w:rPr><w:t>RETURNS</w:t></w:r></w:p>"
    file = word_file(tmp_path / "a.docx", heading, paragraph("Within a week."))
    assert read_file(file, "a.docx")[0].text == "**RETURNS**\n\nWithin a week.\n"


def test_lists_of_word_files_nest_by_their_styles(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    names_ = ["List Bullet", "List Number 2", "List Bullet 3", "List Number 2", "List Bullet"]
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{name}"><w:name w:val="{name}"/>'
        f"<w:pPr>{numbered(0, list_id)}</w:pPr></w:style>"
        for list_id, name in enumerate(dict.fromkeys(names_), 1)
    )
    numbering = "".join(
        f'<w:abstractNum w:abstractNumId="{n}"><w:lvl w:ilvl="0"><w:numFmt w:val="{kind}"/>'
        f'<w:pStyle w:val="{name}"/></w:lvl></w:abstractNum>'
        f'<w:num w:numId="{n}"><w:abstractNumId w:val="{n}"/></w:num>'
        for n, (kind, name) in enumerate(
            zip(("bullet", "decimal", "bullet"), names_[:3], strict=True), 1
        )
    )
    file = word_file(
        tmp_path / "a.docx",
        *(paragraph(name, f'<w:pStyle w:val="{name}"/>') for name in names_),
        word__styles=word(styles, "styles"),
        word__numbering=word(numbering, "numbering"),
    )
    assert read_file(file, "a.docx")[0].text == (
        "- List Bullet\n  1. List Number 2\n     - List Bullet 3\n  2. List Number 2\n- List Bullet\n"
    )


def test_what_is_struck_out_is_marked_in_word_files(tmp_path: Path) -> None:
    pytest.importorskip("mammoth")
    runs = (
        f"<w:r><w:rPr><w:{kind}/></w:rPr><w:t>{kind}</w:t></w:r>"
        for kind in ("strike", "dstrike", "b")
    )
    assert read_file(word_file(tmp_path / "a.docx", f"<w:p>{''.join(runs)}</w:p>"), "a.docx")[
        0
    ].text == ("~~strikedstrike~~b\n")


def test_charts_and_diagrams_of_slides_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pptx = pytest.importorskip("pptx")
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.opc.package import PackURI, Part
    from pptx.oxml import parse_xml

    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[5])
    values = CategoryChartData(number_format="0%")
    values.categories = [date(2024, 1, 1), date(2024, 2, 1)]
    values.add_series("A & B", (0.4, 0.125))
    values.add_series("他社", (None, 0.5))
    frame = slide.shapes.add_chart(XL_CHART_TYPE.LINE, 0, 0, 9, 9, values)
    frame.chart.chart_title.text_frame.text = "Share"
    schemas = "http://schemas.openxmlformats.org/"
    diagram = f'xmlns:dgm="{schemas}drawingml/2006/diagram" xmlns:a="{schemas}drawingml/2006/main"'
    texts = ("", "Draft", "部長が承認 &lt; 5万円")
    points = (
        f"<dgm:pt><dgm:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></dgm:t></dgm:pt>" for text in texts
    )
    data = f"<dgm:dataModel {diagram}>{''.join(points)}</dgm:dataModel>".encode()
    part = Part(PackURI("/ppt/diagrams/data1.xml"), "application/xml", show.part.package, data)
    relation = slide.part.relate_to(part, f"{schemas}officeDocument/2006/relationships/diagramData")
    frame = parse_xml(
        f'<p:graphicFrame xmlns:p="{schemas}presentationml/2006/main" {diagram} '
        f'xmlns:r="{schemas}officeDocument/2006/relationships"><p:nvGraphicFramePr><p:cNvPr id="9" '
        'name="d"/><p:cNvGraphicFramePr/><p:nvPr/></p:nvGraphicFramePr><p:xfrm><a:off x="0" y="99"/>'
        '<a:ext cx="9" cy="9"/></p:xfrm><a:graphic><a:graphicData '
        f'uri="{schemas}drawingml/2006/diagram"><dgm:relIds r:dm="{relation}"/></a:graphicData>'
        "</a:graphic></p:graphicFrame>"
    )
    slide.shapes._spTree.append(frame)
    show.save(tmp_path / "a.pptx")
    assert read_file(tmp_path / "a.pptx", "a.pptx")[0].text == (
        "Share\n\n|  | A & B | 他社 |\n| --- | --- | --- |\n| 2024-01-01 | 40% |  |\n"
        "| 2024-02-01 | 12.5% | 50% |\n\n- Draft\n- 部長が承認 < 5万円\n"
    )
    assert "not read: its embedded files" in caplog.text


@pytest.mark.parametrize("kind", ["slideshow", "template"])
def test_slide_shows_and_templates_are_read_as_presentations(tmp_path: Path, kind: str) -> None:
    pptx = pytest.importorskip("pptx")
    show = pptx.Presentation()
    show.slides.add_slide(show.slide_layouts[5]).shapes.title.text = "Prices"
    show.save(tmp_path / "a.pptx")
    with ZipFile(tmp_path / "a.pptx") as saved, ZipFile(tmp_path / "a.ppsx", "w") as changed:
        for name in saved.namelist():
            part = saved.read(name)
            changed.writestr(
                name, part.replace(b"ml.presentation.main", f"ml.{kind}.main".encode())
            )
    (slide,) = read_file(tmp_path / "a.ppsx", "a.ppsx")
    assert slide.text == "# Prices\n"


def test_slides_have_items_groups_and_struck_out_text(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Two plans\vfor 2024"
    frame = slide.placeholders[1].text_frame
    for level, text in ((0, "Plan A"), (1, "costs 40"), (2, "without tax"), (0, "計画B")):
        added = frame.paragraphs[0] if text == "Plan A" else frame.add_paragraph()
        added.level = level
        added.text = text
    frame.paragraphs[1].runs[0].font._element.set("strike", "sngStrike")
    table = slide.shapes.add_table(3, 3, 0, 6_200_000, 9, 9).table
    for y, row in enumerate(
        [("Branch", "Sales", ""), ("", "Plan", "Actual"), ("Naha", "70", "64")]
    ):
        for x, text in enumerate(row):
            table.cell(y, x).text = text
    table.cell(0, 0).merge(table.cell(1, 0))
    table.cell(0, 1).merge(table.cell(0, 2))
    show.save(tmp_path / "a.pptx")
    assert read_file(tmp_path / "a.pptx", "a.pptx")[0].text == (
        "# Two plans for 2024\n\n- Plan A\n  - ~~costs 40~~\n    - without tax\n- 計画B\n\n"
        "| Branch | Sales Plan | Sales Actual |\n| --- | --- | --- |\n| Naha | 70 | 64 |\n"
    )


def test_items_of_a_slide_go_on_from_those_of_another(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    show = pptx.Presentation()
    frame = show.slides.add_slide(show.slide_layouts[6]).shapes.add_textbox(0, 0, 9, 9).text_frame
    frame.text = "Wait.\nAsk again."
    number = '<a:buAutoNum xmlns:a="{}" type="arabicPeriod" startAt="4"/>'
    for item in frame.paragraphs:
        properties = item._p.get_or_add_pPr()
        properties.append(pptx.oxml.parse_xml(number.format(item._p.nsmap["a"])))
    show.save(tmp_path / "a.pptx")
    assert read_file(tmp_path / "a.pptx", "a.pptx")[0].text == "4. Wait.\n5. Ask again.\n"


def test_powers_and_boxes_with_equations_of_a_slide_are_read(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    show = pptx.Presentation()
    shapes = show.slides.add_slide(show.slide_layouts[6]).shapes
    frame = shapes.add_textbox(0, 0, 9, 9).text_frame
    for text, baseline in (("10", "0"), ("6", "30000"), (" cells", "-25000")):
        run = frame.paragraphs[0].add_run()
        run.text = text
        run.font._element.set("baseline", baseline)
    box = shapes.add_textbox(0, 500_000, 9, 9)
    box.text_frame.text = "Energy:"
    power = (
        "<m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>"
    )
    equation = pptx.oxml.parse_xml(
        '<a:m xmlns:a="http://schemas.microsoft.com/office/drawing/2010/main" '
        f'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math">{power}</a:m>'
    )
    box.text_frame.add_paragraph()._p.append(equation)
    whole = pptx.oxml.parse_xml(alternatives("", "<a/>"))
    box._element.addprevious(whole)
    whole[0].append(box._element)
    show.save(tmp_path / "a.pptx")
    (slide,) = read_file(tmp_path / "a.pptx", "a.pptx")
    assert slide.text == "10^6 cells\n\nEnergy:\n\nc^2\n"


def slide_texts(
    path: Path, *boxes: tuple[float, float, float, float, str], vertical: bool = False
) -> list[str]:
    """What is read of a slide with a title and these boxes (left, top, width and height in inches)."""
    pptx = pytest.importorskip("pptx")
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[5])
    for *place, text in boxes:
        frame = slide.shapes.add_textbox(*map(pptx.util.Inches, place)).text_frame
        frame.text = text
        if vertical:
            frame._txBody.bodyPr.set("vert", "eaVert")
    slide.shapes.add_connector(1, 0, 0, 9_000_000, 6_000_000)  # which parts nothing
    slide.shapes.title.text = "Title"
    slide.shapes.title.top = pptx.util.Inches(6)
    show.save(path / "a.pptx")
    title, *texts = read_file(path / "a.pptx", "a.pptx")[0].text.strip().split("\n\n")
    assert title == "# Title"
    return texts


def test_boxes_of_a_slide_are_read_column_by_column(tmp_path: Path) -> None:
    boxes = [
        (5, 3, 3.5, 1, "Costs 90."),
        (0.5, 3, 3.5, 1, "Costs 40."),
        (5, 1.98, 3.5, 1, "Plan B"),
        (0.5, 2, 3.5, 1.05, "Plan A"),
        (0.5, 5, 8, 0.5, "Both are of 2024."),
        (0.5, 1, 8, 0.5, "The board decides."),
    ]
    texts = [
        "The board decides.",
        "Plan A",
        "Costs 40.",
        "Plan B",
        "Costs 90.",
        "Both are of 2024.",
    ]
    assert slide_texts(tmp_path, *boxes) == texts


def test_years_and_names_on_a_slide_stand_before_what_is_said_of_them(tmp_path: Path) -> None:
    boxes = [(3, 2 + row, 6, 0.5, f"出来事{row}") for row in (2, 1, 0)]
    boxes += [(0.5, 2 + row, 1.5, 0.5, f"202{row}年") for row in (1, 0, 2)]
    assert slide_texts(tmp_path, *boxes) == [
        "2020年",
        "出来事0",
        "2021年",
        "出来事1",
        "2022年",
        "出来事2",
    ]


def test_steps_on_a_slide_are_read_from_left_to_right_and_upright_texts_from_the_right(
    tmp_path: Path,
) -> None:
    steps = [(left, 2 + left / 20, 1.5, 1, f"{left}") for left in (4, 0, 2, 6)]
    assert slide_texts(tmp_path, *steps) == ["0", "2", "4", "6"]
    assert slide_texts(tmp_path, *steps, vertical=True) == ["6", "4", "2", "0"]


def test_what_stands_on_a_card_of_a_slide_is_read_with_it(tmp_path: Path) -> None:
    boxes = [
        (5.2, 2.6, 3, 1, "200円"),
        (0.7, 2.6, 3, 1, "100円"),
        (5, 2, 3.5, 3, "番茶"),
        (0.5, 2, 3.5, 3, "煎茶"),
    ]
    assert slide_texts(tmp_path, *boxes) == ["煎茶", "100円", "番茶", "200円"]


def test_boxes_of_a_group_on_a_slide_are_read_together(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[6])
    for left in (5_000_000, 0):
        shapes = slide.shapes.add_group_shape().shapes
        for top in (2_000_000, 0):
            shapes.add_textbox(left, top, 2_000_000, 500_000).text_frame.text = f"{left} {top}"
    show.save(tmp_path / "a.pptx")
    texts = ["0 0", "0 2000000", "5000000 0", "5000000 2000000"]
    assert read_file(tmp_path / "a.pptx", "a.pptx")[0].text.split("\n\n") == [
        *texts[:3],
        texts[3] + "\n",
    ]


def sheet(path: Path, rows: list[list[object]], merged: tuple[str, ...] = ()) -> str:
    """What is read of a sheet with these rows, below its name."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for cells in merged:
        book.active.merge_cells(cells)
    book.save(path / "a.xlsx")
    return read_file(path / "a.xlsx", "a.xlsx")[0].text.removeprefix("# Sheet\n\n")


NAHA = "Branch: Naha; FY2023 Plan: 70; FY2023 Actual: 64; FY2024 Plan: 75; FY2024 Actual: 91"
NAHA_ROWS: list[list[object]] = [
    ["Branch", "FY2023", None, "FY2024", None], [None, "Plan", "Actual", "Plan", "Actual"],
    ["Naha", 70, 64, 75, 91],
]  # fmt: skip


@pytest.mark.parametrize("merged", [(), ("B1:C1", "D1:E1"), ("A1:A2", "B1:C1", "D1:E1")])
def test_names_of_a_sheet_in_two_rows(tmp_path: Path, merged: tuple[str, ...]) -> None:
    assert rows_in(sheet(tmp_path, NAHA_ROWS, merged)) == [NAHA]


def test_names_in_rows_without_labels_over_figures(tmp_path: Path) -> None:
    rows = [["", "", "Years Ended", ""], ["", "2019", "2018", "2017"], ["Sales", "7", "8", "9"]]
    stated = ["Sales; Years Ended 2019: 7; 2018: 8; 2017: 9"]
    assert rows_in(sheet(tmp_path, [[*row] for row in rows])) == stated
    assert rows_in(html(tmp_path, f"<table>{rows_of(*map('|'.join, rows))}</table>")) == stated


def test_names_of_a_csv_file_in_two_rows(tmp_path: Path) -> None:
    lines = [",".join(str(cell or "") for cell in row) for row in NAHA_ROWS]
    text = read_file(write(tmp_path / "a.csv", "\n".join(lines)), "a.csv")[0].text
    assert rows_in(text) == [NAHA]


def test_names_of_a_sheet_in_three_rows_and_with_units(tmp_path: Path) -> None:
    rows: list[list[object]] = [
        ["支店", "2023年度", None, None], [None, "上期", None, "下期"], [None, "計画", "実績", "実績"],
        [None, "(千円)", "(千円)", "(千円)"], ["札幌", 1, 2, 3], ["合計", 1, 2, 3], ["※速報値"],
    ]  # fmt: skip
    names = ("2023年度 上期 計画 (千円)", "2023年度 上期 実績 (千円)", "2023年度 下期 実績 (千円)")
    records = [
        record(("支店", place), *zip(names, "123", strict=True)) for place in ("札幌", "合計")
    ]
    text = sheet(tmp_path, rows, ("A1:A4", "B1:D1", "B2:C2"))
    assert rows_in(text) == rows_in("\n\n\n".join([*records, "※速報値"]))


def test_forms_on_sheets_are_records_of_names_and_values(tmp_path: Path) -> None:
    rows: list[list[object]] = [
        ["出張申請書"], [],
        ["申請者", None, "山本花子", "所属", "営業第二課"],
        ["期間", None, "6月3日から5日まで", "費用", 24000],
        ["目的", None, "説明会", None, None], [],
        ["日当", None, 3000, "宿泊費", 9000], [],
        ["注意: 七日前までに提出すること。"],
    ]  # fmt: skip
    merged = ("A1:E1", "A3:B3", "A4:B4", "A5:B5", "C5:E5", "A7:B7", "A9:E9")
    blocks = [
        "出張申請書",
        FORM,
        record(("日当", "3000"), ("宿泊費", "9000")),
        "注意: 七日前までに提出すること。",
    ]
    assert sheet(tmp_path, rows, merged) == "\n\n\n".join(blocks)


def test_a_form_above_a_table_on_a_sheet(tmp_path: Path) -> None:
    rows: list[list[object]] = [["Customer", "Harbour Ltd.", "Due date", date(2024, 6, 1)]]
    rows += [["Item", "Count", "Price", "Sum"], ["Desk", 2, 100, 200]]
    form = record(("Customer", "Harbour Ltd."), ("Due date", "2024-06-01"))
    assert rows_in(sheet(tmp_path, rows)) == [
        *rows_in(form),
        "Item: Desk; Count: 2; Price: 100; Sum: 200",
    ]


def test_marked_names_beside_values_on_a_sheet_and_struck_out_cells(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["Guest", "Ann"], ["Arrives", "Monday"], ["Leaves", "Friday"]):
        book.active.append(row)
        book.active.cell(book.active.max_row, 1).fill = openpyxl.styles.PatternFill(
            "solid", fgColor="DDDDDD"
        )
    book.active["B3"].font = openpyxl.styles.Font(strike=True)
    book.save(tmp_path / "a.xlsx")
    expected = record(("Guest", "Ann"), ("Arrives", "Monday"), ("Leaves", "~~Friday~~"))
    assert read_file(tmp_path / "a.xlsx", "a.xlsx")[0].text == f"# Sheet\n\n{expected}"


def test_headings_and_labels_of_groups_of_a_sheet_are_in_each_of_their_records(
    tmp_path: Path,
) -> None:
    rows: list[list[object]] = [
        ["Item", "Kind", "Price"],
        ["Drinks"], ["Tea", "black", 3], [None, "green", 4], ["Milk", "cold", 2], [None, "hot", 2],
        ["Food"], ["Cake", "dry", 5], [None, None, 16],
    ]  # fmt: skip
    drinks = [
        ("Tea", "black", "3"),
        ("Tea", "green", "4"),
        ("Milk", "cold", "2"),
        ("Milk", "hot", "2"),
    ]
    records = [
        record(("", "Drinks"), ("Item", item), ("Kind", kind), ("Price", price))
        for item, kind, price in drinks
    ]
    records.append(record(("", "Food"), ("Item", "Cake"), ("Kind", "dry"), ("Price", "5")))
    records.append(record(("", "Food"), ("Price", "16")))
    text = sheet(tmp_path, rows, ("A2:C2", "A7:C7"))
    assert rows_in(text) == rows_in("\n\n\n".join(records))


def test_marked_titles_tell_the_tables_of_a_sheet_apart(tmp_path: Path) -> None:
    rows: list[list[object]] = []
    for year, price in ((2023, 5), (2024, 6)):
        rows += [[f"{year}年度"], ["品名", "単価", "備考"], ["煎茶", price, "税込"], []]
    blocks = []
    for title, price in (("2023年度", "5"), ("2024年度", "6")):
        blocks += [title, record(("", title), ("品名", "煎茶"), ("単価", price), ("備考", "税込"))]
    assert rows_in(sheet(tmp_path, rows, ("A1:C1", "A5:C5"))) == rows_in("\n\n\n".join(blocks))


def test_a_title_above_a_form_or_names_is_a_line(tmp_path: Path) -> None:
    rows: list[list[object]] = [
        [None, "Travel"], [], ["Name", "Ann", "Purpose", "Trade fair", None], [],
        ["As of", 2024], ["Day", "From", "To", "By", "Sum"], ["Monday", "Kiel", "Ulm", "rail", 90],
    ]  # fmt: skip
    blocks = [
        "Travel",
        record(("Name", "Ann"), ("Purpose", "Trade fair")),
        "As of 2024",
        record(("Day", "Monday"), ("From", "Kiel"), ("To", "Ulm"), ("By", "rail"), ("Sum", "90")),
    ]
    assert rows_in(sheet(tmp_path, rows, ("B1:E1",))) == rows_in("\n\n\n".join(blocks))
    lines = ["Export,,", "As of,2024,", "Site,Visitors,Share", "Blog,1200,5"]
    text = read_file(write(tmp_path / "a.csv", "\n".join(lines)), "a.csv")[0].text
    assert rows_in(text) == ["Export", "As of 2024", "Site: Blog; Visitors: 1200; Share: 5"]


# PDF


def test_a_pdf_is_one_document_a_page(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    file = write(tmp_path / "a.pdf", pdf_bytes(["The cat sat.", "", "The dog ran."]))
    pages = read_file(file, "sub/a.pdf")
    assert [page.id_ for page in pages] == [f"sub/a.pdf#page={number}" for number in (1, 2, 3)]
    assert [page.text.strip() for page in pages] == ["The cat sat.", "", "The dog ran."]


def test_characters_that_stores_do_not_take_are_left_out_of_a_pdf(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    (page,) = read_file(write(tmp_path / "a.pdf", pdf_bytes([r"The \000cat sat."])), "a.pdf")
    assert page.text.strip() == "The cat sat."


def test_a_pdf_page_carries_its_label(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    labels = b"/Type /Catalog /PageLabels << /Nums [0 << /S /r >>] >>"
    file = write(tmp_path / "a.pdf", pdf_bytes(["One.", "Two."]).replace(b"/Type /Catalog", labels))
    assert [page.metadata["page_label"] for page in read_file(file, "a.pdf")] == ["i", "ii"]


def test_a_pdf_page_has_the_title_and_the_section_that_it_is_in(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    marks = [("Crew", 1), ("Flight", 3)]
    file = write(
        tmp_path / "a.pdf",
        pdf_bytes(["One.", "Two.", "Three.", "Four.", "Five."], title="Apollo", bookmarks=marks),
    )
    pages = read_file(file, "a.pdf")
    assert [page.metadata["title"] for page in pages] == ["Apollo"] * 5
    assert sections(pages) == [None, None, "Crew", None, "Flight"]


def test_what_the_bookmarks_of_a_pdf_name_are_headings(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    lines = ["# Light it.", "#", "2.1 the lamp of", "Karsted", "The lamp of Karsted burns", "oil."]
    page = ") Tj 0 -14 Td (".join(lines)
    marks = [("The tower", 0), ("the lamp of Karsted", 1)]
    file = write(
        tmp_path / "a.pdf", pdf_bytes(["Chapter 2) Tj 0 -14 Td (The tower", page], bookmarks=marks)
    )
    first, second = read_file(file, "a.pdf")
    assert first.text == "# Chapter 2 The tower"
    assert second.text.split("\n") == [
        "    # Light it.",
        "    #",
        "",
        "# 2.1 the lamp of Karsted",
        *lines[4:],
    ]


@pytest.mark.parametrize(
    "title",
    [
        "Microsoft Word - a.docx",
        "report.tex",
        "Untitled 1",
        "0000012927-23-000007",
        r"\(anonymous\)",
        r"\(unspecified\)",
        "Document1",
        " ",
    ],
)
def test_a_title_that_a_program_made_up_is_none(tmp_path: Path, title: str) -> None:
    pytest.importorskip("pypdfium2")
    (page,) = read_file(write(tmp_path / "a.pdf", pdf_bytes(["One."], title=title)), "a.pdf")
    assert "title" not in page.metadata


def test_a_word_that_the_end_of_a_line_parts_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    lines = "The docu-) Tj 0 -14 Td (mentation says) Tj 0 -14 Td (what is Debian-) Tj 0 -14 Td (Edu for."
    (page,) = read_file(write(tmp_path / "a.pdf", pdf_bytes([lines])), "a.pdf")
    assert page.text.split("\n") == ["The documentation", "says", "what is Debian-Edu", "for."]


def test_the_running_heads_and_the_numbers_of_pages_are_no_text(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    below = ") Tj 0 -14 Td ("
    heads = [f"{'Rum' if n > 5 else 'Tea'} in 1859 - {n + 4}" for n in range(12)]
    sheets = [
        [head, f"On day {n * n} it rained.", f"Page {n + 1} of 12"] for n, head in enumerate(heads)
    ]
    file = write(tmp_path / "a.pdf", pdf_bytes([below.join(sheet) for sheet in sheets]))
    first, *others = (page.text for page in read_file(file, "a.pdf"))
    assert first.split("\n") == sheets[0][:2]  # once, so that what they say is not lost
    assert others[5].split("\n") == sheets[6][:2]  # of the next chapter
    assert [text for n, text in enumerate(others, 1) if n != 6] == [
        f"On day {n * n} it rained." for n in range(1, 12) if n != 6
    ]


@pytest.mark.parametrize(
    ("first", "number"), [("The report", ""), ("The report", "NYC08"), ("Report NYC08", "NYC08")]
)
def test_what_stands_beside_the_numbers_of_pages_stays_once(
    tmp_path: Path, first: str, number: str
) -> None:
    pytest.importorskip("pypdfium2")
    below = ") Tj 0 -14 Td ("
    sheets = [f"Page 1 of 3{below}{first}"]
    sheets += [f"Page {n} of 3 {number}{below}On day {n} it rained." for n in (2, 3)]
    file = write(tmp_path / "a.pdf", pdf_bytes(sheets))
    lines = [line for page in read_file(file, "a.pdf") for line in page.text.split("\n")]
    kept = [number] if number and number not in first else []
    assert lines == [first, *kept, "On day 2 it rained.", "On day 3 it rained."]


@pytest.mark.parametrize("label", ["Question {}", "Test case TC-{} (10 points)", "Form No. {}"])
def test_what_is_counted_as_pages_are_by_chance_stays(tmp_path: Path, label: str) -> None:
    pytest.importorskip("pypdfium2")
    sheets = [
        [label.format(n), f"On day {n * n} it rained.", f"Rules of Karsted {n + 4}"]
        for n in range(1, 9)
    ]
    below = ") Tj 0 -14 Td ("
    file = write(tmp_path / "a.pdf", pdf_bytes(["Rules of Karsted", *map(below.join, sheets)]))
    pages = [page.text.split("\n") for page in read_file(file, "a.pdf")[1:]]
    assert pages == [sheets[0], *(sheet[:2] for sheet in sheets[1:])]


def test_rows_of_figures_at_the_edges_of_pages_are_no_numbers_of_pages(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    rows = [f"{n * n} {n * 7 % 5}" for n in range(8)]
    pages = read_file(write(tmp_path / "a.pdf", pdf_bytes(rows)), "a.pdf")
    assert [page.text for page in pages] == rows


def test_an_encrypted_pdf_is_an_error_that_says_so(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    keys = f"/O <{'41' * 32}> /U <{'42' * 32}> /P -4"
    locked = (
        f"trailer << /ID [<01> <01>] /Encrypt << /Filter /Standard /V 1 /R 2 {keys} >> ".encode()
    )
    file = write(tmp_path / "a.pdf", pdf_bytes(["Secret."]).replace(b"trailer << ", locked))
    with pytest.raises(UnreadableFileError, match="encrypted; save it again, without a password"):
        read_file(file, "a.pdf")


def test_a_damaged_pdf_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    with pytest.raises(UnreadableFileError, match=r"a\.pdf cannot be read .*damaged"):
        read_file(write(tmp_path / "a.pdf", b"%PDF-1.4 nothing"), "a.pdf")


def drawn(path: Path, *drawings: str) -> list[str]:
    """The texts of pages with a line above what is drawn, and one below it."""
    pytest.importorskip("pypdfium2")
    below = "BT /F1 12 Tf 72 100 Td (It ends.) Tj ET"
    data = pdf_bytes(
        ["It begins."] * len(drawings), drawings=[drawing + below for drawing in drawings]
    )
    return [page.text for page in read_file(write(path / "a.pdf", data), "a.pdf")]


def test_lines_of_a_pdf_rule_a_table(tmp_path: Path) -> None:
    rows = [
        ["Branch", "Sales", "", "Note"],
        ["", "Plan", "Actual", "kind"],
        ["Naha", "70", "64", "a|b"],
        ["Kobe", "", "7", "-"],
    ]
    rows[3][1] = "9"
    assert drawn(tmp_path, table_drawing(rows, [72, 200, 260, 320, 400], style="ruled")) == [
        "It begins.\n\n| Branch | Sales Plan | Sales Actual | Note kind |\n| --- | --- | --- | --- |\n"
        "| Naha | 70 | 64 | a\\|b |\n| Kobe | 9 | 7 | - |\n\nIt ends."
    ]


def rectangles(*sides: tuple[float, float, float, float]) -> str:
    """What draws rectangles: left, bottom, width, height."""
    return "".join(f"{left} {y} {width} {height} re S\n" for left, y, width, height in sides)


def test_a_table_in_a_box_with_a_chart_in_a_cell_of_a_pdf(tmp_path: Path) -> None:
    rows = [["Branch", "Plan", "Actual", "Trend"], ["Naha", "70", "64", " "]]
    table = table_drawing(rows, [82, 200, 260, 320, 400], style="ruled", height=30)
    bars = rectangles((330, 645, 8, 15), (342, 645, 8, 20), (354, 645, 8, 10))
    (text,) = drawn(tmp_path, table + bars + rectangles((72, 400, 340, 310)))
    assert text == (
        "It begins.\n\n| Branch | Plan | Actual | Trend |\n| --- | --- | --- | --- |\n"
        "| Naha | 70 | 64 |  |\n\nIt ends."
    )


def test_boxes_around_words_of_a_pdf_are_no_table(tmp_path: Path) -> None:
    lines = ["The tower of the town hall was built", "in 1412 by the masons of the old city"]
    words = rectangles(
        (50, 686, 120, 14), (170, 686, 40, 14), (50, 672, 70, 14), (120, 672, 90, 14)
    )
    first, second = (
        f"BT /F1 12 Tf 30 {y} Td ({line}) Tj ET\n"
        for y, line in zip((690, 676), lines, strict=True)
    )
    (text,) = drawn(tmp_path, first + second + words)
    assert "|" not in text


def test_a_japanese_form_with_lines_in_a_pdf_is_a_record(tmp_path: Path) -> None:
    rows = [
        ["申請者", "山本花子", "所属", "営業第二課"],
        ["期間", "六月三日から", "目的", "説明会"],
    ]
    (text,) = drawn(tmp_path, table_drawing(rows, [72, 160, 280, 340, 460], style="ruled"))
    expected = record(
        ("申請者", "山本花子"), ("所属", "営業第二課"), ("期間", "六月三日から"), ("目的", "説明会")
    )
    assert text == f"It begins.\n\n{expected}\n\nIt ends."


@pytest.mark.parametrize(("title", "name"), [("Airport", "Runway:"), ("空港", "滑走路：")])
def test_a_form_below_another_does_not_repeat_its_title(
    tmp_path: Path, title: str, name: str
) -> None:
    form = [[title, ""], [name, "12"], ["Length:", "1500"]]
    other = [["Wreckage", ""], ["Crew:", "Minor"], ["Fire:", "None"]]
    columns = [72, 240, 460]
    drawing = table_drawing(form, columns, style="ruled")
    (text,) = drawn(tmp_path, drawing + table_drawing(other, columns, 600, style="ruled"))
    records = [
        record((name, "12"), ("Length:", "1500")),
        record(("Crew:", "Minor"), ("Fire:", "None")),
    ]
    assert text.split("\n\n")[1:-1] == [title, records[0], "Wreckage", records[1]]


def test_underlined_words_do_not_divide_a_cell_of_a_pdf(tmp_path: Path) -> None:
    rows = [["Docket:", "It is at home.org"], ["Note:", "None"]]
    underline = "220 704 m 275 704 l S "
    below = "BT /F1 12 Tf 164 694 Td (since then.) Tj ET\n"
    drawing = table_drawing(rows, [72, 160, 460], 720, 40, style="ruled") + underline + below
    pairs = record(("Docket:", "It is at home.org since then."), ("Note:", "None"))
    assert drawn(tmp_path, drawing) == [f"It begins.\n\n{pairs}\n\nIt ends."]


@pytest.mark.parametrize("sign", ["", "$"])
def test_figures_below_one_another_in_a_pdf_are_a_table(tmp_path: Path, sign: str) -> None:
    rows = [
        ["", "2024", "2023"], ["Sales", f"{sign}1,204", f"{sign}998"],
        ["Cost of the sales", "(803)", "(777)"], ["Other", "", ""],
        ["Interest", "12", "-"], ["Profit", f"{sign}413", f"{sign}221"],
    ]  # fmt: skip
    (text,) = drawn(tmp_path, table_drawing(rows, [72, 250, 330, 410], style="right"))
    table = "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * 3, *rows[1:]])
    assert text == f"It begins.\n\n{table}\n\nIt ends."


@pytest.mark.parametrize(
    ("above", "at", "names"),
    [
        ("Six months", 320, ["Six months 2024", "Six months 2023"]),  # above both
        ("After audit", 272, ["After audit 2024", "2023"]),  # ends with the figures of the first
        ("After audit", 382, ["2024", "After audit 2023"]),
        ("Audited", 365, ["2024", "Audited 2023"]),
        ("六か月", 325, ["六か月 2024", "六か月 2023"]),
    ],
)
def test_a_name_in_the_middle_of_two_columns_of_a_pdf_is_that_of_both(
    tmp_path: Path, above: str, at: float, names: list[str]
) -> None:
    rows = [["", "2024", "2023"], ["Sales", "1,204", "998"], ["Cost", "(803)", "(777)"]]
    rows += [["Interest", "(12)", "(9)"], ["Profit", "389", "212"]]
    name = table_drawing([[above]], [at, 460])
    table = table_drawing(rows, [72, 240, 340, 450], top=684, style="right")
    (text,) = drawn(tmp_path, name + table)
    assert f"|  | {' | '.join(names)} |\n| --- | --- | --- |\n| Sales |" in text


def test_a_japanese_statement_without_lines_in_a_pdf(tmp_path: Path) -> None:
    rows = [
        ["科目", "前期", "当期"],
        ["現金", "1,204", "998"],
        ["売掛金", "803", "777"],
        ["資産合計", "2,007", "1,775"],
    ]
    (text,) = drawn(tmp_path, table_drawing(rows, [72, 250, 330, 410]))
    assert (
        "| 科目 | 前期 | 当期 |\n| --- | --- | --- |\n| 現金 | 1,204 | 998 |\n| 売掛金 | 803 | 777 |"
        in text
    )


def test_cells_that_go_on_below_are_whole(tmp_path: Path) -> None:
    rows = [
        ["Date", "Text", "Sum"],
        ["1 May", "Card payment,", "35.20"],
        ["", "Harbour Books", ""],
        ["3 May", "Rent", "980.00"],
    ]
    rows += [["9 May", "Salary", "2,400.00"]]
    (text,) = drawn(tmp_path, table_drawing(rows, [72, 130, 300, 380]))
    assert "| 1 May | Card payment, Harbour Books | 35.20 |\n| 3 May | Rent | 980.00 |" in text


def test_labels_that_go_on_below_are_whole(tmp_path: Path) -> None:
    rows = [
        ["", "2024", "2023"], ["Adjustments to the net", "", ""], ["income of the group:", "", ""],
        ["Depreciation", "12", "14"], ["Proceeds from the sale of", "", ""],
        ["stock and options", "48", "73"], ["Repayment of debt", "(103)", "(96)"],
        ["and of loans", "", ""], ["of which: loans", "(40)", "(41)"],
    ]  # fmt: skip
    (text,) = drawn(tmp_path, table_drawing(rows, [72, 250, 330, 410], style="right"))
    expected = [
        "Adjustments to the net income of the group: |  | ", "Depreciation | 12 | 14",
        "Proceeds from the sale of stock and options | 48 | 73",
        "Repayment of debt and of loans | (103) | (96)", "of which: loans | (40) | (41)",
    ]  # fmt: skip
    assert "\n".join(f"| {row} |" for row in expected) in text


def test_labels_between_the_rows_of_a_table_do_not_end_it(tmp_path: Path) -> None:
    rows = [["", "2024", "2023"], *([f"Asset {n}", f"{n}1", f"{n}2"] for n in range(3))]
    rows += [[label, "", ""] for label in ("Commitments", "Equity", "Shareholders", "Common")]
    rows += [[f"Share {n}", f"{n}3", f"{n}4"] for n in range(3)]
    (text,) = drawn(tmp_path, table_drawing(rows, [72, 250, 330, 410], style="right"))
    assert text.count("---") == 3
    assert all(text.count(f"| {label} |") == 1 for label, *_ in rows[1:])


def test_rows_far_apart_are_a_table_if_their_cells_line_up(tmp_path: Path) -> None:
    rows = [["", "2024", "2023"], ["Sales", "1,204", "998"], ["Cost", "(803)", "(777)"]]
    rows += [["Interest", "-", "12"], ["Profit", "401", "233"]]
    columns = [72, 250, 330, 410]
    drawing = table_drawing(rows[:2], columns, style="right")
    drawing += table_drawing(rows[2:], columns, top=650, height=40, style="right")
    (text,) = drawn(tmp_path, drawing)
    table = "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * 3, *rows[1:]])
    assert table in text


def test_years_below_two_merged_names_are_names_of_columns(tmp_path: Path) -> None:
    html = (
        "<table><tr><td><td colspan=2>The Harbour Ltd.</tr><tr><td><td colspan=2>31 December</tr>"
        "<tr><td>In EUR<td>2024<td>2023</tr><tr><td>Cash<td>7<td>8</tr><tr><td>Debt<td>5<td>3</tr></table>"
    )
    (document,) = read_file(write(tmp_path / "a.html", html.encode()), "a.html")
    assert document.text.split("\n")[0] == (
        "| In EUR | The Harbour Ltd. 31 December 2024 | The Harbour Ltd. 31 December 2023 |"
    )


def test_a_single_row_below_years_is_a_table(tmp_path: Path) -> None:
    rows = [["In percent", "2024", "2023"], ["The rate of the tax on what was earned", "17.8", "9"]]
    columns = [72, 310, 370, 430]
    other = table_drawing([["The year ended", "12.1", "8"]], columns, top=500, style="right")
    (text,) = drawn(tmp_path, table_drawing(rows, columns, style="right") + other)
    assert "| In percent | 2024 | 2023 |\n| --- | --- | --- |\n| The rate of the tax on" in text
    assert "\nThe year ended 12.1 8\n" in text


def test_tables_of_other_columns_are_tables_of_their_own(tmp_path: Path) -> None:
    upper = [
        ["At the end", "2024", "2023"],
        *([f"Asset {n}", f"{n},700,015", f"{n}25"] for n in range(3)),
    ]
    lower = [["In the year", "A", "B", "C"]]
    lower += [[f"Flow {n}", f"{n}3", f"{n}4", f"{n}5"] for n in range(3)]
    tables = table_drawing(upper, [72, 290, 350, 410], style="right")
    tables += table_drawing(lower, [72, 290, 310, 350, 410], top=636, style="right")
    (text,) = drawn(tmp_path, tables)
    assert "| At the end | 2024 | 2023 |\n| --- | --- | --- |\n| Asset 0 | 0,700,015 |" in text
    assert (
        "| In the year | A | B | C |\n| --- | --- | --- | --- |\n| Flow 0 | 03 | 04 | 05 |" in text
    )


@pytest.mark.parametrize(("note", "in_rows"), [("2", 1), ("\\(b\\)", 4)])
def test_notes_in_labels_do_not_end_a_table(tmp_path: Path, note: str, in_rows: int) -> None:
    rows = [["", "2024", "2023"], *([f"Asset {n}", f"{n}15", f"{n}25"] for n in range(11))]
    rows[8][0] = "All of its common shares at par"
    table = table_drawing(rows, [72, 290, 350, 410], style="right")
    for row in range(in_rows):
        table += f"BT /F1 6 Tf 190 {675 - 16 * row} Td ({note}) Tj ET\n"
    (text,) = drawn(tmp_path, table)
    assert "|  | 2024 | 2023 |\n| --- | --- | --- |\n| Asset 0 " in text
    assert "| Asset 10 | 1015 | 1025 |" in text


def test_names_above_the_lines_of_a_table_are_its_names(tmp_path: Path) -> None:
    columns = [72, 250, 330, 410]
    names = table_drawing([["At the end of", "2024", "2023"]], columns)
    rows = [["Sales", "$1,204", "$998"], ["Cost", "(803)", "(777)"], ["Profit", "401", "221"]]
    (text,) = drawn(tmp_path, names + table_drawing(rows, columns, top=684, style="ruled"))
    header = "| At the end of | 2024 | 2023 |\n| --- | --- | --- |\n"
    assert header + "| Sales | $1,204 | $998 |" in text
    prose = table_drawing([["All that follows is in millions of dollars of that year."]], [72, 500])
    (text,) = drawn(tmp_path, prose + table_drawing(rows, columns, top=684, style="ruled"))
    assert "that year.\n\n|  |  |  |\n" in text


def test_the_unshaded_first_row_of_a_table_is_in_it(tmp_path: Path) -> None:
    columns = [72, 250, 330, 410]
    above = table_drawing([["In May", "2024", "2023"], ["Sales", "1,204", "998"]], columns)
    rows = [["Cost", "(803)", "(777)"], ["Profit", "401", "221"]]
    (text,) = drawn(tmp_path, above + table_drawing(rows, columns, top=668, style="ruled"))
    assert (
        "| In May | 2024 | 2023 |\n| --- | --- | --- |\n| Sales | 1,204 | 998 |\n| Cost |" in text
    )


def test_a_table_has_the_names_of_one_above_with_the_same_columns(tmp_path: Path) -> None:
    columns = [72, 250, 330, 410]
    upper = [["In May", "2024", "2023"], *([f"Asset {n}", f"{n}1", f"{n}2"] for n in range(3))]
    lower = [[f"Share {n}", f"{n}30", f"{n}40"] for n in range(3)]
    others = [[f"Item {n}", f"{9 - n}50", f"{9 - n}"] for n in range(3)]
    tables = table_drawing(upper, columns, style="right")
    tables += table_drawing(lower, columns, top=560, style="right")
    tables += table_drawing(others, [72, 160, 240, 290], top=420, style="right")
    (text,) = drawn(tmp_path, tables)
    names = "| In May | 2024 | 2023 |\n| --- | --- | --- |\n"
    assert names + "| Asset 0 | 01 | 02 |" in text
    assert names + "| Share 0 | 030 | 040 |" in text
    assert "|  |  |  |\n| --- | --- | --- |\n| Item 0 | 950 | 9 |" in text


def test_a_table_that_goes_on_over_pages_has_its_names_on_each(tmp_path: Path) -> None:
    columns = [72, 200, 300]
    pages = [
        [["Guest", "Visits"], ["Ann", "7"]],
        [["Bob", "often"], ["Cy", "never"]],
        [["Dan", "rarely"], ["Ed", "12"]],
    ]
    drawings = [table_drawing(rows, columns, top=742, style="ruled") for rows in pages]
    data = pdf_bytes(["", "", ""], drawings=drawings)
    pytest.importorskip("pypdfium2")
    texts = [page.text for page in read_file(write(tmp_path / "a.pdf", data), "a.pdf")]
    names = "| Guest | Visits |\n| --- | --- |\n"
    rows = ["| Ann | 7 |", "| Bob | often |\n| Cy | never |", "| Dan | rarely |\n| Ed | 12 |"]
    assert texts == [names + row for row in rows]


LINES = [f"In {1990 + n} the port took {n * 37}" for n in range(9)]


@pytest.mark.parametrize(
    "drawing",
    [
        table_drawing(
            [[f"{n}. A chapter", str(n * 7)] for n in range(1, 9)], [72, 400, 440], style="right"
        ),
        table_drawing(
            [[str(n), f"Chapter {n}", str(n * 7)] for n in range(1, 9)],
            [72, 100, 400, 440],
            style="right",
        ),
        table_drawing([[line, line] for line in LINES], [72, 330, 590]),
        table_drawing([[line] for line in LINES], [72, 330]),
        table_drawing([["A box of text."]], [72, 330], style="ruled"),
        table_drawing([["A box of text."], ["Its second part."]], [72, 330], style="ruled"),
        table_drawing(
            [["Harbour Ltd.", "No. 118"], ["12 Quay Street", "1 May 2024"], ["Kobe", "Page 1"]],
            [72, 330, 500],
        ),
    ],
)
def test_contents_columns_of_prose_and_boxes_of_a_pdf_are_no_tables(
    tmp_path: Path, drawing: str
) -> None:
    (text,) = drawn(tmp_path, drawing)
    assert "|" not in text
    assert text.startswith("It begins.\n")
    assert text.endswith("\nIt ends.")


def test_what_code_puts_out_in_columns_is_no_table_of_a_pdf(tmp_path: Path) -> None:
    drawing = table_drawing(
        [[f"mean of {n}", f"{n}.5", f"{n}.25"] for n in range(4)], [72, 200, 280, 360]
    )
    pytest.importorskip("pypdfium2")
    data = pdf_bytes(["It begins."], drawings=[drawing])
    assert (
        "| mean of 1 | 1.5 | 1.25 |" in read_file(write(tmp_path / "a.pdf", data), "a.pdf")[0].text
    )
    data = data.replace(b"/BaseFont /Helvetica", b"/BaseFont /Courier  ")
    assert "|" not in read_file(write(tmp_path / "b.pdf", data), "b.pdf")[0].text


# HTML


def test_marked_labels_that_span_the_rows_below_are_no_names_of_columns(tmp_path: Path) -> None:
    page = (
        "<table><tr><th>年<th>Month<th>Sales<tr><th rowspan=3>2025<tr><td>May<td>$134"
        "<tr><td>June<td>$150</table>"
    )
    assert rows_in(html(tmp_path, page))[-2:] == [
        "年: 2025; Month: May; Sales: $134",
        "年: 2025; Month: June; Sales: $150",
    ]


def test_equations_of_a_page_are_read_once_with_powers_and_fractions(tmp_path: Path) -> None:
    power = "<msup><mn>10</mn><mn>6</mn></msup>"
    semantics = f"{power}<annotation>10^6</annotation>"
    page = (
        f"<p>A <math><mfrac><mn>1</mn><mn>2</mn></mfrac></math>"
        f"<p><span class=katex-mathml><math>{semantics}</math></span><span aria-hidden=true>106</span>"
        f'<p><span style="display: none;"><math>{semantics}</math></span><img src=x alt="10^6">'
    )
    assert html(tmp_path, page) == "A 1/2\n\n10^6\n\n10^6\n"


def test_equations_of_a_page_are_written_with_brackets_and_roots(tmp_path: Path) -> None:
    page = (
        "<p>So <math><mi>x</mi><mo>=</mo><mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow>"
        "<msqrt><mn>2</mn><mi>c</mi></msqrt></mfrac><mo>&#x2062;</mo><msub><mi>y</mi><mn>1</mn></msub>"
        "<mroot><mi>z</mi><mn>3</mn></mroot><msup><mi>broken</mi></msup></math>."
    )
    assert html(tmp_path, page) == "So x=(a+b)/√(2c)y_13√zbroken.\n"


def test_numbers_of_lines_and_what_asks_for_consent_are_left_out_and_who_is_quoted_is_not(
    tmp_path: Path,
) -> None:
    code = "<td class=linenos><pre>1\n2</pre><td><pre><span class=lineno>1</span>a\nb</pre>"
    page = (
        f"<div role=dialog>Cookies?</div><table><tr>{code}</table>"
        "<blockquote>Be brief.<footer>Ann Lee</footer></blockquote><footer>Imprint</footer>"
    )
    assert html(tmp_path, page) == "```\na\nb\n```\n\nBe brief.\n\nAnn Lee\n"


def test_menus_above_the_first_heading_are_left_out_and_other_lists_of_links_are_not(
    tmp_path: Path,
) -> None:
    menu = "<ul><li><a href=/>Home</a> <li><a href=/d>Docs</a><ol><li><a href=/e>FAQ</a></ol></ul>"
    cards = "<ul><li><a href=/1><h2>Rain</h2>It falls.</a></ul>"
    told = "<ul><li><a href=/n>News</a> of May</ul>"
    links = "- Home\n- Docs\n  1. FAQ\n"
    assert html(tmp_path, f"<p>Index</p>{menu}") == f"Index\n\n{links}"
    site = html(tmp_path, f"<div>{menu}</div>{told}{cards}{menu}")
    assert site.replace("\n\n", "\n") == f"- News of May\n## Rain\n- It falls.\n{links}"


def test_links_beside_one_another_are_words_of_their_own(tmp_path: Path) -> None:
    page = "<p>Tags:<a id=x></a><a id=y></a> <a href=a>berries</a><a href=b>jam</a>."
    page += "<pre><a>List</a><a>[]</a></pre>"
    assert html(tmp_path, page) == "Tags: berries jam.\n\n```\nList[]\n```\n"


def test_what_leads_about_a_site_is_left_out(tmp_path: Path) -> None:
    places = "<ul><li><a href=#a>Rain</a><ul><li><a href=#b>Hail</a></ul></ul>"
    page = "<!DOCTYPE html><a href=#a>Skip to content</a><header><h1>Weather</h1>"
    page += f"<ul><li><a href=/de>Deutsch</a></ul></header>{places}"
    page += "<p>Next: <a rel=next href=b>Snow</a>, Up: <a accesskey=u href=c>Top</a></p>"
    page += (
        "<h2 id=a>Rain<a href=#a>¶</a></h2><ul><li><a href=#>Menu</a><li><a href=/d>Dew</a></ul>"
    )
    page += "<h2>Wind<a class=headerlink href=#w>\uf0c1</a>"
    page += (
        "<span class=mw-editsection>[<a href=e>edit</a>]</span></h2><div class=footer>2020</div>"
    )
    assert html(tmp_path, page) == "# Weather\n\n## Rain\n\n- Menu\n- Dew\n\n## Wind\n"


def test_html_becomes_text_without_scripts_styles_and_navigation(tmp_path: Path) -> None:
    source = (
        "<style>p{}</style><nav>Home</nav><p>Rain &amp; "
        "<b>wind</b>.</p><script>x()</script><footer>2020</footer>"
    )
    source += "<div style='color:red;Display: none'><p>Snow.</div><p hidden>Hail."
    source += '<div class="x toc"><p>Contents<ul><li>Rain<li>Wind</ul></div>'
    assert html(tmp_path, source) == "Rain & wind.\n"


def test_what_the_reader_of_a_page_unfolds_is_read(tmp_path: Path) -> None:
    page = "<h3><button>Can I return it?</button></h3><div role=region aria-labelledby=r hidden>"
    page += "For 30 days.</div><div role=tabpanel style='display: none'>Linux</div>"
    page += "<dl><dt><button>Fee</button><dd>5 euros</dl><button>Buy</button>"
    page += "<p hidden=until-found>Ask.<p hidden>Hail."
    expected = "### Can I return it?\n\nFor 30 days.\n\nLinux\n\nFee: 5 euros\n\nAsk.\n"
    assert html(tmp_path, page) == expected


def test_html_headings_lists_and_paragraphs_become_markdown(tmp_path: Path) -> None:
    source = (
        "<h1>Tea</h1><p>Kinds:</p><ul><li>green<ul><li>sencha</ul><li>black</ul>"
        "<h2>Use</h2><ol><li>boil<li>pour</ol>"
    )
    assert html(tmp_path, source) == (
        "# Tea\n\nKinds:\n\n- green\n  - sencha\n- black\n\n## Use\n\n1. boil\n2. pour\n"
    )


def test_rows_and_cells_that_nothing_ends_are_ended_by_the_next(tmp_path: Path) -> None:
    source = "<table><tr><td><b>琵琶</b>湖<td>in Shiga<br>and nowhere else<tr><td>諏訪湖<td>"
    assert html(tmp_path, source) == "- 琵琶湖: in Shiga and nowhere else\n- 諏訪湖\n"
    # in time that grows with their number
    many = html(tmp_path, "<table>" + "<tr><td>a<td>b" * 2000)
    assert many.count("- a: b\n") == 2000


def test_the_pages_of_an_rfc_are_read_without_their_first_and_last_lines(tmp_path: Path) -> None:
    last = (
        "\n\n\nExample     Standards Track     [Page {}]\n\f\nRFC 9999   Lamps   March 2024\n\n\n"
    )
    pages = ["   A lamp", "   MUST be lit.", "2.  Oil\n\n   It burns."]
    source = "".join(page + last.format(number) for number, page in enumerate(pages, 1))
    file = write(tmp_path / "rfc.txt", source)
    text = read_file(file, "rfc.txt")[0].text
    assert text.rstrip() == "   A lamp\n   MUST be lit.\n\n2.  Oil\n\n   It burns."


def test_a_definition_begins_with_its_term(tmp_path: Path) -> None:
    source = (
        "<dl><dt>Ctrl</dt><dd><p>Draws a line.</p><p>With Shift, too.</p></dd><dt>返品できますか？<dd>はい。"
        "<dt>Keys:<dd><ul><li>A<li>B</ul><dt>One</dt><dt>Two<dd>Either.<dd>Or.<dt>Hue</dl>"
    )
    assert html(tmp_path, source) == (
        "Ctrl: Draws a line.\n\nWith Shift, too.\n\n返品できますか？ はい。\n\n"
        "Keys:\n\n- A\n- B\n\nOne, Two: Either.\n\nOne, Two: Or.\n\nHue\n"
    )


def test_numbers_beside_the_items_of_a_law_are_read_with_them(tmp_path: Path) -> None:
    row = "<tr><td><p>{}</p></td><td>{}</td></tr>"
    inner = f"<table>{row.format('i)', 'dim')}</table>"
    source = (
        "<h3><span>§ 2</span><span>Lamps</span></h3><p>They are:</p>"
        f"<table>{row.format('(a)', '<p>lit;</p>')}</table>"
        f"<table>{row.format('(b)', '<p>not:</p>' + inner)}</table><p>Also:</p>"
        "<dl><dt>1.</dt><dd>oiled</dd><dt>2.</dt><dd>cleaned.</dd></dl>"
        f"<table>{row.format('1', 'Tom')}{row.format('2', 'Ann')}</table>"
    )
    assert html(tmp_path, source) == (
        "### § 2 Lamps\n\nThey are:\n\n- (a) lit;\n- (b) not:\n  - i) dim\n\nAlso:\n\n"
        "1. oiled\n2. cleaned.\n- 1: Tom\n- 2: Ann\n"
    )


def test_a_paragraph_of_a_page_that_looks_like_a_heading_is_none(tmp_path: Path) -> None:
    source = "<h1>Shell</h1><p># comes before what root types.</p><p>a<br>== b ==</p>"
    assert html(tmp_path, source) == (
        "# Shell\n\n\\# comes before what root types.\n\na\n\\== b ==\n"
    )


def test_tables_that_only_lay_out_a_page_are_none(tmp_path: Path) -> None:
    note = "<table><tr><td><img src=note.png><td>Note<tr><td><td>It rains.</table>"
    assert html(tmp_path, note) == "Note\n\nIt rains.\n"
    assert (
        html(tmp_path, "<table><tr><td>Home<br>News<td>Welcome.</table>")
        == "Home\nNews\n\nWelcome.\n"
    )
    article = "It rained again. " * 80
    assert "|" not in html(
        tmp_path, f"<table><tr><td>News<td>{article}<tr><td>Home<td>2020</table>"
    )
    assert html(tmp_path, "<table><tr><th>Phone<td>03-1234</table>") == "- Phone: 03-1234\n"


def test_an_html_table_gets_pipes_and_cells_that_span_rows_are_repeated(tmp_path: Path) -> None:
    source = (
        "<table><tr><th>Lake<th>Year<th>Depth"
        "<tr><td rowspan=2>Biwa<td>1990<td>104<tr><td>2000<td>a|b</table>"
    )
    assert html(tmp_path, source) == (
        "| Lake | Year | Depth |\n| --- | --- | --- |\n| Biwa | 1990 | 104 |\n| Biwa | 2000 | a\\|b |\n"
    )


def test_signs_in_columns_of_their_own_are_read_with_their_figures(tmp_path: Path) -> None:
    rows = [
        ["<td colspan=3>2024", "<td colspan=3>2023"],
        ["<td>$<td>1,204<td>", "<td>$<td>998<td>"],
        ["<td colspan=2>(803<td>)", "<td colspan=2>(777<td>)"],
        ["<td colspan=2>33.5<td>%", "<td colspan=2>—<td>%"],
        ["<td>$<td>401<td>", "<td>$<td>(9<td>)"],
    ]
    labels = ["", "Sales", "Cost", "Margin", "Profit"]
    lines = [f"<tr><td>{label}{''.join(row)}" for label, row in zip(labels, rows, strict=True)]
    file = write(tmp_path / "a.html", f"<table>{''.join(lines)}</table>".encode())
    (document,) = read_file(file, "a.html")
    assert document.text == (
        "|  | 2024 | 2023 |\n| --- | --- | --- |\n| Sales | $1,204 | $998 |\n| Cost | (803) | (777) |\n"
        "| Margin | 33.5% | —% |\n| Profit | $401 | $(9) |\n"
    )


def test_a_column_of_units_is_not_read_with_the_labels_before_it(tmp_path: Path) -> None:
    rows = ["<tr><th>Rate<th>Unit<th>Value", "<tr><td>Tax<td>%<td>9.6", "<tr><td>Duty<td>%<td>4.1"]
    file = write(tmp_path / "a.html", f"<table>{''.join(rows)}</table>".encode())
    (document,) = read_file(file, "a.html")
    assert "| Tax | % | 9.6 |\n| Duty | % | 4.1 |" in document.text


def test_the_grid_in_which_javadoc_lists_methods_is_a_table(tmp_path: Path) -> None:
    names = "<div class='table-header col-first'>Type</div><div class='table-header'>Method</div>"
    grid = f"<div class=summary-table>{names}<div>int</div><div>a()</div><div>R</div><div>b()</div></div>"
    expected = "| Type | Method |\n| --- | --- |\n| int | a() |\n| R | b() |\n"
    assert html(tmp_path, grid) == expected


def test_tags_within_a_line_of_a_cell_part_no_words(tmp_path: Path) -> None:
    table = "<table><tr><th>名前<th>Form<tr><td><p><b>注</b>意</p><p>欄</p><td><p><i>x</i>()<br>y</table>"
    assert html(tmp_path, table).endswith("| 注意 欄 | x() y |\n")


def test_a_table_that_lays_out_a_page_is_no_table(tmp_path: Path) -> None:
    assert (
        html(tmp_path, "<table><tr><td><h1>Tea</h1><p>Green.</p><td>Aside.</table>")
        == "# Tea\n\nGreen.\n\nAside.\n"
    )


def test_line_ends_between_japanese_characters_are_no_spaces(tmp_path: Path) -> None:
    assert html(tmp_path, "<p>日本\n  最大の\n湖</p>") == "日本最大の湖\n"


def test_readings_above_kanji_are_left_out(tmp_path: Path) -> None:
    assert (
        html(tmp_path, "<ruby>琵琶湖<rp>(</rp><rt>びわこ</rt><rp>)</rp></ruby>は湖。")
        == "琵琶湖は湖。\n"
    )


def test_code_in_html_keeps_its_lines(tmp_path: Path) -> None:
    assert html(tmp_path, "<pre>if x:\n    y()</pre>") == "```\nif x:\n    y()\n```\n"


def test_lines_of_code_that_tags_end_are_lines(tmp_path: Path) -> None:
    lines = "<div>if x:</div><div>    y()\n</div><div>\n</div><div>z()</div>"
    assert (
        html(tmp_path, f"<pre><p><b>py</b></p><pre>{lines}</pre></pre>")
        == "```\npy\nif x:\n    y()\n\nz()\n```\n"
    )
    numbers = "<td><pre><span>1</span><br><span>2</span><br></pre>"
    code = "<td><pre><code><i style='user-select:none'>1</i>a<br><span>b</span><br></code></pre>"
    assert html(tmp_path, f"<table><tr>{numbers}{code}</table>") == "```\na\nb\n```\n"


def test_code_of_several_lines_in_a_paragraph_is_a_block(tmp_path: Path) -> None:
    code = "<code>&lt;Location /a&gt;<br>\n<i>&nbsp;&lt;tr&gt;\nall</i><br>&lt;/Location&gt;</code>"
    expected = "Put:\n\n```\n<Location /a>\n \xa0<tr> all\n</Location>\n```\n\nIn `<tr>`.\n"
    assert html(tmp_path, f"<p>Put: {code} In <code>&lt;tr&gt;</code>.</p>") == expected


def test_a_page_without_end_tags_keeps_its_text(tmp_path: Path) -> None:
    assert html(tmp_path, "<html><head><title>T</title><body><p>One<p>Two") == "One\n\nTwo\n"


@pytest.mark.parametrize(
    "tag", ["<div>", "<ul><li>", "<del>", "<table><tr><td>", "<dl><dt>", "<sup>"]
)
def test_a_page_that_nests_deeply_is_read(tmp_path: Path, tag: str) -> None:
    assert "深い港" in html(tmp_path, f"<p>Top</p>{tag * 3000}深い港")


@pytest.mark.filterwarnings("error::bs4.XMLParsedAsHTMLWarning")
def test_a_page_that_begins_as_xml_is_read_without_a_warning(tmp_path: Path) -> None:
    head = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<html '
        'xmlns="http://www.w3.org/1999/xhtml"><head><title>港</title>'
    )
    page = f"{head}</head><body><p>{'函館の港は1859年に開かれた。' * 40}</p></body></html>"
    assert html(tmp_path, page).startswith("函館の港は1859年に開かれた。")


def test_a_page_has_its_title_in_its_metadata(tmp_path: Path) -> None:
    file = write(tmp_path / "a.html", "<title>Lake Biwa</title><p>Text")
    assert read_file(file, "a.html")[0].metadata["title"] == "Lake Biwa"


def test_a_page_is_read_in_the_encoding_that_it_declares(tmp_path: Path) -> None:
    file = write(tmp_path / "a.htm", '<meta charset="iso-8859-1"><p>Größe'.encode("latin-1"))
    assert read_file(file, "a.htm")[0].text == "Größe\n"


def test_a_slide_of_very_many_boxes_is_read(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[6])
    for number in range(1_100):  # each gap is wider than the one before
        box = slide.shapes.add_textbox(0, 1_000 * number * (number + 1), 500, 500)
        box.text_frame.text = f"box {number}."
    show.save(str(tmp_path / "boxes.pptx"))
    (document,) = read_file(tmp_path / "boxes.pptx", "boxes.pptx")
    assert document.text.index("box 7.") < document.text.index("box 1099.")
