"""Executors of a Spark session: how many tasks they run at once, and whether their packages fit.

Both are asked of the running session, not of this machine: a cluster has other cores than the
driver, gains and loses workers, and has packages of its own.
"""

import re
from typing import TYPE_CHECKING, Final

from roquet.model.errors import ConfigError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.session import is_local
from roquet.spark.versions import misfit_text, own_versions, parse_report, version_reporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_MODULE: Final = "pyspark.sql.connect"
"""The package of sessions of Spark Connect, which have no context in this process."""

CHECKS_MAX: Final = 4
"""Checks of the workers while executors of a new session come in one after the other."""

COUNT_MS: Final = 60_000
"""How long a count over Spark Connect is used again: each costs a Spark job."""

COUNT_ROWS: Final = 1 << 20
"""Rows of the range whose partitions are counted; more than any cluster has cores."""

VERSIONS_DIFFER: Final = re.compile(
    r"PYTHON_VERSION_MISMATCH.*?different version: (\S+) than that in driver: ([\d.]+\d)", re.DOTALL
)
MODULE_MISSING: Final = re.compile(
    r"No module named '(roquet|pyspark|pyarrow|pandas|numpy|msgspec|lz4|zstandard)[.']"
)
NO_PYTHON: Final = re.compile(r'Cannot run program "([^"]+)"')

CHECKED_CORES: Final[dict[str, int]] = {}
"""By Spark application, the tasks that it ran at once when its workers were checked."""

COUNTED_CORES: Final[dict[str, tuple[int, int]]] = {}
"""By session of Spark Connect, when its partitions were counted, in ms, and their number."""


def is_connect(spark: "SparkSession") -> bool:
    """Whether a session is one of Spark Connect, whose driver is a server elsewhere."""
    return type(spark).__module__.startswith(CONNECT_MODULE)


def require_context(spark: "SparkSession", what: str) -> None:
    """Raise ConfigError for a session of Spark Connect; `what` needs the driver's own context."""
    if is_connect(spark):
        raise ConfigError(
            f"{what} watches its Spark job from the driver, which is elsewhere with Spark Connect: "
            "give --master spark://HOST:7077, or unset SPARK_REMOTE for this machine"
        )


def parallel_tasks(spark: "SparkSession") -> int | None:
    """Number of tasks that the session's executors run at once now; None for no Spark session."""
    if is_connect(spark):
        return _partitions_of_range(spark)
    context = getattr(spark, "sparkContext", None)
    return None if context is None else max(1, int(context.defaultParallelism))


def check_workers(spark: "SparkSession") -> None:
    """Raise ConfigError, with both versions, when a worker's packages do not fit the driver's.

    A check is a small Spark job. It runs once for a session, and again when the session has more
    cores than then. Workers of a local session are this machine's own.
    """
    if is_connect(spark):
        key = spark.session_id  # type: ignore[attr-defined]  # of a session of Connect
        if key not in CHECKED_CORES:
            check_versions(spark, _partitions_of_range(spark))
            CHECKED_CORES[key] = 1
        return
    context = getattr(spark, "sparkContext", None)
    if context is None or is_local(str(context.master)):
        return
    for _ in range(CHECKS_MAX):
        count = max(1, int(context.defaultParallelism))
        if count <= CHECKED_CORES.get(str(context.applicationId), 0):
            break
        check_versions(spark, count)
        CHECKED_CORES[str(context.applicationId)] = count


def worker_fault(text: str) -> str | None:
    """Explain a failed task whose worker lacks a Python or a package; None for other errors."""
    if found := VERSIONS_DIFFER.search(text):
        there, here = found.groups()
        return (
            f"Spark's workers have Python {there}, this driver has {here}: PYSPARK_PYTHON names "
            f"the workers' Python, and has to be a {here}"
        )
    if found := NO_PYTHON.search(text):
        return (
            f"Spark's workers have no Python at {found[1]}: PYSPARK_PYTHON names the path that it "
            "has there"
        )
    if found := MODULE_MISSING.search(text):
        return (
            f"Spark's workers have no {found[1]}: pip install "
            "'roquet[spark-client]' there, or bring the driver's environment along "
            "(spark-submit --archives)"
        )
    return None


def check_versions(spark: "SparkSession", count: int) -> None:
    """Run so many tasks that report their worker's versions; ConfigError when some do not fit."""
    from pyspark.sql import functions

    # Without Arrow: a worker that lacks pyarrow can still say so where its Spark allows it.
    report = functions.udf(version_reporter(), "string", useArrow=False)
    try:
        rows = spark.range(0, count, 1, count).select(report("id").alias("report")).collect()
    except Exception as error:
        if fault := worker_fault(str(error)):
            raise ConfigError(fault) from error
        raise
    if text := misfit_text(own_versions(), [parse_report(row["report"]) for row in rows]):
        raise ConfigError(text)


def _partitions_of_range(spark: "SparkSession") -> int:
    """The partitions that a server's Spark gives to a range: one for each task it runs at once."""
    from pyspark.sql import functions

    now_ms = SYSTEM_CLOCK.monotonic_ms()
    key = spark.session_id  # type: ignore[attr-defined]  # of a session of Connect
    since_ms, count = COUNTED_CORES.get(key, (now_ms - COUNT_MS, 1))
    if now_ms - since_ms >= COUNT_MS:
        numbers = spark.range(COUNT_ROWS).select(functions.spark_partition_id().alias("number"))
        (row,) = numbers.select(functions.max("number").alias("last")).collect()
        count = int(row["last"]) + 1
        COUNTED_CORES[key] = now_ms, count
    return count
