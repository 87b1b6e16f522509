"""A wait is a line once it is long, and its end another one; a short one is none."""

import pytest

from roquet.spark.wait_warning import WARN_AFTER_MS, WaitWarning


def test_a_long_wait_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    wait = WaitWarning(1_000, 120_000)
    for now_ms in (1_000, 2_999, 1_000 + WARN_AFTER_MS, 60_000):
        wait.failed(now_ms, "broker-a", "cannot connect to 10.0.0.1:10911")
    wait.ended(61_500, "broker-a")
    assert caplog.messages == [
        "broker-a: cannot connect to 10.0.0.1:10911; waiting up to 120 s for it (option timeout)",
        "broker-a answers again after 60.5 s",
    ]


def test_a_short_wait_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    wait = WaitWarning(1_000, 120_000)
    wait.failed(1_050, "broker-a", "restarting")
    wait.ended(1_100, "broker-a")
    assert not caplog.messages
