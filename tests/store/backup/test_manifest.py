from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import StoreError
from roquet.store.backup.manifest import FILE_NAME, BackedUpFile, BackupManifest, read_manifest

FILE = BackedUpFile(path="commitlog/0", size=9, stored=4, sha256="00")
MANIFEST = BackupManifest(version="1", made_ms=5, log_begin=0, log_end=4, files=(FILE,))


def saved(path: Path, data: bytes) -> Path:
    (path / FILE_NAME).write_bytes(data)
    return path


def test_a_manifest_reads_back(tmp_path: Path) -> None:
    found = read_manifest(saved(tmp_path, msgspec.json.encode(MANIFEST)))
    assert found == MANIFEST
    assert found.stored == 4
    assert found.by_path() == {"commitlog/0": FILE}


def test_another_directory_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a backup"):
        read_manifest(tmp_path)
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(StoreError, match="cannot be used"):
        read_manifest(tmp_path)


def test_a_later_format_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"format 2.*newer version"):
        read_manifest(saved(tmp_path, b'{"format": 2}'))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": 1}',
        b'{"format": 1, "version": "\xff"}',
        b'{"version": ' + b"[" * 100_000,
        b'{"format": 1, "files": [{"path": "\xff"}]}',
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(StoreError, match="is damaged"):
        read_manifest(saved(tmp_path, data))


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../up", "a/../../b", "a\\..\\b", "a\0b"])
def test_paths_that_lead_outside_are_refused(tmp_path: Path, path: str) -> None:
    odd = msgspec.structs.replace(MANIFEST, files=(msgspec.structs.replace(FILE, path=path),))
    with pytest.raises(StoreError, match="is damaged: it names"):
        read_manifest(saved(tmp_path, msgspec.json.encode(odd)))


@pytest.mark.parametrize("sizes", [{"stored": 10}, {"stored": -1}, {"size": 2**63}])
def test_impossible_sizes_are_refused(tmp_path: Path, sizes: dict[str, int]) -> None:
    odd = msgspec.structs.replace(MANIFEST, files=(msgspec.structs.replace(FILE, **sizes),))
    with pytest.raises(StoreError, match="is damaged"):
        read_manifest(saved(tmp_path, msgspec.json.encode(odd)))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = saved(tmp_path_factory.mktemp("manifest", numbered=True), data)
    with pytest.raises(StoreError, match="is damaged"):
        read_manifest(path)
