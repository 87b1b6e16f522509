"""Tolerance: what a producer has learnt of its brokers' speed, and the probes of those at fault.

Off unless `fault_tolerance` is set. The rules are in `rules.latency_penalty`; here are the clock,
the table and the detector, which asks brokers that could not be reached whether they are back.
"""

from roquet.client.config import ProducerConfig
from roquet.client.connection.session import Session
from roquet.model.errors import CallError, CallRefused, ConnectFailed
from roquet.model.queue import MessageQueue
from roquet.rules.latency_penalty import (
    BrokerFault,
    BrokersToAvoid,
    brokers_to_avoid,
    penalty_ms,
    updated_fault,
)
from roquet.wire.calls.offset import MaxOffset


class FaultTolerance:
    """Faults by broker name; nothing is noted, and nobody avoided, while it is off."""

    def __init__(self, session: Session, config: ProducerConfig) -> None:
        self._session = session
        self._config = config
        self.faults: dict[str, BrokerFault] = {}
        self._queues: dict[str, MessageQueue] = {}
        """One of each broker at fault, to ask about."""

    def usable(self) -> BrokersToAvoid | None:
        """Which brokers to go around; None when there are none."""
        return brokers_to_avoid(self.faults, self._config.clock.monotonic_ms())

    def answered(self, queue: MessageQueue, took_ms: int) -> None:
        """A broker has stored messages."""
        self._note(queue, took_ms, penalty_ms(took_ms), reachable=True)

    def failed(self, queue: MessageQueue, took_ms: int, error: CallError) -> None:
        """A broker has refused, or could not be asked.

        As in Java: after a refusal it counts as out of reach until it answers well, after a fault
        of the network only when a detector is there to find out that it is back.
        """
        reachable = not (isinstance(error, CallRefused) or self._config.fault_detector)
        self._note(queue, took_ms, penalty_ms(took_ms, failed=True), reachable=reachable)

    def _note(self, queue: MessageQueue, took_ms: int, out_ms: int, *, reachable: bool) -> None:
        name = queue.broker_name
        old = self.faults.get(name)
        if old is None and not out_ms:
            return  # of a quick broker there is nothing to remember
        now_ms = self._config.clock.monotonic_ms()
        new = updated_fault(old, took_ms, out_ms, now_ms, reachable=reachable)
        if new.reachable and new.until_ms <= now_ms:
            self._forget(name)
        else:
            self.faults[name], self._queues[name] = new, queue

    async def detect(self) -> None:
        """Probe brokers at fault each period, for ever."""
        while True:
            await self._config.clock.sleep(self._config.detect_period_ms)
            await self.probe()

    async def probe(self) -> None:
        """Ask every broker that could not be reached for an offset, as Java does.

        One that answers can be reached, one that does not stays out of use: so it is a probe that
        finds this out, and not a user's message.
        """
        for name in [name for name, fault in self.faults.items() if not fault.reachable]:
            await self._ask(self._queues[name])

    async def _ask(self, queue: MessageQueue) -> None:
        call = MaxOffset(topic=queue.topic, queue_id=queue.queue_id)
        timeout_ms = self._config.detect_timeout_ms
        try:
            address = self._session.routes.leader(queue.broker_name)
        except ConnectFailed:  # no route leads there any more
            self._forget(queue.broker_name)
            return
        try:
            await self._session.pool.call(address, call, timeout_ms)
        except CallRefused:
            pass  # it said no, and so it is there
        except CallError as error:
            self.failed(queue, timeout_ms, error)
            return
        if (fault := self.faults.get(queue.broker_name)) is not None:
            self._note(queue, fault.latency_ms, 0, reachable=True)

    def _forget(self, name: str) -> None:
        self.faults.pop(name, None)
        self._queues.pop(name, None)
