"""Documents as people have them, from any kind of file to an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from llama_index.core import Document
from llama_index.core.schema import BaseNode, IndexNode, TextNode

from llama_pack_densex import (
    DenseXRetrievalPack,
    Passage,
    PropositionNodeParser,
    check_propositions,
)
from llama_pack_densex.node_parsers.metadata import CONTEXT_KEY, embedded_text
from llama_pack_densex.reading import read_file
from tests.test_reading import numbered, paragraph, rows_of, word, word_file, word_table

Rows = Sequence[Sequence[str]]


def nodes_of(documents: list[Document]) -> list[BaseNode]:
    return PropositionNodeParser().get_nodes_from_documents(documents)


def passages(nodes: Sequence[BaseNode]) -> list[TextNode]:
    return [
        node for node in nodes if isinstance(node, TextNode) and not isinstance(node, IndexNode)
    ]


def units(documents: list[Document]) -> list[str]:
    return [node.get_content() for node in nodes_of(documents) if isinstance(node, IndexNode)]


def pack_of(documents: list[Document]) -> DenseXRetrievalPack:
    return DenseXRetrievalPack(documents, "none", "none", "none")


# Tables


def markdown_table(rows: Rows) -> str:
    names, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([names, "|---" * len(rows[0]) + "|", *others])


def as_markdown(path: Path, rows: Rows) -> Path:
    path.write_text(f"# Parts\n\n{markdown_table(rows)}\n", encoding="utf-8")
    return path


def as_html(path: Path, rows: Rows) -> Path:
    names, *others = ("|".join(row) for row in rows)
    table = f"<table>{rows_of(names, tag='th')}{rows_of(*others)}</table>"
    path.write_text(f"<h1>Parts</h1>{table}", encoding="utf-8")
    return path


def as_word(path: Path, rows: Rows) -> Path:
    pytest.importorskip("mammoth", reason="reads Word files")
    return word_file(path, paragraph("Parts"), word_table(*map("|".join, rows)))


def as_sheet(path: Path, rows: Rows) -> Path:
    openpyxl = pytest.importorskip("openpyxl", reason="reads sheets")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append([int(cell) if cell.isdigit() else cell for cell in row])
    book.save(path)
    return path


def as_slides(path: Path, rows: Rows) -> Path:
    """Thirty rows a slide, each slide with the names."""
    pptx = pytest.importorskip("pptx", reason="reads slides")
    show = pptx.Presentation()
    for start in range(1, len(rows), 30):
        slide = show.slides.add_slide(show.slide_layouts[5])
        slide.shapes.title.text = "Parts"
        on_slide = [rows[0], *rows[start : start + 30]]
        table = slide.shapes.add_table(len(on_slide), len(rows[0]), 0, 0, 9, 9).table
        for y, row in enumerate(on_slide):
            for x, cell in enumerate(row):
                table.cell(y, x).text = cell
    show.save(path)
    return path


def as_csv(path: Path, rows: Rows) -> Path:
    path.write_text("\n".join(map(",".join, rows)), encoding="utf-8")
    return path


Writer = Callable[[Path, Rows], Path]
WRITERS: dict[str, Writer] = {
    "md": as_markdown, "html": as_html, "docx": as_word, "xlsx": as_sheet, "pptx": as_slides, "csv": as_csv,
}  # fmt: skip
IN_EACH_FORMAT = pytest.mark.parametrize("ending", [*WRITERS])
PRICES = [("Part", "Material", "In stock", "Price in yen")]
PRICES += [
    (f"P{n:03}", ("steel", "brass")[n % 2], str(10 + n), str(100 + 7 * n)) for n in range(150)
]
PRICE = "What is the price in yen of P120?"
PRICES_JA = [("品番", "材質", "在庫数", "価格（円）")]
PRICES_JA += [
    (f"甲{n:03}", ("鋼", "真鍮")[n % 2], str(10 + n), str(100 + 7 * n)) for n in range(150)
]
BOTH = pytest.mark.parametrize("rows", [PRICES, PRICES_JA], ids=["en", "ja"])


def written(folder: Path, ending: str, rows: Rows) -> list[Document]:
    """The documents of a file with a table."""
    name = f"parts.{ending}"
    return read_file(WRITERS[ending](folder / name, rows), name)


@IN_EACH_FORMAT
@BOTH
def test_every_passage_of_a_long_table_names_its_columns(
    tmp_path: Path, ending: str, rows: Rows
) -> None:
    cut = passages(nodes_of(written(tmp_path, ending, rows)))
    assert len(cut) > 4
    for passage in cut:
        known = f"{passage.metadata[CONTEXT_KEY]}{passage.text}"
        assert all(name in known for name in rows[0])


@IN_EACH_FORMAT
@BOTH
def test_each_row_of_a_long_table_can_be_understood_alone(
    tmp_path: Path, ending: str, rows: Rows
) -> None:
    stated = units(written(tmp_path, ending, rows))
    named = (zip(rows[0], row, strict=True) for row in rows[1:])
    expected = ["; ".join(f"{name}: {cell}" for name, cell in row) for row in named]
    assert [unit for unit in stated if ";" in unit] == expected


@IN_EACH_FORMAT
@pytest.mark.parametrize(
    ("rows", "question", "answer"),
    [
        (PRICES, PRICE, "Part: P120; Material: steel; In stock: 130; Price in yen: 940"),
        (
            PRICES_JA,
            "甲120の価格は何円ですか。",
            "品番: 甲120; 材質: 鋼; 在庫数: 130; 価格（円）: 940",
        ),
    ],
    ids=["en", "ja"],
)
def test_a_question_about_a_row_is_answered_by_it(
    tmp_path: Path, ending: str, rows: Rows, question: str, answer: str
) -> None:
    assert f"{answer}[^" in str(pack_of(written(tmp_path, ending, rows)).run(question))


@IN_EACH_FORMAT
def test_the_row_that_was_quoted_is_found_in_the_document(tmp_path: Path, ending: str) -> None:
    documents = written(tmp_path, ending, PRICES)
    texts = {document.id_: document.text for document in documents}
    citation = pack_of(documents).run(PRICE).metadata["citations"][0]
    (row,) = (unit for unit in citation["propositions"] if "P120" in unit["text"])
    quoted = texts[citation["document"]][row["start"] : row["end"]]
    assert "P120" in quoted
    assert "940" in quoted
    assert "P121" not in quoted


GROUPS = [("Item", "Unit", "Price"), ("Fruit", "", ""), ("Apple", "kg", "3")]
GROUPS += [("野菜", "", ""), ("人参", "本", "2")]


@pytest.mark.parametrize("ending", ["md", "html", "docx", "pptx"])
def test_a_row_has_the_name_of_its_group_before_its_cells(tmp_path: Path, ending: str) -> None:
    nodes = [
        node for node in nodes_of(written(tmp_path, ending, GROUPS)) if isinstance(node, IndexNode)
    ]
    assert [node.text for node in nodes if ";" in node.text] == [
        "Fruit; Item: Apple; Unit: kg; Price: 3",
        "野菜; Item: 人参; Unit: 本; Price: 2",
    ]


# Lists


def list_in_markdown(path: Path) -> Path:
    path.write_text("Bring:\n\n- fruit\n  - りんご\n- bread\n", encoding="utf-8")
    return path


def list_in_html(path: Path) -> Path:
    path.write_text("<p>Bring:<ul><li>fruit<ul><li>りんご</ul><li>bread</ul>", encoding="utf-8")
    return path


def list_in_word(path: Path) -> Path:
    pytest.importorskip("mammoth", reason="reads Word files")
    levels = "".join(
        f'<w:lvl w:ilvl="{level}"><w:numFmt w:val="bullet"/></w:lvl>' for level in range(2)
    )
    numbering = f'<w:abstractNum w:abstractNumId="9">{levels}</w:abstractNum>'
    numbering += '<w:num w:numId="1"><w:abstractNumId w:val="9"/></w:num>'
    items = [("fruit", 0), ("りんご", 1), ("bread", 0)]
    body = [paragraph("Bring:"), *(paragraph(text, numbered(level)) for text, level in items)]
    return word_file(path, *body, word__numbering=word(numbering, "numbering"))


LISTS = {"md": list_in_markdown, "html": list_in_html, "docx": list_in_word}


@pytest.mark.parametrize("ending", [*LISTS])
def test_an_item_has_the_items_around_it_and_its_lead_in_above_it(
    tmp_path: Path, ending: str
) -> None:
    documents = read_file(LISTS[ending](tmp_path / f"a.{ending}"), f"a.{ending}")
    nodes = [node for node in nodes_of(documents) if isinstance(node, IndexNode)]
    assert {node.text: node.metadata[CONTEXT_KEY] for node in nodes} == {
        "Bring:": "",
        "- fruit": "Bring:",
        "- りんご": "Bring:\n- fruit",
        "- bread": "Bring:",
    }


# Questions and terms


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "a.md",
            "# FAQ\n\n<details>\n<summary>返品できますか？</summary>\n\n30日以内なら可能。\n\n</details>\n",
        ),
        ("a.md", "# FAQ\n\n**返品できますか？**\n\n30日以内なら可能。\n"),
        (
            "a.html",
            "<h1>FAQ</h1><details><summary>返品できますか？</summary><p>30日以内なら可能。</details>",
        ),
        ("a.html", "<h1>FAQ</h1><p><b>返品できますか？</b><p>30日以内なら可能。"),
        ("a.html", "<h1>FAQ</h1><h2>返品できますか？</h2><p>30日以内なら可能。"),
    ],
)
def test_a_question_that_stands_as_a_heading_is_one(tmp_path: Path, name: str, source: str) -> None:
    (tmp_path / name).write_text(source, encoding="utf-8")
    (unit,) = (
        node for node in nodes_of(read_file(tmp_path / name, name)) if isinstance(node, IndexNode)
    )
    assert unit.text == "30日以内なら可能。"
    assert unit.metadata["section"] == "FAQ, 返品できますか？"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.md", "Miso\n: A paste. It is salty.\n\n味噌\n: 調味料。\n"),
        ("a.html", "<dl><dt>Miso<dd>A paste. It is salty.<dt>味噌<dd>調味料。</dl>"),
    ],
)
def test_a_definition_is_searched_below_its_term(tmp_path: Path, name: str, source: str) -> None:
    (tmp_path / name).write_text(source, encoding="utf-8")
    nodes = [
        node for node in nodes_of(read_file(tmp_path / name, name)) if isinstance(node, IndexNode)
    ]
    embedded = [" ".join(embedded_text(node).split()) for node in nodes]
    assert any("Miso" in text and "A paste." in text for text in embedded)
    assert any("味噌" in text and "調味料。" in text for text in embedded)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.md", "Bank\n: A house that takes deposits.\n: The land beside a river.\n"),
        ("a.html", "<dl><dt>Bank<dd>A house that takes deposits.<dd>The land beside a river.</dl>"),
    ],
)
def test_each_definition_of_a_term_is_searched_below_it(
    tmp_path: Path, name: str, source: str
) -> None:
    (tmp_path / name).write_text(source, encoding="utf-8")
    nodes = [
        node for node in nodes_of(read_file(tmp_path / name, name)) if isinstance(node, IndexNode)
    ]
    for definition in ("A house that takes deposits.", "The land beside a river."):
        (embedded,) = (text for text in map(embedded_text, nodes) if definition in text)
        assert "Bank" in embedded


# What was struck out


STRUCK_HTML = (
    "<h1>Fees</h1><p>The yearly fee for members is <del>80 euros</del> 70 euros. "
    "<s>Dogs may come. Cats too.</s></p>"
    "<p>会費は<strike>八千円</strike>七千円である。<s>犬も来てよい。</s></p>"
    "<ul><li><del>Lockers are free.</del><li>Lockers cost 5 euros.</ul>"
    "<table><tr><th>Item<th>Price<tr><td>Key<td><s>20</s> 25<tr><td><s>Hat</s><td><s>3</s></table>"
)
STRUCK_MARKDOWN = (
    "# Fees\n\nThe yearly fee for members is ~~80\neuros~~ 70 euros. ~~Dogs may come. Cats too.~~\n\n"
    "会費は~~八千円~~七千円である。<s>犬も来てよい。</s>\n\n- ~~Lockers are free.~~\n- Lockers cost 5 "
    "euros.\n\n| Item | Price |\n|---|---|\n| Key | ~~20~~ 25 |\n| ~~Hat~~ | ~~3~~ |\n"
)


def struck_in_text(path: Path) -> Path:
    path.write_text(STRUCK_HTML if path.suffix == ".html" else STRUCK_MARKDOWN, encoding="utf-8")
    return path


def struck(text: str) -> str:
    return f"<w:r><w:rPr><w:strike/></w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>"


def said(text: str) -> str:
    return f"<w:r><w:t xml:space='preserve'>{text}</w:t></w:r>"


def struck_in_word(path: Path) -> Path:
    pytest.importorskip("mammoth", reason="reads Word files")
    fee = (
        said("The yearly fee for members is ")
        + struck("80 euros")
        + said(" 70 euros. ")
        + struck("Dogs may come. Cats too.")
    )
    fee_ja = said("会費は") + struck("八千円") + said("七千円である。") + struck("犬も来てよい。")
    lockers = [struck("Lockers are free."), said("Lockers cost 5 euros.")]
    cells = [["Item", "Price"], ["Key", struck("20 ") + said("25")], [struck("Hat"), struck("3")]]
    table = ""
    for row in cells:
        runs = (cell if cell.startswith("<") else said(cell) for cell in row)
        table += f"<w:tr>{''.join(f'<w:tc><w:p>{run}</w:p></w:tc>' for run in runs)}</w:tr>"
    paragraphs = [f"<w:p>{run}</w:p>" for run in (fee, fee_ja, *lockers)]
    return word_file(path, *paragraphs, f"<w:tbl>{table}</w:tbl>")


@pytest.fixture(params=["md", "html", "docx"])
def fees(request: pytest.FixtureRequest, tmp_path: Path) -> list[Document]:
    """A document of each kind with text that was struck out."""
    write = struck_in_word if request.param == "docx" else struck_in_text
    return read_file(write(tmp_path / f"fees.{request.param}"), f"fees.{request.param}")


GONE = ("80", "Dogs", "Cats", "八千", "犬", "free", "20", "Hat")


def test_what_was_struck_out_is_neither_stated_nor_embedded(fees: list[Document]) -> None:
    nodes = nodes_of(fees)
    stated = [node.get_content() for node in nodes if isinstance(node, IndexNode)]
    for fact in (
        "The yearly fee for members is 70 euros.",
        "会費は七千円である。",
        "Item: Key; Price: 25",
    ):
        assert stated.count(fact) == 1
    for text in [*stated, *map(embedded_text, nodes)]:
        assert not any(word in text for word in GONE), text


@pytest.mark.parametrize(
    "question", ["May dogs come?", "What does the hat cost?", "犬は来てよいですか。"]
)
def test_no_question_is_answered_from_what_was_struck_out(
    fees: list[Document], question: str
) -> None:
    answer = str(pack_of(fees).run(question))
    assert not any(word in answer.replace("~~", "") for word in ("Dogs may", "Hat", "犬も"))


def test_coverage_does_not_ask_for_what_was_struck_out(fees: list[Document]) -> None:
    facts = [
        "The yearly fee for members is 70 euros.",
        "会費は七千円である。",
        "Lockers cost 5 euros.",
        "The key costs 25.",
    ]
    findings = check_propositions(Passage(fees[0].text, "Fees"), facts)
    assert not [finding for finding in findings if finding.kind == "coverage"]


def test_a_cell_of_a_sheet_that_was_struck_out_is_not_stated(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="reads sheets")
    book = openpyxl.Workbook()
    for row in (["Item", "Price", "備考"], ["Key", 20, "旧価格"], ["Hat", 3, "現行"]):
        book.active.append(row)
    book.active["B2"].font = openpyxl.styles.Font(strike=True)
    book.save(tmp_path / "a.xlsx")
    assert units(read_file(tmp_path / "a.xlsx", "a.xlsx")) == [
        "Item: Key; 備考: 旧価格",
        "Item: Hat; Price: 3; 備考: 現行",
    ]


def test_a_run_of_a_slide_that_was_struck_out_is_not_stated(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx", reason="reads slides")
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[5])
    frame = slide.shapes.add_textbox(0, 0, 9, 9).text_frame
    for number, text in enumerate(("会費は", "八千円", "七千円である。")):
        run = frame.paragraphs[0].add_run()
        run.text = text
        if number == 1:
            run.font._element.set("strike", "sngStrike")
    show.save(tmp_path / "a.pptx")
    assert units(read_file(tmp_path / "a.pptx", "a.pptx")) == ["会費は七千円である。"]


# Where links lead


LINKS = """\
# Leave

