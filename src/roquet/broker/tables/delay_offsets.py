"""Delay offsets: how far the messages of each delay level have been delivered."""

import msgspec

from roquet.broker.tables.saved_table import SavedTable, TableFile
from roquet.model.topic import DataVersion


class DelayOffsetTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Level → the offset of its next message: config/delayOffset.json."""

    offset_table: dict[int, int] = {}
    data_version: DataVersion = DataVersion()


class DelayOffsets(SavedTable[DelayOffsetTable]):
    """Progress by delay level; 1 is the first."""

    kind = DelayOffsetTable

    def __init__(self, file: TableFile | None) -> None:
        self._offsets: dict[int, int] = {}
        super().__init__(file)

    def get(self, level: int) -> int:
        """The offset of a level's next message."""
        return self._offsets.get(level, 0)

    def advance(self, level: int, offset: int) -> None:
        """Note that everything before an offset has been delivered."""
        if self._offsets.get(level) != offset:
            self._offsets[level] = offset
            self.unsaved = True

    def used(self) -> dict[int, int]:
        """The levels of which messages have been delivered, and how far they are."""
        return {level: offset for level, offset in self._offsets.items() if offset}

    def copy(self, table: DelayOffsetTable) -> None:
        """Take the master's table in place of the own one."""
        if self._offsets != table.offset_table or self.version != table.data_version:
            self.take(table)
            self.unsaved = True

    def take(self, table: DelayOffsetTable) -> None:
        """Take the content of the file."""
        self.version = table.data_version
        self._offsets = dict(table.offset_table)

    def content(self) -> DelayOffsetTable:
        """The content to save."""
        return DelayOffsetTable(offset_table=dict(self._offsets), data_version=self.version)
