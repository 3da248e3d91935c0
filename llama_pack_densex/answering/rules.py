"""Rules that turn a message of a conversation into a query, without an LLM or before one is asked.

Greetings, thanks, "summarise that" and messages without content are not questions. A question that lacks a
subject gets the subject of the messages before it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from llama_index.core.llms import ChatMessage, MessageRole

from llama_pack_densex.answering.phrases import (
    GREETING,
    OWN_WORDS,
    REWRITTEN,
    THANKS,
    VAGUE,
    in_language,
)
from llama_pack_densex.retrieval.search import FollowUp
from llama_pack_densex.text.language import question_language
from llama_pack_densex.text.tokens import content_words, has_words, tokenize

Kind = Literal["question", "conversation", "small_talk", "vague"]

SHORT = 80
"""Maximum characters of a message that may not be a question: a longer one has content."""
_MESSAGES_SEARCHED = 20  # for a subject
_QUESTIONS_OF_CONTEXT = 3  # with all of them, the right passage comes first less often
_CONTEXT_CHARACTERS = 300  # the words of a long message would outweigh those of the newest
_SUBJECT_CHARACTERS = 80
_MESSAGE_CHARACTERS = 1_000  # longer messages are shortened


@dataclass(frozen=True)
class Query:
    """A stand-alone query made from a message of a conversation.

    Args:
        kind: "question"; "conversation" if the message is about the conversation ("summarise that");
            "small_talk" or "vague", which `reply` answers.
        sentence: The question as a stand-alone sentence, for dense search and for the LLM that answers; the
            message itself if it is not a question.
        terms: The search terms of the question, for keyword search.
        context: The search terms of the questions before it; in keyword search they count less.
        reply: The fixed reply to small talk and vague messages; empty otherwise.
        rewritten: The query of an LLM that names another subject than the message; it is searched for too.
    """

    kind: Kind
    sentence: str
    terms: str = ""
    context: str = ""
    reply: str = ""
    rewritten: str = ""

    def as_bundle(self) -> FollowUp:
        """Return the query as retrievers take it."""
        sentences = [*filter(None, [self.sentence, self.rewritten])]
        return FollowUp(self.terms, custom_embedding_strs=sentences, context=self.context)

    def as_asked(self, message: str) -> str:
        """Return the query as the LLM that answers reads it: together with the user's own message."""
        lines = [self.sentence]
        if self.rewritten:
            lines.append(in_language(REWRITTEN, message) + self.rewritten)
        if " ".join(message.split()) not in self.sentence:
            lines.append(in_language(OWN_WORDS, message) + message)
        return "\n".join(lines)


def by_rules(message: str, history: Sequence[ChatMessage] = ()) -> Query:
    """Return the query for a message by the first rule that applies; earlier messages provide a missing
    subject, and the context."""
    newest = _Message(message, history)
    for rule in (_small_talk, _about_conversation, _vague):
        query = rule(newest)
        if query:
            return query
    return _question(newest)


class _Message:
    """The newest message of a conversation, with the properties that the rules use."""

    def __init__(self, message: str, history: Sequence[ChatMessage]) -> None:
        self.text = " ".join(message.split())
        self.short = ""
        if len(self.text) <= SHORT:
            self.short = unicodedata.normalize("NFKC", self.text)
        self.history = history

    @cached_property
    def is_empty(self) -> bool:
        """Whether the message has no content of its own, as "And when?" and "Tell me more"."""
        rest = _PARTICLE_JA.sub(" ", _EMPTY_JA.sub(" ", _FILLER.sub("", self.text)))
        return _EMPTY.issuperset(tokenize(rest))

    @cached_property
    def subject(self) -> str:
        """The subject of the earlier messages; for "And when?", the whole previous question."""
        subject = next(filter(None, map(_subject, self._questions)), "")
        if not (subject and self.is_empty and _ASKS_FOR.search(self.text)):
            return subject
        previous = search_terms(self._questions[0]).rstrip("?!.？。 ")
        if _subject(self._questions[0]):
            return previous
        return f"{subject} {previous}"

    @property
    def context(self) -> str:
        """The search terms of the user's latest questions."""
        terms = map(search_terms, self._questions[:_QUESTIONS_OF_CONTEXT])
        return " ".join(terms)[:_CONTEXT_CHARACTERS]

    @cached_property
    def _questions(self) -> list[str]:
        """The user's earlier questions, the newest first."""
        turns = reversed(self.history[-_MESSAGES_SEARCHED:])
        texts = [
            shortened(str(turn.content or "")) for turn in turns if turn.role == MessageRole.USER
        ]
        return [text for text in texts if by_rules(text).kind == "question"]


