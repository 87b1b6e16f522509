"""Leadership and groups in etcd: a fake one for faults, and a real one where it is installed."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.controller.state_store.fake_etcd import FakeEtcd, etcd_store
from tests.controller.state_store.real_etcd import SHOWN, running_etcd
from tests.raising import raises
from tests.rules.election.conftest import group_of, led

from roquet.controller.state_store.etcd import EtcdStore
from roquet.controller.state_store.etcd_gateway import EtcdGateway
from roquet.controller.state_store.interface import (
    ControllerIdentity,
    LeadershipLost,
    StateStoreError,
)
from roquet.net.tls import Tls

A, B = ControllerIdentity("a", "h:1"), ControllerIdentity("b", "h:2")
GROUP = led(group_of(1, 2), 1, 1)


async def test_one_of_two_controllers_leads_and_both_know_it() -> None:
    etcd = FakeEtcd()
    one, two = etcd_store(etcd), etcd_store(etcd)
    first, second = await one.acquire(A), await two.acquire(B)
    assert (first.leader, second.leader) == (A, A)
    assert first.term is not None
    assert second.term is None
    assert (await one.acquire(A)).peers == (A, B)


async def test_going_on_to_lead_or_to_wait_writes_nothing() -> None:
    etcd = FakeEtcd()
    one, two = etcd_store(etcd), etcd_store(etcd)
    for _ in range(2):
        await one.acquire(A)
        await two.acquire(B)
    before = etcd.revision
    await one.acquire(A)
    await two.acquire(B)
    assert etcd.revision == before


async def test_a_leader_goes_on_while_etcd_has_no_space_and_a_new_group_is_refused() -> None:
    etcd = FakeEtcd()
    store = etcd_store(etcd)
    term = (await store.acquire(A)).term
    assert term is not None
    etcd.is_full = True
    assert (await store.acquire(A)).term == term
    await store.confirm(term)
    with raises(StateStoreError, match="space exceeded", definite=True):
        await store.save(term, "bc", GROUP, 0)
    assert (await store.acquire(A)).term == term


async def test_a_term_does_not_come_back_with_the_revisions_of_an_etcd_that_lost_its_data() -> None:
    etcd = FakeEtcd()
    old, new = etcd_store(etcd), etcd_store(etcd)
    term = (await old.acquire(A)).term
    assert term is not None
    etcd.keys.clear()
    etcd.revision = 1
    assert (await new.acquire(B)).term == term
    with pytest.raises(LeadershipLost):
        await old.confirm(term)
    with pytest.raises(LeadershipLost):
        await old.save(term, "bc", GROUP, 0)
    await new.confirm(term)


async def test_a_confirmation_that_gets_no_answer_has_changed_nothing() -> None:
    etcd = FakeEtcd()
    store = etcd_store(etcd)
    term = (await store.acquire(A)).term
    assert term is not None
    etcd.fails = [StateStoreError("no response within 2000 ms", definite=False)]
    with raises(StateStoreError, match="no response", definite=True):
        await store.confirm(term)
    await store.confirm(term)


async def test_when_the_leader_resigns_the_other_leads_with_its_groups() -> None:
    etcd = FakeEtcd()
    one, two = etcd_store(etcd), etcd_store(etcd)
    term = (await one.acquire(A)).term
    await two.acquire(B)
    assert term is not None
    await one.save(term, "b/c", GROUP, 0)
    await one.close()
    view = await two.acquire(B)
    assert (view.leader, view.peers) == (B, (B,))
    assert view.term is not None
    assert [one.group for one in (await two.load(view.term)).values()] == [GROUP]
    assert list(await two.load(view.term)) == ["b/c"]


async def test_a_leader_that_slept_writes_nothing_any_more() -> None:
    etcd = FakeEtcd()
    one, two = etcd_store(etcd), etcd_store(etcd)
    term = (await one.acquire(A)).term
    assert term is not None
    revision = await one.save(term, "bc", GROUP, 0)
    etcd.expire_all()
    assert (await two.acquire(B)).leader == B
    for work in (one.save(term, "bc", replace(GROUP, master_epoch=9), revision), one.confirm(term)):
        with pytest.raises(LeadershipLost):
            await work
    assert (await one.acquire(A)).leader == B


async def test_a_lost_lease_is_replaced_and_the_term_is_another() -> None:
    etcd = FakeEtcd()
    store = etcd_store(etcd)
    first = (await store.acquire(A)).term
    etcd.expire_all()
    assert (await store.acquire(A)).term not in (None, first)


async def test_in_a_new_term_a_write_that_is_still_on_its_way_is_refused() -> None:
    etcd = FakeEtcd()
    store = etcd_store(etcd)
    old = (await store.acquire(A)).term
    new = (await store.acquire(A, in_new_term=True)).term
    assert old is not None
    assert new not in (None, old)
    with pytest.raises(LeadershipLost):
        await store.save(old, "bc", GROUP, 0)


async def test_a_damaged_value_is_named() -> None:
    etcd = FakeEtcd()
    store = etcd_store(etcd)
    term = (await store.acquire(A)).term
    assert term is not None
    await store.save(term, "bc", GROUP, 0)
    etcd.keys["/roquet/g1/groups/bc"]["value"] = "e30="
    with pytest.raises(StateStoreError, match="/roquet/g1/groups/bc in etcd is damaged"):
        await store.load(term)


async def test_a_store_without_etcd_closes_quietly() -> None:
    etcd = FakeEtcd()
    store = etcd_store(etcd)
    await store.acquire(A)
    etcd.is_away = True
    await store.close()
    assert etcd.leases, "the lease ends by itself"


async def test_real_etcd_is_called_by_tls(tmp_path: Path) -> None:
    with running_etcd(tmp_path, tls=True) as etcd:
        store = EtcdStore(EtcdGateway([etcd.address], SHOWN), "g1", lease_seconds=2)
        assert (await store.acquire(A)).term is not None
        await store.close()
        for tls, reason in (
            (Tls(ca=SHOWN.ca), "certificate|hung up|connection"),
            (None, "HTTP|etcd at"),
            (Tls(), "is not trusted"),
        ):
            refused = EtcdStore(EtcdGateway([etcd.address], tls), "g1", lease_seconds=2)
            with pytest.raises(StateStoreError, match=reason):
                await refused.acquire(A)
            await refused.close()


async def test_real_etcd_does_all_of_this(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as etcd:
        one = EtcdStore(EtcdGateway(["127.0.0.1:1", etcd.address]), "g1", lease_seconds=2)
        two = EtcdStore(EtcdGateway([etcd.address]), "g1", lease_seconds=2)
        term = (await one.acquire(A)).term
        assert term is not None
        assert (await two.acquire(B)).leader == A
        revision = await one.save(term, "bc", GROUP, 0)
        with pytest.raises(LeadershipLost):
            await one.save(term, "bc", GROUP, 0)
        revision = await one.save(term, "bc", replace(GROUP, master_epoch=2), revision)
        await one.confirm(term)
        new = (await one.acquire(A, in_new_term=True)).term
        assert new not in (None, term)
        assert new is not None
        with pytest.raises(LeadershipLost):
            await one.save(term, "bc", GROUP, revision)
        assert (await one.load(new))["bc"].group.master_epoch == 2
        await one.close()
        view = await two.acquire(B)
        assert (view.leader, view.peers) == (B, (B,))
        etcd.stop()
        with pytest.raises(StateStoreError):
            await two.acquire(B)
        etcd.start()
        for _ in range(100):
            if (await two.acquire(B)).term is not None:
                break
            await asyncio.sleep(0.05)
        await two.close()
