"""What RecordedPropositionizer reads."""

from __future__ import annotations

import json
from pathlib import Path

from llama_pack_densex import Passage, RecordedPropositionizer


def test_what_is_recorded_of_equal_texts_under_two_headings_stays_apart(tmp_path: Path) -> None:
    path, text = tmp_path / "recorded.jsonl", "It has three floors."
    with path.open("w", encoding="utf-8") as lines:
        for section, name in (("Lighthouse", "The lighthouse"), ("Chapel", "The chapel")):
            made = {"propositions": [f"{name} has three floors."], "questions": [f"How high is {name.lower()}?"]}
            lines.write(json.dumps({"title": "Karsted", "section": section, "text": text, **made}) + "\n")
    (found,) = RecordedPropositionizer(path).propositionize([Passage(text, "Karsted", "Lighthouse")])
    assert (found.texts, found.questions) == (("The lighthouse has three floors.",), ("How high is the lighthouse?",))
