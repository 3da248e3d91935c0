"""Published data that is not in the repository; tests that want it are left out where it is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

EVALUATION_DATA = Path(
    os.environ.get("DENSEX_EVALUATION_DATA") or Path(__file__).parents[2].parent / "shared" / "eval"
)
"""A folder with squad_en.json, jsquad_ja.json and jqara/, named by an environment variable or beside the
repository."""

needs_published_data = pytest.mark.skipif(
    not (EVALUATION_DATA / "jqara").is_dir(),
    reason="set DENSEX_EVALUATION_DATA to the folder with squad_en.json, jsquad_ja.json and jqara",
)
