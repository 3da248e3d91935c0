"""Decodes the bytes of a file, and detects their encoding."""

from __future__ import annotations

import codecs
import locale
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

from charset_normalizer import from_bytes

from llama_pack_densex.reading.files import UnreadableFileError, by_word
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.text.tokens import words

logger = plain_logger(__name__)

_WHATWG = by_word(
    {  # labels, and the encodings that pages with them are in, as browsers know
        "iso-8859-1 latin1 us-ascii": "cp1252",
        "gb2312 gbk": "gb18030",
        "euc-kr": "cp949",
        "shift_jis shift-jis sjis x-sjis": "cp932",
    }
)
_SAMPLE = 10_000  # bytes by which an encoding is detected
_BINARY = 8192  # bytes that are checked for NUL before a large file is read
# the formats of other office programs, and those of the files that are made of them
_CONVERSIONS = {
    ".doc .odt .rtf .wpd": "docx",
    ".xls .xlsb .ods": "xlsx",
    ".ppt .pps .odp": "pptx",
}
_UNKNOWN = "is text in an unknown encoding: convert it to UTF-8, or leave it out"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BEYOND = re.compile(r"[^\x00-\x7f]")
_KANA = re.compile("[ぁ-ゖァ-ヺ]")
_SURE = 12.0  # bits by which the most likely encoding is ahead of the next; with less it is a guess
_MOST_BITS = 8.0  # per byte of text; more means another encoding, or no text
_LONG = 40  # non-ASCII bytes; with as many, other alphabets can be recognised
_JAPANESE_AROUND = 8.0  # head start of Japanese encodings among Japanese files, in bits


class Decoded(NamedTuple):
    """Decoded bytes.

    Args:
        text: The text.
        guessed: The encoding that was chosen, if another is nearly as likely; else empty.
    """

    text: str
    guessed: str = ""


def decode(data: bytes, declared: str | None = None) -> str | None:
    """Decode bytes.

    Args:
        data: The bytes.
        declared: The encoding that the text itself names, if it does.

    Returns:
        The text, decoded as the first of these that fits: the encoding of a byte order mark, or ISO-2022-JP
        by its escapes; UTF-8; the declared encoding; UTF-8 with "�" for a few invalid bytes; the encoding in
        which the text is most likely. None if nothing fits.
    """
    decoded = _decode(data, declared)
    return decoded.text if decoded else None


def _decode(data: bytes, declared: str | None, favours_japanese: bool = False) -> Decoded | None:
    for encoding in _named_encodings(data, declared):
        with suppress(UnicodeDecodeError, LookupError):  # the latter of unknown encodings
            return Decoded(data.decode(encoding))
    if data.startswith(_UTF_16):
        return None
    text = data.decode("utf-8", "replace")
    if _is_nearly_whole(text):
        return Decoded(text)
    return _likeliest(data, favours_japanese)


def _named_encodings(data: bytes, declared: str | None) -> Iterator[str]:
    """Yield the encodings to try first: by byte order mark or escapes, UTF-8, and the declared one."""
    if data.startswith(codecs.BOM_UTF32_LE):
        yield "utf-32"
    elif data.startswith(_UTF_16):
        yield "utf-16"
    else:
        if b"\x1b$" in data:
            yield "iso2022_jp_ext"
        yield "utf-8-sig"
        if declared:
            yield _WHATWG.get(declared.strip().lower(), declared)


def _is_nearly_whole(text: str) -> bool:
    """Return whether very few bytes could not be decoded, as when a file is cut off."""
    return 10 * text.count("�") <= len(_BEYOND.findall(text))


def _likeliest(data: bytes, favours_japanese: bool) -> Decoded | None:
    """Decode bytes in the encoding in which the text's characters are most common."""
    sample = data[:_SAMPLE]
    costs = [*_costs(sample, favours_japanese)]
    if not costs:
        return _most_coherent(data)
    (bits, encoding), *less_likely = sorted(costs)
    is_long = sum(byte > 127 for byte in sample) >= _LONG
    if is_long and encoding in _OF_SINGLE_BYTES:
        return _most_coherent(data, least=0.1) or Decoded(data.decode(encoding, "replace"))
    text = data.decode(encoding, "replace")
    is_guess = less_likely and less_likely[0][0] - bits < _SURE
    return Decoded(text, encoding if is_guess else "")


