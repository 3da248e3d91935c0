"""How well manuals are read: sentences and headings of their HTML, sought in their plain text and PDF.

usage: python benchmarks/manuals.py [--root /usr/share]

Needs the extra `files`, and Debian's packages debian-reference-en, debian-reference-ja, debian-faq,
debian-faq-ja, maint-guide-ja, developers-reference-ja, debian-edu-doc-en and debian-edu-doc-ja (`apt-get
download`, `dpkg -x`).

The manuals are English and Japanese, and each comes in three forms. In HTML, paragraphs and headings are
marked up; in plain text and PDF, lines break at the page's width. So HTML is the reference for sentences and
headings:

- sentences: of HTML's sentences (in paragraphs; 12 characters and more) whose characters occur in the other
  form at all, the share that is a segment of it. White space and list markers are ignored.
- headings: the share of HTML's headings that are recognised as headings (recall), and the share of recognised
  headings that are headings in HTML (precision).
- cut: the share of passages (256 tokens) that end within a sentence, with this package's splitter and with
  LlamaIndex's.
- answers: the FAQ's questions (its headings) are put to an index without any model; the share for which the
  first sentence below the heading is in the passages found, and in the quotation.

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
LEAST = 12  # least characters in a sentence that is looked for
ANSWER = 40  # characters of an answer that are looked for
_MARK = re.compile(r"^\s*(?:[-・•*–+]|\^?\[\d+\]|\d{1,2}\.)\s*")
_NUMBER = re.compile(
    r"^(?:(?:Chapter|Appendix|付録|附录|第)(?:\d+|[A-Z])\.?[章節部]?|(?:\d+|[A-Z](?=\.\d))(?:\.\d+)*\.?(?=[^\d]))"
)


def headings_of(text: str) -> list[Block]:
    return [block for block in find_blocks(text) if block.kind == "heading"]


def squeezed(text: str) -> str:
    """Normalise a text (NFKC), and remove white space and a list marker."""
    return re.sub(r"\s+", "", _MARK.sub("", unicodedata.normalize("NFKC", text)))


def named(heading: str) -> str:
    """Return a heading without its number and white space."""
    return _NUMBER.sub(
        "", re.sub(r"\s+", "", unicodedata.normalize("NFKC", heading)).replace("¶", "")
    )


def line(text: str) -> str:
    """Return an element's text as a browser shows it; line breaks between Japanese characters vanish."""
    wide = r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]"
    return re.sub(r"\s+", " ", re.sub(rf"(?<={wide})\s*\n\s*(?={wide})", "", text)).strip()


def sentences_of(text: str) -> list[str]:
    return [text[part.start : part.end] for part in segment(text)]


def read_html(pages: Iterable[Path]) -> tuple[list[str], set[str], list[tuple[str, str]]]:
    """Return sentences, headings, and questions with the beginnings of their answers."""
    sentences: dict[str, None] = {}
    headings, questions = set(), []
    for page in pages:
        soup = BeautifulSoup(page.read_bytes(), "html.parser")
        for paragraph in soup.find_all("p"):
            if not paragraph.find(["pre", "table", "p", "div", "ul"]):
                squeezed_sentences = map(squeezed, sentences_of(line(paragraph.get_text())))
                sentences |= dict.fromkeys(
                    sentence for sentence in squeezed_sentences if len(sentence) >= LEAST
                )
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
                questions += [(question, answer)] if answer else []
    return list(sentences), {heading for heading in headings if len(heading) > 3}, questions


def letters(text: str) -> str:
    return re.sub(r"\W+", "", unicodedata.normalize("NFKC", text))


def read(place: Path, temporary: Path) -> list[Document]:
    """Read the documents of a file, gunzipped if need be; none if there is no such file."""
    packed = place.with_name(f"{place.name}.gz")
    if packed.exists():
        place = temporary / place.name
        place.write_bytes(gzip.decompress(packed.read_bytes()))
    return read_file(place, place.name) if place.exists() else []


