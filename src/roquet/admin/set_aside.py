"""Set aside: messages that a broker's services could not handle, listed and retried.

Each is a copy in an internal topic of the broker, which stays until retention deletes it, even
after a retry. The group that reads them commits how far all were retried, so that the next run
retries only later ones.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from roquet.admin.client import AdminClient, known_leader
from roquet.client.pull import PullConsumer
from roquet.model import names, properties
from roquet.model.errors import CallError, ConnectFailed, RoquetError
from roquet.model.message import StoredMessage
from roquet.model.queue import MessageQueue
from roquet.wire.calls.transaction import ResumeCheck

TOPIC: Final = names.SET_ASIDE_TOPIC


class SetAsideMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a service of a broker could not handle."""

    message_id: str
    """The broker's id of the copy; `retry` sends it."""
    broker: str
    offset: int
    """Of the copy, in the broker's internal topic."""
    service: str
    reason: str
    place: str
    """Where the original is, or was: TOPIC/QUEUE/OFFSET/POSITION."""
    kept_ms: int
    size: int
    """Bytes of the original record; 0 when the copy holds only its place."""


async def list_messages(
    reader: PullConsumer, *, not_retried_only: bool = False
) -> tuple[list[SetAsideMessage], dict[MessageQueue, int]]:
    """Messages that are set aside, oldest first, and the end offset of each queue that was read.

    With `not_retried_only`, only those after the offset up to which all were retried. Raises
    RoquetError when a broker does not tell its part.
    """
    messages: list[SetAsideMessage] = []
    ends: dict[MessageQueue, int] = {}
    for queue in await reader.queues(TOPIC):
        try:
            found, ends[queue] = await _of_queue(reader, queue, not_retried_only=not_retried_only)
        except CallError as error:
            raise RoquetError(f"{queue.broker_name} does not tell: {error}") from error
        messages += found
    messages.sort(key=lambda message: message.kept_ms)
    return messages, ends


async def _of_queue(
    reader: PullConsumer, queue: MessageQueue, *, not_retried_only: bool
) -> tuple[list[SetAsideMessage], int]:
    messages: list[SetAsideMessage] = []
    begin, end = await reader.min_offset(queue), await reader.max_offset(queue)
    if not_retried_only:
        begin = max(begin, await reader.committed(queue) or 0)
    while begin < end:
        result = await reader.pull(queue, begin)
        messages += [_set_aside_message(queue, message) for message in result.messages]
        if result.next_offset <= begin:
            raise ConnectFailed(f"{queue} cannot be read at {begin}: {result.status.name}")
        begin = result.next_offset
    return messages, end


async def topic_exists(admin: AdminClient) -> bool:
    """Whether any broker has ever set a message aside."""
    return TOPIC in await admin.topics()


async def retry(
    admin: AdminClient, messages: Sequence[SetAsideMessage]
) -> list[tuple[SetAsideMessage, str]]:
    """Give messages back to their services; returns those that failed, with the reason."""
    leaders = await admin.leaders()
    failed: list[tuple[SetAsideMessage, str]] = []
    for message in messages:
        call = ResumeCheck(topic=TOPIC, msg_id=message.message_id)
        try:
            await admin.ask(known_leader(leaders, message.broker), call)
        except CallError as error:
            failed.append((message, str(error)))
    return failed


async def save_retried(reader: PullConsumer, ends: dict[MessageQueue, int]) -> None:
    """Commit that all messages below these offsets were retried."""
    for queue, end in ends.items():
        await reader.commit(queue, end)


def _set_aside_message(queue: MessageQueue, message: StoredMessage) -> SetAsideMessage:
    values = message.properties
    return SetAsideMessage(
        message_id=message.offset_message_id,
        broker=queue.broker_name,
        offset=message.queue_offset,
        service=values.get(properties.SET_ASIDE_SERVICE, "?"),
        reason=values.get(properties.SET_ASIDE_REASON, "?"),
        place=values.get(properties.SET_ASIDE_PLACE, "?"),
        kept_ms=message.stored_ms,
        size=len(message.body),
    )
