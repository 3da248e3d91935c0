"""Why a model stopped, as the providers' responses say it. Pure."""

from __future__ import annotations

from typing import Any, Literal

Finish = Literal["stop", "length", "filtered", "refused", ""]


def finish_reason(response: Any) -> Finish:
    """Find out why a model stopped.

    Args:
        response: A LlamaIndex `ChatResponse` or `CompletionResponse`; what the provider sent is in its `raw`.

    Returns:
        "stop", "length", "filtered" (a content filter) or "refused"; "" where the response does not say.
    """
    raw = _get(response, "raw")
    message = _get(response, "message")
    first = _first(raw, "choices") or _first(raw, "candidates") or _first(raw, "generations")
    if _get(_get(first, "message"), "refusal"):
        return "refused"
    extras = (_get(response, "additional_kwargs"), _get(message, "additional_kwargs"))
    for source in (first, raw, _get(raw, "details"), _get(raw, "incomplete_details"), *extras):
        for name in _NAMES:
            value = _get(source, name)
            known = _KNOWN.get(str(_get(value, "name") or value).lower().rpartition(".")[2])
            if known:
                return known
    return ""


_NAMES = ("finish_reason", "stop_reason", "done_reason", "finishReason", "stopReason", "stop_type", "reason")
_KNOWN: dict[str, Finish] = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete", "completed"), "stop"),
    **dict.fromkeys(
        ("length", "max_tokens", "max_output_tokens", "model_length", "max_length", "token_limit", "limit"), "length"
    ),
    **dict.fromkeys(("model_context_window_exceeded", "error_limit"), "length"),
    **dict.fromkeys(
        ("content_filter", "content_filtered", "safety", "prohibited_content", "blocklist", "recitation", "spii"),
        "filtered",
    ),
    **dict.fromkeys(("guardrail_intervened", "error_toxic"), "filtered"),
    "refusal": "refused",
}


def _get(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, dict) else getattr(source, name, None)


def _first(source: Any, name: str) -> Any:
    items = _get(source, name)
    return items[0] if isinstance(items, (list, tuple)) and items else None
