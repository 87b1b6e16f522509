from typing import Any

from roquet.broker.tables.former_readers import FormerReaders


def test_each_queue_of_a_former_reader_is_told_once(new_peer: Any) -> None:
    readers, peer = FormerReaders(), new_peer()
    readers.add("orders", [peer])
    assert readers.is_late("orders", 0, peer)
    assert [readers.tell("orders", 0, peer) for _ in range(2)] == [True, False]
    assert not readers.is_late("orders", 0, peer)
    assert readers.is_late("orders", 1, peer), "another queue"


def test_nobody_else_is_told(new_peer: Any) -> None:
    readers, peer = FormerReaders(), new_peer()
    readers.add("orders", [peer])
    assert not readers.tell("orders", 0, new_peer())
    assert not readers.tell("payments", 0, peer)


def test_a_topic_without_readers_leaves_nothing_behind() -> None:
    readers = FormerReaders()
    readers.add("orders", [])
    assert not readers.pending


def test_a_topic_deleted_once_more_is_told_once_more(new_peer: Any) -> None:
    readers, peer = FormerReaders(), new_peer()
    readers.add("orders", [peer])
    readers.tell("orders", 0, peer)
    readers.add("orders", [peer])
    assert readers.tell("orders", 0, peer)


def test_a_connection_that_has_ended_is_forgotten(new_peer: Any) -> None:
    readers, first, second = FormerReaders(), new_peer(), new_peer()
    readers.add("orders", [first, second])
    readers.add("payments", [first])
    readers.forget(first)
    assert list(readers.pending) == ["orders"]
    assert readers.is_late("orders", 0, second)
    readers.forget(second)
    readers.forget(second)
    assert not readers.pending
