"""Looking into an index at the command line: `densex inspect`, `delete`, `export`, and what `query` can be
told."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document

from llama_pack_densex import DenseXRetrievalPack, Passage, Propositionizer, RecordedPropositionizer
from llama_pack_densex.cli.app import ChatCommand
from llama_pack_densex.index.folder import REPLIES_FILE
from llama_pack_densex.llm.cache import ReplyCache, reply_key
from llama_pack_densex.llm.usage import Reply
from llama_pack_densex.propositionizers.base import PropositionSet
from tests.index_folders import bytes_in, copy_index
from tests.test_cli import invoke, run, run_json, run_process

pytestmark = pytest.mark.together("torch")

GREEN = "Green tea is steamed. It keeps its colour."
LAKE = "琵琶湖は日本最大の湖である。面積は約６７０平方キロメートルである。"
DOCUMENTS = [
    Document(
        id_="tea.md",
        text=f"# Tea\n\n## Green\n\n{GREEN}\n\n## Black\n\nBlack tea is oxidised.",
        metadata={
            "year": 2020,
            "lang": "en",
            "tags": ["drink", "leaf"],
            "page_label": "9",
            "draft": True,
        },
    ),
    Document(
        id_="琵琶湖.md",
        text=f"# 琵琶湖\n\n{LAKE}",
        metadata={
            "year": 2024,
            "lang": "ja",
            "tags": ["湖"],
            "page_label": "10",
            "draft": False,
            "県": "滋賀",
        }
        | {"at": {"x": 1}},
    ),
    Document(
        id_="a.pdf#page=1", text="The cat sat on the mat.", metadata={"year": 2021.5, "lang": "en"}
    ),
    Document(id_="a.pdf#page=2", text="The dog ran to the lake.", metadata={"lang": "en"}),
]


class Telling(Propositionizer):
    """Says of each passage where it is from; what an LLM makes depends on title and section too."""

    async def apropositionize(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        return [
            PropositionSet(
                (f"{passage.title} / {passage.section}: {passage.text[-12:]}", "同じ文", "同じ文"),
                "fallback" if "cat" in passage.text else "ok",
                "the reply was refused" if "cat" in passage.text else "",
            )
            for passage in passages
        ]

    def fingerprint_data(self) -> dict[str, Any]:
        return {}


@pytest.fixture(scope="module")
def new_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "index"
    DenseXRetrievalPack(
        DOCUMENTS,
        propositionizer=Telling(),
        embed_model="none",
        query_llm="none",
        persist_dir=folder,
    )
    return folder


@pytest.fixture
def index(new_index: Path, tmp_path: Path) -> Path:
    """A copy of the new index that a test may change."""
    return copy_index(new_index, tmp_path / "index")


def shown(folder: Path, *options: str) -> list[str]:
    return [passage["document"] for passage in run_json("inspect", folder, *options)["shown"]]


# inspect


@pytest.mark.parametrize("document", ["tea.md", "琵琶湖.md"])
def test_inspect_shows_one_document(index: Path, document: str) -> None:
    assert set(shown(index, "--document", document)) == {document}


def test_inspect_shows_all_pages_of_a_file(index: Path) -> None:
    assert shown(index, "--document", "a.pdf") == ["a.pdf#page=1", "a.pdf#page=2"]


@pytest.mark.parametrize(("wrong", "near"), [("teas.md", "tea.md"), ("琵琶", "琵琶湖.md")])
@pytest.mark.parametrize("command", [["inspect", "INDEX", "--document"], ["delete", "INDEX"]])
def test_an_unknown_document_is_an_error_that_names_near_ones(
    index: Path, command: list[str], wrong: str, near: str
) -> None:
    code, output = run(*(part.replace("INDEX", str(index)) for part in command), wrong)
    assert code == 1
    output = output.replace("\n", "")
    assert f"no document {wrong!r}" in output
    assert f"did you mean {near!r}" in output
    assert len(shown(index, "--limit", "0")) == 4


def test_inspect_shows_passages_of_a_status(index: Path) -> None:
    assert shown(index, "--status", "fallback") == ["a.pdf#page=1"]
    assert "No passage matches" in run("inspect", index, "--status", "repaired")[1]


@pytest.mark.parametrize("text", ["STEAMED", "約670平方", "同じ文"])
def test_inspect_finds_text_in_passages_and_propositions(index: Path, text: str) -> None:
    found = shown(index, "--search", text)
    assert found == {"STEAMED": ["tea.md"], "約670平方": ["琵琶湖.md"]}.get(text) or len(found) == 4


def test_inspect_shows_a_few_passages_and_says_how_many_more_there_are(tmp_path: Path) -> None:
    documents = [Document(id_=f"{number:02}", text=f"Fact {number}.") for number in range(25)]
    DenseXRetrievalPack(documents, embed_model="none", query_llm="none", proposition_llm="none",
                        persist_dir=tmp_path / "index")  # fmt: skip
    by_default = run_json("inspect", tmp_path / "index")
    assert len(by_default["shown"]) + by_default["more"] == 25
    assert 0 < len(by_default["shown"]) < 25
    assert "22 more passages" in run("inspect", tmp_path / "index", "--limit", "3")[1]
    assert shown(tmp_path / "index", "--limit", "3") == ["00", "01", "02"]
    assert len(shown(tmp_path / "index", "--limit", "0")) == 25


# delete


def test_delete_says_what_was_deleted(index: Path) -> None:
    code, output = run("delete", index, "琵琶湖.md", "a.pdf")
    assert code == 0
    assert "3 documents deleted; 1 document left" in " ".join(output.split())
    assert "琵琶湖.md" in output
    assert set(shown(index)) == {"tea.md"}
    assert run_json("query", index, "琵琶湖")["results"] == []
    assert run("check", index)[0] == 0


def test_delete_of_known_and_unknown_documents_deletes_nothing(index: Path) -> None:
    assert run("delete", index, "tea.md", "nowhere")[0] == 1
    assert "tea.md" in shown(index)


def test_a_document_whose_id_begins_another_one_is_deleted_alone(tmp_path: Path) -> None:
    documents = [
        Document(id_=name, text=GREEN) for name in ("C", "C#.md", "b.pdf#page=1", "b.pdf#x")
    ]
    DenseXRetrievalPack(
        documents, embed_model="none", query_llm="none", persist_dir=tmp_path / "index"
    )
    assert run_json("delete", tmp_path / "index", "C", "b.pdf")["deleted"] == ["C", "b.pdf#page=1"]
    assert shown(tmp_path / "index") == ["C#.md", "b.pdf#x"]


@pytest.mark.parametrize("purge", [True, False])
def test_delete_purges_what_it_is_told_to(index: Path, purge: bool) -> None:
    replies = ReplyCache(index / REPLIES_FILE)
    replies.put(reply_key(DOCUMENTS[1].text, "any prompt"), Reply("秘密の返事", "stop"))
    replies.close()
    assert run("delete", index, "琵琶湖.md", *(["--purge"] if purge else []))[0] == 0
    left = bytes_in(index)
    assert ("秘密の返事".encode() in left) == (not purge)
    if purge:  # else the text leaves the disk when SQLite's log does
        assert "日本最大".encode() not in left
    assert run_json("query", index, "steamed tea")["results"][0]["document"] == "tea.md"


def test_deleting_all_documents_leaves_an_index_that_finds_nothing(index: Path) -> None:
    assert run_json("delete", index, "tea.md", "a.pdf", "琵琶湖.md")["documents"] == 0
    assert "Nothing in the index" in run("query", index, "tea")[1]
    assert run("inspect", index)[0] == 0


# export


def exported(folder: Path) -> list[dict[str, Any]]:
    code, output = run("export", folder)
    assert code == 0
    return [json.loads(line) for line in output.splitlines()]


def export(folder: Path, file: Path) -> None:
    code, output = run("export", folder)
    assert code == 0
    file.write_text(output, encoding="utf-8")


def test_an_index_made_from_an_export_has_the_same_propositions(
    index: Path, tmp_path: Path
) -> None:
    file = tmp_path / "export.jsonl"
    export(index, file)
    again = tmp_path / "again"
    DenseXRetrievalPack(
        DOCUMENTS, propositionizer=RecordedPropositionizer(file), embed_model="none", query_llm="none",
        persist_dir=again,
    )  # fmt: skip
    assert exported(again) == exported(index)
    assert exported(index)[-1]["propositions"] == [f" / 琵琶湖: {LAKE[-12:]}", "同じ文", "同じ文"]


def test_passages_of_equal_text_keep_their_own_propositions(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"embed_model": "none", "query_llm": "none"}
    documents = [
        Document(id_=name, text=LAKE, metadata={"title": name, "section": "湖"})
        for name in ("春", "秋")
    ]
    pack = DenseXRetrievalPack(
        documents, propositionizer=Telling(), persist_dir=tmp_path / "index", **settings
    )
    export(tmp_path / "index", tmp_path / "export.jsonl")
    recorded = RecordedPropositionizer(tmp_path / "export.jsonl")
    again = DenseXRetrievalPack(documents, propositionizer=recorded, **settings)
    assert [node.text for node in again.nodes("proposition")] == [
        node.text for node in pack.nodes("proposition")
    ]
    assert recorded.propositionize([Passage(LAKE, "冬")])[0].texts[0].startswith("秋")


def test_an_export_is_what_the_command_line_indexes_from(tmp_path: Path) -> None:
    docs, (first, second) = tmp_path / "docs", (tmp_path / "first", tmp_path / "second")
    docs.mkdir()
    (docs / "tea.md").write_text(DOCUMENTS[0].text, encoding="utf-8")
    (docs / "琵琶湖.md").write_text(DOCUMENTS[1].text, encoding="utf-8")
    run("index", docs, "--to", first, "--embed-model", "none")
    export(first, tmp_path / "export.jsonl")
    run("index", docs, "--to", second, "--embed-model", "none", "--propositionizer",
        f"recorded:{tmp_path / 'export.jsonl'}")  # fmt: skip
    assert exported(second) == exported(first)
    assert {line["title"] for line in exported(first)} >= {"琵琶湖"}


def test_an_edited_recording_changes_its_documents_and_a_model_makes_what_it_lacks(
    tmp_path: Path,
) -> None:
    docs, index, recording = tmp_path / "docs", tmp_path / "index", tmp_path / "edited.jsonl"
    docs.mkdir()
    for number, document in enumerate(DOCUMENTS[:2]):
        (docs / f"{number}.txt").write_text(document.text, encoding="utf-8")
    run("index", docs, "--to", index)
    export(index, recording)
    arguments = ["index", docs, "--to", index, "--propositionizer", f"recorded:{recording}"]
    run(*arguments)
    ids = {hit["id"] for hit in run_json("query", index, "tea")["results"]}
    first, *others = map(json.loads, recording.read_text("utf-8").splitlines())
    first["propositions"] = ["Tea is edited by hand."]
    lines = [json.dumps(line) for line in (first, *others)]
    recording.write_text("\n".join(lines) + "\n", encoding="utf-8")

    assert "Documents: 1 indexed, 1 unchanged." in run(*arguments)[1]
    assert "edited by hand" in run("query", index, "edited hand")[1]
    assert {hit["id"] for hit in run_json("query", index, "tea")["results"]} == ids
    assert "Documents: 0 indexed, 2 unchanged." in run(*arguments)[1]

    (docs / "new.txt").write_text("Coffee is roasted.", encoding="utf-8")
    assert "--llm" in run(*arguments)[1]
    run(*arguments, "--llm", "none")
    assert "Coffee is roasted." in run("query", index, "coffee")[1]


# query


def found(index: Path, *conditions: str) -> set[str]:
    options = [part for condition in conditions for part in ("--filter", condition)]
    answer = run_json(
        "query", index, "tea lake cat 琵琶湖", "--top-k", "10", "--llm-model", "none", *options
    )
    return {result["document"] for result in answer["results"]}


@pytest.mark.parametrize(
    ("conditions", "documents"),
    [
        (["year=2020"], {"tea.md"}),
        (["year>=2021"], {"琵琶湖.md", "a.pdf#page=1"}),
        (["year < 2021.5"], {"tea.md"}),
        (["lang != en"], {"琵琶湖.md"}),
        (["lang=en", "year>2020"], {"a.pdf#page=1"}),
        (["県=滋賀"], {"琵琶湖.md"}),
        (["tags=湖"], {"琵琶湖.md"}),
        (["draft=true"], {"tea.md"}),
        (["page_label=10"], {"琵琶湖.md"}),
        (["section=Coffee"], set()),
    ],
)  # fmt: skip
def test_query_filters_by_metadata(index: Path, conditions: list[str], documents: set[str]) -> None:
    if conditions == ["section=Coffee"]:
        code, output = run("query", index, "tea", "--filter", *conditions)
        assert code == 0
        assert "no document has section = Coffee" in " ".join(output.split())
    else:
        assert found(index, *conditions) == documents


@pytest.mark.parametrize(
    ("condition", "documents"),
    [
        ("tags=leaf", {"one", "both"}), ("tags=x", {"both"}), ("tags=2", {"number", "numbers"}),
        ("tags!=leaf", {"longer", "number", "numbers", "none"}), ("tags=leaflet", {"longer"}),
    ],
)  # fmt: skip
def test_a_filter_finds_a_value_alone_and_in_lists(
    tmp_path: Path, condition: str, documents: set[str]
) -> None:
    tags = {
        "one": "leaf",
        "both": ["leaf", "x"],
        "longer": "leaflet",
        "number": 2,
        "numbers": [2, 3],
        "none": None,
    }
    given = [
        Document(id_=id_, text=f"Tea of {id_}.", metadata={"tags": value})
        for id_, value in tags.items()
    ]
    DenseXRetrievalPack(given, embed_model="none", query_llm="none", persist_dir=tmp_path)
    answer = run_json(
        "query", tmp_path, "tea", "--top-k", "10", "--llm-model", "none", "--filter", condition
    )
    assert {result["document"] for result in answer["results"]} == documents
    code, output = run("query", tmp_path, "tea", "--filter", condition)
    assert (code, "no document has" in output) == (0, False)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("colour=green", "no document has the key 'colour'; the keys are"),
        ("year", "write key=value"),
        ("year>soon", "the values of year are 2020, 2024, 2021.5"),
        ("page_label>=9", "the values of page_label are 9, 10"),
        ("tags>a", "the values of tags are drink, leaf, 湖"),
        ("at={'x': 1}", "the values of at are {'x': 1}"),
    ],
)
def test_a_wrong_filter_says_what_is_right(index: Path, condition: str, said: str) -> None:
    code, output = run("query", index, "tea", "--filter", condition)
    output = " ".join(output.split())
    assert code == 1
    assert said in output
    assert condition != "colour=green" or all(
        key in output for key in ("year", "lang", "tags", "県")
    )


def test_a_filter_by_a_key_that_holds_empty_lists_alone_finds_nothing(tmp_path: Path) -> None:
    untagged = Document(id_="tea.md", text=GREEN, metadata={"tags": []})
    DenseXRetrievalPack(
        [untagged], embed_model="none", query_llm="none", persist_dir=tmp_path / "index"
    )
    code, output = run("query", tmp_path / "index", "tea", "--filter", "tags=leaf")
    assert code == 0
    assert "no document has tags = leaf" in " ".join(output.split())


def test_query_shows_what_an_llm_reads(index: Path) -> None:
    answer = run_json("query", index, "steamed", "--context", "propositions")
    assert answer["context"]
    assert all(GREEN not in text for text in answer["context"])
    assert any(
        GREEN in text
        for text in run_json("query", index, "steamed", "--context", "passages")["context"]
    )
    assert "What an LLM reads" in run("query", index, "琵琶湖", "--context", "window")[1]
    assert "context" not in run_json("query", index, "steamed")


@pytest.mark.parametrize("mode", ["auto-merging", "auto_merging"])
def test_both_spellings_of_auto_merging_are_understood(
    index: Path, tmp_path: Path, mode: str
) -> None:
    assert run_json("query", index, "steamed", "--mode", mode)["results"]
    (tmp_path / "tea.md").write_text(GREEN, encoding="utf-8")
    to = tmp_path / mode
    assert (
        run("index", tmp_path / "tea.md", "--to", to, "--mode", mode, "--embed-model", "none")[0]
        == 0
    )
    assert run_json("inspect", to)["mode"] == "auto_merging"
    assert DenseXRetrievalPack(DOCUMENTS, embed_model="none", mode=mode).retrieve("steamed")  # type: ignore[arg-type]


@pytest.fixture
def cross_encoder(tmp_path: Path) -> Path:
    """A cross-encoder with random weights, in a folder."""
    transformers = pytest.importorskip("transformers")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    base = tmp_path / "bert"
    base.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "tea", "cat", "lake", "the", "湖"]
    (base / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        num_labels=1,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(base)
    transformers.BertTokenizerFast(str(base / "vocab.txt")).save_pretrained(base)
    folder = tmp_path / "cross-encoder"
    sentence_transformers.CrossEncoder(str(base), device="cpu").save_pretrained(str(folder))
    return folder


def test_query_reranks_by_a_cross_encoder(index: Path, cross_encoder: Path) -> None:
    from sentence_transformers import CrossEncoder

    question = "tea lake cat 湖"
    answer = json.loads(
        invoke(
            "query", index, question, "--rerank", cross_encoder, "--top-k", "10", "--json"
        ).stdout
    )
    texts = [result["text"] for result in answer["results"]]
    assert len(texts) == 4
    scores = CrossEncoder(str(cross_encoder), device="cpu").predict(
        [(question, text) for text in texts]
    )
    assert [result["score"] for result in answer["results"]] == pytest.approx(
        scores.tolist(), abs=1e-4
    )
    assert scores.tolist() == sorted(scores.tolist(), reverse=True)


def test_reranking_without_its_package_names_it(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    result = invoke("query", index, "tea", "--rerank", "some/model")
    assert result.exit_code == 1
    assert "needs the package sentence-transformers" in result.stderr
    assert "pip install" in result.stderr


# for people


def test_a_pack_and_its_ingestion_print_for_people(tmp_path: Path) -> None:
    pack = DenseXRetrievalPack(
        DOCUMENTS,
        propositionizer=Telling(),
        embed_model="none",
        query_llm="none",
        persist_dir=tmp_path / "index",
    )
    assert "4 documents, 4 passages" in str(pack)
    lines = dict(
        line.split(maxsplit=1)
        for line in str(pack.ingestion).splitlines()
        if not line.startswith(" ")
    )
    assert lines["Documents"] == "4 done"
    assert lines["Passages"] == "4: 3 ok, 1 fallback"
    assert lines["Report"] == str(tmp_path / "index" / "ingestion_report.json")
    assert "the reply was refused" in str(pack.ingestion)
    assert "Time" in lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["inspect"], ["export"], ["query", "琵琶湖", "--filter", "lang=ja"]],
    ids=lambda arguments: str(arguments[0]),
)
def test_what_is_in_an_index_can_be_piped_in_any_locale(index: Path, arguments: list[str]) -> None:
    command, *others = arguments
    result = run_process(command, index, *others, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (result.returncode, result.stderr) == (0, "")
    assert "\\u7435" in result.stdout


def test_a_file_is_known_by_its_name_however_a_system_writes_it(tmp_path: Path) -> None:
    """macOS, and archives made there, write ガ as two characters; people, and their questions, as one."""
    (tmp_path / "docs").mkdir()
    split = unicodedata.normalize("NFD", "ガイド.md")
    for name in (
        split,
        unicodedata.normalize("NFD", "ポスト.md"),
        unicodedata.normalize("NFD", "é.md"),
        "é.md",
    ):
        (tmp_path / "docs" / name).write_text("灯台の高さは30メートルである。", encoding="utf-8")
    index = tmp_path / "index"
    run("index", tmp_path / "docs", "--to", index)
    found = run_json("query", index, "灯台の高さ", "--filter", "file_name=ガイド.md")["results"]
    assert [one["document"] for one in found] == ["ガイド.md"]
    assert "4 unchanged" in run("index", tmp_path / "docs", "--to", index)[1]
    assert run_json("delete", index, "ポスト.md", split)["deleted"] == ["ポスト.md", "ガイド.md"]


def test_an_option_of_the_pack_needs_no_line_of_its_own_to_get_from_a_command_to_the_index(
    tmp_path: Path,
) -> None:
    DenseXRetrievalPack(DOCUMENTS, persist_dir=tmp_path / "index", embed_model="none")
    chosen = {"similarity_top_k": 1, "granularity": ["passage"]}
    place = str(tmp_path / "index")
    command = ChatCommand(set(), place=place, query_llm="none", embed_model=None, **chosen)
    pack = command.index.open_to_ask(command)
    nodes = pack.retrieve("Which lake is the largest in Japan? 湖")
    assert len(nodes) == 1
    assert nodes[0].metadata["densex_matched"] == []  # no unit of the passage was searched
