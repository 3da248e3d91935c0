"""Fixed phrases for answers, in English and Japanese, the most frequent ones in other languages too."""

from __future__ import annotations

from llama_pack_densex.text.language import question_language, spoken_language

NOT_FOUND = {
    "en": "The answer was not found in the documents.",
    "ja": "ドキュメントの中に答えは見つかりませんでした。",
    "ar": "لم يُعثر على الإجابة في المستندات.",
    "de": "Die Antwort steht nicht in den Dokumenten.",
    "es": "No se encontró la respuesta en los documentos.",
    "fr": "La réponse ne se trouve pas dans les documents.",
    "hebrew": "התשובה לא נמצאה במסמכים.",
    "hi": "दस्तावेज़ों में उत्तर नहीं मिला।",
    "it": "La risposta non si trova nei documenti.",
    "ko": "문서에서 답을 찾지 못했습니다.",
    "nl": "Het antwoord staat niet in de documenten.",
    "pl": "Nie znaleziono odpowiedzi w dokumentach.",
    "pt": "A resposta não foi encontrada nos documentos.",
    "ru": "Ответ в документах не найден.",
    "thai": "ไม่พบคำตอบในเอกสาร",
    "tr": "Yanıt belgelerde bulunamadı.",
    "vi": "Không tìm thấy câu trả lời trong tài liệu.",
    "zh": "文件中未找到答案。",
}
"""The answer if the documents do not contain one."""
CLOSEST = {
    "en": "Closest passages:\n\n",
    "ja": "近い箇所：\n\n",
    "ar": "أقرب المقاطع:\n\n",
    "de": "Am nächsten kommen:\n\n",
    "es": "Pasajes más cercanos:\n\n",
    "fr": "Passages les plus proches :\n\n",
    "hebrew": "הקטעים הקרובים ביותר:\n\n",
    "hi": "सबसे निकट के अंश:\n\n",
    "it": "Passi più vicini:\n\n",
    "ko": "가장 가까운 부분:\n\n",
    "nl": "Het dichtst in de buurt komen:\n\n",
    "pl": "Najbliższe fragmenty:\n\n",
    "pt": "Trechos mais próximos:\n\n",
    "ru": "Ближайшие фрагменты:\n\n",
    "thai": "ข้อความที่ใกล้เคียงที่สุด:\n\n",
    "tr": "En yakın bölümler:\n\n",
    "vi": "Các đoạn gần nhất:\n\n",
    "zh": "最相近的段落：\n\n",
}
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
    """Return a phrase in the language of a text, or in English if it does not have it.

    Args:
        phrases: The phrase by language.
        text: The text, mostly the question.
        language: Its language, if it was detected from more than the text.
    """
    language = language or question_language(text)
    return phrases.get(language) or phrases.get(spoken_language(text)) or phrases["en"]
