import logging
from pathlib import Path

import pytest

from roquet.broker.tables.offsets import Offsets
from roquet.broker.tables.table import TableFile
from roquet.model.errors import StoreError, StoreFull
from roquet.model.topic import OffsetTable
from roquet.store.files import RealFiles
from roquet.store.memory import MemoryFiles


@pytest.fixture
def file(tmp_path: Path) -> TableFile:
    return TableFile(RealFiles(), tmp_path / "config" / "consumerOffset.json")


def test_a_table_is_written_in_javas_words_and_read_back(file: TableFile) -> None:
    table = Offsets(file)
    table.commit("group", "topic", 1, 42)
    table.save()
    assert "1:42" in file.path.read_text("utf-8"), "number keys stand bare"
    assert Offsets(file).get("group", "topic", 1) == 42


def test_a_table_without_news_is_not_written(file: TableFile) -> None:
    Offsets(file).save()
    assert not file.path.exists()


def test_the_edition_before_stays_beside_the_new_one(file: TableFile) -> None:
    table = Offsets(file)
    for offset in (1, 2):
        table.commit("group", "topic", 0, offset)
        table.save()
    file.path.write_bytes(b"")
    assert Offsets(file).get("group", "topic", 0) == 1


def test_a_damaged_table_is_read_from_its_backup_with_a_warning(
    file: TableFile, caplog: pytest.LogCaptureFixture
) -> None:
    table = Offsets(file)
    for offset in (1, 2):
        table.commit("group", "topic", 0, offset)
        table.save()
    file.path.write_text('{"offsetTable":{"topic@gro', "utf-8")
    with caplog.at_level(logging.WARNING):
        assert Offsets(file).get("group", "topic", 0) == 1
    assert "consumerOffset.json cannot be read" in caplog.text


def test_a_backup_alone_is_enough(file: TableFile) -> None:
    table = Offsets(file)
    table.commit("group", "topic", 0, 7)
    table.save()
    file.path.rename(file.path.with_name("consumerOffset.json.bak"))
    assert Offsets(file).get("group", "topic", 0) == 7


def test_a_table_that_cannot_be_read_at_all_stops_the_start(file: TableFile) -> None:
    file.path.parent.mkdir()
    file.path.write_text("nonsense", "utf-8")
    with pytest.raises(StoreError, match=r"consumerOffset\.json cannot be read: .*mend it, or"):
        Offsets(file)


def test_the_work_of_saving_writes_what_the_table_held_then(file: TableFile) -> None:
    table = Offsets(file)
    table.commit("group", "topic", 0, 1)
    work = table.saving()
    table.commit("group", "topic", 0, 2)
    assert work is not None
    work()
    assert Offsets(file).get("group", "topic", 0) == 1
    assert table.unsaved, "the later news has still to be saved"


def test_a_first_edition_has_a_copy(file: TableFile) -> None:
    table = Offsets(file)
    assert table.is_new
    table.commit("group", "topic", 0, 7)
    table.save()
    file.path.unlink()
    again = Offsets(file)
    assert (again.get("group", "topic", 0), again.is_new) == (7, False)


@pytest.mark.parametrize("content", ['{"topicConfigTable":{}}', "{}", "[]", "", "\0" * 50])
def test_what_is_no_such_table_is_damage_and_never_an_empty_table(
    file: TableFile, content: str
) -> None:
    table = Offsets(file)
    table.commit("group", "topic", 0, 7)
    table.save()
    file.path.write_text(content, "utf-8")
    assert Offsets(file).get("group", "topic", 0) == 7
    file.path.with_name("consumerOffset.json.bak").unlink()
    with pytest.raises(StoreError, match=r"consumerOffset\.json cannot be read: .*mend it, or"):
        Offsets(file)


def test_a_file_that_may_not_be_read_is_named_and_no_older_copy_is_used(file: TableFile) -> None:
    table = Offsets(file)
    table.commit("group", "topic", 0, 7)
    table.save()
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(StoreError, match="cannot be used: Is a directory; move away what is there"):
        Offsets(file)


class FullDisk(MemoryFiles):
    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        raise StoreFull("no room")


def test_a_table_that_could_not_be_written_is_tried_again() -> None:
    table = Offsets(TableFile(FullDisk(), Path("/config/consumerOffset.json")))
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
    table = Offsets(file)
    table.commit("group", "topic", 0, 1)
    late = table.saving()
    assert late is not None
    table.remove_group("group")
    table.save()
    late()
    assert Offsets(file).get("group", "topic", 0) is None
