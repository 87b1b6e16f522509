"""Private files: created for their owner only; existing files keep their mode."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""Logs hold other people's messages, and tables their readers: no other user of the machine needs
them."""


def make_directories(path: Path, made: Callable[[Path], object] = lambda _: None) -> None:
    """Create a directory and its parents, all private.

    `Path.mkdir` would apply its mode to the last one only. `made` is called with each directory
    that gained a new name.
    """
    if path.is_dir():
        return
    make_directories(path.parent, made)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    made(path.parent)


def open_private(path: str, flags: int) -> int:
    """Open a path with a private mode if it is created; usable as the `opener` of `open`."""
    return os.open(path, flags, FILE_MODE)
