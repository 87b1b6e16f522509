"""Worker process: short errors and log lines in Spark's form, in the Python processes of Spark.

    26/01/31 12:00:00 WARN roquet.spark: broker 'broker-a' is away, its queues wait: …

Spark puts the traceback of a worker in front of an error's text, twice. An error of ours says in
its text what to do, so its traceback is left out; other errors keep theirs.
"""

import logging
import os
from contextlib import ContextDecorator
from types import TracebackType
from typing import Final, Self

from roquet.model.errors import RoquetError
from roquet.observe.log_levels import apply_log_levels
from roquet.observe.log_lines import LineFilter, PrintableFormatter

PACKAGE: Final = "roquet"
SPARK_LOGGER: Final = "roquet.spark"

LEVELS_VARIABLE: Final = "ROQUET_LOG_LEVELS"

HIDE_VARIABLE: Final = "SPARK_HIDE_TRACEBACK"
"""Environment variable that PySpark reads in the worker when it reports an error."""

WORKER_MARK: Final = ("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
"""Environment variable, and its value, of all Python processes that Spark starts."""


class entry_point(ContextDecorator):  # noqa: N801 - used as a decorator
    """Marks code that Spark calls in a worker; as decorator, or in a `with` for generators.

    The worker ends with the first error, so that the environment variable set here hides no other
    one. Elsewhere, as in a job's driver, errors stay as they are.
    """

    def __enter__(self) -> Self:
        if is_worker():
            log_as_spark()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, RoquetError) and is_worker():
            os.environ[HIDE_VARIABLE] = "1"


def is_worker() -> bool:
    """Whether Spark started this process to run Python code."""
    name, value = WORKER_MARK
    return os.environ.get(name) == value


def log_as_spark() -> None:
    """Write log lines of this package to stderr as Spark does, unless logging is configured.

    Lines of `roquet.spark` from level INFO on, others from WARNING on; the environment variable
    ROQUET_LOG_LEVELS names other levels.
    """
    package = logging.getLogger(PACKAGE)
    if package.handlers or logging.getLogger().handlers:
        return
    handler = _ConsoleHandler()
    handler.setFormatter(SparkFormatter())
    handler.addFilter(LineFilter())
    package.addHandler(handler)
    logging.getLogger(SPARK_LOGGER).setLevel(logging.INFO)
    apply_log_levels(os.environ.get(LEVELS_VARIABLE, ""))


class _ConsoleHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr, and nothing once the program has handlers of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


class SparkFormatter(PrintableFormatter):
    """The layout of Spark's console: time of day, level as log4j names it, logger, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(spark_level)s %(spark_logger)s: %(message)s")
        self.datefmt = "%y/%m/%d %H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; its logger is shortened to two parts."""
        record.spark_level = "WARN" if record.levelno == logging.WARNING else record.levelname
        record.spark_logger = ".".join(record.name.split(".")[:2])
        return super().format(record)
