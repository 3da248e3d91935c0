"""How well the checks of propositions detect deliberate mistakes, and how often they accuse correct
propositions.

usage: python benchmarks/checks.py coverage [--embeddings] FILE...
       python benchmarks/checks.py spans FILE...
       python benchmarks/checks.py grounding FILE...
       python benchmarks/checks.py opposites FILE...
       python benchmarks/checks.py self-containedness FILE...
       python benchmarks/checks.py findings FILE...
       python benchmarks/checks.py time FILE...

The files are recorded propositions, as `densex export` prints them. If the rules were chosen on one half of a
file's articles, figures are given for the other half as well. Figures are in benchmarks/RESULTS.md.
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
"""A function that returns the sentences that each proposition states."""


@dataclass(frozen=True)
class Recorded:
    """A line of a file of recorded propositions."""

    file: str
    line: int
    title: str
    text: str
    propositions: list[str]
    chosen_on: bool  # whether rules were chosen on its article
    section: str = ""

    @property
    def passage(self) -> Passage:
        return Passage(self.text, self.title, self.section)

    @property
    def language(self) -> str:
        """Japanese ("ja"), or else English ("en")."""
        return "ja" if detect_language(f"{self.text}\n{self.title}") == "ja" else "en"

    @property
    def sentences(self) -> list[Span]:
        """The sentences that state something."""
        spans = [(part.start, part.end) for part in segment(self.text) if part.kind == "sentence"]
        return [span for span in spans if any(map(str.isalnum, self.text[slice(*span)]))]


def read(path: Path) -> list[Recorded]:
    """Read the lines of a file; rules were chosen on every second title."""
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
    """Return the sentences that the alignment itself finds for each proposition."""
    aligned = align(recorded.text, recorded.propositions)
    return [
        {
            span
            for span in recorded.sentences
            for start, end in spans
            if span[0] < end and start < span[1]
        }
        for spans in aligned
    ]


def by_trigrams(recorded: Recorded) -> list[set[Span]]:
    """Return the sentence with most of a proposition's character trigrams; of several, the shortest."""
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
    """Use the sentence nearest by all-MiniLM-L6-v2, and those with at least 0.97 of its cosine."""
    model, _ = resolve_embed_model("minilm")
    assert model is not None
    texts = {text for line in recorded for text in line.propositions}
    texts |= {line.text[slice(*span)] for line in recorded for span in line.sentences}
    ordered = sorted(texts)
    vectors = dict(zip(ordered, model.get_text_embedding_batch(ordered), strict=True))

    def says(line: Recorded) -> list[set[Span]]:
        nearest: list[set[Span]] = []
        for text in line.propositions:
            cosines = {
                span: sum(
                    a * b
                    for a, b in zip(vectors[text], vectors[line.text[slice(*span)]], strict=True)
                )
                for span in line.sentences
            }
            nearest.append(
                {span for span, score in cosines.items() if score >= 0.97 * max(cosines.values())}
            )
        return nearest

    return says


def coverage(paths: Sequence[Path], embeddings: bool) -> None:
    """Print the share of sentences reported as uncovered, with all propositions and with some removed."""
    print(
        "| file | articles | sentences | reported of complete sets | removed | who says which | reported |"
    )
    print("|---|---|---|---|---|---|---|")
    for path in paths:
        lines = [line for line in read(path) if line.sentences]
        for half in (True, False):
            chosen = [line for line in lines if line.chosen_on is half]
            wrong, total, half_name = 0, 0, "chosen on" if half else "held back"
            for line in chosen:
                missing = [gap.span for gap in uncovered(line.text, line.propositions)]
                total += len(line.sentences)
                wrong += sum(any(_touch(span, part) for part in missing) for span in line.sentences)
            ways: dict[str, Says] = {"alignment": by_alignment, "trigrams": by_trigrams}
            english = [line for line in chosen if detect_language(line.text) == "en"]
            if embeddings and english:
                ways["embeddings"] = by_embeddings(english)
            for way, says in ways.items():
                removed, reported = _removal(english if way == "embeddings" else chosen, says)
                print(
                    f"| {path.name} | {half_name} | {total} | {wrong / total:.1%} | {removed} "
                    f"| {way} | {reported / removed:.1%} |"
                )


