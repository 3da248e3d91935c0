from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.another_process import run_program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork"),
]

FORKED = """
import os, sys

from llama_index.core import Document, MockEmbedding
from llama_index.core.vector_stores import SimpleVectorStore
from llama_pack_densex import DenseXRetrievalPack

tea, go = Document(text="Tea is grown in Uji.", id_="tea"), Document(text="Go is a game.", id_="go")
{opened}
if (child := os.fork()) == 0:
    {asked}
    sys.stdout.flush()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sorted(pack.documents()), len(pack.retrieve("tea")))
"""
SIMPLE = "embed_model=MockEmbedding(embed_dim=4), vector_store=SimpleVectorStore(), hybrid=False"


@pytest.mark.parametrize("store", ["", SIMPLE])
@pytest.mark.parametrize(
    ("asked", "answer", "documents"),
    [
        ("print(len(pack.retrieve('tea')))", "1", "['tea']"),
        ("print(len(DenseXRetrievalPack.load(sys.argv[1]).retrieve('tea')))", "1", "['tea']"),
        ("pack.insert([go]); print(sorted(pack.documents()))", "['go', 'tea']", "['go', 'tea']"),
    ],
)
def test_a_process_forked_from_one_that_had_opened_an_index_reads_and_writes(
    tmp_path: Path, store: str, asked: str, answer: str, documents: str
) -> None:
    if store:
        asked = asked.replace(
            "load(sys.argv[1])", "load(sys.argv[1], embed_model=MockEmbedding(embed_dim=4))"
        )
    opened = (
        f"pack = DenseXRetrievalPack([tea], persist_dir=sys.argv[1], {store}); pack.retrieve('tea')"
    )
    code, output, errors = run_program(
        FORKED.format(opened=opened, asked=asked), tmp_path / "index"
    )
    assert code == 0, errors
    child, parent = output.splitlines()
    assert child == answer
    assert parent.startswith("0 ")
    if not store:
        assert documents in parent


def test_a_process_forked_from_one_with_an_index_in_memory_has_its_own(tmp_path: Path) -> None:
    opened = "pack = DenseXRetrievalPack([tea]); pack.retrieve('tea')"
    asked = "pack.insert([go]); print(sorted(pack.documents()))"
    code, output, errors = run_program(FORKED.format(opened=opened, asked=asked))
    assert (code, output) == (0, "['go', 'tea']\n0 ['tea'] 1\n"), errors
