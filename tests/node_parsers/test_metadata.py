"""What metadata do to passages and to what models see of them: nothing, but for what is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document, SimpleDirectoryReader
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    MarkdownNodeParser,
    NodeParser,
    SentenceSplitter,
    TokenTextSplitter,
)
from llama_index.core.node_parser.interface import MetadataAwareTextSplitter
from llama_index.core.schema import BaseNode, MetadataMode

from llama_pack_densex import HierarchicalPropositionNodeParser, PropositionNodeParser
from llama_pack_densex.node_parsers.metadata import (
    ABOVE_KEY,
    GRANULARITY_KEY,
    SECTION_KEY,
    TITLE_KEY,
)
from llama_pack_densex.node_parsers.parsers import BasePropositionNodeParser
from llama_pack_densex.node_parsers.passages import PassageNodeParser
from llama_pack_densex.node_parsers.splitting import SectionNodeParser
from llama_pack_densex.propositionizers.base import Passage

FACT = "The Kyoto office opened in 1999. It moved to Uji in 2004, and nobody was told why. "
ARTICLE = "".join(
    f"# Part {i}\n\n{FACT * 4}\n\n京都の支社は1999年に開いた。翌年に移った。\n\n" for i in range(8)
)


class ByLines(MetadataAwareTextSplitter):
    """A splitter of a user's own, which makes room for metadata as LlamaIndex's do."""

    @classmethod
    def class_name(cls) -> str:
        return "ByLines"

    def split_text(self, text: str) -> list[str]:
        return self.split_text_metadata_aware(text, "")

    def split_text_metadata_aware(self, text: str, metadata_str: str) -> list[str]:
        size = max(1, 200 - len(metadata_str))
        return [text[i : i + size] for i in range(0, len(text), size)]


class OfSplitter(NodeParser):
    """A parser of a user's own with another splitter inside."""

    @classmethod
    def class_name(cls) -> str:
        return "OfSplitter"

    def _parse_nodes(
        self, nodes: Any, show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        return SentenceSplitter(chunk_size=120, chunk_overlap=0)(nodes)


PARSERS: dict[str, BasePropositionNodeParser] = {
    "default": PropositionNodeParser(),
    "small": PropositionNodeParser(base_parser=SentenceSplitter(chunk_size=30, chunk_overlap=10)),
    "tokens": PropositionNodeParser(base_parser=TokenTextSplitter(chunk_size=100, chunk_overlap=0)),
    "own splitter": PropositionNodeParser(base_parser=ByLines()),
    "own parser": PropositionNodeParser(base_parser=OfSplitter()),
    "core's hierarchy": PropositionNodeParser(
        base_parser=HierarchicalNodeParser.from_defaults(chunk_sizes=[300, 80], chunk_overlap=0)
    ),
    "markdown": HierarchicalPropositionNodeParser(
        levels=[MarkdownNodeParser(), SentenceSplitter(chunk_size=80, chunk_overlap=0)]
    ),
    "hierarchy": HierarchicalPropositionNodeParser.from_defaults(chunk_sizes=[300, 100]),
    "sections": HierarchicalPropositionNodeParser.from_defaults(sections=True),
}


def borders(
    parser: BasePropositionNodeParser, metadata: dict[str, Any], **fields: Any
) -> list[tuple[Any, ...]]:
    nodes = parser.get_nodes_from_documents(
        [Document(text=ARTICLE, id_="a", metadata=metadata, **fields)]
    )
    return [(node.node_id, node.start_char_idx, node.end_char_idx, node.text) for node in nodes]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize("tokens", [1, 20, 100, 250, 400])
def test_passages_are_the_same_whatever_metadata_a_document_has(name: str, tokens: int) -> None:
    parser = PARSERS[name]
    assert borders(parser, {"tags": " word" * tokens}) == borders(parser, {})


@settings(deadline=None, max_examples=25)
@given(
    st.dictionaries(
        st.sampled_from(["author", "title", "section", "file_name", "部署", "window", "x" * 300]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=300),
            lambda s: st.lists(s) | st.dictionaries(st.text(), s),
        ),
    ),
    st.sampled_from(sorted(PARSERS)),
    st.sampled_from([(), ("author",), ("title", "section", "部署")]),
)
def test_no_metadata_move_a_border(
    metadata: dict[str, Any], name: str, embed: tuple[str, ...]
) -> None:
    parser = PARSERS[name].model_copy(
        update={"embed_metadata": embed, "llm_metadata": ("author", "window")}
    )
    assert borders(parser, metadata, metadata_template="{key} is {value}") == borders(
        PARSERS[name], {}
    )


