import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from roquet.model.errors import StoreError, StoreFull, StoreLocked
from roquet.store.filesystem.directory_lock import FileLock, store_error

HOLD = """
import sys
from pathlib import Path
from roquet.store.filesystem.directory_lock import FileLock
lock = FileLock(Path(sys.argv[1]), "nobody")
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_is_refused_with_the_name_of_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked, match=f"{tmp_path} is held by process 12: stop it first"):
            FileLock(path, "process 12")
        holder.stdin.close()
    FileLock(path, "process 12").release()


def test_one_process_holds_a_directory_once(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", "x")
    with pytest.raises(StoreLocked, match="held by this process"):
        FileLock(tmp_path / "lock", "x")
    lock.release()
    FileLock(tmp_path / "lock", "x").release()


def test_the_lock_file_has_the_content_of_apaches(tmp_path: Path) -> None:
    FileLock(tmp_path / "new" / "lock", "x").release()
    assert (tmp_path / "new" / "lock").read_bytes() == b"lock"


def test_a_lock_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        FileLock(tmp_path / "file" / "lock", "x")


def test_the_error_says_whether_there_was_room(tmp_path: Path) -> None:
    assert type(store_error(tmp_path, OSError(errno.ENOSPC, "full"))) is StoreFull
    assert "Permission denied" in str(
        store_error(tmp_path, OSError(errno.EACCES, "Permission denied"))
    )
    assert "odd" in str(store_error(tmp_path, ValueError("odd")))


def test_windows_has_its_own_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    fake = SimpleNamespace(LK_NBLCK=2, locking=lambda _, mode, size: asked.append(mode))
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    monkeypatch.setattr(sys, "platform", "win32")
    FileLock(tmp_path / "lock", "x").release()
    assert asked == [2]