def _small_talk(message: _Message) -> Query | None:
    parts = map(str.strip, _PHRASE_END.split(message.short))
    phrases = [part for part in parts if not _INTERJECTION.fullmatch(part)]
    thanks = [phrase for phrase in phrases if not _GREETING.fullmatch(phrase)]
    if not phrases or not all(map(_THANKS.fullmatch, thanks)):
        return None
    reply = in_language(THANKS if thanks else GREETING, message.text)
    return Query("small_talk", message.text, reply=reply)


def _about_conversation(message: _Message) -> Query | None:
    if message.history and _ABOUT_CONVERSATION.fullmatch(message.short):
        return Query("conversation", message.text)
    return None


def _vague(message: _Message) -> Query | None:
    text = message.text
    lacks_sense = message.is_empty and not (message.subject and has_words(text))
    if lacks_sense or _ABOUT_CONVERSATION.fullmatch(message.short):
        return Query("vague", text, reply=in_language(VAGUE, text))
    return None


def _question(message: _Message) -> Query:
    terms = search_terms(message.text)
    sentence = terms
    if message.subject and (message.is_empty or _lacks_subject(message.text)):
        sentence = f"{message.subject}: {message.text}"
    if message.is_empty or _refers(message.text):
        terms = sentence
    return Query("question", sentence, terms, message.context)


def shortened(text: str) -> str:
    text = " ".join(text.split())
    if len(text) <= _MESSAGE_CHARACTERS:
        return text
    return f"{text[:_MESSAGE_CHARACTERS]}…"


def search_terms(text: str) -> str:
    """Return a question without politeness and filler."""
    return _FILLER.sub("", text).strip() or text


def _refers(text: str) -> bool:
    """Return whether a text has a pronoun, which stands for the subject."""
    pronoun = _REFERS_JA if question_language(text) == "ja" else _REFERS
    return bool(pronoun.search(text))


def _lacks_subject(text: str) -> bool:
    if _refers(text):
        return True
    if question_language(text) == "ja":
        return not (_topics(text) or _WHAT_IS_JA.fullmatch(text))
    if _named(text) or _WHAT_IS.fullmatch(text) or _ABOUT.match(text):
        return False
    return bool(_GOES_ON.match(text)) or len(content_words(text) - _EMPTY) <= 2


def _subject(text: str) -> str:
    """Return the names in a question, in order; empty if the question lacks a subject of its own."""
    if _lacks_subject(text):
        return ""
    named = _topics(text) if question_language(text) == "ja" else _named(text)
    subject = " ".join(named) or search_terms(text).rstrip("?!. ")
    return subject[:_SUBJECT_CHARACTERS]


def _named(text: str) -> list[str]:
    """Return the names in an English text that may be its subject: no numbers and no question words."""
    first = [name for name in _FIRST_NAME.findall(text) if {*tokenize(name)} - _EMPTY]
    return [name for name in dict.fromkeys([*first, *_NAME.findall(text)]) if not name[0].isdigit()]


def _topics(text: str) -> list[str]:
    """Return the topics of a Japanese text: words marked by a particle, or a text that is a name.

    Topics are names, words in kanji or katakana, and a first word in hiragana. Attributes that anything may
    have (a length, a cost, a year) are not topics.
    """
    plain = unicodedata.normalize("NFKC", text)
    marked = dict.fromkeys(_TOPIC_JA.findall(plain))
    topics = [*_FIRST_TOPIC_JA.findall(plain), *filter(_NAME_JA.search, marked)]
    return [topic for topic in topics if not all(map(_NO_TOPIC_JA.fullmatch, topic.split("と")))]


def names_in(text: str) -> set[str]:
    named = _topics(text) if question_language(text) == "ja" else _NAME.findall(text)
    return {token for name in named for token in content_words(name)}


