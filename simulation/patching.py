"""Patching: replaces an attribute for a time, to plant a defect in the code under test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched(target: Any, name: str, replacement: object) -> Iterator[None]:
    """Replace an attribute of a class or module; the original is back afterwards."""
    original = vars(target)[name]
    setattr(target, name, replacement)
    try:
        yield
    finally:
        setattr(target, name, original)
