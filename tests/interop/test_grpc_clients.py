"""Official clients of RocketMQ 5 by our proxy: each type of message, as each of them sends it."""

import asyncio
import json
from pathlib import Path

import pytest

from harness import genuine
from roquet.admin import topics
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicSettings
from roquet.proxy.config import ProxyConfig
from roquet.proxy.server import ProxyServer
from roquet.testing.cluster import cluster

pytestmark = pytest.mark.interop

CLIENT = Path(__file__).with_name("grpc_client.py")
TYPES = {"NORM": None, "FIFOT": "FIFO", "DELAYT": "DELAY", "TXT": "TRANSACTION"}


async def test_the_python_client_sends_and_receives_messages_of_each_type(
    grpc_python: str, tmp_path: Path
) -> None:
    async with cluster(
        recall_message=True, transaction_timeout=1_000, transaction_check_interval=2_000
    ) as running:
        async with AdminClient(running.namesrv_addr) as admin:
            for topic, kind in TYPES.items():
                attributes = None if kind is None else f"+message.type={kind}"
                await topics.create(admin, topic, TopicSettings(attributes=attributes))
        config = ProxyConfig(port=0, host="127.0.0.1")
        async with ProxyServer(running.namesrv_addr, config) as proxy:
            command = [grpc_python, str(CLIENT), proxy.address, "15"]
            output = await asyncio.to_thread(genuine.run, command, seconds=90, home=tmp_path)
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    pushed = [event for event in events if event["event"] == "push"]

    def bodies(topic: str) -> list[str]:
        return [event["body"] for event in pushed if event["topic"] == topic]

    assert sorted(bodies("NORM")) == ["fails once", "fails once", "tagged a"]
    assert bodies("FIFOT") == [f"step {number}" for number in range(5)]
    assert bodies("DELAYT") == ["delayed"]
    assert sorted(bodies("TXT")) == ["tx commit", "tx nothing"]
    assert [event["body"] for event in events if event["event"] == "check"] == ["tx nothing"]
    assert [event["body"] for event in events if event["event"] == "simple"] == ["tagged a"]
    sent = next(event["at"] for event in events if event["event"] == "sent")
    delayed = next(event["at"] for event in pushed if event["topic"] == "DELAYT")
    assert 1.5 <= delayed - sent <= 6
