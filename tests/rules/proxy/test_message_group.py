"""Queues of message groups."""

from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.proxy.message_group import queue_index
from roquet.wire.java_hash import hash_code


def test_groups_go_to_the_queues_that_the_genuine_proxy_chose() -> None:
    # Seen in vectors/grpc/statuses.jsonl, "receive fifo": a topic of four queues.
    assert queue_index(hash_code("g1"), 4) == 0
    assert queue_index(hash_code("g" * 63), 4) == 2


@given(hashed=st.integers(-(2**31), 2**31 - 1), count=st.integers(1, 300))
def test_one_queue_more_takes_groups_over_and_moves_no_other(hashed: int, count: int) -> None:
    before, after = queue_index(hashed, count), queue_index(hashed, count + 1)
    assert 0 <= before < count
    assert after in (before, count)
