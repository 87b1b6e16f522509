"""One Spark for all tests of the demo: it takes seconds to start."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The same as in tests/spark: whoever comes first starts it."""
    from roquet.spark.session import session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3] / "src"))
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "SPARK_LOCAL_IP"):
            patch.setenv(name, os.environ.get(name, ""))
        running = session("tests", master="local[2]", **{"spark.sql.shuffle.partitions": "2"})
        yield running
        running.stop()
