"""RetryTopics: the retry and dead-letter topics of groups, for failed messages."""

from typing import Final

import msgspec

from roquet.broker.ingest.append import SendCall
from roquet.broker.refusals import no_group
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.groups import Groups
from roquet.broker.tables.locks import Locks
from roquet.broker.tables.topics import UNIT_SUBSCRIPTION, Topics
from roquet.model import names
from roquet.model.topic import SubscriptionGroup, TopicConfig
from roquet.net.clock import Clock
from roquet.rules.delay.delay_levels import tries_limit
from roquet.rules.topic_attributes import MESSAGE_TYPE, PRIORITY

DLQ_QUEUES: Final = 1
"""Queues of a dead-letter topic: operators read them one message at a time."""


class RetryTopics(msgspec.Struct, frozen=True, kw_only=True):
    """Creates the topics of failed messages, and decides when a message is a dead letter."""

    topics: Topics
    groups: Groups
    locks: Locks
    clock: Clock
    settings: RuntimeSettings

    def group(self, name: str) -> SubscriptionGroup:
        """A group's settings, created if allowed; CallRefused for an unknown group."""
        config = self.groups.find(name, self.clock.now_ms())
        if config is None:
            raise no_group(f"subscription group not exist, {name}")
        return config

    def retry_topic(self, group: SubscriptionGroup, unit_mode: bool = False) -> TopicConfig:
        """The retry topic of a group, created if it does not exist."""
        flag = UNIT_SUBSCRIPTION if unit_mode else 0
        topic = names.retry_topic(group.group_name)
        count = max(1, group.retry_queue_nums)
        return self.topics.create_for_group(topic, count, self.clock.now_ms(), flag)

    def pop_retry_topic(self, group: str, topic: str) -> str:
        """Name of the topic for popped messages of a group and topic that are redelivered.

        Without a setting, the older name where Apache's broker may have to find them, unless a
        group that pulls would be given them.
        """
        older = names.pop_retry_topic_v1(group, topic)
        is_v2 = self.settings.config.retry_topic_v2
        if is_v2 is None:
            is_taken = self.groups.get(names.group_of_retry(older)) is not None
            is_v2 = is_taken or not self.topics.has_adopted
        return names.pop_retry_topic(group, topic) if is_v2 else older

    def pop_retry_queue(self, retry_topic: str, origin: str, queue_id: int) -> int:
        """Queue of a retry topic, which is created, for a message popped from a queue of a topic.

        It is queue 0; messages of a topic of type PRIORITY keep their queue, which is the priority.
        """
        config = self.topics.get(origin)
        if config is None or config.attributes.get(MESSAGE_TYPE) != PRIORITY:
            queue_id, count = 0, 1
        else:
            count = max(config.write_queue_nums, queue_id + 1)
        made = self.topics.create_for_group(retry_topic, count, self.clock.now_ms())
        if made.write_queue_nums <= queue_id:
            wider = msgspec.structs.replace(made, read_queue_nums=count, write_queue_nums=count)
            self.topics.put(wider, self.clock.now_ms())
        return queue_id

    def dlq_topic(self, group: str) -> TopicConfig:
        """The dead-letter topic of a group, created if it does not exist."""
        topic = names.dlq_topic(group)
        return self.topics.create_for_group(topic, DLQ_QUEUES, self.clock.now_ms())

    def dead_letter_topic(self, call: SendCall) -> str | None:
        """The dead-letter topic for a message that a client sends to a retry topic; None to retry.

        A consumer does that when it could not send a message back. A consumer of an ordered group
        retries locally and sends only messages that it has given up.
        """
        name = names.group_of_retry(call.topic)
        group = self.group(name)
        limit = tries_limit(call.max_reconsume_times, group.retry_max_times)
        is_ordered = self.locks.has_any(name, self.clock.monotonic_ms())
        if call.reconsume_times <= limit and not is_ordered:
            return None
        return self.dlq_topic(name).topic_name