def cut(texts: Sequence[str], splitter: TextSplitter) -> float:
    """Return the share of passages, except each text's last, that end within a sentence."""
    ends = within = 0
    for text in texts:
        sentences = [part for part in segment(text) if part.kind == "sentence"]
        for span in locate(splitter.split_text(text), text)[:-1]:
            if span is not None:
                ends += 1
                within += any(part.start < span[1] < part.end for part in sentences)
    return within / max(ends, 1)


def answered(
    documents: Sequence[Document], questions: Sequence[tuple[str, str]]
) -> tuple[float, float]:
    """Return the shares of questions whose answer is in the passages found, and in the quotation."""
    pack = DenseXRetrievalPack(
        documents, proposition_llm="none", query_llm="none", embed_model="none"
    )
    responses = [(pack.run(question), answer) for question, answer in questions]
    in_passages = sum(
        any(answer in letters(node.get_content()) for node in response.source_nodes)
        for response, answer in responses
    )
    return in_passages / len(questions), sum(
        answer in letters(str(response)) for response, answer in responses
    ) / len(questions)


def section_first(documents: Sequence[Document]) -> float:
    """Return the share of headings (at most 200) whose own passage comes first when they are searched."""
    places: dict[str, tuple[str, int]] = {}
    for document in documents:
        for heading in headings_of(document.text):
            words = re.sub(
                r"^[\d.\s]+", "", heading_text(document.text[heading.start : heading.end])
            )
            places.setdefault(words, (document.id_, heading.start))
    pack = DenseXRetrievalPack(
        documents, proposition_llm="none", query_llm="none", embed_model="none"
    )
    first = 0
    headings = [words for words in places if len(words) > 3]
    headings = headings[:: len(headings) // 200 + 1]
    for words in headings:
        document_id, place = places[words]
        for result in pack.retrieve(words)[:1]:
            start, end = result.node.start_char_idx, result.node.end_char_idx  # type: ignore[attr-defined]
            first += result.node.ref_doc_id == document_id and start <= place < end
    return first / max(len(headings), 1)


def row(
    name: str,
    documents: Sequence[Document],
    html: tuple[list[str], set[str], list[tuple[str, str]]],
) -> str:
    """Return a row of the table; "" if no sentence of the HTML is in the other form."""
    sentences, headings, questions = html
    texts = [document.text for document in documents if document.text.strip()]
    whole = "\n".join(map(squeezed, texts))
    segments = {squeezed(sentence) for text in texts for sentence in sentences_of(text)}
    sentences_present = [sentence for sentence in sentences if sentence in whole]
    headings_found = [
        named(heading_text(text[block.start : block.end]))
        for text in texts
        for block in headings_of(text)
    ]
    headings_present = {
        heading
        for heading in headings
        if heading in "\n".join(re.sub(r"\s+", "", text) for text in texts)
    }
    if not sentences_present:
        return ""
    right = sum(heading in headings for heading in headings_found) / max(len(headings_found), 1)
    cells = [
        f"{len(sentences_present):,}",
        f"{sum(sentence in segments for sentence in sentences_present) / len(sentences_present):.3f}",
        f"{len(headings_present & {*headings_found}) / max(len(headings_present), 1):.2f}, {right:.2f}",
        f"{cut(texts, PassageNodeParser(chunk_size=256)):.2f}",
        f"{cut(texts, SentenceSplitter(chunk_size=256, chunk_overlap=0)):.2f}",
        f"{section_first(documents):.2f}",
    ]
    cells += (
        [f"{share:.2f}" for share in answered(documents, questions)]
        if name.startswith("FAQ")
        else ["", ""]
    )
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, default=Path("/usr/share"), help="the folder of the packages' files"
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
            html = read_html(sorted(root.glob(pages)))
            for ending in (".txt", ".pdf"):
                documents = read(root / f"{stem}{ending}", Path(temporary))
                if table_row := row(f"{name}, {ending[1:]}", documents, html):
                    print(table_row, flush=True)


if __name__ == "__main__":
    main()
