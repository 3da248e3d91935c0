"""Reading files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.reading import UnreadableFileError, document_ids, find_files, read_file
from llama_pack_densex.reading.encodings import decode
from tests.pdf_file import pdf_bytes

JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"


def write(path: Path, content: str | bytes = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def names(*paths: Path, leave_out: tuple[Path, ...] = ()) -> list[str]:
    return [file.name for file in find_files(paths, leave_out)[0]]


def ids(*paths: Path, indexed: dict[str, str] | None = None) -> set[str]:
    return set(document_ids(find_files(paths)[0], indexed or {}).values())


def html(path: Path, source: str) -> str:
    return read_file(write(path / "page.html", source), "page.html")[0].text


# which files


def test_a_folder_is_read_with_its_subfolders_in_order(tmp_path: Path) -> None:
    for name in ("b.md", "a/z.md", "a.md"):
        write(tmp_path / name)
    assert names(tmp_path) == ["a.md", "b.md", "a/z.md"]


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


def test_a_file_that_is_in_two_of_the_folders_belongs_to_the_outer_one(tmp_path: Path) -> None:
    write(tmp_path / "inner" / "a.md")
    assert names(tmp_path / "inner", tmp_path) == ["inner/a.md"]


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


# what their documents are called


@pytest.mark.parametrize("name", ["日本語 の.md", "a b/'c'.md", "-dash.md", "new\nline.md", "[bold].md"])
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
    assert ids(write(tmp_path / "new/a.md"), indexed={str(tmp_path / "old/a.md"): "a.md"}) == {"a.md"}


# text


def test_a_file_keeps_the_metadata_of_simple_directory_reader(tmp_path: Path) -> None:
    (document,) = read_file(write(tmp_path / "a.md", "# Title"), "a.md")
    assert document.id_ == "a.md"
    assert document.metadata["file_path"] == str(tmp_path / "a.md")
    assert {"file_name", "file_type", "file_size", "last_modified_date"} <= document.metadata.keys()
    assert "file_name" in document.excluded_embed_metadata_keys
    assert "file_path" not in document.excluded_llm_metadata_keys


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp932", "euc_jp", "iso2022_jp"])
def test_text_is_read_in_the_encodings_of_japan(tmp_path: Path, encoding: str) -> None:
    file = write(tmp_path / "a.txt", JAPANESE.encode(encoding))
    assert read_file(file, "a.txt")[0].text == JAPANESE


@given(st.text())
def test_any_utf_8_text_is_read_as_it_is(text: str) -> None:
    if "\x1b$" not in text and not text.startswith("\ufeff"):
        assert decode(text.encode()) == text


@given(st.text(alphabet="あいうえおかきくけこアイウエオ日本語東京大学人間山川。、「」ー", min_size=4))
def test_shift_jis_and_euc_jp_are_told_apart(text: str) -> None:
    assert decode(("これは" + text).encode("euc_jp")) == "これは" + text
    assert decode(("これは" + text).encode("cp932")) == "これは" + text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is no text"),
        (b"x" * 10000 + b"\0", "NUL"),
        ("Die Größe ist müßig.".encode("latin-1"), "neither UTF-8 nor Shift_JIS"),
    ],
)
def test_what_is_no_text_is_an_error_that_names_the_file(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(UnreadableFileError, match=reason) as error:
        read_file(write(tmp_path / "a.bin", content), "a.bin")
    assert str(tmp_path / "a.bin") in str(error.value)


def test_a_pipe_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFileError, match="no regular file"):
        read_file(tmp_path / "pipe", "pipe")


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.md").symlink_to("nowhere")
    with pytest.raises(UnreadableFileError, match="No such file"):
        read_file(tmp_path / "a.md", "a.md")


# PDF


def test_a_pdf_is_one_document_a_page(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    file = write(tmp_path / "a.pdf", pdf_bytes(["The cat sat.", "", "The dog ran."]))
    pages = read_file(file, "sub/a.pdf")
    assert [page.id_ for page in pages] == [f"sub/a.pdf#page={number}" for number in (1, 2, 3)]
    assert [page.text.strip() for page in pages] == ["The cat sat.", "", "The dog ran."]


def test_a_pdf_page_carries_its_label(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    file = write(tmp_path / "a.pdf", pdf_bytes(["One.", "Two."], roman=True))
    assert [page.metadata["page_label"] for page in read_file(file, "a.pdf")] == ["i", "ii"]


def test_a_damaged_pdf_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    with pytest.raises(UnreadableFileError, match=r"a\.pdf cannot be read as a PDF"):
        read_file(write(tmp_path / "a.pdf", b"%PDF-1.4 nothing"), "a.pdf")


# HTML


def test_html_becomes_text_without_scripts_styles_and_navigation(tmp_path: Path) -> None:
    source = "<style>p{}</style><nav>Home</nav><p>Rain &amp; <b>wind</b>.</p><script>x()</script><footer>2020</footer>"
    assert html(tmp_path, source) == "Rain & wind.\n"


def test_html_headings_lists_and_paragraphs_become_markdown(tmp_path: Path) -> None:
    source = (
        "<h1>Tea</h1><p>Kinds:</p><ul><li>green<ul><li>sencha</ul><li>black</ul><h2>Use</h2><ol><li>boil<li>pour</ol>"
    )
    assert html(tmp_path, source) == ("# Tea\n\nKinds:\n\n- green\n  - sencha\n- black\n\n## Use\n\n1. boil\n2. pour\n")


def test_an_html_table_gets_pipes_and_cells_that_span_rows_are_repeated(tmp_path: Path) -> None:
    source = "<table><tr><th>Lake<th>Year<th>Depth<tr><td rowspan=2>Biwa<td>1990<td>104<tr><td>2000<td>a|b</table>"
    assert html(tmp_path, source) == (
        "| Lake | Year | Depth |\n| --- | --- | --- |\n| Biwa | 1990 | 104 |\n| Biwa | 2000 | a\\|b |\n"
    )


def test_a_table_that_lays_out_a_page_is_no_table(tmp_path: Path) -> None:
    assert html(tmp_path, "<table><tr><td><h1>Tea</h1><p>Green.</p><td>Aside.</table>") == "# Tea\n\nGreen.\n\nAside.\n"


def test_line_ends_between_japanese_characters_are_no_spaces(tmp_path: Path) -> None:
    assert html(tmp_path, "<p>日本\n  最大の\n湖</p>") == "日本最大の湖\n"


def test_readings_above_kanji_are_left_out(tmp_path: Path) -> None:
    assert html(tmp_path, "<ruby>琵琶湖<rp>(</rp><rt>びわこ</rt><rp>)</rp></ruby>は湖。") == "琵琶湖は湖。\n"


def test_code_in_html_keeps_its_lines(tmp_path: Path) -> None:
    assert html(tmp_path, "<pre>if x:\n    y()</pre>") == "```\nif x:\n    y()\n```\n"


def test_a_page_without_end_tags_keeps_its_text(tmp_path: Path) -> None:
    assert html(tmp_path, "<html><head><title>T</title><body><p>One<p>Two") == "One\n\nTwo\n"


def test_a_page_that_nests_deeply_is_read(tmp_path: Path) -> None:
    assert html(tmp_path, "<div>" * 3000 + "deep" + "</div>" * 3000) == "deep\n"


def test_a_page_has_its_title_in_its_metadata(tmp_path: Path) -> None:
    file = write(tmp_path / "a.html", "<title>Lake Biwa</title><p>Text")
    assert read_file(file, "a.html")[0].metadata["title"] == "Lake Biwa"


def test_a_page_is_read_in_the_encoding_that_it_declares(tmp_path: Path) -> None:
    file = write(tmp_path / "a.htm", '<meta charset="iso-8859-1"><p>Größe'.encode("latin-1"))
    assert read_file(file, "a.htm")[0].text == "Größe\n"
