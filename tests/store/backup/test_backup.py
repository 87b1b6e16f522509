import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.store.backup.conftest import OpenStore
from tests.store.conftest import NOW, fill, read_bodies

from roquet.model.errors import StoreError, StoreLocked
from roquet.rules.retention import DiskUsage, RetentionPolicy
from roquet.store.backup import backup as module
from roquet.store.backup.backup import PARTIAL_NAME, back_up, backups_in, remove_old
from roquet.store.backup.contents import log_extent, queue_files
from roquet.store.backup.copying import copy_file
from roquet.store.backup.manifest import DATA_NAME, BackedUpFile, read_manifest
from roquet.store.backup.restore import damaged_files, find_backup, restore
from roquet.store.check import check
from roquet.store.filesystem.directory_lock import FileLock

LATER = NOW + 1000


def log_files(backup: Path) -> list[BackedUpFile]:
    return [f for f in read_manifest(backup).files if f.path.startswith("commitlog/")]


def test_a_backup_of_a_store_in_use_has_all_its_messages(in_use: OpenStore) -> None:
    fill(in_use.store, 50)
    in_use.store.flush_all(NOW)
    fill(in_use.store, 70)  # behind the checkpoint
    fill(in_use.store, 5, topic="%RETRY%g", queue_id=3)
    made = back_up(in_use.directory, in_use.backups, NOW)
    fill(in_use.store, 9)  # not part of it
    assert list(damaged_files(made.path)) == []
    assert made.manifest.log_end < in_use.store.end_position
    restore(made.path, in_use.restored)
    restored = in_use.open(in_use.restored)
    assert read_bodies(restored) == read_bodies(in_use.store)[:120]
    assert len(read_bodies(restored, "%RETRY%g", 3)) == 5
    assert restored.end_position == made.manifest.log_end
    assert restored.query("T", "U1").records
    restored.close(NOW)


def test_a_store_without_a_checkpoint_or_messages_is_backed_up(in_use: OpenStore) -> None:
    made = back_up(in_use.directory, in_use.backups, NOW)
    assert (made.manifest.log_begin, made.manifest.log_end) == (0, 0)
    restore(made.path, in_use.restored)
    in_use.open(in_use.restored).close(NOW)


