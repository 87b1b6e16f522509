"""What holds for all tests."""

import asyncio
import fcntl
import gc
import os
import signal
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from roquet.testing.clock import VirtualLoop
from roquet.wire.records.speedups import COMPILED, use_compiled

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
settings.register_profile(
    "roquet", parent=settings.get_profile("hunt"), derandomize=True, max_examples=60
)
settings.load_profile("roquet")


TESTS = Path(__file__).parent

VIRTUAL_FOLDERS = {"client", "conversation", "proxy"}
"""Folders of tests whose coroutines run in virtual time."""

ID_LENGTH_MAX = 200
"""Characters of an argument in a test's id, which each report of the test repeats to xdist."""

GC_THRESHOLD = 5_000, 10, 50
"""Garbage collections are a tenth of the tests' time with Python's own (700, 10, 10)."""


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long text by its length: pytest would make a frame of 4 MB an id of 16 MB."""
    if isinstance(val, str | bytes) and len(val) > ID_LENGTH_MAX:
        return f"{argname} of {len(val)}"
    return None


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run async tests by a clock that jumps, in some folders and where the mark `virtual_time` is.

    What needs real sockets or threads there has the mark `virtual_time(False)`.
    """
    folder = item.path.relative_to(TESTS).parts[0]
    mark = item.get_closest_marker("virtual_time")
    is_virtual = folder in VIRTUAL_FOLDERS if mark is None else mark.args != (False,)
    return {"loop": VirtualLoop if is_virtual else asyncio.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several processes share the tests, a file each; all that ask for Spark are one process's.

    Those come first: they take a minute, at whose end other processes would have nothing to do.
    """
    for item in items:
        group = "spark" if _asks_for_spark(item) else item.nodeid.split("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_asks_for_spark, reverse=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the names of failed tests as `--last-failed` looks for them: xdist adds their group."""
    if (cache := session.config.cache) is None:
        return
    failed = cache.get("cache/lastfailed", {})
    names = [name.removesuffix("@spark") for name in failed]
    cache.set(
        "cache/lastfailed",
        {name.removesuffix(f"@{name.partition('::')[0]}"): True for name in names},
    )


def _asks_for_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: nearly all of it stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Freeze the collected tests: each garbage collection would walk ten thousand of them."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores: tests wait for Java, for other processes and for clocks."""
    return (os.cpu_count() or 1) + 1


NOT_COMPILED = "the inner loops are not compiled here: make install, with a C compiler"


# For the module, since Hypothesis runs a test many times with one fixture.
@pytest.fixture(scope="module", params=["python", "compiled"])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the tests of a module with the Python and with the compiled forms of inner loops."""
    name: str = request.param
    if name == "compiled" and not COMPILED:
        pytest.skip(NOT_COMPILED)
    before = use_compiled(name == "compiled")
    yield name
    use_compiled(before)


def _outcome(call: Callable[[], object]) -> object:
    """Value, or type and text of the error. Callers treat both errors of large numbers alike."""
    try:
        return call()
    except (struct.error, OverflowError):
        return OverflowError
    except Exception as error:
        return type(error), str(error)


@pytest.fixture(scope="session")
def outcome_of_both() -> Callable[[Callable[[], object]], object]:
    """Gives what a call returns or raises, and asserts that both forms agree on it."""
    if not COMPILED:
        pytest.skip(NOT_COMPILED)

    def compare(call: Callable[[], object]) -> object:
        before = use_compiled(False)
        try:
            expected = _outcome(call)
            use_compiled(True)
            assert _outcome(call) == expected
        finally:
            use_compiled(before)
        return expected

    return compare


@pytest.fixture(scope="session")
def shared_directory(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], AbstractContextManager[Path]]:
    """Gives a directory by its name, the same in all processes that share the tests; one at a time.

    What is expensive to make is made by the first that comes.
    """
    own = tmp_path_factory.getbasetemp()
    root = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    @contextmanager
    def opened(name: str) -> Iterator[Path]:
        directory = root / "shared" / name
        directory.mkdir(parents=True, exist_ok=True)
        with directory.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield directory

    return opened


@pytest.fixture(scope="session")
def wheel(shared_directory: Callable[[str], AbstractContextManager[Path]]) -> Path:
    """The wheel of this checkout; a build takes 25 s."""
    from wheels import build_wheel  # only where a test asks for it

    with shared_directory("wheel") as directory:
        return next(directory.glob("*.whl"), None) or build_wheel(directory)


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
