"""What LLMPropositionizer and an ingestion do about propositions that checks find fault with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.schema import MetadataMode
from llama_index.core.vector_stores.utils import node_to_metadata_dict
from llama_index.llms.openai import OpenAI

from llama_pack_densex import (
    DenseXRetrievalPack,
    LLMPropositionizer,
    Passage,
    PropositionNodeParser,
    RecordedPropositionizer,
    SentencePropositionizer,
)
from llama_pack_densex.propositionizers.base import PropositionSet
from tests.openai_server import OpenAIServer, Reply, in_turn
from tests.test_cli import run, run_json

RACE = Passage(
    "アオバノカゼは2022年5月29日の星霜記念に出走した。鞍上は武田豊で、中団から抜け出して勝った。",
    title="アオバノカゼ",
)
RACE_RIGHT = [
    "アオバノカゼは2022年5月29日の星霜記念に出走した。",
    "星霜記念でアオバノカゼに騎乗したのは武田豊である。",
    "アオバノカゼは星霜記念を中団から抜け出して勝った。",
]
RACE_DRIFTING = [RACE_RIGHT[0].replace("5月", "6月"), "鞍上は武田豊であった。", RACE_RIGHT[2]]
MARE = Passage(
    "ツキノシラベは2018年に青木牧場で生まれた。引退後は同じ牧場で繁殖牝馬となり、三頭の子を産んだ。",
    title="ツキノシラベ",
)
MARE_RIGHT = [
    "ツキノシラベは2018年に青木牧場で生まれた。",
    "ツキノシラベは引退後、青木牧場で三頭の子を産んだ。",
]
MARE_ENGLISH = [
    "Tsuki no Shirabe was born on a farm in 2018.",
    "The mare had three foals after her retirement.",
]
TOWER = Passage(
    "The tower was begun in 1874 by Ida Brandvold. It is 41 metres high.",
    title="Karsted Lighthouse",
)
TOWER_RIGHT = [
    "Karsted Lighthouse was begun in 1874 by Ida Brandvold.",
    "Karsted Lighthouse is 41 metres high.",
]
TOWER_WRONG = [TOWER_RIGHT[0].replace("1874", "1847"), TOWER_RIGHT[1]]


def reply(texts: Sequence[str]) -> str:
    return json.dumps(texts, ensure_ascii=False)


def propositionizer(server: OpenAIServer, **arguments: Any) -> LLMPropositionizer:
    llm = OpenAI(
        model="gpt-4o-mini", api_base=server.url, api_key="sk-test-0123456789", max_retries=0
    )
    return LLMPropositionizer(llm, **{"retry_wait": 0, "max_retries": 0, **arguments})


def kinds(made: PropositionSet) -> list[tuple[str, int | None]]:
    return [
        (finding.kind, finding.proposition)
        for finding in made.findings
        if finding.kind != "coverage"
    ]


def test_findings_are_flagged_by_default_and_cost_no_request() -> None:
    with OpenAIServer(lambda body: reply(RACE_DRIFTING)) as server:
        (made,) = propositionizer(server).propositionize([RACE])
        assert len(server.requests) == 1
    assert (list(made.texts), made.status) == (RACE_DRIFTING, "ok")
    assert kinds(made) == [("grounding", 0), ("self_containedness", 1)]
    assert [finding.reason for finding in made.findings] == [
        '"6" is not in the passage',
        'it does not say whose "鞍上" is meant',
        'no proposition says "5" of "アオバノカゼは2022年5月29日の星霜記念に出走した。"',
    ]


def test_off_looks_for_nothing() -> None:
    with OpenAIServer(lambda body: reply(RACE_DRIFTING)) as server:
        (made,) = propositionizer(server, strictness="off").propositionize([RACE])
    assert made.findings == ()


@pytest.mark.parametrize(
    ("passage", "wrong", "right", "told"),
    [
        (RACE, RACE_DRIFTING, RACE_RIGHT, ["6", "鞍上は武田豊であった。"]),
        (TOWER, TOWER_WRONG, TOWER_RIGHT, ['"1847" is not in the passage']),
    ],
    ids=["ja", "en"],
)
def test_a_repair_is_asked_for_once_and_names_what_was_wrong(
    passage: Passage, wrong: list[str], right: list[str], told: list[str]
) -> None:
    with OpenAIServer(in_turn(reply(wrong), reply(right))) as server:
        (made,) = propositionizer(server, strictness="repair").propositionize([passage])
        asked = server.requests[1].last_message
        assert len(server.requests) == 2
    assert (list(made.texts), made.status, made.findings) == (right, "repaired", ())
    assert "checks" in made.reason
    assert all(one in asked for one in told)
    assert asked.endswith(passage.text)


def test_a_reply_in_english_is_asked_for_again_and_the_mare_is_named() -> None:
    with OpenAIServer(in_turn(reply(MARE_ENGLISH), reply(MARE_RIGHT))) as server:
        (made,) = propositionizer(server).propositionize([MARE])
    assert (list(made.texts), made.status, made.findings) == (MARE_RIGHT, "repaired", ())


def test_one_english_proposition_among_japanese_ones_is_mended() -> None:
    mixed = [MARE_RIGHT[0], "Her three foals were born on the same farm in Japan."]
    with OpenAIServer(in_turn(reply(mixed), reply(MARE_RIGHT))) as server:
        (made,) = propositionizer(server, strictness="repair").propositionize([MARE])
    assert (list(made.texts), made.findings) == (MARE_RIGHT, ())


def test_what_is_still_not_in_the_passage_is_replaced_by_its_sentence_and_counted() -> None:
    with OpenAIServer(lambda body: reply(TOWER_WRONG)) as server:
        (made,) = propositionizer(server, strictness="repair").propositionize([TOWER])
        assert len(server.requests) == 2
    assert list(made.texts) == ["The tower was begun in 1874 by Ida Brandvold.", TOWER_RIGHT[1]]
    assert kinds(made) == [("grounding", 0)]
    assert made.findings[0].reason == '"1847" is not in the passage; its sentence stands in'


def test_what_still_points_outside_is_kept_and_flagged() -> None:
    texts = [RACE_RIGHT[0], "鞍上は武田豊であった。", RACE_RIGHT[2]]
    with OpenAIServer(lambda body: reply(texts)) as server:
        (made,) = propositionizer(server, strictness="repair").propositionize([RACE])
    assert (list(made.texts), kinds(made)) == (texts, [("self_containedness", 1)])


@pytest.mark.parametrize(
    "second",
    [
        reply([*TOWER_WRONG, "It was sold to Wexford Lines in 1999.", "It."]),  # worse
        reply([]),
        "I'm sorry, but I can't help with that.",
        Reply("no", status=400, code="bad"),
        Reply(reply(TOWER_RIGHT)[:30], finish_reason="length"),
    ],
    ids=["worse", "empty", "refused", "failed", "cut"],
)
def test_a_repair_of_no_use_leaves_the_first_reply(second: Reply | str) -> None:
    with OpenAIServer(in_turn(reply(TOWER_WRONG), second)) as server:
        (made,) = propositionizer(server, strictness="repair").propositionize([TOWER])
    assert list(made.texts) == ["The tower was begun in 1874 by Ida Brandvold.", TOWER_RIGHT[1]]


def test_a_repair_that_a_provider_had_no_answer_to_is_asked_for_another_day() -> None:
    with OpenAIServer(
        in_turn(reply(TOWER_WRONG), Reply("down", status=500), reply(TOWER_RIGHT))
    ) as server:
        asking = propositionizer(server, strictness="repair")
        (made,) = asking.propositionize([TOWER])
        assert (made.status, made.is_passing) == ("repaired", True)
        (made,) = asking.propositionize([Passage(TOWER.text, TOWER.title)])
        assert not made.is_passing


def test_what_is_still_left_out_is_completed_by_its_sentence() -> None:
    with OpenAIServer(lambda body: reply(TOWER_RIGHT[:1])) as server:
        (made,) = propositionizer(server, strictness="repair").propositionize([TOWER])
    assert list(made.texts) == [TOWER_RIGHT[0], "It is 41 metres high."]
    assert [(one.kind, one.proposition) for one in made.findings] == [
        ("coverage", 1),
        ("self_containedness", 1),
    ]


def test_other_languages_are_flagged_and_not_repaired() -> None:
    german = Passage(
        "Der Turm wurde 1874 von Ida Brandvold gebaut und ist 41 Meter hoch, was man von der Insel sieht."
    )
    with OpenAIServer(
        lambda body: reply(["Der Turm wurde 1847 von Ida Brandvold gebaut."])
    ) as server:
        (made,) = propositionizer(server, strictness="repair").propositionize([german])
        assert len(server.requests) == 1
    assert (kinds(made), made.status) == ([("grounding", 0)], "ok")


def test_a_repair_is_kept_like_every_reply_and_the_same_later_and_asynchronously(
    tmp_path: Path,
) -> None:
    arguments: dict[str, Any] = {"strictness": "repair", "cache": tmp_path / "replies.sqlite"}
    with OpenAIServer(in_turn(reply(RACE_DRIFTING), reply(RACE_RIGHT))) as server:
        (live,) = propositionizer(server, **arguments).propositionize([RACE])
        again = propositionizer(server, **arguments)
        (replayed,) = asyncio.run(again.apropositionize([RACE]))
        assert len(server.requests) == 2
        assert (again.figures.usage.requests, again.figures.cache_hits) == (0, 2)
    assert replayed == live


def test_only_a_repair_changes_what_propositions_are_made() -> None:
    with OpenAIServer() as server:
        of = {
            one: propositionizer(server, strictness=one).fingerprint
            for one in ("off", "flag", "repair")
        }
    assert of["off"] == of["flag"] != of["repair"]


def test_recorded_propositions_are_checked_and_sentences_are_not(tmp_path: Path) -> None:
    file = tmp_path / "recorded.jsonl"
    file.write_text(
        json.dumps({"title": RACE.title, "text": RACE.text, "propositions": RACE_DRIFTING})
    )
    recorded = RecordedPropositionizer(file, otherwise=SentencePropositionizer())
    (drifting, sentences) = recorded.propositionize([RACE, TOWER])
    assert kinds(drifting) == [("grounding", 0), ("self_containedness", 1)]
    assert (len(sentences.texts), sentences.findings) == (2, ())


def test_findings_are_on_the_nodes_hidden_from_models() -> None:
    with OpenAIServer(lambda body: reply(RACE_DRIFTING)) as server:
        parser = PropositionNodeParser(propositionizer=propositionizer(server))
        nodes = parser.get_nodes_from_documents(
            [Document(text=RACE.text, metadata={"title": RACE.title})]
        )
    found = {node.get_content(): node.metadata.get("densex_findings") for node in nodes}
    assert found == {
        RACE.text: 'coverage: no proposition says "5" of "アオバノカゼは2022年5月29日の星霜記念に出走した。"',
        RACE_DRIFTING[0]: 'grounding: "6" is not in the passage',
        RACE_DRIFTING[1]: 'self_containedness: it does not say whose "鞍上" is meant',
        RACE_DRIFTING[2]: None,
    }
    for node in nodes:
        for mode in (MetadataMode.EMBED, MetadataMode.LLM):
            assert "densex_findings" not in node.get_content(mode)


def test_nodes_with_findings_and_questions_go_into_stores_that_take_no_lists(
    tmp_path: Path,
) -> None:
    file = tmp_path / "recorded.jsonl"
    wrong = ["Karsted Lighthouse is 42 metres high.", "It was\nbegun by Mary Smith."]
    file.write_text(
        json.dumps(
            {"text": TOWER.text, "propositions": wrong, "questions": ["How high is the tower?"]}
        )
    )
    parser = PropositionNodeParser(propositionizer=RecordedPropositionizer(file))
    nodes = parser.get_nodes_from_documents(
        [Document(text=TOWER.text, metadata={"title": TOWER.title})]
    )
    flat = [node_to_metadata_dict(node, remove_text=True, flat_metadata=True) for node in nodes]
    assert {"densex_findings", "densex_answers"} <= {key for one in flat for key in one}
    assert flat[2]["densex_findings"].splitlines() == [
        'grounding: "Mary" is in neither the passage nor its title or section',
        'grounding: "Smith" is in neither the passage nor its title or section',
        'self_containedness: nothing in it says what "It" stands for',
    ]


def test_an_ingestion_counts_findings_and_inspect_shows_them(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    documents = [
        Document(text=one.text, id_=one.title, metadata={"title": one.title})
        for one in (RACE, MARE)
    ]
    drifting = {RACE.text: RACE_DRIFTING, MARE.text: MARE_RIGHT}
    file = tmp_path / "recorded.jsonl"
    lines = [json.dumps({"text": text, "propositions": texts}) for text, texts in drifting.items()]
    file.write_text("\n".join(lines))
    pack = DenseXRetrievalPack(
        documents,
        propositionizer=RecordedPropositionizer(file),
        embed_model="none",
        query_llm="none",
        persist_dir=folder,
    )
    assert pack.ingestion is not None
    assert pack.ingestion.findings == {"coverage": 1, "grounding": 1, "self_containedness": 1}
    assert "1 grounding, 1 self-containedness" in str(pack.ingestion)
    report = json.loads((folder / "ingestion_report.json").read_text(encoding="utf-8"))
    assert [one["findings"] for one in report["documents"]] == [
        {"coverage": 1, "grounding": 1, "self_containedness": 1},
        {},
    ]

    (passage,) = run_json("inspect", folder, "--findings")["shown"]
    assert [one["findings"] for one in passage["propositions"]] == [
        ['grounding: "6" is not in the passage'],
        ['self_containedness: it does not say whose "鞍上" is meant'],
        [],
    ]
    code, printed = run("inspect", folder, "--findings")
    assert code == 0
    assert '"6" is not in the passage' in printed
    assert "ツキノシラベ" not in printed
