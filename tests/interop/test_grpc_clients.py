"""Official clients of RocketMQ 5 by our proxy: each type of message, as each of them sends it."""

from pathlib import Path

import pytest
from tests.interop.grpc_group import (
    LISTENING,
    add_group,
    add_topics,
    check_each_type,
    clients,
    dead_letters,
    installed,
    proxied,
)

from harness.grpc_clients import CLIENTS
from harness.java_client import until

pytestmark = pytest.mark.interop


@pytest.fixture(params=CLIENTS)
def name(request: pytest.FixtureRequest) -> str:
    """Each of the clients that can be installed here."""
    (found,) = installed([request.param])
    return found


async def test_a_client_sends_and_receives_messages_of_each_type(name: str, tmp_path: Path) -> None:
    async with proxied() as (running, address), clients([name], address, tmp_path) as (client,):
        await check_each_type(running.namesrv_addr, client)


@pytest.mark.parametrize("name", LISTENING, indirect=True)
async def test_a_push_consumer_tries_again_and_gives_up_after_the_last_try(
    name: str, tmp_path: Path
) -> None:
    async with proxied() as (running, address), clients([name], address, tmp_path) as (client,):
        namesrv = running.namesrv_addr
        await add_group(namesrv, "tries", "NORM", retry_max_times=1)
        await client.push("tries", "NORM")
        await client.send("NORM", "fails 1 time")
        await client.send("NORM", "fails 9 times")

        async def is_dead() -> bool:
            return await dead_letters(namesrv, "tries") == ["fails 9 times"]

        await until(is_dead)
        assert sorted(each[1:3] for each in client.handled) == [
            (1, "fails 1 time"), (1, "fails 9 times"), (2, "fails 1 time"), (2, "fails 9 times")
        ]  # fmt: skip


@pytest.mark.parametrize("name", LISTENING, indirect=True)
async def test_messages_of_a_higher_priority_come_first(name: str, tmp_path: Path) -> None:
    async with proxied() as (running, address), clients([name], address, tmp_path) as (client,):
        await add_topics(running.namesrv_addr, {"PRIOT": "PRIORITY"})
        await add_group(running.namesrv_addr, "urgent", "PRIOT")
        for priority in ("2", "1", "3"):  # Node takes 0 for none
            await client.send("PRIOT", f"priority {priority}", "PRIORITY", priority)
        got = await client.receive("urgent", "PRIOT")
        assert got == [f"priority {priority}" for priority in (3, 2, 1)]


@pytest.mark.parametrize("name", ["java", "go"], indirect=True)
async def test_clients_that_begin_with_tls_need_no_setting(name: str, tmp_path: Path) -> None:
    async with (
        proxied() as (_, address),
        clients([name], address, tmp_path, tls=True) as (client,),
    ):
        await client.send("NORM", "encrypted")
        assert await client.receive("secure", "NORM") == ["encrypted"]
