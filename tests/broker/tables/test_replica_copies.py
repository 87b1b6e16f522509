import asyncio
from contextlib import ExitStack

import pytest
from tests.broker.conftest import FakePeer

from roquet.broker.tables.replica_copies import (
    SILENCE_MS,
    WAIT_MS,
    WAITERS_MAX,
    ChangeWaiters,
    ReplicaCopies,
)
from roquet.testing.clock import this_loop

pytestmark = pytest.mark.virtual_time


async def waited_ms(copies: ReplicaCopies, **editions: int) -> int:
    """Wait for editions; gives how long that took."""
    clock = this_loop().clock
    began_ms = clock.monotonic_ms()
    await copies.reach(clock, **editions)
    return clock.monotonic_ms() - began_ms


def later(seconds: float, copies: ReplicaCopies, peer: FakePeer, topics: int, groups: int) -> None:
    """Let a replica say after a while what it has copied."""
    asyncio.get_running_loop().call_later(
        seconds, lambda: copies.asks(peer, topics=topics, groups=groups)
    )


async def test_without_replicas_nobody_waits() -> None:
    copies = ReplicaCopies()
    copies.note_made("orders", 7)
    assert copies.unknown == {}
    assert await waited_ms(copies, topics=7, groups=7) == 0


async def test_a_change_is_known_once_the_last_replica_has_copied_it() -> None:
    copies, first, second = ReplicaCopies(), FakePeer(), FakePeer()
    for peer in (first, second):
        copies.asks(peer, topics=3, groups=5)
    later(0.1, copies, first, 4, 5)
    later(0.2, copies, second, 4, 5)
    assert await waited_ms(copies, topics=4) == 200
    assert await waited_ms(copies, topics=4, groups=5) == 0


async def test_a_replica_that_says_nothing_is_waited_for_a_second_and_soon_not_at_all() -> None:
    copies, peer, clock = ReplicaCopies(), FakePeer(), this_loop().clock
    copies.asks(peer, topics=3, groups=5)
    assert await waited_ms(copies, groups=6) == WAIT_MS
    copies.answered(peer, clock.monotonic_ms())
    await clock.sleep(SILENCE_MS)
    assert await waited_ms(copies, groups=6) == 0
    copies.asks(peer, topics=3, groups=5)
    assert await waited_ms(copies, groups=6) == WAIT_MS


async def test_a_replica_that_goes_is_not_waited_for() -> None:
    copies, peer = ReplicaCopies(), FakePeer()
    copies.asks(peer, topics=3, groups=5)
    asyncio.get_running_loop().call_later(0.3, peer.hang_up)
    assert await waited_ms(copies, topics=4) == 300
    assert len(copies) == 0


async def test_a_topic_of_a_send_is_unknown_until_it_has_been_waited_for() -> None:
    copies, peer, clock = ReplicaCopies(), FakePeer(), this_loop().clock
    copies.asks(peer, topics=3, groups=5)
    copies.note_made("orders", 4)
    later(0.1, copies, peer, 4, 5)
    began_ms = clock.monotonic_ms()
    await copies.reach_made(clock, "orders")
    assert clock.monotonic_ms() - began_ms == 100
    assert copies.unknown == {}


async def test_topics_that_nobody_waits_for_are_known_once_all_replicas_have_them() -> None:
    copies, first, second = ReplicaCopies(), FakePeer(), FakePeer()
    for peer in (first, second):
        copies.asks(peer, topics=3, groups=5)
    copies.note_made("orders", 4)
    copies.note_made("bills", 5)
    copies.asks(first, topics=5, groups=5)
    assert copies.unknown == {"orders": 4, "bills": 5}
    copies.asks(second, topics=4, groups=5)
    assert copies.unknown == {"bills": 5}
    second.hang_up()
    assert copies.unknown == {}, "the other replica has it"


async def test_no_topic_is_unknown_once_there_are_no_replicas() -> None:
    copies, peer = ReplicaCopies(), FakePeer()
    copies.asks(peer, topics=3, groups=5)
    copies.note_made("orders", 4)
    peer.hang_up()
    assert copies.unknown == {}


async def test_only_so_many_replicas_are_remembered_and_none_that_asks_no_more() -> None:
    copies, clock = ReplicaCopies(), this_loop().clock
    peers = [FakePeer() for _ in range(WAITERS_MAX + 1)]
    for peer in peers:
        copies.asks(peer, topics=3, groups=5)
    assert len(copies) == WAITERS_MAX
    for peer in peers:
        copies.answered(peer, clock.monotonic_ms())
    await clock.sleep(SILENCE_MS)
    copies.asks(peers[0], topics=3, groups=5)
    copies.answered(peers[0], clock.monotonic_ms())
    assert len(copies) == 1


def test_only_so_many_may_wait_at_once() -> None:
    waiters = ChangeWaiters()
    with ExitStack() as stack:
        places = [stack.enter_context(waiters.place()) for _ in range(WAITERS_MAX + 2)]
        assert places == [True] * WAITERS_MAX + [False] * 2
        assert waiters.count == WAITERS_MAX
    assert waiters.count == 0


def test_a_place_is_free_again_after_an_error() -> None:
    waiters = ChangeWaiters()
    with pytest.raises(ValueError, match="no"), waiters.place():
        raise ValueError("no")
    assert waiters.count == 0
