"""Whether an index can answer a question: quotations where it can, "not found" where it cannot."""

from __future__ import annotations

import json

import pytest
from llama_index.core import Document, SimpleDirectoryReader
from llama_index.core.schema import NodeWithScore, TextNode

from llama_pack_densex import DenseXRetrievalPack, RecordedPropositionizer
from llama_pack_densex.answering.extractive import ExtractiveSynthesizer
from llama_pack_densex.answering.footnotes import without_footnotes
from llama_pack_densex.answering.phrases import CLOSEST, NOT_FOUND, UNVERIFIED
from llama_pack_densex.retrieval.context import count_words
from tests.conftest import DATA

QUESTIONS = [
    json.loads(line) for line in (DATA / "questions.jsonl").read_text(encoding="utf-8").splitlines()
]
OTHERS = [
    ("Who painted the ceiling of the Sistine Chapel?", "en"),
    ("What is the boiling point of tungsten?", "en"),
    ("How many strings does a cello have?", "en"),
    ("Which team won the 1966 World Cup final at Wembley?", "en"),
    ("When did Iceland become a republic?", "en"),
    ("ベートーヴェンが第九を作曲したのはいつですか。", "ja"),
    ("エベレストに最初に登頂したのは誰ですか。", "ja"),
    ("ブラジルの首都はどこですか。", "ja"),
    ("光合成で作られる気体は何ですか。", "ja"),
    ("バドミントンのシャトルの羽根は何枚ですか。", "ja"),
]


@pytest.fixture(scope="module")
def pack() -> DenseXRetrievalPack:
    documents = SimpleDirectoryReader(
        DATA, recursive=True, required_exts=[".md", ".txt"]
    ).load_data()
    recorded = RecordedPropositionizer(DATA / "propositions.jsonl")
    return DenseXRetrievalPack(
        documents, propositionizer=recorded, query_llm="none", embed_model="none"
    )


def test_quotations_hold_the_answer_in_few_words(pack: DenseXRetrievalPack) -> None:
    held = refused = 0
    for asked in QUESTIONS:
        response = pack.run(asked["question"])
        text = without_footnotes(str(response))
        refused += response.metadata["outcome"] == "not_found"
        while count_words(text) > 60:
            text = text[:-1]
        held += any(answer.casefold() in text.casefold() for answer in asked["answers"])
    assert held >= 0.85 * len(QUESTIONS)
    assert refused <= 0.05 * len(QUESTIONS)


def test_a_question_about_something_else_is_not_answered(pack: DenseXRetrievalPack) -> None:
    for question, language in OTHERS:
        response = pack.run(question)
        outcome = response.metadata["outcome"]
        assert outcome in ("not_found", "closest"), question
        assert str(response).startswith(
            NOT_FOUND[language] if outcome == "not_found" else CLOSEST[language]
        )


LEAVE_EN = (
    "# Leave\n\nParental leave lasts 16 weeks. A doctor's note is needed after three days. The office "
    "closes in August."
)
LEAVE_JA = (
    "# 休暇\n\n有給育児休暇は16週間である。3日を超える病欠には診断書が要る。8月は事務所を閉める。"
)
DOUBTFUL = [
    (LEAVE_EN, "Do I need a note from my dentist to stay at home?", "Closest passages:\n\n"),
    (LEAVE_EN, "How many weeks of unpaid leave may an intern take?", "Closest passages:\n\n"),
    (LEAVE_JA, "双子の場合、育児休暇は延長できますか", "近い箇所：\n\n"),
    (LEAVE_JA, "病欠の連絡は誰にしますか", "近い箇所：\n\n"),
    # in the documents' language
    ("VPNの接続先は本社である。接続には証明書が要る。", "VPN error", "近い箇所："),
]


@pytest.mark.parametrize(("document", "question", "lead"), DOUBTFUL)
def test_where_it_cannot_be_told_whether_it_is_an_answer_it_is_called_closest(
    document: str, question: str, lead: str
) -> None:
    pack = DenseXRetrievalPack(
        [Document(text=document)], proposition_llm="none", query_llm="none", embed_model="none"
    )
    response = pack.run(question)
    assert str(response).startswith(lead)
    assert response.metadata["outcome"] == "closest"
    assert response.metadata["citations"]
    assert all(sentence["footnotes"] for sentence in response.metadata["sentences"])
    assert response.metadata["markdown"].startswith(lead)


