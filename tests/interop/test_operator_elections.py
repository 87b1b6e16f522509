"""An operator moves the lead among brokers of ours and of Apache's, under either controller."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.interop.elected_group import SMALL, apaches_controller, in_sync, master_of, wait_until
from tests.interop.test_failover import (
    apaches_broker,
    bodies_in,
    group_size,
    kept,
    numbered,
    send_until_acknowledged,
)

from roquet.admin import controllers, elect, retire
from roquet.admin.client import AdminClient
from roquet.admin.elect import ElectedMaster
from roquet.client.blocking import Producer
from roquet.controller.app import ControllerServer
from roquet.controller.config import ControllerConfig
from roquet.model.errors import RoquetError
from roquet.testing.cluster import BlockingCluster

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java")]

T = TypeVar("T")


def operate(namesrv: str, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Do an operator's work."""

    async def connected() -> T:
        async with AdminClient(namesrv) as admin:
            return await work(admin)

    return asyncio.run(connected())


async def elected(admin: AdminClient, to: str | None, *, unclean: bool = False) -> ElectedMaster:
    group = await controllers.group(admin, "bc")
    chosen = elect.candidate(group, to, unclean=unclean)
    return await elect.elect(admin, group, chosen, unclean=unclean)


def test_apaches_controller_has_another_of_our_brokers_lead(tmp_path: Path) -> None:
    with (
        apaches_controller(tmp_path / "controller") as address,
        BlockingCluster(0, 1, tmp_path, **SMALL) as running,
    ):
        for number in range(3):
            running.add_broker(
                broker_name="bc", store_dir=tmp_path / f"b{number}", controllers=(address,)
            )
        wait_until(lambda: in_sync(master_of(running.brokers)) == 3, "the set is not complete")
        with Producer(running.namesrv_addr, group="elected") as producer:
            first = numbered("a")
            send_until_acknowledged(producer, first)
            old = master_of(running.brokers)
            result = operate(running.namesrv_addr, lambda admin: elected(admin, None))
            new = master_of(running.brokers)
            assert new is not None
            assert new is not old
            assert result.is_new
            assert result.address == new.address
            second = numbered("b")
            send_until_acknowledged(producer, second)
            assert bodies_in(new) >= kept(first) | kept(second)
        wait_until(lambda: in_sync(master_of(running.brokers)) == 3, "the set is not complete")
        running.stop_broker(list(running.brokers).index(new))
        number = result.broker_id
        with pytest.raises(RoquetError, match="is not heard of by the controller"):
            operate(running.namesrv_addr, lambda admin: elected(admin, str(number), unclean=True))


def test_apaches_broker_is_retired_and_leads_again_under_our_controller(tmp_path: Path) -> None:
    with BlockingCluster(0, 1, tmp_path, **SMALL) as running:
        config = ControllerConfig(host="127.0.0.1", port=0, advertise="127.0.0.1")
        controller = ControllerServer(config)
        running.run(controller.__aenter__())
        with apaches_broker(tmp_path / "theirs", running.namesrv_addr, controller.address):
            for number in range(2):
                running.add_broker(
                    broker_name="bc",
                    store_dir=tmp_path / f"b{number}",
                    controllers=(controller.address,),
                )
            wait_until(lambda: group_size(controller) == 3, "the set is not complete")
            with Producer(running.namesrv_addr, group="elected") as producer:
                first, second = numbered("a"), numbered("b")
                send_until_acknowledged(producer, first)
                retired = operate(
                    running.namesrv_addr,
                    lambda admin: retire.retire(admin, "bc", wait_ms=90_000),
                )
                assert (retired.broker_id, retired.was_master) == (1, True)
                new = master_of(running.brokers)
                assert new is not None
                assert retired.master == new.address
                send_until_acknowledged(producer, second)
                assert bodies_in(new) >= kept(first) | kept(second)
                wait_until(lambda: group_size(controller) == 3, "the set is not complete")
                result = operate(running.namesrv_addr, lambda admin: elected(admin, "1"))
                assert (result.broker_id, result.address) == (1, retired.address)
        running.run(controller.__aexit__(None, None, None))
