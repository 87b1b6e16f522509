"""Reset: an operator sets a group's offsets to a time, an offset, or those of another group.

server_side_reset    the broker sets the offsets, and sends the next pull or pop of each queue there
else                 the members are notified and set the offsets; the broker changes nothing
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeGuard

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.large_replies import dumped, in_slices
from roquet.broker.operations.progress import BrokerProgress
from roquet.broker.refusals import no_group, no_topic, system_error
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.clients import GroupMember
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, FieldError
from roquet.model.queue import MessageQueue
from roquet.model.topic import TopicConfig
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin import offset_reset as calls
from roquet.wire.calls.bodies import ClientStatus, OffsetOfQueue, ResetOffsetBody, ResetOffsetList
from roquet.wire.codes import Language, ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.request_body import decode_body

log = logger(__name__)

VERSION_TOLD: Final = 28
"""First version (V3_0_7_SNAPSHOT) of clients that know these requests."""

STATUS_TIMEOUT_MS: Final = 5_000
"""Timeout of a member's status in ms, as in the genuine broker; C++ clients never reply."""

TOO_OLD: Final = "the client does not support this feature. version={}"


class ResetHandler(BrokerComponent, frozen=True):
    """Sets the progress of groups."""

    log: MessageLog
    tables: BrokerTables
    control: ControlPlane
    progress: BrokerProgress

    async def reset(self, call: calls.ResetOffset, _peer: Peer) -> Reply:
        """Reset a group's offsets in a topic."""
        log.info(
            "reset asked: group %s, topic %s, queue %d, offset %s, time %d, force %s",
            call.group, call.topic, call.queue_id, call.offset, call.timestamp, call.is_force,
        )  # fmt: skip
        if self.control.settings.config.server_side_reset:
            offsets = await self._reset(call)
        else:
            offsets = await self._tell(call)
        name = self.control.settings.config.broker_name
        table = {MessageQueue(call.topic, name, queue_id): at for queue_id, at in offsets.items()}
        return Reply(body=await dumped(len(table), ResetOffsetBody(offset_table=table)))

    # -- by the broker ---------------------------------------------------------------------------

    async def _reset(self, call: calls.ResetOffset) -> Mapping[int, int]:
        """Set the offsets; returns them by queue. Nothing changes when the save fails."""
        group, topic = call.group, call.topic
        targets = await self._wanted(call, self._topic_of(call))
        if not targets:
            raise system_error("No queues to reset.")
        self._topic_of(call)  # the topic may have been deleted meanwhile
        before = {queue_id: self.tables.offsets.get(group, topic, queue_id) for queue_id in targets}
        for queue_id, offset in targets.items():
            self.tables.offsets.commit(group, topic, queue_id, offset)
            self.tables.offset_resets.put(group, topic, queue_id, offset)
            self.tables.ordered_pops.free(group, topic, queue_id)
        try:
            await self.progress.save_in_threads()
        except Exception:
            self._undo(call, before)
            raise
        self.log.arrivals.look_again([topic])
        return targets

    def _topic_of(self, call: calls.ResetOffset) -> TopicConfig:
        """The topic's settings. Raises CallRefused unless there are the topic and the group."""
        config = self.tables.topics.get(call.topic)
        if config is None:
            raise no_topic(f"Topic {call.topic} does not exist")
        if self.tables.groups.get(call.group) is None:
            raise no_group(f"Group {call.group} does not exist")
        return config

    def _undo(self, call: calls.ResetOffset, before: Mapping[int, int | None]) -> None:
        group, topic = call.group, call.topic
        for queue_id, offset in before.items():
            if self.tables.offset_resets.take(group, topic, queue_id) is not None:
                self.tables.offsets.restore(group, topic, queue_id, offset)

    async def _wanted(self, call: calls.ResetOffset, config: TopicConfig) -> dict[int, int]:
        if call.queue_id < 0:
            queue_ids = range(config.read_queue_nums)
            at_time = partial(self._at_time, call.topic, ms=call.timestamp)
            return dict(zip(queue_ids, await in_slices(queue_ids, at_time), strict=True))
        if call.queue_id >= config.read_queue_nums:
            raise system_error(
                f"No queues to reset. Topic {call.topic} has {config.read_queue_nums} queues here, "
                f"and no queue {call.queue_id}"
            )
        if not _is_offset(call.offset):
            return {call.queue_id: self._at_time(call.topic, call.queue_id, ms=call.timestamp)}
        least, end = self.log.store.bounds(call.topic, call.queue_id)
        if not least <= call.offset <= end + 1:
            raise system_error(
                f"Target offset {call.offset} not in consume queue range [{least}-{end}]"
            )
        return {call.queue_id: min(call.offset, end)}

    def _at_time(self, topic: str, queue_id: int, *, ms: int) -> int:
        """The offset of the first message at a time or later; the queue's end without one."""
        if ms < 0:
            return self.log.store.bounds(topic, queue_id)[1]
        return self.log.store.offset_by_time(topic, queue_id, ms)

    # -- by the members --------------------------------------------------------------------------

    async def _tell(self, call: calls.ResetOffset) -> Mapping[int, int]:
        """Send the offsets to every member; returns them by queue."""
        topic, group = call.topic, call.group
        config = self.tables.topics.get(topic)
        if config is None:
            raise system_error(
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
            )
        targets = await self._targets(call, config)
        members = self._members(group)
        if not members:
            raise CallRefused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
                f"Timestamp: {call.timestamp}",
            )
        for member in members:
            _check_version(member.peer)
        name = self.control.settings.config.broker_name
        # Encoded once for all members: there may be thousands, and as many queues.
        bodies = {flag: _body(targets, topic, name, as_list=flag) for flag in (False, True)}
        for member in members:
            member.peer.oneway(
                calls.ResetClientOffset(
                    topic=topic,
                    group=group,
                    timestamp=call.timestamp,
                    is_force=call.is_force,
                    body=bodies[member.peer.language == Language.CPP],
                )
            )
        return targets

    async def _targets(self, call: calls.ResetOffset, config: TopicConfig) -> dict[int, int]:
        """The offsets by queue: a time without force only moves offsets back.

        CallRefused for a group without progress. Genuine brokers support only a time and all queues
        here; ours also supports one queue and an offset, which needs no force.
        """
        progress = [
            self.tables.offsets.get(call.group, call.topic, n)
            for n in range(config.read_queue_nums)
        ]
        if all(committed is None for committed in progress):
            raise system_error(f"THe consumer group <{call.group}> not exist")
        targets = await self._wanted(call, config)
        if call.is_force or (call.queue_id >= 0 and _is_offset(call.offset)):
            return targets
        for queue_id, wanted in targets.items():
            if (committed := progress[queue_id]) is not None:
                targets[queue_id] = min(wanted, committed)
        return targets

    # -- status of members -----------------------------------------------------------------------

    async def status(self, call: calls.GetGroupStatus, _peer: Peer) -> Reply:
        """Return the offsets that the members of a group report; silent members are left out."""
        members = self._members(call.group)
        if not members:
            raise system_error(f"No Any Consumer online in the consumer group: [{call.group}]")
        addressed = [m for m in members if not call.client_addr or m.client_id == call.client_addr]
        for member in addressed:
            _check_version(member.peer)
        answers = await asyncio.gather(*(_ask(member, call) for member in addressed))
        by_client = zip((member.client_id for member in addressed), answers, strict=True)
        table = {client_id: answer for client_id, answer in by_client if answer is not None}
        return Reply(body=codec.dumps(ClientStatus(consumer_table=table)))

    def _members(self, group: str) -> Sequence[GroupMember]:
        consumers = self.tables.clients.consumers(group)
        return list(consumers.members.values()) if consumers else []

    # -- offsets of another group ----------------------------------------------------------------

    async def clone(self, call: calls.CloneOffsets, _peer: Peer) -> Reply:
        """Copy the offsets of one group to another."""
        for topic in self._cloned(call):
            self.tables.offsets.clone(call.src_group, call.dest_group, topic)
        await self.progress.save_in_threads()
        return Reply()

    def _cloned(self, call: calls.CloneOffsets) -> Iterable[str]:
        """The topics to copy, which exist; unless `offline` the source group subscribes to them."""
        for topic in [call.topic] if call.topic else self.tables.offsets.topics(call.src_group):
            if self.tables.topics.get(topic) is None:
                log.warning("no topic %s: no progress of it is cloned", topic)
            elif not call.offline and self.progress.has_unsubscribed(call.src_group, topic):
                log.warning("group %s does not listen to %s: not cloned", call.src_group, topic)
            else:
                yield topic


