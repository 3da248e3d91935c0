"""Checks that propositions are supported by their passage and can be understood alone. Pure: texts in,
findings out.

They are rules and short word lists, without a model or a dictionary, measured on English and Japanese with
`benchmarks/checks.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from llama_pack_densex.propositionizers.alignment import align
from llama_pack_densex.propositionizers.base import Finding, Passage, PropositionSet
from llama_pack_densex.propositionizers.checks.coverage import uncovered
from llama_pack_densex.propositionizers.checks.grounding import ungrounded
from llama_pack_densex.propositionizers.checks.opposites import turned
from llama_pack_densex.propositionizers.checks.pronouns import unresolved_reference
from llama_pack_densex.propositionizers.checks.texts import Ground, Text, taken_apart
from llama_pack_densex.propositionizers.replies import unique
from llama_pack_densex.text.language import LANGUAGE_NAMES, LATIN, find_wrong_language
from llama_pack_densex.text.layout import Span
from llama_pack_densex.text.segments import segment, statements
from llama_pack_densex.text.tokens import STOP_WORDS, words


def check_propositions(passage: Passage, propositions: Sequence[str]) -> list[Finding]:
    """Find faults in the propositions of a passage.

    - *grounding*: a number, date, unit, quotation or name that is neither in the passage nor in its title,
      section or context, or a number that the passage gives for something else; in English and Japanese also
      the opposite of what it says: a "not" too many or too few, "at most" for "at least", "must" for "may",
      "all" for "some". Numbers are compared by value
      ("twenty-three", 二十三, 23), those in a name (37signals) as a part of it; names are compared without
      inflection, and match their abbreviations. Each fault is reported once, for the first proposition that
      has it. Names are checked in English and Japanese only.
    - *language*: a language other than the passage's.
    - *self_containedness*: an English or Japanese pronoun or demonstrative that nothing before it explains.
    - *duplication*: the same words as an earlier proposition.
    - *coverage*: a sentence or list item of the passage that no proposition states, or a number or name
      in it that none mentions.
    - *size*: a single word, or the whole of a passage of several sentences.

    Table rows and code blocks that serve as propositions are not checked.

    Args:
        passage: The passage with its title, section and context.
        propositions: Its propositions.

    Returns:
        The faults; empty if there are none. First those of language, then the others in the order of the
        propositions, then those of coverage.

    Example:
        >>> from llama_pack_densex import Passage, check_propositions
        >>> passage = Passage("東京タワーは1958年に完成した。高さは333メートルである。", title="東京タワー")
        >>> propositions = ["東京タワーは1958年に完成した。", "それは高さ332メートルである。"]
        >>> for finding in check_propositions(passage, propositions):
        ...     print(finding)
        grounding: "332" is not in the passage
        self_containedness: nothing in it says what "それ" stands for
        coverage: no proposition says "333" of "高さは333メートルである。"
    """
    parts = segment(passage.text, passage.context)
    whole = {
        part.row or part.text_in(passage.text) for part in parts if part.kind in ("row", "code")
    }
    stated = {i: text for i, text in enumerate(propositions) if text.strip() and text not in whole}
    rows = {part.span: part.row for part in parts if part.row}
    return [
        *_other_language(passage.text, propositions),
        *_faults(passage, stated, rows),
        *uncovered(passage.text, propositions, passage.context),
    ]


def _faults(
    passage: Passage, propositions: dict[int, str], rows: Mapping[Span, str]
) -> Iterator[Finding]:
    """Check propositions one by one, in their order; the later of two with the same words is a duplicate.

    Args:
        passage: The passage.
        propositions: The propositions by their indices.
        rows: The texts of the rows of the passage's tables, with the names of their columns, by their spans.
    """
    stated = {i: taken_apart(proposition) for i, proposition in propositions.items()}
    ground = Ground(passage, " ".join(text.plain for text in stated.values()))
    sources = align(passage.text, [*propositions.values()], passage.context)
    reported: set[str] = set()
    first_to_say: dict[str, int] = {}
    for (index, text), spans in zip(stated.items(), sources, strict=True):
        statements = (rows.get(span, passage.text[slice(*span)]) for span in spans)
        sentences = taken_apart("\n".join(statements))
        faults = chain(ungrounded(text, ground, sentences), turned(text, ground, sentences))
        for reason in faults:
            if reason not in reported:
                reported.add(reason)
                yield Finding("grounding", index, None, reason)
        if reason := unresolved_reference(text, ground):
            yield Finding("self_containedness", index, None, reason)
        first = first_to_say.setdefault(_words_of(text), index)
        if first != index:
            yield Finding("duplication", index, None, f"it says what proposition {first + 1} says")
        if reason := _wrong_size(text, passage.text, ground):
            yield Finding("size", index, None, reason)


def checked(passage: Passage, propositions: PropositionSet) -> PropositionSet:
    """Return a set with the findings about its propositions; one with status "fallback" is not checked.

    Propositionizers call this, not the node parsers, since only a propositionizer knows whether a text is a
    statement about the passage or one of its own sentences.
    """
    if propositions.status == "fallback":
        return propositions
    return replace(propositions, findings=tuple(check_propositions(passage, propositions.texts)))


def is_better(findings: Sequence[Finding], earlier: Sequence[Finding]) -> bool:
    """Return whether there are fewer findings than before, and not more of any kind."""
    kinds = Counter(finding.kind for finding in findings)
    return len(findings) < len(earlier) and kinds <= Counter(finding.kind for finding in earlier)


def settled(passage: Passage, propositions: PropositionSet) -> PropositionSet:
    """Replace the ungrounded propositions of a checked set by their sentences, and add uncovered sentences.

    The faults that this resolves stay among the findings, so that they are counted.
    """
    texts = [*propositions.texts]
    standing_in = []
    while faults := _replaceable(passage, texts):
        for index, finding in faults.items():
            texts[index] = _source_of(texts[index], passage)
            standing_in.append((texts[index], finding))
    stated: dict[Span | None, str] = {
        statement.span: statement.text for statement in statements(passage.text, passage.context)
    }
    for finding in uncovered(passage.text, texts, passage.context):
        texts.append(stated[finding.span])
        standing_in.append((texts[-1], finding))
    if not standing_in:
        return propositions
    propositions = checked(passage, replace(propositions, texts=unique(texts)))
    findings = [
        replace(
            finding,
            proposition=propositions.texts.index(text),
            reason=f"{finding.reason}; its sentence stands in",
        )
        for text, finding in standing_in
        if text in propositions.texts
    ]
    return replace(propositions, findings=(*findings, *propositions.findings))


def _replaceable(passage: Passage, texts: Sequence[str]) -> dict[int, Finding]:
    """Return the grounding findings by proposition, except for propositions that occur in the passage."""
    faults = {}
    for finding in check_propositions(passage, texts):
        index = finding.proposition
        if finding.kind == "grounding" and index is not None and texts[index] not in passage.text:
            faults[index] = finding
    return faults


def _source_of(proposition: str, passage: Passage) -> str:
    spans = align(passage.text, [proposition], passage.context)[0]
    if not spans:
        return passage.sentences[0]
    return passage.text[spans[0][0] : spans[-1][1]]


def _other_language(passage: str, propositions: Sequence[str]) -> list[Finding]:
    """Find propositions in another language than the passage's.

    If only all of them together are long enough to tell, the one finding names no proposition.
    """
    language = find_wrong_language(passage, propositions)
    if language is None:
        return []
    reason = f"it is in {LANGUAGE_NAMES.get(language, 'another language')}"
    wrong = [i for i, text in enumerate(propositions) if find_wrong_language(passage, [text])]
    places: Sequence[int | None] = wrong or [None]
    return [Finding("language", place, None, reason) for place in places]


def _words_of(text: Text) -> str:
    """A key that is equal for propositions of the same words, if their names are in the same order."""
    all_words = [word for word in _WORD.findall(text.plain.lower()) if word not in _SMALL_WORDS]
    written = [token[0] for token in text.tokens if token.lastgroup != "number"]
    names = [word.lower() for word in written if not word.islower()]
    return " ".join([*sorted(all_words), "", *(name for name in names if name not in STOP_WORDS)])


def _wrong_size(text: Text, passage: str, ground: Ground) -> str:
    """Return why a proposition is too short or too long; "" if it is neither."""
    if len(text.tokens) < 3 and _is_word(text, ground.language):
        return "it is a single word"
    if len(text.plain) < _WHOLE * len(passage.strip()) or len(segment(text.plain)) < 2:
        return ""
    sentences = [part for part in segment(passage) if part.kind == "sentence"]
    if len(sentences) < 2:
        return ""
    return "it is the whole passage of several sentences"


def _is_word(text: Text, language: str) -> bool:
    if language == "ja":
        return not _HIRAGANA.search(text.plain) and len(text.squeezed) < _LONGEST_WORD_JA
    is_spaced = all(token.lastgroup in _SPACED for token in text.tokens)
    return is_spaced and language not in ("thai", "other") and len(text.plain.split()) == 1


_WHOLE = 0.9  # of a passage's characters
_LONGEST_WORD_JA = 15  # letters
_SPACED = ("latin", "number")
_HIRAGANA = re.compile("[ぁ-ん]")
_WORD = re.compile(rf"[{LATIN}]+|\d+|[^\W{LATIN}\d_]")
_SMALL_WORDS = words("a an the は が も")
