import pytest
from tests.controller.conftest import Broker, broker, controller, stored
from tests.raising import raises

from roquet.controller.app import ControllerServer
from roquet.controller.handlers import registration
from roquet.model.errors import CallRefused
from roquet.wire.calls import controller as calls

pytestmark = pytest.mark.virtual_time


async def next_id_of(one: object, name: str = "bc") -> int | None:
    channel = one.channel  # type: ignore[attr-defined]
    reply = await channel.call(calls.GetNextBrokerId(cluster_name="C", broker_name=name))
    found: int | None = reply.next_broker_id
    return found


async def test_ids_are_counted_from_one_and_given_for_good() -> None:
    async with controller(), broker(1) as one, broker(2) as two:
        assert [await next_id_of(one), await next_id_of(one)] == [1, 1]
        await one.apply()
        assert await next_id_of(two) == 2
        await one.apply()
        with raises(CallRefused, code=2014):
            await two.channel.call(
                calls.ApplyBrokerId(
                    cluster_name="C",
                    broker_name="bc",
                    applied_broker_id=1,
                    register_check_code="elsewhere:1;18",
                )
            )


async def test_a_broker_without_an_id_has_to_apply_first() -> None:
    async with controller(), broker(3) as three:
        with raises(CallRefused, code=2010):
            await three.register()


async def test_a_new_address_is_recorded(server: ControllerServer, one: Broker) -> None:
    await one.apply()
    call = calls.RegisterWithController(
        cluster_name="C", broker_name="bc", broker_id=1, broker_address="10.0.0.9:1"
    )
    await one.channel.call(call)
    assert stored(server).replicas[1].address == "10.0.0.9:1"


async def test_a_dead_master_is_not_named() -> None:
    async with controller(), broker(2) as two:
        async with broker(1) as one:
            for each in (one, two):
                await each.apply()
            await one.beat()
            await one.elect()
            assert (await two.register()).master_broker_id == 1
        assert (await two.register()).master_broker_id is None


async def test_there_is_a_limit_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "GROUPS_MAX", 1)
    async with controller(), broker(1) as one, broker(1, name="bd") as other:
        await one.apply()
        await one.apply()
        with pytest.raises(CallRefused, match="there are 1 groups"):
            await other.apply()


@pytest.mark.parametrize("name", ["", "x" * 300, "a\nb"])
async def test_hostile_names_are_refused(name: str) -> None:
    async with controller(), broker(1, name=name) as one:
        with pytest.raises(CallRefused, match="brokerName"):
            await one.apply()
        with pytest.raises(CallRefused, match="brokerName"):
            await next_id_of(one, name)
        with pytest.raises(CallRefused, match="brokerName"):
            await one.register()


async def test_a_broker_of_another_cluster_is_told_so_at_once() -> None:
    async with controller() as server, broker(1) as one, broker(2) as stray:
        await one.apply()
        stray.cluster = "x"
        call = calls.GetNextBrokerId(cluster_name="x", broker_name="bc")
        with raises(CallRefused, code=2005, match="the group bc is of cluster C, not x"):
            await stray.channel.call(call)
        for ask in (stray.apply, stray.register):
            with pytest.raises(CallRefused):
                await ask()
        assert sorted(stored(server).replicas) == [1]


async def test_a_copy_of_a_broker_is_recorded_once_the_original_is_gone() -> None:
    async with controller() as server, broker(1) as copied:
        async with broker(1) as one:
            await one.join()
            with raises(CallRefused, code=2014, match=f"alive at {one.address}, and"):
                await copied.register()
            await one.elect()
        await copied.register()
        group = stored(server)
        assert (group.replicas[1].address, group.master) == (copied.address, None)
        await copied.beat()
        await copied.elect()
        assert stored(server).master_epoch == 3
