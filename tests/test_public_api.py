"""The public API: what the reference documents is held by a list, and each name of it has an example that
runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.instrumentation import get_dispatcher

import llama_pack_densex
import llama_pack_densex.evaluation
from tests.openai_server import OpenAIServer, Reply, asked_content, held

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference" / "api.md"
LIST = Path(__file__).with_suffix(".txt")
DIRECTIVE = re.compile(
    r"^\.\. auto\w+:: (?P<name>[\w.]+)\n(?P<options>(?:   :.*\n)*)", re.MULTILINE
)
ROW = re.compile(r"^\| `(?P<name>llama_pack_densex[\w.]+)`", re.MULTILINE)
NEEDED_MODULES = {
    "llama_pack_densex.DenseXRetrievalPack.from_vector_store": "chromadb",
    "llama_pack_densex.Strategy": "ir_measures",
    "llama_pack_densex.compare": "ir_measures",
    "llama_pack_densex.evaluation": "ir_measures",
    "llama_pack_densex.ingestion.ray": "ray",
    "llama_pack_densex.ingestion.ray.ingest_shards": "chromadb",
    "llama_pack_densex.serving.app": "fastapi",
    "llama_pack_densex.serving.mcp": "mcp",
}
PROPOSITIONS = {
    "Miso, a seasoning, is made of soybeans.": [
        "Miso is a seasoning.",
        "Miso is made of soybeans.",
    ],
}
QUESTION = {
    "kind": "fact",
    "question": "For how many months can soybean paste be stored?",
    "evidence": "It keeps for a year in a cool cellar.",
    "answer": "a year",
}
WHAT_TO_DO = """\
The public API is no longer what tests/test_public_api.txt says.
Added: document it in docs/reference/api.md, with an example in its docstring, and add its line to the list.
Removed, renamed, or other arguments: programs of users break. Keep the old form working with a
DeprecationWarning, or change the line, with an entry in CHANGELOG.md and a new minor version."""


def reply(request: dict[str, Any]) -> Reply | str:
    """What the stand-in for OpenAI answers: a passage's propositions, a question about it, or an answer."""
    if request["model"] == "gpt-4":
        return Reply(
            "The model `gpt-4` does not exist or you do not have access to it.", status=404
        )
    if QUESTION["evidence"] in asked_content(request):
        return json.dumps(QUESTION)
    if asked_content(request):
        return held(PROPOSITIONS)(request)
    return "The Akashi Bridge opened in 1998.[^1]"


@dataclass(frozen=True)
class PublicName:
    """A name of the reference.

    Args:
        name: Where it is imported from.
        member: The method or property of that class; empty for the class, or a function, itself.
    """

    name: str
    member: str = ""

    def __str__(self) -> str:
        return f"{self.name}.{self.member}" if self.member else self.name

    @property
    def value(self) -> Any:
        for prefix, module in NEEDED_MODULES.items():
            if str(self).startswith(prefix):
                pytest.importorskip(module)
        return pkgutil.resolve_name(str(self))

    @property
    def line(self) -> str:
        """Its line in the list: the name, and the arguments that it takes."""
        value = self.value
        is_called = callable(value) and not (
            inspect.isclass(value) and issubclass(value, Exception)
        )
        return f"{self}{arguments_of(value)}" if is_called else str(self)


def arguments_of(value: Any) -> str:
    signature = inspect.signature(value)
    is_method = inspect.isfunction(value) and "." in value.__qualname__
    parameters = [
        parameter.replace(
            annotation=parameter.empty,
            default=parameter.empty if parameter.default is parameter.empty else ...,
        )
        for parameter in list(signature.parameters.values())[is_method:]
        if parameter.name not in fields_of_others(value)
    ]
    shown = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return str(shown).replace("Ellipsis", "...")


def fields_of_others(value: Any) -> set[str]:
    """The fields that a class has of LlamaIndex, which are different from version to version."""
    bases = [
        base
        for base in getattr(value, "__mro__", ())
        if not base.__module__.startswith("llama_pack")
    ]
    return {name for base in bases for name in getattr(base, "model_fields", {})}


