"""Apache's directories, copied as bytes: the queues and the index built from them are the same."""

import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.replication.conftest import copy_log
from tests.unpacking import unpack

from roquet.store.config import StoreConfig
from roquet.store.consume_queue.entries import entry_columns
from roquet.store.replication.queue_builder import EntryGroup, entry_groups, plain_records
from roquet.store.store import Store
from roquet.wire.java_hash import hash_code
from roquet.wire.records.record import encode_properties, pack

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


BASE = 4096


def log_of(rows: list[dict[str, Any]]) -> bytes:
    """Records as they lie in a log from position BASE on."""
    data = b""
    for row in rows:
        flag = row.get("sys_flag", 0)
        data += pack(
            row.get("queue_id", 0), 0, row["offset"], BASE + len(data), flag, 5,
            bytes(20 if flag & 16 else 8), row.get("stored_ms", 7),
            bytes(20 if flag & 32 else 8), 0, 0, row.get("body", b"body"),
            row.get("topic", b"T"), encode_properties(row.get("properties", {"TAGS": "red"})),
        )  # fmt: skip
    return data


def scan(data: bytes, count_max: int = 99) -> tuple[int, int, list[EntryGroup], Any]:
    count, stop, rows, facts = plain_records(memoryview(data), 0, len(data), BASE, count_max)
    return count, stop, entry_groups(rows), facts


@pytest.mark.usefixtures("form")
class TestBothForms:
    def test_records_are_grouped_by_queue(self) -> None:
        rows: list[dict[str, Any]] = [
            {"offset": 5}, {"offset": 0, "queue_id": 1}, {"offset": 6, "properties": {}},
            {"offset": 9, "topic": b"U" * 130, "sys_flag": 16}, {"offset": 7, "sys_flag": 8 | 32},
        ]  # fmt: skip
        data = log_of(rows)
        count, stop, groups, facts = scan(data)
        assert (count, stop) == (5, BASE + len(data))
        assert [(g.topic, g.queue_id, g.first) for g in groups] == [
            (b"T", 0, 5), (b"T", 1, 0), (b"U" * 130, 0, 9)
        ]  # fmt: skip
        positions, sizes, codes = entry_columns(groups[0].entries)
        assert codes == [hash_code("red"), 0, hash_code("red")]
        assert positions == [facts[0][0], facts[0][2], facts[0][4]]
        assert sizes == [facts[1][0], facts[1][2], facts[1][4]]
        assert facts[2] == [b"T", b"T", b"T", b"U" * 130, b"T"]
        assert facts[3][2] == b""
        assert facts[4] == [7] * 5

    @pytest.mark.parametrize(
        "row",
        [
            {"sys_flag": 4}, {"sys_flag": 12}, {"sys_flag": 128}, {"offset": 3}, {"offset": 0},
            {"topic": b"SCHEDULE_TOPIC_XXXX"}, {"properties": {"TAGS": "été"}},
        ],
    )  # fmt: skip
    def test_the_run_ends_in_front_of_an_unusual_record(self, row: dict[str, Any]) -> None:
        data = log_of([{"offset": 0}, {"offset": 1} | row])
        assert scan(data)[:2] == (1, BASE + len(log_of([{"offset": 0}])))

    def test_the_run_ends_with_the_count(self) -> None:
        data = log_of([{"offset": n} for n in range(4)])
        assert scan(data, 3)[0] == 3
        assert scan(data, 0) == (0, BASE, [], ([], [], [], [], []))

    @given(st.data())
    def test_part_of_a_record_is_none(self, data: st.DataObject) -> None:
        whole = log_of([{"offset": 0}, {"offset": 1}])
        limit = data.draw(st.integers(0, len(whole) - 1))
        count = plain_records(memoryview(whole), 0, limit, BASE, 9)[0]
        assert count == (limit >= len(log_of([{"offset": 0}])))
