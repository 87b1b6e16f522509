"""Clients of one connection."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from roquet.client.config import ConsumerConfig
from roquet.integrations.celery.clients import ClusterClients, DemandBuffer, OutsideReader
from roquet.model.errors import NotFound


@pytest.fixture
def clients(address: str) -> Iterator[ClusterClients]:
    settings = {"namespace": "clients"}
    found = ClusterClients([address], settings)
    yield found
    found.close()


async def test_a_buffer_asks_for_no_more_than_there_is_room_for() -> None:
    room = 0
    buffer = DemandBuffer(ConsumerConfig(pop_count=8), lambda: room, lambda messages: None)
    asking = asyncio.create_task(buffer.wait_for_demand())
    await asyncio.sleep(0)
    assert not asking.done()
    room = 3
    buffer.resume()
    assert await asking == 3
    room = 100
    assert await buffer.wait_for_demand() == 8


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


def test_temporary_queues_end_with_the_last_clients_of_the_process(address: str) -> None:
    first, second = (ClusterClients([address], {"namespace": "temporary"}) for _ in range(2))
    first.run(first.follow("mine"))
    first.close()
    assert second.temporary("mine") is not None
    second.close()
    assert second.temporary("mine") is None


def test_a_temporary_queue_that_is_declared_and_bound_at_once_has_one_reader(address: str) -> None:
    first, second = (ClusterClients([address], {"namespace": "at-once"}) for _ in range(2))

    async def declare() -> set[int]:
        await asyncio.gather(
            *(clients.follow("mine", e) for clients in (first, second) for e in ("", "a", "b"))
        )
        return {id(each) for each in gc.get_objects() if isinstance(each, OutsideReader)}

    before = {id(each) for each in gc.get_objects() if isinstance(each, OutsideReader)}
    assert len(first.run(declare()) - before) == 1
    assert (reader := second.temporary("mine")) is not None
    assert sorted(queue.topic.partition("%")[2] for queue in reader.assignment()) == [
        "__exchange", "a__exchange", "b__exchange",
    ]  # fmt: skip
    for clients in (first, second):
        clients.close()
