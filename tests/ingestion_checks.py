"""What must hold after an ingestion against the stand-in LLM, whatever went wrong on the way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from llama_pack_densex import Passage
from llama_pack_densex.propositionizers.base import PropositionSet
from tests.stand_in_llm import Answered, Faults, propositions_of

# of the malformed replies: those that hold no list, so that the passage is asked for again
UNREADABLE = 0.5


def holds(passage: Passage, made: PropositionSet) -> bool:
    """Whether a set says all of its passage, and nothing of another one."""
    parts = [part for part in re.split(r"[,、.。]\s*", passage.text) if part]
    said = "\n".join(made.texts)
    return all(part in said for part in parts) and all(
        any(part in text for part in parts) for text in made.texts
    )


def unreported(passage: Passage, made: PropositionSet) -> bool:
    """Whether sentences stand in for propositions, and the set does not say so."""
    if made.status == "fallback":
        return not made.reason
    return len(made.texts) < len(propositions_of(passage.text))


def twice(log: Sequence[Answered]) -> int:
    """How many texts got more than one usable reply."""
    answers = Counter(text for entry in log if entry.kind == "ok" for text in entry.digests)
    return sum(count > 1 for count in answers.values())


def expected_of(faults: Faults, latency: float, timeout: float) -> tuple[float, float]:
    """Requests to expect for a passage, and the seconds that they take where no wait keeps others from being
    sent."""
    again = (
        faults.rate_limited
        + faults.server_error
        + faults.timeout
        + faults.reset
        + faults.malformed * UNREADABLE
    )
    requests = 1 / (1 - again - 2 * faults.cut_off)  # what was cut off is asked for in two halves
    at_once = faults.rate_limited + faults.reset
    return requests, requests * (
        latency * (1 - at_once - faults.timeout) + timeout * faults.timeout
    )
