"""One test of a long table of cases: pytest spends about 3 ms on a test of its own for each."""

from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import Any


def for_each(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Makes one test of a check: it is called with each case, with a tuple as its arguments.

    The test runs all cases. It fails with an ExceptionGroup of the errors, each with its case.
    """
    table = list(cases)

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            assert table, "no cases"
            errors = [error for case in table if (error := _error_of(check, case)) is not None]
            if errors:
                raise ExceptionGroup(f"{len(errors)} of {len(table)} cases", errors)

        update_wrapper(test, check)
        del test.__wrapped__  # type: ignore[attr-defined]  # pytest would take its arguments for fixtures
        return test

    return decorate


def _error_of(check: Callable[..., None], case: Any) -> Exception | None:
    try:
        check(*case) if isinstance(case, tuple) else check(case)
    except Exception as error:
        error.add_note(f"case: {str(case)[:500]}")
        return error
    return None
