"""Heartbeats, and who else is in a group: who we are to the brokers.

Every broker that a followed topic lives on hears of us each 30 s, and at once when it is new, when
a connection is made again, or when what we say has changed. Who did not hear is told again soon.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from roquet.client.background import Alarm, Trouble
from roquet.client.config import ClientConfig
from roquet.client.routes import Routes
from roquet.model.errors import CallError, RoquetError
from roquet.model.subscription import HeartbeatData
from roquet.net.pool import Pool
from roquet.wire import dialect
from roquet.wire.calls.bodies import ConsumerIdList
from roquet.wire.calls.heartbeat import GetConsumers, Heartbeat, Unregister

HURRY_PAUSE_MS: Final = 1_000
"""Between heartbeats that do not wait for their time."""

LEAVE_TIMEOUT_MS: Final = 1_000
"""Saying good-bye is a courtesy: brokers notice a closed connection by themselves."""

Describe = Callable[[], HeartbeatData]
"""What a client says of itself, now."""


class Membership:
    """One client's place in its group."""

    def __init__(self, pool: Pool, routes: Routes, config: ClientConfig, data: Describe) -> None:
        self._pool = pool
        self._routes = routes
        self._config = config
        self._data = data
        self._alarm = Alarm()
        self._known: set[str] = set()
        self._troubles: dict[str, Trouble] = {}
        routes.on_change(lambda _: self._look())
        pool.on_connect(lambda _: self.hurry())

    def hurry(self) -> None:
        """Let the brokers hear of us now."""
        self._alarm.ring()

    async def keep(self) -> None:
        """Beat, for ever."""
        while True:
            all_heard = await self.beat()
            pause_ms = self._config.heartbeat_period_ms if all_heard else HURRY_PAUSE_MS
            if await self._alarm.wait(pause_ms):
                await self._config.clock.sleep(0)

    async def beat(self) -> bool:
        """One heartbeat to every broker; whether all heard it."""
        data = self._data()
        body = dialect.dumps(data)
        self._known = self._addresses(followers=bool(data.consumer_data_set))
        heard = await asyncio.gather(*(self._tell(address, body) for address in self._known))
        return all(heard)

    async def leave(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Tell every broker that we leave a group."""
        call = Unregister(
            client_id=self._data().client_id, producer_group=producer, consumer_group=consumer
        )
        calls = (self._pool.call(a, call, LEAVE_TIMEOUT_MS) for a in self._known)
        await asyncio.gather(*calls, return_exceptions=True)

    async def members(self, group: str, topic: str) -> Sequence[str]:
        """The ids of a group's members, as a broker of the topic says; none when none could."""
        brokers = list(self._routes.brokers_of(topic))
        self._config.rng.shuffle(brokers)
        for broker in brokers:
            try:
                reply = await self._pool.call(
                    self._routes.leader(broker.broker_name),
                    GetConsumers(consumer_group=group),
                    self._config.timeout_ms,
                )
                return dialect.loads(reply.body, ConsumerIdList).consumer_id_list
            except RoquetError:  # not there, or it has not heard of the group
                continue
        return ()

    async def _tell(self, address: str, body: bytes) -> bool:
        trouble = self._troubles.setdefault(address, Trouble(f"heartbeat to {address}"))
        try:
            await self._pool.call(address, Heartbeat(body=body), self._config.timeout_ms)
        except CallError as error:
            trouble.tell(error)
            self._routes.doubt()
            return False
        trouble.over()
        return True

    def _look(self) -> None:
        """Hurry when there is a broker that has not heard of us."""
        if self._addresses(followers=False) - self._known:
            self.hurry()

    def _addresses(self, *, followers: bool) -> set[str]:
        """Of all leaders; of those who follow them, too, when asked for."""
        brokers = self._routes.brokers
        if followers:
            return {address for broker in brokers for address in broker.broker_addrs.values()}
        return {broker.leader for broker in brokers if broker.leader}
