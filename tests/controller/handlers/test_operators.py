from typing import Any

import pytest
from tests.controller.conftest import Broker, Trio, sleep_ms, stored
from tests.raising import raises

from roquet.controller.app import ControllerServer
from roquet.model.errors import CallRefused
from roquet.wire.calls.controller import (
    CleanBrokerData,
    GetControllerSettings,
    UpdateControllerSettings,
)
from roquet.wire.properties_file import read_unescaped

pytestmark = pytest.mark.virtual_time


async def clean(one: Broker, **fields: Any) -> None:
    await one.channel.call(CleanBrokerData(cluster_name="C", broker_name="bc", **fields))


async def test_a_dead_broker_is_removed_and_its_id_is_not_given_again(
    server: ControllerServer, trio: Trio
) -> None:
    one, _, three = trio
    await three.channel.close()
    await sleep_ms(50)
    await clean(one, broker_controller_ids_to_clean="3")
    group = stored(server)
    assert (sorted(group.replicas), group.in_sync, group.next_id) == ([1, 2], frozenset({1, 2}), 4)


async def test_living_brokers_are_removed_only_if_it_is_said(
    server: ControllerServer, trio: Trio
) -> None:
    one, _, _ = trio
    with raises(CallRefused, code=2009):
        await clean(one, broker_controller_ids_to_clean="2;3")
    await clean(one, broker_controller_ids_to_clean="2;3", is_clean_living_broker=True)
    assert sorted(stored(server).replicas) == [1]


async def test_a_removed_group_is_unknown_and_its_epochs_go_on(
    server: ControllerServer, trio: Trio
) -> None:
    one, _, _ = trio
    await clean(one, is_clean_living_broker=True)
    with raises(CallRefused, code=2008):
        await one.replica_info()
    with pytest.raises(CallRefused):
        await clean(one, is_clean_living_broker=True)
    await one.apply()
    await one.beat(epoch=1)
    await one.elect()
    assert stored(server).master_epoch == 2


async def test_an_unknown_group_and_odd_ids_are_refused(
    server: ControllerServer, one: Broker
) -> None:
    with raises(CallRefused, code=2009):
        await clean(one)
    with raises(CallRefused, code=2005):
        await clean(one, broker_controller_ids_to_clean="1,2")


async def test_a_cluster_of_any_length_is_not_kept(server: ControllerServer, one: Broker) -> None:
    await one.beat(epoch=3)
    call = CleanBrokerData(cluster_name="C" * 10_000, broker_name="bc")
    with pytest.raises(CallRefused, match="clusterName"):
        await one.channel.call(call)


async def test_settings_are_shown_and_changed(server: ControllerServer, one: Broker) -> None:
    await one.channel.call(UpdateControllerSettings(body=b"enableElectUncleanMaster=true\n"))
    assert server.controller.elections.elects_unclean
    reply = await one.channel.call(GetControllerSettings())
    shown = read_unescaped(reply.body.decode())
    assert shown["enableElectUncleanMaster"] == "true"
    assert shown["listenPort"] == "9878"
    assert shown["configBlackList"] == "configBlackList;configStorePath;rocketmqHome"


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"rocketmqHome=/etc", 16, "black list"),
        (b"listenPort=1", 1, "read at the start"),
        (b"enableElectUncleanMaster=perhaps", 1, "neither true nor false"),
        (b"\xff", 1, "string2Properties error"),
    ],
)
async def test_a_change_that_cannot_be_made_is_refused(
    server: ControllerServer, one: Broker, body: bytes, code: int, text: str
) -> None:
    before = server.controller.config
    with raises(CallRefused, code=code, match=text):
        await one.channel.call(UpdateControllerSettings(body=body))
    assert server.controller.config == before
