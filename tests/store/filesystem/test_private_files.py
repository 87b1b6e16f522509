import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.model.errors import StoreError
from roquet.store.filesystem import private_files
from roquet.store.filesystem.directory_lock import FileLock
from roquet.store.filesystem.files import RealFiles
from roquet.store.filesystem.private_files import open_regular, open_unlinked


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """The usual umask: without private modes others could read everything."""
    before = os.umask(0o022)
    yield
    os.umask(before)


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_directory_on_the_way_is_its_owners_alone(tmp_path: Path) -> None:
    private_files.make_directories(tmp_path / "a" / "b" / "c")
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    assert [mode(path) for path in made] == [0o700] * 3


def test_each_directory_with_a_new_name_is_reported(tmp_path: Path) -> None:
    told: list[Path] = []
    private_files.make_directories(tmp_path / "a" / "b", told.append)
    private_files.make_directories(tmp_path / "a" / "b", told.append)
    assert told == [tmp_path, tmp_path / "a"]


def test_a_directory_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    private_files.make_directories(tmp_path / "shared" / "own")
    private_files.make_directories(tmp_path / "shared")
    assert (mode(tmp_path / "shared"), mode(tmp_path / "shared" / "own")) == (0o755, 0o700)


def test_logs_tables_and_locks_are_their_owners_alone(tmp_path: Path) -> None:
    files = RealFiles()
    files.create(tmp_path / "log" / "00", 10)
    files.replace(tmp_path / "config" / "topics.json", b"1")
    files.replace(tmp_path / "config" / "topics.json", b"2", keep=True)
    files.lock(tmp_path / "lock", "x").release()
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name: mode(path) for path in made} == dict.fromkeys(
        ["00", "topics.json", "topics.json.bak", "lock"], 0o600
    )
    assert {mode(path) for path in tmp_path.rglob("*") if path.is_dir()} == {0o700}


@pytest.fixture(params=["pipe", "socket", "device", "directory", "link to a pipe"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "special"
    match request.param:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(path))
        case "device":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
        case _:
            os.mkfifo(tmp_path / "pipe")
            path.symlink_to(tmp_path / "pipe")
    return path


@needs_pipes
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
def test_what_is_no_file_is_refused_at_once(special: Path, flags: int) -> None:
    for opener in (open_regular, open_unlinked):
        with pytest.raises(OSError, match=r"no file, but|directory|a link"):
            opener(special, flags)


@needs_pipes
def test_a_link_to_a_file_is_opened_only_where_links_may_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    os.close(open_regular(tmp_path / "link", os.O_RDONLY))
    os.close(open_unlinked(tmp_path / "file", os.O_RDONLY))
    with pytest.raises(OSError, match="a link, which is not followed") as raised:
        open_unlinked(tmp_path / "link", os.O_RDONLY)
    assert raised.value.errno == errno.ELOOP
    with pytest.raises(FileNotFoundError):
        open_unlinked(tmp_path / "none", os.O_RDONLY)


@needs_pipes
def test_no_operation_of_the_store_waits_for_a_special_file(special: Path) -> None:
    files = RealFiles()
    for read in (
        lambda: files.map(special, 10),
        lambda: files.map(special, 10, writable=False),
        lambda: files.peek(special, 0, 1),
        lambda: files.create(special, 10),
        lambda: files.allocate(special, 0, 10),
        lambda: FileLock(special, "another"),
    ):
        with pytest.raises(StoreError, match="move away what is there"):
            read()
    for use in (
        lambda: files.read(special),
        lambda: files.write(special, 0, b"x"),
        lambda: files.data_end(special, 10),
    ):
        with pytest.raises(OSError):
            use()
