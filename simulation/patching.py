"""Patching: replaces an attribute for a time, to observe code or to plant a defect in it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

PlantedDefect = Callable[[], AbstractContextManager[None]]
"""Breaks something in the client or the broker for as long as it is entered."""


@contextmanager
def patched(target: Any, name: str, replacement: object) -> Iterator[None]:
    """Replace an attribute of a class or module; the original is back afterwards."""
    original = vars(target)[name]
    setattr(target, name, replacement)
    try:
        yield
    finally:
        setattr(target, name, original)


def wrapped(target: Any, name: str, wrapper: Callable[..., Any]) -> AbstractContextManager[None]:
    """Replace a function or method by another one, whose first argument is the original."""
    original = vars(target)[name]

    def replacement(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    return patched(target, name, replacement)


def planted(target: Any, name: str) -> Callable[[Callable[..., Any]], PlantedDefect]:
    """Make a defect of a function that is to run in the place of another; see `wrapped`."""

    def decorate(wrapper: Callable[..., Any]) -> PlantedDefect:
        def defect() -> AbstractContextManager[None]:
            return wrapped(target, name, wrapper)

        defect.__name__, defect.__doc__ = wrapper.__name__, wrapper.__doc__
        return defect

    return decorate


def by_name(*defects: PlantedDefect) -> dict[str, PlantedDefect]:
    """Defects by the names of their functions, with hyphens."""
    return {getattr(defect, "__name__", "").replace("_", "-"): defect for defect in defects}
