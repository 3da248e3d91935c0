"""How manuals are read: what their HTML says, found again in their plain text and PDF, in English and
Japanese.

usage: python benchmarks/manuals.py [--root /usr/share]

Needs the extra `files`, and Debian's packages debian-reference-en, debian-reference-ja, debian-faq,
debian-faq-ja, maint-guide-ja, developers-reference-ja, debian-edu-doc-en and debian-edu-doc-ja (`apt-get
download`, `dpkg -x`).

The same text is there in three forms. In HTML, paragraphs and headings are marked; in plain text and PDF,
lines end where the page does. So HTML tells which sentences there are, and which headings:

- sentences: the share of HTML's sentences (of paragraphs; 12 characters and more) that are segments of the
  other form, of those whose characters are in it at all. White space, and the mark of a list's item, do not
  count.
- headings: the share of HTML's headings that are told as headings, and the share of those told that are
  headings.
- cut: the share of passages (256 tokens) that end within a sentence; by this package's splitter and by
  LlamaIndex's.
- answers: the questions of the FAQ (its headings) asked of an index without any model; the share for which
  the first sentence below the heading is in the passages found, and in the quotation.

Figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import gzip
import logging
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from bs4 import BeautifulSoup
from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.node_parser.interface import TextSplitter

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.node_parsers.passages import PassageNodeParser
from llama_pack_densex.node_parsers.splitting import locate
from llama_pack_densex.reading.readers import read_file
from llama_pack_densex.text.blocks import Block, find_blocks
from llama_pack_densex.text.plain import heading_text
from llama_pack_densex.text.segments import segment

MANUALS = {
    "Reference, en": ("debian-reference/ch*.en.html", "debian-reference/debian-reference.en"),
    "Reference, ja": ("debian-reference/ch*.ja.html", "debian-reference/debian-reference.ja"),
    "FAQ, en": ("doc/debian/FAQ/*.en.html", "doc/debian/FAQ/debian-faq.en"),
    "FAQ, ja": ("doc/debian/FAQ/ja/*.html", "doc/debian/FAQ/debian-faq.ja"),
    "Edu, en": (
        "doc/debian-edu-doc-en/*bookworm*.html",
        "doc/debian-edu-doc-en/debian-edu-bookworm-manual",
    ),
    "Edu, ja": (
        "doc/debian-edu-doc-ja/*bookworm*.html",
        "doc/debian-edu-doc-ja/debian-edu-bookworm-manual",
    ),
    "Maintainers' guide, ja": (
        "doc/maint-guide-ja/html/*.html",
        "doc/maint-guide-ja/maint-guide.ja",
    ),
    "Developers' reference, ja": (
        "developers-reference/ja/*.html",
        "developers-reference/ja/developers-reference",
    ),
}
LEAST = 12  # characters of a sentence that is looked for
ANSWER = 40  # characters of an answer that are looked for
_MARK = re.compile(r"^\s*(?:[-・•*–+]|\^?\[\d+\]|\d{1,2}\.)\s*")
_NUMBER = re.compile(
    r"^(?:(?:Chapter|Appendix|付録|附录|第)(?:\d+|[A-Z])\.?[章節部]?|(?:\d+|[A-Z](?=\.\d))(?:\.\d+)*\.?(?=[^\d]))"
)


def headings_of(text: str) -> list[Block]:
    return [block for block in find_blocks(text) if block.kind == "heading"]


def squeezed(text: str) -> str:
    """A text without white space and the mark of an item."""
    return re.sub(r"\s+", "", _MARK.sub("", unicodedata.normalize("NFKC", text)))


def named(heading: str) -> str:
    """A heading without its number."""
    return _NUMBER.sub(
        "", re.sub(r"\s+", "", unicodedata.normalize("NFKC", heading)).replace("¶", "")
    )


def line(text: str) -> str:
    """The text of an element as a browser shows it; a line's end between Japanese characters is nothing."""
    wide = r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]"
    return re.sub(r"\s+", " ", re.sub(rf"(?<={wide})\s*\n\s*(?={wide})", "", text)).strip()


def sentences_of(text: str) -> list[str]:
    return [text[found.start : found.end] for found in segment(text)]


def told_by_html(pages: Iterable[Path]) -> tuple[list[str], set[str], list[tuple[str, str]]]:
    """The sentences, the headings, and the questions with the beginnings of their answers."""
    sentences: dict[str, None] = {}
    headings, asked = set(), []
    for page in pages:
        soup = BeautifulSoup(page.read_bytes(), "html.parser")
        for paragraph in soup.find_all("p"):
            if not paragraph.find(["pre", "table", "p", "div", "ul"]):
                found = map(squeezed, sentences_of(line(paragraph.get_text())))
                sentences |= dict.fromkeys(one for one in found if len(one) >= LEAST)
        for heading in soup.find_all(["h1", "h2", "h3", "h4", "h5", "h6"]):
            headings.add(named(heading.get_text()))
            question = re.sub(r"^[\d.\s]+", "", line(heading.get_text()))
            below = heading.find_next("p")
            if (
                heading.name in ("h2", "h3")
                and question.endswith(("?", "？"))
                and below is not None
            ):
                answer = letters(next(iter(sentences_of(line(below.get_text()))), ""))[:ANSWER]
                asked += [(question, answer)] if answer else []
    return list(sentences), {heading for heading in headings if len(heading) > 3}, asked


