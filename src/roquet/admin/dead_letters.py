"""Dead letters: messages that a group gave up, listed, shown and sent again.

A log only grows: a dead letter stays in its topic until retention deletes it, also when it was sent
again. What was sent again is a new message with an id of its own and the property RESENT_FROM,
which names the dead letter. How far a group's letters were all sent again is kept as progress of
the group `roquet-dlq`, so that the next time only later ones are.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from roquet.admin.client import AdminClient
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.model import names, properties
from roquet.model.errors import CallError, ConnectFailed, RoquetError, UsageError
from roquet.model.message import Message, StoredMessage
from roquet.model.queue import MessageQueue
from roquet.model.settings import suggest
from roquet.wire.calls.admin.topic import GetGroup

READER: Final = names.DLQ_READER_GROUP
"""The group that reads dead letters; its progress says what was sent again."""

RESENT_FROM: Final = "RESENT_FROM"
"""The property that names the dead letter of which a message was made; ours, no genuine one."""

CONCURRENT_SENDS: Final = 64
"""Messages without an answer while letters are sent again."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a group gave up."""

    group: str
    queue: MessageQueue
    message: StoredMessage

    @property
    def message_id(self) -> str:
        """The id that its producer gave it, by which it can be found in its old topic, too."""
        return self.message.message_id

    @property
    def origin_topic(self) -> str | None:
        """The topic it was sent to; None when it does not say."""
        found = self.message.properties
        topic = found.get(properties.DLQ_ORIGIN_TOPIC) or found.get(properties.RETRY_TOPIC)
        return None if not topic or names.is_retry(topic) or names.is_dlq(topic) else topic

    def again(self) -> Message:
        """The message that is sent again: what the user sent, and where it comes from."""
        found = self.message.properties
        if (topic := self.origin_topic) is None:
            raise UsageError(f"dead letter {self.message_id} does not say what topic it is from")
        users = {name: found[name] for name in found if name not in properties.RESERVED}
        return Message(
            topic,
            self.message.body,
            tag=self.message.tag,
            keys=self.message.keys,
            order_key=found.get(properties.SHARDING_KEY),
            properties={**users, RESENT_FROM: self.message_id},
            flag=self.message.flag,
        )


class DeadLetterCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters of a group one queue holds."""

    group: str
    queue: MessageQueue
    total: int | None
    """None when its broker does not answer."""
    fresh: int | None
    """Those that were stored after all before them were sent again."""


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which of a group's dead letters are meant; those that fit all that is given."""

    message_id: str | None = None
    key: str | None = None
    tag: str | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Whether a letter is one of them."""
        message = letter.message
        origin = message.properties.get(properties.DLQ_ORIGIN_MESSAGE_ID)
        return (
            self.message_id in (None, letter.message_id, message.offset_message_id, origin)
            and (self.key is None or self.key in message.keys)
            and self.tag in (None, message.tag)
        )


class _Reader(PullConsumer):
    _own_group = READER


@asynccontextmanager
async def open_reader(namesrv: str | Sequence[str] | None) -> AsyncIterator[PullConsumer]:
    """What the functions below read with."""
    async with _Reader(namesrv, group=READER) as reader:
        yield reader


async def groups(namesrv: str | Sequence[str] | None) -> list[str]:
    """The groups that have a dead-letter topic."""
    return _groups(await _topics(namesrv))


async def check_group(namesrv: str | Sequence[str] | None, group: str) -> None:
    """RoquetError unless a group has a dead-letter topic; UsageError if there is no such group."""
    names.check_group(group)
    topics = await _topics(namesrv)
    if names.dlq_topic(group) in topics:
        return
    if names.retry_topic(group) not in topics and not await _is_known(namesrv, group):
        raise UsageError(f"there is no group {group!r}{suggest(group, _groups(topics))}")
    raise RoquetError(f"group {group!r} has no dead letters")


async def counts(reader: PullConsumer, group: str) -> list[DeadLetterCount]:
    """How many dead letters a group has, by queue."""
    return [await _count(reader, group, queue) for queue in await _queues(reader, group)]


async def newest(reader: PullConsumer, group: str, limit: int) -> list[DeadLetter]:
    """The newest dead letters of a group, the oldest of them first."""
    found: list[DeadLetter] = []
    for queue in await _queues(reader, group):
        end = await reader.max_offset(queue)
        begin = max(await reader.min_offset(queue), end - limit)
        found += [letter async for letter in _read(reader, group, queue, begin, end)]
    found.sort(key=lambda letter: letter.message.stored_ms)
    return found[-limit:]


async def select(
    reader: PullConsumer, group: str, choice: DeadLetterFilter, *, not_resent_only: bool = False
) -> tuple[list[DeadLetter], dict[MessageQueue, int]]:
    """The dead letters that a choice takes, and the end of each queue that was looked at."""
    found: list[DeadLetter] = []
    ends: dict[MessageQueue, int] = {}
    for queue in await _queues(reader, group):
        begin, end = await reader.min_offset(queue), await reader.max_offset(queue)
        if not_resent_only:
            begin = max(begin, await reader.committed(queue) or 0)
        ends[queue] = end
        letters = _read(reader, group, queue, begin, end)
        found += [letter async for letter in letters if choice.matches(letter)]
    return found, ends


async def resend(
    producer: Producer, letters: Sequence[DeadLetter], sent: Callable[[int], object]
) -> None:
    """Send letters to the topics they came from; `sent` is told of each so many.

    RoquetError says how many were stored when not all were.
    """
    messages = [letter.again() for letter in letters]
    done = 0
    for first in range(0, len(messages), CONCURRENT_SENDS):
        some = messages[first : first + CONCURRENT_SENDS]
        results = await asyncio.gather(*map(producer.send, some), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        done += len(some) - len(failures)
        sent(len(some) - len(failures))
        if failures:
            unsent = letters[first + results.index(failures[0])].message_id
            raise RoquetError(
                f"{done} of {len(messages)} were sent again; the first that was not is {unsent}: "
                f"{failures[0]}"
            )


async def save_resent(reader: PullConsumer, ends: dict[MessageQueue, int]) -> None:
    """Remember that all letters up to these offsets were sent again."""
    for queue, end in ends.items():
        await reader.commit(queue, end)


async def _topics(namesrv: str | Sequence[str] | None) -> set[str]:
    async with AdminClient(namesrv) as admin:
        return set(await admin.topics())


async def _is_known(namesrv: str | Sequence[str] | None, group: str) -> bool:
    """Whether a broker has such a group, which need not have failed at anything yet."""
    async with AdminClient(namesrv) as admin:
        answers, _ = await admin.ask_each(await admin.brokers(), GetGroup(group=group))
    return bool(answers)


def _groups(topics: set[str]) -> list[str]:
    found = {topic.removeprefix(names.DLQ_PREFIX) for topic in topics if names.is_dlq(topic)}
    return sorted(found - {""})  # brokers may have a topic that is called like the prefix alone


async def _queues(reader: PullConsumer, group: str) -> Sequence[MessageQueue]:
    return await reader.queues(names.dlq_topic(group))


async def _count(reader: PullConsumer, group: str, queue: MessageQueue) -> DeadLetterCount:
    try:
        begin, end = await reader.min_offset(queue), await reader.max_offset(queue)
        resent = await reader.committed(queue) or 0
    except CallError:
        return DeadLetterCount(group=group, queue=queue, total=None, fresh=None)
    return DeadLetterCount(
        group=group, queue=queue, total=end - begin, fresh=end - max(begin, resent)
    )


async def _read(
    reader: PullConsumer, group: str, queue: MessageQueue, begin: int, end: int
) -> AsyncIterator[DeadLetter]:
    """The letters of a queue from one offset up to another."""
    while begin < end:
        result = await reader.pull(queue, begin)
        for message in result.messages:
            if message.queue_offset < end:
                yield DeadLetter(group=group, queue=queue, message=message)
        if result.next_offset <= begin:
            raise ConnectFailed(f"{queue} cannot be read at offset {begin}: {result.status.name}")
        begin = result.next_offset
