"""Subscription groups: what each consumer group may do."""

from collections.abc import Iterator

from roquet.broker.config import BrokerConfig
from roquet.broker.tables.table import Table, TableFile
from roquet.model import names
from roquet.model.topic import GroupTable, SubscriptionGroup


class Groups(Table[GroupTable]):
    """The consumer groups of this broker."""

    kind = GroupTable

    def __init__(self, file: TableFile | None, config: BrokerConfig, now_ms: int) -> None:
        self._configs: dict[str, SubscriptionGroup] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._auto_create = config.auto_create_group
        super().__init__(file)
        self._add_system_groups(now_ms)

    def __iter__(self) -> Iterator[SubscriptionGroup]:
        return iter(self._configs.values())

    def get(self, group: str) -> SubscriptionGroup | None:
        """A group's settings, if it exists here."""
        return self._configs.get(group)

    def find(self, group: str, now_ms: int) -> SubscriptionGroup | None:
        """A group's settings; made at first sight, where that is allowed and the name is legal."""
        found = self._configs.get(group)
        if found is not None:
            return found
        if names.group_fault(group) or not (self._auto_create or names.is_system_group(group)):
            return None
        made = SubscriptionGroup(group_name=group)
        self.put(made, now_ms)
        return made

    def put(self, config: SubscriptionGroup, now_ms: int) -> None:
        """Create a group, or change its settings."""
        if self._configs.get(config.group_name) != config:
            self._configs[config.group_name] = config
            self.touch(now_ms)
            self.save()

    def remove(self, group: str, now_ms: int) -> None:
        """Forget a group."""
        if self._configs.pop(group, None) is not None:
            self._forbidden.pop(group, None)
            self.touch(now_ms)
            self.save()

    def take(self, found: GroupTable) -> None:
        """Hold what the file said."""
        self.version = found.data_version
        self._configs = dict(found.subscription_group_table)
        self._forbidden = dict(found.forbidden_table)

    def content(self) -> GroupTable:
        """What the file should say."""
        return GroupTable(
            subscription_group_table=dict(self._configs),
            forbidden_table=self._forbidden,
            data_version=self.version,
        )

    def _add_system_groups(self, now_ms: int) -> None:
        missing = sorted(names.SYSTEM_GROUPS - self._configs.keys())
        for group in missing:
            self._configs[group] = SubscriptionGroup(group_name=group)
        if missing:
            self.touch(now_ms)
            self.save()
