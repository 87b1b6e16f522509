"""Bucket hash: Iceberg's bucket of a text, which is its 32-bit Murmur3 hash modulo the buckets.

Computed for a whole column with numpy, four bytes of all rows at a time. The format's definition is
in appendix B of Iceberg's specification: seed 0, the UTF-8 bytes, the sign bit cleared.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U32 = npt.NDArray[np.uint32]

NO_BUCKET: Final = -1
"""The bucket of a null."""

_C1: Final = np.uint32(0xCC9E2D51)
_C2: Final = np.uint32(0x1B873593)
_BLOCK: Final = 4


def bucket_of(texts: pa.Array, buckets: int) -> npt.NDArray[np.int64]:
    """The bucket of each text of a string column, from 0; `NO_BUCKET` for nulls."""
    positive = murmur3(texts).astype(np.int64) & 0x7FFF_FFFF
    found = positive % buckets
    if texts.null_count:
        found[texts.is_null().to_numpy(zero_copy_only=False)] = NO_BUCKET
    return found


def murmur3(texts: pa.Array) -> U32:
    """The 32-bit Murmur3 hash of each text of a string column; that of nulls has no meaning."""
    if not len(texts):
        return np.zeros(0, np.uint32)
    starts, ends, raw = _text_bytes(texts)
    lengths = ends - starts
    blocks = lengths // _BLOCK
    hashes = np.zeros(len(texts), np.uint32)
    rows = np.arange(len(texts))
    for at in range(int(blocks.max(initial=0))):
        rows = rows[blocks[rows] > at]
        first = starts[rows] + _BLOCK * at
        mixed = _rotated(hashes[rows] ^ _mixed(_little_endian(raw, first)), 13)
        hashes[rows] = mixed * np.uint32(5) + np.uint32(0xE6546B64)
    tails = _little_endian(raw, starts + _BLOCK * blocks)
    left_bits = ((lengths % _BLOCK) * 8).astype(np.uint32)
    tails &= (np.uint32(1) << left_bits) - np.uint32(1)
    return _finished(hashes ^ _mixed(tails) ^ lengths.astype(np.uint32))


def _text_bytes(
    texts: pa.Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each text starts and ends in the bytes of all, which have a block more at the end."""
    _, offsets, data = texts.cast(pa.string()).buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    bounds = ends.astype(np.int64)
    return bounds[:-1], bounds[1:], np.append(raw, np.zeros(_BLOCK, np.uint8))


def _little_endian(raw: npt.NDArray[np.uint8], first: npt.NDArray[np.int64]) -> U32:
    found = raw[first].astype(np.uint32)
    for at in range(1, _BLOCK):
        found |= raw[first + at].astype(np.uint32) << np.uint32(8 * at)
    return found


def _mixed(block: U32) -> U32:
    return _rotated(block * _C1, 15) * _C2


def _rotated(value: U32, bits: int) -> U32:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def _finished(hashes: U32) -> U32:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
