"""Recognise the sentences of an answer that need no source. Pure functions."""

from __future__ import annotations

import re
import unicodedata

from llama_pack_densex.retrieval.context import count_words
from llama_pack_densex.text.tokens import IS_CJK, has_words, tokenize, words

MOST_WORDS = 10
"""Maximum words of a yes or no; a Chinese, Japanese or Korean character counts as half a word."""


def is_assent(sentence: str, question: str) -> bool:
    """Return whether a sentence is a short yes or no, or only introduces what follows ("It depends.").

    A yes or no may repeat words of the question; any other word makes it a claim of its own.

    Args:
        sentence: A sentence of an answer, without footnotes.
        question: The question.
    """
    text = _plain(sentence)
    if not has_words(text) or count_words(text) > MOST_WORDS:
        return False
    if IS_CJK.search(text):
        return _is_assent_ja(text, question)
    claimed = [word for word in _WORD.findall(text.lower()) if word not in _ASSENT]
    if not claimed:
        return True
    return bool(_YES_OR_NO.match(text)) and {*tokenize(" ".join(claimed))} <= {*tokenize(question)}


def says_what_is_missing(sentence: str, question: str = "") -> bool:
    """Return whether a sentence says that the documents lack some information, and nothing else.

    Args:
        sentence: A sentence of an answer, without footnotes.
        question: The question; the sentence may repeat its numbers.
    """
    text = _plain(sentence)
    if not {*_NUMBER.findall(text)} <= {*_NUMBER.findall(unicodedata.normalize("NFKC", question))}:
        return False
    if IS_CJK.search(text):
        return bool(_MISSING_JA.search(text)) and not _ADDS_JA.search(text)
    return bool(_MISSING.search(text)) and not _ADDS.search(_BEGINNING.sub("", text))


def claims_nothing(sentence: str) -> bool:
    """Return whether a sentence only asks the reader something, or is a courtesy ("I hope this helps!").

    Args:
        sentence: A sentence of an answer, without footnotes.
    """
    text = _plain(sentence)
    return bool(_ASKS.search(text) or (_COURTESY.match(text) and not _NUMBER.search(text)))


def _plain(sentence: str) -> str:
    return unicodedata.normalize("NFKC", _MARKUP.sub("", sentence)).strip()


def _is_assent_ja(text: str, question: str) -> bool:
    if _ASSENT_JA.fullmatch(text):
        return True
    rest = _NAME_JA.sub(lambda name: "" if name[0] in question else name[0], text)
    return bool(_YES_OR_NO_JA.match(text) and _REPEATED_JA.fullmatch(rest))


_MARKUP = re.compile(r"[*_`]|^\s*(?:[#>]+|[-*+])\s+")
_WORD = re.compile(r"[^\W_]+(?:['’][a-z]+)?")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

_YES_OR_NO = re.compile(
    r"(?:yes|no|yep|yeah|nope|correct|right|exactly|indeed|certainly|sure|of course)\b", re.I
)
_ASSENT = words(
    """
    yes no yep yeah nope correct incorrect right wrong true false exactly indeed certainly
    surely sure of course absolutely definitely not never always really quite necessarily partly
    it that this these they you we i he she there here is are was were be been do does did can
    could may might will would should must have has cannot can't couldn't don't doesn't didn't
    isn't aren't wasn't won't shouldn't mustn't a an the to so then and or but in as if at all
    for with by on from what which how possible impossible allowed permitted forbidden
    prohibited required necessary needed optional case depend depends short brief summary answer
    overview list details steps question good great i'm am sorry hear sounds hard tough
    difficult worry follow follows following below documents say says let me us explain happy
    help that's it's here's
    """
)

