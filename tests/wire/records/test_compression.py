"""Compressed bodies: every algorithm restores them, within limits."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import CodecMissing, RecordError
from roquet.wire.records.compression import (
    Compression,
    check_codec,
    compress,
    decompress,
    decompress_start,
    is_compressed,
    with_compression,
)

KINDS = list(Compression)


@given(st.binary(max_size=5000), st.sampled_from(KINDS))
def test_compressed_bodies_are_restored(body: bytes, kind: Compression) -> None:
    assert decompress(compress(body, kind), with_compression(0, kind)) == body


def test_no_kind_at_all_means_zlib() -> None:
    assert decompress(compress(b"legacy" * 9), 1) == b"legacy" * 9


def test_a_body_without_the_flag_is_left_alone() -> None:
    assert decompress(b"plain", 0x300) == b"plain"
    assert not is_compressed(0x300)


def test_the_flag_replaces_an_older_kind_and_keeps_the_rest() -> None:
    assert with_compression(16 | 0x300, Compression.ZSTD) == 16 | 0x200 | 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_refused_at_the_limit(kind: Compression) -> None:
    bomb = compress(bytes(10_001), kind)
    with pytest.raises(RecordError, match="limit of 10000"):
        decompress(bomb, with_compression(0, kind), size_max=10_000)
    assert len(decompress(bomb, with_compression(0, kind), size_max=10_001)) == 10_001


@pytest.mark.parametrize("kind", KINDS)
def test_the_start_of_a_bomb_can_be_had(kind: Compression) -> None:
    sys_flag = with_compression(0, kind)
    assert decompress_start(compress(bytes(10_000_000), kind), sys_flag, 5) == bytes(5)
    assert decompress_start(compress(b"whole", kind), sys_flag, 100) == b"whole"
    assert decompress_start(compress(b"whole", kind), sys_flag, 5) == b"whole"
    assert decompress_start(b"whole", 0, 3) == b"who"
    with pytest.raises(RecordError, match="body is no"):
        decompress_start(b"something else", sys_flag, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_cut_short_is_refused(kind: Compression) -> None:
    squeezed = compress(bytes(range(256)) * 20, kind)
    with pytest.raises(RecordError, match="cut short"):
        decompress(squeezed[:-5], with_compression(0, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_is_something_else_is_refused(kind: Compression) -> None:
    with pytest.raises(RecordError, match="body is not"):
        decompress(b"not compressed at all", with_compression(0, kind))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RecordError, match="unknown compression 0x500"):
        decompress(b"x", 0x501)


def test_the_libraries_are_imported_only_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert decompress(compress(b"body"), 1) == b"body"


@pytest.mark.parametrize(
    ("kind", "package"), [(Compression.LZ4, "lz4"), (Compression.ZSTD, "zstandard")]
)
def test_a_library_that_is_not_installed_is_named(
    kind: Compression, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = compress(b"x" * 100, kind)
    check_codec(kind)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CodecMissing, match=f"need {package}"):
        check_codec(kind)
    with pytest.raises(RecordError, match=r"not installed: pip install .roquet.compression"):
        compress(b"x", kind)
    with pytest.raises(RecordError, match=r"not installed: pip install .roquet.compression"):
        decompress(body, with_compression(0, kind))
