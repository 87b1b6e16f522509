"""Items are prefetched, and the thread ends with the block."""

import threading
from collections.abc import Iterator

import pytest

from roquet.spark.jobs.archive.prefetch import prefetched


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "roquet-prefetch"]


def test_the_items_are_the_same_in_the_same_order() -> None:
    with prefetched(range(100)) as items:
        assert list(items) == list(range(100))
    assert threads() == []


def test_they_are_made_before_they_are_asked_for() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    with prefetched(items()) as found:
        assert made.wait(5)
        assert list(found) == [1, 2]


def test_no_more_are_made_than_may_wait() -> None:
    count = 0

    def items() -> Iterator[int]:
        nonlocal count
        for number in range(1000):
            count += 1
            yield number

    with prefetched(items(), depth=3) as found:
        assert next(found) == 0
    assert count <= 6
    assert threads() == []


def test_an_error_comes_where_the_item_would_have() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("gone")

    with prefetched(items()) as found:
        assert next(found) == 1
        with pytest.raises(ValueError, match="gone"):
            next(found)


def test_who_leaves_early_leaves_no_thread() -> None:
    with pytest.raises(KeyError), prefetched(iter(int, 1)):
        raise KeyError
    assert threads() == []
