"""Names in texts, by how they are written."""

from __future__ import annotations

import pytest

from llama_pack_densex.index.words import find_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "It was led by Ada Lindqvist of the Harrowgate Society.",
            ["Ada Lindqvist", "Harrowgate Society"],
        ),
        (
            "he met Jean-Luc Vandenbroucke and O'Neill in St. Louis",
            ["Jean-Luc Vandenbroucke", "O'Neill", "St"],
        ),
        ("von Čapek über Ørsted", ["Čapek", "Ørsted"]),
        ("the sea is wide", []),
        ("はやぶさは糸川英夫にちなむイトカワに着いた。", ["糸川英夫", "イトカワ"]),
        ("ジョン・スミスが「みその日」に来た。", ["ジョン・スミス", "みその日"]),
        ("", []),
    ],
)
def test_names_are_found_by_how_they_are_written(text: str, names: list[str]) -> None:
    found = find_names(text)
    assert {*names} <= {*found}
    assert len(found) == len({*found})
    if not names:
        assert found == []