@pytest.mark.parametrize(("document", "question", "lead"), DOUBTFUL[1:3])
async def test_streams_and_conversations_call_it_so_too(
    document: str, question: str, lead: str
) -> None:
    pack = DenseXRetrievalPack(
        [Document(text=document)],
        proposition_llm="none",
        query_llm="none",
        embed_model="none",
        streaming=True,
    )
    expected = str(pack.run(question))
    assert expected.startswith(lead)
    assert str(pack.as_chat_engine().chat(question)) == expected
    stream = await pack.as_chat_engine().astream_chat(question)
    assert "".join([piece async for piece in stream.async_response_gen()]) == expected


@pytest.mark.parametrize(
    ("document", "question"),
    [(LEAVE_EN, "How long does parental leave last?"), (LEAVE_JA, "有給育児休暇は何週間ですか")],
)
def test_an_answer_is_not_called_closest(document: str, question: str) -> None:
    pack = DenseXRetrievalPack(
        [Document(text=document)], proposition_llm="none", query_llm="none", embed_model="none"
    )
    response = pack.run(question)
    assert response.metadata["outcome"] == "answered"
    assert "16" in str(response).partition("[^1]")[0]


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        ("The {} harbour of Karsted is deep.", "Is the harbour of Karsted deep?"),
        ("カルステの{}港は深い。", "カルステの港は深いですか"),
    ],
)
def test_an_answer_has_three_facts_at_most(sentence: str, question: str) -> None:
    names = ["old", "red", "new", "big", "low"]
    documents = [Document(text=sentence.format(name), id_=name) for name in names]
    pack = DenseXRetrievalPack(
        documents, proposition_llm="none", query_llm="none", embed_model="none", similarity_top_k=5
    )
    assert 1 <= len(pack.run(question).metadata["sentences"]) <= 3


def test_each_quoted_sentence_has_its_footnote_and_its_proposition(
    pack: DenseXRetrievalPack,
) -> None:
    response = pack.run("Which naval ship was waiting to fish the Apollo 13 crew from the ocean?")
    about = response.metadata
    assert about["sentences"]
    assert all(
        sentence["footnotes"] and sentence["propositions"] for sentence in about["sentences"]
    )
    assert all(sentence["supported"] for sentence in about["sentences"])
    documents = {node.node.node_id for node in response.source_nodes}
    for citation in about["citations"]:
        assert citation["node_id"] in documents
        assert citation["end"] - citation["start"] == len(citation["text"])
        assert all(
            citation["start"] <= fact["start"] < fact["end"] <= citation["end"]
            for fact in citation["propositions"]
        )


def test_a_sentence_that_every_document_has_is_quoted_if_the_question_asks_for_it() -> None:
    sentences = "The {} bridge stands in hall {}. It was lit in {}. It is red."
    names = ["Ash", *(f"B{n}" for n in range(40))]
    documents = [
        Document(text=sentences.format(name, n, 1890 + n), id_=name) for n, name in enumerate(names)
    ]
    pack = DenseXRetrievalPack(documents, query_llm="none", embed_model="none")
    answer = without_footnotes(str(pack.run("When was the Ash bridge lit?")))
    assert "It was lit in 1890." in answer


def test_what_is_quoted_of_two_sentences_is_not_marked() -> None:
    units = [
        {
            "id": "u",
            "text": "Karsted has a lighthouse. Its lamp is red.",
            "score": 1.0,
            "granularity": "proposition",
            "status": "ok",
        }
    ]
    node = TextNode(
        text="Karsted has a lighthouse. Its lamp is red.", metadata={"densex_matched": units}
    )
    response = ExtractiveSynthesizer().synthesize(
        "Is the lamp of Karsted red?", [NodeWithScore(node=node, score=1.0)]
    )
    assert str(response) == "Karsted has a lighthouse.[^1] Its lamp is red.[^1]"
    assert response.metadata["outcome"] == "answered"


