"""The tokens of a text for keyword search, and the forms in which texts are compared. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from math import ceil
from typing import Any

Split = Callable[[str], Sequence[str]]
"""From a text to its tokens."""

HAN = "々〆〇ヶ㐀-䶿一-鿿\uf900-\ufaff\U00020000-\U0003ffff"
KATAKANA = "ァ-ヺー-ヿㇰ-ㇿ"

# A character class for regular expressions: Han with its iteration marks, kana with the prolonged sound
# mark, Hangul; scripts that do not separate words by spaces, or not from their particles.
CJK = f"{HAN}ぁ-ゖゝ-ゟ{KATAKANA}가-힣"
_UNSPACED = f"{HAN}ぁ-ゖゝ-ゟ{KATAKANA}"
# Thai, Lao, Burmese and Khmer letters and marks: these scripts put spaces between phrases, not words.
_PHRASED = "\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1050-\u108f\u1780-\u17d3"
_INDIC = map(chr, range(0x900, 0x1C00))
# mostly vowel signs
_MARKS = "".join(letter for letter in _INDIC if unicodedata.category(letter)[0] == "M")
_WITH_MARKS = re.compile(f".[{_MARKS}]*", re.DOTALL)
# A line break within Chinese or Japanese text, after a line of at least 16 characters: shorter lines, as in
# a list, are words of their own.
_WRAP = re.compile(rf"(?<=[^\n]{{15}}[{_UNSPACED}])[^\S\n]*\n[^\S\n]*(?=[{_UNSPACED}])")
_WIDE = r"[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]"
_BREAK_IN_WIDE_TEXT = re.compile(rf"(?<={_WIDE})[ \t]*[\r\n]\s*(?={_WIDE})")
_SPACE = re.compile(r"[ \t\r\n\f\v\xa0]+")
# Soft hyphens and zero-width spaces, as in web pages and text copied from them; joiners; the stroke that
# lengthens Arabic words.
_INVISIBLE = re.compile("[\u00ad\u0640\u200b\u200d\u2060\ufeff]")
_OLD = (  # kanji of before 1946, each followed by its modern form
    "乘乗亂乱亙亘亞亜佛仏來来假仮傳伝僞偽價価儉倹兒児兩両册冊冱冴凛凜刄刃剩剰劍剣劑剤勞労勳勲勵励勸勧區区卷巻"
    "參参"
    "單単嚴厳囑嘱囘回圈圏國国圍囲圓円圖図團団堯尭墮堕壓圧壘塁壞壊壤壌壯壮壹壱壻婿壽寿奧奥奬奨姙妊孃嬢學学寢寝"
    "實実"
    "寫写寶宝將将專専對対屆届屬属峽峡嶽岳巖巌帶帯廢廃廣広廳庁彈弾彌弥徑径從従恆恒惠恵惡悪惱悩愼慎慘惨應応懷懐"
    "戀恋"
    "戰戦戲戯拂払拔抜拜拝挾挟插挿搖揺搜捜擇択擔担據拠擧挙擴拡攜携攝摂收収效効敍叙敕勅數数斷断晉晋晝昼曉暁曾曽"
    "會会"
    "條条棧桟榮栄槇槙樂楽樓楼樞枢樣様檢検櫻桜權権歐欧歡歓歸帰殘残殼殻毆殴氣気沒没淨浄淺浅溪渓滯滞滿満潛潜澁渋"
    "澤沢"
    "濕湿濟済濱浜濵浜瀧滝灣湾燈灯燒焼營営爐炉爭争爲為犧犠狹狭獨独獵猟獸獣獻献瑤瑶瓣弁畫画當当疊畳癡痴發発盜盗"
    "盡尽"
    "眞真碎砕祕秘祿禄禪禅禮礼禰祢稱称稻稲穗穂穩穏穰穣竊窃竝並粹粋糺糾絲糸經経縣県縱縦總総繩縄繪絵繼継續続纖繊"
    "缺欠"
    "罐缶聰聡聲声聽聴肅粛腦脳膽胆臟臓臺台與与舊旧舍舎舖舗艷艶莊荘莖茎萠萌萬万藏蔵藝芸藥薬處処號号螢蛍蟲虫蠶蚕"
    "蠻蛮"
    "衞衛裝装襃褒覺覚覽覧觀観觸触謠謡證証譯訳譽誉讀読變変讓譲豐豊貳弐賣売贊賛踐践輕軽轉転辨弁辭辞辯弁遙遥遞逓"
    "遲遅"
    "邉辺邊辺鄰隣醉酔醫医釀醸釋釈錢銭鎭鎮鐵鉄鑄鋳鑛鉱關関陷陥隨随險険隱隠隸隷雙双雜雑霸覇靈霊靜静顏顔顯顕飮飲"
    "餘余餠餅騷騒驅駆驗験驛駅髓髄體体髙高髮髪鬪闘鷄鶏鹽塩麥麦黏粘默黙點点黨党齊斉齋斎齒歯齡齢龍竜龜亀﨑崎"
)
# Latin and Greek letters with diacritics, Hebrew and Arabic vowel signs, forms of the Arabic alef, digits of
# other scripts, old kanji.
_VARIANT = re.compile(
    "[ß-ɏḀ-ỿ\u0300-\u036fͰ-Ͽἀ-῿ё\u0591-\u05bd\u05bf-\u05c7\u0622\u0623\u0625\u064b-\u065f\u0670"
    f"\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u09e6-\u09ef\u0e50-\u0e59{_OLD[::2]}]"
)
_USUAL = dict(
    zip(_OLD[::2] + "øłđðħŧıæœþ", [*_OLD[1::2], *"olddhti", "ae", "oe", "th"], strict=True)
)
_NAME_MARK = "\ue001"  # follows a stop word that is a name where it stands
# What people type in place of the hyphen of a code.
_CODE_DASH = re.compile("(?<=[a-z0-9])[\u2010-\u2015\u2212ー](?=[a-z0-9])")
_DOTTED = r"(?<![a-z0-9.@])[a-z](?:\.[a-z])+(?![a-z0-9@])"  # e.g.
_SIGNED_LETTER = r"(?<![a-z0-9*+#])[a-z](?:\+\+(?![a-z])|(?:\+|#|\*)(?![a-z0-9*+#]))"  # C++, C#, A*
_LETTER_PAIR = r"(?<![a-z0-9/])[a-z]/[a-z](?![a-z0-9/+#*])"  # I/O
_CHAIN = (
    r"(?:(?<![a-z0-9._])\.(?=[a-z])|(?<![a-z0-9])[@#]|[$€£¥§])?"
    r"[a-z0-9]+(?:(?:[-_.&]|/(?=\d)|(?<=\d):(?=\d))[a-z0-9]+)*"
    r"(?:(?:\+\+?|#|(?<=\d) ?%)(?![a-z0-9]))?"
)
_TOKEN = re.compile(
    rf"[{CJK}]+|[{_PHRASED}]+|(?<=[a-z0-9])['’](?:s|d|m|t|ll|re|ve)(?![a-z0-9])"
    rf"|{_DOTTED}|{_SIGNED_LETTER}|{_LETTER_PAIR}|{_CHAIN}(?![^\W_{CJK}{_PHRASED}])(?:{_NAME_MARK})?"
    rf"|[^\W_{CJK}{_PHRASED}]+(?:[{_MARKS}]+[^\W_{CJK}{_PHRASED}]*)*"
)
FORM_SHARE = 0.6
"""How much another form of a word counts, as a share of the word itself."""
# letters that a word and another form of it begin with, at least, and as a share of the shorter one; a word
# of fewer letters is the beginning of the other one
_LEAST_SHARED = 5
_SHARED_BEGINNING = 0.7
_LEAST_BEGINNING = 4  # of the letters of a word that may have other forms
_LONGEST_ENDING = 4  # letters that one of them is longer
_WRITTEN_OUT = re.compile("(?<=[aou])e")  # an umlaut
_ANY_WORD = re.compile(rf"[^\W\d_]+(?:[{_MARKS}]+[^\W\d_]*)*")
_HIRAGANA = re.compile("[ぁ-ゖゝ-ゟ]")
IS_CJK = re.compile(f"[{CJK}]")
_IS_PAIRED = re.compile(f"[{CJK}{_PHRASED}]")
# The prolonged sound mark also occurs in hiragana words, so it never begins a katakana word. Longer runs of
# Han are Chinese clauses.
_WORD = re.compile(
    f"(?!ー)[{KATAKANA}]+|(?<![{HAN}])[{HAN}]{{1,8}}(?![{HAN}])",
)
# A pattern for the dot leaders before the numbers in a table of contents or a price list.
LEADER = r"(?:[.．…‥・·] ?){5}[ \t]*"
_ENTRY = re.compile(
    rf"(?m)^[ \t]*(?:\d|[A-Z]\.\d|第|Chapter|Appendix|付録|附录)"
    rf".*?{LEADER}(?:(\d{{1,4}})|[ivxlc]{{1,7}})[ \t\r]*$"
)
_DIGIT_GROUPS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# the year before the first year of each era
ERAS = {"明治": 1867, "大正": 1911, "昭和": 1925, "平成": 1988, "令和": 2018}
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_MONTH_NUMBERS = {month[:3].lower(): number for number, month in enumerate(MONTHS, 1)}
_MONTH = "|".join(["sept", *(f"{month[:3]}(?:{month[3:]})?".lower() for month in MONTHS)])
_DATE = re.compile(
    rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{_MONTH})\.?,? (?P<year>\d{{4}})\b"
    rf"|\b(?P<month_first>{_MONTH})\.? (?P<day_after>\d{{1,2}})(?:st|nd|rd|th)?,? "
    r"(?P<year_after>\d{4})\b"
    rf"|(?P<era>{'|'.join(ERAS)})?(?P<year_first>\d{{1,4}}|元) ?"
    rf"(?:年|(?<=\d{{4}})/) ?(?P<month_number>\d{{1,2}}) ?[月/] ?"
    rf"(?P<day_last>\d{{1,2}}) ?(?:日|(?![\w/-]))"
)
_FUNCTION_WORDS = """
a about above after again against ain all am an and any are aren aren't as at be because been before
being below between both but by can couldn couldn't d did didn didn't do does doesn doesn't doing
don don't down during each few for from further had hadn hadn't has hasn hasn't have haven haven't
having he her here hers herself him himself his how i if in into is isn isn't it it's its itself
just ll m ma me mightn mightn't more most mustn mustn't my myself needn needn't no nor not now o of
off on once only or other our ours ourselves out over own re s same shan shan't she she's should
should've shouldn shouldn't so some such t than that that'll the their theirs them themselves then
there these they this those through to too under until up ve very was wasn wasn't we were weren
weren't what when where which while who whom why will with won won't wouldn wouldn't y you you'd
you'll you're you've your yours yourself yourselves
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())  # of English, NLTK's list
# By language; Chinese, Korean and Japanese ones are those that questions are asked with.
_OF_OTHER_LANGUAGES = """
de aber als am an auch auf aus bei bin bis da damit das dass dein dem den der des die dies diese diesem
diesen dieser dieses du durch ein eine einem einen einer eines er es für gegen gibt habe haben hat ich
ihm ihn ihnen ihr ihre im in ist jede jeder jedes kann kein keine können man mein meine meinem meinen
meiner mich mir mit muss müssen nach nicht noch nur ob oder ohne sehr sein seine sich sie sind so soll
um und uns unser unter viel viele vom von vor wann war warum was welche welchem welchen welcher welches
wem wen wenn wer werd werden wie wieviel wird wo wurde wurden zu zum zur zwischen

fr à a au aux avec c ce ces cet cette chaque combien comment dans de des doit dois donc du elle elles en
est et eu faire fait faut il ils j je l la le les leur leurs lui mais me mes moi mon ne nos notre nous
on ont où par pas peut peux plus pour pourquoi puis qu quand que quel quelle quelles quels qui quoi sa
sans se ses si son sont sur te ton tous tout toute toutes tu un une vos votre vous ai avez avons être

es a de en la los no un al algo como cómo con cual cuál cuáles cuando cuándo cuanto cuánto cuánta
cuántos cuántas debe debo del desde donde dónde el él ella ellos entre era esa ese eso esta está están
estas este esto estos fue ha hace hacer han hasta hay las lo mas más mi mis muy nos nuestra nuestro otra
otro para pero por porque puede pueden puedo qué quien quién ser sí sin sobre su sus también te tengo
tiene tienen tus una uno unos y ya yo

it a da di con in la le per un ad agli ai alla alle allo anche che chi ci come cosa cui dagli dai dal
dalla dalle degli dei della delle dello deve devo dove è ed fa gli hai hanno ho i io lei li loro ma mia
mie miei mio negli nei nel nella nelle noi non ogni perché più può posso possono quale quali quando
quanta quante quanti quanto questa queste questi questo si sia siamo sono sugli sui sul sulla suo tra

pt a de para por ao aos as até com da dela dele do dos e ela eles essa esse eu foi há isso isto já mais
mas meu minha muito na não nas nem no nós num numa o os ou pela pelas pelo pelos pode podem posso quais
quantas quantos quem são sem seu seus só sua têm ter um uma você vocês como que se

nl de en in na aan alle ben bij daar dan dat deze dit door een eens er geen had heb hebben heeft het
hier hij hoe hoeveel ik is jij je kan kunnen kunt maar meer men met mijn moet moeten naar niet nog nu of
om ook onder ons onze op over te tot uit uw van veel voor waar waarom wanneer wat we welk welke werd wie
wij wil worden wordt zal ze zich zijn zonder zou

sv och att det den jag hon han på med var sig för så till är men ett om de av icke när efter upp vi vara
vad kan ska eller mycket hur varför varje vilka vilken vilket

da det den du han med på er kan og jeg ikke af til hvad hvem hvor hvordan hvornår

pl aby albo ale bez bo by był była było były być czy co czego czym dla gdy gdzie go ich ile im jak jaka
jaki jakie jego jej jest jestem już każdy kiedy kto który która które lub mają mam mnie mogę mogą moja
moje mój można może na nad nas nie niż od oraz po pod przed przez przy są się swój także tego tej ten
tych tym we wszystkie z za ze że ve do i o to w

tr bana bazı benim bir biri biz bizim bu bunu bunun çok daha değil diye gibi göre hangi hem hep her için
ile ise kadar kaç ki kim kimin mi mı mu mü nasıl ne neden nerede nereye olan olarak olur onu onun siz
var veya ya yok zaman

vi là của và các những cho có không được nào như trong với bao nhiêu gì ai làm sao bị ở đâu phải sẽ đã
đang nếu thì mà để tôi

ru а без бы был была были было быть в вам вас весь во вот все всё вы где да даже для до его ее её если
есть ещё же за и из или им их к как какая какие какой каком какую когда которая которые который кто куда
ли меня мне мой моя мои можно может могу мы на над надо нас наш не него нет ни но ну о об он она они оно
от по под почему при про с сколько со так такой там те тем то того тоже только том тот ты у уже чего чем
через что чтобы эта эти это этого этой этот я нужно

uk і й та що як який яка які це він вона вони є від із чи коли де хто чому скільки або але

ar في من على إلى عن مع هو هي هم ما ماذا متى أين كيف كم هل لماذا أي التي الذي الذين هذا هذه ذلك تلك أن إن
كان كانت قد لا لم لن أو و ثم كل عند بين حتى إذا يمكن يمكنني لي له لها كما أنا نحن

he של את על עם הוא היא הם הן מה מי מתי איפה היכן איך כיצד כמה האם למה מדוע זה זאת זו אלה אשר כי אם או גם
לא יש אין אני אנחנו אתה כל אל מן בין עד אבל רק ניתן אפשר יכול איזה אילו לי לו שלי

ro a al ale am ar ce care cât cine cu cum de din este fi în la mai nu o pe pentru sau se sunt un unde

fa از است آن آیا این با به برای تا چه چرا چگونه چند چیست در را که کجا کی می من نام و

hi का के की को में से पर है हैं था थे थी हो होता होती होते और या यह ये वह वे इस उस इन उन एक कि जो तो भी
ही नहीं क्या कैसे कब कहाँ कौन कितना कितने कितनी क्यों किस किसने किसी मैं मेरा मेरे मेरी हम आप अपना अपने
अपनी कर करें करना करने करते करता किया जा जाता जाती जाते सकता सकते सकती लिए साथ हर

zh 怎么 怎麼 怎样 怎樣 什么 什麼 如何 多少 几个 幾個 哪里 哪裡 哪些 哪个 哪個 是谁 是誰 是否 为什么
為什麼 可以 能不能

ko 어떻게 하나요 하려면 되나요 인가요 나요 까요 습니까 입니까 무엇 무슨 언제 어디 누가 누구 얼마 얼마나
며칠 몇 왜 있나요 하면 어떤

ja とは何ですか 何でしょうか 何の 何が 何を 何に 何は ますか どのくらいですか どれくらい どのように
どうすれば どうやって どんな どこですか いつですか なぜですか だれですか 誰ですか いくらですか
いくつですか てください
"""
# In English too, and there perhaps the subject: a comment, a van, an OS.
_ENGLISH_TOO = """
die war man hat den bin era con sin come men par pas pour plus ad fa hem ten met door dan ben go pod
till van ya tot ton son mi io ai comment os del im mis per se si ha ho med ob til sa su ed kim mia num
dies c e h j k l n u w z
"""
FUNCTION_WORDS = {
    paragraph[:2]: frozenset(paragraph[2:].split())
    for paragraph in _OF_OTHER_LANGUAGES.strip().split("\n\n")
}
"""The function words of languages other than English, by language."""
_IN_CAPITALS = re.compile(r"\b[A-ZÀ-ÖØ-ÞА-Я]{2,}\b")
_FOREIGN = frozenset[str]().union(*FUNCTION_WORDS.values())
FOREIGN_WORDS = _FOREIGN - {*_ENGLISH_TOO.split()} - STOP_WORDS
"""Those that reveal another language than English."""
_ENGLISH = STOP_WORDS - _FOREIGN
# The endings of contractions ("'d", "'t") are dropped with their apostrophes; elsewhere they are ordinary
# letters: vitamin d, a T cell.
_DROPPED = STOP_WORDS - {"d", "ll", "m", "o", "re", "s", "t", "ve", "y"}

