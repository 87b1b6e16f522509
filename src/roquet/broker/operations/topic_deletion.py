"""Topic deletion: topics with their messages, and all that was remembered of them."""

from collections.abc import Collection, Mapping, Sequence

from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.progress import BrokerProgress
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.log_records import logger
from roquet.model import names
from roquet.model.errors import StoreError
from roquet.net.threads import in_thread

log = logger(__name__)


class TopicDeletion:
    """Deletes topics of this broker, and those that its master has deleted."""

    __slots__ = ("_clock", "_delivery", "_log", "_progress", "_statistics", "_tables")

    def __init__(
        self,
        log: MessageLog,
        delivery: DeliveryServices,
        tables: BrokerTables,
        control: ControlPlane,
        progress: BrokerProgress,
    ) -> None:
        self._log, self._delivery, self._tables = log, delivery, tables
        self._clock, self._statistics, self._progress = control.clock, control.statistics, progress

    def delete_with_retries(self, topic: str) -> None:
        """Delete a topic with the POP retry topics of its groups, or their part in shared ones."""
        # Also of groups without progress: one that was deleted may be made again.
        retry_topics = [
            each.topic_name
            for each in self._tables.topics
            if names.is_retry(each.topic_name) and each.topic_name.endswith(f"+{topic}")
        ]
        for group in self._tables.offsets.groups_of(topic):
            older = names.pop_retry_topic_v1(group, topic)
            if not self._tables.topics.get(older):
                continue
            if self._is_shared(older, topic):
                self._delivery.revive.settle_all(group, older)
                self._tables.offsets.commit(group, older, 0, self._log.store.bounds(older, 0)[1])
            else:
                retry_topics.append(older)
        self.delete([topic, *retry_topics])

    def _is_shared(self, retry_topic: str, topic: str) -> bool:
        """Whether an older name of a POP retry topic may also stand for another topic or group."""
        origins = {*names.possible_origins(retry_topic)} - {topic}
        is_of_group = self._tables.groups.get(names.group_of_retry(retry_topic)) is not None
        return is_of_group or any(self._tables.topics.get(origin) for origin in origins)

    def delete(self, topics: Sequence[str]) -> None:
        """Delete topics: their messages, and all that was remembered of them.

        What is on the disk when this returns does not bring them back, whatever happens. Progress
        goes before the messages that it counts: the number of a deleted message is given again.
        """
        now_ms = self._clock.now_ms()
        self._tables.topics.renew_ids(topics, now_ms)
        self._forget_progress(topics)
        for topic in topics:
            self._log.store.delete_topic(topic)
        self._tables.topics.remove_all(topics, now_ms)
        self._tables.groups.forget_topics(topics, now_ms)
        self._statistics.forget(topics)
        self._log.counts.forget(topics)
        self._log.arrivals.look_again(topics)

    def delete_copied(self, deleted: Mapping[str, int], gone: Collection[str]) -> None:
        """Delete topics of a replica as its master did, in front of the master's positions.

        Those that are not `gone` have been made anew: their settings stay, and the messages behind
        the position. After a kill in the middle the next copy of the table finds what is left to
        do.
        """
        topics = [*deleted, *(topic for topic in gone if topic not in deleted)]
        self._forget_progress(topics)
        for topic, position in deleted.items():
            self._log.store.delete_topic_before(topic, position)
        self._tables.topics.remove_all(gone, self._clock.now_ms())
        self._statistics.forget(topics)
        self._log.counts.forget(topics)
        self._log.arrivals.look_again(topics)

    def _forget_progress(self, topics: Sequence[str]) -> None:
        """Forget how far groups were in topics, on the disk, too."""
        for topic in topics:
            groups = {
                *self._tables.clients.listeners(topic),
                *self._tables.offsets.groups_of(topic),
            }
            peers = (peer for _, peer in self._tables.clients.members(groups))
            self._tables.former_readers.add(topic, peers, groups)
        self._tables.offsets.remove_topics(topics)
        self._tables.ordered_pops.forget(topics=topics)
        self._tables.offset_resets.forget(topics=topics)
        self._delivery.revive.forget(topics)
        self._progress.save()

    async def clear_removed(self) -> None:
        """Delete the files of deleted topics in a thread: there may be thousands."""
        try:
            await in_thread(self._log.store.clear_removed)
        except (StoreError, OSError) as error:
            log.warning("files of deleted topics are left until the next start: %s", error)
