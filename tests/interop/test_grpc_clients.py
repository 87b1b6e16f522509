"""Official clients of RocketMQ 5 by our proxy: each type of message, as each of them sends it."""

import asyncio
from pathlib import Path

import pytest
from tests.interop.grpc_group import (
    LISTENING,
    add_group,
    clients,
    consume,
    dead_letters,
    installed,
    proxied,
)

from harness.grpc_clients import CLIENTS, GrpcClient
from harness.java_client import until

pytestmark = pytest.mark.interop


@pytest.fixture(params=CLIENTS)
def name(request: pytest.FixtureRequest) -> str:
    """Each of the clients that can be installed here."""
    (found,) = installed([request.param])
    return found


async def test_a_client_sends_and_receives_messages_of_each_type(name: str, tmp_path: Path) -> None:
    async with proxied() as (running, address), clients([name], address, tmp_path) as (client,):
        groups = {
            topic: await add_group(
                running.namesrv_addr, f"g-{topic}", topic, consume_message_orderly=topic == "FIFOT"
            )
            for topic in ("NORM", "FIFOT", "DELAYT", "TXT")
        }
        await add_group(running.namesrv_addr, "g-simple", "NORM")
        sent_at = asyncio.get_running_loop().time()
        await send_each_type(client)
        got = {
            topic: await consume(client, group, topic, count)
            for (topic, group), count in zip(groups.items(), (2, 5, 1, 2), strict=True)
        }
        # The Rust client's times are whole seconds.
        assert asyncio.get_running_loop().time() - sent_at >= 2
        assert sorted(got["NORM"]()) == ["plain", "tagged"]
        assert got["FIFOT"]() == [f"step {number}" for number in range(5)]
        assert got["DELAYT"]() == ["delayed"]
        assert sorted(got["TXT"]()) == ["committed", "nothing"]
        assert client.checked == ["nothing"]
        assert await client.receive("g-simple", "NORM", tag="a") == ["tagged"]


async def send_each_type(client: GrpcClient) -> None:
    await client.send("NORM", "tagged", value="a")
    await client.send("NORM", "plain")
    for number in range(5):
        await client.send("FIFOT", f"step {number}", "FIFO", "one")
    if client.name in LISTENING:  # the Rust client recalls nothing
        handle = await client.send("DELAYT", "recalled", "DELAY", "3")
        await client.ask("recall", "DELAYT", handle)
    await client.send("DELAYT", "delayed", "DELAY", "3")
    for end, body in (("commit", "committed"), ("rollback", "undone"), ("nothing", "nothing")):
        await client.ask("transact", "TXT", end, body)


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
        assert sorted(each[1:] for each in client.handled) == [
            (1, "fails 1 time"), (1, "fails 9 times"), (2, "fails 1 time"), (2, "fails 9 times")
        ]  # fmt: skip