_YES_JA = r"(?:はい|いいえ|いえ|ええ|いや|もちろん)"
_LEAD_JA = (
    r"(?:(?:場合|条件|状況|内容|時期|種類)に(?:よる|より)|(?:以下|次|下記)の(?:通り|とおり|よう)|以下に"
    r"|(?:結論|要点)から(?:言う|述べる)?と"
    r"|まとめ|要するに|お?答えし|(?:ご|お)?(?:質問|回答)|概要|要約|説明し|残念ながら|一概には言え"
    r"|大変(?:な状況)?|お(?:つら|辛)い|お気の毒|ご?(?:心配|不安|安心)|お見舞い申し上げ)"
)
_PREDICATE_JA = (
    r"(?:でき|可能|不可能|可|不可|必要|不要|必須|任意|大丈夫|問題|対象|対象外|禁止|許可|義務|正し|正解|誤り|間違|違|異なり|その"
    r"|通り|とおり|そう|要り|いり|含まれ|取れ|使え|受けられ|認められ|求められ)"
)
_ENDING_JA = r"[ですまんせしたあるだなはりよねがもとのをにかられいさくてき、,。.!\s]"
_ASSENT_JA = re.compile(
    rf"(?:{_YES_JA}|{_LEAD_JA}|{_PREDICATE_JA})(?:{_YES_JA}|{_LEAD_JA}|{_PREDICATE_JA}|{_ENDING_JA})*"
)
_YES_OR_NO_JA = re.compile(_YES_JA)
_NAME_JA = re.compile(r"[々一-鿿]+|[ァ-ヺー]+|[A-Za-z]+|\d+")
_REPEATED_JA = re.compile(rf"(?:{_YES_JA}|{_PREDICATE_JA}|{_ENDING_JA}|[えけげべめぎちびみ])*")

_ASKS = re.compile(r"[?？][\"'”’」』)）\s]*\Z|か。?\Z")
_COURTESY = re.compile(
    r"""(?:(?:and|so|please|just|of\ course)\b,?\ )*(?:
      let\ me\ know\b | feel\ free\ to\ (?:ask|reach|let) | (?:good\ luck|congratulations|congrats)\b
    | i(?:\ do)?\ hope\ (?:this|that|it|you)\b | you(?:['’]re|\ are)\ (?:very\ )?welcome\b
    | (?:i(?:['’]m|\ am|['’]d\ be)\ )?(?:happy|glad)\ to\ (?:help|hear|assist)\b
    | (?:i(?:['’]m|\ am)\ )?(?:(?:so|very|really|truly)\ )?sorry\ (?:for\ your|to\ hear)\b
    | (?:my\ )?(?:\w+\ )?condolences\b
    | if\ you\ (?:have|need)\ (?:(?:any|some|more|other|further|additional)\ )*
      (?:questions?|details?|help|information|anything)\b
    | i\ (?:can|could)\ also\b.*\bif\ you\b
    | (?:say|tell\ me|specify|clarify|confirm)\ (?:which|what|whether|if|your\ question)\b
    | (?:based\ on\ the\ \w+,\ )?here(?:['’]s|\ is|\ are)\ (?:a|an|the|my|some|what)\b)
    | (?:(?:他|ほか)に|さらに|もし|また|何か|ご不明|ご質問|ご?必要)[^。]{0,30}
      (?:(?:お知らせ|お尋ね|お聞き|お申し付け|教えて|聞いて)ください|お気軽にどうぞ)
    | (?:どの|どちら|どれ|いつ|何の|具体的)[^。]{0,30}(?:教えて|お知らせ|ご指定)[^。]{0,6}ください
    | お役に立て | (?:\w{0,8}、)?(?:ご愁傷|お悔やみ|ご冥福) | (?:\w{1,8})?おめでとう | 以上です""",
    re.IGNORECASE | re.VERBOSE,
)