def _removal(lines: Sequence[Recorded], says: Says) -> tuple[int, int]:
    """Remove the propositions of a third of each passage's sentences.

    Returns:
        The number of sentences that lost all their propositions, and how many of these are reported.
    """
    rng = random.Random(7)
    removed = reported = 0
    for line in lines:
        sentences = line.sentences
        third = set(rng.sample(sentences, max(1, len(sentences) // 3)))
        stated = says(line)
        third &= set().union(*stated)
        remaining = [
            text
            for text, sentences_stated in zip(line.propositions, stated, strict=True)
            if not sentences_stated & third
        ]
        missing = [gap.span for gap in uncovered(line.text, remaining)]
        removed += len(third)
        reported += sum(span in missing for span in third)
    return removed, reported


def _touch(first: Span, second: Span) -> bool:
    return first[0] < second[1] and second[0] < first[1]


CHECKED = Path(__file__).with_name("spans_checked.jsonl")
"""Spans checked by a person: 100 propositions in each language, evenly spaced over the articles that no rule
was chosen on, in the order of the files. `line` and `proposition` count from 1, `spans` are in the
passage. They are "right" if they are the sentences that state the proposition, or only the one with its fact
if another merely names its subject.
"""


def spans(paths: Sequence[Path]) -> None:
    """Print how many of the spans that a person has checked are unchanged today."""
    checked = [json.loads(line) for line in CHECKED.read_text(encoding="utf-8").splitlines()]
    print(
        "| file | read | right | right ones that are the same today | wrong ones that are another today |"
    )
    print("|---|---|---|---|---|")
    for path in paths:
        lines = read(path)
        entries = [entry for entry in checked if entry["file"] == path.name]
        today = [
            align(lines[entry["line"] - 1].text, lines[entry["line"] - 1].propositions)
            for entry in entries
        ]
        same = [
            [list(span) for span in aligned[entry["proposition"] - 1]] == entry["spans"]
            for entry, aligned in zip(entries, today, strict=True)
        ]
        right = [
            is_same
            for entry, is_same in zip(entries, same, strict=True)
            if entry["verdict"] == "right"
        ]
        other = sum(not is_same for is_same in same) - sum(not is_same for is_same in right)
        print(f"| {path.name} | {len(entries)} | {len(right)} | {sum(right)} | {other} |")
        for entry, is_same in zip(entries, same, strict=True):
            if entry["verdict"] == "right" and not is_same:
                print(
                    f"{path.name}, line {entry['line']}, proposition {entry['proposition']}: another span",
                    file=sys.stderr,
                )


@dataclass(frozen=True)
class Corrupted:
    """A proposition with a deliberate mistake."""

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
    """Return the spans of the numbers in a proposition."""
    return [match.span() for match in _NUMBERS[language].finditer(text)]


def dates_in(text: str, language: str) -> list[Span]:
    """Return the spans of the dates in a proposition."""
    return [match.span() for match in _DATES[language].finditer(text)]


def names_in(text: str, language: str) -> list[Span]:
    """Return the spans of the names in a proposition.

    English names are capitalised words that do not begin it; Japanese ones are the proper nouns that Sudachi
    finds (`pip install sudachipy sudachidict_core`).
    """
    if language == "en":
        return [match.span() for match in _NAMES_EN.finditer(text) if len(match[0]) > 2]
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
    recorded: Sequence[Recorded], kind: str, rng: random.Random, anywhere: bool = False
) -> Iterator[Corrupted]:
    """Replace one number, date or name of each proposition that has one by another from other passages.

    Args:
        recorded: The passages, all in one language.
        kind: "number", "date" or "name".
        rng: Chooses what is replaced, and the replacement.
        anywhere: Whether the replacement may also occur in the passage, where it means something else.
    """
    pools: defaultdict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    places: list[tuple[int, Recorded, int, Span]] = []
    for number, line in enumerate(recorded):
        for index, text in enumerate(line.propositions):
            spans = FINDERS[kind](text, line.language)
            for start, end in spans:
                pools[line.language, _kind_of(text[start:end], kind)].append(
                    (number, text[start:end])
                )
            if spans:
                places.append((number, line, index, rng.choice(spans)))
    for number, line, index, (start, end) in places:
        text = line.propositions[index]
        old = text[start:end]
        pool = pools[line.language, _kind_of(old, kind)]
        others = [
            other
            for _ in range(50)
            for origin, other in [rng.choice(pool)]
            if origin != number and other != old
        ]
        others = [
            other
            for other in others
            if anywhere or other.lower() not in f"{line.title}\n{line.text}".lower()
        ]
        if others:
            yield Corrupted(line, index, text[:start] + others[0] + text[end:], kind)


def _kind_of(text: str, kind: str) -> str:
    """Return the pool that replacements come from: years, other figures, number words, or `kind` itself."""
    if kind != "number":
        return kind
    if re.fullmatch(r"1\d{3}|20\d{2}", text):
        return "year"
    return "figures" if text[0].isdigit() else "words"


def detected_share(corrupted: Iterable[Corrupted], kind: FindingKind) -> tuple[int, int]:
    """Count the detected mistakes and all mistakes; detected means that the check gives a new reason."""
    detected = total = 0
    for mistake in corrupted:
        texts = list(mistake.recorded.propositions)
        before = _accused(mistake.recorded, texts, kind)
        texts[mistake.index] = mistake.text
        after = _accused(mistake.recorded, texts, kind)
        total += 1
        detected += bool(after[mistake.index] - before[mistake.index])
    return detected, total


def _accused(
    line: Recorded, texts: Sequence[str], kind: FindingKind
) -> defaultdict[int | None, set[str]]:
    reasons: defaultdict[int | None, set[str]] = defaultdict(set)
    for finding in check_propositions(line.passage, texts):
        if finding.kind == kind:
            reasons[finding.proposition].add(finding.reason)
    return reasons


def accused_share(recorded: Iterable[Recorded], kind: FindingKind) -> tuple[int, int]:
    """Count the recorded propositions that are accused, and all of them."""
    accused = total = 0
    for line in recorded:
        accused += len(_accused(line, line.propositions, kind))
        total += len(line.propositions)
    return accused, total


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


def with_pronouns(recorded: Sequence[Recorded], rng: random.Random) -> Iterator[Corrupted]:
    """Replace the subject of each proposition that begins with it (or with a year and it) by a pronoun."""
    subjects = {"en": _ENGLISH_SUBJECT, "ja": _JAPANESE_SUBJECT}
    for line in recorded:
        for index, text in enumerate(line.propositions):
            if match := subjects[line.language].match(text):
                pronoun = rng.choice(_PRONOUNS[line.language])
                pronoun = pronoun[0].lower() + pronoun[1:] if match["opening"] else pronoun
                yield Corrupted(
                    line,
                    index,
                    match["opening"] + pronoun + text[match.end("subject") :],
                    "pronoun",
                )


def grounding(paths: Sequence[Path]) -> None:
    """Print the share of replaced numbers, dates and names that is detected, and of propositions accused.

    One is replaced at a time, by another of its kind from the propositions of other passages in the same
    language: first by one that does not occur in the passage, then ("anywhere") by any.
    """

    def replaced(chosen: Sequence[Recorded], rng: random.Random) -> dict[str, Iterator[Corrupted]]:
        absent = {kind: with_replacements(chosen, kind, rng) for kind in FINDERS}
        anywhere = {
            f"{kind}, anywhere": with_replacements(chosen, kind, rng, True)
            for kind in ("number", "date")
        }
        return absent | anywhere

    _print_detected(paths, "grounding", replaced)


def self_containedness(paths: Sequence[Path]) -> None:
    """Print the share of subjects replaced by a pronoun that is detected, and of propositions accused."""
    _print_detected(
        paths, "self_containedness", lambda chosen, rng: {"subject": with_pronouns(chosen, rng)}
    )


_TURNED: dict[str, dict[str, list[tuple[str, str]]]] = {
    "en": {
        "negation added": [
            (r"\b(is|was|are|were|has|have|had|can|will|must|may)\b(?! not)", r"\1 not")
        ],
        "negation left out": [(r" (?:not|never|no longer)\b", ""), (r"\bcannot\b", "can")],
        "bound turned": [
            (r"\b(?:at least|more than|over)(?= \d)", "at most"),
            (r"\b(?:at most|less than|up to)(?= \d)", "at least"),
        ],
        "bound left out": [(r"\b(?:at least|at most|more than|less than|up to|over) (?=\d)", "")],
        "must and may": [(r"\b(?:may|can|could)\b(?! not)", "must"), (r"\bmust\b", "may")],
        "all and some": [(r"\b(?:some|many|several) (?=[a-z]+s\b)", "all "), (r"\ball ", "some ")],
    },
    "ja": {
        "negation added": [
            ("した。$", "しなかった。"),
            ("する。$", "しない。"),
            ("れる。$", "れない。"),
            ("れた。$", "れなかった。"),
            ("である。$", "ではない。"),
        ],
        "negation left out": [
            ("しない", "する"),
            ("れない", "れる"),
            ("できない", "できる"),
            ("ではない", "である"),
            ("かった。$", "った。"),
        ],
        "bound turned": [("以上", "以下"), ("未満|以下|以内", "以上")],
        "bound left out": [(r"(?<=[^\W\d])(?:以上|以下|未満|以内)", "")],
        "must and may": [
            ("なければならない", "てもよい"),
            ("することができる", "しなければならない"),
        ],
        "all and some": [
            ("すべて|全て", "一部"),
            ("一部|ほとんど", "すべて"),
            ("多くの", "すべての"),
        ],
    },
}


def with_opposites(recorded: Sequence[Recorded], kind: str) -> Iterator[Corrupted]:
    """Turn a word of each proposition into its opposite, or add it, or leave it out."""
    for line in recorded:
        for index, text in enumerate(line.propositions):
            for pattern, replacement in _TURNED[line.language][kind]:
                changed = re.sub(pattern, replacement, text, count=1)
                if changed != text:
                    yield Corrupted(line, index, changed, kind)
                    break


def opposites(paths: Sequence[Path]) -> None:
    """Print the share of statements turned into their opposite that is detected, and of those accused."""
    _print_detected(
        paths,
        "grounding",
        lambda chosen, rng: {kind: with_opposites(chosen, kind) for kind in _TURNED["en"]},
    )


def _print_detected(
    paths: Sequence[Path],
    check: FindingKind,
    corrupt: Callable[[Sequence[Recorded], random.Random], dict[str, Iterator[Corrupted]]],
) -> None:
    print("| articles | language | replaced | found | of | share |\n|---|---|---|---|---|---|")
    lines = [line for path in paths for line in read(path)]
    for half, language in ((half, language) for half in (True, False) for language in ("en", "ja")):
        chosen = [line for line in lines if line.chosen_on is half and line.language == language]
        of = "chosen on" if half else "held back"
        for kind, corrupted in corrupt(chosen, random.Random(0)).items():
            detected, total = detected_share(corrupted, check)
            print(
                f"| {of} | {language} | {kind} | {detected:,} | {total:,} | {detected / max(total, 1):.1%} |"
            )
        accused, total = accused_share(chosen, check)
        print(
            f"| {of} | {language} | nothing (accused) | {accused:,} | {total:,} | "
            f"{accused / max(total, 1):.1%} |"
        )


def findings(paths: Sequence[Path]) -> None:
    """Print the findings of grounding and coverage in propositions as recorded, for reading one by one."""
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
    """Print the time per passage of alignment with coverage, and of all checks."""
    for path in paths:
        lines = read(path)
        best = min(_seconds(lines) for _ in range(5))
        checks = min(_seconds_of_checks(lines) for _ in range(5))
        print(
            f"{path.name}: {1000 * best / len(lines):.2f} and {1000 * checks / len(lines):.2f} ms a passage"
        )


def _seconds(lines: Sequence[Recorded]) -> float:
    start = time.process_time()
    for line in lines:
        align(line.text, line.propositions)
        uncovered(line.text, line.propositions)
    return time.process_time() - start


def _seconds_of_checks(lines: Sequence[Recorded]) -> float:
    start = time.process_time()
    for line in lines:
        check_propositions(line.passage, line.propositions)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("coverage", help=coverage.__doc__)
    command.add_argument("files", type=Path, nargs="+")
    command.add_argument(
        "--embeddings",
        action="store_true",
        help="for English text, also remove propositions by embedding similarity",
    )
    command.set_defaults(run=lambda options: coverage(options.files, options.embeddings))
    command = commands.add_parser("spans", help=spans.__doc__)
    command.add_argument("files", type=Path, nargs="+")
    command.set_defaults(run=lambda options: spans(options.files))
    for run in (grounding, opposites, self_containedness):
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
