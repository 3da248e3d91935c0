"""Language detection by Unicode scripts and frequent words, without a model. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, filterfalse

from llama_pack_densex.text.tokens import (
    FOREIGN_WORDS,
    STOP_WORDS,
    count_function_words,
    plain_words,
    words,
)

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
WITHOUT_SPACES = words("ja zh th thai lo km my")
"""Languages that put no spaces between words."""


def detect_language(text: str, context: str = "") -> str:
    """Detect the language of a text.

    Args:
        text: Any text.
        context: What surrounds it (title, headings). It decides between Japanese and Chinese for a text in
            Han characters only, and is used alone if the text has no letters.

    Returns:
        A key of `LANGUAGE_NAMES`: a language, or only its script ("cyrillic"; "latin" for all but English,
        and for a few words in any language); "" for a text without letters.
    """
    script = _dominant(_prose_weights(text))
    if script == "cjk":
        return _language_in_han(text, context)
    if script == "latin":
        return _latin_language(text) or "latin"
    if not script and context:
        return detect_language(context)
    return "ko" if script == "hangul" else script


def _language_in_han(text: str, context: str) -> str:
    kana, han = _count_kana_and_han(text)
    if kana and kana * 20 >= han:
        return "ja"
    kana_around, _ = _count_kana_and_han(context)
    is_amid_japanese = han < 4 * kana_around
    if is_amid_japanese or _is_japanese_only(text):
        return "ja"
    return "zh"


def question_language(question: str, documents: Iterable[str] = ()) -> str:
    """Return the language in which a question is to be answered.

    If the question leaves it open, the documents decide: a question in Han characters that Japanese has too
    is Chinese if they are Chinese, else Japanese; a name of one or two words in Latin letters (VPN), or a
    number, takes their most likely language.

    Args:
        question: The question.
        documents: The languages of the documents, the most likely first.

    Returns:
        A key of `LANGUAGE_NAMES` or "", as `detect_language` returns.
    """
    language = detect_language(question)
    if language == "zh" and not _is_simplified(question) and not _CHINESE_ONLY.search(question):
        return next((likely for likely in documents if likely in ("ja", "zh")), "ja")
    latin_words = _latin_words(question)
    is_name = len(latin_words) <= _MOST_WORDS_OF_NAME and STOP_WORDS.isdisjoint(latin_words)
    if language in ("", "latin") and is_name:
        return next(iter(documents), language)
    return language


def spoken_language(text: str) -> str:
    """Return the code of a text's language, such as "fr", by its function words; "" if these do not tell."""
    counts = count_function_words(text)
    counts["en"] = sum(word in STOP_WORDS for word in plain_words(text))
    (best, most), (_, next_most) = counts.most_common(2)
    if most == next_most:
        return ""
    return best


def latin_language(text: str, least_words: int = 12) -> str:
    """Return "en" for a text in Latin script that is English, "latin" for one that is not, "" if unclear.

    Args:
        text: The text.
        least_words: In a text of fewer words, only accented letters are considered.
    """
    language = _latin_language(text, least_words)
    if language:
        return language
    latin_words = _latin_words(text)
    accented = sum(not word.isascii() for word in latin_words)
    return "latin" if accented > max(2, _LEAST_ACCENTED * len(latin_words)) else ""


def is_english(text: str, context: str = "") -> bool:
    """Return whether a text is in English; a few words in Latin script and texts without letters count too.

    Args:
        text: Any text.
        context: What surrounds it, which decides for a text without letters.
    """
    language = detect_language(text, context)
    return language in ("en", "latin", "") and _latin_language(text) != "latin"


def find_wrong_language(text: str, propositions: Sequence[str]) -> str | None:
    """Detect propositions that are in another language than their passage.

    It finds propositions that consist mostly of words in another script which the passage does not have (so
    names, numbers and code are accepted in any language); Chinese in place of Japanese, and the reverse; and,
    in longer texts, English in place of another language in Latin script, and the reverse. Two other
    languages with the same script (Spanish and Portuguese, Ukrainian and Russian) are not distinguished.

    Args:
        text: The passage.
        propositions: The propositions that the model made of it.

    Returns:
        The language that was found instead (a key of `LANGUAGE_NAMES`), or None if nothing is wrong.
    """
    script = _script_of_prose(text)
    if not script:
        return None
    reply = "\n".join(propositions)
    reply_weights = _weights(reply)
    if reply_weights.keys() - {script}:
        in_other_script = _first_in_other_script(text, propositions, script)
        if in_other_script is not None:
            return detect_language(in_other_script if _dominant(reply_weights) == script else reply)
    if script == "cjk":
        return _wrong_in_han(text, propositions)
    if script == "latin":
        return _wrong_in_latin(text, reply)
    return None


def _script_of_prose(text: str) -> str:
    """Return the script of a text; empty if it is too short or too mixed to tell."""
    weights = _prose_weights(text)
    script = _dominant(weights)
    total = sum(weights.values())
    is_sure = total >= _LEAST_WEIGHT and weights[script] >= _LEAST_SHARE * total
    return script if is_sure else ""


def _first_in_other_script(text: str, propositions: Sequence[str], script: str) -> str | None:
    """Return the first proposition that consists mostly of words in another script which the passage
    does not have.
    """
    passage_units = set(chain.from_iterable(_units(text).values()))
    for proposition in propositions:
        units = _units(proposition)
        in_script = _weight(script, units.pop(script, []))
        in_others = 0.0
        for other_script, other_units in units.items():
            new_units = [unit for unit in other_units if unit not in passage_units]
            in_others += _weight(other_script, new_units)
        if in_others >= _LEAST_WEIGHT and in_others > 2 * in_script:
            return proposition
    return None


