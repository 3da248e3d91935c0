"""Names that are stop words elsewhere, and what signs tell apart, are found by words; what is exact comes
first."""

from __future__ import annotations

from pathlib import Path

import pytest
from llama_index.core import Document

from llama_pack_densex import DenseXRetrievalPack
from tests.searching import documents, sources

NAMES = {
    "who": "WHO recommends five portions of vegetables a day.",
    "fao": "FAO recommends growing beans between maize.",
    "it": "IT is on the fourth floor. Its extension is 5512.",
    "hr": "HR is on the second floor. Its extension is 5513.",
    "us": "Staff in the U.S. get ten days of leave.",
    "uk": "Staff in the U.K. get twenty days of leave.",
    "vitamin a": "Vitamin A is found in carrots.",
    "vitamin b": "Vitamin B is found in eggs.",
    "vitamin d": "Vitamin D is found in fish.",
    "plan a": "Plan A costs 40 euros.",
    "plan b": "Plan B costs 90 euros.",
    "the who": "The album was recorded by The Who in 1969.",
    "the beatles": "The album was recorded by The Beatles in 1965.",
    "oregon": "In Portland, OR, the tax is zero.",
    "indiana": "In Gary, IN, the tax is seven percent.",
    "world war 1": "The end of World War I came in 1918.",
    "world war 2": "The end of World War II came in 1945.",
    "情報": "ITは4階にあり、内線は5512です。",
    "人事": "HRは2階にあり、内線は5513です。",
    "世界保健機関": "WHOは野菜を1日5皿食べることを勧めています。",
    "ビタミン1": "ビタミンAはにんじんに多い。",
    "ビタミン2": "ビタミンBは卵に多い。",
}


@pytest.fixture(scope="module")
def names() -> DenseXRetrievalPack:
    return DenseXRetrievalPack(documents(NAMES), embed_model="none", query_llm="none")


@pytest.mark.parametrize(
    ("question", "document"),
    [
        ("What does WHO recommend?", "who"), ("Which floor is IT on?", "it"),
        ("How does the it team work?", "it"),
        ("How many days of leave do staff in the US get?", "us"), ("Where is vitamin A found?", "vitamin a"),
        ((
            "what is vitamin a?"
        ), "vitamin a"), ("what is vitamin d found in", "vitamin d"), ("plan a", "plan a"),
        ("What does Plan B cost?", "plan b"), ("Which album is by The Who?", "the who"),
        ("Which album did the who record?", "the who"), ("What is the tax in OR?", "oregon"),
        ("What is the tax in IN?", "indiana"), ("What was the end of World War I like?", "world war 1"),
        ("ITの内線は？", "情報"), ("it部門の内線", "情報"), ("ＷＨＯは何を勧めていますか", "世界保健機関"),
        ("ビタミンAは何に多いですか", "ビタミン1"), ("ビタミンＢは何に多いですか", "ビタミン2"),
    ],
)  # fmt: skip
def test_a_name_that_is_a_stop_word_elsewhere_is_found(
    names: DenseXRetrievalPack, question: str, document: str
) -> None:
    assert sources(names.retrieve(question))[0] == document


@pytest.mark.parametrize("question", ["WHO", "IT", "OR", "ＩＴ", "WHOとは"])
def test_a_name_alone_is_a_question(names: DenseXRetrievalPack, question: str) -> None:
    assert names.run(question).metadata["outcome"] == "answered"


@pytest.mark.parametrize("question", ["it?", "Who is it?", "WHY?", "TELL ME MORE"])
def test_a_pronoun_is_no_name(names: DenseXRetrievalPack, question: str) -> None:
    assert names.run(question).metadata["outcome"] == "vague"


CODES = {
    "c++": "Lectures on C++ take place on Monday.",
    "c#": "Lectures on C# take place on Tuesday.",
    "c": "Lectures on C take place on Friday.",
    "f#": "The library is for F#/OCaml programs.",
    ".net": "ASP programs are for .NET servers.",
    "node.js": "Node.js runs on servers.",
    "next.js": "Next.js runs in browsers.",
    "a*": "A* finds shortest paths.",
    "a+": "A+ is the best grade.",
    "r&d": "R&D has a budget of 9 million.",
    "q&a": "Q&A has a budget of 2 million.",
    "1-on-1": "A 1-on-1 takes 30 minutes.",
    "1-on-2": "A 1-on-2 takes 45 minutes.",
    "24/7": "The 24/7 line is 4711.",
    "50%": "The discount is 50% for members.",
    "50": "The hall holds 50 members.",
    "ax-10": "Filter AX-10 fits small pumps.",
    "ax-100": "Filter AX-100 fits large pumps.",
    "ax-10b": "Filter AX10B fits dishwashers.",
    "e-042": "Error E-042: the door is open.",
    "e-420": "Error E-420: no water.",
    "iso 9001": "ISO 9001 is audited in June.",
    "iso 14001": "ISO 14001 is audited in July.",
    "rfc-2616": "RFC-2616 describes a protocol.",
    "v1.2.3": "Version v1.2.3 mends the login.",
    "v3.2.1": "Version v3.2.1 mends the printer.",
    "03": "東京支店の電話は03-1234-5678です。",
    "06": "大阪支店の電話は06-1234-5678です。",
    "a-3型": "A-3型は防水です。",
    "a-4型": "A-4型は防水ではありません。",
    "甲120": "部品甲120の価格は940円です。",
    "乙120": "部品乙120の価格は500円です。",
    "甲1200": "部品甲1200の価格は700円です。",
    "第3条": "第3条 従業員は秘密を守る。",
    "第13条": "第13条 従業員は有給休暇を取る。",
}


