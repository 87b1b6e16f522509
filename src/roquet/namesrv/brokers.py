"""The brokers that are alive: what they registered, over which connection, and when they spoke."""

from collections.abc import Iterable

from roquet.log_records import logger
from roquet.net.router import Peer
from roquet.rules import liveness, routing
from roquet.rules.liveness import Sign
from roquet.rules.routing import Registration, Registrations, Seat, Verdict

log = logger(__name__)


class Brokers:
    """The brokers that are alive; what they hold is decided by rules.routing."""

    def __init__(self) -> None:
        self.registrations: Registrations = {}
        self._signs: dict[Seat, Sign] = {}
        self._peers: dict[Seat, Peer] = {}

    def take(self, new: Registration, peer: Peer, sign: Sign, *, whole: bool) -> Verdict:
        """Believes a registration, unless there is a reason not to."""
        verdict = routing.judge(self.registrations, new)
        if verdict is not Verdict.TAKEN:
            log.warning("%s at %s is not registered: %s", new.seat, new.address, verdict.value)
            return verdict
        if new.seat not in self.registrations:
            log.info("broker %s (id %d) joins at %s", *new.seat, new.address)
        self.registrations = routing.merge(self.registrations, new, whole=whole)
        self._signs = {s: sign for s, sign in self._signs.items() if s in self.registrations}
        self._signs[new.seat] = sign
        if self._peers.get(new.seat) is not peer:
            self._peers[new.seat] = peer
            peer.on_close(self._lost)
        return verdict

    def seated(self, broker_name: str, address: str) -> Seat | None:
        """The seat of the broker with this name and address."""
        for seat, registration in self.registrations.items():
            if seat[0] == broker_name and registration.address == address:
                return seat
        return None

    def spoke(self, seat: Seat, now_ms: int, limit_ms: int | None = None) -> None:
        """Notes a sign of life; without a limit of its own the old one holds on."""
        limit_ms = self._signs[seat].limit_ms if limit_ms is None else limit_ms
        self._signs[seat] = Sign(seen_ms=now_ms, limit_ms=limit_ms)

    def silent(self, now_ms: int) -> list[Seat]:
        """Those who have been silent for too long."""
        return liveness.silent(self._signs, now_ms)

    def forget(self, seats: Iterable[Seat], reason: str) -> None:
        """Takes brokers out of every route, at once."""
        for seat in seats:
            registration = self.registrations.get(seat)
            if registration is None:
                continue
            log.info("broker %s (id %d) at %s %s", *seat, registration.address, reason)
            self.registrations = routing.without(self.registrations, [seat])
            self._signs.pop(seat, None)
            self._peers.pop(seat, None)

    def _lost(self, peer: Peer) -> None:
        """A broker that has registered anew over another connection stays."""
        gone = [seat for seat, owner in self._peers.items() if owner is peer]
        self.forget(gone, "is gone: its connection ended")
