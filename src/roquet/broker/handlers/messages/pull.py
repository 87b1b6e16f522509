"""Pull: returns messages of a queue, or holds the request until some arrive."""

from collections.abc import Awaitable
from typing import Final, cast

import msgspec

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.coordination import GroupCoordination
from roquet.broker.filtering.filter_cache import TAG_TYPES, CompiledFilter
from roquet.broker.filtering.filter_scan import scan
from roquet.broker.filtering.tag_expressions import TagCodes, parse_tag_codes
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.progress import BrokerProgress
from roquet.broker.operations.reading_checks import ReadForbidden, ReadingChecks
from roquet.broker.operations.replica_reads import ReplicaReads
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.errors import CallRefused, FieldError
from roquet.model.flags import PullFlag
from roquet.model.subscription import Subscription
from roquet.net.router import HandlerReply, Peer
from roquet.rules.consumption.pull import (
    FOUND,
    OffsetCorrected,
    is_in_page_cache,
    pull_outcome,
    reply_limits,
    transfer_limits,
)
from roquet.store.reading.reader import Slice
from roquet.wire.calls.bodies import MultiQueueOffsets
from roquet.wire.calls.pull import LitePull, Pull, PullReply
from roquet.wire.codes import HELP, Language, ResponseCode
from roquet.wire.plain_pull import AnyPull, PlainPull, found_reply
from roquet.wire.request_body import decode_body

SCAN_MAX: Final = 32_768
"""Entries that a pull with tags scans: half a millisecond. The genuine broker gives up after 800,
which takes forty replies for the same entries."""

SUSPEND_MS_MAX: Final = 300_000
"""Longest wait in ms; clients ask for 15 s and give up after 30 s."""

NO_MATCH: Final = "NO_MATCHED_MESSAGE"

# As plain numbers, which every pull compares: a member of an enum costs more.
SUCCESS: Final = int(ResponseCode.SUCCESS)
NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
RETRY: Final = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
COMMIT: Final = int(PullFlag.COMMIT_OFFSET)
SUSPEND: Final = int(PullFlag.SUSPEND)
SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)
CLASS_FILTER: Final = int(PullFlag.CLASS_FILTER)
PYTHON: Final = int(Language.PYTHON)