@pytest.mark.parametrize("language", ["en", "ja"])
def test_the_mark_of_an_unverified_proposition_belongs_to_its_sentence(language: str) -> None:
    text = {
        "en": "Karsted has a lighthouse. Its lamp is red.",
        "ja": "カルステには灯台がある。灯火は赤い。",
    }[language]
    first = {"en": "Karsted is a port of the north.", "ja": "カルステは北の港町である。"}[language]
    about = {"granularity": "proposition", "status": "ok"}
    second = {"en": "The lamp of Karsted is red.", "ja": "カルステの灯火は赤い。"}[language]
    units = [
        {"id": "u", "text": first, "score": 1.0, "unverified": True, **about},
        {"id": "v", "text": second, "score": 0.9, "unverified": True, **about},
    ]
    node = TextNode(text=text, metadata={"densex_matched": units})
    response = ExtractiveSynthesizer().synthesize(first, [NodeWithScore(node=node, score=1.0)])
    assert str(response).count(UNVERIFIED[language] + "[^1]") == 2
    assert [said["footnotes"] for said in response.metadata["sentences"]] == [[1], [1]]


HANDBOOK_ZH = "员工入职满一年后，每年享有十天带薪年假。病假须提交医院证明。午休一小时。"
HANDBOOK_KO = (
    "1년 이상 근무한 직원에게는 연차휴가 15일을 준다. 영수증은 돌아온 날부터 10일 안에 제출한다."
)


@pytest.mark.parametrize(
    ("document", "question", "answer"),
    [
        (HANDBOOK_ZH, "年假有几天？", "员工入职满一年后，每年享有十天带薪年假。[^1]"),
        (HANDBOOK_ZH, "病假需要什么材料？", "病假须提交医院证明。[^1]"),
        (HANDBOOK_ZH, "加班费怎么算？", NOT_FOUND["zh"]),
        (HANDBOOK_KO, "연차는 며칠인가요?", "1년 이상 근무한 직원에게는 연차휴가 15일을 준다.[^1]"),
    ],
)
def test_chinese_and_korean_questions_are_not_refused_for_the_words_that_ask(
    document: str, question: str, answer: str
) -> None:
    pack = DenseXRetrievalPack(
        [Document(text=document)], proposition_llm="none", query_llm="none", embed_model="none"
    )
    assert answer in str(pack.run(question))


HANDBOOKS = {
    "de": (
        "Jedem Beschäftigten stehen dreißig Tage Urlaub zu. Die Kündigungsfrist beträgt drei Monate.",
        "Welche Kuendigungsfristen gelten für die Mitarbeiter?",
        "Wie kommt man zu dem Parkplatz?",
    ),
    "fr": (
        "Le salarié a droit à des congés. Le préavis pour résilier le contrat est de trois mois.",
        "Quel est le préavis pour la résiliation d'un contrat ?",
        "Où est-ce que se trouve le parking de la ville ?",
    ),
    "pl": (
        "Pracownikowi przysługuje urlop. Rachunki oddaje się w dziale księgowości.",
        "Gdzie oddać rachunek?",
        "Jak ugotować ryż na obiad?",
    ),
    "ru": (
        "Сотруднику предоставляется отпуск. Заявление подаётся руководителю.",
        "Кому подавать заявления?",
        "Где находится ближайшая парковка?",
    ),
    "tr": (
        "Her çalışanın izni vardır. Sözleşmenin ihbar süresi üç aydır.",
        "Sözleşmelerde ihbar süreleri ne kadar?",
        "Şirketin otoparkı nerede?",
    ),
    "ar": (
        "يحصل الموظف على إجازة. تُقدَّم الفواتير إلى قسم المحاسبة.",
        "أين تُقدَّم فواتير السفر؟",
        "كيف يمكن طبخ الأرز؟",
    ),
    "hebrew": (
        "עובד זכאי לחופשה. חשבוניות מגישים למחלקת הכספים.",
        "לאן מגישים את החשבונית?",
        "איפה החניון?",
    ),
    "hi": (
        "कर्मचारी को अवकाश मिलता है। बिल लेखा विभाग में जमा होते हैं।",
        "बिलों को किस विभाग में जमा करें?",
        "चावल कैसे पकाएँ?",
    ),
    "thai": (
        "พนักงานมีวันลาพักร้อนสิบห้าวัน ส่งใบเสร็จให้แผนกบัญชี",
        "ส่งใบเสร็จให้แผนกไหน",
        "จอดรถที่ไหน",
    ),
}


