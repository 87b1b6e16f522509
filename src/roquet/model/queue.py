"""MessageQueue: the address of one queue (topic, broker, id)."""

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """The address of one queue; sorted by topic, broker, id, as every member of a group must."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
