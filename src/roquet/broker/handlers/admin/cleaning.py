"""Cleaning: clean-ups on request of an operator."""

import asyncio
from collections.abc import Sequence
from typing import Final

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.progress import BrokerProgress
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.topics import is_system_topic
from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin.settings import CleanQueues, CleanTopics, DeleteExpired

log = logger(__name__)

TOGETHER: Final = 4
"""Topics deleted before others have their turn: each takes a few flushes of the disk."""


class CleaningHandler(BrokerComponent, frozen=True):
    """Deletes what is no longer needed."""

    log: MessageLog
    tables: BrokerTables
    control: ControlPlane
    progress: BrokerProgress
    deletion: TopicDeletion

    async def clean_queues(self, _call: CleanQueues, _peer: Peer) -> Reply:
        """Delete queue entries of messages that retention has deleted.

        An empty queue that its topic no longer has is deleted; its groups' progress is deleted
        before it, since the queue would begin at 0 again.
        """

        def is_gone(topic: str, queue_id: int) -> bool:
            config = self.tables.topics.get(topic)
            if config is None:
                return not is_system_topic(topic, self.control.settings.config)
            return queue_id >= max(config.read_queue_nums, config.write_queue_nums)

        store = self.log.store
        if spent := store.expired_queues(is_gone):
            for queue in spent:
                self.tables.offsets.remove_queue(*queue)
            self.progress.save()
            for queue in spent:
                store.remove_queue(*queue)
            log.info("%d queues without messages are deleted", len(spent))
        for topic in store.topics():
            for queue_id in store.queue_ids(topic):
                store.trim_queue(topic, queue_id)
                await asyncio.sleep(0)
        return Reply()

    async def clean_topics(self, _call: CleanTopics, _peer: Peer) -> Reply:
        """Delete the empty queues of topics without settings.

        Deleting a topic deletes its queues. Queues that exist again hold messages that were
        delivered since then, and wait for the topic to be created again.
        """
        strays = self._strays()
        for start in range(0, len(strays), TOGETHER):
            # Some may have been created meanwhile.
            self.deletion.delete(self._strays(strays[start : start + TOGETHER]))
            await asyncio.sleep(0)
        if strays:
            await self.deletion.clear_removed()
            log.info("the queues of %d topics without settings are deleted", len(strays))
        return Reply()

    def _strays(self, topics: Sequence[str] | None = None) -> list[str]:
        """Of these topics, or of all with queues: those without settings and messages."""
        return [
            topic
            for topic in (self.log.store.topics() if topics is None else topics)
            if self.tables.topics.get(topic) is None
            and not is_system_topic(topic, self.control.settings.config)
            and not self._has_messages(topic)
        ]

    def _has_messages(self, topic: str) -> bool:
        bounds = (self.log.store.bounds(topic, n) for n in self.log.store.queue_ids(topic))
        return any(least < end for least, end in bounds)

    async def delete_expired(self, _call: DeleteExpired, _peer: Peer) -> Reply:
        """Delete expired files of the log, at any hour."""
        try:
            await self.log.flush.checkpoint(self.control.clock.now_ms(), at_once=True)
        except StoreError as error:  # perhaps a full disk: files before the last checkpoint can go
            log.warning("nothing behind the last checkpoint is deleted: %s", error)
        self.log.store.expire(self.control.clock.now_ms(), at_once=True)
        return Reply()
