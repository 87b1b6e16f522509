"""Clients of the proxy: waiting for their settings, and pushing commands to them."""

import asyncio

import pytest

from roquet.proxy.caller import Caller
from roquet.proxy.clients import COMMANDS_MAX, ClientTable
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.testing.clock import this_loop

CALLER = Caller("c", "JAVA", "5.2.0", "10.0.0.7:4711", None)


async def test_settings_that_do_not_come_in_time_are_missed() -> None:
    clients = ClientTable(this_loop().clock)
    with pytest.raises(ProxyRefusal, match="Telemetry") as caught:
        await clients.wait_for("c", 3_000)
    assert caught.value.code is StatusCode.UNRECOGNIZED_CLIENT_TYPE


async def test_all_who_wait_for_settings_get_them() -> None:
    clients = ClientTable(this_loop().clock)
    waiting = [asyncio.create_task(clients.wait_for("c", 3_000)) for _ in range(3)]
    await asyncio.sleep(1)
    client = clients.update(CALLER, pb.Settings(), asyncio.Queue())
    assert await asyncio.gather(*waiting) == [client] * 3


async def test_commands_for_a_client_that_reads_none_do_not_pile_up() -> None:
    clients = ClientTable(this_loop().clock)
    client = clients.update(CALLER, pb.Settings(), asyncio.Queue())
    pushed = [client.push(service.TelemetryCommand()) for _ in range(COMMANDS_MAX + 1)]
    assert pushed == [True] * COMMANDS_MAX + [False]


async def test_a_newer_stream_is_not_ended_by_the_end_of_an_older_one() -> None:
    clients = ClientTable(this_loop().clock)
    older: asyncio.Queue[service.TelemetryCommand | None] = asyncio.Queue()
    newer: asyncio.Queue[service.TelemetryCommand | None] = asyncio.Queue()
    client = clients.update(CALLER, pb.Settings(), older)
    clients.update(CALLER, pb.Settings(), newer)
    clients.leave_stream(client, older)
    assert client.push(service.TelemetryCommand())
    assert newer.qsize() == 1
