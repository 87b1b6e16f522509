"""Counts of dead letters by the statistics of brokers."""

from tests.admin.conftest import ClusterWithAdmin, OpenCluster

from roquet.admin import dead_letters, topics
from roquet.admin.dead_letter_totals import DeadLetterTotals, totals
from roquet.admin.topics import TopicSettings
from roquet.client.config import ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.testing.clock import in_virtual_time


async def give_up(it: ClusterWithAdmin, count: int) -> None:
    """Letters in the dead-letter topic of `billing`, on both brokers in turn."""
    await topics.create(it.admin, "%DLQ%billing", TopicSettings(read_queues=1, write_queues=1))
    await it.settle()
    async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
        for _ in range(count):
            await producer.send("%DLQ%billing", b"x")


async def counted(it: ClusterWithAdmin) -> DeadLetterTotals:
    return await totals(it.admin, await it.admin.brokers(), "billing")


@in_virtual_time
async def test_letters_count_until_all_were_sent_again(open_cluster: OpenCluster) -> None:
    async with open_cluster() as it:
        assert await counted(it) == DeadLetterTotals(total=0, not_resent=0)
        await give_up(it, 4)
        found = await counted(it)
        assert (found.total, found.not_resent, found.fault) == (4, 4, None)
        assert found.newest_ms is not None
        config = ConsumerConfig(clock=it.clock)
        async with dead_letters.open_reader(it.namesrv, config) as reader:
            filter_ = dead_letters.DeadLetterFilter()
            _, ends = await dead_letters.select(reader, "billing", filter_)
            await dead_letters.save_resent(reader, ends)
        found = await counted(it)
        assert (found.total, found.not_resent) == (4, 0)


@in_virtual_time
async def test_letters_of_a_broker_that_is_away_are_not_known(open_cluster: OpenCluster) -> None:
    async with open_cluster() as it:
        await give_up(it, 4)
        brokers = await it.admin.brokers()
        await it.running.stop_broker(1)
        found = await totals(it.admin, brokers, "billing")
        assert (found.total, found.not_resent, found.newest_ms) == (None, None, None)
        assert (found.fault or "").startswith("broker-b: cannot connect")
