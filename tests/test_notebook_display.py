"""What a notebook shows of a pack, an answer, a retrieved node, counts, an ingestion, an estimate and a
tree."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from llama_index.core import Document
from llama_index.core.schema import NodeWithScore

from llama_pack_densex import (
    DenseXRetrievalPack,
    HierarchicalPropositionNodeParser,
    PropositionNodeParser,
    SentencePropositionizer,
    draw_tree,
)
from llama_pack_densex.ingestion.estimate import estimate
from llama_pack_densex.text import markup
from tests.embedding import TrigramEmbedding

BRIDGE = (
    "# The bridge\n\nThe bridge of Akashi was opened in 1998. "
    "It is 3,911 metres long. Ships pass below it."
)
TEMPLE = (
    "# 清水寺\n\n清水寺は京都にある寺である。舞台の高さは約13メートルある。毎年多くの人が訪れる。"
)
HOSTILE = (
    '# <script>alert(1)</script>\n\nThe <img src=x onerror=alert(2)> tower has a "bell" & 40 steps.'
)


@pytest.fixture(scope="module")
def pack() -> DenseXRetrievalPack:
    texts = {"b": BRIDGE, "t": TEMPLE, "h": HOSTILE}
    documents = [Document(text=text, id_=name) for name, text in texts.items()]
    return DenseXRetrievalPack(
        documents, query_llm="none", embed_model="none", proposition_llm="none"
    )


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the text of its marks."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.marked: list[str] = []
        self._in_mark = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_mark = tag == "mark"

    def handle_data(self, data: str) -> None:
        if self._in_mark:
            self.marked.append(data)
        self._in_mark = False

    def attributes(self, tag: str, name: str) -> list[str | None]:
        return [attributes.get(name) for other, attributes in self.tags if other == tag]


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("How long is the bridge of Akashi in metres?", "It is 3,911 metres long."),
        ("清水寺の舞台の高さは？", "舞台の高さは約13メートルある。"),
    ],
)
def test_a_retrieved_passage_has_what_was_found_marked(
    pack: DenseXRetrievalPack, question: str, sentence: str
) -> None:
    node = pack.retrieve(question)[0]
    assert isinstance(node, NodeWithScore)
    page = Tags(node._repr_html_())
    assert any(sentence in text for text in page.marked)


@pytest.mark.parametrize(
    "question", ["When was the bridge of Akashi opened?", "清水寺はどこにありますか"]
)
def test_footnotes_lead_to_their_source(pack: DenseXRetrievalPack, question: str) -> None:
    response = pack.run(question)
    page = Tags(response._repr_html_())
    targets = page.attributes("a", "href")
    places = page.attributes("li", "id")
    assert targets
    assert {target for target in targets if target} == {f"#{place}" for place in places if place}
    assert len(page.attributes("sup", "id")) == len(re.findall(r"\[\^\d+\]", str(response)))


def test_streams_and_messages_of_a_conversation_are_shown_like_answers(
    pack: DenseXRetrievalPack,
) -> None:
    question = "When was the bridge of Akashi opened?"
    streaming = DenseXRetrievalPack([Document(text=BRIDGE)], "none", "none", "none", streaming=True)
    chat = pack.as_chat_engine()
    message = chat.stream_chat(question)
    message.print_response_stream()
    for response in (streaming.run(question), chat.chat(question), message):
        assert Tags(response._repr_html_()).attributes("a", "href")


def test_two_answers_on_a_page_have_places_of_their_own(pack: DenseXRetrievalPack) -> None:
    first, second = (Tags(pack.run("Where is the bridge?")._repr_html_()) for _ in range(2))
    assert not set(first.attributes("li", "id")) - {None} & set(second.attributes("li", "id"))


def test_what_documents_hold_is_shown_as_text(pack: DenseXRetrievalPack) -> None:
    shown = [
        pack,
        pack.counts(),
        pack.ingestion,
        pack.run("How many steps has the tower?"),
        pack.retrieve("How many steps has the tower?")[0],
        draw_tree(pack.nodes(), pack.retrieve("How many steps has the tower?")),
    ]
    for something in shown:
        page = something._repr_html_()  # type: ignore[union-attr]
        page.encode("utf-8")
        names = {tag for tag, _ in Tags(page).tags}
        assert not names & {"script", "img"}


def test_an_answers_markdown_is_shown_without_loading_anything() -> None:
    answer = (
        "| Plan | Price |\n| --- | --- |\n| A | 3[^1] |\n\n`[^1]` is code. ![x](http://example.org/p.png) "
        "[a](javascript:alert(1)) <b>no</b> and nothing[^7]."
    )
    page = Tags(markup.answer(answer, {1: ("Prices", markup.passage("3 euros"))}))
    names = [tag for tag, _ in page.tags]
    assert "td" in names
    assert not {"img", "b", "script"} & set(names)
    assert [
        target for target in page.attributes("a", "href") if target and target.startswith("#")
    ] == [f"#{page.attributes('li', 'id')[0]}"]
    assert "javascript:alert(1)" not in page.attributes("a", "href")


def test_counts_an_estimate_and_an_ingestion_are_tables(pack: DenseXRetrievalPack) -> None:
    counts = pack.counts()._repr_html_()
    assert "<td" in counts
    assert "documents" in counts
    parser = PropositionNodeParser(propositionizer=SentencePropositionizer())
    report = estimate([Document(text=BRIDGE)], parser)
    assert "passages" in report._repr_html_()
    assert "passages" in str(report)
    assert pack.ingestion is not None
    assert "3 done" in pack.ingestion._repr_html_()


@pytest.mark.parametrize("mode", ["recursive", "auto_merging"])
def test_a_tree_shows_each_node_and_what_was_found_and_returned(mode: str) -> None:
    parser: type = (
        PropositionNodeParser if mode == "recursive" else HierarchicalPropositionNodeParser
    )
    documents = [Document(text=BRIDGE, id_="b"), Document(text=TEMPLE, id_="t")]
    nodes = parser(propositionizer=SentencePropositionizer()).get_nodes_from_documents(documents)
    pack = DenseXRetrievalPack(
        documents,
        mode=mode,
        query_llm="none",
        embed_model=TrigramEmbedding(),
        proposition_llm="none",
    )
    drawing = draw_tree(nodes)
    tree = ElementTree.fromstring(drawing.svg)
    boxes = [node for node in nodes if node.child_nodes]
    assert len(tree.findall(".//rect")) == len(boxes)
    assert len(tree.findall(".//circle")) == len(nodes) - len(boxes)
    retrieved = pack.retrieve("How long is the bridge of Akashi?")
    with_results = draw_tree(pack.nodes(), retrieved).svg
    assert with_results.count('fill="#3f8fe0"') == len(
        {unit["id"] for node in retrieved for unit in node.metadata["densex_matched"]}
    )
    assert with_results.count('stroke="#e07b1a"') == len(retrieved)


def test_half_a_character_does_not_stop_the_page() -> None:
    page = markup.block(
        "\ud800", markup.passage("a \udc00 b", [(2, 5)]), markup.answer("c \ud800", {})
    )
    page.encode("utf-8")
    assert Tags(page).marked == ["? b"]


def test_an_empty_tree_is_an_empty_picture() -> None:
    ElementTree.fromstring(draw_tree([]).svg)


@pytest.mark.parametrize("name", ["answer_recall@100", "a<b_c", "適合_率"])
def test_a_wide_table_scrolls_and_keeps_the_names_in_it(name: str) -> None:
    html = markup.table([("densex", 0.9)], ("strategy", name))
    assert html.startswith('<div style="overflow-x:auto">')
    assert f">{markup.escape(name)}<" in html
