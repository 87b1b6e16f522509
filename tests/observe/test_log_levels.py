import logging
from collections.abc import Iterator

import pytest

from roquet.model.errors import ConfigError
from roquet.observe.log_levels import apply_log_levels, parse_log_levels


@pytest.fixture(autouse=True)
def levels_afterwards() -> Iterator[None]:
    yield
    apply_log_levels("")


def test_levels_are_read_by_logger() -> None:
    assert parse_log_levels("info, roquet.net:DEBUG,", "x") == {
        "roquet": "INFO",
        "roquet.net": "DEBUG",
    }
    assert parse_log_levels("", "x") == {}


@pytest.mark.parametrize("text", ["LOUD", "roquet.net:", "asyncio:DEBUG", "roquetx:DEBUG"])
def test_unknown_levels_and_loggers_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"log_levels: .* is no"):
        parse_log_levels(text, "log_levels")


def test_levels_that_are_taken_back_are_the_parents_again() -> None:
    apply_log_levels("INFO,roquet.net:DEBUG")
    assert logging.getLogger("roquet.net.router").getEffectiveLevel() == logging.DEBUG
    assert logging.getLogger("roquet").level == logging.INFO
    apply_log_levels("roquet.net:ERROR")
    assert logging.getLogger("roquet").level == logging.NOTSET
    assert logging.getLogger("roquet.net").level == logging.ERROR
    apply_log_levels("")
    assert logging.getLogger("roquet.net").level == logging.NOTSET
