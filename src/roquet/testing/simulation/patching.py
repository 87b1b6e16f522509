"""Planting: another attribute in the place of one, for a time: how bugs get into what is tested."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched(place: Any, name: str, other: object) -> Iterator[None]:
    """Another attribute of a class or a module in the place of one, for a time."""
    original = vars(place)[name]
    setattr(place, name, other)
    try:
        yield
    finally:
        setattr(place, name, original)
