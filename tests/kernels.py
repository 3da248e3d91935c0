"""Kernels that run notebooks in tests."""

from __future__ import annotations

import atexit
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager


def kernel_manager(kernels: Path) -> AsyncKernelManager:
    """What starts a kernel of the interpreter that runs the tests, which is described in a folder.

    It is talked to by files: a TCP port that is free when it is chosen may be another test's server a moment
    later. Their folder has a short name, since the paths of such files may have 100 characters.
    """
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "language": "python",
        "display_name": "tests",
    }
    (kernels / "tests").mkdir(parents=True, exist_ok=True)
    (kernels / "tests" / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    by_files: dict[str, Any] = {}
    if sys.platform != "win32":
        folder = tempfile.mkdtemp(prefix="k")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        by_files = {"transport": "ipc", "connection_file": str(Path(folder) / "k.json")}
    specs = KernelSpecManager(kernel_dirs=[str(kernels)], ensure_native_kernel=False)
    return AsyncKernelManager(kernel_name="tests", kernel_spec_manager=specs, **by_files)
