"""Apache's mqadmin sees members that came by gRPC: it asks our brokers, and those our proxy."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.interop.test_mqadmin import MqAdmin

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.client import Producer
from roquet.proxy.config import ProxyConfig
from roquet.proxy.server import ProxyServer
from roquet.testing.cluster import cluster

pytestmark = pytest.mark.interop

MEMBER = """
import sys, time
from rocketmq import *

class Listener(MessageListener):
    def consume(self, received):
        return ConsumeResult.SUCCESS

configuration = ClientConfiguration(sys.argv[1], Credentials())
PushConsumer(configuration, "billing", Listener(), {"orders": FilterExpression("red")}).startup()
print("ready", flush=True)
time.sleep(120)
"""


@asynccontextmanager
async def member(python: str, address: str) -> AsyncIterator[None]:
    """An official push consumer, until the block ends."""
    child = await asyncio.create_subprocess_exec(
        python, "-c", MEMBER, address, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await asyncio.wait_for(child.stdout.readline(), 30) == b"ready\n"
    try:
        yield
    finally:
        child.kill()
        await child.wait()


async def test_mqadmin_lists_and_asks_a_member_that_came_by_grpc(
    grpc_python: str, java: None, tmp_path: Path
) -> None:
    mqadmin = MqAdmin(tmp_path)

    async def run(words: str) -> str:
        return await asyncio.to_thread(mqadmin, f"{words} -n {running.namesrv_addr}")

    try:
        async with cluster() as running, AdminClient(running.namesrv_addr) as admin:
            async with Producer(running.namesrv_addr) as producer:
                await producer.send("orders", b"for nobody", tag="blue")
            config = ProxyConfig(port=0, host="127.0.0.1")
            async with (
                ProxyServer(running.namesrv_addr, config) as proxy,
                member(grpc_python, proxy.address),
            ):
                await asyncio.sleep(1)  # until it pops
                info = await groups.show(admin, "billing")
                assert info.members is not None
                (one,) = info.members
                connection = await run("consumerConnection -g billing")
                assert re.search(rf"{one.client_id}.*PYTHON.*V5_1_2", connection), connection
                assert re.search(r"orders +red", connection), connection
                progress = await run("consumerProgress")
                assert re.search("billing +1 +V5_1_2", progress), progress
                status = await run(f"consumerStatus -g billing -i {one.client_id}")
                assert re.search(r"Topic: orders .* SubExpression: red", status), status
            assert "not online" in await run("consumerConnection -g billing")
    finally:
        mqadmin.close()
