"""SysFlag, Permission, PullFlag: the bit sets, with the wire's numbers."""

from enum import IntFlag
from typing import Final


class SysFlag(IntFlag):
    """What a record says of itself."""

    COMPRESSED = 1
    MULTI_TAGS = 2
    TRANSACTION_PREPARED = 4
    TRANSACTION_COMMIT = 8
    TRANSACTION_ROLLBACK = 12
    BORN_HOST_V6 = 16
    STORE_HOST_V6 = 32
    NEED_UNWRAP = 64
    INNER_BATCH = 128


TRANSACTION_MASK: Final = 12
"""Both transaction bits: none, prepared, commit and roll back are its four values."""

COMPRESSION_MASK: Final = 0x700
"""Bits 8 to 10 name the compression."""

LZ4: Final = 0x100
ZSTD: Final = 0x200
ZLIB: Final = 0x300
"""Zero is zlib, too: older clients set no type."""


class Permission(IntFlag):
    """What may be done with a topic's queues."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


class PullFlag(IntFlag):
    """What a pull asks for besides messages."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16
