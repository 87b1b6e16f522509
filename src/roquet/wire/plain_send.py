"""Plain sends: requests that store one ordinary message, or a batch, read in one pass.

Most requests of a busy broker are such. A server with a compiler reads them without a command and a
call in between, and stores them by the short way that its router offers. Any other request, and any
of these that the short way does not take, goes the ordinary way, which is the specification: for a
plain send both store the same bytes and give the same reply.
"""

from typing import TYPE_CHECKING

import msgspec

from roquet.model.properties import PROPERTIES_SIZE_MAX
from roquet.wire.calls.send import SendReply
from roquet.wire.codes import RequestCode
from roquet.wire.command import Command
from roquet.wire.fields import encode_reply
from roquet.wire.records.message_id import offset_message_id, offset_message_ids
from roquet.wire.records.record import ENTRY, pack
from roquet.wire.records.speedups import compiled

if TYPE_CHECKING:  # servers without access control load no hashes for it
    from roquet.wire.signing import SigningKey

SEND_CODE = int(RequestCode.SEND_MESSAGE_V2)
SEND_CODES = (SEND_CODE, int(RequestCode.SEND_BATCH_MESSAGE))
"""Codes of sends that are read so, those of all clients but very old ones; the second one is for
batches alone."""

SENDS_MAX = 100
"""Plain sends of a chunk that are read at most: they are served before other connections have their
turn, within a millisecond. Ten batches of one client, which often come together, are among them."""


class PlainSend(msgspec.Struct, frozen=True, gc=False):
    """One request, with the names that `Send` gives its fields.

    The topic is none of a broker's own, there is a body, and neither a property nor `sys_flag` asks
    for more than storing. A single message has a unique key; the messages of a batch, which have
    their own, are not checked. Nothing else of the topic, the queue and the size of the body is
    checked; `flag` and `sys_flag` are the message's. The compiled reader gives objects of the same
    attributes, whose body stays where it was received until it is written.
    """

    opaque: int
    serialize_type: int
    language: int
    version: int
    topic: str
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    reconsume_times: int
    properties: bytes
    """Encoded, and ended by a separator; those of a batch are without its unique key, or empty."""
    tag_code: int
    """Java's hash of the tag; 0 without one."""
    unique_key: str
    body: bytes
    key: "SigningKey | None"
    """The key whose signature was checked; None where signatures are not looked at."""
    end: int
    """Index of the chunk's byte behind the frame."""
    code: int = SEND_CODE
    is_batch: bool = False

    @property
    def body_size(self) -> int:
        """Bytes of the body."""
        return len(self.body)


@compiled
def plain_sends(
    chunk: bytes,  # noqa: ARG001 - compiled
    size_max: int,  # noqa: ARG001
    keys: "dict[str, SigningKey] | None",  # noqa: ARG001
) -> list[PlainSend]:
    """The plain sends with which a chunk begins, up to the first frame that is cut or another one.

    There are `SENDS_MAX` at most, and a length above `size_max` ends them as well. `keys` are those
    of known users by access key: a request that none of them has signed, as `signing.signed_by`
    checks it, is another one. None looks at no signature. Without a compiler none is found: reading
    them so would cost more than the ordinary way.
    """
    return []


@compiled
def put_send(  # noqa: PLR0913, PLR0917 - what a record is made of
    send: PlainSend, records: memoryview, at: int, room: int, entries: memoryview, entry_at: int,
    queue_offset: int, position: int, sys_flag: int, born_host: bytes, stored_ms: int,
    store_host: bytes, topic: bytes, tail: bytes,
) -> int:  # fmt: skip
    """Write the record of a message and its queue entry into two maps; gives the record's size.

    `tail` ends its properties. 0, with nothing written, for a record of more than `room` bytes, or
    whose properties are too long.
    """
    properties = send.properties + tail
    if len(properties) > PROPERTIES_SIZE_MAX:
        return 0
    record = pack(
        send.queue_id, send.flag, queue_offset, position, sys_flag, send.born_timestamp, born_host,
        stored_ms, store_host, send.reconsume_times, 0, send.body, topic, properties,
    )  # fmt: skip
    size = len(record)
    if size > room:
        return 0
    entry = ENTRY.pack(position, size, send.tag_code)
    records[at : at + size] = record
    entries[entry_at : entry_at + ENTRY.size] = entry
    return size


@compiled
def stored_reply(
    send: PlainSend,
    store_host: bytes,
    position: int,
    queue_offset: int,
    region: str,
    trace_on: bool,
) -> bytes:
    """Encode the frame of the reply to a message that is stored at a position of the log."""
    reply = SendReply(
        msg_id=offset_message_id(store_host, position),
        queue_id=send.queue_id,
        queue_offset=queue_offset,
        transaction_id=send.unique_key,
        region=region,
        trace_on=trace_on,
    )
    command = Command(0, opaque=send.opaque, serialize_type=send.serialize_type)
    return encode_reply(reply, command)


@compiled
def batch_reply(  # noqa: PLR0913, PLR0917 - the parts of a reply
    opaque: int, serialize_type: int, store_host: bytes, entries: bytes, queue_id: int,
    queue_offset: int, region: str, trace_on: bool,
) -> bytes:  # fmt: skip
    """Encode the frame of the reply to a batch, whose messages have these queue entries."""
    positions = [position for position, _, _ in ENTRY.iter_unpack(entries)]
    reply = SendReply(
        msg_id=offset_message_ids(store_host, positions),
        queue_id=queue_id,
        queue_offset=queue_offset,
        region=region,
        trace_on=trace_on,
    )
    return encode_reply(reply, Command(0, opaque=opaque, serialize_type=serialize_type))
