from pathlib import Path

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.wire.calls.bodies import RequestMode


async def test_tables_are_saved_in_the_files_of_apaches_broker(tmp_path: Path) -> None:
    config = BrokerConfig(host="127.0.0.1", port=0, store_dir=tmp_path, log_file_size=1 << 20)
    async with BrokerServer(config) as server:
        tables = server.broker.tables
        tables.offsets.commit("billing", "orders", 0, 1)
        tables.request_modes.put(RequestMode(topic="orders", consumer_group="billing", mode="POP"))
        tables.delay_offsets.advance(1, 1)
    names = {path.name for path in (tmp_path / "config").iterdir()}
    assert {
        "topics.json",
        "subscriptionGroup.json",
        "consumerOffset.json",
        "messageRequestMode.json",
        "delayOffset.json",
    } <= names
