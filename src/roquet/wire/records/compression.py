"""Compression of bodies, with the algorithm in the system flag.

System flag bit 1 says that a body is compressed, bits 8 to 10 how: 0x100 LZ4 frame, 0x200
Zstandard, 0x300 zlib; 0 means zlib, too, as written before the others existed.
"""

import zlib
from enum import IntEnum
from types import ModuleType
from typing import Final, cast

from roquet.model.errors import RecordError
from roquet.model.flags import COMPRESSION_MASK, LZ4, ZLIB, ZSTD, SysFlag

COMPRESSED: Final = int(SysFlag.COMPRESSED)

BODY_SIZE_MAX: Final = 64 * 1024 * 1024
"""Brokers accept 4 MiB by default; a body that decompresses to sixteen times that is an attack or a
bug."""

ZLIB_LEVEL: Final = 5
"""The level of Java producers."""


class Compression(IntEnum):
    """Compression algorithm; the value is its code in the system flag."""

    LZ4 = LZ4
    ZSTD = ZSTD
    ZLIB = ZLIB


def with_compression(sys_flag: int, kind: Compression) -> int:
    """System flag of a body that was compressed with this algorithm."""
    return sys_flag & ~COMPRESSION_MASK | kind | COMPRESSED


def is_compressed(sys_flag: int) -> bool:
    """Whether the flag says that the body is compressed."""
    return bool(sys_flag & COMPRESSED)


def compress(body: bytes, kind: Compression = Compression.ZLIB, level: int = ZLIB_LEVEL) -> bytes:
    """Compress a body; the caller sets the flag by `with_compression`."""
    match kind:
        case Compression.ZLIB:
            return zlib.compress(body, level)
        case Compression.LZ4:
            return bytes(_lz4().compress(body, compression_level=level))
        case Compression.ZSTD:
            return bytes(_zstandard().ZstdCompressor(level=level).compress(body))


def decompress(body: bytes, sys_flag: int, size_max: int = BODY_SIZE_MAX) -> bytes:
    """Decompress a body; unchanged if the flag says that it is not compressed."""
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & COMPRESSION_MASK
    if kind == Compression.LZ4:
        return _from_lz4(body, size_max)
    if kind == Compression.ZSTD:
        return _from_zstd(body, size_max)
    if kind in (0, Compression.ZLIB):
        return _from_zlib(body, size_max)
    raise RecordError(f"unknown compression {kind:#x} in system flag {sys_flag:#x}")


def _from_zlib(body: bytes, size_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        restored = stream.decompress(body, size_max + 1)
    except zlib.error as error:
        raise RecordError(f"body is not zlib: {error}") from error
    return _checked("zlib", restored, size_max, ended=stream.eof)


def _from_lz4(body: bytes, size_max: int) -> bytes:
    stream = _lz4().LZ4FrameDecompressor()
    try:
        restored = stream.decompress(body, size_max + 1)
    except (RuntimeError, EOFError) as error:
        raise RecordError(f"body is not an LZ4 frame: {error}") from error
    return _checked("LZ4", restored, size_max, ended=stream.eof)


def _from_zstd(body: bytes, size_max: int) -> bytes:
    zstandard = _zstandard()
    try:
        # Measured first: decompression in one call has no limit of its own.
        measured = zstandard.ZstdDecompressor().stream_reader(body).read(size_max + 1)
        stream = zstandard.ZstdDecompressor().decompressobj()
        restored = stream.decompress(body) if len(measured) <= size_max else measured
    except zstandard.ZstdError as error:
        raise RecordError(f"body is not Zstandard: {error}") from error
    return _checked("Zstandard", restored, size_max, ended=stream.eof)


# Imported on use: megabytes that most processes never need.
def _lz4() -> ModuleType:
    try:
        from lz4 import frame
    except ImportError as error:
        raise _missing("LZ4", "lz4") from error
    return cast(ModuleType, frame)


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise _missing("Zstandard", "zstandard") from error
    return zstandard


def _missing(kind: str, package: str) -> RecordError:
    return RecordError(
        f"{kind} bodies need a package that is not installed: `pip install {package}`"
    )


def _checked(name: str, restored: bytes, size_max: int, *, ended: bool) -> bytes:
    if len(restored) > size_max:
        raise RecordError(f"{name} body decompresses beyond the limit of {size_max} bytes")
    if not ended:
        raise RecordError(f"{name} body is cut short")
    return restored
