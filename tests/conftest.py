"""What holds for all tests."""

import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Whoever runs the tests in the background may have had Ctrl-C ignored, and processes inherit that.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The first example of a test may load a library, and cores are shared: slow is no failure.
settings.register_profile("hunt", deadline=None)
# What fails is a change's own fault, and fails everywhere: `make hunt` is what looks for examples
# that nobody has thought of yet.
settings.register_profile("roquet", parent=settings.get_profile("hunt"), derandomize=True)
settings.load_profile("roquet")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several processes share the tests, a file each; all that ask for Spark are one process's."""
    for item in items:
        asks = "spark" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("spark" if asks else item.nodeid.split("::")[0]))


def pytest_collection_finish() -> None:
    """Freeze the collected tests: each garbage collection would walk ten thousand of them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores: tests wait for Java, for other processes and for clocks."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The one Spark of all tests: it takes seconds to start."""
    from roquet.spark.session import session  # only where a test asks for it

    with pytest.MonkeyPatch.context() as patch:
        # Its workers are other processes, which know nothing of pytest's `pythonpath`.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "src"))
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "SPARK_LOCAL_IP"):
            patch.setenv(name, os.environ.get(name, ""))  # `session` sets them; put back after us
        conf = {
            "spark.sql.shuffle.partitions": "2",
            # The second compiler and the parallel collector cost more than they save in tests.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        running = session("tests", master="local[2]", **conf)
        yield running
        running.stop()
