"""Whether propositions say what their passage says and can be understood alone. Pure: texts in, findings out.

Rules and short lists, measured on English and Japanese with `benchmarks/checks.py`: no model and no
dictionary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from llama_pack_densex.propositionizers.alignment import Span, align
from llama_pack_densex.propositionizers.base import (
    Finding,
    Passage,
    PropositionSet,
)
from llama_pack_densex.propositionizers.checks.coverage import Gap, uncovered
from llama_pack_densex.propositionizers.checks.names import ungrounded_names
from llama_pack_densex.propositionizers.checks.numbers import ungrounded_numbers
from llama_pack_densex.propositionizers.checks.pronouns import (
    unresolved_reference,
)
from llama_pack_densex.propositionizers.checks.texts import (
    Source,
    Text,
    taken_apart,
)
from llama_pack_densex.propositionizers.replies import unique
from llama_pack_densex.text.language import (
    LANGUAGE_NAMES,
    LATIN,
    find_wrong_language,
)
from llama_pack_densex.text.segments import segment, statements
from llama_pack_densex.text.tokens import STOP_WORDS, words


def check_propositions(passage: Passage, propositions: Sequence[str]) -> list[Finding]:
    """Look for what is wrong with the propositions of a passage.

    - *grounding*: a number, date, unit, quotation or name that is neither in the passage nor in its title,
      section or context, or a number that is elsewhere in the passage than what is said of it. Numbers are
      compared by what they mean ("twenty-three", 二十三, 23), those in a name (37signals) as a part of it, names
      without inflection and with what they are abbreviated to; what is missing is reported where it comes
      first. How names are written is known of English and Japanese only.
    - *language*: another one than the passage's.
    - *self_containedness*: an English or Japanese pronoun or demonstrative that nothing before it explains.
    - *duplication*: the words of an earlier proposition.
    - *coverage*: a sentence, list item or row of the passage that no proposition says, or of which none says
      a number or name (see `coverage.uncovered`).
    - *size*: a single word, or the whole of a passage of several sentences.

    Rows of tables and code blocks that stand as propositions are not looked at.

    Args:
        passage: The passage with its title, section and context.
        propositions: What was made of it.

    Returns:
        What was found, check by check, in the order of the propositions; nothing where all is well.
    """
    parts = segment(passage.text, passage.context)
    whole = {part.row or passage.text[part.start : part.end] for part in parts if part.kind in ("row", "code")}
    stated = {i: taken_apart(text) for i, text in enumerate(propositions) if text.strip() and text not in whole}
    sources = align(passage.text, [propositions[index] for index in stated], passage.context)
    source = Source(passage, " ".join(text.plain for text in stated.values()))
    checks = _Checks(passage.text, source)
    findings = [*_other_language(passage.text, propositions)]
    for (index, text), spans in zip(stated.items(), sources, strict=True):
        sentences = "\n".join(passage.text[slice(*span)] for span in spans)
        findings += checks.faults(index, text, taken_apart(sentences))
    gaps = uncovered(passage.text, propositions, passage.context)
    return findings + [_missing(gap, passage.text) for gap in gaps]


class _Checks:
    """Checks of propositions one by one, in their order: what was said before is a repetition.

    Args:
        passage: The passage's text.
        source: The passage, taken apart.
    """

    def __init__(self, passage: str, source: Source) -> None:
        self._passage = passage
        self._source = source
        self._reported: set[str] = set()
        self._first_to_say: dict[tuple[str, ...], int] = {}

    def faults(self, index: int, text: Text, sentences: Text) -> Iterator[Finding]:
        """What is wrong with a proposition that some sentences of the passage say."""
        numbers = ungrounded_numbers(text, self._source, sentences)
        for reason in (*numbers, *ungrounded_names(text, self._source)):
            if reason not in self._reported:
                self._reported.add(reason)
                yield Finding("grounding", index, None, reason)
        if reason := unresolved_reference(text, self._source):
            yield Finding("self_containedness", index, None, reason)
        first = self._first_to_say.setdefault(_words_of(text), index)
        if first != index:
            yield Finding("duplication", index, None, f"it says what proposition {first + 1} says")
        if reason := _wrong_size(text, self._passage, self._source):
            yield Finding("size", index, None, reason)


def checked(passage: Passage, made: PropositionSet) -> PropositionSet:
    """A set with what is wrong with its propositions.

    Whatever makes or looks up propositions calls this, not what makes nodes of them: it knows that a text is
    a statement about the passage, and not one of its own sentences.
    """
    if made.status == "fallback":
        return made
    return replace(made, findings=tuple(check_propositions(passage, made.texts)))


def is_better(findings: Sequence[Finding], before: Sequence[Finding]) -> bool:
    """Whether there are fewer findings than before, and more of no kind."""
    now = Counter(finding.kind for finding in findings)
    earlier = Counter(finding.kind for finding in before)
    return now.total() < earlier.total() and now <= earlier


def settled(passage: Passage, made: PropositionSet) -> PropositionSet:
    """A checked set with the passage's own sentences: in place of what is not grounded, and for what nothing
    says.

    What was found of these stays among the findings, so that it is counted.
    """
    texts = [*made.texts]
    standing_in: list[tuple[str, Finding]] = []
    while wrong := _replaceable(passage, texts):
        for index, finding in wrong.items():
            texts[index] = _source_of(texts[index], passage)
            standing_in.append((texts[index], finding))
    stated = {statement.span: statement.text for statement in statements(passage.text, passage.context)}
    for gap in uncovered(passage.text, texts, passage.context):
        sentence = stated[gap.span]
        standing_in.append((sentence, _missing(gap, passage.text)))
        texts.append(sentence)
    if not standing_in:
        return made
    made = checked(passage, replace(made, texts=unique(texts)))
    settled_findings = (
        replace(
            finding,
            proposition=made.texts.index(text),
            reason=f"{finding.reason}; its sentence stands in",
        )
        for text, finding in standing_in
        if text in made.texts
    )
    return replace(made, findings=(*settled_findings, *made.findings))


def _replaceable(passage: Passage, texts: Sequence[str]) -> dict[int, Finding]:
    """What is not grounded of the propositions that are no sentences of the passage."""
    return {
        finding.proposition: finding
        for finding in check_propositions(passage, texts)
        if finding.kind == "grounding"
        and finding.proposition is not None
        and texts[finding.proposition] not in passage.text
    }


def _source_of(proposition: str, passage: Passage) -> str:
    spans: tuple[Span, ...] = align(passage.text, [proposition], passage.context)[0]
    if spans:
        return passage.text[spans[0][0] : spans[-1][1]]
    return passage.sentences[0]


def _missing(gap: Gap, passage: str) -> Finding:
    return Finding("coverage", None, gap.span, gap.reason(passage))


def _other_language(passage: str, propositions: Sequence[str]) -> Iterator[Finding]:
    """The propositions in another language than the passage's; all of them where no single one is."""
    language = find_wrong_language(passage, propositions)
    if language is None:
        return
    wrong: list[int | None] = [i for i, text in enumerate(propositions) if find_wrong_language(passage, [text])]
    for index in wrong or [None]:
        yield Finding(
            "language",
            index,
            None,
            f"it is in {LANGUAGE_NAMES.get(language, 'another language')}",
        )


