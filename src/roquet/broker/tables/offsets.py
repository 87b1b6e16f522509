"""ConsumerOffsets: the progress of each group in each queue."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from roquet.broker.tables.saved_table import SavedTable, TableFile
from roquet.model.topic import DataVersion, OffsetTable

SEPARATOR = "@"
"""Separates topic and group in a key; neither may contain it."""

OffsetRows: TypeAlias = dict[str, dict[int, int]]
"""Offsets by "topic@group" and queue id."""

REMOVED_MAX: Final = 10_000
"""Removed rows that are remembered for replicas. One that has not asked since the oldest of them
keeps progress of groups or topics that are gone."""


def _unchanged(_rows: OffsetRows) -> None:
    """All progress may be saved."""


class ConsumerOffsets(SavedTable[OffsetTable]):
    """Offsets of the next message to handle, by group, topic and queue."""

    kind = OffsetTable

    def __init__(self, file: TableFile | None) -> None:
        self._offsets: dict[str, dict[int, int]] = {}
        self._changed: dict[str, int] = {}
        """Edition of the last change of each key that has changed in this process, latest last."""
        self.before_save: Callable[[OffsetRows], object] = _unchanged
        """Lowers progress in rows that are about to be saved."""
        super().__init__(file)

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """A group's offset in a queue; None without progress."""
        queues = self._offsets.get(f"{topic}{SEPARATOR}{group}")
        return queues.get(queue_id) if queues is not None else None

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set a group's offset in a queue; an operator may also move it back."""
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self._note(key)

    def restore(self, group: str, topic: str, queue_id: int, offset: int | None) -> None:
        """Restore an earlier offset of a group; None removes it."""
        if offset is not None:
            self.commit(group, topic, queue_id, offset)
            return
        key = f"{topic}{SEPARATOR}{group}"
        if self._offsets.get(key, {}).pop(queue_id, None) is not None:
            self._note(key)

    def note_changed(self, keys: Iterable[str]) -> None:
        """Have these rows saved and copied again: they were lowered the last time."""
        for key in keys:
            self._note(key)

    def lower(self, end: Callable[[str, int], int]) -> int:
        """Lower offsets beyond the ends of queues to the ends; returns how many changed."""
        return sum(self.lowering(end))

    def lowering(self, end: Callable[[str, int], int]) -> Iterator[bool]:
        """Lower them in steps of one offset each: whether it was beyond its queue's end."""
        for key in list(self._offsets):
            topic = key.rpartition(SEPARATOR)[0]
            for queue_id in list(self._offsets.get(key, ())):
                queues, until = self._offsets.get(key, {}), end(topic, queue_id)
                if is_beyond := queues.get(queue_id, 0) > until:
                    queues[queue_id] = until
                    self._note(key)
                yield is_beyond

    def topics(self, group: str) -> list[str]:
        """The topics of which a group has progress."""
        if SEPARATOR in group:  # no key ends like that
            return []
        end = f"{SEPARATOR}{group}"
        return [key.removesuffix(end) for key in self._offsets if key.endswith(end)]

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have progress in a topic."""
        begin = f"{topic}{SEPARATOR}"
        found = [key.removeprefix(begin) for key in self._offsets if key.startswith(begin)]
        return [group for group in found if SEPARATOR not in group]

    def by_place(self) -> Iterable[tuple[str, Mapping[int, int]]]:
        """All offsets: "topic@group", and the offsets by queue id."""
        return self._offsets.items()

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """A group's offsets in a topic, by queue id."""
        return self._offsets.get(f"{topic}{SEPARATOR}{group}", {})

    def by_group(self) -> dict[str, list[str]]:
        """The topics of each group that has progress."""
        topics: dict[str, list[str]] = {}
        for key in self._offsets:
            topic, _, group = key.rpartition(SEPARATOR)
            topics.setdefault(group, []).append(topic)
        return topics

    def groups(self) -> list[str]:
        """The groups that have progress."""
        return sorted({key.rpartition(SEPARATOR)[2] for key in self._offsets})

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy one group's progress in a topic to another group."""
        if queues := self._offsets.get(f"{topic}{SEPARATOR}{source}"):
            key = f"{topic}{SEPARATOR}{target}"
            self._offsets[key] = dict(queues)
            self._note(key)

    def changed_since(self, edition: int) -> dict[str, dict[int, int]]:
        """The offsets of every "topic@group" that has changed since an edition of this process.

        Without progress any more, it has no queues.
        """
        changed: dict[str, dict[int, int]] = {}
        for key, last in reversed(self._changed.items()):
            if last <= edition:
                break
            changed[key] = dict(self._offsets.get(key, {}))
        return changed

    def copy(self, rows: Mapping[str, Mapping[int, int]], version: DataVersion | None) -> None:
        """Take rows of the master's table: each replaces the own one, also by lower offsets.

        Other rows stay, as in Apache's broker. A row without queues is removed.
        """
        for key, queues in rows.items():
            if self._offsets.get(key, {}) != queues:
                self._offsets[key] = dict(queues)
                self._note(key)
            if not queues:
                self._offsets.pop(key, None)
        self.version = version or self.version

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Remove all progress in a queue."""
        for key, queues in self._offsets.items():
            if key.rpartition(SEPARATOR)[0] == topic and queues.pop(queue_id, None) is not None:
                self._note(key)

    def remove_topics(self, topics: Collection[str]) -> None:
        """Remove all progress in topics."""
        gone = frozenset(topics)
        self._remove([k for k in self._offsets if k.rpartition(SEPARATOR)[0] in gone])

    def remove_group(self, group: str) -> None:
        """Remove all progress of a group."""
        self._remove([k for k in self._offsets if k.rpartition(SEPARATOR)[2] == group])

    def take(self, table: OffsetTable) -> None:
        """Take the content of the file."""
        self.version = table.data_version
        self._offsets = {key: dict(queues) for key, queues in table.offset_table.items()}

    def content(self) -> OffsetTable:
        """The content to save."""
        offsets = {key: dict(queues) for key, queues in self._offsets.items()}
        self.before_save(offsets)
        return OffsetTable(offset_table=offsets, data_version=self.version)

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            del self._offsets[key]
            self._note(key)

    def _note(self, key: str) -> None:
        self.unsaved = True
        self._changed.pop(key, None)  # the latest change is the last entry
        self._changed[key] = self.edition
        if len(self._changed) > len(self._offsets) + REMOVED_MAX:
            del self._changed[next(iter(self._changed))]
