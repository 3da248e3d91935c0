"""What a message asks for, told by rules, and which replies of an LLM are not used."""

from __future__ import annotations

import pytest
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.llms.openai import OpenAI

from llama_pack_densex.answering.conversation import ConversationQuery
from llama_pack_densex.answering.rules import by_rules
from tests.openai_server import OpenAIServer

pytestmark = pytest.mark.pure


def said(*messages: str) -> list[ChatMessage]:
    return [ChatMessage(content=message, role=MessageRole.USER) for message in messages]


@pytest.mark.parametrize(
    ("before", "message", "sentence"),
    [
        (
            "How long is the Seikan Tunnel?",
            "When was it opened?",
            "Seikan Tunnel: When was it opened?",
        ),
        (
            "How long is the Seikan Tunnel?",
            "And what about Tokyo Tower?",
            "And what about Tokyo Tower?",
        ),
        ("How long is the Seikan Tunnel?", "What is miso?", "What is miso?"),
        (
            "When was the Eiffel Tower begun?\nWas it begun in 1887?",
            "How tall is it?",
            "Eiffel Tower: How tall is it?",
        ),
        (
            "How many passed the Seikan Tunnel in 2019?",
            "And in 2020?",
            "Seikan Tunnel: And in 2020?",
        ),
        (
            "How many passed the Seikan Tunnel in 2019?",
            "What about 2021?",
            "Seikan Tunnel: What about 2021?",
        ),
        (
            "Who built the Seikan Tunnel?\nWhen?",
            "And where?",
            "Who built the Seikan Tunnel: And where?",
        ),
        (
            "Is the Seikan Tunnel deep?\nWas it flooded?",
            "When?",
            "Seikan Tunnel Was it flooded: When?",
        ),
        (
            "Is the Seikan Tunnel deep?\nIs it longer than the Channel Tunnel?",
            "Why?",
            "Seikan Tunnel Is it longer than the Channel Tunnel: Why?",
        ),
        (
            "Is the Seikan Tunnel deep?\nand how many trains pass a day?",
            "Is it old?",
            "Seikan Tunnel: Is it old?",
        ),
        ("Seikan Tunnel?", "How deep is it?", "Seikan Tunnel: How deep is it?"),
        ("Who built the Seikan Tunnel?", "Tell me more", "Seikan Tunnel: Tell me more"),
        (
            "青函トンネルの開業は延期されましたか",
            "なぜですか？",
            "青函トンネルの開業は延期されましたか: なぜですか？",
        ),
        (
            "tell me about the seikan tunnel",
            "how long is it?",
            "the seikan tunnel: how long is it?",
        ),
        ("青函トンネルはいつ開業しましたか", "全長は？", "青函トンネル: 全長は？"),
        (
            "青函トンネルはいつ開業しましたか",
            "建設費はいくらですか？",
            "青函トンネル: 建設費はいくらですか？",
        ),
        (
            "青函トンネルはいつ開業しましたか\n1985年には貫通していた？",
            "それの全長は？",
            "青函トンネル: それの全長は？",
        ),
        ("青函トンネルはいつ開業しましたか", "料金は？", "青函トンネル: 料金は？"),
        (
            "青函トンネルはいつ開業しましたか",
            "令和元年度の売上高は？",
            "青函トンネル: 令和元年度の売上高は？",
        ),
        ("青函トンネルの売上高は？\n２０２０年度は？", "昨年は？", "青函トンネル: 昨年は？"),
        ("青函トンネルはいつ開業しましたか", "設計者の名前は", "青函トンネル: 設計者の名前は"),
        (
            "青函トンネルはいつ開業しましたか",
            "休業日と連絡先は？",
            "青函トンネル: 休業日と連絡先は？",
        ),
        ("松本城はどこですか", "同城の住所は？", "松本城: 同城の住所は？"),
        ("青函トンネルはいつ開業しましたか", "味噌の原料は何ですか", "味噌の原料は何ですか"),
        (
            "青函トンネルはいつ開業しましたか",
            "みそはなにからつくられますか",
            "みそはなにからつくられますか",
        ),
        (
            "青函トンネルはいつ開業しましたか",
            "うどんはどこのたべものですか",
            "うどんはどこのたべものですか",
        ),
        (
            "青函トンネルはいつ開業しましたか",
            "ながさはどれくらいですか",
            "青函トンネル: ながさはどれくらいですか",
        ),
        (
            "青函トンネルはいつ開業しましたか",
            "なんのためにできましたか",
            "青函トンネル: なんのためにできましたか",
        ),
        ("みそはなにからつくられますか", "どこでつくられますか", "みそ: どこでつくられますか"),
        ("味噌の原料は何ですか", "ﾄﾝﾈﾙの長さは？", "ﾄﾝﾈﾙの長さは？"),
        (
            "青函トンネルは誰が掘りましたか\nいつまでに払う必要がありますか",
            "料金は？",
            "青函トンネル: 料金は？",
        ),
        (
            "How long is the Seikan Tunnel?",
            "What does the IT department offer?",
            "What does the IT department offer?",
        ),
        ("青函トンネルの全長は？", "いつ開業したの？", "青函トンネル: いつ開業したの？"),
        (
            "青函トンネルの全長は？\n完成したのはいつ？",
            "何メートルあるの？",
            "青函トンネル: 何メートルあるの？",
        ),
        ("琵琶湖の水深は？\n青函トンネル", "全長は？", "青函トンネル: 全長は？"),
        ("青函トンネルの全長は？\n琵琶湖について", "水深は？", "琵琶湖: 水深は？"),
        ("青函トンネルの全長は？", "琵琶湖は", "琵琶湖は"),
        ("青函トンネルの全長は？", "東京タワー", "東京タワー"),
        (
            "How long is the Seikan Tunnel?\nOK",
            "And when was it opened?",
            "Seikan Tunnel: And when was it opened?",
        ),
        (
            "How long is the Seikan Tunnel?\nTranslate that to German",
            "Is it deep?",
            "Seikan Tunnel: Is it deep?",
        ),
    ],
)
def test_a_missing_subject_comes_from_the_messages_before_and_no_other(
    before: str, message: str, sentence: str
) -> None:
    assert by_rules(message, said(*before.split("\n"))).sentence == sentence


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("", "vague"), ("?", "vague"), ("😀", "vague"), ("That's great, thank you!", "small_talk"),
        ("なるほど", "small_talk"), ("わかった、ありがとう", "small_talk"),
        ("そうなんですね！", "small_talk"),
        ((
            "Could you translate that into Japanese, please?"
        ), "conversation"), ("3行でまとめて", "conversation"),
        ("要点をまとめてください", "conversation"), ("Make it shorter", "conversation"),
    ],
)  # fmt: skip
def test_what_is_no_question_is_told_without_an_llm(message: str, kind: str) -> None:
    assert by_rules(message, said("When was the Eiffel Tower begun?")).kind == kind


