import os
from itertools import count
from pathlib import Path

import pytest
from tests.store.backup.conftest import OpenStore
from tests.store.conftest import NOW, fill

from roquet.model.errors import StoreError
from roquet.store.backup import contents
from roquet.store.backup import contents as store
from roquet.store.filesystem.private_files import read_unlinked
from roquet.store.layout import StoreCheckpoint


def test_a_directory_of_data_directories_is_refused_with_advice(
    in_use: OpenStore, tmp_path: Path
) -> None:
    fill(in_use.store, 1)
    store.check_is_store(in_use.directory)
    with pytest.raises(StoreError, match=r"back up .*/data instead"):
        store.check_is_store(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"there is no commitlog in it$"):
        store.check_is_store(tmp_path / "empty")


def test_the_logs_end_is_behind_its_last_record(in_use: OpenStore) -> None:
    fill(in_use.store, 30)
    for checkpoint in (StoreCheckpoint(), None):
        if checkpoint is None:
            in_use.store.flush_all(NOW)
            fill(in_use.store, 40)
            checkpoint = store.checkpoint_of(store.read_tables(in_use.directory))
            assert checkpoint.note is not None
        extent = store.log_extent(in_use.directory, checkpoint)
        assert (extent.begin, extent.end) == (0, in_use.store.end_position)
        assert extent.last_record < extent.end
        assert extent.head


def test_tables_are_read_again_until_they_stay(
    in_use: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = in_use.directory / "config"
    config.mkdir()
    reads = count()

    def changing(path: Path) -> bytes:
        if path.name == "gone":
            raise FileNotFoundError
        if path.name == "full":
            raise PermissionError(13, "Permission denied")
        if path.name == "topics.json":
            return str(min(next(reads), 3)).encode()
        return read_unlinked(path)

    (config / "topics.json").touch()
    (config / "gone").touch()
    monkeypatch.setattr(contents, "read_unlinked", changing)
    assert store.read_tables(in_use.directory)["config/topics.json"] == b"3"
    monkeypatch.setattr(contents, "READS_MAX", 0)
    with pytest.raises(StoreError, match="try again"):
        store.read_tables(in_use.directory)
    (config / "full").touch()
    with pytest.raises(StoreError, match="Permission denied"):
        store.read_tables(in_use.directory)


def test_queue_files_in_front_of_the_last_one_are_complete(in_use: OpenStore) -> None:
    fill(in_use.store, 60)
    fill(in_use.store, 1, topic="U")
    root = in_use.directory / "consumequeue"
    (root / "stray").write_text("")
    (root / "U" / "stray").write_text("")
    (root / "U" / "0" / "stray").write_text("x")
    assert list(store.queue_files(in_use.directory)) == [
        (f"consumequeue/T/0/{0:020d}", 1000, True),
        (f"consumequeue/T/0/{1000:020d}", 1000, False),
        (f"consumequeue/U/0/{0:020d}", 1000, False),
    ]


def test_bytes_in_front_of_a_checkpoint_change_when_the_log_is_cut_there(in_use: OpenStore) -> None:
    results = fill(in_use.store, 100)
    in_use.store.flush_all(NOW)
    noted = store.checkpoint_of(store.read_tables(in_use.directory))
    before = store.bytes_at(in_use.directory, noted)
    fill(in_use.store, 10)
    assert store.bytes_at(in_use.directory, noted) == before != b""
    in_use.store.raw.truncate(results[-1].position)
    fill(in_use.store, 10, topic="U")
    assert store.bytes_at(in_use.directory, noted) not in (before, b"")
    in_use.store.raw.truncate(results[5].position)  # deletes the newest files
    assert store.bytes_at(in_use.directory, noted) == b""


def test_a_log_without_a_checkpoint_or_a_record_has_no_bytes_in_front_of_it(
    in_use: OpenStore,
) -> None:
    assert store.bytes_at(in_use.directory, StoreCheckpoint()) == b""
    in_use.store.flush_all(NOW)
    assert (
        store.bytes_at(in_use.directory, store.checkpoint_of(store.read_tables(in_use.directory)))
        == b""
    )


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("folder", [".", "config"])
def test_a_link_or_a_pipe_among_the_tables_is_named_and_not_followed(
    tmp_path: Path, kind: str, folder: str
) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    path = tmp_path / "data" / folder / "topics.json"
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "outside") if kind == "link" else os.mkfifo(path)
    with pytest.raises(StoreError, match=r"topics.json cannot be used: (a link|no file, but)"):
        store.read_tables(tmp_path / "data")
