"""Plain sends: the short way of an ordinary message or batch into the log, if nobody waits."""

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.replication import Replication
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.net.router import Peer
from roquet.wire.plain_send import PlainSend, batch_reply, stored_reply


class PlainSends(BrokerComponent, frozen=True):
    """Stores plain sends that `handlers.messages.send` would store without a further question."""

    log: MessageLog
    tables: BrokerTables
    control: ControlPlane
    replication: Replication

    def store(self, send: PlainSend, peer: Peer) -> bytes | None:
        """Store a message or a batch; gives the frame of the reply.

        None, with nothing done, if its queue or topic is not there, if it has to wait for the
        disk or for replicas, or if it is refused: the handler has to judge it.
        """
        config, acknowledgements = self.control.settings.config, self.replication.acknowledgements
        topic = self.tables.topics.sendable.get(send.topic)
        if (
            topic is None
            or not 0 <= send.queue_id < topic.write_queue_nums
            or not config.permission & 2
            or config.check_message_types
            or acknowledgements.is_needed
            or acknowledgements.is_short
        ):
            return None
        ingest = self.log.ingest
        if send.is_batch:
            batch = ingest.append_plain_batch(send, peer)
            if batch is None:
                return None
            return batch_reply(
                send.opaque, send.serialize_type, ingest.store_host, batch.entries, send.queue_id,
                batch.queue_offset, config.region, config.trace_on,
            )  # fmt: skip
        appended = ingest.append_plain(send, peer)
        if appended is None:
            return None
        return stored_reply(
            send.opaque, send.serialize_type, ingest.store_host, appended.position, send.queue_id,
            appended.queue_offset, send.unique_key, config.region, config.trace_on,
        )  # fmt: skip
