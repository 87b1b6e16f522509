"""Group progress: offsets that groups committed in the source, translated for the target.

A group with members in the target is left alone. Progress in the target never moves back, nor past
a message that is no copy, unless a mirror copies back and says that the group has handled it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import asdict

from roquet.admin import groups
from roquet.admin.client import AdminClient, known_leader
from roquet.admin.mirror.endpoint import MirrorEndpoint
from roquet.admin.mirror.queue_copier import MirrorNames, QueueCopier
from roquet.admin.offset_reset import committed_offset, is_online
from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.model.topic import SubscriptionGroup
from roquet.rules.mirror import Origin, origin_of, translated_offset
from roquet.wire.calls.admin.topic import GetGroup
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.fastjson import codec
from roquet.wire.records.property_text import decode_properties

LOOK_BACK: Final = 2_000
"""Messages among which the latest copy of one of the target's own is looked for."""

PROBE_COUNT: Final = 32
"""Messages that are read at a time where one copy is looked for."""


class ProgressTranslation:
    """Translates the progress of groups; a step does it once for all queues."""

    def __init__(
        self, admins: tuple[AdminClient, AdminClient], ends: tuple[MirrorEndpoint, MirrorEndpoint],
        names: MirrorNames,
    ) -> None:  # fmt: skip
        self._source, self._target = admins
        self._from, self._to = ends
        self._names = names
        self._translated: dict[tuple[str, MessageQueue], int] = {}
        """The progress in the source that was translated last, by group and queue."""

    async def step(self, group: str, copiers: Sequence[QueueCopier]) -> None:
        """Commit a group's progress in the target. Raises UsageError if it has members there."""
        leaders, brokers = await self._source.leaders(), await self._target.leaders()
        if await is_online(self._target, group):
            raise UsageError("it has members in the target, whose progress stays theirs")
        for copier in copiers:
            done = await _committed(self._source, leaders, group, copier.source)
            if copier.state.next_offset is None or done is None:
                continue
            if self._translated.get((group, copier.source)) != done:
                await self._translate(group, copier, done, leaders, brokers)

    async def _translate(
        self, group: str, copier: QueueCopier, done: int,
        leaders: Mapping[str, str], brokers: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Commit a group's progress in one queue, whose messages below `done` it has handled."""
        queue = copier.target
        known = await _committed(self._target, brokers, group, queue)
        if known is None:
            await self._make(group)
        begin = max(await self._to.min_offset(queue), known or 0)
        unread = await self._first_unread(copier, done, begin)
        own_unread = await self._own_unread(copier, done, leaders)
        if own_unread is None:
            own_unread = await self._first_own(copier, begin, unread)
        offset = translated_offset(unread, own_unread, known)
        if offset is not None:
            call = UpdateOffset(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id,
                commit_offset=offset,
            )  # fmt: skip
            await self._target.ask(known_leader(brokers, queue.broker_name), call)
        if own_unread is None and done <= copier.next_offset:  # only its progress changes this
            self._translated[group, copier.source] = done

    async def _make(self, group: str) -> None:
        """Create a group in the target, with its settings of the source, unless it is there."""
        if group in await groups.list_names(self._target):
            return
        leaders = await self._source.leaders()
        answers, _ = await self._source.ask_each(leaders, GetGroup(group=group))
        config = SubscriptionGroup()
        for reply in answers.values():
            config = codec.loads(reply.body, SubscriptionGroup)
        attributes = {f"+{key}": value for key, value in config.attributes.items()}
        changes = {**asdict(config), "group_name": group, "attributes": attributes}
        await groups.create(self._target, group, changes)

    async def _first_unread(self, copier: QueueCopier, done: int, begin: int) -> int:
        """The target offset, `begin` or later, of the first copy of an original at `done` or later.

        Copies are in the order of their originals: a bisection, which begins with the place of the
        copy if the target got no messages of its own since.
        """
        low, high = begin, max(begin, copier.state.target_end)
        middle = high - 1 - max(0, copier.next_offset - done)
        while low < high:
            middle = max(low, min(middle, high - 1))
            place, origin = await self._copy_from(copier, middle, high)
            if origin is None or origin.offset >= done:
                high = middle
            else:
                low = place + 1
            middle = (low + high) // 2
        return max(low, (await self._copy_from(copier, low, copier.state.target_end))[0])

    async def _copy_from(
        self, copier: QueueCopier, begin: int, end: int
    ) -> tuple[int, Origin | None]:
        """The first copy of the source queue in [begin, end) of the target, and its offset."""
        async for record in self._to.records_between(copier.target, begin, end, PROBE_COUNT):
            if (origin := copier.original_of(record)) is not None:
                return record.queue_offset, origin
        return end, None

    async def _first_own(self, copier: QueueCopier, begin: int, end: int) -> int | None:
        """The first message in [begin, end) of the target that is no copy of the source queue."""
        known = copier.copies
        unsure = known.stop if begin in known else begin
        async for record in self._to.records_between(copier.target, unsure, end):
            if copier.original_of(record) is None:
                return record.queue_offset
        known = copier.copies
        if known.start <= end and begin <= known.stop:
            begin, end = min(begin, known.start), max(end, known.stop)
        copier.copies = range(begin, end)
        return None

    async def _own_unread(
        self, copier: QueueCopier, done: int, leaders: Mapping[str, str]
    ) -> int | None:
        """Where the target's own messages begin that are not copied to the source below `done`.

        None when no mirror copies from the target to the source.
        """
        back = MirrorNames(self._names.target, self._names.source).target_group
        end = await _committed(self._source, leaders, back, copier.source)
        if end is None:
            return None
        end = min(end, done)
        first = await self._from.min_offset(copier.source)
        for count in (PROBE_COUNT, LOOK_BACK):
            begin, last = max(first, end - count), None
            async for record in self._from.records_between(copier.source, begin, end, count):
                origin = origin_of(decode_properties(record.properties))
                if origin and origin.is_from(self._names.target, copier.target):
                    last = origin.offset + 1
            if last is not None:
                return last
        return await self._to.min_offset(copier.target)


async def _committed(
    admin: AdminClient, leaders: Mapping[str, str], group: str, queue: MessageQueue
) -> int | None:
    return await committed_offset(admin, known_leader(leaders, queue.broker_name), group, queue)
