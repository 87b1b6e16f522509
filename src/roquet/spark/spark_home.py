"""Spark home: a directory like PySpark's own, without the archive of PySpark's Python code.

Spark puts `python/lib/pyspark.zip` of its home in front of the path of all Python processes that it
starts. Each of them compiles the code of an archive again, which takes 0.6 s of CPU time at the
start of a query and of a pool of workers. Without the archive they import the installed package.
"""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

LEFT_OUT: Final = "python"
"""The directory with the archive; the rest of it are scripts for shells."""


def linked_home(environ: Mapping[str, str] = os.environ) -> Path | None:
    """A directory for SPARK_HOME with links to the entries of the installed PySpark.

    It lies in the user's cache directory. None when PySpark has no such archive, or when links
    cannot be made: Spark then uses PySpark's own directory.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    installed = Path(spec.origin).parent
    if not (installed / LEFT_OUT / "lib" / "pyspark.zip").exists():
        return None
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".cache"
    name = hashlib.sha256(os.fsencode(installed)).hexdigest()[:16]
    home = Path(cache) / "roquet" / "spark" / name
    try:
        home.mkdir(parents=True, exist_ok=True)
        for entry in ("bin", "jars", "sbin", "conf", "data"):
            if (installed / entry).is_dir():
                with suppress(FileExistsError):
                    (home / entry).symlink_to(installed / entry)
    except (OSError, NotImplementedError):
        return None
    return home
