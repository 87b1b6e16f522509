"""Startup: services read what was noted, losses are reported, and a replica becomes the master."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from roquet.broker.broker import Broker
from roquet.broker.ingest.set_aside import REVIVE, TRANSACTIONS
from roquet.broker.operations.progress import OFFSET_MAX
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.saved_table import SavedTable
from roquet.broker.tables.topics import is_system_topic
from roquet.log_records import logger
from roquet.model.names import TIMER_TOPIC
from roquet.observe.log_levels import apply_log_levels
from roquet.store.replication.queue_builder import Arrival, QueueOffsetMismatch
from roquet.store.store import Store

log = logger(__name__)

NOT_ITS_OWN: Final = (
    "this broker is a replica, or another broker may lead: the log is not its own now"
)
"""Why the store takes no message of the broker's own."""

DISPATCH_COUNT: Final = 128
"""Records dispatched before others have their turn: less than a millisecond."""

QUEUES_A_TURN: Final = 32
"""Queues whose ends are looked at before others have their turn: each is opened for it if nobody
has used it since the start, which takes a fraction of a millisecond."""


def restore(broker: Broker) -> None:
    """Read what services noted in the log before the last stop, and report what is missing.

    A replica does not: its log grows, and its tables are copies that may be ahead of its log.
    """
    config = broker.control.settings.config
    if config.log_levels:
        apply_log_levels(config.log_levels)
    if broker.replication.role.current.is_master:
        broker.delivery.revive.restore()
        broker.delivery.transactions.restore()
        _warn_of_strays(broker)
        _warn_of_lost_tables(broker)
        lower_progress(broker)
    close_foreign_log(broker)
    if (fault := broker.delivery.timer.retention_fault(config.retention)) is not None:
        log.warning("%s", fault)
    warn_of_long_delays(config)


async def take_over(broker: Broker) -> bool:
    """Make this replica a master: its log becomes its own, and services go on from there.

    Its stream has ended. Returns False if the role was lost, even briefly: it has to be called
    again then before this broker serves. Raises StoreError, and may be called again then, too.
    """
    store, position = broker.log.store, -1
    leads = broker.replication.role.unbroken_activity()
    store.raw.cut_torn()
    broker.log.flush.follow_cut()
    while store.raw.dispatched != position:
        position = store.raw.dispatched
        for arrival in _dispatch(store):
            broker.log.arrivals.arrived(
                arrival.topic, arrival.queue_id, arrival.offset, arrival.tag_codes
            )
        await asyncio.sleep(0)
        if not leads():
            return False
    with broker.delivery.set_aside.deferring(REVIVE, TRANSACTIONS) as set_aside:
        await take_lead(broker, broker.replication.role.current.epoch)
    if not leads():
        return False
    store.refuse_appends(None)
    broker.replication.role.note_taken_over()
    for store_copy in set_aside:
        store_copy()
    if broker.replication.controller_mode is not None:
        broker.delivery.checkpoints.begin()
    log.info("this broker is the master now: its log ends at %d", store.end_position)
    return True


def _dispatch(store: Store) -> list[Arrival]:
    """Dispatch some records of the copied log.

    A queue that begins again belongs to a topic that the former master deleted and made anew, and
    was lost before it could tell.
    """
    while True:
        try:
            return store.raw.dispatch(DISPATCH_COUNT)
        except QueueOffsetMismatch as error:
            if error.found != 0:
                raise
            log.warning("topic %s was deleted and made anew at the former master", error.topic)
            store.delete_topic_before(error.topic, error.position)


async def hand_over(broker: Broker) -> None:
    """Bring a master's work to an end: from now on the log is another broker's."""
    delivery, tables, now_ms = broker.delivery, broker.tables, broker.control.clock.now_ms()
    await delivery.checkpoints.go_back(may_wait=broker.replication.role.current.is_master)
    await delivery.delay.save(now_ms)
    await delivery.timer.save(now_ms)
    tables.offset_resets.pending.clear()
    tables.former_readers.pending.clear()
    log.info("this broker is a replica now: its log ends at %d", broker.log.store.end_position)


def close_foreign_log(broker: Broker) -> None:
    """Let nothing of the broker's own into a log that is not, or may not be, its own any more."""
    if not broker.replication.role.current.is_active:
        broker.log.store.refuse_appends(NOT_ITS_OWN)


def _warn_of_strays(broker: Broker) -> None:
    """Log that messages cannot be read because their topic's settings are gone."""
    topics = broker.tables.topics
    strays = sorted(topic for topic in broker.log.store.topics() if topics.get(topic) is None)
    if strays:
        log.warning(
            "there are messages of %d topics without settings, as %s: create a topic to read them",
            len(strays),
            strays[0],
        )


