from typing import Any

import pytest
from tests.broker.conftest import LocalBroker, failing, make_send, not_none

from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.model.errors import StoreFull
from roquet.store.store import Store
from roquet.wire.calls.admin.settings import CleanQueues, CleanTopics, DeleteExpired
from roquet.wire.records.record import decode

DAY_MS = 24 * 3_600_000


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"log_file_size": 1 << 16, "retention": 1, "queue_file_entries": 300}


def fill(broker: LocalBroker, **fields: Any) -> None:
    for _ in range(4):
        assert broker.ask(make_send(b"x" * 30_000, **fields)).code == 0


async def test_old_files_go_at_once(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(broker)
    assert broker.log.store.begin_position == 0
    monkeypatch.setattr(type(broker.control.clock), "now_ms", lambda _: 4_000_000_000_000)
    await broker.ask(DeleteExpired())
    assert broker.log.store.begin_position > 0
    least, end = broker.log.store.bounds("orders", 0)
    assert 0 < least < end


async def test_files_after_the_last_checkpoint_stay_while_no_checkpoint_can_be_saved(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker)
    monkeypatch.setattr(broker.log.flush, "checkpoint", failing(StoreFull("no room")))
    monkeypatch.setattr(type(broker.control.clock), "now_ms", lambda _: 4_000_000_000_000)
    assert (await broker.ask(DeleteExpired())).code == 0
    assert broker.log.store.begin_position == 0


async def test_topics_without_settings_are_deleted_with_all_that_is_known_of_them(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker)
    fill(broker, topic="kept")
    fill(broker, topic="kept")
    broker.tables.offsets.commit("billing", "orders", 0, 3)
    broker.tables.topics.remove("orders", 0)
    monkeypatch.setattr(type(broker.control.clock), "now_ms", lambda _: 4_000_000_000_000)
    await broker.ask(DeleteExpired())
    assert broker.log.store.bounds("orders", 0) == (4, 4)
    await broker.ask(CleanTopics())
    await broker.ask(CleanTopics())
    assert broker.log.store.topics() == ["kept"]
    assert broker.tables.offsets.get("billing", "orders", 0) is None


async def test_delayed_messages_of_a_deleted_topic_stay(broker: LocalBroker) -> None:
    """Messages on their way to a topic that was deleted are delivered when there is one again."""
    fill(broker)
    broker.make(TopicDeletion).delete(["orders"])
    record = not_none(broker.log.store.message_at(0))
    broker.log.ingest.append_due(decode(record), topic="orders", queue_id=0, properties={})
    await broker.ask(CleanTopics())
    assert broker.log.store.bounds("orders", 0) == (0, 1)


async def test_queues_of_shrunk_topics_go_when_they_are_empty(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, queue_id=0)
    fill(broker, queue_id=1)
    fill(broker, topic="later")
    fill(broker, topic="later")
    for queue_id in (0, 1):
        broker.tables.offsets.commit("billing", "orders", queue_id, 4)
    monkeypatch.setattr(type(broker.control.clock), "now_ms", lambda _: 4_000_000_000_000)
    await broker.ask(DeleteExpired())
    assert broker.log.store.bounds("orders", 1) == (4, 4)
    await broker.ask(CleanQueues())
    assert broker.log.store.bounds("orders", 1) == (4, 4), "its topic has it still"
    broker.put_topic("orders", 1)
    await broker.ask(CleanQueues())
    assert [broker.log.store.bounds("orders", n) for n in (0, 1)] == [(4, 4), (0, 0)]
    assert broker.tables.offsets.get("billing", "orders", 0) == 4
    assert broker.tables.offsets.get("billing", "orders", 1) is None
    broker.tables.topics.remove("orders", 0)
    await broker.ask(CleanQueues())
    assert broker.log.store.topics() == ["later"]


async def test_progress_is_removed_before_its_queue(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a kill in between leaves a group behind messages that are still to come."""
    fill(broker)
    fill(broker, topic="later")
    fill(broker, topic="later")
    broker.tables.offsets.commit("billing", "orders", 0, 4)
    monkeypatch.setattr(type(broker.control.clock), "now_ms", lambda _: 4_000_000_000_000)
    await broker.ask(DeleteExpired())
    broker.tables.topics.remove("orders", 0)
    seen = []

    def remove(_store: Store, topic: str, queue_id: int) -> None:
        seen.append((topic, queue_id, broker.tables.offsets.get("billing", topic, queue_id)))
        assert not broker.tables.offsets.unsaved

    monkeypatch.setattr(type(broker.log.store), "remove_queue", remove)
    await broker.ask(CleanQueues())
    assert seen == [("orders", 0, None)]
