"""Files with passwords that others can read."""

from pathlib import Path

import pytest

from roquet.access.secret_files import is_readable_by_others, warn_of_readers


@pytest.mark.parametrize(("mode", "is_open"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_file_that_others_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, is_open: bool
) -> None:
    path = tmp_path / "access.json"
    path.write_text("{}")
    path.chmod(mode)
    warn_of_readers(path)
    warning = f"{path} holds passwords, and other users can read it: chmod 600 {path}"
    assert caplog.messages == ([warning] if is_open else [])


def test_a_file_that_is_not_there_is_read_by_nobody(tmp_path: Path) -> None:
    assert not is_readable_by_others(tmp_path / "none")
