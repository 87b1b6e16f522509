"""Data directories that earlier versions made go on in this one, with all that was in them."""

import asyncio
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unpacking import unpack

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.store_settings import store_config
from roquet.model.names import HALF_TOPIC
from roquet.store.backup.backup import back_up
from roquet.store.backup.restore import restore
from roquet.store.check import check
from roquet.store.store import Store
from roquet.wire.records.record import decode_many

VECTORS = Path(__file__).parents[1] / "vectors"
VERSIONS = sorted(path.name for path in VECTORS.glob("store-*"))


def count_of(store: Store, topic: str) -> int:
    return sum(end - begin for begin, end in (store.bounds(topic, n) for n in range(16)))


def bodies_of(store: Store, topic: str, queue_id: int) -> list[bytes]:
    begin, end = store.bounds(topic, queue_id)
    found: list[bytes] = []
    while begin < end:
        part = store.read(topic, queue_id, begin, count_max=100)
        found += [record.body for raw in part.parts for record in decode_many(raw)]
        begin = part.next_offset
    return found


def unpacked(version: str, directory: Path) -> Path:
    with tarfile.open(VECTORS / version / "data.tar.xz") as archive:
        unpack(archive, directory)
    return directory


def restored(version: str, directory: Path) -> Path:
    """The same directory, by way of a backup."""
    made = back_up(unpacked(version, directory / "data"), directory / "backups", 1)
    restore(made.path, directory / "restored")
    return directory / "restored"


@pytest.mark.virtual_time(False)
@pytest.mark.parametrize("obtain", [unpacked, restored])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_directory_of_an_earlier_version_has_everything(
    version: str, obtain: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    expected: dict[str, Any] = json.loads((VECTORS / version / "expected.json").read_text("utf-8"))
    directory = obtain(version, tmp_path)
    config = BrokerConfig(
        host="127.0.0.1", port=0, store_dir=directory, broker_name="broker-a", **expected["sizes"]
    )
    async with BrokerServer(config) as server:
        store, tables = server.broker.log.store, server.broker.tables
        async with asyncio.timeout(20):  # what waited for its time is due by now
            while count_of(store, "waiting") < expected["topics"]["waiting"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for topic, count in expected["topics"].items():
            assert count_of(store, topic) == count, topic
            assert tables.topics.get(topic) is not None
        assert count_of(store, HALF_TOPIC) >= expected["half"]
        assert len(store.query("plain", expected["key"]).records) == 1
        read = sum(tables.offsets.get(expected["group"], "plain", n) or 0 for n in range(4))
        assert read == 40
        ordered = [body for n in range(16) for body in bodies_of(store, "ordered", n)]
        assert ordered == [b"step %d" % n for n in range(5)]
    report = check(directory, store_config(config))
    assert (report.verdict, report.problems, report.damage) == ("whole", (), ())


def test_a_vector_of_the_present_format_is_kept() -> None:
    assert "store-0.1" in VERSIONS
