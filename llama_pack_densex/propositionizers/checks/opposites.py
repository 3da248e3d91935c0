"""The check for turned statements: "not", "at most" or "may" where the passage says the opposite."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain

from llama_pack_densex.propositionizers.checks.numbers import DIGITS
from llama_pack_densex.propositionizers.checks.texts import Ground, Text, occurs
from llama_pack_densex.text.tokens import STOP_WORDS


def turned(text: Text, ground: Ground, sentences: Text) -> Iterator[str]:
    """Yield a reason for each word by which a proposition says the opposite of its passage.

    The word counts only beside a word that the passage has too: "at most two" contradicts "at least two",
    and not "at least three". English and Japanese only.

    Args:
        text: The proposition.
        ground: Its passage, with title, section and context.
        sentences: The source sentences of the proposition.
    """
    language = _LANGUAGES.get(ground.language)
    if language is None or text.plain in ground.plain:
        return
    stated = _worded(text.plain.lower(), language)
    source = _worded(sentences.plain.lower(), language)
    passage = _worded(ground.plain.lower(), language)
    yield from _opposites(stated.signs, source.signs)
    yield from _lost_bounds(stated, source)
    yield from _added(stated, source, passage)
    yield from _dropped(stated, source)


def _opposites(stated: Sequence[_Sign], source: Sequence[_Sign]) -> Iterator[str]:
    for sign in stated:
        on_scale = [other for other in source if other.scale == sign.scale]
        beside = [other for other in on_scale if _any_in(sign.beside, " ".join(other.beside))]
        # "in the east" and "in the west" of a sentence are about different things
        agreeing = beside if sign.scale <= _LAST_OF_MANY else on_scale
        if beside and sign.side not in {other.side for other in agreeing}:
            yield f'where it says "{sign.word}", the passage says "{beside[0].word}"'


def _lost_bounds(stated: _Wording, source: _Wording) -> Iterator[str]:
    """Find numbers without the "at least" or "at most" that they have in the passage."""
    bounded = " ".join(chain.from_iterable(sign.beside for sign in stated.bounds))
    for sign in source.bounds:
        number = "".join(filter(_is_number, sign.beside[:1]))
        is_said = number and occurs(number, stated.text) and occurs(number, source.text) == 1
        if is_said and not occurs(number, bounded):
            yield f'it leaves out "{sign.word}" beside "{number}"'


def _added(stated: _Wording, source: _Wording, passage: _Wording) -> Iterator[str]:
    of_pronouns = {other.word for other in source.negations if not other.negated}  # "without them"
    reasons = passage.certain + [
        other for other in passage.negations if other.word not in stated.possible
    ]
    for negation in stated.certain:
        is_of_pronoun = not negation.negated or negation.word in of_pronouns
        if not is_of_pronoun and not _any_in(negation.negated, _around(reasons)):
            yield f'it has "{negation.word}" beside "{negation.negated[0]}", unlike the passage'


def _dropped(stated: _Wording, source: _Wording) -> Iterator[str]:
    if stated.possible - source.possible:  # "only" may stand for "not except"
        return
    reasons = _around(stated.certain)
    negations = [negation for negation in source.certain if negation.negated]
    heads = Counter(negation.negated[0] for negation in negations)
    for negation in negations:
        head = negation.negated[0]
        is_said = all(occurs(word, stated.text) for word in negation.negated)
        is_always_negated = occurs(head, source.text) <= heads[head]
        if is_said and is_always_negated and not _any_in(negation.negated, reasons):
            yield f'it leaves out "{negation.word}" beside "{head}"'


def _around(negations: Sequence[_Negation]) -> str:
    return "\n".join(negation.around for negation in negations)


def _any_in(words: Sequence[str], text: str) -> bool:
    return any(occurs(word, text) for word in words)


@dataclass(frozen=True)
class _Sign:
    """A word that has an opposite.

    Args:
        word: The word or phrase.
        scale: The number of its pair of opposites.
        side: Which of the two it is.
        beside: The numbers beside it in its clause, or else the words.
    """

    word: str
    scale: int
    side: int
    beside: tuple[str, ...]


@dataclass(frozen=True)
class _Negation:
    """A word that negates, or may do so.

    Args:
        word: The word.
        is_certain: Whether it negates, unlike "only" and "until", which may paraphrase a negation.
        negated: The first two words that it negates, the nearest first.
        around: The text around it.
    """

    word: str
    is_certain: bool
    negated: tuple[str, ...]
    around: str


class _Language:
    """The words of a language that negate or have an opposite.

    Args:
        opposites: A pair on each line, " : " between its sides and ", " between words of the same meaning;
            a line that begins with two spaces continues the one before.
        form: The pattern of a whole word in any inflection, with {} for the word.
        negations: The pattern of words that negate ("certain"), may do so ("possible"), or only seem to
            ("idiom").
        border: The pattern of what ends a clause.
        is_before: Whether a negation precedes what it negates.
    """

    def __init__(
        self,
        opposites: str,
        form: str,
        negations: str,
        border: str,
        *,
        is_before: bool,
    ) -> None:
        joined = opposites.strip().replace("\n  ", " ")
        sides = {}
        for scale, line in enumerate(joined.splitlines()):
            lower, upper = line.split(" : ")
            sides[scale, 1] = upper.replace(", ", "|")
            sides[scale, 0] = lower.replace(", ", "|")
        # all in one pattern without groups, since that is searched five times as fast
        self.opposites = re.compile(form.format("|".join(sides.values())))
        self.sides = {place: re.compile(form.format(side)) for place, side in sides.items()}
        self.negations = re.compile(negations)
        self.border = re.compile(border)
        self.is_before = is_before


class _Wording:
    """A text with its words that negate or have an opposite.

    Args:
        text: The text in lower case.
        language: Its language.

    Attributes:
        negations: Its words that negate, or may do so.
        certain: Those of them that negate.
        possible: The words of the others.
    """

    def __init__(self, text: str, language: _Language) -> None:
        self.text = text
        self._language = language
        matches = language.negations.finditer(text)
        self.negations = [self._negation(word) for word in matches if word.lastgroup != "idiom"]
        self.certain = [negation for negation in self.negations if negation.is_certain]
        self.possible = {negation.word for negation in self.negations if not negation.is_certain}

    @cached_property
    def signs(self) -> list[_Sign]:
        """Its words that have an opposite."""
        return [*map(self._sign, self._language.opposites.finditer(self.text))]

    @property
    def bounds(self) -> list[_Sign]:
        """Those of them that say "at least" or "at most"."""
        return [sign for sign in self.signs if sign.scale == _BOUNDS]

    def _sign(self, match: re.Match[str]) -> _Sign:
        places = self._language.sides.items()
        scale, side = next(at for at, word in places if word.match(self.text, match.start()))
        left, right = self._clause(match)
        # "18 or older", 18歳以上
        is_behind = self._language.is_before == match[0].startswith("or ")
        numbers = [*filter(_is_number, left[-2:] if is_behind else right[:1])]
        other_words = [w for w in (*left[-1:], *right[:1]) if not _is_number(w)]
        return _Sign(match[0], scale, side, tuple(numbers or other_words))

    def _negation(self, match: re.Match[str]) -> _Negation:
        is_before = self._language.is_before
        left, right = self._clause(match)
        negated = right[:2] if is_before else left[:-3:-1]
        shown_before, shown_after = _SHOWN_AROUND[is_before]
        start = max(0, match.start() - shown_before)
        around = self.text[start : match.end() + shown_after]
        return _Negation(match[0], match.lastgroup == "certain", tuple(negated), around)

    def _clause(self, match: re.Match[str]) -> tuple[list[str], list[str]]:
        """Return the words before and after a match in its clause."""
        border = self._language.border
        start = max(0, match.start() - _LONGEST_CLAUSE)
        left = border.split(self.text[start : match.start()])[-1]
        right = border.split(self.text[match.end() : match.end() + _LONGEST_CLAUSE])[0]
        return _content(left), _content(right)


_worded = lru_cache(maxsize=256)(_Wording)  # many propositions share a source sentence


def _is_number(word: str) -> bool:
    return word[:1].isdecimal() or word in DIGITS


def _content(text: str) -> list[str]:
    return [word for word in _WORD.findall(text) if word not in _SMALL]


_LONGEST_CLAUSE = 60  # characters
# characters before and after a negation that may say what it negates, by whether it precedes that
_SHOWN_AROUND = {True: (60, 70), False: (22, 14)}
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[a-zß-ɏ]+|[ァ-ヺー]+|[々〆〇㐀-䶿一-鿿]+")
_SMALL = STOP_WORDS | {"also", "yet", "longer", "ever", "even", "able"}
_BOUNDS = 0  # the first line of each table of opposites
_LAST_OF_MANY = 2  # the last line of those words that are said of several things in a sentence

_OPPOSITES_EN = r"""
at least, more than, (?:larger|longer|later|earlier) than, over, above, greater than, (?:an? )?minimum,
  exceed, or (?:more|older|over|above), no (?:less|fewer) than, not (?:less|fewer) than : at most,
  less than, fewer than, under, below, up to, (?:an? )?maximum(?: of)?, no (?:more|later) than,
  not more than, (?:not|never|cannot)(?: \w+)? (?:more than|exceed),
  or (?:less|fewer|younger|under|below), nearly, almost
