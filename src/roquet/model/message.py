"""Message, as a user sends it, and StoredMessage, as a broker returns it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic

import msgspec

from roquet.model import properties as names
from roquet.model.errors import UsageError
from roquet.model.moments import utc_time

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # which checkers know, wherever it is installed

    V = TypeVar("V", contravariant=True, default=bytes)
    V_co = TypeVar("V_co", covariant=True, default=bytes)
else:  # before Python 3.13 without a default, which only checkers need
    from typing import TypeVar

    V = TypeVar("V", contravariant=True)
    V_co = TypeVar("V_co", covariant=True)

_NONE: Mapping[str, str] = MappingProxyType({})


class Message(msgspec.Struct, Generic[V_co], frozen=True, gc=False):
    """A message to send: topic, body, and the tag, keys and properties to find and filter it by.

    The body is bytes, or whatever the producer's `encode` makes bytes of.
    """

    topic: str
    body: V_co
    tag: str | None = None
    keys: tuple[str, ...] = ()
    """Texts to find the message by; made of one text, or of any sequence of them."""
    order_key: str | None = None
    """Messages with the same order key go to the same queue."""
    properties: Mapping[str, str] = _NONE
    flag: int = 0
    delay_level: int = 0
    """Delivered after one of the broker's configured delays (1 is 1 s, 18 is 2 h); 0 and -1: at
    once."""
    delay: timedelta | None = None
    """Delivered after this time; needs a broker with timer messages (version 5 or later)."""
    deliver_at: datetime | None = None
    """Delivered at this time, which must have a time zone; needs a broker with timer messages."""
    priority: int | None = None
    """From 0, the lowest: pop consumers get higher ones first, on a topic of type PRIORITY."""

    if TYPE_CHECKING:  # the fields once more, since `keys` takes more types than it has

        def __init__(  # noqa: PLR0913, PLR0917 - of all fields
            self,
            topic: str,
            body: V_co,
            tag: str | None = None,
            keys: str | Sequence[str] = (),
            order_key: str | None = None,
            properties: Mapping[str, str] = _NONE,
            flag: int = 0,
            delay_level: int = 0,
            delay: timedelta | None = None,
            deliver_at: datetime | None = None,
            priority: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if type(self.keys) is not tuple:
            msgspec.structs.force_setattr(self, "keys", _tuple_of(self.keys))


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a broker returns it, with where, when and from which host it was stored."""

    topic: str
    body: bytes
    properties: Mapping[str, str] = _NONE
    flag: int = 0
    broker_name: str = ""
    queue_id: int
    queue_offset: int
    position: int
    """Position of the record in the broker's commit log, in bytes."""
    size: int
    """Size of the whole record, in bytes."""
    sys_flag: int = 0
    born_ms: int = 0
    born_host: str = ""
    stored_ms: int = 0
    store_host: str = ""
    reconsume_times: int = 0
    prepared_position: int = 0
    offset_message_id: str = ""
    """The broker's id of the message: the broker's address and the position."""
    body_note: str = ""
    """Why the body is not the whole one that was sent; empty when it is. Only look-ups that show
    many messages cut bodies; a consumer's are whole."""

    @property
    def message_id(self) -> str:
        """The producer's message id, or the broker's if the producer set none."""
        return self.properties.get(names.UNIQUE_KEY) or self.offset_message_id

    @property
    def born_at(self) -> datetime:
        """`born_ms` as a datetime in UTC; RecordError for one that no date has."""
        return utc_time(self.born_ms)

    @property
    def stored_at(self) -> datetime:
        """`stored_ms` as a datetime in UTC; RecordError for one that no date has."""
        return utc_time(self.stored_ms)

    @property
    def tag(self) -> str | None:
        """The producer's tag, if any."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The producer's keys."""
        return names.split_keys(self.properties.get(names.KEYS, ""))

    @property
    def key(self) -> str | None:
        """The first key, if any."""
        return next(iter(self.keys), None)


def _tuple_of(keys: object) -> tuple[str, ...]:
    """The keys of one text or several; UsageError for anything else."""
    if isinstance(keys, str):
        return (keys,)
    if isinstance(keys, Iterable) and not isinstance(keys, bytes):
        return tuple(keys)
    raise UsageError(f"keys are str, as ('A-17', 'A-18'), not {keys!r:.100}")
