"""What comes back from a model, and what it used."""

from __future__ import annotations

from dataclasses import dataclass

from llama_pack_densex.llm_requests.finish_reasons import Finish


@dataclass(frozen=True)
class Usage:
    """What requests used, as the provider counts it.

    Args:
        requests: Requests that were answered.
        input_tokens: Tokens sent, those among them that the provider had cached included.
        output_tokens: Tokens that came back, a model's thoughts included.
        cached_input_tokens: Those of the tokens sent that the provider had cached.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens sent and received."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
        )


@dataclass(frozen=True)
class Reply:
    """What a model answered, why it stopped, and what that used."""

    text: str
    finish: Finish = ""
    usage: Usage = Usage()
