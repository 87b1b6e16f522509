"""Apache's directories, copied as bytes: the queues and the index built from them are the same."""

import tarfile
from pathlib import Path

import pytest
from tests.store.replication.conftest import copy_log
from tests.unpacking import unpack

from roquet.store.config import StoreConfig
from roquet.store.store import Store

VECTORS = Path(__file__).parents[2] / "vectors" / "store"
SIZES = StoreConfig(
    log_file_size=1 << 20, queue_file_entries=300, index_slots=500, index_entries=2000
)
NOW = 1_795_250_000_000
WITHOUT = ("timerlog", "timerwheel", "rocksdbstore")


@pytest.mark.parametrize("kind", ["4.9.7-clean", "5.5.0-clean", "5.5.0-killed"])
def test_queues_of_apaches_log_are_built_as_apache_built_them(kind: str, tmp_path: Path) -> None:
    with tarfile.open(VECTORS / f"{kind}.tar.xz") as archive:
        wanted = [m for m in archive.getmembers() if not any(n in m.name for n in WITHOUT)]
        unpack(archive, tmp_path / "master", wanted)
    master = Store.open(tmp_path / "master", SIZES, now_ms=NOW, pid=1)
    replica = Store.open(tmp_path / "replica", SIZES, now_ms=NOW, pid=1)
    copy_log(master, replica, [32768, 1000, 77])
    assert replica.raw.dispatched == replica.raw.end == master.raw.end
    queues = [(topic, number) for topic in master.topics() for number in master.queue_ids(topic)]
    filled = [queue for queue in queues if master.bounds(*queue)[1]]
    assert filled
    for topic, queue_id in filled:
        least, end = master.bounds(topic, queue_id)
        assert replica.bounds(topic, queue_id) == (least, end)
        entries = master.queue_stats.entries(topic, queue_id, least, end)
        assert replica.queue_stats.entries(topic, queue_id, least, end) == entries
    assert replica.damage == []
    master.close(NOW)
    replica.close(NOW)