def _words_of(text: Text) -> tuple[str, ...]:
    """What is equal for propositions that say the same words, perhaps in another order, of the same names."""
    distinct = sorted(word for word in _WORD.findall(text.plain.lower()) if word not in _SMALL_WORDS)
    names = (token[0].lower() for token in text.tokens if token.lastgroup != "number" and not token[0].islower())
    return (
        *distinct,
        *(f"name: {name}" for name in names if name not in STOP_WORDS),
    )


def _wrong_size(text: Text, passage: str, source: Source) -> str:
    """Why a proposition is too short or too long; "" where it is not."""
    is_long = len(text.plain) >= _WHOLE * len(passage.strip()) and len(segment(text.plain)) > 1
    if is_long and sum(part.kind == "sentence" for part in segment(passage)) > 1:
        return "it is the whole passage of several sentences"
    return "it is a single word" if len(text.tokens) < 3 and _is_word(text, source.language) else ""


def _is_word(text: Text, language: str) -> bool:
    if language == "ja":
        return not _HIRAGANA.search(text.plain) and len(text.squeezed) < _LONGEST_WORD_JA
    return len(text.plain.split()) == 1 and all(token.lastgroup in _SPACED for token in text.tokens)


_WHOLE = 0.9  # of a passage's characters
_LONGEST_WORD_JA = 15  # letters
_SPACED = ("latin", "number")
_HIRAGANA = re.compile("[ぁ-ん]")
_WORD = re.compile(rf"[{LATIN}]+|\d+|[^\W{LATIN}\d_]")
_SMALL_WORDS = words("a an the は が も")
