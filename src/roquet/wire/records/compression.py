"""Compression of bodies, with the algorithm in the system flag.

System flag bit 1 says that a body is compressed, bits 8 to 10 how: 0x100 LZ4 frame, 0x200
Zstandard, 0x300 zlib; 0 means zlib, too, as written before the others existed.
"""

from enum import IntEnum
from types import ModuleType
from typing import Final, cast

from roquet.model.errors import CodecMissing, RecordError
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
            import zlib  # here: few bodies are compressed

            return zlib.compress(body, level)
        case Compression.LZ4:
            return bytes(_lz4().compress(body, compression_level=level))
        case Compression.ZSTD:
            return bytes(_zstandard().ZstdCompressor(level=level).compress(body))


def check_codec(kind: Compression) -> None:
    """Raise CodecMissing unless bodies can be compressed in this way here."""
    compress(b"", kind, 1)


def decompress(body: bytes, sys_flag: int, size_max: int = BODY_SIZE_MAX) -> bytes:
    """Decompress a body; unchanged if the flag says that it is not compressed.

    Raises RecordError for one that cannot be, and for one that is longer than `size_max`;
    CodecMissing where the package of its compression is not installed.
    """
    if not sys_flag & COMPRESSED:
        return body
    restored, is_whole = _restore(body, sys_flag, size_max + 1)
    name = _NAMES[sys_flag & COMPRESSION_MASK]
    if len(restored) > size_max:
        raise RecordError(f"{name} body decompresses beyond the limit of {size_max} bytes")
    if not is_whole:
        raise RecordError(f"{name} body is cut short")
    return restored


def decompress_start(body: bytes, sys_flag: int, size: int) -> bytes:
    """The first `size` bytes, one or more, of a decompressed body, or all of a shorter one.

    Raises RecordError as `decompress` does, but not for a body that is long or cut short.
    """
    return _restore(body, sys_flag, size)[0][:size] if sys_flag & COMPRESSED else body[:size]


_NAMES: Final = {0: "zlib", ZLIB: "zlib", LZ4: "LZ4", ZSTD: "Zstandard"}


def _restore(body: bytes, sys_flag: int, size: int) -> tuple[bytes, bool]:
    """The first `size` bytes of a compressed body, and whether it ends with them."""
    kind = sys_flag & COMPRESSION_MASK
    if kind not in _NAMES:
        raise RecordError(f"unknown compression {kind:#x} in system flag {sys_flag:#x}")
    if kind == LZ4:
        return _from_lz4(body, size)
    return _from_zstd(body, size) if kind == ZSTD else _from_zlib(body, size)


def _from_zlib(body: bytes, size: int) -> tuple[bytes, bool]:
    import zlib  # here: as above

    stream = zlib.decompressobj()
    try:
        return stream.decompress(body, size), stream.eof
    except zlib.error as error:
        raise RecordError(f"body is not zlib: {error}") from error


def _from_lz4(body: bytes, size: int) -> tuple[bytes, bool]:
    stream = _lz4().LZ4FrameDecompressor()
    try:
        return stream.decompress(body, size), stream.eof
    except (RuntimeError, EOFError) as error:
        raise RecordError(f"body is not an LZ4 frame: {error}") from error


def _from_zstd(body: bytes, size: int) -> tuple[bytes, bool]:
    zstandard = _zstandard()
    try:
        # Measured first: decompression in one call has no limit of its own.
        measured = zstandard.ZstdDecompressor().stream_reader(body).read(size)
        if len(measured) == size:
            return measured, False
        stream = zstandard.ZstdDecompressor().decompressobj()
        return stream.decompress(body), stream.eof
    except zstandard.ZstdError as error:
        raise RecordError(f"body is not Zstandard: {error}") from error


# Imported on use: megabytes that most processes never need.
def _lz4() -> ModuleType:
    try:
        from lz4 import frame
    except ImportError as error:
        raise CodecMissing(_MISSING.format("LZ4", "lz4")) from error
    return cast(ModuleType, frame)


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise CodecMissing(_MISSING.format("Zstandard", "zstandard")) from error
    return zstandard


_MISSING: Final = "{} bodies need {}, which is not installed: pip install 'roquet[compression]'"
