"""Of the changes of each key one counts: by offset within a queue, by time between queues."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.states.latest_rows import latest_by_key, latest_by_queue

START = datetime(2026, 1, 31, tzinfo=UTC)


class Change(NamedTuple):
    key: str
    broker: str
    queue_id: int
    offset: int
    second: int = 0


def table(*changes: Change) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([each.key for each in changes], pa.string()),
            "broker": pa.array([each.broker for each in changes], pa.string()),
            "queue_id": pa.array([each.queue_id for each in changes], pa.int32()),
            "queue_offset": pa.array([each.offset for each in changes], pa.int64()),
            "stored_at": pa.array(
                [START + timedelta(seconds=each.second) for each in changes],
                pa.timestamp("us", "UTC"),
            ),
        }
    )


def changes_of(rows: pa.Table) -> set[Change]:
    return {
        Change(
            row["key"],
            row["broker"],
            row["queue_id"],
            row["queue_offset"],
            int((row["stored_at"] - START).total_seconds()),
        )
        for row in rows.to_pylist()
    }


def test_within_a_queue_the_higher_offset_counts_whatever_the_clock_says() -> None:
    early, late = Change("a", "x", 0, 7, second=9), Change("a", "x", 0, 8, second=1)
    assert changes_of(latest_by_key(table(late, early)).rows) == {late}


def test_between_queues_the_later_time_counts() -> None:
    early, late = Change("a", "x", 0, 900, second=1), Change("a", "x", 1, 3, second=2)
    for changes in ((early, late), (late, early)):
        latest = latest_by_key(table(*changes))
        assert changes_of(latest.rows) == {late}
        assert latest.moved == 1


def test_at_one_time_the_last_queue_counts() -> None:
    changes = [Change("a", "y", 0, 1), Change("a", "x", 9, 1), Change("a", "x", 10, 1)]
    assert changes_of(latest_by_key(table(*changes)).rows) == {changes[0]}


def test_a_key_of_one_queue_has_not_moved() -> None:
    assert latest_by_key(table(Change("a", "x", 0, 1), Change("a", "x", 0, 2))).moved == 0


def test_no_changes_have_no_latest() -> None:
    assert latest_by_key(table()) == (table(), 0)
    assert latest_by_queue(table()).num_rows == 0


changes = st.builds(
    Change,
    st.sampled_from("abcd"),
    st.sampled_from(["x", "y"]),
    st.integers(0, 2),
    st.integers(0, 30),
    st.integers(0, 5),
)
distinct = st.lists(changes, max_size=40, unique_by=lambda one: one[1:4])


def model(changes: list[Change]) -> dict[str, Change]:
    """The latest change by key, as nobody but Python finds them."""
    by_queue: dict[tuple[str, str, int], Change] = {}
    for one in sorted(changes, key=lambda one: one.offset):
        by_queue[one.key, one.broker, one.queue_id] = one
    latest: dict[str, Change] = {}
    for one in sorted(by_queue.values(), key=lambda one: (one.second, one.broker, one.queue_id)):
        latest[one.key] = one
    return latest


@given(distinct)
def test_the_latest_of_any_changes_are_those_of_the_model(changes: list[Change]) -> None:
    assert changes_of(latest_by_key(table(*changes)).rows) == set(model(changes).values())


@given(distinct, st.integers(1, 7))
def test_reducing_parts_first_changes_nothing(changes: list[Change], step: int) -> None:
    parts = [
        latest_by_queue(table(*changes[at : at + step])) for at in range(0, len(changes), step)
    ]
    whole = pa.concat_tables([table(), *parts])
    assert changes_of(latest_by_key(whole).rows) == set(model(changes).values())
