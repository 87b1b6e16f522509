"""Pull sources: a task's pulls go to replicas for what these have, and else to the master.

A replica that cannot be reached is not asked again by the task; one that lacks messages of a queue,
or does not know the topic yet, is asked again a few seconds later. So a range is always read to its
end, which the master has reported.
"""

from typing import Final

from roquet.lake.queue_offsets import QueueKey
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused
from roquet.model.topic import MASTER_ID
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules.replication.read_from import (
    PulledOffsets,
    ReadFrom,
    ReadSource,
    after_failure,
    has_messages,
    next_broker_id,
    usable_ids,
)
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.wire.calls.pull import Pull, PullReply

log = logger(__name__)

UNKNOWN: Final = ReadSource()
"""The source of a queue that has not been read yet."""


class PullSources:
    """The brokers that a task pulls from."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._sources: dict[QueueKey, ReadSource] = {}
        self._left: set[str] = set()
        """Addresses of replicas that the task does not ask any more."""
        self._answered: set[str] = set()
        """Addresses of replicas that gave messages of the current block."""

    def pull(self, broker: str, call: Pull) -> PullReply:
        """The reply of a replica that has messages from the offset on, or that of the master.

        Failures and refusals are those of the master.
        """
        queue = (call.topic, broker, call.queue_id)
        while (broker_id := self._replica_id(queue)) is not None:
            address = self._cluster.replicas[broker][broker_id]
            try:
                reply = self._cluster.ask_at(address, call)
                if _is_of_use(reply, call):
                    self._answered.add(address)
                    return reply
                log.debug(
                    "the replica at %s lacks %s from %d on", address, queue, call.queue_offset
                )
            except CallError as error:
                log.info("replica %d of %r is left: %s", broker_id, broker, error)
                if not isinstance(error, CallRefused):
                    self._left.add(address)
            source = self._sources.get(queue, UNKNOWN)
            self._sources[queue] = after_failure(source, broker_id, SYSTEM_CLOCK.monotonic_ms())
        return self._cluster.ask(broker, call)

    def pull_ahead(self, broker: str, call: Pull) -> None:
        """Send a call ahead of the `pull` that follows."""
        broker_id = self._replica_id((call.topic, broker, call.queue_id))
        if broker_id is None:
            self._cluster.ask_ahead(broker, call)
        else:
            self._cluster.ask_ahead_at(self._cluster.replicas[broker][broker_id], call)

    def begin_block(self) -> None:
        """Begin a block of messages, which is checked as a whole."""
        self._answered.clear()

    def leave_replicas(self, broker: str) -> bool:
        """Ask the replicas no more that gave the block, which is damaged; False if none did."""
        if not self._answered:
            return False
        addresses = ", ".join(sorted(self._answered))
        log.warning("%s: messages from %s are damaged; the master is read", broker, addresses)
        self._left |= self._answered
        return True

    def _replica_id(self, queue: QueueKey) -> int | None:
        """The id of the replica to ask next about a queue; None for the master."""
        _, broker, queue_id = queue
        replicas = self._cluster.replicas.get(broker, {})
        ids = {broker_id for broker_id, address in replicas.items() if address not in self._left}
        source = self._sources.get(queue, UNKNOWN)
        usable = usable_ids(source, ids | {MASTER_ID}, SYSTEM_CLOCK.monotonic_ms())
        chosen = next_broker_id(ReadFrom.REPLICA, source, usable, queue_id)
        return None if chosen == MASTER_ID else chosen


def _is_of_use(reply: PullReply, call: Pull) -> bool:
    """Whether a replica has messages from the call's offset on."""
    offsets = PulledOffsets(
        asked=call.queue_offset,
        next=reply.next_begin_offset,
        first=reply.min_offset,
        end=reply.max_offset,
    )
    return has_messages(reply.code, offsets)
