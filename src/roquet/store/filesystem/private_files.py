"""Private files: what a process of ours makes is its owner's alone; what is there already stays."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""Logs hold what others wrote, and tables who reads it: no other user of the machine needs them."""


def make_directories(path: Path, made: Callable[[Path], object] = lambda _: None) -> None:
    """A directory and those above it; `Path.mkdir` gives its mode to the last one alone.

    `made` is told of each directory that has got a new name in it.
    """
    if path.is_dir():
        return
    make_directories(path.parent, made)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    made(path.parent)


def open_private(path: str, flags: int) -> int:
    """A descriptor, as an `opener` for `open`."""
    return os.open(path, flags, FILE_MODE)
