"""NameServerState: what the handlers of a name server may read or change."""

import asyncio

import msgspec

from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.kv_store import KVStore
from roquet.namesrv.live_brokers import LiveBrokers
from roquet.namesrv.registration_answers import RegistrationAnswers
from roquet.net.clock import Clock


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
