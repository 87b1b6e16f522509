"""Transactions: clients end them, and brokers ask about those whose end did not come."""

from typing import Final

from roquet.log_records import logger
from roquet.model.flags import TRANSACTION_MASK, SysFlag
from roquet.net.router import Peer
from roquet.proxy.caller import Caller
from roquet.proxy.clients import ClientTable
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.messages import to_protobuf
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.transaction_id import TransactionId, decode_transaction_id
from roquet.rules.proxy.validation import check_topic
from roquet.wire.calls.transaction import CheckTransactionState, EndTransaction
from roquet.wire.records.record import decode, to_message

log = logger(__name__)

ENDS: Final = {
    pb.COMMIT: int(SysFlag.TRANSACTION_COMMIT),
    pb.ROLLBACK: int(SysFlag.TRANSACTION_ROLLBACK),
}


class TransactionsHandler:
    """Ends transactions, and passes brokers' questions on to a producer."""

    __slots__ = ("_clients", "_cluster")

    def __init__(self, cluster: ProxiedCluster, clients: ClientTable) -> None:
        self._cluster = cluster
        self._clients = clients
        cluster.session.router.add(CheckTransactionState, self.check)

    async def end(
        self, request: service.EndTransactionRequest, _caller: Caller
    ) -> service.EndTransactionResponse:
        """Commit a message or roll it back; without a resolution the broker asks later."""
        topic = check_topic(request.topic.name)
        half = decode_transaction_id(request.transaction_id)
        if (resolution := ENDS.get(request.resolution)) is None:
            return service.EndTransactionResponse()  # Apache's broker would give no answer
        await self._cluster.find_route(topic)
        await self._cluster.check_stored(half.broker, half.position, topic)
        call = EndTransaction(
            topic=topic,
            producer_group=topic,
            half_offset=half.half_offset,
            position=half.position,
            commit_or_rollback=resolution,
            from_transaction_check=request.source == pb.SOURCE_SERVER_CHECK,
            msg_id=half.message_id,
            transaction_id=half.message_id,
            broker_name=half.broker,
        )
        await self._cluster.call(half.broker, call)
        return service.EndTransactionResponse()

    async def check(self, call: CheckTransactionState, _peer: Peer) -> None:
        """Pass a broker's question on to a producer of the topic; without one it asks again."""
        message = to_message(decode(call.body), decompress=False)
        topic, broker = message.topic, call.broker_name or ""
        half = TransactionId(broker, call.half_offset, call.position, message.message_id)
        flag = message.sys_flag & ~TRANSACTION_MASK
        command = service.TelemetryCommand(
            recover_orphaned_transaction_command=service.RecoverOrphanedTransactionCommand(
                message=to_protobuf(message, message.body, flag, topic),
                transaction_id=half.text(),
            )
        )
        for client in self._clients.producers_of(topic):
            if client.push(command):
                return
        log.info("no producer of %s is here to be asked about %s", topic, message.message_id)
