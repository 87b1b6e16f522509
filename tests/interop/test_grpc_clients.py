"""Official clients of RocketMQ 5 by our proxy: each type of message, as each of them sends it."""

from pathlib import Path

import pytest
from tests.interop.grpc_group import (
    LISTENING,
    add_group,
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
