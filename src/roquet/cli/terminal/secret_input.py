"""Secrets that a user gives by a file or by standard input, never in the command line."""

import sys
from getpass import getpass
from pathlib import Path

from roquet.model.errors import UsageError


def secret_line(file: Path) -> str:
    """A secret: the first line of a file; - is standard input.

    Raises UsageError if it is empty or no UTF-8, or OSError.
    """
    try:
        if str(file) != "-":
            text = file.read_text("utf-8")
        else:  # what is typed at a terminal is not shown
            text = getpass("secret: ") if sys.stdin.isatty() else sys.stdin.readline()
    except UnicodeDecodeError:
        raise UsageError(f"{file}: the secret is no UTF-8") from None
    secret = text.partition("\n")[0].rstrip("\r")
    if not secret.strip():
        raise UsageError(f"{file}: the first line is empty; it is to be the secret")
    return secret
