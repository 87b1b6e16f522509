"""Block count: messages in a block of stored records, or in the body of a batch send.

Both begin each message with its total size (4 bytes).
"""

from struct import Struct
from typing import Final

_SIZE: Final = Struct(">i")
_SIZE_MIN: Final = _SIZE.size


def block_count(block: bytes | memoryview) -> int:
    """Number of messages, up to the first one whose size is impossible; a cut one counts."""
    count, at, end = 0, 0, len(block)
    while at + _SIZE_MIN <= end:
        (size,) = _SIZE.unpack_from(block, at)
        if size < _SIZE_MIN:
            break
        count += 1
        at += size
    return count
