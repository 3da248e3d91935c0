"""A stand-in for an LLM provider, in a process of its own: real HTTP, with latency, limits and faults as they
are set.

with StandInLLM(latency=1.0, requests_per_minute=600, faults=Faults(server_error=0.05)) as server:
    llm = OpenAI(model="gpt-4o-mini", api_base=server.url, api_key="sk-test", max_retries=0)

It answers OpenAI's chat completions with each sentence of the passage and a second statement made of it, or
with recorded propositions. What becomes of a request hangs on its passage and on how often that was asked
for, and not on the order in which requests come. By hand, `python -m tests.stand_in_llm --latency 1` prints
its port and serves until the process that started it ends; flags are the names below.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Literal


@dataclass(frozen=True)
class Faults:
    """How often requests go wrong: shares of 1, together at most 1.

    Args:
        rate_limited: Refused at once with status 429.
        server_error: Status 500 after the latency.
        timeout: Accepted and never answered.
        reset: The connection is reset once the request has been read.
        malformed: A reply that is not JSON: by turns a Python list without one of its commas, and prose
            without a list.
        cut_off: The first half of the reply, with the finish reason "length".
        refusal: A refusal in place of the content.
        content_filter: No content, with the finish reason "content_filter".
        retry_after: Seconds that a `rate_limited` answer asks to wait for; None says nothing.
    """

    rate_limited: float = 0.0
    server_error: float = 0.0
    timeout: float = 0.0
    reset: float = 0.0
    malformed: float = 0.0
    cut_off: float = 0.0
    refusal: float = 0.0
    content_filter: float = 0.0
    retry_after: float | None = 1.0

    def __post_init__(self) -> None:
        if min(self.shares.values()) < 0 or sum(self.shares.values()) > 1 + 1e-9:
            raise ValueError(
                f"the shares of faults must be 0 or more and at most 1 together, not {self.shares}"
            )

    @property
    def shares(self) -> dict[str, float]:
        """The share of each kind."""
        return {name: share for name, share in vars(self).items() if name != "retry_after"}

    def draw(self, seed: int, asked: str, attempt: int) -> tuple[str, bool]:
        """Choose what becomes of a request ("ok" or a kind of fault), and which of its two forms a fault
        has."""
        drawn = blake2b(f"{seed}:{asked}:{attempt}".encode(), digest_size=8).digest()
        place = int.from_bytes(drawn[:7], "big") / 256**7
        for name, share in self.shares.items():
            if place < share:
                return name, drawn[7] % 2 == 1
            place -= share
        return "ok", False


@dataclass(frozen=True)
class Answered:
    """A request that the server got.

    Args:
        digests: The digest of each passage, or part of one, that it asked for; see `digest`.
        start: The first 40 characters of the first of them.
        arrived: When it had been read, by `time.monotonic`, which the processes of a machine share.
        ended: When the server was done with it; None while it is not.
        kind: "ok", the name of a fault, "over_limit" or "too_many" (refused by a limit), "gone" (the client
            hung up), or "pending".
        in_flight: Requests that were being answered when it came, itself included.
        input_tokens: Tokens of its messages.
        output_tokens: Tokens of the reply; 0 where there was none.
    """

    digests: tuple[str, ...]
    start: str
    arrived: float
    ended: float | None
    kind: str
    in_flight: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Totals:
    """All requests together.

    Args:
        kinds: How many there were of each kind.
        peak_in_flight: How many were being answered at the same time, at most.
        input_tokens: Tokens sent in the requests that got a reply, as its usage says.
        output_tokens: Tokens of the replies.
    """

    kinds: dict[str, int]
    peak_in_flight: int
    input_tokens: int
    output_tokens: int


@dataclass(kw_only=True)
class Settings:
    """What a server does.

    Args:
        latency: Seconds before each reply.
        requests_per_minute: Requests over this get status 429 and the time to wait, in Retry-After (whole
            seconds) and retry-after-ms as OpenAI sends it; they do not count.
        tokens_per_minute: The same for the tokens of requests and replies.
        limit_kind: "bucket" (refilled continuously), "sliding" (so many in any window) or "fixed" (so many in
            each window from the server's start on).
        window: Seconds of a window.
        burst: How many seconds' allowance a bucket holds.
        max_in_flight: Requests at the same time; more get status 429 and no time to wait.
        faults: What goes wrong, and how often.
        held: A JSONL file of {"text", "propositions"}, to answer from where one of its texts is asked for.
        seed: Chooses the requests that go wrong.
    """

    latency: float = 0.0
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    limit_kind: Literal["bucket", "sliding", "fixed"] = "bucket"
    window: float = 60.0
    burst: float = 1.0
    max_in_flight: int | None = None
    faults: Faults = field(default_factory=Faults)
    held: str | Path | None = None
    seed: int = 0

    def as_arguments(self) -> list[str]:
        """Write the settings as a command's arguments."""
        flat = {**asdict(self), **asdict(self.faults)}
        del flat["faults"]
        # an empty value stands for None
        return [
            f"--{name.replace('_', '-')}={'' if value is None else value}"
            for name, value in flat.items()
        ]

    @classmethod
    def from_arguments(cls, arguments: Sequence[str]) -> tuple[Settings, int]:
        """Read a command's arguments; the second value is the process without which the server ends."""
        parser = argparse.ArgumentParser(prog="python -m tests.stand_in_llm")
        own = [setting for setting in fields(cls) if setting.name != "faults"]
        for setting in (*own, *fields(Faults)):
            kind = str if "str" in str(setting.type) or "Literal" in str(setting.type) else _number
            parser.add_argument(
                f"--{setting.name.replace('_', '-')}", type=kind, default=setting.default
            )
        parser.add_argument("--parent", type=int, default=os.getppid())
        given = vars(parser.parse_args(arguments))
        parent: int = given.pop("parent")
        faults = Faults(**{setting.name: given.pop(setting.name) for setting in fields(Faults)})
        return cls(**given, faults=faults), parent


class StandInLLM(Settings):
    """The server, from `with` to the end of it; arguments are those of `Settings`."""

    @property
    def url(self) -> str:
        """What to pass as `api_base`."""
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> StandInLLM:
        if self.held is not None:
            self.held = Path(self.held).resolve()
        self._pid, self._port = _forks().start(self.as_arguments())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def log(self) -> list[Answered]:
        """All requests, in the order in which they came."""
        return [
            Answered(**{**entry, "digests": tuple(entry["digests"])}) for entry in self._get("log")
        ]

    def totals(self) -> Totals:
        """What the log comes to, without sending all of it."""
        return Totals(**self._get("totals"))

    def reset(self) -> None:
        """Forget all requests, and how often each passage was asked for; limits remember what they let
        through."""
        self._get("reset")

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self._port}/{path}", timeout=60
        ) as response:
            return json.load(response)


