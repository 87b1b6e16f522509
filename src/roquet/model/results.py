"""SendReceipt, PullResult and their status enums; ReplyMessage."""

from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec

from roquet.model import properties as names
from roquet.model.message import StoredMessage
from roquet.model.queue import MessageQueue


class SendStatus(Enum):
    """Durability of a stored message, relative to what the broker's settings promise."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendReceipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Receipt of a stored message: its ids, queue and offset."""

    status: SendStatus
    message_id: str
    """The producer's message id; those of a batch are joined by commas."""
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    """Offset of the message; of the first message of a batch."""
    tries: int = 1
    """Number of tries, this one included: an earlier one may have stored the message, too."""
    recall_handle: str | None = None
    """Handle for `recall`, to cancel a message before its delivery time."""

    @property
    def ok(self) -> bool:
        """Whether the message is as durable as the broker promises."""
        return self.status is SendStatus.SEND_OK


class PullStatus(Enum):
    """Result kinds of a pull."""

    FOUND = "FOUND"
    NO_NEW = "NO_NEW"
    NO_MATCH = "NO_MATCH"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


class PullResult(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one queue, and the offset of the next pull."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[StoredMessage] = ()


class ReplyMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a request."""

    body: bytes
    properties: Mapping[str, str]
    topic: str = ""
    """The topic where the broker keeps replies, if it does."""
    flag: int = 0
    born_ms: int = 0
    born_host: str = ""
    """Address of the sender."""

    @property
    def message_id(self) -> str:
        """The id that the sender gave."""
        return self.properties.get(names.UNIQUE_KEY, "")

    @property
    def correlation_id(self) -> str:
        """The id of the request."""
        return self.properties.get(names.CORRELATION_ID, "")