@pytest.mark.parametrize("language", HANDBOOKS)
def test_other_forms_of_words_are_found_and_what_is_missing_is_said_in_the_language_of_the_question(
    language: str,
) -> None:
    document, question, unanswerable = HANDBOOKS[language]
    pack = DenseXRetrievalPack(
        [Document(text=document)], proposition_llm="none", query_llm="none", embed_model="none"
    )
    second_sentence = document.split(". ")[-1].split("। ")[-1]
    assert second_sentence in without_footnotes(str(pack.run(question)))
    assert str(pack.run(unanswerable)) == NOT_FOUND[language]


FAQ_JA = """\
よくある質問

Q. 商品の返品はできますか？
A. はい、到着後8日以内に限り承ります。

**Q. 送料はいくらですか？**
A. 全国一律550円です。5,000円以上のお買い上げで無料になります。"""
FAQ_EN = """\
Frequently asked questions

Can I return an item?
Yes, within 30 days of delivery, if it has not been used.

Which payment methods do you accept?
Credit cards and bank transfer."""

MANUAL_JA = """\
Q: 電源が入りません。
A: プラグを確認してください。

**Q2．エラーE04が表示されます。**
A2．かすトレイを空にしてください。

Q: 手入れの表示が消えません。
A: 水洗いしてください。"""


MINUTES_JA = """\
高橋：見積りは北社が980万円、南社が1,200万円です。
佐藤：北社の保守費用は年間いくらですか。
高橋：年間85万円です。"""


@pytest.mark.parametrize(
    ("document", "question", "answer"),
    [
        (FAQ_JA, "返品できますか", "A. はい、到着後8日以内に限り承ります。"),
        (
            FAQ_JA,
            "送料はいくら？",
            "A. 全国一律550円です。5,000円以上のお買い上げで無料になります。",
        ),
        (
            MANUAL_JA,
            "エラーE04が出たら？",
            "A2．かすトレイを空にしてください。",
        ),  # a question that ends as a statement does
        (MINUTES_JA, "北社の保守費用はいくらですか", "高橋：年間85万円です。"),
        (
            FAQ_EN,
            "Can I return items?",
            "Yes, within 30 days of delivery, if it has not been used.",
        ),
        (FAQ_EN, "What payment methods are accepted?", "Credit cards and bank transfer."),
    ],
)
def test_a_question_in_a_document_is_quoted_with_its_answer(
    document: str, question: str, answer: str
) -> None:
    pack = DenseXRetrievalPack(
        [Document(text=document)],
        proposition_llm="none",
        query_llm="none",
        embed_model="none",
        similarity_top_k=1,
    )
    assert answer in without_footnotes(str(pack.run(question)))


def test_the_answer_to_a_question_that_matched_best_comes_before_other_propositions() -> None:
    faq = "**Can I bring my dog?** On Fridays.\n\n**Who orders gloves?** Tom does, twice a month."
    other = "We ordered gloves on Monday. The gloves come in forty boxes."
    documents = [Document(text=text) for text in (faq, other)]
    pack = DenseXRetrievalPack(documents, "none", "none", "none")
    assert str(pack.run("Who orders gloves?")).startswith("Tom does, twice a month.")


def test_what_stands_below_the_question_comes_first() -> None:
    pack = DenseXRetrievalPack(
        [Document(text=MANUAL_JA)], proposition_llm="none", query_llm="none", embed_model="none"
    )
    answer = without_footnotes(str(pack.run("エラーE04が表示された、確認してください")))
    assert answer.removeprefix(CLOSEST["ja"]).startswith("A2．かすトレイを空にしてください。")