@pytest.mark.parametrize("history", [[], said("When was the Eiffel Tower begun?")])
@pytest.mark.parametrize(
    "message",
    [
        "Thanks a million!", "ok", "Got it, thank you.", "thanks, that was exactly what I needed",
        "See you later", "No, that's all.", "Thx 👍",
        "Goodbye!", "Perfect, thank you very much for explaining that.",
        "了解です", "だよね、ありがとう", "了解、助かりました", "教えてくれてありがとうございます",
        "お疲れ様でした", "なるほど、よくわかりました。ありがとうございます！", "またね",
        "はい、ありがとうございます",
    ],
)  # fmt: skip
def test_thanks_and_goodbyes_get_a_short_reply_without_an_llm(
    message: str, history: list[ChatMessage]
) -> None:
    query = by_rules(message, history)
    assert query.kind == "small_talk"
    assert query.reply


@pytest.mark.parametrize(
    "message",
    [
        "thanks, and how much is it?", "thanks for that and now the price", "ok and the price?", "great wall",
        "thanks that is great and how much is it",
        "ありがとう。料金は？", "わかりました。では料金は", "料金を教えてください、ありがとう",
    ],
)  # fmt: skip
def test_thanks_before_a_question_is_a_question(message: str) -> None:
    assert by_rules(message, said("When was the Eiffel Tower begun?")).kind == "question"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Thanks, you have been a star to put up with me", "small_talk"),
        ("I owe you one", "conversation"),
        ("Thanks, summarise it for my boss", "conversation"),
        ("おかげで助かったよ、感謝してもしきれない", "small_talk"),
        ("ありがとう、上司向けに要約して", "conversation"),
    ],
)
def test_thanks_that_only_the_llm_takes_for_such_get_a_short_reply_too(
    message: str, kind: str
) -> None:
    with OpenAIServer(lambda body: "NO QUERY") as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
        assert ConversationQuery(llm).form(message, said("Seikan Tunnel?")).kind == kind


