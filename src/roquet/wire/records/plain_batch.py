"""Plain batches: batch sends whose messages ask for no more than storing, packed in one pass.

Such a batch goes from its request's body into records, queue entries and hashes of keys without an
object for each message. Any other goes column by column (`decode_columns`, the checks of the
properties, `pack_batch`), which is the specification: for a plain batch both give the same bytes.
"""

import msgspec

from roquet.wire.records.speedups import compiled


class BatchBody(msgspec.Struct, frozen=True, gc=False):
    """The messages of a batch as they were sent, and properties that each of them gets."""

    items: bytes
    """Encoded as `wire.records.batch` says."""
    shared: bytes
    """Properties of the whole batch, encoded; empty or ended by a separator."""
    added: bytes
    """Properties of the broker, encoded and ended by a separator. They hold no key."""


class PackedBatch(msgspec.Struct, frozen=True, gc=False):
    """The messages of a plain batch, ready to be written."""

    records: bytes
    """Without gaps."""
    entries: bytes
    """Queue entries, one for each record."""
    tag_codes: list[int]
    """Java's hash of each message's tag; 0 without one."""
    key_hashes: bytes
    """Hashes for the key index, numbers of four bytes in this machine's order."""
    key_positions: bytes
    """For each hash the position of its record, a number of eight bytes in this machine's order."""
    waits: bool
    """Whether the sender of the first message waits until it is durable."""


@compiled
def pack_items(  # noqa: PLR0913, PLR0917 - the fields of a record
    queue_id: int, queue_offset: int, position: int, sys_flag: int, born_ms: int,  # noqa: ARG001
    born_host: bytes, stored_ms: int, store_host: bytes, reconsume_times: int,  # noqa: ARG001
    topic: bytes, items: bytes, shared: bytes, added: bytes,  # noqa: ARG001
) -> PackedBatch | None:  # fmt: skip
    """Pack the messages of a plain batch; None for another one.

    A plain batch has up to 4,096 messages and keys, and no stored properties of more than 512
    bytes. Without a compiler none is plain.
    """
    return None