RULES = """\
4. Lamps

4.1 A keeper must not:

(a) light a lamp at noon, except in fog; or

(b) borrow the oil,

unless the harbour agrees.

4.2 Wicks are changed every week. This does not apply to electric lamps.

4.3 Clause 4.2 is checked in May.
"""


@pytest.mark.parametrize(
    ("question", "quoted"),
    [
        (
            "May I borrow the oil?",
            ["must not:", "(b) borrow the oil,", "unless the harbour agrees."],
        ),
        ("What must a keeper not do?", ["must not:", "(a) light", "(b) borrow", "unless the"]),
        ("How often are wicks changed?", ["every week.", "This does not apply to electric lamps."]),
        ("What does clause 4.2 say?", ["4.2 Wicks are changed every week."]),
        ("Clause 4.1(a)", ["must not:", "(a) light a lamp at noon"]),
    ],
)
def test_a_rule_is_quoted_with_its_lead_in_and_its_exception(
    question: str, quoted: list[str]
) -> None:
    pack = DenseXRetrievalPack(
        [Document(text=RULES)], proposition_llm="none", embed_model="none", query_llm="none"
    )
    answer = str(pack.run(question))
    places = [answer.find(part) for part in quoted]
    assert -1 not in places
    assert places == sorted(places)


SCOPE = "# 複合機の使い方\n\n## 紙詰まり\n側面のカバーを開ける。紙を手前に引き抜く。"


@pytest.mark.parametrize(
    ("document", "question"),
    [
        (f"{FAQ_JA}\n\n---\n", "送料はいくら？"),  # an answer of several sentences below a question
        (SCOPE, "複合機"),  # a passage that only its heading found
    ],
)
def test_each_sentence_that_is_quoted_is_supported(document: str, question: str) -> None:
    pack = DenseXRetrievalPack(
        [Document(text=document)], query_llm="none", embed_model="none", proposition_llm="none"
    )
    said = pack.run(question).metadata["sentences"]
    assert len(said) >= 2
    assert all(one["footnotes"] == [1] and one["supported"] for one in said), said


def test_each_row_that_is_quoted_is_a_paragraph_with_the_names_of_its_columns() -> None:
    text = "| 部品 | 材質 |\n| --- | --- |\n| 弁 | 真鍮 |\n| 軸 | 鋼鉄 |\n| 環 | 真鍮 |"
    pack = DenseXRetrievalPack(
        [Document(text=text)], proposition_llm="none", query_llm="none", embed_model="none"
    )
    assert str(pack.run("真鍮の部品")) == "部品: 弁; 材質: 真鍮[^1]\n\n部品: 環; 材質: 真鍮[^1]"
    assert str(pack.run("軸の材質は")) == "部品: 軸; 材質: 鋼鉄[^1]"


def test_a_row_of_several_sentences_is_quoted_whole() -> None:
    text = "| Year | Role | Notes |\n|---|---|---|\n| 1972 | Det. Lt. Stone | One of two. In May. |"
    pack = DenseXRetrievalPack(
        [Document(text=text)], proposition_llm="none", query_llm="none", embed_model="none"
    )
    row = "Year: 1972; Role: Det. Lt. Stone; Notes: One of two. In May."
    assert str(pack.run("Which role in 1972?")) == f"{row}[^1]"


def test_rows_of_another_document_than_the_question_names_are_left_out() -> None:
    def career(name: str, *rows: str) -> Document:
        table = "\n".join(["| Year | Title | Role |", "|---|---|---|", *rows])
        return Document(text=f"# {name}\n\n{table}", id_=f"{name}.md")

    documents = [
        career("Ada Kern", "| 2019 | Ship | Nurse |", "| 2020 | Lake | Clerk |"),
        career("Max Rissmann", "| 2019 | Crown | Harry |", "| 2021 | Castle | Ernst |"),
        career("Lena Holt", "| 2019 | Roles | Judge |", "| 2018 | Lamp | Maid |"),
    ]
    pack = DenseXRetrievalPack(
        documents, proposition_llm="none", query_llm="none", embed_model="none"
    )
    answer = str(pack.run("Which roles did Rissmann play in 2019?"))
    assert answer.endswith("Year: 2019; Title: Crown; Role: Harry[^1]")
    assert "Judge" not in answer


