"""NameServerState: what the handlers of a name server may read or change."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

import msgspec

from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.kv_store import KVStore
from roquet.namesrv.live_brokers import LiveBrokers
from roquet.net.clock import Clock
from roquet.net.router import HandlerReply
from roquet.net.threads import in_thread
from roquet.rules.routing import BrokerRegistrations
from roquet.wire.call import Reply
from roquet.wire.fastjson import codec

ROWS_MAX: Final = 2_000
"""Topics and brokers that are answered at once, in a millisecond or two."""

BODIES_MAX: Final = 8
"""Bodies kept until a broker registers something else: of 600,000 topics 20 MB each."""

Make = Callable[[BrokerRegistrations], msgspec.Struct]


class RegistrationAnswers:
    """Bodies by kind, each of the registrations that it was made of."""

    def __init__(self) -> None:
        self._known: BrokerRegistrations = {}
        self._bodies: dict[Hashable, bytes] = {}
        self._turn = asyncio.Lock()
        """Held while a body is made: several threads would take Python's lock from the loop."""

    def reply(
        self, registrations: Callable[[], BrokerRegistrations], kind: Hashable, make: Make
    ) -> HandlerReply:
        """The reply whose body is what `make` makes; `kind` says what that is."""
        known = registrations()
        if sum(len(broker.topics) + 1 for broker in known.values()) <= ROWS_MAX:
            return Reply(body=codec.dumps(make(known)))
        return self._later(registrations, kind, make)

    async def _later(
        self, registrations: Callable[[], BrokerRegistrations], kind: Hashable, make: Make
    ) -> Reply:
        async with self._turn:
            known = registrations()
            if known is not self._known or len(self._bodies) >= BODIES_MAX:
                self._known, self._bodies = known, {}
            if kind not in self._bodies:
                self._bodies[kind] = await in_thread(lambda: codec.dumps(make(known)))
            return Reply(body=self._bodies[kind])


class NameServerState(msgspec.Struct, kw_only=True):
    """State of a running name server."""

    config: NameServerConfig
    """Replaced when a setting changes at run time."""
    clock: Clock
    brokers: LiveBrokers
    kv_store: KVStore
    answers: RegistrationAnswers = msgspec.field(default_factory=RegistrationAnswers)
    registering: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """Held while a large registration is decoded."""
    saving: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """Held while key-value settings are written."""
