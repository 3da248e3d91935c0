"""What an evaluation is made of: documents, questions about them, and the passages that the dataset's authors cut."""

from __future__ import annotations

from dataclasses import dataclass, field

from llama_index.core.schema import Document

Span = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """Where a retrieved unit stands: a document's id and, where it is known, a span of its text in characters."""

    document_id: str
    span: Span | None = None


@dataclass(frozen=True)
class Question:
    """A question and what is known about its answer.

    Attributes:
        id: Unique within its set.
        text: The question.
        answers: Strings of which any one is a right answer; empty where the dataset has relevance labels only.
        document_id: The document that holds the answer, "" where the dataset does not say.
        span: The gold passage in that document's text, in characters, None where the dataset does not say.
        candidates: Ids of the documents to rank, where the dataset gives them; else all documents are searched.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    document_id: str = ""
    span: Span | None = None
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationSet:
    """A dataset as every strategy sees it.

    Attributes:
        name: What a report calls it.
        language: "en", "ja", ...
        documents: Whole articles, each with an id of its own and, where it has one, its `title` as metadata.
        questions: In the dataset's order.
        passages: Document id to the spans of the dataset's own passages in the document's text, in order.
        relevance: Question id to the labels of documents, above 0 for relevant ones; for the questions of datasets that
            have such labels.
    """

    name: str
    language: str
    documents: list[Document]
    questions: list[Question]
    passages: dict[str, list[Span]] = field(default_factory=dict)
    relevance: dict[str, dict[str, int]] = field(default_factory=dict)

    def passage_documents(self) -> list[Document]:
        """Each of the dataset's passages as a document of its own, with the article's metadata.

        Its id is `articleid/n`, where `n` counts an article's passages from 0. An article of which no passages are
        known is one passage.
        """
        return [
            Document(
                id_=f"{document.id_}/{number}",
                text=document.text[start:end],
                metadata=dict(document.metadata),
                excluded_embed_metadata_keys=list(document.excluded_embed_metadata_keys),
                excluded_llm_metadata_keys=list(document.excluded_llm_metadata_keys),
            )
            for document in self.documents
            for number, (start, end) in enumerate(self.passages.get(document.id_, [(0, len(document.text))]))
        ]
