"""Index folders as a test copies and reads them.

SQLite takes its log away when the last connection closes. A connection that no test holds any
more is closed by the garbage collector, at any moment: between the listing of a folder and the
reading of its files too. So such connections are closed first.
"""

import gc
import shutil
from pathlib import Path


def copy_index(folder: Path, target: Path) -> Path:
    """Copy an index to a folder of which this process has nothing open."""
    gc.collect()
    return Path(shutil.copytree(folder, target))


def files_in(folder: Path) -> list[Path]:
    """All files, those in folders of the folder too."""
    gc.collect()
    return sorted(path for path in folder.rglob("*") if path.is_file())


def bytes_in(folder: Path) -> bytes:
    """What is in all files, one after the other."""
    return b"".join(file.read_bytes() for file in files_in(folder))
