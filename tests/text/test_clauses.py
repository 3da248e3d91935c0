"""The numbers of clauses, in documents and in questions."""

from __future__ import annotations

import pytest

from llama_pack_densex.text.clauses import Path, clauses_of, references_in
from llama_pack_densex.text.outline import Outline

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("question", "path"),
    [
        ("What does clause 7.3 say?", ("7", "3")),
        ("Clause 4.2(c)", ("4", "2", "c")),
        ("What does Article 7 paragraph 2 say?", ("7", "2")),
        ("Is it Art. 6(1)(f) GDPR?", ("6", "1", "f")),
        ("§ 12 Abs. 3 Satz 1", ("12", "3")),
        ("§ 5a Absatz 1 Nr. 2 Buchst. b", ("5a", "1", "2", "b")),
        ("第22条第4項は何を定めていますか", ("22", "4")),
        ("第二十三条の二第一項第十号", ("23-2", "1", "10")),
        ("第六条第二款", ("6", "2")),
    ],
)
def test_a_question_names_a_clause_in_many_ways(question: str, path: Path) -> None:
    assert references_in(question) == [path]


@pytest.mark.parametrize(
    "question", ["Which section is it?", "Is 7.3 enough?", "第2章", "Python 3.11"]
)
def test_other_numbers_name_no_clause(question: str) -> None:
    assert references_in(question) == []


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (
            "4. Lamps\n\n4.2 A lamp is:\n\n(a) lit; and\n\n(b) cleaned, if\n\n(i) dirty.\n\nSee clause 7.",
            ["4", "4/2", "4/2/a", "4/2/b", "4/2/b/i", "4/2"],
        ),
        (
            "第２章　灯\n\n第７条　灯は、次による。\n一　点ける。\n二　磨く。\n２　油は、別に定める。",
            ["7", "7/1", "7/1", "7/2", "7/2"],
        ),
        ("§ 5 Öl\n\n(1) Öl ist rein.\n\n(2) § 7 bleibt.", ["5", "5/1", "5/2"]),
        ("Article 9\n\nOil\n\n1. It is pure.\n\nANNEX I\n\n1. It is thick.", ["9", "9/1"]),
    ],
)
def test_a_clause_has_the_numbers_of_what_it_is_in(text: str, paths: list[str]) -> None:
    assert ["/".join(path) for path, _ in clauses_of(text)] == paths


def test_a_passage_in_the_middle_of_an_article_knows_its_number() -> None:
    clauses = clauses_of("(2) Oil is pure.", section="Part 1, Article 7")
    assert [path for path, _ in clauses] == [("7", "2")]


def test_a_passage_in_the_middle_of_a_japanese_article_knows_its_number() -> None:
    text = "（休日）\n第７条　休日は、会社が定める。\n２　祝日は、休日とする。"
    start = text.index("２")
    clauses = clauses_of(text[start:], section=Outline(text).section_of(start, len(text)))
    assert [path for path, _ in clauses] == [("7", "2")]
