import asyncio
import logging
import threading
from pathlib import Path

import pytest
from tests.broker.conftest import not_none

from roquet.broker.tables.offsets import ConsumerOffsets
from roquet.broker.tables.request_modes import RequestModes
from roquet.broker.tables.saved_table import TableChange, TableFile
from roquet.model.errors import StoreError, StoreFull
from roquet.model.topic import OffsetTable
from roquet.store.filesystem.files import RealFiles
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.wire.calls.bodies import RequestMode


@pytest.fixture
def file(tmp_path: Path) -> TableFile:
    return TableFile(RealFiles(), tmp_path / "config" / "consumerOffset.json")


def save(file: TableFile, *offsets: int) -> None:
    table = ConsumerOffsets(file)
    for offset in offsets:
        table.commit("group", "topic", 0, offset)
        table.save()


def saved(file: TableFile) -> int | None:
    return ConsumerOffsets(file).get("group", "topic", 0)


def test_a_table_is_written_in_javas_words_and_read_back(file: TableFile) -> None:
    table = ConsumerOffsets(file)
    table.commit("group", "topic", 1, 42)
    table.save()
    assert "1:42" in file.path.read_text("utf-8"), "number keys stand bare"
    assert ConsumerOffsets(file).get("group", "topic", 1) == 42


def test_a_table_without_news_is_not_written(file: TableFile) -> None:
    ConsumerOffsets(file).save()
    assert not file.path.exists()


def test_the_former_table_is_kept_as_a_backup(file: TableFile) -> None:
    save(file, 1, 2)
    file.path.write_bytes(b"")
    assert saved(file) == 1


def test_a_damaged_table_is_read_from_its_backup_with_a_warning(
    file: TableFile, caplog: pytest.LogCaptureFixture
) -> None:
    save(file, 1, 2)
    file.path.write_text('{"offsetTable":{"topic@gro', "utf-8")
    with caplog.at_level(logging.WARNING):
        assert saved(file) == 1
    assert "consumerOffset.json cannot be read" in caplog.text


def test_a_backup_alone_is_enough(file: TableFile) -> None:
    save(file, 7)
    file.path.rename(file.path.with_name("consumerOffset.json.bak"))
    assert saved(file) == 7


def test_a_table_that_cannot_be_read_at_all_stops_the_start(file: TableFile) -> None:
    file.path.parent.mkdir()
    file.path.write_text("nonsense", "utf-8")
    with pytest.raises(StoreError, match=r"consumerOffset\.json cannot be read: .*mend it, or"):
        ConsumerOffsets(file)


def test_the_work_of_saving_writes_what_the_table_held_then(file: TableFile) -> None:
    table = ConsumerOffsets(file)
    table.commit("group", "topic", 0, 1)
    work = table.saving()
    table.commit("group", "topic", 0, 2)
    assert work is not None
    work()
    assert saved(file) == 1
    assert table.unsaved, "the later news has still to be saved"


def test_a_first_edition_has_a_copy(file: TableFile) -> None:
    table = ConsumerOffsets(file)
    assert table.is_new
    table.commit("group", "topic", 0, 7)
    table.save()
    file.path.unlink()
    again = ConsumerOffsets(file)
    assert (again.get("group", "topic", 0), again.is_new) == (7, False)


@pytest.mark.parametrize("content", ['{"topicConfigTable":{}}', "{}", "[]", "", "\0" * 50])
def test_a_malformed_table_is_damage_never_an_empty_table(file: TableFile, content: str) -> None:
    save(file, 7)
    file.path.write_text(content, "utf-8")
    assert saved(file) == 7
    file.path.with_name("consumerOffset.json.bak").unlink()
    with pytest.raises(StoreError, match=r"consumerOffset\.json cannot be read: .*mend it, or"):
        ConsumerOffsets(file)


def test_a_file_that_may_not_be_read_is_named_and_no_older_copy_is_used(file: TableFile) -> None:
    save(file, 7)
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(StoreError, match="cannot be used: Is a directory; move away what is there"):
        ConsumerOffsets(file)


class FullDisk(MemoryFiles):
    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        raise StoreFull("no room")


