"""What the stores are filled with and asked, the same in every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core import Document
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_pack_densex.propositionizers.base import Passage, Propositionizer, PropositionSet
from llama_pack_densex.text.segments import passage_sentences
from tests.searching import ENGLISH, JAPANESE, ShortEmbedding

MODES = ("recursive", "auto_merging")
HOSTILE_ID = """it's "100%" \\ back_slash; DROP TABLE nodes;--/?&#=$1 {x} `y` [z] * 🗻"""
TIDES = (
    "The Moon pulls the ocean towards itself, and its pull raises two bulges of water. "
    "The tide rises and falls twice on most days. "
    "The Bay of Fundy has the highest tides of all, and they reach 16 metres at its head. "
    "A tide mill stores the water that comes in and turns its wheel when it goes out."
)
METADATA: dict[str, dict[str, Any]] = {
    "tides": {"topic": "sea", "year": 1998, "rating": 4.5, "tags": ["moon", "water"]},
    "bridge": {"topic": "building", "year": 1998, "rating": 3.0, "tags": ["strait", "water"]},
    "miso": {"topic": "food", "year": 2003, "rating": 4.0, "tags": ["salt"]},
    "lighthouse": {"topic": "building", "year": 1987, "rating": 2.5, "tags": []},
    "琵琶湖": {"topic": "湖", "year": 2011, "rating": 5.0, "tags": ["水", "water"]},
    "新幹線": {"topic": "鉄道", "year": 1964, "rating": 4.5, "tags": ["東京"]},
    "将棋": {
        "topic": "遊び",
        "year": 2020,
        "rating": 3.5,
        "tags": ["駒"],
        "review": {"by": "羽生"},
    },
    HOSTILE_ID: {"topic": "craft", "year": 1700, "rating": 1.0, "tags": ["sand"]},
}
TEXTS = {**ENGLISH, **JAPANESE, "tides": TIDES, HOSTILE_ID: ENGLISH["glass"]}
QUESTIONS = {
    "When did the Akashi Bridge open?": "bridge",
    "Does the lamp of the lighthouse turn every ten seconds?": "lighthouse",
    "What is the heat of melted glass lowered by?": HOSTILE_ID,
    "How high are the highest tides in the Bay of Fundy?": "tides",
    "新幹線が開業したのは何年ですか。": "新幹線",
    "将棋は二人で指しますか。": "将棋",
}
ABOUT_ALL = "The Moon, the Akashi Bridge, miso, the lighthouse, glass, 琵琶湖, 新幹線, 将棋"
"""A question with a word of each document."""
EVERYTHING = 50  # more than there are passages


def corpus(*names: str) -> list[Document]:
    """The documents with these ids; all of them where none is named."""
    return [document(name, TEXTS[name], METADATA[name]) for name in names or METADATA]


def document(name: str, text: str, metadata: dict[str, Any]) -> Document:
    """A document whose metadata no model sees."""
    hidden = list(metadata)
    return Document(
        id_=name,
        text=text,
        metadata=dict(metadata),
        excluded_embed_metadata_keys=hidden,
        excluded_llm_metadata_keys=hidden,
    )


class PairPropositionizer(Propositionizer):
    """Makes a proposition of each sentence and the one after it, so that propositions are no sentences."""

    _asked: int = PrivateAttr(default=0)

    @classmethod
    def class_name(cls) -> str:
        return "PairPropositionizer"

    @property
    def asked(self) -> int:
        """How many passages it was given."""
        return self._asked

    def propositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        self._asked += len(passages)
        return [PropositionSet(_pairs(passage_sentences(passage.text))) for passage in passages]

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return self.propositionize(passages)

    def fingerprint_data(self) -> dict[str, Any]:
        return {}


def _pairs(sentences: Sequence[str]) -> tuple[str, ...]:
    following = (*sentences[1:], "That is all.")
    return tuple(f"{first} {second}" for first, second in zip(sentences, following, strict=True))


def options(mode: str, **others: Any) -> dict[str, Any]:
    """A pack's arguments, for documents of several passages."""
    return {
        "embed_model": ShortEmbedding(),
        "propositionizer": PairPropositionizer(),
        "text_splitter": SentenceSplitter(chunk_size=24, chunk_overlap=0),
        "mode": mode,
        **others,
    }


def one(key: str, operator: FilterOperator, value: Any) -> MetadataFilters:
    """A single condition."""
    return MetadataFilters(filters=[MetadataFilter(key=key, operator=operator, value=value)])


FILTERS: dict[str, tuple[MetadataFilters, set[str]]] = {
    "equal": (one("topic", FilterOperator.EQ, "building"), {"bridge", "lighthouse"}),
    "equal in Japanese": (one("topic", FilterOperator.EQ, "鉄道"), {"新幹線"}),
    "not equal": (
        one("topic", FilterOperator.NE, "building"),
        set(METADATA) - {"bridge", "lighthouse"},
    ),
    "greater": (one("year", FilterOperator.GT, 2003), {"琵琶湖", "将棋"}),
    "at least, of floats": (one("rating", FilterOperator.GTE, 4.5), {"tides", "琵琶湖", "新幹線"}),
    "in": (one("year", FilterOperator.IN, [1964, 1998]), {"tides", "bridge", "新幹線"}),
    "not in": (
        one("topic", FilterOperator.NIN, ["building", "food", "sea", "craft"]),
        {"琵琶湖", "新幹線", "将棋"},
    ),
    "contains": (one("tags", FilterOperator.CONTAINS, "water"), {"tides", "bridge", "琵琶湖"}),
    "any of a list": (one("tags", FilterOperator.ANY, ["moon", "駒"]), {"tides", "将棋"}),
    "all of a list": (one("tags", FilterOperator.ALL, ["water", "水"]), {"琵琶湖"}),
    "text": (one("topic", FilterOperator.TEXT_MATCH, "oo"), {"miso"}),
    "empty": (one("tags", FilterOperator.IS_EMPTY, None), {"lighthouse"}),
    "or": (
        MetadataFilters(
            filters=[
                MetadataFilter(key="topic", value="food"),
                MetadataFilter(key="year", value=1964),
            ],
            condition=FilterCondition.OR,
        ),
        {"miso", "新幹線"},
    ),
    "nested": (
        MetadataFilters(
            filters=[
                MetadataFilter(key="year", operator=FilterOperator.GTE, value=1987),
                MetadataFilters(
                    filters=[
                        MetadataFilter(key="tags", operator=FilterOperator.CONTAINS, value="water"),
                        MetadataFilter(key="topic", value="building"),
                    ],
                    condition=FilterCondition.OR,
                ),
            ]
        ),
        {"tides", "bridge", "琵琶湖", "lighthouse"},
    ),
    "nobody": (one("topic", FilterOperator.EQ, "philately"), set()),
    "a key that nobody has": (one("colour", FilterOperator.EQ, "red"), set()),
}
