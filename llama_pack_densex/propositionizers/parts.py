"""A passage that is asked for in parts: where it is split, and how what came of its parts becomes one set."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from llama_pack_densex.propositionizers.base import PropositionSet, Status
from llama_pack_densex.propositionizers.replies import unique
from llama_pack_densex.propositionizers.sentences import passage_sentences, segment


def split_in_two(text: str) -> tuple[str, str] | None:
    """Split a text at the sentence boundary nearest to its middle, paragraphs first, never right below a heading.

    Returns:
        Both halves without surrounding white space, or None where there is no place to split.
    """
    middle = len(text) / 2
    places: list[tuple[float, int]] = []
    for left, right in pairwise(segment(text)):
        if left.kind != "heading":
            is_paragraph = text.count("\n", left.end, right.start) > 1
            places.append((abs(right.start - middle) * (0.5 if is_paragraph else 1.0), right.start))
    if not places:
        return None
    place = min(places)[1]
    return text[:place].strip(), text[place:].strip()


def fall_back(text: str, reason: str, is_passing: bool = False) -> PropositionSet:
    """The sentences of a part that came to nothing."""
    return PropositionSet(passage_sentences(text), "fallback", reason, is_passing)


def join_parts(parts: Sequence[PropositionSet]) -> PropositionSet:
    """One set of what came of the parts of a passage, in their order."""
    texts = unique(text for part in parts for text in part.texts)
    failed = [number for number, part in enumerate(parts, 1) if part.status == "fallback"]
    reasons = list(unique(part.reason for part in parts if part.reason and (part.status == "fallback" or not failed)))
    if failed and len(parts) > 1:
        which = ", ".join(map(str, failed[:10])) + (", ..." if len(failed) > 10 else "")
        reasons.insert(0, f"sentences stand in for part{'s' * (len(failed) > 1)} {which} of {len(parts)}")
    elif len(parts) > 1:
        reasons.insert(0, f"asked in {len(parts)} parts because the whole was too long, or a reply cut off or refused")
    reason = "; ".join(reasons)
    status: Status = "fallback" if failed else "repaired" if reason else "ok"
    questions = unique(question for part in parts for question in part.questions)
    return PropositionSet(texts, status, reason, any(part.is_passing for part in parts), questions)
