"""Broker requests: what brokers ask of a group's member on behalf of operators."""

from collections.abc import Mapping

from roquet.client.connection.session import Session
from roquet.client.operator.consume_directly import DirectConsumer
from roquet.client.operator.running_info import ConsumerStatus
from roquet.client.rebalance.rebalancer import Rebalancer
from roquet.model.errors import CallRefused, FieldError
from roquet.model.queue import MessageQueue
from roquet.net.router import HandlerReply, Peer
from roquet.observe.stacks import dump_stacks
from roquet.wire.call import Reply
from roquet.wire.calls.admin.client_forwarding import ConsumeDirectly, GetRunningInfo
from roquet.wire.calls.admin.offset_reset import GetClientStatus, ResetClientOffset
from roquet.wire.calls.bodies import ClientStatus, ResetOffsetBody, ResetOffsetList
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


class BrokerRequests:
    """Handlers of one consumer's requests."""

    def __init__(
        self,
        session: Session,
        group: str,
        rebalancer: Rebalancer,
        direct_consumer: DirectConsumer,
        status: ConsumerStatus,
    ) -> None:
        self._session = session
        self._group = group
        self._rebalancer = rebalancer
        self._direct_consumer = direct_consumer
        self._consumer_status = status
        self._wanted: dict[MessageQueue, int] = {}
        """Offsets that an operator has set, and that are not applied yet."""
        session.router.add(ResetClientOffset, self._reset)
        session.router.add(GetClientStatus, self._status)
        session.router.add(GetRunningInfo, self._running_info)
        session.router.add(ConsumeDirectly, self._consume)

    def _reset(self, call: ResetClientOffset, _peer: Peer) -> HandlerReply:
        """Handle an operator's reset of the group's offsets."""
        if call.group != self._group:
            return None
        is_first = not self._wanted
        self._wanted.update(decode_reset_offsets(call.body))
        if is_first and self._wanted:
            self._session.background.start(self._apply_resets(), f"reset of {self._group}")
        return None

    async def _apply_resets(self) -> None:
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            await self._rebalancer.reset(wanted)

    def _status(self, call: GetClientStatus, _peer: Peer) -> Reply:
        """Return this member's offsets in the queues of a topic."""
        table = self._consumer_status.progress(call.topic) if call.group == self._group else {}
        return Reply(body=codec.dumps(ClientStatus(message_queue_table=table)))

    def _running_info(self, call: GetRunningInfo, _peer: Peer) -> Reply:
        """Return this member's running info."""
        self._check(call.consumer_group)
        return Reply(
            body=codec.dumps(
                self._consumer_status.info(dump_stacks() if call.jstack_enable else None)
            )
        )

    async def _consume(self, call: ConsumeDirectly, _peer: Peer) -> Reply:
        """Call the handler of `run` with one message now."""
        self._check(call.consumer_group)
        return Reply(body=codec.dumps(await self._direct_consumer.handle(call)))

    def _check(self, group: str) -> None:
        if group != self._group:
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer Group <{group}> not exist in this consumer",
            )


def decode_reset_offsets(body: bytes) -> Mapping[MessageQueue, int]:
    """Decode queues and their new offsets, in either of the formats that brokers send."""
    try:
        return codec.loads(body, ResetOffsetBody).offset_table
    except FieldError:
        lines = codec.loads(body, ResetOffsetList).offset_table
    return {
        MessageQueue(line.topic, line.broker_name, line.queue_id): line.offset for line in lines
    }
