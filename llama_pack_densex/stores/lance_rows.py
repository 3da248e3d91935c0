"""Nodes as rows of a LanceDB table, and back. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa
from llama_index.core.schema import BaseNode, NodeRelationship
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc

from llama_pack_densex.node_parsers.metadata import GRANULARITY_KEY, SECTION_KEY, STATUS_KEY
from llama_pack_densex.stores.records import NodeRecord

RECORD_COLUMNS = tuple(field.name for field in fields(NodeRecord))
ROWS_A_BATCH = 1024
"""LanceDB stores and reads batches as they come; large ones cost a search two thirds of its time."""


def to_rows(nodes: Sequence[BaseNode], dimension: int | None) -> pa.Table:
    """Rows for nodes, of which the last counts where several have one id.

    Args:
        nodes: All with embeddings of the dimension.
        dimension: None for nodes without embeddings.

    Raises:
        ValueError: A node's metadata is no JSON.
    """
    distinct = list({node.node_id: node for node in nodes}.values())
    contents = [_to_json(node) for node in distinct]  # refuses what is no JSON before it is put into a record
    records = [NodeRecord.of(node) for node in distinct]
    columns: dict[str, Any] = {
        name: pa.array([getattr(record, name) for record in records], pa.string()) for name in RECORD_COLUMNS
    }
    columns["node"] = pa.array(contents, pa.string())
    if dimension is not None:
        columns["vector"] = pa.array([node.embedding for node in distinct], pa.list_(pa.float32(), dimension))
    rows = pa.table(columns)
    return pa.Table.from_batches(rows.to_batches(max_chunksize=ROWS_A_BATCH), rows.schema)


def to_node(content: str) -> BaseNode:
    """What is in the column "node" as a node, without its embedding."""
    return json_to_doc(json.loads(content))


def to_record(content: str) -> NodeRecord:
    """What is in the column "node" in short; of a unit without making a node of it, which takes ten times as long."""
    data = json.loads(content)["__data__"]
    if "index_id" not in data:
        return NodeRecord.of(to_node(content))
    metadata = data["metadata"]
    source = data["relationships"].get(NodeRelationship.SOURCE.value)
    return NodeRecord(
        id=data["id_"],
        document_id=source["node_id"] if source else "",
        granularity=str(metadata.get(GRANULARITY_KEY, "")),
        passage_id=data["index_id"],
        text=data["text"],
        status=str(metadata.get(STATUS_KEY, "")),
        section=str(metadata.get(SECTION_KEY, "")),
        document_hash="",  # base nodes have it, and a file
        file="",
    )


def to_records(rows: pa.Table | pa.RecordBatch) -> Iterator[NodeRecord]:
    """Rows as nodes in short."""
    return map(NodeRecord, *(rows.column(name).to_pylist() for name in RECORD_COLUMNS))


def dimension_of(nodes: Sequence[BaseNode]) -> int | None:
    """The dimension of all nodes' embeddings; None where none has one.

    Raises:
        ValueError: Some have an embedding and some have none, or they differ in dimension.
    """
    dimensions = {len(node.embedding) if node.embedding is not None else None for node in nodes}
    return same_dimension(dimensions)


def same_dimension(dimensions: set[int | None]) -> int | None:
    """The only one of some dimensions.

    Raises:
        ValueError: There are several.
    """
    if len(dimensions) != 1:
        named = " and ".join(sorted("none" if d is None else f"{d} dimensions" for d in dimensions))
        raise ValueError(
            f"nodes of one store must all have embeddings of one dimension, or none; found {named}. "
            "Embed all of them with one model, or build the index anew."
        )
    return next(iter(dimensions))


def dimension_in(schema: pa.Schema) -> int | None:
    """The dimension of the embeddings in a table; None where there are none."""
    return int(schema.field("vector").type.list_size) if "vector" in schema.names else None


def _to_json(node: BaseNode) -> str:
    bare = node.model_copy(update={"embedding": None})
    try:
        return json.dumps(doc_to_json(bare), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the metadata of document {node.ref_doc_id!r} cannot be kept as JSON ({error}); use strings, numbers, "
            "booleans, lists and dictionaries"
        ) from error
