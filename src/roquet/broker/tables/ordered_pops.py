"""OrderedPops: messages of a queue that an ordered pop holds (config/consumerOrderInfo.json)."""

from collections.abc import Iterable

import msgspec

from roquet.broker.tables.offsets import SEPARATOR
from roquet.broker.tables.saved_table import SavedTable, TableFile
from roquet.rules.consumption.ordered_pop import OrderedPopLock


class OrderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The lock of one queue, as the genuine broker saves it."""

    pop_ms: int = msgspec.field(default=0, name="popTime")
    invisible_ms: int | None = msgspec.field(default=None, name="i")
    offsets: list[int] | None = msgspec.field(default=None, name="o")
    """The first offset, then the distances of the others from it."""
    visible_ms: dict[int, int] | None = msgspec.field(default=None, name="ot")
    times: dict[int, int] | None = msgspec.field(default=None, name="oc")
    taken_ms: int = msgspec.field(default=0, name="l")
    acked: int = msgspec.field(default=0, name="cm")
    attempt: str | None = msgspec.field(default=None, name="a")
    suspended: set[int] | None = None
    """Ours: Apache's broker does not save it, and counts one try more after a restart."""


class OrderTable(msgspec.Struct, frozen=True, kw_only=True):
    """All locks: "topic@group" → queue id → lock."""

    table: dict[str, dict[int, OrderInfo]] = {}


class OrderedPops(SavedTable[OrderTable]):
    """Locks of ordered pops, by group and queue."""

    kind = OrderTable

    def __init__(self, file: TableFile | None) -> None:
        self._held: dict[str, dict[int, OrderedPopLock]] = {}
        super().__init__(file)

    def get(self, group: str, topic: str, queue_id: int) -> OrderedPopLock | None:
        """The lock of a queue; None without one."""
        queues = self._held.get(f"{topic}{SEPARATOR}{group}")
        return None if queues is None else queues.get(queue_id)

    def put(self, group: str, topic: str, queue_id: int, held: OrderedPopLock) -> None:
        """Set the lock of a queue."""
        self._held.setdefault(f"{topic}{SEPARATOR}{group}", {})[queue_id] = held
        self.unsaved = True

    def free(self, group: str, topic: str, queue_id: int) -> None:
        """Remove the lock of a queue."""
        queues = self._held.get(key := f"{topic}{SEPARATOR}{group}")
        if queues is not None and queues.pop(queue_id, None) is not None:
            self.unsaved = True
            if not queues:
                del self._held[key]

    def forget(self, *, topics: Iterable[str] = (), group: str | None = None) -> None:
        """Remove the locks of deleted topics, or of a deleted group."""
        gone = set(topics)
        for key in list(self._held):
            topic, _, name = key.rpartition(SEPARATOR)
            if topic in gone or name == group:
                del self._held[key]
                self.unsaved = True

    def take(self, table: OrderTable) -> None:
        """Take the content of the file."""
        self._held = {
            key: {queue_id: _held(info) for queue_id, info in queues.items() if info.offsets}
            for key, queues in table.table.items()
        }

    def content(self) -> OrderTable:
        """The content to save."""
        return OrderTable(
            table={
                key: {queue_id: _info(held) for queue_id, held in queues.items()}
                for key, queues in self._held.items()
            }
        )


def _held(info: OrderInfo) -> OrderedPopLock:
    first, *others = info.offsets or [0]
    return OrderedPopLock(
        pop_ms=info.pop_ms,
        invisible_ms=info.invisible_ms or 0,
        offsets=[first, *(first + other for other in others)],
        visible_ms=dict(info.visible_ms or {}),
        times=dict(info.times or {}),
        acked=info.acked,
        attempt=info.attempt,
        suspended=set(info.suspended or ()),
    )


def _info(held: OrderedPopLock) -> OrderInfo:
    first, *others = held.offsets
    return OrderInfo(
        pop_ms=held.pop_ms,
        invisible_ms=held.invisible_ms,
        offsets=[first, *(other - first for other in others)],
        visible_ms=dict(held.visible_ms),
        times=dict(held.times),
        taken_ms=held.pop_ms,
        acked=held.acked,
        attempt=held.attempt,
        suspended=set(held.suspended) or None,
    )
