"""Homes: the queue that a message was sent to, for those that the broker kept for a while.

Meanwhile its topic may have been deleted, or made anew with fewer queues. What was acknowledged
is never thrown away for that.
"""

from typing import Final

import msgspec

from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.topics import Topics
from roquet.log_records import logger
from roquet.model import names
from roquet.model.topic import TopicConfig
from roquet.net.clock import Clock

log = logger(__name__)

QUEUES_MAX: Final = 16_384
"""Of one topic on one broker: some requests look at each of them, so more would stop the others."""

QUEUE_DIGITS_MAX: Final = 10
"""Of a queue's number in a property; longer ones are not worth reading."""


class Destinations(msgspec.Struct, kw_only=True):
    """Where messages that waited go."""

    topics: Topics
    clock: Clock
    default_queue_count: int
    auto_create: bool

    def configure(self, config: BrokerConfig) -> None:
        """The broker's settings have changed."""
        self.default_queue_count = config.default_queue_count
        self.auto_create = config.auto_create_topic

    def queue(self, topic: str, text: str) -> int:
        """The queue it was sent to, or one that takes messages if that one does not any more.

        Queues that can only be read are on their way out: whoever is through leaves them.
        """
        queue_id = parse_queue_id(text)
        found = self.topics.get(topic) or self._made(topic, queue_id)
        if found is None or queue_id < found.write_queue_nums:
            return queue_id
        return queue_id % max(1, found.write_queue_nums)

    def _made(self, topic: str, queue_id: int) -> TopicConfig | None:
        """A topic that was deleted while messages to it waited, made again.

        Where topics do not come by themselves it stays away; what is stored can be read as soon as
        somebody creates it.
        """
        now_ms = self.clock.now_ms()
        if (names.is_retry(topic) or names.is_dlq(topic)) and not names.topic_fault(topic):
            return self.topics.create_for_group(topic, queue_id + 1, now_ms)
        if not self.auto_create or names.topic_fault(topic):
            log.warning("a delayed message is for topic %r, which is gone: create it", topic)
            return None
        log.warning("a delayed message is for topic %r, which is gone: it is made again", topic)
        count = max(self.default_queue_count, queue_id + 1)
        made = TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
        self.topics.put(made, now_ms)
        return made


def parse_queue_id(text: str) -> int:
    """The queue that a property names; 0 for a number that no queue can have."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= QUEUE_DIGITS_MAX
    return int(text) if is_number and int(text) < QUEUES_MAX else 0
