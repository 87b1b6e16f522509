"""Unread messages: what groups have not read and services have not delivered, for retention.

topic                     who reads it            from
a user's, retry, DLQ      groups with progress    their offset; 0 in queues without
retry, DLQ                else its group          0
a user's                  else nobody             0
SCHEDULE_TOPIC_XXXX       delayed delivery        the level's progress
rmq_sys_wheel_timer       timer                   what is not on the wheel, or waits there
RMQ_SYS_TRANS_HALF_TOPIC  transactions            the first open half message
any                       pop revival             messages popped and not acknowledged
rmq_sys_REVIVE_LOG_…      pop revival             the first checkpoint that is not settled
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from roquet.broker.broker import Broker
from roquet.broker.services.transactions.transactions import GROUP
from roquet.broker.tables.offsets import SEPARATOR
from roquet.broker.tables.topics import is_system_topic
from roquet.log_records import logger
from roquet.model import names
from roquet.rules.recovery import LostMessages
from roquet.rules.retention import DiskUsage
from roquet.store.layout import FILLER_SIZE

log = logger(__name__)

NOBODY: Final = ""
"""In place of a group: no group reads the topic, or a service of the broker does."""

NAMED_MAX: Final = 10
"""Groups and topics that one line of the log names, those that lost most."""

LOOK_COUNT: Final = 64
"""Entries searched for one that leads to a record: the others are lost already."""

_WAITING: Final[Mapping[str, str]] = {
    names.SCHEDULE_TOPIC: "delayed messages",
    names.TIMER_TOPIC: "messages with a delivery time",
    names.HALF_TOPIC: "open half messages",
}


class UnreadFrom(NamedTuple):
    """A queue of which a group, or nobody, has not read the messages from an offset on."""

    topic: str
    queue_id: int
    offset: int
    group: str


class BrokerUnreadMessages:
    """Unread messages of one broker; see `roquet.store.retention.UnreadMessages`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.log.store
        self._keeper: tuple[str, str] | None = None
        """Topic and group that were last logged as keeping files."""

    def first_position(self, file_end: int, usage: DiskUsage) -> int | None:
        """Position of the first unread message; logs who keeps a file that would be deleted.

        0 if it cannot be found: then files go by their age alone.
        """
        try:
            position, unread = self._first()
        except Exception:
            log.exception("it is not known what is unread: no file younger than retention goes")
            return 0
        if position is None or unread is None:
            return None
        keeper = (unread.topic, unread.group)
        if position < file_end and keeper != self._keeper:
            self._keeper = keeper
            log.warning(
                "the disk is %.0f %% full, and nothing younger than retention is deleted, because"
                " of %s (from position %d of the log on). Sends are refused once it is too full."
                " Let them be read, delete a group or a topic that nobody needs, shorten retention,"
                " add space, or set force_unread, which loses them",
                usage.ratio * 100, _description(unread.topic, unread.group), position,
            )  # fmt: skip
        return position

    def _first(self) -> tuple[int | None, UnreadFrom | None]:
        found = [(at, unread) for unread in self._all() for at in self._positions(unread)]
        waiting = self._broker.delivery.timer.context.timers.first_waiting()
        if waiting is not None:
            found.append((waiting.position, UnreadFrom(names.TIMER_TOPIC, 0, 0, NOBODY)))
        return min(found, default=(None, None))

    def deleting(
        self, messages: Sequence[LostMessages], begin: int, forced_by: DiskUsage | None
    ) -> None:
        """Count the unread ones of messages that retention deletes, and log them."""
        if not self._broker.replication.role.current.is_master:
            return  # the master counts what it deletes
        try:
            counts = self._unread_of(messages, begin, is_forced=forced_by is not None)
        except Exception:  # a full disk must not wait for it
            log.exception("messages that retention deletes unread are not counted")
            return
        for (topic, group), count in counts.items():
            self._broker.log.counts.retention_unread.add(group, topic, count=count)
        if counts:
            most = counts.most_common(NAMED_MAX)
            rest = counts.total() - sum(count for _, count in most)
            log.warning(
                "retention deletes %d unread messages%s: %s%s",
                counts.total(),
                f", since the disk is {forced_by.ratio * 100:.0f} % full" if forced_by else "",
                "; ".join(f"{count} {_description(*key)}" for key, count in most),
                f"; {rest} others" if rest else "",
            )

    def _unread_of(
        self, messages: Sequence[LostMessages], begin: int, *, is_forced: bool
    ) -> Counter[tuple[str, str]]:
        counts: Counter[tuple[str, str]] = Counter()
        groups, stops = self._groups(), dict[tuple[str, int], int]()
        for lost in messages:
            stops[lost.topic, lost.queue_id] = lost.stop
            for unread in self._readers(lost.topic, lost.queue_id, groups):
                if is_forced or unread.group or lost.topic in _WAITING:
                    first = max(lost.first, unread.offset)
                    counts[lost.topic, unread.group] += self._count(lost.topic, first, lost.stop)
        for pop in self._broker.delivery.revive.in_flight:
            reach = max(stops.get((pop.topic, pop.queue_id), 0) - pop.start, 0)
            counts[pop.topic, pop.group] += (pop.left & ((1 << reach) - 1)).bit_count()
        timers = self._broker.delivery.timer.context.timers
        counts[names.TIMER_TOPIC, NOBODY] += timers.waiting_before(begin)
        return +counts

    def _count(self, topic: str, first: int, stop: int) -> int:
        """How many messages of a range wait for somebody: ended half messages do not."""
        if topic != names.HALF_TOPIC:
            return max(stop - first, 0)
        halves = self._broker.delivery.transactions.halves
        return sum(not halves.is_ended(offset) for offset in range(first, stop))

    def _all(self) -> Iterator[UnreadFrom]:
        groups = self._groups()
        for topic in self._store.topics():
            for queue_id in self._store.queue_ids(topic):
                if self._is_removed(topic, queue_id):
                    continue  # nobody can read it, and a resize has waited for those who did
                readers = self._readers(topic, queue_id, groups)
                if (first := min(readers, default=None, key=lambda r: r.offset)) is not None:
                    yield first
        revive = self._broker.delivery.revive
        popped: dict[tuple[str, int], UnreadFrom] = {}
        for pop in revive.in_flight:
            offset = pop.start + (pop.left & -pop.left).bit_length() - 1
            unread = UnreadFrom(pop.topic, pop.queue_id, offset, pop.group)
            popped[unread[:2]] = min(unread, popped.get(unread[:2], unread))
        yield from popped.values()
        for queue_id in self._store.queue_ids(revive.topic) if popped else ():
            settled = self._broker.tables.offsets.get(names.REVIVE_GROUP, revive.topic, queue_id)
            yield UnreadFrom(revive.topic, queue_id, -1 if settled is None else settled + 1, NOBODY)

    def _readers(
        self, topic: str, queue_id: int, groups: Mapping[str, Sequence[str]]
    ) -> Iterator[UnreadFrom]:
        """The readers of a queue, each with the offset from which it reads on."""
        delivery, tables = self._broker.delivery, self._broker.tables
        if topic == names.SCHEDULE_TOPIC:
            offset = tables.delay_offsets.get(queue_id + 1)
            yield UnreadFrom(topic, queue_id, offset, NOBODY)
        elif topic == names.TIMER_TOPIC:
            yield UnreadFrom(topic, queue_id, delivery.timer.context.timers.offset, NOBODY)
        elif topic == names.HALF_TOPIC:
            halves = delivery.transactions.halves
            ended = tables.offsets.get(GROUP, topic, queue_id) or 0  # a replica has this alone
            yield UnreadFrom(topic, queue_id, max(ended, halves.next_open(halves.start)), NOBODY)
        elif topic in groups:
            for group in groups[topic]:
                offset = tables.offsets.get(group, topic, queue_id) or 0
                yield UnreadFrom(topic, queue_id, offset, group)
        elif (group := _group_in(topic)) or not self._is_system(topic):
            yield UnreadFrom(topic, queue_id, 0, group)

    def _is_removed(self, topic: str, queue_id: int) -> bool:
        """Whether a topic of users has had this queue, and has it no more."""
        config = self._broker.tables.topics.get(topic)
        if config is None or topic in _WAITING:
            return False
        return queue_id >= max(config.read_queue_nums, config.write_queue_nums)

    def _groups(self) -> Mapping[str, Sequence[str]]:
        groups: dict[str, list[str]] = defaultdict(list)
        for key, _ in self._broker.tables.offsets.by_place():
            topic, _, group = key.rpartition(SEPARATOR)
            if not names.is_system_group(group):
                groups[topic].append(group)
        return groups

    def _is_system(self, topic: str) -> bool:
        """Whether nobody need read a topic of the broker's own: notes, traces and the like."""
        if topic in (names.SET_ASIDE_TOPIC, names.CHECK_MAX_TIME_TOPIC):
            return False
        config = self._broker.control.settings.config
        return topic in names.SYSTEM_TOPICS or is_system_topic(topic, config)

    def _positions(self, unread: UnreadFrom) -> list[int]:
        """Where the first unread message of a queue lies in the log; empty without one."""
        topic, queue_id, offset, _ = unread
        first = max(offset, self._store.bounds(topic, queue_id)[0])
        entries = self._store.queue_stats.entries(topic, queue_id, first, LOOK_COUNT)
        return [position for position, size, _ in entries if size != FILLER_SIZE][:1]


def _group_in(topic: str) -> str:
    if names.is_retry(topic):
        return names.group_of_retry(topic)
    return topic.removeprefix(names.DLQ_PREFIX) if names.is_dlq(topic) else NOBODY


def _description(topic: str, group: str) -> str:
    """Unread messages in words, behind a number or a preposition."""
    if group:
        return f"messages of topic {topic} that group {group} has not read"
    return _WAITING.get(topic, f"messages of topic {topic}, which no group reads")
