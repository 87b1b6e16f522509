"""Query by key, and by message id."""

from typing import ClassVar

import msgspec

from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.codes import RequestCode


class QueryReply(Reply, frozen=True, kw_only=True):
    """End of the index; the body holds the records found."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class QueryByKey(Call[QueryReply], frozen=True, kw_only=True):
    """Messages of a topic that carry a key, stored within a time range (ms)."""

    code: ClassVar = RequestCode.QUERY_MESSAGE

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key: bool = msgspec.field(default=False, name="_UNIQUE_KEY_QUERY")
    index_type: str | None = None
    """Kind of the key, from newer clients: K a key, U a unique key, T a tag."""
    last_key: str | None = None
    """End of the previous page. For our brokers it is the position of the oldest message of that
    page; Apache's read one for their index in RocksDB alone."""


class ViewMessage(Call[Reply], frozen=True, kw_only=True):
    """The record at a position of the commit log."""

    code: ClassVar = RequestCode.VIEW_MESSAGE_BY_ID

    topic: str | None = None
    offset: Long
    """A position in bytes; `offset` is the wire's word."""
    unconfirmed: bool | None = None
    """Ours: a replica that compares logs asks also for a record that readers do not see yet."""