_IN_OTHER_LETTERS = re.compile(r"[a-z0-9]*[^\W_a-z0-9]")
# The languages whose stemmers serve the letters up to each of these; there is none for Hebrew.
_STEMMERS = {
    "\u024f": "english",
    "\u03ff": "greek",
    "\u052f": "russian",
    "\u06ff": "arabic",
    "\u097f": "hindi",
}
_HEBREW_AFFIX = re.compile("^[והבלמשכ](?=.{4})|(?<=.{3})(?:ים|ות|ה|ת|י)$")
_WHOLE = re.compile(rf"{_DOTTED}|{_SIGNED_LETTER}")
_ZEROS = re.compile(r"0+(?=[1-9][0-9a-z]{0,3}\Z)")  # of 042 in E-042, but not in telephone numbers
_CODE_PART = re.compile(r"[a-z]+|\d+[a-z]*")
# of words that are also spelled without the hyphen: Wi-Fi, e-mail, log-in
_SHORT_PART = re.compile(r"\b[a-z]{1,2}-|-[a-z]{1,2}\b")
# 5mm, also written 5 mm; not 1st, 1990s
_QUANTITY = re.compile(r"(\d+)((?!(?:st|nd|rd|th|s)\Z)[a-z]+)")
_TELLING_SIGN = re.compile(r"[^a-z0-9_-]")
# signs that some spellings omit: NodeJS, AX10
_SPELLING_SIGN = re.compile(r"[-_ ]|(?<=[a-z])\.(?=[a-z])")

