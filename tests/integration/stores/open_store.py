"""A store that is open, and where to find it again."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_pack_densex import DenseXRetrievalPack


@dataclass(frozen=True)
class Address:
    """All that another process is told of a store.

    Args:
        kind: The slug of its kind.
        place: A collection, a file or a folder, in that kind's own words.
        port: Of its server; 0 where it has none.
    """

    kind: str
    place: str
    port: int = 0

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Address:
        return cls(**json.loads(text))


@dataclass
class OpenStore:
    """A store that is open in this process.

    Args:
        vector_store: What a pack is given; None where it keeps its nodes in `persist_dir` by itself.
        empty_store: Makes what a pack is given to write to, where what it wrote is read back from
            `persist_dir`.
        docstore: What it is given besides.
        persist_dir: The pack's folder.
        count_rows: Counts the rows that the store's own client sees.
        drop_row: Deletes one row through the store's own client, so that no pack gets to know.
        shut: Gives back files and connections.
    """

    vector_store: BasePydanticVectorStore | None = None
    docstore: BaseDocumentStore | None = None
    persist_dir: Path | None = None
    empty_store: Callable[[], BasePydanticVectorStore] | None = None
    count_rows: Callable[[], int] | None = None
    drop_row: Callable[[str], object] | None = None
    shut: Callable[[], object] = lambda: None

    @property
    def arguments(self) -> dict[str, Any]:
        """What a pack's constructor is given."""
        given = {
            "vector_store": self.vector_store,
            "docstore": self.docstore,
            "persist_dir": self.persist_dir,
        }
        return {name: value for name, value in given.items() if value is not None}

    def build(self, documents: Iterable[BaseNode], **options: Any) -> DenseXRetrievalPack:
        """A pack over the store that indexes documents."""
        given = dict(self.arguments)
        if self.empty_store is not None:
            given["vector_store"] = self.empty_store()
        return DenseXRetrievalPack(documents, query_llm="none", **given, **options)

    def reopen(self, **options: Any) -> DenseXRetrievalPack:
        """A pack over what the store holds."""
        if self.persist_dir is not None:
            given = {name: value for name, value in self.arguments.items() if name != "persist_dir"}
            return DenseXRetrievalPack.load(self.persist_dir, query_llm="none", **given, **options)
        return DenseXRetrievalPack.from_vector_store(query_llm="none", **self.arguments, **options)

    def own_store(self, pack: DenseXRetrievalPack) -> BasePydanticVectorStore:
        """The vector store that a pack's nodes are in, as its user can reach it."""
        assert pack.vector_index is not None
        return (
            self.vector_store if self.vector_store is not None else pack.vector_index.vector_store
        )

    def delete_within(self, pack: DenseXRetrievalPack, node_ids: Sequence[str]) -> None:
        """Delete nodes of a pack in whatever keeps them whole, so that its index does not get to know."""
        assert pack.vector_index is not None
        docstore = pack.vector_index.docstore
        if self.empty_store is None:
            self.own_store(pack).delete_nodes(list(node_ids))
        else:
            for node_id in node_ids:
                docstore.delete_document(node_id)


class StoreKind(ABC):
    """A kind of store.

    Attributes:
        name: What the table calls it.
        slug: What tests call it.
        packages: The distributions whose versions the table tells.
        modules: What has to be installed.
        is_every_days: Whether its checks are run each time; those of other kinds are slow ones.
        is_in_memory: Whether there is nothing that another process could open.
        limits: Reasons by check, where an upstream limit keeps it from passing. A check is a test's name.
    """

    name: str
    slug: str
    packages: Sequence[str]
    modules: Sequence[str] = ()
    is_every_days: bool = False
    is_in_memory: bool = False
    limits: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def new(self, folder: Path, servers: Any) -> Address:
        """An address that nothing has been written to.

        Args:
            folder: An empty folder, for those that keep files.
            servers: The servers' ports (see `Servers`).
        """

    @abstractmethod
    def open(self, address: Address) -> OpenStore:
        """Open a store with nothing but its address."""

    def missing(self) -> str | None:
        """Why it cannot run here; None where it can."""
        from importlib.util import find_spec

        lacking = [module for module in self.modules if not _is_there(find_spec, module)]
        return f"{' and '.join(lacking)} not installed" if lacking else None


def _is_there(find_spec: Callable[[str], object], module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent package
        return False
