"""What an LLM is asked for a question about a passage."""

from __future__ import annotations

from llama_index.core.llms import ChatMessage, MessageRole

KINDS = ("fact", "situation", "list", "keyword")
"""One thing that is asked; somebody's own case; several things; words as typed into a search box."""

_SYSTEM = """\
Write one question that the passage answers, to test a search over many documents. Write it as somebody asks who \
needs the answer and has never seen the text.
1. Kinds: fact (one thing is asked), list (several things are asked), situation (the asker's own case, in one or \
two sentences, that a rule of the passage decides), keyword (2 to 5 words as typed into a search box). Where the \
passage has nothing for the kind that is wanted, take another.
2. Other words than the text's: everyday words, synonyms, the asker's point of view. Keep only names that say what \
it is about.
3. Clear on its own: name the subject, never "the passage", "this document" or "the above". Ask what only this \
passage answers.
4. evidence: the sentence, list items or whole table row that answers it, copied from the passage character for \
character. Read alone, under title, section and columns' names, it answers all that is asked.
5. answer: the few words of the evidence that answer it, copied too; of a list, from its first item to its last; \
of a table a cell, so never ask for a column's name.
6. Ask what matters to readers: no dates of updates, links, headings or navigation. If there is nothing else, \
leave the question empty.
Reply with JSON and nothing else.

Example (kind situation, title Karsted Lighthouse): It was begun in 1874 by Ida Brandvold. We charge:
- adults 5 euros
- children under 12 nothing
{"kind": "situation", "question": "I want to take my son, who is nine, up Karsted Lighthouse. What will his \
ticket cost?", "evidence": "- children under 12 nothing", "answer": "nothing"}"""

_SYSTEM_JA = """\
文章が答えになる質問を一つ、日本語で書く。多くの文書からの検索を試すための質問である。\
答えを必要とし、この文章を見たことがない人が尋ねるように書く。
1. 種類: fact（一つのことを尋ねる）、list（複数のことを尋ねる）、\
situation（文章の規則で決まる、尋ねる人自身の状況を1〜2文で）、keyword（検索窓に入れる2〜5語）。求められた種類に合う内容がなければ、別の種類にする。
2. 文章と違う言葉を使う: 日常の言葉、言い換え、尋ねる人の立場。何についてかを示す名前だけは残す。
3. 単独で通じるように主題を示し、「この文章」「本書」「上記」とは書かない。この文章だけが答えることを尋ねる。
4. evidence: 答えになる文、箇条書きの項目、表の行全体を、文章から一字一句そのまま写す。\
題名、節、列名の下でそれだけを読めば、尋ねたことすべてに答えている。
5. answer: evidenceの中の、答えになる短い語句をそのまま写す。listなら最初の項目から最後の項目まで。表ならセル\
（列名を尋ねてはいけない）。
6. 読む人に大切なことを尋ねる。更新日、リンク、見出し、案内は尋ねない。それしかなければquestionを空にする。
JSONだけを返す。

例（種類 situation、題名 霧浜灯台）: 1874年着工。料金:
- 大人500円
- 12歳未満無料
{"kind": "situation", "question": "9歳の息子を霧浜灯台に連れて行きたいのですが、子どもの入場料はいくらですか？", \
"evidence": "- 12歳未満無料", "answer": "無料"}"""

_REQUEST = "{note}Title: {title}. Section: {section}. Content: {content}"


def _messages(system: str) -> list[ChatMessage]:
    return [ChatMessage(system, role=MessageRole.SYSTEM), ChatMessage(_REQUEST, role=MessageRole.USER)]


PROMPT = _messages(_SYSTEM)
PROMPT_JA = _messages(_SYSTEM_JA)

EXPECTED_REPLY = (
    '{"kind": "fact", "question": "' + "word " * 15 + '", "evidence": "' + "word " * 40 + '", "answer": "5"}'
)
"""A reply of the usual length."""
