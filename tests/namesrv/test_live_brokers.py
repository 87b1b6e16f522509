import logging
import time
from collections.abc import Callable

import msgspec
import pytest
from tests.namesrv.conftest import FakePeer, MovedClock, of_broker

from roquet.model.topic import DataVersion, TopicConfig
from roquet.namesrv import live_brokers
from roquet.namesrv.handlers import registration
from roquet.namesrv.live_brokers import LiveBrokers
from roquet.namesrv.state import NameServerState
from roquet.rules.liveness import LastSeen
from roquet.rules.route_changes import LowestIdChange
from roquet.rules.routing import BrokerRegistration, RegistrationVerdict
from roquet.wire.calls.route import (
    BrokerHeartbeat,
    QueryDataVersion,
    RegisterBroker,
    RegisterBrokerReply,
)
from roquet.wire.fastjson import codec

Registers = Callable[..., RegisterBroker]
TAKEN = RegistrationVerdict.TAKEN


def names(state: NameServerState) -> list[str]:
    return sorted(name for name, _ in state.brokers.registrations)


def test_a_broker_whose_connection_ends_is_forgotten_at_once(
    state: NameServerState, peer: FakePeer
) -> None:
    registration.register(state, of_broker("a"), peer)
    registration.register(state, of_broker("b"), FakePeer())
    peer.hang_up()
    assert names(state) == ["b"]


def test_an_old_connection_that_ends_takes_nothing_from_the_new_one(state: NameServerState) -> None:
    old, new = FakePeer(), FakePeer()
    registration.register(state, of_broker("a"), old)
    registration.register(state, of_broker("a"), new)
    old.hang_up()
    assert names(state) == ["a"]
    new.hang_up()
    assert names(state) == []


def test_two_brokers_over_one_connection_leave_together(
    state: NameServerState, peer: FakePeer
) -> None:
    registration.register(state, of_broker("a"), peer)
    registration.register(state, of_broker("b"), peer)
    peer.hang_up()
    assert names(state) == []


def test_an_outdated_claim_to_a_seat_is_noted_and_changes_nothing(
    state: NameServerState, caplog: pytest.LogCaptureFixture
) -> None:
    registration.register(state, of_broker("a", edition=5), FakePeer())
    with caplog.at_level(logging.WARNING):
        registration.register(state, of_broker("a", port=7, edition=4), FakePeer())
    assert state.brokers.registrations[("a", 0)].address == "10.0.0.0:10911"
    assert "newer state version" in caplog.text


def test_a_former_master_that_claims_its_id_is_a_follower_no_more(
    state: NameServerState, peer: FakePeer
) -> None:
    registration.register(state, of_broker("a", 0, edition=5), peer)
    registration.register(state, of_broker("a", 1), peer)
    claim = msgspec.structs.replace(of_broker("a", 0, edition=4), broker_addr="10.0.0.1:10911")
    reply = registration.register(state, claim, peer)
    assert isinstance(reply, RegisterBrokerReply)
    assert (reply.code, reply.master_addr, reply.ha_server_addr) == (0, None, None)
    assert list(state.brokers.registrations) == [("a", 0)]


def test_listeners_hear_of_the_member_with_the_lowest_id(state: NameServerState) -> None:
    heard: list[LowestIdChange] = []
    state.brokers.listeners.append(heard.append)
    registration.register(state, of_broker("a", 1, acting=True), FakePeer())
    leader = FakePeer()
    registration.register(state, of_broker("a", 0, acting=True), leader)
    leader.hang_up()
    assert [(change.broker_id, change.told) for change in heard] == [
        (0, ("10.0.0.1:10911",)),
        (1, ("10.0.0.1:10911",)),
    ]


def test_removing_an_unknown_broker_does_nothing(state: NameServerState) -> None:
    state.brokers.forget([("nobody", 0)], "was never here")
    assert names(state) == []


def test_a_follower_that_leads_now_is_watched_in_its_new_seat_alone(
    state: NameServerState, peer: FakePeer, clock: MovedClock
) -> None:
    registration.register(state, of_broker("a", 1), peer)
    leads = of_broker("a", 0)
    moved = RegisterBroker(
        broker_name="a",
        broker_id=0,
        broker_addr="10.0.0.1:10911",
        cluster_name="c",
        ha_server_addr="",
        body=leads.body,
    )
    registration.register(state, moved, peer)
    clock.ms += 200_000
    assert state.brokers.silent(clock.ms) == [("a", 0)]


