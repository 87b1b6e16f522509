"""Replies: a consumer answers a request, and the broker pushes the answer to the requester.

    requester ── send (310) ──▶ broker ── pull ──▶ consumer
    requester ◀─ push (326) ─── broker ◀─ reply (325) ─┘

The request's properties name the requester (REPLY_TO_CLIENT), the request (CORRELATION_ID) and the
time limit (TTL); those of the reply repeat them.
"""

from typing import ClassVar

import msgspec

from roquet.model.names import AUTO_CREATE_TOPIC
from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.calls.send import Send, SendLongNames
from roquet.wire.codes import RequestCode


class SendReplyMessage(Send, frozen=True, kw_only=True):
    """The reply to a request, with short field names."""

    code: ClassVar = RequestCode.SEND_REPLY_MESSAGE_V2


class SendReplyLongNames(SendLongNames, frozen=True, kw_only=True):
    """The reply to a request, with long field names."""

    code: ClassVar = RequestCode.SEND_REPLY_MESSAGE


class PushReply(Call[Reply], frozen=True, kw_only=True):
    """A broker delivers the reply to the waiting client."""

    code: ClassVar = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT

    producer_group: str
    topic: str
    default_topic: str = AUTO_CREATE_TOPIC
    default_topic_queue_nums: Int = 4
    queue_id: Int
    sys_flag: Int = 0
    born_timestamp: Long
    flag: Int = 0
    properties: str = ""
    reconsume_times: Int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    stored_ms: Long = msgspec.field(name="storeTimestamp")
