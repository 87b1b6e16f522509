"""Group fork: a copy of a consumer group that reads the same log from a past moment on.

The group itself stays as it is, with its progress and its members. Messages that waited in its
retry topics at that moment are no part of the copy, which gets retry topics of its own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from roquet.admin import groups, offset_reset
from roquet.admin.client import AdminClient
from roquet.admin.group_answers import ask_tables
from roquet.admin.group_info import GroupInfo
from roquet.admin.offset_reset import QueueReset, ResetTarget
from roquet.model.errors import NotFound, RoquetError, UsageError
from roquet.model.moments import utc_time
from roquet.model.names import can_users_join, check_group, is_retry
from roquet.model.settings import suggest
from roquet.model.subscription import MessageModel
from roquet.model.topic import SubscriptionGroup
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.calls.admin.topic import CreateGroup
from roquet.wire.calls.bodies import KVTable
from roquet.wire.fastjson import codec

OLDEST: Final = "earliestMessageTimeStamp"
"""Key of a broker's runtime info: when its oldest message was stored, in ms."""


class GroupFork(msgspec.Struct, frozen=True, kw_only=True):
    """A planned copy of a group."""

    name: str
    configs: Mapping[str, SubscriptionGroup]
    """The copy's settings by broker."""
    positions: Sequence[QueueReset]
    """Where the copy begins, queue by queue."""


async def plan(
    admin: AdminClient, source: str, name: str, target: ResetTarget, topics: Sequence[str] = ()
) -> GroupFork:
    """Work out a copy; changes nothing. `topics` empty means all that the group reads.

    Raises UsageError for a name that is taken, a topic that the group does not read, a moment in
    the future, and one whose messages are gone; CallError when a broker does not tell its groups.
    """
    group = await groups.show(admin, source)
    await _check_new(admin, name)
    chosen = _chosen(group, topics)
    if isinstance(target, int) and target > admin.clock.now_ms():
        raise UsageError("a group is copied at a past moment, and this one is yet to come")
    plans = (offset_reset.plan(admin, name, topic, target) for topic in chosen)
    positions = [each for found in await asyncio.gather(*plans) for each in found]
    if isinstance(target, int):
        await _check_there(admin, positions, target)
    configs = await _configs(admin, source, name)
    return GroupFork(name=name, configs=configs, positions=positions)


async def fork(admin: AdminClient, planned: GroupFork) -> list[str]:
    """Make a planned copy; returns the broker names.

    Its members get no message before all its positions are written. RoquetError says what to do
    when it could not be finished.
    """
    name = planned.name
    await _put(admin, planned, "made", is_enabled=False)
    try:
        await offset_reset.reset(admin, name, planned.positions)
        return await _put(admin, planned, "enabled", is_enabled=True)
    except RoquetError as error:
        raise RoquetError(
            f"group {name} is not complete: {error}; `roquet group delete {name}`, and begin anew"
        ) from error


async def _put(admin: AdminClient, planned: GroupFork, done: str, *, is_enabled: bool) -> list[str]:
    """Write the copy's settings; it may consume or not, whether or not the group may."""
    configs = {b: replace(c, consume_enable=is_enabled) for b, c in planned.configs.items()}
    calls = {broker: CreateGroup(body=codec.dumps(each)) for broker, each in configs.items()}
    return await admin.change_each(calls, done)


async def _check_new(admin: AdminClient, name: str) -> None:
    """Raise UsageError for a name that users cannot consume by, or that a group has."""
    if not can_users_join(check_group(name)):
        raise UsageError(f"group {name!r} is the system's own: choose another name")
    try:
        await groups.show(admin, name)
    except NotFound:
        return
    raise UsageError(f"group {name!r} is there already: choose another name, or delete it")


def _chosen(group: GroupInfo, topics: Sequence[str]) -> list[str]:
    if group.message_model == MessageModel.BROADCASTING.name:
        raise UsageError(f"group {group.name!r} broadcasts: its members keep their own progress")
    subscribed = {topic for member in group.members or () for topic in member.subscriptions or ()}
    read = {topic for topic in subscribed | {q.topic for q in group.queues} if not is_retry(topic)}
    for topic in topics:
        if topic not in read:
            raise UsageError(f"group {group.name!r} reads no topic {topic!r}{suggest(topic, read)}")
    if not read:
        raise UsageError(f"group {group.name!r} has read no topic yet: there is nothing to copy")
    return sorted({*topics} or read)


async def _configs(admin: AdminClient, source: str, name: str) -> Mapping[str, SubscriptionGroup]:
    """The group's settings on each broker under another name; the defaults where it has none."""
    brokers = await admin.brokers()
    tables = await ask_tables(admin, brokers)
    for error in tables.failed.values():
        raise error
    configs = {}
    for broker, table in tables.configs.items():
        config = table.subscription_group_table.get(source, SubscriptionGroup())
        attributes = {f"+{key}": value for key, value in config.attributes.items()}
        configs[broker] = replace(config, group_name=name, attributes=attributes)
    return configs


async def _check_there(admin: AdminClient, positions: Sequence[QueueReset], moment_ms: int) -> None:
    """Raise UsageError when messages that were stored at the moment or later have been deleted.

    A queue that begins at 0 has lost none, and no other has where the broker's log reaches back.
    """
    brokers = await admin.brokers()
    shortened = {one.queue.broker_name for one in positions if one.begin} & brokers.keys()
    answers, failed = await admin.ask_each({b: brokers[b] for b in shortened}, GetRuntimeInfo())
    for error in failed.values():
        raise error
    oldest = {
        int(codec.loads(reply.body, KVTable).table.get(OLDEST, -1)): broker
        for broker, reply in answers.items()
    }
    oldest_ms = max(oldest, default=-1)
    if moment_ms < oldest_ms:
        begin = utc_time(oldest_ms + 999).isoformat(timespec="seconds")  # no earlier than it
        raise UsageError(
            f"messages of that moment are gone from {oldest[oldest_ms]}: its oldest one is of"
            f" {begin}; `--at first` begins with the oldest one of each queue"
        )
