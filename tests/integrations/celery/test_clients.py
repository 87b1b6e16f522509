"""Clients of one connection."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any, cast

import pytest

from roquet.client.config import ConsumerConfig
from roquet.client.connection.loop_thread import LoopThread
from roquet.integrations.celery.clients import (
    ClusterClients,
    OutsideReader,
    TaskInbox,
    shared_clients,
)
from roquet.model.errors import NotFound


def opened(addresses: list[str], settings: dict[str, Any]) -> ClusterClients:
    return LoopThread.shared().wait(shared_clients(addresses, settings))


@pytest.fixture
def clients(address: str) -> Iterator[ClusterClients]:
    settings = {"namespace": "clients"}
    found = opened([address], settings)
    yield found
    found.close()


class FullChannel:
    """A channel that notes what it is given."""

    def __init__(self) -> None:
        self.free = 0
        self.taken: list[object] = []
        self.connection = self

    def room(self) -> int:
        return self.free

    def arrived(self, queue: str, messages: Any) -> None:
        self.taken.extend((queue, message) for message in messages)

    def fail(self, error: Exception) -> None:
        self.taken.append(error)


async def test_an_inbox_asks_for_no_more_than_its_channel_has_room_for() -> None:
    channel = FullChannel()
    inbox = TaskInbox("mine", channel, ConsumerConfig(pop_count=8))
    asking = asyncio.create_task(inbox.wait_for_demand())
    await asyncio.sleep(0)
    assert not asking.done()
    channel.free = 3
    inbox.resume()
    assert await asking == 3
    channel.free = 100
    assert await inbox.wait_for_demand() == 8


def test_an_inbox_hands_messages_and_errors_on() -> None:
    channel, error = FullChannel(), NotFound("gone")
    inbox, messages = TaskInbox("mine", channel, ConsumerConfig()), cast("Any", [1, 2])
    inbox.put(messages)
    inbox.fail(error)
    assert channel.taken == [("mine", 1), ("mine", 2), error]


def test_a_topic_is_created_once_however_many_ask(clients: ClusterClients) -> None:
    assert not clients.has_topic("jobs")
    clients.run(clients.create_topic("jobs", 2))
    clients.run(clients.create_topic("jobs", 4))
    assert clients.has_topic("jobs")
    assert clients.run(clients.size("jobs")) == 0


def test_a_deleted_queue_is_unknown(clients: ClusterClients) -> None:
    clients.run(clients.create_topic("gone", 1))
    clients.run(clients.delete("gone"))
    assert not clients.has_topic("gone")
    with pytest.raises(NotFound):
        clients.run(clients.size("gone"))


def test_connections_share_clients_whose_temporary_queues_end_with_the_last_one(
    address: str,
) -> None:
    first, second, other = (
        opened([address], {"namespace": name}) for name in ("one", "one", "two")
    )
    assert first is second is not other
    first.run(first.follow("mine"))
    first.close()
    assert "mine" in second.temporary
    second.close()
    assert not second.temporary
    other.close()
    again = opened([address], {"namespace": "one"})
    assert again is not first
    again.close()


def test_a_temporary_queue_that_is_declared_and_bound_at_once_has_one_reader(address: str) -> None:
    clients = opened([address], {"namespace": "at-once"})

    async def declare() -> set[int]:
        await asyncio.gather(*(clients.follow("mine", e) for e in ("", "a", "b")))
        return {id(each) for each in gc.get_objects() if isinstance(each, OutsideReader)}

    before = {id(each) for each in gc.get_objects() if isinstance(each, OutsideReader)}
    assert len(clients.run(declare()) - before) == 1
    assert sorted(
        queue.topic.partition("%")[2] for queue in clients.temporary["mine"].assignment()
    ) == [
        "__exchange", "a__exchange", "b__exchange",
    ]  # fmt: skip
    clients.close()
