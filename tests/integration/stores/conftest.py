"""Every store beside every check, and the table that comes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from llama_pack_densex import DenseXRetrievalPack
from tests.integration.servers import Servers
from tests.integration.stores.corpus import MODES, corpus, options
from tests.integration.stores.kinds import KINDS
from tests.integration.stores.open_store import Address, OpenStore, StoreKind
from tests.integration.stores.reopen import SEARCHES
from tests.integration.stores.table import Outcome, write_table

CORNERS = (("recursive", "hybrid"), ("auto_merging", "dense"))
_outcomes: list[Outcome] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stores")
    group.addoption(
        "--write-table",
        metavar="FILE",
        help="write the table of what each store passes into a document",
    )


def pytest_configure(config: pytest.Config) -> None:
    options = config.option
    some = options.markexpr or options.keyword or getattr(options, "numprocesses", None)
    if config.getoption("--write-table", default=None) and some:
        raise pytest.UsageError(
            "--write-table needs all checks, in one process: the table is of all of them"
        )
    config.addinivalue_line(
        "markers", "column(name): the column of the table that a check belongs to"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Leave out what is for the table alone, expect the limits of stores, and call some kinds slow."""
    of_kinds = [(item, kind) for item in items if (kind := _kind_of(item)) is not None]
    is_for_the_table = bool(config.getoption("--write-table", default=None))
    left_out = {
        item
        for item, kind in of_kinds
        if not is_for_the_table and not _is_a_check_of_its_own(kind, item.callspec.params)
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    for item, kind in of_kinds:
        if not kind.is_every_days:
            item.add_marker(pytest.mark.slow)
        if reason := kind.limits.get(getattr(item, "originalname", item.name)):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _is_a_check_of_its_own(kind: StoreKind, parameters: Mapping[str, Any]) -> bool:
    """Whether tests have a check: every mode, search and seed on the embedded store, corners of them on
    others.

    Above a store's adapter the code is the same for all of them; `make test-stores` has every check.
    """
    if kind.slug == "embedded-folder":
        return True
    mode, search = parameters.get("mode"), parameters.get("search")
    if search is None:
        return (
            mode in (None, MODES[0] if kind.is_in_memory else MODES[1])
            and parameters.get("seed", 0) == 0
        )
    return (mode, search) in CORNERS


def _kind_of(item: Any) -> StoreKind | None:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return KINDS.get(str(parameters.get("kind")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Note what became of each check."""
    report = yield
    kind, column = _kind_of(item), item.get_closest_marker("column")
    if kind is not None and column is not None and (call.when == "call" or not report.passed):
        reason = getattr(report, "wasxfail", "").removeprefix("reason: ")
        if report.skipped and not reason:
            reason = f"not run: {call.excinfo.value if call.excinfo else ''}"
        _outcomes.append(Outcome(kind.slug, column.args[0], report.outcome, reason))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if file := session.config.getoption("--write-table", default=None):
        write_table(Path(file), _outcomes)


@pytest.fixture(scope="session", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> StoreKind:
    """A kind of store."""
    chosen = KINDS[request.param]
    if lacking := chosen.missing():
        pytest.skip(lacking)
    return chosen


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """A pack's mode."""
    return str(request.param)


@pytest.fixture(params=list(SEARCHES))
def search(request: pytest.FixtureRequest) -> str:
    """What a pack searches by."""
    return str(request.param)


@pytest.fixture
def address(kind: StoreKind, servers: Servers, tmp_path: Path) -> Address:
    """Where nothing has been written to."""
    return kind.new(tmp_path, servers)


@pytest.fixture
def store(kind: StoreKind, address: Address) -> Iterator[OpenStore]:
    """An empty store of a test's own."""
    opened = kind.open(address)
    yield opened
    opened.shut()


class Library:
    """Packs over the whole corpus that no test changes, each built when it is first read.

    Args:
        servers: The servers that some stores need.
        folders: Makes folders.
    """

    def __init__(self, servers: Servers, folders: pytest.TempPathFactory) -> None:
        self._servers, self._folders = servers, folders
        self._packs: dict[tuple[str, str, str], DenseXRetrievalPack] = {}
        self._stores: list[OpenStore] = []

    def pack(self, kind: StoreKind, mode: str, search: str) -> DenseXRetrievalPack:
        """The pack over one kind of store that searches in one way."""
        key = kind.slug, mode, search
        if key not in self._packs:
            store = kind.open(kind.new(self._folders.mktemp(kind.slug), self._servers))
            self._stores.append(store)
            self._packs[key] = store.build(corpus(), **options(mode, **SEARCHES[search]))
        return self._packs[key]

    def close(self) -> None:
        """Shut the stores."""
        for store in self._stores:
            store.shut()


@pytest.fixture(scope="session")
def library(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """Packs that are only read."""
    packs = Library(servers, tmp_path_factory)
    yield packs
    packs.close()


@pytest.fixture
def pack(library: Library, kind: StoreKind, mode: str, search: str) -> DenseXRetrievalPack:
    """A pack over the whole corpus, in each mode and for each way to search; for reading only."""
    return library.pack(kind, mode, search)
