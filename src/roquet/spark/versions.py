"""Versions of Python and packages: those that Spark's driver needs, and those that workers have.

The data source API changes with each minor version of PySpark, and tasks are pickled by one Roquet
and unpickled by another: what does not fit is refused with both versions, before anything is read.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from roquet import __version__

PYSPARK_VERSION: Final = (4, 3)

PYARROW_MIN: Final = 20
"""Oldest major version of pyarrow; the extra `arrow` names it, too."""

ADVICE: Final = "pip install 'roquet[spark]'"

OWN_SPARK: Final = (
    f"{ADVICE}, or with the cluster's own Spark pip install 'roquet[spark-client]' and set "
    "SPARK_HOME to its directory"
)
"""The advice where there is no pyspark at all."""


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """Versions that one Python process has; None for a package that is missing."""

    host: str = ""
    executable: str = ""
    python: str
    """Major and minor number: Spark's workers take no other minor version than the driver's."""
    roquet: str | None
    pyspark: str | None
    pyarrow: str | None


def require_spark(installed: str | None = None) -> None:
    """Raise ImportError, with the command to install it, unless pyspark is the supported one."""
    version = _installed() if installed is None else installed
    if _minor(version) != PYSPARK_VERSION:
        wanted = ".".join(map(str, PYSPARK_VERSION))
        text = f"Roquet's source for Spark needs pyspark {wanted}, this is {version}: {ADVICE}"
        raise ImportError(text)


def require_pyspark() -> None:
    """Raise ImportError, with the command to install it, where there is no pyspark at all."""
    if not find_spark():
        raise ImportError(f"Roquet's source for Spark needs pyspark: {OWN_SPARK}")


def find_spark(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether pyspark can be imported; that of SPARK_HOME is put on the path when none is there."""
    if importlib.util.find_spec("pyspark") is not None:
        return True
    home = environ.get("SPARK_HOME")
    if not home:
        return False
    sys.path[:0] = spark_home_paths(Path(home))
    importlib.invalidate_caches()
    return importlib.util.find_spec("pyspark") is not None


def spark_home_paths(home: Path) -> list[str]:
    """The entries of Python's path by which a Spark directory has pyspark and py4j."""
    python = home / "python"
    gateways = sorted((python / "lib").glob("py4j-*-src.zip"))
    return [str(path) for path in (python, *gateways[-1:]) if path.exists()]


def version_reporter() -> Callable[[int], str]:
    """A function for a Spark task that returns its worker's `Versions` as JSON.

    It is a closure and imports what it needs, so that Spark pickles its code and not its name: it
    runs in a worker that has no Roquet.
    """

    def report(_number: int) -> str:
        import importlib
        import json
        import socket
        import sys
        import time

        found: dict[str, str | None] = {}
        for name in ("roquet", "pyspark", "pyarrow"):
            try:
                found[name] = str(importlib.import_module(name).__version__)
            except ImportError:
                found[name] = None
        time.sleep(0.4)  # tasks of this length are dealt to all executors, not to the first one
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        place = {"host": socket.gethostname(), "executable": sys.executable}
        return json.dumps({**place, "python": python, **found})

    return report


def own_versions() -> Versions:
    """The versions of this process; ImportError without pyspark or pyarrow."""
    import pyarrow as pa
    from pyspark import __version__ as pyspark_version

    return Versions(
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        roquet=__version__,
        pyspark=pyspark_version,
        pyarrow=str(pa.__version__),
    )


def parse_report(text: str) -> Versions:
    """The versions in a worker's report."""
    return msgspec.convert(json.loads(text), Versions)


def misfits(driver: Versions, worker: Versions) -> list[str]:
    """Differences that keep a worker from running a driver's tasks, each with both versions."""
    found = []
    if worker.python != driver.python:
        found.append(f"Python {worker.python} and not {driver.python}")
    if worker.roquet != driver.roquet:
        found.append(_difference("roquet", worker.roquet, driver.roquet))
    if worker.pyspark is None or _minor(worker.pyspark) != _minor(driver.pyspark or ""):
        found.append(_difference("pyspark", worker.pyspark, driver.pyspark))
    if worker.pyarrow is None or _minor(worker.pyarrow)[:1] < (PYARROW_MIN,):
        found.append(_difference("pyarrow", worker.pyarrow, f"{PYARROW_MIN} or newer"))
    return found


def misfit_text(driver: Versions, workers: Iterable[Versions]) -> str | None:
    """One sentence about the workers that do not fit the driver; None when all do."""
    places = {
        f"{worker.host} ({worker.executable}) has {', '.join(found)}": None
        for worker in sorted(workers, key=lambda each: (each.host, each.executable))
        if (found := misfits(driver, worker))
    }
    if not places:
        return None
    return (
        f"Spark's workers do not fit this driver: {'; '.join(places)}: install the driver's "
        f"versions there (pip install 'roquet[spark-client]=={__version__}'), or bring its "
        "environment along (spark-submit --archives)"
    )


def _difference(package: str, there: str | None, here: str | None) -> str:
    if there is None:
        return f"no {package}, which has to be {here}"
    return f"{package} {there} and not {here}"


def _minor(version: str) -> tuple[int, ...]:
    """Major and minor number of a version, as far as they are numbers."""
    parts = []
    for part in version.split(".")[:2]:
        if not part.isdecimal():
            break
        parts.append(int(part))
    return tuple(parts)


def _installed() -> str:
    require_pyspark()
    from pyspark import __version__ as version

    return str(version)
