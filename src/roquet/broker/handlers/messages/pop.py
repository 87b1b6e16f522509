"""Pop: pop, peek, notification and polling info, with waits for messages."""

import asyncio

import msgspec

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.filtering.filter_cache import TAG_TYPES, CompiledFilter
from roquet.broker.filtering.tag_expressions import TagCodes, parse_tag_codes
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.pop_collector import PopCollector, PopRequest
from roquet.broker.operations.reading_checks import ReadingChecks
from roquet.broker.refusals import invalid_parameter
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.names import retry_topic
from roquet.model.topic import TopicConfig
from roquet.net.router import HandlerReply, Peer
from roquet.rules.consumption.pop import COUNT_MAX, LATE_MS
from roquet.rules.topic_attributes import MESSAGE_TYPE, PRIORITY
from roquet.wire.calls.pop import (
    Notification,
    NotificationReply,
    Peek,
    PollingInfo,
    PollingInfoReply,
    Pop,
    PopReply,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.receipt_handle import LONG_MAX

SUSPEND_MS_MAX = 300_000
"""Longest wait in ms; clients ask for 15 s."""

PEEK_INVISIBLE_MS = 1


class PopHandler(BrokerComponent, frozen=True):
    """Answers pops: takes messages of any queue, or holds the request until some arrive."""

    log: MessageLog
    delivery: DeliveryServices
    tables: BrokerTables
    control: ControlPlane
    reading: ReadingChecks

    def pop(self, call: Pop, _peer: Peer) -> HandlerReply:
        """Return messages that are invisible to other members for a while, or wait for them."""
        # A born time of 0 or none is now, as in Apache's broker: peers that do not wait send none.
        late_ms = self.control.clock.now_ms() - call.born_time - call.poll_time
        if call.born_time and late_ms > LATE_MS:
            return PopReply(code=ResponseCode.POLLING_TIMEOUT, remark="the pop came too late")
        request = self._pop_request(call)
        collector = self._collect(request)
        if collector.count or call.poll_time <= 0:
            return _reply(request, collector)
        if self.log.arrivals.waiters.is_full(request.group, request.topic):
            return PopReply(
                code=ResponseCode.POLLING_FULL, remark="too many pops of the group wait"
            )
        return self._hold(call, request)

    def peek(self, call: Peek, _peer: Peer) -> PopReply:
        """Return the messages that a pop would return, without making them invisible."""
        topic = self.reading.check_pop(call)
        _check_count(call.max_msg_nums)
        request = _request(call, topic, max(1, call.max_msg_nums), wanted=None, peek=True)
        collector = self._collect(request)
        reply = _reply(request, collector)
        if collector.count:
            return reply
        return msgspec.structs.replace(reply, code=ResponseCode.PULL_NOT_FOUND, remark="no message")

    def notification(self, call: Notification, _peer: Peer) -> HandlerReply:
        """Return whether there is a message to pop, or wait for one."""
        topic = self.reading.check_pop(call)
        request = _request(call, topic, 1, wanted=self._wanted(call), peek=True)
        collector = self._collector(request)
        if collector.has_any():
            return NotificationReply(has_msg=True)
        if call.poll_time <= 0:
            return NotificationReply()
        if self.log.arrivals.waiters.is_full(request.group, request.topic):
            return NotificationReply(polling_full=True)
        return self._watch(call, request)

    def polling_info(self, call: PollingInfo, _peer: Peer) -> PollingInfoReply:
        """Return how many pops of a group wait for messages of a topic."""
        self.reading.check_pop(call)
        return PollingInfoReply(
            polling_num=self.log.arrivals.waiters.waiting(call.consumer_group, call.topic)
        )

    async def _hold(self, call: Pop, request: PopRequest) -> PopReply:
        deadline_ms = self.control.clock.monotonic_ms() + min(call.poll_time, SUSPEND_MS_MAX)
        collector = self._collect(request)  # messages may have come before this task began
        while not collector.count:
            if collector.moved and not self._is_over(deadline_ms):
                await asyncio.sleep(0)  # one step does not scan all messages that do not match
                has_arrived = not self.log.arrivals.waiters.is_closed
            else:
                has_arrived = await self._wait(request, collector, deadline_ms)
            if not has_arrived and self._is_over(deadline_ms):
                break
            self.reading.check_pop(call)  # the topic may have been deleted or forbidden meanwhile
            collector = self._collect(request)
        return _reply(request, collector)

    async def _watch(self, call: Notification, request: PopRequest) -> NotificationReply:
        deadline_ms = self.control.clock.monotonic_ms() + min(call.poll_time, SUSPEND_MS_MAX)
        collector, has_arrived = self._collector(request), False  # as in `_hold`
        has_any = collector.has_any()
        while not has_any and (has_arrived or not self._is_over(deadline_ms)):
            has_arrived = await self._wait(request, collector, deadline_ms)
            collector = self._collector(request)
            has_any = collector.has_any()
        if has_arrived:
            self._wake_others(request, collector)  # it was not taken: another pop can have it
        return NotificationReply(has_msg=has_any)

    async def _wait(self, request: PopRequest, collector: PopCollector, deadline_ms: int) -> bool:
        """Wait until messages may be available, or the lock of an ordered queue ends."""
        until_ms, clock = deadline_ms, self.control.clock
        if collector.blocked_until_ms is not None:
            left_ms = max(1, collector.blocked_until_ms - clock.now_ms())
            until_ms = min(until_ms, clock.monotonic_ms() + left_ms)
        return await self.log.arrivals.waiters.wait(
            request.group, request.topic, request.queue_id, until_ms
        )

    def _is_over(self, deadline_ms: int) -> bool:
        return (
            self.log.arrivals.waiters.is_closed or self.control.clock.monotonic_ms() >= deadline_ms
        )

    def _wake_others(self, request: PopRequest, collector: PopCollector) -> None:
        for queue_id in collector.others:
            self.log.arrivals.waiters.wake(request.group, request.topic, queue_id)

    def _collector(self, request: PopRequest) -> PopCollector:
        return PopCollector(self.log, self.delivery, self.tables, self.control, request)

    def _collect(self, request: PopRequest) -> PopCollector:
        collector = self._collector(request)
        collector.collect()
        if collector.count and not request.peek:
            self._wake_others(request, collector)
        return collector

    # -- checks ----------------------------------------------------------------------------------

    def _pop_request(self, call: Pop) -> PopRequest:
        self.reading.check_pop_broker()
        _check_count(call.max_msg_nums)
        topic = self.reading.check_pop(call)
        # Apache's tools find a group, and the brokers to ask for its members, by its retry topic:
        # heartbeats make it, and clients of a proxy send none.
        if self.tables.topics.get(retry := retry_topic(call.consumer_group)) is None:
            self.tables.topics.announce_for_groups({retry: 1}, self.control.clock.now_ms())
        if not 0 < call.invisible_time <= LONG_MAX - self.control.clock.now_ms():
            raise invalid_parameter(
                f"invisibleTime {call.invisible_time} is not a time in ms over 0"
            )
        return _request(
            call,
            topic,
            call.max_msg_nums,
            wanted=self._wanted(call),
            invisible_ms=call.invisible_time,
            init_mode=call.init_mode,
        )

    def _wanted(self, call: Pop | Notification) -> TagCodes | CompiledFilter:
        """The tag codes or compiled expression; without an expression every message matches."""
        if not call.exp or call.exp_type in TAG_TYPES:
            return parse_tag_codes(call.exp)
        return self.log.filters.find(self.control.settings.config, call.exp_type, call.exp)


def _request(
    call: Pop | Peek | Notification,
    topic: TopicConfig,
    count: int,
    *,
    wanted: TagCodes | CompiledFilter,
    invisible_ms: int = PEEK_INVISIBLE_MS,
    init_mode: int = 0,
    peek: bool = False,
) -> PopRequest:
    """The validated request; a peek has neither an order nor an attempt."""
    order, attempt = (False, None) if isinstance(call, Peek) else (call.order, call.attempt_id)
    return PopRequest(
        group=call.consumer_group,
        topic=call.topic,
        queue_id=call.queue_id,
        queue_count=topic.read_queue_nums,
        count=count,
        invisible_ms=invisible_ms,
        init_mode=init_mode,
        wanted=wanted,
        by_priority=topic.attributes.get(MESSAGE_TYPE) == PRIORITY and call.queue_id < 0,
        order=bool(order),
        attempt=attempt or None,
        peek=peek,
    )


def _reply(request: PopRequest, collector: PopCollector) -> PopReply:
    if not collector.count:
        return PopReply(
            code=ResponseCode.POLLING_TIMEOUT, remark="NO_MESSAGE_IN_QUEUE", rest_num=collector.rest
        )
    return PopReply(
        remark="FOUND",
        pop_time=collector.pop_ms,
        invisible_time=request.invisible_ms,
        revive_qid=collector.revive_queue_id,
        rest_num=collector.rest,
        start_offset_info=";".join(collector.starts),
        msg_offset_info=";".join(collector.offsets),
        order_count_info=";".join(collector.times) if request.order else None,
        body=b"".join(collector.parts),
    )


def _check_count(count: int) -> None:
    if not 0 < count <= COUNT_MAX:
        raise invalid_parameter(f"maxMsgNums {count}: 1 to {COUNT_MAX} are allowed")