def _costs(sample: bytes, favours_japanese: bool) -> Iterator[tuple[float, str]]:
    """Yield the cost of a text in bits for each encoding that it may be in."""
    for encoding, script in _scripts().items():
        text = sample.decode(encoding, "replace")
        bits = _bits(text, script)
        if favours_japanese and encoding in _OF_JAPAN:
            bits -= _JAPANESE_AROUND
        if _is_nearly_whole(text) and _is_usual(text, bits, len(sample)):
            yield bits, encoding


def _is_usual(text: str, bits: float, size: int) -> bool:
    """Return whether the non-ASCII characters are too common to be random bytes."""
    ascii_characters = len(text) - len(_BEYOND.findall(text))
    return bits - _BITS_OF_ASCII * ascii_characters <= _MOST_BITS * (size - ascii_characters)


def _most_coherent(data: bytes, least: float = 0.0) -> Decoded | None:
    """Decode bytes in the encoding that charset-normalizer detects; it knows many, but needs a few
    words.
    """
    guesses = [*from_bytes(data)]
    if not guesses or guesses[0].coherence < least:
        return None
    # for short texts it returns some Baltic code page, though cp1252 is as coherent
    best = [guess for guess in guesses if guess.coherence >= guesses[0].coherence]
    western = [guess for guess in best if guess.encoding == "cp1252"]
    return Decoded(str((western + guesses)[0]))


# The likelihood of a text, in bits per character of a script: the more common a character, the fewer. ASCII
# characters count too, since encodings decode the same bytes to texts of different lengths.

_Script = dict[str, float]
"""Patterns of a character and their bits; the first pattern that matches counts."""