def test_a_table_that_could_not_be_written_is_tried_again() -> None:
    table = ConsumerOffsets(TableFile(FullDisk(), Path("/config/consumerOffset.json")))
    table.commit("group", "topic", 0, 1)
    with pytest.raises(StoreFull):
        table.save()
    assert table.unsaved


def test_a_file_reads_what_it_wrote() -> None:
    file = TableFile(MemoryFiles(), Path("/config/consumerOffset.json"))
    assert file.read(OffsetTable) is None
    file.writing(OffsetTable(offset_table={"t@g": {3: 9}}))()
    assert file.read(OffsetTable) == OffsetTable(offset_table={"t@g": {3: 9}})


def test_a_late_save_does_not_bring_back_what_was_there_before(file: TableFile) -> None:
    table = ConsumerOffsets(file)
    table.commit("group", "topic", 0, 1)
    late = not_none(table.saving())
    table.remove_group("group")
    table.save()
    late()
    assert saved(file) is None


class BlockedFiles(MemoryFiles):
    """Writes wait until they may go on, and fail while the disk is full."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = threading.Event()
        self.is_full = False
        self.threads: set[int] = set()

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        self.threads.add(threading.get_ident())
        self.may_write.wait()
        if self.is_full:
            raise StoreFull("no room")
        super().replace(path, data, keep=keep)


POPS = RequestMode(topic="t", consumer_group="g", mode="POP")


def modes_of(files: MemoryFiles) -> RequestModes:
    return RequestModes(TableFile(files, Path("/config/messageRequestMode.json")))


async def test_a_change_is_written_in_a_thread_and_done_when_the_disk_has_it() -> None:
    files, events = BlockedFiles(), list[str]()
    modes = modes_of(files)

    def begin() -> TableChange:
        change = modes.begin_put(POPS)
        return TableChange(change.undo, lambda: events.append("done"))

    task = asyncio.create_task(modes.change(begin))
    for _ in range(10):
        await asyncio.sleep(0)
    assert (events, task.done()) == ([], False)
    files.may_write.set()
    await task
    assert events == ["done"]
    assert threading.get_ident() not in files.threads
    assert modes_of(files).get("t", "g") == POPS


async def test_a_change_that_the_disk_refuses_is_taken_back_and_the_next_one_counts() -> None:
    files = BlockedFiles()
    files.may_write.set()
    files.is_full = True
    modes = modes_of(files)
    with pytest.raises(StoreFull):
        await modes.change(lambda: modes.begin_put(POPS))
    assert modes.get("t", "g") is None
    files.is_full = False
    await modes.change(lambda: modes.begin_put(POPS))
    assert modes.get("t", "g") == modes_of(files).get("t", "g") == POPS


async def test_a_change_begins_with_what_the_one_before_it_has_left() -> None:
    files = BlockedFiles()
    files.is_full = True
    modes, seen = modes_of(files), list[RequestMode | None]()

    def begin() -> TableChange:
        seen.append(modes.get("t", "g"))
        return modes.begin_put(POPS)

    tasks = [asyncio.create_task(modes.change(begin)) for _ in range(2)]
    await asyncio.sleep(0)
    files.may_write.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [StoreFull, StoreFull]
    assert seen == [None, None], "what was refused is not there for the second"


async def test_a_save_that_is_under_way_does_not_count_for_others() -> None:
    """It may fail yet: whoever asks for what is being written waits for a write of his own."""
    files = BlockedFiles()
    modes = modes_of(files)
    modes.begin_put(POPS)
    first = asyncio.create_task(modes.saved())
    await asyncio.sleep(0)
    second = asyncio.create_task(modes.change(lambda: modes.begin_put(POPS)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not second.done()
    files.may_write.set()
    await asyncio.gather(first, second)
    assert not modes.unsaved


def test_every_change_raises_the_edition_and_a_save_does_not() -> None:
    table = ConsumerOffsets(None)
    editions = [table.edition]
    for offset in (1, 1, 2):
        table.commit("group", "topic", 0, offset)
        table.save()
        editions.append(table.edition)
    assert editions == [0, 1, 1, 2]
