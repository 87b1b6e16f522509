"""QueueLocks: locks of queues at the brokers, for ordered consumption.

A lock is renewed each 20 s, and counts as lost when that has failed for 30 s. A broker that
restarts, or whose connection to this client has ended, may have given it to another member. Time
for which this machine sleeps counts, since brokers' clocks go on; but no timer rings meanwhile, so
until the renewal after it, at most 20 s, messages of a lost lock may be handled: they come twice.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from roquet.client.connection.background import ErrorLogThrottle, Wakeup
from roquet.client.connection.session import Session
from roquet.model.errors import RoquetError
from roquet.model.queue import MessageQueue
from roquet.net.clock import boottime
from roquet.wire.calls.bodies import LockBody, LockedQueues
from roquet.wire.calls.heartbeat import LockQueues, UnlockQueues
from roquet.wire.fastjson import codec

RENEW_MS: Final = 20_000
"""Period between two renewals, as in Java."""

LOCK_LIFE_MS: Final = 30_000
"""Life of a lock without a renewal, as in Java: brokers keep it for 60 s."""

RENEW_RETRY_MS: Final = 1_000
"""Pause after a renewal that a broker did not answer."""

UNLOCK_TIMEOUT_MS: Final = 1_000
"""Timeout of an unlock, which is optional: locks expire."""

LockLossListener = Callable[[Sequence[MessageQueue]], object]
"""Called with queues whose lock is lost."""


class QueueLocks:
    """One member's locks."""

    def __init__(self, session: Session, group: str, lost: LockLossListener) -> None:
        self._session = session
        self._group = group
        self._lost = lost
        self._clock = session.config.clock
        self._elapsed_ms = boottime(self._clock)
        self._held: dict[MessageQueue, int] = {}
        """Each queue, with the last time at which its lock was known to be held."""
        self._wakeup = Wakeup()
        self._throttle = ErrorLogThrottle(f"locks of {group}")

    def start(self) -> None:
        """Renew the locks periodically, for ever, and at once after a connect."""
        self._session.pool.on_connect(lambda _: self._wakeup.set())
        self._session.background.supervise(self._run, f"locks of {self._group}", self._clock)

    @property
    def held(self) -> Sequence[MessageQueue]:
        """The queues whose locks this member holds, as far as known."""
        return list(self._held)

    async def lock(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Lock queues; return those that are locked for this member now."""
        asked_ms = self._elapsed_ms()
        granted, _ = await self._lock(queues)
        self._held.update(dict.fromkeys(granted, asked_ms))
        return granted

    async def unlock(self, queues: Sequence[MessageQueue]) -> None:
        """Unlock queues."""
        for queue in queues:
            self._held.pop(queue, None)
        calls = [
            self._session.call(
                broker, UnlockQueues(body=self._body(broker_queues)), UNLOCK_TIMEOUT_MS
            )
            for broker, broker_queues in _by_broker(queues).items()
        ]
        await asyncio.gather(*calls, return_exceptions=True)

    async def _run(self) -> None:
        pause_ms = RENEW_MS
        while True:
            await self._wakeup.wait(pause_ms)
            pause_ms = RENEW_MS if await self._renew() else RENEW_RETRY_MS

    async def _renew(self) -> bool:
        """Renew all locks; return whether every broker answered."""
        held, asked_ms = list(self._held), self._elapsed_ms()
        granted, refused = await self._lock(held)
        self._held.update((queue, asked_ms) for queue in granted if queue in self._held)
        dead_ms = self._elapsed_ms() - LOCK_LIFE_MS
        dead = [queue for queue, since_ms in self._held.items() if since_ms <= dead_ms]
        lost = [queue for queue in dict.fromkeys((*refused, *dead)) if queue in self._held]
        for queue in lost:
            del self._held[queue]
        if lost:
            self._lost(lost)
        return len(granted) + len(refused) == len(held)

    async def _lock(
        self, queues: Sequence[MessageQueue]
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Lock queues; return those granted and those refused. Others got no answer."""
        brokers = _by_broker(queues)
        answers = await asyncio.gather(
            *(self._lock_at(b, broker_queues) for b, broker_queues in brokers.items())
        )
        granted: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()
        for broker_queues, answer in zip(brokers.values(), answers, strict=True):
            if answer is not None:
                granted |= answer
                refused |= set(broker_queues) - answer
        return granted, refused

    async def _lock_at(
        self, broker: str, queues: Sequence[MessageQueue]
    ) -> set[MessageQueue] | None:
        """Lock one broker's queues; None when it does not answer."""
        try:
            reply = await self._session.call(broker, LockQueues(body=self._body(queues)))
            granted = set(codec.loads(reply.body, LockedQueues).lock_ok_mq_set) & set(queues)
        except RoquetError as error:
            self._throttle.report(error)
            return None
        self._throttle.clear()
        return granted

    def _body(self, queues: Sequence[MessageQueue]) -> bytes:
        return codec.dumps(
            LockBody(
                consumer_group=self._group,
                client_id=self._session.identity.client_id,
                mq_set=list(queues),
            )
        )


def _by_broker(queues: Iterable[MessageQueue]) -> Mapping[str, list[MessageQueue]]:
    by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        by_broker[queue.broker_name].append(queue)
    return by_broker