See [the leave form](https://hr.example.com/zebra?id=okapi "Otter") or https://intra.example.com/kangaroo.

- [Vacation policy](docs/walrus.md): 20 days a year.

| Form | Link |
|---|---|
| Sick leave | [open it](https://x.example/giraffe) |

詳しくは[休暇規程](https://example.co.jp/panda#koala)を参照すること。[図][図1]も見ること。

[図1]: https://example.com/penguin
"""
TARGETS = ("zebra", "okapi", "Otter", "kangaroo", "walrus", "giraffe", "panda", "koala", "penguin")


def test_where_links_lead_is_in_the_text_and_its_span() -> None:
    (passage,) = passages(nodes_of([Document(text=LINKS)]))
    assert all(target in passage.text for target in TARGETS)
    assert LINKS[passage.start_char_idx : passage.end_char_idx] == passage.text


def test_where_links_lead_is_neither_stated_nor_embedded() -> None:
    nodes = nodes_of([Document(text=LINKS)])
    texts = [*units([Document(text=LINKS)]), *map(embedded_text, nodes)]
    assert not [text for text in texts if any(target in text for target in TARGETS)]
    assert "See the leave form or intra.example.com." in texts
    assert "詳しくは休暇規程を参照すること。" in texts


@pytest.mark.parametrize("target", TARGETS)
def test_where_links_lead_is_not_searched(target: str) -> None:
    assert pack_of([Document(text=LINKS)]).retrieve(target) == []


def test_an_answer_has_the_link_of_the_sentence_that_it_quotes() -> None:
    answer = pack_of([Document(text=LINKS)]).run("Where is the leave form?")
    assert "[the leave form](https://hr.example.com/zebra" in str(answer)


def test_coverage_does_not_ask_for_where_links_lead() -> None:
    facts = [
        "The leave form or intra.example.com has the form for leave.",
        "The vacation policy gives 20 days a year.",
        "Sick leave has a form to open.",
        "詳しくは休暇規程を参照する。",
        "図も見る。",
    ]
    findings = check_propositions(Passage(LINKS, "Leave"), facts)
    assert not [finding for finding in findings if finding.kind == "coverage"]


# Columns that are told by their groups


@pytest.mark.parametrize("ending", ["html", "docx", "xlsx", "pptx"])
def test_the_names_of_columns_in_two_rows_are_joined(tmp_path: Path, ending: str) -> None:
    rows = [
        ("Branch", "売上", ""),
        ("", "Plan", "Actual"),
        ("Naha", "70", "64"),
        ("札幌", "110", "118"),
    ]
    documents = read_file(TWO_ROWS[ending](tmp_path / f"a.{ending}", rows), f"a.{ending}")
    assert [unit for unit in units(documents) if ";" in unit] == [
        "Branch: Naha; 売上 Plan: 70; 売上 Actual: 64",
        "Branch: 札幌; 売上 Plan: 110; 売上 Actual: 118",
    ]


def two_rows_in_html(path: Path, rows: Rows) -> Path:
    header = rows_of("Branch/2|2*売上", "Plan|Actual", tag="th")
    path.write_text(f"<table>{header}{rows_of(*map('|'.join, rows[2:]))}</table>", encoding="utf-8")
    return path


def two_rows_in_word(path: Path, rows: Rows) -> Path:
    pytest.importorskip("mammoth", reason="reads Word files")
    return word_file(path, word_table("Branch/2|2*売上", "^|Plan|Actual", *map("|".join, rows[2:])))


def two_rows_in_a_sheet(path: Path, rows: Rows) -> Path:
    openpyxl = pytest.importorskip("openpyxl", reason="reads sheets")
    book = openpyxl.load_workbook(as_sheet(path, rows))
    for cells in ("A1:A2", "B1:C1"):
        book.active.merge_cells(cells)
    book.save(path)
    return path


def two_rows_on_a_slide(path: Path, rows: Rows) -> Path:
    pptx = pytest.importorskip("pptx", reason="reads slides")
    show = pptx.Presentation(as_slides(path, rows))
    (table,) = (shape.table for shape in show.slides[0].shapes if shape.has_table)
    table.cell(0, 0).merge(table.cell(1, 0))
    table.cell(0, 1).merge(table.cell(0, 2))
    show.save(path)
    return path


TWO_ROWS: dict[str, Writer] = {
    "html": two_rows_in_html,
    "docx": two_rows_in_word,
    "xlsx": two_rows_in_a_sheet,
    "pptx": two_rows_on_a_slide,
}
