import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.store.commit_log.unindexed_buffer import (
    PROPERTIES_SIZE_MAX,
    HashedRun,
    UnindexedBuffer,
)

Row = tuple[int, int, bytes, bytes, int]


def rows(fresh: UnindexedBuffer, count_max: int = 1 << 20) -> list[Row]:
    taken = fresh.first(count_max)
    fresh.drop(len(taken[0]))
    return list(zip(*taken, strict=True))


def filled(count: int, size: int = 10) -> UnindexedBuffer:
    fresh = UnindexedBuffer()
    for n in range(count):
        fresh.add(n * size, size, b"T", b"%d" % n, n)
    return fresh


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 2)), max_size=20))
def test_runs_are_taken_as_single_records_would_be(given: list[tuple[int, bool, int]]) -> None:
    one, many, position = UnindexedBuffer(), UnindexedBuffer(), 0
    for count, is_long, gap in given:
        position += gap
        places = [position + n * 10 for n in range(count)]
        texts = [
            b"k" * (PROPERTIES_SIZE_MAX + 1) if is_long and n == 1 else b"k" for n in range(count)
        ]
        for place, text in zip(places, texts, strict=True):
            one.add(place, 10, b"T", text, position)
        if count:
            many.add_run(places, [10] * count, b"T", texts, position)
        position += 10 * count
    assert len(one) == len(many)
    while len(one):
        assert one.begin == many.begin
        assert rows(one, 7) == rows(many, 7)
    assert many.begin == -1


def test_records_taken_at_once_end_at_a_gap() -> None:
    fresh = filled(3)
    fresh.add(31, 10, b"T", b"", 0)
    assert [row[0] for row in rows(fresh)] == [0, 10, 20]
    assert [row[0] for row in rows(fresh)] == [31]


def test_the_oldest_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roquet.store.commit_log.unindexed_buffer.BUFFERED_MAX", 16)
    fresh = filled(100)
    assert 15 <= len(fresh) <= 16
    assert rows(fresh)[-1][0] == 990
    fresh.add_run(list(range(30)), [1] * 30, b"T", [b""] * 30, 0)
    assert [row[0] for row in rows(fresh)] == list(range(15, 30))
    fresh.add_columns((list(range(30)), [1] * 30, [b"T"] * 30, [b""] * 30, [0] * 30))
    assert [row[0] for row in rows(fresh)] == list(range(15, 30))


def test_records_before_a_position_can_be_dropped() -> None:
    fresh = filled(5)
    fresh.drop_before(0)
    assert fresh.begin == 0
    fresh.drop_before(25)
    assert fresh.begin == 30
    fresh.drop_before(1000)
    assert not len(fresh)
    assert fresh.begin == -1


def run_at(position: int, count: int = 2) -> HashedRun:
    return HashedRun(position, 10 * count, count, b"", b"", 0)


def test_hashed_runs_are_taken_in_their_place() -> None:
    fresh = filled(2)
    fresh.add_hashed(run_at(20))
    fresh.add(40, 10, b"T", b"", 0)
    assert (len(fresh), fresh.begin) == (5, 0)
    assert fresh.take_hashed(0) is None
    assert [row[0] for row in rows(fresh)] == [0, 10]
    assert fresh.begin == 20
    assert fresh.take_hashed(20) == run_at(20)
    assert fresh.begin == 40
    assert [row[0] for row in rows(fresh)] == [40]
    assert (len(fresh), fresh.begin) == (0, -1)


def test_a_run_that_a_position_is_in_is_dropped() -> None:
    fresh = filled(2)
    for position in (20, 40):
        fresh.add_hashed(run_at(position))
    fresh.drop_before(21)
    assert (len(fresh), fresh.begin) == (2, 40)


def test_the_oldest_runs_are_forgotten_with_the_records_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roquet.store.commit_log.unindexed_buffer.BUFFERED_MAX", 16)
    fresh = UnindexedBuffer()
    for n in range(8):
        fresh.add_hashed(run_at(n * 40))
        for position in (20, 30):
            fresh.add(n * 40 + position, 10, b"T", b"", n)
    assert 12 <= len(fresh) <= 16
    assert fresh.begin > 120
    fresh.add_hashed(run_at(320, 15))
    assert (len(fresh), fresh.begin) == (15, 320)
    fresh.add_hashed(run_at(480, 17))
    assert (len(fresh), fresh.begin) == (0, -1)
