"""TopicCreation: makes an unknown topic of the type of the first message that is sent to it.

For developers: an official client asks for the route before it sends, and does not send a message
whose type the route does not list. So the route of an unknown topic is the one that brokers would
give it, with every type; the first message then decides on the one that the topic takes.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from roquet.client.connection.session import Session
from roquet.model.names import AUTO_CREATE_TOPIC
from roquet.model.queue import MessageQueue
from roquet.model.topic import READ_WRITE
from roquet.proxy.config import ProxyConfig
from roquet.rules.message_type import MessageType
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.wire.calls.admin.topic import CreateTopic

QUEUES: Final = 8
"""Queues on each broker, of which a topic of type PRIORITY has one for each priority."""

LOOK_MS: Final = 20
"""Pause between two looks for the route of a topic that was made."""


class TopicCreation:
    """Creates topics on the brokers that let clients create them, if the proxy is to."""

    def __init__(self, session: Session, config: ProxyConfig) -> None:
        self._session = session
        self._config = config
        self._creating = asyncio.Lock()
        """Held while a topic is made: the first message of two decides on the type."""

    async def is_wanted(self, topic: str) -> bool:
        """Whether a topic is unknown, and the first message to it makes it."""
        routes = self._session.routes
        return (
            self._config.creates_topics
            and routes.readable(topic) is None
            and await routes.refresh(topic) is None
        )

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues that an unknown topic would have.

        Raises ProxyRefusal where no broker lets clients create topics.
        """
        template = await self._session.routes.refresh(AUTO_CREATE_TOPIC)
        queues = template.write_queues(AUTO_CREATE_TOPIC) if template is not None else ()
        if not queues:
            text = f"topic {topic} does not exist, and no broker would create it"
            raise ProxyRefusal(StatusCode.TOPIC_NOT_FOUND, text)
        brokers = sorted({queue.broker_name for queue in queues})
        return [MessageQueue(topic, name, number) for name in brokers for number in range(QUEUES)]

    async def create(self, topic: str, kind: MessageType) -> None:
        """Create a topic of a type if it is unknown, and return when its route is known.

        Raises a RoquetError where no broker makes it.
        """
        if not await self.is_wanted(topic):
            return
        async with self._creating:
            if not await self.is_wanted(topic):
                return
            call = CreateTopic(
                topic=topic,
                read_queue_nums=QUEUES,
                write_queue_nums=QUEUES,
                perm=READ_WRITE,
                attributes=f"+message.type={kind.name}",
            )
            for broker in dict.fromkeys(queue.broker_name for queue in await self.queues(topic)):
                await self._session.call(broker, call)
            clock = self._config.clock
            deadline_ms = clock.monotonic_ms() + self._config.call_timeout_ms
            while await self.is_wanted(topic) and clock.monotonic_ms() < deadline_ms:
                await clock.sleep(LOOK_MS)
