"""Real servers on the loopback interface, each for as long as a block runs."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

POSTGRES_USER = "densex"


class Servers:
    """Servers that start when they are first needed and stop together; a test is skipped where one is
    missing."""

    def __init__(self) -> None:
        self._running = ExitStack()

    @cached_property
    def chroma(self) -> int:
        """The port of `chroma run`."""
        if not _CHROMA.exists():
            pytest.skip("the chroma program is missing")
        return self._running.enter_context(_chroma_server())

    @cached_property
    def redis(self) -> int:
        """The port of a Redis."""
        if shutil.which("redis-server") is None:
            pytest.skip("redis-server is not installed")
        return self._running.enter_context(_redis_server())

    @cached_property
    def postgres(self) -> int:
        """The port of a PostgreSQL."""
        if postgres_programs() is None:
            pytest.skip("pgserver, which brings Postgres, is missing")
        return self._running.enter_context(_postgres_server())

    def stop(self) -> None:
        """Stop those that run."""
        self._running.close()


_CHROMA = Path(sys.executable).with_name("chroma")


_PORTS = range(10_000, 32_000)  # below those that systems give to servers that do not name one


def free_port() -> int:
    """A port that nothing listens on, and that no server of another test gets before this one is up."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def running(
    command: Sequence[object], port: int, how_to_stop: int, **options: Any
) -> Iterator[None]:
    """Run a server until the block ends; it is ready when its port answers."""
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )
    try:
        for _ in range(1200):
            assert process.poll() is None, f"{command[0]} ended with code {process.returncode}"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.025)
        else:
            raise TimeoutError(f"{command[0]} does not answer on port {port}")
        yield
    finally:
        process.send_signal(how_to_stop)
        process.wait(timeout=30)


@contextmanager
def _chroma_server() -> Iterator[int]:
    """`chroma run` on an empty folder; yields its port."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["run", "--path", folder, "--host", "127.0.0.1", "--port", port]
        with running([_CHROMA, *options], port, signal.SIGTERM, cwd=folder):
            yield port


@contextmanager
def _redis_server() -> Iterator[int]:
    """An empty Redis; yields its port."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--bind", "127.0.0.1", "--port", port, "--dir", folder, "--save", ""]
        with running(["redis-server", *options], port, signal.SIGTERM):
            yield port


def postgres_programs() -> Path | None:
    """The folder of the PostgreSQL that `pgserver` brings; None where it is not installed."""
    # not imported: as root it adds a user to the system
    package = importlib.util.find_spec("pgserver")
    if package is None or not package.submodule_search_locations:
        return None
    return Path(package.submodule_search_locations[0]) / "pginstall" / "bin"


def _within_reach(programs: Path, folder: Path) -> Path:
    """The programs where another user may run them: an environment may lie below a folder that only root may
    enter."""
    if all(parent.stat().st_mode & 0o001 for parent in programs.parents):
        return programs
    packages = programs.parents[2]
    for package in packages.glob("pgserver*"):  # the libraries are in a package beside it
        if package.is_dir() and package.suffix != ".dist-info":
            shutil.copytree(package, folder / package.name)
    return folder / programs.relative_to(packages)


@contextmanager
def _postgres_server() -> Iterator[int]:
    """An empty PostgreSQL of the user `POSTGRES_USER`, who needs no password; yields its port."""
    programs = postgres_programs()
    assert programs is not None, "pgserver is missing"
    port = free_port()
    folder = Path(tempfile.mkdtemp())
    options: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:  # it does not run as root
        shutil.chown(folder, "nobody")
        options |= {"user": "nobody", "extra_groups": []}
        programs = _within_reach(programs, folder)
    data = folder / "data"
    make = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        POSTGRES_USER,
        "--auth=trust",
        "--encoding=utf8",
        "--no-sync",
    ]
    serve = [programs / "postgres", "-D", data, "-p", port, "-h", "127.0.0.1", "-k", folder, "-F"]
    try:
        subprocess.run(list(map(str, make)), check=True, capture_output=True, timeout=60, **options)
        with running(serve, port, signal.SIGINT, **options):
            asking = [programs / "pg_isready", "-h", "127.0.0.1", "-p", port]
            while (
                subprocess.run(list(map(str, asking)), capture_output=True, check=False).returncode
                == 1
            ):
                time.sleep(0.05)  # its port answers before it does
            yield port
    finally:
        shutil.rmtree(folder)