_LATIN = "A-Za-zＡ-Ｚａ-ｚ"
_LATIN_WORD = re.compile(f"[{_LATIN}]+")
_CAPITALISED = re.compile(f"[A-ZＡ-Ｚ][{_LATIN}]*")
# the context of a longer word, or of a code
_GOES_BEFORE = re.compile(rf"(?:[^\W{CJK}]|['’&]|\d-|[{_LATIN}]\.)\Z")
_GOES_ON = re.compile(rf"[^\W{CJK}]|['’&+#]|-\d|\*(?!\*)")
_MID_SENTENCE = re.compile(rf"[{_LATIN})] \Z")
_NEXT_WORD = re.compile(rf" ?[{_LATIN}]")
_NUMBERED = re.compile(r"\w [A-Z][a-z]{2,} \Z")  # of World War I
# Where grammar allows no other reading: a pronoun or verb after an article, an article that precedes
# nothing.
_NAME_BY_GRAMMAR = re.compile(
    r"\b(?:the|an?|our|your) (?:it|who|am|is|be|or|do|me|we|he|she)(?![\w'’-])"
    r"|\b[a-z]{3,} a(?=\s*[?.,;:!)]|\s*\Z| (?:is|are|was|in|of|for|and|or|does|to|from|with)\b)"
)


