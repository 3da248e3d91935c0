"""Documents come, change and go in any order, and now and then something breaks: an index has what it is to
have."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.simple import SimpleVectorStore

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.index.upkeep import check_index
from tests.embedding import DIMENSION, TrigramEmbedding

STEPS = 12
IDS = [*(f"d{number}" for number in range(9)), "文書/一.md", "a b#c.txt", "d%20?"]
SENTENCES = [
    "The tunnel {} has {} parts. ",
    "Of the bridge {}, {} parts are old. ",
    "蔵の識別{}号には樽が{}個あります。",
]


@dataclass(frozen=True)
class Written:
    """A document whose every sentence has a word that no other has."""

    id: str
    sentences: tuple[tuple[str, str], ...]  # word, sentence
    year: int

    @classmethod
    def anew(cls, choice: random.Random, document_id: str) -> Written:
        number = choice.choice([1, 2, 3, 8, 30])
        return cls(
            document_id, tuple(sentence(choice) for _ in range(number)), choice.randint(1990, 2020)
        )

    def changed(self, choice: random.Random) -> Written:
        place = choice.randrange(len(self.sentences))
        before, after = self.sentences[:place], self.sentences[place:]
        of_text = [
            (*before, sentence(choice), *after),
            self.sentences + before,
            (*before, *after[1:]) or after,
        ]
        return choice.choice(
            [replace(self, year=self.year + 1), *(replace(self, sentences=one) for one in of_text)]
        )

    @property
    def document(self) -> Document:
        parts = (self.sentences[start : start + 7] for start in range(0, len(self.sentences), 7))
        text = "".join(
            f"## Part {i}\n\n{''.join(one for _, one in part)}\n\n" for i, part in enumerate(parts)
        )
        return Document(
            text=text, id_=self.id, metadata={"year": self.year, "of": [1, {"x": None}]}
        )


def sentence(choice: random.Random) -> tuple[str, str]:
    word = f"zq{choice.randrange(10**9)}x"
    return word, choice.choice(SENTENCES).format(word, choice.randint(1, 999))


class Refusing(TrigramEmbedding):
    """Does not embed what has some word."""

    _refused: str = PrivateAttr("nothing")

    def refuse(self, word: str) -> None:
        self._refused = word

    def _get_text_embedding(self, text: str) -> list[float]:
        if self._refused in text:
            raise ValueError("this text is refused")
        return super()._get_text_embedding(text)


def told(nodes: Iterable[BaseNode]) -> dict[str, object]:
    """All of some nodes, by id."""
    of_each = [(node.node_id, json.loads(node.to_json())) for node in nodes]
    for _, node in of_each:
        node.pop("embedding")
    found = dict(of_each)
    assert len(found) == len(of_each)
    return found


def made_of(pack: DenseXRetrievalPack, written: Iterable[Written]) -> dict[str, object]:
    """The nodes of an index that is made anew."""
    return told(
        node
        for one in written
        for node in pack.node_parser.get_nodes_from_documents([one.document])
    )


def check_that_it_holds(
    pack: DenseXRetrievalPack, held: dict[str, Written], gone: set[str], choice: random.Random
) -> None:
    assert told(pack.nodes()) == made_of(pack, held.values())
    assert set(pack.documents()) == set(held)
    by_word = {word: one for one in held.values() for word, _ in one.sentences}
    for word in choice.sample(sorted(by_word), min(3, len(by_word))):
        of_year = MetadataFilters(filters=[MetadataFilter(key="year", value=by_word[word].year)])
        for filters in (None, of_year):
            found = pack.retrieve(word, similarity_top_k=3, filters=filters)
            assert any(word in hit.node.get_content() for hit in found)
    for word in choice.sample(sorted(gone), min(3, len(gone))):
        assert not any(
            word in hit.node.get_content() for hit in pack.retrieve(word, similarity_top_k=3)
        )
    assert pack.missing_links == 0


def faiss_store() -> Any:
    faiss = pytest.importorskip("faiss")
    vector_stores = pytest.importorskip("llama_index.vector_stores.faiss")
    return vector_stores.FaissMapVectorStore(
        faiss_index=faiss.IndexIDMap2(faiss.IndexFlatIP(DIMENSION))
    )


STORES = {"memory": None, "folder": None, "simple": SimpleVectorStore, "faiss": faiss_store}
SEEDS = range(1, 13 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.slow_cases("*", but=["folder-1"])
def test_an_index_has_what_it_would_have_if_it_were_made_anew(  # noqa: C901, PLR0915  # one history, step by step
    store: str, seed: int, tmp_path: Path
) -> None:
    choice = random.Random(seed)
    make_store, folder = STORES[store], None if store == "memory" else tmp_path / "index"
    embed_model = Refusing() if make_store or choice.random() < 0.6 else None
    given: dict[str, Any] = {"embed_model": embed_model or "none"}
    options: dict[str, Any] = {"mode": choice.choice(["recursive", "auto_merging"])}

    def of_store() -> dict[str, Any]:
        return {**given, "vector_store": make_store()} if make_store else given

    def new(number: int) -> list[Written]:
        return [Written.anew(choice, document_id) for document_id in choice.sample(IDS, number)]

    held = {one.id: one for one in new(4)}
    pack = DenseXRetrievalPack(
        [one.document for one in held.values()], persist_dir=folder, **options, **of_store()
    )
    gone: set[str] = set()
    for _ in range(STEPS):
        before = {word for one in held.values() for word, _ in one.sentences}
        step = choice.choice(
            ["insert", "refresh", "refresh", "delete", "purge", "break", "stop", "open", "compact"]
        )
        if step == "insert":
            some = new(choice.randint(1, 3))
            pack.insert([one.document for one in some])
            held |= {one.id: one for one in some}
        elif step == "refresh":
            some = [one.changed(choice) if choice.random() < 0.5 else one for one in held.values()]
            dropped = choice.choice(["", *held])
            differ = [one != held[one.id] for one in some if one.id != dropped]
            given_now = [one.document for one in some if one.id != dropped]
            if given_now:
                assert pack.refresh(given_now, gone=[dropped] if dropped else []) == differ
                held = {one.id: one for one in some if one.id != dropped}
        elif step in ("delete", "purge") and len(held) > 1:
            some = [held.pop(one) for one in choice.sample(sorted(held), len(held) // 2)]
            asked = [one.id if choice.random() < 0.5 else one.document for one in some]
            assert pack.delete(asked, purge=step == "purge") == len(some)
        elif step == "break" and embed_model is not None:
            some = new(3)
            failing = choice.choice(some)
            embed_model.refuse(failing.sentences[-1][0])
            pack.insert([one.document for one in some])
            assert [one.document_id for one in pack.failed_documents] == [failing.id]
            held |= {one.id: one for one in some if one is not failing}
        elif step == "stop":
            some = new(3)

            def read(some: list[Written] = some) -> Iterator[Document]:
                yield from [one.document for one in some[:2]]
                raise OSError("the disk is gone")

            with pytest.raises(OSError, match="the disk is gone"):
                pack.insert(read())
            held |= {one.id: one for one in some[:2]}
        elif step == "open" and folder is not None:
            pack = DenseXRetrievalPack.load(folder, **of_store())
        elif step == "compact":
            pack.compact()
        gone = (gone | before) - {word for one in held.values() for word, _ in one.sentences}
        check_that_it_holds(pack, held, gone, choice)
    if store == "folder":
        assert check_index(tmp_path / "index").sound
