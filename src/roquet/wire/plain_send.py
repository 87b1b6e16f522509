"""Plain sends: requests that store one ordinary message, read from their frames in one pass.

Most requests of a busy broker are such. A server with a compiler reads them without a command and a
call in between, and stores them by the short way that its router offers. Any other request, and any
of these that the short way does not take, goes the ordinary way, which is the specification: for a
plain send both store the same bytes and give the same reply.
"""

from typing import ClassVar

import msgspec

from roquet.wire.calls.send import SendReply
from roquet.wire.codes import RequestCode, SerializeType
from roquet.wire.command import Command
from roquet.wire.compact import PackedFields
from roquet.wire.fields import encode_reply
from roquet.wire.records.message_id import offset_message_id
from roquet.wire.records.speedups import compiled

PLAIN_CODE = int(RequestCode.SEND_MESSAGE_V2)
"""Code of the requests that are read so: that of all clients but very old ones."""


class PlainSend(msgspec.Struct, frozen=True, gc=False):
    """One request, with the names that `Send` gives its fields.

    The topic's name, the queue and the size of the body are not checked. No property asks for
    more than storing, and there is a unique key; `flag` and `sys_flag` are the message's.
    """

    code: ClassVar = PLAIN_CODE

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
    """Encoded, and ended by a separator."""
    tag_code: int
    """Java's hash of the tag; 0 without one."""
    unique_key: str
    fields: bytes
    """The header's fields as they came, in the form of `serialize_type`."""
    body: bytes
    end: int
    """Index of the chunk's byte behind the frame."""

    @property
    def signed_fields(self) -> msgspec.Raw | PackedFields:
        """The header's fields as `signing.signed_by` takes them."""
        return signed_fields(self.serialize_type, self.fields)


def signed_fields(serialize_type: int, fields: bytes) -> msgspec.Raw | PackedFields:
    """The fields of a plain request as `signing.signed_by` takes them."""
    if serialize_type == SerializeType.JSON:
        return msgspec.Raw(fields)
    return PackedFields(fields, b"")


@compiled
def plain_sends(chunk: bytes, size_max: int) -> list[PlainSend]:  # noqa: ARG001 - compiled
    """The plain sends with which a chunk begins, up to the first frame that is cut or another one.

    A length above `size_max` ends them as well. Without a compiler none is found: reading them so
    would cost more than the ordinary way.
    """
    return []


@compiled
def stored_reply(  # noqa: PLR0913, PLR0917 - the parts of a reply
    opaque: int, serialize_type: int, store_host: bytes, position: int, queue_id: int,
    queue_offset: int, unique_key: str, region: str, trace_on: bool,
) -> bytes:  # fmt: skip
    """Encode the frame of the reply to a message that is stored at a position of the log."""
    reply = SendReply(
        msg_id=offset_message_id(store_host, position),
        queue_id=queue_id,
        queue_offset=queue_offset,
        transaction_id=unique_key,
        region=region,
        trace_on=trace_on,
    )
    return encode_reply(reply, Command(0, opaque=opaque, serialize_type=serialize_type))
