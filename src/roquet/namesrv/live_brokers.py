"""Live brokers: their registrations, connections and last signs of life."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from roquet.log_records import logger
from roquet.net.router import Peer
from roquet.rules import liveness, routing
from roquet.rules.bounded_cache import BoundedCache
from roquet.rules.liveness import LastSeen
from roquet.rules.route_changes import LowestIdChange, after_loss, after_registration
from roquet.rules.routing import (
    BrokerKey,
    BrokerRegistration,
    BrokerRegistrations,
    RegistrationVerdict,
)

log = logger(__name__)

CLAIMS_REMEMBERED: Final = 256
"""Brokers whose two addresses were logged: each pair is logged once."""


BROKERS_MAX: Final = 10_000
"""Registered brokers: each costs some KiB, and each route a look at all names."""


class LiveBrokers:
    """The brokers that are alive; rules.routing decides which registrations count."""

    def __init__(self) -> None:
        self._registrations: BrokerRegistrations = {}
        self._by_name: dict[str, BrokerRegistrations] = {}
        """Registrations by broker name: rules need those of one, and a stranger can add many."""
        self._members: dict[str, Sequence[BrokerRegistration]] = {}
        self._signs: dict[BrokerKey, LastSeen] = {}
        self._peers: dict[BrokerKey, Peer] = {}
        self._keys_of: dict[Peer, set[BrokerKey]] = {}
        self._claims: BoundedCache[BrokerKey, frozenset[str]] = BoundedCache(CLAIMS_REMEMBERED)
        self.listeners: list[Callable[[LowestIdChange], object]] = []
        """Called when another member of a broker name has the lowest id."""

    @property
    def registrations(self) -> BrokerRegistrations:
        """All registrations; another value after each change."""
        return self._registrations

    @registrations.setter
    def registrations(self, registrations: BrokerRegistrations) -> None:
        changed: dict[str, dict[BrokerKey, BrokerRegistration]] = {n: {} for n in self._by_name}
        for broker_key, registration in registrations.items():
            changed.setdefault(broker_key[0], {})[broker_key] = registration
        self._keep(changed)

    @property
    def members(self) -> Collection[Sequence[BrokerRegistration]]:
        """The members of each broker name, in order of their ids."""
        return self._members.values()

    def take(
        self, new: BrokerRegistration, peer: Peer, sign: LastSeen, *, whole: bool
    ) -> RegistrationVerdict:
        """Accept a registration unless rules.routing rejects it; returns the verdict.

        `whole`: topics that it lacks are removed.
        """
        before = self._by_name.get(new.broker_name, {})
        verdict = routing.judge(before, new)
        if len(self._registrations) >= BROKERS_MAX and new.broker_key not in before:
            verdict = RegistrationVerdict.TOO_MANY
        if verdict is not RegistrationVerdict.TAKEN:
            log.warning(
                "%s at %s is not registered: %s", new.broker_key, new.address, verdict.value
            )
            if verdict is RegistrationVerdict.OUTDATED:
                self._keep({new.broker_name: routing.without_address(before, new)})
            return verdict
        if new.broker_key not in before:
            log.info("broker %s (id %d) joins at %s", *new.broker_key, new.address)
        self._report_claim(before.get(new.broker_key), new)
        after = routing.merge(before, new, whole=whole)
        self._keep({new.broker_name: after})
        self._report(after_registration(before, after, new))
        self._signs[new.broker_key] = sign
        self._connect(new.broker_key, peer)
        return verdict

    def _connect(self, broker_key: BrokerKey, peer: Peer) -> None:
        self._disconnect(broker_key)
        self._peers[broker_key] = peer
        is_new = peer not in self._keys_of
        self._keys_of.setdefault(peer, set()).add(broker_key)
        if is_new:
            peer.on_close(self._lost)

    def _disconnect(self, broker_key: BrokerKey) -> None:
        if (peer := self._peers.pop(broker_key, None)) is not None:
            self._keys_of.get(peer, set()).discard(broker_key)

    def key_of(self, broker_name: str, address: str) -> BrokerKey | None:
        """The key of the broker with this name and address; None for an unknown one."""
        known = self._by_name.get(broker_name, {})
        return next((key for key, one in known.items() if one.address == address), None)

    def spoke(self, broker_key: BrokerKey, now_ms: int, limit_ms: int | None = None) -> None:
        """Note a sign of life. `limit_ms` is the new silence limit; None keeps the old one."""
        limit_ms = self._signs[broker_key].limit_ms if limit_ms is None else limit_ms
        self._signs[broker_key] = LastSeen(seen_ms=now_ms, limit_ms=limit_ms)

    def silent(self, now_ms: int) -> list[BrokerKey]:
        """Brokers that have been silent for longer than their limits."""
        return liveness.silent_peers(self._signs, now_ms)

    def forget_silent(self, now_ms: int) -> None:
        """Remove brokers that have been silent for longer than their limits."""
        self.forget(self.silent(now_ms), "is gone: it fell silent")

    def forget(self, broker_keys: Iterable[BrokerKey], reason: str) -> None:
        """Remove brokers from every route at once."""
        left: dict[str, BrokerRegistrations] = {}
        gone = [self._registrations[key] for key in broker_keys if key in self._registrations]
        for one in gone:
            log.info("broker %s (id %d) at %s %s", *one.broker_key, one.address, reason)
            known = left.get(one.broker_name, self._by_name[one.broker_name])
            left[one.broker_name] = routing.without(known, [one.broker_key])
        self._keep(left)
        for one in gone:
            self._report(after_loss(left[one.broker_name], one))

    def _keep(self, changed: Mapping[str, BrokerRegistrations]) -> None:
        """Replace the registrations of some names; lost brokers are forgotten."""
        registrations = dict(self._registrations)
        for name, after in changed.items():
            for broker_key in self._by_name.pop(name, {}).keys() - after.keys():
                del registrations[broker_key]
                self._signs.pop(broker_key, None)
                self._disconnect(broker_key)
            registrations.update(after)
            self._members.pop(name, None)
            if after:
                self._by_name[name] = after
                self._members[name] = [after[broker_key] for broker_key in sorted(after)]
        self._registrations = registrations

    def _report_claim(self, old: BrokerRegistration | None, new: BrokerRegistration) -> None:
        """Log that one id is registered from two addresses, and no epoch says which one counts."""
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
        self.forget(sorted(self._keys_of.pop(peer, ())), "is gone: its connection ended")
