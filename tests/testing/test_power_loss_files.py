"""Files of a machine that may lose its power: what is synced stays, the rest may."""

from pathlib import Path
from random import Random

import pytest

from roquet.model.errors import StoreFull
from roquet.testing.power_loss_files import SECTOR_SIZE, PowerLossFiles

LOG = Path("/data/log")


def written(size: int = 8 * SECTOR_SIZE) -> PowerLossFiles:
    files = PowerLossFiles()
    files.create(LOG, size)
    files.map(LOG, size)[:] = b"a" * size
    return files


def test_what_is_synced_with_its_name_survives() -> None:
    files = written()
    files.sync(LOG)
    files.sync(Path("/data"))
    for seed in range(20):
        left = files.after_power_loss(Random(seed))
        assert left.read(LOG) == b"a" * 8 * SECTOR_SIZE


def test_a_name_that_was_not_synced_may_be_lost() -> None:
    files = written()
    files.sync(LOG)
    kept = [LOG in files.after_power_loss(Random(seed)).contents for seed in range(50)]
    assert {True, False} == set(kept)


def test_bytes_written_since_the_last_sync_are_lost_by_sectors() -> None:
    files = written()
    files.sync(LOG)
    files.sync(Path("/data"))
    files.map(LOG, 8 * SECTOR_SIZE)[:] = b"b" * 8 * SECTOR_SIZE
    seen = set()
    for seed in range(50):
        data = files.after_power_loss(Random(seed)).read(LOG)
        sectors = [data[at : at + SECTOR_SIZE] for at in range(0, len(data), SECTOR_SIZE)]
        assert {sector[:1] * SECTOR_SIZE for sector in sectors} == set(sectors), "none is torn"
        seen.add(b"".join(sector[:1] for sector in sectors))
    assert len(seen) > 10


def test_a_replaced_file_is_durable_at_once() -> None:
    files = PowerLossFiles()
    files.replace(Path("/data/table"), b"new")
    assert files.after_power_loss(Random(1)).read(Path("/data/table")) == b"new"


def test_a_removed_file_may_come_back_until_its_directory_is_synced() -> None:
    files = written()
    files.sync(LOG)
    files.sync(Path("/data"))
    files.remove(LOG)
    back = [LOG in files.after_power_loss(Random(seed)).contents for seed in range(20)]
    assert {True, False} == set(back)
    files.sync(Path("/data"))
    assert not any(LOG in files.after_power_loss(Random(seed)).contents for seed in range(20))


def test_a_moved_directory_leaves_the_old_name_behind_for_a_while() -> None:
    files = PowerLossFiles()
    files.create(Path("/data/queue/0"), 100)
    files.sync(Path("/data/queue/0"))
    for directory in ("/data/queue", "/data"):
        files.sync(Path(directory))
    files.move(Path("/data/queue"), Path("/data/gone"))
    assert Path("/data/gone/0") in files.contents
    assert Path("/data/queue/0") in files.ghosts


def test_a_full_disk_takes_nothing_that_has_no_place() -> None:
    files = written()
    files.allocate(LOG, 0, SECTOR_SIZE)
    files.is_full = True
    files.allocate(LOG, 0, SECTOR_SIZE)
    with pytest.raises(StoreFull):
        files.allocate(LOG, 0, 2 * SECTOR_SIZE)
    with pytest.raises(StoreFull):
        files.replace(Path("/data/table"), b"new")
    assert files.copy().is_full
    assert files.after_power_loss(Random(1)).is_full
    assert Path("/data/table") not in files.contents


def test_a_copy_knows_what_is_durable() -> None:
    files = written()
    files.sync(LOG)
    files.sync(Path("/data"))
    twin = files.copy()
    files.map(LOG, 8)[:] = b"changed!"
    assert twin.after_power_loss(Random(3)).read(LOG) == b"a" * 8 * SECTOR_SIZE
