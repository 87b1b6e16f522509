"""SendReceipt, PullResult and their status enums."""

from collections.abc import Sequence
from enum import Enum

import msgspec

from roquet.model.message import StoredMessage
from roquet.model.queue import MessageQueue


class SendStatus(Enum):
    """How durable a stored message is, measured by what the broker's settings promise."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendReceipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The broker's word that a message is stored, and where."""

    status: SendStatus
    message_id: str
    """The producer's id of the message (of each, joined by commas, for a batch)."""
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    """Of the message; of the first one of a batch."""
    tries: int = 1
    """With the successful one: an earlier one may have stored the message, too."""
    recall_handle: str | None = None
    """Of a message with a delivery time: what `recall` takes it back with before."""

    @property
    def ok(self) -> bool:
        """Whether the message is as durable as the broker promises."""
        return self.status is SendStatus.SEND_OK


class PullStatus(Enum):
    """What a pull found."""

    FOUND = "FOUND"
    NO_NEW = "NO_NEW"
    NO_MATCH = "NO_MATCH"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


class PullResult(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one queue, and where to go on."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[StoredMessage] = ()
