import asyncio

import msgspec
import pytest
from tests.dashboard.conftest import Site, open_site

from roquet.admin import groups, topics
from roquet.admin.replicas import ReplicaStatus
from roquet.admin.topics import TopicSettings
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.dashboard.sampling.sampler import (
    PAUSE_FACTOR,
    Sampler,
    TopicSample,
    rate_of,
    sample_topics,
)
from roquet.model.errors import RoquetError

pytestmark = pytest.mark.virtual_time


async def test_a_sample_has_brokers_topics_and_groups(site: Site) -> None:
    await topics.create(site.admin, "orders", TopicSettings())
    await groups.create(site.admin, "billing", {})
    await site.settle()
    sampler = Sampler(site.admin, period_ms=10_000)
    sample = await sampler.step()
    assert [one.broker for one in sample.brokers] == ["broker-a", "broker-b"]
    assert (set(sample.topics), set(sample.groups)) == ({"orders"}, {"billing"})
    assert sampler.latest is sample
    assert list(sampler.history("billing").lags) == [0]
    assert list(sampler.rates.lags) == [0]
    await groups.delete(site.admin, "billing")
    await sampler.step()
    assert list(sampler.history("billing").lags) == []


async def test_a_sample_says_what_is_wrong_with_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    async def statuses(_: object) -> list[ReplicaStatus]:
        master = ReplicaStatus(broker="b", broker_id=0, address="h:1", is_master=True)
        behind = msgspec.structs.replace(
            master, broker_id=1, address="h:2", is_master=False, is_in_sync=False
        )
        silent = msgspec.structs.replace(behind, broker_id=2, fault="refused")
        return [master, behind, silent]

    monkeypatch.setattr("roquet.admin.replicas.statuses", statuses)
    async with open_site() as it:
        sample = await Sampler(it.admin, period_ms=10_000).step()
        assert sample.replica_problems == [
            "b 1 at h:2 is not in sync",
            "b 2 at h:2 does not tell how it is: refused",
        ]


async def test_a_cluster_that_is_away_is_a_problem_and_no_end(site: Site) -> None:
    sampler = Sampler(site.admin, period_ms=10_000)
    for number in range(2):
        await site.running.stop_broker(number)
    sample = await sampler.step()
    assert sample.problems
    assert len(sampler.rates.times) == 0


async def test_samples_are_made_at_intervals_and_waited_for(site: Site) -> None:
    sampler = Sampler(site.admin, period_ms=10_000)
    assert await sampler.wait(10) is None
    task = asyncio.create_task(sampler.run())
    first = await sampler.wait(5_000)
    assert first is not None
    assert await sampler.wait(0) is first
    await site.clock.sleep(10_000 + PAUSE_FACTOR * first.took_ms + 1_000)
    assert sampler.latest is not first
    task.cancel()
    await asyncio.wait([task])


def test_the_first_of_three_rates_counts() -> None:
    assert rate_of("12.5 8.0 3.0") == 12.5
    assert rate_of("?") is rate_of("") is None


async def test_a_sample_that_fails_does_not_end_the_sampler(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = Sampler(site.admin, period_ms=1_000)
    with monkeypatch.context() as broken:
        broken.setattr("roquet.admin.brokers.statuses", lambda _admin: 1 // 0)
        task = asyncio.create_task(sampler.run())
        await asyncio.sleep(0)
        assert sampler.latest is None
    assert await sampler.wait(60_000) is not None
    task.cancel()
    await asyncio.wait([task])


async def sample(it: Site, before: dict[str, TopicSample]) -> TopicSample:
    addresses = await it.admin.brokers()
    (found,) = [one async for one in sample_topics(it.admin, addresses, ["orders"], before)]
    return found


async def test_a_topic_has_a_size_and_then_a_rate(site: Site) -> None:
    settings = TopicSettings(read_queues=2, write_queues=2, attributes="+message.type=FIFO")
    await topics.create(site.admin, "orders", settings)
    await site.settle()
    first = await sample(site, {})
    assert (first.brokers, first.write_queues) == (["broker-a", "broker-b"], 4)
    assert (first.message_type, first.messages, first.in_per_s) == ("FIFO", 0, None)
    async with Producer(site.namesrv, config=ProducerConfig(clock=site.clock)) as producer:
        for _ in range(20):
            await producer.send("orders", b"x")
    await site.clock.sleep(first.at_ms + 10_000 - site.clock.now_ms())
    second = await sample(site, {"orders": first})
    assert (second.messages, round(second.in_per_s or 0)) == (20, 2)
    assert second.stored_ms is not None


async def test_a_silent_broker_leaves_no_rate(site: Site) -> None:
    await topics.create(site.admin, "orders", TopicSettings())
    await site.settle()
    first = await sample(site, {})
    addresses = await site.admin.brokers()
    await site.running.stop_broker(1)
    parts = sample_topics(site.admin, addresses, ["orders"], {"orders": first})
    second = await anext(parts)
    with pytest.raises(RoquetError, match="topics are not known whole: broker-b: cannot"):
        await anext(parts)
    assert (second.brokers, second.in_per_s) == (["broker-a"], None)
