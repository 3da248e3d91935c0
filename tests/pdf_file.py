"""PDF files small enough to write by hand."""

from __future__ import annotations

from collections.abc import Sequence


def pdf_bytes(
    pages: Sequence[str], roman: bool = False, title: str = "", bookmarks: Sequence[tuple[str, int]] = ()
) -> bytes:
    """A PDF with a line of ASCII text on each page.

    Args:
        pages: The lines; empty for an empty page.
        roman: Whether pages are labelled i, ii and so on.
        title: The title; empty for none.
        bookmarks: What each bookmark says, and the number of the page that it leads to, from 0 on.
    """
    labels = " /PageLabels << /Nums [0 << /S /r >>] >>" if roman else ""
    outline = 4 + 2 * len(pages)
    labels += f" /Outlines {outline} 0 R" if bookmarks else ""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R{labels} >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, line in enumerate(pages):
        drawing = f"BT /F1 12 Tf 72 720 Td ({line}) Tj ET" if line else ""
        objects += [
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {5 + 2 * i} 0 R >>",
            f"<< /Length {len(drawing)} >>\nstream\n{drawing}\nendstream",
        ]
    if bookmarks:
        last = outline + len(bookmarks)
        objects.append(f"<< /Type /Outlines /First {outline + 1} 0 R /Last {last} 0 R /Count {len(bookmarks)} >>")
    for number, (said, page) in enumerate(bookmarks, outline + 1):
        following = f" /Next {number + 1} 0 R" if number < last else ""
        objects.append(f"<< /Title ({said}) /Parent {outline} 0 R /Dest [{4 + 2 * page} 0 R /Fit]{following} >>")
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
