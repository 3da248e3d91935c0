"""Changes in any order beside a plain dictionary of what should be there: nothing is lost, and nothing comes
back."""

from __future__ import annotations

import random
import re
from itertools import count

import pytest
from llama_index.core import Document
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_pack_densex import DenseXRetrievalPack
from tests.integration.stores.checks import everything
from tests.integration.stores.corpus import HOSTILE_ID, document, options
from tests.integration.stores.open_store import OpenStore

pytestmark = pytest.mark.slow

IDS = ("harbour", "mill", "dir/chapel.md", "灯台/港.md", "茶", "a,b", HOSTILE_ID)
THINGS = ("harbour", "lantern", "orchard", "ferry", "橋", "灯台", "味噌", "庭園")
GRANULARITIES = (
    ("proposition", "sentence", "passage"),
    ("proposition",),
    ("passage",),
    ("sentence", "passage"),
)
CHANGES = ("insert", "insert", "refresh", "refresh", "delete", "purge", "compact", "reopen")
STEPS = 14


class Documents:
    """What an index should hold, and makes more for it; each sentence has a word of its own.

    Args:
        seed: The same documents come of the same one.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.there: dict[str, Document] = {}
        self.gone: set[str] = set()  # words
        self._numbers = count(1)

    def new(self, document_id: str) -> Document:
        sentences = [self._sentence() for _ in range(self.chance.choice((1, 2, 3, 8)))]
        return document(document_id, " ".join(sentences), {"shelf": self.chance.randrange(3)})

    def put(self, documents: list[Document]) -> None:
        self.drop([one.id_ for one in documents if self.there.get(one.id_, one) is not one])
        self.there |= {one.id_: one for one in documents}

    def drop(self, ids: list[str]) -> None:
        for document_id in ids:
            self.gone |= words_of(self.there.pop(document_id))

    def some(self, most: int) -> list[str]:
        return self.chance.sample(sorted(self.there), min(most, len(self.there)))

    def _sentence(self) -> str:
        own = "zq" + "".join(chr(97 + int(digit)) for digit in f"{next(self._numbers):03d}") + "x"
        first, second = self.chance.sample(THINGS, 2)
        pattern = self.chance.choice(("The {} of {} is near the {}.", "{}の{}は{}の近くにある。"))
        return pattern.format(first, own, second)


def words_of(one: Document) -> set[str]:
    """The words that no other document has."""
    return set(re.findall("zq[a-j]{3}x", one.text))


@pytest.mark.parametrize("seed", range(2))
def test_changes_in_any_order(store: OpenStore, mode: str, seed: int) -> None:
    documents = Documents(seed)
    chance = documents.chance
    how = options(mode, granularity=GRANULARITIES[2 * seed + (mode == "recursive")])
    documents.put([documents.new(IDS[0])])
    pack = store.build(documents.there.values(), **how)
    for _ in range(STEPS):
        change = chance.choice(CHANGES)
        if change in ("insert", "refresh"):
            chosen = chance.sample(IDS, chance.randint(1, 4))
            kept = [
                name
                for name in chosen
                if change == "refresh" and name in documents.there and chance.random() < 0.5
            ]
            given = [
                documents.there[name] if name in kept else documents.new(name) for name in chosen
            ]
            if change == "insert":
                pack.insert(given)
            else:
                gone = [name for name in documents.some(1) if name not in chosen]
                assert pack.refresh(given, gone=gone) == [name not in kept for name in chosen]
                documents.drop(gone)
            documents.put(given)
        elif change in ("delete", "purge"):
            gone = documents.some(2)
            assert pack.delete([*gone, "nowhere"], purge=change == "purge") == len(gone)
            documents.drop(gone)
        elif change == "compact":
            pack.compact()
        elif documents.there:
            pack = store.reopen(**how)
        _check(pack, documents)


def _check(pack: DenseXRetrievalPack, documents: Documents) -> None:
    assert set(pack.documents()) == set(documents.there)
    texts: dict[str | None, str] = {}
    for node in pack.nodes():
        texts[node.ref_doc_id] = texts.get(node.ref_doc_id, "") + node.get_content()
    assert set(texts) == set(documents.there)
    for name, one in documents.there.items():
        assert all(word in texts[name] for word in words_of(one))
    assert not any(word in text for word in documents.gone for text in texts.values())
    for name in documents.some(2):
        word = min(words_of(documents.there[name]))
        first = pack.retrieve(word, similarity_top_k=1)[0]
        assert first.node.ref_doc_id == name
        assert word in first.node.get_content()
    for shelf in range(3):
        filters = MetadataFilters(filters=[MetadataFilter(key="shelf", value=shelf)])
        wanted = {name for name, one in documents.there.items() if one.metadata["shelf"] == shelf}
        assert everything(pack, filters=filters) == wanted
    assert pack.missing_links == 0
