"""Hostile files in data directories, backups and what a support bundle looks at.

A pipe, a socket, a device, a directory, a link, bad UTF-8 or deep JSON stands where one of our
files belongs. Each command ends at once: it does its work, or says in one line what is in the way.
Nothing from outside of the directory gets into a backup, a restored directory or a bundle.
"""

import asyncio
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

from roquet.admin.directory_check import TABLES, check_directory
from roquet.admin.support_bundle import BundleSources, collect
from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import RoquetError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.store.backup.backup import back_up, backups_in
from roquet.store.backup.restore import damaged_files, find_backup, restore
from roquet.store.config import StoreConfig
from roquet.store.store import Draft, Store

pytestmark = [
    pytest.mark.attack,
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system"),
]

NOW: Final = 1_700_000_000_000
SECRET: Final = b"hunter2"
SMALL: Final = StoreConfig(
    log_file_size=1 << 16, queue_file_entries=100, index_slots=50, index_entries=300
)
ENDS_IN_S: Final = 20

FILES: Final = (
    "checkpoint", "abort", "lock", "store-format", "queue-ends", "bootId", "epochFileCheckpoint",
    "brokerIdentity", "brokerIdentity-temp", "deletedTopics", "timerwheel",
    f"commitlog/{0:020d}", f"commitlog/{1 << 16:020d}", f"consumequeue/T/0/{0:020d}",
    f"index/{20231114221320000}", "config/access.json", "config/access-2026.json",
    "config/timercheck", "config/stray",
    *(f"config/{name}{suffix}" for name in TABLES for suffix in ("", ".bak")),
)  # fmt: skip
FOLDERS: Final = ("config", "commitlog", "consumequeue", "consumequeue/T", "index")


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def listener(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        at = Path("/tmp") / f"roquet-attack-{os.getpid()}"
        listening.bind(str(at))
        shutil.move(at, path)


def directory(path: Path, _: Path) -> None:
    path.mkdir()


def link_out(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def loop(path: Path, _: Path) -> None:
    path.symlink_to(path)


def device(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")


def terminal(path: Path, _: Path) -> None:
    path.symlink_to("/dev/tty")


def content(data: bytes) -> Callable[[Path, Path], None]:
    def write(path: Path, _: Path) -> None:
        path.write_bytes(data)

    return write


KINDS: Final[dict[str, Callable[[Path, Path], None]]] = {
    "pipe": pipe,
    "socket": listener,
    "directory": directory,
    "link out": link_out,
    "loop of links": loop,
    "device": device,
    "terminal": terminal,
    "no UTF-8": content(b'{"a":"\xff\xfe"}'),
    "deep JSON": content(b'{"topicConfigTable":' + b"[" * 200_000),
    "empty": content(b""),
    "zeros": content(bytes(5_000)),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with two files of its log, and tables."""
    path = tmp_path_factory.mktemp("whole") / "data"
    store = Store.open(path, SMALL, now_ms=NOW)
    for number in range(150):
        store.append(Draft("T", 0, b"%d" % number + bytes(500), b"KEYS\x01k\x02"), NOW)
    while store.dispatch():
        pass
    store.close(NOW)
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "topics.json").write_bytes(b'{"dataVersion":{},"topicConfigTable":{}}')
    return path


def put(path: Path, kind: str, outside: Path) -> None:
    """Put something in the place of a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    KINDS[kind](path, outside)


async def one_line(work: Callable[[], object]) -> str:
    """The error of some work, empty without one; it ends at once, in a thread of its own."""
    try:
        async with asyncio.timeout(ENDS_IN_S):
            await asyncio.to_thread(work)
    except RoquetError as error:
        return in_one_line(error)
    return ""


def in_one_line(error: RoquetError) -> str:
    assert "\n" not in str(error), error
    return str(error)


def cases(paths: tuple[str, ...], depth: str) -> list[tuple[str, str]]:
    everything = [(path, kind) for path in paths for kind in KINDS]
    return everything if depth == "full" else Random(7).sample(everything, 60)


def texts(directory: Path) -> bytes:
    """All bytes of the files of a directory."""
    found = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    return b"".join(path.read_bytes() for path in found)


async def test_a_data_directory_is_checked_backed_up_and_bundled(
    whole: Path, tmp_path: Path, depth: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(SECRET.ljust(1 << 16, b"\0"))  # as long as a file of the log
    for number, (name, kind) in enumerate(cases((*FILES, *FOLDERS), depth)):
        data, target = tmp_path / f"{number}" / "data", tmp_path / f"{number}" / "backups"
        shutil.copytree(whole, data)
        put(data / name, kind, outside)
        await one_line(lambda data=data: check_directory(data, SMALL))  # type: ignore[misc]
        await one_line(lambda data=data, target=target: back_up(data, target, NOW))  # type: ignore[misc]
        async with asyncio.timeout(ENDS_IN_S):
            bundle = await collect(BundleSources(data=[data]), SYSTEM_CLOCK)
        assert SECRET not in b"".join(bundle.values()), (name, kind)
        assert SECRET not in texts(target), (name, kind)
        shutil.rmtree(data.parent)


async def test_a_broker_starts_or_says_what_is_in_the_way(
    whole: Path, tmp_path: Path, depth: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(SECRET.ljust(1 << 16, b"\0"))  # as long as a file of the log
    for number, (name, kind) in enumerate(cases((*FILES, *FOLDERS), depth)):
        data = tmp_path / f"{number}"
        shutil.copytree(whole, data)
        put(data / name, kind, outside)
        config = BrokerConfig(
            host="127.0.0.1", port=0, vip_port=False, store_dir=data, log_file_size=1 << 16,
            queue_file_entries=100, index_slots=50, index_entries=300,
        )  # fmt: skip
        try:
            async with asyncio.timeout(ENDS_IN_S), BrokerServer(config):
                pass
        except RoquetError as error:
            in_one_line(error)
        except Exception as error:
            raise AssertionError((name, kind)) from error
        shutil.rmtree(data)


async def test_a_backup_is_restored_or_refused(whole: Path, tmp_path: Path, depth: str) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(SECRET.ljust(1 << 16, b"\0"))  # as long as a file of the log
    made = back_up(whole, tmp_path / "made", NOW).path
    names = ("manifest.json", *(f"data/{name}" for name in (*FILES, *FOLDERS)))
    for number, (name, kind) in enumerate(cases(names, depth)):
        target = tmp_path / f"{number}"
        backup, restored = target / made.name, target / "restored"
        shutil.copytree(made, backup)
        put(backup / name, kind, outside)
        await one_line(lambda backup=backup: list(damaged_files(backup)))  # type: ignore[misc]
        fault = await one_line(lambda a=backup, b=restored: restore(a, b))  # type: ignore[misc]
        assert bool(fault) != restored.exists(), (name, kind)
        assert SECRET not in texts(target), (name, kind)
        await one_line(lambda target=target: find_backup(target))  # type: ignore[misc]
        await one_line(lambda target=target: backups_in(target))  # type: ignore[misc]
        shutil.rmtree(target)
