"""The file of a controller: damage, full disks, and kills at any write."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.raising import raises
from tests.rules.election.conftest import group_of, led

from roquet.controller.state_store.file import FILE, FileStore, decode_groups, encode_groups
from roquet.controller.state_store.interface import (
    ControllerIdentity,
    LeadershipLost,
    StateStoreError,
)
from roquet.model.errors import StoreError, StoreFull, StoreLocked
from roquet.store.filesystem.memory_files import MemoryFiles

ME = ControllerIdentity("n0", "h:9878")
GROUP = led(group_of(1, 2), 1, 4)
SOURCE = Path(__file__).parents[3] / "src"


async def test_groups_are_there_again_after_a_restart(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.save(1, "bc", GROUP, 0)
    await store.close()
    again = FileStore(tmp_path)
    assert {name: one.group for name, one in (await again.load(1)).items()} == {"bc": GROUP}
    await again.close()


async def test_two_controllers_do_not_share_a_directory(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    with pytest.raises(StoreLocked, match="held by this process"):
        FileStore(tmp_path)
    await store.close()


class SlowFiles(MemoryFiles):
    """Files whose writes wait until the test lets them go on."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        self.may_go_on.wait(10)
        super().replace(path, data, keep=keep)


async def test_a_directory_is_given_back_after_the_last_write_and_nothing_is_written_then() -> None:
    files = SlowFiles()
    store = FileStore(Path("/c"), files)
    writing = asyncio.create_task(store.save(1, "bc", GROUP, 0))
    await asyncio.sleep(0)
    queued = asyncio.create_task(store.save(1, "bd", GROUP, 0))
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreLocked):
        FileStore(Path("/c"), files)
    files.may_go_on.set()
    await closing
    again = FileStore(Path("/c"), files)
    assert "bc" in await again.load(1)
    await asyncio.gather(writing, queued)
    with pytest.raises(LeadershipLost):
        await store.save(1, "be", GROUP, 0)


def test_every_changed_byte_is_found() -> None:
    content = encode_groups({"bc": GROUP})
    for place in range(content.index(b"\n") + 1, len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 + place % 255
        with pytest.raises(ValueError, match="checksum"):
            decode_groups(bytes(changed))


def test_a_file_that_was_cut_anywhere_is_refused_in_one_line() -> None:
    files, path = MemoryFiles(), Path("/c") / FILE
    whole = encode_groups({"bc": GROUP})
    for size in range(len(whole)):
        files.contents[path] = whole[:size]
        with pytest.raises(
            StoreError, match=r"controller\.json is damaged .*restore it"
        ) as refused:
            FileStore(Path("/c"), files)
        assert "\n" not in str(refused.value)
    files.contents[path] = whole
    FileStore(Path("/c"), files)  # the lock was given back each time


def test_a_file_of_a_later_format_is_refused() -> None:
    files = MemoryFiles()
    files.contents[Path("/c") / FILE] = b'{"format":2,"crc32":0}\n{}'
    with pytest.raises(StoreError, match="format 2, known is 1"):
        FileStore(Path("/c"), files)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(StoreError, match="cannot be"):
        FileStore(tmp_path)


class FailingFiles(MemoryFiles):
    """Files whose next write fails, before or after it has replaced the file."""

    fails_before = fails_after = False

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        if self.fails_before:
            raise StoreFull(f"{path}: the disk is full; nothing was stored")
        super().replace(path, data, keep=keep)
        if self.fails_after:
            raise StoreError(f"{path} cannot be used: Input/output error")


async def test_a_full_disk_changes_nothing_and_the_term_goes_on() -> None:
    files = FailingFiles()
    store = FileStore(Path("/c"), files)
    revision = await store.save(1, "bc", GROUP, 0)
    files.fails_before = True
    with raises(StateStoreError, match="the disk is full", definite=True):
        await store.save(1, "bc", replace(GROUP, master_epoch=5), revision)
    files.fails_before = False
    await store.save(1, "bc", replace(GROUP, master_epoch=5), revision)


async def test_after_a_write_of_unknown_result_the_next_term_has_what_is_in_the_file() -> None:
    files = FailingFiles()
    store = FileStore(Path("/c"), files)
    files.fails_after = True
    with raises(StateStoreError, definite=False):
        await store.save(1, "bc", GROUP, 0)
    with pytest.raises(LeadershipLost):
        await store.confirm(1)
    term = (await store.acquire(ME, in_new_term=True)).term
    assert term is not None
    assert (await store.load(term))["bc"].group == GROUP


async def test_a_file_that_is_damaged_while_it_is_written_ends_the_term() -> None:
    files = FailingFiles()
    store = FileStore(Path("/c"), files)
    files.contents[Path("/c") / FILE] = b"?"
    files.fails_before = True
    with raises(StateStoreError, definite=False):
        await store.save(1, "bc", GROUP, 0)


WRITER = """
import asyncio, sys
from pathlib import Path
from msgspec.structs import replace
from roquet.controller.state_store.file import FileStore
from roquet.rules.election.group import RegisteredReplica, ReplicaGroup
async def main():
    store = FileStore(Path(sys.argv[1]))
    stored = (await store.load(1)).get("bc")
    group = stored.group if stored else ReplicaGroup(
        cluster="C", name="bc", replicas={1: RegisteredReplica("h:1", "h:1;17")})
    revision = stored.revision if stored else 0
    while True:
        group = replace(group, master_epoch=group.master_epoch + 1)
        revision = await store.save(1, "bc", group, revision)
        print(group.master_epoch, flush=True)
asyncio.run(main())
"""


def killed_after(writes: int, directory: Path) -> int:
    """Kill a writer during a write after this many; returns the last epoch that it answered."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)],
        env={"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        for _ in range(writes):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        return max(map(int, process.stdout.read().split()), default=writes)


@pytest.mark.parametrize("writes", [1, 4, 8, 16, 41])
async def test_a_killed_controller_loses_nothing_that_it_answered(
    tmp_path: Path, writes: int
) -> None:
    answered = await asyncio.to_thread(killed_after, writes, tmp_path)
    store = FileStore(tmp_path)
    epoch = (await store.load(1))["bc"].group.master_epoch
    assert epoch - max(answered, writes) in (0, 1), "the write on its way was done or not"
    await store.close()