_BITS_OF_ASCII = 5.0
_IN_ALL = {
    "[\x00-\x08\x0e-\x1f\x7f-\x9f]": 30.0,
    "[\\x00-\\x7f]": _BITS_OF_ASCII,
    "\ufffd": 30.0,
}
_OTHER = {"[^\\x00-\\x7f]": 20.0}
_OF_JAPAN = words("cp932 euc_jp")
_OF_SINGLE_BYTES = words("cp874 cp1251 koi8-r cp1253 cp1252")
# The kanji that Japanese primary schools teach, from the ministry's list of 2020.
_KANJI = (
    "一右雨円王音下火花貝学気九休玉金空月犬見五口校左三山子四糸字耳七車手十出女小上森人水正生青夕石赤千川先早草足村大男竹中虫町天田土二日入年白八百文木本名目立力林六引羽雲園遠何科夏家歌画回会海絵外角楽活間丸岩顔汽記帰弓牛魚京強教近兄"
    "形計元言原戸古午後語工公広交光考行高黄合谷国黒今才細作算止市矢姉思紙寺自時室社弱首秋週春書少場色食心新親図数西声星晴切雪船線前組走多太体台地池知茶昼長鳥朝直通弟店点電刀冬当東答頭同道読内南肉馬売買麦半番父風分聞米歩母方北毎妹万明"
    "鳴毛門夜野友用曜来里理話悪安暗医委意育員院飲運泳駅央横屋温化荷界開階寒感漢館岸起期客究急級宮球去橋業曲局銀区苦具君係軽血決研県庫湖向幸港号根祭皿仕死使始指歯詩次事持式実写者主守取酒受州拾終習集住重宿所暑助昭消商章勝乗植申身神真深"
    "進世整昔全相送想息速族他打対待代第題炭短談着注柱丁帳調追定庭笛鉄転都度投豆島湯登等動童農波配倍箱畑発反坂板皮悲美鼻筆氷表秒病品負部服福物平返勉放味命面問役薬由油有遊予羊洋葉陽様落流旅両緑礼列練路和愛案以衣位茨印英栄媛塩岡億加果貨"
    "課芽賀改械害街各覚潟完官管関観願岐希季旗器機議求泣給挙漁共協鏡競極熊訓軍郡群径景芸欠結建健験固功好香候康佐差菜最埼材崎昨札刷察参産散残氏司試児治滋辞鹿失借種周祝順初松笑唱焼照城縄臣信井成省清静席積折節説浅戦選然争倉巣束側続卒孫帯"
    "隊達単置仲沖兆低底的典伝徒努灯働特徳栃奈梨熱念敗梅博阪飯飛必票標不夫付府阜富副兵別辺変便包法望牧末満未民無約勇要養浴利陸良料量輪類令冷例連老労録圧囲移因永営衛易益液演応往桜可仮価河過快解格確額刊幹慣眼紀基寄規喜技義逆久旧救居許境"
    "均禁句型経潔件険検限現減故個護効厚耕航鉱構興講告混査再災妻採際在財罪殺雑酸賛士支史志枝師資飼示似識質舎謝授修述術準序招証象賞条状常情織職制性政勢精製税責績接設絶祖素総造像増則測属率損貸態団断築貯張停提程適統堂銅導得毒独任燃能破犯"
    "判版比肥非費備評貧布婦武復複仏粉編弁保墓報豊防貿暴脈務夢迷綿輸余容略留領歴胃異遺域宇映延沿恩我灰拡革閣割株干巻看簡危机揮貴疑吸供胸郷勤筋系敬警劇激穴券絹権憲源厳己呼誤后孝皇紅降鋼刻穀骨困砂座済裁策冊蚕至私姿視詞誌磁射捨尺若樹収宗"
    "就衆従縦縮熟純処署諸除承将傷障蒸針仁垂推寸盛聖誠舌宣専泉洗染銭善奏窓創装層操蔵臓存尊退宅担探誕段暖値宙忠著庁頂腸潮賃痛敵展討党糖届難乳認納脳派拝背肺俳班晩否批秘俵腹奮並陛閉片補暮宝訪亡忘棒枚幕密盟模訳郵優預幼欲翌乱卵覧裏律臨朗論"
)
# The common sounds of Korean.
_INITIALS = "ᄀᄂᄃᄅᄆᄇᄉᄋᄌᄎᄑᄒ"
_VOWELS = "ᅡᅢᅥᅦᅧᅩᅪᅮᅳᅵ"
_FINALS = "ᆨᆫᆯᆷᆸᆼ"
# The most frequent characters of Chinese, counted in the words of jieba's dictionary (MIT), and the same in
# Taiwan's writing.
_SIMPLIFIED = (
    "一是人了不在有大中国和为这上他个地年来我会以到时要出的生学说道民家子也成行下们于后就发自之对得主长可过天作分方用多你着部能市等业全里工公经本都而高政法面门动日进区事代那去心小同北定开产前其军还然起种所如现理机体表力好外与文当两实"
    "重新三么只山水关明从化平建又制南内西没此将员名手最东头者月间无安看见各城十相但已些正口通想度加第她合院物性战由位常点海意场武使次二向治因立数样身情入原问把路被并利石老教万知级量任江及应省资委务元美特期世湖回系比气汉总展电科金先声"
    "提品设或义王社很统处四首共马形己儿司太目基领队直计别女权话少流命至报米给打变果书清活几州华解议更称程今决张导术府才保交放管结师便走达族反再题色五京河接条规式县白它改风光运信受什组听布百济党指论强做取技黄神选记斯真却职号界件花类何"
    "眼兵传带空干农边据集联古广完质阳难增历史专官每住商即步认车台林必死游举线言皇土团收考求德叫近备研争非具李众连调感转笑革该持始英克士尔让拉思根格造较际亲单朝红型价校约器字段周亚深候则功属积快图火千准究往极育装许参半令吃观鱼精办像帝"
    "八复影告远群包整构料随划算象容示投势热值夫网望源息语股铁断派速怎需片爱律纪支早况病境证编越局推满且列觉服双未居除乐企引标确织初青志率项飞球节察龙响药站施均消客失轻存低甚般击曾防请离落显罗营足素视护副食创余照兴"
)
_TRADITIONAL = (
    "一是人了不在有大中國和爲這上他個地年來我會以到時要出的生學說道民家子也成行下們於後就發自之對得主長可過天作分方用多你着部能市等業全裏工公經本都而高政法面門動日進區事代那去心小同北定開產前其軍還然起種所如現理機體表力好外與文當兩實"
    "重新三麼只山水關明從化平建又制南內西沒此將員名手最東頭者月間無安看見各城十相但已些正口通想度加第她合院物性戰由位常點海意場武使次二向治因立數樣身情入原問把路被並利石老教萬知級量任江及應省資委務元美特期世湖回系比氣漢總展電科金先聲"
    "提品設或義王社很統處四首共馬形己兒司太目基領隊直計別女權話少流命至報米給打變果書清活幾州華解議更稱程今決張導術府才保交放管結師便走達族反再題色五京河接條規式縣白它改風光運信受什組聽布百濟黨指論強做取技黃神選記斯真卻職號界件花類何"
    "眼兵傳帶空幹農邊據集聯古廣完質陽難增歷史專官每住商即步認車臺林必死遊舉線言皇土團收考求德叫近備研爭非具李衆連調感轉笑革該持始英克士爾讓拉思根格造較際親單朝紅型價校約器字段周亞深候則功屬積快圖火千準究往極育裝許參半令喫觀魚精辦像帝"
    "八復影告遠羣包整構料隨劃算象容示投勢熱值夫網望源息語股鐵斷派速怎需片愛律紀支早況病境證編越局推滿且列覺服雙未居除樂企引標確織初青志率項飛球節察龍響藥站施均消客失輕存低甚般擊曾防請離落顯羅營足素視護副食創餘照興"
)


