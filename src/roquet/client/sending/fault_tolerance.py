"""Fault tolerance: latencies and faults of brokers, and probes of unreachable ones.

Off unless `fault_tolerance` is set. `rules.queue_selection` has the rules; this module has the
clock, the table and the detector, which probes unreachable brokers.
"""

from roquet.client.config import ProducerConfig
from roquet.client.connection.session import Session
from roquet.model.errors import CallError, CallRefused, ConnectFailed
from roquet.model.queue import MessageQueue
from roquet.rules.queue_selection import (
    BrokerFault,
    BrokersToAvoid,
    brokers_to_avoid,
    penalty_ms,
    updated_fault,
)


class FaultTolerance:
    """Faults by broker name. While the setting is off, none is noted and no broker avoided."""

    def __init__(self, session: Session, config: ProducerConfig) -> None:
        self._session = session
        self._config = config
        self.faults: dict[str, BrokerFault] = {}
        self._queues: dict[str, MessageQueue] = {}
        """One queue of each failed broker, for probes."""

    def usable(self) -> BrokersToAvoid | None:
        """The brokers to avoid; None when there are none."""
        return brokers_to_avoid(self.faults, self._config.clock.monotonic_ms())

    def record_success(self, queue: MessageQueue, took_ms: int) -> None:
        """Note the latency of a successful send."""
        self._note(queue, took_ms, penalty_ms(took_ms), reachable=True)

    def record_failure(self, queue: MessageQueue, took_ms: int, error: CallError) -> None:
        """Note a refusal, or a failure of the network.

        As in Java: after a refusal the broker counts as unreachable until it answers well; after a
        failure of the network only if there is a detector to find out that it is back.
        """
        reachable = not (isinstance(error, CallRefused) or self._config.fault_detector)
        self._note(queue, took_ms, penalty_ms(took_ms, failed=True), reachable=reachable)

    def _note(self, queue: MessageQueue, took_ms: int, out_ms: int, *, reachable: bool) -> None:
        name = queue.broker_name
        old = self.faults.get(name)
        if old is None and not out_ms:
            return  # a fast broker without a fault needs no entry
        now_ms = self._config.clock.monotonic_ms()
        new = updated_fault(old, took_ms, out_ms, now_ms, reachable=reachable)
        if new.reachable and new.until_ms <= now_ms:
            self._forget(name)
        else:
            self.faults[name], self._queues[name] = new, queue

    async def detect(self) -> None:
        """Probe failed brokers periodically, for ever."""
        while True:
            await self._config.clock.sleep(self._config.detect_period_ms)
            await self.probe()

    async def probe(self) -> None:
        """Ask each unreachable broker for an offset, as Java does.

        A broker that answers is reachable again. So a probe finds out, and not a user's message.
        """
        for name in [name for name, fault in self.faults.items() if not fault.reachable]:
            await self._ask(self._queues[name])

    async def _ask(self, queue: MessageQueue) -> None:
        from roquet.wire.calls.offset import MaxOffset  # few producers probe brokers

        call = MaxOffset(topic=queue.topic, queue_id=queue.queue_id)
        timeout_ms = self._config.detect_timeout_ms
        try:
            address = self._session.routes.leader(queue.broker_name)
        except ConnectFailed:  # the broker is in no route any more
            self._forget(queue.broker_name)
            return
        try:
            await self._session.pool.call(address, call, timeout_ms)
        except CallRefused:
            pass  # a refusal shows that the broker is reachable
        except CallError as error:
            self.record_failure(queue, timeout_ms, error)
            return
        if (fault := self.faults.get(queue.broker_name)) is not None:
            self._note(queue, fault.latency_ms, 0, reachable=True)

    def _forget(self, name: str) -> None:
        self.faults.pop(name, None)
        self._queues.pop(name, None)
