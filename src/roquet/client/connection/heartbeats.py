"""Heartbeats, and who else is in a group: who we are to the brokers.

Every broker that a followed topic lives on hears of us each 30 s, and at once when it is new, when
a connection is made again, or when what we say has changed. Who did not hear is told again soon.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from roquet.client.config import ClientConfig
from roquet.client.connection.background import ErrorLogThrottle, Wakeup
from roquet.client.connection.routes import Routes
from roquet.log_records import logger
from roquet.model.errors import CallRefused, RoquetError
from roquet.model.subscription import HeartbeatData
from roquet.net.channel import Channel
from roquet.net.pool import ChannelPool
from roquet.wire.calls.bodies import ConsumerIdList
from roquet.wire.calls.heartbeat import GetConsumers, Heartbeat, Unregister
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

log = logger(__name__)

TRIGGERED_PAUSE_MS: Final = 1_000
"""Between heartbeats that do not wait for their time."""

INTRODUCTION_MS: Final = 1_000
"""How long a request waits until brokers know who asks: most of them answer in a few."""

LEAVE_TIMEOUT_MS: Final = 1_000
"""Saying good-bye is a courtesy: brokers notice a closed connection by themselves."""

DenialListener = Callable[[CallRefused], object]
"""What is told that no broker lets us in, and what one of them said."""

HeartbeatSource = Callable[[], HeartbeatData]
"""What a client says of itself, now."""


class Membership:
    """One client's place in its group."""

    def __init__(
        self, pool: ChannelPool, routes: Routes, config: ClientConfig, data: HeartbeatSource
    ) -> None:
        self._pool = pool
        self._routes = routes
        self._config = config
        self._data = data
        self._alarm = Wakeup()
        self._known: set[str] = set()
        self._troubles: dict[str, ErrorLogThrottle] = {}
        self._told: set[str] = set()
        """Those that were told of us since the connection to them stands."""
        self._joined: set[str] = set()
        """Those that have heard of us since a connection was lost."""
        self._telling: asyncio.Task[bool] | None = None
        self._was_let_in = self._is_shut_out = False
        self._is_leaving = False
        self._denial: CallRefused | None = None
        self._on_denied: list[DenialListener] = []
        self.is_awaited: Callable[[], bool] = lambda: False
        """Whether brokers may be about to call us: then a lost connection is made again at once."""
        routes.on_change(lambda _: self._look())
        pool.on_connect(self._connected)

    def on_denied(self, callback: DenialListener) -> None:
        """Call back when no broker lets us in, and none ever did: the keys must be wrong."""
        self._on_denied.append(callback)

    async def introduce(self, topic: str) -> None:
        """See that the brokers of a topic know us before they are to call us."""
        wanted = {b.leader for b in self._routes.brokers_of(topic) if b.leader}
        if not wanted <= self._told:
            if self._telling is None or self._telling.done():
                self._telling = asyncio.create_task(self.beat())
            # All who ask at one time share it; a broker that is away holds nobody up for long.
            await asyncio.wait({self._telling}, timeout=INTRODUCTION_MS / 1000)

    def trigger(self) -> None:
        """Let the brokers hear of us now."""
        self._alarm.ring()

    async def keep(self) -> None:
        """Beat, for ever, or until nobody lets us in and somebody takes that for the end."""
        while True:
            all_heard = await self.beat()
            if self._is_shut_out and self._on_denied:
                return
            hurried = not all_heard and self._denial is None
            pause_ms = TRIGGERED_PAUSE_MS if hurried else self._config.heartbeat_period_ms
            if await self._alarm.wait(pause_ms):
                await self._config.clock.sleep(0)

    async def beat(self) -> bool:
        """One heartbeat to every broker; whether all heard it."""
        data = self._data()
        body = codec.dumps(data)
        self._known = self._addresses(followers=bool(data.consumer_data_set))
        self._denial = None
        heard = await asyncio.gather(*(self._tell(a, body) for a in sorted(self._known)))
        self._was_let_in = self._was_let_in or any(heard)
        if self._denial is not None and not self._was_let_in and not self._is_shut_out:
            self._is_shut_out = True
            for tell in self._on_denied:
                tell(self._denial)
        return all(heard)

    async def leave(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Tell every broker that we leave a group."""
        self._is_leaving = True
        call = Unregister(
            client_id=self._data().client_id, producer_group=producer, consumer_group=consumer
        )
        calls = (self._pool.call(a, call, LEAVE_TIMEOUT_MS) for a in sorted(self._known))
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
                return codec.loads(reply.body, ConsumerIdList).consumer_id_list
            except RoquetError:  # not there, or it has not heard of the group
                continue
        return ()

    async def _tell(self, address: str, body: bytes) -> bool:
        trouble = self._troubles.setdefault(address, ErrorLogThrottle(f"heartbeat to {address}"))
        try:
            await self._pool.call(address, Heartbeat(body=body), self._config.timeout_ms)
        except RoquetError as error:  # an address may be none, too
            trouble.tell(error)
            self._routes.invalidate()
            if isinstance(error, CallRefused) and error.code == ResponseCode.NO_PERMISSION:
                self._denial = error
            return False
        finally:
            self._told.add(address)
        trouble.over()
        if address not in self._joined:
            self._joined.add(address)
            log.info("%s is known to the broker at %s", self._data().client_id, address)
        return True

    def _connected(self, channel: Channel) -> None:
        """A broker knows us on a connection: on a new one it has to hear of us again."""
        self._told.clear()  # whose it is we cannot tell: routes may name hosts, it knows its ip
        channel.on_close(self._lost)
        self.trigger()

    def _lost(self, channel: Channel) -> None:
        if not self._is_leaving:
            log.info(
                "the connection to %s is lost; it is made again when it is needed", channel.address
            )
        self._joined.clear()  # whose it was we cannot tell, either
        if self.is_awaited():
            self.trigger()

    def _look(self) -> None:
        """Hurry when there is a broker that has not heard of us."""
        if self._addresses(followers=False) - self._known:
            self.trigger()

    def _addresses(self, *, followers: bool) -> set[str]:
        """Of all leaders; of those who follow them, too, when asked for."""
        brokers = self._routes.brokers
        if followers:
            return {address for broker in brokers for address in broker.broker_addrs.values()}
        return {broker.leader for broker in brokers if broker.leader}
