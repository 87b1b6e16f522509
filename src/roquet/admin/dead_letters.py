"""Dead letters: messages that a group gave up, counted, read and sent again.

A dead letter stays in its topic until retention deletes it, even after it was sent again: a log
only grows. A resent message is a new one with an id of its own; its property RESENT_FROM holds the
id of the dead letter. The group `roquet-dlq` commits how far all of a group's letters were resent,
so that the next run sends only later ones.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from roquet.admin.client import AdminClient
from roquet.admin.groups import known_names
from roquet.admin.messages import BodyLimit, MessageViewer
from roquet.client.config import ConsumerConfig
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.model import names, properties
from roquet.model.errors import CallError, ConnectFailed, NotFound, RoquetError, UsageError
from roquet.model.message import Message, StoredMessage
from roquet.model.queue import MessageQueue
from roquet.model.settings import suggest
from roquet.rules.consumption.priority import parse_priority

READER: Final = names.DLQ_READER_GROUP
"""The group that reads dead letters; its progress says how far they were resent."""

RESENT_FROM: Final = "RESENT_FROM"
"""The property of a resent message that holds the dead letter's id; Roquet's, not RocketMQ's."""

NO_OFFSETS: Final[Mapping[MessageQueue, int]] = MappingProxyType({})
OFFSET_MAX: Final = 2**63 - 1

CONCURRENT_SENDS: Final = 64
"""Messages in flight while letters are resent."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a group gave up."""

    group: str
    queue: MessageQueue
    message: StoredMessage

    @property
    def message_id(self) -> str:
        """The producer's id, which also finds the message in its original topic."""
        return self.message.message_id

    @property
    def origin_topic(self) -> str | None:
        """The topic that it was first sent to; None when its properties do not say."""
        values = self.message.properties
        topic = values.get(properties.DLQ_ORIGIN_TOPIC) or values.get(properties.RETRY_TOPIC)
        return None if not topic or names.is_retry(topic) or names.is_dlq(topic) else topic

    @property
    def reason(self) -> str | None:
        """Why its consumer gave it up at once; None for one that ran out of tries."""
        return self.message.properties.get(properties.DEAD_LETTER_REASON)

    @property
    def fault(self) -> str | None:
        """Why the letter cannot be sent again; None when it can."""
        try:
            self.to_message()
        except UsageError as error:
            return str(error)
        return None

    def to_message(self) -> Message:
        """The message to resend: as the user sent it, with RESENT_FROM.

        Raises UsageError when the original topic is unknown, and for a body that is not whole.
        """
        if note := self.message.body_note:
            raise UsageError(f"dead letter {self.message_id} has no whole body to send: {note}")
        values = self.message.properties
        if (topic := self.origin_topic) is None:
            raise UsageError(f"dead letter {self.message_id} does not say what topic it came from")
        not_sent = properties.RESERVED | {properties.DEAD_LETTER_REASON}
        users = {name: text for name, text in values.items() if name not in not_sent}
        order_key = values.get(properties.SHARDING_KEY)
        priority = parse_priority(values.get(properties.PRIORITY, ""))
        return Message(
            topic,
            self.message.body,
            tag=self.message.tag,
            keys=self.message.keys,
            order_key=order_key,
            properties={**users, RESENT_FROM: self.message_id},
            flag=self.message.flag,
            priority=priority if order_key is None else None,
        )


class DeadLetterCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of a group's dead letters in one queue."""

    group: str
    queue: MessageQueue
    total: int | None
    """None when its broker does not tell."""
    not_resent: int | None
    """Letters after the offset up to which all were resent; None as above."""
    fault: str | None = None
    """Why a number is not known."""


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects dead letters: those that match every field that is not None."""

    message_id: str | None = None
    """The letter's id, its broker's id, or the id of the original message."""
    key: str | None = None
    tag: str | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Whether a letter is selected."""
        message = letter.message
        origin = message.properties.get(properties.DLQ_ORIGIN_MESSAGE_ID)
        return (
            self.message_id in (None, letter.message_id, message.offset_message_id, origin)
            and (self.key is None or self.key in message.keys)
            and self.tag in (None, message.tag)
        )


class _Reader(MessageViewer):
    _own_group = READER


@asynccontextmanager
async def open_reader(
    namesrv: str | Sequence[str] | None, config: ConsumerConfig | None = None
) -> AsyncIterator[PullConsumer]:
    """Open the consumer that the functions below read with."""
    async with _Reader(namesrv, group=READER, config=config) as reader:
        yield reader


async def groups(namesrv: str | Sequence[str] | None) -> list[str]:
    """Names of the groups that have a dead-letter topic."""
    return groups_of(await _topics(namesrv))


async def check_group(namesrv: str | Sequence[str] | None, group: str) -> None:
    """Check that a group has a dead-letter topic.

    Raises NotFound when no broker knows the group, RoquetError when it has no dead letters.
    """
    names.check_group(group)
    topics = await _topics(namesrv)
    if names.dlq_topic(group) in topics:
        return
    if names.retry_topic(group) not in topics and not await _is_known(namesrv, group):
        raise NotFound(f"there is no group {group!r}{suggest(group, groups_of(topics))}")
    raise RoquetError(f"group {group!r} has no dead letters")


async def counts(reader: PullConsumer, group: str) -> list[DeadLetterCount]:
    """Numbers of a group's dead letters, by queue."""
    return [await _count(reader, group, queue) for queue in await _queues(reader, group)]


