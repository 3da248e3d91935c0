"""What comes back from a model, and what it used."""

from __future__ import annotations

from dataclasses import dataclass, replace

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

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.requests - other.requests,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cached_input_tokens - other.cached_input_tokens,
        )


NOTHING = Usage()


@dataclass(frozen=True)
class Reply:
    """What a model answered, why it stopped, and what that used."""

    text: str
    finish: Finish = ""
    usage: Usage = NOTHING


@dataclass(frozen=True)
class RequestFigures:
    """What requests came to.

    Args:
        usage: What they used, as the provider counts it.
        cost: What they cost; None where the price is not known.
        currency: The currency of that.
        cache_hits: Replies that had been kept from before and were not asked for.
        refused: Requests that the provider refused for its limits; they were sent again.
        failed: Requests that came to nothing for another reason.
        model: The model that was asked; "" where none was.
    """

    usage: Usage = NOTHING
    cost: float | None = None
    currency: str = "USD"
    cache_hits: int = 0
    refused: int = 0
    failed: int = 0
    model: str = ""

    def since(self, before: RequestFigures) -> RequestFigures:
        """What was added since an earlier state."""
        known = self.cost is not None and before.cost is not None
        return replace(
            self,
            usage=self.usage - before.usage,
            cost=(self.cost or 0.0) - (before.cost or 0.0) if known else None,
            cache_hits=self.cache_hits - before.cache_hits,
            refused=self.refused - before.refused,
            failed=self.failed - before.failed,
        )
