from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.another_process import run_program

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")

FORKED = """
import os, sys, warnings

warnings.simplefilter("ignore")  # LanceDB's own, at each fork
from llama_index.core import Document, MockEmbedding
from llama_index.core.vector_stores import SimpleVectorStore
from llama_pack_densex import DenseXRetrievalPack

tea, go = Document(text="Tea is grown in Uji.", id_="tea"), Document(text="Go is a game.", id_="go")
{opened}
if (child := os.fork()) == 0:
    try:
        {asked}
    except RuntimeError as error:
        print(f"refused: {{error}}")
    sys.stdout.flush()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(
    "asked",
    ["print(pack.retrieve('tea'))", "pack.insert([go])", "DenseXRetrievalPack.load(sys.argv[1])", "print(pack)"],
)
def test_a_process_forked_from_one_that_had_opened_an_index_is_told_so(tmp_path: Path, asked: str) -> None:
    opened = "pack = DenseXRetrievalPack([tea], persist_dir=sys.argv[1]); pack.retrieve('tea')"
    code, output, errors = run_program(FORKED.format(opened=opened, asked=asked), tmp_path / "index")
    assert code == 0, errors
    assert output.startswith("refused: this process was forked")
    assert output.endswith("\n0\n")
    assert "without --preload" in output


def test_a_process_forked_before_an_index_is_opened_may_open_one(tmp_path: Path) -> None:
    asked = "print(len(DenseXRetrievalPack([tea, go]).retrieve('tea')))"
    opened = "import llama_pack_densex.stores.lance"
    code, output, errors = run_program(FORKED.format(opened=opened, asked=asked))
    assert (code, output) == (0, "1\n0\n"), errors


def test_a_forked_process_writes_where_nothing_is_lancedb(tmp_path: Path) -> None:
    opened = (
        "pack = DenseXRetrievalPack([tea], embed_model=MockEmbedding(embed_dim=4), vector_store=SimpleVectorStore(), "
        "persist_dir=sys.argv[1], hybrid=False)"
    )
    asked = "pack.insert([go]); print(sorted(pack.documents()))"
    code, output, errors = run_program(FORKED.format(opened=opened, asked=asked), tmp_path / "index")
    assert (code, output) == (0, "['go', 'tea']\n0\n"), errors