@pytest.fixture(scope="module")
def codes() -> DenseXRetrievalPack:
    return DenseXRetrievalPack(documents(CODES), embed_model="none", query_llm="none")


@pytest.mark.parametrize(
    ("question", "document"),
    [
        ("When do lectures on C++ take place?", "c++"), ("When do lectures on C# take place?", "c#"),
        ("When do lectures on C take place?", "c"), ("C＋＋の講義はいつ", "c++"), ("F#", "f#"),
        ("What runs on .NET?", ".net"),
        ((
            "Where does nodejs run?"
        ), "node.js"), ("Next.jsはどこで動く", "next.js"), ("What does A* find?", "a*"),
        ((
            "Which grade is A+?"
        ), "a+"), ("R&D", "r&d"), ("Ｒ＆Ｄの予算", "r&d"), ("How long is a 1-on-1?", "1-on-1"),
        ("24/7", "24/7"), ("Who gets 50%?", "50%"), ("AX10", "ax-10"), ("What does AX 10 fit?", "ax-10"),
        ("ax_10", "ax-10"), ("型番AX10", "ax-10"), ("AXー１０は何用ですか", "ax-10"), ("AX-10B", "ax-10b"),
        ("ＡＸ－１００", "ax-100"), ("E042", "e-042"), ("E42", "e-042"), ("エラーE042とは", "e-042"),
        ("When is ISO9001 audited?", "iso 9001"), ("RFC 2616", "rfc-2616"), ("RFC2616とは", "rfc-2616"),
        ("What does 1.2.3 mend?", "v1.2.3"), ("0312345678", "03"), ("06-1234-5678は誰の電話ですか", "06"),
        ("A3型は防水ですか", "a-3型"), ("甲120の価格", "甲120"), ("甲-１２０", "甲120"), ("第３条", "第3条"),
    ],
)  # fmt: skip
def test_a_code_is_found_in_any_spelling_before_others(
    codes: DenseXRetrievalPack, question: str, document: str
) -> None:
    assert sources(codes.retrieve(question))[0] == document


@pytest.mark.parametrize(
    ("question", "price"),
    [
        ("price of C++", "400"),
        ("price of C", "600"),
        ("price of AX10", "100"),
        ("E042", "700"),
        ("甲120の値段", "900"),
    ],
)
def test_the_row_of_a_code_is_the_answer(question: str, price: str) -> None:
    prices = {
        "AX-10": 100,
        "AX-100": 200,
        "C++": 400,
        "C#": 500,
        "C": 600,
        "E-042": 700,
        "E-420": 800,
        "甲120": 900,
    }
    rows = "".join(f"| {code} | {price} |\n" for code, price in prices.items())
    table = Document(text=f"| Code | Price |\n|---|---|\n{rows}", id_="prices")
    pack = DenseXRetrievalPack([table], embed_model="none", query_llm="none")
    assert str(pack.run(question)).split("\n\n")[0].endswith(f"Price: {price}[^1]")


def test_codes_are_found_after_the_index_is_loaded(tmp_path: Path) -> None:
    DenseXRetrievalPack(
        documents(CODES), embed_model="none", query_llm="none", persist_dir=tmp_path / "index"
    )
    pack = DenseXRetrievalPack.load(tmp_path / "index", embed_model="none", query_llm="none")
    assert sources(pack.retrieve("AX10"))[0] == "ax-10"


@pytest.mark.parametrize(
    ("files", "text", "question"),
    [
        (
            ["2022 Q3 XYZ.pdf", "2023 Q1 XYZ.pdf"],
            "Net sales rose.",
            "Did net sales rise in Q1 2023?",
        ),
        (["scan_0001.pdf", "2023 Q1 XYZ.pdf"], "Net sales rose.", "Did net sales rise in Q1 2023?"),
        (["令和4年度_決算.pdf", "令和5年度_決算.pdf"], "売上が増えた。", "令和5年度の売上は？"),
    ],
)
@pytest.mark.parametrize("title", ["", "Report"])
def test_documents_of_one_title_are_told_apart_by_the_names_of_their_files(
    files: list[str], text: str, question: str, title: str
) -> None:
    reports = [
        Document(id_=file, text=text, metadata={"file_name": file, "title": title})
        for file in files
    ]
    pack = DenseXRetrievalPack(reports, embed_model="none", query_llm="none")
    assert sources(pack.retrieve(question))[0] == files[1]
