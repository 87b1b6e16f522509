import asyncio

import msgspec
import pytest
from tests.dashboard.conftest import OpenSite

from roquet.admin import groups, topics
from roquet.admin.replicas import ReplicaStatus
from roquet.admin.topics import TopicSettings
from roquet.dashboard.sampling.sampler import PAUSE_FACTOR, Sampler, rate_of
from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_a_sample_has_brokers_topics_and_groups(open_site: OpenSite) -> None:
    async with open_site() as it:
        await topics.create(it.admin, "orders", TopicSettings())
        await groups.create(it.admin, "billing", {})
        await it.settle()
        sampler = Sampler(it.admin, period_ms=10_000)
        sample = await sampler.step()
        assert [one.broker for one in sample.brokers] == ["broker-a", "broker-b"]
        assert (set(sample.topics), set(sample.groups)) == ({"orders"}, {"billing"})
        assert sampler.latest is sample
        assert list(sampler.history("billing").lags) == [0]
        assert list(sampler.rates.lags) == [0]
        await groups.delete(it.admin, "billing")
        await sampler.step()
        assert list(sampler.history("billing").lags) == []


@in_virtual_time
async def test_a_sample_says_what_is_wrong_with_replicas(
    open_site: OpenSite, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@in_virtual_time
async def test_a_cluster_that_is_away_is_a_problem_and_no_end(open_site: OpenSite) -> None:
    async with open_site() as it:
        sampler = Sampler(it.admin, period_ms=10_000)
        for number in range(2):
            await it.running.stop_broker(number)
        sample = await sampler.step()
        assert sample.problems
        assert len(sampler.rates.times) == 0


@in_virtual_time
async def test_samples_are_made_at_intervals_and_waited_for(open_site: OpenSite) -> None:
    async with open_site() as it:
        sampler = Sampler(it.admin, period_ms=10_000)
        assert await sampler.wait(10) is None
        task = asyncio.create_task(sampler.run())
        first = await sampler.wait(5_000)
        assert first is not None
        assert await sampler.wait(0) is first
        await it.clock.sleep(10_000 + PAUSE_FACTOR * first.took_ms + 1_000)
        assert sampler.latest is not first
        task.cancel()
        await asyncio.wait([task])


def test_the_first_of_three_rates_counts() -> None:
    assert rate_of("12.5 8.0 3.0") == 12.5
    assert rate_of("?") is rate_of("") is None


@in_virtual_time
async def test_a_sample_that_fails_does_not_end_the_sampler(
    open_site: OpenSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site() as it:
        sampler = Sampler(it.admin, period_ms=1_000)
        with monkeypatch.context() as broken:
            broken.setattr("roquet.admin.brokers.statuses", lambda _admin: 1 // 0)
            task = asyncio.create_task(sampler.run())
            await asyncio.sleep(0)
            assert sampler.latest is None
        assert await sampler.wait(60_000) is not None
        task.cancel()
        await asyncio.wait([task])
