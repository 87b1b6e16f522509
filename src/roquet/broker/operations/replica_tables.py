"""Replica tables: what a replica's copies go to, and what becomes of them when it is the master."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from msgspec.structs import replace

from roquet.broker.broker import Broker
from roquet.broker.operations.progress import OFFSET_MAX
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.replication.copies.metadata_copy import CopyTarget, MetadataCopy
from roquet.broker.tables.topics import is_system_topic
from roquet.log_records import logger
from roquet.model.names import TIMER_TOPIC
from roquet.net.pool import ChannelPool

log = logger(__name__)

QUEUES_A_TURN: Final = 32
"""Queues whose ends are looked at before others have their turn: each is opened for it if nobody
has used it since the start, which takes a fraction of a millisecond."""


def metadata_copy(broker: Broker, pool: ChannelPool) -> MetadataCopy:
    """The copier of the master's tables; `step` does nothing while this broker is the master."""
    store, tables, settings = broker.log.store, broker.tables, broker.control.settings
    target = CopyTarget(
        tables=tables,
        timer_metrics=broker.delivery.timer.context.metrics,
        log_end=lambda: store.raw.dispatched,
        following=lambda: broker.replication.stream_client.following,
        flush_log=store.flush_log,
        has_messages=partial(_has_messages, broker),
        deleted_before=store.deleted_before,
        is_system_topic=lambda topic: is_system_topic(topic, settings.config),
        delete_topics=broker.make(TopicDeletion).delete_copied,
        follow_timer=broker.delivery.timer.follow,
    )
    config = settings.config
    group = (config.cluster_name, config.broker_name)
    return MetadataCopy(target, broker.replication.role, group, pool, broker.control.clock)


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


def _has_messages(broker: Broker, topic: str) -> bool:
    store = broker.log.store
    bounds = (store.bounds(topic, queue_id) for queue_id in store.queue_ids(topic))
    return any(first < end for first, end in bounds)
