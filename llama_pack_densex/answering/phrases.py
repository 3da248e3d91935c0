"""Fixed phrases for answers, in English and Japanese."""

from __future__ import annotations

from llama_pack_densex.text.language import question_language

NOT_FOUND = {
    "en": "The answer was not found in the documents.",
    "ja": "ドキュメントの中に答えは見つかりませんでした。",
}
"""The answer if the documents do not contain one."""
CLOSEST = {"en": "Closest passages:\n\n", "ja": "近い箇所：\n\n"}
"""The heading of quotations that may not answer the question."""
NO_ANSWER = {"en": "The model gave no answer.", "ja": "モデルから回答がありませんでした。"}
"""The answer if the LLM's reply is empty."""
NEEDS_LLM = {
    "en": "Without a language model I can only quote the documents. Ask about what is in them.",
    "ja": "言語モデルがないため、ドキュメントを引用することしかできません。内容について質問してください。",
}
"""The answer to requests such as "summarise that" without an LLM."""

NO_SOURCE = {"en": " (no source)", "ja": "（出典なし）"}
"""The mark after a sentence without a footnote."""
CUT_OFF = {"en": " (the answer was cut off)", "ja": "（回答は途中で切れています）"}
"""The mark after an answer that was cut off by the LLM's token limit."""
UNVERIFIED = {"en": " (unverified)", "ja": "（未確認）"}
"""The mark after a quoted proposition that is aligned to no sentence of its passage."""

GREETING = {
    "en": "Hello! Ask me about the documents.",
    "ja": "こんにちは。ドキュメントについて質問してください。",
}
THANKS = {
    "en": "You are welcome. Ask me more about the documents.",
    "ja": "どういたしまして。ほかにも質問があればどうぞ。",
}
VAGUE = {
    "en": "What would you like to know? Name what it is about, and ask in a whole sentence, "
    'as "When was the tower of Karsted Lighthouse built?"',
    "ja": "何についての質問でしょうか。対象の名前を入れて、"
    "「霧浜灯台の塔はいつ建てられましたか」のように文で質問してください。",
}
"""The reply to a message that asks for nothing in particular."""

OWN_WORDS = {"en": "In the user's own words: ", "ja": "利用者の言葉："}
"""Precedes the newest message, which the LLM reads in addition to the query made from it."""
REWRITTEN = {"en": "Probably meant: ", "ja": "おそらく次の意味："}
"""Precedes an LLM's query that names another subject than the message."""


def in_language(phrases: dict[str, str], text: str, language: str = "") -> str:
    """Return a phrase in the language of a text: in Japanese, or else in English.

    Args:
        phrases: The phrase by language.
        text: The text, mostly the question.
        language: Its language, if it was detected from more than the text.
    """
    return phrases.get(language or question_language(text), phrases["en"])
