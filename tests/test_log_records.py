"""Foreign text in our log records is harmless in any handler that an application installs."""

import io
import json
import logging
import re
from collections.abc import Iterator
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue

import pytest

import roquet
from roquet.log_records import logger

HOSTILE = "g\n2026-01-01 ERROR forged\x1b]8;;http://evil\x1b\\\u202e\x85\r\ud800"
SHOWN = r"g\n2026-01-01 ERROR forged\x1b]8;;http://evil\x1b\\u202e\x85\r\ud800"


class RecordCollector(logging.Handler):
    """An application's handler that reads records itself."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    test_logger = logger("roquet.test_log_records")
    test_logger.propagate = False
    yield test_logger
    test_logger.handlers.clear()
    test_logger.propagate = True


def test_a_plain_handler_writes_one_line_in_which_nothing_is_obeyed(log: logging.Logger) -> None:
    stream = io.StringIO()
    log.addHandler(logging.StreamHandler(stream))
    log.warning("group %s of %d: %r", HOSTILE, 3, ValueError("a\nb"))
    assert stream.getvalue() == f"group {SHOWN} of 3: ValueError('a\\nb')\n"


def test_a_text_without_values_and_values_by_name_are_escaped_too(log: logging.Logger) -> None:
    stream = io.StringIO()
    log.addHandler(logging.StreamHandler(stream))
    log.warning(HOSTILE)
    log.warning("%(who)s", {"who": HOSTILE})
    assert stream.getvalue() == f"{SHOWN}\n{SHOWN}\n"


def test_a_traceback_forges_no_line(log: logging.Logger) -> None:
    stream = io.StringIO()
    log.addHandler(logging.StreamHandler(stream))
    try:
        int(HOSTILE.encode("utf-8", "surrogatepass").decode("latin-1"))
    except ValueError as error:
        error.add_note(HOSTILE.encode("utf-8", "replace").decode())
        log.exception("it failed")
    first, second, *rest = stream.getvalue().splitlines()
    assert (first, second) == ("it failed", "Traceback (most recent call last):")
    assert rest
    assert all(line.startswith("    ") for line in rest)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", stream.getvalue())


def test_records_are_still_grouped_by_the_text_of_the_call(log: logging.Logger) -> None:
    collector = RecordCollector()
    log.addHandler(collector)
    log.warning("group %s of %s", "plain", HOSTILE)
    (record,) = collector.records
    assert record.msg == "group %s of %s"
    assert isinstance(record.args, tuple)
    assert record.args[0] == "plain"
    assert json.dumps(record.getMessage()) == json.dumps(f"group plain of {SHOWN}")


def test_a_record_that_goes_through_a_queue_is_escaped(log: logging.Logger) -> None:
    queue: SimpleQueue[logging.LogRecord] = SimpleQueue()
    log.addHandler(QueueHandler(queue))
    log.warning("%s", HOSTILE)
    assert queue.get().getMessage() == SHOWN


def test_every_logger_of_the_package_is_one_of_these() -> None:
    root = Path(roquet.__file__).parent
    bare = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "getLogger(__name__)" in path.read_text()
    ]
    assert not bare, f"{bare}: log = roquet.log_records.logger(__name__)"