class _Forks:
    """A process that forks each server, so that only one has to import what servers need, and that ends with
    ours."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stand_in_llm", "--forks"],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, arguments: list[str]) -> tuple[int, int]:
        """Start a server: its process, and its port."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        pid = int(self._process.stdout.readline())
        return pid, int(self._process.stdout.readline())


@cache
def _forks() -> _Forks:
    return _Forks()


def digest(text: str) -> str:
    """The name of a text in the log."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def sentences_of(text: str) -> list[str]:
    """Split a text after each full stop that a space follows, and after each of Japanese's; never empty."""
    return [found.strip() for found in _SENTENCE.findall(text) if found.strip()] or [text]


def propositions_of(text: str) -> list[str]:
    """What the server makes of a text: every sentence, and a second statement made of it in the text's own
    script."""
    letters = {lead: len(script.findall(text)) for lead, script in _LEADS.items()}
    lead = max(letters, key=lambda name: letters[name])
    return [
        made
        for n, sentence in enumerate(sentences_of(text), 1)
        for made in (sentence, lead.format(n) + sentence)
    ]


_SENTENCE = re.compile(r".+?(?:[.!?](?=\s)|[。！？]|\Z)", re.DOTALL)
_LEADS = {
    "({}) ": re.compile(r"[^\W\d_\u0041-\u024f\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af]"),
    "Sentence {}: ": re.compile(r"[A-Za-z\u00c0-\u024f]+"),
    "第{}文：": re.compile(r"[\u3041-\u30ff\u3400-\u9fff]"),
    "제{}문: ": re.compile(r"[\uac00-\ud7af]"),
}


def _number(text: str) -> float | None:
    return (int(text) if text.isdigit() else float(text)) if text else None


if __name__ == "__main__":
    from tests.stand_in_llm_server import main

    main()
