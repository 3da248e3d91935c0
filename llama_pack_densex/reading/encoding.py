"""The bytes of a file as text."""

from __future__ import annotations

import codecs
import locale
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from charset_normalizer import from_bytes

from llama_pack_densex.reading.files import UnreadableFileError
from llama_pack_densex.text.terminal import plain_logger

logger = plain_logger(__name__)

_WHATWG = {  # what browsers take these labels for: pages say the first and are the second
    "iso-8859-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030",
    "euc-kr": "cp949", "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "x-sjis": "cp932",
}  # fmt: skip
_SAMPLE = 10_000  # bytes by which an encoding is detected
_BINARY = 8192  # bytes that tell a large binary file from text before it is read
_NO_TEXT = (
    "is no text (it has NUL characters): only text, Markdown, HTML, PDF, .docx, .xlsx, .pptx and EPUB "
    "can be read; "
    "convert it, or leave it out"
)
_UNKNOWN = "is text in no encoding that can be recognised: convert it to UTF-8, or leave it out"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BEYOND = re.compile(r"[^\x00-\x7f]")
_KANA = re.compile("[ぁ-ゖァ-ヺ]")
_SURE = 12.0  # bits by which the likeliest encoding is ahead of the next: less is a guess
_MOST_BITS = 8.0  # that a byte takes in a text: more is another encoding, or none
_LONG = 40  # bytes beyond ASCII in which other alphabets can be told
_JAPANESE_AROUND = 8.0  # bits that Japanese is ahead by among Japanese files


class Decoded(NamedTuple):
    """The text of some bytes.

    Args:
        text: The text.
        guessed: The encoding that it was taken for where another is nearly as likely; else empty.
    """

    text: str
    guessed: str = ""


def decode(data: bytes, declared: str | None = None) -> str | None:
    """Decode text.

    Args:
        data: The bytes.
        declared: The encoding that the text itself names, if it does.

    Returns:
        The text, as UTF-8 if it can be, else as what it declares, else as UTF-8 with "�" for what cannot
        be decoded, where that is little, else in the encoding in which it is likeliest; None where nothing fits.
    """
    decoded = _decode(data, declared)
    return decoded.text if decoded else None


def _decode(data: bytes, declared: str | None, favours_japanese: bool = False) -> Decoded | None:
    if data.startswith(_UTF_16):
        text = _try(data, "utf-32" if data.startswith(codecs.BOM_UTF32_LE) else "utf-16")
        return Decoded(text) if text is not None else None
    escaped = ["iso2022_jp_ext"] if b"\x1b$" in data else []
    named = [_WHATWG.get(declared.strip().lower(), declared)] if declared else []
    for encoding in (*escaped, "utf-8-sig", *named):
        text = _try(data, encoding)
        if text is not None:
            return Decoded(text)
    text = data.decode("utf-8", "replace")
    return Decoded(text) if _is_nearly_whole(text) else _likeliest(data, favours_japanese)


def _is_nearly_whole(text: str) -> bool:
    """Whether hardly any bytes could not be decoded, as where a file was cut off."""
    return 10 * text.count("�") <= len(_BEYOND.findall(text))


def _likeliest(data: bytes, favours_japanese: bool) -> Decoded | None:
    """The text in the encoding of which it has the most usual characters."""
    sample = data[:_SAMPLE]
    costs: list[tuple[float, str]] = []
    for encoding, script in _scripts().items():
        text = sample.decode(encoding, "replace")
        bits = _bits(text, script)
        if favours_japanese and encoding in _OF_JAPAN:
            bits -= _JAPANESE_AROUND
        if _is_nearly_whole(text) and _is_usual(text, bits, len(sample)):
            costs.append((bits, encoding))
    if not costs:
        return _most_coherent(data)
    (bits, encoding), *others = sorted(costs)
    is_long = sum(byte > 127 for byte in sample) >= _LONG
    if is_long and encoding in _OF_SINGLE_BYTES:
        return _most_coherent(data, least=0.1) or Decoded(data.decode(encoding, "replace"))
    is_sure = all(other_bits - bits >= _SURE for other_bits, _ in others[:1])
    return Decoded(data.decode(encoding, "replace"), "" if is_sure else encoding)


