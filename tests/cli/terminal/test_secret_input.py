"""Secrets come from a file or from standard input, never from the command line."""

import io
from pathlib import Path

import pytest

from roquet.cli.terminal.secret_input import secret_line
from roquet.model.errors import UsageError


def test_the_first_line_is_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\r\nanything\n")
    assert secret_line(file) == "s3cret"


def test_standard_input_is_read_where_it_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("s3cret\n"))
    assert secret_line(Path("-")) == "s3cret"


@pytest.mark.parametrize("content", [b"", b"\n", b"  \nsecret\n", b"\xff\xfe"])
def test_an_empty_line_and_other_bytes_than_text_are_refused(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="secret"):
        secret_line(file)
