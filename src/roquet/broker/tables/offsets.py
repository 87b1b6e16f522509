"""Consumer offsets: how far each group is in each queue."""

from roquet.broker.tables.table import Table, TableFile
from roquet.model.topic import OffsetTable

SEPARATOR = "@"
"""Between topic and group in a key: neither may hold it."""


class Offsets(Table[OffsetTable]):
    """Progress by group, topic and queue: the offset of the next message to handle."""

    kind = OffsetTable

    def __init__(self, file: TableFile | None) -> None:
        self._offsets: dict[str, dict[int, int]] = {}
        super().__init__(file)

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """A group's progress in a queue."""
        queues = self._offsets.get(f"{topic}{SEPARATOR}{group}")
        return queues.get(queue_id) if queues is not None else None

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note a group's progress; it may go back, when an operator wants it to."""
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.unsaved = True

    def topics(self, group: str) -> list[str]:
        """The topics of which a group has progress."""
        keys = (key.rpartition(SEPARATOR) for key in self._offsets)
        return [topic for topic, _, name in keys if name == group]

    def groups(self) -> list[str]:
        """The groups that have progress."""
        return sorted({key.rpartition(SEPARATOR)[2] for key in self._offsets})

    def remove_topic(self, topic: str) -> None:
        """Forget all progress in a topic."""
        self._remove([k for k in self._offsets if k.rpartition(SEPARATOR)[0] == topic])

    def remove_group(self, group: str) -> None:
        """Forget all progress of a group."""
        self._remove([k for k in self._offsets if k.rpartition(SEPARATOR)[2] == group])

    def take(self, found: OffsetTable) -> None:
        """Hold what the file said."""
        self.version = found.data_version
        self._offsets = {key: dict(queues) for key, queues in found.offset_table.items()}

    def content(self) -> OffsetTable:
        """What the file should say."""
        return OffsetTable(offset_table=self._offsets, data_version=self.version)

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            del self._offsets[key]
            self.unsaved = True
