"""Processes that are started, awaited, frozen and ended."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import processes
from harness.processes import Process, ProcessFailed

SERVE = "import signal; print('all set'); signal.pause()"


def python(code: str, folder: Path, ready: str = "") -> Process:
    return Process([sys.executable, "-c", code], folder / "it.log", ready=ready)


def test_a_process_is_ready_once_it_says_so_and_is_stopped_with_the_block(tmp_path: Path) -> None:
    with python(SERVE, tmp_path, "all set") as process:
        assert process.is_running
        assert process.output == "all set\n"
    assert not process.is_running
    assert process.wait() == -signal.SIGTERM


def test_a_process_that_ends_before_it_is_ready_has_failed(tmp_path: Path) -> None:
    process = python("print('no disk'); raise SystemExit(3)", tmp_path, "all set")
    with pytest.raises(ProcessFailed, match=r"it ended with code 3:\n  no disk"), process:
        pass
    assert not process.is_running


def test_a_process_that_is_never_ready_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "START_SECONDS_MAX", 0.01)
    process = python(SERVE, tmp_path, "quite another text")
    with pytest.raises(ProcessFailed, match=r"was not ready within 0.01 s"), process:
        pass
    assert process.wait() == -signal.SIGKILL


def test_a_killed_process_is_started_again_and_its_earlier_output_is_kept(tmp_path: Path) -> None:
    with python(SERVE, tmp_path, "all set") as process:
        first = process.pid
        process.kill()
        process.check()
        process.start()
        assert process.pid != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["it.log", "it.log.1"]


def test_a_process_that_ended_by_itself_is_a_failure(tmp_path: Path) -> None:
    with python("raise SystemExit(4)", tmp_path) as process:
        assert process.wait() == 4
        with pytest.raises(ProcessFailed, match="it ended with code 4"):
            process.check()


def test_a_process_that_does_not_hear_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS_MAX", 0.05)
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SERVE}"
    with python(deaf, tmp_path, "all set") as process:
        pass
    assert process.wait() == -signal.SIGKILL


def test_a_frozen_process_says_nothing_until_it_is_thawed(tmp_path: Path) -> None:
    with python("while True: input(); print('here')", tmp_path) as process:
        assert process.child.stdin is not None
        process.freeze()
        process.child.stdin.write(b"\n")
        process.child.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        assert process.output == ""
        process.thaw()
        process.wait_ready("here")