def tokenize(text: str) -> list[str]:
    """Split a text into tokens for BM25.

    Chinese, Japanese, Korean, Thai, Lao, Burmese and Khmer text becomes overlapping pairs of characters,
    which needs no dictionary. Each run of katakana or of Han characters is a token too, so that words and
    names weigh more than the kana between them. (On 741 questions of JSQuAD, pairs alone rank the gold
    passage first for 91.2 %, pairs and words for 92.6 %, the content words of a morphological analyser for
    91.4 %.) Other text becomes words, stemmed as English, Russian, Arabic, Hindi or Greek
    by their script; of Hebrew ones, frequent affixes are removed. Full-width and half-width forms are equal
    (NFKC), and "1,200" is "1200"; accents, optional vowel signs and old forms of kanji are ignored.

    English stop words are dropped, except those written as names (WHO, Vitamin A, the IT department);
    otherwise case is ignored. Parts joined by signs (AX-10, R&D, Node.js, 24/7, 50%) are tokens, and so is
    the whole, spelled without hyphens: AX-10 and AX10 give the same tokens, as do e-mail and email,
    get_status and getStatus; 5mm also gives those of 5 mm. A letter with its signs (C++, C#) is one token.

    Args:
        text: Any text.

    Returns:
        The tokens, with repetitions.
    """
    tokens: list[str] = []
    for run in _runs(text):
        if _IS_PAIRED.match(run):
            tokens += _pairs(run)
        elif run[-1] == _NAME_MARK:
            tokens.append(run[:-1])
        elif run.isalpha() or _IN_OTHER_LETTERS.match(run):
            if run not in _DROPPED:
                tokens.append(_stem(run))
        elif run[0] not in "'’":
            tokens += _code_tokens(run)
    return tokens


