"""Message (what a user sends) and StoredMessage (what a broker hands back)."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

import msgspec

from roquet.model import properties as names

_NONE: Mapping[str, str] = MappingProxyType({})


class Message(msgspec.Struct, frozen=True, gc=False):
    """What a user sends: bytes to a topic, and what helps others to find and filter them."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    order_key: str | None = None
    """Messages of one order key go to one queue."""
    properties: Mapping[str, str] = _NONE
    flag: int = 0
    delay_level: int = 0
    """Consumers get it after one of the broker's set times (1 is 1 s, 18 is 2 h); 0 and -1: now."""
    delay: timedelta | None = None
    """Consumers get it after this time: for brokers with timer messages, as of version 5."""
    deliver_at: datetime | None = None
    """Consumers get it at this time, which knows its time zone: for the same brokers."""


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker hands back: the message and where, when and from whom it was stored."""

    topic: str
    body: bytes
    properties: Mapping[str, str] = _NONE
    flag: int = 0
    broker_name: str = ""
    queue_id: int
    queue_offset: int
    position: int
    """Of the record in the broker's commit log, in bytes."""
    size: int
    """Of the whole record, in bytes."""
    sys_flag: int = 0
    born_ms: int = 0
    born_host: str = ""
    stored_ms: int = 0
    store_host: str = ""
    reconsume_times: int = 0
    prepared_position: int = 0
    offset_message_id: str = ""
    """The broker's own id of the message: its address and the position."""

    @property
    def message_id(self) -> str:
        """The id that the producer gave, else the broker's."""
        return self.properties.get(names.UNIQUE_KEY) or self.offset_message_id

    @property
    def tag(self) -> str | None:
        """The tag that the producer gave."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that the producer gave."""
        return tuple(self.properties.get(names.KEYS, "").split())

    @property
    def key(self) -> str | None:
        """The first of the keys."""
        return next(iter(self.keys), None)