must, shall, ha(?:s|ve|d) to, needs? to, (?:is|are|was|were|be) (?:required|obliged|forced) to,
  mandatory : (?<!in )may(?! \d), can, could, might,
  (?:is|are|was|were|be) (?:allowed|permitted|free) to, optional
all, every, each, always, entire, whole, every(?:one|body|thing), both, complete : some, many,
  most of, most(?= [a-z]+s\b), mostly, several, often, usual, sometimes, partly, few, general,
  typical, frequent, occasional, rare, parts? of
higher, highest : lower, lowest
larger, greater, bigger, largest, greatest, biggest : smaller, smallest
increas : decreas, reduc, declin, fall, fell
rise, rose, risen, rising, grow, grew : fall, fell, fallen, shrink, shrank, declin
north, northern : south, southern
east, eastern : west, western
better, best : worse, worst
longer, longest : shorter, shortest
older, oldest : younger, youngest, newer, newest
faster, fastest, quicker : slower, slowest
cheap, cheaper, cheapest : dearer, expensive
strong, stronger, strongest : weak, weaker, weakest
early, earlier, earliest : late, later, latest
won, win : lost, los
success, succeed : fail, failure
accept, approv : reject, refus
internal, inside : external, outside
majority : minority
first : last
includ : exclud, except
open : clos, shut
begin, began, begun, start : end, finish, stop
buy, bought : sell, sold
import : export
support : oppos
legal : illegal
valid : invalid
able to : unable to
possible : impossible
likely : unlikely
paid : unpaid
public : private
true : false
enabl : disabl
victory : defeat
positiv : negativ
rich : poor
"""
_OPPOSITES_JA = """
以上, を?超え, を?上回, 最低, 少なくとも, 最小, 下限 : 以下, 未満, 以内, (?<![年月日時])まで, を?下回,
  を?超え(?:ない|ません|てはな|ること[はが]な|て[^。、]{0,6}(?:ない|ません)), 最大, 最高, 上限
