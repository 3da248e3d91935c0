from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Document

from llama_pack_densex import HierarchicalPropositionNodeParser, PropositionNodeParser
from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from tests.another_process import run_program

pytestmark = pytest.mark.together("forks")

TEXT = "Rain fell. Rain fell. The match was called off.\n\nRain fell."


def ids(*documents: Document, parser: PropositionNodeParser | None = None) -> list[str]:
    return [
        node.node_id
        for node in (parser or PropositionNodeParser()).get_nodes_from_documents(list(documents))
    ]


def test_the_same_input_gives_the_same_ids() -> None:
    assert ids(Document(text=TEXT, id_="a")) == ids(Document(text=TEXT, id_="a"))


def test_a_document_whose_id_core_made_up_gets_the_same_ids_each_time() -> None:
    first, second = Document(text=TEXT), Document(text=TEXT)
    assert first.id_ != second.id_
    assert ids(first) == ids(second)


def test_source_is_the_documents_own_id() -> None:
    document = Document(text=TEXT)
    assert {
        node.ref_doc_id for node in PropositionNodeParser().get_nodes_from_documents([document])
    } == {document.id_}


def test_ids_are_uuids_of_version_5() -> None:
    assert {uuid.UUID(node_id).version for node_id in ids(Document(text=TEXT))} == {5}


def test_two_documents_of_equal_text_are_two_documents() -> None:
    for first, second in (
        (Document(text=TEXT), Document(text=TEXT)),
        (Document(text=TEXT, id_="a"),) * 2,
    ):
        both = ids(first, second)
        assert len(set(both)) == len(both) == 2 * len(ids(first))


def test_a_documents_id_is_part_of_its_nodes_ids() -> None:
    assert not set(ids(Document(text=TEXT, id_="a"))) & set(ids(Document(text=TEXT, id_="b")))


def test_a_change_of_one_passage_leaves_the_ids_of_the_others() -> None:
    parser = PropositionNodeParser()
    parser.base_parser.chunk_size = 60  # type: ignore[attr-defined]
    paragraphs = [f"Paragraph {i} tells of place number {i}. " * 8 for i in range(5)]
    before = ids(Document(text="\n\n".join(paragraphs), id_="a"), parser=parser)
    paragraphs[-1] = "The last paragraph is another one now."
    after = ids(Document(text="\n\n".join(paragraphs), id_="a"), parser=parser)
    assert len(set(before) & set(after)) > len(before) / 2


def test_a_files_dates_do_not_count_and_its_users_metadata_do() -> None:
    plain = Document(text=TEXT)
    touched = Document(text=TEXT, metadata={"last_modified_date": "2026-01-01"})
    tagged = Document(text=TEXT, metadata={"author": "Ada"})
    assert ids(plain) == ids(touched) != ids(tagged)
    parser = PropositionNodeParser()
    assert (
        parser.document_hash(plain) == parser.document_hash(touched) != parser.document_hash(tagged)
    )


class Shouting(Propositionizer):
    async def apropositionize(self, passages: list[Passage]) -> list[PropositionSet]:  # type: ignore[override]
        return [PropositionSet((passage.text.upper(),)) for passage in passages]

    def fingerprint_data(self) -> dict[str, object]:
        return {}

    @classmethod
    def class_name(cls) -> str:
        return "Shouting"


def test_another_propositionizer_gives_other_ids() -> None:
    document = Document(text="ABC.", id_="a")
    assert not set(ids(document)) & set(
        ids(document, parser=PropositionNodeParser(propositionizer=Shouting()))
    )


def test_ids_are_the_same_in_another_process() -> None:
    program = (
        "from llama_index.core import Document\nfrom llama_pack_densex import PropositionNodeParser\n"
        f"document = Document(text={TEXT!r}, id_='a', metadata={{'b': 1, 'a': ['x', {{'y': None}}]}})\n"
        "print([node.node_id for node in PropositionNodeParser().get_nodes_from_documents([document])])"
    )
    code, other, errors = run_program(program)
    assert code == 0, errors
    document = Document(text=TEXT, id_="a", metadata={"a": ["x", {"y": None}], "b": 1})
    assert other.strip() == str(ids(document))


@given(st.lists(st.text(alphabet="ab .。雨\n", max_size=60), max_size=4))
def test_no_id_is_given_twice(texts: list[str]) -> None:
    for parser in (
        PropositionNodeParser(granularity=("proposition", "sentence")),
        HierarchicalPropositionNodeParser.from_defaults(chunk_sizes=[60, 20]),
    ):
        made = [
            node.node_id
            for node in parser.get_nodes_from_documents([Document(text=text) for text in texts])
        ]
        assert len(set(made)) == len(made)
