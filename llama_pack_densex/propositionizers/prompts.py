"""The prompts of `LLMPropositionizer`: the fixed part first, the passage last."""

from __future__ import annotations

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate

from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.propositionizers.language import LANGUAGE_NAMES

# The rules are those of Chen et al. (2023), figure 8, in our own words and with examples of our own.
_SYSTEM = """\
You break passages into propositions: short statements that are each true, complete and clear on their own.

Follow these rules:
1. Split compound sentences into simple ones. Keep the wording of the passage wherever you can.
2. Where a named entity comes with descriptive information, state that information as a proposition of its own.
3. Make every proposition self-contained. Replace pronouns and phrases such as "the company" or "that year" by the \
full names, places and dates they stand for, and add what a reader would need who sees nothing else.
4. Reply with a JSON list of strings and nothing else.

Leave nothing out: every fact of the passage is in some proposition, in the order of the passage. Add nothing that \
the passage does not say; the title and the section only serve to resolve references.
Write the propositions in the language of the passage, whatever it is. Never translate.

Example

Title: Karsted Lighthouse. Section: Construction. Content: Work on the tower began in 1874 under Ida Brandvold, an \
engineer from Tromsø, and took three years because storms twice washed the scaffolding away. It is 41 metres high and \
was the first on that coast to burn paraffin instead of whale oil. Her brother Nils designed the lens, which the \
museum still shows.

["Work on the tower of Karsted Lighthouse began in 1874.", \
"Work on the tower of Karsted Lighthouse was led by Ida Brandvold.", \
"Ida Brandvold was an engineer from Tromsø.", \
"The construction of Karsted Lighthouse took three years.", \
"Storms twice washed away the scaffolding of Karsted Lighthouse during its construction.", \
"Karsted Lighthouse is 41 metres high.", \
"Karsted Lighthouse was the first lighthouse on its coast to burn paraffin instead of whale oil.", \
"Nils Brandvold, the brother of Ida Brandvold, designed the lens of Karsted Lighthouse.", \
"The museum still shows the lens of Karsted Lighthouse."]"""

_SYSTEM_JA = """\
あなたの仕事は、文章を命題に分けることです。命題とは、それだけを読んでも正しく意味が通じる、短く完結した文です。

次の規則に従ってください。
1. 重文や複文は、単純な文に分けます。言い回しは、できるだけ元の文章のものを残します。
2. 固有名詞に説明が付いているときは、その説明を独立した命題にします。
3. どの命題も、前後の文がなくても分かるように書きます。「彼」「それ」「同社」「その年」などは、それが指す正式な\
名前や場所、日付に置き換え、省かれた主語も補います。
4. 文字列のJSON配列だけを返します。ほかには何も書きません。

文章にある事実は一つも落とさず、文章の順に並べます。文章にないことは加えません。タイトルと見出しは、何を指すかを\
確かめるためだけに使います。
命題は必ず、元の文章と同じ言語で書きます。翻訳はしません。

例

Title: 霧ヶ浜灯台. Section: 建設. Content: 塔の工事は1874年、函館出身の技師である佐伯いとの指揮で始まったが、嵐で\
足場が二度も流されたため、完成までに三年かかった。高さは41メートルで、この海岸では初めて、鯨油に代えて石油を\
燃やした。レンズは弟の清吉が設計したもので、いまも資料館で見ることができる。

["霧ヶ浜灯台の塔の工事は1874年に始まった。", \
"霧ヶ浜灯台の塔の工事は佐伯いとが指揮した。", \
"佐伯いとは函館出身の技師である。", \
"霧ヶ浜灯台の完成までには三年かかった。", \
"霧ヶ浜灯台の工事では、嵐で足場が二度流された。", \
"霧ヶ浜灯台の高さは41メートルである。", \
"霧ヶ浜灯台は、その海岸で初めて、鯨油に代えて石油を燃やした灯台である。", \
"霧ヶ浜灯台のレンズは、佐伯いとの弟の佐伯清吉が設計した。", \
"霧ヶ浜灯台のレンズは、いまも資料館で見ることができる。"]"""

