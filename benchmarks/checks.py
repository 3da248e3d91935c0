"""How well the checks of propositions find what is made wrong on purpose, and how often they accuse what is
right.

usage: python benchmarks/checks.py coverage [--embeddings] FILE...
       python benchmarks/checks.py spans FILE...
       python benchmarks/checks.py grounding FILE...
       python benchmarks/checks.py self-containedness FILE...
       python benchmarks/checks.py findings FILE...
       python benchmarks/checks.py time FILE...

The files are recorded propositions, as `densex export` prints them. Where a choice was made on one half of a
file's articles, figures are given for the other half too. Figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from llama_pack_densex import Passage, check_propositions
from llama_pack_densex.models import resolve_embed_model
from llama_pack_densex.propositionizers.alignment import align
from llama_pack_densex.propositionizers.base import FindingKind
from llama_pack_densex.propositionizers.checks.coverage import uncovered
from llama_pack_densex.text.language import detect_language
from llama_pack_densex.text.segments import segment

Span = tuple[int, int]
Says = Callable[["Recorded"], list[set[Span]]]
"""Which sentences each proposition says."""


@dataclass(frozen=True)
class Recorded:
    """A line of a file of recorded propositions."""

    file: str
    line: int
    title: str
    text: str
    propositions: list[str]
    chosen_on: bool  # whether choices were made on it
    section: str = ""

    @property
    def passage(self) -> Passage:
        return Passage(self.text, self.title, self.section)

    @property
    def language(self) -> str:
        """Japanese, or else English."""
        return "ja" if detect_language(f"{self.text}\n{self.title}") == "ja" else "en"

    @property
    def sentences(self) -> list[Span]:
        """The sentences that state something."""
        spans = [(part.start, part.end) for part in segment(self.text) if part.kind == "sentence"]
        return [span for span in spans if any(map(str.isalnum, self.text[slice(*span)]))]


def read(path: Path) -> list[Recorded]:
    """The lines of a file; every other title is of the half that choices were made on."""
    lines = [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    titles = sorted({line["title"] for line in lines})
    return [
        Recorded(
            file=path.name,
            line=i,
            title=line["title"],
            text=line["text"],
            propositions=line["propositions"],
            chosen_on=titles.index(line["title"]) % 2 == 0,
            section=line.get("section") or "",
        )
        for i, line in enumerate(lines)
    ]


def by_alignment(recorded: Recorded) -> list[set[Span]]:
    """The sentences that the alignment itself names."""
    found = align(recorded.text, recorded.propositions)
    return [
        {
            span
            for span in recorded.sentences
            for start, end in spans
            if span[0] < end and start < span[1]
        }
        for spans in found
    ]


def by_trigrams(recorded: Recorded) -> list[set[Span]]:
    """The sentence that shares most of a proposition's character trigrams; of several the shortest."""
    sentences = {span: _trigrams(recorded.text[slice(*span)]) for span in recorded.sentences}
    return [
        {
            max(
                sentences,
                key=lambda span: (len(_trigrams(text) & sentences[span]), -len(sentences[span])),
            )
        }
        for text in recorded.propositions
    ]


def _trigrams(text: str) -> set[str]:
    plain = re.sub(r"\W", "", text).casefold()
    return {plain[i : i + 3] for i in range(len(plain) - 2)}


def by_embeddings(recorded: Sequence[Recorded]) -> Says:
    """The sentence that is nearest by all-MiniLM-L6-v2, and those that are nearly as near."""
    model, _ = resolve_embed_model("minilm")
    assert model is not None
    texts = {text for one in recorded for text in one.propositions}
    texts |= {one.text[slice(*span)] for one in recorded for span in one.sentences}
    ordered = sorted(texts)
    vectors = dict(zip(ordered, model.get_text_embedding_batch(ordered), strict=True))

    def says(one: Recorded) -> list[set[Span]]:
        found: list[set[Span]] = []
        for text in one.propositions:
            near = {
                span: sum(
                    a * b
                    for a, b in zip(vectors[text], vectors[one.text[slice(*span)]], strict=True)
                )
                for span in one.sentences
            }
            found.append(
                {span for span, score in near.items() if score >= 0.97 * max(near.values())}
            )
        return found

    return says


