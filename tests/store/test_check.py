from pathlib import Path
from typing import Any

import pytest
from tests.store.conftest import NOW, DataDir, draft, fill

from roquet.model.errors import StoreError
from roquet.store.check import StoreReport, check
from roquet.store.consume_queue.queue import ConsumeQueue
from roquet.store.consume_queue.queues import ConsumeQueues
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Store
from roquet.store.writer import AppendResult


def judged(store_dir: DataDir) -> StoreReport:
    before = store_dir.snapshot()
    report = check(store_dir.directory, store_dir.config, files=store_dir.files)
    assert store_dir.snapshot() == before
    return report


@pytest.fixture
def closed(store_dir: DataDir, store: Store) -> DataDir:
    fill(store, 120)
    fill(store, 5, topic="U", queue_id=1)
    store.close(NOW)
    return store_dir


def queue_file(store_dir: DataDir, name: str) -> memoryview:
    return store_dir.content(f"consumequeue/{name}")


def test_a_closed_store_is_whole(closed: DataDir) -> None:
    report = judged(closed)
    assert (report.verdict, report.records, report.queues) == ("whole", 125, 2)
    assert (report.begin, report.is_closed, report.damage) == (0, True, ())


def test_an_open_or_killed_store_is_recoverable(store_dir: DataDir) -> None:
    fill(store_dir.open(), 5)
    report = judged(store_dir)
    assert report.verdict == "recoverable"
    assert "abort exists" in report.pending[0]


def test_damage_is_reported_with_its_messages(closed: DataDir) -> None:
    position, size, _ = closed.entry("T", 0, 30)
    closed.bytes_at(position + 91, 5)[:] = b"wrong"
    report = judged(closed)
    assert report.verdict == "damaged"
    assert [str(d) for d in report.damage] == [
        f"positions {position} to {position + size - 1}: T queue 0 offsets 30 to 30"
    ]
    assert report.problems == ()


def test_a_torn_end_is_pending(store_dir: DataDir, store: Store) -> None:
    store.flush_all(NOW)
    place = fill(store, 5)[-1]
    store_dir.bytes_at(place.position + 95, place.size - 95)[:] = bytes(place.size - 95)
    report = judged(store_dir)
    assert report.end == place.position
    assert report.verdict == "recoverable"
    assert any("unfinished write" in line for line in report.pending)
    assert any("lead behind the log's end" in line for line in report.pending)


def test_records_after_a_torn_one_are_pending(store_dir: DataDir, store: Store) -> None:
    store.flush_all(NOW)
    appended = fill(store, 5)
    store_dir.bytes_at(appended[2].position, 50)[:] = bytes(50)
    report = judged(store_dir)
    assert report.end == appended[2].position
    assert any("behind a torn one" in line for line in report.pending)


def test_entries_that_are_missing_wrong_or_too_many(closed: DataDir) -> None:
    queue_file(closed, f"T/0/{0:020d}")[0:20] = queue_file(closed, f"T/0/{0:020d}")[20:40]
    queue_file(closed, f"U/1/{0:020d}")[60:100] = bytes(40)
    report = judged(closed)
    assert report.verdict == "damaged"
    assert set(report.problems) == {
        "T queue 0 has 1 entries that lead elsewhere", "U queue 1 lacks 2 entries",
    }  # fmt: skip
    closed.files.remove(closed.path("consumequeue/T"))
    assert "T queue 0 lacks 120 entries" in judged(closed).problems


def test_offsets_without_a_record(closed: DataDir) -> None:
    view = queue_file(closed, f"U/1/{0:020d}")
    view[100:120] = view[80:100]
    assert "U queue 1 has no records for 1 offsets, from 5" in judged(closed).problems


def test_an_index_that_leads_elsewhere(closed: DataDir) -> None:
    path = next(p for p in closed.files.contents if p.parent.name == "index")
    entries_at = 40 + closed.config.index_slots * 4
    memoryview(closed.files.contents[path])[entries_at + 20 : entries_at + 24] = b"\0\0\0\1"
    assert (
        "the index has 1 entries that lead to records without their key" in judged(closed).problems
    )


def test_a_directory_that_cannot_be_opened_is_a_problem(closed: DataDir) -> None:
    closed.files.remove(closed.path(f"commitlog/{8192:020d}"))
    report = judged(closed)
    assert "0000008192 is missing between" in report.problems[0]


def test_a_directory_of_another_kind_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a data directory"):
        check(tmp_path)
    with pytest.raises(StoreError, match="is not a data directory"):
        check(Path("/none"), files=MemoryFiles())


def test_a_record_whose_properties_are_torn_is_pending(store_dir: DataDir, store: Store) -> None:
    store.flush_all(NOW)
    place = fill(store, 2)[-1]
    store_dir.bytes_at(place.position + place.size - 5, 5)[:] = bytes(5)
    report = judged(store_dir)
    assert (report.verdict, report.end) == ("recoverable", place.position)
    assert store_dir.open_after_kill().end_position == place.position


def test_records_without_a_queue_entry_are_not_checked(store_dir: DataDir, store: Store) -> None:
    store.append(draft(sys_flag=4), NOW)
    store.close(NOW)
    assert (judged(store_dir).verdict, judged(store_dir).records) == ("whole", 1)