def test_two_masters_of_one_name_are_logged_once(
    state: NameServerState, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = FakePeer(), FakePeer()
    for _ in range(3):
        registration.register(state, of_broker("a"), first)
        registration.register(state, of_broker("a", port=7), second)
    registration.register(state, of_broker("b"), first)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "broker a (id 0) registers from" in line
    assert "if both run, stop one of them" in line


def test_a_master_of_a_later_epoch_is_no_second_one(
    state: NameServerState, caplog: pytest.LogCaptureFixture
) -> None:
    registration.register(state, of_broker("a", edition=4), FakePeer())
    registration.register(state, of_broker("a", port=7, edition=5), FakePeer())
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_thousands_of_brokers_of_one_connection_come_and_go_at_once(peer: FakePeer) -> None:
    brokers = LiveBrokers()
    began = time.thread_time()
    for number in range(5_000):
        one = BrokerRegistration(
            cluster="c", broker_name=f"b{number}", broker_id=0, address=f"h:{number}",
            topics={"x": TopicConfig(topic_name="x"), "y": TopicConfig(topic_name="y")},
        )  # fmt: skip
        assert brokers.take(one, peer, LastSeen(seen_ms=0), whole=False) is TAKEN
    assert len(brokers.members) == 5_000
    peer.hang_up()
    assert (brokers.registrations, list(brokers.members)) == ({}, [])
    assert time.thread_time() - began < 3


def test_so_many_brokers_are_registered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_brokers, "BROKERS_MAX", 2)
    brokers = LiveBrokers()
    verdicts = [
        brokers.take(
            BrokerRegistration(cluster="c", broker_name=name, broker_id=0, address=f"h:{name}"),
            FakePeer(),
            LastSeen(seen_ms=0),
            whole=False,
        )
        for name in ("a", "b", "new", "a")
    ]
    assert verdicts == [TAKEN, TAKEN, RegistrationVerdict.TOO_MANY, TAKEN]


def beat(limit_ms: int | None = None) -> BrokerHeartbeat:
    return BrokerHeartbeat(
        cluster_name="c",
        broker_addr="10.0.0.0:10911",
        broker_name="a",
        heartbeat_timeout_mills=limit_ms,
    )


def lives(state: NameServerState) -> bool:
    state.brokers.forget_silent(state.clock.monotonic_ms())
    return bool(state.brokers.registrations)


def test_two_minutes_of_silence_end_a_broker(state: NameServerState, clock: MovedClock) -> None:
    registration.register(state, of_broker("a"), FakePeer())
    clock.ms += 120_000
    assert lives(state)
    clock.ms += 1
    assert not lives(state)


def test_a_broker_may_ask_for_less_patience(state: NameServerState, clock: MovedClock) -> None:
    hasty = msgspec.structs.replace(of_broker("a"), heartbeat_timeout_millis=10_000)
    registration.register(state, hasty, FakePeer())
    clock.ms += 10_001
    assert not lives(state)


def test_heartbeats_keep_a_broker_with_the_patience_it_asked_for(
    state: NameServerState, clock: MovedClock, peer: FakePeer
) -> None:
    hasty = msgspec.structs.replace(of_broker("a"), heartbeat_timeout_millis=10_000)
    registration.register(state, hasty, peer)
    clock.ms += 9_000
    registration.heartbeat(state, beat(), peer)
    clock.ms += 9_000
    assert lives(state)
    clock.ms += 9_000
    assert not lives(state)


def test_a_heartbeat_may_change_the_patience(
    state: NameServerState, clock: MovedClock, peer: FakePeer
) -> None:
    registration.register(state, of_broker("a"), peer)
    registration.heartbeat(state, beat(limit_ms=1_000), peer)
    clock.ms += 1_001
    assert not lives(state)


def test_a_broker_that_asks_about_its_unchanged_topics_stays(
    state: NameServerState, clock: MovedClock, peer: FakePeer
) -> None:
    hasty = msgspec.structs.replace(of_broker("a"), heartbeat_timeout_millis=10_000)
    registration.register(state, hasty, peer)
    question = QueryDataVersion(
        broker_name="a",
        broker_addr="10.0.0.0:10911",
        cluster_name="c",
        broker_id=0,
        body=codec.dumps(DataVersion(state_version=1, counter=1)),
    )
    for _ in range(3):
        clock.ms += 9_000
        assert not registration.data_version(state, question, peer).changed
        assert lives(state)
