"""Speedups: inner loops that run compiled where the installed wheel has them.

The Python form of such a function is its specification: it is plain, it runs everywhere, and tests
compare both. A compiled form may answer NotImplemented for input that is not ordinary; the Python
form then takes the call, and says what is wrong with the input if anything is.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

try:
    from roquet.wire.records import _speedups
except ImportError:  # installed without a compiler, or run from the sources
    _speedups = None  # type: ignore[assignment]

P = ParamSpec("P")
R = TypeVar("R")

extension: Final = _speedups
"""The module of the compiled forms; None without it."""

COMPILED: Final = extension is not None
"""Whether this installation has the compiled forms."""

DESCRIPTION: Final = "compiled inner loops" if COMPILED else "pure Python"
"""The forms that this installation has, as `roquet --version` names them."""

_SWITCHES: Final[list[Callable[[bool], bool]]] = []


def compiled(python: Callable[P, R]) -> Callable[P, R]:
    """Let the compiled function of the same name, where there is one, stand in for this one.

    Such a function is called with positional arguments.
    """
    fast: Callable[..., Any] | None = getattr(extension, python.__name__, None)
    if fast is None:
        return python
    form: Callable[..., Any] = fast

    @wraps(python)
    def call(*args: Any) -> R:
        # Positions alone: a dict of names for each call would cost as much as a short inner loop.
        result: R = form(*args)
        return python(*args) if result is NotImplemented else result  # type: ignore[call-arg]

    def switch(on: bool) -> bool:
        nonlocal form
        before, form = form, fast if on else python
        return before is fast

    _SWITCHES.append(switch)
    return cast("Callable[P, R]", call)


def set_special(names: Iterable[str]) -> None:
    """Set the names of properties that make a text more than plain."""
    if extension is not None:
        extension.set_special(names)


def use_compiled(on: bool) -> bool:
    """Switch to the compiled or to the Python forms, for tests and comparisons.

    Gives whether the compiled forms were in use before.
    """
    before = [switch(on) for switch in _SWITCHES]
    return any(before)
