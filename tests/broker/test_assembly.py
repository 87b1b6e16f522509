import json
from pathlib import Path
from typing import Any

import msgspec
from tests.broker.conftest import FakePeer, MakeSend, config_of

from roquet.broker.app import BrokerServer
from roquet.broker.handlers.messages.send import SendHandler
from roquet.store.filesystem.memory_files import MemoryFiles


async def test_a_broker_without_a_directory_keeps_everything_in_memory(
    peer: FakePeer, message: MakeSend
) -> None:
    async with BrokerServer(config_of()) as server:
        assert server.address == f"127.0.0.1:{server.port}"
        reply: Any = server.broker.bind(SendHandler.send)(message(), peer)
        assert reply.code == 0
    async with BrokerServer(config_of()) as server:
        assert server.broker.tables.topics.get("orders") is None


async def test_tables_are_saved_in_apaches_directory(
    tmp_path: Path, peer: FakePeer, message: MakeSend
) -> None:
    async with BrokerServer(config_of(tmp_path)) as server:
        server.broker.bind(SendHandler.send)(message(), peer)
        topics = json.loads((tmp_path / "config" / "topics.json").read_text("utf-8"))
        assert topics["topicConfigTable"]["orders"]["writeQueueNums"] == 4, "before it is stored"
    assert (tmp_path / "config" / "subscriptionGroup.json").exists()


async def test_settings_that_change_are_kept_in_the_files_of_the_broker() -> None:
    files, path = MemoryFiles(), Path("/broker.conf")
    files.replace(path, b"brokerPermission=6\n")
    config = msgspec.structs.replace(config_of(), source=path)
    async with BrokerServer(config, files=files) as server:
        server.broker.control.settings.change({"brokerPermission": "4"}, 0)
    assert files.read(path) == b"brokerPermission=4\n"
