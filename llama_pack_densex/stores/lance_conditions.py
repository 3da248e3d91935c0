"""Conditions in the SQL that LanceDB takes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from llama_index.core.vector_stores.types import VectorStoreQuery

IDS_A_CONDITION = 500  # ids in one SQL condition; LanceDB parses longer ones slowly


def quote(text: str) -> str:
    """A text as a literal."""
    return "'" + text.replace("'", "''") + "'"


def any_of(column: str, values: Collection[str]) -> Iterator[str]:
    """Conditions that a column has one of some values, so many values a condition."""
    distinct = list(dict.fromkeys(values))
    for i in range(0, len(distinct), IDS_A_CONDITION):
        yield is_any_of(column, distinct[i : i + IDS_A_CONDITION])


def is_any_of(column: str, values: Collection[str]) -> str:
    """The condition that a column has one of some values; there is at least one."""
    return f"{column} IN ({', '.join(map(quote, dict.fromkeys(values)))})"


def query_condition(query: VectorStoreQuery) -> str:
    """What a query asks for of ids and documents; empty where it asks for nothing."""
    conditions = []
    if query.node_ids:
        conditions.append(is_any_of("id", query.node_ids))
    if query.doc_ids:
        conditions.append(is_any_of("document_id", query.doc_ids))
    return " AND ".join(conditions)