_REQUEST = "{note}Title: {title}. Section: {section}. Content: {content}"

PROMPT_KEY = "proposition_prompt"
JAPANESE_PROMPT_KEY = "japanese_proposition_prompt"


def default_prompts() -> dict[str, BasePromptTemplate]:
    """Return the prompts by their names: one in Japanese, and one in English for every other language.

    Their variables are `title`, `section`, `content` and `note`, which is why a passage is asked again ("" the first
    time). A prompt of your own may leave out all but `content`.
    """
    return {PROMPT_KEY: _chat_prompt(_SYSTEM), JAPANESE_PROMPT_KEY: _chat_prompt(_SYSTEM_JA)}


def prompt_key(language: str) -> str:
    """Return the name of the prompt for a language (see `language.detect_language`)."""
    return JAPANESE_PROMPT_KEY if language == "ja" else PROMPT_KEY


def format_request(prompt: BasePromptTemplate, llm: LLM, passage: Passage, note: str) -> list[ChatMessage]:
    """Write the messages of a request; a note goes ahead of the last one where the prompt has no place for it."""
    values = {"title": passage.title, "section": passage.section, "content": passage.text, "note": note}
    # Lone surrogates cannot be sent; they are no characters.
    sendable = {name: value.encode("utf-8", "replace").decode("utf-8") for name, value in values.items()}
    messages = prompt.format_messages(llm=llm, **sendable)
    if note and not takes_variable(prompt, "note"):
        messages[-1] = ChatMessage(f"{note}{messages[-1].content or ''}", role=messages[-1].role)
    return messages


def takes_variable(prompt: BasePromptTemplate, name: str) -> bool:
    """Tell whether a prompt has a place for a variable."""
    mapped = (prompt.template_var_mappings or {}).get(name, name)
    return mapped in prompt.template_vars or name in (prompt.function_mappings or {})


def ask_again_note(problem: str, language: str) -> str:
    """Say, for the model, why its last reply could not be used.

    Args:
        problem: "empty", "refused", "unreadable", "cut" or "language".
        language: The passage's.
    """
    if language == "ja":
        return f"前回の回答は使えませんでした。{_NOTES_JA[problem]}\n\n"
    name = LANGUAGE_NAMES.get(language, "")
    wanted = "the language of the passage" if not name or name.startswith("a language") else name
    return f"Your last reply could not be used: {_NOTES[problem].format(wanted=wanted)}\n\n"


def context_note(before: str, language: str) -> str:
    """Give the model what stands before a part of a passage ("" for nothing)."""
    if not before:
        return ""
    return f"{_BEFORE_JA if language == 'ja' else _BEFORE}\n{before}\n\n"


def _chat_prompt(system: str) -> ChatPromptTemplate:
    return ChatPromptTemplate(
        [ChatMessage(system, role=MessageRole.SYSTEM), ChatMessage(_REQUEST, role=MessageRole.USER)]
    )


_BEFORE = "This stands before the passage. Use it to resolve references only, and make no propositions of it:"
_BEFORE_JA = "文章の直前には次の文があります。何を指すかを確かめるためだけに使い、命題にはしないでください。"
_NOTES = {
    "empty": "it held no propositions. Reply with the JSON list of the propositions of this passage.",
    "refused": "it was a refusal. Only restate what this passage says, as a JSON list of propositions.",
    "unreadable": "it was not a JSON list of strings. Reply with that list and nothing else.",
    "cut": "it broke off before its end. Reply with the whole JSON list, without repetitions.",
    "language": "it was in the wrong language. Do not translate: write every proposition in {wanted}.",
}
_NOTES_JA = {
    "empty": "命題が一つもありませんでした。この文章の命題をJSON配列で返してください。",
    "refused": "回答が拒否されていました。この文章に書かれていることを、命題のJSON配列に言い換えるだけにしてください。",
    "unreadable": "文字列のJSON配列ではありませんでした。その配列だけを返してください。",
    "cut": "途中で切れていました。繰り返しをせずに、JSON配列を最後まで返してください。",
    "language": "文章と違う言語で書かれていました。翻訳せず、すべての命題を日本語で書いてください。",
}
