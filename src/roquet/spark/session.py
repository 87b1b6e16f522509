"""session: a SparkSession on this machine or a cluster, ready for `format("roquet")`.

    spark = session("orders to the lake")
    spark = session("orders to the lake", "spark://spark:7077")     # or the driver of a cluster
    spark = session("orders to the lake", "sc://spark:15002")       # or a server of Spark Connect

Spark takes Python and Java from the environment in which its JVM starts, so the first session of a
process decides both. Over Spark Connect the JVM is the server's.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from roquet.model.errors import ConfigError
from roquet.spark.java import java_home
from roquet.spark.versions import PYSPARK_VERSION, require_spark
from roquet.spark.worker_process import log_as_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SESSION_CONF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",  # the source's option pushdown needs it
    }
)
"""Settings of every session; on a cluster the others come from its `spark-defaults.conf`."""

LOCAL_CONF: Final[Mapping[str, str]] = MappingProxyType(
    {
        **SESSION_CONF,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        "spark.driver.host": "127.0.0.1",  # a laptop's own name may not resolve
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        # A rename on this machine's disk is one step by either way. The default one starts more
        # processes (readlink beside chmod), which cost a trigger more than all its rows do.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        ),
    }
)
"""Defaults for one machine; `session` takes other values, and more."""


CORES_VARIABLE: Final = "ROQUET_SPARK_CORES"
"""Environment variable of a local session's JVM: the cores of the session. The source plans in a
process of that JVM, which tells it nothing else of them."""

LEFT_OUT: Final = "python"
"""The directory with the archive; the rest of it are scripts for shells."""

CONNECT_SCHEME: Final = "sc://"


def session(app_name: str, master: str = "local[*]", **conf: str) -> "SparkSession":
    """A SparkSession; settings with dots in their names: `**{"spark.ui.enabled": "true"}`."""
    try:
        require_spark()
    except ImportError as error:
        raise ConfigError(str(error)) from None
    if is_connect_url(master):
        return _connect_session(master, conf)
    from pyspark.sql import SparkSession

    log_as_spark()
    prepare_environment(os.environ, master)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in {**(LOCAL_CONF if is_local(master) else SESSION_CONF), **conf}.items():
        builder = builder.config(name, value)
    with _cores_told(local_cores(master)):
        return builder.getOrCreate()


def is_local(master: str) -> bool:
    """Whether driver and executors run in this process's machine."""
    return master.startswith("local")


def is_connect_url(master: str) -> bool:
    """Whether a master is a server of Spark Connect, `sc://HOST:PORT`."""
    return master.startswith(CONNECT_SCHEME)


def local_cores(master: str) -> int | None:
    """The cores of a local master such as `local[4]` or `local[*,4]`; None for a cluster."""
    if not is_local(master):
        return None
    found = re.match(r"local\[(\*|\d+)[,\]]", master)
    if found is None:
        return 1
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1])


def cores_of_environment(environ: Mapping[str, str] = os.environ) -> int | None:
    """The cores that `session` told its JVM of; None for a cluster and for others' sessions."""
    text = environ.get(CORES_VARIABLE, "")
    return int(text) if text.isdecimal() and int(text) else None


def prepare_environment(
    environ: "os._Environ[str] | dict[str, str]", master: str = "local[*]"
) -> None:
    """Set the environment variables that Spark reads when its JVM starts."""
    environ["JAVA_HOME"] = str(java_home(environ))
    environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # numpy starts a thread for each core, for matrices that no source or job has, in each worker.
    environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if is_local(master):
        environ["PYSPARK_PYTHON"] = sys.executable
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if "SPARK_HOME" not in environ and (home := linked_home(environ)) is not None:
            environ["SPARK_HOME"] = str(home)
    else:  # executors connect to the driver, and may have their Python elsewhere
        environ.setdefault("PYSPARK_PYTHON", sys.executable)


def linked_home(environ: Mapping[str, str] = os.environ) -> Path | None:
    """A directory for SPARK_HOME with links to the installed PySpark, but for an archive of Python.

    Spark puts that archive in front of the path of all Python processes that it starts, and each
    compiles its code again, which takes 0.6 s of CPU time at the start of a query and of a pool of
    workers. Without the archive they import the installed package.

    The directory lies in the user's cache directory. None when PySpark has no such archive, or when
    links cannot be made: Spark then uses PySpark's own directory.
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


def _connect_session(url: str, conf: Mapping[str, str]) -> "SparkSession":
    """A session of a server; ConfigError, with the command that installs them, without gRPC."""
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder.remote(url)
        for name, value in {**SESSION_CONF, **conf}.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except ImportError as error:
        wanted = ".".join(map(str, PYSPARK_VERSION))
        raise ConfigError(
            f"{url} is Spark Connect, whose client needs gRPC: "
            f"pip install 'pyspark[connect]=={wanted}.*'"
        ) from error


@contextmanager
def _cores_told(cores: int | None) -> Iterator[None]:
    """Have the number of cores in the environment while a JVM starts, and not longer."""
    before = os.environ.pop(CORES_VARIABLE, None)
    if cores is not None:
        os.environ[CORES_VARIABLE] = str(cores)
    try:
        yield
    finally:
        os.environ.pop(CORES_VARIABLE, None)
        if before is not None:
            os.environ[CORES_VARIABLE] = before
