"""Dead letters of the pages: groups that have some, letters by reason, chosen ones, an export."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from roquet.admin import dead_letters, groups, messages
from roquet.admin.client import AdminClient, without_answers
from roquet.admin.dead_letters import DeadLetter
from roquet.admin.group_answers import totals
from roquet.client.pull import PullConsumer
from roquet.dashboard.sampling.letter_tally import LetterKind, LetterTallies
from roquet.model import names
from roquet.model.errors import NotFound, UsageError
from roquet.model.printable_text import quantity
from roquet.model.queue import MessageQueue
from roquet.model.topic import SubscriptionGroup
from roquet.rules.consumption.dead_letter_reason import reason_kind
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
    """One page of the dead letters of a group, and counts of all of them."""

    group: str
    total: int | None
    """None when a broker does not answer."""
    not_resent: int | None
    """Letters after the last ones that were resent all together; None as above."""
    newer: int
    """Letters on the pages before this one."""
    letters: Sequence[LetterRow]
    """Newest first, `SHOWN` at most."""
    next_page: Sequence[str]
    """Places that the next page ends before; empty on the last one."""
    reasons: Sequence[ReasonCount]
    """Counts of all letters, the largest first."""
    counted: int
    """Letters in these counts: fewer than all of them while there are too many to read at once."""


async def count_letters(
    admin: AdminClient, group_names: Sequence[str]
) -> Sequence[DeadLetterGroup]:
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
            await asyncio.gather(*map(count, group_names))
    late = f"not counted within {COUNT_TIMEOUT_S:.0f} s"
    unknown = (
        DeadLetterGroup(group=group, total=None, newest_ms=None, fault=late)
        for group in group_names
    )
    return [counted.get(one.group, one) for one in unknown]


async def letters_of(
    admin: AdminClient,
    reader: PullConsumer,
    group: str,
    tallies: LetterTallies,
    *,
    user: str | None = None,
    before: Sequence[str] = (),
    limit: int = SHOWN,
) -> GroupLetters:
    """The newest letters of a group, or those before some places, as `next_page` has them.

    `user` is whom the reader asks as; None where nobody logs in.
    Raises UsageError for a place that is none, NotFound for an unknown group.
    """
    topic = names.dlq_topic(group)
    places = dict(_parse_place(topic, place) for place in before)
    if not await has_letters(admin, group):
        return GroupLetters(
            group=group, total=0, not_resent=0, newer=0, letters=(), next_page=(), reasons=(),
            counted=0,
        )  # fmt: skip
    queues = await messages.queues(reader, topic)
    ends = {queue: places[queue] for queue in queues if queue in places}
    totals, letters, retries_max = await asyncio.gather(
        dead_letters.counts(reader, group),
        dead_letters.newest(reader, group, limit + 1, ends),
        _retries_max(admin, group),
    )
    counts = await tallies.of(group, user).count(reader, group)
    shown = letters[-limit:][::-1]
    first = {letter.queue: letter.message.queue_offset for letter in shown}  # the lowest is last
    next_page = [_place(queue, end) for queue, end in {**ends, **first}.items()]
    return GroupLetters(
        group=group,
        total=_sum([count.total for count in totals]),
        not_resent=_sum([count.not_resent for count in totals]),
        newer=sum([max(await reader.max_offset(q) - end, 0) for q, end in ends.items()]),
        letters=[
            LetterRow(place=place_of(one), letter=one, reason=_reason(one, retries_max))
            for one in shown
        ],
        next_page=next_page if len(letters) > limit else (),
        reasons=count_by_reason(counts, retries_max),
        counted=counts.total(),
    )


async def has_letters(admin: AdminClient, group: str) -> bool:
    """Whether a group has a dead-letter topic. Raises NotFound when no broker knows the group."""
    if await admin.route(names.dlq_topic(group)) is not None:
        return True
    await groups.show(admin, group)
    return False


async def chosen(reader: PullConsumer, group: str, places: Sequence[str]) -> list[DeadLetter]:
    """The letters at these places, in their order.

    Raises UsageError for a place that is none, and for too many of them; NotFound for letters that
    are gone.
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
            raise NotFound(f"there is no dead letter {place} of {group} any more")
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
    return _place(letter.queue, letter.message.queue_offset)


def reason_of(failures: int, retries_max: int | None) -> str:
    """Why a letter was given up, as far as it says; `retries_max` is its group's setting."""
    # The first attempt is no retry: a message that was retried 16 times has failed 17 times.
    if retries_max is not None and failures > retries_max:
        return f"failed {quantity(failures, 'time')}, no try was left"
    return f"given up after {quantity(failures, 'failure')}"


def count_by_reason(counts: Counter[LetterKind], retries_max: int | None) -> Sequence[ReasonCount]:
    """Counts of letters by origin, tag and reason, the largest first."""
    return [
        ReasonCount(
            origin_topic=kind.origin_topic,
            tag=kind.tag,
            reason=kind.reason or reason_of(kind.failures, retries_max),
            letters=count,
        )
        for kind, count in counts.most_common()
    ]


def _reason(letter: DeadLetter, retries_max: int | None) -> str:
    # The rest of a reason may quote the body, which masks may hide: the message's page has it.
    kind = reason_kind(letter.reason or "")
    return kind or reason_of(letter.message.reconsume_times, retries_max)


def _place(queue: MessageQueue, offset: int) -> str:
    return f"{queue.broker_name}/{queue.queue_id}/{offset}"


def _parse_place(topic: str, place: str) -> tuple[MessageQueue, int]:
    broker, *numbers = place.rsplit("/", 2)
    if not broker or len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        raise UsageError(f"{place!r:.100} is no dead letter's place: BROKER/QUEUE/OFFSET")
    queue_id, offset = (int(number[:18]) for number in numbers)
    return MessageQueue(topic, broker, queue_id), offset


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


async def _retries_max(admin: AdminClient, group: str) -> int | None:
    """The most retries that any broker allows the group; None unless all of them tell."""
    answers, failed = await admin.ask_each(await admin.brokers(), GetGroup(group=group))
    if without_answers(failed, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        return None
    known = [codec.loads(reply.body, SubscriptionGroup) for reply in answers.values()]
    default = SubscriptionGroup(group_name=group)
    return max(one.retry_max_times for one in known or [default])
