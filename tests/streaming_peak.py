"""How much memory streaming takes at most: `python -m tests.streaming_peak parse 100000` prints megabytes.

A process of its own, since a peak does not fall again. The LLM is in it and answers at once; there is no
store.
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from llama_index.core import Document

from llama_pack_densex import LLMPropositionizer, Passage, PropositionNodeParser
from tests.made_up_passages import InstantLLM, made_up

WAYS = ("stream", "parse")
DOCUMENT_PASSAGES = 20


def main(way: str, count: str) -> None:
    passages = made_up(int(count), japanese=0.5)
    propositionizer = LLMPropositionizer(InstantLLM(), max_concurrency=64)
    streamed: Iterator[object] = propositionizer.stream(passages)
    if way == "parse":
        streamed = PropositionNodeParser(propositionizer=propositionizer).stream(
            documents_of(passages)
        )
    for _ in streamed:
        pass
    print(round(peak_megabytes(), 1))


def documents_of(passages: Iterator[Passage]) -> Iterator[Document]:
    """Documents of some passages each, a paragraph a passage."""
    number = 0
    while batch := list(islice(passages, DOCUMENT_PASSAGES)):
        yield Document(
            id_=f"document-{number}", text="\n\n".join(passage.text for passage in batch)
        )
        number += 1


def peak_megabytes() -> float:
    """The most memory that this process has had in use."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss on Linux begins with what the process had that started this one
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        assert found is not None
        return int(found.group(1)) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


if __name__ == "__main__":
    main(*sys.argv[1:])
