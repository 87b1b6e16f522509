"""Topics: the queue counts and permissions of the topics on this broker."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from roquet.broker.refusals import no_topic
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.saved_table import NO_CHANGE, SavedTable, TableChange, TableFile
from roquet.model import names
from roquet.model.flags import Permission
from roquet.model.topic import READ_WRITE, DataVersion, TopicConfig, TopicTable
from roquet.rules import topic_id
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS

UNIT: Final = 1
UNIT_SUBSCRIPTION: Final = 2
"""Topic flags of a client in unit mode: for an ordinary topic, and for a retry topic."""

INHERITABLE: Final = READ_WRITE | Permission.INHERIT


class Topics(SavedTable[TopicTable]):
    """The topics of this broker; a new one is saved before its first message is stored."""

    kind = TopicTable

    def __init__(
        self,
        file: TableFile | None,
        config: BrokerConfig,
        now_ms: int,
        has_messages: Callable[[str], bool] = lambda _: False,
        was_deleted: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`has_messages` tells whether the store holds messages of a topic that are not deleted.

        `was_deleted` tells whether the log may hold records of a topic from before its deletion.
        """
        self._configs: dict[str, TopicConfig] = {}
        self._has_messages = has_messages
        self._was_deleted = was_deleted
        self.ids: dict[str, str] = {}
        """Topic ids: a topic that is deleted and created again gets another. System topics, which
        cannot be deleted, have none."""
        self._auto_create = config.auto_create_topic
        self.has_adopted = False
        """Whether some broker wrote the directory that gives no ids, as Apache's does."""
        self.sendable: dict[str, TopicConfig] = {}
        """Topics that clients may send to: the hot path of a send reads only this."""
        self.on_change: list[Callable[[], object]] = []
        self._provisional: set[str] = set()
        """Topics that may not be saved yet; they are saved before their first message."""
        super().__init__(file)
        self._add_system_topics(config, now_ms)
        self._adopt(config, now_ms)

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._configs.values())

    def get(self, topic: str) -> TopicConfig | None:
        """A topic's settings, if it exists here."""
        return self._configs.get(topic)

    def write_queues(self, topic: str) -> int:
        """Number of queues of a topic that take messages; 0 for an unknown topic."""
        config = self._configs.get(topic)
        return 0 if config is None else config.write_queue_nums

    def check_id(self, topic: str, known: str | None) -> None:
        """CallRefused for a request about a topic that was deleted, though its name is here again.

        `known` is the id of the topic that the client means; None is any topic of that name.
        """
        if known is not None and topic_id.is_other_topic(known, self.ids.get(topic)):
            raise no_topic(
                f"topic {topic} was deleted and made anew: offsets of the one before mean nothing"
            )

    def put(self, config: TopicConfig, now_ms: int) -> None:
        """Create a topic, or change its settings. Nothing changes when the save fails."""
        self.put_all([config], now_ms)

    def put_all(self, configs: Iterable[TopicConfig], now_ms: int) -> None:
        """Create topics, or change their settings: all of them or none."""
        self.change_now(self.begin_put(configs, now_ms))
        self._confirm(list(self._provisional))

    def begin_put(self, configs: Iterable[TopicConfig], now_ms: int) -> TableChange:
        """Begin to create topics or change their settings; senders see them when it is saved."""
        fresh = {c.topic_name: c for c in configs if self._configs.get(c.topic_name) != c}
        if not fresh:
            return NO_CHANGE
        before = {name: self._configs.get(name) for name in fresh}
        for name, config in fresh.items():
            self._configs[name] = config
            if before[name] is None:
                self._identify(name, now_ms)
        self._provisional.update(fresh)
        self.touch(now_ms)

        def undo() -> None:
            for name, config_before in before.items():
                if self._configs.get(name) is fresh[name]:
                    self._restore(name, config_before)
            self.touch(now_ms)

        def done() -> None:
            self._confirm(name for name in fresh if name in self._configs)
            self._tell()

        return TableChange(undo, done)

    def remove(self, topic: str, now_ms: int) -> None:
        """Remove a topic."""
        self.remove_all([topic], now_ms)

    def remove_all(self, topics: Iterable[str], now_ms: int) -> None:
        """Remove topics."""
        gone = [topic for topic in topics if topic in self._configs]
        for topic in gone:
            self._drop(topic)
        if gone:
            self._changed(now_ms)
        else:
            self.save()

    def renew_ids(self, topics: Iterable[str], now_ms: int) -> None:
        """Give topics new ids before they are deleted, and save them.

        A kill in the middle of the deletion may leave a topic whose offsets begin at 0 again: it
        must not look like the one before.
        """
        known = [topic for topic in topics if topic in self._configs]
        edition = self.version.counter + 1
        self.ids |= dict.fromkeys(known, topic_id.new_id(now_ms, edition))
        if known:
            self.touch(now_ms)
            self.save()

    def copy(
        self,
        changed: Iterable[TopicConfig],
        ids: Mapping[str, str] | None,
        version: DataVersion,
        now_ms: int,
    ) -> None:
        """Take topics of the master with its ids and its version; the caller saves them.

        `ids`: of all topics of the master; None for a master that gives none: a topic that is new
        here gets an adopted id then.
        """
        fresh = list(changed)
        for config in fresh:
            self._provisional.discard(config.topic_name)
            self._keep(config)
        known = self.ids.copy()
        if ids is not None:
            self.ids |= {name: text for name, text in ids.items() if name in self._configs}
        else:
            new = [c.topic_name for c in fresh if c.topic_name not in known]
            self.ids |= dict.fromkeys(new, topic_id.adopted_id(now_ms, version.counter))
        if self.ids != known:
            self._note_adopted()
        if fresh or self.ids != known or self.version != version:
            self.version = version
            self.unsaved = True
        if fresh:
            self._tell()

    def configure(self, config: BrokerConfig, now_ms: int) -> None:
        """Apply changed settings: add missing system topics, and register at name servers again."""
        self._auto_create = config.auto_create_topic
        for topic in system_topics(config):
            if topic.topic_name not in self._configs:
                self._keep(topic)
        self._changed(now_ms)

    def create_for_send(
        self, topic: str, default_topic: str, queue_count: int, unit_mode: bool, now_ms: int
    ) -> TopicConfig | None:
        """The topic, created with the settings of its first sender.

        None when that is not allowed.
        """
        if names.is_retry(topic):
            flag = UNIT_SUBSCRIPTION if unit_mode else 0
            return self.create_for_group(topic, 1, now_ms, flag)
        if (config := self._configs.get(topic)) is not None and topic in self._provisional:
            self._save_provisional()
            return config
        parent = self._configs.get(default_topic)
        if parent is None or not parent.perm & Permission.INHERIT:
            return None
        if default_topic == names.AUTO_CREATE_TOPIC and not self._auto_create:
            return None
        count = max(1, min(queue_count, parent.write_queue_nums))
        made = TopicConfig(
            topic_name=topic,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=int(parent.perm & ~Permission.INHERIT),
            topic_filter_type=parent.topic_filter_type,
            topic_sys_flag=UNIT if unit_mode else 0,
        )
        self.put(made, now_ms)
        return made

    def create_for_group(
        self, topic: str, queue_count: int, now_ms: int, sys_flag: int = 0
    ) -> TopicConfig:
        """A topic of a group (retry or dead-letter), created if it does not exist."""
        config = self._configs.get(topic)
        if config is None:
            config = _topic(topic, queue_count, sys_flag=sys_flag)
            self.put(config, now_ms)
        elif topic in self._provisional:
            self._save_provisional()
        return config

    def announce_for_groups(self, queue_counts: Mapping[str, int], now_ms: int) -> None:
        """Create the retry topics of new groups; they are saved with the next save of the table.

        Hundreds of groups may come in one heartbeat. A topic that gets a message before that save
        is saved first.
        """
        fresh = {t: count for t, count in queue_counts.items() if t not in self._configs}
        if not fresh:
            return
        for topic, count in fresh.items():
            self._configs[topic] = _topic(topic, count)
            self._identify(topic, now_ms)
        self._provisional.update(fresh)
        self.touch(now_ms)
        self._tell()

    def take(self, table: TopicTable) -> None:
        """Take the content of the file."""
        self.version = table.data_version
        for name, config in table.topic_config_table.items():
            self._keep(config if config.topic_name else replace(config, topic_name=name))
        self.ids = dict(table.topic_ids or {})

    def content(self) -> TopicTable:
        """The content to save, and to register at name servers."""
        return TopicTable(
            topic_config_table=dict(self._configs),
            data_version=self.version,
            topic_ids=dict(self.ids) or None,
        )

    def _keep(self, config: TopicConfig) -> None:
        name = config.topic_name
        self._configs[name] = config
        if names.topic_fault(name) is None and names.can_clients_send_to(name):
            self.sendable[name] = config

    def _drop(self, topic: str) -> None:
        self._configs.pop(topic, None)
        self.sendable.pop(topic, None)
        self.ids.pop(topic, None)
        self._provisional.discard(topic)

    def _save_provisional(self) -> None:
        """Save topics before a first message: a save in another thread may not have ended."""
        self.unsaved = True
        self.save()
        self._confirm(list(self._provisional))

    def _restore(self, topic: str, config: TopicConfig | None) -> None:
        if config is None:
            self._drop(topic)
        else:
            self._provisional.discard(topic)
            self._keep(config)

    def _confirm(self, topics: Iterable[str]) -> None:
        """Note that topics are saved: clients may send to them."""
        for topic in topics:
            self._provisional.discard(topic)
            self._keep(self._configs[topic])

    def _changed(self, now_ms: int) -> None:
        self.touch(now_ms)
        self.save()
        self._confirm(list(self._provisional))
        self._tell()

    def _tell(self) -> None:
        for tell in self.on_change:
            tell()

    def _add_system_topics(self, config: BrokerConfig, now_ms: int) -> None:
        missing = [t for t in system_topics(config) if t.topic_name not in self._configs]
        for topic in missing:
            self._keep(topic)
        if missing:
            self._changed(now_ms)

    def _identify(self, topic: str, now_ms: int) -> None:
        """Give a new topic its id; a topic with stored messages keeps being the one before.

        A lost table of topics is created again by senders: these are not other topics.
        """
        if names.is_retry(topic) and not self._has_messages(topic) and not self._was_deleted(topic):
            self.ids[topic] = topic_id.FIRST
            return
        give = topic_id.adopted_id if self._has_messages(topic) else topic_id.new_id
        self.ids[topic] = give(now_ms, self.version.counter + 1)

    def _adopt(self, config: BrokerConfig, now_ms: int) -> None:
        """Give ids to the topics of a directory without ids, as a genuine broker leaves it."""
        edition = self.version.counter + 1
        system = {topic.topic_name for topic in system_topics(config)}
        without = self._configs.keys() - self.ids.keys() - system
        gone = self.ids.keys() - self._configs.keys()
        self.ids |= dict.fromkeys(sorted(without), topic_id.adopted_id(now_ms, edition))
        for topic in gone:
            del self.ids[topic]
        self._note_adopted()
        if without:
            self._changed(now_ms)

    def _note_adopted(self) -> None:
        self.has_adopted = any(map(topic_id.is_adopted, self.ids.values()))


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The topics that exist on every broker."""
    cluster, broker = config.cluster_name, config.broker_name
    topics = [
        _topic(cluster, 16, INHERITABLE),
        _topic(broker, 1, INHERITABLE),
        _topic(names.SELF_TEST_TOPIC, 1),
        _topic(names.BENCHMARK_TOPIC, 1024),
        _topic(names.OFFSET_MOVED_TOPIC, 1),
        _topic(names.SCHEDULE_TOPIC, max(len(DEFAULT_LEVELS), len(config.message_delay_levels))),
        _topic(names.reply_topic(cluster), 1),
        _topic(f"{names.REVIVE_PREFIX}{cluster}", 8),
        _topic(f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, Permission.INHERIT),
        _topic(names.HALF_TOPIC, 1),
        _topic(names.OP_HALF_TOPIC, 1),
        _topic(names.TIMER_TOPIC, 1),
    ]
    if config.auto_create_topic:
        topics.append(_topic(names.AUTO_CREATE_TOPIC, config.default_queue_count, INHERITABLE))
    if config.trace_topic:
        topics.append(_topic(names.TRACE_TOPIC, 1))
    return topics


def system_topic_names(config: BrokerConfig) -> frozenset[str]:
    """The topics that the genuine broker calls system topics; some exist on no broker of ours."""
    return names.SYSTEM_TOPICS.union(topic.topic_name for topic in system_topics(config))


def is_system_topic(topic: str, config: BrokerConfig) -> bool:
    """Whether a topic is the broker's own: clients may not create or delete it."""
    return (
        topic in names.BROKER_ONLY_TOPICS
        or topic.startswith(names.SYSTEM_TOPIC_PREFIX)
        or any(topic == system.topic_name for system in system_topics(config))
    )


def _topic(name: str, count: int, perm: int = READ_WRITE, sys_flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=count,
        write_queue_nums=count,
        perm=int(perm),
        topic_sys_flag=sys_flag,
    )
