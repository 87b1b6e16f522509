"""session: a Spark on this machine, ready for `format("roquet")`.

    spark = session("orders to the lake")

Spark takes its Python and its Java from the environment in which its Java starts, so the first
session of a process decides.
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

LOCAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        "spark.driver.host": "127.0.0.1",  # a laptop's own name may not resolve
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.python.filterPushdown.enabled": "true",  # the source's option pushdown needs it
    }
)
"""What suits one machine; `session` takes other values, and more."""


def session(app_name: str, master: str = "local[*]", **conf: str) -> "SparkSession":
    """A session; settings with dots in their names go in as `**{"spark.ui.enabled": "true"}`."""
    _check_version()
    from pyspark.sql import SparkSession

    prepare(os.environ)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in {**LOCAL, **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def prepare(environ: "os._Environ[str] | dict[str, str]") -> None:
    """What has to stand in the environment before Spark's Java starts."""
    environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environ["JAVA_HOME"] = str(java_home(environ))
    environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _check_version() -> None:
    try:
        require_spark()
    except ImportError as error:
        raise ConfigError(str(error)) from None
