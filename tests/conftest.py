"""What several tests share."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import certifi
import hypothesis
import pytest

from tests.hub import make_hub_cache
from tests.integration.servers import Servers

# A shell that starts a job in the background has it ignore Ctrl-C, which some tests send themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:  # the process that only hands out tests imports neither it nor the package
    from llama_index.core import Document

ROOT = Path(__file__).parent.parent
DATA = ROOT / "llama_pack_densex" / "samples"
# Before huggingface_hub is imported, which reads it then: what the user has downloaded is no test's business.
os.environ["HF_HUB_CACHE"] = str(make_hub_cache(ROOT / ".pytest_cache" / "hub"))


@pytest.fixture(autouse=True, scope="session")
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have clients trust one authority: to read all of them takes 20 ms for each client, and no test needs
    any."""
    end = "-----END CERTIFICATE-----\n"
    file = tmp_path_factory.mktemp("certificate") / "one.pem"
    file.write_text(certifi.contents().partition(end)[0] + end, encoding="utf-8")
    os.environ["SSL_CERT_FILE"] = str(file)


# No test depends on luck: the same examples each time. HYPOTHESIS_PROFILE=nightly tries more of them.
hypothesis.settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True)
hypothesis.settings.register_profile("nightly", max_examples=300, deadline=None, derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread of which no test is wanted: Ray takes a second to import."""
    if collection_path.suffix != ".py":
        return None
    marks = _marks_of_file(collection_path)
    is_unwanted = {"not slow": "slow" in marks, "pure and not slow": "pure" not in marks}
    return is_unwanted.get(config.option.markexpr) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while so much comes that stays, nor in that ever after, and seldom in the rest."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark those cases of tests that are slow."""
    for item in items:
        if any(
            _is_among(item, *mark.args, **mark.kwargs) for mark in item.iter_markers("slow_cases")
        ):
            item.add_marker(pytest.mark.slow)


def _is_among(item: pytest.Item, *patterns: str, but: Sequence[str] = ()) -> bool:
    """Whether a test's name, or the id of its case, is like one of some, and like none of others."""
    case = item.name.partition("[")[2].removesuffix("]")

    def is_like(pattern: str) -> bool:
        return fnmatchcase(case, pattern) or fnmatchcase(item.name, pattern)

    return any(map(is_like, patterns)) and not any(map(is_like, but))


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process whole groups; the marks of pytest-xdist 3.8 for that do nothing with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    is_slow = config.option.markexpr == "slow"

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group_of(nodeid, is_slow)

    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


_STORE = re.compile(
    r"tests/integration/stores/.*\[(chroma|embedded|faiss|lancedb|milvus|postgres|qdrant)"
)


def _group_of(test: str, is_slow: bool) -> str:
    """What is the same for tests that one process is to run: their store, else what their file's mark says,
    else the file; slow ones may be run by any."""
    store = _STORE.match(test)
    if store:
        return store[1]
    file = test.partition("::")[0]
    return _marks_of_file(ROOT / file).get("together") or (test if is_slow else file)


@cache
def _marks_of_file(file: Path) -> dict[str, str]:
    """The marks of all tests of a file, which is not imported for them, with their first argument."""
    marks = re.search(
        r"^pytestmark = (?:\[\n.*?^\]|.*?$)", file.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return dict(re.findall(r"pytest\.mark\.(\w+)(?:\(\"(\w+)\"\))?", marks[0])) if marks else {}


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no hub, and Settings as a new process has them; whatever a test sets is gone after it."""
    from llama_index.core import Settings

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("_llm", "_embed_model", "_callback_manager", "_node_parser", "_transformations"):
        monkeypatch.setattr(Settings, name, None)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Real servers of stores, each started when it is first needed."""
    running = Servers()
    yield running
    running.stop()


@pytest.fixture
def documents() -> list[Document]:
    """Three short documents, two in English and one in Japanese."""
    from llama_index.core import Document

    return [
        Document(
            id_="tides",
            text=(
                "# Tides\n\n## Cause\n\nThe Moon pulls the ocean towards itself. Its pull raises two "
                "bulges.\n\n## Records\n\nThe Bay of Fundy has the highest tides. They reach 16 metres there."
            ),
            metadata={"topic": "sea", "tags": ["moon", "water"]},
        ),
        Document(
            id_="bridges",
            text=(
                "The Akashi Bridge opened in 1998. Its main span is 1,991 metres long. It crosses a busy "
                "strait."
            ),
            metadata={"topic": "building"},
        ),
        Document(
            id_="鉄道",
            text=(
                "新幹線は1964年に開業した。最初の路線は東京と新大阪を結んだ。「夢の超特急」と呼ばれ、"
                "時速210キロで走った。"
            ),
            metadata={"topic": "鉄道"},
        ),
    ]