def test_what_is_asked_of_an_llm_does_not_hang_on_other_metadata() -> None:
    document = Document(text=ARTICLE, metadata={"title": "Offices"})
    more = Document(text=ARTICLE, metadata={"title": "Offices", "owner": "Sato " * 300})
    assert PropositionNodeParser().passages_of(more) == PropositionNodeParser().passages_of(
        document
    )
    assert all(
        isinstance(one, Passage) and one.title == "Offices"
        for one in PropositionNodeParser().passages_of(more)
    )


TAGGED: dict[str, Any] = {"author": "Sato", "dept": "ops"}


def seen(node: BaseNode, mode: MetadataMode) -> str:
    return node.get_metadata_str(mode)


def test_a_fact_is_embedded_as_it_stands() -> None:
    for node in PropositionNodeParser().get_nodes_from_documents(
        [Document(text=ARTICLE, metadata=TAGGED)]
    ):
        assert node.get_content(MetadataMode.EMBED) == node.get_content(MetadataMode.NONE)
        assert TAGGED.items() <= node.metadata.items()  # for filters


def test_metadata_are_embedded_where_they_are_asked_for() -> None:
    parser = PropositionNodeParser(embed_metadata=["title", "section", "dept", "nowhere"])
    document = Document(
        text="# Offices\n\nThe Kyoto office opened in 1999.",
        metadata={"file_name": "手引き.md", **TAGGED},
    )
    for node in parser.get_nodes_from_documents([document]):
        assert seen(node, MetadataMode.EMBED) == "title: Offices\nsection: Offices\ndept: ops"


def test_the_llm_reads_where_a_text_is_from_and_nothing_else() -> None:
    document = Document(
        text="# 沿革\n\n京都の支社は1999年に開いた。",
        metadata={**TAGGED, "title": "支社の手引き", "file_name": "offices.pdf", "page_label": "3"},
    )
    for node in PropositionNodeParser().get_nodes_from_documents([document]):
        assert seen(node, MetadataMode.LLM) == (
            "title: 支社の手引き\nsection: 沿革\nfile_name: offices.pdf\npage_label: 3"
        )
        assert node.get_content(MetadataMode.LLM).endswith(f"\n\n{node.get_content()}")


def test_a_files_name_is_not_said_twice(tmp_path: Path) -> None:
    (tmp_path / "offices.txt").write_text("The Kyoto office opened in 1999.")
    documents = SimpleDirectoryReader(str(tmp_path)).load_data()
    for node in PropositionNodeParser().get_nodes_from_documents(documents):
        assert seen(node, MetadataMode.LLM) == "file_name: offices.txt"
        assert seen(node, MetadataMode.EMBED) == ""
        assert (node.metadata["title"], node.metadata[TITLE_KEY]) == ("offices", "offices")
    parser = PropositionNodeParser(embed_metadata="title", llm_metadata=["title", "file_type"])
    for node in parser.get_nodes_from_documents(documents):
        assert seen(node, MetadataMode.EMBED) == "title: offices"
        assert seen(node, MetadataMode.LLM) == "title: offices\nfile_type: text/plain"


def test_a_users_own_title_and_section_stay_as_they_are() -> None:
    own = {"title": {"ja": "手引き"}, "section": ["a", 1]}
    nodes = PropositionNodeParser().get_nodes_from_documents(
        [Document(text=f"# Head\n\n{FACT}", metadata=own)]
    )
    assert all(own.items() <= node.metadata.items() for node in nodes)
    assert {node.metadata[SECTION_KEY] for node in nodes} == {"['a', 1]"}


def test_titles_in_a_list_are_said_one_after_the_other() -> None:
    nodes = PropositionNodeParser().get_nodes_from_documents(
        [Document(text=FACT, metadata={"title": ["手引き", "A"]})]
    )
    assert {node.metadata[TITLE_KEY] for node in nodes} == {"手引き, A"}


def test_a_unit_says_the_section_that_it_stands_in_itself() -> None:
    text = "Before all heads, nothing.\n\n# One\n\nRain fell.\n\n# Two\n\nIt was cold."
    nodes = PropositionNodeParser().get_nodes_from_documents([Document(text=text)])
    sections = [
        node.metadata.get("section")
        for node in nodes
        if node.metadata[GRANULARITY_KEY] == "proposition"
    ]
    assert sections == [None, "One", "Two"]
    assert [node.metadata.get("section") for node in nodes] == [
        node.metadata[SECTION_KEY] or None for node in nodes
    ]
    assert all(seen(node, MetadataMode.EMBED) == "" for node in nodes)


def test_a_page_goes_on_in_the_sections_of_the_page_before() -> None:
    text = "Before all heads, rain.\n\n## Two\n\nRain fell.\n\n# Three\n\nIt was cold."
    page = Document(text=text, metadata={ABOVE_KEY: ["One", "A"]})
    nodes = PropositionNodeParser().get_nodes_from_documents([page])
    sections = [
        node.metadata["section"]
        for node in nodes
        if node.metadata[GRANULARITY_KEY] == "proposition"
    ]
    assert sections == ["One, A", "One, Two", "Three"]
    assert all(ABOVE_KEY not in node.metadata for node in nodes)
    parser = PropositionNodeParser()
    assert parser.document_hash(page) != parser.document_hash(Document(text=text))