なければな[らり], なくてはな[らり], ねばな, 必要(?![なはも]) : (?:こと|事)[がも]でき,
  ても(?:よ|構|かま), てよ, できる, できます, 不要, 任意, 可能(?!性)
すべて, 全て, 全員, 全部, 全体, 必ず, 常に, いつも, いずれも : 一部, 多く, ほとんど, 大部分,
  しばしば, 主に, いくつか, たまに, 時々, まれに, 大半
増加, 増え, 増や : 減少, 減っ, 減る, 減ら
高い, 高く : 低い, 低く
大きい, 大きく : 小さい, 小さく
多い, 多く : 少ない, 少なく
上昇, 向上 : 下降, 低下
長い, 長く : 短い, 短く
早い, 早く, 速い, 速く : 遅い, 遅く
強い, 強く : 弱い, 弱く
新しい, 最新 : 古い, 最古
最初 : 最後
(?<![一-鿿])北(?![一-鿿]), 北部 : (?<![一-鿿])南(?![一-鿿]), 南部
(?<![一-鿿])東(?![一-鿿]), 東部 : (?<![一-鿿])西(?![一-鿿]), 西部
拡大 : 縮小
賛成 : 反対
勝利, 勝っ, 勝ち : 敗北, 負け, 敗れ
成功 : 失敗
輸出 : 輸入
内部, 内側 : 外部, 外側
開始 : 終了
可能(?!性) : 不可能
有効 : 無効
有料 : 無料
必須, 義務 : 任意
含[むめみ] : 以外, 除[いくき]
合法 : 違法
購入 : 販売, 売却
広い, 広く : 狭い, 狭く
深い, 深く : 浅い, 浅く
近い, 近く : 遠い, 遠く
(?<![一-鿿])左(?![一-鿿]) : (?<![一-鿿])右(?![一-鿿])
"""
_LANGUAGES = {
    "en": _Language(
        _OPPOSITES_EN,
        r"\b(?:{})(?:e?s|e?d|ing|e|ly)?\b",
        r"(?P<certain>n['’]t\b|\b(?:cannot|not|never|none|nobody|nothing|without|no longer"
        r"|fail(?:s|ed|ing)? to|refus(?:e|es|ed|ing) to|unable to|forbid(?:s|den)?"
        r"|forbade|prohibit\w*|no(?! (?:more|less|fewer|later|earlier|sooner|doubt)\b))\b"
        r"(?! (?:only|just|merely|simply|necessarily|least|(?:un|in)[a-z]+|(?:\w+ ){0,3}(?:until|before))\b))"
        r"|(?P<possible>\b(?:neither|nor|few\w*|little|hardly|rarely|barely|only|no|lack\w*|un(?!der|it|til|ion|iq|iv)[a-z]{3,}"
        r"|in(?:valid|ab|ac|compl|comp|corr|defin|depen|el|eff|suff|vis)\w*|im(?:poss|perf|mat|mob|prob)\w*"
        r"|i[lr][lr]\w{4,}|dis(?!t)\w{3,}|non-?\w*|fail\w*|refus\w*|avoid\w*|prevent\w*|den[yi]\w*|absen\w*"
        r"|instead|rather|false\w*|ignor\w*|void|less|until|other\w*|stop\w*|ceas\w*|ban(?:s|ned)?|reject\w*"
        r"|lo(?:se|ses|sing|ss|st)|abandon\w*|free|zero|\w+less|though|although|alone|wrong\w*|waive\w*|skip\w*"
        r"|exempt\w*|beyond|too|unless|except|excluding|otherwise|end(?:ed|s)?|remov\w*|rid|withdr\w*|oppos\w*|resist\w*|declin\w*|differ\w*"
        r"|miss\w*|empty|dead|at most|up to|maximum|down|exclu\w*)\b)",
        r"[,.;:()!?\n]|\b(?:and|but|or|which|who|that|because|so|although|as|when|if|while|where|than|whether"
        r"|since)\b",
        is_before=True,
    ),
    "ja": _Language(
        _OPPOSITES_JA,
        "(?:{})",
        r"(?P<idiom>な(?:ければ|くては|いと)(?:な[らり]|いけ|だめ)(?:な\w|ません|ず)?|しか[^。、]{0,8}?(?:な[いかく]|ません)"
        r"|ざるを得な\w|に違いな\w|かもしれ(?:ない|ません)|に[過す]ぎ(?:な\w|ず|ません)|ほかなら\w|のみなら\w"
        r"|(?:だけ|ばかり)で[はも]?な\w|とは?限ら(?:ない|ず|ません)|ではないか|やむを得\w|欠かせ\w|少なくと|少なくな"
        r"|[間ま]もなく|限りな\w|何気な\w|なくて?[もよい]|まで[^。、]{0,6}(?:ない|ません)|まず[、は]|必ず|わずか|はず|いずれ|ずつ|まとま|思わず)"
        r"|(?P<certain>(?<![少危])な(?:い(?!か)|く(?!と)|かっ|けれ|し[にで])|ません(?!か)"
        r"|(?<=[せれわかさたらなばがきえけべめ])ず(?![つれ])|禁止|禁じ)"
        r"|(?P<possible>[禁除不無非未否拒欠限失免外避控離異反逆違防絶断誤消]|のみ|だけ|しか|まで|な[いしくか]|ぬ|ず|ん(?!だ)"
        r"|困難|難し|やめ|[停廃中]止|却下|遠慮|以下|以内)",
        r"[。、「」()\n]",
        is_before=False,
    ),
}
