"""Disks that are synced as a whole, and disks that are not."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from roquet.store.filesystem import libc, syncfs
from roquet.store.filesystem.syncfs import DiskSync, find_disk_sync


class LinuxSystem:
    """A simulated Linux version, with the temporary directory on one of its disks."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        self.mounts = folder.parent / f"{folder.name}-mounts"
        patch.setattr(syncfs, "MOUNTS", self.mounts)
        self.names("Linux", "6.1.0-13-amd64")
        self.mounted("ext4")

    def names(self, system: str, release: str) -> None:
        self.patch.setattr(os, "uname", lambda: SimpleNamespace(sysname=system, release=release))

    def mounted(self, kind: str) -> None:
        number = self.folder.stat().st_dev
        self.mounts.write_text(
            "21 1 0:19 / /sys rw,nosuid - sysfs sysfs rw\n"
            f"29 1 {os.major(number)}:{os.minor(number)} / /data rw,relatime shared:1"
            f" master:2 - {kind} /dev/vda rw\n"
        )

    @property
    def is_trusted(self) -> bool:
        found = find_disk_sync(self.folder)
        if found is not None:
            found.close()
        return found is not None


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LinuxSystem:
    return LinuxSystem(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "is_trusted"),
    [("ext4", True), ("xfs", True), ("overlay", False), ("fuse.sshfs", False), ("nfs4", False)],
)
def test_disks_of_the_kernel_are_trusted(system: LinuxSystem, kind: str, is_trusted: bool) -> None:
    system.mounted(kind)
    assert system.is_trusted is is_trusted


@pytest.mark.parametrize(
    ("name", "release", "is_trusted"),
    [
        ("Linux", "5.8.0", True),
        ("Linux", "5.7.19-generic", False),
        ("Linux", "4.18.0-513.el8", False),
        ("Linux", "10.0", True),
        ("Linux", "new", False),
        ("FreeBSD", "14.0-RELEASE", False),
    ],
)
def test_a_system_that_does_not_report_failures_is_not_used(
    system: LinuxSystem, name: str, release: str, is_trusted: bool
) -> None:
    system.names(name, release)
    assert system.is_trusted is is_trusted


def test_a_disk_that_is_not_found_is_not_trusted(
    system: LinuxSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.mounts.write_text("21 1 0:19 / /sys rw,nosuid - sysfs sysfs rw\n")
    assert not system.is_trusted
    system.mounts.unlink()
    assert not system.is_trusted
    monkeypatch.delattr(os, "uname")
    assert not system.is_trusted


def test_a_directory_that_lies_on_two_disks_is_not_trusted(
    system: LinuxSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (system.folder / "consumequeue").mkdir()
    assert system.is_trusted
    stat = Path.stat

    def elsewhere(path: Path, **options: bool) -> object:
        found = stat(path, **options)
        if path.name != "consumequeue":
            return found
        return SimpleNamespace(st_dev=found.st_dev + 1)

    monkeypatch.setattr(Path, "stat", elsewhere)
    assert not system.is_trusted


def test_a_watched_disk_is_synced_until_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def synced(number: int) -> bool:
        asked.append(number)
        return True

    monkeypatch.setattr(libc, "sync_disk", synced)
    whole = DiskSync(tmp_path)
    assert whole.sync()
    whole.close()
    whole.close()
    (number,) = asked
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(number)