@cache
def _scripts() -> dict[str, _Script]:
    """Return the encodings that are distinguished by their characters, with the script of each."""
    japanese = {
        "[ぁ-ー、。]": 7.0,
        "[ｦ-ﾟ]": 8.0,
        **_levels("euc_jp", _KANJI, 0xB0, 0xCF),
    }
    korean = _levels("euc_kr", _hangul(), 0xB0, 0xC8)
    simplified = _levels("gb2312", f"，。、{_SIMPLIFIED}", 0xB0, 0xD7)
    traditional = _levels("big5", f"，。、{_TRADITIONAL}", 0xA4, 0xC6)
    thai = {
        "(?<![ก-ฮ])[ัิ-ฺ]|(?<![ก-ฮัิ-ฺ])[็-๎]|[เ-ไ](?![ก-ฮ])": 16.0,
        **_letters("านรกเงอยมวทตสลดคบปไัี่้", "ก-๛", "฿๐-๙"),
    }
    russian = {"(?<=[а-я])[А-Я]": 14.0, **_letters("оеаинтсрвлкмдпу", "а-яё", "А-ЯЁ")}
    greek = {"(?<=[ά-ώ])[Ά-Ϋ]": 14.0, **_letters("αοιετσνηυρπκμλςίόά", "ά-ώ", "Ά-Ϋ")}
    western = {
        "[“”‘’«»–—…•·€£©®™°±×§µ²³½¼¾\xa0]": 7.0,
        "(?<![A-Za-zÀ-ÿ])[À-ÿ](?![A-Za-zÀ-ÿ])": 10.0,
        "(?<=[À-ÿ])[À-ÿ]": 9.0,
        "[éèàçêâîôûùäöüßáíóúñãõåæøëÄÖÜÉ]": 5.5,
        "[À-ÿ]": 8.0,
    }
    scripts = {
        "cp932 euc_jp": japanese,
        "cp949": korean,
        "gb18030": simplified,
        "big5hkscs": traditional,
        "cp874": thai,
        "cp1251 koi8-r": russian,
        "cp1253": greek,
        "cp1252": western,
    }
    return by_word({names: {**_IN_ALL, **script, **_OTHER} for names, script in scripts.items()})


def _levels(encoding: str, frequent: str, first: int, last: int) -> _Script:
    """Return the script of a standard: frequent characters, the others of its first level, and rare ones."""
    return {
        f"[{frequent}]": 9.5,
        f"[{_rows(encoding, first, last)}]": 13.0,
        f"[{_rows(encoding, 0xA1, 0xF9)}]": 16.5,
    }


def _rows(encoding: str, first: int, last: int) -> str:
    """Return the two-byte characters whose first byte is within a range."""
    pairs = (bytes((row, cell)) for row in range(first, last + 1) for cell in range(0x40, 0xFF))
    characters = (pair.decode(encoding, "ignore") for pair in pairs)
    return "".join(character for character in characters if not character.isascii())


