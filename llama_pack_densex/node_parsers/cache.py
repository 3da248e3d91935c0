"""An ingestion cache under which two documents with equal text stay two documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.ingestion import IngestionCache
from llama_index.core.schema import BaseNode


class ParsedNodes(list[BaseNode]):
    """The nodes that one of our parsers returned: a list that `PropositionIngestionCache` tells from others.

    `fresh` is true until the cache has seen it: a later step may change the nodes in place and return the same list.
    """

    fresh: bool = True


class PropositionIngestionCache(IngestionCache):
    """Core's ingestion cache, but for what the proposition node parsers return.

    Core's cache key is made of the texts and metadata of the documents that come in, not of their ids, and the cache
    sees neither the documents nor their ids when it is asked. A second document with the same text would get the
    first one's nodes. So this cache does not keep our parsers' output (recorded replies make that cheap to make
    again); all other steps, embedding above all, are cached as usual.

    Examples:
        >>> from llama_index.core.ingestion import IngestionPipeline
        >>> pipeline = IngestionPipeline(transformations=[...], cache=PropositionIngestionCache())  # doctest: +SKIP
    """

    def put(self, key: str, nodes: Sequence[BaseNode], collection: str | None = None, **kwargs: Any) -> None:
        """Keep the nodes of a transformation, unless one of our parsers returned them."""
        if isinstance(nodes, ParsedNodes) and nodes.fresh:
            nodes.fresh = False
        else:
            super().put(key, nodes, collection=collection, **kwargs)