def test_a_row_far_below_its_header_is_quoted_with_the_names_of_its_columns() -> None:
    rows = "\n".join(
        f"| P{n:03d} | {['steel', 'brass'][n % 2]} | {100 + 7 * n} |" for n in range(150)
    )
    text = f"# Parts\n\n| Part | Material | Price in yen |\n| --- | --- | --- |\n{rows}\n"
    pack = DenseXRetrievalPack(
        [Document(text=text)], proposition_llm="none", query_llm="none", embed_model="none"
    )
    answer = pack.run("What is the price in yen of P120?")
    assert "Part: P120; Material: steel; Price in yen: 940[^1]" in str(answer)
    (citation,) = answer.metadata["citations"]
    (fact,) = [fact for fact in citation["propositions"] if "P120" in fact["text"]]
    assert text[fact["start"] : fact["end"]] == "| P120 | steel | 940 |"


def test_a_sentence_is_quoted_with_its_links() -> None:
    text = "Apply with [the form](https://example.com/form) before May. The hall is cold."
    pack = DenseXRetrievalPack(
        [Document(text=text)], proposition_llm="none", query_llm="none", embed_model="none"
    )
    assert "Apply with [the form](https://example.com/form) before May.[^1]" in str(
        pack.run("How does one apply?")
    )


def test_a_footnote_of_a_document_is_quoted_without_its_mark() -> None:
    documents = [Document(text="The lamp burns oil.[^1]\n\n[^1]: Whale oil was dear in Karsted.")]
    pack = DenseXRetrievalPack(
        documents, proposition_llm="none", query_llm="none", embed_model="none"
    )
    assert str(pack.run("Which oil was dear in Karsted?")).startswith(
        "Whale oil was dear in Karsted.[^1]"
    )


def test_questions_of_a_table_of_contents_are_no_answers() -> None:
    contents = (
        "1. What is Karsted?\n2. Where does Karsted lie?\n3. Who built the lighthouse of Karsted?"
    )
    documents = [
        Document(text=contents),
        Document(text="The island Karsted lies in the north of the bay."),
    ]
    pack = DenseXRetrievalPack(
        documents, proposition_llm="none", query_llm="none", embed_model="none"
    )
    assert without_footnotes(str(pack.run("Where does Karsted lie?"))) == documents[1].text


def test_a_japanese_question_is_not_about_the_words_that_ask() -> None:
    documents = [
        Document(text="5.1 リリースとは何ですか、どうやって数えるのですか . . 12"),
        Document(text="移植とは何ですか、どのくらいですか、どこですか。"),
        Document(text="ＮＭＵは、担当者でない者のアップロードの略である。"),
    ]
    pack = DenseXRetrievalPack(
        documents, proposition_llm="none", query_llm="none", embed_model="none"
    )
    answer = pack.run("NMU とは何ですか、どのくらいですか")
    assert answer.source_nodes[0].text == documents[2].text
    assert without_footnotes(str(answer)).removeprefix(CLOSEST["ja"]).startswith(documents[2].text)


@pytest.mark.parametrize(
    ("text", "question", "begins"),
    [
        (
            "Minot Light was lit in 1860. Minot Light flashes 1-4-3. The granite of Minot Light came from "
            "Quincy.",
            "Where did the granite of Minot Light come from?",
            "The granite of Minot Light came from Quincy.[^1]",
        ),
        (
            "Minot Light has a keeper. It was lit in 1860. The granite of Minot Light came from Quincy.",
            "When was Minot Light lit?",
            "Minot Light has a keeper.[^1] It was lit in 1860.",
        ),
        (
            "灯台の歴史は長い。灯台の石は岡山から運ばれた。灯台は1870年に点灯した。",
            "灯台はいつ点灯したのですか。",
            "灯台は1870年に点灯した。",
        ),
    ],
)
def test_an_answer_begins_with_what_answers(text: str, question: str, begins: str) -> None:
    pack = DenseXRetrievalPack([Document(text=text)], query_llm="none", embed_model="none")
    assert str(pack.run(question)).startswith(begins)


