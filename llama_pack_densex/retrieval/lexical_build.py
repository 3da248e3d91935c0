"""The segments of a lexical index, of all nodes of a store."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from llama_pack_densex.retrieval.lexical_files import set_aside
from llama_pack_densex.retrieval.lexical_live import LiveSegment
from llama_pack_densex.retrieval.lexical_merge import LARGEST, settled
from llama_pack_densex.retrieval.lexical_rows import Rows, searched, segment_of
from llama_pack_densex.retrieval.lexical_segment import Segment
from llama_pack_densex.retrieval.tokens import TextTokenizer
from llama_pack_densex.stores.records import NodeRecord


def built(
    records: Iterable[NodeRecord], tokenizer: TextTokenizer, largest: int = LARGEST, at_once: int = 20_000
) -> tuple[LiveSegment, ...]:
    """Make the segments of an index.

    The nodes may come in any order, so that all of them are split before the first segment is made. Their words wait
    in temporary files, as numbers, and so do the segments: in memory are the texts that are being split, or the
    segment that is being made.

    Args:
        records: The nodes, read once. Sections are left out, since their passages hold the same words, and so are
            units whose passage is not there.
        tokenizer: Splits the texts.
        largest: About how large a segment becomes, in tokens and texts.
        at_once: How many texts are in memory as such.

    Raises:
        TypeError: The tokenizer returned something else than strings.
    """
    texts = searched(records)
    parts = []
    while batch := list(islice(texts, at_once)):
        parts.append(Rows.of(batch, tokenizer).aside())
    shares = -(-sum(part.size for part in parts) // largest)
    segments = []
    for number in range(shares):
        segment = segment_of([part.share(number, shares) for part in parts])
        segments.append(LiveSegment(Segment.of_arrays(segment.name, set_aside(segment.arrays()))))
    return settled(segments, largest)
