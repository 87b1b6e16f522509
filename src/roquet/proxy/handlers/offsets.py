"""Offsets: clients read a queue from an offset, and the progress of a group is kept for them.

Apache RocketMQ's proxy serves none of these requests; autoscalers wait for the last two.
"""

from collections.abc import AsyncGenerator
from typing import Final

from roquet.client.reading.message import read_records
from roquet.log_records import logger
from roquet.model.errors import CallRefused, RecordError, RoquetError
from roquet.model.flags import PullFlag
from roquet.proxy.answers import OK, status_of
from roquet.proxy.caller import Caller
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.messages import filter_of, millis, to_protobuf
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.rules.proxy.validation import check_batch, check_group, check_topic, polling_ms
from roquet.wire.calls.offset import MaxOffset, MinOffset, OffsetByTime, QueryOffset, UpdateOffset
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import to_message

log = logger(__name__)

REQUEST_MS: Final = 3_000
"""Time of a request without long polling."""


class OffsetsHandler:
    """Reads queues from offsets, and keeps the progress of groups."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: ProxiedCluster) -> None:
        self._cluster = cluster

    async def pull(
        self, request: service.PullMessageRequest, caller: Caller
    ) -> AsyncGenerator[service.PullMessageResponse, None]:
        """Wait for messages from an offset on: a status, the messages, and the offset behind."""
        queue = request.message_queue
        try:
            reply = await self._pull(request, caller)
        except RoquetError as error:
            yield service.PullMessageResponse(status=status_of(error))
            return
        yield service.PullMessageResponse(status=_pull_status(reply))

        def damaged(offset: int, error: RecordError) -> None:
            log.error("offset %d of %s cannot be read: %s", offset, queue.topic.name, error)

        for record in read_records(reply.body, damaged):
            message = to_message(record, broker=queue.broker.name, decompress=False)
            found = to_protobuf(message, message.body, message.sys_flag, queue.topic.name)
            yield service.PullMessageResponse(message=found)
        yield service.PullMessageResponse(next_offset=reply.next_begin_offset)

    async def _pull(self, request: service.PullMessageRequest, caller: Caller) -> PullReply:
        topic = await self._check_queue(request.message_queue)
        asked = request.long_polling_timeout
        wait_ms = polling_ms(asked.ToMilliseconds(), caller.left_ms, REQUEST_MS)
        kind, expression = filter_of(request.filter_expression)
        call = Pull(
            consumer_group=check_group(request.group.name),
            topic=topic,
            queue_id=request.message_queue.id,
            queue_offset=check_offset(request.offset),
            max_msg_nums=check_batch(request.batch_size),
            sys_flag=int(PullFlag.SUSPEND | PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=wait_ms,
            subscription=expression,
            sub_version=0,
            expression_type=kind,
        )
        return await self._cluster.call_held(request.message_queue.broker.name, call, wait_ms)

    async def update(
        self, request: service.UpdateOffsetRequest, _caller: Caller
    ) -> service.UpdateOffsetResponse:
        """Note a group's progress in a queue."""
        queue = request.message_queue
        call = UpdateOffset(
            consumer_group=check_group(request.group.name),
            topic=await self._check_queue(queue),
            queue_id=queue.id,
            commit_offset=check_offset(request.offset),
        )
        await self._cluster.call(queue.broker.name, call)
        return service.UpdateOffsetResponse()

    async def get(
        self, request: service.GetOffsetRequest, _caller: Caller
    ) -> service.GetOffsetResponse:
        """A group's progress in a queue."""
        queue, group = request.message_queue, check_group(request.group.name)
        call = QueryOffset(
            consumer_group=group,
            topic=await self._check_queue(queue),
            queue_id=queue.id,
            set_zero_if_not_found=False,
        )
        try:
            reply = await self._cluster.call(queue.broker.name, call)
        except CallRefused as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            text = f"group {group} has no progress in this queue"
            raise ProxyRefusal(StatusCode.OFFSET_NOT_FOUND, text) from None
        return service.GetOffsetResponse(offset=reply.offset)

    async def query(
        self, request: service.QueryOffsetRequest, _caller: Caller
    ) -> service.QueryOffsetResponse:
        """An offset of a queue: its first, the one behind its last, or the first of a time."""
        queue = request.message_queue
        topic = await self._check_queue(queue)
        calls = {
            pb.BEGINNING: MinOffset(topic=topic, queue_id=queue.id),
            pb.END: MaxOffset(topic=topic, queue_id=queue.id),
            pb.TIMESTAMP: OffsetByTime(
                topic=topic, queue_id=queue.id, timestamp=millis(request.timestamp)
            ),
        }
        if (call := calls.get(request.query_offset_policy)) is None:
            raise ProxyRefusal(StatusCode.BAD_REQUEST, "the policy is BEGINNING, END or TIMESTAMP")
        reply = await self._cluster.call(queue.broker.name, call)
        return service.QueryOffsetResponse(offset=reply.offset)

    async def _check_queue(self, queue: pb.MessageQueue) -> str:
        """The topic of a queue that may be read; raises ProxyRefusal for another one."""
        topic = check_topic(queue.topic.name)
        known = await self._cluster.readable(topic)
        if (queue.broker.name, queue.id) not in {(it.broker_name, it.queue_id) for it in known}:
            name = f"{topic}@{queue.broker.name}:{queue.id}"
            raise ProxyRefusal(StatusCode.BAD_REQUEST, f"there is no queue {name:.300}")
        return topic


def check_offset(offset: int) -> int:
    """Return an offset; raises ProxyRefusal for a negative one."""
    if offset < 0:
        raise ProxyRefusal(StatusCode.ILLEGAL_OFFSET, f"offset {offset} is negative")
    return offset


def _pull_status(reply: PullReply) -> pb.Status:
    """The status of a pull that a broker answered; an offset that was corrected is not found."""
    if reply.code == ResponseCode.SUCCESS:
        return OK
    if reply.code == ResponseCode.PULL_OFFSET_MOVED:
        return pb.Status(
            code=pb.ILLEGAL_OFFSET,
            message=f"offsets {reply.min_offset} to {reply.max_offset} are there",
        )
    return pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no new message")
