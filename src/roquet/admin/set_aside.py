"""Set aside: messages that a broker's services cannot handle, listed and put back to their work.

The copies lie in a topic of the broker's own until retention deletes them, also when they were put
back. How far all were put back is kept as progress, so that the next time only later ones are.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from roquet.admin.client import AdminClient
from roquet.client.pull import PullConsumer
from roquet.model import names, properties
from roquet.model.errors import ConnectFailed
from roquet.model.message import StoredMessage
from roquet.model.queue import MessageQueue
from roquet.wire.calls.transaction import ResumeCheck

TOPIC: Final = names.SET_ASIDE_TOPIC


class SetAsideMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a service of a broker could not handle."""

    message_id: str
    """The broker's id of the copy: what `retry` is told."""
    broker: str
    offset: int
    """Of the copy, in the broker's topic."""
    service: str
    reason: str
    place: str
    """Where the original lies, or lay: TOPIC/QUEUE/OFFSET/POSITION."""
    kept_ms: int
    size: int
    """Bytes of the original record; 0 where only the place is kept."""


async def list_messages(
    reader: PullConsumer, *, not_retried_only: bool = False
) -> tuple[list[SetAsideMessage], dict[MessageQueue, int]]:
    """All that are kept, the oldest first, and where each broker's topic ends.

    With `not_retried_only` those that came after all others were put back.
    """
    found: list[SetAsideMessage] = []
    ends: dict[MessageQueue, int] = {}
    for queue in await reader.queues(TOPIC):
        begin, end = await reader.min_offset(queue), await reader.max_offset(queue)
        if not_retried_only:
            begin = max(begin, await reader.committed(queue) or 0)
        ends[queue] = end
        while begin < end:
            result = await reader.pull(queue, begin)
            found += [_set_aside_message(queue, message) for message in result.messages]
            if result.next_offset <= begin:
                raise ConnectFailed(f"{queue} cannot be read at {begin}: {result.status.name}")
            begin = result.next_offset
    found.sort(key=lambda one: one.kept_ms)
    return found, ends


async def topic_exists(admin: AdminClient) -> bool:
    """Whether any broker ever set a message aside."""
    return TOPIC in await admin.topics()


async def retry(
    admin: AdminClient, chosen: Sequence[SetAsideMessage]
) -> list[tuple[SetAsideMessage, str]]:
    """Put messages back to their services' work; gives those that could not be, and why."""
    addresses = await admin.brokers()
    failed: list[tuple[SetAsideMessage, str]] = []
    for one in chosen:
        call = ResumeCheck(topic=TOPIC, msg_id=one.message_id)
        _, faults = await admin.ask_each({one.broker: addresses[one.broker]}, call)
        failed += [(one, str(fault)) for fault in faults.values()]
    return failed


async def save_retried(reader: PullConsumer, ends: dict[MessageQueue, int]) -> None:
    """Remember that all up to these offsets were put back."""
    for queue, end in ends.items():
        await reader.commit(queue, end)


def _set_aside_message(queue: MessageQueue, message: StoredMessage) -> SetAsideMessage:
    found = message.properties
    return SetAsideMessage(
        message_id=message.offset_message_id,
        broker=queue.broker_name,
        offset=message.queue_offset,
        service=found.get(properties.SET_ASIDE_SERVICE, "?"),
        reason=found.get(properties.SET_ASIDE_REASON, "?"),
        place=found.get(properties.SET_ASIDE_PLACE, "?"),
        kept_ms=message.stored_ms,
        size=len(message.body),
    )
