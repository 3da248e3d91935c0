"""An option of the pack is declared in several places: each names it."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest

from llama_pack_densex import DenseXRetrievalPack
from llama_pack_densex.index.manifest import Manifest
from llama_pack_densex.options import OF_THE_INDEX, PackArguments, PackOptions, UserArguments

PARTS = {
    "proposition_llm",
    "query_llm",
    "embed_model",
    "text_splitter",
    "propositionizer",
    "docstore",
    "reranker",
    "tokenizer",
    "node_parser",
}
"""Models, stores and parsers: arguments that are no options."""


def test_the_signature_names_every_argument() -> None:
    parameters = inspect.signature(DenseXRetrievalPack).parameters
    assert set(parameters) == {"documents", "persist_dir", "show_progress"} | set(
        UserArguments.__annotations__
    )
    assert all(
        parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    with pytest.raises(TypeError, match="'granularty'"):
        DenseXRetrievalPack([], granularty=("passage",))  # type: ignore[call-arg]


def test_the_docstring_describes_every_argument() -> None:
    parameters = inspect.signature(DenseXRetrievalPack).parameters
    arguments = (
        (inspect.getdoc(DenseXRetrievalPack) or "")
        .partition("Args:")[2]
        .partition("Attributes:")[0]
    )
    assert sorted(re.findall(r"^    (\w+):", arguments, re.MULTILINE)) == sorted(parameters)


@pytest.mark.parametrize("name", sorted(set(PackArguments.__annotations__) - PARTS))
def test_an_argument_is_a_part_or_an_option(name: str) -> None:
    assert name in PackOptions.model_fields, (
        f"{name} is ignored: PackOptions lacks a field of this name"
    )


@pytest.mark.parametrize("name", PackOptions.model_fields)
def test_an_option_is_an_argument_with_the_same_default(name: str) -> None:
    assert name in PackArguments.__annotations__, f"PackArguments lacks the type of {name}"
    default = inspect.signature(DenseXRetrievalPack).parameters[name].default
    assert default in (None, getattr(PackOptions(), name))


@pytest.mark.parametrize("name", OF_THE_INDEX)
def test_what_an_index_keeps_is_an_option_and_in_its_manifest(name: str) -> None:
    assert name in PackOptions.model_fields, f"PackOptions lacks {name}, which is in OF_THE_INDEX"
    assert name in {field.name for field in fields(Manifest)}, f"Manifest lacks a field {name}"
    assert f"`{name}`" in (inspect.getdoc(DenseXRetrievalPack.load) or ""), (
        f"the docstring of DenseXRetrievalPack.load does not say that {name} is kept"
    )


def test_an_index_keeps_at_least_what_units_it_has() -> None:
    assert set(OF_THE_INDEX) >= {"mode", "granularity", "hybrid"}
