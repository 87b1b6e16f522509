"""session: a SparkSession on this machine or a cluster, ready for `format("roquet")`.

    spark = session("orders to the lake")
    spark = session("orders to the lake", "spark://spark:7077")     # or the driver of a cluster

Spark takes Python and Java from the environment in which its JVM starts, so the first session of a
process decides both.
"""

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from roquet.model.errors import ConfigError
from roquet.spark.java import java_home
from roquet.spark.versions import require_spark

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
        # A rename on this machine's disk is one step by either way; this one starts no processes,
        # which cost a trigger more than all its rows do.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        ),
    }
)
"""Defaults for one machine; `session` takes other values, and more."""


def session(app_name: str, master: str = "local[*]", **conf: str) -> "SparkSession":
    """A SparkSession; settings with dots in their names: `**{"spark.ui.enabled": "true"}`."""
    _check_version()
    from pyspark.sql import SparkSession

    prepare_environment(os.environ, master)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in {**(LOCAL_CONF if is_local(master) else SESSION_CONF), **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def is_local(master: str) -> bool:
    """Whether driver and executors run in this process's machine."""
    return master.startswith("local")


def prepare_environment(
    environ: "os._Environ[str] | dict[str, str]", master: str = "local[*]"
) -> None:
    """Set the environment variables that Spark reads when its JVM starts."""
    environ["JAVA_HOME"] = str(java_home(environ))
    environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local(master):
        environ["PYSPARK_PYTHON"] = sys.executable
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:  # executors connect to the driver, and may have their Python elsewhere
        environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _check_version() -> None:
    try:
        require_spark()
    except ImportError as error:
        raise ConfigError(str(error)) from None
