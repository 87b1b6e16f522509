"""How far a job is: a bar for people, lines for a log, nothing for programs."""

import pytest

from roquet.cli.terminal.progress import LINE_INTERVAL_MS, progress_bar, progress_lines
from roquet.testing.clock import in_virtual_time, this_loop


def test_a_log_gets_a_line_and_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("orders", quiet=False) as show:
        show(1_200, 34_000)
    assert capsys.readouterr().err == "orders: 1,200 rows, 34,000 behind\n"


def test_programs_get_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("orders", quiet=True) as show:
        show(1, 2)
    assert capsys.readouterr().err == ""


def test_an_error_has_no_empty_bar_above(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    for rows in (0, 5):
        with pytest.raises(ZeroDivisionError):
            fail(rows)
        last = capsys.readouterr().err.replace("\r", "\n").rpartition("orders")[2]
        assert ("5 rows" in last) is (rows == 5)


def fail(rows: int) -> None:
    with progress_bar("orders", quiet=False) as show:
        if rows:
            show(rows, 10)
        raise ZeroDivisionError


@in_virtual_time
async def test_a_line_comes_now_and_then_and_only_when_something_has_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = this_loop().clock
    show = progress_lines("orders", "left", clock)
    for rows, pause_ms in (
        (1, 10),
        (2, LINE_INTERVAL_MS),
        (2, LINE_INTERVAL_MS),
        (2, LINE_INTERVAL_MS),
        (3, 0),
    ):
        show(rows, 0)
        await clock.sleep(pause_ms)
    counts = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert counts == ["1", "2", "3"]