async def newest(
    reader: PullConsumer, group: str, limit: int, before: Mapping[MessageQueue, int] = NO_OFFSETS
) -> list[DeadLetter]:
    """The newest `limit` dead letters of a group, oldest first; bodies may be cut (`BodyLimit`).

    `before` are offsets by queue: letters from there on are left out.
    """
    letters, bodies = list[DeadLetter](), BodyLimit()
    for queue in await _queues(reader, group):
        end = min(await reader.max_offset(queue), before.get(queue, OFFSET_MAX))
        begin = max(await reader.min_offset(queue), end - limit)
        async for letter in read_range(reader, group, queue, begin, end):
            letters.append(replace(letter, message=bodies.cut(letter.message)))
    letters.sort(key=lambda letter: letter.message.stored_ms)
    return letters[-limit:]


async def select(
    reader: PullConsumer, group: str, filter_: DeadLetterFilter, *, not_resent_only: bool = False
) -> tuple[list[DeadLetter], dict[MessageQueue, int]]:
    """The dead letters that match, and the end offset of each queue that was read."""
    selected: list[DeadLetter] = []
    ends: dict[MessageQueue, int] = {}
    for queue in await _queues(reader, group):
        begin, end = await reader.min_offset(queue), await reader.max_offset(queue)
        if not_resent_only:
            begin = max(begin, await reader.committed(queue) or 0)
        ends[queue] = end
        letters = read_range(reader, group, queue, begin, end)
        selected += [letter async for letter in letters if filter_.matches(letter)]
    return selected, ends


class ResendStopped(RoquetError):
    """Letters are sent up to one that was not: `unsent`."""

    def __init__(self, text: str, unsent: DeadLetter) -> None:
        super().__init__(text)
        self.unsent = unsent

    def sent_ends(self, ends: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Of each queue the offset up to which letters were sent; `ends` are those of all."""
        message = self.unsent.message
        stopped = message.broker_name, message.queue_id
        sent: dict[MessageQueue, int] = {}
        for queue, end in ends.items():  # in the order in which letters were selected
            if (queue.broker_name, queue.queue_id) == stopped:
                return {**sent, queue: message.queue_offset}
            sent[queue] = end
        return sent


async def resend(
    producer: Producer, letters: Sequence[DeadLetter], sent: Callable[[int], object]
) -> None:
    """Send letters to their original topics; `sent` is called with the size of each batch.

    Raises ResendStopped, with the number that was stored, when a send fails or its message is less
    durable than the broker's settings promise: it may be lost, so the letter is sent once more.
    """
    messages = [letter.to_message() for letter in letters]
    done = 0
    for first in range(0, len(messages), CONCURRENT_SENDS):
        batch = messages[first : first + CONCURRENT_SENDS]
        sends = [_send_durably(producer, message) for message in batch]
        results = await asyncio.gather(*sends, return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        done += len(batch) - len(failures)
        sent(len(batch) - len(failures))
        if failures:
            unsent = letters[first + results.index(failures[0])]
            raise ResendStopped(
                f"{done} of {len(messages)} were sent again; the first that was not is "
                f"{unsent.message_id}: {failures[0]}",
                unsent,
            )


async def _send_durably(producer: Producer, message: Message) -> None:
    receipt = await producer.send(message)
    if not receipt.ok:
        raise RoquetError(
            f"it is stored in {receipt.queue}, but less durably than its broker promises "
            f"({receipt.status.value}); bring back the broker's replicas or its disk, or where "
            "roles are fixed lower its inSyncReplicas, and send it again"
        )


async def save_resent(reader: PullConsumer, ends: dict[MessageQueue, int]) -> None:
    """Commit that all letters below these offsets were resent."""
    for queue, end in ends.items():
        await reader.commit(queue, end)


async def _topics(namesrv: str | Sequence[str] | None) -> set[str]:
    async with AdminClient(namesrv) as admin:
        return set(await admin.topics())


async def _is_known(namesrv: str | Sequence[str] | None, group: str) -> bool:
    """Whether any broker has the group; it need not have any dead letters.

    Raises the first error when a broker does not tell and the others do not have it.
    """
    async with AdminClient(namesrv) as admin:
        known, failed = await known_names(admin)
    if group in known:
        return True
    for error in failed.values():
        raise error
    return False


def groups_of(topics: Iterable[str]) -> list[str]:
    """Names of the groups whose dead-letter topics are among some topics."""
    groups = {topic.removeprefix(names.DLQ_PREFIX) for topic in topics if names.is_dlq(topic)}
    return sorted(groups - {""})  # a broker may have a topic named like the prefix alone


async def _queues(reader: PullConsumer, group: str) -> Sequence[MessageQueue]:
    return await reader.queues(names.dlq_topic(group))


async def _count(reader: PullConsumer, group: str, queue: MessageQueue) -> DeadLetterCount:
    count = DeadLetterCount(group=group, queue=queue, total=None, not_resent=None)
    try:
        begin, end = await reader.min_offset(queue), await reader.max_offset(queue)
        count = replace(count, total=end - begin)
        resent = await reader.committed(queue) or 0
    except CallError as error:
        return replace(count, fault=str(error))
    return replace(count, not_resent=end - max(begin, resent))


async def read_range(
    reader: PullConsumer, group: str, queue: MessageQueue, begin: int, end: int
) -> AsyncIterator[DeadLetter]:
    """The letters of a queue in the half-open offset range [begin, end)."""
    while begin < end:
        result = await reader.pull(queue, begin)
        for message in result.messages:
            if message.queue_offset < end:
                yield DeadLetter(group=group, queue=queue, message=message)
        if result.next_offset <= begin:
            raise ConnectFailed(f"{queue} cannot be read at offset {begin}: {result.status.name}")
        begin = result.next_offset
