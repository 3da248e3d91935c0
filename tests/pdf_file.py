"""PDF files small enough to write by hand."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Literal

from llama_index.core import Document
from llama_index.core.schema import IndexNode

from llama_pack_densex import PropositionNodeParser


def table_drawing(
    rows: Sequence[Sequence[str]],
    columns: Sequence[float],
    top: float = 700,
    height: float = 16,
    style: Literal["", "ruled", "right"] = "",
) -> str:
    """What draws a table on a page.

    Args:
        rows: The texts of its cells; empty for none, and for one that the cell on its left is merged with.
        columns: Where its columns begin, in points, and where the last one ends.
        top: How high it begins.
        height: The height of a row.
        style: "ruled" for lines around its cells, but for merged ones; "right" for columns, but the first,
            whose texts end at their right.
    """
    ruled = style == "ruled"
    drawing = ""
    for y, row in enumerate(rows):
        upper = top - y * height
        for x, text in enumerate(row):
            left, right = columns[x], columns[x + 1]
            at = right - 4 - 12 * len(text) * 0.556 if style == "right" and x else left + 4
            if text:
                code = text.encode("utf-16-be").hex()
                shown = f"({text.translate(_ESCAPES)})" if text.isascii() else f"<{code}>"
                font = "F1" if text.isascii() else "F2"
                drawing += f"BT /{font} 12 Tf {at:.2f} {upper - 12} Td {shown} Tj ET\n"
            if ruled:
                drawing += (
                    f"{left} {upper} m {right} {upper} l S {left} {upper - height} m {right} "
                    f"{upper - height} l S\n"
                )
                drawing += (
                    f"{left} {upper} m {left} {upper - height} l S\n" if text or not x else ""
                )
        if ruled:
            drawing += f"{columns[-1]} {upper} m {columns[-1]} {upper - height} l S\n"
    return drawing


_ESCAPES = str.maketrans({"(": r"\(", ")": r"\)"})
# A TrueType font of two glyphs, one without a shape and a square: so pages are the same whatever fonts a
# machine has. Of the first one are characters that were read from a scan, or whose font is nowhere.
_SQUARE = (
    "78da63606460606067706060623048ce4d2c60e06128666000093298a4e754a64d5817b51fc8b701f2a53252135392fe"
    "3bdf00b26b80d82c0328c01ec5bc0ec8de02c42a19b925152c2a20ad0c3f80982d273f39918117c4653401f173132b0a"
    "185818d8806c90190a606b80f8aa7ec1b2787e9baf0ccccc2f18d081cdff39cc6b9863802c66a01b2100a887b9e07f07"
    "907cc160c360c3bc06e26024c008166102da0691614237166c930d5c8e198845802423986601ba8d014842742bfcff0f"
    "21ff3f44b287176c0bcc7540fde2828a8236cc0529cc07fe3830300000cabc30a6"
)
# One without height of its own: glyph 1 is above the line, glyph 2 also below it.
_LOW_AND_DEEP = (
    "78da63606460606067706060623048cfa94c0be6b2068a307200458d32521353f47396c401d935406c96011460fccaf80dc8"
    "de02c42a19b925158c5f1840e0071073e4e4272732f0304802f583c43872132b0a185819d880ec1b40ac50905f5cc2c00c92"
    "62b401f1c1ca8078e7b58751f1fc365f1998995f80649f1b6c7442d0ffd918bf806d6106ba11021819608c2f50122e0257c1"
    "08d6c1029561624057f00589037233234414280e74a1a1a0a22088fd8f07240e7501505c142cfe8be9dd5f2106b0f9780100"
    "5ccb31a4"
)
_TO_UNICODE = (
    "begincmap 1 begincodespacerange <0000> <ffff> endcodespacerange "
    "1 beginbfrange <0000> <ffff> <0000> endbfrange endcmap"
)
_JAPANESE_FONT = (
    "<< /Type /Font /Subtype /Type0 /BaseFont /Square /Encoding /Identity-{direction} "
    "/ToUnicode {unicode} 0 R /DescendantFonts [ << /Type /Font /Subtype /CIDFontType2 /BaseFont /Square "
    "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> /DW 1000 "
    "/CIDToGIDMap {glyphs} 0 R /FontDescriptor << /Type /FontDescriptor /FontName /Square /Flags 4 "
    "/FontBBox [0 -120 1000 880] /ItalicAngle 0 /Ascent 880 /Descent -120 /StemV 80 "
    "/FontFile2 {file} 0 R >> >> ] >>"
)
_FONT_ELSEWHERE = (
    "<< /Type /Font /Subtype /Type0 /BaseFont /HeiseiKakuGo-W5 /Encoding /UniJIS-UCS2-H /DescendantFonts [ "
    "<< /Type /Font /Subtype /CIDFontType0 /BaseFont /HeiseiKakuGo-W5 /CIDSystemInfo << /Registry (Adobe) "
    "/Ordering (Japan1) /Supplement 2 >> /DW 1000 >> ] >>"
)

_OTHER_FONTS = (
    "/F6 << /Type /Font /Subtype /Type1 /BaseFont /Courier >> "
    "/F8 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold >>"
)


def _japanese_fonts(number: int) -> str:
    """Fonts whose file, characters and glyphs are the objects from a number on: F2, upright F3, F4, whose
    glyphs have no shapes, F5, which is not embedded, and F7, which has no height."""
    objects = {"file": number, "unicode": number + 1}
    across = _JAPANESE_FONT.format(direction="H", glyphs=number + 2, **objects)
    upright = _JAPANESE_FONT.format(direction="V", glyphs=number + 2, **objects)
    shapeless = _JAPANESE_FONT.format(direction="H", glyphs=number + 3, **objects)
    objects["file"] = number + 4
    low = _JAPANESE_FONT.format(direction="H", glyphs=number + 5, **objects)
    low = low.replace("880 /Descent -120", "0 /Descent 0").replace("/DW 1000", "/DW 500")
    return f"/F2 {across} /F3 {upright} /F4 {shapeless} /F5 {_FONT_ELSEWHERE} /F7 {low}"


def _stream(content: bytes) -> str:
    packed = zlib.compress(content).hex()
    return (
        f"<< /Length {len(packed)} /Filter [/ASCIIHexDecode /FlateDecode] >>\n"
        f"stream\n{packed}\nendstream"
    )


def text_drawing(lines: Sequence[tuple[float, float, str]], upright: bool = False) -> str:
    """What draws lines on a page, each from a point on; Japanese ones may be upright."""
    font = "F3" if upright else "F2"
    drawing = ""
    for x, y, text in lines:
        code = text.encode("utf-16-be").hex()
        shown = f"/F1 12 Tf {x} {y} Td ({text.translate(_ESCAPES)})"
        if not text.isascii():
            shown = f"/{font} 12 Tf {x} {y} Td <{code}>"
        drawing += f"BT {shown} Tj ET\n"
    return drawing


def heading_drawing(y: float, text: str, size: float = 12, font: str = "F8", x: float = 60) -> str:
    """What draws a line on a page, in bold unless another font is named."""
    return f"BT /{font} {size} Tf {x} {y} Td ({text.translate(_ESCAPES)}) Tj ET\n"


def sections(pages: Sequence[Document]) -> list[str | None]:
    """The sections of the sentences on pages."""
    nodes = PropositionNodeParser().get_nodes_from_documents(pages)
    return [node.metadata.get("section") for node in nodes if isinstance(node, IndexNode)]


def form_field(
    kind: str, name: str, box: tuple[float, ...], value: str = "", more: str = ""
) -> str:
    """A field of a form: Tx for text, Ch for a choice, Btn for a box that is ticked if it has a value.

    Args:
        kind: The kind.
        name: The name.
        box: Where it begins on the page, x and y, and how wide it is if not 200 points.
        value: The value.
        more: Further entries of its dictionary.
    """
    x, y, width = (*box, 200)[:3]
    about = f"/T <feff{name.encode('utf-16-be').hex()}> /Rect [{x} {y} {x + width} {y + 16}] {more}"
    if kind == "Btn":
        state = "/On" if value else "/Off"
        look = "/AP << /N << /On << /Length 0 >> /Off << /Length 0 >> >> >>"
        about += f" /V {state} /AS {state} {look}"
    else:
        about += f" /V <feff{value.encode('utf-16-be').hex()}>"
    return f"<< /Type /Annot /Subtype /Widget /F 4 /FT /{kind} {about} >>"


def pdf_bytes(
    pages: Sequence[str],
    title: str = "",
    bookmarks: Sequence[tuple[str, int]] = (),
    drawings: Sequence[str] = (),
    fields: Sequence[Sequence[str]] = (),
) -> bytes:
    """A PDF with a line of ASCII text on each page.

    Args:
        pages: The lines; empty for an empty page.
        title: The title; empty for none.
        bookmarks: What each bookmark says, and the number of the page that it leads to, from 0 on.
        drawings: What else is drawn on each page.
        fields: The form fields of each page, as `form_field` makes them.
    """
    font = 4 + 2 * len(pages)
    outline = font + 6
    labels = f" /Outlines {outline} 0 R" if bookmarks else ""
    labels += " /AcroForm << /Fields [] >>" if fields else ""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R{labels} >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, line in enumerate(pages):
        drawing = f"BT /F1 12 Tf 72 720 Td ({line}) Tj ET\n" if line else ""
        drawing += drawings[i] if drawings else ""
        objects += [
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R "
            f"{_japanese_fonts(font)} {_OTHER_FONTS} >> >> "
            f"/Annots [{' '.join(fields[i]) if fields else ''}] /Contents {5 + 2 * i} 0 R >>",
            f"<< /Length {len(drawing)} >>\nstream\n{drawing}\nendstream",
        ]
    objects += [
        _stream(zlib.decompress(bytes.fromhex(_SQUARE))),
        _stream(_TO_UNICODE.encode()),
        _stream(b"\0\1" * 65_536),
        _stream(b"\0\0" * 65_536),
        _stream(zlib.decompress(bytes.fromhex(_LOW_AND_DEEP))),
        _stream(b"".join(b"\0\2" if chr(code) in "py" else b"\0\1" for code in range(65_536))),
    ]
    if bookmarks:
        last = outline + len(bookmarks)
        objects.append(
            f"<< /Type /Outlines /First {outline + 1} 0 R /Last {last} 0 R /Count {len(bookmarks)} >>"
        )
    for number, (said, page) in enumerate(bookmarks, outline + 1):
        following = f" /Next {number + 1} 0 R" if number < last else ""
        objects.append(
            f"<< /Title ({said}) /Parent {outline} 0 R /Dest [{4 + 2 * page} 0 R /Fit]{following} >>"
        )
    objects += [f"<< /Title ({title}) >>"] if title else []
    about = f" /Info {len(objects)} 0 R" if title else ""
    data, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    trailer = f"trailer << /Size {size} /Root 1 0 R{about} >>\nstartxref\n{len(data)}\n"
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}"
    return data + end.encode() + b"%%EOF\n"
