"""Clients of the proxy: waiting for their settings, and pushing commands to them."""

import asyncio

import msgspec
import pytest

from roquet.proxy import clients
from roquet.proxy.caller import Caller
from roquet.proxy.clients import COMMANDS_MAX, SETTINGS_SIZE_MAX, ClientTable
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


async def test_a_request_that_gave_up_waiting_takes_no_settings_from_others() -> None:
    clients, clock = ClientTable(this_loop().clock), this_loop().clock
    first = asyncio.create_task(clients.wait_for("c", 3_000))
    await asyncio.sleep(2)
    second = asyncio.create_task(clients.wait_for("c", 3_000))
    with pytest.raises(ProxyRefusal):
        await first
    client = clients.update(CALLER, pb.Settings(), asyncio.Queue())
    came_ms = clock.now_ms()
    assert await second is client
    assert clock.now_ms() - came_ms < 100


async def test_nothing_is_left_of_requests_that_were_cancelled() -> None:
    clients = ClientTable(this_loop().clock)
    waiting = [asyncio.create_task(clients.wait_for(f"c{n}", 3_000)) for n in range(3)]
    await asyncio.sleep(1)
    assert clients.awaited == 3
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert clients.awaited == 0


async def test_producers_that_read_are_asked_before_those_that_do_not() -> None:
    clients = ClientTable(this_loop().clock)
    settings = pb.Settings(publishing=pb.Publishing(topics=[pb.Resource(name="t")]))
    deaf = clients.update(CALLER, settings, asyncio.Queue())
    other = clients.update(Caller("d", "JAVA", "5.2.0", "", None), settings, asyncio.Queue())
    assert clients.producers_of("t") == [deaf, other]
    deaf.push(service.TelemetryCommand())
    assert clients.producers_of("t") == [other, deaf]


async def test_settings_over_a_limit_and_one_client_too_many_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = ClientTable(this_loop().clock)
    long = pb.Settings(client_properties={"k": "v" * SETTINGS_SIZE_MAX})
    with pytest.raises(ProxyRefusal, match="over the limit"):
        table.update(CALLER, long, asyncio.Queue())
    monkeypatch.setattr(clients, "CLIENTS_MAX", 1)
    table.update(CALLER, pb.Settings(), asyncio.Queue())
    table.update(CALLER, pb.Settings(), asyncio.Queue())  # the same one
    other = msgspec.structs.replace(CALLER, client_id="other")
    with pytest.raises(ProxyRefusal, match="start one more"):
        table.update(other, pb.Settings(), asyncio.Queue())


async def test_the_settings_of_all_clients_together_have_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "SETTINGS_TOTAL_MAX", 100)
    table = ClientTable(this_loop().clock)
    settings = pb.Settings(client_properties={"k": "v" * 60})
    other = msgspec.structs.replace(CALLER, client_id="other")
    for _ in range(3):  # the same client's take the place of its earlier ones
        table.update(CALLER, settings, None)
    with pytest.raises(ProxyRefusal, match="start one more") as caught:
        table.update(other, settings, None)
    assert caught.value.code is StatusCode.TOO_MANY_REQUESTS
    table.remove(CALLER.client_id)
    table.update(other, settings, None)


async def test_settings_that_come_as_the_wait_for_them_ends_are_found() -> None:
    clients = ClientTable(this_loop().clock)
    waiting = asyncio.create_task(clients.wait_for("c", 3_000))
    await asyncio.sleep(0)
    made = []
    asyncio.get_running_loop().call_later(
        3, lambda: made.append(clients.update(CALLER, pb.Settings(), asyncio.Queue()))
    )
    assert await waiting is made[0]
