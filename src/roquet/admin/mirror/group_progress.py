"""Group progress: offsets that groups committed in the source, translated for the target.

A group with members in the target is left alone. Progress in the target never moves back, nor past
a message that is no copy, unless a mirror copies back and says that the group has handled it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from roquet.admin import groups
from roquet.admin.client import AdminClient, known_leader, without_answers
from roquet.admin.mirror.endpoint import MirrorEndpoint
from roquet.admin.mirror.queue_copier import MirrorNames, QueueCopier
from roquet.admin.offset_reset import committed_offset
from roquet.model.queue import MessageQueue
from roquet.model.topic import SubscriptionGroup
from roquet.rules.mirror import Origin, origin_of, translated_offset
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.admin.topic import CreateGroup, GetGroup
from roquet.wire.calls.bodies import ConsumerConnection
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.records.property_text import decode_properties

OWN_PREFIX: Final = "roquet-mirror-"

LOOK_BACK: Final = 2_000
"""Messages among which the latest copy of one of the target's own is looked for."""


class ProgressTranslation:
    """Translates the progress of groups; a step does it once for all queues."""

    def __init__(
        self, admins: tuple[AdminClient, AdminClient], ends: tuple[MirrorEndpoint, MirrorEndpoint],
        names: MirrorNames,
    ) -> None:  # fmt: skip
        self._source, self._target = admins
        self._from, self._to = ends
        self._names = names
        self._made: set[str] = set()
        self._leaders: Mapping[str, str] = {}

    async def step(self, group: str, copiers: Sequence[QueueCopier]) -> str | None:
        """Commit a group's progress in the target; the reason if its members there forbid it."""
        self._leaders = await self._source.leaders()
        brokers = await self._target.leaders()
        if await self._has_members(group, brokers):
            return f"group {group}: it has members in the target, whose progress stays theirs"
        for copier in copiers:
            if copier.state.next_offset is None:
                continue
            done = await _committed(self._source, self._leaders, group, copier.source)
            if done is None:
                continue
            await self._make(group)
            known = await _committed(self._target, brokers, group, copier.target)
            unread = await self._first_unread(copier, done)
            own_unread = await self._own_unread(copier, done)
            if own_unread is None and known is not None:
                own_unread = await self._first_own(copier, known, unread)
            offset = translated_offset(unread, own_unread, known)
            if offset is not None:
                call = UpdateOffset(
                    consumer_group=group, topic=copier.target.topic,
                    queue_id=copier.target.queue_id, commit_offset=offset,
                )  # fmt: skip
                await self._target.ask(known_leader(brokers, copier.target.broker_name), call)
        return None

    async def _has_members(self, group: str, brokers: Mapping[str, str]) -> bool:
        answers, failed = await self._target.ask_each(brokers, GetConnections(consumer_group=group))
        for error in without_answers(failed, ResponseCode.CONSUMER_NOT_ONLINE).values():
            raise error
        members = (codec.loads(reply.body, ConsumerConnection) for reply in answers.values())
        return any(one.connection_set for one in members)

    async def _make(self, group: str) -> None:
        """Create a group in the target, with its settings of the source, unless it is there."""
        if group in self._made:
            return
        answers, _ = await self._source.ask_each(
            await self._source.leaders(), GetGroup(group=group)
        )
        config = SubscriptionGroup(group_name=group)
        for reply in answers.values():
            config = codec.loads(reply.body, SubscriptionGroup)
        if group not in await groups.list_names(self._target):
            call = CreateGroup(body=codec.dumps(config))
            leaders = await self._target.leaders()
            await self._target.change_each(dict.fromkeys(leaders, call), "made")
        self._made.add(group)

    async def _first_unread(self, copier: QueueCopier, done: int) -> int:
        """The target offset of the first copy of an original at `done` or later."""
        if (offset := copier.offsets.target_of(done)) is not None:
            return offset
        low = await self._to.min_offset(copier.target)
        high = max(low, copier.state.target_end)
        while low < high:  # copies are in the order of their originals: bisection
            middle = (low + high) // 2
            place, origin = await self._copy_from(copier, middle, high)
            if origin is None or origin.offset >= done:
                high = middle
            else:
                low = place + 1
        return max(low, (await self._copy_from(copier, low, copier.state.target_end))[0])

    async def _copy_from(
        self, copier: QueueCopier, begin: int, end: int
    ) -> tuple[int, Origin | None]:
        """The first copy of the source queue in [begin, end) of the target, and its offset."""
        async for record in self._to.records_between(copier.target, begin, end):
            if (origin := copier.original_of(record)) is not None:
                return record.queue_offset, origin
        return end, None

    async def _first_own(self, copier: QueueCopier, begin: int, end: int) -> int | None:
        """The first message in [begin, end) of the target that is no copy of the source queue."""
        async for record in self._to.records_between(copier.target, begin, end):
            if copier.original_of(record) is None:
                return record.queue_offset
        return None

    async def _own_unread(self, copier: QueueCopier, done: int) -> int | None:
        """Where the target's own messages begin that are not copied to the source below `done`.

        None when no mirror copies from the target to the source.
        """
        before = [at for at in copier.own_unread if at < done]
        if before:
            return copier.own_unread[max(before)]
        back = MirrorNames(self._names.target, self._names.source).target_group
        end = await committed_offset(
            self._source,
            known_leader(self._leaders, copier.source.broker_name),
            back,
            copier.source,
        )
        if end is None:
            return None
        last, first = None, await self._from.min_offset(copier.source)
        end = min(end, done)
        async for record in self._from.records_between(
            copier.source, max(first, end - LOOK_BACK), end
        ):
            origin = origin_of(decode_properties(record.properties))
            if origin and origin.is_from(self._names.target, copier.target):
                last = origin.offset + 1
        return await self._to.min_offset(copier.target) if last is None else last


async def _committed(
    admin: AdminClient, leaders: Mapping[str, str], group: str, queue: MessageQueue
) -> int | None:
    return await committed_offset(admin, known_leader(leaders, queue.broker_name), group, queue)


async def chosen_groups(source: AdminClient) -> list[str]:
    """All groups of the source but the system's, our tools' and those of mirrors."""
    return [g for g in await groups.list_names(source) if not g.startswith(OWN_PREFIX)]
