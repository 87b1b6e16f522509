"""Readers see nothing behind the confirmed position."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.conftest import NOW, DataDir, draft, index_all

from roquet.store.store import AppendResult, Store

Filled = tuple[Store, list[AppendResult]]


@pytest.fixture(scope="module")
def filled() -> Filled:
    """Sixty messages in two queues, each a millisecond younger, all with one key."""
    store = DataDir().open()
    results = [store.append(draft(b"x" * 99, queue_id=n % 2), NOW + n) for n in range(60)]
    index_all(store)
    return store, results


@given(st.data())
@settings(deadline=None)
def test_every_read_ends_at_the_last_confirmed_record(filled: Filled, data: st.DataObject) -> None:
    store, results = filled
    number = data.draw(st.integers(0, 59))
    inside = data.draw(st.sampled_from([0, 0, 1, -1, 100]))
    confirmed = max(results[number].position + inside, 0)
    store.set_confirmed(confirmed)
    seen = [n for n, r in enumerate(results) if r.position + r.size <= confirmed]
    for queue_id in (0, 1):
        own = [n for n in seen if n % 2 == queue_id]
        assert store.bounds("T", queue_id) == (0, len(own))
        assert store.read("T", queue_id, 0, count_max=99).count == len(own)
        codes = frozenset({112785})
        assert store.read("T", queue_id, 0, count_max=99, wanted=codes).count == len(own)
        block = store.read_block("T", queue_id, 0, count_max=99, bytes_max=1 << 20)
        assert (len(block.edges) - 1, block.next_offset) == (len(own), len(own))
        assert store.read("T", queue_id, 40).next_offset == len(own)
        assert store.offset_by_time("T", queue_id, NOW + 1000) == len(own)
        assert store.store_time_at("T", queue_id, len(own)) == -1
        if own:
            assert store.store_time_at("T", queue_id, len(own) - 1) == NOW + own[-1]
    found = store.query("T", "U1", count_max=99).positions
    assert found == [results[n].position for n in seen]
    for n, result in enumerate(results):
        assert (store.message_at(result.position) is not None) == (n in seen)
        assert store.message_at(result.position, only_confirmed=False) is not None
        assert (store.record_at(result.position, result.size) is not None) == (n in seen)
    together = store.read_together("T", {0: 0, 1: 0})
    if len(seen) > 1:
        assert together is not None
        assert together.count == len([n for n in seen if results[n].position < 8192])
    else:
        assert together is None or together.count == len(seen)
    store.set_confirmed(None)
    assert store.bounds("T", 0) == (0, 30)


def test_offsets_go_on_behind_what_is_confirmed(store: Store) -> None:
    first = store.append(draft(), NOW)
    store.set_confirmed(first.position + first.size)
    assert store.append(draft(), NOW).queue_offset == 1
    assert store.append(draft(), NOW).queue_offset == 2
    assert store.bounds("T", 0) == (0, 1)
    assert store.bounds("none", 0) == (0, 0)
    assert store.confirmed_position == first.position + first.size
    store.set_confirmed(None)
    assert store.confirmed_position == store.end_position


def test_a_queue_whose_confirmed_records_expired_is_empty(store: Store) -> None:
    for n in range(200):
        store.append(draft(b"x" * 99, queue_id=n % 2), NOW)
    store.flush_all(NOW)
    store.expire(NOW + 100 * 86_400_000, at_once=True)
    least, _ = store.bounds("T", 0)
    store.set_confirmed(100)
    assert store.bounds("T", 0) == (least, least)
    assert store.read("T", 0, least).count == 0
    assert store.message_at(0) is None


def test_the_checkpoint_keeps_the_confirmed_position(store_dir: DataDir, store: Store) -> None:
    assert store.confirmed_at_open == 0
    results = [store.append(draft(), NOW) for _ in range(5)]
    store.set_confirmed(results[3].position)
    store.close(NOW)
    store = store_dir.open()
    assert store.confirmed_at_open == results[3].position
    assert store.bounds("T", 0) == (0, 5), "until it is set again"
    store.close(NOW)
    assert store_dir.open().confirmed_at_open == store.end_position