def _runs(text: str) -> list[str]:
    """Return the runs of a text in order: characters to be paired (see `tokenize`), words, and codes.

    They are normalised: NFKC, case folded, digits ungrouped.
    """
    plain = _DATE.sub(_dated, normal(_with_names_marked(unwrapped(text))))
    return _TOKEN.findall(_CODE_DASH.sub("-", plain))


def _dated(date: re.Match[str]) -> str:
    """Return a date followed by the token that it would give as 2024-05-01."""
    day = date["day"] or date["day_after"] or date["day_last"]
    name = date["month"] or date["month_first"]
    month = _MONTH_NUMBERS[name[:3]] if name else int(date["month_number"])
    year = date["year"] or date["year_after"] or date["year_first"]
    of_era = 1 if year == "元" else int(year)
    return f"{date[0]} {ERAS.get(date['era'], 0) + of_era:04}{month:02}{int(day):02} "


def _pairs(run: str) -> list[str]:
    """Return the pairs of characters of a run, each with its vowel signs, and the words in it."""
    characters = _WITH_MARKS.findall(run)
    if len(characters) == 1:
        return [run]
    return [*map("".join, pairwise(characters)), *_WORD.findall(run)]


def _code_tokens(run: str) -> list[str]:
    """Return the parts of a run that signs or digits join, and the whole unless it is long words joined by
    hyphens: Wi-Fi is wifi, get_status is getStatus.

    Short numbers are also returned without leading zeros: E42 finds E-042.
    """
    if _WHOLE.fullmatch(run):
        return [_stem(run.replace(".", ""))]
    parts = _CODE_PART.findall(run)
    tokens = [_stem(part) for part in parts if part not in _DROPPED]
    tokens += [part.lstrip("0") for part in parts if _ZEROS.match(part)]
    if quantity := _QUANTITY.fullmatch(run):
        tokens += [quantity[1], _stem(quantity[2])]
    if _is_one_word(run, parts):
        tokens.append(_stem(_SPELLING_SIGN.sub("", run)))
    return tokens


