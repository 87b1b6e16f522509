"""SysFlag, Permission, PullFlag: bit sets with the numbers of the wire."""

from enum import IntFlag
from typing import Final


class SysFlag(IntFlag):
    """System flags of a record: compression, transaction state, address families."""

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
"""Both transaction bits; the four values are none, prepared, commit and roll back."""

COMPRESSION_MASK: Final = 0x700
"""Bits 8 to 10: the compression algorithm."""

LZ4: Final = 0x100
ZSTD: Final = 0x200
ZLIB: Final = 0x300
"""Zero means zlib, too: older clients set no type."""


class Permission(IntFlag):
    """Permissions of a topic's queues."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


READ_WRITE: Final = int(Permission.READ | Permission.WRITE)


class PullFlag(IntFlag):
    """Options of a pull request."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16
