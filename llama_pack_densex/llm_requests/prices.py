"""What models cost: a table of list prices with its date, which the user can override."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from llama_pack_densex.llm_requests.reply import Usage

_MILLION = 1_000_000
_DATE = re.compile(r"[-@](?:20\d\d-\d\d-\d\d|20\d{6})$")


@dataclass(frozen=True)
class Price:
    """What a model costs, in US dollars for a million tokens.

    Args:
        input: Tokens sent.
        output: Tokens that come back, a model's thoughts included.
        cached_input: Tokens sent that the provider had cached; None means as `input`.
        batch_factor: What the Batch API costs of that; 1 where the provider has none.
        as_of: The day of the price list, as 2026-01-31; "" for a price of the user's own.
    """

    input: float
    output: float = 0.0
    cached_input: float | None = None
    batch_factor: float = 0.5
    as_of: str = ""

    def of(self, usage: Usage, batch: bool = False) -> float:
        """The cost of a usage, in US dollars.

        Args:
            usage: What was, or will be, used.
            batch: Whether through the Batch API.
        """
        cached_input = self.input if self.cached_input is None else self.cached_input
        new = usage.input_tokens - usage.cached_input_tokens
        cost = new * self.input + usage.cached_input_tokens * cached_input + usage.output_tokens * self.output
        return cost * (self.batch_factor if batch else 1) / _MILLION


PriceTable = Mapping[str, Price]
"""Prices by the model's name."""


def read_prices(source: str | Path | Mapping[str, Any] | None = None) -> dict[str, Price]:
    """Read prices.

    Args:
        source: None for the package's own table; or what overrides and adds to it: a JSON file, or a mapping, of model
            names to `Price` or `{"input": ..., "output": ..., "cached_input": ..., "batch_factor": ...}`, of which only
            "input" must be there.

    Raises:
        ValueError: The file or the mapping is not of this form; the message says where.
        OSError: The file cannot be read.
    """
    if source is None:
        return dict(_own_prices())
    where = "prices"
    if isinstance(source, (str, Path)):
        where, source = str(source), _read_json(Path(source))
    if not isinstance(source, Mapping):
        raise ValueError(f'{where}: expected an object such as {{"gpt-4o-mini": {{"input": 0.15, "output": 0.6}}}}')
    given = {str(model): _price(value, f"{where}, model {model!r}") for model, value in source.items()}
    return {**_own_prices(), **given}


def price_of(model: str, prices: PriceTable) -> Price | None:
    """Look a model's price up.

    Args:
        model: The name that the provider calls it by; a date after it (gpt-4o-mini-2024-07-18) is left out where that
            version has no price of its own.
        prices: What `read_prices` returned.

    Returns:
        None where the price is not known: a model whose name only begins like another's is another model.
    """
    name = model.removeprefix("models/")  # Google's own way to write a name
    return prices.get(name) or prices.get(_DATE.sub("", name))


@lru_cache(maxsize=1)
def _own_prices() -> dict[str, Price]:
    table = json.loads(files(__package__).joinpath("prices.json").read_text(encoding="utf-8"))
    return {
        model: Price(**price, as_of=table["as_of"])
        for provider in table["providers"].values()
        for model, price in provider["models"].items()
    }


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path}: this is no JSON ({error})") from None


def _price(value: Any, where: str) -> Price:
    if isinstance(value, Price):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f'{where}: expected an object such as {{"input": 0.15, "output": 0.6}}, not {value!r}')
    if unknown := value.keys() - _FIELDS:
        raise ValueError(f"{where}: {', '.join(map(repr, sorted(map(str, unknown))))} is none of {', '.join(_FIELDS)}")
    if value.get("input") is None:
        raise ValueError(f'{where}: "input" is missing, US dollars for a million tokens that are sent')
    given = {name: number for name, number in value.items() if number is not None}
    for name, number in given.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < math.inf:
            raise ValueError(f"{where}: {name!r} must be a number of 0 or more, not {number!r}")
    return Price(**given)


_FIELDS = tuple(field.name for field in fields(Price) if field.name != "as_of")
