"""RequestModes: whether a group pulls or pops a topic."""

import msgspec

from roquet.broker.tables.saved_table import NO_CHANGE, SavedTable, TableChange, TableFile
from roquet.wire.calls.bodies import RequestMode


class RequestModeTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All request modes of one broker: config/messageRequestMode.json."""

    message_request_mode_map: dict[str, dict[str, RequestMode]] = {}
    """Topic → group → mode. Unlike other tables it has no version."""


class RequestModes(SavedTable[RequestModeTable]):
    """Modes that operators set; other groups follow the broker's settings."""

    kind = RequestModeTable

    def __init__(self, file: TableFile | None) -> None:
        self._modes: dict[str, dict[str, RequestMode]] = {}
        super().__init__(file)

    def get(self, topic: str, group: str) -> RequestMode | None:
        """The mode set for a group and a topic; None without one."""
        return self._modes.get(topic, {}).get(group)

    def put(self, mode: RequestMode) -> None:
        """Set a group's mode; it is on the disk when this returns.

        Nothing changes when the save fails.
        """
        self.change_now(self.begin_put(mode))

    def begin_put(self, mode: RequestMode) -> TableChange:
        """Begin to set a group's mode."""
        before = self.get(mode.topic, mode.consumer_group)
        if before == mode:
            return NO_CHANGE
        self._set(mode)
        self.unsaved = True

        def undo() -> None:
            if self.get(mode.topic, mode.consumer_group) is mode:
                self._unset(mode) if before is None else self._set(before)
            self.unsaved = True

        return TableChange(undo, NO_CHANGE.done)

    def copy(self, table: RequestModeTable) -> None:
        """Take the master's table in place of the own one."""
        if self.content() != table:
            self.take(table)
            self.unsaved = True

    def take(self, table: RequestModeTable) -> None:
        """Take the content of the file."""
        self._modes = {t: dict(groups) for t, groups in table.message_request_mode_map.items()}

    def content(self) -> RequestModeTable:
        """The content to save."""
        modes = {topic: dict(groups) for topic, groups in self._modes.items()}
        return RequestModeTable(message_request_mode_map=modes)

    def _set(self, mode: RequestMode) -> None:
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode

    def _unset(self, mode: RequestMode) -> None:
        groups = self._modes[mode.topic]
        del groups[mode.consumer_group]
        if not groups:
            del self._modes[mode.topic]
