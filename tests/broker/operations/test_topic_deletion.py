from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.broker.conftest import FakePeer, LocalBroker, local, make_send, refuses

from roquet.broker.app import BrokerServer
from roquet.broker.operations.progress import BrokerProgress
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.settings.config import BrokerConfig
from roquet.model.subscription import ConsumerData, HeartbeatData, Subscription
from roquet.rules.liveness import LastSeen
from roquet.rules.topic_id import is_other_topic
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.wire.codes import ResponseCode


async def made_anew(broker: LocalBroker, peer: FakePeer) -> str:
    """A topic with messages, deleted and made anew; gives the id of the one before."""
    broker.ask(make_send(), peer)
    before = broker.tables.topics.ids["orders"]
    broker.make(TopicDeletion).delete(["orders"])
    broker.ask(make_send(), peer)
    return before


async def test_members_that_listened_to_a_deleted_topic_are_remembered(broker: LocalBroker) -> None:
    listening, committed, other = FakePeer(), FakePeer(), FakePeer()
    for number, peer in enumerate((listening, committed, other)):
        group = ("listening", "committed", "other")[number]
        topics = [Subscription(topic="orders", sub_string="*")] if number == 0 else []
        data = ConsumerData(group_name=group, subscription_data_set=topics)
        broker.tables.clients.seen(peer, LastSeen(seen_ms=0))
        broker.tables.clients.beat(peer, HeartbeatData(client_id=group, consumer_data_set=[data]))
    broker.tables.offsets.commit("committed", "orders", 0, 1)
    await made_anew(broker, other)
    former = broker.tables.former_readers
    late = [former.is_late("orders", "other", 0, p) for p in (listening, committed, other)]
    assert late == [True, True, False]
    listening.closed = True
    broker.coordination.forget(listening)
    broker.coordination.forget(committed)
    late = [former.is_late("orders", "other", 0, p) for p in (listening, committed)]
    assert late == [False, True], "who is only silent may go on at its offset"
    late = [former.is_late("orders", g, 0, FakePeer()) for g in ("listening", "committed", "other")]
    assert late == [True, True, False], "who reconnects names its group"


async def test_a_deleted_topic_is_no_longer_counted(broker: LocalBroker) -> None:
    broker.log.counts.counts_stored = True
    broker.send()
    assert [topic for (topic, _), _ in broker.log.counts.stored.items()] == ["orders"]
    broker.make(TopicDeletion).delete(["orders"])
    assert list(broker.log.counts.stored.items()) == []


async def test_no_progress_outlives_the_messages_of_a_deleted_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed at any step: the numbers of deleted messages are given to others."""
    files, states = MemoryFiles(), list[MemoryFiles]()
    config = BrokerConfig(
        host="127.0.0.1", port=0, store_dir=Path("/data"), log_file_size=1024 * 1024
    )
    async with BrokerServer(config, files=files) as server:
        broker = local(server.broker)
        for _ in range(3):
            broker.send()
        broker.tables.offsets.commit("billing", "orders", 0, 2)
        broker.make(BrokerProgress).save()
        topic_id = broker.tables.topics.ids["orders"]
        with monkeypatch.context() as patch:
            for name in ("replace", "remove", "sync"):
                patch.setattr(files, name, _noting(files, getattr(files, name), states))
            broker.make(TopicDeletion).delete(["orders"])
    assert len(states) > 3
    for left in states:
        async with BrokerServer(config, files=left) as again:
            broker = local(again.broker)
            is_there = broker.log.store.bounds("orders", 0) == (0, 3)
            assert is_there or broker.tables.offsets.get("billing", "orders", 0) is None
            now = broker.tables.topics.ids.get("orders")
            assert is_there or now is None or is_other_topic(topic_id, now), (
                "its offsets begin anew"
            )


T = TypeVar("T")


def _noting(
    files: MemoryFiles, act: Callable[..., T], states: list[MemoryFiles]
) -> Callable[..., T]:
    def noting(*args: Any, **more: Any) -> T:
        done = act(*args, **more)
        states.append(files.copy())
        return done

    return noting


async def test_requests_for_a_deleted_topic_are_refused(broker: LocalBroker) -> None:
    before = await made_anew(broker, broker.peer)
    with refuses(ResponseCode.TOPIC_NOT_EXIST, "was deleted and made anew"):
        broker.tables.topics.check_id("orders", before)
    broker.tables.topics.check_id("orders", broker.tables.topics.ids["orders"])
