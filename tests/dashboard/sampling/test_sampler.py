import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.dashboard.conftest import Site, open_site

from roquet.admin import groups, topics
from roquet.admin.client import AdminClient
from roquet.admin.replicas import ReplicaStatus
from roquet.admin.topics import TopicSettings
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.dashboard.sampling.history import UNKNOWN
from roquet.dashboard.sampling.role_changes import ClusterEvent
from roquet.dashboard.sampling.sampler import (
    PAUSE_FACTOR,
    SampleClock,
    Sampler,
    TopicSample,
    rate_of,
    sample_topics,
)
from roquet.model.errors import CallTimeout, RoquetError
from roquet.wire.calls.admin.stats import GetTopicStats

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
    assert list(sampler.totals.lags) == [0]
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
    assert list(sampler.totals.ins) == list(sampler.totals.lags) == [UNKNOWN]


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
    odd = ("?", "", "-3.0 1 1", "nan 1 1", "inf 1 1")
    assert [rate_of(text) for text in odd] == [None] * len(odd)


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
    clock = SampleClock(it.clock)
    (found,) = [one async for one in sample_topics(it.admin, addresses, ["orders"], before, clock)]
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
    clock = SampleClock(site.clock)
    parts = sample_topics(site.admin, addresses, ["orders"], {"orders": first}, clock)
    second = await anext(parts)
    with pytest.raises(RoquetError, match="topics are not known whole: broker-b: cannot"):
        await anext(parts)
    assert (second.brokers, second.in_per_s) == (["broker-a"], None)


async def test_messages_of_a_broker_that_was_silent_are_no_rate(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topics.create(site.admin, "orders", TopicSettings(read_queues=1, write_queues=1))
    await site.settle()
    async with Producer(site.namesrv, config=ProducerConfig(clock=site.clock)) as producer:
        for _ in range(20):
            await producer.send("orders", b"x")
    ask_each = AdminClient.ask_each

    async def without_b(admin: AdminClient, brokers: Mapping[str, str], call: Any) -> Any:
        found, failed = await ask_each(admin, brokers, call)
        if isinstance(call, GetTopicStats):
            found.pop("broker-b")
            failed["broker-b"] = CallTimeout("away")
        return found, failed

    with monkeypatch.context() as silent:
        silent.setattr(AdminClient, "ask_each", without_b)
        addresses, clock = await site.admin.brokers(), SampleClock(site.clock)
        first = await anext(sample_topics(site.admin, addresses, ["orders"], {}, clock))
    assert (first.brokers, first.end) == (["broker-a", "broker-b"], None)
    await site.clock.sleep(10_000)
    second = await sample(site, {"orders": first})
    assert (second.end, second.in_per_s) == (20, None)


class SetClock:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.monotonic, self.ahead = 0, 1_000_000_000

    def now_ms(self) -> int:
        return self.monotonic + self.ahead

    def monotonic_ms(self) -> int:
        return self.monotonic

    async def sleep(self, ms: int) -> None:
        self.monotonic += ms


@pytest.mark.parametrize("jump_ms", [-7_200_000, 7_200_000])
async def test_a_clock_that_is_set_moves_what_is_remembered(site: Site, jump_ms: int) -> None:
    clock = SetClock()
    await topics.create(site.admin, "orders", TopicSettings())
    await groups.create(site.admin, "billing", {})
    await site.settle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site.admin, "clock", clock)
        sampler = Sampler(site.admin, period_ms=10_000)
        await sampler.step()
        sampler.events.append(ClusterEvent(at_ms=clock.now_ms(), text="x", path="/"))
        clock.monotonic += 10_000
        clock.ahead += jump_ms
        sample = await sampler.step()
    now_ms = clock.now_ms()
    assert sample.at_ms == now_ms
    assert list(sampler.totals.times) == [now_ms - 10_000, now_ms]
    assert list(sampler.history("billing").times) == [now_ms - 10_000, now_ms]
    assert [event.at_ms for event in sampler.events] == [now_ms - 10_000]
    assert sample.topics["orders"].in_per_s == 0


def test_the_time_of_a_sample_goes_on_evenly_however_the_clock_is_set() -> None:
    machine = SetClock()
    clock = SampleClock(machine)
    before = clock.now_ms()
    machine.monotonic += 500
    machine.ahead += 3_600_000
    assert clock.now_ms() == before + 500
    assert (clock.adjust(), clock.adjust()) == (3_600_000, 0)
    assert clock.now_ms() == machine.now_ms()
    machine.ahead += 20  # the clock is being adjusted by some ppm
    assert clock.adjust() == 0
