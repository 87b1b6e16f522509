import pytest
from tests.for_each import for_each


def test_all_cases_are_run_and_each_that_fails_is_shown() -> None:
    seen: list[int] = []

    @for_each([(1, 2), (3, 3), (5, 6)])
    def check(one: int, other: int) -> None:
        seen.append(one)
        assert one != other - 1

    with pytest.raises(ExceptionGroup, match="2 of 3 cases") as failed:
        check()
    assert seen == [1, 3, 5]
    assert [error.__notes__ for error in failed.value.exceptions] == [
        ["case: (1, 2)"],
        ["case: (5, 6)"],
    ]


def test_a_table_without_cases_is_no_test() -> None:
    @for_each([])
    def check(case: object) -> None: ...

    with pytest.raises(AssertionError, match="no cases"):
        check()
