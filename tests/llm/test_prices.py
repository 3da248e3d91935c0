"""Prices: the package's own table, a user's, and what a usage costs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.llm.names import OPENAI_MODEL
from llama_pack_densex.llm.usage import Price, Usage, price_of, read_prices

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    "model", [OPENAI_MODEL, "gpt-4.1-mini", "claude-haiku-4-5", "text-embedding-3-small"]
)
def test_the_common_models_have_a_list_price(model: str) -> None:
    price = price_of(model, read_prices())
    assert price is not None
    assert price.input > 0
    assert price.as_of.startswith("genai-prices ")


def test_a_price_is_for_a_million_tokens() -> None:
    assert Price(0.15, 0.6).of(Usage(10, 1_000_000, 500_000)) == pytest.approx(0.45)


def test_what_the_provider_had_cached_has_a_price_of_its_own() -> None:
    usage = Usage(1, 1_000_000, 0, cached_input_tokens=400_000)
    assert Price(1.0, cached_input=0.1).of(usage) == pytest.approx(0.64)
    assert Price(1.0, cached_input=0.0).of(usage) == pytest.approx(0.6)
    assert Price(1.0).of(usage) == pytest.approx(1.0)


def test_a_batch_costs_half_where_the_provider_has_batches() -> None:
    usage = Usage(1, 1_000_000, 1_000_000)
    assert Price(2.0, 8.0).of(usage, batch=True) == pytest.approx(5.0)
    assert Price(2.0, 8.0, batch_factor=1).of(usage, batch=True) == pytest.approx(10.0)


_COUNTS = st.integers(0, 10**9)


@given(*[_COUNTS] * 4, st.booleans())
def test_two_usages_cost_what_they_cost_together(
    a: int, b: int, c: int, d: int, batch: bool
) -> None:
    price = Price(0.15, 0.6, 0.075)
    first, second = Usage(1, a + b, c, b), Usage(1, c + d, a, d)
    apart = price.of(first, batch) + price.of(second, batch)
    assert math.isclose(price.of(first + second, batch), apart, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("model", "known_as"),
    [
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("models/gemini-2.5-flash", "gemini-2.5-flash"),
    ],
)
def test_a_dated_version_costs_what_the_model_costs(model: str, known_as: str) -> None:
    assert price_of(model, {}) == price_of(known_as, {}) is not None
    assert price_of(model, read_prices({known_as: Price(7)})) == Price(7)


def test_a_dated_version_with_a_price_of_its_own_keeps_it() -> None:
    assert price_of("gpt-4o-2024-05-13", {}) != price_of("gpt-4o", {})


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4o-mini-tuned",
        "gpt-4o-of-ours",
        "gpt",
        "",
        "ft:gpt-4o-mini-2024-07-18:us::x",
        "gpt-4o-mini-0718",
    ],
)
def test_a_name_that_only_begins_like_another_has_no_price(model: str) -> None:
    assert price_of(model, read_prices()) is None


def test_own_prices_override_and_add(tmp_path: Path) -> None:
    given = {
        "gpt-4o-mini": {"input": 1},
        "日本語モデル": {"input": 2, "output": 3, "cached_input": None},
    }
    file = tmp_path / "prices.json"
    file.write_text(json.dumps(given, ensure_ascii=False), encoding="utf-8")
    for prices in (read_prices(given), read_prices(file), read_prices(str(file))):
        assert prices["gpt-4o-mini"] == Price(1)
        assert prices["日本語モデル"] == Price(2, 3)
        assert price_of("gpt-4o-mini", prices) == Price(1)
        assert price_of("gpt-4o", prices) == price_of("gpt-4o", {}) is not None


def test_prices_may_be_given_as_they_are_read() -> None:
    assert read_prices({"mine": Price(1, 2)})["mine"] == Price(1, 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"m": {"output": 1}}, "prices['m']['input']: Field required"),
        ({"m": {"input": -1}}, "prices['m']['input']: Input should be greater than or equal to 0"),
        ({"m": {"input": "0.15"}}, "should be a valid number"),
        ({"m": {"input": True}}, "should be a valid number"),
        ({"m": {"input": math.nan}}, "should be a finite number"),
        ({"m": {"input": 1, "outputs": 1}}, "prices['m']['outputs']: Unexpected"),
        ({"m": 0.15}, "prices['m']: Input should be"),
        ([1], "prices: Input should be a valid dictionary"),
    ],
)
def test_what_is_no_price_is_said(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match="prices") as raised:
        read_prices(given)
    assert said in str(raised.value)


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text("input: 1", encoding="utf-8")
    with pytest.raises(ValueError, match=r"prices\.json: Invalid JSON"):
        read_prices(file)
    with pytest.raises(FileNotFoundError):
        read_prices(tmp_path / "none.json")
