"""Which language a text is in. Pure; by Unicode scripts and frequent words, not by a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from llama_pack_densex.text.tokens import STOP_WORDS, words

LANGUAGE_NAMES = {
    "ja": "Japanese",
    "zh": "Chinese",
    "ko": "Korean",
    "en": "English",
    "cyrillic": "a language in Cyrillic script",
    "greek": "Greek",
    "arabic": "a language in Arabic script",
    "hebrew": "Hebrew",
    "devanagari": "a language in Devanagari script",
    "thai": "Thai",
    "other": "a language in another script",
    "latin": "a language in Latin script",
}
WITHOUT_SPACES = frozenset(("ja", "zh", "th", "thai", "lo", "km", "my"))
"""Languages that put no spaces between words."""


def detect_language(text: str, context: str = "") -> str:
    """Tell the language of a text.

    Args:
        text: Any text.
        context: What surrounds it (title, headings): it decides between Japanese and Chinese for a text in Han
            characters only, and says everything where the text has no letters.

    Returns:
        A key of `LANGUAGE_NAMES`; the script where it does not tell the language ("cyrillic"; "latin" for all but
        English, and for a few words in any language); "" for a text without letters.
    """
    group = _dominant(_prose_weights(text))
    if group == "cjk":
        kana, han = len(_KANA.findall(text)), len(_HAN.findall(text))
        if kana * 20 >= han and kana:
            return "ja"
        return "zh" if han >= 4 * len(_KANA.findall(context)) and not _is_japanese_only(text) else "ja"
    if group == "latin":
        return _latin_language(text) or "latin"
    if not group and context:
        return detect_language(context)
    return "ko" if group == "hangul" else group


def question_language(question: str, documents: Iterable[str] = ()) -> str:
    """Tell the language that a question is to be answered in.

    Where it does not tell itself, the documents decide: of Han characters only it is Chinese where they are Chinese,
    and otherwise Japanese; a name or two in Latin letters (VPN), or a number, may be asked in any language.

    Args:
        question: The question.
        documents: The languages of the documents, the likeliest first.

    Returns:
        A key of `LANGUAGE_NAMES`, as `detect_language` returns it.
    """
    language = detect_language(question)
    if language == "zh" and not _is_simplified(question) and not _CHINESE_ONLY.search(question):
        return next((known for known in documents if known in ("ja", "zh")), "ja")
    latin_words = re.findall(_GROUPS["latin"], question.lower())
    is_name = len(latin_words) <= _MOST_WORDS_OF_NAME and STOP_WORDS.isdisjoint(latin_words)
    if language in ("", "latin") and is_name:
        return next(iter(documents), language)
    return language


def latin_language(text: str, least_words: int = 12) -> str:
    """Tell whether a text in Latin script is English ("en") or not ("latin"); "" where it says neither.

    Args:
        text: The text.
        least_words: How many words it has at least where it says anything by them.
    """
    language = _latin_language(text, least_words)
    if language:
        return language
    latin_words = re.findall(_GROUPS["latin"], text.lower())
    accented = sum(not word.isascii() for word in latin_words)
    return "latin" if accented > max(2, _LEAST_ACCENTED * len(latin_words)) else ""


def is_english(text: str, context: str = "") -> bool:
    """Tell whether a text is in English; a few words in Latin script are, and so is a text without letters.

    Args:
        text: Any text.
        context: What surrounds it: it decides for a text that has no letters.
    """
    return detect_language(text, context) in ("en", "latin", "") and _latin_language(text) != "latin"


def find_wrong_language(text: str, propositions: Sequence[str]) -> str | None:
    """Tell whether propositions are in another language than their passage.

    It looks for propositions that mostly consist of letters in another script that are not in the passage, so that
    names, numbers and code are no mistake in any language; for Chinese in place of Japanese and the reverse; and,
    in longer texts, for English in place of another language in Latin script and the reverse. Two other languages
    in one script (Spanish and Portuguese, Ukrainian and Russian) are not told apart.

    Args:
        text: The passage.
        propositions: What the model made of it.

    Returns:
        The language that was found instead (a key of `LANGUAGE_NAMES`), or None where nothing is wrong.
    """
    passage = _prose_weights(text)
    group = _dominant(passage)
    if not group or sum(passage.values()) < _LEAST_WEIGHT or passage[group] < 0.75 * sum(passage.values()):
        return None
    reply = "\n".join(propositions)
    other_scripts = _weights(reply).keys() - {group}
    known = set(chain.from_iterable(_units(text).values())) if other_scripts else set()
    for proposition in propositions if other_scripts else ():
        others = {name: units for name, units in _units(proposition).items() if name != group}
        new = sum(_weight(name, [unit for unit in units if unit not in known]) for name, units in others.items())
        if new >= _LEAST_WEIGHT and new > 2 * _weights(proposition).get(group, 0.0):
            return detect_language(proposition if _dominant(_weights(reply)) == group else reply)
    if group == "cjk":
        return _wrong_in_han(text, propositions)
    expected, found = (_latin_language(one) if group == "latin" else "" for one in (text, reply))
    return found if expected and found and expected != found else None


_MOST_WORDS_OF_NAME = 2
_LEAST_ACCENTED = 0.1  # of the words; Vietnamese, French and German have more, English with names in it fewer
_LEAST_WEIGHT = 3.0  # words; in less text than this, a name decides the script

_KANA = re.compile(r"[\u3041-\u309f\u30a1-\u30fa\u30fd-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_HAN = re.compile(r"[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff\uff21-\uff3a\uff41-\uff5a"
_GROUPS = {
    "cjk": rf"{_KANA.pattern}|{_HAN.pattern}",
    "latin": rf"[{LATIN}]+(?:['’][{LATIN}]+)*",
    "hangul": r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]+",
    "cyrillic": r"[\u0400-\u052f]+",
    "greek": r"[\u0370-\u03ff\u1f00-\u1fff]+",
    "arabic": r"[\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff]+",
    "hebrew": r"[\u0590-\u05ff]+",
    "devanagari": r"[\u0900-\u097f]+",
    "thai": r"[\u0e00-\u0e7f]+",
    # Armenian; Bengali to Sinhala, such as Tamil; Lao, Tibetan, Burmese, Georgian; Ethiopic; Khmer, Mongolian
    "other": r"[\u0530-\u058f\u0980-\u0dff\u0e80-\u10ff\u1200-\u139f\u1780-\u18af]+",
}
_SCRIPTS = {name: re.compile(pattern) for name, pattern in _GROUPS.items()}
# Latin words among other letters are names and code; three in a row may be a phrase.
_LATIN_PHRASE = re.compile(rf"[{LATIN}'’]+(?:[ \t,\n-]+[{LATIN}'’]+){{2,}}")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)


def _units(text: str) -> dict[str, list[str]]:
    """The words of a text, and its characters where words are not separated, by their script."""
    text = text.lower()
    letters = "".join({*text})  # a text of a thousand has some fifty
    return {name: script.findall(text) for name, script in _SCRIPTS.items() if script.search(letters)}


def _weight(group: str, units: Sequence[str]) -> float:
    """Measure units in words; a word takes about two characters of Chinese or Japanese, about four of Thai."""
    if group == "thai":
        return sum(max(1.0, len(unit) / 4) for unit in units)
    return len(units) / 2 if group == "cjk" else float(len(units))


def _weights(text: str) -> dict[str, float]:
    return {group: _weight(group, units) for group, units in _units(text).items()}


@lru_cache(maxsize=1024)  # a passage is looked at before it is asked for, and again with its reply
def _prose_weights(text: str) -> Mapping[str, float]:
    """Weigh a text without its code, and with little weight on the Latin names among other letters."""
    prose = _CODE.sub(" ", text)
    weights = _weights(prose) or _weights(text)
    if "latin" in weights and len(weights) > 1:
        phrases = sum(len(phrase.split()) for phrase in _LATIN_PHRASE.findall(prose))
        weights["latin"] = min(weights["latin"], phrases) + max(0.0, weights["latin"] - phrases) / 3
    return weights


def _dominant(weights: Mapping[str, float]) -> str:
    return max(weights, key=lambda group: weights[group]) if weights else ""


# Characters of everyday Chinese that Japanese writes differently or hardly uses; and the reverse.
_CHINESE = re.compile(r"[的们們这這那个她它你您吗嗎呢吧说說对對从從给給让讓还還很]")
_CHINESE_ONLY = re.compile(r"[们們这這那她它你您吗嗎呢吧让讓还還很]")  # 的 and 說 are in Japanese compounds
_JAPANESE_HAN = re.compile(r"[々〆働込畑峠辻枠腺栃匂円広売変黒沢浜駅拠図実対応辺関県竜鉄総戦価氷歳]")


def _is_japanese_only(text: str) -> bool:
    return bool(_JAPANESE_HAN.search(text)) and not _is_simplified(text)


def _is_simplified(text: str) -> bool:
    """Whether a Han character of it is in no standard for Japanese."""
    return not all(one.encode("euc_jis_2004", "ignore") or one.encode("cp932", "ignore") for one in _HAN.findall(text))


def _wrong_in_han(text: str, propositions: Sequence[str]) -> str | None:
    reply = "".join(propositions)
    kana, han = len(_KANA.findall(text)), len(_HAN.findall(text))
    reply_kana, reply_han = len(_KANA.findall(reply)), len(_HAN.findall(reply))
    without_kana = "".join(one for one in propositions if not _KANA.search(one))
    if detect_language(text) == "ja" and _is_simplified(without_kana) and not _is_simplified(text):
        return "zh"
    if kana * 4 >= han and kana >= 4:  # a Japanese text, not a list of names
        return "zh" if reply_han >= 16 and reply_kana * 20 < reply_han else None
    is_chinese = kana == 0 and han >= 20 and len(_CHINESE.findall(text)) * 25 >= han and not _is_japanese_only(text)
    return "ja" if is_chinese and reply_kana >= 8 and reply_kana * 4 >= reply_han else None


_ENGLISH = words(
    "the of and to that with by from which were was his are for this at it had been she he they her their its has have"
    " not could should would who where when after before between into than about"
)
# French, German, Spanish, Italian, Portuguese, Dutch, Swedish, Danish, Polish, without what is an English word too.
_NOT_ENGLISH = words(
    "le la les des du est et une dans que qui par pour sur aux ses ce cette avec il au der das und ist ein eine von mit"
    " dem zu auf für nicht sich wurde el los las de del y en es una por con su fue para al se di è della per nel gli"
    " sono dei um uma da dos das foi com na os em het een van op te dat voor zijn werd aan niet ook och att det som är"
    " av på til af og ikke w z się jest nie że"
)


@lru_cache(maxsize=1024)  # as above
def _latin_language(text: str, least_words: int = 12) -> str:
    """Tell English from other languages in Latin script by frequent words; "" where too few of them say so."""
    found = re.findall(_GROUPS["latin"], text.lower())
    english, other = sum(map(_ENGLISH.__contains__, found)), sum(map(_NOT_ENGLISH.__contains__, found))
    if len(found) < least_words or max(english, other) < 0.15 * len(found):
        return ""
    return "en" if english >= 3 * other else "latin" if other >= 3 * english else ""
