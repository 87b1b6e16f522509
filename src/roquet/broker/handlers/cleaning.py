"""Clean-ups that an operator asks for."""

import asyncio
from collections.abc import Sequence
from typing import Final

from roquet.broker.broker import Broker
from roquet.broker.tables.topics import is_system_topic
from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin.cleanup import CleanQueues, CleanTopics, DeleteExpired

log = logger(__name__)

TOGETHER: Final = 4
"""Topics deleted before others have their turn: each takes a few flushes of the disk."""


async def clean_queues(broker: Broker, _call: CleanQueues, _peer: Peer) -> Reply:
    """Deletes what queues hold of messages that retention has deleted.

    A queue goes wholly when its topic has it no more; its groups' progress goes before it, since it
    would begin at 0 again.
    """

    def is_gone(topic: str, queue_id: int) -> bool:
        config = broker.topics.get(topic)
        if config is None:
            return not is_system_topic(topic, broker.config)
        return queue_id >= max(config.read_queue_nums, config.write_queue_nums)

    store = broker.store
    if spent := store.expired_queues(is_gone):
        for place in spent:
            broker.offsets.remove_queue(*place)
        broker.save_progress()
        for place in spent:
            store.remove_queue(*place)
        log.info("%d queues without messages are deleted", len(spent))
    for topic in store.topics():
        for queue_id in store.queue_ids(topic):
            store.trim_queue(topic, queue_id)
            await asyncio.sleep(0)
    return Reply()


async def clean_topics(broker: Broker, _call: CleanTopics, _peer: Peer) -> Reply:
    """Deletes the queues of topics that have no settings any more, once nothing is left in them.

    A deleted topic takes its queues along. Those that are there again hold what was delivered
    since then, and waits for the topic to be made anew.
    """
    strays = _strays(broker)
    for start in range(0, len(strays), TOGETHER):
        # Some may have been created meanwhile.
        broker.forget_topics(_strays(broker, strays[start : start + TOGETHER]))
        await asyncio.sleep(0)
    if strays:
        await broker.clear_removed()
        log.info("the queues of %d topics without settings are deleted", len(strays))
    return Reply()


def _strays(broker: Broker, topics: Sequence[str] | None = None) -> list[str]:
    """Which of these topics, or of all that have queues, have no settings and no messages."""
    return [
        topic
        for topic in (broker.store.topics() if topics is None else topics)
        if broker.topics.get(topic) is None
        and not is_system_topic(topic, broker.config)
        and not _has_messages(broker, topic)
    ]


def _has_messages(broker: Broker, topic: str) -> bool:
    bounds = (broker.store.bounds(topic, n) for n in broker.store.queue_ids(topic))
    return any(least < end for least, end in bounds)


async def delete_expired(broker: Broker, _call: DeleteExpired, _peer: Peer) -> Reply:
    """Deletes the files of the log that are old enough, at whatever hour."""
    try:
        await broker.flush.checkpoint(broker.clock.now_ms(), at_once=True)
    except StoreError as error:  # a full disk, perhaps: what lies in front of the last one can go
        log.warning("nothing behind the last checkpoint is deleted: %s", error)
    broker.store.expire(broker.clock.now_ms(), at_once=True)
    return Reply()
