"""State: all that a name server's handlers may ask or change."""

import asyncio

import msgspec

from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.kv_store import KVStore
from roquet.namesrv.live_brokers import LiveBrokers
from roquet.net.clock import Clock


class NameServerState(msgspec.Struct, kw_only=True):
    """All that a handler may ask or change."""

    config: NameServerConfig
    """Some of it may change while it runs."""
    clock: Clock
    brokers: LiveBrokers
    values: KVStore
    registering: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """Held while a large registration is decoded."""
    saving: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """Held while the kept values are written."""
