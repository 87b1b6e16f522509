import pytest
from tests.namesrv.conftest import FakePeer

from roquet.controller import liveness as module
from roquet.controller.liveness import LiveBroker, Liveness
from roquet.net.router import Peer
from roquet.rules.election.elect import Candidate
from roquet.rules.liveness import LastSeen


def beat(peer: Peer, seen_ms: int = 0, limit_ms: int = 10, epoch: int = 1) -> LiveBroker:
    return LiveBroker(
        address="h:1",
        peer=peer,
        seen=LastSeen(seen_ms=seen_ms, limit_ms=limit_ms),
        candidate=Candidate(epoch=epoch, end=5),
    )


@pytest.fixture
def changes() -> list[int]:
    return []


@pytest.fixture
def liveness(changes: list[int]) -> Liveness:
    made = Liveness()
    made.on_change = lambda: changes.append(1)
    return made


def test_a_broker_lives_until_it_was_silent_for_too_long(
    liveness: Liveness, changes: list[int]
) -> None:
    liveness.note("bc", 1, beat(FakePeer()))
    assert liveness.next_expiry_ms() == 11
    liveness.expire(10)
    assert list(liveness.live("bc")) == [1]
    liveness.expire(11)
    assert liveness.live("bc") == {}
    assert liveness.next_expiry_ms() is None
    assert (liveness.names, changes) == ([], [1, 1])


def test_a_broker_whose_connection_ends_is_lost_at_once(liveness: Liveness) -> None:
    peer = FakePeer()
    for name, broker_id in (("bc", 1), ("bd", 2)):
        liveness.note(name, broker_id, beat(peer))
    liveness.note("bc", 2, beat(FakePeer()))
    peer.hang_up()
    assert {name: list(liveness.live(name)) for name in ("bc", "bd")} == {"bc": [2], "bd": []}


def test_the_end_of_an_older_connection_means_nothing(liveness: Liveness) -> None:
    old, new = FakePeer(), FakePeer()
    liveness.note("bc", 1, beat(old))
    liveness.note("bc", 1, beat(new))
    old.hang_up()
    assert list(liveness.live("bc")) == [1]
    new.hang_up()
    assert list(liveness.live("bc")) == []


def test_the_last_heartbeat_counts_even_if_it_says_less(liveness: Liveness) -> None:
    liveness.note("bc", 1, beat(FakePeer(), epoch=7))
    liveness.note("bc", 1, beat(FakePeer(), epoch=3))
    assert liveness.candidates("bc") == {1: Candidate(epoch=3, end=5)}
    assert liveness.epoch_known("bc") == 3
    assert liveness.epoch_known("nope") == 0


def test_a_heartbeat_like_the_one_before_changes_nothing(
    liveness: Liveness, changes: list[int]
) -> None:
    peer = FakePeer()
    liveness.note("bc", 1, beat(peer))
    liveness.note("bc", 1, beat(peer, seen_ms=5))
    assert changes == [1]
    liveness.note("bc", 1, beat(peer, seen_ms=6, limit_ms=3))
    assert changes == [1, 1], "it is lost earlier"


def test_there_is_a_limit_of_brokers(liveness: Liveness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BROKERS_MAX", 2)
    peer = FakePeer()
    assert [liveness.note("bc", n, beat(peer)) for n in (1, 2, 3)] == [True, True, False]
    assert liveness.note("bc", 1, beat(peer)), "known ones go on"
    assert liveness.count == 2


def test_a_peer_that_has_gone_already_leaves_no_broker(liveness: Liveness) -> None:
    class GonePeer(FakePeer):
        def on_close(self, callback):  # type: ignore[no-untyped-def]
            callback(self)

    peer = GonePeer()
    peer.closed = True
    liveness.note("bc", 1, beat(peer))
    liveness.expire(11)
    assert liveness.live("bc") == {}
