import pytest
from tests.dashboard.conftest import OpenSite, Site

from roquet.admin import topics
from roquet.admin.topics import TopicSettings
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.dashboard.sampling.topic_sample import TopicSample, sample_topics
from roquet.model.errors import RoquetError
from roquet.testing.clock import in_virtual_time


async def sample(it: Site, before: dict[str, TopicSample]) -> TopicSample:
    addresses = await it.admin.brokers()
    (found,) = [one async for one in sample_topics(it.admin, addresses, ["orders"], before)]
    return found


@in_virtual_time
async def test_a_topic_has_a_size_and_then_a_rate(open_site: OpenSite) -> None:
    async with open_site() as it:
        settings = TopicSettings(read_queues=2, write_queues=2, attributes="+message.type=FIFO")
        await topics.create(it.admin, "orders", settings)
        await it.settle()
        first = await sample(it, {})
        assert (first.brokers, first.write_queues) == (["broker-a", "broker-b"], 4)
        assert (first.message_type, first.messages, first.in_per_s) == ("FIFO", 0, None)
        async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
            for _ in range(20):
                await producer.send("orders", b"x")
        await it.clock.sleep(first.at_ms + 10_000 - it.clock.now_ms())
        second = await sample(it, {"orders": first})
        assert (second.messages, round(second.in_per_s or 0)) == (20, 2)
        assert second.stored_ms is not None


@in_virtual_time
async def test_a_silent_broker_leaves_no_rate(open_site: OpenSite) -> None:
    async with open_site() as it:
        await topics.create(it.admin, "orders", TopicSettings())
        await it.settle()
        first = await sample(it, {})
        addresses = await it.admin.brokers()
        await it.running.stop_broker(1)
        parts = sample_topics(it.admin, addresses, ["orders"], {"orders": first})
        second = await anext(parts)
        with pytest.raises(RoquetError, match="topics are not known whole: broker-b: cannot"):
            await anext(parts)
        assert (second.brokers, second.in_per_s) == (["broker-a"], None)
