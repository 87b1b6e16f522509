"""Destinations: the queue that a delayed, timed or half message is delivered to.

Meanwhile its topic may have been deleted, or created again with fewer queues. An acknowledged
message is never dropped for that.
"""

from typing import Final

import msgspec

from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.topics import Topics
from roquet.log_records import logger
from roquet.model import names
from roquet.model.topic import TopicConfig
from roquet.net.clock import Clock

log = logger(__name__)

QUEUES_MAX: Final = 16_384
"""Queues of one topic on one broker: some requests read each, and more would hold up others."""

QUEUE_DIGITS_MAX: Final = 10
"""Digits of a queue id in a property; longer ones are invalid."""


class Destinations(msgspec.Struct, kw_only=True):
    """Finds the queues of messages that have waited."""

    topics: Topics
    clock: Clock
    settings: RuntimeSettings

    def queue(self, topic: str, text: str) -> int:
        """The queue that a message was sent to, or another writable one.

        Queues that can only be read are about to be removed once they are consumed.
        """
        queue_id = parse_queue_id(text)
        config = self.topics.get(topic) or self._create(topic, queue_id)
        if config is None or queue_id < config.write_queue_nums:
            return queue_id
        return queue_id % max(1, config.write_queue_nums)

    def _create(self, topic: str, queue_id: int) -> TopicConfig | None:
        """Create a topic again that was deleted while messages to it waited.

        None without automatic creation; the messages can be read as soon as it is created.
        """
        now_ms = self.clock.now_ms()
        if (names.is_retry(topic) or names.is_dlq(topic)) and not names.topic_fault(topic):
            return self.topics.create_for_group(topic, queue_id + 1, now_ms)
        if not self.settings.config.auto_create_topic or names.topic_fault(topic):
            log.warning("a delayed message is for topic %r, which is gone: create it", topic)
            return None
        log.warning("a delayed message is for topic %r, which is gone: it is made again", topic)
        count = max(self.settings.config.default_queue_count, queue_id + 1)
        made = TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
        self.topics.put(made, now_ms)
        return made


def parse_queue_id(text: str) -> int:
    """The queue id of a property; 0 for a number that no queue can have."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= QUEUE_DIGITS_MAX
    return int(text) if is_number and int(text) < QUEUES_MAX else 0