# These patterns are applied to short messages only (`SHORT`).
_PHRASE_END = re.compile(r"[^\w'’?？ ]+")
_INTERJECTION = re.compile(r"(?:no|yes|oh|ah|well|はい|うん|いえ|いいえ|ああ|あ)?", re.IGNORECASE)
_GREETING = re.compile(
    r"""(?:hi|hello|hey|greetings|good\ (?:morning|afternoon|evening))(?:\ (?:there|everyone|all))?
    | こんにち[はわ] | こんばん[はわ] | おはよう(?:ございます)? | (?:はじめ|初め)まして | やあ""",
    re.IGNORECASE | re.VERBOSE,
)
_THANKS = re.compile(
    r"""(?:  # thanks, and what for
    (?:(?:no|oh|ok(?:ay)?|great|perfect|many|much)\ ){0,2}
    (?:thanks?|thank\ you|thx|ty|cheers|appreciated|i\ (?:really\ )?appreciate)\b
    (?!.*\b(?:wh(?:at|en|ere|o|y|ich)|how|tell|show|explain|give|list|now|and|but|also)\b)[\w'’ ]{0,50}
    # what somebody says who has read the answer
    | (?:(?:that|this|it)(?:['’]s|\ is|\ was|\ sounds|\ looks)\ )?(?:(?:very|really|exactly|just|so|all)\ )?
      (?:great|perfect|nice|awesome|cool|excellent|wonderful|brilliant|amazing|helpful|useful|clear|fine|right|enough
      |good(?:\ to\ know)?|(?:all|what)\ i\ (?:need(?:ed)?|wanted)(?:\ to\ know)?)
    | (?:that|this)(?:['’]s|\ is|\ was|\ will\ be)\ (?:it|all)(?:\ for\ (?:now|today))?
    | wow | ok(?:ay)? | got\ it | i\ (?:see|understand) | understood | all\ right | alright | will\ do
    | (?:that\ )?makes\ sense | sounds\ good | (?:that|this)\ help(?:s|ed)(?:\ a\ lot)?
    | no\ (?:problem|worries|more\ questions) | never\ ?mind | nothing\ else
    # a goodbye
    | (?:good\ ?)?bye(?:\ bye)? | good\ night | see\ (?:you|ya)(?:\ (?:later|soon|tomorrow|around))?
      | take\ care
    | have\ a\ (?:nice|good|great|lovely)\ (?:day|one|evening|weekend)
    # the same in Japanese
    | (?!.*(?:ください|下さい|いくら|いつ(?!も)|どこ|誰|何))[\w ]{0,20}
      (?:(?:ありがと|有難|有り難)う?(?:ございま(?:す|した))?|感謝(?:です|します|いたします)?
      | 助か(?:ります|りました|った))
    | どうも | サンキュー | (?:参考|勉強)になり(?:ます|ました) | 安心しました
      | よかった(?:です)? | 解決しました
    | (?:了解|承知|納得|理解|把握)(?:です|しました|いたしました|できました)? | りょうかい(?:です)?
    | (?:よく)?(?:わか|分か)(?:りました|った) | なるほど | さすが(?:です)? | すごい(?:です)?ね?
      | へえ | へー | やっぱり
    | (?:素晴|すば)らしい(?:です)? | 完璧(?:です)? | いい(?:です)?ね | (?:そう)?(?:だ|です)よね
      | そっか | そうか
    | そう(?:です|なんです)[かね] | お?(?:ok|オーケー|オッケー)(?:です)?
      | (?:もう)?(?:大丈夫|十分|結構)です | 以上です
    | (?:もう|ほかには|他には|特に)(?:ありません|ないです) | さよ(?:う)?なら | バイバイ | じゃあ?ね
    | また(?:ね|今度|来ます|聞きます) | 失礼(?:します|しました) | おやすみ(?:なさい)?
    | お疲れ(?:様|さま)?(?:です|でした)? | よろしくお?願い(?:いた)?します
    )[ねよー～]*""",
    re.IGNORECASE | re.VERBOSE,
)
_ABOUT_CONVERSATION = re.compile(
    r"""(?:(?:please|now|can\ you|could\ you|would\ you)\ )*
    (?:(?:summari[sz]e|recap|sum\ up|translate|shorten|rephrase|rewrite|repeat|simplify|say|put)
       (?:\ (?:(?:all|everything|both)(?:\ of)?(?:\ (?:that|this|it|these|those))?
      | that|this|it|what(?=\ (?:we|you))
         |(?:all\ (?:of\ )?)?(?:that|this|your|the|our)\ (?:(?:last|whole|entire)\ )?
          (?:answers?|repl(?:y|ies)|above|conversation|chat)))?
       (?:\ (?:so\ far|above|until\ now
      | (?:we|you)\ (?:have\ )?(?:discussed|talked\ about|said)(?:\ so\ far)?))?
       (?:\ again)? (?:\ (?:in|into|to|as|for)\ (?!wh(?:at|ich|om|ose|ere)\b|how\b)[\w ]{1,30})?
    | what\ (?:have|did)\ (?:we|you|i)\ (?:discuss(?:ed)?|talk(?:ed)?\ about
      | say|said|ask(?:ed)?)(?:\ so\ far)?
    | in\ (?:english|japanese|one\ sentence|short|other\ words|bullet\ points)
    | make\ (?:it|that)\ (?:shorter|simpler|longer) | (?:give\ me|write)\ a\ (?:short\ )?summary)
    (?:,?\ please)?[?.!\s]*
    | (?:(?:それ|これ|今|いま|上|上記|先ほど|さっき|ここまで|これまで|今まで|いままで)の?|その|この)?
      (?:話|会話|答え|回答|内容|説明|文章|返答|やり取り|やりとり)?[をは]?(?:全部|全体|全て|すべて)?[をは]?
      (?:もっと|もう少し|一言で|[一-鿿ァ-ヺー]{1,5}語[にで]|短く|簡単に|簡潔に|わかりやすく|要点を|箇条書き[にで]|\d+[文行]で)*
      (?:要約|まとめ|翻訳|訳|短く|箇条書きに|言い換え|書き換え|繰り返|言い直|説明し直)[しえ]?て?(?:くだ|下)?
      (?:さい|くれますか|もらえますか|ほしい|お願いします)?[。？?！!\s]*""",
    re.IGNORECASE | re.VERBOSE,
)

