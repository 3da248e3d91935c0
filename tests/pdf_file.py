"""PDF files small enough to write by hand."""

from __future__ import annotations

from collections.abc import Sequence


def pdf_bytes(pages: Sequence[str], roman: bool = False) -> bytes:
    """A PDF with a line of ASCII text on each page.

    Args:
        pages: The lines; empty for an empty page.
        roman: Whether pages are labelled i, ii and so on.
    """
    labels = " /PageLabels << /Nums [0 << /S /r >>] >>" if roman else ""
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
    data, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    end = (
        f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{len(data)}\n"
    )
    return data + end.encode() + b"%%EOF\n"