def _is_one_word(run: str, parts: Sequence[str]) -> bool:
    """Return whether a run is a code, or a word that is also spelled without its signs."""
    is_code = len(parts) > 1 and any(map(str.isdigit, run))
    return is_code or "_" in run or bool(_SHORT_PART.search(run) or _TELLING_SIGN.search(run))


def _with_names_marked(text: str) -> str:
    """Insert a mark after each English stop word that is a name in the text."""
    is_cjk = not text.isascii() and IS_CJK.search(text) is not None
    marked = (_LATIN_WORD if is_cjk else _CAPITALISED).sub(_marked_if_name, text)
    return _NAME_BY_GRAMMAR.sub(rf"\g<0>{_NAME_MARK}", marked)


def _marked_if_name(word: re.Match[str]) -> str:
    plain = word[0] if word[0].isascii() else unicodedata.normalize("NFKC", word[0])
    if plain.lower() not in STOP_WORDS or not _is_name(plain, word.string, *word.span()):
        return word[0]
    return word[0] + _NAME_MARK


def _is_name(word: str, text: str, start: int, end: int) -> bool:
    """Return whether a stop word is a name in its place: by its spelling, or beside Chinese or Japanese."""
    two_before = text[max(0, start - 2) : start]
    if _GOES_BEFORE.search(two_before) or _GOES_ON.match(text, end):
        return False
    if IS_CJK.match(text, end) or IS_CJK.match(two_before[-1:]):
        return True
    if word == "I":
        return _NUMBERED.search(text, max(0, start - 30), start) is not None
    if word.isupper():
        if len(word) == 1:
            return not _NEXT_WORD.match(text, end) or _is_capitalised_name(word, two_before)
        return not _is_in_capitals(text, start)
    return _is_capitalised_name(word, two_before)


