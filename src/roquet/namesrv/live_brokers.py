"""Live brokers: their registrations, connections and last signs of life."""

from collections.abc import Callable, Iterable
from typing import Final

from roquet.log_records import logger
from roquet.net.router import Peer
from roquet.rules import liveness, routing
from roquet.rules.bounded_cache import BoundedCache
from roquet.rules.liveness import LastSeen
from roquet.rules.lowest_broker_id import LowestIdChange, after_loss, after_registration
from roquet.rules.routing import (
    BrokerKey,
    BrokerRegistration,
    BrokerRegistrations,
    RegistrationVerdict,
)

log = logger(__name__)

CLAIMS_REMEMBERED: Final = 256
"""Brokers whose two addresses were logged: each pair is logged once."""


class LiveBrokers:
    """The brokers that are alive; rules.routing decides which registrations count."""

    def __init__(self) -> None:
        self.registrations: BrokerRegistrations = {}
        self._signs: dict[BrokerKey, LastSeen] = {}
        self._peers: dict[BrokerKey, Peer] = {}
        self._claims: BoundedCache[BrokerKey, frozenset[str]] = BoundedCache(CLAIMS_REMEMBERED)
        self.listeners: list[Callable[[LowestIdChange], object]] = []
        """Called when another member of a broker name has the lowest id."""

    def take(
        self, new: BrokerRegistration, peer: Peer, sign: LastSeen, *, whole: bool
    ) -> RegistrationVerdict:
        """Accept a registration unless rules.routing rejects it; returns the verdict.

        `whole`: topics that it lacks are removed.
        """
        verdict = routing.judge(self.registrations, new)
        if verdict is not RegistrationVerdict.TAKEN:
            log.warning(
                "%s at %s is not registered: %s", new.broker_key, new.address, verdict.value
            )
            if verdict is RegistrationVerdict.OUTDATED:
                self._keep(routing.without_address(self.registrations, new))
            return verdict
        if new.broker_key not in self.registrations:
            log.info("broker %s (id %d) joins at %s", *new.broker_key, new.address)
        self._report_claim(new)
        before = self.registrations
        self._keep(routing.merge(before, new, whole=whole))
        self._report(after_registration(before, self.registrations, new))
        self._signs[new.broker_key] = sign
        if self._peers.get(new.broker_key) is not peer:
            self._peers[new.broker_key] = peer
            peer.on_close(self._lost)
        return verdict

    def key_of(self, broker_name: str, address: str) -> BrokerKey | None:
        """The key of the broker with this name and address; None for an unknown one."""
        for broker_key, registration in self.registrations.items():
            if broker_key[0] == broker_name and registration.address == address:
                return broker_key
        return None

    def spoke(self, broker_key: BrokerKey, now_ms: int, limit_ms: int | None = None) -> None:
        """Note a sign of life. `limit_ms` is the new silence limit; None keeps the old one."""
        limit_ms = self._signs[broker_key].limit_ms if limit_ms is None else limit_ms
        self._signs[broker_key] = LastSeen(seen_ms=now_ms, limit_ms=limit_ms)

    def silent(self, now_ms: int) -> list[BrokerKey]:
        """Brokers that have been silent for longer than their limits."""
        return liveness.silent_peers(self._signs, now_ms)

    def forget(self, broker_keys: Iterable[BrokerKey], reason: str) -> None:
        """Remove brokers from every route at once."""
        for broker_key in broker_keys:
            registration = self.registrations.get(broker_key)
            if registration is None:
                continue
            log.info("broker %s (id %d) at %s %s", *broker_key, registration.address, reason)
            self._keep(routing.without(self.registrations, [broker_key]))
            self._report(after_loss(self.registrations, registration))

    def _keep(self, registrations: BrokerRegistrations) -> None:
        """Replace the registrations; signs and connections of others are forgotten."""
        self.registrations = registrations
        self._signs = {key: sign for key, sign in self._signs.items() if key in registrations}
        self._peers = {key: peer for key, peer in self._peers.items() if key in registrations}

    def _report_claim(self, new: BrokerRegistration) -> None:
        """Log that one id is registered from two addresses, and no epoch says which one counts."""
        old = self.registrations.get(new.broker_key)
        if old is None or old.address == new.address:
            return
        addresses = frozenset((old.address, new.address))
        is_failover = old.version.state_version != new.version.state_version
        if is_failover or self._claims.get(new.broker_key) == addresses:
            return
        self._claims.put(new.broker_key, addresses)
        log.warning(
            "broker %s (id %d) registers from %s, and from %s before: if both run, stop one of"
            " them, since neither has the messages of the other",
            *new.broker_key, new.address, old.address,
        )  # fmt: skip

    def _report(self, change: LowestIdChange | None) -> None:
        if change is not None:
            for listener in self.listeners:
                listener(change)

    def _lost(self, peer: Peer) -> None:
        """Forget the brokers of a closed connection, unless they registered over a newer one."""
        gone = [broker_key for broker_key, owner in self._peers.items() if owner is peer]
        self.forget(gone, "is gone: its connection ended")