def coverage(paths: Sequence[Path], embeddings: bool) -> None:
    """Print how many sentences are reported whose propositions were removed, and how many of complete
    sets."""
    print(
        "| file | articles | sentences | reported of complete sets | removed | who says which | reported |"
    )
    print("|---|---|---|---|---|---|---|")
    for path in paths:
        lines = [one for one in read(path) if one.sentences]
        for half in (True, False):
            chosen = [one for one in lines if one.chosen_on is half]
            wrong, total, half_name = 0, 0, "chosen on" if half else "held back"
            for one in chosen:
                missing = [gap.span for gap in uncovered(one.text, one.propositions)]
                total += len(one.sentences)
                wrong += sum(any(_touch(span, part) for part in missing) for span in one.sentences)
            ways: dict[str, Says] = {"alignment": by_alignment, "trigrams": by_trigrams}
            english = [one for one in chosen if detect_language(one.text) == "en"]
            if embeddings and english:
                ways["embeddings"] = by_embeddings(english)
            for way, says in ways.items():
                removed, found = _removal(english if way == "embeddings" else chosen, says)
                print(
                    f"| {path.name} | {half_name} | {total} | {wrong / total:.1%} | {removed} "
                    f"| {way} | {found / removed:.1%} |"
                )


def _removal(lines: Sequence[Recorded], says: Says) -> tuple[int, int]:
    """Of a third of each passage's sentences, how many were said, and how many are reported once nothing says
    them."""
    drawn = random.Random(7)
    removed = found = 0
    for one in lines:
        sentences = one.sentences
        third = set(drawn.sample(sentences, max(1, len(sentences) // 3)))
        said = says(one)
        third &= set().union(*said)
        left = [text for text, by in zip(one.propositions, said, strict=True) if not by & third]
        missing = [gap.span for gap in uncovered(one.text, left)]
        removed += len(third)
        found += sum(span in missing for span in third)
    return removed, found


def _touch(first: Span, second: Span) -> bool:
    return first[0] < second[1] and second[0] < first[1]


CHECKED = Path(__file__).with_name("spans_checked.jsonl")
"""Spans that a person has read: of each language 100 propositions, every so many-eth of those of the articles
that no choice was made on, in the order of the files. `line` and `proposition` count from 1, `spans` are in
the passage. They are "right" where they are the sentences that say the proposition, or the one with its fact
where another only tells who or what it is of.
"""


def spans(paths: Sequence[Path]) -> None:
    """Print how many of the spans that a person has read are still the same."""
    checked = [json.loads(line) for line in CHECKED.read_text(encoding="utf-8").splitlines()]
    print(
        "| file | read | right | right ones that are the same today | wrong ones that are another today |"
    )
    print("|---|---|---|---|---|")
    for path in paths:
        lines = read(path)
        listed = [one for one in checked if one["file"] == path.name]
        today = [
            align(lines[one["line"] - 1].text, lines[one["line"] - 1].propositions)
            for one in listed
        ]
        same = [
            [list(span) for span in found[one["proposition"] - 1]] == one["spans"]
            for one, found in zip(listed, today, strict=True)
        ]
        right = [
            is_same for one, is_same in zip(listed, same, strict=True) if one["verdict"] == "right"
        ]
        other = sum(not is_same for is_same in same) - sum(not is_same for is_same in right)
        print(f"| {path.name} | {len(listed)} | {len(right)} | {sum(right)} | {other} |")
        for one, is_same in zip(listed, same, strict=True):
            if one["verdict"] == "right" and not is_same:
                print(
                    f"{path.name}, line {one['line']}, proposition {one['proposition']}: another span",
                    file=sys.stderr,
                )


@dataclass(frozen=True)
class Corrupted:
    """A proposition with a mistake made by code."""

    recorded: Recorded
    index: int
    text: str
    kind: str


_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DATES = {
    "en": re.compile(rf"\b\d{{1,2}} {_MONTH}(?: \d{{4}})?|\b{_MONTH}(?: \d{{1,2}})?,? \d{{4}}"),
    "ja": re.compile(r"\d+年\d+月(?:\d+日)?|\d+月\d+日"),
}
_NUMBERS = {
    "en": re.compile(
        r"(?<![\w.,])\d[\d,.]*\d(?![\w])|(?<![\w.,-])\d(?![\w.,])"
        r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty)\b"
    ),
    "ja": re.compile(
        r"\d[\d,.]*(?:万\d*|億\d*)?|[二三四五六七八九十百]+(?=[つ年月日人回個種代位本台隻度点割倍])"
    ),
}
_NAMES_EN = re.compile(r"(?<=[a-z,] )[A-Z][\w'’-]*[a-z](?: [A-Z][\w-]*[a-z])*")


def numbers_in(text: str, language: str) -> list[Span]:
    """Where a proposition has numbers."""
    return [found.span() for found in _NUMBERS[language].finditer(text)]


def dates_in(text: str, language: str) -> list[Span]:
    """Where a proposition has dates."""
    return [found.span() for found in _DATES[language].finditer(text)]


def names_in(text: str, language: str) -> list[Span]:
    """Where a proposition has names: words with capitals inside of it; in Japanese what Sudachi takes for
    names.

    For that one `pip install sudachipy sudachidict_core`.
    """
    if language == "en":
        return [found.span() for found in _NAMES_EN.finditer(text) if len(found[0]) > 2]
    spans: list[Span] = []
    for word in _sudachi().tokenize(text):
        if word.part_of_speech()[1] == "固有名詞":
            if spans and spans[-1][1] == word.begin():
                spans[-1] = (spans[-1][0], word.end())
            else:
                spans.append((word.begin(), word.end()))
    return [span for span in spans if span[1] - span[0] > 1]


@cache
def _sudachi() -> Any:
    from sudachipy import Dictionary, SplitMode

    return Dictionary().tokenizer(mode=SplitMode.C)


FINDERS: dict[str, Callable[[str, str], list[Span]]] = {
    "number": numbers_in,
    "date": dates_in,
    "name": names_in,
}


def with_replacements(
    recorded: Sequence[Recorded], kind: str, draw: random.Random, anywhere: bool = False
) -> Iterator[Corrupted]:
    """Replace one number, date or name of each proposition that has one by another from other passages.

    Args:
        recorded: The passages, all in one language.
        kind: "number", "date" or "name".
        draw: Chooses what is replaced, and by what.
        anywhere: Whether what takes its place may stand somewhere in the passage, where it means something
            else.
    """
    pools: defaultdict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    places: list[tuple[int, Recorded, int, Span]] = []
    for number, one in enumerate(recorded):
        for index, text in enumerate(one.propositions):
            spans = FINDERS[kind](text, one.language)
            for start, end in spans:
                pools[one.language, _kind_of(text[start:end], kind)].append(
                    (number, text[start:end])
                )
            if spans:
                places.append((number, one, index, draw.choice(spans)))
    for number, one, index, (start, end) in places:
        text = one.propositions[index]
        old = text[start:end]
        pool = pools[one.language, _kind_of(old, kind)]
        others = [
            other
            for _ in range(50)
            for n, other in [draw.choice(pool)]
            if n != number and other != old
        ]
        others = [
            other
            for other in others
            if anywhere or other.lower() not in f"{one.title}\n{one.text}".lower()
        ]
        if others:
            yield Corrupted(one, index, text[:start] + others[0] + text[end:], kind)


def _kind_of(found: str, kind: str) -> str:
    """What is replaced by each other: years, other numbers by their notation, everything of another kind."""
    if kind != "number":
        return kind
    if re.fullmatch(r"1\d{3}|20\d{2}", found):
        return "year"
    return "figures" if found[0].isdigit() else "words"


def found_share(corrupted: Iterable[Corrupted], kind: FindingKind) -> tuple[int, int]:
    """How many mistakes were found, of how many: the check says what it did not say before."""
    found = all_ = 0
    for one in corrupted:
        texts = list(one.recorded.propositions)
        before = _accused(one.recorded, texts, kind)
        texts[one.index] = one.text
        after = _accused(one.recorded, texts, kind)
        all_ += 1
        found += bool(after[one.index] - before[one.index])
    return found, all_


def _accused(
    one: Recorded, texts: Sequence[str], kind: FindingKind
) -> defaultdict[int | None, set[str]]:
    reasons: defaultdict[int | None, set[str]] = defaultdict(set)
    for finding in check_propositions(one.passage, texts):
        if finding.kind == kind:
            reasons[finding.proposition].add(finding.reason)
    return reasons


def accused_share(recorded: Iterable[Recorded], kind: FindingKind) -> tuple[int, int]:
    """How many recorded propositions are accused, of how many."""
    accused = all_ = 0
    for one in recorded:
        accused += len(_accused(one, one.propositions, kind))
        all_ += len(one.propositions)
    return accused, all_


_ENGLISH_SUBJECT = re.compile(
    r"(?P<opening>(?:(?:In|On|By|Since|After|During|From) (?:[A-Z][a-z]+ )?(?:\d{1,2}, )?\d{4}, )?)"
    r"(?P<subject>(?:(?:The|A|An) )?(?:[\w'’.-]+ ){0,5}?[\w'’.-]+) (?="
    r"(?:is|was|are|were|has|had|have|will|would|can|could|did|became|began|"
    r""
    r""
    r"made|took|won|led|came|held|[a-z]{3,}ed) )"
)
_JAPANESE_SUBJECT = re.compile(
    r"(?P<opening>(?:[0-9０-９]+年[^、はが]{0,6}、)?)(?P<subject>[^、はが「」]{2,25}?)(?=は|が)"
)
_PRONOUNS = {
    "en": ("It", "He", "She", "They", "This", "These", "The latter", "The former"),
    "ja": (
        "それ",
        "これ",
        "彼",
        "彼女",
        "同氏",
        "同社",
        "前者",
        "後者",
        "その人物",
        "この組織",
        "本馬",
    ),
}


def with_pronouns(recorded: Sequence[Recorded], draw: random.Random) -> Iterator[Corrupted]:
    """Replace the subject of each proposition that begins with one, or with a year and one, by a pronoun."""
    subjects = {"en": _ENGLISH_SUBJECT, "ja": _JAPANESE_SUBJECT}
    for one in recorded:
        for index, text in enumerate(one.propositions):
            if found := subjects[one.language].match(text):
                pronoun = draw.choice(_PRONOUNS[one.language])
                pronoun = pronoun[0].lower() + pronoun[1:] if found["opening"] else pronoun
                yield Corrupted(
                    one, index, found["opening"] + pronoun + text[found.end("subject") :], "pronoun"
                )


def grounding(paths: Sequence[Path]) -> None:
    """Print how many replaced numbers, dates and names are found, and how many recorded propositions are
    accused.

    In each proposition by itself one is replaced by another of its kind, drawn from the propositions of other
    passages in its language, first by one that its passage has not, then ("anywhere") by any.
    """

    def made(chosen: Sequence[Recorded], draw: random.Random) -> dict[str, Iterator[Corrupted]]:
        absent = {kind: with_replacements(chosen, kind, draw) for kind in FINDERS}
        anywhere = {
            f"{kind}, anywhere": with_replacements(chosen, kind, draw, True)
            for kind in ("number", "date")
        }
        return absent | anywhere

    _print_found(paths, "grounding", made)


def self_containedness(paths: Sequence[Path]) -> None:
    """Print how many subjects that a pronoun took the place of are found, and how many propositions are
    accused."""
    _print_found(
        paths, "self_containedness", lambda chosen, draw: {"subject": with_pronouns(chosen, draw)}
    )


def _print_found(
    paths: Sequence[Path],
    check: FindingKind,
    made: Callable[[Sequence[Recorded], random.Random], dict[str, Iterator[Corrupted]]],
) -> None:
    print("| articles | language | replaced | found | of | share |\n|---|---|---|---|---|---|")
    lines = [line for path in paths for line in read(path)]
    for half, language in ((half, language) for half in (True, False) for language in ("en", "ja")):
        chosen = [one for one in lines if one.chosen_on is half and one.language == language]
        of = "chosen on" if half else "held back"
        for kind, corrupted in made(chosen, random.Random(0)).items():
            found, all_ = found_share(corrupted, check)
            print(
                f"| {of} | {language} | {kind} | {found:,} | {all_:,} | {found / max(all_, 1):.1%} |"
            )
        accused, all_ = accused_share(chosen, check)
        print(
            f"| {of} | {language} | nothing (accused) | {accused:,} | {all_:,} | "
            f"{accused / max(all_, 1):.1%} |"
        )


def findings(paths: Sequence[Path]) -> None:
    """Print what grounding and coverage find in propositions as they were recorded, to be read one by one."""
    for path in paths:
        counts: Counter[str] = Counter()
        for recorded in read(path):
            for finding in check_propositions(recorded.passage, recorded.propositions):
                counts[finding.kind] += 1
                if finding.kind in ("grounding", "coverage"):
                    proposition = (
                        ""
                        if finding.proposition is None
                        else recorded.propositions[finding.proposition]
                    )
                    print(f"{path.name}, line {recorded.line + 1}: {finding} {proposition}")
        print(path.name, dict(counts))


def timing(paths: Sequence[Path]) -> None:
    """Print how long alignment and coverage take for a passage, and how long all checks do."""
    for path in paths:
        lines = read(path)
        best = min(_seconds(lines) for _ in range(5))
        checks = min(_seconds_of_checks(lines) for _ in range(5))
        print(
            f"{path.name}: {1000 * best / len(lines):.2f} and {1000 * checks / len(lines):.2f} ms a passage"
        )


def _seconds(lines: Sequence[Recorded]) -> float:
    start = time.process_time()
    for one in lines:
        align(one.text, one.propositions)
        uncovered(one.text, one.propositions)
    return time.process_time() - start


def _seconds_of_checks(lines: Sequence[Recorded]) -> float:
    start = time.process_time()
    for one in lines:
        check_propositions(one.passage, one.propositions)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("coverage", help=coverage.__doc__)
    command.add_argument("files", type=Path, nargs="+")
    command.add_argument(
        "--embeddings", action="store_true", help="also remove what embeddings say, of English text"
    )
    command.set_defaults(run=lambda options: coverage(options.files, options.embeddings))
    command = commands.add_parser("spans", help=spans.__doc__)
    command.add_argument("files", type=Path, nargs="+")
    command.set_defaults(run=lambda options: spans(options.files))
    for run in (grounding, self_containedness):
        command = commands.add_parser(run.__name__.replace("_", "-"), help=run.__doc__)
        command.add_argument("files", type=Path, nargs="+")
        command.set_defaults(run=lambda options, run=run: run(options.files))
    command = commands.add_parser("findings", help=findings.__doc__)
    command.add_argument("files", type=Path, nargs="+")
    command.set_defaults(run=lambda options: findings(options.files))
    command = commands.add_parser("time", help=timing.__doc__)
    command.add_argument("files", type=Path, nargs="+")
    command.set_defaults(run=lambda options: timing(options.files))
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