@pytest.mark.parametrize(
    ("before", "message", "reply"),
    [
        (
            "客先出張のホテル代は？",
            "上限超えちゃう場合は",
            "客先出張の宿泊費がレートを超える場合はどうなりますか",
        ),
        (
            "How much may a hotel cost?",
            "And beyond the GSA cap?",
            "What if a hotel costs more than the federal limit?",
        ),
        ("東京支店の営業時間は？", "祝日営業は", "東京支店は休日に開いていますか"),
    ],
)
def test_a_query_that_names_its_subject_otherwise_is_searched_for_beside_the_message(
    before: str, message: str, reply: str
) -> None:
    with OpenAIServer(lambda body: reply) as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
        query = ConversationQuery(llm).form(message, said(before))
    bundle = query.as_bundle()
    assert reply in bundle.query_str
    assert message in bundle.query_str
    assert reply in bundle.embedding_strs
    assert reply in query.as_asked(message)
    assert message in query.as_asked(message)


def test_an_llms_query_is_searched_for_together_with_the_questions_before_it() -> None:
    history = said("How high is the Kurobe Dam?", "Thanks!", "Tell me about its visitors")
    with OpenAIServer(lambda body: "How much do adult visitors pay?") as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
        bundle = ConversationQuery(llm).form("And what do adults pay?", history).as_bundle()
    assert bundle.query_str == "How much do adult visitors pay?"
    assert bundle.context == "its visitors How high is the Kurobe Dam?"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Summarise all that", "conversation"), ("Summarise everything so far", "conversation"),
        ("Can you recap our whole conversation?", "conversation"), ("sum up what we said", "conversation"),
        ("ここまでまとめて", "conversation"), ("これまでの話を全部まとめて", "conversation"),
        ("会話全体を要約してください", "conversation"),
    ],
)  # fmt: skip
def test_a_request_about_the_whole_conversation_is_one(message: str, kind: str) -> None:
    assert by_rules(message, said("When was the Eiffel Tower begun?")).kind == kind


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("うなぎはどこでうまれますか", "question"), ("ひまわり", "question"),
        ("おにぎりのつくりかた", "question"), ("すし", "question"), ("くじらはさかなですか", "question"),
        ("What does the WHO do?", "question"),
        ("もっとくわしくおしえてください", "vague"), ("ほかにはありますか", "vague"),
        ("どういうことですか", "vague"), ("それはなぜなのですか", "vague"), ("よくわからない", "vague"),
        ("Who is it?", "vague"), ("TELL ME MORE", "vague"),
    ],
)  # fmt: skip
def test_a_question_in_hiragana_or_about_an_acronym_is_one(message: str, kind: str) -> None:
    assert by_rules(message).kind == kind


@pytest.mark.parametrize(
    ("message", "reply", "sentence"),
    [
        (
            "How deep is the Channel Tunnel?",
            "How deep is the Seikan Tunnel?",
            "How deep is the Channel Tunnel?",
        ),
        ("How long is the Channel Tunnel?", "NO QUERY", "How long is the Channel Tunnel?"),
        (
            "How deep is it?",
            "<think>It?</think>How deep is the Seikan Tunnel?",
            "How deep is the Seikan Tunnel?",
        ),
        (
            "How deep is it?",
            "It?\n</think>\nHow deep is the Seikan Tunnel?",
            "How deep is the Seikan Tunnel?",
        ),
        (
            "How deep is it?",
            "Sure! Here is it:\nHow deep is the Seikan Tunnel?",
            "How deep is the Seikan Tunnel?",
        ),
        (
            "How deep is it?",
            "**Query:** How deep is the Seikan Tunnel?",
            "How deep is the Seikan Tunnel?",
        ),
        (
            "How deep is it?",
            "1. How deep is the Seikan Tunnel?\n2. depth",
            "How deep is the Seikan Tunnel?",
        ),
        ("How deep is it?", "...", "Seikan Tunnel: How deep is it?"),
    ],
)
def test_a_reply_about_something_else_is_not_used_and_what_is_around_a_query_is_left_out(
    message: str, reply: str, sentence: str
) -> None:
    with OpenAIServer(lambda body: reply) as server:
        llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test")
        assert ConversationQuery(llm).form(message, said("Seikan Tunnel?")).sentence == sentence


@pytest.mark.parametrize("text", ["x" * 100_000, "、" * 20_000, "ア" * 20_000, "A " * 20_000])
def test_long_messages_take_no_time_to_speak_of(text: str) -> None:
    """They would take minutes, which the test's time limit ends."""
    assert by_rules(text, said(*[text] * 10)).kind in ("question", "vague")
