from tests.broker.conftest import FakePeer

from roquet.broker.tables.former_readers import TOPICS_MAX, FormerReaders


def test_each_queue_of_a_former_reader_is_reset_once() -> None:
    readers, peer = FormerReaders(), FakePeer()
    readers.add("orders", [peer], [])
    assert readers.is_late("orders", "g", 0, peer)
    assert [readers.tell("orders", "g", 0, peer) for _ in range(2)] == [True, False]
    assert not readers.is_late("orders", "g", 0, peer)
    assert readers.is_late("orders", "g", 1, peer), "another queue"


def test_other_groups_are_not_reset() -> None:
    readers, peer = FormerReaders(), FakePeer()
    readers.add("orders", [peer], ["g"])
    assert not readers.tell("orders", "another", 0, FakePeer())
    assert not readers.tell("payments", "g", 0, peer)


def test_a_group_is_reset_once_on_any_connection() -> None:
    readers = FormerReaders()
    readers.add("orders", [], ["g"])
    assert readers.is_late("orders", "g", 0, FakePeer())
    assert readers.tell("orders", "g", 0, FakePeer())
    assert not readers.tell("orders", "g", 0, FakePeer())
    assert readers.tell("orders", "g", 1, FakePeer()), "another queue"


def test_a_connection_is_reset_although_its_group_was() -> None:
    readers, first, second = FormerReaders(), FakePeer(), FakePeer()
    readers.add("orders", [first, second], ["g"])
    assert readers.tell("orders", "g", 0, first)
    assert readers.tell("orders", "g", 0, second)
    assert not readers.tell("orders", "g", 0, FakePeer())


def test_a_topic_without_readers_leaves_nothing_behind() -> None:
    readers = FormerReaders()
    readers.add("orders", [], [])
    assert not readers.pending


def test_a_topic_deleted_again_is_reset_again() -> None:
    readers, peer = FormerReaders(), FakePeer()
    readers.add("orders", [peer], [])
    readers.tell("orders", "g", 0, peer)
    readers.add("orders", [peer], [])
    assert readers.tell("orders", "g", 0, peer)


def test_a_connection_that_has_ended_is_forgotten() -> None:
    readers, first, second = FormerReaders(), FakePeer(), FakePeer()
    readers.add("orders", [first, second], [])
    readers.add("payments", [first], [])
    readers.forget(first)
    assert list(readers.pending) == ["orders"]
    assert readers.is_late("orders", "g", 0, second)
    readers.forget(second)
    readers.forget(second)
    assert not readers.pending


def test_a_group_is_remembered_when_its_connections_have_ended() -> None:
    readers, peer = FormerReaders(), FakePeer()
    readers.add("orders", [peer], ["g"])
    readers.forget(peer)
    assert readers.is_late("orders", "g", 0, FakePeer())


def test_the_newest_deleted_topics_are_remembered() -> None:
    readers = FormerReaders()
    for n in range(TOPICS_MAX + 1):
        readers.add(f"t{n}", [], ["g"])
    assert not readers.is_late("t0", "g", 0, FakePeer())
    assert readers.is_late(f"t{TOPICS_MAX}", "g", 0, FakePeer())
    assert len(readers.pending) == TOPICS_MAX