def _is_capitalised_name(word: str, two_before: str) -> bool:
    is_capitalised = word[0].isupper() and word not in ("The", "An")
    return is_capitalised and _MID_SENTENCE.search(two_before) is not None


def _is_in_capitals(text: str, place: int) -> bool:
    """Return whether the line or table cell at a place has three or more words, all in capitals."""
    start = max(text.rfind("\n", 0, place), text.rfind("|", 0, place)) + 1
    line = re.split(r"[\n|]", text[start : start + 1_000], maxsplit=1)[0]
    return line.isupper() and not IS_CJK.search(line) and len(line.split()) > 2


def unwrapped(text: str) -> str:
    """Join Chinese or Japanese words that a line break splits, as in plain text and PDF."""
    return _WRAP.sub("", text) if "\n" in text else text


def on_one_line(text: str) -> str:
    """Replace white space with single spaces, and remove line breaks between wide characters, as of
    Japanese.
    """
    return _SPACE.sub(" ", _BREAK_IN_WIDE_TEXT.sub("", text)).strip(" ")


def normal(text: str) -> str:
    """Normalise a text: full-width to half-width (NFKC), case folded, é to e, 國 to 国, "1,200" to
    "1200"."""
    folded = text.lower()
    if not text.isascii():
        normalised = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
        folded = _VARIANT.sub(_usual, normalised.casefold())
    return _DIGIT_GROUPS.sub("", folded) if "," in folded else folded


def _usual(match: re.Match[str]) -> str:
    """Return the modern form of an old kanji, an ASCII digit, or a letter without its diacritics."""
    letter = match[0]
    if letter.isdecimal():
        return str(unicodedata.decimal(letter))
    plain = (
        part for part in unicodedata.normalize("NFD", letter) if not unicodedata.combining(part)
    )
    return _USUAL.get(letter) or "".join(plain)