def _is_usual(text: str, bits: float, size: int) -> bool:
    """Whether the characters beyond ASCII are no random bytes."""
    ascii_characters = len(text) - len(_BEYOND.findall(text))
    return bits - _ASCII[1] * ascii_characters <= _MOST_BITS * (size - ascii_characters)


def _most_coherent(data: bytes, least: float = 0.0) -> Decoded | None:
    """The text in the encoding that charset-normalizer takes it for, which knows many, but wants some words."""
    guesses = [*from_bytes(data)]
    if not guesses or guesses[0].coherence < least:
        return None
    # it takes short texts for some Baltic code page, which is as coherent
    best = [guess for guess in guesses if guess.coherence >= guesses[0].coherence]
    western = [guess for guess in best if guess.encoding == "cp1252"]
    return Decoded(str((western + guesses)[0]))


# How likely a text is: bits that each of its characters takes in a script, the less the more usual it is.
# Without those of ASCII the texts of some bytes would differ in length.

_Script = list[tuple[str, float]]
"""Patterns of a character, of which the first counts that matches, with the bits that it takes."""

_ASCII = ("[\\x00-\\x7f]", 5.0)
_CONTROL = ("[\x00-\x08\x0e-\x1f\x7f-\x9f]", 30.0)
_OTHER = ("[^\\x00-\\x7f]", 20.0)
_WRONG_BYTE = ("\ufffd", 30.0)
_OF_JAPAN = ("cp932", "euc_jp")
_OF_SINGLE_BYTES = ("cp874", "cp1251", "koi8-r", "cp1253", "cp1252")
# The most frequent characters of each language, by the counts that Mozilla's detector of encodings has.
_KANJI = (
    "一七万三上下不与世両中主久乗九了事二云互五京人今仕他付代以仮会伝似位低体何余作使例供係保信修倉個値側傍働像僕元兄先光入全八公六共内再処出分切列初判別利制前割力加"
    "助効動勝化十半単原去参又反取受口古可台右号各合同名向君含告味呼命和品問四回国圧在地域基報場境士声売変外多夜大天太夫失奥女好如始姿子字存学安完定実室家容寄寝対将小"
    "少居屋属山岡島川左布帰常平年広底度座式引張強当形影役彼待後従得御心必忘応念思急性恐悪情想意愛感態成我戸所手打扱抜択押持指振掛接提換放教数文断新方日早明時普暗更書"
    "最月有望朝期木末本村来東果格検業楽構様標権横機次止正歩死残段母氏気水求決法波注活流海消深済渡準火点為無然照父片版物特状独現理環生用田由申男町画界番異病発白的目直"
    "相真眼着知石確示社神私移程種空突立章端笑第等答管節簡約紙素細終組経結続線置美義考者聞胸能自般船良色花若苦茶草落葉著藤行術衛表装複要見覚覧親解言計記設許訳証試話詳"
    "認語説読誰調論識議貴質赤走起足路身車転込近返述追送通速造連進運過道達違遠適選郎部配重野量金録長門開間関降限除階際集離難電青静非面音頃順領頭頼題顔類風飛食馬驚高黒"
)
_SIMPLIFIED = (
    "一万三上下不与专世业东两个中为主义之也书了事二于些交产京人亿今从他代以们件价任企优会但位体作使保信元先党入全公共关其内军农决几出分利到制前力办加务动化北区十华单"
    "南厂原去县又及发取受口只可台司各合同名后向员和品商四因团国在地场城基增处外多大天好如委子学安定实家对导将小少就局展山工已市常干平年并广应府度建开式强当形得心志性"
    "总情想意成我战所手技把投报持据提收改放政效教数文新方施无日时明是更最月有服期本术机权村条来果标样格次正此步比民水求江没治法活流济海深点然物特现理生用由电界的益目"
    "相省看着研社种科程立第等管系级组经结统美老者而职联育能自营行表被西要规解计认议记设说调质费资起路车达过运近还这进通造道部都里重量金销长门问间队际院集面革项领题高"
)
_TRADITIONAL = (
    "一三上下不並中主之九也了事二五些交人他代以任但位作你使來保信個們做元先入內全兩八公六其再出分利到前力加動務化十原去及受只可台司各合同名和品員商問四回因國在地報場"
    "外多大天太女她好如子學安定家實將對小就展工己已市常年度式影很後得從心性情想意感應成我或所手才打提政教數文新方於日明是時更最會月有期本果業樣機次正此每比民水沒法活"
    "灣為無然物特現理生產用由當發百的目相看真知示程種空立第等統經網總美者而能自至與色萬著處行表要計設話說讓資起路身車這通進過道選還那部都重金長開間關電面頭題體高麼點"
)
_HANGUL = (
    "가각간값갖같개거검것게겠격결경계고곳공과관구권그근글금기길까꼴꾸끝나내널넣네넷놓누눅뉴느는능니다단달답당대더던데도돌동되된될됩두듈드든들등디따때떤떻또라란람래램"
    "러런럼렇레렉려력련령로록론료루르른를름리린림립링마막만많말매머먼메며면명몇모목못무문물므미바반받발방배백버번법베변별보복본볼부분불브블비사산상새색생서선설성세션"
    "소속송수순스습시식신실심싶써쓰아안않알았야약양어언얻얼업없었에여역연열영예오올옵와완외요용우운워웍원웨위윈유으은을음응의이인일읽임입있자작잘장재저적전절점접정제"
    "져조존종좋주준줄중즉지직진질집째차참찾처첫체초최추출치카커컴케코크클키킷타태택터테템토통트특튼티팅파판패퍼페편포표퓨프플피필하한할함합항해했행허현형호화확환후히"
)