def test_what_the_user_excluded_himself_stays_excluded() -> None:
    document = Document(
        text=FACT,
        metadata={**TAGGED, "title": "Offices", "file_name": "offices.txt"},
        excluded_embed_metadata_keys=["dept"],
        excluded_llm_metadata_keys=["file_name"],
    )
    for node in PropositionNodeParser(embed_metadata=["dept", "author"]).get_nodes_from_documents(
        [document]
    ):
        assert seen(node, MetadataMode.EMBED) == "author: Sato"
        assert seen(node, MetadataMode.LLM) == "title: Offices"


@pytest.mark.parametrize("name", PARSERS)
def test_a_documents_templates_are_its_nodes_templates(name: str) -> None:
    document = Document(
        text=ARTICLE,
        metadata={"title": "offices", "file_name": "offices.txt"},
        metadata_template="{key}={value}",
        metadata_separator="; ",
        text_template="<{metadata_str}> {content}",
    )
    parser = PARSERS[name].model_copy(update={"llm_metadata": ("title", "file_name")})
    for node in parser.get_nodes_from_documents([document]):
        assert (
            node.get_content(MetadataMode.LLM)
            == f"<file_name=offices.txt> {node.get_content()}".strip()
        )


def test_metadata_that_a_base_parser_adds_can_be_shown() -> None:
    parser = PropositionNodeParser(
        base_parser=MarkdownNodeParser(), embed_metadata=["header_path"], llm_metadata=()
    )
    nodes = parser.get_nodes_from_documents(
        [Document(text="# A\n\nRain fell.\n\n## B\n\nIt was cold.")]
    )
    assert {seen(node, MetadataMode.EMBED) for node in nodes} == {
        "header_path: /",
        "header_path: /A/",
    }
    assert {seen(node, MetadataMode.LLM) for node in nodes} == {""}


def test_what_is_embedded_decides_whether_a_document_has_changed() -> None:
    plain = Document(text=FACT, id_="a", metadata=TAGGED)
    default = PropositionNodeParser()

    def changed(document: Document, **fields: Any) -> bool:
        parser = default.model_copy(update=fields)
        return parser.document_hash(document) != default.document_hash(document)

    assert changed(plain, embed_metadata=("dept",))
    assert not changed(plain, llm_metadata=("dept",))
    assert changed(
        Document(text=FACT, metadata={"file_path": "/a/offices.txt"}), embed_metadata=("title",)
    )
    assert changed(Document(text=f"# Head\n\n{FACT}"), embed_metadata=("section",))
    hidden = Document(text=FACT, metadata=TAGGED, excluded_embed_metadata_keys=["dept"])
    assert not changed(hidden, embed_metadata=("dept",))
    markdown = {"base_parser": MarkdownNodeParser()}
    assert default.model_copy(update=markdown).document_hash(plain) != default.model_copy(
        update={**markdown, "embed_metadata": ("header_path",)}
    ).document_hash(plain)


def test_ids_do_not_hang_on_what_models_see() -> None:
    document = Document(text=ARTICLE, id_="a", metadata=TAGGED)
    default = PropositionNodeParser()
    other = PropositionNodeParser(embed_metadata=["dept"], llm_metadata=())
    ids = [
        [node.node_id for node in parser.get_nodes_from_documents([document])]
        for parser in (default, other)
    ]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("section", ["", None, 0, "Head", ["a"]])
def test_a_section_of_a_users_own_stays_what_it_is(section: Any) -> None:
    own = {"section": section, "dept": "ops"}
    for node in PropositionNodeParser().get_nodes_from_documents(
        [Document(text=f"# Head\n\n{FACT}", metadata=own)]
    ):
        assert node.metadata["section"] == section


def test_a_parser_is_made_of_its_dictionary_with_what_models_see() -> None:
    parser = HierarchicalPropositionNodeParser.from_defaults(
        embed_metadata=["dept"], llm_metadata=["author"]
    )
    parser.levels.insert(0, SectionNodeParser())
    again = HierarchicalPropositionNodeParser.from_dict(parser.to_dict())
    assert (again.embed_metadata, again.llm_metadata) == (("dept",), ("author",))


def test_nothing_is_printed_of_small_passages(capsys: pytest.CaptureFixture[str]) -> None:
    borders(
        PropositionNodeParser(base_parser=PassageNodeParser(chunk_size=30)), {"tags": " word" * 100}
    )
    assert capsys.readouterr().out == ""
