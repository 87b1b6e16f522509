import pytest
from msgspec.structs import replace
from tests.namesrv.conftest import FakePeer
from tests.rules.election.conftest import group_of

from roquet.controller import liveness as module
from roquet.controller.liveness import LiveBroker, Liveness
from roquet.net.router import Peer
from roquet.rules.election.elect import Candidate
from roquet.rules.election.group import BrokerSite, RegisteredReplica
from roquet.rules.liveness import LastSeen

GROUPS = {name: replace(group_of(1, 2), name=name) for name in ("bc", "bd")}


def beat(
    peer: Peer,
    seen_ms: int = 0,
    limit_ms: int = 10,
    epoch: int = 1,
    *,
    address: str = "h:1",
    cluster: str = "C",
) -> LiveBroker:
    return LiveBroker(
        site=BrokerSite(cluster=cluster, address=address),
        peer=peer,
        seen=LastSeen(seen_ms=seen_ms, limit_ms=limit_ms),
        candidate=Candidate(epoch=epoch, end=5),
        epoch=epoch,
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
    assert list(liveness.live(GROUPS["bc"])) == [1]
    liveness.expire(11)
    assert liveness.live(GROUPS["bc"]) == {}
    assert liveness.next_expiry_ms() is None
    assert (liveness.names, changes) == ([], [1, 1])


def test_a_broker_whose_connection_ends_is_lost_at_once(liveness: Liveness) -> None:
    peer = FakePeer()
    for name, broker_id in (("bc", 1), ("bd", 2)):
        liveness.note(name, broker_id, beat(peer, address=f"h:{broker_id}"))
    liveness.note("bc", 2, beat(FakePeer(), address="h:2"))
    peer.hang_up()
    assert [list(liveness.live(GROUPS[name])) for name in ("bc", "bd")] == [[2], []]


def test_the_end_of_an_older_connection_means_nothing(liveness: Liveness) -> None:
    old, new = FakePeer(), FakePeer()
    liveness.note("bc", 1, beat(old))
    liveness.note("bc", 1, beat(new))
    old.hang_up()
    assert list(liveness.live(GROUPS["bc"])) == [1]
    new.hang_up()
    assert list(liveness.live(GROUPS["bc"])) == []


def test_the_last_heartbeat_counts_even_if_it_says_less(liveness: Liveness) -> None:
    liveness.note("bc", 1, beat(FakePeer(), epoch=7))
    liveness.note("bc", 1, beat(FakePeer(), epoch=3))
    assert liveness.candidates(GROUPS["bc"]) == {1: Candidate(epoch=3, end=5)}


def test_the_latest_epoch_is_of_any_broker_of_the_name_and_its_cluster(liveness: Liveness) -> None:
    for broker_id, epoch, cluster in ((1, 3, "C"), (8, 7, "C"), (9, 9, "x")):
        liveness.note("bc", broker_id, beat(FakePeer(), epoch=epoch, cluster=cluster))
    latest = {cluster: liveness.latest("bc", cluster) for cluster in ("C", "x", "")}
    assert {key: one and one.candidate.epoch for key, one in latest.items()} == {
        "C": 7, "x": 9, "": 9,
    }  # fmt: skip
    assert liveness.latest("nope", "") is None


def test_strangers_of_a_brokers_name_and_id_stand_for_nobody(liveness: Liveness) -> None:
    liveness.note("bc", 1, beat(FakePeer(), epoch=3))
    liveness.note("bc", 1, beat(FakePeer(), epoch=9, address="h:9"))
    liveness.note("bc", 2, beat(FakePeer(), epoch=9, address="h:2", cluster="x"))
    liveness.note("bc", 7, beat(FakePeer(), epoch=9, address="h:7"))
    assert liveness.candidates(GROUPS["bc"]) == {1: Candidate(epoch=3, end=5)}
    assert liveness.count == 4


def test_a_broker_that_moved_is_alive_where_it_is_registered_by_then(liveness: Liveness) -> None:
    group, peer = GROUPS["bc"], FakePeer()
    liveness.note("bc", 1, beat(peer))
    replicas = {**group.replicas, 1: RegisteredReplica("h:9", "h:1;17")}
    moved = replace(group, replicas=replicas)
    assert liveness.live(moved) == {}
    liveness.note("bc", 1, beat(FakePeer(), address="h:9"))
    peer.hang_up()
    assert list(liveness.live(moved)) == [1]


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
    assert liveness.live(GROUPS["bc"]) == {}


def test_a_stranger_is_named_once_until_it_counts(
    liveness: Liveness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STRANGERS_MAX", 1)
    site = BrokerSite(cluster="x", address="h:9")
    for _ in range(3):
        liveness.report_stranger("bc", 1, site, "it is of cluster x")
    liveness.report_stranger("bc", 2, site, "it is of cluster x")
    assert caplog.messages == ["broker bc:1 at h:9 does not count: it is of cluster x"]
    liveness.note("bc", 1, beat(FakePeer(), address="h:9", cluster="x"))
    liveness.report_stranger("bc", 1, site, "it has moved")
    assert caplog.messages[-1] == "broker bc:1 at h:9 does not count: it has moved"


def test_members_of_groups_are_noted_however_many_others_there_are(
    liveness: Liveness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BROKERS_MAX", 3)
    for number in (1, 2, 3):
        assert liveness.note(f"x{number}", 1, beat(FakePeer()), is_member=False)
    assert not liveness.note("x4", 1, beat(FakePeer()), is_member=False)
    for broker_id in (1, 2):
        assert liveness.note("bc", broker_id, beat(FakePeer()))
    assert liveness.names == ["x3", "bc"]
    assert liveness.note("x3", 1, beat(FakePeer())), "it is a member by now"
    assert not liveness.note("bd", 1, beat(FakePeer()))
    assert liveness.count == 3