@cache
def _scripts() -> dict[str, _Script]:
    """The encodings that are told apart by their characters."""
    japanese = [
        ("[ぁ-ー、。]", 7.0),
        (f"[{_KANJI}]", 9.5),
        ("[ｦ-ﾟ]", 8.0),
        (f"[{_rows('euc_jp', 0xB0, 0xCF)}]", 13.0),
        (f"[{_rows('euc_jp', 0xA1, 0xA3)}①-⑩㈱㈲－～]", 12.0),
        (f"[{_rows('euc_jp', 0xA6, 0xF4)}]", 16.0),
    ]
    korean = [
        (f"[{_HANGUL}]", 9.0),
        (f"[{_rows('euc_kr', 0xB0, 0xC8)}]", 12.5),
        (f"[{_rows('euc_kr', 0xA1, 0xFD)}]", 17.0),
    ]
    simplified = [
        (f"[，。、{_SIMPLIFIED}]", 9.0),
        (f"[{_rows('gb2312', 0xB0, 0xD7)}]", 12.5),
        (f"[{_rows('gb2312', 0xA1, 0xF7)}]", 17.0),
    ]
    traditional = [
        (f"[，。、{_TRADITIONAL}]", 9.0),
        (f"[{_rows('big5', 0xA4, 0xC6)}]", 13.0),
        (f"[{_rows('big5', 0xA1, 0xF9)}]", 17.0),
    ]
    thai = [
        ("(?<![ก-ฮ])[ัิ-ฺ]|(?<![ก-ฮัิ-ฺ])[็-๎]|[เ-ไ](?![ก-ฮ])", 16.0),
        *_letters("านรกเงอยมวทตสลดคบปไัี่้", "ก-๛", "฿๐-๙"),
    ]
    russian = [("(?<=[а-я])[А-Я]", 14.0), *_letters("оеаинтсрвлкмдпу", "а-яё", "А-ЯЁ")]
    greek = [("(?<=[ά-ώ])[Ά-Ϋ]", 14.0), *_letters("αοιετσνηυρπκμλςίόά", "ά-ώ", "Ά-Ϋ")]
    western = [
        ("[“”‘’«»–—…•·€£©®™°±×§µ²³½¼¾\xa0]", 7.0),
        ("(?<![A-Za-zÀ-ÿ])[À-ÿ](?![A-Za-zÀ-ÿ])", 10.0),
        ("(?<=[À-ÿ])[À-ÿ]", 9.0),
        ("[éèàçêâîôûùäöüßáíóúñãõåæøëÄÖÜÉ]", 5.5),
        ("[À-ÿ]", 8.0),
    ]
    return {
        encoding: [_CONTROL, _ASCII, _WRONG_BYTE, *script, _OTHER]
        for encoding, script in (
            ("cp932", japanese),
            ("euc_jp", japanese),
            ("cp949", korean),
            ("gb18030", simplified),
            ("big5hkscs", traditional),
            ("cp874", thai),
            ("cp1251", russian),
            ("koi8-r", russian),
            ("cp1253", greek),
            ("cp1252", western),
        )
    }


