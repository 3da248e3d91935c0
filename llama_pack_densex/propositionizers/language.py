"""Which language a passage is in, and whether a reply is in another one. Pure; by Unicode scripts, not by a model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

LANGUAGE_NAMES = {
    "ja": "Japanese",
    "zh": "Chinese",
    "ko": "Korean",
    "en": "English",
    "fr": "French",
    "de": "German",
    "es": "Spanish",
    "it": "Italian",
    "pt": "Portuguese",
    "nl": "Dutch",
    "cyrillic": "a language in Cyrillic script",
    "greek": "Greek",
    "arabic": "a language in Arabic script",
    "hebrew": "Hebrew",
    "devanagari": "a language in Devanagari script",
    "thai": "Thai",
    "latin": "a language in Latin script",
}


def detect_language(text: str, context: str = "") -> str:
    """Tell the language of a text.

    Args:
        text: Any text.
        context: What surrounds it (title, headings): it decides between Japanese and Chinese for a text in Han
            characters only, and says everything where the text has no letters.

    Returns:
        A key of `LANGUAGE_NAMES`; a script ("latin", "cyrillic") where the script does not tell the language, and
        "" for a text without letters.
    """
    group = _dominant(_prose_weights(text)) or _dominant(_weights(text))
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


def find_wrong_language(text: str, propositions: Sequence[str]) -> str | None:
    """Tell whether propositions are in another language than their passage.

    It looks for propositions that mostly consist of letters in another script that are not in the passage, so that
    names, numbers and code are no mistake in any language; for Chinese in place of Japanese and the reverse; and,
    in longer texts, for English in place of another language in Latin script and the reverse. Two other languages
    in one script (Spanish for Portuguese, Ukrainian for Russian) are not told apart.

    Args:
        text: The passage.
        propositions: What the model made of it.

    Returns:
        The language that was found instead (a key of `LANGUAGE_NAMES`), or None where nothing is wrong.
    """
    passage = _prose_weights(text) or _weights(text)
    group = _dominant(passage)
    if not group or sum(passage.values()) < _LEAST_WEIGHT or passage[group] < 0.75 * sum(passage.values()):
        return None
    known = set(_units(text))
    for proposition in propositions:
        weights = _weights(proposition)
        new = Counter[str]()
        for unit in _units(proposition):
            if unit not in known:
                new[_group(unit)] += _weight(unit)
        del new[group]
        if sum(new.values()) >= _LEAST_NEW and sum(new.values()) > weights[group]:
            return detect_language(proposition)
    reply = "\n".join(propositions)
    if group == "cjk":
        return _wrong_in_han(text, reply)
    if group == "latin":
        return _wrong_in_latin(text, reply)
    return None


_LEAST_WEIGHT = 3.0  # words; in less text than this, a name decides the script
_LEAST_NEW = 3.0

_KANA = re.compile(r"[\u3041-\u309f\u30a1-\u30fa\u30fd-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_HAN = re.compile(r"[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff\uff21-\uff3a\uff41-\uff5a"
_GROUPS = {
    "cjk": re.compile(rf"{_KANA.pattern}|{_HAN.pattern}"),
    "latin": re.compile(rf"[{_LATIN}]+(?:['’][{_LATIN}]+)*"),
    "hangul": re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]+"),
    "cyrillic": re.compile(r"[\u0400-\u052f]+"),
    "greek": re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]+"),
    "arabic": re.compile(r"[\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff]+"),
    "hebrew": re.compile(r"[\u0590-\u05ff]+"),
    "devanagari": re.compile(r"[\u0900-\u097f]+"),
    "thai": re.compile(r"[\u0e00-\u0e7f]+"),
}
_UNIT = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in _GROUPS.values()))
# Latin words that stand alone between other letters are names and code; four in a row are a phrase.
_LATIN_PROSE = re.compile(rf"[{_LATIN}'’]+(?:[ \t,\n-]+[{_LATIN}'’]+){{3,}}")


def _units(text: str) -> list[str]:
    """Split a text into words, and into characters where words are not separated."""
    return [unit.lower() for unit in _UNIT.findall(text)]


def _group(unit: str) -> str:
    return next(name for name, pattern in _GROUPS.items() if pattern.match(unit))


def _weight(unit: str) -> float:
    """Measure a unit in words; a word takes about two characters of Chinese or Japanese, about four of Thai."""
    return 0.5 if _GROUPS["cjk"].match(unit) else max(1.0, len(unit) / 4) if _GROUPS["thai"].match(unit) else 1.0


def _weights(text: str) -> Counter[str]:
    weights = Counter[str]()
    for unit in _units(text):
        weights[_group(unit)] += _weight(unit)
    return weights


def _prose_weights(text: str) -> Counter[str]:
    """Weigh a text without the names and the code in Latin letters; empty where nothing else is in it."""
    weights = _weights(text)
    if set(weights) != {"latin"}:
        weights["latin"] = sum(len(run.split()) for run in _LATIN_PROSE.findall(text))
    return +weights


def _dominant(weights: Counter[str]) -> str:
    return weights.most_common(1)[0][0] if weights else ""


# Characters of everyday Chinese that Japanese writes differently or hardly uses; and the reverse.
_CHINESE = re.compile(r"[的们們这這那个她它你您吗嗎呢吧说說对對从從给給让讓还還很]")
_SIMPLIFIED = re.compile(r"[们这为说对从给让还吗际发现过时间关开经动车东书长见问门马鸟产业]")
_JAPANESE_HAN = re.compile(r"[々〆働込畑峠辻枠腺栃匂円広売変黒沢浜駅拠図実対応辺関県竜鉄総戦価氷歳]")


def _is_japanese_only(text: str) -> bool:
    return bool(_JAPANESE_HAN.search(text)) and not _SIMPLIFIED.search(text)


def _wrong_in_han(text: str, reply: str) -> str | None:
    kana, han = len(_KANA.findall(text)), len(_HAN.findall(text))
    reply_kana, reply_han = len(_KANA.findall(reply)), len(_HAN.findall(reply))
    if kana * 4 >= han and kana >= 4:  # a Japanese text, not a list of names
        return "zh" if reply_han >= 16 and reply_kana * 20 < reply_han else None
    is_chinese = kana == 0 and han >= 20 and len(_CHINESE.findall(text)) * 25 >= han and not _is_japanese_only(text)
    return "ja" if is_chinese and reply_kana >= 8 and reply_kana * 4 >= reply_han else None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STOP_WORDS = {
    "en": _words("the of and to that with by from which were was his are for this at it had been"),
    "fr": _words("le la les des du est et une dans que qui par pour sur au aux ses ce cette avec il"),
    "de": _words("der die das und ist ein eine von mit den dem des wurde zu auf für im nicht sich war"),
    "es": _words("el la los las de del y en que es una un por con su fue para al se"),
    "it": _words("il di che e è un una della del per con nel la le gli fu sono dei si"),
    "pt": _words("o os as de do da dos das e é em um uma que foi para com no na por"),
    "nl": _words("de het een en van is op te dat met voor zijn door werd aan niet ook"),
}


def _latin_language(text: str, least_words: int = 12) -> str:
    """Tell the language by its most frequent words; "" where the text is short or undecided."""
    words = _GROUPS["latin"].findall(text.lower())
    if len(words) < least_words:
        return ""
    shares = {code: sum(word in stop for word in words) / len(words) for code, stop in _STOP_WORDS.items()}
    (best, share), (_, second) = sorted(shares.items(), key=lambda item: -item[1])[:2]
    return best if share >= 0.15 and share >= 1.3 * second else ""


def _wrong_in_latin(text: str, reply: str) -> str | None:
    expected, found = _latin_language(text, 15), _latin_language(reply)
    is_wrong = expected and found and expected != found and "en" in (expected, found)
    return found if is_wrong else None
