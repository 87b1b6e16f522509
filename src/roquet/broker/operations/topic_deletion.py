"""Topic deletion: topics with their messages, and all that was remembered of them."""

from collections.abc import Collection, Mapping, Sequence

from roquet.broker.broker import BrokerComponent
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


class TopicDeletion(BrokerComponent, frozen=True):
    """Deletes topics of this broker, and those that its master has deleted."""

    log: MessageLog
    delivery: DeliveryServices
    tables: BrokerTables
    control: ControlPlane
    progress: BrokerProgress

    def delete_with_retries(self, topic: str) -> None:
        """Delete a topic with the POP retry topics of its groups, or their part in shared ones."""
        # Also of groups without progress: one that was deleted may be made again.
        retry_topics = [
            each.topic_name
            for each in self.tables.topics
            if names.is_retry(each.topic_name) and each.topic_name.endswith(f"+{topic}")
        ]
        for group in self.tables.offsets.groups_of(topic):
            older = names.pop_retry_topic_v1(group, topic)
            if not self.tables.topics.get(older):
                continue
            if self._is_shared(older, topic):
                self.delivery.revive.settle_all(group, older)
                self.tables.offsets.commit(group, older, 0, self.log.store.bounds(older, 0)[1])
            else:
                retry_topics.append(older)
        self.delete([topic, *retry_topics])

    def _is_shared(self, retry_topic: str, topic: str) -> bool:
        """Whether an older name of a POP retry topic may also stand for another topic or group."""
        origins = {*names.possible_origins(retry_topic)} - {topic}
        is_of_group = self.tables.groups.get(names.group_of_retry(retry_topic)) is not None
        return is_of_group or any(self.tables.topics.get(origin) for origin in origins)

    def delete(self, topics: Sequence[str]) -> None:
        """Delete topics: their messages, and all that was remembered of them.

        What is on the disk when this returns does not bring them back, whatever happens. Progress
        goes before the messages that it counts: the number of a deleted message is given again.
        """
        now_ms = self.control.clock.now_ms()
        self.tables.topics.renew_ids(topics, now_ms)
        self._forget_progress(topics)
        for topic in topics:
            self.log.store.delete_topic(topic)
        self.tables.topics.remove_all(topics, now_ms)
        self.tables.groups.forget_topics(topics, now_ms)
        self.control.statistics.forget(topics)
        self.log.counts.forget(topics)
        self.log.arrivals.look_again(topics)

    def delete_copied(self, deleted: Mapping[str, int], gone: Collection[str]) -> None:
        """Delete topics of a replica as its master did, in front of the master's positions.

        Those that are not `gone` have been made anew: their settings stay, and the messages behind
        the position. After a kill in the middle the next copy of the table finds what is left to
        do.
        """
        topics = [*deleted, *(topic for topic in gone if topic not in deleted)]
        self._forget_progress(topics)
        for topic, position in deleted.items():
            self.log.store.delete_topic_before(topic, position)
        self.tables.topics.remove_all(gone, self.control.clock.now_ms())
        self.control.statistics.forget(topics)
        self.log.counts.forget(topics)
        self.log.arrivals.look_again(topics)

    def _forget_progress(self, topics: Sequence[str]) -> None:
        for topic in topics:
            groups = {*self.tables.clients.listeners(topic), *self.tables.offsets.groups_of(topic)}
            peers = (peer for _, peer in self.tables.clients.members(groups))
            self.tables.former_readers.add(topic, peers, groups)
        self.tables.offsets.remove_topics(topics)
        self.tables.ordered_pops.forget(topics=topics)
        self.tables.offset_resets.forget(topics=topics)
        self.delivery.revive.forget(topics)
        self.progress.save()

    async def clear_removed(self) -> None:
        """Delete the files of deleted topics in a thread: there may be thousands."""
        try:
            await in_thread(self.log.store.clear_removed)
        except (StoreError, OSError) as error:
            log.warning("files of deleted topics are left until the next start: %s", error)