_FILLER = re.compile(
    r"""^(?:(?:please|can\ you|could\ you|would\ you|i\ want\ to\ know|i(?:'d|\ would)\ like\ to\ know
           |tell\ me|explain
           |describe|do\ you\ know)(?:\ to\ me)?(?:\ about)?,?\ )+
    | ,?\ please(?=[?.!\s]*$)
    | (?:(?:について|に関して)[、\s]*|(?<![、\s])[、\s]*)
      (?:もっと|もう少し)?(?:詳しく|簡単に)?(?:(?:教えて|説明して|聞かせて)(?:くだ|下)?
      (?:さい|くれますか|いただけますか|もらえますか|ほしい(?:です)?)?|知りたい(?:です|のですが)?)[。？?！!\s]*$""",
    re.IGNORECASE | re.VERBOSE,
)
_WHAT_IS = re.compile(
    r"(?:what(?:'s| is| are)|who(?:'s| is)) ((?:(?!\b(?:of|in|for|that|which|at|on)\b|'s).){1,50}?)[?.\s]*",
    re.IGNORECASE,
)
_WHAT_IS_JA = re.compile(
    r"(.{1,30}?)(?:とは(?:何|なん|なに)?|って(?:何|なん|なに|誰))(?:です|でしょう)?か?[？?。\s]*"
)
_EMPTY = frozenset(
    tokenize(
        "tell more explain help detail details info information question know want something anything thing "
        "continue go elaborate else example ask show give describe answer"
    )
).union(("how", "more", "what", "when", "where", "why"))  # in capitals too; WHO is a name
_EMPTY_JA = re.compile(
    r"""(?:教え|おしえ|助け|たすけ|続け|つづけ|聞かせ|見せ)(?:て|る)?|(?:説明|せつめい)?(?:して|する)
    |くださ[いる]?|下さ[いる]?|お願い|おねがい|ほし[いく]?|詳し[いく]?|くわし[いく]?|知りた[いく]?|しりた[いく]?|たい
    |もっと|もう|少し|すこし|ちょっと|一度|いちど|何か|なにか|質問|説明|例えば|たとえば|つまり|それで|について|(?:ほか|他)[にの]?
    |なぜ|なん|なに|どう(?:して|やって|いう)?|いつ|どこ|だれ|どれ|どの|どんな|どちら|どっち|いくら|いくつ
    |[そこあ](?:れ|の|こ|んな|ちら|っち)|そう|こと|もの|です|ます|ません|でした|ました|でしょう|ある|あり|いる|ない
    |よく|わか[るらり]|はい|いいえ|うん|ほんとう?|から|まで|より|には|では|とは|のは|のが|のを|なの|のか|かな|よね""",
    re.VERBOSE,
)
_PARTICLE_JA = re.compile(r"(?<![ぁ-ん])[ぁ-ん](?![ぁ-ん])")
_REFERS = re.compile(
    r"""\b(?-i:(?!IT\b))(?:it|its|he|him|his|she|her|hers|they|them|their
        |(?:that|this)\ one|the\ former|the\ latter|there|those
        |these)\b
    | \b(?:that|this)(?=[?.!]*$)""",
    re.IGNORECASE | re.VERBOSE,
)
_GOES_ON = re.compile(r"(?:and|but|also|so|what about|how about)\b", re.IGNORECASE)
_ABOUT = re.compile(
    r"(?:please )?(?:tell me|explain|describe)\b(?: to me)?(?: about)?", re.IGNORECASE
)
_ASKS_FOR = re.compile(
    r"\b(?:when|where|why|who|whom|how|which)\b|いつ|どこ|誰|だれ|なぜ|どうして|どうやって|いくら|どれ",
    re.IGNORECASE,
)
_NO_TOPIC_JA = re.compile(
    r"(?:いつ|誰|だれ|何|どこ|どの|なぜ)\w*|なに|なん|どれ|いくら|いくつ|どう|どちら"
    r"|\w*[^\Wぁ-ん][ぁ-ん]{0,4}[ただるない]の?"  # a verb, as in "開業したのは"
    r"|[全総最水標]?[長高深広幅重大速][さ度]?|.{0,3}[費料額量率価日年]|総?[数面]積?|値段|価格|建設|工事|開業|完成|場所|位置|名前|名称|理由"
    r"|原因|結果|結論|目的|特徴|歴史|人口|種類|役割|意味|期間|時間|時期|時代|今|次|前|後|料金|代金|住所|所在地|連絡先"
    r"|電話番号|(?:担当|責任|代表|創業|設立|築城|設計|開発|発明|作|著)者|担当|社長|会長|代表|期限|締め?切り?|日程|時刻|方法|手順|手続き?"
    r"|条件|対象|人数|定員|本社|本店|首都|出身地?|経歴|年齢|身長|体重|最寄り?駅|効果|影響|副作用|利点|欠点|課題|対策|背景|経緯|概要|詳細"
    r"|内容|構造|仕組み|機能|性能|仕様|材料|成分|由来|語源|別名|売上高?|利益|業績|アクセス|サイズ|メリット|デメリット"
    r"|(?:令和|平成|昭和|第)?[\d元]+(?:[年月日期回]|年度|四半期)?|[去昨今来翌先本前][年月週期日]度?|[上下]半?期"
    r"|[ぁ-ん]+(?:さ|かた|の|とき)|ねだん|ひよう|ばしょ|なまえ|りゆう|げんいん|けっか|もくてき|とくちょう|れきし|しゅるい|いみ|きかん|じかん"
    r"|ちがい|きっかけ|いま|きょう|むかし|さいきん|さいしょ|さいご|つぎ|まえ|あと|ほか|ふつう|ほんとう?"
)
_REFERS_JA = re.compile(
    r"それ|これ|その|(?<![どの])この|そこ|ここ|あれ|あの|彼女|彼ら|彼[のはがをにも]|同[社氏年校国市書館駅町村島山川寺城店]|当時"
)
_TOPIC_JA = re.compile(r"([\w々ー・]{1,40}?)(?:とは|って|について|には|では|は|[がもの](?!\W*\Z))")
_FIRST_TOPIC_JA = re.compile(
    r"\A(?:では|じゃあ?|それなら)?[、\s]*([ぁ-ん]{2,12}?(?=(?:とは|って|は)(?!じめ))|[^\Wぁ-ん]{2,40}(?=\s|\W*\Z))"
)
_NAME = re.compile(r"(?<=[\w,;:'’)] )(?!I\b)[A-Z][\w'’-]*|\b\d[\d,.]*\b|\b[A-Z]{2,}\b")
_FIRST_NAME = re.compile(r"\A[A-Z][\w'’-]*(?= [A-Z])")
_NAME_JA = re.compile(r"[ァ-ヺー]{2,}|[々一-鿿]{2,}|[A-Za-z][\w-]+|\d+")