def _hangul() -> str:
    """Return the syllables made of the common sounds."""
    sounds = map("".join, product(_INITIALS, _VOWELS, ["", *_FINALS]))
    return "".join(normalize("NFC", syllable) for syllable in sounds)


def _letters(frequent: str, small: str, other: str) -> _Script:
    """Return the script of an alphabet; its letters are rarely next to ASCII letters."""
    letters = f"[{small}{other}]"
    return {
        f"(?<=[A-Za-z]){letters}|{letters}(?=[A-Za-z])": 16.0,
        f"[{frequent}]": 4.7,
        f"[{small}]": 7.5,
        f"[{other}]": 9.0,
    }


def _bits(text: str, script: _Script) -> float:
    pattern = re.compile("|".join(f"({pattern})" for pattern in script), re.DOTALL)
    bits = [*script.values()]
    return sum(bits[(match.lastindex or 1) - 1] for match in pattern.finditer(text))


def read_bytes(file: Path) -> bytes:
    """Return the bytes of a text file.

    Raises:
        UnreadableFileError: The file is binary.
    """
    with file.open("rb") as opened:
        data = opened.read(_BINARY)
        is_binary = b"\0" in data and not data.startswith(_UTF_16)
        if is_binary or data.startswith(b"{\\rtf"):
            raise _not_text(file)
        return data + opened.read()


def _not_text(file: Path) -> UnreadableFileError:
    target = by_word(_CONVERSIONS).get(file.suffix.lower())
    if target:
        command = f"soffice --headless --convert-to {target} {shlex.quote(file.name)}"
        return UnreadableFileError(file, f"is not text: convert it with LibreOffice: {command}")
    readable = "text, Markdown, HTML, PDF, .docx, .xlsx, .pptx and EPUB"
    reason = f"is not text: only {readable} can be read; convert it, or leave it out"
    return UnreadableFileError(file, reason)


def decode_file(file: Path, data: bytes | None = None, declared: str | None = None) -> str:
    """Return the text of a file; warn if its encoding is a guess or bytes are invalid.

    Args:
        file: The file.
        data: The bytes to decode, if they are only a part of the file; None for the whole file.
        declared: The encoding that the text itself names, if it does.

    Raises:
        UnreadableFileError: The file is binary, or its encoding is unknown.
    """
    if data is None:
        data = read_bytes(file)
    decoded = _decode(data, declared)
    if decoded and decoded.guessed:
        decoded = _decode(data, declared, favours_japanese=_is_among_japanese(file))
    if decoded is None:
        raise UnreadableFileError(file, _UNKNOWN)
    text, guessed = decoded
    if guessed:
        advice = "save it as UTF-8 if it reads wrongly"
        logger.warning(
            "%s names no encoding and was read as %s, which is a guess: %s", file, guessed, advice
        )
    if "\0" in text:
        raise _not_text(file)
    if "\ufffd" in text and "\ufffd".encode() not in data:
        logger.warning(
            '%s has bytes that are invalid in its encoding: "\ufffd" stands for them', file
        )
    return text


_MOST_BESIDE = 20  # files of a folder that are examined to tell whether they are Japanese


def _is_among_japanese(file: Path) -> bool:
    """Return whether the locale, or a file in the same folder, is Japanese."""
    language, encoding = locale.getlocale()
    if (language or "").lower().startswith("ja") or encoding in ("cp932", "eucJP"):
        return True
    return any(map(_KANA.search, _texts_beside(file)))


def _texts_beside(file: Path) -> Iterator[str]:
    """Yield the names of the other files in a folder, and the beginnings of those that are text."""
    with suppress(OSError):
        for path in sorted(file.parent.iterdir())[:_MOST_BESIDE]:
            if path != file:
                yield path.name
                yield _beginning(path)


def _beginning(file: Path) -> str:
    """Return the beginning of a file; empty if it is not text, or only a guess at it."""
    data = b""
    with suppress(OSError):
        if file.is_file():  # reading a pipe would block
            with file.open("rb") as opened:
                data = opened.read(_BINARY)
    decoded = None if b"\0" in data else _decode(data, None)
    if decoded is None or decoded.guessed:
        return ""
    return decoded.text