def compared(text: str) -> str:
    """Return a text in the form in which texts are compared: NFKC, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def contents_of(text: str) -> frozenset[str]:
    """Return the entries of a table of contents: five or more numbered lines whose dots lead to page numbers
    that never decrease.

    In a price list, numbers usually decrease somewhere or are all round. Requiring five lines keeps a short
    list searchable by keywords where neither happens to be so.
    """
    entries = list(_ENTRY.finditer(text))
    pages = [int(entry[1]) for entry in entries if entry[1]]
    lead_to_pages = pages == sorted(pages) and (not pages or any(page % 10 for page in pages))
    if len(entries) < _LEAST_ENTRIES or not lead_to_pages:
        return frozenset()
    return frozenset(entry[0].strip() for entry in entries)


_LEAST_ENTRIES = 5


def content_words(text: str, split: Split = tokenize) -> set[str]:
    """Return the distinct tokens of a question that say what it is about.

    Tokens with hiragana are particles and endings, as English stop words are, and are left out if there are
    others: JSQuAD's questions share 87 % of the rest with their passage, reworded questions 21 % (of all
    tokens 75 % and 21 %). 誰 and 何 are not: only a text with such a word answers the question.
    """
    distinct = set(search_tokens(text, split))
    if _HIRAGANA.search(text):
        distinct = set(split(text))
    return {token for token in distinct if not _HIRAGANA.search(token)} or distinct


def search_tokens(text: str, split: Split = tokenize) -> list[str]:
    """Return the tokens of a question without the function words of its language, unless there are no others.

    Those that questions are asked with are rare in documents, so that BM25 would rank documents with other
    questions first. Words in capitals stay: AI, which is also an Italian preposition.
    """
    tokens = [*split(text)]
    dropped: set[str] = set()
    for language in _languages_of(text):
        dropped |= _function_tokens(language)
    dropped -= {*tokenize(" ".join(_IN_CAPITALS.findall(text)))}
    return [token for token in tokens if token not in dropped] or tokens


def _languages_of(text: str) -> Sequence[str]:
    """Return the languages other than English that a question may be in, as in `FUNCTION_WORDS`."""
    if IS_CJK.search(text):
        return ("zh", "ko", "ja")
    if not is_foreign(text):
        return ()
    counts = count_function_words(text)
    most = max(counts.values())
    return [language for language, count in counts.items() if count == most]


def count_function_words(text: str) -> Counter[str]:
    """Count the function words of each language in a text, as in `FUNCTION_WORDS`."""
    of_text = plain_words(text)
    counts = Counter[str]()
    for language, of_language in FUNCTION_WORDS.items():
        counts[language] = sum(word in of_language for word in of_text)
    return counts


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case; in scripts without spaces, its clauses."""
    return _ANY_WORD.findall(text.lower())


@lru_cache(maxsize=256)  # a question is compared with many texts
def is_foreign(text: str) -> bool:
    """Return whether a text is in another language than English, by its function words and its letters."""
    of_text = plain_words(text)
    foreign = sum(word in FOREIGN_WORDS or not word.isascii() for word in of_text)
    english = sum(word in _ENGLISH for word in of_text)
    return foreign > english or IS_CJK.search(text) is not None


def forms_among(word: str, tokens: Collection[str]) -> list[str]:
    """Return the tokens that may be other forms of a word: they begin alike and have short endings.

    It serves questions in the languages that are stemmed as English: Kündigung finds Kündigungen, but not
    Kündigungsfrist; written with "ue", it finds the same.
    """
    forms: list[str] = []
    for spelling in _spellings(word):
        alike = (token for token in tokens if token.startswith(spelling[:_LEAST_BEGINNING]))
        forms += (token for token in alike if _are_forms(spelling, token))
    return forms


def beginnings_of_forms(word: str) -> set[str]:
    """Return how tokens begin that `forms_among` may choose."""
    return {spelling[:_LEAST_BEGINNING] for spelling in _spellings(word)}


def _spellings(word: str) -> set[str]:
    if len(word) < _LEAST_BEGINNING or not (word.isascii() and word.isalpha()):
        return set()
    return {word, _WRITTEN_OUT.sub("", word)}


def _are_forms(word: str, other: str) -> bool:
    shorter, longer = sorted((len(word), len(other)))
    shared = min(shorter, max(_LEAST_SHARED, ceil(_SHARED_BEGINNING * shorter)))
    return longer - shorter <= _LONGEST_ENDING and word[:shared] == other[:shared]


@cache
def _function_tokens(language: str) -> frozenset[str]:
    return frozenset(tokenize(" ".join(FUNCTION_WORDS[language])))


def strip_surrogates(text: str) -> str:
    """Join surrogate pairs, and replace lone surrogates, which no client or database accepts."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def has_words(text: str) -> bool:
    """Return whether a text has a letter or a digit in any script."""
    return any(map(str.isalnum, text))


def has_letters(text: str) -> bool:
    """Return whether a text has a letter in any script; numbers and signs alone cannot be reworded."""
    return any(map(str.isalpha, text))


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    if "א" <= word[0] <= "ת":
        return _HEBREW_AFFIX.sub("", word)
    language = next((name for last, name in _STEMMERS.items() if word[0] <= last), "english")
    stem: str = _stemmer(language).stemWord(word)
    return stem


@cache
def _stemmer(language: str) -> Any:
    import Stemmer

    return Stemmer.Stemmer(language)


def words(text: str) -> frozenset[str]:
    """Return the words of a list that is separated by white space."""
    return frozenset(text.split())
