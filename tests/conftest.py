"""What several tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from llama_index.core import Document, Settings

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no hub, and Settings as a new process has them; whatever a test sets is gone after it."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("_llm", "_embed_model", "_callback_manager", "_node_parser", "_transformations"):
        monkeypatch.setattr(Settings, name, None)


@pytest.fixture
def documents() -> list[Document]:
    """Three short documents, two in English and one in Japanese."""
    return [
        Document(
            id_="tides",
            text=(
                "# Tides\n\n## Cause\n\nThe Moon pulls the ocean towards itself. Its pull raises two bulges.\n\n"
                "## Records\n\nThe Bay of Fundy has the highest tides. They reach 16 metres there."
            ),
            metadata={"topic": "sea", "tags": ["moon", "water"]},
        ),
        Document(
            id_="bridges",
            text="The Akashi Bridge opened in 1998. Its main span is 1,991 metres long. It crosses a busy strait.",
            metadata={"topic": "building"},
        ),
        Document(
            id_="鉄道",
            text="新幹線は1964年に開業した。最初の路線は東京と新大阪を結んだ。「夢の超特急」と呼ばれ、時速210キロで走った。",
            metadata={"topic": "鉄道"},
        ),
    ]
