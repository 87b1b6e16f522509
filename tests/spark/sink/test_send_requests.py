"""Send requests: as few as fit; single messages keep their place in the order."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.queue import MessageQueue
from roquet.spark.sink.send_requests import (
    RECORD_OVERHEAD_BYTES,
    SendRequest,
    TopicRows,
    cut_requests,
)
from roquet.wire.records.batch import decode_batch

pytestmark = pytest.mark.usefixtures("form")

QUEUES = [MessageQueue("orders", "broker-a", queue_id) for queue_id in range(3)]


def rows(
    bodies: list[bytes], later: list[str | None] | None = None, places: list[int] | None = None
) -> TopicRows:
    count = len(bodies)
    return TopicRows(
        topic="orders",
        numbers=np.arange(100, 100 + count),
        bodies=pa.array(bodies, pa.binary()),
        texts=pa.array([f"K\x01{at}\x02".encode() for at in range(count)], pa.binary()),
        flags=np.arange(count, dtype=np.int32),
        later=None if later is None else pa.array(later, pa.string()),
        places=None if places is None else np.array(places),
    )


def numbers(request: SendRequest) -> list[int]:
    """Which rows it carries, by their flags."""
    if request.properties is not None:
        return [request.flag]
    return [item.flag for item in decode_batch(request.body)]


def test_rows_are_one_batch_when_they_fit() -> None:
    (only,) = cut_requests(rows([b"a", b"b"]), QUEUES, 10_000, alone=False)
    assert (only.topic, only.row, only.count, only.queue) == ("orders", 100, 2, None)
    items = decode_batch(only.body)
    assert [(item.body, item.properties, item.flag) for item in items] == [
        (b"a", b"K\x010\x02", 0), (b"b", b"K\x011\x02", 1),
    ]  # fmt: skip


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=30), st.integers(200, 2_000))
def test_every_row_is_carried_once_and_in_order(bodies: list[bytes], size: int) -> None:
    made = list(cut_requests(rows(bodies), QUEUES, size, alone=False))
    assert [number for request in made for number in numbers(request)] == list(range(len(bodies)))
    assert [request.row for request in made] == [100 + numbers(request)[0] for request in made]
    for request in made:
        assert request.count == len(numbers(request))
        stored = len(request.body) + request.count * (RECORD_OVERHEAD_BYTES + len("orders") - 22)
        assert stored <= size or request.count == 1


def test_a_message_that_is_larger_than_a_batch_goes_alone() -> None:
    small, large, last = cut_requests(rows([b"a", b"x" * 5_000, b"b"]), QUEUES, 1_000, alone=False)
    assert (small.properties, last.properties) == (None, None)
    assert (large.properties, large.body, large.row) == ("K\x011\x02", b"x" * 5_000, 101)


def test_delayed_messages_go_alone_with_their_delay() -> None:
    first, second = cut_requests(
        rows([b"a", b"b"], [None, "DELAY\x013\x02"]), [], 9_000, alone=False
    )
    assert first.properties is None
    assert second.properties == "K\x011\x02DELAY\x013\x02"


def test_all_messages_go_alone_without_batches() -> None:
    made = list(cut_requests(rows([b"a", b"b"]), [], 9_000, alone=True))
    assert [(request.properties, request.body, request.flag) for request in made] == [
        ("K\x010\x02", b"a", 0), ("K\x011\x02", b"b", 1),
    ]  # fmt: skip


def test_rows_with_an_order_keep_it_within_their_queues() -> None:
    made = list(
        cut_requests(
            rows([b"%d" % at for at in range(6)], places=[2, 0, 2, 1, 0, 2]),
            QUEUES,
            9_000,
            alone=False,
        )
    )
    assert [(request.queue, numbers(request)) for request in made] == [
        (QUEUES[0], [1, 4]), (QUEUES[1], [3]), (QUEUES[2], [0, 2, 5]),
    ]  # fmt: skip
