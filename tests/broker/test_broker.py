from pathlib import Path
from typing import Any

import msgspec
import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.handlers.send import send
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import CallRefused
from roquet.model.subscription import ConsumerData, HeartbeatData, Subscription
from roquet.rules.liveness import LastSeen
from roquet.rules.topic_id import is_other_topic
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.wire.calls.bodies import RequestMode
from roquet.wire.calls.heartbeat import ConsumersChanged
from roquet.wire.codes import ResponseCode


def join(broker: Broker, peer: Any, client_id: str, group: str) -> None:
    data = HeartbeatData(client_id=client_id, consumer_data_set=[ConsumerData(group_name=group)])
    broker.clients.seen(peer, LastSeen(seen_ms=0))
    broker.clients.beat(peer, data)


async def test_the_members_of_a_changed_group_hear_of_it(broker: Broker, new_peer: Any) -> None:
    ours, theirs = new_peer(), new_peer()
    join(broker, ours, "c1", "billing")
    join(broker, theirs, "c2", "shipping")
    broker.notify(["billing", "unknown"])
    assert ours.told == [ConsumersChanged(consumer_group="billing")]
    assert theirs.told == []


async def test_a_forgotten_client_is_told_to_the_rest_of_its_groups(
    broker: Broker, new_peer: Any
) -> None:
    first, second = new_peer(), new_peer()
    join(broker, first, "c1", "billing")
    join(broker, second, "c2", "billing")
    broker.forget(first)
    assert first.told == []
    assert second.told == [ConsumersChanged(consumer_group="billing")]


async def test_forgetting_a_stranger_changes_nothing(broker: Broker, peer: Any) -> None:
    broker.forget(peer)
    assert peer not in broker.clients


async def test_what_is_seen_and_decided_goes_with_the_last_member(
    broker: Broker, new_peer: Any
) -> None:
    first, second = new_peer(), new_peer()
    join(broker, first, "c1", "billing")
    join(broker, second, "c2", "billing")
    broker.handover.seen("billing", "orders", 0, first)
    broker.assigning.table.asked("billing", "c2", "STICKY")
    broker.forget(first)
    assert broker.handover.owners("billing", "orders", 0) == []
    assert broker.assigning.table.strategies("billing") == {"c2": "STICKY"}
    broker.forget(second)
    assert broker.assigning.table.strategies("billing") == {}


async def test_a_group_pulls_unless_told_otherwise(broker: Broker) -> None:
    assert broker.mode("orders", "billing").mode == "PULL"
    broker.modes.put(RequestMode(topic="orders", consumer_group="billing", mode="POP"))
    assert broker.mode("orders", "billing").mode == "POP"
    assert broker.mode("orders", "other").mode == "PULL"


async def test_other_settings_are_in_force_for_all_who_look(broker: Broker) -> None:
    before = broker.config
    broker.configure(msgspec.structs.replace(before, region="elsewhere"))
    assert broker.config.region == "elsewhere"
    assert before.region == "DefaultRegion"


async def test_no_progress_outlives_the_messages_of_a_deleted_topic(
    peer: Any, message: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at any step: the numbers of deleted messages are given to others."""
    files, found = MemoryFiles(), list[MemoryFiles]()
    config = BrokerConfig(
        host="127.0.0.1", port=0, store_dir=Path("/data"), log_file_size=1024 * 1024
    )
    async with BrokerServer(config, files=files) as server:
        broker = server.broker
        for _ in range(3):
            send(broker, message(), peer)
        broker.offsets.commit("billing", "orders", 0, 2)
        broker.save_progress()
        topic_id = broker.topics.ids["orders"]
        with monkeypatch.context() as patch:
            for name in ("replace", "remove", "sync"):
                patch.setattr(files, name, _noting(files, getattr(files, name), found))
            broker.forget_topics(["orders"])
    assert len(found) > 3
    for left in found:
        async with BrokerServer(config, files=left) as again:
            broker = again.broker
            is_there = broker.store.bounds("orders", 0) == (0, 3)
            assert is_there or broker.offsets.get("billing", "orders", 0) is None
            now = broker.topics.ids.get("orders")
            assert is_there or now is None or is_other_topic(topic_id, now), (
                "its offsets begin anew"
            )


def _noting(files: MemoryFiles, act: Any, found: list[MemoryFiles]) -> Any:
    def noting(*args: Any, **more: Any) -> Any:
        done = act(*args, **more)
        found.append(files.copy())
        return done

    return noting


async def made_anew(broker: Broker, peer: Any, message: Any) -> str:
    """A topic with messages, deleted and made anew; gives the id of the one before."""
    send(broker, message(), peer)
    before = broker.topics.ids["orders"]
    broker.forget_topics(["orders"])
    send(broker, message(), peer)
    return before


async def test_what_is_asked_of_a_deleted_topic_is_refused(
    broker: Broker, peer: Any, message: Any
) -> None:
    before = await made_anew(broker, peer, message)
    with pytest.raises(CallRefused, match="was deleted and made anew") as refusal:
        broker.check_topic_id("orders", before)
    assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST
    broker.check_topic_id("orders", broker.topics.ids["orders"])


async def test_members_that_listened_to_a_deleted_topic_are_its_former_readers(
    broker: Broker, new_peer: Any, message: Any
) -> None:
    listening, committed, other = new_peer(), new_peer(), new_peer()
    for number, peer in enumerate((listening, committed, other)):
        group = ("listening", "committed", "other")[number]
        topics = [Subscription(topic="orders", sub_string="*")] if number == 0 else []
        data = ConsumerData(group_name=group, subscription_data_set=topics)
        broker.clients.seen(peer, LastSeen(seen_ms=0))
        broker.clients.beat(peer, HeartbeatData(client_id=group, consumer_data_set=[data]))
    broker.offsets.commit("committed", "orders", 0, 1)
    await made_anew(broker, other, message)
    former = broker.former_readers
    late = [former.is_late("orders", "other", 0, p) for p in (listening, committed, other)]
    assert late == [True, True, False]
    listening.closed = True
    broker.forget(listening)
    broker.forget(committed)
    late = [former.is_late("orders", "other", 0, p) for p in (listening, committed)]
    assert late == [False, True], "who is only silent may go on at its offset"
    late = [former.is_late("orders", g, 0, new_peer()) for g in ("listening", "committed", "other")]
    assert late == [True, True, False], "who reconnects names its group"


async def test_progress_beyond_the_end_is_not_noted(
    broker: Broker, peer: Any, message: Any
) -> None:
    send(broker, message(b"x"), peer)
    assert [broker.commit("g", "orders", 0, offset) for offset in (1, 2, 1, 0)] == [
        True,
        False,
        True,
        True,
    ]
    assert broker.offsets.get("g", "orders", 0) == 0
