"""Dead letters of the pages: groups that have some, letters by reason, chosen ones, an export."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from roquet.admin import dead_letters, messages
from roquet.admin.client import AdminClient, without_answers
from roquet.admin.dead_letters import DeadLetter
from roquet.admin.group_answers import totals
from roquet.client.pull import PullConsumer
from roquet.model import names
from roquet.model.errors import UsageError
from roquet.model.printable_text import quantity
from roquet.model.queue import MessageQueue
from roquet.model.topic import SubscriptionGroup
from roquet.wire.calls.admin.topic import GetGroup
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

SHOWN: Final = 200
"""Newest letters of a group that are read for its page."""

CHOSEN_MAX: Final = 500
"""Letters that are sent again in one step."""

COUNT_TIMEOUT_S: Final = 5.0
"""Time in which the groups of a page are counted; others are shown without a number."""


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group with a dead-letter topic, in a list."""

    group: str
    total: int | None
    """None when a broker does not answer, or not in time."""
    newest_ms: int | None
    """When the newest letter was given up; None without any, or as above."""
    fault: str | None = None
    """Why its letters are not known."""


class ReasonCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of letters with one origin, tag and reason."""

    origin_topic: str | None
    tag: str | None
    reason: str
    letters: int


class LetterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter, the name by which a form chooses it, and why it failed."""

    place: str
    """BROKER/QUEUE/OFFSET in the dead-letter topic."""
    letter: DeadLetter
    reason: str


class GroupLetters(msgspec.Struct, frozen=True, kw_only=True):
    """The newest dead letters of a group, and counts of them."""

    group: str
    total: int | None
    """None when a broker does not answer."""
    not_resent: int | None
    """Letters after the last ones that were resent all together; None as above."""
    letters: Sequence[LetterRow]
    """Newest first, `SHOWN` at most."""
    reasons: Sequence[ReasonCount]
    """Counts of the letters above, the largest first."""


async def count_letters(admin: AdminClient, groups: Sequence[str]) -> Sequence[DeadLetterGroup]:
    """The number of letters of some groups, in their order; a call for each group and broker."""
    brokers = await admin.brokers()
    counted: dict[str, DeadLetterGroup] = {}

    async def count(group: str) -> None:
        found = await totals(admin, brokers, group)
        counted[group] = DeadLetterGroup(
            group=group, total=found.total, newest_ms=found.newest_ms, fault=found.fault
        )

    with suppress(TimeoutError):
        async with asyncio.timeout(COUNT_TIMEOUT_S):
            await asyncio.gather(*map(count, groups))
    late = f"not counted within {COUNT_TIMEOUT_S:.0f} s"
    unknown = (
        DeadLetterGroup(group=group, total=None, newest_ms=None, fault=late) for group in groups
    )
    return [counted.get(one.group, one) for one in unknown]


async def letters_of(
    admin: AdminClient, reader: PullConsumer, group: str, limit: int = SHOWN
) -> GroupLetters:
    """The newest letters of a group. Raises UsageError for a group without a dead-letter topic."""
    await _check_group(admin, group)
    counts, letters, retries_max = await asyncio.gather(
        dead_letters.counts(reader, group),
        dead_letters.newest(reader, group, limit),
        _retries_max(admin, group),
    )
    rows = [
        LetterRow(place=place_of(letter), letter=letter, reason=reason_of(letter, retries_max))
        for letter in reversed(letters)
    ]
    return GroupLetters(
        group=group,
        total=_sum([count.total for count in counts]),
        not_resent=_sum([count.not_resent for count in counts]),
        letters=rows,
        reasons=count_by_reason(rows),
    )


async def chosen(reader: PullConsumer, group: str, places: Sequence[str]) -> list[DeadLetter]:
    """The letters at these places, in their order.

    Raises UsageError for a place that is none, for too many of them, and for letters that are gone.
    """
    if not places:
        raise UsageError("choose at least one dead letter")
    if len(places) > CHOSEN_MAX:
        raise UsageError(f"{len(places)} letters are too many for one step: {CHOSEN_MAX} can be")
    topic = names.dlq_topic(names.check_group(group))
    letters = []
    for place in dict.fromkeys(places):
        queue, offset = _parse_place(topic, place)
        message = await messages.by_offset(reader, queue, offset)
        if message is None:
            raise UsageError(f"there is no dead letter {place} of {group} any more")
        letters.append(DeadLetter(group=group, queue=queue, message=message))
    return letters


async def export(reader: PullConsumer, group: str) -> AsyncIterator[DeadLetter]:
    """All letters of a group, queue by queue, oldest first. Raises what a read raises."""
    topic = names.dlq_topic(group)
    async for message in messages.by_time(reader, topic, 0, messages.LATEST_MS):
        queue = MessageQueue(topic, message.broker_name, message.queue_id)
        yield DeadLetter(group=group, queue=queue, message=message)


def place_of(letter: DeadLetter) -> str:
    """A letter's place as BROKER/QUEUE/OFFSET."""
    return f"{letter.queue.broker_name}/{letter.queue.queue_id}/{letter.message.queue_offset}"


def reason_of(letter: DeadLetter, retries_max: int | None) -> str:
    """Why a letter was given up, as far as it says; `retries_max` is its group's setting."""
    failures = letter.message.reconsume_times
    # The first attempt is no retry: a message that was retried 16 times has failed 17 times.
    if retries_max is not None and failures > retries_max:
        return f"failed {quantity(failures, 'time')}, no try was left"
    return f"given up after {quantity(failures, 'failure')}"


def count_by_reason(rows: Sequence[LetterRow]) -> Sequence[ReasonCount]:
    """Counts of letters by origin, tag and reason, the largest first."""
    counts = Counter((r.letter.origin_topic, r.letter.message.tag, r.reason) for r in rows)
    return [
        ReasonCount(origin_topic=topic, tag=tag, reason=reason, letters=count)
        for (topic, tag, reason), count in counts.most_common()
    ]


def _parse_place(topic: str, place: str) -> tuple[MessageQueue, int]:
    broker, *numbers = place.rsplit("/", 2)
    if not broker or len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        raise UsageError(f"{place!r:.100} is no dead letter's place: BROKER/QUEUE/OFFSET")
    queue_id, offset = (int(number[:18]) for number in numbers)
    return MessageQueue(topic, broker, queue_id), offset


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


async def _check_group(admin: AdminClient, group: str) -> None:
    topic = names.dlq_topic(names.check_group(group))
    if await admin.route(topic) is None:
        raise UsageError(f"group {group!r} has no dead letters")


async def _retries_max(admin: AdminClient, group: str) -> int | None:
    """The most retries that any broker allows the group; None unless all of them tell."""
    answers, failed = await admin.ask_each(await admin.brokers(), GetGroup(group=group))
    if without_answers(failed, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        return None
    known = [codec.loads(reply.body, SubscriptionGroup) for reply in answers.values()]
    default = SubscriptionGroup(group_name=group)
    return max(one.retry_max_times for one in known or [default])