def _rows(encoding: str, first: int, last: int) -> str:
    """The characters of two bytes whose first one is within a range."""
    pairs = (bytes((row, cell)) for row in range(first, last + 1) for cell in range(0x40, 0xFF))
    characters = (pair.decode(encoding, "ignore") for pair in pairs)
    return "".join(character for character in characters if len(character) == 1 and ord(character) > 127)


def _letters(frequent: str, small: str, other: str) -> _Script:
    """The letters of an alphabet, which hardly touch those of ASCII."""
    letters = f"[{small}{other}]"
    return [
        (f"(?<=[A-Za-z]){letters}|{letters}(?=[A-Za-z])", 16.0),
        (f"[{frequent}]", 4.7),
        (f"[{small}]", 7.5),
        (f"[{other}]", 9.0),
    ]


def _bits(text: str, script: _Script) -> float:
    pattern = re.compile("|".join(f"({pattern})" for pattern, _ in script), re.DOTALL)
    return sum(script[(match.lastindex or 1) - 1][1] for match in pattern.finditer(text))


def _try(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):  # the latter where a page declares an unknown encoding
        return None


def read_bytes(file: Path) -> bytes:
    """The bytes of a file that is text."""
    with file.open("rb") as opened:
        data = opened.read(_BINARY)
        if b"\0" in data and not data.startswith(_UTF_16):
            raise UnreadableFileError(file, _NO_TEXT)
        return data + opened.read()


def decode_file(file: Path, data: bytes | None = None, declared: str | None = None) -> str:
    """The text of a file.

    Args:
        file: The file.
        data: The bytes of the part that is text; None for all of the file.
        declared: The encoding that the text itself names, if it does.
    """
    data = read_bytes(file) if data is None else data
    decoded = _decode(data, declared)
    if decoded and decoded.guessed:
        decoded = _decode(data, declared, favours_japanese=_is_among_japanese(file))
    if decoded is None:
        raise UnreadableFileError(file, _UNKNOWN)
    text, guessed = decoded
    if guessed:
        advice = "save it as UTF-8 if it reads wrongly"
        logger.warning("%s names no encoding and was read as %s, which is a guess: %s", file, guessed, advice)
    if "\0" in text:
        raise UnreadableFileError(file, _NO_TEXT)
    if "\ufffd" in text and "\ufffd".encode() not in data:
        logger.warning('%s has bytes that are no text in its encoding: "\ufffd" stands for them', file)
    return text


_MOST_BESIDE = 20  # files by which it is told what language those of a folder are in


def _is_among_japanese(file: Path) -> bool:
    """Whether the machine, or the files beside a file, are Japanese."""
    language, encoding = locale.getlocale()
    if (language or "").lower().startswith("ja") or encoding in ("cp932", "eucJP"):
        return True
    return any(map(_KANA.search, _texts_beside(file)))


def _texts_beside(file: Path) -> Iterator[str]:
    """The names of the files beside a file, and how those begin that are text."""
    try:
        beside = [path for path in islice(file.parent.iterdir(), _MOST_BESIDE) if path != file]
    except OSError:
        return
    for path in beside:
        yield path.name
        try:
            data = path.read_bytes()[:_BINARY] if path.is_file() else b""
        except OSError:
            continue
        decoded = None if b"\0" in data else _decode(data, None)
        if decoded and not decoded.guessed:
            yield decoded.text
