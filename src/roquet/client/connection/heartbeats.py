"""Heartbeats: tell brokers of this client, and ask them for the members of its group.

Every broker of a known topic gets a heartbeat each 30 s, and at once when the broker is new, when a
connection is opened or when the subscriptions change. Brokers that did not answer are tried again
soon.
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
from roquet.wire.calls.heartbeat import GetConsumers, Heartbeat, Unregister
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

log = logger(__name__)

TRIGGERED_PAUSE_MS: Final = 1_000
"""Pause between heartbeats that are triggered."""

INTRODUCTION_MS: Final = 1_000
"""Time that a request waits for brokers to know its client; most answer in a few milliseconds."""

LEAVE_TIMEOUT_MS: Final = 1_000
"""Timeout of an unregistration, which is optional: brokers notice a closed connection."""

DenialListener = Callable[[CallRefused], object]
"""Called when no broker grants access, with one broker's refusal."""

HeartbeatSource = Callable[[], HeartbeatData]
"""Returns the client's current heartbeat data."""


class Membership:
    """One client's registration with the brokers."""

    def __init__(
        self, pool: ChannelPool, routes: Routes, config: ClientConfig, data: HeartbeatSource
    ) -> None:
        self._pool = pool
        self._routes = routes
        self._config = config
        self._data = data
        self._wakeup = Wakeup()
        self._known: set[str] = set()
        self._throttles: dict[str, ErrorLogThrottle] = {}
        self._informed: set[str] = set()
        """Addresses of brokers that got a heartbeat on their current connection."""
        self._joined: set[str] = set()
        """Addresses of brokers that acknowledged a heartbeat since a connection was last lost."""
        self._reached: set[str] = set()
        """Addresses that acknowledged their last heartbeat and have not hung up since."""
        self._telling: asyncio.Task[bool] | None = None
        self._was_let_in = self._is_shut_out = False
        self._is_leaving = False
        self._denial: CallRefused | None = None
        self.on_denied: DenialListener | None = None
        """Called when no broker grants access and none ever did: wrong keys."""
        self.is_awaited: Callable[[], bool] = lambda: False
        """Whether brokers may be about to call this client: then a lost connection is opened again
        at once."""
        routes.on_change(lambda _: self._trigger_for_new_brokers())
        pool.on_connect(self._connected)

    async def ensure_known(self, topic: str) -> None:
        """Make sure that a topic's brokers know this client before they have to call it."""
        wanted = {b.leader for b in self._routes.brokers_of(topic) if b.leader}
        if not wanted <= self._informed:
            if self._telling is None or self._telling.done():
                self._telling = asyncio.create_task(self.send_heartbeats())
            # Concurrent callers share one round; the timeout covers brokers that are down.
            await asyncio.wait({self._telling}, timeout=INTRODUCTION_MS / 1000)

    def is_reached(self, address: str) -> bool:
        """Whether the broker at an address knows this client, as far as that is known."""
        return address in self._reached

    @property
    def failure(self) -> str | None:
        """The error of a heartbeat that fails at present."""
        failures = (self._throttles[a].failure for a in self._known if a in self._throttles)
        return next((failure for failure in failures if failure is not None), None)

    def trigger(self) -> None:
        """Send heartbeats now."""
        self._wakeup.set()

    async def run(self) -> None:
        """Send heartbeats for ever, or until access is denied and a callback handles that."""
        while True:
            all_heard = await self.send_heartbeats()
            if self._is_shut_out and self.on_denied is not None:
                return
            hurried = not all_heard and self._denial is None
            pause_ms = TRIGGERED_PAUSE_MS if hurried else self._config.heartbeat_period_ms
            if await self._wakeup.wait(pause_ms):
                await self._config.clock.sleep(0)

    async def send_heartbeats(self) -> bool:
        """Send one heartbeat to every broker; return whether all of them acknowledged it."""
        data = self._data()
        body = codec.dumps(data)
        self._known = self._addresses(followers=bool(data.consumer_data_set))
        self._denial = None
        heard = await asyncio.gather(*(self._send_to(a, body) for a in sorted(self._known)))
        self._was_let_in = self._was_let_in or any(heard)
        if self._denial is not None and not self._was_let_in and not self._is_shut_out:
            self._is_shut_out = True
            if self.on_denied is not None:
                self.on_denied(self._denial)
        return all(heard)

    async def leave(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Tell every broker that this client leaves a group."""
        self._is_leaving = True
        call = Unregister(
            client_id=self._data().client_id, producer_group=producer, consumer_group=consumer
        )
        calls = (self._pool.call(a, call, LEAVE_TIMEOUT_MS) for a in sorted(self._known))
        await asyncio.gather(*calls, return_exceptions=True)

    async def members(self, group: str, topic: str) -> Sequence[str]:
        """The ids of a group's members, by a broker of the topic; empty when none answers."""
        from roquet.wire.calls.bodies import ConsumerIdList  # here: producers ask for no members

        brokers = list(self._routes.brokers_of(topic))
        self._config.rng.shuffle(brokers)
        for broker in brokers:
            try:
                reply = await self._pool.call(
                    self._routes.any_member(broker.broker_name),
                    GetConsumers(consumer_group=group),
                    self._config.timeout_ms,
                )
                return codec.loads(reply.body, ConsumerIdList).consumer_id_list
            except RoquetError:  # the broker is down, or does not know the group
                continue
        return ()

    async def _send_to(self, address: str, body: bytes) -> bool:
        throttle = self._throttles.setdefault(address, ErrorLogThrottle(f"heartbeat to {address}"))
        try:
            await self._pool.call(address, Heartbeat(body=body), self._config.timeout_ms)
        except RoquetError as error:  # the address may be invalid as well
            throttle.report(error)
            self._reached.discard(address)
            self._routes.invalidate()
            if isinstance(error, CallRefused) and error.code == ResponseCode.NO_PERMISSION:
                self._denial = error
            return False
        finally:
            self._informed.add(address)
        throttle.clear()
        self._reached.add(address)
        if address not in self._joined:
            self._joined.add(address)
            log.info("%s is known to the broker at %s", self._data().client_id, address)
        return True

    def _connected(self, channel: Channel) -> None:
        """Clear the known brokers after a connect: a broker knows a client by its connection."""
        self._informed.clear()  # all of them: routes may name hosts where the channel has an ip
        channel.on_close(self._disconnected)
        self.trigger()

    def _disconnected(self, channel: Channel) -> None:
        if not self._is_leaving:
            log.info(
                "the connection to %s is lost; it is made again when it is needed", channel.address
            )
        self._joined.clear()  # all of them, for the same reason
        self._reached.discard(channel.address)
        if self.is_awaited():
            self.trigger()

    def _trigger_for_new_brokers(self) -> None:
        if self._addresses(followers=bool(self._data().consumer_data_set)) - self._known:
            self.trigger()

    def _addresses(self, *, followers: bool) -> set[str]:
        brokers = self._routes.brokers
        if followers:
            return {address for broker in brokers for address in broker.broker_addrs.values()}
        return {broker.leader for broker in brokers if broker.leader}
