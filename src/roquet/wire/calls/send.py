"""Send, batch send, send back.

The same request exists with two sets of field names: Java and C++ send the short ones, Go and old
clients the long ones. Handlers see one set of attributes.
"""

from typing import ClassVar

import msgspec

from roquet.model.names import AUTO_CREATE_TOPIC
from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.codes import RequestCode, ResponseCode

STORED_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""Codes of stored messages, with different durability."""


class SendReply(Reply, frozen=True, kw_only=True):
    """Location of the stored message."""

    msg_id: str = ""
    """The broker's own id; those of a batch are joined by commas."""
    queue_id: Int = 0
    queue_offset: Long = 0
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    """For a message with a delivery time: the handle to cancel it."""
    region: str = msgspec.field(default="DefaultRegion", name="MSG_REGION")
    trace_on: bool = msgspec.field(default=True, name="TRACE_ON")


class Send(Call[SendReply], frozen=True, kw_only=True):
    """Send one message to one queue, with short field names."""

    code: ClassVar = RequestCode.SEND_MESSAGE_V2
    accepts: ClassVar = STORED_CODES

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(default=AUTO_CREATE_TOPIC, name="c")
    default_topic_queue_nums: Int = msgspec.field(default=4, name="d")
    queue_id: Int = msgspec.field(name="e")
    sys_flag: Int = msgspec.field(default=0, name="f")
    born_timestamp: Long = msgspec.field(name="g")
    flag: Int = msgspec.field(default=0, name="h")
    properties: str = msgspec.field(default="", name="i")
    reconsume_times: Int = msgspec.field(default=0, name="j")
    unit_mode: bool = msgspec.field(default=False, name="k")
    max_reconsume_times: Int | None = msgspec.field(default=None, name="l")
    batch: bool = msgspec.field(default=False, name="m")
    broker_name: str | None = msgspec.field(default=None, name="n")


class SendBatch(Send, frozen=True, kw_only=True):
    """Send several messages to one queue, if `batch` says so; the body holds them all."""

    code: ClassVar = RequestCode.SEND_BATCH_MESSAGE


class SendLongNames(Call[SendReply], frozen=True, kw_only=True):
    """Send one message (or a batch) to one queue, with long field names."""

    code: ClassVar = RequestCode.SEND_MESSAGE
    accepts: ClassVar = STORED_CODES

    producer_group: str
    topic: str
    default_topic: str = AUTO_CREATE_TOPIC
    default_topic_queue_nums: Int = 4
    queue_id: Int
    sys_flag: Int = 0
    born_timestamp: Long
    flag: Int = 0
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    batch: bool = False


class SendBack(Call[Reply], frozen=True, kw_only=True):
    """Return a message whose handler failed; the broker keeps it for the group's next try."""

    code: ClassVar = RequestCode.CONSUMER_SEND_MSG_BACK

    offset: Long
    """Position of the message in the broker's log, in bytes; `offset` is the wire's word."""
    group: str
    delay_level: Int
    """0 lets the broker choose by the number of tries, a negative level gives the message up."""
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")
