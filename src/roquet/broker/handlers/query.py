"""By key, by id."""

from typing import Final

from roquet.broker.broker import Broker
from roquet.model.errors import CallRefused
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.query import QueryByKey, QueryReply, ViewMessage
from roquet.wire.codes import ResponseCode

UNIQUE_COUNT: Final = 32
"""Messages that may share a unique key: retries of a producer, and of consumers."""

COUNT_MAX: Final = 1_024
"""Messages of one answer: an operator looks at some, not at all."""


def by_key(broker: Broker, call: QueryByKey, _peer: Peer) -> QueryReply:
    """The messages of a topic that carry a key, newest first."""
    wished = max(call.max_num, UNIQUE_COUNT) if call.unique_key else call.max_num
    broker.store.dispatch()  # whoever asks finds what was acknowledged just before
    found = broker.store.query(
        call.topic,
        call.key,
        count_max=min(max(wished, 1), COUNT_MAX),
        begin_ms=call.begin_timestamp,
        end_ms=call.end_timestamp,
    )
    return QueryReply(
        code=ResponseCode.SUCCESS if found.records else ResponseCode.QUERY_NOT_FOUND,
        remark=None if found.records else "can not find message, maybe time range not correct",
        index_last_update_timestamp=found.last_update_ms,
        index_last_update_phyoffset=found.last_update_position,
        body=b"".join(found.records),
    )


def by_position(broker: Broker, call: ViewMessage, _peer: Peer) -> Reply:
    """The record at a position of the commit log."""
    record = broker.store.message_at(call.offset) if call.offset >= 0 else None
    if record is None:
        raise CallRefused(
            ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {call.offset}"
        )
    return Reply(body=bytes(record))
