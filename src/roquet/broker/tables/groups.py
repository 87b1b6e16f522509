"""Groups: the settings of consumer groups."""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.saved_table import NO_CHANGE, SavedTable, TableChange, TableFile
from roquet.model import names
from roquet.model.topic import GroupTable, SubscriptionGroup

FORBIDDEN_READ: Final = 1 << 2
"""Bit of the forbidden table: reading is forbidden (Java's PermName.INDEX_PERM_READ)."""


class Groups(SavedTable[GroupTable]):
    """The consumer groups of this broker."""

    kind = GroupTable

    def __init__(self, file: TableFile | None, settings: RuntimeSettings, now_ms: int) -> None:
        self._configs: dict[str, SubscriptionGroup] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        """By group and topic, bits of what is forbidden; mostly empty, so pulls check it first."""
        self._settings = settings
        super().__init__(file)
        self._add_system_groups(now_ms)

    def __iter__(self) -> Iterator[SubscriptionGroup]:
        return iter(self._configs.values())

    def get(self, group: str) -> SubscriptionGroup | None:
        """A group's settings, if it exists here."""
        return self._configs.get(group)

    def find(self, group: str, now_ms: int) -> SubscriptionGroup | None:
        """A group's settings, created if automatic creation is on and the name is legal.

        A new one is saved with the next save: a group that a crash loses is created again.
        """
        config = self._configs.get(group)
        if config is not None:
            return config
        made = self.announce([group], now_ms)
        return made[0] if made else None

    def default(self, group: str) -> SubscriptionGroup | None:
        """The settings of an automatically created group; None when it would not be created."""
        if not self._may_make(group):
            return None
        return SubscriptionGroup(group_name=group)

    def announce(self, groups: Iterable[str], now_ms: int) -> list[SubscriptionGroup]:
        """The settings of the groups of a heartbeat; new ones are saved with the next save.

        A group that a crash loses is created again by its clients' next heartbeat.
        """
        wanted = dict.fromkeys(groups)
        fresh = [g for g in wanted if g not in self._configs and self._may_make(g)]
        self._configs |= {group: SubscriptionGroup(group_name=group) for group in fresh}
        if fresh:
            self.touch(now_ms)
        return [self._configs[group] for group in wanted if group in self._configs]

    def put(self, config: SubscriptionGroup, now_ms: int) -> None:
        """Create a group, or change its settings. Nothing changes when the save fails."""
        self.change_now(self.begin_put([config], now_ms))

    def begin_put(self, configs: Iterable[SubscriptionGroup], now_ms: int) -> TableChange:
        """Begin to create groups or change their settings: all of them or none."""
        fresh = {c.group_name: c for c in configs if self._configs.get(c.group_name) != c}
        if not fresh:
            return NO_CHANGE
        before = {name: self._configs.get(name) for name in fresh}
        self._configs |= fresh
        self.touch(now_ms)

        def undo() -> None:
            for name, config in before.items():
                if self._configs.get(name) is fresh[name]:
                    del self._configs[name]
                    self._configs |= {} if config is None else {name: config}
            self.touch(now_ms)

        return TableChange(undo, NO_CHANGE.done)

    def begin_remove(self, group: str, now_ms: int) -> TableChange:
        """Begin to remove a group."""
        config, forbidden = self._configs.pop(group, None), self.forbidden.pop(group, None)
        if config is None:
            return NO_CHANGE
        self.touch(now_ms)

        def undo() -> None:
            self._configs.setdefault(group, config)
            if forbidden is not None:
                self.forbidden.setdefault(group, forbidden)
            self.touch(now_ms)

        return TableChange(undo, NO_CHANGE.done)

    def may_read(self, group: str, topic: str) -> bool:
        """Whether a group may read a topic."""
        topics = self.forbidden.get(group)
        return topics is None or not topics.get(topic, 0) & FORBIDDEN_READ

    def begin_forbid(self, group: str, topic: str, now_ms: int, *, readable: bool) -> TableChange:
        """Begin to allow or forbid a group to read a topic."""
        if self.may_read(group, topic) == readable:
            return NO_CHANGE
        self._flip(group, topic, now_ms)

        def undo() -> None:
            if self.may_read(group, topic) == readable:
                self._flip(group, topic, now_ms)

        return TableChange(undo, NO_CHANGE.done)

    def _flip(self, group: str, topic: str, now_ms: int) -> None:
        bits = self.forbidden.setdefault(group, {}).get(topic, 0) ^ FORBIDDEN_READ
        self.forbidden[group][topic] = bits
        if not bits:
            del self.forbidden[group][topic]
        if not self.forbidden[group]:
            del self.forbidden[group]
        self.touch(now_ms)

    def forget_topics(self, topics: Iterable[str], now_ms: int) -> None:
        """Remove what was forbidden of deleted topics: later topics may have the same names."""
        gone = frozenset(topics)
        if any(gone & forbidden.keys() for forbidden in self.forbidden.values()):
            left = {
                group: {topic: bits for topic, bits in forbidden.items() if topic not in gone}
                for group, forbidden in self.forbidden.items()
            }
            self.forbidden = {group: topics for group, topics in left.items() if topics}
            self.touch(now_ms)
            self.save()

    def copy(self, table: GroupTable, *, only_more: bool = False) -> None:
        """Take the master's table in place of the own one; groups of the system stay.

        `only_more`: groups that the master lacks stay, too.
        """
        stay = {
            name: config
            for name, config in self._configs.items()
            if only_more or names.is_system_group(name)
        }
        before = self.content()
        self.take(table)
        self._configs = stay | self._configs
        if only_more:
            self.version = before.data_version
        if self.content() != before:
            self.unsaved = True

    def take(self, table: GroupTable) -> None:
        """Take the content of the file."""
        self.version = table.data_version
        self._configs = {
            name: config if config.group_name else replace(config, group_name=name)
            for name, config in table.subscription_group_table.items()
        }
        self.forbidden = {group: dict(topics) for group, topics in table.forbidden_table.items()}

    def content(self) -> GroupTable:
        """The content to save."""
        return GroupTable(
            subscription_group_table=dict(self._configs),
            forbidden_table={group: dict(topics) for group, topics in self.forbidden.items()},
            data_version=self.version,
        )

    def _may_make(self, group: str) -> bool:
        if names.group_fault(group):
            return False
        return self._settings.config.auto_create_group or names.is_system_group(group)

    def _add_system_groups(self, now_ms: int) -> None:
        missing = sorted(names.SYSTEM_GROUPS - self._configs.keys())
        for group in missing:
            self._configs[group] = SubscriptionGroup(group_name=group)
        if missing:
            self.touch(now_ms)
            self.save()
