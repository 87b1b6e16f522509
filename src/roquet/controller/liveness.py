"""Liveness: brokers that send heartbeats to this controller, and what they say of their logs.

A broker is lost when it has been silent for as long as it said, or when its connection ends. Each
controller knows this for itself: brokers send their heartbeats to all controllers. One that does
not lead knows no groups, so heartbeats are noted with cluster and address, and compared with the
group when they are asked for: a stranger of the same name and id stands for nobody.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from roquet.log_records import logger
from roquet.net.router import Peer
from roquet.rules.election.elect import Candidate
from roquet.rules.election.group import BrokerSite, ReplicaGroup, is_of_cluster, misplaced
from roquet.rules.liveness import LastSeen

log = logger(__name__)

TIMEOUT_MS: Final = 10_000
"""Silence after which a broker counts as dead that says nothing else (heartbeatTimeoutMills)."""

PATIENCE_SHARE: Final = 3
"""Share of a broker's time-out: after that much silence its connection may be dead, which nobody
has noticed. A broker sends several heartbeats in it."""

STRANGERS_MAX: Final = 100
"""Strangers that are named in the log, each once until it counts."""

BROKERS_MAX: Final = 10_000
"""Brokers of which heartbeats are noted: each costs less than a KiB."""


class LiveBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker at its last heartbeat."""

    site: BrokerSite
    peer: Peer
    seen: LastSeen
    candidate: Candidate
    epoch: int
    """Latest epoch that it has told of: of its log, or one that it obeys."""
    releases_lease: bool = False
    """Whether it said that it acknowledges nothing until it is granted a lease again. It says so to
    controllers that do not lead yet, too."""
    contested_ms: int | None = None
    """Time of the last heartbeat that another connection sent in its name; None: none did."""

    @property
    def patience_ms(self) -> int:
        """Silence after which another connection may be this broker's."""
        return self.seen.limit_ms // PATIENCE_SHARE

    @property
    def is_contested(self) -> bool:
        """Whether two processes say that they are this broker."""
        return (
            self.contested_ms is not None
            and self.seen.seen_ms - self.contested_ms <= self.patience_ms
        )


class HeartbeatSender(msgspec.Struct, frozen=True, order=True):
    """A process that sends heartbeats in the name of a broker."""

    name: str
    broker_id: int
    cluster: str
    address: str


