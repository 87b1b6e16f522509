"""Receiving: a group's messages of a broker, invisible to its other members for a time."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import count

import msgspec

from roquet.client.popping.pop_batch import ReplyHandles
from roquet.client.popping.pop_loop import ANY_QUEUE, FROM_MAX
from roquet.client.reading.message import read_records
from roquet.log_records import logger
from roquet.model.errors import RecordError, RoquetError, UsageError
from roquet.model.message import StoredMessage
from roquet.model.subscription import TAG
from roquet.proxy.answers import OK, status_of
from roquet.proxy.caller import Caller
from roquet.proxy.clients import ClientTable
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.config import ProxyConfig
from roquet.proxy.handlers.settling import SettlingHandler
from roquet.proxy.messages import filter_of, to_protobuf
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.receipts import CLOSE_S, Receipt, ReceiptKey, ReceiptRenewals
from roquet.rules.proxy import renewal, validation
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.rules.tag_filter import parse_tags
from roquet.wire.calls.pop import Pop, PopReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import to_message

log = logger(__name__)


class Delivery(msgspec.Struct, frozen=True):
    """A message on its way to a client, and its receipt."""

    message: StoredMessage
    receipt: Receipt


class ReceivingHandler:
    """Gives clients the messages of their groups."""

    __slots__ = (
        "_clients",
        "_clock",
        "_cluster",
        "_config",
        "_releases",
        "_renewals",
        "_settling",
        "_turns",
    )

    def __init__(
        self,
        cluster: ProxiedCluster,
        clients: ClientTable,
        renewals: ReceiptRenewals,
        settling: SettlingHandler,
        config: ProxyConfig,
    ) -> None:
        self._cluster = cluster
        self._clients = clients
        self._renewals = renewals
        self._settling = settling
        self._config = config
        self._clock = config.clock
        self._releases: set[asyncio.Task[None]] = set()
        self._turns = count()

    async def receive(
        self, request: service.ReceiveMessageRequest, caller: Caller
    ) -> AsyncGenerator[service.ReceiveMessageResponse, None]:
        """Wait for messages, and give them with a status before and the time behind them."""
        unsent: list[Delivery] = []
        try:
            await self._receive(request, caller, unsent)
            if not unsent:
                raise ProxyRefusal(StatusCode.MESSAGE_NOT_FOUND, "no new message")
            yield service.ReceiveMessageResponse(status=OK)
            while unsent:
                message = self._outgoing(unsent[0], request, caller)
                yield service.ReceiveMessageResponse(message=message)
                del unsent[0]
        except RoquetError as error:
            yield service.ReceiveMessageResponse(status=status_of(error))
        finally:
            # The stream has broken: others get at once what this client did not.
            for delivery in unsent:
                self._renewals.remove(receipt_key(delivery, request, caller))
            self._release(unsent, request)
        end = service.ReceiveMessageResponse()
        end.delivery_timestamp.FromMilliseconds(self._clock.now_ms())
        yield end

    async def _receive(
        self, request: service.ReceiveMessageRequest, caller: Caller, unsent: list[Delivery]
    ) -> None:
        """Pop messages into `unsent`, where those stay that the client gets."""
        client = await self._clients.wait_for(caller.client_id, self._config.settings_wait_ms)
        topic = validation.check_topic(request.message_queue.topic.name)
        group = validation.check_group(request.group.name)
        asked = request.long_polling_timeout
        poll_ms = validation.polling_ms(
            asked.ToMilliseconds() if request.HasField("long_polling_timeout") else None,
            caller.left_ms,
            client.settings.request_timeout.ToMilliseconds(),
        )
        invisible_ms = renewal.INVISIBLE_MS
        if not request.auto_renew:
            wanted_ms = request.invisible_duration.ToMilliseconds()
            invisible_ms = validation.check_invisible_ms(wanted_ms, validation.INVISIBLE_MIN_MS)
        broker = await self._broker(topic, request.message_queue.broker.name)
        kind, expression = filter_of(request.filter_expression)
        tags = _tags(expression) if kind == TAG else None
        settings = await self._cluster.group(group, topic)
        call = Pop(
            consumer_group=group,
            topic=topic,
            queue_id=ANY_QUEUE,
            max_msg_nums=validation.check_batch(request.batch_size),
            invisible_time=invisible_ms,
            poll_time=poll_ms,
            born_time=self._clock.now_ms(),
            init_mode=FROM_MAX,  # as the genuine proxy has it
            exp_type=kind,
            exp=expression,
            order=settings.consume_message_orderly,
            attempt_id=request.attempt_id or None,
        )
        reply = await self._pop(broker, call, request)
        if reply.code == ResponseCode.POLLING_FULL:
            raise ProxyRefusal(StatusCode.TOO_MANY_REQUESTS, "too many receives wait at the broker")
        if reply.code == ResponseCode.SUCCESS:
            unsent += deliveries(reply, broker)
            await self._leave_out(unsent, tags, settings.retry_max_times + 1, topic, group)

    async def _pop(
        self, broker: str, call: Pop, request: service.ReceiveMessageRequest
    ) -> PopReply:
        """Pop once; what comes after the client has gone is released."""
        work = self._cluster.call_held(broker, call, call.poll_time)
        pop = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(pop)
        except asyncio.CancelledError:
            pop.add_done_callback(lambda ended: self._release_late(ended, broker, request))
            raise

    def _release_late(
        self,
        pop: "asyncio.Future[PopReply]",
        broker: str,
        request: service.ReceiveMessageRequest,
    ) -> None:
        if pop.cancelled() or pop.exception() is not None:
            return
        if pop.result().code == ResponseCode.SUCCESS:
            self._release(list(deliveries(pop.result(), broker)), request)

    def _release(self, unsent: Sequence[Delivery], request: service.ReceiveMessageRequest) -> None:
        if unsent:
            receipts = [delivery.receipt for delivery in unsent]
            topic, group = request.message_queue.topic.name, request.group.name
            task = self._cluster.session.background.start(
                self._settling.release(receipts, topic, group), f"release of {topic}"
            )
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """Wait for releases under way: messages could be invisible for 12 hours otherwise."""
        if self._releases:
            await asyncio.wait(self._releases, timeout=CLOSE_S)

    async def _broker(self, topic: str, name: str) -> str:
        """The broker that a request names; the topic's in turns when that one is not known."""
        brokers = sorted({queue.broker_name for queue in await self._cluster.readable(topic)})
        if not brokers:
            raise ProxyRefusal(StatusCode.FORBIDDEN, f"topic {topic} has no queue that may be read")
        return name if name in brokers else brokers[next(self._turns) % len(brokers)]

    async def _leave_out(
        self,
        found: list[Delivery],
        tags: frozenset[str] | None,
        tries_max: int,
        topic: str,
        group: str,
    ) -> None:
        """Acknowledge messages of other tags; those over the limit of tries are dead letters."""
        wanted, left_out = [], []
        for delivery in found:
            message = delivery.message
            if tags and message.tag not in tags:
                left_out.append(self._settling.drop(delivery.receipt, topic, group))
            elif 0 < tries_max <= message.reconsume_times:
                left_out.append(
                    self._settling.move_to_dead_letters(delivery.receipt, message, topic, group)
                )
            else:
                wanted.append(delivery)
        found[:] = wanted
        await asyncio.gather(*left_out)

    def _outgoing(
        self, delivery: Delivery, request: service.ReceiveMessageRequest, caller: Caller
    ) -> pb.Message:
        stored, topic = delivery.message, request.message_queue.topic.name
        key = receipt_key(delivery, request, caller)
        if request.auto_renew:
            self._renewals.add(key, delivery.receipt, topic, stored.reconsume_times)
        message = to_protobuf(stored, stored.body, stored.sys_flag, topic)
        message.system_properties.receipt_handle = key.handle
        return message


def receipt_key(
    delivery: Delivery, request: service.ReceiveMessageRequest, caller: Caller
) -> ReceiptKey:
    """The key by which the receipt of a delivery is renewed."""
    return ReceiptKey(caller.client_id, request.group.name, delivery.receipt.text())


def _tags(expression: str) -> frozenset[str] | None:
    try:
        return parse_tags(expression)
    except UsageError as error:
        raise ProxyRefusal(StatusCode.ILLEGAL_FILTER_EXPRESSION, str(error)) from None


def deliveries(reply: PopReply, broker: str) -> Iterator[Delivery]:
    """The messages of a pop's reply; those that cannot be read come again, and are left out."""
    handles = ReplyHandles(reply, broker)

    def damaged(offset: int, error: RecordError) -> None:
        log.error("a message at %s, offset %d cannot be read: %s", broker, offset, error)

    for record in read_records(reply.body, damaged):
        try:
            handle = msgspec.structs.replace(handles.handle_of(record), offset=record.queue_offset)
            yield Delivery(
                to_message(record, broker=broker, decompress=False),
                Receipt(handle, record.position),
            )
        except RoquetError as error:
            damaged(record.queue_offset, RecordError(str(error)))
