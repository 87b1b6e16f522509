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

    def is_open(self) -> bool:
        """Whether `store` may be asked: no sender waits for the disk or for replicas.

        True holds until the event loop goes on.
        """
        config, acknowledgements = self.control.settings.config, self.replication.acknowledgements
        return (
            not acknowledgements.is_needed
            and not acknowledgements.is_short
            and not config.check_message_types
            and bool(config.permission & 2)
        )

    def store(self, send: PlainSend, peer: Peer) -> bytes | None:
        """Store a message or a batch; gives the frame of the reply.

        None, with nothing done, if its queue or topic is not there, or if it is refused: the
        handler has to judge it.
        """
        topic = self.tables.topics.sendable.get(send.topic)
        if topic is None or not 0 <= send.queue_id < topic.write_queue_nums:
            return None
        config, ingest = self.control.settings.config, self.log.ingest
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
            send, ingest.store_host, appended.position, appended.queue_offset, config.region,
            config.trace_on,
        )  # fmt: skip
