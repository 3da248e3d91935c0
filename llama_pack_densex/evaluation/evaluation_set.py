"""The data model of a dataset: documents, questions about them, and what is known about the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llama_index.core.schema import Document, MediaResource

from llama_pack_densex.evaluation.runs import Qrels
from llama_pack_densex.node_parsers.splitting import title_of

Span = tuple[int, int]


@dataclass(frozen=True)
class Question:
    """A question and what is known about its answer.

    Attributes:
        id: Unique within its set.
        text: The question.
        answers: The right answers, any of which will do; empty if the dataset has only relevance labels.
        document_id: The document that holds the answer; "" if unknown.
        span: The gold passage in that document's text, in characters; None if unknown.
        candidates: Ids of the documents to search for the answer; if empty, all are searched.
        own_document_id: The document that is the question itself, as in ArguAna, and so no answer to it; ""
            if there is none.
        evidence: The words of the document that answer the question; "" if unknown.
        kind: The kind of question, such as "fact"; "" if unknown.

    Example:
        >>> from llama_pack_densex.evaluation import Question
        >>> question = Question("1", "みそはどのくらい持ちますか。", ("1年",), document_id="miso.md")
        >>> question.document_id
        'miso.md'
    """

    id: str
    text: str
    answers: tuple[str, ...]
    document_id: str = ""
    span: Span | None = None
    candidates: tuple[str, ...] = ()
    own_document_id: str = ""
    evidence: str = ""
    kind: str = ""


@dataclass(frozen=True)
class EvaluationSet:
    """A dataset as every strategy sees it.

    Attributes:
        name: The name of the dataset in reports.
        language: "en", "ja", ...
        documents: Whole articles, each with an id of its own and, where it has one, its `title` as metadata.
        questions: In the dataset's order.
        passages: Document id to the spans of the dataset's own passages in the document's text, in order.
        relevance: Question id to document id to label, above 0 for relevant documents; empty if the dataset
            has no such labels.

    Example:
        >>> from llama_index.core import Document
        >>> from llama_pack_densex.evaluation import EvaluationSet, Question
        >>> document = Document(
        ...     id_="miso.md", text="Miso is salty. Miso keeps for a year.", metadata={"title": "Miso"}
        ... )
        >>> question = Question("1", "How long does miso keep?", ("a year",), "miso.md", span=(15, 37))
        >>> dataset = EvaluationSet("food", "en", [document], [question], {"miso.md": [(0, 14), (15, 37)]})
        >>> len(dataset.questions)
        1
    """

    name: str = ""
    language: str = ""
    documents: list[Document] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    passages: dict[str, list[Span]] = field(default_factory=dict)
    relevance: Qrels = field(default_factory=dict)

    @property
    def has_candidates(self) -> bool:
        """Whether some questions come with the passages to be ranked."""
        return any(question.candidates for question in self.questions)

    def add_article(
        self,
        name: str,
        title: str,
        texts: Sequence[str],
        gap: str = "\n\n",
    ) -> list[tuple[str, Span]]:
        """Add a document that is made of passages; if its name is taken, a number is appended.

        Returns:
            For each passage, the document's id and the passage's span in it.
        """
        document_id = name
        number = 1
        while document_id in self.passages:
            number += 1
            document_id = f"{name} ({number})"
        spans = []
        start = 0
        for text in texts:
            spans.append((start, start + len(text)))
            start += len(text) + len(gap)
        self.documents.append(make_document(document_id, title, gap.join(texts)))
        self.passages[document_id] = spans
        return [(document_id, span) for span in spans]

    @property
    def titles(self) -> dict[str, str]:
        """Document id to title, or to the id if it has none.

        Example:
            >>> dataset.titles
            {'miso.md': 'Miso'}
        """
        return {document.id_: title_of(document) or document.id_ for document in self.documents}

    def passages_of(self, document: Document) -> list[Span]:
        """Return the spans of a document's passages; a document without known passages is one passage."""
        return self.passages.get(document.id_, [(0, len(document.text))])

    def passage_documents(self) -> list[Document]:
        """Return each of the dataset's passages as a document of its own, with the article's metadata.

        Its id is `articleid/n`, where `n` counts an article's passages from 0.

        Example:
            >>> [(passage.id_, passage.text) for passage in dataset.passage_documents()]
            [('miso.md/0', 'Miso is salty.'), ('miso.md/1', 'Miso keeps for a year.')]
        """
        return [
            document.model_copy(
                update={
                    "id_": f"{document.id_}/{number}",
                    "metadata": dict(document.metadata),
                    "text_resource": MediaResource(text=document.text[start:end]),
                },
            )
            for document in self.documents
            for number, (start, end) in enumerate(self.passages_of(document))
        ]


def make_document(document_id: str, title: str, text: str) -> Document:
    """Make a document with its title in the metadata, unless that is empty."""
    return Document(id_=document_id, text=text, metadata={"title": title} if title else {})
