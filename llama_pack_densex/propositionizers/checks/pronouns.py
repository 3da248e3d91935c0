"""The self-containedness check: words of a proposition that refer to something outside it."""

from __future__ import annotations

import re

from llama_pack_densex.propositionizers.checks.numbers import MONTH
from llama_pack_densex.propositionizers.checks.texts import Ground, Text
from llama_pack_densex.text.tokens import words


def unresolved_reference(text: Text, ground: Ground) -> str:
    """Return what a proposition leaves unclear without the text before it; "" if it can be understood alone.

    Args:
        text: The proposition.
        ground: Its passage, with title, section and context.
    """
    if ground.title and text.plain.startswith(ground.title):  # as "This American Life"
        return ""
    if ground.language in ("en", "latin"):
        return _unresolved_en(text.plain)
    if ground.language == "ja":
        return _unresolved_ja(text.plain, ground.title)
    return ""


def _unresolved_en(text: str) -> str:
    pronoun = _POINTING.match(text)
    if pronoun is None or _EXPLETIVE.match(text, pronoun.start("word")):
        return ""
    return _UNCLEAR.format(pronoun["word"])


def _unresolved_ja(text: str, title: str) -> str:
    pronoun = _POINTING_JA.match(text)
    if pronoun:
        return _UNCLEAR.format(pronoun["word"])
    if title and title in text:
        return ""
    owned = _SOMEONES_JA.match(text)
    if owned is None:
        return ""
    return f'it does not say whose "{owned[1]}" is meant'


_UNCLEAR = 'nothing in it says what "{}" stands for'
_OPENING = r"[\s(*_]*"  # no quotation mark: a quoted beginning may be a title
_POINTING = re.compile(
    rf"{_OPENING}(?:(?:In|On|By|Since|After|Before|During|From|Until|Around|At)"
    r" (?:the |early |late |mid-|end of )*"
    rf"(?:(?:{MONTH}|\d\w*|century|spring|summer|autumn|winter|season)[ ,–-]+)+"
    r"|(?:At|During|In|By|Since|After|Before|According to) (?=th(?:is|at|ese|ose)\b|h(?:im|er)\b)"
    r"|There,? (?=s?he |they |it )"
    r"|(?:However|Later|Then|Also|Today|Now|Here|Additionally|Moreover|Furthermore|Thus|Finally"
    r"|Initially),? )?"
    r"(?P<word>it|he|she|they|its|his|her|him|their|them|this|that|these|those|the latter"
    r"|the former(?=,|'s| (?:is|was|are|were|has|had|[a-z]{2,}ed)\b))\b(?=['’\s,])",
    re.IGNORECASE,
)
# In "It is known that", "It was in 1850 that", "It took years to" and "It rained" the pronoun refers to
# nothing, unlike in "It has three floors".
_EXPLETIVE = re.compile(
    r"those (?:\w+ ){0,2}(?:who|whose|that|which)\b"
    r"|it (?:\w+ )?(?:(?:is|was|has been|had been|be|became|seems|appears|happened|turned)"
    r" .*\b(?:that|who|when)\b"
    r"|(?:is|was|has been|be|became|remains) (?:\w+ ){0,3}(?:possible|likely|important|difficult|easy|hard"
    r"|necessary|common|rare|customary|usual|(?:un)?known|unclear|late|early)\b"
    r"|took .*\b(?:to|before|until)\b|(?:is |was |has been |had been )?(?:rain|snow|hail|thunder))",
    re.IGNORECASE,
)
_POINTING_JA = re.compile(
    rf"{_OPENING}(?:[\d〇一二三四五六七八九十元年月日時世紀代末初頭中旬後期前半頃ごろ春夏秋冬]+(?:に|から|まで|で|、|の)+は?、?"
    r"|(?:また|さらに|なお|しかし|そして|ただし|一方)、)?"
    r"(?P<word>それ(?!ぞれ|以[降来前])|これ(?!ま)|あれ(?=は|が|を)|彼女|彼(?!岸|方|我)"
    r"|同(?![様時盟志窓僚胞意額義種等一居伴封梱][^はがにの、]?|期[^はがにの、])[一-鿿]"
    r"|当時|当該|本(?:[馬作書機種人艦船校駅線件])|同じ[年月日]|(?:二人|氏)(?=[はがも])|前者|後者|両者"
    r"|その|この|あの|[そこ]こ(?=[はがでにをのも]|から)|[そこ]う(?:した|いう)|[そこ]のよう|自ら|自身|わが(?=[国社校町]))"
)
# Relational nouns, which always belong to someone or something: a proposition that opens with one has to say
# whose it is.
SOMEONES = words(
    """
    鞍上 騎手 主戦騎手 調教師 馬主 生産者 馬名 父 母 母の父 父親 母親 両親
    妻 夫 長男 長女 次男 息子 娘 兄 弟 姉 妹 祖父 祖母 通算成績 獲得賞金
    勝ちタイム 着差 本名 別名 旧名 通称 愛称 略称 英語名 英語表記 読み 名前
    名称 語源 由来 所在地 本社 本部 創業者 社長 会長 作者 著者 監督 主演
    主題歌 面積 人口 標高 全長 総延長 高さ 長さ 幅 深さ 直径 重さ 重量 首都
    目的 理由 原因 結果 設計者
    """
)
_SOMEONES_JA = re.compile(rf"{_OPENING}({'|'.join(SOMEONES)})(?:は|が|も)")
