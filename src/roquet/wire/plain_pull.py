"""Plain pulls: requests for the messages of one queue, read from their frames in one pass.

They are what consumers send all the time. As with plain sends (see `wire.plain_send`), the ordinary
way is the specification: what the short way does not take, goes there.
"""

from typing import TYPE_CHECKING, ClassVar, cast

import msgspec

from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.codes import RequestCode
from roquet.wire.command import Command
from roquet.wire.fields import encode_reply
from roquet.wire.records.speedups import compiled

if TYPE_CHECKING:
    from roquet.wire.signing import SigningKey


PULL_CODE = int(RequestCode.PULL_MESSAGE)


class PlainPull(msgspec.Struct, frozen=True, gc=False):
    """One request, with the names that `Pull` gives its fields."""

    code: ClassVar = PULL_CODE
    topic_id: ClassVar = None

    opaque: int
    serialize_type: int
    language: int
    version: int
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    subscription: str | None
    sub_version: int
    expression_type: str | None
    max_msg_bytes: int | None
    key: "SigningKey | None"
    """The key whose signature was checked; None where signatures are not looked at."""
    end: int
    """Index of the chunk's byte behind the frame."""


AnyPull = Pull | PlainPull


@compiled
def plain_pulls(
    chunk: bytes,  # noqa: ARG001 - compiled
    size_max: int,  # noqa: ARG001
    keys: "dict[str, SigningKey] | None",  # noqa: ARG001
) -> list[PlainPull]:
    """The plain pulls with which a chunk begins, up to the first frame that is cut or another one.

    A length above `size_max` ends them as well, and so does the 32nd; `keys` are as for
    `plain_sends`. Without a compiler none is found: reading them so would cost more than the
    ordinary way.
    """
    return []


@compiled
def found_reply(
    opaque: int, serialize_type: int, next_offset: int, min_offset: int, max_offset: int,
    body: bytes | memoryview,
) -> bytes:  # fmt: skip
    """Encode the frame of the reply with the messages that were found."""
    reply = PullReply(
        remark="FOUND",
        next_begin_offset=next_offset,
        min_offset=min_offset,
        max_offset=max_offset,
        body=cast("bytes", body),  # copied into the frame
    )
    return encode_reply(reply, Command(0, opaque=opaque, serialize_type=serialize_type))