_TEXTS = (
    r"(?:documents?|documentation|sources?|texts?|passages?|excerpts?|context|handbook"
    r"|(?:given|provided|available)\ (?:information|materials?))"
)
_SAY = (
    r"(?:say|state|mention|specify|give|tell|name|describe|explain|contain|include|cover|provide|list|indicate|address"
    r"|answer|define|disclose|show|detail|clarify|hold|have|discuss|set\ out|make\ clear)"
)
_NO_WORD = (
    r"no\ (?:\w+\ )?(?:information|mention|indication|statement|details?|answer)"
    r"(?=\s*(?:about|on|of|as|regarding|concerning|that|whether|how|which|what|when|where|who|why|in|for|to|\W*\Z))"
)
_MISSING = re.compile(
    rf"""\b{_TEXTS}\ (?:(?:\w+ly|here|themselves|i\ have)\ )?
      (?:do|does|did)(?:\ not|n['’]t)\ (?:\w+ly\ )?{_SAY}\b
    | \b{_TEXTS}\ (?:say|give|mention|contain|provide|hold|make|have)s?\ (?:nothing\b|{_NO_WORD})
    | \b{_TEXTS}\ (?:are|is)\ silent\b
    | \b(?:there\ (?:is|are)|i\ (?:have|found|see))\ {_NO_WORD}
    | \bno\ (?:information|mention|details?)\ (?:is|are)\ (?:given|made|provided)\b
    | \bnothing\ (?:is\ said\b|in\ (?:\w+\ )?{_TEXTS}\ (?:say|state|mention|indicate)s)
    | (?<!who\ )(?<!which\ )(?<!that\ )\b(?:is|are|was|were)(?:\ not|n['’]t)\ (?:\w+ly\ )?
      (?:stated|mentioned|specified|documented|indicated|spelled\ out)\b
      (?:\ (?:in|by)\ (?:\w+\ ){{0,2}}{_TEXTS}\b|\ (?:for|here|anywhere)\b|\W*\Z)
    | \b(?:not|n['’]t)\ (?:be\ )?(?:\w+ly\ )?(?:given|described|included
      |covered|found|provided|listed|named|answered
      |addressed|contained|defined|explained|available|said|stated|part)
      \ (?:in|by|of)\ (?:\w+\ ){{0,2}}{_TEXTS}\b
    | \b(?:missing|absent)\ from\ (?:\w+\ ){{0,2}}{_TEXTS}\b
    | \bi\ (?:could|can|did|do)(?:\ ?not|n['’]t)\ (?:find|see|tell|determine|say)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_BEGINNING = re.compile(
    r"\A(?:however|but|unfortunately|still|though|that said)\b,?\s*", re.IGNORECASE
)
# Words after which the sentence makes a claim of its own ("..., but the tower opened in 1998").
_ADDS = re.compile(
    r"""\b(?:but|although|though|while|whereas|because|since|so|except|instead|presumably|probably|likely|usually
        |typically|generally|however|normally|only
        |and\ (?:it|its|they|he|she|the|an?|this|that|you|is|are|was|were|has))\b
    | [;–—] | :\s*\S""",
    re.IGNORECASE | re.VERBOSE,
)

_TEXTS_JA = r"(?:文書|ドキュメント|資料|本文|出典|ハンドブック)"
_ABSENT_JA = (
    r"(?:は|が|も)?(?:一切|特に|とくに)?(?:ありません|ない|無い|なし|無し|なく|ございません|見当たりません|見当たらない"
    r"|見つかりません|見つからない|見られません|確認できません|含まれて(?:は)?い(?:ません|ない))"
)
_NOT_DONE_JA = r"て(?:は|も)?い(?:ません|ない|なく)"
_MISSING_JA = re.compile(
    rf"""(?:(?:記載|言及|明記|記述|明示)(?:(?:され|し){_NOT_DONE_JA}|{_ABSENT_JA})
    | (?:書かれ|述べられ|触れられ?|示され|記され|載っ){_NOT_DONE_JA}
    | {_TEXTS_JA}(?:の中)?(?:に|から)(?:は|も)?{_ABSENT_JA}
    | {_TEXTS_JA}[^。]{{0,60}}(?:答え|回答|情報|説明|規定|定め|詳細|根拠|データ|内容|もの){_ABSENT_JA}
    | {_TEXTS_JA}[^。]{{0,60}}(?:見つかりません|見つからない|(?:含まれ|定められ){_NOT_DONE_JA}
      |(?:わか|分か)りません|読み取れ(?:ません|ない)|確認でき(?:ません|ない)|不明))
    (?:でした)?(?:(?:ので|ため|から)?、?(?:わかりません|分かりません|不明|お?答えできません|回答できません|判断できません))?
    (?:です|でした|である|ようです|との?ことです)?[。.!！\s]*\Z""",
    re.VERBOSE,
)
_ADDS_JA = re.compile(
    r"(?:です|ます|せん|た|る|い|れ|(?<!た)だ)(?:が|けれども?|けど|し|ものの)、|(?:ており|であり|[えけげせてねべめれっ]て)、|一方|ものの"
    r"|(?:た|る|い|な)(?:ため|ので)、(?!わか|分か|不明|お?答え|回答|判断)"
)