def _is_offset(offset: int | None) -> TypeGuard[int]:
    """Whether the request has an offset; else its time counts."""
    return offset is not None and offset != -1


def _body(targets: Mapping[int, int], topic: str, broker: str, *, as_list: bool) -> bytes:
    if as_list:
        rows = [
            OffsetOfQueue(topic=topic, broker_name=broker, queue_id=queue_id, offset=offset)
            for queue_id, offset in targets.items()
        ]
        return codec.dumps(ResetOffsetList(offset_table=rows))
    table = {MessageQueue(topic, broker, queue_id): at for queue_id, at in targets.items()}
    return codec.dumps(ResetOffsetBody(offset_table=table))


async def _ask(member: GroupMember, call: calls.GetGroupStatus) -> dict[MessageQueue, int] | None:
    question = calls.GetClientStatus(topic=call.topic, group=call.group)
    try:
        reply = await member.peer.call(question, STATUS_TIMEOUT_MS)
        client_status = decode_body(reply.body, ClientStatus) if reply.body else ClientStatus()
    except (CallError, FieldError) as error:
        log.info("%s does not say how far it is: %s", member.client_id, error)
        return None
    return client_status.message_queue_table or {}


def _check_version(peer: Peer) -> None:
    if peer.version < VERSION_TOLD:
        raise system_error(TOO_OLD.format(peer.version))
