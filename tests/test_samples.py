"""`load_sample`: what an installation has to try the pack on."""

from __future__ import annotations

import pytest

from llama_pack_densex import DenseXRetrievalPack, compare, load_sample

LANGUAGES = ["en", "ja"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_question_is_about_a_document_of_its_language(language: str) -> None:
    sample = load_sample(language)
    ids = [document.id_ for document in sample.documents]
    assert sample.language == language
    assert len(ids) == 7
    assert len(sample.questions) == 30
    assert {question.document_id for question in sample.questions} <= set(ids)
    assert all(id_.startswith(f"{language}/") for id_ in ids)


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_answer_stands_in_the_document_that_a_question_names(language: str) -> None:
    sample = load_sample(language)
    texts = {document.id_: document.text for document in sample.documents}
    for question in sample.questions:
        assert any(answer in texts[question.document_id] for answer in question.answers), question


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_passage_has_recorded_propositions(language: str) -> None:
    sample = load_sample(language)
    pack = DenseXRetrievalPack(
        sample.documents,
        propositionizer=sample.propositionizer(),
        query_llm="none",
        embed_model="none",
    )
    counts = pack.counts()
    assert counts.statuses == {"ok": counts.passages}
    assert counts.propositions > 3 * counts.passages


@pytest.mark.parametrize("language", LANGUAGES)
def test_compare_takes_a_sample_as_it_is(language: str) -> None:
    sample = load_sample(language)
    report = compare(
        sample.documents,
        sample.questions,
        ["densex"],
        embed_model="none",
        propositionizer=sample.propositionizer(),
    )
    assert report.dataset.language == language
    assert report.strategies[0].metrics["answer_recall"] >= 0.9


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_llm_makes_the_propositions_that_were_recorded(language: str) -> None:
    sample = load_sample(language)
    with_llm = DenseXRetrievalPack(sample.documents, sample.llm(), "none", "none")
    recorded = DenseXRetrievalPack(
        sample.documents,
        propositionizer=sample.propositionizer(),
        query_llm="none",
        embed_model="none",
    )
    texts, expected = (
        [node.text for node in pack.nodes("proposition")] for pack in (with_llm, recorded)
    )
    assert sorted(texts) == sorted(expected)


@pytest.mark.parametrize(
    ("language", "question", "answer"),
    [
        ("en", "Who was the commander of Apollo 13?", "Jim Lovell"),
        ("en", "Which star will Voyager 1 come near in about 40,000 years?", "Gliese 445"),
        ("ja", "ドウデュースの父は？", "ハーツクライ"),
    ],
)
def test_the_llm_answers_and_cites_the_passage_that_says_it(
    language: str, question: str, answer: str
) -> None:
    sample = load_sample(language)
    pack = DenseXRetrievalPack(sample.documents, sample.llm(), sample.llm(), "none")
    response = pack.run(question)
    assert answer in str(response)
    assert all(sentence["supported"] for sentence in response.metadata["sentences"])
    assert answer in response.metadata["citations"][0]["text"]
    streamed = DenseXRetrievalPack(
        sample.documents, sample.llm(), sample.llm(), "none", streaming=True
    )
    assert "".join(streamed.run(question).response_gen) == str(response)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_llm_says_what_it_was_not_asked(language: str) -> None:
    sample = load_sample(language)
    with pytest.raises(ValueError, match="no reply to a request that ends with 'Why\\?'"):
        sample.llm().complete("Why?")
    with pytest.raises(ValueError, match="no reply to a request that ends with 'なぜ？'"):
        await sample.llm().acomplete("なぜ？")


def test_documents_name_no_folder_of_the_installation() -> None:
    for document in load_sample("ja").documents:
        assert document.metadata["file_path"] == document.id_


def test_another_language_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="no sample in 'fr': there are samples in en and ja"):
        load_sample("fr")


def test_english_is_what_comes_without_a_name() -> None:
    assert load_sample().language == "en"
