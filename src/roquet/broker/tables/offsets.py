"""Consumer offsets: how far each group is in each queue."""

from collections.abc import Callable, Collection, Iterable, Mapping

from roquet.broker.tables.saved_table import SavedTable, TableFile
from roquet.model.topic import OffsetTable

SEPARATOR = "@"
"""Between topic and group in a key: neither may hold it."""


class ConsumerOffsets(SavedTable[OffsetTable]):
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

    def restore(self, group: str, topic: str, queue_id: int, offset: int | None) -> None:
        """Note the progress that a group had before; None where it had none."""
        if offset is not None:
            self.commit(group, topic, queue_id, offset)
            return
        queues = self._offsets.get(f"{topic}{SEPARATOR}{group}", {})
        if queues.pop(queue_id, None) is not None:
            self.unsaved = True

    def lower(self, end: Callable[[str, int], int]) -> int:
        """Take progress beyond the ends of queues back to them; the number of entries changed."""
        beyond = [
            (queues, queue_id, until)
            for key, queues in self._offsets.items()
            for queue_id, offset in queues.items()
            if offset > (until := end(key.rpartition(SEPARATOR)[0], queue_id))
        ]
        for queues, queue_id, until in beyond:
            queues[queue_id] = until
        self.unsaved |= bool(beyond)
        return len(beyond)

    def topics(self, group: str) -> list[str]:
        """The topics of which a group has progress."""
        keys = (key.rpartition(SEPARATOR) for key in self._offsets)
        return [topic for topic, _, name in keys if name == group]

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have progress in a topic."""
        keys = (key.rpartition(SEPARATOR) for key in self._offsets)
        return [group for name, _, group in keys if name == topic]

    def by_place(self) -> Iterable[tuple[str, Mapping[int, int]]]:
        """All progress: "topic@group", and the queues."""
        return self._offsets.items()

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """A group's progress in all queues of a topic."""
        return self._offsets.get(f"{topic}{SEPARATOR}{group}", {})

    def by_group(self) -> dict[str, list[str]]:
        """The topics of each group that has progress."""
        found: dict[str, list[str]] = {}
        for key in self._offsets:
            topic, _, group = key.rpartition(SEPARATOR)
            found.setdefault(group, []).append(topic)
        return found

    def groups(self) -> list[str]:
        """The groups that have progress."""
        return sorted({key.rpartition(SEPARATOR)[2] for key in self._offsets})

    def clone(self, source: str, target: str, topic: str) -> None:
        """One group's progress in a topic becomes another's, too."""
        if queues := self._offsets.get(f"{topic}{SEPARATOR}{source}"):
            self._offsets[f"{topic}{SEPARATOR}{target}"] = dict(queues)
            self.unsaved = True

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Forget all progress in one queue."""
        for key, queues in self._offsets.items():
            if key.rpartition(SEPARATOR)[0] == topic and queues.pop(queue_id, None) is not None:
                self.unsaved = True

    def remove_topics(self, topics: Collection[str]) -> None:
        """Forget all progress in topics."""
        gone = frozenset(topics)
        self._remove([k for k in self._offsets if k.rpartition(SEPARATOR)[0] in gone])

    def remove_group(self, group: str) -> None:
        """Forget all progress of a group."""
        self._remove([k for k in self._offsets if k.rpartition(SEPARATOR)[2] == group])

    def take(self, found: OffsetTable) -> None:
        """Hold what the file said."""
        self.version = found.data_version
        self._offsets = {key: dict(queues) for key, queues in found.offset_table.items()}

    def content(self) -> OffsetTable:
        """What the file should say."""
        offsets = {key: dict(queues) for key, queues in self._offsets.items()}
        return OffsetTable(offset_table=offsets, data_version=self.version)

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            del self._offsets[key]
            self.unsaved = True