def letters(text: str) -> str:
    return re.sub(r"\W+", "", unicodedata.normalize("NFKC", text))


def read(place: Path, temporary: Path) -> list[Document]:
    """The documents of a file, unpacked where it is packed; none where there is no such file."""
    packed = place.with_name(f"{place.name}.gz")
    if packed.exists():
        place = temporary / place.name
        place.write_bytes(gzip.decompress(packed.read_bytes()))
    return read_file(place, place.name) if place.exists() else []


def cut(texts: Sequence[str], splitter: TextSplitter) -> float:
    """The share of passages, but each text's last, that end within a sentence."""
    ends = within = 0
    for text in texts:
        found = [part for part in segment(text) if part.kind == "sentence"]
        for span in locate(splitter.split_text(text), text)[:-1]:
            if span is not None:
                ends += 1
                within += any(part.start < span[1] < part.end for part in found)
    return within / max(ends, 1)


def answered(
    documents: Sequence[Document], asked: Sequence[tuple[str, str]]
) -> tuple[float, float]:
    """The shares of questions whose answer is in the passages found, and in the quotation."""
    pack = DenseXRetrievalPack(
        documents, proposition_llm="none", query_llm="none", embed_model="none"
    )
    responses = [(pack.run(question), answer) for question, answer in asked]
    found = sum(
        any(answer in letters(node.get_content()) for node in one.source_nodes)
        for one, answer in responses
    )
    return found / len(asked), sum(answer in letters(str(one)) for one, answer in responses) / len(
        asked
    )


def section_first(documents: Sequence[Document]) -> float:
    """The share of headings (200 of them at most) whose passage is found first by what they say."""
    asked: dict[str, tuple[str, int]] = {}
    for document in documents:
        for one in headings_of(document.text):
            said = re.sub(r"^[\d.\s]+", "", heading_text(document.text[one.start : one.end]))
            asked.setdefault(said, (document.id_, one.start))
    pack = DenseXRetrievalPack(
        documents, proposition_llm="none", query_llm="none", embed_model="none"
    )
    first = 0
    headings = [said for said in asked if len(said) > 3]
    headings = headings[:: len(headings) // 200 + 1]
    for said in headings:
        document_id, place = asked[said]
        for found in pack.retrieve(said)[:1]:
            start, end = found.node.start_char_idx, found.node.end_char_idx  # type: ignore[attr-defined]
            first += found.node.ref_doc_id == document_id and start <= place < end
    return first / max(len(headings), 1)


def row(
    name: str,
    documents: Sequence[Document],
    told: tuple[list[str], set[str], list[tuple[str, str]]],
) -> str:
    """A row of the table; empty where nothing of what HTML says is in the other form."""
    sentences, headings, asked = told
    texts = [document.text for document in documents if document.text.strip()]
    whole = "\n".join(map(squeezed, texts))
    segments = {squeezed(one) for text in texts for one in sentences_of(text)}
    there = [one for one in sentences if one in whole]
    found = [
        named(heading_text(text[one.start : one.end]))
        for text in texts
        for one in headings_of(text)
    ]
    known = {
        one for one in headings if one in "\n".join(re.sub(r"\s+", "", text) for text in texts)
    }
    if not there:
        return ""
    right = sum(one in headings for one in found) / max(len(found), 1)
    cells = [
        f"{len(there):,}",
        f"{sum(one in segments for one in there) / len(there):.3f}",
        f"{len(known & {*found}) / max(len(known), 1):.2f}, {right:.2f}",
        f"{cut(texts, PassageNodeParser(chunk_size=256)):.2f}",
        f"{cut(texts, SentenceSplitter(chunk_size=256, chunk_overlap=0)):.2f}",
        f"{section_first(documents):.2f}",
    ]
    cells += (
        [f"{share:.2f}" for share in answered(documents, asked)]
        if name.startswith("FAQ")
        else ["", ""]
    )
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, default=Path("/usr/share"), help="where the packages' files are"
    )
    root = parser.parse_args().root
    logging.disable(logging.WARNING)
    print(
        "| manual | sentences there | whole | headings: found, right | cut | cut by core | section first"
        " | answer found | quoted |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for name, (pages, stem) in MANUALS.items():
            told = told_by_html(sorted(root.glob(pages)))
            for ending in (".txt", ".pdf"):
                documents = read(root / f"{stem}{ending}", Path(temporary))
                if found := row(f"{name}, {ending[1:]}", documents, told):
                    print(found, flush=True)


if __name__ == "__main__":
    main()
