"""EtcdCluster: it answers while a majority is in reach, and may do things that nobody learns of."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import msgspec
import pytest

from roquet.controller.state_store.etcd import EtcdStore
from roquet.controller.state_store.etcd_gateway import EtcdGateway
from roquet.controller.state_store.interface import (
    ControllerIdentity,
    LeadershipLost,
    StateStoreError,
)
from roquet.rules.election.group import ReplicaGroup
from roquet.testing.clock import this_loop
from simulation.hosts import Hosts
from simulation.replicated.etcd_cluster import ETCD_HOSTS, ETCD_PORT, EtcdCluster
from simulation.replicated.frozen_hosts import FrozenHosts

pytestmark = pytest.mark.virtual_time

ONE, OTHER = ControllerIdentity("one", "10.0.0.2:1"), ControllerIdentity("other", "10.0.0.3:1")
GROUP = ReplicaGroup(cluster="c", name="g", replicas={})


class RunningEtcd(msgspec.Struct):
    """An etcd, and what was written to it."""

    cluster: EtcdCluster
    frozen: FrozenHosts
    written: list[tuple[str, bytes]]

    async def close(self) -> None:
        """End all connections."""
        for host in self.frozen.hosts:
            self.frozen.thaw(host)
        for host in ETCD_HOSTS:
            this_loop().network.kill(host)
        await asyncio.sleep(0)

    def store(self, *members: str) -> EtcdStore:
        addresses = [f"{member}:{ETCD_PORT}" for member in members or ETCD_HOSTS]
        return EtcdStore(EtcdGateway(addresses), "g1")


@asynccontextmanager
async def running_etcd() -> AsyncIterator[RunningEtcd]:
    loop = this_loop()
    frozen, written = FrozenHosts(loop), list[tuple[str, bytes]]()
    cluster = EtcdCluster(
        loop,
        Hosts(loop),
        Random(1),
        lambda host: host in frozen.hosts,
        lambda name, value: written.append((name, value)),
    )
    await cluster.start()
    running = RunningEtcd(cluster, frozen, written)
    try:
        yield running
    finally:
        await running.close()


async def leading(store: EtcdStore, identity: ControllerIdentity = ONE) -> int:
    view = await store.acquire(identity)
    assert view.term is not None
    return view.term


async def test_one_of_two_stores_leads_and_the_other_one_once_it_is_gone() -> None:
    async with running_etcd() as running:
        first, second = running.store(), running.store()
        term = await leading(first)
        assert await first.save(term, "g", GROUP, 0)
        view = await second.acquire(OTHER)
        assert (view.term, view.leader) == (None, ONE)
        await asyncio.sleep(4)
        later = await leading(second, OTHER)
        with pytest.raises(LeadershipLost):
            await first.confirm(term)
        assert (await second.load(later))["g"].group == GROUP
        assert [name for name, _ in running.written if "groups" in name] == ["/roquet/g1/groups/g"]


async def test_a_member_without_a_majority_does_not_answer() -> None:
    async with running_etcd() as running:
        store = running.store(ETCD_HOSTS[0])
        term = await leading(store)
        running.cluster.kill_member(ETCD_HOSTS[1])
        await store.confirm(term)
        running.frozen.freeze(ETCD_HOSTS[2])
        with pytest.raises(StateStoreError, match="no response"):
            await store.confirm(term)
        running.frozen.thaw(ETCD_HOSTS[2])
        this_loop().network.partition(ETCD_HOSTS[0], ETCD_HOSTS[2])
        with pytest.raises(StateStoreError, match="no response"):
            await store.confirm(term)
        await running.cluster.start_member(ETCD_HOSTS[1])
        assert (await store.acquire(ONE)).leader == ONE


async def test_a_write_that_nobody_learns_of_is_carried_out_once_there_is_a_majority() -> None:
    async with running_etcd() as running:
        store = running.store(ETCD_HOSTS[0])
        term = await leading(store)
        for host in ETCD_HOSTS[1:]:
            running.cluster.kill_member(host)
        with pytest.raises(StateStoreError) as failed:
            await store.save(term, "g", GROUP, 0)
        assert not failed.value.definite
        await running.cluster.start_member(ETCD_HOSTS[1])
        await asyncio.sleep(0.2)
        assert running.written[-1][0] == "/roquet/g1/groups/g"


async def test_a_request_is_given_up_after_a_while() -> None:
    async with running_etcd() as running:
        store = running.store(ETCD_HOSTS[0])
        term = await leading(store)
        for host in ETCD_HOSTS[1:]:
            running.cluster.kill_member(host)
        with pytest.raises(StateStoreError):
            await store.save(term, "g", GROUP, 0)
        await asyncio.sleep(7)
        await running.cluster.start_member(ETCD_HOSTS[1])
        await asyncio.sleep(1)
        assert all("groups" not in name for name, _ in running.written)


async def test_answers_are_lost_before_or_after_the_write() -> None:
    async with running_etcd() as running:
        store = running.store()
        term = await leading(store)
        running.cluster.loses_answers = True
        results = await asyncio.gather(
            *(store.save(term, f"g{number}", GROUP, 0) for number in range(20)),
            return_exceptions=True,
        )
        failed = [one for one in results if isinstance(one, StateStoreError)]
        assert not any(error.definite for error in failed)
        written = sum("groups" in name for name, _ in running.written)
        assert 0 < 20 - len(failed) < written < 20


async def test_a_slow_etcd_writes_after_its_client_has_given_up() -> None:
    async with running_etcd() as running:
        store = running.store()
        term = await leading(store)
        running.cluster.is_slow = True
        results = await asyncio.gather(
            *(store.save(term, f"g{number}", GROUP, 0) for number in range(20)),
            return_exceptions=True,
        )
        await asyncio.sleep(4)
        failed = [one for one in results if isinstance(one, StateStoreError)]
        assert 0 < len(failed) < 20
        written = sum("groups" in name for name, _ in running.written)
        assert written > 20 - len(failed)


async def test_lost_data_end_the_term_and_restored_ones_begin_another() -> None:
    async with running_etcd() as running:
        store = running.store()
        term = await leading(store)
        await store.save(term, "g", GROUP, 0)
        running.cluster.lose_data()
        assert running.cluster.has_lost_data
        with pytest.raises(LeadershipLost):
            await store.confirm(term)
        assert await store.load(await leading(store)) == {}
        running.cluster.restore_data()
        await asyncio.sleep(4)
        assert (await store.load(await leading(store)))["g"].group == GROUP


async def test_a_member_that_is_killed_while_it_starts_stays_dead() -> None:
    async with running_etcd() as etcd:
        one = ETCD_HOSTS[0]
        etcd.cluster.kill_member(one)
        starting = asyncio.create_task(etcd.cluster.start_member(one))
        await asyncio.sleep(0)
        etcd.cluster.kill_member(one)
        await starting
        assert etcd.cluster.dead == {one}
