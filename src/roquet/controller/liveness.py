"""Liveness: brokers that send heartbeats to this controller, and what they say of their logs.

A broker is lost when it has been silent for as long as it said, or when its connection ends. Each
controller knows this for itself: brokers send their heartbeats to all controllers.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.net.router import Peer
from roquet.rules.election.elect import Candidate
from roquet.rules.liveness import LastSeen

log = logger(__name__)

TIMEOUT_MS: Final = 10_000
"""Silence after which a broker counts as dead that says nothing else (heartbeatTimeoutMills)."""

BROKERS_MAX: Final = 10_000
"""Brokers of which heartbeats are noted: each costs less than a KiB."""


class LiveBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker at its last heartbeat."""

    address: str
    peer: Peer
    seen: LastSeen
    candidate: Candidate
    releases_lease: bool = False
    """Whether it said that it acknowledges nothing until it is granted a lease again. It says so to
    controllers that do not lead yet, too."""


class Liveness:
    """Live brokers by broker name and id. `on_change` is called when brokers come or are lost."""

    def __init__(self) -> None:
        self._brokers: defaultdict[str, dict[int, LiveBroker]] = defaultdict(dict)
        self._keys_of: dict[Peer, set[tuple[str, int]]] = {}
        self.on_change: Callable[[], object] = lambda: None

    def note(self, name: str, broker_id: int, broker: LiveBroker) -> bool:
        """Note a heartbeat; False if there are too many brokers."""
        known = self._brokers[name].get(broker_id) if name in self._brokers else None
        if known is None:
            if self.count >= BROKERS_MAX:
                return False
            log.info("broker %s:%d at %s is alive", name, broker_id, broker.address)
        self._brokers[name][broker_id] = broker
        if known is None or known.seen.limit_ms != broker.seen.limit_ms:
            self.on_change()
        if known is not None and known.peer is not broker.peer:
            self._keys_of.get(known.peer, set()).discard((name, broker_id))
        if broker.peer not in self._keys_of:
            self._keys_of[broker.peer] = set()
            broker.peer.on_close(self._closed)
        if not broker.peer.closed:
            self._keys_of[broker.peer].add((name, broker_id))
        return True

    @property
    def names(self) -> list[str]:
        """Names of brokers that are alive."""
        return list(self._brokers)

    @property
    def count(self) -> int:
        """Number of live brokers."""
        return sum(map(len, self._brokers.values()))

    def live(self, name: str) -> Mapping[int, LiveBroker]:
        """Live brokers of a name, by id."""
        return self._brokers.get(name, {})

    def candidates(self, name: str) -> dict[int, Candidate]:
        """Last heartbeats of the live brokers of a name, by id."""
        return {key: broker.candidate for key, broker in self.live(name).items()}

    def epoch_known(self, name: str) -> int:
        """Latest epoch that a live broker of a name has in its log; 0 without any."""
        return max((one.epoch for one in self.candidates(name).values()), default=0)

    def expire(self, now_ms: int) -> None:
        """Remove brokers that have been silent for too long."""
        silent = [
            (name, broker_id)
            for name, brokers in self._brokers.items()
            for broker_id, broker in brokers.items()
            if broker.seen.expired(now_ms)
        ]
        self._lose(silent, "fell silent")

    def next_expiry_ms(self) -> int | None:
        """Time at which the first broker is lost if none sends a heartbeat; None without any."""
        ends = (
            broker.seen.seen_ms + broker.seen.limit_ms + 1
            for brokers in self._brokers.values()
            for broker in brokers.values()
        )
        return min(ends, default=None)

    def _closed(self, peer: Peer) -> None:
        self._lose(sorted(self._keys_of.pop(peer, ())), "lost its connection")

    def _lose(self, keys: list[tuple[str, int]], reason: str) -> None:
        for name, broker_id in keys:
            broker = self._brokers[name].pop(broker_id)
            self._keys_of.get(broker.peer, set()).discard((name, broker_id))
            log.info("broker %s:%d at %s %s", name, broker_id, broker.address, reason)
            if not self._brokers[name]:
                del self._brokers[name]
        if keys:
            self.on_change()