def test_all_faults_are_reported_and_nothing_is_changed(store_dir: DataDir, store: Store) -> None:
    fill(store, 120)
    fill(store, 120, topic="U")
    fill(store, 60, topic="V")
    store.close(NOW)
    contents = store_dir.files.contents
    contents[store_dir.path(f"consumequeue/T/0/{1000:020d}")] = bytes(77)
    store_dir.files.remove(store_dir.path(f"consumequeue/U/0/{1000:020d}"))
    queue_file(store_dir, f"V/0/{0:020d}")[0:20] = bytes(20)
    path = min(p for p in contents if p.parent.name == "index")
    contents[path] = bytes(88)
    store_dir.files.remove(store_dir.path(f"commitlog/{0:020d}"))
    before = store_dir.snapshot()
    problems = "\n".join(judged(store_dir).problems)
    assert store_dir.snapshot() == before
    for fault in (
        "the log lacks its files from position 0 to 8192",
        "T queue 0 is rebuilt when opened: /data/consumequeue/T/0/00000000000000001000 has 77",
        "U queue 0 is rebuilt when opened: /data/consumequeue/U/0/00000000000000001000 is miss",
        "V queue 0 has 1 entries that lead elsewhere",
        f"{path} has 88 bytes instead of",
    ):
        assert fault in problems, (fault, problems)


def test_an_unreadable_queue_is_reported_and_the_others_are_checked(
    store_dir: DataDir, store: Store
) -> None:
    fill(store, 120)
    fill(store, 3, topic="U")
    store.close(NOW)
    store_dir.files.contents[store_dir.path(f"consumequeue/U/0/{0:020d}")] = b""
    before = store_dir.snapshot()
    report = judged(store_dir)
    assert store_dir.snapshot() == before
    assert any("U queue 0 lacks 3 entries" in problem for problem in report.problems), report


def test_a_queue_that_the_disk_cannot_read_is_reported(
    store_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)
    fill(store, 3, topic="U")
    store.close(NOW)
    get = ConsumeQueues.get

    def failing(self: ConsumeQueues, topic: str, queue_id: int) -> ConsumeQueue | None:
        if topic == "U":
            raise StoreError("the disk does not answer")
        return get(self, topic, queue_id)

    monkeypatch.setattr(ConsumeQueues, "get", failing)
    problems = judged(store_dir).problems
    assert problems == ("U queue 0 is rebuilt when opened: the disk does not answer",)


def test_a_log_that_lost_its_end_is_reported(store_dir: DataDir, store: Store) -> None:
    fill(store, 120)
    store.close(NOW)
    store_dir.files.remove(max(p for p in store_dir.files.contents if p.parent.name == "commitlog"))
    assert any(
        "the log's files end at 24576, the log ended at" in problem
        for problem in judged(store_dir).problems
    )


def no_keys(store: Store, count: int, **more: Any) -> list[AppendResult]:
    """Messages without keys or tags, which the key index does not lead to."""
    return [store.append(draft(bytes(100), properties={}, **more), NOW) for _ in range(count)]


@pytest.mark.parametrize("start", [0, 8192])
def test_a_zeroed_file_of_the_log_is_damage_wherever_it_lies(
    store_dir: DataDir, store: Store, start: int
) -> None:
    appended = no_keys(store, 120)
    store.close(NOW)
    store_dir.bytes_at(start, 8192)[:] = bytes(8192)
    report = judged(store_dir)
    lost = [a.queue_offset for a in appended if start <= a.position < start + 8192]
    assert report.verdict == "damaged"
    assert [str(d) for d in report.damage] == [
        f"positions {start} to {start + 8191}: T queue 0 offsets {lost[0]} to {lost[-1]}"
    ]


def test_a_zeroed_file_is_damage_even_if_the_queues_are_gone(
    store_dir: DataDir, store: Store
) -> None:
    no_keys(store, 120)
    store.close(NOW)
    store_dir.bytes_at(0, 8192)[:] = bytes(8192)
    store_dir.files.remove(store_dir.path("consumequeue/T"))
    assert [(d.start, d.stop) for d in judged(store_dir).damage] == [(0, 8192)]


def test_zeros_from_a_record_to_the_end_of_its_file_are_damage_if_a_queue_leads_there(
    store_dir: DataDir, store: Store
) -> None:
    no_keys(store, 30)
    first = no_keys(store, 1, topic="U")[0]
    no_keys(store, 60)
    no_keys(store, 1, topic="U")
    store.close(NOW)
    size = 8192 - first.position
    assert 0 < size < 8192
    store_dir.bytes_at(first.position, size)[:] = bytes(size)
    assert any("U queue 0 offsets 0 to 0" in str(d) for d in judged(store_dir).damage)


def test_zeros_in_the_place_of_a_blank_are_no_damage(store_dir: DataDir, store: Store) -> None:
    appended = no_keys(store, 120)
    store.close(NOW)
    last = max((a for a in appended if a.position < 8192), key=lambda a: a.position)
    blank = last.position + last.size
    store_dir.bytes_at(blank, 8192 - blank)[:] = bytes(8192 - blank)
    assert judged(store_dir).verdict == "whole"


def test_a_log_that_begins_inside_its_first_file_is_whole(store_dir: DataDir) -> None:
    master, replica = type(store_dir)().open(), store_dir.open()
    begin = no_keys(master, 120)[20].position
    position = begin
    while data := master.raw.read(position, 1 << 20):
        replica.raw.append(position, data)
        position += len(data)
    replica.raw.dispatch()
    replica.close(NOW)
    report = judged(store_dir)
    assert (report.verdict, report.begin, report.records) == ("whole", begin, 100)


def test_a_zeroed_log_is_damage_up_to_its_durable_end(store_dir: DataDir, store: Store) -> None:
    end = no_keys(store, 60)[-1]
    store.close(NOW)
    for start in (0, 8192):
        store_dir.bytes_at(start, 8192)[:] = bytes(8192)
    report = judged(store_dir)
    assert [(d.start, d.stop) for d in report.damage] == [
        (0, 8192),
        (8192, end.position + end.size),
    ]
    assert report.verdict == "damaged"