def documented() -> Iterator[PublicName]:
    text = REFERENCE.read_text(encoding="utf-8")
    for match in DIRECTIVE.finditer(text):
        yield PublicName(match["name"])
        for member in members_of(match["name"], match["options"]):
            yield PublicName(match["name"], member)
    for match in ROW.finditer(text):
        yield PublicName(match["name"])


def members_of(name: str, options: str) -> list[str]:
    members = re.search(r":members:(.*)", options)
    if members is None:
        return []
    if members[1].strip():
        return [member.strip() for member in members[1].split(",")]
    hidden = re.findall(r":exclude-members: (.*)", options)
    public = (member for member in vars(pkgutil.resolve_name(name)) if not member.startswith("_"))
    return [member for member in public if member not in hidden]


NAMES = list(documented())
EACH_NAME = pytest.mark.parametrize("public_name", NAMES, ids=str)


@EACH_NAME
def test_it_is_as_the_list_has_it(public_name: PublicName) -> None:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    assert public_name.line in lines, (
        f"{WHAT_TO_DO}\nThe line as it would be now: {public_name.line}"
    )


def test_the_list_has_nothing_else() -> None:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    assert [line.partition("(")[0] for line in lines] == sorted(map(str, NAMES)), WHAT_TO_DO


@pytest.mark.parametrize("module", [llama_pack_densex, llama_pack_densex.evaluation])
def test_what_a_module_exports_is_documented(module: Any) -> None:
    exported = {f"{module.__name__}.{name}" for name in module.__all__}
    # `Strategy` is documented as a name of the package
    assert exported - {"llama_pack_densex.evaluation.Strategy"} <= {each.name for each in NAMES}, (
        WHAT_TO_DO
    )


def test_what_the_pages_import_is_documented() -> None:
    pages = [*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("notebooks/*.ipynb")]
    imported = {
        f"{module}.{name}"
        for page in pages
        for module, names in re.findall(
            r"from (llama_pack_densex[\w.]*) import ([\w, ]+)", page.read_text(encoding="utf-8")
        )
        for name in re.findall(r"\w+", names)
    }
    assert imported <= {each.name for each in NAMES}, WHAT_TO_DO


@EACH_NAME
def test_its_example_runs(
    public_name: PublicName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method's example goes on where that of its class ends."""
    docstrings = [public_name.value.__doc__ or ""]
    if public_name.member:
        docstrings.insert(0, PublicName(public_name.name).value.__doc__)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(get_dispatcher(), "event_handlers", [])
    with OpenAIServer(reply) as server:
        if "OpenAI(" in "".join(docstrings):
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            monkeypatch.setenv("OPENAI_API_BASE", server.url)
        names: dict[str, Any] = {}
        for docstring in docstrings:
            test = doctest.DocTestParser().get_doctest(docstring, names, str(public_name), None, 0)
            report: list[str] = []
            doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
                test, out=report.append, clear_globs=False
            )
            assert not report, "".join(report)
            names = test.globs


@EACH_NAME
def test_its_example_shows_what_comes_out_or_says_why_it_is_not_run(
    public_name: PublicName,
) -> None:
    docstring = public_name.value.__doc__ or ""
    examples = doctest.DocTestParser().get_examples(docstring)
    assert "Example:" in docstring, "begin the example with a line 'Example:'"
    assert any(example.want for example in examples) or "doctest: +SKIP" in docstring
    assert "doctest: +SKIP" not in docstring or re.search(r"# not run: \w+", docstring)


PRIVATE_MODULES = (
    "index.embedded",
    "ingestion.batch",
    "llm.thoughts",
    "node_parsers.passages",
    "text.links",
    "text.outline",
    "text.tables",
)


@pytest.mark.parametrize("module", PRIVATE_MODULES)
def test_examples_of_other_modules_run_too(module: str) -> None:
    name = f"llama_pack_densex.{module}"
    result = doctest.testmod(importlib.import_module(name))
    assert (result.failed, result.attempted > 0) == (0, True)