def test_a_sentence_of_several_lines_is_quoted_on_one() -> None:
    text = (
        "霧浜灯台の塔は、技師の佐伯が設計したものであるが、今のものは鉄筋コン\n"
        "クリートで建て直されている。"
    )
    pack = DenseXRetrievalPack(
        [Document(text=text)], proposition_llm="none", query_llm="none", embed_model="none"
    )
    assert without_footnotes(str(pack.run("鉄筋コンクリートの塔は？"))) == text.replace("\n", "")


def test_a_quotation_is_quoted_without_the_marks_of_its_lines() -> None:
    text = "> [!NOTE]\n> The signing key expires after ninety\n> days. Renew it in the console."
    pack = DenseXRetrievalPack([Document(text=text)], embed_model="none", query_llm="none")
    answer = str(pack.run("When does the signing key expire?"))
    assert answer == "The signing key expires after ninety days.[^1]"


@pytest.mark.parametrize(
    ("lead", "item"),
    [
        ("Bring to the harbour:", "- a coat of the size {}"),
        ("次の物を港に持参：", "- 寸法{}の上着"),
    ],
)
def test_items_of_a_list_are_quoted_as_a_list(lead: str, item: str) -> None:
    items = [item.format(number) for number in range(1, 4)]
    text = "\n".join([lead, "", *items])
    response = DenseXRetrievalPack([Document(text=text)], "none", "none", "none").run(
        item.strip("- {}")
    )
    assert str(response).splitlines()[-3:] == [f"{one}[^1]" for one in items]


ALLOWANCE_JA = "在宅勤務手当は月5,000円です。金額は毎年見直されます。"
ALLOWANCE_ZH = "在家工作津贴是每月五千日元。我们每年都会重新审查这个金额。"
ALLOWANCE_EN = (
    "The allowance for working at home is 5,000 yen a month, and it is reviewed by the board."
)
NOTHING_JA = "ドキュメントの中に答えは見つかりませんでした。"
NOTHING_EN = "The answer was not found in the documents."
NOTHING_ZH = "文件中未找到答案。"


@pytest.mark.parametrize(
    ("document", "question", "answer"),
    [
        (ALLOWANCE_JA, "産休", NOTHING_JA),
        (ALLOWANCE_JA, "有給 繰越 上限", NOTHING_JA),
        (ALLOWANCE_JA, "東京 支店 電話番号", NOTHING_JA),
        (ALLOWANCE_JA, "VPN 接続方法", NOTHING_JA),
        (ALLOWANCE_JA, "Kerberos", NOTHING_JA),  # a name is in no language
        (ALLOWANCE_JA, "How does the Kerberos server start?", NOTHING_EN),
        (ALLOWANCE_JA, "产假", NOTHING_ZH),
        (ALLOWANCE_EN, "有給 繰越 上限", NOTHING_JA),
        (ALLOWANCE_EN, "Kerberos", NOTHING_EN),
        (ALLOWANCE_ZH, "東京 電話", NOTHING_ZH),
    ],
)
def test_the_documents_decide_where_a_question_does_not_tell_its_language(
    document: str, question: str, answer: str
) -> None:
    pack = DenseXRetrievalPack(
        [Document(text=document)], query_llm="none", embed_model="none", proposition_llm="none"
    )
    assert str(pack.run(question)) == answer


def test_an_answer_from_a_conversation_names_each_speaker_once() -> None:
    text = "Ann: What blocks the billing migration?\n\nJun: Keys are missing. Finance has them.\n\nAnn: Ah."
    pack = DenseXRetrievalPack(
        [Document(text=text, id_="a")],
        proposition_llm="none",
        query_llm="none",
        embed_model="none",
    )
    answer = str(pack.run("What blocks the billing migration?"))
    assert answer.startswith("Jun: Keys are missing.[^1] Finance has them.[^1]")