class PullHandler(BrokerComponent, frozen=True):
    """Answers pulls: reads a queue, or holds the request until a message arrives."""

    log: MessageLog
    tables: BrokerTables
    coordination: GroupCoordination
    control: ControlPlane
    reading: ReadingChecks
    progress: BrokerProgress
    replica_reads: ReplicaReads

    def pull(self, call: Pull | LitePull, peer: Peer) -> HandlerReply:
        """Return messages of one queue, or wait for them."""
        if self.replica_reads.is_plain_read():
            return self._read(call, peer)
        call = self.replica_reads.without_wait(call)
        reply = self._read(call, peer)
        if isinstance(reply, PullReply):
            return self.replica_reads.directed(call, reply)
        return self.replica_reads.directed_later(call, reply)

    def _read(self, call: Pull, peer: Peer) -> PullReply | Awaitable[PullReply]:
        try:
            self.reading.check_pull(call)
        except ReadForbidden as error:
            return _forbidden(error)
        wanted = self._wanted(call)
        if self.tables.offset_resets.pending and (moved := self._reset_reply(call)) is not None:
            return moved
        if self.tables.former_readers.pending and self._is_former_reader(call, peer):
            return self._redirect_reply(call, None, "the topic was deleted and made anew")
        self._note_reader(call, peer)
        if isinstance(wanted, CompiledFilter):
            return self._filtered_pull(call, wanted, peer)
        limits = self._limits(call, peer)
        reply = self._current_reply(call, wanted, limits)
        if reply.code == NOT_FOUND and call.sys_flag & SUSPEND and call.suspend_timeout_millis > 0:
            return self._hold(call, wanted, limits)
        return reply

    def _note_reader(self, call: AnyPull, peer: Peer) -> None:
        """Note the progress that a pull commits, and who reads the queue."""
        group, topic, queue_id = call.consumer_group, call.topic, call.queue_id
        if call.sys_flag & COMMIT and call.commit_offset >= 0:
            self.progress.commit(group, topic, queue_id, call.commit_offset)
        self.coordination.handover.seen(group, topic, queue_id, peer)

    def _limits(self, call: AnyPull, peer: Peer) -> tuple[int, int]:
        """Messages and bytes of the reply: what the client asks for, within our limits.

        Clients of other languages get what the transfer limits allow, since programs rely on them:
        Java clients ask for what fits in one reply.
        """
        if peer.language == PYTHON:
            return reply_limits(call.max_msg_nums, call.max_msg_bytes)
        config = self.control.settings.config
        count, size = config.pull_count_memory, config.pull_bytes_memory
        if self._is_cold(call):
            count, size = config.pull_count_disk, config.pull_bytes_disk
        return transfer_limits(call.max_msg_nums, call.max_msg_bytes, count, size)

    def _is_cold(self, call: AnyPull) -> bool:
        store, memory = self.log.store, self.log.memory
        share = self.control.settings.config.memory_share
        if is_in_page_cache(store.begin_position, store.end_position, memory, share):
            return False  # the whole log is in memory: no need to look where the message lies
        entries = store.queue_stats.entries(call.topic, call.queue_id, call.queue_offset, 1)
        return bool(entries) and not is_in_page_cache(
            entries[0][0], store.end_position, memory, share
        )

    async def _hold(self, call: Pull, wanted: TagCodes, limits: tuple[int, int]) -> PullReply:
        next_offset = call.queue_offset + 1
        if self.log.store.bounds(call.topic, call.queue_id)[1] < next_offset:
            deadline_ms = self._deadline_ms(call)
            await self.log.arrivals.reach(
                call.topic, call.queue_id, next_offset, wanted, deadline_ms
            )
        return self._changed(call) or self._current_reply(call, wanted, limits)

    def _deadline_ms(self, call: Pull) -> int:
        hold_ms = min(call.suspend_timeout_millis, SUSPEND_MS_MAX)
        if not self.control.settings.config.long_polling:
            hold_ms = min(hold_ms, self.control.settings.config.short_polling)
        return self.control.clock.monotonic_ms() + hold_ms

    def _changed(self, call: Pull) -> PullReply | None:
        """A reply when the topic was deleted or forbidden, or the offset reset, during the wait."""
        try:
            self.reading.check_pull(call)
        except ReadForbidden as error:
            return _forbidden(error)
        return self._reset_reply(call) if self.tables.offset_resets.pending else None

    def _reset_reply(self, call: Pull) -> PullReply | None:
        """The reply that sends the group to the offset of an operator's reset, once."""
        offset = self.tables.offset_resets.take(call.consumer_group, call.topic, call.queue_id)
        if offset is None:
            return None
        return self._redirect_reply(call, offset, "OFFSET_RESET")

    def _is_former_reader(self, call: Pull, peer: Peer) -> bool:
        """Whether a client without topic ids pulls first since the topic was deleted."""
        return call.topic_id is None and self.tables.former_readers.tell(
            call.topic, call.consumer_group, call.queue_id, peer
        )

    def _redirect_reply(self, call: Pull, offset: int | None, remark: str) -> PullReply:
        """The reply that sends a reader to an offset; None is the queue's first."""
        bounds = self.log.store.bounds(call.topic, call.queue_id)
        return _without_messages(MOVED, remark, bounds[0] if offset is None else offset, bounds)

    def _current_reply(self, call: Pull, wanted: TagCodes, limits: tuple[int, int]) -> PullReply:
        bounds = self.log.store.bounds(call.topic, call.queue_id)
        if pull_outcome(call.queue_offset, *bounds) is FOUND:
            return self._matching_reply(call, wanted, limits, bounds)
        return self._out_of_range_reply(call, call.queue_offset, bounds)

    def _out_of_range_reply(self, call: Pull, offset: int, bounds: tuple[int, int]) -> PullReply:
        """The reply for an offset outside the queue, which holds [least, next)."""
        committed = self.tables.offsets.get(call.consumer_group, call.topic, call.queue_id)
        match pull_outcome(offset, *bounds, committed):
            case OffsetCorrected(offset, reason):
                code, next_offset, remark = MOVED, offset, reason
            case _:
                self.control.statistics.missed()
                code, next_offset, remark = NOT_FOUND, offset, "OFFSET_OVERFLOW_ONE"
        return _without_messages(code, remark, next_offset, bounds)

    def _matching_reply(
        self, call: Pull, wanted: TagCodes, limits: tuple[int, int], bounds: tuple[int, int]
    ) -> PullReply:
        count, size = limits
        together = self._multi_queue_slice(call, size) if call.body and wanted is None else None
        messages = together or self.log.store.read(
            call.topic,
            call.queue_id,
            call.queue_offset,
            count_max=count,
            bytes_max=size,
            wanted=wanted,
            scan_max=SCAN_MAX,
        )
        return self._slice_reply(call, messages, bounds)

    def _slice_reply(self, call: Pull, messages: Slice, bounds: tuple[int, int]) -> PullReply:
        if messages.count:
            self._count(call, messages)
        return PullReply(
            code=SUCCESS if messages.count else RETRY,
            remark="FOUND" if messages.count else NO_MATCH,
            next_begin_offset=messages.next_offset,
            min_offset=bounds[0],
            max_offset=bounds[1],
            body=_body(messages.parts),
        )

    def _count(self, call: AnyPull, messages: Slice) -> None:
        tally = self.control.statistics.got(
            call.topic, call.consumer_group, messages.count, messages.size
        )
        tally.pulled[call.queue_id] = messages.next_offset

    # -- with a filter expression ----------------------------------------------------------------

    async def _filtered_pull(self, call: Pull, wanted: CompiledFilter, peer: Peer) -> PullReply:
        """The reply with records that match an expression; waits for one that matches."""
        limits = self._limits(call, peer)
        at = call.queue_offset
        reply = await self._filtered_reply(call, wanted, limits, at)
        may_wait = call.sys_flag & SUSPEND and call.suspend_timeout_millis > 0
        if reply.code != NOT_FOUND or not may_wait:
            return reply
        deadline_ms, has_arrived = self._deadline_ms(call), True
        while has_arrived and reply.code in (NOT_FOUND, RETRY):
            at = reply.next_begin_offset
            if self.log.store.bounds(call.topic, call.queue_id)[1] <= at:
                has_arrived = await self.log.arrivals.reach(
                    call.topic, call.queue_id, at + 1, None, deadline_ms
                )
            else:  # more messages come than can be scanned: the client would wait forever
                has_arrived = self.control.clock.monotonic_ms() < deadline_ms
            if (changed := self._changed(call)) is not None:
                return changed
            reply = await self._filtered_reply(call, wanted, limits, at)
        if reply.code == NOT_FOUND and at > call.queue_offset:
            # Only other messages came, and need no second scan.
            return msgspec.structs.replace(reply, code=RETRY, remark=NO_MATCH)
        return reply

    async def _filtered_reply(
        self, call: Pull, wanted: CompiledFilter, limits: tuple[int, int], offset: int
    ) -> PullReply:
        bounds = self.log.store.bounds(call.topic, call.queue_id)
        if pull_outcome(offset, *bounds) is not FOUND:
            return self._out_of_range_reply(call, offset, bounds)
        start = call.topic, call.queue_id, offset
        messages = await scan(self.log.store, self.log.filters.scan_lock, start, wanted, limits)
        return self._slice_reply(call, messages, bounds)

    def _multi_queue_slice(self, call: Pull, size: int) -> Slice | None:
        """Records of this queue and others, in log order, up to a size; None for a plain pull."""
        try:
            others = decode_body(call.body, MultiQueueOffsets).offsets
        except FieldError:
            return None  # a genuine broker looks at no body
        topic = self.tables.topics.get(call.topic)
        readable = topic.read_queue_nums if topic else 0
        if not others or not all(0 <= queue_id < readable for queue_id in others):
            return None
        offsets = {call.queue_id: call.queue_offset} | others
        return self.log.store.read_together(call.topic, offsets, bytes_max=size)

    def _wanted(self, call: AnyPull) -> TagCodes | CompiledFilter:
        """The tag codes or expression of the pull, else of the group's heartbeats."""
        if call.sys_flag & SUBSCRIPTION:
            if call.expression_type in TAG_TYPES:
                return parse_tag_codes(call.subscription)
            return self.log.filters.find(
                self.control.settings.config, call.expression_type, call.subscription
            )
        subscription = self._subscription(call)
        if subscription.sub_version < call.sub_version:
            _check_newer_tags(subscription, call)
            return None  # everything matches
        if subscription.expression_type in TAG_TYPES:
            return parse_tag_codes(subscription.sub_string)  # not its codes: C++ sends wrong ones
        return self.log.filters.of_subscription(self.control.settings.config, subscription)

    def _subscription(self, call: AnyPull) -> Subscription:
        """The group's subscription to the topic. CallRefused without one."""
        members = self.tables.clients.consumers(call.consumer_group)
        subscription = members.subscriptions.get(call.topic) if members is not None else None
        if subscription is None:
            absent = "group info" if members is None else "subscription"
            raise CallRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's {absent} not exist{HELP}"
            )
        return subscription