def _wrong_in_latin(text: str, reply: str) -> str | None:
    expected = latin_language(text)
    actual = _latin_language(reply)
    if "" in (expected, actual) or actual == expected:
        return None
    return actual


_MOST_WORDS_OF_NAME = 2
# of the words; Vietnamese, French and German have more, English with foreign names fewer
_LEAST_ACCENTED = 0.1
_LEAST_WEIGHT = 3.0  # words; in a shorter text, a name could decide the script
_LEAST_SHARE = 0.75  # of a passage's words in one script

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
# Latin words in text of another script are names and code; three in a row may be a phrase.
_LATIN_PHRASE = re.compile(rf"[{LATIN}'’]+(?:[ \t,\n-]+[{LATIN}'’]+){{2,}}")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)


def _units(text: str) -> dict[str, list[str]]:
    """Return the words of a text by script; of Chinese and Japanese, the characters."""
    text = text.lower()
    letters = "".join({*text})  # the distinct ones: some 50 in a text of 1,000
    return {
        name: script.findall(text) for name, script in _SCRIPTS.items() if script.search(letters)
    }


def _weight(script: str, units: Sequence[str]) -> float:
    """Return the number of words in units: a word has about two characters in Chinese or Japanese,
    about four in Thai.
    """
    if script == "thai":
        return sum(max(1.0, len(unit) / 4) for unit in units)
    if script == "cjk":
        return len(units) / 2
    return float(len(units))


def _latin_words(text: str) -> list[str]:
    return _SCRIPTS["latin"].findall(text.lower())


def _count_kana_and_han(text: str) -> tuple[int, int]:
    return len(_KANA.findall(text)), len(_HAN.findall(text))


def _weights(text: str) -> dict[str, float]:
    return {script: _weight(script, units) for script, units in _units(text).items()}


@lru_cache(maxsize=1024)  # a passage is examined before its request, and again with the reply
def _prose_weights(text: str) -> Mapping[str, float]:
    """Count a text's words by script, without code; Latin names in other scripts count a third."""
    prose = _CODE.sub(" ", text)
    weights = _weights(prose) or _weights(text)
    if "latin" in weights and len(weights) > 1:
        phrases = sum(len(phrase.split()) for phrase in _LATIN_PHRASE.findall(prose))
        in_names = max(0.0, weights["latin"] - phrases)
        weights["latin"] = min(weights["latin"], phrases) + in_names / 3
    return weights


def _dominant(weights: Mapping[str, float]) -> str:
    return max(weights, key=weights.__getitem__, default="")


# Everyday characters of Chinese that Japanese writes differently or hardly uses, and the reverse.
_CHINESE = re.compile(r"[的们們这這那个她它你您吗嗎呢吧说說对對从從给給让讓还還很]")
# those of them that are in no Japanese compound, unlike 的 and 說
_CHINESE_ONLY = re.compile(r"[们們这這那她它你您吗嗎呢吧让讓还還很]")
_JAPANESE_HAN = re.compile(
    r"[々〆働込畑峠辻枠腺栃匂円広売変黒沢浜駅拠図実対応辺関県竜鉄総戦価氷歳]"
)


def _is_japanese_only(text: str) -> bool:
    return bool(_JAPANESE_HAN.search(text)) and not _is_simplified(text)


def _is_simplified(text: str) -> bool:
    """Return whether a text has a Han character that no Japanese character set has."""
    return not all(map(_is_in_japanese_standard, _HAN.findall(text)))


def _is_in_japanese_standard(character: str) -> bool:
    return bool(character.encode("euc_jis_2004", "ignore") or character.encode("cp932", "ignore"))


def _wrong_in_han(text: str, propositions: Sequence[str]) -> str | None:
    kana, han = _count_kana_and_han(text)
    reply_kana, reply_han = _count_kana_and_han("".join(propositions))
    if _is_simplified_reply(text, propositions):
        return "zh"
    is_japanese = kana >= 4 and kana * 4 >= han  # as in prose; a list of names has fewer kana
    if is_japanese and reply_han >= 16 and reply_kana * 20 < reply_han:
        return "zh"
    is_reply_japanese = reply_kana >= 8 and reply_kana * 4 >= reply_han
    if is_reply_japanese and kana == 0 and _is_chinese(text, han):
        return "ja"
    return None


def _is_simplified_reply(text: str, propositions: Sequence[str]) -> bool:
    """Return whether propositions without kana are in simplified Chinese for a Japanese passage."""
    without_kana = "".join(filterfalse(_KANA.search, propositions))
    if not _is_simplified(without_kana) or _is_simplified(text):
        return False
    return detect_language(text) == "ja"


def _is_chinese(text: str, han: int) -> bool:
    is_usual = han >= 20 and len(_CHINESE.findall(text)) * 25 >= han
    return is_usual and not _is_japanese_only(text)


_ENGLISH = words(
    "the of and to that with by from which were was his are for this at it had been she he they her"
    " their its has have not could should would who where when after before between into than about"
)


_LEAST_FREQUENT = 0.15  # of the words
_AHEAD = 3  # times as many frequent words as the other side has


@lru_cache(maxsize=1024)  # as for `_prose_weights`
def _latin_language(text: str, least_words: int = 12) -> str:
    """Return "en" or "latin" (another language) by the frequent words of a text; "" if there are too
    few.
    """
    latin_words = _latin_words(text)
    english = sum(map(_ENGLISH.__contains__, latin_words))
    other = sum(map(FOREIGN_WORDS.__contains__, latin_words))
    if len(latin_words) < least_words or max(english, other) < _LEAST_FREQUENT * len(latin_words):
        return ""
    if english >= _AHEAD * other:
        return "en"
    if other >= _AHEAD * english:
        return "latin"
    return ""
