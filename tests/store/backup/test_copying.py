import os
from hashlib import sha256
from pathlib import Path

import pytest

from roquet.model.errors import StoreError
from roquet.store.backup import copying
from roquet.store.backup import copying as store


def test_a_copy_has_the_first_bytes_and_their_checksum(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "new" / "target"
    data = os.urandom(copying.PIECE_SIZE + 5)
    source.write_bytes(data + b"more")
    copied = store.copy_file(source, target, len(data), len(data) + 7)
    assert copied == store.CopiedBytes(len(data), sha256(data).hexdigest())
    assert target.read_bytes() == data + bytes(7)
    assert target.stat().st_mode & 0o777 == 0o600
    assert store.copy_file(source, tmp_path / "longer", 1 << 30).stored == len(data) + 4


def test_the_end_of_the_content_is_in_front_of_the_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "PIECE_SIZE", 10)
    path = tmp_path / "file"
    path.write_bytes(b"ab" + bytes(35) + b"c" + bytes(50))
    assert store.content_end(path, 1000) == 38
    assert store.content_end(path, 20) == 2
    path.write_bytes(bytes(50))
    assert store.content_end(path, 50) == 0


def test_a_missing_source_and_a_target_that_exists_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.copy_file(tmp_path / "none", tmp_path / "target", 5)
    store.write_file(tmp_path / "target", b"12345")
    with pytest.raises(StoreError, match="target"):
        store.copy_file(tmp_path / "target", tmp_path / "target", 5)
    with pytest.raises(StoreError, match="target"):
        store.write_file(tmp_path / "target", b"")


def test_written_bytes_have_the_checksum_of_the_file(tmp_path: Path) -> None:
    assert store.write_file(tmp_path / "table", b"{}") == store.checksum(tmp_path / "table")


def test_files_are_compared_at_both_ends(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    data = bytearray(os.urandom(3 * copying.COMPARED_SIZE))
    one.write_bytes(data)
    two.write_bytes(data)
    assert store.has_same_ends(one, two, len(data))
    assert not store.has_same_ends(one, tmp_path / "none", len(data))
    data[-1] ^= 1
    two.write_bytes(data)
    assert not store.has_same_ends(one, two, len(data))


def test_systems_that_take_no_advice_copy_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fadvise")
    (tmp_path / "source").write_bytes(b"abc")
    assert store.copy_file(tmp_path / "source", tmp_path / "target", 3).stored == 3
