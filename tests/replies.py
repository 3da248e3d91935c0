"""Looks into the file of a reply cache."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from llama_pack_densex.llm.cache import ReplyCache


def kept(cache: ReplyCache | Path) -> int:
    """How many replies are in a cache's file."""
    path = cache if isinstance(cache, Path) else cache.path
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("SELECT count(*) FROM replies").fetchone()[0])