def test_tables_are_those_from_before_the_logs_end(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(in_use.store, 1)
    config = in_use.directory / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offset": 1}')
    (config / "topics.json.tmp").write_text("half")
    (in_use.directory / "bootId").write_text("this machine")
    find_end = log_extent

    def progress_moves_on(*args: object) -> object:
        fill(in_use.store, 1)
        (config / "consumerOffset.json").write_text('{"offset": 2}')
        return find_end(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "log_extent", progress_moves_on)
    made = back_up(in_use.directory, in_use.backups, NOW)
    names = read_manifest(made.path).by_path()
    copied = made.path / DATA_NAME / "config" / "consumerOffset.json"
    assert json.loads(copied.read_text()) == {"offset": 1}
    assert made.manifest.log_end == in_use.store.end_position
    assert not {"config/topics.json.tmp", "bootId", "lock", "abort"} & names.keys()


def test_the_next_backup_shares_files_that_are_full(in_use: OpenStore) -> None:
    fill(in_use.store, 120)
    first = back_up(in_use.directory, in_use.backups, NOW)
    fill(in_use.store, 50)
    second = back_up(in_use.directory, in_use.backups, LATER)
    assert second.copied < first.copied
    full = log_files(first.path)[0]
    links = [(b.path / DATA_NAME / full.path).stat().st_nlink for b in (first, second)]
    assert links == [2, 2]
    assert backups_in(in_use.backups) == [first.path, second.path]
    assert remove_old(in_use.backups, 1) == [first.path]
    assert list(damaged_files(second.path)) == []
    assert remove_old(in_use.backups, 1) == []
    restore(second.path, in_use.restored)
    restored = in_use.open(in_use.restored)
    assert read_bodies(restored) == read_bodies(in_use.store)
    restored.close(NOW)


def test_a_queue_that_vanishes_meanwhile_is_built_from_the_log(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(in_use.store, 3)
    listed = ("consumequeue/gone/0/" + "0" * 20, 1000, False)
    monkeypatch.setattr(module, "queue_files", lambda _: [listed])
    made = back_up(in_use.directory, in_use.backups, NOW)
    restore(made.path, in_use.restored)
    restored = in_use.open(in_use.restored)
    assert len(read_bodies(restored)) == 3
    restored.close(NOW)


def test_files_of_another_store_are_not_shared(in_use: OpenStore) -> None:
    fill(in_use.store, 120)
    first = back_up(in_use.directory, in_use.backups, NOW)
    path = first.path / DATA_NAME / log_files(first.path)[0].path
    path.write_bytes(b"x" * path.stat().st_size)
    second = back_up(in_use.directory, in_use.backups, LATER)
    assert list(damaged_files(second.path)) == []


def test_a_file_that_was_cut_and_written_again_is_not_shared(in_use: OpenStore) -> None:
    in_use.config = msgspec.structs.replace(in_use.config, log_file_size=65_536)
    for now, topic in ((NOW, "before"), (LATER, "behind")):
        in_use.store.close(NOW)
        shutil.rmtree(in_use.directory)
        in_use.store = in_use.open(in_use.directory)
        fill(in_use.store, 30)
        fill(in_use.store, 1, topic=topic)  # as long as the other one
        fill(in_use.store, 1, 60_000)  # does not fit: the first file ends in zeros
        made = back_up(in_use.directory, in_use.backups, now)
        assert len(log_files(made.path)) == 2
    restore(made.path, in_use.restored)
    restored = in_use.open(in_use.restored)
    assert read_bodies(restored, "behind") == read_bodies(in_use.store, "behind")
    assert not restored.damage
    restored.close(NOW)


def test_files_are_copied_where_links_are_not_possible(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError("no links here")

    fill(in_use.store, 120)
    first = back_up(in_use.directory, in_use.backups, NOW)
    monkeypatch.setattr("os.link", no_links)
    second = back_up(in_use.directory, in_use.backups, LATER)
    assert second.copied == first.copied


def test_a_backup_with_a_damaged_manifest_shares_nothing(in_use: OpenStore) -> None:
    fill(in_use.store, 120)
    first = back_up(in_use.directory, in_use.backups, NOW)
    (first.path / "manifest.json").write_text("{")
    second = back_up(in_use.directory, in_use.backups, LATER)
    assert second.copied == first.copied


def test_what_a_killed_backup_left_is_removed(in_use: OpenStore) -> None:
    fill(in_use.store, 1)
    partial = in_use.backups / PARTIAL_NAME
    partial.mkdir(parents=True)
    (partial / "manifest.json").write_text("{}")
    assert backups_in(in_use.backups) == []
    made = back_up(in_use.directory, in_use.backups, NOW)
    assert backups_in(in_use.backups) == [made.path]
    assert not partial.exists()


def expire(in_use: OpenStore) -> list[str]:
    """Delete all but the newest files of the log."""
    in_use.store.flush_all(NOW)
    in_use.store.set_retention(RetentionPolicy(reserved_ms=1000))
    return in_use.store.expire(NOW + 100_000_000, DiskUsage(1000, 900), at_once=True)


def test_files_that_expire_meanwhile_are_left_out(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(in_use.store, 120)
    in_use.store.flush_all(NOW)
    find_end, expired = log_extent, list[str]()

    def retention_deletes(*args: object) -> object:
        extent = find_end(*args)  # type: ignore[arg-type]
        expired.extend(expire(in_use))
        return extent

    monkeypatch.setattr(module, "log_extent", retention_deletes)
    made = back_up(in_use.directory, in_use.backups, NOW)
    assert expired
    assert made.manifest.log_begin == in_use.store.begin_position > 0
    restore(made.path, in_use.restored)
    restored = in_use.open(in_use.restored)
    assert read_bodies(restored) == read_bodies(in_use.store)
    assert restored.bounds("T", 0) == in_use.store.bounds("T", 0)
    assert "did not delete" not in caplog.text
    restored.close(NOW)


def test_queues_whose_messages_have_expired_keep_their_offsets(in_use: OpenStore) -> None:
    fill(in_use.store, 3, topic="old")
    fill(in_use.store, 120)
    expire(in_use)
    made = back_up(in_use.directory, in_use.backups, NOW)
    restore(made.path, in_use.restored)
    restored = in_use.open(in_use.restored)
    assert restored.bounds("old", 0)[1] == 3
    restored.close(NOW)


@pytest.mark.parametrize("step", ["log_extent", "copy_file"])
def test_a_log_that_is_cut_meanwhile_is_not_backed_up(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    fill(in_use.store, 30)
    end, original = in_use.store.end_position, getattr(module, step)

    def cut_then(*args: object) -> object:
        result = original(*args)
        if step == "copy_file" and "commitlog" not in str(args[0]):
            return result
        with (in_use.directory / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(end - 100)
            file.write(bytes(100))
        return result

    monkeypatch.setattr(module, step, cut_then)
    with pytest.raises(StoreError, match="cut while it was copied"):
        back_up(in_use.directory, in_use.backups, NOW)
    assert backups_in(in_use.backups) == []


@pytest.mark.parametrize("is_written_again", [False, True])
def test_all_is_copied_again_when_the_log_is_cut_in_front_of_its_checkpoint(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch, is_written_again: bool
) -> None:
    results = fill(in_use.store, 60)
    in_use.store.flush_all(NOW)
    list_queues, cuts = queue_files, list[int]()

    def cut_then(directory: Path) -> object:
        if not cuts:
            cuts.append(results[20].position)
            in_use.store.raw.truncate(cuts[0])
            if is_written_again:  # the checkpoint is as high as before, and the queues are others
                fill(in_use.store, 50, topic="U")
                in_use.store.flush_all(NOW)
        return list_queues(directory)

    monkeypatch.setattr(module, "queue_files", cut_then)
    made = back_up(in_use.directory, in_use.backups, NOW)
    assert made.manifest.log_end == in_use.store.end_position
    restore(made.path, in_use.restored)
    restored = in_use.open(in_use.restored)
    assert read_bodies(restored) == read_bodies(in_use.store)
    assert read_bodies(restored, "U") == read_bodies(in_use.store, "U")
    assert not restored.damage
    restored.close(NOW)
    assert check(in_use.restored, in_use.config).verdict == "whole"


def test_a_log_that_is_cut_behind_the_copied_queues_is_not_backed_up(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = fill(in_use.store, 30)
    in_use.store.flush_all(NOW)
    copy = copy_file

    def cut_then(source: Path, *others: Any) -> object:
        if "commitlog" in str(source):
            in_use.store.raw.truncate(results[20].position)
        return copy(source, *others)

    monkeypatch.setattr(module, "copy_file", cut_then)
    with pytest.raises(StoreError, match="cut while it was copied"):
        back_up(in_use.directory, in_use.backups, NOW)


def test_queues_are_copied_again_when_a_topic_is_deleted_and_made_anew_meanwhile(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(in_use.store, 60)
    in_use.store.flush_all(NOW)
    list_queues, deleted = queue_files, list[str]()

    def delete_then(directory: Path) -> object:
        if not deleted:
            deleted.append("T")
            in_use.store.delete_topic("T")
            fill(in_use.store, 5, 101)
        return list_queues(directory)

    monkeypatch.setattr(module, "queue_files", delete_then)
    made = back_up(in_use.directory, in_use.backups, NOW)
    assert list(damaged_files(made.path)) == []
    restore(made.path, in_use.restored)
    restored = in_use.open(in_use.restored)
    assert read_bodies(restored) == read_bodies(in_use.store)
    restored.close(NOW)
    assert check(in_use.restored, in_use.config).verdict == "whole"


def test_a_store_whose_topics_are_deleted_all_the_time_is_not_backed_up(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_queues = queue_files

    def delete_then(directory: Path) -> object:
        fill(in_use.store, 1)
        in_use.store.delete_topic("T")
        return list_queues(directory)

    monkeypatch.setattr(module, "queue_files", delete_then)
    with pytest.raises(StoreError, match="topics are deleted, or the log is cut, all the time"):
        back_up(in_use.directory, in_use.backups, NOW)


def test_a_directory_of_a_later_format_is_not_backed_up(in_use: OpenStore) -> None:
    (in_use.directory / "store-format").write_text("99")
    with pytest.raises(StoreError, match="reads up to"):
        back_up(in_use.directory, in_use.backups, NOW)


def test_the_newest_backup_stays_the_last_one_when_the_clock_was_set_back(
    in_use: OpenStore,
) -> None:
    first = back_up(in_use.directory, in_use.backups, NOW)
    fill(in_use.store, 1)
    second = back_up(in_use.directory, in_use.backups, NOW - 5_000)
    third = back_up(in_use.directory, in_use.backups, NOW - 5_000)
    assert backups_in(in_use.backups) == [first.path, second.path, third.path]
    assert remove_old(in_use.backups, 1) == [first.path, second.path]


def test_what_a_killed_removal_left_is_removed_by_the_next_one(in_use: OpenStore) -> None:
    half = back_up(in_use.directory, in_use.backups, NOW).path
    (half / "manifest.json").unlink()
    made = back_up(in_use.directory, in_use.backups, LATER)
    assert remove_old(in_use.backups, 1) == []
    assert not half.exists()
    assert backups_in(in_use.backups) == [made.path]


def test_a_backup_with_a_name_of_its_own_is_kept_and_is_not_the_newest(in_use: OpenStore) -> None:
    kept = in_use.backups / "before-upgrade"
    back_up(in_use.directory, in_use.backups, NOW).path.rename(kept)
    odd = in_use.backups / "99999999T999999999Z"
    back_up(in_use.directory, in_use.backups, NOW).path.rename(odd)
    made = back_up(in_use.directory, in_use.backups, NOW)
    assert backups_in(in_use.backups) == [made.path]
    assert find_backup(in_use.backups) == made.path
    assert remove_old(in_use.backups, 1) == []
    assert find_backup(kept) == kept


def test_a_log_whose_files_all_vanish_is_not_backed_up(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(in_use.store, 30)
    find_end = log_extent

    def vanish(*args: object) -> object:
        extent = find_end(*args)  # type: ignore[arg-type]
        log = in_use.directory / "commitlog"
        log.rename(log.with_name("elsewhere"))
        return extent

    monkeypatch.setattr(module, "log_extent", vanish)
    with pytest.raises(StoreError, match="try again"):
        back_up(in_use.directory, in_use.backups, NOW)
    (in_use.directory / "elsewhere").rename(in_use.directory / "commitlog")


def test_two_backups_at_once_are_refused(in_use: OpenStore) -> None:
    lock = FileLock(in_use.backups / "lock", "another backup")
    with pytest.raises(StoreLocked, match=r"another backup|this process"):
        back_up(in_use.directory, in_use.backups, NOW)
    lock.release()


def test_a_backup_inside_the_data_directory_is_refused(in_use: OpenStore) -> None:
    with pytest.raises(StoreError, match="keep backups elsewhere"):
        back_up(in_use.directory, in_use.directory / "backups", NOW)


def test_a_directory_for_backups_that_cannot_be_used_is_named(
    in_use: OpenStore, tmp_path: Path
) -> None:
    (tmp_path / "backups").write_text("a file")
    with pytest.raises(StoreError, match="backups"):
        back_up(in_use.directory, in_use.backups, NOW)
    with pytest.raises(StoreError, match="backups"):
        backups_in(in_use.backups)
    assert backups_in(tmp_path / "nowhere") == []


def test_a_failing_disk_leaves_no_half_backup(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("the disk is gone")

    fill(in_use.store, 3)
    made = back_up(in_use.directory, in_use.backups, NOW)
    monkeypatch.setattr(module, "sync_directory", fails)
    with pytest.raises(StoreError):
        back_up(in_use.directory, in_use.backups, LATER)
    assert {path.name for path in in_use.backups.iterdir()} == {made.path.name, "lock"}
    monkeypatch.undo()
    back_up(in_use.directory, in_use.backups, LATER)
    monkeypatch.setattr(shutil, "rmtree", fails)
    with pytest.raises(StoreError):
        remove_old(in_use.backups, 1)


def test_a_link_in_the_place_of_a_log_file_is_named_and_not_followed(
    in_use: OpenStore, tmp_path: Path
) -> None:
    fill(in_use.store, 120)
    in_use.store.flush_all(NOW)
    file = in_use.directory / "commitlog" / f"{0:020d}"
    file.rename(tmp_path / "outside")
    file.symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError, match=f"{file} cannot be used: a link, which is not followed"):
        back_up(in_use.directory, in_use.backups, NOW)
