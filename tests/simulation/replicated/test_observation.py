"""Observation: acknowledgements, leases and cuts are noted, and nothing stays patched."""

import asyncio

import pytest
from tests.simulation.replicated.conftest import running_group

from roquet.broker.replication.confirmation.set_acknowledgements import SetAcknowledgements
from roquet.controller.leader_state import LeaderState
from roquet.model.errors import StoreError
from roquet.store.replication.replicated_log import ReplicatedLog
from roquet.testing.clock import this_loop
from simulation.replicated.clients import ReplicatedProducer
from simulation.replicated.confirmed_prefix import ConfirmedPrefix
from simulation.replicated.observation import GroupObserver
from simulation.replicated.servers import HOSTS

pytestmark = pytest.mark.virtual_time


async def test_acknowledgements_and_leases_are_noted_and_the_prefix_grows() -> None:
    async with running_group() as running:
        prefix = ConfirmedPrefix(running.history)
        observer = GroupObserver(running.scenario, running.servers, running.history, prefix)
        producer = ReplicatedProducer("p", None, running.history, this_loop().clock, lambda: 10)
        with observer.installed():
            assert await producer.send("p.0")
            await asyncio.sleep(2)
        (position,) = running.history.positions
        assert (position.host, position.epoch) == (HOSTS[0], 1)
        assert position.position == len(running.servers.log_of(HOSTS[0])) == len(prefix.content)
        assert {(lease.broker_id, lease.epoch) for lease in running.history.leases} == {(1, 1)}
        observer.look()
        assert running.history.broken == []


async def test_a_cut_of_what_was_confirmed_is_found() -> None:
    async with running_group() as running:
        prefix = ConfirmedPrefix(running.history)
        observer = GroupObserver(running.scenario, running.servers, running.history, prefix)
        producer = ReplicatedProducer("p", None, running.history, this_loop().clock, lambda: 10)
        assert await producer.send("p.0")
        observer.look()
        raw = running.servers.brokers[HOSTS[1]].broker.log.store.raw
        here = this_loop().network.host(HOSTS[1])
        with observer.installed(), here, pytest.raises(StoreError):
            raw.truncate(1)
        assert [finding[:13] for finding in running.history.broken] == ["cut: 10.0.1.2"]


def test_nothing_stays_patched() -> None:
    patched = (SetAcknowledgements.status, LeaderState.grant, ReplicatedLog.truncate)
    assert all(method.__qualname__.count("<locals>") == 0 for method in patched)
