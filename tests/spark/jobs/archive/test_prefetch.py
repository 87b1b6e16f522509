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


def test_items_are_computed_before_they_are_requested() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    with prefetched(items()) as prefetched_items:
        assert made.wait(5)
        assert list(prefetched_items) == [1, 2]


def test_no_more_items_are_computed_than_the_depth() -> None:
    count = 0

    def items() -> Iterator[int]:
        nonlocal count
        for number in range(1000):
            count += 1
            yield number

    with prefetched(items(), depth=3) as prefetched_items:
        assert next(prefetched_items) == 0
    assert count <= 6
    assert threads() == []


def test_an_error_is_raised_in_place_of_the_item() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("gone")

    with prefetched(items()) as prefetched_items:
        assert next(prefetched_items) == 1
        with pytest.raises(ValueError, match="gone"):
            next(prefetched_items)


def test_an_early_end_leaves_no_thread() -> None:
    with pytest.raises(KeyError), prefetched(iter(int, 1)):
        raise KeyError
    assert threads() == []
