import asyncio
from collections.abc import Callable

import pytest
from tests.broker.conftest import FakePeer, MakeSend
from tests.broker.handlers.messages.test_pull import ask

from roquet.broker import statistics as statistics_module
from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.pull import PullHandler
from roquet.broker.handlers.messages.send_back import SendBackHandler
from roquet.broker.operations.pop_collector import PopCollector, PopRequest
from roquet.broker.services import sampling as module
from roquet.broker.services.sampling import StatisticsSampler
from roquet.broker.statistics import Statistics
from roquet.model.topic import TopicConfig
from roquet.wire.calls.send import SendBack

NOW = 1_700_000_000_000


PutMany = Callable[..., None]


@pytest.fixture
def put(broker: Broker, peer: FakePeer, message: MakeSend) -> PutMany:
    """Stores so many messages of a topic."""

    def some(count: int, topic: str = "orders", queue_id: int = 0) -> None:
        broker.tables.topics.put(TopicConfig(topic_name=topic), 0)
        for _ in range(count):
            broker.log.ingest.append(message(topic=topic), queue_id, peer)

    return some


def counted(broker: Broker, topic: str = "orders") -> tuple[int, int]:
    tally = broker.control.statistics.puts.get(topic)
    return (tally.count, tally.size) if tally else (0, 0)


async def test_stored_messages_are_counted_from_the_queues(broker: Broker, put: PutMany) -> None:
    put(3)
    put(2, queue_id=1)
    assert counted(broker) == (0, 0), "nobody looked yet"
    await broker.control.sampler.look()
    assert counted(broker) == (5, broker.log.store.end_position)
    await broker.control.sampler.look()
    put(1)
    await broker.control.sampler.look("orders")
    assert counted(broker) == (6, broker.log.store.end_position)


async def test_concurrent_samples_count_each_message_once(
    broker: Broker, put: PutMany, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_COUNT", 2)
    put(6)
    first = asyncio.ensure_future(broker.control.sampler.look())
    await asyncio.sleep(0)
    put(8)
    await asyncio.gather(first, broker.control.sampler.look(), broker.control.sampler.look())
    await broker.control.sampler.look()
    assert counted(broker) == (14, broker.log.store.end_position)


async def test_a_step_counts_and_takes_a_sample(broker: Broker, put: PutMany) -> None:
    put(4)
    await broker.control.sampler.step(broker.control.clock.now_ms() + 10_000)
    stats = broker.control.statistics.view("TOPIC_PUT_NUMS", "orders")
    assert stats is not None
    assert stats.stats_minute is not None
    assert stats.stats_minute.sum == 4


async def test_one_topic_can_be_counted_alone(broker: Broker, put: PutMany) -> None:
    put(1)
    put(1, topic="paid")
    await broker.control.sampler.look("paid")
    await broker.control.sampler.look("unknown")
    assert (counted(broker)[0], counted(broker, "paid")[0]) == (0, 1)


async def test_messages_from_before_the_start_are_not_counted(broker: Broker, put: PutMany) -> None:
    put(3)
    statistics = Statistics(NOW)
    later = StatisticsSampler(broker.log, statistics)
    await later.look()
    assert statistics.puts == {}
    put(2)
    await later.look()
    assert statistics.puts["orders"].count == 2


async def test_a_recreated_topic_is_counted_from_its_first_message(
    broker: Broker, put: PutMany
) -> None:
    put(5)
    await broker.control.sampler.look()
    broker.log.store.delete_topic("orders")
    put(2)
    await broker.control.sampler.look()
    assert counted(broker)[0] == 7


async def test_many_messages_are_counted_a_part_at_a_time(
    broker: Broker, put: PutMany, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_COUNT", 3)
    monkeypatch.setattr(module, "QUEUES_COUNT", 1)
    put(10)
    put(4, queue_id=1)
    await broker.control.sampler.look()
    assert counted(broker) == (14, broker.log.store.end_position)


async def test_internal_topics_are_not_counted(broker: Broker, put: PutMany) -> None:
    put(2, topic="rmq_sys_REVIVE_LOG_DefaultCluster")
    put(2, topic="RMQ_SYS_TRANS_OP_HALF_TOPIC")
    await broker.control.sampler.look()
    assert broker.control.statistics.broker_puts.count == 0


async def test_counted_ends_of_deleted_queues_are_removed(
    broker: Broker, put: PutMany, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENDS_SPARE", 0)
    for number in range(4):
        put(1, topic=f"t{number}")
    await broker.control.sampler.look()
    for number in range(3):
        broker.log.store.delete_topic(f"t{number}")
    put(1, topic="t3")
    await broker.control.sampler.look()
    assert set(broker.control.sampler.counted_ends) == {("t3", 0)}
    assert counted(broker, "t3")[0] == 2


async def test_other_tasks_run_while_samples_are_taken(
    broker: Broker, put: PutMany, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics_module, "COUNTERS_COUNT", 2)
    for number in range(6):
        put(1, topic=f"t{number}")
    await broker.control.sampler.look()
    sampled = list[int]()

    async def other() -> None:
        for _ in range(6):
            tallies = broker.control.statistics.puts.values()
            sampled.append(sum(bool(tally.minute) for tally in tallies))
            await asyncio.sleep(0)

    await asyncio.gather(broker.control.sampler.step(broker.control.clock.now_ms()), other())
    assert sampled[-1] == 6
    assert len(set(sampled)) > 2


async def test_a_pull_counts_once_for_all_that_it_gives(
    broker: Broker, put: PutMany, peer: FakePeer
) -> None:
    put(3)

    for offset in (0, 3):
        call = ask(offset, consumer_group="g", sys_flag=4, suspend_timeout_millis=0)
        broker.bind(PullHandler.pull)(call, peer)
    tally = broker.control.statistics.gets["orders", "g"]
    assert (tally.times, tally.count, tally.size) == (1, 3, broker.log.store.end_position)
    assert broker.control.statistics.pulled("orders", "g", 0) == 3
    assert broker.control.statistics.misses.times == 1


async def test_a_pop_counts_what_it_takes_from_each_queue(broker: Broker, put: PutMany) -> None:
    put(2)
    put(1, queue_id=1)
    PopCollector(broker.log, broker.delivery, broker.tables, broker.control,
        PopRequest(
            group="g", topic="orders", queue_id=-1, queue_count=2, count=32, invisible_ms=60_000,
            init_mode=0, wanted=None,
        ),
    ).collect()  # fmt: skip
    tally = broker.control.statistics.gets["orders", "g"]
    assert (tally.times, tally.count) == (2, 3)


async def test_a_message_sent_back_counts_for_its_group(
    broker: Broker, put: PutMany, peer: FakePeer
) -> None:
    put(1)
    broker.bind(SendBackHandler.send_back)(SendBack(offset=0, group="g", delay_level=0), peer)
    assert broker.control.statistics.returns["orders", "g"].count == 1