def _warn_of_lost_tables(broker: Broker) -> None:
    """Log which tables are gone that a broker with messages must have written."""
    directory = broker.control.settings.config.store_dir
    offsets = broker.tables.offsets
    tables: dict[str, SavedTable[Any]] = {
        "topics.json": broker.tables.topics,
        "subscriptionGroup.json": broker.tables.groups,
        "consumerOffset.json": offsets,
    }
    lost = [name for name, table in tables.items() if table.is_new]
    if lost and broker.log.store.end_position and directory is not None:
        log.error(
            "%s has messages, but no %s and no .bak of it: what was in there is lost, and groups"
            " begin as they are set to; stop and restore it from a copy to keep their progress",
            directory / "config",
            ", ".join(lost),
        )
    offsets.unsaved |= offsets.is_new  # from now on a missing one was lost


def warn_of_long_delays(config: BrokerConfig) -> None:
    """Log that messages may be deleted while they wait at a delay level."""
    if (longest := max(config.message_delay_levels, default=0)) >= config.retention:
        log.warning(
            "messages may wait %d ms at a delay level, but files are deleted after %d ms",
            longest,
            config.retention,
        )


def follow_acting_master(broker: Broker) -> None:
    """Begin to stand in for the master, or end that.

    Progress has another version from now on, by which a master that returns prefers it to its own.
    Locks are those of one broker: what was granted before counts no more.
    """
    if broker.replication.acts_as_master:
        broker.tables.offsets.touch(broker.control.clock.now_ms())
    broker.tables.locks.clear()


async def take_lead(broker: Broker, epoch: int) -> None:
    """Prepare the tables and services of a replica that is the master from now on.

    Call it once the end of the log is final and every record has its queue entry, before anything
    is stored and before the services that deliver start. Progress beyond the queues' ends is taken
    back: it is of messages that this log never got, and others will get their offsets. Versions
    rise with the epoch, by which name servers prefer this broker's topics; 0: roles are fixed.
    All that takes long is done in steps, between which others have their turn; the rest is left out
    once the role is taken back.
    """
    leads = broker.replication.role.unbroken_activity()
    if not await _lower_progress_in_steps(broker, leads):
        return
    now_ms = broker.control.clock.now_ms()
    for table in (broker.tables.topics, broker.tables.groups):
        version = table.version
        table.version = replace(version, state_version=max(epoch, version.state_version))
        table.touch(now_ms)
    for steps in (broker.delivery.revive.restoring(), broker.delivery.transactions.restoring()):
        for _ in steps:
            await asyncio.sleep(0)
            if not leads():
                return


def lower_progress(broker: Broker) -> None:
    """Take progress beyond the end of a queue back to that end.

    It is of messages that a loss of power took with the log's tail, or that a replica never got. It
    is taken back before the first new message: those that get the lost ones' offsets would never
    come otherwise. Not for a replica: its master's progress may be ahead of its own queues.
    """
    _report_lowered(broker.tables.offsets.lower(partial(_end_of_queue, broker)))


def prepare_cut(broker: Broker, position: int) -> None:
    """Take back, before a replica's log is cut, progress in messages behind the position.

    A new master that never got them has given their offsets to others, and its tables need not have
    rows of all groups: without this, a group would pass over the others if this broker is elected.
    Durable when this returns, as nothing tells of the cut after a crash. Raises StoreError; the
    next call, before the next try of the cut, does not insist that the table can be written.
    """
    store, offsets, config = broker.log.store, broker.tables.offsets, broker.control.settings.config
    ends = store.raw.ends_at(position)

    def end(topic: str, queue_id: int) -> int:
        is_own = is_system_topic(topic, config)
        return OFFSET_MAX if is_own else ends.get((topic, queue_id), OFFSET_MAX)

    broker.delivery.timer.prepare_cut(ends.get((TIMER_TOPIC, 0), 0))
    if count := offsets.lower(end):
        _report_lowered(count)
        store.flush_log()
        offsets.save()


async def _lower_progress_in_steps(broker: Broker, leads: Callable[[], bool]) -> bool:
    """`lower_progress`, while others have their turn; False once the role is taken back."""
    steps = broker.tables.offsets.lowering(partial(_end_of_queue, broker))
    count = 0
    while changes := list(islice(steps, QUEUES_A_TURN)):
        count += sum(changes)
        await asyncio.sleep(0)
        if not leads():
            break
    _report_lowered(count)
    return leads()


def _end_of_queue(broker: Broker, topic: str, queue_id: int) -> int:
    """Offset beyond which progress is lowered."""
    if is_system_topic(topic, broker.control.settings.config):
        return OFFSET_MAX
    return broker.log.store.bounds(topic, queue_id)[1]


def _report_lowered(count: int) -> None:
    if count:
        log.warning(
            "groups were further than %d queues reach, whose last messages are lost: they go on at"
            " the ends of these queues",
            count,
        )
