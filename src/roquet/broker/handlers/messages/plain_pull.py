"""Plain pulls: the short way of a pull whose messages are there."""

from roquet.broker.handlers.messages.pull import PullHandler, joined_body
from roquet.model.errors import CallRefused
from roquet.net.router import Peer
from roquet.wire.plain_pull import PlainPull, found_reply


class PlainPulls(PullHandler, frozen=True):
    """Answers plain pulls for which `PullHandler.pull` would find messages at once."""

    def read(self, pull: PlainPull, peer: Peer) -> bytes | None:
        """The frame of the reply to a pull of all messages, of which some are there.

        None, with nothing done, for any other: `pull` has to judge it.
        """
        tables = self.tables
        if tables.offset_resets.pending or tables.former_readers.pending:
            return None
        try:
            self.reading.check_pull(pull)
            if self._wanted(pull) is not None or not self.replica_reads.is_plain_read():
                return None
        except CallRefused:
            return None
        topic, queue_id = pull.topic, pull.queue_id
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
            joined_body(messages.parts),
        )  # fmt: skip
