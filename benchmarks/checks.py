"""How well the checks of propositions find what is made wrong on purpose, and how often they accuse what is right.

usage: python benchmarks/checks.py coverage [--embeddings] FILE...
       python benchmarks/checks.py spans FILE...
       python benchmarks/checks.py time FILE...

The files are recorded propositions, as `densex export` prints them. Where a choice was made on one half of a file's
articles, figures are given for the other half too. Figures are in docs/measurements.md.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llama_pack_densex.models import resolve_embed_model
from llama_pack_densex.propositionizers.alignment import align, uncovered
from llama_pack_densex.propositionizers.language import detect_language
from llama_pack_densex.propositionizers.sentences import segment

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

    @property
    def sentences(self) -> list[Span]:
        """The sentences that state something."""
        spans = [(part.start, part.end) for part in segment(self.text) if part.kind == "sentence"]
        return [span for span in spans if any(map(str.isalnum, self.text[slice(*span)]))]


def read(path: Path) -> list[Recorded]:
    """The lines of a file; every other title is of the half that choices were made on."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    titles = sorted({line["title"] for line in lines})
    return [
        Recorded(path.name, i, line["title"], line["text"], line["propositions"], titles.index(line["title"]) % 2 == 0)
        for i, line in enumerate(lines)
    ]


def by_alignment(recorded: Recorded) -> list[set[Span]]:
    """The sentences that the alignment itself names."""
    found = align(recorded.text, recorded.propositions)
    return [
        {span for span in recorded.sentences for start, end in spans if span[0] < end and start < span[1]}
        for spans in found
    ]


def by_trigrams(recorded: Recorded) -> list[set[Span]]:
    """The sentence that shares most of a proposition's character trigrams; of several the shortest."""
    sentences = {span: _trigrams(recorded.text[slice(*span)]) for span in recorded.sentences}
    return [
        {max(sentences, key=lambda span: (len(_trigrams(text) & sentences[span]), -len(sentences[span])))}
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
                span: sum(a * b for a, b in zip(vectors[text], vectors[one.text[slice(*span)]], strict=True))
                for span in one.sentences
            }
            found.append({span for span, score in near.items() if score >= 0.97 * max(near.values())})
        return found

    return says


def coverage(paths: Sequence[Path], embeddings: bool) -> None:
    """Print how many sentences are reported whose propositions were removed, and how many of complete sets."""
    print("| file | articles | sentences | reported of complete sets | removed | who says which | reported |")
    print("|---|---|---|---|---|---|---|")
    for path in paths:
        lines = [one for one in read(path) if one.sentences]
        for half in (True, False):
            chosen = [one for one in lines if one.chosen_on is half]
            wrong, total, half_name = 0, 0, "chosen on" if half else "held back"
            for one in chosen:
                missing = uncovered(one.text, one.propositions)
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
    """Of a third of each passage's sentences, how many were said, and how many are reported once nothing says them."""
    drawn = random.Random(7)
    removed = found = 0
    for one in lines:
        sentences = one.sentences
        third = set(drawn.sample(sentences, max(1, len(sentences) // 3)))
        said = says(one)
        third &= set().union(*said)
        left = [text for text, by in zip(one.propositions, said, strict=True) if not by & third]
        missing = uncovered(one.text, left)
        removed += len(third)
        found += sum(span in missing for span in third)
    return removed, found


def _touch(first: Span, second: Span) -> bool:
    return first[0] < second[1] and second[0] < first[1]


CHECKED = Path(__file__).with_name("spans_checked.jsonl")
"""Spans that were read one by one: 100 of each language, every so many-eth proposition of the articles that no
choice was made on, in the order of the files. `line` and `proposition` count from 1, `spans` are in the passage. They
are "right" where they are the sentences that say the proposition, or the one with its fact where another only tells who
or what it is of.
"""


def spans(paths: Sequence[Path]) -> None:
    """Print how many of the spans that were read one by one are still the same."""
    checked = [json.loads(line) for line in CHECKED.read_text(encoding="utf-8").splitlines()]
    print("| file | read | right | right ones that are the same today | wrong ones that are another today |")
    print("|---|---|---|---|---|")
    for path in paths:
        lines = read(path)
        listed = [one for one in checked if one["file"] == path.name]
        today = [align(lines[one["line"] - 1].text, lines[one["line"] - 1].propositions) for one in listed]
        same = [
            [list(span) for span in found[one["proposition"] - 1]] == one["spans"]
            for one, found in zip(listed, today, strict=True)
        ]
        right = [is_same for one, is_same in zip(listed, same, strict=True) if one["verdict"] == "right"]
        other = sum(not is_same for is_same in same) - sum(not is_same for is_same in right)
        print(f"| {path.name} | {len(listed)} | {len(right)} | {sum(right)} | {other} |")
        for one, is_same in zip(listed, same, strict=True):
            if one["verdict"] == "right" and not is_same:
                print(
                    f"{path.name}, line {one['line']}, proposition {one['proposition']}: another span", file=sys.stderr
                )


def timing(paths: Sequence[Path]) -> None:
    """Print how long alignment and coverage take for a passage."""
    for path in paths:
        lines = read(path)
        best = min(_seconds(lines) for _ in range(5))
        print(f"{path.name}: {1000 * best / len(lines):.2f} ms a passage")


def _seconds(lines: Sequence[Recorded]) -> float:
    start = time.process_time()
    for one in lines:
        align(one.text, one.propositions)
        uncovered(one.text, one.propositions)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("coverage", help=coverage.__doc__)
    command.add_argument("files", type=Path, nargs="+")
    command.add_argument("--embeddings", action="store_true", help="also remove what embeddings say, of English text")
    command.set_defaults(run=lambda options: coverage(options.files, options.embeddings))
    command = commands.add_parser("spans", help=spans.__doc__)
    command.add_argument("files", type=Path, nargs="+")
    command.set_defaults(run=lambda options: spans(options.files))
    command = commands.add_parser("time", help=timing.__doc__)
    command.add_argument("files", type=Path, nargs="+")
    command.set_defaults(run=lambda options: timing(options.files))
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
