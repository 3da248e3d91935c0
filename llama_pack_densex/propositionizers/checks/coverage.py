"""The coverage check: statements of a passage that no proposition makes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from llama_pack_densex.propositionizers.alignment import compare
from llama_pack_densex.propositionizers.base import Finding
from llama_pack_densex.propositionizers.checks.grounding import is_common_katakana, shortened
from llama_pack_densex.propositionizers.checks.texts import ADDRESS, Text, occurs, taken_apart
from llama_pack_densex.text.language import detect_language
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.plain import LIST_MARKER
from llama_pack_densex.text.tokens import STOP_WORDS, has_words, normal


def uncovered(passage: str, propositions: Sequence[str], context: str = "") -> list[Finding]:
    """Find statements of a passage that no proposition makes.

    A sentence is missing if the propositions that have it as a source cover less than half of it. In other
    sentences, numbers and names are missing that occur in no proposition. Headings, greetings, questions,
    pointers to other pages, and sentences that announce what follows ("as follows:") state nothing. Table
    rows and code blocks are not checked, since they become units of their own in any case. Names are
    capitalised words in English, and words in katakana and Latin letters in Japanese.

    Args:
        passage: The text of a passage.
        propositions: Its propositions, in any order.
        context: The Markdown before the passage.

    Returns:
        The findings in the order of the passage, at most one per sentence.
    """
    comparison = compare(passage, tuple(propositions), context)
    sentences = comparison.sentences
    covered = {sentence for place, sentence in enumerate(sentences) if comparison.is_said(place)}
    terms = _Terms(propositions, detect_language(passage))
    findings = []
    followers = [*sentences[1:], ""]
    for region, sentence, following in zip(comparison.segments, sentences, followers, strict=False):
        goes_on = following != "" and "\n" not in passage[region.end :].partition(following)[0]
        if region.kind != "sentence" or states_nothing(sentence, following, goes_on):
            continue
        quoted = shortened(sentence).replace('"', "'")
        missing = f'"{quoted}"'
        if sentence in covered:
            missing_terms = [f'"{shortened(term)}"' for term in terms.missing_in(sentence)]
            if not missing_terms:
                continue
            missing = f"{', '.join(missing_terms)} of {missing}"
        findings.append(Finding("coverage", None, region.span, f"no proposition says {missing}"))
    return findings


def states_nothing(sentence: str, following: str, goes_on: bool = False) -> bool:
    """Return whether a sentence or list item decorates, greets, asks, announces or points elsewhere.

    Args:
        sentence: The sentence as written.
        following: The sentence after it.
        goes_on: Whether its line goes on with that, as in "1. **Budget.** It was ...".
    """
    shown = _TEMPLATE.sub("", sentence)
    marked_words = searchable_text(shown).strip()
    words = _without_marker(marked_words)
    if not has_words(ADDRESS.sub("", _LINK.sub("", shown))) or _NOTHING.search(words):
        return True
    is_item = words != marked_words
    is_marked = _MARKED.fullmatch(_without_marker(sentence.strip())) is not None
    if (is_item or is_marked) and goes_on and _NAME_OF_ITEM.fullmatch(words):
        return True
    is_sentence = _SENTENCE_END.search(words) is not None
    if not is_item and LIST_MARKER.match(following):  # it introduces a list
        return not is_sentence or _BELOW.search(words) is not None
    return is_marked and not is_sentence


def _without_marker(sentence: str) -> str:
    """Return a sentence without what marks it as an item, a clause ("2.1") or a question ("Q.")."""
    marker = LIST_MARKER.match(sentence) or _CLAUSE.match(sentence)
    if marker:
        return sentence[marker.end() :]
    return sentence


class _Terms:
    """The numbers and names of propositions, and those that were reported as missing.

    Args:
        propositions: The propositions.
        language: The passage's language.
    """

    def __init__(self, propositions: Sequence[str], language: str) -> None:
        stated = [taken_apart(text) for text in propositions]
        self._text = normal("\n".join(text.plain for text in stated))
        self._values = {
            value for text in stated for number in text.numbers for value in number.values
        }
        self._names = _NAMES.get(language, _NO_NAMES)

    def missing_in(self, sentence: str) -> Iterator[str]:
        """Yield the numbers and names of a sentence that occur in no proposition, each only once."""
        text = taken_apart(_TEMPLATE.sub("", _without_marker(sentence)))
        yield from self._missing_numbers(text)
        yield from self._missing_names(text)

    def _missing_numbers(self, text: Text) -> Iterator[str]:
        for number in text.numbers:
            is_stated = self._has(number.name) if number.is_glued else self._values & number.values
            is_footnote = text.plain[number.start - 1 : number.start] == "["
            if number.shown[0].isdecimal() and not is_stated and not is_footnote:
                self._values |= number.values
                yield number.name or number.shown

    def _missing_names(self, text: Text) -> Iterator[str]:
        for name in self._names.finditer(text.plain):
            is_common = normal(name[0]) in STOP_WORDS or is_common_katakana(name[0])
            if is_common or self._has(name[0]):
                continue
            gloss = _GLOSS.match(text.plain, name.end())
            gloss = gloss or _GLOSSED.search(text.plain, 0, name.start())
            if not gloss or not self._has(gloss[1]):
                self._text += f" {normal(name[0])}"
                yield name[0]

    def _has(self, name: str) -> bool:
        """Return whether a name occurs, in any inflection: "Norwegian" counts for "Norwegians"."""
        return occurs(normal(name), self._text) > 0


_LATIN = "[a-zà-ɏ]"
_NO_NAMES = re.compile("(?!)")
_NAMES = {  # in Japanese, katakana and Latin letters after a number are its unit
    "en": re.compile(
        r"(?<=[\w,;][ -])(?!(?:[DMJS]r|Mrs|Ms|Prof|Inc|Ltd|Co|Corp)\b)[A-Z][a-zA-ZÀ-ɏ]+"
    ),
    "ja": re.compile(r"(?<![\dァ-ヺーA-Za-zÀ-ɏ])(?:[ァ-ヺー]{3,}|[A-Za-zÀ-ɏ]{2,})"),
}
_GLOSS = re.compile(r" ?\((\w[^()]*)\)")
_GLOSSED = re.compile(r"(\w+) ?\(\Z")


# templates of Hugo and Jinja, and attributes in Markdown
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{[.#:][^{}\n]*\}")
_CLAUSE = re.compile(r"(?:\d{1,3}(?:\.\d{1,3})+ +(?=[A-Z]|[^\x00-\x7f])|[QA]\d{0,2}[.:．：])\s*")
_NAME_OF_ITEM = re.compile(
    rf"\W*(?:{_LATIN}+(?: {_LATIN}+){{0,2}}|[^\W\d]{{1,6}}|[^\W\d]{{1,12}}について)[.。]?\W*(?<!:)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?。！？][\W_]*$")
# wholly bold, italic or in tags: a heading without heading markup
_MARKED = re.compile(
    r"(?:\*{1,3}[^*\n]+\*{1,3}|_{1,3}[^_\n]+_{1,3}|<(summary|strong|b|dt|th)\b.*</\1>)",
    re.DOTALL,
)
_BELOW = re.compile(r"以下|次の|\b(?:following|below)\b", re.IGNORECASE)
_LINK = re.compile(
    r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*(?<![.!?。！？])\]"
    r"(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\[\]]*\])?"
)
_ANNOUNCES = r"[:：]\W*$|\bas follows\W*$|(?:以下|次)の(?:通り|とおり|よう)"
_ASKS = r"[?？][\W_]*$|(?:です|ます|でしょう)か。?$"
_LEADS_ELSEWHERE = (
    r"^\W*(?:詳細|詳しく|くわしく)(?:は|に(?:ついて|関して)は?|を)|^\W*(?:関連|参考|参照)\w{0,5}[:：]"
    r"|^\W*\w{0,12}は?(?:こちら|ここ)\W*$|^\W*(?:read|learn|find out) more\b|^\W*click here\b"
    r"|^\W*(?:please )?(?:see|refer to|visit|check out|read)\b"
    r".*\b(?:here|more|details|information|below|above)\b"
    r"|^\W*for (?:more|further|full|additional|details)\b.*\b(?:see|visit|refer|read|check|contact|go to)\b"
)
_GREETS = (
    r"^\W*(?:ようこそ|こんにち[はわ]|おめでとう|お疲れ|ありがとう)|(?:ありがとうございま\w+|よろしくお願い\w*)\W*$"
    r"|^\W*(?:welcome(?: to\b|\W*$)|(?:hello|hi)(?=\W*$|[,!])|(?:hello|hi|dear) [\w ]{1,40},$"
    r"|thank you\b|thanks\b(?! to\b)"
    r"|congratulations\b|good luck\b"
    r"|(?:best(?: regards| wishes)?|(?:kind )?regards|sincerely(?: yours)?|cheers)\W*$)"
)
_NOTHING = re.compile("|".join((_ANNOUNCES, _ASKS, _LEADS_ELSEWHERE, _GREETS)), re.IGNORECASE)
