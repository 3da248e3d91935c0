"""Propositions by a T5 on this machine: a small one, made here, that knows a few passages by heart."""

from __future__ import annotations

import asyncio
import json
import pickle
import shutil
import sys
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path

import pytest
from llama_index.core import Document
from llama_index.llms.openai import OpenAI

from llama_pack_densex import (
    DenseXRetrievalPack,
    LLMPropositionizer,
    Passage,
    PropositionizerError,
    PropositionNodeParser,
    SentencePropositionizer,
    Seq2SeqPropositionizer,
)
from llama_pack_densex.ingestion.batch import export_requests, request_files
from llama_pack_densex.ingestion.estimate import estimate
from llama_pack_densex.text.segments import passage_sentences
from tests.embedding import TrigramEmbedding
from tests.openai_server import OpenAIServer, held
from tests.test_cli import run, run_json
from tests.tiny_seq2seq import learned_passages, make_model, make_tokenizer, save_propositionizer

# not imported by each process that collects the tests: that takes seconds
pytestmark = [
    pytest.mark.together("torch"),
    pytest.mark.skipif(
        find_spec("transformers") is None or find_spec("torch") is None,
        reason="the extra [huggingface] is not installed",
    ),
]

KNOWN = learned_passages()
PASSAGES = [Passage(text, title="Food") for text in KNOWN]
TEA, MISO = PASSAGES[0], PASSAGES[5]
TEA_AND_MORE = next(
    passage for passage in PASSAGES if passage.text.startswith(TEA.text) and passage != TEA
)
LAKE = Passage("琵琶湖は日本最大の湖である。面積は約670平方キロメートルである。", title="琵琶湖")
FRENCH = Passage(
    "Le thé vert est chauffé à la vapeur et le thé noir est oxydé dans les usines de la région."
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes passages of two sentences, and no longer ones."""
    return save_propositionizer(tmp_path_factory.mktemp("models") / "secret-name")


@pytest.fixture(scope="module")
def propositionizer(folder: Path) -> Seq2SeqPropositionizer:
    return Seq2SeqPropositionizer(folder, device="cpu")


def test_passages_become_what_the_model_was_taught_in_their_order(
    propositionizer: Seq2SeqPropositionizer,
) -> None:
    sets = propositionizer.propositionize([*PASSAGES[::-1], Passage("  \n"), TEA])
    assert [list(one.texts) for one in sets] == [*list(KNOWN.values())[::-1], [], KNOWN[TEA.text]]
    assert {one.status for one in sets} == {"ok"}


@pytest.mark.slow
def test_a_batch_of_sixteen_makes_what_sixteen_batches_of_one_make(
    folder: Path, propositionizer: Seq2SeqPropositionizer
) -> None:
    many = [*PASSAGES, *PASSAGES[::-1]]  # of all lengths, so that they are padded
    alone = Seq2SeqPropositionizer(folder, batch_size=1, device="cpu")
    assert alone.propositionize(many) == propositionizer.propositionize(many)
    assert list(alone.stream(iter(many))) == propositionizer.propositionize(many)


def test_a_passage_that_is_too_long_is_asked_for_in_parts(
    propositionizer: Seq2SeqPropositionizer,
) -> None:
    first, second = (text for text in KNOWN if text.count(". ") == 1)
    (made,) = propositionizer.propositionize([Passage(f"{first} {second}", title="Food")])
    assert list(made.texts) == [*KNOWN[first], *KNOWN[second]]
    assert (made.status, "asked in 2 parts: the whole was too long" in made.reason) == (
        "repaired",
        True,
    )


def test_a_reply_that_was_cut_off_is_asked_for_in_parts(folder: Path) -> None:
    brief = Seq2SeqPropositionizer(folder, device="cpu", max_new_tokens=20)
    (made,) = brief.propositionize([TEA_AND_MORE])
    assert list(made.texts) == KNOWN[TEA_AND_MORE.text]
    assert made.status == "repaired"
    assert "asked in 2 parts" in made.reason


def test_where_nothing_comes_of_a_passage_its_sentences_stand_in(folder: Path) -> None:
    mute = Seq2SeqPropositionizer(folder, device="cpu", max_new_tokens=1)
    passage = Passage(
        "One is first. Two follows it.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n# Three\n\nLast."
    )
    (made,) = mute.propositionize([passage])
    assert made.texts == passage_sentences(passage.text)
    assert (made.status, "the reply was cut off" in made.reason) == ("fallback", True)


@pytest.mark.parametrize("passages_per_call", [20, 5])
def test_a_model_that_is_none_for_this_stops_the_run(folder: Path, passages_per_call: int) -> None:
    mute = Seq2SeqPropositionizer(folder, device="cpu", max_new_tokens=1)
    many = [Passage(f"Lamp {number} is red.") for number in range(20)]
    for start in range(0, 20 - passages_per_call, passages_per_call):
        mute.propositionize(many[start : start + passages_per_call])
    with pytest.raises(
        PropositionizerError, match=r"None of the first 20 passages .*trained to make propositions"
    ):
        mute.propositionize(many[-passages_per_call:])


@pytest.mark.parametrize(
    "text", ["\udcff x", "\0", "1234", "。", "a" * 100_000, "words " * 20_000, "\n\n# Food\n\n"]
)
def test_no_text_is_lost_or_breaks_it(text: str, propositionizer: Seq2SeqPropositionizer) -> None:
    (made,) = propositionizer.propositionize(
        [Passage(text, title="題" * 5_000, section="s " * 5_000)]
    )
    assert made.texts


def test_other_languages_are_handed_over(folder: Path) -> None:
    made = {LAKE.text: ["琵琶湖は日本最大の湖である。"], FRENCH.text: ["Le thé noir est oxydé."]}
    with OpenAIServer(held(made)) as server:
        llm = LLMPropositionizer(f"openai-like:m@{server.url}")
        both = Seq2SeqPropositionizer(folder, otherwise=llm, device="cpu")
        sets = both.propositionize([LAKE, TEA, FRENCH, MISO])
        assert asyncio.run(both.apropositionize([LAKE, TEA, FRENCH, MISO])) == sets
        assert both.usage.requests > 0
    assert [one.texts[0] for one in sets] == [
        "琵琶湖は日本最大の湖である。",
        "Green tea is steamed.",
        "Le thé noir est oxydé.",
        "Miso is salty.",
    ]


def test_what_is_handed_over_to_an_llm_is_estimated_and_exported(
    folder: Path, tmp_path: Path
) -> None:
    llm = LLMPropositionizer(OpenAI(model="gpt-4o-mini", api_key="sk-test"))
    documents = [Document(text=passage.text, id_=passage.text[:4]) for passage in (TEA, LAKE, MISO)]
    alone = estimate(documents[1:2], PropositionNodeParser(propositionizer=llm))
    both = PropositionNodeParser(
        propositionizer=Seq2SeqPropositionizer(folder, otherwise=llm, device="cpu")
    )
    found = estimate(documents, both)
    assert (found.requests, found.input_tokens, found.cost) == (1, alone.input_tokens, alone.cost)
    assert found.model == "gpt-4o-mini"
    with request_files(tmp_path) as files:
        export_requests(documents, both, files)
    assert [file.requests for file in files.written] == [1]


def test_other_languages_are_refused_where_nobody_takes_them(
    propositionizer: Seq2SeqPropositionizer,
) -> None:
    with pytest.raises(
        ValueError, match=r"2 of 3 passages are not in English.*Japanese \(1\).*Latin.*otherwise="
    ):
        propositionizer.propositionize([TEA, LAKE, FRENCH])


async def test_it_works_inside_a_running_event_loop(
    propositionizer: Seq2SeqPropositionizer,
) -> None:
    both = await asyncio.gather(
        propositionizer.apropositionize([TEA]), propositionizer.apropositionize([MISO])
    )
    assert both == [[one] for one in propositionizer.propositionize([TEA, MISO])]


def test_a_pickled_one_and_a_copy_make_the_same(propositionizer: Seq2SeqPropositionizer) -> None:
    pickled = pickle.dumps(propositionizer)
    assert len(pickled) < 2_000
    saved = Seq2SeqPropositionizer.from_dict(propositionizer.to_dict())
    for again in (pickle.loads(pickled), deepcopy(propositionizer), saved):
        assert again.fingerprint == propositionizer.fingerprint
        assert again.propositionize([TEA]) == propositionizer.propositionize([TEA])


def test_a_parser_with_one_is_made_again_of_its_dictionary(folder: Path) -> None:
    propositionizer = Seq2SeqPropositionizer(folder, otherwise=SentencePropositionizer())
    parser = PropositionNodeParser(propositionizer=propositionizer)
    again = PropositionNodeParser.from_dict(json.loads(parser.to_json()))
    assert again.propositionizer.fingerprint == propositionizer.fingerprint
    assert again.propositionizer.propositionize([TEA, LAKE]) == propositionizer.propositionize(
        [TEA, LAKE]
    )


def test_its_fingerprint_is_of_the_weights_and_not_of_their_place(
    folder: Path, propositionizer: Seq2SeqPropositionizer, tmp_path: Path
) -> None:
    moved = shutil.copytree(folder, tmp_path / "elsewhere")
    assert Seq2SeqPropositionizer(moved, batch_size=3).fingerprint == propositionizer.fingerprint
    assert "secret-name" not in json.dumps(propositionizer.fingerprint_data())
    tokenizer = make_tokenizer(["a b c"])
    for seed in (1, 2):
        make_model(len(tokenizer), seed).save_pretrained(tmp_path / str(seed))
        tokenizer.save_pretrained(tmp_path / str(seed))
    others = {Seq2SeqPropositionizer(tmp_path / str(seed)).fingerprint for seed in (1, 2)}
    others |= {Seq2SeqPropositionizer(folder, **change).fingerprint for change in CHANGES}
    assert len(others | {propositionizer.fingerprint}) == 5


CHANGES = ({"max_new_tokens": 20}, {"otherwise": SentencePropositionizer()})


def test_a_model_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"/nothing' cannot be loaded .*hf download chentong00/propositionizer"
    ):
        Seq2SeqPropositionizer(tmp_path / "nothing")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be loaded as an encoder-decoder model"):
        Seq2SeqPropositionizer(tmp_path)


def test_without_transformers_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r'pip install "llama-pack-densex\[huggingface]"'):
        Seq2SeqPropositionizer()


def test_a_pack_is_built_on_it_and_opened_again(
    propositionizer: Seq2SeqPropositionizer, tmp_path: Path
) -> None:
    documents = [
        Document(id_=text[:5], text=text, metadata={"title": "Food"})
        for text in (TEA.text, MISO.text)
    ]
    parts = {
        "embed_model": TrigramEmbedding(),
        "query_llm": "none",
        "propositionizer": propositionizer,
    }
    DenseXRetrievalPack(documents, **parts, persist_dir=tmp_path / "index")
    again = DenseXRetrievalPack.load(tmp_path / "index", **parts)
    found = again.retrieve("Is miso salty?")[0]
    assert found.node.get_content() == MISO.text
    assert "Miso is salty." in json.dumps(found.node.metadata)
    assert again.refresh(documents) == [False, False]


def test_it_is_chosen_by_name_at_the_command_line(folder: Path, tmp_path: Path) -> None:
    docs, index, chosen = tmp_path / "docs", tmp_path / "index", f"seq2seq:{folder}"
    docs.mkdir()
    (docs / "Food.txt").write_text(TEA.text, encoding="utf-8")
    code, output = run(
        "index", docs, "--to", index, "--embed-model", "none", "--propositionizer", chosen
    )
    assert code == 0, output
    (shown,) = run_json("inspect", index)["shown"]
    assert [unit["text"] for unit in shown["propositions"]] == KNOWN[TEA.text]
    (docs / "湖.txt").write_text(LAKE.text, encoding="utf-8")
    code, output = run("index", docs, "--to", index, "--propositionizer", chosen)
    assert code == 1
    assert "Japanese (1)" in output
    assert run("index", docs, "--to", index, "--propositionizer", chosen, "--max-cost", "1")[0] == 2
    with OpenAIServer(held({LAKE.text: ["琵琶湖は日本最大の湖である。"]})) as server:
        llm = ["--llm", f"openai-like:m@{server.url}"]
        code, output = run("index", docs, "--to", index, "--propositionizer", chosen, *llm)
    assert code == 0, output
    texts = [
        unit["text"]
        for passage in run_json("inspect", index)["shown"]
        for unit in passage["propositions"]
    ]
    assert sorted(texts) == sorted([*KNOWN[TEA.text], "琵琶湖は日本最大の湖である。"])