class Liveness:
    """Live brokers by name, id and site. `on_change` is called when brokers come or are lost."""

    def __init__(self) -> None:
        self._brokers: defaultdict[str, dict[HeartbeatSender, LiveBroker]] = defaultdict(dict)
        self._keys_of: dict[Peer, set[HeartbeatSender]] = {}
        self._reported_strangers: set[HeartbeatSender] = set()
        self.count = 0
        """Number of live brokers."""
        self._unregistered: dict[HeartbeatSender, None] = {}
        """Live brokers that are not known to be members of a group, the oldest first."""
        self.on_change: Callable[[], object] = lambda: None

    def note(
        self, name: str, broker_id: int, broker: LiveBroker, *, is_member: bool = True
    ) -> bool:
        """Note a heartbeat; False if there are too many brokers.

        A member of a group then gets the place of one that is not known to be in any.
        """
        key = _key(name, broker_id, broker.site)
        self._reported_strangers.discard(key)
        known = self._living(name, broker_id, broker.site)
        if known is None:
            if not self._has_room(is_member=is_member):
                return False
            self.count += 1
            log.info("broker %s:%d at %s is alive", name, broker_id, key.address)
        elif known.peer is broker.peer and known.contested_ms is not None:
            broker = replace(broker, contested_ms=known.contested_ms)
        if is_member:
            self._unregistered.pop(key, None)
        else:
            self._unregistered[key] = None
        self._brokers[name][key] = broker
        if known is None or known.seen.limit_ms != broker.seen.limit_ms:
            self.on_change()
        self._note_peer(key, broker.peer, None if known is None else known.peer)
        return True

    def _has_room(self, *, is_member: bool) -> bool:
        if self.count < BROKERS_MAX:
            return True
        if not is_member or not self._unregistered:
            return False
        self._lose([next(iter(self._unregistered))], "makes room for a member of a group")
        return True

    def _note_peer(self, key: HeartbeatSender, peer: Peer, before: Peer | None) -> None:
        """Note which connection a broker is heard over."""
        if before is not None and before is not peer:
            self._keys_of.get(before, set()).discard(key)
        if peer not in self._keys_of:
            self._keys_of[peer] = set()
            peer.on_close(self._closed)
        if not peer.closed:
            self._keys_of[peer].add(key)

    def contest(self, name: str, broker_id: int, broker: LiveBroker) -> bool:
        """Note a heartbeat in the name of a broker that lives over another connection.

        It says nothing about that broker, which is elected only once one of the two has ended or is
        silent: nobody can know here which of them has the log. False if it may be noted.
        """
        known = self._living(name, broker_id, broker.site)
        if known is None or known.peer is broker.peer or known.peer.closed:
            return False
        if broker.seen.seen_ms - known.seen.seen_ms > known.patience_ms:
            return False
        if known.contested_ms is None:
            log.warning(
                "broker %s:%d at %s sends heartbeats over two connections: the first one, from %s,"
                " counts and not that from %s; a copy of its directory must not run, nor strangers"
                " reach this port",
                name, broker_id, broker.site.address, known.peer.address, broker.peer.address,
            )  # fmt: skip
        contested = replace(known, contested_ms=broker.seen.seen_ms)
        self._brokers[name][_key(name, broker_id, broker.site)] = contested
        return True

    def is_heard_from_another(self, group: ReplicaGroup, broker_id: int, peer: Peer) -> bool:
        """Whether heartbeats of a broker come over another connection than this one."""
        known = self.live(group).get(broker_id)
        return known is not None and known.peer is not peer and not known.peer.closed

    def _living(self, name: str, broker_id: int, site: BrokerSite) -> LiveBroker | None:
        return self._brokers.get(name, {}).get(_key(name, broker_id, site))

    def report_stranger(self, name: str, broker_id: int, site: BrokerSite, reason: str) -> None:
        """Log once why the heartbeats of a process do not count."""
        key = _key(name, broker_id, site)
        if key not in self._reported_strangers and len(self._reported_strangers) < STRANGERS_MAX:
            self._reported_strangers.add(key)
            log.warning(
                "broker %s:%d at %s does not count: %s", name, broker_id, site.address, reason
            )

    @property
    def names(self) -> list[str]:
        """Names of brokers that are alive."""
        return list(self._brokers)

    def live(self, group: ReplicaGroup) -> Mapping[int, LiveBroker]:
        """Brokers of a group that are alive where they are registered, by id."""
        return {
            key.broker_id: broker
            for key, broker in self._brokers.get(group.name, {}).items()
            if key.broker_id in group.replicas
            and misplaced(group, key.broker_id, broker.site) is None
        }

    def candidates(self, group: ReplicaGroup) -> dict[int, Candidate]:
        """Last heartbeats of the brokers of a group that may be elected or lead, by id."""
        return {
            key: broker.candidate
            for key, broker in self.live(group).items()
            if key == group.master or not broker.is_contested
        }

    def latest(self, name: str, cluster: str) -> LiveBroker | None:
        """The live broker of a name that tells of the latest epoch; None without any.

        Of all brokers of the cluster, also of those that have no id: a controller's state that was
        lost does not know them. Of all clusters, if it is empty.
        """
        brokers = self._brokers.get(name, {}).values()
        found = [one for one in brokers if is_of_cluster(one.site.cluster, cluster)]
        return max(found, key=lambda one: one.epoch, default=None)

    def expire(self, now_ms: int) -> None:
        """Remove brokers that have been silent for too long."""
        silent = [
            key
            for brokers in self._brokers.values()
            for key, broker in brokers.items()
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

    def _lose(self, keys: list[HeartbeatSender], reason: str) -> None:
        for key in keys:
            broker = self._brokers[key.name].pop(key)
            self.count -= 1
            self._unregistered.pop(key, None)
            self._keys_of.get(broker.peer, set()).discard(key)
            log.info("broker %s:%d at %s %s", key.name, key.broker_id, key.address, reason)
            if not self._brokers[key.name]:
                del self._brokers[key.name]
        if keys:
            self.on_change()


def _key(name: str, broker_id: int, site: BrokerSite) -> HeartbeatSender:
    return HeartbeatSender(name, broker_id, site.cluster, site.address)
