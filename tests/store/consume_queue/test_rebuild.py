from pathlib import Path
from typing import Any

import pytest
from tests.store.conftest import NOW

from roquet.store.config import DELAY_LEVELS_MS
from roquet.store.consume_queue import rebuild
from roquet.store.consume_queue.entries import ConsumeQueueEntry
from roquet.store.consume_queue.queue_ends import QueueEnd
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.consume_queue.rebuild import QueueRebuilder, has_entry
from roquet.store.filesystem.mapped_file import MapPool
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.layout import FILLER_SIZE
from roquet.wire.records.partial_decode import PartialRecord


@pytest.fixture
def queues() -> ConsumeQueues:
    return ConsumeQueues(MapPool(MemoryFiles(), 9), Path("/cq"), 50, 400)


def rebuilder(queues: ConsumeQueues, **more: Any) -> QueueRebuilder:
    return QueueRebuilder(queues, DELAY_LEVELS_MS, **more)


def facts(
    offset: int, topic: bytes = b"T", sys_flag: int = 0, properties: bytes = b"TAGS\x01red\x02"
) -> PartialRecord:
    return 100, 0, offset, sys_flag, NOW, topic, properties


def entries(queues: ConsumeQueues, topic: str = "T") -> list[ConsumeQueueEntry]:
    queue = queues.get(topic, 0)
    return list(queue.entries(0, 99)) if queue else []


def test_records_get_entries_with_the_hash_of_their_tag(queues: ConsumeQueues) -> None:
    scan = rebuilder(queues)
    scan.put(0, facts(0))
    scan.put(100, facts(1, properties=b""))
    assert entries(queues) == [(0, 100, 112785), (100, 100, 0)]
    assert scan.last == 100


def test_wrong_entries_are_corrected_and_right_ones_kept(queues: ConsumeQueues) -> None:
    for start in (0, 500):
        scan = rebuilder(queues)
        for n in range(3):
            scan.put(start + n * 100, facts(n))
    assert [e[0] for e in entries(queues)] == [500, 600, 700]


@pytest.mark.parametrize(
    ("level", "due"),
    [(b"1", 1000), (b"18", 7_200_000), (b"99", 7_200_000), (b"9" * 5_000, -NOW), (b"x", -NOW)],
    ids=["first", "last", "beyond", "endless", "none"],
)
def test_a_delayed_message_says_when_it_is_due(
    queues: ConsumeQueues, level: bytes, due: int
) -> None:
    scan = rebuilder(queues)
    scan.put(0, facts(0, b"SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01%s\x02" % level))
    assert entries(queues, "SCHEDULE_TOPIC_XXXX") == [(0, 100, NOW + due)]


def test_stored_delivery_times_are_not_recomputed(queues: ConsumeQueues) -> None:
    queue = queues.obtain("SCHEDULE_TOPIC_XXXX", 0)
    queue.reserve()
    queue.put(0, 100, 12345)
    rebuilder(queues).put(0, facts(0, b"SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x013\x02"))
    assert entries(queues, "SCHEDULE_TOPIC_XXXX") == [(0, 100, 12345)]


def test_a_queue_that_lacks_what_came_before_is_noticed(queues: ConsumeQueues) -> None:
    scan = rebuilder(queues)
    scan.put(0, facts(5))
    scan.put(100, facts(6))
    assert scan.lacking == {("T", 0)}
    assert queues.obtain("T", 0).end == 0
    scan = rebuilder(queues, is_whole_log=True)
    scan.put(0, facts(5))
    assert not scan.lacking
    queue = queues.obtain("T", 0)
    assert (queue.end, queue.min_offset(0)) == (6, 5)


def test_only_the_requested_queues_are_rebuilt(queues: ConsumeQueues) -> None:
    scan = rebuilder(queues, is_whole_log=True, only={("T", 0)})
    scan.put(0, facts(0, b"U"))
    scan.put(100, facts(3))
    assert queues.topics() == ["T"]


def test_a_queue_made_again_ends_where_it_did_though_its_last_messages_are_lost(
    queues: ConsumeQueues,
) -> None:
    scan = rebuilder(queues, is_whole_log=True)
    scan.put(100, facts(3))
    scan.restore_ends(
        {
            ("T", 0): QueueEnd(0, 6, 400),
            ("gone", 0): QueueEnd(50, 50, -1),
            ("T", 1): QueueEnd(0, 7, 900),
        }
    )
    queue, gone, expired = queues.get("T", 0), queues.get("gone", 0), queues.get("T", 1)
    assert queue is not None
    assert gone is not None
    assert expired is not None
    assert (queue.end, queue.entry(3)[0]) == (6, 100)
    assert [queue.entry(n) for n in (4, 5)] == [(400, FILLER_SIZE, 0)] * 2
    assert (gone.end, expired.end) == (50, 7)
    for loaded in (gone, expired):
        loaded.find_end()
    assert (gone.end, expired.end) == (50, 7)
    scan.restore_ends({("T", 0): QueueEnd(0, 2, 400)})
    assert queue.end == 6


def test_offsets_without_records_are_filled(queues: ConsumeQueues) -> None:
    scan = rebuilder(queues)
    scan.put(0, facts(0))
    scan.put(300, facts(3))
    assert entries(queues)[1:3] == [(300, FILLER_SIZE, 0)] * 2
    assert queues.obtain("T", 0).offset_of(300) == 1


def test_a_number_out_of_reach_is_not_believed(queues: ConsumeQueues) -> None:
    scan = rebuilder(queues)
    scan.put(0, facts(0))
    scan.put(100, facts(2**40))
    assert len(entries(queues)) == 1


def test_the_first_record_of_an_offset_has_it(queues: ConsumeQueues) -> None:
    scan = rebuilder(queues)
    for position in (0, 100):
        scan.put(position, facts(0))
    assert entries(queues) == [(0, 100, 112785)]


def test_names_that_are_no_directory_get_no_entry(
    queues: ConsumeQueues, caplog: pytest.LogCaptureFixture
) -> None:
    scan = rebuilder(queues)
    scan.put(0, facts(0, b"../T"))
    scan.put(100, facts(0, b"\xff"))
    assert queues.topics() == []
    assert "gets no queue entry" in caplog.text


@pytest.mark.parametrize(
    ("sys_flag", "stands"), [(0, True), (8, True), (4, False), (12, False), (128, False)]
)
def test_prepared_rolled_back_and_inner_batches_stand_in_no_queue(
    queues: ConsumeQueues, sys_flag: int, stands: bool
) -> None:
    assert has_entry(sys_flag) is stands
    rebuilder(queues).put(0, facts(0, sys_flag=sys_flag))
    assert bool(entries(queues)) is stands


def test_hashes_of_many_tags_are_right(
    queues: ConsumeQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "CODES_MAX", 2)
    scan = rebuilder(queues)
    for n, tag in enumerate("abcaab"):
        scan.put(n * 100, facts(n, properties=f"TAGS\x01{tag}\x02".encode()))
    assert [chr(code) for _, _, code in entries(queues)] == list("abcaab")


def test_records_of_a_deleted_topic_get_no_entries_up_to_where_it_was_deleted(
    queues: ConsumeQueues,
) -> None:
    scan = rebuilder(queues, deleted={b"T": 300})
    for offset, position in ((7, 0), (8, 100)):
        scan.put(position, facts(offset))
    scan.put(200, facts(0, b"U"))
    scan.put(300, facts(0))
    assert scan.last == 300
    queue = queues.get("T", 0)
    assert queue is not None
    assert (queue.end, queue.entry(0)[0]) == (1, 300)