class PlainPulls(PullHandler, frozen=True):
    """Answers plain pulls for which `PullHandler.pull` would find messages at once."""

    def read(self, pull: PlainPull, peer: Peer) -> bytes | None:
        """The frame of the reply to a pull of all messages, of which some are there.

        None, with nothing done, for any other: `pull` has to judge it.
        """
        topic, queue_id = pull.topic, pull.queue_id
        resets, former = self.tables.offset_resets.pending, self.tables.former_readers.pending
        if (resets and (pull.consumer_group, topic) in resets) or (former and topic in former):
            return None
        try:
            self.reading.check_pull(pull)
            if self._wanted(pull) is not None or not self.replica_reads.is_plain_read():
                return None
        except CallRefused:
            return None
        count, size = self._limits(pull, peer)
        store = self.log.store
        messages = store.read(topic, queue_id, pull.queue_offset, count_max=count, bytes_max=size)
        if not messages.count:
            return None
        self._note_reader(pull, peer)
        self._count(pull, messages)
        least, end = store.bounds(topic, queue_id)
        return found_reply(
            pull.opaque, pull.serialize_type, messages.next_offset, least, end,
            _body(messages.parts),
        )  # fmt: skip


def _body(parts: list[memoryview]) -> bytes:
    """The records as a reply's body: a single part is not copied before it is in its frame."""
    return cast("bytes", parts[0]) if len(parts) == 1 else b"".join(parts)


def _without_messages(
    code: int, remark: str, next_offset: int, bounds: tuple[int, int]
) -> PullReply:
    return PullReply(
        code=code,
        remark=remark,
        next_begin_offset=next_offset,
        min_offset=bounds[0],
        max_offset=bounds[1],
    )


def _check_newer_tags(subscription: Subscription, call: AnyPull) -> None:
    """CallRefused for a newer subscription than the heartbeats', unless both are of tags.

    Java's clients, which send no expression with a pull, compare the tags of what they get.
    Apache's broker refuses until the next heartbeat, which may be 30 s away; so does this one with
    SQL92 and class filters, whose messages a client takes as they come.
    """
    kinds = {subscription.expression_type, call.expression_type}
    if subscription.class_filter_mode or call.sys_flag & CLASS_FILTER or not kinds <= TAG_TYPES:
        raise CallRefused(
            ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
        )


def _forbidden(error: ReadForbidden) -> PullReply:
    return PullReply(
        code=error.code,
        remark=error.remark,
        next_begin_offset=0,
        min_offset=0,
        max_offset=0,
        forbidden_type=error.reason,
    )
