"""Errors that a test expects, with the values of their attributes."""

from typing import Any, TypeVar

import pytest

ErrorT = TypeVar("ErrorT", bound=BaseException)


def raises(
    kind: type[ErrorT], match: str | None = None, **attributes: Any
) -> pytest.RaisesExc[ErrorT]:
    """Expects an error of a kind, whose text matches and whose attributes have these values."""

    def has_them(error: ErrorT) -> bool:
        return all(getattr(error, name) == value for name, value in attributes.items())

    return pytest.raises(kind, match=match, check=has_them)
