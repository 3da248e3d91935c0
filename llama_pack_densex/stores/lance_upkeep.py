"""What keeps a growing LanceDB table fast: its indices, and few large files instead of many small ones.

Embeddings of up to `loaded.MOST_BYTES` are searched exactly in memory and need no index. Beyond that there is an
IVF_SQ index. Of 1,000,000 embeddings of 384 dimensions it takes half a minute and 1 GB of memory to make on two cores
and finds 0.97 of the ten nearest; IVF_HNSW_SQ with 8 partitions finds 0.98, but takes seven times as long to make, half
as much space again, and has to be read as a whole before the first answer.

Rows that are written later are compared one by one until so many have gathered that they are added to the index, as a
segment of it. Once there are several segments, the index is made anew. Other columns need no index: of 1,000,000 rows,
those of a document are found in 50 ms without.
"""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any

from lancedb.index import IvfSq

from llama_pack_densex.stores import loaded

ROWS_A_PARTITION = 1024
"""Of the vector index, a hundred partitions of which are searched: with half as many the same time finds less."""
MOST_UNINDEXED = 4096
"""Rows of a small table that may be outside the indices; of a large one the twenty-fifth part may."""
MOST_SEGMENTS = 8
"""Parts of the vector index, each of which is searched."""
MOST_FRAGMENTS = 64
"""Files of rows; a hundred thousand rows may have another ten."""
_FOREVER = timedelta(days=36500)
_KEPT = "kept"


def keep_up(table: Any, dimension: int | None) -> bool:
    """Make or complete indices and merge files where it is due.

    Args:
        table: LanceDB's.
        dimension: Of its embeddings; None where it has none.

    Returns:
        Whether anything was done.
    """
    rows = table.count_rows()
    indexed = {index.columns[0]: index for index in table.list_indices()}
    vectors = indexed.get("vector")
    fragments = int(table.stats()["fragment_stats"]["num_fragments"])
    due: bool = fragments > MOST_FRAGMENTS + rows // 10_000
    if vectors is None and dimension is not None and 4 * dimension * rows > loaded.MOST_BYTES:
        settle(table)
        _index(table, rows)
        due = True
    elif vectors is not None:
        due = due or int(vectors.num_unindexed_rows or 0) > max(MOST_UNINDEXED, rows // 25)
        if due and int(vectors.num_segments or 0) >= MOST_SEGMENTS:
            _index(table, rows)
    if due:
        settle(table)
    return due


def settle(table: Any) -> None:
    """Merge files and complete indices until there is nothing left to do; every version is kept."""
    before = None
    while before != table.version:
        before = table.version
        table.optimize(cleanup_older_than=_FOREVER)


def remove_versions(table: Any, older_than: timedelta) -> None:
    """Remove the files of earlier versions and of writers that were killed; nothing may be due, nobody be writing."""
    tags, version = table.tags, table.version
    # LanceDB merges files in the same go; should it find any to merge, it refuses to remove what has a tag
    (tags.update if _KEPT in tags.list() else tags.create)(_KEPT, version)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that others may be reading
        table.optimize(cleanup_older_than=older_than, delete_unverified=True)
    tags.delete(_KEPT)


def _index(table: Any, rows: int) -> None:
    partitions = max(1, rows // ROWS_A_PARTITION)
    config = IvfSq(distance_type="cosine", num_partitions=partitions, sample_rate=64, max_iterations=10)
    table.create_index("vector", config=config, replace=True)
